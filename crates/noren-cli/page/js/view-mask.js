// The mask: said, drawn, explained cell by cell, compared with another.

import { aborted } from "./api.js";
import { createBench, createBinder, showError } from "./bench.js";
import { createCanvas } from "./canvas.js";
import { icon, menuButton, openDialog } from "./dialog.js";
import { debounce, el, fill, number, percent, plural } from "./dom.js";
import { createEditor } from "./editor.js";
import { paintExplanation, sentence } from "./explain.js";
import { segments } from "./facts.js";
import { openPresets } from "./presets.js";
import { state } from "./state.js";
import { thumbnail } from "./tiles.js";
import { openWords } from "./words.js";

export const id = "mask";
export const title = "Mask";

const EXPORTS = [
  ["svg", "SVG", "a picture that scales"], ["png", "PNG", "a picture"], ["txt", "Text", "as the terminal draws it"],
  ["expression", "Expression", "the mask's text"], ["rust", "Rust", "a program"], ["python", "Python", "a program"],
  ["json", "JSON", "mask, shape and facts"], ["npy", "NumPy array", "every cell"],
];
const PICTURES = ["svg", "png", "txt"];
const SHORTCUTS = [
  ["← ↑ ↓ →", "move the cell cursor"], ["Enter", "pin the explanation of the cell"], ["Escape", "take the pin out"],
  ["Shift + arrows", "pan"], ["+ −", "zoom"], ["0", "show everything"], ["Home End", "first and last key of the row"],
  ["t", "tiles of the plan"], ["d", "jump to the first difference"], ["p", "presets"], ["/", "go to the editor"], ["?", "this list"],
];
const ICONS = {
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5", nearer: "M12 5v14M5 12h14", farther: "M5 12h14",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7L12 7M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7L12 17",
  keys: "M9.5 9a2.6 2.6 0 1 1 3.7 2.3c-.8.4-1.2 1-1.2 1.9v.3M12 17v.01",
};

const LEGENDS = {
  cells: [["allowed", "allowed"], ["some", "some of the cells here allowed"], ["denied", "denied"]],
  plan: [["allowed", "full tile: computed as it is"], ["tile-allowed", "mixed tile, allowed"], ["tile-some", "mixed tile, some"], ["tile-denied", "mixed tile, computed and thrown away"], ["denied", "skipped"]],
  difference: [["only-this", "only the first (−)"], ["only-other", "only the second (+)"], ["both", "both"], ["denied", "neither"]],
};

/** Mounts the view. */
export function mount(root, ctx) {
  const view = new MaskView(ctx);
  root.append(...view.elements);
  return { update: (now) => view.update(now), unmount: () => view.unmount() };
}

class MaskView {
  #ctx;
  #now = state.get();
  #bound = null;
  #other = null; // bound, of the mask compared with
  #explaining = null;

  constructor(ctx) {
    this.#ctx = ctx;
    this.live = el("p", { class: "hidden-text", role: "status", "aria-live": "polite" });
    this.bench = createBench(ctx, {
      onBound: (bound) => this.#understood(bound),
      onBroken: () => this.stage.classList.add("stale"),
    });
    this.second = createEditor({
      label: "Mask compared with", language: ctx.language, placeholder: "causal",
      onInput: (other) => state.set({ other }, { replace: true }),
    });
    this.otherBinder = createBinder(ctx.api, {
      onBound: (bound) => {
        this.#other = bound;
        this.second.setError(null);
        this.#show();
        this.#compare();
      },
      onError: (error) => showError(this.second, error),
    });
    this.picture = this.#canvas("Mask", (place) => this.beside.go(place));
    this.beside = this.#canvas("Mask compared with", (place) => this.picture.go(place));
    this.names = [0, 1].map(() => el("p", { class: "picture-name", hidden: true }));
    this.elements = [this.#build()];
    this.explainSoon = debounce((cell, say) => this.#explain(cell, say), 40);
    this.countSoon = debounce(() => this.#count(), 250);
    this.rest = debounce((place) => state.set({ camera: place }, { replace: true }), 120);
  }

  #canvas(label, follow) {
    return createCanvas({
      api: this.#ctx.api,
      label,
      onHover: (cell) => this.explainSoon(cell ?? this.#pinned(), false),
      onCursor: (cell) => this.explainSoon(cell, true),
      onPick: (cell) => state.set({ cell: [cell.q, cell.k] }),
      onCamera: (place) => {
        if (this.#now.sides) follow(place);
        this.rest(place);
      },
      onError: (error) => this.#ctx.toast(error.message, { kind: "error" }),
    });
  }

  #build() {
    const tool = (label, d, act) => el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick: act }, icon(d));
    this.figures = el("p", { class: "figures-line" });
    this.tilesButton = el("button", { type: "button", class: "button", "aria-pressed": "false", onclick: () => state.set({ plan: !this.#now.plan }) }, "Tiles");
    this.compareButton = el("button", { type: "button", class: "button plain", onclick: () => this.#toggleCompare() }, "Compare with another mask");
    this.modes = segments({ overlay: "Difference", sides: "Side by side" }, "How to compare", (mode) => state.set({ sides: mode === "sides" }));
    this.difference = el("p", { class: "difference", role: "status" });
    this.comparison = el("section", { class: "comparison", "aria-label": "Comparison", hidden: true },
      el("div", { class: "say-head" }, el("h2", {}, "Compared with"),
        el("button", { type: "button", class: "button plain", onclick: () => state.set({ mask: this.#now.other, other: this.#now.mask }) }, "Swap"),
        el("button", { type: "button", class: "button plain", onclick: () => this.#toggleCompare() }, "End")),
      this.second.element, this.modes.element, this.difference);
    this.legend = el("ul", { class: "legend", "aria-label": "Colours" });
    this.patterns = el("section", { class: "patterns", "aria-label": "Distinct patterns of batch rows and heads", hidden: true });
    this.why = el("div", { class: "why-body" });
    this.stage = el("section", { class: "stage", "aria-label": "Picture" },
      el("div", { class: "toolbar", role: "toolbar", "aria-label": "Picture" },
        this.figures,
        el("div", { class: "tools" },
          this.tilesButton,
          el("span", { class: "tool-group" },
            tool("Zoom out", ICONS.farther, () => this.picture.zoom(1 / 2)), tool("Zoom in", ICONS.nearer, () => this.picture.zoom(2)),
            tool("Show everything", ICONS.fit, () => this.picture.fit())),
          menuButton("Export", EXPORTS.map(([as, name, note]) => [name, note, () => this.#export(as)])),
          tool("Copy link", ICONS.link, () => this.#copyLink()),
          tool("Keyboard shortcuts", ICONS.keys, () => this.#shortcuts()))),
      el("div", { class: "pictures" }, this.names.map((name, i) => el("div", { class: "picture-frame" }, name, [this.picture, this.beside][i].element))),
      this.legend, this.patterns);
    this.beside.element.parentElement.hidden = true;
    this.stage.addEventListener("keydown", (event) => this.#key(event));
    const say = el("section", { class: "say", "aria-label": "Mask" },
      el("div", { class: "say-head" }, el("h1", {}, "Say a mask"),
        el("button", { type: "button", class: "button plain", onclick: () => openWords(this.#ctx, this.bench.editor.insert) }, "Language"),
        el("button", { type: "button", class: "button", onclick: () => openPresets(this.#ctx) }, "Presets")),
      this.bench.editor.element, this.compareButton, this.comparison, this.bench.docs);
    return el("div", { class: "workbench" },
      say,
      this.stage,
      el("aside", { class: "why", "aria-label": "Explanation" }, this.why),
      el("section", { class: "ask", "aria-label": "Shape and facts" }, this.bench.facts),
      this.live);
  }

  update(now) {
    const before = this.#now;
    this.#now = now;
    this.bench.update(now);
    if (now.other === null) {
      this.otherBinder.stop();
      this.#other = null;
    } else {
      this.second.setValue(now.other);
      this.otherBinder.bind(state.scene({ ...now, mask: now.other }));
    }
    this.comparison.hidden = now.other === null;
    this.compareButton.hidden = now.other !== null;
    this.tilesButton.disabled = now.other !== null;
    this.modes.choose(now.sides ? "sides" : "overlay");
    this.tilesButton.setAttribute("aria-pressed", String(now.plan));
    if (before.camera !== now.camera) this.picture.go(now.camera);
    if (this.#bound) this.#show();
    if (JSON.stringify(before.cell) !== JSON.stringify(now.cell) || !this.#bound) this.explainSoon(this.#pinned(), true);
  }

  #pinned = () => (this.#now.cell ? { q: this.#now.cell[0], k: this.#now.cell[1] } : null);

  #understood(bound) {
    const first = this.#bound === null;
    this.#bound = bound;
    this.stage.classList.remove("stale");
    if (first) this.picture.go(this.#now.camera);
    this.#show();
    this.#paintPatterns();
    this.#compare();
    this.countSoon();
    this.explainSoon(this.#pinned() ?? this.picture.cursor(), false);
  }

  /** What is drawn, from the state and what the server answered. */
  #show() {
    const { q_len: qLen, kv_len: kvLen } = this.#bound;
    const [batch, head] = this.#seen();
    const other = this.#fitting();
    const bands = bandsOf(this.#bound, batch, this.#now.facts.side);
    const sides = this.#now.sides && other;
    this.picture.show({ id: this.#bound.id, qLen, kvLen, batch, head, bands, plan: this.#now.plan && !other, other: other && !sides ? other.id : null });
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
      fill(this.legend, LEGENDS[mode].map(([colour, says]) => el("li", {}, el("span", { class: "swatch", style: { background: `var(--${colour})` } }), says)));
    }
    for (const button of this.patterns.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.at === String(this.#patternOf(batch, head))));
  }

  /** The mask compared with, where it has the sizes of this one: a mask may bring its own. */
  #fitting() {
    const sizes = ({ q_len: q, kv_len: kv, batch, heads }) => [q, kv, batch, heads].join();
    return this.#other && sizes(this.#other) === sizes(this.#bound) ? this.#other : null;
  }

  /** The batch row and head shown: the state's, where the mask has them. */
  #seen() {
    const [batch, head] = this.#now.at;
    return [Math.min(batch, this.#bound.batch - 1), Math.min(head, this.#bound.heads - 1)];
  }

  #inside = (cell) => (cell && cell.q < this.#bound.q_len && cell.k < this.#bound.kv_len ? cell : null);

  #patternOf(batch, head) {
    const found = this.#bound.patterns.findIndex(({ pairs }) => pairs.some(([b, h]) => b === batch && h === head));
    return Math.max(0, found);
  }

  #paintPatterns() {
    const { patterns } = this.#bound;
    this.patterns.hidden = patterns.length < 2;
    if (this.patterns.hidden) return fill(this.patterns);
    const chosen = this.#patternOf(...this.#seen());
    return fill(this.patterns,
      el("h2", { class: "eyebrow" }, `${patterns.length} distinct patterns`),
      el("div", { class: "pattern-list" }, patterns.slice(0, 64).map((pattern, i) => {
        const [batch, head] = pattern.pairs[0];
        return el("button", { type: "button", class: "pattern", "aria-pressed": String(i === chosen), dataset: { at: String(i) }, onclick: () => state.set({ at: [batch, head] }) },
          thumbnail(this.#ctx.api, this.#bound, { batch, head, size: 64, label: "" }),
          el("span", {}, pattern.caption ?? `batch ${batch}, head ${head}`));
      })));
  }

  async #count() {
    const { id, q_len: qLen, kv_len: kvLen, batch, heads, scores } = this.#bound;
    const sizes = `${number(qLen)} × ${number(kvLen)}`;
    const times = [batch > 1 && plural(batch, "batch row"), heads > 1 && plural(heads, "head")].filter(Boolean).map((said) => ` · ${said}`);
    const told = (...more) => fill(this.figures, el("b", {}, sizes), times, ...more, scores?.length > 0 && el("span", { class: "soft" }, ` · scores ${scores.join(", ")}`));
    try {
      const cost = await this.#ctx.api.cost(id);
      if (id !== this.#bound.id) return;
      told(" · ", el("b", {}, number(cost.allowed)), ` allowed, ${percent(cost.density)}`,
        cost.empty_rows > 0 && el("span", { class: "warning" }, ` · ${plural(cost.empty_rows, "query", "queries")} may read nothing`));
      this.live.textContent = `${number(qLen)} queries by ${number(kvLen)} keys, ${number(cost.allowed)} cells allowed, ${percent(cost.density)}.`;
    } catch {
      told(); // the picture is there all the same
    }
  }

  async #explain(cell, say) {
    this.#explaining?.abort();
    if (!this.#bound || !cell || !this.#inside(cell)) return this.#explainNothing();
    const request = new AbortController();
    this.#explaining = request;
    const [batch, head] = this.#seen();
    try {
      const answer = await this.#ctx.api.explain(this.#bound.id, { batch, head, ...cell, other: this.#fitting()?.id, signal: request.signal });
      const pinned = this.#pinned();
      paintExplanation(this.why, {
        cell, answer,
        pinned: pinned && pinned.q === cell.q && pinned.k === cell.k,
        onUnpin: () => state.set({ cell: null }),
      });
      if (say) this.live.textContent = sentence(cell, answer);
    } catch (error) {
      if (!aborted(error)) fill(this.why, el("p", { class: "wrong" }, error.message));
    }
    return undefined;
  }

  #explainNothing() {
    fill(this.why,
      el("h2", {}, "Why?"),
      el("p", { class: "soft" }, "Point at a cell: this says why its query may or may not read its key. A click or Enter pins the answer."),
      el("p", { class: "soft" }, "Queries run down, keys across. Scroll to zoom, drag to pan, ", el("kbd", {}, "?"), " lists the keys."));
  }

  async #compare() {
    if (!this.#other || !this.#bound) return;
    const [here, there] = [this.#bound, this.#other];
    if (!this.#fitting()) {
      fill(this.difference, `The sizes differ: ${number(here.q_len)} × ${number(here.kv_len)} and ${number(there.q_len)} × ${number(there.kv_len)}. Give a length that suits both.`);
      return;
    }
    try {
      const { same, first, only_this: mine, only_other: theirs } = await this.#ctx.api.difference(here.id, there.id);
      if (here !== this.#bound || there !== this.#other) return;
      this.first = first;
      fill(this.difference, same
        ? "The same cells."
        : [el("span", { class: "only-this" }, el("b", {}, number(mine)), " only the first"), el("span", { class: "only-other" }, el("b", {}, number(theirs)), " only the second"),
          first && el("button", { type: "button", class: "button", onclick: () => this.#jump() }, "First difference: jump there")]);
    } catch (error) {
      fill(this.difference, el("span", { class: "wrong" }, error.message));
    }
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

  async #export(as) {
    const [batch, head] = this.#seen();
    const { q0, q1, k0, k1 } = this.picture.camera.seen();
    const part = PICTURES.includes(as) && this.#now.camera !== null ? { rows: `${q0}..${q1}`, keys: `${k0}..${k1}` } : {};
    const other = PICTURES.includes(as) ? this.#fitting()?.id : undefined;
    try {
      await this.#ctx.api.download(this.#bound.id, { as, batch, head, plan: this.#now.plan, other, ...part });
    } catch (error) {
      this.#ctx.toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    }
  }

  async #copyLink() {
    state.write();
    try {
      await navigator.clipboard.writeText(location.href);
      this.#ctx.toast("Link copied.");
    } catch {
      this.#ctx.toast("The browser does not give the clipboard; the address line holds the link.");
    }
  }

  #shortcuts() {
    openDialog("Keys", [
      el("p", { class: "soft" }, "While the picture has the focus:"),
      el("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, does]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, does)])),
    ], { className: "narrow" });
  }

  #key(event) {
    const acts = {
      "?": () => this.#shortcuts(), t: () => this.tilesButton.click(), d: () => this.#jump(), p: () => openPresets(this.#ctx),
      "/": () => this.bench.editor.focus(), Escape: () => state.set({ cell: null }),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  unmount() {
    this.bench.unmount();
    this.otherBinder.stop();
    this.#explaining?.abort();
    this.explainSoon.cancel();
    this.countSoon.cancel();
    this.rest.cancel();
    this.picture.destroy();
    this.beside.destroy();
  }
}

/** Documents, labels and padding as bars along the rulers. */
function bandsOf(bound, batch, side) {
  const bands = [];
  const ends = bound.document_ends?.[Math.min(batch, bound.document_ends.length - 1)];
  if (ends && ends.length <= 20000) {
    let from = 0;
    ends.forEach((to, i) => {
      bands.push({ from, to, tone: i % 2 ? "tile-allowed" : "accent", axis: "both" });
      from = to;
    });
  }
  for (const positions of Object.values(bound.labels ?? {})) {
    for (const [from, to] of rangesOf(positions, batch).slice(0, 5000)) bands.push({ from, to, tone: "only-this", axis: "both" });
  }
  const length = bound.lengths?.[Math.min(batch, (bound.lengths?.length ?? 1) - 1)];
  if (Number.isInteger(length) && length < bound.kv_len && !bands.length) {
    const from = side === "left" ? bound.kv_len - length : 0;
    bands.push({ from, to: from + length, tone: "accent", axis: "k" });
  }
  return bands;
}

/** Positions of a label in a batch row: one list for all rows or one for each, of positions, `"a..b"` and `[a, b]`. */
function rangesOf(positions, batch) {
  if (!Array.isArray(positions)) return [];
  const row = positions.some((entry) => Array.isArray(entry)) ? positions[Math.min(batch, positions.length - 1)] : positions;
  return [row].flat().map((entry) => {
    if (typeof entry === "string") return entry.split("..").map(Number);
    return Array.isArray(entry) ? entry : [entry, entry + 1];
  });
}
