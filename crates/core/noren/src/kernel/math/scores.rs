//! Score modifiers, which change scores between the query-key product and the softmax: softcap, bias, soft weights.
//!
//! Scores are in base 2: a score here is the score in natural units (those of the caller's options) times `log2(e)`.

use super::exp::tanh;
use super::micro::{BLOCK, WIDE};
use crate::inputs::options::{LEAST_WEIGHT, score_shape};
use crate::kernel::simd::Simd;
use crate::{Bias, Dropout, Options, View};
use noren_mask::{Order, Plan};
use std::f32::consts::LOG2_E;

/// The score modifiers of a call, broadcast to `[batch, heads, q_len, kv_len]`.
pub(crate) struct Modifiers<'a> {
    plan: &'a Plan,
    /// The factor by which queries are multiplied before their products with keys. Without a softcap, it is the scale
    /// times `log2(e)`; with a softcap, it is the scale divided by the softcap.
    pub(crate) query_factor: f32,
    /// The softcap for scores in base 2: the given softcap times `log2(e)`.
    pub(crate) softcap: Option<f32>,
    bias: Vec<Term<'a>>,
    soft: Option<View<'a>>,
    pub(crate) sinks: Option<&'a [f32]>,
    pub(crate) dropout: Option<Dropout>,
}

enum Term<'a> {
    Dense(View<'a>),
    Relative(View<'a>),
    Alibi(&'a [f32]),
}

/// The place of some cells in the scores: one query row, and the first key of a block of keys.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) row: usize,
    /// The place of the block's first key in the plan's order of keys.
    pub(crate) key: usize,
}

impl<'a> Modifiers<'a> {
    /// Returns the score modifiers in `options`. The caller must have checked `options`.
    pub(crate) fn new(plan: &'a Plan, head_dim: usize, options: &'a Options<'a>) -> Self {
        let full = score_shape(plan.shape());
        let broadcast = |view: &View<'a>| view.broadcast(full).expect("the options were checked before");
        let scale = options.scale_for(head_dim);
        let log2_e = std::f64::consts::LOG2_E;
        Modifiers {
            plan,
            query_factor: options.softcap.map_or(scale * log2_e, |cap| scale / f64::from(cap)) as f32,
            softcap: options.softcap.map(|cap| (f64::from(cap) * log2_e) as f32),
            bias: (options.bias.iter())
                .map(|bias| match bias {
                    Bias::Dense(view) => Term::Dense(broadcast(view)),
                    Bias::Relative { table } => {
                        let [.., width] = table.shape();
                        Term::Relative(
                            table.broadcast([1, full[1], 1, width]).expect("the options were checked before"),
                        )
                    }
                    Bias::Alibi(slopes) => Term::Alibi(slopes),
                })
                .collect(),
            soft: options.soft.as_ref().map(broadcast),
            sinks: options.sinks,
            dropout: options.dropout.filter(|dropout| dropout.probability > 0.0),
        }
    }

    /// Returns whether there is a softcap or a bias, so that `apply` changes scores.
    #[inline(always)]
    pub(crate) fn change_scores(&self) -> bool {
        self.softcap.is_some() || !self.bias.is_empty()
    }

    /// Returns whether the call has soft weights, which multiply the softmax weights.
    #[inline(always)]
    pub(crate) fn soften(&self) -> bool {
        self.soft.is_some()
    }

    /// Returns the mask bits `bits` with the bits of those cells set to 0 whose soft weight is below `LEAST_WEIGHT`,
    /// because such cells are not allowed. `bits` has one bit for each of the `keys` keys of a block.
    pub(crate) fn clear_zero_weights(&self, at: Place, keys: usize, bits: u64) -> u64 {
        let Some(soft) = &self.soft else { return bits };
        let mut weights = [0.0; BLOCK];
        self.copy_keys(soft, at, &mut weights[..keys]);
        weights
            .iter()
            .enumerate()
            .fold(bits, |bits, (i, w)| if *w < LEAST_WEIGHT as f32 { bits & !(1 << i) } else { bits })
    }

    /// Applies softcap and bias to the scores of the row of `at`, for `keys` keys from the key of `at` on.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(&self, s: S, at: Place, keys: usize, scores: &mut [S::V]) {
        if let Some(cap) = self.softcap {
            for x in &mut scores[..keys.div_ceil(S::LANES)] {
                *x = s.mul(tanh(s, *x), s.splat(cap));
            }
        }
        self.add_bias(s, at, keys, scores);
    }

    /// Adds the biases to scores of one query row. `at` is the place of the first score (its batch row, head, query and
    /// key); the scores are those of this key and the keys after it, `keys` in all.
    #[inline(always)]
    pub(crate) fn add_bias<S: Simd>(&self, s: S, at: Place, keys: usize, scores: &mut [S::V]) {
        let scores = &mut scores[..keys.div_ceil(S::LANES)];
        for term in 0..self.bias.len() {
            let mut values = [0.0; WIDE];
            let factor = self.bias_values(term, at, &mut values[..keys]) * LOG2_E;
            for (x, value) in scores.iter_mut().zip(values.chunks_exact(S::LANES)) {
                *x = s.fma(s.load(value), s.splat(factor), *x);
            }
        }
    }

    /// Returns the number of biases that are added to each score.
    pub(crate) fn bias_terms(&self) -> usize {
        self.bias.len()
    }

    /// Writes the values of the bias with the index `term` to `values`, for the row of `at` from the key of `at` on,
    /// and returns a factor. The bias of a score, in natural units, is its value times this factor.
    #[inline(always)]
    pub(crate) fn bias_values(&self, term: usize, at: Place, values: &mut [f32]) -> f32 {
        match &self.bias[term] {
            Term::Dense(bias) => {
                self.copy_keys(bias, at, values);
                1.0
            }
            Term::Relative(table) => {
                let reach = table.shape()[3] as i64 / 2;
                for (value, distance) in values.iter_mut().zip(self.distances(at)) {
                    *value = table.get([0, at.head, 0, (distance.clamp(-reach, reach) + reach) as usize]);
                }
                1.0
            }
            Term::Alibi(slopes) => {
                for (value, distance) in values.iter_mut().zip(self.distances(at)) {
                    *value = distance.unsigned_abs() as f32;
                }
                -slopes[at.head]
            }
        }
    }

    /// Writes the soft weights of the row of `at`, from the key of `at` on, to `values`. Returns false if the call has
    /// no soft weights.
    pub(crate) fn soft_values(&self, at: Place, values: &mut [f32]) -> bool {
        let Some(soft) = &self.soft else { return false };
        self.copy_keys(soft, at, values);
        true
    }

    /// Multiplies the weights of a row by the soft weights of the row, in cells whose bit in `bits` is set. Sets the
    /// weights of all other cells to 0.
    #[inline(always)]
    pub(crate) fn multiply_weights<S: Simd>(&self, s: S, at: Place, keys: usize, bits: u64, weights: &mut [S::V]) {
        let Some(soft) = &self.soft else { return };
        let mut values = [0.0; BLOCK];
        self.copy_keys(soft, at, &mut values[..keys]);
        let weights = &mut weights[..keys.div_ceil(S::LANES)];
        for (i, (p, value)) in weights.iter_mut().zip(values.chunks_exact(S::LANES)).enumerate() {
            let product = s.mul(*p, s.load(value));
            *p = s.keep(bits >> (i * S::LANES), product, s.splat(0.0));
        }
    }

    /// Returns the plan's order of the keys that a row reads; `None` if keys are not reordered.
    pub(crate) fn order(&self, at: Place) -> Option<&'a Order> {
        self.plan.patterns()[self.plan.pattern_of(at.batch, at.head)].key_order()
    }

    /// Copies values of `view` to `into`, in the plan's order of keys: those of the row of `at`, from the key of `at`
    /// on.
    fn copy_keys(&self, view: &View<'_>, at: Place, into: &mut [f32]) {
        match self.order(at) {
            None => view.copy_row([at.batch, at.head, at.row], at.key, into),
            Some(order) => {
                for (place, value) in (at.key as u32..).zip(into) {
                    *value = view.get([at.batch, at.head, at.row, order.origin(place) as usize]);
                }
            }
        }
    }

    /// Returns, for each key from the place `at.key` in the plan's order on, the position of the key minus the position
    /// of the query.
    pub(crate) fn distances(&self, at: Place) -> impl Iterator<Item = i64> + '_ {
        let (query, order) = (self.plan.query_position(at.batch, at.row), self.order(at));
        let key = move |place: usize| order.map_or(place, |order| order.origin(place as u32) as usize);
        (at.key..).map(move |place| self.plan.key_position(at.batch, key(place)) - query)
    }
}
