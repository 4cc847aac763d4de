"""The report in a real Chromium: it opens, the tables hold the JSON's numbers, the replay plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.learning.named_policies import find_policy
from pipelines.scoring.players import random_player
from pipelines.scoring.protocol import Results, evaluate_policy
from pipelines.scoring.report import Report
from pipelines.scoring.request import Request
from tests.pipelines.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

CELLS = """[...document.querySelectorAll("table[data-key='KEY'] tr")].map(
    row => [...row.cells].map(cell => cell.textContent))"""


@pytest.fixture(scope="module")
def results() -> Results:
    """Evaluate a random policy; replace its first replay by a right one of the expert."""
    request = Request(
        digits=(2,), n_operations=4, sets=(), n_episodes=0, replay=("12+30-5",), certificate=False
    )
    results = evaluate_policy(find_policy("teacher"), request)
    wrong = replace(find_policy("random"), player=random_player(0))
    request = replace(request, digits=(2, 16), n_operations=20, sets=("zeros",), replay=())
    others = evaluate_policy(
        wrong, replace(request, n_set_operations=10, n_episodes=2, run_limit=3)
    )
    others.replays = [results.replays[0], *others.replays[:3]]
    return others


@pytest.fixture(scope="module")
def report(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    about = {
        "name": "a/path/without-a-place-to-break/that-is-long/" * 2,
        "kind": "test",
        "base": 5,
        "frames": 3,
    }
    Report(about, {}, results).write(folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    browser.resize(1280, 900)
    browser.requests.clear()
    browser.open(report)
    return browser


def state(page: Browser) -> dict[str, Any]:
    """Return the state that the replay keeps in its element."""
    seen: dict[str, Any] = page.run("({...document.getElementById('replay').dataset})")
    return {name: json.loads(value) for name, value in seen.items()}


def text_of(page: Browser, part: str) -> str:
    text: str = page.run(f"document.querySelector('[data-part={part}]').textContent")
    return text


def test_the_page_opens_without_errors_or_requests(page: Browser, report: Path) -> None:
    assert page.errors == []
    assert page.requests in ([report.as_uri()[:100]], [])
    assert page.run("document.querySelectorAll('figure svg').length") >= 4
    assert page.run("[...document.querySelectorAll('figure svg')].every(s => s.clientHeight > 150)")


def test_the_tables_hold_the_numbers_of_the_json(page: Browser, report: Path) -> None:
    content = json.loads(report.with_suffix(".json").read_text())
    assert len(content["tables"]) >= 6
    for table in content["tables"]:
        assert page.run(CELLS.replace("KEY", table["key"])) == [table["header"], *table["rows"]]


def test_the_replay_plays_to_the_end_by_mouse(page: Browser, results: Results) -> None:
    assert state(page) == {"operation": 0, "step": 0, "playing": False, "speed": 4}
    for _ in range(3):
        page.run("document.querySelector('[data-part=speed]').focus()")
        page.press("ArrowRight")
    assert state(page)["speed"] == 32
    page.click("[data-part=play]")
    assert state(page)["playing"]
    page.wait_for("document.getElementById('replay').dataset.step > 3")
    last = len(results.replays[0].steps) - 1
    page.wait_for(f"document.getElementById('replay').dataset.step == {last}")
    page.wait_for("document.getElementById('replay').dataset.playing == 'false'")
    assert text_of(page, "outcome") == "right: 122"
    assert text_of(page, "value") == "122 (decimal 37)"
    assert page.errors == []


def test_the_replay_is_played_by_keyboard(page: Browser, results: Results) -> None:
    page.run("document.getElementById('replay').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.press("ArrowLeft")
    assert state(page)["step"] == 1
    page.press(" ", " ")
    assert state(page)["playing"]
    page.press(" ", " ")
    assert not state(page)["playing"]
    page.press("End")
    assert state(page)["step"] == len(results.replays[0].steps) - 1
    page.press("Home")
    assert state(page)["step"] == 0
    page.press("-", "-")
    assert state(page)["speed"] == 2
    page.press("n", "n")
    assert state(page)["operation"] == 1
    page.press("p", "p")
    assert state(page)["operation"] == 0


def test_every_step_shows_the_recorded_abacus(page: Browser, results: Results) -> None:
    """The digits under the columns are those of the record, forwards and backwards."""
    for number, replay in enumerate(results.replays):
        page.run(
            f"(() => {{ const list = document.querySelector('[data-part=choose]');"
            f"list.selectedIndex = {number}; list.dispatchEvent(new Event('change')); }})()"
        )
        digits = list(replay.start)
        for step, record in enumerate(replay.steps[:60]):
            if record.changed >= 0:
                digits[record.changed] = record.digit
            shown = page.run(
                "[...document.querySelectorAll('.slot .digit')]"
                ".map(text => Number(text.textContent))"
            )
            assert shown == digits[record.first_shown :][: len(shown)]
            assert state(page)["step"] == step
            page.run("document.querySelector('[data-part=forward]').click()")
    assert page.errors == []


def test_the_next_mistake_is_found(page: Browser, results: Results) -> None:
    number, replay = next((k, r) for k, r in enumerate(results.replays) if not r.right)
    page.run("document.getElementById('replay').focus()")
    for _ in range(number):
        page.press("n", "n")
    page.click("[data-part=mistake]")
    step = state(page)["step"]
    assert replay.steps[step].wrong
    assert not any(earlier.wrong for earlier in replay.steps[:step])
    assert "the teacher:" in text_of(page, "teacher")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_the_screen(page: Browser, width: int) -> None:
    page.resize(width, 800, phone=width < 500)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelector('svg.abacus').getBoundingClientRect().right") <= width


def test_nothing_covers_the_intervals(page: Browser) -> None:
    """At 1280 pixels every cell is visible as far as its right end, without scrolling."""
    covered = page.run(
        """[...document.querySelectorAll("table[data-key='by_operation'] td")].filter((cell) => {
          cell.scrollIntoView({block: "center"});
          cell.closest(".wide").scrollLeft = 0;
          const { right, top, height } = cell.getBoundingClientRect();
          return document.elementFromPoint(right - 12, top + height / 2) !== cell;
        }).map((cell) => cell.textContent)"""
    )
    assert covered == []


def test_dark_mode_is_respected(page: Browser) -> None:
    colours = """["body", "th", "td", "figure", "button", ".replay"].map((selector) => {
      const style = getComputedStyle(document.querySelector(selector));
      return [style.backgroundColor, style.color];
    })"""
    light = page.run(colours)
    page.prefer(prefers_color_scheme="dark")
    dark = page.run(colours)
    page.prefer()
    assert all(before != after for before, after in zip(light, dark, strict=True))
    assert page.run("getComputedStyle(document.body).backgroundColor") == light[0][0]
    tick = "getComputedStyle(document.querySelector('figure svg text')).fill"
    page.prefer(prefers_color_scheme="dark")
    assert page.run(tick) == dark[0][1]
    page.prefer()


def test_controls_are_not_printed(page: Browser) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
    page.call("Emulation.setEmulatedMedia", media="screen")
