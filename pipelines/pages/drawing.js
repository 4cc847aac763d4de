// The abacus as SVG. Beads, finger, window and signpost are moved by transforms, which the browser
// animates. Sizes come from abacus/render/scene.py, colours from there through drawing.css.

/** Fewest columns shown, and the smallest width of a column in pixels. */
const FEWEST_SHOWN = 5, NARROWEST_COLUMN = 34, NARROWEST_SMALL_COLUMN = 20;
/** Space on either side of the frame, for the padding and the number of hidden columns. */
const OUTSIDE = CELL + 2, OUTSIDE_ON_PHONES = 44, WIDEST_PHONE = 480;
const FLAG_TIP = 10;

function svgElement(name, attributes = {}, children = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const box = (x, y, width, height, radius, className) =>
  svgElement("rect", { x, y, width, height, rx: radius, class: className });
const label = (x, y, className, text = "") => {
  const element = svgElement("text", { x, y, class: className, "text-anchor": "middle" });
  element.textContent = text;
  return element;
};
const endingAt = (x, y, text) => {
  const element = label(x, y, "line-name", text);
  element.setAttribute("text-anchor", "end");
  return element;
};
const moveTo = (element, x, y) => { element.style.transform = `translate(${x}px, ${y}px)`; };

class AbacusDrawing {
  /** A small drawing has narrower columns, so that a whole abacus fits beside others. */
  constructor(svg, small = false) {
    this.svg = svg;
    this.narrowest = small ? NARROWEST_SMALL_COLUMN : NARROWEST_COLUMN;
    this.layout = null;
  }

  /** Lay out the picture for a width in pixels. */
  fit(base, columns, pixels) {
    const outside = pixels > WIDEST_PHONE ? OUTSIDE : OUTSIDE_ON_PHONES;
    const room = Math.floor(pixels / this.narrowest - (2 * POST + 2 * outside) / CELL);
    const shown = Math.min(columns, Math.max(FEWEST_SHOWN, Math.min(PICTURE_COLUMNS, room)));
    const layout = [base, columns, shown, outside].join();
    if (layout === this.layout) return;
    Object.assign(this, { base, columns, shown, outside, layout, first: -1 });
    this.build();
  }

  build() {
    const { shown, base, outside } = this;
    const panelHeight = base * ROW + 2 * PANEL_EDGE, frameWidth = shown * CELL + 2 * POST;
    this.frame = { width: frameWidth, height: BEAM + panelHeight + SILL, panelHeight };
    this.width = frameWidth + 2 * outside;
    this.panelTop = FLAG + BEAM;
    this.svg.setAttribute("viewBox", `0 ${FLAG_TIP} ${this.width} ${FLAG + this.frame.height + LABELS - FLAG_TIP}`);
    this.slots = Array.from({ length: shown }, (_, slot) => this.buildSlot(slot, panelHeight));
    this.rowNumbers = Array.from({ length: base }, (_, row) =>
      label(outside + (POST - 3) / 2, this.rowTop(row) + ROW / 2 + 7, "row-number", String(row)));
    this.svg.replaceChildren(
      ...this.buildFrame(), ...this.buildWindow(),
      ...this.slots.map(({ group }) => group), ...this.rowNumbers,
      this.outline, this.outlineAtEdge, ...this.buildFinger(), ...this.buildSignpost(),
      ...this.buildMargins(),
    );
  }

  slotLeft(slot) { return this.outside + POST + slot * CELL; }

  rowTop(row) { return this.panelTop + PANEL_EDGE + row * ROW; }

  buildFrame() {
    const { width, height, panelHeight } = this.frame, inside = this.shown * CELL;
    return [
      box(this.outside, FLAG + 4, width, height, 16, "wood-dark"),
      box(this.outside, FLAG, width, height, 16, "wood"),
      box(this.outside + POST - 3, this.panelTop - 3, inside + 6, panelHeight + 6, 5, "wood-dark"),
      box(this.outside + POST, this.panelTop, inside, panelHeight, 3, "panel"),
    ];
  }

  /** Build the light of the window, under the beads, and its outline, over them. */
  buildWindow() {
    const { panelHeight } = this.frame, top = FLAG + 2, height = BEAM + panelHeight + 2;
    const atEdge = this.outside + POST + CELL;
    this.light = box(0, this.panelTop, CELL, panelHeight, 0, "panel-lit gliding");
    this.lightLeft = box(0, this.panelTop, CELL, panelHeight, 0, "panel-lit gliding");
    this.outline = box(-3, top, 2 * CELL + 6, height, 9, "window gliding");
    this.outlineAtEdge = box(0, top, atEdge + 3, height, 9, "window");
    this.padding = svgElement("g", {}, [
      box(0, FLAG + 4, this.outside, BEAM + panelHeight, 8, "padding-ground"),
      label(this.outside / 2, this.panelTop + panelHeight / 2, "padding-word", this.outside < OUTSIDE ? "" : "padding"),
    ]);
    return [this.padding, this.lightLeft, this.light];
  }

  buildFinger() {
    const ring = (className) => box(2, 2, CELL - 4, ROW - 4, ROW / 2 - 2, className);
    this.finger = [ring("finger-halo gliding"), ring("finger gliding")];
    return this.finger;
  }

  buildSignpost() {
    const middle = CELL / 2;
    this.flag = svgElement("g", { class: "flag gliding" }, [
      box(middle - 9, FLAG - 3, 18, 7, 3, "flag-pole"),
      box(middle - 2, FLAG_TIP, 4, FLAG - 8, 2, "flag-pole"),
      svgElement("path", { d: `M${middle + 2} ${FLAG_TIP + 1}l27 11l-27 11z`, class: "flag-cloth" }),
    ]);
    this.flagNote = label(0, FLAG - 20, "flag-note");
    return [this.flag, this.flagNote];
  }

  /** Build the numbers of hidden columns, left and right, and the names of the lines. */
  buildMargins() {
    const middle = this.panelTop + this.frame.panelHeight / 2, below = FLAG + this.frame.height;
    this.more = [this.outside / 2, this.width - this.outside / 2].map((x) => label(x, middle, "more"));
    const names = this.outside + POST - 8;
    return [...this.more, endingAt(names, below + DIGIT_LINE, "digit"), endingAt(names, below + COLUMN_LINE, "column")];
  }

  buildSlot(slot, panelHeight) {
    const x = this.slotLeft(slot), middle = x + CELL / 2, below = this.panelTop + panelHeight + SILL;
    const dots = Array.from({ length: ENCODING_PERIOD }, () => svgElement("circle", { r: 3, cy: FLAG + BEAM / 2, class: "inlay" }));
    const beads = Array.from({ length: this.base - 1 }, () => svgElement("g", { class: "bead gliding" }, [
      box(x + 5, 3, CELL - 10, ROW - 6, (ROW - 6) / 2, "bead-shadow"),
      box(x + 5, 3, CELL - 10, ROW - 10, (ROW - 10) / 2, "bead-body"),
      box(x + 18, 9, CELL - 36, 5, 2.5, "bead-light"),
    ]));
    const digit = label(middle, below + DIGIT_LINE, "digit"), column = label(middle, below + COLUMN_LINE, "column");
    const pill = box(middle - 18, below + COLUMN_LINE - 18, 36, 24, 12, "pill");
    const group = svgElement("g", { class: "slot" }, [
      ...dots, box(middle - 3.5, this.panelTop, 7, panelHeight, 0, "rod"), ...beads, pill, digit, column,
    ]);
    return { group, dots, beads, digit, column, middle };
  }

  /** The first column shown: pages overlap by two columns, as in abacus/render/view.py. */
  firstShown(fingerColumn) {
    const stride = Math.max(1, this.shown - 2);
    const page = Math.floor(Math.max(0, fingerColumn - 1) / stride);
    return Math.min(page * stride, this.columns - this.shown);
  }

  show(moment, digits) {
    const first = this.firstShown(moment.fingerColumn);
    const scrolled = first !== this.first;
    this.svg.classList.toggle("still", scrolled);
    this.first = first;
    this.slots.forEach((slot, index) => this.showSlot(slot, first + index, digits[first + index], moment));
    this.showFinger(moment, moment.fingerColumn - first);
    this.showSignpost(moment.signpost);
    const hiddenRight = this.columns - first - this.shown;
    this.more[0].textContent = first > 0 && moment.fingerColumn > 0 ? `‹ ${first}` : "";
    this.more[1].textContent = hiddenRight > 0 ? `${hiddenRight} ›` : "";
    this.svg.setAttribute(
      "aria-label",
      `Abacus showing ${numeralOf(digits)} in base ${this.base}; finger on column ` +
      `${moment.fingerColumn} and row ${moment.fingerRow}; signpost on column ${moment.signpost}`,
    );
  }

  showSlot(slot, column, digit, moment) {
    const place = column % ENCODING_PERIOD;
    slot.dots.forEach((dot, k) => {
      dot.setAttribute("cx", slot.middle + 11 * (k - place / 2));
      dot.setAttribute("visibility", k <= place ? "visible" : "hidden");
    });
    slot.beads.forEach((bead, k) => moveTo(bead, 0, this.rowTop(k < digit ? k : k + 1)));
    slot.digit.textContent = digit;
    slot.column.textContent = column;
    const isFinger = column === moment.fingerColumn;
    slot.group.classList.toggle("lit", isFinger || column === moment.fingerColumn - 1);
    slot.group.classList.toggle("under-finger", isFinger);
  }

  showFinger({ fingerColumn, fingerRow }, slot) {
    const x = this.slotLeft(slot), atEdge = fingerColumn === 0;
    for (const ring of this.finger) moveTo(ring, x, this.rowTop(fingerRow));
    moveTo(this.light, x, 0);
    moveTo(this.lightLeft, atEdge ? x : this.slotLeft(slot - 1), 0);
    moveTo(this.outline, this.slotLeft(Math.max(0, slot - 1)), 0);
    this.outline.classList.toggle("hidden", atEdge);
    this.outlineAtEdge.classList.toggle("hidden", !atEdge);
    this.padding.classList.toggle("hidden", !atEdge);
    this.rowNumbers.forEach((number, row) => number.classList.toggle("lit", row === fingerRow));
  }

  showSignpost(signpost) {
    const slot = signpost - this.first;
    const visible = slot >= 0 && slot < this.shown;
    this.flag.classList.toggle("hidden", !visible);
    if (visible) moveTo(this.flag, this.slotLeft(slot), 0);
    this.flagNote.textContent = visible ? "" : slot < 0 ? `◂ ⚑ ${signpost}` : `${signpost} ⚑ ▸`;
    this.flagNote.setAttribute("x", slot < 0 ? this.outside + 30 : this.width - this.outside - 30);
  }
}
