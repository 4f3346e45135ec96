//! [`History`]: the losses of a training run so far, and a picture of these losses.

use noren_text::data::Objective;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The losses of a training run, in nats per predicted token.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The loss of a model that predicts each token only from its frequency in the text (the entropy of the token
    /// frequencies). A trained model should have a lower loss.
    pub unigram: f64,
    /// The mean losses on the training rows. Each validation adds one point for each objective: the mean over the steps
    /// since the previous validation.
    pub training: Vec<Point>,
    /// The mean losses on the rows that are held out for validation. Each validation adds one point for each objective.
    pub validation: Vec<Point>,
}

/// The mean loss of one objective after a number of steps: one point of a loss curve.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Number of completed steps.
    pub step: u64,
    /// The objective: `clm` or `mlm`.
    pub objective: String,
    /// The loss in nats per predicted token.
    pub loss: f64,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// The left, top, right and bottom edges of the area in which the loss curves are drawn, in pixels.
const FRAME: [f64; 4] = [56.0, 40.0, 616.0, 312.0];
const COLORS: [(Objective, &str); 2] = [(Objective::Clm, "#2563eb"), (Objective::Mlm, "#c2410c")];

impl History {
    /// Returns the loss of `objective` in the last validation; `None` if there was no validation.
    pub fn last_validation(&self, objective: Objective) -> Option<f64> {
        let name = objective.to_string();
        self.validation.iter().rev().find(|point| point.objective == name).map(|point| point.loss)
    }

    /// Returns a picture (SVG) of the losses by step. A thin line shows the training loss, a thick line the validation
    /// loss, and a dashed line the unigram entropy.
    pub fn to_svg(&self) -> String {
        let all = || self.training.iter().chain(&self.validation);
        let last = all().map(|p| p.step).max().unwrap_or(1).max(1) as f64;
        let top = all().map(|p| p.loss).fold(self.unigram, f64::max).max(0.1) * 1.05;
        let [left, upper, right, lower] = FRAME;
        let x = |step: f64| left + (right - left) * step / last;
        let y = |loss: f64| lower - (lower - upper) * loss / top;

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\" fill=\"#111827\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"{left}\" y=\"22\" font-weight=\"600\">Loss by step, nats per predicted token</text>\n"
        );
        let mut line = |points: &str, style: &str| {
            let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" {style}/>");
        };
        line(&format!("{left},{upper} {left},{lower} {right},{lower}"), "stroke=\"#6b7280\"");
        let level = y(self.unigram);
        line(&format!("{left},{level:.1} {right},{level:.1}"), "stroke=\"#6b7280\" stroke-dasharray=\"4 4\"");
        let mut labels = vec![(level, "unigram entropy".to_string(), "#6b7280")];
        for (objective, color) in COLORS {
            let name = objective.to_string();
            for (points, style) in [
                (&self.training, format!("stroke=\"{color}\" stroke-opacity=\"0.35\"")),
                (&self.validation, format!("stroke=\"{color}\" stroke-width=\"2\"")),
            ] {
                let places = points.iter().filter(|p| p.objective == name);
                let places: Vec<String> = places.map(|p| format!("{:.1},{:.1}", x(p.step as f64), y(p.loss))).collect();
                if !places.is_empty() {
                    line(&places.join(" "), &style);
                }
            }
            if let Some(loss) = self.last_validation(objective) {
                labels.push((y(loss), format!("{name} {loss:.3}"), color));
            }
        }
        for (at, text, color) in apart(labels) {
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{color}\">{text}</text>", right + 6.0);
        }
        for tick in 0..=4 {
            let share = f64::from(tick) / 4.0;
            let (loss, step) = (top * share, last * share);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{loss:.1}</text>",
                left - 6.0,
                y(loss) + 4.0
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{step:.0}</text>",
                x(step),
                lower + 18.0
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Moves the labels of loss curves down if they would overlap, and returns the labels from top to bottom. A label is
/// (vertical position in pixels, text, color).
fn apart(mut labels: Vec<(f64, String, &str)>) -> Vec<(f64, String, &str)> {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::MIN;
    for label in &mut labels {
        label.0 = (label.0 + 4.0).max(free);
        free = label.0 + 14.0;
    }
    labels
}
