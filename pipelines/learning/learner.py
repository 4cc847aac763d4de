"""What the study asks of a learner: to turn a `Job` into the policies of a `Trained`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.learning.policy import AbacusPolicy
from pipelines.learning.settings import Settings
from pipelines.scoring.scores import Evaluation


@dataclass(frozen=True)
class Job:
    """One training run of a study."""

    settings: Settings
    #: Limit on the teacher's answers for learners that ask for them; 0 for the others.
    labels: int
    #: Folder of this job alone, which need not exist. What an interruption leaves there is found by
    #: the next attempt; it is removed when the result is stored.
    folder: Path
    #: Folder of clones, which jobs with the same clone share.
    clones: Path


@dataclass(frozen=True)
class Trained:
    """Policies of a training run, and how it went."""

    #: The policy to keep: the best on the evaluation episodes of the run.
    best: AbacusPolicy
    #: The policy at the end of training.
    last: AbacusPolicy
    #: Processor or wall-clock time by stage.
    seconds: Mapping[str, float]
    #: The policy before reinforcement learning; None if nothing was cloned.
    clone: AbacusPolicy | None = None
    #: Evaluations during training, and the processor time before each.
    evaluations: Sequence[Evaluation] = ()
    seconds_at_evaluation: Sequence[float] = ()
    #: Most operations solved in an episode of training.
    longest_training_run: int = 0
    #: Answers of the teacher that were learned from, and the demonstrated operations with them.
    labels: int = 0
    demonstrated: int = 0
    #: Environment steps by stage.
    stage_steps: Mapping[str, int] = field(default_factory=dict)
    #: Operations, answers and wrong observations after each round of teaching.
    rounds: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True)
class Learner:
    """A learner that the study can run."""

    run: Callable[[Job], Trained]
    #: Values that the result depends on beside the settings of a job, by a name of the learner's.
    settings: Mapping[str, Any] = field(default_factory=dict)
