//! Functions as atoms: `Mask::from_tiles`, and bounds of `Mask::from_fn`.
#![allow(clippy::single_range_in_vec_init)] // bounds are lists of ranges

use noren_mask::atom::{Reach, verify};
use noren_mask::atoms::{self, TileCells, TileFunction};
use noren_mask::{Cell, Cells, Facts, Mask, Shape};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cells by arithmetic; `calls` counts the calls of `cells`.
struct Sums {
    uses: (bool, bool),
    calls: Arc<AtomicUsize>,
}

fn allowed(batch: usize, head: usize, q: i64, k: i64) -> bool {
    let far = q - k > 200;
    (far || (q * 3 + k * 5 + batch as i64 + 2 * head as i64) % 7 < 3) && k <= q
}

impl TileFunction for Sums {
    fn name(&self) -> String {
        "sums".into()
    }

    fn uses_batch(&self) -> bool {
        self.uses.0
    }

    fn uses_head(&self) -> bool {
        self.uses.1
    }

    fn cells(&self, Cells { batch, head, queries, keys }: Cells) -> Result<TileCells, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let keys_end = keys.end;
        if keys_end > 1000 {
            return Err(format!("{keys_end} keys: give at most 1000"));
        }
        let side = TileCells::SIDE as i64;
        let mut cells = TileCells::new(queries.clone(), keys_end);
        for (row, first) in (queries.start..queries.end).step_by(TileCells::SIDE).enumerate() {
            for tile in 0..(keys_end + side - 1) / side {
                let mut bits = [0; TileCells::SIDE];
                let mut full = true;
                for (word, q) in bits.iter_mut().zip(first..queries.end) {
                    for (bit, k) in (tile * side..keys_end.min(tile * side + side)).enumerate() {
                        let cell = allowed(batch, head, q, k);
                        *word |= u64::from(cell) << bit;
                        full &= cell;
                    }
                }
                let tile = tile as u32;
                let added = match bits.iter().any(|word| *word != 0) {
                    _ if full => cells.full(row, tile..tile + 1),
                    true => cells.mixed(row, tile, bits),
                    false => Ok(()),
                };
                added.map_err(|error| error.to_string())?;
            }
        }
        Ok(cells)
    }
}

fn sums(uses: (bool, bool)) -> (Mask, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    (Mask::from_tiles(Sums { uses, calls: calls.clone() }), calls)
}

#[test]
fn they_are_planned_exactly() {
    let (mask, _) = sums((true, true));
    let shapes = [
        Shape::square(1),
        Shape::square(63).batch(2),
        Shape::square(300).batch(2).heads(3),
        Shape::cross(70, 200).heads(2),
        Shape::cached(500, 37),
    ];
    for shape in shapes {
        verify(&mask, &shape, &Facts::new()).unwrap();
        let combined = atoms::window(90, 3) & !mask.clone() | mask.clone() & atoms::keys(5);
        verify(&combined, &shape, &Facts::new()).unwrap();
        let bound = mask.bind(&shape, &Facts::new()).unwrap();
        let mut count = 0;
        for batch in 0..shape.batch_len() {
            for head in 0..shape.head_count() {
                for row in 0..shape.q_len() {
                    for key in 0..shape.kv_len() {
                        let expected = allowed(batch, head, row as i64 + shape.query_offset(batch), key as i64);
                        assert_eq!(bound.allowed(batch, head, row, key), expected);
                        count += u128::from(expected);
                    }
                }
            }
        }
        assert_eq!(bound.plan().stats().allowed, count);
    }
    let ring = Facts::new().positions(vec![vec![64, 65, 2, 3, 4, -1]]);
    verify(&mask, &Shape::new(2, 6, 64), &ring).unwrap();
}

#[test]
fn they_are_called_once_for_each_place_and_shape() {
    for (uses, calls_of) in [((false, false), 1), ((true, false), 3), ((false, true), 2), ((true, true), 6)] {
        let (mask, calls) = sums(uses);
        let shape = Shape::square(100).batch(3).heads(2);
        let bound = mask.bind(&shape, &Facts::new()).unwrap();
        assert!(!bound.allowed(2, 1, 3, 90));
        bound.plan();
        assert_eq!(calls.load(Ordering::Relaxed), calls_of, "{uses:?}");
        assert_eq!(bound.pattern_count(), calls_of);
        // a smaller shape reads the same cells
        mask.bind(&Shape::square(80), &Facts::new()).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), calls_of);
    }
}

#[test]
fn they_are_refused_with_their_own_reason() {
    let (mask, _) = sums((false, false));
    let error = |shape: Shape| (atoms::causal() & mask.clone()).bind(&shape, &Facts::new()).unwrap_err().to_string();
    assert_eq!(error(Shape::square(1001)), "`function(sums)`: 1001 keys: give at most 1000");
    let before = error(Shape::new(4, 4, -2));
    assert!(before.contains("query row 0 of batch row 0 has position -2"), "{before}");
    assert_eq!(mask, mask.clone());
    assert_ne!(mask, sums((false, false)).0);
    assert!(mask.to_string().parse::<Mask>().is_err());
}

#[test]
fn tiles_are_checked() {
    let mut cells = TileCells::new(0..100, 130);
    cells.full(0, 0..2).unwrap();
    cells.mixed(1, 2, [0b11; TileCells::SIDE]).unwrap_err(); // queries 100 to 127 do not exist
    let mut bits = [0; TileCells::SIDE];
    bits[..36].fill(0b11);
    cells.mixed(1, 2, bits).unwrap();
    for (row, tiles, reason) in
        [(2, 0..1, "rows of"), (1, 3..4, "tiles"), (1, 2..3, "not after"), (0, 2..3, "not after")]
    {
        let error = cells.full(row, tiles).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    bits[0] = 0b100;
    assert!(TileCells::new(0..100, 130).mixed(0, 2, bits).unwrap_err().to_string().contains("do not exist"));
    assert!(cells.allowed(99, 129) && !cells.allowed(100, 129) && !cells.allowed(99, 130) && !cells.allowed(-1, 0));
    assert!(cells.allowed(63, 127) && !cells.allowed(63, 128) && cells.bytes() < 1000);
}

/// Returns bounds with one range of keys that some query reads and one that every query reads.
fn reach(some: Range<i64>, every: Range<i64>) -> Reach {
    Reach::Keys { some: vec![some], every: vec![every] }
}

#[test]
fn bounds_of_a_function_are_checked() {
    let near = || Mask::from_fn(|Cell { query, key, .. }| query.abs_diff(key) < 5);
    let good = |Cells { queries, .. }: Cells| reach(queries.start - 4..queries.end + 4, 0..0);
    let shape = Shape::square(40).batch(2);
    verify(&near().with_bounds(good).unwrap(), &shape, &Facts::new()).unwrap();
    let narrow = near().with_bounds(|Cells { queries, .. }| reach(queries.start - 4..queries.end + 3, 0..0)).unwrap();
    let wide = near().with_bounds(|_| reach(0..40, 0..40)).unwrap();
    for (wrong, problem, list) in
        [(narrow, "reads the key", "`some` leaves this key out"), (wide, "does not read the key", "`every` contains")]
    {
        for shape in [shape.clone(), Shape::cached(30, 20), Shape::new(70, 90, 5).heads(2)] {
            let bound = (atoms::full() & !wrong.clone()).bind(&shape, &Facts::new());
            if !cfg!(debug_assertions) {
                bound.unwrap(); // only debug builds check the bounds when a mask is bound
                continue;
            }
            let error = bound.unwrap_err().to_string();
            assert!(error.starts_with("`full & !function`: the bounds of the query positions"), "{error}");
            assert!(error.contains(problem) && error.contains(list), "{error}");
        }
    }
    let error = atoms::causal().with_bounds(good).unwrap_err().to_string();
    assert!(error.contains("only a mask made by Mask::from_fn can have bounds"), "{error}");
}

#[test]
fn functions_with_other_bounds_are_other_masks() {
    let plain = Mask::from_fn(|Cell { query, key, .. }| key <= query);
    let exact = |Cells { queries, .. }: Cells| reach(0..queries.end, 0..queries.start + 1);
    let bounded = plain.clone().with_bounds(exact).unwrap();
    let again = plain.clone().with_bounds(exact).unwrap();
    let masks = [&plain, &bounded, &again];
    for (i, a) in masks.iter().enumerate() {
        for (j, b) in masks.iter().enumerate() {
            assert_eq!(a == b, i == j, "masks {i} and {j}");
            assert_eq!(a.cmp(b).is_eq(), i == j, "masks {i} and {j}");
        }
        assert_eq!(HashSet::from([(*a).clone(), (*a).clone()]).len(), 1);
    }
    assert_eq!(HashSet::from(masks).len(), 3);
    // two heads with one function and different bounds do not share a plan, and a union keeps both
    let heads = atoms::heads([(0..1, bounded.clone()), (1..2, plain)]);
    let plan = heads.bind(&Shape::square(200).heads(2), &Facts::new()).unwrap().plan();
    assert_eq!(plan.stats().allowed, 200 * 201);
    assert_eq!(
        (bounded | again).bind(&Shape::square(200), &Facts::new()).unwrap().plan().stats().allowed,
        200 * 201 / 2
    );
}

#[test]
fn batch_rows_at_many_positions_are_computed_once() {
    let (mask, calls) = sums((false, false));
    let offsets: Vec<i64> = (0..100).map(|row| row * 7 % 400).collect();
    let shape = Shape::new(3, 500, 0).batch(100).query_offsets(offsets.clone());
    let bound = mask.bind(&shape, &Facts::new()).unwrap();
    let count = calls.load(Ordering::Relaxed);
    assert!(count <= 100, "{count}");
    for pass in 0..2 {
        for (row, offset) in offsets.iter().enumerate() {
            for k in (pass..500).step_by(7) {
                assert_eq!(bound.allowed(row, 0, 2, k), allowed(0, 0, offset + 2, k as i64));
            }
        }
        bound.plan();
        assert_eq!(calls.load(Ordering::Relaxed), count);
    }
}

#[test]
fn memory_of_stored_tiles_is_bounded() {
    /// Mixed tiles, which take about 512 bytes for 64 keys.
    struct Wide(Arc<AtomicUsize>);
    impl TileFunction for Wide {
        fn name(&self) -> String {
            "wide".into()
        }
        fn uses_batch(&self) -> bool {
            true
        }
        fn uses_head(&self) -> bool {
            false
        }
        fn cells(&self, Cells { queries, keys, .. }: Cells) -> Result<TileCells, String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut cells = TileCells::new(queries, keys.end);
            let mut bits = [0; TileCells::SIDE];
            bits[0] = 1;
            for tile in 0..(keys.end as u32).div_ceil(64) {
                cells.mixed(0, tile, bits).map_err(|error| error.to_string())?;
            }
            Ok(cells)
        }
    }
    // each batch row takes more than 32 MiB: not all of them are stored
    let calls = Arc::new(AtomicUsize::new(0));
    let mask = Mask::from_tiles(Wide(calls.clone()));
    let bound = mask.bind(&Shape::cross(1, 1 << 22).batch(12), &Facts::new()).unwrap();
    let before = calls.load(Ordering::Relaxed);
    assert!(bound.allowed(11, 0, 0, 64) && !bound.allowed(11, 0, 0, 65));
    assert_eq!(calls.load(Ordering::Relaxed), before);
    assert!(bound.allowed(0, 0, 0, 64) && !bound.allowed(0, 0, 0, 65));
    assert_eq!(calls.load(Ordering::Relaxed), before + 1);
}

#[test]
fn tiles_at_the_limits_of_positions_do_not_panic() {
    let ends = [i64::MIN, i64::MIN + 1, -65, -1, 0, 1, 64, 1 << 40, i64::MAX - 1, i64::MAX];
    let bits = [u64::MAX; TileCells::SIDE];
    for start in ends {
        for end in ends {
            for keys_end in ends {
                for row in [0, 1, 1 << 40, 1 << 57, usize::MAX] {
                    for (first, last) in [(0, 1), (5, 4), (0, u32::MAX), (u32::MAX - 1, u32::MAX), (u32::MAX, u32::MAX)]
                    {
                        let mut cells = TileCells::new(start..end, keys_end);
                        let _ =
                            (cells.mixed(row, first, bits), cells.full(row, first..last), cells.full(row, last..last));
                        assert!(cells.bytes() < 10_000);
                        for q in ends {
                            for k in ends {
                                let inside = start <= q && q < end && 0 <= k && k < keys_end;
                                assert!(inside || !cells.allowed(q, k), "{start}..{end}, {keys_end}: {q}, {k}");
                            }
                        }
                    }
                }
            }
        }
    }
    // the first and the last row of tiles of all positions
    let mut cells = TileCells::new(i64::MIN..i64::MAX, i64::MAX);
    cells.full(0, 0..1).unwrap();
    cells.full((1 << 58) - 1, 1..u32::MAX).unwrap();
    assert!(cells.allowed(i64::MIN, 0) && cells.allowed(i64::MIN + 63, 63) && !cells.allowed(i64::MIN + 64, 0));
    assert!(cells.allowed(i64::MAX - 1, 64) && !cells.allowed(i64::MAX - 64, 64) && !cells.allowed(0, 64));
}
