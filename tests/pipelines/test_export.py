"""Exports are loaded by the libraries that they are for."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py as typed_h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.wrappers.flatten_observation import FlattenObservation
from imitation.algorithms.bc import BC
from imitation.data import rollout, serialize
from imitation.util import logger as imitation_logger

from abacus.env import AbacusEnv
from abacus.reward import TERMS
from abacus.rules import AbacusConfig, Action
from oracle.demos import Demonstrations, Recipe, record_demonstrations, record_in_memory
from oracle.demos.learners import trajectories
from pipelines import export
from pipelines.export import flat_rows
from pipelines.job.command_line import run
from tests.interruptions import failing_at, in_child, small_disk

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    record_demonstrations(Recipe(operations=150, epsilon=0.1), path)
    return path


@pytest.fixture(scope="module")
def demonstrations(path: Path) -> Demonstrations:
    return Demonstrations.open(path)


def run_export(*arguments: object) -> int:
    words = [str(argument) for argument in arguments]
    return run(export.main, export.Options, "", export.EXAMPLE, words)


def test_minari_loads_the_dataset(
    path: Path, demonstrations: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert run_export(path, "--to", "minari", "--reward", "no_of", "--frames", 2) == 0
    dataset = minari.load_dataset("some-v0")
    assert dataset.total_episodes == demonstrations.counts["episodes"]
    assert dataset.total_steps == len(demonstrations)
    wanted = trajectories(demonstrations, frames=2, level="no_of", actions="taken")
    columns = demonstrations.transitions
    start = 0
    for episode, trajectory in zip(dataset.iterate_episodes(), wanted, strict=True):
        for key, array in episode.observations.items():
            assert np.array_equal(array, trajectory.obs.get(key))  # type: ignore[union-attr]
        assert np.array_equal(episode.actions, trajectory.acts)
        assert np.array_equal(episode.rewards, trajectory.rews)
        rows = slice(start, start + len(trajectory))
        assert np.array_equal(episode.terminations, columns["terminated"][rows])
        assert np.array_equal(episode.truncations, columns["truncated"][rows])
        infos = episode.infos
        assert np.array_equal(infos["expert_action"], [*columns["action"][rows], -1])
        assert np.array_equal(infos["action_mask"][:-1], demonstrations.masks(rows))
        assert len(infos["action_mask"]) == len(trajectory) + 1
        assert np.array_equal(infos["reward_terms"], demonstrations.terms("no_of", rows))
        assert np.allclose(infos["reward_terms"].sum(axis=1), episode.rewards)
        start = rows.stop
    world = dataset.recover_environment().unwrapped.config
    assert (world.frames, world.reward, world.max_operations) == (2, "no_of", 10)
    assert (
        dataset.storage.metadata["ref_max_score"]
        > 100
        > 0
        > dataset.storage.metadata["ref_min_score"]
    )
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["some-v0"]
    assert run_export(path, "--to", "minari") == 2


def test_minari_metadata_is_complete(
    path: Path, demonstrations: Demonstrations, tmp_path: Path
) -> None:
    minari = pytest.importorskip("minari")
    arguments = (path, "--to", "minari", "--output", tmp_path, "--n-operations", 10)
    with warnings.catch_warnings():
        # Minari warns of what is missing.
        warnings.filterwarnings("error", module="minari")
        assert run_export(*arguments) == 0
        own = ("--author", "Ada", "--author-email", "ada@example.org", "--overwrite")
        dataset = minari.MinariDataset(tmp_path / "some-v0" / "data")
        default = dict(dataset.storage.metadata)
        assert run_export(*arguments, *own, "--code-permalink", "https://example.org/x") == 0
    assert demonstrations.metadata is not None
    generator = demonstrations.metadata.generator
    assert default["requirements"] == [f"virtual-abacus=={generator['version']}"]
    code = f"virtual-abacus {generator['version']}, commit {generator['commit']}"
    assert default["code_permalink"] == code
    assert default["author"] == {"The virtual-abacus authors"}
    for key in ("algorithm_name", "description", "env_spec", "eval_env_spec", "ref_max_score"):
        assert default[key]
    given = minari.MinariDataset(tmp_path / "some-v0" / "data").storage.metadata
    assert given["author"] == {"Ada"}
    assert given["author_email"] == {"ada@example.org"}
    assert given["code_permalink"] == "https://example.org/x"


def test_masks_after_the_last_action_are_those_of_the_environment() -> None:
    worlds = (
        AbacusConfig(max_operations=4),
        AbacusConfig(columns=2, max_digits=1, base=3, max_operations=3),
        AbacusConfig(columns=3, max_digits=2, operations="subtract", max_operations=9, start=20),
        AbacusConfig(columns=4, max_digits=2, operations="add", max_operations=50),
    )
    off_first_column = 0
    for world in worlds:
        demonstrations = record_in_memory(Recipe(world, operations=150, epsilon=0.4, seed=1))
        masks = demonstrations.final_masks()
        env = AbacusEnv(**world.to_dict())
        episodes = demonstrations.episodes
        for e, (start, length) in enumerate(
            zip(episodes["start"], episodes["length"], strict=True)
        ):
            env.reset(seed=int(episodes["seed"][e]))
            for action in demonstrations.transitions["taken"][start : start + length]:
                _, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                assert np.array_equal(masks[e], info["action_mask"])
                off_first_column += bool(masks[e, Action.LEFT])
    # Detours leave the finger elsewhere, where edges are out of view.
    assert off_first_column > 10


@pytest.mark.parametrize("to", ["d4rl", "imitation", "minari", "parquet"])
def test_only_an_earlier_export_is_overwritten(
    to: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if to == "minari":
        pytest.importorskip("minari")
    output = tmp_path / "out"
    target = output / "some-v0" if to == "minari" else output

    def content() -> dict[str, bytes]:
        files = [target] if target.is_file() else sorted(target.rglob("*"))
        return {str(file): file.read_bytes() for file in files if file.is_file()}

    def export_first(count: int, *words: object) -> int:
        return run_export(path, "--to", to, "--output", output, "--n-operations", count, *words)

    assert export_first(30) == 0
    before = content()
    assert export_first(10) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert content() == before
    assert export_first(10, "--overwrite") == 0
    assert content() != before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    if target.is_dir():
        (target / "thesis.tex").write_text("mine")
        assert export_first(30, "--overwrite") == 2
        assert "holds more than an export" in capsys.readouterr().err
        assert (target / "thesis.tex").read_text() == "mine"


def test_the_exported_file_is_not_overwritten(path: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.h5"
    own.write_bytes(path.read_bytes())
    assert run_export(own, "--to", "d4rl", "--output", own, "--overwrite") == 2
    assert own.read_bytes() == path.read_bytes()


LOAD_PARQUET = """
import sys
import datasets
import numpy as np

folder, result = sys.argv[1:]
assert "site-packages" in datasets.__file__
assert datasets.get_dataset_config_names(folder) == ["transitions", "episodes", "operations"]
arrays = {}
for table in ("transitions", "episodes", "operations"):
    loaded = datasets.load_dataset(folder) if table == "transitions" else (
        datasets.load_dataset(folder, table))
    assert set(loaded) == {"train", "validation"}
    for split, rows in loaded.items():
        for name, column in rows.with_format("numpy")[:].items():
            if name == "reward_terms":
                column = [list(terms.values()) for terms in rows[name]]
            arrays[f"{table}/{split}/{name}"] = np.asarray(column)
features = datasets.load_dataset(folder)["train"].features
assert features["expert_action"].names[4] == "signpost left"
assert features["symbol"].names[-2:] == ["+", "-"]
assert list(features["reward_terms"]) == "step finger signpost slide submit wrong".split()
np.savez(result, **arrays)
"""


def test_hugging_face_loads_the_parquet_folder(
    path: Path, demonstrations: Demonstrations, tmp_path: Path
) -> None:
    folder, result = tmp_path / "parquet", tmp_path / "result.npz"
    arguments = ("--to", "parquet", "--output", folder, "--reward", "no_of", "--frames", 2)
    assert run_export(path, *arguments) == 0
    # In a process and a folder of its own: there, `datasets` is the library for certain.
    alone = tmp_path / "alone"
    alone.mkdir()
    inherited = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    subprocess.run(
        [sys.executable, "-c", LOAD_PARQUET, folder, result],
        cwd=alone,
        env=inherited | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"},
        check=True,
        capture_output=True,
    )
    loaded = np.load(result)
    for split in ("train", "validation"):
        part: Demonstrations = getattr(demonstrations, split)
        rows, episodes, operations = part.transitions, part.episodes, part.operations
        which = demonstrations.episodes["validation"] == (split == "validation")
        numbers = np.flatnonzero(which)
        wanted = {
            "transitions/episode": np.repeat(numbers, episodes["length"]),
            "transitions/step": np.concatenate([np.arange(n) for n in episodes["length"]]),
            "transitions/window": part.observations(frames=2)["window"],
            "transitions/symbol": rows["symbol"],
            "transitions/operation": rows["operation"],
            "transitions/previous_action": previous_actions(part),
            "transitions/action": rows["taken"],
            "transitions/expert_action": rows["action"],
            "transitions/action_mask": part.masks(),
            "transitions/reward": part.rewards("no_of"),
            "transitions/reward_terms": part.terms("no_of"),
            "transitions/terminated": rows["terminated"],
            "transitions/truncated": rows["truncated"],
            "episodes/episode": numbers,
            "episodes/seed": episodes["seed"],
            "episodes/end": episodes["end"],
            "episodes/final_window": part.final_observations(frames=2)["window"],
            "operations/episode": numbers[operations["episode"]],
            "operations/first_operand": part.numbers("before"),
            "operations/second_operand": part.numbers("operand"),
            "operations/result": part.numbers("after"),
        }
        for name, array in wanted.items():
            table, _, column = name.partition("/")
            assert np.array_equal(loaded[f"{table}/{split}/{column}"], array), name


def previous_actions(part: Demonstrations) -> npt.NDArray[np.int64]:
    """Return the actions taken before, 8 where the stack of frames starts over."""
    previous = np.roll(part.transitions["taken"].astype(np.int64), 1)
    previous[part.operations["start"][part.operations["fresh"] == 1]] = 8
    return previous


def test_the_parquet_card_says_what_is_in_the_folder(path: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    wide = tmp_path / "wide.h5"
    record_demonstrations(Recipe(AbacusConfig(columns=40, max_operations=2), operations=2), wide)
    cases = ((path, {"train", "validation"}, "int64"), (wide, {"train"}, "string"))
    for source, splits, number in cases:
        folder = tmp_path / source.stem
        options = ("--to", "parquet", "--author", "A: b")
        assert run_export(source, "--output", folder, *options) == 0
        card = (folder / "README.md").read_text()
        _, front, page = card.split("---\n", 2)
        facts = yaml.safe_load(front)
        assert facts["license"] == "mit"
        assert facts["task_categories"] == ["reinforcement-learning"]
        assert [config["config_name"] for config in facts["configs"] if config["default"]] == [
            "transitions"
        ]
        named = [file for config in facts["configs"] for file in config["data_files"]]
        assert {file["split"] for file in named} == splits
        there = [str(file.relative_to(folder)) for file in folder.rglob("*.parquet")]
        assert sorted(file["path"] for file in named) == sorted(there)
        assert f"| `result` | {number} |" in page
        assert "doi:10.7557/18.6805" in page
        assert "A: b" in page
        assert str(tmp_path) not in card


def test_minari_writes_to_the_output_folder(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    arguments = (path, "--to", "minari", "--output", tmp_path, "--dataset-id", "mine-v3")
    assert run_export(*arguments, "--n-operations", 10) == 0
    assert (tmp_path / "mine-v3" / "data" / "metadata.json").is_file()


@pytest.mark.parametrize(
    "dataset_id", ["../../x", "../x-v0", "/x-v0", "a/../x-v0", "./x-v0", "x", "x-v0/", "x\n-v0"]
)
def test_an_id_that_is_a_path_writes_nothing(
    dataset_id: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "some" / "root"
    arguments = (path, "--to", "minari", "--output", root, f"--dataset-id={dataset_id}")
    assert run_export(*arguments) == 2
    error = capsys.readouterr().err
    assert "is not allowed: give --dataset-id" in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_of_the_disk_at_any_file_operation_gives_one_line(
    number: int, path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = 0
    for at in range(1, 30):
        folder = tmp_path / str(at)
        arguments = (path, "--to", "d4rl", "--output", folder / "flat.h5", "--n-operations", 20)
        status = failing_at(partial(run_export, *arguments), folder, at, number)
        error = capfd.readouterr().err
        assert error.count("\n") == (status == 2)
        if status == 0:
            break
        assert status == 2
        assert os.strerror(number) in error
        assert {entry.name for entry in folder.glob("*")} <= {"flat.h5"}
        if (folder / "flat.h5").exists():
            # The rename succeeded, and the flush of the folder failed.
            with h5py.File(folder / "flat.h5") as file:
                assert len(file["actions"]) == len(file["observations"])
        failed += 1
    assert 4 < failed < 29


@pytest.mark.parametrize("to", ["d4rl", "imitation", "minari", "parquet"])
def test_a_disk_of_any_size_gives_one_line(
    to: str, path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The HDF5 library crashes on a full disk if it writes to the file itself."""
    if to == "minari":
        pytest.importorskip("minari")
    statuses = set()
    for size in (4, 16, 64, 256, 1024, 8192):
        folder = tmp_path / str(size)
        with small_disk(folder, size * 1024):
            output = folder if to == "minari" else folder / "flat"
            status = in_child(partial(run_export, path, "--to", to, "--output", output))
            error = capfd.readouterr().err
            assert status in (0, 2)
            assert error.count("\n") == (status == 2)
            assert bool(list(folder.iterdir())) == (status == 0)
            statuses.add(status)
    assert statuses == {0, 2}


def test_imitation_loads_the_folder_and_trains_on_it(
    path: Path, demonstrations: Demonstrations, tmp_path: Path
) -> None:
    folder = tmp_path / "for-imitation"
    assert run_export(path, "--to", "imitation", "--output", folder, "--n-operations", 40) == 0
    # imitation decodes the infos of a transition whenever it takes it.
    loaded = list(serialize.load_with_rewards(folder))
    demonstrations = demonstrations.first(40)
    assert len(loaded) == demonstrations.counts["episodes"]
    for trajectory, wanted in zip(loaded, trajectories(demonstrations), strict=True):
        flat = flat_rows(wanted.obs.unwrap(), demonstrations.config)  # type: ignore[union-attr]
        assert np.array_equal(trajectory.obs, flat)  # type: ignore[arg-type]
        assert np.array_equal(trajectory.acts, wanted.acts)
        assert np.allclose(trajectory.rews, wanted.rews)
    infos = [info for trajectory in loaded for info in trajectory.infos or ()]
    columns = demonstrations.transitions
    for key, column in (("expert_action", "action"), ("taken_action", "taken")):
        assert np.array_equal([info[key] for info in infos], columns[column])
    assert np.array_equal([info["action_mask"] for info in infos], demonstrations.masks())
    terms = np.array([[info["reward_terms"][name] for name in TERMS] for info in infos], np.float32)
    assert np.array_equal(terms, demonstrations.terms())
    env: Any = FlattenObservation(AbacusEnv())
    torch.manual_seed(0)
    logger: Any = imitation_logger.configure(tmp_path / "log", [])
    clone = BC(
        observation_space=env.observation_space,
        action_space=env.action_space,
        rng=np.random.default_rng(0),
        demonstrations=rollout.flatten_trajectories(loaded),
        custom_logger=logger,
        device="cpu",
    )
    clone.train(n_batches=150, progress_bar=False)
    logger.close()
    first = loaded[0]
    answers, _ = clone.policy.predict(np.asarray(first.obs[:-1]), deterministic=True)
    assert (answers == first.acts).mean() > 0.5


def test_d4rl_has_flat_arrays_with_true_next_observations(
    path: Path, demonstrations: Demonstrations, tmp_path: Path
) -> None:
    file_path = tmp_path / "flat.h5"
    assert run_export(path, "--to", "d4rl", "--output", file_path, "--reward", "answer_only") == 0
    with h5py.File(file_path) as file:
        arrays = {name: file[name][:] for name in file if name not in ("infos", "metadata")}
        experts = file["infos/expert_action"][:]
        assert np.array_equal(file["infos/action_mask"][:], demonstrations.masks())
        terms = demonstrations.terms("answer_only")
        assert np.array_equal(file["infos/reward_terms"][:], terms)
        assert json.loads(file["metadata/reward_terms"][()]) == list(TERMS)
    wanted = {"observations", "next_observations", "actions", "rewards", "terminals", "timeouts"}
    assert set(arrays) == wanted
    assert {len(array) for array in arrays.values()} == {len(demonstrations)}
    assert np.array_equal(arrays["actions"], demonstrations.transitions["taken"])
    assert np.array_equal(experts, demonstrations.transitions["action"])
    assert np.array_equal(arrays["rewards"], demonstrations.rewards("answer_only"))
    start = 0
    for trajectory in trajectories(demonstrations):
        flat = flat_rows(trajectory.obs.unwrap(), demonstrations.config)  # type: ignore[union-attr]
        rows = slice(start, start + len(trajectory))
        assert np.array_equal(arrays["observations"][rows], flat[:-1])
        assert np.array_equal(arrays["next_observations"][rows], flat[1:])
        assert arrays["timeouts"][rows].nonzero()[0].tolist() == [len(trajectory) - 1]
        start = rows.stop
    assert not arrays["terminals"].any()


def test_a_flat_row_equals_gymnasiums_flatten(demonstrations: Demonstrations) -> None:
    env = AbacusEnv(**demonstrations.config.to_dict())
    shown, _ = env.reset(seed=int(demonstrations.episodes["seed"][0]))
    row = flat_rows(demonstrations.observations(slice(0, 1)), demonstrations.config)[0]
    flat: Any = gym.spaces.flatten(env.observation_space, shown)
    assert np.array_equal(row, flat)


def test_subsets_can_be_exported(
    path: Path, demonstrations: Demonstrations, tmp_path: Path
) -> None:
    for name, arguments, wanted in (
        ("first.h5", ["--n-operations", 20], demonstrations.first(20)),
        ("train.h5", ["--split", "train"], demonstrations.train),
        ("validation.h5", ["--split", "validation"], demonstrations.validation),
        ("few.h5", ["--split", "train", "--n-operations", 7], demonstrations.train.first(7)),
    ):
        assert run_export(path, "--to", "d4rl", "--output", tmp_path / name, *arguments) == 0
        with h5py.File(tmp_path / name) as file:
            assert np.array_equal(file["actions"][:], wanted.transitions["taken"])


def test_no_file_is_replaced_and_mistakes_give_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.h5"
    there.write_text("mine")
    for arguments in (
        [path, "--to", "d4rl", "--output", there],
        [path, "--to", "d4rl", "--output", tmp_path / "x.h5", "--frames", 99],
        [path, "--to", "d4rl", "--output", tmp_path / "x.h5", "--reward", "gold"],
        [path, "--to", "d4rl", "--output", tmp_path / "x.h5", "--n-operations", 10**6],
        [there, "--to", "d4rl"],
    ):
        assert run_export(*arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert there.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["there.h5"]
