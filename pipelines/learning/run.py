"""A training run: clone or plan, fine-tune with PPO, mend or teach, evaluate, save, resume.

The checkpoint is the only state of a run. It is written before anything that is derived from it:
policies and logs are written from it again on resume, so that a run that was killed at any moment
resumes to the same result. If what the run reads has changed in the meantime, it is refused.
"""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from abacus.checks import check_choice
from abacus.sb3 import AbacusVecEnv
from abacus.tasks import Task
from oracle.exact.certificate import digest_of
from oracle.exact.own_runs import EXACT
from pipelines.learning.cloning import Cloning, CloningScore, copy_weights
from pipelines.learning.cloning_data import (
    CloningSet,
    Log,
    load_cloning_set,
    open_demonstrations,
)
from pipelines.learning.exercises import Exercise, exercises_for_ppo
from pipelines.learning.mending import Mending, MendingRound
from pipelines.learning.planning import planned_actions
from pipelines.learning.policy import AbacusPolicy, new_policy, prepare_torch
from pipelines.learning.policy_files import SAVED_POLICIES, load_run, save_policy
from pipelines.learning.ppo import AbacusPPO, load_ppo_state, ppo_state
from pipelines.learning.progress import RunBar, rounds_expected, steps_made
from pipelines.learning.run_folder import RunFolder
from pipelines.learning.teaching import Round, Teaching
from pipelines.scoring.scores import Evaluation, Evaluator, best_of, observations_of

#: Seconds of work that a killed run loses at most, beside an epoch, a rollout, planning or a round
#: of mending.
CHECKPOINT_SECONDS = 10.0
#: Stages of a run, as checkpoints name them: `trained` lacks the reports alone.
STAGES = CLONING, TUNING, MENDING, TEACHING, TRAINED, FINISHED = (
    "cloning",
    "ppo",
    "mending",
    "teaching",
    "trained",
    "finished",
)
#: The part of `cloning` in which exercises are planned, as the bar names it.
PLANNING = "planning"
#: Times of PPO over all parts of a resumed run: wall clock and processor time.
CLOCKS: dict[str, Callable[[], float]] = {
    "ppo": time.perf_counter,
    "ppo_processor": time.process_time,
}


class Interruption:
    """Context in which the first Ctrl-C sets `requested`; the second interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._handler: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@dataclass(frozen=True)
class TrainingResult:
    """Evaluations and times of a run; `clone` is None without a policy to start from.

    `best` and `last` are those of cloning and PPO; `mended` and `taught` are None without these
    stages.
    """

    clone: Evaluation | None
    best: Evaluation
    last: Evaluation
    evaluations: list[Evaluation]
    #: Processor time of PPO at the start of each evaluation.
    seconds_at_evaluation: list[float]
    seconds: dict[str, float]
    longest_training_run: int
    #: Environment steps of planning.
    planned_steps: int = 0
    #: Evaluations of the policies with which rounds of mending began, at the steps of all stages
    #: until then, and the processor time of all stages at each.
    mending_evaluations: list[Evaluation] = field(default_factory=list)
    seconds_at_mending_evaluation: list[float] = field(default_factory=list)
    #: Answers of the teacher that were cloned before PPO.
    cloned_answers: int = 0
    mended: Evaluation | None = None
    mending_rounds: tuple[MendingRound, ...] = ()
    practised: tuple[Exercise, ...] = ()
    taught: Evaluation | None = None
    #: Rounds of teaching, the first one before it, and the tasks that were asked for.
    rounds: tuple[Round, ...] = ()
    tasks: tuple[Task, ...] = ()
    #: How the policy of the last update of PPO collapsed; None if it did not.
    collapse: str | None = None
    #: Whether nothing but the reward was learned from.
    alone: bool = False

    @property
    def mending_steps(self) -> int:
        """Environment steps of mending."""
        return sum(each.steps for each in self.mending_rounds)

    @property
    def kept(self) -> Evaluation:
        """The evaluation of the policy that the run keeps as its best."""
        if self.mended is not None and self.mending_rounds[-1].verdict == EXACT:
            return self.mended
        found = [each for each in (self.best, self.mended, self.taught) if each is not None]
        return best_of(found, self.alone)


class Training:
    """One run, new or resumed from the checkpoint in its folder.

    `trust` allows a zip as the policy to start from.
    """

    def __init__(
        self, folder: RunFolder, log: Log, *, progress: bool = False, trust: bool = False
    ) -> None:
        self.folder, self.log, self.trust = folder, log, trust
        self.settings = folder.settings
        self.bar = RunBar(self.settings, shown=progress)
        prepare_torch(self.settings.threads)
        saved = folder.load_checkpoint()
        self.saved: dict[str, Any] = {"stage": CLONING} if saved is None else saved
        with folder.reading_checkpoint():
            self._check_stage()
            self.evaluations = [Evaluation(**each) for each in self.saved.get("evaluations", [])]
            self.seconds: dict[str, float] = dict(self.saved.get("seconds", {}))
            self.seconds_at_evaluation = list(self.saved.get("seconds_at_evaluation", []))
            self.planned_steps: int = self.saved.get("planned_steps", 0)
            self.mending_evaluations = [
                Evaluation(**each) for each in self.saved.get("mending_evaluations", [])
            ]
            self.seconds_at_mending_evaluation = list(
                self.saved.get("seconds_at_mending_evaluation", [])
            )
            #: Weights of each saved policy, and the number of its evaluation.
            self.policies: dict[str, dict[str, Any]] = dict(self.saved.get("policies", {}))
            self.rounds = [Round(**each) for each in self.saved.get("rounds", [])]
            self.mending_rounds = [
                MendingRound(**each) for each in self.saved.get("mending_rounds", [])
            ]
            #: Exercises that were practised in mending.
            self.practised = [Exercise.parse(each) for each in self.saved.get("practised", [])]
            #: Answers of the teacher that were cloned before PPO.
            self.cloned_answers = int(self.saved.get("cloned_answers", 0))
            #: Tasks that were taught.
            self.tasks = [Task.parse(each) for each in self.saved.get("tasks", [])]
            #: Digests of what the run reads.
            self.inputs: dict[str, str] = dict(self.saved.get("inputs", {}))
        self.cloning_set: CloningSet | None = None
        self.model = self._new_model()
        self.interruption = Interruption()
        self._evaluator: Evaluator | None = None
        self._saved_at = time.monotonic()
        #: Policies whose folders this process has written.
        self._written: dict[str, dict[str, Any]] = {}

    def _check_stage(self) -> None:
        stage = check_choice("stage", self.saved["stage"], STAGES)
        if stage != CLONING and not (self.saved["evaluations"] and self.saved["policies"]["last"]):
            raise ValueError("it has no policy")

    @property
    def policy(self) -> AbacusPolicy:
        return self.model.policy

    @property
    def evaluator(self) -> Evaluator:
        """Made on first use, because it may enumerate the complete set."""
        if self._evaluator is None:
            self._evaluator = Evaluator(
                self.settings.world,
                self.settings.eval_episodes,
                with_set=not self.policy.network.slow,
            )
        return self._evaluator

    def _new_model(self) -> AbacusPPO:
        settings = self.settings
        abaci = settings.ppo.n_envs if settings.n_timesteps else 1
        try:
            environments = AbacusVecEnv(abaci, config=settings.world)
            if settings.n_timesteps and settings.ppo.exercise_share:
                # The same list in every process of a resumed run, whose abaci refer to it.
                tasks = exercises_for_ppo(settings.world, settings.seed)
                environments.batch.set_tasks(tasks, share=settings.ppo.exercise_share)
            return AbacusPPO(
                AbacusPolicy,
                environments,
                settings.ppo,
                seed=settings.seed,
                device=settings.device,
                policy_kwargs={"network": settings.network},
            )
        except (MemoryError, OverflowError, RuntimeError) as error:
            raise ValueError(
                f"n_envs={settings.ppo.n_envs} and n_steps={settings.ppo.n_steps} do not fit into "
                f"memory: give fewer ({' '.join(str(error).split())[:80]})"
            ) from error

    @property
    def finished(self) -> bool:
        """Whether all outputs of the run were written."""
        return bool(self.saved["stage"] == FINISHED)

    def run(self) -> TrainingResult:
        """Run the stages that are left; restore the model of a run that was trained already."""
        with self.interruption, self.bar:
            if self.saved["stage"] == CLONING:
                self._start_policy()
                self._save(TUNING)
                self._write_policies()
            elif self.saved["stage"] == TUNING:
                # The run may have been killed after this checkpoint and before these files.
                self.folder.write_logs()
                self._write_policies()
            if self.saved["stage"] == TUNING:
                if self.settings.n_timesteps:
                    self._fine_tune()
                self._save_after_ppo(MENDING)
            else:
                self._restore_model()
            if self.saved["stage"] == MENDING:
                self._mend_if_wanted()
                self._save_after_ppo(TEACHING)
            if self.saved["stage"] == TEACHING:
                self._teach_if_wanted()
                self.folder.write_logs()
                self._write_policies()
                self._save_after_ppo(TRAINED)
        later = self._evaluation_of("mended"), self._evaluation_of("taught")
        learned = [each for each in self.evaluations if not any(each is one for one in later)]
        return TrainingResult(
            clone=learned[0] if self._has_clone else None,
            best=best_of(learned, self._alone),
            last=learned[-1],
            evaluations=learned,
            seconds_at_evaluation=self.seconds_at_evaluation[: len(learned)],
            seconds=self.seconds,
            longest_training_run=self._longest_run,
            planned_steps=self.planned_steps,
            mending_evaluations=self.mending_evaluations,
            seconds_at_mending_evaluation=self.seconds_at_mending_evaluation,
            cloned_answers=self.cloned_answers,
            mended=self._evaluation_of("mended"),
            mending_rounds=tuple(self.mending_rounds),
            practised=tuple(self.practised),
            taught=self._evaluation_of("taught"),
            rounds=tuple(self.rounds),
            tasks=tuple(self.tasks),
            collapse=self.model.collapse,
            alone=self._alone,
        )

    def _evaluation_of(self, name: str) -> Evaluation | None:
        kept = self.policies.get(name)
        return None if kept is None else self.evaluations[kept["evaluation"]]

    @property
    def _longest_run(self) -> int:
        """Most operations solved in a training episode, before the last resume too."""
        return max(self.model.longest_run, int(self.saved.get("longest_run", 0)))

    @property
    def _has_clone(self) -> bool:
        return self.settings.demo_operations > 0 or self.settings.start_from is not None

    @property
    def _alone(self) -> bool:
        """Whether the run learns from the reward alone: the teacher chooses no policy either."""
        return not (self._has_clone or self.settings.teaching.rounds)

    def _is_best_so_far(self) -> bool:
        return self.evaluations[-1] is best_of(self.evaluations, self._alone)

    def finish(self) -> None:
        """Save that all outputs of the run were written."""
        self._save(FINISHED)

    def _start_policy(self) -> None:
        """Clone, or load the policy to start from; evaluate it before PPO."""
        settings, started = self.settings, time.perf_counter()
        if settings.start_from is not None:
            policy = load_run(settings.start_from, trust=self.trust)
            self._check_input("start_from", str(digest_of(policy)))
            try:
                self.policy.load_state_dict(policy.state_dict())
            except RuntimeError:
                raise ValueError(
                    f"start_from={settings.start_from} holds a policy of another network, base or "
                    "number of frames"
                ) from None
        elif settings.demo_operations:
            self._clone()
        elif settings.planning.exercises:
            self._plan()
        self.seconds["cloning"] = self.seconds.get("cloning", 0.0) + time.perf_counter() - started
        self._evaluate(0)
        self._keep_policy("clone" if self._has_clone else "last", "best", "last")

    def _plan(self) -> None:
        """Clone the best runs of exercises, found from the reward; a killed run repeats it."""
        settings, started = self.settings, time.process_time()

        def on_progress(planned: int, steps: int) -> None:
            self.bar.show(PLANNING, planned, f"{steps:,} steps of the environment")
            if self.interruption.requested:
                raise KeyboardInterrupt

        data, self.planned_steps = planned_actions(
            settings.world, settings.planning, settings.seed, on_progress
        )
        self.log(
            f"planned {settings.planning.exercises:,} exercises in {self.planned_steps:,} steps of "
            f"the environment: {len(data):,} observations to clone"
        )
        torch.manual_seed(settings.seed)
        cloning = Cloning(self.policy, data, settings.cloning, settings.seed, Logger(None, []))
        last = cloning.run(self._show_cloning)
        self.seconds["planning_processor"] = time.process_time() - started
        self.log(f"cloned in {last.update:,} updates: {last.accuracy:.2%} of the actions learned")

    def _show_cloning(self, score: CloningScore) -> None:
        self.bar.show(CLONING, score.update, f"{score.update:,} updates, loss {score.loss:.4f}")
        if self.interruption.requested:
            raise KeyboardInterrupt

    def _load_cloning_set(self) -> CloningSet:
        data = load_cloning_set(self.settings, self.log)
        self._check_input("demonstrations", data.digest)
        return data

    def _check_input(self, name: str, digest: str) -> None:
        """Raise ValueError if an input is not the one that the run was started with."""
        if name not in self.inputs:
            self.inputs[name] = digest
            self._save(CLONING)
        elif self.inputs[name] != digest:
            raise ValueError(
                f"the run was started with other {name}: the result would not be the same; restore "
                "them, or start another run"
            )

    def _clone(self) -> None:
        settings, state = self.settings, self.saved.get("cloning")
        self.cloning_set = self._load_cloning_set()
        self.cloned_answers = int(self.cloning_set.counts.sum())
        cloning = Cloning(
            self.policy,
            self.cloning_set,
            settings.cloning,
            settings.seed,
            self.folder.logger("cloning"),
        )
        if state:
            with self.folder.reading_checkpoint():
                cloning.load_state(state)

        def after_score(score: CloningScore) -> None:
            done = f"{score.update:,} of {settings.cloning.updates:,} updates"
            self.bar.show(CLONING, score.update, f"{done}, loss {score.loss:.4f}")
            self._save_if_due(CLONING, lambda: {"cloning": cloning.state()})

        last = cloning.run(after_score)
        self.log(
            f"cloned in {last.update:,} updates: {last.accuracy:.4%} of the demonstrated actions "
            f"are learned, loss {last.loss:.6f}"
        )

    def _fine_tune(self) -> None:
        settings, model, state = self.settings, self.model, self.saved.get("ppo")
        torch.manual_seed(settings.seed)
        model.set_logger(self.folder.logger("progress"))
        model.announce = self.log
        if settings.ppo.cloning_weight:
            if self.cloning_set is None:
                self.cloning_set = self._load_cloning_set()
            model.add_cloning_loss(self.cloning_set)
        self._restore_model()
        if state:
            model.logger.name_to_value.update(state["logged"])
        elif settings.ppo.kl_weight:
            model.freeze_clone()
        left = settings.n_timesteps - model.num_timesteps
        if left > 0:
            model.learn(left, callback=_Callback(self), reset_num_timesteps=not state)

    def _restore_model(self) -> None:
        """Restore PPO from its checkpoint, or the policy that it starts from."""
        with self.folder.reading_checkpoint():
            if self.saved.get("ppo"):
                load_ppo_state(self.model, self.saved["ppo"])
            else:
                self.policy.load_state_dict(self.policies["last"]["weights"])

    def _mend_if_wanted(self) -> None:
        """Let the best policy so far practise what it gets wrong."""
        settings, state = self.settings, self.saved.get("mending")
        if not settings.mending.rounds or "mended" in self.policies:
            return
        if self.policy.network.slow:
            self.log(f"no mending: the network {settings.network} is too slow for it")
            return
        started, before = time.perf_counter(), self.seconds.get("mending", 0.0)
        self.policies.setdefault("tuned", self.policies["best"])
        policy = copy.deepcopy(self.policy)
        policy.load_state_dict(self.policies["tuned"]["weights"])
        # Another plan would discard what PPO has learned.
        planned = settings.planning.exercises and not settings.n_timesteps
        planning = settings.planning if planned else None
        mending = Mending(policy, settings.world, settings.mending, settings.seed, planning)
        if state:
            with self.folder.reading_checkpoint():
                mending.load_state(state)

        def after_round(score: MendingRound) -> None:
            rounds = f"{score.number} of at most {settings.mending.rounds} rounds"
            self.bar.show(MENDING, score.number, rounds)
            self.log(f"round {score.number}: {score.describe()}")
            self._evaluate_round(mending)
            self.mending_rounds, self.practised = mending.rounds, mending.practised
            self.seconds["mending"] = before + time.perf_counter() - started
            self._save_after_ppo(MENDING, {"mending": mending.state()})
            if self.interruption.requested:
                raise KeyboardInterrupt

        mending.on_progress = lambda line: self.bar.show(MENDING, len(mending.rounds), line)
        exact = mending.run(after_round)
        self._evaluate(self.model.num_timesteps, mending.best)
        self._keep_policy("mended", policy=mending.best)
        if exact or self._is_best_so_far():
            self._keep_policy("best", policy=mending.best)

    def _evaluate_round(self, mending: Mending) -> None:
        """Evaluate the policy with which a round of mending began, for the learning curve."""
        rounds = mending.rounds[:-1]
        steps = self.planned_steps + self.model.num_timesteps + sum(each.steps for each in rounds)
        evaluation = self.evaluator(mending.judged, steps)
        self.log(evaluation_line(evaluation))
        clocks = self.seconds.get("planning_processor", 0.0) + self.seconds.get(
            "ppo_processor", 0.0
        )
        self.mending_evaluations.append(evaluation)
        self.seconds_at_mending_evaluation.append(clocks + sum(each.seconds for each in rounds))

    def _teach_if_wanted(self) -> None:
        if not self.settings.teaching.rounds or "taught" in self.policies:
            return
        if self.policy.network.slow:
            self.log(f"no teaching: the network {self.settings.network} is too slow for it")
            return
        self._teach()
        # The policies are derived from this checkpoint, and written after it.
        self._save_after_ppo(TEACHING)

    def _teach(self) -> None:
        """Teach the best policy so far its counterexamples, until it is exact or at a limit."""
        settings, state = self.settings, self.saved.get("teaching")
        started, before = time.perf_counter(), self.seconds.get("teaching", 0.0)
        self.policies.setdefault("tuned", self.policies["best"])
        demonstrations = None
        if settings.demo_operations:
            demonstrations = open_demonstrations(settings, self.log)
        policy = copy.deepcopy(self.policy)
        policy.load_state_dict(self.policies["tuned"]["weights"])
        teaching = Teaching(
            policy,
            observations_of(settings.world),
            demonstrations,
            settings.teaching,
            settings.cloning,
            settings.seed,
        )
        if state:
            with self.folder.reading_checkpoint():
                teaching.load_state(state)

        def after_round(score: Round) -> None:
            number, limit = score.number, settings.teaching.rounds
            expected = rounds_expected(settings, number) if score.wrong else number
            text = f"{number} of at most {limit} rounds, {score.wrong:,} observations wrong"
            self.bar.show(TEACHING, number, text, expected)
            self.rounds, self.tasks = teaching.rounds, teaching.tasks
            self.seconds["teaching"] = before + time.perf_counter() - started
            self.log(
                f"round {score.number}: {score.operations:,} operations, {score.answers:,} "
                f"answers, {score.wrong:,} observations wrong"
            )
            self._save_after_ppo(TEACHING, {"teaching": teaching.state()})
            if self.interruption.requested:
                raise KeyboardInterrupt

        teaching.run(after_round)
        self._evaluate(self.model.num_timesteps, policy)
        self._keep_policy("taught", policy=policy)
        if self._is_best_so_far():
            self._keep_policy("best", policy=policy)

    def after_rollout(self, *, final: bool = False) -> None:
        """Between updates: evaluate when due, save a checkpoint when due, then the policies."""
        step, last = self.model.num_timesteps, self.evaluations[-1].step
        frequency = self.settings.eval_freq
        if step > last and (final or step // frequency > last // frequency):
            self._evaluate(step)
            if self.model.collapse is not None:
                self.log(f"the policy has collapsed, {self.model.collapse}")
            self._keep_policy("last")
            if self._is_best_so_far():
                self._keep_policy("best")
            self._save(TUNING, {"ppo": ppo_state(self.model)})
            self._write_policies()
        else:
            self._save_if_due(TUNING, lambda: {"ppo": ppo_state(self.model)})

    def _evaluate(self, step: int, policy: AbacusPolicy | None = None) -> None:
        evaluation = self.evaluator(self.policy if policy is None else policy, step)
        self.evaluations.append(evaluation)
        self.seconds_at_evaluation.append(self.seconds.get("ppo_processor", 0.0))
        logger = self.folder.logger("evaluations")
        for name, value in evaluation.record().items():
            logger.record(name, value)
        for name in CLOCKS:
            logger.record(f"time/{name}_seconds", round(self.seconds.get(name, 0.0), 1))
        logger.dump(step)
        self.log(evaluation_line(evaluation))
        clone = self.evaluations[0]
        if self._has_clone and evaluation.accuracy < clone.accuracy:
            self.log(f"greedy accuracy below that of the clone, {clone.accuracy:.2%}")

    def _keep_policy(self, *names: str, policy: AbacusPolicy | None = None) -> None:
        """Keep a copy of the policy, with the number of its evaluation, for the checkpoint."""
        policy = self.policy if policy is None else policy
        kept = {
            "network": policy.network_name,
            "weights": copy_weights(policy),
            "evaluation": len(self.evaluations) - 1,
        }
        self.policies |= {name: dict(kept) for name in names}

    def _write_policies(self) -> None:
        """Write the policies of the checkpoint into their folders, but those that are there."""
        world = self.settings.world
        for name in SAVED_POLICIES:
            kept = self.policies.get(name)
            if kept is None or kept is self._written.get(name):
                continue
            with self.folder.reading_checkpoint(), torch.random.fork_rng(devices=[]):
                # Mending may have changed the network. Initial weights, which are replaced at once,
                # are drawn from a generator of their own: a resumed run must draw the same numbers.
                policy = new_policy(kept["network"], world.base, world.frames)
                policy.load_state_dict(kept["weights"])
                evaluation = self.evaluations[kept["evaluation"]]
            about = {"step": evaluation.step, "evaluation": evaluation.to_dict()}
            save_policy(policy, self.folder.path / name, about)
            self._written[name] = kept

    def _save_if_due(self, stage: str, state: Callable[[], dict[str, Any]]) -> None:
        """Save if the last checkpoint is old or Ctrl-C was pressed; in this case, stop."""
        if self.interruption.requested or time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self._save(stage, state())
        if self.interruption.requested:
            raise KeyboardInterrupt

    def _save_after_ppo(self, stage: str, state: dict[str, Any] | None = None) -> None:
        """Save a stage after PPO, whose last state is kept."""
        self._save(stage, {"ppo": self.saved.get("ppo"), **(state or {})})

    def _save(self, stage: str, state: dict[str, Any] | None = None) -> None:
        self.saved = {
            "stage": stage,
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
            "seconds": self.seconds,
            "seconds_at_evaluation": self.seconds_at_evaluation,
            "planned_steps": self.planned_steps,
            "mending_evaluations": [each.to_dict() for each in self.mending_evaluations],
            "seconds_at_mending_evaluation": self.seconds_at_mending_evaluation,
            "longest_run": self._longest_run,
            "policies": self.policies,
            "inputs": self.inputs,
            "rounds": [asdict(each) for each in self.rounds],
            "mending_rounds": [asdict(each) for each in self.mending_rounds],
            "practised": [str(exercise) for exercise in self.practised],
            "cloned_answers": self.cloned_answers,
            "tasks": [str(task) for task in self.tasks],
            **(state or {}),
        }
        self.folder.save_checkpoint(self.saved)
        self._saved_at = time.monotonic()


class _Callback(BaseCallback):
    """Calls `Training.after_rollout` between updates, takes times, moves the progress bar."""

    def __init__(self, training: Training) -> None:
        super().__init__()
        self.training = training

    def _on_training_start(self) -> None:
        self._started = {name: clock() for name, clock in CLOCKS.items()}
        self._before = {name: self.training.seconds.get(name, 0.0) for name in CLOCKS}

    def _on_rollout_start(self) -> None:
        # Every rollout but the first follows an update.
        if self.model.num_timesteps:
            self._take_times()
            self.training.after_rollout()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model = self.training.model
        self._take_times()
        for name in CLOCKS:
            model.logger.record(f"time/{name}_seconds", round(self.training.seconds[name], 1))
        steps = f"{model.num_timesteps:,} of {steps_made(self.training.settings):,} steps"
        solved = f"{model.rollout_buffer.counts.accuracy:.2%} solved by sampling"
        self.training.bar.show(TUNING, model.num_timesteps, f"{steps}, {solved}")

    def _on_training_end(self) -> None:
        self._take_times()
        self.training.after_rollout(final=True)

    def _take_times(self) -> None:
        for name, clock in CLOCKS.items():
            self.training.seconds[name] = self._before[name] + clock() - self._started[name]


def evaluation_line(evaluation: Evaluation) -> str:
    """Return an evaluation as a line for the terminal."""
    wrong = "" if evaluation.wrong is None else f", {evaluation.wrong:,} observations wrong"
    failures = ", ".join(f"{kind} {n}" for kind, n in evaluation.failures.items() if n) or "none"
    own = evaluation.own_accuracy
    beside = "" if own is None else f" ({own:.2%} by the rules of its level)"
    return (
        f"step {evaluation.step:,}: greedy accuracy {evaluation.accuracy:.2%}{beside}{wrong}, "
        f"error rate at 16 digits {evaluation.long_error_rate:.2%}, failures: {failures}"
    )
