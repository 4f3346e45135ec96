// The numbers of a row: scores and values that are typed, made-up numbers to start from, and the numbers of the server's model.

/** The maximum number of keys of a row that is shown in numbers. */
export const MOST_KEYS = 64;
/** The largest number that the server accepts: the largest finite 32-bit float, rounded down. */
const LARGEST = 3e38;

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
