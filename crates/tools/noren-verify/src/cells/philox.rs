//! Philox 4x32-10, the random number generator that decides which cells the elementary mask (atom) `random` allows.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// Returns four random 32-bit numbers for a counter and a key of the generator.
fn words(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = 0xD251_1F53_u64 * u64::from(counter[0]);
        let b = 0xCD9E_8D57_u64 * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// Returns one random 32-bit number for the query position `q` and each of the four key positions `4 * group .. 4 *
/// group + 4`. The counter of the generator has four 32-bit numbers: the low and the high half of `group`, then those
/// of `q`. `seed` is the key of the generator.
pub(crate) fn cells(q: i64, group: i64, seed: u64) -> [u32; 4] {
    let halves = |value: i64| [value as u32, (value >> 32) as u32];
    let ([k0, k1], [q0, q1]) = (halves(group), halves(q));
    words([k0, k1, q0, q1], [seed as u32, (seed >> 32) as u32])
}

/// Returns the threshold `p * 2^32` for the probability `p`. The elementary mask (atom) `random` allows a cell if the
/// random 32-bit number of the cell is below the threshold.
pub(crate) fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0) as u64
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn known_answers() {
        assert_eq!(words([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(words([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
