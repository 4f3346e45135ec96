//! The processor path for AVX2 with FMA and F16C: 8 lanes, 16 registers.

use super::{Kernel, Lanes, Simd, Single};
use crate::Isa;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// A token whose existence proves that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Returns the token that proves that the processor has the instructions of this processor path, or `None` if the
    /// processor lacks them.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Avx2.detected().then_some(Avx2(()))
    }
}

// SAFETY: `__m256` is eight `f32` values.
unsafe impl Lanes for __m256 {}

#[target_feature(enable = "avx2,fma,f16c")]
fn enter<K: Kernel<Avx2>>(simd: Avx2, kernel: K) {
    kernel.run(simd);
}

/// Calls intrinsics in an `unsafe` block. The only requirement of these intrinsics is a processor that supports them.
macro_rules! op {
    ($call:expr) => {
        // SAFETY: an `Avx2` token exists, so the processor supports the instructions.
        unsafe { $call }
    };
}

/// Returns `a * 2^n`: multiplies `a` twice, by two powers of two whose product is `2^n`. If the first product is a
/// normal number, it is exact, and only the second product is rounded.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn scale(a: __m256, n: __m256) -> __m256 {
    let n = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_set1_ps(-250.0), n));
    let half = _mm256_srai_epi32::<1>(n);
    let power = |e| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(e, _mm256_set1_epi32(127))));
    let rest = _mm256_sub_epi32(n, half);
    _mm256_mul_ps(_mm256_mul_ps(a, power(half)), power(rest))
}

/// Returns `a * 2^n`, computed by adding `n` to the exponent of `a`. Returns 0 for `n` below -125, where the product
/// may not be a normal number.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn scale_power(a: __m256, n: __m256) -> __m256 {
    let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
    let product = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent));
    // A comparison that is true for NaN: `n` is NaN where `a` is, and then adds nothing to the exponent.
    _mm256_and_ps(product, _mm256_cmp_ps::<_CMP_NLT_UQ>(n, _mm256_set1_ps(-125.0)))
}

/// Returns lane `i` of `a` if bit `i` of `bits` is set, otherwise lane `i` of `b`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn keep(bits: u64, a: __m256, b: __m256) -> __m256 {
    let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits as i32), lanes), lanes);
    _mm256_blendv_ps(b, a, _mm256_castsi256_ps(set))
}

/// Returns the largest lane of `a`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn reduce_max(a: __m256) -> f32 {
    let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

/// Returns the sum of the lanes of `a`, added in the order of [`Simd::reduce_add`].
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn reduce_add(a: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// Transposes a square matrix of numbers.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose(rows: &mut [__m256; 8]) {
    let mut fours = *rows;
    for i in (0..8).step_by(4) {
        let pair = |a, b| (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (a, b) = pair(rows[i], rows[i + 1]);
        let (c, d) = pair(rows[i + 2], rows[i + 3]);
        let [a, b, c, d] = [a, b, c, d].map(|x| _mm256_castps_pd(x));
        fours[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
        fours[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
        fours[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
        fours[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
    }
    for i in 0..4 {
        rows[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
        rows[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
    }
}

impl Simd for Avx2 {
    type V = __m256;
    type Array<T: Copy> = [T; 8];
    type Product = Single;
    const LANES: usize = 8;
    const ROWS: usize = 6;
    const VECTORS: usize = 2;

    #[inline(always)]
    fn run<K: Kernel<Self>>(self, kernel: K) {
        op!(enter(self, kernel))
    }
    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        op!(_mm256_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        assert!(from.len() >= 8);
        // SAFETY: the processor supports the instruction, and at least eight values are at the pointer.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        op!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        op!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn split(self, a: __m256) -> (__m256, __m256) {
        // The fraction of minus infinity is NaN. `scale_power` returns 0 for it, because `n` is minus infinity.
        let n = self.round(a);
        (n, self.sub(a, n))
    }
    #[inline(always)]
    fn scale(self, a: __m256, n: __m256) -> __m256 {
        op!(scale(a, n))
    }
    #[inline(always)]
    fn scale_power(self, a: __m256, n: __m256) -> __m256 {
        op!(scale_power(a, n))
    }
    #[inline(always)]
    fn keep(self, bits: u64, a: __m256, b: __m256) -> __m256 {
        op!(keep(bits, a, b))
    }
    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        op!(_mm_prefetch::<_MM_HINT_T1>(address.cast()))
    }
    #[inline(always)]
    fn prefetch_narrow<T>(self, address: *const T) {
        // Into the first-level cache, which measured faster (lesson 62).
        op!(_mm_prefetch::<_MM_HINT_T0>(address.cast()))
    }
    #[inline(always)]
    fn load_f16(self, from: &[f16; 8]) -> __m256 {
        // SAFETY: the processor supports the instructions, and eight numbers of 16 bits are at the pointer.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, from: &[bf16; 8]) -> __m256 {
        // SAFETY: see `load_f16`.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn transpose(self, square: &mut [__m256]) {
        let square = square.first_chunk_mut().expect("the slice to transpose must have 8 vectors");
        op!(transpose(square))
    }
    #[inline(always)]
    fn any_above(self, a: __m256, b: __m256) -> bool {
        op!(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b))) != 0
    }
    #[inline(always)]
    fn reduce_max(self, a: __m256) -> f32 {
        op!(reduce_max(a))
    }
    #[inline(always)]
    fn reduce_add(self, a: __m256) -> f32 {
        op!(reduce_add(a))
    }
}
