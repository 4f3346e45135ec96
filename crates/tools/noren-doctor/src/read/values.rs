//! [`Values`]: a mask array as another program stores it. It is not yet known which of its values mean "allowed".

use noren_mask::Error;
use noren_mask::batch::Entry;

/// The type of the stored numbers. The range of the type matters: a number that hides cells, such as -1e9, overflows in
/// `float16`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // the usual names
pub enum Dtype {
    Bool,
    U8,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// Returns the type with the given name, as numpy, PyTorch or safetensors write it; `None` for other names.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim_start_matches("torch.").to_ascii_lowercase();
        Some(match name.as_str() {
            "bool" | "bool_" => Dtype::Bool,
            "u8" | "uint8" => Dtype::U8,
            "i8" | "int8" => Dtype::I8,
            "i16" | "int16" => Dtype::I16,
            "u16" | "uint16" => Dtype::U16,
            "i32" | "int32" => Dtype::I32,
            "u32" | "uint32" => Dtype::U32,
            "i64" | "int64" | "int" | "long" => Dtype::I64,
            "u64" | "uint64" => Dtype::U64,
            "f16" | "float16" | "half" | "fp16" => Dtype::F16,
            "bf16" | "bfloat16" => Dtype::Bf16,
            "f32" | "float32" | "float" | "fp32" => Dtype::F32,
            "f64" | "float64" | "double" | "fp64" => Dtype::F64,
            _ => return None,
        })
    }

    /// Returns the largest finite number of a floating-point type; `None` for other types.
    pub(crate) fn largest(self) -> Option<f64> {
        match self {
            Dtype::F16 => Some(65504.0),
            Dtype::Bf16 => Some(3.389_531_389_251_535_5e38),
            Dtype::F32 => Some(f64::from(f32::MAX)),
            Dtype::F64 => Some(f64::MAX),
            _ => None,
        }
    }

    /// Returns the number of bytes of one number.
    pub fn width(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    /// Returns the usual name of the number type, such as `float32`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "uint8",
            Dtype::I8 => "int8",
            Dtype::I16 => "int16",
            Dtype::U16 => "uint16",
            Dtype::I32 => "int32",
            Dtype::U32 => "uint32",
            Dtype::I64 => "int64",
            Dtype::U64 => "uint64",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
        }
    }
}

/// The stored numbers of an array, in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub enum Numbers {
    /// Booleans.
    Bool(Vec<bool>),
    /// Integers of any width.
    Int(Vec<i64>),
    /// Floating-point numbers of at most 32 bits.
    Single(Vec<f32>),
    /// Floating-point numbers of 64 bits.
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
    /// Creates an array from its shape, stored type and row-major numbers.
    ///
    /// # Errors
    /// Returns an error if the count of numbers is not the product of the shape.
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
            false => Err(Error::fact("array", format!("shape {shape:?} has {expected} cells, but got {count} cells"))),
        }
    }

    /// Creates an array of booleans, row-major.
    ///
    /// # Errors
    /// Returns an error if the count of cells is not the product of the shape.
    pub fn bools(shape: &[usize], cells: Vec<bool>) -> Result<Self, Error> {
        Self::new(shape, Dtype::Bool, Numbers::Bool(cells))
    }

    /// Creates an array of 64-bit integers, row-major.
    ///
    /// # Errors
    /// Returns an error if the count of cells is not the product of the shape.
    pub fn ints(shape: &[usize], cells: Vec<i64>) -> Result<Self, Error> {
        Self::new(shape, Dtype::I64, Numbers::Int(cells))
    }

    /// Creates an array of 32-bit floats, row-major.
    ///
    /// # Errors
    /// Returns an error if the count of cells is not the product of the shape.
    pub fn floats(shape: &[usize], cells: Vec<f32>) -> Result<Self, Error> {
        Self::new(shape, Dtype::F32, Numbers::Single(cells))
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the type of the stored numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the stored numbers in row-major order.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Returns the number of cells.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Bool(v) => v.len(),
            Numbers::Int(v) => v.len(),
            Numbers::Single(v) => v.len(),
            Numbers::Double(v) => v.len(),
        }
    }

    /// Returns true if the array has no cell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of cell `i` (in row-major order) as a float: 0 for false and 1 for true.
    pub fn at(&self, i: usize) -> f64 {
        match &self.numbers {
            Numbers::Bool(v) => f64::from(u8::from(v[i])),
            Numbers::Int(v) => v[i] as f64,
            Numbers::Single(v) => f64::from(v[i]),
            Numbers::Double(v) => v[i],
        }
    }

    /// Returns all cells as integers; `None` if a cell is not an integer.
    pub(crate) fn whole(&self) -> Option<Vec<i64>> {
        (0..self.len()).map(|i| self.at(i)).map(|x| (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64)).collect()
    }

    /// Returns the rows along the last dimension as integers, `[batch, length]`. All dimensions before the last are
    /// combined into `batch`; an array of one dimension is one row. `None` if the array has no cell, or if a cell is
    /// not an integer.
    pub(crate) fn rows(&self) -> Option<Vec<Vec<i64>>> {
        let width = *self.shape.last()?;
        if self.is_empty() {
            return None;
        }
        Some(self.whole()?.chunks(width).map(<[i64]>::to_vec).collect())
    }

    /// Returns this array of the name `name` for the readings of a batch.
    pub(crate) fn entry(&self, name: &str) -> Entry {
        let values = (0..self.len()).map(|i| self.at(i)).collect();
        Entry { name: Some(name.into()), shape: self.shape.clone(), values, float: self.is_real() }
    }

    /// Returns the sub-array at index `i` of the first dimension; it has one dimension less.
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

    /// Returns the arrays along a new first dimension; the inverse of [`slice`](Self::slice). `None` if the arrays differ in type or shape.
    pub(crate) fn stacked(parts: &[Values]) -> Option<Self> {
        let first = parts.first()?;
        if parts.iter().any(|part| part.shape != first.shape || part.dtype != first.dtype) {
            return None;
        }
        let mut numbers = first.numbers.clone();
        for part in &parts[1..] {
            match (&mut numbers, &part.numbers) {
                (Numbers::Bool(all), Numbers::Bool(more)) => all.extend(more),
                (Numbers::Int(all), Numbers::Int(more)) => all.extend(more),
                (Numbers::Single(all), Numbers::Single(more)) => all.extend(more),
                (Numbers::Double(all), Numbers::Double(more)) => all.extend(more),
                _ => return None,
            }
        }
        Self::new(&[&[parts.len()], &first.shape[..]].concat(), first.dtype, numbers).ok()
    }

    /// Returns the size of the stored numbers in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.len() as u64 * self.dtype.width() as u64
    }

    /// Returns true for floating-point types.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.numbers, Numbers::Single(_) | Numbers::Double(_))
    }
}
