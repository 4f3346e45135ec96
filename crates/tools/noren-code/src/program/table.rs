//! [`Table`]: facts of a mask as tables that generated code reads, such as the document of each position.

/// A table of facts that the conditions of a program read by index.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Table {
    /// The name of the variable that holds the table.
    pub(crate) name: String,
    /// The entries.
    pub(crate) content: Content,
}

/// The entries of a table. A field `rows` has one row for all batch rows, or one row for each batch row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    /// One number for each batch row, such as lengths.
    PerRow(Vec<i64>),
    /// Rows of numbers, one number for each position or index; a row with fewer than `len` numbers ends with `fill`.
    Numbers { rows: Vec<Vec<i64>>, len: i64, fill: i64, note: &'static str },
    /// The index of the document of each of `len` positions; -1 for a position outside of documents. `rows` has, for
    /// each batch row, the start of the first document and the lengths of the documents.
    Documents { rows: Vec<(i64, Vec<i64>)>, len: i64 },
    /// Booleans that are true in the ranges `[start, end)` of `len` positions or indices.
    Ranges { rows: Vec<Vec<(i64, i64)>>, len: i64, note: String },
    /// Booleans `[nodes, nodes]`: entry `[i, j]` is true if node `j` is node `i`, or an ancestor of `i` that `i` may
    /// read.
    Tree { parents: Vec<i64>, runs: Vec<i64>, window: Option<i64>, chunk: Option<i64>, nodes: i64 },
    /// Booleans `[query blocks, key blocks]`: true if the key block is a random block of the query block. Row 0 belongs
    /// to query block `first`.
    Blocks { first: i64, rows: i64, cols: i64, blocks: i64, count: i64, seed: u64 },
    /// A boolean array of shape `shape` that the user of the code supplies in the variable `name` of the table.
    Given { shape: [usize; 4] },
    /// A boolean array whose cells the generated code lists.
    Cells { shape: [usize; 4], cells: Vec<bool> },
}

impl Table {
    /// Returns true if the table has one row for each batch row; its first index is then the batch row.
    pub(crate) fn by_batch(&self) -> bool {
        match &self.content {
            Content::PerRow(_) => true,
            Content::Numbers { rows, .. } => rows.len() > 1,
            Content::Documents { rows, .. } => rows.len() > 1,
            Content::Ranges { rows, .. } => rows.len() > 1,
            _ => false,
        }
    }

    /// Returns how many numbers the generated code of the table lists.
    pub(crate) fn listed(&self) -> usize {
        match &self.content {
            Content::PerRow(list) => list.len(),
            Content::Numbers { rows, .. } => rows.iter().map(Vec::len).sum(),
            Content::Documents { rows, .. } => rows.iter().map(|(_, lengths)| lengths.len()).sum(),
            Content::Ranges { rows, .. } => rows.iter().map(Vec::len).sum(),
            Content::Tree { parents, .. } => parents.len(),
            Content::Cells { cells, .. } => cells.len(),
            Content::Blocks { .. } | Content::Given { .. } => 0,
        }
    }

    /// Returns the number of entries that the table has when the generated code runs.
    pub(crate) fn entries(&self) -> u128 {
        let of = |rows: usize, len: i64| rows as u128 * len.max(0) as u128;
        match &self.content {
            Content::PerRow(list) => list.len() as u128,
            Content::Numbers { rows, len, .. } => of(rows.len(), *len),
            Content::Documents { rows, len } => of(rows.len(), *len),
            Content::Ranges { rows, len, .. } => of(rows.len(), *len),
            Content::Tree { nodes, .. } => of(*nodes as usize, *nodes),
            Content::Blocks { rows, cols, .. } => of(*rows as usize, *cols),
            Content::Given { .. } | Content::Cells { .. } => 0,
        }
    }

    /// Returns the largest absolute value of a number in the table.
    pub(crate) fn largest(&self) -> u64 {
        match &self.content {
            Content::PerRow(list) => list.iter().map(|n| n.unsigned_abs()).max().unwrap_or(0),
            Content::Numbers { rows, fill, .. } => {
                rows.iter().flatten().chain([fill]).map(|n| n.unsigned_abs()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}
