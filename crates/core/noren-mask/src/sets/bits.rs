//! Rows of bits: bit `k % 64` of word `k / 64` belongs to key `k`.
//!
//! [`Keep`](crate::Keep) stores whole masks as rows of bits. Plans and pictures compute single rows of bits.
//!
//! ```
//! use noren_mask::bits;
//! let row = bits::row_of(130, 62, 66);
//! assert_eq!(bits::ones(&row).collect::<Vec<_>>(), [62, 63, 64, 65]);
//! assert_eq!(bits::ends(&row), Some((62, 65)));
//! ```

/// Returns the number of words that hold `keys` bits.
pub fn row_words(keys: u32) -> usize {
    (keys as usize).div_ceil(64)
}

/// Returns bit `k` of a row.
///
/// # Panics
/// Panics if the row has no bit `k`.
pub fn bit(row: &[u64], k: usize) -> bool {
    row[k / 64] >> (k % 64) & 1 == 1
}

/// Sets bit `k` of a row to 1.
pub fn set_bit(row: &mut [u64], k: usize) {
    row[k / 64] |= 1 << (k % 64);
}

/// Returns the number of bits that are 1.
pub fn count(words: &[u64]) -> u64 {
    words.iter().map(|w| u64::from(w.count_ones())).sum()
}

/// Returns a row of `len` bits in which the bits `start..end` are 1.
pub fn row_of(len: usize, start: usize, end: usize) -> Vec<u64> {
    let mut row = vec![0; len.div_ceil(64)];
    set_range(&mut row, start, end);
    row
}

/// Sets the bits `start..end` of a row to 1. An empty range changes nothing.
pub fn set_range(row: &mut [u64], start: usize, end: usize) {
    if start >= end {
        return;
    }
    let (first, last) = (start / 64, (end - 1) / 64);
    let (head, tail) = (u64::MAX << (start % 64), u64::MAX >> (63 - (end - 1) % 64));
    if first == last {
        row[first] |= head & tail;
        return;
    }
    row[first] |= head;
    row[first + 1..last].fill(u64::MAX);
    row[last] |= tail;
}

/// Returns the indices of the first and the last set bit, or `None` if no bit is set.
pub fn ends(row: &[u64]) -> Option<(usize, usize)> {
    let first = row.iter().position(|w| *w != 0)?;
    let last = row.iter().rposition(|w| *w != 0)?;
    Some((first * 64 + row[first].trailing_zeros() as usize, last * 64 + 63 - row[last].leading_zeros() as usize))
}

/// Returns the indices of the set bits, ascending.
pub fn ones(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    row.iter().enumerate().flat_map(|(i, &word)| {
        std::iter::successors((word != 0).then_some(word), |w| Some(w & (w - 1)).filter(|w| *w != 0))
            .map(move |w| i * 64 + w.trailing_zeros() as usize)
    })
}

/// Calls `emit(first, end)` for each run of set bits within `start..end`, ascending.
pub fn runs(words: &[u64], start: u32, end: u32, mut emit: impl FnMut(u32, u32)) {
    let next = |from: u32, invert: u64| -> u32 {
        let mut at = from;
        while at < end {
            let word = (words[at as usize / 64] ^ invert) >> (at % 64);
            if word != 0 {
                return (at + word.trailing_zeros()).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    };
    let mut at = start;
    loop {
        let first = next(at, 0);
        if first >= end {
            return;
        }
        at = next(first, u64::MAX);
        emit(first, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        for (start, end) in [(0, 0), (0, 1), (3, 64), (63, 65), (0, 128), (64, 130), (129, 130)] {
            let row = row_of(130, start, end);
            assert_eq!(ones(&row).collect::<Vec<_>>(), (start..end).collect::<Vec<_>>());
            assert_eq!(ends(&row), (start < end).then(|| (start, end.wrapping_sub(1))));
        }
    }
}
