//! The operations that the probes repeat and measure, written once over [`Simd`] like the kernels.

use super::stage::Stage;
use crate::kernel::dispatch::Task;
use crate::kernel::math::exp::exp2_minus_all;
use crate::kernel::simd::{Kernel, Product, Simd, floats_mut, zeroed};
use std::hint::black_box;

/// The number of values that the probes of powers of two and of softmax compute in one repetition. These values and
/// their results fit in the first-level cache.
const VALUES: usize = 2048;
/// The number of scores in a row of the probe `SoftmaxRow`.
const ROW: usize = 256;
/// The maximum number of chains. A chain is a sum in a register to which products are added one after another;
/// different chains are independent of each other.
const MOST_CHAINS: usize = 24;

/// The work of the probe `Fma`: multiplications and additions, `a * x + y`, with all operands in registers.
pub(super) struct Fma<'a> {
    pub(super) stage: &'a Stage,
}

impl Task for Fma<'_> {
    fn run<S: Simd>(self, s: S) {
        let flop = (chains::<S>() * S::LANES * 2) as f64;
        self.stage.turns(flop, |rounds| s.run(FmaRounds { rounds }));
    }
}

/// Returns the number of chains (independent sums in registers): as many as the register tile of the kernels has, but
/// at least six. With six chains, the processor does not have to wait for the result of the previous multiplication and
/// addition.
const fn chains<S: Simd>() -> usize {
    let chains = S::ROWS * S::VECTORS;
    assert!(chains <= MOST_CHAINS);
    if chains < 6 { 6 } else { chains }
}

struct FmaRounds {
    rounds: usize,
}

impl<S: Simd> Kernel<S> for FmaRounds {
    #[inline(always)]
    fn run(self, s: S) {
        // The values converge to 1, so all values stay in the range of normal numbers, in which processors are fast.
        let (x, y) = (black_box(s.splat(0.999)), black_box(s.splat(0.001)));
        let mut sums = [s.splat(1.0); MOST_CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut sums[..chains::<S>()] {
                *sum = s.fma(*sum, x, y);
            }
        }
        black_box(sums);
    }
}

/// The work of the probe `Bf16Dot`: products of pairs of `bf16` numbers, added to `f32` sums, with all operands in
/// registers.
pub(super) struct Dot<'a> {
    pub(super) stage: &'a Stage,
}

impl Task for Dot<'_> {
    fn pairs(&self) -> bool {
        true
    }

    fn run<S: Simd>(self, s: S) {
        let flop = (chains::<S>() * S::LANES * 4) as f64;
        self.stage.turns(flop, |rounds| s.run(DotRounds { rounds }));
    }
}

struct DotRounds {
    rounds: usize,
}

impl<S: Simd> Kernel<S> for DotRounds {
    #[inline(always)]
    fn run(self, s: S) {
        let small = s.splat(0.001);
        let pairs = black_box(s.pair_neighbours(small, small));
        let mut sums = [s.splat(1.0); MOST_CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut sums[..chains::<S>()] {
                *sum = s.dot_pairs(pairs, pairs, *sum);
            }
        }
        black_box(sums);
    }
}

/// The work of the probe `Tiles`: products of tiles, added to four tiles of sums, with all operands in registers.
pub(super) struct Tiles<'a> {
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) stage: &'a Stage,
}

impl Task for Tiles<'_> {
    fn pairs(&self) -> bool {
        true
    }

    const TILES: bool = true;

    fn run<S: Simd>(self, _: S) {
        let _tiles = S::Product::configure();
        #[cfg(target_arch = "x86_64")]
        self.stage.turns(f64::from(crate::processor::tiles::ROUND), crate::processor::tiles::rounds);
    }
}

/// The work of the probe `Exp2`: powers of two of [`VALUES`] numbers.
pub(super) struct Exp2<'a> {
    pub(super) stage: &'a Stage,
}

impl Task for Exp2<'_> {
    fn run<S: Simd>(self, s: S) {
        let (from, mut to) = (scores(s), zeroed(VALUES / S::LANES));
        self.stage.turns(VALUES as f64, |rounds| s.run(Exp2Rounds { rounds, from: &from, to: &mut to }));
    }
}

struct Exp2Rounds<'a, V> {
    rounds: usize,
    from: &'a [V],
    to: &'a mut [V],
}

impl<S: Simd> Kernel<S> for Exp2Rounds<'_, S::V> {
    #[inline(always)]
    fn run(self, s: S) {
        let zero = black_box(s.splat(0.0));
        for _ in 0..self.rounds {
            self.to.copy_from_slice(black_box(self.from));
            exp2_minus_all(s, self.to, zero);
            black_box(&mut *self.to);
        }
    }
}

/// The work of the probe `SoftmaxRow`: softmax weights of rows of [`ROW`] scores.
pub(super) struct SoftmaxRow<'a> {
    pub(super) stage: &'a Stage,
}

impl Task for SoftmaxRow<'_> {
    fn run<S: Simd>(self, s: S) {
        let (from, mut to) = (scores(s), zeroed(ROW / S::LANES));
        self.stage.turns(VALUES as f64, |rounds| s.run(SoftmaxRounds { rounds, from: &from, to: &mut to }));
    }
}

struct SoftmaxRounds<'a, V> {
    rounds: usize,
    from: &'a [V],
    to: &'a mut [V],
}

impl<S: Simd> Kernel<S> for SoftmaxRounds<'_, S::V> {
    #[inline(always)]
    fn run(self, s: S) {
        let scale = black_box(s.splat(0.18));
        for _ in 0..self.rounds {
            for row in black_box(self.from).chunks_exact(ROW / S::LANES) {
                let mut most = [row[0]; 4];
                for four in row.as_chunks::<4>().0 {
                    for (most, x) in most.iter_mut().zip(four) {
                        *most = s.max(*most, *x);
                    }
                }
                let most = s.max(s.max(most[0], most[1]), s.max(most[2], most[3]));
                let most = s.round(s.mul(s.splat(s.reduce_max(most)), scale));
                for (to, x) in self.to.iter_mut().zip(row) {
                    *to = s.mul(*x, scale);
                }
                exp2_minus_all(s, self.to, most);
                let mut sums = [s.splat(0.0); 4];
                for four in self.to.as_chunks::<4>().0 {
                    for (sum, x) in sums.iter_mut().zip(four) {
                        *sum = s.add(*sum, *x);
                    }
                }
                black_box(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
                black_box(&mut *self.to);
            }
        }
    }
}

/// Returns [`VALUES`] example scores from -25 to 0, as vectors.
fn scores<S: Simd>(_: S) -> Vec<S::V> {
    let mut vectors = zeroed::<S::V>(VALUES / S::LANES);
    for (i, x) in floats_mut(&mut vectors).iter_mut().enumerate() {
        *x = (i * 37 % 101) as f32 * -0.25;
    }
    vectors
}

/// The work of the probe `Read`: reading memory from start to end.
pub(super) struct Read<'a> {
    pub(super) stage: &'a Stage,
    /// The number of bytes that each thread reads.
    pub(super) bytes: usize,
}

impl Task for Read<'_> {
    fn run<S: Simd>(self, s: S) {
        let vectors = (self.bytes / size_of::<S::V>()).next_multiple_of(STREAM).max(STREAM);
        let mut memory = zeroed::<S::V>(vectors);
        memory.fill(s.splat(1.0)); // so that the system allocates every page
        self.stage.turns(size_of_val(&memory[..]) as f64, |rounds| s.run(ReadRounds { rounds, memory: &memory }));
    }
}

/// The number of vectors that the probe `Read` reads and adds in one iteration of its loop.
const STREAM: usize = 8;

struct ReadRounds<'a, V> {
    rounds: usize,
    memory: &'a [V],
}

impl<S: Simd> Kernel<S> for ReadRounds<'_, S::V> {
    #[inline(always)]
    fn run(self, s: S) {
        let mut sums = [s.splat(0.0); STREAM];
        for _ in 0..self.rounds {
            for part in black_box(self.memory).as_chunks::<STREAM>().0 {
                for (sum, x) in sums.iter_mut().zip(part) {
                    *sum = s.add(*sum, *x);
                }
            }
        }
        black_box(sums);
    }
}
