//! All results of an atom agree with its membership, and the parser reads the text of every atom back.

use crate::common::{Universe, atoms, settings};
use noren_mask::{Facts, Mask, Shape, atom, language};
use proptest::prelude::*;

/// Returns a mask of one atom with a shape and facts that fit it.
fn cases() -> impl Strategy<Value = (Mask, Shape, Facts)> {
    (1usize..3, 1usize..3, 1usize..40).prop_flat_map(|(batch, heads, len)| {
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

/// Numbers of tokens are `usize`; signed numbers of positions are also `i64` or literals.
#[test]
fn builders_take_the_numbers_of_a_program() {
    use noren_mask::{Score, Selector, atoms::*};
    let (n, signed, list) = (3_usize, -3_i64, vec![4_usize, 3]);
    for (mask, text) in [
        (sliding(n) | chunk(n) | stride(n), "sliding(3) | chunk(3) | stride(3)"),
        (keys(0..n) | keys(n..) | queries(..n) | global(n), "keys(0..3) | keys(3..) | queries(0..3) | global(3)"),
        (window(n, 2) | window(signed, None), "window(left=3, right=2) | window(left=-3)"),
        (window(None, -1) | causal_offset(n), "window(right=-1) | causal(offset=3)"),
        (documents_of(list.clone()) | documents_of(&list[..]), "documents([4, 3]) | documents([4, 3])"),
        (prefix(n) | prefix(list.clone()) | spans([n..9]), "prefix(3) | prefix([4, 3]) | spans([3..9])"),
        (heads([arm(0..n, causal()), arm(n.., full())]), "heads(0..3: causal, 3..: full)"),
        (batch([arm(Selector::every(2), causal()), otherwise(full())]), "batch(every 2: causal, else: full)"),
        (
            tree([-1, 0], n) | neighborhood([n, n], [1, 2]),
            "tree(parents=[-1, 0], start=3) | neighborhood(grid=[3, 3], size=[1, 2])",
        ),
    ] {
        assert_eq!(mask.to_string(), text);
    }
    let rows = Facts::new().documents([[6, 4], [3, 7]]);
    assert_eq!(rows, Facts::new().documents(vec![vec![6, 4], vec![3, 7]]));
    assert_eq!(Facts::new().documents(&list[..]).lengths(&list[..]), Facts::new().documents([4, 3]).lengths([4, 3]));
    assert_eq!(Shape::new(1, 4, n), Shape::new(1, 4, 0).query_offsets(vec![n]));
    assert_eq!(Score::alibi_with([0.5, 0.25]).to_string(), "alibi(slopes=[0.5, 0.25])");
}
