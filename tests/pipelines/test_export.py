"""Exports are loaded by the libraries that they are for."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py as typed_h5py
import numpy as np
import pytest
import torch
from gymnasium.wrappers.flatten_observation import FlattenObservation
from imitation.algorithms.bc import BC
from imitation.data import rollout, serialize
from imitation.util import logger as imitation_logger

from abacus.env import AbacusEnv
from oracle.demos import Demonstrations, Recipe, record_demonstrations
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
        assert np.array_equal(episode.infos["expert_action"], columns["action"][rows])
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


@pytest.mark.parametrize("to", ["d4rl", "imitation", "minari"])
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
