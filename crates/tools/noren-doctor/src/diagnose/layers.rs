//! Diagnoses an array with one mask per layer. Each mask is compared with the kind that is declared for its layer.

use crate::read::context::Context;
use crate::read::input::Input;
use crate::read::values::Values;
use crate::report::{Certainty, Finding, Report, Verdict};
use noren_mask::Error;
use noren_mask::Keep;

/// Returns the report on an array with one mask per layer, or `None` if the given array has no dimension of layers.
pub(crate) fn diagnose(input: &Input) -> Option<Result<Report, Error>> {
    let kinds = &input.context.layer_kinds;
    let mask = input.mask.as_ref()?;
    let batch =
        input.context.batch.or_else(|| input.companions.get("input_ids").and_then(|v| v.shape().first().copied()));
    let stacked =
        kinds.len() > 1 && mask.shape().len() >= 3 && mask.shape()[0] == kinds.len() && batch != Some(kinds.len());
    stacked.then(|| each(input))
}

fn each(input: &Input) -> Result<Report, Error> {
    let kinds = &input.context.layer_kinds;
    let Some(mask) = &input.mask else { return crate::diagnose::diagnose(input) };
    let mut reports = Vec::with_capacity(kinds.len());
    for (layer, name) in kinds.iter().enumerate() {
        reports.push(of_layer(input, mask, layer, name)?);
    }
    let faulty: Vec<usize> = (0..kinds.len()).filter(|&l| reports[l].faulty()).collect();
    let mut all = reports[faulty.first().copied().unwrap_or(0)].clone();
    all.description = format!("{} layers; layer 0: {}", kinds.len(), reports[0].description);
    for (layer, report) in reports.iter().enumerate() {
        for finding in report.findings.iter().filter(|_| Some(&layer) != faulty.first()) {
            let known = all.findings.iter_mut().find(|f| f.class == finding.class && f.severity == finding.severity);
            match known {
                Some(known) => known.wrong_cells += finding.wrong_cells,
                None => all.findings.push(finding.clone()),
            }
        }
    }
    if let Some(text) = swapped(input, mask, &faulty)? {
        all.findings.insert(0, Finding::of("window_missing_or_wrong_layer", Certainty::Certain, text));
    } else if !faulty.is_empty() && kinds.len() > 1 {
        let list: Vec<String> = faulty.iter().map(usize::to_string).collect();
        all.unknown.push(format!(
            "the masks of layers {} (of {} layers) are faulty; the cells and pictures in the report are those of layer {}",
            list.join(", "),
            kinds.len(),
            faulty[0]
        ));
    }
    judge(&mut all, &reports);
    all.given = stacked(reports.iter().map(|r| r.given.as_ref()));
    all.fixed = stacked(reports.iter().map(|r| r.fixed.as_ref()));
    let own = |(layer, report): (usize, &Report)| match report.faulty() {
        true => report.repair.clone(),
        false => mask.slice(layer).ok(),
    };
    let parts: Option<Vec<_>> = reports.iter().enumerate().map(own).collect();
    all.repair = parts.filter(|_| !faulty.is_empty()).and_then(|parts| Values::stacked(&parts));
    Ok(all)
}

/// Sets the verdict of the report `all` from `reports`, the reports of the layers. The verdict is correct only if every layer
/// is correct.
fn judge(all: &mut Report, reports: &[Report]) {
    all.compared = reports.iter().map(|r| r.compared).sum();
    all.rows_left_out = reports.iter().map(|r| r.rows_left_out).sum();
    let worst = match all.faulty() {
        true => None,
        false => reports.iter().enumerate().find(|(_, r)| r.verdict != Verdict::Correct),
    };
    (all.verdict, all.sentence) = match worst {
        _ if all.faulty() => (Verdict::Faulty, all.findings.first().map(|f| f.says.clone()).unwrap_or_default()),
        Some((layer, report)) => (report.verdict, format!("layer {layer}: {}", report.sentence)),
        None => {
            let against: Vec<&str> = reports.iter().map(|r| r.sentence.as_str()).take(1).collect();
            let text = format!(
                "all {} cells of {} layers are as declared; layer 0: {}",
                all.compared,
                reports.len(),
                against[0]
            );
            (Verdict::Correct, text)
        }
    };
    all.open = worst.map(|(_, report)| report.open.clone()).unwrap_or_default();
}

fn of_layer(input: &Input, mask: &Values, layer: usize, kind: &str) -> Result<Report, Error> {
    let context = Context {
        kind: input.context.kind_of_layer(kind)?,
        kind_name: Some(kind.to_string()),
        layer_kinds: Vec::new(),
        layers: None,
        ..input.context.clone()
    };
    let one =
        Input { mask: Some(mask.slice(layer)?), context, companions: input.companions.clone(), ..Input::default() };
    crate::diagnose::diagnose(&one)
}

/// If every layer in `faulty` has the mask that is declared for another kind of layer, returns a description of this
/// mistake; otherwise, or if `faulty` is empty, `None`.
fn swapped(input: &Input, mask: &Values, faulty: &[usize]) -> Result<Option<String>, Error> {
    let kinds = &input.context.layer_kinds;
    for &layer in faulty {
        let others = kinds.iter().filter(|k| **k != kinds[layer]);
        let mut fits = false;
        for other in others {
            fits |= !of_layer(input, mask, layer, other)?.faulty();
        }
        if !fits {
            return Ok(None);
        }
    }
    let list: Vec<String> = faulty.iter().map(usize::to_string).collect();
    Ok((!faulty.is_empty())
        .then(|| format!("layers {} have the mask that is declared for the other kind of layer", list.join(", "))))
}

/// Joins the masks of all layers along the batch dimension, one layer after another. Returns `None` if a mask is
/// missing or if sizes differ.
fn stacked<'a>(keeps: impl Iterator<Item = Option<&'a Keep>>) -> Option<Keep> {
    let keeps: Vec<&Keep> = keeps.collect::<Option<_>>()?;
    let [batch, heads, q_len, kv_len] = keeps[0].dims();
    keeps.iter().all(|k| k.dims() == keeps[0].dims()).then(|| {
        let dims = [keeps.len() * batch, heads, q_len, kv_len];
        Keep::from_cells(dims, keeps.iter().flat_map(|k| k.cells()))
    })
}
