//! [`Packed`]: a weight in a layout that makes linear layers with many input rows fast, on processor paths with
//! AVX-512.

use super::finish::Finish;
use noren::Isa;
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Number of outputs in a panel. A panel has the weights of 64 consecutive outputs of a layer; its weights for one
/// input feature fill four AVX-512 vectors of 16 numbers.
const PANEL: usize = 64;
/// Maximum number of rows of `x` that are multiplied with a panel at a time. The sums of 6 rows by 64 outputs fill 24
/// of the 32 AVX-512 registers. For each input feature, 10 loads (6 numbers of `x`, 4 vectors of weights) are enough
/// for 24 vector multiplications.
const ROWS: usize = 6;
/// Maximum number of input features that are processed at a time. The products of these features with the weights are
/// added for all rows of `x` before the next features are processed. The weights of a panel for these features, and the
/// features of all rows, stay in the second-level cache of the processor.
const DEPTH: usize = 384;
/// Number of rows of `x` that a thread processes at a time.
pub(super) const BLOCK: usize = 96;

/// A weight `[outputs, inputs]` that is stored in panels of 64 consecutive outputs. A panel has the 64 weights of the
/// first input feature, then those of the second input feature, and so on, because `x W^T` is computed in this order.
///
/// The sum for an output begins with the bias. The products of input features and weights are added in the order of the
/// input features, each by a fused multiply-add. The bits of a sum therefore do not depend on other rows of `x`.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    panels: Vec<[f32; PANEL]>,
}

impl Packed {
    /// Packs the rows of `weight`. Returns `None` if the processor path has no AVX-512, or if the number of outputs is
    /// not a multiple of 64.
    pub(super) fn new(weight: &[f32], inputs: usize) -> Option<Packed> {
        let outputs = weight.len().checked_div(inputs)?;
        if super::isa() < Isa::Avx512 || outputs == 0 || !outputs.is_multiple_of(PANEL) {
            return None;
        }
        let panel = |rows: &[f32]| -> Vec<[f32; PANEL]> {
            (0..inputs).map(|i| std::array::from_fn(|output| rows[output * inputs + i])).collect()
        };
        let panels = weight.par_chunks_exact(PANEL * inputs).flat_map_iter(panel).collect();
        Some(Packed { inputs, outputs, panels })
    }

    /// Returns `x W^T` for `x` `[rows, inputs]`, after the operations of `then`: `[rows, outputs]`.
    pub(super) fn product(&self, x: &[f32], then: &Finish<'_>) -> Vec<f32> {
        self.by_blocks(x, self.inputs, |first, x, out| self.block(x, out, then, first))
    }

    /// Returns an array `[rows, outputs]`. `work` computes the rows on all threads, in groups of up to `BLOCK` rows.
    /// `x` has `width` numbers for each row. `work` gets the index of the group's first row, the rows of `x` for the
    /// group, and the memory for the results of the group. `work` must write all of this memory and return it.
    pub(super) fn by_blocks(
        &self,
        x: &[f32],
        width: usize,
        work: impl for<'b> Fn(usize, &[f32], &'b mut [MaybeUninit<f32>]) -> &'b mut [f32] + Sync,
    ) -> Vec<f32> {
        let len = x.len() / width * self.outputs;
        let mut out: Vec<f32> = Vec::with_capacity(len);
        let blocks = out.spare_capacity_mut()[..len].par_chunks_mut(BLOCK * self.outputs);
        blocks.zip(x.par_chunks(BLOCK * width)).enumerate().for_each(|(i, (out, x))| {
            let block = out.as_ptr_range();
            let written = work(i * BLOCK, x, out).as_ptr_range();
            assert!(
                written.start == block.start.cast() && written.end == block.end.cast(),
                "`work` must write every value of the given block and return this block"
            );
        });
        // SAFETY: the blocks cover the array, and `work` has written and returned every block.
        unsafe { out.set_len(len) };
        out
    }

    /// Writes `x W^T` to `out`, where `W` is this weight, applies the operations of `then`, and returns `out`. `x` has
    /// some consecutive rows of the layer's input; `first` is the index of the first of these rows in the layer's
    /// input.
    pub(super) fn block<'a>(
        &self,
        x: &[f32],
        out: &'a mut [MaybeUninit<f32>],
        then: &Finish<'_>,
        first: usize,
    ) -> &'a mut [f32] {
        let Packed { inputs, outputs, ref panels } = *self;
        let rows = x.len() / inputs;
        assert_eq!(out.len(), rows * outputs, "the output must have one row for each row of the input");
        for (column, panel) in panels.chunks_exact(inputs).enumerate() {
            for (piece, from) in panel.chunks(DEPTH).zip((0..).step_by(DEPTH)) {
                let begins = match (from, then.bias) {
                    (0, None) => Begins::Zero,
                    (0, Some(bias)) => Begins::With(&bias[column * PANEL..][..PANEL]),
                    _ => Begins::Before,
                };
                for row in (0..rows).step_by(ROWS) {
                    let tile = Tile { x: &x[row * inputs + from..], inputs, panel: piece, outputs, begins };
                    tile.add_to(&mut out[row * outputs + column * PANEL..], (rows - row).min(ROWS));
                }
            }
            for (row, out) in out.chunks_exact_mut(outputs).enumerate() {
                // SAFETY: a first piece of the panel has written its columns of all rows.
                let part = unsafe { out[column * PANEL..][..PANEL].assume_init_mut() };
                then.after_bias(first + row, outputs, column * PANEL, part);
            }
        }
        // SAFETY: the panels have written all columns of every row.
        let out = unsafe { out.assume_init_mut() };
        then.rows(out);
        out
    }
}

/// A small matrix product: up to six rows of `x`, multiplied with the weights of 64 outputs for up to `DEPTH`
/// consecutive input features.
struct Tile<'a> {
    /// The part of the layer's input that begins at the first row and the first input feature of this small matrix
    /// product. Each row of the layer's input has `inputs` numbers.
    x: &'a [f32],
    inputs: usize,
    panel: &'a [[f32; PANEL]],
    outputs: usize,
    begins: Begins<'a>,
}

/// The values with which the sums of a [`Tile`] begin, before its products are added.
#[derive(Clone, Copy)]
enum Begins<'a> {
    /// The value 0, if the tile has the first input features of a layer without bias.
    Zero,
    /// The biases of the 64 outputs, if the tile has the first input features of a layer with bias.
    With(&'a [f32]),
    /// The sums over earlier input features, which are already in the output array.
    Before,
}

impl Tile<'_> {
    /// Multiplies `rows` rows of `x` (1 to 6) with the weights, and writes the sums to `out`. The sums begin with the
    /// values that `begins` defines.
    fn add_to(&self, out: &mut [MaybeUninit<f32>], rows: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a weight is packed only on ISAs from AVX-512 on, which are chosen only where the processor has them.
        unsafe {
            match rows {
                1 => self.rows::<1>(out),
                2 => self.rows::<2>(out),
                3 => self.rows::<3>(out),
                4 => self.rows::<4>(out),
                5 => self.rows::<5>(out),
                _ => self.rows::<ROWS>(out),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!(
            "weights were packed for a product of {rows} rows with {} output values, but packing needs AVX-512",
            out.len()
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn rows<const R: usize>(&self, out: &mut [MaybeUninit<f32>]) {
        use std::arch::x86_64::{
            _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
        };

        let Tile { x, inputs, panel, outputs, begins } = *self;
        assert!(x.len() >= (R - 1) * inputs + panel.len() && out.len() >= (R - 1) * outputs + PANEL);
        let mut sums = [[_mm512_setzero_ps(); PANEL / 16]; R];
        let place = |row: usize, vector: usize| row * outputs + 16 * vector;
        // SAFETY: rows begin `inputs` and `outputs` apart, and the assertion makes the last of them end inside its slice; a
        // row of the panel has four vectors, and so has its bias. Sums that go on were written when they began.
        unsafe {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    match begins {
                        Begins::Zero => {}
                        Begins::With(bias) => *sum = _mm512_loadu_ps(bias.as_ptr().add(16 * vector)),
                        Begins::Before => *sum = _mm512_loadu_ps(out.as_ptr().add(place(row, vector)).cast()),
                    }
                }
            }
            for (i, weights) in panel.iter().enumerate() {
                let load = |vector: usize| _mm512_loadu_ps(weights.as_ptr().add(16 * vector));
                let weights = [load(0), load(1), load(2), load(3)];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*x.as_ptr().add(row * inputs + i));
                    for (sum, weight) in sums.iter_mut().zip(&weights) {
                        *sum = _mm512_fmadd_ps(x, *weight, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.as_mut_ptr().add(place(row, vector)).cast(), *sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_sums_and_have_the_same_bits_among_any_rows() {
        let number = |seed: usize, i: usize| ((i * 7919 + seed) % 1013) as f32 / 506.5 - 1.0;
        for (inputs, outputs) in [(384, 128), (1000, 64), (1, 64), (17, 192)] {
            let weight: Vec<f32> = (0..inputs * outputs).map(|i| number(1, i)).collect();
            let Some(packed) = Packed::new(&weight, inputs) else { return };
            let rows = 211;
            let x: Vec<f32> = (0..rows * inputs).map(|i| number(5, i)).collect();
            let ones = vec![1.0; outputs];
            let then = Finish { bias: Some(&ones), ..Finish::default() };
            let product = |x: &[f32]| packed.product(x, &then);
            let whole = product(&x);
            for (row, out) in x.chunks(inputs).zip(whole.chunks(outputs)) {
                for (weight, got) in weight.chunks(inputs).zip(out) {
                    let expected: f64 =
                        row.iter().zip(weight).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() + 1.0;
                    assert!((f64::from(*got) - expected).abs() < 1e-3, "{got} is not {expected}");
                }
            }
            for (from, len) in [(0, 1), (3, 2), (100, 5), (7, 97), (200, 11)] {
                let some = product(&x[from * inputs..][..len * inputs]);
                let same = some.iter().zip(&whole[from * outputs..]).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{len} rows from {from}");
            }
        }
        assert!(Packed::new(&[1.0; 65], 1).is_none() && Packed::new(&[], 0).is_none());
    }
}
