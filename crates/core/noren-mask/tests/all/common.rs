//! Random masks for property tests.

use noren_mask::atoms::*;
use noren_mask::{Array, Facts, Mask, Padding, Positions, Selector, Shape, Side, Span};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Labels in atoms; facts must declare them.
pub(crate) const LABELS: [&str; 2] = ["red", "light blue"];
/// Arrays in `dense` atoms; facts must have them.
pub(crate) const ARRAYS: [&str; 2] = ["d0", "a b"];

/// The sizes for random masks: lists that must fit a shape have these sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Universe {
    /// Number of batch rows: lists per row have this many entries.
    pub(crate) batch: usize,
    /// Number of query heads for arms.
    pub(crate) heads: usize,
    /// Number of positions: documents have this sum, grids have this many cells, and sets and trees are within
    /// `0..len`.
    pub(crate) len: usize,
}

fn spans_in(len: usize) -> impl Strategy<Value = Vec<Span>> {
    let span = (0..len, 0..len, 0..8u8).prop_map(move |(a, b, kind)| match kind {
        0 => Span { start: a, end: None },
        1 => Span { start: 0, end: Some(a) },
        2 | 3 => Span::from(a),
        _ => Span { start: a.min(b), end: Some(a.max(b)) },
    });
    vec(span, 0..4)
}

fn set_in(len: usize) -> impl Strategy<Value = Positions> {
    prop_oneof![4 => spans_in(len).prop_map(Positions::Spans), 1 => prop::sample::select(&LABELS).prop_map(Positions::label)]
}

/// Returns lengths whose sum is `len`.
fn partition(len: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(0..=len, 0..4).prop_map(move |mut cuts| {
        cuts.sort_unstable();
        cuts.push(len);
        let mut last = 0;
        cuts.into_iter().map(|cut| cut - std::mem::replace(&mut last, cut)).collect()
    })
}

fn neighborhoods(len: usize) -> impl Strategy<Value = Mask> {
    let divisors: Vec<usize> = (1..=len).filter(|d| len.is_multiple_of(*d)).collect();
    let one = Just(vec![len]);
    let two = prop::sample::select(divisors.clone()).prop_map(move |a| vec![a, len / a]);
    let three = prop::sample::select(divisors).prop_flat_map(move |a| {
        let rest = len / a;
        let inner: Vec<usize> = (1..=rest).filter(|d| rest.is_multiple_of(*d)).collect();
        prop::sample::select(inner).prop_map(move |b| vec![a, b, rest / b])
    });
    (prop_oneof![one, two, three], vec(0..5usize, 3), vec(1..3usize, 3)).prop_map(|(grid, size, dilation)| {
        let dilation: Vec<usize> = grid.iter().zip(dilation).map(|(_, d)| d).collect();
        let size: Vec<usize> = grid.iter().zip(&dilation).zip(size).map(|((g, d), s)| 1 + s.min((g - 1) / d)).collect();
        neighborhood_dilated(grid, size, dilation)
    })
}

fn trees(len: usize) -> impl Strategy<Value = Mask> {
    (0..len, vec(any::<prop::sample::Index>(), 1..6)).prop_map(move |(start, picks)| {
        let nodes = picks.len().min(len - start);
        let parents: Vec<i64> =
            picks.iter().take(nodes).enumerate().map(|(i, pick)| pick.index(i + 1) as i64 - 1).collect();
        tree(parents, start)
    })
}

/// Returns atoms that read only positions and need no facts.
pub(crate) fn position_atoms(u: Universe) -> BoxedStrategy<Mask> {
    let reach = u.len as i64 / 2 + 1;
    let bands = prop_oneof![
        Just(causal()),
        (-reach..=reach).prop_map(causal_offset),
        (-reach..=reach).prop_map(|left| window(left, None)),
        (-reach..=reach, -reach..=reach).prop_map(|(left, right)| window(left, right)),
        vec(-reach..=reach, 1..5).prop_map(distances),
        (1..=u.len).prop_map(sliding),
    ];
    let cells = prop_oneof![(1..=u.len).prop_map(chunk), (1..5usize).prop_map(stride)];
    let sets = prop_oneof![
        (0..=u.len).prop_map(prefix),
        spans_in(u.len).prop_map(keys),
        spans_in(u.len).prop_map(queries),
        spans_in(u.len).prop_map(global),
        spans_in(u.len).prop_map(spans),
    ];
    prop_oneof![1 => Just(full()), 1 => Just(none()), 6 => bands, 3 => cells, 6 => sets].boxed()
}

/// Returns all atoms.
pub(crate) fn atoms(u: Universe) -> BoxedStrategy<Mask> {
    let rows = u.batch;
    let lengths = move || vec(0..=u.len, rows);
    let side = option::of(prop_oneof![Just(Side::Left), Just(Side::Right)]);
    let facts = prop_oneof![
        lengths().prop_map(prefix),
        set_in(u.len).prop_map(keys),
        set_in(u.len).prop_map(queries),
        set_in(u.len).prop_map(global),
        Just(padding()),
        (side, option::of(lengths()), any::<bool>()).prop_map(|(side, lengths, both)| padding_with(Padding {
            side,
            lengths,
            both
        })),
        Just(documents()),
        partition(u.len).prop_map(documents_of),
        Just(clearance()),
    ];
    let drawn = prop_oneof![
        trees(u.len),
        neighborhoods(u.len),
        (0.0..=1.0, any::<u64>()).prop_map(|(p, seed)| random(p, seed)),
        (1..=u.len, any::<u64>()).prop_flat_map(move |(block, seed)| {
            (1..=u.len.div_ceil(block)).prop_map(move |count| random_blocks(block, count, seed))
        }),
        prop::sample::select(&ARRAYS).prop_map(dense),
    ];
    prop_oneof![3 => position_atoms(u), 2 => facts, 1 => drawn].boxed()
}

/// Returns selectors of arms that do not overlap and select indices of `0..count`, sometimes with an `else`.
fn selectors(count: usize) -> impl Strategy<Value = Vec<Selector>> {
    let spans = (vec(0..=count, 1..4), any::<bool>(), any::<bool>()).prop_map(move |(mut cuts, open, other)| {
        cuts.sort_unstable();
        cuts.dedup();
        let mut arms: Vec<Selector> = cuts.windows(2).map(|w| Selector::from(w[0]..w[1])).collect();
        match cuts.last() {
            Some(last) if open && *last < count => arms.push(Selector::from(*last..)),
            _ => {}
        }
        if other || arms.is_empty() {
            arms.push(Selector::Else);
        }
        arms
    });
    let every = (2..5usize, 0..3usize, any::<bool>()).prop_map(|(step, from, other)| {
        let mut arms = vec![Selector::Every { step, from }, Selector::Every { step, from: from + 1 }];
        arms.extend(other.then_some(Selector::Else));
        arms
    });
    prop_oneof![3 => spans, 1 => every]
}

fn arms(count: usize, inner: BoxedStrategy<Mask>) -> impl Strategy<Value = Vec<(Selector, Mask)>> {
    (selectors(count), vec(inner, 4)).prop_map(|(selectors, masks)| selectors.into_iter().zip(masks).collect())
}

/// Returns expressions over `atoms`, up to `depth` deep, with arms by head and batch row, and by layer if `by_layer`.
pub(crate) fn expressions(u: Universe, atoms: BoxedStrategy<Mask>, depth: u32, by_layer: bool) -> BoxedStrategy<Mask> {
    atoms
        .prop_recursive(depth, 24, 3, move |inner| {
            let by = prop_oneof![
                arms(u.heads, inner.clone()).prop_map(heads),
                arms(u.batch, inner.clone()).prop_map(batch),
                arms(u.heads, inner.clone()).prop_map(move |arms| if by_layer { layers(arms) } else { heads(arms) }),
            ];
            prop_oneof![
                2 => inner.clone().prop_map(|a| !a),
                3 => vec(inner.clone(), 2..4).prop_map(Mask::all),
                3 => vec(inner.clone(), 2..4).prop_map(Mask::any),
                2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a - b),
                1 => by,
            ]
        })
        .boxed()
}

/// Returns masks over all atoms, up to five deep, that bind to a shape of this universe.
pub(crate) fn masks(u: Universe) -> BoxedStrategy<Mask> {
    expressions(u, atoms(u), 5, false)
}

/// Returns a square or cached shape of this universe, with facts for every atom in [`atoms`].
pub(crate) fn settings(u: Universe) -> BoxedStrategy<(Shape, Facts)> {
    let (rows, len) = (u.batch, u.len);
    let shape = prop_oneof![Just(0..len), (0..len).prop_map(move |past| past..len)]
        .prop_map(move |new| Shape::cached(new.start, new.len()).batch(rows).heads(u.heads));
    let facts = (vec(0..=u.len, rows), any::<bool>(), partition(u.len), vec(0..3i64, len), vec(spans_in(u.len), 2));
    (shape, facts, any::<u64>())
        .prop_map(move |(shape, (lengths, left, documents, levels, labels), seed)| {
            let cells: Vec<bool> = (0..shape.q_len() * len).map(|i| seed >> (i % 61) & 1 == 1).collect();
            let array = || Array::keep(&[1, 1, shape.q_len(), len], &cells).expect("as many cells as the shape says");
            let mut facts = Facts::new()
                .lengths(lengths)
                .side(if left { Side::Left } else { Side::Right })
                .documents(documents)
                .levels(levels);
            for (label, at) in LABELS.iter().zip(labels) {
                facts = facts.label(*label, at);
            }
            for name in ARRAYS {
                facts = facts.array(name, array());
            }
            (shape, facts)
        })
        .boxed()
}

/// Returns names that need quotes and escapes, and names that do not.
pub(crate) fn unusual_names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zé_][a-z0-9_]{0,6}", "\\PC{1,8}", any::<String>().prop_filter("not empty", |name| !name.is_empty())]
}

/// Returns atoms with parameters from their whole range. They are valid by themselves but fit few shapes.
pub(crate) fn unusual_atoms() -> BoxedStrategy<Mask> {
    let limit = 1i64 << 62;
    let number = prop_oneof![0..20i64, -limit..=limit];
    let whole = prop_oneof![1..20usize, 1..=1usize << 62];
    let probability = prop_oneof![0.0..=1.0, Just(1e-7), Just(5e-324), Just(1.0 - f64::EPSILON / 2.0), Just(-0.0)];
    prop_oneof![
        number.clone().prop_map(causal_offset),
        (number.clone(), option::of(number)).prop_map(|(left, right)| window(left, right)),
        whole.clone().prop_map(sliding),
        whole.clone().prop_map(chunk),
        whole.clone().prop_map(stride),
        vec(whole.clone(), 0..3).prop_map(prefix),
        spans_in(1 << 61).prop_map(keys),
        spans_in(1 << 61).prop_map(spans),
        unusual_names().prop_map(|name| keys(Positions::label(name))),
        unusual_names().prop_map(dense),
        (probability, any::<u64>()).prop_map(|(p, seed)| random(p, seed)),
        (whole.clone(), whole, any::<u64>()).prop_map(|(block, count, seed)| random_blocks(block, count, seed)),
    ]
    .boxed()
}
