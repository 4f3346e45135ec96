// Fields and buttons that move through a picture: to a query and key, and to the next border between allowed and hidden cells.

import { button, icon, iconButton } from "../base/dialog.js";
import { el, number, uid } from "../base/dom.js";
import { Latest } from "../base/latest.js";
import { readCount } from "../edit/lists.js";

/** The searches for borders: title, icon, keyboard shortcut, and the parameters of the request. */
const BORDERS = [
  ["Border to the left", "M14 6l-6 6 6 6M19 5v14", "[", { along: "keys", back: true }],
  ["Border to the right", "M10 6l6 6-6 6M5 5v14", "]", { along: "keys", back: false }],
  ["Border above", "M6 14l6-6 6 6M5 19h14", "{", { along: "queries", back: true }],
  ["Border below", "M6 10l6 6 6-6M5 5h14", "}", { along: "queries", back: false }],
];

export class GoTo {
  #api;
  #on;
  #bound = null;
  #pair = [0, 0];
  #asking = new Latest();

  /**
   * `api` sends the requests to the server. `cell()` returns the cell from which a search for the next border between allowed and hidden
   * cells begins. `onCell(cell)` is called with the cell to go to, and `onNote(text)` with a text for the user.
   */
  constructor({ api, cell, onCell, onNote }) {
    this.#api = api;
    this.#on = { cell, onCell, onNote };
    const field = (label) => {
      const input = el("input", { id: uid("goto"), type: "text", inputmode: "numeric", autocomplete: "off" });
      return [el("label", { for: input.id }, label), input];
    };
    const [query, key] = [field("Query"), field("Key")];
    this.inputs = [query[1], key[1]];
    this.element = el(
      "form",
      { class: "goto", "aria-label": "Go to", onsubmit: (event) => this.#submit(event) },
      query, key, button("Go", null, { type: "submit" }),
      el("span", { class: "tool-group" }, BORDERS.map(([title, path, , search]) => iconButton(title, icon(path), () => this.border(search)))),
    );
  }

  /** Shows the cell `cell` (null for none) of a mask. `bound` is the answer of POST /api/masks, and `pair` is `[batch row, head]`. */
  show(bound, pair, cell) {
    this.#bound = bound;
    this.#pair = pair;
    this.inputs.forEach((input, axis) => {
      if (document.activeElement === input) return;
      input.value = cell ? number([cell.q, cell.k][axis]) : "";
      input.setAttribute("aria-invalid", "false");
      input.placeholder = `0 to ${number([bound.q_len, bound.kv_len][axis] - 1)}`;
    });
  }

  #submit(event) {
    event.preventDefault();
    if (!this.#bound) return;
    const sizes = [this.#bound.q_len, this.#bound.kv_len];
    const start = this.#on.cell() ?? { q: 0, k: 0 };
    const values = this.inputs.map((input, axis) => {
      try {
        const value = input.value.trim() === "" ? [start.q, start.k][axis] : readCount(input.value.replace(/[,\s]/g, ""));
        input.setAttribute("aria-invalid", String(value >= sizes[axis]));
        return value < sizes[axis] ? value : null;
      } catch {
        input.setAttribute("aria-invalid", "true");
        return null;
      }
    });
    const wrong = values.indexOf(null);
    if (wrong < 0) return this.#on.onCell({ q: values[0], k: values[1] });
    this.inputs[wrong].focus();
    return this.#on.onNote(`There are the ${["queries", "keys"][wrong]} 0 to ${number(sizes[wrong] - 1)}.`);
  }

  /** Handles a press of the key `name`. Returns false if the key searches no border. */
  key(name) {
    const found = BORDERS.find(([, , key]) => key === name);
    if (found) this.border(found[3]);
    return Boolean(found);
  }

  /** Goes to the first cell behind the next border of the row (`along` keys) or the column (`along` queries). */
  border(search) {
    if (!this.#bound) return;
    const from = this.#on.cell() ?? { q: 0, k: 0 };
    const [batch, head] = this.#pair;
    const send = (signal) => this.#api.border(this.#bound.id, { batch, head, ...from, ...search, signal });
    const answered = ({ cell, allowed }) => {
      if (cell) return this.#on.onCell(cell);
      const line = search.along === "keys" ? `query ${number(from.q)}` : `key ${number(from.k)}`;
      return this.#on.onNote(`No border there: the rest of ${line} is ${allowed ? "allowed" : "hidden"}.`);
    };
    this.#asking.ask(send, answered, (error) => this.#on.onNote(error.message));
  }
}
