// A dialog that reads pasted arrays, such as `cu_seqlens` or an attention mask, as facts.

import { recognise } from "../base/api.js";
import { button, openDialog } from "../base/dialog.js";
import { debounce, el, fill, inline, number, plural } from "../base/dom.js";
import { defined } from "../base/facts-made.js";
import { labelled } from "./fields.js";
import { Latest } from "../base/latest.js";

const REST = 150; // ms without a keystroke until the text is read

/** An example of an array that the dialog can read. The dialog shows it when it cannot read the array of the user. */
const EXAMPLE = "cu_seqlens = [0, 8, 24]";

const NAMES = { documents: "lengths of documents", cells: "the cells of a mask", batch: "the arrays of one batch" };
const named = (name) => NAMES[name] ?? `\`${name}\``;

/**
 * Opens the dialog. `mask` is the text of the shown mask, or null if the page shows no mask or several masks. `onUse({shape, facts, mask})`
 * is called with the meaning of the arrays (the reading) that the user chooses; `mask` is left out if the shown mask already uses the
 * facts.
 */
export function openPaste({ mask, shape, onUse }) {
  const input = el("textarea", {
    class: "code paste", rows: 6, spellcheck: "false", autofocus: true,
    placeholder: "[0, 5, 32]    tensor([[1, 1, 0], [1, 0, 0]])    position_ids = [0, 1, 2, 0, 1]",
  });
  const outcome = el("div", { class: "paste-outcome", role: "status" });
  const close = openDialog("Paste an array", [
    el("p", { class: "soft" }, "cu_seqlens, position_ids, segment_ids or an attention mask, as Python, NumPy or PyTorch prints them. The page finds out which it is."),
    labelled("Array", input),
    outcome,
  ], { className: "narrow" });
  const request = new Latest();
  const use = ({ facts, rows, len, mask: uses }) => {
    close();
    const known = mask === null || uses.split(/\s*&\s*/).every((part) => part === "causal" || mask.includes(part));
    const { heads, kv_heads } = shape;
    onUse({
      shape: defined({ len, batch: rows > 1 ? rows : undefined, heads, kv_heads }),
      facts,
      ...(!known && { mask: uses }),
    });
  };
  // Readings of one name differ in the end of their explanation.
  const part = ({ name, says }, readings) => (readings.filter((other) => other.name === name).length > 1 ? `, ${says.split("; ").at(-1)}` : "");
  const option = (reading, _, readings) => {
    const several = readings.length > 1;
    return el("div", { class: "reading" },
      el("p", {}, several ? "" : "This is ", inline(named(reading.name)), ": ", `${reading.says}. `,
        el("span", { class: "soft" }, `${plural(reading.rows, "batch row")} of ${plural(reading.len, "token")}.`)),
      button(several ? `Use as ${named(reading.name).replace(/`/g, "")}${part(reading, readings)}` : "Use", () => use(reading), { class: "primary" }));
  };
  const answered = ({ readings }) =>
    fill(outcome,
      readings.length > 1 && el("p", { class: "notice warn" }, `Ambiguous: this array has ${number(readings.length)} readings. Choose one, or paste it with its name, such as cu_seqlens = […].`),
      readings.map(option));
  const refused = (error) =>
    fill(outcome, el("p", { class: "notice bad" }, inline(error.message), " ", button(`paste ${EXAMPLE}`, example, { class: "repair" })));
  const read = debounce(() => {
    request.stop();
    if (input.value.trim() === "") fill(outcome);
    else request.ask((signal) => recognise(input.value, { signal }), answered, refused);
  }, REST);
  const example = () => {
    input.value = EXAMPLE;
    input.focus();
    read();
  };
  input.addEventListener("input", () => read());
}
