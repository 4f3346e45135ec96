//! [`Split`]: the part of one rank in a planned mask that is partitioned over ranks.
//!
//! A [`Partition`] gives the indices of tokens in the whole sequence. The arrays of a rank contain only the tokens that
//! the rank owns, in ascending order. This module translates indices into *places*, which are positions in a rank's
//! arrays. Batch rows with equal partitions form a *family* and are computed together.

use crate::ranks::agree::{Said, hex};
use crate::ranks::array::Places;
use crate::ranks::inputs::{Local, Options};
use crate::ranks::{Error, Link, Traffic};
use crate::{Partition, Runs, Share, Travel, Wire, count, partition};
use noren::Element;
use noren_mask::{BoundMask, Plan, Shape};

/// A mask that is partitioned over the ranks of a link: the owner of each token, and the cells that this rank computes.
///
/// Every rank makes its split from the same plan, which covers the whole sequence. For a batch row,
/// [`rows`](Self::rows) returns the query rows that this rank owns, and [`keys`](Self::keys) returns its keys.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::*};
/// use noren_dist::ranks::{Split, threads};
/// use std::time::Duration;
///
/// let plan = (causal() & documents_of([6, 2])).bind(&Shape::square(8), &Facts::new())?.plan();
/// let owned = threads(2, Duration::from_secs(5), |link| Split::new(&plan, link).map(|split| split.rows(0).len()));
/// assert_eq!(owned.into_iter().sum::<Result<usize, _>>()?, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Split {
    pub(crate) rank: usize,
    pub(crate) shape: Shape,
    partition: Partition,
    pub(crate) families: Vec<Family>,
    said: Said,
}

/// A set of batch rows that have equal partitions, with the computations of this rank for these batch rows.
pub(crate) struct Family {
    /// The indices of the batch rows in this family (all batch rows with equal partitions).
    pub(crate) batch: Vec<usize>,
    /// The number of queries that this rank owns in each batch row of this family (batch rows with equal partitions).
    pub(crate) queries: usize,
    /// The number of keys that this rank owns in each batch row of this family (batch rows with equal partitions).
    pub(crate) keys: usize,
    pub(crate) steps: Vec<Step>,
    /// The data that this rank sends to each other rank, in ascending order of ranks.
    pub(crate) sends: Vec<Outgoing>,
    /// The data that this rank receives from each other rank, in ascending order of ranks.
    pub(crate) receives: Vec<Incoming>,
    /// The number of query rows, per batch row of this family, that other ranks own and send to this rank.
    pub(crate) foreign: usize,
}

/// One computation of this rank: query rows read keys that one rank owns. Either this rank owns all of these query
/// rows, or other ranks own all of them.
pub(crate) struct Step {
    pub(crate) peer: usize,
    pub(crate) foreign: bool,
    /// The places of the step's query rows, which are indices in a list. If `foreign` is true, the list has all query
    /// rows received from other ranks; otherwise the rows that this rank owns.
    pub(crate) rows: Places,
    /// The places of the step's keys, which are indices in a list. If `peer` is this rank, the list has the keys that
    /// this rank owns; otherwise the keys received from `peer`.
    pub(crate) keys: Places,
    pub(crate) plan: Plan,
}

pub(crate) struct Outgoing {
    pub(crate) peer: usize,
    pub(crate) keys: Places,
    pub(crate) rows: Places,
}

pub(crate) struct Incoming {
    pub(crate) peer: usize,
    /// The number of keys that this rank receives from the rank `peer`.
    pub(crate) keys: usize,
    /// The indices of the query rows from the rank `peer` in the list of all query rows from other ranks.
    pub(crate) rows: Vec<usize>,
}

impl Split {
    /// Splits a plan over the ranks of `link`, with the partition that [`crate::partition`] chooses.
    ///
    /// # Errors
    /// Returns an error if the mask has no serial form, because ranks compare their masks in this form. A mask that a
    /// Rust closure computes, or a part of another mask, has no serial form. Returns an error if there are more ranks
    /// than the partitioner supports.
    pub fn new(plan: &Plan, link: &dyn Link) -> Result<Self, Error> {
        Split::travelling(plan, Travel::Both, link)
    }

    /// Splits a plan as [`new`](Self::new) does. `travel` selects what ranks may send to each other: only keys and
    /// values, or queries too.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn travelling(plan: &Plan, travel: Travel, link: &dyn Link) -> Result<Self, Error> {
        let said = said_of(plan)?;
        let options = crate::Options { ranks: link.ranks(), travel, ..crate::Options::default() };
        Split::made(plan, said, partition(plan, &options)?, link.rank())
    }

    /// Splits a plan over the ranks of `link` with a given partition.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new), and an error if the partition is for another mask, other facts (data
    /// to which the mask is bound) or another number of ranks.
    pub fn with(plan: &Plan, partition: Partition, link: &dyn Link) -> Result<Self, Error> {
        if partition.ranks != link.ranks() {
            let (made, there) = (partition.ranks, link.ranks());
            return Err(Error::Input(format!(
                "the partition is for {made} ranks, but the link has {there} ranks: make a partition for this link"
            )));
        }
        if partition.hash_for(plan.bound()) != partition.hash {
            let problem = "the partition is for another mask, or for other data of the same mask (lengths, documents, ...): make a partition of this plan";
            return Err(Error::Input(problem.to_owned()));
        }
        partition.check(plan.bound())?;
        Split::made(plan, said_of(plan)?, partition, link.rank())
    }

    fn made(plan: &Plan, mut said: Said, partition: Partition, rank: usize) -> Result<Self, Error> {
        said.push(("partition", partition.hash.clone()));
        let families = (0..partition.rows.len())
            .map(|row| Family::new(&partition, row, plan.bound(), rank))
            .collect::<Result<_, _>>()?;
        Ok(Split { rank, shape: plan.shape().clone(), partition, families, said })
    }

    /// Returns the partition of the mask: the owner of each token, and the data that ranks exchange.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Returns the predicted numbers of bytes that this rank sends and receives, in a forward pass and in a backward
    /// pass, `[forward, backward]`. The prediction uses only the partition and these sizes. `element` is the number of
    /// bytes of one element of queries, keys and values.
    pub fn predicted(&self, [head_dim, v_dim]: [usize; 2], element: usize) -> [Traffic; 2] {
        let all = self.partition.traffic(&Wire { head_dim, v_dim, element, partial: 4 })[self.rank];
        let of = |sent, received| Traffic { sent, received, agreements: 0 };
        [of(all.sent, all.received), of(all.backward_sent, all.backward_received)]
    }

    fn share(&self, batch: usize) -> &Share {
        &self.partition.row(batch).shares[self.rank]
    }

    /// Returns whether any rank computes query rows of another rank.
    pub fn queries_travel(&self) -> bool {
        let mut shares = self.partition.rows.iter().flat_map(|row| &row.shares);
        shares.any(|share| share.receives.iter().any(|exchange| !exchange.rows.is_empty()))
    }

    /// Returns the indices of the query rows that this rank owns in the batch row `batch`, in ascending order.
    pub fn rows(&self, batch: usize) -> Vec<usize> {
        indices(&self.share(batch).queries)
    }

    /// Returns the indices of the keys that this rank owns in the batch row `batch`, in ascending order.
    pub fn keys(&self, batch: usize) -> Vec<usize> {
        indices(&self.share(batch).keys)
    }

    /// Returns the lengths of this rank's arrays, `[queries, keys]`: the largest number of query rows, and of keys,
    /// that this rank owns in a batch row.
    pub fn lengths(&self) -> [usize; 2] {
        let most = |of: fn(&Family) -> usize| self.families.iter().map(of).max().unwrap_or(0);
        [most(|f| f.queries), most(|f| f.keys)]
    }

    /// Returns the query rows that this rank owns from a whole array `[batch, heads, q_len, width]`, contiguous. If
    /// this rank owns fewer rows in a batch row than in another batch row, the missing rows are filled with `fill`.
    ///
    /// # Panics
    /// Panics if `whole` does not have this size.
    pub fn take_rows<T: Copy>(&self, whole: &[T], width: usize, fill: T) -> Vec<T> {
        let shape = &self.shape;
        self.take(whole, [shape.head_count(), shape.q_len(), width], self.lengths()[0], fill, |b| self.rows(b))
    }

    /// Returns the rows of the keys that this rank owns from a whole array of keys or values,
    /// `[batch, kv_heads, kv_len, width]`. Missing rows are filled as in [`take_rows`](Self::take_rows).
    ///
    /// # Panics
    /// Panics if `whole` does not have this size.
    pub fn take_keys<T: Copy>(&self, whole: &[T], width: usize, fill: T) -> Vec<T> {
        let shape = &self.shape;
        self.take(whole, [shape.kv_head_count(), shape.kv_len(), width], self.lengths()[1], fill, |b| self.keys(b))
    }

    fn take<T: Copy>(
        &self,
        whole: &[T],
        [heads, len, width]: [usize; 3],
        own: usize,
        fill: T,
        owned: impl Fn(usize) -> Vec<usize>,
    ) -> Vec<T> {
        let batch = self.shape.batch_len();
        assert_eq!(
            whole.len(),
            batch * heads * len * width,
            "the array must have the shape [batch, heads, length, width]"
        );
        let mut out = vec![fill; batch * heads * own * width];
        for b in 0..batch {
            let places = owned(b);
            for h in 0..heads {
                for (i, place) in places.iter().enumerate() {
                    let (from, to) = (((b * heads + h) * len + place) * width, ((b * heads + h) * own + i) * width);
                    out[to..to + width].copy_from_slice(&whole[from..from + width]);
                }
            }
        }
        out
    }

    /// Returns the arguments of a call that must be equal on all ranks, as (name, value). The ranks compare them before they
    /// send arrays.
    pub(crate) fn said<T: Element>(&self, local: &Local<'_, T>, options: &Options) -> Said {
        self.said.iter().cloned().chain(local.said(options)).collect()
    }

    /// Returns an error if `link` belongs to another rank than this split, or has another number of ranks.
    pub(crate) fn check(&self, link: &dyn Link) -> Result<(), Error> {
        let (rank, ranks) = (self.rank, self.partition.ranks);
        match (link.rank(), link.ranks()) == (rank, ranks) {
            true => Ok(()),
            false => Err(Error::Input(format!(
                "the split is for rank {rank} of {ranks}, but the link is rank {} of {}: make the split with this link",
                link.rank(),
                link.ranks()
            ))),
        }
    }

    /// Returns the steps of all families (sets of batch rows with equal partitions), each with the index of its family.
    /// Steps with query rows of this rank come first, so that rows of other ranks have time to arrive. Within each of
    /// these two groups, the steps of a family keep their order.
    pub(crate) fn steps(&self) -> Vec<(usize, &Step)> {
        let all = self.families.iter().enumerate();
        let mut steps: Vec<_> =
            all.flat_map(|(f, family)| family.steps.iter().enumerate().map(move |(n, step)| (n, f, step))).collect();
        steps.sort_by_key(|(n, f, step)| (step.foreign, *n, *f));
        steps.into_iter().map(|(_, f, step)| (f, step)).collect()
    }
}

impl Family {
    fn new(partition: &Partition, row: usize, bound: &BoundMask, rank: usize) -> Result<Self, Error> {
        let batch: Vec<usize> = (0..partition.row_of.len()).filter(|b| partition.row_of[*b] == row).collect();
        let part = bound.select_batch(&batch)?;
        let share = &partition.rows[row].shares[rank];
        let mut foreign: Vec<usize> = share.receives.iter().flat_map(|e| indices(&e.rows)).collect();
        foreign.sort_unstable();
        let (queries, keys) = (indices(&share.queries), indices(&share.keys));
        let received =
            |peer: u32| share.receives.iter().find(|e| e.peer == peer).map_or(Vec::new(), |e| indices(&e.keys));
        let step = |step: &crate::Step| {
            let ranges = |runs: &Runs| runs.iter().map(|[a, z]| *a as usize..*z as usize).collect::<Vec<_>>();
            let held = if step.peer as usize == rank { keys.clone() } else { received(step.peer) };
            Ok(Step {
                peer: step.peer as usize,
                foreign: step.foreign,
                rows: places(&step.rows, if step.foreign { &foreign } else { &queries }),
                keys: places(&step.keys, &held),
                plan: part.select(ranges(&step.rows), ranges(&step.keys))?.plan(),
            })
        };
        let steps = share.steps.iter().filter(|step| !step.rows.is_empty() && !step.keys.is_empty());
        let outgoing = |e: &crate::Exchange| Outgoing {
            peer: e.peer as usize,
            keys: places(&e.keys, &keys),
            rows: places(&e.rows, &queries),
        };
        let incoming = |e: &crate::Exchange| Incoming {
            peer: e.peer as usize,
            keys: count(&e.keys) as usize,
            rows: at(&indices(&e.rows), &foreign),
        };
        Ok(Family {
            queries: queries.len(),
            keys: keys.len(),
            steps: steps.map(step).collect::<Result<_, Error>>()?,
            sends: share.sends.iter().map(outgoing).collect(),
            receives: share.receives.iter().map(incoming).collect(),
            foreign: foreign.len(),
            batch,
        })
    }

    /// Returns the data that this rank sends to the rank `peer`; `None` if it sends nothing.
    pub(crate) fn to(&self, peer: usize) -> Option<&Outgoing> {
        self.sends.iter().find(|message| message.peer == peer)
    }

    /// Returns the data that this rank receives from the rank `peer`; `None` if it receives nothing.
    pub(crate) fn from(&self, peer: usize) -> Option<&Incoming> {
        self.receives.iter().find(|message| message.peer == peer)
    }
}

fn indices(runs: &Runs) -> Vec<usize> {
    runs.iter().flat_map(|[start, end]| *start as usize..*end as usize).collect()
}

/// Returns, for each number in `wanted`, its index in the list `held`. For example, `wanted` = `[5, 7]` and `held` =
/// `[3, 5, 7]` give `[1, 2]`. Both lists are ascending.
fn at(wanted: &[usize], held: &[usize]) -> Vec<usize> {
    wanted.iter().map(|index| held.partition_point(|other| other < index)).collect()
}

fn places(wanted: &Runs, held: &[usize]) -> Places {
    let wanted = indices(wanted);
    if wanted == held { Places::All } else { Places::At(at(&wanted, held)) }
}

/// Returns the values of a plan that ranks compare, as (name, value): the mask, the shape, and a digest of the facts
/// (data to which the mask is bound).
///
/// # Errors
/// Returns an error if the mask has no serial form: a mask that a Rust closure computes, or a part of another mask.
pub(crate) fn said_of(plan: &Plan) -> Result<Said, Error> {
    let bound = plan.bound();
    let facts = hex(bound.to_json()?);
    Ok(vec![("mask", bound.mask().to_string()), ("shape", format!("{:?}", plan.shape())), ("facts", facts)])
}
