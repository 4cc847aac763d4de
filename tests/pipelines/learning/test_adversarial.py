"""GAIL: masked actions, batches of the expert, the same run from the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from abacus.rules import Action
from oracle.demos import Demonstrations, Recipe, record_demonstrations
from oracle.policy import ExpertPolicy
from pipelines.learning.adversarial import ExpertBatches, Gail, GailSettings, run_gail
from pipelines.learning.learner import Trained
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.settings import Settings, resolve
from pipelines.scoring.scores import Evaluator

SETTINGS = resolve(
    {
        "demo_operations": 40,
        "n_envs": 16,
        "n_steps": 32,
        "batch_size": 128,
        "n_epochs": 2,
        "n_timesteps": 1500,
        "eval_freq": 600,
        "eval_episodes": 5,
    }
)
SMALL = GailSettings(batch_size=64, updates=2, layers=1, width=32)


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Demonstrations:
    path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    record_demonstrations(Recipe(SETTINGS.recipe().config, operations=40), path, workers=1)
    return Demonstrations.open(path)


def trained(settings: Settings, demonstrations: Demonstrations) -> Trained:
    evaluate = Evaluator(settings.world, 5, with_set=False, long_operations=10)
    return run_gail(settings, demonstrations, evaluate, SMALL)


def weights(result: Trained) -> list[torch.Tensor]:
    return list(result.last.state_dict().values())


def test_the_same_seed_gives_the_same_policy(
    demonstrations: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (trained(SETTINGS, demonstrations) for _ in range(2))
    assert all(map(torch.equal, weights(one), weights(other)))
    another = trained(replace(SETTINGS, seed=1), demonstrations)
    assert not all(map(torch.equal, weights(one), weights(another)))
    # Rounds of 512 steps: the evaluations after 600 and 1,200 steps come at the ends of rounds.
    assert [evaluation.step for evaluation in one.evaluations] == [0, 1024, 1536]
    assert list(one.seconds_at_evaluation) == sorted(one.seconds_at_evaluation)
    assert one.seconds["gail"] == one.seconds_at_evaluation[-1] > 0
    assert one.labels == len(demonstrations)
    assert not list(tmp_path.iterdir())


def test_a_round_updates_both_sides_and_takes_legal_actions_alone(
    demonstrations: Demonstrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    gail = Gail(SETTINGS, demonstrations, SMALL)
    sides: dict[str, Any] = {"policy": gail.ppo.policy, "reward": gail.trainer._reward_net}
    before = {name: [p.clone() for p in side.parameters()] for name, side in sides.items()}
    batch, illegal = gail.abaci.batch, []
    take = batch.step

    def counted(actions: Any) -> None:
        take(actions)
        illegal.append(int(batch.illegal.sum()))

    monkeypatch.setattr(batch, "step", counted)
    gail.round()
    assert gail.steps == 512
    assert illegal == [0] * 32
    for name, side in sides.items():
        changed = [
            not torch.equal(*pair) for pair in zip(before[name], side.parameters(), strict=True)
        ]
        assert any(changed), name


def test_the_copied_policy_answers_as_the_trained_one(demonstrations: Demonstrations) -> None:
    gail = Gail(SETTINGS, demonstrations, SMALL)
    copy, policy = gail.policy(), gail.ppo.policy
    assert isinstance(policy, AbacusPolicy)
    rows = torch.from_numpy(gail.env.reset())
    masks = torch.from_numpy(gail.abaci.action_masks())
    with torch.no_grad():
        assert torch.equal(copy.log_probs(rows, masks), policy.log_probs(rows, masks))
    gail.round()
    with torch.no_grad():
        assert not torch.equal(copy.log_probs(rows), policy.log_probs(rows))


def test_a_mistake_does_not_end_an_episode(demonstrations: Demonstrations) -> None:
    """Else a reward that is never negative would teach to avoid every slide and submit."""
    env = Gail(SETTINGS, demonstrations, SMALL).env
    env.reset()
    env.step_async(np.full(SETTINGS.ppo.n_envs, Action.SUBMIT))
    assert (env.batch.outcomes >= 0).all()
    _, _, dones, _ = env.step_wait()
    assert (env.batch.outcomes < 0).any()
    assert not dones.any()


def test_the_longest_run_is_that_of_the_episodes(demonstrations: Demonstrations) -> None:
    """Of those that ended, and of those that have not."""
    env = Gail(SETTINGS, demonstrations, SMALL).env
    env.seed(0)
    observation, expert = env.reset(), ExpertPolicy(env)
    solved = 0
    for _ in range(700):
        env.step_async(expert.predict(observation)[0])
        observation, _, _, infos = env.step_wait()
        ended = [info["operations_solved"] for info in infos if info]
        solved = max([solved, *ended, *env.batch.scalars["operations_solved"].tolist()])
        assert env.longest_run == solved
    assert solved > 5


def test_batches_of_the_expert_hold_every_transition_once(demonstrations: Demonstrations) -> None:
    batches = ExpertBatches(SETTINGS, demonstrations, 64)
    first, second = ([batch["acts"] for batch in batches] for _ in range(2))
    assert {len(acts) for acts in first} == {64}
    assert len(first) == len(demonstrations) // 64
    assert not np.array_equal(first[0], second[0])
    whole = ExpertBatches(SETTINGS, demonstrations, 10**9)
    (batch,) = whole
    counts = np.bincount(demonstrations.transitions["action"], minlength=len(Action))
    assert np.array_equal(np.bincount(batch["acts"], minlength=len(Action)), counts)
    # Actions belong to their observations: the next one shows each as the previous action.
    shown = batch["next_obs"][:, -len(Action) :].argmax(axis=1)
    assert np.array_equal(shown, batch["acts"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"updates": 0}, "updates=0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"layers": -1}, "layers=-1"),
        ({"width": 0}, "width=0"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GailSettings(**changes)
