//! Functions as masks get positions: a function equals the built-in mask of the same cells, with the same bits, in every
//! kind of call. `PROPTEST_CASES_FACTOR=7` runs 2,100 histories.

use crate::common::{Array, assert_same_bits};
use crate::scene::Dice;
use noren::varlen::{Planner, Sequences, Varlen, packed};
use noren::{
    Attend, Cell, Cells, Inputs, KvCache, KvShape, Mask, Options, PlanOptions, Reorder, Rotating, atom::Reach, atoms::*,
};
use noren_mask::{Facts, Selector, Shape};
use proptest::prelude::any;

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 8;

/// Returns a built-in atom, and a function that allows the same cells.
fn atom(dice: &mut Dice, len: usize) -> (Mask, Mask) {
    let n = 1 + dice.below(len) as i64;
    let (a, b) = (dice.below(len) as i64, dice.below(len) as i64);
    let (a, b) = (a.min(b), a.max(b));
    let range = a as usize..b as usize;
    let inside = move |position: i64| a <= position && position < b;
    let near = Mask::from_fn(move |Cell { query, key, .. }| query - n < key && key <= query);
    let bounds = move |Cells { queries, .. }: Cells| Reach::Keys {
        some: vec![queries.start - n + 1..queries.end],
        every: vec![queries.end - n..queries.start + 1],
    };
    match dice.below(14) {
        0 => (causal(), Mask::from_fn(|cell| cell.key <= cell.query)),
        1 => (sliding(n as usize), near),
        2 => (sliding(n as usize), near.with_bounds(bounds).unwrap()),
        3 => (window(a, n), Mask::from_fn(move |cell| cell.query - a <= cell.key && cell.key <= cell.query + n)),
        4 => (chunk(n as usize), Mask::from_fn(move |cell| cell.query.div_euclid(n) == cell.key.div_euclid(n))),
        5 => (stride(n as usize), Mask::from_fn(move |cell| (cell.query - cell.key) % n == 0)),
        6 => (!keys(n as usize), Mask::from_fn(move |cell| cell.key != n)),
        7 => (queries(range), Mask::from_fn(move |cell| inside(cell.query))),
        8 => (global(range), Mask::from_fn(move |cell| inside(cell.query) || inside(cell.key))),
        9 => (spans([range]), Mask::from_fn(move |cell| inside(cell.query) && inside(cell.key))),
        10 => (prefix(n as usize), Mask::from_fn(move |cell| cell.key < n)),
        11 => (distances([a, n]), Mask::from_fn(move |cell| [a, n].contains(&(cell.query - cell.key)))),
        12 => (
            heads([(0..1, causal()), (1..HEADS, keys(range))]),
            Mask::from_fn(move |cell| if cell.head == 0 { cell.key <= cell.query } else { inside(cell.key) }),
        ),
        _ => (
            batch([(Selector::from(0..1), causal()), (Selector::Else, keys(range))]),
            Mask::from_fn(move |cell| if cell.batch == 0 { cell.key <= cell.query } else { inside(cell.key) }),
        ),
    }
}

/// Returns a mask of built-in atoms, and a mask of functions with the same cells.
fn masks(dice: &mut Dice, len: usize, one_row: bool) -> [Mask; 2] {
    let mut pair = || loop {
        let (built_in, function) = atom(dice, len);
        if !(one_row && built_in.to_string().starts_with("batch")) {
            return (built_in, function, dice.below(5));
        }
    };
    let ((a, f, kind), (b, g, _)) = (pair(), pair());
    match kind {
        0 => [a & b, f & g],
        1 => [a | b, f | g],
        2 => [a - b, f - g],
        3 => [causal() & a, causal() & f],
        _ => [a, f],
    }
}

/// Compares forward and backward passes, with query offsets by batch row or positions of keys as a list.
fn forward(dice: &mut Dice) {
    let (batch, q_len, kv_len) = (1 + dice.below(3), 1 + dice.below(40), 1 + dice.below(90));
    let (rows, placed) = (dice.chance(50), dice.chance(40));
    let mut facts = Facts::new();
    if placed {
        let position =
            |dice: &mut Dice, key: usize| if dice.chance(20) { -1 } else { (key * 7 % kv_len.max(8)) as i64 };
        let list = |dice: &mut Dice| -> Vec<i64> {
            let mut list: Vec<i64> = Vec::new();
            for key in 0..kv_len {
                let next = position(dice, key);
                list.push(if list.contains(&next) { -1 } else { next });
            }
            list
        };
        facts = facts.positions((0..batch).map(|_| list(dice)).collect::<Vec<_>>());
    }
    let count = if rows { batch } else { 1 };
    let offsets: Vec<i64> = (0..count).map(|_| dice.below(100) as i64 - 5).collect();
    let [q, dout] = [1, 4].map(|seed| Array::random([batch, HEADS, q_len, DIM], dice.next() ^ seed));
    let [k, v] = [2, 3].map(|seed| Array::random([batch, KV_HEADS, kv_len, DIM], dice.next() ^ seed));
    let masks = masks(dice, 90, batch == 1);
    let name = format!("{} at {offsets:?} with {facts:?}", masks[0]);
    let [built_in, function] = masks.map(|mask| {
        let plan = PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() };
        let attend = Attend::new(mask).unwrap().facts(facts.clone()).query_offsets(offsets.clone()).plan_options(plan);
        let out = attend.forward(q.view(), k.view(), v.view()).unwrap();
        let back = attend.backward(q.view(), k.view(), v.view(), &out, dout.view()).unwrap();
        [out.out, out.lse, back.dq, back.dk, back.dv]
    });
    for (got, expected) in function.iter().zip(&built_in) {
        assert_same_bits(got, expected, &name);
    }
}

/// Compares the steps of decoding: several sequences with different lengths, in a cache of any form, with removed tokens
/// and with a tree of guesses.
fn decode(dice: &mut Dice) {
    let sequences = 1 + dice.below(3);
    let shape = KvShape::new(KV_HEADS, DIM).sequences(sequences);
    let mut cache = match dice.below(3) {
        0 => KvCache::contiguous(&shape, 400).unwrap(),
        1 => KvCache::paged(&shape, 16, 100).unwrap(),
        _ => KvCache::rotating(&shape, Rotating { window: 1 + dice.below(40), sink_tokens: dice.below(6), ahead: 20 })
            .unwrap(),
    };
    let masks = masks(dice, 60, sequences == 1);
    for step in 0..8 {
        let ragged = dice.chance(50);
        let same = 1 + dice.below(20);
        let counts: Vec<usize> = (0..sequences).map(|_| if ragged { 1 + dice.below(20) } else { same }).collect();
        let cu_seqlens: Vec<usize> = (0..=sequences).map(|b| counts[..b].iter().sum()).collect();
        let (batch, new) = if ragged { (1, cu_seqlens[sequences]) } else { (sequences, same) };
        let q = Array::random([batch, HEADS, new, DIM], dice.next());
        let [k, v] = [(); 2].map(|()| Array::random([batch, KV_HEADS, new, DIM], dice.next()));
        match ragged {
            true => cache.append_ragged(k.view(), v.view(), &cu_seqlens).unwrap(),
            false => cache.append(k.view(), v.view()).unwrap(),
        }
        let tree = sequences == 1 && dice.chance(40);
        let masks = if tree { guesses(dice, cache.len(0) - new, new) } else { masks.clone() };
        let [built_in, function] = masks.each_ref().map(|mask| {
            let plan = match ragged {
                true => cache.plan_ragged(mask, &Facts::new(), HEADS, &cu_seqlens),
                false => cache.plan(mask, &Facts::new(), HEADS, new),
            };
            let out = cache.attention(q.view(), &plan.unwrap(), &Options::new()).unwrap();
            [out.out, out.lse]
        });
        let name = format!("{}: step {step} of {counts:?} tokens", masks[0]);
        for (got, expected) in function.iter().zip(&built_in) {
            assert_same_bits(got, expected, &name);
        }
        match dice.below(4) {
            0 => cache.keep(0, counts[0], &[dice.below(counts[0])]).unwrap(),
            1 => cache.truncate(0, cache.len(0) - dice.below(counts[0])).unwrap(),
            _ => {}
        }
    }
}

/// Returns the mask of a tree of `count` guesses after `past` tokens, as an atom and as a function.
fn guesses(dice: &mut Dice, past: usize, count: usize) -> [Mask; 2] {
    let parents: Vec<i64> = (0..count).map(|node| dice.below(node + 1) as i64 - 1).collect();
    let (start, list) = (past as i64, parents.clone());
    let function = Mask::from_fn(move |Cell { query, key, .. }| {
        let mut node = query - start;
        while node > key - start && node >= 0 {
            node = list[node as usize];
        }
        key < start || node == key - start
    });
    [keys(..past) | tree(parents, past), function]
}

/// Compares packed sequences of different lengths.
fn packs(dice: &mut Dice) {
    let lengths = |dice: &mut Dice| (0..4).map(|_| dice.below(50)).collect::<Vec<_>>();
    let starts = |lengths: &[usize]| (0..=lengths.len()).map(|n| lengths[..n].iter().sum()).collect::<Vec<usize>>();
    let (of_queries, of_keys) = (lengths(dice), lengths(dice));
    let (of_queries, of_keys) = (starts(&of_queries), starts(&of_keys));
    let [tokens, all] = [of_queries[4], of_keys[4]];
    let q = Array::random([1, tokens, HEADS, DIM], dice.next());
    let [k, v] = [(); 2].map(|()| Array::random([1, all, KV_HEADS, DIM], dice.next()));
    let masks = masks(dice, 50, true);
    // these plans may read keys in another order, which changes last bits; `Varlen` has no `Reorder::Never`
    let text = masks[0].to_string();
    if ["stride", "distances", "global"].iter().any(|name| text.contains(name)) {
        return;
    }
    let name = format!("{}: packed {of_queries:?} and {of_keys:?}", masks[0]);
    let [built_in, function] = masks.map(|mask| {
        let inputs = Inputs {
            q: packed(&q.data, [tokens, HEADS, DIM]).unwrap(),
            k: packed(&k.data, [all, KV_HEADS, DIM]).unwrap(),
            v: packed(&v.data, [all, KV_HEADS, DIM]).unwrap(),
        };
        let call = Varlen::new(Sequences::packed(&of_queries, &of_keys).unwrap()).mask(mask).unwrap();
        call.forward(&Planner::default(), &inputs).unwrap().out
    });
    assert_same_bits(&function, &built_in, &name);
}

#[test]
fn functions_equal_built_in_atoms() {
    noren_testing::check(300, any::<u64>(), |seed| {
        let mut dice = Dice(seed);
        match dice.below(4) {
            0 => forward(&mut dice),
            1 => packs(&mut dice),
            _ => decode(&mut dice),
        }
    });
}

#[test]
fn a_function_decodes_as_causal() {
    let attend = Attend::new(Mask::from_fn(|cell| cell.key <= cell.query)).unwrap();
    let mut cache = KvCache::contiguous(&KvShape::new(1, 2), 16).unwrap();
    let q = [0.0f32; 2];
    for token in 0..4 {
        let x = [token as f32; 2];
        let (q, x) = ((&q, [1, 1, 1, 2]), (&x, [1, 1, 1, 2]));
        assert_eq!(attend.decode(&mut cache, q, x, x).unwrap().out[0], token as f32 / 2.0);
    }
    let k: Vec<f32> = (0..8).map(|i| (i / 2) as f32).collect();
    let (q, k) = ((&q, [1, 1, 1, 2]), (&k, [1, 1, 4, 2]));
    assert!(attend.forward(q, k, k).is_err(), "the position of the query is unknown");
    assert_eq!(attend.query_offset(3).forward(q, k, k).unwrap().out[0], 1.5);
}

#[test]
fn a_token_that_a_function_hides_is_not_read_in_a_rotating_cache() {
    let attend = Attend::new(Mask::from_fn(|cell| cell.key != 20)).unwrap();
    let mut cache = KvCache::rotating(&KvShape::new(1, 2), Rotating { window: 64, sink_tokens: 0, ahead: 1 }).unwrap();
    let q = [0.0f32; 2];
    for token in 0..200 {
        let x = [if token == 20 { 1e6f32 } else { 0.0 }; 2];
        let (q, x) = ((&q, [1, 1, 1, 2]), (&x, [1, 1, 1, 2]));
        assert_eq!(attend.decode(&mut cache, q, q, x).unwrap().out[0], 0.0, "step {token}");
    }
}

#[test]
fn functions_and_atoms_allow_the_same_cells() {
    noren_testing::check(300, any::<u64>(), |seed| {
        let mut dice = Dice(seed);
        let [built_in, function] = masks(&mut dice, 40, false);
        let shape =
            Shape::new(1 + dice.below(30), 1 + dice.below(50), dice.below(60) as i64 - 10).batch(2).heads(HEADS);
        let [a, b] = [&built_in, &function].map(|mask| mask.bind(&shape, &Facts::new()).unwrap());
        assert_eq!(a.first_difference(&b).unwrap(), None, "{built_in} at {shape:?}");
    });
}
