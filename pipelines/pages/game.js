// A game with its history: any moment can be shown again, or resumed from.

/** The end of a moment after which the player would repeat itself for ever. */
const REPEATS = "REPEATS";

class Game {
  constructor(plan, player) {
    this.plan = plan;
    this.player = player;
    this.moments = [];
    this.unlimited = false;
    this.startOver();
  }

  startOver() {
    const { base, frames } = this.player;
    const { columns, program } = this.plan;
    this.abacus = new Abacus({ base, frames, columns, program, unlimited: this.unlimited });
    this.moments.length = 0;
    this.currentDigits = new Uint8Array(columns);
    this.currentIndex = 0;
    this.seen = new Set();
    this.repeats = false;
    this.previousAction = null;
    this.remember();
  }

  get last() { return this.moments.length - 1; }
  get over() { return this.abacus.over || this.repeats; }

  /** Whether the game ended with the right value. */
  get solved() {
    const { abacus } = this;
    return abacus.end === End.EXPRESSION && valueOf(abacus.digits, abacus.base) === this.plan.truth;
  }

  remember() {
    const a = this.abacus, probabilities = this.over ? null : this.player.probabilities(a);
    this.moments.push({
      fingerColumn: a.fingerColumn, fingerRow: a.fingerRow, signpost: a.signpost,
      symbol: a.symbol, operation: a.operation, digitIndex: a.digitIndex,
      operationIndex: a.endAfterReset === End.EXPRESSION ? null : a.nextInProgram - 1,
      operandLength: a.operand.length, history: a.history.slice(),
      end: this.repeats ? REPEATS : a.end, probabilities,
      why: probabilities ? explanationOf(a, mostProbable(probabilities)) : "",
      action: null, slid: null, outcome: 0,
    });
  }

  /** Take a step at the end of the history. */
  play(action) {
    this.act(action);
    this.remember();
  }

  act(action) {
    const moment = this.moments[this.last], a = this.abacus;
    moment.action = action;
    if (action === Action.SLIDE && a.isLegal(action)) {
      moment.slid = { column: a.fingerColumn, from: a.digits[a.fingerColumn], to: a.fingerRow };
    }
    moment.outcome = a.step(action);
    this.previousAction = action;
  }

  /** Let the player take a step; the game is over at the first state that returns. */
  advance() {
    this.seen.add(this.stateKey());
    const action = mostProbable(this.moments[this.last].probabilities);
    this.act(action);
    // The symbols never come again: no state of an earlier symbol can return.
    if (action === Action.SUBMIT) this.seen.clear();
    this.repeats = !this.abacus.over && this.seen.has(this.stateKey());
    this.remember();
  }

  /** All that the next steps depend on while a symbol is shown, save the steps that are left. */
  stateKey() {
    const { history, fingerColumn, signpost, digits } = this.abacus;
    return [this.previousAction, fingerColumn, signpost, ...history, digits.join("")].join();
  }

  /** The digits at a moment, in an array that the next call reuses. */
  digitsAt(index) {
    for (; this.currentIndex < index; this.currentIndex += 1) {
      const { slid } = this.moments[this.currentIndex];
      if (slid) this.currentDigits[slid.column] = slid.to;
    }
    for (; this.currentIndex > index; this.currentIndex -= 1) {
      const { slid } = this.moments[this.currentIndex - 1];
      if (slid) this.currentDigits[slid.column] = slid.from;
    }
    return this.currentDigits;
  }

  /** Discard the moments after `index`, and bring the abacus there by the same actions. */
  goBackTo(index) {
    this.seen.clear();
    if (index === this.last && !this.repeats) return;
    const actions = this.moments.slice(0, index).map(({ action }) => action);
    const kept = this.moments.slice(0, index + 1);
    const digits = this.digitsAt(index).slice();
    this.startOver();
    actions.forEach((action) => this.abacus.step(action));
    this.previousAction = actions.at(-1) ?? null;
    this.moments = kept;
    Object.assign(kept[index], { action: null, slid: null, outcome: 0 });
    this.currentDigits = digits;
    this.currentIndex = index;
  }

  /** Remove the step budget, for a visitor who plays. */
  removeStepLimit() {
    this.unlimited = true;
    this.abacus.budget = Infinity;
  }

  /** What the symbol of a moment is. */
  meaning({ operationIndex, digitIndex, operandLength }) {
    if (operationIndex === null) return "reset, then the end";
    if (digitIndex === null) return "reset";
    return `digit ${digitIndex + 1} of ${operandLength}`;
  }

  /** The operation of a moment's symbol, empty after the last one. */
  operationText({ operationIndex, digitIndex }) {
    if (operationIndex === null) return "";
    const { subtract, number } = this.plan.program[operationIndex];
    const short = shortNumber(number, 9);
    if (digitIndex === null) return `then ${subtract ? "−" : "+"}${short}`;
    return `${OPERATION_WORDS[Number(subtract)]} ${short}`;
  }

  /** The result of a finished game in a sentence. */
  verdict(index, end) {
    const { truth, text } = this.plan;
    const sum = `${shortNumber(text, 60)} = ${shortNumber(withSeparators(truth.toString()), 60)}`;
    const steps = index.toLocaleString("en");
    if (this.solved) return `Correct in ${steps} steps: ${sum}`;
    const failure = { [End.BUDGET]: "Out of steps", [REPEATS]: `Repeats itself for ever after ${steps} steps` };
    return `${failure[end] ?? "Wrong"}: the correct result is ${sum}`;
  }
}
