//! Draws the result of a run of a model over a text as one SVG picture: the text, the allowed cells, the attention, the
//! predictions, and the hidden text.

use super::job::{Candidate, Ran};
use super::units::Unit;
use crate::output::cut;
use noren_mask::text::escape;
use std::fmt::Write;

/// Width of the page, in pixels.
const WIDTH: usize = 1040;
/// Width of the margins of the page, in pixels.
const MARGIN: usize = 28;
/// Width of one character in the font of the page, in pixels.
const CHARACTER: f64 = 7.3;
/// Maximum length of a label, in characters; longer labels are cut.
const MOST_LABEL: usize = 12;
/// Space for the labels of a map, in pixels: the width of the space at the left of the map, and the height of the space
/// above the map.
const LABELS: usize = 96;
/// Space between the map of the allowed cells and the map of the attention weights, in pixels.
const GAP: usize = 24;
/// Maximum number of units (tokens, words or private texts) in a map. For a longer text, the maps show only the last
/// units.
const MOST_UNITS: usize = 120;

/// The style sheet, with light and dark colours. Class names have a prefix, so that one page can contain several
/// pictures.
const STYLE: &str = "\
.nrt{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
.nrt-page{fill:#fcfbf8}.nrt text{fill:#22263a}.nrt .nrt-soft{fill:#6f7287}.nrt-bold{font-weight:600}\
.nrt-title{font-size:15px;font-weight:600}.nrt-word{fill:#efece4}.nrt-secret{fill:#e3b262}.nrt-denied{fill:#efece4}\
.nrt-allowed{fill:#2f4b8f}.nrt-read{fill:#c4513a}.nrt-bar{fill:#1f8a7d}\
@media (prefers-color-scheme:dark){\
.nrt-page{fill:#14161f}.nrt text{fill:#e7e7ee}.nrt .nrt-soft{fill:#9a9db3}.nrt-word{fill:#212432}.nrt-secret{fill:#8a6a2e}\
.nrt-denied{fill:#212432}.nrt-allowed{fill:#7f9ff0}.nrt-read{fill:#f08a70}.nrt-bar{fill:#45b8a8}}";

/// Returns an SVG picture of the result of a run over a text.
pub(super) fn svg(ran: &Ran<'_>) -> String {
    let mut page = Page { body: String::new(), y: MARGIN + 14 };
    page.text(MARGIN, "nrt-title", &ran.bound.mask().to_string());
    let about =
        format!("{} · layer {} of {}, head {} of {}", ran.source.name, ran.layer, ran.layers, ran.head, ran.heads);
    page.y += 20;
    page.text(MARGIN, "nrt-soft", &about);
    page.y += 14;
    page.words(ran);
    page.maps(ran);
    page.guesses(ran);
    page.secrets(ran);
    let height = page.y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" class=\"nrt\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\">\n<title>A text through a model: {}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"nrt-page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"10\"/>\n{}</svg>\n",
        escape(&ran.bound.mask().to_string()),
        page.body
    )
}

/// An SVG page that is being drawn: the elements that were added, and the vertical position of the next element, in
/// pixels.
struct Page {
    body: String,
    y: usize,
}

impl Page {
    fn text(&mut self, x: usize, class: &str, text: &str) {
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{}\">{}</text>", self.y, escape(text));
    }

    fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, opacity: f32) {
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\" \
             fill-opacity=\"{opacity:.3}\"/>"
        );
    }

    /// Draws each unit of the text (a token, a word or a private text) as a coloured box. Private texts have a
    /// different colour.
    fn words(&mut self, ran: &Ran<'_>) {
        let mut x = MARGIN;
        self.y += 8;
        for unit in &ran.units {
            let label = cut(&unit.label, 40);
            let width = pixels(&label) + 10;
            if x + width > WIDTH - MARGIN {
                (x, self.y) = (MARGIN, self.y + 24);
            }
            let class = if unit.private { "nrt-secret" } else { "nrt-word" };
            self.rect([x as f64, self.y as f64, width as f64, 20.0], class, 1.0);
            self.y += 14;
            self.text(x + 5, "", &label);
            self.y -= 14;
            x += width + 4;
        }
        self.y += 44;
    }

    /// Draws two maps side by side: the allowed cells, and the attention weights.
    fn maps(&mut self, ran: &Ran<'_>) {
        let first = ran.units.len().saturating_sub(MOST_UNITS);
        let units = &ran.units[first..];
        let space = (WIDTH - 2 * MARGIN - 2 * LABELS - GAP) / 2;
        let cell = (space as f64 / units.len() as f64).min(26.0);
        let top = self.y + LABELS;
        let of = if first > 0 { format!(" (the last {MOST_UNITS} of {})", ran.units.len()) } else { String::new() };
        let captions = [format!("may read{of}"), format!("reads{of}")];
        let maps = [(&ran.allowed, "nrt-allowed"), (&ran.attention, "nrt-read")];
        for (at, ((rows, class), caption)) in maps.into_iter().zip(captions).enumerate() {
            let left = MARGIN + LABELS + at * (space + LABELS + GAP);
            self.text(left, "nrt-bold", &caption);
            self.labels(units, (left as f64, top as f64), cell);
            for (q, row) in rows[first..].iter().enumerate() {
                for (k, share) in row[first..].iter().enumerate() {
                    let place = [left as f64 + k as f64 * cell, top as f64 + q as f64 * cell, cell - 1.0, cell - 1.0];
                    // Denied cells stay empty.
                    if ran.allowed[first + q][first + k] > 0.0 {
                        self.rect(place, "nrt-denied", 1.0);
                        self.rect(place, class, share.sqrt());
                    }
                }
            }
        }
        self.y = top + (cell * units.len() as f64) as usize + 30;
    }

    /// Draws the labels of a map, at its left and above it, if the cells are large enough. `left` and `top` are the
    /// position of the map and `cell` is the side length of a cell, in pixels.
    fn labels(&mut self, units: &[Unit], (left, top): (f64, f64), cell: f64) {
        let size = cell.clamp(5.0, 12.0);
        for (at, unit) in units.iter().enumerate().filter(|_| cell >= 5.0) {
            let middle = (at as f64 + 0.5) * cell;
            let label = escape(&cut(&unit.label, MOST_LABEL));
            let (x, y) = (left + middle + size / 3.0, top - 6.0);
            let class = if unit.private { "nrt-bold" } else { "nrt-soft" };
            let _ = writeln!(
                self.body,
                "<text class=\"{class}\" font-size=\"{size:.1}\" style=\"font-size:{size:.1}px\" text-anchor=\"end\" x=\"{:.1}\" \
                 y=\"{:.1}\">{label}</text>\n<text class=\"{class}\" style=\"font-size:{size:.1}px\" \
                 transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{label}</text>",
                left - 6.0,
                top + middle + size / 3.0,
            );
        }
    }

    /// Draws a bar for each predicted token, and the continuation of the text.
    fn guesses(&mut self, ran: &Ran<'_>) {
        for guess in &ran.guesses {
            let name = guess.at.map_or_else(|| "next".to_string(), |at| format!("token {at}"));
            self.text(MARGIN, "nrt-bold", &name);
            for Candidate { token, probability: share } in &guess.best {
                self.text(MARGIN + LABELS, "", &format!("{token:<8}{:5.1} %", 100.0 * share));
                let bar = [(MARGIN + LABELS + 140) as f64, self.y as f64 - 10.0, 300.0 * f64::from(*share), 12.0];
                self.rect(bar, "nrt-bar", 1.0);
                self.y += 18;
            }
            self.y += 8;
        }
        if let Some(text) = &ran.continued {
            self.text(MARGIN, "nrt-bold", "goes on");
            self.text(MARGIN + LABELS, "", &cut(&super::units::printable(text), 110));
            self.y += 26;
        }
    }

    /// Draws the kinds of private text that are hidden, and the result of the proof that hidden text does not change
    /// other outputs.
    fn secrets(&mut self, ran: &Ran<'_>) {
        let kinds: Vec<&str> = ran.hidden.kinds().map(|(kind, _)| kind.as_str()).collect();
        if let Some(proof) = &ran.proof {
            self.text(MARGIN, "nrt-bold", "hidden");
            let count = ran.hidden.count();
            self.text(MARGIN + LABELS, "", &format!("{count} of {} tokens: {}", ran.names.len(), kinds.join(", ")));
            self.y += 18;
            self.text(MARGIN, "nrt-bold", "test");
            let text = match proof.holds() {
                true => format!(
                    "all bits of {} outputs of visible tokens are equal in {} runs with other secrets",
                    proof.compared, proof.trials
                ),
                false => {
                    format!(
                        "the outputs of {} visible tokens differ in {} runs with other secrets",
                        proof.leaks.len(),
                        proof.trials
                    )
                }
            };
            self.text(MARGIN + LABELS, "", &text);
            self.y += 18;
            self.text(MARGIN + LABELS, "nrt-soft", &format!("looked for: {}", ran.looked_for.join(", ")));
            self.y += 18;
            self.text(MARGIN + LABELS, "nrt-soft", &ran.not_looked_for);
        }
    }
}

fn pixels(text: &str) -> usize {
    (text.chars().count() as f64 * CHARACTER).ceil() as usize
}
