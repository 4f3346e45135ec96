// Shape and facts as controls: what a mask is asked about. Everything that has no control of its own is there as JSON.

import { el, fill, number, uid } from "./dom.js";

const LONGEST = 1 << 20; // of the slider; the field takes more
const OWN = ["lengths", "side", "documents", "labels", "levels"];

/** Lists of numbers as people type them: rows by `;`, numbers by commas or spaces. One row is a plain list. */
export function readRows(text) {
  const rows = text.split(";").map((row) =>
    row
      .split(/[\s,]+/)
      .filter(Boolean)
      .map(readCount),
  );
  const kept = rows.filter((row) => row.length > 0);
  if (kept.length === 0) return null;
  return kept.length === 1 ? kept[0] : kept;
}

/** And back. */
export function writeRows(rows) {
  if (!Array.isArray(rows)) return "";
  return rows.some(Array.isArray) ? rows.map((row) => [row].flat().join(", ")).join("; ") : rows.join(", ");
}

function readCount(word) {
  if (word.startsWith("-")) throw new Error(`\`${word}\` is no whole number from 0 on`);
  return readWhole(word);
}

function readWhole(word) {
  const by = { k: 1024, m: 1024 ** 2 }[word.slice(-1).toLowerCase()];
  const value = by ? Number(word.slice(0, -1)) * by : Number(word);
  if (!/^-?[\d.]+[kKmM]?$/.test(word) || !Number.isSafeInteger(value)) throw new Error(`\`${word}\` is no whole number`);
  return value;
}

/** Positions: `3, 10..14`; by `;` those of each batch row, of which one may have none. One row is a plain list. */
function readPositions(text) {
  const rows = text.split(";").map((row) =>
    row
      .split(/[\s,]+/)
      .filter(Boolean)
      .map((word) => (/^(\d+\.\.\d*|\.\.\d+)$/.test(word) ? word : readCount(word))),
  );
  return rows.length === 1 ? rows[0] : rows;
}

/** Where queries begin, for each batch row: negative numbers too. */
const readOffsets = (text) =>
  text
    .split(/[\s,;]+/)
    .filter(Boolean)
    .map(readWhole);

const KINDS = { self: "Self", cross: "Cross", decode: "Decode" };
const kindOf = (shape) => ("q" in shape || "kv" in shape ? "cross" : "past" in shape || "new" in shape ? "decode" : "self");

/**
 * Makes the controls. `onChange({shape} or {facts} or {layer})` is called as somebody changes one. `update({shape, facts, layer}, bound)`
 * shows values; `bound` (what POST /api/masks answered, or null) says what was assumed.
 */
export function createFacts({ onChange }) {
  let now = { shape: {}, facts: {}, layer: null };
  const element = el("div", { class: "facts" });
  const controls = [];

  const shape = (patch) => onChange({ shape: tidy({ ...now.shape, ...patch }) });
  const facts = (patch) => onChange({ facts: tidy({ ...now.facts, ...patch }) });

  /** A field whose text is read by `read` and written by `write`; what cannot be read is told beneath it. */
  function field(label, { read, write, set, hint, ...props }) {
    const id = uid("field");
    const input = el("input", {
      type: "text",
      id,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `${id}-says`,
      ...props,
    });
    const says = el("span", { class: "says", id: `${id}-says` }, hint);
    input.addEventListener("input", () => {
      try {
        set(read(input.value.trim()));
        input.setAttribute("aria-invalid", "false");
        fill(says, hint);
      } catch (error) {
        input.setAttribute("aria-invalid", "true");
        fill(says, el("span", { class: "wrong" }, error.message));
      }
    });
    controls.push(() => {
      if (document.activeElement !== input) input.value = write(now) ?? "";
    });
    return el("div", { class: "field" }, el("label", { for: id }, label), input, says);
  }

  const count = (label, key, from = (value) => value, hint) =>
    field(label, {
      inputmode: "numeric",
      hint,
      read: (text) => (text === "" ? undefined : readCount(text.replace(/,/g, ""))),
      write: ({ shape: given }) => (given[key] === undefined ? "" : from(given[key])),
      set: (value) => shape({ [key]: value }),
    });

  const list = (label, key, hint) =>
    field(label, {
      hint,
      read: (text) => readRows(text) ?? undefined,
      write: (given) => writeRows(given.facts[key]),
      set: (value) => facts({ [key]: value }),
      class: "code",
    });

  // Length: a slider over powers of two, with a field for any number.
  const slider = el("input", {
    type: "range",
    min: "0",
    max: "20",
    step: "0.25",
    "aria-label": "Length, on a logarithmic slider",
  });
  slider.addEventListener("input", () => {
    const length = Math.min(LONGEST, nice(2 ** Number(slider.value)));
    shape({ len: length });
  });
  controls.push(() => {
    const length = now.shape.len ?? 16;
    slider.value = String(Math.log2(Math.max(1, Number(length) || 1)));
    slider.setAttribute("aria-valuetext", `${number(length)} tokens`);
  });

  const kinds = segments(KINDS, "What kind of attention", (kind) => {
    const length = now.shape.len ?? now.shape.kv ?? 64;
    const { batch, heads, kv_heads } = now.shape;
    const sizes = {
      self: { len: length === undefined ? 64 : length },
      cross: { q: Math.max(1, Math.round(length / 2)), kv: length },
      decode: { past: Math.max(0, length - 4), new: Math.min(4, length) },
    }[kind];
    onChange({ shape: tidy({ ...sizes, batch, heads, kv_heads }) });
  });
  const byKind = {
    self: el("div", { class: "length" }, count("Length", "len", undefined, ""), slider),
    cross: el(
      "div",
      { class: "fields" },
      count("Queries", "q"),
      count("Keys", "kv"),
      field("Query offset", {
        hint: "where the first query stands",
        read: (text) =>
          text === "" ? undefined : (([only, ...more]) => (more.length ? [only, ...more] : only))(readOffsets(text)),
        write: ({ shape: given }) => [given.query_offset ?? ""].flat().join(", "),
        set: (value) => shape({ query_offset: value }),
      }),
    ),
    decode: el("div", { class: "fields" }, count("Cached keys", "past"), count("New queries", "new")),
  };
  controls.push(() => {
    const kind = kindOf(now.shape);
    kinds.choose(kind);
    for (const [name, group] of Object.entries(byKind)) group.hidden = name !== kind;
  });

  const sides = segments({ right: "Right", left: "Left" }, "Padding stands at the", (side) =>
    facts({ side: side === "right" ? undefined : side }),
  );
  controls.push(() => sides.choose(now.facts.side === "left" ? "left" : "right"));

  const assumed = el("p", { class: "small soft assumed", hidden: true });
  controls.push((bound) => {
    const told = bound?.assumed ?? [];
    assumed.hidden = told.length === 0;
    fill(
      assumed,
      "Nobody said, so assumed: ",
      told.map((said, i) => [i ? ", " : "", el("code", {}, said)]),
    );
  });

  fill(
    element,
    fold(
      "Shape",
      ({ shape: given }) => summary(given),
      controls,
      [
        kinds.element,
        Object.values(byKind),
        el("div", { class: "fields three" }, count("Batch", "batch"), count("Heads", "heads"), count("KV heads", "kv_heads")),
        assumed,
      ],
      true,
    ),
    fold("Lengths and padding", ({ facts: given }) => writeRows(given.lengths), controls, [
      list("Real tokens of each batch row", "lengths", "for example 5, 3"),
      el("div", { class: "field row" }, el("span", {}, "Padding stands"), sides.element),
    ]),
    fold("Documents", ({ facts: given }) => writeRows(given.documents), controls, [
      list("Lengths of packed documents", "documents", "for example 33, 31, or by row 33, 31; 64"),
    ]),
    fold("Labels and levels", ({ facts: given }) => Object.keys(labelsOf(given)).join(", "), controls, [
      labelFields(
        controls,
        () => labelsOf(now.facts),
        (labels) => facts({ labels: Object.keys(labels).length ? labels : undefined }),
      ),
      list("Levels of the positions", "levels", "for clearance, for example 0, 0, 2"),
    ]),
    fold("Everything else", ({ facts: given }) => Object.keys(others(given)).join(", "), controls, [
      json(
        controls,
        () => others(now.facts),
        (rest) => onChange({ facts: tidy({ ...pick(now.facts, OWN), ...rest }) }),
      ),
      field("Layer", {
        inputmode: "numeric",
        hint: "the one that layers(...) is asked about",
        read: (text) => (text === "" ? null : readCount(text)),
        write: ({ layer }) => layer ?? "",
        set: (layer) => onChange({ layer }),
      }),
    ]),
  );

  return {
    element,
    update(next, bound = null) {
      now = { shape: next.shape ?? {}, facts: next.facts ?? {}, layer: next.layer ?? null };
      for (const control of controls) control(bound);
      for (const told of element.querySelectorAll("details")) told.tell?.(now);
    },
  };
}

const tidy = (given) => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
const pick = (given, keys) => Object.fromEntries(Object.entries(given).filter(([key]) => keys.includes(key)));
const others = (given) => Object.fromEntries(Object.entries(given).filter(([key]) => !OWN.includes(key)));
const labelsOf = (given) =>
  given.labels && typeof given.labels === "object" && !Array.isArray(given.labels) ? given.labels : {};

// Round lengths between powers of two: 1.19 * 2^n would be an odd thing to ask about.
const nice = (length) =>
  length < 16
    ? Math.round(length)
    : Math.round(length / 2 ** (Math.floor(Math.log2(length)) - 2)) * 2 ** (Math.floor(Math.log2(length)) - 2);

function summary(shape) {
  const sizes = {
    self: () => `${number(shape.len ?? 16)} tokens`,
    cross: () => `${number(shape.q ?? 0)} × ${number(shape.kv ?? 0)}`,
    decode: () => `${number(shape.past ?? 0)} + ${number(shape.new ?? 0)}`,
  };
  const rest = [shape.batch > 1 && `batch ${shape.batch}`, shape.heads > 1 && `${shape.heads} heads`].filter(Boolean);
  return [sizes[kindOf(shape)](), ...rest].join(", ");
}

/** Part of the controls that can be folded away; its line says what is set. */
function fold(title, says, controls, children, open = false) {
  const told = el("span", { class: "told" });
  const element = el("details", { class: "fold", open }, el("summary", {}, title, told), children);
  element.tell = (now) => {
    told.textContent = says(now) ?? "";
  };
  return element;
}

/** Buttons of which one is on: `{element, choose(name)}`. */
export function segments(names, label, onChoose) {
  const buttons = Object.entries(names).map(([name, title]) =>
    el("button", { type: "button", "aria-pressed": "false", dataset: { name }, onclick: () => onChoose(name) }, title),
  );
  return {
    element: el("div", { class: "segments", role: "group", "aria-label": label }, buttons),
    choose: (chosen) => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.name === chosen))),
  };
}

/** Labels: a name and its positions a line. */
function labelFields(controls, get, set) {
  const lines = el("div", { class: "label-lines" });
  const collect = () => {
    const labels = {};
    for (const line of lines.children) {
      const [name, positions] = [...line.querySelectorAll("input")];
      try {
        if (name.value.trim()) labels[name.value.trim()] = readPositions(positions.value);
        positions.setAttribute("aria-invalid", "false");
      } catch {
        positions.setAttribute("aria-invalid", "true");
        return;
      }
    }
    set(labels);
  };
  const line = (name = "", positions = "") => {
    const element = el(
      "div",
      { class: "label-line field" },
      el("input", { type: "text", value: name, placeholder: "name", "aria-label": "Name of a label", oninput: collect }),
      el("input", {
        type: "text",
        class: "code",
        value: positions,
        placeholder: "3, 10..14; 5",
        title: "Positions and ranges; after a ; those of the next batch row",
        "aria-label": `Positions of ${name || "the label"}`,
        oninput: collect,
      }),
      el(
        "button",
        {
          type: "button",
          class: "icon-button",
          "aria-label": `Take out ${name || "the label"}`,
          onclick: () => {
            element.remove();
            collect();
          },
        },
        "×",
      ),
    );
    return element;
  };
  controls.push(() => {
    if (lines.contains(document.activeElement)) return;
    fill(
      lines,
      Object.entries(get()).map(([name, positions]) => line(name, writeRows([positions].flat()))),
    );
  });
  return el(
    "div",
    { class: "labels" },
    lines,
    el(
      "button",
      {
        type: "button",
        class: "button plain",
        onclick: () => {
          const added = line();
          lines.append(added);
          added.querySelector("input").focus();
        },
      },
      "Add a label",
    ),
  );
}

/** Facts without a control, as JSON. */
function json(controls, get, set) {
  const id = uid("json");
  const says = el("span", { class: "says" }, "arrays, positions, real_keys, …");
  const input = el("textarea", { id, class: "code", rows: "3", spellcheck: "false" });
  input.addEventListener("input", () => {
    try {
      const value = input.value.trim() ? JSON.parse(input.value) : {};
      if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("an object is wanted: {…}");
      input.setAttribute("aria-invalid", "false");
      fill(says, "arrays, positions, real_keys, …");
      set(value);
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      fill(says, el("span", { class: "wrong" }, error.message));
    }
  });
  controls.push(() => {
    if (document.activeElement === input) return;
    const rest = get();
    input.value = Object.keys(rest).length ? JSON.stringify(rest) : "";
  });
  return el("div", { class: "field" }, el("label", { for: id }, "Facts as JSON"), input, says);
}
