// The masks of a stack: one row each; they alternate up to the depth.

import { button, icon, iconButton } from "../base/dialog.js";
import { el, fill } from "../base/dom.js";
import { Editor } from "../edit/editor.js";
import { labelled } from "../edit/fields.js";
import { MOST_LAYERS } from "./settings.js";

const ICONS = {
  up: ["M12 19V6M6 11l6-6 6 6", "Move up"],
  down: ["M12 5v13M6 13l6 6 6-6", "Move down"],
  remove: ["M6 6l12 12M18 6L6 18", "Remove"],
};

export class LayersPanel {
  /**
   * `onLayers(texts)` is called when the user changes the masks, and `onDepth(number)` when the user changes the number of layers.
   * `onFill(word)` is called when the user changes the fill, which is the result of a query that may read no key.
   */
  constructor({ language, labels, onLayers, onDepth, onFill }) {
    Object.assign(this, { language, labels, onLayers });
    this.rows = [];
    this.rest = []; // masks beyond the maximum: they have no rows, but are kept
    this.list = el("ol", { class: "flow-layers" });
    this.depth = el("input", {
      type: "number", min: 1, max: MOST_LAYERS, inputmode: "numeric",
      oninput: () => Number.isInteger(this.depth.valueAsNumber) && this.depth.valueAsNumber > 0 && onDepth(this.depth.valueAsNumber),
    });
    this.fill = el("select", { onchange: () => onFill(this.fill.value) },
      el("option", { value: "nothing" }, "nothing (noren)"),
      el("option", { value: "finite" }, "everything (finite fill)"));
    this.turns = el("p", { class: "soft small" });
    this.more = button("Add a mask", () => this.add());
    this.root = el("section", { class: "panel flow-stack", "aria-label": "Layers" },
      el("h2", {}, "Layers"),
      this.list,
      el("div", { class: "flow-under" }, this.more, this.turns),
      el("div", { class: "flow-pair" },
        labelled("Depth, in layers", this.depth), labelled("Keys that a query without visible keys reads", this.fill)));
  }

  texts() {
    return [...this.rows.map((row) => row.editor.value()), ...this.rest];
  }

  /** Shows the settings in the controls. A mask text that the editor already has is not set again. */
  update({ layers: all, depth, fill: empty }) {
    const layers = all.slice(0, MOST_LAYERS);
    this.rest = all.slice(MOST_LAYERS);
    while (this.rows.length > layers.length) this.rows.pop().element.remove();
    while (this.rows.length < layers.length) {
      const row = this.row();
      this.rows.push(row);
      this.list.append(row.element);
    }
    layers.forEach((text, index) => {
      const { editor } = this.rows[index];
      if (editor.value() !== text) editor.setValue(text);
    });
    this.rows.forEach((row, index) => row.number(index, layers.length));
    if (document.activeElement !== this.depth) this.depth.value = depth;
    this.fill.value = empty;
    const one = all.length === 1;
    this.more.disabled = all.length >= MOST_LAYERS;
    this.turns.textContent = one ? "every layer has this mask" : `${all.length} masks alternate over the layers`;
  }

  /** Shows `error` in the editor of the mask with the index `layer`. Null removes all errors. */
  problem(error, layer) {
    this.rows.forEach((row, index) => row.editor.setError(error && index === layer ? error : null));
  }

  /** Returns the editor of the mask with the index `layer`; undefined if the mask has no row. */
  editor = (layer) => this.rows[layer]?.editor;

  row() {
    const editor = new Editor({
      label: "Mask of the layer",
      language: this.language,
      labels: this.labels,
      onInput: () => this.onLayers(this.texts()),
    });
    const tool = (what, act) => iconButton(ICONS[what][1], icon(ICONS[what][0]), act);
    const at = () => this.rows.findIndex((row) => row.editor === editor);
    const buttons = {
      up: tool("up", () => this.move(at(), -1)),
      down: tool("down", () => this.move(at(), 1)),
      remove: tool("remove", () => this.remove(at())),
    };
    const tag = el("span", { class: "flow-tag", "aria-hidden": "true" });
    const tools = el("span", { class: "flow-tools" }, Object.values(buttons));
    const element = el("li", { class: "flow-layer" }, tag, editor.element, tools);
    const number = (index, count) => {
      tag.textContent = index;
      tools.hidden = count === 1;
      for (const [what, [, says]] of Object.entries(ICONS)) {
        buttons[what].setAttribute("aria-label", `${says}: mask ${index}`);
      }
      buttons.up.disabled = index === 0;
      buttons.down.disabled = index === count - 1;
      buttons.remove.disabled = count === 1;
    };
    return { element, editor, number };
  }

  add() {
    const texts = this.texts();
    this.onLayers([...texts, texts.at(-1)]);
    this.rows.at(-1).editor.focus();
  }

  move(from, by) {
    const texts = this.texts();
    const [moved] = texts.splice(from, 1);
    texts.splice(from + by, 0, moved);
    this.onLayers(texts);
    this.rows[from + by].editor.focus();
  }

  remove(at) {
    this.onLayers(this.texts().filter((_, index) => index !== at));
    this.rows[Math.min(at, this.rows.length - 1)].editor.focus();
  }
}

/**
 * Returns a panel with example stacks (the masks of several layers) and with the stacks of real models, which `show(examples, others)` adds.
 * `onPick(patch)` is called with the change of the page's state that shows the chosen stack.
 */
export function presetsPanel(onPick) {
  const says = el("p", { class: "soft", "aria-live": "polite" },
    "Information passes through several layers. Begin with an example, or write your own masks.");
  const list = el("div", { class: "flow-presets" });
  const pick = (preset) => {
    says.textContent = preset.says;
    onPick(preset.patch);
  };
  const show = (examples, others) => {
    fill(list, examples.map((preset) => button(preset.name, () => pick(preset), { title: preset.says })));
    const choice = el("select", {
      "aria-label": "Masks of all layers of a real model",
      onchange: () => {
        const preset = others[choice.selectedIndex - 1];
        choice.selectedIndex = 0;
        pick(preset);
      },
    }, el("option", {}, "Masks of all layers of a real model …"), others.map(({ name }) => el("option", {}, name)));
    if (others.length) list.append(choice);
  };
  return { root: el("div", { class: "flow-begin" }, list, says), show };
}
