//! Pictures as PNG: few colors, dot-matrix characters.

use super::font;
use super::placing::{Mark, marks, place};
use super::scene::{Ink, Panel, Scene};
use super::text::{fit, wrap};
use noren_mask::Error;

/// Width of one dot of a character, in pixels.
const DOT: usize = 2;
const CHAR: usize = font::ADVANCE * DOT;
const LINE: usize = font::HEIGHT * DOT + 10;
const MARGIN: usize = 28;
/// The maximum width of a row of panels, in pixels.
const MOST_WIDE: usize = 1400;

/// Index of the page's color in [`PALETTE`]. This constant and the next three are the indices of colors that no cell
/// has.
const PAGE: u8 = 10;
const TEXT: u8 = 11;
const SOFT: u8 = 12;
const FRAME: u8 = 13;

/// The colors of the picture, each as `[red, green, blue]`: first the inks of cells in the order of the variants of
/// [`Ink`], then page, text, soft text and panel borders.
const PALETTE: [[u8; 3]; 14] = [
    [0x2f, 0x4b, 0x8f],
    [0x6c, 0x8b, 0xd0],
    [0xe3, 0xb2, 0x62],
    [0xf3, 0xe2, 0xc4],
    [0xef, 0xec, 0xe4],
    [0xc4, 0x51, 0x3a],
    [0x1f, 0x8a, 0x7d],
    [0x8a, 0x4f, 0xa3],
    [0xb4, 0xb8, 0xcc],
    [0xd6, 0xd6, 0xdc],
    [0xfc, 0xfb, 0xf8],
    [0x22, 0x26, 0x3a],
    [0x6f, 0x72, 0x87],
    [0xb9, 0xb8, 0xb6],
];

pub(super) fn draw(scene: &Scene) -> Result<Vec<u8>, Error> {
    let most = scene.panels.iter().map(|p| p.row_count().max(p.col_count())).max().unwrap_or(1);
    let space = if scene.panels.len() > 1 { 400 } else { 768 };
    let cell = (space / most).clamp(1, 36);
    let frames: Vec<Frame<'_>> = scene.panels.iter().map(|panel| Frame::new(panel, cell)).collect();
    let (places, widest, shelf_height) = place(frames.iter().map(Frame::size), MOST_WIDE);
    let width = widest.max(480);
    let chars = width / CHAR;
    let mut head: Vec<(String, u8)> = Vec::new();
    let titles = [Some(&scene.title), scene.second.as_ref()];
    for (title, ink) in titles.into_iter().flatten().zip([Ink::OnlyFirst, Ink::OnlySecond]) {
        let color = if scene.second.is_some() { ink as u8 } else { TEXT };
        head.extend(wrap(title, chars).into_iter().take(6).map(|l| (l, color)));
    }
    head.extend(wrap(&scene.about, chars).into_iter().map(|l| (l, SOFT)));
    let notes: Vec<String> = scene.notes.iter().flat_map(|n| wrap(n, chars)).collect();
    let legend = legend_lines(scene, chars);
    let top = MARGIN + head.len() * LINE + 8;
    let foot = top + shelf_height + 20;
    let height = foot + (legend.len() + notes.len()) * LINE + MARGIN - 10;

    let mut canvas = Canvas::new(width + 2 * MARGIN, height);
    for (i, (line, color)) in head.iter().enumerate() {
        canvas.text(MARGIN, MARGIN + i * LINE, line, *color);
    }
    for (frame, (x, y)) in frames.iter().zip(places) {
        frame.draw(&mut canvas, MARGIN + x, top + y);
    }
    for (i, line) in legend.iter().enumerate() {
        let mut x = MARGIN;
        for ink in line {
            canvas.rect((x, foot + i * LINE), (14, 14), *ink as u8);
            canvas.text(x + 22, foot + i * LINE, scene.meaning(*ink), TEXT);
            x += legend_width(scene, *ink);
        }
    }
    for (i, line) in notes.iter().enumerate() {
        canvas.text(MARGIN, foot + (legend.len() + i) * LINE, line, SOFT);
    }
    canvas.encode()
}

fn legend_width(scene: &Scene, ink: Ink) -> usize {
    22 + (scene.meaning(ink).len() + 2) * CHAR
}

fn legend_lines(scene: &Scene, chars: usize) -> Vec<Vec<Ink>> {
    let mut lines: Vec<Vec<Ink>> = vec![Vec::new()];
    let mut used = 0;
    for &ink in &scene.legend {
        let wide = legend_width(scene, ink);
        if used > 0 && used + wide > chars * CHAR + 2 * CHAR {
            lines.push(Vec::new());
            used = 0;
        }
        lines.last_mut().expect("the list of lines always has at least one line").push(ink);
        used += wide;
    }
    lines
}

/// A panel (the drawing of the cells of one batch row and head) with the space for its axes.
struct Frame<'a> {
    panel: &'a Panel,
    cell: usize,
    rows: Vec<Mark>,
    cols: Vec<Mark>,
    left: usize,
    top: usize,
}

impl<'a> Frame<'a> {
    fn new(panel: &'a Panel, cell: usize) -> Self {
        let rows = marks(&panel.queries(), panel.offset, panel.row_count(), cell, LINE + 14);
        let longest = (panel.keys().end - 1).to_string().len() * CHAR;
        let cols = marks(&panel.keys(), 0, panel.col_count(), cell, longest + 2 * CHAR);
        let widest = rows.iter().map(|mark| mark.text.len() * CHAR).max().unwrap_or(0);
        let caption = if panel.caption.is_some() { LINE } else { 0 };
        Frame { panel, cell, rows, cols, left: widest.max(7 * CHAR) + 14, top: caption + 2 * LINE + 4 }
    }

    fn size(&self) -> (usize, usize) {
        let inner = (self.panel.col_count() * self.cell).max(6 * CHAR);
        (self.left + inner + CHAR, self.top + self.panel.row_count() * self.cell + 1)
    }

    fn draw(&self, canvas: &mut Canvas, x: usize, y: usize) {
        let (w, h) = (self.panel.col_count() * self.cell, self.panel.row_count() * self.cell);
        if let Some(caption) = &self.panel.caption {
            canvas.text(x, y, &fit(caption, self.size().0 / CHAR), TEXT);
        }
        let (x, y) = (x + self.left, y + self.top);
        canvas.text(x - self.left, y - 2 * LINE, "query ↓", SOFT);
        canvas.text(x, y - 2 * LINE, "key →", SOFT);
        canvas.rect((x - 1, y - 1), (w + 2, h + 2), FRAME);
        canvas.rect((x, y), (w, h), Ink::Denied as u8);
        // a gap between picture cells, if each is one cell of the mask
        let gap = usize::from(!self.panel.grid.is_sampled() && self.cell >= 6) * (1 + self.cell / 20);
        if gap > 0 {
            canvas.rect((x, y), (w, h), PAGE);
        }
        for row in 0..self.panel.row_count() {
            for (col, ink) in self.panel.row(row).iter().enumerate() {
                let side = self.cell - gap;
                canvas.rect((x + col * self.cell, y + row * self.cell), (side, side), *ink as u8);
            }
        }
        for Mark { at, text } in &self.rows {
            canvas.rect((x - 7, y + at), (6, 1), FRAME);
            let up = font::HEIGHT * DOT / 2;
            canvas.text(x - 12 - text.len() * CHAR, (y + at).saturating_sub(up), text, TEXT);
        }
        for Mark { at, text } in &self.cols {
            canvas.rect((x + at, y - 7), (1, 6), FRAME);
            let half = (text.len() * CHAR - DOT) / 2;
            canvas.text((x + at).saturating_sub(half), y - LINE - 2, text, TEXT);
        }
    }
}

/// The pixels of the image, with one byte per pixel: an index into [`PALETTE`].
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Canvas { width, height, pixels: vec![PAGE; width * height] }
    }

    /// Fills the rectangle with the top left corner `at` (x, y) and the size `size` (width, height). Parts outside of
    /// the canvas are ignored.
    fn rect(&mut self, at: (usize, usize), size: (usize, usize), color: u8) {
        let (from, to) = (at.0.min(self.width), (at.0 + size.0).min(self.width));
        for y in at.1..(at.1 + size.1).min(self.height) {
            self.pixels[y * self.width + from..y * self.width + to].fill(color);
        }
    }

    fn text(&mut self, x: usize, y: usize, text: &str, color: u8) {
        for (i, c) in text.chars().enumerate() {
            for (col, bits) in font::glyph(c).into_iter().enumerate() {
                for row in (0..=font::HEIGHT).filter(|row| bits >> row & 1 == 1) {
                    self.rect((x + i * CHAR + col * DOT, y + row * DOT), (DOT, DOT), color);
                }
            }
        }
    }

    fn encode(&self) -> Result<Vec<u8>, Error> {
        let failed = |e: png::EncodingError| Error::invalid(format!("picture: the PNG could not be written: {e}"));
        let size = |n: usize| {
            u32::try_from(n).map_err(|_| {
                Error::invalid(format!("picture: a PNG cannot be {n} pixels wide or high: draw fewer cells"))
            })
        };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size(self.width)?, size(self.height)?);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(PALETTE.concat());
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::Draw;
    use noren_mask::atoms::*;
    use noren_mask::{Facts, Shape};

    fn decode(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a small picture")];
        let info = reader.next_frame(&mut pixels).expect("one frame");
        (info.width, info.height, pixels)
    }

    #[test]
    fn pixels_are_what_the_mask_allows() {
        let bound = causal().bind(&Shape::square(8), &Facts::new()).unwrap();
        let (w, h, pixels) = decode(&bound.picture().to_png().unwrap());
        assert_eq!((w, h, pixels.len()), (536, 487, 536 * 487));
        // cells have 36 pixels and gaps of 2; the first cell is below the axes
        let count = |ink: u8| pixels.iter().filter(|p| **p == ink).count();
        assert_eq!(count(super::Ink::Allowed as u8), 36 * 34 * 34 + 14 * 14);
        assert_eq!(count(super::Ink::Denied as u8), 28 * 34 * 34 + 14 * 14);
    }

    #[test]
    fn long_masks_and_panels_stay_small() {
        let mask = heads([(0..2, causal()), (2..4, sliding(4096))]);
        let bound = mask.bind(&Shape::square(1 << 20).heads(4), &Facts::new()).unwrap();
        let bytes = bound.picture().to_png().unwrap();
        assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
        let (w, h, _) = decode(&bytes);
        assert!(w < 1600 && h < 1000, "{w} x {h}");
    }
}
