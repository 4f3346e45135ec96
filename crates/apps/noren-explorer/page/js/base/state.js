// The state of the page is in the address, after the `#`: links, back and forward restore it. The text of the text view and the words to
// hide are not in the address, because addresses stay in the browser's history. A link contains them only if the user chooses this.
//
// The state is one flat object; each view owns some keys. Values equal to their default are left out of the address. Invalid values in an
// address count as absent, so that no address can break the page.

const text = (limit) => (value) => typeof value === "string" && value.length <= limit;
const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const whole = (value) => Number.isSafeInteger(value) && value >= 0;
const flag = (value) => typeof value === "boolean";
const several = (of, length) => (value) => value === null || (Array.isArray(value) && value.length === length && value.every(of));
const finite = (value) => typeof value === "number" && Number.isFinite(value);

/** The keys of the page's state, each with `[default, function that checks a value]`. */
const KEYS = {
  view: ["mask", text(16)],
  mask: ["sliding(6) | causal & keys(0..2) | spans([9..14])", text(Infinity)], // the server refuses texts that are too long
  shape: [{ len: 24 }, plain],
  facts: [{}, plain],
  layer: [null, (value) => value === null || whole(value)],
  at: [[0, 0], (value) => value !== null && several(whole, 2)(value)], // batch, head
  cell: [null, several(whole, 2)], // the pinned query and key
  camera: [null, several(finite, 3)], // query and key in the middle, cells across; null: everything
  plan: [false, flag],
  other: [null, (value) => value === null || text(Infinity)(value)], // the second mask of a comparison
  sides: [false, flag], // compared side by side
  row: [{}, plain], // one row in numbers, of the mask view
  learn: [{}, plain],
  cost: [{}, plain],
  flow: [{}, plain],
  text: [{}, plain],
  doctor: [{}, plain],
};

/**
 * For each view, the settings that the page does not write to its address: the user's text and the words to hide. A link contains these
 * settings only if the user chooses this.
 */
const SECRETS = { text: ["text", "words"] };

const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

/**
 * Returns an object with all keys of the state. Missing and invalid values of `from` are replaced by the values of `otherwise`, or by
 * defaults.
 */
export function sound(from, otherwise = {}) {
  const kept = {};
  for (const [key, [initial, wanted]] of Object.entries(KEYS)) {
    kept[key] = plain(from) && Object.hasOwn(from, key) && wanted(from[key]) ? from[key] : (otherwise[key] ?? structuredClone(initial));
  }
  return kept;
}

/** Returns the state without the keys in `SECRETS`: the user's text and the words to hide. */
function withoutSecrets(value) {
  const kept = { ...value };
  for (const [view, keys] of Object.entries(SECRETS)) {
    kept[view] = Object.fromEntries(Object.entries(kept[view]).filter(([key]) => !keys.includes(key)));
  }
  return kept;
}

const holdsSecrets = (value) => Object.entries(SECRETS).some(([view, keys]) => keys.some((key) => Object.hasOwn(value[view], key)));

/**
 * Returns the state for the fragment of an address. Most fragments do not contain the keys in `SECRETS`; these keys then keep their current
 * values.
 */
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

// JSON with quotes and apostrophes exchanged, spaces as +, and without the outer braces: readable, and chat programs do not break it.
const swap = (json) => json.replace(/["']/g, (sign) => (sign === '"' ? "'" : '"'));

/** Returns the fragment of an address (the part after `#`) that encodes a state. */
export function encode(value) {
  const told = Object.entries(value).filter(([key, to]) => KEYS[key] && !same(to, KEYS[key][0]));
  const json = swap(JSON.stringify(Object.fromEntries(told)).slice(1, -1));
  return encodeURIComponent(json)
    .replace(/%20/g, "+")
    .replace(/%(3A|2C|3D|2F|3B|40|5B|5D)/g, (sign) => decodeURIComponent(sign));
}

/**
 * Matches a short fragment (the part of an address from `#` on) that names a view, such as `#/learn`, or a lesson, such as
 * `#/learn/padding`.
 */
const SHORT = /^#?\/([a-z]+)(?:\/([a-z-]+))?$/;

/** Returns the state that the fragment of an address encodes. Returns the start state if the fragment is invalid or empty. */
export function decode(fragment) {
  const [, view, lesson] = SHORT.exec(fragment) ?? [];
  if (view) return sound({ view, ...(lesson && { learn: { lesson } }) });
  try {
    return sound(JSON.parse(`{${swap(decodeURIComponent(fragment.replace(/^#/, "").replace(/\+/g, "%20")))}}`));
  } catch {
    return sound({});
  }
}

let current = decode(location.hash);
let timer = 0;
const subscribers = new Set();

// Browsers limit the rate of address changes; while the user pans or types, the address is written only after a pause.
const REST = 200;

// Browsers accept addresses of up to two million characters; larger facts and masks are left out.
const LONGEST = 1_000_000;

function address() {
  const shown = withoutSecrets(current);
  const fits = [shown, { ...shown, facts: {} }].map(encode).find((told) => told.length <= LONGEST);
  return `#${fits ?? encode({ view: current.view, shape: current.shape })}`;
}

// The address of the history entry that typed text changes, and the time until the text gets an entry of its own.
let entry = null;
let entering = 0;
const ENTER = 1000;

/**
 * Gives typed text a separate entry in the browser's history. The current entry gets its old address back, so that the Back button shows
 * the earlier text.
 */
function enter() {
  clearTimeout(entering);
  if (entry === null) return;
  clearTimeout(timer);
  timer = 0;
  const [from, to] = [entry, address()];
  entry = null;
  if (from === to) return;
  history.replaceState(null, "", from);
  history.pushState(null, "", to);
}

function write() {
  clearTimeout(timer);
  timer = 0;
  const to = address();
  if (to !== location.hash) history.replaceState(null, "", to);
}

/** Removes the keys in `SECRETS` from the address of the page, for example after the user opened a link that contains them. */
function forget() {
  if (holdsSecrets(decode(location.hash))) write();
}

function tell() {
  for (const subscriber of [...subscribers]) subscriber(current);
}

export const state = {
  /** Returns the current state. Callers must not modify the returned object. */
  get: () => current,

  /**
   * Changes the state to the values in `patch`; other keys of the state stay. Invalid values are ignored. If `replace` is false, adds an
   * entry to the browser's history. Frequent changes, such as typing and panning, set `replace` to true. If `typed` is true too, the text
   * gets an entry after a pause.
   */
  set(patch, { replace = false, typed = false } = {}) {
    const next = sound({ ...current, ...patch }, current);
    if (Object.keys(KEYS).every((key) => same(next[key], current[key]))) return;
    if (!replace) {
      enter();
      write();
      current = next;
      history.pushState(null, "", address());
    } else {
      if (typed) {
        entry ??= address();
        clearTimeout(entering);
        entering = setTimeout(enter, ENTER);
      }
      current = next;
      if (!timer) timer = setTimeout(write, REST);
    }
    tell();
  },

  /** Calls `fn(state)` after each change of the state. Returns a function that ends the calls. */
  subscribe(fn) {
    subscribers.add(fn);
    return () => subscribers.delete(fn);
  },

  /**
   * Writes the state to the address at once. Callers that read the address need this function, because changes are otherwise written after
   * a pause.
   */
  write,

  /** Gives typed text a separate entry in the browser's history at once, instead of after a pause. */
  enter,

  /** Returns a link to the state with the changes of `patch`. If `secrets` is true, the link also contains the keys in `SECRETS`. */
  link(patch = {}, { secrets = false } = {}) {
    const to = sound({ ...current, ...patch }, current);
    return `#${encode(secrets ? to : withoutSecrets(to))}`;
  },

  /**
   * Returns the scene of the state: the mask, its shape, its facts and its layer, in the format of POST /api/masks. The argument may be a
   * changed copy of the state.
   */
  scene: ({ mask, shape, facts, layer } = current) => (layer === null ? { mask, shape, facts } : { mask, shape, facts, layer }),
};

window.addEventListener("popstate", () => {
  clearTimeout(entering);
  entry = null;
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
