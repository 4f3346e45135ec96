// Sets of tokens as ascending half-open ranges [[a, b], ...], as the server gives them.

export const count = (set) => set.reduce((sum, [a, b]) => sum + b - a, 0);

/** Whether the set holds this token. */
export function has(set, token) {
  let [low, high] = [0, set.length];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (set[mid][1] <= token) low = mid + 1;
    else high = mid;
  }
  return low < set.length && set[low][0] <= token;
}

/** The set in words: `3, 7..12, 20..64`, the end not included; `most` runs are told. */
export function inWords(set, most = 4) {
  if (set.length === 0) return "none";
  const run = ([a, b]) => (b - a === 1 ? `${a}` : `${a}..${b}`);
  const told = set.slice(0, most).map(run).join(", ");
  return set.length > most ? `${told}, … (${set.length} runs)` : told;
}

/** What is the same from layer `index` on is said once: the number of leading sets that differ from the one after. */
export function changing(sets) {
  const same = (a, b) => a.length === b.length && a.every(([x, y], at) => x === b[at][0] && y === b[at][1]);
  let last = sets.length;
  while (last > 1 && same(sets[last - 1], sets[last - 2])) last -= 1;
  return last;
}

/** What two sets share. */
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
