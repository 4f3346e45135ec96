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
#[cfg(target_arch = "x86_64")]
pub(crate) mod bf16_dot;
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

/// `len` vectors of zeros.
pub(crate) fn zeroed<V: Lanes>(len: usize) -> Vec<V> {
    let mut vectors = Vec::with_capacity(len);
    // SAFETY: the allocation holds `len` vectors, and `Lanes` promises that zero bits are valid values.
    unsafe {
        std::ptr::write_bytes(vectors.as_mut_ptr(), 0, len);
        vectors.set_len(len);
    }
    vectors
}
