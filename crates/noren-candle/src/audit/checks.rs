//! Makes trials (comparisons of two calls of a model) for the checks that `noren_flow::audit` lists, for models that
//! read tokens.

use super::lab::{Input, Lab, Place, Trial, Trials, broken};
use super::scan;
use crate::error::Result;
use crate::model::Batch;
use noren::Side;
use noren_flow::audit::{CHECKS, Change, Check, PADS};

/// Returns the checks in the list of `noren_flow::audit` that this audit can run, in the order of the report. Each
/// check comes with the function that makes its trials (comparisons of two calls of the model).
pub(super) fn battery() -> impl Iterator<Item = (&'static Check, fn(&Lab<'_>) -> Trials)> {
    CHECKS.iter().filter_map(|check| Some((check, maker(check.name)?)))
}

fn maker(name: &str) -> Option<fn(&Lab<'_>) -> Trials> {
    Some(match name {
        "prefix" => |lab| changed(lab, "prefix"),
        "reach" => scan::reach,
        "liveness" => liveness,
        "window" => |lab| changed(lab, "window"),
        "padding_right" => |lab| padding(lab, Side::Right),
        "padding_left" => |lab| padding(lab, Side::Left),
        "mask_liveness" => mask_liveness,
        "redaction" => redaction,
        "lengths" => scan::lengths,
        "batch" => batch,
        "documents" => documents,
        "cache" => |lab| cached(lab, "cache", usize::MAX),
        "chunks" => |lab| cached(lab, "chunks", 7),
        _ => return None,
    })
}

/// Returns one pair for each token index in `at`. A pair compares the outputs of this token in row 0 of the two calls.
fn stay(at: impl IntoIterator<Item = usize>) -> Vec<(Place, Place)> {
    at.into_iter().map(|at| ((0, at), (0, at))).collect()
}

/// Returns the trials (comparisons of two calls of the model) of a check that only changes tokens. The check with the
/// name `check` in `noren_flow::audit` defines the changed tokens and the compared outputs.
fn changed(lab: &Lab<'_>, check: &str) -> Trials {
    let changes = match lab.changes(check) {
        Ok(changes) => changes,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    let base = lab.input(0)?;
    let trial = |change: Change| {
        let other = lab.with_main(&base, Batch::new(vec![lab.changed(&base.main().ids()[0], &change.tokens)])?);
        Ok(Trial::of(change, base.clone(), other))
    };
    changes.into_iter().map(trial).collect::<Result<_>>().map(Ok)
}

fn liveness(lab: &Lab<'_>) -> Trials {
    let found = changed(lab, "liveness")?;
    if !lab.crosses() {
        return Ok(found);
    }
    let mut trials = found.unwrap_or_default();
    let base = lab.input(0)?;
    for token in [0, lab.length - 1] {
        let text = Batch::new(vec![lab.changed(&base.text.ids()[0], &[token])])?;
        let (base, other) = (base.clone(), Input { text, decoder: base.decoder.clone() });
        let broken = broken("liveness", 0, &[&format!("encoder token {token}")]);
        let what = format!("token {token} of the encoder is changed");
        trials.push(Trial { what, base, other, pairs: stay(0..lab.length), broken, moved: true, given: None });
    }
    Ok(Ok(trials))
}

/// Returns the pairs of outputs that must be equal: each token of a text alone, and the same token of the text with
/// padding on `side`. Padding on the left moves a token from index `i` to `i + PADS`. Outputs of a decoder that reads
/// an encoder are not moved, because only the encoder's text is padded.
fn shifted(lab: &Lab<'_>, side: Side) -> Vec<(Place, Place)> {
    let by = if side == Side::Left && !lab.crosses() { PADS } else { 0 };
    (0..lab.length).map(|at| ((0, at), (0, at + by))).collect()
}

fn padding(lab: &Lab<'_>, side: Side) -> Trials {
    let base = lab.input(0)?;
    let check = if side == Side::Left { "padding_left" } else { "padding_right" };
    let padding = if lab.crosses() { "the encoder's padding" } else { "padding" };
    let trials = (0..2).map(|kind| {
        let text = lab.padded(&base.text.ids()[0], side, kind)?;
        let what = format!("{PADS} padding tokens of id {} are added", lab.pad(kind));
        let (base, other) = (base.clone(), Input { text, decoder: base.decoder.clone() });
        let broken = broken(check, 0, &[padding]);
        Ok(Trial { what, base, other, pairs: shifted(lab, side), broken, moved: false, given: None })
    });
    Ok(Ok(trials.collect::<Result<_>>()?))
}

fn mask_liveness(lab: &Lab<'_>) -> Trials {
    let gone = lab.length / 2;
    let base = lab.input(0)?;
    let ids = &base.text.ids()[0];
    let masked = Input { text: lab.masked(ids, |at| at != gone)?, decoder: base.decoder.clone() };
    let rows: Vec<usize> = match lab.crosses() {
        true => (0..lab.length).collect(),
        false => (0..lab.length).filter(|q| *q != gone && lab.direct.get([0, 0, *q, gone])).collect(),
    };
    if rows.is_empty() {
        return Ok(Err("no output reads a token that could be masked".into()));
    }
    let what = format!("the attention mask hides token {gone} in the first of two calls");
    let mask = if lab.crosses() { "the encoder's mask" } else { "the mask" };
    Ok(Ok(vec![Trial {
        what,
        base: masked,
        other: base,
        pairs: stay(rows),
        broken: broken("mask_liveness", 0, &[mask]),
        moved: true,
        given: None,
    }]))
}

fn redaction(lab: &Lab<'_>) -> Trials {
    let changes = match lab.changes("redaction") {
        Ok(changes) => changes,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    let input = lab.input(0)?;
    let ids = &input.text.ids()[0];
    let trial = |change: Change| {
        let with = |ids: &[u32]| -> Result<Input> {
            Ok(Input { text: lab.masked(ids, |at| !change.tokens.contains(&at))?, decoder: input.decoder.clone() })
        };
        let (base, other) = (with(ids)?, with(&lab.changed(ids, &change.tokens))?);
        let trial = Trial::of(change, base, other);
        // Redacted tokens are in the encoder, so all outputs of the decoder are compared.
        Ok(if lab.crosses() { Trial { pairs: stay(0..lab.length), ..trial } } else { trial })
    };
    changes.into_iter().map(trial).collect::<Result<_>>().map(Ok)
}

fn batch(lab: &Lab<'_>) -> Trials {
    const ROWS: usize = 3;
    let broken = broken("batch", 0, &[]);
    let alone = lab.input(0)?;
    let own = alone.text.ids()[0].clone();
    let mut trials = Vec::new();
    for side in [Side::Left, Side::Right] {
        for mates in [lab.length, lab.length - 7, lab.length + 7] {
            for row in 0..ROWS {
                let at = |i: usize, own: &Vec<u32>, mate: Vec<u32>| if i == row { own.clone() } else { mate };
                let texts: Vec<_> = (0..ROWS).map(|i| at(i, &own, lab.tokens(mates, 1 + i as u32))).collect();
                let text = Batch::padded(&texts, lab.pad(0), side)?;
                let by = if side == Side::Left && !lab.crosses() { text.len() - lab.length } else { 0 };
                let decoder = match &alone.decoder {
                    Some(decoder) => {
                        let mate = |i| at(i, &decoder.ids()[0], lab.tokens(lab.length, 7 + i as u32));
                        Some(Batch::new((0..ROWS).map(mate).collect())?)
                    }
                    None => None,
                };
                let pairs = (0..lab.length).map(|at| ((0, at), (row, at + by))).collect();
                let what = format!("a text runs alone, and then in row {row} of a batch with texts of {mates} tokens");
                let other = Input { text, decoder };
                let (base, broken) = (alone.clone(), broken.clone());
                trials.push(Trial { what, base, other, pairs, broken, moved: false, given: None });
            }
        }
    }
    Ok(Ok(trials))
}

fn documents(lab: &Lab<'_>) -> Trials {
    if lab.crosses() {
        return Ok(Err("the model has an encoder and a decoder, so texts cannot be packed".into()));
    }
    let first = lab.length / 3;
    let texts = [lab.tokens(first, 3), lab.tokens(lab.length - first, 4)];
    let packed = Input::of(Batch::packed(&texts)?);
    let broken = broken("documents", 0, &["one document"]);
    let mut trials = Vec::new();
    for (i, rest) in [(0, first..lab.length), (1, 0..first)] {
        let mut changed = texts.clone();
        changed[i] = lab.changed(&texts[i], &(0..texts[i].len()).collect::<Vec<_>>());
        let (what, base, broken) = (format!("document {} is changed", i + 1), packed.clone(), broken.clone());
        let other = Input::of(Batch::packed(&changed)?);
        trials.push(Trial { what, base, other, pairs: stay(rest), broken, moved: false, given: None });
    }
    let base = Input::of(Batch::new(vec![texts[1].clone()])?);
    let pairs = (0..texts[1].len()).map(|at| ((0, at), (0, at + first))).collect();
    let what = "the second document runs alone, and then packed after the first document".into();
    trials.push(Trial { what, base, other: packed, pairs, broken, moved: false, given: None });
    Ok(Ok(trials))
}

/// Returns a trial that compares the logits of the same tokens in two computations. One computation is a generation
/// with a cache, in which one pass reads at most `chunk` tokens of the prompt. The other computation is a single pass
/// without a cache. `check` is the name of the check.
fn cached(lab: &Lab<'_>, check: &str, chunk: usize) -> Trials {
    const NEW: usize = 5;
    let Some(steps) = &lab.subject.steps else {
        return Ok(Err(
            "the model does not generate text with a cache of keys and values, which this check compares".into()
        ));
    };
    let prompt = lab.tokens(lab.length - NEW, 5);
    let (made, logits) = steps(&prompt, NEW, chunk.min(prompt.len()))?;
    let read = [&prompt[..], &made[..made.len().saturating_sub(1)]].concat();
    let base = Input::of(Batch::new(vec![read])?);
    let pairs = (0..logits.len()).map(|i| ((0, prompt.len() - 1 + i), (0, i))).collect();
    let what = format!(
        "{NEW} tokens are generated one by one, after a prompt of {} tokens in chunks of {}",
        prompt.len(),
        chunk.min(prompt.len())
    );
    let (other, given) = (base.clone(), Some(vec![logits]));
    let broken = broken(check, 0, &[]);
    Ok(Ok(vec![Trial { what, base, other, pairs, broken, moved: false, given }]))
}
