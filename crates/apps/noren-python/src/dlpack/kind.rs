//! [`Kind`]: the type of an array's values.

use noren::{Dtype, bf16, f16};

/// The type of an array's values in DLPack. The variants of integer types contain the number of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Int(u8),
    Uint(u8),
    Float(Dtype),
    Double,
    Bool,
}

impl Kind {
    /// Returns the name of the type as Python libraries write it, such as `float32`.
    pub(crate) fn words(self) -> String {
        match self {
            Kind::Int(bits) => format!("int{bits}"),
            Kind::Uint(bits) => format!("uint{bits}"),
            Kind::Float(Dtype::F32) => "float32".to_owned(),
            Kind::Float(Dtype::F16) => "float16".to_owned(),
            Kind::Float(Dtype::Bf16) => "bfloat16".to_owned(),
            Kind::Double => "float64".to_owned(),
            Kind::Bool => "bool".to_owned(),
        }
    }

    /// Returns the size of a value in bytes.
    pub(super) fn bytes(self) -> isize {
        match self {
            Kind::Int(bits) | Kind::Uint(bits) => isize::from(bits / 8),
            Kind::Float(Dtype::F32) => 4,
            Kind::Float(_) => 2,
            Kind::Double => 8,
            Kind::Bool => 1,
        }
    }

    /// Calls `each` with `n` values: the value at `data`, and every `stride`-th value after it.
    ///
    /// # Safety
    /// `n` values of this kind are readable at these addresses.
    pub(super) unsafe fn each(self, data: *const u8, n: usize, stride: isize, each: &mut impl FnMut(f64)) {
        // SAFETY: the caller guarantees that the values are readable; they need no alignment.
        unsafe {
            match self {
                Kind::Int(8) => walk(data.cast::<i8>(), n, stride, |x| each(f64::from(x))),
                Kind::Int(16) => walk(data.cast::<i16>(), n, stride, |x| each(f64::from(x))),
                Kind::Int(32) => walk(data.cast::<i32>(), n, stride, |x| each(f64::from(x))),
                Kind::Int(_) => walk(data.cast::<i64>(), n, stride, |x| each(x as f64)),
                Kind::Uint(8) | Kind::Bool => walk(data, n, stride, |x| each(f64::from(x))),
                Kind::Uint(16) => walk(data.cast::<u16>(), n, stride, |x| each(f64::from(x))),
                Kind::Uint(32) => walk(data.cast::<u32>(), n, stride, |x| each(f64::from(x))),
                Kind::Uint(_) => walk(data.cast::<u64>(), n, stride, |x| each(x as f64)),
                Kind::Float(Dtype::F32) => walk(data.cast::<f32>(), n, stride, |x| each(f64::from(x))),
                Kind::Float(Dtype::F16) => walk(data.cast::<f16>(), n, stride, |x| each(x.to_f64())),
                Kind::Float(Dtype::Bf16) => walk(data.cast::<bf16>(), n, stride, |x| each(x.to_f64())),
                Kind::Double => walk(data.cast::<f64>(), n, stride, each),
            }
        }
    }
}

/// Calls `each` with `n` values, at `data`, `data + stride`, `data + 2 * stride`, and so on. `stride` is counted in
/// values, not bytes.
///
/// # Safety
/// `n` values are readable from `data` on, at a distance of `stride` values.
pub(super) unsafe fn walk<T: Copy>(data: *const T, n: usize, stride: isize, mut each: impl FnMut(T)) {
    for i in 0..n as isize {
        // SAFETY: the caller guarantees that the values are readable.
        each(unsafe { data.offset(i * stride).read_unaligned() });
    }
}
