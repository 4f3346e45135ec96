//! [`Heat`]: draws the attention probabilities of one sentence and head as a heat map.

use crate::output::{DIM, STRONG, cut, paint};
use anstyle::{Ansi256Color, Style};

/// Terminal colours (of the 256-colour palette) from probability 0 to probability 1.
const RAMP: [u8; 9] = [234, 17, 18, 19, 25, 31, 37, 43, 50];
/// Shades for terminals without colour, from probability 0 to probability 1.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// The minimum attention probability of a key to be mentioned in the text beside the heat map.
const NOTABLE: f32 = 0.15;
/// Width of the space for the text beside the heat map, in columns.
const WORDS: usize = 34;

/// A heat map of the attention probabilities of one sentence and head.
pub(crate) struct Heat<'a> {
    /// The text of each non-padding token.
    pub(crate) tokens: &'a [String],
    /// The probability of each key for each query, `[tokens, keys]`. Keys after the last non-padding token are padding.
    pub(crate) probabilities: Vec<Vec<f32>>,
    /// For each cell, true if the mask allows the cell, `[tokens, tokens]`. Denied cells stay blank. With `None`, all
    /// cells are drawn.
    pub(crate) allowed: Option<&'a [Vec<bool>]>,
    /// True if the terminal shows colours.
    pub(crate) color: bool,
    /// Width of the terminal, in columns.
    pub(crate) width: usize,
}

impl Heat<'_> {
    /// Draws the heat map: a heading, then one line for each query.
    pub(crate) fn lines(&self) -> Vec<String> {
        let chars = |text: &String| text.chars().count();
        let label = self.tokens.iter().map(chars).max().unwrap_or(0).min(12);
        let space = self.width.saturating_sub(label + 2 + WORDS);
        let cell = (space / self.tokens.len().max(1)).clamp(2, 6);
        let mut lines = vec![self.header(label, cell)];
        for (query, (token, row)) in self.tokens.iter().zip(&self.probabilities).enumerate() {
            let denied = |key: usize| self.allowed.is_some_and(|allowed| !allowed[query][key]);
            let cells: String = (0..self.tokens.len())
                .map(|key| if denied(key) { " ".repeat(cell) } else { self.cell(row[key], cell) })
                .collect();
            lines.push(format!("{:>label$}  {cells}  {}", cut(token, label), self.words(row)));
        }
        lines
    }

    fn header(&self, label: usize, cell: usize) -> String {
        let names: String = match cell {
            // Coloured cells end with a blank, which separates a number from the next colour.
            4.. if self.color => self.tokens.iter().map(|t| format!("{:>1$} ", cut(t, cell - 1), cell - 1)).collect(),
            4.. => self.tokens.iter().map(|t| format!("{:>cell$}", cut(t, cell - 1))).collect(),
            // The columns are too narrow for tokens: every fifth column has its index.
            _ => (0..self.tokens.len().div_ceil(5)).map(|i| format!("{:<1$}", 5 * i, 5 * cell)).collect(),
        };
        paint(DIM, format!("{:label$}  {names}", "").trim_end())
    }

    fn cell(&self, p: f32, width: usize) -> String {
        let percent = (100.0 * p).round() as usize;
        let number = match percent {
            0 => String::new(),
            n => n.to_string(),
        };
        if self.color {
            let step = ((p.sqrt() * (RAMP.len() - 1) as f32).round() as usize).min(RAMP.len() - 1);
            let ink = if step > 5 { 16 } else { 255 };
            let style =
                Style::new().bg_color(Some(Ansi256Color(RAMP[step]).into())).fg_color(Some(Ansi256Color(ink).into()));
            let text = if width < 4 { String::new() } else { number };
            return paint(style, format!("{text:>0$} ", width - 1));
        }
        if width >= 4 {
            return format!("{:>width$}", if percent == 0 { "·".to_string() } else { number });
        }
        let shade = SHADES[((p * 4.0).ceil() as usize).min(4)];
        shade.to_string().repeat(width)
    }

    /// Returns the text beside the line of one query in the heat map: up to two keys that the query reads with the
    /// highest probabilities, if these are at least [`NOTABLE`]. `row` has the probability of each key.
    fn words(&self, row: &[f32]) -> String {
        let mut order: Vec<usize> = (0..self.tokens.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let notable: Vec<usize> = order.iter().copied().filter(|k| row[*k] >= NOTABLE).take(2).collect();
        if notable.is_empty() {
            return match order.first() {
                Some(&k) if row[k] > 0.0 => {
                    paint(DIM, format!("attention is spread out; the highest is on {}", cut(&self.tokens[k], 12)))
                }
                _ => paint(DIM, "the query reads no key of the sentence"),
            };
        }
        let words = notable.into_iter().enumerate().map(|(i, k)| {
            let style = if i == 0 { STRONG } else { DIM };
            paint(style, format!("{} {:.0} %", cut(&self.tokens[k], 12), 100.0 * row[k]))
        });
        format!("reads {}", words.collect::<Vec<_>>().join(", "))
    }
}
