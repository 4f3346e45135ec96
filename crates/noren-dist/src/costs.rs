//! [`Machine`]: how fast ranks compute and how fast the wires between them are.

use serde::{Deserialize, Serialize};

/// Seconds that a rank takes for one allowed cell of one head, by numbers of the head.
///
/// The defaults come from this project's README (two cores of an AMD EPYC, f32, head_dim 64, 4096 tokens, 2026-11-21): 375
/// GFLOP/s forward without a mask and 223 under `sliding(256)`, where 3 of 8 cells are in mixed tiles; forward and backward
/// together 351 and 218. A mixed cell so takes 2.8 times a full one forward and 2.6 times backward, its denied neighbours counted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Forward, in a tile in which everything is allowed.
    pub full: f64,
    /// Forward, in a tile in which some cells are denied.
    pub mixed: f64,
    /// Backward, full.
    pub full_backward: f64,
    /// Backward, mixed.
    pub mixed_backward: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs { full: 1.07e-11, mixed: 2.99e-11, full_backward: 2.92e-11, mixed_backward: 7.48e-11 }
    }
}

impl Costs {
    /// The same proportions at another speed: `gflops` forward without a mask, as `noren bench` measures it.
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

    /// Forward seconds for `[all, mixed]` allowed cells over all heads.
    pub fn forward(&self, [all, mixed]: [f64; 2], head_dim: usize) -> f64 {
        (self.full * (all - mixed) + self.mixed * mixed) * head_dim as f64
    }

    /// Backward seconds.
    pub fn backward(&self, [all, mixed]: [f64; 2], head_dim: usize) -> f64 {
        (self.full_backward * (all - mixed) + self.mixed_backward * mixed) * head_dim as f64
    }
}

/// Ranks that are alike, and two kinds of wires: between ranks of one node, and between nodes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What a rank takes for a cell.
    pub costs: Costs,
    /// Bytes a second that a rank receives from its own node.
    pub near: f64,
    /// Bytes a second that a rank receives from other nodes.
    pub far: f64,
    /// Seconds until the first byte of a message is there.
    pub latency: f64,
}

impl Default for Machine {
    /// Two cores for each rank, 10 GB/s within a node, 1.25 GB/s (10 Gbit/s) between nodes, 30 microseconds.
    fn default() -> Self {
        Machine { costs: Costs::default(), near: 10e9, far: 1.25e9, latency: 30e-6 }
    }
}
