//! The AVX-512 dot product of pairs of bf16 values. No kernel uses it where it runs no faster than widening to `f32`;
//! [`machine`](crate::machine) measures which of the two this processor is better at.

use std::arch::x86_64::*;
use std::hint::black_box;

/// Accumulators: more than latency times throughput of any processor that has the instruction, fewer than registers.
const CHAINS: usize = 24;

/// Operations in one round: a chain adds 32 products in 16 lanes.
pub(crate) const FLOP: f64 = (CHAINS * 32 * 2) as f64;

/// Proof that the processor has `vdpbf16ps` on 512-bit vectors.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Dot(());

impl Bf16Dot {
    /// The token, if the processor has the instruction.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        has.then_some(Bf16Dot(()))
    }

    /// So many rounds of dot products that wait for nothing but their own accumulator.
    pub(crate) fn rounds(self, rounds: usize) {
        // SAFETY: a `Bf16Dot` token exists, so the processor has the instructions.
        unsafe { chains(rounds) }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn chains(rounds: usize) {
    let tiny = black_box(_mm512_set1_ps(1e-3));
    let pairs = _mm512_cvtne2ps_pbh(tiny, tiny);
    let mut sums = [_mm512_set1_ps(1.0); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, pairs, pairs);
        }
    }
    black_box(sums);
}
