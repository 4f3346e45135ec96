//! [`Picture`]: the options of a picture of a mask.

use super::text::clean;
use noren_mask::{BoundMask, Error, PlanOptions, Reorder, Shape};
use std::ops::Range;

/// A picture of a [`BoundMask`], or of the difference of two bound masks, with its options. Each row of the picture is
/// a query, each column a key.
///
/// Without [`batch`](Self::batch) and [`head`](Self::head), the picture shows each distinct pattern (set of cells of a
/// batch row and head) once, in panels whose captions list the batch rows and heads of the pattern. If the sequence is
/// too long for one picture cell per cell, the picture is down-sampled: a picture cell that covers both allowed and
/// denied cells is drawn as mixed, even if it covers only one allowed or only one denied cell.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::*};
/// use noren_picture::{Draw, TerminalOptions};
/// let bound = (causal() & documents_of([3, 2])).bind(&Shape::square(5), &Facts::new())?;
/// let picture = bound.picture().labels(["the", "cat", "sat", "so", "what"]);
/// assert_eq!(
///     picture.to_terminal(&TerminalOptions::default())?,
///     "\
/// causal & documents([3, 2])
/// 5 queries × 5 keys
///
/// query ↓  key →
///          0 1 2 3 4
///  the 0   ■ · · · ·
///  cat 1   ■ ■ · · ·
///  sat 2   ■ ■ ■ · ·
///   so 3   · · · ■ ·
/// what 4   · · · ■ ■
///
/// ■ allowed   · denied
/// "
/// );
/// assert!(picture.to_svg()?.starts_with("<svg"));
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    pub(super) bound: &'a BoundMask,
    pub(super) other: Option<&'a BoundMask>,
    pub(super) batch: Option<usize>,
    pub(super) head: Option<usize>,
    pub(super) queries: Option<Range<usize>>,
    pub(super) keys: Option<Range<usize>>,
    pub(super) labels: Option<Vec<String>>,
    pub(super) query_labels: Option<Vec<String>>,
    pub(super) key_labels: Option<Vec<String>>,
    pub(super) title: Option<String>,
    pub(super) expression: Option<String>,
    /// The code that a web page shows, as pairs (title, code).
    pub(super) code: Vec<(String, String)>,
    pub(super) tiles: Option<PlanOptions>,
    pub(super) max_cells: Option<usize>,
    pub(super) max_panels: usize,
}

impl<'a> Picture<'a> {
    /// Returns a picture of all of `bound` with the default options.
    pub(super) fn of(bound: &'a BoundMask) -> Self {
        Picture {
            bound,
            other: None,
            batch: None,
            head: None,
            queries: None,
            keys: None,
            labels: None,
            query_labels: None,
            key_labels: None,
            title: None,
            expression: None,
            code: Vec::new(),
            tiles: None,
            max_cells: None,
            max_panels: 12,
        }
    }

    /// Shows only this batch row.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Shows only this query head.
    pub fn head(mut self, head: usize) -> Self {
        self.head = Some(head);
        self
    }

    /// Shows only these query rows.
    pub fn queries(mut self, rows: Range<usize>) -> Self {
        self.queries = Some(rows);
        self
    }

    /// Shows only these keys.
    pub fn keys(mut self, keys: Range<usize>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Sets the labels of queries and keys that are tokens of one sequence. `tokens` has the tokens of the sequence by
    /// position.
    pub fn labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.labels = Some(owned(tokens));
        self
    }

    /// Sets one label for each query row. Use this function if queries and keys are tokens of different sequences.
    pub fn query_labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.query_labels = Some(owned(tokens));
        self
    }

    /// Sets one label for each key.
    pub fn key_labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.key_labels = Some(owned(tokens));
        self
    }

    /// Sets the title. [default: the mask's text]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the expression that a web page shows, such as the mask's text with its score modifiers. [default: the mask's
    /// text]
    pub fn expression(mut self, expression: impl Into<String>) -> Self {
        self.expression = Some(expression.into());
        self
    }

    /// Adds code of the mask that a web page shows. `title` is the name of the library or language of the code.
    pub fn code(mut self, title: impl Into<String>, text: impl Into<String>) -> Self {
        self.code.push((title.into(), text.into()));
        self
    }

    /// Shows the tiles of the plan that `options` gives. The picture then distinguishes allowed cells in full tiles,
    /// allowed cells in mixed tiles, denied cells that are computed and masked, and cells that are skipped. A picture
    /// of a difference shows no tiles.
    pub fn tiles(mut self, options: PlanOptions) -> Self {
        let (block_q, block_kv) = (options.block_q.max(1), options.block_kv.max(1));
        // a picture shows indices, so its tiles are those of the plan without reordering
        self.tiles = Some(PlanOptions { block_q, block_kv, reorder: Reorder::Never });
        self
    }

    /// Sets the maximum number of picture cells along each side of a panel. [default: 96 for SVG, 512 for PNG, and the
    /// available space for a terminal]
    pub fn max_cells(mut self, most: usize) -> Self {
        self.max_cells = Some(most.max(1));
        self
    }

    /// Sets the maximum number of panels. [default: 12] Each panel shows one pattern (set of cells of a batch row and
    /// head). A note in the picture has the number of omitted panels.
    pub fn max_panels(mut self, most: usize) -> Self {
        self.max_panels = most;
        self
    }

    pub(super) fn check_labels(&self) -> Result<(), Error> {
        let shape: &Shape = self.bound.shape();
        let checks = [
            ("labels", &self.labels, shape.kv_len(), "position", "positions"),
            ("query_labels", &self.query_labels, shape.q_len(), "query row", "query rows"),
            ("key_labels", &self.key_labels, shape.kv_len(), "key", "keys"),
        ];
        for (name, labels, needed, one, many) in checks {
            if let Some(given) = labels.as_ref().map(Vec::len).filter(|n| *n != needed) {
                return Err(Error::invalid(format!(
                    "picture: `{name}` has {given} entries but there are {needed} {many}: give one entry per {one}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the label of query row `row` in batch row `batch`, or `None` if the query row has no label.
    pub(super) fn query_label(&self, batch: usize, row: usize) -> Option<&str> {
        if let Some(labels) = &self.query_labels {
            return labels.get(row).map(String::as_str);
        }
        let position = usize::try_from(self.bound.query_position(batch, row)).ok()?;
        self.labels.as_ref()?.get(position).map(String::as_str)
    }

    /// Returns the label of key `key` in batch row `batch`, or `None` if the key has no label.
    pub(super) fn key_label(&self, batch: usize, key: usize) -> Option<&str> {
        if let Some(labels) = &self.key_labels {
            return labels.get(key).map(String::as_str);
        }
        let position = usize::try_from(self.bound.key_position(batch, key)).ok()?;
        self.labels.as_ref()?.get(position).map(String::as_str)
    }
}

fn owned<S: AsRef<str>>(tokens: impl IntoIterator<Item = S>) -> Vec<String> {
    tokens.into_iter().map(|t| clean(t.as_ref())).collect()
}
