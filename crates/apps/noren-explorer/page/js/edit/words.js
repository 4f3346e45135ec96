// A dialog with every word of the language and its picture.

import { el, fill } from "../base/dom.js";
import { openDialog } from "../base/dialog.js";
import { documentation } from "./editor.js";
import { search } from "./fields.js";

const KINDS = [
  ["atoms", "Masks"],
  ["scores", "Score modifiers, which follow a mask and a +"],
];

/** Shows a dialog with the words of the mask language. `insert(text)` inserts an example into the editor. */
export function openWords({ language }, insert) {
  const body = el("div", { class: "words" });
  const count = el("p", { class: "hidden-text", role: "status" });
  const choose = (example) => {
    close();
    insert(example);
  };
  const items = KINDS.flatMap(([kind]) => unique(language[kind]).map((word) => ({ kind, word, text: `${word.title} ${word.doc}` })));
  const show = (found, all) => {
    const list = ([kind, title]) => {
      const words = found.filter((item) => item.kind === kind).map(({ word }) => el("li", { class: "docs" }, documentation(word, choose)));
      return words.length > 0 && [el("h3", { class: "eyebrow" }, title), el("ul", { class: "word-list" }, words)];
    };
    fill(body, all && signs(language.operators), KINDS.map(list));
    count.textContent = `${found.length} words`;
  };
  const close = openDialog("The language", [count, body], { head: search("Search the language", items, show) });
}

/**
 * Returns the words of the mask language without those whose documentation another word already has: of `keys`, `queries` and `global`,
 * which share one documentation, only the first word is returned.
 */
const unique = (words) => words.filter((word, i) => words.findIndex(({ title }) => title === word.title) === i);

const signs = (operators) =>
  el(
    "p",
    { class: "word-signs" },
    operators.map(({ sign, says }) => el("span", {}, el("kbd", {}, `a ${sign} b`.replace("a ! b", "!a")), ` ${says}`)),
  );
