//! Classes of mistakes in one term of a mask: padding, caches, windows, chunks, documents, prefixes, batch rows.

use super::class::Fact::*;
use super::class::{Class, class};
use crate::intent::edits::Edit;

pub(super) const CLASSES: &[Class] = &[
    class("C16", "padding_keys_visible", "T2", "Padding keys are visible")
        .shows("the outputs for a text in a batch differ from the outputs for the text alone")
        .found("a non-padding query may read a padding key")
        .causes(&[
            (&[AllVisible], "the attention function gets no mask, or a mask of ones"),
            (&[Triangle], "only a causal mask is passed, for example by `is_causal=True`"),
        ])
        .repair("`padding`")
        .example("full", "keys(..4)", (6, 6, 0)),
    class("C17", "position_ids", "T2", "Position ids that count padding")
        .shows("outputs for the short texts of a batch are wrong, but outputs for the longest text are right")
        .found("the position id of a token is not the number of non-padding tokens before the token; if the position encoding is relative, a constant shift of the position ids is reported only as a note")
        .causes(&[
            (&[Checked], "`torch.arange(L)` is used as position ids of left-padded texts"),
            (&[Checked], "the position ids are padded at the other end of the rows than the tokens"),
            (&[Checked], "`torch.arange(L)` is used as position ids of packed documents"),
        ])
        .repair("`(mask.cumsum(-1) - 1).clamp(min=0)`"),
    class("C54", "padding_side", "T2", "Padding is at the wrong end of the texts")
        .shows("generated continuations of short texts are wrong")
        .found("the last token of a batch row is padding but the logits of this token are used, or the padding is not at the declared end")
        .causes(&[
            (&[NoCells], "`tokenizer.padding_side` is left at its default value"),
            (&[], "the mask is built for another `padding_side` than the tokens have"),
        ])
        .repair("set `padding_side=\"left\"` for generation")
        .example("keys(..4)", "keys(2..)", (6, 6, 0)),
    class("C18", "stale_decode_mask", "T1", "A mask that does not grow with the cache")
        .shows("the first generated token is right, but later tokens get worse")
        .found("the mask has fewer keys than the number of cached and new tokens, or hides the keys of some of these tokens")
        .causes(&[(&[], "the attention mask of the prompt is passed at every step")])
        .repair("append a 1 to the mask for each new token, so that the mask has past + q_len keys")
        .example("keys(..4)", "full", (2, 6, 4)),
    class("C19", "unwritten_cache_visible", "T1", "Unwritten cache slots are visible")
        .shows("generated text is garbage if the cache is much longer than the text")
        .found("cache slots with index past + q_len or higher, which hold no token, are visible")
        .causes(&[(&[], "the mask is built for the capacity of the static cache instead of its written slots")])
        .repair("hide the cache slots with index past + q_len or higher")
        .example("causal | keys(5..)", "causal", (2, 8, 3)),
    class("C20", "ring_buffer_misaligned", "T2", "Ring buffer slots are used as positions")
        .shows("outputs are right until the ring buffer is full, and wrong afterwards")
        .found("the mask equals the declared mask only if the cache slot of each key is used as the position of the key")
        .causes(&[
            (&[Made(Edit::SlotOrder { queries: true })], "`arange(cache_len)` is used as key positions after the ring buffer has wrapped"),
            (&[], "the mask is built for another place of the newest token in the ring buffer"),
        ])
        .repair("give the positions of the keys with `Facts::positions`"),
    class("C21", "sliding_window_off_by_one", "T1", "A window one key too wide or too narrow")
        .shows("outputs differ slightly from the reference model after the first window")
        .found("queries with a complete window read one key more or one key fewer than the declared width")
        .causes(&[
            (&[Made(Edit::Window(1)), WithSelf], "a wrong comparison: `q - k <= W` (correct: `q - k < W`)"),
            (&[Made(Edit::Window(-1)), WithSelf], "a wrong comparison: `q - k < W - 1` (correct: `q - k < W`)"),
            (&[Made(Edit::Window(-1)), WithoutSelf], "a wrong comparison: `q - k < W` (correct for a width that does not count the query: `q - k <= W`)"),
        ])
        .repair("use `sliding(W)`: each query reads W keys, including the query's own key")
        .example("sliding(4)", "sliding(3)", (8, 8, 0)),
    class("C22", "window_missing_or_wrong_layer", "T1", "A window that is missing or belongs to another layer")
        .shows("outputs equal the reference within the first window and are garbage after the first window")
        .found("queries of a layer that is declared sliding read more keys than the window has")
        .causes(&[
            (&[Made(Edit::DropWindow)], "the masks of sliding and full layers are exchanged; or two masks have the same name"),
            (&[Made(Edit::WindowAside)], "`tril(diagonal=W)` (correct: `tril(diagonal=-W)`)"),
            (&[NoWindow], "the mask of a sliding layer is used for a full layer"),
        ])
        .repair("give each layer its own mask: `layers(every 2: sliding(W), else: causal)`")
        .example("causal", "sliding(3)", (8, 8, 0)),
    class("C23", "chunk_boundary", "T1", "Chunks are counted from the wrong token")
        .shows("outputs of left-padded batch rows differ from outputs without padding")
        .found("chunks are counted from the start of the row instead of from the first non-padding token")
        .causes(&[(&[Made(Edit::ChunkFromSlot)], "`arange(L) // chunk` is used as chunk numbers of left-padded texts")])
        .repair("count chunks from the first non-padding token")
        .example("causal & chunk(3) & keys(1..)", "causal & documents([4, 3, 1]) & keys(1..)", (8, 8, 0)),
    class("C24", "cross_document", "T2", "Documents read each other")
        .shows("a generated document continues the previous document; or the loss at step 0 is 1.8 times as high as with the correct mask")
        .found("a non-padding query reads a key of another document")
        .causes(&[
            (&[Triangle], "documents are packed under a plain causal mask; or the backend drops the segment ids"),
            (&[Made(Edit::DropDocuments)], "the backend drops the segment ids"),
        ])
        .repair("`causal & documents`")
        .example("causal", "causal & documents([3, 3])", (6, 6, 0)),
    class("C55", "segment_ids_cast_to_bool", "T2", "Segment numbers are used as truth values")
        .shows("documents read each other, although the collator looks right")
        .found("the mask holds segment numbers (0, 1, 2, ...), but only 0 and 1 are expected")
        .causes(&[(&[], "`.bool()` is applied to an `attention_mask` of segment numbers")])
        .repair("compare the segment numbers: `segments[q] == segments[k]`")
        .example("causal", "causal & documents([3, 3])", (6, 6, 0)),
    class("C25", "document_boundary_off_by_one", "T2", "Document boundaries are shifted by one or two tokens")
        .shows("the last token of a document belongs to the next document")
        .found("all document boundaries in the mask are one or two tokens before or after the boundaries in the segment numbers; or cu_seqlens does not increase, or ends with a wrong number")
        .causes(&[(&[Made(Edit::Borders { by: -1, alone: true })], "`cumsum(ids == eos)` is used as segment numbers without a shift")])
        .repair("shift the sum by one token: `cumsum(ids == eos) - (ids == eos)`")
        .example("causal & documents([2, 3, 1])", "causal & documents([3, 3])", (6, 6, 0)),
    class("C26", "boundary_label", "T2", "A document that ends with a label from the next document")
        .shows("the model generates another document after eos")
        .found("the label of the last token of a document is the first token of the next document")
        .causes(&[(&[], "labels are shifted over the whole packed row, also from one document to the next")])
        .repair("set the label of the last token of each document to ignore_index"),
    class("C27", "prefix_lm_or_block_wrong", "T1", "A prefix or a block that is causal or too long")
        .shows("training and inference differ; the loss is too low if answers can read their labels")
        .found("the mask equals the declared mask without the prefix or the block, or the declared mask with the whole text as prefix")
        .causes(&[
            (&[Made(Edit::DropPrefix)], "`is_causal=True` is passed for a prefix-LM"),
            (&[Made(Edit::WholePrefix)], "`prefix_len` is the length of the whole text"),
            (&[Made(Edit::DropBlocks)], "a causal mask is built without the blocks"),
            (&[Made(Edit::MergeBlocks)], "blocks are compared as flags: `is_image[:, None] == is_image[None, :]`"),
        ])
        .repair("`causal | prefix(n)`")
        .example("causal", "causal | prefix(3)", (6, 6, 0)),
    class("C56", "padding_unmasked_by_later_op", "T2", "Padding is hidden and then made visible again")
        .shows("padding is read inside the prefix or an image block")
        .found("the mask equals the declared mask if padding is hidden before the prefix or the block is added")
        .causes(&[(&[], "`causal & padding | prefix`, without parentheses around `causal | prefix`")])
        .repair("`(causal | prefix) & padding`")
        .example("causal & keys(2..) | keys(..4)", "(causal | keys(..4)) & keys(2..)", (6, 6, 0)),
    class("C28", "cross_attention_mask", "T1", "A decoder's mask is applied to encoder keys")
        .shows("padding in the input of the encoder changes translations")
        .found("the cross-attention mask is triangular, holds only ones, or is the padding mask of the decoder")
        .causes(&[
            (&[AllVisible], "no mask is passed to the cross-attention, or a mask of ones"),
            (&[Triangle], "the decoder's causal mask is passed: `attn_mask=decoder_mask` (correct: `attn_mask=encoder_mask`)"),
            (&[EqualRows], "the decoder's padding is passed: `attn_mask=decoder_mask` (correct: `attn_mask=encoder_mask`)"),
        ])
        .repair("use a mask with one row of encoder keys, the same row for all queries")
        .example("causal", "keys(..4)", (5, 6, 0)),
    class("C29", "head_batch_layout", "T1", "Heads are stored before batch rows")
        .shows("the outputs for a text depend on the other texts of the batch, and are correct with batch size 1")
        .found("the mask equals the declared mask if heads come before batch rows in the first dimension, but the API expects batch rows before heads")
        .causes(&[(&[], "a wrong function: `mask.repeat(heads, 1, 1)` (correct: `mask.repeat_interleave(heads, 0)`)")])
        .repair("`mask.repeat_interleave(heads, 0)`"),
    class("C30", "batch_row_wrong", "T2", "Every batch row has the mask of batch row 0")
        .shows("outputs for the short texts of a batch are wrong")
        .found("all batch rows have equal masks although the lengths of the texts differ, or only the mask of batch row 0 is right")
        .causes(&[(&[EqualBatch], "a mask is built for `ids[0]` and broadcast over the batch")])
        .repair("build one mask for each batch row"),
    class("C31", "pad_equals_eos_holes", "T2", "Tokens at the ends of texts are hidden like padding")
        .shows("in prompts with several turns, the tokens that end a turn are hidden")
        .found("the mask hides exactly those non-padding tokens whose id is that of padding or of ends of texts")
        .causes(&[(&[], "the mask is made as `ids != eos_id`, or as `ids != pad_id` with a pad_id that equals eos_id")])
        .repair("build the mask from lengths, not from ids")
        .example("keys([..2, 3..])", "full", (6, 6, 0)),
];
