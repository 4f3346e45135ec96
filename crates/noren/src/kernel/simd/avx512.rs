//! AVX-512: 16 lanes, 32 registers, a predicate register that a word of mask bits becomes as it is.

use super::{Kernel, Lanes, Simd};
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F, VL, BW and DQ.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The token, if the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("fma");
        has.then_some(Avx512(()))
    }
}

// SAFETY: `__m512` is sixteen `f32` values.
unsafe impl Lanes for __m512 {}

#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn enter<K: Kernel<Avx512>>(simd: Avx512, kernel: K) {
    kernel.run(simd);
}

/// Wraps intrinsics whose only demand is that the processor has them.
macro_rules! op {
    ($call:expr) => {
        // SAFETY: an `Avx512` token exists, so the processor has the instruction.
        unsafe { $call }
    };
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 6;
    const VECTORS: usize = 4;

    #[inline(always)]
    fn run<K: Kernel<Self>>(self, kernel: K) {
        op!(enter(self, kernel))
    }
    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        op!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        assert!(from.len() >= 16);
        // SAFETY: the processor has the instruction, and sixteen values lie at the pointer.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        op!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn scale(self, a: __m512, n: __m512) -> __m512 {
        op!(_mm512_scalef_ps(a, n))
    }
    #[inline(always)]
    fn keep(self, bits: u64, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mask_blend_ps(bits as u16, b, a))
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        op!(_mm512_reduce_max_ps(a))
    }
}
