"""N abaci in one process: the kernel's arrays with names. Every environment is a face of this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus import kernel
from abacus.observation import frame_pixels, observation_lengths
from abacus.reward import OUTCOMES, STEP_PENALTY, TERMS, term_weights
from abacus.rules import START_RANDOM, AbacusConfig, Action, End
from abacus.tasks import Operation, digits_of

_DRAW = {
    "both": kernel.DRAW_BOTH,
    "add": kernel.DRAW_ADD,
    "subtract": kernel.DRAW_SUBTRACT,
}

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
    next call: `observation` (a dict), `masks`, `outcomes`, `terms`, `reward`, `terminated`,
    `truncated`, `illegal`, `ends`; what abaci show and where their fingers are in `digits`,
    `scalars` and `history`. With `autoreset` an abacus that ends starts anew within the same
    step; `ended` names those, and rows of `final_observation` and `final_scalars`, in the same
    order, keep what they showed last.
    """

    def __init__(self, config: AbacusConfig, num_envs: int, *, autoreset: bool = True) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} is not allowed: give 1 or more")
        self.config = config
        self.num_envs = num_envs
        self.autoreset = autoreset
        self.world = self._new_world()
        self.rules = self._new_rules()
        self.weights = term_weights(config.modules)
        self.pixels = frame_pixels(config.base)
        self.program = self._new_program()
        self.out = self._new_output()
        self._all = np.arange(num_envs, dtype=np.int32)
        self._ended = 0
        self._seeded = False
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
        rules["step_penalty"] = STEP_PENALTY if "step" in config.modules else 0.0
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
        """The entries of an observation, as views into its rows."""
        lengths = observation_lengths(self.config)
        ends = np.cumsum(list(lengths.values())).tolist()
        return {
            key: _locked(seen[:, end - length : end])
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
        self.observation = self._parts(out.seen)
        self.final_observation = self._parts(out.final_seen)
        self.final_scalars = _locked(out.final_scalars)
        self.digits, self.target = _locked(world.cells["digit"]), _locked(world.cells["target"])
        self.scalars, self.history = _locked(world.scalars), _locked(world.history)
        results = _locked(out.results)
        self.masks, self.outcomes, self.terms = (
            results["mask"].view(np.bool_),
            results["outcomes"],
            results["terms"],
        )
        self.reward, self.ends, self.illegal = results["reward"], results["end"], results["illegal"]
        self.terminated, self.truncated = results["terminated"], results["truncated"]

    def _name_program(self) -> None:
        self.world.scalars["start_row"] = 0
        self.world.scalars["program_first"] = 0
        self.world.scalars["program_count"] = len(self.config.program)

    @property
    def ended(self) -> npt.NDArray[np.int32]:
        """The abaci whose episode the last step ended."""
        return self.out.ended[: self._ended]

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
        which: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Starts an episode in all abaci, or in those named; without a seed, streams go on."""
        if seed is not None:
            self.seed(seed)
        elif not self._seeded:
            self.seed(int(np.random.SeedSequence().entropy))  # type: ignore[arg-type]
        self._ended = 0
        which = self._all if which is None else which
        kernel.reset(self.rules, self.pixels, self.world, self.program, self.out, which)

    def step(self, actions: npt.NDArray[np.integer]) -> None:
        """One action in every abacus."""
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions have shape {actions.shape}: give ({self.num_envs},)")
        ended = kernel.step(
            self.rules,
            self.weights,
            self.pixels,
            self.world,
            self.program,
            self.out,
            actions,
            self.autoreset,
        )
        if ended < 0:
            raise ValueError(f"actions are not all from 0 to {len(Action) - 1}")
        self._ended = ended

    def ended_reports(self) -> list[dict[str, Any]]:
        """For each abacus that the last step ended: why, and what it had done, in plain values."""
        finals = self.final_scalars[: self._ended]
        columns = (finals[name].tolist() for name in _REPORTED)
        ends = (End(end).name for end in self.ends[self.ended].tolist())
        return [
            {"end": end, **dict(zip(_REPORTED, values, strict=True))}
            for end, values in zip(ends, zip(*columns, strict=True), strict=True)
        ]

    def ended_observations(self) -> list[dict[str, npt.NDArray[np.float32]]]:
        """For each abacus that the last step ended: what it showed last."""
        parts = {key: rows[: self._ended].copy() for key, rows in self.final_observation.items()}
        return [{key: rows[k] for key, rows in parts.items()} for k in range(self._ended)]

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
                f"{len(operations)} operations with {len(lengths)} lengths and {len(counts)} counts:"
                f" give as many operations as lengths, and {self.num_envs} counts"
            )
        if counts.sum() != len(lengths) or (counts < 1).any():
            raise ValueError(f"counts sum to {counts.sum()}: give at least 1 each, {len(lengths)} in all")
        if lengths.min() < 1 or lengths.max() > longest:
            raise ValueError(f"lengths run from {lengths.min()} to {lengths.max()}: give 1 to {longest}")
        base = self.config.base
        if starts.max() >= base or digits.max() >= base:
            raise ValueError(f"starts and digits hold a digit above {base - 1}: give digits of base {base}")
        if not np.isin(operations, (kernel.ADD, kernel.SUBTRACT)).all():
            raise ValueError("operations are not all 0 (add) or 1 (subtract)")
        self.rules["start_random"] = False
        self.program = kernel.Program(
            np.ascontiguousarray(starts, np.uint8),
            np.ascontiguousarray(digits, np.uint8),
            np.stack([lengths, operations], axis=1).astype(np.int32),
        )
        scalars = self.world.scalars
        scalars["start_row"] = self._all
        scalars["program_first"] = np.cumsum(counts) - counts
        scalars["program_count"] = counts


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
