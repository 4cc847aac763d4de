"""What to evaluate: the flags of `pipelines.evaluate`, apart from the modules that do the work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from abacus.checks import check_integer
from pipelines.job.command_line import option
from pipelines.scoring.operations import PAPER_DIGITS, SETS, check_fit, check_sets

MOST_REPLAYS = 10
#: Fewest operations with operands longer than the paper's.
FEWEST_OPERATIONS = 100
NO_SETS = "none"


@dataclass(frozen=True)
class Request:
    """Parts and sizes of an evaluation, as flags of `pipelines.evaluate`."""

    digits: tuple[int, ...] = option(
        (1, 2, 4, 8, 16, 32, 64, 128, 1_000, 10_000), "digits of both operands, one or more lengths"
    )
    n_operations: int = option(100_000, "operations of each length up to 16 digits")
    n_long_operations: int | None = option(
        None, "operations of each longer length (default: fewer, for equal time, at least 100)"
    )
    columns: int | None = option(None, "columns (default: 20, or more where operands need them)")
    sets: tuple[str, ...] = option(tuple(SETS), f"adversarial sets, or '{NO_SETS}'")
    n_set_operations: int = option(10_000, "operations of each adversarial set")
    set_digits: int = option(16, "digits of the longest operands in the adversarial sets")
    n_episodes: int = option(20, "episodes for the runs of operations; 0 for none")
    run_limit: int = option(2_000, "operations after which a run ends")
    logs: tuple[Path, ...] = option((), "folders of runs, or CSV files, for learning curves")
    n_errors: int = option(2_000, "errors of each length to analyse")
    replay: tuple[str, ...] = option((), "decimal expressions to replay, such as 1234+567")
    certificate: bool = option(True, "check every observation that the algorithm can meet")
    seed: int = option(0, "random seed")

    def __post_init__(self) -> None:
        if self.sets == (NO_SETS,):
            object.__setattr__(self, "sets", ())
        for name in ("n_operations", "n_long_operations", "n_set_operations", "run_limit"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1, 2**31 - 1)
        for name in ("n_episodes", "n_errors"):
            check_integer(name, getattr(self, name), 0, 2**31 - 1)
        check_integer("seed", self.seed, 0)
        check_integer("set_digits", self.set_digits, 1)
        if len(self.replay) > MOST_REPLAYS:
            raise ValueError(f"{len(self.replay)} replays: give at most {MOST_REPLAYS}")
        check_sets(self.sets)
        for digits in self.digits:
            check_fit(digits, self.columns)
        if self.sets:
            check_fit(self.set_digits + 1, self.columns)

    def operations_of(self, digits: int) -> int:
        """Return the number of operations of a length: fewer beyond 16 digits, for equal time."""
        if digits <= PAPER_DIGITS:
            return self.n_operations
        if self.n_long_operations is not None:
            return self.n_long_operations
        fewer = self.n_operations * PAPER_DIGITS // digits
        return min(self.n_operations, max(FEWEST_OPERATIONS, fewer))
