// One row in numbers for a bound mask: chooses the numbers, of the model's text or typed, and shows them in a panel.

import { onClose } from "../base/closing.js";
import { RowPanel } from "./row.js";
import { exampleNumbers, MOST_KEYS, modelNumbers, rowOf } from "./source.js";

const typedList = (list, keys) => Array.isArray(list) && list.length === keys && list.every((one) => Number.isFinite(one) && Math.abs(one) <= 3e38);

/**
 * Returns the settings of a row, read from the object `own` of the page's state. Invalid values are left out. `otherwise` is the source of
 * the numbers (`model` or `typed`) if `own` names no source.
 */
export function rowSettings(own, keys, otherwise = "model") {
  const off = Array.isArray(own.off) ? own.off.filter((key) => Number.isInteger(key) && key >= 0 && key < keys) : [];
  return {
    from: ["model", "typed"].includes(own.from) ? own.from : otherwise,
    off: [...new Set(off)],
    scores: typedList(own.scores, keys) ? own.scores : null,
    values: typedList(own.values, keys) ? own.values : null,
  };
}

/**
 * A panel with the numbers of one row of attention (scores, weights and values) for a bound mask. `change(patch)` changes the settings of
 * the row, and `onQuery(q)` is called when the user chooses another query. `onWords(words)` is called with the words of the model's text,
 * or with null if there are no words to show.
 */
export class BoundRow {
  #model;
  #source = null;

  constructor({ api, change, onQuery, onWords = () => {} }) {
    this.#model = modelNumbers(api);
    this.onWords = onWords;
    this.panel = new RowPanel({
      api,
      onQuery,
      onOff: (off) => change({ off }),
      onSource: (from) => change({ from }),
      onTyped: (typed) => change("values" in typed ? { values: typed.values } : { scores: typed.scores }),
    });
    this.element = this.panel.element;
    onClose(() => this.close());
  }

  /**
   * Shows the attention of query `q` in numbers. `bound` is a bound mask, as POST /api/masks returns it. `set` is the result of
   * `rowSettings`, and `words` has the words of queries and keys, or is null.
   */
  async show({ bound, batch, head, q, set, words = null }) {
    const source = (this.#source = {
      id: bound.id, mask: bound.mask, qLen: bound.q_len, kvLen: bound.kv_len, batch, head, q, off: set.off, words, from: set.from,
      note: null, numbers: null,
    });
    const position = q + (bound.query_offsets[batch] ?? bound.query_offsets[0] ?? 0);
    const scores = bound.scores?.length > 0 ? `The score modifiers ${bound.scores.join(", ")} are not applied to these numbers. ` : "";
    const made = exampleNumbers(position, bound.kv_len > MOST_KEYS ? 0 : bound.kv_len);
    const typed = { scores: set.scores ?? made.scores, values: set.values?.map((value) => [value]) ?? made.values, sink: null };
    if (set.from === "typed" || bound.kv_len > MOST_KEYS) {
      this.onWords(null);
      return this.panel.show({ ...source, numbers: typed, note: scores || null });
    }
    let answer = null;
    let why = "";
    try {
      answer = await this.#model(head);
    } catch (error) {
      why = error.message;
    }
    if (this.#source !== source) return undefined;
    const numbers = answer && rowOf(answer.numbers, position, bound.kv_len);
    if (!numbers) {
      this.onWords(null);
      why ||= "The model’s text has no token at this position.";
      return this.panel.show({ ...source, from: "typed", numbers: typed, note: `${why} ${scores}The numbers are made up.` });
    }
    const own = { keys: answer.tokens.slice(0, bound.kv_len), queries: Array.from({ length: bound.q_len }, (_, i) => answer.tokens[i + position - q]) };
    this.onWords(own);
    return this.panel.show({
      ...source,
      words: own,
      numbers,
      note: `${scores}The numbers come from the model of the text view, layer ${answer.layer}, head ${answer.head}, over a sentence of Jane Austen; the mask is yours.`,
    });
  }

  close() {
    this.#source = null;
    this.panel.close();
  }
}
