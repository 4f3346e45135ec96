// The picture of a mask: any length, from everything down to single cells, by mouse, touch or keyboard.

import { Camera } from "./camera.js";
import { el, number, plural, uid } from "./dom.js";
import { drawBands, drawCells, drawCross, drawMap, drawMarks, drawRulers, levelFor, tilesSeen } from "./paint.js";
import { onTheme } from "./theme.js";
import { Tiles } from "./tiles.js";

const GUTTER = { left: 62, top: 34, right: 14, bottom: 14 };
const GUTTER_TOKENS = { ...GUTTER, left: 84, top: 66 };
const DIGIT = 7.3; // pixels that a character beside the picture takes
const PATIENCE = 120; // ms that the picture of the mask before stays while the new one is fetched
const CLICK = 4; // pixels that a pointer may move and still have clicked
const FRAMES = 1200;

const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * Makes the picture. `onHover(cell or null)` as the pointer moves, `onCursor(cell)` as the keyboard moves the cursor, `onPick(cell)` on a
 * click or Enter, `onCamera(place or null)` after panning and zooming, `onError(error)` where a tile does not come for the first time; a
 * line over the picture says it as long as it lasts. A cell is `{q, k}`.
 *
 * `show(source)` takes `{id, qLen, kvLen, batch, head, plan, other, tokens: {queries, keys}, bands, marks}`; what is left out is absent.
 * The element has `data-settled` with the mask's id once everything in the window is drawn as fine as it should be.
 */
export function createCanvas({ api, label, onHover, onCursor, onPick, onCamera, onError }) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const status = el("p", { class: "picture-status", role: "status", hidden: true });
  const veil = el("p", { class: "picture-veil", role: "status", hidden: true });
  const describedBy = uid("keys");
  const element = el(
    "div",
    {
      class: "picture",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "mask",
      "aria-label": label,
      "aria-describedby": describedBy,
    },
    canvas,
    veil,
    status,
    el(
      "span",
      { class: "hidden-text", id: describedBy },
      "Arrow keys move the cell cursor, Shift and arrows pan, plus and minus zoom, 0 shows everything, Enter pins the explanation.",
    ),
  );
  const context = canvas.getContext("2d", { alpha: false });
  const camera = new Camera();
  const frames = [];
  let source = null;
  let tiles = null;
  let before = null; // what was shown until the tiles of the new mask are here
  let cursor = null;
  let hovered = null;
  let pinned = null;
  let due = 0;
  let ratio = 1;
  let place = null; // asked for before there was a mask
  let gone = false;
  let outdated = ""; // why what is shown is not what is asked for
  let late = false; // whether pieces are missing for longer than anybody waits without a word
  let patience = 0;

  function redraw() {
    if (!due && !gone) due = requestAnimationFrame(draw);
  }

  function draw() {
    cancelAnimationFrame(due);
    due = 0;
    const start = performance.now();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = getComputedStyle(element).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (tiles) {
      const level = levelFor(camera, tiles.top, ratio);
      const seen = tilesSeen(camera, level);
      tiles.want([[tiles.top, 0, 0], ...seen], camera.place);
      const complete = seen.every((at) => tiles.get(...at));
      if (complete || late) before = null; // another mask's cells do not stay
      awaitPieces(complete);
      const failures = tiles.failures(seen);
      tell(failures);
      veiled(outdated || (late && !complete && !failures ? "Drawing …" : ""));
      drawCells(context, camera, tiles, before, level);
      if (source.bands) drawBands(context, camera, source.bands);
      drawRulers(context, camera, source.tokens);
      if (source.marks) drawMarks(context, camera, source.marks);
      drawMap(context, camera, tiles);
      const cell = hovered ?? (document.activeElement === element ? cursor : null);
      if (pinned && !(cell && cell.q === pinned.q && cell.k === pinned.k))
        drawCross(context, camera, pinned, { pinned: true, label: names(pinned) });
      drawCross(context, camera, cell, { label: names(cell) });
      element.dataset.settled = complete ? source.id : "";
      // A finger scrolls the page while there is nothing to pan.
      element.style.setProperty("touch-action", camera.fitted ? "pan-y" : "none");
    }
    frames.push(performance.now() - start);
    if (frames.length > FRAMES) frames.shift();
  }

  // Counts the time since pieces began to be missing.
  function awaitPieces(complete) {
    if (!complete && patience) return;
    clearTimeout(patience);
    patience = 0;
    if (complete) late = false;
    else
      patience = setTimeout(() => {
        late = true;
        redraw();
      }, PATIENCE);
  }

  // Says over the picture that it is not, or not yet, the picture of what is asked for.
  function veiled(words) {
    if (veil.textContent === words) return;
    veil.textContent = words;
    veil.hidden = words === "";
    if (outdated) element.dataset.outdated = "";
    else delete element.dataset.outdated;
  }

  // What cannot be drawn, and whether it is asked for again.
  function tell(failures) {
    const said = failures
      ? `${plural(failures.count, "piece")} of this picture cannot be drawn: ${failures.error.message.replace(/\.$/, "")}. ${
          failures.over ? "Not asked for again until you look elsewhere." : "Asked for again soon."
        }`
      : "";
    if (status.textContent === said) return;
    status.textContent = said;
    status.hidden = said === "";
  }

  const names = (cell) =>
    cell && source.tokens ? { q: source.tokens.queries?.[cell.q], k: source.tokens.keys?.[cell.k] } : null;

  function measure() {
    const { width, height } = element.getBoundingClientRect();
    ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    const gutter = source?.tokens ? GUTTER_TOKENS : GUTTER;
    const left = Math.max(gutter.left, 14 + DIGIT * number((source?.qLen ?? 1) - 1).length);
    camera.window(left, gutter.top, width - left - gutter.right, height - gutter.top - gutter.bottom);
    redraw();
  }

  const moved = () => {
    redraw();
    onCamera?.(camera.place);
  };

  // A zoom by keyboard glides, unless motion is unwanted; `to` is what remains of the factor.
  let gliding = 0;
  function glide(factor, x, y) {
    cancelAnimationFrame(gliding);
    if (still()) {
      camera.zoom(factor, x, y);
      return moved();
    }
    let left = Math.log(factor);
    const next = () => {
      const part = Math.abs(left) < 0.02 ? left : left * 0.3;
      left -= part;
      camera.zoom(Math.exp(part), x, y);
      moved();
      if (left) gliding = requestAnimationFrame(next);
    };
    next();
  }

  function hover(cell) {
    if (cell?.q === hovered?.q && cell?.k === hovered?.k) return;
    hovered = cell;
    redraw();
    onHover?.(cell);
  }

  pointers(element, camera, {
    hover,
    moved,
    cell: (x, y) => (source ? camera.cellAt(x, y) : null),
    pick(cell) {
      cursor = cell;
      redraw();
      onPick?.(cell);
    },
  });

  function moveCursor(dq, dk) {
    const step = Math.max(1, 2 ** levelFor(camera, tiles.top, ratio));
    const from = cursor ?? hovered ?? { q: Math.floor(camera.q), k: Math.floor(camera.k) };
    const clamp = (value, length) => Math.min(Math.max(value, 0), length - 1);
    cursor = cursor ? { q: clamp(from.q + dq * step, camera.qLen), k: clamp(from.k + dk * step, camera.kvLen) } : from;
    hovered = null;
    camera.reveal(cursor.q, cursor.k);
    moved();
    onCursor?.(cursor);
  }

  const middle = () => (cursor ? [camera.x(cursor.k + 0.5), camera.y(cursor.q + 0.5)] : []);
  const keys = {
    ArrowUp: (event) => (event.shiftKey ? (camera.pan(0, 80), moved()) : moveCursor(-1, 0)),
    ArrowDown: (event) => (event.shiftKey ? (camera.pan(0, -80), moved()) : moveCursor(1, 0)),
    ArrowLeft: (event) => (event.shiftKey ? (camera.pan(80, 0), moved()) : moveCursor(0, -1)),
    ArrowRight: (event) => (event.shiftKey ? (camera.pan(-80, 0), moved()) : moveCursor(0, 1)),
    Home: () => moveCursor(0, -camera.kvLen),
    End: () => moveCursor(0, camera.kvLen),
    "+": () => glide(1.6, ...middle()),
    "=": () => glide(1.6, ...middle()),
    "-": () => glide(1 / 1.6, ...middle()),
    0: () => fit(),
    Enter: () => cursor && onPick?.(cursor),
  };
  element.addEventListener("keydown", (event) => {
    const act = !event.ctrlKey && !event.metaKey && !event.altKey && source && keys[event.key];
    if (!act) return;
    event.preventDefault();
    act(event);
  });
  element.addEventListener("focus", redraw);
  element.addEventListener("blur", redraw);

  function fit() {
    camera.fit();
    moved();
  }

  const resized = new ResizeObserver(measure);
  resized.observe(element);
  const untheme = onTheme(redraw);

  const picture = {
    element,
    redraw,
    fit,

    /** Shows a mask; where its sizes are those of the one shown, the camera stays. */
    show(next) {
      let changed = false;
      const resizing =
        !source || source.qLen !== next.qLen || source.kvLen !== next.kvLen || Boolean(source.tokens) !== Boolean(next.tokens);
      source = { batch: 0, head: 0, plan: false, other: null, ...next };
      const now = new Tiles(api, source, (error) => {
        if (error) onError?.(error);
        redraw();
      });
      if (!tiles?.same(now)) {
        tiles?.stop();
        before = resizing ? null : (before ?? tiles);
        tiles = now;
        clearTimeout(patience);
        patience = 0;
        late = false;
        element.dataset.settled = "";
        changed = true;
      }
      if (resizing) {
        camera.size(source.qLen, source.kvLen);
        camera.fitted = true;
        cursor = null;
        hovered = null;
        measure();
        if (place) camera.place = place;
      }
      element.setAttribute("aria-label", `${label}: ${number(source.qLen)} queries by ${number(source.kvLen)} keys`);
      if (changed)
        draw(); // at once: its tiles are asked for a frame earlier
      else redraw();
    },

    /** Says why what is shown is not the picture of what is asked for; an empty text: it is. */
    outdate(words) {
      if (outdated === words) return;
      outdated = words;
      redraw();
    },

    /** The cell whose explanation stays. */
    pin(cell) {
      pinned = cell;
      if (cell && !cursor) cursor = cell;
      redraw();
    },

    /** Goes to a place `[query, key, keys across]`; null shows everything. */
    go(to) {
      place = to;
      if (source && JSON.stringify(camera.place) !== JSON.stringify(to)) {
        camera.place = to;
        redraw();
      }
    },

    /** Shows a cell large. */
    jump({ q, k }) {
      camera.place = [q + 0.5, k + 0.5, camera.width / 28];
      cursor = { q, k };
      moved();
      onCursor?.(cursor);
    },

    zoom: (factor) => glide(factor, ...middle()),
    cursor: () => cursor,
    camera,

    /** The byte of a cell as the finest tile here has it: `{level, byte}`; null where no tile is here. */
    cell(q, k) {
      for (let level = 0; tiles && level <= tiles.top; level += 1) {
        const span = 256 * 2 ** level;
        const tile = tiles.get(level, Math.floor(q / span), Math.floor(k / span));
        if (tile)
          return {
            level,
            byte: tile.cells[
              Math.floor((q - tile.firstQuery) / 2 ** level) * tile.cols + Math.floor((k - tile.firstKey) / 2 ** level)
            ],
          };
      }
      return null;
    },

    /** Milliseconds that each of the last frames took to draw. */
    frames,

    destroy() {
      gone = true;
      clearTimeout(patience);
      cancelAnimationFrame(due);
      cancelAnimationFrame(gliding);
      resized.disconnect();
      untheme();
      tiles?.stop();
    },
  };
  element.picture = picture; // for the console, and for tests
  return picture;
}

/** Mouse, pen and fingers: hover, click, drag, wheel, pinch. */
function pointers(element, camera, { hover, moved, pick, cell }) {
  const down = new Map(); // pointer -> {x, y}
  let start = null; // where the only pointer went down, while it may still be a click

  const at = (event) => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spread = () => {
    const [a, b] = [...down.values()];
    return { size: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    down.set(event.pointerId, at(event));
    start = down.size === 1 ? at(event) : null;
  });
  element.addEventListener("pointermove", (event) => {
    const now = at(event);
    const last = down.get(event.pointerId);
    if (!last) return hover(cell(now.x, now.y));
    if (start && Math.hypot(now.x - start.x, now.y - start.y) < CLICK) return undefined;
    start = null;
    if (down.size === 2) {
      const from = spread();
      down.set(event.pointerId, now);
      const to = spread();
      camera.zoom(to.size / Math.max(1, from.size), from.x, from.y);
      camera.pan(to.x - from.x, to.y - from.y);
    } else {
      down.set(event.pointerId, now);
      camera.pan(now.x - last.x, now.y - last.y);
    }
    element.classList.add("dragged");
    hover(null);
    return moved();
  });
  const up = (event) => {
    if (!down.delete(event.pointerId)) return;
    element.classList.remove("dragged");
    const found = start && event.type === "pointerup" ? cell(start.x, start.y) : null;
    start = null;
    if (found) pick(found);
  };
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", () => hover(null));
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 20 : event.deltaMode === 2 ? 400 : 1;
      const { x, y } = at(event);
      if (event.shiftKey) camera.pan(-(event.deltaX || event.deltaY) * unit, 0);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) camera.pan(-event.deltaX * unit, -event.deltaY * unit);
      else camera.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.002)), x, y);
      moved();
      hover(cell(x, y));
    },
    { passive: false },
  );
}
