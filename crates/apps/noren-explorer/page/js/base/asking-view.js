// The common base of the views flow, text and doctor: settings in the state, and one request to the server at a time.

import { defined } from "./facts-made.js";
import { Latest } from "./latest.js";

export class AskingView {
  #request = new Latest();
  #key;

  /** `key` is the key of the page's state under which the view's settings are stored. */
  constructor(ctx, key) {
    this.ctx = ctx;
    this.#key = key;
  }

  /**
   * Changes the view's settings to the values in `patch`; other settings stay. The value undefined removes a setting. If `replace` is
   * false, adds an entry to the browser's history. If `typed` is true, adds the entry only after a pause.
   */
  change(patch, { replace = true, typed = false } = {}) {
    const own = defined({ ...this.ctx.state.get()[this.#key], ...patch });
    this.ctx.state.set({ [this.#key]: own }, { replace, typed });
  }

  /**
   * Sends a request as `Latest.ask` does. The element `busy` is marked as busy until the end of the request. Returns true after an answer or
   * an error, and false if the request was cancelled or a newer request replaced it.
   */
  async askAlone(busy, send, answered, refused) {
    busy.setAttribute("aria-busy", "true");
    const ended = await this.#request.ask(send, answered, refused);
    if (ended) busy.removeAttribute("aria-busy");
    return ended;
  }

  /** Cancels the view's request, if one is running. */
  giveUp() {
    this.#request.stop();
  }
}
