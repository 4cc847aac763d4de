// The rules of abacus/kernel.py and the expert of oracle/expert.py; a test compares them step by step.

const Action = Object.freeze({
  LEFT: 0, RIGHT: 1, UP: 2, DOWN: 3, SIGNPOST_LEFT: 4, SIGNPOST_RIGHT: 5, SLIDE: 6, SUBMIT: 7,
});
const End = Object.freeze({ NONE: "NONE", BUDGET: "BUDGET", CAPACITY: "CAPACITY", EXPRESSION: "EXPRESSION" });
const SIGNPOST_PLACES = 3;
const SIGNPOST_UNSEEN = 0, SIGNPOST_IN_LEFT = 1, SIGNPOST_IN_RIGHT = 2;

class Abacus {
  /** `program` is a list of {subtract, digits}, digits least significant first. */
  constructor({ base, frames, columns, program, unlimited = false }) {
    Object.assign(this, { base, columns, program });
    this.digits = new Uint8Array(columns);
    this.target = new Uint8Array(columns);
    this.fingerColumn = this.fingerRow = this.signpost = 0;
    this.steps = 0;
    this.nextInProgram = 0;
    this.end = End.NONE;
    this.grant = stepBudget(base, columns, program);
    this.budget = unlimited ? Infinity : this.grant;
    this.chooseOperation();
    this.showDigit(0);
    this.history = new Array(frames).fill(this.frameCode());
  }

  get resetting() { return this.digitIndex === null; }
  get over() { return this.end !== End.NONE; }

  isLegal(action) {
    switch (action) {
      case Action.LEFT: return this.fingerColumn > 0;
      case Action.RIGHT: return this.fingerColumn < this.columns - 1;
      case Action.UP: return this.fingerRow > 0;
      case Action.DOWN: return this.fingerRow < this.base - 1;
      case Action.SIGNPOST_LEFT: return this.signpost > 0;
      case Action.SIGNPOST_RIGHT: return this.signpost < this.columns - 1;
      case Action.SLIDE: return this.digits[this.fingerColumn] !== this.fingerRow;
      default: return true;
    }
  }

  legalActions() { return ACTION_WORDS.map((_, action) => this.isLegal(action)); }

  /** Take a step; return 1 for a right slide or submit, -1 for a wrong one, else 0. */
  step(action) {
    const outcome = this.isLegal(action) ? this.act(action) : 0;
    this.steps += 1;
    if (!this.over && this.steps >= this.budget) this.end = End.BUDGET;
    this.history.shift();
    this.history.push(this.frameCode());
    return outcome;
  }

  act(action) {
    switch (action) {
      case Action.LEFT: this.fingerColumn -= 1; return 0;
      case Action.RIGHT: this.fingerColumn += 1; return 0;
      case Action.UP: this.fingerRow -= 1; return 0;
      case Action.DOWN: this.fingerRow += 1; return 0;
      case Action.SIGNPOST_LEFT: this.signpost -= 1; return 0;
      case Action.SIGNPOST_RIGHT: this.signpost += 1; return 0;
      case Action.SLIDE: return this.slide();
      default: return this.submit();
    }
  }

  slide() {
    this.digits[this.fingerColumn] = this.fingerRow;
    if (this.resetting || this.firstWrong() <= this.fingerColumn) return -1;
    this.budget += this.grant;
    return 1;
  }

  submit() {
    const right = this.resetting
      ? this.signpost === 0
      : this.signpost === this.digitIndex && this.firstWrong() === this.columns;
    if (right && this.resetting) this.budget += this.grant;
    this.nextSymbol();
    return right ? 1 : -1;
  }

  nextSymbol() {
    if (this.resetting) {
      if (this.endAfterReset !== End.NONE) this.end = this.endAfterReset;
      else this.showDigit(0);
    } else if (this.digitIndex + 1 < this.operand.length) {
      this.showDigit(this.digitIndex + 1);
    } else {
      this.chooseOperation();
      this.digitIndex = null;
      this.symbol = this.base + this.operation;
    }
  }

  /** Choose the operation of the next symbol; its first operand is the value shown now. */
  chooseOperation() {
    this.endAfterReset = End.NONE;
    if (this.nextInProgram === this.program.length) {
      this.operation = 0;
      this.endAfterReset = End.EXPRESSION;
    } else {
      const { subtract, digits } = this.program[this.nextInProgram];
      this.nextInProgram += 1;
      this.operation = subtract ? 1 : 0;
      this.operand = digits;
      if (!this.fits()) this.endAfterReset = End.CAPACITY;
    }
    this.target.set(this.digits);
  }

  /** Whether the result is neither below zero nor too large. */
  fits() {
    let carry = 0;
    for (let column = 0; column < this.columns; column += 1) {
      if (column >= this.operand.length && carry === 0) return true;
      const amount = carry + (this.operand[column] ?? 0);
      const digit = this.digits[column];
      carry = (this.operation === 0 ? digit + amount >= this.base : digit < amount) ? 1 : 0;
    }
    return carry === 0;
  }

  /** Make a digit of the operand the symbol, and add it to the target. */
  showDigit(index) {
    this.digitIndex = index;
    this.symbol = this.operand[index];
    let amount = this.symbol;
    for (let column = index; amount > 0 && column < this.columns; column += 1) {
      const digit = this.target[column] + (this.operation === 0 ? amount : -amount);
      amount = digit < 0 || digit >= this.base ? 1 : 0;
      this.target[column] = (digit + this.base) % this.base;
    }
  }

  /** The lowest column that differs from the target, or the number of columns. */
  firstWrong() {
    const { digits, target, columns } = this;
    let column = 0;
    while (column < columns && digits[column] === target[column]) column += 1;
    return column;
  }

  /** The frame as a number; see abacus/observation.py. */
  frameCode() {
    const column = this.fingerColumn;
    const left = column > 0 ? this.digits[column - 1] : this.base;
    let signpost = SIGNPOST_UNSEEN;
    if (this.signpost === column) signpost = SIGNPOST_IN_RIGHT;
    else if (this.signpost === column - 1) signpost = SIGNPOST_IN_LEFT;
    const cells = (left * this.base + this.digits[column]) * this.base + this.fingerRow;
    return (cells * ENCODING_PERIOD + (column % ENCODING_PERIOD)) * SIGNPOST_PLACES + signpost;
  }
}

function decodeFrame(base, code) {
  const take = (radix) => {
    const part = code % radix;
    code = (code - part) / radix;
    return part;
  };
  const signpost = take(SIGNPOST_PLACES), phase = take(ENCODING_PERIOD), row = take(base);
  const right = take(base);
  return { left: code, right, row, phase, signpost, leftIsPadding: code === base };
}

/** The steps granted at the start and for each right slide and reset; see abacus/rules.py. */
function stepBudget(base, columns, program) {
  const longest = Math.max(...program.map(({ digits }) => digits.length));
  const toLeadingDigit = 3 * longest + base - 3;
  return Math.max(
    32, Math.ceil((32 * columns) / 10), toLeadingDigit, toLeadingDigit + columns - 3, columns + longest,
  );
}

/** The expert's action in any state; see oracle/expert.py. */
function expertAction(abacus) {
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

/** The finger's target while a digit is shown; `row` is null where any row will do. */
function fingerGoal(abacus) {
  const index = abacus.digitIndex, wrong = abacus.firstWrong();
  if (wrong < abacus.columns && (wrong <= index || abacus.signpost === index)) {
    return { column: wrong, row: abacus.target[wrong] };
  }
  return { column: abacus.signpost === index ? index + 1 : index, row: null };
}
