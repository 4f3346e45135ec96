//! Makes trials (comparisons of two calls of the model) that change every token of a text, and trials of every text
//! length up to the tested length.

use super::lab::{Input, Lab, Trial, Trials, broken};
use crate::model::Batch;
use noren::Side;
use noren_flow::audit::ROWS;

/// Returns trials with a batch of equal rows, in which a different token of each row is changed. Together, the trials
/// change every token of the text by itself. Outputs that may not depend on the changed token of their row must stay
/// equal.
///
/// These trials do not compare the outputs that may depend on the changed token, because rounding may hide a small
/// change. The check `liveness` tests for some tokens whether these outputs change.
pub(super) fn reach(lab: &Lab<'_>) -> Trials {
    let changes = match lab.changes("reach") {
        Ok(changes) => changes,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    let one = lab.input(0)?;
    let rows = |batch: &Batch| Batch::new(vec![batch.ids()[0].clone(); ROWS]);
    let decoder = one.decoder.as_ref().map(rows).transpose()?;
    let base = Input { text: rows(&one.text)?, decoder };
    let ids = &one.main().ids()[0];
    let mut trials = Vec::new();
    for change in changes.into_iter().filter(|change| !change.moves) {
        let changed = change.tokens.iter().map(|token| lab.changed(ids, &[*token]));
        let other = lab.with_main(&base, Batch::new(changed.collect())?);
        trials.push(Trial::of(change, base.clone(), other));
    }
    Ok(if trials.is_empty() { Err("every output may read every token".into()) } else { Ok(trials) })
}

/// Returns trials (comparisons of two calls of the model) for texts of every length below the tested length. The trials
/// compare the outputs of a text alone with the outputs of the same text with padding. If no token reads a later token,
/// other trials compare the outputs of a text alone with the outputs of the longest text, which begins with the same
/// tokens.
pub(super) fn lengths(lab: &Lab<'_>) -> Trials {
    let full = lab.input(0)?;
    let begins = (0..lab.length).all(|q| (q + 1..lab.length).all(|k| !lab.reach.get([0, 0, q, k])));
    let mut trials = Vec::new();
    for n in 1..lab.length {
        let cut = |batch: &Batch| Batch::new(vec![batch.ids()[0][..n].to_vec()]);
        if begins {
            let base = lab.with_main(&full, cut(full.main())?);
            let (what, other) = (
                format!(
                    "a text of {n} tokens runs alone, and then as the beginning of a text of {} tokens",
                    lab.length
                ),
                full.clone(),
            );
            let broken = broken("lengths", 0, &[&n.to_string(), &lab.length.to_string()]);
            trials.push(of_length(n, what, [base, other], broken, 0));
        }
        let side = if n % 2 == 0 { Side::Left } else { Side::Right };
        let base = Input { text: cut(&full.text)?, decoder: full.decoder.clone() };
        let text = lab.padded_by(&base.text.ids()[0], side, 0, lab.length - n)?;
        let (places, by) = match (lab.crosses(), side) {
            (true, _) => (lab.length, 0),
            (false, Side::Left) => (n, lab.length - n),
            (false, Side::Right) => (n, 0),
        };
        let other = Input { text, decoder: full.decoder.clone() };
        let what =
            format!("a text of {n} tokens runs alone, and then with padding on the {side:?} to {} tokens", lab.length)
                .to_lowercase();
        let broken = broken("lengths", 1, &[if side == Side::Left { "left" } else { "right" }, &n.to_string()]);
        trials.push(of_length(places, what, [base, other], broken, by));
    }
    Ok(Ok(trials))
}

fn of_length(places: usize, what: String, [base, other]: [Input; 2], broken: String, by: usize) -> Trial {
    let pairs = (0..places).map(|at| ((0, at), (0, at + by))).collect();
    Trial { what, base, other, pairs, broken, moved: false, given: None }
}
