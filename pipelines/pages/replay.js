// Replays recorded operations. It applies recorded changes and contains no rules of the abacus.

/** The order of a step's numbers; see pipelines/scoring/protocol.py. */
const STEP_FIELDS = [
  "action", "fingerColumn", "fingerRow", "signpost", "symbol", "operation", "changed", "digit",
  "firstShown", "wrong", "teacher",
];

class Replay extends Playback {
  constructor(root, records) {
    super();
    Object.assign(this, { root, records });
    this.drawing = new AbacusDrawing(this.part("abacus"));
    for (const [number, record] of records.entries()) {
      const option = document.createElement("option"), { title, cut, right } = record;
      option.textContent = `${number + 1}. ${title}  ${cut ? "(cut)" : right ? "✓ right" : "✗ wrong"}`;
      this.part("choose").append(option);
    }
    this.part("speed").max = SPEEDS.length - 1;
    this.choose(0);
    this.setSpeed(DEFAULT_SPEED);
    this.listen();
  }

  get last() { return this.moments.length - 1; }
  get finished() { return true; }

  part(name) { return this.root.querySelector(`[data-part="${name}"]`); }

  listen() {
    const onClick = (name, act) => this.part(name).addEventListener("click", act);
    for (const [name, key] of [["first", "Home"], ["back", "ArrowLeft"], ["play", " "], ["forward", "ArrowRight"], ["last", "End"], ["mistake", "m"]]) {
      onClick(name, () => this.pressKey(key));
    }
    this.part("choose").addEventListener("change", (event) => this.choose(event.target.selectedIndex));
    this.part("scrub").addEventListener("input", (event) => this.stopAt(Number(event.target.value)));
    this.part("speed").addEventListener("input", (event) => this.setSpeed(Number(event.target.value)));
    this.root.addEventListener("keydown", (event) => {
      // Buttons, sliders and lists have keys of their own.
      const own = event.target.matches("input, select") || (event.target.matches("button") && event.key === " ");
      if (own || event.ctrlKey || event.metaKey || event.altKey) return;
      if (this.pressKey(event.key)) event.preventDefault();
    });
    new ResizeObserver(() => this.show()).observe(this.part("stage"));
  }

  pressKey(key) {
    const { length } = this.records;
    if (key === "n") this.choose((this.number + 1) % length);
    else if (key === "p") this.choose((this.number + length - 1) % length);
    else if (key === "m") this.nextMistake();
    else return super.pressKey(key);
    return true;
  }

  choose(number) {
    this.number = number;
    this.record = this.records[number];
    this.moments = momentsOf(this.record);
    this.part("choose").selectedIndex = number;
    this.part("scrub").max = this.last;
    this.part("mistake").hidden = !this.moments.some(({ wrong }) => wrong);
    this.root.dataset.operation = number;
    this.stopAt(0);
  }

  /** Stop at the next wrong step, or at the first one after the last. */
  nextMistake() {
    const next = this.moments.findIndex(({ wrong }, index) => wrong && index > this.index);
    const mistake = next >= 0 ? next : this.moments.findIndex(({ wrong }) => wrong);
    if (mistake >= 0) this.stopAt(mistake);
  }

  show() {
    const { record, index } = this, moment = this.moments[index];
    this.drawing.fit(record.base, record.columns, this.part("stage").clientWidth);
    this.drawing.show(moment, moment.digits);
    this.showStep(moment);
    this.showOutcome();
    this.part("scrub").value = index;
    this.root.dataset.step = index;
  }

  showStep({ symbol, operation, action, wrong, teacher, digits }) {
    const { base } = this.record, resetting = symbol >= base, name = OPERATION_WORDS[operation];
    this.part("symbol").textContent = resetting ? "+−"[operation] : symbol;
    this.part("symbol").className = `symbol ${resetting ? name : ""}`;
    this.part("meaning").textContent = `${resetting ? "reset, then" : "digit read,"} ${name}`;
    this.part("action").textContent = action < 0 ? "start" : ACTION_WORDS[action];
    this.part("action").classList.toggle("wrong", Boolean(wrong));
    this.part("teacher").textContent = wrong ? `wrong (the teacher: ${ACTION_WORDS[teacher]})` : "";
    this.part("step").textContent = `step ${this.index} of ${this.last}`;
    const decimal = withSeparators(valueOf(digits, base).toString());
    this.part("value").textContent = `${numeralOf(digits)} (decimal ${decimal})`;
  }

  showOutcome() {
    const { cut, right, truth, output } = this.record, outcome = this.part("outcome");
    const done = this.index === this.last;
    outcome.className = done && !cut ? (right ? "right" : "wrong") : "";
    if (!done) outcome.textContent = "";
    else if (cut) outcome.textContent = "the record ends here";
    else outcome.textContent = right ? `right: ${truth}` : `wrong: shows ${output}, truth ${truth}`;
  }

  showPlaying() {
    this.root.dataset.playing = this.playing;
    this.part("play").textContent = this.playing ? "❚❚ Pause" : "▶ Play";
    this.part("play").setAttribute("aria-pressed", this.playing);
  }

  showSpeed() {
    this.root.dataset.speed = this.speed;
    this.part("speed").value = this.level;
    this.part("speed-text").textContent = `${this.speed} steps/s`;
  }
}

/** The steps by the names of their fields, each with the digits that the abacus then shows. */
function momentsOf({ start, steps }) {
  const digits = start.slice();
  return steps.map((numbers) => {
    const step = Object.fromEntries(STEP_FIELDS.map((name, index) => [name, numbers[index]]));
    if (step.changed >= 0) digits[step.changed] = step.digit;
    return { ...step, digits: digits.slice() };
  });
}

new Replay(document.getElementById("replay"), JSON.parse(document.getElementById("replay-data").textContent));
