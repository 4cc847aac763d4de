"""Settings: every field is checked, presets and flags resolve, JSON is exact and checked."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from pipelines.learning.settings import (
    FLAGS,
    PRESETS,
    WAVES,
    CloningSettings,
    DqnSettings,
    PlanningSettings,
    PpoSettings,
    Schedule,
    Settings,
    replace_at,
    resolve,
)

NAN, INFINITY = float("nan"), float("inf")
#: Settings in which every dataclass of the settings occurs.
EVERYTHING: list[Any] = [Settings(), DqnSettings()]
#: Values that no field of a type may hold.
REFUSED: dict[Any, list[Any]] = {
    int: [True, 1.5, 1.0, -1, "1", None, NAN, INFINITY, [1]],
    float: [True, -0.5, -1, "0.1", None, NAN, INFINITY, -INFINITY, [0.1]],
    bool: [1, 0, "yes", None],
    str: [1, None, "", "no such thing"],
    Path: [1, True, ["a"]],
    Literal: ["no such thing", 1, None, ["linear"]],
}
#: Fields of the world with types of their own.
SPECIAL: dict[str, list[Any]] = {
    "world.reward": [1, None, "gold", ("gold",)],
    "world.start": [True, -1, 1.5, None, "anything", 10**30],
    "world.expression": [1, "1+", True],
    "world.max_operations": [True, 0, -1, 1.5, "1"],
    "mending.without": [1, None, "luck", "exploration,", "exploration two-actions"],
}
#: Limits of the ranges, and the nearest values that are allowed.
LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    ("world.columns", [0, 1], [7]),
    ("cloning.updates", [0], [1]),
    ("cloning.batch_size", [0], [1]),
    ("cloning.weight_decay", [-0.1], [0, 1]),
    ("cloning.learning_rate", [0.0], [1e-9]),
    ("cloning.label_smoothing", [1.0], [0.0, 0.99]),
    ("ppo.n_envs", [0], [1]),
    ("ppo.n_steps", [0], [1]),
    ("ppo.batch_size", [0], [1]),
    ("ppo.n_epochs", [0], [1]),
    ("ppo.gamma", [1.01], [0, 1]),
    ("ppo.gamma_end", [1.0], [0, 0.99]),
    ("ppo.gae_lambda", [1.01], [0, 1]),
    ("ppo.clip_range", [0.0], [1e-9]),
    ("ppo.max_grad_norm", [0.0], [1e-9]),
    ("ppo.learning_rate.start", [0.0], [1e-9]),
    ("ppo.critic_warmup", [], [0]),
    ("ppo.target_kl", [], [0.0]),
    ("ppo.entropy.start", [], [0.0]),
    ("threads", [0], [1]),
    ("eval_freq", [0], [1]),
    ("eval_episodes", [0], [1]),
    ("demo_seed", [], [0]),
]


def leaves(record: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted names and types of all values in nested dataclasses."""
    for field in fields(record):
        name, value = f"{place}{field.name}", getattr(record, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{name}.")
        else:
            yield name, get_type_hints(type(record))[field.name]


def refused_values(name: str, hint: Any) -> list[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    if get_origin(hint) is Literal:
        return REFUSED[Literal]
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return REFUSED[kinds[0] if kinds else hint]


def refusal(record: Any, name: str, value: Any) -> str:
    """Return the message for a value of a field; an empty one if the value is accepted."""
    try:
        replace_at(record, {name: value})
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("record", EVERYTHING, ids=lambda record: type(record).__name__)
def test_every_field_refuses_what_it_cannot_hold(record: Any) -> None:
    wrong = []
    for name, hint in leaves(record):
        for value in refused_values(name, hint):
            message = refusal(record, name, value)
            if name.split(".")[-1] not in message or "\n" in message:
                wrong.append(f"{name}={value!r}: {message}")
    assert wrong == []


def test_parts_of_mending_are_left_out_by_their_names() -> None:
    assert Settings().mending.left_out == set()
    settings = resolve({"preset": "alone", "mend_without": "two-actions,exploration"})
    assert settings.mending.left_out == {"exploration", "two-actions"}
    assert Settings.from_json(settings.to_json()) == settings
    again = resolve({"preset": "alone", "mend_without": "exploration,two-actions,exploration"})
    assert again == settings, "the order of the names does not matter"


@pytest.mark.parametrize("record", EVERYTHING, ids=lambda record: type(record).__name__)
def test_every_part_refuses_another_type(record: Any) -> None:
    for field in fields(record):
        if is_dataclass(getattr(record, field.name)):
            with pytest.raises(ValueError, match=f"{field.name}={{}} is not allowed"):
                replace_at(record, {field.name: {}})


@pytest.mark.parametrize(("name", "refused", "accepted"), LIMITS, ids=lambda each: str(each)[:30])
def test_ranges_end_where_they_should(name: str, refused: list[Any], accepted: list[Any]) -> None:
    for value in refused:
        with pytest.raises(ValueError, match="is not allowed"):
            replace_at(Settings(), {name: value})
    for value in accepted:
        replace_at(Settings(), {name: value})


@pytest.mark.parametrize(
    "bad",
    [
        {"exploration_final_eps": 1.1},
        {"exploration_fraction": -0.1},
        {"buffer_size": 10},
        {"train_freq": 100},
        {"learning_rate": Schedule("constant", 0.0)},
    ],
)
def test_impossible_dqn_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        DqnSettings(**bad)


def test_numbers_are_stored_as_plain_ints_and_floats() -> None:
    settings = replace_at(
        Settings(), {"seed": np.int64(3), "ppo.gamma": 1, "ppo.clip_range": np.float32(0.5)}
    )
    assert [type(v) for v in (settings.seed, settings.ppo.gamma, settings.ppo.clip_range)] == [
        int,
        float,
        float,
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_timesteps": 0, "demo_operations": 0, "teaching.rounds": 0}, "nothing to do"),
        ({"start_from": Path("run")}, "give one of them"),
        (
            {"planning.exercises": 1},
            "plan_exercises and demo_operations or start_from: give one of them",
        ),
        ({"demo_operations": 0}, "cloning_weight needs demonstrations"),
        ({"ppo.gamma": 1.0, "ppo.gamma_end": 0.99}, "gamma=1.0 is not allowed"),
        ({"ppo.starts": 2}, "starts: give 1 with demo_operations"),
        (
            {
                "demo_operations": 0,
                "ppo.cloning_weight": 0.0,
                "ppo.starts": 3,
                "ppo.start_steps": 1000,
                "n_timesteps": 3000,
            },
            "give a larger n_timesteps than 3,000",
        ),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace_at(Settings(), changes)


def test_presets_resolve_and_flags_replace_their_values() -> None:
    for name, preset in PRESETS.items():
        assert preset.preset == name
        assert resolve({"preset": name}) == preset
        assert resolve(preset.flags()) == preset
    assert resolve({}) == Settings() == PRESETS["default"]
    changed = resolve(
        {"preset": "alone", "columns": 12, "gamma": 0.5, "entropy_start": 0.2, "start": "7"}
    )
    alone = PRESETS["alone"]
    assert changed.world.columns == 12
    assert changed.world.start == 7
    assert (changed.ppo.gamma, changed.ppo.entropy.start) == (0.5, 0.2)
    assert changed.ppo.entropy.kind == alone.ppo.entropy.kind
    assert changed.ppo.gae_lambda == alone.ppo.gae_lambda == 0.8
    assert changed.planning == alone.planning == PlanningSettings(exercises=6_000)
    assert changed.mending.rounds == alone.mending.rounds > 0
    assert resolve({"plan_order": "finger-first"}).planning.order == "finger-first"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"columns": 0}, "world.columns=0 is not allowed"),
        ({"entropy_start": -1.0}, "ppo.entropy.start=-1.0 is not allowed"),
        ({"preset": "best"}, "preset='best' is not allowed"),
        ({"colour": "red"}, "flag='colour' is not allowed"),
        ({"device": "gpu9"}, "device='gpu9' is not allowed"),
        ({"plan_exercises": -1}, "planning.exercises=-1 is not allowed"),
        ({"plan_order": "rows-first"}, "planning.order='rows-first' is not allowed"),
        ({"mend_exercises": 0}, "mending.exercises=0 is not allowed"),
        ({"table_steps": 1}, "flag='table_steps' is not allowed"),
    ],
)
def test_bad_flags_are_named(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(flags)


def test_the_hyperparameters_of_a_run_are_the_defaults_of_its_learners() -> None:
    assert Settings().cloning == CloningSettings()
    assert Settings().ppo == PpoSettings()


def test_every_flag_sets_one_value() -> None:
    places = [flag.place for flag in FLAGS.values()]
    assert len(set(places)) == len(places)
    assert set(places) <= {name for name, _ in leaves(Settings())}


CHANGES: list[dict[str, Any]] = [
    {},
    {
        "world.reward": "slide,submit",
        "world.start": 5,
        "world.on_error": "continue",
        "mending.rounds": 0,
    },
    {"start_from": Path("a/b"), "demo_operations": 0, "ppo.cloning_weight": 0.0},
    {"ppo.learning_rate": Schedule("sinusoid", 1 / 3, 1e-300), "demonstrations": Path("x.h5")},
]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("changes", CHANGES)
def test_settings_survive_json(preset: str, changes: dict[str, Any]) -> None:
    settings = replace_at(
        PRESETS[preset],
        {"planning.exercises": 0, "demo_operations": 1, **changes, "n_timesteps": 9},
    )
    assert Settings.from_json(settings.to_json()) == settings


def broken(change: Any) -> str:
    values = json.loads(Settings().to_json())
    change(values)
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "the settings are not those of a run of this version"),
        (broken(lambda v: v.update(colour="red")), "unknown: colour"),
        (broken(lambda v: v.pop("seed")), "missing: seed"),
        (broken(lambda v: v["ppo"].pop("gamma")), "the settings, ppo, are .* missing: gamma"),
        (broken(lambda v: v["ppo"]["entropy"].update(middle=1)), "unknown: middle"),
        (broken(lambda v: v.update(world=None)), "the settings, world, are not those"),
        (broken(lambda v: v.update(seed="0")), "seed='0' is not allowed"),
        (broken(lambda v: v.update(threads=1.0)), "threads=1.0 is not allowed"),
        (broken(lambda v: v.update(trust=True)), "unknown: trust"),
        (broken(lambda v: v.update(start_from=3)), "start_from=3 is not allowed"),
        (broken(lambda v: v["world"].update(columns="10")), "columns='10' is not allowed"),
        (broken(lambda v: v["ppo"].update(gamma=NAN)), "gamma=nan is not allowed"),
    ],
)
def test_json_is_checked(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Settings.from_json(text)
    assert "\n" not in str(error.value)


def test_constant_and_linear_schedules() -> None:
    assert Schedule("constant", 0.3)(0.1) == 0.3
    falling = Schedule("linear", 1.0, 0.2)
    assert [falling(left) for left in (1.0, 0.5, 0.0)] == pytest.approx([1.0, 0.6, 0.2])


def test_a_sinusoid_schedule_is_a_wave_under_a_falling_line() -> None:
    schedule = Schedule("sinusoid", 1.0)
    left = np.linspace(1, 0, 20_001)
    values = np.array([schedule(part) for part in left])
    assert (values >= 0).all()
    assert (values <= 2 * left + 1e-12).all()
    peaks = (values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])
    assert peaks.sum() == WAVES
    heights = values[1:-1][peaks]
    assert (np.diff(heights) < 0).all()
    # The mean is that of the straight line.
    assert values.mean() == pytest.approx(0.5, rel=0.01)
    # Linear decay: peaks lie on the line from 2 to 0.
    assert heights == pytest.approx(2 * left[1:-1][peaks], abs=0.01)


def test_the_horizon_of_a_discount_schedule_changes_geometrically() -> None:
    settings = PpoSettings(gamma=0.9, gamma_end=0.999)
    horizons = [1 / (1 - settings.discount(left)) for left in (2.0, 1.0, 0.5, 0.0, -1.0)]
    assert horizons == pytest.approx([10, 10, 100, 1000, 1000])
    constant = PpoSettings(gamma=0.9)
    assert [constant.discount(left) for left in (1.0, 0.5, 0.0)] == [0.9, 0.9, 0.9]


def test_schedules_can_be_pickled() -> None:
    schedule = Schedule("sinusoid", 3e-4)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
