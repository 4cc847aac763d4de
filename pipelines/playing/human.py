"""Playing oneself: the keyboard moves the finger, and the teacher can be asked."""

from __future__ import annotations

from abacus.rules import Action
from pipelines.playing.game import Game, Moment
from pipelines.playing.screen import emphasised, faint, picture
from pipelines.playing.terminal import Terminal
from pipelines.playing.words import action_words, verdict

KEYS = {
    "left": Action.LEFT,
    "right": Action.RIGHT,
    "up": Action.UP,
    "down": Action.DOWN,
    ",": Action.SIGNPOST_LEFT,
    "<": Action.SIGNPOST_LEFT,
    ".": Action.SIGNPOST_RIGHT,
    ">": Action.SIGNPOST_RIGHT,
    "space": Action.SLIDE,
    "enter": Action.SUBMIT,
}
_HELP = (
    "arrows move the finger · , and . move the signpost · space slides the gap to the finger",
    "enter submits: the next symbol, please · h the teacher's hint · q quit",
)
_ILLEGAL = {
    Action.LEFT: "the finger is on the first column",
    Action.RIGHT: "the finger is on the last column",
    Action.UP: "the finger is on the top row",
    Action.DOWN: "the finger is on the bottom row",
    Action.SIGNPOST_LEFT: "the signpost is on the first column",
    Action.SIGNPOST_RIGHT: "the signpost is on the last column",
    Action.SLIDE: "the gap is where the finger is already",
}
_QUITS = ("q", "escape")


def play_in_terminal(game: Game) -> Moment:
    """Lets a person play until it is over or he quits; returns the last moment."""
    message = "Compute the expression: the first number is added to 0. Press h for a hint."
    with Terminal() as terminal:
        while not game.over:
            _draw(terminal, game.moment(), message, *_HELP)
            key = terminal.key(None)
            if key in _QUITS:
                break
            message = _answer(game, key or "")
        else:
            _draw(terminal, game.moment(), verdict(game), "q or enter: back to the shell")
            while terminal.key(None) not in (*_QUITS, "enter"):
                pass
    return game.moment()


def _draw(terminal: Terminal, moment: Moment, message: str, *help_lines: str) -> None:
    lines = picture(moment, terminal.width, colour=True)
    terminal.draw([*lines, "", emphasised(message), "", *map(faint, help_lines)])


def _answer(game: Game, key: str) -> str:
    """Does what the key asks for, and says how that went."""
    if key in ("h", "?"):
        return f"The teacher would: {action_words(game.hint())}."
    if key not in KEYS:
        shown = key if key.isprintable() else "that key"
        return f"No action is on {shown}."
    action = KEYS[key]
    if not game.masks[action]:
        return f"Illegal: {_ILLEGAL[action]}."
    game.do(action)
    if game.went_wrong:
        return f"Done, but wrong: {action_words(action)}. Press h to be led back."
    return f"Done: {action_words(action)}."
