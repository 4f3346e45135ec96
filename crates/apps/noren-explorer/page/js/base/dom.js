// Elements, and formats of numbers.

import { onClose } from "./closing.js";
import { number, plural, total } from "./numbers.js";

export { number, plural, total };

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns an HTML element. `props` has `class`, `dataset: {}`, `style: {}` (which the script sets, because the page's policy forbids inline
 * styles), listeners such as `onclick`, and attributes; null, undefined and false leave an attribute out. Children are nodes, strings,
 * numbers, or arrays of these; null and false are left out.
 */
export function el(tag, props = {}, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Returns an SVG element. The arguments have the same meaning as in `el`, which returns HTML elements. */
export function svg(tag, props = {}, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) node.style.setProperty(key, to);
    else if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/** Appends children to an element. A child is a node, a string, a number, or an array of these; null and false are left out. */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Replaces the content of a node with these children. */
export function fill(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** Returns a small square with the colour of the page that has this name. */
export const swatch = (colour) => el("span", { class: "swatch", style: { background: `var(--${colour})` } });

/** Returns an entry `[colour, meaning]` of a legend as a list item. */
export const legendItem = ([colour, says]) => el("li", {}, swatch(colour), says);

/**
 * Returns a listener for clicks on a link, which calls `act()` in place of the browser's own action. Clicks that open the link elsewhere stay
 * the browser's.
 */
export const onLink = (act) => (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  act();
};

/** Saves a blob as a file. */
export function saveAs(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

let ids = 0;
/** Returns a new id, which is unique in the page and begins with `prefix`. */
export const uid = (prefix = "n") => `${prefix}-${(ids += 1)}`;

/**
 * Returns a function that calls `fn` after a pause: `wait` ms after the last call of the returned function. `.now()` calls `fn` at once,
 * `.cancel()` cancels the waiting call. Calls that wait when the view is closed are cancelled.
 */
export function debounce(fn, wait) {
  let timer = 0;
  let last = [];
  const later = (...args) => {
    last = args;
    clearTimeout(timer);
    timer = setTimeout(fn, wait, ...args);
  };
  later.cancel = () => clearTimeout(timer);
  onClose(later.cancel);
  later.now = (...args) => {
    clearTimeout(timer);
    return fn(...(args.length ? args : last));
  };
  return later;
}

/** Converts the Markdown paragraphs, code and emphasis in a text to elements. Returns one element for each paragraph. */
export function prose(text) {
  return text
    .trim()
    .split(/\n\s*\n/)
    .map((paragraph) => el("p", {}, inline(paragraph.replace(/\s*\n\s*/g, " "))));
}

/** Converts the Markdown code and emphasis in a text to elements. Returns a list of texts and elements. */
export function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (part.startsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return el("strong", {}, part.slice(2, -2));
    if (part.startsWith("[")) return part.slice(1, part.indexOf("]"));
    return part;
  });
}

/** Formats a number with three digits and a suffix for the power of ten: `1.05 M`. */
export function short(n) {
  const value = Number(n);
  const steps = [
    [1e18, " E"],
    [1e15, " P"],
    [1e12, " T"],
    [1e9, " G"],
    [1e6, " M"],
    [1e4, " k", 1e3],
  ];
  for (const [from, unit, by = from] of steps) if (Math.abs(value) >= from) return three(value / by) + unit;
  return number(value);
}

/** Formats a number of bytes: `1.5 MiB`. */
export function bytes(n) {
  let value = Number(n);
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? three(value) : value} ${units[unit]}`;
}

/** Formats a time given in seconds, with a unit from nanoseconds to days: `1.2 ms`. */
export function seconds(s) {
  const value = Number(s);
  if (!(value > 0)) return "0 s";
  if (value < 1e-6) return `${three(value * 1e9)} ns`;
  if (value < 1e-3) return `${three(value * 1e6)} µs`;
  if (value < 1) return `${three(value * 1e3)} ms`;
  if (value < 120) return `${three(value)} s`;
  if (value < 7200) return `${three(value / 60)} min`;
  if (value < 172800) return `${three(value / 3600)} h`;
  return `${three(value / 86400)} days`;
}

/** Formats a share from 0 to 1 as a percentage: `12.5 %`, `0.0012 %`. */
export function percent(share) {
  const value = Number(share) * 100;
  return `${value === 0 || value >= 0.1 ? three(value) : value.toPrecision(2)} %`;
}

/** Formats a factor: `2.9×`. */
export const times = (n) => `${n >= 1000 ? short(n) : three(n)}×`;

function three(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 2, useGrouping: false });
}
