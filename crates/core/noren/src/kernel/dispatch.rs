//! [`Task`]: work that is generic over the processor path. [`Isa::run`] runs a task; it is the only function that turns
//! an ISA, a value at run time, into the type of a processor path.

use super::simd::{Simd, portable::Portable};
use crate::Isa;

/// Work that is generic over the processor path.
pub(crate) trait Task {
    /// Returns whether the work multiplies `bf16` values, so that it can use the separate processor path for pairs of
    /// `bf16`, if the processor has one.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    fn pairs(&self) -> bool {
        false
    }

    /// Whether the work multiplies tiles if the processor path does. Other work on `bf16` runs on the path for `f32` there.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    const TILES: bool = false;

    /// Runs the work on a processor path. The token `simd` proves that the processor has the instructions of the path.
    fn run<S: Simd>(self, simd: S);
}

impl Isa {
    /// Runs `task` on this ISA, or on the portable processor path if the processor does not have this ISA. No other
    /// function chooses a processor path.
    pub(crate) fn run<T: Task>(self, task: T) {
        #[cfg(target_arch = "x86_64")]
        {
            use super::simd::{avx2::Avx2, avx512::Amx, avx512::Avx512, avx512::Avx512Bf16};
            match self {
                Isa::Avx512Bf16 if task.pairs() => {
                    if let Some(simd) = Avx512Bf16::detect() {
                        return task.run(simd);
                    }
                }
                Isa::Amx if T::TILES && task.pairs() => {
                    if let Some(simd) = Amx::detect() {
                        return task.run(simd);
                    }
                }
                // Without pairs of `bf16`, these paths are equal.
                Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => {
                    if let Some(simd) = Avx512::detect() {
                        return task.run(simd);
                    }
                }
                Isa::Avx2 => {
                    if let Some(simd) = Avx2::detect() {
                        return task.run(simd);
                    }
                }
                Isa::Portable | Isa::Neon => {}
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(simd) = super::simd::neon::Neon::detect().filter(|_| self == Isa::Neon) {
            return task.run(simd);
        }
        task.run(Portable);
    }
}
