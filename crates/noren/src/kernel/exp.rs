//! Powers of two and the hyperbolic tangent, on vectors.

use super::simd::Simd;

/// The initial value of a row's running maximum, an integer. A score below this value gets the weight 0.
pub(crate) const NOTHING: f32 = -1e38;

/// Coefficients of a polynomial for `(2^f - 1) / f` with `f` in -0.5..=0.5, lowest power first. The maximum relative
/// error of `2^f` is 9.2e-8 before rounding, the minimum for polynomials of this degree.
#[allow(clippy::approx_constant)] // The first coefficient is near ln 2, but not equal.
const POWER: [f32; 5] = [0.693_147, 0.240_222_42, 0.055_507_336, 0.009_671_513, 0.001_326_472_7];

/// Splits `x` into the nearest integer `n` and the fraction `f = x - n`. Returns `(n, f, (2^f - 1) / f)`.
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

/// Returns `2^(x - m)` for an integer-valued `m`: 0 where `x` is minus infinity, NaN where `x` is NaN.
///
/// The fraction of `x` is computed before `m` is subtracted. The significand of the result therefore depends on `x`
/// alone, and `m` changes only the exponent. Results therefore do not depend on the moment at which the maximum of a
/// row was found.
#[inline(always)]
pub(crate) fn exp2_minus<S: Simd>(s: S, x: S::V, m: S::V) -> S::V {
    let (n, f, sum) = split(s, s.max(s.splat(f32::MIN), x));
    s.scale(s.fma(sum, f, s.splat(1.0)), s.sub(n, m))
}

/// Returns `tanh(x)` with a relative error of about 5e-7, from `e^(2x) - 1` computed without cancellation.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // tanh rounds to 1 well below |x| = 20. With this order of operands, NaN stays NaN.
    let x = s.max(s.splat(-20.0), s.min(s.splat(20.0), x));
    let one = s.splat(1.0);
    let (n, f, sum) = split(s, s.mul(x, s.splat(2.0 * std::f32::consts::LOG2_E)));
    let power = s.scale(one, n);
    let minus_one = s.fma(s.mul(sum, f), power, s.sub(power, one));
    s.div(minus_one, s.add(minus_one, s.splat(2.0)))
}
