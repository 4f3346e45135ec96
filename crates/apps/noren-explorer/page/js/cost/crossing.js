// The length from which a plan is cheaper than dense masking, the reason at other lengths, and the length at which the cost view opens.

import { el, number, percent, plural, seconds, times } from "../base/dom.js";
import { choice } from "../edit/fields.js";

const HEAD_DIMS = [32, 64, 96, 128, 256];
const DTYPES = ["f32", "bf16", "f16"];
/** A mask with at least this many tokens is shown at its actual length. */
const LONG = 2048;
/** The minimum number of tokens that the view shows first for a mask with fewer than `LONG` tokens. */
const OPENS = 4096;

/** Returns the head dimension and the data type of the view's settings. */
export const numbersOf = ({ head_dim: dim, dtype }) => ({
  head_dim: HEAD_DIMS.includes(dim) ? dim : 64,
  dtype: DTYPES.includes(dtype) ? dtype : "f32",
});

/**
 * Returns the number of tokens from which the plan is always cheaper than dense masking, as `{from, first}`. `first` is true if the plan is
 * cheaper at all lengths of the cost curve `points`. Returns null if dense masking is cheaper at the longest length.
 */
export function crossingOf(points) {
  const dearer = points.findLastIndex((point) => point.seconds >= point.dense_seconds);
  if (points.length === 0 || dearer === points.length - 1) return null;
  if (dearer < 0) return { from: points[0].len, first: true };
  const ratio = ({ seconds: own, dense_seconds: dense }) => Math.log(own / dense);
  const [a, b] = [points[dearer], points[dearer + 1]];
  const share = ratio(a) / (ratio(a) - ratio(b));
  return { from: Math.round(a.len * (b.len / a.len) ** share), first: false };
}

/**
 * Returns the number of tokens that the view shows first: the mask's own length `own`, or for a short mask a greater length at which the
 * cost matters.
 */
export function lengthOf(points, own, crossing) {
  if (own >= LONG || points.length === 0) return own;
  const wanted = Math.max(OPENS, 4 * (crossing?.from ?? 0));
  return (points.find(({ len }) => len >= wanted) ?? points.at(-1)).len;
}

/**
 * Returns the verdict as strings and elements: the length from which the plan is cheaper than dense masking, and the comparison at the
 * length `len`.
 */
export function verdictOf(point, len, crossing, points) {
  const says = [];
  if (points.length > 0) {
    const [first, last] = [points[0].len, points.at(-1).len];
    says.push(
      crossing?.first
        ? `Computing only what the mask allows is cheaper than dense masking at every length from ${plural(first, "token")} on.`
        : crossing
          ? ["From ", el("b", {}, `about ${number(rounded(crossing.from))} tokens`), " on, computing only what the mask allows is cheaper than dense masking."]
          : `Dense masking is cheaper at ${number(last)} tokens, the longest length.`,
      " ",
    );
  }
  const factor = point.dense_seconds / point.seconds;
  says.push(
    factor >= 1
      ? [`At ${plural(len, "token")} it is `, el("b", {}, times(factor)), ` as fast: ${percent(Number(point.computed) / Number(point.cells))} of the cells are computed.`]
      : [`At ${plural(len, "token")} dense masking is `, el("b", {}, times(1 / factor)), ` as fast. ${reasonOf(point)}`],
  );
  return says;
}

const rounded = (n) => (n < 100 ? n : Number(n.toPrecision(2)));

/** Returns a sentence with the reason why dense masking is cheaper than the plan. */
export function reasonOf({ allowed, seconds: all, dense_seconds: dense, planning_seconds: planning, computed, cells, mixed_share: mixed, mixed_cost: cost }) {
  const share = Number(computed) / Number(cells);
  const allows = allowed !== null && allowed !== undefined && Number(allowed) / Number(cells) >= 0.9;
  if (share > 0.9) {
    return `Reason: ${allows ? "the mask allows nearly everything" : "nearly every tile has an allowed cell"}, so that ${percent(share)} of the cells are computed and ${share < 1 ? "little" : "nothing"} is saved.`;
  }
  const kernel = all - planning;
  if (kernel < dense) {
    return `Reason: planning takes ${seconds(planning)}, and the skipped cells save only ${seconds(dense - kernel)}. A plan is made once for all layers and steps with the same mask.`;
  }
  return `Reason: ${percent(mixed)} of the computed cells are in tiles with both allowed and hidden cells, where a cell takes ${times(cost)} the time, and only ${percent(1 - share)} of the cells are skipped.`;
}

/** Fields for the length, the head dimension and the data type. */
export class Choices {
  /** `onChoose({len})`, `onChoose({head_dim})` or `onChoose({dtype})` is called when the user chooses another value. */
  constructor(onChoose) {
    this.length = choice("At", (len) => onChoose({ len: Number(len) }));
    this.dim = choice("head_dim", (dim) => onChoose({ head_dim: Number(dim) }));
    this.dtype = choice("dtype", (dtype) => onChoose({ dtype }));
    this.element = el("div", { class: "cost-choices", role: "group", "aria-label": "Length and numbers" },
      this.length.element, this.dim.element, this.dtype.element);
  }

  /** Shows the chosen values. `lengths` are the lengths of the cost curve, and `own` is the length of the mask. */
  show({ len, own, lengths, head_dim: dim, dtype }) {
    const all = [...new Set([...lengths, own])].sort((a, b) => a - b);
    this.length.show(all, len, (n) => `${plural(n, "token")}${n === own ? ", as the mask" : ""}`);
    this.dim.show(HEAD_DIMS, dim);
    this.dtype.show(DTYPES, dtype);
  }
}
