"use strict";

// The teacher's answer in any state; see oracle/expert.py.

function teacherAnswer(abacus) {
  const { fingerColumn, fingerRow, signpost } = abacus;
  if (abacus.resetting) {
    if (fingerColumn > 0) return Action.LEFT;
    return signpost > 0 ? Action.SIGNPOST_LEFT : Action.SUBMIT;
  }
  const index = abacus.digitIndex;
  const { column, row } = fingerGoal(abacus);
  if (fingerColumn !== column) return fingerColumn > column ? Action.LEFT : Action.RIGHT;
  if (signpost !== index && column === index) {
    return signpost > index ? Action.SIGNPOST_LEFT : Action.SIGNPOST_RIGHT;
  }
  if (row === null) return Action.SUBMIT;
  if (fingerRow !== row) return fingerRow > row ? Action.UP : Action.DOWN;
  return Action.SLIDE;
}

/** Where the finger belongs while a digit is shown; any row is right where it is null. */
function fingerGoal(abacus) {
  const index = abacus.digitIndex, wrong = abacus.firstWrong();
  if (wrong < abacus.columns && (wrong <= index || abacus.signpost === index)) {
    return { column: wrong, row: abacus.target[wrong] };
  }
  return { column: abacus.signpost === index ? index + 1 : index, row: null };
}
