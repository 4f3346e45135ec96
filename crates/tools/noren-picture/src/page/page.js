// Draws the cells of the mask, and shows why a cell is allowed or denied. `cells.rs` and `reasons.rs` define the form of the data.

const element = (id) => document.getElementById(id);
const [canvas, panel, announced] = ["cells", "why", "announced"].map(element);

// The data.

const packed = Uint8Array.from(atob(element("data").textContent), (letter) => letter.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
const bytes = new Uint8Array(await new Response(stream).arrayBuffer());

/** Returns a function that reads the LEB128 numbers in the bytes `source` one by one. Its property `at` is the index of the next byte. */
const reader = (source) => {
  const next = () => {
    let number = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = source[next.at];
      next.at += 1;
      number += (byte & 127) * scale;
      if (byte < 128) return number;
    }
  };
  next.at = 0;
  return next;
};
const blobs = [];
for (const next = reader(bytes); next.at < bytes.length; ) {
  const length = next();
  blobs.push(bytes.subarray(next.at, next.at + length));
  next.at += length;
}
const data = JSON.parse(new TextDecoder().decode(blobs[0]));
const sets = blobs.slice(1);
const [firstQuery, firstKey] = [data.queries[0], data.keys[0]];
const [queries, keys] = [data.queries[1] - firstQuery, data.keys[1] - firstKey];

/** Returns the function `make` of a number with a cache: `make` is called once for each number. */
const kept = (make) => {
  const known = [];
  return (number) => (known[number] ??= make(number));
};

/** Returns the rows of the set of cells with a given number: `rows[q]` lists the keys at which runs of allowed keys begin and end. */
const rowsOf = kept((number) => (data.rules[number] ? computed(data.rules[number]) : stored(number)));

/** Reads the rows of set `number`, which is stored as the differences of each row from the row before. */
function stored(number) {
  const rows = [];
  let last = [];
  for (const next = reader(sets[number]); next.at < sets[number].length; ) {
    const repeats = next();
    const borders = next();
    const steps = [];
    for (let left = borders; left > 0; ) {
      const [zigzag, count] = [next(), next()];
      steps.push([zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2, count]);
      left -= count;
    }
    const still = borders === last.length && steps.every(([step]) => step === 0);
    for (let i = 0; i < repeats; i += 1) {
      if (!still) {
        const row = new Int32Array(borders);
        let at = 0;
        for (const [step, count] of steps) {
          for (const end = at + count; at < end; at += 1) row[at] = (at < last.length ? last[at] : at > 0 ? row[at - 1] : 0) + step;
        }
        last = row;
      }
      rows.push(last);
    }
  }
  return rows;
}

/** Computes the rows of a set of cells by its rule: from other sets of cells, or (`random`) from random numbers. */
function computed([kind, ...of]) {
  if (kind === "random") return randomRows(...of);
  const everything = Array(queries).fill([0, keys]);
  const [first, ...others] = kind === "!" ? [everything, rowsOf(of[0])] : of.map(rowsOf);
  const joins = { "&": (a, b) => a && b, "|": (a, b) => a || b, "-": (a, b) => a && !b, "!": (a, b) => a && !b };
  return others.reduce((rows, more) => joined(rows, more, joins[kind]), first);
}

/** Combines the sets of cells `a` and `b`: a cell is in the result if `join(is in a, is in b)` is true for two booleans. */
function joined(a, b, join) {
  let last = null;
  return a.map((row, q) => {
    // equal rows are stored once
    if (q > 0 && row === a[q - 1] && b[q] === b[q - 1]) return last;
    const other = b[q];
    const borders = [];
    let [i, j, inside] = [0, 0, false];
    while (i < row.length || j < other.length) {
      const at = Math.min(row[i] ?? Infinity, other[j] ?? Infinity);
      if (row[i] === at) i += 1;
      if (other[j] === at) j += 1;
      if (join(i % 2 === 1, j % 2 === 1) !== inside) {
        inside = !inside;
        borders.push(at);
      }
    }
    last = Int32Array.from(borders);
    return last;
  });
}

/** Computes the rows of `random`: a key is allowed if the random number of its cell is below `limit`. */
function randomRows(limit, low, high, queryTable, keyTable) {
  const half = 4294967296;
  const [of, to] = [tableOf(queryTable), tableOf(keyTable)];
  const numbers = new Uint32Array(4);
  return Array.from({ length: queries }, (_, q) => {
    const borders = [];
    const [queryLow, queryHigh] = [of[q] >>> 0, Math.floor(of[q] / half) >>> 0];
    let known = -1;
    for (let k = 0; k < keys; k += 1) {
      if (to[k] < 0) continue;
      const four = Math.floor(to[k] / 4);
      if (four !== known) philox(numbers, four >>> 0, Math.floor(four / half) >>> 0, queryLow, queryHigh, low, high);
      known = four;
      if (numbers[to[k] % 4] >= limit) continue;
      if (borders.at(-1) === k) borders[borders.length - 1] = k + 1;
      else borders.push(k, k + 1);
    }
    return Int32Array.from(borders);
  });
}

/** Writes four random numbers into `out`: Philox 4x32-10 (Salmon et al. 2011) for a counter of four numbers and a key of two. */
function philox(out, c0, c1, c2, c3, low, high) {
  for (let i = 0; i < 10; i += 1) {
    const [a, b] = [upper(0xd2511f53, c0), upper(0xcd9e8d57, c2)];
    const [lowA, lowB] = [Math.imul(0xd2511f53, c0), Math.imul(0xcd9e8d57, c2)];
    [c0, c1, c2, c3] = [(b ^ c1 ^ low) >>> 0, lowB, (a ^ c3 ^ high) >>> 0, lowA];
    low = (low + 0x9e3779b9) >>> 0;
    high = (high + 0xbb67ae85) >>> 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/** Returns the upper 32 bits of the product of two numbers of 32 bits. */
const upper = (a, b) => Math.floor((a * (b >>> 16) + Math.floor((a * (b & 0xffff)) / 65536)) / 65536);

const numbered = (of, pair) => (Array.isArray(of) ? of[pair] : of);
const cells = (mask, pair) => rowsOf(numbered(data.masks[mask], pair));

/** Returns whether key `k` is in one of the runs of a row. It is if an odd number of the row's borders are at most `k`. */
function contains(row, k) {
  let [low, high] = [0, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle] <= k) low = middle + 1;
    else high = middle;
  }
  return low % 2 === 1;
}

/** Returns all words of the table with a given number, one for each query or key. */
const tableOf = kept((number) => {
  const { n, w } = data.tables[number];
  const words = [];
  if (n) {
    let value = n[0];
    words.push(value);
    for (let i = 1; i < n.length; i += 2) for (let j = 0; j < n[i + 1]; j += 1) words.push((value += n[i]));
  } else for (let i = 0; i < w.length; i += 2) for (let j = 0; j < w[i + 1]; j += 1) words.push(w[i]);
  return words;
});

/**
 * Returns the text of `sentence` for a cell. `result` has the results of the node and its operands; undefined for a slot without a
 * token.
 */
function words(sentence, cell, result) {
  const truth = (test) => {
    if (test === null) return result.allowed;
    const [kind, number] = test;
    return kind === "o" ? result.parts[number].allowed : contains(cells(number, cell.pair)[cell.q], cell.k);
  };
  const piece = (of) => {
    if (typeof of === "string") return of;
    const [kind, a, b, c] = of;
    if (kind === "q") return tableOf(a)[cell.q];
    if (kind === "k") return tableOf(a)[cell.k];
    if (kind === "-") return BigInt(tableOf(a)[cell.q]) - BigInt(tableOf(b)[cell.k]);
    if (kind === "?") return words(truth(a) ? b : c, cell, result);
    if (kind === "o") return result.parts[a].why;
    const first = result.parts.findIndex(({ allowed }) => allowed === a);
    return words(first < 0 ? c : b[first], cell, result);
  };
  return sentence.map(piece).join("");
}

/** Returns `{mask, allowed, why, parts}` for the node `number` of the tree of subexpressions; `parts` has the same for its operands. */
function evaluate(number, cell) {
  const [mask, set, sentence, operands] = data.nodes[number];
  const parts = operands.map((operand) => evaluate(operand, cell));
  const allowed = contains(cells(set, cell.pair)[cell.q], cell.k);
  const result = { mask, allowed, parts };
  return { ...result, why: words(sentence, cell, result) };
}

const pairOf = (batch, head) => data.batch.indexOf(batch) * data.heads.length + data.heads.indexOf(head);

/** Returns the explanation of the cell of query row `q` and key `k`, both counted from 0 in the whole mask. */
function explain(batch, head, q, k) {
  const cell = { pair: pairOf(batch, head), q: q - firstQuery, k: k - firstKey };
  const [queryWords, keyWords, queryLabels, keyLabels] = data.rows[data.batch.indexOf(batch)].map(tableOf);
  const root = evaluate(data.roots[cell.pair], cell);
  if (keyWords[cell.k] < 0) Object.assign(root, { allowed: false, parts: [], why: words(data.slot, cell) });
  return {
    root,
    queryPosition: queryWords[cell.q],
    keyPosition: keyWords[cell.k],
    names: { q: queryLabels?.[cell.q], k: keyLabels?.[cell.k] },
  };
}

// The reason.

const make = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child || child === 0));
  return made;
};
const number = (n) => Number(n).toLocaleString("en-US");
const code = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
const sign = (allowed) => make("span", { class: allowed ? "yes" : "no", "aria-hidden": "true" }, allowed ? "✓ " : "✗ ");

const tree = ({ mask, allowed, why, parts }) =>
  make(
    "li",
    {},
    make("div", {}, sign(allowed), make("code", {}, mask)),
    make("p", {}, ...code(why)),
    parts.length > 0 && make("ul", {}, ...parts.map(tree)),
  );

const state = { batch: data.batch[0], head: data.heads[0], cell: null, pinned: false };

function show(cell) {
  state.cell = cell;
  paint();
  if (!cell) return;
  const { root, queryPosition, keyPosition, names } = explain(state.batch, state.head, cell.q, cell.k);
  const place = (what, index, name, position) =>
    `${what} ${number(index)}${name ? ` “${name}”` : ""}${position === index || position < 0 ? "" : ` (position ${number(position)})`}`;
  const may = root.allowed ? "May read" : "May not read";
  panel.replaceChildren(
    make("h2", { class: root.allowed ? "yes" : "no" }, `${may}${state.pinned ? " (pinned)" : ""}`),
    make("p", {}, `${place("query", cell.q, names.q, queryPosition)} → ${place("key", cell.k, names.k, keyPosition)}`),
    make("ul", {}, tree(root)),
  );
  announced.textContent = `query ${cell.q} ${may.toLowerCase()} key ${cell.k}: ${root.why.replaceAll("`", "")}`;
}

// The picture. `across` and `down` are the pixels of a cell, and `q` and `k` the first cell in the window.

const [LEFT, TOP] = [48, 24];
const LARGEST = 40;
const view = { q: 0, k: 0, across: 1, down: 1 };
const picture = document.createElement("canvas");
const colours = {};
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const ratio = () => window.devicePixelRatio || 1;
const size = () => ({ width: canvas.clientWidth - LEFT, height: canvas.clientHeight - TOP });

function fitted() {
  const { width, height } = size();
  const [across, down] = [Math.min(width / keys, LARGEST), Math.min(height / queries, LARGEST)];
  const even = Math.min(across, down);
  // a mask that is much longer on one side than on the other is stretched
  return { across: keys * 4 < queries ? across : even, down: queries * 4 < keys ? down : even };
}

function place() {
  const { width, height } = size();
  view.q = Math.round(clamp(view.q, 0, Math.max(0, queries - Math.floor(height / view.down))));
  view.k = Math.round(clamp(view.k, 0, Math.max(0, keys - Math.floor(width / view.across))));
}

function zoom(factor, at) {
  const least = fitted();
  const [x, y] = [view.k + (at.k - view.k) / factor, view.q + (at.q - view.q) / factor];
  view.across = clamp(view.across * factor, least.across, Math.max(LARGEST, least.across));
  view.down = clamp(view.down * factor, least.down, Math.max(LARGEST, least.down));
  Object.assign(view, { k: x, q: y });
  place();
  redraw();
}

/** Draws the cells in the visible part of the picture: each pixel shows whether none, some or all of the cells under it are allowed. */
function drawCells() {
  const scale = ratio();
  const [across, down] = [view.across * scale, view.down * scale];
  const { width, height } = size();
  const [w, h] = [
    Math.max(1, Math.min(Math.floor(width * scale), Math.ceil((keys - view.k) * across))),
    Math.max(1, Math.min(Math.floor(height * scale), Math.ceil((queries - view.q) * down))),
  ];
  Object.assign(picture, { width: w, height: h });
  const on = picture.getContext("2d");
  const image = on.createImageData(w, h);
  const pixels = new Uint32Array(image.data.buffer);
  const rows = cells(data.nodes[data.roots[pairOf(state.batch, state.head)]][1], pairOf(state.batch, state.head));
  const part = (pixel, step, first, count) => {
    const start = clamp(first + Math.floor(pixel / step), 0, count - 1);
    return [start, clamp(first + Math.floor((pixel + 1) / step), start + 1, count)];
  };
  const columns = Array.from({ length: w }, (_, x) => part(x, across, view.k, keys));
  const changes = new Int32Array(keys + 1);
  const sums = new Float64Array(keys + 1);
  let before = "";
  for (let y = 0; y < h; y += 1) {
    const [start, end] = part(y, down, view.q, queries);
    if (before === `${start} ${end}`) {
      pixels.copyWithin(y * w, (y - 1) * w, y * w);
      continue;
    }
    before = `${start} ${end}`;
    changes.fill(0);
    for (let q = start; q < end; q += 1) for (let i = 0; i < rows[q].length; i += 1) changes[rows[q][i]] += i % 2 ? -1 : 1;
    for (let k = 0, open = 0; k < keys; k += 1) {
      open += changes[k];
      sums[k + 1] = sums[k] + open;
    }
    for (let x = 0; x < w; x += 1) {
      const [from, to] = columns[x];
      const count = sums[to] - sums[from];
      pixels[y * w + x] = count === 0 ? colours.denied : count === (to - from) * (end - start) ? colours.allowed : colours.some;
    }
  }
  on.putImageData(image, 0, 0);
  if (view.across < 6 || view.down < 6) return;
  on.fillStyle = colours.page;
  for (let x = across; x < w; x += across) on.fillRect(Math.round(x), 0, 1, h);
  for (let y = down; y < h; y += down) on.fillRect(0, Math.round(y), w, 1);
}

const step = (least) => [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384].find((n) => n >= least) ?? 32768;

function paint() {
  const scale = ratio();
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  const on = canvas.getContext("2d");
  on.scale(scale, scale);
  on.drawImage(picture, LEFT, TOP, picture.width / scale, picture.height / scale);
  on.fillStyle = colours.soft;
  on.font = "11px ui-monospace, Menlo, Consolas, monospace";
  on.textBaseline = "middle";
  const [right, bottom] = [LEFT + picture.width / scale, TOP + picture.height / scale];
  on.textAlign = "center";
  const across = step(56 / view.across);
  const edge = (index) => (index > 0 ? Math.ceil(index) : 0);
  for (let k = edge(view.k / across) * across; LEFT + (k - view.k) * view.across < right - 1; k += across)
    on.fillText(firstKey + k, LEFT + (k - view.k + 0.5) * view.across, TOP - 10);
  on.textAlign = "right";
  const down = step(18 / view.down);
  for (let q = edge(view.q / down) * down; TOP + (q - view.q) * view.down < bottom - 1; q += down)
    on.fillText(firstQuery + q, LEFT - 6, TOP + (q - view.q + 0.5) * view.down);
  if (!state.cell) return;
  const [x, y] = [LEFT + (state.cell.k - firstKey - view.k) * view.across, TOP + (state.cell.q - firstQuery - view.q) * view.down];
  on.save();
  on.beginPath();
  on.rect(LEFT - 2, TOP - 2, right - LEFT + 4, bottom - TOP + 4);
  on.clip();
  on.fillStyle = on.strokeStyle = colours.cross;
  on.globalAlpha = 0.55;
  for (const at of [y - 0.5, y + view.down - 0.5]) on.fillRect(LEFT, at, right - LEFT, 1);
  for (const at of [x - 0.5, x + view.across - 0.5]) on.fillRect(at, TOP, 1, bottom - TOP);
  on.globalAlpha = 1;
  on.lineWidth = state.pinned ? 3 : 2;
  const grow = view.across < 6 ? 3 : 0;
  on.strokeRect(x - grow, y - grow, view.across + 2 * grow, view.down + 2 * grow);
  on.restore();
}

function redraw() {
  drawCells();
  paint();
}

function fit() {
  const { width } = size();
  canvas.style.height = `${TOP + clamp(Math.min((width * queries) / keys, LARGEST * queries), 96, width)}px`;
  Object.assign(view, fitted(), { q: 0, k: 0 });
  redraw();
}

/** Reads the colours of the style, as texts and as pixels in the byte order of this machine. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "soft", "cross"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
  const dot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  for (const name of ["allowed", "some", "denied"]) {
    dot.fillStyle = style.getPropertyValue(`--${name}`).trim();
    dot.fillRect(0, 0, 1, 1);
    [colours[name]] = new Uint32Array(dot.getImageData(0, 0, 1, 1).data.buffer);
  }
}

// Input.

function cellAt(event) {
  const box = canvas.getBoundingClientRect();
  const [k, q] = [(event.clientX - box.left - LEFT) / view.across + view.k, (event.clientY - box.top - TOP) / view.down + view.q];
  return { q, k, inside: event.clientX >= box.left + LEFT && event.clientY >= box.top + TOP && q < queries && k < keys };
}
const named = ({ q, k }) => ({ q: firstQuery + Math.floor(q), k: firstKey + Math.floor(k) });
let drag = null;

canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, q: view.q, k: view.k, moved: false };
});
window.addEventListener("pointerup", () => setTimeout(() => (drag = null)));
canvas.addEventListener("pointermove", (event) => {
  if (drag && event.buttons && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4) drag.moved = true;
  if (drag?.moved) {
    Object.assign(view, { q: drag.q - (event.clientY - drag.y) / view.down, k: drag.k - (event.clientX - drag.x) / view.across });
    place();
    return redraw();
  }
  const at = cellAt(event);
  if (!state.pinned && at.inside) show(named(at));
  return undefined;
});
canvas.addEventListener("click", (event) => {
  const at = cellAt(event);
  if (drag?.moved || !at.inside) return;
  state.pinned = !state.pinned;
  show(named(at));
});
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, cellAt(event));
  },
  { passive: false },
);

/** Returns the cell that stays at the same place during zooming: the selected cell, or otherwise the middle of the visible part. */
const centre = () => {
  if (state.cell) return { q: state.cell.q - firstQuery + 0.5, k: state.cell.k - firstKey + 0.5 };
  const { width, height } = size();
  return { q: view.q + height / view.down / 2, k: view.k + width / view.across / 2 };
};

function move(down, across) {
  const last = state.cell;
  const q = last ? clamp(last.q - firstQuery + down, 0, queries - 1) : view.q;
  const k = last ? clamp(last.k - firstKey + across, 0, keys - 1) : view.k;
  const { width, height } = size();
  const [rows, columns] = [Math.max(1, Math.floor(height / view.down)), Math.max(1, Math.floor(width / view.across))];
  const [top, left] = [clamp(view.q, q - rows + 1, q), clamp(view.k, k - columns + 1, k)];
  if (top !== view.q || left !== view.k) {
    Object.assign(view, { q: top, k: left });
    place();
    drawCells();
  }
  show(named({ q, k }));
}

canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 16 : 1;
  const moves = {
    ArrowUp: [-far, 0],
    ArrowDown: [far, 0],
    ArrowLeft: [0, -far],
    ArrowRight: [0, far],
    Home: [0, -keys],
    End: [0, keys],
    PageUp: [-queries, 0],
    PageDown: [queries, 0],
  };
  const pin = (pinned) => {
    state.pinned = pinned;
    show(state.cell);
  };
  const actions = {
    Enter: () => state.cell && pin(!state.pinned),
    Escape: () => pin(false),
    "+": () => zoom(1.25, centre()),
    "-": () => zoom(0.8, centre()),
    0: fit,
  };
  if (moves[event.key]) move(...moves[event.key]);
  else if (actions[event.key]) actions[event.key]();
  else return;
  event.preventDefault();
});

element("nearer").addEventListener("click", () => zoom(1.25, centre()));
element("farther").addEventListener("click", () => zoom(0.8, centre()));
element("fit").addEventListener("click", fit);
for (const [id, values] of [
  ["batch", data.batch],
  ["head", data.heads],
]) {
  const select = element(id);
  select.append(...values.map((value) => make("option", { value }, String(value))));
  select.parentElement.hidden = values.length < 2;
  select.addEventListener("change", () => {
    state[id] = Number(select.value);
    drawCells();
    show(state.cell);
  });
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  redraw();
});
readColours();
fit();
let width = canvas.clientWidth;
new ResizeObserver(() => {
  if (canvas.clientWidth === width) return;
  width = canvas.clientWidth;
  fit();
}).observe(canvas);

canvas.mask = { ...data, explain, view, left: LEFT, top: TOP }; // for scripts
document.documentElement.dataset.ready = "true";
