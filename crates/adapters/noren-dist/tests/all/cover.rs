//! For any mask, shape and number of ranks: each allowed cell is computed once, with data that its rank has.

use noren_dist::{Objective, Options, Partition, Share, Travel, partition};
use noren_mask::{BoundMask, Mask};
use noren_testing::cases::{World, masks, worlds};
use noren_testing::check;
use proptest::prelude::*;

fn case() -> impl Strategy<Value = (World, Mask, Options)> {
    let travel = prop_oneof![Just(Travel::Keys), Just(Travel::Both)];
    let objective = prop_oneof![Just(Objective::Balanced), Just(Objective::Traffic), Just(Objective::Tokens)];
    let options =
        (1..10usize, 1..4usize, travel, objective, 0..20u32).prop_map(|(ranks, nodes, travel, objective, grain)| {
            let grain = (grain > 0).then_some(grain);
            Options { ranks, nodes: nodes.min(ranks), travel, objective, grain, ..Options::default() }
        });
    (worlds(70, 6000), options).prop_flat_map(|(world, options)| {
        let masks = masks(&world);
        (Just(world), masks, Just(options))
    })
}

/// Returns positions as a list of Booleans.
fn set(runs: &[[u32; 2]], len: usize) -> Vec<bool> {
    let mut out = vec![false; len];
    runs.iter().for_each(|[start, end]| out[*start as usize..*end as usize].fill(true));
    out
}

/// Returns the positions that a rank has: its own, or those received from `peer`.
fn held(share: &Share, peer: Option<u32>, keys: bool, len: usize) -> Vec<bool> {
    let runs = match peer {
        None if keys => share.keys.clone(),
        None => share.queries.clone(),
        Some(peer) => {
            let from = share.receives.iter().filter(|e| e.peer == peer);
            from.flat_map(|e| if keys { e.keys.clone() } else { e.rows.clone() }).collect()
        }
    };
    set(&runs, len)
}

fn check_cells(split: &Partition, bound: &BoundMask) {
    let [batch, heads, _, q_len, kv_len] = split.shape;
    for b in 0..batch {
        let mut computed = vec![0u8; q_len * kv_len];
        for (rank, share) in split.row(b).shares.iter().enumerate() {
            for step in &share.steps {
                let (rows, keys) = (set(&step.rows, q_len), set(&step.keys, kv_len));
                let local = step.peer == rank as u32;
                let has_keys = held(share, (!local).then_some(step.peer), true, kv_len);
                let all = |peer: Option<u32>| held(share, peer, false, q_len);
                let has_rows = match step.foreign {
                    false => all(None),
                    true => share.receives.iter().fold(vec![false; q_len], |sum, e| {
                        sum.iter().zip(all(Some(e.peer))).map(|(a, b)| *a || b).collect()
                    }),
                };
                assert!(rows.iter().zip(&has_rows).all(|(needs, has)| !needs || *has), "rank {rank} lacks queries");
                assert!(keys.iter().zip(&has_keys).all(|(needs, has)| !needs || *has), "rank {rank} lacks keys");
                for q in (0..q_len).filter(|q| rows[*q]) {
                    (0..kv_len).filter(|k| keys[*k]).for_each(|k| computed[q * kv_len + k] += 1);
                }
            }
        }
        for h in 0..heads {
            for q in 0..q_len {
                for k in (0..kv_len).filter(|k| bound.allowed(b, h, q, *k)) {
                    assert_eq!(computed[q * kv_len + k], 1, "cell [{b}, {h}, {q}, {k}]");
                }
            }
        }
    }
}

#[test]
fn every_cell_is_computed_once() {
    check(400, case(), |(world, mask, options)| {
        let bound = world.bind(&mask);
        let split = partition(&bound.plan(), &options).expect("ranks and nodes make sense");
        split.check(&bound).unwrap_or_else(|e| panic!("{e}"));
        check_cells(&split, &bound);
        if options.travel == Travel::Keys {
            let foreign = split.rows.iter().flat_map(|r| &r.shares).flat_map(|s| &s.steps).any(|s| s.foreign);
            assert!(!foreign, "queries do not travel");
        }
    });
}

#[test]
fn the_same_is_found_again_and_read_back() {
    check(60, case(), |(world, mask, options)| {
        let bound = world.bind(&mask);
        let split = partition(&bound.plan(), &options).expect("ranks and nodes make sense");
        assert_eq!(split, partition(&bound.plan(), &options).expect("as before"));
        assert_eq!(Partition::from_json(&split.to_json(), &bound).expect("its own JSON"), split);
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    use noren_mask::{Facts, Shape, atoms::*};
    let bind = |mask: Mask, len| mask.bind(&Shape::square(len), &Facts::new()).expect("binds");
    let bound = bind(causal(), 64);
    let split = partition(&bound.plan(), &Options { ranks: 4, travel: Travel::Keys, ..Options::default() })
        .expect("four ranks");
    let refused = |split: &Partition, bound: &BoundMask| {
        Partition::from_json(&split.to_json(), bound).expect_err("refused").to_string()
    };
    assert!(refused(&split, &bind(causal(), 32)).contains("the shape of the partition is [1, 1, 1, 64, 64]"));
    assert!(refused(&split, &bind(full(), 64)).contains("keys, but"));
    assert!(refused(&split, &bind(sliding(60), 64)).contains("but this mask and split have"));
    let mut edited = split.clone();
    edited.rows[0].shares[1].receives.clear();
    assert!(refused(&edited, &bound).contains("rank 0 sends data that rank 1 does not receive"));
    let mut edited = split.clone();
    edited.rows[0].shares[0].receives.clear();
    assert!(refused(&edited, &bound).contains("uses keys of rank 1 that this rank has not received"));
    let mut edited = split.clone();
    edited.rows[0].shares[0].queries[0][1] -= 1;
    assert!(refused(&edited, &bound).contains("do not have exactly one owner each"));
    let edit = |change: &dyn Fn(&mut Partition)| {
        let mut edited = split.clone();
        change(&mut edited);
        refused(&edited, &bound)
    };
    let share = |split: &mut Partition, rank: usize| split.rows[0].shares[rank].clone();
    for runs in [vec![[5, 3]], vec![[9, 12], [0, 4]], vec![[0, 65]], vec![[7, 7]]] {
        let declared = edit(&|split| split.rows[0].shares[2].receives[0].keys.clone_from(&runs));
        assert!(
            declared.contains(
                "rank 2 has ranges of queries or keys that do not ascend, or that exceed the 64 queries or 64 keys"
            ),
            "{declared}"
        );
    }
    let declared = edit(&|split| {
        let mut half = share(split, 2).receives[0].clone();
        half.keys = vec![half.keys[0]];
        split.rows[0].shares[2].receives.insert(0, half);
    });
    assert!(declared.contains("the peers of rank 2 do not ascend"), "{declared}");
    let declared = edit(&|split| split.rows[0].shares[1].steps[0].foreign = true);
    assert!(
        declared.contains("the partition allows only keys to be sent, but rank 1 has query rows of other ranks"),
        "{declared}"
    );
    let declared = edit(&|split| split.rows.push(split.rows[0].clone()));
    assert!(declared.contains("no batch row uses the split `rows[1]`"), "{declared}");
    let later = Partition { version: 9, ..split };
    assert!(refused(&later, &bound).contains("version 9"));
    let none = partition(&bound.plan(), &Options { ranks: 0, ..Options::default() }).expect_err("no ranks");
    assert_eq!(none.to_string(), "ranks: 0 ranks are given: give 1 to 65536");
}
