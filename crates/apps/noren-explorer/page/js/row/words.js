// The computation of one row in words: its steps, its numbers as text, and what is special about a row.

import { number, plural } from "../base/dom.js";

const MINUS_INFINITY = "−∞";

/** The steps of the attention computation of one query, in order: the title of each step, and a text that explains the step. */
export const STEPS = [
  { title: "Scores", says: "The score of a key is the dot product of the query vector and the key vector, times a scale: usually 1 / √d for vectors of d numbers." },
  { title: "Masked scores", says: "The mask keeps the scores of keys that the query may read. It replaces all other scores by minus infinity." },
  { title: "Exponentials", says: "The largest masked score is subtracted from each score, which changes no weight and prevents overflow. Then e is raised to each of these numbers; minus infinity becomes 0." },
  { title: "Weights", says: "Each exponential is divided by the sum of all exponentials. The weights are at least 0 and their sum is 1; hidden keys have the weight 0." },
  { title: "Weighted sum", says: "The value vector of each key is multiplied by its weight. The sum of these products is the output of the query." },
];

/** Formats a number with `count` decimals and a true minus sign. Very large numbers have an exponent. */
export function decimals(value, count = 3) {
  const large = Math.abs(value) >= 1e6;
  return (large ? value.toExponential(2) : value.toFixed(count)).replace(/^-(?=0(\.0*)?$)/, "").replaceAll("-", "−");
}

/** Formats the first numbers of a vector: `0.250`, or `[0.1, −2.0, …]`. At most `most` numbers are shown. */
export function vector(numbers, most) {
  if (numbers.length === 1) return decimals(numbers[0]);
  return `[${numbers.slice(0, most).map((one) => decimals(one, 2)).join(", ")}${numbers.length > most ? ", …" : ""}]`;
}

/** Returns the numbers of a key in a row of `attentionRow` as text, one for each step. At most `most` numbers of a vector are shown. */
export const numbersOf = ({ scores, masked, exponentials, weights, products, sum }, key, most) => [
  decimals(scores[key]),
  masked[key] === null ? MINUS_INFINITY : decimals(masked[key]),
  decimals(exponentials[key]),
  decimals(weights[key], 4),
  masked[key] === null || sum.length === 0 ? "–" : vector(products[key], most),
];

/** Returns the word of a token in quotes, or an empty text if the token has no word. */
export const shownWord = (word) => (word === undefined || word === null ? "" : `“${word.trim() === "" ? "␣" : word.trim()}”`);

/** Describes a row in a sentence. `fill` is the number that is added to hidden scores, or null. */
export function rowInWords({ allowed, weights, empty }, { query, fill }) {
  const reads = allowed.filter(Boolean).length;
  if (empty && fill !== null) {
    return `${query} may read no key. With ${decimals(fill)} added, all its scores are almost equal, and so are the weights of all hidden keys: the query reads what the mask hides. There is no error message.`;
  }
  if (empty) {
    return `${query} may read no key. All exponentials are 0, so softmax would divide 0 by 0, and many programs return NaN. noren defines the output of such a row as 0, and its gradients too.`;
  }
  const best = weights.indexOf(Math.max(...weights));
  return `${query} reads ${plural(reads, "key")} of ${number(allowed.length)}, most of all key ${best} with the weight ${decimals(weights[best], 4)}.`;
}
