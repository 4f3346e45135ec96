// One row in numbers in the mask view: the section below the picture, and the button that opens it.

import { button } from "../base/dialog.js";
import { el, fill } from "../base/dom.js";
import { BoundRow, rowSettings } from "./bound.js";
import { MOST_KEYS } from "./source.js";

export class MaskRow {
  #last = "";

  /**
   * `api` sends requests to the server, and `state` is the state of the page. `onWords(words)` is called when the words of queries and keys
   * change; null means no words.
   * `tooLong()` returns the repairs for a mask with too many keys.
   */
  constructor({ api, state }, onWords, tooLong) {
    this.tooLong = tooLong;
    this.state = state;
    this.words = null;
    this.onWords = onWords;
    const change = (patch) => state.set({ row: { ...state.get().row, ...patch } }, { replace: true });
    this.row = new BoundRow({
      api,
      change,
      onQuery: (q) => state.set({ cell: [q, state.get().cell?.[1] ?? 0] }),
      onWords: (words) => this.#tell(words),
    });
    this.opener = button("One row in numbers", () => {
      const open = state.get().row.open !== true;
      change({ open });
      if (open) this.element.scrollIntoView({ block: "start" });
    }, { "aria-expanded": "false", class: "row-opener" });
    this.repairs = el("div", { class: "repairs", hidden: true });
    this.element = el("section", { class: "row-section", "aria-label": "One row in numbers", hidden: true },
      el("h2", {}, "One row in numbers"), this.repairs, this.row.element);
  }

  #tell(words) {
    if (JSON.stringify(words) === JSON.stringify(this.words)) return;
    this.words = words;
    this.onWords(words);
  }

  /**
   * Shows the attention row of a query of a bound mask: the pinned query, or the last query if no cell is pinned. The last argument is the
   * batch row and the head to show.
   */
  show(bound, { cell, row: own }, [batch, head]) {
    const open = own.open === true;
    this.element.hidden = !open;
    this.opener.setAttribute("aria-expanded", String(open));
    if (!open) {
      this.#last = "";
      this.row.close();
      return this.#tell(null);
    }
    const q = Math.min(cell?.[0] ?? bound.q_len - 1, bound.q_len - 1);
    const set = rowSettings(own, bound.kv_len);
    const asked = JSON.stringify([bound.id, batch, head, q, set]);
    if (asked === this.#last) return undefined;
    this.#last = asked;
    this.repairs.hidden = bound.kv_len <= MOST_KEYS;
    fill(this.repairs, !this.repairs.hidden && this.tooLong());
    return this.row.show({ bound, batch, head, q, set });
  }
}
