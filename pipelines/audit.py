"""Audits observability: how often does what the agent sees not tell what to do?

For each order of signpost and write, and each number of frames: the observations that the
reference algorithm can meet at any width, how many of them have two right answers, and the share of
steps that no memory-less policy can get right. Writes the table with worked examples to
observability.md and observability.json in the output folder.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from abacus.rules import AbacusConfig
from oracle.algorithm import VARIANTS, Variant
from oracle.observations import MAX_FRAMES
from pipelines.auditing.measure import measure
from pipelines.auditing.report import as_json, markdown, table_lines
from pipelines.command_line import option, run, shown_path
from pipelines.learning.files import write_text

EXAMPLE = "python -m pipelines.audit --frames 1 2 3 --steps 1e6"


@dataclass(frozen=True)
class Options:
    """The command line."""

    base: int = option(5, "base of the abacus")
    columns: int = option(10, "columns of the abacus on which steps are sampled")
    max_digits: int = option(6, "digits of the longest operand sampled")
    frames: tuple[int, ...] = option(
        tuple(range(1, MAX_FRAMES + 1)), "numbers of frames to audit; 6 takes 2 GB and a minute"
    )
    variants: tuple[Variant, ...] = option(VARIANTS, "orders of signpost and write to audit")
    steps: int = option(4_000_000, "the teacher's steps to sample for each variant")
    list_up_to: int = option(200, "ambiguous observations of a row to list one by one in the JSON")
    seed: int = option(0, "seed of the operations sampled")
    output: Path = option(Path("results"), "folder to write to")

    def __post_init__(self) -> None:
        for number in self.frames:
            if not 1 <= number <= MAX_FRAMES:
                raise ValueError(f"frames={number} is not allowed: give 1 to {MAX_FRAMES}")
        if self.steps < 1:
            raise ValueError(f"steps={self.steps} is not allowed: give 1 or more")
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"output={shown_path(self.output)} is a file: give a folder")

    @property
    def config(self) -> AbacusConfig:
        """The world that is sampled, with the most frames asked for."""
        return AbacusConfig(
            base=self.base,
            columns=self.columns,
            max_digits=self.max_digits,
            frames=max(self.frames),
        )


def main(options: Options) -> int:
    """Measures, prints, writes."""
    rows = list(
        measure(
            options.config,
            options.variants,
            sorted(set(options.frames)),
            options.steps,
            options.seed,
            options.list_up_to,
        )
    )
    print("\n".join(table_lines(rows)))
    settings = asdict(options)
    del settings["output"]
    pages = {
        "observability.json": json.dumps(as_json(rows, options.base, settings), indent=1) + "\n",
        "observability.md": markdown(rows, options.base, "python -m pipelines.audit"),
    }
    print()
    for name, text in pages.items():
        write_text(options.output / name, text)
        print(f"written  {shown_path(options.output / name)}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
