//! One stage of a forward pass with the tile unit: while AVX-512 turns the scores of one block of keys into weights, the tile
//! unit computes the scores of the next block, and then adds the weighted values of the block before.
//!
//! A stage has up to 32 query rows and 64 keys. A weight is the power of two of a score in fixed point: the scores are
//! multiplied by 512, the fraction is corrected by a table of 64 numbers, and a quarter of the 16-bit result, rounded, is the
//! `bf16` number, but for the exponent. The digits of a weight depend on the score alone, and the maximum of the row changes only its exponent.
//! The sum of the weights of a row is one more column of the product, with values of 1: a row that reads one key returns its
//! value, and the sum has the order of the other columns.

use super::stage::{KEYS, ROWS, Scores, Stage, Values, WORDS, Weights};
use crate::processor::tiles::{SIDE, assert_configured, dot, load, load_far, store, zero};
use std::arch::x86_64::*;

/// For each 1/64 of an octave of a score in fixed point, the difference to the power of two, in units of 1/512, plus
/// [`BELOW`] and 2, by which the division by 4 rounds. The test below computes these numbers.
static CORRECTIONS: [u8; 64] = [
    36, 34, 32, 30, 28, 26, 25, 23, 22, 20, 19, 17, 16, 15, 14, 13, 12, 11, 10, 9, 9, 8, 8, 7, 7, 7, 7, 6, 6, 7, 7, 7,
    7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 21, 23, 24, 26, 28, 31, 33, 35, 38, 40, 43, 46, 49, 49, 47, 45, 42,
    40, 38,
];

/// The exponent of a weight in fixed point is 64 less than that of the `bf16` number.
const EXPONENT: i16 = 64 << 7;

/// A tile of pairs of ones.
#[repr(align(64))]
struct Ones([f32; SIDE * SIDE]);
static ONES: Ones = Ones([f32::from_bits(0x3f80_3f80); SIDE * SIDE]);

/// The sums of one or two tiles that are in registers and not stored yet.
#[derive(Clone, Copy)]
struct Pending {
    /// The place of the sums of the first tile of rows, or null if there are none.
    first: *mut f32,
    /// The place of the sums of the second tile of rows.
    second: *mut f32,
    stride: usize,
}

impl Pending {
    #[inline(always)]
    fn new(first: *mut f32, stride: usize) -> Self {
        Pending { first: scalar(first), second: scalar(first.wrapping_add(SIDE * stride)), stride }
    }
}

/// Returns `pointer`, in a general register. Otherwise the compiler computes pairs of pointers in vectors, and the products
/// wait for the instructions that take them apart.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // There is no instruction.
fn scalar<T>(pointer: *mut T) -> *mut T {
    let mut pointer = pointer;
    // SAFETY: there is no instruction.
    unsafe { std::arch::asm!("/* {} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}

/// A column of products: one or two tiles of rows, and one tile of columns.
#[derive(Clone, Copy)]
struct Column {
    right: *const f32,
    right_stride: usize,
    /// The number of words from one right tile to the next along the terms.
    right_step: usize,
    /// The number of right tiles along the terms.
    tiles: usize,
    sums: Pending,
    /// Whether the sums begin at 0.
    first: bool,
}

/// The left operand of all columns. If `HELD`, its tiles are in the registers 0 and 2, and, if `TWO`, those of the second tile
/// of rows in 1 and 3.
#[derive(Clone, Copy)]
struct Left<const TWO: bool, const HELD: bool> {
    from: *const f32,
    stride: usize,
}

/// The rows whose scores become weights during the products of a stage.
struct Rows<const MASKED: bool> {
    /// The scores, `[ROWS][KEYS]`.
    scores: *mut f32,
    /// The weights, `[ROWS][WORDS]`.
    into: *mut f32,
    /// The offset of the scores of each row.
    offsets: *mut f32,
    /// The mask bits of each row; null if all cells are allowed.
    words: *mut u64,
    rows: usize,
    done: usize,
    /// The number of rows for each step of products, in units of 2^-16.
    rate: usize,
    /// The number of rows whose turn it is, in units of 2^-16.
    turn: usize,
    scale: __m512,
    large: __m512i,
    table: __m512i,
    order: __m512i,
}

impl<const MASKED: bool> Rows<MASKED> {
    /// Takes the rows of a stage that has `steps` products.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vbmi,avx2,fma")]
    fn new(rows: usize, weights: Option<Weights<'_>>, steps: usize) -> Self {
        assert!(rows <= ROWS);
        let nothing = std::ptr::null_mut::<f32>();
        let (rows, scores, into, offsets, words, scale) = match weights {
            None => (0, nothing, nothing, nothing, std::ptr::null_mut(), 0.0),
            Some(Weights { scores, into, words, scale, offsets }) => {
                assert!(words.is_some() == MASKED);
                let words = words.map_or(std::ptr::null(), |words| words.as_ptr());
                let offsets = offsets.as_ptr().cast_mut();
                (rows, scores.as_ptr().cast_mut(), into.as_mut_ptr(), offsets, words.cast_mut(), scale)
            }
        };
        Rows {
            scores: scalar(scores),
            into: scalar(into),
            offsets: scalar(offsets),
            words: scalar(words),
            rows,
            done: 0,
            rate: if steps == 0 { 0 } else { (rows << 16).div_ceil(steps) },
            turn: 0,
            scale: _mm512_set1_ps(scale),
            large: _mm512_setzero_si512(),
            // SAFETY: the table has 64 bytes.
            table: unsafe { _mm512_loadu_si512(CORRECTIONS.as_ptr().cast()) },
            order: _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
        }
    }

    /// Turns the scores of the rows into weights whose turn is before the next step of products.
    #[inline(always)]
    fn step(&mut self) {
        self.turn += self.rate;
        self.until(self.turn >> 16);
    }

    /// Turns the scores of all rows that are left into weights.
    #[inline(always)]
    fn finish(&mut self) {
        self.until(self.rows);
    }

    #[inline(always)]
    fn until(&mut self, row: usize) {
        let row = self.rows.min(row);
        while self.done < row {
            // SAFETY: only functions with these features call this, and the row is one of the stage.
            unsafe { self.row(self.done) };
            self.done += 1;
        }
    }

    /// Turns the scores of row `r` into weights.
    ///
    /// # Safety
    ///
    /// `r` must be below `rows`, and the processor must have the instructions.
    #[inline(always)] // A call would pass all vectors through memory.
    unsafe fn row(&mut self, r: usize) {
        // SAFETY: `new` took arrays with `ROWS` rows, and the caller gives one of them: the row has four vectors of scores and
        // two of weights.
        unsafe {
            let offset = _mm512_set1_ps(*self.offsets.add(r));
            let bits = if MASKED { *self.words.add(r) } else { u64::MAX };
            let scores = self.scores.add(r * KEYS);
            for half in 0..2 {
                let first = fixed(scores.add(32 * half), self.scale, offset);
                let second = fixed(scores.add(32 * half + 16), self.scale, offset);
                // Negative numbers, and what is no number, become 0. A weight of 0 has no power.
                let mut numbers = _mm512_permutexvar_epi64(self.order, _mm512_packus_epi32(first, second));
                let bits = (bits >> (32 * half)) as u32;
                if MASKED {
                    numbers = _mm512_maskz_mov_epi16(bits, numbers);
                }
                self.large = _mm512_or_si512(self.large, numbers);
                let step = _mm512_srli_epi16::<3>(numbers);
                let correction = _mm512_maskz_permutexvar_epi8(0x5555_5555_5555_5555, step, self.table);
                let power = _mm512_srli_epi16::<2>(_mm512_add_epi16(numbers, correction));
                let seen = _mm512_test_epi16_mask(numbers, numbers);
                let weight = _mm512_maskz_add_epi16(seen, power, _mm512_set1_epi16(EXPONENT));
                _mm512_storeu_si512(self.into.add(r * WORDS + 16 * half).cast(), weight);
            }
        }
    }
}

/// Returns sixteen scores in fixed point. Both steps round down, so the result is exact in the offset: its digits depend on the
/// score alone.
///
/// # Safety
///
/// Sixteen scores must be at the pointer, and the processor must have the instructions.
#[inline(always)]
unsafe fn fixed(scores: *const f32, scale: __m512, offset: __m512) -> __m512i {
    const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    // SAFETY: see the contract of this function.
    unsafe { _mm512_cvt_roundps_epi32::<DOWN>(_mm512_fmadd_round_ps::<DOWN>(_mm512_loadu_ps(scores), scale, offset)) }
}

/// Computes a stage. Returns whether a weight is 2 or more, so that the maxima of some rows must rise and the weights be
/// computed again. The thread must have configured the tile unit ([`Configured`](crate::processor::tiles::Configured)).
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vbmi,avx2,fma")]
pub(crate) fn compute(stage: Stage<'_>) -> bool {
    let two =
        stage.next.as_ref().map_or(0, |next| next.rows).max(stage.before.as_ref().map_or(0, |before| before.rows))
            > SIDE;
    let masked = stage.now.as_ref().is_some_and(|now| now.words.is_some());
    match (masked, two, stage.head_dim()) {
        (true, true, Some(64)) => overlap::<true, true, 64>(stage),
        (false, true, Some(64)) => overlap::<false, true, 64>(stage),
        (true, true, Some(128)) => overlap::<true, true, 128>(stage),
        (false, true, Some(128)) => overlap::<false, true, 128>(stage),
        (true, true, _) => overlap::<true, true, 0>(stage),
        (true, false, _) => overlap::<true, false, 0>(stage),
        (false, true, _) => overlap::<false, true, 0>(stage),
        (false, false, _) => overlap::<false, false, 0>(stage),
    }
}

/// Computes a stage. With a `HEAD_DIM` above 0, the compiler knows all sizes of the stage.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vbmi,avx2,fma")]
fn overlap<const MASKED: bool, const TWO: bool, const HEAD_DIM: usize>(stage: Stage<'_>) -> bool {
    assert_configured();
    let Stage { rows, next, now, before } = if HEAD_DIM > 0 { stage.of_head_dim::<HEAD_DIM>() } else { stage };
    let score_steps = next.as_ref().map_or(0, |next| next.tiles * next.words / SIDE);
    let value_steps = before
        .as_ref()
        .map_or(0, |before| (if before.values.is_some() { before.v_width / SIDE } else { 0 } + 1) * before.tiles);
    let steps = (score_steps + value_steps) * if TWO { 2 } else { 1 };
    let mut rows = Rows::<MASKED>::new(rows, now, steps);
    let mut pending = Pending { first: std::ptr::null_mut(), second: std::ptr::null_mut(), stride: 0 };
    if let Some(next) = next {
        // SAFETY: the unit is configured.
        unsafe {
            match next.words == 2 * SIDE {
                true => scores::<MASKED, TWO, true>(next, &mut pending, &mut rows),
                false => scores::<MASKED, TWO, false>(next, &mut pending, &mut rows),
            }
        }
    }
    match before {
        // SAFETY: the unit is configured.
        Some(before) => unsafe { values::<MASKED, TWO>(before, &mut pending, &mut rows) },
        // SAFETY: the sums of the last tile of scores are in these registers.
        None => unsafe { store_pending::<5, 6, TWO>(&pending) },
    }
    rows.finish();
    _mm512_movepi16_mask(rows.large) != 0
}

/// Computes the scores of a stage. If there are four tiles of keys, the sums of the last one stay in the registers 5 and 6.
///
/// # Safety
///
/// The thread must have configured the unit.
#[inline(always)]
unsafe fn scores<const MASKED: bool, const TWO: bool, const HELD: bool>(
    scores: Scores<'_>,
    pending: &mut Pending,
    rows: &mut Rows<MASKED>,
) {
    let Scores { rows: count, queries, keys, words, tiles, into } = scores;
    let tiles_of_rows = if TWO { 2 } else { 1 };
    assert!(count <= SIDE * tiles_of_rows && SIDE * tiles_of_rows * words <= queries.len());
    assert!(tiles * words * SIDE <= keys.len() && [2, 4].contains(&tiles) && words.is_multiple_of(SIDE));
    let left = Left::<TWO, HELD> { from: queries.as_ptr(), stride: words };
    let (keys, into) = (keys.as_ptr(), into.as_mut_ptr());
    let column = |tile: usize| Column {
        right: keys.wrapping_add(tile * words * SIDE),
        right_stride: SIDE,
        right_step: SIDE * SIDE,
        tiles: words / SIDE,
        sums: Pending::new(into.wrapping_add(tile * SIDE), KEYS),
        first: true,
    };
    // SAFETY: the assertions keep all tiles in the memory of queries, keys and scores; the caller configured the unit.
    unsafe {
        if HELD {
            left.hold();
        }
        left.add::<5, 6, 7, MASKED>(column(0), pending, rows);
        left.add::<7, 5, 6, MASKED>(column(1), pending, rows);
        if tiles == 2 {
            store_pending::<7, 5, TWO>(pending);
            pending.first = std::ptr::null_mut();
            return;
        }
        left.add::<6, 7, 5, MASKED>(column(2), pending, rows);
        left.add::<5, 6, 7, MASKED>(column(3), pending, rows);
    }
}

/// Adds the weighted values of a stage. The pending sums are in the registers 5 and 6.
///
/// # Safety
///
/// The thread must have configured the unit.
#[inline(always)]
unsafe fn values<const MASKED: bool, const TWO: bool>(
    values: Values<'_>,
    pending: &mut Pending,
    rows: &mut Rows<MASKED>,
) {
    let Values { rows: count, weights, values, v_width, tiles, sums, weight_sums, first } = values;
    let tiles_of_rows = if TWO { 2 } else { 1 };
    assert!(count <= SIDE * tiles_of_rows && SIDE * tiles_of_rows * v_width <= sums.len());
    assert!(tiles <= WORDS / SIDE && v_width.is_multiple_of(SIDE));
    assert!(values.is_none_or(|values| SIDE * tiles * v_width <= values.len()));
    let (sums, weight_sums) = (sums.as_mut_ptr(), weight_sums.as_mut_ptr());
    let columns = if values.is_some() { v_width / SIDE } else { 0 };
    let column = |column: usize| match values {
        Some(values) if column < columns => Column {
            right: values.as_ptr().wrapping_add(column * SIDE),
            right_stride: v_width,
            right_step: SIDE * v_width,
            tiles,
            sums: Pending::new(sums.wrapping_add(column * SIDE), v_width),
            first,
        },
        _ => Column {
            right: ONES.0.as_ptr(),
            right_stride: SIDE,
            right_step: 0,
            tiles,
            sums: Pending::new(weight_sums, SIDE),
            first,
        },
    };
    let left = Left::<TWO, true> { from: weights.as_ptr(), stride: WORDS };
    // SAFETY: the assertions keep all tiles in the memory of weights, values and sums; the caller configured the unit.
    unsafe {
        left.hold();
        // Without a loop, the compiler knows which row becomes weights beside which product.
        if columns == 4 || columns == 8 {
            left.add::<7, 5, 6, MASKED>(column(0), pending, rows);
            left.add::<6, 7, 5, MASKED>(column(1), pending, rows);
            left.add::<5, 6, 7, MASKED>(column(2), pending, rows);
            left.add::<7, 5, 6, MASKED>(column(3), pending, rows);
            left.add::<6, 7, 5, MASKED>(column(4), pending, rows);
            if columns == 4 {
                return store_pending::<6, 7, TWO>(pending);
            }
            left.add::<5, 6, 7, MASKED>(column(5), pending, rows);
            left.add::<7, 5, 6, MASKED>(column(6), pending, rows);
            left.add::<6, 7, 5, MASKED>(column(7), pending, rows);
            left.add::<5, 6, 7, MASKED>(column(8), pending, rows);
            return store_pending::<5, 6, TWO>(pending);
        }
        let mut done = 0;
        loop {
            left.add::<7, 5, 6, MASKED>(column(done), pending, rows);
            if done == columns {
                return store_pending::<7, 5, TWO>(pending);
            }
            left.add::<6, 7, 5, MASKED>(column(done + 1), pending, rows);
            if done + 1 == columns {
                return store_pending::<6, 7, TWO>(pending);
            }
            left.add::<5, 6, 7, MASKED>(column(done + 2), pending, rows);
            if done + 2 == columns {
                return store_pending::<5, 6, TWO>(pending);
            }
            done += 3;
        }
    }
}

/// Stores the pending sums, which are in the registers `A` and `B`.
///
/// # Safety
///
/// The sums must be whole tiles in memory that may be written, and the unit must be configured.
#[inline(always)]
unsafe fn store_pending<const A: u8, const B: u8, const TWO: bool>(pending: &Pending) {
    if pending.first.is_null() {
        return;
    }
    // SAFETY: see the contract of this function.
    unsafe {
        store::<A>(pending.first, pending.stride);
        if TWO {
            store::<B>(pending.second, pending.stride);
        }
    }
}

impl<const TWO: bool, const HELD: bool> Left<TWO, HELD> {
    /// Loads two tiles of words of each tile of rows into the registers 0 to 3.
    ///
    /// # Safety
    ///
    /// The tiles must be in memory, and the unit must be configured.
    #[inline(always)]
    unsafe fn hold(self) {
        // SAFETY: see the contract of this function.
        unsafe {
            load::<0>(self.from, self.stride);
            load::<2>(self.from.wrapping_add(SIDE), self.stride);
            if TWO {
                load::<1>(self.from.wrapping_add(SIDE * self.stride), self.stride);
                load::<3>(self.from.wrapping_add(SIDE * self.stride + SIDE), self.stride);
            }
        }
    }

    /// Computes a column in the registers `A` and `B`. Three registers take the sums alternately: those of the column before are in
    /// `B` and `C`, and are stored two products after their last one, because a store that waits for its tile would hold up
    /// everything behind it.
    ///
    /// # Safety
    ///
    /// All tiles must be inside the memory of the operands, nothing else may use the sums, and the unit must be configured.
    #[inline(always)]
    unsafe fn add<const A: u8, const B: u8, const C: u8, const MASKED: bool>(
        self,
        column: Column,
        pending: &mut Pending,
        rows: &mut Rows<MASKED>,
    ) {
        let Column { right, right_stride, right_step, tiles, sums, first } = column;
        let right = scalar(right.cast_mut());
        let below = sums.second;
        // SAFETY: see the contract of this function.
        unsafe {
            if first {
                zero::<A>()
            } else {
                load::<A>(sums.first, sums.stride)
            }
            self.dot_first::<A>(right, right_stride, 0);
            rows.step();
            if !pending.first.is_null() {
                store::<B>(pending.first, pending.stride);
            }
            if TWO {
                if first {
                    zero::<B>()
                } else {
                    load::<B>(below, sums.stride)
                }
                self.dot_second::<B>(0);
                rows.step();
            }
            for tile in 1..tiles {
                self.dot_first::<A>(right.wrapping_add(tile * right_step), right_stride, tile);
                rows.step();
                if TWO {
                    self.dot_second::<B>(tile);
                    if tile + 1 == tiles && !pending.first.is_null() {
                        store::<C>(pending.second, pending.stride);
                    }
                    rows.step();
                }
            }
            if TWO && tiles == 1 && !pending.first.is_null() {
                store::<C>(pending.second, pending.stride);
            }
        }
        *pending = sums;
    }

    /// Loads a right tile into the register 4, and adds its product with the first tile of rows.
    #[inline(always)]
    unsafe fn dot_first<const A: u8>(self, right: *const f32, stride: usize, tile: usize) {
        // SAFETY: see the contract of `add`.
        unsafe {
            load_far::<4>(right, stride);
            match (HELD, tile) {
                (true, 0) => dot::<A, 0, 4>(),
                (true, _) => dot::<A, 2, 4>(),
                _ => {
                    load::<0>(self.from.wrapping_add(tile * SIDE), self.stride);
                    dot::<A, 0, 4>();
                }
            }
        }
    }

    /// Adds the product of the right tile in the register 4 with the second tile of rows.
    #[inline(always)]
    unsafe fn dot_second<const B: u8>(self, tile: usize) {
        // SAFETY: see the contract of `add`.
        unsafe {
            match (HELD, tile) {
                (true, 0) => dot::<B, 1, 4>(),
                (true, _) => dot::<B, 3, 4>(),
                _ => {
                    load::<1>(self.from.wrapping_add(SIDE * self.stride + tile * SIDE), self.stride);
                    dot::<B, 1, 4>();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::BELOW;
    use super::*;

    #[test]
    fn corrections_are_those_of_powers_of_two() {
        for (i, correction) in CORRECTIONS.iter().enumerate() {
            let difference = |step: usize| {
                let number = (8 * i + step) as f64;
                let octaves = (number + f64::from(BELOW) + 0.5) / 512.0;
                512.0 * (octaves.floor() + octaves.fract().exp2() - 1.0) - number
            };
            let mean = (0..8).map(difference).sum::<f64>() / 8.0;
            assert_eq!(f64::from(*correction), mean.round() + 2.0, "{i}");
        }
    }
}
