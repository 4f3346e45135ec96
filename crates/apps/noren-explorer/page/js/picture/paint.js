// Draws a mask with a camera. The time of a frame depends on the window, not on the size of the mask.

import { clamp } from "./camera.js";
import { clipped, turned } from "./drawing.js";
import { number } from "../base/dom.js";
import { ink, onTheme } from "../base/theme.js";
import { cover, onlyOther, onlyThis, palette, picture, SIDE } from "./tiles.js";

const GRID_FROM = 6; // minimum pixels of a cell for lines between cells
const ROUND_FROM = 18; // minimum pixels of a cell for single shapes,
const SINGLES = 8_000; // for at most this many cells, because a frame has little time
const TICK = 5;
/** The width of one character of the texts beside the picture, in pixels. */
export const DIGIT = 7.3;
/** The width of the space to the right of the picture, in pixels. The last number of the top ruler may extend into this space. */
const RIGHT = 12;
const RULER = "12px ui-monospace, Menlo, Consolas, 'Liberation Mono', monospace";
const TITLE = "600 12px system-ui, 'Liberation Sans', sans-serif";

let hatch = null;
onTheme(() => (hatch = null));

const faded = (name, share) => `${ink(name)}${Math.round(255 * share).toString(16)}`;

/**
 * Returns the fill pattern for cells whose tile is not loaded: a hatched pattern, because a plain colour could be a colour of the legend.
 */
function missing(context) {
  if (hatch) return hatch;
  const side = 12;
  const tile = new OffscreenCanvas(side, side);
  const on = tile.getContext("2d");
  on.fillStyle = ink("raised");
  on.fillRect(0, 0, side, side);
  on.strokeStyle = ink("line");
  on.lineWidth = 2;
  for (const x of [-side / 2, side / 2, side * 1.5]) {
    on.moveTo(x - side / 2, side);
    on.lineTo(x + side / 2, 0);
  }
  on.stroke();
  hatch = context.createPattern(tile, "repeat");
  return hatch;
}

/**
 * Returns the level of the tiles to draw: the level at which one pixel of a tile is one to two screen pixels wide in the view of `camera`.
 * At level `l`, a pixel of a tile shows `2^l` by `2^l` cells. `ratio` is the number of screen pixels per page pixel, and `top` is the
 * maximum level.
 */
export function levelFor(camera, top, ratio) {
  const finest = Math.max(camera.scale, Math.min(camera.down, camera.scale)) * ratio;
  return clamp(Math.ceil(Math.log2(1 / finest)), 0, top);
}

/** Returns the tiles `[level, row, col]` that the window shows; tiles near the middle of the window are first. */
export function tilesSeen(camera, level) {
  const span = SIDE * 2 ** level;
  const { q0, q1, k0, k1 } = camera.seen();
  const tiles = [];
  for (let row = Math.floor(q0 / span); row * span < q1; row += 1) {
    for (let col = Math.floor(k0 / span); col * span < k1; col += 1) tiles.push([level, row, col]);
  }
  const far = ([, row, col]) => Math.hypot((row + 0.5) * span - camera.q, (col + 0.5) * span - camera.k);
  return tiles.sort((a, b) => far(a) - far(b));
}

/**
 * Draws the cells in the window from the tiles of `level`. If a tile is not loaded, draws a tile of a higher level, or a tile of `before`,
 * which are the tiles of the previous picture.
 */
export function drawCells(context, camera, tiles, before, level) {
  const [x0, y0, x1, y1] = camera.box();
  clipped(context, x0, y0, x1 - x0, y1 - y0, () => {
    context.fillStyle = missing(context);
    context.fillRect(x0, y0, x1 - x0, y1 - y0);
    context.imageSmoothingEnabled = false;
    const { q0, q1, k0, k1 } = camera.seen();
    const single = Math.min(camera.scale, camera.down) >= ROUND_FROM && level === 0 && (q1 - q0) * (k1 - k0) <= SINGLES;
    for (const at of tilesSeen(camera, level)) {
      const tile = tiles.get(...at);
      if (tile && single) drawSingles(context, camera, tile, tiles.mode);
      else if (tile) place(context, camera, picture(tile, tiles.mode), tile, level);
      else if (!drawCoarser(context, camera, tiles, at) && before) drawCoarser(context, camera, before, at, 0);
    }
    if (!single && camera.scale >= GRID_FROM && camera.down >= GRID_FROM) drawLines(context, camera);
  });
  context.strokeStyle = ink("line");
  context.strokeRect(x0 - 0.5, y0 - 0.5, x1 - x0 + 1, y1 - y0 + 1);
}

function place(context, camera, image, { firstQuery, firstKey, rows, cols }, level) {
  const cell = 2 ** level;
  const [x, y] = [camera.x(firstKey), camera.y(firstQuery)];
  context.drawImage(image, x, y, cols * cell * camera.scale, rows * cell * camera.down);
}

/**
 * Draws a missing tile `[level, row, col]` from a tile with a higher level, whose pixels show more cells each. Uses the nearest loaded
 * level that is at least `from` levels higher. Returns false if no such tile is loaded.
 */
function drawCoarser(context, camera, tiles, [level, row, col], from = 1) {
  for (let up = from; level + up <= tiles.top; up += 1) {
    const parts = 2 ** up;
    const [above, beside] = [Math.floor(row / parts), Math.floor(col / parts)];
    const tile = tiles.get(level + up, above, beside);
    if (!tile) continue;
    const side = SIDE / parts;
    const [sx, sy] = [(col % parts) * side, (row % parts) * side];
    const [sw, sh] = [Math.min(side, tile.cols - sx), Math.min(side, tile.rows - sy)];
    if (sw <= 0 || sh <= 0) return true;
    const cell = 2 ** (level + up);
    const image = picture(tile, tiles.mode);
    context.drawImage(
      image,
      sx,
      sy,
      sw,
      sh,
      camera.x(tile.firstKey + sx * cell),
      camera.y(tile.firstQuery + sy * cell),
      sw * cell * camera.scale,
      sh * cell * camera.down,
    );
    return true;
  }
  return false;
}

/**
 * Draws the visible cells of a tile as rectangles with round corners and gaps between them. If two masks are compared, a minus sign marks a
 * cell that only the first mask allows, and a plus sign a cell that only the second mask allows. A minus sign also marks a cell whose value
 * is unknown.
 */
function drawSingles(context, camera, tile, mode) {
  const { q0, q1, k0, k1 } = camera.seen();
  const { colours } = palette(mode);
  const [across, down] = [camera.scale, camera.down];
  const gap = clamp(across * 0.06, 1, 3);
  const round = Math.min(5, across * 0.14, down * 0.14);
  const paths = new Map();
  const minus = new Path2D();
  const plus = new Path2D();
  // The gaps have the colour of the page, and not the pattern of missing tiles.
  context.fillStyle = ink("page");
  context.fillRect(camera.x(tile.firstKey), camera.y(tile.firstQuery), tile.cols * across, tile.rows * down);
  for (let q = Math.max(q0, tile.firstQuery); q < Math.min(q1, tile.firstQuery + tile.rows); q += 1) {
    for (let k = Math.max(k0, tile.firstKey); k < Math.min(k1, tile.firstKey + tile.cols); k += 1) {
      const byte = tile.cells[(q - tile.firstQuery) * tile.cols + (k - tile.firstKey)];
      const paint = colours[byte];
      if (!paths.has(paint)) paths.set(paint, new Path2D());
      const [x, y] = [camera.x(k), camera.y(q)];
      paths.get(paint).roundRect(x + gap / 2, y + gap / 2, across - gap, down - gap, round);
      if (onlyThis(byte) || cover(byte) === 3) minus.rect(x + across * 0.32, y + down / 2 - 1, across * 0.36, 2);
      if (onlyOther(byte)) {
        plus.rect(x + across * 0.32, y + down / 2 - 1, across * 0.36, 2);
        plus.rect(x + across / 2 - 1, y + down * 0.32, 2, down * 0.36);
      }
    }
  }
  for (const [paint, path] of paths) {
    context.fillStyle = `rgb(${paint.join(" ")})`;
    context.fill(path);
  }
  context.fillStyle = ink("raised");
  context.fill(minus);
  context.fill(plus);
}

function drawLines(context, camera) {
  const { q0, q1, k0, k1 } = camera.seen();
  context.strokeStyle = ink("page");
  context.lineWidth = 1;
  context.beginPath();
  for (let k = k0; k <= k1; k += 1) {
    const x = Math.round(camera.x(k)) - 0.5;
    context.moveTo(x, camera.y(q0));
    context.lineTo(x, camera.y(q1));
  }
  for (let q = q0; q <= q1; q += 1) {
    const y = Math.round(camera.y(q)) - 0.5;
    context.moveTo(camera.x(k0), y);
    context.lineTo(camera.x(k1), y);
  }
  context.stroke();
}

/**
 * Draws the row and the column of a cell, and a border around the cell. `pinned` is true if the explanation of the cell stays visible;
 * `label` is a text beside the cell.
 */
export function drawCross(context, camera, cell, { pinned = false, label } = {}) {
  if (!cell) return;
  const [x, y] = [camera.x(cell.k), camera.y(cell.q)];
  const [across, down] = [Math.max(camera.scale, 1.5), Math.max(camera.down, 1.5)];
  const [x0, y0, x1, y1] = camera.box();
  clipped(context, x0 - 3, y0 - 3, x1 - x0 + 6, y1 - y0 + 6, () => {
    context.fillStyle = faded("cross", 0.14);
    context.fillRect(x0, y, x1 - x0, down);
    context.fillRect(x, y0, across, y1 - y0);
    context.fillStyle = faded("cross", 0.6);
    for (const edge of [y - 0.5, y + down - 0.5]) context.fillRect(x0, edge, x1 - x0, 1);
    for (const edge of [x - 0.5, x + across - 0.5]) context.fillRect(edge, y0, 1, y1 - y0);
    context.strokeStyle = ink("cross");
    context.lineWidth = pinned ? 3 : 2;
    const grow = across < 6 ? 4 : 1;
    context.beginPath();
    context.roundRect(x - grow, y - grow, across + 2 * grow, down + 2 * grow, 3);
    context.stroke();
  });
  pill(context, camera, label?.k ?? number(cell.k), clamp(x + across / 2, x0, x1), y0 - 15, "center");
  pill(context, camera, label?.q ?? number(cell.q), x0 - TICK - 3, clamp(y + down / 2, y0, y1), "right");
}

function pill(context, camera, words, x, y, align) {
  context.font = "600 12px ui-monospace, Menlo, Consolas, 'Liberation Mono', monospace";
  const width = context.measureText(words).width + 10;
  const left = align === "center" ? clamp(x - width / 2, 2, camera.left + camera.width - width) : Math.max(1, x - width);
  context.fillStyle = ink("cross");
  context.beginPath();
  context.roundRect(left, y - 9, width, 18, 5);
  context.fill();
  context.fillStyle = ink("page") === ink("on-accent") ? ink("ink") : "#14161f";
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(words, left + 5, y + 0.5);
}

/**
 * Draws rulers: the positions of keys along the top, and of queries along the left, with the titles of the axes. If `tokens` has names of
 * keys or queries, draws these names instead. Returns the texts of the rulers as `{text, left, top, right, bottom}`.
 */
export function drawRulers(context, camera, tokens) {
  const { q0, q1, k0, k1 } = camera.seen();
  const [x0, y0] = camera.box();
  const end = camera.left + camera.width + RIGHT;
  const labels = [];
  const write = (text, x, y, align) => {
    const width = context.measureText(text).width;
    const left = align === "center" ? clamp(x - width / 2, 2, end - width) : x - width;
    labels.push({ text, left, top: y - 7, right: left + width, bottom: y + 7 });
    context.textAlign = "left";
    context.fillText(text, left, y);
  };
  context.font = RULER;
  context.fillStyle = ink("soft");
  context.strokeStyle = ink("strong-line");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.beginPath();
  const wide = tokens?.keys ? 22 : 9 + DIGIT * number(k1).length;
  const keyStep = step(wide / camera.scale);
  for (let k = Math.ceil(k0 / keyStep) * keyStep; k < k1; k += keyStep) {
    const x = camera.x(k + (camera.scale >= 4 ? 0.5 : 0));
    if (x < camera.left - 1 || x > camera.left + camera.width + 1) continue;
    context.moveTo(x, y0 - TICK);
    context.lineTo(x, y0 - 1);
    if (tokens?.keys) turned(context, cut(tokens.keys[k] ?? number(k)), x, y0 - TICK - 4, -Math.PI / 3);
    else write(number(k), x, y0 - TICK - 9, "center");
  }
  const queryStep = step(20 / camera.down);
  let widest = 0;
  for (let q = Math.ceil(q0 / queryStep) * queryStep; q < q1; q += queryStep) {
    const y = camera.y(q + (camera.down >= 4 ? 0.5 : 0));
    if (y < camera.top - 1 || y > camera.top + camera.height + 1) continue;
    context.moveTo(x0 - TICK, y);
    context.lineTo(x0 - 1, y);
    const text = tokens?.queries ? cut(tokens.queries[q] ?? number(q)) : number(q);
    widest = Math.max(widest, context.measureText(text).width);
    write(text, x0 - TICK - 3, y, "right");
  }
  context.stroke();
  titles(context, camera, labels, { x0, y0, widest, above: tokens?.keys ? 6 + 0.87 * DIGIT * longestName(tokens.keys) : 18 });
  return labels;
}

/** Draws the titles of the axes beside the texts of the rulers, and adds them to `labels`. */
function titles(context, camera, labels, { x0, y0, widest, above }) {
  context.font = TITLE;
  context.fillStyle = ink("ink");
  context.textAlign = "left";
  const y = Math.max(9, y0 - TICK - above - 8);
  const across = context.measureText("keys →").width;
  context.fillText("keys →", x0, y);
  labels.push({ text: "keys →", left: x0, top: y - 7, right: x0 + across, bottom: y + 7 });
  const down = context.measureText("← queries").width;
  const x = Math.max(9, x0 - TICK - widest - 14);
  const bottom = Math.min(y0 + down, camera.top + camera.height + 12);
  turned(context, "← queries", x, bottom, -Math.PI / 2);
  labels.push({ text: "← queries", left: x - 7, top: bottom - down, right: x + 7, bottom });
}

/** The maximum number of characters of a token's name beside the picture. The name at the cursor is shown in full. */
const NAME = 16;
const cut = (words) => (words.length > NAME ? `${words.slice(0, NAME - 1)}…` : words);

/** Returns the number of characters of the longest name on a ruler. */
export const longestName = (names) => (names ?? []).reduce((most, name) => Math.max(most, Math.min(NAME, (name ?? "").length)), 1);

/** Returns the step between two labelled positions on a ruler: the smallest power of two that is at least `least`. */
function step(least) {
  for (const value of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) if (value >= least) return value;
  return 2 ** Math.ceil(Math.log2(least));
}

/**
 * Draws ranges of positions (documents, labels, non-padding tokens) as bars along the rulers. A range is `{from, to, tone, axis}`, with
 * `to` excluded. `tone` is the name of a colour; `axis` is `q`, `k` or both.
 */
export function drawBands(context, camera, bands) {
  const { q0, q1, k0, k1 } = camera.seen();
  const [x0, y0] = camera.box();
  for (const { from, to, tone, axis } of bands) {
    context.fillStyle = ink(tone);
    if (axis !== "q" && to > k0 && from < k1) {
      const left = Math.max(camera.x(from), x0);
      context.fillRect(left, y0 - 4, Math.max(1, Math.min(camera.x(to), camera.left + camera.width) - left - 1), 3);
    }
    if (axis !== "k" && to > q0 && from < q1) {
      const top = Math.max(camera.y(from), y0);
      context.fillRect(x0 - 4, top, 3, Math.max(1, Math.min(camera.y(to), camera.top + camera.height) - top - 1));
    }
  }
}

/** Draws a ring around each of the cells `{q, k}`. */
export function drawMarks(context, camera, marks) {
  context.strokeStyle = ink("cross");
  context.lineWidth = 2;
  for (const { q, k } of marks) {
    const radius = Math.max(6, camera.scale * 0.62);
    const [x, y] = [camera.x(k + 0.5), camera.y(q + 0.5)];
    if (x < camera.left || y < camera.top || x > camera.left + camera.width || y > camera.top + camera.height) continue;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }
}

/** Returns the rectangle of the small map in the canvas as `{x, y, width, height}`. Returns null if the whole mask is visible. */
export function mapBox(camera) {
  if (camera.fitted || camera.stretch !== 1) return null;
  const longest = clamp(Math.min(camera.width, camera.height) * 0.24, 64, 148);
  const most = Math.max(camera.qLen, camera.kvLen);
  const [width, height] = [Math.max(8, (longest * camera.kvLen) / most), Math.max(8, (longest * camera.qLen) / most)];
  return { x: camera.left + camera.width - width - 12, y: camera.top + 12, width, height };
}

/** Draws a small picture of the whole mask in a corner, with a rectangle around the visible part. */
export function drawMap(context, camera, tiles) {
  const tile = tiles.get(tiles.top, 0, 0);
  const box = mapBox(camera);
  if (!box || !tile) return;
  const { x, y, width, height } = box;
  context.save();
  context.shadowColor = faded("ink", 0.25);
  context.shadowBlur = 14;
  context.fillStyle = ink("raised");
  context.fillRect(x - 4, y - 4, width + 8, height + 8);
  context.restore();
  context.imageSmoothingEnabled = true;
  context.drawImage(picture(tile, tiles.mode), x, y, width, height);
  const { q0, q1, k0, k1 } = camera.seen();
  const least = 6;
  const frame = (from, to, all, side) => {
    const size = Math.max(least, ((to - from) / all) * side);
    return [clamp(((from + to) / 2 / all) * side - size / 2, 0, side - size), size];
  };
  const [fx, fw] = frame(k0, k1, camera.kvLen, width);
  const [fy, fh] = frame(q0, q1, camera.qLen, height);
  context.strokeStyle = ink("cross");
  context.lineWidth = 2;
  context.strokeRect(x + fx, y + fy, fw, fh);
}
