// The mask view: write a mask, see it, read the explanation of a cell, compare two masks.

import { createBench, createBinder, showError } from "../edit/bench.js";
import { MaskCanvas } from "../picture/canvas.js";
import { CodePanel } from "./code.js";
import { button, icon, iconButton, openDialog } from "../base/dialog.js";
import { debounce, el, fill, legendItem, number, plural } from "../base/dom.js";
import { Editor } from "../edit/editor.js";
import { paintExplanation, paintHint, sentence } from "./explain.js";
import { segments } from "../edit/fields.js";
import { GoTo } from "./goto.js";
import { Latest } from "../base/latest.js";
import { Patterns } from "./patterns.js";
import { copyLink, Exports } from "./exports.js";
import { shapeOf } from "../base/facts-made.js";
import { FileMask, inSizes } from "./file.js";
import { bandsOf, ICONS, LEGENDS, SHORTCUTS } from "./parts.js";
import { openPresets } from "../edit/presets.js";
import { MaskRow } from "../row/mask.js";
import { paintError, repairable } from "../base/repairs.js";
import { state } from "../base/state.js";
import { Steppers } from "./steppers.js";
import { allowedOf } from "../cost/view.js";
import { openWords } from "../edit/words.js";

export const id = "mask";
export const title = "Mask";

const PATIENCE = 150; // ms until a picture is marked as not yet updated

const SCENE = ["mask", "shape", "facts", "layer"];
const sameScene = (a, b) => SCENE.every((key) => a[key] === b[key] || JSON.stringify(a[key]) === JSON.stringify(b[key]));

export class View {
  #ctx;
  #now = state.get();
  #bound = null;
  #scene = {}; // the scene that is bound
  #other = null; // the bound second mask of a comparison
  #otherScene = {};
  #explaining = new Latest();
  #unsaid = null; // the cell whose explanation screen readers have not yet heard
  #broken = { first: false, second: false }; // whether a text has an error; the picture then shows the last text without one

  constructor(ctx) {
    this.#ctx = ctx;
    this.live = el("p", { class: "hidden-text", role: "status", "aria-live": "polite" });
    this.bench = createBench(ctx, {
      onBound: (bound, scene) => this.#understood(bound, scene),
      onBroken: () => {
        this.#breaks({ first: true });
        this.code.show(null);
      },
      asCommand: ({ mask, other }) => (other === null ? ["show", mask] : ["diff", mask, other]),
    });
    this.second = new Editor({
      label: "Mask compared with",
      language: ctx.language,
      placeholder: "causal",
      onInput: (other) => state.set({ other }, { replace: true, typed: true }),
    });
    this.otherBinder = createBinder(ctx.api, {
      onBound: (bound, scene) => this.#compareWith(bound, scene),
      onError: (error) => {
        const { mask } = this.#otherScene;
        showError(this.second, error, {
          facts: this.bench.controls,
          last: mask === undefined ? null : { mask },
          again: () => this.otherBinder.again(),
          change: (patch) => state.set(patch.mask === undefined ? patch : { other: patch.mask }),
        });
        this.#breaks({ second: true });
      },
    });
    this.picture = this.#canvas("Mask", (place) => this.beside.go(place));
    this.beside = this.#canvas("Mask compared with", (place) => this.picture.go(place));
    this.names = [0, 1].map(() => el("p", { class: "picture-name", hidden: true }));
    const open = (control) => this.bench.controls.open(control);
    const tooLong = () =>
      repairable({ cause: "row-too-long" }, { now: this.#now, last: this.bench.good(), open, change: (patch) => state.set(patch) });
    this.row = new MaskRow(
      ctx,
      (words) => {
        this.words = words;
        if (this.#bound) this.#show();
      },
      () => tooLong().actions,
    );
    this.code = new CodePanel(ctx);
    this.root = [this.#build(), this.row.element];
    this.explainSoon = debounce((cell) => this.#explain(cell), 40);
    this.countSoon = debounce(() => this.#count(), 250);
    this.rest = debounce((place) => state.set({ camera: place }, { replace: true }), 120);
  }

  #canvas(label, follow) {
    return new MaskCanvas({
      api: this.#ctx.api,
      label,
      onHover: (cell) => this.explainSoon(cell ?? this.#pinned()),
      onCursor: (cell) => this.#explainAloud(cell),
      onPick: (cell) => state.set({ cell: [cell.q, cell.k] }),
      onCamera: (place) => {
        if (this.#now.sides) follow(place);
        this.rest(place);
      },
      onError: (error) => this.#ctx.toast(error.message, { kind: "error" }),
    });
  }

  #build() {
    this.why = el("div", { class: "why-body" });
    return el(
      "div",
      { class: "workbench" },
      this.#say(),
      this.#stage(),
      el("aside", { class: "why", "aria-label": "Explanation" }, this.why, this.row.opener, this.code.element),
      el("section", { class: "ask", "aria-label": "Shape and facts" }, this.bench.facts),
      this.live,
    );
  }

  /** Builds the section with the editors of the masks. */
  #say() {
    this.compareButton = button("Compare with another mask", () => this.#toggleCompare(), { class: "plain" });
    this.comparison = this.#compared();
    return el(
      "section",
      { class: "say", "aria-label": "Mask" },
      el(
        "div",
        { class: "say-head" },
        el("h1", {}, "Write a mask"),
        button("Language", () => openWords(this.#ctx, (text) => this.bench.editor.insert(text)), { class: "plain" }),
        button("Presets", () => openPresets(this.#ctx)),
      ),
      this.bench.editor.element,
      this.compareButton,
      this.comparison,
      this.bench.docs,
    );
  }

  #compared() {
    this.modes = segments({ overlay: "Difference", sides: "Side by side" }, "How to compare", (mode) =>
      state.set({ sides: mode === "sides" }),
    );
    this.files = new FileMask(this.#ctx, (file) => {
      state.set({ other: file.text });
      this.#compareFile(file);
    });
    this.old = el("p", { class: "soft small", role: "status", hidden: true });
    this.difference = el("p", { class: "difference", role: "status" });
    return el(
      "section",
      { class: "comparison", "aria-label": "Comparison", hidden: true },
      el(
        "div",
        { class: "say-head" },
        el("h2", {}, "Compared with"),
        this.files.element,
        button("Swap", () => state.set({ mask: this.#now.other, other: this.#now.mask }), { class: "plain" }),
        button("End", () => this.#toggleCompare(), { class: "plain" }),
      ),
      this.second.element,
      this.modes.element,
      this.old,
      this.difference,
    );
  }

  /** Builds the section with the picture of the mask, the second picture for a comparison, and their tools. */
  #stage() {
    this.legend = el("ul", { class: "legend", "aria-label": "Colours" });
    this.patterns = new Patterns(this.#ctx.api, (at) => state.set({ at }));
    this.steps = new Steppers({
      onLayer: (layer) => state.set({ layer }, { replace: true }),
      onPair: (at) => state.set({ at }, { replace: true }),
    });
    this.goto = new GoTo({
      api: this.#ctx.api,
      cell: () => this.#pinned() ?? this.picture.cursor(),
      onCell: (cell) => {
        state.set({ cell: [cell.q, cell.k] });
        this.picture.visit(cell);
      },
      onNote: (text) => this.#ctx.toast(text),
    });
    const frames = this.names.map((name, i) =>
      el("div", { class: "picture-frame" }, name, [this.picture, this.beside][i].element),
    );
    frames[1].hidden = true;
    return el(
      "section",
      { class: "stage", "aria-label": "Picture", onkeydown: (event) => this.#key(event) },
      this.#toolbar(),
      el("div", { class: "navigator" }, this.goto.element, this.steps.element),
      el("div", { class: "pictures" }, frames),
      this.legend,
      this.patterns.element,
    );
  }

  #toolbar() {
    const tool = (label, d, act) => iconButton(label, icon(d), act);
    this.figures = el("p", { class: "figures-line", role: "status" });
    this.tilesButton = button("Tiles", () => state.set({ plan: !this.#now.plan }), { "aria-pressed": "false" });
    this.exports = new Exports(this.#ctx, () => this.#exported());
    return el(
      "div",
      { class: "toolbar", role: "toolbar", "aria-label": "Picture" },
      this.figures,
      el(
        "div",
        { class: "tools" },
        this.tilesButton,
        el(
          "span",
          { class: "tool-group" },
          tool("Zoom out", ICONS.farther, () => this.picture.zoom(1 / 2)),
          tool("Zoom in", ICONS.nearer, () => this.picture.zoom(2)),
          tool("Show everything", ICONS.fit, () => this.picture.fit()),
        ),
        this.exports.element,
        tool("Copy link", ICONS.link, () => copyLink(this.#ctx)),
        tool("Keyboard shortcuts", ICONS.keys, () => this.#shortcuts()),
      ),
    );
  }

  update(now) {
    const before = this.#now;
    this.#now = now;
    this.bench.update(now);
    if (now.other === null) {
      this.otherBinder.stop();
      this.#other = null;
      this.#otherScene = {};
      this.first = null;
      fill(this.difference);
      this.#breaks({ second: false });
    } else {
      this.second.setValue(now.other);
      if (this.files.holds(now.other)) {
        if (this.#other !== this.files.file.bound) this.#compareFile(this.files.file);
      } else this.otherBinder.bind(state.scene({ ...now, mask: now.other }));
      this.#breaks({});
    }
    this.comparison.hidden = now.other === null;
    this.compareButton.hidden = now.other !== null;
    this.tilesButton.disabled = now.other !== null;
    this.modes.choose(now.sides ? "sides" : "overlay");
    this.tilesButton.setAttribute("aria-pressed", String(now.plan));
    this.steps.show(now, this.#bound, this.#bound ? this.#seen() : now.at);
    if (before.camera !== now.camera) this.picture.go(now.camera);
    if (this.#bound) this.#show();
    this.#ages();
    const changed = (key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]);
    if (changed("cell") || !this.#bound) this.#explainAloud(this.#pinned());
    else if (changed("at") || changed("other")) this.#explainAgain();
  }

  /**
   * Returns the reason why the picture does not show the current texts, shape and facts. Returns an empty text if the picture is up to
   * date.
   */
  #outdated() {
    const { first, second } = this.#broken;
    const faulty = second ? "second" : "first";
    if (first || second) return `The ${faulty} mask text has an error. The picture shows the last mask text without an error.`;
    const { mask, other } = this.#now;
    const is = (scene, mask) => sameScene(scene, state.scene({ ...this.#now, mask }));
    const waits = !is(this.#scene, mask) || (other !== null && !this.files.holds(other) && !is(this.#otherScene, other));
    return waits ? "Reading the mask …" : "";
  }

  /** Marks the picture and the explanation as outdated when they do not match the current texts, shape and facts. */
  #ages() {
    if (!this.#bound) {
      if (this.#broken.first) fill(this.figures, "No picture yet: the mask has an error.");
      return;
    }
    const words = this.#outdated();
    if (words) this.#explainNot();
    // The label appears after a delay, because most answers arrive sooner.
    clearTimeout(this.aging);
    const tell = () => [this.picture, this.beside].forEach((picture) => picture.outdate(this.#outdated()));
    if (words) this.aging = setTimeout(tell, PATIENCE);
    else tell();
  }

  #pinned = () => (this.#now.cell ? { q: this.#now.cell[0], k: this.#now.cell[1] } : null);

  #understood(bound, scene) {
    const first = this.#bound === null;
    this.#bound = bound;
    this.#scene = scene;
    this.#breaks({ first: false });
    if (first) this.picture.go(this.#now.camera);
    this.#show();
    this.#compare();
    this.code.show(bound);
    this.countSoon();
    this.#explainAgain();
  }

  #explainAgain() {
    this.explainSoon(this.#unsaid ?? this.#pinned() ?? this.picture.cursor());
  }

  /** Explains a cell to screen readers too. If the mask is not yet read or the request is replaced, the next explanation is of this cell. */
  #explainAloud(cell) {
    this.#unsaid = cell;
    this.explainSoon(cell);
  }

  /**
   * Stores which of the two mask texts have an error, and marks the displays that no longer match the texts. `which` has `first` or
   * `second` with true for an error.
   */
  #breaks(which) {
    Object.assign(this.#broken, which);
    const { first, second } = this.#broken;
    this.exports.enable(!(first || second));
    this.difference.classList.toggle("stale", first || second);
    this.old.hidden = this.#now.other === null || !(first || second);
    const faulty = second ? "second" : "first";
    const instead = this.#other ? "The comparison uses the last mask text without an error." : "The two masks are not compared.";
    const says = this.old.hidden
      ? ""
      : `The ${faulty} mask text has an error. ${instead}`;
    if (this.old.textContent !== says) this.old.textContent = says;
    this.#ages();
  }

  /** Shows the picture for the current state and the server's answers. */
  #show() {
    const { q_len: qLen, kv_len: kvLen } = this.#bound;
    const [batch, head] = this.#seen();
    const other = this.#fitting();
    const bands = bandsOf(this.#bound, batch, this.#now.facts.side);
    const sides = this.#now.sides && other;
    this.picture.show({
      id: this.#bound.id,
      qLen,
      kvLen,
      batch,
      head,
      bands,
      plan: this.#now.plan && !other,
      other: other && !sides ? other.id : null,
      tokens: this.words ?? undefined,
    });
    this.steps.show(this.#now, this.#bound, [batch, head]);
    this.goto.show(this.#bound, [batch, head], this.#inside(this.#pinned()));
    this.row.show(this.#bound, this.#now, [batch, head]);
    this.picture.pin(this.#inside(this.#pinned()));
    this.beside.element.parentElement.hidden = !sides;
    this.names.forEach((name, i) => {
      name.hidden = !sides;
      name.textContent = [this.#bound, other][i]?.mask ?? "";
    });
    if (sides) {
      this.beside.show({ id: other.id, qLen, kvLen, batch, head, bands, plan: false });
      this.beside.go(this.#now.camera);
    }
    const mode = other && !sides ? "difference" : this.#now.plan && !other ? "plan" : "cells";
    if (this.legend.dataset.mode !== mode) {
      this.legend.dataset.mode = mode;
      fill(
        this.legend,
        LEGENDS[mode].map(legendItem),
      );
    }
    this.patterns.show(this.#bound, [batch, head]);
  }

  /**
   * Returns the second mask if it has the same sizes as the first mask, otherwise null. A mask text can imply sizes, so the sizes may
   * differ.
   */
  #fitting() {
    return this.#other && inSizes(this.#other) === inSizes(this.#bound) ? this.#other : null;
  }

  /** Returns the shown batch row and head. These are the values in the state, limited to the batch rows and heads of the mask. */
  #seen() {
    const [batch, head] = this.#now.at;
    return [Math.min(batch, this.#bound.batch - 1), Math.min(head, this.#bound.heads - 1)];
  }

  #inside = (cell) => (cell && cell.q < this.#bound.q_len && cell.k < this.#bound.kv_len ? cell : null);

  async #count() {
    const { id, q_len: qLen, kv_len: kvLen, batch, heads, scores } = this.#bound;
    const sizes = `${number(qLen)} × ${number(kvLen)}`;
    const times = [batch > 1 && plural(batch, "batch row"), heads > 1 && plural(heads, "head")]
      .filter(Boolean)
      .map((said) => ` · ${said}`);
    const told = (...more) =>
      fill(
        this.figures,
        el("b", {}, sizes),
        times,
        ...more,
        scores?.length > 0 && el("span", { class: "soft" }, ` · scores ${scores.join(", ")}`),
      );
    try {
      const cost = await this.#ctx.api.cost(id);
      if (id !== this.#bound.id) return;
      const { count, share } = allowedOf(cost);
      told(
        " · ",
        share ? [el("b", {}, count), ` allowed, ${share}`] : "the allowed cells were not counted, because there are too many",
        cost.empty_rows > 0 &&
          el("span", { class: "warning" }, ` · ${plural(cost.empty_rows, "query", "queries")} may read no key`),
      );
    } catch {
      told(); // the picture is shown anyway
    }
  }

  #explain(cell) {
    this.#explaining.stop();
    if (!this.#bound || !cell) return paintHint(this.why);
    if (this.#outdated()) return this.#explainNot();
    if (!this.#inside(cell)) return paintHint(this.why);
    const [batch, head] = this.#seen();
    const send = (signal) => this.#ctx.api.explain(this.#bound.id, { batch, head, ...cell, other: this.#fitting()?.id, signal });
    const answered = (answer) => {
      if (this.#outdated()) return;
      const pinned = this.#pinned();
      paintExplanation(this.why, {
        cell,
        answer,
        pinned: pinned && pinned.q === cell.q && pinned.k === cell.k,
        onUnpin: () => state.set({ cell: null }),
      });
      if (this.#unsaid?.q !== cell.q || this.#unsaid.k !== cell.k) return;
      this.#unsaid = null;
      this.live.textContent = sentence(cell, answer);
    };
    return this.#explaining.ask(send, answered, (error) => this.#failed(this.why, error, () => this.#explain(cell)));
  }

  /** Removes the explanation of a cell, because it belongs to an earlier mask or text. */
  #explainNot() {
    this.#explaining.stop();
    const { first, second } = this.#broken;
    const says = first || second ? "A mask text has an error, so no explanation is available." : "Reading the mask …";
    if (this.why.textContent !== says) fill(this.why, el("p", { class: "soft" }, says));
  }

  /** Compares the current mask with the mask of a file. `text` represents the file in the page's state. */
  #compareFile({ bound, text }) {
    this.otherBinder.stop();
    this.#compareWith(bound, { mask: text });
  }

  #compareWith(bound, scene) {
    this.#other = bound;
    this.#otherScene = scene;
    this.second.setError(null);
    this.#breaks({ second: false });
    if (this.#bound) this.#show();
    this.#compare();
    this.#explainAgain();
  }

  async #compare() {
    if (!this.#other || !this.#bound) return;
    const [here, there] = [this.#bound, this.#other];
    this.first = null;
    if (!this.#fitting()) {
      fill(
        this.difference,
        `The sizes differ: ${inSizes(here)} and ${inSizes(there)}.`,
        [there, here].map((one) =>
          button(`use ${inSizes(one)}`, () => state.set({ shape: shapeOf([one.batch, one.heads, one.q_len, one.kv_len]) }), { class: "repair" })),
      );
      return;
    }
    try {
      const { same, first, only_this: mine, only_other: theirs } = await this.#ctx.api.difference(here.id, there.id);
      if (here !== this.#bound || there !== this.#other) return;
      this.first = first;
      fill(
        this.difference,
        same
          ? "The same cells."
          : [
              el("span", { class: "only-this" }, el("b", {}, number(mine)), " allowed only by the first mask"),
              el("span", { class: "only-other" }, el("b", {}, number(theirs)), " allowed only by the second mask"),
              first && button("First difference: jump there", () => this.#jump()),
            ],
      );
    } catch (error) {
      this.#failed(this.difference, error, () => this.#compare());
    }
  }

  /** Shows the error of a request in `element`; `again()` repeats the request. */
  #failed(element, error, again) {
    const says = el("p", { class: "wrong" });
    paintError(says, repairable(error, { now: this.#now, again }));
    fill(element, says);
  }

  #jump() {
    if (!this.first || this.#now.other === null) return;
    const { batch, head, q, k } = this.first;
    state.set({ at: [batch, head], cell: [q, k] });
    this.picture.jump({ q, k });
  }

  #toggleCompare() {
    if (this.#now.other !== null) return state.set({ other: null });
    state.set({ other: this.#now.mask });
    return this.second.focus();
  }

  /** Returns the mask and the settings that the exports need, or null if there is no mask or a mask text has an error. */
  #exported() {
    if (!this.#bound || this.#broken.first || this.#broken.second) return null;
    return { id: this.#bound.id, at: this.#seen(), now: this.#now, other: this.#fitting()?.id, camera: this.picture.camera };
  }

  #shortcuts() {
    openDialog(
      "Keys",
      [
        el("p", { class: "soft" }, "When the picture has the focus:"),
        el(
          "dl",
          { class: "shortcuts" },
          SHORTCUTS.map(([keys, does]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, does)]),
        ),
      ],
      { className: "narrow" },
    );
  }

  #key(event) {
    const acts = {
      "?": () => this.#shortcuts(),
      t: () => this.tilesButton.click(),
      d: () => this.#jump(),
      p: () => openPresets(this.#ctx),
      "/": () => this.bench.editor.focus(),
      Escape: () => state.set({ cell: null }),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    if (!acts[event.key]) return this.goto.key(event.key) && event.preventDefault();
    event.preventDefault();
    return acts[event.key]();
  }
}
