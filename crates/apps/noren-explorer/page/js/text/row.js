// One row in numbers in the text view: the scores, weights and values of the model for one token of the user's text.

import { el, plural } from "../base/dom.js";
import { RowPanel } from "../row/row.js";
import { MOST_KEYS } from "../row/source.js";

export class TextRow {
  #last = null;
  #args = null;

  /** `api` sends requests to the server, and `change(patch)` changes the settings of the text view. */
  constructor({ api, change }) {
    this.panel = new RowPanel({ api, onQuery: (token) => change({ token }), onOff: (off) => change({ off }) });
    this.long = el("p", { class: "soft", hidden: true });
    this.root = el("details", { class: "fold panel text-row", ontoggle: () => this.#ask() },
      el("summary", {}, "One row in numbers"), this.long, this.panel.element);
  }

  /**
   * Shows the attention row of the chosen token; if a word is chosen, that of the last token of the word. `answer` is the server's answer,
   * and the second argument has settings of the view.
   */
  show(answer, { token, word, off }) {
    const count = answer.tokens.length;
    const last = answer.units[word]?.tokens[1] ?? count;
    const q = Math.min(token ?? last - 1, count - 1);
    this.#args = { answer, q, off: off.filter((key) => key < count) };
    this.#ask();
  }

  #ask() {
    if (!this.root.open || !this.#args) return;
    const { answer, q, off } = this.#args;
    const count = answer.tokens.length;
    const long = count > MOST_KEYS;
    this.long.hidden = !long;
    this.panel.element.hidden = long;
    this.long.textContent = `Rows are shown in numbers for texts of at most ${MOST_KEYS} tokens: this text has ${plural(count, "token")}.`;
    const asked = JSON.stringify([q, off]);
    if (long || (this.#last?.answer === answer && this.#last.asked === asked)) return;
    this.#last = { answer, asked };
    const { scores, values, sink } = answer.numbers;
    this.panel.show({
      id: answer.id, mask: answer.mask, qLen: count, kvLen: count, batch: 0, head: answer.head, q, off, from: "model",
      words: { queries: answer.tokens, keys: answer.tokens },
      numbers: { scores: scores[q], values, sink },
      note: `The numbers of the model over your text: layer ${answer.layer}, head ${answer.head}.`,
    });
  }
}
