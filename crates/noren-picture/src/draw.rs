//! [`Draw`]: pictures of bound masks, in each medium.

use super::picture::Picture;
use super::scene::{self, Layout};
use super::terminal::{self, TerminalOptions};
use super::{png, svg};
use noren_mask::{BoundMask, Error};

/// Pictures of bound masks. Import this trait to call its methods.
pub trait Draw {
    /// Returns a picture of this mask.
    fn picture(&self) -> Picture<'_>;

    /// Returns a picture of the differences between this mask and `other`. It distinguishes cells that only the first
    /// mask allows, only the second, both, and neither. Patterns in which the masks are equal are omitted; if the masks
    /// are equal in all patterns, the first pattern is shown.
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

    /// Returns the batch rows and heads that have pattern number `pattern`, as text: `batch 0-1, heads 0-3, 5`. Returns
    /// `None` if the mask has only one pair of batch row and head.
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
    /// Returns an error if a batch row, head or range is outside the shape, if labels do not fit, or if the masks
    /// cannot be compared. The other media return the same errors.
    pub fn to_terminal(&self, options: &TerminalOptions) -> Result<String, Error> {
        terminal::draw(self, &Layout::new(self)?, options)
    }

    /// Returns the picture as a self-contained SVG document that follows the light or dark color scheme of the system.
    ///
    /// # Errors
    /// Returns [`Error::Picture`] if the settings of the picture do not fit the mask, and the errors of the
    /// computation of its cells.
    pub fn to_svg(&self) -> Result<String, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(96);
        let (rows, cols) = layout.size(most, most, 1);
        Ok(svg::draw(self, &layout.scene(self, rows, cols)?))
    }

    /// Returns the picture as the bytes of a PNG file, with dot-matrix characters and without token labels.
    ///
    /// # Errors
    /// Returns [`Error::Picture`] if the settings of the picture do not fit the mask or the picture has too many
    /// pixels, and the errors of the computation of its cells.
    pub fn to_png(&self) -> Result<Vec<u8>, Error> {
        let layout = Layout::new(self)?;
        let most = self.max_cells.unwrap_or(512);
        let (rows, cols) = layout.size(most, most, 1);
        png::draw(&layout.scene(self, rows, cols)?)
    }
}
