"""The committed teaching set verifies, and its 231 operations nearly determine the algorithm."""

from __future__ import annotations

from pathlib import Path

import torch
from stable_baselines3.common.logger import Logger

from oracle.demos.dataset import Demonstrations
from oracle.demos.replay import first_difference, recipe_difference
from oracle.exact.certificate import greedy_actions
from oracle.exact.complete_set import complete_set
from pipelines.learning.cloning import Cloning
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.policy import new_policy
from pipelines.learning.settings import CloningSettings

ROOT = Path(__file__).parents[2]
TEACHING_SET = ROOT / "datasets" / "teaching_set.h5"
FRAMES = 3


def test_it_replays_and_can_be_recorded_again() -> None:
    demonstrations = Demonstrations.open(TEACHING_SET, verify=True)
    assert first_difference(demonstrations) is None
    assert recipe_difference(demonstrations) is None
    counts = demonstrations.counts
    card = (ROOT / "datasets" / "README.md").read_text()
    assert f"{counts['operations']} operations, {counts['transitions']:,} transitions" in card
    assert demonstrations.metadata is not None
    assert demonstrations.metadata.digest in card


def test_a_clone_of_it_is_nearly_exact() -> None:
    """Whether it is exact depends on the seed; 50 of the 99,784 observations are few for any."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    demonstrations = Demonstrations.open(TEACHING_SET)
    observations = complete_set(demonstrations.config.base, FRAMES)
    policy = new_policy("onehot", demonstrations.config.base, FRAMES)
    data = CloningSet.from_demonstrations(demonstrations, frames=FRAMES)
    assert len(data) < len(observations) / 20
    Cloning(policy, data, CloningSettings(updates=4_000), 0, Logger(None, [])).run()
    actions, _ = greedy_actions(policy, observations)
    assert (actions != observations.actions).sum() < 50
