// What the user can do about an error: a button that opens the control of the error, and repairs of one click.

import { shownError } from "./causes.js";
import { button } from "./dialog.js";
import { el, fill, inline } from "./dom.js";

/** The titles of the buttons that open controls. */
const OPEN = {
  editor: "Show the place", lengths: "Give lengths", documents: "Give documents", labels: "Give labels", levels: "Give levels",
  layer: "Choose a layer", facts: "Open the facts", query_offset: "Give the offset", kind: "Open the shape", len: "Change the length",
  q: "Change the queries", kv: "Change the keys", past: "Change the cached keys", new: "Change the new queries", batch: "Change the batch",
  heads: "Change the heads", kv_heads: "Change the KV heads", depth: "Change the depth", policy: "Go to the rules", text: "Go to the text",
};

/**
 * Returns what the page shows for an error of the server, as `{message, hint, start, end, control, actions}`; `actions` are buttons. `now`
 * is the state of the page and `last` the last scene without an error, or null. `open(control)` focuses a control, `change(patch)` changes
 * the state, `edit(fn)` changes the text of the mask, and `again()` repeats the request. `save(form)` exports the mask in another format.
 * If `keys` is given, only repairs that change these keys of the state are offered.
 */
export function repairable(error, { now, last = null, open, change, edit, again, save, keys = null }) {
  const { says, hint, control, fixes } = shownError(error, now, last);
  const act = (fix) => {
    if (fix.patch) change(fix.patch);
    if (fix.edit) edit(fix.edit);
    if (fix.again) again();
    if (fix.export) save(fix.export);
  };
  const usable = fixes.filter((fix) => (!fix.edit || edit) && (!fix.again || again) && (!fix.patch || change) && (!fix.export || save))
    .filter(({ patch }) => !patch || !keys || Object.keys(patch).every((key) => keys.includes(key)));
  return {
    message: says,
    hint,
    start: error.start ?? null,
    end: error.end ?? null,
    control,
    actions: [
      open && OPEN[control] && button(OPEN[control], () => open(control), { class: "repair opens", dataset: { opens: control } }),
      ...usable.map((fix) => button(fix.title, () => act(fix), { class: "repair", dataset: { repair: fix.title } })),
    ].filter(Boolean),
  };
}

/** Shows an error of the server with its actions in an element. `shown` is the result of `repairable`, or null to hide the element. */
export function paintError(element, shown) {
  element.hidden = !shown;
  fill(
    element,
    shown && [
      el("span", {}, inline(shown.message), shown.hint && [" ", inline(shown.hint)]),
      shown.actions.length > 0 && el("span", { class: "repairs" }, shown.actions),
    ],
  );
}
