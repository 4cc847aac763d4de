"""Learning curves of DQN beside those of PPO, without demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from pipelines.studying.drawing import LOOKS, Picture, drawn, legend_below, panels
from pipelines.studying.figures.captions import averaged
from pipelines.studying.figures.learning_curves import accuracy_at_end, draw_curve, finish_curves
from pipelines.studying.groups import Kind, arm_words, budget, grid_of, kind_of, split
from pipelines.studying.records import REWARDED, Record
from pipelines.studying.wording import percent


def dqn_curves(comparison: str, records: Sequence[Record], folder: Path) -> Picture:
    """A panel for each level of reward, a curve for each learner."""
    rewarded = [r for r in records if r.cell.arm in REWARDED and r.curve]
    chosen = [r for r in rewarded if not r.cell.demonstrations]
    grid = grid_of(comparison, chosen)
    levels = list(dict.fromkeys((kind.reward, kind.operations) for kind in grid.kinds))
    by_arm = split(chosen, lambda record: record.cell.arm)
    title = (
        f"DQN and PPO without demonstrations, {budget(chosen):,} steps\n"
        f"Greedy policy. {averaged(list(grid.parts.values()))}"
    )
    looks = dict(zip(by_arm, LOOKS[1:], strict=False))

    def draw(figure: Figure) -> None:
        (row,) = panels(figure, len(levels))
        for axes, (reward, operations) in zip(row, levels, strict=True):
            for arm in by_arm:
                seeds = [r for r in chosen if kind_of(r) == Kind(arm, reward, operations)]
                draw_curve(axes, looks[arm], arm_words(arm), seeds)
            finish_curves(axes, Kind("ppo", reward, operations).name)
        row[0].set_ylabel("operations solved, %")
        legend_below(figure, row[0], 4)

    alt = "; ".join(
        f"{arm_words(kind.arm)}, {kind.name}: {percent(accuracy_at_end(seeds))} % at the end"
        for (kind, _), seeds in grid.parts.items()
    )
    return drawn(folder, f"dqn_{comparison}", title, alt, (max(3.6 * len(levels), 7.2), 3.6), draw)
