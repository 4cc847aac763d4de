"""What stands on the screen in a moment: the abacus, and lines about it."""

from __future__ import annotations

from abacus.render_text import TEXT_COLUMNS, render_ansi
from abacus.rules import Action
from pipelines.playing.game import Moment
from pipelines.playing.words import action_words, percent, reading_text

#: What `render_ansi` writes beside the columns: names, the padding's slot, the other end's dots.
_BESIDE_COLUMNS = 9 + 2 * 4 + 1
_CHARACTERS_A_COLUMN = 4
_FEWEST_COLUMNS, _MOST_COLUMNS = 3, 40
_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BOLD, _FAINT, _BLUE, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"


def columns_that_fit(width: int) -> int:
    """Columns of an abacus that a terminal of this width shows."""
    fitting = (width - _BESIDE_COLUMNS) // _CHARACTERS_A_COLUMN
    return max(_FEWEST_COLUMNS, min(_MOST_COLUMNS, fitting))


def picture(moment: Moment, width: int | None = None, colour: bool = False) -> list[str]:
    """The abacus, and what the symbol shown belongs to."""
    columns = TEXT_COLUMNS if width is None else columns_that_fit(width)
    lines = render_ansi(moment.view, columns, colour).split("\n")
    return [*lines, f"   reads {reading_text(moment.reading)}"]


def choices(moment: Moment) -> list[str]:
    """A bar for the probability of each action, the one that is taken marked."""
    if moment.probabilities is None:
        return ["", *([""] * len(Action))]
    lines = ["    next action and its probability"]
    for action, probability in zip(Action, moment.probabilities, strict=True):
        chosen = action == moment.action
        text = f"{action_words(action):>17}  {bar(probability)} {percent(probability):>9}"
        lines.append(f"{_BOLD}{_BLUE}{text}{_OFF}" if chosen else f"{_FAINT}{text}{_OFF}")
    return lines


def choice_line(moment: Moment) -> str:
    """The same in a line: the action that is taken alone."""
    if moment.action is None or moment.probability is None:
        return ""
    text = f"{action_words(moment.action)}, {percent(moment.probability)}"
    return f"    next {_BOLD}{_BLUE}{text}{_OFF}"


def bar(share: float, length: int = _BAR) -> str:
    """A bar of blocks, exact to an eighth of a character."""
    eighths = round(share * length * 8)
    full, part = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[part] if part else "")
    return text.ljust(length, "·")


def emphasised(text: str) -> str:
    return f"{_BOLD}{text}{_OFF}"


def faint(text: str) -> str:
    return f"{_FAINT}{text}{_OFF}"
