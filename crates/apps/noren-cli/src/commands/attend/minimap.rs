//! Draws small pictures of masks in the terminal: one braille character for 2 x 4 cells, several masks side by side.

use crate::failure::Result;
use noren_mask::{BoundMask, Cover, GridOptions};

/// The bit of each dot in the code of a braille character, `[row][column]`.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// Maximum number of dots in each row and each column of a picture. For longer sequences, each dot represents several
/// cells, and the dot is drawn if at least one of the cells is allowed.
const MOST: usize = 48;

/// Draws the mask of one batch row and head as lines of equal width.
pub(crate) fn minimap(mask: &BoundMask, batch: usize, head: usize) -> Result<Vec<String>> {
    let options = GridOptions { max_rows: MOST, max_cols: MOST, ..GridOptions::default() };
    let grid = mask.grid(batch, head, &options)?;
    let (rows, cols) = (grid.row_count(), grid.col_count());
    let sign = |top: usize, left: usize| {
        let mut bits = 0;
        for (row, dots) in DOTS.iter().enumerate() {
            for (col, dot) in dots.iter().enumerate() {
                let inside = top + row < rows && left + col < cols;
                if inside && grid.cover(top + row, left + col) != Cover::Empty {
                    bits |= dot;
                }
            }
        }
        char::from_u32(0x2800 + bits).unwrap_or(' ')
    };
    let line = |top| (0..cols).step_by(2).map(|left| sign(top, left)).collect();
    Ok((0..rows).step_by(4).map(line).collect())
}

/// Arranges several pictures side by side. An entry of `panels` is one picture as (caption, lines of the picture).
/// Pictures that do not fit into `width` columns are placed below the others.
pub(crate) fn beside(panels: &[(String, Vec<String>)], width: usize) -> Vec<String> {
    const GAP: usize = 3;
    let chars = |line: &str| line.chars().count();
    let columns = panels.iter().flat_map(|(caption, lines)| lines.iter().chain([caption])).map(|l| chars(l)).max();
    let columns = columns.unwrap_or(0);
    let most = ((width + GAP) / (columns + GAP)).max(1);
    let bands = panels.len().div_ceil(most).max(1);
    let mut out = Vec::new();
    for band in panels.chunks(panels.len().div_ceil(bands).max(1)) {
        let height = band.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
        for row in 0..=height {
            let mut line = String::new();
            for (caption, lines) in band {
                let cell = if row == 0 { Some(caption) } else { lines.get(row - 1) };
                let cell = cell.map_or("", String::as_str);
                line.push_str(cell);
                line.push_str(&" ".repeat(columns + GAP - chars(cell)));
            }
            out.push(line.trim_end().to_string());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_mask::{Facts, Shape, atoms::*};

    #[test]
    fn a_dot_for_each_cell() {
        let bound = causal().bind(&Shape::square(5), &Facts::new()).expect("a mask");
        assert_eq!(minimap(&bound, 0, 0).expect("a map"), ["⣷⣄⠀", "⠉⠉⠁"]);
    }

    #[test]
    fn bands_are_even() {
        let panel = || ("ab".to_string(), vec!["1234".to_string(), "5678".to_string()]);
        let panels = vec![panel(), panel(), panel(), panel()];
        let lines = beside(&panels, 20);
        assert_eq!(lines, ["ab     ab", "1234   1234", "5678   5678", "ab     ab", "1234   1234", "5678   5678"]);
    }
}
