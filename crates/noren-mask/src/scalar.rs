//! Parameters of atoms and scores: numbers for each batch row, sides, real numbers.

/// One number for all batch rows, or one for each.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PerRow {
    /// The same for every batch row.
    All(u64),
    /// One for each batch row, in order.
    Each(Vec<u64>),
}

impl PerRow {
    /// The number that holds for batch row `row`, `None` when the list is too short.
    pub fn get(&self, row: usize) -> Option<u64> {
        match self {
            PerRow::All(n) => Some(*n),
            PerRow::Each(list) => list.get(row).copied(),
        }
    }
}

impl From<u64> for PerRow {
    fn from(n: u64) -> Self {
        PerRow::All(n)
    }
}

impl From<Vec<u64>> for PerRow {
    fn from(list: Vec<u64>) -> Self {
        PerRow::Each(list)
    }
}

impl<const N: usize> From<[u64; N]> for PerRow {
    fn from(list: [u64; N]) -> Self {
        PerRow::Each(list.into())
    }
}

/// The end of a sequence at which padding stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Real tokens last.
    Left,
    /// Real tokens first.
    #[default]
    Right,
}

/// A finite number that can be compared and hashed (by its bits; -0 is stored as 0).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Real(u64);

impl Real {
    /// Wraps `value`.
    pub fn new(value: f64) -> Self {
        Real((value + 0.0).to_bits())
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// By value, as [`f64::total_cmp`].
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
