// Formats of counts, which programs without a page use too.

/** Formats a count with separators: `1,048,576`. `n` is a number, or a string for counts beyond 2^53. */
export function number(n) {
  if (n === null || n === undefined) return "–";
  if (typeof n === "string" && /^\d+$/.test(n)) return BigInt(n).toLocaleString("en");
  return Number(n).toLocaleString("en", { maximumFractionDigits: 3 });
}

/** Returns a count with the singular or the plural of a word: `1 token`, `3 tokens`. */
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${String(n) === "1" ? one : many}`;

/** Returns the sum of a list of numbers. */
export const total = (list) => list.reduce((sum, n) => sum + n, 0);
