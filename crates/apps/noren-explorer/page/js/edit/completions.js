// The list of completions beneath the word at the caret.

import { el, fill, uid } from "../base/dom.js";

const MOST = 8; // completions shown at once

export class Completions {
  #input;
  #mirror;
  #onAccept;
  #offered = null; // the result of `complete` of language.js
  #chosen = 0;
  element = el("ul", { class: "completions", id: uid("list"), role: "listbox", "aria-label": "Completions", hidden: true });

  /**
   * `input` is the text field whose text is completed, and `mirror` an element with the same text. `onAccept(item, {from, to})` is called
   * when the user chooses the completion `item`, which replaces the text from `from` to `to`.
   */
  constructor(input, mirror, onAccept) {
    this.#input = input;
    this.#mirror = mirror;
    this.#onAccept = onAccept;
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", this.element.id);
  }

  /** Shows completions. Null or an empty list hides the list. */
  offer(found) {
    this.#offered = found && found.items.length ? found : null;
    this.#chosen = 0;
    this.element.hidden = !this.#offered;
    if (!this.#offered) {
      this.#input.removeAttribute("aria-activedescendant");
      return;
    }
    this.#paint();
    this.#locate();
  }

  /** Handles a press of the key `name` while completions are listed. Returns false if the list does not use this key. */
  key(name) {
    if (!this.#offered) return false;
    const { length } = this.#offered.items;
    const by = { ArrowDown: 1, ArrowUp: -1 }[name];
    if (by) {
      this.#chosen = (this.#chosen + by + length) % length;
      this.#paint();
    } else if (name === "Enter" || name === "Tab") this.#accept();
    else if (name === "Escape") this.offer(null);
    else return false;
    return true;
  }

  #accept() {
    this.#onAccept(this.#offered.items[this.#chosen], this.#offered);
    this.offer(null);
  }

  #paint() {
    const { items } = this.#offered;
    const from = Math.max(0, Math.min(this.#chosen - MOST + 2, items.length - MOST));
    const id = (index) => `${this.element.id}-${index}`;
    const option = (item, index) =>
      el(
        "li",
        {
          role: "option",
          id: id(index),
          "aria-selected": String(index === this.#chosen),
          class: index === this.#chosen ? "chosen" : null,
          onpointerdown: (event) => {
            event.preventDefault();
            this.#chosen = index;
            this.#accept();
          },
        },
        el("code", {}, item.name),
        el("small", {}, item.says ?? ""),
      );
    fill(
      this.element,
      items.slice(from, from + MOST).map((item, i) => option(item, from + i)),
    );
    this.#input.setAttribute("aria-activedescendant", id(this.#chosen));
  }

  /**
   * Moves the list of completions below the word that is completed. The position of the word comes from the element `mirror`, which has the
   * same text as the text field.
   */
  #locate() {
    const range = document.createRange();
    let left = this.#offered.from;
    const walker = document.createTreeWalker(this.#mirror, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (left <= node.length) {
        range.setStart(node, left);
        break;
      }
      left -= node.length;
    }
    const at = range.getBoundingClientRect();
    const box = this.element.closest(".editor").getBoundingClientRect();
    this.element.style.left = `${Math.max(0, Math.min(at.left - box.left - 8, box.width - this.element.offsetWidth))}px`;
    this.element.style.top = `${(at.bottom || box.bottom) - box.top + 6}px`;
  }
}
