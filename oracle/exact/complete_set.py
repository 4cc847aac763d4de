"""The set of all observations that the reference algorithm can meet, at any width and length.

`docs/exactness.md` holds the proof that the exploration of a narrow abacus finds them all. The set
is kept on disk under a key of everything that it depends on, the source of the rules included.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

import abacus.kernel
import abacus.observation
import abacus.rules
import oracle.algorithm
import oracle.exact.exploration
import oracle.expert
from abacus.observation import (
    SIGNPOST_LEFT,
    SIGNPOST_RIGHT,
    SIGNPOST_UNSEEN,
    decode_frame,
    frame_codes,
    frame_pixels,
)
from abacus.rules import ENCODING_PERIOD, Action
from oracle.algorithm import Variant, check_variant
from oracle.exact.exploration import OPERATION, SYMBOL, Exploration, explore
from oracle.files import atomic_write

FORMAT_VERSION = 1
#: Columns beyond the frames at which the exploration of an abacus has found all observations.
COLUMNS_BEYOND_FRAMES = 5
MAX_FRAMES = 6
_ARRAYS = ("histories", "symbols", "operations", "answers")
_SOURCES = (
    abacus.kernel,
    abacus.observation,
    abacus.rules,
    oracle.algorithm,
    oracle.expert,
    oracle.exact.exploration,
)


@dataclass(frozen=True)
class ObservationSet:
    """Distinct observations with the teacher's answer, sorted by their keys.

    An observation is the frame codes of the window, oldest first, the symbol and the operation.
    `answers` holds a bit for each action that is the teacher's answer in some situation that looks
    so: one bit where the observation tells what to do.
    """

    base: int
    frames: int
    variant: Variant
    histories: npt.NDArray[np.int32]  # (M, frames)
    symbols: npt.NDArray[np.uint8]  # (M,)
    operations: npt.NDArray[np.uint8]  # (M,)
    answers: npt.NDArray[np.uint8]  # (M,)

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in _ARRAYS}
        if len(lengths) != 1 or self.histories.shape[1:] != (self.frames,):
            raise ValueError(
                f"arrays of lengths {sorted(lengths)} with histories of shape "
                f"{self.histories.shape}: give one length and (length, {self.frames})"
            )

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def actions(self) -> npt.NDArray[np.int64]:
        """(M,): the teacher's action; where it has two answers, the first by number."""
        bits = self.answers[:, None] >> np.arange(len(Action)) & 1
        first: npt.NDArray[np.int64] = np.argmax(bits, axis=1)
        return first

    @cached_property
    def ambiguous(self) -> npt.NDArray[np.bool_]:
        """(M,): where two situations look the same and ask for different actions."""
        two: npt.NDArray[np.bool_] = (self.answers & (self.answers - 1)) != 0
        return two

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """(M,): ascending."""
        return observation_keys(self.histories, self.symbols, self.operations)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the settings and of every row."""
        digest = hashlib.sha256(f"{self.base},{self.frames},{self.variant}".encode())
        for name in _ARRAYS:
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()

    @cached_property
    def visibly_illegal(self) -> npt.NDArray[np.bool_]:
        """(M, 8): the actions that the newest frame shows to be illegal."""
        return visibly_illegal(self.base, self.histories[:, -1])

    def of_operation(self, operation: int) -> ObservationSet:
        """The observations of one operation, ADD or SUBTRACT."""
        rows = self.operations == operation
        return replace(self, **{name: getattr(self, name)[rows] for name in _ARRAYS})

    def index(
        self,
        histories: npt.NDArray[np.integer],
        symbols: npt.NDArray[np.integer],
        operations: npt.NDArray[np.integer],
    ) -> npt.NDArray[np.int64]:
        """The rows of observations in this set; -1 for those which are not in it."""
        if histories.ndim != 2 or histories.shape[1] != self.frames:
            raise ValueError(
                f"histories have shape {histories.shape}: give (n, {self.frames}) for this set"
            )
        keys = observation_keys(histories, symbols, operations)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        found = (
            (self.histories[rows] == histories).all(axis=1)
            & (self.symbols[rows] == symbols)
            & (self.operations[rows] == operations)
        )
        return np.where(found, rows, -1)

    def observations(
        self, rows: slice | npt.NDArray[np.integer] = slice(None)
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Rows as the environment gives them.

        With three frames or more these tell the previous action, which is then as it was; with
        fewer it is left at zeros, as at a start.
        """
        histories = self.histories[rows]
        count = len(histories)
        symbols = np.eye(self.base + 2, dtype=np.float32)[self.symbols[rows]]
        previous = np.zeros((count, len(Action)), np.float32)
        if self.frames >= 3:
            actions = previous_actions(self.base, histories, self.symbols[rows])
            acted = actions >= 0
            previous[acted, actions[acted]] = 1.0
        return {
            "window": frame_pixels(self.base)[histories].reshape(count, -1),
            "symbol": symbols,
            "operation": self.operations[rows].astype(np.float32)[:, None],
            "previous_action": previous,
        }


def observation_keys(
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[np.integer],
    operations: npt.NDArray[np.integer],
) -> npt.NDArray[np.uint64]:
    """A 64-bit key of each observation, well mixed; a set checks that its own keys differ."""
    keys = np.zeros(len(histories), np.uint64)
    for column in (symbols, operations, *np.asarray(histories).T):
        keys = (keys + np.asarray(column).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(32)
    return keys


def visibly_illegal(base: int, frames: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """(M, 8): what a frame shows to be illegal: an edge that is in view, or nothing to slide."""
    left, right, row, _, signpost = decode_frames(base, frames)
    illegal = np.zeros((len(frames), len(Action)), np.bool_)
    illegal[:, Action.LEFT] = left == base
    illegal[:, Action.UP] = row == 0
    illegal[:, Action.DOWN] = row == base - 1
    illegal[:, Action.SIGNPOST_LEFT] = (left == base) & (signpost == SIGNPOST_RIGHT)
    illegal[:, Action.SLIDE] = right == row
    return illegal


def decode_frames(base: int, frames: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], ...]:
    """(left, right, row, phase, signpost) of frame codes, an array each."""
    table = np.array([decode_frame(base, code) for code in range(frame_codes(base))])
    return tuple(table[np.asarray(frames)].T)


def previous_actions(
    base: int, histories: npt.NDArray[np.integer], symbols: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    """The teacher's last action as three frames or more tell it; -1 at a start."""
    _, digit_before, row_before, phase_before, signpost_before = decode_frames(
        base, histories[:, -2]
    )
    left, digit, row, phase, signpost = decode_frames(base, histories[:, -1])
    moved = (phase - phase_before) % ENCODING_PERIOD
    unseen_reset = (left == base) & (signpost == SIGNPOST_UNSEEN) & (np.asarray(symbols) >= base)
    at_start = (histories == histories[:, :1]).all(axis=1) & (np.asarray(symbols) < base)
    to_left = (signpost_before == SIGNPOST_UNSEEN) | (signpost == SIGNPOST_LEFT)
    return np.select(
        [
            moved == 1,
            moved == ENCODING_PERIOD - 1,
            row < row_before,
            row > row_before,
            digit != digit_before,
            (signpost != signpost_before) & to_left,
            signpost != signpost_before,
            unseen_reset,
            at_start,
        ],
        [
            Action.RIGHT,
            Action.LEFT,
            Action.UP,
            Action.DOWN,
            Action.SLIDE,
            Action.SIGNPOST_LEFT,
            Action.SIGNPOST_RIGHT,
            Action.SIGNPOST_LEFT,
            -1,
        ],
        default=Action.SUBMIT,
    ).astype(np.int64)


def complete_width(frames: int) -> int:
    """The width at which an exploration has met every observation there is."""
    return frames + COLUMNS_BEYOND_FRAMES


def enumerate_observations(
    base: int, frames: int, variant: Variant = "before", width: int | None = None
) -> ObservationSet:
    """Explores the algorithm on an abacus of `width` columns and collects what it meets."""
    _check(base, frames, variant)
    return collect(explore(base, frames, width or complete_width(frames), variant), variant)


def collect(exploration: Exploration, variant: Variant) -> ObservationSet:
    """The distinct observations of an exploration."""
    histories = exploration.histories
    symbols = exploration.situations[:, SYMBOL]
    operations = exploration.situations[:, OPERATION]
    keys = observation_keys(histories, symbols, operations)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    same = (
        (histories == histories[first[inverse]]).all(axis=1)
        & (symbols == symbols[first[inverse]])
        & (operations == operations[first[inverse]])
    )
    if not same.all():
        raise AssertionError("two observations share a key: change the mixing of the keys")
    answers = np.zeros(len(first), np.uint8)
    np.bitwise_or.at(answers, inverse, np.uint8(1) << exploration.actions)
    return ObservationSet(
        exploration.base,
        exploration.frames,
        variant,
        histories[first],
        symbols[first],
        operations[first],
        answers,
    )


def complete_set(
    base: int = 5,
    frames: int = 3,
    variant: Variant = "before",
    cache_folder: Path | None = None,
) -> ObservationSet:
    """The complete set, from the cache where it is there; a damaged cache is made anew."""
    _check(base, frames, variant)
    path = cache_path(base, frames, variant, cache_folder)
    if path.exists():
        try:
            return _read(path, base, frames, variant)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            said = f"the cached set {path.name} is damaged ({error}): making it anew"
            print(said, file=sys.stderr)
    observations = enumerate_observations(base, frames, variant)
    wider = enumerate_observations(base, frames, variant, complete_width(frames) + ENCODING_PERIOD)
    if wider.digest != observations.digest:
        raise AssertionError(
            f"{len(observations)} observations on {complete_width(frames)} columns but "
            f"{len(wider)} on {ENCODING_PERIOD} more: the set is not complete"
        )
    _write(path, observations)
    return observations


def cache_path(base: int, frames: int, variant: Variant, folder: Path | None = None) -> Path:
    """Where a set is cached: its settings, and a digest of the source that decides it."""
    digest = hashlib.sha256(f"{FORMAT_VERSION},{np.lib.format.__name__}".encode())
    for module in _SOURCES:
        digest.update(Path(str(module.__file__)).read_bytes())
    name = f"observations-b{base}-f{frames}-{variant}-{digest.hexdigest()[:16]}.npz"
    return (folder or default_cache_folder()) / name


def default_cache_folder() -> Path:
    """$ABACUS_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("ABACUS_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "virtual-abacus"


def _check(base: int, frames: int, variant: Variant) -> None:
    if not 2 <= base <= 10:
        raise ValueError(f"base={base!r} is not allowed: give 2 to 10")
    if not 1 <= frames <= MAX_FRAMES:
        raise ValueError(f"frames={frames!r} is not allowed: give 1 to {MAX_FRAMES}")
    check_variant(variant)


def _read(path: Path, base: int, frames: int, variant: Variant) -> ObservationSet:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
        observations = ObservationSet(base, frames, variant, *(file[name] for name in _ARRAYS))
        if observations.digest != str(file["digest"]):
            raise ValueError("its digest differs")
    return observations


def _write(path: Path, observations: ObservationSet) -> None:
    arrays = {name: getattr(observations, name) for name in _ARRAYS}
    digest = np.array(observations.digest)
    try:
        atomic_write(path, lambda file: np.savez(file, digest=digest, **arrays))
    except OSError as error:
        print(f"the set of observations is not cached: {error}", file=sys.stderr)
