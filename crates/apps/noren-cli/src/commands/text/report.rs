//! Prints the result of a run of a model over a text on a terminal.

use super::job::{Guess, Ran};
use super::labels::{Label, Prediction, ranked, shown};
use super::units::printable;
use crate::commands::attend::heat::Heat;
use crate::failure::Result;
use crate::output::{BAD, DIM, GOOD, STRONG, Screen, paint};
use anstyle::{AnsiColor, Style};
use noren_models::Proof;
use noren_models::model::Problem;
use noren_picture::{Draw, TerminalOptions};
use std::path::Path;

/// The colour of private text.
const SECRET: Style = AnsiColor::Yellow.on_default().bold();
/// Width of the captions at the left of the report, in columns.
const CAPTION: usize = 11;
/// Width of everything at the left and at the right of the attention map, in columns: the longest label, the gaps, and
/// the text at the right, which names the keys with the highest probabilities.
const BESIDE: usize = 12 + 2 + 34;
/// Width of a bar that shows a probability, in columns.
const BAR: usize = 24;
/// Number of values of a state vector that are shown.
const NUMBERS: usize = 6;
/// Maximum number of classes of a text that are shown.
const CLASSES: usize = 8;
/// Maximum number of tokens whose class is shown.
const TOKENS: usize = 32;

/// Prints the whole report of a run over a text.
pub(super) fn print(ran: &Ran<'_>, picture: Option<&Path>, screen: &mut Screen) -> Result<()> {
    print_text(ran, screen)?;
    print_mask(ran, screen)?;
    print_attention(ran, screen)?;
    print_outcome(ran, screen)?;
    print_secrets(ran, screen)?;
    match picture {
        Some(path) => caption(screen, "picture", path.display()),
        None => Ok(()),
    }
}

fn caption(screen: &mut Screen, name: &str, text: impl std::fmt::Display) -> Result<()> {
    screen.line(format_args!("{}{text}", paint(STRONG, format!("{name:<CAPTION$}"))))
}

/// Prints the text with its secrets in brackets, the model and the tokens.
fn print_text(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    let space = screen.width - CAPTION;
    for (at, line) in wrapped(&pieces(ran), space).into_iter().enumerate() {
        caption(screen, if at == 0 { "text" } else { "" }, line)?;
    }
    let heads = ran.heads;
    caption(screen, "model", format_args!("{}: {} layers of {heads} heads", ran.source.name, ran.layers))?;
    let mut line = format!("{}:", ran.names.len());
    let mut columns = line.len();
    for (at, name) in ran.names.iter().enumerate() {
        columns += 1 + name.chars().count();
        if columns + 2 > space {
            line.push_str(" …");
            break;
        }
        let style = if ran.private.is_private(at) { SECRET } else { Style::new() };
        line.push_str(&paint(style, format_args!(" {name}")));
    }
    caption(screen, "tokens", line)?;
    screen.line("")
}

/// Splits the text into words and private texts, as (text, true if the text is private). A line can be broken after
/// each.
fn pieces(ran: &Ran<'_>) -> Vec<(String, bool)> {
    let words =
        |text: &str| text.split_inclusive(char::is_whitespace).map(|word| (printable(word), false)).collect::<Vec<_>>();
    let mut pieces = Vec::new();
    let mut at = 0;
    for secret in noren_text::outermost(&ran.found) {
        // Secrets may overlap.
        let range = secret.range.start.max(at)..secret.range.end;
        pieces.extend(words(&ran.text[at..range.start]));
        pieces.push((format!("⟦{}⟧", printable(&ran.text[range.clone()])), true));
        at = range.end;
    }
    pieces.extend(words(&ran.text[at..]));
    pieces
}

/// Breaks text into lines of at most `space` characters. `pieces` are words and private texts as (text, true if the
/// text is private). A line can end after each of them.
fn wrapped(pieces: &[(String, bool)], space: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut columns = 0;
    for (text, secret) in pieces {
        let width = text.trim_end().chars().count();
        if columns > 0 && columns + width > space {
            lines.push(String::new());
            columns = 0;
        }
        columns += text.chars().count();
        if let Some(line) = lines.last_mut() {
            line.push_str(&paint(if *secret { SECRET } else { Style::new() }, text));
        }
    }
    lines
}

fn print_mask(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    let at = paint(DIM, format_args!("layer {}, head {}, one row and one column for each token", ran.layer, ran.head));
    caption(screen, "mask", format_args!("{}  {at}", ran.bound.mask()))?;
    let options =
        TerminalOptions { max_height: if ran.names.len() > ran.units.len() { 24 } else { 48 }, ..screen.terminal() };
    let picture = ran.bound.picture().head(ran.head);
    let picture = if ran.names.len() > ran.units.len() { picture } else { picture.labels(&ran.names) };
    let drawn = picture.to_terminal(&options)?;
    // The title and the caption of the picture were printed above.
    let lines = drawn.lines().skip_while(|line| !line.is_empty()).skip(1);
    for line in lines.filter(|line| *line != format!("head {}", ran.head)) {
        screen.line(line)?;
    }
    screen.line("")
}

fn print_attention(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    let most = (screen.width.saturating_sub(BESIDE) / 2).max(8);
    let shown = ran.units.len().min(most);
    let first = ran.units.len() - shown;
    let by = if ran.units.len() < ran.names.len() { "word" } else { "token" };
    let of = match first {
        0 => String::new(),
        _ => format!(" (the map shows only the last {shown} of {})", ran.units.len()),
    };
    let about = format!(
        "layer {}, head {}, one row and one column for each {by}{of}; cells that the mask denies are blank",
        ran.layer, ran.head
    );
    caption(screen, "attention", paint(DIM, about))?;
    let labels: Vec<String> = ran.units[first..].iter().map(|unit| unit.label.clone()).collect();
    let cut = |rows: &[Vec<f32>]| rows[first..].iter().map(|row| row[first..].to_vec()).collect::<Vec<_>>();
    let allowed: Vec<Vec<bool>> =
        cut(&ran.allowed).into_iter().map(|row| row.into_iter().map(|share| share > 0.0).collect()).collect();
    let heat = Heat {
        tokens: &labels,
        probabilities: cut(&ran.attention),
        allowed: Some(&allowed),
        color: screen.color,
        width: screen.width,
    };
    for line in heat.lines() {
        screen.line(line)?;
    }
    screen.line("")
}

/// Prints the state vector of the text, the predictions for masked tokens, and the continuation of the text.
fn print_outcome(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    if !ran.state.is_empty() {
        let numbers: Vec<String> = ran.state.iter().take(NUMBERS).map(|x| format!("{x:+.3}")).collect();
        let (width, public) = (ran.state.len(), ran.names.len() - ran.hidden.count());
        let mean = format!("mean of the final states of the {public} tokens that are not hidden");
        caption(
            screen,
            "state",
            format_args!("{} … {}", numbers.join(" "), paint(DIM, format_args!("{width} numbers, {mean}"))),
        )?;
    }
    print_prediction(ran, screen)?;
    for guess in &ran.guesses {
        print_guess(guess, screen)?;
    }
    if let Some(text) = &ran.continued {
        let last = ran.text.chars().rev().take(24).collect::<Vec<_>>().into_iter().rev().collect::<String>();
        let (last, text) = (paint(DIM, format_args!("… {}", printable(&last))), paint(STRONG, printable(text)));
        caption(screen, "goes on", format_args!("{last}{text}"))?;
    }
    if ran.withheld {
        caption(
            screen,
            "goes on",
            "the next tokens are not shown: the text ends with a secret, which they could reveal",
        )?;
    }
    Ok(())
}

/// Prints the classes that a classifier predicts: the classes of the text by descending score, or each token whose
/// class is not `O`.
fn print_prediction(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    match &ran.prediction {
        Prediction::None => Ok(()),
        Prediction::Withheld(reason) => caption(screen, "classes", format_args!("withheld: {reason}")),
        Prediction::Text(labels, problem) => {
            let width = labels.iter().map(|label| label.label.chars().count()).max().unwrap_or(0).min(40);
            for (rank, label) in ranked(labels).into_iter().take(CLASSES).enumerate() {
                let line = match problem {
                    Problem::Regression => shown(label, *problem),
                    _ => probability(&printable(&label.label), width, label.score),
                };
                caption(screen, if rank == 0 { "classes" } else { "" }, line)?;
            }
            if labels.len() > CLASSES {
                caption(screen, "", paint(DIM, format_args!("and {} other classes", labels.len() - CLASSES)))?;
            }
            Ok(())
        }
        Prediction::Tokens(labels) => print_token_labels(ran, labels, screen),
    }
}

fn print_token_labels(ran: &Ran<'_>, labels: &[Option<Label>], screen: &mut Screen) -> Result<()> {
    let found: Vec<(usize, &Label)> = labels
        .iter()
        .enumerate()
        .filter_map(|(at, label)| Some((at, label.as_ref().filter(|label| label.label != "O")?)))
        .collect();
    let outside = labels.iter().flatten().count() - found.len();
    for (rank, (at, label)) in found.iter().take(TOKENS).enumerate() {
        let line = probability(&format!("{:<12} {}", ran.names[*at], printable(&label.label)), 24, label.score);
        caption(screen, if rank == 0 { "classes" } else { "" }, line)?;
    }
    let more = found.len().saturating_sub(TOKENS);
    let more = if more > 0 { format!("{more} more tokens with a class; ") } else { String::new() };
    let rest = format!("{more}{outside} tokens with the class O (no entity)");
    caption(screen, if found.is_empty() { "classes" } else { "" }, paint(DIM, rest))
}

/// Formats a probability as a line: the name in `width` columns, the probability in percent, and a bar.
fn probability(name: &str, width: usize, share: f32) -> String {
    let bar = "█".repeat((share * BAR as f32).round() as usize);
    format!("{name:<width$} {:>5.1} % {}", 100.0 * share, paint(GOOD, bar))
}

fn print_guess(guess: &Guess, screen: &mut Screen) -> Result<()> {
    let name = guess.at.map_or_else(|| "next".to_string(), |at| format!("at {at}"));
    for (rank, candidate) in guess.best.iter().enumerate() {
        let line = probability(&candidate.token, 10, candidate.probability);
        caption(screen, if rank == 0 { &name } else { "" }, line)?;
    }
    Ok(())
}

/// Prints the private text that was found, the information about hidden text that stays visible, and the result of the
/// test that hidden text does not change other outputs.
fn print_secrets(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    screen.line("")?;
    if ran.found.is_empty() {
        caption(screen, "private", paint(DIM, "no private text of the searched kinds was found"))?;
        return print_kinds(ran, screen);
    }
    for (row, (kind, at)) in ran.private.kinds().enumerate() {
        let hidden = at.iter().all(|at| ran.hidden.is_private(*at));
        let state = if hidden { paint(GOOD, "hidden") } else { paint(BAD, "readable") };
        let count = ran.found.iter().filter(|finding| finding.kind == *kind).count();
        let line = format!("{count} {:<8} {state}  tokens {}", kind.as_str(), runs(&at));
        caption(screen, if row == 0 { "private" } else { "" }, line)?;
    }
    let Some(proof) = &ran.proof else {
        caption(
            screen,
            "",
            paint(DIM, "give --hide all to prevent every token outside the private text from reading it"),
        )?;
        return print_kinds(ran, screen);
    };
    let visible = "the number and positions of the hidden tokens stay visible, and also what the rest of the text reveals about these tokens";
    caption(screen, "visible", visible)?;
    caption(screen, "test", verdict(proof))?;
    caption(
        screen,
        "",
        paint(DIM, "the test covers the hidden tokens; private text that was not found is not covered"),
    )?;
    print_kinds(ran, screen)?;
    let open = ran.private.kinds().filter(|(_, at)| !at.iter().all(|at| ran.hidden.is_private(*at)));
    let open: Vec<&str> = open.map(|(kind, _)| kind.as_str()).collect();
    match open.is_empty() {
        true => Ok(()),
        false => {
            caption(screen, "readable", paint(BAD, format_args!("{}: give --hide all to hide it too", open.join(", "))))
        }
    }
}

/// Prints the kinds of private text that were searched for, and the kinds that were not searched for.
fn print_kinds(ran: &Ran<'_>, screen: &mut Screen) -> Result<()> {
    let space = screen.width - CAPTION;
    let looked_for = format!("{}; {}", ran.looked_for.join(", "), ran.not_looked_for);
    let pieces: Vec<(String, bool)> = looked_for.split_inclusive(' ').map(|word| (word.to_owned(), false)).collect();
    for (at, line) in wrapped(&pieces, space).into_iter().enumerate() {
        caption(screen, if at == 0 { "looked for" } else { "" }, paint(DIM, line))?;
    }
    Ok(())
}

pub(super) fn verdict(proof: &Proof) -> String {
    let runs = proof.trials;
    match proof.holds() {
        true => format!(
            "{} {runs} runs with other secrets of the same length: all bits of {} released numbers are equal",
            paint(GOOD, "✓"),
            proof.compared
        ),
        false => format!(
            "{} {runs} runs with other secrets of the same length: the outputs of {} visible tokens and of {} hidden \
             tokens differ from those of the given text",
            paint(BAD, "✗"),
            proof.leaks.len(),
            proof.secret_changed
        ),
    }
}

/// Formats token indices in ascending order as ranges, such as `3..9, 12`.
fn runs(at: &[usize]) -> String {
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    for &at in at {
        match spans.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => spans.push(at..at + 1),
        }
    }
    let span = |span: &std::ops::Range<usize>| match span.len() {
        1 => span.start.to_string(),
        _ => format!("{}..{}", span.start, span.end),
    };
    spans.iter().map(span).collect::<Vec<_>>().join(", ")
}
