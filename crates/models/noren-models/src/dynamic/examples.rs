//! Four generators of masks: [`ByToken`] hides given tokens, [`DomainVocabulary`] separates domains, [`Sensitivity`]
//! hides tokens of higher clearance levels, and [`TopBlocks`] selects keys by estimated scores.

use super::{DynamicCall, DynamicMask, MaskGenerator};
use crate::error::{Error, Result};
use noren::noren_mask::Span;
use noren::{Array, Positions, atoms};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A generator that hides some tokens from all other tokens, for example names of products or markup.
#[derive(Clone, Debug, Default)]
pub struct ByToken {
    /// The ids of the hidden tokens.
    pub hidden: HashSet<u32>,
}

impl MaskGenerator for ByToken {
    fn mask(&self, call: &DynamicCall<'_>) -> Result<DynamicMask> {
        let facts = call.facts.clone().label_rows("hidden-by-token", spans(call, |id| self.hidden.contains(&id)));
        let visible = !atoms::keys(Positions::label("hidden-by-token"));
        // A token without any key would have no state of its own, so it reads itself.
        Ok(DynamicMask { mask: visible | atoms::window(0, 0), facts })
    }
}

/// A generator for texts about several domains. A token of a domain reads tokens of the same domain and tokens of no
/// domain. A token of no domain reads only tokens of no domain.
///
/// In a text about two subjects, each subject is read as if the words of the other subject were missing.
#[derive(Clone, Debug, Default)]
pub struct DomainVocabulary {
    /// The token ids of each domain, by the name of the domain.
    pub domains: BTreeMap<String, HashSet<u32>>,
}

impl MaskGenerator for DomainVocabulary {
    fn mask(&self, call: &DynamicCall<'_>) -> Result<DynamicMask> {
        let mut facts = call.facts.clone();
        let mut mask = atoms::full();
        for (name, tokens) in &self.domains {
            let label = format!("domain-{name}");
            facts = facts.label_rows(&label, spans(call, |id| tokens.contains(&id)));
            // Tokens of a domain are read only by tokens of the same domain.
            mask &= !atoms::keys(Positions::label(&label)) | atoms::queries(Positions::label(&label));
        }
        Ok(DynamicMask { mask, facts })
    }
}

/// A generator for tokens with clearance levels. A token reads tokens of its own level and of lower levels. A token
/// with a level above `clearance` is read only by itself.
#[derive(Clone, Debug, Default)]
pub struct Sensitivity {
    /// The level of each token id [default: 0].
    pub levels: HashMap<u32, i64>,
    /// The highest level that the reader of the model's output may see. A token of a higher level is read only by
    /// itself.
    pub clearance: i64,
}

impl MaskGenerator for Sensitivity {
    fn mask(&self, call: &DynamicCall<'_>) -> Result<DynamicMask> {
        let level = |id: &u32| self.levels.get(id).copied().unwrap_or(0);
        let rows: Vec<Vec<i64>> = call.tokens.iter().map(|row| row.iter().map(level).collect()).collect();
        let above = spans(call, |id| level(&id) > self.clearance);
        let facts = call.facts.clone().levels(rows).label_rows("above-clearance", above);
        let hidden = !atoms::keys(Positions::label("above-clearance")) | atoms::window(0, 0);
        Ok(DynamicMask { mask: atoms::clearance() & hidden, facts })
    }
}

/// A generator for block-sparse attention. Queries and keys are divided into blocks of `block` tokens. Each block of
/// queries reads `count` blocks of keys: the block at its own position, and the blocks with the largest upper bounds of
/// scores.
///
/// The upper bound is computed as in Quest (Tang et al. 2024), from the smallest and the largest value of each
/// dimension among the keys of a block. The bound is at least as large as `q . k` of every key in the block. The bounds
/// need `q_len * kv_len / block` products of vectors; full attention needs `q_len * kv_len`.
#[derive(Clone, Copy, Debug)]
pub struct TopBlocks {
    /// Number of queries in a query block, and of keys in a key block.
    pub block: usize,
    /// Number of key blocks that each block of queries reads, including the block at its own position.
    pub count: usize,
}

impl MaskGenerator for TopBlocks {
    fn mask(&self, call: &DynamicCall<'_>) -> Result<DynamicMask> {
        if self.block == 0 || self.count == 0 {
            let given = format!("{} blocks of {} keys", self.count, self.block);
            return Err(Error::input("TopBlocks", given, "give at least one block of at least one key"));
        }
        let (q_len, kv_len) = (call.shape.q_len(), call.shape.kv_len());
        let bounds = self.bounds(call)?;
        let mut facts = call.facts.clone();
        let mut rows = Vec::new();
        for (b, heads) in bounds.iter().enumerate() {
            let mut arms = Vec::new();
            for (h, scores) in heads.iter().enumerate() {
                let first = call.shape.query_offset(b).max(0) as usize;
                let chosen = scores.iter().enumerate().flat_map(|(i, row)| {
                    let own = (first + i * self.block) / self.block;
                    self.best(row, own).into_iter().map(move |k| (i, k as usize))
                });
                let chosen: Vec<(usize, usize)> = chosen.collect();
                let name = format!("top-blocks-{b}-{h}");
                let blocks = Array::blocks(q_len, kv_len, (self.block, self.block), &chosen)?;
                facts = facts.array(&name, blocks);
                arms.push((h, atoms::dense(name)));
            }
            rows.push((b, atoms::heads(arms)));
        }
        Ok(DynamicMask { mask: atoms::batch(rows), facts })
    }
}

impl TopBlocks {
    /// Returns the indices of `count` key blocks for one block of queries. `row` has the upper bound of scores for each
    /// key block, and `own` is the index of the key block at the queries' own position. Block `own` is always selected,
    /// then the earlier blocks with the largest bounds. Later blocks are selected only if there are too few earlier
    /// blocks, because causal masks hide later blocks.
    fn best(&self, row: &[f32], own: usize) -> Vec<u32> {
        let mut order: Vec<usize> = (0..row.len()).filter(|k| *k != own).collect();
        order.sort_by(|a, b| (a > &own).cmp(&(b > &own)).then(row[*b].total_cmp(&row[*a])).then(a.cmp(b)));
        let own = Some(own).filter(|own| *own < row.len());
        own.into_iter().chain(order).take(self.count).map(|k| k as u32).collect()
    }

    /// Returns an upper bound of the scores for each pair of a query block and a key block, as
    /// `[batch row][head][query block][key block]`.
    fn bounds(&self, call: &DynamicCall<'_>) -> Result<Vec<Vec<Vec<Vec<f32>>>>> {
        let (q, k) = (call.queries.detach().to_dtype(candle_core::DType::F32)?, call.spread_keys()?);
        let q_rows = q.flatten(0, 1)?.to_vec3::<f32>()?;
        let k_rows = k.flatten(0, 1)?.to_vec3::<f32>()?;
        let heads = call.shape.head_count();
        let one = |(queries, keys): (&Vec<Vec<f32>>, &Vec<Vec<f32>>)| -> Vec<Vec<f32>> {
            let boxes: Vec<Vec<(f32, f32)>> = keys.chunks(self.block).map(extent).collect();
            let bound = |block: &[Vec<f32>], extent: &Vec<(f32, f32)>| {
                let of =
                    |q: &Vec<f32>| q.iter().zip(extent).map(|(q, (low, high))| (q * low).max(q * high)).sum::<f32>();
                block.iter().map(of).fold(f32::NEG_INFINITY, f32::max)
            };
            queries.chunks(self.block).map(|block| boxes.iter().map(|extent| bound(block, extent)).collect()).collect()
        };
        let all: Vec<Vec<Vec<f32>>> = q_rows.iter().zip(&k_rows).map(one).collect();
        Ok(all.chunks(heads).map(<[_]>::to_vec).collect())
    }
}

/// Returns the smallest and the largest value of each dimension over all `keys`, as (smallest, largest).
fn extent(keys: &[Vec<f32>]) -> Vec<(f32, f32)> {
    let width = keys.first().map_or(0, Vec::len);
    let of = |d: usize| {
        keys.iter()
            .map(|key| key[d])
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    (0..width).map(of).collect()
}

/// Returns for each batch row the indices of the tokens whose id satisfies `wanted`. Each index is one [`Span`].
fn spans(call: &DynamicCall<'_>, wanted: impl Fn(u32) -> bool) -> Vec<Vec<Span>> {
    let row =
        |ids: &Vec<u32>| (0usize..).zip(ids).filter(|(_, id)| wanted(**id)).map(|(at, _)| Span::from(at)).collect();
    call.tokens.iter().map(row).collect()
}
