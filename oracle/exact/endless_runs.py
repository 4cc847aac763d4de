"""Find out whether a policy's runs can go on without a submit, from the graph of their situations.

A run that neither submits nor slides stays, from some step on, in one strongly connected part of
the graph. If the finger only moves left there (or only right; or the signpost), these moves are
finitely many, because the abacus has an edge: they are removed, and what is left is divided again.
A run can be endless only where something is left in the end, and there only on a cycle that moves
neither finger nor signpost on the whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.rules import Action
from oracle.exact.policy_exploration import PolicyExploration

#: Pairs of actions that undo each other.
OPPOSITES = (
    (Action.LEFT, Action.RIGHT),
    (Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT),
)
#: Rounds of a search for shortest paths; where they do not suffice, a cycle may not drift.
MAX_ROUNDS = 300
#: Parts without an end after which no more are looked for.
MOST_PARTS = 200

Edges = npt.NDArray[np.int32]


def endless_parts(exploration: PolicyExploration) -> list[npt.NDArray[np.int64]]:
    """Return sets of situations in which a run may continue for ever, the nearest first.

    There is at least one if there is any, and `MOST_PARTS` at most.
    """
    actions = exploration.actions
    taken = actions[exploration.steps[:, 0]]
    edges = exploration.steps[(taken != Action.SUBMIT) & (taken != Action.SLIDE)]
    while len(edges):
        labels = strong_parts(len(exploration), edges)
        edges = edges[labels[edges[:, 0]] == labels[edges[:, 1]]]
        part, action = labels[edges[:, 0]], actions[edges[:, 0]]
        taken = np.zeros(labels.max() + 1, np.uint8)
        np.bitwise_or.at(taken, part, np.uint8(1) << action)
        finite = np.zeros(len(edges), np.bool_)
        for one, other in (*OPPOSITES, *(pair[::-1] for pair in OPPOSITES)):
            finite |= (action == one) & ((taken[part] >> np.uint8(other)) & 1 == 0)
        if not finite.any():
            return _without_drift(actions, labels, edges)
        edges = edges[~finite]
    return []


def strong_parts(count: int, edges: Edges) -> npt.NDArray[np.int32]:
    """Return the strongly connected component of each of `count` situations."""
    # Imported on use: certificates can be read without SciPy.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(edges), np.bool_)
    graph = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()
    labels: npt.NDArray[np.int32] = connected_components(graph, connection="strong")[1]
    return labels


def _without_drift(
    actions: npt.NDArray[np.uint8], labels: npt.NDArray[np.int32], edges: Edges
) -> list[npt.NDArray[np.int64]]:
    """Return the parts with a cycle that may end where it started."""
    parts = []
    which = labels[edges[:, 0]]
    order = np.argsort(which, kind="stable")
    bounds = np.flatnonzero(np.diff(which[order], prepend=-1, append=-1))
    for start, stop in pairwise(bounds):
        inside = edges[order[start:stop]]
        if not drifts(actions, inside):
            parts.append(np.unique(inside).astype(np.int64))
        if len(parts) == MOST_PARTS:
            break
    return sorted(parts, key=lambda part: int(part[0]))


def drifts(actions: npt.NDArray[np.uint8], edges: Edges) -> bool:
    """Return whether each cycle of the edges moves the finger or the signpost in one direction."""
    nodes, numbers = np.unique(edges, return_inverse=True)
    start, end = np.unique(numbers.reshape(edges.shape), axis=0).T
    action = actions[nodes[start]]
    for one, other in OPPOSITES:
        moved = (action == other).astype(np.int64) - (action == one)
        for direction in (moved, -moved):
            # A cycle that moves by 1 or more has a positive sum, any other one a negative sum.
            if _has_shortest_paths(len(nodes), start, end, direction * (len(nodes) + 1) - 1):
                return True
    return False


def _has_shortest_paths(
    count: int, start: npt.NDArray[Any], end: npt.NDArray[Any], weights: npt.NDArray[np.int64]
) -> bool:
    """Return whether the lengths of shortest paths converge: no cycle has a negative sum."""
    lengths = np.zeros(count, np.int64)
    for _ in range(min(count, MAX_ROUNDS) + 1):
        before = lengths.copy()
        np.minimum.at(lengths, end, before[start] + weights)
        if np.array_equal(lengths, before):
            return True
    return False
