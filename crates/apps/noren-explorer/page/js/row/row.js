// One row of attention in numbers: scores, masked scores, exponentials, weights and the weighted sum of one query, step by step.

import { errorWords } from "../base/api.js";
import { button } from "../base/dialog.js";
import { el, fill, saveAs, total } from "../base/dom.js";
import { Latest } from "../base/latest.js";
import { field, labelled, segments } from "../edit/fields.js";
import { rowPicture } from "./picture.js";
import { cover, SIDE } from "../picture/tiles.js";
import { ink } from "../base/theme.js";
import { attentionRow, MOST_KEYS, readNumbers } from "./source.js";
import { decimals, numbersOf, rowInWords, shownWord, STEPS, vector } from "./words.js";

/** The number that many programs add to the scores of hidden keys in place of minus infinity. */
const FINITE = -1e9;
const FILLS = { exclude: "Hidden scores: −∞", finite: "−1e9 added" };
const SOURCES = { model: "A model’s text", typed: "Typed numbers" };
/** The maximum number of components of a vector that the table shows. */
const SHOWN = 4;

/**
 * A panel that shows the attention of one query (a row of a mask) in numbers. `onQuery(q)` is called when the user chooses another query,
 * and `onOff(keys)` when the user switches keys off or on. `onSource(name)` is called when the user chooses between the numbers of the
 * model and typed numbers; without `onSource`, the panel offers no such choice. `onTyped({scores, values})` is called after the user typed
 * valid numbers.
 */
export class RowPanel {
  #request = new Latest();
  #step = STEPS.length - 1;
  #fill = null;
  #source = null; // the last argument of `show`
  #row = null;
  #plain = null; // the same row with all keys switched on, if keys are switched off
  #boxes = []; // the checkboxes of the keys

  constructor({ api, ...on }) {
    this.api = api;
    this.on = on;
    this.#build();
  }

  #build() {
    this.query = el("input", {
      type: "number", min: 0,
      onchange: () => this.query.value !== "" && this.query.validity.valid && this.on.onQuery(Number(this.query.value)),
    });
    const beside = (label, by) => button(label, () => this.on.onQuery(this.#source.q + by), { class: "row-turn" });
    this.previous = beside("Previous query", -1);
    this.next = beside("Next query", 1);
    this.sources = segments(SOURCES, "Numbers", (name) => this.on.onSource?.(name));
    this.fills = segments(FILLS, "Hidden scores", (name) => {
      this.#fill = name === "finite" ? FINITE : null;
      this.#ask();
    });
    this.fills.choose("exclude");
    this.#buildTyped();
    this.steps = segments(Object.fromEntries(STEPS.map(({ title }, at) => [at, `${at + 1}. ${title}`])), "Steps", (at) => this.#go(Number(at)));
    this.back = button("Previous step", () => this.#go(this.#step - 1));
    this.forth = button("Next step", () => this.#go(this.#step + 1));
    this.says = el("p", { class: "row-step-says", "aria-live": "polite" });
    this.note = el("p", { class: "soft small", hidden: true });
    this.told = el("p", { class: "row-told", role: "status" });
    this.wrong = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.body = el("tbody");
    this.foot = el("tfoot");
    this.headers = ["Key", "Score", "Masked", "Exponential", "Weight", "Weight × value"].map((name) => el("th", { scope: "col" }, name));
    this.table = el("table", { class: "figures row-table" }, el("caption", { class: "hidden-text" }, "The attention row, key by key"),
      el("thead", {}, el("tr", {}, this.headers)), this.body, this.foot);
    this.figure = el("figure", { class: "row-figure", tabindex: 0, "aria-label": "The attention row as a picture" });
    this.allOn = button("Switch all keys on", () => this.on.onOff([]), { class: "plain" });
    this.save = button("Save the picture (SVG)", () => this.#save());
    this.element = el("div", { class: "row-panel" },
      el("div", { class: "row-bar row-query" },
        labelled("Query", this.query, { row: true }), this.previous, this.next,
        this.on.onSource && this.sources.element, this.fills.element),
      this.typed, this.note, this.wrong,
      (this.content = el("div", { class: "row-content" },
        el("div", { class: "row-bar" }, el("div", { class: "row-steps" }, this.steps.element), this.back, this.forth),
        this.says, this.told,
        el("div", { class: "row-both" },
          el("div", { class: "row-left" }, el("div", { class: "scroll row-scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the attention row" }, this.table), this.allOn),
          el("div", { class: "row-right" }, this.figure, this.save)))));
    this.#go(this.#step);
  }

  #buildTyped() {
    const line = (label, name) => {
      const input = el("input", { type: "text", class: "code", autocomplete: "off", spellcheck: "false" });
      const read = (text) => readNumbers(text, this.#source.kvLen);
      const set = (numbers) => this.on.onTyped?.({ [name]: numbers });
      return { name, ...field(label, input, { read, set, undo: () => "go back to the valid numbers" }) };
    };
    this.fields = [line("Scores, one for each key", "scores"), line("Values, one for each key", "values")];
    this.typed = el("div", { class: "row-typed", hidden: true }, this.fields.map(({ element }) => element));
  }

  /**
   * Shows the attention of one query. `source` has the id, `qLen`, `kvLen` and text `mask` of a bound mask, the batch row, the head and the
   * query `q`, the keys `off` that are switched off, `words` with the words of `queries` and `keys` (or null), `numbers` with `scores`,
   * `values` and `sink` (null while they are loading), the name `from` of the numbers' source (`model` or `typed`), and a `note` about the
   * numbers.
   */
  show(source) {
    this.#source = source;
    const { q, qLen, kvLen, from, numbers, note } = source;
    this.query.max = qLen - 1;
    if (document.activeElement !== this.query || !this.query.validity.valid) this.query.value = q;
    this.previous.disabled = q <= 0;
    this.next.disabled = q >= qLen - 1;
    this.sources.choose(from);
    this.typed.hidden = from !== "typed";
    for (const { name, show } of this.fields) show((numbers?.[name] ?? []).map((entry) => [entry].flat()[0]).join(", "));
    this.note.hidden = !note;
    this.note.textContent = note ?? "";
    if (kvLen > MOST_KEYS) return this.#fail(`A row is shown in numbers for masks of at most ${MOST_KEYS} keys: this mask has ${kvLen}.`);
    return this.#ask();
  }

  /** Shows a message in place of the row. */
  #fail(message) {
    this.#request.stop();
    this.wrong.hidden = false;
    this.wrong.textContent = message;
    this.content.hidden = true;
    delete this.element.dataset.settled;
  }

  #ask() {
    this.#request.stop();
    const source = this.#source;
    if (!source?.numbers) return;
    delete this.element.dataset.settled;
    const { id, q, batch, head, off, numbers } = source;
    const send = (signal) => this.api.tile(id, 0, Math.floor(q / SIDE), 0, { batch, head, signal });
    const answered = ({ cells, cols, firstQuery }) => {
      const allowed = Array.from({ length: cols }, (_, key) => cover(cells[(q - firstQuery) * cols + key]) === 2);
      this.#row = attentionRow(numbers, allowed.map((read, key) => read && !off.includes(key)), this.#fill);
      this.#plain = off.length > 0 ? attentionRow(numbers, allowed, this.#fill) : null;
      this.wrong.hidden = true;
      this.content.hidden = false;
      this.#paint();
      this.element.dataset.settled = `${id} ${q}`;
    };
    this.#request.ask(send, answered, (error) => this.#fail(errorWords(error)));
  }

  #go(step) {
    this.#step = Math.min(Math.max(step, 0), STEPS.length - 1);
    this.steps.choose(String(this.#step));
    this.back.disabled = this.#step === 0;
    this.forth.disabled = this.#step === STEPS.length - 1;
    this.says.textContent = STEPS[this.#step].says;
    if (this.#row) this.#paint();
  }

  #name() {
    const { q, words } = this.#source;
    return `query ${q}${words?.queries?.[q] === undefined ? "" : ` ${shownWord(words.queries[q])}`}`;
  }

  #paint() {
    const row = this.#row;
    const { off, words, mask, kvLen } = this.#source;
    const step = this.#step;
    this.headers.forEach((header, at) => header.classList.toggle("row-later", at > step + 1));
    const active = this.#boxes.indexOf(document.activeElement); // the checkbox that has the focus is made again
    this.#boxes = [];
    const line = (key) => this.#line(key, { row, plain: this.#plain, off, word: words?.keys?.[key], step });
    fill(this.body, Array.from({ length: kvLen }, (_, key) => line(key)));
    if (active >= 0) this.#boxes[active]?.focus();
    const later = (at) => (at > step ? "row-later" : null);
    const last = row.sum.length > 0 ? vector(row.sum, SHOWN) : "–";
    fill(this.foot,
      row.sink > 0 && el("tr", {}, el("th", { scope: "row" }, "Sink"), el("td"), el("td"), el("td", { class: later(2) }, decimals(row.sink)), el("td"), el("td")),
      el("tr", {}, el("th", { scope: "row" }, "Sum"), el("td"), el("td"),
        el("td", { class: later(2) }, decimals(row.denominator)), el("td", { class: later(3) }, decimals(total(row.weights), 4)),
        el("td", { class: later(4), dataset: { sum: JSON.stringify(row.sum) } }, last)));
    this.told.textContent = sentenceCase(rowInWords(row, { query: this.#name(), fill: this.#fill }));
    this.told.classList.toggle("warning", row.empty);
    this.allOn.hidden = off.length === 0;
    const keys = Array.from({ length: kvLen }, (_, key) => words?.keys?.[key]);
    fill(this.figure, rowPicture(row, { query: this.#name(), keys, mask: [mask, ...off.map((key) => `key ${key} off`)].join(" · "), step }));
  }

  #line(key, { row, plain, off, word, step }) {
    const read = row.allowed[key];
    const isOff = off.includes(key);
    const hidden = !read && !isOff;
    const box = el("input", {
      type: "checkbox", "aria-label": `Key ${key} ${shownWord(word)}`.trim(),
      title: hidden ? "The mask hides this key" : "Switch the key off or on",
      onchange: () => this.on.onOff(isOff ? off.filter((other) => other !== key) : [...off, key].sort((a, b) => a - b)),
    });
    box.checked = read;
    box.disabled = hidden;
    this.#boxes.push(box);
    const cells = numbersOf(row, key, SHOWN).map((words, at) => el("td", { class: at > step ? "row-later" : null }, words));
    cells[3].dataset.weight = row.weights[key];
    if (plain && plain.weights[key] !== row.weights[key]) {
      cells[3].prepend(el("span", { class: "soft row-was" }, `${decimals(plain.weights[key], 4)} → `));
    }
    return el("tr", { class: read ? null : "row-hidden", dataset: { key } },
      el("th", { scope: "row" }, el("label", { class: "check" }, box, el("span", {}, `${key}`), word !== undefined && el("span", { class: "row-word" }, shownWord(word)))), cells);
  }

  #save() {
    const picture = this.figure.querySelector("svg");
    if (!picture) return;
    // The file has all of its colours, so that it looks the same in other programs.
    const source = new XMLSerializer().serializeToString(picture).replace(/var\(--([\w-]+)\)/g, (_, name) => ink(name));
    saveAs(new Blob([source], { type: "image/svg+xml" }), `attention-query-${this.#source.q}.svg`);
  }

  close() {
    this.#request.stop();
  }
}

const sentenceCase = (words) => words[0].toUpperCase() + words.slice(1);
