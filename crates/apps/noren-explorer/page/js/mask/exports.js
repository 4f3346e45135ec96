// The exports of the mask view: downloads, copies to the clipboard, and a link to the state of the page.

import { COPIES, copyAs } from "../base/copy.js";
import { copyText, menuButton } from "../base/dialog.js";
import { repairable } from "../base/repairs.js";
import { state } from "../base/state.js";

/** The formats in which a mask can be downloaded, each as `[name in the API, title, note]`. */
const EXPORTS = [
  ["svg", "SVG", "a picture that stays sharp at any size"],
  ["png", "PNG", "a picture"],
  ["txt", "Text", "a picture of characters, as in the terminal"],
  ["html", "Save as web page", "one file with the reason of each cell and the code, to send to others"],
  ["expression", "Expression", "the mask's text"],
  ["json", "JSON", "the mask with its shape and facts"],
  ["npy", "NumPy array", "every cell"],
];
/**
 * The export formats that are pictures. If the picture on the page is zoomed, an export in such a format contains only the visible part.
 */
const PICTURES = ["svg", "png", "txt", "html", "markdown"];

/** The menu of the exports of a mask. */
export class Exports {
  #ctx;
  #source;

  /**
   * `source()` returns the mask to export as `{id, at, now, other, camera}`, or null if there is no mask. `id` is the identity of the mask
   * in the API, `at` the shown batch row and head, `now` the state of the page, and `camera` the camera of the picture. `other` is the
   * identity of the second mask of a comparison if both masks have the same sizes.
   */
  constructor(ctx, source) {
    this.#ctx = ctx;
    this.#source = source;
    this.element = menuButton("Export", [
      ...COPIES.map(([as, name, note]) => [name, note, () => this.#export(as, this.#copy)]),
      ...EXPORTS.map(([as, name, note]) => [name, note, () => this.#export(as, this.#ctx.api.download)]),
    ]);
  }

  /** Enables the menu, or disables it because a mask text has an error. */
  enable(can) {
    const opener = this.element.querySelector("button");
    opener.disabled = !can;
    opener.title = can ? "" : "A mask text has an error: fix the error to export the mask";
  }

  /** Exports the mask in the format `as` with `act(id, options)`, the download or the copy. Shows an error with its repairs. */
  async #export(as, act) {
    const from = this.#source();
    if (!from) return;
    try {
      await act(from.id, options(as, from));
    } catch (error) {
      const [again, save] = [() => this.#export(as, act), (form) => this.#export(form, this.#ctx.api.download)];
      const { message, actions } = repairable(error, { now: from.now, again, save });
      this.#ctx.toast(message, { kind: "error", actions });
    }
  }

  #copy = async (id, given) => {
    const copied = await copyAs(given.as, () => this.#ctx.api.exportedBlob(id, given));
    this.#ctx.toast(copied ? "Copied." : "The clipboard is not available: choose a download instead.", { kind: copied ? "note" : "error" });
  };
}

/** Returns the options with which an export in the format `as` shows the same as the picture on the page. */
function options(as, { at: [batch, head], now, other, camera }) {
  const { q0, q1, k0, k1 } = camera.seen();
  const picture = PICTURES.includes(as);
  const part = picture && now.camera !== null ? { rows: `${q0}..${q1}`, keys: `${k0}..${k1}` } : {};
  return { as, batch, head, plan: now.plan, other: picture ? other : undefined, ...part };
}

/** Copies the address of the page, which contains the state of the page, to the clipboard. */
export function copyLink({ toast }) {
  state.write();
  copyText(location.href, toast, "Link copied.", () => toast("The clipboard is not available; the address line holds the link."));
}
