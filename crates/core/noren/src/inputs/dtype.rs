//! [`Element`] and [`Dtype`]: the number types of arrays.

use crate::Error;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;
use std::str::FromStr;

/// The type of an array's values.
///
/// ```
/// use noren::Dtype;
/// assert_eq!("bf16".parse::<Dtype>()?, Dtype::Bf16);
/// assert_eq!(Dtype::F16.to_string(), "f16");
/// assert_eq!(Dtype::F16.size(), 2);
/// # Ok::<(), noren::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// The upper half of an `f32`: the range of `f32`, 8 significant bits.
    Bf16,
    /// IEEE 754 binary16: up to 65504, 11 significant bits.
    F16,
}

impl Dtype {
    /// All number types.
    pub const ALL: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

    /// Returns the number of bytes of a value.
    pub const fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
        })
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Dtype::ALL.into_iter().find(|dtype| dtype.to_string() == text);
        found.ok_or_else(|| Error::Dtype { given: text.to_owned() })
    }
}

/// A number that arrays may hold: `f32`, [`bf16`] or [`f16`](struct@f16).
///
/// Attention is computed in `f32` for all types: queries, keys and values are widened, which is exact, and outputs are
/// rounded once. No type outside this crate can implement this trait.
pub trait Element: Erase + Copy + Send + Sync + fmt::Debug + PartialEq + 'static {
    /// The number type, as a value of [`Dtype`].
    const DTYPE: Dtype;

    /// Returns the number as `f32`.
    fn to_f32(self) -> f32;

    /// Returns the number of this type that is nearest to `value`. If two numbers are equally near, returns the one
    /// whose last significant bit is 0.
    fn from_f32(value: f32) -> Self;

    /// Converts the values `from` with [`to_f32`](Self::to_f32) and writes them to `into`. Panics if the lengths
    /// differ.
    fn widen(from: &[Self], into: &mut [f32]);

    /// Converts the values `from` with [`from_f32`](Self::from_f32) and writes them to `into`. Panics if the lengths
    /// differ.
    fn narrow(from: &[f32], into: &mut [Self]);
}

/// A slice of values of one of the three number types. The variant names the type.
pub enum Values<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
}

/// A mutable slice of values of one of the three number types. The variant names the type.
pub enum ValuesMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
    F16(&'a mut [f16]),
}

/// A number type whose slices can be converted to `Values` and `ValuesMut`, which have a variant for each such type. No
/// type outside this crate can implement this trait.
pub trait Erase: Sized {
    /// Returns `values` as the variant of `Values` for this number type.
    fn erased(values: &[Self]) -> Values<'_>;
    /// Returns `values` as the variant of `ValuesMut` for this number type.
    fn erased_mut(values: &mut [Self]) -> ValuesMut<'_>;
    /// Returns whether the number is neither infinite nor NaN.
    fn finite(self) -> bool;
}

macro_rules! erase {
    ($($element:ty, $variant:ident;)*) => {
        $(impl Erase for $element {
            #[inline(always)]
            fn erased(values: &[Self]) -> Values<'_> {
                Values::$variant(values)
            }
            #[inline(always)]
            fn erased_mut(values: &mut [Self]) -> ValuesMut<'_> {
                ValuesMut::$variant(values)
            }
            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }
        })*
    };
}

erase! {
    f32, F32;
    bf16, Bf16;
    f16, F16;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn widen(from: &[Self], into: &mut [f32]) {
        into.copy_from_slice(from);
    }

    #[inline(always)]
    fn narrow(from: &[f32], into: &mut [Self]) {
        into.copy_from_slice(from);
    }
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    // The conversion of `half` is equal but has a branch, which prevents vectorisation of loops
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let even = (bits >> 16) & 1;
        let nearest = (bits.wrapping_add(0x7fff + even) >> 16) as u16;
        let quiet = (bits >> 16) as u16 | 0x0040;
        bf16::from_bits(if value.is_nan() { quiet } else { nearest })
    }

    #[inline(always)]
    fn widen(from: &[Self], into: &mut [f32]) {
        assert_eq!(from.len(), into.len(), "both slices must have the same length");
        // These are loops, because a closure is compiled separately, without the vectors of the processor path.
        for (from, into) in from.iter().zip(into) {
            *into = Element::to_f32(*from);
        }
    }

    #[inline(always)]
    fn narrow(from: &[f32], into: &mut [Self]) {
        assert_eq!(from.len(), into.len(), "both slices must have the same length");
        for (from, into) in from.iter().zip(into) {
            *into = Element::from_f32(*from);
        }
    }
}

impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;

    #[inline]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    #[inline]
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }

    #[inline]
    fn widen(from: &[Self], into: &mut [f32]) {
        from.convert_to_f32_slice(into);
    }

    #[inline]
    fn narrow(from: &[f32], into: &mut [Self]) {
        into.convert_from_f32_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `f32` numbers of every exponent and sign, with many patterns of low bits. Some of the numbers are
    /// halfway between two neighbouring `bf16` or `f16` numbers.
    fn numbers() -> Vec<f32> {
        let low = [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0x1_8000, 0x7f_ffff];
        let bits = (0..512u32).flat_map(|head| low.map(move |low| head << 23 | low));
        bits.map(f32::from_bits).collect()
    }

    fn check<T: Element>(reference: fn(f32) -> T, bits: fn(T) -> u16) {
        let numbers = numbers();
        let mut narrow = vec![T::from_f32(0.0); numbers.len()];
        T::narrow(&numbers, &mut narrow);
        let mut wide = vec![0.0; numbers.len()];
        T::widen(&narrow, &mut wide);
        for ((number, got), wide) in numbers.into_iter().zip(narrow).zip(wide) {
            assert_eq!(wide.to_bits(), got.to_f32().to_bits(), "{number:e}");
            if number.is_nan() {
                assert!(wide.is_nan() && T::from_f32(number).to_f32().is_nan());
                continue;
            }
            assert_eq!(bits(got), bits(reference(number)), "{number:e} to {}", T::DTYPE);
            assert_eq!(bits(got), bits(T::from_f32(number)), "{number:e} to {}", T::DTYPE);
            assert_eq!(bits(T::from_f32(wide)), bits(got), "{number:e} there and back");
        }
    }

    #[test]
    fn conversions_round_to_the_nearest_even() {
        check::<bf16>(bf16::from_f32_const, bf16::to_bits);
        check::<f16>(f16::from_f32_const, f16::to_bits);
        assert_eq!(<bf16 as Element>::from_f32(1.0 + 1.0 / 256.0), bf16::ONE, "a tie");
        assert_eq!(<f16 as Element>::from_f32(65520.0), f16::INFINITY);
    }

    #[test]
    fn names_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.to_string().parse::<Dtype>(), Ok(dtype));
        }
        let error = "fp8".parse::<Dtype>().unwrap_err().to_string();
        assert_eq!(error, "dtype `fp8` is not supported: choose one of f32, bf16, f16");
    }
}
