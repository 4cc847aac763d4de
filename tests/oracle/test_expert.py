"""The teacher in every state: from wherever it is put, it wins what can still be won.

*What can still be won.* An operation is solved if all its submits are right and the abacus shows
its result at the reset. So it can no longer be won after a wrong submit, nor with beads slid while
the reset is asked for. Everything else can be put right: a lost finger, a lost signpost, any digits
on the columns while a digit is shown. And the steps must suffice: at least as many must be left
as the teacher needs to its next right slide or right reset, which grants more. These are never
more than `step_budget` and the way back, that is, the columns between the finger and where it
belongs and those between the signpost and where it belongs.
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
from benchmarks.trials import random_trials
from oracle.algorithm import VARIANTS, Variant
from oracle.expert import expert_actions, follow

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
    """Abaci with two operations each; the first is at a random step of the teacher."""
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


def walk_into(batch: AbacusBatch, rng: np.random.Generator, variant: Variant) -> None:
    """Lets the teacher take a random number of steps in each abacus, short of the end."""
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
    kernel.show(batch.rules, batch.pixels, batch.world, batch.out, np.arange(ABACI, dtype=np.int32))


def saved_copy(batch: AbacusBatch) -> AbacusBatch:
    """Another batch in the same states, with steps enough for anything."""
    copy = AbacusBatch(batch.config, batch.num_envs, autoreset=False)
    copy.program = batch.program
    copy.reset(0)
    restore_rows(copy, saved(batch), np.ones(ABACI, np.bool_))
    copy.world.scalars["budget"] = copy.world.scalars["steps"] + AMPLE
    return copy


def lose_finger_and_signpost(batch: AbacusBatch, rng: np.random.Generator) -> None:
    """Puts both anywhere, in most abaci; the others keep them, so that each is also lost alone."""
    scalars, n = batch.world.scalars, batch.num_envs
    anywhere = {
        "finger_column": rng.integers(0, batch.config.columns, n),
        "finger_row": rng.integers(0, batch.config.base, n),
        "signpost": rng.integers(0, batch.config.columns, n),
    }
    for name, places in anywhere.items():
        scalars[name] = np.where(rng.random(n) < 0.8, places, scalars[name])


def spoil_columns(batch: AbacusBatch, rng: np.random.Generator) -> None:
    """Puts any digits on some columns."""
    cells = batch.world.cells
    shape = cells.shape
    spoilt = rng.random(shape) < rng.choice([0.0, 0.1, 0.5, 1.0], (shape[0], 1))
    cells["digit"] = np.where(spoilt, rng.integers(0, batch.config.base, shape), cells["digit"])
    count_wrong_columns(batch)


def count_wrong_columns(batch: AbacusBatch) -> None:
    """The kernel's two numbers about columns follow what was put there."""
    wrong = batch.digits != batch.target
    batch.world.scalars["wrong_count"] = wrong.sum(axis=1)
    lowest = np.where(wrong.any(axis=1), wrong.argmax(axis=1), wrong.shape[1])
    batch.world.scalars["first_wrong"] = lowest


def way_back(batch: AbacusBatch) -> npt.NDArray[np.int64]:
    """Columns between finger and signpost and where they belong, by the specification's words."""
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
    """What the teacher did in each abacus, from where it stood to the end of its operations."""

    wrong: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    first_grant: npt.NDArray[np.int64]
    first_submit: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    solved: npt.NDArray[np.int64]
    #: Whether the operation under way (its reset included) was solved.
    current_solved: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


def run(batch: AbacusBatch, variant: Variant) -> Run:
    """Follows the teacher to the end. Ended abaci go on in the batch, but not in the report."""
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
        assert batch.masks[np.arange(n), actions][running].all(), "the teacher did what is illegal"
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


def show(batch: AbacusBatch) -> None:
    restore_rows(batch, batch.world, np.zeros(ABACI, np.bool_))


def assert_wins_on_the_last_step(batch: AbacusBatch, variant: Variant) -> None:
    """With as many steps left as reach the next grant it solves all; with one less it cannot."""
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
def test_wins_from_any_finger_and_signpost_within_the_steps(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    """Columns as right slides alone leave them: what mistakes that end an episode allow."""
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "terminate")
    walk_into(batch, rng, variant)
    lose_finger_and_signpost(batch, rng)
    show(batch)
    assert_wins_on_the_last_step(batch, variant)


@SETTINGS
@given(base=bases, columns=widths, seed=seeds, variant=variants)
def test_wins_with_any_digits_on_the_columns_while_a_digit_is_shown(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "continue")
    walk_into(batch, rng, variant)
    state = saved(batch)
    spoil_columns(batch, rng)
    restore_rows(batch, state, state.scalars["digit_index"] == ON_OPERATION_SYMBOL)
    lose_finger_and_signpost(batch, rng)
    show(batch)
    assert_wins_on_the_last_step(batch, variant)


@SETTINGS
@given(base=bases, columns=widths, seed=seeds, variant=variants)
def test_loses_one_operation_at_most_with_beads_slid_during_the_reset(
    base: int, columns: int, seed: int, variant: Variant
) -> None:
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, "continue")
    walk_into(batch, rng, variant)
    spoil_columns(batch, rng)
    lose_finger_and_signpost(batch, rng)
    show(batch)
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


def stumble(batch: AbacusBatch, rng: np.random.Generator, steps: int) -> None:
    """Random legal actions, fewer submits than chance would have; abaci that end stay put."""
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
def test_wins_from_where_random_actions_lead_while_there_are_steps(
    base: int, columns: int, seed: int, variant: Variant, steps: int, world: tuple[str, str]
) -> None:
    """With the steps that are left in truth; the others run out, still without a mistake."""
    rng = np.random.default_rng(seed)
    batch = new_batch(rng, base, columns, *world)
    stumble(batch, rng, steps)
    scalars = batch.scalars
    on_digit = scalars["digit_index"] != ON_OPERATION_SYMBOL
    unspoilt = scalars["solving"] & (on_digit | (scalars["wrong_count"] == 0))
    enough = run(saved_copy(batch), variant).first_grant <= scalars["budget"] - scalars["steps"]
    report = run(batch, variant)
    assert not report.wrong.any()
    assert (report.first_submit[enough] == 1).all()
    assert (report.current_solved == (enough & unspoilt)).all()
    assert (report.ends[~enough] == End.BUDGET).all()


def test_random_actions_leave_many_abaci_that_can_be_won_and_some_that_cannot() -> None:
    """What the test above is about, so that it cannot pass on nothing."""
    rng = np.random.default_rng(0)
    batch = new_batch(rng, 5, 10, "continue")
    stumble(batch, rng, steps=31)
    scalars = batch.scalars
    needed = run(saved_copy(batch), "before").first_grant
    enough = needed <= scalars["budget"] - scalars["steps"]
    assert 10 <= enough.sum() <= ABACI - 10
    assert 10 <= scalars["solving"].sum() <= ABACI - 10
    assert (scalars["wrong_count"] > 0).sum() >= 10


LEFT, RIGHT, UP, DOWN = Action.LEFT, Action.RIGHT, Action.UP, Action.DOWN
TO_LEFT, TO_RIGHT = Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT
SLIDE, SUBMIT = Action.SLIDE, Action.SUBMIT
#: What columns show while 111 is added to 0 in base 5 and its second digit is shown, and when
#: that one is written too; then with a wrong column below, and with one above.
FIRST_WRITTEN, SECOND_WRITTEN = (1, 0, 0, 0, 0), (1, 1, 0, 0, 0)
WRONG_BELOW, WRONG_ABOVE = (4, 0, 0, 0, 0), (1, 1, 0, 2, 0)
#: (digits, finger's column and row, signpost) and the answers of `before` and `printed`.
OFF_THE_PATH = {
    "a lost finger walks to the digit's column": (FIRST_WRITTEN, (4, 2), 1, LEFT, LEFT),
    "from the left too, before the signpost": (FIRST_WRITTEN, (0, 1), 0, RIGHT, RIGHT),
    "a signpost too far comes back": (FIRST_WRITTEN, (1, 1), 3, TO_LEFT, SLIDE),
    "a signpost left behind catches up": (FIRST_WRITTEN, (1, 1), 0, TO_RIGHT, SLIDE),
    "to the row first, if the signpost comes after": (FIRST_WRITTEN, (1, 3), 0, TO_RIGHT, UP),
    "a lost signpost is the last thing to write": (SECOND_WRITTEN, (1, 1), 4, TO_LEFT, TO_LEFT),
    "for which the finger comes": (SECOND_WRITTEN, (3, 1), 4, LEFT, LEFT),
    "all done, the finger steps right": (SECOND_WRITTEN, (1, 1), 1, RIGHT, RIGHT),
    "or comes back": (SECOND_WRITTEN, (4, 1), 1, LEFT, LEFT),
    "and submits there, on any row": (SECOND_WRITTEN, (2, 4), 1, SUBMIT, SUBMIT),
    "a wrong column below comes first": (WRONG_BELOW, (1, 1), 0, LEFT, LEFT),
    "before the signpost": (WRONG_BELOW, (0, 3), 4, UP, UP),
    "and is written": (WRONG_BELOW, (0, 1), 4, SLIDE, SLIDE),
    "a wrong column above waits for the signpost": (WRONG_ABOVE, (3, 0), 0, LEFT, LEFT),
    "and is put right then": (WRONG_ABOVE, (3, 0), 1, SLIDE, SLIDE),
    "from where the finger is": (WRONG_ABOVE, (1, 0), 1, RIGHT, RIGHT),
}
#: The same on the reset that follows: wrong columns can wait.
OFF_THE_PATH_ON_THE_RESET = {
    "the finger walks left": (SECOND_WRITTEN, (3, 1), 2, LEFT, LEFT),
    "then the signpost": (SECOND_WRITTEN, (0, 1), 2, TO_LEFT, TO_LEFT),
    "then it submits": (SECOND_WRITTEN, (0, 4), 0, SUBMIT, SUBMIT),
    "over wrong columns too": (WRONG_BELOW, (0, 1), 0, SUBMIT, SUBMIT),
}
State = tuple[tuple[int, ...], tuple[int, int], int, Action, Action]


def answers_in(state: State, submits: int) -> tuple[Action, Action]:
    """The answers of both variants in a state, after the teacher's first submits of +111."""
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
def test_answers_off_the_path_while_a_digit_is_shown(what: str) -> None:
    state = OFF_THE_PATH[what]
    assert answers_in(state, submits=1) == state[-2:]


@pytest.mark.parametrize("what", OFF_THE_PATH_ON_THE_RESET)
def test_answers_off_the_path_on_a_reset(what: str) -> None:
    state = OFF_THE_PATH_ON_THE_RESET[what]
    assert answers_in(state, submits=3) == state[-2:]


def spoilt_abacus(**changes: int) -> AbacusBatch:
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
def test_a_state_that_there_is_not_is_refused(changes: dict[str, int]) -> None:
    batch = spoilt_abacus(**changes)
    with pytest.raises(ValueError, match="abacus 1 is in a state that the environment cannot be"):
        expert_actions(batch)
    with pytest.raises(ValueError, match="abacus 1 is in a state"):
        follow(batch, 1)


def test_a_batch_that_was_never_reset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"abacus 0 .* reset the batch"):
        expert_actions(AbacusBatch(AbacusConfig(), 2))


def test_follow_needs_abaci_that_start_anew() -> None:
    batch = AbacusBatch(AbacusConfig(), 2, autoreset=False)
    batch.reset(0)
    with pytest.raises(ValueError, match="autoreset=False"):
        follow(batch, 1)


def test_follow_is_stepping_with_the_teachers_actions() -> None:
    stepped, followed = (AbacusBatch(AbacusConfig(), 32) for _ in range(2))
    for batch in (stepped, followed):
        batch.reset(7)
    for _ in range(300):
        stepped.step(expert_actions(stepped, "printed"))
    follow(followed, 300, "printed")
    for one, other in zip(stepped.world, followed.world, strict=True):
        assert np.array_equal(one, other)
