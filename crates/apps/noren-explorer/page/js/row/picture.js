// The computation of one row as a picture that can be saved. The picture holds all of its colours and fonts, so that it looks the same in
// other programs.

import { svg, total } from "../base/dom.js";
import { decimals, MINUS_INFINITY, shownWord, STEPS, vector } from "./words.js";
import { colour } from "../base/theme.js";

const WIDTH = 820;
const LINE = 22;
const TOP = 92; // the height of the title and of the names of the columns
const COLUMNS = { key: 24, score: 240, masked: 345, exponential: 440, bar: 462, weight: 620, product: 804 };
const BAR = 96; // the length of the bar of the weight 1

const ink = (name) => `#${colour(name).slice(0, 3).map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;

/**
 * Returns the picture of a row as an SVG element. `row` is the answer of POST /api/masks/{id}/row, and `query` and `keys` are the names of
 * the query and the keys. The computation is shown up to the step with the index `step`.
 */
export function rowPicture(row, { query, keys, mask, step }) {
  const inks = { ink: ink("--ink"), soft: ink("--soft"), line: ink("--line"), ground: ink("--raised"), allowed: ink("--allowed"), bad: ink("--bad") };
  const height = TOP + keys.length * LINE + 84;
  const text = (x, y, words, { anchor = "end", fill = inks.ink, weight = 400, size = 13 } = {}) =>
    svg("text", { x, y, "text-anchor": anchor, fill, "font-weight": weight, "font-size": size }, words);
  const heads = [
    ["score", "score"],
    ["masked", "masked score"],
    ["exponential", "exponential"],
    ["weight", "weight"],
    ["product", "weight × value"],
  ].slice(0, step + 1);
  const line = (key, at) => {
    const y = TOP + at * LINE + 15;
    const read = row.allowed[key];
    const fill = read ? inks.ink : inks.soft;
    const cells = [
      [COLUMNS.score, decimals(row.scores[key])],
      [COLUMNS.masked, row.masked[key] === null ? MINUS_INFINITY : decimals(row.masked[key])],
      [COLUMNS.exponential, decimals(row.exponentials[key])],
      [COLUMNS.weight, decimals(row.weights[key], 4)],
      [COLUMNS.product, row.sum.length === 0 || row.masked[key] === null ? "–" : vector(row.products[key], 2)],
    ].slice(0, step + 1);
    return [
      svg("circle", { cx: 12, cy: y - 4, r: 4, fill: read ? inks.allowed : "none", stroke: read ? inks.allowed : inks.bad }),
      text(COLUMNS.key, y, `${key} ${shownWord(keys[key])}`, { anchor: "start", fill }),
      cells.map(([x, words]) => text(x, y, words, { fill })),
      step >= 3 && svg("rect", { x: COLUMNS.bar, y: y - 11, width: Math.max(0, row.weights[key]) * BAR, height: 13, fill: inks.allowed }),
    ];
  };
  const foot = TOP + keys.length * LINE + 26;
  const end = [
    step >= 2 && text(COLUMNS.exponential, foot, `sum ${decimals(row.denominator)}`, { weight: 600 }),
    step >= 3 && text(COLUMNS.weight, foot, `sum ${decimals(total(row.weights), 4)}`, { weight: 600 }),
    step >= 4 && row.sum.length > 0 && text(COLUMNS.product, foot + 26, `output ${vector(row.sum, 4)}`, { weight: 600 }),
  ];
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${height}`,
      width: WIDTH,
      height,
      role: "img",
      "aria-label": `The row of ${query} as a picture, up to the step ${STEPS[step].title}: the table has the same numbers.`,
      "font-family": "system-ui, 'Liberation Sans', sans-serif",
    },
    svg("rect", { width: WIDTH, height, fill: inks.ground }),
    text(12, 26, `Attention of ${query}`, { anchor: "start", weight: 600, size: 16 }),
    text(12, 48, mask.length > 90 ? `${mask.slice(0, 89)}…` : mask, { anchor: "start", fill: inks.soft }),
    text(COLUMNS.key, TOP - 14, "key", { anchor: "start", fill: inks.soft }),
    heads.map(([name, words]) => text(COLUMNS[name], TOP - 14, words, { fill: inks.soft })),
    svg("line", { x1: 12, x2: WIDTH - 12, y1: TOP - 5, y2: TOP - 5, stroke: inks.line }),
    keys.map((_, key) => line(key, key)),
    svg("line", { x1: 12, x2: WIDTH - 12, y1: foot - 18, y2: foot - 18, stroke: inks.line }),
    end,
  );
}
