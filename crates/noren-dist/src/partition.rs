//! [`Partition`]: who owns which tokens, who computes which cells, and what travels for it.
//!
//! Nothing here moves data. An executor reads its own [`Share`] and does, for every batch row:
//!
//! 1. send what `sends` says: keys and values of `keys`, queries of `rows`; receive what `receives` says;
//! 2. compute `steps` in order, each the allowed cells of `rows` x `keys`, and merge the results of a row by log-sum-exp in
//!    that order, from the first step on; a rank holds one result for each row it computes, its own or foreign;
//! 3. send back the result (output and log-sum-exp) of every foreign row to its owner: what `receives` lists as `rows`;
//! 4. merge what comes back into its own rows: peers ascending by rank, after its own steps.
//!
//! Backward goes the same ways: keys and values travel as before, and beside the queries go the gradients of their outputs,
//! log-sum-exps and row sums; the partial gradients of keys travel back to their owners, those of queries too, and an owner
//! adds them to its own in ascending order of ranks. So every sum has one order, whatever arrives first.

use crate::Error;
use crate::runs::{Runs, count};
use hmac_sha256::Hash;
use noren_mask::text::hex;
use noren_mask::{BoundMask, Shape};
use serde::{Deserialize, Serialize};

/// The version of the form that partitions are written in.
pub const VERSION: u32 = 1;

/// A split of one bound mask over ranks.
///
/// ```
/// use noren_dist::{Options, partition};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let bound = (causal() & documents_of([6, 2])).bind(&Shape::square(8), &Facts::new())?;
/// let split = partition(&bound.plan(), &Options { ranks: 2, ..Options::default() })?;
/// assert_eq!(split.rows[0].shares.len(), 2);
/// split.check(&bound)?; // every allowed cell in exactly one step, by a rank that holds what it needs
/// # Ok::<(), noren_dist::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// The version of this form, [`VERSION`].
    pub version: u32,
    /// SHA-256 of the mask with its shape and facts, of everything below, and of the versions of this form and of this crate:
    /// ranks that compare it before the first exchange agree on all of it.
    pub hash: String,
    /// How it was made: `zigzag`, `documents`, ...
    pub method: String,
    /// What travels beside results and gradients.
    pub travel: Travel,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes; ranks `(n * ranks).div_ceil(nodes)..` live on node `n`.
    pub nodes: usize,
    /// `[batch, heads, kv_heads, q_len, kv_len]`.
    pub shape: [usize; 5],
    /// For each batch row, which of `rows` holds for it. Rows that are alike share one.
    pub row_of: Vec<usize>,
    /// The distinct batch rows.
    pub rows: Vec<RowPartition>,
}

/// What travels between ranks besides results and gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Travel {
    /// Keys only: each query row is computed by its owner.
    Keys,
    /// Keys and queries: a rank may compute rows of others, whose results go back to the owners.
    #[default]
    Both,
}

/// The split of one batch row; all its heads are computed alike, each by its own mask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPartition {
    /// By rank.
    pub shares: Vec<Share>,
}

/// What one rank owns, computes, sends and receives.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Query rows that it owns.
    pub queries: Runs,
    /// Keys that it owns; in self-attention those of the same tokens.
    pub keys: Runs,
    /// What it computes, in the order in which results are merged.
    pub steps: Vec<Step>,
    /// What it receives before it computes, by peer, ascending.
    pub receives: Vec<Exchange>,
    /// What it sends, by peer, ascending.
    pub sends: Vec<Exchange>,
}

/// The allowed cells of `rows` x `keys`: all rows are the rank's own, or all are of others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The owner of the keys.
    pub peer: u32,
    /// Whether the rows belong to others (and their queries were received).
    pub foreign: bool,
    /// Query rows.
    pub rows: Runs,
    /// Keys.
    pub keys: Runs,
}

/// What goes one way between two ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The other rank.
    pub peer: u32,
    /// Keys and values of these keys.
    pub keys: Runs,
    /// Queries of these rows; their results go back the other way.
    pub rows: Runs,
}

impl Share {
    /// Tokens that it owns: the larger of query rows and keys.
    pub fn tokens(&self) -> u64 {
        count(&self.queries).max(count(&self.keys))
    }
}

impl Partition {
    /// The parts put together, with their hash.
    pub(crate) fn new(bound: &BoundMask, head: Head, row_of: Vec<usize>, rows: Vec<RowPartition>) -> Self {
        let shape = bound.shape();
        let mut out = Partition {
            version: VERSION,
            hash: String::new(),
            method: head.method,
            travel: head.travel,
            ranks: head.ranks,
            nodes: head.nodes,
            shape: sizes(shape),
            row_of,
            rows,
        };
        out.hash = out.hash_for(bound);
        out
    }

    /// The split of batch row `batch`.
    ///
    /// # Panics
    /// When there is no such batch row.
    pub fn row(&self, batch: usize) -> &RowPartition {
        &self.rows[self.row_of[batch]]
    }

    /// The node on which a rank lives.
    pub fn node_of(&self, rank: u32) -> usize {
        rank as usize * self.nodes / self.ranks
    }

    /// As one line of JSON, which [`from_json`](Self::from_json) reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text have a JSON form")
    }

    /// Reads a partition and holds it against the mask it is for: the hash, the cover, and that everything is there.
    ///
    /// # Errors
    /// Text that is no partition, another version, another mask, and what [`check`](Self::check) refuses.
    pub fn from_json(text: &str, bound: &BoundMask) -> Result<Self, Error> {
        let out: Partition = serde_json::from_str(text).map_err(|e| Error::Partition(e.to_string()))?;
        if out.version != VERSION {
            let problem =
                format!("version {} is given, but {VERSION} is read here: partition the mask again", out.version);
            return Err(Error::Partition(problem));
        }
        out.check(bound)?;
        let hash = out.hash_for(bound);
        match hash == out.hash {
            true => Ok(out),
            false => Err(Error::Partition(format!(
                "its hash {} is not that of this mask and split ({hash}): partition the mask again",
                out.hash
            ))),
        }
    }

    /// The hash that this partition of `bound` has.
    pub fn hash_for(&self, bound: &BoundMask) -> String {
        let mut hash = Hash::new();
        // a closure has no serial form: the mask's text must do
        let mask = bound.to_json().unwrap_or_else(|_| format!("{} {:?}", bound.mask(), bound.shape()));
        let head =
            (env!("CARGO_PKG_VERSION"), VERSION, &self.method, self.travel, [self.ranks, self.nodes], self.shape);
        for part in [mask, format!("{head:?} {:?}", self.row_of)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let mut words: Vec<u32> = Vec::new();
        for share in self.rows.iter().flat_map(|row| &row.shares) {
            share.words(&mut words);
            let bytes: Vec<u8> = words.drain(..).flat_map(u32::to_le_bytes).collect();
            hash.update(bytes);
        }
        hex(&hash.finalize())
    }
}

/// What a partition says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) travel: Travel,
    pub(crate) ranks: usize,
    pub(crate) nodes: usize,
}

pub(crate) fn sizes(shape: &Shape) -> [usize; 5] {
    [shape.batch_len(), shape.head_count(), shape.kv_head_count(), shape.q_len(), shape.kv_len()]
}

impl Share {
    /// Everything in it as numbers, every list after its length.
    fn words(&self, out: &mut Vec<u32>) {
        let list = |out: &mut Vec<u32>, runs: &Runs| {
            out.push(runs.len() as u32);
            out.extend(runs.iter().flatten());
        };
        list(out, &self.queries);
        list(out, &self.keys);
        out.push(self.steps.len() as u32);
        for step in &self.steps {
            out.extend([step.peer, u32::from(step.foreign)]);
            list(out, &step.rows);
            list(out, &step.keys);
        }
        for exchanges in [&self.receives, &self.sends] {
            out.push(exchanges.len() as u32);
            for exchange in exchanges {
                out.push(exchange.peer);
                list(out, &exchange.keys);
                list(out, &exchange.rows);
            }
        }
    }
}
