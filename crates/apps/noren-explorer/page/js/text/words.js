// The text as words: private words are marked with their kind, and a background shows the attention of the selected word to each word.

import { el, fill, percent, uid } from "../base/dom.js";

/** The maximum number of attended words that `readsInWords` lists. */
const TOLD = 5;

export class Words {
  /** `onWord(index, pinned)` is called with the word under the pointer or cursor, or with null. `pinned` is true after a click. */
  constructor({ onWord }) {
    this.onWord = onWord;
    this.prefix = uid("word");
    this.units = [];
    this.at = null;
    this.root = el("div", {
      class: "text-words", role: "listbox", tabindex: 0, "aria-label": "The text, word by word",
      onkeydown: (event) => this.key(event),
      onpointerover: (event) => this.point(event),
      onpointerleave: () => this.onWord(null),
      onclick: (event) => this.point(event, true),
    });
  }

  /**
   * Shows the words of a text. `units` has one object for each word, with the text of the word, the kind of private text that it belongs
   * to, and whether the word is hidden.
   */
  show({ units }) {
    this.units = units;
    this.items = units.map((unit, index) =>
      el("span", {
        class: ["text-word", unit.private && "private", unit.hidden && "hidden-word"].filter(Boolean).join(" "),
        role: "option", id: `${this.prefix}-${index}`, dataset: { index }, "aria-selected": "false",
      }, el("span", { class: "text-own" }, shown(unit.text)),
      unit.private && el("span", { class: "text-kind" }, unit.private, unit.hidden && " · hidden")));
    fill(this.root, this.items.flatMap((item) => [item, " "]));
  }

  /**
   * Shows how strongly the word at `index` attends to each word, by the colour of the background. `row` has one attention weight for each
   * word; null removes the colours.
   */
  light(index, row) {
    this.at = index;
    const most = row ? Math.max(...row, 1e-9) : 1;
    this.items.forEach((item, at) => {
      item.setAttribute("aria-selected", at === index ? "true" : "false");
      item.classList.toggle("reader", at === index);
      item.style.setProperty("--strength", row ? Math.sqrt(row[at] / most).toFixed(3) : 0);
    });
    if (index === null) this.root.removeAttribute("aria-activedescendant");
    else this.root.setAttribute("aria-activedescendant", `${this.prefix}-${index}`);
  }

  point(event, pinned = false) {
    const item = event.target.closest?.(".text-word");
    if (item) this.onWord(Number(item.dataset.index), pinned);
  }

  key(event) {
    const last = this.units.length - 1;
    const now = this.at ?? -1;
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.onWord(null, true);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.onWord(Math.min(Math.max(to, 0), last), true);
    this.items[this.at]?.scrollIntoView({ block: "nearest" });
  }
}

const shown = (text) => (text.trim() === "" ? "␣" : text);

/**
 * Describes which words the word at `index` reads most: `“Jane” reads “Dear” 41 %, “,” 12 %`. `row` has the attention weight of each word.
 */
export function readsInWords(units, index, row) {
  const order = [...row.keys()].filter((at) => row[at] > 0).sort((a, b) => row[b] - row[a]);
  const name = (at) => `“${shown(units[at].text)}”`;
  if (order.length === 0) return `${name(index)} reads nothing.`;
  const told = order.slice(0, TOLD).map((at) => `${name(at)} ${percent(row[at])}`).join(", ");
  return `${name(index)} reads ${told}${order.length > TOLD ? ", …" : "."}`;
}
