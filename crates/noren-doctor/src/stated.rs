//! A mask against an expression that says all: nothing is guessed.

use super::align::Alignment;
use super::decode::decode;
use super::patient::Patient;
use super::report::{Certainty, Finding, Report, SHOWN};
use super::values::Values;
use super::verdict::{Outcome, decide};
use crate::recognise::recognise;
use noren_mask::Error;
use noren_mask::Keep;
use noren_mask::bits::count;

/// Holds the mask against an expression that says all.
pub(super) fn against_expression(
    mask: &Values,
    patient: &Patient,
    alignment: &Alignment,
    meant: &Keep,
    text: &str,
    report: &mut Report,
) -> Result<(), Error> {
    let decoded = decode(mask, alignment.dims, &patient.context, alignment.keys_only);
    report.findings.extend(decoded.findings.iter().cloned());
    let [batch, heads, q_len, kv_len] = meant.dims();
    let own = alignment.dims;
    let fits = |axis: usize, n: usize| own[axis] == 1 || n == 1 && axis < 2 || own[axis] == n;
    if !(fits(0, batch) && fits(1, heads) && fits(2, q_len) && fits(3, kv_len)) {
        return Err(Error::fact(
            "mask",
            format!("shape {:?} does not fit the declared mask's {:?}", mask.shape(), meant.dims()),
        ));
    }
    let dims = [batch.max(own[0]), heads.max(own[1]), q_len, kv_len];
    let (given, meant) = (decoded.keep.expand(dims), meant.expand(dims));
    let mut wrong = 0;
    let mut first = Vec::new();
    for b in 0..dims[0] {
        for h in 0..dims[1] {
            for i in 0..q_len {
                let row: Vec<u64> = given.row(b, h, i).iter().zip(meant.row(b, h, i)).map(|(g, m)| g ^ m).collect();
                wrong += count(&row);
                let room = SHOWN - first.len();
                first.extend(noren_mask::bits::ones(&row).take(room).map(|k| [b, h, i, k]));
            }
        }
    }
    let class = nearest_class(&given, &meant);
    if wrong > 0 {
        let mut finding = Finding::of(class, Certainty::Likely, format!("{wrong} cells differ from `{text}`"));
        (finding.wrong_cells, finding.first_cells) = (wrong, first);
        finding.repair = (class != "unexplained_difference").then(|| text.to_string());
        report.findings.push(finding);
    }
    report.description =
        format!("{} {:?}, {}: {}", mask.dtype().name(), mask.shape(), decoded.reading, recognise(&given).expression());
    report.intended = Some(text.to_string());
    // A repair only where a named mistake explains every wrong cell; the declared mask itself is `expected`.
    report.fixed = (wrong == 0 || class != "unexplained_difference").then(|| meant.clone());
    report.expected = Some(meant);
    report.given = Some(given);
    report.rank();
    report.compared = dims.iter().map(|&n| n as u64).product();
    report.unknown.extend(patient.context.left_out.iter().cloned());
    let outcome = Outcome { fits: wrong == 0, ..Outcome::default() };
    decide(report, &outcome, Some(&format!("`{text}`, {}", decoded.reading)));
    Ok(())
}

/// The mistake made on a whole array that turns one into the other, if any.
fn nearest_class(given: &Keep, meant: &Keep) -> &'static str {
    let [batch, heads, q_len, kv_len] = meant.dims();
    let inverted = || {
        given.count() + meant.count() == (batch * heads * q_len * kv_len) as u64
            && given.cells().zip(meant.cells()).all(|(g, m)| g != m)
    };
    let first_row =
        || (0..batch).all(|b| (0..heads).all(|h| (0..q_len).all(|i| given.row(b, h, i) == meant.row(0, h, i))));
    match () {
        () if inverted() => "inverted_polarity",
        () if q_len == kv_len && *given == meant.transposed() => "broadcast_wrong_axis",
        () if batch > 1 && first_row() => "batch_row_wrong",
        () => "unexplained_difference",
    }
}
