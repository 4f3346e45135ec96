//! [`Draw`]: pictures of bound masks, for a terminal, as SVG and as PNG.

use super::picture::Picture;
use super::scene::{self, Layout};
use super::terminal::{self, TerminalOptions};
use super::{page, png, svg};
use noren_mask::{BoundMask, Error};

/// Methods that draw pictures of bound masks. Import this trait to call them.
pub trait Draw {
    /// Returns a picture of this mask.
    fn picture(&self) -> Picture<'_>;

    /// Returns a picture of the differences between this mask and `other`. The picture distinguishes cells that only
    /// the first mask allows, only the second, both, and neither. Patterns (sets of cells of a batch row and head) in
    /// which both masks allow the same cells are omitted. If there is no other pattern, the first pattern is shown.
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

    /// Returns the batch rows and heads that have pattern number `pattern` of the mask, as text: `batch 0-1, heads 0-3,
    /// 5`. A pattern is a distinct set of allowed cells; several pairs of batch row and head can have the same pattern.
    /// Returns `None` if the mask has only one batch row and one head.
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
        Picture::of(self)
    }

    fn picture_of_difference<'a>(&'a self, other: &'a BoundMask) -> Picture<'a> {
        Picture { other: Some(other), ..self.picture() }
    }
}

impl Picture<'_> {
    /// Returns the picture as text.
    ///
    /// # Errors
    /// Returns an error if a batch row, head or range is outside the shape, if the number of labels is wrong, or if the
    /// two masks of a difference cannot be compared. [`to_svg`](Self::to_svg) and [`to_png`](Self::to_png) return the
    /// same errors.
    pub fn to_terminal(&self, options: &TerminalOptions) -> Result<String, Error> {
        terminal::draw(self, &Layout::new(self)?, options)
    }

    /// Returns the picture as a self-contained SVG document that follows the light or dark color scheme of the system.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the settings of the picture do not fit the mask. Returns an error if the cells of
    /// the picture cannot be computed.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(96);
        let (rows, cols) = layout.size(most, most, 1);
        Ok(svg::draw(self, &layout.scene(self, rows, cols)?))
    }

    /// Returns the picture as one HTML file of at most 300,000 bytes that opens from disk without network: picture,
    /// expression, facts, [`code`](Self::code), and the reason of the cell under the pointer, with the sentences of
    /// [`BoundMask::explain`]. The page contains every cell; [`max_cells`](Self::max_cells) and
    /// [`max_panels`](Self::max_panels) have no effect on the page.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// use noren_picture::Draw;
    /// let bound = (causal() & documents_of([3, 2])).bind(&Shape::square(5), &Facts::new())?;
    /// let html = bound.picture().title("Two documents").to_html()?;
    /// assert!(html.contains("<h1>Two documents</h1>"));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the settings of the picture do not fit the mask, if the picture shows tiles or a
    /// difference, or if the mask is too large for a page. Returns [`Error::Shape`] if the mask is a selection from
    /// another mask.
    pub fn to_html(&self) -> Result<String, Error> {
        page::draw(self)
    }

    /// Returns the picture as the bytes of a PNG file, with dot-matrix characters and without token labels.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the settings of the picture do not fit the mask or the picture has too many
    /// pixels. Returns an error if the cells of the picture cannot be computed.
    pub fn to_png(&self) -> Result<Vec<u8>, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(512);
        let (rows, cols) = layout.size(most, most, 1);
        png::draw(&layout.scene(self, rows, cols)?)
    }
}
