// The picture of a stack: tokens across, layers upwards; two colours for the tokens that reach a token and those that it reaches.
//
// Level 0 is the inputs, level `depth` the outputs; layer l is between the levels l and l + 1. Few tokens are dots, with a curve for each
// allowed cell; many tokens are bands of ranges, which can be zoomed.

import { clip, clipped, disc, Drawing } from "../picture/drawing.js";
import { count, has, shared, waypoints } from "./sets.js";
import { ink } from "../base/theme.js";
import { pointers } from "../picture/gestures.js";

const PADDING = { top: 26, right: 18, bottom: 30 };
/**
 * The maximum number of allowed cells that are drawn as curves. With more cells, straight lines are drawn, because the bend would not be
 * visible.
 */
const MOST_CURVES = 3000;
/** The maximum number of allowed cells whose lines form one path of the canvas. Many short paths are drawn faster than one long path. */
const CHUNK = 400;
/** The maximum width of a token's column, in pixels. */
const WIDEST = 64;

/** The colours of the parts of the picture. */
const INKS = {
  back: "allowed", reach: "cross", warn: "only-this", edge: "strong-line", dot: "strong-line", band: "denied", label: "soft", strong: "ink",
  ground: "raised", column: "accent-wash", hover: "sunken",
};

export class FlowPicture extends Drawing {
  /**
   * `onToken(token)` is called when the user clicks a token, and `onView({first, last})` with
   * the range of visible tokens after panning and zooming. `onHover(token, level)` is called with the token and the level under the
   * pointer, or with nulls. Level 0 is the inputs, and level `l` is the tokens after `l` layers.
   */
  constructor(canvas, { onToken, onView, onHover }) {
    super(canvas);
    Object.assign(this, { onToken, onView, onHover });
    this.answer = null;
    this.shown = { token: 0, back: true, reach: true, path: null, cut: null };
    this.view = null;
    this.hovered = null;
    this.listen();
  }

  /**
   * Shows an answer of POST /api/flow. `shown` selects the parts of the answer to draw:
   * - `token`, the token whose flow is shown
   * - `back`, whether the tokens that reach this token are drawn, and `reach`, whether the tokens that this token reaches are drawn
   * - `path`, a path `{source, steps}`, or null
   * - `cut`, `[layer, count]`: a layer in which the policy holds if `count` cells are denied; or null
   *
   * `layers` are the texts of the masks. Returns true if the number of tokens changed; the picture then shows all tokens.
   */
  show(answer, shown, layers) {
    const other = !this.answer || this.answer.tokens !== answer.tokens;
    Object.assign(this, { answer, shown, layers });
    if (other) this.view = { first: 0, last: answer.tokens };
    this.redraw();
    return other;
  }

  // --- positions ----------------------------------------------------------------------------------------------------------------

  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.size(width, height);
    const left = width > 1200 ? 196 : width > 640 ? 148 : 34;
    const depth = this.answer.depth;
    this.bands = !this.answer.edges;
    const inner = { left, top: PADDING.top, width: width - left - PADDING.right, height: height - PADDING.top - PADDING.bottom };
    // A band takes a part of the picture for each level; dots are on lines between the edges.
    const step = inner.height / (this.bands ? depth + 1 : Math.max(depth, 1));
    this.area = { ...inner, step, bottom: height, right: width };
  }

  column(token) {
    const { left, width } = this.area;
    return left + ((token - this.view.first) / (this.view.last - this.view.first)) * width;
  }

  /** Returns the x coordinate of the middle of a token's column. */
  x(token) {
    return this.column(token + 0.5);
  }

  /** Returns the y coordinate of a level. Level 0 is the inputs, and level `l` is the tokens after `l` layers. */
  y(level) {
    const { top, height, step } = this.area;
    return this.bands ? top + height - (level + 0.5) * step : top + height - level * step;
  }

  tokenAt(x) {
    const { left, width } = this.area;
    const token = Math.floor(this.view.first + ((x - left) / width) * (this.view.last - this.view.first));
    return x < left || token < 0 || token >= this.answer.tokens ? null : token;
  }

  levelAt(y) {
    const { top, height, step } = this.area;
    const level = this.bands ? Math.floor((top + height - y) / step) : Math.round((top + height - y) / step);
    return Math.min(Math.max(level, 0), this.answer.depth);
  }

  get perToken() {
    return this.area.width / (this.view.last - this.view.first);
  }

  // --- drawing ----------------------------------------------------------------------------------------------------------------

  draw() {
    if (!this.answer || !this.canvas.clientWidth) return;
    this.measure();
    const { fontFamily, fontSize } = getComputedStyle(document.body);
    const font = `${Math.round(parseFloat(fontSize) * 0.8)}px ${fontFamily}`;
    this.ink = { ...Object.fromEntries(Object.entries(INKS).map(([part, name]) => [part, ink(name)])), font, boldFont: `600 ${font}` };
    const { context: c, area } = this;
    this.drawAxis();
    clipped(c, area.left - 12, 0, area.width + 24, area.bottom - 18, () => {
      this.drawColumn(this.shown.token, this.ink.column);
      if (this.hovered !== null && this.hovered !== this.shown.token) this.drawColumn(this.hovered, this.ink.hover);
      if (this.bands) this.drawBands();
      else this.drawGraph();
      this.drawCut();
      this.drawPath();
    });
  }

  drawColumn(token, ink) {
    const { context: c, area } = this;
    const wide = Math.max(this.perToken, 1.5);
    c.fillStyle = ink;
    c.fillRect(this.x(token) - wide / 2, area.top - 12, wide, area.height + 24);
  }

  drawAxis() {
    const { context: c, area, ink, answer } = this;
    c.font = ink.font;
    c.fillStyle = ink.label;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const narrow = area.left < 100;
    const { depth } = answer;
    const every = Math.max(1, Math.ceil(15 / area.step));
    for (let layer = 0; layer < depth; layer += every) {
      const name = narrow ? `${layer}` : `${layer}  ${clip(c, this.layers[layer % this.layers.length] ?? "", area.left - 36)}`;
      c.fillText(name, area.left - 12, (this.y(layer) + this.y(layer + 1)) / 2);
    }
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.fillText("outputs ↑", area.left, 11);
    c.textAlign = "center";
    const step = niceStep((this.view.last - this.view.first) / Math.max(area.width / 64, 1));
    for (let token = Math.ceil(this.view.first / step) * step; token < this.view.last; token += step) {
      if (Math.abs(this.x(token) - this.x(this.shown.token)) < 34) continue; // its own number is drawn there
      c.fillText(token.toLocaleString("en"), this.x(token), area.bottom - 4);
    }
    c.textBaseline = "alphabetic";
    if (this.x(this.shown.token) < area.left - 4 || this.x(this.shown.token) > area.left + area.width + 4) return;
    const text = this.shown.token.toLocaleString("en");
    c.fillStyle = ink.strong;
    c.font = ink.boldFont;
    c.fillText(text, this.x(this.shown.token), area.bottom - 4);
  }

  /**
   * Draws a flow with few tokens. Each token has a dot at each level, and each allowed cell is a faint curve. Coloured curves show where
   * information reaches the shown token or comes from the shown token.
   */
  drawGraph() {
    const { answer, ink, shown } = this;
    const { depth, edges } = answer;
    const inBack = (level, token) => shown.back && has(answer.back[depth - level], token);
    const inReach = (level, token) => shown.reach && has(answer.reach[level], token);
    const some = { faint: byLayer(depth), reach: byLayer(depth), back: byLayer(depth) };
    const sort = (edge) => {
      const [layer, query, key] = edge;
      const [back, reach] = [inBack(layer + 1, query), inReach(layer, key)];
      if (back) some.back[layer].push(edge);
      if (reach) some.reach[layer].push(edge);
      if (!back && !reach) some.faint[layer].push(edge);
    };
    for (const edge of edges) if (edge[1] !== edge[2]) sort(edge);
    // The residual connection: every token keeps its own value.
    for (let layer = 0; layer < depth; layer += 1) for (let token = 0; token < answer.tokens; token += 1) sort([layer, token, token]);
    const bent = edges.length <= MOST_CURVES;
    // The more curves a layer has, the fainter they are; a path over them is drawn last.
    const most = shown.path ? 0.28 : 0.75;
    for (const [name, wide, strength, least] of [["faint", 0.6, 60, 0.1], ["reach", 1.1, 90, 0.12], ["back", 1.1, 90, 0.12]]) {
      for (const layer of some[name]) {
        const alpha = Math.max(least, Math.min(name === "faint" ? most * 0.7 : most, strength / Math.max(layer.length, 1)));
        this.strokeEdges(layer, name === "faint" ? ink.edge : ink[name], wide, bent, alpha);
      }
    }
    this.drawDots(inBack, inReach);
  }

  strokeEdges(edges, ink, wide, bent, alpha) {
    const { context: c, area } = this;
    c.strokeStyle = ink;
    c.lineWidth = wide;
    c.globalAlpha = alpha;
    for (let at = 0; at < edges.length; at += CHUNK) {
      c.beginPath();
      for (const [layer, query, key] of edges.slice(at, at + CHUNK)) {
        const [x0, y0, x1, y1] = [this.x(key), this.y(layer), this.x(query), this.y(layer + 1)];
        c.moveTo(x0, y0);
        if (bent) c.bezierCurveTo(x0, y0 - area.step * 0.5, x1, y1 + area.step * 0.5, x1, y1);
        else c.lineTo(x1, y1);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  drawDots(inBack, inReach) {
    const { context: c, answer, ink } = this;
    const size = Math.max(1.2, Math.min(4.5, this.perToken * 0.22, this.area.step * 0.16));
    const dot = (level, token, radius, fill) => disc(c, this.x(token), this.y(level), radius, fill);
    for (let level = 0; level <= answer.depth; level += 1) {
      for (let token = 0; token < answer.tokens; token += 1) {
        const [back, reach] = [inBack(level, token), inReach(level, token)];
        if (back && reach) {
          dot(level, token, size * 1.25, ink.reach);
          dot(level, token, size * 0.7, ink.back);
        } else {
          dot(level, token, back || reach ? size : size * 0.6, back ? ink.back : reach ? ink.reach : ink.dot);
        }
      }
    }
    const { token } = this.shown;
    for (const [level, fill] of [[0, ink.reach], [answer.depth, ink.back]]) {
      dot(level, token, size + 3.5, ink.ground);
      dot(level, token, size + 2, fill);
    }
  }

  /**
   * Draws a flow with many tokens: one band for each level, where level `l` is the tokens after `l` layers. A band shows, in two colours,
   * the ranges of tokens that reach the shown token and the ranges of tokens that the shown token reaches.
   */
  drawBands() {
    const { context: c, answer, ink, shown, area } = this;
    const gap = area.step > 6 ? 2 : area.step > 3 ? 1 : 0;
    for (let level = 0; level <= answer.depth; level += 1) {
      const top = this.y(level) - area.step / 2;
      const high = area.step - gap;
      c.fillStyle = ink.band;
      c.fillRect(area.left, top, area.width, high);
      const [back, reach] = [answer.back[answer.depth - level], answer.reach[level]];
      this.blank([shown.back && known(back, answer.counts?.back[answer.depth - level]),
        shown.reach && known(reach, answer.counts?.reach[level])], top, high);
      if (shown.back) this.fillSet(back, top, high, ink.back);
      if (shown.reach) this.fillSet(reach, top, high, ink.reach);
      // If both overlap, each colour takes half of the band.
      if (shown.back && shown.reach) this.fillSet(shared(back, reach), top, high / 2, ink.back);
    }
  }

  /**
   * Clears the unknown part of a band (the strip of one level): the server may not have sent all ranges of tokens. `ends` has one element
   * for each set of ranges: the token up to which the ranges are complete, or false if the set is not drawn. `top` and `high` are the y
   * coordinate and the height of the band.
   */
  blank(ends, top, high) {
    const { context: c, view, area, ink } = this;
    const from = Math.max(Math.min(...ends.map((end) => (end === false ? Infinity : end))), view.first);
    if (from >= view.last) return;
    c.fillStyle = ink.ground;
    c.fillRect(this.column(from), top, area.left + area.width - this.column(from), high);
  }

  fillSet(set, top, high, ink) {
    const { context: c, view, area } = this;
    c.fillStyle = ink;
    c.globalAlpha = this.shown.path ? 0.4 : 1; // a path is drawn over the ranges
    const gap = this.perToken > 8 ? 1 : 0;
    // Ranges that fall on the same pixel become one rectangle.
    let [from, to] = [NaN, NaN];
    const flush = () => from === from && c.fillRect(from, top, Math.max(to - from, 1), high);
    for (const [a, b] of set) {
      if (b <= view.first || a >= view.last) continue;
      const x0 = Math.max(this.column(a), area.left);
      const x1 = Math.min(this.column(b), area.left + area.width);
      if (x0 - to < 0.5) {
        to = x1;
        continue;
      }
      flush();
      [from, to] = [x0 + gap, x1];
    }
    flush();
    c.globalAlpha = 1;
  }

  drawCut() {
    if (!this.shown.cut) return;
    const { context: c, area, ink } = this;
    const [layer] = this.shown.cut;
    const y = (this.y(layer) + this.y(layer + 1)) / 2;
    c.strokeStyle = ink.warn;
    c.lineWidth = 1.2;
    c.setLineDash([5, 4]);
    c.beginPath();
    c.moveTo(area.left - 6, y);
    c.lineTo(area.left + area.width + 6, y);
    c.stroke();
    c.setLineDash([]);
  }

  /**
   * Draws a path along which information moves from token to token through the layers. In a layer with a step, a token reads the token
   * where the path was; in the other layers the path stays at its token.
   */
  drawPath() {
    if (!this.shown.path) return;
    const { context: c, ink } = this;
    const points = waypoints(this.shown.path, this.answer.depth);
    const trace = () => {
      c.beginPath();
      points.forEach(({ level, token }, at) => c[at ? "lineTo" : "moveTo"](this.x(token), this.y(level)));
      c.stroke();
    };
    c.lineJoin = "round";
    c.lineCap = "round";
    c.strokeStyle = ink.ground;
    c.lineWidth = 7;
    trace();
    c.strokeStyle = ink.warn;
    c.lineWidth = 3;
    trace();
    c.font = ink.boldFont;
    c.textAlign = "center";
    for (const { level, token, stop } of points) {
      const [x, y] = [this.x(token), this.y(level)];
      disc(c, x, y, stop ? 7 : 4, ink.ground);
      disc(c, x, y, stop ? 5 : 2.5, ink.warn);
      if (stop) this.tag(`${token}`, x, y);
    }
  }

  /** Draws a text on a background beside the point (`x`, `y`) of a path. */
  tag(text, x, y) {
    const { context: c, ink, area } = this;
    const wide = c.measureText(text).width + 8;
    const right = x + 9 + wide < area.left + area.width;
    const left = right ? x + 9 : x - 9 - wide;
    c.fillStyle = ink.ground;
    c.globalAlpha = 0.88;
    c.fillRect(left, y - 9, wide, 18);
    c.globalAlpha = 1;
    c.fillStyle = ink.warn;
    c.textBaseline = "middle";
    c.fillText(text, left + wide / 2, y + 0.5);
    c.textBaseline = "alphabetic";
  }

  // --- pointer ----------------------------------------------------------------------------------------------------------------

  listen() {
    const seen = () => this.answer && this.area;
    const pan = (dx) => {
      const span = this.view.last - this.view.first;
      this.look(this.view.first - (dx / this.area.width) * span, span);
    };
    const camera = { zoom: (factor, x) => seen() && this.zoom(1 / factor, x), pan: (dx) => seen() && pan(dx) };
    pointers(this.canvas, camera, {
      hover: (place) => this.hover(place?.token ?? null, place?.level ?? null),
      moved: () => {},
      pick: ({ token }) => token !== null && this.onToken(token),
      cell: (x, y) => (seen() ? { token: this.tokenAt(x), level: this.levelAt(y) } : null),
      grab: () => null,
      // A picture of few tokens leaves the wheel to the page.
      wheels: ({ ctrlKey }) => seen() && (this.answer.tokens > 16 || ctrlKey),
    });
    this.canvas.addEventListener("dblclick", () => this.fit());
  }

  hover(token, level) {
    if (token !== this.hovered) {
      this.hovered = token;
      this.redraw();
    }
    this.onHover(token, level);
  }

  /** Zooms the axis of tokens so that `factor` times as many tokens are visible. The token under the pixel `x` does not move. */
  zoom(factor, x = this.area.left + this.area.width / 2) {
    const span = this.view.last - this.view.first;
    const share = Math.min(Math.max((x - this.area.left) / this.area.width, 0), 1);
    const wanted = span * factor;
    const least = Math.min(this.answer.tokens, Math.max(this.area.width / WIDEST, 2));
    const next = Math.min(Math.max(wanted, least), this.answer.tokens);
    this.look(this.view.first + share * (span - next), next);
  }

  look(first, span) {
    const start = Math.min(Math.max(first, 0), this.answer.tokens - span);
    this.view = { first: start, last: start + span };
    this.redraw();
    this.onView(this.view);
  }

  /** Returns the range of visible tokens as `[first, last]`; null if all tokens are visible. */
  window() {
    const { first, last } = this.view;
    return first <= 0 && last >= this.answer.tokens ? null : [first, last].map((token) => Math.round(token * 100) / 100);
  }

  fit() {
    if (this.answer) this.look(0, this.answer.tokens);
  }

  /** Moves the view so that a token is visible, without zooming. */
  reveal(token) {
    if (!this.view || (token >= this.view.first && token + 1 <= this.view.last)) return;
    const span = this.view.last - this.view.first;
    this.look(token + 0.5 - span / 2, span);
  }
}

/**
 * Returns the token up to which `set` is known. The server may send only the first ranges of a set; `tokens` is the number of tokens in the
 * complete set. If ranges are missing, the result is the end of the last range, otherwise Infinity.
 */
const known = (set, tokens = 0) => (count(set) < tokens ? set.at(-1)?.[1] ?? 0 : Infinity);

const byLayer = (depth) => Array.from({ length: depth }, () => []);

/** Returns the smallest number that is 1, 2 or 5 times a power of ten and at least `least`. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) ?? 1;
}
