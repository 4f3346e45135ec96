// Requests of which only the latest counts. They end with the view.

import { aborted } from "./api.js";
import { onClose } from "./closing.js";

export class Latest {
  #running = null;

  constructor() {
    onClose(() => this.stop());
  }

  /**
   * Cancels the previous request and runs `send(signal)`, which sends a new one. Calls `answered(answer)`, or `refused(error)` after an error
   * of `send` or `answered`. Calls neither if the request was cancelled or a newer one replaced it. Returns whether one was called.
   */
  async ask(send, answered, refused = () => {}) {
    this.stop();
    const request = new AbortController();
    this.#running = request;
    try {
      const answer = await send(request.signal);
      if (this.#running !== request) return false;
      await answered(answer);
    } catch (error) {
      if (aborted(error) || this.#running !== request) return false;
      refused(error);
    }
    return true;
  }

  /** Cancels the request, if one is running. */
  stop() {
    this.#running?.abort();
    this.#running = null;
  }
}
