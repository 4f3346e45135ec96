//! Pictures as text.

use super::picture::Picture;
use super::scene::{Ink, Layout, Panel, Scene};
use super::text::{fit, ticks, width, wrap};
use noren_mask::Error;

/// Options for a picture that is written as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TerminalOptions {
    /// Whether to use ANSI colors. Pictures are readable without colors too. With colors, a picture of a long sequence
    /// shows two rows of picture cells in each line of text; without colors, one row.
    pub color: bool,
    /// Whether to use block characters and arrows. With `false`, the picture uses only ASCII, except for token labels.
    pub unicode: bool,
    /// The maximum number of columns (characters per line) of the picture.
    pub max_width: usize,
    /// The maximum number of lines of one panel.
    pub max_height: usize,
}

impl Default for TerminalOptions {
    /// Returns the default options: no color, Unicode, 100 columns, 48 lines.
    fn default() -> Self {
        TerminalOptions { color: false, unicode: true, max_width: 100, max_height: 48 }
    }
}

/// The kind of characters that a terminal picture uses for its picture cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// One sign (a character) and a space for each picture cell. With the space, a cell is approximately square.
    Signs,
    /// Half-block characters: each line of text shows two rows of picture cells.
    Halves,
    /// One shade or ASCII character for each picture cell, without a space after it.
    Shades,
}

/// The maximum number of queries, and of keys, of a mask that is drawn with [`Style::Signs`].
const MOST_SIGNS: usize = 40;
/// The maximum length of a token label, in columns.
const MOST_LABEL: usize = 16;
/// The minimum width of the row labels, in columns. The name of the query axis needs this width.
const LEAST_GUTTER: usize = 9;
/// Number of columns between panels.
const GAP: usize = 4;

pub(super) fn draw(picture: &Picture<'_>, layout: &Layout, options: &TerminalOptions) -> Result<String, Error> {
    let (scene, style) = choose(picture, layout, options)?;
    let writer = Writer { picture, options, scene: &scene, style };
    let mut lines = writer.heading();
    let blocks: Vec<Vec<Line>> = scene.panels.iter().map(|p| writer.panel(p)).collect();
    lines.extend(beside(blocks, options.max_width));
    lines.push(Line::default());
    lines.extend(writer.footer());
    let mut out = String::new();
    for line in lines {
        out.push_str(line.finish().trim_end());
        out.push('\n');
    }
    Ok(out)
}

/// Returns the scene and the style that show the most detail in the available space.
fn choose(picture: &Picture<'_>, layout: &Layout, options: &TerminalOptions) -> Result<(Scene, Style), Error> {
    let (q, k) = (layout.queries.len(), layout.keys.len());
    let most = picture.max_cells.unwrap_or(usize::MAX);
    let gutter = (3 + gutter_width(picture, layout, q <= MOST_SIGNS.min(most))).max(LEAST_GUTTER);
    let space = options.max_width.saturating_sub(gutter);
    if q.max(k) <= MOST_SIGNS.min(most) && 2 * k <= space && q + 2 <= options.max_height.max(MOST_SIGNS) {
        return Ok((layout.scene(picture, q, k)?, Style::Signs));
    }
    let panel_space =
        if layout.groups.len() > 1 { (options.max_width.saturating_sub(GAP) / 2).max(40) } else { usize::MAX };
    let cols = space.min(panel_space.saturating_sub(gutter)).saturating_sub(2).clamp(4, 4096).min(most);
    let lines = options.max_height.saturating_sub(3).clamp(2, 4096);
    if options.unicode {
        let (rows, cols) = layout.size((2 * lines).min(most), cols, 1);
        // an odd last row would leave half of a line empty
        let rows = if rows < q && rows < most { rows.next_multiple_of(2) } else { rows };
        let scene = layout.scene(picture, rows, cols)?;
        let two_inks =
            |s: &Scene| s.panels.iter().all(|p| p.inks.iter().all(|i| matches!(i, Ink::Allowed | Ink::Denied)));
        if options.color || two_inks(&scene) {
            return Ok((scene, Style::Halves));
        }
    }
    let (rows, cols) = layout.size(lines.min(most), cols, 2);
    Ok((layout.scene(picture, rows, cols)?, Style::Shades))
}

/// Returns the number of columns for the row labels.
fn gutter_width(picture: &Picture<'_>, layout: &Layout, labelled: bool) -> usize {
    let numbers = layout.groups.iter().flat_map(|g| {
        let offset = picture.bound.shape().query_offset(g.batch);
        [i64::from(layout.queries.start) + offset, i64::from(layout.queries.end) - 1 + offset]
            .map(|p| p.to_string().len())
    });
    let numbers = numbers.max().unwrap_or(1);
    let names = layout.groups.iter().flat_map(|g| {
        let label = |q| picture.query_label(g.batch, q as usize).map_or(0, |l| width(l).min(MOST_LABEL));
        if labelled { layout.queries.clone().map(label).max() } else { None }
    });
    match names.max() {
        Some(n) if n > 0 => numbers + 1 + n,
        _ => numbers,
    }
}

/// A line of text and its width, in columns.
#[derive(Clone, Default)]
struct Line {
    text: String,
    width: usize,
    /// The ANSI codes (colors) that are active at the end of the line.
    codes: String,
}

impl Line {
    /// Returns a line with the text `text`, in the color of the ANSI codes `codes`.
    fn of(text: &str, codes: &str) -> Self {
        let mut line = Line::default();
        line.push(text, codes);
        line
    }

    /// Returns an empty line that is padded to a number of columns.
    fn padded(columns: usize) -> Self {
        let mut line = Line::default();
        line.pad_to(columns);
        line
    }

    /// Appends `text` to the line, in the color of the ANSI codes `codes`. If `codes` is empty, the text has no color.
    fn push(&mut self, text: &str, codes: &str) {
        if codes != self.codes {
            if !self.codes.is_empty() {
                self.text.push_str("\u{1b}[0m");
            }
            if !codes.is_empty() {
                self.text.push_str(&format!("\u{1b}[{codes}m"));
            }
            self.codes = codes.to_string();
        }
        self.text.push_str(text);
        self.width += width(text);
    }

    fn pad_to(&mut self, columns: usize) {
        let missing = columns.saturating_sub(self.width);
        self.push(&" ".repeat(missing), "");
    }

    fn finish(mut self) -> String {
        self.push("", "");
        self.text
    }
}

/// Returns the lines of all blocks; a block has the lines of one panel. Blocks are placed side by side as long as they
/// fit into `max_width` columns. The next blocks follow below, after an empty line.
fn beside(blocks: Vec<Vec<Line>>, max_width: usize) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    let mut shelf: Vec<Vec<Line>> = Vec::new();
    let wide = |block: &[Line]| block.iter().map(|l| l.width).max().unwrap_or(0);
    let mut put = |shelf: &mut Vec<Vec<Line>>| {
        if !out.is_empty() {
            out.push(Line::default());
        }
        let high = shelf.iter().map(Vec::len).max().unwrap_or(0);
        for i in 0..high {
            let mut line = Line::default();
            let mut from = 0;
            for block in shelf.iter() {
                line.pad_to(from);
                if let Some(part) = block.get(i) {
                    line.text.push_str(&part.clone().finish());
                    line.width += part.width;
                }
                from += wide(block) + GAP;
            }
            out.push(line);
        }
        shelf.clear();
    };
    let mut used = 0;
    for block in blocks {
        if !shelf.is_empty() && used + GAP + wide(&block) > max_width {
            put(&mut shelf);
            used = 0;
        }
        used += wide(&block) + if shelf.is_empty() { 0 } else { GAP };
        shelf.push(block);
    }
    put(&mut shelf);
    out
}

struct Writer<'a> {
    picture: &'a Picture<'a>,
    options: &'a TerminalOptions,
    scene: &'a Scene,
    style: Style,
}

const DIM: &str = "2";
const BOLD: &str = "1";

impl Writer<'_> {
    fn code(&self, code: &'static str) -> &'static str {
        if self.options.color { code } else { "" }
    }

    /// Returns `text` in the selected character set, Unicode or ASCII.
    fn text(&self, text: &str) -> String {
        if self.options.unicode { text.to_string() } else { text.replace('×', "x").replace('…', "~") }
    }

    fn heading(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut titled = |mark: &str, code: &str, text: &str| {
            for part in wrap(text, self.options.max_width.saturating_sub(mark.len())) {
                let mut line = Line::of(mark, code);
                line.push(&self.text(&part), self.code(BOLD));
                lines.push(line);
            }
        };
        match &self.scene.second {
            None => titled("", "", &self.scene.title),
            Some(second) => {
                titled("- ", &self.foreground(Ink::OnlyFirst), &self.scene.title);
                titled("+ ", &self.foreground(Ink::OnlySecond), second);
            }
        }
        lines.extend(self.dimmed(&self.scene.about));
        lines.push(Line::default());
        lines
    }

    fn footer(&self) -> Vec<Line> {
        let mut lines = vec![Line::default()];
        for ink in &self.scene.legend {
            let meaning = self.scene.meaning(*ink);
            let sign = match self.style {
                Style::Halves if *ink != Ink::Denied => "█",
                _ => self.sign(*ink),
            };
            let sign = if sign == " " { if self.options.unicode { "␣" } else { "_" } } else { sign };
            let line = lines.last_mut().expect("the list of lines always has at least one line");
            if line.width > 0 && line.width + 5 + meaning.len() > self.options.max_width {
                lines.push(Line::default());
            } else if line.width > 0 {
                line.push("   ", "");
            }
            let line = lines.last_mut().expect("the list of lines always has at least one line");
            line.push(sign, &self.foreground(*ink));
            line.push(&format!(" {meaning}"), "");
        }
        lines.extend(self.key_names().iter().chain(&self.scene.notes).flat_map(|note| self.dimmed(note)));
        lines
    }

    /// Returns a text as lines in the color of explanations.
    fn dimmed(&self, text: &str) -> Vec<Line> {
        let lines = wrap(text, self.options.max_width).into_iter();
        lines.map(|part| Line::of(&self.text(&part), self.code(DIM))).collect()
    }

    /// Returns a text that lists the shown keys, each with its number and its label. Returns `None` if the picture has
    /// no separate key labels, or if the style is not [`Style::Signs`].
    fn key_names(&self) -> Option<String> {
        let panel = self.scene.panels.first()?;
        if self.style != Style::Signs || self.picture.key_labels.is_none() {
            return None;
        }
        let name = |k: u32| Some(format!("{k}\u{a0}{}", self.picture.key_label(panel.batch, k as usize)?));
        let names: Vec<String> = panel.keys().filter_map(name).collect();
        Some(format!("keys: {}", names.join("  ").replace('\u{a0}', " ")))
    }

    fn panel(&self, panel: &Panel) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(caption) = &panel.caption {
            lines.push(Line::of(&fit(caption, self.options.max_width), self.code(BOLD)));
        }
        lines.extend(match self.style {
            Style::Signs => self.signs(panel),
            Style::Halves => self.framed(panel, 2),
            Style::Shades => self.framed(panel, 1),
        });
        let wide = lines.iter().map(|l| l.width).max().unwrap_or(0);
        lines.iter_mut().for_each(|l| l.pad_to(wide));
        lines
    }

    fn axes(&self, gutter: usize) -> Line {
        let (down, across) = if self.options.unicode { ("query ↓", "key →") } else { ("query v", "key >") };
        let mut line = Line::of(down, self.code(DIM));
        line.pad_to(gutter.max(width(down) + 2));
        line.push(across, self.code(DIM));
        line
    }

    /// Returns (line, marked columns): the line of key numbers above a panel, and the columns of picture cells at which
    /// the line has a number. `gutter` is the number of characters before the first picture cell, and `wide` the number
    /// of characters of each picture cell.
    fn key_ticks(&self, panel: &Panel, gutter: usize, wide: usize) -> (Line, Vec<usize>) {
        let keys = panel.keys();
        let longest = (keys.end - 1).to_string().len();
        let space = panel.col_count() * wide;
        let marks = ticks(&keys, 0, (space / (longest + if wide > 1 { 1 } else { 4 })).max(1));
        let mut line = Line::padded(gutter);
        let mut at = Vec::new();
        for (key, label) in marks {
            let col = (0..panel.col_count()).rev().find(|c| panel.grid.keys(*c).start <= key as usize).unwrap_or(0);
            if gutter + col * wide < line.width + usize::from(!at.is_empty()) {
                continue;
            }
            line.pad_to(gutter + col * wide);
            line.push(&label, self.code(DIM));
            at.push(col);
        }
        (line, at)
    }

    fn signs(&self, panel: &Panel) -> Vec<Line> {
        let rows: Vec<(String, String)> = panel
            .queries()
            .map(|q| {
                let label = self.picture.query_label(panel.batch, q as usize).unwrap_or("");
                (fit(label, MOST_LABEL), (i64::from(q) + panel.offset).to_string())
            })
            .collect();
        let names = rows.iter().map(|r| width(&r.0)).max().unwrap_or(0);
        let numbers = rows.iter().map(|r| r.1.len()).max().unwrap_or(0);
        let gutter = (names + usize::from(names > 0) + numbers + 3).max(LEAST_GUTTER);
        let indent = gutter - 3 - names - usize::from(names > 0) - numbers;
        let mut lines = vec![self.axes(gutter), self.key_ticks(panel, gutter, 2).0];
        for (row, (name, number)) in rows.iter().enumerate() {
            let mut line = Line::padded(indent + names - width(name));
            line.push(name, "");
            line.pad_to(gutter - 3 - number.len());
            line.push(number, self.code(DIM));
            line.pad_to(gutter);
            for ink in panel.row(row) {
                line.push(self.sign(*ink), &self.foreground(*ink));
                line.push(" ", &self.foreground(*ink));
            }
            lines.push(line);
        }
        lines
    }

    /// Returns the panel as lines of text with a border. Each line shows `per_line` rows of picture cells.
    fn framed(&self, panel: &Panel, per_line: usize) -> Vec<Line> {
        let unicode = self.options.unicode;
        let [corner_l, corner_r, across, across_tick, down, down_tick, low_l, low_r] = if unicode {
            ["┌", "┐", "─", "┬", "│", "┤", "└", "┘"]
        } else {
            ["+", "+", "-", "+", "|", "+", "+", "+"]
        };
        let dim = self.code(DIM);
        let lines_high = panel.row_count().div_ceil(per_line);
        let marks: Vec<(usize, String)> = ticks(&panel.queries(), panel.offset, (lines_high / 3).max(2))
            .into_iter()
            .map(|(q, label)| {
                let row =
                    (0..panel.row_count()).rev().find(|r| panel.grid.queries(*r).start <= q as usize).unwrap_or(0);
                (row / per_line, label)
            })
            .collect();
        let gutter = marks.iter().map(|m| m.1.len()).max().unwrap_or(1).max(2) + 2;
        let (tick_line, tick_cols) = self.key_ticks(panel, gutter, 1);
        let mut top = Line::padded(gutter - 1);
        top.push(corner_l, dim);
        for col in 0..panel.col_count() {
            top.push(if tick_cols.contains(&col) { across_tick } else { across }, dim);
        }
        top.push(corner_r, dim);
        let mut lines = vec![self.axes(gutter), tick_line, top];
        for i in 0..lines_high {
            let label = marks.iter().find(|m| m.0 == i).map(|m| m.1.as_str());
            let mut line = Line::padded(gutter - 2 - label.map_or(0, str::len));
            line.push(label.unwrap_or(""), dim);
            line.pad_to(gutter - 1);
            line.push(if label.is_some() { down_tick } else { down }, dim);
            match per_line {
                1 => panel.row(i).iter().for_each(|ink| line.push(self.sign(*ink), &self.foreground(*ink))),
                _ => self.halves(panel, 2 * i, &mut line),
            }
            line.push(down, dim);
            lines.push(line);
        }
        let mut low = Line::padded(gutter - 1);
        low.push(&format!("{low_l}{}{low_r}", across.repeat(panel.col_count())), dim);
        lines.push(low);
        lines
    }

    /// Appends the rows `row` and `row + 1` of the panel to `line`, as one line of half-block characters.
    fn halves(&self, panel: &Panel, row: usize, line: &mut Line) {
        for col in 0..panel.col_count() {
            let upper = panel.ink(row, col);
            let lower = if row + 1 < panel.row_count() { panel.ink(row + 1, col) } else { Ink::Denied };
            match (upper, lower) {
                (Ink::Denied, Ink::Denied) => line.push(" ", ""),
                (a, b) if a == b => line.push("█", &self.foreground(a)),
                (a, Ink::Denied) => line.push("▀", &self.foreground(a)),
                (Ink::Denied, b) => line.push("▄", &self.foreground(b)),
                (a, b) => {
                    line.push("▀", &format!("38;5;{};48;5;{}", color(a), color(b)));
                }
            }
        }
    }

    fn sign(&self, ink: Ink) -> &'static str {
        let [signs, shades, ascii] = match ink {
            Ink::Allowed => ["■", "█", "#"],
            Ink::TileAllowed => ["◆", "▓", "*"],
            Ink::Mixed => ["▪", "▒", "+"],
            Ink::TileDenied => ["◇", "░", "o"],
            Ink::Denied => ["·", " ", "."],
            Ink::OnlyFirst => ["-", "-", "-"],
            Ink::OnlySecond => ["+", "+", "+"],
            Ink::BothWays => ["±", "±", "x"],
            Ink::Common => ["■", "░", "#"],
            Ink::CommonMixed => ["▪", "·", ":"],
        };
        match self.style {
            _ if !self.options.unicode => ascii,
            Style::Signs => signs,
            _ => shades,
        }
    }

    fn foreground(&self, ink: Ink) -> String {
        match ink {
            _ if !self.options.color => String::new(),
            Ink::Denied => DIM.into(),
            Ink::OnlyFirst | Ink::OnlySecond | Ink::BothWays => format!("1;38;5;{}", color(ink)),
            _ => format!("38;5;{}", color(ink)),
        }
    }
}

/// Returns the color of an ink as its number among the 256 colors of terminals. The color is readable on dark and light
/// backgrounds.
fn color(ink: Ink) -> u8 {
    match ink {
        Ink::Allowed => 69,
        Ink::TileAllowed => 73,
        Ink::Mixed => 179,
        Ink::TileDenied => 137,
        Ink::OnlyFirst => 167,
        Ink::OnlySecond => 71,
        Ink::BothWays => 170,
        Ink::Common => 244,
        Ink::CommonMixed | Ink::Denied => 240,
    }
}
