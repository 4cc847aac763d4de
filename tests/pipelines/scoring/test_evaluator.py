"""Policies are measured by one rule, whatever reward they were trained by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from abacus.reward import LEVELS
from abacus.rules import AbacusConfig, Action
from pipelines.learning.networks import Network
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_policy
from pipelines.learning.settings import Settings
from pipelines.scoring.players import GreedyTable
from pipelines.scoring.scores import Evaluator, training_score

EXACT = Path(__file__).parents[3] / "pipelines" / "policies" / "compact"
BASE, FRAMES = 5, 3
#: Far above what the network says.
CERTAIN = 1000.0


class Stumbling(Network):
    """Exact, but for one thing: it moves the signpost away at an episode's start, and back."""

    def __init__(self, exact: Network) -> None:
        super().__init__()
        self.exact, self.layout = exact, exact.layout

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        length = self.layout.window
        frames = rows[:, :length].reshape(-1, *self.layout.volume).clone()
        digit = rows[:, length : length + BASE].any(dim=1)
        marks = frames[:, :, 1, :, 0].clone()
        beads = frames.clone()
        beads[:, :, 1, :, 0] = 0
        still = (beads == beads[:, -1:]).flatten(1).all(dim=1)
        under_finger, in_view = marks[:, :, 1].bool(), marks.any(dim=2)
        leaves = digit & still & under_finger.all(dim=1)
        comes_back = digit & still & under_finger[:, -2] & ~in_view[:, -1]
        # What came of the stumble is kept from the network, which has never seen it.
        for newer, older in ((2, 1), (1, 0)):
            gone = under_finger[:, newer] & ~in_view[:, older] & digit
            frames[gone, : older + 1] = frames[gone, newer : newer + 1]
        logits = self.exact.logits(torch.cat([frames.flatten(1), rows[:, length:]], dim=1))
        logits[leaves, Action.SIGNPOST_RIGHT] = CERTAIN
        logits[comes_back, Action.SIGNPOST_LEFT] = CERTAIN
        return logits


@pytest.fixture(scope="module")
def stumbling() -> AbacusPolicy:
    policy = load_policy(EXACT)
    policy.network = Stumbling(policy.network)
    return policy


def one_operation(level: str) -> AbacusConfig:
    return replace(Settings(reward=level).settled().world(), max_operations=1)


def test_a_mistake_counts_at_every_level_also_where_the_reward_lets_it_pass(
    stumbling: AbacusPolicy,
) -> None:
    worlds = {level: one_operation(level) for level in LEVELS}
    own = training_score(GreedyTable(stumbling, BASE, FRAMES), worlds["no_of_sp"], 50)
    assert own.accuracy == 1.0, "it would pass if the level's own reward decided"
    for world in worlds.values():
        evaluation = Evaluator(world, 50, with_set=False, long_operations=10)(stumbling, 0)
        assert evaluation.accuracy == 0.0
        assert evaluation.failures["wrong_signpost"] == 50
        assert evaluation.long_error_rate == 0.0, "results alone count there"
