"""The study's figures: they draw the records, fit their frame, and are reproducible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from pipelines.experiments import figures
from pipelines.experiments.drawing import (
    STYLE,
    FigureFiles,
    count_tick,
    logarithmic,
    look_of,
    new_figure,
    percent_tick,
)
from pipelines.experiments.figures import draw_figures
from pipelines.experiments.records import Kind, Record, frame_of
from pipelines.experiments.store import read_store
from tests.pipelines.experiments.synthetic_records import record, score, seeds, study

Figures = dict[str, Figure]
Drawer = Callable[[list[Record]], Figures]
RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawer]:
    """Draw figures without writing them, which takes most of the time."""
    kept: Figures = {}

    def write_figure(
        folder: Path, key: str, title: str, alt: str, size: Any, draw: Callable[[Figure], None]
    ) -> FigureFiles:
        kept[key] = new_figure(title, size)
        draw(kept[key])
        return FigureFiles(key, title, alt, ())

    def draw(records: list[Record]) -> Figures:
        kept.clear()
        pictures = draw_figures(frame_of(records), Path())
        assert [picture.key for picture in pictures] == list(kept)
        return dict(kept)

    monkeypatch.setattr(figures, "write_figure", write_figure)
    style: Any = STYLE
    with mpl.rc_context(style):
        yield draw


def title(figure: Figure) -> str:
    return figure.get_suptitle()


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def heights(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def rendered(figure: Figure) -> None:
    """Draw a figure, which sets its layout and wraps its title."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()


def ticks(values: list[float], tick: Callable[[float], str]) -> tuple[list[float], list[str]]:
    """Return the pixels and the labels of the ticks of an axis."""
    figure = new_figure("", (6, 4))
    axes = figure.subplots()
    logarithmic(axes, "x", values, tick)
    rendered(figure)
    low, high = axes.get_xlim()
    found = [
        (float(axes.transData.transform((place, 0))[0]), label.get_text())
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high
    ]
    return [place for place, _ in found], [label for _, label in found]


def test_a_logarithmic_axis_has_a_place_for_zero() -> None:
    places, labels = ticks([0, 1, 30_000], count_tick)
    assert labels == ["0", "1", "10", "100", "1,000", "10,000"]
    assert places == sorted(places)
    gaps = np.diff(places)
    # Zero is nearly as far from 1 as 1 from 10.
    assert gaps[0] == pytest.approx(0.8 * gaps[1])
    assert gaps[1:] == pytest.approx(gaps[1])
    assert ticks([1.0, 0.001], percent_tick)[1] == ["0.1 %", "1 %", "10 %", "100 %"]
    assert ticks([0.0], count_tick)[1][0] == "0"


def test_levels_differ_in_colour_marker_and_line() -> None:
    kinds = [Kind("cloning", "none", "both")]
    levels = ("dense", "no_of", "no_of_sp", "no_of_sp_ms", "answer_only")
    kinds += [Kind("ppo", level, "both") for level in levels]
    looks = [look_of(kind) for kind in kinds]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 6
    assert all(one.dashes != other.dashes for one, other in pairwise(looks))


def test_no_errors_are_drawn_at_zero_and_certified_ones_hollow(drawings: Drawer) -> None:
    records = [
        *seeds([0.9] * 3, arm="cloning", demonstrations=1),
        *seeds([1.0] * 3, arm="cloning", demonstrations=10),
        # No errors in the sample, but one observation wrong: not exact.
        *seeds([1.0] * 3, arm="cloning", demonstrations=5, final=score(1.0, wrong=1)),
        *seeds([0.5] * 3, demonstrations=0),
    ]
    figure = drawings(records)["error_by_demonstrations"]
    assert "Exact in every seed with up to 10 demonstrations: 1 of 2 kinds" in title(figure)
    assert "3 seeds" in title(figure)
    axes = figure.axes[0]
    hollow = [heights(line) for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [ys for ys in hollow if ys] == [[0]]
    assert [ys for ys in map(heights, axes.lines) if len(ys) == 3] == [[pytest.approx(0.1), 0, 0]]
    assert axes.get_yscale() == "symlog"


def legend_entries(figure: Figure) -> list[Line2D]:
    handles = [handle for legend in figure.legends for handle in legend.legend_handles]
    return [handle for handle in handles if isinstance(handle, Line2D)]


def drawn_marks(figure: Figure) -> set[tuple[object, bool]]:
    """Return the markers of all lines with points, and whether they are hollow."""
    lines = [line for axes in figure.axes for line in axes.lines if np.size(line.get_xdata())]
    return {(line.get_marker(), line.get_markerfacecolor() == "white") for line in lines}


def hollow_entries(figure: Figure) -> list[Line2D]:
    return [one for one in legend_entries(figure) if one.get_markerfacecolor() == "white"]


@pytest.mark.parametrize("end", [0.9, 1.0])
def test_the_legend_has_hollow_marks_if_some_are_drawn(end: float, drawings: Drawer) -> None:
    made = [
        *seeds([0.5] * 3, arm="cloning", demonstrations=1),
        *seeds([end] * 3, arm="cloning", demonstrations=10),
        *seeds([end] * 3, arm="dagger", demonstrations=0, labels=9, asked=9),
    ]
    drawn = drawings(made)
    for key in ("error_by_demonstrations", "labels"):
        assert len(hollow_entries(drawn[key])) == (end == 1.0), key


def committed(name: str) -> list[Record]:
    """Return the records of the last comparison grid in the results of the project."""
    records = read_store(RESULTS / name).records.values()
    longest = {record.cell.comparison: 0 for record in records}
    for one in records:
        longest[one.cell.comparison] = max(longest[one.cell.comparison], one.cell.steps)
    return [r for r in records if r.cell.steps in (0, longest[r.cell.comparison])]


def texts_of(figure: Figure) -> list[Text]:
    """Return titles, labels and legends; ticks outside the limits exist without being drawn."""
    ticks: set[Any] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks |= {*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)}
    return [text for text in figure.findobj(Text) if text not in ticks and text.get_text()]


@pytest.mark.parametrize("made", ["synthetic", "ppo_alone", "fine_tuning"])
def test_every_text_fits_and_every_legend_entry_is_drawn(made: str, drawings: Drawer) -> None:
    records = study((0, 1, 30_000), seeds_of_each=2, points=2, steps=8_000_000)
    drawn = drawings(records if made == "synthetic" else committed(made))
    assert drawn
    for key, figure in drawn.items():
        rendered(figure)
        texts = texts_of(figure)
        assert title(figure) in [text.get_text() for text in texts]
        titles = {axes.get_title() or axes.get_title(loc="left") for axes in figure.axes}
        boxes: list[Any] = []
        for text in texts:
            box = text.get_window_extent()
            assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, (key, text.get_text())
            if text.get_text() in titles:
                assert not any(box.overlaps(other) for other in boxes), (key, text.get_text())
                boxes.append(box)
        for handle in legend_entries(figure):
            mark = (handle.get_marker(), handle.get_markerfacecolor() == "white")
            hollow = any(other[1] for other in drawn_marks(figure))
            assert mark in drawn_marks(figure) or (mark[1] and hollow), (key, handle.get_label())


def test_a_single_seed_is_not_called_exact(drawings: Drawer) -> None:
    single = [record(1.0, arm="cloning", demonstrations=n) for n in (1, 10)]
    text = title(drawings(single)["error_by_demonstrations"])
    assert "0 of 1 kinds" in text
    assert "1 seed: too few for an interval" in text


def test_the_answers_from_which_on_all_seeds_are_exact(drawings: Drawer) -> None:
    records = [
        record(end, seed=seed, arm="dagger", demonstrations=0, labels=labels, asked=labels)
        for labels, end in ((10, 1.0), (100, 0.9), (1000, 1.0))
        for seed in range(3)
    ]
    assert title(drawings(records)["labels"]).startswith(
        "Teacher's answers from which on every seed is exact: 1,000 (DAgger)"
    )


def test_the_heat_map_has_its_numbers(drawings: Drawer) -> None:
    records = [
        *seeds([0.5, 0.6, 0.7, 0.8], arm="cloning", demonstrations=3),
        *seeds([1.0, 1.0, 1.0, 0.9], demonstrations=3),
        *seeds([0.25] * 3, demonstrations=0),
    ]
    figure = drawings(records)["heat_map"]
    assert texts(figure) == ["-", "25.00", "65.00", "100\n3/4 exact"]
    assert "25.00 to 100 % of operations are solved" in title(figure)
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


def test_curves_are_of_the_largest_budget_with_and_without_demonstrations(drawings: Drawer) -> None:
    line = ((0, 0.0), (1000, 0.5))
    short = [record(demonstrations=n, curve=line, comparison="short") for n in (0, 1, 2)]
    longer = [record(demonstrations=n, curve=line, comparison="long", steps=9000) for n in (0, 40)]
    without = [record(demonstrations=0, curve=line, comparison="dqn", steps=99_000)]
    assert " 9,000 steps" in title(drawings([*short, *longer, *without])["curves_levels"])


def test_the_title_of_ppo_added_counts_runs(drawings: Drawer) -> None:
    records = [
        *seeds([0.9, 0.99], demonstrations=5, clone=score(0.95, wrong=9), final=None),
        record(0.95, seed=2, demonstrations=5, clone=score(0.95), final=score(0.95)),
    ]
    text = title(drawings(records)["ppo_added"])
    assert "more operations than the clone in 1 of 3 runs and fewer in 1;" in text


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


def test_any_part_of_the_study_can_be_drawn(drawings: Drawer) -> None:
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
    first = draw_figures(frame_of(records), tmp_path / "first")
    assert len(first) == 2
    draw_figures(frame_of(records[::-1]), tmp_path / "second")
    for picture in first:
        assert [path.suffix for path in picture.files] == [".png", ".pdf"]
        for path in picture.files:
            assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
            assert b"CreationDate" not in path.read_bytes()
