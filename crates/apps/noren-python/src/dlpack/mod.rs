//! Access to arrays of any library without a copy, by the DLPack protocol (<https://dmlc.github.io/dlpack>), versions 0
//! and 1.
//!
//! A capsule (the Python object that holds an array) is read once. When the [`Tensor`] is dropped, the memory is
//! returned to the library that owns it.
//!
//! # Aliasing
//!
//! Calls run without the interpreter's lock, so another Python thread could write into an array during a call. Python's
//! arrays have no lock that prevents this. The public functions state that arrays must not change during a call. If an array
//! changes, numbers may be wrong, but no memory outside of the arrays is read or written, because shapes, strides and
//! addresses are copied and checked when the capsule is read. Arrays that are written must not be read-only, must not overlap
//! themselves, and must not overlap any other array of the call ([`check_disjoint`]); this is checked.

mod kind;

use crate::error::Error;
pub(crate) use kind::Kind;
use kind::walk;
use noren::noren_mask::text::first_line;
use noren::{Dtype, Element, View, ViewMut};
use pyo3::exceptions::{PyBufferError, PyException, PyTypeError};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::ptr::NonNull;

const CPU: [i32; 3] = [1, 3, 11]; // and the host memory of CUDA and ROCm
const READ_ONLY: u64 = 1;
/// The maximum number of dimensions of an array; no library supports more.
const MOST_DIMENSIONS: usize = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// The DLPack struct (version 0 or 1) that owns the memory of a [`Tensor`].
enum Owner {
    Old(NonNull<Managed>),
    New(NonNull<Versioned>),
}

/// The maximum number of values that are copied from an array. Without this limit, an array that repeats its values by
/// strides of 0 could need more memory than the machine has.
pub(crate) const MOST_VALUES: usize = 1 << 30;

/// Types for which every bit pattern is a valid value.
pub(crate) trait Plain: Copy + Default {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for f32 {}
impl Plain for f64 {}

/// An array in the memory of another library.
pub(crate) struct Tensor {
    owner: Owner,
    data: *mut u8,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
    strides: Vec<isize>,
    read_only: bool,
}

// SAFETY: the protocol lets any thread read the memory and call the deleter.
unsafe impl Send for Tensor {}
// SAFETY: a shared reference only reads, and callers keep the memory unchanged during a call (see the module's page).
unsafe impl Sync for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the owner was taken from a capsule that was marked as used, so no other code calls the deleter.
        unsafe {
            match self.owner {
                Owner::Old(owner) => {
                    if let Some(deleter) = owner.as_ref().deleter {
                        deleter(owner.as_ptr());
                    }
                }
                Owner::New(owner) => {
                    if let Some(deleter) = owner.as_ref().deleter {
                        deleter(owner.as_ptr());
                    }
                }
            }
        }
    }
}

impl FromPyObject<'_, '_> for Tensor {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        match object.cast::<PyCapsule>() {
            Ok(capsule) => Tensor::take(capsule),
            Err(_) => Tensor::take(capsule_of(&object)?.cast::<PyCapsule>()?),
        }
    }
}

/// Calls `object.__dlpack__()` and returns its result, a capsule with the array: in DLPack version 1 if the library
/// supports that version.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    // PyTorch exports the stored values of a tensor whose negative bit is set, so the sign is applied first.
    let object = &match object.getattr(intern!(py, "resolve_neg")) {
        Ok(resolve) => resolve.call0().map_err(|error| refused(object, &error))?,
        Err(_) => object.clone(),
    };
    let Ok(method) = object.getattr(intern!(py, "__dlpack__")) else {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "`{kind}` is not an array: give a NumPy array, a PyTorch tensor on the CPU or anything else with __dlpack__"
        )));
    };
    let newer = PyDict::new(py);
    newer.set_item(intern!(py, "max_version"), (1, 0))?;
    let taken = match method.call((), Some(&newer)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        other => other,
    };
    taken.map_err(|error| match error.is_instance_of::<PyException>(py) {
        true => refused(object, &error),
        false => error,
    })
}

/// Returns the error for an array that its library does not export. The message has the library's reason and a fix.
fn refused(object: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let py = object.py();
    let kind = object.get_type().name().map_or_else(|_| "array".to_owned(), |name| name.to_string());
    let reason = error.value(py).to_string();
    let reason = first_line(&reason);
    PyTypeError::new_err(format!(
        "`{kind}` cannot be read ({reason}): give a dense array on the CPU of bool, integers, float16, bfloat16, float32 or \
         float64"
    ))
}

impl Tensor {
    fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Tensor> {
        let raw = capsule.as_ptr();
        let pointer = |name: &CStr| -> Option<NonNull<c_void>> {
            // SAFETY: the object is a capsule; a name that does not match gives false.
            let valid = unsafe { PyCapsule_IsValid(raw, name.as_ptr()) } == 1;
            // SAFETY: the object is a capsule with this name.
            valid.then(|| NonNull::new(unsafe { PyCapsule_GetPointer(raw, name.as_ptr()) })).flatten()
        };
        let (owner, tensor, flags, used) = if let Some(new) = pointer(c"dltensor_versioned") {
            let new = new.cast::<Versioned>();
            // SAFETY: a capsule of this name holds a struct of this type; its first fields are the same in all versions.
            let (major, flags, tensor) = unsafe { (new.as_ref().major, new.as_ref().flags, new.as_ref().tensor) };
            if major != 1 {
                return Err(PyBufferError::new_err(format!(
                    "DLPack version {major} is not supported: noren reads versions 0 and 1"
                )));
            }
            (Owner::New(new), tensor, flags, c"used_dltensor_versioned")
        } else if let Some(old) = pointer(c"dltensor") {
            let old = old.cast::<Managed>();
            // SAFETY: a capsule of this name holds a struct of this type.
            (Owner::Old(old), unsafe { old.as_ref().tensor }, 0, c"used_dltensor")
        } else {
            return Err(PyTypeError::new_err(
                "the capsule holds no DLPack tensor, or its tensor was already read: give a new capsule",
            ));
        };
        // SAFETY: the object is a capsule and the name is static.
        unsafe { PyCapsule_SetName(raw, used.as_ptr()) };
        let mut taken = Tensor {
            owner,
            data: tensor.data.cast(),
            kind: Kind::Bool,
            shape: Vec::new(),
            strides: Vec::new(),
            read_only: flags & READ_ONLY != 0,
        };
        taken.read(&tensor)?;
        Ok(taken)
    }

    fn read(&mut self, tensor: &DlTensor) -> PyResult<()> {
        if !CPU.contains(&tensor.device_type) {
            let name = match tensor.device_type {
                2 => "a CUDA device",
                8 => "a Metal device",
                10 => "a ROCm device",
                _ => "another device",
            };
            return Err(Error::new_err(format!(
                "the array is on {name} (DLPack device type {}): noren computes on the CPU, so move the array to the CPU first (`.cpu()`)",
                tensor.device_type
            )));
        }
        self.kind = match (tensor.code, tensor.bits, tensor.lanes) {
            (0, bits @ (8 | 16 | 32 | 64), 1) => Kind::Int(bits),
            (1, bits @ (8 | 16 | 32 | 64), 1) => Kind::Uint(bits),
            (2, 16, 1) => Kind::Float(Dtype::F16),
            (2, 32, 1) => Kind::Float(Dtype::F32),
            (2, 64, 1) => Kind::Double,
            (4, 16, 1) => Kind::Float(Dtype::Bf16),
            (6, 8, 1) => Kind::Bool,
            (code, bits, lanes) => {
                return Err(PyTypeError::new_err(format!(
                    "values of DLPack type {code} with {bits} bits in {lanes} lanes are not supported: noren reads bool, \
                     integers, float16, bfloat16, float32 and float64"
                )));
            }
        };
        self.place(tensor)
    }

    /// Reads the shape, strides and address of the array. Returns an error if they describe more memory than can exist.
    fn place(&mut self, tensor: &DlTensor) -> PyResult<()> {
        let wrong = |what: &str| Err(PyBufferError::new_err(format!("the DLPack tensor is malformed: {what}")));
        let Some(rank) = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MOST_DIMENSIONS) else {
            return wrong(&format!(
                "the tensor has {} dimensions, but at most {MOST_DIMENSIONS} are possible",
                tensor.ndim
            ));
        };
        if rank > 0 && tensor.shape.is_null() {
            return wrong("the tensor has no shape");
        }
        // SAFETY: the protocol guarantees `ndim` entries if the pointer is not null, which was checked.
        let shape = unsafe { list(tensor.shape, rank) };
        let Ok(shape) = shape.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>() else {
            return wrong("a dimension of the tensor is negative");
        };
        let Some(strides) = contiguous(&shape) else {
            return wrong("the size of the tensor overflows");
        };
        self.strides = match tensor.strides.is_null() {
            true => strides,
            // SAFETY: the protocol guarantees `ndim` strides if the pointer is not null, which was checked.
            false => unsafe { list(tensor.strides, rank) }.into_iter().map(|n| n as isize).collect(),
        };
        self.shape = shape;
        let Ok(offset) = isize::try_from(tensor.byte_offset) else {
            return wrong("the offset of the tensor overflows");
        };
        self.data = self.data.wrapping_offset(offset);
        if self.reach().is_none() {
            return wrong("the tensor's strides reach beyond all memory");
        }
        if self.data.is_null() && !self.is_empty() {
            return wrong("the tensor has no memory address");
        }
        Ok(())
    }

    /// Returns (lowest, highest) offset of any element from the first element, counted in elements. For example, 4
    /// values with stride -1 give (-3, 0). Returns `None` if an offset in bytes overflows.
    fn reach(&self) -> Option<(isize, isize)> {
        if self.is_empty() {
            return Some((0, 0));
        }
        let (mut low, mut high) = (0isize, 0isize);
        for (n, stride) in self.shape.iter().zip(&self.strides) {
            let step = isize::try_from(*n - 1).ok()?.checked_mul(*stride)?;
            let side = if step < 0 { &mut low } else { &mut high };
            *side = side.checked_add(step)?;
        }
        let bytes = self.kind.bytes();
        high.checked_sub(low)?.checked_add(1)?.checked_mul(bytes)?;
        low.checked_mul(bytes)?;
        Some((low, high))
    }

    /// Returns the range of addresses that contains all elements.
    fn addresses(&self) -> Range<usize> {
        let (low, high) = self.reach().unwrap_or((0, 0));
        let bytes = self.kind.bytes();
        let start = self.data.wrapping_offset(low * bytes) as usize;
        let len = if self.is_empty() { 0 } else { (high - low + 1) * bytes };
        start..start.wrapping_add(len as usize)
    }

    /// Returns the type of the values. Returns an error if attention does not support the type; `name` is the array's
    /// name in the message.
    pub(crate) fn dtype(&self, name: &str) -> PyResult<Dtype> {
        match self.kind {
            Kind::Float(dtype) => Ok(dtype),
            Kind::Uint(16) => Ok(Dtype::Bf16), // NumPy's bfloat16 is passed as its bits, in uint16
            other => Err(PyTypeError::new_err(format!(
                "{name} holds {}: noren computes float32, bfloat16 and float16, so convert the array first",
                other.words()
            ))),
        }
    }

    /// Returns a view of the array as `[batch, heads, length, width]`; missing first dimensions have size 1. `name` is
    /// the name in error messages.
    pub(crate) fn view<T: Element>(&self, name: &'static str) -> PyResult<View<'_, T>> {
        let (shape, strides, base, len) = self.layout::<T>(name)?;
        // SAFETY: the array reaches from `base` on over `len` values, and lives as long as `self`.
        let data = unsafe { std::slice::from_raw_parts(self.data.cast::<T>().wrapping_sub(base), len) };
        View::strided(data, shape, strides, base).map_err(crate::error::raise)
    }

    /// Returns a writable view like [`view`](Self::view). Returns an error if the array is read-only.
    pub(crate) fn view_mut<T: Element>(&mut self, name: &'static str) -> PyResult<ViewMut<'_, T>> {
        if self.read_only {
            return Err(Error::new_err(format!("{name} is read-only: give an array that can be written")));
        }
        let (shape, strides, base, len) = self.layout::<T>(name)?;
        // SAFETY: the array reaches over `len` values as in `view`. The package made the array for this call, so no other
        // code refers to the array.
        let data = unsafe { std::slice::from_raw_parts_mut(self.data.cast::<T>().wrapping_sub(base), len) };
        ViewMut::strided(data, shape, strides, base).map_err(crate::error::raise)
    }

    /// Returns all values of a contiguous array for writing; its type must be one of `kinds`.
    pub(crate) fn slice_mut<T: Plain>(&mut self, name: &str, kinds: &[Kind]) -> PyResult<&mut [T]> {
        let len = self.len();
        if !kinds.contains(&self.kind) || self.read_only || !self.is_contiguous() {
            return Err(Error::new_err(format!(
                "{name} does not have the expected type, is not contiguous, or is read-only: give a contiguous, writable array of the expected type"
            )));
        }
        if size_of::<T>() as isize != self.kind.bytes() {
            return Err(PyTypeError::new_err(format!("{name} holds {}", self.kind.words())));
        }
        if len == 0 {
            return Ok(&mut []);
        }
        self.aligned::<T>(name)?;
        // SAFETY: the array is contiguous, aligned and not read-only, has `len` values of the size of `T`, and is disjoint
        // from the call's other arrays (`check_disjoint`).
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast(), len) })
    }

    /// Returns all values of a contiguous array of type `T`.
    pub(crate) fn floats<T: Element>(&self, name: &str) -> PyResult<&[T]> {
        let kind = Kind::Float(T::DTYPE);
        if self.kind != kind || !self.is_contiguous() {
            return Err(PyTypeError::new_err(format!(
                "{name} must be contiguous and hold values of the type {}",
                kind.words()
            )));
        }
        if self.is_empty() {
            return Ok(&[]);
        }
        self.aligned::<T>(name)?;
        // SAFETY: the array is contiguous and aligned, and has `len` values of `T`, for which every bit pattern is valid.
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast(), self.len()) })
    }

    fn aligned<T>(&self, name: &str) -> PyResult<()> {
        match self.data.cast::<T>().is_aligned() {
            true => Ok(()),
            false => Err(PyBufferError::new_err(format!("{name} is not aligned in memory: copy the array"))),
        }
    }

    /// Returns the number of values. The product of the sizes does not overflow, because [`place`](Self::place) checks
    /// it.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the number of values. Returns an error if this number is above `most`.
    pub(crate) fn len_within(&self, most: usize) -> PyResult<usize> {
        match self.len() {
            len if len <= most => Ok(len),
            len => Err(crate::error::Error::new_err(format!(
                "an array of shape {:?} holds {len} values, but at most {most} can be read: give an expression such as \
                 nr.causal(), or a part of the array",
                self.shape
            ))),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_contiguous(&self) -> bool {
        let dense = contiguous(&self.shape).unwrap_or_default();
        let dims = self.shape.iter().zip(&self.strides).zip(dense);
        self.is_empty() || dims.into_iter().all(|((n, stride), dense)| *n == 1 || *stride == dense)
    }

    /// Returns (shape, strides, number of values in memory before the first element, number of values in memory from
    /// the lowest to the highest address). Shape and strides have 4 dimensions. With negative strides, some values are
    /// stored before the first element.
    fn layout<T: Element>(&self, name: &str) -> PyResult<([usize; 4], [isize; 4], usize, usize)> {
        if self.dtype(name)? != T::DTYPE {
            return Err(PyTypeError::new_err(format!(
                "{name} holds {}, but the other arrays hold {}: convert the arrays to one type",
                self.kind.words(),
                Kind::Float(T::DTYPE).words()
            )));
        }
        let rank = self.shape.len();
        if rank > 4 {
            let shape = &self.shape;
            return Err(crate::error::Error::new_err(format!(
                "{name} has shape {shape:?}: at most 4 dimensions are supported"
            )));
        }
        let (mut shape, mut strides) = ([1; 4], [0; 4]);
        shape[4 - rank..].copy_from_slice(&self.shape);
        strides[4 - rank..].copy_from_slice(&self.strides);
        if self.is_empty() {
            return Err(crate::error::Error::new_err(format!(
                "{name} has shape {:?}: every dimension must be at least 1",
                self.shape
            )));
        }
        self.aligned::<T>(name)?;
        let Some((low, high)) = self.reach() else {
            return Err(PyBufferError::new_err(format!("the strides of {name} reach beyond all memory")));
        };
        Ok((shape, strides, low.unsigned_abs(), (high - low) as usize + 1))
    }

    /// Calls `each` with the values of every row along the last dimension, in the order of the array. `T` must have as
    /// many bytes as a value of the array.
    pub(crate) fn each_row<T: Plain>(&self, mut each: impl FnMut(&[T])) -> PyResult<()> {
        if size_of::<T>() as isize != self.kind.bytes() {
            return Err(PyTypeError::new_err(format!(
                "values of {} were read with another size, which is a mistake in noren: report it",
                self.kind.words()
            )));
        }
        let Some((n, rows)) = self.shape.split_last().filter(|_| !self.is_empty()) else { return Ok(()) };
        let stride = self.strides[rows.len()];
        let mut buffer = vec![T::default(); *n];
        self.each_start(rows, |start| {
            let from = start.cast::<T>();
            if stride == 1 && from.is_aligned() {
                // SAFETY: the row's `n` values are inside the array, contiguous and aligned.
                return each(unsafe { std::slice::from_raw_parts(from, *n) });
            }
            let mut at = buffer.iter_mut();
            // SAFETY: the row's `n` values are inside the array.
            unsafe {
                walk(from, *n, stride, |x| {
                    if let Some(to) = at.next() {
                        *to = x;
                    }
                })
            };
            each(&buffer);
        });
        Ok(())
    }

    /// Calls `each` with the address of the first value of every row along the last dimension. `rows` has the sizes of
    /// all dimensions except the last. The array must not be empty.
    fn each_start(&self, rows: &[usize], mut each: impl FnMut(*const u8)) {
        let mut at = vec![0usize; rows.len()];
        loop {
            let offset: isize = at.iter().zip(&self.strides).map(|(i, stride)| *i as isize * stride).sum();
            each(self.data.wrapping_offset(offset * self.kind.bytes()));
            let mut dim = at.len();
            loop {
                let Some(next) = dim.checked_sub(1) else { return };
                dim = next;
                at[dim] += 1;
                if at[dim] < rows[dim] {
                    break;
                }
                at[dim] = 0;
            }
        }
    }

    /// Calls `each` with every value in order, converted to `f64`.
    pub(crate) fn for_each(&self, mut each: impl FnMut(f64)) {
        // SAFETY: the values of a run are of the array's kind.
        self.each_run(|start, n, stride| unsafe { self.kind.each(start, n, stride, &mut each) });
    }

    /// Returns every value in order, converted by `of`. Returns an error if there are more than [`MOST_VALUES`] values.
    pub(crate) fn values<T>(&self, of: impl Fn(f64) -> T) -> PyResult<Vec<T>> {
        let mut all = Vec::with_capacity(self.len_within(MOST_VALUES)?);
        self.for_each(|x| all.push(of(x)));
        Ok(all)
    }

    /// Calls `each` with every integer of the array in order, without rounding; values above `i64::MAX` become `i64::MAX`.
    pub(crate) fn for_each_integer(&self, mut each: impl FnMut(i64)) {
        // SAFETY: the values of a run are of the array's kind.
        self.each_run(|start, n, stride| unsafe {
            match self.kind {
                Kind::Int(64) => walk(start.cast::<i64>(), n, stride, &mut each),
                Kind::Uint(64) => {
                    walk(start.cast::<u64>(), n, stride, |x| each(i64::try_from(x).unwrap_or(i64::MAX)));
                }
                kind => kind.each(start, n, stride, &mut |x| each(x as i64)),
            }
        });
    }

    /// Calls `each` with each row along the last dimension: (address of the first value, number of values, distance
    /// between neighbouring values). The distance is counted in values, not bytes.
    fn each_run(&self, mut each: impl FnMut(*const u8, usize, isize)) {
        let Some((n, rows)) = self.shape.split_last() else { return each(self.data, 1, 0) };
        if !self.is_empty() {
            let stride = self.strides[rows.len()];
            self.each_start(rows, |start| each(start, *n, stride));
        }
    }
}

/// Reads `rank` integers from the address `at`, such as the sizes of an array.
///
/// # Safety
/// `at` points to `rank` readable entries, or `rank` is 0.
unsafe fn list(at: *const i64, rank: usize) -> Vec<i64> {
    // SAFETY: the caller guarantees that the entries are readable; they need no alignment.
    (0..rank).map(|i| unsafe { at.add(i).read_unaligned() }).collect()
}

/// Returns the strides of a contiguous array of the shape `shape`, counted in values; `None` if the number of values
/// overflows.
fn contiguous(shape: &[usize]) -> Option<Vec<isize>> {
    let mut strides = vec![1isize; shape.len()];
    let mut values = 1isize;
    for d in (0..shape.len()).rev() {
        strides[d] = values;
        values = values.checked_mul(isize::try_from(shape[d].max(1)).ok()?)?;
    }
    Some(strides)
}

/// Returns an error if an array that is written overlaps another array of the call.
pub(crate) fn check_disjoint(written: &[(&str, &Tensor)], read: &[(&str, &Tensor)]) -> PyResult<()> {
    for (i, (name, array)) in written.iter().enumerate() {
        let own = array.addresses();
        for (other_name, other) in written[i + 1..].iter().chain(read) {
            let other = other.addresses();
            if !own.is_empty() && !other.is_empty() && own.start < other.end && other.start < own.end {
                return Err(crate::error::Error::new_err(format!(
                    "{name} and {other_name} share memory, but one of them is written: give {name} memory of its own"
                )));
            }
        }
    }
    Ok(())
}
