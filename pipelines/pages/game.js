// A game with its history: any moment can be shown again, or resumed from.

class Game {
  constructor(plan, network) {
    this.plan = plan;
    this.network = network;
    this.moments = [];
    this.unlimited = false;
    this.startOver();
  }

  startOver() {
    const { base, frames } = this.network;
    const { columns, program } = this.plan;
    this.abacus = new Abacus({ base, frames, columns, program, unlimited: this.unlimited });
    this.moments.length = 0;
    this.currentDigits = new Uint8Array(columns);
    this.currentIndex = 0;
    this.remember();
  }

  get last() { return this.moments.length - 1; }
  get over() { return this.abacus.over; }

  remember() {
    const a = this.abacus;
    this.moments.push({
      fingerColumn: a.fingerColumn, fingerRow: a.fingerRow, signpost: a.signpost,
      symbol: a.symbol, operation: a.operation, digitIndex: a.digitIndex,
      operationIndex: a.endAfterReset === End.EXPRESSION ? null : a.nextInProgram - 1,
      operandLength: a.operand.length, history: a.history.slice(), end: a.end,
      probabilities: a.over ? null : this.network.probabilities(a),
      action: null, slid: null, outcome: 0,
    });
  }

  /** Take a step at the end of the history. */
  play(action) {
    const moment = this.moments[this.last], a = this.abacus;
    moment.action = action;
    if (action === Action.SLIDE && a.isLegal(action)) {
      moment.slid = { column: a.fingerColumn, from: a.digits[a.fingerColumn], to: a.fingerRow };
    }
    moment.outcome = a.step(action);
    this.remember();
  }

  playNetwork() { this.play(mostProbable(this.moments[this.last].probabilities)); }

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
    if (index === this.last) return;
    const actions = this.moments.slice(0, index).map(({ action }) => action);
    const kept = this.moments.slice(0, index + 1);
    const digits = this.digitsAt(index).slice();
    this.startOver();
    actions.forEach((action) => this.abacus.step(action));
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
}
