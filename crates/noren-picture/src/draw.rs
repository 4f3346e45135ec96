//! [`Draw`]: pictures of bound masks, in each medium.

use super::picture::Picture;
use super::scene::{self, Layout};
use super::terminal::{self, TerminalOptions};
use super::{png, svg};
use noren_mask::{BoundMask, Error};

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
        Picture::of(self)
    }

    fn picture_of_difference<'a>(&'a self, other: &'a BoundMask) -> Picture<'a> {
        Picture { other: Some(other), ..self.picture() }
    }
}

impl Picture<'_> {
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
}
