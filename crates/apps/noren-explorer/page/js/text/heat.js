// A map of attention on a canvas: queries downwards, keys across.

import { clip, clipped, Drawing, turned } from "../picture/drawing.js";
import { colour, ink } from "../base/theme.js";

const FONT = 12;
/** The maximum width of a word's label, in pixels, if the map is at least 420 pixels wide. */
const WIDEST = 110;
const LARGEST = 30;

export class HeatMap extends Drawing {
  /**
   * `onCell(row, col)` is called with the cell of the attention map under the pointer, and `onPick(row, col)` with the cell that the user clicks. Both are called
   * with nulls outside of the map.
   */
  constructor(canvas, { onCell, onPick }) {
    super(canvas, canvas.parentElement);
    Object.assign(this, { onCell, onPick });
    this.answer = null;
    this.lit = { row: null, col: null };
    canvas.addEventListener("pointermove", (event) => this.onCell(...this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.onCell(null, null));
    canvas.addEventListener("click", (event) => this.onPick(...this.cellAt(event)));
  }

  show(answer) {
    this.answer = answer;
    this.redraw();
  }

  light(row, col = null) {
    if (this.lit.row === row && this.lit.col === col) return;
    this.lit = { row, col };
    this.redraw();
  }

  cellAt(event) {
    if (!this.area) return [null, null];
    const box = this.canvas.getBoundingClientRect();
    const { left, top, cell } = this.area;
    const count = this.answer.units.length;
    const [col, row] = [event.clientX - box.left - left, event.clientY - box.top - top].map((x) => Math.floor(x / cell));
    const inside = row >= 0 && col >= 0 && row < count && col < count;
    return inside ? [row, col] : [null, null];
  }

  draw() {
    const wide = this.canvas.parentElement.clientWidth;
    if (!this.answer || !wide) return;
    const { units } = this.answer;
    const { context: c } = this;
    this.font = `${FONT}px ${getComputedStyle(document.body).fontFamily}`;
    c.font = this.font;
    const names = units.map((unit) => unit.text.trim() || "␣");
    const space = Math.min(Math.max(...names.map((name) => c.measureText(name).width), 10), wide < 420 ? 64 : WIDEST);
    const left = Math.ceil(space + 10);
    // The last labels extend to the right.
    const lean = Math.min(space * 0.56, wide * 0.1);
    const cell = Math.max(Math.min((wide - left - lean) / units.length, LARGEST), 1);
    const top = cell >= 7 ? Math.ceil(space * 0.75) + 14 : 10;
    this.area = { left, top, cell };
    const high = Math.ceil(top + cell * units.length + 4);
    this.canvas.style.height = `${high}px`;
    this.size(wide, high);
    this.drawCells();
    this.drawLabels(names, space);
    this.drawCross();
  }

  drawCells() {
    const { context: c, answer } = this;
    const { left, top, cell } = this.area;
    const gap = cell > 8 ? 1 : 0;
    answer.attention.forEach((row, q) => row.forEach((weight, k) => {
      if (answer.allowed[q][k] <= 0) return;
      c.fillStyle = `rgb(${shade(weight).join(" ")})`;
      c.fillRect(left + k * cell, top + q * cell, cell - gap, cell - gap);
    }));
    // A hidden unit is a hatched column without values.
    answer.units.forEach((unit, k) => unit.hidden && this.hatch(left + k * cell, top, cell - gap, cell * answer.units.length));
  }

  hatch(x, y, wide, high) {
    const { context: c } = this;
    clipped(c, x, y, wide, high, () => {
      c.strokeStyle = ink("only-this");
      c.globalAlpha = 0.4;
      c.lineWidth = 1;
      c.beginPath();
      for (let at = -wide; at < high; at += 6) {
        c.moveTo(x, y + at + wide);
        c.lineTo(x + wide, y + at);
      }
      c.stroke();
    });
  }

  drawLabels(names, space) {
    const { context: c, answer, lit } = this;
    const { left, top, cell } = this.area;
    c.textBaseline = "middle";
    for (const at of this.labelled(names.length)) {
      const unit = answer.units[at];
      const on = at === lit.row || at === lit.col;
      c.fillStyle = ink(unit.private ? "only-this" : "soft");
      c.font = `${on || unit.private ? "600 " : ""}${this.font}`;
      const text = clip(c, names[at], space);
      c.textAlign = "right";
      c.fillText(text, left - 6, top + (at + 0.5) * cell);
      if (cell >= 7) turned(c, text, left + (at + 0.5) * cell, top - 5, -Math.PI / 3.2);
    }
  }

  /**
   * Returns the indices of the words of the attention map whose labels fit without overlap. Highlighted words are first, then private
   * words, then other words. `count` is the number of words.
   */
  labelled(count) {
    const { lit, answer } = this;
    const apart = (FONT + 2) / this.area.cell;
    const every = Math.ceil(apart);
    const wanted = [lit.row, lit.col, ...Array(count).keys()].filter((at) => at !== null);
    const rank = (at) => (at === lit.row || at === lit.col ? 0 : answer.units[at].private ? 1 : at % every === 0 ? 2 : 3);
    const kept = [];
    for (const at of wanted.sort((a, b) => rank(a) - rank(b))) {
      if (kept.every((other) => Math.abs(other - at) >= apart)) kept.push(at);
    }
    return kept;
  }

  drawCross() {
    const { context: c, lit, answer } = this;
    if (lit.row === null) return;
    const { left, top, cell } = this.area;
    c.strokeStyle = ink("cross");
    c.lineWidth = 1.5;
    c.strokeRect(left - 0.5, top + lit.row * cell - 0.5, cell * answer.units.length, cell);
    if (lit.col !== null) c.strokeRect(left + lit.col * cell - 0.5, top - 0.5, cell, cell * answer.units.length);
  }
}

/** Draws a small map of the attention of one layer and head, without labels. */
export function drawSmall(canvas, { attention, allowed }) {
  const count = attention.length;
  const context = canvas.getContext("2d");
  [canvas.width, canvas.height] = [count, count];
  const image = context.createImageData(count, count);
  attention.forEach((row, q) => row.forEach((weight, k) => {
    image.data.set([...(allowed[q][k] > 0 ? shade(weight) : colour("raised")), 255], 4 * (q * count + k));
  }));
  context.putImageData(image, 0, 0);
}

/** Returns the colour of an attention weight as `[r, g, b]`. */
function shade(weight) {
  const strong = colour("allowed");
  const share = Math.sqrt(Math.min(weight, 1));
  return colour("denied").map((none, at) => Math.round(none + (strong[at] - none) * share));
}
