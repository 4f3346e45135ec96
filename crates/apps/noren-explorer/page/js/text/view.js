// The text view: the attention of a model over a text, private text, hidden text, and the proof.

import { AskingView } from "../base/asking-view.js";
import { MaskCanvas } from "../picture/canvas.js";
import { commandFold, textCommand } from "../base/command.js";
import { button } from "../base/dialog.js";
import { debounce, el, fill, plural } from "../base/dom.js";
import { Editor } from "../edit/editor.js";
import { labelled } from "../edit/fields.js";
import { HeatMap } from "./heat.js";
import { openLink } from "./link.js";
import { guessesOf, privateOf, proofOf } from "./outcome.js";
import { request, settings, wordsOf } from "./settings.js";
import { paintError, repairable } from "../base/repairs.js";
import { Strip } from "./strip.js";
import { readsInWords, Words } from "./words.js";
import { TextRow } from "./row.js";

export const id = "text";
export const title = "Text";

/** A placeholder for the description of the model, until the server has sent the description. */
const NOBODY = { layers: 1, heads: 1, kinds: [], example: "" };

export class View extends AskingView {
  constructor(ctx) {
    super(ctx, id);
    this.model = NOBODY;
    this.answer = null;
    this.asked = null;
    this.ask = debounce(() => this.send(), 250);
    this.build();
    this.meet();
  }

  build() {
    this.guesses = el("div", { class: "text-guesses" });
    this.root = el("div", { class: "text" },
      el("header", { class: "text-head" }, el("h1", {}, "What a model may read"),
        el("p", { class: "soft" },
          "Private text is found and can be hidden in every layer. A test compares all outputs, and a certificate of the masks proves that it stays hidden.")),
      el("div", { class: "text-side" }, this.buildAsk(), panel("text-says", "The model’s prediction", this.guesses)),
      this.buildSeen());
  }

  /** Builds the inputs for the text, the hidden words, the mask, the layer and the head. */
  buildAsk() {
    const change = (patch, options) => this.change(patch, options);
    // Without `autocomplete: "off"`, browsers store the contents of fields on disk, to restore them with a closed window.
    this.text = el("textarea", {
      id: "text-own", rows: 6, spellcheck: "false", autocomplete: "off", oninput: () => change({ text: this.text.value, word: undefined, token: undefined, off: undefined }),
    });
    this.kinds = el("div", { class: "text-hide" });
    this.own = el("input", {
      type: "text", autocomplete: "off", placeholder: "Bingley, Netherfield",
      oninput: () => change({ words: wordsOf(this.own.value) }),
    });
    this.editor = new Editor({
      label: "Mask", language: this.ctx.language, placeholder: "the model’s own",
      labels: () => [...this.model.kinds, "word", "private"], onInput: (mask) => change({ mask }),
    });
    this.layer = stepper("Layer", (layer) => change({ layer }));
    this.head = stepper("Head", (head) => change({ head }));
    this.who = el("p", { class: "soft small" });
    this.command = commandFold(this.ctx.toast);
    const link = button("Link to this view", () => openLink(this.ctx, this.set));
    return el("div", { class: "panel text-ask" },
      el("div", { class: "field" }, el("label", { for: "text-own" }, "Text"), this.text,
        el("p", { class: "soft small" }, "Text and words stay out of the page’s address and of the browser’s history.")),
      el("fieldset", {}, el("legend", {}, "Hidden from all tokens"), this.kinds,
        labelled("Other words to hide, separated by commas", this.own)),
      el("div", { class: "field" }, el("span", {}, "Mask of every layer (if empty: the mask of the model)"), this.editor.element),
      el("div", { class: "text-place-of" }, this.layer.root, this.head.root),
      this.who, el("div", {}, link), this.command.root);
  }

  /** Builds the elements that show the server's answer: the words of the text, the private text, the attention and the mask. */
  buildSeen() {
    const { api } = this.ctx;
    this.problem = el("p", { class: "notice bad", role: "alert", hidden: true });
    this.words = new Words({ onWord: (index, pinned) => this.look(index, null, pinned) });
    this.reads = el("p", { class: "text-reads", "aria-live": "polite" });
    this.found = el("div");
    this.proof = el("div", { role: "status" });
    this.canvas = el("canvas", { class: "text-canvas", role: "img", "aria-label": "Attention" });
    const map = el("div", { class: "text-map" }, this.canvas);
    this.heat = new HeatMap(this.canvas, {
      onCell: (row, col) => this.look(row, col),
      onPick: (row) => this.look(row, null, true),
    });
    this.maskText = el("code", { class: "text-mask" });
    this.mask = new MaskCanvas({ api, label: "The mask between the tokens of the text" });
    this.strip = new Strip({ api, onPlace: (layer, head) => this.change({ layer, head }, { replace: false }) });
    this.row = new TextRow({ api, change: (patch) => this.change(patch) });
    this.tokens = el("ol", { class: "text-tokens" });
    this.tokenCount = el("span", { class: "note" });
    return el("div", { class: "text-main" },
      this.problem,
      panel("text-read", "Attention of each word", this.words.root, this.reads),
      el("div", { class: "text-both text-secrets" },
        panel("text-private", "Private", this.found), panel("text-proof-of", "Test and proof", this.proof)),
      el("div", { class: "text-both text-maps" },
        panel("text-attention", "Attention", map), panel("text-masked", "Mask", this.maskText, this.mask.element)),
      this.strip.root, this.row.root,
      el("details", { class: "fold panel text-each" }, el("summary", {}, "Tokens", this.tokenCount), this.tokens));
  }

  // --- state ------------------------------------------------------------------------------------------------------------------

  /** Requests the description of the model. The model's example is the text that is shown first. */
  async meet() {
    try {
      this.model = await this.ctx.api.model();
    } catch (error) {
      return this.fail(error);
    }
    const { name, kind, layers, heads, positions, kinds } = this.model;
    const size = `${plural(layers, "layer")} of ${plural(heads, "head")}`;
    this.who.textContent = positions
      ? `Model: ${name} (${kind}), ${size}. It reads at most ${plural(positions, "token")}.`
      : `Model: ${name} (${kind}), ${size}.`;
    const onchange = () => this.change({ hide: this.chosenKinds() }, { replace: false });
    fill(this.kinds, kinds.map((name) => el("label", { class: "check" }, el("input", { type: "checkbox", value: name, onchange }), name)));
    this.update(this.ctx.state.get());
  }

  chosenKinds() {
    return [...this.kinds.querySelectorAll("input:checked")].map((box) => box.value);
  }

  update(state) {
    if (this.model === NOBODY) return;
    this.set = settings(state, this.model);
    const { text, mask, hide, words, layer, head, layers, heads } = this.set;
    if (document.activeElement !== this.text && this.text.value !== text) this.text.value = text;
    if (document.activeElement !== this.own) this.own.value = words.join(", ");
    if (this.editor.value() !== mask) this.editor.setValue(mask);
    for (const box of this.kinds.querySelectorAll("input")) box.checked = hide.includes(box.value);
    this.layer.show(layer, layers);
    this.head.show(head, heads);
    this.command.show(textCommand(this.set));
    const body = JSON.stringify(request(this.set));
    if (body !== this.asked) {
      // Typed text is requested after a pause, a choice at once.
      const typed = this.asked !== null && JSON.parse(this.asked).text !== text;
      this.asked = body;
      this.root.classList.add("waiting");
      this.prove("Checking …");
      if (typed) this.ask();
      else this.ask.now();
    }
    this.light();
  }

  async send() {
    const asked = this.ctx.state.get().text;
    const send = (signal) => this.ctx.api.text(request(this.set), { signal });
    const answered = (answer) => {
      this.good = asked;
      this.fail(null);
      this.show(answer);
    };
    const refused = (error) => {
      this.fail(error);
      this.prove("Nothing was checked: the request failed.");
    };
    if (await this.askAlone(this.root, send, answered, refused)) this.root.classList.remove("waiting");
  }

  fail(error) {
    const inMask = error !== null && error.start !== null;
    const shown = error && repairable(error, {
      now: this.ctx.state.get(),
      last: this.good ? { title: "back to the last text", text: this.good } : { title: "start again", text: {} },
      keys: ["text"],
      open: (control) => (control === "editor" ? this.editor.focusError() : this.text.focus()),
      change: (patch) => this.ctx.state.set(patch),
      edit: inMask && ((fn) => this.editor.retype(fn(this.editor.value()))),
      again: () => (this.model === NOBODY ? this.meet() : this.send()),
    });
    this.editor.setError(inMask ? shown : null);
    this.root.classList.toggle("stale", error !== null);
    paintError(this.problem, inMask ? null : shown);
  }

  /** Downloads the certificate that hidden tokens influence no other token. */
  save() {
    return this.ctx.api.downloadCertificate("text", request(this.set)).catch(this.ctx.refused);
  }

  /** Shows the text `instead` in place of the result of the test for leaks, because this result belongs to an earlier request. */
  prove(instead) {
    fill(this.proof, el("p", { class: "soft" }, instead));
  }

  // --- display ------------------------------------------------------------------------------------------------------------------

  show(answer) {
    this.answer = answer;
    const { units, layer, head, tokens } = answer;
    this.words.show(answer);
    this.heat.show(answer);
    this.canvas.setAttribute("aria-label",
      `Attention of layer ${layer}, head ${head}, between ${units.length} words: the list of words above gives the same values.`);
    this.maskText.textContent = answer.mask;
    this.mask.show({
      id: answer.id, qLen: tokens.length, kvLen: tokens.length, head: answer.head,
      tokens: { queries: tokens, keys: tokens },
      bands: units.filter((unit) => unit.private).map(({ tokens: [from, to] }) => ({ from, to, tone: "only-this" })),
    });
    fill(this.found, privateOf(answer));
    fill(this.proof, proofOf(answer, () => this.save()));
    fill(this.guesses, guessesOf(answer));
    this.strip.update(this.set, answer);
    const secret = new Set(answer.hidden);
    const known = new Set(Object.values(answer.private).flat());
    this.tokenCount.textContent = plural(tokens.length, "token");
    fill(this.tokens, tokens.map((name, at) => {
      const kind = secret.has(at) ? "hidden-word private" : known.has(at) ? "private" : null;
      return el("li", { class: kind, title: `token ${at}` }, name.trim() === "" ? "␣" : name);
    }));
    this.light();
  }

  /**
   * Highlights the word at the index `row` and the cell (`row`, `col`) of the attention map. If `pinned` is true, the word is also stored
   * in the address.
   */
  look(row, col = null, pinned = false) {
    if (pinned) this.change({ word: row ?? undefined, token: undefined });
    this.pointed = row === null ? null : { row, col };
    this.light();
  }

  light() {
    if (!this.answer) return;
    this.row.show(this.answer, this.set);
    const { units, attention } = this.answer;
    const pinned = this.set.word !== null && this.set.word < units.length ? this.set.word : null;
    const row = this.pointed?.row ?? pinned;
    if (row !== null && row >= units.length) return;
    this.words.light(row, row === null ? null : attention[row]);
    this.heat.light(row, this.pointed?.col ?? null);
    const words = row === null
      ? "Point at a word, or move with the arrow keys, to see what it reads."
      : readsInWords(units, row, attention[row]);
    if (this.reads.textContent !== words) this.reads.textContent = words;
  }
}

const panel = (name, heading, ...children) =>
  el("section", { class: `panel ${name}`, "aria-label": heading }, el("h2", {}, heading), children);

/**
 * Returns an input for the index of a layer or head, as `{root, show(value, count)}`. If `count` is up to 8, each index has a button;
 * otherwise the input is a field.
 */
function stepper(name, onChange) {
  const root = el("div", { class: "field text-step" });
  let size = 0;
  const show = (value, count) => {
    if (count !== size) {
      size = count;
      const button = (_, at) =>
        el("button", { type: "button", "aria-label": `${name} ${at}`, dataset: { at }, onclick: () => onChange(at) }, at);
      const buttons = () => el("div", { class: "segments", role: "group", "aria-label": name }, Array.from({ length: count }, button));
      const field = () => el("input", {
        type: "number", min: 0, max: count - 1, "aria-label": name,
        oninput: (event) => event.target.value !== "" && event.target.validity.valid && onChange(Number(event.target.value)),
      });
      fill(root, el("span", {}, name), count <= 8 ? buttons() : field());
    }
    for (const at of root.querySelectorAll("button")) at.setAttribute("aria-pressed", at.dataset.at === String(value) ? "true" : "false");
    const input = root.querySelector("input");
    if (input && document.activeElement !== input) input.value = value;
  };
  return { root, show };
}
