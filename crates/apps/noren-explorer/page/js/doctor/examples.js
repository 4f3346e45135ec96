// Examples of faulty masks. Each is a file of the folder `examples`, as a wrong line of code would have written it.

/**
 * The example files of the view that diagnoses masks in files. `code` is the
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
  },
  {
    id: "inverted",
    title: "Padding inverted",
    says: "A mask for an API in which true means ignore, given to an API in which true means attend.",
    code: "mask = input_ids == pad_token_id",
    name: "batch.safetensors",
    context: { kind: "bidirectional", convention: "keep_bool", pad_token_id: 0 },
  },
  {
    id: "documents",
    title: "Packed documents that read each other",
    says: "Three texts packed into one row for training, with a mask that is only causal.",
    code: "is_causal=True",
    name: "packed.safetensors",
    context: { kind: "causal_packed", convention: "keep_bool" },
  },
  {
    id: "window",
    title: "A window one key too wide or too narrow",
    says: "A window of W keys includes the query's own key in some libraries, and holds W keys before the query in others.",
    code: "(i - j >= 0) & (i - j <= window)",
    name: "window.npy",
    context: { kind: "sliding", convention: "keep_bool", window: 6, window_means: "keys visible, self included" },
  },
  {
    id: "aligned",
    title: "Causal, aligned to the top left instead of the bottom right",
    says: "Four new tokens after twelve cached tokens, with the causal triangle of an empty cache.",
    code: "torch.tril(torch.ones(q_len, kv_len)).bool()",
    name: "decode.npy",
    context: { kind: "causal", convention: "keep_bool", past_len: 12 },
  },
  {
    id: "overflow",
    title: "Two fills added",
    says: "A causal and a padding mask, each with the lowest number of its type: the sum is -inf, and -inf minus -inf is NaN.",
    code: "causal_mask + padding_mask",
    name: "sum.npy",
    context: { kind: "causal", convention: "additive", compute_dtype: "float16" },
  },
];
