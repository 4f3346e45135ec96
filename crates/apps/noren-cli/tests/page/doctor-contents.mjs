// The contents of the examples of the doctor view, made from their definitions.

import { bools, floats, integers, npy, safetensors } from "./doctor-files.mjs";

/** Returns the values `keep(q, k)` of all `q_len * kv_len` cells as one list, query by query. */
const cells = (q_len, kv_len, keep) => Array.from({ length: q_len * kv_len }, (_, at) => keep(Math.floor(at / kv_len), at % kv_len));

const square = (len, keep) => bools([len, len], cells(len, len, keep));

/** Returns a list with the document number of each token. `lengths` are the lengths of the documents; the first document has number 1. */
const segments = (lengths) => lengths.flatMap((length, index) => Array(length).fill(index + 1));

const PACKED = [7, 5, 8];
const OF = segments(PACKED);
const REAL = [9, 6];

/** The content of each example file. */
export const CONTENTS = {
  "mask.npy": () => npy(square(16, (q, k) => k <= q + 1)),
  "batch.safetensors": () =>
      safetensors({
        mask: bools([2, 1, 1, 12], REAL.flatMap((real) => Array.from({ length: 12 }, (_, k) => k >= real))),
        input_ids: integers([2, 12], REAL.flatMap((real) => Array.from({ length: 12 }, (_, k) => (k < real ? 5 + k : 0)))),
      }),
  "packed.safetensors": () =>
      safetensors({
        mask: square(20, (q, k) => k <= q),
        segment_ids: integers([1, 20], OF),
      }),
  "window.npy": () => npy(square(24, (q, k) => k <= q && q - k <= 6)),
  "decode.npy": () => npy(bools([4, 16], cells(4, 16, (q, k) => k <= q))),
  "sum.npy": () => {
      const lowest = -65504;
      const value = (q, k) => (k > q ? lowest : 0) + (k < 3 ? lowest : 0);
      return npy(floats([1, 1, 12, 12], cells(12, 12, value)));
    },
};
