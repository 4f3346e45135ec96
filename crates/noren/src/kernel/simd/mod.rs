//! The small set of vector operations every kernel is written in, and the processors that provide them.
//!
//! [`Simd`] is implemented by a zero-sized token for each processor path. Holding a token is the proof that the
//! processor has the path's instructions: tokens are only handed out by their `detect` function, after asking the
//! processor. Algorithms are written once, generic over [`Simd`], always inlined, and entered through [`Simd::run`],
//! which is the one function of a path that is compiled with the path's instructions.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

/// A vector type that is nothing but `f32` values.
///
/// # Safety
///
/// The type is an array of `f32` in memory: no padding, every bit pattern valid, all-zero bits meaning all zeros.
pub(crate) unsafe trait Lanes: Copy + Send + Sync + 'static {}

/// Something that runs on a processor path.
///
/// `run` must be `#[inline(always)]`, and so must everything hot that it calls: only then is it compiled with the
/// instructions of the path.
pub(crate) trait Kernel<S: Simd> {
    /// Does the work.
    fn run(self, simd: S);
}

/// Operations on vectors of [`Simd::LANES`] `f32` values.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// The vector.
    type V: Lanes;
    /// What a whole pass multiplies on this path.
    type Product: Product;
    /// Values in a vector, at most 64 and a divisor of 64.
    const LANES: usize;
    /// Rows of the register tile: accumulators are `ROWS x VECTORS` vectors. At most 6.
    const ROWS: usize;
    /// Vectors in a row of the register tile. At most 4.
    const VECTORS: usize;

    /// Runs `kernel` compiled with the instructions of this path.
    fn run<K: Kernel<Self>>(self, kernel: K);
    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// The first `LANES` values of `from`, which holds at least so many.
    fn load(self, from: &[f32]) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, with one rounding where the path has such an instruction.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `a * 2^n` for integer-valued `n`, rounded once; `n` below -250 counts as -250 or as what it is.
    fn scale(self, a: Self::V, n: Self::V) -> Self::V;
    /// Lane `i` of `a` where bit `i` of `bits` is set, of `b` elsewhere.
    fn keep(self, bits: u64, a: Self::V, b: Self::V) -> Self::V;
    /// Exchanges rows and columns of a square of `LANES` vectors.
    #[inline(always)]
    fn transpose(self, square: &mut [Self::V]) {
        let values = &mut floats_mut(square)[..Self::LANES * Self::LANES];
        for row in 0..Self::LANES {
            for column in 0..row {
                values.swap(row * Self::LANES + column, column * Self::LANES + row);
            }
        }
    }
    /// Whether a lane of `a` is larger than that of `b`.
    fn any_above(self, a: Self::V, b: Self::V) -> bool;
    /// The largest lane.
    fn reduce_max(self, a: Self::V) -> f32;

    /// Says that the line of this value will be read soon.
    #[inline(always)]
    fn prefetch<T>(self, value: &T) {
        let _ = value;
    }
    /// The numbers whose `f16` bits are given; as many are written.
    #[inline(always)]
    fn widen_f16(self, from: &[u16], into: &mut [f32]) {
        from.iter().zip(into).for_each(|(bits, into)| *into = f16_value(*bits));
    }

    /// `c` plus both products of every lane: a lane of `a` and of `b` is a *pair*, two `bf16` in its lower and upper half.
    ///
    /// The two additions round on their own or together, and numbers below `f32`'s normal range may count as 0.
    #[inline(always)]
    fn dot_pairs(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let ([a_low, a_high], [b_low, b_high]) = (self.unpair(a), self.unpair(b));
        self.fma(a_high, b_high, self.fma(a_low, b_low, c))
    }
    /// The lower and the upper numbers of pairs.
    #[inline(always)]
    fn unpair(self, a: Self::V) -> [Self::V; 2] {
        let (mut low, mut high) = (a, a);
        let each = |vector: &mut Self::V, half: fn(u32) -> u32| {
            let values = floats_mut(std::slice::from_mut(vector));
            values.iter_mut().for_each(|x| *x = f32::from_bits(half(x.to_bits())));
        };
        each(&mut low, |bits| bits << 16);
        each(&mut high, |bits| bits & 0xffff_0000);
        [low, high]
    }
    /// Lane `i` pairs lane `i` of `low` with lane `i` of `high`, rounded to the nearest `bf16`, ties to even.
    #[inline(always)]
    fn pair(self, low: Self::V, high: Self::V) -> Self::V {
        let mut pairs = low;
        let highs = floats(std::slice::from_ref(&high));
        for (x, high) in floats_mut(std::slice::from_mut(&mut pairs)).iter_mut().zip(highs) {
            *x = pair_up(*x, *high);
        }
        pairs
    }
    /// The lanes of `first` and then those of `second`, paired with their neighbours.
    #[inline(always)]
    fn pair_neighbours(self, first: Self::V, second: Self::V) -> Self::V {
        let mut values = [0.0; 128];
        values[..Self::LANES].copy_from_slice(floats(std::slice::from_ref(&first)));
        values[Self::LANES..2 * Self::LANES].copy_from_slice(floats(std::slice::from_ref(&second)));
        let (mut low, mut high) = (first, second);
        for i in 0..Self::LANES {
            floats_mut(std::slice::from_mut(&mut low))[i] = values[2 * i];
            floats_mut(std::slice::from_mut(&mut high))[i] = values[2 * i + 1];
        }
        self.pair(low, high)
    }
}

/// What operands are stored as. Arrays of words are arrays of `f32`, whose bits may be those of pairs.
pub(crate) trait Product: Copy + Send + Sync + 'static {
    /// Numbers in a word: terms of a sum that one instruction adds to a lane.
    const TERMS: usize;

    /// `c` plus the products of the words of `a` and `b`, lane by lane.
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V;

    /// Words that hold `numbers`.
    fn words(numbers: usize) -> usize {
        numbers.div_ceil(Self::TERMS)
    }
}

/// Words are `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single;

/// Words are pairs of `bf16`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs;

impl Product for Single {
    const TERMS: usize = 1;

    #[inline(always)]
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
        s.fma(a, b, c)
    }
}

impl Product for Pairs {
    const TERMS: usize = 2;

    #[inline(always)]
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
        s.dot_pairs(a, b, c)
    }
}

/// Keys in a lane group: as many as fill vectors of weights, whose words are pairs of neighbours where words are pairs.
pub(crate) const fn group<S: Simd, P: Product>() -> usize {
    S::LANES * P::TERMS
}

/// The number whose `f16` bits are given, without a branch.
#[inline(always)]
pub(crate) fn f16_value(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // exponent and significand in their places, the exponent short by 112: a product, exact for subnormal numbers too
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(size.to_bits() | special | (bits & 0x8000) << 16)
}

/// A word of two `bf16`, the nearest to these numbers.
#[inline(always)]
pub(crate) fn pair_up(low: f32, high: f32) -> f32 {
    f32::from_bits(bf16_bits(low) >> 16 | bf16_bits(high) & 0xffff_0000)
}

/// `value` rounded to the nearest `bf16`, in the upper half.
#[inline(always)]
fn bf16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { bits | 0x0040_0000 } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) }
}

/// Whether no number in the words is infinite or NaN.
#[inline(always)]
pub(crate) fn all_finite<P: Product>(values: &[f32]) -> bool {
    // An exponent of all ones: adding one to it carries into the sign bit, so a plain OR of sums finds it.
    let carry = |bits: u32| (bits & 0x7fff_ffff) + 0x0080_0000;
    let both = |x: &f32| carry(x.to_bits()) | if P::TERMS == 2 { carry(x.to_bits() << 16) } else { 0 };
    values.chunks(256).all(|chunk| chunk.iter().fold(0, |or, x| or | both(x)) & 0x8000_0000 == 0)
}

/// The values of some vectors.
#[inline(always)]
pub(crate) fn floats<V: Lanes>(vectors: &[V]) -> &[f32] {
    let len = size_of_val(vectors) / size_of::<f32>();
    // SAFETY: `Lanes` promises that the vectors are `len` adjacent `f32` values; alignment of `f32` is smaller.
    unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), len) }
}

/// The values of some vectors, to be changed.
#[inline(always)]
pub(crate) fn floats_mut<V: Lanes>(vectors: &mut [V]) -> &mut [f32] {
    let len = size_of_val(vectors) / size_of::<f32>();
    // SAFETY: as in `floats`, and the borrow is as exclusive as the one given.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), len) }
}

/// Values as vectors, which they must be aligned to and fill.
#[inline(always)]
pub(crate) fn vectors<V: Lanes>(floats: &[f32]) -> &[V] {
    let vectors: *const V = floats.as_ptr().cast();
    assert!(vectors.is_aligned() && size_of_val(floats).is_multiple_of(size_of::<V>()));
    // SAFETY: `Lanes` promises that a vector is nothing but values, and there are enough of them at the aligned pointer.
    unsafe { std::slice::from_raw_parts(vectors, size_of_val(floats) / size_of::<V>()) }
}

/// `len` vectors of zeros.
pub(crate) fn zeroed<V: Lanes>(len: usize) -> Vec<V> {
    try_zeroed(len).expect("memory for what a call works with")
}

/// `len` vectors of zeros, or `None` where there is no such memory.
pub(crate) fn try_zeroed<V: Lanes>(len: usize) -> Option<Vec<V>> {
    let layout = std::alloc::Layout::array::<V>(len).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout has a size and is that of a vector with this capacity, and `Lanes` promises that zero bits are
    // valid values.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        (!memory.is_null()).then(|| Vec::from_raw_parts(memory.cast(), len, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn f16_is_widened_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut wide = vec![0.0; all.len()];
        portable::Portable.widen_f16(&all, &mut wide);
        let check = |wide: &[f32]| {
            for (bits, wide) in all.iter().zip(wide) {
                let expected = f16::from_bits(*bits).to_f32();
                assert!(
                    wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan(),
                    "{bits:#x}: {wide}"
                );
            }
        };
        check(&wide);
        #[cfg(target_arch = "x86_64")]
        if let Some(s) = avx512::Avx512::detect() {
            let mut wide = vec![0.0; all.len()];
            s.widen_f16(&all[..all.len() - 3], &mut wide[..all.len() - 3]);
            wide[all.len() - 3..].fill(f32::NAN);
            check(&wide);
        }
    }
}
