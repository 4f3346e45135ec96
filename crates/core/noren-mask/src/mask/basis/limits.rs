//! Limits of parameters, and the messages for parameters outside their limits.

use crate::sets::set::{Positions, Span};

/// The maximum of parameters that are added to positions: small enough that the sum fits in 64 bits. Does not compile
/// where `usize` has 32 bits, for which this crate is not made.
pub(crate) const LIMIT: usize = 1 << 62;

type Checked = Result<(), String>;

/// Returns an error if `n` exceeds [`LIMIT`]. `name` is the parameter in the error.
pub(crate) fn within(name: &str, n: usize) -> Checked {
    if n <= LIMIT {
        Ok(())
    } else {
        Err(format!("{name} is {n}, which is larger than every position: at most {LIMIT} is possible"))
    }
}

/// Returns an error if `n` is 0 or exceeds [`LIMIT`]. `name` is the parameter in the error.
pub(crate) fn count(name: &str, n: usize) -> Checked {
    if n == 0 { Err(format!("{name} is 0: give at least 1")) } else { within(name, n) }
}

/// Returns an error if the name of an array is empty.
pub(crate) fn check_name(name: &str) -> Checked {
    if name.is_empty() {
        Err("the name of the array is empty: give the name that the facts use".into())
    } else {
        Ok(())
    }
}

/// Returns an error if a range of the set is reversed or its label is empty.
pub(crate) fn check_set(set: &Positions) -> Checked {
    match set {
        Positions::Spans(spans) => check_spans(spans),
        Positions::Label(label) if label.is_empty() => {
            Err("the label is empty: give a label that the facts declare".into())
        }
        Positions::Label(_) => Ok(()),
    }
}

/// Returns an error if a span ends before it begins.
pub(crate) fn check_spans(spans: &[Span]) -> Checked {
    spans.iter().try_for_each(|span| {
        let end = span.end.unwrap_or(span.start);
        if end < span.start {
            return Err(format!("range {}..{end} is reversed: write {end}..{}", span.start, span.start));
        }
        within("a position", end)
    })
}

/// Checks that there is one length per batch row (`batch` rows) and that each length is at most `len`. `what` names the
/// tokens in the error.
pub(crate) fn check_lengths(lengths: &[usize], batch: usize, len: usize, what: &str) -> Result<(), String> {
    if lengths.len() != batch {
        return Err(format!(
            "{} lengths are given but the batch has {batch} rows: give one length per batch row",
            lengths.len()
        ));
    }
    match lengths.iter().enumerate().find(|(_, n)| **n > len) {
        Some((row, n)) => {
            Err(format!("batch row {row} has {n} tokens but there are only {len} {what}: a length is at most {len}"))
        }
        None => Ok(()),
    }
}
