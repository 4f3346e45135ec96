//! Where commands write: colour, width, and readers that go away.

use crate::failure::{Failure, Result};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use std::io::{IsTerminal, Stdout, Write};
use std::sync::mpsc;
use std::time::Duration;

/// Labels and captions.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Headings and results.
pub(crate) const STRONG: Style = Style::new().bold();
/// Style of correct results.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of faulty results.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// When to use colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Color {
    /// When standard output is a terminal and NO_COLOR is not set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// The same for the library that writes.
    pub(crate) fn choice(self) -> ColorChoice {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
    }
}

/// Standard output: what is written through it loses its colour where nobody wants any.
pub(crate) struct Screen {
    out: AutoStream<Stdout>,
    /// True when colour reaches the reader.
    pub(crate) color: bool,
    /// Columns; 100 when standard output is no terminal.
    pub(crate) width: usize,
    /// True once nobody reads any more: the rest is dropped, so that the verdict is reached all the same.
    gone: bool,
}

impl Screen {
    /// Standard output with the colour that was asked for.
    pub(crate) fn new(color: Color) -> Self {
        let stdout = std::io::stdout();
        let choice = match color.choice() {
            ColorChoice::Auto => AutoStream::choice(&stdout),
            choice => choice,
        };
        let columns = match stdout.is_terminal() {
            true => terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)),
            false => None,
        };
        Screen {
            color: matches!(choice, ColorChoice::Always | ColorChoice::AlwaysAnsi),
            out: AutoStream::new(stdout, choice),
            width: columns.unwrap_or(100).clamp(40, 160),
            gone: false,
        }
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        self.text(format_args!("{text}\n"))
    }

    /// Lines that end as they should.
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

    /// `value` as JSON on several lines.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(|e| Failure::new(format!("no JSON form: {e}")))?;
        self.line(text)
    }
}

/// Text between the marks of a style.
pub(crate) fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// At most `most` characters, the last one an ellipsis where something was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Runs `work`; when standard error is a terminal and the work lasts, `note` appears there meanwhile.
pub(crate) fn with_note<T>(note: &str, work: impl FnOnce() -> T) -> T {
    match std::io::stderr().is_terminal() {
        true => patiently(Duration::from_secs(1), || anstream::eprintln!("{}", paint(DIM, note)), work),
        false => work(),
    }
}

/// Runs `work`, and `note` beside it once `patience` is over.
fn patiently<T>(patience: Duration, note: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (working, done) = mpsc::channel::<()>();
        let waiting = move || {
            if done.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                note();
            }
        };
        // Without a thread for it there is no note.
        let _ = std::thread::Builder::new().spawn_scoped(scope, waiting);
        let result = work();
        // Also dropped when `work` panics: then nobody waits.
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_work_is_noted() {
        let (noted, notes) = mpsc::channel();
        let result = patiently(Duration::ZERO, || noted.send(1).expect("a reader"), || notes.recv().expect("a note"));
        assert_eq!(result, 1);
        assert_eq!(patiently(Duration::from_secs(3600), || panic!("too early"), || 2), 2);
    }
}
