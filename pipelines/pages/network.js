// The players: trained networks (linear layers with ReLU, applied to an observation) and the teacher.

class Network {
  /** The argument is written into the page by pipelines/showing/page.py. */
  constructor({ name, kind, about, network, base, frames, layers, weights, logit_bound: bound }) {
    Object.assign(this, { name, kind, about, base, frames, bound });
    this.inputs = network === "compact" ? this.pixels : this.contents;
    const bytes = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
    const numbers = new Float32Array(bytes.buffer);
    let place = 0;
    const take = (count) => numbers.subarray(place, (place += count));
    this.layers = layers.map(([inputs, outputs]) => ({
      inputs, outputs, weights: take(inputs * outputs), biases: take(outputs),
    }));
    this.weightCount = place;
    this.cache = new Map();
  }

  get title() { return this.kind[0].toUpperCase() + this.kind.slice(1); }

  get facts() {
    return `The ${this.kind}${this.name ? ` “${this.name}”` : ""} is a network with ` +
      `${this.layers.length - 1} hidden layers and ${this.weightCount.toLocaleString("en")} weights. ` +
      `${this.about} It sees two columns through the yellow window and remembers only the last ` +
      `${this.frames} frames. It knows nothing about numbers: all arithmetic happens on the beads.`;
  }

  /** The probability of each action; 0 for illegal ones. */
  probabilities(abacus) {
    const logits = this.cachedLogits(abacus);
    const legal = abacus.legalActions();
    const largest = Math.max(...logits.filter((_, action) => legal[action]));
    const shares = logits.map((logit, action) => (legal[action] ? Math.exp(logit - largest) : 0));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares.map((share) => share / total);
  }

  /** The logits of an observation, cached. */
  cachedLogits({ history, symbol, operation }) {
    const key = `${history.join()},${symbol},${operation}`;
    let logits = this.cache.get(key);
    if (logits === undefined) {
      logits = this.logits(this.inputs(history, symbol, operation));
      this.cache.set(key, logits);
    }
    return logits;
  }

  /** One-hot contents of the frames, the symbol, the operation; see OneHotNetwork in networks.py. */
  contents(history, symbol, operation) {
    const { base } = this;
    const parts = [];
    for (const code of history) {
      const frame = decodeFrame(base, code);
      parts.push([base + 1, frame.leftIsPadding ? base : frame.left], [base, frame.right]);
      parts.push([base, frame.row], [ENCODING_PERIOD, frame.phase]);
      const places = [SIGNPOST_IN_LEFT, SIGNPOST_IN_RIGHT];
      parts.push([3, places.includes(frame.signpost) ? places.indexOf(frame.signpost) : 2]);
    }
    parts.push([base + 2, symbol], [2, 1 - operation]);
    return parts.flatMap(([length, place]) => Array.from({ length }, (_, k) => (k === place ? 1 : 0)));
  }

  /** The pixels of the frames, the symbol, the operation. */
  pixels(history, symbol, operation) {
    const pixels = 4 * (this.base + 1);
    const row = new Float64Array(this.frames * pixels + this.base + 3);
    history.forEach((code, frame) => this.drawFrame(row, frame * pixels, code));
    row[this.frames * pixels + symbol] = 1;
    row[row.length - 1] = operation;
    return row;
  }

  /** Write the beads of both columns, then finger and signpost; see abacus/observation.py. */
  drawFrame(row, start, code) {
    const rows = this.base + 1;
    const frame = decodeFrame(this.base, code);
    const drawColumn = (place, digit, phase) => {
      row[place] = (phase + 1) / (ENCODING_PERIOD + 1);
      for (let k = 0; k < this.base; k += 1) row[place + 1 + k] = k === digit ? 0 : 1;
    };
    if (!frame.leftIsPadding) drawColumn(start, frame.left, (frame.phase + 2) % ENCODING_PERIOD);
    drawColumn(start + rows, frame.right, frame.phase);
    row[start + 3 * rows + 1 + frame.row] = 1;
    if (frame.signpost === SIGNPOST_IN_LEFT) row[start + 2 * rows] = 1;
    if (frame.signpost === SIGNPOST_IN_RIGHT) row[start + 3 * rows] = 1;
  }

  logits(row) {
    let values = row;
    this.layers.forEach((layer, index) => {
      values = applyLayer(layer, values, index + 1 < this.layers.length);
    });
    return Array.from(values, (value) => this.bound * Math.tanh(value / this.bound));
  }
}

/** The reference algorithm as a player: it takes the expert's action with probability 1. */
class Teacher {
  constructor({ base, frames }) { Object.assign(this, { name: "", base, frames }); }

  get title() { return "Teacher"; }

  get facts() {
    return "The teacher is no network but a program: it compares the abacus with what it should show, " +
      "and always makes the right move. The networks learned from it, or from the reward for right moves.";
  }

  probabilities(abacus) {
    const action = expertAction(abacus);
    return ACTION_WORDS.map((_, each) => (each === action ? 1 : 0));
  }
}

function applyLayer({ inputs, outputs, weights, biases }, values, rectified) {
  const results = new Float64Array(outputs);
  // Many inputs are 0 and are skipped.
  const active = [];
  for (let k = 0; k < inputs; k += 1) if (values[k] !== 0) active.push(k);
  for (let out = 0; out < outputs; out += 1) {
    const start = out * inputs;
    let sum = biases[out];
    for (const k of active) sum += weights[start + k] * values[k];
    results[out] = rectified && sum < 0 ? 0 : sum;
  }
  return results;
}

function mostProbable(probabilities) {
  return probabilities.indexOf(Math.max(...probabilities));
}
