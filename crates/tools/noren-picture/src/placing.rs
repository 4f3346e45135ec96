//! The places of panels in a picture of pixels (SVG or PNG), and of the marks on their axes.

use super::text::ticks;
use std::ops::Range;

/// The space between two panels, in pixels.
const GAP: usize = 36;

/// Returns the positions (x, y) of the top left corners of all panels, then the total width and the total height, all
/// in pixels. Panels are beside each other up to a width of `most`.
pub(super) fn place(panels: impl Iterator<Item = (usize, usize)>, most: usize) -> (Vec<(usize, usize)>, usize, usize) {
    let (mut x, mut y, mut high, mut widest) = (0, 0, 0, 0);
    let mut places = Vec::new();
    for (w, h) in panels {
        if x > 0 && x + w > most {
            (x, y, high) = (0, y + high + GAP, 0);
        }
        places.push((x, y));
        widest = widest.max(x + w);
        x += w + GAP;
        high = high.max(h);
    }
    (places, widest, y + high)
}

/// A mark on an axis: the distance in pixels from the beginning of the axis, and the text of the mark.
pub(super) struct Mark {
    pub(super) at: usize,
    pub(super) text: String,
}

/// Returns marks at round positions, about `space` or more pixels apart. If each picture cell is one mask cell, a mark
/// is in the middle of its cell; otherwise a mark is where its position begins.
pub(super) fn marks(range: &Range<u32>, offset: i64, cells: usize, cell: usize, space: usize) -> Vec<Mark> {
    let (len, pixels) = (range.len(), cells * cell);
    let middle = if cells == len { cell / 2 } else { 0 };
    let most = (pixels / space.max(cell)).max(1);
    let mark = |(index, text): (u32, String)| Mark {
        at: ((index - range.start) as u64 * pixels as u64 / len as u64) as usize + middle,
        text,
    };
    ticks(range, offset, most).into_iter().map(mark).collect()
}
