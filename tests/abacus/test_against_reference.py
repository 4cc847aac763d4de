"""Compare the compiled batch with the slow reference implementation, step by step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, get_args

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from abacus.batch import AbacusBatch
from abacus.rules import AbacusConfig, Action, End, Operations
from tests.abacus.slow_reference import EVERY_MODULE, LEVELS, OUTCOMES, TERMS, SlowAbacus

WALKS = 200
STEPS_PER_WALK = 1000
STEPS_PER_CORNER = 2000
REQUIRED_STEPS = 200_000
REWARD_TOLERANCE = 1e-6
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    database=None,
    # The explain phase repeats a failure many times; the message of a difference says more.
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
Player = Callable[[SlowAbacus, random.Random], int]
SCALARS = (
    "finger_column",
    "finger_row",
    "signpost",
    "digit_index",
    "symbol",
    "operation",
    "budget",
    "steps",
    "operations_done",
    "operations_solved",
    "illegal_actions",
    "reloads",
)
#: Events that the comparison must cover, counted when both implementations have met them.
MUST_BE_MET = (
    *(end.name for end in End if end is not End.NONE),
    "MISTAKE and EXPRESSION",
    "MISTAKE and CAPACITY",
    "MISTAKE and LIMIT",
    "MISTAKE and BUDGET",
    "EXPRESSION and LIMIT",
    "EXPRESSION and BUDGET",
    "CAPACITY and LIMIT",
    "CAPACITY and BUDGET",
    "LIMIT and BUDGET",
    "carry of 3 or more",
    "borrow",
    "borrow of 3 or more",
    "reload at the start",
    "reload at a reset",
    "wrong submit that went on",
    "illegal action",
    "operation solved",
    "operation done, not solved",
    "given addition that left the abacus",
    "given subtraction that left the abacus",
)
#: Small configurations with simultaneous ends, long carries and values at both limits. They cover
#: MUST_BE_MET, whatever examples a version of hypothesis generates.
CORNERS: tuple[dict[str, Any], ...] = (
    {"columns": 3, "base": 2, "max_digits": 2, "operations": "add", "start": 4},
    {"columns": 3, "base": 2, "max_digits": 2, "operations": "add", "start": 4, "reward": "submit"},
    {"columns": 3, "base": 3, "max_digits": 2, "start": 18, "max_operations": 1},
    {"columns": 3, "base": 2, "max_digits": 2, "max_operations": 1, "reward": "answer_only"},
    {"columns": 3, "base": 3, "max_digits": 2, "on_error": "continue", "max_operations": 1},
    {"columns": 3, "base": 2, "max_digits": 2, "start": 7},
    {"columns": 7, "base": 2, "max_digits": 6, "start": "random", "reward": "no_of_sp"},
    {"columns": 6, "base": 3, "max_digits": 5, "operations": "subtract", "on_error": "continue"},
    {"columns": 3, "base": 4, "expression": "9", "max_operations": 1, "reward": "no_of"},
    {"columns": 3, "base": 3, "expression": "8-8+8+8+8", "on_error": "continue"},
    {"columns": 3, "base": 10, "expression": "13", "on_error": "continue", "max_operations": 1},
)
CORNER_PLAYERS = (
    "rash submitter",
    "reset dawdler",
    "often slipping",
    "never slipping",
    "anything legal",
)


@st.composite
def rewards(draw: st.DrawFn) -> str | tuple[str, ...]:
    if draw(st.booleans()):
        return draw(st.sampled_from(sorted(LEVELS)))
    names = draw(st.lists(st.sampled_from(sorted(EVERY_MODULE)), unique=True))
    if draw(st.booleans()) and names:
        return ",".join(names)
    return tuple(names)


@st.composite
def expressions(draw: st.DrawFn, base: int, columns: int, start: int) -> str:
    """Draw an expression whose running value stays on the abacus."""
    value = start
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        subtract = draw(st.booleans())
        room = value if subtract else base**columns - 1 - value
        longest = min(room, base ** (columns - 1) - 1)
        operand = draw(st.one_of(st.just(longest), st.integers(0, longest)))
        value += -operand if subtract else operand
        sign = "-" if subtract else draw(st.sampled_from(["+", " + "])) if text else ""
        text += sign + draw(st.sampled_from(["", "", "0"])) + str(operand)
    return text


@st.composite
def configurations(draw: st.DrawFn) -> AbacusConfig:
    base = draw(st.integers(2, 10))
    columns = draw(st.one_of(st.integers(2, 14), st.integers(2, 5), st.sampled_from([25, 32])))
    max_digits = draw(st.one_of(st.integers(1, columns - 1), st.just(columns - 1)))
    operations: Operations = draw(st.sampled_from(get_args(Operations)))
    with_expression = draw(st.sampled_from([False, False, True]))
    highest = base**columns - 1
    if operations == "add" and not with_expression:
        highest = base**columns - base**max_digits
    given_start = st.one_of(st.just(0), st.integers(0, highest), st.just(highest))
    start = draw(given_start if with_expression else st.one_of(st.just("random"), given_start))
    return AbacusConfig(
        columns=columns,
        base=base,
        max_digits=max_digits,
        frames=draw(st.integers(1, 6)),
        operations=operations,
        reward=draw(rewards()),
        on_error=draw(st.sampled_from(["terminate", "continue"])),
        start=start,
        expression=draw(expressions(base, columns, start)) if with_expression else None,
        max_operations=draw(st.one_of(st.none(), st.integers(1, 4))),
    )


def sensible(reference: SlowAbacus) -> Action:
    """Return a correct action: signpost first, then the lowest wrong column."""
    goal = reference.where_the_signpost_belongs()
    if reference.signpost != goal:
        return Action.SIGNPOST_RIGHT if reference.signpost < goal else Action.SIGNPOST_LEFT
    result = reference.digits_of(reference.partial_result(), reference.columns)
    if reference.on_operation_symbol or reference.digits == result:
        return Action.SUBMIT
    column = next(k for k in range(reference.columns) if reference.digits[k] != result[k])
    if reference.finger_column != column:
        return Action.RIGHT if reference.finger_column < column else Action.LEFT
    if reference.finger_row != result[column]:
        return Action.DOWN if reference.finger_row < result[column] else Action.UP
    return Action.SLIDE


def anything(reference: SlowAbacus, rng: random.Random) -> int:
    return rng.randrange(len(Action))


def anything_legal(reference: SlowAbacus, rng: random.Random) -> int:
    return rng.choice([action for action in Action if reference.mask[action]])


def wandering_finger(reference: SlowAbacus, rng: random.Random) -> int:
    return rng.randrange(Action.SIGNPOST_LEFT)


def slipping(chance: float, slip: Player = anything) -> Player:
    """A mostly correct player with random mistakes."""

    def play(reference: SlowAbacus, rng: random.Random) -> int:
        return slip(reference, rng) if rng.random() < chance else sensible(reference)

    return play


def rash_submitter(reference: SlowAbacus, rng: random.Random) -> int:
    chance = 0.4 if reference.on_operation_symbol else 0.01
    return Action.SUBMIT if rng.random() < chance else sensible(reference)


def reset_dawdler(reference: SlowAbacus, rng: random.Random) -> int:
    """A player that never moves the signpost back and submits resets at the end of the budget."""
    if reference.on_operation_symbol:
        return wandering_finger(reference, rng)
    return sensible(reference)


PLAYERS: dict[str, Player] = {
    "anything": anything,
    "anything legal": anything_legal,
    "wandering": slipping(0.9, wandering_finger),
    "often slipping": slipping(0.2),
    "seldom slipping": slipping(0.02),
    "never slipping": slipping(0.0),
    "rash submitter": rash_submitter,
    "reset dawdler": reset_dawdler,
}


def play(player: str, reference: SlowAbacus, rng: random.Random) -> int:
    # Ends coincide at the last step of the budget, where a random player rarely submits.
    if reference.steps == reference.budget - 1 and rng.random() < 0.5:
        return Action.SUBMIT
    return PLAYERS[player](reference, rng)


def state_of_reference(reference: SlowAbacus) -> dict[str, Any]:
    return {
        "digits": reference.digits,
        "mask": reference.mask,
        "end": reference.end,
        **{name: getattr(reference, name) for name in SCALARS},
    }


def state_of_batch(batch: AbacusBatch, i: int) -> dict[str, Any]:
    names = batch.scalars.dtype.names or ()
    scalars = dict(zip(names, batch.scalars[i].item(), strict=True))
    return {
        "digits": batch.digits[i].tolist(),
        "mask": batch.masks[i].tolist(),
        "end": batch.ends[i].item(),
        **{name: scalars[name] for name in SCALARS},
    }


def judgement_of_reference(reference: SlowAbacus) -> dict[str, Any]:
    terms = np.array([reference.terms[name] for name in TERMS], dtype=np.float32)
    return {
        "outcomes": [reference.outcomes[name] for name in OUTCOMES],
        "terms": terms.tolist(),
        "illegal": reference.illegal,
        "terminated": reference.terminated,
        "truncated": reference.truncated,
    }


def judgement_of_batch(batch: AbacusBatch, i: int) -> dict[str, Any]:
    return {
        "outcomes": batch.outcomes[i].tolist(),
        "terms": batch.terms[i].tolist(),
        "illegal": batch.illegal[i].item(),
        "terminated": batch.terminated[i].item(),
        "truncated": batch.truncated[i].item(),
    }


def assert_same(compiled: dict[str, Any], expected: dict[str, Any], story: Story) -> None:
    if compiled != expected:
        differences = [
            f"{name} is {compiled[name]}, not {expected[name]}"
            for name in expected
            if compiled[name] != expected[name]
        ]
        raise AssertionError(f"{'; '.join(differences)}\n{story}")


def assert_same_view(batch: AbacusBatch, i: int, reference: SlowAbacus, story: Story) -> None:
    assert batch.observation.keys() == reference.observation.keys(), story
    for key, expected in reference.observation.items():
        seen = batch.observation[key][i]
        assert seen.dtype == expected.dtype == np.float32, story
        if seen.shape != expected.shape or seen.tobytes() != expected.tobytes():
            raise AssertionError(f"{key} is\n{seen}, not\n{expected}\n{story}")
    assert_same(state_of_batch(batch, i), state_of_reference(reference), story)


def assert_same_step(batch: AbacusBatch, i: int, reference: SlowAbacus, story: Story) -> None:
    assert_same(judgement_of_batch(batch, i), judgement_of_reference(reference), story)
    assert abs(batch.reward[i].item() - reference.reward) <= REWARD_TOLERANCE, story
    assert_same_view(batch, i, reference, story)


def changed_columns_above(reference: SlowAbacus) -> int:
    """Return the length of the carry of the digit shown, in columns."""
    j = reference.digit_index
    before = reference.digits_of(reference.result_after(j), reference.columns)
    after = reference.digits_of(reference.result_after(j + 1), reference.columns)
    return sum(before[k] != after[k] for k in range(j + 1, reference.columns))


@dataclass
class Story:
    """Return what reproduces a difference."""

    config: AbacusConfig
    seed: int
    episodes: list[list[Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.config}, seed {self.seed}, actions of each episode: {self.episodes}"


class Tally:
    """Counts the events met, so that comparisons without the difficult ones cannot pass."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.in_hand: list[str] = []

    def note_reset(self, reference: SlowAbacus) -> None:
        self.counts["reload at the start"] += reference.reloads
        self.seen = (0, 0, reference.reloads)

    def note_before(self, reference: SlowAbacus, action: int) -> None:
        if action == Action.SUBMIT and not reference.on_operation_symbol:
            name = "borrow" if reference.operation else "carry"
            length = changed_columns_above(reference)
            self.in_hand = [name] * (length > 0) + [f"{name} of 3 or more"] * (length >= 3)

    def note_step(self, reference: SlowAbacus) -> None:
        self.counts["steps"] += 1
        self.counts["illegal action"] += reference.illegal
        self.note_counters(reference)
        self.note_submit(reference)
        if reference.end is not End.NONE:
            self.counts[reference.end.name] += 1
        if reference.end is End.CAPACITY and reference.program is not None:
            name = "subtraction" if reference.operation else "addition"
            self.counts[f"given {name} that left the abacus"] += 1
        self.note_meeting_ends(reference.ends_met)

    def note_counters(self, reference: SlowAbacus) -> None:
        seen_done, seen_solved, seen_reloads = self.seen
        solved = reference.operations_solved - seen_solved
        self.counts["operation solved"] += solved
        self.counts["operation done, not solved"] += reference.operations_done - seen_done - solved
        self.counts["reload at a reset"] += reference.reloads - seen_reloads
        self.seen = (reference.operations_done, reference.operations_solved, reference.reloads)

    def note_submit(self, reference: SlowAbacus) -> None:
        if reference.outcomes["submit"] == 1:
            self.counts.update(self.in_hand)
        elif reference.outcomes["submit"] == -1 and reference.config.on_error == "continue":
            self.counts["wrong submit that went on"] += reference.end is End.NONE
        self.in_hand = []

    def note_meeting_ends(self, ends: set[End]) -> None:
        names = {"MISTAKE" if end.name.startswith("WRONG_") else end.name for end in ends}
        for first in names:
            for second in names - {first}:
                self.counts[f"{first} and {second}"] += 1


def walk(config: AbacusConfig, seed: int, players: Sequence[str], steps: int, tally: Tally) -> None:
    """Compare one abacus over many episodes; each is played by the next of the players."""
    batch = AbacusBatch(config, num_envs=1, autoreset=False)
    reference = SlowAbacus(config)
    rng = random.Random(seed)
    turns = cycle(players)
    story = Story(config, seed)
    for step in range(steps):
        if step == 0 or reference.end is not End.NONE:
            seed_or_none = seed if step == 0 else None
            batch.reset(seed_or_none)
            reference.reset(seed_or_none)
            player = next(turns)
            story.episodes.append([])
            assert_same_view(batch, 0, reference, story)
            tally.note_reset(reference)
        action = int(play(player, reference, rng))
        tally.note_before(reference, action)
        story.episodes[-1].append(action)
        batch.step(np.array([action]))
        reference.step(action)
        assert_same_step(batch, 0, reference, story)
        tally.note_step(reference)


def test_kernel_never_differs_from_the_reference() -> None:
    """Also check the numbers of steps and of events; see MUST_BE_MET."""
    tally = Tally()

    for settings_of_world in CORNERS:
        config = AbacusConfig.from_dict(settings_of_world)
        walk(config, seed=0, players=CORNER_PLAYERS, steps=STEPS_PER_CORNER, tally=tally)

    @settings(SETTINGS, max_examples=WALKS)
    @given(
        config=configurations(),
        seed=st.integers(0, 2**32 - 1),
        players=st.lists(st.sampled_from(sorted(PLAYERS)), min_size=1, max_size=4),
    )
    def compare(config: AbacusConfig, seed: int, players: list[str]) -> None:
        walk(config, seed, players, STEPS_PER_WALK, tally)

    compare()
    assert tally.counts["steps"] >= REQUIRED_STEPS
    assert [what for what in MUST_BE_MET if not tally.counts[what]] == []


@settings(SETTINGS, max_examples=60)
@given(
    config=configurations(),
    seed=st.integers(0, 2**32 - 1),
    num_envs=st.integers(2, 5),
    player=st.sampled_from(sorted(PLAYERS)),
)
def test_abaci_of_a_batch_are_independent(
    config: AbacusConfig, seed: int, num_envs: int, player: str
) -> None:
    """Compare abacus i with the single abacus of seed + i; reset all when the first one ends."""
    batch = AbacusBatch(config, num_envs=num_envs, autoreset=False)
    references = [SlowAbacus(config) for _ in range(num_envs)]
    rng = random.Random(seed)
    story = Story(config, seed)
    for step in range(50):
        if step == 0 or any(reference.end is not End.NONE for reference in references):
            batch.reset(seed if step == 0 else None)
            for i, reference in enumerate(references):
                reference.reset(seed + i if step == 0 else None)
                assert_same_view(batch, i, reference, story)
            story.episodes.append([])
        actions = [int(play(player, reference, rng)) for reference in references]
        story.episodes[-1].append(actions)
        batch.step(np.array(actions))
        for i, reference in enumerate(references):
            reference.step(actions[i])
            assert_same_step(batch, i, reference, story)
