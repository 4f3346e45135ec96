//! [`Array`]: `f32` values of query rows or keys, and their format in messages between ranks.

use crate::ranks::Error;
use half::{bf16, f16};
use noren::{Dtype, Element, View};
use std::borrow::Cow;

/// A selection of rows of an array: all rows, or the rows with the listed indices in ascending order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Places {
    All,
    At(Vec<usize>),
}

/// A contiguous array of `f32` values `[batch, heads, rows, width]`; `rows` may be 0.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Array {
    pub(crate) data: Vec<f32>,
    pub(crate) shape: [usize; 4],
}

impl Array {
    pub(crate) fn filled(shape: [usize; 4], value: f32) -> Self {
        Array { data: vec![value; shape.iter().product()], shape }
    }

    /// Returns a part of `values`, an array of the shape `shape` = `[batch, heads, rows, width]`, converted to `f32`.
    /// For each batch index in the list `batch`, the part has the first `rows` rows of every head.
    pub(crate) fn part<T: Element>(values: &[T], shape: [usize; 4], batch: &[usize], rows: usize) -> Self {
        let [_, heads, all, width] = shape;
        let mut out = Array::filled([batch.len(), heads, rows, width], 0.0);
        let size = rows * width;
        for (pair, into) in out.data.chunks_mut(size.max(1)).enumerate() {
            let start = (batch[pair / heads] * heads + pair % heads) * all * width;
            T::widen(&values[start..start + size], into);
        }
        out
    }

    /// Returns the shape of this array with `rows` rows.
    pub(crate) fn with_rows(&self, rows: usize) -> [usize; 4] {
        let [batch, heads, _, width] = self.shape;
        [batch, heads, rows, width]
    }

    pub(crate) fn view(&self) -> Result<View<'_>, Error> {
        Ok(View::new(&self.data, self.shape)?)
    }

    /// Copies `part` into this array, as the inverse of [`part`](Self::part): for each batch index in the list `batch`,
    /// the rows of `part` replace the first rows of every head.
    pub(crate) fn put_batch(&mut self, batch: &[usize], part: &Array) {
        let [_, heads, all, width] = self.shape;
        let size = part.shape[2] * width;
        for (pair, rows) in part.data.chunks(size.max(1)).enumerate() {
            let start = (batch[pair / heads] * heads + pair % heads) * all * width;
            self.data[start..start + size].copy_from_slice(rows);
        }
    }

    pub(crate) fn select(&self, places: &Places) -> Cow<'_, Array> {
        let Places::At(places) = places else { return Cow::Borrowed(self) };
        let mut out = Array::filled(self.with_rows(places.len()), 0.0);
        let [.., rows, width] = self.shape;
        for (at, row) in out.data.chunks_mut(width).enumerate() {
            let start = (at / places.len() * rows + places[at % places.len()]) * width;
            row.copy_from_slice(&self.data[start..start + width]);
        }
        Cow::Owned(out)
    }

    pub(crate) fn copy_to(&mut self, places: &[usize], part: &Array) {
        self.pairs(places, part, |own, other| own.copy_from_slice(other));
    }

    pub(crate) fn add_to(&mut self, places: &Places, part: &Array) {
        let add = |own: &mut [f32], other: &[f32]| own.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
        match places {
            Places::All => add(&mut self.data, &part.data),
            Places::At(places) => self.pairs(places, part, add),
        }
    }

    /// Calls `act` for each pair of a row of this array and a row of `part`. The rows of this array are those with the
    /// indices `places` in each head; `part` contains one row for each of these rows, in the same order.
    fn pairs(&mut self, places: &[usize], part: &Array, act: impl Fn(&mut [f32], &[f32])) {
        let [.., rows, width] = self.shape;
        for (at, other) in part.data.chunks(width).enumerate() {
            let start = (at / places.len() * rows + places[at % places.len()]) * width;
            act(&mut self.data[start..start + width], other);
        }
    }

    /// Returns an array whose rows are the rows of `self`, each followed by the values of the same row of `other`.
    pub(crate) fn beside(&self, other: &Array) -> Self {
        let (a, b) = (self.shape[3], other.shape[3]);
        let rows = self.data.chunks(a).zip(other.data.chunks(b));
        let data = rows.flat_map(|(a, b)| a.iter().chain(b).copied()).collect();
        let [batch, heads, rows, _] = self.shape;
        Array { data, shape: [batch, heads, rows, a + b] }
    }

    /// Returns a copy of this array with only the first `width` columns.
    pub(crate) fn columns(&self, width: usize) -> Self {
        let data = self.data.chunks(self.shape[3]).flat_map(|row| &row[..width]).copied().collect();
        let [batch, heads, rows, _] = self.shape;
        Array { data, shape: [batch, heads, rows, width] }
    }

    /// Appends the values to the message `out` as little-endian numbers of the type `dtype`. No number is rounded if
    /// the values were converted to `f32` from this type.
    pub(crate) fn write(&self, dtype: Dtype, out: &mut Vec<u8>) {
        match dtype {
            Dtype::F32 => self.data.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Dtype::Bf16 => self.data.iter().for_each(|x| out.extend(<bf16 as Element>::from_f32(*x).to_le_bytes())),
            Dtype::F16 => self.data.iter().for_each(|x| out.extend(<f16 as Element>::from_f32(*x).to_le_bytes())),
        }
    }
}

/// The unread rest of a message between ranks. A message contains arrays one after another.
pub(crate) struct Message<'a>(pub(crate) &'a [u8]);

impl Message<'_> {
    /// Removes the next array from the message and returns it. The length of the message was checked before, so the
    /// array is complete.
    pub(crate) fn array(&mut self, dtype: Dtype, shape: [usize; 4]) -> Array {
        let (bytes, rest) = self.0.split_at(shape.iter().product::<usize>() * dtype.size());
        self.0 = rest;
        let data = match dtype {
            Dtype::F32 => bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect(),
            Dtype::Bf16 => bytes.as_chunks().0.iter().map(|x| Element::to_f32(bf16::from_le_bytes(*x))).collect(),
            Dtype::F16 => bytes.as_chunks().0.iter().map(|x| Element::to_f32(f16::from_le_bytes(*x))).collect(),
        };
        Array { data, shape }
    }
}
