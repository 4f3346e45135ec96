//! Correct masks, and the same masks with one known mistake: a source of cases that does not use the doctor's code.

pub(crate) mod faults;
pub(crate) mod more;
pub(crate) mod scene;

/// A small random generator; its numbers depend only on the seed.
pub(crate) struct Dice {
    state: u64,
    /// True to draw scenes with unusual storage and declarations too.
    pub(crate) varied: bool,
}

impl Dice {
    pub(crate) fn new(seed: u64, varied: bool) -> Self {
        Dice { state: seed, varied }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn of(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.of(0, list.len() - 1)]
    }
}
