"""Nonsense on the command line: every option of every command, found by introspection.

A call is refused in one line with status 2, or it is accepted. Calls that the parser accepts are
made in a forked process with limits of memory and time; a call that still runs at the end of its
time was accepted. A traceback, a crash or any other status fails.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import io
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import distributed  # noqa: F401 - imported once here, not in every call
import pytest
import torch
from tqdm import tqdm

import oracle
import pipelines
from pipelines.job.command_line import EXIT_MISTAKE, parse, parser_for, run
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import save_policy
from tests.pipelines.small_world import shorten_mending
from tests.pipelines.test_study import grid

ROOT = Path(__file__).resolve().parents[2]
#: Limits of a call: seconds of computing, in which those of a tiny call end but for trainings, and
#: of waiting, bytes of memory beyond the present ones, and bytes of a file.
COMPUTING, TRAINING, WAITING, MEMORY, FILE_SIZE = 0.3, 0.1, 2.0, 2 * 2**30, 2**28
#: The status of an error that is not one line.
TRACEBACK = 99

#: The smallest valid call of each command.
CALLS: dict[str, str] = {
    "audit": "--base 2 --frames 1 --steps 100 --columns 3 --max-digits 1 --variants before "
    "--output out",
    "bc_then_ppo": "--preset alone --plan-exercises 6 --cloning-updates 2 --n-timesteps 32 "
    "--mend-rounds 1 --mend-exercises 2 --n-envs 4 --n-steps 4 --batch-size 8 "
    "--base 2 --columns 4 --max-digits 2 --frames 2 --eval-episodes 2 --run-folder out",
    "certify": "random --base 2 --frames 1 --json out",
    "evaluate": "random --base 2 --frames 1 --digits 1 --n-operations 5 --sets none "
    "--n-episodes 1 --run-limit 2 --output out",
    "export": "sample.h5 --to d4rl --output out --n-operations 5",
    "generate_demos": "--n-operations 10 --operations-per-episode 5 --workers 1 --output out",
    "inspect_demos": "sample.h5",
    "mend": "run --mend-rounds 1 --mend-exercises 2 --eval-episodes 2 --run-folder out",
    "play": "1+1 teacher --plain",
    "publish": "run --into out",
    "study": "--grid grid.json --store out --work-folder work --status",
    "upgrade_demos": "old.h5 --output out",
}
#: Calls of options that the call above does not use.
OTHER_CALLS: dict[tuple[str, str], str] = {
    ("bc_then_ppo", "demonstrations"): "--demo-operations 5 --n-timesteps 0 --run-folder out",
    ("bc_then_ppo", "demo_seed"): "--demo-operations 5 --n-timesteps 0 --run-folder out",
    ("bc_then_ppo", "log_folder"): "--preset alone --plan-exercises 0 --n-timesteps 32",
    ("bc_then_ppo", "resume"): "",
    ("certify", "seed"): "random --base 2 --frames 1",
    ("evaluate", "logs"): CALLS["evaluate"] + " --no-certificate",
    ("evaluate", "sets"): CALLS["evaluate"].replace("--sets none", ""),
    ("evaluate", "set_digits"): CALLS["evaluate"].replace("--sets none", "--n-set-operations 2"),
    ("export", "author"): "sample.h5 --to parquet --output out --n-operations 5",
    ("export", "author_email"): "sample.h5 --to minari --output out --n-operations 5",
    ("export", "code_permalink"): "sample.h5 --to parquet --output out --n-operations 5",
    ("export", "dataset_id"): "sample.h5 --to minari --output out --n-operations 5",
    ("play", "policy"): "1+1",
    ("play", "html_policies"): "1+1 --html out",
    ("play", "trust"): "1+1 empty.zip --plain",
    ("play", "html"): "1+1",
    ("play", "frame"): "1+1 teacher --svg out",
    ("play", "width"): "1+1 teacher --gif out",
    ("study", "report_only"): "--grid grid.json --store out --work-folder work --status",
    ("study", "scheduler"): "--grid grid.json --store out --work-folder work",
}
NUMBERS = (
    "inf", "-inf", "nan", "1e400", "-1", "0", "1e18", str(2**64), "9" * 5000, "1.5", "0x10",
)  # fmt: skip
TEXTS = (
    "", "\0", "a\nb", "a" * 100_000, "\udcff", "..", "a:b", "--", "<b>%s{}", "tcp://", "∞",
)  # fmt: skip
#: Files and folders of `prepared`, and links to devices.
PATHS = (
    "folder", "empty", "empty.zip", "deep.json", "wrong.json", "noise", "loop", "deep", "wrong",
    "missing/missing", "empty/under-a-file", "null", "zero", "full",
)  # fmt: skip


def commands() -> Iterator[str]:
    """Yield all commands but `teach`, which is `bc_then_ppo` with another preset."""
    for module in pkgutil.iter_modules(pipelines.__path__):
        if not module.ispkg and module.name not in ("teach", "__main__"):
            yield module.name


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import what commands import on use once here, not within the time of every call."""
    for package in (oracle, pipelines):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def module_of(command: str) -> ModuleType:
    return importlib.import_module(f"pipelines.{command}")


@dataclass(frozen=True)
class Outcome:
    """The end of a call: its status, or minus the signal that ended it, and its standard error."""

    status: int
    errors: str

    @property
    def accepted(self) -> bool:
        return self.status in (0, 1, -signal.SIGPROF, -signal.SIGALRM)

    @property
    def clean(self) -> bool:
        if self.accepted:
            return "Traceback" not in self.errors
        return self.status == EXIT_MISTAKE and self.errors.count("\n") == 1


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Make a folder with valid and nonsensical files."""
    folder = tmp_path
    shutil.copy(ROOT / "datasets" / "sample.h5", folder)
    old = ROOT / "tests" / "oracle" / "demos" / "old_versions" / "version_1.h5.gz"
    (folder / "old.h5").write_bytes(gzip.decompress(old.read_bytes()))
    # A pool of threads does not survive a fork.
    torch.set_num_threads(1)
    save_policy(new_policy("compact", 2, 1), folder / "run" / "best")
    (folder / "grid.json").write_text(json.dumps(grid()))
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "empty.zip").write_bytes(b"PK\5\6" + bytes(18))
    deep, wrong = "[" * 100_000, '{"format": [1], "version": {}, "base": "x", "seed": null}'
    (folder / "deep.json").write_text(deep)
    (folder / "wrong.json").write_text(wrong)
    (folder / "noise").write_bytes(bytes(range(256)) * 4)
    (folder / "loop").symlink_to("loop")
    for device in ("null", "zero", "full"):
        (folder / device).symlink_to(f"/dev/{device}")
    for name, content in (("deep", deep), ("wrong", wrong)):
        (folder / name / "best").mkdir(parents=True)
        for file in ("config.json", "policy.json", "best/policy.json", "records.jsonl"):
            (folder / name / file).write_text(content)
    return folder


def calls_of(command: str) -> Iterator[list[str]]:
    """Yield the calls of a command with one nonsensical option."""
    module = module_of(command)
    for action in parser_for(module.Options, "", module.EXAMPLE)._actions:
        if action.dest == "help":
            continue
        words = OTHER_CALLS.get((command, action.dest), CALLS[command]).split()
        if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
            for flag in action.option_strings:
                yield [*words, flag]
                yield [*words, f"{flag}=x"]
            continue
        numeric = action.type not in (str, Path)
        for value in (*(NUMBERS if numeric else ("0",)), *TEXTS, *PATHS):
            if action.option_strings:
                yield [*words, f"{action.option_strings[0]}={value}"]
            else:
                yield [value, *words[1:]]


def refusal(module: ModuleType, words: list[str]) -> Outcome | None:
    """Return the outcome of a call that the parser refuses; None if it does not."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            parse(module.Options, "", module.EXAMPLE, words)
    except SystemExit as stop:
        return Outcome(int(stop.code or 0), errors.getvalue())
    except Exception:  # noqa: BLE001 - a check of the options; the call below shows its message
        return None
    return None


def made(module: ModuleType, calls: list[list[str]], folder: Path) -> Iterator[Outcome]:
    """Make calls in forked processes; each process ends with a call that it does not refuse."""
    errors = folder / "stderr"
    while calls:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            _make_calls(module, calls, folder, errors, writing)
        os.close(writing)
        with os.fdopen(reading) as lines:
            outcomes = [Outcome(**json.loads(line)) for line in lines]
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code != 0:
            outcomes.append(Outcome(code, errors.read_text(errors="replace")))
        yield from outcomes
        calls = calls[len(outcomes) :]


def _make_calls(
    module: ModuleType, calls: list[list[str]], folder: Path, errors: Path, writing: int
) -> None:
    # The lock of tqdm is shared between processes, and a killed process would keep it.
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(os.open(errors, os.O_RDWR | os.O_CREAT), 2)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace")
    used = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for words in calls:
        remove_results(folder)
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)
        trains = module.__name__.endswith(("bc_then_ppo", "mend"))
        signal.setitimer(signal.ITIMER_PROF, TRAINING if trains else COMPUTING)
        signal.setitimer(signal.ITIMER_REAL, WAITING)
        status = TRACEBACK
        try:
            status = run(module.main, module.Options, module.__doc__, module.EXAMPLE, words)
        except SystemExit as stop:
            status = int(stop.code or 0)
        except BaseException:  # noqa: BLE001 - whatever it is, it is the outcome of this call
            traceback.print_exc()
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stderr.flush()
        outcome = {"status": status, "errors": errors.read_text(errors="replace")}
        os.write(writing, json.dumps(outcome).encode() + b"\n")
        if status != EXIT_MISTAKE:
            break
    os._exit(0)


def remove_results(folder: Path) -> None:
    for name in ("out", "work", "runs", "datasets"):
        shutil.rmtree(folder / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def test_every_command_has_a_call() -> None:
    assert set(CALLS) == set(commands())


@pytest.mark.parametrize("command", CALLS)
def test_nonsense_is_one_line(
    command: str,
    prepared: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = module_of(command)
    monkeypatch.chdir(prepared)
    monkeypatch.setattr("pipelines.experiments.engines.PATIENCE", 0.2)
    shorten_mending(monkeypatch, tried=10, updates=2)
    remove_results(prepared)
    # Compiled functions and modules are loaded here, once for all calls.
    tiny = CALLS[command].split()
    assert run(module.main, module.Options, module.__doc__, module.EXAMPLE, tiny) in (0, 1)
    capsys.readouterr()
    calls = list(calls_of(command))
    outcomes = [refusal(module, words) for words in calls]
    parsed = [words for words, outcome in zip(calls, outcomes, strict=True) if outcome is None]
    first, *others = made(module, [tiny, *parsed], prepared)
    assert first.accepted, first.errors
    remaining = iter(others)
    results = [outcome or next(remaining) for outcome in outcomes]
    failed = [
        f"{words[-1][:60]!r} of {words[0][:60]!r}...: {outcome.status}\n{outcome.errors[-700:]}"
        for words, outcome in zip(calls, results, strict=True)
        if not outcome.clean
    ]
    accepted = sum(outcome.accepted for outcome in results)
    print(f"{command}: {len(calls)} calls, {accepted} accepted, {len(failed)} failed")
    assert not failed, "\n".join(failed)
