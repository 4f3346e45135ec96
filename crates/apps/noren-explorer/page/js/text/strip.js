// Small maps of all layers and heads, side by side; each is requested when it becomes visible, one after another.

import { aborted } from "../base/api.js";
import { el, fill } from "../base/dom.js";
import { onClose } from "../base/closing.js";
import { onTheme } from "../base/theme.js";
import { drawSmall } from "./heat.js";
import { request } from "./settings.js";

export class Strip {
  /**
   * `onPlace(layer, head)` is called when the user chooses the small attention map of a layer and head.
   */
  constructor({ api, onPlace }) {
    Object.assign(this, { api, onPlace });
    onClose(onTheme(() => this.answers?.forEach((answer) => this.keep(answer))));
    onClose(() => this.close());
    this.grid = el("div", { class: "text-strip" });
    this.root = el("details", { class: "fold panel text-all", ontoggle: () => this.ask() },
      el("summary", {}, "All layers and heads"), this.grid);
    this.set = null;
    this.asking = null;
    this.seen = new Set(); // visible places
    this.sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.seen[isIntersecting ? "add" : "delete"](target.dataset.place);
      this.ask();
    });
  }

  /**
   * Shows one small attention map for each layer and head of the model, for the text and mask of the settings `set`. `answer` is the
   * server's answer for one layer and head; the map of this layer and head is drawn from `answer` without another request.
   */
  update(set, answer) {
    const key = JSON.stringify(request({ ...set, layer: 0, head: 0 }));
    const size = `${set.layers}x${set.heads}`;
    if (key !== this.key || size !== this.size) {
      this.asking?.abort();
      Object.assign(this, { key, size, answers: new Map() });
      this.build(set);
    }
    this.set = set;
    if (answer) this.keep(answer);
    for (const [place, { button }] of this.places) {
      button.setAttribute("aria-pressed", place === `${set.layer},${set.head}` ? "true" : "false");
    }
    this.ask();
  }

  build({ layers, heads }) {
    this.places = new Map();
    this.sight.disconnect();
    this.seen.clear();
    this.grid.style.setProperty("--heads", heads);
    const one = (layer, head) => {
      const canvas = el("canvas", { class: "text-small", width: 1, height: 1 });
      const button = el("button", {
        type: "button", class: "text-place", dataset: { place: `${layer},${head}` }, onclick: () => this.onPlace(layer, head),
      }, canvas, el("span", {}, `layer ${layer}, head ${head}`));
      this.places.set(`${layer},${head}`, { canvas, button });
      this.sight.observe(button);
      return button;
    };
    fill(this.grid, Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => one(layer, head))));
  }

  keep(answer) {
    const place = `${answer.layer},${answer.head}`;
    this.answers.set(place, answer);
    const there = this.places.get(place);
    if (there) drawSmall(there.canvas, answer);
  }

  /** Requests the small attention maps that are visible on the screen and not yet loaded, one after another. */
  async ask() {
    if (this.asking || !this.root.open) return;
    const place = [...this.places.keys()].find((one) => this.seen.has(one) && !this.answers.has(one));
    if (!place) return;
    const [layer, head] = place.split(",").map(Number);
    const asking = (this.asking = new AbortController());
    let failed = false;
    try {
      this.keep(await this.api.text(request({ ...this.set, layer, head }), { signal: asking.signal }));
    } catch (error) {
      failed = !aborted(error); // the view shows the error; an aborted request is repeated
    }
    this.asking = null;
    if (!failed) this.ask();
  }

  close() {
    this.asking?.abort();
    this.root.open = false;
    this.sight.disconnect();
  }
}
