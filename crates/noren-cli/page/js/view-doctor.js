// The doctor view: drop a mask that somebody else made, read what is wrong with it, take the repair.

import { aborted } from "./api.js";
import { createCanvas } from "./canvas.js";
import { Catalogue } from "./doctor-classes.js";
import { Declaration } from "./doctor-declare.js";
import { EXAMPLES } from "./doctor-examples.js";
import { cellInWords, reportOf, verdictInWords } from "./doctor-report.js";
import { bytes as inBytes, debounce, el, fill, number, uid } from "./dom.js";
import { createEditor } from "./editor.js";

export const id = "doctor";
export const title = "Doctor";

/** What the server takes. */
const MOST_BYTES = 64 * 2 ** 20;
const KINDS = /\.(npy|npz|safetensors)$/i;

export function mount(root, ctx) {
  const view = new DoctorView(ctx);
  root.append(view.root);
  view.meet();
  return { update: (state) => view.update(state), unmount: () => view.close() };
}

const plain = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
const text = (value) => (typeof value === "string" ? value : null);

/** The settings of a state. */
function settings({ doctor: own }) {
  const places = Array.isArray(own.cell) && own.cell.length === 4 && own.cell.every(Number.isInteger) ? own.cell : null;
  return {
    example: EXAMPLES.some((example) => example.id === own.example) ? own.example : null,
    context: plain(own.context),
    meant: text(own.meant) ?? "",
    side: ["difference", "given", "fixed"].includes(own.side) ? own.side : "difference",
    cell: places,
    open: text(own.open),
    file: text(own.file), // the name of a file that the address cannot bring
  };
}

class DoctorView {
  constructor(ctx) {
    this.ctx = ctx;
    this.file = null; // {name, bytes}
    this.report = null;
    this.asked = null;
    this.waiting = null;
    this.titles = new Map();
    this.ask = debounce(() => this.send(), 150);
    this.build();
  }

  build() {
    const { api, language } = this.ctx;
    const input = uid("file");
    this.input = el("input", {
      id: input, type: "file", class: "hidden-text", accept: ".npy,.npz,.safetensors", tabindex: -1,
      onchange: () => this.input.files[0] && this.take(this.input.files[0]),
    });
    this.dropped = el("p", { class: "doctor-dropped" });
    this.zone = el("div", {
      class: "doctor-zone",
      ondragover: (event) => this.drag(event, true), ondragenter: (event) => this.drag(event, true),
      ondragleave: (event) => this.drag(event, false), ondrop: (event) => this.drop(event),
    },
    el("p", { class: "doctor-invite" }, "Drop a mask here"),
    el("p", { class: "soft small" }, ".npy, .npz or .safetensors, at most 64 MiB. It stays on this machine; nothing is ever unpickled."),
    el("button", { type: "button", class: "button primary", onclick: () => this.input.click() }, "Choose a file"),
    el("label", { for: input, class: "hidden-text" }, "A mask in a file"), this.input, this.dropped);
    this.examples = el("ul", { class: "doctor-examples" }, EXAMPLES.map((example) => this.exampleRow(example)));
    this.editor = createEditor({ label: "The mask that was meant", language, onInput: (meant) => this.change({ meant: meant || undefined }) });
    this.declared = new Declaration({ onContext: (context) => this.change({ context }), editor: this.editor.element });
    this.problem = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.status = el("p", { class: "hidden-text", role: "status" });
    this.reported = el("div", { class: "doctor-report" });
    this.catalogue = new Catalogue({
      api,
      onTry: (one, context) => this.tryClass(one, context),
      onOpen: (name) => this.change({ open: name }),
    });
    this.cell = el("p", { class: "doctor-at small soft", role: "status" });
    this.picture = createCanvas({
      api, label: "The mask as it was given",
      onHover: (cell) => this.tellCell(cell), onCursor: (cell) => this.tellCell(cell),
      onPick: ({ q, k }) => this.pick([this.at[0], this.at[1], q, k]),
      onError: (error) => this.lost(error),
    });
    this.at = [0, 0];
    const side = (value, name) =>
      el("button", { type: "button", "aria-pressed": "false", dataset: { value }, onclick: () => this.change({ side: value }) }, name);
    this.sides = el("div", { class: "segments", role: "group", "aria-label": "Picture" },
      side("difference", "Difference"), side("given", "Given"), side("fixed", "Repaired"));
    this.patterns = el("div", { class: "doctor-patterns" });
    this.take_ = el("div", { class: "doctor-take" });
    this.legend = el("div", { class: "doctor-legend small" });
    this.seen = el("section", { class: "panel doctor-picture", "aria-label": "Picture", hidden: true },
      el("div", { class: "doctor-bar" }, this.sides, this.patterns), this.picture.element, this.legend, this.cell, this.take_);
    this.invite = el("section", { class: "panel doctor-welcome", "aria-label": "Examples" },
      el("h2", {}, "Sick masks to learn from"),
      el("p", { class: "soft" }, "Each is the file that a wrong line of code would have written. Choose one and read its diagnosis."),
      this.examples);
    this.root = el("div", { class: "doctor" },
      el("header", { class: "doctor-head" }, el("h1", {}, "What is wrong with this mask?"),
        el("p", { class: "soft" }, "A mask that somebody else made, held against what it should be. The mistake that explains every wrong cell is the finding; undoing it is the repair.")),
      el("div", { class: "doctor-side" }, this.zone, this.declared.root),
      el("div", { class: "doctor-main", "aria-live": "off" }, this.problem, this.status, this.reported, this.seen, this.invite),
      this.catalogue.root);
  }

  exampleRow(example) {
    return el("li", {},
      el("button", { type: "button", class: "doctor-example-row", dataset: { example: example.id }, "aria-pressed": "false", onclick: () => this.tryExample(example) },
        el("strong", {}, example.title), el("span", {}, example.says), el("code", {}, example.code)));
  }

  // --- files ------------------------------------------------------------------------------------------------------------------

  drag(event, over) {
    event.preventDefault();
    this.zone.classList.toggle("over", over);
  }

  drop(event) {
    this.drag(event, false);
    const [file] = event.dataTransfer.files;
    if (file) this.take(file);
  }

  /** Takes a file of the person's own. */
  async take(file) {
    this.input.value = "";
    if (!KINDS.test(file.name)) return this.refuse(`${file.name} is no array: give .npy, .npz or .safetensors.`);
    if (file.size > MOST_BYTES) return this.refuse(`${file.name} has ${inBytes(file.size)}: the limit is 64 MiB.`);
    try {
      this.file = { name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) };
    } catch {
      return this.refuse(`${file.name} cannot be read.`);
    }
    this.asked = null;
    this.change({ example: undefined, file: file.name, cell: undefined }, { replace: false });
    this.update(this.ctx.state.get());
  }

  refuse(message) {
    this.fail({ message });
  }

  tryExample({ id: example, context }) {
    this.ctx.state.set({ doctor: { example, context } });
  }

  /** The example of a class, as the file that its wrong mask would be. */
  async tryClass({ name, example: { wrong, shape } }, context) {
    try {
      const { api } = this.ctx;
      const { id: mask } = await api.masks({ mask: wrong, shape });
      const response = await fetch(api.exportUrl(mask, { as: "npy" }));
      if (!response.ok) throw new Error("The example cannot be made.");
      this.file = { name: `${name}.npy`, bytes: new Uint8Array(await response.arrayBuffer()) };
    } catch (error) {
      return this.fail(error);
    }
    this.asked = null;
    this.ctx.state.set({ doctor: { file: this.file.name, context, open: name } });
    this.update(this.ctx.state.get());
    this.root.scrollIntoView({ block: "start" });
  }

  // --- state ------------------------------------------------------------------------------------------------------------------

  async meet() {
    try {
      this.titles = await this.catalogue.load();
    } catch (error) {
      this.fail(error);
    }
    const { open } = settings(this.ctx.state.get());
    if (open) this.catalogue.open(open, { scroll: false });
    if (this.report) this.tell();
  }

  change(patch, { replace = true } = {}) {
    const doctor = { ...this.ctx.state.get().doctor, ...patch };
    for (const [key, value] of Object.entries(doctor)) if (value === undefined) delete doctor[key];
    this.ctx.state.set({ doctor }, { replace });
  }

  update(state) {
    this.set = settings(state);
    const { example, context, meant, file } = this.set;
    const chosen = EXAMPLES.find((one) => one.id === example);
    if (chosen && this.file?.example !== example) this.file = { name: chosen.name, bytes: chosen.bytes(), example };
    if (!chosen && (this.file?.example || file === null)) this.file = null;
    for (const button of this.examples.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", button.dataset.example === example ? "true" : "false");
    }
    this.declared.update(context);
    if (this.editor.value() !== meant) this.editor.setValue(meant);
    this.tellFile();
    const asked = this.file && JSON.stringify([this.file.name, this.file.example ?? this.file.bytes.length, context, meant]);
    if (!this.file) {
      this.asked = null;
      this.report = null;
      this.waiting?.abort();
      this.fail(null);
      this.tell();
    } else if (asked !== this.asked) {
      const typing = this.asked !== null;
      this.asked = asked;
      if (typing) this.ask();
      else this.ask.now();
    } else if (this.report) {
      this.draw();
    }
  }

  tellFile() {
    const { file } = this.set;
    const lost = !this.file && file;
    this.dropped.className = lost ? "doctor-dropped notice warn" : "doctor-dropped";
    this.dropped.textContent = this.file
      ? `${this.file.name}, ${inBytes(this.file.bytes.length)}${this.file.example ? ", an example" : ""}`
      : lost ? `This link was made with ${file}. A link cannot carry a file: drop it here again.` : "";
  }

  async send() {
    this.waiting?.abort();
    const waiting = new AbortController();
    this.waiting = waiting;
    const { context, meant } = this.set;
    const { name, bytes } = this.file;
    this.root.setAttribute("aria-busy", "true");
    try {
      this.unlike = false;
      this.report = await this.ctx.api.doctor(bytes, { name, context, meant: meant || undefined, signal: waiting.signal });
      this.fail(null);
      this.tell();
    } catch (error) {
      if (aborted(error)) return;
      this.report = null;
      this.tell();
      this.fail(error);
    }
    if (this.waiting === waiting) this.root.removeAttribute("aria-busy");
  }

  fail(error) {
    const inMeant = error?.start !== null && error?.start !== undefined;
    this.editor.setError(inMeant ? error : null);
    this.problem.hidden = !error;
    this.problem.textContent = error ? [error.message, error.hint].filter(Boolean).join(" ") : "";
  }

  // --- what is seen -----------------------------------------------------------------------------------------------------------

  tell() {
    const { report } = this;
    this.root.classList.toggle("diagnosed", report !== null);
    this.seen.hidden = !report?.given;
    if (!report) {
      fill(this.reported);
      this.status.textContent = "";
      return;
    }
    fill(this.reported, reportOf(report, this.titles, {
      onCell: (cell) => this.pick(cell),
      onClass: (name) => {
        this.catalogue.open(name);
        this.change({ open: name });
      },
    }));
    this.status.textContent = `${verdictInWords(report)}. ${report.findings.length} findings.`;
    if (!report.given) return;
    this.offer();
    this.offerPatterns();
    this.draw();
    const { cell } = this.set;
    if (cell) this.picture.jump({ q: cell[2], k: cell[3] });
  }

  /** Whether the repaired mask can be laid over the given one. */
  comparable() {
    return Boolean(this.report.fixed && this.report.fixed !== this.report.given && !this.unlike);
  }

  /** A picture that does not come: a repair of other sizes than the mask that was given cannot be compared with it. */
  lost(error) {
    if (error.status !== 400 || !this.comparable()) return this.fail(error);
    this.unlike = true;
    return this.draw();
  }

  draw() {
    const { report, set } = this;
    if (!report?.given || !report.dims) return;
    const compared = this.comparable();
    const side = compared ? set.side : "given";
    const [, , qLen, kvLen] = report.dims;
    this.at = set.cell ? [set.cell[0], set.cell[1]] : this.at;
    const [batch, head] = this.at = [Math.min(this.at[0], report.dims[0] - 1), Math.min(this.at[1], report.dims[1] - 1)];
    this.sides.hidden = !compared;
    for (const button of this.sides.children) button.setAttribute("aria-pressed", button.dataset.value === side ? "true" : "false");
    const marks = side !== "given" ? [] : report.findings.flatMap((f) => f.first_cells)
      .filter(([b, h]) => b === batch && h === head).map(([, , q, k]) => ({ q, k }));
    this.picture.show({
      id: side === "fixed" ? report.fixed : report.given, other: side === "difference" ? report.fixed : null,
      qLen, kvLen, batch, head, marks,
    });
    fill(this.legend, LEGENDS[side].map(([ink, words]) => el("span", { class: `doctor-key ${ink}` }, words)),
      marks.length > 0 && el("span", { class: "doctor-key ring" }, "the first wrong cells"));
    for (const select of this.patterns.querySelectorAll("select")) select.value = this.at[Number(select.dataset.axis)];
    this.picture.pin(set.cell && { q: set.cell[2], k: set.cell[3] });
  }

  /** Which batch row and head is drawn, where there are several. */
  offerPatterns() {
    const [batch, heads] = this.report.dims ?? [1, 1];
    const choice = (axis, name, count) => {
      if (count < 2) return null;
      const field = uid("axis");
      return el("div", { class: "field row" }, el("label", { for: field }, name),
        el("select", { id: field, dataset: { axis }, onchange: (event) => {
          this.at = this.at.map((value, index) => (index === axis ? Number(event.target.value) : value));
          this.change({ cell: undefined });
          this.draw();
        } }, Array.from({ length: Math.min(count, 256) }, (_, at) => el("option", { value: at }, at))));
    };
    fill(this.patterns, choice(0, "Batch row", batch), choice(1, "Head", heads));
  }

  offer() {
    const { fixed, expression, intended, sick } = this.report;
    const repair = this.report.findings.find((f) => f.repair)?.repair ?? intended;
    const shown = sick ? repair : expression;
    const copy = async () => {
      await navigator.clipboard.writeText(shown).then(
        () => this.ctx.toast("Copied."),
        () => this.ctx.toast("The clipboard is not to be had: select the text.", { kind: "error" }));
    };
    fill(this.take_,
      shown && el("div", { class: "doctor-expression" },
        el("span", { class: "soft small" }, sick ? "Repaired, it is" : "It is"), el("code", {}, shown),
        el("button", { type: "button", class: "button", onclick: copy }, "Copy"),
        el("button", { type: "button", class: "button", onclick: () => this.openInMask(shown) }, "Open as a mask")),
      fixed && sick && el("button", {
        type: "button", class: "button primary doctor-npy",
        onclick: () => this.ctx.api.download(fixed, { as: "npy" }).catch((error) => this.fail(error)),
      }, "Take the repair (.npy)"));
  }

  openInMask(mask) {
    const [batch, heads, q, kv] = this.report.dims;
    const square = q === kv ? { len: q } : { q, kv, query_offset: kv - q };
    this.ctx.go("mask", { mask, shape: { ...square, ...(batch > 1 && { batch }), ...(heads > 1 && { heads }) } });
  }

  pick(cell) {
    this.at = [cell[0], cell[1]];
    this.change({ cell });
    this.picture.jump({ q: cell[2], k: cell[3] });
    this.tellCell({ q: cell[2], k: cell[3] });
    this.picture.element.scrollIntoView({ block: "nearest" });
  }

  tellCell(cell) {
    if (!cell || !this.report?.given) return void (this.cell.textContent = "");
    const { q, k } = cell;
    const known = this.picture.cell(q, k);
    this.cell.textContent = `${cellInWords([...this.at, q, k], this.report.dims)}${known?.level === 0 ? `: ${this.inWords(known.byte)}` : ""}`;
  }

  /** A cell's byte in words, see the tiles of the API. */
  inWords(byte) {
    const allowed = (byte & 3) === 2;
    if (byte & 16) return "visible, and should not be";
    if (byte & 32) return "hidden, and should be visible";
    return allowed ? "visible" : "hidden";
  }

  close() {
    this.ask.cancel();
    this.waiting?.abort();
    this.picture.destroy();
  }
}

const LEGENDS = {
  difference: [["only-this", "visible, and should not be"], ["only-other", "hidden, and should be visible"], ["both", "visible, rightly"], ["denied", "hidden, rightly"]],
  given: [["allowed", "visible as it was given"], ["denied", "hidden"]],
  fixed: [["allowed", "visible after the repair"], ["denied", "hidden"]],
};
