// The picture of a diagnosis: the given mask, the repaired mask or their difference, with downloads.

import { MaskCanvas } from "../picture/canvas.js";
import { commandFold, doctorCommand } from "../base/command.js";
import { button, copyButton } from "../base/dialog.js";
import { cellInWords } from "./report.js";
import { el, fill, legendItem } from "../base/dom.js";
import { shapeOf } from "../base/facts-made.js";
import { choice, segments } from "../edit/fields.js";

const SIDES = { difference: "Difference", given: "Given", fixed: "Repaired" };
const LEGENDS = {
  difference: [
    ["only-this", "visible, should be hidden"], ["only-other", "hidden, should be visible"],
    ["both", "visible, rightly"], ["denied", "hidden, rightly"],
  ],
  given: [["allowed", "visible in the given mask"], ["denied", "hidden"]],
  fixed: [["allowed", "visible in the repaired mask"], ["denied", "hidden"]],
};
/** The maximum number of entries in the menu for the batch row and in the menu for the head. */
const MOST_OFFERED = 256;

/**
 * The names of the three pictures that the doctor view offers: the difference between the given and the repaired mask (the default), the
 * given mask, and the repaired mask.
 */
export const sides = Object.keys(SIDES);

export class DoctorPicture {
  /** `ctx` is the context of the view. `change(patch)` changes the view's settings, and `fail(error)` shows an error. */
  constructor({ ctx, change, fail }) {
    Object.assign(this, { ctx, change, fail });
    this.report = null;
    this.unlike = false; // whether the repair has other sizes than the given mask
    this.build();
  }

  build() {
    const tell = (cell) => this.tellCell(cell);
    this.canvas = new MaskCanvas({
      api: this.ctx.api, label: "The given mask", onHover: tell, onCursor: tell,
      onPick: ({ q, k }) => this.pick([...this.at, q, k]),
      onError: (error) => this.lost(error),
    });
    this.sides = segments(SIDES, "Picture", (side) => this.change({ side }));
    const place = (axis) => (at) => this.change({ cell: undefined, at: this.at.with(axis, Number(at)) });
    this.places = [choice("Batch row", place(0)), choice("Head", place(1))];
    this.legend = el("ul", { class: "legend", "aria-label": "Colours" });
    this.cell = el("p", { class: "doctor-at small soft", role: "status" });
    this.offered = el("div", { class: "doctor-take" });
    this.command = commandFold(this.ctx.toast);
    this.root = el("section", { class: "panel doctor-picture", "aria-label": "Picture", hidden: true },
      el("div", { class: "doctor-bar" }, this.sides.element,
        el("div", { class: "doctor-patterns" }, this.places.map(({ element }) => element))), this.canvas.element, this.legend, this.cell,
      this.offered, this.command.root);
  }

  /**
   * Shows the pictures for the diagnosis `report` of the file `{name, bytes}`, with the settings `set` of the view. Hides the
   * picture if the report is null or has no mask.
   */
  take(report, file, set) {
    this.unlike = false;
    this.report = report?.given && report.dims ? report : null;
    this.file = file;
    this.root.hidden = this.report === null;
    if (!this.report) return;
    this.offer();
    this.draw(set);
    if (set.cell) this.canvas.jump({ q: set.cell[2], k: set.cell[3] });
  }

  /** Draws the report with the settings `set`: `side` (the kind of picture), `at` (batch row and head) and `cell`. */
  draw(set) {
    if (!this.report) return;
    const { given, fixed, dims, findings } = this.report;
    const [, , qLen, kvLen] = dims;
    this.set = set;
    this.at = (set.cell ?? set.at).slice(0, 2).map((value, axis) => Math.min(value, dims[axis] - 1));
    const [batch, head] = this.at;
    const compared = Boolean(fixed && fixed !== given && !this.unlike);
    const side = compared ? set.side : "given";
    this.sides.element.hidden = !compared;
    this.sides.choose(side);
    this.places.forEach(({ element, show }, axis) => {
      element.hidden = dims[axis] < 2; // one batch row or head is no choice
      show([...Array(Math.min(dims[axis], MOST_OFFERED)).keys()], this.at[axis]);
    });
    const here = findings.flatMap((finding) => finding.first_cells).filter(([b, h]) => b === batch && h === head);
    const marks = side === "given" ? here.map(([, , q, k]) => ({ q, k })) : [];
    // A mask of few queries needs little height; the rulers take about the room of two cells.
    this.canvas.element.style.setProperty("--aspect", `${kvLen + 2} / ${qLen + 2}`);
    const [id, other] = side === "fixed" ? [fixed, null] : [given, side === "difference" ? fixed : null];
    this.canvas.show({ id, other, qLen, kvLen, batch, head, marks });
    this.canvas.pin(set.cell && { q: set.cell[2], k: set.cell[3] });
    fill(this.legend, LEGENDS[side].map(legendItem),
      marks.length > 0 && el("li", {}, el("span", { class: "swatch ring" }), "the first wrong cells"));
    this.command.show(doctorCommand(this.file.name, set.context, set.meant, dims));
  }

  /**
   * Handles an error of the picture. After the first error with status 400, draws the given mask alone: the repaired mask may have other
   * sizes, and then the two masks cannot be compared. Shows other errors to the user.
   */
  lost(error) {
    if (error.status !== 400 || this.unlike) return this.fail(error);
    this.unlike = true;
    return this.draw(this.set);
  }

  /**
   * Shows the expression of the mask. If the mask is faulty, shows the expression of the repaired mask and a button to download the
   * repaired array, which has the type and the convention of the given one. Without a repair, shows the expression of the intended mask.
   */
  offer() {
    const { fixed, given, repaired, expression, findings, intended, faulty } = this.report;
    const repair = findings.find((finding) => finding.repair)?.repair;
    const shown = faulty ? repair ?? intended : expression;
    const name = !faulty ? "The mask is" : repair ? "The repaired mask is" : "The intended mask is";
    fill(this.offered,
      shown && el("div", { class: "doctor-expression" },
        el("span", { class: "soft small" }, name), el("code", {}, shown),
        copyButton(() => shown, this.ctx.toast),
        button("Open as a mask", () => this.openAsMask(shown))),
      repaired
        ? button("Download the repair (.npy)", () => this.download(), { class: "primary" })
        : faulty && fixed && fixed !== given && el("p", { class: "soft small" }, "The repaired mask has another shape than the array in the file."));
  }

  download() {
    const { context, meant } = this.set;
    const options = { name: this.file.name, context, meant: meant || undefined };
    return this.ctx.api.downloadRepair(this.file.bytes, options).catch((error) => this.fail(error));
  }

  openAsMask(mask) {
    const [, , q, kv] = this.report.dims;
    this.ctx.go("mask", { mask, shape: shapeOf(this.report.dims, kv - q) });
  }

  /** Enlarges the cell `[batch row, head, query, key]`, and stores the cell in the address. */
  pick(cell) {
    this.change({ cell });
    const at = { q: cell[2], k: cell[3] };
    this.canvas.jump(at);
    this.tellCell(at);
    this.canvas.element.scrollIntoView({ block: "nearest" });
  }

  tellCell(cell) {
    if (!cell || !this.report) return void (this.cell.textContent = "");
    const known = this.canvas.cell(cell.q, cell.k);
    const state = known?.level === 0 ? `: ${byteInWords(known.byte)}` : "";
    this.cell.textContent = `${cellInWords([...this.at, cell.q, cell.k], this.report.dims)}${state}`;
  }
}

/**
 * Describes whether a cell is allowed. `byte` is the byte of the pixel that shows the cell. Bits 0 and 1 are 2 if the mask allows the cell.
 * If two masks are compared, bit 4 means that only the first mask allows the cell, and bit 5 that only the second mask does.
 */
function byteInWords(byte) {
  if (byte & 16) return "visible, should be hidden";
  if (byte & 32) return "hidden, should be visible";
  return (byte & 3) === 2 ? "visible" : "hidden";
}
