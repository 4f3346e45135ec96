//! The paths for AVX-512: 16 lanes, 32 registers, and predicate registers that take mask bits directly.
//!
//! There are two paths: one for every processor with AVX-512, and one that also uses AVX512-BF16 and multiplies pairs
//! of `bf16` with one instruction. All other operations are the same in both paths, so their `f32` results have the
//! same bits.

use super::avx2::reduce_add;
use super::stage::Stage;
use super::{Kernel, Lanes, Pairs, Simd, Single, Tiles, overlap};
use crate::Isa;
use crate::processor::tiles::SIDE;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// A token whose existence proves that the processor has AVX-512 F, VL, BW and DQ.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// A token whose existence proves that the processor has AVX-512 F, VL, BW, DQ and AVX512-BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

impl Avx512 {
    /// Returns the token that proves that the processor has the instructions of this processor path, or `None` if the
    /// processor lacks them.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Avx512.detected().then_some(Avx512(()))
    }
}

impl Avx512Bf16 {
    /// Returns the token that proves that the processor has the instructions of this processor path, or `None` if the
    /// processor lacks them.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Avx512Bf16.detected().then_some(Avx512Bf16(()))
    }
}

/// A token whose existence proves that the processor has what [`Avx512Bf16`] needs, and that the process may use the tile unit.
#[derive(Clone, Copy)]
pub(crate) struct Amx(());

impl Amx {
    /// Returns the token that proves that the processor has the instructions of this processor path, or `None` if the
    /// processor lacks them or the operating system does not permit them.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Amx.detected().then_some(Amx(()))
    }
}

// SAFETY: `__m512` is sixteen `f32` values.
unsafe impl Lanes for __m512 {}

/// Transposes 16 vectors of 16 numbers in three steps: first pairs of numbers, then groups of four numbers (the 128-bit
/// blocks of a vector), then whole 128-bit blocks.
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

/// Calls intrinsics in an `unsafe` block. The only requirement of these intrinsics is a processor that supports them.
macro_rules! op {
    ($call:expr) => {
        // SAFETY: a token of a path in this file exists, so the processor supports the instruction.
        unsafe { $call }
    };
}

/// Implements a processor path. The arguments are the type whose value proves that the processor supports the path, the
/// processor features with which the path is compiled, the operand format ([`Single`] or [`Pairs`]), and the operations
/// that only this path implements.
macro_rules! path {
    ($token:ident, $features:literal, $product:ty, $($own:tt)*) => {
        impl Simd for $token {
            type V = __m512;
            type Array<T: Copy> = [T; 16];
            type Product = $product;
            const LANES: usize = 16;
            const ROWS: usize = 6;
            const VECTORS: usize = 4;

            #[inline(always)]
            fn run<K: Kernel<Self>>(self, kernel: K) {
                #[target_feature(enable = $features)]
                fn enter<K: Kernel<$token>>(simd: $token, kernel: K) {
                    kernel.run(simd);
                }
                op!(enter(self, kernel))
            }
            #[inline(always)]
            fn splat(self, value: f32) -> __m512 {
                op!(_mm512_set1_ps(value))
            }
            #[inline(always)]
            fn load(self, from: &[f32]) -> __m512 {
                assert!(from.len() >= 16);
                // SAFETY: the processor supports the instruction, and at least sixteen values are at the pointer.
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
            fn split(self, a: __m512) -> (__m512, __m512) {
                // The instruction returns 0 as the fraction of infinity.
                (self.round(a), op!(_mm512_reduce_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)))
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
            fn prefetch<T>(self, address: *const T) {
                op!(_mm_prefetch::<_MM_HINT_T1>(address.cast()))
            }
            #[inline(always)]
            fn load_f16(self, from: &[f16; 16]) -> __m512 {
                // SAFETY: the processor supports the instructions, and sixteen numbers of 16 bits are at the pointer.
                unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
            }
            #[inline(always)]
            fn load_bf16(self, from: &[bf16; 16]) -> __m512 {
                // SAFETY: see `load_f16`.
                unsafe {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
            }
            #[inline(always)]
            fn transpose(self, square: &mut [__m512]) {
                let square = square.first_chunk_mut().expect("the slice to transpose must have 16 vectors");
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
            #[inline(always)]
            fn reduce_add(self, a: __m512) -> f32 {
                op!(reduce_add(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a))))
            }
            $($own)*
        }
    };
}

path! {
    Avx512, "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma", Single,
}

/// Implements a processor path with AVX512-BF16, as [`path`] does.
macro_rules! path_of_pairs {
    ($token:ident, $product:ty, $($own:tt)*) => {
        path! {
            $token, "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma", $product,
            #[inline(always)]
            fn unpair(self, a: __m512) -> [__m512; 2] {
                op!({
                    let bits = _mm512_castps_si512(a);
                    let high = _mm512_and_si512(bits, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                    [_mm512_slli_epi32::<16>(bits), high].map(|half| _mm512_castsi512_ps(half))
                })
            }
            #[inline(always)]
            fn dot_pairs(self, a: __m512, b: __m512, c: __m512) -> __m512 {
                op!(_mm512_dpbf16_ps(c, bf16s(a), bf16s(b)))
            }
            #[inline(always)]
            fn zip_pairs(self, low: __m512, high: __m512) -> [__m512; 2] {
                op!({
                    let (low, high) = (_mm512_castps_si512(low), _mm512_castps_si512(high));
                    let first = _mm512_loadu_si512((&raw const FIRST).cast());
                    let second = _mm512_loadu_si512((&raw const SECOND).cast());
                    [
                        _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, first, high)),
                        _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, second, high)),
                    ]
                })
            }
            #[inline(always)]
            fn pair_neighbours(self, first: __m512, second: __m512) -> __m512 {
                op!(m512_of(_mm512_cvtne2ps_pbh(second, first)))
            }
            $($own)*
        }
    };
}

path_of_pairs! {
    Avx512Bf16, Pairs,
}

path_of_pairs! {
    Amx, Tiles,
    const BAND: usize = SIDE;
    const PHASE: usize = 2 * SIDE;
    #[inline(always)]
    fn stage(self, stage: Stage<'_>) -> bool {
        op!(overlap::compute(stage))
    }
}

/// Returns the bits of `pairs` as a vector of 32 `bf16` numbers.
#[inline(always)]
fn bf16s(pairs: __m512) -> __m512bh {
    // SAFETY: both types are 512 bits, and every bit pattern is valid.
    unsafe { std::mem::transmute(pairs) }
}

/// Returns the bits of `pairs`, which are 32 `bf16` numbers, as a vector of 16 `f32` words.
#[inline(always)]
fn m512_of(pairs: __m512bh) -> __m512 {
    // SAFETY: see `bf16s`.
    unsafe { std::mem::transmute(pairs) }
}

/// For each of the 32 numbers of the first vector of [`Simd::zip_pairs`], its index in the numbers of `low` (0..32) and
/// `high` (32..64).
static FIRST: [u16; 32] = zipped(0);
/// As `FIRST`, for the second vector.
static SECOND: [u16; 32] = zipped(16);

/// Returns the indices `from, 32 + from, from + 1, 32 + from + 1, ...`.
const fn zipped(from: u16) -> [u16; 32] {
    let mut numbers = [0; 32];
    let mut i = 0;
    while i < 32 {
        numbers[i] = from + i as u16 / 2 + i as u16 % 2 * 32;
        i += 1;
    }
    numbers
}
