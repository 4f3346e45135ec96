//! All results of an atom agree with its membership, and the parser reads the text of every atom back.

use crate::common::{Universe, atoms, settings};
use noren_mask::{Facts, Mask, Shape, atom, language};
use proptest::prelude::*;

/// Returns a mask of one atom with a shape and facts that fit it.
fn cases() -> impl Strategy<Value = (Mask, Shape, Facts)> {
    (1u64..3, 1u64..3, 1u64..40).prop_flat_map(|(batch, heads, len)| {
        let universe = Universe { batch, heads, len };
        (atoms(universe), settings(universe)).prop_map(|(mask, (shape, facts))| (mask, shape, facts))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn rows_bounds_and_changes_agree_with_membership((mask, shape, facts) in cases()) {
        prop_assert_eq!(atom::verify(&mask, &shape, &facts), Ok(()));
    }

    #[test]
    fn keys_may_be_placed_anywhere((mask, shape, facts) in cases(), turn in 0usize..40, empty in 0usize..6) {
        // a ring buffer whose first slots are empty
        let (kv_len, rows) = (shape.kv_len(), shape.batch_len());
        let slot = |i: usize| if i < empty { -1 } else { ((i + turn) % kv_len) as i64 };
        let placed = facts.positions(vec![(0..kv_len).map(slot).collect::<Vec<_>>(); rows]);
        if mask.bind(&shape, &placed).is_ok() {
            prop_assert_eq!(atom::verify(&mask, &shape, &placed), Ok(()));
        }
    }
}

#[test]
fn the_examples_of_all_words_are_their_own_text() {
    for word in language::atoms() {
        let mask: Mask = word.example.parse().unwrap();
        assert_eq!(mask.to_string(), word.example);
        for picture in word.pictures {
            assert!(picture.mask.contains(word.name), "{}: {picture:?}", word.name);
        }
    }
}
