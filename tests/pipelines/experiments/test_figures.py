"""The study's figures: they draw the records, fit their frame, and are reproducible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from oracle.exact.own_runs import Verdict
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
from pipelines.experiments.figures import NONE_SEEN, draw_figures
from pipelines.experiments.records import Kind, Record, frame_of
from pipelines.experiments.statistics import iqm
from tests.pipelines.experiments.synthetic_records import (
    record,
    score,
    seeds,
    study,
    taught,
)

Figures = dict[str, Figure]
Drawer = Callable[[list[Record]], Figures]


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
    """Return the title without its line breaks."""
    return " ".join(figure.get_suptitle().split())


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


def lines_of(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Return the points of the labelled lines of a panel, those of one label together."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in axes.lines:
        if not str(line.get_label()).startswith("_"):
            places = zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
            found.setdefault(str(line.get_label()), []).extend(
                (float(x), float(y)) for x, y in places
            )
    return found


def seed_points(axes: Axes) -> list[float]:
    """Return the heights of the dots of seeds."""
    return sorted(y for line in axes.lines if line.get_marker() == "." for y in heights(line))


def test_proven_policies_are_on_the_floor_and_all_seeds_are_visible(drawings: Drawer) -> None:
    own = replace(score(1.0, wrong=7), own_runs="exact")
    records = [
        *seeds([0.9] * 3, arm="cloning", demonstrations=1, labels=30),
        *seeds([1.0, 1.0, 0.99], arm="cloning", demonstrations=10, labels=300),
        # Wrong observations that its own runs never meet.
        *seeds([1.0] * 3, arm="cloning", demonstrations=90, labels=2700, final=own),
        *seeds([1.0] * 3, arm="dagger", demonstrations=0, labels=9, asked=9, final=score(1.0, 4)),
    ]
    figure = drawings(records)["supervision"]
    # Without steps there is one panel.
    (left,) = figure.axes
    assert [y for _, y in lines_of(left)["cloning alone"]] == [3000, pytest.approx(50), 0]
    assert [y for _, y in lines_of(left)["DAgger"]] == [4]
    assert seed_points(left) == pytest.approx(sorted([3000] * 3 + [0, 0, 300] + [0] * 3 + [4] * 3))
    assert left.get_yscale() == "symlog"
    text = title(figure)
    assert "Proven exact in every seed: cloning alone with 2,700 answers (3 seeds)" in text
    assert "of 3 seeds or more: DAgger (0 of 3 with 9 answers)" in text


def test_teaching_is_a_line_through_its_rounds(drawings: Drawer) -> None:
    records = [
        taught(0, wrong=(900, 80, 0)),
        taught(1, wrong=(900, 0)),
        taught(2, wrong=(900, 60, 0)),
    ]
    figure = drawings(records)["supervision"]
    places = lines_of(figure.axes[0])["teaching"]
    # A seed that is exact after its first round stays where it is.
    assert [y for _, y in places] == [900, pytest.approx(float(iqm([80, 0, 60]))), 0]
    assert [x for x, _ in places] == [3000, 4200, 5400]


def test_steps_are_of_all_stages_and_no_error_is_not_yet_exact(drawings: Drawer) -> None:
    curve = ((1, 0.5), (500, 0.9), (1000, 1.0))
    stages = {"planning": 1000, "mending": 99_000}
    clean = seeds([1.0] * 3, arm="planning", curve=curve)
    verdicts: tuple[Verdict, ...] = ("exact", "exact", "not proven")
    mended = [
        replace(one, stage_steps=stages, final=replace(score(1.0, wrong=5), own_runs=verdict))
        for one, verdict in zip(clean, verdicts, strict=True)
    ]
    plain = seeds([0.9] * 3, demonstrations=0, comparison="reward", curve=curve)
    figure = drawings([*mended, *plain])["supervision"]
    right = figure.axes[1]
    alone = lines_of(right)["planning and mending"]
    # Beside each other by a small part of a power of ten.
    assert [x for x, _ in alone] == pytest.approx([1, 500, 100_000], rel=0.03)
    assert [y for _, y in alone] == [
        0.5,
        pytest.approx(0.1),
        pytest.approx(float(iqm([0, 0, 4e-5]))),
    ]
    assert NONE_SEEN in seed_points(right)
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels[:2] == ["proven\nexact", "none seen"]
    assert "PPO from nothing" in lines_of(right)


def test_the_price_of_modules_is_computed_from_the_records(drawings: Drawer) -> None:
    records = [
        one
        for n, level, early, late in (
            (0, "dense", 0.5, 0.9),
            (0, "answer_only", 0.0, 0.1),
            (10, "dense", 0.8, 1.0),
            (10, "answer_only", 0.7, 0.98),
        )
        for one in seeds(
            [late] * 3,
            demonstrations=n,
            reward=level,
            curve=((0, 0.0), (100, early), (1000, late)),
        )
    ]
    figure = drawings(records)["reward_modules"]
    text = title(figure)
    assert "after 1,000 steps +80.00 with 0, +2.00 with 10 demonstrations" in text
    assert "after 100 steps +50.00 with 0, +10.00 with 10 demonstrations" in text
    early, late = (lines_of(axes) for axes in figure.axes)
    assert [y for _, y in early["no demonstrations"]] == pytest.approx([0.5, 1.0])
    # Exact by its certificate: a level lower than any error.
    assert [y for _, y in late["10 demonstrations"]] == pytest.approx([0.0, 0.02])


def legend_entries(figure: Figure) -> list[Line2D]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    handles = [handle for legend in legends if legend for handle in legend.legend_handles]
    return [handle for handle in handles if isinstance(handle, Line2D)]


def drawn_marks(figure: Figure) -> set[object]:
    """Return the markers of all lines with points."""
    lines = [line for axes in figure.axes for line in axes.lines if np.size(line.get_xdata())]
    return {line.get_marker() for line in lines}


def texts_of(figure: Figure) -> list[Text]:
    """Return titles, labels and legends; ticks outside the limits exist without being drawn."""
    ticks: set[Any] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks |= {*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)}
    return [text for text in figure.findobj(Text) if text not in ticks and text.get_text()]


@pytest.mark.parametrize("numbers", [(0, 10, 30, 100, 300, 1000), (0, 30_000)])
def test_every_text_fits_and_every_legend_entry_is_drawn(
    numbers: tuple[int, ...], drawings: Drawer
) -> None:
    drawn = drawings(study(numbers, seeds_of_each=2, points=2))
    assert list(drawn) == ["supervision", "reward_modules", "curves_levels", "curves_operations"]
    for key, figure in drawn.items():
        rendered(figure)
        found = texts_of(figure)
        assert figure.get_suptitle() in [text.get_text() for text in found]
        titles = {axes.get_title() or axes.get_title(loc="left") for axes in figure.axes}
        boxes: list[Any] = []
        for text in found:
            box = text.get_window_extent()
            assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, (key, text.get_text())
            assert -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, (key, text.get_text())
            if text.get_text() in titles:
                assert not any(box.overlaps(other) for other in boxes), (key, text.get_text())
                boxes.append(box)
        for handle in legend_entries(figure):
            assert handle.get_marker() in drawn_marks(figure), (key, handle.get_label())


def test_lines_of_a_panel_differ_in_look(drawings: Drawer) -> None:
    figure = drawings(study((0, 10, 100, 1000), seeds_of_each=1, points=2))["supervision"]
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        looks = [(h.get_color(), h.get_marker()) for h in legend.get_lines()]
        assert len({colour for colour, _ in looks}) == len(looks) >= 6


def test_a_single_seed_is_not_called_exact(drawings: Drawer) -> None:
    single = [record(1.0, arm="cloning", demonstrations=n, labels=n) for n in (1, 10)]
    text = title(drawings(single)["supervision"])
    assert "Proven exact in every seed: nothing" in text
    assert "cloning alone (1 of 1 with 10 answers)" in text
    assert "1 seed: too few for an interval" in text


def test_exact_at_last_but_not_before_counts_from_the_last_amount_on(drawings: Drawer) -> None:
    records = [
        record(end, seed=seed, arm="dagger", demonstrations=0, labels=labels, asked=labels)
        for labels, end in ((10, 1.0), (100, 0.9), (1000, 1.0))
        for seed in range(3)
    ]
    assert title(drawings(records)["supervision"]).startswith(
        "Proven exact in every seed: DAgger with 1,000 answers (3 seeds)."
    )


def test_learning_curves_are_means_over_seeds(drawings: Drawer) -> None:
    records = [
        record(seed=seed, demonstrations=0, curve=((0, 0.0), (1000, end)), reward=level)
        for level in ("dense", "no_of")
        for seed, end in enumerate((0.2, 0.4, 0.995))
    ]
    drawn = drawings(records)
    assert "curves_operations" not in drawn
    (axes,) = drawn["curves_levels"].axes
    assert axes.get_title(loc="left") == "supervision: PPO from nothing, 90.00 % at the end"
    assert axes.get_xlabel() == "environment steps, millions"
    mean = pytest.approx(100 * float(iqm([0.2, 0.4, 0.995])))
    assert [[y for _, y in line] for line in lines_of(axes).values()] == [[0, mean]] * 2
    # A thin line for each seed.
    assert len(axes.lines) == 2 * (1 + 3)
    assert "dense 1,000 (1 of 3 seeds), no_of 1,000 (1 of 3 seeds)" in title(drawn["curves_levels"])


def test_the_curve_of_a_mended_run_ends_with_the_policy_that_is_kept(drawings: Drawer) -> None:
    """What comes last before mending may be much worse."""
    records = []
    for seed in range(3):
        made = record(arm="planning", seed=seed, demonstrations=0, curve=((0, 0.0), (1000, 0.5)))
        kept = replace(made.final, own_accuracy=0.75)
        last = replace(made.final, own_accuracy=0.25)
        records.append(replace(made, final=kept, last=last, stage_steps={"mending": 1000}))
    (axes,) = drawings(records)["curves_levels"].axes
    assert axes.get_title(loc="left").endswith(", 75.00 % at the end")


@pytest.mark.parametrize(("comparisons", "columns"), [(1, 1), (3, 3), (4, 2), (5, 3)])
def test_many_panels_of_learning_curves_are_in_rows(
    comparisons: int, columns: int, drawings: Drawer
) -> None:
    line = ((0, 0.1), (1000, 0.9))
    made = [
        one
        for number in range(comparisons)
        for one in seeds([0.5] * 3, comparison=f"part {number}", demonstrations=0, curve=line)
    ]
    drawn = drawings(made)["curves_levels"].axes
    assert [axes.get_title(loc="left").partition(":")[0] for axes in drawn] == [
        f"part {number}" for number in range(comparisons)
    ]
    places = [axes.get_subplotspec() for axes in drawn]
    assert {place.colspan.start for place in places if place} == set(range(columns))
    left = [
        axes for axes, place in zip(drawn, places, strict=True) if place and place.is_first_col()
    ]
    assert [axes for axes in drawn if axes.get_ylabel()] == left


def test_any_part_of_the_study_can_be_drawn(drawings: Drawer) -> None:
    whole = study((0, 1, 10), seeds_of_each=1, points=2)
    assert drawings([]) == {}
    settings = {(r.cell.comparison, r.cell.arm, r.cell.demonstrations > 0): r for r in whole}
    for one in settings.values():
        drawn = drawings([one])
        assert "supervision" in drawn
        assert ("reward_modules" in drawn) == (
            one.cell.arm == "ppo" and one.cell.demonstrations > 0
        )
    assert drawings(whole[::7])


def test_the_same_records_make_the_same_files(tmp_path: Path) -> None:
    records = [
        *seeds([0.5, 0.6, 1.0], arm="cloning", demonstrations=3),
        *seeds([0.7, 0.9, 1.0], arm="cloning", demonstrations=9),
    ]
    first = draw_figures(frame_of(records), tmp_path / "first")
    assert len(first) == 1
    draw_figures(frame_of(records[::-1]), tmp_path / "second")
    for picture in first:
        assert [path.suffix for path in picture.files] == [".png", ".pdf"]
        for path in picture.files:
            assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
            assert b"CreationDate" not in path.read_bytes()


def test_supervision_shows_the_longest_training_from_nothing(drawings: Drawer) -> None:
    """Two comparisons with other budgets would be two lines of the same name."""
    short = seeds([0.5, 0.6, 0.7], comparison="reward", demonstrations=0, curve=[(0, 0.0)])
    other = seeds([0.2, 0.2, 0.2], comparison="reward", demonstrations=0, reward="answer_only")
    clones = seeds([0.8, 0.8, 0.8], comparison="reward", demonstrations=10, labels=300)
    long = seeds([0.9] * 3, comparison="long", demonstrations=0, steps=5000, curve=[(0, 0.0)])
    figure = drawings([*short, *other, *clones, *long])["supervision"]
    left, right = figure.axes
    places = lines_of(right)["PPO from nothing"]
    assert [round(x, -3) for x, _ in places] == [5000]
    assert len(lines_of(left)["PPO from nothing, dense"]) == 1
    assert "PPO from nothing, dense (0 of 3 with 5,000 steps)" in title(figure)
    kept = figures._longest_from_nothing(frame_of([*short, *other, *clones, *long]))
    assert len(kept) == 9, "at answer_only there is no longer training"
