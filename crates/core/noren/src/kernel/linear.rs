//! Products of rows with packed weights: the layout of the weights, and the kernel for a few rows.
//!
//! The kernel holds the sums of some rows and some outputs in registers and adds the products of one *word* (an `f32`
//! number, a `bf16` number, or a pair of `bf16` numbers) at a time, in the order of the inputs. The bits of a sum therefore do not depend
//! on the size of the register tile or on the other rows.

use super::arrays::lines::{Lines, large_pages};
use super::dispatch::Task;
use super::math::micro::by_rows;
use super::simd::{Chunk, Kernel, Number, Product, Simd, Single, floats, floats_mut, pair_up, zeroed};
use crate::processor::tiles::{Begin, Near, Panel, SIDE, Target};
use crate::{Element, Isa};
use half::bf16;
use rayon::prelude::*;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The number of outputs in a group. The sums of a block of rows for a group stay in the processor's cache until they
/// are finished.
pub(crate) const GROUP: usize = 64;

/// The maximum number of words of a panel that are multiplied with all rows of a block, before the next words of the
/// panel. These words stay in the processor's cache meanwhile.
const DEPTH: usize = 192;

/// The maximum number of rows for which it is best to read each weight once.
const FEW: usize = 96;

/// The number of bytes of rows of `x`, as `bf16`, that a thread multiplies with all weights, if the weights are multiplied in
/// tiles. They stay in the second-level cache.
const LEFT: usize = 1 << 19;

/// The number of bytes of weights in tiles that stay in the second-level cache. Then few rows at a time are multiplied with all of
/// them, and otherwise each panel of the weights with all rows of a block.
const RIGHT: usize = 5 << 18;

/// The maximum number of words of a panel of tiles that stay in the first-level cache while they are multiplied with all rows of a
/// block, and the number of words at a time, if there are more.
const NEAR_PANEL: (usize, usize) = (384, 256);

/// The number of sums of two tiles of rows and a group.
const SUMS: usize = 2 * SIDE * GROUP;

/// The maximum number of words for which two tiles of rows stay in the first-level cache.
const NEAR_ROWS: usize = 256;

/// The number of outputs of a panel of tiles.
const PANEL: usize = 2 * SIDE;

/// The type of the numbers of a packed weight.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    F32,
    /// `bf16` numbers that are widened to `f32` when they are read.
    Bf16,
    /// Words, each of which is a pair of `bf16` numbers: the weights of two consecutive inputs. With an odd number of
    /// inputs, the last pair has a 0.
    Pairs,
    /// Pairs in whole tiles of words; the last words of a tile may be 0. A panel has the outputs of two tiles.
    Tiles,
}

/// The numbers of a packed weight `[outputs, inputs]`, in groups of [`GROUP`] consecutive outputs. A group consists of
/// panels, and a panel has as many outputs as the register tile of the processor path has columns. A panel has the first
/// word of each of its outputs, then the second word of each output, and so on, because `x W^T` is computed in this
/// order. Outputs after the last one have the weight 0.
pub(crate) struct Panels {
    numbers: Numbers,
    lines: Lines,
}

impl Panels {
    /// Packs the rows of `weight` for a processor path: as `f32`, or rounded to `bf16` if `round` is true. Returns
    /// `None` if there is not enough memory.
    pub(crate) fn pack(weight: &[f32], inputs: usize, round: bool, isa: Isa) -> Option<Panels> {
        let mut packed = None;
        isa.run(Pack { weight, inputs, round, into: &mut packed });
        packed
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.lines.values::<f32>())
    }

    /// Returns whether `threads` threads should divide `rows` rows among them, instead of the outputs.
    pub(crate) fn many(&self, rows: usize, threads: usize) -> bool {
        let tiles = matches!(self.numbers, Numbers::Tiles);
        rows > FEW || tiles && threads > 1 && rows >= 2 * SIDE * threads
    }

    /// Returns the number of rows of a register tile, or a multiple of it, and the maximum number of rows that a thread
    /// should compute at a time, with this weight and then with weights of `others` bytes.
    pub(crate) fn rows(&self, inputs: usize, others: usize) -> (usize, usize) {
        match self.numbers {
            Numbers::Tiles if self.bytes() + others <= RIGHT => (2 * SIDE, 4 * SIDE),
            Numbers::Tiles => (2 * SIDE, (LEFT / (2 * inputs) / (2 * SIDE) * 2 * SIDE).clamp(FEW, 256)),
            _ => (6, FEW),
        }
    }
}

impl fmt::Debug for Panels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panels").field("numbers", &self.numbers).field("bytes", &self.bytes()).finish()
    }
}

/// The work that packs a weight for a processor path.
struct Pack<'a> {
    weight: &'a [f32],
    inputs: usize,
    round: bool,
    into: &'a mut Option<Panels>,
}

impl Task for Pack<'_> {
    const TILES: bool = true;

    fn pairs(&self) -> bool {
        self.round
    }

    fn run<S: Simd>(self, _: S) {
        let Pack { weight, inputs, round, into } = self;
        let outputs = weight.len() / inputs;
        let at = |output: usize, input: usize| match output < outputs && input < inputs {
            true => weight[output * inputs + input],
            false => 0.0,
        };
        let tiles = round && S::Product::TILES;
        let shape = [outputs, inputs, if tiles { PANEL } else { S::VECTORS * S::LANES }];
        let (numbers, lines) = match (round, S::Product::TERMS) {
            (false, _) => (Numbers::F32, arrange(shape, at)),
            (true, 1) => (Numbers::Bf16, arrange(shape, |output, input| bf16::from_f32(at(output, input)))),
            (true, _) => {
                let pair = |output, word| pair_up(at(output, 2 * word), at(output, 2 * word + 1));
                let numbers = if tiles { Numbers::Tiles } else { Numbers::Pairs };
                (numbers, arrange([outputs, S::Product::words(inputs), shape[2]], pair))
            }
        };
        *into = lines.map(|lines| Panels { numbers, lines });
    }
}

/// Returns the words of all outputs in the order of [`Panels`], or `None` if there is not enough memory. The shape is
/// `[outputs, words of an output, outputs of a panel]`, and `word` returns a word by the index of its output and its index
/// in the output's row.
fn arrange<T: Element>([outputs, words, width]: [usize; 3], word: impl Fn(usize, usize) -> T + Sync) -> Option<Lines> {
    if outputs == 0 {
        return Lines::zeroed(0);
    }
    let bytes = outputs.div_ceil(GROUP).checked_mul(GROUP * size_of::<T>())?.checked_mul(words)?;
    let mut lines = Lines::zeroed(bytes / Lines::LINE)?;
    large_pages(lines.values_mut::<T>());
    // Panels without outputs are left as they are allocated, filled with zeros.
    let panels = lines.values_mut::<T>().par_chunks_exact_mut(width * words).take(outputs.div_ceil(width));
    panels.enumerate().for_each(|(panel, numbers)| {
        for (w, numbers) in numbers.chunks_exact_mut(width).enumerate() {
            numbers.iter_mut().enumerate().for_each(|(i, number)| *number = word(panel * width + i, w));
        }
    });
    Some(lines)
}

/// The product of a few rows with some groups of a packed weight, as work for one thread.
pub(crate) struct Rows<'a> {
    pub(crate) panels: &'a Panels,
    /// The number of numbers in a row of `x`.
    pub(crate) inputs: usize,
    /// The number of outputs of the weight.
    pub(crate) outputs: usize,
    /// The rows `[rows, inputs]`.
    pub(crate) x: &'a [f32],
    /// The values with which the sums of the outputs begin; `None` for 0.
    pub(crate) bias: Option<&'a [f32]>,
    /// The groups of outputs to compute.
    pub(crate) groups: Range<usize>,
    /// The memory for the result: for each row, the outputs of `groups`.
    pub(crate) out: &'a mut [MaybeUninit<f32>],
    /// The function that is called with the index of a row, the index of an output, and the sums of this row for
    /// consecutive outputs from this one on, if there is one. It may change the sums, which are written to `out` afterwards.
    pub(crate) finish: Option<Finish<'a>>,
}

/// The function of [`Rows::finish`].
pub(crate) type Finish<'a> = &'a mut dyn FnMut(usize, usize, &mut [f32]);

impl Task for Rows<'_> {
    const TILES: bool = true;

    fn pairs(&self) -> bool {
        matches!(self.panels.numbers, Numbers::Pairs | Numbers::Tiles)
    }

    fn run<S: Simd>(self, s: S) {
        let (x, inputs) = (self.x, self.inputs);
        let panels = &self.panels.lines;
        match self.panels.numbers {
            Numbers::F32 => s.run(Multiply::<'_, '_, Single, f32>::new(self, panels.values(), x, inputs)),
            Numbers::Bf16 => s.run(Multiply::<'_, '_, Single, bf16>::new(self, panels.values(), x, inputs)),
            Numbers::Pairs => {
                let words = inputs.div_ceil(2);
                let len = x.len() / inputs * words;
                let mut pairs = zeroed::<S::V>(len.div_ceil(S::LANES));
                s.run(PairUp { x, inputs, words, tiles: false, into: floats_mut(&mut pairs) });
                s.run(Multiply::<'_, '_, S::Product, f32>::new(self, panels.values(), &floats(&pairs)[..len], words));
            }
            Numbers::Tiles => by_tiles(s, self),
        }
    }
}

/// The conversion of rows of `f32` to rows of pairs of `bf16`, as a kernel.
struct PairUp<'a> {
    x: &'a [f32],
    inputs: usize,
    /// The number of words of a row.
    words: usize,
    /// Whether rows are written as tiles, `[tiles of 16 rows][tiles of 16 words][16][16]`, instead of one after another.
    tiles: bool,
    into: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for PairUp<'_> {
    #[inline(always)]
    fn run(self, s: S) {
        let PairUp { x, inputs, words, tiles, into } = self;
        for (row, x) in x.chunks_exact(inputs).enumerate() {
            // The place of the word `w` of the row, of `LANES` neighbouring words of which the first is `w`.
            let at = |w: usize| match tiles {
                true => (row / SIDE * words + w / SIDE * SIDE) * SIDE + row % SIDE * SIDE + w % SIDE,
                false => row * words + w,
            };
            let done = inputs / (2 * S::LANES) * S::LANES;
            for from in (0..done).step_by(S::LANES) {
                let pairs = s.pair_neighbours(s.load(&x[2 * from..]), s.load(&x[2 * from + S::LANES..]));
                into[at(from)..][..S::LANES].copy_from_slice(floats(std::slice::from_ref(&pairs)));
            }
            let number = |i: usize| x.get(i).copied().unwrap_or(0.0);
            for word in done..words {
                into[at(word)] = pair_up(number(2 * word), number(2 * word + 1));
            }
        }
    }
}

thread_local! {
    /// The rows of `x` that a thread multiplies in tiles, `[tiles of 16 rows][tiles of 16 words][16][16]`.
    static ROWS: Cell<Option<Lines>> = const { Cell::new(None) };
}

/// Computes the product in tiles. A sum does not depend on other rows or on where its tile is.
fn by_tiles<S: Simd>(s: S, rows: Rows<'_>) {
    let Rows { panels, inputs, outputs, x, ref groups, .. } = rows;
    let (count, words) = (x.len() / inputs, S::Product::words(inputs));
    if count == 0 || groups.start * GROUP >= outputs.min(groups.end * GROUP) {
        return;
    }
    let padded = count.next_multiple_of(2 * SIDE);
    let numbers = padded * words + (padded * PANEL).max(2 * SUMS);
    let memory = ROWS.take().filter(|memory| memory.values::<f32>().len() >= numbers).unwrap_or_else(|| {
        let lines = (numbers * size_of::<f32>()).div_ceil(Lines::LINE);
        Lines::zeroed(lines).expect("there is not enough memory for the buffers of a call")
    });
    let mut memory = memory;
    let (left, sums) = memory.values_mut::<f32>().split_at_mut(padded * words);
    s.run(PairUp { x, inputs, words, tiles: true, into: left });
    let _configured = S::Product::configure();
    let right = panels.lines.values::<f32>();
    let few = count <= 2 * SIDE || groups.len() * GROUP * words * size_of::<f32>() <= RIGHT;
    if few && words <= NEAR_ROWS {
        by_buffers::<S>(rows, left, right, words, sums);
    } else {
        let at_once = if few { 2 * SIDE } else { count };
        by_panels::<S>(rows, left, right, words, sums, at_once);
    }
    ROWS.set(Some(memory));
}

/// Returns the numbers with which the sums of a panel of tiles begin, whose outputs are `outputs`.
fn begin_of<'b>(bias: Option<&'b [f32]>, outputs: Range<usize>, filled: &'b mut [f32; PANEL]) -> Begin<'b> {
    let Some(bias) = bias else { return Begin::Zero };
    Begin::Outputs(match bias[outputs.start..].first_chunk() {
        // Tiles cannot be loaded from new numbers before these are in the cache.
        Some(begin) => begin,
        None => {
            filled[..outputs.len()].copy_from_slice(&bias[outputs]);
            filled
        }
    })
}

/// Multiplies two tiles of rows with all weights, and then the next rows. The sums of a group go to one of two buffers in `sums`,
/// and to the result while those of the next group are computed. With few inputs, products would wait for the memory of the result.
fn by_buffers<S: Simd>(rows: Rows<'_>, left: &[f32], right: &[f32], words: usize, sums: &mut [f32]) {
    let Rows { inputs, outputs, x, bias, groups, out, mut finish, .. } = rows;
    let count = x.len() / inputs;
    let stride = outputs.min(groups.end * GROUP) - groups.start * GROUP;
    let (mut own, mut other) = sums[..2 * SUMS].split_at_mut(SUMS);
    // The place in `out`, and the number, of the rows in `other`.
    let (mut place, mut full) = (0, 0);
    for row in (0..count).step_by(2 * SIDE) {
        let some = (count - row).min(2 * SIDE);
        for group in groups.clone() {
            let first = group * GROUP;
            let part = GROUP.min(outputs - first);
            let panels = part.div_ceil(PANEL);
            for i in 0..panels {
                let (panel, mut filled) = (first + i * PANEL, [0.0; PANEL]);
                let operands = Panel {
                    left: &left[row * words..],
                    second: (some > SIDE).then_some(SIDE * words),
                    right: &right[panel * words..][..PANEL * words],
                    next: &[],
                    begin: begin_of(bias, panel..outputs.min(panel + PANEL), &mut filled),
                    near: Near::Left,
                };
                let (from, to) = (full * i / panels, full * (i + 1) / panels);
                let moved = (&other[from * GROUP..to * GROUP], &mut out[place + from * stride..], stride);
                let sums = (&mut own[i * PANEL..], GROUP);
                S::Product::panel(operands, Target { sums, out: None, moved: Some(moved) });
            }
            if let Some(finish) = finish.as_mut() {
                let own = own.chunks_exact_mut(GROUP).take(some).enumerate();
                own.for_each(|(r, sums)| finish(row + r, first, &mut sums[..part]));
            }
            (place, full) = (row * stride + first - groups.start * GROUP, some);
            if part < GROUP {
                for (r, sums) in own.chunks_exact(GROUP).take(some).enumerate() {
                    write(&mut out[place + r * stride..], &sums[..part]);
                }
                full = 0;
            }
            std::mem::swap(&mut own, &mut other);
        }
    }
    for (r, sums) in other.chunks_exact(GROUP).take(full).enumerate() {
        write(&mut out[place + r * stride..], sums);
    }
}

/// Multiplies `at_once` rows with each panel of the weights, and then the next rows. If these are more than two tiles of rows, a panel,
/// or a part of it after another, stays in the first-level cache.
fn by_panels<S: Simd>(rows: Rows<'_>, left: &[f32], right: &[f32], words: usize, sums: &mut [f32], at_once: usize) {
    let Rows { inputs, outputs, x, bias, groups, out, mut finish, .. } = rows;
    let (count, start) = (x.len() / inputs, groups.start * GROUP);
    let stride = outputs.min(groups.end * GROUP) - start;
    let again = at_once > 2 * SIDE;
    let depth = if again && words > NEAR_PANEL.0 { NEAR_PANEL.1 } else { words };
    for top in (0..count).step_by(at_once) {
        let rows = top..count.min(top + at_once);
        for group in groups.clone() {
            let first = group * GROUP;
            let part = GROUP.min(outputs - first);
            for panel in (first..first + part).step_by(PANEL) {
                let width = PANEL.min(outputs - panel);
                let mut filled = [0.0; PANEL];
                let begin = begin_of(bias, panel..panel + width, &mut filled);
                for from in (0..words).step_by(depth) {
                    let to = words.min(from + depth);
                    let (right, next) = right[panel * words + from * PANEL..].split_at((to - from) * PANEL);
                    // Each of the rows fetches a part of the weights that follow.
                    let next = &next[..if again { next.len().min(right.len()) } else { 0 }];
                    let share = next.len() / rows.len().div_ceil(2 * SIDE);
                    for (i, row) in rows.clone().step_by(2 * SIDE).enumerate() {
                        let some = (rows.end - row).min(2 * SIDE);
                        let place = row * stride + panel - start;
                        let sums = &mut sums[i * 2 * SIDE * PANEL..];
                        let operands = Panel {
                            left: &left[row * words + from * SIDE..],
                            second: (some > SIDE).then_some(SIDE * words),
                            right,
                            next: &next[i * share..][..share],
                            begin: if from == 0 { begin } else { Begin::Sums },
                            near: if again { Near::Right } else { Near::Neither },
                        };
                        let whole = to == words && width == PANEL && some.is_multiple_of(SIDE);
                        let direct = whole.then(|| (&mut out[place..], stride));
                        S::Product::panel(operands, Target { sums: (sums, PANEL), out: direct, moved: None });
                        if to == words && !whole {
                            for (r, sums) in sums.chunks_exact(PANEL).take(some).enumerate() {
                                write(&mut out[place + r * stride..], &sums[..width]);
                            }
                        }
                    }
                }
            }
            if let Some(finish) = finish.as_mut() {
                for row in rows.clone() {
                    let part = &mut out[row * stride + first - start..][..part];
                    // SAFETY: the sums of all outputs of the group were written above.
                    finish(row, first, unsafe { initialised(part) });
                }
            }
        }
    }
}

/// Writes `sums` to the beginning of `out`.
fn write(out: &mut [MaybeUninit<f32>], sums: &[f32]) {
    out[..sums.len()].iter_mut().zip(sums).for_each(|(out, sum)| _ = out.write(*sum));
}

/// The product of [`Rows`] as a kernel.
struct Multiply<'a, 'x, P, T> {
    rows: Rows<'a>,
    /// The packed words of the weight.
    panels: &'a [T],
    /// The rows of the input in words, of which each row has `words`.
    rows_in_words: &'x [f32],
    words: usize,
    product: PhantomData<P>,
}

impl<'a, 'x, P, T> Multiply<'a, 'x, P, T> {
    fn new(rows: Rows<'a>, panels: &'a [T], rows_in_words: &'x [f32], words: usize) -> Self {
        Multiply { rows, panels, rows_in_words, words, product: PhantomData }
    }
}

impl<S: Simd, P: Product, T: Number> Kernel<S> for Multiply<'_, '_, P, T> {
    #[inline(always)]
    fn run(self, s: S) {
        let Multiply { rows: Rows { inputs, outputs, x, bias, groups, out, mut finish, .. }, panels, words, .. } = self;
        let rows = x.len() / inputs;
        let (width, vectors) = (S::VECTORS * S::LANES, GROUP / S::LANES);
        let columns = groups.start * GROUP..outputs.min(groups.end * GROUP);
        // With a single register tile of rows, weights are read once, in the order of memory.
        let depth = if rows <= S::ROWS { words } else { DEPTH };
        let mut sums = zeroed::<S::V>(rows * vectors);
        for group in groups {
            let first = group * GROUP;
            let part = GROUP.min(outputs - first);
            let mut begin = [0.0; GROUP];
            if let Some(bias) = bias {
                begin[..part].copy_from_slice(&bias[first..][..part]);
            }
            floats_mut(&mut sums).as_chunks_mut().0.fill(begin);
            let panels = &panels[first * words..][..GROUP * words];
            let mut finished = |sums: &mut [S::V], rows: Range<usize>| {
                let sums = floats_mut(sums).as_chunks_mut::<GROUP>().0[rows.clone()].iter_mut();
                for (row, sums) in rows.zip(sums) {
                    if let Some(finish) = finish.as_mut() {
                        finish(row, first, &mut sums[..part]);
                    }
                    write(&mut out[row * columns.len() + first - columns.start..], &sums[..part]);
                }
            };
            if rows == 1 && width < GROUP {
                let panels = S::Array::<T>::chunks(panels).chunks_exact(2 * S::VECTORS * words);
                for (panels, sums) in panels.zip(sums.chunks_exact_mut(2 * S::VECTORS)) {
                    match S::VECTORS {
                        4 => one_row::<S, P, T, 4>(s, self.rows_in_words, panels, sums),
                        2 => one_row::<S, P, T, 2>(s, self.rows_in_words, panels, sums),
                        _ => one_row::<S, P, T, 1>(s, self.rows_in_words, panels, sums),
                    }
                }
                finished(&mut sums, 0..1);
                continue;
            }
            for from in (0..words).step_by(depth) {
                let to = words.min(from + depth);
                for (i, panel) in panels.chunks_exact(width * words).enumerate() {
                    let panel = S::Array::<T>::chunks(&panel[from * width..to * width]);
                    let last = to == words && (i + 1) * width == GROUP;
                    for row in (0..rows).step_by(S::ROWS) {
                        let count = (rows - row).min(S::ROWS);
                        let (x, into) =
                            (&self.rows_in_words[row * words + from..], &mut sums[row * vectors + i * S::VECTORS..]);
                        by_rows!(S, P, T, count, tile(s, x, words, panel, into, vectors));
                        if last {
                            // A few rows at a time, so that the next products do not wait for the memory of the result.
                            finished(&mut sums, row..row + count);
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of one row with two neighbouring panels of `N` vectors to the sums of the row. A single panel has
/// too few sums to hide the latency of an addition.
#[inline(always)]
fn one_row<S: Simd, P: Product, T: Number, const N: usize>(s: S, x: &[f32], panels: &[S::Array<T>], sums: &mut [S::V]) {
    let (first, second) = panels.split_at(panels.len() / 2);
    let panels = [first.as_chunks::<N>().0, second.as_chunks::<N>().0].map(|panel| &panel[..x.len()]);
    let mut sum: [[S::V; N]; 2] = std::array::from_fn(|panel| std::array::from_fn(|n| sums[panel * N + n]));
    for (word, x) in x.iter().enumerate() {
        let x = s.splat(*x);
        for (sum, panel) in sum.iter_mut().zip(panels) {
            for (sum, weight) in sum.iter_mut().zip(&panel[word]) {
                *sum = P::dot(s, x, T::widen(s, weight), *sum);
            }
        }
    }
    for (sums, sum) in sums.chunks_exact_mut(N).zip(sum) {
        sums.copy_from_slice(&sum);
    }
}

/// Adds the products of `R` rows with the words of a panel of `N` vectors to the sums of the rows.
#[inline(always)]
fn tile<S: Simd, P: Product, T: Number, const R: usize, const N: usize>(
    s: S,
    x: &[f32],
    words: usize,
    panel: &[S::Array<T>],
    sums: &mut [S::V],
    vectors: usize,
) {
    let panel = panel.as_chunks::<N>().0;
    let x: [&[f32]; R] = std::array::from_fn(|r| &x[r * words..][..panel.len()]);
    let mut sum: [[S::V; N]; R] = std::array::from_fn(|r| std::array::from_fn(|n| sums[r * vectors + n]));
    for word in 0..panel.len() {
        let weight: [S::V; N] = std::array::from_fn(|n| T::widen(s, &panel[word][n]));
        for r in 0..R {
            let x = s.splat(x[r][word]);
            for n in 0..N {
                sum[r][n] = P::dot(s, x, weight[n], sum[r][n]);
            }
        }
    }
    for r in 0..R {
        sums[r * vectors..][..N].copy_from_slice(&sum[r]);
    }
}

/// Returns `out` as numbers.
///
/// # Safety
///
/// All numbers must have been written.
pub(crate) unsafe fn initialised(out: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    let numbers: *mut [MaybeUninit<f32>] = out;
    // SAFETY: `MaybeUninit` has the layout of its content, the caller promises that all numbers were written, and `out` is
    // borrowed exclusively.
    unsafe { &mut *(numbers as *mut [f32]) }
}
