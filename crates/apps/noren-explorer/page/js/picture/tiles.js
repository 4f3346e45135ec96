// Tiles of a mask's picture: fetched when needed, kept in a cache, coloured for the theme.

import { el } from "../base/dom.js";
import { colour, onTheme } from "../base/theme.js";

/** The number of pixels along each side of a tile, at every level. At level `l`, a pixel shows `2^l` by `2^l` cells of the mask. */
export const SIDE = 256;
const KEPT = 384; // tiles; a third of a MiB each
const AT_ONCE = 4;
const AGAIN = [3000, 10_000, 30_000]; // ms until a failed tile is requested again, after the first failure, the second, ...
const FINAL = [408, 410, 507]; // after all of AGAIN, a tile that failed with one of these statuses is not requested again until the view changes

const kept = new Map(); // key -> tile, the oldest first

/**
 * Returns bits 0 and 1 of `byte`, the byte of one pixel of a tile. The value is 0 if the mask allows none of the pixel's cells, 1 if the
 * mask allows some of them, 2 if it allows all, and 3 if this is unknown.
 */
export const cover = (byte) => byte & 3;
export const planned = (byte) => (byte >> 2) & 3;
export const onlyThis = (byte) => (byte & 16) !== 0;
export const onlyOther = (byte) => (byte & 32) !== 0;
export const coverOther = (byte) => byte >> 6;

let palettes = null;
onTheme(() => {
  palettes = null;
  for (const tile of kept.values()) tile.bitmap = null;
});

/**
 * Returns the colours for all 256 values of a pixel's byte: as `[r, g, b]` in `colours`, and as 32-bit numbers for image data in `pixels`.
 * `mode` is the kind of picture: `cells`, `plan` or `difference`.
 */
export function palette(mode) {
  palettes ??= {};
  palettes[mode] ??= makePalette(mode);
  return palettes[mode];
}

function makePalette(mode) {
  const names = [
    "allowed",
    "some",
    "denied",
    "unknown",
    "unknown-stripe",
    "tile-allowed",
    "tile-denied",
    "tile-some",
    "only-this",
    "only-other",
    "only-each",
    "both",
    "both-some",
  ];
  const ink = Object.fromEntries(names.map((name) => [name, colour(name)]));
  const choose = { cells: ofCells, plan: ofPlan, difference: ofDifference }[mode];
  const packed = ([r, g, b]) => new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0];
  const colours = Array.from({ length: 256 }, (_, byte) => ink[choose(byte)]);
  return { colours, pixels: Uint32Array.from(colours, packed), stripe: packed(ink["unknown-stripe"]) };
}

const ofCells = (byte) => ["denied", "some", "allowed", "unknown"][cover(byte)];

function ofPlan(byte) {
  if (cover(byte) === 3) return "unknown";
  if (planned(byte) === 1) return ["tile-denied", "tile-some", "tile-allowed"][cover(byte)];
  return planned(byte) === 2 ? "allowed" : "denied";
}

function ofDifference(byte) {
  if (cover(byte) === 3 || coverOther(byte) === 3) return "unknown";
  if (onlyThis(byte) && onlyOther(byte)) return "only-each";
  if (onlyThis(byte)) return "only-this";
  if (onlyOther(byte)) return "only-other";
  return ["denied", "both-some", "both"][cover(byte)];
}

/**
 * Returns the tile as an image with one pixel for each byte of the tile, in the colours for `mode` (`cells`, `plan` or `difference`).
 * Pixels whose value is unknown are hatched.
 */
export function picture(tile, mode) {
  if (tile.bitmap && tile.mode === mode) return tile.bitmap;
  const { rows, cols, cells } = tile;
  const { pixels, stripe } = palette(mode);
  const image = new ImageData(cols, rows);
  const out = new Uint32Array(image.data.buffer);
  for (let i = 0; i < cells.length; i += 1) {
    const byte = cells[i];
    out[i] = cover(byte) === 3 && (Math.floor(i / cols) + (i % cols)) % 8 < 3 ? stripe : pixels[byte];
  }
  const surface = new OffscreenCanvas(cols, rows);
  surface.getContext("2d").putImageData(image, 0, 0);
  tile.bitmap = surface.transferToImageBitmap();
  tile.mode = mode;
  return tile.bitmap;
}

/** Returns the lowest level at which one tile covers the whole mask. At level `l`, a pixel of a tile shows `2^l` by `2^l` cells. */
export const topLevel = (qLen, kvLen) => Math.max(0, Math.ceil(Math.log2(Math.max(qLen, kvLen, 1) / SIDE)));

/**
 * The tiles of one mask for one pair of batch row and head. `source` is `{id, other, batch, head, plan, qLen, kvLen}`; `other` is the
 * identity of a second mask to compare with.
 */
export class Tiles {
  #api;
  #source;
  #onTile;
  #name;
  #running = new Map(); // key -> AbortController
  #failed = new Map(); // key -> {times, at, over, error}: failures, time of the next attempt, whether there is none
  #queue = [];
  #wanted = "";

  constructor(api, source, onTile) {
    this.#api = api;
    this.#source = source;
    this.#onTile = onTile;
    const { id, other, batch, head, plan } = source;
    this.#name = `${id} ${other ?? ""} ${batch} ${head} ${plan ? 1 : 0}`;
    this.top = topLevel(source.qLen, source.kvLen);
  }

  get mode() {
    if (this.#source.other) return "difference";
    return this.#source.plan ? "plan" : "cells";
  }

  /** Returns whether these tiles and the tiles `other` show the same masks, for the same batch row and head. */
  same = (other) => this.#name === other.#name;

  #key = (level, row, col) => `${this.#name} ${level} ${row} ${col}`;

  /** Returns a tile; undefined if the tile is not loaded. */
  get(level, row, col) {
    const key = this.#key(level, row, col);
    const tile = kept.get(key);
    if (tile) {
      kept.delete(key);
      kept.set(key, tile);
    }
    return tile;
  }

  /**
   * Returns the byte of the pixel that shows query `q` and key `k`, in the tile of level `level` (a pixel shows
   * `2^level` by `2^level` cells). Returns undefined if the tile is not loaded.
   */
  byte(level, q, k) {
    const at = (place) => Math.floor(place / (SIDE * 2 ** level));
    const tile = this.get(level, at(q), at(k));
    if (!tile) return undefined;
    const within = (place, first) => Math.floor((place - first) / 2 ** level);
    return tile.cells[within(q, tile.firstQuery) * tile.cols + within(k, tile.firstKey)];
  }

  /**
   * Requests the listed tiles `[level, row, col]` in the order of the list, and cancels requests for other tiles. `place` is the position
   * of the camera. A tile that failed too often is requested again only after the list of tiles or the place has changed.
   */
  want(tiles, place = null) {
    const now = performance.now();
    const wanted = new Map(tiles.map((at) => [this.#key(...at), at]));
    for (const [key, request] of this.#running) {
      if (wanted.has(key)) continue;
      request.abort();
      this.#running.delete(key); // the tile may be requested again before the abort ends
    }
    const looked = `${[...wanted.keys()].join()} ${place}`;
    if (looked !== this.#wanted) {
      this.#wanted = looked;
      for (const failure of this.#failed.values()) if (failure.over) this.#later(failure, now);
    }
    const due = (failure) => !failure || (!failure.over && failure.at <= now);
    this.#queue = [...wanted].filter(([key]) => !kept.has(key) && !this.#running.has(key) && due(this.#failed.get(key)));
    this.#next();
  }

  stop() {
    this.want([]);
  }

  /**
   * Returns `{count, error, over}` for the failed tiles among `tiles`: their number, the error of the last one, and in `over` true if none
   * of them is requested again. Returns null if no tile failed.
   */
  failures(tiles) {
    const keys = tiles.map((at) => this.#key(...at)).filter((key) => !kept.has(key));
    const found = keys.map((key) => this.#failed.get(key)).filter(Boolean);
    if (found.length === 0) return null;
    return { count: found.length, error: found.at(-1).error, over: found.every(({ over }) => over) };
  }

  /** Requests failed tiles again at once. */
  again() {
    this.#failed.clear();
    this.#wanted = "";
    this.#onTile(null);
  }

  /**
   * Allows one more request for a tile that failed too often. `failure` has the time of this request; at this time, the picture is drawn
   * again, which requests all missing tiles.
   */
  #later(failure, now) {
    failure.over = false;
    setTimeout(() => this.#onTile(null), Math.max(0, failure.at - now) + 50);
  }

  #next() {
    while (this.#running.size < AT_ONCE && this.#queue.length > 0) this.#fetch(...this.#queue.shift());
  }

  async #fetch(key, [level, row, col]) {
    const request = new AbortController();
    this.#running.set(key, request);
    try {
      const { id, other, batch, head, plan } = this.#source;
      const tile = await this.#api.tile(id, level, row, col, { batch, head, plan, other, signal: request.signal });
      this.#failed.delete(key);
      kept.set(key, tile);
      while (kept.size > KEPT) this.#drop();
      this.#onTile(null);
    } catch (error) {
      if (!request.signal.aborted) {
        const times = (this.#failed.get(key)?.times ?? 0) + 1;
        const wait = AGAIN[Math.min(times, AGAIN.length) - 1];
        const over = times > AGAIN.length && FINAL.includes(error.status);
        this.#failed.set(key, { times, at: performance.now() + wait, over, error });
        if (!over) setTimeout(() => this.#onTile(null), wait + 50);
        this.#onTile(times === 1 ? error : null); // reported once; a notice over the picture stays
      }
    } finally {
      if (this.#running.get(key) === request) this.#running.delete(key);
      this.#next();
    }
  }

  #drop() {
    const [key, tile] = kept.entries().next().value;
    tile.bitmap?.close();
    kept.delete(key);
  }
}

// Small pictures, drawn again when the theme changes.
const thumbnails = new Map();
onTheme(() => {
  for (const [canvas, paint] of thumbnails) {
    if (canvas.isConnected) paint();
    else thumbnails.delete(canvas);
  }
});

/**
 * Returns a canvas with a small picture of a whole mask, which is drawn when its tile arrives. `bound` is the answer of POST /api/masks.
 * Without a `label`, screen readers ignore the picture.
 */
export function thumbnail(api, bound, { batch = 0, head = 0, size = 96, label = "" } = {}) {
  const longest = Math.max(bound.q_len, bound.kv_len);
  const ratio = window.devicePixelRatio || 1;
  const side = (len) => Math.max(6, Math.round((size * len) / longest));
  const [width, height] = [side(bound.kv_len), side(bound.q_len)];
  const canvas = el("canvas", {
    class: "thumbnail", width: width * ratio, height: height * ratio, style: { width: `${width}px`, height: `${height}px` },
    ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }),
  });
  const level = topLevel(bound.q_len, bound.kv_len);
  api.tile(bound.id, level, 0, 0, { batch, head }).then(
    (tile) => {
      const paint = () => {
        const context = canvas.getContext("2d");
        context.imageSmoothingEnabled = tile.cols > canvas.width;
        context.drawImage(picture({ ...tile, bitmap: null }, "cells"), 0, 0, canvas.width, canvas.height);
      };
      for (const old of thumbnails.keys()) if (!old.isConnected) thumbnails.delete(old);
      thumbnails.set(canvas, paint);
      paint();
    },
    () => canvas.classList.add("missing"),
  );
  return canvas;
}
