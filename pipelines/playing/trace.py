"""A game as JSON: every step's state, what was seen, what was done, and how sure it was.

{
  "format": "virtual-abacus-trace", "version": 1,
  "expression", "base", "columns", "frames", "player",
  "steps": [
    {
      "step", "digits",             column 0, the least significant, first
      "finger": [column, row], "signpost", "symbol", "operation",
      "frame_codes",                see abacus.observation.decode_frame; oldest first
      "action", "probability", "probabilities"     null in the last one, where all is done
    }, ...
  ],
  "end", "value", "truth", "right"  values as decimal text: they may be long
}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

from abacus.tasks import numeral
from pipelines.playing.game import Game, Moment

FORMAT, VERSION = "virtual-abacus-trace", 1


def write_trace(file: IO[bytes], game: Game, player: str, moments: Iterable[Moment]) -> None:
    """Writes the moments as they come, one on a line."""
    config = game.config
    head = {
        "format": FORMAT,
        "version": VERSION,
        "expression": config.expression,
        "base": config.base,
        "columns": config.columns,
        "frames": config.frames,
        "player": player,
    }
    file.write(f'{json.dumps(head)[:-1]}, "steps": [\n'.encode())
    for number, moment in enumerate(moments):
        separator = ",\n" if number else ""
        file.write(f"{separator}{json.dumps(step_record(moment))}".encode())
    tail = {
        "end": game.end.name,
        "value": numeral(game.value, 10),
        "truth": numeral(game.truth, 10),
        "right": game.solved,
    }
    file.write(f"\n], {json.dumps(tail)[1:]}\n".encode())


def step_record(moment: Moment) -> dict[str, Any]:
    """One step in plain values."""
    view, action = moment.view, moment.action
    return {
        "step": view.step,
        "digits": "".join(map(str, view.digits)),
        "finger": [view.finger_column, view.finger_row],
        "signpost": view.signpost,
        "symbol": view.symbol_text,
        "operation": "+-"[view.operation],
        "frame_codes": list(moment.frames),
        "action": None if action is None else action.name,
        "probability": moment.probability,
        "probabilities": moment.probabilities and list(moment.probabilities),
    }
