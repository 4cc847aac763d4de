"""Ctrl-C as a question that a job answers where it can save, not in the middle of an update."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from abacus.sb3 import AbacusVecEnv
from oracle.exact.certificate import Certificate, certify
from oracle.files import atomic_write_text
from pipelines.learning.cloning import Cloning, EpochScore
from pipelines.learning.cloning_data import CloningSet, cloning_sets
from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.policy_files import load_policy, load_run, save_policy
from pipelines.learning.ppo import AbacusPPO, load_ppo_state, ppo_state
from pipelines.learning.run_folder import RunFolder, file_logger
from pipelines.learning.settings import Settings
from pipelines.scoring.scores import Evaluation, Evaluator, observations_of


class Interruption:
    """While it is entered, the first Ctrl-C is remembered and the second one is immediate."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


#: Seconds of work that a kill may lose.
CHECKPOINT_SECONDS = 10.0
CLONING, TUNING, DONE = "cloning", "ppo", "done"
#: PPO's time by the wall and by the processor, of the whole run, over all its parts.
CLOCKS: dict[str, Callable[[], float]] = {
    "ppo": time.perf_counter,
    "ppo_processor": time.process_time,
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    clone: Evaluation | None
    best: Evaluation
    last: Evaluation
    evaluations: list[Evaluation]
    cloning_curve: list[EpochScore]
    seconds: dict[str, float]
    longest_training_run: int


class Training:
    """One run."""

    def __init__(self, folder: RunFolder, say: Say, *, progress: bool = False) -> None:
        self.folder, self.say, self.progress = folder, say, progress
        self.settings = folder.settings
        torch.set_num_threads(self.settings.threads)
        self.world = self.settings.world()
        self.saved = folder.load_checkpoint() or {"stage": CLONING}
        self.evaluations = [Evaluation(**values) for values in self.saved.get("evaluations", [])]
        self.seconds: dict[str, float] = dict(self.saved.get("seconds", {}))
        self.curve: list[EpochScore] = [
            EpochScore(**values) for values in self.saved.get("curve", [])
        ]
        self.train_set: CloningSet | None = None
        self.model = self._new_model()
        self.interruption = Interruption()
        self._evaluator: Evaluator | None = None
        self._saved_at = time.monotonic()

    @property
    def policy(self) -> AbacusPolicy:
        return self.model.policy

    @property
    def evaluator(self) -> Evaluator:
        """Made when first needed: it may have to enumerate the complete set."""
        if self._evaluator is None:
            self._evaluator = Evaluator(
                self.world,
                self.settings.eval_episodes,
                with_set=self.settings.network == "compact",
            )
        return self._evaluator

    def _new_model(self) -> AbacusPPO:
        settings = self.settings
        abaci = settings.n_envs if settings.n_timesteps else 1
        return AbacusPPO(
            AbacusPolicy,
            AbacusVecEnv(abaci, config=self.world),
            settings.ppo(),
            seed=settings.seed,
            device=settings.device,
            policy_kwargs={"network": settings.network},
        )

    def run(self) -> Outcome:
        """Does what is left of the run."""
        with self.interruption:
            if self.saved["stage"] == CLONING:
                self._first_stage()
                self._save(TUNING)
            if self.settings.n_timesteps and self.saved["stage"] == TUNING:
                self._tune()
            self._save(DONE)
        clone = self.evaluations[0]
        return Outcome(
            clone=clone if self._starts_from_something else None,
            best=max(self.evaluations, key=lambda evaluation: evaluation.rank),
            last=self.evaluations[-1],
            evaluations=self.evaluations,
            cloning_curve=self.curve,
            seconds=self.seconds,
            longest_training_run=self._longest_run,
        )

    @property
    def _longest_run(self) -> int:
        """Of this run, also of parts of it that other processes did."""
        return max(self.model.longest_run, int(self.saved.get("longest_run", 0)))

    @property
    def _starts_from_something(self) -> bool:
        return bool(self.settings.demo_operations) or self.settings.start_from is not None

    def _first_stage(self) -> None:
        """Clones, or takes the policy to start from; then evaluates it, before anything moves."""
        settings, started = self.settings, time.perf_counter()
        if settings.start_from is not None:
            start = load_run(settings.start_from, trust=settings.trust)
            self.policy.load_state_dict(start.state_dict())
        elif settings.demo_operations:
            self._clone()
        self.seconds["cloning"] = self.seconds.get("cloning", 0.0) + time.perf_counter() - started
        self._evaluate(0)
        if self._starts_from_something:
            self._publish("clone", self.evaluations[0])
        self._publish("best", self.evaluations[0])
        self._publish("last", self.evaluations[0])

    def _clone(self) -> None:
        settings, state = self.settings, self.saved.get("cloning")
        self.train_set, held_out = cloning_sets(settings, self.say)
        done = len(state["curve"]) if state else None
        cloning = Cloning(
            self.policy,
            self.train_set,
            held_out,
            settings.cloning(),
            settings.seed,
            file_logger(self.folder.path, "cloning", done),
        )
        if state:
            cloning.load_state(state)
        with tqdm(
            total=settings.epochs,
            initial=cloning.epochs_done,
            desc="cloning",
            unit="epoch",
            disable=not self.progress,
        ) as bar:

            def after_epoch(score: EpochScore) -> None:
                bar.update()
                bar.set_postfix(held_out=f"{score.held_out_accuracy:.4%}")
                self._maybe_save(CLONING, lambda: {"cloning": cloning.state()})

            self.curve = cloning.run(after_epoch)
        last = min(self.curve, key=lambda score: score.held_out_loss)
        self.say(
            f"cloned in {len(self.curve)} epochs: held-out accuracy {last.held_out_accuracy:.4%}, "
            f"loss {last.held_out_loss:.6f} in epoch {last.epoch}"
        )

    def _tune(self) -> None:
        settings, model, state = self.settings, self.model, self.saved.get("ppo")
        total = settings.n_timesteps or 0
        torch.manual_seed(settings.seed)
        if state:
            load_ppo_state(model, state)
        else:
            model.policy.load_state_dict(load_policy(self.folder.path / "last").state_dict())
            if settings.kl_weight:
                model.freeze_clone()
        if settings.cloning_weight:
            self.train_set = self.train_set or cloning_sets(settings, self.say)[0]
            model.demonstrations = self.train_set
        done = model.num_timesteps
        model.set_logger(file_logger(self.folder.path, "progress", done if state else None))
        if done < total:
            model.learn(
                total - done,
                callback=_Watch(self, total),
                reset_num_timesteps=not state,
            )

    def after_rollout(self, *, final: bool = False) -> None:
        """Between rollouts: evaluates if it is time to, saves if it is time to."""
        step, last = self.model.num_timesteps, self.evaluations[-1].step
        if step > last and (
            final or step // self.settings.eval_freq > last // self.settings.eval_freq
        ):
            self._evaluate(step)
            self._publish("last", self.evaluations[-1])
            if self.evaluations[-1] is max(self.evaluations, key=lambda e: e.rank):
                self._publish("best", self.evaluations[-1])
            self._save(TUNING, {"ppo": ppo_state(self.model)})
        else:
            self._maybe_save(TUNING, lambda: {"ppo": ppo_state(self.model)})

    def _evaluate(self, step: int) -> None:
        evaluation = self.evaluator(self.policy, step)
        self.evaluations.append(evaluation)
        before = self.evaluations[-2].step if step else None
        logger = file_logger(self.folder.path, "evaluations", before)
        for name, value in evaluation.record().items():
            logger.record(name, value)
        for name in CLOCKS:
            logger.record(f"time/{name}_seconds", round(self.seconds.get(name, 0.0), 1))
        logger.dump(step)
        logger.close()
        self.say(shown_evaluation(evaluation))
        clone = self.evaluations[0]
        if self._starts_from_something and evaluation.accuracy < clone.accuracy:
            self.say(
                f"below the clone: {evaluation.accuracy:.2%} of operations, the clone solved "
                f"{clone.accuracy:.2%}"
            )

    def _publish(self, name: str, evaluation: Evaluation) -> None:
        about = {"step": evaluation.step, "evaluation": evaluation.to_dict()}
        save_policy(self.policy, self.folder.path / name, about)

    def _maybe_save(self, stage: str, more: Callable[[], dict[str, Any]]) -> None:
        """Saves if the last time was long ago or the user wants to leave."""
        if self.interruption.asked or time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self._save(stage, more())
        if self.interruption.asked:
            raise KeyboardInterrupt

    def _save(self, stage: str, more: dict[str, Any] | None = None) -> None:
        self.saved = {
            "stage": stage,
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
            "curve": [vars(score) for score in self.curve],
            "seconds": self.seconds,
            "longest_run": self._longest_run,
            **(more or {}),
        }
        self.folder.save_checkpoint(self.saved)
        self._saved_at = time.monotonic()


class _Watch(BaseCallback):
    """Calls back between rollouts, and draws the progress bar."""

    def __init__(self, training: Training, total: int) -> None:
        super().__init__()
        self.training = training
        self.total = total

    def _on_training_start(self) -> None:
        self._started = {name: clock() for name, clock in CLOCKS.items()}
        self._spent = {name: self.training.seconds.get(name, 0.0) for name in CLOCKS}
        self.bar = tqdm(
            total=self.total,
            initial=self.model.num_timesteps,
            desc="ppo",
            unit="step",
            unit_scale=True,
            disable=not self.training.progress,
        )

    def _on_rollout_start(self) -> None:
        # The first time there was no update yet; afterwards this is just after one.
        if self.model.num_timesteps:
            self._note_time()
            self.training.after_rollout()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model = self.training.model
        self._note_time()
        for name in CLOCKS:
            model.logger.record(f"time/{name}_seconds", round(self.training.seconds[name], 1))
        self.bar.update(model.settings.rollout)
        self.bar.set_postfix(
            accuracy=f"{model.rollout_buffer.counts.accuracy:.2%}", longest=model.longest_run
        )

    def _on_training_end(self) -> None:
        self._note_time()
        self.bar.close()
        self.training.after_rollout(final=True)

    def _note_time(self) -> None:
        for name, clock in CLOCKS.items():
            self.training.seconds[name] = self._spent[name] + clock() - self._started[name]


def shown_evaluation(evaluation: Evaluation) -> str:
    """An evaluation as a line."""
    wrong = "" if evaluation.wrong is None else f", {evaluation.wrong:,} observations wrong"
    failures = ", ".join(f"{kind} {n}" for kind, n in evaluation.failures.items() if n) or "none"
    return (
        f"step {evaluation.step:,}: accuracy {evaluation.accuracy:.2%}{wrong}, error rate at 16 "
        f"digits {evaluation.long_error_rate:.2%}, failures: {failures}"
    )


#: Of episodes that no policy was chosen by.
REPORT_SEED = 3_000_017
HEADERS = ("", "accuracy", "error rate at 16 digits", "observations wrong", "certificate")


def measured_anew(folder: Path, settings: Settings, outcome: Outcome) -> Outcome:
    """The outcome with the policies' figures from other episodes than those it was chosen by."""
    evaluator = Evaluator(
        settings.world(),
        settings.eval_episodes,
        with_set=outcome.best.wrong is not None,
        seed=REPORT_SEED,
    )
    best = evaluator(load_policy(folder / "best"), outcome.best.step)
    same = outcome.last is outcome.best
    last = best if same else evaluator(load_policy(folder / "last"), outcome.last.step)
    clone = None
    if outcome.clone is not None:
        same = outcome.clone is outcome.best
        clone = best if same else evaluator(load_policy(folder / "clone"), 0)
    return replace(outcome, clone=clone, best=best, last=last)


def certify_best(folder: Path, settings: Settings, outcome: Outcome) -> Certificate | None:
    """Certifies the best policy and writes the certificate; None where there is no set to ask.

    There is none of one operation alone: what is seen during it holds resets after the other, which
    a policy of one operation need not know.
    """
    if outcome.best.wrong is None or settings.operations != "both":
        return None
    policy = load_policy(folder / "best")
    certificate = certify(policy, observations_of(settings.world()))
    atomic_write_text(folder / "certificate.json", certificate.to_json() + "\n")
    about = {
        "step": outcome.best.step,
        "evaluation": outcome.best.to_dict(),
        "exact": certificate.exact,
        "settings": json.loads(settings.to_json()),
    }
    save_policy(policy, folder / "best", about)
    return certificate


def summary_rows(outcome: Outcome, certificate: Certificate | None) -> list[tuple[str, ...]]:
    """The table's rows: after cloning, after PPO, and the last policy where another was better."""
    rows = []
    if outcome.clone is not None:
        rows.append(_row("after cloning", outcome.clone, certificate, outcome))
    if outcome.last.step:
        rows.append(_row("after PPO (best)", outcome.best, certificate, outcome))
        if outcome.last is not outcome.best:
            rows.append(_row("after PPO (last)", outcome.last, certificate, outcome))
    return rows


def _row(
    name: str, evaluation: Evaluation, certificate: Certificate | None, outcome: Outcome
) -> tuple[str, ...]:
    wrong = "not asked" if evaluation.wrong is None else f"{evaluation.wrong:,}"
    verdict = "no"
    if certificate is None:
        verdict = "not asked"
    elif evaluation is outcome.best and certificate.exact:
        verdict = "exact"
    elif evaluation.wrong == 0:
        verdict = "exact (not the policy kept)"
    return (
        name,
        f"{evaluation.accuracy:.2%}",
        f"{evaluation.long_error_rate:.2%}",
        wrong,
        verdict,
    )


def text_table(rows: list[tuple[str, ...]], headers: tuple[str, ...] = HEADERS) -> str:
    """Columns under their headers."""
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write_report(
    folder: Path, settings: Settings, outcome: Outcome, certificate: Certificate | None
) -> None:
    """report.md for people, summary.json for programs."""
    rows = summary_rows(outcome, certificate)
    lines = [
        "# Run report",
        "",
        f"Command: `{(folder / 'command.txt').read_text().strip()}`",
        "",
        "| " + " | ".join(HEADERS) + " |",
        "|" + "---|" * len(HEADERS),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        *_verdict(settings, outcome, certificate),
        "",
        f"Longest run of operations solved in a training episode: {outcome.longest_training_run}. "
        f"Seconds: {', '.join(f'{name} {value:.0f}' for name, value in outcome.seconds.items())}.",
        "",
    ]
    atomic_write_text(folder / "report.md", "\n".join(lines))
    summary = {
        "settings": json.loads(settings.to_json()),
        "clone": None if outcome.clone is None else outcome.clone.to_dict(),
        "best": outcome.best.to_dict(),
        "last": outcome.last.to_dict(),
        "evaluations": [evaluation.to_dict() for evaluation in outcome.evaluations],
        "exact": None if certificate is None else certificate.exact,
        "longest_training_run": outcome.longest_training_run,
        "seconds": outcome.seconds,
    }
    atomic_write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


def _verdict(settings: Settings, outcome: Outcome, certificate: Certificate | None) -> list[str]:
    lines = []
    if outcome.clone is not None and outcome.last.accuracy < outcome.clone.accuracy:
        lines.append(
            f"PPO ended below the clone ({outcome.last.accuracy:.2%} against "
            f"{outcome.clone.accuracy:.2%}); the policy kept as best is not below it."
        )
    if settings.operations != "both":
        lines.append(
            "No certificate is given for one operation alone: the observations counted as wrong "
            "hold resets after the other one, which this policy never meets."
        )
    elif certificate is None:
        lines.append("No certificate was asked for: the complete set is too large here.")
    elif certificate.exact:
        lines.append(
            f"Exact at every length: the policy agrees with the teacher on all "
            f"{certificate.observations:,} observations, by a margin of "
            f"{certificate.smallest_margin:.3g}."
        )
    else:
        lines.append(
            f"Not exact: wrong on {certificate.disagreements:,} of "
            f"{certificate.observations:,} observations."
        )
        if certificate.counterexamples:
            first = certificate.counterexamples[0]
            lines.append(
                f"The nearest mistake: from {first.start}, {first.expression} on "
                f"{first.columns} columns, step {first.step}: {first.policy_action} where the "
                f"teacher does {first.teacher_action}."
            )
    return lines
