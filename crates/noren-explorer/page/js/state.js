// What the page shows is in the address, after the `#`: a link brings it back, and so do back and forward. The text of the text view
// and the words to hide are not: addresses stay in the browser's history. They are in a link only where its maker asked for that.
//
// The state is one flat object; each view owns some keys. What equals its default is left out of the address. Whatever stands
// there that is not what a key wants counts as absent, so that no address can break the page.

const text = (limit) => (value) => typeof value === "string" && value.length <= limit;
const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const whole = (value) => Number.isSafeInteger(value) && value >= 0;
const flag = (value) => typeof value === "boolean";
const several = (of, length) => (value) => value === null || (Array.isArray(value) && value.length === length && value.every(of));
const finite = (value) => typeof value === "number" && Number.isFinite(value);

/** key: [default, whether a value will do]. */
const KEYS = {
  view: ["mask", text(16)],
  mask: ["sliding(6) | causal & keys(0..2) | spans([9..14])", text(Infinity)], // the server says what is too long
  shape: [{ len: 24 }, plain],
  facts: [{}, plain],
  layer: [null, (value) => value === null || whole(value)],
  at: [[0, 0], (value) => value !== null && several(whole, 2)(value)], // batch, head
  cell: [null, several(whole, 2)], // the pinned query and key
  camera: [null, several(finite, 3)], // query and key in the middle, cells across; null: everything
  plan: [false, flag],
  other: [null, (value) => value === null || text(Infinity)(value)], // the mask compared with
  sides: [false, flag], // compared side by side
  cost: [{}, plain],
  flow: [{}, plain],
  text: [{}, plain],
  doctor: [{}, plain],
};

/** Keys of a view's own object that stay in memory and out of addresses. */
const SECRETS = { text: ["text", "words"] };

const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

/** Keeps of an object what the page knows and can use; for the rest, what `otherwise` has, or the start. */
export function sound(from, otherwise = {}) {
  const kept = {};
  for (const [key, [initial, wanted]] of Object.entries(KEYS)) {
    kept[key] = plain(from) && Object.hasOwn(from, key) && wanted(from[key]) ? from[key] : (otherwise[key] ?? structuredClone(initial));
  }
  return kept;
}

/** A state without what stays out of addresses. */
function withoutSecrets(value) {
  const kept = { ...value };
  for (const [view, keys] of Object.entries(SECRETS)) {
    kept[view] = Object.fromEntries(Object.entries(kept[view]).filter(([key]) => !keys.includes(key)));
  }
  return kept;
}

const holdsSecrets = (value) => Object.entries(SECRETS).some(([view, keys]) => keys.some((key) => Object.hasOwn(value[view], key)));

/** The state of an address; what no address holds stays as it is, unless this one holds it. */
function arrived(fragment) {
  const next = decode(fragment);
  for (const [view, keys] of Object.entries(SECRETS)) {
    for (const key of keys) {
      if (!Object.hasOwn(next[view], key) && Object.hasOwn(current[view], key)) {
        next[view] = { ...next[view], [key]: current[view][key] };
      }
    }
  }
  return next;
}

// JSON with its quotes and apostrophes exchanged, spaces as +, and no outer braces: readable, and chat programs keep it whole.
const swap = (json) => json.replace(/["']/g, (sign) => (sign === '"' ? "'" : '"'));

/** The part of an address that holds a state. */
export function encode(value) {
  const told = Object.entries(value).filter(([key, to]) => KEYS[key] && !same(to, KEYS[key][0]));
  const json = swap(JSON.stringify(Object.fromEntries(told)).slice(1, -1));
  return encodeURIComponent(json)
    .replace(/%20/g, "+")
    .replace(/%(3A|2C|3D|2F|3B|40|5B|5D)/g, (sign) => decodeURIComponent(sign));
}

/** The state that a part of an address holds; the start for one that holds none. */
export function decode(fragment) {
  try {
    return sound(JSON.parse(`{${swap(decodeURIComponent(fragment.replace(/^#/, "").replace(/\+/g, "%20")))}}`));
  } catch {
    return sound({});
  }
}

let current = decode(location.hash);
let timer = 0;
const subscribers = new Set();

// Browsers count how often a page rewrites its address; while somebody pans or types it is written at rest only.
const REST = 200;

// Browsers take no address of more than two million characters; facts and masks of that size are not in it.
const LONGEST = 1_000_000;

function address() {
  const shown = withoutSecrets(current);
  const fits = [shown, { ...shown, facts: {} }].map(encode).find((told) => told.length <= LONGEST);
  return `#${fits ?? encode({ view: current.view, shape: current.shape })}`;
}

function write() {
  clearTimeout(timer);
  timer = 0;
  const to = address();
  if (to !== location.hash) history.replaceState(null, "", to);
}

/** Takes out of the address what a link brought and what is not to stay there. */
function forget() {
  if (holdsSecrets(decode(location.hash))) write();
}

function tell() {
  for (const subscriber of [...subscribers]) subscriber(current);
}

export const state = {
  /** The state; not to be changed in place. */
  get: () => current,

  /** Changes some keys; one whose value will not do stays as it is. A new entry in the history, unless `replace`: for typing, panning and the like. */
  set(patch, { replace = false } = {}) {
    const next = sound({ ...current, ...patch }, current);
    if (Object.keys(KEYS).every((key) => same(next[key], current[key]))) return;
    if (!replace) {
      write();
      current = next;
      history.pushState(null, "", address());
    } else {
      current = next;
      if (!timer) timer = setTimeout(write, REST);
    }
    tell();
  },

  /** Calls `fn(state)` after each change; returns what ends that. */
  subscribe(fn) {
    subscribers.add(fn);
    return () => subscribers.delete(fn);
  },

  /** Writes the address now; for what reads it. */
  write,

  /** A link to the state as it is with a patch; with `secrets` also what stays out of addresses otherwise. */
  link(patch = {}, { secrets = false } = {}) {
    const to = sound({ ...current, ...patch }, current);
    return `#${encode(secrets ? to : withoutSecrets(to))}`;
  },

  /** The scene that the state speaks of, as the server wants it; `mask` may be another than the state's. */
  scene: ({ mask, shape, facts, layer } = current) => (layer === null ? { mask, shape, facts } : { mask, shape, facts, layer }),
};

window.addEventListener("popstate", () => {
  clearTimeout(timer);
  timer = 0;
  const next = arrived(location.hash);
  const changed = !same(next, current);
  current = next;
  forget();
  if (changed) tell();
});
window.addEventListener("pagehide", write);
forget();
