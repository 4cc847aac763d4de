"""Policy files: saved policies load without running code; damaged ones are refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from oracle.exact.certificate import certify
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import (
    DESCRIPTION_FILE,
    PUBLISHED_POLICY,
    WEIGHTS_FILE,
    PolicyFileError,
    load_policy,
    load_run,
    read_description,
    save_policy,
)


@pytest.fixture
def policy() -> AbacusPolicy:
    torch.manual_seed(0)
    return new_policy("compact", 3, 2)


def test_a_loaded_policy_predicts_as_the_saved_one(policy: AbacusPolicy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path, {"note": "tried"})
    loaded = load_policy(tmp_path)
    batch = AbacusBatch(AbacusConfig(base=3, frames=2, start="random"), 50)
    batch.reset(0)
    seen = {key: rows.copy() for key, rows in batch.observation.items()}
    ours, theirs = (
        which.predict(seen, deterministic=True, action_masks=batch.masks.copy())[0]
        for which in (policy, loaded)
    )
    assert np.array_equal(ours, theirs)
    assert read_description(tmp_path)["about"] == {"note": "tried"}


def test_a_run_is_loaded_by_its_best_policy(policy: AbacusPolicy, tmp_path: Path) -> None:
    torch.manual_seed(1)
    save_policy(new_policy("compact", 3, 2), tmp_path / "last")
    save_policy(policy, tmp_path / "best")
    loaded = load_run(tmp_path)
    name = "network.actor.0.weight"
    assert torch.equal(loaded.state_dict()[name], policy.state_dict()[name])


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("code of the file was run",))


def test_nothing_is_unpickled(policy: AbacusPolicy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path)
    (tmp_path / WEIGHTS_FILE).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(PolicyFileError, match="does not hold the weights"):
        load_policy(tmp_path)


def test_a_zip_needs_trust(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="--trust"):
        load_run(tmp_path / "model.zip")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format"),
        ({"version": 99}, "version 99"),
        ({"network": "huge"}, "known network"),
        ({"base": "5"}, "its base"),
        ({"base": 4}, "does not hold the weights"),
    ],
)
def test_a_wrong_description_is_refused(
    policy: AbacusPolicy, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    save_policy(policy, tmp_path)
    description = json.loads((tmp_path / DESCRIPTION_FILE).read_text())
    (tmp_path / DESCRIPTION_FILE).write_text(json.dumps({**description, **change}))
    with pytest.raises(PolicyFileError, match=message):
        load_policy(tmp_path)


def test_damaged_files_and_empty_folders_are_refused(policy: AbacusPolicy, tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="holds no policy"):
        load_run(tmp_path)
    save_policy(policy, tmp_path)
    (tmp_path / DESCRIPTION_FILE).write_text("{")
    with pytest.raises(PolicyFileError, match="not JSON"):
        load_policy(tmp_path)


def test_weights_that_are_not_finite_are_refused(policy: AbacusPolicy, tmp_path: Path) -> None:
    with torch.no_grad():
        policy.network.critic_parameters()[1][0] = torch.nan
    save_policy(policy, tmp_path)
    with pytest.raises(PolicyFileError, match="not finite"):
        load_policy(tmp_path)


def test_the_policy_that_comes_with_the_project_is_exact() -> None:
    certificate = certify(load_run())
    assert certificate.exact
    assert certificate.observations == 99_784
    saved = json.loads((PUBLISHED_POLICY / "certificate.json").read_text())
    assert saved["policy_digest"] == certificate.policy_digest
    assert saved["exact"] is True
