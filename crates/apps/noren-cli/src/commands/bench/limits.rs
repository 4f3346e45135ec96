//! Measures the limits of the machine, and computes the shortest time in which work can be done under these limits.

use noren::machine::{Memory, Probe, Rate, Unit};
use noren::{Dtype, Isa};
use serde::Serialize;
use std::time::Duration;

/// The minimum arithmetic and memory traffic of one measured case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Work {
    /// Number of floating-point operations of all matrix products over the allowed cells.
    pub(super) flop: f64,
    /// Number of attention weights that the softmax computes.
    pub(super) weights: f64,
    /// Number of bytes of all arrays that are read or written. Each byte counts once.
    pub(super) bytes: f64,
}

/// The limit of the machine (computing or memory) that determines the shortest possible time of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Bound {
    /// The time is limited by matrix products and softmax.
    Compute,
    /// The time is limited by reading and writing memory.
    Memory,
}

/// The measured limits of the machine.
pub(super) struct Limits {
    /// The instruction set that the kernels use.
    pub(super) isa: Isa,
    /// The sizes of the caches and of the free memory, which the measurements of the read bandwidth use.
    pub(super) memory: Memory,
    /// The measurements as (probe, number of threads, rate), in the order in which they ran. A probe is a measurement
    /// of one limit of the machine.
    pub(super) rates: Vec<(Probe, usize, Rate)>,
}

/// Returns the probes (measurements of limits of the machine) in the order in which they run, as (probe, number of
/// threads). Probes that read memory are last.
pub(super) fn probes(memory: &Memory, threads: &[usize]) -> Vec<(Probe, usize)> {
    let mut probes: Vec<_> =
        threads.iter().flat_map(|&n| Probe::all(memory, n).into_iter().map(move |p| (p, n))).collect();
    probes.sort_by_key(|(probe, threads)| match probe {
        Probe::Fma(isa) => (0, *isa as usize),
        Probe::Bf16Dot => (1, 0),
        Probe::Tiles => (1, 1),
        Probe::Exp2(isa) => (2, *isa as usize),
        Probe::SoftmaxRow(isa) => (3, *isa as usize),
        Probe::Read { bytes } => (5, memory.sizes(*threads).position(|(_, size)| size == *bytes).unwrap_or(0)),
        _ => (4, 0),
    });
    probes
}

impl Limits {
    pub(super) fn new(isa: Isa, memory: Memory) -> Limits {
        Limits { isa, memory, rates: Vec::new() }
    }

    /// Runs one probe (a measurement of one limit of the machine) for about `time`, and stores the measured rate.
    pub(super) fn measure(&mut self, probe: Probe, threads: usize, time: Duration) {
        self.rates.extend(probe.measure(threads, time).map(|rate| (probe, threads, rate)));
    }

    /// Returns the median rate of `probe` with `threads` threads; `None` if the rate was not measured.
    fn rate(&self, probe: Probe, threads: usize) -> Option<f64> {
        let found = self.rates.iter().find(|(p, n, _)| *p == probe && *n == threads);
        found.map(|(_, _, rate)| rate.median)
    }

    /// Returns the shortest possible time of `work` in seconds, and the limit that determines this time. Returns `None`
    /// if the rate of a limit was not measured. For the limit of memory, measures for about `time` how fast `threads`
    /// threads read as many bytes as `work` has.
    pub(super) fn least_seconds(
        &self,
        work: &Work,
        dtype: Dtype,
        threads: usize,
        time: Duration,
    ) -> Option<(f64, Bound)> {
        // These ISAs differ from AVX-512 only in their bf16 products.
        let (isa, pairs) = match self.isa {
            Isa::Avx512Bf16 => (Isa::Avx512, dtype == Dtype::Bf16),
            Isa::Amx => (Isa::Avx512, false),
            isa => (isa, false),
        };
        let fma = self.rate(Probe::Fma(isa), threads)?;
        let dot = self.rate(Probe::Bf16Dot, threads).filter(|_| pairs);
        let products = work.flop / dot.map_or(fma, |dot| dot.max(fma));
        let softmax = work.weights / self.rate(Probe::SoftmaxRow(isa), threads)?;
        // Weights are computed during the products of tiles, in fixed point.
        let compute = match self.rate(Probe::Tiles, threads) {
            Some(tiles) if self.isa == Isa::Amx && dtype == Dtype::Bf16 => work.flop / tiles,
            _ => products + softmax,
        };
        // As many bytes are read from the same level of memory; more bytes than the largest probe reads come from main memory.
        let largest = self.memory.sizes(threads).last().map_or(usize::MAX, |(_, bytes)| bytes);
        let bytes = (work.bytes as usize).clamp(1, largest);
        let memory = work.bytes / Probe::Read { bytes }.measure(threads, time)?.median;
        Some(if memory > compute { (memory, Bound::Memory) } else { (compute, Bound::Compute) })
    }

    /// Returns the name of a probe (a measurement of one limit of the machine) and the unit of its rate, such as GB/s.
    /// The name of a memory probe includes the cache level.
    pub(super) fn describe(&self, probe: &Probe, threads: usize) -> (String, &'static str) {
        match (probe, probe.unit()) {
            (Probe::Read { bytes }, _) => {
                let level = self.memory.sizes(threads).find(|(_, size)| size == bytes);
                (format!("read {}", level.map_or("memory", |(name, _)| name)), "GB/s")
            }
            (probe, Unit::Flop) => (probe.to_string(), "GFLOP/s"),
            (probe, _) => (probe.to_string(), "Gvalues/s"),
        }
    }
}
