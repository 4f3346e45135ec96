// The catalogue: every known way to get a mask wrong, with its picture.

import { el, fill, plural, prose, uid } from "./dom.js";
import { thumbnail } from "./tiles.js";

export class Catalogue {
  /** `onTry(class)` is told which example to diagnose, `onOpen(name or null)` which class is open. */
  constructor({ api, onTry, onOpen }) {
    Object.assign(this, { api, onTry, onOpen });
    const id = uid("seek");
    this.seek = el("input", { id, type: "search", placeholder: "padding, leak, triu, NaN …", oninput: () => this.filter() });
    this.count = el("p", { class: "soft small", role: "status" });
    this.list = el("div", { class: "doctor-classes" });
    this.root = el("section", { class: "doctor-catalogue", "aria-label": "Catalogue" },
      el("header", {},
        el("h2", {}, "Every known way to get a mask wrong"),
        el("div", { class: "field" }, el("label", { for: id }, "Search the catalogue"), this.seek), this.count),
      this.list);
    this.items = new Map();
  }

  /** Asks for the classes; resolves with their titles by name. */
  async load() {
    const classes = await this.api.doctorClasses();
    for (const one of classes) this.items.set(one.name, this.item(one));
    fill(this.list, [...this.items.values()].map(({ element }) => element));
    this.filter();
    return new Map(classes.map(({ name, title, says }) => [name, title ?? says ?? name]));
  }

  item(one) {
    const { name, code, tier, title, says, shows, found, cause, repair } = one;
    const line = (term, text) => text && [el("dt", {}, term), el("dd", {}, prose(text))];
    const body = el("div", { class: "doctor-class-body" });
    const element = el("details", { class: "fold doctor-class", dataset: { name } },
      el("summary", {},
        el("span", { class: "doctor-code" }, code ?? ""),
        el("span", {}, title ?? says),
        el("span", { class: "told" }, tier ?? "")),
      body);
    let filled = false;
    element.addEventListener("toggle", () => {
      if (element.open && !filled) {
        filled = true;
        const say = says && says !== title ? el("p", {}, says) : null;
        fill(body, say, el("dl", {}, line("shows", shows), line("found when", found), line("usual cause", cause), line("repair", repair)), this.example(one));
      }
      if (element.open) this.onOpen(name);
    });
    const words = [name, code, title, says, shows, found, cause, repair].join(" ").toLowerCase();
    return { element, words };
  }

  example(one) {
    const { example_given: given, example_meant: meant } = one;
    if (!given || !meant) return null;
    const picture = (caption, mask) => {
      const figure = el("figure", {}, el("div", { class: "doctor-small" }), el("figcaption", {}, caption, " ", el("code", {}, mask)));
      this.draw(figure.firstChild, mask, one);
      return figure;
    };
    return el("div", { class: "doctor-example" },
      picture("given", given), picture("meant", meant),
      el("button", { type: "button", class: "button", onclick: () => this.onTry(one) }, "Show it to the doctor"));
  }

  async draw(place, mask, { shape }) {
    try {
      const bound = await this.api.masks({ mask, shape: shapeOf(shape) });
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

  /** Opens a class and brings it into sight. */
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

/** The shape of a class's example as a scene has it. */
export function shapeOf(shape) {
  if (!shape) return { len: 6 };
  if (!Array.isArray(shape)) return shape;
  const [q, kv, query_offset] = shape;
  return { q, kv, query_offset };
}
