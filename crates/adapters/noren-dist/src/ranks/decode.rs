//! [`decode`]: a decoding step over a key-value cache whose keys are split over ranks.

use crate::ranks::agree::{Said, checked, hex};
use crate::ranks::array::{Array, Message, Places};
use crate::ranks::inputs::{Local, Options};
use crate::ranks::link::gather;
use crate::ranks::merge::Results;
use crate::ranks::split::said_of;
use crate::ranks::{Attended, Error, Link};
use noren::{Dtype, Element, Inputs};
use noren_mask::{Plan, Shape};
use std::ops::Range;

/// A decoding step: its plan, and the keys of the cache that each rank stores. Every rank has all queries.
///
/// A decoding step needs a new `Shards` for each new token, because one rank stores the key of the new token.
pub struct Shards {
    rank: usize,
    shape: Shape,
    held: Vec<Vec<Range<usize>>>,
    part: Option<Plan>,
    said: Said,
}

impl Shards {
    /// Splits the keys of the cache into consecutive runs, one for each rank. The lengths of the runs differ by at most
    /// 1. `plan` is the plan of the step, for example for the shape `Shape::cached(past, new)`.
    ///
    /// # Errors
    /// Returns the errors of [`with`](Self::with).
    pub fn new(plan: &Plan, link: &dyn Link) -> Result<Self, Error> {
        let (len, ranks) = (plan.shape().kv_len(), link.ranks());
        let run = |rank: usize| len * rank / ranks..len * (rank + 1) / ranks;
        Shards::with(plan, (0..ranks).map(|rank| vec![run(rank)]).collect(), link)
    }

    /// Splits the keys of the cache as `held` defines: `held[rank]` is the list of ranges of keys that the rank `rank`
    /// stores, in ascending order.
    ///
    /// # Errors
    /// Returns an error if a key is not on exactly one rank, and for masks without a serial form (see
    /// [`Split::new`](crate::ranks::Split::new)).
    pub fn with(plan: &Plan, held: Vec<Vec<Range<usize>>>, link: &dyn Link) -> Result<Self, Error> {
        let (len, ranks) = (plan.shape().kv_len(), link.ranks());
        let mut all: Vec<Range<usize>> = held.iter().flatten().filter(|run| !run.is_empty()).cloned().collect();
        all.sort_by_key(|run| run.start);
        let ends = all.iter().map(|run| run.end);
        let follow = all.iter().map(|run| run.start).eq(std::iter::once(0).chain(ends).take(all.len()));
        let ascend = held.iter().all(|runs| runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
        if held.len() != ranks || !ascend || !follow || all.last().is_none_or(|run| run.end != len) {
            return Err(Error::Input(format!(
                "{held:?} does not give each of {len} keys to one of {ranks} ranks: assign each key to exactly one \
                 rank, as ascending ranges for each rank"
            )));
        }
        let mine: Vec<Range<usize>> = held[link.rank()].iter().filter(|run| !run.is_empty()).cloned().collect();
        let rows = 0..plan.shape().q_len();
        let select = || Ok::<_, Error>(plan.bound().select([rows], mine.iter().cloned())?.plan());
        let part = if mine.is_empty() { None } else { Some(select()?) };
        let mut said = said_of(plan)?;
        said.push(("keys by rank", format!("{held:?}")));
        Ok(Shards { rank: link.rank(), shape: plan.shape().clone(), held, part, said })
    }

    /// Returns the ranges of keys that each rank stores, in the order of ranks.
    pub fn held(&self) -> &[Vec<Range<usize>>] {
        &self.held
    }

    /// Returns the indices of the keys that this rank stores, in ascending order.
    pub fn keys(&self) -> Vec<usize> {
        self.held[self.rank].iter().cloned().flatten().collect()
    }
}

/// Returns the attention of a few new queries over a key-value cache that is split over ranks. Every rank gets all
/// outputs, and the outputs have the same bits on all ranks.
///
/// In `local`, `q` is `[batch, heads, new, head_dim]` and must be equal on all ranks. `k` and `v` are the keys and
/// values that this rank stores, `[batch, kv_heads, stored keys, head_dim]` and `[.., v_dim]`; they are not sent. The
/// partial outputs and log-sum-exps of each rank are sent to all other ranks and merged in the order of ranks.
///
/// # Errors
/// Returns the errors of [`attention`](crate::ranks::attention()).
pub fn decode<T: Element>(
    shards: &Shards,
    link: &dyn Link,
    local: &Local<'_, T>,
    options: &Options,
) -> Result<Attended, Error> {
    let (shape, held) = (&shards.shape, shards.keys().len());
    let (batch, heads, kv_heads, new) = (shape.batch_len(), shape.head_count(), shape.kv_head_count(), shape.q_len());
    let sizes = [
        [batch, heads, new, local.head_dim],
        [batch, kv_heads, held, local.head_dim],
        [batch, kv_heads, held, local.v_dim],
    ];
    let call = link.job().call();
    let [q, k, v] = checked(link, "a step of decoding", || {
        if (link.rank(), link.ranks()) != (shards.rank, shards.held.len()) {
            let problem =
                "the shards were made for another rank or another number of ranks: make the shards with this link";
            return Err(Error::Input(problem.to_owned()));
        }
        local.check(sizes, || format!("rank {} holds {held} keys (Shards::keys)", shards.rank))?;
        options.check(shape)?;
        let arrays = local.part(sizes, &(0..batch).collect::<Vec<_>>(), [new, held]);
        let mut bytes = Vec::new();
        arrays[0].write(Dtype::F32, &mut bytes);
        let own = [("number of calls", format!("{call}")), ("q", hex(bytes))];
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
    let mut results = Results::nothing(whole);
    for bytes in gather(link, message)? {
        let mut message = Message(&bytes);
        let (out, lse) = (message.array(Dtype::F32, whole), message.array(Dtype::F32, [batch, heads, new, 1]));
        results.add(&Places::All, out, lse);
    }
    Ok(Attended { out: results.out.data, lse: results.lse.data, call })
}
