// The controls beside a picture or a cost: the editor, the documentation, shape and facts. They bind the scene on the server.

import { command, commandFold, shapeOptions, withFacts } from "../base/command.js";
import { debounce, el } from "../base/dom.js";
import { Editor } from "./editor.js";
import { Facts } from "./facts.js";
import { Latest } from "../base/latest.js";
import { repairable } from "../base/repairs.js";
import { state } from "../base/state.js";

const REST = 30; // ms after a keystroke until the request, except for the first keystroke
const PAUSE = 150; // ms after which the next keystroke counts as a first one

/**
 * Returns an object that sends masks to the server, which binds them. `bind(scene)` sends a mask with its shape and facts, and cancels the
 * previous request; `stop()` cancels the current request. Calls `onBound(bound, scene)` with the server's answer, or `onError(error)`.
 */
export function createBinder(api, { onBound, onError }) {
  const latest = new Latest();
  let asked = "";
  let last = -PAUSE;
  const ask = (scene) =>
    latest.ask((signal) => api.masks(scene, { signal }), (bound) => onBound(bound, scene), onError);
  const later = debounce(ask, REST);
  return {
    bind(scene, { now = false } = {}) {
      const name = JSON.stringify(scene);
      if (name === asked) return;
      asked = name;
      const at = performance.now();
      if (now || at - last > PAUSE) later.now(scene);
      else later(scene);
      last = at;
    },
    /** Sends the last scene again. */
    again() {
      if (asked) ask(JSON.parse(asked));
    },
    stop() {
      later.cancel();
      latest.stop();
      asked = "";
    },
  };
}

/**
 * Shows an error of the server in the editor, with its repairs. If the error has a position, the text at this position is marked. `facts`
 * are the controls of shape and facts (null if the view has none), `change(patch)` changes the state (null if nothing can be changed), and `last` is the last scene without an error, or null. `again()` repeats the request.
 */
export function showError(editor, error, { facts = null, last = null, again, change = (patch) => state.set(patch) }) {
  const open = (control) => (control === "editor" ? editor.focusError() : facts?.open(control));
  const shown = repairable(error, { now: state.get(), last, open, change, edit: (fn) => editor.retype(fn(editor.value())), again });
  editor.setError({ ...shown, reveal: () => shown.control !== "editor" && facts?.blame(shown.control) });
}

/**
 * Returns a command line that shows `masks`, the texts of one or more masks. The line has the command `name`, for example `show`, the
 * masks, and options for the shape, the facts and the layer.
 */
function sceneCommand([name, ...masks], { shape, facts, layer }) {
  return withFacts(command(name, ...masks, ...shapeOptions(shape), ["--layer", layer]), facts);
}

/**
 * Returns the mask editor with documentation and with controls for the shape and the facts. `onBound(bound, scene)` is called after the
 * server has bound the scene, and `onBroken(error)` after an error. `asCommand(state)` returns the command that shows the same view in a
 * terminal, and the masks of this command, such as `["show", mask]`.
 */
export function createBench(ctx, { onBound, onBroken, asCommand }) {
  let bound = null;
  let good = null; // the last scene without an error
  let last = {};
  const docs = el("section", { class: "docs", "aria-label": "Documentation of the name at the caret", hidden: true });
  const editor = new Editor({
    label: "Mask",
    language: ctx.language,
    docs,
    placeholder: "causal & documents",
    labels: () => Object.keys(bound?.labels ?? state.get().facts.labels ?? {}),
    onInput: (mask) => state.set({ mask }, { replace: true, typed: true }),
  });
  const facts = new Facts({
    onChange: (patch) => state.set({ ...patch, camera: null, cell: null }, { replace: patch.mask === undefined }),
    mask: () => state.get().mask,
  });
  const line = commandFold(ctx.toast);
  const binder = createBinder(ctx.api, {
    onBound(next, scene) {
      bound = next;
      good = scene;
      editor.setError(null);
      facts.mark(null);
      facts.update(state.get(), bound);
      onBound(next, scene);
    },
    onError(error) {
      showError(editor, error, { facts, last: good, again: () => binder.again() });
      onBroken?.(error);
    },
  });

  return {
    editor,
    docs,
    facts: [facts.element, line.root],
    controls: facts,
    good: () => good,
    update(now) {
      editor.setValue(now.mask);
      if (last.shape !== now.shape || last.facts !== now.facts || last.layer !== now.layer) facts.update(now, bound);
      if (["mask", "other", "shape", "facts", "layer"].some((key) => last[key] !== now[key]))
        line.show(sceneCommand(asCommand(now), now));
      binder.bind(state.scene(now), { now: last.mask === undefined });
      last = now;
    },
  };
}
