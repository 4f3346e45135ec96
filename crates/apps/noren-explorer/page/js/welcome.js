// The offer on the first visit: where to begin. It is shown if the address holds no state and the browser has not shown the page before.

import { button, icon, iconButton } from "./base/dialog.js";
import { el } from "./base/dom.js";
import { recall, remember } from "./base/storage.js";

const KEY = "noren-visited";
const OFFERS = [
  ["learn", "Learn", "Read twelve short lessons."],
  ["mask", "Write a mask", "See its picture."],
  ["doctor", "Check a file", "Find its mistake."],
  ["text", "Check a text", "See what a model reads."],
];

/** Shows new users an offer to open one of four views, before the element `root`. `ctx` is the context of the views. */
export function welcome(root, ctx) {
  if (location.hash !== "" || recall(KEY) !== null) return;
  const close = () => {
    remember(KEY, "1");
    offer.remove();
  };
  const choose = (view) => {
    close();
    ctx.go(view);
    root.focus();
  };
  const offer = el(
    "section",
    { class: "welcome", "aria-label": "Where to begin" },
    el("h2", {}, "New here?"),
    OFFERS.map(([view, title, note]) =>
      button([el("b", {}, title), el("small", {}, note)], () => choose(view), { class: "welcome-choice", dataset: { view } }),
    ),
    iconButton("Close the offer", icon("M5 5l14 14M19 5L5 19"), () => {
      close();
      root.focus();
    }),
  );
  root.before(offer);
}
