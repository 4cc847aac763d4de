// Compare mode: several players compute the same expression side by side, step by step.

class Lane {
  constructor(game) {
    this.game = game;
    this.root = document.createElement("article");
    this.root.className = "lane";
    this.root.setAttribute("aria-label", game.player.title);
    this.root.innerHTML = `
      <h3></h3>
      <p class="note"></p>
      <div class="reading"><div class="tile"></div><p class="meaning"></p></div>
      <svg class="abacus" role="img"></svg>
      <p class="why"></p>
      <div class="steps"><span class="track"><span></span></span><output></output></div>
      <p class="verdict"></p>`;
    this.part("h3").textContent = game.player.title;
    this.part(".note").textContent = game.player.name || "the reference algorithm";
    this.drawing = new AbacusDrawing(this.part("svg"), true);
  }

  part(selector) { return this.root.querySelector(selector); }

  /** Show a step, or the last one of a game that is already over; `longest` is the longest game. */
  show(step, longest, explaining) {
    const { game } = this, index = Math.min(step, game.last), moment = game.moments[index];
    const { base } = game.player, resetting = moment.symbol >= base, name = OPERATION_WORDS[moment.operation];
    this.drawing.fit(base, game.plan.columns, this.root.clientWidth);
    this.drawing.show(moment, game.digitsAt(index));
    this.part(".tile").textContent = resetting ? "+−"[moment.operation] : moment.symbol;
    this.part(".tile").className = `tile ${resetting ? name : ""}`;
    this.part(".meaning").textContent = [game.meaning(moment), game.operationText(moment)].filter(Boolean).join(", ");
    this.part(".why").textContent = moment.why;
    this.part(".why").hidden = !explaining;
    this.showSteps(index, longest);
    this.showVerdict(index, moment);
  }

  /** A bar as long as the game, filled as far as it is shown. */
  showSteps(index, longest) {
    const { game } = this, track = this.part(".track");
    track.style.width = `${(100 * game.last) / Math.max(longest, 1)}%`;
    track.firstChild.style.transform = `scaleX(${index / Math.max(game.last, 1)})`;
    this.part("output").textContent =
      `${index.toLocaleString("en")} of ${game.last.toLocaleString("en")}${game.over ? "" : " or more"} steps`;
  }

  showVerdict(index, moment) {
    const { game } = this, line = this.part(".verdict"), done = moment.end !== End.NONE;
    line.className = `verdict ${done ? (game.solved ? "right" : "wrong") : ""}`;
    line.textContent = done
      ? game.verdict(index, moment.end)
      : `Next: ${ACTION_WORDS[mostProbable(moment.probabilities)]}`;
  }

  /** The result in a few words: `Teacher: 58 steps`. */
  get summary() {
    const { last, over, solved, player } = this.game;
    if (!over) return `${player.title}: computing`;
    return `${player.title}: ${solved ? "" : "wrong, "}${last.toLocaleString("en")} steps`;
  }
}

class Comparison {
  constructor(root, games) {
    this.lanes = games.map((game) => new Lane(game));
    root.replaceChildren(...this.lanes.map((lane) => lane.root));
  }

  show(step, explaining) {
    const longest = Math.max(...this.lanes.map(({ game }) => game.last));
    for (const lane of this.lanes) lane.show(step, longest, explaining);
  }

  get summary() { return this.lanes.map((lane) => lane.summary).join(" · "); }
}
