"""Policies by their names on the command line, and one-line errors for anything else."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

from abacus.rules import Action
from abacus.sb3 import AbacusVecEnv
from oracle.exact.certificate import certify
from oracle.exact.complete_set import complete_set
from pipelines.learning.named_policies import find_policy
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import published_policy, save_policy
from pipelines.scoring.operations import drawn_operations

FUNCTIONS = """
import numpy as np
def submit(observations):
    return np.full(len(observations["symbol"]), 7)
def scores(observations):
    return np.tile(np.arange(8.0), (len(observations["symbol"]), 1))
def wrong_shape(observations):
    return np.zeros((2, 3))
def out_of_range(observations):
    return np.full(len(observations["symbol"]), 9)
def failing(observations):
    return observations["nothing"]
number = 3
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "given_policies.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("given_policies", None)
    return "given_policies"


@pytest.mark.parametrize("layout", [(5, 3), (3, 2)])
def test_a_folder_knows_its_base_and_frames(tmp_path: Path, layout: tuple[int, int]) -> None:
    save_policy(new_policy("compact", *layout), tmp_path)
    policy = find_policy(str(tmp_path))
    assert (policy.base, policy.frames) == layout
    assert policy.digest is not None
    assert find_policy(str(tmp_path / "policy.json")).digest == policy.digest


def test_another_base_or_frames_than_the_policys(tmp_path: Path) -> None:
    save_policy(new_policy("compact", 5, 3), tmp_path)
    with pytest.raises(
        ValueError, match="base=4 is not allowed: the policy is for base 5 and 3 fr"
    ):
        find_policy(str(tmp_path), base=4)
    with pytest.raises(ValueError, match="frames=2 is not allowed"):
        find_policy(str(tmp_path), frames=2)


def test_a_run_is_found_by_its_folder(tmp_path: Path) -> None:
    save_policy(new_policy("compact", 5, 3), tmp_path / "best")
    policy = find_policy(str(tmp_path))
    assert policy.digest == find_policy(str(tmp_path / "best")).digest
    assert policy.kind == "trained policy"


def test_the_policy_of_the_project_is_the_published_one() -> None:
    policy = find_policy(None)
    assert policy.kind == find_policy(str(published_policy())).kind == "published policy"
    assert find_policy("base5").digest == policy.digest


@pytest.mark.parametrize("algorithm", [MaskablePPO, PPO])
def test_a_zip_needs_trust(tmp_path: Path, algorithm: type[PPO]) -> None:
    environment = AbacusVecEnv(2)
    kind = "MultiInputPolicy"
    model = algorithm(kind, environment, n_steps=8, batch_size=16, policy_kwargs={"net_arch": [8]})
    path = tmp_path / "model.zip"
    model.save(path)
    with pytest.raises(ValueError, match="--trust"):
        find_policy(str(path))
    policy = find_policy(str(path), trust=True)
    assert (policy.base, policy.frames) == (5, 3)
    batch = drawn_operations(4, 2, 5, np.random.default_rng(0)).batch(3)
    expected, _ = model.policy.predict(batch.observation, deterministic=True)
    legal = batch.masks[np.arange(4), expected]
    assert (policy.player.actions(batch)[legal] == expected[legal]).all()


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    path.write_text("nothing")
    with pytest.raises(ValueError, match="is no zip of"):
        find_policy(str(path), trust=True)


@pytest.mark.parametrize("name", ["submit", "scores"])
def test_a_function(functions: str, name: str) -> None:
    policy = find_policy(f"{functions}:{name}", base=4, frames=2)
    batch = drawn_operations(3, 2, 4, np.random.default_rng(0)).batch(2)
    assert (policy.player.actions(batch) == Action.SUBMIT).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_shape", r"answers 3 observations with float64 of shape \(2, 3\): give \(3,\)"),
        ("out_of_range", "give"),
        ("failing", "fails: KeyError: 'nothing'"),
    ],
)
def test_a_function_with_wrong_results(functions: str, name: str, message: str) -> None:
    policy = find_policy(f"{functions}:{name}")
    batch = drawn_operations(3, 9, 5, np.random.default_rng(5)).batch(3)
    with pytest.raises(ValueError, match=message):
        policy.answers(batch.observation)


@pytest.mark.parametrize(
    "word", ["given_policies:missing", "no_such_module:f", "given_policies:number"]
)
def test_a_function_that_is_not_there(functions: str, word: str) -> None:
    with pytest.raises(ValueError, match=r"is not there|is no function"):
        find_policy(word)


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="is not there: give the folder of a run"):
        find_policy("runs/that-was-never-made")


def test_the_teacher_is_exact_and_the_random_one_is_not() -> None:
    known = complete_set(3, 2)
    assert certify(find_policy("teacher", base=3, frames=2).answers, known).exact
    random = find_policy("random", base=3, frames=2)
    assert certify(random.answers, known, counterexamples=0).disagreements > len(known) / 2
