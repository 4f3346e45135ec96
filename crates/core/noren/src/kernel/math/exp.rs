//! Powers of two and the hyperbolic tangent, on vectors.

use crate::kernel::simd::Simd;

/// The initial value of a row's running maximum of scores; like every running maximum, it is an integer. A score below
/// this value gets the weight 0.
pub(crate) const NOTHING: f32 = -1e38;

/// Coefficients of a polynomial for `(2^f - 1) / f` with `f` in -0.5..=0.5, lowest power first. Before rounding, the
/// maximum relative error of `2^f` is 9.2e-8. No polynomial of this degree has a smaller maximum error.
#[allow(clippy::approx_constant)] // The first coefficient is near ln 2, but not equal.
const POWER: [f32; 5] = [0.693_147, 0.240_222_42, 0.055_507_336, 0.009_671_513, 0.001_326_472_7];

/// Returns `2^(x - m)` for an integer-valued `m`. The result is 0 if `x` is minus infinity, and NaN if `x` is NaN.
///
/// The fraction of `x` is computed before `m` is subtracted. The significand of the result therefore depends only on
/// `x`, and `m` changes only the exponent. Softmax results are then the same whether the maximum `m` of a row was found
/// early or late.
#[inline(always)]
pub(crate) fn exp2_minus<S: Simd>(s: S, x: S::V, m: S::V) -> S::V {
    let mut powers = [x];
    exp2_minus_each(s, &mut powers, m);
    powers[0]
}

/// Replaces each vector `x` by `2^(x - m)`, as [`exp2_minus`] computes it.
#[inline(always)]
pub(crate) fn exp2_minus_all<S: Simd>(s: S, vectors: &mut [S::V], m: S::V) {
    let (fours, rest) = vectors.as_chunks_mut::<4>();
    for four in fours {
        exp2_minus_each(s, four, m);
    }
    for x in rest {
        *x = exp2_minus(s, *x, m);
    }
}

/// Replaces each vector `x` by `2^(x - m)`. Each step of the computation is done for all vectors before the next step.
/// While the processor waits for the result of one vector, it can compute the other vectors.
#[inline(always)]
pub(crate) fn exp2_minus_each<S: Simd, const N: usize>(s: S, x: &mut [S::V; N], m: S::V) {
    let (mut n, mut f, mut sum) = (*x, *x, [s.splat(POWER[4]); N]);
    for i in 0..N {
        (n[i], f[i]) = s.split(x[i]);
    }
    for c in POWER[..4].iter().rev() {
        for i in 0..N {
            sum[i] = s.fma(sum[i], f[i], s.splat(*c));
        }
    }
    for i in 0..N {
        x[i] = s.scale_power(s.fma(sum[i], f[i], s.splat(1.0)), s.sub(n[i], m));
    }
}

/// Returns `tanh(x)` with a relative error of about 5e-7. The function uses `e^(2x) - 1`, which it computes without
/// cancellation near 0.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // tanh rounds to 1 well below |x| = 20. With this order of operands, NaN stays NaN.
    let x = s.max(s.splat(-20.0), s.min(s.splat(20.0), x));
    let one = s.splat(1.0);
    let (n, f) = s.split(s.mul(x, s.splat(2.0 * std::f32::consts::LOG2_E)));
    let mut sum = s.splat(POWER[4]);
    for c in POWER[..4].iter().rev() {
        sum = s.fma(sum, f, s.splat(*c));
    }
    let power = s.scale(one, n);
    let minus_one = s.fma(s.mul(sum, f), power, s.sub(power, one));
    s.div(minus_one, s.add(minus_one, s.splat(2.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::simd::{Simd, floats, floats_mut, zeroed};

    /// Returns `2^(x - m)` for each value of `x`, computed on a processor path. Values after the last whole vector are
    /// left out.
    fn powers<S: Simd>(s: S, x: &[f32], m: f32) -> Vec<f32> {
        let mut vectors = zeroed::<S::V>(x.len() / S::LANES);
        floats_mut(&mut vectors).copy_from_slice(&x[..x.len() / S::LANES * S::LANES]);
        exp2_minus_all(s, &mut vectors, s.splat(m));
        floats(&vectors).to_vec()
    }

    fn check<S: Simd>(s: S) {
        let x: Vec<f32> = (0..4000).map(|i| -160.0 + i as f32 * 0.077_001).collect();
        for m in [-40.0, 0.0, 3.0, 170.0] {
            for (x, y) in x.iter().zip(powers(s, &x, m)) {
                let expected = f64::from(x - m).exp2();
                match x - m {
                    d if d < 120.0 && d > -125.0 => {
                        assert!((f64::from(y) / expected - 1.0).abs() < 2e-7, "2^({x} - {m}): {y}");
                    }
                    d if d <= -125.0 => {
                        assert!((0.0..=1.0001 * f32::MIN_POSITIVE * 2.0).contains(&y), "2^({x} - {m}): {y}")
                    }
                    _ => {}
                }
            }
        }
        // The significand depends on `x` alone, and the result does not depend on the place of a vector.
        for (len, (a, b)) in powers(s, &x[..2000], 0.0).into_iter().zip(powers(s, &x[..2000], 7.0)).enumerate() {
            assert!(x[len] < -110.0 || a == b * 128.0, "{}: {a} {b}", x[len]);
        }
        for vectors in 1..10 {
            let some = &x[1900..][..vectors * S::LANES];
            assert_eq!(powers(s, some, 2.0), powers(s, &x[1900..], 2.0)[..some.len()]);
        }
        let nans = [0x7fc0_0000, 0xffc0_0000, 0xffff_ffff, 0x7fbf_ffff].map(f32::from_bits);
        for m in [5.0, -40.0, 1e10, NOTHING] {
            let lows = [f32::NEG_INFINITY, f32::MIN, -2e38, -1.5e38];
            let special = [lows, nans].concat().repeat(S::LANES);
            for (x, y) in special.iter().zip(powers(s, &special, m)) {
                assert!(if x.is_nan() { y.is_nan() } else { y == 0.0 }, "2^({x} - {m}): {y}");
            }
        }
    }

    #[test]
    fn powers_of_two_on_every_path() {
        check(crate::kernel::simd::portable::Portable);
        #[cfg(target_arch = "aarch64")]
        crate::kernel::simd::neon::Neon::detect().into_iter().for_each(check);
        #[cfg(target_arch = "x86_64")]
        {
            use crate::kernel::simd::{avx2::Avx2, avx512};
            Avx2::detect().into_iter().for_each(check);
            avx512::Avx512::detect().into_iter().for_each(check);
            avx512::Avx512Bf16::detect().into_iter().for_each(check);
        }
    }
}
