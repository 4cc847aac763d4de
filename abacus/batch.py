"""N abaci in one process: the kernel's arrays with names. Every environment is a face of this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.checks import check_integer
from abacus.observation import frame_pixels, observation_lengths
from abacus.reward import pay_table
from abacus.rules import START_RANDOM, AbacusConfig, Action, End
from abacus.tasks import Operation, digits_of

_DRAW = {
    "both": kernel.DRAW_BOTH,
    "add": kernel.DRAW_ADD,
    "subtract": kernel.DRAW_SUBTRACT,
}

#: Names of ends by their number: quicker than asking the enumeration.
END_NAMES = tuple(end.name for end in End)

#: Fields of the kernel's records that environments read together.
_JUDGED = ["reward", "end", "terminated", "truncated", "illegal"]
_COUNTED = [
    "operations_done",
    "operations_solved",
    "illegal_actions",
    "reloads",
    "budget",
    "steps",
]

#: What is told of an episode that ended, by the names of the kernel's record.
_REPORTED = (
    "steps",
    "episode_return",
    "operations_done",
    "operations_solved",
    "illegal_actions",
    "reloads",
)


class AbacusBatch:
    """N abaci that step together.

    After `reset` and `step`, the results lie in arrays that are written in place, valid until the
    next call: `observation` (a dict), `masks`, `outcomes`, `terms`, and `verdicts` with the fields
    `reward`, `end`, `terminated`, `truncated` and `illegal`, which are also arrays of those names
    (`ends` for `end`); what abaci show and where their fingers are in `digits`, `scalars` and
    `history`; the part of the scalars that counts something in `counts`. With `autoreset` an
    abacus that ends starts anew within the same step; `ended` names those, and rows of
    `final_observation`, `final_masks` and `final_scalars`, in the same order, keep what they showed
    last.
    """

    def __init__(self, config: AbacusConfig, num_envs: int, *, autoreset: bool = True) -> None:
        self.config = config
        self.num_envs = check_integer("num_envs", num_envs, 1)
        self.autoreset = autoreset
        self.world = self._new_world()
        self.rules = self._new_rules()
        self.weights = pay_table(config.reward)
        self.pixels = frame_pixels(config.base)
        self.program = self._new_program()
        self.out = self._new_output()
        self._all = np.arange(num_envs, dtype=np.int32)
        self._ended = 0
        self._seeded = False
        self._started = False
        self._name_results()
        self._name_program()

    def _new_world(self) -> kernel.World:
        n, config = self.num_envs, self.config
        return kernel.World(
            scalars=np.zeros(n, kernel.SCALARS),
            cells=np.zeros((n, config.columns), kernel.CELL),
            history=np.zeros((n, config.frames), np.int32),
        )

    def _new_rules(self) -> npt.NDArray[np.void]:
        config = self.config
        may_end = config.on_error == "terminate"
        rules = np.zeros(1, kernel.RULES)
        rules["base"] = config.base
        rules["columns"] = config.columns
        rules["max_digits"] = config.max_digits
        rules["step_budget"] = config.step_budget
        rules["draw"] = _DRAW[config.operations]
        rules["start_random"] = config.start == START_RANDOM
        rules["max_operations"] = config.max_operations or 0
        for name in ("signpost", "slide", "submit"):
            rules[f"end_on_wrong_{name}"] = may_end and f"wrong_{name}" in config.modules
        return rules

    def _new_program(self) -> kernel.Program:
        config = self.config
        start = 0 if config.start == START_RANDOM else int(config.start)
        return kernel.Program(
            value_digits([start], config), *program_arrays(config.program, config)
        )

    def _new_seen(self) -> npt.NDArray[np.float32]:
        return np.zeros((self.num_envs, sum(observation_lengths(self.config).values())), np.float32)

    def _parts(self, seen: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """The entries of observations, as views into their rows; of one row or of many."""
        return {key: seen[..., place] for key, place in self._places.items()}

    @cached_property
    def _places(self) -> dict[str, slice]:
        lengths = observation_lengths(self.config)
        ends = np.cumsum(list(lengths.values())).tolist()
        return {
            key: slice(end - length, end)
            for (key, length), end in zip(lengths.items(), ends, strict=True)
        }

    def _new_output(self) -> kernel.Output:
        n = self.num_envs
        return kernel.Output(
            seen=self._new_seen(),
            results=np.zeros(n, kernel.RESULT),
            ended=np.zeros(n, np.int32),
            final_seen=self._new_seen(),
            final_scalars=np.zeros(n, kernel.SCALARS),
        )

    def _name_results(self) -> None:
        """Read-only names for the arrays: the kernel alone writes them."""
        out, world = self.out, self.world
        self.observation = self._parts(_locked(out.seen))
        self.final_observation = self._parts(_locked(out.final_seen))
        self.final_scalars = _locked(out.final_scalars)
        self.digits, self.target = _locked(world.cells["digit"]), _locked(world.cells["target"])
        self.scalars, self.history = _locked(world.scalars), _locked(world.history)
        self.counts: npt.NDArray[Any] = self.scalars[_COUNTED]
        results = _locked(out.results)
        self.masks, self.outcomes, self.terms = (
            results["mask"].view(np.bool_),
            results["outcomes"],
            results["terms"],
        )
        self.verdicts: npt.NDArray[Any] = results[_JUDGED]
        self.reward, self.ends, self.illegal = results["reward"], results["end"], results["illegal"]
        self.terminated, self.truncated = results["terminated"], results["truncated"]

    def _name_program(self) -> None:
        self.world.scalars["start_row"] = 0
        self.world.scalars["program_first"] = 0
        self.world.scalars["program_count"] = len(self.config.program)

    @property
    def ended(self) -> npt.NDArray[np.int32]:
        """The abaci whose episode the last step ended."""
        ended: npt.NDArray[np.int32] = self.out.ended[: self._ended]
        return ended

    @property
    def final_masks(self) -> npt.NDArray[np.bool_]:
        """The actions that were legal in the last states of the abaci in `ended`, (ended, 8)."""
        masks = np.empty((self._ended, len(Action)), np.bool_)
        kernel.write_final_masks(self.rules, self.out, masks)
        return masks

    def seed(self, seeds: int | Sequence[int]) -> None:
        """Starts the streams: abacus i with `seed + i`, or with the i-th of the seeds given."""
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
        """Starts an episode in all abaci, or in those named; without a seed, streams go on."""
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
        """One action in every abacus."""
        if not self._started:
            raise RuntimeError("step() came before reset(): call reset() first")
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions have shape {actions.shape} and type {actions.dtype}: give "
                f"({self.num_envs},) and integers"
            )
        ended = _step()(
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
            raise ValueError(
                f"actions run from {actions.min()} to {actions.max()}: give 0 to {len(Action) - 1}"
            )
        self._ended = ended

    def observation_copy(self, index: int | None = None) -> dict[str, npt.NDArray[np.float32]]:
        """What all abaci, or the one named, show now; later steps do not change it."""
        seen = self.out.seen
        return self._parts(seen.copy() if index is None else seen[index].copy())

    def ended_reports(self) -> list[dict[str, Any]]:
        """For each abacus that the last step ended: why, and what it had done, in plain values."""
        finals = self.final_scalars[: self._ended]
        ends = [END_NAMES[end] for end in self.ends[self.ended].tolist()]
        columns = [finals[name].tolist() for name in _REPORTED]
        names = ("end", *_REPORTED)
        return [
            dict(zip(names, values, strict=True)) for values in zip(ends, *columns, strict=True)
        ]

    def ended_observations(self) -> list[dict[str, npt.NDArray[np.float32]]]:
        """For each abacus that the last step ended: what it showed last."""
        parts = self._parts(self.out.final_seen[: self._ended].copy())
        # A list of an array's rows is made in one go; asking for them one by one takes longer.
        rows = zip(*map(list, parts.values()), strict=True)
        return [dict(zip(parts, row, strict=True)) for row in rows]

    def load(
        self,
        starts: npt.NDArray[np.uint8],
        digits: npt.NDArray[np.uint8],
        lengths: npt.NDArray[np.int32],
        operations: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Gives every abacus a starting value and a list of operations of its own.

        `starts` is (N, columns). Row k of `digits`, with `lengths[k]` and `operations[k]` (0 add, 1
        subtract), is an operation; abacus 0 gets the first `counts[0]` rows, abacus 1 the next
        ones, and so on (one each without counts). Takes effect at the next reset.
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
                f"counts: give as many operations as lengths, and {self.num_envs} counts"
            )
        if counts.sum() != len(lengths) or (counts < 1).any():
            raise ValueError(
                f"counts sum to {counts.sum()}: give at least 1 each, {len(lengths)} in all"
            )
        self._check_operands(starts, digits, lengths, operations)
        self.rules["start_random"] = False
        self.program = kernel.Program(
            np.array(starts, np.uint8, order="C"),
            np.array(digits, np.uint8, order="C"),
            np.stack([lengths, operations], axis=1).astype(np.int32),
        )
        scalars = self.world.scalars
        scalars["start_row"] = self._all
        scalars["program_first"] = np.cumsum(counts) - counts
        scalars["program_count"] = counts

    def _check_operands(
        self,
        starts: npt.NDArray[np.uint8],
        digits: npt.NDArray[np.uint8],
        lengths: npt.NDArray[np.int32],
        operations: npt.NDArray[np.int32],
    ) -> None:
        longest, base = self.config.longest_operand, self.config.base
        if lengths.min() < 1 or lengths.max() > longest:
            raise ValueError(
                f"lengths run from {lengths.min()} to {lengths.max()}: give 1 to {longest}"
            )
        for name, values in (("starts", starts), ("digits", digits)):
            if values.min() < 0 or values.max() >= base:
                raise ValueError(
                    f"{name} run from {values.min()} to {values.max()}: give 0 to {base - 1}, the "
                    f"digits of base {base}"
                )
        padded = (lengths > 1) & (digits[np.arange(len(lengths)), lengths - 1] == 0)
        if padded.any():
            row = int(padded.argmax())
            raise ValueError(
                f"digits[{row}] has a leading 0 at length {lengths[row]}: give operands without, "
                "or the length 1 for a lone 0"
            )
        if not np.isin(operations, (kernel.ADD, kernel.SUBTRACT)).all():
            raise ValueError(
                f"operations run from {operations.min()} to {operations.max()}: give 0 (add) or 1 "
                "(subtract)"
            )

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the arrays once, without the views that name their parts."""
        return {
            "arguments": (self.config, self.num_envs, self.autoreset),
            "arrays": (self.rules, self.world, self.program, self.out),
            "progress": (self._ended, self._seeded, self._started),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        config, num_envs, autoreset = state["arguments"]
        self.__init__(config, num_envs, autoreset=autoreset)  # type: ignore[misc]
        self.rules, self.world, self.program, self.out = state["arrays"]
        self._ended, self._seeded, self._started = state["progress"]
        self._name_results()


# numba finds out the types of all arguments at every call, which takes longer than a step of a few
# abaci. They are the same for every batch, so what it finds for one is kept.
@cache
def _reset() -> Callable[..., None]:
    any_one = AbacusBatch(AbacusConfig(), 1)
    arrays = any_one.rules, any_one.pixels, any_one.world, any_one.program, any_one.out
    return _overload(kernel.reset, *arrays, np.zeros(1, np.int32))


@cache
def _step() -> Callable[..., int]:
    any_one = AbacusBatch(AbacusConfig(), 1)
    arrays = any_one.pixels, any_one.world, any_one.program, any_one.out
    actions = np.zeros(1, np.int64)
    return _overload(kernel.step, any_one.rules, any_one.weights, *arrays, actions, True)


def _overload(function: Any, *arguments: Any) -> Callable[..., Any]:
    """The compiled function for arguments of these types."""
    typeof: Callable[[Any], Any] = numba.typeof
    signature = tuple(map(typeof, arguments))
    function.compile(signature)
    overload: Callable[..., Any] = function.get_overload(signature)
    return overload


def stream_start(seed: int) -> int:
    """Where the stream of an abacus with this seed starts."""
    return int(np.random.SeedSequence(int(seed)).generate_state(1, np.uint64)[0])


def value_digits(values: Sequence[int], config: AbacusConfig) -> npt.NDArray[np.uint8]:
    """Values as rows of digits, column 0 first, as wide as the abacus."""
    rows = np.zeros((len(values), config.columns), np.uint8)
    for row, value in zip(rows, values, strict=True):
        digits = digits_of(value, config.base)
        row[: len(digits)] = digits
    return rows


def program_arrays(
    operations: Sequence[Operation], config: AbacusConfig
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Operations as the kernel reads them: digits, and headers of length and kind."""
    numerals = [digits_of(operation.operand, config.base) for operation in operations]
    digits = np.zeros((len(operations), config.longest_operand), np.uint8)
    headers = np.zeros((len(operations), 2), np.int32)
    for row, (numeral, operation) in enumerate(zip(numerals, operations, strict=True)):
        digits[row, : len(numeral)] = numeral
        headers[row] = len(numeral), kernel.ADD if operation.sign > 0 else kernel.SUBTRACT
    return digits, headers


def _locked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
