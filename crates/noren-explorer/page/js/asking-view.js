// What the views flow, text and doctor have in common: settings of their own in the state, and one question to the server at a time.

import { aborted } from "./api.js";

export class AskingView {
  #request = null;
  #key;

  /** `key` is the name of the view's settings in the state. */
  constructor(ctx, key) {
    this.ctx = ctx;
    this.#key = key;
  }

  /** Changes some of the view's settings; undefined takes one out. */
  change(patch, { replace = true } = {}) {
    const own = { ...this.ctx.state.get()[this.#key], ...patch };
    for (const [key, value] of Object.entries(own)) if (value === undefined) delete own[key];
    this.ctx.state.set({ [this.#key]: own }, { replace });
  }

  /**
   * Gives up the last question and runs `ask(signal)`, while `busy` (an element) shows that it waits; `refused(error)` where it fails.
   * True where it was answered or refused, and no other has begun since.
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

  /** Ends the running question. */
  giveUp() {
    this.#request?.abort();
  }
}
