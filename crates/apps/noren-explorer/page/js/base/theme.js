// The theme: light, dark, or the system's; the choice is stored.

import { el, fill, svg } from "./dom.js";
import { recall, remember } from "./storage.js";

const KEY = "noren-theme";
const ORDER = ["system", "light", "dark"];
const SAYS = { system: "system setting", light: "light", dark: "dark" };
const ICONS = {
  system: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  light:
    "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM12 1.5v3M12 19.5v3M1.5 12h3M19.5 12h3M4.6 4.6l2.1 2.1M17.3 17.3l2.1 2.1M4.6 19.4l2.1-2.1M17.3 6.7l2.1-2.1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
};

const listeners = new Set();

/**
 * Calls `fn` after each change of the page's colours. The user changes the colours with the theme button or in the settings of
 * the operating system. Returns a function that ends the calls.
 */
export function onTheme(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

const known = new Map(); // colours by name, until the theme changes

function tell() {
  known.clear();
  for (const fn of listeners) fn();
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

const kept = recall(KEY);
let theme = ORDER.includes(kept) ? kept : "system";
apply(theme);

/** Returns the button that changes to the next theme. */
export function themeSwitch() {
  const button = el("button", { type: "button", class: "icon-button", id: "theme" });
  const paint = () => {
    const next = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    button.setAttribute("aria-label", `Theme: ${SAYS[theme]}. Change to ${SAYS[next]}`);
    button.title = `Theme: ${SAYS[theme]}`;
    fill(
      button,
      svg("svg", { viewBox: "0 0 24 24", class: `icon ${theme}`, "aria-hidden": "true" }, svg("path", { d: ICONS[theme] })),
    );
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    remember(KEY, theme);
    apply(theme);
    paint();
    tell();
  });
  paint();
  return button;
}

/** Returns the current value of the colour `name`, such as `allowed` for the custom CSS property `--allowed`, as `[r, g, b]`, each from 0 to 255. */
export function colour(name) {
  if (known.has(name)) return known.get(name);
  const probe = el("span", { hidden: true, style: { color: `var(--${name})` } });
  document.body.append(probe);
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  known.set(name, parts);
  return parts;
}

/** Returns the current value of the colour `name` as `#rrggbb`. */
export const ink = (name) => `#${colour(name).map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
