//! The two matrix products of attention on a register tile: scores from queries and keys, outputs from weights and
//! values.
//!
//! Both products keep `R x N` accumulators (rows x vectors) in registers and add one *word* at a time in ascending
//! order. The bits of a result therefore do not depend on the size of the register tile or on the other rows in the
//! tile. A [`Product`] defines what a word is: one `f32`, or a pair of `bf16`.

use crate::kernel::arrays::ahead::Ahead;
use crate::kernel::simd::{Chunk, Kernel, Number, Product, Simd, floats, floats_mut, group};
use crate::processor::tiles::{Left, Right, Sums};
use half::{bf16, f16};
use std::marker::PhantomData;
use std::ops::Range;

/// The number of keys in a block: 64, the number of bits in one mask word (`u64`).
pub(crate) const BLOCK: usize = 64;

/// The maximum number of keys in a block whose cells are all allowed. With longer blocks, kernels load and store the
/// accumulators less often.
pub(crate) const WIDE: usize = 2 * BLOCK;

/// Returns the number of vectors in a row of the next register tile if `left` vectors are not computed yet. Three
/// vectors are computed as two and one, because a tile of three vectors would not be faster.
#[inline(always)]
pub(in crate::kernel) fn tile_vectors<S: Simd>(left: usize) -> usize {
    match S::VECTORS.min(left) {
        3 => 2,
        vectors => vectors,
    }
}

/// Calls the function `$f::<S, P, R, N>`. The constants `R` and `N` have the values of the arguments `$rows` and
/// `$vectors`, which are at most the rows and vectors of the processor path's register tile.
macro_rules! by_tile {
    ($s:ty, $p:ty, $rows:expr, $vectors:expr, $f:ident($($arg:expr),*)) => {
        match ($rows, $vectors) {
            (1, 1) => $f::<$s, $p, 1, 1>($($arg),*),
            (2, 1) => $f::<$s, $p, 2, 1>($($arg),*),
            (3, 1) => $f::<$s, $p, 3, 1>($($arg),*),
            (4, 1) => $f::<$s, $p, 4, 1>($($arg),*),
            (5, 1) if <$s>::ROWS >= 5 => $f::<$s, $p, 5, 1>($($arg),*),
            (6, 1) if <$s>::ROWS >= 6 => $f::<$s, $p, 6, 1>($($arg),*),
            (1, 2) if <$s>::VECTORS >= 2 => $f::<$s, $p, 1, 2>($($arg),*),
            (2, 2) if <$s>::VECTORS >= 2 => $f::<$s, $p, 2, 2>($($arg),*),
            (3, 2) if <$s>::VECTORS >= 2 => $f::<$s, $p, 3, 2>($($arg),*),
            (4, 2) if <$s>::VECTORS >= 2 => $f::<$s, $p, 4, 2>($($arg),*),
            (5, 2) if <$s>::VECTORS >= 2 && <$s>::ROWS >= 5 => $f::<$s, $p, 5, 2>($($arg),*),
            (6, 2) if <$s>::VECTORS >= 2 && <$s>::ROWS >= 6 => $f::<$s, $p, 6, 2>($($arg),*),
            (1, 4) if <$s>::VECTORS >= 4 => $f::<$s, $p, 1, 4>($($arg),*),
            (2, 4) if <$s>::VECTORS >= 4 => $f::<$s, $p, 2, 4>($($arg),*),
            (3, 4) if <$s>::VECTORS >= 4 => $f::<$s, $p, 3, 4>($($arg),*),
            (4, 4) if <$s>::VECTORS >= 4 => $f::<$s, $p, 4, 4>($($arg),*),
            (5, 4) if <$s>::VECTORS >= 4 && <$s>::ROWS >= 5 => $f::<$s, $p, 5, 4>($($arg),*),
            (6, 4) if <$s>::VECTORS >= 4 && <$s>::ROWS >= 6 => $f::<$s, $p, 6, 4>($($arg),*),
            (rows, vectors) => unreachable!("there is no kernel for a register tile of {rows} rows x {vectors} vectors"),
        }
    };
}

pub(in crate::kernel) use by_tile;

/// Computes the scores of `rows` queries and `groups * LANES` keys.
///
/// `q` is `[rows][words]` words, and `k` is `[groups][words]` vectors; `words` is the number of words that hold
/// `head_dim` values. `scores` has `WIDE / LANES` vectors for each row, and the first `groups` vectors of each row are
/// written.
#[inline(always)]
pub(crate) fn scores<S: Simd, P: Product>(
    s: S,
    rows: usize,
    q: &[f32],
    k: &[S::V],
    words: usize,
    groups: usize,
    scores: &mut [S::V],
) {
    s.run(Scores::<S, P> { rows, q, k, words, groups, scores, product: PhantomData });
}

/// The computation of [`scores`] as a kernel, which is compiled once for each processor path and kind of product (`f32`
/// or pairs of `bf16`) instead of at each call site.
struct Scores<'a, S: Simd, P> {
    rows: usize,
    q: &'a [f32],
    k: &'a [S::V],
    words: usize,
    groups: usize,
    scores: &'a mut [S::V],
    product: PhantomData<P>,
}

impl<S: Simd, P: Product> Kernel<S> for Scores<'_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        let Scores { rows, q, k, words, groups, scores, .. } = self;
        if P::TILES {
            let left = Left { words: q, stride: words, rows };
            let right = Right { words: floats(k), stride: S::LANES, step: words * S::LANES };
            let sums = Sums { words: floats_mut(scores), stride: WIDE };
            return P::multiply(true, left, 0..words, right, 0..groups, sums);
        }
        let mut group = 0;
        while group < groups {
            let vectors = tile_vectors::<S>(groups - group);
            let k = &k[group * words..];
            for from in (0..rows).step_by(S::ROWS) {
                let (q, scores) = (&q[from * words..], &mut scores[from * (WIDE / S::LANES) + group..]);
                by_tile!(S, P, S::ROWS.min(rows - from), vectors, score_tile(s, q, k, words, scores));
            }
            group += vectors;
        }
    }
}

#[inline(always)]
fn score_tile<S: Simd, P: Product, const R: usize, const N: usize>(
    s: S,
    q: &[f32],
    k: &[S::V],
    words: usize,
    scores: &mut [S::V],
) {
    let mut queries = [&q[..words]; R];
    for (r, queries) in queries.iter_mut().enumerate() {
        *queries = &q[r * words..][..words];
    }
    let mut keys = [&k[..words]; N];
    for (n, keys) in keys.iter_mut().enumerate() {
        *keys = &k[n * words..][..words];
    }
    let mut acc = [[s.splat(0.0); N]; R];
    for w in 0..words {
        let mut key = [s.splat(0.0); N];
        for n in 0..N {
            key[n] = keys[n][w];
        }
        for r in 0..R {
            let query = s.splat(queries[r][w]);
            for n in 0..N {
                acc[r][n] = P::dot(s, query, key[n], acc[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            scores[r * (WIDE / S::LANES) + n] = acc[r][n];
        }
    }
}

/// Adds weighted values to `acc`, as [`accumulate`] does, but in all columns of one query row, and only for the keys
/// whose bits in `allowed` are set. The values of other keys are not used; they may be infinite or NaN.
#[inline(always)]
pub(crate) fn accumulate_allowed<S: Simd, P: Product>(
    s: S,
    weights: &[S::V],
    mut allowed: u64,
    values: &[f32],
    acc: &mut [S::V],
) {
    let v_width = acc.len() * S::LANES;
    if P::TILES {
        return P::multiply_allowed(floats(weights), allowed, values, floats_mut(acc));
    }
    let mut row = [s.splat(0.0); 1];
    while allowed != 0 {
        let word = allowed.trailing_zeros() as usize / P::TERMS;
        let all = (1 << P::TERMS) - 1;
        let seen = allowed >> (word * P::TERMS) & all;
        allowed &= !(all << (word * P::TERMS));
        let weight = s.splat(floats(weights)[word]);
        for (sum, values) in acc.iter_mut().zip(values[word * v_width..][..v_width].chunks_exact(S::LANES)) {
            row[0] = s.load(values);
            if seen != all {
                keep_half(floats_mut(&mut row), seen);
            }
            *sum = P::dot(s, weight, row[0], *sum);
        }
    }
}

/// Sets one number of each pair in `pairs` to 0: the first number stays if `seen` is 1, otherwise the second.
#[inline(always)]
pub(crate) fn keep_half(pairs: &mut [f32], seen: u64) {
    let mask = if seen == 1 { 0xffff } else { 0xffff_0000 };
    for pair in pairs {
        *pair = f32::from_bits(pair.to_bits() & mask);
    }
}

/// Adds values, multiplied by their weights, to the accumulators of `rows` queries, in the columns `columns`, a range of
/// vectors of each row. Meanwhile, rows of `ahead` are prefetched.
///
/// `weights` has `WIDE` words for each query. For each `j` in `words`, row `j` of `values` (`v_width` words) is
/// multiplied by word `j` of each query's weights. `acc` has `v_width / LANES` vectors for each query. If `first` is true,
/// the sums begin at 0, and the numbers in `acc` are not used.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the operands of a product, the part to compute, and the rows to prefetch
pub(crate) fn accumulate<S: Simd, P: Product>(
    s: S,
    first: bool,
    rows: usize,
    weights: &[S::V],
    words: Range<usize>,
    values: &[f32],
    v_width: usize,
    columns: Range<usize>,
    acc: &mut [S::V],
    ahead: &mut Ahead,
) {
    if P::TILES {
        let group = group::<S, P>() / P::TERMS;
        let words = words.start / group * group..words.end.next_multiple_of(group);
        let left = Left { words: floats(weights), stride: WIDE, rows };
        let right = Right { words: values, stride: v_width, step: S::LANES };
        let sums = Sums { words: floats_mut(acc), stride: v_width };
        return P::multiply(first, left, words, right, columns, sums);
    }
    let weights = &floats(weights).as_chunks::<WIDE>().0[..rows];
    s.run(Accumulate::<S, P> { first, weights, words, values, v_width, columns, acc, ahead, product: PhantomData });
}

/// The computation of [`accumulate`] as a kernel, which is compiled once for each processor path and kind of
/// product (`f32` or pairs of `bf16`) instead of at each call site.
struct Accumulate<'a, S: Simd, P> {
    first: bool,
    weights: &'a [[f32; WIDE]],
    words: Range<usize>,
    values: &'a [f32],
    v_width: usize,
    columns: Range<usize>,
    acc: &'a mut [S::V],
    ahead: &'a mut Ahead,
    product: PhantomData<P>,
}

impl<S: Simd, P: Product> Kernel<S> for Accumulate<'_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        let Accumulate { first, weights, words, values, v_width, columns, acc, ahead, .. } = self;
        let width = v_width / S::LANES;
        let mut column = columns.start;
        while column < columns.end {
            let vectors = tile_vectors::<S>(columns.end - column);
            let values = &values[column * S::LANES..];
            for (i, weights) in weights.chunks(S::ROWS).enumerate() {
                let acc = &mut acc[i * S::ROWS * width + column..];
                by_tile!(
                    S,
                    P,
                    weights.len(),
                    vectors,
                    value_tile(s, first, weights, words.start, words.end, values, v_width, acc, width, ahead)
                );
            }
            column += vectors;
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // the operands of a register tile and their positions
fn value_tile<S: Simd, P: Product, const R: usize, const N: usize>(
    s: S,
    first: bool,
    weights: &[[f32; WIDE]],
    start: usize,
    end: usize,
    values: &[f32],
    v_width: usize,
    acc: &mut [S::V],
    width: usize,
    ahead: &mut Ahead,
) {
    assert!(weights.len() == R && end <= WIDE);
    let mut sum = [[s.splat(0.0); N]; R];
    if !first {
        for r in 0..R {
            for n in 0..N {
                sum[r][n] = acc[r * width + n];
            }
        }
    }
    let mut word = start;
    while word < end {
        // A cache line for each step of the widest register tile, which has 64 numbers in a row; less for shorter steps.
        let (mut address, each, steps) = ahead.take(end - word, N * S::LANES);
        if each == 0 {
            // Without a prefetch: it would cost AVX2 5 % of its speed.
            for word in word..word + steps {
                add_word::<S, P, R, N>(s, weights, word, values, v_width, &mut sum);
            }
        } else {
            for word in word..word + steps {
                s.prefetch(address);
                address = address.wrapping_add(each);
                add_word::<S, P, R, N>(s, weights, word, values, v_width, &mut sum);
            }
        }
        word += steps;
    }
    for r in 0..R {
        for n in 0..N {
            acc[r * width + n] = sum[r][n];
        }
    }
}

/// Adds the products of row `word` of `values` and word `word` of each query's weights to the sums of the queries.
#[inline(always)]
fn add_word<S: Simd, P: Product, const R: usize, const N: usize>(
    s: S,
    weights: &[[f32; WIDE]],
    word: usize,
    values: &[f32],
    v_width: usize,
    sum: &mut [[S::V; N]; R],
) {
    let row = &values[word * v_width..][..N * S::LANES];
    let mut value = [s.splat(0.0); N];
    for n in 0..N {
        value[n] = s.load(&row[n * S::LANES..]);
    }
    for r in 0..R {
        let weight = s.splat(weights[r][word]);
        for n in 0..N {
            sum[r][n] = P::dot(s, weight, value[n], sum[r][n]);
        }
    }
}

/// The number of bytes of a cache's values that are processed at a time: all columns of some rows are added before the
/// next rows are read, which are prefetched meanwhile. Keys are prefetched at this distance too, if it is more than a
/// register tile. With a shorter distance, the products end before the prefetched numbers arrive from main memory.
const NEAR_BYTES: usize = 1 << 13;

/// Calls the function `$f::<S, P, T, R, N>`, in which the constant `R` has the value of the argument `$rows`. `N`, the
/// number of vectors, is `S::VECTORS` or the given literal.
macro_rules! by_rows {
    ($s:ty, $p:ty, $t:ty, $rows:expr, $f:ident $args:tt) => {
        match <$s>::VECTORS {
            4 => by_rows!($s, $p, $t, $rows, 4, $f $args),
            2 => by_rows!($s, $p, $t, $rows, 2, $f $args),
            _ => by_rows!($s, $p, $t, $rows, 1, $f $args),
        }
    };
    ($s:ty, $p:ty, $t:ty, $rows:expr, $n:literal, $f:ident($($arg:expr),*)) => {
        match $rows {
            1 => $f::<$s, $p, $t, 1, $n>($($arg),*),
            2 => $f::<$s, $p, $t, 2, $n>($($arg),*),
            3 => $f::<$s, $p, $t, 3, $n>($($arg),*),
            4 => $f::<$s, $p, $t, 4, $n>($($arg),*),
            5 if <$s>::ROWS >= 5 => $f::<$s, $p, $t, 5, $n>($($arg),*),
            6 if <$s>::ROWS >= 6 => $f::<$s, $p, $t, 6, $n>($($arg),*),
            rows => unreachable!("there is no kernel for a register tile of {rows} rows"),
        }
    };
}

pub(in crate::kernel) use by_rows;

/// Keys or values that one register tile reads directly from the memory of a key-value cache, in the number type of
/// this memory: the numbers of a block, and the numbers after the block.
#[derive(Clone, Copy)]
pub(crate) enum Far<'a> {
    /// Words, each of which is one `f32` number or a pair of `bf16` numbers.
    Words(Stretch<'a, f32>),
    Bf16(Stretch<'a, bf16>),
    F16(Stretch<'a, f16>),
}

/// The keys or values of a block (`now`), and the keys or values after the block in memory (`next`), as numbers of one
/// type.
#[derive(Clone, Copy)]
pub(crate) struct Stretch<'a, T> {
    pub(crate) now: &'a [T],
    /// The numbers after the block, to prefetch; empty if they are unknown.
    pub(crate) next: &'a [T],
}

/// Prefetches a vector of numbers of a key-value cache.
#[inline(always)]
fn prefetch<S: Simd, T: Number>(s: S, numbers: &S::Array<T>) {
    if size_of::<T>() < size_of::<f32>() { s.prefetch_narrow(numbers) } else { s.prefetch(numbers) }
}

impl Far<'_> {
    /// Computes the same results as [`scores`], for one register tile. The first `skip` vectors of keys are left out.
    /// During the computation, keys that follow at a distance are prefetched: those of a later register tile, or those
    /// after the block.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the arguments of `scores`
    pub(crate) fn scores<S: Simd, P: Product>(
        self,
        s: S,
        rows: usize,
        q: &[f32],
        skip: usize,
        words: usize,
        groups: usize,
        into: &mut [S::V],
    ) {
        match self {
            Far::Words(k) => {
                s.run(FarScores::<S, P, f32> { rows, q, k, skip, words, groups, into, product: PhantomData })
            }
            Far::Bf16(k) => {
                s.run(FarScores::<S, P, bf16> { rows, q, k, skip, words, groups, into, product: PhantomData })
            }
            Far::F16(k) => {
                s.run(FarScores::<S, P, f16> { rows, q, k, skip, words, groups, into, product: PhantomData })
            }
        }
    }

    /// Computes the same sums as [`accumulate`], for one register tile. The weighted values of a few keys are
    /// added at a time, while the values of the next keys are prefetched. With the last keys of the block, the values
    /// after the block are prefetched.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // the arguments of `accumulate`
    pub(crate) fn accumulate<S: Simd, P: Product>(
        self,
        s: S,
        rows: usize,
        weights: &[S::V],
        words: Range<usize>,
        v_width: usize,
        columns: Range<usize>,
        acc: &mut [S::V],
    ) {
        let weights = &floats(weights).as_chunks::<WIDE>().0[..rows];
        let product = PhantomData::<P>;
        match self {
            Far::Words(v) => s.run(FarAccumulate { weights, words, v, v_width, columns, acc, product }),
            Far::Bf16(v) => s.run(FarAccumulate { weights, words, v, v_width, columns, acc, product }),
            Far::F16(v) => s.run(FarAccumulate { weights, words, v, v_width, columns, acc, product }),
        }
    }
}

/// The computation of [`Far::scores`] as a kernel, which is compiled once for each processor path, kind of product
/// (`f32` or pairs of `bf16`) and number type instead of at each call site.
struct FarScores<'a, S: Simd, P, T> {
    rows: usize,
    q: &'a [f32],
    k: Stretch<'a, T>,
    skip: usize,
    words: usize,
    groups: usize,
    into: &'a mut [S::V],
    product: PhantomData<P>,
}

impl<S: Simd, P: Product, T: Number> Kernel<S> for FarScores<'_, S, P, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let FarScores { rows, q, k, skip, words, groups, into, .. } = self;
        let [now, next] = [k.now, k.next].map(S::Array::<T>::chunks);
        let now = &now[skip..];
        let whole = groups - groups % S::VECTORS;
        let tile = S::VECTORS * words;
        // The keys after the block may be fewer than that.
        let tiles = (NEAR_BYTES / (tile * S::LANES * size_of::<T>())).min(next.len() / tile).max(1);
        let distance = S::VECTORS * tiles;
        for group in (0..whole).step_by(S::VECTORS) {
            let keys = &now[group * words..];
            let later = group + distance;
            let ahead = match later.checked_sub(whole) {
                None => &now[later * words..],
                Some(after) => next.get(after * words..).unwrap_or_default(),
            };
            // If no keys follow, the current keys are prefetched again.
            let ahead = if ahead.len() < tile { keys } else { ahead };
            by_rows!(S, P, T, rows, far_score_tile(s, q, keys, ahead, words, &mut into[group..]));
        }
        for group in whole..groups {
            let keys = &now[group * words..];
            by_rows!(S, P, T, rows, 1, far_score_tile(s, q, keys, keys, words, &mut into[group..]));
        }
    }
}

#[inline(always)]
fn far_score_tile<S: Simd, P: Product, T: Number, const R: usize, const N: usize>(
    s: S,
    q: &[f32],
    k: &[S::Array<T>],
    ahead: &[S::Array<T>],
    words: usize,
    scores: &mut [S::V],
) {
    let mut queries = [&q[..words]; R];
    for (r, queries) in queries.iter_mut().enumerate() {
        *queries = &q[r * words..][..words];
    }
    let now: [&[S::Array<T>]; N] = std::array::from_fn(|n| &k[n * words..][..words]);
    // In the order of memory, so that the processor's own prefetching can follow.
    let ahead = &ahead.as_chunks::<N>().0[..words];
    let mut acc = [[s.splat(0.0); N]; R];
    for w in 0..words {
        for line in &ahead[w] {
            prefetch::<S, T>(s, line);
        }
        let key: [S::V; N] = std::array::from_fn(|n| T::widen(s, &now[n][w]));
        for r in 0..R {
            let query = s.splat(queries[r][w]);
            for n in 0..N {
                acc[r][n] = P::dot(s, query, key[n], acc[r][n]);
            }
        }
    }
    for r in 0..R {
        scores[r * (WIDE / S::LANES)..][..N].copy_from_slice(&acc[r]);
    }
}

/// The computation of [`Far::accumulate`] as a kernel, which is compiled once for each processor path, kind of product
/// (`f32` or pairs of `bf16`) and number type instead of at each call site.
struct FarAccumulate<'a, S: Simd, P, T> {
    weights: &'a [[f32; WIDE]],
    words: Range<usize>,
    v: Stretch<'a, T>,
    v_width: usize,
    columns: Range<usize>,
    acc: &'a mut [S::V],
    product: PhantomData<P>,
}

impl<S: Simd, P: Product, T: Number> Kernel<S> for FarAccumulate<'_, S, P, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let FarAccumulate { weights, words, v, v_width, columns, acc, .. } = self;
        let width = v_width / S::LANES;
        let [values, next] = [v.now, v.next].map(S::Array::<T>::chunks);
        let near = (NEAR_BYTES / size_of::<T>() / v_width).clamp(4, BLOCK);
        let all = columns.len() == width;
        let whole = columns.end - columns.len() % S::VECTORS;
        for start in words.clone().step_by(near) {
            let now = start..words.end.min(start + near);
            let ahead = if now.end + now.len() <= words.end { &values[now.end * width..] } else { next };
            let ahead = if ahead.len() < now.len() * width { &values[now.start * width..] } else { ahead };
            for column in (columns.start..whole).step_by(S::VECTORS) {
                // If all columns are read, the next values are prefetched in the order of memory.
                let (first, step) = if all { (column * now.len(), S::VECTORS) } else { (column, width) };
                let (values, ahead) = (&values[column..], &ahead[first..]);
                let (now, acc) = (now.clone(), &mut acc[column..]);
                by_rows!(S, P, T, weights.len(), far_value_tile(s, weights, now, values, width, ahead, step, acc));
            }
            for column in whole..columns.end {
                let (values, now, acc) = (&values[column..], now.clone(), &mut acc[column..]);
                let ahead = &values[now.start * width..];
                by_rows!(S, P, T, weights.len(), 1, far_value_tile(s, weights, now, values, width, ahead, width, acc));
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // the operands of a register tile, their positions, and the values to prefetch
fn far_value_tile<S: Simd, P: Product, T: Number, const R: usize, const N: usize>(
    s: S,
    weights: &[[f32; WIDE]],
    words: Range<usize>,
    values: &[S::Array<T>],
    width: usize,
    ahead: &[S::Array<T>],
    step: usize,
    acc: &mut [S::V],
) {
    assert!(weights.len() == R && words.end <= WIDE);
    let mut sum: [[S::V; N]; R] = std::array::from_fn(|r| std::array::from_fn(|n| acc[r * width + n]));
    for word in words.clone() {
        for line in &ahead[(word - words.start) * step..][..N] {
            prefetch::<S, T>(s, line);
        }
        let row = &values[word * width..][..N];
        let value: [S::V; N] = std::array::from_fn(|n| T::widen(s, &row[n]));
        for r in 0..R {
            let weight = s.splat(weights[r][word]);
            for n in 0..N {
                sum[r][n] = P::dot(s, weight, value[n], sum[r][n]);
            }
        }
    }
    for r in 0..R {
        acc[r * width..][..N].copy_from_slice(&sum[r]);
    }
}
