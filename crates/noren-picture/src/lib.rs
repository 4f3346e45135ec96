//! Pictures of attention masks: in a terminal, as SVG and as PNG.
//!
//! A [`Picture`] shows one bound mask, or the difference of two. It is down-sampled if the sequence is too long for one character or
//! pixel per cell: a picture cell that covers allowed and denied cells is drawn as mixed.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! use noren_picture::{Draw, TerminalOptions};
//! let bound = (causal() & documents_of([3, 2])).bind(&Shape::square(5), &Facts::new())?;
//! let text = bound.picture().to_terminal(&TerminalOptions::default())?;
//! assert!(text.starts_with("causal & documents([3, 2])"));
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! Import the trait [`Draw`] to call [`picture`](Draw::picture) on a bound mask. The command `noren show` draws the same pictures.
//!
//! | modules | contents |
//! |---|---|
//! | `scene` | the checked request, down-sampled to panels of coloured cells, which all media draw |
//! | `terminal`, `svg`, `png` | the three media |
//! | `font`, `text` | characters for PNG; texts that the media share |

mod font;
mod png;
mod scene;
mod svg;
mod terminal;
mod text;

pub use terminal::TerminalOptions;

use noren_mask::{BoundMask, Error, PlanOptions, Shape};
use scene::Layout;
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
    bound: &'a BoundMask,
    other: Option<&'a BoundMask>,
    batch: Option<usize>,
    head: Option<usize>,
    queries: Option<Range<usize>>,
    keys: Option<Range<usize>>,
    labels: Option<Vec<String>>,
    query_labels: Option<Vec<String>>,
    key_labels: Option<Vec<String>>,
    title: Option<String>,
    tiles: Option<PlanOptions>,
    max_cells: Option<usize>,
    max_panels: usize,
}

/// Pictures of bound masks: import it to draw one.
pub trait Draw {
    /// Returns a picture of this mask.
    fn picture(&self) -> Picture<'_>;

    /// Returns a picture of where this mask and `other` differ: cells only in the first, only in the second, in both, in
    /// neither. Panels without a difference are left out, unless there is none at all.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// use noren_picture::{Draw, TerminalOptions};
    /// let (shape, facts) = (Shape::square(4), Facts::new());
    /// let (a, b) = (causal().bind(&shape, &facts)?, window(1, 1).bind(&shape, &facts)?);
    /// let picture = a.picture_of_difference(&b).to_terminal(&TerminalOptions::default())?;
    /// assert!(picture.contains("0   ■ + · ·"));
    /// assert!(picture.contains("2   - ■ ■ +"));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    fn picture_of_difference<'a>(&'a self, other: &'a BoundMask) -> Picture<'a>;

    /// Returns the batch rows and heads that have this pattern, in words: `batch 0-1, heads 0-3, 5`; `None` where there is one
    /// pair only.
    fn pattern_caption(&self, pattern: usize) -> Option<String>;
}

impl Draw for BoundMask {
    fn pattern_caption(&self, pattern: usize) -> Option<String> {
        let shape = self.shape();
        let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
        let pairs: Vec<_> = pairs.filter(|&(b, h)| self.pattern_of(b, h) == pattern).collect();
        scene::caption(&pairs, shape.batch_len(), shape.head_count())
    }

    fn picture(&self) -> Picture<'_> {
        Picture {
            bound: self,
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

    fn picture_of_difference<'a>(&'a self, other: &'a BoundMask) -> Picture<'a> {
        Picture { other: Some(other), ..self.picture() }
    }
}

impl<'a> Picture<'a> {
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
        self.tiles = Some(scene::tile_options(options));
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

    /// The picture as text.
    ///
    /// # Errors
    /// A batch row, head or range outside the shape, labels that do not fit, masks that cannot be compared. The same
    /// holds for the other media.
    pub fn to_terminal(&self, options: &TerminalOptions) -> Result<String, Error> {
        terminal::draw(self, &Layout::new(self)?, options)
    }

    /// The picture as a self-contained SVG document that follows the reader's light or dark colour scheme.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(96);
        let (rows, cols) = layout.size(most, most, 1);
        Ok(svg::draw(self, &layout.scene(self, rows, cols)?))
    }

    /// The picture as the bytes of a PNG file, lettered in dots and without token labels.
    pub fn to_png(&self) -> Result<Vec<u8>, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(512);
        let (rows, cols) = layout.size(most, most, 1);
        png::draw(&layout.scene(self, rows, cols)?)
    }

    fn check_labels(&self) -> Result<(), Error> {
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
    fn query_label(&self, batch: usize, row: usize) -> Option<&str> {
        if let Some(labels) = &self.query_labels {
            return labels.get(row).map(String::as_str);
        }
        let position = usize::try_from(self.bound.query_position(batch, row)).ok()?;
        self.labels.as_ref()?.get(position).map(String::as_str)
    }

    /// The label of a key.
    fn key_label(&self, batch: usize, key: usize) -> Option<&str> {
        if let Some(labels) = &self.key_labels {
            return labels.get(key).map(String::as_str);
        }
        let position = usize::try_from(self.bound.key_position(batch, key)).ok()?;
        self.labels.as_ref()?.get(position).map(String::as_str)
    }
}

fn owned<S: AsRef<str>>(tokens: impl IntoIterator<Item = S>) -> Vec<String> {
    tokens.into_iter().map(|t| text::clean(t.as_ref())).collect()
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
