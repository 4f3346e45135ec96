// The cost view: the cost of a mask and of dense masking, now and at other lengths.

import { createBench } from "../edit/bench.js";
import { Choices, crossingOf, lengthOf, numbersOf, verdictOf } from "./crossing.js";
import { button } from "../base/dialog.js";
import { bytes, debounce, el, fill, number, percent, plural, seconds, short, swatch, times } from "../base/dom.js";
import { Latest } from "../base/latest.js";
import { plot } from "../base/plot.js";
import { paintError, repairable } from "../base/repairs.js";

export const id = "cost";
export const title = "Cost";

export class View {
  #ctx;
  #request = new Latest();
  #asked = "";
  #shown = null; // {bound, scene, cost, curve}

  constructor(ctx) {
    this.#ctx = ctx;
    this.choices = new Choices((patch) => this.#choose(patch));
    this.verdict = el("p", { class: "cost-verdict", role: "status" });
    this.figures = el("div", { class: "cost-figures" });
    this.tiles = el("div", { class: "cost-tiles" });
    this.curves = el("div", { class: "cost-curves" });
    this.status = el("p", { class: "hidden-text", role: "status" });
    this.ask = debounce((bound, scene) => this.#ask(bound, scene), 120);
    this.bench = createBench(ctx, {
      onBound: (bound, scene) => this.ask(bound, scene),
      onBroken: () => this.curves.classList.add("stale"),
      asCommand: ({ mask }) => ["plan", mask],
    });
    this.root = el(
      "div",
      { class: "workbench cost" },
      el(
        "section",
        { class: "say", "aria-label": "Mask" },
        el("div", { class: "say-head" }, el("h1", {}, "The cost of a mask")),
        this.bench.editor.element,
        this.bench.docs,
      ),
      el("section", { class: "ask", "aria-label": "Shape and facts" }, this.bench.facts),
      el(
        "section",
        { class: "bill", "aria-label": "Cost" },
        this.choices.element, this.verdict, this.figures, this.tiles, this.curves, this.status,
      ),
    );
  }

  /** Changes the length, the head dimension or the data type in the state. */
  #choose(patch) {
    this.#ctx.state.set({ cost: { ...this.#ctx.state.get().cost, ...patch } });
  }

  update(now) {
    this.bench.update(now);
    const numbers = JSON.stringify(numbersOf(now.cost));
    if (this.#shown && numbers !== this.#asked) this.ask(this.#shown.bound, this.#shown.scene);
    else if (this.#shown) this.#paint();
  }

  #ask(bound, scene) {
    const numbers = numbersOf(this.#ctx.state.get().cost);
    this.#asked = JSON.stringify(numbers);
    this.curves.classList.add("stale");
    const { api } = this.#ctx;
    const send = (signal) => Promise.all([api.cost(bound.id, { ...numbers, signal }), api.curve(scene, { ...numbers, signal })]);
    const answered = ([cost, curve]) => {
      this.#shown = { bound, scene, cost, curve };
      this.#paint();
      this.curves.classList.remove("stale");
    };
    this.#request.ask(send, answered, (error) => this.#refused(error, () => this.#ask(bound, scene)));
  }

  #refused(error, again) {
    const notice = el("p", { class: "notice bad" });
    const change = (patch) => this.#ctx.state.set(patch);
    const open = (control) => this.bench.controls.open(control);
    paintError(notice, repairable(error, { now: this.#ctx.state.get(), last: this.bench.good(), change, open, again }));
    fill(this.curves, notice);
  }

  #paint() {
    const { bound, cost, curve } = this.#shown;
    const own = bound.kv_len;
    const crossing = crossingOf(curve.points);
    const wanted = this.#ctx.state.get().cost.len;
    const known = wanted === own || curve.points.some(({ len }) => len === wanted);
    const len = known ? wanted : lengthOf(curve.points, own, crossing);
    const here = len === own ? cost : curve.points.find((point) => point.len === len);
    this.choices.show({ len, own, lengths: curve.points.map((point) => point.len), ...numbersOf(this.#ctx.state.get().cost) });
    fill(this.verdict, verdictOf(here, len, crossing, curve.points));
    paintFigures(this.figures, here);
    if (len === own) paintTiles(this.tiles, cost, bound);
    else
      fill(
        this.tiles,
        el("p", { class: "soft small" }, `These are the costs at ${plural(len, "token")}; the mask has ${plural(own, "token")}. `,
          button(`Show ${plural(own, "token")}`, () => this.#choose({ len: own }), { class: "repair" })),
      );
    this.status.textContent = `At ${plural(len, "token")}: ${allowedOf(here).count} of ${number(here.cells)} cells allowed. Predicted time: ${seconds(here.seconds)}; with a dense mask ${seconds(here.dense_seconds)}.`;
    paintCurves(this.curves, curve, len, crossing);
  }
}

const figure = (label, value, note) =>
  el(
    "div",
    { class: "figure" },
    el("p", { class: "eyebrow" }, label),
    el("p", { class: "figure-value" }, value),
    el("p", { class: "soft small" }, note),
  );

const NOT_COUNTED = "not counted";
const absent = (value) => value === null || value === undefined;
/** Returns a value as text, formatted by the function `format`. Returns "not counted" if the value is missing. */
const told = (format, value) => (absent(value) ? NOT_COUNTED : format(value));

/**
 * Returns the number of allowed cells and their percentage of all cells, as the texts `{count, share}`. Each text is one number, or a range
 * if only bounds are known. Without bounds, `count` is "not counted" and `share` is null. `format` formats the count.
 */
export function allowedOf({ allowed, allowed_low: low, allowed_high: high, density, cells }, format = number) {
  const share = (count) => percent(Number(cells) > 0 ? Number(count) / Number(cells) : 0);
  if (!absent(allowed)) return { count: format(allowed), share: absent(density) ? share(allowed) : percent(density) };
  if (absent(low) || absent(high)) return { count: NOT_COUNTED, share: null };
  const shares = share(low) === share(high) ? share(low) : `between ${share(low)} and ${share(high)}`;
  return { count: `between ${format(low)} and ${format(high)}`, share: shares };
}

/** Returns a text about the ratio of computed cells to allowed cells. */
function computedSays({ allowed, computed, computed_per_allowed: counted }) {
  const ratio = counted ?? (absent(allowed) ? NaN : Number(computed) / Number(allowed));
  if (Number.isFinite(ratio)) return `${times(ratio)} the number of allowed cells`;
  return !absent(allowed) && Number(allowed) === 0 ? "nothing is allowed" : "the allowed cells were not counted, because there are too many";
}

function paintFigures(root, cost) {
  const { count, share } = allowedOf(cost, short);
  fill(
    root,
    figure("Allowed cells", count, `${share ? `${share} of` : "of"} ${short(cost.cells)}`),
    figure("Computed", told(short, cost.computed), computedSays(cost)),
    figure(
      "Plan",
      bytes(cost.plan_bytes),
      `a dense mask: ${bytes(cost.dense_bytes)}; planning takes ${seconds(cost.planning_seconds)}`,
    ),
    figure(
      "Predicted time",
      seconds(cost.seconds),
      `dense: ${seconds(cost.dense_seconds)}, ${times(cost.dense_seconds / cost.seconds)}`,
    ),
  );
}

/** Shows the numbers of full, mixed and empty tiles as one bar, with notes. */
function paintTiles(root, cost, bound) {
  const kinds = [
    ["Full", cost.full_tiles, "allowed", "every cell is allowed: no mask is applied"],
    ["Mixed", cost.mixed_tiles, "tile-some", "every cell is computed; one bit for each cell marks the allowed cells"],
    ["Empty", cost.empty_tiles, "denied", "skipped"],
  ];
  const counted = kinds.every(([, count]) => !absent(count));
  const all = kinds.reduce((sum, [, count]) => sum + Number(count), 0) || 1;
  const bar = () => [
    el(
      "div",
      { class: "tile-bar", "aria-hidden": "true" },
      kinds.map(([, count, tone]) =>
        el("span", { style: { "flex-grow": String(Number(count) / all), background: `var(--${tone})` } }),
      ),
    ),
    el(
      "ul",
      { class: "tile-kinds" },
      kinds.map(([name, count, tone, says]) =>
        el(
          "li",
          {},
          swatch(tone),
          el("b", {}, number(count)),
          ` ${name.toLowerCase()}, ${says}`,
        ),
      ),
    ),
  ];
  fill(
    root,
    counted
      ? bar()
      : el("p", { class: "soft" }, "The mixed tiles have too many cells, so tiles were not counted."),
    el(
      "p",
      { class: "soft small" },
      `For head_dim ${cost.head_dim}, ${cost.dtype}, ${plural(bound.batch, "batch row")} and ${plural(bound.heads, "head")} on this machine: ${cost.machine}.`,
      cost.reordered && ` The plan reorders queries and keys: ${cost.reordered}.`,
      cost.empty_rows > 0 && ` ${plural(cost.empty_rows, "query", "queries")} may read no key.`,
    ),
  );
}

function paintCurves(root, { points, notes, machine, head_dim: dim }, here, crossing) {
  if (points.length === 0) return fill(root);
  return fill(
    root,
    plots(points, here, crossing),
    el(
      "p",
      { class: "soft small" },
      `Predicted for head_dim ${dim} on this machine: ${machine}. `,
      notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}. `),
    ),
    el(
      "details",
      { class: "fold" },
      el("summary", {}, "The numbers"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cost of the mask for each length" }, table(points)),
    ),
  );
}

/**
 * Returns plots of time and memory against the number of tokens. The plots have marks at the length `here` and at the length from which the
 * plan is cheaper than dense masking.
 */
function plots(points, here, crossing) {
  const of = (key) => points.map((point) => [point.len, Number(point[key])]);
  const x = { label: "tokens", format: short2, base: 2 };
  return el(
    "div",
    { class: "plots" },
    plot({
      title: "Time",
      x,
      mark: here,
      crossing: crossing?.from ?? null,
      y: { format: seconds, tick: secondsTick, base: 10 },
      series: [
        { name: "noren", tone: "--accent", points: of("seconds") },
        { name: "dense", tone: "--only-this", dashed: true, points: of("dense_seconds") },
        { name: "planning", tone: "--only-other", points: of("planning_seconds") },
      ],
    }),
    plot({
      title: "Memory of the mask",
      x,
      mark: here,
      y: { format: bytes, base: 1024 },
      series: [
        { name: "plan", tone: "--accent", points: of("plan_bytes") },
        { name: "dense", tone: "--only-this", dashed: true, points: of("dense_bytes") },
      ],
    }),
  );
}

const cells = (count) => told(short, count);
/** The columns of the table of predicted costs, each as `[title, key in a point of the cost curve, format]`. */
const COLUMNS = [
  ["Tokens", "len", number],
  ["Allowed", "allowed", cells],
  ["Computed", "computed", cells],
  ["Time", "seconds", seconds],
  ["Dense time", "dense_seconds", seconds],
  ["Plan", "plan_bytes", bytes],
  ["Dense mask", "dense_bytes", bytes],
  ["Planning", "planning_seconds", seconds],
];

function table(points) {
  const cell = (text, i) => (i === 0 ? el("th", { scope: "row" }, text) : el("td", {}, text));
  const row = (point) =>
    el(
      "tr",
      {},
      COLUMNS.map(([, key, format], i) => cell(format(point[key]), i)),
    );
  return el(
    "table",
    { class: "figures" },
    el("caption", { class: "hidden-text" }, "Cost by length"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        COLUMNS.map(([name]) => el("th", { scope: "col" }, name)),
      ),
    ),
    el("tbody", {}, points.map(row)),
  );
}

/**
 * Formats a time in seconds for an axis with powers of ten. From 1 s, the unit is always seconds, because minutes and hours would not be
 * round numbers.
 */
const secondsTick = (s) => (s >= 1 ? `${number(s)} s` : seconds(s));

/** Formats a number of tokens. Multiples of 1024 have the suffix `k`, and multiples of 1024^2 the suffix `M`: `4k`, `1M`. */
function short2(n) {
  if (n >= 1 << 20 && n % (1 << 20) === 0) return `${n / (1 << 20)}M`;
  return n >= 1024 && n % 1024 === 0 ? `${n / 1024}k` : number(n);
}
