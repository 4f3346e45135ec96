// An editor for the mask language: a textarea over a coloured mirror of its text, with completions, errors at their positions, and the
// documentation at the caret.

import { Completions } from "./completions.js";
import { el, fill, inline, prose, uid } from "../base/dom.js";
import { atomAt, coloured, complete, joining } from "./language.js";

const COLOURED = 32_768; // characters up to which a text is coloured and completed: twice what the server reads
const REST = 450; // ms without a keystroke until an error is shown, because unfinished text is often invalid

/**
 * The editor of a mask. `labels()` returns the labels that completions offer. `onInput(text)` is called when the user types. `docs` is an
 * optional element that shows the documentation at the caret. `placeholder` is shown while the editor is empty.
 */
export class Editor {
  #language;
  #labels;
  #onInput;
  #docs;
  #mirror = el("pre", { class: "mirror", "aria-hidden": "true" });
  #wrong = el("div", { class: "editor-error", id: uid("error"), hidden: true });
  #completions;
  #error = null;
  #documented;
  #visited = false; // the documentation is shown after the editor first has the focus; until then, the controls beneath take its place
  #typed = -REST;
  #telling = 0;
  #inserting = false;

  constructor({ label, language, labels = () => [], onInput, docs, placeholder = "" }) {
    this.#language = language;
    this.#labels = labels;
    this.#onInput = onInput;
    this.#docs = docs;
    this.input = el("textarea", {
      class: "code",
      rows: "1",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      autocorrect: "off",
      placeholder,
      "aria-label": label,
      "aria-describedby": this.#wrong.id,
      oninput: (event) => this.#changed(event),
      onkeydown: (event) => this.#key(event),
      onkeyup: () => this.#document(),
      onpointerup: () => this.#document(),
      onblur: () => this.#completions.offer(null),
      onfocus: () => {
        this.#visited = true;
        this.#document();
      },
    });
    this.#completions = new Completions(this.input, this.#mirror, (item, { from, to }) =>
      this.#replace(from, to, item.insert, item.caret),
    );
    const box = el("div", { class: "editor-box" }, this.#mirror, this.input, this.#completions.element);
    this.element = el("div", { class: "editor" }, box, this.#wrong);
    this.#paint();
  }

  value() {
    return this.input.value;
  }

  setValue(text) {
    if (this.input.value === text) return;
    this.input.value = text;
    this.#error = null;
    this.#showError();
    this.#paint();
    this.#document();
  }

  /**
   * Shows the error `{message, hint, start, end, actions, reveal}` in the editor. `actions` are elements below the message; `reveal()` is
   * called when the error appears. Null removes the error.
   */
  setError(error) {
    this.#error = error;
    clearTimeout(this.#telling);
    const wait = this.#typed + REST - performance.now();
    if (error && wait > 0) this.#telling = setTimeout(() => this.#showError(), wait);
    else this.#showError();
    this.#paint();
  }

  /** Inserts a mask at the caret, with the operator `&` between the mask and its neighbours where there is none. A selection is replaced. */
  insert(text) {
    this.input.focus();
    const { selectionStart: from, selectionEnd: to, value } = this.input;
    const joined = joining(value, from, to, text);
    this.#replace(from, to, joined.text, joined.caret);
  }

  /** Inserts a part of a mask, such as an operator, at the caret without change. A selection is replaced. */
  type(text) {
    this.input.focus();
    this.#replace(this.input.selectionStart, this.input.selectionEnd, text);
  }

  /** Replaces the whole text, as if the user had typed it: undo restores the old text. */
  retype(text) {
    this.input.focus();
    this.#replace(0, this.input.value.length, text);
  }

  /** Focuses the editor and selects the part of the text that has an error. */
  focusError() {
    this.input.focus();
    const { start, end } = this.#error ?? {};
    if (Number.isInteger(start)) this.input.setSelectionRange(start, Math.max(end ?? start, start));
  }

  focus() {
    this.input.focus();
  }

  get #long() {
    return this.input.value.length > COLOURED;
  }

  #paint() {
    const text = this.input.value;
    const error = this.#error;
    const spans = [];
    const bad = error && error.start !== null ? [error.start, Math.max(error.end ?? 0, error.start + 1)] : null;
    for (const token of this.#long ? [{ kind: "sign", start: 0, end: text.length }] : coloured(text, this.#language)) {
      for (const [from, to] of cuts(token, bad)) {
        const squiggled = bad && from >= bad[0] && from < bad[1];
        spans.push(el("span", { class: `t-${token.kind}${squiggled ? " t-bad" : ""}` }, text.slice(from, to)));
      }
    }
    if (bad && bad[0] >= text.length) spans.push(el("span", { class: "t-bad" }, " "));
    fill(this.#mirror, spans, "\n");
  }

  #document() {
    if (!this.#docs || !this.#visited) return;
    const atom = this.#long ? null : atomAt(this.input.value, this.input.selectionStart, this.#language);
    if (atom === this.#documented) return;
    this.#documented = atom;
    fill(this.#docs, atom ? documentation(atom, (example) => this.insert(example)) : null);
    this.#docs.hidden = !atom;
  }

  #replace(from, to, text, caret = text.length) {
    this.input.setSelectionRange(from, to);
    // Unlike setRangeText, this command keeps the browser's undo. It sends the event `input` itself.
    this.#inserting = true;
    const done = text === "" && from === to ? true : document.execCommand(text === "" ? "delete" : "insertText", false, text);
    this.#inserting = false;
    if (!done) this.input.setRangeText(text, from, to, "end");
    this.input.setSelectionRange(from + caret, from + caret);
    if (!done) this.input.dispatchEvent(new Event("input"));
    this.#document();
  }

  #offer(all) {
    const { value, selectionStart } = this.input;
    this.#completions.offer(this.#long ? null : complete(value, selectionStart, this.#language, this.#labels(), { all }));
  }

  #changed(event) {
    if (this.#error) {
      this.#error = null;
      this.#showError();
    }
    this.#typed = performance.now();
    this.#paint();
    this.#document();
    this.#onInput?.(this.input.value);
    if (event.isTrusted && !this.#inserting) this.#offer(false);
  }

  #key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.#offer(true);
    } else if (this.#completions.key(event.key)) {
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "Enter") {
      event.preventDefault(); // a mask is one line
    }
  }

  #showError() {
    const error = this.#error;
    clearTimeout(this.#telling);
    this.#wrong.hidden = !error;
    this.input.setAttribute("aria-invalid", String(Boolean(error)));
    fill(
      this.#wrong,
      error && [
        el("p", { class: "says" }, inline(error.message)),
        error.hint && el("p", { class: "hint" }, inline(error.hint)),
        error.actions?.length > 0 && el("div", { class: "repairs" }, error.actions),
      ],
    );
    error?.reveal?.();
  }
}

/**
 * Splits a token at the positions where the faulty part `bad` of the text begins and ends, so that this part can be marked. Returns pairs
 * `[start, end]`.
 */
function cuts({ start, end }, bad) {
  const at = [start, ...(bad ?? []).filter((place) => place > start && place < end), end];
  return at.slice(1).map((to, i) => [at[i], to]);
}

/** Returns the elements that document an atom. `onExample` is called when the user chooses the example. */
export function documentation(atom, onExample) {
  return [
    atom.picture &&
      el("img", {
        class: "docs-picture",
        alt: `Picture of ${atom.example}`,
        width: "88",
        height: "102",
        src: URL.createObjectURL(new Blob([atom.picture], { type: "image/svg+xml" })),
        onload: ({ target }) => URL.revokeObjectURL(target.src),
      }),
    el("p", {}, el("code", { class: "docs-title" }, atom.title.replace(/`/g, ""))),
    prose(atom.doc ?? ""),
    atom.params?.length > 0 &&
      el(
        "dl",
        { class: "params" },
        atom.params.map((param) => [el("dt", {}, el("code", {}, param.name)), el("dd", {}, inline(param.what))]),
      ),
    atom.example &&
      el(
        "p",
        { class: "small soft" },
        "Example: ",
        el(
          "button",
          { type: "button", class: "example", title: "Insert", onclick: () => onExample(atom.example) },
          el("code", {}, atom.example),
        ),
      ),
  ];
}
