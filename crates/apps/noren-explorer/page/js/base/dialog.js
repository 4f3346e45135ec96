// Buttons, dialogs and menus. Dialogs and menus close with Escape, with their button, and with a click outside.

import { el, svg, uid } from "./dom.js";

/** Returns a button with a title. The class `plain` removes the border. */
export const button = (title, onclick, { class: more, ...props } = {}) =>
  el("button", { type: "button", class: more ? `button ${more}` : "button", onclick, ...props }, title);

/** Returns a button that shows the icon `sign`. Its title is the tooltip and the name for screen readers. */
export const iconButton = (title, sign, onclick) =>
  el("button", { type: "button", class: "icon-button", "aria-label": title, title, onclick }, sign);

/** Copies a text to the clipboard and tells the user `done`. Calls `denied()` if the browser denies access. */
export const copyText = (text, toast, done, denied) => navigator.clipboard.writeText(text).then(() => toast(done), denied);

/** Returns a button that copies the result of `text()` to the clipboard. */
export function copyButton(text, toast) {
  const denied = () => toast("The clipboard is not available: select the text and copy it.", { kind: "error" });
  return button("Copy", () => copyText(text(), toast, "Copied.", denied));
}

/** Shows a dialog with a title and a body; `head` is an element beside the title. Returns a function that closes the dialog. */
export function openDialog(title, body, { head = null, className = "" } = {}) {
  const id = uid("dialog");
  const close = () => dialog.close();
  const dialog = el(
    "dialog",
    { "aria-labelledby": id, class: className },
    el("div", { class: "dialog-head" }, el("h2", { id }, title), head, iconButton("Close", icon("M5 5l14 14M19 5L5 19"), close)),
    el("div", { class: "dialog-body" }, body),
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return close;
}

/** Returns a button that opens a menu. Each item is `[title, note, act]`: `act()` is called when the user chooses the item. */
export function menuButton(title, items, props = {}) {
  const id = uid("menu");
  const list = el("div", { class: "menu", id, role: "menu", "aria-label": title, hidden: true });
  const opener = button([title, chevron()], () => show(list.hidden), {
    "aria-haspopup": "menu",
    "aria-expanded": "false",
    "aria-controls": id,
    ...props,
  });
  const element = el("div", { class: "menu-holder" }, opener, list);

  function show(open) {
    list.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    if (open) list.firstElementChild?.focus();
  }
  list.append(
    ...items.map(([name, note, act]) =>
      el(
        "button",
        {
          type: "button",
          role: "menuitem",
          tabindex: "-1",
          onclick: () => {
            show(false);
            opener.focus();
            act();
          },
        },
        name,
        note && el("small", {}, note),
      ),
    ),
  );
  element.addEventListener("focusout", (event) => {
    if (!element.contains(event.relatedTarget)) show(false);
  });
  element.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const all = [...list.children];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[
      event.key
    ];
    if (to !== undefined) all[to].focus();
    else if (event.key === "Escape") {
      show(false);
      opener.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return element;
}

const chevron = () =>
  svg(
    "svg",
    { viewBox: "0 0 12 12", width: "10", height: "10", "aria-hidden": "true" },
    svg("path", { d: "M2 4l4 4 4-4", fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round" }),
  );

/** Returns an icon. `d` is an SVG path in a square of 24 by 24 units. */
export const icon = (d) => svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d }));
