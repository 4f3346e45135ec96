// The computation of one row as a picture that can be saved.

import { svg, total } from "../base/dom.js";
import { decimals, numbersOf, shownWord, STEPS, vector } from "./words.js";

const WIDTH = 820;
const LINE = 22;
const TOP = 92; // the height of the title and of the names of the columns
/** The columns of the steps, each as `[right end, title]`. */
const COLUMNS = [[240, "score"], [345, "masked score"], [440, "exponential"], [620, "weight"], [804, "weight × value"]];
const [KEY_AT, BAR_AT] = [24, 462];
const BAR = 96; // the length of the bar of the weight 1

/**
 * Returns the picture of a row as an SVG element, with the colours of the page as custom properties such as `var(--ink)`. `row` is the result
 * of `attentionRow`, and `query` and `keys` are the names of the query and the keys. The computation is shown up to the step with the index
 * `step`.
 */
export function rowPicture(row, { query, keys, mask, step }) {
  const height = TOP + keys.length * LINE + 84;
  const text = (x, y, words, { anchor = "end", fill = "var(--ink)", weight = 400, size = 13 } = {}) =>
    svg("text", { x, y, "text-anchor": anchor, fill, "font-weight": weight, "font-size": size }, words);
  const columns = COLUMNS.slice(0, step + 1);
  const line = (key, at) => {
    const y = TOP + at * LINE + 15;
    const read = row.allowed[key];
    const fill = read ? "var(--ink)" : "var(--soft)";
    const numbers = numbersOf(row, key, 2);
    return [
      svg("circle", { cx: 12, cy: y - 4, r: 4, fill: read ? "var(--allowed)" : "none", stroke: read ? "var(--allowed)" : "var(--bad)" }),
      text(KEY_AT, y, `${key} ${shownWord(keys[key])}`, { anchor: "start", fill }),
      columns.map(([x], at) => text(x, y, numbers[at], { fill })),
      step >= 3 && svg("rect", { x: BAR_AT, y: y - 11, width: Math.max(0, row.weights[key]) * BAR, height: 13, fill: "var(--allowed)" }),
    ];
  };
  const foot = TOP + keys.length * LINE + 26;
  const end = [
    step >= 2 && text(COLUMNS[2][0], foot, `sum ${decimals(row.denominator)}`, { weight: 600 }),
    step >= 3 && text(COLUMNS[3][0], foot, `sum ${decimals(total(row.weights), 4)}`, { weight: 600 }),
    step >= 4 && row.sum.length > 0 && text(COLUMNS[4][0], foot + 26, `output ${vector(row.sum, 4)}`, { weight: 600 }),
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
    svg("rect", { width: WIDTH, height, fill: "var(--raised)" }),
    text(12, 26, `Attention of ${query}`, { anchor: "start", weight: 600, size: 16 }),
    text(12, 48, mask.length > 90 ? `${mask.slice(0, 89)}…` : mask, { anchor: "start", fill: "var(--soft)" }),
    text(KEY_AT, TOP - 14, "key", { anchor: "start", fill: "var(--soft)" }),
    columns.map(([x, words]) => text(x, TOP - 14, words, { fill: "var(--soft)" })),
    svg("line", { x1: 12, x2: WIDTH - 12, y1: TOP - 5, y2: TOP - 5, stroke: "var(--line)" }),
    keys.map((_, key) => line(key, key)),
    svg("line", { x1: 12, x2: WIDTH - 12, y1: foot - 18, y2: foot - 18, stroke: "var(--line)" }),
    end,
  );
}
