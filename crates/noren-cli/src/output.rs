//! Where commands write: colour, width, and readers that go away.

use crate::failure::{Failure, Result};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use std::io::{IsTerminal, Stdout, Write};
use std::path::Path;

/// Labels and captions.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Headings and results.
pub(crate) const STRONG: Style = Style::new().bold();
/// What is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
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

    /// One line.
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

/// Writes a file whole or not at all: into a new file beside it, which then takes its place.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let named = |what: &str, e: std::io::Error| {
        Failure::new(format!("{}: {what}: {e}", path.display()))
            .hint("give -o a file in a folder that you may write to")
    };
    // Through a link to what it names; a device or a pipe has no place to take, so it is written as it stands.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let fill = || write(&mut std::fs::OpenOptions::new().write(true).open(path)?);
        return fill().map_err(|e| named("cannot be written", e));
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::new(format!("{} is no file name", path.display())).hint("give -o a file"));
    };
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    let fill = || {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&part)?;
        let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
        write(&mut file)?;
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    };
    let done = fill()
        .map_err(|e| named("cannot be written", e))
        .and_then(|()| std::fs::rename(&part, path).map_err(|e| named("cannot be put in place", e)));
    if done.is_err() {
        // It may never have come into being; the error above is the one to tell.
        let _ = std::fs::remove_file(&part);
    }
    done
}
