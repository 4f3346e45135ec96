// Sets of tokens as ascending half-open ranges [[a, b], ...], as the server sends them. Of very many ranges, the server sends only the
// first, and the number of tokens of the whole set. Paths of tokens.

export const count = (set) => set.reduce((sum, [a, b]) => sum + b - a, 0);

/** Returns whether a set of ranges contains a token. */
export function has(set, token) {
  let [low, high] = [0, set.length];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (set[mid][1] <= token) low = mid + 1;
    else high = mid;
  }
  return low < set.length && set[low][0] <= token;
}

/** Returns the number of tokens of each set in `sets`: the number in `given`, which the server sent, or else the number in the ranges of the set. */
export const counts = (sets, given) => sets.map((set, index) => given?.[index] ?? count(set));

/**
 * Returns whether a set of `tokens` tokens contains a token. The list `set` may lack the last ranges of the set. Returns null if the token
 * may be in a missing range.
 */
export function holds(set, token, tokens) {
  if (has(set, token)) return true;
  return count(set) < tokens && token >= (set.at(-1)?.[1] ?? 0) ? null : false;
}

/**
 * Returns a set of ranges as text: `3, 7..12, 20..64`. The ends are excluded, and at most `most` ranges are named. `tokens` is the number
 * of tokens in the complete set; if the given ranges have fewer tokens, some ranges are missing.
 */
export function inWords(set, most = 4, tokens = 0) {
  const more = count(set) < tokens;
  if (set.length === 0) return more ? "…" : "none";
  const run = ([a, b]) => (b - a === 1 ? `${a}` : `${a}..${b}`);
  const given = set.slice(0, most).map(run).join(", ");
  if (more) return `${given}, … (more than ${set.length} ranges)`;
  return set.length > most ? `${given}, … (${set.length} ranges)` : given;
}

/**
 * Returns the number of sets that are shown. `sets` has the set of tokens after each layer. Equal sets at the end are
 * shown only once: for the sets A, B, C, C, C, the result is 3.
 */
export function changing(sets, tokens = counts(sets)) {
  const same = (a, b) => a.length === b.length && a.every(([x, y], at) => x === b[at][0] && y === b[at][1]);
  let last = sets.length;
  while (last > 1 && tokens[last - 1] === tokens[last - 2] && same(sets[last - 1], sets[last - 2])) last -= 1;
  return last;
}

/** Returns the ranges that two sets of ranges have in common. */
export function shared(one, other) {
  const both = [];
  for (let [i, j] = [0, 0]; i < one.length && j < other.length; ) {
    const [start, end] = [Math.max(one[i][0], other[j][0]), Math.min(one[i][1], other[j][1])];
    if (start < end) both.push([start, end]);
    if (one[i][1] < other[j][1]) i += 1;
    else j += 1;
  }
  return both;
}

/**
 * Returns the points `{level, token, stop}` of a path from the inputs to the outputs. The path begins at the token `source`, and each step
 * `[layer, token]` leads to another token. `stop` is true at the beginning of the path and after each step.
 */
export function waypoints({ source, steps }, depth) {
  const points = [{ level: 0, token: source, stop: true }];
  let token = source;
  for (const [layer, next] of steps) {
    if (points.at(-1).level < layer) points.push({ level: layer, token, stop: false });
    points.push({ level: layer + 1, token: next, stop: true });
    token = next;
  }
  if (points.at(-1).level < depth) points.push({ level: depth, token, stop: false });
  return points;
}
