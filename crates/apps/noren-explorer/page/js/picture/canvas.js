// The picture of a mask of any length, from the whole mask to single cells, for mouse, touch and keyboard.

import { Camera, clamp } from "./camera.js";
import { el, number, uid } from "../base/dom.js";
import { Glide, pointers } from "./gestures.js";
import { Notices } from "./notices.js";
import {
  DIGIT, drawBands, drawCells, drawCross, drawMap, drawMarks, drawRulers, levelFor, longestName, mapBox, tilesSeen,
} from "./paint.js";
import { onClose } from "../base/closing.js";
import { onTheme } from "../base/theme.js";
import { Tiles } from "./tiles.js";

/** The space around the picture for the rulers and the titles of the axes, in pixels. */
const GUTTER = { left: 62, top: 44, right: 14, bottom: 14 };
const FRAMES = 1200;
const PAN = 80; // pixels that an arrow key pans
const SEEN = 5; // pixels of a cell that can be seen without enlarging
const NEARER = 1.6; // zoom factor of a key press

/**
 * A picture of a mask that the user can pan, zoom and read cell by cell. A cell is `{q, k}`. `onHover(cell or null)` is called when the
 * pointer moves, `onCursor(cell)` when the keyboard moves the cursor, `onPick(cell)` on a click or Enter, and `onCamera(place or null)`
 * after panning and zooming. `onError(error)` is called when a tile fails for the first time; while tiles fail, a notice stays over the
 * picture.
 *
 * `show(source)` takes `{id, qLen, kvLen, batch, head, plan, other, tokens: {queries, keys}, bands, marks}`. All fields after `kvLen` are
 * optional: `plan` is true to show the tiles of the plan, `other` is the id of a mask to compare with, `tokens` has the words of queries
 * and keys, `bands` are ranges to mark beside the picture, and `marks` are cells to mark. When everything in the window is drawn at full
 * resolution, the attribute `data-settled` of the element is the id of the mask.
 */
export class MaskCanvas {
  #api;
  #label;
  #on;
  #canvas = el("canvas", { "aria-hidden": "true" });
  #context = this.#canvas.getContext("2d", { alpha: false });
  #notices = new Notices(() => this.redraw(), () => this.#tiles?.again());
  #source = null;
  #tiles = null;
  #before = null; // the tiles of the previous mask, shown until the new tiles arrive
  #cursor = null;
  #hovered = null;
  #pinned = null;
  #place = null; // requested before there was a mask
  #outdated = ""; // the reason why the picture is not the requested one
  #due = 0;
  #ratio = 1;
  #gone = false;
  #resized = new ResizeObserver(() => this.#measure());

  camera = new Camera();
  #glide = new Glide(this.camera, () => this.#moved());
  /** The durations of the most recent drawings of the picture, in milliseconds. */
  frames = [];
  /** The texts of the rulers in the most recent drawing, for tests. */
  labels = [];

  constructor({ api, label, ...on }) {
    this.#api = api;
    this.#label = label;
    this.#on = on;
    this.element = this.#build();
    this.element.picture = this; // for the console, and for tests
    pointers(this.element, this.camera, {
      hover: (cell) => this.#hover(cell),
      moved: () => this.#moved(),
      cell: (x, y) => (this.#source && !this.#mapAt(x, y) ? this.camera.cellAt(x, y) : null),
      pick: (cell) => this.#pick(cell),
      grab: (x, y) => this.#grab(x, y),
    });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("focus", () => this.redraw());
    this.element.addEventListener("blur", () => this.redraw());
    this.#resized.observe(this.element);
    onClose(onTheme(() => this.redraw()));
    onClose(() => this.#close());
  }

  #build() {
    const describedBy = uid("keys");
    return el(
      "div",
      {
        class: "picture",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "mask",
        "aria-label": this.#label,
        "aria-describedby": describedBy,
      },
      this.#canvas,
      this.#notices.elements,
      el(
        "span",
        { class: "hidden-text", id: describedBy },
        "Arrow keys move the cell cursor, Shift and arrows pan, plus and minus zoom, 0 shows everything, Enter pins the explanation.",
      ),
    );
  }

  redraw() {
    if (!this.#due && !this.#gone) this.#due = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.#due);
    this.#due = 0;
    const start = performance.now();
    this.#context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    this.#context.fillStyle = getComputedStyle(this.element).backgroundColor;
    this.#context.fillRect(0, 0, this.#canvas.width, this.#canvas.height);
    if (this.#tiles) {
      const level = levelFor(this.camera, this.#tiles.top, this.#ratio);
      const complete = this.#fetch(level);
      this.#paint(level);
      this.element.dataset.settled = complete ? this.#source.id : "";
      // A finger scrolls the page while the whole mask is visible.
      this.element.style.setProperty("touch-action", this.camera.fitted ? "pan-y" : "none");
    }
    this.frames.push(performance.now() - start);
    if (this.frames.length > FRAMES) this.frames.shift();
  }

  /**
   * Requests the tiles of `level` in the window, and shows a notice while tiles are missing. Returns whether all tiles in the window are
   * loaded.
   */
  #fetch(level) {
    const seen = tilesSeen(this.camera, level);
    this.#tiles.want([[this.#tiles.top, 0, 0], ...seen], this.camera.place);
    const complete = seen.every((at) => this.#tiles.get(...at));
    if (complete || this.#notices.late) this.#before = null; // cells of the previous mask must not stay
    this.#notices.wait(complete);
    this.#notices.show(this.#outdated, complete, this.#tiles.failures(seen));
    this.element.toggleAttribute("data-outdated", this.#outdated !== "");
    return complete;
  }

  #paint(level) {
    const { bands, tokens, marks } = this.#source;
    const [context, camera, pinned] = [this.#context, this.camera, this.#pinned];
    drawCells(context, camera, this.#tiles, this.#before, level);
    if (bands) drawBands(context, camera, bands);
    this.labels = drawRulers(context, camera, tokens);
    if (marks) drawMarks(context, camera, marks);
    drawMap(context, camera, this.#tiles);
    const names = (cell) => cell && tokens && { q: tokens.queries?.[cell.q], k: tokens.keys?.[cell.k] };
    const cell = this.#hovered ?? (document.activeElement === this.element ? this.#cursor : null);
    if (pinned && !(cell && cell.q === pinned.q && cell.k === pinned.k))
      drawCross(context, camera, pinned, { pinned: true, label: names(pinned) });
    drawCross(context, camera, cell, { label: names(cell) });
  }

  #measure() {
    const { width, height } = this.element.getBoundingClientRect();
    this.#ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * this.#ratio), Math.round(height * this.#ratio)];
    if (this.#canvas.width !== w || this.#canvas.height !== h) Object.assign(this.#canvas, { width: w, height: h });
    const tokens = this.#source?.tokens;
    const characters = Math.max(number((this.#source?.qLen ?? 1) - 1).length, tokens?.queries ? longestName(tokens.queries) : 0);
    const slant = tokens?.keys ? DIGIT * longestName(tokens.keys) : 0; // names of keys are written at 60 degrees
    const left = Math.max(GUTTER.left, 30 + DIGIT * characters);
    const top = Math.max(GUTTER.top, 30 + 0.87 * slant);
    const right = Math.max(GUTTER.right, 6 + 0.5 * slant);
    this.camera.window(left, top, width - left - right, height - top - GUTTER.bottom);
    this.redraw();
  }

  #moved() {
    this.redraw();
    this.#on.onCamera?.(this.camera.place);
  }

  /** Returns the rectangle of the small map if the pixel (`x`, `y`) is on it, or null. The cells under the map are hidden. */
  #mapAt(x, y) {
    const box = this.#source && mapBox(this.camera);
    if (!box || x < box.x - 4 || y < box.y - 4 || x > box.x + box.width + 4 || y > box.y + box.height + 4) return null;
    return box;
  }

  /**
   * If the pixel (`x`, `y`) is on the small map, returns a function that moves the camera to the position of another pixel on the map.
   * Otherwise returns null.
   */
  #grab(x, y) {
    const box = this.#mapAt(x, y);
    if (!box) return null;
    return (toX, toY) => {
      const { camera } = this;
      camera.k = ((toX - box.x) / box.width) * camera.kvLen;
      camera.q = ((toY - box.y) / box.height) * camera.qLen;
      camera.settle();
    };
  }

  #hover(cell) {
    if (cell?.q === this.#hovered?.q && cell?.k === this.#hovered?.k) return;
    this.#hovered = cell;
    this.redraw();
    this.#on.onHover?.(cell);
  }

  #pick(cell) {
    this.#cursor = cell;
    this.redraw();
    this.#on.onPick?.(cell);
  }

  #keys = {
    ArrowUp: (event) => this.#arrow(event, -1, 0),
    ArrowDown: (event) => this.#arrow(event, 1, 0),
    ArrowLeft: (event) => this.#arrow(event, 0, -1),
    ArrowRight: (event) => this.#arrow(event, 0, 1),
    Home: () => this.#moveCursor(0, -this.camera.kvLen),
    End: () => this.#moveCursor(0, this.camera.kvLen),
    "+": () => this.zoom(NEARER),
    "=": () => this.zoom(NEARER),
    "-": () => this.zoom(1 / NEARER),
    0: () => this.fit(),
    Enter: () => this.#cursor && this.#on.onPick?.(this.#cursor),
  };

  #key(event) {
    const act = !event.ctrlKey && !event.metaKey && !event.altKey && this.#source && this.#keys[event.key];
    if (!act) return;
    event.preventDefault();
    act(event);
  }

  #arrow({ shiftKey }, down, across) {
    if (!shiftKey) return this.#moveCursor(down, across);
    this.camera.pan(-PAN * across, -PAN * down);
    return this.#moved();
  }

  #moveCursor(dq, dk) {
    const { camera } = this;
    const step = Math.max(1, 2 ** levelFor(camera, this.#tiles.top, this.#ratio));
    const from = this.#cursor;
    this.#cursor = from
      ? { q: clamp(from.q + dq * step, 0, camera.qLen - 1), k: clamp(from.k + dk * step, 0, camera.kvLen - 1) }
      : (this.#hovered ?? { q: Math.floor(camera.q), k: Math.floor(camera.k) });
    this.#hovered = null;
    camera.reveal(this.#cursor.q, this.#cursor.k);
    this.#moved();
    this.#on.onCursor?.(this.#cursor);
  }

  /** Changes the camera so that the whole mask is visible. */
  fit() {
    this.camera.fit();
    this.#moved();
  }

  /** Zooms by `factor`. If the keyboard cursor is set, the cell at the cursor does not move. */
  zoom(factor) {
    const middle = this.#cursor ? [this.camera.x(this.#cursor.k + 0.5), this.camera.y(this.#cursor.q + 0.5)] : [];
    this.#glide.zoom(factor, ...middle);
  }

  /** Shows another mask. The camera does not move if the numbers of queries and keys are unchanged. */
  show(next) {
    const old = this.#source;
    const resizing = !old || old.qLen !== next.qLen || old.kvLen !== next.kvLen || Boolean(old.tokens) !== Boolean(next.tokens);
    this.#source = { batch: 0, head: 0, plan: false, other: null, ...next };
    const changed = this.#replaceTiles(resizing);
    if (resizing) this.#resize();
    const { qLen, kvLen } = this.#source;
    this.element.setAttribute("aria-label", `${this.#label}: ${number(qLen)} queries by ${number(kvLen)} keys`);
    if (changed)
      this.#draw(); // draws at once, so that tiles are requested one frame earlier
    else this.redraw();
  }

  /**
   * Replaces the tiles if the picture shows another mask, batch row or head than before. If `resizing` is true, the picture has another
   * size and the old tiles disappear at once; otherwise they stay visible until the new tiles arrive. Returns whether the tiles were
   * replaced.
   */
  #replaceTiles(resizing) {
    const tiles = new Tiles(this.#api, this.#source, (error) => {
      if (error) this.#on.onError?.(error);
      this.redraw();
    });
    if (this.#tiles?.same(tiles)) return false;
    this.#tiles?.stop();
    this.#before = resizing ? null : (this.#before ?? this.#tiles);
    this.#tiles = tiles;
    this.#notices.reset();
    this.element.dataset.settled = "";
    return true;
  }

  #resize() {
    this.camera.size(this.#source.qLen, this.#source.kvLen);
    this.camera.fitted = true;
    this.#cursor = null;
    this.#hovered = null;
    this.#measure();
    if (this.#place) this.camera.place = this.#place;
  }

  /**
   * Sets `words`, the reason why the picture does not show the mask in the editor. An empty `words` means that the picture is up to date.
   */
  outdate(words) {
    if (this.#outdated === words) return;
    this.#outdated = words;
    this.redraw();
  }

  /** Pins a cell: the page keeps showing the explanation of this cell. Null removes the pin. */
  pin(cell) {
    this.#pinned = cell;
    if (cell && !this.#cursor) this.#cursor = cell;
    this.redraw();
  }

  /**
   * Moves the camera to a place `[query, key, keys]`: the position in the middle of the picture, and the number of keys that fit into its
   * width. Null shows the whole mask.
   */
  go(to) {
    this.#place = to;
    if (this.#source && JSON.stringify(this.camera.place) !== JSON.stringify(to)) {
      this.camera.place = to;
      this.redraw();
    }
  }

  /** Moves the camera to a cell and enlarges the cell. */
  jump({ q, k }) {
    this.camera.place = [q + 0.5, k + 0.5, this.camera.width / 28];
    this.#cursor = { q, k };
    this.#moved();
    this.#on.onCursor?.(this.#cursor);
  }

  /** Moves the camera so that a cell is visible, and enlarges the cell if the cells are too small to see. */
  visit(cell) {
    if (this.camera.scale < SEEN) return this.jump(cell);
    this.#cursor = cell;
    this.camera.reveal(cell.q, cell.k);
    this.#moved();
    return this.#on.onCursor?.(cell);
  }

  cursor() {
    return this.#cursor;
  }

  /**
   * Returns `{level, byte}` for a cell: the byte of the pixel that shows the cell, in the loaded tile with the lowest level. Returns null
   * if no tile with this cell is loaded.
   */
  cell(q, k) {
    for (let level = 0; this.#tiles && level <= this.#tiles.top; level += 1) {
      const byte = this.#tiles.byte(level, q, k);
      if (byte !== undefined) return { level, byte };
    }
    return null;
  }

  #close() {
    this.#gone = true;
    this.#notices.reset();
    cancelAnimationFrame(this.#due);
    this.#glide.stop();
    this.#resized.disconnect();
    this.#tiles?.stop();
  }
}
