//! From declarations to intents: every mask that the declared words may mean.

use super::context::{Context, MaskKind, Role};
use super::intent::{Groups, Intent, PerRow, number, row, tree_rows};
use super::known::Known;
use crate::keep::{Keep, bit, count, ends, row_of};
use crate::mask::Side;
use std::rc::Rc;

/// A mask that the declarations may mean.
#[derive(Clone)]
pub(crate) struct Hypothesis {
    pub(crate) intent: Intent,
    /// What it costs to believe it beside the others.
    pub(crate) doubt: f64,
}

/// Every intent that fits the declarations, the likeliest first.
pub(crate) fn hypotheses(known: &Known, context: &Context, given: Option<&Keep>) -> Vec<Hypothesis> {
    let kinds: Vec<(MaskKind, f64)> = match context.kind {
        Some(kind) => windowed(complete(kind, known, context), context),
        None => guesses(known, context),
    };
    let mut out = Vec::new();
    for (kind, doubt) in kinds {
        for (step, intent) in intents(kind, known, context, given).into_iter().enumerate() {
            out.push(Hypothesis { intent, doubt: doubt + 0.01 * step as f64 });
        }
    }
    out
}

/// A declared kind with what the other declarations add to it.
fn complete(mut kind: MaskKind, known: &Known, context: &Context) -> MaskKind {
    kind.cross |= context.role == Role::Cross;
    kind.packed |= known.segments.is_some() && !kind.cross;
    kind.tree |= known.parents.is_some();
    // A width on each side reads both ways, whatever a short name leaves out.
    kind.causal &= !(kind.sliding && context.window_means.as_deref().is_some_and(names_sides));
    kind
}

/// A width beside a kind that names no window may be the layer's own, or the model's for its other layers.
fn windowed(kind: MaskKind, context: &Context) -> Vec<(MaskKind, f64)> {
    if kind.either_way {
        return vec![(MaskKind { causal: true, ..kind }, 0.0), (MaskKind { causal: false, ..kind }, 0.05)];
    }
    match context.window.is_some() && kind.causal && !kind.sliding && !kind.chunked && !kind.tree {
        true => vec![(MaskKind { sliding: true, ..kind }, 0.0), (kind, 0.05)],
        false => vec![(kind, 0.0)],
    }
}

/// Without a declared kind: what the other declarations imply, causal or not.
fn guesses(known: &Known, context: &Context) -> Vec<(MaskKind, f64)> {
    let mut kind = MaskKind {
        causal: true,
        packed: known.segments.is_some(),
        sliding: context.window.is_some(),
        chunked: context.chunk.is_some(),
        prefix: !context.prefix.is_empty(),
        blocks: known.blocks.is_some(),
        tree: known.parents.is_some(),
        cross: context.role == Role::Cross,
        either_way: false,
    };
    if kind.cross {
        kind.causal = false;
        return vec![(kind, 0.0)];
    }
    // A cache is a decoder's, and a width that does not name two sides counts backwards.
    let cached = context.past.iter().any(|p| *p > 0);
    let one_sided = kind.sliding && context.window_means.as_deref().is_some_and(|m| !names_sides(m));
    if kind.tree || kind.prefix || known.k_positions.is_some() || cached || one_sided {
        return vec![(kind, 0.0)];
    }
    let both_ways = MaskKind { causal: false, ..kind };
    if kind.sliding && context.window_means.as_deref().is_some_and(names_sides) {
        return vec![(both_ways, 0.0)];
    }
    // A mask of keys alone says nothing of causality; the slot it is made for does.
    let decoder =
        context.api_has(&["transformers", "generate", "causal", "gpt", "llama"]) && context.side == Some(Side::Left);
    let encoder = context.role == Role::KeyPadding
        && !decoder
        && context.past.is_empty()
        && !kind.sliding
        && !kind.chunked
        && !kind.packed;
    match encoder {
        true => vec![(both_ways, 0.0), (kind, 0.1)],
        false => vec![(kind, 0.0), (both_ways, 0.1)],
    }
}

fn intents(kind: MaskKind, known: &Known, context: &Context, given: Option<&Keep>) -> Vec<Intent> {
    let mut base = Intent::new(known.batch, known.q_len, known.kv_len, known.past.clone());
    base.valid = known.valid.clone();
    base.q_valid = known.q_valid.clone();
    base.q_positions = known.q_positions.clone();
    base.k_positions = known.k_positions.clone();
    base.causal = kind.causal.then_some(0);
    base.sinks = context.sinks;
    let words = base.words();
    let hidden = |keys: &[usize]| {
        let mut row = vec![0u64; words];
        keys.iter().filter(|&&k| k < known.kv_len).for_each(|&k| crate::keep::set_bit(&mut row, k));
        row
    };
    base.q_valid = without_redacted(&base, context);
    base.redactions = Rc::new(context.redactions.iter().map(|r| (hidden(&r.keys), r.queries.clone())).collect());
    if kind.packed && !kind.cross {
        base.segments = known.segments.as_ref().map(|rows| Rc::new(Groups::new(rows.to_vec())));
    }
    if kind.blocks {
        base.blocks = known.blocks.as_ref().map(|rows| Rc::new(Groups::new(rows.to_vec())));
    }
    if kind.tree
        && let Some(rows) = known.parents.as_deref().and_then(tree_rows)
        && rows.len() <= known.q_len.min(known.kv_len)
    {
        base.tree = Some(Rc::new(rows));
    }
    let mut all = vec![base];
    if kind.sliding {
        all = all.iter().flat_map(|i| windows(i, kind, context, given)).collect();
    }
    if kind.chunked {
        all = all.iter().flat_map(|i| chunks(i, context, given)).collect();
    }
    if kind.prefix {
        all = all.iter().flat_map(|i| prefixes(i, context, given)).collect();
    }
    if let Some(valid) = &known.valid_too {
        let other = |i: &Intent| {
            let mut other = i.clone();
            other.valid = Some(valid.clone());
            other
        };
        let more: Vec<Intent> = all.iter().map(other).collect();
        all.extend(more);
    }
    all
}

/// Real queries less those at keys that nobody reads: what stands there reaches no output, so it may read itself.
fn without_redacted(intent: &Intent, context: &Context) -> Option<PerRow<bool>> {
    let hidden: Vec<i64> = context
        .redactions
        .iter()
        .filter(|r| r.queries.is_empty())
        .flat_map(|r| r.keys.iter().map(|&k| k as i64))
        .collect();
    if hidden.is_empty() {
        return intent.q_valid.clone();
    }
    let cares =
        |b: usize| (0..intent.q_len).map(|i| intent.cares(b, i) && !hidden.contains(&intent.slot(b, i))).collect();
    Some(Rc::new((0..intent.batch).map(cares).collect()))
}

/// The ways to count a window's width.
fn windows(intent: &Intent, kind: MaskKind, context: &Context, given: Option<&Keep>) -> Vec<Intent> {
    let with = |left: i64, right: Option<i64>| Intent { left: Some(left), right, ..intent.clone() };
    let Some(width) = context.window.or_else(|| given.and_then(|g| widest(g, intent))) else {
        return vec![intent.clone()];
    };
    let means = context.window_means.as_deref().unwrap_or("").to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| means.contains(w));
    let exclusive = says(&["previous", "before", "exclud", "besides", "plus self", "excl"]) && !says(&["includ"]);
    if kind.causal {
        return match () {
            () if exclusive => vec![with(width, None)],
            () if !means.is_empty() => vec![with(width - 1, None)],
            () if context.window.is_none() => vec![with(width - 1, None)],
            () => vec![with(width - 1, None), with(width, None)],
        };
    }
    let around = |side: i64| with(side, Some(side));
    match () {
        () if says(&["total", "altogether", "diameter"]) => vec![around(width / 2), around((width - 1) / 2)],
        () if says(&["each side", "either side", "both sides", "radius", "per side", "one side", "half"]) => {
            vec![around(width)]
        }
        () if says(&["includ"]) => vec![around(width - 1), around((width - 1) / 2)],
        () if context.window.is_none() => vec![around((width - 1) / 2)],
        () => vec![around(width), around(width - 1), around(width / 2)],
    }
}

/// Whether a window's width is said of both sides of a query.
fn names_sides(means: &str) -> bool {
    let means = means.to_ascii_lowercase();
    ["side", "radius", "half", "around", "total", "diameter", "left and right"].iter().any(|w| means.contains(w))
}

/// The largest number of keys that a row reads, for windows of undeclared width.
fn widest(given: &Keep, intent: &Intent) -> Option<i64> {
    let rows = (0..intent.q_len).filter(|&i| intent.cares(0, i));
    rows.map(|i| crate::keep::count(given.row(0, 0, i)) as i64).max().filter(|w| *w > 0)
}

fn chunks(intent: &Intent, context: &Context, given: Option<&Keep>) -> Vec<Intent> {
    let size = context.chunk.filter(|c| *c > 0).or_else(|| given.and_then(|g| widest(g, intent)));
    let Some(size) = size else { return vec![intent.clone()] };
    let padding: Vec<i64> = (0..intent.batch).map(|b| intent.first_real(b) as i64).collect();
    let from = |origins: Vec<i64>| Intent { chunk: Some((size, Rc::new(origins))), ..intent.clone() };
    match context.chunk_from_slot {
        Some(true) => vec![from(vec![0])],
        _ => vec![from(padding)],
    }
}

/// A prefix may be counted from slot 0 or from the first real token.
fn prefixes(intent: &Intent, context: &Context, given: Option<&Keep>) -> Vec<Intent> {
    let with = |lengths: Vec<i64>| Intent { prefix: Some(Rc::new(lengths)), ..intent.clone() };
    if context.prefix.is_empty() {
        let read = |b: usize| -> i64 {
            let Some(given) = given else { return 0 };
            let first = (0..intent.q_len).find(|&i| intent.cares(b, i)).unwrap_or(0);
            let last = ends(given.row(b.min(given.dims()[0] - 1), 0, first)).map_or(0, |e| e.1 as i64 + 1);
            if last <= intent.slot(b, first) + 1 { 0 } else { last }
        };
        return vec![with((0..intent.batch).map(read).collect())];
    }
    let shifted = |b: usize| number(&context.prefix, b) + intent.first_real(b) as i64;
    let from_text = with((0..intent.batch).map(shifted).collect());
    let moved =
        intent.valid.as_ref().is_some_and(|v| (0..intent.batch).any(|b| row(v, b).first().is_some_and(|w| w & 1 == 0)));
    match moved {
        true => vec![from_text, with(context.prefix.clone())],
        false => vec![with(context.prefix.clone())],
    }
}

/// Padding that nobody declared: keys at one end that no other query reads, or at the start of a cache.
pub(super) fn assumed_padding(given: &Keep, intent: &Intent, keys_only: bool) -> Option<Intent> {
    let [batch, _, q_len, kv_len] = given.dims();
    let cached = q_len < kv_len && !keys_only && intent.causal.is_some() && intent.left.is_none();
    if q_len != kv_len && !keys_only && !cached || intent.k_positions.is_some() || intent.tree.is_some() {
        return None;
    }
    let (mut at_start, mut at_end) = (false, false);
    let planes: Vec<Vec<u64>> = (0..batch)
        .map(|b| {
            let mut seen = vec![0u64; kv_len.div_ceil(64)];
            for i in 0..q_len {
                let own = if q_len == kv_len { i } else { usize::MAX };
                for (w, word) in given.row(b, 0, i).iter().enumerate() {
                    let diagonal = if own / 64 == w { !(1 << (own % 64)) } else { u64::MAX };
                    seen[w] |= word & diagonal;
                }
            }
            let (first, mut last) = ends(&seen).unwrap_or((0, kv_len - 1));
            // The last key of a causal mask is read by itself alone.
            if last + 2 == kv_len && q_len == kv_len && bit(given.row(b, 0, kv_len - 1), kv_len - 1) {
                last += 1;
            }
            last = if cached { kv_len - 1 } else { last };
            at_start |= first > 0;
            at_end |= last + 1 < kv_len;
            row_of(kv_len, first, last + 1)
        })
        .collect();
    // A batch is padded at one end. Where nobody reads anybody, all but a few keys would be padding.
    let longest = planes.iter().map(|p| count(p)).max().unwrap_or(0);
    let plausible = if keys_only { at_start || at_end } else { at_start != at_end };
    if !plausible || longest * 4 < kv_len as u64 {
        return None;
    }
    let real: Vec<Vec<bool>> =
        planes.iter().map(|p| (0..q_len).map(|i| q_len != kv_len || bit(p, i)).collect()).collect();
    let valid: PerRow<u64> = Rc::new(planes);
    Some(Intent { valid: Some(valid), q_valid: Some(Rc::new(real)), ..intent.clone() })
}
