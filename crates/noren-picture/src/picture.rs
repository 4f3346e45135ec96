//! [`Picture`]: what is to be shown, and how.

use super::text::clean;
use noren_mask::{BoundMask, Error, PlanOptions, Reorder, Shape};
use std::ops::Range;

/// A picture of a [`BoundMask`], or of the difference of two: what to show. Queries run down, keys across.
///
/// Without [`batch`](Self::batch) and [`head`](Self::head) it shows every distinct pattern once, in panels captioned with the
/// batch rows and heads that share it. A sequence too long to show cell by cell is down-sampled honestly: a picture cell
/// that covers both allowed and denied cells shows as mixed, however few there are of one kind.
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
    pub(super) tiles: Option<PlanOptions>,
    pub(super) max_cells: Option<usize>,
    pub(super) max_panels: usize,
}

impl<'a> Picture<'a> {
    /// Everything that `bound` has, at the default sizes.
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
            tiles: None,
            max_cells: None,
            max_panels: 12,
        }
    }

    /// Only this batch row.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Only this query head.
    pub fn head(mut self, head: usize) -> Self {
        self.head = Some(head);
        self
    }

    /// Only these query rows.
    pub fn queries(mut self, rows: Range<usize>) -> Self {
        self.queries = Some(rows);
        self
    }

    /// Only these keys.
    pub fn keys(mut self, keys: Range<usize>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// The tokens of one sequence that queries and keys share, by position.
    pub fn labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.labels = Some(owned(tokens));
        self
    }

    /// The tokens of the query rows, by row, when they are not the keys'.
    pub fn query_labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.query_labels = Some(owned(tokens));
        self
    }

    /// The tokens of the keys, by key.
    pub fn key_labels<S: AsRef<str>>(mut self, tokens: impl IntoIterator<Item = S>) -> Self {
        self.key_labels = Some(owned(tokens));
        self
    }

    /// The title in place of the mask's text.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Shows the tiles of a plan cut this way: which allowed cells lie in full and which in mixed tiles, which denied cells
    /// are computed and masked, and what is skipped. A difference shows no tiles.
    pub fn tiles(mut self, options: PlanOptions) -> Self {
        let (block_q, block_kv) = (options.block_q.max(1), options.block_kv.max(1));
        // a picture shows indices, so its tiles are those of the plan that has every row and key at its own place
        self.tiles = Some(PlanOptions { block_q, block_kv, reorder: Reorder::Never });
        self
    }

    /// At most so many picture cells on a side. Without it an SVG takes up to 96, a PNG up to 512, and a terminal what
    /// fits.
    pub fn max_cells(mut self, most: usize) -> Self {
        self.max_cells = Some(most.max(1));
        self
    }

    /// At most so many panels, 12 unless said; a note tells how many are left out.
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
                return Err(Error::Picture(format!(
                    "{name} has {given} entries but there are {needed} {many}: give one per {one}"
                )));
            }
        }
        Ok(())
    }

    /// The label of a query row.
    pub(super) fn query_label(&self, batch: usize, row: usize) -> Option<&str> {
        if let Some(labels) = &self.query_labels {
            return labels.get(row).map(String::as_str);
        }
        let position = usize::try_from(self.bound.query_position(batch, row)).ok()?;
        self.labels.as_ref()?.get(position).map(String::as_str)
    }

    /// The label of a key.
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
