//! Dropout on a row of weights, many cells at a time.

use super::scores::Place;
use crate::Dropout;
use crate::kernel::simd::Simd;
use noren_mask::{Order, philox};

/// The number of Philox counters that are computed together: enough to fill the integer vectors of every processor
/// path.
const COUNTERS: usize = 16;

/// The number of keys that get their random numbers from `COUNTERS` Philox counters: four keys for each counter.
const KEYS: usize = 4 * COUNTERS;

impl Dropout {
    /// Applies dropout to the weights of the row of `at`. The first weight belongs to the key of `at`. Dropped weights
    /// become 0, and kept weights are multiplied by the factor `1 / (1 - probability)`. `order` is the plan's order of
    /// keys, or `None` if keys are not reordered.
    ///
    /// Without `order`, the index of the first key must be a multiple of `LANES`. It is then also a multiple of 4, so
    /// that the four keys of each Philox counter stay together.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(&self, s: S, at: Place, order: Option<&Order>, weights: &mut [S::V]) {
        let (threshold, factor) = (self.threshold(), self.factor());
        let mut factors = [0.0; KEYS];
        for (chunk, weights) in weights.chunks_mut(KEYS / S::LANES).enumerate() {
            let key = at.key + chunk * KEYS;
            match order {
                Some(order) => {
                    self.factors_in_order(Place { key, ..at }, order, &mut factors[..weights.len() * S::LANES])
                }
                None => {
                    for (i, factors) in factors.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        let first = ((key / 4) as u32).wrapping_add(i as u32);
                        let counter = [first, at.row as u32, at.head as u32, at.batch as u32];
                        *factors = philox(counter, self.seed).map(|word| if word < threshold { 0.0 } else { factor });
                    }
                }
            }
            for (weight, factors) in weights.iter_mut().zip(factors.chunks_exact(S::LANES)) {
                *weight = s.mul(*weight, s.load(factors));
            }
        }
    }

    /// Writes the dropout factors of the row of `at`, from the key of `at` on, to `factors`, in the plan's order of
    /// keys. Each factor is computed alone, because neighbouring keys in this order do not share a Philox counter.
    /// Entries after the last key are unchanged.
    fn factors_in_order(&self, at: Place, order: &Order, factors: &mut [f32]) {
        for (factor, place) in factors.iter_mut().zip(at.key as u32..order.len()) {
            let keeps = self.keeps([at.batch, at.head, at.row, order.origin(place) as usize]);
            *factor = if keeps { self.factor() } else { 0.0 };
        }
    }
}
