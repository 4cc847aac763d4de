"""The play page in Chromium: typing, scrubbing, keys, small screens, dark mode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from abacus.rules import Action
from oracle.files import atomic_write_text
from pipelines.job.command_line import run
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import save_policy
from pipelines.play import EXAMPLE, Options, main
from pipelines.showing.page import MAX_CHARACTERS, MAX_DIGITS, network_data, play_page
from tests.pipelines.browser import CHROMIUM, Browser

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
EXPRESSION, STEPS = "34+29-8", 58
#: The expert replaces the network, so that the tests do not depend on a trained policy.
EXPERT_PLAYS = "Game.prototype.playNetwork = function () { this.play(expertAction(this.abacus)); };"


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(shared: Browser, tmp_path: Path) -> Browser:
    """A new page with an untrained network, before anything is computed."""
    path = tmp_path / "page.html"
    atomic_write_text(path, play_page(new_policy("onehot", 5, 3), EXPRESSION))
    shared.errors.clear()
    shared.requests.clear()
    shared.resize(1100, 900)
    shared.prefer()
    shared.open(path)
    shared.run(EXPERT_PLAYS)
    shared.run("app.start(byId('expression').value, false)")
    return shared


def text(browser: Browser, selector: str) -> str:
    shown = browser.run(f"document.querySelector({json.dumps(selector)}).textContent")
    assert isinstance(shown, str)
    return shown


def compute(browser: Browser, typed: str) -> None:
    browser.run("byId('expression').value = ''; byId('expression').focus()")
    browser.call("Input.insertText", text=typed)
    browser.press("Enter", "\r")


@in_browser
def test_typing_watching_and_scrubbing(browser: Browser) -> None:
    compute(browser, "1234+567-89")
    browser.wait_for("app.playing && app.index > 1 && app.game.over")
    browser.press(" ", " ")
    assert not browser.run("app.playing")
    browser.press("End")
    assert text(browser, "#verdict") == "Correct in 111 steps: 1234+567-89 = 1,712"
    assert text(browser, "#value-base") == "23322"
    assert text(browser, "#value-decimal") == "1,712"
    browser.press("Home")
    assert text(browser, "#value-decimal") == "0"
    browser.run("byId('scrubber').value = 62; byId('scrubber').dispatchEvent(new Event('input'))")
    assert text(browser, "#value-decimal") == "1,251"
    assert text(browser, "#meaning") == "digit 3 of 4"
    assert text(browser, "#operation") == "adding 567"
    assert text(browser, "#position") == "62 / 111"
    browser.press("ArrowRight")
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert text(browser, "#step") == "step 61"
    assert browser.errors == []
    # Nothing but the file itself: the page works offline.
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


@in_browser
def test_scrubbing_shows_the_digits_of_the_game(browser: Browser) -> None:
    assert browser.run(
        """(() => {
          const game = new Game(app.game.plan, app.network), shown = [];
          while (!game.over) {
            shown.push(Array.from(game.abacus.digits).join(""));
            game.playNetwork();
          }
          const order = shown.map((_, k) => (k * 37) % shown.length);
          return order.every((k) => Array.from(game.digitsAt(k)).join("") === shown[k]);
        })()"""
    )


@in_browser
def test_speed_has_keys_and_a_slider(browser: Browser) -> None:
    assert text(browser, "#pace") == "4 steps/s"
    browser.press("+", "+")
    assert text(browser, "#pace") == "8 steps/s"
    for _ in range(20):
        browser.press("-", "-")
    assert text(browser, "#pace") == "0.5 steps/s"


@in_browser
def test_playing_by_hand(browser: Browser) -> None:
    compute(browser, "1")
    browser.click("#you-play")
    browser.run("app.goTo(0)")
    assert browser.run("byId('choices').classList.contains('veiled')")
    browser.press("h", "h")
    assert text(browser, "#message") == "The teacher's action: down."
    assert browser.run("document.querySelector('.hinted').dataset.action") == "3"
    browser.press("ArrowUp")
    assert text(browser, "#message") == "Illegal: the finger is on the top row."
    browser.press("Enter", "\r")
    assert text(browser, "#message").startswith("That submit was wrong")
    browser.press("Backspace")
    assert browser.run("app.index") == 0
    browser.click('[data-action="3"]')
    browser.press(" ", " ")
    browser.press("ArrowRight")
    browser.press("Enter", "\r")
    browser.press("ArrowLeft")
    browser.press("Enter", "\r")
    assert text(browser, "#verdict") == "Correct in 6 steps: 1 = 1"
    assert browser.errors == []


@in_browser
def test_the_network_continues_a_visitors_game(browser: Browser) -> None:
    browser.wait_for("app.game.over")
    browser.run("app.stopAt(10)")
    browser.click("#you-play")
    browser.press("ArrowDown")
    browser.click("#network-plays")
    browser.wait_for("app.game.over")
    browser.press("End")
    assert text(browser, "#verdict").endswith("34+29-8 = 55")
    assert browser.run("app.game.last") == STEPS + 2


@in_browser
@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "Type an expression first. Try 1234+567-89."),
        ("two+2", "Only whole numbers joined by + and - can be computed here. Try 1234+567-89."),
        ("1.5+2", "Only whole numbers joined by + and - can be computed here. Try 1234+567-89."),
        ("1++2", "Only whole numbers joined by + and - can be computed here. Try 1234+567-89."),
        ("3-5", "That goes below zero at -5, which an abacus cannot show. Try 1234+567-89."),
        ("9" * 1001, "That is too long for this page: at most 1000 digits per number"),
        ("1+" * 2000 + "11", "That is too long for this page: at most 1000 digits per number"),
    ],
)
def test_bad_input_is_reported_in_the_page(browser: Browser, typed: str, problem: str) -> None:
    compute(browser, typed)
    assert text(browser, "#problem").startswith(problem)
    assert text(browser, "#problem").endswith("Try 1234+567-89.")
    assert browser.run("app.game.plan.text") == EXPRESSION
    compute(browser, "1+1")
    assert text(browser, "#problem") == ""


@in_browser
def test_a_wide_abacus_scrolls_with_the_finger(browser: Browser) -> None:
    number = "9" * 400
    compute(browser, f"{number}+1")
    browser.press("End")
    assert text(browser, "#verdict").startswith("Correct in ")
    assert text(browser, "#value-decimal").replace(",", "") == str(int(number) + 1)
    browser.run("app.stopAt(1500)")
    column = browser.run("app.game.moments[1500].fingerColumn")
    shown = browser.run("[...document.querySelectorAll('.slot .column')].map(e => e.textContent)")
    assert str(column) in shown
    assert str(column - 1) in shown


@in_browser
@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_nothing_is_wider_than_the_screen(browser: Browser, width: int) -> None:
    browser.resize(width, 800, phone=width < 500)
    compute(browser, "9" * 300 + "+" + "8" * 300)
    for mode, buttons in (("#network-plays", ".controls button"), ("#you-play", ".pad button")):
        browser.click(mode)
        assert browser.run("document.documentElement.scrollWidth") <= width
        heights = browser.run(
            f"[...document.querySelectorAll('{buttons}')].map(e => e.offsetHeight)"
        )
        assert min(heights) >= 40


@in_browser
def test_dark_mode_and_reduced_motion_are_respected(browser: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.prefer(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    dark = [int(part) for part in re.findall(r"\d+", browser.run(background))]
    assert sum(dark) < 150 < sum(int(part) for part in re.findall(r"\d+", light))
    glide = browser.run("getComputedStyle(document.querySelector('.bead')).transitionDuration")
    assert glide == "0s"


@in_browser
def test_every_control_has_a_name(browser: Browser) -> None:
    nameless = browser.run(
        "[...document.querySelectorAll('button, input')].filter(e => !(e.textContent.trim()"
        " || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert nameless == []
    assert "finger on column 0" in browser.run("byId('abacus').getAttribute('aria-label')")


def test_the_page_takes_its_constants_from_python() -> None:
    html = play_page(new_policy("onehot", 5, 3))
    assert all(f'"{action.words}"' in html for action in Action)
    assert f"MAX_DIGITS = {MAX_DIGITS};" in html
    assert f"MAX_CHARACTERS = {MAX_CHARACTERS};" in html
    assert "{{" not in html.replace("${{", "")


def test_the_page_holds_all_weights_of_the_policy() -> None:
    policy = new_policy("onehot", 5, 3)
    written = network_data(policy, "</script>")
    assert written["layers"] == [[75, 128], [128, 128], [128, 8]]
    assert len(written["weights"]) == 4 * -(-4 * 27_272 // 3)
    assert "</script>" not in json.dumps(written).replace("</", "<\\/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["9" * 1001], "too long for the page: give at most 1000 digits per number"),
        (["3-5"], "goes below zero"),
        (["x"], "such as '1234+567-89'"),
        (["3", "--teacher"], "--html shows a network"),
        (["3", "--run", "no/such/run"], "no/such/run holds no policy"),
    ],
)
def test_a_page_that_cannot_be_made_is_reported_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert run(main, Options, "", EXAMPLE, [*arguments, "--html", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not path.exists()


def test_the_command_writes_a_page_with_the_expression(tmp_path: Path) -> None:
    save_policy(new_policy("onehot", 5, 3), tmp_path / "policy")
    path = tmp_path / "page.html"
    arguments = ["12+34", "--run", str(tmp_path / "policy"), "--html", str(path)]
    assert run(main, Options, "", EXAMPLE, arguments) == 0
    html = path.read_text()
    assert 'value="12+34"' in html
    assert "of the 99,784 observations that the teacher can meet: expect mistakes" in html
