//! [`StackCache`]: the key-value caches of all layers of a stack. The caches hold keys and values from one step of a
//! generation to the next.

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use noren::noren_mask::Node;
use noren::noren_mask::atoms::{Causal, Keys, Sliding};
use noren::{Element, Facts, KvShape, Mask, Queries, Rotating, StepPlan};
use noren_candle::{KvCache, Options};

/// The key-value caches of all layers of a stack, such as a decoder's self-attention. A layer whose mask is a sliding
/// window, with or without sink tokens, stores only the window and the sink tokens.
#[derive(Debug)]
pub(crate) struct StackCache {
    layers: Vec<Layer>,
    heads: usize,
    facts: Facts,
    /// The numbers of new tokens of the sequences in this step.
    step: Queries,
    /// The plans that were made in this step. Layers with equal masks share one plan, which is stored with the index of
    /// the first of these layers.
    plans: Vec<(usize, StepPlan)>,
}

#[derive(Debug)]
struct Layer {
    mask: Mask,
    keys: KvCache,
    /// The index of the first layer whose mask is equal to the mask of this layer. The caches of the two layers have
    /// the same layout and hold the same tokens, so the layers use the same plan.
    like: usize,
}

/// The sizes of a stack (all layers with one kind of attention, such as a decoder's self-attention) and of its
/// key-value caches.
#[derive(Clone, Debug)]
pub(crate) struct StackShape {
    pub(crate) sequences: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Maximum number of tokens that a cache stores for a sequence.
    pub(crate) capacity: usize,
    /// Maximum number of new tokens that each sequence gets in one step.
    pub(crate) ahead: usize,
    pub(crate) dtype: DType,
}

impl StackCache {
    /// Makes the empty key-value caches of a stack (all layers with one kind of attention) whose mask is `mask`.
    pub(crate) fn new(mask: &Mask, facts: Facts, shape: &StackShape) -> Result<Self> {
        let mut layers: Vec<Layer> = Vec::with_capacity(shape.layers);
        for layer in 0..shape.layers {
            let mask = mask.at_layer(layer).simplify();
            let like = layers.iter().position(|other| other.mask == mask).unwrap_or(layer);
            layers.push(Layer { keys: new_cache(shape, window_of(&mask))?, mask, like });
        }
        Ok(StackCache { layers, heads: shape.heads, facts, step: Queries::Each(0), plans: Vec::new() })
    }

    /// Begins a decoding step with the numbers of new tokens in `step`, and discards the plans of the previous step.
    pub(crate) fn begin(&mut self, step: Queries) {
        self.step = step;
        self.plans.clear();
    }

    /// Returns the size of all cached keys and values in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.keys.bytes()).sum()
    }

    /// Appends the keys `k` and the values `v` of this step to the cache of `layer`, and returns the attention of the
    /// queries `q`.
    pub(crate) fn attend(&mut self, layer: usize, [q, k, v]: [&Tensor; 3], options: &Options) -> Result<Tensor> {
        let StackCache { layers, heads, facts, step, plans } = self;
        let like = layers[layer].like;
        layers[layer].keys.append(k, v, step)?;
        let at = match plans.iter().position(|(known, _)| *known == like) {
            Some(at) => at,
            None => {
                let plan = layers[layer].keys.plan(&layers[layer].mask, facts, *heads, step)?;
                plans.push((like, plan));
                plans.len() - 1
            }
        };
        Ok(layers[layer].keys.attention(q, &plans[at].1, options)?)
    }
}

/// Returns (window in tokens, number of sink tokens) if the mask is a sliding window, with or without sink tokens;
/// otherwise `None`. For example, `sliding(8) | causal & keys(0..4)` gives (8, 4).
fn window_of(mask: &Mask) -> Option<(usize, usize)> {
    let sliding = |mask: &Mask| mask.atom_as::<Sliding>().map(|sliding| sliding.window);
    if let Some(window) = sliding(mask) {
        return Some((window, 0));
    }
    let Node::Or(parts) = mask.node() else { return None };
    let [a, b] = &parts[..] else { return None };
    let (window, Node::And(rest)) = sliding(a).map(|w| (w, b.node())).or(sliding(b).map(|w| (w, a.node())))? else {
        return None;
    };
    let causal = rest.iter().any(|part| matches!(part.atom_as(), Some(Causal { offset: 0 })));
    let first = rest.iter().find_map(|part| match part.atom_as() {
        Some(Keys(noren::Positions::Spans(spans))) => match spans[..] {
            [span] if span.start == 0 => span.end,
            _ => None,
        },
        _ => None,
    });
    if causal && rest.len() == 2 { Some((window, first?)) } else { None }
}

/// Makes an empty cache of a layer. `window` is the result of [`window_of`] for the mask of the layer.
fn new_cache(shape: &StackShape, window: Option<(usize, usize)>) -> Result<KvCache> {
    fn make<T: Element>(shape: &StackShape, window: Option<(usize, usize)>) -> Result<noren::KvCache<T>> {
        let kv = KvShape::new(shape.kv_heads, shape.head_dim).sequences(shape.sequences);
        Ok(match window {
            Some((window, sink_tokens)) if window + sink_tokens + shape.ahead < shape.capacity => {
                noren::KvCache::rotating(&kv, Rotating { window, sink_tokens, ahead: shape.ahead })?
            }
            _ => noren::KvCache::contiguous(&kv, shape.capacity)?,
        })
    }
    Ok(match shape.dtype {
        DType::BF16 => KvCache::Bf16(make(shape, window)?),
        DType::F16 => KvCache::F16(make(shape, window)?),
        DType::F32 => KvCache::F32(make(shape, window)?),
        other => return Err(Error::input("dtype", format!("{other:?}"), "caches hold f32, bf16 or f16")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_found_in_masks() {
        let window = |text: &str| window_of(&text.parse::<Mask>().unwrap().simplify());
        assert_eq!(window("sliding(8)"), Some((8, 0)));
        assert_eq!(window("sliding(8) | causal & keys(0..4)"), Some((8, 4)));
        assert_eq!(window("causal & window(left=7)"), Some((8, 0)));
        for other in ["causal", "sliding(8) | causal & keys(2..4)", "sliding(8) | keys(0..4)", "sliding(8) & !keys(3)"]
        {
            assert_eq!(window(other), None, "{other}");
        }
    }
}
