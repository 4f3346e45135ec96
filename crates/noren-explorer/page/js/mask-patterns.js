// The distinct patterns of batch rows and heads as small pictures, and fields to choose a batch row and head.

import { el, fill, number, uid } from "./dom.js";
import { thumbnail } from "./tiles.js";

const MOST = 64; // maximum number of small pictures

export class Patterns {
  #api;
  #onChoose;
  #bound = null;
  #at = [0, 0];
  #fields = []; // inputs for the batch row and the head
  element = el("section", { class: "patterns", "aria-label": "Distinct patterns of batch rows and heads", hidden: true });

  /**
   * `onChoose([batch, head], options)` is called when the user chooses a pattern; `options` is the second argument of `state.set`, such as
   * `{replace: true}`.
   */
  constructor(api, onChoose) {
    this.#api = api;
    this.#onChoose = onChoose;
  }

  /**
   * Shows the patterns of a mask, and selects the pattern of `at`, which is `[batch row, head]`. `bound` is the answer of POST /api/masks.
   */
  show(bound, at) {
    const isNew = this.#bound?.id !== bound.id;
    this.#bound = bound;
    this.#at = at;
    if (isNew) this.#paint();
    const chosen = this.#patternOf(...at);
    for (const button of this.element.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.at === String(chosen)));
    this.#fields.forEach((input, axis) => {
      if (input !== document.activeElement) input.value = String(at[axis]);
    });
  }

  #paint() {
    const { patterns, pattern_count: count = patterns.length, batch: rows, heads } = this.#bound;
    this.element.hidden = rows * heads < 2;
    this.#fields = [];
    if (this.element.hidden) {
      fill(this.element);
      return;
    }
    const listed = Math.min(patterns.length, MOST);
    const all = count === 1 ? "One pattern" : `${number(count)} distinct patterns`;
    const [ofBatch, ofHead] = [this.#field("Batch row", 0, rows), this.#field("Head", 1, heads)];
    fill(
      this.element,
      el(
        "div",
        { class: "pattern-head" },
        el("h2", { class: "eyebrow" }, listed < count ? `${all}, the first ${listed} shown` : all),
        rows > 1 && ofBatch,
        heads > 1 && ofHead,
      ),
      listed > 1 &&
        el(
          "div",
          { class: "pattern-list" },
          patterns.slice(0, MOST).map((pattern, i) => this.#pattern(pattern, i)),
        ),
    );
  }

  /** Returns the index of the pattern of a batch row and head; null if the server did not list this pattern. */
  #patternOf(batch, head) {
    const { patterns, pattern_of: of, heads } = this.#bound;
    if (of) return of[batch * heads + head] ?? null;
    const found = patterns.findIndex(({ pairs }) => pairs.some(([b, h]) => b === batch && h === head));
    return found < 0 ? null : found;
  }

  #pattern({ pairs, caption }, i) {
    const [batch, head] = pairs[0];
    return el(
      "button",
      { type: "button", class: "pattern", dataset: { at: String(i) }, onclick: () => this.#onChoose([batch, head]) },
      thumbnail(this.#api, this.#bound, { batch, head, size: 64, label: "" }),
      el("span", {}, caption ?? `batch ${batch}, head ${head}`),
    );
  }

  /** Returns a field for the index of a batch row (`axis` 0) or of a head (`axis` 1). `count` is the number of batch rows or heads. */
  #field(name, axis, count) {
    const input = el("input", {
      type: "number",
      id: uid("pair"),
      min: "0",
      max: String(count - 1),
      oninput: () => {
        const value = Number(input.value);
        const fits = input.value !== "" && Number.isInteger(value) && value >= 0 && value < count;
        input.setAttribute("aria-invalid", String(!fits));
        if (fits) this.#onChoose(this.#at.with(axis, value), { replace: true });
      },
      onblur: () => {
        input.setAttribute("aria-invalid", "false");
        input.value = String(this.#at[axis]);
      },
    });
    this.#fields[axis] = input;
    return el("span", { class: "pair-field" }, el("label", { for: input.id }, name), input, `0 to ${number(count - 1)}`);
  }
}
