// What the drawings on a canvas have in common: one frame at a time, drawn again when the room changes, as sharp as the screen.

/** Pixels of the screen for one of the page; beyond so many nobody sees a difference. */
const SHARPEST = 3;

/** Drawings say `draw()`; it is called once before the next frame, however often `redraw()` was asked for. */
export class Drawing {
  #frame = 0;
  #resized = new ResizeObserver(() => this.redraw());

  /** `space` is the element whose size the drawing follows. */
  constructor(canvas, space = canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.#resized.observe(space);
  }

  redraw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.draw());
  }

  /** Makes the canvas so many pixels of the page large; from then on the context's unit is such a pixel. */
  size(width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, SHARPEST);
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    // Setting a size clears the canvas and costs, even where it is the same.
    if (this.canvas.width !== wide) this.canvas.width = wide;
    if (this.canvas.height !== high) this.canvas.height = high;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
  }

  close() {
    this.#resized.disconnect();
    cancelAnimationFrame(this.#frame);
  }
}
