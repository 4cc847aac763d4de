"""A game as lines of plain text, for pipes, logs and terminals that cannot be drawn on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from abacus.numerals import base_numeral, decimal_numeral
from pipelines.playing.game import Moment
from pipelines.playing.screen import picture
from pipelines.playing.words import action_words, percent

_VALUE = 26
_HEADER = (
    f"{'step':>6}  {'symbol':<6}  {'action':<14}  {'probability':>11}  {'finger':>9}  "
    f"{'signpost':>8}  {'value':>{_VALUE}}  decimal"
)


def plain_lines(moments: Iterable[Moment]) -> Iterator[str]:
    """A line for each step, then the picture of the last moment."""
    yield _HEADER
    for moment in moments:
        if moment.action is not None:
            yield _step_line(moment)
    yield ""
    yield from picture(moment)


def _step_line(moment: Moment) -> str:
    view, action = moment.view, moment.action
    assert action is not None
    probability = "" if moment.probability is None else percent(moment.probability)
    finger = f"{view.finger_column},{view.finger_row}"
    value = base_numeral(view.digits, _VALUE).text
    decimal = decimal_numeral(view.digits, view.base, _VALUE).text
    return (
        f"{view.step:>6}  {view.symbol_text:<6}  {action_words(action):<14}  {probability:>11}  "
        f"{finger:>9}  {view.signpost:>8}  {value:>{_VALUE}}  {decimal}"
    )
