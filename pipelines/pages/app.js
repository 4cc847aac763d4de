// The play page: its input, its controls and everything that it shows.

/** Milliseconds of computing ahead at a time, so that the page stays responsive. */
const SLICE = 10;
/** An abacus with more columns has its values in a small font, on several lines. */
const LONG_VALUE = 20;
const VISITOR_KEYS = {
  ArrowLeft: Action.LEFT, ArrowRight: Action.RIGHT, ArrowUp: Action.UP, ArrowDown: Action.DOWN,
  ",": Action.SIGNPOST_LEFT, ".": Action.SIGNPOST_RIGHT, " ": Action.SLIDE, Enter: Action.SUBMIT,
};
const byId = (id) => document.getElementById(id);

class App extends Playback {
  constructor(policy) {
    super();
    this.network = new Network(policy);
    this.drawing = new AbacusDrawing(byId("abacus"));
    this.windowPanel = new WindowPanel(byId("frames"), byId("symbols"), this.network);
    this.choices = new ProbabilityPanel(byId("choices"));
    this.visiting = false;
    this.hint = null;
    this.describe(policy);
    this.listen();
    byId("speed").max = SPEEDS.length - 1;
    this.setSpeed(DEFAULT_SPEED);
    this.start(byId("expression").value, false);
  }

  describe(policy) {
    const { base } = this.network;
    byId("base").textContent = base;
    byId("digit-range").textContent = `0 to ${base - 1}, since the abacus counts in base ${base}`;
    byId("network-facts").textContent =
      `It has ${this.network.layers.length - 1} hidden layers with ${this.network.weightCount.toLocaleString("en")} ` +
      `weights, trained on demonstrations of a teacher. ${policy.about}`;
  }

  listen() {
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.start(byId("expression").value, true)) byId("expression").blur();
    });
    for (const button of document.querySelectorAll(".examples button")) {
      button.addEventListener("click", () => this.tryExample(button.dataset));
    }
    byId("first").addEventListener("click", () => this.stopAt(0));
    byId("back").addEventListener("click", () => this.stopAt(this.index - 1));
    byId("forward").addEventListener("click", () => this.stepForward());
    byId("end").addEventListener("click", () => this.toTheEnd());
    byId("play").addEventListener("click", () => this.togglePlaying());
    byId("speed").addEventListener("input", (event) => this.setSpeed(Number(event.target.value)));
    byId("scrubber").addEventListener("input", (event) => this.stopAt(Number(event.target.value)));
    byId("network-plays").addEventListener("click", () => this.letNetworkPlay());
    byId("you-play").addEventListener("click", () => this.letVisitorPlay());
    byId("hint").addEventListener("click", () => this.giveHint());
    byId("undo").addEventListener("click", () => this.undo());
    for (const button of document.querySelectorAll("[data-action]")) {
      button.addEventListener("click", () => this.visitorActs(Number(button.dataset.action)));
    }
    document.addEventListener("keydown", (event) => this.onKey(event));
    // A clicked button gives up the focus, so that keys control the game; a tabbed one keeps it.
    document.addEventListener("click", (event) => {
      if (event.detail > 0) event.target.closest("button, input[type=range]")?.blur();
    });
    new ResizeObserver(() => this.show()).observe(byId("abacus").parentElement);
  }

  tryExample({ expression, length }) {
    byId("expression").value = expression ?? `${randomNumber(Number(length))}+${randomNumber(Number(length))}`;
    this.start(byId("expression").value, true);
  }

  /** Start with an expression; report an invalid one and return false. */
  start(typed, playing) {
    const input = byId("expression"), problem = byId("problem");
    let plan;
    try {
      plan = readExpression(typed, this.network.base);
    } catch (error) {
      problem.textContent = error.message;
      input.setAttribute("aria-invalid", "true");
      return false;
    }
    problem.textContent = "";
    input.removeAttribute("aria-invalid");
    this.game = new Game(plan, this.network);
    this.hint = null;
    if (this.visiting) this.game.removeStepLimit();
    this.message("The first number is added to 0.");
    this.goTo(0);
    this.setPlaying(playing && !this.visiting);
    this.computeAhead();
    return true;
  }

  /** Let the network play in the background, so that its whole game can be scrubbed. */
  computeAhead() {
    clearTimeout(this.ahead);
    if (this.visiting || this.game.over) return;
    const until = performance.now() + SLICE;
    while (!this.game.over && performance.now() < until) this.game.playNetwork();
    this.showPosition();
    this.ahead = setTimeout(() => this.computeAhead(), 0);
  }

  get last() { return this.game.last; }
  get finished() { return this.game.over || this.visiting; }

  goTo(index) {
    this.hint = null;
    super.goTo(index);
  }

  stopAt(index) {
    super.stopAt(index);
    this.announce();
  }

  stepForward() {
    if (this.index === this.last && !this.finished) this.game.playNetwork();
    super.stepForward();
  }

  toTheEnd() {
    while (!this.finished) this.game.playNetwork();
    super.toTheEnd();
  }

  showPlaying() { byId("play").textContent = this.playing ? "Pause" : "Play"; }

  showSpeed() {
    byId("speed").value = this.level;
    byId("pace").textContent = `${this.speed} steps/s`;
    byId("speed").setAttribute("aria-valuetext", `${this.speed} steps per second`);
  }

  letNetworkPlay() {
    if (!this.visiting) return;
    this.setMode(false);
    this.game.goBackTo(this.index);
    this.setPlaying(true);
    this.computeAhead();
  }

  letVisitorPlay() {
    if (this.visiting) return;
    this.setPlaying(false);
    clearTimeout(this.ahead);
    this.setMode(true);
    this.game.removeStepLimit();
    // A finished game starts over.
    if (this.game.moments[this.index].end !== End.NONE) this.goTo(0);
    this.game.goBackTo(this.index);
    this.message("Your turn. Ask for a hint when you are lost.");
    this.show();
    byId("symbol").scrollIntoView({ block: "nearest" });
  }

  setMode(visiting) {
    this.visiting = visiting;
    this.hint = null;
    byId("pad").hidden = !visiting;
    byId("playback").hidden = visiting;
    byId("network-plays").setAttribute("aria-pressed", String(!visiting));
    byId("you-play").setAttribute("aria-pressed", String(visiting));
  }

  visitorActs(action) {
    const { game } = this;
    if (game.moments[this.index].end !== End.NONE) return this.message("The game is over: undo, or compute another expression.");
    game.goBackTo(this.index);
    if (!game.abacus.isLegal(action)) return this.message(`Illegal: ${ILLEGAL_REASONS[action]}.`);
    game.play(action);
    const wrong = game.moments[this.index].outcome < 0;
    this.goTo(this.index + 1);
    this.message(wrong ? `That ${ACTION_WORDS[action]} was wrong. Undo it, or ask for a hint.` : `Done: ${ACTION_WORDS[action]}.`);
    return undefined;
  }

  giveHint() {
    if (this.game.moments[this.index].end !== End.NONE) return;
    this.game.goBackTo(this.index);
    this.hint = expertAction(this.game.abacus);
    this.message(`The teacher's action: ${ACTION_WORDS[this.hint]}.`);
    this.show();
  }

  undo() {
    if (this.index > 0) this.goTo(this.index - 1);
    this.message(this.index > 0 ? "Undid one step." : "This is the start.");
  }

  message(text) { byId("message").textContent = text; }

  onKey(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("input")) return;
    if (target.matches("button") && (event.key === " " || event.key === "Enter")) return;
    const done = this.visiting ? this.visitorKey(event.key) : this.pressKey(event.key);
    if (done) event.preventDefault();
  }

  visitorKey(key) {
    if (key in VISITOR_KEYS) this.visitorActs(VISITOR_KEYS[key]);
    else if (key === "h" || key === "?") this.giveHint();
    else if (key === "Backspace") this.undo();
    else return false;
    return true;
  }

  show() {
    if (!this.game) return;
    const { game, index } = this, moment = game.moments[index], digits = game.digitsAt(index);
    this.drawing.fit(this.network.base, game.plan.columns, byId("abacus").parentElement.clientWidth);
    this.drawing.show(moment, digits);
    this.windowPanel.show(moment);
    this.showReading(moment);
    this.showValues(digits);
    this.showChoices(moment);
    this.showVerdict(moment, digits);
    this.showPosition();
  }

  showReading(moment) {
    const { base } = this.network, resetting = moment.symbol >= base;
    const name = OPERATION_WORDS[moment.operation];
    const tile = byId("symbol"), badge = byId("operation");
    tile.textContent = resetting ? "+−"[moment.operation] : moment.symbol;
    tile.className = `tile ${resetting ? name : ""}`;
    badge.textContent = this.operationText(moment);
    badge.className = `badge ${name}`;
    badge.hidden = moment.operationIndex === null;
    byId("meaning").textContent = this.meaning(moment);
    byId("step").textContent = `step ${this.index.toLocaleString("en")}`;
    const before = this.game.moments[this.index - 1];
    byId("action").textContent = before ? ACTION_WORDS[before.action] : "start";
  }

  meaning(moment) {
    if (moment.operationIndex === null) return "reset, then the end";
    if (moment.digitIndex === null) return "reset";
    return `digit ${moment.digitIndex + 1} of ${moment.operandLength}`;
  }

  operationText(moment) {
    if (moment.operationIndex === null) return "";
    const { subtract, number } = this.game.plan.program[moment.operationIndex];
    const short = shortNumber(number, 9);
    if (moment.digitIndex === null) return `then ${subtract ? "−" : "+"}${short}`;
    return `${OPERATION_WORDS[Number(subtract)]} ${short}`;
  }

  showValues(digits) {
    const value = valueOf(digits, this.network.base).toString();
    for (const [id, text] of [["value-base", numeralOf(digits)], ["value-decimal", withSeparators(value)]]) {
      byId(id).textContent = text;
      // Depends on the width, not on the value: the page must not jump while the value grows.
      byId(id).classList.toggle("long", this.game.plan.columns > LONG_VALUE);
    }
  }

  showChoices(moment) {
    const veiled = this.visiting && this.hint === null;
    byId("choices").classList.toggle("veiled", veiled);
    byId("choices").setAttribute("aria-hidden", String(veiled));
    byId("wants-title").textContent = this.visiting ? "What it would do here" : "What it does next";
    byId("wants-note").textContent = veiled
      ? "Hidden while you play: ask for a hint."
      : "It takes the most probable action; illegal actions are masked.";
    const { probabilities } = moment;
    this.choices.show(veiled ? null : probabilities, veiled || !probabilities ? null : mostProbable(probabilities));
    for (const button of document.querySelectorAll("[data-action]")) {
      button.classList.toggle("hinted", Number(button.dataset.action) === this.hint);
    }
  }

  /** Show the next action, or the result. */
  showVerdict(moment, digits) {
    const line = byId("verdict");
    if (moment.end === End.NONE) {
      line.className = "verdict";
      line.textContent = this.nextText(moment);
      return;
    }
    const { truth, text } = this.game.plan;
    const correct = moment.end === End.EXPRESSION && valueOf(digits, this.network.base) === truth;
    const sum = `${shortNumber(text, 60)} = ${shortNumber(withSeparators(truth.toString()), 60)}`;
    line.className = `verdict ${correct ? "right" : "wrong"}`;
    line.textContent = correct
      ? `Correct in ${this.index.toLocaleString("en")} steps: ${sum}`
      : `${moment.end === End.BUDGET ? "Out of steps" : "Wrong"}: the correct result is ${sum}`;
  }

  nextText({ probabilities }) {
    if (this.visiting) return "Next: your move";
    const action = mostProbable(probabilities);
    return `Next: ${ACTION_WORDS[action]}, ${percent(probabilities[action])}`;
  }

  showPosition() {
    const { last } = this.game, scrubber = byId("scrubber");
    scrubber.max = last;
    scrubber.value = this.index;
    byId("position").textContent = `${this.index.toLocaleString("en")} / ${last.toLocaleString("en")}`;
    byId("first").disabled = byId("back").disabled = this.index === 0;
    byId("forward").disabled = this.index === last && (this.finished);
  }

  /** Describe the moment to screen readers, but not while playing: texts would pile up. */
  announce() {
    const moment = this.game.moments[this.index];
    byId("announcer").textContent =
      `Step ${this.index}: ${this.meaning(moment)} ${this.operationText(moment)}. ${byId("verdict").textContent}`;
  }
}

function randomNumber(length) {
  return Array.from({ length }, (_, k) => Math.floor(Math.random() * (k ? 10 : 9)) + (k ? 0 : 1)).join("");
}

const app = new App(JSON.parse(byId("policy").textContent));
