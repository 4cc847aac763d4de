"""Demonstrations in memory equal what the environment returns, and feed learners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from imitation.algorithms.bc import BC
from imitation.data import rollout
from imitation.data.types import DictObs
from imitation.util import logger as imitation_logger

from abacus.batch import AbacusBatch
from abacus.env import AbacusEnv
from abacus.observation import observation_space
from abacus.reward import LEVELS, TERMS
from abacus.rules import AbacusConfig, Action
from oracle.demos import Demonstrations, DemonstrationsError, Recipe, record_demonstrations
from oracle.demos.learners import Batches, TorchDemonstrations, trajectories
from oracle.demos.statistics import episode_table, operation_table, transition_table

CONFIGS = {
    "both": AbacusConfig(max_operations=4),
    # Reloads restart the stack of frames in the middle of an episode.
    "subtract": AbacusConfig(operations="subtract", max_operations=25, max_digits=9, base=3),
}


@pytest.fixture(scope="module", params=CONFIGS)
def demonstrations(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Demonstrations:
    path = tmp_path_factory.mktemp("demonstrations") / "some.h5"
    record_demonstrations(Recipe(CONFIGS[request.param], epsilon=0.15, operations=75), path)
    return Demonstrations.open(path)


def rows_of(demonstrations: Demonstrations, episode: int) -> range:
    start = int(demonstrations.episodes["start"][episode])
    return range(start, start + int(demonstrations.episodes["length"][episode]))


def replayed(
    demonstrations: Demonstrations, episode: int, **settings: Any
) -> tuple[list[dict[str, npt.NDArray[np.float32]]], list[tuple[Any, ...]]]:
    """Return T + 1 observations and T results of an episode in `AbacusEnv`."""
    limit = int(demonstrations.episodes["operations"][episode])
    config = replace(demonstrations.config, max_operations=limit, **settings)
    env = AbacusEnv(**config.to_dict())
    observation, info = env.reset(seed=int(demonstrations.episodes["seed"][episode]))
    observations, results = [observation], []
    for row in rows_of(demonstrations, episode):
        mask = info["action_mask"]
        observation, *result, info = env.step(int(demonstrations.transitions["taken"][row]))
        observations.append(observation)
        results.append((*result, info, mask))
    return observations, results


def test_only_subtraction_alone_has_reloads(demonstrations: Demonstrations) -> None:
    fresh, first = demonstrations.operations["fresh"], demonstrations.episodes["first_operation"]
    reloads = fresh.sum() - len(first)
    assert (reloads > 0) == (demonstrations.config.operations == "subtract")


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 16])
def test_observations_equal_the_environments_with_any_number_of_frames(
    demonstrations: Demonstrations, frames: int
) -> None:
    finals = demonstrations.final_observations(frames)
    for episode in range(demonstrations.counts["episodes"]):
        expected, _ = replayed(demonstrations, episode, frames=frames)
        rows = np.array(rows_of(demonstrations, episode))
        for key, array in demonstrations.observations(rows, frames).items():
            assert np.array_equal(array, [observation[key] for observation in expected[:-1]])
            assert np.array_equal(finals[key][episode], expected[-1][key])


def test_observations_of_scattered_rows_equal_those_in_order(
    demonstrations: Demonstrations,
) -> None:
    rows = np.random.default_rng(0).permutation(len(demonstrations))[:500]
    every, some = demonstrations.observations(), demonstrations.observations(rows)
    reused = demonstrations.empty_observations(500)
    assert demonstrations.observations(rows, out=reused) is reused
    for key in every:
        assert np.array_equal(every[key][rows], some[key])
        assert np.array_equal(every[key][rows], reused[key])
    for wrong in ([-1], [len(demonstrations)]):
        with pytest.raises(IndexError):
            demonstrations.observations(np.array(wrong))


@pytest.mark.parametrize("level", [*LEVELS, ("step", "wrong_submit"), "finger,submit"])
def test_rewards_and_terms_equal_the_environments_at_any_level(
    demonstrations: Demonstrations, level: str | tuple[str, ...]
) -> None:
    rewards, terms = demonstrations.rewards(level), demonstrations.terms(level)
    for episode in range(0, demonstrations.counts["episodes"], 5):
        _, results = replayed(demonstrations, episode, reward=level)
        rows = np.array(rows_of(demonstrations, episode))
        assert np.array_equal(
            rewards[rows], np.array([result[0] for result in results], np.float32)
        )
        paid = [[result[3]["reward_terms"][name] for name in TERMS] for result in results]
        assert np.array_equal(terms[rows], np.array(paid, np.float32))


def test_masks_and_ends_equal_the_environments(demonstrations: Demonstrations) -> None:
    masks, columns = demonstrations.masks(), demonstrations.transitions
    for episode in range(demonstrations.counts["episodes"]):
        _, results = replayed(demonstrations, episode)
        rows = np.array(rows_of(demonstrations, episode))
        assert np.array_equal(masks[rows], [result[4] for result in results])
        assert columns["terminated"][rows].tolist() == [result[1] for result in results]
        assert columns["truncated"][rows].tolist() == [result[2] for result in results]


def test_first_operations_are_nested(demonstrations: Demonstrations) -> None:
    previous = 0
    for operations in (1, 3, 20, 41, 75):
        part = demonstrations.first(operations)
        assert part.counts["operations"] == operations
        assert len(part) > previous
        previous = len(part)
        for key, array in part.observations().items():
            assert np.array_equal(array, demonstrations.observations(slice(len(part)))[key])
        assert part.transitions["truncated"].sum() + part.transitions["terminated"].sum() == len(
            part.episodes["start"]
        )
        assert part.first(1).content_digest() == demonstrations.first(1).content_digest()
    for wrong in (0, 76):
        with pytest.raises(ValueError, match="operations="):
            demonstrations.first(wrong)


def test_train_and_validation_are_disjoint_and_complete(demonstrations: Demonstrations) -> None:
    train, validation = demonstrations.train, demonstrations.validation
    assert len(train) + len(validation) == len(demonstrations)
    assert not set(train.episodes["seed"].tolist()) & set(validation.episodes["seed"].tolist())
    which = demonstrations.episodes["validation"] == 1
    assert np.array_equal(validation.episodes["seed"], demonstrations.episodes["seed"][which])
    finals = demonstrations.final_observations()["window"]
    assert np.array_equal(validation.final_observations()["window"], finals[which])
    rows = np.repeat(which, demonstrations.episodes["length"])
    assert np.array_equal(validation.rewards(), demonstrations.rewards()[rows])
    assert np.array_equal(
        validation.observations()["window"], demonstrations.observations()["window"][rows]
    )


def test_a_single_episode_has_no_validation_part(demonstrations: Demonstrations) -> None:
    empty = demonstrations.first(1).validation
    assert len(empty) == 0
    assert empty.observations()["window"].shape[0] == 0
    assert not list(trajectories(empty))
    with pytest.raises(ValueError, match="no transitions"):
        Batches(empty, 8)


def test_batches_hold_every_transition_once_and_are_reshuffled(
    demonstrations: Demonstrations,
) -> None:
    batches = Batches(demonstrations, 64, np.random.default_rng(0))
    assert len(batches) == len(demonstrations) // 64
    passes = [list(batches), list(batches)]
    sizes = {len(batch["obs"]) for batch in passes[0]} | {len(batch["acts"]) for batch in passes[0]}
    assert sizes == {64}
    first, second = (np.concatenate([batch["acts"] for batch in one]) for one in passes)
    assert not np.array_equal(first, second)
    whole = Batches(demonstrations, len(demonstrations))
    (batch,) = whole
    assert np.array_equal(batch["acts"], demonstrations.transitions["action"])
    assert np.array_equal(batch["masks"], demonstrations.masks())
    for key, array in demonstrations.observations().items():
        assert np.array_equal(batch["obs"].get(key), array)
    assert Batches(demonstrations, 10**9).batch_size == len(demonstrations)
    with pytest.raises(ValueError, match="batch_size=0"):
        Batches(demonstrations, 0)


def test_trajectories_have_one_observation_more_than_actions(
    demonstrations: Demonstrations,
) -> None:
    for episode, trajectory in enumerate(trajectories(demonstrations, frames=2, level="no_of")):
        expected, results = replayed(demonstrations, episode, frames=2, reward="no_of")
        assert isinstance(trajectory.obs, DictObs)
        for key in expected[0]:
            assert np.array_equal(trajectory.obs.get(key), [seen[key] for seen in expected])
        assert np.array_equal(
            trajectory.rews, np.array([result[0] for result in results], np.float32)
        )
        rows = np.array(rows_of(demonstrations, episode))
        assert np.array_equal(trajectory.acts, demonstrations.transitions["action"][rows])
        assert trajectory.terminal == results[-1][1]
    for one, other in zip(
        trajectories(demonstrations), trajectories(demonstrations, flat=True), strict=True
    ):
        assert isinstance(one.obs, DictObs)
        assert isinstance(other.obs, np.ndarray)
        joined = [one.obs.get(key) for key in AbacusBatch(demonstrations.config, 1).observation]
        assert np.array_equal(np.concatenate(joined, axis=1), other.obs)
    taken = [trajectory.acts for trajectory in trajectories(demonstrations, actions="taken")]
    assert np.array_equal(np.concatenate(taken), demonstrations.transitions["taken"])
    with pytest.raises(ValueError, match="actions='mine'"):
        next(trajectories(demonstrations, actions="mine"))  # type: ignore[arg-type]


def test_torch_loads_single_samples_and_batches(demonstrations: Demonstrations) -> None:
    dataset = TorchDemonstrations(demonstrations, frames=2)
    assert len(dataset) == len(demonstrations)
    every = demonstrations.observations(frames=2)
    sample = dataset[17]
    assert torch.equal(sample["obs"]["window"], torch.from_numpy(every["window"][17]))
    assert sample["action"] == int(demonstrations.transitions["action"][17])
    assert dataset[-1]["action"] == int(demonstrations.transitions["action"][-1])
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(dataset, batch_size=100)
    loaded = list(loader)
    for key, array in every.items():
        joined = torch.cat([batch["obs"][key] for batch in loaded])
        assert torch.equal(joined, torch.from_numpy(array))
    masks = torch.cat([batch["mask"] for batch in loaded])
    assert np.array_equal(masks.numpy(), demonstrations.masks())


def test_pandas_tables_are_consistent(demonstrations: Demonstrations) -> None:
    operations, episodes = operation_table(demonstrations), episode_table(demonstrations)
    sign = operations["sign"].map({"+": 1, "-": -1})
    result = operations["first_operand"] + sign * operations["second_operand"]
    assert (result == operations["result"]).all()
    assert operations["length"].sum() == episodes["length"].sum() == len(demonstrations)
    assert episodes["validation"].sum() == demonstrations.episodes["validation"].sum()
    for episode in (0, 2):
        _, results = replayed(demonstrations, episode, reward="no_of_sp")
        recorded = episodes["return_no_of_sp"][episode]
        assert recorded == pytest.approx(sum(result[0] for result in results), abs=1e-4)


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Any]:
    logger: Any = imitation_logger.configure(tmp_path / "log", [])
    yield logger
    logger.close()


@pytest.mark.parametrize("source", ["batches", "trajectories"])
def test_imitation_clones_from_batches_and_trajectories(
    source: str, quiet: Any, tmp_path: Path
) -> None:
    record_demonstrations(Recipe(operations=300), tmp_path / "some.h5")
    demonstrations = Demonstrations.open(tmp_path / "some.h5")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    given: Any = Batches(demonstrations, 64, rng)
    if source == "trajectories":
        given = rollout.flatten_trajectories(list(trajectories(demonstrations)))
    env = AbacusEnv()
    clone = BC(
        observation_space=observation_space(demonstrations.config),
        action_space=env.action_space,
        rng=rng,
        demonstrations=given,
        batch_size=64,
        custom_logger=quiet,
        device="cpu",
    )
    clone.train(n_batches=400, progress_bar=False)
    seen = {key: torch.from_numpy(array) for key, array in demonstrations.observations().items()}
    with torch.no_grad():
        distribution = clone.policy.get_distribution(seen)
        answers = distribution.mode().numpy()
    # The most frequent action is right in less than a fifth of the transitions.
    assert (answers == demonstrations.transitions["action"]).mean() > 0.6


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Demonstrations.open(tmp_path / "missing.h5")
    with pytest.raises(DemonstrationsError, match="not a regular file"):
        Demonstrations.open(tmp_path)


def test_the_file_is_closed_and_may_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "some.h5"
    record_demonstrations(Recipe(operations=20), path)
    demonstrations = Demonstrations.open(path)
    path.unlink()
    assert len(demonstrations.observations()["window"]) == len(demonstrations)


def test_transitions_become_a_table(demonstrations: Demonstrations) -> None:
    table = transition_table(demonstrations)
    rows, operations = demonstrations.transitions, operation_table(demonstrations)
    assert len(table) == len(demonstrations)
    assert table["action"].cat.codes.tolist() == rows["taken"].tolist()
    assert table["expert_action"].tolist() == [Action(code).words for code in rows["action"]]
    words = {-1: "wrong", 0: "neither", 1: "right"}
    assert table["outcome"].tolist() == [words[code] for code in rows["outcome"]]
    assert np.array_equal(table["reward"], demonstrations.rewards())
    assert np.array_equal(table.filter(like="term_"), demonstrations.terms())
    assert np.array_equal(table.filter(like="legal_"), demonstrations.masks())
    assert (table.groupby("episode")["step"].max() + 1).tolist() == (
        demonstrations.episodes["length"].tolist()
    )
    assert (table.groupby("operation_row").size() == operations["length"]).all()
    signs = operations["sign"].map({"+": "addition", "-": "subtraction"})
    first = table.groupby("operation_row")["operation"].first().astype(str)
    assert first.tolist() == signs.tolist()
