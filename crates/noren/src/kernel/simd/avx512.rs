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

/// Exchanges rows and columns: pairs, then fours inside 128-bit lanes, then the lanes themselves.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn transpose(rows: &mut [__m512; 16]) {
    let mut fours = *rows;
    for i in (0..16).step_by(4) {
        let pair = |a, b| (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (a, b) = pair(rows[i], rows[i + 1]);
        let (c, d) = pair(rows[i + 2], rows[i + 3]);
        let [a, b, c, d] = [a, b, c, d].map(|x| _mm512_castps_pd(x));
        fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for i in 0..4 {
        let [a, b, c, d] = [fours[i], fours[i + 4], fours[i + 8], fours[i + 12]];
        let even = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
        let odd = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
        rows[i] = _mm512_shuffle_f32x4::<0x88>(even.0, even.1);
        rows[i + 8] = _mm512_shuffle_f32x4::<0xdd>(even.0, even.1);
        rows[i + 4] = _mm512_shuffle_f32x4::<0x88>(odd.0, odd.1);
        rows[i + 12] = _mm512_shuffle_f32x4::<0xdd>(odd.0, odd.1);
    }
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
    fn transpose(self, square: &mut [__m512]) {
        let square = square.first_chunk_mut().expect("a square of vectors");
        op!(transpose(square))
    }
    #[inline(always)]
    fn any_above(self, a: __m512, b: __m512) -> bool {
        op!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b)) != 0
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        op!(_mm512_reduce_max_ps(a))
    }
}
