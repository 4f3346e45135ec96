// A dialog with every word of the language and its picture.

import { el, fill } from "../base/dom.js";
import { openDialog } from "../base/dialog.js";
import { documentation } from "./editor.js";

const KINDS = [
  ["atoms", "Masks"],
  ["scores", "Score modifiers, which follow a mask and a +"],
];

/** Shows a dialog with the words of the mask language. `insert(text)` inserts an example into the editor. */
export function openWords({ language }, insert) {
  const search = el("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the language",
    class: "preset-search",
  });
  const body = el("div", { class: "words" });
  const count = el("p", { class: "hidden-text", role: "status" });
  const close = openDialog("The language", [count, body], { head: search });
  const choose = (example) => {
    close();
    insert(example);
  };
  const paint = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = KINDS.map(([kind, title]) => [
      title,
      unique(language[kind]).filter((word) => wanted.every((part) => `${word.title} ${word.doc}`.toLowerCase().includes(part))),
    ]);
    fill(
      body,
      wanted.length === 0 && signs(language.operators),
      found.map(
        ([title, words]) =>
          words.length > 0 && [
            el("h3", { class: "eyebrow" }, title),
            el(
              "ul",
              { class: "word-list" },
              words.map((word) => el("li", { class: "docs" }, documentation(word, choose))),
            ),
          ],
      ),
    );
    count.textContent = `${found.flatMap(([, words]) => words).length} words`;
  };
  search.addEventListener("input", paint);
  paint();
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
