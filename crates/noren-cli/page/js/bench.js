// What a mask is made of, beside its picture or its cost: the editor, the documentation, shape and facts; and the server's view of it.

import { aborted } from "./api.js";
import { debounce, el } from "./dom.js";
import { createEditor } from "./editor.js";
import { createFacts } from "./facts.js";
import { state } from "./state.js";

const REST = 30; // ms without a keystroke, for all but the first of several
const PAUSE = 150; // ms after which a keystroke is a first one

/** Asks the server about scenes, one at a time: the last one counts. `onBound(bound, scene)`, `onError(error, scene)`. */
export function createBinder(api, { onBound, onError }) {
  let running = null;
  let asked = "";
  let last = -PAUSE;
  const ask = async (scene) => {
    running?.abort();
    const request = new AbortController();
    running = request;
    try {
      const bound = await api.masks(scene, { signal: request.signal });
      if (running === request) onBound(bound, scene);
    } catch (error) {
      if (!aborted(error) && running === request) onError(error, scene);
    }
  };
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
    stop() {
      later.cancel();
      running?.abort();
      running = null;
      asked = "";
    },
  };
}

/** Shows an error of the server where it belongs: in the editor when it points into the text, else beneath it all the same. */
export const showError = (editor, error) =>
  editor.setError({ message: error.message, hint: error.hint, start: error.start, end: error.end });

/**
 * The editor with its documentation (`say`) and the controls (`ask`), both following the state. `onBound(bound, scene)` is called when
 * the server has understood, `onBroken(error)` when it has not.
 */
export function createBench(ctx, { onBound, onBroken }) {
  let bound = null;
  let last = {};
  const docs = el("section", { class: "docs", "aria-label": "What this part means", hidden: true });
  const editor = createEditor({
    label: "Mask", language: ctx.language, docs,
    placeholder: "causal & documents",
    labels: () => Object.keys(bound?.labels ?? state.get().facts.labels ?? {}),
    onInput: (mask) => state.set({ mask }, { replace: true }),
  });
  const facts = createFacts({ onChange: (patch) => state.set({ ...patch, camera: null, cell: null }, { replace: true }) });
  const binder = createBinder(ctx.api, {
    onBound(next, scene) {
      bound = next;
      editor.setError(null);
      facts.update(state.get(), bound);
      onBound(next, scene);
    },
    onError(error) {
      showError(editor, error);
      onBroken?.(error);
    },
  });

  return {
    editor,
    docs,
    facts: facts.element,
    update(now) {
      editor.setValue(now.mask);
      if (last.shape !== now.shape || last.facts !== now.facts || last.layer !== now.layer) facts.update(now, bound);
      binder.bind(state.scene(now), { now: last.mask === undefined });
      last = now;
    },
    unmount: () => binder.stop(),
  };
}
