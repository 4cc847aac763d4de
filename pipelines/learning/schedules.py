"""How a number falls over a run: constant, linear, or the paper's linearly decaying sinusoid.

Schedules are objects and not functions, so that they are saved with a run. They take what is left
of the run, from 1 to 0, as Stable-Baselines3's do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

ScheduleKind = Literal["constant", "linear", "sinusoid"]
SCHEDULE_KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)
#: Waves of a whole run: the paper's figures show about so many, the authors' code has 13.9.
WAVES = 14


@dataclass(frozen=True)
class Schedule:
    """From `start` to `end`.

    `sinusoid` is a wave of height 2 under a line that falls from 1 to 0: its mean is that of
    `linear`, it starts and ends at `end`, and its first peak is nearly twice `start`. The paper
    says "linearly-decaying sinusoidal"; this form is that of the authors' code.
    """

    kind: ScheduleKind
    start: float
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULE_KINDS:
            raise ValueError(
                f"schedule={self.kind!r} is not allowed: give one of {', '.join(SCHEDULE_KINDS)}"
            )
        for name in ("start", "end"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name}={value!r} is not allowed: give a number of 0 or more")

    def __call__(self, progress_remaining: float) -> float:
        """The value when so much of the run is left."""
        if self.kind == "constant":
            return self.start
        left = min(max(progress_remaining, 0.0), 1.0)
        if self.kind == "sinusoid":
            left *= 1.0 - math.cos(2.0 * math.pi * WAVES * left)
        return self.end + (self.start - self.end) * left
