// The notices over a picture: it is not, or not yet, the requested picture, or some of its tiles cannot be drawn.

import { el, plural } from "./dom.js";

const PATIENCE = 120; // ms for which tiles may be missing before a notice appears

export class Notices {
  #veil = el("p", { class: "picture-veil", role: "status", hidden: true });
  #status = el("p", { class: "picture-status", role: "status", hidden: true });
  #onLate;
  #timer = 0;

  /** Whether tiles of the picture have been missing for longer than PATIENCE. */
  late = false;
  elements = [this.#veil, this.#status];

  /** `onLate()` is called when tiles have been missing for the time PATIENCE. */
  constructor(onLate) {
    this.#onLate = onLate;
  }

  /**
   * Stops the timer for missing tiles if the picture is `complete`. Otherwise starts the timer, which calls `onLate` after the time
   * PATIENCE.
   */
  wait(complete) {
    if (complete) this.reset();
    else this.#timer ||= setTimeout(() => this.#run(), PATIENCE);
  }

  #run() {
    this.late = true;
    this.#onLate();
  }

  /** Stops the timer for missing tiles. */
  reset() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.late = false;
  }

  /**
   * Shows the notices over the picture. `outdated` is the reason why the picture does not show the current mask, or empty. `complete` is
   * true if no tile is missing. `failures` describes tiles that failed, or is null.
   */
  show(outdated, complete, failures) {
    write(this.#veil, outdated || (this.late && !complete && !failures ? "Drawing …" : ""));
    const again = failures?.over ? "The page does not try again until the view changes." : "The page tries again soon.";
    write(
      this.#status,
      failures
        ? `${plural(failures.count, "piece")} of this picture cannot be drawn: ${failures.error.message.replace(/\.$/, "")}. ${again}`
        : "",
    );
  }
}

/** Shows a text in an element. An empty text hides the element. If the text is unchanged, screen readers do not announce the text again. */
function write(element, words) {
  if (element.textContent === words) return;
  element.textContent = words;
  element.hidden = words === "";
}
