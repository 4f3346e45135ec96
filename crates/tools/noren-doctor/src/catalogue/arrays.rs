//! Classes of mistakes in the storage, reading and addition of a mask array, and in the causal triangle.

use super::class::Fact::*;
use super::class::{Class, class};
use crate::intent::edits::Edit;

pub(super) const CLASSES: &[Class] = &[
    class("C01", "inverted_polarity", "T1", "Allowed and hidden cells are exchanged")
        .shows("the loss is much too low or much too high, or the output of the last query is NaN, or padding changes outputs")
        .found("the array is exactly the complement of the declared mask")
        .causes(&[
            (&[Adds], "`masked_fill(keep, -inf)` (correct: `masked_fill(~keep, -inf)`)"),
            (&[Drops], "a mask in which true means visible, such as an HF `attention_mask`, is passed where true means hidden"),
            (&[Keeps, Causal], "`torch.triu(torch.ones(L, L), 1).bool()`, in which true means hidden, is passed where true means visible"),
            (&[Keeps], "a mask in which true means hidden, such as a `key_padding_mask`, is passed where true means visible"),
        ])
        .repair("apply `~mask` once, where the mask is passed from one API to the other")
        .example("!causal", "causal", (6, 6, 0)),
    class("C02", "causal_leak", "T1", "The causal triangle is one key too wide")
        .shows("the loss falls toward 0, and generated text is garbage")
        .found("the last visible key of every non-padding query comes after the query, by the same distance for all queries")
        .causes(&[
            (&[Made(Edit::Causal(1))], "`torch.tril(torch.ones(L, L), diagonal=1)`, or `k <= q + 1`"),
            (&[Made(Edit::Causal(2))], "`torch.tril(torch.ones(L, L), diagonal=2)`"),
        ])
        .repair("`causal`")
        .example("causal(offset=1)", "causal", (6, 6, 0)),
    class("C03", "causal_self_excluded", "T1", "The causal triangle is one key too narrow")
        .shows("the output of query 0 is NaN or an even average over all keys, and the loss is slightly worse")
        .found("no query reads its own key, and the last visible key of each query is the key before its own key")
        .causes(&[(&[Made(Edit::Causal(-1))], "a wrong comparison: `k < q` (correct: `k <= q`), or `tril(diagonal=-1)` (correct: `tril(diagonal=0)`)")])
        .repair("`causal`")
        .example("causal(offset=-1)", "causal", (6, 6, 0)),
    class("C04", "causal_alignment", "T1", "The causal triangle is aligned to the top left instead of the bottom right")
        .shows("in a chat, the first answer is right, but the second answer ignores the context; a single new token reads only one key")
        .found("cached keys are declared, but the mask is the causal triangle for an empty cache")
        .causes(&[
            (&[Made(Edit::TopLeft)], "`torch.tril(torch.ones(q_len, kv_len))` or `is_causal=True` with q_len < kv_len"),
            (&[Made(Edit::BottomRight)], "`tril(diagonal=kv_len - q_len)`, although the cache has slots after the new tokens"),
        ])
        .repair("compare positions, not indices: use `causal`, and give the query offset in the shape")
        .example("window(right=-4)", "causal", (3, 7, 4)),
    class("C05", "double_mask_overflow", "T0", "Two masks that both hold finfo.min are added")
        .shows("outputs are NaN at step 0, but only in half precision and only in batches with padding")
        .found("the mask holds both -inf and the lowest number of its type; or a hidden cell holds a number that is too low for the type of the scores")
        .causes(&[
            (&[Infinite], "`causal_mask + padding_mask`, where both masks hold `torch.finfo(dtype).min`"),
            (&[], "a fill value that was chosen for a type with a larger range than the type of the scores"),
        ])
        .repair("combine the masks as booleans, then fill once: `torch.where(keep, 0, finfo.min)`"),
    class("C06", "fill_value_wrong", "T0", "A fill value that hides cells unreliably or not at all")
        .shows("hidden keys influence outputs, or outputs are NaN")
        .found("the hidden cells hold a positive number, a tiny number, or a negative number near 0")
        .causes(&[(&[Positive], "a wrong constant: `masked_fill(~keep, 1e-9)` (correct: `-1e9`), or `-float('-inf')` (correct: `float('-inf')`)")])
        .repair("fill hidden cells with `-inf`, or with the lowest number of the type"),
    class("C07", "fully_masked_row", "T0", "A query that can read no key")
        .shows("the output of a query without visible keys is NaN (which spreads to other tokens), an average over all keys, or 0, depending on the backend")
        .found("a query has no visible key; the finding is an error if the query is not padding, or if a fill of -inf makes the output NaN")
        .causes(&[
            (&[PaddingQueries, LeftPadded, Causal], "left padding is combined with a causal mask"),
            (&[PaddingQueries], "the padding mask is applied to the queries too: `mask[:, :, None] & mask[:, None, :]`"),
        ])
        .repair("let each padding query read its own key, or ignore the outputs of padding queries")
        .example("causal & keys(2..)", "causal & keys(2..) | spans([0..1, 1..2])", (6, 6, 0)),
    class("C08", "broadcast_wrong_axis", "T2", "The padding mask is applied to queries instead of keys")
        .shows("padding keys are read, padding queries read no key, and no error occurs")
        .found("all cells of a query have the same value, which depends only on whether the query is padding; or the mask is transposed")
        .causes(&[
            (&[EqualRows], "a wrong dimension: `mask.unsqueeze(3)` (correct: `mask.unsqueeze(2)`)"),
            (&[], "the mask is built as (kv_len, q_len), or is transposed"),
        ])
        .repair("use `padding`: one row of keys for each batch row, the same for all queries")
        .example("queries(..4)", "keys(..4)", (6, 6, 0)),
    class("C09", "rank_ambiguity", "T1", "A shape with two possible readings")
        .shows("the mask works for one batch size, and fails or has another meaning for other batch sizes")
        .found("the shape fits batch rows, heads, queries and keys in more than one order, and the API reads another order than the declared mask needs")
        .causes(&[
            (&[Rank(2)], "a 2-D padding mask is passed to an API that expects (q_len, kv_len)"),
            (&[Rank(3)], "the shape is (n, q_len, kv_len), and the batch size and the number of heads are both n"),
        ])
        .repair("give the mask all four dimensions: (batch, heads, q_len, kv_len)"),
    class("C10", "float01_added", "T1", "A mask of 0 and 1 is added to the scores")
        .shows("no error occurs, but the model is slightly worse: at equal scores, a padding key has 1/e of the weight of a visible key")
        .found("the mask holds 0 and 1, and the API adds these values to the scores")
        .causes(&[(&[], "`mask.float()` is passed as `attn_mask`")])
        .repair("`mask.bool()`, or `(1 - mask) * finfo.min`"),
    class("C11", "mask_built_with_NaN_or_int_ops", "T0", "Arithmetic that destroys the truth values of a mask")
        .shows("all outputs are NaN, or every query reads every key")
        .found("the mask holds NaN; or the mask holds -1 and -2, or 254 and 255, instead of 0 and 1")
        .causes(&[
            (&[NaN], "`(1 - mask) * -inf`, where 0 * -inf is NaN"),
            (&[Flipped], "`~mask` on a mask of integers"),
        ])
        .repair("use `torch.where(keep, 0, -inf)`; or use `~mask.bool()`"),
    class("C12", "mask_ignored_by_backend", "T3", "The backend ignores the mask")
        .shows("on one backend, a redaction or padding has no effect")
        .found("hidden cells have attention probabilities above 1e-6")
        .causes(&[(&[], "a fused kernel that does not support masks is chosen without a warning")])
        .repair("use another backend, and compare its outputs with the reference"),
    class("C13", "implicit_causal", "T1", "A library makes the mask causal")
        .shows("embeddings are nearly random; the first token reads only itself")
        .found("the mask of an encoder is causal")
        .causes(&[(&[], "`is_causal=getattr(module, 'is_causal', True)`")])
        .repair("pass `is_causal=False`, or pass the mask")
        .example("causal", "full", (6, 6, 0)),
    class("C14", "causal_dropped", "T1", "One code path does not use the causal mask")
        .shows("the AUC of the model is near 1, the loss is near 0, or training looks good but generated text is garbage")
        .found("the mask is declared causal, but queries read later keys")
        .causes(&[
            (&[AllVisible], "the code of one path, such as the first step with a cache (prefill), builds no mask"),
            (&[Made(Edit::TimesTriangle)], "`padding_mask * torch.triu(ones, 1)` (correct: both masks are combined as booleans)"),
            (&[Made(Edit::DropCausal), Padded], "only the padding mask is passed"),
        ])
        .repair("use `causal` on every code path")
        .example("full", "causal", (6, 6, 0)),
    class("C15", "mask_after_softmax", "T3", "The mask is applied after the softmax")
        .shows("the attention probabilities of a query with hidden keys sum to less than 1")
        .found("hidden cells have probability 0, and the probabilities of a query with hidden cells sum to less than 1")
        .causes(&[(&[], "`softmax(scores) * mask`")])
        .repair("apply the mask to the scores before the softmax"),
    class("C53", "multiplied_before_softmax", "T3", "The scores are multiplied by the mask")
        .shows("hidden keys have the attention weight of a score of 0")
        .found("all hidden cells of a query have the same probability, and this probability is above 0")
        .causes(&[(&[], "`softmax(scores * mask)`")])
        .repair("`scores.masked_fill(~mask, -inf)`"),
];
