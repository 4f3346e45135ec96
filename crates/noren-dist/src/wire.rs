//! [`Wire`]: how many bytes a key, a query and a result take on their way, and [`Traffic`]: what a partition sends in all.

use crate::partition::{Exchange, Partition, Share};
use crate::runs::count;
use serde::{Deserialize, Serialize};

/// Sizes of what travels.
///
/// | what | bytes |
/// |---|---|
/// | a key with its value | `kv_heads * (head_dim + v_dim) * element` |
/// | a query row | `heads * head_dim * element` |
/// | a result row: output and log-sum-exp | `heads * (v_dim * partial + 4)` |
/// | backward: the key with its value again, and its gradients on their way back | `kv_heads * (head_dim + v_dim) * (element + partial)` |
/// | backward: a query row with its output's gradient, log-sum-exp and row sum | `heads * ((head_dim + v_dim) * element + 8)` |
/// | backward: a query's gradient on its way back | `heads * head_dim * partial` |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Numbers in a key or query of one head.
    pub head_dim: usize,
    /// Numbers in a value of one head.
    pub v_dim: usize,
    /// Bytes of a number in queries, keys and values.
    pub element: usize,
    /// Bytes of a number in partial results and partial gradients.
    pub partial: usize,
}

impl Default for Wire {
    /// Heads of 128 numbers in bf16, partial results in f32.
    fn default() -> Self {
        Wire { head_dim: 128, v_dim: 128, element: 2, partial: 4 }
    }
}

/// Bytes of each thing that travels, over all heads.
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
    /// For `heads` query heads over `kv_heads` key-value heads.
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

/// Bytes that one rank receives and sends, in one forward and one backward pass of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Received in the forward pass: keys, queries of others, results of its own rows.
    pub received: u64,
    /// Sent in the forward pass.
    pub sent: u64,
    /// Received in the backward pass.
    pub backward_received: u64,
    /// Sent in the backward pass.
    pub backward_sent: u64,
    /// Ranks with which it exchanges anything.
    pub peers: u32,
}

impl Sizes {
    /// Forward and backward bytes on the way of an exchange, and those that go back.
    pub(crate) fn of(&self, exchange: &Exchange) -> [u64; 4] {
        let (keys, rows) = (count(&exchange.keys), count(&exchange.rows));
        [
            keys * self.key + rows * self.query,
            rows * self.result,
            keys * self.key_again + rows * self.query_again,
            keys * self.key_gradient + rows * self.query_gradient,
        ]
    }

    /// What a rank's exchanges come to.
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
    /// The exact bytes by rank that an executor puts on the wire, over all batch rows. Peers are those of the batch row that has
    /// the most.
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
