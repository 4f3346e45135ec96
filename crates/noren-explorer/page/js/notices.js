// The words over a picture: that it is not, or not yet, the requested picture, and which pieces of it cannot be drawn.

import { el, plural } from "./dom.js";

const PATIENCE = 120; // ms that pieces may be missing before a notice appears

export class Notices {
  #veil = el("p", { class: "picture-veil", role: "status", hidden: true });
  #status = el("p", { class: "picture-status", role: "status", hidden: true });
  #onLate;
  #timer = 0;

  /** Whether pieces are missing for longer than a user waits without a word. */
  late = false;
  elements = [this.#veil, this.#status];

  /** `onLate()` is called when pieces begin to be late. */
  constructor(onLate) {
    this.#onLate = onLate;
  }

  /** Counts the time since pieces began to be missing. */
  wait(complete) {
    if (complete) this.reset();
    else this.#timer ||= setTimeout(() => this.#run(), PATIENCE);
  }

  #run() {
    this.late = true;
    this.#onLate();
  }

  /** Counts from the beginning. */
  reset() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.late = false;
  }

  /** Shows why the picture is `outdated` (empty: it is not), or that it is being drawn, and its `failures` (null: none). */
  show(outdated, complete, failures) {
    write(this.#veil, outdated || (this.late && !complete && !failures ? "Drawing …" : ""));
    const again = failures?.over ? "No further attempt until the view changes." : "A new attempt follows soon.";
    write(
      this.#status,
      failures
        ? `${plural(failures.count, "piece")} of this picture cannot be drawn: ${failures.error.message.replace(/\.$/, "")}. ${again}`
        : "",
    );
  }
}

/** Shows words in an element, which hides where there are none; the same words are not announced twice. */
function write(element, words) {
  if (element.textContent === words) return;
  element.textContent = words;
  element.hidden = words === "";
}
