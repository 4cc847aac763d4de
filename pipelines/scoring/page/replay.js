// Plays recorded operations on a drawn abacus. It applies recorded changes and knows no rule.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SPEEDS = [1, 2, 4, 8, 16, 32];
  // The order of a step's numbers: see pipelines/scoring/protocol.py.
  const FIELDS = ["action", "fingerColumn", "fingerRow", "signpost", "symbol", "operation",
    "changed", "digit", "firstShown", "wrong", "teacher"];

  const { look, actions, replays } = JSON.parse(document.getElementById("replay-data").textContent);
  const root = document.getElementById("replay");
  const part = (name) => root.querySelector(`[data-part="${name}"]`);

  let replay, moments, at = 0, speed = 2, timer = null, scene;

  // --- the record ---------------------------------------------------------------------------

  function momentsOf(record) {
    const digits = record.start.slice();
    return record.steps.map((numbers) => {
      const step = Object.fromEntries(FIELDS.map((name, k) => [name, numbers[k]]));
      if (step.changed >= 0) digits[step.changed] = step.digit;
      return { ...step, digits: digits.slice() };
    });
  }

  const numeral = (digits) => digits.slice().reverse().join("").replace(/^0+(?=.)/, "");

  function decimal(digits, base) {
    return digits.reduceRight((value, digit) => value * BigInt(base) + BigInt(digit), 0n)
      .toLocaleString("en");
  }

  // --- the picture --------------------------------------------------------------------------

  function element(name, attributes = {}, parent = null, text = null) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  const box = (parent, x, y, width, height, fill, rx = 0, more = {}) =>
    element("rect", { x, y, width, height, fill, rx, ...more }, parent);

  const text = (parent, x, y, size, fill, content, more = {}) =>
    element("text", { x, y, "font-size": size, fill, "text-anchor": "middle", ...more }, parent, content);

  /** What stays as it is while a replay plays, and the parts that move. */
  function newScene() {
    const { CELL, ROW, POST, BEAM, SILL, PANEL_EDGE, FLAG, LABELS } = look;
    const inside = replay.shown * CELL, panel = replay.base * ROW + 2 * PANEL_EDGE;
    const left = CELL, top = FLAG, height = BEAM + panel + SILL;
    const svg = element("svg", {
      viewBox: `-6 0 ${inside + 2 * POST + 2 * CELL + 12} ${top + height + LABELS + 6}`, role: "img",
    });
    box(svg, left, top + 5, inside + 2 * POST, height, "#d8d4cd", 16);
    box(svg, left, top, inside + 2 * POST, height, look.WOOD_DARK, 16);
    box(svg, left, top, inside + 2 * POST, height - 4, look.WOOD_LIGHT, 16);
    box(svg, left, top + 3, inside + 2 * POST, height - 7, look.WOOD, 14);
    box(svg, left + POST - 3, top + BEAM - 3, inside + 6, panel + 6, look.WOOD_DARK, 5);
    box(svg, left + POST, top + BEAM, inside, panel, look.PANEL, 3);
    for (let row = 0; row < replay.base; row++) {
      text(svg, left + POST / 2 - 1, top + BEAM + PANEL_EDGE + (row + 0.5) * ROW + 7, 20, look.INLAY, row);
    }
    const title = element("title", {}, svg);
    const layers = Object.fromEntries(
      ["light", "columns", "window", "ring", "flag"].map((name) => [name, element("g", { class: name }, svg)]));
    drawMovers(layers, panel);
    part("abacus").replaceChildren(svg);
    return { svg, title, ...layers, left: left + POST, top, panel };
  }

  function drawMovers({ light, window: frame, ring, flag }, panel) {
    const { CELL, ROW, BEAM } = look;
    box(light, 0, BEAM, CELL, panel, look.PANEL_LIT);
    const left = element("g", {}, light);
    box(left, 0, BEAM, CELL, panel, look.PANEL_LIT);
    text(left, CELL / 2, BEAM + panel / 2, 15, look.FAINT, "padding");
    box(frame, 0, 4, 2 * CELL + 4, panel + BEAM - 2, "none", 9, { stroke: look.WINDOW, "stroke-width": 5 });
    box(ring, 4, 4, CELL - 8, ROW - 8, "none", ROW / 2 - 4, { stroke: "#ffffff", "stroke-width": 8 });
    box(ring, 4, 4, CELL - 8, ROW - 8, "none", ROW / 2 - 4, { stroke: look.FINGER, "stroke-width": 5 });
    const x = CELL / 2 - 2;
    box(flag, x - 7, look.FLAG - 3, 18, 7, look.SIGNPOST_DARK, 3);
    box(flag, x, 10, 4, look.FLAG - 8, look.SIGNPOST_DARK, 2);
    element("polygon", { points: `${x + 4},11 ${x + 31},22 ${x + 4},33`, fill: look.SIGNPOST }, flag);
  }

  function drawColumn(parent, x, digit, column, lit, finger) {
    const { CELL, ROW, BEAM, PANEL_EDGE, ENCODING_PERIOD } = look;
    const group = element("g", { transform: `translate(${x} ${scene.top})`, class: lit ? "" : "dim" }, parent);
    const place = column % ENCODING_PERIOD;
    for (let k = 0; k <= place; k++) {
      box(group, CELL / 2 - 3 + 11 * (k - place / 2), BEAM / 2 - 4, 6, 6, look.INLAY, 3);
    }
    box(group, CELL / 2 - 4, BEAM, 8, scene.panel, look.ROD, 0);
    for (let row = 0; row < replay.base; row++) {
      if (row === digit) continue;
      const y = BEAM + PANEL_EDGE + row * ROW + 3;
      box(group, 5, y, CELL - 10, ROW - 6, look.BEAD_DARK, (ROW - 6) / 2);
      box(group, 5, y, CELL - 10, ROW - 10, look.BEAD, (ROW - 10) / 2);
      box(group, 18, y + 6, CELL - 36, 5, look.BEAD_LIGHT, 2.5);
    }
    const below = BEAM + scene.panel + look.SILL;
    const label = element("g", { transform: `translate(${x} ${scene.top + below})` }, parent);
    text(label, CELL / 2, 33, 26, lit ? look.INK : look.FAINT, digit, { "font-weight": 600 });
    if (finger) box(label, CELL / 2 - 16, 42, 32, 24, look.FINGER, 12);
    text(label, CELL / 2, 60, 17, finger ? "#ffffff" : look.FAINT, column);
  }

  function drawAbacus(moment) {
    const { CELL, ROW, BEAM, PANEL_EDGE } = look;
    const placeOf = (column) => scene.left + (column - moment.firstShown) * CELL;
    const finger = placeOf(moment.fingerColumn);
    const move = (group, x, y) => { group.style.transform = `translate(${x}px, ${y}px)`; };
    // Left of column 0 the window shows padding, which lies outside the frame.
    const reach = CELL + (moment.fingerColumn === 0 ? look.POST : 0);
    scene.window.firstChild.setAttribute("x", -reach - 2);
    scene.window.firstChild.setAttribute("width", reach + CELL + 4);
    scene.light.lastChild.setAttribute("transform", `translate(${-reach} 0)`);
    scene.light.lastChild.lastChild.style.visibility = moment.fingerColumn === 0 ? "visible" : "hidden";
    move(scene.light, finger, scene.top);
    move(scene.window, finger, scene.top);
    move(scene.ring, finger, scene.top + BEAM + PANEL_EDGE + moment.fingerRow * ROW);
    move(scene.flag, placeOf(moment.signpost), 0);
    scene.flag.style.visibility =
      moment.signpost >= moment.firstShown && moment.signpost < moment.firstShown + replay.shown ? "visible" : "hidden";
    scene.columns.replaceChildren();
    for (let slot = 0; slot < replay.shown; slot++) {
      const column = moment.firstShown + slot;
      const lit = column === moment.fingerColumn || column === moment.fingerColumn - 1;
      drawColumn(scene.columns, placeOf(column), moment.digits[column], column, lit, column === moment.fingerColumn);
    }
    scene.title.textContent =
      `Abacus showing ${numeral(moment.digits)} in base ${replay.base}, finger on column ` +
      `${moment.fingerColumn}, row ${moment.fingerRow}, signpost on column ${moment.signpost}`;
  }

  // --- what is said beside it ---------------------------------------------------------------

  function describe(moment) {
    const resetting = moment.symbol >= replay.base;
    const tile = part("symbol");
    tile.textContent = resetting ? "+−"[moment.symbol - replay.base] : moment.symbol;
    tile.className = resetting ? `symbol operation-${moment.operation}` : "symbol";
    part("meaning").textContent = (resetting ? "reset, then " : "digit read, ") +
      (moment.operation ? "subtracting" : "adding");
    part("action").textContent = moment.action < 0 ? "start" : actions[moment.action];
    part("action").classList.toggle("wrong", Boolean(moment.wrong));
    part("teacher").textContent = moment.wrong ? `wrong (the teacher: ${actions[moment.teacher]})` : "";
    part("step").textContent = `step ${at} of ${moments.length - 1}`;
    part("value").textContent = `${numeral(moment.digits)} (decimal ${decimal(moment.digits, replay.base)})`;
    const done = at === moments.length - 1;
    part("outcome").textContent = !done ? "" : replay.cut ? "the record ends here" :
      replay.right ? `right: ${replay.truth}` : `wrong: shows ${replay.output}, truth ${replay.truth}`;
    part("outcome").className = done && !replay.cut ? (replay.right ? "right" : "wrong") : "";
  }

  function show(step) {
    at = Math.max(0, Math.min(moments.length - 1, step));
    drawAbacus(moments[at]);
    describe(moments[at]);
    part("scrub").value = at;
    root.dataset.step = at;
    if (at === moments.length - 1) pause();
  }

  // --- control ------------------------------------------------------------------------------

  function pause() {
    clearInterval(timer);
    timer = null;
    tellPlaying();
  }

  function play() {
    if (at === moments.length - 1) show(0);
    clearInterval(timer);
    timer = setInterval(() => show(at + 1), 1000 / SPEEDS[speed]);
    tellPlaying();
  }

  function tellPlaying() {
    const playing = timer !== null;
    root.dataset.playing = playing;
    part("play").textContent = playing ? "❚❚ Pause" : "▶ Play";
    part("play").setAttribute("aria-pressed", playing);
  }

  const stepTo = (step) => { pause(); show(step); };

  function nextMistake() {
    const next = moments.findIndex((moment, k) => k > at && moment.wrong);
    stepTo(next >= 0 ? next : moments.findIndex((moment) => moment.wrong));
  }

  function setSpeed(index) {
    speed = Math.max(0, Math.min(SPEEDS.length - 1, index));
    part("speed").value = speed;
    part("speed-text").textContent = `${SPEEDS[speed]} step${speed ? "s" : ""} a second`;
    root.dataset.speed = SPEEDS[speed];
    // Things move in half the time of a step, so that each comes to rest before the next.
    root.style.setProperty("--move", `${Math.min(0.25, 0.5 / SPEEDS[speed])}s`);
    if (timer !== null) play();
  }

  function choose(index) {
    pause();
    replay = replays[index];
    moments = momentsOf(replay);
    scene = newScene();
    part("choose").selectedIndex = index;
    part("scrub").max = moments.length - 1;
    part("mistake").hidden = !moments.some((moment) => moment.wrong);
    root.dataset.operation = index;
    show(0);
  }

  const KEYS = {
    " ": () => (timer === null ? play() : pause()),
    ArrowRight: () => stepTo(at + 1),
    ArrowLeft: () => stepTo(at - 1),
    Home: () => stepTo(0),
    End: () => stepTo(moments.length - 1),
    "+": () => setSpeed(speed + 1),
    "=": () => setSpeed(speed + 1),
    "-": () => setSpeed(speed - 1),
    n: () => choose((part("choose").selectedIndex + 1) % replays.length),
    p: () => choose((part("choose").selectedIndex + replays.length - 1) % replays.length),
    m: () => { if (!part("mistake").hidden) nextMistake(); },
  };

  root.addEventListener("keydown", (event) => {
    // Buttons, sliders and lists have keys of their own.
    const own = event.target.matches("input, select") || (event.target.matches("button") && event.key === " ");
    if (own || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  replays.forEach((record, k) => {
    const option = document.createElement("option");
    option.textContent = `${k + 1}. ${record.title}  ${record.cut ? "(cut)" : record.right ? "✓ right" : "✗ wrong"}`;
    part("choose").append(option);
  });
  part("choose").addEventListener("change", (event) => choose(event.target.selectedIndex));
  part("play").addEventListener("click", KEYS[" "]);
  part("back").addEventListener("click", KEYS.ArrowLeft);
  part("forward").addEventListener("click", KEYS.ArrowRight);
  part("first").addEventListener("click", KEYS.Home);
  part("last").addEventListener("click", KEYS.End);
  part("mistake").addEventListener("click", nextMistake);
  part("scrub").addEventListener("input", (event) => stepTo(Number(event.target.value)));
  part("speed").addEventListener("input", (event) => setSpeed(Number(event.target.value)));
  part("speed").max = SPEEDS.length - 1;
  choose(0);
  setSpeed(2);
})();
