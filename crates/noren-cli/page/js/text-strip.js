// All layers and heads side by side, small; each is asked for when it comes into sight, one after the other.

import { el, fill } from "./dom.js";
import { drawSmall } from "./text-heat.js";
import { request } from "./text-settings.js";

export class Strip {
  /** `onPlace(layer, head)` is told which map was chosen. */
  constructor({ api, inks, onPlace }) {
    Object.assign(this, { api, inks, onPlace });
    this.grid = el("div", { class: "text-strip" });
    this.root = el("details", { class: "fold panel text-all", ontoggle: () => this.start() },
      el("summary", {}, "All layers and heads"), this.grid);
    this.set = null;
    this.waiting = null;
  }

  /** Shows the maps of these settings; `answer` is the one that is already there. */
  update(set, answer) {
    const key = JSON.stringify(request({ ...set, layer: 0, head: 0 }));
    const size = `${set.layers}x${set.heads}`;
    if (key !== this.key || size !== this.size) {
      this.waiting?.abort();
      Object.assign(this, { key, size, answers: new Map() });
      this.build(set);
    }
    this.set = set;
    if (answer) this.keep(answer);
    for (const [place, { button }] of this.places) {
      button.setAttribute("aria-pressed", place === `${set.layer},${set.head}` ? "true" : "false");
    }
    this.start();
  }

  build({ layers, heads }) {
    this.places = new Map();
    this.grid.style.setProperty("--heads", heads);
    const one = (layer, head) => {
      const canvas = el("canvas", { class: "text-small", width: 1, height: 1 });
      const button = el("button", {
        type: "button", class: "text-place", onclick: () => this.onPlace(layer, head),
      }, canvas, el("span", {}, `layer ${layer}, head ${head}`));
      this.places.set(`${layer},${head}`, { canvas, button });
      return button;
    };
    fill(this.grid, Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => one(layer, head))));
  }

  keep(answer) {
    const place = `${answer.layer},${answer.head}`;
    this.answers.set(place, answer);
    const there = this.places.get(place);
    if (there) drawSmall(there.canvas, answer, this.inks());
  }

  repaint() {
    for (const answer of this.answers?.values() ?? []) this.keep(answer);
  }

  /** Asks for what is missing, while the strip is open. */
  async start() {
    this.waiting?.abort();
    if (!this.root.open || !this.set) return;
    const waiting = new AbortController();
    this.waiting = waiting;
    for (const place of this.places.keys()) {
      if (this.answers.has(place)) continue;
      const [layer, head] = place.split(",").map(Number);
      try {
        this.keep(await this.api.text(request({ ...this.set, layer, head }), { signal: waiting.signal }));
      } catch {
        return; // either a newer text is asked for, or the view itself shows what is wrong
      }
      if (waiting.signal.aborted) return;
    }
  }

  close() {
    this.waiting?.abort();
  }
}
