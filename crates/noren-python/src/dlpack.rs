//! Arrays of any library, without a copy: the DLPack protocol (<https://dmlc.github.io/dlpack>), versions 0 and 1.
//!
//! A capsule is taken once; what it holds is given back when the [`Tensor`] is dropped.

use noren::{Dtype, Element, View, ViewMut, bf16, f16};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

const CPU: [i32; 3] = [1, 3, 11]; // and the host memory of CUDA and ROCm
const READ_ONLY: u64 = 1;

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

/// Whose memory a [`Tensor`] reads.
enum Owner {
    Old(NonNull<Managed>),
    New(NonNull<Versioned>),
}

/// The type of an array's values, as DLPack says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Int(u8),
    Uint(u8),
    Float(Dtype),
    Double,
    Bool,
}

/// An array in somebody else's memory.
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
// SAFETY: nothing behind a shared reference changes.
unsafe impl Sync for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the owner was taken from a capsule that was marked as used, so nobody else gives it back.
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

/// What `__dlpack__` gives, of the newer version where there is one.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let Ok(method) = object.getattr(intern!(py, "__dlpack__")) else {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "`{kind}` is no array: give a NumPy array, a PyTorch tensor on the CPU or anything else with __dlpack__"
        )));
    };
    let newer = PyDict::new(py);
    newer.set_item(intern!(py, "max_version"), (1, 0))?;
    match method.call((), Some(&newer)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        other => other,
    }
}

impl Tensor {
    fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Tensor> {
        let raw = capsule.as_ptr();
        let pointer = |name: &CStr| -> Option<NonNull<c_void>> {
            // SAFETY: the object is a capsule; a name that does not match gives false.
            let valid = unsafe { PyCapsule_IsValid(raw, name.as_ptr()) } == 1;
            // SAFETY: the name matches.
            valid.then(|| NonNull::new(unsafe { PyCapsule_GetPointer(raw, name.as_ptr()) })).flatten()
        };
        let (owner, tensor, flags, used) = if let Some(new) = pointer(c"dltensor_versioned") {
            let new = new.cast::<Versioned>();
            // SAFETY: a capsule of this name holds such a struct, whose head is the same in all versions.
            let (major, flags, tensor) = unsafe { (new.as_ref().major, new.as_ref().flags, new.as_ref().tensor) };
            if major != 1 {
                return Err(PyBufferError::new_err(format!(
                    "DLPack version {major} is not known: noren reads 0 and 1"
                )));
            }
            (Owner::New(new), tensor, flags, c"used_dltensor_versioned")
        } else if let Some(old) = pointer(c"dltensor") {
            let old = old.cast::<Managed>();
            // SAFETY: a capsule of this name holds such a struct.
            (Owner::Old(old), unsafe { old.as_ref().tensor }, 0, c"used_dltensor")
        } else {
            return Err(PyTypeError::new_err("the capsule holds no DLPack tensor, or it was taken already"));
        };
        // SAFETY: the object is a capsule and the name lives for ever.
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
            return Err(PyValueError::new_err(format!(
                "the array is on {name} (DLPack device type {}): noren computes on the CPU, so move it there first (`.cpu()`)",
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
                    "values of DLPack type {code} with {bits} bits in {lanes} lanes are not known: noren reads bool, \
                     integers, float16, bfloat16, float32 and float64"
                )));
            }
        };
        let rank = usize::try_from(tensor.ndim).unwrap_or(0);
        let list =
            |at: *const i64| -> Vec<i64> { if rank == 0 { Vec::new() } else { unsafe_slice(at, rank).to_vec() } };
        self.shape = list(tensor.shape).into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect();
        self.strides = match tensor.strides.is_null() {
            true => contiguous(&self.shape),
            false => list(tensor.strides).into_iter().map(|n| n as isize).collect(),
        };
        self.data = self.data.wrapping_add(tensor.byte_offset as usize);
        Ok(())
    }

    /// The values' type, where attention can be computed with it.
    pub(crate) fn dtype(&self, name: &str) -> PyResult<Dtype> {
        match self.kind {
            Kind::Float(dtype) => Ok(dtype),
            Kind::Uint(16) => Ok(Dtype::Bf16), // as NumPy's extension types for bfloat16 are handed over
            other => Err(PyTypeError::new_err(format!(
                "{name} holds {}: noren computes float32, bfloat16 and float16, so convert it first",
                other.words()
            ))),
        }
    }

    /// A view of `[batch, heads, length, width]`; arrays of fewer dimensions have 1 in front.
    pub(crate) fn view<T: Element>(&self, name: &'static str) -> PyResult<View<'_, T>> {
        let (shape, strides, base, len) = self.layout::<T>(name)?;
        // SAFETY: the array reaches from `base` on over `len` values, and lives as long as `self`.
        let data = unsafe { std::slice::from_raw_parts(self.data.cast::<T>().wrapping_sub(base), len) };
        View::strided(data, shape, strides, base).map_err(crate::error::raise)
    }

    /// [`view`](Self::view) to be written.
    pub(crate) fn view_mut<T: Element>(&mut self, name: &'static str) -> PyResult<ViewMut<'_, T>> {
        if self.read_only {
            return Err(PyValueError::new_err(format!("{name} is read-only: give an array that can be written")));
        }
        let (shape, strides, base, len) = self.layout::<T>(name)?;
        // SAFETY: as in `view`; the package hands in arrays that it has just made, which nobody else knows.
        let data = unsafe { std::slice::from_raw_parts_mut(self.data.cast::<T>().wrapping_sub(base), len) };
        ViewMut::strided(data, shape, strides, base).map_err(crate::error::raise)
    }

    /// All values of a contiguous array, to be written.
    pub(crate) fn slice_mut<T: Copy>(&mut self, name: &str, kinds: &[Kind]) -> PyResult<&mut [T]> {
        let len = self.len();
        if !kinds.contains(&self.kind) || self.read_only || !self.is_contiguous() {
            return Err(PyValueError::new_err(format!("{name} must be contiguous, of its own type and not read-only")));
        }
        if len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: contiguous, of `len` values of a type that `kinds` promises to be as large as `T`; made by the package.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast(), len) })
    }

    /// All values of a contiguous array of `f32`.
    pub(crate) fn floats(&self, name: &str) -> PyResult<&[f32]> {
        if self.kind != Kind::Float(Dtype::F32) || !self.is_contiguous() {
            return Err(PyTypeError::new_err(format!("{name} must be contiguous and float32")));
        }
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: contiguous, of so many values of `f32`.
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast(), self.len()) })
    }

    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_contiguous(&self) -> bool {
        let dims = self.shape.iter().zip(&self.strides).zip(contiguous(&self.shape));
        self.is_empty() || dims.into_iter().all(|((n, stride), dense)| *n == 1 || *stride == dense)
    }

    /// Shape and strides in four dimensions, the values before element 0 and all that are reached.
    fn layout<T: Element>(&self, name: &str) -> PyResult<([usize; 4], [isize; 4], usize, usize)> {
        if self.dtype(name)? != T::DTYPE {
            return Err(PyTypeError::new_err(format!(
                "{name} holds {}, but the other arrays hold {}: convert one",
                self.kind.words(),
                Kind::Float(T::DTYPE).words()
            )));
        }
        let rank = self.shape.len();
        if rank > 4 {
            let shape = &self.shape;
            return Err(crate::error::Error::new_err(format!("{name} has shape {shape:?}: at most 4 dimensions")));
        }
        let (mut shape, mut strides) = ([1; 4], [0; 4]);
        shape[4 - rank..].copy_from_slice(&self.shape);
        strides[4 - rank..].copy_from_slice(&self.strides);
        if self.is_empty() {
            return Err(crate::error::Error::new_err(format!(
                "{name} has shape {:?}: every dimension must hold at least 1",
                self.shape
            )));
        }
        let (mut low, mut high) = (0isize, 0isize);
        for (n, stride) in shape.iter().zip(strides) {
            let reach = (*n as isize - 1) * stride;
            *(if reach < 0 { &mut low } else { &mut high }) += reach;
        }
        if self.data.align_offset(align_of::<T>()) != 0 {
            return Err(PyBufferError::new_err(format!("{name} is not aligned in memory: copy it")));
        }
        Ok((shape, strides, low.unsigned_abs(), (high - low) as usize + 1))
    }

    /// Calls `each` with every value in order, as a number.
    pub(crate) fn for_each(&self, mut each: impl FnMut(f64)) {
        let Some((n, rows)) = self.shape.split_last() else {
            // SAFETY: an array without dimensions holds one value.
            return unsafe { self.kind.each(self.data, 1, 0, &mut each) };
        };
        if self.is_empty() {
            return;
        }
        let stride = self.strides[rows.len()];
        let mut at = vec![0usize; rows.len()];
        loop {
            let offset: isize = at.iter().zip(&self.strides).map(|(i, stride)| *i as isize * stride).sum();
            // SAFETY: `at` is inside the shape, and so are the `n` values of the last dimension.
            unsafe { self.kind.each(self.data.wrapping_offset(offset * self.kind.bytes()), *n, stride, &mut each) };
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
}

impl Kind {
    fn words(self) -> String {
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

    /// Size of a value.
    fn bytes(self) -> isize {
        match self {
            Kind::Int(bits) | Kind::Uint(bits) => isize::from(bits / 8),
            Kind::Float(Dtype::F32) => 4,
            Kind::Float(_) => 2,
            Kind::Double => 8,
            Kind::Bool => 1,
        }
    }

    /// Calls `each` with `n` values, `stride` values apart, from `data` on.
    ///
    /// # Safety
    /// There are as many of this kind.
    unsafe fn each(self, data: *const u8, n: usize, stride: isize, each: &mut impl FnMut(f64)) {
        // SAFETY: promised by the caller; values may lie anywhere.
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

/// # Safety
/// `n` values lie `stride` apart from `data` on.
unsafe fn walk<T: Copy>(data: *const T, n: usize, stride: isize, mut each: impl FnMut(T)) {
    for i in 0..n as isize {
        // SAFETY: promised by the caller.
        each(unsafe { data.offset(i * stride).read_unaligned() });
    }
}

fn unsafe_slice<'a>(at: *const i64, rank: usize) -> &'a [i64] {
    // SAFETY: the protocol promises `ndim` entries.
    unsafe { std::slice::from_raw_parts(at, rank) }
}

fn contiguous(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d].max(1) as isize;
    }
    strides
}
