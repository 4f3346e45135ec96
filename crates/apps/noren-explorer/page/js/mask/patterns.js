// The distinct patterns of batch rows and heads as small pictures.

import { el, fill, number } from "../base/dom.js";
import { thumbnail } from "../picture/tiles.js";

const MOST = 64; // maximum number of small pictures

export class Patterns {
  #api;
  #onChoose;
  #bound = null;
  element = el("section", { class: "patterns", "aria-label": "Distinct masks of batch rows and heads", hidden: true });

  /** `onChoose([batch, head])` is called when the user chooses a pattern (batch rows and heads with equal cells). */
  constructor(api, onChoose) {
    this.#api = api;
    this.#onChoose = onChoose;
  }

  /**
   * Shows the patterns of a mask (groups of batch rows and heads with equal cells), and selects the pattern of `at`,
   * which is `[batch row, head]`. `bound` is the answer of POST /api/masks.
   */
  show(bound, at) {
    const isNew = this.#bound?.id !== bound.id;
    this.#bound = bound;
    if (isNew) this.#paint();
    const chosen = this.#patternOf(...at);
    for (const button of this.element.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.at === String(chosen)));
  }

  #paint() {
    const { patterns, pattern_count: count, batch: rows, heads } = this.#bound;
    this.element.hidden = rows * heads < 2;
    if (this.element.hidden) {
      fill(this.element);
      return;
    }
    const listed = Math.min(patterns.length, MOST);
    const all = count === 1 ? "One pattern" : `${number(count)} distinct patterns`;
    fill(
      this.element,
      el("h2", { class: "eyebrow" }, listed < count ? `${all}: only the first ${listed} are shown` : all),
      listed > 1 &&
        el(
          "div",
          { class: "pattern-list" },
          patterns.slice(0, MOST).map((pattern, i) => this.#pattern(pattern, i)),
        ),
    );
  }

  /**
   * Returns the index of the pattern (group of batch rows and heads with equal cells) that contains a batch row and head; null if the
   * server did not list this pattern.
   */
  #patternOf(batch, head) {
    return this.#bound.pattern_of[batch * this.#bound.heads + head];
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
}
