// Parts of the mask view: keys, icons, legends, and the bars along the rulers.

/** The keyboard shortcuts of the picture, each as `[keys, effect]`. */
export const SHORTCUTS = [
  ["← ↑ ↓ →", "move the cell cursor"],
  ["Enter", "pin the explanation of the cell"],
  ["Escape", "remove the pin"],
  ["Shift + arrows", "pan"],
  ["+ −", "zoom"],
  ["0", "show everything"],
  ["Home End", "first and last key of the row"],
  ["[ ]", "previous and next border of the row"],
  ["{ }", "previous and next border of the column"],
  ["t", "show or hide the tiles of the plan"],
  ["d", "jump to the first difference"],
  ["p", "presets"],
  ["/", "go to the editor"],
  ["?", "this list"],
];
/** Icons of the mask view. Each is an SVG path in a square of 24 by 24 units. */
export const ICONS = {
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  nearer: "M12 5v14M5 12h14",
  farther: "M5 12h14",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7L12 7M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7L12 17",
  keys: "M9.5 9a2.6 2.6 0 1 1 3.7 2.3c-.8.4-1.2 1-1.2 1.9v.3M12 17v.01",
};

/**
 * The entries of the legend `[colour, meaning]`, for each kind of picture: the cells, the tiles of the plan, and the difference of two
 * masks.
 */
export const LEGENDS = {
  cells: [
    ["allowed", "allowed"],
    ["some", "some cells allowed"],
    ["denied", "denied"],
  ],
  plan: [
    ["allowed", "full tile: every cell is allowed"],
    ["tile-allowed", "allowed, in a mixed tile"],
    ["tile-some", "partly allowed, in a mixed tile"],
    ["tile-denied", "denied but computed, in a mixed tile"],
    ["denied", "empty"],
  ],
  difference: [
    ["only-this", "allowed only by the first mask (−)"],
    ["only-other", "allowed only by the second mask (+)"],
    ["both", "allowed by both masks"],
    ["denied", "allowed by neither mask"],
  ],
};

/**
 * Returns the documents and the labels of a batch row as bars along the rulers. If there are none, returns its non-padding tokens as a bar.
 * `bound` is the answer of POST /api/masks, and `side` is `left` if the padding is before the other tokens.
 */
export function bandsOf(bound, batch, side) {
  const bands = [];
  const ends = bound.document_ends?.[Math.min(batch, bound.document_ends.length - 1)];
  if (ends && ends.length <= 20000) {
    let from = 0;
    ends.forEach((to, i) => {
      bands.push({ from, to, tone: i % 2 ? "tile-allowed" : "accent", axis: "both" });
      from = to;
    });
  }
  for (const positions of Object.values(bound.labels ?? {})) {
    for (const [from, to] of positions[Math.min(batch, positions.length - 1)].slice(0, 5000)) bands.push({ from, to, tone: "only-this", axis: "both" });
  }
  const length = bound.lengths?.[Math.min(batch, (bound.lengths?.length ?? 1) - 1)];
  if (Number.isInteger(length) && length < bound.kv_len && !bands.length) {
    const from = side === "left" ? bound.kv_len - length : 0;
    bands.push({ from, to: from + length, tone: "accent", axis: "k" });
  }
  return bands;
}
