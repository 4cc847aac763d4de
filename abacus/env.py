"""The single environment: one abacus behind Gymnasium's interface."""

from __future__ import annotations

from operator import index
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from abacus.batch import END_NAMES, AbacusBatch
from abacus.observation import observation_space
from abacus.render import render_ansi, render_rgb, view_of
from abacus.reward import OUTCOMES, TERMS
from abacus.rules import AbacusConfig, Action, End, OnError, Operations


class AbacusEnv(gym.Env[dict[str, npt.NDArray[np.float32]], np.int64]):
    """
    ## Description
    A grid of columns with beads, a finger that slides them, a signpost that marks a column, and a
    window that shows two columns. Numbers arrive digit by digit; the agent adds them to, or
    subtracts them from, what the abacus shows.

    Column 0 is the leftmost and the *least significant*: carries go to the right. A column has
    `base` rows, `base - 1` beads and one gap; the row of the gap, counted from 0 at the top, is
    the column's digit. The finger stands on a column and a row, the signpost on a column.

    Symbols come one at a time: the digits of an operand, least significant first; then the symbol
    of the next operation (`+` or `-`), which asks for the reset; then the digits of that
    operation's operand, and so on. *Submit* asks for the next symbol. An episode starts on the
    first digit of its first operand. The first operand of every operation is what the abacus
    shows when the operation's symbol arrives (for the first one: when the episode starts). After
    the last operation that there is, one more operation symbol asks for its reset, and the
    episode ends with the submit of that reset.

    ## Action space
    `Discrete(8)`

    | action | name | effect | illegal where |
    |---|---|---|---|
    | 0 | LEFT | finger one column to the left | finger on column 0 |
    | 1 | RIGHT | finger one column to the right | finger on the last column |
    | 2 | UP | finger one row up (row - 1) | finger on row 0 |
    | 3 | DOWN | finger one row down (row + 1) | finger on the last row |
    | 4 | SIGNPOST_LEFT | signpost one column to the left | signpost on column 0 |
    | 5 | SIGNPOST_RIGHT | signpost one column to the right | signpost on the last column |
    | 6 | SLIDE | the gap of the finger's column moves to the finger's row | gap is there already |
    | 7 | SUBMIT | asks for the next symbol | never |

    `action_masks()` and `info["action_mask"]` give the legal ones: those that change something. An
    illegal action given anyway leaves the abacus, finger, signpost and symbol as they are; it
    takes a step, costs the step penalty and nothing else, and is counted.

    ## Observation space
    `Dict` of flat float32 arrays in [0, 1]:

    | key | length | content |
    |---|---|---|
    | `window` | frames · 2 · 2 · (base + 1) | the last `frames` frames, oldest first |
    | `symbol` | base + 2 | one-hot: the digits, then `+`, then `-` |
    | `operation` | 1 | 0 while adding, 1 while subtracting |
    | `previous_action` | 8 | one-hot of the last action, zeros at the start; for a critic alone |

    A frame is (plane, column, row): plane 0 the beads, plane 1 the finger and signpost; column 0
    the one left of the finger, column 1 the finger's; row 0 the top row, rows 1 to `base` the
    column's rows. On plane 0 a bead is 1 and the gap 0, and the top row holds the column's
    periodic encoding: 0.25, 0.5 or 0.75 for column index 0, 1, 2 modulo 3. On plane 1 the finger's
    row is 1 in the finger's column, and the top row is 1 where the signpost stands. Left of
    column 0 there is padding: all zeros on both planes. `window.reshape(config.window_shape)`
    gives (frame, plane, column, row). Every step, whatever its action, adds the frame that is
    seen after it and drops the oldest; at the start all frames show the first one. A submit
    changes the symbol at once, unless it ends the episode. While an operation symbol is shown,
    `operation` is that of the operation which it announces.

    ## Rewards
    Let j be the index of the digit shown. The *partial result* is the first operand plus or minus
    the operand's digits 0 to j; on an operation symbol, it is the first operand of the operation
    that the symbol announces. Every step has four outcomes of -1, 0 or 1:

    - `finger`: 1 for a finger move that brings the finger closer to where it belongs, -1 for one
      that takes it away, else 0. On a digit, let w be the lowest column that does not show the
      partial result. If w exists and w <= j, or if w exists and the signpost stands on column j,
      the finger belongs on column w and on the row of w's digit in the partial result. Otherwise,
      if the signpost does not stand on column j, it belongs on column j, else on column j + 1, on
      any row. On an operation symbol it belongs on column 0, on any row. Distance is columns plus
      rows, rows only where one is wanted. Where it belongs is decided before the move.
    - `signpost`: 1 for a signpost move closer to column j (on an operation symbol: to column 0),
      else -1.
    - `slide`: 1 for a slide after which every column from 0 to the finger's shows the partial
      result, else -1; on an operation symbol always -1.
    - `submit`: on a digit, 1 if the whole abacus shows the partial result and the signpost stands
      on column j, else -1; on an operation symbol 1 if the signpost stands on column 0, else -1.

    The modules that are on turn outcomes into terms, whose sum is the reward: `step` -0.05 every
    step; `finger` +0.10 or -0.10; `signpost`, `slide`, `submit` +1 when right; `wrong` -1 for a
    wrong signpost move, slide or submit whose module `wrong_signpost`, `wrong_slide` or
    `wrong_submit` is on. Named levels: `dense` has all modules; `no_of` lacks `finger`;
    `no_of_sp` also lacks `signpost` and `wrong_signpost`; `no_of_sp_ms` also lacks `slide`;
    `answer_only` has `step`, `submit` and `wrong_submit`. `info["reward_terms"]` and
    `info["outcomes"]` report both.

    ## Starting state
    The abacus shows the starting value, finger on column 0 and row 0, signpost on column 0. A
    random starting value is drawn as an operand is. An operand's length is uniform in 1 to
    `max_digits`, its digits are uniform, its leading digit is not 0. With `operations="both"` the
    operation is an addition or a subtraction with equal chance; a subtraction that would go below
    zero becomes an addition; at the start of an episode, an addition that would not fit becomes a
    subtraction. With `"subtract"`, where the drawn operand exceeds what the abacus shows, the
    abacus is *reloaded*: at the start of an episode at once, later when the reset is submitted.
    A reload sets every column to a random digit (the last one not to 0), finger and signpost to
    where they start, all frames to the new first one and the previous action to none; it is
    neither an action nor an operation, and it is counted. Which operation comes, and whether it
    fits, is decided when its symbol arrives, whatever is slid while that symbol is shown.

    ## Episode end
    Terminated: with `on_error="terminate"`, at the first wrong signpost move, slide or submit whose
    `wrong_` module is on; on capacity, when an addition drawn for an operation after the first
    does not fit, or a given one would leave the abacus after a mistake, above or below zero (at
    the submit of the reset that its symbol asks for); after the reset that
    follows the last operation of a given `expression` (its symbol is a `+`). Truncated: when the
    steps reach the budget, and when `max_operations` operations were done, also at the submit of
    the reset. With `on_error="continue"` mistakes do not end the episode: a wrong submit brings
    the next symbol too. The reason is in `info["end"]`; where two ends meet, a mistake comes before
    expression, expression before capacity, capacity before limit, limit before budget.

    The budget starts at `config.step_budget` (32 on ten columns) and grows by as much with each
    right slide and each right submit on an operation symbol, before it is compared with the steps.

    An operation is done when the reset that follows it is submitted, and *solved* if all submits
    from its first digit to that reset were right and the abacus showed its result then.

    ## Arguments
    - `columns` (10): from 2 to a million. `base` (5): from 2 to 10. `frames` (3): 1 to 16.
    - `max_digits` (6): digits of the longest drawn operand, below `columns`.
    - `operations` ("both"): "both", "add" or "subtract".
    - `reward` ("dense"): a level, or modules as a tuple or joined by commas.
    - `on_error` ("terminate"): "terminate" or "continue".
    - `start` (0): the starting value, or "random".
    - `expression` (None): a fixed list of operations in decimal, such as "3+4-2": +3, +4, -2.
    - `max_operations` (None): a limit on operations in an episode.
    - `render_mode` (None): "ansi" or "rgb_array".

    ## Randomness
    Each abacus has a stream of its own, splitmix64, started by
    `numpy.random.SeedSequence(seed).generate_state(1, numpy.uint64)[0]`; abacus i of a batch has
    the seed `seed + i`. A number below n is `((next >> 32) * n) >> 32`. A drawn operand takes its
    length, then its digits from the least significant on, the leading one as 1 plus a number below
    base - 1; a random starting value comes before
    the first operation; with `operations="both"` a coin (1: subtract) follows each operand; a
    reload takes the columns from 0 on. `reset` without a seed goes on in the stream.

    ## Info
    Every step: `action_mask`, `reward_terms`, `outcomes`, `illegal` (this action was), `end`
    (name of the end, "NONE" while it goes on), `operations_done`, `operations_solved`,
    `illegal_actions`, `reloads`, `budget_left`.

    ## Versions
    - v0: first version.
    """

    # A plain dict, as in the base class: wrappers make it an attribute of their own.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 8,
    }

    def __init__(
        self,
        columns: int = 10,
        base: int = 5,
        max_digits: int = 6,
        frames: int = 3,
        operations: Operations = "both",
        reward: str | tuple[str, ...] = "dense",
        on_error: OnError = "terminate",
        start: int | Literal["random"] = 0,
        expression: str | None = None,
        max_operations: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.config = AbacusConfig(
            columns=columns,
            base=base,
            max_digits=max_digits,
            frames=frames,
            operations=operations,
            reward=reward,
            on_error=on_error,
            start=start,
            expression=expression,
            max_operations=max_operations,
        )
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.observation_space = observation_space(self.config)
        self.action_space = gym.spaces.Discrete(len(Action))
        self.batch = AbacusBatch(self.config, num_envs=1, autoreset=False)
        self._actions = np.zeros(1, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, Any]]:
        """Starts an episode; without a seed, in the stream of the one before."""
        super().reset(seed=seed)
        self.batch.reset(seed)
        info = {"action_mask": self.action_masks(), **self._counts(End.NONE)}
        return self.batch.observation_copy(0), info

    def step(
        self, action: int | np.integer
    ) -> tuple[dict[str, npt.NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        """One action; see the class."""
        # A float that is not whole must not quietly become an action.
        self._actions[0] = index(action)
        batch = self.batch
        batch.step(self._actions)
        verdict: tuple[float, int, bool, bool, bool] = batch.verdicts.item()
        reward, end, terminated, truncated, illegal = verdict
        info = {
            "action_mask": self.action_masks(),
            "reward_terms": dict(zip(TERMS, batch.terms[0].tolist(), strict=True)),
            "outcomes": dict(zip(OUTCOMES, batch.outcomes[0].tolist(), strict=True)),
            "illegal": illegal,
            **self._counts(end),
        }
        return batch.observation_copy(0), reward, terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """The legal actions: those that change something."""
        masks: npt.NDArray[np.bool_] = self.batch.masks[0].copy()
        return masks

    def render(self) -> Any:
        """The abacus as text or as a picture, by `render_mode`."""
        if self.render_mode is None:
            gym.logger.warn("render() needs gymnasium.make(..., render_mode='ansi' or 'rgb_array')")
            return None
        view = view_of(self.batch, 0)
        return render_ansi(view) if self.render_mode == "ansi" else render_rgb(view)

    def _counts(self, end: int) -> dict[str, Any]:
        done, solved, illegal_actions, reloads, budget, steps = self.batch.counts.item()
        return {
            "end": END_NAMES[end],
            "operations_done": done,
            "operations_solved": solved,
            "illegal_actions": illegal_actions,
            "reloads": reloads,
            "budget_left": budget - steps,
        }


def check_render_mode(render_mode: str | None) -> None:
    """Raises ValueError for a mode that no abacus has."""
    modes = AbacusEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(
            f"render_mode={render_mode!r} is not allowed: give one of {', '.join(modes)}, or None"
        )
