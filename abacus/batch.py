"""N abaci in one process: names for the kernel's arrays. Every environment wraps a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.checks import check_integer, check_number
from abacus.observation import frame_pixels, observation_lengths
from abacus.reward import pay_table
from abacus.rules import START_RANDOM, AbacusConfig, Action, End
from abacus.tasks import Operation, Task, digits_of

#: The fields of the rules that `set_tasks` changes.
_TASK_RULES = ("start_random", "draw_tasks", "task_share", "step_budget")
_DRAW = {"both": kernel.DRAW_BOTH, "add": kernel.DRAW_ADD, "subtract": kernel.DRAW_SUBTRACT}

#: Names of ends by their number: faster than the enumeration.
END_NAMES = tuple(end.name for end in End)

#: Fields of the kernel's records that environments read together.
_VERDICT_FIELDS = ["reward", "end", "terminated", "truncated", "illegal"]
_COUNT_FIELDS = [
    *("operations_done", "operations_solved", "illegal_actions", "reloads", "budget", "steps")
]
#: Fields in the report of an episode that ended.
_REPORT_FIELDS = (
    *("steps", "episode_return", "operations_done", "operations_solved"),
    *("illegal_actions", "reloads"),
)


class AbacusBatch:
    """N abaci that step together.

    `reset` and `step` write their results into arrays that are valid until the next call:

    - `observation`: the dict of observations, (N, length) each;
    - `masks`, `outcomes`, `terms`: action masks, outcomes and reward terms;
    - `verdicts`: records with the fields `reward`, `end`, `terminated`, `truncated` and `illegal`,
      which are also arrays of these names (`ends` for `end`);
    - `digits`, `scalars`, `history`: the state, and `counts`, the fields of `scalars` that count
      something;
    - `ended`: the abaci whose episode ended. Rows of `final_observation`, `final_masks` and
      `final_scalars`, in the same order, hold their last states.

    With `autoreset`, an abacus that ends starts its next episode within the same step.

    `set_tasks` mixes given tasks into the random episodes; `final_tasks` tells which of them the
    episodes in `ended` were.
    """

    def __init__(self, config: AbacusConfig, num_envs: int, *, autoreset: bool = True) -> None:
        self.config = config
        self.num_envs = check_integer("num_envs", num_envs, 1)
        self.autoreset = autoreset
        self.rules = _rules(config)
        self.weights = pay_table(config.reward)
        self.pixels = frame_pixels(config.base)
        self.program = task_program(config, ())._replace(
            **dict(zip(("digits", "headers"), program_arrays(config.program, config), strict=True))
        )
        self.world = kernel.World(
            scalars=np.zeros(num_envs, kernel.SCALARS),
            cells=np.zeros((num_envs, config.columns), kernel.CELL),
            history=np.zeros((num_envs, config.frames), np.int32),
        )
        self.world.scalars["program_count"] = len(config.program)
        lengths = observation_lengths(config)
        stops = np.cumsum(list(lengths.values())).tolist()
        self._places = dict(zip(lengths, map(slice, [0, *stops[:-1]], stops), strict=True))
        row = (num_envs, stops[-1])
        self.out = kernel.Output(
            rows=np.zeros(row, np.float32),
            results=np.zeros(num_envs, kernel.RESULT),
            ended=np.zeros(num_envs, np.int32),
            final_rows=np.zeros(row, np.float32),
            final_scalars=np.zeros(num_envs, kernel.SCALARS),
        )
        self._all = np.arange(num_envs, dtype=np.int32)
        self._ended = 0
        self._seeded = False
        self._started = False
        self._draws_tasks = False
        self._name_results()

    def _name_results(self) -> None:
        """Name views of the arrays; they are read-only, since only the kernel may write."""
        out, world = self.out, self.world
        self.observation = self._entries(_read_only(out.rows))
        self.final_observation = self._entries(_read_only(out.final_rows))
        self.final_scalars = _read_only(out.final_scalars)
        self.digits, self.target = map(_read_only, (world.cells["digit"], world.cells["target"]))
        self.scalars, self.history = _read_only(world.scalars), _read_only(world.history)
        self.counts: npt.NDArray[Any] = self.scalars[_COUNT_FIELDS]
        results = _read_only(out.results)
        self.masks, self.outcomes = results["mask"].view(np.bool_), results["outcomes"]
        self.terms = results["terms"]
        self.verdicts: npt.NDArray[Any] = results[_VERDICT_FIELDS]
        self.reward, self.ends, self.illegal = results["reward"], results["end"], results["illegal"]
        self.terminated, self.truncated = results["terminated"], results["truncated"]

    def _entries(self, rows: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the entries of an observation, or of many, as views into its row."""
        return {key: rows[..., place] for key, place in self._places.items()}

    @property
    def ended(self) -> npt.NDArray[np.int32]:
        """The abaci whose episode ended in the last step."""
        ended: npt.NDArray[np.int32] = self.out.ended[: self._ended]
        return ended

    @property
    def final_masks(self) -> npt.NDArray[np.bool_]:
        """The action masks of the last states of the abaci in `ended`, (ended, 8)."""
        masks = np.empty((self._ended, len(Action)), np.bool_)
        kernel.write_final_masks(self.rules, self.out, masks)
        return masks

    @property
    def final_tasks(self) -> npt.NDArray[np.int32]:
        """The task of each episode in `ended`: its index in the list, -1 for a random episode.

        It is -1 as well for a task of a list that was replaced before the episode ended.
        """
        tasks: npt.NDArray[np.int32] = self.final_scalars["start_row"][: self._ended] - 1
        return tasks

    def seed(self, seeds: int | Sequence[int]) -> None:
        """Seed the random streams: abacus i with `seed + i`, or with the i-th of several seeds."""
        if isinstance(seeds, int | np.integer):
            seeds = range(int(seeds), int(seeds) + self.num_envs)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} values: give one, or {self.num_envs}")
        self.world.scalars["rng"] = [stream_start(seed) for seed in seeds]
        self._seeded = True

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        which: npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Start an episode in all abaci or in `which`; without a seed, the streams continue."""
        if seed is not None:
            self.seed(seed)
        elif not self._seeded:
            self.seed(int(np.random.SeedSequence().entropy))  # type: ignore[arg-type]
        self._ended = 0
        self._started = True
        which = self._all if which is None else self._checked(which)
        _reset()(self.rules, self.pixels, self.world, self.program, self.out, which)

    def _checked(self, which: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        if which.ndim != 1 or not np.isin(which, self._all).all():
            raise ValueError(
                f"which={which.tolist()} is not allowed: give numbers of abaci, 0 to "
                f"{self.num_envs - 1}"
            )
        return np.ascontiguousarray(which, np.int32)

    def step(self, actions: npt.NDArray[np.integer]) -> None:
        """Carry out one action in every abacus."""
        if not self._started:
            raise RuntimeError("step() was called before reset(): call reset() first")
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions have shape {actions.shape} and type {actions.dtype}: give "
                f"({self.num_envs},) and integers"
            )
        ended = _step(self._draws_tasks)(
            self.rules,
            self.weights,
            self.pixels,
            self.world,
            self.program,
            self.out,
            np.ascontiguousarray(actions, np.int64),
            self.autoreset,
        )
        if ended < 0:
            _check_range("actions", actions, 0, len(Action) - 1)
        self._ended = ended

    def observation_copy(self, index: int | None = None) -> dict[str, npt.NDArray[np.float32]]:
        """Return a copy of the current observations of all abaci, or of one."""
        rows = self.out.rows if index is None else self.out.rows[index]
        return self._entries(rows.copy())

    def ended_reports(self) -> list[dict[str, Any]]:
        """Return the end and the counts of each episode that ended in the last step."""
        finals = self.final_scalars[: self._ended]
        ends = [END_NAMES[end] for end in self.ends[self.ended].tolist()]
        columns = [finals[name].tolist() for name in _REPORT_FIELDS]
        names = ("end", *_REPORT_FIELDS)
        return [
            dict(zip(names, values, strict=True)) for values in zip(ends, *columns, strict=True)
        ]

    def ended_observations(self) -> list[dict[str, npt.NDArray[np.float32]]]:
        """Return the last observation of each episode that ended in the last step."""
        entries = self._entries(self.out.final_rows[: self._ended].copy())
        # list() splits an array into its rows faster than indexing does.
        rows = zip(*map(list, entries.values()), strict=True)
        return [dict(zip(entries, row, strict=True)) for row in rows]

    def load(
        self,
        starts: npt.NDArray[np.uint8],
        digits: npt.NDArray[np.uint8],
        lengths: npt.NDArray[np.int32],
        operations: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Give every abacus its own starting value and its own list of operations.

        `starts` is (N, columns). Row k of `digits`, with `lengths[k]` and `operations[k]` (0 add, 1
        subtract), is one operation; abacus 0 gets the first `counts[0]` rows, abacus 1 the next
        `counts[1]`, and so on (one each by default). Takes effect at the next reset.
        """
        if counts is None:
            counts = np.ones(self.num_envs, np.int32)
        longest = self.config.longest_operand
        if starts.shape != self.digits.shape or digits.shape != (len(lengths), longest):
            raise ValueError(
                f"starts have shape {starts.shape} and digits {digits.shape}: give "
                f"{self.digits.shape} and ({len(lengths)}, {longest})"
            )
        if len(operations) != len(lengths) or len(counts) != self.num_envs:
            raise ValueError(
                f"{len(operations)} operations with {len(lengths)} lengths and {len(counts)} "
                f"counts: give as many operations as lengths and {self.num_envs} counts"
            )
        if counts.sum() != len(lengths) or (counts < 1).any():
            raise ValueError(
                f"counts sum to {counts.sum()}: give at least 1 each, {len(lengths)} in all"
            )
        _check_range("starts", starts, 0, self.config.base - 1)
        _check_range("digits", digits, 0, self.config.base - 1)
        _check_range("lengths", lengths, 1, longest)
        _check_range("operations", operations, kernel.ADD, kernel.SUBTRACT)
        padded = (lengths > 1) & (digits[np.arange(len(lengths)), lengths - 1] == 0)
        if padded.any():
            row = int(padded.argmax())
            raise ValueError(
                f"digits[{row}] has a leading 0 at length {lengths[row]}: give operands without, "
                "or length 1 for the operand 0"
            )
        self.rules["start_random"] = False
        self.rules["draw_tasks"] = self._draws_tasks = False
        self.program = task_program(self.config, ())._replace(
            start_digits=np.array(starts, np.uint8, order="C"),
            digits=np.array(digits, np.uint8, order="C"),
            headers=np.stack([lengths, operations], axis=1).astype(np.int32),
        )
        scalars = self.world.scalars
        scalars["start_row"] = self._all
        scalars["program_first"] = np.cumsum(counts) - counts
        scalars["program_count"] = counts

    def load_tasks(self, tasks: Sequence[Task]) -> None:
        """Give every abacus its own task; takes effect at the next reset."""
        if len(tasks) != self.num_envs:
            raise ValueError(f"{len(tasks)} tasks: give one for each of {self.num_envs} abaci")
        for task in tasks:
            self.config.check_task(task)
        starts = value_digits([task.start for task in tasks], self.config)
        every = [operation for task in tasks for operation in task.operations]
        digits, headers = program_arrays(every, self.config)
        counts = np.array([len(task.operations) for task in tasks], np.int32)
        self.load(starts, digits, headers[:, 0], headers[:, 1], counts)

    def set_tasks(
        self,
        tasks: Sequence[Task],
        weights: Sequence[float] | npt.NDArray[np.floating] | None = None,
        share: float = 1.0,
    ) -> None:
        """Draw tasks from a list at the start of episodes; replaces an earlier list.

        A new episode is one of the tasks with probability `share`, and random otherwise; see
        `abacus.env.AbacusEnv`. Running episodes end as they began. An empty list makes every new
        episode random.

        Args:
            tasks: starting values and operations.
            weights: the weight of each task, by default 1.
            share: the probability of a task.
        """
        if self.config.program:
            raise ValueError("config has an expression, which is every episode: give one without")
        share = check_number("share", share, 0.0, 1.0) if len(tasks) else 0.0
        new = task_program(self.config, tasks, weights)
        # The operations that running episodes have left precede those of the new tasks.
        old, scalars = self.program, self.world.scalars
        left = np.maximum(scalars["program_count"] - scalars["program_next"], 0)
        first = np.cumsum(left) - left
        next_rows = scalars["program_first"] + scalars["program_next"]
        kept = np.repeat(next_rows - first, left) + np.arange(left.sum())
        headers = np.concatenate([old.headers[kept], new.headers])
        longest = int(headers[:, 0].max(initial=1))
        digits = np.zeros((len(headers), longest), np.uint8)
        for start, rows in ((0, old.digits[kept]), (len(kept), new.digits)):
            rows = rows[:, :longest]
            digits[start : start + len(rows), : rows.shape[1]] = rows
        tasks_left = new.tasks + np.array([len(kept), 0], np.int32)
        self.program = new._replace(digits=digits, headers=headers, tasks=tasks_left)
        scalars["program_first"] = first - scalars["program_next"]
        scalars["start_row"] = 0
        self.rules["start_random"] = self.config.start == START_RANDOM
        self.rules["draw_tasks"] = self._draws_tasks = True
        self.rules["task_share"] = round(share * kernel.CHANCES)
        if longest > self.config.longest_operand:
            # It stays so: episodes of an earlier list may be running.
            self.rules["step_budget"] = self.config.step_budget_for(self.config.columns - 1)

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays (not copies) that hold the state of the abaci, one row each.

        To restore an abacus, write its rows of an earlier copy back; not after `load` or
        `set_tasks`, to whose operations they refer.
        """
        return {
            "scalars": self.world.scalars,
            "cells": self.world.cells,
            "history": self.world.history,
            "seen": self.out.rows,
            "results": self.out.results,
        }

    def tasks_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the tasks, and how they are drawn, as plain arrays for `load_tasks_state`.

        A checkpoint needs them beside `state_arrays`.
        """
        settings = [int(self.rules[name][0]) for name in _TASK_RULES]
        arrays = {name: array.copy() for name, array in self.program._asdict().items()}
        return {"settings": np.array(settings, np.int64), **arrays}

    def load_tasks_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `tasks_state` returned."""
        for name, value in zip(_TASK_RULES, state["settings"].tolist(), strict=True):
            self.rules[name] = value
        arrays = {
            name: np.array(state[name], array.dtype, order="C")
            for name, array in self.program._asdict().items()
        }
        self.program = kernel.Program(**arrays)
        self._draws_tasks = bool(self.rules["draw_tasks"][0])

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays without the views on them, for copies and pickles."""
        return {
            "arguments": (self.config, self.num_envs, self.autoreset),
            "arrays": (self.rules, self.world, self.program, self.out),
            "progress": (self._ended, self._seeded, self._started),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        config, num_envs, autoreset = state["arguments"]
        self.__init__(config, num_envs, autoreset=autoreset)  # type: ignore[misc]
        self.rules, self.world, self.program, self.out = state["arrays"]
        self._draws_tasks = bool(self.rules["draw_tasks"][0])
        self._ended, self._seeded, self._started = state["progress"]
        self._name_results()


# numba dispatches on the types of all arguments at every call, which takes longer than a step of a
# few abaci. The types are the same for every batch: the compiled function is looked up once.
@cache
def _reset() -> Callable[..., None]:
    example = AbacusBatch(AbacusConfig(), 1)
    arrays = example.pixels, example.world, example.program, example.out
    return _overload(kernel.reset, example.rules, *arrays, np.zeros(1, np.int32))


@cache
def _step(draws_tasks: bool) -> Callable[..., int]:
    example = AbacusBatch(AbacusConfig(), 1)
    arrays = example.pixels, example.world, example.program, example.out
    actions = np.zeros(1, np.int64)
    function = kernel.step_drawing_tasks if draws_tasks else kernel.step
    return _overload(function, example.rules, example.weights, *arrays, actions, True)


def _overload(function: Any, *arguments: Any) -> Callable[..., Any]:
    """Return the compiled function for arguments of these types."""
    typeof: Callable[[Any], Any] = numba.typeof
    signature = tuple(map(typeof, arguments))
    function.compile(signature)
    overload: Callable[..., Any] = function.get_overload(signature)
    return overload


def _rules(config: AbacusConfig) -> npt.NDArray[np.void]:
    rules = np.zeros(1, kernel.RULES)
    for name in ("base", "columns", "max_digits", "step_budget"):
        rules[name] = getattr(config, name)
    rules["draw"] = _DRAW[config.operations]
    rules["start_random"] = config.start == START_RANDOM
    rules["max_operations"] = config.max_operations or 0
    for name in ("signpost", "slide", "submit"):
        rules[f"end_on_wrong_{name}"] = (
            config.on_error == "terminate" and f"wrong_{name}" in config.modules
        )
    return rules


@lru_cache(maxsize=1 << 15)
def stream_start(seed: int) -> int:
    """Return the first state of the random stream of a seed."""
    return int(np.random.SeedSequence(int(seed)).generate_state(1, np.uint64)[0])


def value_digits(values: Sequence[int], config: AbacusConfig) -> npt.NDArray[np.uint8]:
    """Return values as rows of digits, column 0 first, as wide as the abacus."""
    rows = np.zeros((len(values), config.columns), np.uint8)
    for row, value in zip(rows, values, strict=True):
        digits = digits_of(value, config.base)
        row[: len(digits)] = digits
    return rows


def program_arrays(
    operations: Sequence[Operation], config: AbacusConfig
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return operations as the kernel reads them: digits, and headers of length and kind."""
    numerals = [digits_of(operation.operand, config.base) for operation in operations]
    longest = max(map(len, numerals), default=0)
    digits = np.zeros((len(operations), max(longest, config.longest_operand)), np.uint8)
    headers = np.zeros((len(operations), 2), np.int32)
    for row, (operation, numeral) in enumerate(zip(operations, numerals, strict=True)):
        digits[row, : len(numeral)] = numeral
        headers[row] = len(numeral), kernel.ADD if operation.sign > 0 else kernel.SUBTRACT
    return digits, headers


def task_program(
    config: AbacusConfig,
    tasks: Sequence[Task],
    weights: Sequence[float] | npt.NDArray[np.floating] | None = None,
) -> kernel.Program:
    """Return tasks as the kernel reads them; see `AbacusBatch.set_tasks`."""
    for task in tasks:
        config.check_task(task)
    start = 0 if config.start == START_RANDOM else int(config.start)
    operations = [operation for task in tasks for operation in task.operations]
    counts = np.array([len(task.operations) for task in tasks], np.int32)
    return kernel.Program(
        value_digits([start, *(task.start for task in tasks)], config),
        *program_arrays(operations, config),
        np.stack([np.cumsum(counts, dtype=np.int32) - counts, counts], axis=1),
        _chances(np.ones(len(tasks)) if weights is None else weights, len(tasks)),
    )


def _chances(
    weights: Sequence[float] | npt.NDArray[np.floating], count: int
) -> npt.NDArray[np.int64]:
    """Return the cumulative probabilities of weights, of `kernel.CHANCES`."""
    numbers = np.asarray(weights, np.float64)
    if numbers.shape != (count,):
        raise ValueError(f"weights have shape {numbers.shape}: give one for each of {count} tasks")
    if count == 0:
        return np.zeros(0, np.int64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        raise ValueError("weights are not allowed: give finite numbers of 0 or more, not all 0")
    # Divided first: the sum of large weights may overflow.
    sums = np.cumsum(numbers / numbers.max())
    chances: npt.NDArray[np.int64] = np.rint(sums / sums[-1] * kernel.CHANCES).astype(np.int64)
    return chances


def _check_range(name: str, values: npt.NDArray[np.integer], low: int, high: int) -> None:
    if values.min() < low or values.max() > high:
        raise ValueError(
            f"{name} range from {values.min()} to {values.max()}: give {low} to {high}"
        )


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
