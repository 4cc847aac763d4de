"""The play page in Chromium: typing, scrubbing, keys, small screens, dark mode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from abacus.batch import AbacusBatch
from abacus.rules import Action
from oracle.exact.certificate import Certificate, digest_of
from oracle.exact.own_runs import OwnRunsCertificate
from oracle.files import atomic_write_text
from pipelines.job.command_line import run
from pipelines.learning import policy_files
from pipelines.learning.policy import new_policy
from pipelines.learning.policy_files import save_policy
from pipelines.play import EXAMPLE, Options, main
from pipelines.showing import page
from pipelines.showing.game import Agent, Game, config_for, moments_of
from pipelines.showing.page import MAX_CHARACTERS, MAX_DIGITS, network_data, play_page
from tests.pipelines.browser import CHROMIUM, Browser

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
EXPRESSION, STEPS = "34+29-8", 58
#: Players of the page: untrained networks and, after those of each base, the teacher.
CLONED, REWARD, TEACHER, TEN, TEACHER_OF_TEN = range(5)


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(shared: Browser, tmp_path: Path) -> Browser:
    """A new page in which the teacher plays: tests do not depend on a trained policy."""
    path = tmp_path / "page.html"
    kinds = [(5, "base5", page.CLONED), (10, "base10", page.OTHER), (5, "alone", page.FROM_REWARD)]
    torch.manual_seed(0)
    networks = [network_data(new_policy("onehot", base, 3), *names) for base, *names in kinds]
    atomic_write_text(path, play_page(networks, EXPRESSION))
    shared.errors.clear()
    shared.requests.clear()
    shared.resize(1100, 900)
    shared.prefer()
    shared.open(path)
    shared.run(f"app.choosePlayer({TEACHER})")
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
          const game = new Game(app.game.plan, app.player), shown = [];
          while (!game.over) {
            shown.push(Array.from(game.abacus.digits).join(""));
            game.advance();
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
    assert text(browser, "#pace") == "0.25 steps/s"


@in_browser
def test_playing_by_hand(browser: Browser) -> None:
    compute(browser, "1")
    browser.click("#you-play")
    browser.run("app.goTo(0)")
    assert browser.run("byId('choices').classList.contains('veiled')")
    browser.press("h", "h")
    assert text(browser, "#message") == (
        "The teacher's action: down. 0 + 1 = 1: the finger goes to row 1, to write 1."
    )
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
    browser.click("#watch")
    browser.wait_for("app.game.over")
    browser.press("End")
    assert text(browser, "#verdict").endswith("34+29-8 = 55")
    assert browser.run("app.game.last") == STEPS + 2


@in_browser
def test_every_policy_and_a_teacher_for_each_base_can_be_chosen(browser: Browser) -> None:
    shown = browser.run("[...byId('player').options].map((option) => option.textContent)")
    assert shown == [
        "Cloned policy (base5)", "Policy from reward alone (alone)", "Teacher (base 5)",
        "Policy (base10)", "Teacher (base 10)",
    ]  # fmt: skip
    assert browser.run("byId('player').value") == str(TEACHER)
    browser.run(
        f"byId('player').value = {TEACHER_OF_TEN}; "
        "byId('player').dispatchEvent(new Event('change'))"
    )
    browser.press("End")
    assert text(browser, "#verdict") == "Correct in 38 steps: 34+29-8 = 55"
    assert text(browser, "#value-decimal") == "55"
    assert browser.run("byId('in-base').hidden")
    assert browser.run("document.querySelectorAll('#symbols li').length") == 12
    browser.press("Home")
    assert text(browser, "#bases") == "34: the abacus counts in tens, as we write numbers."
    browser.run(f"app.choosePlayer({CLONED})")
    assert browser.run("app.game.abacus.base") == 5
    assert "learned" not in text(browser, "#facts")
    assert "27,272 weights" in text(browser, "#facts")
    assert browser.errors == []


@in_browser
def test_the_number_is_shown_in_both_bases(browser: Browser) -> None:
    assert text(browser, "#bases") == "34 is 114 in base 5: the abacus counts in fives."
    assert text(browser, "#bases mark") == "4"
    browser.run("app.stopAt(27)")
    assert text(browser, "#bases") == "29 is 104 in base 5: the abacus counts in fives."
    compute(browser, "9" * 40)
    assert text(browser, "#bases") == "The abacus counts in fives."


@in_browser
def test_explanations_follow_the_moves(browser: Browser) -> None:
    assert browser.run("byId('why').hidden")
    browser.press("e", "e")
    assert browser.run("byId('explain').getAttribute('aria-pressed')") == "true"
    assert text(browser, "#pace") == "0.25 steps/s"
    for step, reason in [
        (24, "4 + 4 = 13 in base 5: the finger goes to row 3, to write 3 and carry 1."),
        (27, "Carry: the sum did not fit in column 0, so the finger goes to column 1, to add 1."),
        (18, "Reset: a number is done, so the finger goes back to column 0, where the next one "
             "begins."),
        (7, "Signpost: it marks column 1, where this digit belongs, so that the finger finds its "
            "way back after a carry."),
    ]:  # fmt: skip
        browser.run(f"app.stopAt({step})")
        assert text(browser, "#why") == reason
        assert reason in text(browser, "#announcer")
    browser.click("#explain")
    assert text(browser, "#pace") == "4 steps/s"
    assert browser.run("byId('why').hidden")


@in_browser
def test_players_are_compared_side_by_side(browser: Browser) -> None:
    browser.press("c", "c")
    browser.wait_for("app.finished")
    browser.press("End")
    titles = browser.run("[...document.querySelectorAll('.lane h3')].map((e) => e.textContent)")
    assert titles == ["Cloned policy", "Policy from reward alone", "Teacher"]
    lasts = browser.run("app.games.map((game) => game.last)")
    assert lasts[TEACHER] == STEPS
    assert browser.run("app.index") == max(lasts)
    counts = browser.run("[...document.querySelectorAll('.lane output')].map((e) => e.textContent)")
    assert counts == [f"{last:,} of {last:,} steps" for last in lasts]
    # The untrained networks fail, and the page says so.
    verdicts = browser.run(
        "[...document.querySelectorAll('.lane .verdict')].map((e) => e.classList[1])"
    )
    assert verdicts == ["wrong", "wrong", "right"]
    assert text(browser, "#verdict").endswith(f"Teacher: {STEPS} steps")
    assert text(browser, "#all-bases").startswith("34 is 114 in base 5, 29 is 104, 8 is 13: ")
    browser.press("Home")
    assert text(browser, ".lane:last-child output") == f"0 of {STEPS} steps"
    assert text(browser, ".lane:last-child .verdict") == "Next: down"
    assert "Teacher: Next: down" in text(browser, "#announcer")
    browser.press("y", "y")
    assert browser.run("byId('side-by-side').hidden && !byId('single').hidden && app.visiting")
    browser.press("w", "w")
    browser.wait_for("app.game.over")
    assert browser.errors == []


class RestlessAgent(Agent):
    """An agent that slides where it can, else moves: it undoes and redoes a right slide."""

    name = "a restless agent"

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.float64]:
        action = next(action for action in RESTLESS if batch.masks[0][action])
        return np.asarray(np.eye(len(Action))[action])


RESTLESS = (Action.SLIDE, Action.UP, Action.DOWN)


@in_browser
def test_a_game_that_repeats_itself_is_stopped_as_in_python(browser: Browser) -> None:
    browser.run(
        f"app.player.probabilities = (abacus) => {{"
        f" const chosen = {list(map(int, RESTLESS))}.find((action) => abacus.isLegal(action));"
        " return ACTION_WORDS.map((_, action) => Number(action === chosen)); }"
    )
    compute(browser, "1")
    browser.wait_for("app.game.over")
    browser.press("End")
    game = Game(config_for("1"))
    steps = sum(1 for _ in moments_of(game, RestlessAgent())) - 1
    assert game.repeats
    assert text(browser, "#verdict") == (
        f"Repeats itself for ever after {steps} steps: the correct result is 1 = 1"
    )


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
    for mode, buttons in (
        ("#compare", ".mode button"), ("#watch", ".controls button"), ("#you-play", ".pad button")
    ):  # fmt: skip
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
        "[...document.querySelectorAll('button, input, select, article')]"
        ".filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    assert "finger on column 0" in browser.run("byId('abacus').getAttribute('aria-label')")


@in_browser
def test_a_screen_reader_tells_the_buttons_of_a_visitor_apart(browser: Browser) -> None:
    browser.press("y", "y")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = [
        node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "button"
    ]
    assert len(names) == len(set(names))
    assert {action.words for action in Action} | {"hint", "undo"} <= set(names)
    assert all(name[0].isalnum() for name in names), "no name starts with an arrow"


def test_the_page_takes_its_constants_from_python() -> None:
    html = play_page([network_data(new_policy("onehot", 5, 3))])
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
        (["3", "teacher"], "--html shows networks, and the teacher beside them"),
        (["3", "no/such/run"], "no/such/run holds no policy"),
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
    arguments = ["12+34", str(tmp_path / "policy"), "--html", str(path)]
    assert run(main, Options, "", EXAMPLE, arguments) == 0
    html = path.read_text()
    assert 'value="12+34"' in html
    assert "of the 99,784 observations that the teacher can meet: expect mistakes" in html


def about_run(demo_operations: int, rounds: int, **settings: object) -> dict[str, object]:
    """Return the notes of a policy from a run with these settings."""
    teaching = {"rounds": rounds}
    return {"settings": {"demo_operations": demo_operations, "teaching": teaching, **settings}}


@pytest.mark.parametrize(
    ("notes", "kind"),
    [
        (about_run(100, 40, n_timesteps=0), page.CLONED),
        (about_run(0, 40, n_timesteps=0), page.CLONED),
        (about_run(0, 0, n_timesteps=2_000_000), page.FROM_REWARD),
        (about_run(0, 0, n_timesteps=0, planning={"exercises": 3_000}), page.FROM_REWARD),
        (about_run(0, 0, n_timesteps=0, planning={"exercises": 0}), page.OTHER),
        (about_run(0, 0, n_timesteps=2_000_000, start_from="runs/first"), page.OTHER),
        ({}, page.OTHER),
        ({"settings": "none"}, page.OTHER),
    ],
)
def test_the_page_says_what_a_policy_learned_from(notes: dict[str, object], kind: str) -> None:
    assert page.learned_from(notes) == kind


def test_the_page_holds_every_policy_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default one first; a network that the page cannot run is left out with a note."""
    monkeypatch.setattr(policy_files, "PUBLISHED", tmp_path)
    for name, base in (("base10", 10), ("base5", 5), ("paper", 5)):
        save_policy(new_policy("compact", base, 3), tmp_path / name)
    described = tmp_path / "paper" / "policy.json"
    content = {**json.loads(described.read_text()), "network": "paper", "version": 1}
    del content["digest"], content["sha256"]
    described.write_text(json.dumps(content))
    alone = about_run(0, 0, n_timesteps=1)
    save_policy(new_policy("onehot", 5, 3), tmp_path / "alone", alone)
    (tmp_path / "notes").mkdir()
    path = tmp_path / "page.html"
    assert run(main, Options, "", EXAMPLE, ["1+1", "--html", str(path)]) == 0
    assert "left out paper: --html needs an onehot or a compact network" in capsys.readouterr().err
    assert [network["name"] for network in networks_in(path)] == ["base5", "alone", "base10"]
    assert "differs from the teacher" in networks_in(path)[1]["about"]
    assert "expect mistakes" not in networks_in(path)[1]["about"]
    given = ["base10", "--html-policies", str(tmp_path / "alone")]
    assert run(main, Options, "", EXAMPLE, ["1+1", *given, "--html", str(path)]) == 0
    assert [network["name"] for network in networks_in(path)] == ["base10", "alone"]
    assert run(main, Options, "", EXAMPLE, ["1+1", "--base", "10", "--html", str(path)]) == 0
    assert networks_in(path)[0]["name"] == "base10"


def networks_in(path: Path) -> list[dict[str, str]]:
    data = re.search(r'id="networks">(.*?)</script>', path.read_text(), re.DOTALL)
    assert data is not None
    networks: list[dict[str, str]] = json.loads(data[1])
    return networks


def test_the_page_quotes_the_certificate_beside_a_policy(tmp_path: Path) -> None:
    """Of the teacher's observations or of own runs; one of other weights is not believed."""
    policy = new_policy("compact", 2, 1)
    save_policy(policy, tmp_path)
    path = tmp_path / "certificate.json"
    path.write_text(Certificate(2, 1, "before", 9, 0, 0, 1.0, "", digest_of(policy)).to_json())
    assert "on all 9 observations" in page.folder_network(tmp_path)["about"]
    own_runs = OwnRunsCertificate(2, 1, "no_of", "exact", "", 5, 4, 1.0, None, digest_of(policy))
    path.write_text(own_runs.to_json())
    assert "none goes wrong: it is exact at any length" in page.folder_network(tmp_path)["about"]
    path.write_text(replace(own_runs, policy_digest="other").to_json())
    assert "expect mistakes" in page.folder_network(tmp_path)["about"]
