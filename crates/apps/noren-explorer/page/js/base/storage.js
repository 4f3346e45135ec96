// Values that the browser keeps for the next visit. Storage may be forbidden or full; then the values last only until the page is closed.

const here = new Map();

/** Returns the text that is stored under a key, or null. */
export function recall(key) {
  try {
    return localStorage.getItem(key) ?? here.get(key) ?? null;
  } catch {
    return here.get(key) ?? null;
  }
}

/** Stores a text under a key, in the browser's storage and in memory. */
export function remember(key, text) {
  here.set(key, text);
  try {
    localStorage.setItem(key, text);
  } catch {
    // see above
  }
}
