//! [`Sampling`]: the settings by which tokens are chosen from logits.

use crate::error::{Error, Result};
use noren::noren_mask::philox;

/// The settings by which tokens are chosen: always the most probable token, or a random token by probability.
///
/// The n-th token of a text is chosen by a random number that depends only on the seed, on the index of the text among
/// the prompts, and on n.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// The divisor of the logits. 0 always selects the most probable token.
    pub temperature: f64,
    /// Limits the choice to this number of most probable tokens; `None` for no limit.
    pub top_k: Option<usize>,
    /// Limits the choice to the smallest number of most probable tokens whose probabilities add up to at least this
    /// value; `None` for no limit.
    pub top_p: Option<f64>,
    /// The seed of the random choices of tokens.
    pub seed: u64,
}

impl Default for Sampling {
    /// Returns settings that always select the most probable token.
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 }
    }
}

pub(super) struct Sampler {
    sampling: Sampling,
    /// Number of tokens chosen so far, for each prompt.
    counts: Vec<u32>,
}

impl Sampler {
    pub(super) fn new(sampling: &Sampling, prompts: &[Vec<u32>]) -> Result<Self> {
        let Sampling { temperature, top_k, top_p, .. } = *sampling;
        if !(0.0..=1e6).contains(&temperature) {
            return Err(Error::input(
                "temperature",
                temperature,
                "give 0 to choose the most probable token, or a number up to 1e6",
            ));
        }
        if top_k == Some(0) {
            return Err(Error::input("top_k", 0, "give at least 1, or omit top_k for no limit"));
        }
        if let Some(p) = top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            return Err(Error::input("top_p", p, "give a number above 0 and at most 1"));
        }
        Ok(Sampler { sampling: sampling.clone(), counts: vec![0; prompts.len()] })
    }

    /// Chooses the next token of the prompt with index `row` from `logits`, and returns its id.
    pub(super) fn choose(&mut self, row: usize, logits: &[f32]) -> u32 {
        let count = self.counts[row];
        self.counts[row] += 1;
        let Sampling { temperature, top_k, top_p, seed } = self.sampling;
        if temperature == 0.0 {
            return best(logits);
        }
        let mut order: Vec<u32> = (0..logits.len() as u32).filter(|i| !logits[*i as usize].is_nan()).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        order.truncate(top_k.unwrap_or(usize::MAX));
        let Some(first) = order.first() else { return best(logits) };
        let most = f64::from(logits[*first as usize]);
        let weight = |i: &u32| ((f64::from(logits[*i as usize]) - most) / temperature).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        if let Some(p) = top_p {
            let reach = p * weights.iter().sum::<f64>();
            let within = weights
                .iter()
                .scan(0.0, |sum, w| Some(std::mem::replace(sum, *sum + w)))
                .take_while(|sum| *sum < reach);
            weights.truncate(within.count().max(1));
        }
        let [a, b, ..] = philox([count, row as u32, 0x7361_6d70, 0x6c65], seed);
        let uniform = (u64::from(a) << 21 ^ u64::from(b) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|w| {
            left -= w;
            left < 0.0
        });
        order[chosen.unwrap_or(weights.len() - 1)]
    }
}

/// Returns the index of the largest logit. If several logits are equal, the first index is returned.
fn best(logits: &[f32]) -> u32 {
    let larger = |a: usize, b: usize| if logits[b] > logits[a] || logits[a].is_nan() { b } else { a };
    (1..logits.len()).fold(0, larger) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: &Sampling, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling, &[vec![]]).unwrap();
        (0..2000).map(|_| sampler.choose(0, logits)).collect()
    }

    #[test]
    fn tokens_come_as_often_as_their_probabilities_say() {
        let logits = [0.0, 2f32.ln(), 5f32.ln(), f32::NEG_INFINITY];
        let plain = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
        let counts = |drawn: Vec<u32>| [0, 1, 2, 3].map(|t| drawn.iter().filter(|d| **d == t).count());
        let [a, b, c, d] = counts(draws(&plain, &logits));
        assert!(
            (200..300).contains(&a) && (430..570).contains(&b) && (1170..1330).contains(&c) && d == 0,
            "{a} {b} {c}"
        );
        assert_eq!(draws(&plain, &logits), draws(&plain, &logits));
        assert_ne!(draws(&plain, &logits), draws(&Sampling { seed: 4, ..plain.clone() }, &logits));
        assert_eq!(counts(draws(&Sampling { top_k: Some(2), ..plain.clone() }, &logits))[0], 0);
        assert_eq!(counts(draws(&Sampling { top_p: Some(0.6), ..plain.clone() }, &logits)), [0, 0, 2000, 0]);
        assert_eq!(counts(draws(&Sampling::default(), &logits)), [0, 0, 2000, 0]);
    }
}
