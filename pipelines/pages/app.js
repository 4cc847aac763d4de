// The play page: its input, its controls and everything that it shows.

/** Milliseconds of computing ahead at a time, so that the page stays responsive. */
const SLICE = 10;
/** An abacus with more columns has its values in a small font, on several lines. */
const LONG_VALUE = 20;
/** A number with more digits is not written in both bases. */
const LONGEST_IN_BASE = 24;
/** Numbers of an expression that are written in both bases beside the compared players. */
const MOST_IN_BASES = 4;
/** The level of SPEEDS at which explanations can be read. */
const EXPLAINING_SPEED = 0;
const VISITOR_KEYS = {
  ArrowLeft: Action.LEFT, ArrowRight: Action.RIGHT, ArrowUp: Action.UP, ArrowDown: Action.DOWN,
  ",": Action.SIGNPOST_LEFT, ".": Action.SIGNPOST_RIGHT, " ": Action.SLIDE, Enter: Action.SUBMIT,
};
const byId = (id) => document.getElementById(id);

/** How the page is used: a player computes, several are compared, or the visitor moves the finger. */
const Mode = Object.freeze({ WATCH: "watch", COMPARE: "compare", VISIT: "visit" });

class App extends Playback {
  constructor(networks) {
    super();
    this.players = playersOf(networks.map((data) => new Network(data)));
    this.drawing = new AbacusDrawing(byId("abacus"));
    this.choices = new ProbabilityPanel(byId("choices"));
    this.mode = Mode.WATCH;
    this.explaining = false;
    this.hint = null;
    this.listPlayers();
    this.setPlayer(0);
    this.listen();
    byId("speed").max = SPEEDS.length - 1;
    this.setSpeed(DEFAULT_SPEED);
    this.start(byId("expression").value, false);
  }

  get visiting() { return this.mode === Mode.VISIT; }
  get comparing() { return this.mode === Mode.COMPARE; }

  /** List the players, those of a base together. */
  listPlayers() {
    const groups = new Map();
    this.players.forEach((player, index) => {
      if (!groups.has(player.base)) {
        const group = document.createElement("optgroup");
        group.label = `base ${player.base}: counts in ${BASE_WORDS[player.base]}`;
        groups.set(player.base, group);
      }
      const option = document.createElement("option");
      option.value = index;
      option.textContent = `${player.title} (${player.name || `base ${player.base}`})`;
      groups.get(player.base).append(option);
    });
    byId("player").replaceChildren(...groups.values());
  }

  setPlayer(index) {
    this.player = this.players[index];
    byId("player").value = index;
    const { base, frames } = this.player;
    this.windowPanel = new WindowPanel(byId("frames"), byId("symbols"), this.player);
    byId("base").textContent = base;
    byId("in-base").hidden = base === 10;
    byId("digit-range").textContent =
      `0 to ${base - 1}, since ${countsIn(base)}`;
    byId("facts").textContent = this.player.facts;
    byId("frames-note").textContent = `A window of two columns, in its last ${frames} frames, and one symbol.`;
  }

  /** Let another player compute the same expression. */
  choosePlayer(index) {
    this.setPlayer(index);
    this.start(this.game.plan.text, this.playing);
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
    byId("player").addEventListener("change", (event) => this.choosePlayer(Number(event.target.value)));
    byId("watch").addEventListener("click", () => this.watch());
    byId("compare").addEventListener("click", () => this.compare());
    byId("you-play").addEventListener("click", () => this.letVisitorPlay());
    byId("explain").addEventListener("click", () => this.toggleExplaining());
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
    const resized = new ResizeObserver(() => this.show());
    for (const id of ["single", "lanes"]) resized.observe(byId(id));
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
      plan = readExpression(typed, this.player.base);
    } catch (error) {
      problem.textContent = error.message;
      input.setAttribute("aria-invalid", "true");
      return false;
    }
    problem.textContent = "";
    input.removeAttribute("aria-invalid");
    this.setGames(plan);
    this.hint = null;
    if (this.visiting) this.game.removeStepLimit();
    this.message("The first number is added to 0.");
    this.goTo(0);
    this.setPlaying(playing && !this.visiting);
    this.computeAhead();
    return true;
  }

  /** Begin a game of the player, and to compare one of each player of the same base. */
  setGames(plan) {
    const { player, comparing } = this;
    const playing = this.players.filter((each) => each === player || (comparing && each.base === player.base));
    this.games = playing.map((each) => new Game(plan, each));
    this.game = this.games[playing.indexOf(player)];
    this.comparison = this.comparing ? new Comparison(byId("lanes"), this.games) : null;
    byId("all-bases").textContent = basesText(plan.program, this.player.base);
  }

  /** Play in the background, so that whole games can be scrubbed. */
  computeAhead() {
    clearTimeout(this.ahead);
    if (this.finished) return;
    const until = performance.now() + SLICE;
    while (!this.finished && performance.now() < until) this.advance();
    if (this.comparing) this.show();
    else this.showPosition();
    this.ahead = setTimeout(() => this.computeAhead(), 0);
  }

  /** Let every player whose game is not over take a step. */
  advance() {
    for (const game of this.games) if (!game.over) game.advance();
  }

  get last() { return Math.max(...this.games.map((game) => game.last)); }
  get finished() { return this.visiting || this.games.every((game) => game.over); }

  goTo(index) {
    this.hint = null;
    super.goTo(index);
    // At the speed of explanations there is time to read each aloud.
    if (this.playing && this.explaining && this.level === EXPLAINING_SPEED) this.announce();
  }

  stopAt(index) {
    super.stopAt(index);
    this.announce();
  }

  stepForward() {
    if (this.index === this.last && !this.finished) this.advance();
    super.stepForward();
  }

  toTheEnd() {
    while (!this.finished) this.advance();
    super.toTheEnd();
  }

  showPlaying() { byId("play").textContent = this.playing ? "Pause" : "Play"; }

  showSpeed() {
    byId("speed").value = this.level;
    byId("pace").textContent = `${this.speed} steps/s`;
    byId("speed").setAttribute("aria-valuetext", `${this.speed} steps per second`);
  }

  /** Let the player compute; it continues a visitor's game. */
  watch() {
    if (this.mode === Mode.WATCH) return;
    const { visiting } = this;
    this.setMode(Mode.WATCH);
    if (!visiting) {
      this.start(this.game.plan.text, this.playing);
      return;
    }
    this.game.goBackTo(this.index);
    this.setPlaying(true);
    this.computeAhead();
  }

  /** Let all players of this base compute the expression side by side. */
  compare() {
    if (this.comparing) return;
    this.setMode(Mode.COMPARE);
    this.start(this.game.plan.text, true);
    byId("side-by-side").scrollIntoView({ block: "nearest" });
  }

  letVisitorPlay() {
    if (this.visiting) return;
    this.setPlaying(false);
    clearTimeout(this.ahead);
    this.setMode(Mode.VISIT);
    this.games = [this.game];
    this.game.removeStepLimit();
    // A finished game starts over.
    this.index = Math.min(this.index, this.game.last);
    if (this.game.moments[this.index].end !== End.NONE) this.goTo(0);
    this.game.goBackTo(this.index);
    this.message("Your turn. Ask for a hint when you are lost.");
    this.show();
    byId("symbol").scrollIntoView({ block: "nearest" });
  }

  setMode(mode) {
    this.mode = mode;
    this.hint = null;
    document.body.dataset.mode = mode;
    byId("pad").hidden = !this.visiting;
    byId("playback").hidden = this.visiting;
    byId("single").hidden = this.comparing;
    byId("side-by-side").hidden = !this.comparing;
    byId("explain").disabled = this.visiting;
    for (const [id, pressed] of [["watch", Mode.WATCH], ["compare", Mode.COMPARE], ["you-play", Mode.VISIT]]) {
      byId(id).setAttribute("aria-pressed", String(mode === pressed));
    }
  }

  /** Say why each move is made, at a speed at which that can be read. */
  toggleExplaining() {
    if (this.visiting) return;
    this.explaining = !this.explaining;
    byId("explain").setAttribute("aria-pressed", String(this.explaining));
    if (this.explaining) this.levelBefore = this.level;
    this.setSpeed(this.explaining ? EXPLAINING_SPEED : this.levelBefore);
    this.show();
    this.announce();
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
    const why = explanationOf(this.game.abacus, this.hint);
    this.message(`The teacher's action: ${ACTION_WORDS[this.hint]}. ${why}`);
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
    if (target.matches("input, select")) return;
    if (target.matches("button") && (event.key === " " || event.key === "Enter")) return;
    const done = this.modeKey(event.key) || (this.visiting ? this.visitorKey(event.key) : this.pressKey(event.key));
    if (done) event.preventDefault();
  }

  modeKey(key) {
    if (key === "e") this.toggleExplaining();
    else if (key === "w") this.watch();
    else if (key === "c") this.compare();
    else if (key === "y") this.letVisitorPlay();
    else return false;
    return true;
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
    if (this.comparing) this.comparison.show(this.index, this.explaining);
    else this.showGame();
    this.showVerdict();
    this.showPosition();
  }

  showGame() {
    const { game, index } = this, moment = game.moments[index], digits = game.digitsAt(index);
    this.drawing.fit(this.player.base, game.plan.columns, byId("single").clientWidth);
    this.drawing.show(moment, digits);
    this.windowPanel.show(moment);
    this.showReading(moment);
    this.showBases(moment);
    this.showValues(digits);
    this.showChoices(moment);
    byId("why").hidden = !this.explaining || this.visiting;
    byId("why").textContent = moment.why;
  }

  showReading(moment) {
    const { base } = this.player, resetting = moment.symbol >= base;
    const name = OPERATION_WORDS[moment.operation];
    const tile = byId("symbol"), badge = byId("operation");
    tile.textContent = resetting ? "+−"[moment.operation] : moment.symbol;
    tile.className = `tile ${resetting ? name : ""}`;
    badge.textContent = this.game.operationText(moment);
    badge.className = `badge ${name}`;
    badge.hidden = moment.operationIndex === null;
    byId("meaning").textContent = this.game.meaning(moment);
    byId("step").textContent = `step ${this.index.toLocaleString("en")}`;
    const before = this.game.moments[this.index - 1];
    byId("action").textContent = before ? ACTION_WORDS[before.action] : "start";
  }

  /** Show the number that is read, or comes next, in both bases, with the current digit marked. */
  showBases({ operationIndex, digitIndex }) {
    const { base } = this.player, line = byId("bases");
    const operation = operationIndex === null ? null : this.game.plan.program[operationIndex];
    if (operation === null || operation.digits.length > LONGEST_IN_BASE) {
      line.textContent = basesText([], base);
      return;
    }
    const numeral = document.createElement("span");
    for (let place = operation.digits.length - 1; place >= 0; place -= 1) {
      const digit = document.createElement(place === digitIndex ? "mark" : "span");
      digit.textContent = operation.digits[place];
      numeral.append(digit);
    }
    const { number } = operation;
    if (base === 10) line.replaceChildren(numeral, `: ${countsIn(base)}.`);
    else line.replaceChildren(`${number} is `, numeral, ` in base ${base}: ${countsIn(base)}.`);
  }

  showValues(digits) {
    const value = valueOf(digits, this.player.base).toString();
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

  /** Show the next action, or the result; to compare, the steps of all players. */
  showVerdict() {
    const line = byId("verdict"), { game, index } = this;
    if (this.comparing) {
      line.className = "verdict";
      line.textContent = this.comparison.summary;
      return;
    }
    const moment = game.moments[index], done = moment.end !== End.NONE;
    line.className = `verdict ${done ? (game.solved ? "right" : "wrong") : ""}`;
    line.textContent = done ? game.verdict(index, moment.end) : this.nextText(moment);
  }

  nextText({ probabilities }) {
    if (this.visiting) return "Next: your move";
    const action = mostProbable(probabilities);
    return `Next: ${ACTION_WORDS[action]}, ${percent(probabilities[action])}`;
  }

  showPosition() {
    const { last } = this, scrubber = byId("scrubber");
    scrubber.max = last;
    scrubber.value = this.index;
    byId("position").textContent = `${this.index.toLocaleString("en")} / ${last.toLocaleString("en")}`;
    byId("first").disabled = byId("back").disabled = this.index === 0;
    byId("forward").disabled = this.index === last && (this.finished);
  }

  /** Describe the moment to screen readers, but not while playing fast: texts would pile up. */
  announce() {
    byId("announcer").textContent = `Step ${this.index}: ${this.comparing ? this.laneTexts() : this.momentText()}`;
  }

  momentText() {
    const moment = this.game.moments[this.index];
    const why = this.explaining ? ` ${moment.why}` : "";
    return `${this.game.meaning(moment)} ${this.game.operationText(moment)}. ${byId("verdict").textContent}.${why}`;
  }

  laneTexts() {
    return this.comparison.lanes
      .map((lane) => `${lane.game.player.title}: ${lane.part(".verdict").textContent}.${this.explaining ? ` ${lane.part(".why").textContent}` : ""}`)
      .join(" ");
  }
}

const countsIn = (base) => `the abacus counts in ${BASE_WORDS[base]}${base === 10 ? ", as we write numbers" : ""}`;

/** The first numbers of a program in both bases, as far as they are short. */
function basesText(program, base) {
  const short = base === 10 ? [] : program.slice(0, MOST_IN_BASES).filter(({ digits }) => digits.length <= LONGEST_IN_BASE);
  const numbers = short.map(({ number, digits }, k) => `${number} is ${numeralOf(digits)}${k ? "" : ` in base ${base}`}`);
  const text = [...numbers, ...(numbers.length && numbers.length < program.length ? ["…"] : [])].join(", ");
  const sentence = text ? `${text}: ${countsIn(base)}` : countsIn(base);
  return `${sentence[0].toUpperCase()}${sentence.slice(1)}.`;
}

/** The networks, and after those of each base the teacher. */
function playersOf(networks) {
  const bases = [...new Set(networks.map(({ base }) => base))];
  return bases.flatMap((base) => {
    const ofBase = networks.filter((network) => network.base === base);
    return [...ofBase, new Teacher(ofBase[0])];
  });
}

function randomNumber(length) {
  return Array.from({ length }, (_, k) => Math.floor(Math.random() * (k ? 10 : 9)) + (k ? 0 : 1)).join("");
}

const app = new App(JSON.parse(byId("networks").textContent));
