// An editor for the mask language: a textarea over a coloured mirror of its text, with completion, errors where they are, and the
// documentation of what the caret stands in.

import { el, fill, inline, prose, uid } from "./dom.js";
import { atomAt, coloured, complete } from "./language.js";

const MOST = 8; // completions shown at once
const COLOURED = 32_768; // characters up to which a text is coloured and completed: twice what the server reads
const REST = 450; // ms without a keystroke after which an error is told; what is half typed is wrong anyhow

/**
 * Makes an editor. `labels()` gives the labels that a mask may name; `onInput(text)` is called as somebody types; `docs` (an element, or
 * left out) is kept filled with the documentation at the caret; `placeholder` stands in an empty one.
 *
 * Gives `{element, input, value(), setValue(text), setError(error or null), insert(text), focus()}`; an error has `message`, `hint`, `start`, `end`.
 */
export function createEditor({ label, language, labels = () => [], onInput, docs, placeholder = "" }) {
  const [listId, errorId] = [uid("list"), uid("error")];
  const mirror = el("pre", { class: "mirror", "aria-hidden": "true" });
  const input = el("textarea", {
    class: "code",
    rows: "1",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    autocorrect: "off",
    placeholder,
    "aria-label": label,
    "aria-autocomplete": "list",
    "aria-controls": listId,
    "aria-describedby": errorId,
  });
  const list = el("ul", { class: "completions", id: listId, role: "listbox", "aria-label": "Completions", hidden: true });
  const wrong = el("div", { class: "editor-error", id: errorId, hidden: true });
  const element = el("div", { class: "editor" }, el("div", { class: "editor-box" }, mirror, input, list), wrong);
  let error = null;
  let offered = null; // what complete() gave
  let chosen = 0;
  let documented;
  let typed = -REST;
  let telling = 0;

  function paint() {
    const text = input.value;
    const spans = [];
    const bad = error && error.start !== null ? [error.start, Math.max(error.end ?? 0, error.start + 1)] : null;
    const long = text.length > COLOURED;
    for (const token of long ? [{ kind: "sign", start: 0, end: text.length }] : coloured(text, language)) {
      for (const [from, to] of cuts(token, bad)) {
        const squiggled = bad && from >= bad[0] && from < bad[1];
        spans.push(el("span", { class: `t-${token.kind}${squiggled ? " t-bad" : ""}` }, text.slice(from, to)));
      }
    }
    if (bad && bad[0] >= text.length) spans.push(el("span", { class: "t-bad" }, " "));
    fill(mirror, spans, "\n");
  }

  // Shown from the first visit on: before that the room belongs to the controls beneath.
  let visited = false;
  function document() {
    if (!docs || !visited) return;
    const atom = input.value.length > COLOURED ? null : atomAt(input.value, input.selectionStart, language);
    if (atom === documented) return;
    documented = atom;
    fill(
      docs,
      atom
        ? documentation(atom, (example) => {
            input.focus();
            insert(input.selectionStart, input.selectionEnd, example);
          })
        : null,
    );
    docs.hidden = !atom;
  }

  function offer(found) {
    offered = found && found.items.length ? found : null;
    chosen = 0;
    list.hidden = !offered;
    if (!offered) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    paintList();
    locate();
  }

  function paintList() {
    const from = Math.max(0, Math.min(chosen - MOST + 2, offered.items.length - MOST));
    const shown = offered.items.slice(from, from + MOST);
    fill(
      list,
      shown.map((item, i) =>
        el(
          "li",
          {
            role: "option",
            id: `${listId}-${from + i}`,
            "aria-selected": String(from + i === chosen),
            class: from + i === chosen ? "chosen" : null,
            onpointerdown: (event) => {
              event.preventDefault();
              chosen = from + i;
              accept();
            },
          },
          el("code", {}, item.name),
          el("small", {}, item.says ?? ""),
        ),
      ),
    );
    input.setAttribute("aria-activedescendant", `${listId}-${chosen}`);
  }

  // Beneath the word that is completed: a range over the mirror knows where that is.
  function locate() {
    const range = window.document.createRange();
    let left = offered.from;
    const walker = window.document.createTreeWalker(mirror, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (left <= node.length) {
        range.setStart(node, left);
        break;
      }
      left -= node.length;
    }
    const at = range.getBoundingClientRect();
    const box = element.getBoundingClientRect();
    list.style.left = `${Math.max(0, Math.min(at.left - box.left - 8, box.width - 300))}px`;
    list.style.top = `${(at.bottom || box.bottom) - box.top + 6}px`;
  }

  function insert(from, to, text, caret = text.length) {
    input.setRangeText(text, from, to, "end");
    input.setSelectionRange(from + caret, from + caret);
    input.dispatchEvent(new Event("input"));
  }

  function accept() {
    const item = offered.items[chosen];
    const { from, to } = offered;
    insert(from, to, item.insert, item.caret);
    offer(null);
  }

  const offerHere = (all) =>
    offer(
      input.value.length > COLOURED ? null : complete(input.value, input.selectionStart, language, labels(), { all }),
    );

  input.addEventListener("input", (event) => {
    if (error) {
      error = null;
      showError();
    }
    typed = performance.now();
    paint();
    document();
    onInput?.(input.value);
    if (event.isTrusted) offerHere(false);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      offerHere(true);
    } else if (event.key === "Enter" && !offered) {
      event.preventDefault(); // a mask is one line, however long
    } else if (offered) {
      const act = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (act) {
        chosen = (chosen + act + offered.items.length) % offered.items.length;
        paintList();
      } else if (event.key === "Enter" || event.key === "Tab") accept();
      else if (event.key === "Escape") offer(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }
  });
  input.addEventListener("focus", () => {
    visited = true;
    document();
  });
  input.addEventListener("keyup", document);
  input.addEventListener("pointerup", document);
  input.addEventListener("blur", () => offer(null));

  function showError() {
    clearTimeout(telling);
    wrong.hidden = !error;
    input.setAttribute("aria-invalid", String(Boolean(error)));
    fill(
      wrong,
      error && [el("p", { class: "says" }, inline(error.message)), error.hint && el("p", { class: "hint" }, inline(error.hint))],
    );
  }

  paint();
  return {
    element,
    input,
    value: () => input.value,
    setValue(text) {
      if (input.value === text) return;
      input.value = text;
      error = null;
      showError();
      paint();
      document();
    },
    setError(next) {
      error = next;
      clearTimeout(telling);
      const wait = typed + REST - performance.now();
      if (error && wait > 0) telling = setTimeout(showError, wait);
      else showError();
      paint();
    },
    /** Puts a text in where the caret is. */
    insert(text) {
      input.focus();
      insert(input.selectionStart, input.selectionEnd, text);
    },
    focus: () => input.focus(),
  };
}

/** A token cut where an error begins and ends. */
function cuts({ start, end }, bad) {
  const at = [start, ...(bad ?? []).filter((place) => place > start && place < end), end];
  return at.slice(1).map((to, i) => [at[i], to]);
}

/** What an atom means, as a panel. */
export function documentation(atom, onExample) {
  return [
    atom.picture &&
      el("img", {
        class: "docs-picture",
        alt: `Picture of ${atom.example}`,
        width: "88",
        height: "102",
        src: URL.createObjectURL(new Blob([atom.picture], { type: "image/svg+xml" })),
        onload: ({ target }) => URL.revokeObjectURL(target.src),
      }),
    el("p", {}, el("code", { class: "docs-title" }, atom.title.replace(/`/g, ""))),
    prose(atom.doc ?? ""),
    atom.params?.length > 0 &&
      el(
        "dl",
        { class: "params" },
        atom.params.map((param) => [el("dt", {}, el("code", {}, param.name)), el("dd", {}, inline(param.what))]),
      ),
    atom.example &&
      el(
        "p",
        { class: "small soft" },
        "For example ",
        el(
          "button",
          { type: "button", class: "example", title: "Insert", onclick: () => onExample(atom.example) },
          el("code", {}, atom.example),
        ),
      ),
  ];
}
