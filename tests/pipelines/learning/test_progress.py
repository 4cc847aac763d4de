"""The bar of a run: all stages in one, the steps really made, 100 % at the end, lines above it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace

import pytest

from pipelines.learning.progress import (
    USUAL_MENDING,
    USUAL_ROUNDS,
    RunBar,
    print_above,
    rounds_expected,
    steps_made,
)
from pipelines.learning.settings import PRESETS, Settings, TeachingSettings

SETTINGS = Settings()


@contextmanager
def terminal() -> Iterator[io.StringIO]:
    """Yield what a terminal gets from both standard output and standard error."""
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        yield screen


def percentages(screen: io.StringIO) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+)%\|", screen.getvalue())]


def test_ppo_makes_whole_rollouts() -> None:
    assert SETTINGS.n_timesteps % SETTINGS.ppo.rollout != 0
    assert steps_made(SETTINGS) % SETTINGS.ppo.rollout == 0
    assert 0 <= steps_made(SETTINGS) - SETTINGS.n_timesteps < SETTINGS.ppo.rollout


def test_one_bar_for_all_stages_ends_at_100_percent() -> None:
    with terminal() as screen, RunBar(SETTINGS, shown=True) as bar:
        bar.show("cloning", SETTINGS.cloning.updates, "")
        after_cloning = percentages(screen)[-1]
        bar.show("ppo", steps_made(SETTINGS), "")
        after_ppo = percentages(screen)[-1]
        bar.show("teaching", 2, "", expected=2)
    shown = percentages(screen)
    assert 0 < after_cloning < after_ppo < 100
    assert shown == sorted(shown)
    assert shown[-1] == 100
    assert screen.getvalue().split("\r")[-1].startswith("trained 100%")


def test_planning_and_mending_are_expected_to_take_as_long_as_they_usually_do() -> None:
    alone = PRESETS["alone"]
    with terminal() as screen, RunBar(alone, shown=True) as bar:
        assert bar.expected["planning"] == alone.planning.exercises
        assert bar.expected["cloning"] == alone.cloning.updates
        assert bar.expected["mending"] == USUAL_MENDING < alone.mending.rounds
        bar.show("planning", alone.planning.exercises, "")
        bar.show("cloning", alone.cloning.updates, "")
        after_cloning = percentages(screen)[-1]
        bar.show("mending", USUAL_MENDING // 2, "")
        half = percentages(screen)[-1]
    assert 0 < after_cloning < half < 60
    assert percentages(screen)[-1] == 100
    few = replace(alone, mending=replace(alone.mending, rounds=2))
    assert RunBar(few, shown=False).expected["mending"] == 2
    assert RunBar(SETTINGS, shown=False).expected["planning"] == 0


def test_an_interrupted_run_does_not_end_at_100_percent() -> None:
    def interrupted() -> None:
        with RunBar(SETTINGS, shown=True) as bar:
            bar.show("ppo", SETTINGS.ppo.rollout, "")
            raise KeyboardInterrupt

    with terminal() as screen, pytest.raises(KeyboardInterrupt):
        interrupted()
    assert percentages(screen)[-1] < 100


def test_teaching_is_expected_to_take_one_more_round_than_the_usual_ones() -> None:
    assert rounds_expected(SETTINGS, 0) == USUAL_ROUNDS
    assert rounds_expected(SETTINGS, USUAL_ROUNDS) == USUAL_ROUNDS + 1
    limited = Settings(teaching=TeachingSettings(rounds=2))
    assert [rounds_expected(limited, done) for done in range(3)] == [2, 2, 2]


def test_lines_are_printed_above_the_bar() -> None:
    with terminal() as screen, RunBar(SETTINGS, shown=True) as bar:
        bar.show("ppo", SETTINGS.ppo.rollout, "16,384 of 606,208 steps")
        print_above("a line")
    before, after = screen.getvalue().split("a line\n")
    # The bar was cleared with blanks, and is drawn again below the line.
    assert before.endswith("\r")
    assert before.rstrip("\r").rsplit("\r", 1)[-1].isspace()
    assert "ppo" in after


def test_nothing_is_shown_without_a_bar() -> None:
    with terminal() as screen:
        with RunBar(SETTINGS, shown=False) as bar:
            bar.show("ppo", SETTINGS.ppo.rollout, "steps")
        print_above("a line")
    assert screen.getvalue() == "a line\n"
