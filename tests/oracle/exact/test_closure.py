"""Explored situations are closed under equivalence: see docs/exactness.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle.exact.closure import equivalents, missing_equivalents
from oracle.exact.exploration import explore

#: Columns beyond the frames that the proof works with.
PROOF_MARGIN = 13


@pytest.mark.parametrize(
    ("base", "frames"), [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3)]
)
def test_explored_situations_are_closed_under_stretching(base: int, frames: int) -> None:
    exploration = explore(base, frames, frames + PROOF_MARGIN)
    looked_up = sum(len(rows) for rows in equivalents(exploration))
    assert looked_up > len(exploration.parents) / 2
    assert len(missing_equivalents(exploration)) == 0


def test_removed_situations_are_reported_missing() -> None:
    """The check can fail: equivalents of the others are not in the set any more."""
    exploration = explore(2, 2, 12)
    kept = np.random.default_rng(0).random(len(exploration.parents)) > 0.02
    holed = replace(
        exploration,
        situations=exploration.situations[kept],
        parents=exploration.parents[kept],
        actions=exploration.actions[kept],
        branches=exploration.branches[kept],
    )
    assert len(missing_equivalents(holed)) > 0
