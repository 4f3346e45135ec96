// Elements, and formats of numbers.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. Props: `class`, `dataset: {}`, `style: {}` (set from the script, as the page's policy requires), `onclick` and other
 * listeners, booleans and everything else as attributes; null, undefined and false leave an attribute out.
 * Children: nodes, strings, numbers, arrays of these; null and false are left out.
 */
export function el(tag, props = {}, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Makes an SVG element. */
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

/** Appends children as `el` does. */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Replaces the content of a node by the children. */
export function fill(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** Removes the content of a node. */
export const clear = (node) => fill(node);

let ids = 0;
/** Returns an id that is unique in the page. */
export const uid = (prefix = "n") => `${prefix}-${(ids += 1)}`;

/** Calls `fn` after `wait` ms without another call; `.now()` calls `fn` at once, `.cancel()` cancels the call. */
export function debounce(fn, wait) {
  let timer = 0;
  let last = [];
  const later = (...args) => {
    last = args;
    clearTimeout(timer);
    timer = setTimeout(fn, wait, ...args);
  };
  later.cancel = () => clearTimeout(timer);
  later.now = (...args) => {
    clearTimeout(timer);
    return fn(...(args.length ? args : last));
  };
  return later;
}

/** Returns a text with Markdown's inline code, emphasis and paragraphs as elements. */
export function prose(text) {
  return text
    .trim()
    .split(/\n\s*\n/)
    .map((paragraph) => el("p", {}, inline(paragraph.replace(/\s*\n\s*/g, " "))));
}

/** Returns the inline code and emphasis of a text as children. */
export function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (part.startsWith("`")) return el("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return el("strong", {}, part.slice(2, -2));
    if (part.startsWith("[")) return part.slice(1, part.indexOf("]"));
    return part;
  });
}

/** `1,048,576`; takes numbers, and strings for counts beyond 2^53. */
export function number(n) {
  if (n === null || n === undefined) return "–";
  if (typeof n === "string" && /^\d+$/.test(n)) return BigInt(n).toLocaleString("en");
  return Number(n).toLocaleString("en", { maximumFractionDigits: 3 });
}

/** `1.05 M`: three digits and a unit. */
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

/** `1.5 MiB`. */
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

/** `1.2 ms`; from nanoseconds to days. */
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

/** `12.5 %`, `0.0012 %`. */
export function percent(share) {
  const value = Number(share) * 100;
  return `${value === 0 || value >= 0.1 ? three(value) : value.toPrecision(2)} %`;
}

/** `2.9×`. */
export const times = (n) => `${n >= 1000 ? short(n) : three(n)}×`;

function three(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 2, useGrouping: false });
}

/** `1 token`, `3 tokens`. */
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${String(n) === "1" ? one : many}`;
