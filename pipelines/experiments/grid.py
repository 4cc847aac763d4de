"""A study's grid: a JSON file that says which cells there are.

    {"format": "abacus-study-grid", "version": 1,
     "comparisons": {
       "supervision": {
         "seeds": 5, "steps": 250000, "settings": {"eval_freq": 50000},
         "blocks": [
           {"arm": "cloning", "demonstrations": [1, 10, 100]},
           {"arm": "ppo", "demonstrations": [0, 1, 10, 100], "reward": ["dense", "no_of"]}]}}}

The budget of steps belongs to the comparison, so that its cells cannot differ in it. `settings`
are those of `python -m pipelines.bc_then_ppo`; a block may add its own. `operations` is ["both"]
where a block names none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from abacus.reward import modules_of
from abacus.rules import Operations
from pipelines.experiments.cells import SCORING
from pipelines.experiments.records import ARMS, NO_REWARD, REWARDED, Arm, Cell
from pipelines.job.command_line import shown_path
from pipelines.learning import dagger
from pipelines.learning.settings import RECORDED_OPERATIONS, DqnSettings, Settings

FORMAT, VERSION = "abacus-study-grid", 1
_COMPARISON = ("seeds", "steps", "settings", "blocks")
_BLOCK = ("arm", "demonstrations", "labels", "reward", "operations", "settings")
#: What the grid itself decides about a run, and what no run may differ in.
_NOT_SETTINGS = {
    *("preset", "demonstrations", "demo_operations", "reward", "operations", "seed"),
    *(
        "demo_seed",
        "n_timesteps",
        "start_from",
        "trust",
        "network",
        "base",
        "frames",
        "threads",
        "device",
    ),
}
_SETTINGS = sorted({field.name for field in fields(Settings)} - _NOT_SETTINGS)


@dataclass(frozen=True)
class Grid:
    """The cells of a study, in the order in which they are run."""

    cells: tuple[Cell, ...]

    @classmethod
    def load(cls, path: Path) -> Grid:
        """Reads a file; ValueError says what is wrong with it, and where."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{shown_path(path)} is not a grid: {error}") from None
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{shown_path(path)}: {error}") from None

    @classmethod
    def from_dict(cls, values: Any) -> Grid:
        """From the file's values."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f'a grid is a JSON object with "format": "{FORMAT}"')
        _only(values, ("format", "version", "comparisons"), "the grid")
        if values.get("version") != VERSION:
            raise ValueError(f"version {values.get('version')!r} is not known: give {VERSION}")
        comparisons = values.get("comparisons")
        if not isinstance(comparisons, dict) or not comparisons:
            raise ValueError('"comparisons" must name at least one')
        cells = [cell for name, values in comparisons.items() for cell in _cells_of(name, values)]
        distinct = {cell.key: cell for cell in cells}
        return cls(tuple(sorted(distinct.values(), key=_turn)))


def _turn(cell: Cell) -> tuple[int, int, int, int]:
    """A seed of everything before the next of anything; clones before what starts from them."""
    amount = cell.demonstrations + cell.labels
    return (cell.seed, cell.arm != "cloning", cell.steps, amount)


def _cells_of(name: str, values: Any) -> Iterator[Cell]:
    where = f'comparison "{name}"'
    _only(values, _COMPARISON, where)
    seeds = _number(values.get("seeds"), f'{where}: "seeds"', 1, 1000)
    steps = _number(values.get("steps", 0), f'{where}: "steps"', 0, 10**10)
    settings = values.get("settings", {})
    _check_settings(settings, f'{where}, "settings"')
    blocks = values.get("blocks")
    if not isinstance(blocks, list) or not blocks:
        raise ValueError(f'{where}: "blocks" must be a list of at least one')
    for number, block in enumerate(blocks, 1):
        try:
            for seed, row in product(range(seeds), list(_rows(block))):
                yield _cell(name, row, steps, seed, settings | block.get("settings", {}))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}, block {number}: {error}") from None


@dataclass(frozen=True)
class _Row:
    """What a block varies."""

    arm: Arm
    demonstrations: int
    labels: int
    reward: str
    operations: Operations


def _rows(block: Any) -> Iterator[_Row]:
    _only(block, _BLOCK, "it")
    _check_settings(block.get("settings", {}), '"settings"')
    arm = block.get("arm")
    if arm not in ARMS:
        raise ValueError(f'"arm" {arm!r} is not known: give one of {", ".join(ARMS)}')
    demonstrations = _numbers(block, "demonstrations", wanted=arm in ("cloning", "ppo"))
    if arm == "cloning" and 0 in demonstrations:
        raise ValueError('"demonstrations" of cloning: give 1 or more')
    if max(demonstrations) > RECORDED_OPERATIONS:
        raise ValueError(f'"demonstrations": give at most {RECORDED_OPERATIONS}')
    labels = _numbers(block, "labels", wanted=arm == "dagger")
    if arm == "dagger" and 0 in labels:
        raise ValueError('"labels": give 1 or more')
    rewards = _words(block, "reward", [NO_REWARD], wanted=arm in REWARDED)
    if arm in REWARDED:
        for reward in rewards:
            modules_of(reward)
    operations = _words(block, "operations", ["both"], wanted=None)
    for operation in operations:
        if operation not in get_args(Operations):
            known = ", ".join(get_args(Operations))
            raise ValueError(f'"operations" {operation!r} is not known: give {known}')
    for values in product(demonstrations, labels, rewards, operations):
        yield _Row(arm, *values)  # type: ignore[arg-type]


def _cell(comparison: str, row: _Row, steps: int, seed: int, more: dict[str, Any]) -> Cell:
    """A cell with its settings worked out, so that a changed default makes it another one."""
    rewarded = row.arm in REWARDED
    if rewarded and steps == 0:
        raise ValueError(f'arm "{row.arm}" needs "steps" of its comparison')
    settings = Settings(
        preset="alone" if rewarded and not row.demonstrations else "default",
        demo_operations=row.demonstrations or (0 if rewarded else 1),
        reward=row.reward if rewarded else "dense",
        operations=row.operations,
        seed=seed,
        # Other demonstrations too: seeds would else differ in the network's first weights alone.
        demo_seed=seed,
        n_timesteps=steps if rewarded else 0,
        **more,
    ).settled()
    values = json.loads(settings.to_json()) | {"scoring": SCORING}
    # Arms with settings of their own, which no grid changes.
    if row.arm.startswith("dqn"):
        values["dqn"] = asdict(DqnSettings())
    if row.arm == "dagger":
        values["dagger"] = dagger.CONSTANTS
    return Cell(
        comparison=comparison,
        arm=row.arm,
        demonstrations=row.demonstrations,
        reward=row.reward,
        operations=row.operations,
        labels=row.labels,
        steps=steps if rewarded else 0,
        seed=seed,
        settings=values,
    )


def _only(values: Any, known: Collection[str], where: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object")
    for name in values:
        if name not in known:
            raise ValueError(f"{where} has {name!r}, which is not known: give {', '.join(known)}")


def _check_settings(values: Any, where: str) -> None:
    """Names and kinds of values; what they may be is for `Settings` to say."""
    _only(values, _SETTINGS, where)
    hints = get_type_hints(Settings)
    for name, value in values.items():
        kinds = get_args(hints[name]) if isinstance(hints[name], UnionType) else (hints[name],)
        whole = int in kinds and type(value) is int
        number = float in kinds and type(value) in (int, float)
        if not (whole or number or (isinstance(value, str) and not {int, float} & set(kinds))):
            raise ValueError(f"{where}: {name} is {value!r}, which is of another kind")


def _number(value: Any, where: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{where} is {value!r}: give a whole number of {least} to {most}")
    return value


def _numbers(block: dict[str, Any], name: str, *, wanted: bool) -> list[int]:
    """The numbers of a list; [0] where the arm has none."""
    values = _list(block, name, [0], wanted=wanted)
    return [_number(value, f'"{name}"', 0, 10**9) for value in values]


def _words(
    block: dict[str, Any], name: str, without: list[str], *, wanted: bool | None
) -> list[str]:
    values = _list(block, name, without, wanted=wanted)
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f'"{name}" has {value!r}: give names')
    return values


def _list(
    block: dict[str, Any], name: str, without: list[Any], *, wanted: bool | None
) -> list[Any]:
    """A list of the block; None as `wanted`: it may be left out."""
    if wanted is False and name in block:
        raise ValueError(f'"{name}" is not for arm "{block["arm"]}"')
    if name not in block and not wanted:
        return without
    values = block.get(name)
    if not isinstance(values, list) or not values:
        raise ValueError(f'"{name}" must be a list of at least one')
    return values
