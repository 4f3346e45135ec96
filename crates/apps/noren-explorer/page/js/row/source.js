// The numbers of a row: scores and values that are typed, made-up numbers to start from, and the numbers of the server's model; the attention
// that follows from them.

import { total } from "../base/numbers.js";

/** The maximum number of keys of a row that is shown in numbers. */
export const MOST_KEYS = 64;
/** The largest number that the server accepts: the largest finite 32-bit float, rounded down. */
const LARGEST = 3e38;
/** The lowest finite 32-bit float. */
const LOWEST = -3.4028234663852886e38;

/** The example text. The mask view and the lessons show the scores and values that the server's model computes for this text. */
const TEXT =
  "Emma Woodhouse, handsome, clever, and rich, with a comfortable home and happy disposition, seemed to unite some of the best " +
  "blessings of existence.";

/** Returns an invented score for a key and for a query at the given position: a multiple of 0.5 from -2 to 2. */
export const exampleScore = (position, key) => ((((position * 7 + key * 5 + position * key * 3) % 9) + 9) % 9) / 2 - 2;

/** Returns invented numbers for a query at the given position: one score for each key; the value of each key is its index. */
export const exampleNumbers = (position, keys) => ({
  scores: Array.from({ length: keys }, (_, key) => exampleScore(position, key)),
  values: Array.from({ length: keys }, (_, key) => [key]),
  sink: null,
});

/** Parses typed numbers, separated by commas, semicolons or spaces. Throws an error if the text does not have `count` finite numbers. */
export function readNumbers(typed, count) {
  const words = typed.split(/[\s,;]+/).filter(Boolean);
  const numbers = words.map(Number);
  const wrong = numbers.findIndex((number) => !Number.isFinite(number) || Math.abs(number) > LARGEST);
  if (wrong >= 0) throw new Error(`“${words[wrong]}” is not a finite number.`);
  if (numbers.length !== count) throw new Error(`Give ${count} numbers, one for each key: ${numbers.length} are given.`);
  return numbers;
}

/**
 * Returns a function `(head) => Promise`, which requests the numbers of the server's model for an example sentence. The promise gives
 * `{tokens, numbers: {scores, values, sink}}`, and is rejected if the server has no model. Each head is requested only once.
 */
export function modelNumbers(api) {
  const answers = new Map();
  return async (head) => {
    const { heads } = await api.model();
    const of = head % heads;
    if (!answers.has(of)) {
      const answer = api.text({ text: TEXT, head: of });
      answers.set(of, answer);
      answer.catch(() => answers.delete(of));
    }
    return answers.get(of);
  };
}

/**
 * Returns one row of the model's numbers: the scores of the query at `position` and the values, both for the first `keys` tokens, and
 * `sink`. Returns null if the model's text has fewer tokens.
 */
export function rowOf({ scores, values, sink }, position, keys) {
  if (position < 0 || position >= scores.length || keys > values.length) return null;
  return { scores: scores[position].slice(0, keys), values: values.slice(0, keys), sink };
}

/**
 * Computes the attention of one query step by step. `allowed` has a boolean for each key. Without `values`, there is no weighted sum. `sink` is
 * a logit that is only in the denominator, or null. `fill` is the number that is added to the scores of hidden keys in 32-bit arithmetic, as
 * programs with an additive mask do; null excludes hidden keys. Each list of the result has one entry for each key, except `sum`, the output
 * of the query. In `masked`, null is minus infinity.
 */
export function attentionRow({ scores, values, sink = null }, allowed, fill) {
  // The rounding to 32 bits is the point: most of the digits of the score are lost.
  const filled = (score) => (fill === null ? null : Math.max(Math.fround(Math.fround(score) + fill), LOWEST));
  const masked = scores.map((score, key) => (allowed[key] ? score : filled(score)));
  const read = masked.filter((score) => score !== null);
  // As in noren's reference, a row without a score ignores its sink: the output is 0.
  const top = Math.max(...read, ...(sink === null ? [] : [sink]));
  const exp = (score) => (score === null || read.length === 0 ? 0 : Math.exp(score - top));
  const exponentials = masked.map(exp);
  const denominator = total(exponentials) + exp(sink);
  const weights = exponentials.map((one) => (denominator > 0 ? one / denominator : 0));
  const products = weights.map((weight, key) => (values[key] ?? []).map((value) => weight * value));
  const summed = products.filter((_, key) => masked[key] !== null); // a hidden value takes no part, not even times 0
  const sum = (values[0] ?? []).map((_, at) => total(summed.map((product) => product[at])));
  return { allowed, scores, masked, exponentials, sink: exp(sink), denominator, weights, products, sum, empty: !allowed.includes(true) };
}
