// The panels beside the abacus: the player's observation and its action probabilities.

const FRAME_NAMES = ["now", "1 step ago"];

class WindowPanel {
  constructor(root, symbols, { base, frames }) {
    root.replaceChildren();
    symbols.replaceChildren();
    this.base = base;
    this.frames = Array.from({ length: frames }, (_, index) => {
      const age = frames - 1 - index;
      const svg = svgElement("svg", { viewBox: `0 0 76 ${this.base * 22 + 40}`, class: "frame", role: "img" });
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      caption.textContent = FRAME_NAMES[age] ?? `${age} steps ago`;
      figure.append(svg, caption);
      figure.classList.toggle("now", age === 0);
      root.append(figure);
      return svg;
    });
    this.symbols = [...Array(this.base).keys(), "+", "−"].map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      symbols.append(item);
      return item;
    });
  }

  show(moment) {
    moment.history.forEach((code, index) => this.showFrame(this.frames[index], decodeFrame(this.base, code)));
    this.symbols.forEach((item, symbol) => {
      item.classList.toggle("read", symbol === moment.symbol);
      if (symbol === moment.symbol) item.setAttribute("aria-current", "true");
      else item.removeAttribute("aria-current");
    });
  }

  showFrame(svg, frame) {
    const height = this.base * 22 + 28;
    const parts = [box(2, 2, 72, height + 8, 8, "frame-ground")];
    if (frame.leftIsPadding) parts.push(box(4, 4, 34, height + 4, 6, "padding-ground"));
    else parts.push(...this.column(4, frame.left, (frame.phase + 2) % ENCODING_PERIOD, frame.signpost === SIGNPOST_IN_LEFT));
    parts.push(...this.column(38, frame.right, frame.phase, frame.signpost === SIGNPOST_IN_RIGHT));
    parts.push(box(39.5, 30 + frame.row * 22, 31, 20, 10, "finger"));
    svg.replaceChildren(...parts);
    const left = frame.leftIsPadding ? "nothing" : `digit ${frame.left}`;
    const post = ["out of sight", "on the left", "on the right"][frame.signpost];
    svg.setAttribute("aria-label", `left: ${left}; right: digit ${frame.right}; finger on row ${frame.row}; signpost ${post}`);
  }

  column(x, digit, phase, signpost) {
    const parts = [label(x + 17, 20, "encoding", ["¼", "½", "¾"][phase])];
    if (signpost) parts.unshift(box(x + 4, 6, 26, 20, 5, "flag-cloth"));
    if (signpost) parts[1].setAttribute("class", "encoding on-flag");
    for (let row = 0; row < this.base; row += 1) {
      const y = 33 + row * 22;
      parts.push(row === digit ? box(x + 15.5, y - 3, 3, 20, 0, "rod") : box(x + 5, y, 24, 14, 7, "bead-body"));
    }
    return parts;
  }
}

class ProbabilityPanel {
  constructor(list) {
    this.rows = ACTION_WORDS.map((words) => {
      const row = document.createElement("li"), name = document.createElement("span");
      const track = document.createElement("span"), share = document.createElement("span");
      const bar = document.createElement("span");
      name.textContent = words;
      name.className = "name";
      track.className = "track";
      share.className = "share";
      track.append(bar);
      row.append(name, track, share);
      list.append(row);
      return { row, bar, share };
    });
  }

  show(probabilities, chosen) {
    this.rows.forEach(({ row, bar, share }, action) => {
      const probability = probabilities ? probabilities[action] : 0;
      bar.style.transform = `scaleX(${probability})`;
      share.textContent = probabilities ? percent(probability) : "–";
      row.classList.toggle("chosen", action === chosen);
    });
  }
}

function percent(probability) {
  const shown = probability < 1 ? Math.min(100 * probability, 99.99) : 100;
  return `${shown.toFixed(2)} %`;
}
