// The panel "Code" beside the explanation: the mask as code of another library, with a button that copies the code.

import { errorWords } from "../base/api.js";
import { copyButton } from "../base/dialog.js";
import { el, fill } from "../base/dom.js";
import { Latest } from "../base/latest.js";
import { recall, remember } from "../base/storage.js";

const KEY = "noren code";

/**
 * The panel that shows a mask as code of other libraries. `element` is the HTML element of the panel; `show(bound)` shows the code of a
 * bound mask as soon as the panel is open.
 */
export class CodePanel {
  #ctx;
  #bound = null;
  #request = new Latest();
  #shown = ""; // the mask and the library whose code is shown

  constructor(ctx) {
    this.#ctx = ctx;
    const kept = recall(KEY);
    this.choice = el(
      "select",
      { "aria-label": "Library", onchange: () => this.#choose() },
      ctx.language.targets.map(({ name, title }) => el("option", { value: name }, title)),
    );
    this.choice.value = ctx.language.targets.some(({ name }) => name === kept) ? kept : "flex";
    this.text = el("code", {});
    this.code = el("pre", { class: "code-text", tabindex: "0", "aria-label": "Code" }, this.text);
    this.note = el("p", { class: "soft", role: "status" });
    this.copy = copyButton(() => this.text.textContent, ctx.toast);
    this.element = el(
      "details",
      { class: "fold code-panel", ontoggle: () => this.#load() },
      el("summary", {}, "Code"),
      el("div", { class: "code-bar" }, this.choice, this.copy),
      this.note,
      this.code,
    );
  }

  /** Shows the code of a bound mask. `null` means that the text of the mask has an error. */
  show(bound) {
    this.#bound = bound;
    this.#load();
  }

  #choose() {
    remember(KEY, this.choice.value);
    this.#load();
  }

  #load() {
    if (!this.element.open) return;
    const [id, to] = [this.#bound?.id, this.choice.value];
    if (this.#shown === `${id} ${to}`) return;
    this.#shown = `${id} ${to}`;
    if (!id) {
      this.#request.stop();
      this.#present("The mask text has an error, so there is no code.");
      return;
    }
    const answered = ({ code, reason }) => this.#present(reason ?? "", code ?? "");
    const refused = (error) => {
      this.#shown = "";
      this.#present(errorWords(error));
    };
    this.#request.ask((signal) => this.#ctx.api.code(id, to, { signal }), answered, refused);
  }

  /** Shows `words`, and the code below. If there is no code, `code` is empty and `words` is the reason. */
  #present(words, code = "") {
    fill(this.text, code);
    fill(this.note, words);
    this.note.hidden = words === "";
    this.code.hidden = code === "";
    this.copy.disabled = code === "";
    this.element.dataset.settled = this.#shown;
  }
}
