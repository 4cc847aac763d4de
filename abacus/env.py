"""One abacus as a Gymnasium environment. The docstring of `AbacusEnv` is the specification."""

from __future__ import annotations

from operator import index
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from abacus.batch import END_NAMES, AbacusBatch
from abacus.checks import not_allowed
from abacus.observation import observation_space
from abacus.render import render_ansi, render_rgb, view_of
from abacus.reward import OUTCOMES, TERMS
from abacus.rules import AbacusConfig, Action, End, OnError, Operations


class AbacusEnv(gym.Env[dict[str, npt.NDArray[np.float32]], np.int64]):
    """
    ## Description
    A grid of columns with beads, a finger that slides them, a signpost that marks a column, and a
    window that shows two columns. Numbers arrive digit by digit; the agent adds them to, or
    subtracts them from, the value on the abacus.

    Column 0 is the leftmost and the *least significant*: carries go to the right. A column has
    `base` rows with `base - 1` beads and one gap; the row of the gap, counted from 0 at the top, is
    the column's digit. The finger is on a column and a row, the signpost on a column.

    Symbols are shown one at a time: the digits of an operand, least significant first; then the
    symbol of the next operation (`+` or `-`), which asks for a reset; then the digits of that
    operation's operand, and so on. *Submit* asks for the next symbol. An episode starts on the
    first digit of its first operand. The first operand of every operation is the value on the
    abacus when the operation's symbol arrives (for the first operation: when the episode starts).
    The last operation is followed by one more operation symbol, and the episode ends when the reset
    that this symbol asks for is submitted.

    ## Action space
    `Discrete(8)`

    | action | name | effect | illegal if |
    |---|---|---|---|
    | 0 | LEFT | finger one column to the left | finger on column 0 |
    | 1 | RIGHT | finger one column to the right | finger on the last column |
    | 2 | UP | finger one row up (row - 1) | finger on row 0 |
    | 3 | DOWN | finger one row down (row + 1) | finger on the last row |
    | 4 | SIGNPOST_LEFT | signpost one column to the left | signpost on column 0 |
    | 5 | SIGNPOST_RIGHT | signpost one column to the right | signpost on the last column |
    | 6 | SLIDE | gap of the finger's column to the finger's row | gap is already there |
    | 7 | SUBMIT | ask for the next symbol | never |

    Legal actions are those that change something; `action_masks()` and `info["action_mask"]` return
    them. An illegal action leaves the abacus, finger, signpost and symbol unchanged; it takes a
    step, costs the step penalty and nothing else, and is counted.

    ## Observation space
    `Dict` of flat float32 arrays in [0, 1]:

    | key | length | content |
    |---|---|---|
    | `window` | frames · 2 · 2 · (base + 1) | the last `frames` frames, oldest first |
    | `symbol` | base + 2 | one-hot: the digits, then `+`, then `-` |
    | `operation` | 1 | 0 while adding, 1 while subtracting |
    | `previous_action` | 8 | one-hot of the last action, zeros at the start; meant for a critic |

    A frame is (plane, column, row). Plane 0 shows the beads, plane 1 the finger and the signpost;
    column 0 is the column left of the finger, column 1 the finger's; row 0 is an extra top row,
    rows 1 to `base` are the column's rows. On plane 0 a bead is 1 and the gap 0, and the top row
    holds the column's periodic encoding: 0.25, 0.5 or 0.75 for column index 0, 1, 2 modulo 3. On
    plane 1 the finger's row is 1 in the finger's column, and the top row is 1 in the signpost's
    column. Left of column 0 there is padding: zeros on both planes.
    `window.reshape(config.window_shape)` gives (frame, plane, column, row). Every step, whatever
    its action, adds the frame after it and drops the oldest; at the start all frames are the first
    one. A submit changes the symbol at once, unless it ends the episode. While an operation symbol
    is shown, `operation` is the operation that it announces.

    ## Rewards
    Let j be the index of the digit shown. The *partial result* is the first operand plus or minus
    the operand's digits 0 to j; on an operation symbol, it is the first operand of the operation
    that the symbol announces. Every step has four outcomes of -1, 0 or 1:

    - `finger`: 1 for a finger move closer to where the finger belongs, -1 for a move away from it,
      else 0. On a digit, let w be the lowest column that differs from the partial result. If w
      exists and w <= j, or if w exists and the signpost is on column j, the finger belongs on
      column w and on the row of w's digit in the partial result. Otherwise it belongs on column j
      if the signpost is not on column j, else on column j + 1, on any row. On an operation symbol
      it belongs on column 0, on any row. The distance is columns plus rows; rows count only where a
      row is required. Where the finger belongs is determined before the move.
    - `signpost`: 1 for a signpost move closer to column j (on an operation symbol: to column 0),
      else -1.
    - `slide`: 1 for a slide after which every column from 0 to the finger's shows the partial
      result, else -1; on an operation symbol always -1.
    - `submit`: on a digit, 1 if the whole abacus shows the partial result and the signpost is on
      column j, else -1; on an operation symbol 1 if the signpost is on column 0, else -1.

    The active modules turn outcomes into terms, whose sum is the reward: `step` -0.05 every step;
    `finger` +0.10 or -0.10; `signpost`, `slide`, `submit` +1 when right; `wrong` -1 for a wrong
    signpost move, slide or submit whose module `wrong_signpost`, `wrong_slide` or `wrong_submit` is
    active. Named levels: `dense` has all modules; `no_of` lacks `finger`; `no_of_sp` also lacks
    `signpost` and `wrong_signpost`; `no_of_sp_ms` also lacks `slide`; `answer_only` has `step`,
    `submit` and `wrong_submit`. `info["reward_terms"]` and `info["outcomes"]` report both.

    ## Starting state
    The abacus shows the starting value, with the finger on column 0 and row 0 and the signpost on
    column 0. A random starting value is drawn like an operand. The length of an operand is uniform
    in 1 to `max_digits`, its digits are uniform, its leading digit is not 0. With
    `operations="both"` the operation is an addition or a subtraction with equal probability; a
    subtraction that would go below zero becomes an addition; at the start of an episode, an
    addition that would not fit becomes a subtraction. With `"subtract"`, if the drawn operand
    exceeds the value on the abacus, the abacus is *reloaded*: at the start of an episode at once,
    later when the reset is submitted. A reload sets every column to a random digit (the last one
    not to 0), finger and signpost to where they start, all frames to the new first one and the
    previous action to none; it is neither an action nor an operation, and it is counted. Which
    operation comes next, and whether it fits, is decided when its symbol arrives; slides while that
    symbol is shown do not change it.

    ## Episode end
    Terminated: with `on_error="terminate"`, at the first wrong signpost move, slide or submit whose
    `wrong_` module is active; on capacity, when an addition drawn for an operation after the first
    does not fit, or when a given operation would, after a mistake, leave the range of the abacus,
    above or below zero (at the submit of the reset that its symbol asks for); after the reset that
    follows the last operation of a given `expression` (its symbol is a `+`). Truncated: when the
    steps reach the budget, and when `max_operations` operations are done, also at the submit of the
    reset. With `on_error="continue"` mistakes do not end the episode, and a wrong submit shows the
    next symbol too. `info["end"]` names the reason; if several apply, a mistake comes before
    expression, expression before capacity, capacity before limit, limit before budget. After the
    end, `step` raises `gymnasium.error.ResetNeeded`.

    The budget starts at `config.step_budget` (32 on ten columns) and grows by the same number with
    each right slide and each right submit on an operation symbol, before it is compared with the
    steps.

    An operation is done when the reset that follows it is submitted, and *solved* if all submits
    from its first digit to that reset were right and the abacus then showed its result.

    ## Tasks
    `batch.set_tasks(tasks, weights, share)` mixes given tasks into the random episodes, here and in
    the environments of many abaci; it takes effect at the next start of an episode and may be
    called again at any time. A task is a starting value with a list of operations, as `start` and
    `expression` give them, and ends like an expression. A new episode is a task with probability
    `share`; which one is drawn by the weights. If one of its operands has more than `max_digits`
    digits, the step budget becomes that of operands of `columns - 1` digits, for all episodes.

    ## Arguments
    - `columns` (10): from 2 to a million. `base` (5): from 2 to 10. `frames` (3): 1 to 16.
    - `max_digits` (6): digits of the longest drawn operand, below `columns`.
    - `operations` ("both"): "both", "add" or "subtract".
    - `reward` ("dense"): a level, or modules as a tuple or joined by commas.
    - `on_error` ("terminate"): "terminate" or "continue".
    - `start` (0): the starting value, or "random".
    - `expression` (None): a fixed list of operations in decimal, such as "3+4-2": +3, +4, -2.
    - `max_operations` (None): a limit on the operations of an episode.
    - `render_mode` (None): "ansi" or "rgb_array".

    ## Randomness
    Each abacus has its own splitmix64 stream, which starts at
    `numpy.random.SeedSequence(seed).generate_state(1, numpy.uint64)[0]`; abacus i of a batch has
    the seed `seed + i`. A number below n is `((next >> 32) * n) >> 32`. An operand takes its
    length, then its digits from the least significant on, the leading one as 1 plus a number below
    base - 1. A random starting value is drawn before the first operation. With `operations="both"`
    a number below 2 (1: subtract) follows each operand. A reload draws the columns from 0 on.
    With tasks and a share above 0, an episode first draws a number below 2**32, which gives a task
    if it is below share * 2**32; then another, which gives the first task whose weight, added to
    those before it and divided by their sum, times 2**32 is larger.
    `reset` without a seed continues the stream.

    ## Info
    Every step: `action_mask`, `reward_terms`, `outcomes`, `illegal` (whether this action was),
    `end` (name of the end, "NONE" before it), `operations_done`, `operations_solved`,
    `illegal_actions`, `reloads`, `budget_left`.

    ## Versions
    - v0: first version.
    """

    # A plain dict, as in the base class: wrappers replace it on their instances.
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
        self._ended = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, Any]]:
        """Start an episode; without a seed, the random stream continues."""
        super().reset(seed=seed)
        self.batch.reset(seed)
        self._ended = False
        info = {"action_mask": self.action_masks(), **self._counts(End.NONE)}
        return self.batch.observation_copy(0), info

    def step(
        self, action: int | np.integer
    ) -> tuple[dict[str, npt.NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        """Carry out one action; raise ResetNeeded if the episode has ended."""
        if self._ended:
            raise gym.error.ResetNeeded("step() was called after the end of the episode: reset()")
        # index() rejects floats, which the array would truncate.
        self._actions[0] = index(action)
        batch = self.batch
        batch.step(self._actions)
        verdict: tuple[float, int, bool, bool, bool] = batch.verdicts.item()
        reward, end, terminated, truncated, illegal = verdict
        self._ended = terminated or truncated
        info = {
            "action_mask": self.action_masks(),
            "reward_terms": dict(zip(TERMS, batch.terms[0].tolist(), strict=True)),
            "outcomes": dict(zip(OUTCOMES, batch.outcomes[0].tolist(), strict=True)),
            "illegal": illegal,
            **self._counts(end),
        }
        return batch.observation_copy(0), reward, terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the action mask, (8,), True for legal actions."""
        mask: npt.NDArray[np.bool_] = self.batch.masks[0].copy()
        return mask

    def render(self) -> Any:
        """Return the abacus as text or as a picture, as `render_mode` says."""
        if self.render_mode is None:
            gym.logger.warn("render() needs gymnasium.make(..., render_mode='ansi' or 'rgb_array')")
            return None
        return render_abacus(self.batch, 0, self.render_mode)

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
    """Raise ValueError for an unknown render mode."""
    modes = AbacusEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise not_allowed("render_mode", render_mode, f"one of {', '.join(modes)}, or None")


def render_abacus(batch: AbacusBatch, index: int, render_mode: str) -> Any:
    """Return abacus `index` of a batch as text ("ansi") or as pixels ("rgb_array")."""
    view = view_of(batch, index)
    return render_ansi(view) if render_mode == "ansi" else render_rgb(view)
