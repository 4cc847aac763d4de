"""Watching and playing in a pseudo-terminal: keys, speed, pauses, and restoring the terminal."""

from __future__ import annotations

import os
import re
import signal
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from abacus.batch import AbacusBatch
from abacus.rules import Action
from pipelines.job.command_line import run
from pipelines.play import EXAMPLE, Options, main
from pipelines.showing import terminal
from pipelines.showing.game import (
    Agent,
    ExpertAgent,
    Game,
    RandomAgent,
    bases_text,
    config_for,
    moments_of,
    verdict,
)
from pipelines.showing.terminal import SPEEDS, Pace, bar, columns_that_fit, key_names
from tests.pipelines.showing.terminal_session import TerminalSession

RIGHT_ARROW, DOWN_ARROW, UP_ARROW, LEFT_ARROW = "\x1b[C", "\x1b[B", "\x1b[A", "\x1b[D"


def play(*arguments: str) -> int:
    return run(main, Options, "", EXAMPLE, arguments)


def test_watching_can_be_paused_stepped_and_quit() -> None:
    with TerminalSession("pipelines.play", "34+29-8", "teacher", "--speed", "1") as session:
        session.wait_for("1 steps/s")
        session.press(" ")
        paused = session.wait_for("paused")
        step = int(re.findall(r"step (\d+)", paused)[-1])
        for expected in range(step + 1, step + 4):
            session.press(RIGHT_ARROW)
            shown = session.wait_for("q quit")
            assert f"step {expected} " in shown
            assert "next action and its probability" in shown
        session.press("q")
        assert session.wait_for_end() == 1
        assert "stopped before the end after" in session.raw
        assert session.modes == session.modes_before
        assert "\x1b[?1049l" in session.raw
        assert "\x1b[?25h" in session.raw


def test_watching_faster_to_the_end() -> None:
    with TerminalSession("pipelines.play", "34+29-8", "teacher") as session:
        session.wait_for("4 steps/s")
        session.press("+")
        session.wait_for("8 steps/s")
        session.press("-")
        session.wait_for("4 steps/s")
        session.press("+" * 5)
        end = session.wait_for("back to the shell")
        assert "correct in 58 steps: the abacus shows 55 (210 in base 5)" in end
        session.press("\r")
        assert session.wait_for_end() == 0
        assert session.modes == session.modes_before


@pytest.mark.parametrize(("ended_by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_restores_the_terminal(ended_by: signal.Signals, status: int) -> None:
    with TerminalSession("pipelines.play", "34+29-8", "teacher", "--speed", "0.5") as session:
        session.wait_for("q quit")
        session.process.send_signal(ended_by)
        assert session.wait_for_end() == status
        assert session.modes == session.modes_before
        assert session.raw.index("\x1b[?1049l") > 0
        assert "Traceback" not in session.raw


def test_a_game_can_be_suspended_and_continued() -> None:
    with TerminalSession("pipelines.play", "34+29-8", "teacher", "--speed", "0.5") as session:
        session.wait_for("q quit")
        session.press(" ")
        session.wait_for("paused")
        session.process.send_signal(signal.SIGTSTP)
        session.wait_for_raw("\x1b[?1049l")
        os.waitid(os.P_PID, session.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert session.modes == session.modes_before
        session.process.send_signal(signal.SIGCONT)
        session.wait_for("paused")
        session.resize(90, 30)
        session.wait_for("paused")
        session.press("q")
        assert session.wait_for_end() == 1
        assert session.modes == session.modes_before


def test_a_small_terminal_is_not_overfilled() -> None:
    with TerminalSession("pipelines.play", "9" * 60, "teacher", columns=40, rows=12) as session:
        session.wait_for("place")
        session.press("q")
        session.wait_for_end()
        frames = session.raw.split("\x1b[H")[1:-1]
        assert all(frame.count("\r\n") < 12 for frame in frames)


def test_a_terminal_of_24_lines_shows_the_action_and_the_keys() -> None:
    with TerminalSession("pipelines.play", "34", "teacher", columns=80, rows=24) as session:
        shown = session.wait_for("q quit")
        assert "next down, 100.00 %" in shown
        assert "reads +34 (114 in base 5), digit 1 of 3" in shown
        session.press(RIGHT_ARROW)
        session.wait_for("paused")
        session.press("q")
        assert session.wait_for_end() == 1


def test_playing_by_hand_with_hints() -> None:
    with TerminalSession("pipelines.play", "1", "--human") as session:
        session.wait_for("q quit")
        for keys, answer in [
            ("h", "The teacher's action: down"),
            (LEFT_ARROW, "Illegal: the finger is on the first column"),
            (UP_ARROW, "Illegal: the finger is on the top row"),
            (" ", "Illegal: the gap is already at the finger"),
            ("x", "No action has the key x"),
            ("\r", "Done, but wrong: submit"),
        ]:
            session.press(keys)
            session.wait_for(answer)
        session.press("q")
        assert session.wait_for_end() == 1
        assert "the correct result is 1 (1 in base 5)" in session.raw


def test_playing_by_hand_to_the_end() -> None:
    with TerminalSession("pipelines.play", "1", "--human") as session:
        session.wait_for("q quit")
        for keys in (DOWN_ARROW, " ", RIGHT_ARROW, "\r", LEFT_ARROW):
            session.press(keys)
            session.wait_for("Done")
        session.press("\r")
        session.wait_for("correct in 6 steps: the abacus shows 1")
        session.press("q")
        assert session.wait_for_end() == 0


def test_without_a_terminal_plain_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert play("34+29-8", "teacher") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert lines[0] == "34 is 114 in base 5, 29 is 104, 8 is 13: the abacus counts in fives"
    assert lines[2].split() == ["0", "4", "down", "100.00", "%", "0,0", "0", "0", "0"]
    assert lines[-1] == "correct in 58 steps: the abacus shows 55 (210 in base 5)"


class RestlessAgent(Agent):
    """An agent that slides where it can, else moves: it undoes and redoes a right slide."""

    name = "a restless agent"

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.float64]:
        wanted = [Action.SLIDE, Action.UP, Action.DOWN]
        action = next(action for action in wanted if batch.masks[0][action])
        probabilities: npt.NDArray[np.float64] = np.eye(len(Action))[action]
        return probabilities


def test_a_game_that_repeats_itself_is_stopped() -> None:
    game = Game(config_for("1"))
    moments = list(islice(moments_of(game, RestlessAgent()), 100))
    assert len(moments) == game.steps + 1 < 20
    assert not game.solved
    assert verdict(game).startswith(f"repeats itself for ever after {game.steps} steps: ")


def test_a_policy_is_named_as_for_certify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any of teacher, random, a function, a folder, a name of the project's own policies."""
    (tmp_path / "own_policy.py").write_text(
        "import numpy as np\n"
        "def down(observations): return np.full(len(observations['symbol']), 3)\n"
        "def first(observations): return np.eye(8)[[7] * len(observations['symbol'])]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert play("1", "base5") == 0
    assert play("1", "teacher", "--base", "3") == 0
    assert "(1 in base 3)" in capsys.readouterr().out
    assert play("1", "own_policy:down") == 1
    assert "repeats itself for ever after 7 steps" in capsys.readouterr().out
    assert play("1", "own_policy:first", "--base", "10", "--frames", "2") == 1
    assert "wrong after 2 steps" in capsys.readouterr().out


def test_random_actions_are_repeatable_and_never_called_endless() -> None:
    games = [Game(config_for("1")) for _ in range(3)]
    for game, seed in zip(games, (0, 0, 1), strict=True):
        assert sum(1 for _ in moments_of(game, RandomAgent(seed))) > 2
    first, again, other = ([*game.batch.history[0], game.steps] for game in games)
    assert first == again != other
    assert not any(game.repeats for game in games)


def test_explanations_are_printed_and_play_slower(capsys: pytest.CaptureFixture[str]) -> None:
    assert play("4+1", "teacher", "--explain") == 0
    shown = capsys.readouterr().out
    assert "4 + 1 = 10 in base 5: the finger goes to row 0, to write 0 and carry 1." in shown
    assert "Carry: the sum did not fit in column 0" in shown
    assert Options("4+1").steps_per_second == 4
    assert Options("4+1", explain=True).steps_per_second == 0.25
    assert Options("4+1", explain=True, speed=2).steps_per_second == 2


def test_explanations_have_a_key() -> None:
    with TerminalSession("pipelines.play", "4+1", "teacher", "--speed", "0.25") as session:
        assert "0 + 4 = 4" not in session.wait_for("q quit")
        session.press("e")
        session.wait_for("0 + 4 = 4: the finger goes to row 4, to write 4.")
        session.press("q")
        session.wait_for_end()


@pytest.mark.parametrize(
    ("expression", "base", "text"),
    [
        ("34", 5, "34 is 114 in base 5: the abacus counts in fives"),
        ("34+29", 10, "the abacus counts in tens, as we write numbers"),
        (
            "1+2+3+4+5",
            2,
            "1 is 1 in base 2, 2 is 10, 3 is 11, 4 is 100, …: the abacus counts in twos",
        ),
    ],
)
def test_numbers_are_shown_in_both_bases(expression: str, base: int, text: str) -> None:
    assert bases_text(config_for(expression, base)) == text


def test_the_published_policy_plays_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert play("1234+567-89") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("correct in 111 steps: the abacus shows 1,712 (23322 in base 5)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give decimal numbers joined by + and -, such as '1234+567-89'"),
        (["two+2"], "give decimal numbers joined by + and -, such as '1234+567-89'"),
        (["3-5"], "goes below zero at number 2"),
        (["3", "--human"], "--human needs a terminal"),
        (["3", "teacher", "--human"], "--human plays without a policy"),
        (["3", "no/such/run"], "no/such/run holds no policy"),
        (["3", "teacher", "--base", "11"], "base=11 is not allowed"),
        (["3", "teacher", "--base", "0"], "base=0 is not allowed"),
        (["3", "teacher", "--columns", "0"], "columns=0 is not allowed"),
        (["3", "teacher", "--speed", "0"], "speed=0.0 is not allowed"),
        (["3", "teacher", "--speed", "0.2"], "speed=0.2 is not allowed"),
        (["3", "--html-policies", "base5"], "give --html as well"),
        (["3", "base5", "--base", "4"], "base=4 is not allowed: the policy of base5 was trained"),
        (["3", "teacher", "--speed", "1001"], "speed=1001.0 is not allowed"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err


def test_keys_have_names() -> None:
    assert key_names("\x1b[A\x1bOB q\r\x1b\x7f") == [
        "up", "down", "space", "q", "enter", "escape", "backspace",
    ]  # fmt: skip


def test_keys_change_the_speed_within_its_limits() -> None:
    pace = Pace(6)
    assert pace.text == "6 steps/s"
    pace.faster()
    assert pace.speed == 8
    pace = Pace(6)
    pace.slower()
    assert pace.speed == 4
    for _ in range(20):
        pace.slower()
    assert pace.speed == SPEEDS[0]
    for _ in range(20):
        pace.faster()
    assert (pace.speed, pace.text) == (SPEEDS[-1], "full speed")


class FakeTerminal:
    """Stands in for `Terminal` and for the clock: waiting for a key lets time pass."""

    width, height = 80, 50

    def __init__(self) -> None:
        self.now = 100.0

    def __enter__(self) -> FakeTerminal:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def draw(self, lines: list[str]) -> None:
        self.now += 0.01

    def key(self, seconds: float | None) -> None:
        self.now += seconds or 0

    def wait_for_quit(self) -> None:
        pass


@pytest.mark.parametrize("speed", [0.5, 6, 37.5])
def test_a_game_plays_at_the_speed_asked_for(speed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTerminal()
    monkeypatch.setattr(terminal, "Terminal", lambda: fake)
    monkeypatch.setattr("pipelines.showing.terminal.time.monotonic", lambda: fake.now)
    game = Game(config_for("34+29-8"))
    terminal.watch(game, ExpertAgent(), speed)
    # The verdict is drawn after the last step.
    assert fake.now - 100 == pytest.approx(game.steps / speed + 0.01)


def test_bars_and_columns_fit() -> None:
    assert bar(0.0, 4) == "····"
    assert bar(1.0, 4) == "████"
    assert bar(0.3, 4) == "█▎··"
    assert (columns_that_fit(10), columns_that_fit(80), columns_that_fit(999)) == (3, 15, 40)
