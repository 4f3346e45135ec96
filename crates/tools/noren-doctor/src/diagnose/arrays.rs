//! Arrays beside the mask that have several readings, such as a `padding_mask`: the diagnosis is made for each of them.

use crate::intent::known::{Companions, IDS, LENGTHS, PADDING, SEGMENTS};
use crate::read::input::Input;
use crate::read::kinds::Role;
use crate::read::values::Values;
use crate::report::{Certainty, Finding, Open, Report, Severity, Verdict};
use noren_mask::batch::{Meaning, Options, Reading, contradiction, meaning, read};
use noren_mask::{Error, Facts, Side};
use std::collections::BTreeSet;

/// The largest number of combinations of readings that are tried.
const MOST_READINGS: usize = 8;

/// Returns the report on `input`, made by `run` for each reading of the arrays beside the mask. If the readings lead to different verdicts,
/// the verdict is open, and the report asks which of them is right.
pub(crate) fn each(input: &Input, run: impl Fn(&Input) -> Result<Report, Error>) -> Result<Report, Error> {
    for (name, values) in &input.companions {
        if matches!(meaning(name), Some(Meaning::Documents | Meaning::Lengths)) {
            read(&[values.entry(name)], &Options::default())?;
        }
    }
    // an input with one reading of each array, and a sentence for the arrays with several
    let mut readings = vec![(input.clone(), String::new())];
    let mut asked = Vec::new();
    let mut advice = BTreeSet::new();
    if let Some(pad) = input.context.pad_id.filter(|pad| may_end_texts(input, *pad)) {
        let mut other = input.clone();
        other.context.eos_id = Some(pad);
        readings[0].1 = format!("`input_ids`: {pad} is padding only: ");
        readings.push((other, format!("`input_ids`: {pad} also ends texts: ")));
        asked.push("`input_ids`".to_string());
        advice.insert("declare eos_token_id");
    }
    for name in input.companions.keys() {
        let found = of_array(input, name);
        if found.is_empty() || readings.len() * found.len() > MOST_READINGS {
            continue;
        }
        if found.len() > 1 {
            asked.push(format!("`{name}`"));
            advice.insert(
                "give the padding as attention_mask (1 for a token) or key_padding_mask (1 for padding), and documents as numbers from 1",
            );
        }
        let read = |(input, said): &(Input, String), (values, says): &(Values, String)| {
            let input = input.clone().companion(name, values.clone());
            (input, if found.len() > 1 { format!("{said}`{name}`: {says}: ") } else { said.clone() })
        };
        readings = readings.iter().flat_map(|one| found.iter().map(move |values| read(one, values))).collect();
    }
    let mut reports = readings.iter().map(|(input, _)| run(input)).collect::<Result<Vec<_>, _>>()?;
    let at = reports.iter().position(|report| !report.faulty()).unwrap_or(0);
    let answer = |(report, (_, said)): (&Report, &(Input, String))| {
        format!("{said}{}: {}", report.verdict.words(), report.sentence)
    };
    let answers: Vec<String> = reports.iter().zip(&readings).map(answer).collect();
    let one_verdict = reports.iter().all(|report| report.verdict == reports[at].verdict);
    let one_class = reports.iter().all(|report| report.classes() == reports[at].classes());
    let one_repair = reports.iter().all(|report| report.fixed == reports[at].fixed);
    let mut report = reports.swap_remove(at);
    if !one_repair {
        (report.fixed, report.repair) = (None, None);
        report.findings.iter_mut().for_each(|finding| finding.repair = None);
    }
    if !one_verdict {
        let question = format!(
            "the verdict depends on how {} is read: {}",
            asked.join(" and "),
            Vec::from_iter(advice).join("; ")
        );
        report.open.insert(0, Open { readings: answers, question: question.clone(), between: false });
        report.findings.retain(|finding| finding.severity == Severity::Note);
        (report.verdict, report.sentence) = (Verdict::CannotTell, question);
    } else if !one_class {
        report.findings.iter_mut().for_each(|f| f.certainty = f.certainty.min(Certainty::Likely));
        report.unknown.push(format!("which reading is meant: {}", answers.join("; ")));
    }
    if let Some(problem) = contradiction_of(input).filter(|_| !report.faulty()) {
        let says = format!("the given arrays contradict each other: {problem}");
        (report.verdict, report.sentence) = (Verdict::Faulty, says.clone());
        report.findings.insert(0, Finding::of("stale_or_bucketed_mask", Certainty::Likely, says));
    }
    Ok(report)
}

/// Returns true if no declaration states which id ends texts, and it may be the padding id `pad`: one is between tokens, or another array
/// calls one a token in several rows.
fn may_end_texts(input: &Input, pad: i64) -> bool {
    let beside = Companions(&input.companions);
    let Some(ids) = beside.rows(IDS).filter(|_| input.context.eos_id.is_none()) else { return false };
    let inside = |ids: &Vec<i64>| ids.split(|id| *id == pad).filter(|part| !part.is_empty()).count() > 1;
    let tokens = |names: &[&str]| {
        let rows = beside.rows(names).filter(|rows| rows.len() == ids.len() && rows[0].len() == ids[0].len());
        let drops = beside.named(names).is_some_and(|(name, _)| meaning(name) == Some(Meaning::Drop));
        let shows = |own: i64, id: i64| id == pad && (own > 0) != drops;
        let is_token = |(own, ids): (&Vec<i64>, &Vec<i64>)| own.iter().zip(ids).any(|(own, id)| shows(*own, *id));
        rows.is_some_and(|rows| rows.iter().zip(&ids).filter(|row| is_token(*row)).count() > 1)
    };
    let count = |ids: &Vec<i64>| ids.iter().filter(|id| **id != pad).count() as i64;
    let longer = |lengths: Vec<i64>| lengths.iter().zip(&ids).filter(|(own, ids)| **own > count(ids)).count() > 1;
    ids.iter().any(inside) || tokens(PADDING) || tokens(SEGMENTS) || beside.list(LENGTHS).is_some_and(longer)
}

/// Returns the contradiction between the arrays that give the padding or the documents of the same tokens.
fn contradiction_of(input: &Input) -> Option<Error> {
    let tables = [Meaning::Keep, Meaning::Drop, Meaning::Padding, Meaning::Segments, Meaning::SegmentsFromZero];
    let all = input.companions.iter().filter_map(|(name, values)| Some((meaning(name)?, name, values)));
    let all: Vec<_> = all.filter(|_| input.context.role != Role::Cross).collect();
    let shape = all.iter().find(|(own, ..)| tables.contains(own))?.2.shape();
    let rows = |shape: &[usize]| if shape.len() > 1 { shape[0] } else { 1 };
    let same = |(own, _, values): &&(Meaning, &String, &Values)| match own {
        Meaning::Lengths => values.len() == rows(shape),
        Meaning::Documents => rows(values.shape()) == rows(shape),
        own => tables.contains(own) && values.shape() == shape,
    };
    let entries: Vec<_> = all.iter().filter(same).map(|(_, name, values)| values.entry(name)).collect();
    let without = |own: Meaning| -> Vec<_> {
        entries.iter().filter(|entry| entry.name.as_deref().and_then(meaning) != Some(own)).cloned().collect()
    };
    let right = contradiction(&entries, &Options::default())?;
    // Lengths do not state the side of the padding: the last tokens of each row may be meant.
    if input.context.side != Some(Side::Right)
        && contradiction(&without(Meaning::Lengths), &Options::default()).is_none()
    {
        let lengths = entries.iter().find(|entry| entry.name.as_deref().and_then(meaning) == Some(Meaning::Lengths))?;
        let lengths: Vec<usize> = lengths.values.iter().map(|n| *n as usize).collect();
        let known = Facts::new().lengths(lengths).side(Side::Left);
        let left = Options { known, ..Options::default() };
        read(&without(Meaning::Lengths), &left).err()?;
    }
    Some(right)
}

/// Returns the readings of the array `name`: 1 for a token in an array of padding, and 0 only for padding in document numbers; with a
/// sentence for each. Empty if its values need no reading.
fn of_array(input: &Input, name: &str) -> Vec<(Values, String)> {
    let values = &input.companions[name];
    let own = meaning(name.trim_start_matches("encoder_").trim_start_matches("decoder_"));
    let numbers = matches!(own, Some(Meaning::Segments | Meaning::SegmentsFromZero));
    let (Some(own), Some(&width)) = (own, values.shape().last()) else { return Vec::new() };
    if !numbers && !matches!(own, Meaning::Drop | Meaning::Padding) || values.is_empty() {
        return Vec::new();
    }
    // A `key_padding_mask` in which a row has no tokens is inverted.
    let read_as = if own == Meaning::Drop { Meaning::Padding.names()[0] } else { own.names()[0] };
    let lengths = &input.context.lengths;
    let declared = Values::ints(&[lengths.len()], lengths.clone()).ok().filter(|lengths| !lengths.is_empty());
    let mut all = vec![values.entry(read_as)];
    all.extend(declared.map(|lengths| lengths.entry(Meaning::Lengths.names()[0])));
    let of_tokens = |name: &str| matches!(meaning(name), Some(Meaning::Keep | Meaning::Tokens | Meaning::Lengths));
    let beside = input.companions.iter().filter(|(other, _)| *other != name && of_tokens(other));
    all.extend(beside.map(|(other, values)| values.entry(other)));
    let options = Options { pad_id: input.context.pad_id, ..Options::default() };
    let found = read(&all, &options).or_else(|_| read(&all[..1], &Options::default()));
    let mut found: Vec<Reading> = found.map(|readings| readings.found).unwrap_or_default();
    let is_token = |reading: &Reading, i: usize| reading.is_token(i / width, i % width);
    if own == Meaning::Drop && found.len() > 1 {
        found.retain(|reading| (0..values.len()).all(|i| (values.at(i) != 0.0) != is_token(reading, i)));
    }
    found.sort_by_key(|reading| (0..values.len()).filter(|i| !is_token(reading, *i)).count());
    let canonical = |reading: &Reading| {
        let number = |i: usize| values.at(i) as i64;
        let from_zero = numbers && (0..values.len()).any(|i| number(i) == 0 && is_token(reading, i));
        let cells = (0..values.len()).map(|i| match numbers {
            true if number(i) <= 0 && !is_token(reading, i) => 0,
            true => number(i) + i64::from(from_zero),
            false => i64::from(is_token(reading, i)),
        });
        let says = reading.says.iter().find(|(said, _)| said == read_as).map(|(_, says)| says.clone());
        Some((Values::ints(values.shape(), cells.collect()).ok()?, says.unwrap_or_default()))
    };
    let mut readings: Vec<(Values, String)> = found.iter().filter_map(canonical).collect();
    readings.dedup_by(|a, b| a.0 == b.0);
    readings
}
