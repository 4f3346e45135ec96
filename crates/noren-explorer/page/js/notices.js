// The notices over a picture: it is not, or not yet, the requested picture, or some of its tiles cannot be drawn.

import { el, plural } from "./dom.js";

const PATIENCE = 120; // ms for which tiles may be missing before a notice appears

export class Notices {
  #veil = el("p", { class: "picture-veil", role: "status", hidden: true });
  #status = el("p", { class: "picture-status", role: "status", hidden: true });
  #onLate;
  #timer = 0;

  /** Whether tiles are missing for longer than PATIENCE. */
  late = false;
  elements = [this.#veil, this.#status];

  /** `onLate()` is called when tiles begin to be late. */
  constructor(onLate) {
    this.#onLate = onLate;
  }

  /** Measures the time since tiles began to be missing. */
  wait(complete) {
    if (complete) this.reset();
    else this.#timer ||= setTimeout(() => this.#run(), PATIENCE);
  }

  #run() {
    this.late = true;
    this.#onLate();
  }

  /** Restarts the measurement. */
  reset() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.late = false;
  }

  /** Shows the reason why the picture is `outdated` (empty: it is not), or that it is being drawn, and its `failures` (null: none). */
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

/** Shows a text in an element, which is hidden if the text is empty; an unchanged text is not announced again. */
function write(element, words) {
  if (element.textContent === words) return;
  element.textContent = words;
  element.hidden = words === "";
}
