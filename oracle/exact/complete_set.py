"""The complete set: all observations of the reference algorithm, at any width and operand length.

`docs/exactness.md` proves that the exploration of a narrow abacus finds them all. Sets whose digest
is known here are cached on disk; others are enumerated each time, which takes seconds to minutes.
The cache also holds a shortest path to each observation, for witnesses.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.checks import check_integer
from abacus.compiling import compiled
from abacus.hash_index import EMPTY, empty_slots, find_slot, insert_rows
from abacus.observation import (
    SIGNPOST_LEFT,
    SIGNPOST_UNSEEN,
    decode_frame,
    observation_arrays,
    visibly_illegal_actions,
)
from abacus.rules import ENCODING_PERIOD, Action
from oracle.algorithm import Variant, check_variant
from oracle.exact import MAX_FRAMES
from oracle.exact.exploration import Exploration, Tree, explore, follow, observation_bytes
from oracle.files import atomic_write

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: An abacus with this many more columns than frames shows every observation.
COLUMNS_BEYOND_FRAMES = 5
#: The arrays of a set with their types, which its digest does not hold.
_ARRAYS = {"histories": np.int32, "symbols": np.uint8, "operations": np.uint8, "answers": np.uint8}
#: What a damaged cache file raises.
_READ_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
#: The arrays of a tree, beside those of a set.
_TREE_ARRAYS = {"parents": np.int32, "branches": np.uint16}
#: The paths to all observations have fewer situations than this many times the observations.
_MAX_SITUATIONS = 3
#: Situations whose observations are collected at once.
_SLICE = 1 << 18
#: More than the headers of a cache file take.
_MAX_HEADERS = 2**13
#: The number of observations and the first half of the digest of the sets that are known, by base,
#: frames and variant. Only these are cached: a file in the cache might have been forged.
KNOWN_SETS: dict[tuple[int, int, Variant], tuple[int, str]] = {
    (2, 1, "before"): (392, "c0ca0a5daf33b242ba8af2b366f536ab"),
    (2, 1, "printed"): (368, "10a1ece43b9c7f5bdbfe17ed29f73dd2"),
    (3, 1, "before"): (1_620, "59148e79e78a7564824807c176f44fcd"),
    (3, 1, "printed"): (1_404, "971f952dd36f3da74962ba9a0f5fac84"),
    (4, 1, "before"): (4_562, "d8e2be94705ac0d99f11770b6bd4a5f6"),
    (4, 1, "printed"): (3_698, "7b9cb56359ba5f47ffc460d9370dd790"),
    (5, 1, "before"): (10_340, "d1a272f86d59d8a86701e3556ff6cd70"),
    (5, 1, "printed"): (7_940, "71ff33ac99b161cec89f1ced5ac5950b"),
    (6, 1, "before"): (20_364, "66979e3a55880f3f65e94bc4f34bd991"),
    (6, 1, "printed"): (14_964, "ddc25aa1f7ba653f76787d21383fcbd5"),
    (7, 1, "before"): (36_332, "393d3cd3da57d331062421a13aaab9ea"),
    (7, 1, "printed"): (25_748, "f63bcc8acfb843e4e0fb517caede5681"),
    (8, 1, "before"): (60_230, "3cae7f0979fd92775370c1b9b96d7719"),
    (8, 1, "printed"): (41_414, "bb80eca4a33fc7a39a710486690f4056"),
    (9, 1, "before"): (94_332, "6b28e0484959ed31e8cc309d07f3c0b0"),
    (9, 1, "printed"): (63_228, "3d113c7de11b4e86408ccd25869fb6c1"),
    (10, 1, "before"): (141_200, "5b874d77cd64ede307b1a94e8a999d38"),
    (10, 1, "printed"): (92_600, "702b6a98d06454931445b556d44e3a8b"),
    (2, 2, "before"): (916, "e71af9666ae64a25046141b203a8b87e"),
    (2, 2, "printed"): (874, "5017fe24f597b4c8d27b521cfcccd349"),
    (3, 2, "before"): (4_356, "f72f651ccf6e32da8ca5a88bbf5910e6"),
    (3, 2, "printed"): (4_098, "2e6430fad668400db171620a8900a276"),
    (4, 2, "before"): (13_228, "9ffdf582971a8e101c316bb36e47e7b1"),
    (4, 2, "printed"): (12_268, "588dc0a36060d93f26402f555b2ff25a"),
    (5, 2, "before"): (31_396, "5f3f73508ac92fbca21ddd417e80304e"),
    (5, 2, "printed"): (28_786, "2dea66d015709921fb86048df06f9618"),
    (6, 2, "before"): (63_756, "04f183737352b22090569d4ad02e1537"),
    (6, 2, "printed"): (57_930, "40eaa6ba2257afd8199badea8aa48633"),
    (7, 2, "before"): (116_236, "8c61bcff0c1dc55116b6312a14a0d36c"),
    (7, 2, "printed"): (104_854, "9f2d63dcbb59d99525a444687a92381b"),
    (8, 2, "before"): (195_796, "80abd013999ff43b39ebabb60e5991bd"),
    (8, 2, "printed"): (175_588, "0ad08866cb4e1bb3a25ff04ad1591ad1"),
    (9, 2, "before"): (310_428, "7595f16c9e7a5b26947af78c90c09951"),
    (9, 2, "printed"): (277_038, "41640033652f7e16ae4e104d1afedd21"),
    (10, 2, "before"): (469_156, "4a79b0bf6a19d0a629b9f2374ebb9b2f"),
    (10, 2, "printed"): (416_986, "5029401ba26f9ae22c0819bc58f99715"),
    (2, 3, "before"): (1_720, "1d831794460984127b55caaef9abd398"),
    (2, 3, "printed"): (1_690, "fb79723a7899a3c6a32c88615aa49cba"),
    (3, 3, "before"): (10_116, "951a399eada314a11d083140c17f6a75"),
    (3, 3, "printed"): (9_882, "f91db9c87b2157f4bcc34c694f575e22"),
    (4, 3, "before"): (36_410, "de471676a190b064c9a92f362ff2b04f"),
    (4, 3, "printed"): (35_504, "94153c6d82b688ff1b6f201f54b4d30c"),
    (5, 3, "before"): (99_784, "ecb0b0922fad70eafcb584d4c3faa2c4"),
    (5, 3, "printed"): (97_288, "8000cfa73bd8e11ae694bc3f8190059b"),
    (6, 3, "before"): (229_644, "6b9ad0aec418daa13d1ca39ec166e638"),
    (6, 3, "printed"): (224_034, "7f1085199aeef04b4714da6602a83867"),
    (7, 3, "before"): (467_780, "fcd28ac2f2198b3355e184f9b9b4969e"),
    (7, 3, "printed"): (456_770, "66f265600b764aadd6d8009353b73d9a"),
    (8, 3, "before"): (870_526, "132ee5ad486e708bd133f311ed2084fe"),
    (8, 3, "printed"): (850_912, "b6c74690fb56ff8bbaa9b87663a40776"),
    (9, 3, "before"): (1_510_920, "07a4836b4c3675cc3c5f32c976995aa7"),
    (9, 3, "printed"): (1_478_424, "c4411945ba381984899ec390c39f25c3"),
    (10, 3, "before"): (2_480_864, "637ebb809273a025cca368dffaf29ffa"),
    (10, 3, "printed"): (2_429_978, "0ce07194a7314c0a41ce962d634697a9"),
    (5, 4, "before"): (362_526, "356f55a91aa2ad8ba9bf2d8c19ea139a"),
    (5, 4, "printed"): (346_494, "6eb4c499e59b9dae14e28e1486f87c14"),
}


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
    columns = complete_width(frames) if width is None else width
    return collect(explore(base, frames, columns, variant))


def collect(exploration: Exploration) -> ObservationSet:
    """Return the distinct observations of an exploration."""
    return _collect(exploration)[0]


def _collect(exploration: Exploration) -> tuple[ObservationSet, npt.NDArray[np.int32]]:
    """Return the distinct observations, and the nearest situation of each."""
    nearest, answers = _distinct(exploration)
    histories = exploration.histories_of(nearest)
    symbols, operations = exploration.symbols[nearest], exploration.operations[nearest]
    keys = observation_keys(histories, symbols, operations)
    order = np.argsort(keys)
    if (np.diff(keys[order]) == 0).any():
        raise AssertionError("two observations share a key: change the mixing of the keys")
    observations = ObservationSet(
        exploration.base,
        exploration.frames,
        exploration.variant,
        histories[order],
        symbols[order],
        operations[order],
        answers[order],
    )
    return observations, nearest[order]


def nearest_situations(
    exploration: Exploration, observations: ObservationSet
) -> npt.NDArray[np.int32]:
    """Return the situation nearest to a start of each observation of a set, (M,)."""
    found, nearest = _collect(exploration)
    rows = found.index(observations.histories, observations.symbols, observations.operations)
    if (rows < 0).any():
        raise ValueError(
            "the set has observations that its exploration does not: enumerate it again"
        )
    return nearest[rows]


def _distinct(exploration: Exploration) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the first situation of each observation, and the answers to it, a bit for each."""
    places = np.array(observation_bytes(exploration.width, exploration.frames))
    words = -(-len(places) // 8)
    rows = np.zeros((2 * _SLICE, words), np.uint64)
    first, answers = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.uint8)
    slots = empty_slots(len(rows))
    count = 0
    for start in range(0, len(exploration.actions), _SLICE):
        if count + _SLICE > len(rows):
            for array in (rows, first, answers):
                array.resize((2 * len(array), *array.shape[1:]), refcheck=False)
            slots = empty_slots(len(rows))
            insert_rows(slots, rows, 0, count)
        stop = min(start + _SLICE, len(exploration.actions))
        found = (slots, rows, rows.view(np.uint8), first, answers)
        count = _add_observations(
            exploration.situations, exploration.actions, places, start, stop, found, count
        )
    return first[:count].copy(), answers[:count].copy()


@compiled
def _add_observations(situations, actions, places, start, stop, found, count):
    """Add the observations of a slice of the situations; return how many there are then."""
    slots, rows, as_bytes, first, answers = found
    for situation in range(start, stop):
        for k in range(len(places)):
            as_bytes[count, k] = situations[situation, places[k]]
        slot = find_slot(slots, rows, count)
        if slots[slot] == EMPTY:
            slots[slot] = count
            first[count] = situation
            answers[count] = 0
            count += 1
        answers[slots[slot]] |= np.uint8(1 << actions[situation])
    return count


def complete_set(
    base: int = 5,
    frames: int = 3,
    variant: Variant = "before",
    cache_folder: Path | None = None,
) -> ObservationSet:
    """Return the complete set, from the cache if possible; replace a file that is not the set."""
    _check(base, frames, variant)
    if not is_known(base, frames, variant):
        observations = enumerate_observations(base, frames, variant)
        wide = complete_width(frames) + ENCODING_PERIOD
        wider = enumerate_observations(base, frames, variant, wide)
        if wider.digest != observations.digest:
            raise AssertionError(
                f"{len(observations)} observations on {complete_width(frames)} columns but "
                f"{len(wider)} on {ENCODING_PERIOD} more: the set is not complete"
            )
        return observations
    path = cache_path(base, frames, variant, cache_folder)
    if path.exists():
        try:
            return _known(_read_set(path, base, frames, variant))
        except _READ_ERRORS as error:
            print(f"cached set {path.name} is damaged, enumerating: {error}", file=sys.stderr)
    return _enumerate_known(path, base, frames, variant)[0]


def shortest_paths(
    base: int, frames: int, variant: Variant, cache_folder: Path | None = None
) -> Exploration:
    """Return the nearest situation of each observation of a known set, and the paths to them.

    The paths come from the cache if possible. The kernel builds every situation again, so that a
    file cannot hold a false one.
    """
    path = cache_path(base, frames, variant, cache_folder)
    width = complete_width(frames)
    if path.exists():
        try:
            tree = _read_tree(path, base, frames, variant)
            exploration = follow(base, frames, width, variant, tree)
            if len(_distinct(exploration)[0]) == KNOWN_SETS[base, frames, variant][0]:
                return exploration
            raise ValueError("some observations have no path")
        except _READ_ERRORS as error:
            print(f"no paths in cached set {path.name}, exploring: {error}", file=sys.stderr)
    return follow(base, frames, width, variant, _enumerate_known(path, base, frames, variant)[1])


def _enumerate_known(
    path: Path, base: int, frames: int, variant: Variant
) -> tuple[ObservationSet, Tree]:
    """Enumerate a known set, and write it to the cache with the paths."""
    exploration = explore(base, frames, complete_width(frames), variant)
    observations, nearest = _collect(exploration)
    try:
        _known(observations)
    except ValueError as error:
        raise AssertionError(
            f"the algorithm was changed, and KNOWN_SETS was not: {error}"
        ) from error
    tree = exploration.tree_of(nearest)
    _write(path, observations, tree)
    return observations, tree


def is_known(base: int, frames: int, variant: Variant) -> bool:
    """Return whether the size and the digest of a set are known, so that it can be cached."""
    return (base, frames, variant) in KNOWN_SETS


def _known(observations: ObservationSet) -> ObservationSet:
    """Return a set that has the known size and digest; raise ValueError for any other."""
    size, digest = KNOWN_SETS[observations.base, observations.frames, observations.variant]
    if len(observations) != size or not observations.digest.startswith(digest):
        raise ValueError(
            f"{len(observations):,} observations with digest {observations.digest[:8]}..., known "
            f"are {size:,} with {digest[:8]}..."
        )
    return observations


def cache_path(base: int, frames: int, variant: Variant, folder: Path | None = None) -> Path:
    """Return the cache file of a set, named after its settings and its digest."""
    _, digest = KNOWN_SETS[base, frames, variant]
    name = f"observations-b{base}-f{frames}-{variant}-{digest[:16]}.npz"
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


def _read_set(path: Path, base: int, frames: int, variant: Variant) -> ObservationSet:
    return ObservationSet(base, frames, variant, **_read(path, base, frames, variant, _ARRAYS))


def _read_tree(path: Path, base: int, frames: int, variant: Variant) -> Tree:
    tree = Tree(**_read(path, base, frames, variant, _TREE_ARRAYS))
    if len(tree.parents) > _MAX_SITUATIONS * KNOWN_SETS[base, frames, variant][0]:
        raise ValueError("too many situations")
    return tree


def _read(
    path: Path, base: int, frames: int, variant: Variant, wanted: dict[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    size, _ = KNOWN_SETS[base, frames, variant]
    if path.stat().st_size > size * (4 * frames + 3 + 6 * _MAX_SITUATIONS) + _MAX_HEADERS:
        raise ValueError("the file is too large")
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
        arrays = {name: file[name] for name in wanted}
    types = {name: array.dtype for name, array in arrays.items()}
    if types != wanted:
        raise ValueError(f"arrays of types {', '.join(map(str, types.values()))}")
    return arrays


def _write(path: Path, observations: ObservationSet, tree: Tree) -> None:
    arrays = {name: getattr(observations, name) for name in _ARRAYS} | tree._asdict()
    try:
        atomic_write(path, lambda file: np.savez(file, **arrays))
    except OSError as error:
        print(f"set of observations not cached: {error}", file=sys.stderr)
