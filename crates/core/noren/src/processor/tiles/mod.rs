//! Products of tiles of 16 rows and 16 columns: their operands and, on x86-64, the unit that computes them.

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod operands;
#[cfg(target_arch = "x86_64")]
mod unit;

pub(crate) use operands::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use unit::*;
