// The doctor view: drop a mask file, read the diagnosis, download the repair.

import { errorWords } from "../base/api.js";
import { AskingView } from "../base/asking-view.js";
import { Catalogue } from "./classes.js";
import { Declaration } from "./declare.js";
import { EXAMPLES } from "./examples.js";
import { DoctorPicture, sides } from "./picture.js";
import { reportOf, verdictInWords } from "./report.js";
import { button } from "../base/dialog.js";
import { bytes as inBytes, debounce, el, fill, plural, uid } from "../base/dom.js";
import { Editor } from "../edit/editor.js";

export const id = "doctor";
export const title = "Doctor";

/** The maximum size of a file that the server accepts, in bytes. */
const MOST_BYTES = 64 * 2 ** 20;
/** Limits of the files that are kept while the page is open: `[maximum number of files, maximum size of all files together in bytes]`. */
const MOST_KEPT = [8, 128 * 2 ** 20];

/**
 * The files that the user opened since the page was loaded: a map from the name to the file, the oldest file first. The files stay
 * available when the user changes the view or uses the browser's back button.
 */
const kept = new Map();

function keep(file) {
  kept.delete(file.name);
  kept.set(file.name, file);
  const bytes = () => [...kept.values()].reduce((sum, { bytes: { length } }) => sum + length, 0);
  while (kept.size > 1 && (kept.size > MOST_KEPT[0] || bytes() > MOST_KEPT[1])) kept.delete(kept.keys().next().value);
}
const KINDS = /\.(npy|npz|safetensors)$/i;

const plain = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
const text = (value) => (typeof value === "string" ? value : null);

/** Returns the settings of the view that diagnoses masks, from a state of the page. Invalid values are replaced by defaults. */
function settings({ doctor: own }) {
  const places = (value, count) => Array.isArray(value) && value.length === count && value.every((n) => Number.isInteger(n) && n >= 0);
  return {
    example: EXAMPLES.some((example) => example.id === own.example) ? own.example : null,
    context: plain(own.context),
    meant: text(own.meant) ?? "",
    side: sides.includes(own.side) ? own.side : sides[0],
    at: places(own.at, 2) ? own.at : [0, 0],
    cell: places(own.cell, 4) ? own.cell : null,
    open: text(own.open),
    file: text(own.file), // the name of a file, whose content is not in the address
  };
}

export class View extends AskingView {
  constructor(ctx) {
    super(ctx, id);
    this.file = null; // {name, bytes}, with `example` or `made` where the page made it
    this.report = null;
    this.asked = null;
    this.titles = new Map();
    this.ask = debounce(() => this.send(), 150);
    this.build();
    this.meet();
  }

  build() {
    this.editor = new Editor({
      label: "The intended mask", language: this.ctx.language, onInput: (meant) => this.change({ meant: meant || undefined }),
    });
    this.declared = new Declaration({ onContext: (context) => this.change({ context }), editor: this.editor.element });
    this.problem = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.status = el("p", { class: "hidden-text", role: "status" });
    this.reported = el("div", { class: "doctor-report" });
    this.picture = new DoctorPicture({ ctx: this.ctx, change: (patch) => this.change(patch), fail: (error) => this.fail(error) });
    this.examples = el("ul", { class: "doctor-examples" }, EXAMPLES.map((example) => this.exampleRow(example)));
    this.catalogue = new Catalogue({
      api: this.ctx.api,
      onTry: (one, context) => this.tryClass(one, context),
      onOpen: (name) => this.change({ open: name }),
    });
    this.root = el("div", { class: "doctor" },
      el("header", { class: "doctor-head" }, el("h1", {}, "What is wrong with this mask?"),
        el("p", { class: "soft" }, "The doctor compares a mask array with the intended mask, and searches for the mistake that explains every wrong cell. ",
          "The report shows this mistake and the repaired mask.")),
      el("div", { class: "doctor-side" }, this.buildZone(), this.declared.root),
      el("div", { class: "doctor-main" }, this.problem, this.status, this.reported, this.picture.root,
        el("section", { class: "panel doctor-welcome", "aria-label": "Examples" },
          el("h2", {}, "Examples of faulty masks"),
          el("p", { class: "soft" },
            "Each example is a mask file that one wrong line of code produced. Choose an example and read its diagnosis."),
          this.examples)),
      this.catalogue.root);
  }

  /** Builds the area where the user drops or chooses a file. */
  buildZone() {
    const id = uid("file");
    this.input = el("input", {
      id, type: "file", class: "hidden-text", accept: ".npy,.npz,.safetensors", tabindex: -1,
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
    button("Choose a file", () => this.input.click(), { class: "primary" }),
    el("label", { for: id, class: "hidden-text" }, "A mask in a file"), this.input, this.dropped);
    return this.zone;
  }

  exampleRow(example) {
    return el("li", {},
      el("button", {
        type: "button", class: "card doctor-example-row", dataset: { example: example.id }, "aria-pressed": "false",
        onclick: () => this.tryExample(example),
      }, el("strong", {}, example.title), el("span", {}, example.says), el("code", {}, example.code)));
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

  /** Reads a file that the user dropped or chose. */
  async take(file) {
    this.input.value = "";
    if (!KINDS.test(file.name)) return this.fail({ message: `${file.name} is not an array file: give .npy, .npz or .safetensors.` });
    if (file.size > MOST_BYTES) return this.fail({ message: `${file.name} has ${inBytes(file.size)}: the limit is 64 MiB.` });
    let bytes;
    try {
      bytes = new Uint8Array(await file.arrayBuffer());
    } catch {
      return this.fail({ message: `${file.name} cannot be read.` });
    }
    const cleared = this.declaredForAnother(file) ? { context: undefined, meant: undefined } : {};
    keep({ name: file.name, bytes, modified: file.lastModified });
    this.asked = null;
    this.change({ example: undefined, file: file.name, cell: undefined, at: undefined, ...cleared }, { replace: false });
    this.update(this.ctx.state.get());
  }

  /** Returns whether the current declarations belong to another file: to an example, or to a file that was dropped earlier. */
  declaredForAnother({ name, size, lastModified }) {
    const { example, context, meant, file } = settings(this.ctx.state.get());
    if (Object.keys(context).length === 0 && meant === "") return false;
    const before = kept.get(file);
    const differs = before && (before.bytes.length !== size || before.modified !== lastModified);
    const another = example !== null || before?.made || (file !== null && file !== name);
    // A file of the same name counts as a new version of the file: its declarations stay, and a note reports this.
    if (differs && !another) this.ctx.toast(`${name} has changed: its earlier declarations still apply.`);
    if (another) this.ctx.toast(`The declarations for ${this.file?.name ?? file} are cleared: declare the properties of ${name}.`);
    return another;
  }

  /** Loads the file of an example and diagnoses it, if the example is still chosen. */
  async open({ id: example, name }) {
    try {
      const bytes = await this.ctx.api.example(name);
      if (this.set.example !== example) return;
      this.file = { name, bytes, example };
      this.update(this.ctx.state.get());
    } catch (error) {
      this.fail(error);
    }
  }

  tryExample({ id: example, context }) {
    this.ctx.state.set({ doctor: { example, context } });
  }

  /** Opens the example of a class of mistakes: adds a file with the faulty mask of the example, and diagnoses this file. */
  async tryClass({ name, example: { wrong, shape } }, context) {
    try {
      const { api } = this.ctx;
      const { id: mask } = await api.masks({ mask: wrong, shape });
      const file = await api.exportedBlob(mask, { as: "npy" });
      keep({ name: `${name}.npy`, bytes: new Uint8Array(await file.arrayBuffer()), made: true });
    } catch (error) {
      return this.fail(error);
    }
    this.asked = null;
    this.ctx.state.set({ doctor: { file: `${name}.npy`, context, open: name } });
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

  update(state) {
    this.set = settings(state);
    const { example, context, meant, file } = this.set;
    const chosen = EXAMPLES.find((one) => one.id === example);
    if (!chosen) this.file = kept.get(file) ?? null;
    else if (this.file?.example !== example) return this.open(chosen);
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
      this.giveUp();
      this.fail(null);
      this.tell();
    } else if (asked !== this.asked) {
      const typing = this.asked !== null;
      this.asked = asked;
      if (typing) this.ask();
      else this.ask.now();
    } else if (this.report) {
      this.picture.draw(this.set);
    }
  }

  tellFile() {
    const { file } = this.set;
    const lost = !this.file && file;
    this.dropped.className = lost ? "doctor-dropped notice warn" : "doctor-dropped";
    this.dropped.textContent = this.file
      ? `${this.file.name}, ${inBytes(this.file.bytes.length)}${this.file.example ? ", an example" : ""}`
      : lost ? `This link was made with ${file}. A link cannot carry a file: drop the file here again.` : "";
  }

  async send() {
    const { context, meant } = this.set;
    const { name, bytes } = this.file;
    const send = (signal) => this.ctx.api.doctor(bytes, { name, context, meant: meant || undefined, signal });
    const answered = (report) => {
      this.report = report;
      this.fail(null);
      this.tell();
    };
    const refused = (error) => {
      this.report = null;
      this.tell();
      this.fail(error);
    };
    await this.askAlone(this.root, send, answered, refused);
  }

  fail(error) {
    const inMeant = error?.start !== null && error?.start !== undefined;
    this.editor.setError(inMeant ? error : null);
    this.problem.hidden = !error;
    this.problem.textContent = errorWords(error);
  }

  // --- display ------------------------------------------------------------------------------------------------------------------

  tell() {
    const { report } = this;
    this.root.classList.toggle("diagnosed", report !== null);
    this.picture.take(report, this.file, this.set);
    if (!report) {
      fill(this.reported);
      this.status.textContent = "";
      return;
    }
    fill(this.reported, reportOf(report, this.titles, {
      onCell: (cell) => this.picture.pick(cell),
      onClass: (name) => {
        this.catalogue.open(name);
        this.change({ open: name });
      },
      onMeant: (meant) => (meant ? this.change({ meant }) : this.editor.input.focus()),
    }));
    this.status.textContent = `${verdictInWords(report)}. ${plural(report.findings.length, "finding")}.`;
  }
}
