"""The grid of the study: a JSON file that lists the cells.

    {"format": "abacus-study-grid", "version": 1,
     "comparisons": {
       "supervision": {
         "first_seed": 100, "seeds": 5, "steps": 250000, "settings": {"eval_freq": 50000},
         "blocks": [
           {"arm": "cloning", "demonstrations": [1, 10, 100], "seeds": 10},
           {"arm": "ppo", "demonstrations": [0, 1, 10, 100], "reward": ["dense", "no_of"]}]}}}

The budget of steps belongs to the comparison: its cells cannot differ in it. `settings` are flags
of `python -m pipelines.bc_then_ppo`; a block may add its own, and give another number of seeds.
Seeds count from `first_seed` (default: 0), so that they can be apart from those on which settings
were chosen. Arms, and the lists that each needs, are those of `pipelines/experiments/arms.py`. The
default of `operations` is ["both"].
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

from abacus.checks import check_choice, check_integer, not_allowed
from abacus.rules import Operations
from oracle.demos.recipe import MAX_SEED
from pipelines.experiments.arms import ARMS
from pipelines.experiments.cells import SCORING
from pipelines.experiments.records import LEFT_OUT, NO_REWARD, Cell
from pipelines.job.command_line import relative_path
from pipelines.learning.settings import FLAGS, RECORDED_OPERATIONS, resolve

FORMAT, VERSION = "abacus-study-grid", 1
_COMPARISON = ("first_seed", "seeds", "steps", "settings", "blocks")
_BLOCK = ("arm", "demonstrations", "labels", "reward", "operations", "settings", "seeds")
_MOST_SEEDS = 1000
#: Flags that the grid sets itself, and flags that are the same in all runs.
_FIXED = {
    *("preset", "demonstrations", "demo_operations", "reward", "operations", "seed", "demo_seed"),
    *("n_timesteps", "teach_rounds", "start_from", "network", "base", "frames"),
    *("threads", "device"),
}
_SETTINGS = sorted(set(FLAGS) - _FIXED)
#: Values of the lists that an arm does not have.
_NONE: dict[str, list[Any]] = {"demonstrations": [0], "labels": [0], "reward": [NO_REWARD]}


@dataclass(frozen=True)
class Grid:
    """The cells of a study, in the order in which they are run."""

    cells: tuple[Cell, ...]

    @classmethod
    def load(cls, path: Path) -> Grid:
        """Read a file; raise ValueError with the place of a mistake."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{relative_path(path)} is not a grid: {error}") from None
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{relative_path(path)}: {error}") from None

    @classmethod
    def from_dict(cls, values: Any) -> Grid:
        """Make a grid from the values of a file."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f'a grid is a JSON object with "format": "{FORMAT}"')
        _check_names(values, ("format", "version", "comparisons"), "the grid")
        if values.get("version") != VERSION:
            raise ValueError(f"version {values.get('version')!r} is not known: give {VERSION}")
        comparisons = values.get("comparisons")
        if not isinstance(comparisons, dict) or not comparisons:
            raise ValueError('"comparisons" must have at least one')
        cells = [cell for name, values in comparisons.items() for cell in _cells_of(name, values)]
        distinct = {cell.key: cell for cell in cells}
        return cls(tuple(sorted(distinct.values(), key=_order)))

    def cells_of(self, comparisons: Sequence[str]) -> list[Cell]:
        """Return the cells of some comparisons, or all if none are given."""
        known = sorted({cell.comparison for cell in self.cells})
        for name in comparisons:
            if name not in known:
                raise ValueError(f"comparison {name!r} is not in the grid: give {', '.join(known)}")
        return [cell for cell in self.cells if cell.comparison in (comparisons or known)]


def _order(cell: Cell) -> tuple[bool, int, int, bool, int]:
    """Sort cells without steps first; then by seed, by steps, clones first and by amounts.

    A study that is stopped early has whole seeds, and everything that takes seconds.
    """
    amount = cell.demonstrations + cell.labels
    return (cell.steps > 0, cell.seed, cell.steps, cell.arm != "cloning", amount)


def _cells_of(name: str, values: Any) -> Iterator[Cell]:
    where = f'comparison "{name}"'
    try:
        _check_names(values, _COMPARISON, "it")
        usual = check_integer("seeds", values.get("seeds"), 1, _MOST_SEEDS)
        first = check_integer("first_seed", values.get("first_seed", 0), 0, MAX_SEED - _MOST_SEEDS)
        steps = check_integer("steps", values.get("steps", 0), 0, 10**10)
        settings = values.get("settings", {})
        _check_names(settings, _SETTINGS, "settings")
        for number, block in enumerate(_list(values, "blocks"), 1):
            where = f'comparison "{name}", block {number}'
            rows = list(_rows(block))
            seeds = check_integer("seeds", block.get("seeds", usual), 1, _MOST_SEEDS)
            for seed, row in product(range(first, first + seeds), rows):
                yield _cell(name, row, steps, seed, settings | block.get("settings", {}))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _rows(block: Any) -> Iterator[dict[str, Any]]:
    """Yield the values that a block varies, as fields of a cell."""
    _check_names(block, _BLOCK, "it")
    _check_names(block.get("settings", {}), _SETTINGS, "settings")
    arm = ARMS[check_choice("arm", block.get("arm"), ARMS)]
    lists = dict(_NONE)
    for name in lists:
        if name in arm.lists:
            lists[name] = _list(block, name)
        elif name in block:
            raise ValueError(f"{name} is not for arm {arm.name}")
    lists["operations"] = _list(block, "operations") if "operations" in block else ["both"]
    for count in lists["demonstrations"]:
        check_integer("demonstrations", count, arm.demonstrations or 0, RECORDED_OPERATIONS)
    for count in lists["labels"]:
        check_integer("labels", count, int(arm.labels), 10**9)
    for reward in lists["reward"]:
        if not isinstance(reward, str):
            raise not_allowed("reward", reward, "a level, or modules joined by commas")
    for operations in lists["operations"]:
        check_choice("operations", operations, get_args(Operations))
    for values in product(*lists.values()):
        yield {"arm": arm.name, **dict(zip(lists, values, strict=True))}


def _cell(comparison: str, row: dict[str, Any], steps: int, seed: int, more: Any) -> Cell:
    """Return a cell with all its settings, so that a changed default makes another cell."""
    arm = ARMS[row["arm"]]
    if arm.steps and steps == 0:
        raise ValueError(f"arm {arm.name} needs steps of its comparison")
    if not arm.plans and (more.get("plan_exercises") or more.get("mend_rounds")):
        raise ValueError(f"arm {arm.name} neither plans nor mends")
    steps = steps if arm.steps else 0
    alone = steps > 0 and not row["demonstrations"]
    preset = arm.preset or ("alone" if alone else "default")
    given = {
        # The study measures the learners by themselves.
        **({} if arm.plans else {"plan_exercises": 0, "mend_rounds": 0}),
        **more,
        "preset": preset,
        # The settings of an arm with neither demonstrations nor steps are those of cloning one.
        "demo_operations": row["demonstrations"] or int(arm.labels),
        "reward": row["reward"] if arm.reward else "dense",
        "operations": row["operations"],
        "seed": seed,
        # Other demonstrations too: seeds would else differ in the initial weights alone.
        "demo_seed": seed,
        "n_timesteps": steps,
    }
    if preset != "exact":
        # Only the arm that is taught asks the teacher for more.
        given["teach_rounds"] = 0
    values = resolve(given).flags() | {"scoring": SCORING}
    for name, neutral in LEFT_OUT.items():
        if values[name] == neutral:
            del values[name]
    # What no grid changes.
    values |= arm.learner.settings
    return Cell(comparison=comparison, steps=steps, seed=seed, settings=values, **row)


def _check_names(values: Any, known: Collection[str], where: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object")
    for name in values:
        if name not in known:
            raise ValueError(f"{where} has {name!r}, which is not known: give {', '.join(known)}")


def _list(values: dict[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name} must be a list of at least one")
    return found
