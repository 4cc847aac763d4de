"""Why a move is made, in one sentence: carry, borrow, signpost, reset.

The sentence follows from the state of the abacus and from what the teacher would do there.
`pipelines/pages/explanation.js` chooses among the same sentences; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from abacus.batch import AbacusBatch
from abacus.kernel import ON_OPERATION_SYMBOL, SUBTRACT
from abacus.rules import Action, End
from abacus.tasks import numeral
from oracle.expert import expert_actions

#: Names of the groups in which a base counts.
BASE_WORDS = {
    2: "twos", 3: "threes", 4: "fours", 5: "fives", 6: "sixes", 7: "sevens", 8: "eights",
    9: "nines", 10: "tens",
}  # fmt: skip
#: Words in braces are replaced; `carry` is "carry" or "borrow".
SENTENCES = {
    "reset_finger": "Reset: a number is done, so the finger goes back to column 0, where the next "
    "one begins.",
    "reset_last": "Reset: the last number is done, so the finger goes back to column 0.",
    "reset_signpost": "Reset: the signpost follows the finger back to column 0.",
    "reset_done": "Reset done: finger and signpost are on column 0, so submit asks for the first "
    "digit of the next number.",
    "end": "Reset done, and no number is left: submit ends the calculation.",
    "signpost": "Signpost: it marks column {digit_column}, where this digit belongs, so that the "
    "finger finds its way back after a {carry}.",
    "to_digit": "This digit belongs to column {digit_column}, so the finger goes there.",
    "to_carry": "Carry: the sum did not fit in column {previous}, so the finger goes to column "
    "{column}, to add 1.",
    "to_borrow": "Borrow: column {previous} held too little, so the finger goes to column "
    "{column}, to take 1 away.",
    "to_mistake": "Column {column} is wrong after an earlier mistake, so the finger goes there.",
    "zero": "The digit is 0, so nothing changes: the finger steps past the signpost, to submit.",
    "no_carry": "Column {digit_column} is done without a {carry}: the finger steps past the "
    "signpost, to submit.",
    "return": "The {carry} is done, so the finger returns to the signpost, to submit.",
    "to_submit": "All columns are right, so the finger goes next to the signpost, to submit.",
    "next_digit": "All columns are right and the signpost is next to the finger: submit asks for "
    "the next digit.",
    "last_digit": "All columns are right, and that was the last digit: submit asks for what comes "
    "next.",
    "sum": "{carried}{digit} + {amount} = {total}{in_base}",
    "difference": "{carried}{digit} - {amount} = {result}",
    "borrowing": "{carried}{digit} - {amount} needs a borrow, and {total} - {amount} = {result}"
    "{in_base}",
    "repair": "Column {column} has to show {result}",
    "row": "{why}: the finger goes to row {result}, to write {result}{carries}.",
    "slide": "{why}: slide writes {result} in column {column}{carries}.",
    "row_carries": " and {carry} 1",
    "slide_carries": ", and a {carry} follows",
    "own_submit": "No bead is wrong and the signpost is in place, so it submits at once; the "
    "teacher would first choose {action}.",
    "own_signpost": "Signpost: it moves towards column {goal} before the finger does; the teacher "
    "would first choose {action}.",
    "own_slide": "Slide writes the right digit already; the teacher would first choose {action}.",
    "own_way": "Its own way; the teacher would choose {action} ({reason}).",
    "mistake": "A mistake; the teacher would choose {action} ({reason}).",
}


def explanation(batch: AbacusBatch, action: Action) -> str:
    """Return a sentence about an action in the current state of a batch of one abacus."""
    expert = Action(int(expert_actions(batch)[0]))
    reason = _reason(batch, expert)
    if action == expert:
        return reason
    s, resetting = _state(batch)
    inner = reason[0].lower() + reason[1:].removesuffix(".")
    goal = 0 if resetting else int(s["digit_index"])
    name = _own_sentence(batch, action, goal)
    return SENTENCES[name].format(action=expert.words, reason=inner, goal=goal)


def _own_sentence(batch: AbacusBatch, action: Action, goal: int) -> str:
    """Return the name of the sentence for an action that the teacher would not take here."""
    if _is_mistake(batch, action):
        return "mistake"
    if action in (Action.SUBMIT, Action.SLIDE):
        return f"own_{action.name.lower()}"
    signpost = int(_state(batch)[0]["signpost"])
    to_goal = Action.SIGNPOST_LEFT if signpost > goal else Action.SIGNPOST_RIGHT
    return "own_signpost" if action == to_goal and signpost != goal else "own_way"


def _is_mistake(batch: AbacusBatch, action: Action) -> bool:
    """Return whether a legal action would be a wrong slide or a wrong submit."""
    s, resetting = _state(batch)
    if action == Action.SLIDE:
        if resetting or s["finger_column"] != s["first_wrong"]:
            return True
        return bool(s["finger_row"] != batch.world.cells[0][s["first_wrong"]]["target"])
    if action == Action.SUBMIT:
        done = s["signpost"] == (0 if resetting else s["digit_index"])
        return not (done and (resetting or s["wrong_count"] == 0))
    return False


def _state(batch: AbacusBatch) -> tuple[Any, bool]:
    s = batch.world.scalars[0]
    return s, int(s["digit_index"]) == ON_OPERATION_SYMBOL


def _reason(batch: AbacusBatch, expert: Action) -> str:
    """Return why the teacher takes its action."""
    s, resetting = _state(batch)
    if resetting:
        return SENTENCES[_reset_sentence(s, expert)]
    if expert in (Action.UP, Action.DOWN, Action.SLIDE):
        return _writing(batch, "slide" if expert == Action.SLIDE else "row")
    words = {
        "digit_column": int(s["digit_index"]),
        "column": int(s["first_wrong"]),
        "previous": int(s["first_wrong"]) - 1,
        "carry": "borrow" if s["operation"] == SUBTRACT else "carry",
    }
    return SENTENCES[_digit_sentence(batch, expert)].format(**words)


def _reset_sentence(s: Any, expert: Action) -> str:
    last = int(s["end_after_reset"]) == End.EXPRESSION
    if expert == Action.LEFT:
        return "reset_last" if last else "reset_finger"
    if expert == Action.SIGNPOST_LEFT:
        return "reset_signpost"
    return "end" if last else "reset_done"


def _digit_sentence(batch: AbacusBatch, expert: Action) -> str:
    """Return the name of the sentence for an action that does not write."""
    s, _ = _state(batch)
    index, wrong = int(s["digit_index"]), int(s["first_wrong"])
    if expert in (Action.SIGNPOST_LEFT, Action.SIGNPOST_RIGHT):
        return "signpost"
    if expert == Action.SUBMIT:
        return "last_digit" if index + 1 == s["operand_length"] else "next_digit"
    marked = s["signpost"] == index
    if s["wrong_count"] > 0 and (wrong <= index or marked):
        if wrong == index:
            return "to_digit"
        if not _is_carry(batch):
            return "to_mistake"
        return "to_borrow" if s["operation"] == SUBTRACT else "to_carry"
    if not marked:
        return "to_digit"
    if expert == Action.LEFT:
        return "return"
    if s["finger_column"] != index:
        return "to_submit"
    return "zero" if s["symbol"] == 0 else "no_carry"


def _is_carry(batch: AbacusBatch) -> bool:
    """Return whether the lowest wrong column is one that a carry or a borrow changes."""
    s, _ = _state(batch)
    if s["first_wrong"] <= s["digit_index"]:
        return False
    cell = batch.world.cells[0][s["first_wrong"]]
    change = -1 if s["operation"] == SUBTRACT else 1
    return (int(cell["digit"]) + change) % batch.config.base == int(cell["target"])


def _writing(batch: AbacusBatch, sentence: str) -> str:
    """Return why the lowest wrong column gets its digit: a sum, a difference or a repair."""
    s, _ = _state(batch)
    base, column = batch.config.base, int(s["first_wrong"])
    cell = batch.world.cells[0][column]
    digit, result = int(cell["digit"]), int(cell["target"])
    subtracting, carried = s["operation"] == SUBTRACT, _is_carry(batch)
    amount = 1 if carried else int(s["symbol"])
    total = digit - amount if subtracting else digit + amount
    carry = "borrow" if subtracting else "carry"
    overflows = not 0 <= total < base
    if (carried or column == s["digit_index"]) and total % base == result:
        why = SENTENCES[_sum_sentence(subtracting, overflows)].format(
            carried=f"{carry.capitalize()}, " if carried else "",
            digit=digit,
            amount=amount,
            result=result,
            total=numeral(digit + (base if subtracting else amount), base),
            in_base=f" in base {base}" if overflows and base != 10 else "",
        )
    else:
        why, overflows = SENTENCES["repair"].format(column=column, result=result), False
    carries = SENTENCES[f"{sentence}_carries"].format(carry=carry) if overflows else ""
    return SENTENCES[sentence].format(why=why, result=result, column=column, carries=carries)


def _sum_sentence(subtracting: bool, overflows: bool) -> str:
    if not subtracting:
        return "sum"
    return "borrowing" if overflows else "difference"
