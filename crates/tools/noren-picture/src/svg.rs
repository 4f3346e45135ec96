//! Pictures as SVG: one file without external references, in the light or dark color scheme of the system.

use super::picture::Picture;
use super::placing::{Mark, marks, place};
use super::scene::{Ink, Panel, Scene};
use super::text::{fit, width, wrap};
use noren_mask::text::escape;
use std::fmt::Write;
use std::ops::Range;

/// Space around the picture, in pixels.
const MARGIN: usize = 28;
/// The maximum width of a row of panels, in pixels.
const MOST_WIDE: usize = 1120;
/// The maximum number of characters of a token label.
const MOST_LABEL: usize = 14;
/// The minimum size of a picture cell, in pixels, at which the picture shows token labels. In smaller cells, labels are
/// not readable.
const LABEL_CELL: usize = 11;

/// The CSS rules of the picture. Every file has the same rules, and their class names have the prefix `nrn-`, so that
/// one page can contain several files.
const STYLE: &str = "\
.nrn{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
.nrn-page{fill:#fcfbf8}.nrn-text{fill:#22263a}.nrn-soft{fill:#6f7287}.nrn-title{font-size:15px;font-weight:600}\
.nrn-bold{font-weight:600}.nrn-small{font-size:11px}\
.nrn-mark{stroke:#a9abb8;fill:none}.nrn-frame{stroke:#cfccc3;fill:none}.nrn-lines{stroke:#fcfbf8;fill:none}\
.nrn-denied{fill:#efece4}.nrn-allowed{fill:#2f4b8f}.nrn-mixed{fill:#e3b262}.nrn-tile-allowed{fill:#6c8bd0}\
.nrn-tile-denied{fill:#f3e2c4}.nrn-first{fill:#c4513a}.nrn-second{fill:#1f8a7d}.nrn-both{fill:#8a4fa3}\
.nrn-common{fill:#b4b8cc}.nrn-common-mixed{fill:#d6d6dc}.nrn-hatch{stroke:#fcfbf8;stroke-opacity:.55}\
@media (prefers-color-scheme:dark){\
.nrn-page{fill:#14161f}.nrn-text{fill:#e7e7ee}.nrn-soft{fill:#9a9db3}\
.nrn-mark{stroke:#5b5f75}.nrn-frame{stroke:#3a3e50}.nrn-lines{stroke:#14161f}\
.nrn-denied{fill:#212432}.nrn-allowed{fill:#7f9ff0}.nrn-mixed{fill:#b98a3f}.nrn-tile-allowed{fill:#4f6bb3}\
.nrn-tile-denied{fill:#3d3526}.nrn-first{fill:#e9785f}.nrn-second{fill:#45b8a8}.nrn-both{fill:#b98ad0}\
.nrn-common{fill:#555a72}.nrn-common-mixed{fill:#373b4d}.nrn-hatch{stroke:#14161f}}";

pub(super) fn draw(picture: &Picture<'_>, scene: &Scene) -> String {
    let most = scene.panels.iter().map(|p| p.row_count().max(p.col_count())).max().unwrap_or(1);
    let space = if scene.panels.len() > 1 { 300 } else { 560 };
    let cell = (space / most).clamp(2, 28);
    let frames: Vec<Frame<'_>> = scene.panels.iter().map(|p| Frame::new(picture, scene, p, cell)).collect();
    let (places, shelf_width, shelf_height) = place(frames.iter().map(Frame::size), MOST_WIDE);
    let page_width = shelf_width.max(420);
    let mut body = String::new();
    let top = heading(&mut body, scene, page_width);
    for (frame, (x, y)) in frames.iter().zip(places) {
        frame.draw(&mut body, MARGIN + x, top + y);
    }
    let bottom = footer(&mut body, scene, page_width, top + shelf_height + 26);
    let (w, h) = (page_width + 2 * MARGIN, bottom + MARGIN - 10);
    let title = match &scene.second {
        None => escape(&scene.title),
        Some(second) => format!("{} compared with {}", escape(&scene.title), escape(second)),
    };
    let hatch = if scene.tiles {
        "<defs><pattern id=\"nrn-hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
         <path class=\"nrn-hatch\" d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\" stroke-width=\"1.6\"/></pattern></defs>"
    } else {
        ""
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" class=\"nrn\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
         height=\"{h}\">\n<title>Attention mask: {title}</title>\n<desc>{}</desc>\n<style>{STYLE}</style>\n{hatch}\
         <rect class=\"nrn-page\" width=\"{w}\" height=\"{h}\" rx=\"10\"/>\n{body}</svg>\n",
        escape(&description(scene))
    )
}

/// Returns a description of the picture for screen readers, as text.
fn description(scene: &Scene) -> String {
    let mut text = format!("{}. Queries run down, keys across.", scene.about);
    for panel in scene.panels.iter().filter_map(|p| p.caption.as_ref()) {
        let _ = write!(text, " Panel: {panel}.");
    }
    for ink in &scene.legend {
        let cells: usize = scene.panels.iter().map(|p| p.inks.iter().filter(|i| *i == ink).count()).sum();
        let _ = write!(text, " {}: {cells} cells of the picture.", scene.meaning(*ink));
    }
    text
}

fn class(ink: Ink) -> &'static str {
    match ink {
        Ink::Denied => "nrn-denied",
        Ink::Mixed => "nrn-mixed",
        Ink::Allowed => "nrn-allowed",
        Ink::TileAllowed => "nrn-tile-allowed",
        Ink::TileDenied => "nrn-tile-denied",
        Ink::OnlyFirst => "nrn-first",
        Ink::OnlySecond => "nrn-second",
        Ink::BothWays => "nrn-both",
        Ink::Common => "nrn-common",
        Ink::CommonMixed => "nrn-common-mixed",
    }
}

/// Returns the width of `text` in a fixed-width font of `size` pixels.
fn pixels(text: &str, size: f64) -> usize {
    (width(text) as f64 * size * 0.605).ceil() as usize
}

/// Appends a `<text>` element at the point `at` (x, y), with the CSS classes `classes` and the further attributes
/// `more`.
fn write_text(out: &mut String, at: (usize, usize), classes: &str, more: &str, text: &str) {
    let _ = writeln!(out, "<text class=\"{classes}\" x=\"{}\" y=\"{}\"{more}>{}</text>", at.0, at.1, escape(text));
}

/// Appends a small square whose top left corner is `at` (x, y). `fill` is an attribute with its color.
fn write_swatch(out: &mut String, at: (usize, usize), fill: &str) {
    let _ = writeln!(out, "<rect {fill} x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>", at.0, at.1);
}

/// Appends the title and returns the y coordinate below the title, in pixels.
fn heading(out: &mut String, scene: &Scene, page_width: usize) -> usize {
    let mut y = MARGIN + 12;
    let mut titled = |text: &str, swatch: Option<Ink>| {
        let indent = if swatch.is_some() { 20 } else { 0 };
        if let Some(ink) = swatch {
            write_swatch(out, (MARGIN, y - 11), &format!("class=\"{}\"", class(ink)));
        }
        let lines = wrap(text, (page_width - indent) * 10 / 91);
        let cut = lines.len() > 6;
        for (i, line) in lines.iter().take(6).enumerate() {
            let line = if cut && i == 5 { format!("{line} …") } else { line.clone() };
            write_text(out, (MARGIN + indent, y), "nrn-text nrn-title", "", &line);
            y += 21;
        }
    };
    match &scene.second {
        None => titled(&scene.title, None),
        Some(second) => {
            titled(&scene.title, Some(Ink::OnlyFirst));
            titled(second, Some(Ink::OnlySecond));
        }
    }
    for line in wrap(&scene.about, page_width * 10 / 73) {
        write_text(out, (MARGIN, y), "nrn-soft", "", &line);
        y += 17;
    }
    y + 6
}

/// Appends the legend and the notes below `y`, and returns the y coordinate below them, in pixels.
fn footer(out: &mut String, scene: &Scene, page_width: usize, mut y: usize) -> usize {
    let mut x = 0;
    for ink in &scene.legend {
        let meaning = scene.meaning(*ink);
        let wide = 18 + pixels(meaning, 12.0);
        if x > 0 && x + wide > page_width {
            x = 0;
            y += 20;
        }
        write_swatch(out, (MARGIN + x, y - 10), &format!("class=\"{}\"", class(*ink)));
        if matches!(ink, Ink::TileAllowed | Ink::TileDenied) {
            write_swatch(out, (MARGIN + x, y - 10), "fill=\"url(#nrn-hatch)\"");
        }
        write_text(out, (MARGIN + x + 18, y), "nrn-text", "", meaning);
        x += wide + 22;
    }
    y += 20;
    for line in scene.notes.iter().flat_map(|n| wrap(n, page_width * 10 / 73)) {
        write_text(out, (MARGIN, y), "nrn-soft", "", &line);
        y += 17;
    }
    y
}

/// A panel (the drawing of the cells of one batch row and head) with the space for its axes.
struct Frame<'a> {
    scene: &'a Scene,
    panel: &'a Panel,
    cell: usize,
    rows: Vec<Mark>,
    cols: Vec<Mark>,
    /// True if key labels are tokens, which are drawn at an angle.
    slanted: bool,
    left: usize,
    top: usize,
    right: usize,
}

impl<'a> Frame<'a> {
    fn new(picture: &'a Picture<'a>, scene: &'a Scene, panel: &'a Panel, cell: usize) -> Self {
        let labelled = !panel.grid.is_sampled() && cell >= LABEL_CELL;
        let named = |name: &dyn Fn(u32) -> Option<String>, range: Range<u32>| -> Vec<Mark> {
            if !labelled {
                return Vec::new();
            }
            let mark =
                |(i, at): (usize, u32)| Some(Mark { at: i * cell + cell / 2, text: fit(&name(at)?, MOST_LABEL) });
            range.enumerate().filter_map(mark).collect()
        };
        let mut rows = named(&|q| picture.query_label(panel.batch, q as usize).map(str::to_string), panel.queries());
        if rows.is_empty() {
            rows = marks(&panel.queries(), panel.offset, panel.row_count(), cell, 26);
        }
        let mut cols = named(&|k| picture.key_label(panel.batch, k as usize).map(str::to_string), panel.keys());
        let slanted = !cols.is_empty();
        if !slanted {
            let longest = pixels(&(panel.keys().end - 1).to_string(), 11.0);
            cols = marks(&panel.keys(), 0, panel.col_count(), cell, longest + 14);
        }
        let longest = |marks: &[Mark]| marks.iter().map(|m| pixels(&m.text, 11.0)).max().unwrap_or(0);
        let rise = (longest(&cols) as f64 * 0.72) as usize;
        let caption = if panel.caption.is_some() { 24 } else { 0 };
        // a slanted label extends to the right of its column, a number is centered above it
        let lean = |m: &Mark| {
            let reach = pixels(&m.text, 11.0);
            let reach = if slanted { reach * 72 / 100 + 8 } else { reach / 2 };
            (m.at + reach).saturating_sub(panel.col_count() * cell)
        };
        Frame {
            scene,
            panel,
            cell,
            left: 18 + longest(&rows) + 10,
            top: caption + 18 + if slanted { rise + 10 } else { 18 },
            right: cols.iter().map(lean).max().unwrap_or(0),
            rows,
            cols,
            slanted,
        }
    }

    fn inner(&self) -> (usize, usize) {
        (self.panel.col_count() * self.cell, self.panel.row_count() * self.cell)
    }

    fn size(&self) -> (usize, usize) {
        let (w, h) = self.inner();
        let caption = self.panel.caption.as_ref().map_or(0, |c| pixels(c, 12.0));
        ((self.left + w + self.right).max(caption), self.top + h.max(60))
    }

    fn draw(&self, out: &mut String, x: usize, y: usize) {
        let (w, h) = self.inner();
        if let Some(caption) = &self.panel.caption {
            write_text(out, (x, y + 12), "nrn-text nrn-bold", "", caption);
        }
        let (x, y, caption) = (x + self.left, y + self.top, y + if self.panel.caption.is_some() { 24 } else { 0 });
        write_text(out, (x, caption + 12), "nrn-soft nrn-small", "", "key →");
        let turned = format!(" transform=\"rotate(90 {} {y})\"", x - self.left + 3);
        write_text(out, (x - self.left + 3, y), "nrn-soft nrn-small", &turned, "query →");
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
        let _ = writeln!(out, "<rect class=\"nrn-denied\" width=\"{w}\" height=\"{h}\"/>");
        for ink in self.scene.legend.iter().filter(|i| **i != Ink::Denied) {
            let path = path(self.panel, *ink, self.cell);
            if path.is_empty() {
                continue;
            }
            let class = class(*ink);
            let _ = writeln!(out, "<path class=\"{class}\" shape-rendering=\"crispEdges\" d=\"{path}\"/>");
            if matches!(ink, Ink::TileAllowed | Ink::TileDenied) {
                let _ = writeln!(out, "<path fill=\"url(#nrn-hatch)\" d=\"{path}\"/>");
            }
        }
        self.grid_lines(out);
        let _ =
            writeln!(out, "<rect class=\"nrn-frame\" x=\"-.5\" y=\"-.5\" width=\"{}\" height=\"{}\"/>", w + 1, h + 1);
        self.marks(out);
        out.push_str("</g>\n");
    }

    /// Draws thin lines between the picture cells if each picture cell is one mask cell.
    fn grid_lines(&self, out: &mut String) {
        if self.panel.grid.is_sampled() || self.cell < 6 {
            return;
        }
        let (w, h) = self.inner();
        let mut d = String::new();
        (1..self.panel.col_count()).for_each(|i| write!(d, "M{} 0v{h}", i * self.cell).unwrap_or_default());
        (1..self.panel.row_count()).for_each(|i| write!(d, "M0 {}h{w}", i * self.cell).unwrap_or_default());
        let stroke = if self.cell >= 14 { "1.6" } else { ".7" };
        let _ = writeln!(out, "<path class=\"nrn-lines\" stroke-width=\"{stroke}\" d=\"{d}\"/>");
    }

    fn marks(&self, out: &mut String) {
        let mut d = String::new();
        self.rows.iter().for_each(|m| write!(d, "M-5 {}h4", m.at).unwrap_or_default());
        self.cols.iter().for_each(|m| write!(d, "M{} -5v4", m.at).unwrap_or_default());
        let _ = writeln!(out, "<path class=\"nrn-mark\" d=\"{d}\"/>");
        let _ = writeln!(out, "<g class=\"nrn-text nrn-small\" text-anchor=\"end\">");
        for m in &self.rows {
            let _ = writeln!(out, "<text x=\"-9\" y=\"{}\">{}</text>", m.at + 4, escape(&m.text));
        }
        let anchor = if self.slanted { "start" } else { "middle" };
        let _ = writeln!(out, "</g>\n<g class=\"nrn-text nrn-small\" text-anchor=\"{anchor}\">");
        for m in &self.cols {
            let turn = if self.slanted { format!(" transform=\"rotate(-45 {} -8)\"", m.at + 3) } else { String::new() };
            let x = if self.slanted { m.at + 3 } else { m.at };
            let _ = writeln!(out, "<text x=\"{x}\" y=\"-8\"{turn}>{}</text>", escape(&m.text));
        }
        out.push_str("</g>\n");
    }
}

/// Returns the picture cells that have the content `ink` as the data of an SVG path. The path consists of rectangles. A
/// rectangle is a run of cells in one row, together with the same run in the next rows, if they have it.
fn path(panel: &Panel, ink: Ink, cell: usize) -> String {
    let mut d = String::new();
    // (first column, end, first row)
    let mut open: Vec<(usize, usize, usize)> = Vec::new();
    for row in 0..=panel.row_count() {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        if row < panel.row_count() {
            for (col, _) in panel.row(row).iter().enumerate().filter(|(_, i)| **i == ink) {
                match runs.last_mut() {
                    Some(last) if last.1 == col => last.1 += 1,
                    _ => runs.push((col, col + 1)),
                }
            }
        }
        let mut still = Vec::new();
        for (start, end, first) in open {
            if runs.contains(&(start, end)) {
                still.push((start, end, first));
                continue;
            }
            let (w, h) = ((end - start) * cell, (row - first) * cell);
            let _ = write!(d, "M{} {}h{w}v{h}h-{w}z", start * cell, first * cell);
        }
        let fresh = runs.into_iter().filter(|r| !still.iter().any(|s| (s.0, s.1) == *r)).map(|(a, z)| (a, z, row));
        let fresh: Vec<_> = fresh.collect();
        still.extend(fresh);
        open = still;
    }
    d
}
