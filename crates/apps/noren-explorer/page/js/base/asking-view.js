// The common base of the views flow, text and doctor: settings in the state, and one request to the server at a time.

import { aborted } from "./api.js";

export class AskingView {
  #request = null;
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
    const own = { ...this.ctx.state.get()[this.#key], ...patch };
    for (const [key, value] of Object.entries(own)) if (value === undefined) delete own[key];
    this.ctx.state.set({ [this.#key]: own }, { replace, typed });
  }

  /**
   * Cancels the previous request of the view and runs `ask(signal)`, which sends a new request. The element `busy` is marked as busy until
   * the end of the request. `refused(error)` is called after an error. Returns true after an answer or an error, and false if the request
   * was cancelled or a newer request replaced it.
   */
  async askAlone(busy, ask, refused) {
    this.giveUp();
    const request = new AbortController();
    this.#request = request;
    busy.setAttribute("aria-busy", "true");
    try {
      await ask(request.signal);
    } catch (error) {
      if (aborted(error)) return false;
      refused(error);
    }
    if (this.#request !== request) return false;
    busy.removeAttribute("aria-busy");
    return true;
  }

  /** Cancels the view's request, if one is running. */
  giveUp() {
    this.#request?.abort();
  }
}
