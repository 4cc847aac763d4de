"""The progress bar of a training run: one bar for all stages, with the time left for the whole run.

The stages count different things, so the bar measures them in gradient updates, of which nearly all
the work of a run consists. How long teaching takes is known only when it is over: the bar expects
the usual number of rounds first, and then one more after each round that was not the last.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from tqdm import tqdm

from pipelines.learning.settings import Settings

#: Updates in the time that planning an exercise takes.
UPDATES_PER_PLAN = 1.0
#: Rounds after which mending has usually ended; see docs/reward_alone.md.
USUAL_MENDING = 12
#: Rounds after which teaching has usually ended; see docs/cloning.md.
USUAL_ROUNDS = 5
_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {remaining} left{postfix}"


def print_above(line: str) -> None:
    """Print a line to standard output, above the bar if one is shown."""
    with tqdm.external_write_mode(sys.stdout):
        print(line, flush=True)


def steps_made(settings: Settings) -> int:
    """Return the environment steps that PPO makes: whole rollouts, at least those asked for."""
    rollout = settings.ppo.rollout
    return -(-settings.n_timesteps // rollout) * rollout


def rounds_expected(settings: Settings, done: int) -> int:
    """Return the rounds of teaching to expect after those that were done without success."""
    return min(settings.teaching.rounds, max(USUAL_ROUNDS, done + 1))


class RunBar:
    """The bar, as a context; it appears with the first step that is shown, and ends at 100 %."""

    def __init__(self, settings: Settings, *, shown: bool) -> None:
        ppo, updates = settings.ppo, settings.cloning.updates
        minibatches = ppo.n_epochs * -(-ppo.rollout // ppo.batch_size)
        #: Expected steps of each stage in its own unit, in the order of the stages.
        self.expected = {
            "planning": settings.planning.exercises,
            "cloning": updates if settings.demo_operations or settings.planning.exercises else 0,
            "ppo": steps_made(settings),
            "mending": min(settings.mending.rounds, USUAL_MENDING),
            "teaching": rounds_expected(settings, 0),
        }
        #: Gradient updates in a step of each stage.
        self._updates = {
            "planning": UPDATES_PER_PLAN,
            "cloning": 1.0,
            "ppo": minibatches / ppo.rollout,
            "mending": settings.mending.cloning.updates,
            "teaching": updates,
        }
        self._shown = shown
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> RunBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is None:
            return
        if kind is None:
            # A stage may end before its limit.
            self._bar.total = self._bar.n
            self._bar.set_description_str("trained", refresh=False)
            self._bar.set_postfix_str("", refresh=False)
            self._bar.refresh()
        self._bar.close()

    def show(self, stage: str, done: int, text: str, expected: int | None = None) -> None:
        """Show the steps done in a stage with a text; `expected` corrects its number of steps."""
        if not self._shown:
            return
        if expected is not None:
            self.expected[stage] = expected
        order = list(self.expected)
        before = sum(self._work(each) for each in order[: order.index(stage)])
        work = before + done * self._updates[stage]
        total = sum(self._work(each) for each in order)
        bar: tqdm[Any] | None = self._bar
        if bar is None:
            # Work that was done before a resume took no time of this process.
            self._bar = bar = tqdm(
                desc=stage,
                initial=work,
                total=total,
                bar_format=_FORMAT,
                dynamic_ncols=True,
                mininterval=0,
                miniters=0,
            )
        bar.total = total
        bar.set_description_str(stage, refresh=False)
        bar.set_postfix_str(text, refresh=False)
        bar.update(work - bar.n)

    def _work(self, stage: str) -> float:
        return self.expected[stage] * self._updates[stage]
