"""Runs that are killed, or whose disk fails, at any file operation resume to the same result."""

from __future__ import annotations

import csv
import errno
import functools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oracle.demos import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.shards import record_demonstrations
from pipelines import bc_then_ppo
from pipelines.bc_then_ppo import EXAMPLE, EXIT_NOT_EXACT, Options, main
from pipelines.job.command_line import EXIT_MISTAKE, run
from pipelines.learning import exercises, practice, run_report
from pipelines.learning import run as training_module
from pipelines.learning.policy_files import (
    SAVED_POLICIES,
    load_policy,
    load_zip,
    read_description,
)
from pipelines.learning.run import FINISHED
from pipelines.learning.run_folder import LOGS, OWN_OPERATIONS, STEP, TEACHING_SET, RunFolder
from pipelines.scoring.scores import Evaluator
from tests.interruptions import (
    EVERYWHERE,
    failing_at,
    failing_states,
    folder_in_memory,
    folder_states,
    in_child,
    spread,
)
from tests.pipelines.small_world import FRAMES, WORLD, shorten_mending, shorten_planning

Job = Callable[..., int]

#: Flags of a run that plans and has no demonstrations.
PLANNED = ["--demo-operations", "0", "--cloning-weight", "0", "--plan-exercises", "6"]
#: Statuses of a run that ended: the one that reports its policy, and one that finds it finished.
ENDED = (EXIT_NOT_EXACT, 0)


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demonstrations") / "small.h5"
    record_demonstrations(Recipe(config=WORLD, operations=100), path, workers=1)
    return path


@pytest.fixture
def job(demonstrations: Path) -> Job:
    """Return a function that runs a job of about a second, with all stages.

    PPO is evaluated twice, and has one checkpoint without an evaluation.
    """
    given = (
        f"--demonstrations {demonstrations} --demo-operations 20 --cloning-updates 5 --base 2 "
        f"--columns 4 --max-digits 2 --frames {FRAMES} --n-timesteps 768 --n-envs 32 --n-steps 8 "
        "--batch-size 128 --n-epochs 1 --critic-warmup 256 --eval-freq 512 --eval-episodes 4 "
        "--count-bonus 0.5 --critic-sees state --ppo-optimizer muon --exercise-share 0.5 "
        "--mend-rounds 1 --mend-exercises 4 --teach-rounds 1 --teach-counterexamples 4"
    ).split()

    def start(*words: Any) -> int:
        alone = "--resume" in words
        flags = words[words.index("--resume") :] if alone else (*given, *words)
        argv = ["--no-progress", "--verbose", "0", *map(str, flags)]
        return run(main, Options, bc_then_ppo.__doc__, EXAMPLE, argv)

    return start


@pytest.fixture(autouse=True)
def few_exercises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercises, "PPO_EXERCISES", 20)
    monkeypatch.setattr(run_report, "OWN_TASKS", 5)
    # Room for few observations is made faster.
    monkeypatch.setattr(practice, "MOST_ROWS", 1 << 14)
    shorten_planning(monkeypatch)
    shorten_mending(monkeypatch, tried=20, updates=5)


@pytest.fixture(autouse=True)
def few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate on few operations of 16 digits, which would take half of the time of a run."""
    evaluator = functools.partial(Evaluator, long_operations=50)
    for module in (training_module, run_report):
        monkeypatch.setattr(module, "Evaluator", evaluator)
    monkeypatch.setattr("sys.argv", ["job"])


def without_times(row: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in row.items() if key == STEP or not key.startswith("time/")}


def named_weights(policy: Any) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in policy.state_dict().items()}


def results(folder: Path) -> dict[str, Any]:
    """Return everything that a run leaves in its folder but times."""
    found: dict[str, Any] = {}
    planned = not (folder / "cloning.csv").is_file()
    for name in set(SAVED_POLICIES) - ({"clone"} if planned else set()):
        found[name] = named_weights(load_policy(folder / name)), read_description(folder / name)
    found["model.zip"] = named_weights(load_zip(folder / "model.zip", trust=True))
    opened = RunFolder.open(folder, {})
    state = opened.load_checkpoint()
    assert state is not None
    assert state["stage"] == FINISHED
    names = ("evaluations", "mending_evaluations", "inputs", "longest_run", "planned_steps")
    found["checkpoint"] = [state[name] for name in names]
    for name in LOGS:
        if planned and name == "cloning":
            continue
        with (folder / f"{name}.csv").open(newline="") as file:
            found[name] = [without_times(row) for row in csv.DictReader(file)]
        assert found[name] == [
            {key: row.get(key, "") for key in found[name][0]} for row in opened.rows[name]
        ]
    found["teaching set"] = Demonstrations.open(folder / TEACHING_SET, verify=True).content_digest()
    own_operations = Demonstrations.open(folder / OWN_OPERATIONS, verify=True)
    found["own operations"] = own_operations.content_digest()
    found["certificate"] = json.loads((folder / "certificate.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    for timed in (summary, *summary["rounds"], *summary["mending_rounds"]):
        del timed["seconds"]
    found["summary"] = summary
    report = (folder / "report.md").read_text().splitlines()
    found["report"] = [line for line in report if "Seconds:" not in line]
    found["files"] = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if "tfevents" not in path.name
    )
    return found


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [name for name in expected if found[name] != expected[name]]


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a run folder in memory."""
    with folder_in_memory(tmp_path / "runs") as folder:
        yield folder / "run"


def resume(job: Job, folder: Path) -> int:
    """Resume a run, or start it again if it was killed before it wrote its settings."""
    if (folder / "config.json").is_file():
        return in_child(lambda: job("--resume", folder))
    assert in_child(lambda: job("--resume", folder)) == EXIT_MISTAKE
    return in_child(lambda: job("--run-folder", folder))


def resumed_differently(
    job: Job, states: Iterable[Path], whole: Path, expected: dict[str, Any]
) -> list[Any]:
    """Resume from each state, where the run was; return those that end otherwise, and how."""
    wrong = []
    for state in states:
        shutil.rmtree(whole)
        shutil.copytree(state, whole)
        status = resume(job, whole)
        ended = status in ENDED
        different = differences(results(whole), expected) if ended else ["status"]
        if different:
            wrong.append((state.name, status, different))
    return wrong


@pytest.mark.parametrize(
    ("seconds", "tried", "words"),
    [
        pytest.param(0.0, 35, [], id="every checkpoint is written"),
        pytest.param(1e9, 10, [], id="checkpoints of evaluations alone"),
        pytest.param(0.0, 10, PLANNED, id="planning instead of demonstrations"),
    ],
)
def test_a_run_killed_at_any_file_operation_resumes_to_the_same_result(
    job: Job,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    tried: int,
    words: list[Any],
) -> None:
    monkeypatch.setattr(training_module, "CHECKPOINT_SECONDS", seconds)
    this_job = functools.partial(job, *words)
    states, operations = folder_states(
        lambda: this_job("--run-folder", whole), whole, tmp_path / "states"
    )
    assert len(states) > 80
    expected = results(whole)
    assert [len(each) for each in expected["checkpoint"][:2]] == [5, 2]
    assert (expected["checkpoint"][-1] > 0) == bool(words)
    taken = spread(states, tried)
    wrong = resumed_differently(this_job, taken, whole, expected)
    print(
        f"{operations} file operations, {len(states)} states, {len(taken)} resumed, "
        f"{len(wrong)} not equal"
    )
    assert wrong == []


@pytest.mark.parametrize(
    ("number", "every"), [(errno.ENOSPC, 11), (errno.EIO, 29), (errno.EDQUOT, 29)]
)
def test_a_failing_disk_is_one_line_and_the_run_resumes_to_the_same_result(
    job: Job,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    every: int,
) -> None:
    if number == errno.ENOSPC:
        monkeypatch.setattr(training_module, "CHECKPOINT_SECONDS", 0.0)
    for at in (1, 2):
        new = tmp_path / f"new-{at}"
        status = failing_at(functools.partial(job, "--run-folder", new), new, at, number)
        # A folder that could not be made because it is there does no harm.
        assert status in (*ENDED, EXIT_MISTAKE)
    failed = failing_states(
        lambda: job("--run-folder", whole),
        whole,
        tmp_path / "failed",
        number,
        first=3,
        every=1 if EVERYWHERE else every,
    )
    assert len(failed) > 250 // every
    expected = results(whole)
    # filelock refuses a lock in whose making this test forked; a real run does not fork there.
    failed = [each for each in failed if "was inherited across fork" not in each.error]
    # What fails while temporary files are removed does no harm.
    wrong: list[Any] = [
        each
        for each in failed
        if each.error.count("\n") != (each.status != 0) or each.status not in (*ENDED, EXIT_MISTAKE)
    ]
    states = list(dict.fromkeys(each.folder for each in failed))
    # The states after the other errors are the same.
    taken = spread(states, 20) if number == errno.ENOSPC else []
    wrong += resumed_differently(job, taken, whole, expected)
    print(
        f"{len(failed)} failed operations, {len(states)} states, {len(taken)} resumed, "
        f"{len(wrong)} wrong",
        *(getattr(each, "error", each) for each in wrong),
        sep="\n",
    )
    assert wrong == []
