// The notices over a picture: it is not, or not yet, the requested picture, or some of its tiles cannot be drawn.

import { button } from "../base/dialog.js";
import { el, plural } from "../base/dom.js";

const PATIENCE = 120; // ms for which tiles may be missing before a notice appears

const alone = (event) => event.stopPropagation();

export class Notices {
  #veil = el("p", { class: "picture-veil", role: "status", hidden: true });
  #status = el("p", { class: "picture-status", role: "status", hidden: true });
  #again = button("try again", () => {}, { class: "repair", hidden: true });
  #onLate;
  #timer = 0;

  /** Whether tiles of the picture have been missing for longer than PATIENCE. */
  late = false;
  // Presses of the button are not gestures of the picture.
  #failure = el("div", { class: "picture-failure", onpointerdown: alone, onkeydown: alone }, this.#status, this.#again);
  elements = [this.#veil, this.#failure];

  /** `onLate()` is called when tiles have been missing for the time PATIENCE, `onAgain()` when the user requests failed tiles again. */
  constructor(onLate, onAgain) {
    this.#onLate = onLate;
    this.#again.addEventListener("click", onAgain);
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
    this.#again.hidden = !failures;
    const again = failures?.over
      ? "The page requests the missing pieces again only after the view changes."
      : "The page soon requests the missing pieces again.";
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
