//! The arrays for GPU kernels contain exactly the cells of the mask, and their blocks begin at the borders of the content.

use noren_mask::interval::IntervalSet;
use noren_mask::{BoundMask, DevicePlan, DeviceSide, Facts, Mask, Plan, Shape, Side, atoms::*};
use noren_testing::cases::{masks, worlds};
use noren_testing::check;
use proptest::prelude::*;

type Grid = Vec<Vec<bool>>;

fn cells(bound: &BoundMask, plan: &Plan, pattern: usize) -> Grid {
    let shape = bound.shape();
    let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
    let (b, h) = pairs.into_iter().find(|(b, h)| plan.pattern_of(*b, *h) == pattern).expect("every pattern is used");
    (0..shape.q_len()).map(|q| (0..shape.kv_len()).map(|k| bound.allowed(b, h, q, k)).collect()).collect()
}

/// Returns how often each cell is in a run of the row tiles, or of the key tiles if `by_key` is true.
fn times(device: &DevicePlan, by_key: bool, [q_len, kv_len]: [usize; 2]) -> Vec<Vec<u32>> {
    let [block_q, block_kv] = device.block.map(|size| size as usize);
    let side = if by_key { &device.keys } else { &device.rows };
    let step = if by_key { block_q } else { block_kv };
    let mut times = vec![vec![0; kv_len]; q_len];
    for (number, tile) in side.tiles.iter().enumerate() {
        for run in &side.runs[side.indptr[number] as usize..side.indptr[number + 1] as usize] {
            let [start, end] = [run[0] as usize, run[1] as usize];
            assert!(start < end && (run[2] == DevicePlan::FULL || end - start <= step), "{run:?}");
            for other in start..end {
                for own in tile[0] as usize..tile[1] as usize {
                    let (q, k) = if by_key { (other, own) } else { (own, other) };
                    let (line, bit) = match by_key {
                        true => ((q - start) % block_q, k - tile[0] as usize),
                        false => (q - tile[0] as usize, k - start),
                    };
                    let word = |block: usize| device.words[(block * block_q + line) * block_kv / 32 + bit / 32];
                    let allowed = run[2] == DevicePlan::FULL || word(run[2] as usize) >> (bit % 32) & 1 == 1;
                    if allowed {
                        times[q][k] += 1;
                    }
                }
            }
        }
    }
    times
}

fn covers(side: &DeviceSide, len: usize, size: u32) {
    let mut next = 0;
    for tile in &side.tiles {
        assert!(tile[0] == next && tile[1] > next && tile[1] - next <= size, "{tile:?} after {next}");
        next = tile[1];
    }
    assert_eq!(next as usize, len);
    assert_eq!(side.indptr.len(), side.tiles.len() + 1);
}

fn holds_the_cells(bound: &BoundMask, block: [u32; 2]) {
    let plan = bound.plan();
    let lens = [bound.shape().q_len(), bound.shape().kv_len()];
    for pattern in 0..plan.patterns().len() {
        let device = plan.device(pattern, block).expect("few words");
        covers(&device.rows, lens[0], block[0]);
        covers(&device.keys, lens[1], block[1]);
        let expected = cells(bound, &plan, pattern);
        for by_key in [false, true] {
            let found = times(&device, by_key, lens);
            for (q, row) in expected.iter().enumerate() {
                for (k, cell) in row.iter().enumerate() {
                    assert_eq!(found[q][k], u32::from(*cell), "{}, by key {by_key}: {q}, {k}", bound.mask());
                }
            }
        }
    }
}

fn case() -> impl Strategy<Value = (noren_testing::cases::World, Mask, [u32; 2])> {
    let block = prop_oneof![Just([16, 32]), Just([32, 32]), Just([64, 32]), Just([32, 64]), Just([128, 64])];
    (worlds(200, 20_000), block).prop_flat_map(|(world, block)| {
        let masks = masks(&world);
        (Just(world), masks, Just(block))
    })
}

#[test]
fn random_masks_have_their_cells_once() {
    check(400, case(), |(world, mask, block)| holds_the_cells(&world.bind(&mask), block));
}

/// Tiles and runs with the rows and keys moved back by `rows` and `keys`.
fn moved(side: &DeviceSide, tiles: std::ops::Range<usize>, own: u32, other: u32) -> Vec<([u32; 2], Vec<[i32; 2]>)> {
    let of = |tile: usize| &side.runs[side.indptr[tile] as usize..side.indptr[tile + 1] as usize];
    let run = |run: &[i32; 3]| [run[0] - other as i32, run[1] - other as i32];
    tiles.map(|t| (side.tiles[t].map(|at| at - own), of(t).iter().map(run).collect())).collect()
}

fn same_blocks(alone: &DevicePlan, packed: &DevicePlan, start: u32, len: u32) {
    for (alone, packed) in [(&alone.rows, &packed.rows), (&alone.keys, &packed.keys)] {
        let first = packed.tiles.iter().position(|tile| tile[0] == start).expect("a tile begins with the content");
        let count = packed.tiles[first..].iter().take_while(|tile| tile[1] <= start + len).count();
        let whole = moved(alone, 0..alone.tiles.len(), 0, 0);
        let part = moved(packed, first..first + count, start, start);
        // A last block may reach beyond the content, and padding queries may read the content: both add zeros.
        let clip = |tiles: Vec<([u32; 2], Vec<[i32; 2]>)>| -> Vec<_> {
            let inside =
                |run: [i32; 2]| Some([run[0], run[1].min(len as i32)]).filter(|run| run[0] >= 0 && run[0] < run[1]);
            tiles.into_iter().map(|(t, runs)| (t, runs.into_iter().filter_map(inside).collect::<Vec<_>>())).collect()
        };
        assert_eq!(clip(whole), clip(part));
    }
}

#[test]
fn packed_documents_have_the_blocks_that_they_have_alone() {
    for mask in [causal(), full(), sliding(40), window(30, 70), causal() & chunk(48)] {
        let lens = [50, 77, 129, 3, 61];
        let total = lens.iter().sum();
        let packed = mask.clone() & documents();
        let facts = Facts::new().documents(lens.to_vec());
        let packed =
            packed.bind(&Shape::square(total), &facts).expect("a mask").plan().device(0, [64, 32]).expect("few words");
        let mut start = 0;
        for len in lens {
            // A chunk counts from position 0, so it is compared for the first document only.
            if start == 0 || mask != (causal() & chunk(48)) {
                let alone = mask
                    .bind(&Shape::square(len), &Facts::new())
                    .expect("a mask")
                    .plan()
                    .device(0, [64, 32])
                    .expect("few words");
                same_blocks(&alone, &packed, start as u32, len as u32);
            }
            start += len;
        }
    }
}

#[test]
fn padding_on_either_side_changes_no_block() {
    for mask in [causal(), full(), sliding(40), window(30, 70)] {
        let alone = mask
            .bind(&Shape::square(150), &Facts::new())
            .expect("a mask")
            .plan()
            .device(0, [64, 32])
            .expect("few words");
        for side in [Side::Left, Side::Right] {
            let facts = Facts::new().lengths([150]).side(side);
            let padded = (mask.clone() & padding()).bind(&Shape::square(219), &facts).expect("a mask").plan();
            same_blocks(
                &alone,
                &padded.device(0, [64, 32]).expect("few words"),
                if side == Side::Left { 69 } else { 0 },
                150,
            );
        }
    }
}

#[test]
fn too_many_mixed_cells_are_refused() {
    let bound = random(0.5, 7).bind(&Shape::square(100_000), &Facts::new()).expect("a mask");
    let error = bound.plan().device(0, [128, 64]).unwrap_err().to_string();
    assert!(
        error.contains("the mixed tiles have 10000000000 cells, but a GPU kernel gets at most 2147483648 cells"),
        "{error}"
    );
}

#[test]
fn long_masks_take_memory_of_their_tiles() {
    let n = 131_072;
    let plan = causal().bind(&Shape::square(n), &Facts::new()).expect("a mask").plan();
    let device = plan.device(0, [128, 64]).expect("few words");
    assert_eq!(device.rows.tiles.len(), n / 128);
    assert!(device.rows.runs.len() <= 3 * n / 128 && device.keys.runs.len() <= 3 * n / 64);
    assert!(device.words.len() <= 8 * 128 * 2);
}

/// Tests that the chunks of a decode plan have each allowed cell once, and no other cell.
fn decode_holds_the_cells(bound: &BoundMask, block_kv: u32, chunk: u32) {
    let (plan, shape) = (bound.plan(), bound.shape());
    let group = shape.head_count() / shape.kv_head_count();
    let decode = match plan.device_decode(block_kv, chunk) {
        Ok(decode) => decode,
        Err(error) => {
            assert!(group * shape.q_len() > 64 && error.to_string().contains("at most 64 rows"), "{error}");
            return;
        }
    };
    assert_eq!(decode.pattern_of.len(), shape.batch_len() * shape.kv_head_count());
    for (pair, &pattern) in decode.pattern_of.iter().enumerate() {
        let (b, kv_head) = (pair / shape.kv_head_count(), pair % shape.kv_head_count());
        let mut times = vec![vec![0; shape.kv_len()]; group * shape.q_len()];
        for number in decode.first[pattern as usize]..decode.first[pattern as usize + 1] {
            let runs =
                &decode.runs[decode.indptr[number as usize] as usize..decode.indptr[number as usize + 1] as usize];
            assert!(!runs.is_empty() && runs.is_sorted_by(|a, b| a[1] <= b[0]), "{runs:?}");
            assert!(runs[runs.len() - 1][1] - runs[0][0] <= chunk as i32, "{runs:?}");
            for &[start, end, block] in runs {
                assert!(block == DevicePlan::FULL || end - start <= block_kv as i32);
                for (row, times) in times.iter_mut().enumerate() {
                    for key in start..end {
                        let bit = (key - start) as usize;
                        let word = |block: usize| {
                            let line = block * decode.block[0] as usize + row;
                            decode.words[line * block_kv as usize / 32 + bit / 32]
                        };
                        if block == DevicePlan::FULL || word(block as usize) >> (bit % 32) & 1 == 1 {
                            times[key as usize] += 1;
                        }
                    }
                }
            }
        }
        for (row, times) in times.iter().enumerate() {
            let (head, query) = (kv_head * group + row / shape.q_len(), row % shape.q_len());
            for (key, times) in times.iter().enumerate() {
                let allowed = bound.allowed(b, head, query, key);
                assert_eq!(*times, u32::from(allowed), "{}: {b}, {head}, {query}, {key}", bound.mask());
            }
        }
    }
}

#[test]
fn decode_plans_of_random_masks_have_their_cells_once() {
    let sizes = prop_oneof![Just((32, 32)), Just((32, 96)), Just((64, 128))];
    let case = (worlds(80, 8_000), sizes).prop_flat_map(|(world, sizes)| {
        let masks = masks(&world);
        (Just(world), masks, Just(sizes))
    });
    check(400, case, |(world, mask, (block_kv, chunk))| decode_holds_the_cells(&world.bind(&mask), block_kv, chunk));
}

#[test]
fn cached_keys_have_the_same_chunks_with_padding_on_the_left() {
    let runs = |padding: usize, mask: &Mask| {
        let real = padding as u32..padding as u32 + 700;
        let facts = Facts::new().real_keys(vec![IntervalSet::from(real)]);
        let shape = Shape::cached(padding + 698, 2).heads(4).kv_heads(2);
        let plan = mask.clone().bind(&shape, &facts).expect("a mask").plan();
        let decode = plan.device_decode(64, 256).expect("few rows");
        let moved: Vec<_> = decode.runs.iter().map(|run| [run[0] - padding as i32, run[1] - padding as i32]).collect();
        (decode.first, decode.indptr, moved, decode.words)
    };
    for mask in [causal() & padding(), sliding(300) & padding(), stride(3) & causal() & padding()] {
        assert_eq!(runs(0, &mask), runs(137, &mask), "{mask}");
    }
}
