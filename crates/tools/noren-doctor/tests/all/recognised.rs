//! Expressions that `recognise` calls exact bind and allow exactly the given cells.
//!
//!     NOREN_RECOGNISE=100000 cargo test -p noren-doctor --test all recognised:: -- --nocapture
//!
//! `NOREN_RECOGNISE` is the number of larger arrays [default: 2000]. All arrays up to 3 x 4 and 4 x 3 are always tested.

use noren_doctor::recognise;
use noren_mask::{Facts, Keep, Mask, Shape};
use noren_testing::cases::worlds;
use noren_testing::structured::structured;
use proptest::prelude::*;
use std::cell::Cell;

/// Compares the found expression with the cells by the definition; returns true if the expression is exact.
fn check(keep: &Keep) -> bool {
    let found = recognise(keep);
    let [batch, heads, q_len, kv_len] = keep.dims();
    let bound = found
        .nearest()
        .bind(&found.shape, &Facts::new())
        .unwrap_or_else(|error| panic!("{} on {:?}: {error}", found.nearest(), found.shape));
    let mut wrong = 0;
    for b in 0..batch {
        for h in 0..heads {
            for q in 0..q_len {
                wrong += (0..kv_len).filter(|&k| bound.allowed(b, h, q, k) != keep.get([b, h, q, k])).count() as u64;
            }
        }
    }
    assert_eq!(found.wrong, wrong, "`{}` on {:?}", found.nearest(), found.shape);
    assert_eq!(found.is_exact(), found.mask().is_ok());
    if wrong <= 64 {
        assert_eq!(found.exceptions.len() as u64, wrong, "`{}` on {:?}", found.nearest(), found.shape);
    }
    let differs = |&[b, h, q, k]: &[usize; 4]| bound.allowed(b, h, q, k) != keep.get([b, h, q, k]);
    assert!(found.exceptions.iter().all(differs));
    found.is_exact()
}

#[test]
fn every_small_array() {
    let (mut all, mut exact) = (0, 0);
    for (q_len, kv_len) in (1..=4).flat_map(|q| (1..=4).map(move |k| (q, k))).filter(|(q, k)| q * k <= 12) {
        for bits in 0..1u32 << (q_len * kv_len) {
            let keep = Keep::from_fn([1, 1, q_len, kv_len], |[_, _, q, k]| bits >> (q * kv_len + k) & 1 == 1);
            all += 1;
            exact += usize::from(check(&keep));
        }
    }
    println!("{all} arrays up to 3 x 4 and 4 x 3: {exact} exact, the others with their number of differing cells");
}

fn cells_of(text: &str, shape: &Shape) -> Keep {
    let mask: Mask = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let bound = mask.bind(shape, &Facts::new()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let dims = [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()];
    Keep::from_fn(dims, |[b, h, q, k]| bound.allowed(b, h, q, k))
}

/// `window(left=8, right=8) | keys(0)` was once reported as `window(left=8, right=8)` and exact, although 55 cells
/// differ.
#[test]
fn a_window_beside_a_key_is_not_a_window() {
    let keep = cells_of("window(left=8, right=8) | keys(0)", &Shape::square(64));
    assert!(check(&keep));
    assert_eq!(recognise(&keep).mask().unwrap().to_string(), "window(left=8, right=8) | keys(0)");
}

#[test]
fn families_are_recognised() {
    for (text, shape) in [
        ("stride(3)", Shape::square(9)),
        ("stride(3)", Shape::square(64)),
        ("causal & stride(4)", Shape::square(40)),
        ("sliding(9) & stride(4)", Shape::square(40)),
        ("sliding(4) | causal & stride(8)", Shape::square(64)),
        ("!stride(3)", Shape::square(30)),
        ("causal & !stride(5)", Shape::square(30)),
        ("!chunk(4)", Shape::square(24)),
        ("!sliding(4)", Shape::square(24)),
        ("window(left=3, right=3) | global(0..2)", Shape::square(40)),
        ("window(left=4, right=4) | global([0, 17, 30])", Shape::square(64)),
        ("causal & (sliding(5) | global([0, 20]))", Shape::square(64)),
        ("window(left=2, right=2) | queries(3)", Shape::square(30)),
        ("chunk(8) | keys([7, 15, 23])", Shape::square(32)),
        ("spans([2..6, 10..15])", Shape::square(20)),
        ("causal & spans([2..6, 10..15])", Shape::square(20)),
        ("causal | spans([4..9, 20..26])", Shape::square(40)),
        ("sliding(6) | spans([10..20, 30..34])", Shape::square(60)),
        ("causal | chunk(4)", Shape::square(32)),
        ("causal | chunk(3)", Shape::cached(6, 6)),
        ("keys(..4) | tree(parents=[-1, 0, 0, 1, 2], start=4)", Shape::cached(4, 5)),
        ("tree(parents=[-1, 0, 0, 1, 1, 2, -1, 6])", Shape::square(8)),
        // block diffusion: noised blocks read themselves and the clean blocks before them
        (
            "queries(0..8) & keys(0..8) | queries(8..16) & keys([8..16, 16..24]) | queries(16..24) & keys(16..24) | \
             queries(24..32) & keys([16..24, 24..32])",
            Shape::square(32),
        ),
        ("causal & padding(on=both, lengths=[20])", Shape::square(32)),
        ("heads(0: stride(2), 1: causal)", Shape::square(16).heads(2)),
    ] {
        let keep = cells_of(text, &shape);
        let found = recognise(&keep);
        assert!(check(&keep), "{text} on {shape:?}: {}", found.expression());
        println!("{text}  ->  {}", found.expression());
    }
}

#[test]
fn an_inexact_result_is_no_mask() {
    let keep = Keep::from_fn([1, 1, 40, 40], |[_, _, q, k]| (q * 7 + k * k * 3 + q * k) % 11 < 4);
    let found = recognise(&keep);
    assert!(!check(&keep) && found.wrong > 0);
    let error = found.mask().unwrap_err().to_string();
    assert!(error.contains(&format!("differs in {} of 1600 cells", found.wrong)), "{error}");
}

/// Returns the text of structured masks, of recognised families and others, with their shapes.
fn families() -> impl Strategy<Value = (String, Shape)> {
    (0..16u8, 1..9u64, 1..9u64, 0..30u64, 4..40usize, 0..12usize).prop_map(|(kind, a, b, at, len, past)| {
        let (first, second) = (at % len as u64, (at * 7 + a) % len as u64);
        let text = match kind {
            0 => format!("sliding({a})"),
            1 => format!("window(left={a}, right={b}) | keys({first})"),
            2 => format!("window(left={a}, right={b}) | global([{first}, {second}])"),
            3 => format!("causal & (sliding({a}) | global({first}))"),
            4 => format!("stride({})", a + 1),
            5 => format!("causal & !stride({})", a + 1),
            6 => format!("sliding({a}) | causal & stride({})", b + 1),
            7 => format!("causal | chunk({a})"),
            8 => format!("chunk({a}) & causal"),
            9 => format!("spans([{first}..{}, {}..{}])", first + a, first + a + b, first + a + 2 * b),
            10 => format!("causal | spans([{first}..{}])", first + a),
            11 => format!("sliding({a}) | causal & keys(0..{b})"),
            12 => format!("causal | prefix({b})"),
            13 => format!("!(window(left={a}, right={b}))"),
            14 => format!("causal & keys({first}..) & queries({first}..)"),
            _ => format!("causal - queries({first}..) & keys({second})"),
        };
        (text, if past > 6 { Shape::cached(past, len) } else { Shape::square(len) })
    })
}

#[test]
fn larger_arrays() {
    let count = std::env::var("NOREN_RECOGNISE").ok().map_or(2000, |n| n.parse::<u32>().expect("a whole number"));
    let arrays = prop_oneof![
        // structured masks, some with inverted cells
        4 => (families(), 0..4usize, any::<u64>(), 1..3usize).prop_map(|((text, shape), flips, seed, batch)| {
            let mut keep = cells_of(&text, &shape.batch(batch));
            let [_, _, q_len, kv_len] = keep.dims();
            let mut cells: Vec<bool> = keep.cells().collect();
            (0..flips).for_each(|i| {
                let cell = (seed.rotate_left(17 * i as u32) % cells.len() as u64) as usize;
                cells[cell] = !cells[cell];
            });
            keep = Keep::from_fn(keep.dims(), |[b, _, q, k]| cells[(b * q_len + q) * kv_len + k]);
            keep
        }),
        // any mask over any shape
        2 => worlds(24, 600).prop_flat_map(|world| (Just(world.clone()), structured(&world))).prop_map(|(world, mask)| {
            let bound = world.bind(&mask);
            let shape = bound.shape();
            let dims = [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()];
            Keep::from_fn(dims, |[b, h, q, k]| bound.allowed(b, h, q, k))
        }),
        // random cells of any density
        1 => (1..20usize, 1..80usize, 0..=8u64, any::<u64>()).prop_map(|(q_len, kv_len, density, seed)| {
            Keep::from_fn([1, 1, q_len, kv_len], |[_, _, q, k]| {
                (seed ^ (q * kv_len + k) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) % 8 < density
            })
        }),
    ];
    let (all, exact) = (Cell::new(0), Cell::new(0));
    noren_testing::check(count, arrays, |keep| {
        exact.set(exact.get() + usize::from(check(&keep)));
        all.set(all.get() + 1);
    });
    println!("{} larger arrays: {} exact, the others with their number of differing cells", all.get(), exact.get());
}

#[test]
fn an_array_without_cells_is_not_recognised() {
    for (dims, name) in
        [([0, 1, 4, 4], "batch"), ([1, 0, 4, 4], "heads"), ([1, 1, 0, 4], "q_len"), ([1, 1, 4, 0], "kv_len")]
    {
        let found = recognise(&Keep::from_fn(dims, |_| true));
        let error = found.mask().unwrap_err().to_string();
        assert!(!found.is_exact() && error.contains(&format!("dimension `{name}` is 0")), "{error}");
        assert_eq!(found.expression(), format!("the mask has no cells: `{name}` is 0"));
    }
}
