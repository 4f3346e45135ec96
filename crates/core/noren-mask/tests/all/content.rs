//! The keys at which content begins.

use noren_mask::{Facts, Mask, PlanOptions, Reorder, Shape};

#[test]
fn content_begins_after_padding_and_at_documents() {
    let starts = |mask: &str, options: PlanOptions| {
        let bound = mask.parse::<Mask>().unwrap().bind(&Shape::square(40), &Facts::new()).unwrap();
        bound.plan_with(&options).patterns()[0].content_starts()
    };
    for (mask, expected) in [
        ("causal", &[0][..]),
        ("causal & keys(7..30)", &[7]),
        ("full - keys(..7)", &[7]),
        ("causal & documents([12, 0, 3, 25])", &[0, 12, 15]),
        ("causal & documents([12, 28]) & keys([3..11, 15..20])", &[3, 15]),
        ("documents([12, 28]) | causal & documents([5, 7, 28])", &[0, 12]),
        ("causal | documents([12, 28])", &[0]),
        ("causal - documents([12, 28])", &[0]),
    ] {
        assert_eq!(starts(mask, PlanOptions::default()), expected, "{mask}");
    }
    let reordered = PlanOptions { reorder: Reorder::Residues(4), ..PlanOptions::default() };
    assert!(starts("causal & stride(4)", reordered).is_empty());
}

#[test]
fn keys_before_the_first_key_of_a_ring_are_no_padding() {
    let facts = Facts::new().position_runs(vec![vec![(0..3, 0), (20..40, 104)]]).lengths([30]);
    for (mask, expected) in [("causal", &[0][..]), ("causal & documents([110, 14])", &[0, 26])] {
        let bound = mask.parse::<Mask>().unwrap().bind(&Shape::new(1, 40, 123), &facts).unwrap();
        assert_eq!(bound.plan().patterns()[0].content_starts(), expected, "{mask}");
    }
}
