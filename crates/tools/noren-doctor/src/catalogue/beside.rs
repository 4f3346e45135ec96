//! Classes of mistakes outside of the mask: in labels, losses, pooling and kernels, and over several layers.

use super::class::Fact::*;
use super::class::{Class, class};
use crate::intent::edits::Edit;

pub(super) const CLASSES: &[Class] = &[
    class("C32", "EOS_never_learned", "T2", "The end-of-text token (eos) is never a label")
        .shows("generation never ends")
        .found("texts contain the eos token, but no label is the eos token")
        .causes(&[(&[Checked], "`labels[ids == pad_id] = -100`, although pad_id equals eos_id")])
        .repair("set the labels of padding to -100 by the lengths of the texts, not by the padding id"),
    class("C33", "loss_mask_missing", "T2", "The loss is computed on padding, on prompts, or on no token")
        .shows("the loss looks normal but the model is weak; or the loss is NaN")
        .found("padding or prompt tokens have labels, or a row has no label")
        .causes(&[
            (&[Checked], "the collator copies all token ids into the labels"),
            (&[Checked], "the chat template does not mark the assistant's tokens"),
        ])
        .repair("set the labels of all tokens that the model should not learn to -100"),
    class("C34", "label_shift", "T2", "Labels are shifted twice or not at all")
        .shows("the model learns to skip one token, or learns to copy its input and the loss is 0")
        .found("the shift between labels and ids is not the shift that the model expects")
        .causes(&[
            (&[Checked], "`labels = ids[1:]` for a model that shifts labels itself"),
            (&[Checked], "`labels = ids` for a model that does not shift labels"),
        ])
        .repair("shift the labels in one place only"),
    class("C35", "loss_normaliser", "T4", "The loss is a mean of micro-batch means")
        .shows("the loss depends on the number of accumulation steps")
        .found("the mean of the micro-batch losses differs from the summed loss of all tokens divided by the number of labels")
        .causes(&[(&[], "`loss.mean()` is computed for each micro-batch")])
        .repair("divide the summed loss by the number of labels of the whole batch"),
    class("C36", "MLM_masks_padding_or_special", "T2", "Padding or special tokens have a label")
        .shows("the model predicts [PAD]")
        .found("padding or special tokens have labels")
        .causes(&[(&[], "the tokens to predict are drawn without the special-tokens mask")])
        .repair("exclude special tokens from the tokens to predict"),
    class("C37", "pooling_includes_padding", "T3", "Pooling includes padding")
        .shows("the embedding of a text depends on the other texts of the batch")
        .found("the given pooled state is the result of a formula that includes padding")
        .causes(&[
            (&[Checked], "`hidden.mean(1)`"),
            (&[Checked], "`hidden[:, -1]` with right padding"),
            (&[Checked], "`hidden[:, 0]` with left padding"),
            (&[Checked], "`hidden[arange(batch), mask.sum(1) - 1]` with left padding"),
            (&[Checked], "the mask of another batch row"),
        ])
        .repair("`(hidden * mask).sum(1) / mask.sum(1)`"),
    class("C38", "non_attention_op_leaks_padding", "T4", "Padding influences outputs outside of attention")
        .shows("outputs change if padding is added, although the attention is right")
        .found("outputs change if padding is added, although the mask hides padding; to find the module, test the modules one by one")
        .causes(&[(&[], "a convolution, batch norm or router reads padding tokens")])
        .repair("set padding tokens to zero before each operation that reads padding tokens"),
    class("C39", "NaN_through_masked_KV", "T3", "NaN in the values of hidden keys")
        .shows("outputs are sometimes NaN, depending on the old content of memory")
        .found("the values of keys that no query may read hold NaN")
        .causes(&[(&[], "paged memory is not cleared, and a product over all keys includes hidden keys: 0 * NaN is NaN")])
        .repair("skip the values of hidden keys instead of multiplying them by 0"),
    class("C40", "gradients_through_masked_rows", "T5", "Gradients through queries that read no key")
        .shows("the outputs of the forward pass are finite, but gradients are NaN")
        .found("gradients at padding positions are not exactly 0")
        .causes(&[(&[], "a row of the mask holds only -inf, and the loss of the row is masked only later")])
        .repair("let each query that reads no key read its own key"),
    class("C41", "relative_bias_with_padding", "T3", "A bias that depends on array indices instead of positions, or grows with the distance")
        .shows("outputs of a left-padded batch differ from outputs without padding")
        .found("the bias does not depend only on the distance between positions, or the bias of ALiBi grows with it")
        .causes(&[
            (&[NotCausal], "`slopes * arange(kv_len)` is used as the bias of attention that is not causal"),
            (&[Checked], "`slope * distance` is added instead of subtracted"),
        ])
        .repair("use `alibi`: the bias is -slope * |q - k|"),
    class("C42", "context_parallel_drops_mask", "T4", "Context parallelism drops the mask")
        .shows("outputs are wrong only with several ranks")
        .found("the loss at step 0 with context parallelism differs from the loss without context parallelism; test a row with one document, and a row with several documents")
        .causes(&[(&[], "the ring attention supports only causal masks")])
        .repair("give each rank the cells of the mask for its own queries and keys"),
    class("C43", "tree_mask", "T2", "Draft tokens that read their siblings in the tree")
        .shows("fewer draft tokens are accepted, and outputs differ from outputs without drafts")
        .found("the mask is triangular although two nodes of the tree share a parent, or a node does not read all its ancestors")
        .causes(&[(&[Made(Edit::TreeAsChain)], "a causal mask is used for a tree of draft tokens")])
        .repair("`keys(..n) | tree(parents)`")
        .example("causal", "tree([-1, 0, 0, 1, 1, 2])", (6, 6, 0)),
    class("C44", "batch_numerics", "T4", "Rounding that is mistaken for a leak")
        .shows("the last digits of outputs depend on the batch")
        .found("in float64 the difference between outputs is about 1e8 times smaller")
        .causes(&[(&[], "the order of the additions in a sum depends on the batch")])
        .repair("no repair is needed: the mask is correct"),
    class("C45", "memory_quadratic", "T0", "A large array that repeats cells or that an expression can replace")
        .shows("the process runs out of memory")
        .found("the array takes 16 MiB or more of memory and holds no bias; the note states whether it repeats the same cells for all heads")
        .causes(&[(&[], "`mask.repeat(batch, heads, 1, 1)`")])
        .repair("use `expand` instead of `repeat`, or a mask expression"),
    class("C46", "multi_hop_leak", "T1", "A key that is hidden directly, but read through other tokens")
        .shows("redacted content appears in outputs")
        .found("over several layers, a redacted key reaches a protected output")
        .causes(&[
            (&[NoCells], "a redacted key is hidden from one query only"),
            (&[], "the mask is built without the redactions"),
        ])
        .repair("hide the key also from each token that the protected query reads; `noren flow` shows the path from the key to the query")
        .example("causal - (queries(2) & keys(0))", "causal - (keys(0) & queries(1..))", (4, 4, 0)),
    class("C47", "cross_request_contamination", "T4", "Requests read each other's cache slots")
        .shows("answers contain text of other users")
        .found("cache slots of another sequence are visible")
        .causes(&[(&[], "cache slots are reused, and the sequence of each slot is not recorded")])
        .repair("allow a cell only if the query and the cache slot belong to the same sequence"),
    class("C48", "mask_lost_on_the_way", "T4", "A mask that does not reach attention")
        .shows("the mask argument has no effect")
        .found("on left-padded input, outputs with the mask equal outputs with a mask of ones")
        .causes(&[(&[], "the mask is passed as an argument with a wrong name, and **kwargs accepts this argument")])
        .repair("check that the mask argument arrives at the attention call"),
    class("C49", "tile_boundary_kernel", "T4", "A kernel that is wrong at the border of a tile")
        .shows("outputs are wrong at some sequence lengths only")
        .found("outputs differ from the reference at sequence lengths near multiples of 16, 64 and 128")
        .causes(&[(&[], "the kernel handles its last, partial tile wrongly")])
        .repair("report the bug to the authors of the kernel, and use another backend"),
    class("C50", "stale_or_bucketed_mask", "T1", "A mask that was built for another batch")
        .shows("outputs for the first batch are right, but outputs for the second batch are wrong")
        .found("the lengths in the mask differ from the lengths of the texts, or the mask has another number of keys")
        .causes(&[(&[Checked], "a cached mask is reused for all batches with the same rounded length")])
        .repair("build the mask of each batch from the lengths of its texts")
        .example("keys(..5)", "keys(..3)", (6, 6, 0)),
    class("C51", "RL_completion_mask", "T2", "Rewards for tokens after the end of a text")
        .shows("the GRPO loss is 0, or tokens after eos get rewards")
        .found("the completion mask does not end with the first eos after the prompt, or marks padding in a row without eos")
        .causes(&[
            (&[], "`completion_ids != pad_id`"),
            (&[Checked], "the mask is made of the first eos alone, and a text that was cut off has none"),
        ])
        .repair("let the completion mask include the tokens of the completion up to and including the first eos, or up to the padding in a row without eos"),
    class("C52", "term_missing", "T1", "A term of the mask is missing")
        .shows("the symptoms depend on the missing term")
        .found("the declared expression without one of its terms gives exactly the cells of the array")
        .causes(&[(&[], "a condition was forgotten when several masks were combined")])
        .repair("use all terms of the declared mask")
        .example("causal", "causal & stride(2)", (6, 6, 0)),
    class("C58", "wrong_operator", "T1", "Terms are combined with the wrong operator")
        .shows("outputs are wrong although each single mask is right")
        .found("the mask equals the declared mask with one term combined by `|` instead of `&`, or the reverse")
        .causes(&[(&[], "`&` and `|` are exchanged, because the masks have another convention than the code expects")])
        .repair("use `&` between masks in which true = may attend, and `|` between masks in which true = ignored")
        .example("causal | stride(2)", "causal & stride(2)", (6, 6, 0)),
    class("C59", "hidden_keys", "T2", "Keys that are no padding are hidden")
        .shows("outputs change as if single tokens were not in the text")
        .found("the array is the declared mask without some keys, which no query reads and which the declared padding does not contain")
        .repair("let the queries read these keys")
        .example("causal - keys(2)", "causal", (6, 6, 0)),
    class("C57", "unexplained_difference", "T1", "The mask differs from the declaration, and no known mistake explains the difference")
        .shows("the symptoms depend on the differing cells")
        .found("cells differ from the declared mask, and neither one nor two known mistakes explain all these cells")
        .repair("build the mask from the declaration"),
];
