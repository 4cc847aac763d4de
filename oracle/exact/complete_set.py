"""The complete set: all observations of the reference algorithm, at any width and operand length.

`docs/exactness.md` proves that the exploration of a narrow abacus finds them all. Sets are cached
on disk; the file name holds a digest of everything that they depend on, source code included.
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

import abacus.hash_index
import abacus.kernel
import abacus.observation
import abacus.rules
import oracle.algorithm
import oracle.exact.exploration
import oracle.expert
from abacus.checks import check_integer
from abacus.observation import (
    SIGNPOST_LEFT,
    SIGNPOST_UNSEEN,
    decode_frame,
    observation_arrays,
    visibly_illegal_actions,
)
from abacus.rules import ENCODING_PERIOD, Action
from oracle.algorithm import Variant, check_variant
from oracle.exact.exploration import Exploration, explore
from oracle.files import atomic_write

FORMAT_VERSION = 1
#: An abacus with this many more columns than frames shows every observation.
COLUMNS_BEYOND_FRAMES = 5
MAX_FRAMES = 6
_ARRAYS = ("histories", "symbols", "operations", "answers")
_SOURCES = (
    abacus.hash_index,
    abacus.kernel,
    abacus.observation,
    abacus.rules,
    oracle.algorithm,
    oracle.expert,
    oracle.exact.exploration,
)


@dataclass(frozen=True)
class ObservationSet:
    """Distinct observations with the expert's actions, sorted by key.

    An observation consists of the frame codes of the window, oldest first, the symbol and the
    operation. `answers` has a bit for each action that the expert takes in some situation with this
    observation: a single bit where the observation determines the action.
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
        """(M,): the expert's action; the lowest where there are several."""
        bits = self.answers[:, None] >> np.arange(len(Action)) & 1
        first: npt.NDArray[np.int64] = np.argmax(bits, axis=1)
        return first

    @cached_property
    def ambiguous(self) -> npt.NDArray[np.bool_]:
        """(M,): whether two situations with this observation need different actions."""
        several: npt.NDArray[np.bool_] = (self.answers & (self.answers - 1)) != 0
        return several

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """(M,): see `observation_keys`; ascending."""
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
        return visibly_illegal_actions(self.base)[self.histories[:, -1]]

    def symbol_text(self, row: int) -> str:
        """Return the symbol of a row as a reader writes it: a digit, + or -."""
        symbol = int(self.symbols[row])
        return str(symbol) if symbol < self.base else "+-"[symbol - self.base]

    def of_operation(self, operation: int) -> ObservationSet:
        """Return the observations of one operation, ADD or SUBTRACT."""
        rows = self.operations == operation
        return replace(self, **{name: getattr(self, name)[rows] for name in _ARRAYS})

    def index(
        self,
        histories: npt.NDArray[np.integer],
        symbols: npt.NDArray[np.integer],
        operations: npt.NDArray[np.integer],
    ) -> npt.NDArray[np.int64]:
        """Return the rows of observations in this set, -1 for those not in it."""
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
        """Return rows as the environment gives them.

        Three frames or more determine the previous action; with fewer it is all zeros, as at the
        start of an episode.
        """
        histories, symbols = self.histories[rows], self.symbols[rows]
        previous = previous_actions(self.base, histories, symbols) if self.frames >= 3 else None
        return observation_arrays(self.base, histories, symbols, self.operations[rows], previous)


def observation_keys(
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[np.integer],
    operations: npt.NDArray[np.integer],
) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each observation; `collect` checks that they are distinct."""
    keys = np.zeros(len(histories), np.uint64)
    for column in (symbols, operations, *np.asarray(histories).T):
        keys = (keys + np.asarray(column).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(32)
    return keys


def previous_actions(
    base: int, histories: npt.NDArray[np.integer], symbols: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    """Return the expert's previous action, from three frames or more; -1 at a start."""
    _, digit_before, row_before, phase_before, signpost_before = decode_frame(
        base, histories[:, -2]
    )
    left, digit, row, phase, signpost = decode_frame(base, histories[:, -1])
    moved = (phase - phase_before) % ENCODING_PERIOD
    hidden_signpost = (left == base) & (signpost == SIGNPOST_UNSEEN) & (np.asarray(symbols) >= base)
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
            hidden_signpost,
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
    """Return the number of columns at which an exploration finds every observation."""
    return frames + COLUMNS_BEYOND_FRAMES


def enumerate_observations(
    base: int, frames: int, variant: Variant = "before", width: int | None = None
) -> ObservationSet:
    """Return the observations on an abacus of `width` columns; enough for all by default."""
    _check(base, frames, variant)
    return collect(explore(base, frames, width or complete_width(frames), variant))


def collect(exploration: Exploration) -> ObservationSet:
    """Return the distinct observations of an exploration."""
    histories = exploration.histories
    symbols, operations = exploration.symbols, exploration.operations
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
        exploration.variant,
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
    """Return the complete set, from the cache if possible; replace a damaged cache file."""
    _check(base, frames, variant)
    path = cache_path(base, frames, variant, cache_folder)
    if path.exists():
        try:
            return _read(path, base, frames, variant)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            print(f"cached set {path.name} is damaged, enumerating: {error}", file=sys.stderr)
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
    """Return the cache file of a set, named after its settings and a digest of its sources."""
    digest = hashlib.sha256(f"{FORMAT_VERSION},{np.lib.format.__name__}".encode())
    for module in _SOURCES:
        digest.update(Path(str(module.__file__)).read_bytes())
    name = f"observations-b{base}-f{frames}-{variant}-{digest.hexdigest()[:16]}.npz"
    return (folder or default_cache_folder()) / name


def default_cache_folder() -> Path:
    """Return $ABACUS_CACHE, or a folder in the user's cache."""
    if chosen := os.environ.get("ABACUS_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "virtual-abacus"


def _check(base: int, frames: int, variant: Variant) -> None:
    check_integer("base", base, 2, 10)
    check_integer("frames", frames, 1, MAX_FRAMES)
    check_variant(variant)


def _read(path: Path, base: int, frames: int, variant: Variant) -> ObservationSet:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
        observations = ObservationSet(base, frames, variant, *(file[name] for name in _ARRAYS))
        if observations.digest != str(file["digest"]):
            raise ValueError("wrong digest")
    return observations


def _write(path: Path, observations: ObservationSet) -> None:
    arrays = {name: getattr(observations, name) for name in _ARRAYS}
    digest = np.array(observations.digest)
    try:
        atomic_write(path, lambda file: np.savez(file, digest=digest, **arrays))
    except OSError as error:
        print(f"set of observations not cached: {error}", file=sys.stderr)
