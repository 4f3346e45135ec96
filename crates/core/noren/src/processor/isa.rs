//! [`Isa`]: the processor path that computes, and its selection.

use crate::Error;
use std::{fmt, str::FromStr, sync::OnceLock};

/// A processor path: the instruction set for which a kernel is compiled.
///
/// The fastest available path is used by default. The caller selects another path in
/// [`Options::isa`](crate::Options::isa) or in the environment variable `NOREN_ISA` (`portable`, `neon`, `avx2`,
/// `avx512`, `avx512bf16` or `amx`). Results of different ISAs agree up to rounding; results of the same ISA have the same
/// bits.
///
/// Processors without NEON, AVX2 and AVX-512 use [`Isa::Portable`], which compilers vectorise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, 8 values at a time, on any processor.
    Portable,
    /// NEON: every 64-bit ARM processor.
    Neon,
    /// AVX2 with FMA and F16C: x86-64 since 2013.
    Avx2,
    /// AVX-512 (F, VL, BW, DQ): x86-64 servers since 2017.
    Avx512,
    /// AVX-512 with AVX512-BF16. On AMD processors since 2022, products of `bf16` numbers take half the time of
    /// products of `f32` numbers on this processor path. On Intel processors, both kinds of products take the same
    /// time, and this path is used only if the caller selects it by name.
    Avx512Bf16,
    /// AVX-512 and the tile unit (AMX with BF16) of Intel server processors since 2023, on Linux. Calls on `bf16` multiply
    /// tiles of numbers, all other calls are those of [`Isa::Avx512`].
    Amx,
}

impl Isa {
    const ALL: [Isa; 6] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx];

    /// Returns the ISAs that this processor has, slowest first; never empty.
    ///
    /// ```
    /// assert_eq!(noren::Isa::available()[0], noren::Isa::Portable);
    /// ```
    pub fn available() -> &'static [Isa] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(|| Self::ALL.into_iter().filter(|l| l.detected()).collect())
    }

    /// Returns the ISA of a call. `asked` is the value of [`Options::isa`](crate::Options::isa), and is returned if it
    /// is not `None`. Otherwise the environment variable `NOREN_ISA` selects the ISA; without this variable, the
    /// fastest ISA is used. `NOREN_ISA` is read once per process.
    ///
    /// # Errors
    /// Returns an error if this processor lacks the ISA or if the name in `NOREN_ISA` is unknown.
    pub fn choose(asked: Option<Isa>) -> Result<Isa, Error> {
        static DEFAULT: OnceLock<Result<Isa, Error>> = OnceLock::new();
        let from_environment = || match std::env::var("NOREN_ISA") {
            Ok(name) if !name.is_empty() => name.parse::<Isa>()?.check(),
            _ => Ok(Self::best()),
        };
        match asked {
            Some(isa) => isa.check(),
            None => DEFAULT.get_or_init(from_environment).clone(),
        }
    }

    /// Returns this ISA, or an error if the processor does not have its instructions.
    fn check(self) -> Result<Isa, Error> {
        match Self::available().contains(&self) {
            true => Ok(self),
            false => Err(Error::Isa {
                given: self.to_string(),
                problem: format!(
                    "this processor does not support this ISA: choose one of {}",
                    Self::names(Self::available())
                ),
            }),
        }
    }

    /// Returns the ISA that is used by default.
    fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let slow = |isa: &Isa| *isa == Isa::Avx512Bf16 && !fast_pairs();
            let fast = Self::available().iter().rev().find(|isa| !slow(isa));
            *fast.expect("the portable ISA is always available")
        })
    }

    /// Returns whether this processor has the instructions of this processor path. The vector operations of the path
    /// (in `kernel/simd`) may be called only if the result is true.
    pub(crate) fn detected(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => Isa::Avx512.detected() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => {
                Isa::Avx512Bf16.detected()
                    && is_x86_feature_detected!("avx512vbmi")
                    && crate::processor::tiles::available()
            }
            #[allow(unreachable_patterns)] // the paths of other processors
            _ => false,
        }
    }

    fn names(isas: &[Isa]) -> String {
        isas.iter().map(Isa::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether an instruction that multiplies pairs of `bf16` numbers is as fast as an instruction that multiplies
/// `f32` numbers. Returns true on AMD processors. On Intel processors, the instruction for pairs takes twice as long.
fn fast_pairs() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction. Rust 1.89 requires the block, later versions call the function safe.
        #[allow(unused_unsafe)]
        let vendor = unsafe { std::arch::x86_64::__cpuid(0) };
        [vendor.ebx, vendor.edx, vendor.ecx] == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512bf16",
            Isa::Amx => "amx",
        })
    }
}

impl FromStr for Isa {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|isa| isa.to_string() == name);
        known.ok_or_else(|| Error::Isa {
            given: name.to_owned(),
            problem: format!("no ISA has this name: choose one of {}", Self::names(&Self::ALL)),
        })
    }
}
