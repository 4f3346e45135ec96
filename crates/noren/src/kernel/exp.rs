//! Powers of two and the hyperbolic tangent, on vectors.

use super::simd::Simd;

/// The start value of a row's running maximum, an integer. Scores below it count as minus infinity: their weight is 0.
pub(crate) const NOTHING: f32 = -1e38;

/// `(2^f - 1) / f` for `f` in -0.5..=0.5, lowest power first: the polynomial of this degree that makes the largest
/// relative error of `2^f` smallest (9.2e-8, before rounding).
#[allow(clippy::approx_constant)] // the first is near ln 2, as it must be, and not ln 2
const POWER: [f32; 5] = [0.693_147, 0.240_222_42, 0.055_507_336, 0.009_671_513, 0.001_326_472_7];

/// `x` as an integer `n` and `2^(x - n) - 1`.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::V) -> (S::V, S::V, S::V) {
    let n = s.round(x);
    let f = s.sub(x, n);
    let mut sum = s.splat(POWER[4]);
    for c in POWER[..4].iter().rev() {
        sum = s.fma(sum, f, s.splat(*c));
    }
    (n, f, sum)
}

/// `2^(x - m)` for an integer-valued `m`; 0 where `x` is minus infinity, NaN where `x` is NaN.
///
/// The fraction of `x` is taken before `m` is subtracted, so the digits of the result depend on `x` alone and `m` moves
/// nothing but the exponent. That is what makes results independent of when a row's maximum was seen.
#[inline(always)]
pub(crate) fn exp2_minus<S: Simd>(s: S, x: S::V, m: S::V) -> S::V {
    let (n, f, sum) = split(s, s.max(s.splat(f32::MIN), x));
    s.scale(s.fma(sum, f, s.splat(1.0)), s.sub(n, m))
}

/// `tanh(x)`, relative error about 5e-7, from `e^(2x) - 1` computed without cancellation.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // tanh rounds to 1 long before |x| = 20; the order of operands lets NaN through.
    let x = s.max(s.splat(-20.0), s.min(s.splat(20.0), x));
    let one = s.splat(1.0);
    let (n, f, sum) = split(s, s.mul(x, s.splat(2.0 * std::f32::consts::LOG2_E)));
    let power = s.scale(one, n);
    let minus_one = s.fma(s.mul(sum, f), power, s.sub(power, one));
    s.div(minus_one, s.add(minus_one, s.splat(2.0)))
}
