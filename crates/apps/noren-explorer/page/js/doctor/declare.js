// The declared properties of a mask, as a form. All fields are optional; the doctor does not guess a property that affects its diagnosis.

import { button } from "../base/dialog.js";
import { el, fill, uid } from "../base/dom.js";
import { defined } from "../base/facts-made.js";
import { labelled, pairLine } from "../edit/fields.js";

/**
 * The declarations that have their own field in the form, each as `[key, label, choices or type, kinds]`. `kinds` is a regular expression:
 * the field is shown only if the declared kind of the mask matches it.
 */
const FIELDS = [
  ["kind", "Kind", [
    "causal", "bidirectional", "sliding", "chunked", "prefix_lm", "causal_packed", "tree", "cross", "bidirectional_sliding",
  ]],
  ["convention", "True or 1 means", [
    ["keep_bool", "may attend (bool)"], ["ignore_bool", "ignored (bool)"],
    ["keep_01", "may attend (0 and 1)"], ["additive", "added to scores"],
  ]],
  ["past_len", "Tokens in the cache", "number"],
  ["window", "Window", "number", /sliding/],
  ["window_means", "The window counts", ["keys visible, self included", "keys before the query", "keys on each side", "keys in total"], /sliding/],
  ["chunk", "Chunk", "number", /chunk/],
  ["prefix_len", "Prefix", "number", /prefix/],
  ["pad_token_id", "Padding id", "number"],
  ["eos_token_id", "End id", "number"],
  ["padding_side", "Side of the padding", ["left", "right"]],
  ["compute_dtype", "Number type of the scores", ["float32", "bfloat16", "float16"]],
];
const KNOWN = new Set(FIELDS.map(([key]) => key));

/** The names of declarations without their own field in the form. The form offers these names as suggestions. */
const FURTHER = [
  "api", "role", "batch", "heads", "q_len", "kv_len", "bos_token_id", "special_token_ids", "kv_written", "lengths", "sinks", "bias",
  "position_encoding", "redactions", "layers", "layer", "layer_types", "is_causal", "max_seqlen", "ignore_index", "pooling",
  "prompt_len", "chunk_from", "prefix_from", "score_bound", "task", "model_shifts_labels", "mlm_probability",
];

/** Parses a value that the user typed: as JSON if the text is valid JSON, otherwise as text. */
function valueOf(typed) {
  try {
    return JSON.parse(typed);
  } catch {
    return typed;
  }
}

export class Declaration {
  /**
   * `onContext(object)` is called with the changed declarations. `editor` is the element in which the user writes the complete intended
   * mask.
   */
  constructor({ onContext, editor }) {
    this.onContext = onContext;
    this.context = {};
    this.fields = new Map();
    const fields = FIELDS.map((field) => this.field(field));
    this.rows = el("div", { class: "doctor-rows" });
    const names = uid("keys");
    this.names = names;
    this.root = el("section", { class: "panel doctor-declare", "aria-label": "Declared" },
      el("h2", {}, "The intended mask"),
      el("div", { class: "doctor-fields" }, fields),
      el("datalist", { id: names }, FURTHER.map((key) => el("option", { value: key }))),
      el("details", { class: "fold", ontoggle: (event) => event.target.open && this.rows.children.length === 0 && this.addRow() },
        el("summary", {}, "Further keys"),
        this.rows,
        button("Add a key", () => this.addRow().querySelector("input").focus())),
      el("div", { class: "field" },
        el("span", {}, "The complete intended mask; if it is given, the diagnosis guesses nothing"), editor));
  }

  field([key, label, choices, kinds]) {
    const tell = () => this.put(key, input.value === "" ? undefined : choices === "number" ? Number(input.value) : input.value);
    const option = (choice) => {
      const [value, name] = Array.isArray(choice) ? choice : [choice, choice.replaceAll("_", " ")];
      return el("option", { value }, name);
    };
    const input = choices === "number"
      ? el("input", { type: "number", inputmode: "numeric", step: 1, oninput: () => input.validity.valid && tell() })
      : el("select", { onchange: tell }, el("option", { value: "" }, "not given"), choices.map(option));
    const root = labelled(label, input);
    this.fields.set(key, { input, root, kinds });
    return root;
  }

  addRow(key = "", value = "") {
    const tell = () => this.tellRows();
    const name = { list: this.names, value: key, placeholder: "key", "aria-label": "Key" };
    const row = pairLine("doctor-row", name, { value, placeholder: "value", "aria-label": "Value" }, "Remove this key", tell);
    this.rows.append(row);
    return row;
  }

  /**
   * Returns the declarations that the user typed as rows of keys and values, as a list of `[key, value]`. If several rows have the same
   * key, the last row is used.
   */
  typedRows() {
    const typed = [...this.rows.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
    const said = typed.filter(([key, value]) => key && value).map(([key, value]) => [key, valueOf(value)]);
    return Object.entries(Object.fromEntries(said));
  }

  tellRows() {
    const own = Object.entries(this.context).filter(([key]) => KNOWN.has(key));
    this.context = Object.fromEntries([...own, ...this.typedRows()]);
    this.onContext(this.context);
  }

  put(key, value) {
    this.context = defined({ ...this.context, [key]: value });
    this.onContext(this.context);
  }

  /** Shows the declared properties of the mask, `context`, in the fields of the form. */
  update(context) {
    this.context = context;
    const kind = String(context.kind ?? "");
    for (const [key, { input, root, kinds }] of this.fields) {
      const value = context[key] ?? "";
      if (input.tagName === "SELECT" && value !== "" && ![...input.options].some((option) => option.value === String(value))) {
        input.append(el("option", { value }, value));
      }
      // The text that the user types stays while its meaning is the same.
      if (document.activeElement !== input || input.value === "" || Number(input.value) !== value) input.value = value;
      // A field that does not apply to this kind of mask is hidden, unless it has a value.
      root.hidden = Boolean(kinds && !kinds.test(kind) && value === "");
    }
    const further = Object.entries(context).filter(([key]) => !KNOWN.has(key));
    const typing = this.rows.contains(document.activeElement);
    const typed = this.typedRows().filter(([key]) => !KNOWN.has(key));
    if (typing && JSON.stringify(further) === JSON.stringify(typed)) return;
    fill(this.rows);
    for (const [key, value] of further) this.addRow(key, typeof value === "string" ? value : JSON.stringify(value));
  }
}
