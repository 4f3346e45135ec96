//! [`Task`]: work that is generic over the processor path, and the one place where the path becomes a type.

use super::simd::{Simd, portable::Portable};
use crate::Isa;

/// Work that is generic over the processor path.
pub(crate) trait Task {
    /// Whether the work has products of `bf16`, for which there are paths of their own.
    fn pairs(&self) -> bool;

    /// Runs on the path whose token is given.
    fn run<S: Simd>(self, simd: S);
}

impl Isa {
    /// The one dispatch point: runs `task` on this ISA, or on the portable one where the processor lacks it.
    pub(crate) fn run<T: Task>(self, task: T) {
        #[cfg(target_arch = "x86_64")]
        {
            use super::simd::{avx2::Avx2, avx512::Avx512, avx512::Avx512Bf16};
            match self {
                Isa::Avx512Bf16 if task.pairs() => {
                    if let Some(simd) = Avx512Bf16::detect() {
                        return task.run(simd);
                    }
                }
                // without pairs both are the same
                Isa::Avx512 | Isa::Avx512Bf16 => {
                    if let Some(simd) = Avx512::detect() {
                        return task.run(simd);
                    }
                }
                Isa::Avx2 => {
                    if let Some(simd) = Avx2::detect() {
                        return task.run(simd);
                    }
                }
                Isa::Portable => {}
            }
        }
        task.run(Portable);
    }
}
