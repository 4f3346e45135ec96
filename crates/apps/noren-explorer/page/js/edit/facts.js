// The controls of shape and facts. Facts without a control of their own are edited as JSON.

import { button } from "../base/dialog.js";
import { el, fill, number } from "../base/dom.js";
import { defined } from "../base/facts-made.js";
import { openPaste } from "./facts-paste.js";
import { field, labelFields, segments } from "./fields.js";
import { readCount, readOffsets, readRows, writeRows } from "./lists.js";

const LONGEST = 1 << 20; // maximum of the slider; the field takes more
const OWN = ["lengths", "side", "documents", "labels", "levels"];

const KINDS = { self: "Self", cross: "Cross", decode: "Decode" };
const kindOf = (shape) => ("q" in shape || "kv" in shape ? "cross" : "past" in shape || "new" in shape ? "decode" : "self");

/**
 * The controls for the shape, the facts and the layer of a mask. When the user changes a control, `onChange` is called with `{shape}`,
 * `{facts}` or `{layer}`; after a paste, one call may have several of these fields, and also `mask`. `mask()` returns the text of the mask
 * that uses the facts, or null if there are several masks.
 */
export class Facts {
  #onChange;
  #now = { shape: {}, facts: {}, layer: null };
  #controls = []; // functions that show the shown and the bound values in a control
  #places = new Map(); // name of a control -> its element, for `open`

  constructor({ onChange, mask = () => null }) {
    this.#onChange = onChange;
    const paste = () => openPaste({ mask: mask(), shape: this.#now.shape, onUse: onChange });
    this.element = el(
      "div",
      { class: "facts" },
      this.#shape(),
      this.#padding(),
      this.#documents(),
      this.#labels(),
      this.#others(),
      el("p", { class: "facts-paste" }, button("Paste an array", paste)),
    );
  }

  /** Shows the values of the state in the controls. `bound` is the answer of POST /api/masks, which has the assumptions, or null. */
  update({ shape, facts, layer }, bound = null) {
    this.#now = { shape: shape ?? {}, facts: facts ?? {}, layer: layer ?? null };
    for (const show of this.#controls) show(this.#now, bound);
  }

  /**
   * Opens the control with a name, such as `lengths` or `len`. Focuses it if `focus` is true, and scrolls to it if `scroll` is true. Returns
   * false if there is no such control.
   */
  open(name, { focus = true, scroll = true } = {}) {
    const control = this.#places.get(name);
    if (!control) return false;
    control.closest("details").open = true;
    const target = control.matches("input, textarea") ? control : (control.querySelector("input, textarea, [aria-pressed=true]") ?? control.querySelector("button"));
    if (focus) {
      target.focus({ preventScroll: true });
      target.select?.();
      if (scroll) target.scrollIntoView({ block: "center" });
    }
    return true;
  }

  /** Opens and marks the control with a name as the cause of an error. Takes the focus, unless the user may be typing in a text field. */
  blame(name) {
    const typing = document.activeElement?.matches("input, textarea, select");
    if (this.open(name, { focus: !typing, scroll: false })) this.mark(name);
  }

  /** Marks the control with a name as the cause of an error. Null removes the mark. */
  mark(name) {
    for (const [own, control] of this.#places) control.closest(".field, .segments, .labels").classList.toggle("asked", own === name);
  }

  #setShape(patch) {
    this.#onChange({ shape: defined({ ...this.#now.shape, ...patch }) });
  }

  #setFacts(patch) {
    this.#onChange({ facts: defined({ ...this.#now.facts, ...patch }) });
  }

  /**
   * Returns controls that the user can show or hide by a click on their title. The line of the title also shows the text that
   * `says(values)` returns.
   */
  #fold(title, says, children, open = false) {
    const note = el("span", { class: "note" });
    this.#controls.push((now) => {
      note.textContent = says(now) ?? "";
    });
    return el("details", { class: "fold", open }, el("summary", {}, title, note), children);
  }

  /**
   * Returns a field of the controls. `write(values)` returns the text of the field for the values of the state; the text is not replaced
   * while the user is typing in the field. The other parameters are those of `field`.
   */
  #field(label, { write, read, set, hint, tag = "input", name, ...props }) {
    const input = el(tag, { type: tag === "input" && "text", autocomplete: "off", spellcheck: "false", dataset: { control: name }, ...props });
    this.#places.set(name, input);
    const { element, show } = field(label, input, { read, set, hint });
    this.#controls.push((now) => show(write(now) ?? ""));
    return element;
  }

  #count(label, key) {
    return this.#field(label, {
      name: key,
      inputmode: "numeric",
      read: (text) => (text === "" ? undefined : readCount(text.replace(/,/g, ""))),
      write: ({ shape }) => shape[key],
      set: (value) => this.#setShape({ [key]: value }),
    });
  }

  #list(label, key, hint) {
    return this.#field(label, {
      name: key,
      hint,
      read: (text) => readRows(text) ?? undefined,
      write: ({ facts }) => writeRows(facts[key]),
      set: (value) => this.#setFacts({ [key]: value }),
      class: "code",
    });
  }

  #shape() {
    const byKind = {
      self: el("div", { class: "length" }, this.#count("Length", "len"), this.#slider()),
      cross: el("div", { class: "fields" }, this.#count("Queries", "q"), this.#count("Keys", "kv"), this.#offset()),
      decode: el("div", { class: "fields" }, this.#count("Cached keys", "past"), this.#count("New queries", "new")),
    };
    const kinds = segments(KINDS, "Kind of attention", (kind) => this.#setKind(kind));
    this.#places.set("kind", kinds.element);
    this.#controls.push(({ shape }) => {
      const kind = kindOf(shape);
      kinds.choose(kind);
      for (const [name, group] of Object.entries(byKind)) group.hidden = name !== kind;
    });
    const counts = [this.#count("Batch", "batch"), this.#count("Heads", "heads"), this.#count("KV heads", "kv_heads")];
    return this.#fold(
      "Shape",
      ({ shape }) => summary(shape),
      [kinds.element, Object.values(byKind), el("div", { class: "fields three" }, counts), this.#assumed()],
      true,
    );
  }

  #setKind(kind) {
    const { len, kv, batch, heads, kv_heads } = this.#now.shape;
    const length = len ?? kv ?? 64;
    const sizes = {
      self: { len: length },
      cross: { q: Math.max(1, Math.round(length / 2)), kv: length },
      decode: { past: Math.max(0, length - 4), new: Math.min(4, length) },
    }[kind];
    this.#onChange({ shape: defined({ ...sizes, batch, heads, kv_heads }) });
  }

  /** Returns a slider for the length, with logarithmic steps. The field beside the slider accepts any number. */
  #slider() {
    const slider = el("input", {
      type: "range",
      min: "0",
      max: "20",
      step: "0.25",
      "aria-label": "Length, on a logarithmic slider",
      oninput: () => this.#setShape({ len: Math.min(LONGEST, nice(2 ** Number(slider.value))) }),
    });
    this.#controls.push(({ shape: { len = 16 } }) => {
      slider.value = String(Math.log2(Math.max(1, Number(len) || 1)));
      slider.setAttribute("aria-valuetext", `${number(len)} tokens`);
    });
    return slider;
  }

  #offset() {
    const read = (text) => {
      const offsets = readOffsets(text);
      return offsets.length > 1 ? offsets : offsets[0];
    };
    return this.#field("Query offset", {
      name: "query_offset",
      hint: "the position of the first query",
      read,
      write: ({ shape }) => [shape.query_offset ?? ""].flat().join(", "),
      set: (value) => this.#setShape({ query_offset: value }),
    });
  }

  #assumed() {
    const assumed = el("p", { class: "small soft assumed", hidden: true });
    this.#controls.push((_, bound) => {
      const note = bound?.assumed ?? [];
      assumed.hidden = note.length === 0;
      fill(
        assumed,
        "Assumed, because it is not given: ",
        note.map(assumedInWords).join(", "),
      );
    });
    return assumed;
  }

  #padding() {
    const sides = segments({ right: "Right", left: "Left" }, "Side of the padding", (side) =>
      this.#setFacts({ side: side === "right" ? undefined : side }),
    );
    this.#controls.push(({ facts }) => sides.choose(facts.side === "left" ? "left" : "right"));
    return this.#fold("Lengths and padding", ({ facts }) => writeRows(facts.lengths), [
      this.#list("Number of non-padding tokens of each batch row", "lengths", "for example 5, 3"),
      el("div", { class: "field row" }, el("span", {}, "Side of the padding"), sides.element),
    ]);
  }

  #documents() {
    return this.#fold(
      "Documents",
      ({ facts }) => writeRows(facts.documents),
      this.#list("Lengths of packed documents", "documents", "for example 33, 31 for one batch row, or 33, 31; 64 for two batch rows"),
    );
  }

  #labels() {
    const fields = labelFields((labels) => this.#setFacts({ labels: Object.keys(labels).length ? labels : undefined }));
    this.#places.set("labels", fields.element);
    this.#controls.push(({ facts }) => fields.show(labelsOf(facts)));
    return this.#fold("Labels and levels", ({ facts }) => Object.keys(labelsOf(facts)).join(", "), [
      fields.element,
      this.#list("Clearance level of each position", "levels", "one number for each token, for example 0, 0, 2"),
    ]);
  }

  #others() {
    return this.#fold("Other facts", ({ facts }) => Object.keys(others(facts)).join(", "), [
      this.#field("Facts as JSON", {
        name: "facts",
        tag: "textarea",
        class: "code",
        rows: "3",
        hint: "arrays, positions, real_keys, …",
        read: readObject,
        write: ({ facts }) => (Object.keys(others(facts)).length ? JSON.stringify(others(facts)) : ""),
        set: (rest) => this.#onChange({ facts: defined({ ...pick(this.#now.facts, OWN), ...rest }) }),
      }),
      this.#field("Layer", {
        name: "layer",
        inputmode: "numeric",
        hint: "index of the layer, for a mask text with layers(...)",
        read: (text) => (text === "" ? null : readCount(text)),
        write: ({ layer }) => layer,
        set: (layer) => this.#onChange({ layer }),
      }),
    ]);
  }
}

/** Returns an assumed size, such as `len 16` or `q 4 kv 12`, in the words of the controls. */
export function assumedInWords(said) {
  const words = { len: "length", q: "queries", kv: "keys", batch: "batch rows", heads: "heads" };
  return said.replace(/(\w+) (\d+)/g, (_, name, size) => (name === "len" ? `length ${number(size)}` : `${number(size)} ${words[name] ?? name}`));
}

function readObject(text) {
  const value = text ? JSON.parse(text) : {};
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("expected a JSON object: {…}");
  return value;
}

const pick = (given, keys) => Object.fromEntries(Object.entries(given).filter(([key]) => keys.includes(key)));
const others = (given) => Object.fromEntries(Object.entries(given).filter(([key]) => !OWN.includes(key)));
const labelsOf = (given) =>
  given.labels && typeof given.labels === "object" && !Array.isArray(given.labels) ? given.labels : {};

// Round lengths between powers of two: a length such as 1.19 * 2^n would be unusual.
const nice = (length) =>
  length < 16
    ? Math.round(length)
    : Math.round(length / 2 ** (Math.floor(Math.log2(length)) - 2)) * 2 ** (Math.floor(Math.log2(length)) - 2);

function summary(shape) {
  const sizes = {
    self: () => `${number(shape.len ?? 16)} tokens`,
    cross: () => `${number(shape.q ?? 0)} × ${number(shape.kv ?? 0)}`,
    decode: () => `${number(shape.past ?? 0)} + ${number(shape.new ?? 0)}`,
  };
  const rest = [shape.batch > 1 && `batch ${shape.batch}`, shape.heads > 1 && `${shape.heads} heads`].filter(Boolean);
  return [sizes[kindOf(shape)](), ...rest].join(", ");
}
