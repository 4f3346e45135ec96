//! The edits: each edit turns a correct mask into the mask that a known mistake produces.

use crate::intent::{Hidden, Intent, PerRow, number};
use crate::read::words::counted;
use noren_mask::bits::{bit, row_of, set_bit};
use std::rc::Rc;

/// A known mistake in one term of a mask. Each variant describes how the mistake changes a correct mask.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Edit {
    /// Moves the causal diagonal by this number of keys; positive: towards later keys.
    Causal(i64),
    /// Gives query 0 the position 0, although cached keys come before the queries.
    TopLeft,
    /// Gives query 0 the position `kv_len - q_len`, as if the queries were the last tokens, although the declarations
    /// give another position.
    BottomRight,
    /// Removes causality, so queries also read later keys.
    DropCausal,
    /// Multiplies an additive mask (0 allows, a large negative number denies) by a triangle of ones and zeros. The product
    /// is 0 for later keys, so the mask allows them.
    TimesTriangle,
    /// Adds causality to a mask that is not causal.
    AddCausal,
    /// Makes the window wider by this number of keys; negative: narrower.
    Window(i64),
    /// Removes the window, so queries read keys at any distance.
    DropWindow,
    /// Cuts the window on the wrong side: a query reads all earlier keys, and the keys that are later than the width of the window.
    WindowAside,
    /// Adds a window in which a query reads this number of keys before itself.
    AddWindow(i64),
    /// Counts chunks from the start of the row, padding included, instead of from the first non-padding token.
    ChunkFromSlot,
    /// Makes each chunk longer by this number of keys; negative: shorter.
    ChunkSize(i64),
    /// Moves the boundaries between chunks by this number of tokens; positive: towards later tokens.
    ChunkShift(i64),
    /// Removes the chunks, so queries read keys of other chunks.
    DropChunk,
    /// Removes the documents, so packed documents read each other.
    DropDocuments,
    /// Moves every boundary between documents by `by` tokens; negative: towards earlier tokens. If `alone` is true and
    /// `by` is negative, the last `-by` tokens of the last document become a separate document.
    Borders { by: i64, alone: bool },
    /// Removes the padding term, so padding keys are visible.
    DropPadding,
    /// Hides the rows of padding queries instead of the padding keys.
    PaddingOnQueries,
    /// Hides padding first and then adds the prefix or the blocks (groups of tokens that read each other, such as an
    /// image), so the prefix or the blocks make padding visible again. If `within` is true, only queries inside the
    /// prefix read the prefix.
    PaddingFirst { within: bool },
    /// Applies the window last, so that the window also hides keys of the prefix or of blocks (groups of tokens that
    /// read each other, such as an image).
    WindowLast,
    /// Removes the prefix, so its tokens are no longer visible to all queries.
    DropPrefix,
    /// Makes the whole text the prefix, so every query reads all keys of the text.
    WholePrefix,
    /// Makes the prefix longer by this number of keys; negative: shorter.
    Prefix(i64),
    /// Removes the blocks: the tokens of a block, such as an image, no longer all read each other.
    DropBlocks,
    /// Makes one block of all blocks of a batch row.
    MergeBlocks,
    /// Replaces the tree of draft tokens by a causal mask.
    TreeAsChain,
    /// Uses the index of each key in the cache (its slot) as the position of the key. If `queries` is true, the slot of
    /// each query is used as the position of the query too.
    SlotOrder { queries: bool },
    /// Allows queries to read cache slots that are not written yet.
    Unwritten,
    /// Hides the keys of the new tokens. A mask has this mistake if it was not extended when the cache grew.
    Stale,
    /// Removes causality and hides the cache slots that are not written yet.
    DropCausalWritten,
    /// Moves the causal diagonal by this number of keys (positive: towards later keys), and hides the cache slots that
    /// are not written yet.
    CausalWritten(i64),
    /// Removes the redactions, so redacted keys are visible.
    DropRedactions,
    /// Combines a term with the rest of the mask by "or" instead of "and": a cell is visible if the term or the rest allows it.
    /// The term is padding, or if `documents` is true the documents.
    Either { documents: bool },
    /// Removes the sinks (first keys that every query should read), so other terms such as the window hide these keys.
    DropSinks,
}

/// A mistake in the handling of the finished mask array. Each variant describes how the mistake changes the array.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Post {
    /// Changes nothing: the finished array was handled correctly.
    None,
    /// Hides the allowed cells and allows the hidden cells.
    Complement,
    /// Exchanges the dimensions of queries and keys.
    Transpose,
    /// Gives every batch row the mask of batch row 0.
    RowZero,
    /// Shifts the columns of the array (the keys) cyclically by this number of columns, towards later keys.
    Roll(usize),
}

impl Edit {
    /// All mistakes whose numbers are fixed, such as a diagonal moved by one key; the most frequent mistakes are first.
    /// Mistakes whose numbers depend on the given array are not in the list.
    pub(crate) const ALL: &'static [Edit] = &[
        Edit::Causal(1),
        Edit::Causal(-1),
        Edit::TopLeft,
        Edit::BottomRight,
        Edit::DropCausal,
        Edit::TimesTriangle,
        Edit::AddCausal,
        Edit::Window(1),
        Edit::Window(-1),
        Edit::DropWindow,
        Edit::WindowAside,
        Edit::ChunkFromSlot,
        Edit::ChunkShift(1),
        Edit::ChunkShift(-1),
        Edit::ChunkSize(1),
        Edit::ChunkSize(-1),
        Edit::DropChunk,
        Edit::DropDocuments,
        Edit::Borders { by: -1, alone: true },
        Edit::Borders { by: -1, alone: false },
        Edit::Borders { by: 1, alone: false },
        Edit::DropPadding,
        Edit::PaddingOnQueries,
        Edit::PaddingFirst { within: false },
        Edit::PaddingFirst { within: true },
        Edit::WindowLast,
        Edit::DropPrefix,
        Edit::WholePrefix,
        Edit::Prefix(1),
        Edit::Prefix(-1),
        Edit::DropBlocks,
        Edit::MergeBlocks,
        Edit::TreeAsChain,
        Edit::SlotOrder { queries: true },
        Edit::SlotOrder { queries: false },
        Edit::Unwritten,
        Edit::Stale,
        Edit::DropCausalWritten,
        Edit::CausalWritten(1),
        Edit::CausalWritten(2),
        Edit::DropRedactions,
        Edit::DropSinks,
        Edit::Either { documents: false },
        Edit::Either { documents: true },
        Edit::Causal(2),
        Edit::Causal(-2),
        Edit::Borders { by: -2, alone: false },
        Edit::Borders { by: 2, alone: false },
    ];

    /// Returns the mistakes of `Edit::ALL` that are possible for `intent`.
    pub(crate) fn all(intent: &Intent) -> Vec<Edit> {
        Self::ALL.iter().copied().filter(|edit| edit.apply(intent).is_some()).collect()
    }

    /// Returns `intent` with this mistake; `None` if the mistake is not possible for `intent`.
    pub(crate) fn apply(self, intent: &Intent) -> Option<Intent> {
        let terms =
            [Edit::in_causality, Edit::in_window, Edit::in_chunks, Edit::in_groups, Edit::in_padding, Edit::in_cache];
        terms.into_iter().find_map(|edit| edit(self, intent))
    }

    fn in_causality(self, intent: &Intent) -> Option<Intent> {
        let mut out = intent.clone();
        let last = intent.kv_len as i64 - intent.q_len as i64;
        match self {
            Edit::Causal(by) => out.causal = Some(intent.causal? + by),
            Edit::TopLeft | Edit::BottomRight if intent.k_positions.is_some() => return None,
            Edit::TopLeft if intent.has_past() => out.past = Rc::new(vec![0]),
            Edit::BottomRight if intent.past.iter().any(|p| *p != last) => out.past = Rc::new(vec![last]),
            Edit::DropCausal if intent.causal.is_some() => (out.causal, out.tail) = (None, None),
            Edit::TimesTriangle if intent.causal.is_some() && intent.k_positions.is_none() && intent.tree.is_none() => {
                out.future = Some(1)
            }
            Edit::AddCausal if intent.causal.is_none() && intent.tree.is_none() => out.causal = Some(0),
            Edit::TreeAsChain => {
                intent.tree.as_ref()?;
                (out.tree, out.causal, out.past) = (None, Some(0), Rc::new(vec![last]));
            }
            _ => return None,
        }
        Some(out)
    }

    fn in_window(self, intent: &Intent) -> Option<Intent> {
        let mut out = intent.clone();
        match self {
            Edit::Window(by) => {
                out.left = Some(intent.left? + by);
                out.right = intent.right.map(|r| r + by);
            }
            Edit::DropWindow => {
                intent.left?;
                (out.left, out.right) = (None, None);
            }
            Edit::AddWindow(left) if intent.left.is_none() => {
                out.left = Some(left);
                if intent.causal.is_none() {
                    out.right = Some(left);
                }
            }
            Edit::WindowLast if intent.left.is_some() && (intent.prefix.is_some() || intent.blocks.is_some()) => {
                out.window_last = true
            }
            Edit::WindowAside if intent.causal.is_some() && intent.left.is_some() && intent.k_positions.is_none() => {
                out.future = intent.left.map(|left| left + 2);
                out.left = None;
            }
            Edit::DropSinks if intent.sinks > 0 => out.sinks = 0,
            _ => return None,
        }
        Some(out)
    }

    fn in_chunks(self, intent: &Intent) -> Option<Intent> {
        let (size, origins) = intent.chunk.clone()?;
        let chunk = match self {
            Edit::ChunkFromSlot if origins.iter().any(|o| o % size != 0) => Some((size, Rc::new(vec![0]))),
            Edit::ChunkSize(by) => (size + by > 0).then_some((size + by, origins)),
            Edit::ChunkShift(by) => Some((size, Rc::new(origins.iter().map(|o| o + by).collect()))),
            Edit::DropChunk => None,
            _ => return None,
        };
        Some(Intent { chunk, ..intent.clone() })
    }

    /// If this mistake is in documents, prefixes or blocks, returns `intent` with this mistake; otherwise `None`.
    fn in_groups(self, intent: &Intent) -> Option<Intent> {
        let mut out = intent.clone();
        match self {
            Edit::DropDocuments if intent.segments.is_some() => out.segments = None,
            Edit::Either { documents: true } if intent.segments.is_some() => out.either = (true, out.either.1),
            Edit::Borders { by, alone } => {
                let rows = intent.segments.as_ref()?;
                out.segments = Some(Rc::new(rows.iter().map(|r| moved(r, by, alone)).collect()));
            }
            Edit::DropPrefix if intent.prefix.is_some() => out.prefix = None,
            Edit::WholePrefix if intent.prefix.is_some() => out.prefix = Some(Rc::new(vec![intent.kv_len as i64])),
            Edit::Prefix(by) => out.prefix = Some(Rc::new(intent.prefix.as_ref()?.iter().map(|n| n + by).collect())),
            Edit::DropBlocks if intent.blocks.is_some() => out.blocks = None,
            Edit::MergeBlocks => {
                let merged = |r: &Vec<i64>| r.iter().map(|block| (*block).min(0)).collect();
                out.blocks = Some(Rc::new(intent.blocks.as_ref()?.iter().map(merged).collect()));
            }
            _ => return None,
        }
        Some(out)
    }

    /// If this mistake is in padding or redactions, returns `intent` with this mistake; otherwise `None`.
    fn in_padding(self, intent: &Intent) -> Option<Intent> {
        let mut out = intent.clone();
        match self {
            Edit::DropRedactions if !intent.redactions.is_empty() => out.redactions = Rc::new(Vec::new()),
            _ if intent.valid.is_none() => return None,
            Edit::DropPadding => out.valid = None,
            Edit::Either { documents: false } => out.either = (out.either.0, true),
            Edit::PaddingOnQueries => out.padding_on_queries = true,
            Edit::PaddingFirst { within } if intent.prefix.is_some() || !within && intent.blocks.is_some() => {
                (out.padding_first, out.prefix_within) = (true, within);
            }
            _ => return None,
        }
        Some(out)
    }

    /// If this mistake is in the order of cache slots or at the end of the cache, returns `intent` with this mistake;
    /// otherwise `None`.
    fn in_cache(self, intent: &Intent) -> Option<Intent> {
        let mut out = intent.clone();
        let written = |b: usize| number(&intent.past, b) + intent.q_len as i64;
        match self {
            Edit::SlotOrder { queries } => {
                intent.k_positions.as_ref()?;
                (out.k_positions, out.valid) = (None, None);
                if queries {
                    out.q_positions = None;
                    out.past = Rc::new(vec![intent.kv_len as i64 - intent.q_len as i64]);
                }
            }
            Edit::Unwritten if intent.causal.is_some() || intent.has_past() => {
                let last = (0..intent.batch).map(written).max().unwrap_or(intent.q_len as i64);
                let last = usize::try_from(last).ok().filter(|w| *w < intent.kv_len)?;
                out.tail = Some(last);
                // Padding that hides no written slot only marks the unwritten slots, so the mistake removes this
                // padding.
                let padded = |rows: &PerRow<u64>| rows.iter().any(|r| (0..last).any(|k| !bit(r, k)));
                out.valid = intent.valid.clone().filter(padded);
            }
            Edit::Stale if intent.k_positions.is_none() && intent.tree.is_none() && intent.has_past() => {
                out.redactions = hidden_from(intent, |b| number(&intent.past, b));
            }
            Edit::DropCausalWritten | Edit::CausalWritten(_)
                if intent.causal.is_some()
                    && intent.k_positions.is_none()
                    && (0..intent.batch).any(|b| written(b) < intent.kv_len as i64) =>
            {
                out.causal = match self {
                    Edit::CausalWritten(by) => intent.causal.map(|offset| offset + by),
                    _ => None,
                };
                out.redactions = hidden_from(intent, written);
            }
            _ => return None,
        }
        Some(out)
    }

    /// Returns the name of the mistake's class in the catalogue.
    pub(crate) fn class(self, intent: &Intent) -> &'static str {
        match self {
            Edit::CausalWritten(_) => "causal_leak",
            Edit::Causal(by) if by > 0 => "causal_leak",
            Edit::Causal(_) => "causal_self_excluded",
            Edit::TopLeft | Edit::BottomRight => "causal_alignment",
            Edit::DropCausal | Edit::DropCausalWritten | Edit::TimesTriangle => "causal_dropped",
            Edit::AddCausal => "implicit_causal",
            Edit::Window(by) if by.abs() <= 1 => "sliding_window_off_by_one",
            Edit::Window(_) | Edit::DropWindow | Edit::WindowAside | Edit::AddWindow(_) => {
                "window_missing_or_wrong_layer"
            }
            Edit::ChunkFromSlot | Edit::ChunkSize(_) | Edit::ChunkShift(_) | Edit::DropChunk => "chunk_boundary",
            Edit::DropDocuments => "cross_document",
            Edit::Borders { .. } => "document_boundary_off_by_one",
            Edit::DropPadding => "padding_keys_visible",
            Edit::PaddingOnQueries => "broadcast_wrong_axis",
            Edit::PaddingFirst { .. } => "padding_unmasked_by_later_op",
            Edit::WindowLast | Edit::DropPrefix | Edit::WholePrefix | Edit::Prefix(_) => "prefix_lm_or_block_wrong",
            Edit::DropBlocks | Edit::MergeBlocks => "prefix_lm_or_block_wrong",
            Edit::TreeAsChain => "tree_mask",
            Edit::SlotOrder { .. } => "ring_buffer_misaligned",
            Edit::Unwritten => "unwritten_cache_visible",
            Edit::Stale => "stale_decode_mask",
            Edit::DropRedactions => "multi_hop_leak",
            Edit::DropSinks if intent.left.is_some() => "window_missing_or_wrong_layer",
            Edit::DropSinks => "unexplained_difference",
            Edit::Either { .. } => "wrong_operator",
        }
    }

    /// Returns the description of the mistake for a finding.
    pub(crate) fn says(self, intent: &Intent) -> String {
        let left = intent.left.unwrap_or(0);
        match self {
            Edit::Causal(by) if by > 0 => {
                format!("each query reads {} after itself: with next-token training the query reads its own target (tril(diagonal={by}))", counted(by, "key"))
            }
            Edit::Causal(by) => {
                let first = if number(&intent.past, 0) + by < 0 { ", and the first query reads no key" } else { "" };
                format!("the last visible key of each query is {} before the query's own key{first} (tril(diagonal={by}))", counted(-by, "key"))
            }
            Edit::TopLeft => format!(
                "the causal triangle is aligned to the top left: query 0 reads 1 key instead of {}, so the cached context is hidden",
                number(&intent.past, 0).min(intent.left.unwrap_or(i64::MAX - 1)) + 1
            ),
            Edit::BottomRight => "the causal triangle is aligned to the bottom right, as if the queries were the last tokens".into(),
            Edit::DropCausal => "the mask is not causal: every query reads all later keys".into(),
            Edit::CausalWritten(by) => Edit::Causal(by).says(intent),
            Edit::DropCausalWritten => "the mask is not causal: every query reads all written slots of the cache".into(),
            Edit::TimesTriangle => "all later keys are visible, padding included: an additive mask was multiplied by a triangle, which sets the cells of later keys to 0".into(),
            Edit::AddCausal => "the mask is causal although queries should also read later keys: a causal mask was added by mistake".into(),
            Edit::Window(by) => match intent.right {
                Some(right) if right == left => {
                    format!("the window holds {} keys on each side of the query, but {left} are declared", left + by)
                }
                Some(_) => format!("each side of the window is {} {} than declared", counted(by.abs(), "key"), longer(by)),
                None => {
                    let (holds, declared) = (left + 1 + by, left + 1);
                    format!("the window holds {holds} keys including the query itself, but {declared} are declared")
                }
            },
            Edit::DropWindow => "the declared window is missing: every query reads all earlier keys (perhaps the mask is for another layer)".into(),
            Edit::WindowAside => format!("the window is cut on the wrong side: each query reads all earlier keys, and later keys except the next {} (perhaps a sign is wrong)", left + 1),
            Edit::AddWindow(l) => format!("keys at a distance of more than {l} before the query are hidden, but no window is declared (perhaps the mask is for another layer)"),
            Edit::ChunkFromSlot => "chunks are counted from the start of the row instead of from the first non-padding token: left padding shifts the chunks".into(),
            Edit::ChunkSize(by) => format!("the chunks are {} {} than declared", counted(by.abs(), "key"), longer(by)),
            Edit::ChunkShift(by) => format!("the boundaries between chunks are {} too {}", counted(by.abs(), "token"), if by > 0 { "late" } else { "early" }),
            Edit::DropChunk => "the declared chunks are missing: queries read keys of other chunks".into(),
            Edit::DropDocuments => "documents packed into one row read each other".into(),
            Edit::Borders { by: -1, .. } => {
                "each boundary between documents is one token too early: the last token of a document becomes the first token of the next document (cumsum(ids == eos) without a shift)"
                    .into()
            }
            Edit::Borders { by: 1, .. } => "each boundary between documents is one token too late: the first token of a document still belongs to the previous document".into(),
            Edit::Borders { by, .. } if by < 0 => format!(
                "each boundary between documents is {0} tokens too early: the last {0} tokens of a document become the first tokens of the next document",
                by.unsigned_abs()
            ),
            Edit::Borders { by, .. } => format!(
                "each boundary between documents is {by} tokens too late: the first {by} tokens of a document still belong to the previous document"
            ),
            Edit::DropPadding => "padding keys are visible to non-padding queries".into(),
            Edit::PaddingOnQueries => "padding is applied to queries (unsqueeze(3)) instead of keys: padding keys are still read".into(),
            Edit::PaddingFirst { .. } => "padding keys are hidden first, and then made visible again by the prefix or the block of tokens that is added to the mask later".into(),
            Edit::WindowLast => "the window is applied to the whole mask and also hides keys of the prefix or of the blocks of tokens that read each other: these keys should be visible".into(),
            Edit::DropPrefix => "the prefix is causal: every query should read the whole prefix".into(),
            Edit::WholePrefix => "the mask treats the whole text as the prefix: answers read their own labels".into(),
            Edit::Prefix(by) => format!("the prefix is {} too {}", counted(by.abs(), "token"), if by > 0 { "long" } else { "short" }),
            Edit::DropBlocks => "the mask is causal inside blocks, but all tokens of a block should read each other".into(),
            Edit::MergeBlocks => "tokens of different blocks read each other: the mask compares whether both tokens belong to a block, and not to which".into(),
            Edit::TreeAsChain => "the mask of the draft tokens is a triangle although some drafts have the same parent: drafts with the same parent read each other".into(),
            Edit::SlotOrder { .. } => "the mask compares the cache slots of keys instead of the positions of keys, although the cache holds the keys in another order (a ring buffer has wrapped, or keys were removed)".into(),
            Edit::Unwritten => "unwritten slots of the cache are visible".into(),
            Edit::Stale => "the keys of the new tokens are hidden: the mask was not extended when the cache grew".into(),
            Edit::DropRedactions => "keys that are declared redacted are visible".into(),
            Edit::Either { documents } => either(if documents { "the documents" } else { "padding" }, true),
            Edit::DropSinks => "the declared sinks (the first tokens of the sequence) are not visible to all queries".into(),
        }
    }

    /// Returns the cost of the mistake. If several mistakes explain a mask, the mistake with the lowest cost is
    /// reported. Frequent and simple mistakes cost less.
    pub(crate) fn cost(self) -> f64 {
        match self {
            Edit::DropCausal | Edit::DropCausalWritten | Edit::AddCausal => 1.1,
            // With a single new token, a causal diagonal moved by -1 gives the same cells and is preferred.
            Edit::Stale => 1.05,
            Edit::TimesTriangle => 1.2,
            // A window that is one key too wide may contain all keys. In this case the missing window is preferred.
            Edit::DropWindow => 0.98,
            Edit::TopLeft => 0.93,
            // In a right-padded causal row, padding is visible only inside the prefix. Missing padding then gives the
            // same cells, and this mistake is preferred.
            Edit::PaddingFirst { .. } => 0.97,
            Edit::Causal(by) | Edit::Window(by) | Edit::Prefix(by) | Edit::ChunkSize(by) | Edit::ChunkShift(by)
                if by.abs() == 1 =>
            {
                1.0
            }
            Edit::CausalWritten(1) => 1.05,
            Edit::Causal(_) | Edit::CausalWritten(_) | Edit::Window(_) => 1.6,
            Edit::Borders { by, .. } if by.abs() > 1 => 1.6,
            Edit::BottomRight | Edit::AddWindow(_) => 1.3,
            Edit::Unwritten => 0.9,
            Edit::Either { .. } => 1.25,
            _ => 1.0,
        }
    }
}

impl Post {
    pub(crate) fn class(self) -> Option<&'static str> {
        match self {
            Post::None => None,
            Post::Complement => Some("inverted_polarity"),
            Post::Transpose => Some("broadcast_wrong_axis"),
            Post::RowZero => Some("batch_row_wrong"),
            Post::Roll(_) => Some("ring_buffer_misaligned"),
        }
    }

    pub(crate) fn cost(self) -> f64 {
        match self {
            Post::None => 0.0,
            Post::Complement => 0.95,
            Post::RowZero => 1.05,
            Post::Transpose => 1.15,
            Post::Roll(_) => 1.5,
        }
    }

    pub(crate) fn says(self) -> String {
        match self {
            Post::None => String::new(),
            Post::Complement => "the mask is inverted: cells that should be hidden are visible, and cells that should be visible are hidden".into(),
            Post::Transpose => "queries and keys are exchanged (the mask is transposed)".into(),
            Post::RowZero => "every batch row has the mask of batch row 0".into(),
            Post::Roll(n) => format!("keys are shifted by {} around the end of the ring buffer", counted(n as u64, "cache slot")),
        }
    }
}

/// Returns the description of the mistake that `term` is combined with the other terms by the other operator. `shows` is true if the
/// mistake makes cells visible.
pub(crate) fn either(term: &str, shows: bool) -> String {
    let (is, should) = if shows { ("one of them allows", "all allow") } else { ("all of them allow", "one allows") };
    format!(
        "{term} and the other terms are combined with the wrong operator: a cell is visible if {is} it, but should be if {should} it"
    )
}

/// Returns the redactions of `intent` and one more redaction for each batch row. The new redaction of batch row `b`
/// hides the keys from index `slot(b)` to the last key.
fn hidden_from(intent: &Intent, slot: impl Fn(usize) -> i64) -> Rc<Vec<Hidden>> {
    let rows = (0..intent.batch).map(|b| Hidden {
        batch: vec![b],
        keys: row_of(intent.kv_len, slot(b).clamp(0, intent.kv_len as i64) as usize, intent.kv_len),
        queries: Vec::new(),
    });
    Rc::new(intent.redactions.iter().cloned().chain(rows).collect())
}

/// Returns the segment numbers of a batch row with every document boundary moved by `by` tokens. Padding (number 0)
/// stays in place. If `alone` is true and `by` is negative, the last `-by` tokens of the last document become a
/// separate document.
fn moved(segments: &[i64], by: i64, alone: bool) -> Vec<i64> {
    let n = segments.len() as i64;
    (0..n)
        .map(|k| {
            let own = segments[k as usize];
            let from = k - by;
            let other = if (0..n).contains(&from) { segments[from as usize] } else { 0 };
            match (own, other) {
                (0, _) => 0,
                // A separator token at the end of the row becomes a separate document.
                (own, 0) if alone && by < 0 => own.saturating_add(1 << 40),
                (own, 0) => own,
                (_, other) => other,
            }
        })
        .collect()
}

/// Returns a row of `len` bits with the non-padding keys (bits 1) of the row `plane` at its other end: for example,
/// from 1, 1, 0, 0, 0 returns 0, 0, 0, 1, 1.
pub(crate) fn other_side(plane: &[u64], len: usize) -> Vec<u64> {
    let n = noren_mask::bits::count(plane) as usize;
    let at_start = plane.first().is_some_and(|w| w & 1 == 1);
    let mut out = row_of(len, 0, 0);
    let range = if at_start { len - n..len } else { 0..n };
    range.for_each(|k| set_bit(&mut out, k));
    out
}

fn longer(by: i64) -> &'static str {
    if by > 0 { "longer" } else { "shorter" }
}
