//! [`Dropout`]: attention probabilities that are dropped at random, the same ones wherever and whenever they are asked for.

use noren_mask::philox;

/// Dropout on attention probabilities: each is dropped with `probability`, and those that stay are divided by
/// `1 - probability`.
///
/// Whether a cell is dropped is a word of Philox 4x32-10 (Salmon et al. 2011) under the seed, at a counter made of the
/// cell's batch row, head, query row and key index. So forward and backward agree, nothing has to be kept between them,
/// and no result depends on threads, tiles or the processor path. A new step of training takes a new seed.
///
/// ```
/// let dropout = noren::Dropout { probability: 0.25, seed: 7 };
/// let kept = (0..10_000).filter(|key| dropout.keeps([0, 0, 0, *key])).count();
/// assert!((7_300..7_700).contains(&kept));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dropout {
    /// The share of probabilities that are dropped, `0.0..1.0`.
    pub probability: f32,
    /// What the choice depends on besides the cell.
    pub seed: u64,
}

impl Dropout {
    /// Whether the probability of cell `[batch, head, query row, key]` stays.
    pub fn keeps(&self, [batch, head, row, key]: [usize; 4]) -> bool {
        philox([(key / 4) as u32, row as u32, head as u32, batch as u32], self.seed)[key % 4] >= self.threshold()
    }

    /// What a probability that stays is multiplied by.
    pub fn factor(&self) -> f32 {
        (1.0 / (1.0 - f64::from(self.probability))) as f32
    }

    /// Words below drop.
    pub(crate) fn threshold(&self) -> u32 {
        (f64::from(self.probability) * 4_294_967_296.0).round().min(f64::from(u32::MAX)) as u32
    }
}
