// The common base of the views flow, text and doctor: settings in the state, and one request to the server at a time.

import { aborted } from "./api.js";

export class AskingView {
  #request = null;
  #key;

  /** `key` is the name of the view's settings in the state. */
  constructor(ctx, key) {
    this.ctx = ctx;
    this.#key = key;
  }

  /** Changes some of the view's settings; the value undefined removes a setting. */
  change(patch, { replace = true } = {}) {
    const own = { ...this.ctx.state.get()[this.#key], ...patch };
    for (const [key, value] of Object.entries(own)) if (value === undefined) delete own[key];
    this.ctx.state.set({ [this.#key]: own }, { replace });
  }

  /**
   * Cancels the last request and runs `ask(signal)`. `busy` is an element that shows the wait; `refused(error)` is called on errors.
   * Returns true if the request was answered or refused and no other has begun since.
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

  /** Cancels the running request. */
  giveUp() {
    this.#request?.abort();
  }
}
