"""The complete set of observations: its content, its completeness, its cache."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from abacus.batch import AbacusBatch
from abacus.observation import encode_frame
from abacus.rules import AbacusConfig, Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import (
    KNOWN_SETS,
    ObservationSet,
    cache_path,
    complete_set,
    complete_width,
    enumerate_observations,
    nearest_situations,
    observation_keys,
    shortest_paths,
)
from oracle.exact.exploration import explore
from oracle.expert import expert_actions
from tests.interruptions import failing_at, in_child, small_disk
from tests.oracle.exact.sweep import sweep


def test_each_observation_determines_the_action_with_the_signpost_before(
    observations: ObservationSet,
) -> None:
    assert len(observations) == 99_784
    assert not observations.ambiguous.any()


def test_the_printed_order_leaves_ambiguous_observations() -> None:
    assert enumerate_observations(5, 3, "printed").ambiguous.sum() > 0
    assert enumerate_observations(5, 1, "before").ambiguous.sum() > 0
    assert enumerate_observations(5, 2, "before").ambiguous.sum() == 0


@pytest.mark.parametrize(("base", "frames"), [(2, 1), (2, 3), (3, 2), (5, 3), (7, 2)])
def test_wider_abaci_add_nothing_for_a_full_period(base: int, frames: int) -> None:
    width = complete_width(frames)
    narrow = enumerate_observations(base, frames, width=width)
    for wider in (width + 1, width + 2, width + 3):
        assert enumerate_observations(base, frames, width=wider).digest == narrow.digest
    assert len(enumerate_observations(base, frames, width=width - 2)) < len(narrow)


@pytest.mark.parametrize(
    ("base", "frames", "width"), [(2, 3, 5), (2, 1, 5), (2, 5, 4), (3, 3, 4), (4, 2, 3)]
)
@pytest.mark.parametrize("variant", ["before", "printed"])
def test_exhaustive_sweep_and_exploration_agree(
    base: int, frames: int, width: int, variant: Variant
) -> None:
    """The sweep of a width stays in the set, and covers the set of two columns fewer."""
    swept = sweep(base, frames, width, variant)
    complete = enumerate_observations(base, frames, variant)
    rows = complete.index(swept[:, :frames], swept[:, frames], swept[:, frames + 1])
    assert (rows >= 0).all()
    assert (complete.answers[rows] >> swept[:, -1] & 1).all()
    if width > 3:
        narrow = enumerate_observations(base, frames, variant, width - 2)
        wanted = complete.index(narrow.histories, narrow.symbols, narrow.operations)
        assert set(wanted.tolist()) <= set(rows.tolist())


@pytest.mark.parametrize(
    "config",
    [
        AbacusConfig(),
        AbacusConfig(start="random"),
        AbacusConfig(operations="subtract"),
        AbacusConfig(operations="add", columns=12, max_digits=11),
        AbacusConfig(columns=60, max_digits=59, start="random"),
        AbacusConfig(columns=35, max_digits=20, start=5**35 - 1),
    ],
    ids=lambda config: f"{config.operations}-{config.columns}",
)
def test_sampling_never_finds_an_observation_outside(
    config: AbacusConfig, observations: ObservationSet
) -> None:
    """Compare the arrays of the environment row by row, over 200,000 steps of six worlds."""
    batch = AbacusBatch(config, 256)
    batch.reset(7)
    for _ in range(140):
        actions = expert_actions(batch)
        rows = observations.index(
            batch.history, batch.scalars["symbol"], batch.scalars["operation"]
        )
        assert (rows >= 0).all()
        assert np.array_equal(observations.actions[rows], actions)
        assert (batch.masks <= ~observations.visibly_illegal[rows]).all()
        for key, values in observations.observations(rows).items():
            assert np.array_equal(values, batch.observation[key]), key
        batch.step(actions)


def test_an_observation_that_the_expert_never_meets_is_outside(
    observations: ObservationSet,
) -> None:
    lost = encode_frame(5, 0, 0, 0, 0, 0)
    history = np.array([[lost, lost, lost], observations.histories[17]])
    rows = observations.index(
        history,
        np.array([3, observations.symbols[17]]),
        np.array([0, observations.operations[17]]),
    )
    assert rows.tolist() == [-1, 17]


def test_the_expert_never_acts_visibly_illegally(observations: ObservationSet) -> None:
    rows = np.arange(len(observations))
    assert not observations.visibly_illegal[rows, observations.actions].any()
    assert observations.visibly_illegal[:, Action.LEFT].any()
    assert not observations.visibly_illegal[:, Action.SUBMIT].any()


def test_keys_differ_where_one_entry_differs() -> None:
    history = np.arange(6).reshape(2, 3)
    base = observation_keys(history, np.array([1, 1]), np.array([0, 0]))
    assert (base != observation_keys(history, np.array([2, 2]), np.array([0, 0]))).all()
    assert (base != observation_keys(history, np.array([1, 1]), np.array([1, 1]))).all()
    assert (base != observation_keys(history[:, ::-1], np.array([1, 1]), np.array([0, 0]))).all()


def test_cache_is_read_back(tmp_path: Path) -> None:
    first = complete_set(2, 2, cache_folder=tmp_path)
    path = cache_path(2, 2, "before", tmp_path)
    written = path.stat().st_mtime_ns
    assert complete_set(2, 2, cache_folder=tmp_path).digest == first.digest
    assert path.stat().st_mtime_ns == written
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not a set"])
def test_a_damaged_cache_is_replaced_with_a_message(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = complete_set(2, 1, cache_folder=tmp_path)
    path = cache_path(2, 1, "before", tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 4] ^= 0xFF
    path.write_bytes(
        {
            "truncated": bytes(content[: len(content) // 2]),
            "flipped": bytes(content),
            "empty": b"",
            "not a set": b"PK nonsense",
        }[damage]
    )
    assert complete_set(2, 1, cache_folder=tmp_path).digest == good.digest
    assert "is damaged, enumerating" in capsys.readouterr().err
    assert complete_set(2, 1, cache_folder=tmp_path).digest == good.digest
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("forgery", ["seven rows", "another answer", "other types", "a bomb"])
def test_a_forged_cache_is_replaced_with_a_message(
    forgery: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is a valid set, as this program would write it, but not the known one."""
    good = complete_set(2, 2, cache_folder=tmp_path)
    path = cache_path(2, 2, "before", tmp_path)
    with np.load(path) as file:
        names = ("histories", "symbols", "operations", "answers")
        arrays = {name: file[name] for name in names}
    save = np.savez
    if forgery == "seven rows":
        arrays = {name: array[:7] for name, array in arrays.items()}
    elif forgery == "another answer":
        arrays["answers"][3] = 1 << Action.SUBMIT
    elif forgery == "other types":
        arrays = {
            name: array.view(array.dtype.str.replace("u", "i")) for name, array in arrays.items()
        }
        assert len(ObservationSet(2, 2, "before", **arrays)) == len(good)
    else:
        arrays["histories"], save = np.zeros((10**7, 2), np.int32), np.savez_compressed
    save(path, **arrays)
    for message in ("is damaged, enumerating", ""):
        assert complete_set(2, 2, cache_folder=tmp_path).digest == good.digest
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == bool(message)


def test_shortest_paths_are_those_of_the_whole_exploration(tmp_path: Path) -> None:
    observations = complete_set(3, 2, cache_folder=tmp_path)
    paths = shortest_paths(3, 2, "before", tmp_path)
    whole = explore(3, 2, complete_width(2))
    assert len(paths.actions) < len(whole.actions) / 2
    pairs = zip(
        nearest_situations(paths, observations).tolist(),
        nearest_situations(whole, observations).tolist(),
        strict=True,
    )
    for here, there in pairs:
        assert np.array_equal(paths.path_to(here), whole.path_to(there))
        assert paths.actions[here] == whole.actions[there]


@pytest.mark.parametrize(
    "damage", ["absent", "no file", "bytes", "other parent", "other branch", "too few", "too many"]
)
def test_damaged_paths_are_replaced_with_a_message(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The set in the same file is still read; `absent` is a file without paths."""
    good = complete_set(2, 2, cache_folder=tmp_path)
    path = cache_path(2, 2, "before", tmp_path)
    with np.load(path) as file:
        arrays = dict(file)
    for name in ("parents", "branches"):
        if damage == "absent":
            del arrays[name]
        elif damage == "too few":
            arrays[name] = arrays[name][:-1]
        elif damage == "too many":
            arrays[name] = np.pad(arrays[name], (0, 2000))
    if damage == "other parent":
        arrays["parents"][-1] -= 1
    elif damage == "other branch":
        arrays["branches"][-1] += 1000
    np.savez(path, **arrays)
    if damage == "bytes":
        content = bytearray(path.read_bytes())
        content[len(content) * 3 // 4] ^= 0xFF
        path.write_bytes(content)
    elif damage == "no file":
        path.unlink()
    else:
        assert complete_set(2, 2, cache_folder=tmp_path).digest == good.digest
    assert not capsys.readouterr().err
    for message in ("no paths in cached set", ""):
        paths = shortest_paths(2, 2, "before", tmp_path)
        assert len(nearest_situations(paths, good)) == len(good)
        error = capsys.readouterr().err
        if damage != "no file":
            assert message in error
            assert error.count("\n") == bool(message)


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("variant", ["before", "printed"])
def test_known_sets_are_those_of_an_enumeration(frames: int, variant: Variant) -> None:
    for base in (2, 3, 4, 5):
        size, digest = KNOWN_SETS[base, frames, variant]
        found = enumerate_observations(base, frames, variant)
        assert len(found) == size
        assert found.digest.startswith(digest)


def test_a_set_that_is_not_known_is_not_cached(tmp_path: Path) -> None:
    assert (2, 4, "before") not in KNOWN_SETS
    assert len(complete_set(2, 4, cache_folder=tmp_path)) > 1720
    assert not list(tmp_path.iterdir())


def test_a_changed_algorithm_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN_SETS, (2, 1, "before"), (392, "0" * 32))
    with pytest.raises(AssertionError, match="KNOWN_SETS was not"):
        complete_set(2, 1, cache_folder=tmp_path)


def test_an_error_of_the_disk_costs_only_the_cache(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error at each file operation, and disks on which there is no room."""
    failed = 0
    for at in range(1, 20):
        folder = tmp_path / f"cache-{at}"

        def enumerates(folder: Path = folder) -> int:
            return int(len(complete_set(2, 1, cache_folder=folder)) != 392)

        assert failing_at(enumerates, folder, at, errno.ENOSPC) == 0
        error = capfd.readouterr().err
        if not error:
            break
        assert error.count("\n") == 1
        assert "not cached" in error
        # What is there is complete.
        assert in_child(enumerates) == 0
        assert not capfd.readouterr().err
        failed += 1
    assert 5 < failed < 19
    for size in (4096, 8192):
        with small_disk(tmp_path / str(size), size):
            assert len(complete_set(2, 2, cache_folder=tmp_path / str(size))) == 916
            assert "not cached" in capfd.readouterr().err
            assert not list((tmp_path / str(size)).iterdir())


def test_cache_key_holds_the_settings(tmp_path: Path) -> None:
    paths = {
        cache_path(base, frames, variant, tmp_path)
        for base in (2, 5)
        for frames in (1, 3)
        for variant in ("before", "printed")
    }
    assert len(paths) == 8


def test_a_folder_that_cannot_be_written_costs_only_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert len(complete_set(2, 1, cache_folder=blocked / "below")) > 0
    assert "not cached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "names"),
    [((1, 3), "base=1"), ((11, 3), "base=11"), ((5, 0), "frames=0"), ((5, 7), "frames=7")],
)
def test_bad_settings_are_named(arguments: tuple[int, int], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        complete_set(*arguments)


def test_a_set_for_other_frames_refuses_histories(observations: ObservationSet) -> None:
    with pytest.raises(ValueError, match=r"give \(n, 3\)"):
        observations.index(np.zeros((1, 2), int), np.zeros(1, int), np.zeros(1, int))
