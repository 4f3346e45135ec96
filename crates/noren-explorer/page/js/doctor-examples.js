// Examples of faulty masks. Each is made here as the file that a wrong line of code would have written.

import { bools, floats, integers, npy, safetensors } from "./doctor-files.js";

/** Returns the values `keep(q, k)` of all `q_len * kv_len` cells as one list, query by query. */
const cells = (q_len, kv_len, keep) => Array.from({ length: q_len * kv_len }, (_, at) => keep(Math.floor(at / kv_len), at % kv_len));

const square = (len, keep) => bools([len, len], cells(len, len, keep));

/** Returns a list with the document number of each token. `lengths` are the lengths of the documents; the first document has number 1. */
const segments = (lengths) => lengths.flatMap((length, index) => Array(length).fill(index + 1));

const PACKED = [7, 5, 8];
const OF = segments(PACKED);
const REAL = [9, 6];

/**
 * The example files of the view that diagnoses masks in files. `bytes()` returns the content of a file, `code` is the
 * line of Python that made the faulty mask, and `context` and `meant` are the declarations.
 */
export const EXAMPLES = [
  {
    id: "wide",
    title: "Causal mask with one key too many",
    says: "A causal triangle in which every query reads the token that it must predict.",
    code: "torch.tril(torch.ones(16, 16), diagonal=1).bool()",
    name: "mask.npy",
    context: { kind: "causal", convention: "keep_bool" },
    bytes: () => npy(square(16, (q, k) => k <= q + 1)),
  },
  {
    id: "inverted",
    title: "Padding inverted",
    says: "A mask for an API in which true means ignore, given to an API in which true means attend.",
    code: "mask = input_ids == pad_token_id",
    name: "batch.safetensors",
    context: { kind: "bidirectional", convention: "keep_bool", pad_token_id: 0 },
    bytes: () =>
      safetensors({
        mask: bools([2, 1, 1, 12], REAL.flatMap((real) => Array.from({ length: 12 }, (_, k) => k >= real))),
        input_ids: integers([2, 12], REAL.flatMap((real) => Array.from({ length: 12 }, (_, k) => (k < real ? 5 + k : 0)))),
      }),
  },
  {
    id: "documents",
    title: "Packed documents that read each other",
    says: "Three texts packed into one row for training, with a mask that is only causal.",
    code: "is_causal=True",
    name: "packed.safetensors",
    context: { kind: "causal_packed", convention: "keep_bool" },
    bytes: () =>
      safetensors({
        mask: square(20, (q, k) => k <= q),
        segment_ids: integers([1, 20], OF),
      }),
  },
  {
    id: "window",
    title: "A window one key too wide or too narrow",
    says: "A window of W keys includes the query's own key in some libraries, and holds W keys before the query in others.",
    code: "(i - j >= 0) & (i - j <= window)",
    name: "window.npy",
    context: { kind: "sliding", convention: "keep_bool", window: 6, window_means: "keys visible, self included" },
    bytes: () => npy(square(24, (q, k) => k <= q && q - k <= 6)),
  },
  {
    id: "aligned",
    title: "Causal, aligned to the top left instead of the bottom right",
    says: "Four new tokens after twelve cached tokens, with the causal triangle of an empty cache.",
    code: "torch.tril(torch.ones(q_len, kv_len)).bool()",
    name: "decode.npy",
    context: { kind: "causal", convention: "keep_bool", past_len: 12 },
    bytes: () => npy(bools([4, 16], cells(4, 16, (q, k) => k <= q))),
  },
  {
    id: "overflow",
    title: "Two fills added",
    says: "A causal and a padding mask, each with the lowest number of its type: the sum is -inf, and -inf minus -inf is NaN.",
    code: "causal_mask + padding_mask",
    name: "sum.npy",
    context: { kind: "causal", convention: "additive", compute_dtype: "float16" },
    bytes: () => {
      const lowest = -65504;
      const value = (q, k) => (k > q ? lowest : 0) + (k < 3 ? lowest : 0);
      return npy(floats([1, 1, 12, 12], cells(12, 12, value)));
    },
  },
];
