// The common base of the other drawings on a canvas: one frame at a time, redraws after changes of size and theme, and the screen's resolution.

import { onClose } from "../base/closing.js";
import { onTheme } from "../base/theme.js";

/** The maximum number of screen pixels per page pixel. A finer drawing would not be visible. */
const SHARPEST = 3;

/**
 * The base class of drawings on a canvas. Subclasses define `draw()`. After any number of calls of `redraw()`, `draw()` is called once
 * before the browser's next repaint.
 */
export class Drawing {
  #frame = 0;
  #resized = new ResizeObserver(() => this.redraw());

  /** The canvas is drawn again when the size of the element `space` changes. */
  constructor(canvas, space = canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.#resized.observe(space);
    onClose(onTheme(() => this.redraw()));
    onClose(() => {
      this.#resized.disconnect();
      cancelAnimationFrame(this.#frame);
    });
  }

  redraw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.draw());
  }

  /** Sets the size of the canvas in page pixels. Coordinates of the drawing context are then page pixels too. */
  size(width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, SHARPEST);
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    // Setting a size clears the canvas and takes time, even if the size does not change.
    if (this.canvas.width !== wide) this.canvas.width = wide;
    if (this.canvas.height !== high) this.canvas.height = high;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
  }
}

/** Returns `text` without the end that is wider than `wide` pixels. */
export function clip(context, text, wide) {
  if (context.measureText(text).width <= wide) return text;
  let end = text.length;
  while (end > 1 && context.measureText(text.slice(0, end) + "…").width > wide) end -= 1;
  return text.slice(0, end) + "…";
}

/** Calls `draw()`, of which only the part in a rectangle is visible. */
export function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

/** Writes a text that begins at a point, turned by `angle`. */
export function turned(context, text, x, y, angle) {
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  context.textAlign = "left";
  context.fillText(text, 0, 0);
  context.restore();
}

/** Fills a disc. */
export function disc(context, x, y, radius, fill) {
  context.fillStyle = fill;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
