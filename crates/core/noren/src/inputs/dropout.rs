//! [`Dropout`]: random dropout of attention probabilities that is reproducible from a seed.

use noren_mask::philox;

/// Dropout on attention probabilities. Each probability is dropped with the chance `probability`; the others are
/// divided by `1 - probability`.
///
/// A random 32-bit number from Philox 4x32-10 (Salmon et al. 2011) decides whether a cell is dropped. The key of Philox
/// is the seed, and the counter consists of the batch row, head, query row and key index of the cell. Forward and
/// backward pass therefore drop the same cells without storing them, and no result depends on threads, tiles or the
/// processor path. Use a new seed in each training step.
///
/// ```
/// let dropout = noren::Dropout { probability: 0.25, seed: 7 };
/// let kept = (0..10_000).filter(|key| dropout.keeps([0, 0, 0, *key])).count();
/// assert!((7_300..7_700).contains(&kept));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dropout {
    /// The chance that a probability is dropped, in `0.0..1.0`.
    pub probability: f32,
    /// The seed of the random choice. The choice depends only on this seed and the cell.
    pub seed: u64,
}

impl Dropout {
    /// Returns whether the probability of cell `[batch, head, query row, key]` is kept, not dropped.
    pub fn keeps(&self, [batch, head, row, key]: [usize; 4]) -> bool {
        philox([(key / 4) as u32, row as u32, head as u32, batch as u32], self.seed)[key % 4] >= self.threshold()
    }

    /// Returns the factor by which kept probabilities are multiplied, `1 / (1 - probability)`.
    pub fn factor(&self) -> f32 {
        (1.0 / (1.0 - f64::from(self.probability))) as f32
    }

    /// Returns the threshold for the random 32-bit number of a cell. A cell whose number is below the threshold is
    /// dropped.
    pub(crate) fn threshold(&self) -> u32 {
        (f64::from(self.probability) * 4_294_967_296.0).round().min(f64::from(u32::MAX)) as u32
    }
}
