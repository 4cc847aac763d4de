"""Bound the steps between two grants of the step budget, at every width, for a policy's own runs.

The budget grows at the start of an episode, with each right slide and with each right reset. A way
between two grants passes through the graph of situations without these steps. It is long only in
parts with cycles: walking over many columns, or over the zeros of an operand. Each such part uses
up something finite on every cycle: columns to the left or right of the finger or of the signpost,
or places of the operand. The steps of a part are at most a multiple of that, and the bound of a way
is `a * columns + b * digits + c`, where `digits` is the length of the longest operand.

What is left of the columns on the left, and of the places, is used up by the rest of the way, too:
once it is counted, further steps of this kind are paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abacus.compiling import compiled
from abacus.kernel import LEFT, RIGHT, SUBMIT, TO_LEFT, TO_RIGHT
from abacus.rules import PAPER_COLUMNS, PAPER_STEP_BUDGET, AbacusConfig
from oracle.exact.endless_runs import strong_parts
from oracle.exact.policy_exploration import (
    DIGIT_INDEX,
    FINGER_COLUMN,
    SIGNPOST,
    WIDTH,
    PolicyExploration,
)

# numba infers the types of compiled functions from their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

#: Moves that use something up, and those that would give it back. The places of an operand first.
_USES = ((SUBMIT, -1), (LEFT, RIGHT), (RIGHT, LEFT), (TO_LEFT, TO_RIGHT), (TO_RIGHT, TO_LEFT))
#: Bounds that are kept for a situation; none of them is below another one everywhere.
_BOUNDS = 16
#: A bound: factors of columns, digits and 1; steps that are paid for each column to the left of the
#: finger, and of the signpost. The factor of the digits pays for each further place.
_FIELDS = ("columns", "digits", "constant", "finger", "signpost")
#: Up to this many columns the budget is compared for every length of operands.
_COMPARED_COLUMNS = 60


@dataclass(frozen=True)
class Ways:
    """The longest way between two grants: the largest of a * columns + b * digits + c."""

    base: int
    bounds: tuple[tuple[int, int, int], ...]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Ways:
        """Return the ways of a mapping such as `dataclasses.asdict` gives."""
        bounds = tuple((int(a), int(b), int(c)) for a, b, c in content["bounds"])
        return cls(content["base"], bounds)

    def steps(self, columns: int, digits: int) -> int:
        """Return the bound on an abacus, for operands of at most `digits` digits."""
        return max(a * columns + b * digits + c for a, b, c in self.bounds)

    @property
    def within_budget(self) -> bool:
        """Whether the step budget of the world suffices at every width and operand length."""
        for columns in range(2, _COMPARED_COLUMNS + 1):
            for digits in range(1, columns):
                config = AbacusConfig(base=self.base, columns=columns, max_digits=digits)
                if self.steps(columns, digits) > config.step_budget:
                    return False
        return all(self._stays_within(bound) for bound in self.bounds)

    def _stays_within(self, bound: tuple[int, int, int]) -> bool:
        """Return whether a bound stays below the budget on all wider abaci.

        The budget is at least the larger of two linear functions, 3.2 * columns and columns + 3 *
        digits + base - 6 (`AbacusConfig.step_budget`). They are equal on a line, which divides the
        wider abaci into two parts. On each, the bound is compared at the corners and along the
        edges, which is enough for linear functions.
        """
        a, b, c = bound
        slope = Fraction(PAPER_STEP_BUDGET, PAPER_COLUMNS)
        columns, rest = Fraction(_COMPARED_COLUMNS), self.base - 6
        line = (slope - 1) / 3
        on_line = line * columns - Fraction(rest, 3)
        corners = [Fraction(1), on_line, columns - 1]
        below = all(
            a * columns + b * digits + c <= max(slope * columns, columns + 3 * digits + rest)
            for digits in corners
        )
        return below and all(a + b * edge <= max(slope, 1 + 3 * edge) for edge in (0, line, 1))

    def describe(self) -> str:
        """Return the bound and whether the budget suffices, for a reader."""
        terms = [_sum_of(a, b, c) for a, b, c in self.bounds]
        longest = terms[0] if len(terms) == 1 else f"the largest of {', '.join(terms)}"
        if self.within_budget:
            return f"enough at every width: at most {longest} steps between two grants"
        return f"not proven to be enough: up to {longest} steps between two grants"


def _sum_of(columns: int, digits: int, constant: int) -> str:
    parts = [(columns, "columns"), (digits, "digits")]
    words = [name if factor == 1 else f"{factor} {name}" for factor, name in parts if factor]
    text = " + ".join([*words, *([str(constant)] if constant > 0 or not words else [])])
    return text if constant >= 0 else f"{text} - {-constant}"


def longest_ways(exploration: PolicyExploration) -> Ways | None:
    """Return the bounds for a policy without failures; None if a part has no simple one."""
    count = len(exploration)
    actions = exploration.actions
    edges = exploration.steps[~exploration.grants()[exploration.steps[:, 0]]]
    labels = strong_parts(count, edges)
    parts = _parts(exploration, edges, labels)
    if parts is None:
        return None
    # Steps are in the order of the situations that they start from.
    starts = np.searchsorted(edges[:, 0], np.arange(count + 1))
    members = np.argsort(labels, kind="stable")
    member_starts = np.searchsorted(labels[members], np.arange(labels.max() + 2))
    bounds = np.zeros((count, _BOUNDS, len(_FIELDS)), np.int32)
    sizes = np.zeros(count, np.int32)
    rows = exploration.situations
    places = rows[:, [FINGER_COLUMN, SIGNPOST, DIGIT_INDEX]].astype(np.int32)
    graph = edges[:, 1].copy(), starts, labels.astype(np.int64), members, member_starts
    if not _propagate(*graph, actions, places, *parts, bounds, sizes):
        return None
    chosen: dict[tuple[int, int], int] = {}
    for k in range(_BOUNDS):
        held = np.flatnonzero(sizes > k)
        columns, digits, constant, *paid = bounds[held, k].T
        # A way ends on the finger's and the signpost's columns: those to their left were not used.
        unused = paid[0] * places[held, 0] + paid[1] * places[held, 1]
        slopes = columns * np.int64(1 << 20) + digits
        for slope in np.unique(slopes).tolist():
            largest = int((constant - unused)[slopes == slope].max())
            key = divmod(slope, 1 << 20)
            chosen[key] = max(largest, chosen.get(key, largest))
    # One step more: the one that brings the next grant.
    found = sorted(((a, b, c + 1) for (a, b), c in chosen.items()), reverse=True)
    best = tuple(one for one in found if not any(_is_below(one, other) for other in found))
    return Ways(exploration.base, best)


def _is_below(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


class _Parts(NamedTuple):
    """For each strongly connected part: the move that uses something up, and what it may cost."""

    used: Any  # (parts,) int64: the action, -1 for a part without cycles
    factor: Any  # (parts,) int64: steps for each use
    constant: Any  # (parts,) int64: uses are at most columns, or digits, plus this


def _parts(
    exploration: PolicyExploration, edges: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]
) -> _Parts | None:
    """Choose for each part with cycles what it uses up; None if there is nothing."""
    actions = exploration.actions
    count = int(labels.max()) + 1
    inside = edges[labels[edges[:, 0]] == labels[edges[:, 1]]]
    part, action = labels[inside[:, 0]], actions[inside[:, 0]]
    taken = np.zeros(count, np.uint8)
    np.bitwise_or.at(taken, part, np.uint8(1) << action)
    parts = _Parts(np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, np.int64))
    cyclic = np.unique(part)
    for use, opposite in _USES:
        possible = (taken >> np.uint8(use)) & 1 == 1
        if opposite >= 0:
            possible &= (taken >> np.uint8(opposite)) & 1 == 0
        left = inside[(action != use) & possible[part]]
        lengths = _longest_paths(len(exploration), left)
        between = np.zeros(count, np.int64)
        np.maximum.at(between, labels, np.where(lengths < 0, np.iinfo(np.int32).max, lengths))
        better = possible & (between < np.iinfo(np.int32).max)
        better &= (parts.used < 0) | (between + 1 < parts.factor)
        parts.used[better] = use
        parts.factor[better] = between[better] + 1
    if (parts.used[cyclic] < 0).any():
        return None
    parts.constant[:] = _constants(exploration, labels, parts)
    return parts


def _longest_paths(count: int, edges: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return the steps of the longest path to each situation, -1 where a cycle leads to it."""
    lengths = np.zeros(count, np.int64)
    waiting = np.bincount(edges[:, 1], minlength=count)
    order = np.argsort(edges[:, 0], kind="stable")
    targets = edges[order, 1]
    starts = np.searchsorted(edges[order, 0], np.arange(count + 1))
    frontier = np.flatnonzero(waiting == 0)
    while len(frontier):
        first, sizes = starts[frontier], starts[frontier + 1] - starts[frontier]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ends = targets[np.repeat(first, sizes) + offsets]
        np.maximum.at(lengths, ends, np.repeat(lengths[frontier] + 1, sizes))
        np.subtract.at(waiting, ends, 1)
        ends = np.unique(ends)
        frontier = ends[waiting[ends] == 0]
    return np.where(waiting > 0, -1, lengths)


def _constants(
    exploration: PolicyExploration, labels: npt.NDArray[np.int32], parts: _Parts
) -> npt.NDArray[np.int64]:
    """Return by how much the uses of each part differ from the columns, or from the digits.

    A situation has at most the columns of the abacus, since hidden ones may be left out: the finger
    has at least as many columns on each side as in the situation.
    """
    rows = exploration.situations
    count = len(parts.used)

    def lowest(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        least = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(least, labels, values)
        return least

    last = rows[:, WIDTH].astype(np.int64) - 1
    constants = np.zeros(count, np.int64)
    for field, left, right in ((FINGER_COLUMN, LEFT, RIGHT), (SIGNPOST, TO_LEFT, TO_RIGHT)):
        column = rows[:, field].astype(np.int64)
        to_the_right = lowest(last - column)
        chosen = np.isin(parts.used, (left, right))
        constants[chosen] = -1 - to_the_right[chosen]
        constants[parts.used == right] -= lowest(column)[parts.used == right]
    on_places = parts.used == SUBMIT
    place = rows[:, DIGIT_INDEX].astype(np.int64) - 1
    constants[on_places] = -1 - lowest(place)[on_places]
    return constants


@compiled
def _propagate(
    targets,
    starts,
    labels,
    members,
    member_starts,
    actions,
    places,
    used,
    factor,
    constant,
    bounds,
    sizes,
):
    """Write the bounds of the ways to each situation; return whether there is room for all.

    Parts are visited in an order in which no step leads back.
    """
    parts = len(used)
    waiting = np.zeros(parts, np.int64)
    for node in range(len(labels)):
        for k in range(starts[node], starts[node + 1]):
            if labels[targets[k]] != labels[node]:
                waiting[labels[targets[k]]] += 1
    ready = np.empty(parts, np.int64)
    count = 0
    for part in range(parts):
        if waiting[part] == 0:
            ready[count] = part
            count += 1
    new = np.zeros(bounds.shape[2], np.int64)
    for node in range(len(labels)):
        new[:] = 0
        _enter(new, used, factor, constant, labels[node])
        _insert(bounds, sizes, node, new)
    done = 0
    while done < count:
        part = ready[done]
        done += 1
        # Inside of the part until nothing changes, then once to the others.
        inside = used[part] >= 0
        while True:
            changed = False
            for m in range(member_starts[part], member_starts[part + 1]):
                node = members[m]
                action = actions[node]
                for k in range(starts[node], starts[node + 1]):
                    target = targets[k]
                    other = labels[target]
                    if inside != (other == part):
                        continue
                    for b in range(sizes[node]):
                        new[:] = bounds[node, b]
                        _take(new, action, places, node, places[target, 2] > 0)
                        if not inside:
                            _enter(new, used, factor, constant, other)
                        elif action == used[part] and action in (RIGHT, TO_RIGHT):
                            new[2] -= factor[part]
                        added = _insert(bounds, sizes, target, new)
                        if added < 0:
                            return False
                        changed = changed or added > 0
                    if not inside:
                        waiting[other] -= 1
                        if waiting[other] == 0:
                            ready[count] = other
                            count += 1
            if not inside:
                break
            inside = changed
    return done == parts


@compiled
def _take(new, action, places, node, to_digit):
    """Count a step, unless it is paid for."""
    new[2] += 1
    if action == LEFT:
        new[2] -= new[3]
    elif action == RIGHT:
        # The columns on the left become more: those that were not used up to now are given back.
        new[2] -= new[3] * places[node, 0]
        new[3] = 0
    elif action == TO_LEFT:
        new[2] -= new[4]
    elif action == TO_RIGHT:
        new[2] -= new[4] * places[node, 1]
        new[4] = 0
    elif action == SUBMIT and to_digit:
        new[2] -= new[1]


@compiled
def _enter(new, used, factor, constant, part):
    """Pay for what a part may use up, as far as it is not paid for."""
    use = used[part]
    if use < 0:
        return
    more = factor[part]
    if use == LEFT:
        more = max(more - new[3], 0)
        new[3] += more
    elif use == TO_LEFT:
        more = max(more - new[4], 0)
        new[4] += more
    elif use == SUBMIT:
        more = max(more - new[1], 0)
        new[1] += more
    if use != SUBMIT:
        new[0] += more
    new[2] += more * constant[part]


@compiled
def _insert(bounds, sizes, node, new):
    """Keep a bound unless another one is larger; return 1 if it is new, -1 without room."""
    for k in range(sizes[node]):
        if _is_larger(bounds[node, k], new):
            return 0
    kept = 0
    for k in range(sizes[node]):
        if not _is_larger(new, bounds[node, k]):
            bounds[node, kept] = bounds[node, k]
            kept += 1
    if kept == bounds.shape[1]:
        return -1
    bounds[node, kept] = new
    sizes[node] = kept + 1
    return 1


@compiled
def _is_larger(one, other):
    """Return whether a bound is at least another one that has paid for the same."""
    return (
        one[0] >= other[0]
        and one[1] == other[1]
        and one[2] >= other[2]
        and one[3] == other[3]
        and one[4] == other[4]
    )
