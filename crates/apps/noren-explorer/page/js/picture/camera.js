// The camera of a picture: the cell in the middle, and the pixels of a cell.

/** The maximum width and height of a cell, in page pixels. */
const LARGEST = 64;

/**
 * A camera over a mask of `qLen` by `kvLen` cells. The mask is visible through a window of `width` by `height` pixels, whose upper left
 * corner is at (`left`, `top`). The position (`q`, `k`) is in the middle of the window. A key is `scale` pixels wide, and a query is `scale
 * * stretch` pixels high: without `stretch`, a mask of few queries and many keys would be too thin to see.
 */
export class Camera {
  constructor() {
    this.q = 0;
    this.k = 0;
    this.scale = 1;
    this.stretch = 1;
    this.fitted = true;
    this.width = 1;
    this.size(1, 1);
    this.window(0, 0, 1, 1);
  }

  /** Sets the numbers of queries and keys when another mask is shown. */
  size(qLen, kvLen) {
    this.qLen = qLen;
    this.kvLen = kvLen;
  }

  /** Sets the rectangle of the canvas, in page pixels, in which the picture is drawn. */
  window(left, top, width, height) {
    if (!this.fitted) this.scale *= Math.max(1, width) / this.width; // the number of keys across stays
    Object.assign(this, { left, top, width: Math.max(1, width), height: Math.max(1, height) });
    const fitting = Math.min(this.width / this.kvLen, LARGEST);
    const tall = Math.min(this.height / this.qLen, LARGEST);
    this.stretch =
      this.kvLen > 12 * this.qLen
        ? clamp(tall / 4 / fitting, 1, 4096)
        : this.qLen > 12 * this.kvLen
          ? clamp((tall * 4) / fitting, 1 / 4096, 1)
          : 1;
    this.smallest = Math.min(fitting, this.height / this.qLen / this.stretch, LARGEST);
    this.largest = Math.max(LARGEST / Math.max(1, this.stretch), this.smallest);
    if (this.fitted) this.fit();
    else this.settle();
  }

  fit() {
    this.fitted = true;
    this.scale = this.smallest;
    this.q = this.qLen / 2;
    this.k = this.kvLen / 2;
  }

  get down() {
    return this.scale * this.stretch;
  }

  /**
   * Returns the x coordinate of key `k` on the canvas, in page pixels. `y(q)` returns the y coordinate of query `q`. `keyAt(x)` and
   * `queryAt(y)` are the inverse functions: the key at an x coordinate, and the query at a y coordinate.
   */
  x = (k) => this.left + this.width / 2 + (k - this.k) * this.scale;
  y = (q) => this.top + this.height / 2 + (q - this.q) * this.down;
  keyAt = (x) => this.k + (x - this.left - this.width / 2) / this.scale;
  queryAt = (y) => this.q + (y - this.top - this.height / 2) / this.down;

  /** Returns the range of visible cells: the first query `q0` and key `k0`, and the query `q1` and key `k1` after the last visible cell. */
  seen() {
    return {
      q0: clamp(Math.floor(this.queryAt(this.top)), 0, this.qLen),
      q1: clamp(Math.ceil(this.queryAt(this.top + this.height)), 0, this.qLen),
      k0: clamp(Math.floor(this.keyAt(this.left)), 0, this.kvLen),
      k1: clamp(Math.ceil(this.keyAt(this.left + this.width)), 0, this.kvLen),
    };
  }

  /** Returns the visible rectangle of the mask on the canvas as `[left, top, right, bottom]`, in page pixels. */
  box() {
    return [
      Math.max(this.left, this.x(0)),
      Math.max(this.top, this.y(0)),
      Math.min(this.left + this.width, this.x(this.kvLen)),
      Math.min(this.top + this.height, this.y(this.qLen)),
    ];
  }

  /** Returns the cell under the pixel (`x`, `y`). Returns null if the pixel is outside of the mask. */
  cellAt(x, y) {
    const [q, k] = [Math.floor(this.queryAt(y)), Math.floor(this.keyAt(x))];
    const inside = x >= this.left && y >= this.top && x <= this.left + this.width && y <= this.top + this.height;
    return inside && q >= 0 && k >= 0 && q < this.qLen && k < this.kvLen ? { q, k } : null;
  }

  /** Zooms by `factor`. The position of the mask under the pixel (`x`, `y`) does not move. */
  zoom(factor, x = this.left + this.width / 2, y = this.top + this.height / 2) {
    const [q, k] = [this.queryAt(y), this.keyAt(x)];
    this.scale = clamp(this.scale * factor, this.smallest, this.largest);
    this.fitted = this.scale <= this.smallest * 1.0001;
    this.k = k - (x - this.left - this.width / 2) / this.scale;
    this.q = q - (y - this.top - this.height / 2) / this.down;
    this.settle();
  }

  /** Moves the picture by `dx` and `dy` pixels. */
  pan(dx, dy) {
    this.k -= dx / this.scale;
    this.q -= dy / this.down;
    this.settle();
  }

  /** Moves the picture by the smallest distance that brings a cell, with a margin of up to two cells, into the window. */
  reveal(q, k) {
    const margin = 2;
    const [across, below] = [this.width / this.scale / 2, this.height / this.down / 2];
    this.k = clamp(this.k, k + 1 + Math.min(margin, across / 2) - across, k - Math.min(margin, across / 2) + across);
    this.q = clamp(this.q, q + 1 + Math.min(margin, below / 2) - below, q - Math.min(margin, below / 2) + below);
    this.settle();
  }

  /**
   * The view of the camera as `[query, key, keys]`: the position in the middle of the picture, and the number of keys that fit into its
   * width. Null if the whole mask is visible. The value does not depend on the size of the window.
   */
  get place() {
    return this.fitted ? null : [round(this.q), round(this.k), round(this.width / this.scale)];
  }

  set place(place) {
    if (!place) return this.fit();
    this.fitted = false;
    [this.q, this.k] = place;
    this.scale = clamp(this.width / Math.max(place[2], 1e-9), this.smallest, this.largest);
    this.settle();
  }

  settle() {
    this.scale = clamp(this.scale, this.smallest, this.largest);
    this.k = within(this.k, this.kvLen, this.width / this.scale);
    this.q = within(this.q, this.qLen, this.height / this.down);
  }
}

export const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

// A mask smaller than the window is centred; a larger one fills the window.
const within = (middle, length, seen) => (length <= seen ? length / 2 : clamp(middle, seen / 2, length - seen / 2));

const round = (value) => Number(value.toPrecision(9));
