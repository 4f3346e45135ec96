//! [`Level`]: which processor path computes, and the one place where that is decided.

use super::simd::{Simd, portable::Portable};
use crate::Error;
use std::{fmt, str::FromStr, sync::OnceLock};

/// A processor path.
///
/// The best one available is used unless the caller names one, in [`Options::level`](crate::Options::level) or in the
/// environment variable `NOREN_LEVEL` (`portable`, `avx2`, `avx512` or `avx512bf16`). Results of different levels agree to rounding;
/// results of one level agree to the bit.
///
/// There is no NEON path yet: one would be kept only where it can be compiled and run. Other processors use
/// [`Level::Portable`], which compilers vectorise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, 8 values at a time, on any processor.
    Portable,
    /// AVX2 with FMA: x86-64 since 2013.
    Avx2,
    /// AVX-512 (F, VL, BW, DQ): x86-64 servers since 2017.
    Avx512,
    /// AVX-512 with AVX512-BF16, where products of `bf16` take half the time of `f32`: AMD since 2022. Intel's processors
    /// have the instructions and run them at half speed, so there this is only chosen by name.
    Avx512Bf16,
}

/// Work that is generic over the processor path.
pub(crate) trait Task {
    /// Whether the work has products of `bf16`, for which there are paths of their own.
    fn pairs(&self) -> bool;

    /// Runs on the path whose token is given.
    fn run<S: Simd>(self, simd: S);
}

impl Level {
    const ALL: [Level; 4] = [Level::Portable, Level::Avx2, Level::Avx512, Level::Avx512Bf16];

    /// The levels this processor has, slowest first; never empty.
    ///
    /// ```
    /// assert_eq!(noren::Level::available()[0], noren::Level::Portable);
    /// ```
    pub fn available() -> &'static [Level] {
        static AVAILABLE: OnceLock<Vec<Level>> = OnceLock::new();
        AVAILABLE.get_or_init(|| Self::ALL.into_iter().filter(|l| l.detected()).collect())
    }

    /// The level that computes when [`Options::level`](crate::Options::level) is `asked`: that one, else the one in
    /// `NOREN_LEVEL`, else the best. An error when that one is unknown or this processor lacks it.
    pub fn choose(asked: Option<Level>) -> Result<Level, Error> {
        static FROM_ENVIRONMENT: OnceLock<Option<String>> = OnceLock::new();
        let level = match (asked, FROM_ENVIRONMENT.get_or_init(|| std::env::var("NOREN_LEVEL").ok())) {
            (Some(level), _) => level,
            (None, Some(name)) if !name.is_empty() => name.parse()?,
            (None, _) => return Ok(Self::best()),
        };
        match Self::available().contains(&level) {
            true => Ok(level),
            false => Err(Error::Level {
                given: level.to_string(),
                problem: format!("this processor lacks it: choose one of {}", Self::names(Self::available())),
            }),
        }
    }

    /// The fastest level this processor has.
    fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| {
            let slow = |level: &Level| *level == Level::Avx512Bf16 && !fast_pairs();
            let fast = Self::available().iter().rev().find(|level| !slow(level));
            *fast.expect("the portable level is always there")
        })
    }

    fn detected(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::simd::avx2::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => super::simd::avx512::Avx512::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => super::simd::avx512::Avx512Bf16::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    fn names(levels: &[Level]) -> String {
        levels.iter().map(Level::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The one dispatch point: runs `task` on this level, or on the portable one where the processor lacks it.
    pub(crate) fn run<T: Task>(self, task: T) {
        #[cfg(target_arch = "x86_64")]
        {
            use super::simd::{avx2::Avx2, avx512::Avx512, avx512::Avx512Bf16};
            match self {
                Level::Avx512Bf16 if task.pairs() => {
                    if let Some(simd) = Avx512Bf16::detect() {
                        return task.run(simd);
                    }
                }
                // without pairs both are the same
                Level::Avx512 | Level::Avx512Bf16 => {
                    if let Some(simd) = Avx512::detect() {
                        return task.run(simd);
                    }
                }
                Level::Avx2 => {
                    if let Some(simd) = Avx2::detect() {
                        return task.run(simd);
                    }
                }
                Level::Portable => {}
            }
        }
        task.run(Portable);
    }
}

/// Whether the product of pairs takes as long as one of `f32`: so it is on AMD's processors; Intel's need twice as long.
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

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Avx512Bf16 => "avx512bf16",
        })
    }
}

impl FromStr for Level {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|level| level.to_string() == name);
        known.ok_or_else(|| Error::Level {
            given: name.to_owned(),
            problem: format!("no such level: choose one of {}", Self::names(&Self::ALL)),
        })
    }
}
