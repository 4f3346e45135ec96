// The catalogue of known mistakes, with pictures.

import { button } from "../base/dialog.js";
import { el, fill, plural, prose } from "../base/dom.js";
import { labelled } from "../edit/fields.js";
import { thumbnail } from "../picture/tiles.js";

export class Catalogue {
  /**
   * `onTry(class, context)` is called when the user opens the example of a class; `context` is the declarations of the
   * example. `onOpen(name)` is called with the name of the class that the user opens.
   */
  constructor({ api, onTry, onOpen }) {
    Object.assign(this, { api, onTry, onOpen });
    this.seek = el("input", { type: "search", placeholder: "for example padding, leak, triu or NaN", oninput: () => this.filter() });
    this.count = el("p", { class: "soft small", role: "status" });
    this.list = el("div", { class: "doctor-classes" });
    this.root = el("section", { class: "doctor-catalogue", "aria-label": "Catalogue" },
      el("header", {},
        el("h2", {}, "Every known mistake in masks"),
        labelled("Search the catalogue", this.seek), this.count),
      this.list);
    this.items = new Map();
  }

  /** Requests the classes of mistakes and lists them. Returns a map from the names of the classes to their titles. */
  async load() {
    const classes = await this.api.doctorClasses();
    for (const one of classes) this.items.set(one.name, this.item(one));
    fill(this.list, [...this.items.values()].map(({ element }) => element));
    this.filter();
    return new Map(classes.map(({ name, title }) => [name, title]));
  }

  item(one) {
    const { name, code, tier, title, shows, found, cause, repair } = one;
    const line = (term, text) => text && [el("dt", {}, term), el("dd", {}, prose(text))];
    const body = el("div", { class: "doctor-class-body" });
    const element = el("details", { class: "fold doctor-class", dataset: { name } },
      el("summary", {},
        el("span", { class: "doctor-code" }, code),
        el("span", {}, title),
        el("span", { class: "note" }, tier)),
      body);
    let filled = false;
    element.addEventListener("toggle", () => {
      if (element.open && !filled) {
        filled = true;
        const lines = [["shows", shows], ["condition", found], ["usual cause", cause], ["repair", repair]];
        fill(body, el("dl", {}, lines.map(([term, text]) => line(term, text))), this.example(one));
      }
      if (element.open) this.onOpen(name);
    });
    const words = [name, code, title, shows, found, cause, repair].join(" ").toLowerCase();
    return { element, words };
  }

  example(one) {
    if (!one.example) return null;
    const { wrong, right, shape } = one.example;
    const picture = (caption, mask) => {
      const figure = el("figure", {}, el("div", { class: "doctor-small" }), el("figcaption", {}, caption, " ", el("code", {}, mask)));
      this.draw(figure.firstChild, mask, shape);
      return figure;
    };
    const context = declaredBy(one);
    return el("div", { class: "doctor-example" },
      picture("wrong", wrong), picture("right", right),
      context && button("Diagnose this example", () => this.onTry(one, context)));
  }

  async draw(place, mask, shape) {
    try {
      const bound = await this.api.masks({ mask, shape });
      place.append(thumbnail(this.api, bound, { size: 96, label: mask }));
    } catch {
      place.textContent = "no picture";
    }
  }

  filter() {
    const wanted = this.seek.value.toLowerCase().split(/\s+/).filter(Boolean);
    let seen = 0;
    for (const { element, words } of this.items.values()) {
      element.hidden = !wanted.every((word) => words.includes(word));
      seen += element.hidden ? 0 : 1;
    }
    this.count.textContent = `${plural(seen, "class", "classes")} of ${this.items.size}`;
  }

  /** Opens the entry of a class of mistakes in the catalogue. If `scroll` is true, scrolls to this entry. */
  open(name, { scroll = true } = {}) {
    const item = this.items.get(name);
    if (!item) return;
    if (item.element.hidden) {
      this.seek.value = "";
      this.filter();
    }
    item.element.open = true;
    if (scroll) item.element.scrollIntoView({ block: "center" });
  }
}

/**
 * Returns the declarations that describe the intended mask of an example; each class of mistakes has an example. Returns null if this mask
 * cannot be declared without ids, lengths or other arrays.
 */
function declaredBy({ tier, example: { right, shape } }) {
  if (tier > "T1") return null;
  const context = { convention: "keep_bool", ...(shape.query_offset && { past_len: shape.query_offset }) };
  const [, name, count] = /^(?:causal \| )?(\w+)(?:\((\d+)\))?$/.exec(right) ?? [];
  if (name === "causal") return { ...context, kind: "causal" };
  if (name === "full" && shape.q === shape.kv) return { ...context, kind: "bidirectional" };
  if (name === "sliding") return { ...context, kind: "sliding", window: Number(count), window_means: "keys visible, self included" };
  if (name === "prefix") return { ...context, kind: "prefix_lm", prefix_len: Number(count) };
  return null;
}
