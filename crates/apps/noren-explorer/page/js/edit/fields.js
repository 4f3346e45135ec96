// Fields of forms: text that is parsed while it is typed, groups of buttons with one selected, labels with their positions.

import { button, iconButton } from "../base/dialog.js";
import { el, fill, uid } from "../base/dom.js";
import { readPositions, writeRows } from "./lists.js";

/**
 * Returns `input` with the label `label`, as `{element, show(text)}`; `show` does not replace a text that the user is typing. `read` parses the
 * text of the input and may throw an error; `set` receives the parsed value. The text below the input is the error with a button whose title
 * is `undo(text)`, which restores the last `text` without an error, or `hint` if there is no error.
 */
export function field(label, input, { read, set, hint, undo = (text) => `put back ${text === "" ? "nothing" : text.slice(0, 24)}` }) {
  input.id = uid("field");
  const says = el("span", { class: "says", id: `${input.id}-says` }, hint);
  input.setAttribute("aria-describedby", says.id);
  let last = ""; // the last text without an error
  input.addEventListener("focus", () => (last = input.getAttribute("aria-invalid") === "true" ? last : input.value));
  const write = (text) => {
    input.value = text;
    tell(false, hint);
  };
  const putBack = () => {
    write(last);
    input.focus();
  };
  const tell = (invalid, words) => {
    input.setAttribute("aria-invalid", String(invalid));
    fill(says, words);
  };
  input.addEventListener("input", () => {
    try {
      const value = read(input.value.trim());
      last = input.value;
      set(value);
      tell(false, hint);
    } catch (error) {
      tell(true, [
        el("span", { class: "wrong" }, error.message),
        button(undo(last), putBack, { class: "repair" }),
      ]);
    }
  });
  return {
    element: el("div", { class: "field" }, el("label", { for: input.id }, label), input, says),
    show: (text) => document.activeElement !== input && write(text),
  };
}

/** Returns an input with a label above it, or before it if `row` is true. */
export function labelled(label, input, { row = false } = {}) {
  input.id ||= uid("field");
  return el("div", { class: row ? "field row" : "field" }, el("label", { for: input.id }, label), input);
}

/**
 * Returns a search field. `show(found)` is called at first and after each change with the items whose `text` has all words of the search, and
 * with whether there is no search.
 */
export function search(label, items, show, props = {}) {
  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    show(items.filter(({ text }) => words.every((word) => text.toLowerCase().includes(word))), words.length === 0);
  };
  const input = el("input", { type: "search", placeholder: "Search", "aria-label": label, class: "preset-search", oninput: find, ...props });
  find();
  return input;
}

/**
 * Returns a menu with a label as `{element, show(values, value, says)}`. `show` offers `values`, each with the text `says(value)`, and selects
 * `value`. `onChoose(text)` is called with the chosen value as text.
 */
export function choice(label, onChoose) {
  const input = el("select", { onchange: () => onChoose(input.value) });
  const show = (values, value, says = String) => {
    const offered = values.map(says);
    if (JSON.stringify(offered) !== input.dataset.offered) fill(input, values.map((one, at) => el("option", { value: one }, offered[at])));
    input.dataset.offered = JSON.stringify(offered);
    input.value = String(value);
  };
  return { element: labelled(label, input, { row: true }), show };
}

/** Returns a line with two inputs and a button that removes the line. `first` and `second` are the properties of the inputs. */
export function pairLine(name, first, second, remove, onChange) {
  const input = (props) => el("input", { type: "text", ...props, oninput: onChange });
  const line = el("div", { class: `${name} field` }, input(first), input(second),
    iconButton(remove, "×", () => {
      line.remove();
      onChange();
    }));
  return line;
}

/**
 * Returns a group of buttons of which one is selected, as `{element, choose(name)}`. `names` maps each name to a title; `onChoose(name)` is
 * called on a click.
 */
export function segments(names, label, onChoose) {
  const buttons = Object.entries(names).map(([name, title]) =>
    el("button", { type: "button", "aria-pressed": "false", dataset: { name }, onclick: () => onChoose(name) }, title),
  );
  return {
    element: el("div", { class: "segments", role: "group", "aria-label": label }, buttons),
    choose: (chosen) => buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.name === chosen))),
  };
}

/**
 * Returns input fields for labels (named sets of positions) as `{element, show(labels)}`. Each line has the name of a label and its
 * positions. `set(labels)` is called when the user changes a field.
 */
export function labelFields(set) {
  const lines = el("div", { class: "label-lines" });
  const collect = () => {
    const labels = {};
    for (const line of lines.children) {
      const [name, positions] = [...line.querySelectorAll("input")];
      try {
        if (name.value.trim()) labels[name.value.trim()] = readPositions(positions.value);
        positions.setAttribute("aria-invalid", "false");
      } catch {
        positions.setAttribute("aria-invalid", "true");
        return;
      }
    }
    set(labels);
  };
  const line = (name = "", positions = "") => {
    const places = {
      class: "code",
      value: positions,
      placeholder: "3, 10..14; 5",
      title: "Positions and ranges of positions, separated by commas; a semicolon begins the next batch row",
      "aria-label": `Positions of ${name || "the label"}`,
    };
    const named = { value: name, placeholder: "name", "aria-label": "Name of a label" };
    return pairLine("label-line", named, places, `Remove ${name || "the label"}`, collect);
  };
  const root = el(
    "div",
    { class: "labels" },
    lines,
    button(
      "Add a label",
      () => {
        const added = line();
        lines.append(added);
        added.querySelector("input").focus();
      },
      { class: "plain" },
    ),
  );
  const show = (labels) => {
    if (lines.contains(document.activeElement)) return;
    fill(
      lines,
      Object.entries(labels).map(([name, positions]) => line(name, writeRows([positions].flat()))),
    );
  };
  return { element: root, show };
}
