"""python -m pipelines.mend and publish --name: policies with an algorithm of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from oracle.exact.own_runs import OwnRunsCertificate
from pipelines import mend, publish
from pipelines.learning import policy_files
from pipelines.learning.policy_files import OWN_RUNS_FILE, PUBLISHED, published_policy
from tests.pipelines.small_world import shorten_mending

OWN = PUBLISHED / "reward_dense"


def options(policy: Path, folder: Path, **given: object) -> mend.Options:
    return mend.Options(policy=policy, run_folder=folder, given=dict(given), progress=False)


def test_an_exact_policy_needs_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mended"
    shorten_mending(monkeypatch)
    assert mend.main(options(OWN, folder, eval_episodes=20)) == 0
    shown = capsys.readouterr().out
    assert "0 of 200 random exercises fail; own runs exact" in shown
    certificate = OwnRunsCertificate.from_json((folder / OWN_RUNS_FILE).read_text())
    assert certificate.exact
    # The level and the abacus are those of the policy's own run.
    assert certificate.level == "dense"
    settings = json.loads((folder / "config.json").read_text())
    assert settings["world"]["reward"] == "dense"
    assert settings["n_timesteps"] == settings["demo_operations"] == 0
    assert settings["planning"]["exercises"] == 0
    assert "| after mending | 100.00% | 0.00% |" in (folder / "report.md").read_text()
    # It does not agree with the teacher, and is kept all the same.
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["own_runs"]["mended"] == "exact"
    assert not summary["exact"]


def test_a_policy_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no policy is given"):
        mend.main(mend.Options(run_folder=tmp_path / "run"))
    with pytest.raises(ValueError, match="holds no policy"):
        mend.main(options(tmp_path, tmp_path / "run"))


def test_modules_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reward level"):
        mend.main(options(OWN, tmp_path / "run", reward="submit,wrong_submit"))
    assert not (tmp_path / "run").exists()


def test_publishing_under_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(OWN, run / "best")
    monkeypatch.setattr(policy_files, "PUBLISHED", tmp_path / "published")
    assert publish.main(publish.Options(run, name="own_way")) == 0
    written = tmp_path / "published" / "own_way"
    assert OwnRunsCertificate.from_json((written / OWN_RUNS_FILE).read_text()).exact
    # The project's policy of a base must agree with the teacher.
    wrong = json.loads((OWN / "certificate.json").read_text())["disagreements"]
    with pytest.raises(ValueError, match=f"is wrong on {wrong:,}"):
        publish.main(publish.Options(run))
    # A run that has not ended does not tell its settings.
    policy = policy_files.load_policy(OWN)
    policy_files.save_policy(policy, run / "best", {"step": 0})
    with pytest.raises(ValueError, match="the run has no report"):
        publish.main(publish.Options(run, name="own_way"))


@pytest.mark.parametrize("name", ["", "../up", "Base 5", "9"])
def test_names_are_checked(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name="):
        publish.Options(tmp_path, name=name)


@pytest.mark.parametrize("folder", sorted(PUBLISHED.glob("reward_*")), ids=lambda path: path.name)
def test_policies_from_reward_alone_saw_no_demonstration(folder: Path) -> None:
    about = policy_files.read_description(folder)["about"]["settings"]
    assert about["demo_operations"] == about["teaching"]["rounds"] == 0
    assert about["start_from"] is None
    assert OwnRunsCertificate.from_json((folder / OWN_RUNS_FILE).read_text()).exact
    assert policy_files.check_certificate(folder, policy_files.load_policy(folder)) is None


def test_the_default_policies_are_there() -> None:
    for base in (5, 10):
        certificate = json.loads((published_policy(base) / "certificate.json").read_text())
        assert certificate["exact"]
