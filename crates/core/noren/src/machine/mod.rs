//! Measurements of the limits of this processor, for comparison with the speed of a kernel.
//!
//! A [`Probe`] is one limit: multiplying and adding in registers, powers of two, the softmax of a row, or reading
//! memory of a given size. [`Probe::measure`] runs a probe on some threads for a given time; [`Probe::all`] lists the
//! probes of this processor. [`computed_cells`] counts the cells that a forward pass computes. `noren bench` prints the
//! rates of the probes, and compares the speed of attention with them.
//!
//! ```
//! use noren::{Isa, machine::Probe};
//! use std::time::Duration;
//!
//! let rate = Probe::Fma(Isa::Portable).measure(1, Duration::from_millis(20)).expect("every processor has it");
//! assert!(rate.best >= rate.median && rate.median > 0.0);
//! println!("{:.1} GFLOP/s", rate.median / 1e9);
//! ```
//!
//! Threads are not bound to processor cores, and other programs that run at the same time use part of the processor.
//! Therefore a rate holds for this process at this time; compare it only with other measurements of the same process.

mod memory;
mod stage;
mod work;

use crate::Isa;
pub use crate::kernel::count::computed_cells;
pub use memory::{Memory, memory};
pub use stage::Rate;
use std::fmt;
use std::time::Duration;

/// An operation whose rate on this processor is limited and can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Probe {
    /// `a * b + c` in `f32`, with all operands in registers. Each lane counts as two operations. On [`Isa::Portable`],
    /// the multiplication and the addition are separate instructions.
    Fma(Isa),
    /// Dot products of pairs of `bf16`, added to `f32` (`vdpbf16ps`), with all operands in registers. Each lane counts
    /// as four operations.
    Bf16Dot,
    /// Products of tiles of `bf16`, added to `f32` ([`Isa::Amx`]), with all operands in registers. Each product of two numbers
    /// counts as two operations.
    Tiles,
    /// Powers of two as the kernels compute them, with a relative error of 1e-7. All values are in the L1 cache.
    Exp2(Isa),
    /// The softmax of rows of scores: maximum, scaling, power of two, sum. A row has 256 scores, and all rows are in
    /// the L1 cache.
    SoftmaxRow(Isa),
    /// Reads of memory from start to end, repeatedly.
    Read {
        /// The number of bytes that all threads read together; each thread reads a separate part.
        bytes: usize,
    },
}

/// The unit that a [`Rate`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Floating-point operations.
    Flop,
    /// Values that a probe computes, such as powers of two.
    Value,
    /// Bytes that a probe reads from memory.
    Byte,
}

impl Probe {
    /// Returns all probes of this processor. The arithmetic probes are first, each probe for each ISA.
    /// [`Isa::Avx512Bf16`] has only the probe [`Bf16Dot`](Self::Bf16Dot), and [`Isa::Amx`] only [`Tiles`](Self::Tiles), because
    /// their other operations are those of [`Isa::Avx512`]. Then follows one probe that reads memory for each level of `memory`. Its number of bytes is for
    /// `threads` threads together.
    pub fn all(memory: &Memory, threads: usize) -> Vec<Probe> {
        let isas = || Isa::available().iter().copied().filter(|isa| *isa < Isa::Avx512Bf16);
        let arithmetic = isas().map(Probe::Fma).chain([Probe::Bf16Dot, Probe::Tiles]).filter(Probe::is_available);
        let softmax = isas().map(Probe::Exp2).chain(isas().map(Probe::SoftmaxRow));
        let reads = memory.sizes(threads).map(|(_, bytes)| Probe::Read { bytes });
        arithmetic.chain(softmax).chain(reads).collect()
    }

    /// Returns whether this processor can run the probe.
    pub fn is_available(&self) -> bool {
        match self {
            Probe::Fma(isa) | Probe::Exp2(isa) | Probe::SoftmaxRow(isa) => Isa::available().contains(isa),
            Probe::Bf16Dot => Isa::available().contains(&Isa::Avx512Bf16),
            Probe::Tiles => Isa::available().contains(&Isa::Amx),
            Probe::Read { .. } => true,
        }
    }

    /// Returns the unit of the probe's rate.
    pub fn unit(&self) -> Unit {
        match self {
            Probe::Fma(_) | Probe::Bf16Dot | Probe::Tiles => Unit::Flop,
            Probe::Exp2(_) | Probe::SoftmaxRow(_) => Unit::Value,
            Probe::Read { .. } => Unit::Byte,
        }
    }

    /// Runs the probe on `threads` threads (at least one) for about `time`, and returns the measured rate. If a few
    /// repetitions of the work take longer than `time`, the measurement also takes longer. Returns `None` if the
    /// processor cannot run the probe.
    pub fn measure(&self, threads: usize, time: Duration) -> Option<Rate> {
        let threads = threads.max(1);
        let best = *Isa::available().last()?; // the ISA with the widest loads
        self.is_available().then(|| {
            stage::measure(threads, time, |stage| match *self {
                Probe::Fma(isa) => isa.run(work::Fma { stage }),
                Probe::Bf16Dot => Isa::Avx512Bf16.run(work::Dot { stage }),
                Probe::Tiles => Isa::Amx.run(work::Tiles { stage }),
                Probe::Exp2(isa) => isa.run(work::Exp2 { stage }),
                Probe::SoftmaxRow(isa) => isa.run(work::SoftmaxRow { stage }),
                Probe::Read { bytes } => best.run(work::Read { stage, bytes: bytes / threads }),
            })
        })
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Fma(isa) => write!(f, "fma {isa}"),
            Probe::Bf16Dot => f.write_str("bf16 dot"),
            Probe::Tiles => f.write_str("bf16 tiles"),
            Probe::Exp2(isa) => write!(f, "exp2 {isa}"),
            Probe::SoftmaxRow(isa) => write!(f, "softmax {isa}"),
            Probe::Read { bytes } => match bytes >> 20 {
                0 => write!(f, "read {} KiB", bytes >> 10),
                mib => write!(f, "read {mib} MiB"),
            },
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Flop => "FLOP",
            Unit::Value => "values",
            Unit::Byte => "B",
        })
    }
}

/// Returns the name of the processor if the system reports a name, otherwise the processor architecture.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name") || line.starts_with("Model"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_of_every_isa_runs_on_two_threads() {
        let isas = Isa::available().iter().copied();
        let arithmetic = isas.flat_map(|l| [Probe::Fma(l), Probe::Exp2(l), Probe::SoftmaxRow(l)]);
        let probes = arithmetic
            .chain([Probe::Read { bytes: 1 << 16 }, Probe::Read { bytes: 1 }])
            .chain([Probe::Bf16Dot, Probe::Tiles]);
        for probe in probes.filter(Probe::is_available) {
            let rate = probe.measure(2, Duration::from_millis(2)).expect("it is available");
            assert!(rate.median > 0.0 && rate.best >= rate.median && rate.best.is_finite(), "{probe}: {rate:?}");
        }
    }

    #[test]
    fn no_threads_are_one_thread() {
        assert!(Probe::Exp2(Isa::Portable).measure(0, Duration::ZERO).is_some());
    }
}
