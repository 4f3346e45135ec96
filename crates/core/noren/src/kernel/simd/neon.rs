//! The processor path for NEON, which every 64-bit ARM processor has: 4 lanes, 32 registers.

use super::{Kernel, Lanes, Simd, Single};
use crate::Isa;
use half::bf16;
use std::arch::aarch64::*;
use std::arch::asm;

/// A token whose existence proves that the processor has NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Returns the token that proves that the processor has the instructions of this processor path, or `None` if the
    /// processor lacks them.
    pub(crate) fn detect() -> Option<Self> {
        Isa::Neon.detected().then_some(Neon(()))
    }
}

// SAFETY: `float32x4_t` is four `f32` values.
unsafe impl Lanes for float32x4_t {}

#[target_feature(enable = "neon")]
fn enter<K: Kernel<Neon>>(simd: Neon, kernel: K) {
    kernel.run(simd);
}

/// Calls intrinsics in an `unsafe` block. The only requirement of these intrinsics is a processor that supports them.
macro_rules! op {
    ($call:expr) => {
        // SAFETY: a `Neon` token exists, so the processor supports the instructions.
        unsafe { $call }
    };
}

/// Returns `a * 2^n`: multiplies `a` twice, by two powers of two whose product is `2^n`. If the first product is a
/// normal number, it is exact, and only the second product is rounded.
#[inline]
#[target_feature(enable = "neon")]
fn scale(a: float32x4_t, n: float32x4_t) -> float32x4_t {
    let least = vdupq_n_f32(-250.0);
    let n = vcvtq_s32_f32(vbslq_f32(vcgtq_f32(n, least), n, least));
    let half = vshrq_n_s32::<1>(n);
    let power = |e| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(e, vdupq_n_s32(127))));
    vmulq_f32(vmulq_f32(a, power(half)), power(vsubq_s32(n, half)))
}

/// Returns `a * 2^n` by adding `n` to the exponent of `a`, or 0 if the sum is below the exponents of normal numbers.
#[inline]
#[target_feature(enable = "neon")]
fn scale_power(a: float32x4_t, n: float32x4_t) -> float32x4_t {
    let exponent = vshlq_n_s32::<23>(vcvtq_s32_f32(n));
    let product = vreinterpretq_u32_s32(vaddq_s32(vreinterpretq_s32_f32(a), exponent));
    // A comparison that is false for NaN: `n` is NaN where `a` is, and is then converted to 0.
    vreinterpretq_f32_u32(vbicq_u32(product, vcltq_f32(n, vdupq_n_f32(-125.0))))
}

/// Returns lane `i` of `a` if bit `i` of `bits` is set, otherwise lane `i` of `b`.
#[inline]
#[target_feature(enable = "neon")]
fn keep(bits: u64, a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // The numbers 1, 2, 4 and 8.
    let lanes = vmovl_u16(vcreate_u16(0x0008_0004_0002_0001));
    vbslq_f32(vtstq_u32(vdupq_n_u32(bits as u32), lanes), a, b)
}

/// Transposes a square matrix of four vectors with four numbers each.
#[inline]
#[target_feature(enable = "neon")]
fn transpose(square: &mut [float32x4_t; 4]) {
    let double = |x| vreinterpretq_f64_f32(x);
    let single = |x| vreinterpretq_f32_f64(x);
    let [a, b, c, d] = *square;
    let (even, odd) = (double(vtrn1q_f32(a, b)), double(vtrn2q_f32(a, b)));
    let (even_below, odd_below) = (double(vtrn1q_f32(c, d)), double(vtrn2q_f32(c, d)));
    *square = [
        single(vtrn1q_f64(even, even_below)),
        single(vtrn1q_f64(odd, odd_below)),
        single(vtrn2q_f64(even, even_below)),
        single(vtrn2q_f64(odd, odd_below)),
    ];
}

impl Simd for Neon {
    type V = float32x4_t;
    type Array<T: Copy> = [T; 4];
    type Product = Single;
    const LANES: usize = 4;
    const ROWS: usize = 6;
    const VECTORS: usize = 4;

    #[inline(always)]
    fn run<K: Kernel<Self>>(self, kernel: K) {
        op!(enter(self, kernel))
    }
    #[inline(always)]
    fn splat(self, value: f32) -> float32x4_t {
        op!(vdupq_n_f32(value))
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> float32x4_t {
        assert!(from.len() >= 4);
        // SAFETY: the processor supports the instruction, and at least four values are at the pointer.
        unsafe { vld1q_f32(from.as_ptr()) }
    }
    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        op!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // Not `vmaxq_f32`, which returns NaN if one of the two is NaN.
        op!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vbslq_f32(vcltq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn round(self, a: float32x4_t) -> float32x4_t {
        op!(vrndnq_f32(a))
    }
    #[inline(always)]
    fn scale(self, a: float32x4_t, n: float32x4_t) -> float32x4_t {
        op!(scale(a, n))
    }
    #[inline(always)]
    fn scale_power(self, a: float32x4_t, n: float32x4_t) -> float32x4_t {
        op!(scale_power(a, n))
    }
    #[inline(always)]
    fn keep(self, bits: u64, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(keep(bits, a, b))
    }
    #[inline(always)]
    fn transpose(self, square: &mut [float32x4_t]) {
        let square = square.first_chunk_mut().expect("a square has as many vectors as a vector has lanes");
        op!(transpose(square))
    }
    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        // SAFETY: a prefetch changes no register and no memory, and it does not fail for any address.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    fn load_bf16(self, from: &[bf16; 4]) -> float32x4_t {
        // SAFETY: the processor supports the instructions, and four numbers of 16 bits are at the pointer.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn any_above(self, a: float32x4_t, b: float32x4_t) -> bool {
        op!(vmaxvq_u32(vcgtq_f32(a, b))) != 0
    }
    #[inline(always)]
    fn reduce_max(self, a: float32x4_t) -> f32 {
        op!(vmaxnmvq_f32(a))
    }
}
