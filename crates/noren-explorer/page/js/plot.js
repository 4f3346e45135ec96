// Lines over logarithmic axes, with a readable hover; the same numbers stand in a table beside it.

import { el, fill, svg } from "./dom.js";

const SIZE = { width: 620, height: 380, left: 82, right: 18, top: 18, bottom: 46 };

/** Powers of `base` within a range, thinned so that at most `most` remain. */
function ticks([low, high], base, most) {
  const [from, to] = [Math.ceil(Math.log(low) / Math.log(base) - 1e-9), Math.floor(Math.log(high) / Math.log(base) + 1e-9)];
  const every = Math.max(1, Math.ceil((to - from + 1) / most));
  const found = [];
  for (let power = from; power <= to; power += 1) if ((to - power) % every === 0) found.push(base ** power);
  return found;
}

/**
 * A plot. `series`: `[{name, tone, dashed, points: [[x, y]]}]` with positive numbers; `x` and `y`: `{label, format, base}` with `tick` where
 * the axis is written otherwise; `mark` is an x
 * to point out. `tone` is the name of a colour (`--accent`).
 */
export function plot({ title, series, x, y, mark = null }) {
  const points = series.flatMap((line) => line.points).filter(([, value]) => value > 0);
  if (points.length === 0) return el("p", { class: "soft" }, "Nothing to draw.");
  const range = (at) => [Math.min(...points.map((point) => point[at])), Math.max(...points.map((point) => point[at]))];
  const xs = range(0);
  const ys = widened(range(1), y.base ?? 10);
  const { width, height, left, right, top, bottom } = SIZE;
  const scale =
    ([low, high], from, to) =>
    (value) =>
      from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low) || 1)) * (to - from);
  const px = scale(xs, left, width - right);
  const py = scale(ys, height - bottom, top);

  const grid = [
    ticks(ys, y.base ?? 10, 7).map((value) => [
      svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
      svg(
        "text",
        { class: "tick", x: left - 10, y: py(value), "text-anchor": "end", "dominant-baseline": "middle" },
        (y.tick ?? y.format)(value),
      ),
    ]),
    ticks(xs, x.base ?? 2, 7).map((value) =>
      svg("text", { class: "tick", x: px(value), y: height - bottom + 20, "text-anchor": "middle" }, x.format(value)),
    ),
    svg("text", { class: "axis", x: width - right, y: height - 6, "text-anchor": "end" }, x.label),
  ];
  const lines = series.map(({ tone, dashed, points: given }) => {
    const drawn = given.filter(([, value]) => value > 0);
    return [
      svg("polyline", {
        class: dashed ? "line dashed" : "line",
        points: drawn.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" "),
        style: { stroke: `var(${tone})` },
      }),
      drawn.map(([a, b]) =>
        svg("circle", { class: "dot", cx: px(a).toFixed(1), cy: py(b).toFixed(1), r: 2.6, style: { fill: `var(${tone})` } }),
      ),
    ];
  });
  const marker =
    mark >= xs[0] &&
    mark <= xs[1] &&
    svg(
      "g",
      {},
      svg("line", { class: "mark", x1: px(mark), x2: px(mark), y1: top, y2: height - bottom }),
      svg(
        "text",
        {
          class: "tick",
          x: px(mark) + (px(mark) > width / 2 ? -6 : 6),
          y: top + 8,
          "text-anchor": px(mark) > width / 2 ? "end" : "start",
        },
        "here",
      ),
    );
  const pointer = svg("line", { class: "pointer", y1: top, y2: height - bottom, visibility: "hidden" });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "plot-picture", "aria-hidden": "true" },
    grid,
    marker,
    lines,
    pointer,
  );
  const legend = el("ul", { class: "plot-legend" });
  const nearest = series[0].points.map(([value]) => value);

  // Beside the name of each line its value: at the pointer, else at the end.
  const tell = (at) => {
    fill(
      legend,
      el("li", { class: "plot-at" }, `${x.label} ${x.format(at)}`),
      series.map(({ name, tone, dashed, points: given }) => {
        const value = given.find(([place]) => place === at)?.[1];
        return el(
          "li",
          {},
          el("span", { class: dashed ? "stroke dashed" : "stroke", style: { "border-color": `var(${tone})` } }),
          `${name} `,
          el("b", {}, value > 0 ? y.format(value) : "–"),
        );
      }),
    );
  };
  const rest = () => {
    pointer.setAttribute("visibility", "hidden");
    tell(closest(nearest, mark ?? xs[1]));
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = nearest.reduce((best, value) =>
      Math.abs(px(value) - ((event.clientX - box.left) / box.width) * width) <
      Math.abs(px(best) - ((event.clientX - box.left) / box.width) * width)
        ? value
        : best,
    );
    pointer.setAttribute("x1", px(at));
    pointer.setAttribute("x2", px(at));
    pointer.setAttribute("visibility", "visible");
    tell(at);
  });
  picture.addEventListener("pointerleave", rest);
  rest();
  return el("figure", { class: "plot" }, el("figcaption", {}, el("h2", {}, title), legend), picture);
}

const closest = (values, to) =>
  values.reduce((best, value) => (Math.abs(Math.log(value / to)) < Math.abs(Math.log(best / to)) ? value : best));

// Up to whole powers, so that the outermost lines have a label.
const widened = ([low, high], base) => [
  base ** Math.floor(Math.log(low) / Math.log(base) + 1e-9),
  base ** Math.ceil(Math.log(high) / Math.log(base) - 1e-9),
];
