// Lines over logarithmic axes, with values at the pointer; a table beside the plot has the same numbers.

import { el, fill, svg } from "./dom.js";

const [width, height] = [620, 380];
const [left, right, top, bottom] = [82, 18, 18, 46]; // margins

/**
 * Returns the powers of `base` from `low` to `high`, at which an axis has labels. If there are more than `most` powers, only every n-th
 * power is returned.
 */
function ticks([low, high], base, most) {
  const [from, to] = [Math.ceil(Math.log(low) / Math.log(base) - 1e-9), Math.floor(Math.log(high) / Math.log(base) + 1e-9)];
  const every = Math.max(1, Math.ceil((to - from + 1) / most));
  const found = [];
  for (let power = from; power <= to; power += 1) if ((to - power) % every === 0) found.push(base ** power);
  return found;
}

/**
 * Returns a plot with logarithmic axes. `series` is a list of lines `{name, tone, dashed, points: [[x, y]]}` with positive numbers; `tone`
 * is the name of a colour, such as `--accent`. `x` and `y` describe the axes: `label` is the title, `format` writes a number as text in the
 * legend, and `tick` writes a number as text on the axis. The axis has labels at powers of `base`. `mark` is an x value to highlight, and
 * `crossing` is the x value at which two lines cross.
 */
export function plot({ title, series, x, y, mark = null, crossing = null }) {
  const points = series.flatMap((line) => line.points).filter(([, value]) => value > 0);
  if (points.length === 0) return el("p", { class: "soft" }, "Nothing to draw.");
  const scales = scalesOf(points, y.base ?? 10);
  const { px, xs } = scales;
  const pointer = svg("line", { class: "pointer", y1: top, y2: height - bottom, visibility: "hidden" });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "plot-picture", "aria-hidden": "true" },
    grid(scales, x, y),
    mark >= xs[0] && mark <= xs[1] && marker(px(mark), "here", 8),
    crossing > xs[0] && crossing <= xs[1] && marker(px(crossing), "cheaper from here", 28),
    series.map((line) => drawn(scales, line)),
    pointer,
  );
  const legend = el("ul", { class: "plot-legend" });
  const places = series[0].points.map(([value]) => value);
  const tell = (at) => fill(legend, values(series, x, y, at));
  const rest = () => {
    pointer.setAttribute("visibility", "hidden");
    const to = mark ?? xs[1];
    tell(nearest(places, (value) => Math.abs(Math.log(value / to))));
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const here = ((event.clientX - box.left) / box.width) * width;
    const at = nearest(places, (value) => Math.abs(px(value) - here));
    pointer.setAttribute("x1", px(at));
    pointer.setAttribute("x2", px(at));
    pointer.setAttribute("visibility", "visible");
    tell(at);
  });
  picture.addEventListener("pointerleave", rest);
  rest();
  return el("figure", { class: "plot" }, el("figcaption", {}, el("h2", {}, title), legend), picture);
}

/**
 * Returns the scales of a plot, `{xs, ys, px(x), py(y)}`. `xs` and `ys` are the ranges of the axes; `px` and `py` convert numbers to
 * pixels. The range of y is extended to powers of `base`.
 */
function scalesOf(points, base) {
  const range = (at) => [Math.min(...points.map((point) => point[at])), Math.max(...points.map((point) => point[at]))];
  const scale =
    ([low, high], from, to) =>
    (value) =>
      from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low) || 1)) * (to - from);
  const [xs, ys] = [range(0), widened(range(1), base)];
  return { xs, ys, px: scale(xs, left, width - right), py: scale(ys, height - bottom, top) };
}

function grid({ xs, ys, px, py }, x, y) {
  const level = (value) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
    svg(
      "text",
      { class: "tick", x: left - 10, y: py(value), "text-anchor": "end", "dominant-baseline": "middle" },
      (y.tick ?? y.format)(value),
    ),
  ];
  return [
    ticks(ys, y.base ?? 10, 7).map(level),
    ticks(xs, x.base ?? 2, 7).map((value) =>
      svg("text", { class: "tick", x: px(value), y: height - bottom + 20, "text-anchor": "middle" }, x.format(value)),
    ),
    svg("text", { class: "axis", x: width - right, y: height - 6, "text-anchor": "end" }, x.label),
  ];
}

/**
 * Returns a line of a plot, with a dot at each of its `points` `[x, y]`, as SVG elements. `px` and `py` convert numbers to pixels; `tone`
 * is the name of a colour.
 */
function drawn({ px, py }, { tone, dashed, points }) {
  const shown = points.filter(([, value]) => value > 0);
  return [
    svg("polyline", {
      class: dashed ? "line dashed" : "line",
      points: shown.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" "),
      style: { stroke: `var(${tone})` },
    }),
    shown.map(([a, b]) =>
      svg("circle", { class: "dot", cx: px(a).toFixed(1), cy: py(b).toFixed(1), r: 2.6, style: { fill: `var(${tone})` } }),
    ),
  ];
}

/**
 * Returns a vertical line with the text `says` as SVG elements. `at` is the x coordinate of the line, and `down` the distance of the text
 * from the top, both in pixels.
 */
function marker(at, says, down) {
  const beyond = at > width / 2;
  return svg(
    "g",
    {},
    svg("line", { class: "mark", x1: at, x2: at, y1: top, y2: height - bottom }),
    svg("text", { class: "tick", x: at + (beyond ? -6 : 6), y: top + down, "text-anchor": beyond ? "end" : "start" }, says),
  );
}

/** Returns list items for the legend: the x value `at`, and for each line its name and its y value at `at`. */
const values = (series, x, y, at) => [
  el("li", { class: "plot-at" }, `${x.label} ${x.format(at)}`),
  series.map(({ name, tone, dashed, points }) => {
    const value = points.find(([place]) => place === at)?.[1];
    return el(
      "li",
      {},
      el("span", { class: dashed ? "stroke dashed" : "stroke", style: { "border-color": `var(${tone})` } }),
      `${name} `,
      el("b", {}, value > 0 ? y.format(value) : "–"),
    );
  }),
];

const nearest = (values, far) => values.reduce((best, value) => (far(value) < far(best) ? value : best));

// Extends a range to whole powers, so that the outermost lines have a label.
const widened = ([low, high], base) => [
  base ** Math.floor(Math.log(low) / Math.log(base) + 1e-9),
  base ** Math.ceil(Math.log(high) / Math.log(base) - 1e-9),
];
