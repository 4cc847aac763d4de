"""The study's figures: what is drawn is what was recorded, and the same twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.experiments import figures
from pipelines.experiments.drawing import BrokenLog, Picture, in_percent, look_of, plain
from pipelines.experiments.figures import draw_figures
from pipelines.experiments.records import Kind, Record
from tests.pipelines.experiments.synthetic_records import record, score, seeds, study

Figures = dict[str, Figure]


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Record]], Figures]]:
    """Draws figures without writing them, which is what takes time."""
    kept: Figures = {}

    def drawn(
        folder: Path, key: str, title: str, alt: str, size: Any, draw: Callable[[Figure], None]
    ) -> Picture:
        kept[key] = Figure(figsize=size)
        kept[key].suptitle(title)
        draw(kept[key])
        return Picture(key, title, alt, ())

    def draw(records: list[Record]) -> Figures:
        kept.clear()
        assert [picture.key for picture in draw_figures(records, Path())] == list(kept)
        return dict(kept)

    monkeypatch.setattr(figures, "drawn", drawn)
    with mpl.rc_context():
        yield draw


def title(figure: Figure) -> str:
    return figure.get_suptitle()


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def test_zero_has_a_place_of_its_own() -> None:
    axis = BrokenLog.of([0, 1, 30_000])
    assert axis.place(0) < axis.place(1) - 0.5
    places, labels = axis.ticks(plain)
    assert labels == ["0", "1", "10", "100", "1,000", "10,000"]
    assert places == sorted(places)
    low, high = axis.limits
    assert low < axis.place(0) < axis.place(30_000) < high
    assert BrokenLog.of([1.0, 0.001]).ticks(in_percent)[1] == ["0.1 %", "1 %", "10 %", "100 %"]
    assert BrokenLog.of([0.0]).ticks(plain)[1][0] == "0"


def test_levels_differ_in_colour_marker_and_line() -> None:
    kinds = [Kind("cloning", "none", "both")]
    levels = ("dense", "no_of", "no_of_sp", "no_of_sp_ms", "answer_only")
    kinds += [Kind("ppo", level, "both") for level in levels]
    looks = [look_of(kind) for kind in kinds]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 6
    assert all(one.dashes != other.dashes for one, other in pairwise(looks))


Drawer = Callable[[list[Record]], Figures]


def test_no_errors_are_drawn_at_zero_and_certified_ones_hollow(drawings: Drawer) -> None:
    records = [
        *seeds([0.9] * 3, arm="cloning", demonstrations=1),
        *seeds([1.0] * 3, arm="cloning", demonstrations=10),
        # No errors in the sample, but one observation wrong: not exact.
        *seeds([1.0] * 3, arm="cloning", demonstrations=5, final=score(1.0, wrong=1)),
        *seeds([0.5] * 3, demonstrations=0),
    ]
    figure = drawings(records)["error_by_demonstrations"]
    assert "exact in every seed from some number on: 1 of 2" in title(figure)
    assert "3 seeds" in title(figure)
    axes = figure.axes[0]
    assert axes.get_yticklabels()[0].get_text() == "0"
    zero = axes.get_yticks()[0]
    hollow = [heights(line) for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [ys for ys in hollow if ys] == [[zero]]
    assert [ys for ys in map(heights, axes.lines) if len(ys) == 3] == [
        [pytest.approx(-1), zero, zero]
    ]


def test_a_single_run_is_no_ground_for_a_claim(drawings: Drawer) -> None:
    single = [record(1.0, arm="cloning", demonstrations=n) for n in (1, 10)]
    said = title(drawings(single)["error_by_demonstrations"])
    assert "0 of 1 kinds" in said
    assert "1 seed: too few for an interval" in said


def test_from_how_many_answers_on_all_are_exact(drawings: Drawer) -> None:
    records = [
        record(end, seed=seed, arm="dagger", demonstrations=0, labels=labels, asked=labels)
        for labels, end in ((10, 1.0), (100, 0.9), (1000, 1.0))
        for seed in range(3)
    ]
    assert title(drawings(records)["labels"]).endswith("from so many on: DAgger 1,000")


def test_the_heat_map_has_its_numbers(drawings: Drawer) -> None:
    records = [
        *seeds([0.5, 0.6, 0.7, 0.8], arm="cloning", demonstrations=3),
        *seeds([1.0, 1.0, 1.0, 0.9], demonstrations=3),
        *seeds([0.25] * 3, demonstrations=0),
    ]
    figure = drawings(records)["heat_map"]
    assert texts(figure) == ["-", "25.00", "65.00", "100\n3/4 exact"]
    assert "25.00 to 100" in title(figure)
    assert "3 to 4 seeds" in title(figure)


def test_learning_curves_are_means_over_seeds(drawings: Drawer) -> None:
    records = [
        record(seed=seed, demonstrations=n, curve=((0, 0.0), (1000, end)), reward=level)
        for n in (0, 50)
        for level in ("dense", "no_of")
        for seed, end in enumerate((0.2, 0.4, 0.6))
    ]
    drawn = drawings(records)
    assert "curves_operations" not in drawn
    panels = drawn["curves_levels"].axes
    assert [axes.get_title(loc="left") or axes.get_title() for axes in panels] == [
        "no demonstrations: 90.00 % at the end",
        "50 demonstrations: 90.00 % at the end",
    ]
    for axes in panels:
        assert axes.get_xlabel() == "environment steps, millions"
        assert [heights(line) for line in axes.lines] == [[0, pytest.approx(40)]] * 2


def test_the_longest_comparison_with_and_without_has_the_curves(drawings: Drawer) -> None:
    line = ((0, 0.0), (1000, 0.5))
    short = [record(demonstrations=n, curve=line, comparison="short") for n in (0, 1, 2)]
    longer = [record(demonstrations=n, curve=line, comparison="long", steps=9000) for n in (0, 40)]
    without = [record(demonstrations=0, curve=line, comparison="dqn", steps=99_000)]
    assert " 9,000 steps" in title(drawings([*short, *longer, *without])["curves_levels"])


def test_what_ppo_added_says_how_many_rose(drawings: Drawer) -> None:
    records = [
        *seeds([0.9, 0.99], demonstrations=5, clone=score(0.95, wrong=9), final=None),
        record(0.95, seed=2, demonstrations=5, clone=score(0.95), final=score(0.95)),
    ]
    said = title(drawings(records)["ppo_added"])
    assert "3 clones: operations solved rose in 1 and fell in 1" in said


def test_single_operations_and_other_learners_are_drawn(drawings: Drawer) -> None:
    drawn = drawings(study((0, 1, 10), seeds_of_each=2, points=2))
    assert list(drawn) == [
        "error_by_demonstrations",
        "heat_map",
        "curves_levels",
        "curves_operations",
        "ppo_added",
        "labels",
        "dqn_dqn",
    ]
    assert len(drawn["dqn_dqn"].axes) == 2
    assert len(drawn["ppo_added"].axes) == 10
    for key, figure in drawn.items():
        assert "seeds" in title(figure), key


def test_any_part_of_a_study_can_be_drawn(drawings: Drawer) -> None:
    whole = study((0, 1, 10), seeds_of_each=1, points=2)
    assert drawings([]) == {}
    settings = {(r.cell.comparison, r.cell.arm, r.cell.demonstrations > 0): r for r in whole}
    for one in settings.values():
        # Of a clone alone there is no curve, and nothing to draw its error against.
        assert bool(drawings([one])) == (one.cell.arm != "cloning")
    assert drawings(whole[::7])


def test_the_same_records_make_the_same_files(tmp_path: Path) -> None:
    records = [
        *seeds([0.5, 0.6, 1.0], arm="cloning", demonstrations=3),
        *seeds([0.7, 0.9, 1.0], arm="cloning", demonstrations=9),
    ]
    first = draw_figures(records, tmp_path / "first")
    assert len(first) == 2
    draw_figures(records[::-1], tmp_path / "second")
    for picture in first:
        assert [path.suffix for path in picture.files] == [".png", ".pdf"]
        for path in picture.files:
            assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
            assert b"CreationDate" not in path.read_bytes()
