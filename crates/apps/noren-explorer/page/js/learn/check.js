// Checks the answer to a lesson: the cells of the answer are compared with the cells of the lesson’s solution, in each case.

import { sentence } from "../mask/explain.js";

/** Returns the scene of a mask in one case of a lesson: the mask with the shape and the facts of the case. */
export const sceneOf = (mask, { shape, facts = {} }) => ({ mask, shape, facts });

const sizes = ({ q_len: q, kv_len: kv, batch, heads }) => [q, kv, batch, heads].join(" × ");

/**
 * Compares the cells of the text `answer` with the cells of the lesson's mask. Returns `{right: true}` if they are equal, otherwise
 * `{right: false, at, cell, says, why}`. `at` is the index of the first case with a different cell, `cell` is this cell `{batch, head, q,
 * k}`, `says` is a sentence about the difference, and `why` is the reason. Throws an ApiError if the answer is not a mask.
 */
export async function check(api, lesson, answer, { signal } = {}) {
  for (const [at, one] of lesson.cases.entries()) {
    const bind = (mask) => api.masks(sceneOf(mask, one), { signal });
    const given = await bind(answer); // a faulty answer is reported before anything else
    const wanted = await bind(lesson.wanted);
    if (sizes(given) !== sizes(wanted)) {
      const says = `The mask has other sizes than the task: ${sizes(given)} and not ${sizes(wanted)} (queries, keys, batch rows, heads).`;
      return { right: false, at, cell: null, says, why: lesson.hint };
    }
    const { same, first } = await api.difference(given.id, wanted.id, { signal });
    if (!same) return { right: false, at, cell: first, ...(await reason(api, lesson, { answer, given, one, first, signal })) };
  }
  return { right: true };
}

/** Returns a sentence about the first different cell, and the lesson's reason if the answer is a known mistake. */
async function reason(api, lesson, { answer, given, one, first, signal }) {
  const { batch, head, q, k, allowed_by: by } = first;
  const explained = await api.explain(given.id, { batch, head, q, k, signal });
  const word = (words, at) => (words?.[at] === undefined ? "" : ` “${words[at]}”`);
  const row = given.batch > 1 ? ` of batch row ${batch}` : "";
  const ofHead = given.heads > 1 ? ` in head ${head}` : "";
  const query = `Query ${q}${word(one.queries ?? one.words, q)}${row}`;
  const key = `key ${k}${word(one.words, k)}${ofHead}`;
  const wrong = by === "this" ? `${query} reads ${key}, but should not.` : `${query} does not read ${key}, but should.`;
  const why = await known(api, lesson, answer, { signal });
  return { says: wrong, why: why ?? `In your mask, ${sentence({ q, k }, explained)}.` };
}

/** Returns the lesson's explanation of a known mistake that has the same cells as the answer, or null. */
async function known(api, lesson, answer, { signal }) {
  const equal = async (mask) => {
    for (const one of lesson.cases) {
      const [a, b] = await Promise.all([mask, answer].map((text) => api.masks(sceneOf(text, one), { signal })));
      if (!(await api.difference(a.id, b.id, { signal })).same) return false;
    }
    return true;
  };
  for (const { mask, says } of lesson.reasons) if (await equal(mask)) return says;
  return null;
}
