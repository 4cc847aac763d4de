"""The commands `generate_demos` and `inspect_demos`, run as a user runs them."""

from __future__ import annotations

import errno
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import numpy as np
import pytest

from oracle.demos import Demonstrations, Recipe, record_demonstrations
from oracle.demos.shards import warm_up
from pipelines import generate_demos, inspect_demos
from pipelines.inspect_demos import animate, steps_of
from pipelines.job.command_line import run
from tests.interruptions import before_operations, failing_at, in_child, small_disk
from tests.oracle.demos.hostile_files import write_seal
from tests.oracle.demos.test_format import copy_with_change

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "datasets" / "sample.h5"


@pytest.fixture(scope="module", autouse=True)
def compiled_recorder() -> None:
    """Compile first: `generate_demos` prints a notice if that takes long."""
    warm_up(Recipe(operations=1))


def generate(*arguments: object) -> int:
    words = [str(argument) for argument in arguments]
    return run(generate_demos.main, generate_demos.Options, "", generate_demos.EXAMPLE, words)


def inspect(*arguments: object) -> int:
    words = [str(argument) for argument in arguments]
    return run(inspect_demos.main, inspect_demos.Options, "", inspect_demos.EXAMPLE, words)


def test_without_arguments_the_default_set_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert generate() == 0
    path = tmp_path / "datasets" / "abacus-both-c10-b5-d6-n50000-s0.h5"
    demonstrations = Demonstrations.open(path)
    assert demonstrations.counts["operations"] == 50_000
    output = capsys.readouterr().out
    lines = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert lines["transitions"] == f"{len(demonstrations):,}"
    assert lines["operations"].startswith("50,000, in 5,000 episodes, 500 of them for validation")
    assert re.search(r"LEFT \d+,\d+ \(\d+\.\d%\), .* SUBMIT \d+,\d+ \(\d+\.\d%\)", lines["actions"])
    assert re.search(r"\d+\.\d% with a carry, .* longest chain \d+", lines["additions"])
    assert re.search(r"\d+\.\d% with a borrow", lines["subtractions"])
    assert re.search(r"of the 99,784 observations .* \(\d+\.\d+%\)", lines["covers"])
    assert f"{path.stat().st_size:,} bytes" in lines["size"]
    assert lines["path"] == "datasets/abacus-both-c10-b5-d6-n50000-s0.h5"
    assert re.search(r"[\d.]+ s, [\d,]+ transitions a second", lines["time"])
    assert generate() == 0
    assert "exists already" in capsys.readouterr().out


ARGUMENTS = {
    "n_transitions": 3000,
    "operations_per_episode": 3,
    "max_digits": 3,
    "columns": 12,
    "base": 7,
    "operations": "subtract",
    "start": "random",
    "variant": "printed",
    "reward": "step,submit",
    "epsilon": 0.25,
    "frames": 2,
    "seed": 11,
    "workers": 3,
    "compression": 1,
    "shard_operations": 20,
}


def test_every_argument_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    flags = [word for name, value in ARGUMENTS.items() for word in (flag_of(name), value)]
    assert generate(*flags, "--output", path) == 0
    demonstrations = Demonstrations.open(path, verify=True)
    recipe, config = demonstrations.recipe, demonstrations.config
    assert recipe.transitions == 3000
    assert recipe.operations is None
    assert (config.max_operations, config.max_digits, config.columns) == (3, 3, 12)
    assert (config.base, config.operations, config.start) == (7, "subtract", "random")
    assert (config.reward, config.frames) == (("step", "submit"), 2)
    assert (recipe.variant, recipe.epsilon, recipe.seed) == ("printed", 0.25, 11)
    assert inspect(path, "--verify") == 0
    assert demonstrations.metadata is not None
    command = demonstrations.metadata.attributes["command"]
    assert command[:3] == ["python", "-m", "pipelines.generate_demos"]
    # The command in the file records the same content.
    again = tmp_path / "again.h5"
    assert generate(*command[3:], "--output", again) == 0
    assert Demonstrations.open(again).content_digest() == demonstrations.content_digest()


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def test_given_tasks_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, path = tmp_path / "tasks.txt", tmp_path / "some.h5"
    text.write_text("# the first number is on the abacus\n12 + 34 - 5\n\n  7+8 \n")
    assert generate("--tasks", text, "--columns", 12, "--output", path) == 0
    output = capsys.readouterr().out
    assert re.search("^tasks +2 given, one an episode; the first is '12 [+] 34 - 5'$", output, re.M)
    demonstrations = Demonstrations.open(path)
    assert demonstrations.numbers("before").tolist() == [12, 46, 7]
    assert demonstrations.numbers("after").tolist() == [46, 41, 15]
    assert inspect(path, "--operation", 1, "--verify") == 0
    output = capsys.readouterr().out
    assert "operation 1 of episode 0: 141 - 10 = 131 in base 5 (46 - 5 = 41)" in output
    assert "verified" in output
    steps = list(steps_of(demonstrations, 1))
    assert len(steps) == demonstrations.operations["length"][1]
    assert demonstrations.metadata is not None
    command = demonstrations.metadata.attributes["command"]
    assert command[-4:] == ["--tasks", "tasks.txt", "--columns", "12"]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"12 + 34\n\n4 - 5\n", [], "tasks.txt, line 3: task '4 - 5' goes below zero at -5"),
        (b"12\n", [], "tasks.txt, line 1: task='12' is not allowed: give a value and operations"),
        (b"1 + 2\n12: +34\n", [], "tasks.txt, line 2: task='12: +34' is not allowed"),
        (b"1 + 15625\n", [], "tasks.txt, line 1: operand 15625 has more than max_digits=6"),
        (b"1 + 4\n", ["--columns", 2, "--max-digits", 1, "--base", 2], "line 1: task operand 4"),
        (b"# nothing\n", [], "tasks.txt has no tasks"),
        (b"\xff\xfe", [], "tasks.txt is not text"),
        (None, [], "No such file"),
        (b"1 + 2\n", ["--n-operations", 5], "--n-operations has no effect on --tasks"),
        (b"1 + 2\n", ["--start", "random"], "--start has no effect on --tasks"),
        (b"1 + 2\n", ["--operations", "add"], "--operations has no effect on --tasks"),
    ],
)
def test_mistakes_in_tasks_give_one_line(
    content: bytes | None,
    arguments: Sequence[object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = tmp_path / "tasks.txt"
    if content is not None:
        text.write_bytes(content)
    assert generate("--tasks", text, *arguments, "--output", tmp_path / "some.h5") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "some.h5").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-operations", 5, "--n-transitions", 5], "give one of them"),
        (["--n-operations", 0], "operations=0"),
        (["--columns", 1], "columns=1"),
        (["--max-digits", 10], "below columns=10"),
        (["--base", 11], "base=11"),
        (["--epsilon", 2], "epsilon=2"),
        (["--start", "often"], "start='often'"),
        (["--reward", "gold"], "reward='gold'"),
        (["--compression", 12, "--n-operations", 10], "compression=12"),
        (["--output", "missing\0name"], "null"),
    ],
)
def test_mistakes_give_one_line(
    arguments: Sequence[object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert generate(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_in_the_place_of_a_folder_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert generate("--output", tmp_path / "file" / "some.h5", "--n-operations", 10) == 2
    assert capsys.readouterr().err.count("\n") == 1


DISK_ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def generate_small(path: Path) -> int:
    flags = ("--n-operations", 60, "--shard-operations", 20, "--workers", 1)
    return generate(*flags, "--output", path)


@pytest.fixture(scope="module")
def small_digest(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    return record_demonstrations(Recipe(operations=60), path).digest


def check_resumed(path: Path, digest: str) -> None:
    """The same command succeeds when the disk does, and leaves nothing but the file."""
    assert in_child(partial(generate_small, path)) == 0
    assert Demonstrations.open(path, verify=True).content_digest() == digest
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_error_of_the_disk_at_any_file_operation_gives_one_line(
    small_digest: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    operations = 0

    def count() -> None:
        nonlocal operations
        operations += 1

    (tmp_path / "0").mkdir()
    with before_operations(tmp_path, count):
        generate_small(tmp_path / "0" / "some.h5")
    assert operations > 20
    statuses = set()
    capfd.readouterr()
    for at in range(1, operations + 1):
        path = tmp_path / str(at) / "some.h5"
        path.parent.mkdir()
        number = DISK_ERRORS[at % len(DISK_ERRORS)]
        status = failing_at(partial(generate_small, path), tmp_path, at, number)
        assert status in (0, 2), at
        assert capfd.readouterr().err.count("\n") == (status == 2), at
        assert status == 2 or path.exists()
        statuses.add(status)
        check_resumed(path, small_digest)
        capfd.readouterr()
    assert 2 in statuses


def test_a_disk_of_any_size_gives_one_line_and_loses_no_shards(
    small_digest: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    statuses = []
    for size in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 1024):
        path = tmp_path / str(size) / "some.h5"
        with small_disk(path.parent, size * 1024) as remount:
            status = in_child(partial(generate_small, path))
            assert status in (0, 2), size
            assert capfd.readouterr().err.count("\n") == (status == 2), size
            assert path.exists() == (status == 0)
            shards = list(path.parent.glob("*.shards/*.h5"))
            statuses.append((status, len(shards)))
            remount("size=10m")
            assert all(Demonstrations.open(shard, verify=True) for shard in shards)
            check_resumed(path, small_digest)
        capfd.readouterr()
    assert {(2, 0), (2, 1), (2, 2), (0, 0)} <= set(statuses)


def test_the_file_in_a_read_only_folder_is_found(
    small_digest: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "disk" / "some.h5"
    with small_disk(path.parent, 2**20) as remount:
        assert generate_small(path) == 0
        remount("ro")
        assert in_child(partial(generate_small, path)) == 0
        assert "the file exists already, with this content" in capfd.readouterr().out
        status = in_child(lambda: generate("--n-operations", 61, "--output", path))
        assert status == 2
        error = capfd.readouterr().err
        assert "holds other demonstrations" in error
        assert error.count("\n") == 1


def test_the_inspector_shows_tree_attributes_statistics_and_a_demonstration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert inspect(SAMPLE, "--operation", 7) == 0
    output = capsys.readouterr().out
    of_action = (
        r"action +uint8 +\(57,957\) +[\d,]+ bytes  The demonstrator's action in this state\n"
    )
    assert re.search(rf"/transitions\n  {of_action}", output)
    of_frame = (
        r"frame +uint8 +\(1,350, 2, 2, 6\) +[\d,]+ bytes  The pixels of every frame, scale 0.25"
    )
    assert re.search(of_frame, output)
    assert '@format       {"name": "virtual-abacus-demonstrations", "version": 3}' in output
    assert "longest chain" in output
    trace = output[output.index("operation 7 of episode 0") :].splitlines()
    sample = Demonstrations.open(SAMPLE)
    assert len([line for line in trace if re.match(r" +\d+  ", line)]) == int(
        sample.operations["length"][7]
    )
    assert re.search(r"\[\d⚑\]", trace[2])


def test_the_inspector_verifies_and_fails_on_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(SAMPLE, "--verify") == 0
    assert "all 200 episodes replay as they were recorded" in capsys.readouterr().out
    # Seal and digest are forged: only the replay can find the change.
    other = copy_with_change(SAMPLE, tmp_path / "other.h5", "operations/before", (50, 9), 4)
    forge_digest(other)
    assert inspect(other) == 0
    assert inspect(other, "--verify") == 1
    error = capsys.readouterr().err
    assert error.startswith("differs: operations/before, row 50, is recorded as ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("episodes/validation", 7, 1, "episodes/validation, row 7, is recorded as 1, and is 0"),
        ("episodes/validation", 1, 0, "episodes/validation, row 1, is recorded as 0, and is 1"),
        ("episodes/seed", 0, 7, "episodes/seed, row 0, is recorded as 7"),
        ("operations/operand", 0, 1, "operations/operand, row 0"),
    ],
)
def test_the_inspector_records_the_file_again_and_fails_on_a_difference(
    name: str,
    row: int,
    value: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = copy_with_change(SAMPLE, tmp_path / "other.h5", name, row, value)
    forge_digest(other)
    assert inspect(other, "--verify") == 1
    error = capsys.readouterr().err
    assert error.startswith("differs: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "requested",
    [{"operations": 1999}, {"operations": 2001}, {"transitions": 57_958}, {"transitions": 57_000}],
)
def test_the_inspector_compares_the_request_with_the_counts(
    requested: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(SAMPLE.read_bytes())
    request = dict.fromkeys(("operations", "transitions", "tasks")) | requested
    forge_attribute(other, "request", request)
    assert inspect(other) == 0
    assert inspect(other, "--verify") == 1
    error = capsys.readouterr().err
    assert "were requested, and there are 2,000 operations of 57,957 transitions" in error
    assert error.count("\n") == 1


def test_files_of_other_shards_and_detours_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    for number, flags in enumerate(
        (
            ["--n-transitions", 12_345, "--epsilon", 0.2],
            ["--n-operations", 3],
            ["--n-operations", 507, "--operations-per-episode", 25, "--start", "random"],
        )
    ):
        path = tmp_path / f"{number}.h5"
        assert generate(*flags, "--output", path) == 0
        assert inspect(path, "--verify") == 0


@pytest.mark.parametrize("place", ["/", "transitions", "transitions/action", "tables/frame"])
def test_an_unknown_attribute_gives_one_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(SAMPLE.read_bytes())
    with h5py.File(other, "r+") as file:
        file[place].attrs["note"] = "a note"
    write_seal(other)
    assert inspect(other) == 2
    error = capsys.readouterr().err
    assert "has an unknown attribute, 'note'" in error
    assert error.count("\n") == 1


def test_an_unknown_key_or_dataset_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.h5"
    for name, change in (("request", {"x": 1}), ("counts", {"x": 1}), ("config", {"x": 1})):
        other.write_bytes(SAMPLE.read_bytes())
        with h5py.File(other) as file:
            value = json.loads(file.attrs[name])
        forge_attribute(other, name, value | change)
        assert inspect(other) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for name in ("note", "episodes/note"):
        other.write_bytes(SAMPLE.read_bytes())
        with h5py.File(other, "r+") as file:
            file[name] = np.arange(3)
        write_seal(other)
        assert inspect(other) == 2
        assert capsys.readouterr().err.count("\n") == 1


def forge_attribute(path: Path, name: str, value: Any) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs[name] = np.bytes_(json.dumps(value).encode())
    write_seal(path)


def forge_digest(path: Path) -> None:
    forge_attribute(path, "digest", {"sha256": Demonstrations.open(path).content_digest()})


def test_the_inspector_refuses_other_files_and_invalid_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.h5"
    data = bytearray(SAMPLE.read_bytes())
    data[5000] ^= 1
    damaged.write_bytes(data)
    for path in (damaged, tmp_path / "missing.h5", tmp_path, ROOT / "README.md"):
        assert inspect(path) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for arguments in (["--operation", 2000], ["--operation", -1], ["--steps-per-second", 0]):
        assert inspect(SAMPLE, *arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_animation_moves_in_place_on_a_terminal_and_scrolls_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    sample = Demonstrations.open(SAMPLE)
    steps = len(list(steps_of(sample, 3)))
    terminal, plain = Terminal(), io.StringIO()
    animate(sample, 3, terminal, steps_per_second=5)
    animate(sample, 3, plain, steps_per_second=5)
    assert terminal.getvalue().count("\x1b[H") == steps
    assert naps == [0.2] * steps
    assert "\x1b" not in plain.getvalue()
    assert plain.getvalue().count("operation 3 of episode 0") == steps


def test_commands_do_not_import_learners_that_they_do_not_need() -> None:
    code = (
        "import sys, pipelines.generate_demos, pipelines.inspect_demos, pipelines.export; "
        "print(*{'torch', 'imitation', 'minari', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
