//! Exports to other systems hold exactly the cells of the mask, or are refused with the name of the reason.

use noren_dist::{Error, Objective, Options, RankSlices, Travel, partition};
use noren_mask::{BoundMask, Facts, Mask, Shape, SliceKind, atoms::*};
use noren_testing::cases::{masks, worlds};
use noren_testing::check;
use proptest::prelude::*;

/// Returns the indices of runs, one by one.
fn places(runs: &[[u32; 2]]) -> Vec<u32> {
    runs.iter().flat_map(|[a, z]| *a..*z).collect()
}

/// Adds one to every cell in a rank's slices.
fn add(ranks: &RankSlices, kv_len: usize, cells: &mut [u8]) {
    let (rows, keys) = (places(&ranks.rows), places(&ranks.keys));
    for slice in &ranks.slices {
        let [r0, r1] = slice.rows;
        let [k0, k1] = slice.keys;
        for r in r0..r1 {
            let end = matches!(slice.kind, SliceKind::Causal | SliceKind::BiCausal).then(|| k1 - (r1 - 1 - r));
            let start = matches!(slice.kind, SliceKind::InverseCausal | SliceKind::BiCausal).then(|| k0 + r - r0);
            for k in start.unwrap_or(k0)..end.unwrap_or(k1) {
                cells[rows[r as usize] as usize * kv_len + keys[k as usize] as usize] += 1;
            }
        }
    }
}

#[test]
fn slices_hold_every_cell_once() {
    let cases = worlds(60, 3000).prop_flat_map(|world| {
        let masks = masks(&world);
        (Just(world), masks, 1..6usize, any::<bool>())
    });
    check(150, cases, |(world, mask, ranks, keys)| {
        let bound = world.bind(&mask);
        let plan = bound.plan();
        let travel = if keys { Travel::Keys } else { Travel::Both };
        let split = partition(&plan, &Options { ranks, travel, ..Options::default() }).expect("ranks make sense");
        let (q_len, kv_len) = (world.shape.q_len(), world.shape.kv_len());
        for batch in 0..world.shape.batch_len() {
            let equal = (0..world.shape.head_count()).all(|h| plan.pattern_of(batch, h) == plan.pattern_of(batch, 0));
            let slices = match split.magi_slices(&plan, batch) {
                Ok(slices) => slices,
                Err(error) => {
                    assert!(!equal && error.to_string().contains("have different masks"), "{error}");
                    continue;
                }
            };
            let mut cells = vec![0; q_len * kv_len];
            slices.iter().for_each(|s| add(s, kv_len, &mut cells));
            let wrong =
                (0..q_len * kv_len).find(|i| cells[*i] != u8::from(bound.allowed(batch, 0, i / kv_len, i % kv_len)));
            assert!(equal && wrong.is_none(), "cell {wrong:?}");
        }
    });
}

fn bind(mask: Mask, len: usize) -> BoundMask {
    mask.bind(&Shape::square(len), &Facts::new()).expect("binds")
}

fn torch(mask: Mask, len: usize, options: &Options) -> Result<Vec<Vec<u32>>, Error> {
    partition(&bind(mask, len).plan(), options).expect("ranks make sense").torch_indices()
}

#[test]
fn indices_are_a_permutation_in_equal_runs() {
    let options = Options { ranks: 4, travel: Travel::Keys, objective: Objective::Tokens, ..Options::default() };
    let mut indices = torch(causal(), 1024, &options).expect("a zigzag").remove(0);
    assert_eq!(indices[..4], [0, 1, 2, 3]);
    assert_eq!(indices[128..130], [896, 897]);
    indices.sort_unstable();
    assert_eq!(indices, (0..1024).collect::<Vec<_>>());
}

#[test]
fn what_torch_cannot_say_is_refused() {
    let refused = |mask, len, options: &Options| torch(mask, len, options).expect_err("refused").to_string();
    let keys = Options { ranks: 4, travel: Travel::Keys, ..Options::default() };
    assert_eq!(
        refused(causal(), 1022, &keys),
        "PyTorch's context parallelism cannot express this partition: rank 0 owns 255 of 1022 tokens, and all 4 ranks must own equally many tokens: \
         split for equal tokens, over a number of ranks that divides the length"
    );
    let both = Options { ranks: 8, ..Options::default() };
    assert!(refused(causal(), 1 << 14, &both).contains("computes rows of other ranks"));
}
