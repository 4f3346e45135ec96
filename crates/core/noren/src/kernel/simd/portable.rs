//! The portable processor path in plain Rust. Its vectors are arrays of 8 values, which the compiler turns into the
//! vectors of the target processor.
//!
//! No operation has a branch or a function call for a single lane, because the compiler would then not use vectors. The
//! operations are written for processors such as the x86-64 baseline, which has 16 registers of 4 values, no fused
//! multiply-add and no instruction that rounds to an integer.

use super::{Kernel, Lanes, Simd, Single};

/// The token of the portable processor path, which every processor can run.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// A vector of eight values.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Eight([f32; 8]);

// SAFETY: the type is eight `f32` values without padding: 32 bytes, aligned to 32.
unsafe impl Lanes for Eight {}

#[inline(always)]
fn zip(a: Eight, b: Eight, f: impl Fn(f32, f32) -> f32) -> Eight {
    let mut out = a;
    for i in 0..8 {
        out.0[i] = f(a.0[i], b.0[i]);
    }
    out
}

#[inline(always)]
fn map(a: Eight, f: impl Fn(f32) -> f32) -> Eight {
    zip(a, a, |x, _| f(x))
}

/// A number for rounding to integers. The sum of `MAGIC` and a number below 2^22 in absolute value has no bits for
/// fractions, so the number is rounded to an integer, ties to even.
const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23

/// Returns the integer-valued `n` as an `i32`, limited to -250..=250. NaN gives -250.
#[inline(always)]
fn exponent(n: f32) -> i32 {
    let n = if n > -250.0 { n } else { -250.0 };
    let n = if n < 250.0 { n } else { 250.0 };
    (n + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

/// Returns `2^e` for `e` in -126..=127.
#[inline(always)]
fn power(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

/// Runs a kernel as a separate function, so that kernels with several callers are compiled once.
#[inline(never)]
fn enter<K: Kernel<Portable>>(kernel: K) {
    kernel.run(Portable);
}

impl Simd for Portable {
    type V = Eight;
    type Array<T: Copy> = [T; 8];
    type Product = Single;
    const LANES: usize = 8;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn run<K: Kernel<Self>>(self, kernel: K) {
        enter(kernel);
    }
    #[inline(always)]
    fn splat(self, value: f32) -> Eight {
        Eight([value; 8])
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> Eight {
        let mut out = Eight([0.0; 8]);
        out.0.copy_from_slice(&from[..8]);
        out
    }
    #[inline(always)]
    fn add(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn fma(self, a: Eight, b: Eight, c: Eight) -> Eight {
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn max(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn min(self, a: Eight, b: Eight) -> Eight {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn round(self, a: Eight) -> Eight {
        // A number of 2^22 or more is returned as it is: it is an integer or so large that 2^x is 0 or infinite.
        map(a, |x| {
            let rounded = (x + MAGIC) - MAGIC;
            if x.abs() < 4_194_304.0 { rounded } else { x }
        })
    }
    #[inline(always)]
    fn scale(self, a: Eight, n: Eight) -> Eight {
        zip(a, n, |x, n| {
            let n = exponent(n);
            let half = n >> 1;
            x * power(half) * power(n - half)
        })
    }
    #[inline(always)]
    fn scale_power(self, a: Eight, n: Eight) -> Eight {
        zip(a, n, |x, n| {
            let product = f32::from_bits(x.to_bits().wrapping_add((exponent(n) as u32) << 23));
            // The product with 0 is NaN where `x` is.
            if n >= -125.0 { product } else { x * 0.0 }
        })
    }
    #[inline(always)]
    fn keep(self, bits: u64, a: Eight, b: Eight) -> Eight {
        let mut out = b;
        for i in 0..8 {
            out.0[i] = if bits as u32 & 1 << i == 0 { b.0[i] } else { a.0[i] };
        }
        out
    }
    #[inline(always)]
    fn any_above(self, a: Eight, b: Eight) -> bool {
        let mut any = false;
        for i in 0..8 {
            any |= a.0[i] > b.0[i];
        }
        any
    }
    #[inline(always)]
    fn reduce_max(self, a: Eight) -> f32 {
        let pick = |x: f32, y: f32| if x > y { x } else { y };
        let a = a.0;
        pick(pick(pick(a[0], a[4]), pick(a[2], a[6])), pick(pick(a[1], a[5]), pick(a[3], a[7])))
    }
}
