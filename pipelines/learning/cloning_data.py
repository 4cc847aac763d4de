"""What is cloned: distinct observations of demonstrations, in minibatches for imitation's `BC`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.checks import check_integer
from abacus.compiling import compiled
from abacus.hash_index import EMPTY, empty_slots, find_slot
from abacus.kernel import ACTIONS
from abacus.observation import observation_rows
from abacus.rules import Action
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.shards import default_path, record_demonstrations
from oracle.files import lock
from pipelines.job.command_line import relative_path
from pipelines.learning.settings import Settings

# numba types the compiled functions from the arguments that they meet.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Writes a line about the progress of a job.
Log = Callable[[str], None]


@dataclass(frozen=True)
class CloningSet:
    """Distinct observations, the expert's action for each, action masks, and frequencies.

    A mask allows what was legal in any transition with this observation: an edge out of view makes
    an action illegal only sometimes, and the clone must not rely on it.
    """

    rows: torch.Tensor  # (M, row length) float32, without previous actions
    actions: torch.Tensor  # (M,) int64: the most frequent action of the expert
    masks: torch.Tensor  # (M, 8) bool
    counts: torch.Tensor  # (M,) float32: transitions with this observation

    def __post_init__(self) -> None:
        lengths = {len(self.rows), len(self.actions), len(self.masks), len(self.counts)}
        if len(lengths) != 1:
            raise ValueError(f"a cloning set of lengths {sorted(lengths)}: give one length")

    def __len__(self) -> int:
        return len(self.actions)

    def rows_at(self, rows: torch.Tensor) -> CloningSet:
        """Return chosen observations, which may be repeated."""
        return CloningSet(self.rows[rows], self.actions[rows], self.masks[rows], self.counts[rows])

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        digest = hashlib.sha256()
        for tensor in (self.rows, self.actions, self.masks, self.counts):
            array = tensor.numpy()
            digest.update(f"{array.dtype},{array.shape};".encode() + array.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_demonstrations(cls, *demonstrations: Demonstrations, frames: int) -> CloningSet:
        """Return the distinct observations of demonstrations, of one base and any widths."""
        names = ("symbol", "operation", "action", "mask")
        return cls.from_transitions(
            demonstrations[0].config.base,
            np.concatenate([part.histories(frames=frames) for part in demonstrations]),
            *(np.concatenate([part.transitions[key] for part in demonstrations]) for key in names),
        )

    @classmethod
    def of_codes(
        cls,
        base: int,
        codes: npt.NDArray[np.int32],
        actions: npt.NDArray[np.integer],
        masks: npt.NDArray[np.bool_],
    ) -> CloningSet:
        """Return coded observations, with an action and a mask for each, of equal frequency."""
        rows = observation_rows(base, codes[:, :-2], codes[:, -2], codes[:, -1])
        return cls(
            rows=torch.from_numpy(rows),
            actions=torch.from_numpy(actions.astype(np.int64)),
            masks=torch.from_numpy(masks),
            counts=torch.ones(len(rows)),
        )

    @classmethod
    def from_transitions(
        cls,
        base: int,
        histories: npt.NDArray[np.int32],
        symbols: npt.NDArray[Any],
        operations: npt.NDArray[Any],
        actions: npt.NDArray[Any],
        masks: npt.NDArray[Any],
    ) -> CloningSet:
        """Return the distinct observations of transitions; masks are given as bits."""
        capacity, count = 1 << 14, -1
        while count < 0:
            capacity *= 4
            first = np.zeros(capacity, np.int64)
            votes = np.zeros((capacity, ACTIONS), np.int64)
            legal = np.zeros(capacity, np.uint8)
            codes = np.zeros((capacity + 1, histories.shape[1] + 2), np.int32)
            index = empty_slots(capacity), codes
            count = _group(
                histories, symbols, operations, actions, masks, index, first, votes, legal
            )
        first, votes, legal = first[:count], votes[:count], legal[:count]
        rows = observation_rows(base, histories[first], symbols[first], operations[first])
        bits = np.unpackbits(legal[:, None], axis=1, bitorder="little")
        return cls(
            rows=torch.from_numpy(rows),
            actions=torch.from_numpy(votes.argmax(axis=1)),
            masks=torch.from_numpy(bits.astype(np.bool_)),
            counts=torch.from_numpy(votes.sum(axis=1).astype(np.float32)),
        )


@compiled
def _group(histories, symbols, operations, actions, masks, index, first, votes, legal):
    """Group transitions by observation; return the number of groups, or -1 if there is no room.

    `first` gets the first transition of each group, `votes` how often each action was the
    expert's, `legal` the bits of the actions that were legal in any transition.
    """
    slots, codes = index
    frames = histories.shape[1]
    count = 0
    for row in range(len(symbols)):
        codes[count, 0] = symbols[row]
        codes[count, 1] = operations[row]
        for k in range(frames):
            codes[count, 2 + k] = histories[row, k]
        slot = find_slot(slots, codes, count)
        if slots[slot] == EMPTY:
            if count == len(first):
                return -1
            slots[slot] = count
            first[count] = row
            count += 1
        group = slots[slot]
        votes[group, actions[row]] += 1
        legal[group] |= masks[row]
    return count


class CloningBatches:
    """Minibatches for imitation's `BC`, shuffled in each epoch.

    All minibatches of an epoch have the same size, because BC counts samples by its own batch size
    and would hold a smaller one back; the samples left over are skipped in this epoch. `inputs` is
    what the network reads of the rows of the set.
    """

    def __init__(
        self, inputs: torch.Tensor, data: CloningSet, batch_size: int, generator: torch.Generator
    ) -> None:
        self.data = data
        self.batch_size = min(check_integer("batch_size", batch_size, 1), len(data))
        self.generator = generator
        self._inputs_and_masks = torch.cat([inputs, data.masks.float()], dim=1)

    def __len__(self) -> int:
        return len(self.data) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield inputs with masks appended, see `split_masks`, and actions."""
        order = torch.randperm(len(self.data), generator=self.generator)
        for batch in range(len(self)):
            chosen = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield {"obs": self._inputs_and_masks[chosen], "acts": self.data.actions[chosen]}


def split_masks(joined: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and masks of a minibatch: BC passes only observations and actions to a loss."""
    return joined[:, : -len(Action)], joined[:, -len(Action) :] > 0


def load_cloning_set(settings: Settings, log: Log) -> CloningSet:
    """Return the distinct observations of the run's demonstrations."""
    demonstrations = open_demonstrations(settings, log)
    data = CloningSet.from_demonstrations(demonstrations, frames=settings.world.frames)
    log(
        f"{settings.demo_operations:,} operations: {len(demonstrations):,} transitions, "
        f"{len(data):,} distinct observations to clone"
    )
    return data


def open_demonstrations(settings: Settings, log: Log) -> Demonstrations:
    """Return the first operations of the run's file, which is recorded if it does not exist."""
    path = settings.demonstrations
    if path is None:
        path = recorded_file(settings, log)
    demonstrations = Demonstrations.open(path)
    if settings.demonstrations is None:
        _check_recipe(demonstrations.recipe, settings.recipe(), path)
    _check_world(demonstrations, settings, path)
    if settings.teaching.rounds and demonstrations.recipe.policy is not None:
        raise ValueError(
            f"{relative_path(path)} was recorded by a trained policy, and teaching adds answers of "
            "the expert: give --teach-rounds 0 or another file"
        )
    if settings.teaching.rounds and demonstrations.recipe.variant != "before":
        raise ValueError(
            f"{relative_path(path)} was recorded with the variant "
            f"{demonstrations.recipe.variant!r}, which cannot be learned exactly: give "
            "--teach-rounds 0 or another file"
        )
    available = demonstrations.counts["operations"]
    if settings.demo_operations > available:
        raise ValueError(
            f"{relative_path(path)} has {available:,} operations, fewer than demo_operations="
            f"{settings.demo_operations:,}: give --demo-operations {available} or a larger file"
        )
    return demonstrations.first(settings.demo_operations)


def recorded_file(settings: Settings, log: Log) -> Path:
    """Return the file of demonstrations for these settings; record it if it does not exist."""
    recipe = settings.recipe()
    path = default_path(recipe)
    # Of several runs that need it at the same time, the first records it and the others wait.
    if not path.is_file():
        with lock(path.with_name(f".{path.name}.lock")):
            if not path.is_file():
                log(f"recording {recipe.operations:,} operations into {path}")
                record_demonstrations(recipe, path)
    return path


def _check_recipe(recorded: Recipe, wanted: Recipe, path: Path) -> None:
    """Raise ValueError for a file with the default name and other content."""
    found, expected = (
        recipe.to_dict()
        | {"config": None}
        | {f"config.{name}": value for name, value in recipe.config.to_dict().items()}
        for recipe in (recorded, wanted)
    )
    differing = [
        f"{name}={found[name]} instead of {value}"
        for name, value in expected.items()
        if found[name] != value
    ]
    if differing:
        raise ValueError(
            f"{relative_path(path)} was recorded with {', '.join(differing)}: move it away, or "
            "give it with --demonstrations"
        )


def _check_world(demonstrations: Demonstrations, settings: Settings, path: Path) -> None:
    """Raise ValueError for demonstrations of another abacus."""
    for name in ("base", "columns"):
        value, recorded = getattr(settings.world, name), getattr(demonstrations.config, name)
        if value != recorded:
            raise ValueError(
                f"{relative_path(path)} was recorded with {name}={recorded}, the run has "
                f"{name}={value}: give --{name} {recorded} or another file"
            )
