//! Laws of the algebra, of the text and of comparisons of two masks, with random masks.

use noren_mask::{BoundMask, CellIndex, Mask};
use noren_testing::cases::{World, masks, options, worlds};
use noren_testing::cells::Cells;
use noren_testing::check;
use proptest::prelude::*;

fn pairs() -> impl Strategy<Value = (World, Mask, Mask)> {
    worlds(40, 1_500).prop_flat_map(|world| {
        let (a, b) = (masks(&world), masks(&world));
        (Just(world), a, b)
    })
}

#[test]
fn operators_act_cell_by_cell() {
    check(3_000, (pairs(), options()), |((world, a, b), options)| {
        let (in_a, in_b) = (Cells::of(&world.bind(&a)), Cells::of(&world.bind(&b)));
        let planned = |mask: Mask| Cells::of_plan(&world.bind(&mask).plan_with(&options));
        assert_eq!(planned(a.clone() & b.clone()), in_a.zip(&in_b, |a, b| a & b), "and");
        assert_eq!(planned(a.clone() | b.clone()), in_a.zip(&in_b, |a, b| a | b), "or");
        assert_eq!(planned(a.clone() - b.clone()), in_a.zip(&in_b, |a, b| a & !b), "minus");
        let live = Cells::of(&world.bind(&noren_mask::atoms::full()));
        assert_eq!(planned(!a), live.zip(&in_a, |live, a| live & !a), "not");
    });
}

#[test]
fn simplify_changes_no_cell_and_is_done_at_once() {
    check(4_000, (pairs(), options()), |((world, a, b), options)| {
        for mask in [a.clone(), a - b] {
            let simple = mask.simplify();
            assert_eq!(simple.simplify(), simple, "simplified twice");
            let expected = Cells::of(&world.bind(&mask));
            let bound = world.bind(&simple);
            assert_eq!(Cells::of(&bound), expected, "{simple} by definition");
            assert_eq!(Cells::of_plan(&bound.plan_with(&options)), expected, "{simple} by plan");
        }
    });
}

#[test]
fn printed_masks_parse_to_themselves() {
    check(4_000, pairs(), |(_, a, b)| {
        // a function has no text
        let named = |mask: &Mask| mask.atoms().iter().all(|atom| atom.name() != "function");
        for mask in [a.clone(), a - b].into_iter().filter(named) {
            let text = mask.to_string();
            assert_eq!(text.parse::<Mask>().expect("what prints parses"), mask, "{text}");
        }
    });
}

#[test]
fn comparisons_find_the_cells_that_counting_finds() {
    check(3_000, pairs(), |(world, a, b)| {
        let (bound_a, bound_b) = (world.bind(&a), world.bind(&b));
        let (in_a, in_b) = (Cells::of(&bound_a), Cells::of(&bound_b));
        compare(&bound_a, &bound_b, &in_a, &in_b);
        compare(&bound_a, &bound_a, &in_a, &in_a);
        let either = world.bind(&(a & b.clone()));
        compare(&either, &bound_b, &in_a.zip(&in_b, |a, b| a & b), &in_b);
    });
}

fn compare(a: &BoundMask, b: &BoundMask, in_a: &Cells, in_b: &Cells) {
    let cell = |[batch, head, q, k]: [usize; 4]| CellIndex { batch, head, q, k };
    let differ = in_a.zip(in_b, |a, b| a != b);
    let outside = in_a.zip(in_b, |a, b| a && !b);
    let both = in_a.zip(in_b, |a, b| a && b);
    assert_eq!(a.first_difference(b).unwrap(), differ.first().map(cell));
    assert_eq!(a.same_cells(b).unwrap(), differ.count() == 0);
    assert_eq!(a.first_common(b).unwrap(), both.first().map(cell));
    assert_eq!(a.count_outside(b).unwrap(), outside.count() as u128);
    assert_eq!(a.differences(b, usize::MAX).unwrap(), differ.all().map(cell).collect::<Vec<_>>());
    assert_eq!(a.differences(b, 3).unwrap(), differ.all().take(3).map(cell).collect::<Vec<_>>());
}

/// Differences far from the first row are found without a visit of the rows before them.
#[test]
fn a_single_difference_in_a_long_mask_is_found() {
    use noren_mask::{Facts, Shape, atoms::*};
    for (n, masks) in [
        (2000usize, vec!["!stride(7)", "random(0.5, 3)"]),
        (100_000, vec!["causal", "sliding(9) | keys(0..4)", "chunk(512) & causal"]),
        (1 << 30, vec!["causal", "window(left=100, right=3)", "causal & chunk(4096)"]),
    ] {
        let shape = Shape::square(n);
        for mask in masks {
            let mask: Mask = mask.parse().unwrap();
            let a = mask.bind(&shape, &Facts::new()).unwrap();
            for (q, k) in [(0, 0), (n - 1, n - 2), (n / 3, n / 3 - 1), (700, 699), (n / 2, n / 2)] {
                let b = (mask.clone() - (queries(q..q + 1) & keys(k..k + 1))).bind(&shape, &Facts::new()).unwrap();
                let cell = CellIndex { batch: 0, head: 0, q, k };
                let expected = a.allowed(0, 0, cell.q, cell.k).then_some(cell);
                assert_eq!(a.first_difference(&b).unwrap(), expected, "{mask} with {n} tokens, ({q}, {k})");
                assert_eq!(a.differences(&b, 6).unwrap(), expected.into_iter().collect::<Vec<_>>());
                assert_eq!(a.count_outside(&b).unwrap(), u128::from(expected.is_some()));
                assert_eq!(b.count_outside(&a).unwrap(), 0);
            }
        }
    }
}
