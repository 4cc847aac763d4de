// A game with its past: every moment can be shown again, and played on from.

class Game {
  constructor(plan, network) {
    this.plan = plan;
    this.network = network;
    this.moments = [];
    this.visitorPlayed = false;
    this.startOver();
  }

  startOver() {
    const { base, frames } = this.network;
    const { columns, program } = this.plan;
    this.abacus = new Abacus({ base, frames, columns, program, patient: this.visitorPlayed });
    this.moments.length = 0;
    this.shownDigits = new Uint8Array(columns);
    this.shownIndex = 0;
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

  /** Takes a step at the end of what is known. */
  play(action) {
    const moment = this.moments[this.last], a = this.abacus;
    moment.action = action;
    if (action === Action.SLIDE && a.isLegal(action)) {
      moment.slid = { column: a.fingerColumn, from: a.digits[a.fingerColumn], to: a.fingerRow };
    }
    moment.outcome = a.step(action);
    this.remember();
  }

  playNetwork() { this.play(likeliest(this.moments[this.last].probabilities)); }

  /** What the columns show at a moment; the next call may change the array that it returns. */
  digitsAt(index) {
    for (; this.shownIndex < index; this.shownIndex += 1) {
      const { slid } = this.moments[this.shownIndex];
      if (slid) this.shownDigits[slid.column] = slid.to;
    }
    for (; this.shownIndex > index; this.shownIndex -= 1) {
      const { slid } = this.moments[this.shownIndex - 1];
      if (slid) this.shownDigits[slid.column] = slid.from;
    }
    return this.shownDigits;
  }

  /** Forgets what comes after a moment: the same actions lead there again. */
  goBackTo(index) {
    if (index === this.last) return;
    const actions = this.moments.slice(0, index).map(({ action }) => action);
    const kept = this.moments.slice(0, index + 1);
    const digits = this.digitsAt(index).slice();
    this.startOver();
    actions.forEach((action) => this.abacus.step(action));
    this.moments = kept;
    Object.assign(kept[index], { action: null, slid: null, outcome: 0 });
    this.shownDigits = digits;
    this.shownIndex = index;
  }

  /** From now on a visitor plays, who may take any number of steps. */
  handOver() {
    this.visitorPlayed = true;
    this.abacus.budget = Infinity;
  }
}
