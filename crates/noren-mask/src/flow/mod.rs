//! [`Flow`]: which tokens can influence which outputs over several layers of attention.
//!
//! One layer lets a query read the keys of its mask, and a residual connection keeps what it had. Over layers that is the
//! closure `R <- (I | M_l) R`: exactly the support of the Jacobian of a stack whose weights are in no special position. It is
//! computed for sets of tokens, by the spans of plans, so a million tokens of a structured mask cost what their tiles cost.
//!
//! ```
//! use noren_mask::flow::{Flow, Fill};
//! use noren_mask::{Facts, Shape, atoms::*, interval::IntervalSet};
//! let flow = Flow::of_stack(&vec![sliding(3); 4], &Shape::square(20), &Facts::new(), Fill::Nothing)?;
//! // Two keys further back with each layer.
//! assert_eq!(flow.receptive_field(0, 19).last(), Some(&IntervalSet::from(11..20)));
//! let path = flow.witness(0, &IntervalSet::from(12..13), &IntervalSet::from(19..20)).unwrap();
//! assert_eq!(path.to_string(), "token 12 -> token 13 in layer 0 -> token 15 in layer 1 -> token 17 in layer 2 -> token 19 in layer 3");
//! # Ok::<(), noren_mask::Error>(())
//! ```

mod certificate;
mod policy;
mod step;

pub use certificate::{CHANNELS, Certificate};
pub use policy::{Group, Policy, Rule, Ruling, Violation};

use crate::interval::IntervalSet;
use crate::keep::{Keep, ones, set_bit, set_range};
use crate::{Error, Facts, Mask, Shape};
use std::fmt;
use step::Layer;

/// What a query that may read nothing reads after all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Nothing: noren, and every kernel that gives such rows 0.
    #[default]
    Nothing,
    /// Everything: hidden scores hold one finite number, so a row of them is an even average over all keys, padding and
    /// future included.
    Finite,
}

/// A stack of layers, each with its mask, over one sequence of tokens by batch row.
#[derive(Clone, Debug)]
pub struct Flow {
    masks: Vec<Mask>,
    shape: Shape,
    facts: Facts,
    fill: Fill,
    /// The distinct layers.
    layers: Vec<Layer>,
    /// Which of them each layer is.
    which: Vec<usize>,
}

/// How something gets from a source to an output.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Path {
    /// The token it starts from.
    pub source: u32,
    /// Layer and the token that reads the one before in it.
    pub steps: Vec<(usize, u32)>,
}

impl Path {
    /// The token at its end.
    pub fn target(&self) -> u32 {
        self.steps.last().map_or(self.source, |step| step.1)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.source)?;
        self.steps.iter().try_for_each(|(layer, token)| write!(f, " -> token {token} in layer {layer}"))
    }
}

/// What it takes to cut sources from targets in one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cut {
    /// The layer.
    pub layer: usize,
    /// Cells of its mask that carry something on the way from the sources to the targets.
    pub cells: u64,
    /// Whether hiding them is enough. It is not where tokens that already know keep it until a later layer.
    pub enough: bool,
}

impl Flow {
    /// A stack of `masks`, one for each layer, bound to one shape and the same facts.
    ///
    /// Queries are tokens of the keys' own sequence: query `i` is token `i + query_offset`. Tokens in the cache keep what
    /// they know.
    ///
    /// # Errors
    /// What [`Mask::bind`] refuses, and a shape whose queries are not among its keys.
    pub fn of_stack(masks: &[Mask], shape: &Shape, facts: &Facts, fill: Fill) -> Result<Self, Error> {
        for row in 0..shape.batch_len() {
            let offset = shape.query_offset(row);
            if offset < 0 || offset + shape.q_len() as i64 > shape.kv_len() as i64 {
                return Err(Error::Shape(format!(
                    "queries {offset}..{} of batch row {row} are not among the {} keys: flow over layers needs queries that are \
                     tokens of the keys' own sequence",
                    offset + shape.q_len() as i64,
                    shape.kv_len()
                )));
            }
        }
        let mut known: Vec<Mask> = Vec::new();
        let (mut layers, mut which) = (Vec::new(), Vec::new());
        for (index, mask) in masks.iter().enumerate() {
            let mask = mask.at_layer(index as u64);
            let at = match known.iter().position(|m| *m == mask) {
                Some(at) => at,
                None => {
                    layers.push(Layer::new(&mask.bind(shape, facts)?, fill));
                    known.push(mask);
                    known.len() - 1
                }
            };
            which.push(at);
        }
        Ok(Flow { masks: masks.to_vec(), shape: shape.clone(), facts: facts.clone(), fill, layers, which })
    }

    /// Number of layers.
    pub fn depth(&self) -> usize {
        self.which.len()
    }

    /// Number of tokens.
    pub fn tokens(&self) -> u32 {
        self.shape.kv_len() as u32
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Who knows something of `sources` before the first layer, after it, and so on: one set more than there are layers.
    pub fn reach(&self, batch: usize, sources: &IntervalSet) -> Vec<IntervalSet> {
        let mut out = vec![sources.clone()];
        let mut idle = 0;
        for &layer in &self.which {
            let now = &out[out.len() - 1];
            // A layer that was asked about this set already adds nothing.
            let asked = self.which[..out.len() - 1].iter().rev().take(idle).any(|l| *l == layer);
            let next = if asked { now.clone() } else { self.layers[layer].readers(batch, now) };
            idle = if next == *now { idle + 1 } else { 0 };
            out.push(next);
        }
        out
    }

    /// Whose content output `token` depends on, looking back over one layer, over two, ... over all of them, the last layer
    /// first. The first set is the token itself.
    pub fn receptive_field(&self, batch: usize, token: u32) -> Vec<IntervalSet> {
        self.back(batch, &IntervalSet::from(token..token + 1))
    }

    /// From whom something reaches `targets` in the last layer, in the last two, and so on.
    pub fn back(&self, batch: usize, targets: &IntervalSet) -> Vec<IntervalSet> {
        let mut out = vec![targets.clone()];
        for &layer in self.which.iter().rev() {
            let next = self.layers[layer].read_by(batch, &out[out.len() - 1]);
            out.push(next);
        }
        out
    }

    /// What `token` reads in one layer, itself included: the residual connection.
    ///
    /// # Panics
    /// When there is no such batch row or layer.
    pub fn read_in(&self, batch: usize, layer: usize, token: u32) -> IntervalSet {
        self.layers[self.which[layer]].read_by(batch, &IntervalSet::from(token..token + 1))
    }

    /// A way from one of `sources` to one of `targets`, over the fewest layers; `None` when there is none.
    pub fn witness(&self, batch: usize, sources: &IntervalSet, targets: &IntervalSet) -> Option<Path> {
        let reach = self.reach(batch, sources);
        let layers = reach.iter().position(|set| !set.intersect(targets).is_empty())?;
        let mut at = reach[layers].intersect(targets).hull()?.start;
        let mut steps = Vec::new();
        for layer in (0..layers).rev() {
            if reach[layer].contains(at) {
                continue;
            }
            let keys = self.layers[self.which[layer]].read_by(batch, &IntervalSet::from(at..at + 1));
            steps.push((layer, at));
            at = keys.intersect(&reach[layer]).hull()?.start;
        }
        steps.reverse();
        Some(Path { source: at, steps })
    }

    /// For each layer the cells that carry something from `sources` to `targets`, and whether hiding them is enough.
    pub fn cuts(&self, batch: usize, sources: &IntervalSet, targets: &IntervalSet) -> Vec<Cut> {
        let reach = self.reach(batch, sources);
        let back = self.back(batch, targets);
        let depth = self.depth();
        let sets = |layer: usize| (self.which[layer], &reach[layer], &back[depth - layer - 1]);
        let mut cuts: Vec<Cut> = Vec::with_capacity(depth);
        for layer in 0..depth {
            let (which, from, to) = sets(layer);
            // Once nothing grows any more, layers with the same mask carry the same.
            let known = cuts.iter().rev().find(|cut| sets(cut.layer) == (which, from, to)).map(|cut| cut.cells);
            let cells = known.unwrap_or_else(|| self.layers[which].cells(batch, from, to));
            cuts.push(Cut { layer, cells, enough: from.intersect(to).is_empty() });
        }
        cuts.retain(|cut| cut.cells > 0);
        cuts
    }

    /// Who knows of whom after all layers: cell (output, source), by Boolean products of bit matrices. It takes
    /// `tokens^2 / 8` bytes.
    pub fn closure(&self, batch: usize) -> Keep {
        let n = self.shape.kv_len();
        let mut now = Keep::from_fn([1, 1, n, n], |[_, _, q, k]| q == k);
        for &layer in &self.which {
            let before = now.clone();
            self.layers[layer].each_row(batch, |q, keys| {
                let row = now.row_mut(0, 0, q as usize);
                for k in ones(keys) {
                    row.iter_mut().zip(before.row(0, 0, k)).for_each(|(r, b)| *r |= b);
                }
            });
        }
        now
    }
}

/// A set as bits.
pub(crate) fn as_bits(set: &IntervalSet, len: u32) -> Vec<u64> {
    let mut bits = vec![0; len.div_ceil(64) as usize];
    set.iter().for_each(|i| set_range(&mut bits, i.start as usize, i.end.min(len) as usize));
    bits
}

/// Bits as a set.
pub(crate) fn as_set(bits: &[u64], len: u32) -> IntervalSet {
    let mut set = IntervalSet::new();
    crate::array::bit_runs(bits, 0, len, |a, z| set.push(a, z));
    set
}

/// Marks one token.
pub(crate) fn mark(bits: &mut [u64], token: u32) {
    set_bit(bits, token as usize);
}
