// Starts the page: one view at a time, the theme, and the parts that all views share.

import * as api from "./base/api.js";
import { closeView } from "./base/closing.js";
import { el, fill, onLink } from "./base/dom.js";
import { state } from "./base/state.js";
import { themeSwitch } from "./base/theme.js";
import * as mask from "./mask/view.js";
import * as cost from "./cost/view.js";
import * as flow from "./flow/view.js";
import * as text from "./text/view.js";
import * as doctor from "./doctor/view.js";
import * as learn from "./learn/view.js";
import { welcome } from "./welcome.js";

const VIEWS = [mask, cost, flow, text, doctor, learn];

const root = document.getElementById("view");
const nav = document.getElementById("nav");
let shown = null; // {id, view}

/** Shows a message for a while. `actions` are buttons that belong to the message. */
function toast(message, { kind = "note", actions = [] } = {}) {
  const toasts = document.getElementById("toasts");
  if ([...toasts.children].some((note) => note.dataset.message === message)) return; // already shown
  const note = el("p", { class: `toast ${kind}`, dataset: { message } }, message, actions.length > 0 && el("span", { class: "repairs" }, actions));
  note.addEventListener("click", (event) => event.target.closest("button") && note.remove());
  toasts.append(note);
  setTimeout(() => note.remove(), actions.length > 0 ? 20_000 : 6000);
}

const ctx = {
  api,
  state,
  toast,
  /** Shows the message and the hint of an error. */
  refused: (error) => toast(api.errorWords(error), { kind: "error" }),
  language: { atoms: [], scores: [], operators: [], targets: [] },
  /** Opens the view with the name `view`, and changes the state to the values in `patch`; other keys of the state stay. */
  go: (view, patch = {}) => state.set({ ...patch, view }),
};

function links(current) {
  fill(
    nav,
    VIEWS.map((view) =>
      el(
        "a",
        {
          href: state.link({ view: view.id }),
          "aria-current": view.id === current ? "page" : null,
          onclick: onLink(() => ctx.go(view.id)),
        },
        view.title,
      ),
    ),
  );
}

function show(now) {
  const module = VIEWS.find((view) => view.id === now.view) ?? VIEWS[0];
  try {
    if (shown?.id !== module.id) {
      closeView();
      fill(root);
      root.className = `view view-${module.id}`;
      document.title = `${module.title} · noren`;
      links(module.id);
      shown = { id: module.id, view: null };
      shown.view = new module.View(ctx);
      fill(root, shown.view.root);
      window.scrollTo(0, 0);
    }
    shown.view?.update(now);
  } catch (error) {
    // No address and no answer should cause this error. If one does, the other views continue.
    console.error(error);
    shown = { id: module.id, view: null };
    fill(
      root,
      el(
        "div",
        { class: "column" },
        el("p", { class: "notice bad" }, `This view cannot show this state: ${error.message}`),
      ),
    );
  }
}

// Links to views use the state at the moment of the click. The elements are kept: an element that is replaced between press and release
// gets no click.
nav.addEventListener("pointerdown", () => {
  nav.querySelectorAll("a").forEach((link, at) => link.setAttribute("href", state.link({ view: VIEWS[at].id })));
});
document.querySelector(".brand").addEventListener("click", (event) => {
  event.preventDefault();
  history.pushState(null, "", location.pathname);
  window.dispatchEvent(new PopStateEvent("popstate"));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  root.focus();
});

document.getElementById("tools").append(themeSwitch());
try {
  ctx.language = await api.language();
} catch (error) {
  ctx.refused(error);
}
state.subscribe(show);
show(state.get());
welcome(root, ctx);
document.documentElement.dataset.ready = "true";
