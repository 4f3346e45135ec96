//! [`Stored`]: the type of the numbers of an array in a file. Its reader converts the numbers in pieces of limited
//! size.

use crate::error::{Error, Result};
use noren_doctor::{Dtype, Numbers};
use std::io::Read;

/// The maximum number of bytes of memory for the numbers of one array. A larger array is refused.
pub const MOST_MEMORY: u64 = 16 << 30;
/// The number of bytes of a file that are read and converted at a time.
const PIECE: usize = 1 << 18;

/// The type of the numbers of an array in a file, such as 4-byte little-endian floats.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) kind: Kind,
    /// Number of bytes of one number.
    pub(crate) width: usize,
    pub(crate) big_endian: bool,
}

/// The kind of a number in a file: Boolean, integer with or without sign, or floating point. `Real` is IEEE floating
/// point of 2, 4 or 8 bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Real,
    Bf16,
}

impl Stored {
    pub(crate) fn dtype(self) -> Dtype {
        match (self.kind, self.width) {
            (Kind::Bool, _) => Dtype::Bool,
            (Kind::Unsigned, 1) => Dtype::U8,
            (Kind::Signed, 1) => Dtype::I8,
            (Kind::Signed, 2) => Dtype::I16,
            (Kind::Unsigned, 2) => Dtype::U16,
            (Kind::Signed, 4) => Dtype::I32,
            (Kind::Unsigned, 4) => Dtype::U32,
            (Kind::Signed, _) => Dtype::I64,
            (Kind::Unsigned, _) => Dtype::U64,
            (Kind::Bf16, _) => Dtype::Bf16,
            (Kind::Real, 2) => Dtype::F16,
            (Kind::Real, 4) => Dtype::F32,
            (Kind::Real, _) => Dtype::F64,
        }
    }

    /// Returns the number of bytes that one number takes in memory. The result differs from `width` if numbers are
    /// converted when they are read: `f16` becomes `f32`.
    fn memory(self) -> u64 {
        match (self.kind, self.width) {
            (Kind::Bool, _) => 1,
            (Kind::Signed | Kind::Unsigned, _) | (Kind::Real, 8) => 8,
            _ => 4,
        }
    }

    /// Returns the number of bytes that an array of this type and the shape `shape` takes in memory; `None` if this
    /// number does not fit in 64 bits.
    pub(crate) fn memory_of(self, shape: &[usize]) -> Option<u64> {
        shape.iter().try_fold(self.memory(), |n, &size| n.checked_mul(size as u64))
    }

    /// Reads the numbers of an array of the shape `shape`. Returns an error if the array takes more than `most` bytes
    /// of memory. `name` is the name of the file in error messages.
    pub(crate) fn read(self, shape: &[usize], reader: &mut impl Read, most: u64, name: &str) -> Result<Numbers> {
        let count = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
        let bytes = count.and_then(|n| n.checked_mul(self.width));
        let memory = self.memory_of(shape);
        let (Some(count), Some(bytes), true) = (count, bytes, memory.is_some_and(|n| n <= most)) else {
            let memory = memory.map_or("too many".to_string(), |n| n.to_string());
            return Err(Error::new(format!(
                "{name}: shape {shape:?} takes {memory} bytes of memory, but at most {most} bytes are read"
            )));
        };
        let mut numbers = match (self.kind, self.width) {
            (Kind::Bool, _) => Numbers::Bool(Vec::new()),
            (Kind::Signed | Kind::Unsigned, _) => Numbers::Int(Vec::new()),
            (Kind::Real, 8) => Numbers::Double(Vec::new()),
            _ => Numbers::Single(Vec::new()),
        };
        let mut piece = vec![0; PIECE.min(bytes)];
        let mut left = bytes;
        while left > 0 {
            let n = left.min(PIECE);
            reader.read_exact(&mut piece[..n]).map_err(|e| {
                Error::new(format!("{name}: the file is truncated: {count} numbers take {bytes} bytes, but {left} of these bytes are missing: {e}"))
            })?;
            if self.big_endian {
                piece[..n].chunks_exact_mut(self.width).for_each(<[u8]>::reverse);
            }
            self.append(&piece[..n], &mut numbers);
            left -= n;
        }
        Ok(numbers)
    }

    fn append(self, bytes: &[u8], numbers: &mut Numbers) {
        let wide = |b: &[u8]| {
            let mut word = [0u8; 8];
            word[..b.len()].copy_from_slice(b);
            u64::from_le_bytes(word)
        };
        let each = bytes.chunks_exact(self.width);
        match numbers {
            Numbers::Bool(out) => out.extend(bytes.iter().map(|b| *b != 0)),
            Numbers::Int(out) if self.kind == Kind::Unsigned => {
                out.extend(each.map(|b| i64::try_from(wide(b)).unwrap_or(i64::MAX)));
            }
            Numbers::Int(out) => {
                let unused = 64 - 8 * self.width as u32;
                out.extend(each.map(|b| (wide(b) << unused) as i64 >> unused));
            }
            Numbers::Double(out) => out.extend(each.map(|b| f64::from_bits(wide(b)))),
            Numbers::Single(out) => match (self.kind, self.width) {
                (Kind::Bf16, _) => out.extend(each.map(|b| f32::from_bits((wide(b) as u32) << 16))),
                (_, 2) => out.extend(each.map(|b| half::f16::from_bits(wide(b) as u16).to_f32())),
                _ => out.extend(each.map(|b| f32::from_bits(wide(b) as u32))),
            },
        }
    }
}
