//! [`Screen`]: writes the output of commands to standard output, with or without colour. A closed pipe is not an error.

use crate::failure::{Failure, Result};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use noren_input::request::Bound;
use noren_picture::TerminalOptions;
use std::io::{IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Terminal style of labels and captions.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Terminal style of headings and results.
pub(crate) const STRONG: Style = Style::new().bold();
/// Terminal style of correct results.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Terminal style of faulty results.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Maximum number of lines of a list.
const LISTED: usize = 40;

/// Standard output. Colour codes are removed from the text if colour is off.
pub(crate) struct Screen {
    out: AutoStream<Stdout>,
    /// True if colour is on.
    pub(crate) color: bool,
    /// Width in columns, between 40 and 160; COLUMNS or 100 if standard output is not a terminal.
    pub(crate) width: usize,
    /// True after the program that reads the output closed the pipe. Further output is dropped, and the command runs to
    /// its end, because its exit code is still needed.
    gone: bool,
}

impl Screen {
    /// Creates a writer to standard output that uses colour as `color` selects.
    pub(crate) fn new(color: ColorChoice) -> Self {
        let stdout = std::io::stdout();
        let choice = match color {
            ColorChoice::Auto => AutoStream::choice(&stdout),
            choice => choice,
        };
        let columns = match stdout.is_terminal() {
            true => terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)),
            false => std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()),
        };
        Screen {
            color: matches!(choice, ColorChoice::Always | ColorChoice::AlwaysAnsi),
            out: AutoStream::new(stdout, choice),
            width: columns.unwrap_or(100).clamp(40, 160),
            gone: false,
        }
    }

    /// Returns the options of a picture on this terminal.
    pub(crate) fn terminal(&self) -> TerminalOptions {
        TerminalOptions { color: self.color, max_width: self.width, ..TerminalOptions::default() }
    }

    /// Writes one line to standard output.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        self.text(format_args!("{text}\n"))
    }

    /// Writes text without a line break at its end.
    pub(crate) fn text(&mut self, text: impl std::fmt::Display) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        match write!(self.out, "{text}") {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            written => Ok(written?),
        }
    }

    /// Writes the sizes that were assumed for `bound`, if there are any.
    pub(crate) fn remark(&mut self, bound: &Bound) -> Result<()> {
        bound.remark().map_or(Ok(()), |remark| self.line(paint(DIM, remark)))
    }

    /// Writes `lines`, indented; of more than 40 lines, the first 40 and the number of the others.
    pub(crate) fn list(&mut self, lines: &[String]) -> Result<()> {
        lines.iter().take(LISTED).try_for_each(|line| self.line(format_args!("  {line}")))?;
        match lines.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => self.line(paint(DIM, format_args!("  ... and {more} more"))),
        }
    }

    /// Writes `value` as JSON on several lines.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::new(format!("the result cannot be written as JSON: {e}")))?;
        self.line(text)
    }
}

/// Returns `text` between the terminal codes that set and reset `style`.
pub(crate) fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Adds colour to the words with which `line` begins. `styles` are pairs (words, colour).
pub(crate) fn highlight(line: &str, styles: &[(&str, Style)]) -> String {
    match styles.iter().find_map(|(words, style)| Some((words, style, line.strip_prefix(words)?))) {
        Some((words, style, rest)) => format!("{}{rest}", paint(*style, words)),
        None => line.to_string(),
    }
}

/// Returns a text of at most `most` characters. A longer text is cut, and then ends with an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Runs `work` and returns the result. If `work` takes longer than a second and standard error is a terminal, prints
/// `note` and the time to standard error, in one line that is written again each second.
pub(crate) fn with_note<T>(note: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let mut seconds = 0;
    let show = move || {
        seconds += 1;
        anstream::eprint!("\r\x1b[2K{}", paint(DIM, format_args!("{note} {seconds} s")));
        let _ = std::io::stderr().flush();
    };
    let (result, shown) = patiently(Duration::from_secs(1), show, work);
    if shown {
        anstream::eprint!("\r\x1b[2K");
    }
    result
}

/// Runs `work` and returns the result. Each time `patience` has passed before the end of `work`, calls `note` on another
/// thread. Also returns true if `note` was called.
fn patiently<T>(patience: Duration, mut note: impl FnMut() + Send, work: impl FnOnce() -> T) -> (T, bool) {
    let shown = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let (working, done) = mpsc::channel::<()>();
        let shown = &shown;
        let waiting = move || {
            while done.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                note();
                shown.store(true, Ordering::Relaxed);
            }
        };
        // If the thread cannot be started, no note is printed.
        let _ = std::thread::Builder::new().spawn_scoped(scope, waiting);
        let result = work();
        // A panic of `work` also drops the sender, which ends the waiting thread.
        drop(working);
        result
    });
    (result, shown.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_work_is_noted() {
        let (noted, notes) = mpsc::channel();
        let twice = || (notes.recv().expect("a note"), notes.recv().expect("a note"));
        assert_eq!(
            patiently(Duration::from_millis(1), move || noted.send(1).unwrap_or_default(), twice),
            ((1, 1), true)
        );
        assert_eq!(patiently(Duration::from_secs(3600), || panic!("too early"), || 2), (2, false));
    }
}
