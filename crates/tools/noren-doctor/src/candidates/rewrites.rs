//! The named mistakes as changes ("rewrites") of a declared mask. Each rewrite changes the expression, the facts (data given with the mask, such as
//! lengths) or the shape, and the cells are then computed from the changed mask.

use crate::intent::Intent;
use crate::intent::edits::{Edit, either};
use crate::recognise::recognise;
use noren_mask::atoms::{
    Causal, Chunk, Clearance, Documents, Keys, Prefix, Queries, Sliding, Spans, Tree, Window, batch, causal,
    causal_offset, chunk, documents_of, full, keys, none, padding_with, prefix, queries, sliding, spans, window,
};
use noren_mask::bits::{row_of, set_range};
use noren_mask::interval::IntervalSet;
use noren_mask::resolve::{RowFacts, frame};
use noren_mask::{BoundMask, Facts, Keep, Mask, Node, Padding, Rows, Shape, Side, Span};
use std::rc::Rc;

/// Maximum number of elementary masks (atoms) in a declared expression for the search that removes or inverts one
/// operand at a time. If an expression has more, this search is left out.
const MOST_ATOMS: usize = 48;

/// Maximum batch size of an array from which groups of tokens are read.
const MOST_READ: usize = 64;

/// A mask that a known mistake produces from the declared mask.
pub(crate) struct Rewrite {
    /// The class of the mistake in the catalogue.
    pub(crate) class: &'static str,
    /// The description of the mistake.
    pub(crate) says: String,
    /// The cost of the mistake; a less likely mistake has a higher cost.
    pub(crate) cost: f64,
    /// The mask after the mistake.
    pub(crate) bound: BoundMask,
}

/// Returns the masks that known mistakes produce from the declared mask `meant`. `left` is the number of keys before
/// the query in the window that the array shows; `None` if the array shows no window. `shows` is true if the array
/// allows more cells than `meant`.
pub(crate) fn rewrites(meant: &BoundMask, left: Option<i64>, shows: bool) -> Vec<Rewrite> {
    let terms = terms(meant);
    let widths = left.map(|left| match terms.left {
        Some(declared) => Edit::Window(left - declared),
        None => Edit::AddWindow(left),
    });
    let edits = Edit::ALL.iter().copied().chain(widths);
    let united = options::<Chunk>(meant.mask());
    let named = edits.filter_map(|edit| {
        let (says, cost) = (edit.says(&terms), edit.cost());
        let class = match edit.class(&terms) {
            "chunk_boundary" if united => "prefix_lm_or_block_wrong",
            class => class,
        };
        Some(Rewrite { class, says, cost, bound: rewritten(edit, meant)? })
    });
    named.chain(parts(meant, shows, terms.left.is_some())).chain(other_sides(meant)).chain(row_0(meant)).collect()
}

/// Returns the masks in which the blocks, chunks, spans, documents or levels of `meant` are replaced by the groups that
/// the array `given` shows.
pub(crate) fn regroupings(meant: &BoundMask, given: &Keep) -> Vec<Rewrite> {
    let [batch, heads, q_len, kv_len] = given.dims();
    let row = |b: usize| Keep::from_fn([1, heads, q_len, kv_len], |[_, h, q, k]| given.get([b, h, q, k]));
    let declared: Vec<&Mask> = atoms(meant.mask()).filter(|atom| is_group(atom) || is_levels(atom)).collect();
    if declared.is_empty() || batch > MOST_READ {
        return Vec::new();
    }
    let shown: Vec<Mask> = (0..batch).map(|b| recognise(&row(b)).nearest().clone()).collect();
    let leaks = Keep::of(meant).expand(given.dims()).cells().zip(given.cells()).any(|(meant, given)| given && !meant);
    let of_atom = |atom: &Mask| {
        // Levels that never fall allow the cells of a causal mask and of the blocks of equal levels.
        let of_row = |b: usize| match is_levels(atom) {
            true => atoms(&shown[b]).all(|a| is_group(a) || Border::of(a).is_some()).then(|| shown[b].clone()),
            false => atoms(&shown[b]).find(|a| is_group(a)).cloned(),
        };
        let groups = by_row(meant, of_row)?;
        let bound = replaced(meant.mask(), &|a| (a == atom).then(|| groups.clone()))?;
        let says = format!("the groups of tokens that read each other are `{groups}` instead of `{atom}`");
        let class = match () {
            () if is_levels(atom) || options::<Chunk>(meant.mask()) || options::<Spans>(meant.mask()) => {
                "prefix_lm_or_block_wrong"
            }
            () if atom.atom_as::<Chunk>().is_some() => "chunk_boundary",
            () if leaks => "cross_document",
            // Declared borders are in place: others are added.
            () => "unexplained_difference",
        };
        Some(Rewrite { class, says, cost: 1.15, bound: bound.bind(meant.shape(), meant.facts()).ok()? })
    };
    declared.into_iter().filter_map(of_atom).collect()
}

/// Returns true for an elementary mask (atom) in which the tokens of a group read each other.
fn is_group(atom: &Mask) -> bool {
    atom.atom_as::<Chunk>().is_some() || atom.atom_as::<Spans>().is_some() || atom.atom_as::<Documents>().is_some()
}

fn is_levels(atom: &Mask) -> bool {
    atom.atom_as::<Clearance>().is_some()
}

/// Returns true if an elementary mask (atom) of type `A` is an option of a union in `mask`, and therefore adds cells.
fn options<A: noren_mask::atom::Atom>(mask: &Mask) -> bool {
    let option = |part: &Mask| part.atom_as::<A>().is_some();
    matches!(mask.node(), Node::Or(parts) if parts.iter().any(option)) || mask.children().into_iter().any(options::<A>)
}

/// Returns the mask that replaces the atoms of type `A` in `mask` to leave them out: `none` in a union, otherwise `full`.
fn left_out<A: noren_mask::atom::Atom>(mask: &Mask) -> Mask {
    if options::<A>(mask) { none() } else { full() }
}

/// Returns an [`Intent`] with some properties of the declared mask `meant`, for messages: its sizes, its query offsets,
/// its window width, its causality and its padding.
pub(crate) fn terms(meant: &BoundMask) -> Intent {
    let shape = meant.shape();
    let offsets = (0..shape.batch_len()).map(|b| shape.query_offset(b)).collect();
    let mut terms = Intent::new(shape.batch_len(), shape.q_len(), shape.kv_len(), offsets);
    terms.left = width(meant);
    terms.causal = atoms(meant.mask()).any(|atom| Border::of(atom).is_some()).then_some(0);
    terms.valid = real_keys(meant).map(|rows| {
        let row = |keys: &IntervalSet| {
            let mut row = row_of(shape.kv_len(), 0, 0);
            keys.iter().for_each(|run| set_range(&mut row, run.start as usize, run.end as usize));
            row
        };
        Rc::new(rows.iter().map(row).collect())
    });
    terms
}

/// Returns the number of keys before the query in the first window of `meant`; `None` if `meant` has no window.
pub(crate) fn width(meant: &BoundMask) -> Option<i64> {
    atoms(meant.mask()).find_map(|atom| match (atom.atom_as::<Sliding>(), atom.atom_as::<Window>()) {
        (Some(sliding), _) => Some(sliding.window as i64 - 1),
        (_, Some(window)) => window.left,
        _ => None,
    })
}

/// Returns the non-padding keys of each batch row from the first padding term of `meant`; `None` if `meant` has no padding term.
fn real_keys(meant: &BoundMask) -> Option<Vec<IntervalSet>> {
    let padding = first::<Padding>(meant.mask())?;
    let of = |b: usize| with_row(meant, b, |row| row.real_keys(padding.side, padding.lengths.as_deref()));
    Some((0..meant.shape().batch_len()).map(of).collect())
}

/// Returns the rows of non-padding queries of each batch row from the first padding term of `meant`; `None` if `meant` has no padding
/// term.
pub(crate) fn real_queries(meant: &BoundMask) -> Option<Vec<IntervalSet>> {
    let padding = first::<Padding>(meant.mask())?;
    let of = |b: usize| with_row(meant, b, |row| row.real_queries(padding.side, padding.lengths.as_deref()));
    Some((0..meant.shape().batch_len()).map(of).collect())
}

/// Returns the declared mask `meant` after the mistake `edit`; `None` if the mistake does not apply to `meant`.
pub(crate) fn rewritten(edit: Edit, meant: &BoundMask) -> Option<BoundMask> {
    let (shape, facts) = (meant.shape(), meant.facts());
    if let Some(shape) = placed(edit, shape, facts) {
        return meant.mask().bind(&shape, facts).ok();
    }
    if let Edit::SlotOrder { queries } = edit {
        return slot_order(meant, queries);
    }
    let mask = atom_by_atom(edit, meant).or_else(|| around(edit, meant)).or_else(|| regrouped(edit, meant.mask()))?;
    mask.bind(shape, facts).ok()
}

/// Returns the shape after the mistake that query 0 has the position 0 (`TopLeft`) or `kv_len - q_len` (`BottomRight`).
/// Returns `None` if `edit` is another mistake, if `shape` already has this position, or if the facts (data given with
/// a mask) store positions of keys.
fn placed(edit: Edit, shape: &Shape, facts: &Facts) -> Option<Shape> {
    let offset = match edit {
        Edit::TopLeft => 0,
        Edit::BottomRight => shape.kv_len() as i64 - shape.q_len() as i64,
        _ => return None,
    };
    let moved = (0..shape.batch_len()).any(|b| shape.query_offset(b) != offset);
    (moved && !facts.place_keys()).then(|| shape.clone().query_offsets([offset]))
}

/// Returns the declared mask after the mistake that the index of each key in the cache is used as the position of the
/// key; `None` if the facts (data given with a mask) store no positions of keys. If `queries` is true, the queries also
/// get other positions: the last indices of the cache.
fn slot_order(meant: &BoundMask, queries: bool) -> Option<BoundMask> {
    let (shape, facts) = (meant.shape(), meant.facts());
    let (q_len, kv_len) = (shape.q_len() as i64, shape.kv_len() as i64);
    let slots = facts.clone().positions((0..kv_len).collect::<Vec<i64>>());
    let shape = if queries { shape.clone().query_offsets([kv_len - q_len]) } else { shape.clone() };
    facts.place_keys().then(|| meant.mask().bind(&shape, &slots).ok())?
}

/// Returns the declared mask after the mistake `edit`, if `edit` changes or replaces every elementary mask (atom) of
/// one kind, such as every window; otherwise `None`.
fn atom_by_atom(edit: Edit, meant: &BoundMask) -> Option<Mask> {
    let kv_len = meant.shape().kv_len();
    let one = |atom: &Mask| match edit {
        Edit::Causal(_) | Edit::DropCausal => Border::of(atom)?.moved(edit),
        Edit::Window(_) | Edit::DropWindow => resized(atom, edit),
        Edit::ChunkSize(by) => {
            atom.atom_as::<Chunk>()?.size.checked_add_signed(by as isize).filter(|n| *n > 0).map(chunk)
        }
        Edit::ChunkShift(by) => shifted(atom.atom_as::<Chunk>()?.size, by, last_position(meant)),
        Edit::DropChunk => atom.atom_as::<Chunk>().map(|_| left_out::<Chunk>(meant.mask())),
        Edit::DropDocuments => atom.atom_as::<Documents>().map(|_| left_out::<Documents>(meant.mask())),
        Edit::Borders { by, alone } => borders(meant, atom.atom_as()?, by, alone),
        Edit::DropPadding => atom.atom_as::<Padding>().map(|_| full()),
        Edit::PaddingOnQueries => on_queries(meant, atom.atom_as()?),
        Edit::DropPrefix => atom.atom_as::<Prefix>().map(|_| none()),
        Edit::WholePrefix => atom.atom_as::<Prefix>().map(|_| prefix(kv_len)),
        Edit::Prefix(by) => longer(&atom.atom_as::<Prefix>()?.lengths, by).map(prefix),
        Edit::DropBlocks => atom.atom_as::<Spans>().map(|_| left_out::<Spans>(meant.mask())),
        Edit::MergeBlocks => atom.atom_as::<Spans>().map(|of| queries(of.spans.clone()) & keys(of.spans.clone())),
        Edit::TreeAsChain => atom.atom_as::<Tree>().map(|_| causal()),
        _ => None,
    };
    replaced(meant.mask(), &one)
}

/// Returns the declared mask after the mistake `edit`, if `edit` combines the whole expression with one more term, such
/// as a window; otherwise `None`.
fn around(edit: Edit, meant: &BoundMask) -> Option<Mask> {
    let (mask, shape) = (meant.mask(), meant.shape());
    let is_causal = atoms(mask).any(|atom| Border::of(atom).is_some());
    let from = |slot: &dyn Fn(i64) -> i64| keys_from(meant, slot);
    let written = |past: i64| past + shape.q_len() as i64;
    match edit {
        Edit::AddCausal if !is_causal && first::<Tree>(mask).is_none() => Some(mask.clone() & causal()),
        Edit::WindowAside if is_causal => {
            let left = width(meant)?;
            Some(atom_by_atom(Edit::DropWindow, meant)? | window(-left - 2, None))
        }
        Edit::TimesTriangle if is_causal => Some(mask.clone() | window(-1, None)),
        Edit::AddWindow(left) if first::<Window>(mask).is_none() && first::<Sliding>(mask).is_none() => {
            Some(mask.clone() & window(left, (!is_causal).then_some(left)))
        }
        Edit::Unwritten => Some(mask.clone() | from(&written)?),
        Edit::Stale if (0..shape.batch_len()).any(|b| shape.query_offset(b) > 0) => {
            Some(mask.clone() - from(&|past| past)?)
        }
        Edit::DropCausalWritten => Some(atom_by_atom(Edit::DropCausal, meant)? - from(&written)?),
        Edit::CausalWritten(by) => Some(atom_by_atom(Edit::Causal(by), meant)? - from(&written)?),
        _ => None,
    }
}

/// Returns the mask after a mistake that moves a term into a union or out of a union: `(a | b) & c` becomes `a & c |
/// b`, or `a & c | b` becomes `(a | b) & c`. `None` if `edit` is another mistake, or if `mask` has no such term.
fn regrouped(edit: Edit, mask: &Mask) -> Option<Mask> {
    match (edit, mask.node()) {
        (Edit::PaddingFirst { within: false }, Node::And(parts)) => {
            let pad = parts.iter().find(|part| part.atom_as::<Padding>().is_some())?;
            let union = parts.iter().find_map(|part| match part.node() {
                Node::Or(options) => Some((part, options)),
                _ => None,
            });
            let (union, options) = union?;
            let rest = || parts.iter().filter(|part| *part != pad && *part != union).cloned();
            let (first, later) = options.split_first()?;
            let early = Mask::all(rest().chain([first.clone(), pad.clone()]));
            Some(Mask::any([early].into_iter().chain(later.iter().map(|b| Mask::all(rest().chain([b.clone()]))))))
        }
        (Edit::WindowLast, Node::Or(options)) => options.iter().find_map(|option| {
            let Node::And(parts) = option.node() else { return None };
            let width = parts.iter().find(|part| resized(part, Edit::DropWindow).is_some())?;
            Some(mask.clone() & width.clone())
        }),
        (Edit::WindowLast, Node::And(parts)) => {
            let inner = parts.iter().enumerate().find_map(|(n, part)| Some((n, regrouped(edit, part)?)));
            let (at, inner) = inner?;
            Some(Mask::all(
                parts.iter().enumerate().map(|(n, part)| if n == at { inner.clone() } else { part.clone() }),
            ))
        }
        _ => None,
    }
}

/// Returns rewrites for every operand of the declared expression (such as `causal` in `causal & padding`): one without
/// the operand, one with the operand inverted, and one with the operand combined by the other operator. `shows` and `windowed` select the class of a rewrite:
/// `shows` is true if the array allows more cells than `meant`, and `windowed` is true if `meant` has a window.
fn parts(meant: &BoundMask, shows: bool, windowed: bool) -> Vec<Rewrite> {
    let mask = meant.mask();
    if atoms(mask).count() > MOST_ATOMS {
        return Vec::new();
    }
    let bind = |mask: Mask| mask.bind(meant.shape(), meant.facts()).ok();
    let dropped = changed_parts(mask, &without).into_iter().filter_map(|(part, mask)| {
        let (class, says) = (class_of(&part, shows, windowed), format!("the term `{part}` is missing"));
        Some(Rewrite { class, says, cost: 1.08, bound: bind(mask)? })
    });
    let inverted = changed_parts(mask, &with_inverted).into_iter().filter_map(|(part, mask)| {
        let says = format!("the term `{part}` is inverted");
        Some(Rewrite { class: "inverted_polarity", says, cost: 1.12, bound: bind(mask)? })
    });
    let united = changed_parts(mask, &by_other_operator).into_iter().filter_map(|(part, mask)| {
        let says = either(&format!("the term `{part}`"), shows);
        Some(Rewrite { class: "wrong_operator", says, cost: 1.14, bound: bind(mask)? })
    });
    dropped.chain(inverted).chain(united).collect()
}

/// Returns the class of a mistake that leaves out `term`. `shows` is true if the array allows more cells than the declared mask, and `windowed` is true
/// if the declared mask has a window.
fn class_of(term: &Mask, shows: bool, windowed: bool) -> &'static str {
    let has = |test: &dyn Fn(&Mask) -> bool| atoms(term).any(test);
    match () {
        () if first::<Documents>(term).is_some() => "cross_document",
        () if first::<Padding>(term).is_some() && shows => "padding_keys_visible",
        () if first::<Chunk>(term).is_some() && !options::<Chunk>(term) => "chunk_boundary",
        () if first::<Tree>(term).is_some() => "tree_mask",
        () if (first::<Prefix>(term).is_some() || first::<Spans>(term).is_some()) && !shows => {
            "prefix_lm_or_block_wrong"
        }
        () if has(&|atom| resized(atom, Edit::DropWindow).is_some()) => "window_missing_or_wrong_layer",
        () if has(&|atom| Border::of(atom).is_some()) && shows => "causal_dropped",
        () if first::<Keys>(term).is_none() && first::<Queries>(term).is_none() => "term_missing",
        () if shows => "multi_hop_leak",
        () if windowed => "window_missing_or_wrong_layer",
        () => "term_missing",
    }
}

/// Returns masks with a side exchanged or moved: padding at the other end of the rows, the left and right widths of windows
/// exchanged, and windows that end one key earlier or later after the query.
fn other_sides(meant: &BoundMask) -> Vec<Rewrite> {
    let padded = |atom: &Mask| {
        let padding = atom.atom_as::<Padding>()?;
        let side = match padding.side.unwrap_or(meant.facts().padding_side()) {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        };
        Some(padding_with(Padding { side: Some(side), ..padding.clone() }))
    };
    let turned = |atom: &Mask| {
        let &Window { left, right } = atom.atom_as()?;
        Some(window(right, left))
    };
    let padding = (
        "padding_side",
        "padding is hidden at the other end of the rows than the declared padding",
        replaced(meant.mask(), &padded),
    );
    let sides = (
        "window_missing_or_wrong_layer",
        "the sides of the window are exchanged: the keys that should be before the query are after the query",
        replaced(meant.mask(), &turned),
    );
    let ends = |by: i64| {
        let moved = move |atom: &Mask| {
            let &Window { left, right } = atom.atom_as()?;
            Some(window(left, right.filter(|right| *right > 0)? + by))
        };
        replaced(meant.mask(), &moved)
    };
    let off = "sliding_window_off_by_one";
    let short = (off, "the window ends one key too early after the query", ends(-1));
    let long = (off, "the window ends one key too late after the query", ends(1));
    let made = [padding, sides, short, long].into_iter().filter_map(|(class, says, mask)| {
        let bound = mask?.bind(meant.shape(), meant.facts()).ok()?;
        Some(Rewrite { class, says: says.to_string(), cost: 1.0, bound })
    });
    made.collect()
}

/// Returns the mask in which every batch row has the documents of batch row 0. Returns `None` if the mask has no
/// documents, or if the expression lists the document lengths, because all batch rows then already have the same
/// documents.
fn row_0(meant: &BoundMask) -> Option<Rewrite> {
    let lengths = lengths_of(meant, first::<Documents>(meant.mask())?, 0)?;
    let documents = |atom: &Mask| atom.atom_as::<Documents>().map(|_| documents_of(lengths.clone()));
    let bound = replaced(meant.mask(), &documents)?.bind(meant.shape(), meant.facts()).ok()?;
    let says = "every batch row has the documents of row 0".to_string();
    Some(Rewrite { class: "batch_row_wrong", says, cost: 1.02, bound })
}

/// The limits of an elementary mask (atom) that is causal or a window: a query at position `q` reads the keys `k` with
/// `k <= q + right`, and with `q - left <= k` if `left` is present.
struct Border {
    left: Option<i64>,
    right: i64,
}

impl Border {
    fn of(atom: &Mask) -> Option<Border> {
        if let Some(causal) = atom.atom_as::<Causal>() {
            return Some(Border { left: None, right: causal.offset });
        }
        if let Some(sliding) = atom.atom_as::<Sliding>() {
            return Some(Border { left: Some(sliding.window as i64 - 1), right: 0 });
        }
        let window = atom.atom_as::<Window>()?;
        window.right.filter(|right| *right <= 0).map(|right| Border { left: window.left, right })
    }

    fn moved(self, edit: Edit) -> Option<Mask> {
        Some(match (edit, self.left) {
            (Edit::Causal(by), None) => causal_offset(self.right.checked_add(by)?),
            (Edit::Causal(by), left) => window(left, self.right.checked_add(by)?),
            (_, None) => full(),
            (_, left) => window(left, None),
        })
    }
}

/// Changes the elementary mask (atom) `atom` if it is a window. `Edit::Window` changes the width; any other `edit`
/// removes the window and keeps causality. Returns `None` if `atom` is not a window or the width is not possible.
fn resized(atom: &Mask, edit: Edit) -> Option<Mask> {
    if let Some(of_size) = atom.atom_as::<Sliding>() {
        return match edit {
            Edit::Window(by) => of_size.window.checked_add_signed(by as isize).filter(|n| *n > 0).map(sliding),
            _ => Some(causal()),
        };
    }
    let &Window { left, right } = atom.atom_as()?;
    let by = match edit {
        Edit::Window(by) => by,
        _ => return left.map(|_| right.filter(|right| *right <= 0).map_or_else(full, causal_offset)),
    };
    let left = left?.checked_add(by)?;
    let right = right.map(|right| if right > 0 { right + by } else { right });
    Some(window(left, right))
}

/// Returns chunks of `size` positions that cover all positions up to and including `last`. The borders between chunks
/// are shifted by `by` positions. `None` if `size` is too large for this machine.
fn shifted(size: usize, by: i64, last: usize) -> Option<Mask> {
    let first = by.rem_euclid(i64::try_from(size).ok()?) as usize;
    let starts = (first..=last).step_by(size);
    let chunks = starts.map(|start| Span::from(start..start.saturating_add(size)));
    Some(spans((first > 0).then(|| Span::from(0..first)).into_iter().chain(chunks).collect::<Vec<_>>()))
}

/// Returns the largest position of a query or key.
fn last_position(meant: &BoundMask) -> usize {
    let shape = meant.shape();
    let of_row = |b: usize| meant.query_position(b, shape.q_len() - 1).max(shape.kv_len() as i64 - 1);
    (0..shape.batch_len()).map(of_row).max().and_then(|last| usize::try_from(last).ok()).unwrap_or(0)
}

/// Returns the documents with every border between two documents moved by `by` positions; negative: towards earlier
/// positions. The last document then becomes longer by `-by` tokens. If `alone` is true, these tokens form a separate
/// document. `None` if a document is too short.
fn borders(meant: &BoundMask, documents: &Documents, by: i64, alone: bool) -> Option<Mask> {
    by_row(meant, |b| {
        let mut lengths = lengths_of(meant, documents, b)?;
        let (last, first) = (lengths.len().checked_sub(1)?, lengths[0].checked_add_signed(by as isize)?);
        lengths[0] = first;
        match alone {
            true => lengths.push(by.unsigned_abs() as usize),
            false => lengths[last] = lengths[last].checked_add_signed(-by as isize)?,
        }
        Some(documents_of(lengths))
    })
}

/// Returns the lengths of the documents of batch row `b`; `None` if neither the mask nor its facts define documents.
fn lengths_of(meant: &BoundMask, documents: &Documents, b: usize) -> Option<Vec<usize>> {
    let length = |range: std::ops::Range<i64>| (range.end - range.start) as usize;
    with_row(meant, b, |row| Some(row.documents(documents.lengths.as_deref())?.ranges().map(length).collect()))
}

/// Returns a mask that hides the rows of padding queries. A mistake uses this mask instead of `padding`, which hides
/// the padding keys. `None` if a query has a negative position.
fn on_queries(meant: &BoundMask, padding: &Padding) -> Option<Mask> {
    by_row(meant, |b| {
        let real = with_row(meant, b, |row| row.real_queries(padding.side, padding.lengths.as_deref()));
        let position = |row: u32| usize::try_from(meant.query_position(b, row as usize)).ok();
        let span =
            |rows: noren_mask::interval::Interval| Some(Span::from(position(rows.start)?..position(rows.end - 1)? + 1));
        real.iter().map(span).collect::<Option<Vec<Span>>>().map(queries)
    })
}

/// Returns the mask of the last keys of each batch row. `slot` computes the index of the first of these keys from the
/// query offset of the batch row (its number of cached tokens). `None` if the facts (data given with a mask) store
/// positions of keys, or if no batch row has such a key.
fn keys_from(meant: &BoundMask, slot: &dyn Fn(i64) -> i64) -> Option<Mask> {
    if meant.facts().place_keys() {
        return None;
    }
    let kv_len = meant.shape().kv_len() as i64;
    let from = |b: usize| slot(meant.shape().query_offset(b)).clamp(0, kv_len);
    let some = (0..meant.shape().batch_len()).any(|b| from(b) < kv_len);
    some.then(|| by_row(meant, |b| Some(keys(from(b) as usize..))))?
}

/// Returns a mask for all batch rows. `of` returns the mask of one batch row. If these masks differ, the result is
/// `batch(...)` with one mask for each batch row. `None` if `of` returns `None` for a batch row.
fn by_row(meant: &BoundMask, of: impl Fn(usize) -> Option<Mask>) -> Option<Mask> {
    let rows: Vec<Mask> = (0..meant.shape().batch_len()).map(of).collect::<Option<_>>()?;
    match rows.iter().all(|row| *row == rows[0]) {
        true => rows.into_iter().next(),
        false => Some(batch((0usize..).zip(rows))),
    }
}

/// Calls `ask` with the facts of batch row `b` (such as its length and its documents), and returns the result of `ask`.
fn with_row<T>(meant: &BoundMask, b: usize, ask: impl FnOnce(RowFacts<'_>) -> T) -> T {
    let frame = frame(meant.shape(), meant.facts(), b);
    ask(RowFacts { facts: meant.facts(), frame: &frame, row: b })
}

fn longer(lengths: &Rows<usize>, by: i64) -> Option<Rows<usize>> {
    let each = |n: &usize| n.checked_add_signed(by as isize);
    match lengths {
        Rows::All(n) => each(n).map(Rows::All),
        Rows::Each(list) => list.iter().map(each).collect::<Option<_>>().map(Rows::Each),
    }
}

/// Returns all elementary masks (atoms) of the expression `mask`, each as a separate mask.
fn atoms(mask: &Mask) -> impl Iterator<Item = &Mask> {
    let mut left = vec![mask];
    std::iter::from_fn(move || {
        loop {
            let mask = left.pop()?;
            match mask.atom() {
                Some(_) => return Some(mask),
                None => left.extend(mask.children().into_iter().rev()),
            }
        }
    })
}

/// Returns the first elementary mask (atom) of type `A` in `mask`; `None` if `mask` contains no such atom.
fn first<A: noren_mask::atom::Atom>(mask: &Mask) -> Option<&A> {
    atoms(mask).find_map(Mask::atom_as)
}

/// Applies `change` to every elementary mask (atom) of `mask` and returns the result; `None` if no atom changes.
/// `change` returns the new mask for an atom, or `None` to keep the atom.
fn replaced(mask: &Mask, change: &dyn Fn(&Mask) -> Option<Mask>) -> Option<Mask> {
    fn walk(mask: &Mask, change: &dyn Fn(&Mask) -> Option<Mask>) -> Mask {
        match mask.atom() {
            Some(_) => change(mask).unwrap_or_else(|| mask.clone()),
            None => mask.map_children(|part| walk(part, change)),
        }
    }
    let changed = walk(mask, change);
    (changed != *mask).then_some(changed)
}

/// Returns a pair (operand, changed mask) for each operand of the expression `mask`, at every depth. `change` takes a
/// combination such as `a & b` and the index of one operand, and returns the changed combination. If it returns `None`,
/// the operand is left out.
fn changed_parts(mask: &Mask, change: &dyn Fn(&Mask, usize) -> Option<Mask>) -> Vec<(Mask, Mask)> {
    let mut out = Vec::new();
    for (n, part) in mask.children().into_iter().enumerate() {
        out.extend(change(mask, n).map(|changed| (part.clone(), changed)));
        out.extend(changed_parts(part, change).into_iter().map(|(inner, changed)| (inner, with(mask, n, &changed))));
    }
    out
}

/// Returns the combination `mask` (such as `a & b`) in which `other` replaces the operand with index `n` (0 for the
/// first).
fn with(mask: &Mask, n: usize, other: &Mask) -> Mask {
    let mut at = 0..;
    mask.map_children(|part| if at.next() == Some(n) { other.clone() } else { part.clone() })
}

/// Returns the combination `mask` without the operand with index `n` (0 for the first): for example, `a` from `a & b`
/// for `n` = 1. `None` if `mask` is not an intersection, union or difference.
fn without(mask: &Mask, n: usize) -> Option<Mask> {
    let others = |parts: &[Mask]| {
        parts.iter().enumerate().filter(|(at, _)| *at != n).map(|(_, part)| part.clone()).collect::<Vec<_>>()
    };
    match mask.node() {
        Node::And(parts) => Some(Mask::all(others(parts))),
        Node::Or(parts) => Some(Mask::any(others(parts))),
        Node::Minus(all, _) if n == 1 => Some(all.clone()),
        Node::Minus(_, hidden) => Some(!hidden.clone()),
        _ => None,
    }
}

/// Returns the combination `mask` in which the operand of index `n` (0 for the first) and the other operands are combined by the other
/// operator: for example, `a & c | b` from `a & b & c` for `n` = 1. `None` if `mask` is not an intersection or union.
fn by_other_operator(mask: &Mask, n: usize) -> Option<Mask> {
    let rest = without(mask, n);
    match mask.node() {
        Node::And(parts) => Some(parts[n].clone() | rest?),
        Node::Or(parts) => Some(parts[n].clone() & rest?),
        _ => None,
    }
}

/// Returns the combination `mask` with the operand of index `n` (0 for the first) inverted: for example, `a & !b` from
/// `a & b` for `n` = 1. `None` if `mask` is not an intersection, union or difference.
fn with_inverted(mask: &Mask, n: usize) -> Option<Mask> {
    matches!(mask.node(), Node::And(_) | Node::Or(_) | Node::Minus(..))
        .then(|| with(mask, n, &!mask.children()[n].clone()))
}
