// Steppers over the picture for the layer, the batch row and the head that are shown.

import { iconButton } from "../base/dialog.js";
import { el, number, uid } from "../base/dom.js";

/** Returns whether a mask's text has different masks for different layers. If so, the user must choose a layer. */
export const hasLayers = (mask) => /\blayers\s*\(/.test(mask);

export class Steppers {
  /** `onLayer(layer)` is called when the user chooses another layer, and `onPair([batch, head])` for another batch row or head. */
  constructor({ onLayer, onPair }) {
    this.layer = stepper("Layer", onLayer);
    this.batch = stepper("Batch row", (batch) => onPair([batch, this.at[1]]));
    this.head = stepper("Head", (head) => onPair([this.at[0], head]));
    this.element = el("div", { class: "steppers", role: "group", "aria-label": "What is shown" },
      this.layer.element, this.batch.element, this.head.element);
  }

  /** Shows the steppers that the mask needs. `bound` is the answer of POST /api/masks, or null; `at` is `[batch row, head]`. */
  show({ mask, layer }, bound, at) {
    this.at = at;
    this.layer.show(layer, hasLayers(mask) ? Infinity : 0);
    this.batch.show(at[0], bound?.batch > 1 ? bound.batch : 0);
    this.head.show(at[1], bound?.heads > 1 ? bound.heads : 0);
    this.element.hidden = [this.layer, this.batch, this.head].every(({ element }) => element.hidden);
  }
}

/**
 * Returns a field with buttons to choose an index, the first index being 0, as `{element, show(value, count)}`. `onChange(value)` is called
 * when the user changes the index. `value` is null if no index is chosen. `count` is the number of indices: Infinity if there is no last
 * index, 0 to hide the field.
 */
function stepper(name, onChange) {
  let [now, last] = [null, 0];
  const input = el("input", {
    id: uid("step"), type: "number", min: "0", inputmode: "numeric",
    oninput: () => {
      const value = Number(input.value);
      const fits = input.value !== "" && Number.isInteger(value) && value >= 0 && value <= last;
      input.setAttribute("aria-invalid", String(!fits));
      if (fits) onChange(value);
    },
    onblur: () => {
      input.setAttribute("aria-invalid", "false");
      input.value = now ?? "";
    },
  });
  const step = (by) => onChange(Math.min(Math.max((now ?? -1) + by, 0), last));
  const back = iconButton(`Previous ${name.toLowerCase()}`, "−", () => step(-1));
  const forth = iconButton(`Next ${name.toLowerCase()}`, "+", () => step(1));
  const range = el("span", { class: "soft" });
  const element = el("div", { class: "stepper", hidden: true }, el("label", { for: input.id }, name), back, input, forth, range);
  const show = (value, count) => {
    element.hidden = count === 0;
    [now, last] = [value, Math.max(0, count - 1)];
    if (document.activeElement !== input) input.value = value ?? "";
    if (Number.isFinite(last)) input.max = String(last);
    back.disabled = (value ?? 0) <= 0;
    forth.disabled = value !== null && value >= last;
    range.textContent = Number.isFinite(last) && last > 0 ? `of ${number(last + 1)}` : "";
  };
  return { element, show };
}
