//! [`decode`]: a step of decoding over a cache whose keys are shared out.

use crate::agree::{Said, checked, hex};
use crate::array::{Array, Message, Places};
use crate::inputs::{Local, Options};
use crate::link::exchange;
use crate::merge::Results;
use crate::split::said_of;
use crate::{Attended, Error, Link, Traffic};
use noren::{Dtype, Element, Inputs};
use noren_mask::Plan;
use std::cell::Cell;
use std::ops::Range;

/// Who holds which keys of a cache; queries are everywhere.
///
/// The step of the next token is another `Shards`, with a key more somewhere.
pub struct Shards<'a> {
    link: &'a dyn Link,
    plan: &'a Plan,
    held: Vec<Vec<Range<usize>>>,
    part: Option<Plan>,
    said: Said,
    traffic: Cell<Traffic>,
}

impl<'a> Shards<'a> {
    /// Equal runs of keys, one for each rank. `plan` is that of the step: of `Shape::cached(past, new)`, say.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn new(plan: &'a Plan, link: &'a dyn Link) -> Result<Self, Error> {
        let (len, ranks) = (plan.shape().kv_len(), link.ranks());
        let run = |rank: usize| len * rank / ranks..len * (rank + 1) / ranks;
        Shards::with(plan, (0..ranks).map(|rank| vec![run(rank)]).collect(), link)
    }

    /// For each rank the ranges of keys that it holds, ascending.
    ///
    /// # Errors
    /// Ranges that do not give every key to exactly one rank; a mask without a serial form, as for [`Split::new`](crate::Split::new).
    pub fn with(plan: &'a Plan, held: Vec<Vec<Range<usize>>>, link: &'a dyn Link) -> Result<Self, Error> {
        let (len, ranks) = (plan.shape().kv_len(), link.ranks());
        let mut all: Vec<Range<usize>> = held.iter().flatten().filter(|run| !run.is_empty()).cloned().collect();
        all.sort_by_key(|run| run.start);
        let ends = all.iter().map(|run| run.end);
        let follow = all.iter().map(|run| run.start).eq(std::iter::once(0).chain(ends).take(all.len()));
        let ascend = held.iter().all(|runs| runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
        if held.len() != ranks || !ascend || !follow || all.last().is_none_or(|run| run.end != len) {
            return Err(Error::Input(format!(
                "{held:?} does not give each of {len} keys to one of {ranks} ranks: give every rank ascending ranges, together all"
            )));
        }
        let mine: Vec<Range<usize>> = held[link.rank()].iter().filter(|run| !run.is_empty()).cloned().collect();
        let rows = 0..plan.shape().q_len();
        let select = || Ok::<_, Error>(plan.bound().select([rows], mine.iter().cloned())?.plan());
        let part = if mine.is_empty() { None } else { Some(select()?) };
        let mut said = said_of(plan)?;
        said.push(("keys by rank", format!("{held:?}")));
        Ok(Shards { link, plan, held, part, said, traffic: Cell::default() })
    }

    /// Returns the keys that this rank holds, ascending.
    pub fn keys(&self) -> Vec<usize> {
        self.held[self.link.rank()].iter().cloned().flatten().collect()
    }

    /// What this rank sent and received so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }
}

/// Attention of a few new queries over a cache that is shared out: every rank gets all outputs, to the same bits.
///
/// Of `local`, `q` is that of all ranks, `[batch, heads, new, head_dim]`; `k` and `v` are `[batch, kv_heads, held, ..]`, of the keys
/// that this rank holds, which it alone reads. Outputs and log-sum-exps go to all others, and are merged in the order of ranks.
///
/// # Errors
/// As [`attention`](crate::attention()).
pub fn decode<T: Element>(shards: &Shards<'_>, local: &Local<'_, T>, options: &Options) -> Result<Attended, Error> {
    let (shape, held) = (shards.plan.shape(), shards.keys().len());
    let (batch, heads, kv_heads, new) = (shape.batch_len(), shape.head_count(), shape.kv_head_count(), shape.q_len());
    let sizes = [
        [batch, heads, new, local.head_dim],
        [batch, kv_heads, held, local.head_dim],
        [batch, kv_heads, held, local.v_dim],
    ];
    let call = shards.link.job().call();
    let ([q, k, v], agreements) = checked(shards.link, "a step of decoding", || {
        local.check(sizes, || format!("rank {} holds {held} keys (Shards::keys)", shards.link.rank()))?;
        options.check(shape)?;
        let arrays = local.widened(sizes);
        let mut bytes = Vec::new();
        arrays[0].write(Dtype::F32, &mut bytes);
        let own = [("number of calls so far", format!("{call}")), ("q", hex(bytes))];
        let said = shards.said.iter().cloned().chain(local.said(options)).chain(own).collect();
        Ok((said, arrays))
    })?;
    let whole = [batch, heads, new, local.v_dim];
    let mut mine = Results::nothing(whole);
    if let Some(part) = &shards.part {
        let inputs = Inputs { q: q.view()?, k: k.view()?, v: v.view()? };
        let found = noren::attention(&inputs, part, &options.of_part())?;
        let lse = Array { data: found.lse, shape: [batch, heads, new, 1] };
        mine.add(&Places::All, Array { data: found.out, shape: whole }, lse);
    }
    let mut message = Vec::new();
    mine.out.write(Dtype::F32, &mut message);
    mine.lse.write(Dtype::F32, &mut message);
    let (size, rank) = (message.len(), shards.link.rank());
    let others = || (0..shards.link.ranks()).filter(|other| *other != rank);
    let outgoing: Vec<_> = others().map(|other| (other, message.clone())).collect();
    let expected: Vec<_> = others().map(|other| (other, size)).collect();
    shards.traffic.set(shards.traffic.get().agreed(agreements).moved(&outgoing, &expected));
    let mut results = Results::nothing(whole);
    exchange(shards.link, outgoing, &expected, |arrivals| {
        for other in 0..shards.link.ranks() {
            let (out, lse) = if other == rank {
                (mine.out.clone(), mine.lse.clone())
            } else {
                let bytes = arrivals.take(other)?;
                let mut message = Message(&bytes);
                (message.array(Dtype::F32, whole), message.array(Dtype::F32, [batch, heads, new, 1]))
            };
            results.add(&Places::All, out, lse);
        }
        Ok(())
    })?;
    Ok(Attended { out: results.out.data, lse: results.lse.data, call })
}
