//! [`Wire`]: the sizes from which the bytes of sent data follow; [`Traffic`]: the bytes that a rank receives and sends.

use crate::partition::runs::count;
use crate::partition::{Exchange, Partition, Share};
use serde::{Deserialize, Serialize};

/// The sizes of heads and numbers, from which the bytes of sent data follow:
///
/// | what | bytes |
/// |---|---|
/// | a key with its value | `kv_heads * (head_dim + v_dim) * element` |
/// | a query row | `heads * head_dim * element` |
/// | a result row: output and log-sum-exp | `heads * (v_dim * partial + 4)` |
/// | backward: the key with its value again, and its gradients when they are sent back | `kv_heads * (head_dim + v_dim) * (element + partial)` |
/// | backward: a query row with its output's gradient, log-sum-exp and row sum | `heads * ((head_dim + v_dim) * element + 8)` |
/// | backward: a query's gradient when it is sent back | `heads * head_dim * partial` |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Number of components of a key or query of one head.
    pub head_dim: usize,
    /// Number of components of a value of one head.
    pub v_dim: usize,
    /// Bytes of one component of queries, keys and values.
    pub element: usize,
    /// Bytes of one component of partial results and partial gradients.
    pub partial: usize,
}

impl Default for Wire {
    /// Returns the sizes for heads of 128 components in bf16, with partial results in f32.
    fn default() -> Self {
        Wire { head_dim: 128, v_dim: 128, element: 2, partial: 4 }
    }
}

/// The bytes of one key with its value, of one query, of one result, and of their gradients, each over all heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) key: u64,
    pub(crate) query: u64,
    pub(crate) result: u64,
    pub(crate) key_again: u64,
    pub(crate) key_gradient: u64,
    pub(crate) query_again: u64,
    pub(crate) query_gradient: u64,
}

impl Wire {
    /// Returns the bytes of a key, a query and a result for `heads` query heads and `kv_heads` key-value heads.
    pub(crate) fn sizes(&self, heads: usize, kv_heads: usize) -> Sizes {
        let (h, kv, d, both) =
            (heads as u64, kv_heads as u64, self.head_dim as u64, (self.head_dim + self.v_dim) as u64);
        let (e, p) = (self.element as u64, self.partial as u64);
        Sizes {
            key: kv * both * e,
            query: h * d * e,
            result: h * (self.v_dim as u64 * p + 4),
            key_again: kv * both * e,
            key_gradient: kv * both * p,
            query_again: h * (both * e + 8),
            query_gradient: h * d * p,
        }
    }
}

/// Bytes that one rank receives and sends in one forward and one backward pass of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes received in the forward pass: keys and queries of other ranks, and results that other ranks computed for
    /// query rows of this rank.
    pub received: u64,
    /// Bytes sent in the forward pass.
    pub sent: u64,
    /// Bytes received in the backward pass.
    pub backward_received: u64,
    /// Bytes sent in the backward pass.
    pub backward_sent: u64,
    /// Number of ranks with which the rank exchanges data.
    pub peers: u32,
}

impl Sizes {
    /// Returns the bytes of an exchange, `[data sent forward, results sent back, data sent backward, gradients sent
    /// back]`.
    pub(crate) fn of(&self, exchange: &Exchange) -> [u64; 4] {
        let (keys, rows) = (count(&exchange.keys), count(&exchange.rows));
        [
            keys * self.key + rows * self.query,
            rows * self.result,
            keys * self.key_again + rows * self.query_again,
            keys * self.key_gradient + rows * self.query_gradient,
        ]
    }

    /// Returns the bytes that a rank sends and receives, summed over all exchanges in `share`.
    pub(crate) fn traffic(&self, share: &Share) -> Traffic {
        let mut out = Traffic::default();
        for exchange in &share.receives {
            let [there, back, again, gradients] = self.of(exchange);
            out.received += there;
            out.sent += back;
            out.backward_received += again;
            out.backward_sent += gradients;
        }
        for exchange in &share.sends {
            let [there, back, again, gradients] = self.of(exchange);
            out.sent += there;
            out.received += back;
            out.backward_sent += again;
            out.backward_received += gradients;
        }
        let mut peers: Vec<u32> = share.receives.iter().chain(&share.sends).map(|e| e.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        out.peers = peers.len() as u32;
        out
    }
}

impl Partition {
    /// Returns the exact bytes that each rank sends and receives, summed over all batch rows. The field `peers` is the
    /// maximum over batch rows.
    ///
    /// ```
    /// use noren_dist::{Options, Wire, partition};
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let bound = sliding(4).bind(&Shape::square(16), &Facts::new())?;
    /// let split = partition(&bound.plan(), &Options { ranks: 2, ..Options::default() })?;
    /// let bytes = split.traffic(&Wire { head_dim: 1, v_dim: 1, element: 4, partial: 4 });
    /// assert_eq!(bytes[1].received, 3 * 8); // three keys, and their values, of the rank before
    /// # Ok::<(), noren_dist::Error>(())
    /// ```
    pub fn traffic(&self, wire: &Wire) -> Vec<Traffic> {
        let sizes = wire.sizes(self.shape[1], self.shape[2]);
        let mut out = vec![Traffic::default(); self.ranks];
        for &row in &self.row_of {
            for (sum, share) in out.iter_mut().zip(&self.rows[row].shares) {
                let one = sizes.traffic(share);
                sum.received += one.received;
                sum.sent += one.sent;
                sum.backward_received += one.backward_received;
                sum.backward_sent += one.backward_sent;
                sum.peers = sum.peers.max(one.peers);
            }
        }
        out
    }
}
