//! [`Partition`]: the owners of tokens, the ranks that compute cells, and the data that ranks exchange.
//!
//! A partition moves no data. A program that executes it (an executor) runs on every rank, reads the [`Share`] of its
//! rank, and does this for every batch row:
//!
//! 1. sends the data listed in `sends` (keys and values of `keys`, queries of `rows`), and receives the data listed in
//!    `receives`;
//! 2. computes `steps` in order, each the allowed cells of `rows` x `keys`. The results of a row are merged by
//!    log-sum-exp in the order of the steps. A rank holds one result for each row that it computes, including rows of
//!    other ranks;
//! 3. sends the results (output and log-sum-exp) of other ranks' rows back to the owners of the rows. These are the
//!    `rows` listed in `receives`;
//! 4. merges the results that come back from peers into the rows that it owns, after its own steps, in ascending order
//!    of ranks.
//!
//! The backward pass sends data between the same ranks. Keys and values are sent as in the forward pass. Queries are
//! sent with the gradients of their outputs, their log-sum-exps and row sums (the dot product of each output row with
//! its gradient). The partial gradients of keys and queries are sent back to the owners of the keys and queries. An
//! owner adds them to its own gradients in ascending order of ranks. Every sum therefore has a fixed order, whichever
//! message arrives first.

pub(crate) mod check;
pub(crate) mod export;
pub(crate) mod layout;
pub(crate) mod runs;
pub(crate) mod strips;
pub(crate) mod wire;

use crate::Error;
use crate::partition::runs::{Runs, count};
use hmac_sha256::Hash;
use noren_mask::text::hex;
use noren_mask::{BoundMask, Shape};
use serde::{Deserialize, Serialize};

/// The version of the format in which partitions are stored.
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
    /// The version of the format in which the partition is stored, [`VERSION`].
    pub version: u32,
    /// SHA-256 of the mask with its shape and its facts (data to which the mask is bound), of all fields below, and of
    /// the versions of this format and of this crate. Ranks compare their hashes before the first exchange.
    pub hash: String,
    /// The name of the method that made the partition: `zigzag`, `documents`, ...; `by batch row` if the batch rows
    /// were split by different methods.
    pub method: String,
    /// The kind of data that ranks send to each other, besides results and gradients.
    pub travel: Travel,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes. Rank `r` belongs to node `r * nodes / ranks`, rounded down.
    pub nodes: usize,
    /// The sizes of the mask, `[batch, heads, kv_heads, q_len, kv_len]`.
    pub shape: [usize; 5],
    /// For each batch row, the index of its split in `rows`. Equal batch rows share one split.
    pub row_of: Vec<usize>,
    /// The splits of the distinct batch rows.
    pub rows: Vec<RowPartition>,
}

/// The kind of data that ranks send to each other, besides results and gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Travel {
    /// Ranks send only keys and values. The owner of a query row computes all cells of the row.
    Keys,
    /// Ranks send keys, values and queries. A rank may compute query rows of other ranks; it sends the results back to
    /// the owners.
    #[default]
    Both,
}

/// The split of one batch row. The split is the same for all heads; each head is computed with its own mask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPartition {
    /// The share of each rank: its tokens, its steps, and the data that it receives and sends.
    pub shares: Vec<Share>,
}

/// The part of one rank in the split of a batch row: the queries and keys that the rank owns, its steps, and the data
/// that it receives and sends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Query rows that the rank owns.
    pub queries: Runs,
    /// Keys that the rank owns; in self-attention, the keys of the tokens of `queries`.
    pub keys: Runs,
    /// The steps (rectangles of query rows x keys that the rank computes), in the order in which the rank merges their
    /// results.
    pub steps: Vec<Step>,
    /// The data that the rank receives before it computes: one exchange for each rank that sends data, in ascending
    /// order of ranks.
    pub receives: Vec<Exchange>,
    /// The data that the rank sends: one exchange for each rank that receives data, in ascending order of ranks.
    pub sends: Vec<Exchange>,
}

/// One computation of a rank: the allowed cells of the rectangle `rows` x `keys`. One step holds only rows that the
/// rank owns, or only rows of other ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The rank that owns the keys of the step.
    pub peer: u32,
    /// True if other ranks own the query rows of the step. The computing rank has then received the queries.
    pub foreign: bool,
    /// Query rows of the step.
    pub rows: Runs,
    /// Keys of the step.
    pub keys: Runs,
}

/// The data that one rank sends to another rank. The sender lists it in `sends`, the receiver in `receives`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The rank at the other end of the exchange: the sender in `receives`, the receiver in `sends`.
    pub peer: u32,
    /// The keys that are sent, with their values.
    pub keys: Runs,
    /// The query rows that are sent. Their results are sent back after the computation.
    pub rows: Runs,
}

impl Share {
    /// Returns the number of tokens that the rank owns. If the numbers of query rows and of keys differ, the larger
    /// number is returned.
    pub fn tokens(&self) -> u64 {
        count(&self.queries).max(count(&self.keys))
    }
}

impl Partition {
    /// Returns this partition with its hash for the mask `bound`.
    pub(crate) fn hashed(self, bound: &BoundMask) -> Self {
        Partition { hash: self.hash_for(bound), ..self }
    }

    /// Returns the split of batch row `batch`.
    ///
    /// # Panics
    /// Panics if `batch` is outside the batch.
    pub fn row(&self, batch: usize) -> &RowPartition {
        &self.rows[self.row_of[batch]]
    }

    /// Returns the index of the node (machine) to which a rank belongs.
    pub fn node_of(&self, rank: u32) -> usize {
        rank as usize * self.nodes / self.ranks
    }

    /// Returns the partition as JSON in one line. [`from_json`](Self::from_json) reads this text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written as JSON")
    }

    /// Reads a partition from JSON, and checks that its hash belongs to the mask `bound`, that its steps cover all
    /// allowed cells, and that ranks receive all data that they need.
    ///
    /// # Errors
    /// Returns an error for text that is no partition, for another version, for another mask, and for a partition that
    /// [`check`](Self::check) refuses.
    pub fn from_json(text: &str, bound: &BoundMask) -> Result<Self, Error> {
        let out: Partition = serde_json::from_str(text).map_err(|e| Error::Partition(e.to_string()))?;
        if out.version != VERSION {
            let problem = format!(
                "the partition has version {}, but version {VERSION} is expected: partition the mask again",
                out.version
            );
            return Err(Error::Partition(problem));
        }
        out.check(bound)?;
        let hash = out.hash_for(bound);
        match hash == out.hash {
            true => Ok(out),
            false => Err(Error::Partition(format!(
                "the hash of the partition is {}, but this mask and split have {hash}: partition the mask again",
                out.hash
            ))),
        }
    }

    /// Returns the correct hash of this partition for the mask `bound`. If the field `hash` differs from it, the
    /// partition was changed or belongs to another mask.
    pub fn hash_for(&self, bound: &BoundMask) -> String {
        let mut hash = Hash::new();
        // A closure has no serial form, so its text in the mask is used.
        let mask = bound.to_json().unwrap_or_else(|_| format!("{} {:?}", bound.mask(), bound.shape()));
        let Partition { version, hash: _, method, travel, ranks, nodes, shape, row_of, rows } = self;
        let split = serde_json::to_string(&(version, method, travel, ranks, nodes, shape, row_of, rows));
        for part in [env!("CARGO_PKG_VERSION"), &mask, &split.expect("numbers and texts can be written as JSON")] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hex(&hash.finalize())
    }
}

pub(crate) fn sizes(shape: &Shape) -> [usize; 5] {
    [shape.batch_len(), shape.head_count(), shape.kv_head_count(), shape.q_len(), shape.kv_len()]
}
