//! Norms, activations and additions as loops over rows, compiled for each processor path ([`noren::Isa`]).
//!
//! The operations and their order are the same for every width of vectors. A multiplication is fused with an addition
//! only where the code requests it. All paths therefore give the same bits.

/// Defines a function whose body is compiled three times: for AVX-512, for AVX2 and for any processor. Each call
/// chooses the path.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) {
                    body($($arg),*)
                }
                match $crate::nn::isa() {
                    // SAFETY: a chosen ISA is one that the processor has, and it includes the features for which the
                    // function is compiled.
                    noren::Isa::Avx512 | noren::Isa::Avx512Bf16 | noren::Isa::Amx => return unsafe { avx512($($arg),*) },
                    // SAFETY: the chosen ISA is one that the processor has, and it includes the features of `avx2`.
                    noren::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            body($($arg),*)
        }
    };
}

/// Number of partial sums in a group. [`sum`] adds the numbers of a row to 4 groups of 8 partial sums and then adds
/// these partial sums, as PyTorch does for short rows. The sums therefore have the same rounding as in PyTorch.
const LANES: usize = 8;
/// Number of groups of partial sums in which [`sum`] adds the numbers of a row.
const GROUPS: usize = 4;

/// Returns the sum of `f(x)` over the numbers `x` of a row.
#[inline(always)]
fn sum(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; LANES * GROUPS];
    let (blocks, rest) = row.as_chunks::<{ LANES * GROUPS }>();
    for block in blocks {
        for (sum, x) in sums.iter_mut().zip(block) {
            *sum += f(*x);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += f(*x);
    }
    let lane = |lane: usize| ((sums[lane] + sums[lane + LANES]) + sums[lane + 2 * LANES]) + sums[lane + 3 * LANES];
    (1..LANES).fold(lane(0), |sum, i| sum + lane(i))
}

wide! {
    /// Applies `(x - mean) / sqrt(variance + eps) * weight + bias` to each row of `x`, in place.
    pub(super) fn layer_norm(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
        let width = weight.len();
        for x in x.chunks_exact_mut(width) {
            let mean = sum(x, |x| x) / width as f32;
            let variance = sum(x, |x| (x - mean) * (x - mean)) / width as f32;
            let scale = 1.0 / (variance + eps).sqrt();
            for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
    }
}

wide! {
    /// Applies `x / sqrt(mean(x^2) + eps) * (weight + offset)` to each row of `x`, in place.
    pub(super) fn rms_norm(x: &mut [f32], weight: &[f32], offset: f32, eps: f32) {
        let width = weight.len();
        for x in x.chunks_exact_mut(width) {
            let scale = 1.0 / (sum(x, |x| x * x) / width as f32 + eps).sqrt();
            for (x, weight) in x.iter_mut().zip(weight) {
                *x = *x * scale * (weight + offset);
            }
        }
    }
}

wide! {
    /// Adds `bias` to each row of `x`. A row has the length of `bias`.
    pub(super) fn add_rows(x: &mut [f32], bias: &[f32]) {
        for row in x.chunks_exact_mut(bias.len()) {
            for (x, bias) in row.iter_mut().zip(bias) {
                *x += bias;
            }
        }
    }
}

/// Returns `e^x`, of which only the last bits may be wrong. If `x` is outside of the range from -87 to 88, the nearest
/// end of the range is used instead.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let whole = x * std::f32::consts::LOG2_E + ROUND;
    let n = whole - ROUND;
    // ln 2 in two parts, the first short enough that n times it is exact.
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = (p * r + 1.0) * r + 1.0;
    p * f32::from_bits((whole.to_bits() << 23).wrapping_add(127 << 23))
}

/// Returns the error function of `z` with a relative error of 2e-7. Below `|z| = 3.9`, `erf(z) / z` is computed as a
/// quotient of polynomials in `z^2`. For larger `|z|`, the result is 1 or -1.
#[inline(always)]
fn erf(z: f32) -> f32 {
    const LAST: f32 = 3.9;
    let t = z * z;
    let p = 2.014_836_1e-8f32;
    let p = p.mul_add(t, -1.963_198_9e-6);
    let p = p.mul_add(t, 1.405_963_4e-4);
    let p = p.mul_add(t, 3.632_16e-3);
    let p = p.mul_add(t, 5.034_452_3e-2);
    let p = p.mul_add(t, 0.198_179_22);
    let p = p.mul_add(t, std::f32::consts::FRAC_2_SQRT_PI);
    let q = 9.405_516e-4f32;
    let q = q.mul_add(t, 1.420_760_9e-2);
    let q = q.mul_add(t, 0.114_279_636);
    let q = q.mul_add(t, 0.508_963_5);
    let q = q.mul_add(t, 1.0);
    if t < LAST * LAST { z * p / q } else { 1f32.copysign(z) }
}

wide! {
    /// Applies `x * P(X <= x)` to every number in place, where `X` has the standard normal distribution.
    pub(super) fn gelu(x: &mut [f32]) {
        for x in x {
            let half = 0.5 * *x;
            *x = half.mul_add(erf(*x * std::f32::consts::FRAC_1_SQRT_2), half);
        }
    }
}

wide! {
    /// Applies `x / (1 + exp(-2 y))` with `y = sqrt(2 / pi) (x + 0.044715 x^3)` to every number in place. This is
    /// GELU's formula with `tanh`.
    pub(super) fn gelu_tanh(x: &mut [f32]) {
        for x in x {
            let y = 0.797_884_6 * (*x + 0.044_715 * *x * *x * *x);
            *x /= 1.0 + exp(-2.0 * y);
        }
    }
}

wide! {
    /// Applies `x / (1 + exp(-x))` to every number, in place.
    pub(super) fn silu(x: &mut [f32]) {
        for x in x {
            *x /= 1.0 + exp(-*x);
        }
    }
}

wide! {
    /// Applies `max(x, 0)` to every number, in place. NaN stays NaN.
    pub(super) fn relu(x: &mut [f32]) {
        for x in x {
            *x = if *x < 0.0 { 0.0 } else { *x };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_the_library() {
        let xs: Vec<f32> = (-4000..4000).map(|i| i as f32 / 400.0).collect();
        let tensor = candle_core::Tensor::new(&xs[..], &candle_core::Device::Cpu).unwrap();
        let [a, b, c] = [tensor.gelu_erf(), tensor.gelu(), tensor.silu()].map(|t| t.unwrap().to_vec1::<f32>().unwrap());
        let of = |f: fn(&mut [f32])| {
            let mut ys = xs.clone();
            f(&mut ys);
            ys
        };
        for (name, got, expected) in [("gelu", of(gelu), a), ("tanh", of(gelu_tanh), b), ("silu", of(silu), c)] {
            for ((x, got), expected) in xs.iter().zip(got).zip(expected) {
                assert!(
                    (got - expected).abs() < 1e-6 * expected.abs().max(1.0),
                    "{name}({x}) is {got}, not {expected}"
                );
            }
        }
        let mut edges = [f32::NAN, f32::INFINITY, -1e30, 0.0];
        gelu(&mut edges);
        assert!(edges[0].is_nan() && edges[1] == f32::INFINITY && edges[2].abs() < 1e-6 && edges[3] == 0.0);
    }

    #[test]
    fn exp_is_exact_to_the_last_bits() {
        for i in -8600..8600 {
            let x = i as f32 / 100.0;
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) - expected).abs() <= 2e-7 * expected, "exp({x}) is {}, not {expected}", exp(x));
        }
    }
}
