"""The single environment: Gymnasium's checkers, seeds, masks, ends, infos, copies, rendering."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import random
import re
import warnings
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env

from abacus.env import AbacusEnv
from abacus.observation import observation_lengths
from abacus.reward import LEVELS, MODULES, OUTCOMES, TERMS
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import digits_of, value_of
from tests.abacus.players import random_action, right_action

DEFAULTS = {
    name: parameter.default for name, parameter in inspect.signature(AbacusEnv).parameters.items()
}

#: Every setting with another value than its default.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "twenty columns": {"columns": 20, "max_digits": 16},
    "hundred columns": {"columns": 100, "max_digits": 60},
    "two columns": {"columns": 2, "max_digits": 1},
    **{f"base {base}": {"base": base} for base in range(2, 11)},
    "one frame": {"frames": 1},
    "six frames": {"frames": 6},
    "additions": {"operations": "add"},
    "subtractions": {"operations": "subtract"},
    **{level: {"reward": level} for level in LEVELS},
    "modules": {"reward": ("step", "slide", "wrong_submit")},
    "no reward": {"reward": ()},
    "continue": {"on_error": "continue"},
    "given start": {"start": 4321},
    "random start": {"start": "random"},
    "expression": {"expression": "3+4-2"},
    "expression from a value": {"start": 20, "expression": "3+4-21"},
    "two operations": {"max_operations": 2},
}
every_variant = pytest.mark.parametrize("settings", VARIANTS.values(), ids=list(VARIANTS))


def make(**settings: Any) -> AbacusEnv:
    env = gymnasium.make("Abacus-v0", **settings).unwrapped
    assert isinstance(env, AbacusEnv)
    return env


def test_make_accepts_every_setting() -> None:
    config = AbacusConfig()
    assert config.to_dict() | {"render_mode": None} == DEFAULTS
    changed = {
        "columns": 12,
        "base": 7,
        "max_digits": 5,
        "frames": 2,
        "operations": "subtract",
        "reward": "no_of",
        "on_error": "continue",
        "start": 99,
        "max_operations": 3,
        "expression": "1+2",
    }
    assert changed.keys() == config.to_dict().keys()
    assert make(**changed).config.to_dict() == changed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_digits": 10}, "max_digits=10 .* .below columns=10"),
        ({"base": 1}, "base=1 .* from 2 to 10"),
        ({"base": 11}, "base=11 .* from 2 to 10"),
        ({"start": -1}, "start=-1 .* 0 or more"),
        ({"start": 5**10}, r"start=9765625 .* below 5\*\*10"),
        ({"reward": "sparse"}, "reward='sparse' .*dense, no_of"),
        ({"reward": ("step", "sparse")}, "reward=.'step', 'sparse'. .* wrong_slide"),
        ({"expression": "3+"}, r"expression='3\+' .* such as"),
        ({"expression": "3+4-21"}, "expression '3.4-21' goes below zero at -21: give"),
        ({"render_mode": "svg"}, "render_mode='svg' .* ansi, rgb_array"),
    ],
)
# Gymnasium warns about a mode that is not in the metadata before it makes the environment.
@pytest.mark.filterwarnings("ignore:.*is not in the possible render_modes")
def test_make_raises_one_line_for_impossible_settings(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        make(**settings)
    assert "\n" not in str(raised.value)


@every_variant
def test_gymnasiums_checker_passes_without_a_warning(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(**settings))


def assert_equal(one: Any, other: Any) -> None:
    """Assert that nested values are equal, arrays bit by bit."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for ours, theirs in zip(one, other, strict=True):
            assert_equal(ours, theirs)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    else:
        assert one == other


@every_variant
def test_equal_seeds_give_equal_rollouts(settings: dict[str, Any]) -> None:
    """The same seed and actions give the same results over several episodes."""
    one, other = make(**settings), make(**settings)
    rng = random.Random(1)
    for moment in range(300):
        if moment % 150 == 0:
            assert_equal(one.reset(seed=moment), other.reset(seed=moment))
        # Correct actions too: random ones rarely get beyond the first digit.
        action = right_action(one.batch, 0) if rng.random() < 0.8 else rng.randrange(8)
        result = one.step(action)
        assert_equal(result, other.step(action))
        assert one.observation_space.contains(result[0])
        if result[2] or result[3]:
            assert_equal(one.reset(), other.reset())


def test_different_seeds_give_different_episodes() -> None:
    env = make(start="random")
    starts = set()
    for seed in range(50):
        env.reset(seed=seed)
        starts.add(value_of(env.batch.digits[0], 5))
    assert len(starts) > 30


def test_reset_without_a_seed_continues_the_stream() -> None:
    env = make(start="random")
    env.reset(seed=3)
    values = []
    for _ in range(10):
        values.append(value_of(env.batch.digits[0], 5))
        env.reset()
    assert len(set(values)) > 5
    env.reset(seed=3)
    assert value_of(env.batch.digits[0], 5) == values[0]


def state_of(env: AbacusEnv) -> tuple[Any, ...]:
    """Return the state that an action can change, without steps, counters and frames."""
    names = ("finger_column", "finger_row", "signpost", "digit_index", "symbol", "operation")
    scalars = env.batch.scalars[0]
    return (
        env.batch.digits[0].tolist(),
        env.batch.target[0].tolist(),
        *(scalars[name].item() for name in names),
    )


@pytest.mark.parametrize("reward", ["dense", "answer_only", "submit"])
def test_illegal_actions_change_nothing_but_the_step_count(reward: str) -> None:
    env = make(columns=3, max_digits=2, reward=reward, start="random", on_error="continue")
    rng = random.Random(2)
    observation, info = env.reset(seed=2)
    met: set[Action] = set()
    count = 0
    for _ in range(1500):
        before, budget_left = state_of(env), info["budget_left"]
        illegal = [action for action in Action if not info["action_mask"][action]]
        try_illegal = illegal and rng.random() < 0.5
        action = rng.choice(illegal) if try_illegal else Action(random_action(env, rng))
        last_window = observation["window"]
        observation, paid, terminated, truncated, info = env.step(action)
        if action in illegal:
            met.add(action)
            count += 1
            assert info["illegal"]
            assert state_of(env) == before
            assert info["budget_left"] == budget_left - 1
            assert set(info["outcomes"].values()) == {0}
            assert paid == pytest.approx(-0.05 if reward != "submit" else 0.0)
            assert info["reward_terms"] == pytest.approx(dict.fromkeys(TERMS, 0.0) | {"step": paid})
            assert_frames_pushed(env, last_window, observation["window"])
            assert observation["previous_action"].tolist() == np.eye(8)[action].tolist()
        else:
            assert not info["illegal"]
        assert info["illegal_actions"] == count
        if terminated or truncated:
            observation, info = env.reset()
            count = 0
    assert met == set(Action) - {Action.SUBMIT}


def assert_frames_pushed(
    env: AbacusEnv, before: npt.NDArray[np.float32], after: npt.NDArray[np.float32]
) -> None:
    """Assert that the oldest frame was dropped and the newest was repeated."""
    old, new = (window.reshape(env.config.window_shape) for window in (before, after))
    assert np.array_equal(new[:-1], old[1:])
    assert np.array_equal(new[-1], old[-1])


@every_variant
def test_masks_allow_exactly_the_actions_that_change_something(settings: dict[str, Any]) -> None:
    """Try every action on a copy of the environment, at many steps."""
    env = make(**settings)
    rng = random.Random(3)
    _, info = env.reset(seed=3)
    for moment in range(80):
        mask = env.action_masks()
        assert mask.dtype == np.bool_
        assert np.array_equal(mask, info["action_mask"])
        assert mask[Action.SUBMIT]
        if moment % 4 == 0:
            assert mask.tolist() == [changes_something(env, action) for action in Action]
        right = rng.random() < 0.7
        _, _, terminated, truncated, info = env.step(
            right_action(env.batch, 0) if right else random_action(env, rng)
        )
        if terminated or truncated:
            _, info = env.reset()


def changes_something(env: AbacusEnv, action: Action) -> bool:
    tried = copy.deepcopy(env)
    _, _, terminated, truncated, info = tried.step(int(action))
    ended = (terminated or truncated) and info["end"] != "BUDGET"
    # A submit changes something even if the next symbol looks the same.
    judged = any(info["outcomes"].values())
    return ended or judged or state_of(tried) != state_of(env)


def play(env: AbacusEnv, steps: int = 10_000) -> dict[str, Any]:
    """Play correct actions up to the end of the episode; return the last info."""
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(right_action(env.batch, 0))
        if terminated or truncated:
            assert info["end"] != "NONE"
            assert terminated != truncated
            return info | {"truncated": truncated}
    raise AssertionError(f"no end after {steps} steps")


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"expression": "3+4-2"}, 5),
        ({"start": 20, "expression": "3+4-21"}, 6),
        ({"start": 10, "expression": "3"}, 13),
        ({"expression": " 12 + 0 - 5 "}, 7),
        ({"columns": 20, "base": 10, "expression": "1234+567-89"}, 1712),
        ({"columns": 20, "base": 2, "expression": "1234+567-89"}, 1712),
    ],
)
def test_expression_ends_the_episode(settings: dict[str, Any], shown: int) -> None:
    env = make(**settings)
    env.reset(seed=0)
    info = play(env)
    assert (info["end"], info["truncated"]) == ("EXPRESSION", False)
    assert value_of(env.batch.digits[0], env.config.base) == shown
    assert info["operations_done"] == info["operations_solved"] == len(env.config.program)


def test_a_limit_on_operations_truncates() -> None:
    env = make(max_operations=3)
    env.reset(seed=0)
    info = play(env)
    assert (info["end"], info["truncated"]) == ("LIMIT", True)
    assert info["operations_done"] == 3


def test_the_budget_truncates() -> None:
    env = make()
    env.reset(seed=0)
    for _ in range(31):
        assert not any(env.step(Action.LEFT)[2:4])
    _, _, terminated, truncated, info = env.step(Action.LEFT)
    assert (terminated, truncated, info["end"], info["budget_left"]) == (False, True, "BUDGET", 0)


def test_capacity_terminates() -> None:
    env = make(columns=2, base=2, max_digits=1, operations="add")
    env.reset(seed=0)
    info = play(env)
    assert (info["end"], info["truncated"]) == ("CAPACITY", False)
    assert info["operations_done"] == info["operations_solved"] == 3


@pytest.mark.parametrize(
    ("actions", "end"),
    [
        ([Action.SIGNPOST_RIGHT], "WRONG_SIGNPOST"),
        ([Action.DOWN, Action.SLIDE], "WRONG_SLIDE"),
        ([Action.SUBMIT], "WRONG_SUBMIT"),
    ],
)
def test_mistakes_terminate_unless_on_error_is_continue(actions: list[Action], end: str) -> None:
    for on_error in ("terminate", "continue"):
        env = make(expression="3", on_error=on_error)
        env.reset()
        for action in actions:
            _, _, terminated, truncated, info = env.step(int(action))
        assert not truncated
        assert terminated == (on_error == "terminate")
        assert info["end"] == (end if terminated else "NONE")
        assert info["reward_terms"]["wrong"] == -1.0


def test_wrong_reset_closes_its_operation() -> None:
    """The operation is done but not solved, whether or not the mistake ends the episode."""
    for on_error in ("terminate", "continue"):
        env = make(expression="5+1", on_error=on_error)
        env.reset()
        while env.batch.scalars[0]["digit_index"] >= 0:
            env.step(right_action(env.batch, 0))
        assert env.batch.scalars[0]["signpost"] == 1
        _, _, terminated, _, info = env.step(Action.SUBMIT)
        assert info["outcomes"]["submit"] == -1
        assert (info["operations_done"], info["operations_solved"]) == (1, 0)
        assert terminated == (on_error == "terminate")


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ({"expression": "3-2"}, []),
        # 2 + 2 + 2 fits on two columns in base 3; 8 + 2, after a slide too many, does not.
        (
            {"columns": 2, "base": 3, "expression": "2+2+2"},
            [Action.RIGHT, Action.DOWN, Action.DOWN, Action.SLIDE, Action.LEFT, Action.SLIDE],
        ),
    ],
    ids=["below zero", "too large"],
)
def test_given_operation_that_does_not_fit_ends_on_capacity(
    settings: dict[str, Any], mistake: list[Action]
) -> None:
    """The end comes after a mistake, at the submit of the reset that the symbol asks for."""
    env = make(on_error="continue", **settings)
    env.reset()
    for action in mistake:
        env.step(action)
    _, _, terminated, _, info = env.step(Action.SUBMIT)
    assert not terminated
    assert info["outcomes"]["submit"] == -1
    _, _, terminated, truncated, info = env.step(Action.SUBMIT)
    assert (terminated, truncated, info["end"]) == (True, False, "CAPACITY")
    assert info["operations_done"] == 1


def test_reload_is_counted_and_looks_like_a_start() -> None:
    env = make(operations="subtract", columns=3, base=3, max_digits=2)
    _, info = env.reset(seed=0)
    # Nothing can be subtracted from 0: the first reload comes at once.
    assert info["reloads"] == 1
    met = 0
    for _ in range(2000):
        reloads = info["reloads"]
        observation, _, terminated, truncated, info = env.step(right_action(env.batch, 0))
        assert not terminated
        assert not truncated
        if info["reloads"] > reloads:
            met += 1
            scalars = env.batch.scalars[0]
            assert [int(scalars[name]) for name in ("finger_column", "signpost")] == [0, 0]
            frames = observation["window"].reshape(env.config.window_shape)
            assert all(np.array_equal(frame, frames[0]) for frame in frames)
            assert not observation["previous_action"].any()
            assert env.batch.digits[0, -1] > 0
    assert met > 10


@pytest.mark.parametrize("start", [0, 1, 4321, 5**10 - 1])
def test_given_start_is_shown(start: int) -> None:
    env = make(start=start)
    env.reset(seed=0)
    assert value_of(env.batch.digits[0], 5) == start


def test_random_starts_are_drawn_like_operands() -> None:
    env = make(start="random", max_digits=4)
    lengths = []
    env.reset(seed=0)
    for _ in range(400):
        lengths.append(len(digits_of(value_of(env.batch.digits[0], 5), 5)))
        env.reset()
    assert set(lengths) == {1, 2, 3, 4}
    # Lengths are uniform; of uniform values, four fifths would have four digits.
    assert all(60 < lengths.count(length) < 140 for length in (1, 2, 3, 4))


INFO_ON_RESET = {
    *("action_mask", "end", "operations_done", "operations_solved", "illegal_actions"),
    *("reloads", "budget_left"),
}
INFO_ON_STEP = INFO_ON_RESET | {"reward_terms", "outcomes", "illegal"}


def test_infos_have_the_documented_plain_values() -> None:
    env = make(operations="subtract")
    _, info = env.reset(seed=0)
    assert info.keys() == INFO_ON_RESET
    assert info["budget_left"] == 32
    # Nothing can be subtracted from 0: the abacus was reloaded at once.
    assert info["reloads"] == 1
    _, reward, _, _, info = env.step(right_action(env.batch, 0))
    assert info.keys() == INFO_ON_STEP
    assert tuple(info["reward_terms"]) == TERMS
    assert tuple(info["outcomes"]) == OUTCOMES
    assert sum(info["reward_terms"].values()) == pytest.approx(reward)
    assert info["end"] in End.__members__
    assert isinstance(info["action_mask"], np.ndarray)
    json.dumps({key: value for key, value in info.items() if key != "action_mask"})


def test_returned_arrays_are_copies() -> None:
    env = make()
    observation, info = env.reset(seed=0)
    kept = copy.deepcopy((observation, info))
    for action in (Action.RIGHT, Action.DOWN, Action.RIGHT):
        env.step(int(action))
    assert_equal(observation, kept[0])
    assert_equal(info, kept[1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_are_independent(duplicate: Any) -> None:
    """A planner tries actions on a copy."""
    env = make(start="random")
    env.reset(seed=0)
    env.step(Action.DOWN)
    twin = duplicate(env)
    for _ in range(100):
        action = right_action(env.batch, 0)
        before = state_of(twin)
        result = env.step(action)
        assert state_of(twin) == before
        assert_equal(result, twin.step(action))


@pytest.mark.parametrize("action", [1, np.int64(1), np.uint8(1), np.array(1), Action.RIGHT])
def test_any_integer_type_is_an_action(action: Any) -> None:
    env = make()
    env.reset(seed=0)
    env.step(action)
    assert env.batch.scalars[0]["finger_column"] == 1


@pytest.mark.parametrize("action", [8, -1, 1.5, "1", None])
def test_other_values_raise_and_change_nothing(action: Any) -> None:
    env = make()
    env.reset(seed=0)
    kept = copy.deepcopy(env.batch.world)
    with pytest.raises((ValueError, TypeError)):
        env.step(action)
    assert all(np.array_equal(*arrays) for arrays in zip(env.batch.world, kept, strict=True))


def test_step_before_reset_raises() -> None:
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        make().step(0)


def test_step_after_the_end_raises_until_the_next_reset() -> None:
    env = make(expression="3")
    env.reset()
    assert env.step(int(Action.SUBMIT))[2]
    for duplicate in (env, copy.deepcopy(env)):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"after the end.*reset\(\)"):
            duplicate.step(0)
    env.reset()
    assert not env.step(int(Action.DOWN))[2]


@pytest.mark.parametrize("columns", [20, 100, 10_000])
def test_wide_abaci_carry_over_their_whole_width(columns: int) -> None:
    """All columns but the last are full, so that adding 1 changes each of them."""
    env = make(columns=columns, start=5 ** (columns - 1) - 1, expression="1")
    observation, _ = env.reset()
    assert observation["window"].shape == make().reset()[0]["window"].shape
    info = play(env, steps=4 * columns)
    assert info["end"] == "EXPRESSION"
    assert info["operations_solved"] == 1
    assert env.batch.digits[0].tolist() == [0] * (columns - 1) + [1]


@pytest.mark.parametrize("columns", [20, 100, 10_000])
def test_wide_abaci_add_and_subtract_long_operands(columns: int) -> None:
    longest = 5 ** (columns - 1) - 1
    first, second = longest // 3, longest // 7
    env = make(columns=columns, start=longest, expression=decimal(first) + "-" + decimal(second))
    env.reset()
    info = play(env, steps=40 * columns)
    assert info["operations_solved"] == 2
    assert value_of(env.batch.digits[0], 5) == longest + first - second


def decimal(value: int) -> str:
    """Python refuses to convert more than 4300 decimal digits at once."""
    chunks = []
    while value:
        value, chunk = divmod(value, 10**4000)
        chunks.append(f"{chunk:04000d}")
    return "".join(reversed(chunks)) or "0"


def test_render_modes() -> None:
    text, picture = make(render_mode="ansi"), make(render_mode="rgb_array")
    for env in (text, picture):
        env.reset(seed=0)
    shown = text.render()
    assert isinstance(shown, str)
    assert all(word in shown for word in ("symbol", "value", "base 5", "⚑", "["))
    pixels = picture.render()
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    picture.step(Action.RIGHT)
    assert not np.array_equal(picture.render(), pixels)
    silent = make()
    silent.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='ansi'"):
        assert silent.render() is None


HEADINGS = [
    *("Description", "Action space", "Observation space", "Rewards", "Starting state"),
    *("Episode end", "Tasks", "Arguments", "Randomness", "Info", "Versions"),
]


def test_the_docstring_is_the_specification() -> None:
    text = inspect.getdoc(AbacusEnv) or ""
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    parts = dict(zip(HEADINGS, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True))
    for action in Action:
        assert f"| {action.value} | {action.name} |" in parts["Action space"]
    for key in observation_lengths(AbacusConfig()):
        assert f"| `{key}` |" in parts["Observation space"]
    for name in (*LEVELS, *MODULES):
        assert f"`{name}`" in parts["Rewards"]
    for name, value in DEFAULTS.items():
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        assert f"`{name}` ({shown})" in parts["Arguments"]
    for key in INFO_ON_STEP:
        assert f"`{key}`" in parts["Info"]
