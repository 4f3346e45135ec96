//! In `bf16`, a document has the same bits wherever it is: alone, after padding, packed after other documents, in any batch row,
//! computed by any number of threads, in one pass or step by step over a cache.

use crate::common::{Array, assert_same_bits, plan, run};
use noren::{Attention, Isa, KvCache, KvShape, Options, bf16};
use noren_mask::{Facts, Mask, Shape, Side};
use proptest::prelude::*;

/// The queries, keys and values of a document, `[1, heads, len, head_dim]`.
type Document = [Array<bf16>; 3];

/// Some documents, and the mask in which each is alone.
#[derive(Clone, Debug)]
struct Case {
    lengths: Vec<usize>,
    mask: String,
    group: usize,
    dims: [usize; 2],
    seed: u64,
}

impl Case {
    fn strategy(decoding: bool) -> impl Strategy<Value = Case> {
        let masks = (0..if decoding { 2 } else { 4 }, 1usize..120).prop_map(|(kind, width)| match kind {
            0 => "causal".to_owned(),
            1 => format!("sliding({width})"),
            2 => format!("window(left={width}, right=30)"),
            _ => "full".to_owned(),
        });
        let lengths = prop::collection::vec(prop_oneof![1usize..10, 1usize..150], 1..5);
        (lengths, masks, 1usize..3, [1usize..70, 1usize..70], any::<u64>())
            .prop_map(|(lengths, mask, group, dims, seed)| Case { lengths, mask, group, dims, seed })
    }

    fn documents(&self) -> Vec<Document> {
        let document = |(n, len): (usize, &usize)| {
            let sizes = [(2 * self.group, self.dims[0]), (2, self.dims[0]), (2, self.dims[1])];
            let array = |i: usize| {
                let (heads, dim) = sizes[i];
                Array::random([1, heads, *len, dim], self.seed ^ (3 * n + i) as u64).cast()
            };
            [array(0), array(1), array(2)]
        };
        self.lengths.iter().enumerate().map(document).collect()
    }

    fn shape(&self, len: usize) -> Shape {
        Shape::square(len).heads(2 * self.group).kv_heads(2)
    }

    /// Returns the attention of a document alone.
    fn alone(&self, [q, k, v]: &Document, isa: Isa) -> Attention<bf16> {
        run(q, k, v, &plan(&self.mask, &self.shape(q.shape[2]), &Facts::new()), isa, &Options::default())
    }
}

/// Returns arrays of `batch` batch rows and `len` tokens with documents at the places `[batch row, first token]`. All other
/// numbers are `fill`.
fn placed(documents: &[Document], places: &[[usize; 2]], batch: usize, len: usize, fill: f32) -> Document {
    std::array::from_fn(|i| {
        let [_, heads, _, dim] = documents[0][i].shape;
        let mut array = Array::new([batch, heads, len, dim], |_| fill).cast::<bf16>();
        for (document, [b, first]) in documents.iter().zip(places) {
            let from = &document[i];
            let count = from.shape[2] * dim;
            for h in 0..heads {
                let to = ((b * heads + h) * len + first) * dim;
                array.data[to..to + count].copy_from_slice(&from.data[h * count..][..count]);
            }
        }
        array
    })
}

/// Compares rows of two results: those of `got` in batch row `b` from `first` on, and those of `expected` from `from` on.
#[track_caller]
fn check(
    got: &Attention<bf16>,
    [b, first]: [usize; 2],
    expected: &Attention<bf16>,
    from: usize,
    rows: usize,
    what: &str,
) {
    let row = |x: &Attention<bf16>, [b, h, i]: [usize; 3]| {
        let [_, heads, rows, width] = x.shape;
        let at = (b * heads + h) * rows + i;
        let mut row: Vec<f32> = x.out[at * width..][..width].iter().map(|x| x.to_f32()).collect();
        row.push(x.lse[at]);
        row
    };
    for (h, i) in (0..expected.shape[1]).flat_map(|h| (0..rows).map(move |i| (h, i))) {
        let (got, expected) = (row(got, [b, h, first + i]), row(expected, [0, h, from + i]));
        assert_same_bits(&got, &expected, &format!("{what}, head {h}, row {}", from + i));
    }
}

/// Returns the masks of packed documents after `left` and before `right` other tokens, as texts.
fn packed(case: &Case, left: usize, right: usize) -> [String; 2] {
    let total: usize = case.lengths.iter().sum();
    let lengths: Vec<usize> = case.lengths.iter().copied().chain([right]).filter(|len| *len > 0).collect();
    let first = if left > 0 { format!("{left}, ") } else { String::new() };
    let list = format!("{lengths:?}");
    let documents = format!("{} & documents([{first}{})", case.mask, &list[1..]);
    [documents.clone(), format!("{documents} & keys({left}..{})", left + total)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packing_changes_no_bit(case in Case::strategy(false), left in 0usize..100, right in 0usize..60) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let documents = case.documents();
        let mut next = left;
        let places: Vec<_> = case.lengths.iter().map(|len| { next += len; [0, next - len] }).collect();
        let total = next + right;
        for isa in Isa::available() {
            let alone: Vec<_> = documents.iter().map(|document| case.alone(document, *isa)).collect();
            for mask in packed(&case, left, right) {
                let [q, k, v] = placed(&documents, &places, 1, total, f32::NAN);
                let plan = plan(&mask, &case.shape(total), &Facts::new());
                for threads in [1, 2] {
                    let got = pool.install(|| run(&q, &k, &v, &plan, *isa, &Options::default().threads(threads)));
                    for (place, alone) in places.iter().zip(&alone) {
                        check(&got, *place, alone, 0, alone.shape[2], &format!("{mask} on {isa}, {threads} threads, at {place:?}"));
                    }
                }
            }
        }
    }

    #[test]
    fn padding_changes_no_bit(case in Case::strategy(false), more in 0usize..80) {
        let documents = case.documents();
        let (batch, len) = (case.lengths.len(), case.lengths.iter().max().unwrap() + more);
        for (side, isa) in [Side::Left, Side::Right].into_iter().flat_map(|side| Isa::available().iter().map(move |isa| (side, *isa))) {
            let place = |(b, n): (usize, &usize)| [b, if side == Side::Left { len - n } else { 0 }];
            let places: Vec<_> = case.lengths.iter().enumerate().map(place).collect();
            let [q, k, v] = placed(&documents, &places, batch, len, f32::NAN);
            let facts = Facts::new().lengths(case.lengths.clone()).side(side);
            let mask = format!("{} & padding", case.mask);
            let got = run(&q, &k, &v, &plan(&mask, &case.shape(len).batch(batch), &facts), isa, &Options::default());
            for (document, place) in documents.iter().zip(&places) {
                let alone = case.alone(document, isa);
                check(&got, *place, &alone, 0, alone.shape[2], &format!("{mask} on {isa}, {side:?}, at {place:?}"));
            }
        }
    }

    #[test]
    fn steps_over_a_padded_cache_change_no_bit(case in Case::strategy(true), more in 0usize..80, steps in prop::collection::vec(1usize..4, 1..4)) {
        let documents = case.documents();
        let (batch, len) = (case.lengths.len(), case.lengths.iter().max().unwrap() + more);
        let places: Vec<_> = case.lengths.iter().enumerate().map(|(b, n)| [b, len - n]).collect();
        let arrays = placed(&documents, &places, batch, len, f32::NAN);
        let mask: Mask = format!("{} & padding", case.mask).parse().unwrap();
        let facts = |past: usize| Facts::new().lengths(case.lengths.iter().map(|n| (n + past).saturating_sub(len)).collect::<Vec<_>>()).side(Side::Left);
        check_steps(&case, &arrays, &documents, &places, &mask, &facts, &steps);
    }

    #[test]
    fn steps_after_other_documents_change_no_bit(case in Case::strategy(true), steps in prop::collection::vec(1usize..4, 1..4)) {
        let documents = case.documents();
        let total: usize = case.lengths.iter().sum();
        let last = documents.len() - 1;
        let mut next = 0;
        let places: Vec<_> = case.lengths.iter().map(|len| { next += len; [0, next - len] }).collect();
        let arrays = placed(&documents, &places, 1, total, f32::NAN);
        let mask: Mask = format!("{} & documents", case.mask).parse().unwrap();
        let facts = |past: usize| {
            let starts = case.lengths.iter().scan(0, |start, len| {
                *start += len;
                Some(*start - len)
            });
            let lengths = case.lengths.iter().zip(starts).map(|(len, start)| past.saturating_sub(start).min(*len));
            let lengths: Vec<_> = lengths.filter(|len| *len > 0).collect();
            Facts::new().documents(vec![lengths])
        };
        check_steps(&case, &arrays, &documents[last..], &places[last..], &mask, &facts, &steps);
    }
}

/// Heads that share keys have the bits of each mask alone, also if content begins at other keys for each.
#[test]
fn heads_with_other_documents_change_no_bit() {
    let masks = ["causal & documents([37, 1, 90])", "causal & keys(5..)", "causal"];
    let text = format!("heads(0: {}, 1: {}, else: {})", masks[0], masks[1], masks[2]);
    let shape = Shape::square(128).heads(4).kv_heads(1);
    let q = Array::random([1, 4, 128, 40], 1).cast::<bf16>();
    let [k, v] = [2, 3].map(|seed| Array::random([1, 1, 128, 40], seed).cast::<bf16>());
    for isa in Isa::available() {
        let got = run(&q, &k, &v, &plan(&text, &shape, &Facts::new()), *isa, &Options::default());
        for (h, mask) in masks.iter().enumerate() {
            let own = run(&q, &k, &v, &plan(mask, &shape, &Facts::new()), *isa, &Options::default());
            let rows = h * 128..(h + 1) * 128;
            assert_same_bits(&got.lse[rows.clone()], &own.lse[rows.clone()], &format!("{mask} on {isa}"));
            let [got, own] = [&got, &own].map(|x| x.out[rows.start * 40..rows.end * 40].iter().map(|x| x.to_f32()));
            assert_same_bits(&got.collect::<Vec<_>>(), &own.collect::<Vec<_>>(), &format!("{mask} on {isa}"));
        }
    }
}

/// Compares the last tokens of documents, computed step by step over caches of several forms, with the documents alone.
fn check_steps(
    case: &Case,
    arrays: &Document,
    documents: &[Document],
    places: &[[usize; 2]],
    mask: &Mask,
    facts: &dyn Fn(usize) -> Facts,
    steps: &[usize],
) {
    let [batch, heads, len, _] = arrays[0].shape;
    let part = |x: &Array<bf16>, rows: std::ops::Range<usize>| {
        let [b, h, _, d] = x.shape;
        Array::new([b, h, rows.len(), d], |[b, h, i, d]| x.view().get([b, h, rows.start + i, d]).to_f32())
            .cast::<bf16>()
    };
    for isa in Isa::available() {
        let alone: Vec<_> = documents.iter().map(|document| case.alone(document, *isa)).collect();
        let shape = KvShape::new(2, case.dims[0]).v_dim(case.dims[1]).sequences(batch).isa(*isa);
        for block in [0, 16, 48, 64] {
            let mut cache = match block {
                0 => KvCache::<bf16>::contiguous(&shape, len).unwrap(),
                block => KvCache::paged(&shape, block, batch * len.div_ceil(block)).unwrap(),
            };
            let mut past = len.saturating_sub(steps.iter().sum());
            if past > 0 {
                let [k, v] = [1, 2].map(|i| part(&arrays[i], 0..past));
                cache.append(k.view(), v.view()).unwrap();
            }
            for step in steps {
                let new = (*step).min(len - past);
                if new == 0 {
                    break;
                }
                let [q, k, v] = [0, 1, 2].map(|i| part(&arrays[i], past..past + new));
                cache.append(k.view(), v.view()).unwrap();
                past += new;
                let plan = cache.plan(mask, &facts(past), heads, new).unwrap();
                let got = cache.attention(q.view(), &plan, &Options::default()).unwrap();
                for ([b, first], alone) in places.iter().zip(&alone) {
                    let begin = (past - new).max(*first);
                    let rows = past.saturating_sub(begin);
                    let what = format!(
                        "{mask} on {isa}, blocks of {block}, {new} tokens to {past}, batch row {b} from {first}"
                    );
                    check(&got, [*b, begin + new - past], alone, begin - first, rows, &what);
                }
            }
        }
    }
}
