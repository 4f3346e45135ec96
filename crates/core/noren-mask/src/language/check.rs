//! Checks of an atom's parameters that need no shape and no facts.

use crate::Error;
use crate::language::print::{Oversize, measure};
use crate::mask::basis::{LIMIT, check_name, check_spans, count, within};
use crate::mask::score::{Score, Spec};
use crate::mask::{Arm, Mask, Node};
use crate::sets::set::{Selector, Span};
use crate::syntax::{MAX_DEPTH, MAX_TEXT};

/// The maximum number of selectors `every n` in one `heads(...)`, `batch(...)` or `layers(...)`. The limit exists
/// because each pair of these selectors is compared.
const MAX_EVERY: usize = 256;

type Checked = Result<(), String>;

impl Mask {
    /// Checks the parameters of all atoms. For an invalid parameter, returns an error with the atom, the problem and a fix.
    ///
    /// Builders of masks accept any number, and [`bind`](Mask::bind) calls `check` first. The text of a mask is checked
    /// when it is parsed.
    ///
    /// ```
    /// use noren_mask::atoms::*;
    /// let error = (causal() & chunk(0)).check().unwrap_err();
    /// assert_eq!(error.to_string(), "`chunk(0)`: size is 0: give at least 1");
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Atom`] for an invalid parameter, and for a mask that is too long or too deeply nested.
    pub fn check(&self) -> Result<(), Error> {
        match measure(self) {
            Ok(()) => self
                .nodes()
                .into_iter()
                .try_for_each(|part| check_node(part.node()).map_err(|problem| Error::atom(abridged(part), problem))),
            Err(Oversize::Deep) => Err(Error::atom(
                "mask",
                format!(
                    "the mask has more than {MAX_DEPTH} levels of nesting: write `a - (b | c | d)` instead of `a - b - c - d`"
                ),
            )),
            Err(Oversize::Long) => Err(Error::atom(
                "mask",
                format!(
                    "the text of the mask is longer than {MAX_TEXT} bytes: give long lists as facts and name these facts in the mask"
                ),
            )),
        }
    }
}

impl Spec {
    /// Checks the mask, as [`Mask::check`] does, and the parameters of the scores.
    ///
    /// ```
    /// use noren_mask::{Score, atoms::*};
    /// let error = (causal() + Score::softcap(0.0)).check().unwrap_err();
    /// assert_eq!(error.to_string(), "`softcap(0)`: the cap is 0: give a finite number above 0");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Mask::check`], and [`Error::Atom`] for an invalid parameter of a score.
    pub fn check(&self) -> Result<(), Error> {
        self.mask.check()?;
        self.scores.iter().try_for_each(|score| check_score(score).map_err(|problem| Error::atom(score, problem)))
    }
}

/// Returns the text of the mask for messages, cut to 100 characters.
fn abridged(mask: &Mask) -> String {
    let text = mask.to_string();
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Checks the parameters of the atom in `node`, or the selectors of its `heads(...)`, `batch(...)` or `layers(...)`.
/// Does not check the masks inside `node`.
pub(crate) fn check_node(node: &Node) -> Checked {
    match node {
        Node::Atom(atom) => atom.check(),
        Node::Heads(arms) | Node::Batch(arms) | Node::Layers(arms) => check_arms(arms).map_err(|(problem, _)| problem),
        _ => Ok(()),
    }
}

/// Checks the parameters of a score.
pub(crate) fn check_score(score: &Score) -> Checked {
    match score {
        Score::Softcap { cap } if cap.get() > 0.0 && cap.get().is_finite() => Ok(()),
        Score::Softcap { cap } => Err(format!("the cap is {}: give a finite number above 0", cap.get())),
        Score::Alibi { slopes: Some(slopes) } => match slopes.iter().position(|slope| !slope.get().is_finite()) {
            Some(i) => Err(format!("slope {i} is {}: give a finite number", slopes[i].get())),
            None => Ok(()),
        },
        Score::Alibi { slopes: None } => Ok(()),
        Score::Bias { name } | Score::Relative { name } | Score::Soft { name } | Score::Sinks { name } => {
            check_name(name)
        }
    }
}

/// Checks the arms of `heads(...)`, `batch(...)` or `layers(...)`; an arm is a selector with its mask. The error is
/// (problem, index of the faulty arm). The index is `None` if the problem concerns all arms together.
pub(crate) fn check_arms(arms: &[Arm]) -> Result<(), (String, Option<usize>)> {
    if arms.is_empty() {
        return Err((
            "no mask is given, so no cell would be allowed: give at least one mask, or write `none`".into(),
            None,
        ));
    }
    let mut every = Vec::new();
    let mut spans = Vec::new();
    let mut other = None;
    for (arm, Arm { selector, .. }) in arms.iter().enumerate() {
        match selector {
            Selector::Spans(list) => {
                check_spans(list).map_err(|problem| (problem, Some(arm)))?;
                spans.extend(list.iter().filter(|s| s.end != Some(s.start)).map(|span| (*span, arm)));
            }
            Selector::Every { step, from } => {
                count("`every`", *step).and(within("`from`", *from)).map_err(|problem| (problem, Some(arm)))?;
                every.push((*step, *from, arm));
            }
            Selector::Else if other.is_some() => {
                return Err(("`else` is given twice: leave one out".into(), Some(arm)));
            }
            Selector::Else => other = Some(arm),
        }
    }
    if every.len() > MAX_EVERY {
        return Err((
            format!("{} selectors with `every` are given: at most {MAX_EVERY} are possible", every.len()),
            None,
        ));
    }
    match first_overlap(&mut spans, &every) {
        Some((first, second, index)) => {
            let (first, second) = (first.min(second), first.max(second));
            let problem = format!(
                "the selectors `{}` and `{}` both contain index {index}: give selectors that do not overlap",
                arms[first].selector, arms[second].selector
            );
            Err((problem, Some(second)))
        }
        None => Ok(()),
    }
}

/// Returns (arm, arm, index) for two arms whose selectors both contain this index, or `None` if no two selectors
/// overlap. An arm is given as its index in `heads(...)`, `batch(...)` or `layers(...)`. An entry of `spans` is (range
/// of indices, arm); an entry of `every` is (step, first index, arm).
fn first_overlap(spans: &mut [(Span, usize)], every: &[(usize, usize, usize)]) -> Option<(usize, usize, usize)> {
    spans.sort_by_key(|(span, arm)| (span.start, *arm));
    // The highest end of the spans so far, and its arm; an end of `None` means an open span.
    let mut reach: Option<(Option<usize>, usize)> = None;
    for &(span, arm) in spans.iter() {
        if let Some((end, holder)) = reach
            && end.is_none_or(|end| span.start < end)
        {
            if holder != arm {
                return Some((holder, arm, span.start));
            }
            if end.is_none() || span.end.is_some_and(|own| end.is_some_and(|end| own <= end)) {
                continue;
            }
        }
        reach = Some((span.end, arm));
    }
    for (i, &(step, from, arm)) in every.iter().enumerate() {
        for &(span, other) in spans.iter() {
            let at = span.start.max(from);
            let at = from + (at - from).div_ceil(step) * step;
            if span.contains(at) {
                return Some((other, arm, at));
            }
        }
        for &(other_step, other_from, other) in &every[..i] {
            if let Some(at) = first_common((step, from), (other_step, other_from)) {
                return Some((other, arm, at));
            }
        }
    }
    None
}

/// Returns the first number that is in both arithmetic progressions `a` and `b`, or `None` if they have no common
/// number. A progression is (step, first number).
fn first_common(a: (usize, usize), b: (usize, usize)) -> Option<usize> {
    let ((step_a, from_a), (step_b, from_b)) = ((a.0 as i128, a.1 as i128), (b.0 as i128, b.1 as i128));
    let (gcd, inverse) = extended_gcd(step_a, step_b);
    if (from_b - from_a) % gcd != 0 {
        return None;
    }
    // from_a + i * step_a = from_b modulo step_b; factors stay below 2^62, so products fit.
    let modulus = step_b / gcd;
    let i = ((from_b - from_a) / gcd).rem_euclid(modulus) * inverse.rem_euclid(modulus) % modulus;
    let common = from_a + i * step_a;
    let period = step_a * modulus;
    let short = from_a.max(from_b) - common;
    let first = if short > 0 { common + (short + period - 1) / period * period } else { common };
    usize::try_from(first).ok().filter(|first| *first <= LIMIT)
}

/// Returns (`gcd`, `x`): the greatest common divisor of `a` and `b`, and a number `x` with `a * x = gcd` modulo `b`.
fn extended_gcd(a: i128, b: i128) -> (i128, i128) {
    let (mut r, mut x) = ((a, b), (1, 0));
    while r.1 != 0 {
        let quotient = r.0 / r.1;
        r = (r.1, r.0 - quotient * r.1);
        x = (x.1, x.0 - quotient * x.1);
    }
    (r.0, x.0)
}
