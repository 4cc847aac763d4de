// Why a move is made, in one sentence of SENTENCES; see pipelines/showing/explanation.py.

const fillIn = (name, words = {}) =>
  SENTENCES[name].replace(/\{(\w+)\}/g, (_, word) => words[word]);

/** A sentence about an action in the abacus's current state. */
function explanationOf(abacus, action) {
  const expert = expertAction(abacus), reason = reasonFor(abacus, expert);
  if (action === expert) return reason;
  const goal = abacus.resetting ? 0 : abacus.digitIndex;
  return fillIn(ownSentence(abacus, action, goal), {
    goal, action: ACTION_WORDS[expert],
    reason: reason[0].toLowerCase() + reason.slice(1).replace(/\.$/, ""),
  });
}

/** The name of the sentence for an action that the teacher would not take here. */
function ownSentence(abacus, action, goal) {
  if (isMistake(abacus, action)) return "mistake";
  if (action === Action.SUBMIT) return "own_submit";
  if (action === Action.SLIDE) return "own_slide";
  const { signpost } = abacus, toGoal = signpost > goal ? Action.SIGNPOST_LEFT : Action.SIGNPOST_RIGHT;
  return action === toGoal && signpost !== goal ? "own_signpost" : "own_way";
}

/** Whether a legal action would be a wrong slide or a wrong submit. */
function isMistake(abacus, action) {
  const { resetting, digitIndex, fingerColumn, fingerRow, signpost } = abacus, wrong = abacus.firstWrong();
  if (action === Action.SLIDE) {
    return resetting || fingerColumn !== wrong || fingerRow !== abacus.target[wrong];
  }
  if (action === Action.SUBMIT) {
    return signpost !== (resetting ? 0 : digitIndex) || (!resetting && wrong < abacus.columns);
  }
  return false;
}

/** Why the teacher takes its action. */
function reasonFor(abacus, expert) {
  if (abacus.resetting) return fillIn(resetSentence(abacus, expert));
  if ([Action.UP, Action.DOWN, Action.SLIDE].includes(expert)) {
    return writing(abacus, expert === Action.SLIDE ? "slide" : "row");
  }
  const column = abacus.firstWrong();
  return fillIn(digitSentence(abacus, expert), {
    digit_column: abacus.digitIndex, column, previous: column - 1, carry: carryWord(abacus),
  });
}

const carryWord = ({ operation }) => (operation === 1 ? "borrow" : "carry");

function resetSentence(abacus, expert) {
  const last = abacus.endAfterReset === End.EXPRESSION;
  if (expert === Action.LEFT) return last ? "reset_last" : "reset_finger";
  if (expert === Action.SIGNPOST_LEFT) return "reset_signpost";
  return last ? "end" : "reset_done";
}

/** The name of the sentence for an action that does not write. */
function digitSentence(abacus, expert) {
  const index = abacus.digitIndex, wrong = abacus.firstWrong(), marked = abacus.signpost === index;
  if (expert === Action.SIGNPOST_LEFT || expert === Action.SIGNPOST_RIGHT) return "signpost";
  if (expert === Action.SUBMIT) return index + 1 === abacus.operand.length ? "last_digit" : "next_digit";
  if (wrong < abacus.columns && (wrong <= index || marked)) {
    if (wrong === index) return "to_digit";
    return isCarry(abacus) ? `to_${carryWord(abacus)}` : "to_mistake";
  }
  if (!marked) return "to_digit";
  if (expert === Action.LEFT) return "return";
  if (abacus.fingerColumn !== index) return "to_submit";
  return abacus.symbol === 0 ? "zero" : "no_carry";
}

/** Whether the lowest wrong column is one that a carry or a borrow changes. */
function isCarry(abacus) {
  const { base, digits, target, operation } = abacus, wrong = abacus.firstWrong();
  if (wrong <= abacus.digitIndex) return false;
  return (digits[wrong] + (operation === 1 ? base - 1 : 1)) % base === target[wrong];
}

/** Why the lowest wrong column gets its digit: a sum, a difference or a repair. */
function writing(abacus, sentence) {
  const { base, operation } = abacus, column = abacus.firstWrong();
  const digit = abacus.digits[column], result = abacus.target[column];
  const subtracting = operation === 1, carried = isCarry(abacus), carry = carryWord(abacus);
  const amount = carried ? 1 : abacus.symbol, total = subtracting ? digit - amount : digit + amount;
  const overflows = total < 0 || total >= base;
  const computed = (carried || column === abacus.digitIndex) && (total + base) % base === result;
  const name = !subtracting ? "sum" : overflows ? "borrowing" : "difference";
  const why = !computed ? fillIn("repair", { column, result }) : fillIn(name, {
    carried: carried ? `${carry[0].toUpperCase()}${carry.slice(1)}, ` : "",
    digit, amount, result,
    total: (digit + (subtracting ? base : amount)).toString(base),
    in_base: overflows && base !== 10 ? ` in base ${base}` : "",
  });
  const carries = computed && overflows ? fillIn(`${sentence}_carries`, { carry }) : "";
  return fillIn(sentence, { why, result, column, carries });
}
