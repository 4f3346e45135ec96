//! Lists the possible intended masks that fit the declarations.

use crate::companions::borders::where_documents_end;
use crate::intent::known::Known;
use crate::intent::{Hidden, Intent, PerRow, number, row};
use crate::read::context::Context;
use crate::read::kinds::{MaskKind, Role};
use crate::read::words::WindowMeans;
use crate::report::Open;
use noren_mask::Keep;
use noren_mask::Side;
use noren_mask::atoms::tree;
use noren_mask::bits::{bit, count, ends, row_of};
use std::rc::Rc;

/// A possible intended mask that fits the declarations.
#[derive(Clone)]
pub(crate) struct Hypothesis {
    pub(crate) intent: Intent,
    /// The cost of this hypothesis, at least 0. The hypothesis with the lowest cost is the most likely.
    pub(crate) doubt: f64,
    /// The questions that the declarations do not answer; this hypothesis assumes one answer to each of them.
    pub(crate) open: Vec<Rc<Open>>,
}

/// Returns every intended mask that fits the declarations, the most likely first. If `given` is not `None`, sizes that
/// are not declared, such as a window width, are read from these cells.
pub(crate) fn hypotheses(known: &Known, context: &Context, given: Option<&Keep>) -> Vec<Hypothesis> {
    let kinds: Vec<(MaskKind, f64, Option<Rc<Open>>)> = match context.kind {
        Some(kind) => windowed(complete(kind, known, context), context),
        None => guesses(known, context).into_iter().map(|(kind, doubt)| (kind, doubt, None)).collect(),
    };
    let mut out = Vec::new();
    for (kind, doubt, question) in kinds {
        for (step, variant) in intents(kind, known, context, given).into_iter().enumerate() {
            let shown = given.and_then(|given| shown_positions(given, &variant.intent));
            let mut open = variant.open;
            open.extend(question.clone());
            open.extend(undeclared(kind, known, &variant.intent, shown.as_deref()));
            let doubt = doubt + 0.01 * step as f64;
            if unplaced(known, &variant.intent) {
                let first = Intent { past: Rc::new(vec![0]), ..variant.intent.clone() };
                out.push(Hypothesis { intent: first, doubt: doubt + 0.3, open: open.clone() });
                let shown = shown.filter(|_| context.kind.is_some()).map(Rc::new);
                let shown = shown.map(|past| Intent { past, ..variant.intent.clone() });
                out.extend(shown.map(|intent| Hypothesis { intent, doubt: doubt + 0.35, open: open.clone() }));
            }
            out.push(Hypothesis { intent: variant.intent, doubt, open });
        }
    }
    out.sort_by(|a, b| a.doubt.total_cmp(&b.doubt));
    out
}

/// Returns true if the mask depends on the positions of the queries, but no declaration gives these positions.
fn unplaced(known: &Known, intent: &Intent) -> bool {
    let by_position = intent.causal.is_some() || intent.left.is_some() || intent.chunk.is_some();
    let placed = known.past_declared || intent.q_positions.is_some() || intent.tree.is_some();
    known.q_len != known.kv_len && by_position && !placed
}

/// Returns the position of query 0 that the last visible key of query 0 shows, for each batch row; `None` if the mask is not causal, or if
/// it is a position of [`which_positions`].
fn shown_positions(given: &Keep, intent: &Intent) -> Option<Vec<i64>> {
    let [batch, _, q_len, kv_len] = given.dims();
    let last = kv_len as i64 - q_len as i64;
    let of_row = |b: usize| ends(given.row(b, 0, 0)).map(|ends| ends.1 as i64).filter(|at| (0..=last).contains(at));
    let shown: Vec<i64> = (0..batch).map(of_row).collect::<Option<_>>()?;
    let known = |at: i64| shown.iter().all(|shown| *shown == at);
    (intent.causal.is_some() && !known(0) && !known(last)).then_some(shown)
}

/// Returns the questions about properties that `kind` needs but no declaration gives, such as the documents of a packed
/// mask.
fn undeclared(kind: MaskKind, known: &Known, intent: &Intent, shown: Option<&[i64]>) -> Vec<Rc<Open>> {
    let mut open = Vec::new();
    let mut ask = |question: Open| open.push(Rc::new(question));
    if kind.packed && !kind.cross && known.segments.is_none() {
        ask(where_documents_end(known, None, None));
    }
    if kind.blocks && known.blocks.is_none() {
        ask(Open::new(
            &["no token belongs to a block", "some tokens belong to blocks whose tokens all read each other"],
            "which tokens belong to a block? declare block_ids",
        ));
    }
    if kind.tree && intent.tree.is_none() {
        ask(Open::new(
            &[
                "the intended tree of draft tokens is the tree in the mask",
                "the intended tree of draft tokens is another tree than the tree in the mask, and the mask is wrong",
            ],
            "which draft token is the parent of each draft token? declare parents",
        ));
    }
    if unplaced(known, intent) {
        ask(which_positions(known.q_len, known.kv_len, shown));
    }
    open
}

/// Returns the question about the positions of `q_len` queries among `kv_len` keys. `shown` are the positions of query 0 that the mask
/// shows, if they are others.
pub(crate) fn which_positions(q_len: usize, kv_len: usize, shown: Option<&[i64]>) -> Open {
    let last = format!("the queries are the last tokens: query 0 has position {}", kv_len as i64 - q_len as i64);
    let queries = if q_len == 1 { "does the query".to_string() } else { format!("do the {q_len} queries") };
    let question = format!("which positions {queries} have among the {kv_len} keys? declare past_len");
    let shown = shown.map(|shown| format!("query 0 has position {shown:?}, as the mask shows"));
    let first = "the queries are the first tokens: query 0 has position 0";
    Open::new(&[Some(&last[..]), Some(first), shown.as_deref()].into_iter().flatten().collect::<Vec<_>>(), question)
}

/// A possible intended mask, with the open questions for which this mask assumes an answer.
struct Variant {
    intent: Intent,
    open: Vec<Rc<Open>>,
}

impl Variant {
    /// Returns a variant with the intended mask `intent` and the questions of this variant. If `open` is given, this
    /// question is added.
    fn with(&self, intent: Intent, open: Option<&Rc<Open>>) -> Variant {
        let mut all = self.open.clone();
        all.extend(open.cloned());
        Variant { intent, open: all }
    }
}

/// Returns the declared kind with the terms that other declarations imply: for example, segment numbers imply a packed
/// mask.
fn complete(mut kind: MaskKind, known: &Known, context: &Context) -> MaskKind {
    kind.cross |= context.role == Role::Cross;
    kind.packed |= known.segments.is_some() && !kind.cross;
    kind.tree |= known.parents.is_some();
    kind.blocks |= known.blocks.is_some();
    // A window width that counts keys on both sides of the query allows later keys, so the kind is not causal.
    kind.causal &= !(kind.sliding && context.window_means.is_some_and(WindowMeans::names_sides));
    kind
}

/// Returns the kinds that the declared `kind` may mean, each as (kind, cost, question). The question names the
/// declaration that decides between the kinds; `None` if there is no question. A packed mask may be causal or not. If a
/// window is declared but `kind` has none, the window may belong to other layers of the model, so the kind is returned
/// with and without a window.
fn windowed(kind: MaskKind, context: &Context) -> Vec<(MaskKind, f64, Option<Rc<Open>>)> {
    if kind.either_way {
        let open = Open::new(
            &["inside a document queries read no later key", "inside a document queries also read later keys"],
            "is the packed mask causal? declare kind=causal_packed or kind=bidirectional_packed",
        );
        let open = Some(Rc::new(open.between()));
        return vec![
            (MaskKind { causal: true, ..kind }, 0.0, open.clone()),
            (MaskKind { causal: false, ..kind }, 0.05, open),
        ];
    }
    match context.window.is_some() && kind.causal && !kind.sliding && !kind.chunked && !kind.tree {
        true => {
            let open = Open::new(
                &[
                    "the layer of the given mask has the declared window",
                    "the layer of the given mask has no window; the declared window is for other layers",
                ],
                "does the layer of the given mask have the declared window? declare kind=sliding, or declare no window",
            );
            vec![(MaskKind { sliding: true, ..kind }, 0.0, None), (kind, 0.05, Some(Rc::new(open.between())))]
        }
        false => vec![(kind, 0.0, None)],
    }
}

/// Returns the kinds of mask that fit the other declarations if no kind is declared, each with a cost; the kind with
/// the lowest cost is the most likely. If it is unknown whether the mask is causal, a causal and a non-causal kind are
/// returned.
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
    // Only decoders have a cache. A declared window width that does not count keys on both sides counts keys before the
    // query.
    let cached = context.past.iter().any(|p| *p > 0);
    let one_sided = kind.sliding && context.window_means.is_some_and(|m| !m.names_sides());
    if kind.tree || kind.prefix || known.k_positions.is_some() || cached || one_sided {
        return vec![(kind, 0.0)];
    }
    let both_ways = MaskKind { causal: false, ..kind };
    if kind.sliding && context.window_means.is_some_and(WindowMeans::names_sides) {
        return vec![(both_ways, 0.0)];
    }
    // A row of keys does not show causality, but the declared attention function may imply causality.
    let decoder = context.slot.decoder() && context.side == Some(Side::Left);
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

fn intents(kind: MaskKind, known: &Known, context: &Context, given: Option<&Keep>) -> Vec<Variant> {
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
        keys.iter().filter(|&&k| k < known.kv_len).for_each(|&k| noren_mask::bits::set_bit(&mut row, k));
        row
    };
    base.q_valid = without_redacted(&base, context);
    let one = |r: &crate::read::kinds::Redaction| Hidden {
        batch: r.batch.clone(),
        keys: hidden(&r.keys),
        queries: r.queries.clone(),
    };
    base.redactions = Rc::new(context.redactions.iter().map(one).collect());
    if kind.packed && !kind.cross {
        base.segments = known.segments.clone();
    }
    if kind.blocks {
        base.blocks = known.blocks.clone();
    }
    if kind.tree {
        let parents = known.parents.as_ref().filter(|p| p.len() <= known.q_len.min(known.kv_len));
        let parents: Option<Vec<i64>> = parents.map(|p| p.iter().map(|&parent| parent.max(-1)).collect());
        base.tree = parents.filter(|p| tree(p.as_slice(), 0).check().is_ok()).map(Rc::new);
    }
    let mut all = vec![Variant { intent: base, open: Vec::new() }];
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
        let open = Open::new(
            &[
                "the first padding id after a text is the end of the text",
                "the first padding id after a text is padding",
            ],
            "padding and the end of a text share an id: where do the texts end? declare lengths or attention_mask",
        );
        let open = Rc::new(open.between());
        all.iter_mut().for_each(|variant| variant.open.push(open.clone()));
        let other = |v: &Variant| v.with(Intent { valid: Some(valid.clone()), ..v.intent.clone() }, None);
        let more: Vec<Variant> = all.iter().map(other).collect();
        all.extend(more);
    }
    all
}

/// Returns, for each query, true if its mask row must be compared. A row is not compared if the query is padding or is
/// redacted for all queries, because the output of such a token reaches no other token. Returns `None` if all rows are
/// compared.
fn without_redacted(intent: &Intent, context: &Context) -> Option<PerRow<bool>> {
    let everywhere = |r: &&crate::read::kinds::Redaction| r.queries.is_empty();
    if !context.redactions.iter().any(|r| everywhere(&r)) {
        return intent.q_valid.clone();
    }
    let cares = |b: usize| {
        let of_row =
            context.redactions.iter().filter(everywhere).filter(|r| r.batch.is_empty() || r.batch.contains(&b));
        let hidden: Vec<i64> = of_row.flat_map(|r| r.keys.iter().map(|&k| k as i64)).collect();
        (0..intent.q_len).map(|i| intent.cares(b, i) && !hidden.contains(&intent.slot(b, i))).collect()
    };
    Some(Rc::new((0..intent.batch).map(cares).collect()))
}

/// Returns a variant for each possible meaning of the window width. A causal width of W counts W keys including the
/// query's own key, unless another meaning is declared. The width of a window on both sides has no usual meaning, so
/// several meanings are returned.
fn windows(variant: &Variant, kind: MaskKind, context: &Context, given: Option<&Keep>) -> Vec<Variant> {
    let intent = &variant.intent;
    let reach = |left: i64, right: Option<i64>| Intent { left: Some(left), right, ..intent.clone() };
    let around = |side: i64| reach(side, Some(side));
    let Some(width) = context.window.or_else(|| given.and_then(|g| widest(g, intent))) else {
        let open = Open::new(
            &["the mask has no window", "the mask has a window, and its width is unknown"],
            "how many keys may a query read? declare window",
        );
        return vec![variant.with(intent.clone(), Some(&Rc::new(open)))];
    };
    if context.window.is_none() {
        let found = format!("the intended window has {width} keys, as the mask shows");
        let open = Open::new(
            &[&found, "the intended window has another width, so the mask shows the wrong one"],
            "how many keys may a query read? declare window",
        );
        let read = if kind.causal { reach(width - 1, None) } else { around((width - 1) / 2) };
        return vec![variant.with(read, Some(&Rc::new(open)))];
    }
    if kind.causal {
        let left = if context.window_means == Some(WindowMeans::Before) { width } else { width - 1 };
        return vec![variant.with(reach(left, None), None)];
    }
    let mut sides: Vec<i64> = match context.window_means {
        Some(WindowMeans::EachSide | WindowMeans::Before) => vec![width],
        Some(WindowMeans::Total) => vec![width / 2, (width - 1) / 2],
        Some(WindowMeans::WithSelf) => vec![width - 1, (width - 1) / 2],
        None => vec![width, width - 1, width / 2, (width - 1) / 2],
    };
    sides.dedup();
    let words = |n: i64| match n {
        n if n == width => "\"keys on each side\"",
        n if n == width - 1 => "\"keys visible, self included\"",
        _ => "\"keys in total\"",
    };
    let reading = |&n: &i64| format!("the window has {n} keys on each side of the query: window_means={}", words(n));
    let readings: Vec<String> = sides.iter().map(reading).collect();
    let readings: Vec<&str> = readings.iter().map(String::as_str).collect();
    let question = format!("what does window={width} count? declare window_means");
    let open = Rc::new(Open::new(&readings, question).between());
    let asked = (sides.len() > 1 && context.window_means.is_none()).then_some(&open);
    // The keys before and after the query may be counted separately, for example 4 keys before and 3 after it.
    let both = sides.iter().flat_map(|&left| sides.iter().map(move |&right| (left, right)).filter(|(l, r)| l != r));
    let equal = sides.iter().map(|&side| around(side));
    equal.chain(both.map(|(left, right)| reach(left, Some(right)))).map(|intent| variant.with(intent, asked)).collect()
}

/// Returns the maximum number of keys that a query of batch row 0 reads; `None` if no query reads a key. If the size of
/// a window or chunk is not declared, this number is assumed.
fn widest(given: &Keep, intent: &Intent) -> Option<i64> {
    let rows = (0..intent.q_len).filter(|&i| intent.cares(0, i));
    rows.map(|i| noren_mask::bits::count(given.row(0, 0, i)) as i64).max().filter(|w| *w > 0)
}

fn chunks(variant: &Variant, context: &Context, given: Option<&Keep>) -> Vec<Variant> {
    let intent = &variant.intent;
    let size = context.chunk.or_else(|| given.and_then(|g| widest(g, intent)));
    let open = Open::new(
        &[
            "the intended chunks have the size that the mask shows",
            "the intended chunks have another size than the mask shows",
        ],
        "how many keys has a chunk? declare chunk",
    );
    let open = Rc::new(open);
    let asked = context.chunk.is_none().then_some(&open);
    let Some(size) = size else { return vec![variant.with(intent.clone(), asked)] };
    let padding: Vec<i64> = (0..intent.batch).map(|b| intent.first_real(b) as i64).collect();
    let from = |origins: Vec<i64>| Intent { chunk: Some((size, Rc::new(origins))), ..intent.clone() };
    let origins = if context.chunk_from_slot == Some(true) { vec![0] } else { padding };
    vec![variant.with(from(origins), asked)]
}

/// Returns a variant for each possible start of the prefix: the start of the row, or the first non-padding token. There
/// are two variants only if batch rows are padded on the left and the start is not declared. Undeclared prefix lengths
/// are read from the cells `given`.
fn prefixes(variant: &Variant, context: &Context, given: Option<&Keep>) -> Vec<Variant> {
    let intent = &variant.intent;
    let with = |lengths: Vec<i64>| Intent { prefix: Some(Rc::new(lengths)), ..intent.clone() };
    if context.prefix.is_empty() {
        let read = |b: usize| -> i64 {
            let Some(given) = given else { return 0 };
            let first = (0..intent.q_len).find(|&i| intent.cares(b, i)).unwrap_or(0);
            let last = ends(given.row(b.min(given.dims()[0] - 1), 0, first)).map_or(0, |e| e.1 as i64 + 1);
            if last <= intent.slot(b, first) + 1 { 0 } else { last }
        };
        let lengths: Vec<i64> = (0..intent.batch).map(read).collect();
        let found = format!("the intended prefixes have {lengths:?} keys, as the mask shows");
        let open = Open::new(
            &[&found, "the intended prefixes have other lengths than the mask shows"],
            "how many keys has the prefix? declare prefix_len",
        );
        return vec![variant.with(with(lengths), Some(&Rc::new(open)))];
    }
    let from_slot = || with(context.prefix.clone());
    let shifted = |b: usize| number(&context.prefix, b) + intent.first_real(b) as i64;
    let from_text = || with((0..intent.batch).map(shifted).collect());
    match context.prefix_from_slot {
        Some(true) => return vec![variant.with(from_slot(), None)],
        Some(false) => return vec![variant.with(from_text(), None)],
        None => {}
    }
    let moved =
        intent.valid.as_ref().is_some_and(|v| (0..intent.batch).any(|b| row(v, b).first().is_some_and(|w| w & 1 == 0)));
    if !moved {
        return vec![variant.with(from_slot(), None)];
    }
    let open = Open::new(
        &[
            "the prefix is counted from the first non-padding token",
            "the prefix is counted from the start of the row, padding included",
        ],
        "where does the prefix begin in a left-padded row? declare prefix_from=text or prefix_from=slot",
    );
    let open = Rc::new(open.between());
    vec![variant.with(from_text(), Some(&open)), variant.with(from_slot(), Some(&open))]
}

/// Returns `intent` with the padding that the cells `given` may show, although no padding is declared: at most two masks, none if the
/// cells show no padding. A key at one end of a batch row counts as padding if no query reads it. In the first mask, the query of the
/// same token may read it. The rows of padding queries may also read all keys. In a mask with cached keys, only keys at the start
/// count. `keys_only` is true if the array has one row of keys for each batch row, and `declared` if a kind of mask is declared.
pub(crate) fn assumed_padding<'a>(
    given: &'a Keep,
    intent: &'a Intent,
    (keys_only, declared): (bool, bool),
) -> impl Iterator<Item = Intent> + 'a {
    [true, false].into_iter().filter_map(move |own| padded(given, intent, (keys_only, declared), own))
}

/// Returns a mask of [`assumed_padding`]. `own` is true if a padding query may read its own key.
fn padded(given: &Keep, intent: &Intent, (keys_only, declared): (bool, bool), own: bool) -> Option<Intent> {
    let [batch, _, q_len, kv_len] = given.dims();
    let cached = q_len < kv_len && !keys_only && intent.causal.is_some() && intent.left.is_none();
    // If nothing depends on positions, as in cross-attention, a key is hidden from all queries or from none.
    let plain = intent.causal.is_none() && intent.left.is_none() && intent.chunk.is_none() && intent.segments.is_none();
    if q_len != kv_len && !keys_only && !cached && !plain || intent.k_positions.is_some() || intent.tree.is_some() {
        return None;
    }
    let (mut at_start, mut at_end) = (false, false);
    let mut planes: Vec<Vec<u64>> = (0..batch)
        .map(|b| {
            let own = own && (cached || q_len == kv_len);
            let (first, end) = real_run(given, intent, b, (own, declared)).unwrap_or((0, kv_len));
            let end = if cached { kv_len } else { end };
            at_start |= first > 0;
            at_end |= end < kv_len;
            row_of(kv_len, first, end)
        })
        .collect();
    // A batch is padded at one end only. A last key that only its own query reads may be a chunk of one token.
    if at_start && at_end && !keys_only {
        planes.iter_mut().for_each(|plane| {
            let first = ends(plane).map_or(0, |ends| ends.0);
            *plane = row_of(kv_len, first, kv_len);
        });
        at_end = false;
    }
    // If fewer than a quarter of the keys would remain in a mask of queries by keys, the hidden keys are not padding.
    let longest = planes.iter().map(|p| count(p)).max().unwrap_or(0);
    let plausible = if keys_only { at_start || at_end } else { at_start != at_end };
    if !plausible || !keys_only && longest * 4 < kv_len as u64 {
        return None;
    }
    // The queries of cross-attention are other tokens than the keys.
    let slot = |b: usize, i: usize| usize::try_from(intent.slot(b, i)).ok().filter(|_| q_len == kv_len || cached);
    let is_real = |b: usize, i: usize| slot(b, i).is_none_or(|slot| bit(&planes[b], slot));
    let real: Vec<Vec<bool>> = (0..batch).map(|b| (0..q_len).map(|i| is_real(b, i)).collect()).collect();
    if real.iter().any(|row| !row.contains(&true)) {
        return None;
    }
    let valid: PerRow<u64> = Rc::new(planes);
    Some(Intent { valid: Some(valid), q_valid: Some(Rc::new(real)), ..intent.clone() })
}

/// Returns the keys of batch row `b` that are not padding, as (first, end), if the hidden keys at the ends of the row are padding.
/// `own` is true if a padding query may read its own key. `None` if no query reads a key that counts.
fn real_run(given: &Keep, intent: &Intent, b: usize, (own, declared): (bool, bool)) -> Option<(usize, usize)> {
    let [_, _, q_len, kv_len] = given.dims();
    // Redacted keys do not indicate padding.
    let mut seen = vec![0u64; kv_len.div_ceil(64)];
    for redaction in intent.redactions.iter().filter(|r| r.concerns(b)) {
        seen.iter_mut().zip(&redaction.keys).for_each(|(word, keys)| *word |= keys);
    }
    let square = q_len == kv_len;
    let row = |i: usize| given.row(b, 0, i);
    let whole = |i: usize| count(row(i)) == kv_len as u64;
    let alone = |i: usize| count(row(i)) == u64::from(bit(row(i), i));
    // In a causal mask with cached keys only the last query may read every key.
    let padding = (0..q_len.saturating_sub(1)).take_while(|&i| own && !square && whole(i)).count();
    for i in padding..q_len {
        let own = usize::try_from(intent.slot(b, i)).ok().filter(|_| own).unwrap_or(usize::MAX);
        for (w, word) in row(i).iter().enumerate() {
            seen[w] |= word & if own / 64 == w { !(1 << (own % 64)) } else { u64::MAX };
        }
    }
    // If padding queries read all keys, the other queries read only each other's keys. The last row of a causal mask reads all keys too.
    let beside = || {
        let (first, last) = ((0..q_len).find(|&i| !whole(i))?, (0..q_len).rfind(|&i| !whole(i))?);
        let plain = intent.causal.is_some() && intent.left.is_none() && intent.chunk.is_none();
        let inside = |i: usize| !whole(i) && ends(row(i)).is_none_or(|ends| ends.0 >= first && ends.1 <= last);
        // Without a declared kind, last rows that read all keys may also be the last of several blocks.
        let at_end = last + 1 < kv_len && (!declared || plain && last + 2 == kv_len);
        let padded = (first, last + 1) != (0, kv_len) && !at_end;
        (padded && (first..=last).all(inside)).then_some((first, last + 1))
    };
    let by_whole_rows = if square { beside() } else { None };
    by_whole_rows.or_else(|| {
        let Some((first, last)) = ends(&seen) else {
            // Every row reads at most its own key. Then the last tokens that do not read each other are not padding.
            let rule = if square && own { intent.build() } else { return None };
            let apart = |k: usize| (k + 1..kv_len).all(|i| !bit(rule.row(b, 0, i), k) && !bit(rule.row(b, 0, k), i));
            return (0..kv_len).rev().take_while(|&k| apart(k)).last().map(|first| (first, kv_len));
        };
        // Under causality only the last non-padding query reads its own key, so this key is not padding.
        let end = last + 1;
        let last_real = square && own && end < kv_len && bit(row(end), end) && !alone(end);
        let last_real = last_real && (end + 1..kv_len).all(alone);
        Some((first, end + usize::from(last_real)))
    })
}
