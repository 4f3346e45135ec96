//! [`Progress`]: a line that shows the progress of a long computation on standard error, if standard error is a
//! terminal.

use crate::output::{DIM, paint};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Minimum time between two updates of the progress line. Frequent updates would slow down the computation.
const PAUSE: Duration = Duration::from_millis(100);
/// Width of the progress bar, in columns.
const WIDTH: u64 = 24;

/// A line on standard error that shows the number of finished steps of a long computation.
pub(crate) struct Progress {
    shown: bool,
    done: u64,
    /// Total number of steps; `None` if the total is unknown.
    all: Option<u64>,
    message: String,
    begun: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    /// Creates a progress line. `all` is the total number of steps; `None` if the total is unknown. If standard error
    /// is not a terminal, nothing is shown.
    pub(crate) fn new(all: Option<u64>) -> Self {
        let shown = std::io::stderr().is_terminal();
        Progress { shown, done: 0, all, message: String::new(), begun: Instant::now(), drawn: None }
    }

    /// Returns true if the progress line is shown.
    #[cfg(feature = "models")]
    pub(crate) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Adds `steps` to the number of finished steps.
    pub(crate) fn add(&mut self, steps: u64) {
        self.set(self.done + steps);
    }

    /// Sets the number of finished steps.
    pub(crate) fn set(&mut self, done: u64) {
        self.done = done;
        self.draw();
    }

    /// Sets the text beside the bar. The next update of the progress line draws the text.
    pub(crate) fn message(&mut self, text: impl Into<String>) {
        self.message = text.into();
    }

    /// Removes the progress line from the terminal.
    pub(crate) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            anstream::eprint!("\r\x1b[2K");
        }
    }

    /// Removes the progress line, runs `print`, and draws the progress line again.
    pub(crate) fn aside<T>(&mut self, print: impl FnOnce() -> T) -> T {
        self.clear();
        let result = print();
        self.draw();
        result
    }

    fn draw(&mut self) {
        if !self.shown || self.drawn.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.drawn = Some(Instant::now());
        anstream::eprint!("\r\x1b[2K{} {}", self.bar(), paint(DIM, self.text()));
        // A failed write to the terminal is ignored.
        let _ = std::io::stderr().flush();
    }

    /// Returns the progress bar as text; empty if the total number of steps is unknown.
    fn bar(&self) -> String {
        let Some(all) = self.all else { return String::new() };
        let full = WIDTH * self.done.min(all) / all.max(1);
        format!("{}{}", "\u{2588}".repeat(full as usize), "\u{2591}".repeat((WIDTH - full) as usize))
    }

    /// Returns the text of the progress line: the finished steps, the message and the remaining time.
    fn text(&self) -> String {
        let mut text = match self.all {
            Some(all) => format!("{}/{all}", self.done),
            None => self.done.to_string(),
        };
        if !self.message.is_empty() {
            text = format!("{text} {}", self.message);
        }
        let left = self.all.map(|all| all.saturating_sub(self.done)).filter(|_| self.done > 0);
        if let Some(left) = left {
            let seconds = self.begun.elapsed().as_secs_f64() / self.done as f64 * left as f64;
            text = format!("{text}, {} left", short(seconds));
        }
        let columns = terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        text.chars().take(columns.saturating_sub(WIDTH as usize + 2)).collect()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Formats a duration in its two largest units, for example as `1 h 20 min`, `3 min 5 s` or `12 s`.
fn short(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is() {
        let mut progress = Progress::new(Some(48));
        progress.shown = false;
        progress.message("loss 2.5");
        progress.set(12);
        assert_eq!(progress.bar().chars().filter(|c| *c == '\u{2588}').count(), 6);
        assert!(progress.text().starts_with("12/48 loss 2.5, 0 s left"), "{}", progress.text());
        progress.add(100);
        assert_eq!(progress.bar().chars().count(), 24);
        assert_eq!([short(5.2), short(125.0), short(7300.0)], ["5 s", "2 min 5 s", "2 h 1 min"]);
    }
}
