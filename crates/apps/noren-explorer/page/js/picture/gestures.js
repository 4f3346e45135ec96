// Movements of a picture by mouse, pen, fingers and wheel, and by an animated zoom.

const CLICK = 4; // maximum movement of a pointer in a click, in pixels

const still = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Zooms a camera in small steps, or at once if the system setting "reduced motion" is on. `moved()` is called after each step. */
export class Glide {
  #camera;
  #moved;
  #frame = 0;

  constructor(camera, moved) {
    this.#camera = camera;
    this.#moved = moved;
  }

  zoom(factor, x, y) {
    this.stop();
    if (still()) this.#step(factor, x, y);
    else this.#next(Math.log(factor), x, y);
  }

  /**
   * Takes the next step of a zoom around the pixel (`x`, `y`). `left` is the natural logarithm of the zoom factor that this step and the
   * following steps reach together.
   */
  #next(left, x, y) {
    const part = Math.abs(left) < 0.02 ? left : left * 0.3;
    this.#step(Math.exp(part), x, y);
    if (left !== part) this.#frame = requestAnimationFrame(() => this.#next(left - part, x, y));
  }

  #step(factor, x, y) {
    this.#camera.zoom(factor, x, y);
    this.#moved();
  }

  stop() {
    cancelAnimationFrame(this.#frame);
  }
}

/**
 * Connects mouse, pen and fingers on `element` with a camera: dragging moves the camera, wheel and pinch zoom. `moved()` is called after
 * each change of the camera, `hover(cell or null)` when the pointer moves, and `pick(cell)` on a click. `cell(x, y)` returns the cell under
 * a pixel, or null. `grab(x, y)` is called when a pointer goes down at a pixel. It returns null, or a function that moves the camera while
 * this pointer is dragged, such as on the small map. `wheels(event)` returns whether the wheel moves the camera, and not the page.
 */
export function pointers(element, camera, { hover, moved, pick, cell, grab, wheels = () => true }) {
  const down = new Map(); // pointer -> {x, y}
  let held = null; // moves the camera by the small map
  let start = null; // the position at which the only pointer went down, while it may still be a click

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
    const { x, y } = at(event);
    held = down.size === 0 ? grab(x, y) : held;
    if (held) {
      held(x, y);
      return moved();
    }
    down.set(event.pointerId, at(event));
    start = down.size === 1 ? at(event) : null;
    return undefined;
  });
  element.addEventListener("pointermove", (event) => {
    const now = at(event);
    if (held) {
      held(now.x, now.y);
      hover(null);
      return moved();
    }
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
    held = null;
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
      if (!wheels(event)) return;
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
