"""Policy files: saved policies load without running code; damaged ones are refused."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig
from oracle.exact.certificate import certify, digest_of
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import (
    CERTIFICATE_FILE,
    DESCRIPTION_FILE,
    WEIGHTS_FILE,
    PolicyFileError,
    load_policy,
    load_run,
    published_policy,
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
        ({"version": [1]}, "version"),
        ({"network": "huge"}, "known network"),
        ({"network": ["compact"]}, "known network"),
        ({"about": "text"}, "notes"),
        ({"base": "5"}, "base='5' is not allowed"),
        ({"base": 10**400}, "base"),
        ({"frames": 1e9}, "frames"),
        ({"base": 4}, "does not hold the weights"),
        ({"digest": "0" * 64}, "do not have the digest"),
        ({"digest": None}, "do not have the digest"),
        ({"colour": "red"}, "keys of version"),
        ({"sha256": "0" * 64}, "does not have its digest"),
    ],
)
def test_a_wrong_description_is_refused(
    policy: AbacusPolicy, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    save_policy(policy, tmp_path)
    write_description(tmp_path, change)
    with pytest.raises(PolicyFileError, match=message) as error:
        load_policy(tmp_path)
    assert "\n" not in str(error.value)


def write_description(folder: Path, change: dict[str, object]) -> None:
    """Change a description as a forger does: with its digest."""
    path = folder / DESCRIPTION_FILE
    description = {**json.loads(path.read_text()), **change}
    if "sha256" not in change:
        unsigned = {name: value for name, value in description.items() if name != "sha256"}
        text = json.dumps(unsigned, sort_keys=True)
        description["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(description))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "nul", "[]", "\xff"])
def test_a_description_that_is_no_object_is_one_line(
    policy: AbacusPolicy, tmp_path: Path, text: str
) -> None:
    save_policy(policy, tmp_path)
    (tmp_path / DESCRIPTION_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(PolicyFileError) as error:
        load_policy(tmp_path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", [WEIGHTS_FILE, DESCRIPTION_FILE])
def test_a_flipped_bit_is_refused_or_harmless(
    policy: AbacusPolicy, tmp_path: Path, name: str
) -> None:
    save_policy(policy, tmp_path, {"note": "tried", "step": 12345})
    content = (tmp_path / name).read_bytes()
    description, weights = read_description(tmp_path), policy.state_dict()
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.choice(8 * len(content), 300, replace=False):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << (bit % 8)
        (tmp_path / name).write_bytes(changed)
        try:
            loaded = load_policy(tmp_path)
        except PolicyFileError as error:
            refused += "\n" not in str(error)
        else:
            assert read_description(tmp_path) == description
            assert all(torch.equal(weights[key], loaded.state_dict()[key]) for key in weights)
    assert refused >= (295 if name == WEIGHTS_FILE else 200)


def test_a_cut_file_is_one_line(policy: AbacusPolicy, tmp_path: Path) -> None:
    for name in (WEIGHTS_FILE, DESCRIPTION_FILE):
        save_policy(policy, tmp_path)
        content = (tmp_path / name).read_bytes()
        for size in (0, 1, 7, 8, 100, len(content) // 2, len(content) - 3):
            (tmp_path / name).write_bytes(content[:size])
            with pytest.raises(PolicyFileError) as error:
                load_policy(tmp_path)
            assert "\n" not in str(error.value)


def test_a_policy_of_version_1_has_no_digests_and_is_read(
    policy: AbacusPolicy, tmp_path: Path
) -> None:
    save_policy(policy, tmp_path)
    description = json.loads((tmp_path / DESCRIPTION_FILE).read_text())
    del description["digest"], description["sha256"]
    (tmp_path / DESCRIPTION_FILE).write_text(json.dumps({**description, "version": 1}))
    assert digest_of(load_policy(tmp_path)) == digest_of(policy)


def test_a_certificate_of_other_weights_is_reported(
    policy: AbacusPolicy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = new_policy("compact", 3, 2)
    for folder, given in ((tmp_path / "best", tmp_path), (tmp_path / "alone", tmp_path / "alone")):
        save_policy(policy, folder)
        certificate = given / CERTIFICATE_FILE
        certificate.write_text(json.dumps({"policy_digest": digest_of(policy)}))
        load_run(given)
        load_run(folder)
        assert capsys.readouterr().err == ""
        for text, problem in (
            (json.dumps({"policy_digest": digest_of(other)}), "of other weights"),
            ("{", "is damaged"),
            ("[]", "is damaged"),
        ):
            certificate.write_text(text)
            for path in (given, folder):
                load_run(path)
                error = capsys.readouterr().err
                assert error.count("\n") == 1
                assert f"{certificate} is" in error
                assert problem in error
    save_policy(policy, tmp_path / "last")
    load_run(tmp_path / "last")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"PK\x03\x04"])
def test_an_empty_zip_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(content)
    with pytest.raises(PolicyFileError, match="is no zip of") as error:
        load_run(path, trust=True)
    assert "\n" not in str(error.value)


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
    saved = json.loads((published_policy() / "certificate.json").read_text())
    assert saved["policy_digest"] == certificate.policy_digest
    assert saved["exact"] is True
