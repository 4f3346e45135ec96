//! [`Values`]: an array as somebody else stores it, before anybody knows what it means.

use noren_mask::Error;

/// The type of the stored numbers; it decides which fills overflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // the usual names
pub enum Dtype {
    Bool,
    U8,
    I8,
    Int,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// From the names that numpy, PyTorch and safetensors use; `None` for what is no number.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim_start_matches("torch.").to_ascii_lowercase();
        Some(match name.as_str() {
            "bool" | "bool_" => Dtype::Bool,
            "u8" | "uint8" => Dtype::U8,
            "i8" | "int8" => Dtype::I8,
            "i16" | "i32" | "i64" | "u16" | "u32" | "u64" | "int16" | "int32" | "int64" | "uint16" | "uint32"
            | "uint64" | "int" | "long" => Dtype::Int,
            "f16" | "float16" | "half" | "fp16" => Dtype::F16,
            "bf16" | "bfloat16" => Dtype::Bf16,
            "f32" | "float32" | "float" | "fp32" => Dtype::F32,
            "f64" | "float64" | "double" | "fp64" => Dtype::F64,
            _ => return None,
        })
    }

    /// The largest finite number, for types of real numbers.
    pub(crate) fn largest(self) -> Option<f64> {
        match self {
            Dtype::F16 => Some(65504.0),
            Dtype::Bf16 => Some(3.389_531_389_251_535_5e38),
            Dtype::F32 => Some(f64::from(f32::MAX)),
            Dtype::F64 => Some(f64::MAX),
            _ => None,
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "uint8",
            Dtype::I8 => "int8",
            Dtype::Int => "int",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
        }
    }
}

/// The numbers themselves, row-major.
#[derive(Clone, PartialEq, Debug)]
pub enum Numbers {
    /// Truth values.
    Bool(Vec<bool>),
    /// Whole numbers of any width.
    Int(Vec<i64>),
    /// Real numbers of at most 32 bits.
    Single(Vec<f32>),
    /// Real numbers of 64 bits.
    Double(Vec<f64>),
}

/// An array of numbers with its shape and stored type.
///
/// ```
/// use noren_doctor::Values;
/// let mask = Values::bools(&[2, 2], vec![true, false, true, true])?;
/// assert_eq!(mask.shape(), [2, 2]);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Values {
    shape: Vec<usize>,
    dtype: Dtype,
    numbers: Numbers,
}

impl Values {
    /// An array of `shape`, row-major.
    ///
    /// # Errors
    /// Another count of numbers than the shape says.
    pub fn new(shape: &[usize], dtype: Dtype, numbers: Numbers) -> Result<Self, Error> {
        let count = match &numbers {
            Numbers::Bool(v) => v.len(),
            Numbers::Int(v) => v.len(),
            Numbers::Single(v) => v.len(),
            Numbers::Double(v) => v.len(),
        };
        let expected: u128 = shape.iter().map(|&n| n as u128).product();
        match expected == count as u128 {
            true => Ok(Values { shape: shape.to_vec(), dtype, numbers }),
            false => Err(Error::fact("array", format!("shape {shape:?} has {expected} cells but {count} were given"))),
        }
    }

    /// An array of truth values.
    pub fn bools(shape: &[usize], cells: Vec<bool>) -> Result<Self, Error> {
        Self::new(shape, Dtype::Bool, Numbers::Bool(cells))
    }

    /// An array of whole numbers.
    pub fn ints(shape: &[usize], cells: Vec<i64>) -> Result<Self, Error> {
        Self::new(shape, Dtype::Int, Numbers::Int(cells))
    }

    /// An array of 32-bit real numbers.
    pub fn floats(shape: &[usize], cells: Vec<f32>) -> Result<Self, Error> {
        Self::new(shape, Dtype::F32, Numbers::Single(cells))
    }

    /// The sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The stored type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The numbers, row-major.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Bool(v) => v.len(),
            Numbers::Int(v) => v.len(),
            Numbers::Single(v) => v.len(),
            Numbers::Double(v) => v.len(),
        }
    }

    /// True when a size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cell number `i` as a real number; truth values as 0 and 1.
    pub fn at(&self, i: usize) -> f64 {
        match &self.numbers {
            Numbers::Bool(v) => f64::from(u8::from(v[i])),
            Numbers::Int(v) => v[i] as f64,
            Numbers::Single(v) => f64::from(v[i]),
            Numbers::Double(v) => v[i],
        }
    }

    /// All cells as whole numbers; `None` where one is not whole.
    pub(crate) fn whole(&self) -> Option<Vec<i64>> {
        (0..self.len()).map(|i| self.at(i)).map(|x| (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64)).collect()
    }

    /// The last dimension's rows of whole numbers: `[batch, length]`, where a single row stands for `[1, length]` and further
    /// dimensions before the last are batch rows.
    pub(crate) fn rows(&self) -> Option<Vec<Vec<i64>>> {
        let width = *self.shape.last()?;
        if self.is_empty() {
            return None;
        }
        Some(self.whole()?.chunks(width).map(<[i64]>::to_vec).collect())
    }

    /// Entry `i` of the first dimension.
    pub(crate) fn slice(&self, i: usize) -> Result<Self, Error> {
        let shape = &self.shape[1..];
        let count: usize = shape.iter().product();
        let range = i * count..(i + 1) * count;
        let numbers = match &self.numbers {
            Numbers::Bool(v) => Numbers::Bool(v[range].to_vec()),
            Numbers::Int(v) => Numbers::Int(v[range].to_vec()),
            Numbers::Single(v) => Numbers::Single(v[range].to_vec()),
            Numbers::Double(v) => Numbers::Double(v[range].to_vec()),
        };
        Self::new(shape, self.dtype, numbers)
    }

    /// Bytes as stored.
    pub(crate) fn bytes(&self) -> u64 {
        let width = match self.dtype {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 => 4,
            Dtype::Int | Dtype::F64 => 8,
        };
        self.len() as u64 * width
    }

    /// True for real numbers.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.numbers, Numbers::Single(_) | Numbers::Double(_))
    }
}
