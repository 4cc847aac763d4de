"""The file format: tree, attributes, seal, digest, checks of values, the committed sample."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import numpy as np
import pytest

from abacus.observation import frame_pixels
from abacus.reward import LEVELS, terms_of
from abacus.rules import AbacusConfig
from abacus.tasks import Task
from oracle.demos import Demonstrations, DemonstrationsError, Recipe, record_demonstrations
from oracle.demos.replay import first_difference, recipe_difference
from oracle.demos.schema import every_column, every_outcome
from oracle.demos.writer import USER_BLOCK, seal_of
from pipelines import upgrade_demos
from pipelines.job.command_line import run
from tests.oracle.demos.hostile_files import write_seal

# Untyped: the published stubs do not cover the low-level interface.
h5py: Any = typed_h5py
SAMPLE = Path(__file__).parents[3] / "datasets" / "sample.h5"


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    command = ["python", "-m", "a.job", "--output", "/srv/me/secret/some.h5", "--x=/srv/me/y.h5"]
    record_demonstrations(Recipe(operations=200, epsilon=0.1), path, command=command)
    return path


def test_the_tree_is_flat_and_chunked_with_standard_filters(path: Path) -> None:
    with h5py.File(path) as file:
        assert set(file) == {"transitions", "episodes", "operations", "tables"}
        for group in file.values():
            for dataset in group.values():
                assert dataset.dtype.kind in "iu"
                assert dataset.chunks is not None
                plist = dataset.id.get_create_plist()
                names = [plist.get_filter(k)[3] for k in range(plist.get_nfilters())]
                assert names in ([b"deflate"], [b"shuffle", b"deflate"])
        rows = {len(dataset) for dataset in file["transitions"].values()}
        assert rows == {json.loads(file.attrs["counts"])["transitions"]}


def test_attributes_are_numbers_texts_and_json(path: Path) -> None:
    with h5py.File(path) as file:
        attributes = {
            name: json.loads(value) if isinstance(value, bytes) and value[:1] in b"[{" else value
            for name, value in file.attrs.items()
        }
    assert attributes["format"] == {"name": "virtual-abacus-demonstrations", "version": 3}
    assert attributes["seed"] == 0
    assert AbacusConfig.from_dict(attributes["config"]) == AbacusConfig(max_operations=10)
    assert attributes["algorithm"]["variant"] == "before"
    assert attributes["algorithm"]["epsilon"] == 0.1
    assert attributes["libraries"]["numpy"] == np.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", attributes["generator"]["version"])
    assert attributes["command"][-3:] == ["--output", "some.h5", "--x=y.h5"]
    assert b"secret" not in path.read_bytes()


@pytest.fixture(scope="module")
def path_of_tasks(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("tasks") / "some.h5"
    tasks = (Task.parse("12 + 34 - 5"), Task.parse("7 + 0"), Task.parse("100 - 99"))
    record_demonstrations(Recipe(AbacusConfig(), tasks=tasks, epsilon=0.1), path)
    return path


def test_a_file_of_tasks_has_the_same_tree_and_version(path: Path, path_of_tasks: Path) -> None:
    with h5py.File(path) as file, h5py.File(path_of_tasks) as other:
        names: dict[str, list[str]] = {"a": [], "b": []}
        file.visit(names["a"].append)
        other.visit(names["b"].append)
        assert names["a"] == names["b"]
        assert set(file.attrs) == set(other.attrs)
        assert file.attrs["format"] == other.attrs["format"]
        request = {"operations": 4, "transitions": None, "tasks": 3}
        assert json.loads(other.attrs["request"]) == request
    assert path_of_tasks.read_bytes().startswith(b"virtual-abacus-demonstrations 3\n")
    tasks = Demonstrations.open(path_of_tasks, verify=True).recipe.tasks
    assert tasks is not None
    assert list(map(str, tasks)) == ["12 + 34 - 5", "7 + 0", "100 - 99"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_with_two_versions_is_refused(path: Path, tmp_path: Path, version: int) -> None:
    data = path.read_bytes()
    name = b"virtual-abacus-demonstrations %d"
    assert data.startswith(name % 3)
    forged = tmp_path / "forged.h5"
    forged.write_bytes(name % version + data[len(name % version) :])
    with pytest.raises(DemonstrationsError, match="two format versions"):
        Demonstrations.open(forged)


@pytest.mark.parametrize(
    ("key", "value"),
    [("tasks", 2), ("tasks", None), ("operations", 3), ("transitions", 9), ("seed", 0)],
)
def test_a_request_that_the_tasks_do_not_fulfil_is_refused(
    path_of_tasks: Path, tmp_path: Path, key: str, value: int | None
) -> None:
    target = tmp_path / "other.h5"
    target.write_bytes(path_of_tasks.read_bytes())
    with h5py.File(target, "r+") as file:
        request = json.loads(file.attrs["request"]) | {key: value}
        file.attrs["request"] = np.bytes_(json.dumps(request).encode())
    write_seal(target)
    with pytest.raises(DemonstrationsError, match=r"request|invalid attributes"):
        Demonstrations.open(target)


def test_a_changed_task_is_found(path_of_tasks: Path, tmp_path: Path) -> None:
    for name, index in (("operations/operand", (0, 0)), ("operations/before", (2, 1))):
        target = copy_with_change(path_of_tasks, tmp_path / "other.h5", name, index, 2)
        with pytest.raises(DemonstrationsError, match="does not have the content of its digest"):
            Demonstrations.open(target, verify=True)
        changed = Demonstrations.open(target)
        assert changed.recipe != Demonstrations.open(path_of_tasks).recipe
        assert recipe_difference(changed) is not None
        assert first_difference(changed) is not None


def test_plain_h5py_gives_frames_terms_and_rewards(path: Path) -> None:
    demonstrations = Demonstrations.open(path)
    with h5py.File(path) as file:
        rows, tables = file["transitions"], file["tables"]
        frames = tables["frame"][:][rows["frame"][:]] * tables["frame"].attrs["scale"]
        taken, outcome = rows["taken"][:], rows["outcome"][:]
        terms = tables["terms"][:][:, taken, outcome + 1] * tables["terms"].attrs["scale"]
        rewards = rows["reward"][:] * tables["terms"].attrs["scale"]
    assert np.array_equal(
        frames.reshape(len(frames), -1), demonstrations.observations(frames=1)["window"]
    )
    for level, of_level in zip(LEVELS, terms, strict=True):
        assert np.array_equal(of_level.astype(np.float32), demonstrations.terms(level))
    assert np.array_equal(rewards.astype(np.float32), demonstrations.rewards())


def test_the_scales_of_tables_are_exact() -> None:
    for base in range(2, 11):
        pixels = frame_pixels(base)
        assert np.array_equal(np.rint(pixels * 4) / 4, pixels)
    for level in LEVELS:
        terms = terms_of(every_outcome(), level)
        for exact in (terms, terms.sum(axis=-1)):
            whole = np.rint(exact * 20).astype(np.int8)
            assert np.array_equal((whole * 0.05).astype(np.float32), exact)


def test_the_seal_is_text_before_the_data(path: Path) -> None:
    data = path.read_bytes()
    lines = data[:USER_BLOCK].decode().split("\n")
    assert lines[0] == "virtual-abacus-demonstrations 3"
    assert lines[1] == f"sha256 {hashlib.sha256(data[USER_BLOCK:]).hexdigest()}"
    assert data[USER_BLOCK : USER_BLOCK + 8] == b"\x89HDF\r\n\x1a\n"
    assert h5py.is_hdf5(path)


def copy_with_change(path: Path, target: Path, name: str, index: Any, value: Any) -> Path:
    """Copy a file, change a value, and seal it again."""
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        file[name][index] = value
    write_seal(target)
    return target


def test_verify_finds_a_changed_value_by_the_digest(path: Path, tmp_path: Path) -> None:
    target = copy_with_change(path, tmp_path / "other.h5", "operations/operand", (0, 0), 4)
    demonstrations = Demonstrations.open(target)
    assert demonstrations.content_digest() != Demonstrations.open(path).content_digest()
    with pytest.raises(DemonstrationsError, match="does not have the content of its digest"):
        Demonstrations.open(target, verify=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transitions/frame", 1350),
        ("transitions/symbol", 7),
        ("transitions/operation", 2),
        ("transitions/action", 8),
        ("transitions/taken", 8),
        ("transitions/mask", 0),
        ("transitions/outcome", 2),
        ("transitions/reward", 7),
        ("transitions/terminated", 1),
        ("transitions/truncated", 1),
        ("episodes/start", -1),
        ("episodes/start", 2**62),
        ("episodes/length", 2**31 - 1),
        ("episodes/first_operation", 2**62),
        ("episodes/operations", 0),
        ("episodes/seed", -1),
        ("episodes/end", 0),
        ("episodes/end", 5),
        ("episodes/validation", 2),
        ("episodes/final_frame", 1350),
        ("episodes/final_symbol", 7),
        ("episodes/final_operation", 2),
        ("operations/start", 2**62),
        ("operations/length", 1),
        ("operations/episode", 2**62),
        ("operations/operation", 2),
        ("operations/fresh", 0),
        ("operations/operand", 5),
        ("operations/before", 5),
        ("operations/after", 5),
        ("tables/frame", 9),
        ("tables/terms", 9),
    ],
)
def test_impossible_values_are_refused_without_the_digest(
    path: Path, tmp_path: Path, name: str, value: int
) -> None:
    """Compiled code relies on valid indices."""
    target = copy_with_change(path, tmp_path / "other.h5", name, 0, value)
    with pytest.raises(DemonstrationsError):
        Demonstrations.open(target)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("transitions/frame", "window"),
        ("transitions/symbol", "symbol"),
        ("transitions/operation", "operation"),
        ("transitions/action", "action"),
        ("transitions/taken", "taken"),
        ("transitions/mask", "mask"),
        ("transitions/outcome", "outcomes"),
        ("transitions/terminated", "terminated"),
        ("transitions/truncated", "truncated"),
        ("episodes/seed", ""),
        ("episodes/end", "end"),
        ("episodes/final_frame", "final window"),
        ("episodes/final_symbol", "final symbol"),
        ("episodes/final_operation", "final operation"),
        ("operations/operation", "operation"),
        ("operations/fresh", ""),
        ("operations/operand", "result"),
        ("operations/before", "before"),
        ("operations/after", "after"),
    ],
)
def test_the_replay_finds_a_change_in_any_column(path: Path, name: str, what: str) -> None:
    """The change is made in memory, after all other checks."""
    demonstrations = Demonstrations.open(path)
    assert first_difference(demonstrations) is None
    group, _, column = name.partition("/")
    rows = demonstrations.columns[group][column]
    row = 12 if group != "transitions" else 3456
    before = int(rows[row].flat[0])
    rows[row] = {"mask": before ^ 1, "outcome": -before}.get(column, (before + 1) % 2)
    difference = first_difference(Demonstrations(demonstrations.columns, demonstrations.recipe))
    assert difference is not None
    if what and what != "taken":
        assert difference.what == what
    columns = demonstrations.columns[group]
    episode = {"operations": columns.get("episode", [0] * 13)[12], "episodes": 12}.get(group)
    if episode is not None:
        assert difference.episode == episode


@pytest.mark.parametrize(
    ("version", "digest"),
    [
        (1, "93af6501ead3be332e10a1bbe0a59cf080b57f39f3a886d1d3642465617bc5d6"),
        (2, "7021acf93dd8b9e2eb85b46754af72e5e8a0c13dd5c6efdf65abc6082e121492"),
    ],
)
def test_old_versions_are_read_and_upgraded_with_the_same_content(
    version: int, digest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files were recorded by the code of their version."""
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    packed = Path(__file__).parent / "old_versions" / f"version_{version}.h5.gz"
    old.write_bytes(gzip.decompress(packed.read_bytes()))
    before = Demonstrations.open(old, verify=True)
    assert before.metadata is not None
    assert before.metadata.attributes["format"]["version"] == version
    assert before.metadata.digest == digest
    assert first_difference(before) is None
    assert recipe_difference(before) is None

    def upgrade(*words: object) -> int:
        options = (upgrade_demos.main, upgrade_demos.Options, "", upgrade_demos.EXAMPLE)
        return run(*options, [str(word) for word in words])

    assert upgrade(old, "--output", new) == 0
    after = Demonstrations.open(new, verify=True)
    assert after.metadata is not None
    assert after.metadata.attributes["format"]["version"] == 3
    assert after.metadata.digest == digest
    assert after.metadata.provenance == before.metadata.provenance
    assert after.recipe == before.recipe
    for group, column in every_column(before.config):
        rows = before.columns[group][column.name]
        assert np.array_equal(rows, after.columns[group][column.name])
    # In place, and not a second time; another file is never replaced.
    assert upgrade(old, "--output", new) == 2
    assert upgrade(old) == 0
    upgraded = old.read_bytes()
    assert upgraded == new.read_bytes()
    assert upgrade(old) == 0
    assert old.read_bytes() == upgraded
    assert "nothing to do" in capsys.readouterr().out


def test_an_old_file_with_explanations_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "old.h5"
    packed = Path(__file__).parent / "old_versions" / "version_1.h5.gz"
    target.write_bytes(gzip.decompress(packed.read_bytes()))
    with h5py.File(target, "r+") as file:
        file["transitions/reward"].attrs["scale"] = 0.05
    content = target.read_bytes()[USER_BLOCK:]
    target.write_bytes(seal_of(content, 1) + content)
    with pytest.raises(DemonstrationsError, match="unknown attribute, 'scale'"):
        Demonstrations.open(target)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("transitions/action", "values", b'{"0": "right"}'),
        ("transitions/frame", "table", b"tables/terms"),
        ("transitions/reward", "scale", 0.1),
        ("transitions/reward", "scale", None),
        ("tables/terms", "modules", b"{}"),
        ("operations/before", "unit", b"dozen"),
        ("episodes", "description", 3),
        ("episodes", "description", None),
    ],
)
def test_a_false_explanation_is_refused(
    path: Path, tmp_path: Path, place: str, name: str, value: object
) -> None:
    """A stranger relies on what the attributes say."""
    target = tmp_path / "other.h5"
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        del file[place].attrs[name]
        if value is not None:
            file[place].attrs[name] = np.bytes_(value) if isinstance(value, bytes) else value
    write_seal(target)
    with pytest.raises(DemonstrationsError, match=name):
        Demonstrations.open(target)


def test_descriptions_may_be_worded_differently(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "other.h5"
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        for item in (file, file["episodes"], file["transitions/frame"]):
            item.attrs["description"] = np.bytes_(b"In other words.")
    write_seal(target)
    digest = Demonstrations.open(path).content_digest()
    assert Demonstrations.open(target, verify=True).content_digest() == digest


def test_the_sample_is_intact_small_and_made_by_the_command_in_the_card(tmp_path: Path) -> None:
    assert SAMPLE.stat().st_size < 300_000
    sample = Demonstrations.open(SAMPLE, verify=True)
    assert first_difference(sample) is None
    assert sample.metadata is not None
    card = (SAMPLE.parent / "README.md").read_text()
    command = " ".join(sample.metadata.attributes["command"])
    assert f"{command} --output datasets/sample.h5" in card
    assert sample.metadata.digest in card
    assert (
        record_demonstrations(sample.recipe, tmp_path / "again.h5").digest == sample.metadata.digest
    )
