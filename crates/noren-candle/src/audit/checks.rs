//! The battery: what is changed, and which outputs must stay.

use super::lab::{Input, Lab, PADS, Place, Trial, Trials};
use super::scan;
use crate::error::Result;
use crate::model::Batch;
use noren::Side;

/// A check.
pub(super) struct Test {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) make: fn(&Lab<'_>) -> Trials,
}

pub(super) const BATTERY: [Test; 13] = [
    Test { name: "prefix", title: "prefix invariance", make: prefix },
    Test { name: "reach", title: "every token by itself", make: scan::reach },
    Test { name: "liveness", title: "liveness", make: liveness },
    Test { name: "window", title: "window reach", make: window },
    Test { name: "padding_right", title: "padding invariance (right)", make: |lab| padding(lab, Side::Right) },
    Test { name: "padding_left", title: "padding invariance (left)", make: |lab| padding(lab, Side::Left) },
    Test { name: "mask_liveness", title: "mask liveness", make: mask_liveness },
    Test { name: "redaction", title: "redaction swap", make: redaction },
    Test { name: "lengths", title: "every length", make: scan::lengths },
    Test { name: "batch", title: "batch-mate invariance", make: batch },
    Test { name: "documents", title: "document isolation", make: documents },
    Test { name: "cache", title: "cache against one pass", make: |lab| cached(lab, usize::MAX) },
    Test { name: "chunks", title: "chunked prefill against one pass", make: |lab| cached(lab, 7) },
];

/// The same places of row 0 in both calls.
fn stay(at: impl IntoIterator<Item = usize>) -> Vec<(Place, Place)> {
    at.into_iter().map(|at| ((0, at), (0, at))).collect()
}

/// Changes tokens of the sequence; outputs that may not read any of them stay.
fn swap(lab: &Lab<'_>, at: &[usize], what: String, broken: &'static str) -> Result<Option<Trial>> {
    let reads = |q: usize| at.iter().any(|k| lab.reach.get([0, 0, q, *k]));
    let safe: Vec<usize> = (0..lab.length).filter(|q| !at.contains(q) && !reads(*q)).collect();
    if safe.is_empty() {
        return Ok(None);
    }
    let base = lab.input(0)?;
    let other = lab.with_main(&base, Batch::new(vec![lab.changed(&base.main().ids()[0], at)])?);
    Ok(Some(Trial { what, base, other, pairs: stay(safe), broken, moved: false, given: None }))
}

fn prefix(lab: &Lab<'_>) -> Trials {
    let broken = "outputs depend on tokens that come after them or are not theirs to read";
    let mut trials = Vec::new();
    for cut in [1, lab.length / 2, 64].into_iter().filter(|cut| *cut < lab.length) {
        let at: Vec<usize> = (cut..lab.length).collect();
        trials.extend(swap(lab, &at, format!("tokens {cut}.. changed"), broken)?);
    }
    Ok(if trials.is_empty() { Err("every output may read every token".into()) } else { Ok(trials) })
}

fn window(lab: &Lab<'_>) -> Trials {
    let broken = "outputs depend on tokens that lie beyond all windows";
    let trial = swap(lab, &[0, 1, 2], "tokens 0..3 changed".into(), broken)?;
    let beyond = trial.filter(|trial| trial.pairs.iter().any(|((_, at), _)| *at > 2));
    Ok(beyond.map(|trial| vec![trial]).ok_or("through all layers every output reaches the beginning".into()))
}

fn liveness(lab: &Lab<'_>) -> Trials {
    let mut trials = Vec::new();
    let base = lab.input(0)?;
    for token in [0, lab.length / 2, lab.length - 1] {
        let rows: Vec<usize> = (0..lab.length).filter(|q| *q != token && lab.direct.get([0, 0, *q, token])).collect();
        let other = lab.with_main(&base, Batch::new(vec![lab.changed(&base.main().ids()[0], &[token])])?);
        let broken = "outputs that should read a token do not";
        if !rows.is_empty() {
            let (what, base) = (format!("token {token} changed"), base.clone());
            trials.push(Trial { what, base, other, pairs: stay(rows), broken, moved: true, given: None });
        }
        if lab.crosses() {
            let text = Batch::new(vec![lab.changed(&base.text.ids()[0], &[token])])?;
            let other = Input { text, decoder: base.decoder.clone() };
            let (what, base) = (format!("token {token} of the encoder changed"), base.clone());
            trials.push(Trial { what, base, other, pairs: stay(0..lab.length), broken, moved: true, given: None });
        }
    }
    Ok(if trials.is_empty() { Err("no output reads another token in every layer".into()) } else { Ok(trials) })
}

/// Where the outputs of a text stand when it is padded; those of a decoder stay where they are.
fn shifted(lab: &Lab<'_>, side: Side) -> Vec<(Place, Place)> {
    let by = if side == Side::Left && !lab.crosses() { PADS } else { 0 };
    (0..lab.length).map(|at| ((0, at), (0, at + by))).collect()
}

fn padding(lab: &Lab<'_>, side: Side) -> Trials {
    let base = lab.input(0)?;
    let trials = (0..2).map(|kind| {
        let text = lab.padded(&base.text.ids()[0], side, kind)?;
        let what = format!("{PADS} padding tokens of id {}", lab.pad(kind));
        let (base, other) = (base.clone(), Input { text, decoder: base.decoder.clone() });
        let broken = "padding changes outputs of real tokens";
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
    let what = format!("token {gone} masked out, and not");
    Ok(Ok(vec![Trial {
        what,
        base: masked,
        other: base,
        pairs: stay(rows),
        broken: "the mask has no effect",
        moved: true,
        given: None,
    }]))
}

fn redaction(lab: &Lab<'_>) -> Trials {
    let gone = [lab.length / 2, lab.length / 2 + 1];
    let input = lab.input(0)?;
    let with = |ids: &[u32]| -> Result<Input> {
        Ok(Input { text: lab.masked(ids, |at| !gone.contains(&at))?, decoder: input.decoder.clone() })
    };
    let ids = &input.text.ids()[0];
    let (base, other) = (with(ids)?, with(&lab.changed(ids, &gone))?);
    let rest = (0..lab.length).filter(|at| lab.crosses() || !gone.contains(at));
    let what = format!("masked tokens {} and {} changed", gone[0], gone[1]);
    let broken = "outputs depend on tokens that are masked out";
    Ok(Ok(vec![Trial { what, base, other, pairs: stay(rest), broken, moved: false, given: None }]))
}

fn batch(lab: &Lab<'_>) -> Trials {
    const ROWS: usize = 3;
    let broken = "outputs depend on the other texts of the batch";
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
                let what = format!("alone, and in row {row} among texts of {mates} tokens");
                let other = Input { text, decoder };
                trials.push(Trial { what, base: alone.clone(), other, pairs, broken, moved: false, given: None });
            }
        }
    }
    Ok(Ok(trials))
}

fn documents(lab: &Lab<'_>) -> Trials {
    if lab.crosses() {
        return Ok(Err("texts are packed for models with one stack".into()));
    }
    let first = lab.length / 3;
    let texts = [lab.tokens(first, 3), lab.tokens(lab.length - first, 4)];
    let packed = Input::of(Batch::packed(&texts)?);
    let broken = "one document reads another";
    let mut trials = Vec::new();
    for (i, rest) in [(0, first..lab.length), (1, 0..first)] {
        let mut changed = texts.clone();
        changed[i] = lab.changed(&texts[i], &(0..texts[i].len()).collect::<Vec<_>>());
        let (what, base) = (format!("document {i} changed"), packed.clone());
        let other = Input::of(Batch::packed(&changed)?);
        trials.push(Trial { what, base, other, pairs: stay(rest), broken, moved: false, given: None });
    }
    let base = Input::of(Batch::new(vec![texts[1].clone()])?);
    let pairs = (0..texts[1].len()).map(|at| ((0, at), (0, at + first))).collect();
    let what = "the second document alone, and packed".into();
    trials.push(Trial { what, base, other: packed, pairs, broken, moved: false, given: None });
    Ok(Ok(trials))
}

/// Logits by which tokens are chosen through a cache, against those of one pass over the same tokens.
fn cached(lab: &Lab<'_>, chunk: usize) -> Trials {
    const NEW: usize = 5;
    let Some(steps) = &lab.subject.steps else {
        return Ok(Err("the model does not continue texts through a cache that is known".into()));
    };
    let prompt = lab.tokens(lab.length - NEW, 5);
    let (made, logits) = steps(&prompt, NEW, chunk.min(prompt.len()))?;
    let read = [&prompt[..], &made[..made.len().saturating_sub(1)]].concat();
    let base = Input::of(Batch::new(vec![read])?);
    let pairs = (0..logits.len()).map(|i| ((0, prompt.len() - 1 + i), (0, i))).collect();
    let what = format!("{NEW} tokens one by one, after {} in chunks of {}", prompt.len(), chunk.min(prompt.len()));
    let (other, given) = (base.clone(), Some(vec![logits]));
    let broken = "outputs through the cache are not those of one pass";
    Ok(Ok(vec![Trial { what, base, other, pairs, broken, moved: false, given }]))
}
