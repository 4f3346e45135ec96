//! Selected rows and keys allow the same cells as in the whole mask: in the definition, in plans and in pictures.
#![allow(clippy::single_range_in_vec_init)] // one run is a list of runs

use noren_mask::{BoundMask, Facts, Mask, Plan, Shape, atoms};
use noren_testing::cases::{masks, options, worlds};
use noren_testing::cells::Cells;
use noren_testing::check;
use proptest::prelude::*;
use std::ops::Range;

/// Returns runs of indices below `len`, at least one run, from the bits of `entropy`.
fn runs(len: usize, entropy: u64) -> Vec<Range<usize>> {
    let longest = 1 + (entropy >> 60) as usize;
    let (mut found, mut at, mut bits) = (Vec::new(), 0, entropy);
    while at < len {
        let end = (at + 1 + bits as usize % longest).min(len);
        if bits & 8 == 0 {
            found.push(at..end);
        }
        at = end;
        bits = bits.rotate_right(5).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    if found.is_empty() {
        found.push(entropy as usize % len..entropy as usize % len + 1);
    }
    found
}

fn indices(runs: &[Range<usize>]) -> Vec<usize> {
    runs.iter().cloned().flatten().collect()
}

fn same_cells(whole: &BoundMask, part: &BoundMask, rows: &[usize], keys: &[usize], plan: &Plan) {
    let cells = Cells::of(part);
    assert_eq!(&cells.dims[2..], [rows.len(), keys.len()]);
    let expected = Cells::from_fn(cells.dims, |[b, h, q, k]| whole.allowed(b, h, rows[q], keys[k]));
    assert_eq!(cells, expected, "by definition");
    if let Some([b, h, q, k]) = cells.zip(&Cells::of_plan(plan), |a, b| a != b).first() {
        panic!("cell [{b}, {h}, {q}, {k}] is {} by definition", cells.get([b, h, q, k]));
    }
    assert_eq!(plan.stats().allowed, cells.count() as u128);
    for b in 0..cells.dims[0] {
        rows.iter()
            .enumerate()
            .for_each(|(i, row)| assert_eq!(part.query_position(b, i), whole.query_position(b, *row)));
        keys.iter().enumerate().for_each(|(i, key)| assert_eq!(part.key_position(b, i), whole.key_position(b, *key)));
    }
}

#[test]
fn selections_are_exact() {
    let cases =
        worlds(40, 6000).prop_flat_map(|world| (Just(world.clone()), masks(&world), options(), any::<[u64; 4]>()));
    check(400, cases, |(world, mask, options, [a, b, c, d])| {
        let whole = world.bind(&mask);
        let (rows, keys) = (runs(whole.shape().q_len(), a), runs(whole.shape().kv_len(), b));
        let part = whole.select(rows.clone(), keys.clone()).unwrap();
        let batch: Vec<usize> = (0..1 + a as usize % 3).map(|i| (b as usize + i) % whole.shape().batch_len()).collect();
        let fewer = part.select_batch(&batch).unwrap();
        let (of_part, of_fewer) = (Cells::of(&part), Cells::of(&fewer));
        assert_eq!(of_fewer, Cells::from_fn(of_fewer.dims, |[b, h, q, k]| of_part.get([batch[b], h, q, k])));
        assert_eq!(of_fewer, Cells::of_plan(&fewer.plan()));

        let (rows, keys) = (indices(&rows), indices(&keys));
        same_cells(&whole, &part, &rows, &keys, &part.plan_with(&options));

        let (fewer, some) = (runs(rows.len(), c), runs(keys.len(), d));
        let twice = part.select(fewer.clone(), some.clone()).unwrap();
        let rows: Vec<usize> = indices(&fewer).into_iter().map(|i| rows[i]).collect();
        let keys: Vec<usize> = indices(&some).into_iter().map(|i| keys[i]).collect();
        same_cells(&whole, &twice, &rows, &keys, &twice.plan_with(&options));
    });
}

#[test]
fn long_selections_stay_small() {
    let mask: Mask = "documents & causal & sliding(4096)".parse().unwrap();
    let facts = Facts::new().documents(vec![vec![1 << 17; 8]]);
    let whole = mask.bind(&Shape::square(1 << 20), &facts).unwrap();
    let every_eighth = (0..128).map(|i| i * 8192..i * 8192 + 1024);
    let part = whole.select(every_eighth.clone(), every_eighth).unwrap();
    let plan = part.plan();
    assert_eq!(part.shape().q_len(), 1 << 17);
    assert!(plan.bytes() < 1 << 17, "{}", plan.bytes());
    assert_eq!(plan.stats().allowed, 128 * 1024 * 1025 / 2);
}

#[test]
fn cells_are_explained_and_compared_as_in_the_whole() {
    let bind = |mask: Mask| mask.bind(&Shape::square(20), &Facts::new()).unwrap();
    let whole = bind(atoms::causal());
    let part = whole.select([10..20], [0..5, 12..20]).unwrap();
    let why = part.explain(0, 0, 1, 6).unwrap();
    assert_eq!((why.cell.q, why.cell.k, why.allowed), (11, 13, false));
    let other = bind(atoms::sliding(11)).select([10..20], [0..5, 12..20]).unwrap();
    assert!(part.explain(0, 0, 10, 0).is_err());
    let first = part.first_difference(&other).unwrap().unwrap();
    assert_eq!((first.q, first.k), (1, 0));
}

#[test]
fn what_cannot_be_selected_is_refused() {
    let whole = atoms::causal().bind(&Shape::square(4), &Facts::new()).unwrap();
    let says = |result: Result<BoundMask, noren_mask::Error>| result.unwrap_err().to_string();
    assert_eq!(
        says(whole.select([2..5], [0..1])),
        "shape: query rows 2..5 are selected, but there are only 4 query rows"
    );
    assert_eq!(says(whole.select([0..1], [2..2])), "shape: no keys are selected: select at least one of the 4 keys");
    assert_eq!(
        says(whole.select_batch(&[1])),
        "shape: batch row 1 is selected, but there are only 1 batch rows, counted from 0"
    );
    assert!(whole.select_batch(&[]).is_err());
    let part = whole.select([0..2], [0..2]).unwrap();
    assert_eq!(
        part.to_json().unwrap_err().to_string(),
        "plan: a mask with selected rows and keys cannot be written as JSON: write the whole mask, and select again after reading"
    );
    assert!(part.plan().to_json().is_err() && serde_json::to_string(&part.plan()).is_err());
}

#[test]
fn the_query_offset_changes_no_cell_of_masks_that_do_not_use_it() {
    let part = prop_oneof![
        masks_of(&["full", "none", "padding", "keys(1..3)", "keys([0, 4..6])", "dense(cells)", "padding(side=left)"]),
        masks_of(&["causal", "sliding(3)", "queries(2..5)", "padding(on=both)", "documents"]),
    ];
    let cases = (proptest::collection::vec((part, 0..4u8), 1..5), -3..12i64);
    let facts = || {
        let cells = (0..2 * 5 * 8).map(|i| i % 3 != 0).collect::<Vec<_>>();
        let cells = noren_mask::Array::keep(&[2, 1, 5, 8], &cells).unwrap();
        Facts::new().lengths(vec![5, 8]).array("cells", cells)
    };
    let unused = std::cell::Cell::new(0);
    check(2000, cases, |(parts, offset)| {
        let mask = parts.into_iter().fold(atoms::full(), |mask, (part, join)| match join {
            0 => mask & part,
            1 => mask | part,
            2 => mask - part,
            _ => !part & mask,
        });
        if mask.uses_query_offset() {
            return;
        }
        unused.set(unused.get() + 1);
        let cells = |offset| {
            let shape = Shape::new(5, 8, offset).batch(2);
            Cells::of(&mask.bind(&shape, &facts()).unwrap())
        };
        assert_eq!(cells(0), cells(offset), "{mask} at {offset}");
    });
    assert!(unused.get() > 100, "{} masks", unused.get());
}

fn masks_of(texts: &'static [&'static str]) -> BoxedStrategy<Mask> {
    proptest::sample::select(texts).prop_map(|text| text.parse().unwrap()).boxed()
}
