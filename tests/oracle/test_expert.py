"""The expert in every state: from any state, it solves every operation that can still be solved.

An operation is solved if all its submits are right and the abacus shows its result at the reset. So
it can no longer be solved after a wrong submit, nor with beads moved during the reset. Everything
else can be corrected: finger and signpost, and any digits while the symbol is a digit.
Also, enough steps must be left to reach the next right slide or reset, which extends the budget.
These are at most `step_budget` and the way back, that is, the distances of finger and signpost from
their goals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abacus import kernel
from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL
from abacus.reward import OUTCOMES
from abacus.rules import AbacusConfig, Action, End
from benchmarks.trials import follow, random_trials
from oracle.algorithm import VARIANTS, Variant
from oracle.expert import expert_actions

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
ABACI = 64
NEVER = np.iinfo(np.int64).max
AMPLE = 1_000_000

widths = st.one_of(st.integers(2, 5), st.integers(6, 24))
seeds = st.integers(0, 2**32 - 1)
bases = st.integers(2, 10)
variants = st.sampled_from(VARIANTS)


def new_batch(
    rng: np.random.Generator, base: int, columns: int, on_error: str, reward: str = "dense"
) -> AbacusBatch:
    """Return abaci with two operations each, at the start of the first."""
    trials = random_trials(rng, base, columns, ABACI)
    config = AbacusConfig.from_dict(
        {
            "base": base,
            "columns": columns,
            "max_digits": columns - 1,
            "on_error": on_error,
            "reward": reward,
        }
    )
    return trials.batch(config)


def advance_randomly(batch: AbacusBatch, rng: np.random.Generator, variant: Variant) -> None:
    """Let the expert take a random number of steps in each abacus, short of the end."""
    steps_of_all = run(saved_copy(batch), variant).steps
    stops = rng.integers(0, steps_of_all)
    for step in range(int(stops.max())):
        actions = expert_actions(batch, variant)
        before = saved(batch)
        batch.step(actions)
        restore_rows(batch, before, stops <= step)


def saved(batch: AbacusBatch) -> kernel.World:
    return kernel.World(*(array.copy() for array in batch.world))


def restore_rows(batch: AbacusBatch, world: kernel.World, rows: npt.NDArray[np.bool_]) -> None:
    for mine, kept in zip(batch.world, world, strict=True):
        mine[rows] = kept[rows]
    write_masks(batch)


def write_masks(batch: AbacusBatch) -> None:
    """Write the action masks of the present states; the kernel does so after a step only."""
    scalars, config = batch.world.scalars, batch.config
    column, row, signpost = (scalars[key] for key in ("finger_column", "finger_row", "signpost"))
    digits = batch.world.cells["digit"][np.arange(batch.num_envs), column]
    legal = {
        Action.LEFT: column > 0,
        Action.RIGHT: column < config.columns - 1,
        Action.UP: row > 0,
        Action.DOWN: row < config.base - 1,
        Action.SIGNPOST_LEFT: signpost > 0,
        Action.SIGNPOST_RIGHT: signpost < config.columns - 1,
        Action.SLIDE: digits != row,
        Action.SUBMIT: np.ones(batch.num_envs),
    }
    for action, mask in legal.items():
        batch.out.results["mask"][:, action] = mask


def saved_copy(batch: AbacusBatch) -> AbacusBatch:
    """Return another batch in the same states, with a budget that never runs out."""
    copy = AbacusBatch(batch.config, batch.num_envs, autoreset=False)
    copy.program = batch.program
    copy.reset(0)
    restore_rows(copy, saved(batch), np.ones(ABACI, np.bool_))
    copy.world.scalars["budget"] = copy.world.scalars["steps"] + AMPLE
    return copy


def displace_finger_and_signpost(batch: AbacusBatch, rng: np.random.Generator) -> None:
    """Displace each in 80 % of the abaci, so that some have only one of them displaced."""
    scalars, n = batch.world.scalars, batch.num_envs
    anywhere = {
        "finger_column": rng.integers(0, batch.config.columns, n),
        "finger_row": rng.integers(0, batch.config.base, n),
        "signpost": rng.integers(0, batch.config.columns, n),
    }
    for name, places in anywhere.items():
        scalars[name] = np.where(rng.random(n) < 0.8, places, scalars[name])


def change_columns(batch: AbacusBatch, rng: np.random.Generator) -> None:
    """Set some columns to random digits."""
    cells = batch.world.cells
    shape = cells.shape
    changed = rng.random(shape) < rng.choice([0.0, 0.1, 0.5, 1.0], (shape[0], 1))
    cells["digit"] = np.where(changed, rng.integers(0, batch.config.base, shape), cells["digit"])
    count_wrong_columns(batch)


def count_wrong_columns(batch: AbacusBatch) -> None:
    """Update the kernel's two numbers about wrong columns."""
    wrong = batch.digits != batch.target
    batch.world.scalars["wrong_count"] = wrong.sum(axis=1)
    lowest = np.where(wrong.any(axis=1), wrong.argmax(axis=1), wrong.shape[1])
    batch.world.scalars["first_wrong"] = lowest


def way_back(batch: AbacusBatch) -> npt.NDArray[np.int64]:
    """Return the distances of finger and signpost from their goals, by the specification."""
    scalars, columns = batch.scalars, batch.config.columns
    j = scalars["digit_index"].astype(np.int64)
    home = np.maximum(j, 0)
    wrong = batch.digits != batch.target
    lowest_wrong = np.where(wrong.any(axis=1), wrong.argmax(axis=1), columns)
    at_home = scalars["signpost"] == home
    nothing_to_write = np.where(at_home, j + 1, j)
    to_write = (lowest_wrong <= j) | ((lowest_wrong < columns) & at_home)
    goal = np.where(to_write, lowest_wrong, nothing_to_write)
    goal = np.where(j == ON_OPERATION_SYMBOL, 0, goal)
    way: npt.NDArray[np.int64] = np.abs(scalars["finger_column"] - goal)
    way += np.abs(scalars["signpost"] - home)
    return way


@dataclass
class Run:
    """Results of the expert in each abacus, to the end of its operations."""

    wrong: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    first_grant: npt.NDArray[np.int64]
    first_submit: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    solved: npt.NDArray[np.int64]
    #: Whether the operation at the start of the run was solved, its reset included.
    current_solved: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


def run(batch: AbacusBatch, variant: Variant) -> Run:
    """Run the expert to the end. Steps of ended abaci are not counted."""
    n = batch.num_envs
    solved_before = batch.scalars["operations_solved"].astype(np.int64)
    done_before = batch.scalars["operations_done"].astype(np.int64)
    report = Run(
        wrong=np.zeros(n, np.bool_),
        steps=np.zeros(n, np.int64),
        first_grant=np.full(n, NEVER),
        first_submit=np.zeros(n, np.int64),
        ends=np.zeros(n, np.int64),
        solved=np.zeros(n, np.int64),
        current_solved=np.zeros(n, np.bool_),
    )
    running = np.ones(n, np.bool_)
    while running.any():
        budget = batch.scalars["budget"].copy()
        actions = expert_actions(batch, variant)
        assert batch.masks[np.arange(n), actions][running].all(), (
            "the expert chose an illegal action"
        )
        batch.step(actions)
        report.steps += running
        report.wrong |= running & (batch.illegal | (batch.outcomes < 0).any(axis=1))
        granted = running & (batch.scalars["budget"] > budget) & (report.first_grant == NEVER)
        report.first_grant[granted] = report.steps[granted]
        judged = running & (actions == Action.SUBMIT) & (report.first_submit == 0)
        report.first_submit[judged] = batch.outcomes[judged, OUTCOMES.index("submit")]
        solved = batch.scalars["operations_solved"] - solved_before
        closed = running & (batch.scalars["operations_done"] == done_before + 1)
        report.current_solved |= closed & (solved == 1)
        ended = running & (batch.ends != End.NONE)
        report.ends[ended] = batch.ends[ended]
        report.solved[ended] = solved[ended]
        running &= ~ended
    return report


def set_steps_left(batch: AbacusBatch, steps: npt.NDArray[np.int64]) -> None:
    batch.world.scalars["budget"] = batch.world.scalars["steps"] + steps


def assert_solves_on_the_last_step(batch: AbacusBatch, variant: Variant) -> None:
    """With the steps up to the next extension of the budget it solves all; with one less not."""
    state = saved(batch)
    everywhere = np.ones(ABACI, np.bool_)
    needed = run(saved_copy(batch), variant).first_grant
    assert (needed <= way_back(batch) + batch.config.step_budget).all()

    set_steps_left(batch, needed)
    operations_left = 2 - batch.scalars["operations_done"]
    report = run(batch, variant)
    assert not report.wrong.any()
    assert (report.ends == End.EXPRESSION).all()
    assert (report.solved == operations_left).all()

    restore_rows(batch, state, everywhere)
    set_steps_left(batch, needed - 1)
    assert (run(batch, variant).ends[needed > 1] == End.BUDGET).all()


@SETTINGS
@given(base=bases, columns=widths, seed=seeds, variant=variants)
def test_solves_from_any_finger_and_signpost_within_the_budget(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    """Columns hold the results of right slides only, as when mistakes end the episode."""
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "terminate")
    advance_randomly(batch, rng, variant)
    displace_finger_and_signpost(batch, rng)
    write_masks(batch)
    assert_solves_on_the_last_step(batch, variant)


@SETTINGS
@given(base=bases, columns=widths, seed=seeds, variant=variants)
def test_solves_with_any_digits_while_the_symbol_is_a_digit(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "continue")
    advance_randomly(batch, rng, variant)
    state = saved(batch)
    change_columns(batch, rng)
    restore_rows(batch, state, state.scalars["digit_index"] == ON_OPERATION_SYMBOL)
    displace_finger_and_signpost(batch, rng)
    write_masks(batch)
    assert_solves_on_the_last_step(batch, variant)


@SETTINGS
@given(base=bases, columns=widths, seed=seeds, variant=variants)
def test_fails_at_most_one_operation_with_beads_moved_during_the_reset(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "continue")
    advance_randomly(batch, rng, variant)
    change_columns(batch, rng)
    displace_finger_and_signpost(batch, rng)
    write_masks(batch)
    set_steps_left(batch, way_back(batch) + batch.config.step_budget)
    lost = (batch.scalars["digit_index"] == ON_OPERATION_SYMBOL) & (
        batch.scalars["wrong_count"] > 0
    )
    operations_left = 2 - batch.scalars["operations_done"]
    report = run(batch, variant)
    assert not report.wrong.any()
    assert (report.first_submit == 1).all()
    assert (report.current_solved == ~lost).all()
    assert (report.solved == operations_left - lost).all()


def act_randomly(batch: AbacusBatch, rng: np.random.Generator, steps: int) -> None:
    """Take random legal actions, with few submits; abaci that end are restored."""
    weights = np.array([4, 4, 4, 4, 2, 2, 4, 1])
    for _ in range(steps):
        chances = batch.masks * weights
        actions = np.array([rng.choice(8, p=row / row.sum()) for row in chances])
        before = saved(batch)
        batch.step(actions)
        restore_rows(batch, before, batch.ends != End.NONE)


@settings(SETTINGS, max_examples=12)
@given(
    base=bases,
    columns=st.integers(2, 14),
    seed=seeds,
    variant=variants,
    steps=st.integers(5, 31),
    world=st.sampled_from(
        [("continue", "dense"), ("terminate", "dense"), ("terminate", "answer_only")]
    ),
)
def test_solves_after_random_actions_if_enough_steps_are_left(
    base: int, columns: int, seed: int, variant: Variant, steps: int, world: tuple[str, str]
) -> None:
    """The others run out of steps, without a mistake."""
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, *world)
    act_randomly(batch, rng, steps)
    scalars = batch.scalars
    on_digit = scalars["digit_index"] != ON_OPERATION_SYMBOL
    solvable = scalars["solving"] & (on_digit | (scalars["wrong_count"] == 0))
    enough = run(saved_copy(batch), variant).first_grant <= scalars["budget"] - scalars["steps"]
    report = run(batch, variant)
    assert not report.wrong.any()
    assert (report.first_submit[enough] == 1).all()
    assert (report.current_solved == (enough & solvable)).all()
    assert (report.ends[~enough] == End.BUDGET).all()


def test_random_actions_lead_to_solvable_and_unsolvable_operations() -> None:
    """The test above covers both cases."""
    rng = np.random.default_rng(0)
    batch = new_batch(rng, 5, 10, "continue")
    act_randomly(batch, rng, steps=31)
    scalars = batch.scalars
    needed = run(saved_copy(batch), "before").first_grant
    enough = needed <= scalars["budget"] - scalars["steps"]
    assert 10 <= enough.sum() <= ABACI - 10
    assert 10 <= scalars["solving"].sum() <= ABACI - 10
    assert (scalars["wrong_count"] > 0).sum() >= 10


LEFT, RIGHT, UP, DOWN = Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN
TO_LEFT, TO_RIGHT = Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT
SLIDE, SUBMIT = Action.SLIDE, Action.SUBMIT
#: Columns while 111 is added to 0 in base 5, at its second digit: before and after this digit is
#: written, with a wrong column below, and with a wrong column above.
FIRST_WRITTEN, SECOND_WRITTEN = (1, 0, 0, 0, 0), (1, 1, 0, 0, 0)
WRONG_BELOW, WRONG_ABOVE = (4, 0, 0, 0, 0), (1, 1, 0, 2, 0)
#: (digits, finger's column and row, signpost) and the actions of `before` and `printed`.
OFF_THE_PATH = {
    "a displaced finger goes to the digit's column": (FIRST_WRITTEN, (4, 2), 1, LEFT, LEFT),
    "also from the left, before the signpost moves": (FIRST_WRITTEN, (0, 1), 0, RIGHT, RIGHT),
    "a signpost too far comes back": (FIRST_WRITTEN, (1, 1), 3, TO_LEFT, SLIDE),
    "a signpost left behind catches up": (FIRST_WRITTEN, (1, 1), 0, TO_RIGHT, SLIDE),
    "to its row first, if the signpost comes after": (
        FIRST_WRITTEN,
        (1, 3),
        0,
        TO_RIGHT,
        UP,
    ),
    "a displaced signpost moves after the write": (
        SECOND_WRITTEN,
        (1, 1),
        4,
        TO_LEFT,
        TO_LEFT,
    ),
    "for which the finger returns": (SECOND_WRITTEN, (3, 1), 4, LEFT, LEFT),
    "when all is right, the finger moves right": (SECOND_WRITTEN, (1, 1), 1, RIGHT, RIGHT),
    "or returns": (SECOND_WRITTEN, (4, 1), 1, LEFT, LEFT),
    "and it submits there, on any row": (SECOND_WRITTEN, (2, 4), 1, SUBMIT, SUBMIT),
    "a wrong column below comes first": (WRONG_BELOW, (1, 1), 0, LEFT, LEFT),
    "before the signpost moves": (WRONG_BELOW, (0, 3), 4, UP, UP),
    "and is written": (WRONG_BELOW, (0, 1), 4, SLIDE, SLIDE),
    "a wrong column above waits for the signpost": (WRONG_ABOVE, (3, 0), 0, LEFT, LEFT),
    "and is corrected then": (WRONG_ABOVE, (3, 0), 1, SLIDE, SLIDE),
    "to which the finger goes": (WRONG_ABOVE, (1, 0), 1, RIGHT, RIGHT),
}
#: The same during the reset that follows: wrong columns can wait.
OFF_THE_PATH_ON_THE_RESET = {
    "the finger goes left": (SECOND_WRITTEN, (3, 1), 2, LEFT, LEFT),
    "then the signpost": (SECOND_WRITTEN, (0, 1), 2, TO_LEFT, TO_LEFT),
    "then it submits": (SECOND_WRITTEN, (0, 4), 0, SUBMIT, SUBMIT),
    "also with wrong columns": (WRONG_BELOW, (0, 1), 0, SUBMIT, SUBMIT),
}
State = tuple[tuple[int, ...], tuple[int, int], int, Action, Action]


def actions_in(state: State, submits: int) -> tuple[Action, Action]:
    """Return the actions of both variants in a state, after the first submits of + 111."""
    digits, (column, row), signpost, *_ = state
    batch = AbacusBatch(AbacusConfig(columns=5, expression="31", on_error="continue"), 1)
    batch.reset(0)
    while submits:
        action = expert_actions(batch)
        batch.step(action)
        submits -= int(action[0] == SUBMIT)
    batch.world.cells["digit"][0] = digits
    count_wrong_columns(batch)
    for name, place in (("finger_column", column), ("finger_row", row), ("signpost", signpost)):
        batch.world.scalars[name] = place
    before, printed = (expert_actions(batch, variant)[0] for variant in VARIANTS)
    return Action(before), Action(printed)


@pytest.mark.parametrize("what", OFF_THE_PATH)
def test_actions_off_the_path_on_a_digit(what: str) -> None:
    state = OFF_THE_PATH[what]
    assert actions_in(state, submits=1) == state[-2:]


@pytest.mark.parametrize("what", OFF_THE_PATH_ON_THE_RESET)
def test_actions_off_the_path_during_a_reset(what: str) -> None:
    state = OFF_THE_PATH_ON_THE_RESET[what]
    assert actions_in(state, submits=3) == state[-2:]


def changed_abacus(**changes: int) -> AbacusBatch:
    batch = AbacusBatch(AbacusConfig(), 3)
    batch.reset(0)
    for name, value in changes.items():
        batch.world.scalars[name][1] = value
    return batch


@pytest.mark.parametrize(
    "changes",
    [
        {"finger_column": 10},
        {"finger_column": -1},
        {"finger_row": 5},
        {"signpost": 10},
        {"symbol": 5},
        {"symbol": -1},
        {"operation": 2},
        {"digit_index": -2},
        {"digit_index": 9},
        {"digit_index": ON_OPERATION_SYMBOL},
        {"operand_length": 0},
        {"wrong_count": -1},
        {"first_wrong": 9},
        {"wrong_count": 0, "first_wrong": 0},
    ],
)
def test_an_unreachable_state_is_refused(changes: dict[str, int]) -> None:
    batch = changed_abacus(**changes)
    with pytest.raises(ValueError, match="abacus 1 is in an unreachable state"):
        expert_actions(batch)
    with pytest.raises(ValueError, match="abacus 1 is in an unreachable state"):
        follow(batch, 1)


def test_a_batch_that_was_never_reset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"abacus 0 .* reset the batch"):
        expert_actions(AbacusBatch(AbacusConfig(), 2))


def test_follow_needs_autoreset() -> None:
    batch = AbacusBatch(AbacusConfig(), 2, autoreset=False)
    batch.reset(0)
    with pytest.raises(ValueError, match="autoreset=False"):
        follow(batch, 1)


def test_follow_equals_stepping_with_the_experts_actions() -> None:
    stepped, followed = (AbacusBatch(AbacusConfig(), 32) for _ in range(2))
    for batch in (stepped, followed):
        batch.reset(7)
    for _ in range(300):
        stepped.step(expert_actions(stepped, "printed"))
    follow(followed, 300, "printed")
    for one, other in zip(stepped.world, followed.world, strict=True):
        assert np.array_equal(one, other)
