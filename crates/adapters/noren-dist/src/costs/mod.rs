//! [`Machine`]: the speed of ranks and of the connections between them.

pub(crate) mod measure;
pub(crate) mod simulate;

use serde::{Deserialize, Serialize};

/// Seconds of computation for one allowed cell of one head on one rank. Each number is divided by `head_dim`, the
/// number of components of the head.
///
/// The defaults come from this project's README (two cores of an AMD EPYC, f32, head_dim 64, 4096 tokens, 2026-11-21):
///
/// * Without a mask: 375 GFLOP/s forward, 351 GFLOP/s forward and backward together.
/// * Under `sliding(256)`, where 3 of 8 cells are in mixed tiles: 223 and 218 GFLOP/s.
///
/// Therefore an allowed cell of a mixed tile takes 2.8 times as long as a cell of a full tile forward, and 2.6 times as
/// long backward. This includes the time for the denied cells of the tile.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Forward seconds of an allowed cell in a full tile, divided by `head_dim`.
    pub full: f64,
    /// Forward seconds of an allowed cell in a mixed tile (a tile with allowed and denied cells), divided by
    /// `head_dim`.
    pub mixed: f64,
    /// Backward seconds of an allowed cell in a full tile, divided by `head_dim`.
    pub full_backward: f64,
    /// Backward seconds of an allowed cell in a mixed tile (a tile with allowed and denied cells), divided by
    /// `head_dim`.
    pub mixed_backward: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs { full: 1.07e-11, mixed: 2.99e-11, full_backward: 2.92e-11, mixed_backward: 7.48e-11 }
    }
}

impl Costs {
    /// Returns the default costs scaled to another speed; the ratios between the four costs do not change. `gflops` is
    /// the forward speed without a mask in GFLOP/s, as `noren bench` measures it.
    pub fn at(gflops: f64) -> Self {
        let Costs { full, mixed, full_backward, mixed_backward } = Costs::default();
        let times = 4.0 / (gflops * 1e9) / full;
        Costs {
            full: full * times,
            mixed: mixed * times,
            full_backward: full_backward * times,
            mixed_backward: mixed_backward * times,
        }
    }

    /// Returns the seconds of the forward pass on one rank. `all` is the number of allowed cells over all heads, and
    /// `mixed` is the number of allowed cells in mixed tiles (tiles with allowed and denied cells).
    pub fn forward(&self, [all, mixed]: [f64; 2], head_dim: usize) -> f64 {
        (self.full * (all - mixed) + self.mixed * mixed) * head_dim as f64
    }

    /// Returns the seconds of the backward pass on one rank. `all` is the number of allowed cells over all heads, and
    /// `mixed` is the number of allowed cells in mixed tiles (tiles with allowed and denied cells).
    pub fn backward(&self, [all, mixed]: [f64; 2], head_dim: usize) -> f64 {
        (self.full_backward * (all - mixed) + self.mixed_backward * mixed) * head_dim as f64
    }
}

/// A machine of equal ranks with two kinds of connections: within a node, and between nodes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The computing costs of one rank.
    pub costs: Costs,
    /// Bytes per second that a rank receives from ranks of its own node.
    pub near: f64,
    /// Bytes per second that a rank receives from other nodes.
    pub far: f64,
    /// Seconds from the start of a message until its first byte arrives.
    pub latency: f64,
}

impl Default for Machine {
    /// Returns the default machine: default [`Costs`] (measured on two cores), 10 GB/s within a node, 1.25 GB/s (10
    /// Gbit/s) between nodes, 30 microseconds latency.
    fn default() -> Self {
        Machine { costs: Costs::default(), near: 10e9, far: 1.25e9, latency: 30e-6 }
    }
}
