// A file with a mask as the second mask of a comparison. The file stays in the page's memory and is not in the address.

import { repairable } from "../base/repairs.js";
import { button } from "../base/dialog.js";
import { el, number } from "../base/dom.js";

/** Returns the sizes of a bound mask as text: `24 × 24`, with batch rows and heads if there are several. */
export const inSizes = ({ q_len: q, kv_len: kv, batch, heads }) =>
  [`${number(q)} × ${number(kv)}`, batch > 1 && `${number(batch)} batch rows`, heads > 1 && `${number(heads)} heads`].filter(Boolean).join(", ");

export class FileMask {
  /**
   * `file` is `{text, bound}`, or null before a file is chosen. `text` represents the file in the page's state, and `bound` is the mask in
   * the format of the answer of POST /api/masks.
   */
  file = null;

  /** `onFile(file)` is called when the mask of a chosen file is read. */
  constructor(ctx, onFile) {
    this.ctx = ctx;
    this.onFile = onFile;
    this.input = el("input", { type: "file", accept: ".npy,.npz,.safetensors", hidden: true, "aria-label": "File with a mask", onchange: () => this.#choose() });
    this.element = el("span", {}, button("A file", () => this.input.click(), { class: "plain", title: "Compare with the mask in an npy, npz or safetensors file" }), this.input);
  }

  /** Returns whether `text`, the text of the second mask in the page's state, represents the chosen file. */
  holds = (text) => this.file !== null && this.file.text === text;

  #choose() {
    const [chosen] = this.input.files;
    this.input.value = "";
    if (chosen) this.#take(chosen);
  }

  async #take(chosen) {
    const another = button("choose another file", () => this.input.click(), { class: "repair" });
    try {
      const { given, dims } = await this.ctx.api.doctor(chosen, {});
      if (!given) {
        const actions = [another, button("open the doctor", () => this.ctx.go("doctor"), { class: "repair" })];
        return this.ctx.toast(`${chosen.name} has no mask that can be read: open it in the doctor.`, { kind: "error", actions });
      }
      const [batch, heads, q_len, kv_len] = dims;
      const text = `dense(${chosen.name.replace(/\W+/g, "_").replace(/^(\d)/, "_$1")})`;
      this.file = { text, bound: { id: given, mask: chosen.name, q_len, kv_len, batch, heads } };
      return this.onFile(this.file);
    } catch (error) {
      const { message, actions } = repairable(error, { now: this.ctx.state.get(), again: () => this.#take(chosen) });
      return this.ctx.toast(message, { kind: "error", actions: [another, ...actions] });
    }
  }
}
