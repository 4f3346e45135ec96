// Facts that fit a shape, for repairs of errors: example lengths, documents and levels, and given lists that are repeated or cut.

const SHARES = [1, 0.7, 0.375, 0.85, 0.5];
const MOST_LISTED = 4;

/**
 * Returns a length for each of `rows` batch rows, at most `len`. The first batch row has no padding: `24, 17, 9` for 3 rows and `len` 24.
 */
export const lengthsFor = (rows, len) => Array.from({ length: rows }, (_, row) => Math.max(1, Math.round(len * SHARES[row % SHARES.length])));

/**
 * Returns the lengths of three documents that together have `len` tokens: `10, 8, 6` for `len` 24. Returns one document if `len` is below
 * 3.
 */
export function documentsFor(len) {
  if (len < 3) return [len];
  const [first, second] = [Math.max(1, Math.round(len * 0.42)), Math.max(1, Math.round(len / 3))];
  return [first, second, len - first - second];
}

/** Returns a clearance level for each of `len` tokens: 1 for the middle third, 0 for the others. */
export const levelsFor = (len) => Array.from({ length: len }, (_, at) => (at >= len / 3 && at < (2 * len) / 3 ? 1 : 0));

/** Returns an object without the keys whose value is undefined. */
export const defined = (given) => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));

/** Returns a shape for the page's state that has these sizes. If queries and keys differ, the position of the first query is `offset`. */
export const shapeOf = ([batch, heads, q, kv], offset = Math.max(0, kv - q)) => ({
  ...(q === kv ? { len: q } : { q, kv, query_offset: offset }),
  ...(batch > 1 && { batch }),
  ...(heads > 1 && { heads }),
});

export const longest = (list) => list.reduce((most, n) => Math.max(most, n), 0);

/** Returns true if a value is a list of at least one number, and all numbers are whole and at least 0. */
export const plainSizes = (list) => Array.isArray(list) && list.length > 0 && list.every((n) => Number.isSafeInteger(n) && n >= 0);

/** Returns lengths of documents that together have `len` tokens: the lengths in `list`, repeated or cut. */
export function fitted(list, len) {
  const lengths = list.filter((n) => n > 0);
  if (lengths.length === 0) return documentsFor(len);
  const out = [];
  for (let left = len, at = 0; left > 0; at += 1) {
    const taken = Math.min(lengths[at % lengths.length], left);
    out.push(taken);
    left -= taken;
  }
  return out;
}

/** Returns a list with one entry for each of `rows` batch rows: the entries of `list`, repeated or cut. */
export const fittedRows = (list, rows) => Array.from({ length: rows }, (_, row) => list[row % list.length]);

/** Returns the first four entries of a list as text: `1, 2, 3, 4, …`. */
export const listed = (list) => (list.length > MOST_LISTED ? `${list.slice(0, MOST_LISTED).join(", ")}, …` : list.join(", "));

/**
 * Returns the number of batch rows for which a repair gives lengths: the number in the shape, the number that other facts imply, or three.
 * `sizes` are the sizes of the mask.
 */
export function rowsOf({ shape, facts }, sizes) {
  const implied = Array.isArray(shape.query_offset) || Object.values(facts).some((value) => Array.isArray(value?.[0]));
  return shape.batch ?? (sizes[0] > 1 || implied ? sizes[0] : 3);
}

/** Returns the sizes `[batch, heads, queries, keys]` of an array in the facts, from its nested lists. Returns null for other arrays. */
export function sizesOfArray(array) {
  const sizes = [];
  for (let level = Object.values(array ?? {})[0]; Array.isArray(level); level = level[0]) sizes.push(level.length);
  if (sizes.length === 2) return [1, 1, ...sizes];
  return sizes.length === 4 ? sizes : null;
}
