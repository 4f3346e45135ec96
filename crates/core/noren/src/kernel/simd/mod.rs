//! The vector operations that every kernel uses, and the processor paths that implement them.
//!
//! Each processor path has a zero-sized token type that implements [`Simd`]. A token proves that the processor has the
//! path's instructions: only the `detect` function of the type creates a token, after a check of the processor.
//! Algorithms are written once, generic over [`Simd`], and are inlined into [`Simd::run`], the only function that is
//! compiled with the path's instructions.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
mod overlap;
pub(crate) mod portable;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // only x86-64 multiplies tiles
pub(crate) mod stage;

#[cfg(target_arch = "x86_64")]
use crate::processor::tiles;
use crate::processor::tiles::{Left, Panel, Right, Sums, Target};
use half::{bf16, f16};
use std::ops::Range;

/// A vector type that consists only of `f32` values.
///
/// # Safety
///
/// The type is an array of `f32` in memory: it has no padding, every bit pattern is valid, and all-zero bits mean
/// zeros.
pub(crate) unsafe trait Lanes: Copy + Send + Sync + 'static {}

/// An array of numbers of type `T` in memory.
pub(crate) trait Chunk<T>: Copy {
    /// Returns `numbers` as a slice of arrays. Numbers after the last whole array are left out.
    fn chunks(numbers: &[T]) -> &[Self];

    /// Returns the numbers of the array.
    fn numbers(&self) -> &[T];
}

impl<T: Copy, const N: usize> Chunk<T> for [T; N] {
    #[inline(always)]
    fn chunks(numbers: &[T]) -> &[Self] {
        numbers.as_chunks().0
    }

    #[inline(always)]
    fn numbers(&self) -> &[T] {
        self
    }
}

/// A number type in memory. Kernels read such numbers and widen them to `f32` in registers.
pub(crate) trait Number: Copy + 'static {
    /// Returns the numbers of an array as a vector of `f32`.
    fn widen<S: Simd>(s: S, from: &S::Array<Self>) -> S::V;
}

impl Number for f32 {
    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &S::Array<Self>) -> S::V {
        s.load(from.numbers())
    }
}

impl Number for f16 {
    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &S::Array<Self>) -> S::V {
        s.load_f16(from)
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &S::Array<Self>) -> S::V {
        s.load_bf16(from)
    }
}

/// Work that runs on a processor path.
///
/// `run` must be `#[inline(always)]`, and all functions that `run` calls often must be `#[inline(always)]` too.
/// Otherwise they are not compiled with the instructions of the path.
pub(crate) trait Kernel<S: Simd> {
    /// Runs the work on the processor path of the token `simd`.
    fn run(self, simd: S);
}

/// Operations on vectors of [`Simd::LANES`] `f32` values.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of `LANES` values.
    type V: Lanes;
    /// `LANES` numbers of type `T` in memory.
    type Array<T: Copy>: Chunk<T>;
    /// The format of operands ([`Single`] or [`Pairs`]) that a forward or backward pass uses on this processor path.
    type Product: Product;
    /// The number of values in a vector, a divisor of 64.
    const LANES: usize;
    /// The number of rows of the register tile, at most 6. The register tile has `ROWS x VECTORS` vectors of
    /// accumulators.
    const ROWS: usize;
    /// The number of vectors in a row of the register tile, at most 4.
    const VECTORS: usize;
    /// The number of rows that the products of a forward pass compute together: those of a register tile, or of a tile of
    /// the tile unit.
    const BAND: usize = Self::ROWS;
    /// The number of rows whose scores, weights and weighted values are computed one after another, a multiple of `BAND`.
    const PHASE: usize = 24;

    /// Computes a stage on a path that multiplies tiles. Returns whether a weight is 2 or more, so that the maxima of some rows
    /// must rise and the weights be computed again.
    #[inline(always)]
    fn stage(self, stage: stage::Stage<'_>) -> bool {
        let _ = stage;
        unreachable!("this path does not multiply tiles")
    }

    /// Runs `kernel`, compiled with the instructions of this processor path.
    fn run<K: Kernel<Self>>(self, kernel: K);
    /// Returns a vector with `value` in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// Returns the first `LANES` values of `from`. Panics if `from` is shorter.
    fn load(self, from: &[f32]) -> Self::V;
    /// Returns `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a * b + c`. If the processor path has a fused instruction, the result is rounded once. Otherwise, the
    /// product is rounded, and then the sum.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns the larger of `a` and `b` in each lane; the lane of `b` if one of the two values is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the smaller of `a` and `b` in each lane; the lane of `b` if one of the two values is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the nearest integer of each lane, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// Splits `a` into the nearest integer `n` and the fraction `f = a - n`. Returns `(n, f)`. The fraction of minus infinity
    /// is 0 or, on some processor paths, NaN.
    #[inline(always)]
    fn split(self, a: Self::V) -> (Self::V, Self::V) {
        let a = self.max(self.splat(f32::MIN), a);
        let n = self.round(a);
        (n, self.sub(a, n))
    }
    /// Returns `a * 2^n` for integer-valued `n`. The result is rounded once if `a * 2^(n/2)` is a normal number,
    /// otherwise at most twice. A processor path may treat `n` below -250 as -250.
    fn scale(self, a: Self::V, n: Self::V) -> Self::V;
    /// Returns `a * 2^n`. `n` must be integer-valued, and `a` must be NaN or from 0.5 to 2. A processor path may return
    /// 0 if the product is below the normal range of `f32`. If [`split`](Self::split)
    /// returned `n` for minus infinity, the product is 0, also where `a` is NaN because the fraction is NaN.
    #[inline(always)]
    fn scale_power(self, a: Self::V, n: Self::V) -> Self::V {
        self.scale(a, n)
    }
    /// Returns lane `i` of `a` if bit `i` of `bits` is set, otherwise lane `i` of `b`.
    fn keep(self, bits: u64, a: Self::V, b: Self::V) -> Self::V;
    /// Transposes a square matrix of numbers: `LANES` vectors, each with `LANES` lanes.
    #[inline(always)]
    fn transpose(self, square: &mut [Self::V]) {
        let values = &mut floats_mut(square)[..Self::LANES * Self::LANES];
        for row in 0..Self::LANES {
            for column in 0..row {
                values.swap(row * Self::LANES + column, column * Self::LANES + row);
            }
        }
    }
    /// Returns whether at least one lane of `a` is larger than the lane of `b` with the same index.
    fn any_above(self, a: Self::V, b: Self::V) -> bool;
    /// Returns the largest lane of `a`.
    fn reduce_max(self, a: Self::V) -> f32;
    /// Returns the sum of the lanes of `a`, added in a tree: first lanes with the distance `LANES / 2`, then lanes with the
    /// distance `LANES / 4`, and so on. A rotation of the lanes only swaps the operands of these additions, so it does not
    /// change the bits of the sum.
    #[inline(always)]
    fn reduce_add(self, a: Self::V) -> f32 {
        let mut lanes = a;
        let lanes = floats_mut(std::slice::from_mut(&mut lanes));
        let mut half = Self::LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }

    /// Prefetches the cache line at `address` into the second-level cache. The address may be outside any memory.
    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        let _ = address;
    }
    /// Prefetches the cache line at `address`, which has 16-bit numbers that are read once and soon. The address may be
    /// outside any memory.
    #[inline(always)]
    fn prefetch_narrow<T>(self, address: *const T) {
        self.prefetch(address);
    }
    /// Returns the `LANES` numbers of `from` as `f32`.
    #[inline(always)]
    fn load_f16(self, from: &Self::Array<f16>) -> Self::V {
        let mut out = self.splat(0.0);
        let into = floats_mut(std::slice::from_mut(&mut out));
        into.iter_mut().zip(from.numbers()).for_each(|(into, x)| *into = f16_value(x.to_bits()));
        out
    }
    /// Returns the `LANES` numbers of `from` as `f32`.
    #[inline(always)]
    fn load_bf16(self, from: &Self::Array<bf16>) -> Self::V {
        let mut out = self.splat(0.0);
        let into = floats_mut(std::slice::from_mut(&mut out));
        into.iter_mut().zip(from.numbers()).for_each(|(into, x)| *into = f32::from_bits(u32::from(x.to_bits()) << 16));
        out
    }

    /// Returns `a.low * b.low + a.high * b.high + c` for each lane. A lane of `a` or `b` is a *pair*: two `bf16`
    /// numbers, one in the lower half (`low`) and one in the upper half (`high`) of the 32 bits.
    ///
    /// The two additions may be rounded separately or together, and numbers below the normal range of `f32` may count
    /// as 0.
    #[inline(always)]
    fn dot_pairs(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let ([a_low, a_high], [b_low, b_high]) = (self.unpair(a), self.unpair(b));
        self.fma(a_high, b_high, self.fma(a_low, b_low, c))
    }
    /// Returns the numbers of the pairs of `bf16` in `a` as `f32`: `[lower numbers, upper numbers]`.
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
    /// Returns pairs of `bf16` whose lower halves are the numbers of `low` and whose upper halves are the numbers of
    /// `high`, in order. `low` and `high` have two numbers in each lane, so the result is two vectors.
    #[inline(always)]
    fn zip_pairs(self, low: Self::V, high: Self::V) -> [Self::V; 2] {
        let [lows, highs] = [&low, &high].map(|x| floats(std::slice::from_ref(x)));
        let half = |words: &[f32], i: usize| words[i / 2].to_bits() >> (16 * (i % 2)) & 0xffff;
        let mut zipped = [low, high];
        for (i, word) in floats_mut(&mut zipped).iter_mut().enumerate() {
            *word = f32::from_bits(half(lows, i) | half(highs, i) << 16);
        }
        zipped
    }
    /// Returns pairs of `bf16`: first pairs of neighbouring lanes of `first`, then pairs of neighbouring lanes of
    /// `second`. Numbers are rounded to nearest, ties to even.
    #[inline(always)]
    fn pair_neighbours(self, first: Self::V, second: Self::V) -> Self::V {
        let numbers = [first, second];
        let mut pairs = first;
        let two = floats(&numbers).as_chunks::<2>().0;
        for (pair, [low, high]) in floats_mut(std::slice::from_mut(&mut pairs)).iter_mut().zip(two) {
            *pair = pair_up(*low, *high);
        }
        pairs
    }
}

/// The format in which the operands of a matrix product are stored: as *words*, each one `f32` or a pair of `bf16`. An
/// array of words has the type of an array of `f32`, even if its words are pairs.
pub(crate) trait Product: Copy + Send + Sync + 'static {
    /// The number of values in a word, the unit in which operands are stored: 1, or 2 for a pair. This is also the
    /// number of products that one instruction adds to a lane.
    const TERMS: usize;

    /// Returns, for each lane, `c` plus the products of the values in the words (single numbers, or pairs) of `a` and
    /// `b`.
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V;

    /// The state of the thread while it computes products.
    type Configured;

    /// Prepares the thread for products, until the result is dropped.
    fn configure() -> Self::Configured;

    /// Whether products are computed by [`multiply`](Self::multiply), for whole tiles of rows, words and columns.
    const TILES: bool = false;

    /// Returns the number of words (each with [`TERMS`](Self::TERMS) values) that hold `numbers` values.
    fn words(numbers: usize) -> usize {
        numbers.div_ceil(Self::TERMS)
    }

    /// Adds the products of the words `words` of `left`, whole tiles, and the rows of `right` of the same indices to `sums`, in
    /// the columns `columns`, in units of 16. If `first` is true, the sums begin at 0.
    fn multiply(
        first: bool,
        left: Left<'_>,
        words: Range<usize>,
        right: Right<'_>,
        columns: Range<usize>,
        sums: Sums<'_>,
    ) {
        let _ = (first, left, words, right, columns, sums);
        unreachable!("this format of operands has no tiles")
    }

    /// Adds the product of up to two tiles of rows with a panel of weights to its sums.
    fn panel(panel: Panel<'_>, to: Target<'_>) {
        let _ = (panel, to);
        unreachable!("this format of operands has no tiles")
    }

    /// Adds the values of up to 64 keys, multiplied by their weights, to `sums`: only those of the keys whose bits in `allowed`
    /// are set. `values` has a row of words, as many as `sums` has, for each word of `weights`.
    fn multiply_allowed(weights: &[f32], allowed: u64, values: &[f32], sums: &mut [f32]) {
        let _ = (weights, allowed, values, sums);
        unreachable!("this format of operands has no tiles")
    }
}

/// The operand format in which a word (the unit in which operands are stored) is one `f32` number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single;

/// The operand format in which a word (the unit in which operands are stored) is a pair of `bf16` numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs;

impl Product for Single {
    type Configured = ();
    const TERMS: usize = 1;

    fn configure() {}

    #[inline(always)]
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
        s.fma(a, b, c)
    }
}

impl Product for Pairs {
    type Configured = ();
    const TERMS: usize = 2;

    fn configure() {}

    #[inline(always)]
    fn dot<S: Simd>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
        s.dot_pairs(a, b, c)
    }
}

/// The operand format of the tile unit: words are pairs of `bf16` numbers, and rows have whole tiles of words.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles;

#[cfg(target_arch = "x86_64")]
impl Product for Tiles {
    type Configured = tiles::Configured;
    const TERMS: usize = 2;
    const TILES: bool = true;

    #[inline(always)]
    fn configure() -> Self::Configured {
        tiles::Configured::new()
    }

    #[inline(always)]
    fn dot<S: Simd>(_: S, _: S::V, _: S::V, _: S::V) -> S::V {
        unreachable!("tiles are multiplied as a whole")
    }

    fn words(numbers: usize) -> usize {
        numbers.div_ceil(2 * tiles::SIDE) * tiles::SIDE
    }

    #[inline(always)]
    fn multiply(
        first: bool,
        left: Left<'_>,
        words: Range<usize>,
        right: Right<'_>,
        columns: Range<usize>,
        sums: Sums<'_>,
    ) {
        tiles::multiply(first, left, words, right, columns, sums);
    }

    fn multiply_allowed(weights: &[f32], allowed: u64, values: &[f32], sums: &mut [f32]) {
        tiles::multiply_allowed(weights, allowed, values, sums);
    }

    #[inline(always)]
    fn panel(panel: Panel<'_>, to: Target<'_>) {
        tiles::panel(panel, to);
    }
}

/// Returns the number of keys in a lane group: `LANES`, or `2 * LANES` if a word is a pair of `bf16`. With this number,
/// the weights of a row for a lane group fill whole vectors, even if the weights of neighbouring keys form pairs.
pub(crate) const fn group<S: Simd, P: Product>() -> usize {
    S::LANES * P::TERMS
}

/// Returns the `f16` number with the bits `bits` as `f32`, computed without a branch.
#[inline(always)]
pub(crate) fn f16_value(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // Moves exponent and significand to their places in `f32`. The exponent is then 112 too small, and the product
    // corrects it; the product is exact also for subnormal numbers.
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(size.to_bits() | special | (bits & 0x8000) << 16)
}

/// Returns a pair of `bf16` in the 32 bits of an `f32`: the lower half has the `bf16` nearest to `low`, and the upper
/// half has the `bf16` nearest to `high`.
#[inline(always)]
pub(crate) fn pair_up(low: f32, high: f32) -> f32 {
    f32::from_bits(bf16_bits(low) >> 16 | bf16_bits(high) & 0xffff_0000)
}

/// Returns the bits of the `bf16` nearest to `value` in the upper 16 bits of the result. The lower 16 bits have no
/// meaning.
#[inline(always)]
fn bf16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { bits | 0x0040_0000 } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) }
}

/// Returns whether all numbers in the words `values` are finite (neither infinite nor NaN).
#[inline(always)]
pub(crate) fn all_finite<P: Product>(values: &[f32]) -> bool {
    // In infinite and NaN values, all bits of the exponent are 1. Adding 1 to such an exponent carries into the sign
    // bit, so an OR of the sums finds these values.
    let carry = |bits: u32| (bits & 0x7fff_ffff) + 0x0080_0000;
    let both = |x: &f32| carry(x.to_bits()) | if P::TERMS == 2 { carry(x.to_bits() << 16) } else { 0 };
    let mut carries = 0;
    for chunk in values.chunks(256) {
        for x in chunk {
            carries |= both(x);
        }
    }
    carries & 0x8000_0000 == 0
}

/// Returns the values of all vectors as one slice.
#[inline(always)]
pub(crate) fn floats<V: Lanes>(vectors: &[V]) -> &[f32] {
    let len = size_of_val(vectors) / size_of::<f32>();
    // SAFETY: `Lanes` guarantees that the vectors are `len` adjacent `f32` values. The alignment of `f32` is smaller.
    unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), len) }
}

/// Returns the values of all vectors as one mutable slice.
#[inline(always)]
pub(crate) fn floats_mut<V: Lanes>(vectors: &mut [V]) -> &mut [f32] {
    let len = size_of_val(vectors) / size_of::<f32>();
    // SAFETY: see `floats`; `vectors` is borrowed exclusively.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), len) }
}

/// Returns a slice of values as a slice of vectors. The values must be aligned to vectors and fill whole vectors.
#[inline(always)]
pub(crate) fn vectors<V: Lanes>(floats: &[f32]) -> &[V] {
    let vectors: *const V = floats.as_ptr().cast();
    assert!(vectors.is_aligned() && size_of_val(floats).is_multiple_of(size_of::<V>()));
    // SAFETY: `Lanes` guarantees that a vector consists of values only, and the aligned pointer has enough of them.
    unsafe { std::slice::from_raw_parts(vectors, size_of_val(floats) / size_of::<V>()) }
}

/// Allocates `len` vectors of zeros. Panics if there is not enough memory.
pub(crate) fn zeroed<V: Lanes>(len: usize) -> Vec<V> {
    try_zeroed(len).expect("there is not enough memory for the buffers of a call")
}

/// Allocates `len` vectors of zeros. Returns `None` if there is not enough memory.
pub(crate) fn try_zeroed<V: Lanes>(len: usize) -> Option<Vec<V>> {
    let layout = std::alloc::Layout::array::<V>(len).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout has a size above 0 and is the layout of a `Vec` with this capacity. `Lanes` guarantees that
    // zero bits are valid values.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout);
        (!memory.is_null()).then(|| Vec::from_raw_parts(memory.cast(), len, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widens every 16-bit number to `f32` with the processor path `s`, and compares the results with those of the
    /// crate `half`.
    fn check_all<S: Simd, T: Number>(s: S, number: fn(u16) -> T, expected: fn(T) -> f32) {
        let all: Vec<T> = (0..=u16::MAX).map(number).collect();
        for chunk in S::Array::<T>::chunks(&all) {
            let wide = T::widen(s, chunk);
            for (x, wide) in chunk.numbers().iter().zip(floats(std::slice::from_ref(&wide))) {
                let expected = expected(*x);
                assert!(
                    wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan(),
                    "{expected}: {wide}"
                );
            }
        }
    }

    fn check_both<S: Simd>(s: S) {
        check_all(s, f16::from_bits, f16::to_f32);
        check_all(s, bf16::from_bits, bf16::to_f32);
    }

    #[test]
    fn numbers_of_16_bits_are_widened_exactly() {
        check_both(portable::Portable);
        #[cfg(target_arch = "aarch64")]
        neon::Neon::detect().into_iter().for_each(check_both);
        #[cfg(target_arch = "x86_64")]
        {
            avx2::Avx2::detect().into_iter().for_each(check_both);
            avx512::Avx512::detect().into_iter().for_each(check_both);
            avx512::Avx512Bf16::detect().into_iter().for_each(check_both);
        }
    }

    /// Compares pairs of `bf16` that the processor path `s` makes with those of `pair_up`.
    fn check_pairs<S: Simd>(s: S) {
        let number = |i: usize| (i as f32 * 0.37 - 9.0) * if i.is_multiple_of(5) { 1e30 } else { 1.003 };
        let vector = |from: usize| {
            let mut vector = s.splat(0.0);
            let numbers = floats_mut(std::slice::from_mut(&mut vector)).iter_mut().enumerate();
            numbers.for_each(|(i, x)| *x = number(from + i));
            vector
        };
        let bits = |vectors: &[S::V]| floats(vectors).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let pairs = |low: fn(usize) -> usize, high: fn(usize, usize) -> usize, count: usize| -> Vec<u32> {
            (0..count).map(|i| pair_up(number(low(i)), number(high(i, S::LANES))).to_bits()).collect()
        };
        let two = [0, 1].map(|n| s.pair_neighbours(vector(2 * n * S::LANES), vector((2 * n + 1) * S::LANES)));
        assert_eq!(bits(&two), pairs(|i| 2 * i, |i, _| 2 * i + 1, 2 * S::LANES));
        assert_eq!(bits(&s.zip_pairs(two[0], two[1])), pairs(|i| i, |i, lanes| 2 * lanes + i, 2 * S::LANES));
    }

    #[test]
    fn pairs_have_their_numbers_in_order() {
        check_pairs(portable::Portable);
        #[cfg(target_arch = "aarch64")]
        neon::Neon::detect().into_iter().for_each(check_pairs);
        #[cfg(target_arch = "x86_64")]
        {
            avx2::Avx2::detect().into_iter().for_each(check_pairs);
            avx512::Avx512::detect().into_iter().for_each(check_pairs);
            avx512::Avx512Bf16::detect().into_iter().for_each(check_pairs);
        }
    }

    /// Compares the sum of lanes with additions in the documented order, for every rotation of the lanes.
    fn check_sums<S: Simd>(s: S) {
        let mut state = 1u32;
        for _ in 0..1000 {
            let mut vector = [s.splat(0.0)];
            for x in floats_mut(&mut vector) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *x = (state >> 8) as f32 * (-f32::from((state & 31) as u8)).exp2();
            }
            let mut tree = floats(&vector).to_vec();
            while tree.len() > 1 {
                let upper = tree.split_off(tree.len() / 2);
                tree.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += upper);
            }
            for _ in 0..S::LANES {
                assert_eq!(s.reduce_add(vector[0]).to_bits(), tree[0].to_bits());
                floats_mut(&mut vector).rotate_left(1);
            }
        }
    }

    #[test]
    fn sums_of_lanes_do_not_depend_on_the_first_lane() {
        check_sums(portable::Portable);
        #[cfg(target_arch = "aarch64")]
        neon::Neon::detect().into_iter().for_each(check_sums);
        #[cfg(target_arch = "x86_64")]
        {
            avx2::Avx2::detect().into_iter().for_each(check_sums);
            avx512::Avx512::detect().into_iter().for_each(check_sums);
            avx512::Avx512Bf16::detect().into_iter().for_each(check_sums);
        }
    }
}
