//! Checks that leave nothing out: every token by itself, and every length up to the tested one.

use super::lab::{Input, Lab, Trial, Trials};
use crate::model::Batch;
use noren::Side;

/// Rows of a call that tries as many tokens at once.
const ROWS: usize = 8;

/// Changes every token by itself, one in each row; outputs that may not depend on it stay.
pub(super) fn reach(lab: &Lab<'_>) -> Trials {
    let broken = "outputs depend on a token that they may not read";
    let one = lab.input(0)?;
    let rows = |batch: &Batch| Batch::new(vec![batch.ids()[0].clone(); ROWS]);
    let decoder = one.decoder.as_ref().map(rows).transpose()?;
    let base = Input { text: rows(&one.text)?, decoder };
    let ids = &one.main().ids()[0];
    let mut trials = Vec::new();
    for first in (0..lab.length).step_by(ROWS) {
        let tokens: Vec<usize> = (0..ROWS).map(|row| (first + row) % lab.length).collect();
        let hidden = |(row, token): (usize, &usize)| {
            let (reach, token) = (&lab.reach, *token);
            (0..lab.length)
                .filter(move |q| *q != token && !reach.get([0, 0, *q, token]))
                .map(move |q| ((row, q), (row, q)))
        };
        let pairs: Vec<_> = tokens.iter().enumerate().flat_map(hidden).collect();
        if pairs.is_empty() {
            continue;
        }
        let changed = Batch::new(tokens.iter().map(|token| lab.changed(ids, &[*token])).collect())?;
        let (other, base) = (lab.with_main(&base, changed), base.clone());
        let what = format!("each of {ROWS} tokens from {first} on changed, one in each row");
        trials.push(Trial { what, base, other, pairs, broken, moved: false, given: None });
    }
    Ok(if trials.is_empty() { Err("every output may read every token".into()) } else { Ok(trials) })
}

/// Gives a text of every length up to the tested one: alone, as the beginning of the longest, and padded.
pub(super) fn lengths(lab: &Lab<'_>) -> Trials {
    let full = lab.input(0)?;
    let begins = (0..lab.length).all(|q| (q + 1..lab.length).all(|k| !lab.reach.get([0, 0, q, k])));
    let mut trials = Vec::new();
    for n in 1..lab.length {
        let cut = |batch: &Batch| Batch::new(vec![batch.ids()[0][..n].to_vec()]);
        if begins {
            let base = lab.with_main(&full, cut(full.main())?);
            let (what, other) =
                (format!("a text of {n} tokens alone, and at the beginning of {}", lab.length), full.clone());
            trials.push(of_length(n, what, base, other, 0));
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
        let what = format!("a text of {n} tokens alone, and padded on the {side:?} to {}", lab.length).to_lowercase();
        trials.push(of_length(places, what, base, other, by));
    }
    Ok(Ok(trials))
}

fn of_length(places: usize, what: String, base: Input, other: Input, by: usize) -> Trial {
    let pairs = (0..places).map(|at| ((0, at), (0, at + by))).collect();
    let broken = "a text gives other outputs at another length";
    Trial { what, base, other, pairs, broken, moved: false, given: None }
}
