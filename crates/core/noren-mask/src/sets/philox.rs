//! Philox 4x32-10, the counter-based generator behind `random` and `random_blocks`.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The known-answer tests
//! below are from the reference implementation.

/// Returns four random 32-bit numbers for a 128-bit counter and a 64-bit key, by Philox 4x32-10 (Salmon et al. 2011).
#[inline(always)]
pub fn philox(counter: [u32; 4], key: u64) -> [u32; 4] {
    const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let mut c = counter;
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(M[0]) * u64::from(c[0]);
        let b = u64::from(M[1]) * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    c
}

/// Returns the random 32-bit number of the cell with query position `q` and key position `k` for `seed`.
pub(crate) fn cell_word(q: i64, k: i64, seed: u64) -> u32 {
    let block = k.div_euclid(4);
    philox([block as u32, (block >> 32) as u32, q as u32, (q >> 32) as u32], seed)[k.rem_euclid(4) as usize]
}

/// Returns the limit `p * 2^32`, rounded. A cell is allowed if its random 32-bit number is below this limit, which has
/// the probability `p`. For `p` = 1, the limit is 2^32, and every cell is allowed.
pub(crate) fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0).round() as u64
}

/// Returns the indices of the key blocks that query block `q_block` reads in `random_blocks`: `count` distinct indices
/// below `blocks`, or all indices if there are fewer, ascending. The method is Floyd's sampling; `seed` and `q_block`
/// determine the random numbers.
pub(crate) fn sample_blocks(q_block: i64, blocks: usize, count: usize, seed: u64) -> Vec<usize> {
    let count = count.min(blocks);
    let mut chosen = std::collections::BTreeSet::new();
    for (draw, top) in (blocks - count..blocks).enumerate() {
        let w = philox([draw as u32, 0xB10C, q_block as u32, (q_block >> 32) as u32], seed);
        let word = u128::from(w[0]) << 32 | u128::from(w[1]);
        let pick = ((word * (top as u128 + 1)) >> 64) as usize;
        if !chosen.insert(pick) {
            chosen.insert(top);
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(pi, 0x299f_31d0_a409_3822), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn samples_are_distinct_and_spread() {
        let mut hits = [0; 10];
        for q in 0..1000 {
            let blocks = sample_blocks(q, 10, 3, 7);
            assert_eq!(blocks.len(), 3);
            blocks.iter().for_each(|&b| hits[b] += 1);
        }
        assert!(hits.iter().all(|h| (240..360).contains(h)), "{hits:?}");
        assert_eq!(sample_blocks(0, 2, 5, 1), [0, 1]);
    }
}
