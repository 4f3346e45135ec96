//! [`Fold`] against sequences, prefixes and masks that are compared token by token.

use noren_mask::{Facts, Fold, FoldOptions, Shape};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn options(budget: Option<usize>, min_prefix: usize, max_roots: Option<usize>) -> FoldOptions {
    FoldOptions { budget, min_prefix, max_roots }
}

/// Returns sequences that often begin with the same tokens.
fn sequences() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let tokens = prop_oneof![
        prop::collection::vec(0u8..2, 1..14),
        prop::collection::vec(0u8..9, 1..8),
        (0usize..9).prop_map(|n| vec![7; n + 1]),
    ];
    prop::collection::vec(tokens, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn each_token_reads_its_own_sequence(
        sequences in sequences(),
        budget in prop::option::of(14usize..40),
        min_prefix in 1usize..5,
        max_roots in prop::option::of(1usize..4),
        window in prop::option::of(1usize..6),
        chunk in prop::option::of(1usize..6),
    ) {
        let fold = Fold::new(&sequences, options(budget, min_prefix, max_roots)).expect("the sequences fit");
        prop_assert_eq!(fold.places.len(), sequences.len());
        prop_assert_eq!(fold.token_count(), sequences.iter().map(Vec::len).sum::<usize>());
        let slots: Vec<Vec<usize>> = fold.places.iter().map(|place| place.slots.iter().cloned().flatten().collect()).collect();
        for (at, row) in fold.rows.iter().enumerate() {
            let len = row.len();
            prop_assert!(len > 0 && budget.is_none_or(|budget| len <= budget));
            let roots = row.runs.iter().filter(|run| run.parent.is_none()).count();
            prop_assert!(max_roots.is_none_or(|most| roots <= most), "{} roots", roots);
            // the token and the path of each slot, by the sequences
            let mut paths: Vec<BTreeSet<Vec<usize>>> = vec![BTreeSet::new(); len];
            let mut tokens: Vec<BTreeSet<u8>> = vec![BTreeSet::new(); len];
            let mut prefixes = BTreeSet::new();
            for (sequence, slots) in slots.iter().enumerate().filter(|(sequence, _)| fold.places[*sequence].row == at) {
                prop_assert_eq!(slots.len(), sequences[sequence].len());
                for (position, slot) in slots.iter().enumerate() {
                    paths[*slot].insert(slots[..=position].to_vec());
                    tokens[*slot].insert(sequences[sequence][position]);
                    prefixes.insert(&sequences[sequence][..=position]);
                }
            }
            prop_assert!(paths.iter().all(|path| path.len() == 1) && tokens.iter().all(|token| token.len() == 1));
            if min_prefix == 1 {
                prop_assert_eq!(len, prefixes.len(), "each distinct prefix has one token");
            }
            for run in &row.runs {
                for slot in run.slots.clone() {
                    let path = paths[slot].first().expect("a path");
                    prop_assert_eq!(path.len() - 1, run.position + slot - run.slots.start);
                    prop_assert_eq!(slots[run.sequence][path.len() - 1], slot);
                }
            }
            let mut tree = row.tree();
            (tree.window, tree.chunk) = (window, chunk);
            let bound = tree.mask().bind(&Shape::square(len), &Facts::new()).expect("the mask binds");
            for (q, path) in paths.iter().enumerate() {
                let path = path.first().expect("a path");
                let own = path.len() - 1;
                for k in 0..len {
                    let reads = path.iter().position(|slot| *slot == k).is_some_and(|at| {
                        window.is_none_or(|window| own - at < window)
                            && chunk.is_none_or(|chunk| own / chunk == at / chunk)
                    });
                    prop_assert_eq!(bound.allowed(0, 0, q, k), reads, "query {} key {}", q, k);
                }
            }
        }
        // without limits, sequences share every prefix of at least `min_prefix` tokens with some neighbor in sorted order
        if budget.is_none() && max_roots.is_none() {
            let mut longest: BTreeMap<&[u8], usize> = BTreeMap::new();
            for sequence in &sequences {
                for end in min_prefix..=sequence.len() {
                    *longest.entry(&sequence[..end]).or_default() += 1;
                }
            }
            for (prefix, _) in longest.iter().filter(|(_, count)| **count > 1) {
                let end = prefix.len() - 1;
                let places: BTreeSet<usize> =
                    (0..sequences.len()).filter(|at| sequences[*at].starts_with(prefix)).map(|at| slots[at][end]).collect();
                prop_assert_eq!(places.len(), 1, "prefix {:?}", prefix);
            }
        }
    }
}

#[test]
fn wrong_input_is_refused() {
    let message = |sequences: &[Vec<u8>], options| Fold::new(sequences, options).expect_err("an error").to_string();
    assert_eq!(message(&[], options(None, 1, None)), "fold: there are no sequences: give at least one");
    assert_eq!(
        message(&[vec![1], vec![]], options(None, 1, None)),
        "fold: sequence 1 is empty: give sequences with at least one token"
    );
    assert_eq!(
        message(&[vec![1], vec![1, 2, 3]], options(Some(2), 1, None)),
        "fold: sequence 1 has 3 tokens, but the budget is 2: give a budget of at least 3, or shorten the sequence"
    );
    assert_eq!(message(&[vec![1]], options(Some(0), 1, None)), "fold: budget is 0: give at least 1");
    assert_eq!(message(&[vec![1]], options(None, 0, None)), "fold: min_prefix is 0: give at least 1");
    assert_eq!(message(&[vec![1]], options(None, 1, Some(0))), "fold: max_roots is 0: give at least 1");
}
