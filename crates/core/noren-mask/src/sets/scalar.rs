//! Types of the parameters of atoms and score modifiers: [`Rows`] (one value for each batch row), [`Side`] (the side of
//! the padding), [`Real`] (a real number), [`Offset`] (a signed number of positions).

/// One value for all batch rows, or one value per batch row.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rows<T> {
    /// One value for every batch row.
    All(T),
    /// One value per batch row, in order.
    Each(Vec<T>),
}

impl<T> Rows<T> {
    /// Returns the value of batch row `row`, or `None` if the list has no value for it.
    pub fn get(&self, row: usize) -> Option<&T> {
        match self {
            Rows::All(value) => Some(value),
            Rows::Each(list) => list.get(row),
        }
    }

    /// Returns the values: one for all batch rows, or one for each.
    pub(crate) fn values(&self) -> &[T] {
        match self {
            Rows::All(value) => std::slice::from_ref(value),
            Rows::Each(list) => list,
        }
    }

    /// Returns the length of the list of values, or `None` if one value applies to all batch rows.
    pub fn rows(&self) -> Option<usize> {
        match self {
            Rows::All(_) => None,
            Rows::Each(list) => Some(list.len()),
        }
    }
}

impl<T, const N: usize> From<[T; N]> for Rows<Vec<T>> {
    fn from(list: [T; N]) -> Self {
        Rows::All(list.into())
    }
}

impl<T, const N: usize, const M: usize> From<[[T; N]; M]> for Rows<Vec<T>> {
    fn from(lists: [[T; N]; M]) -> Self {
        Rows::Each(lists.map(Vec::from).into())
    }
}

impl<T: Clone> From<&[T]> for Rows<Vec<T>> {
    fn from(list: &[T]) -> Self {
        Rows::All(list.into())
    }
}

impl<T> From<Vec<T>> for Rows<Vec<T>> {
    fn from(list: Vec<T>) -> Self {
        Rows::All(list)
    }
}

impl<T> From<Vec<Vec<T>>> for Rows<Vec<T>> {
    fn from(lists: Vec<Vec<T>>) -> Self {
        Rows::Each(lists)
    }
}

impl From<usize> for Rows<usize> {
    fn from(n: usize) -> Self {
        Rows::All(n)
    }
}

impl From<Vec<usize>> for Rows<usize> {
    fn from(list: Vec<usize>) -> Self {
        Rows::Each(list)
    }
}

impl<const N: usize> From<[usize; N]> for Rows<usize> {
    fn from(list: [usize; N]) -> Self {
        Rows::Each(list.into())
    }
}

/// A signed number of positions, such as a query offset: a `usize`, an `i64` or a literal.
pub trait Offset {
    /// Returns the number as `i64`; for a larger number, returns `i64::MAX`, which no builder accepts.
    fn offset(self) -> i64;
}

macro_rules! offsets {
    ($($number:ty),*) => {$(
        impl Offset for $number {
            fn offset(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
// literals such as `-1`, where both other types are accepted, are `i32`
offsets!(usize, i64, i32);

/// The end of a sequence that has the padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Side {
    /// The padding is at the beginning of the sequence, before the other tokens.
    Left,
    /// The padding is at the end of the sequence, after the other tokens.
    #[default]
    Right,
}

/// A finite real number that, unlike `f64`, has a total order and a hash. The value -0 is stored as 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Real(u64);

impl Real {
    /// Returns the number `value` as a `Real`, which can be compared, ordered and hashed. -0.0 becomes 0.0.
    pub fn new(value: f64) -> Self {
        Real((value + 0.0).to_bits())
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Orders numbers by value, as [`f64::total_cmp`] does.
impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.get().total_cmp(&other.get())
    }
}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        Real::new(value)
    }
}
