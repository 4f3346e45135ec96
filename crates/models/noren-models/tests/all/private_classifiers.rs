//! Private tokens in classifiers: hidden tokens are swapped in a padded batch, and no bit of a released output changes:
//! states, logits of tokens, and logits of texts. Masks with a planted fault fail the same test.

use crate::families::{NAMES, folder};
use noren::{Facts, Mask, Side};
use noren_models::model::{Batch, Model, Output};
use noren_models::{Error, Proof, Result, prove_texts};
use noren_text::{Kind, Policy, PrivateTokens};

/// The texts of the batch, and the places of their hidden tokens. The third text hides nothing.
const TEXTS: [(usize, &[usize]); 3] = [(12, &[3, 4, 5]), (5, &[2]), (9, &[])];
const CHOICES: std::ops::Range<u32> = 5..100;

/// Rows of numbers: one for each token of a text, or one for each text.
type Rows = Vec<Vec<f32>>;

fn ids() -> Vec<Vec<u32>> {
    let row = |(row, (len, _)): (usize, &(usize, &[usize]))| {
        std::iter::once(0).chain((1..*len as u32).map(|i| 5 + (31 * row as u32 + 17 * i) % 95)).collect()
    };
    TEXTS.iter().enumerate().map(row).collect()
}

fn secrets() -> Vec<PrivateTokens> {
    let kind = || Kind::new("email").unwrap();
    TEXTS.iter().map(|(len, at)| PrivateTokens::at(*len, [(kind(), at.to_vec())]).unwrap()).collect()
}

/// Returns one row of numbers for each token of each text. The logits of a text belong to the first token from which
/// they are computed, and are also returned by themselves.
fn rows(model: &Model, ids: &[Vec<u32>], side: Side) -> Result<(Vec<Rows>, Rows)> {
    let secrets = secrets();
    let longest = ids.iter().map(Vec::len).max().unwrap();
    let shift = |row: usize| if side == Side::Left { longest - ids[row].len() } else { 0 };
    let places: Vec<(usize, usize)> = TEXTS
        .iter()
        .enumerate()
        .flat_map(|(row, (_, at))| at.iter().map(move |at| (row, *at)))
        .map(|(row, at)| (row, at + shift(row)))
        .collect();
    let label = (0..ids.len()).map(|row| {
        let of_row = places.iter().filter(|(r, _)| *r == row);
        of_row.map(|(_, at)| (*at).into()).collect()
    });
    let facts = Facts::new().label_rows("private", label.collect());
    let batch = Batch::padded(ids, 1, side)?.facts(facts).unpooled(places);
    let Output { last_hidden_state, logits, pooler_output } = model.forward(&batch)?;
    let read = model.class_tokens(&batch);
    let mut all = Vec::new();
    let mut of_texts = Vec::new();
    for (text, tokens) in batch.texts().iter().enumerate() {
        let mut rows: Vec<Vec<f32>> = Vec::new();
        for (row, i) in tokens {
            let mut numbers = last_hidden_state.get(*row)?.get(*i)?.to_vec1::<f32>()?;
            if let Some(logits) = logits.as_ref().filter(|logits| logits.rank() == 3) {
                numbers.extend(logits.get(*row)?.get(*i)?.to_vec1::<f32>()?);
            }
            rows.push(numbers);
        }
        if let Some(pooled) = &pooler_output {
            rows[0].extend(pooled.get(text)?.to_vec1::<f32>()?);
        }
        if let (Some(read), Some(logits)) = (&read, &logits) {
            let place = read[text][0].1 - shift(text);
            assert!(
                read[text].iter().all(|(_, i)| !secrets[text].is_private(i - shift(text))),
                "a hidden token is read"
            );
            rows[place].extend(logits.get(text)?.to_vec1::<f32>()?);
            of_texts.push(logits.get(text)?.to_vec1::<f32>()?);
        }
        all.push(rows);
    }
    Ok((all, of_texts))
}

/// Returns the model with `mask` in place of its mask `own`, which is written as the word `own` in `mask`.
fn masked(model: &Model, mask: &str) -> Model {
    let (mut model, declared) = (model.clone(), model.masks()[0].clone());
    let own = format!("({})", declared.spec.mask);
    model.set_mask(declared.stack, mask.replace("own", &own).parse::<Mask>().unwrap()).unwrap();
    model
}

fn proofs(model: &Model, side: Side) -> Vec<Proof> {
    let (ids, secrets) = (ids(), secrets());
    let texts: Vec<(&[u32], &PrivateTokens)> = ids.iter().map(Vec::as_slice).zip(&secrets).collect();
    let choices: Vec<u32> = CHOICES.collect();
    prove_texts(&texts, &Policy::Hide, &choices, 3, |ids| Ok(rows(model, ids, side)?.0)).unwrap()
}

#[test]
fn hidden_tokens_change_no_bit_of_states_and_classes() {
    for name in NAMES {
        let plain = Model::load(folder(name)).unwrap();
        let hiding = masked(&plain, "own - keys(label=\"private\")");
        let declared = plain.masks()[0].spec.mask.clone();
        assert_eq!(hiding.masks()[0].spec.mask, Policy::Hide.mask(declared), "{name}");
        let all = [Side::Right, Side::Left].map(|side| proofs(&hiding, side));
        assert_eq!(all[0], all[1], "{name}: padding on either side");
        for (proof, (len, hidden)) in all[0].iter().zip(TEXTS) {
            assert!(proof.leaks.is_empty(), "{name}: {proof:?}");
            assert_eq!((proof.holds(), proof.secret_changed), (!hidden.is_empty(), hidden.len()), "{name}: {proof:?}");
            assert!(proof.compared >= 16 * (len - hidden.len()), "{name}");
        }
        // Without the policy, the same test finds the leak.
        let open = proofs(&plain, Side::Right);
        assert!(!open[0].holds() && !open[1].holds() && open[2].leaks.is_empty(), "{name}: {open:?}");
    }
}

#[test]
fn swapped_secrets_keep_the_bits_of_the_classes_of_a_text() {
    for name in NAMES {
        let plain = Model::load(folder(name)).unwrap();
        let hiding = masked(&plain, "own - keys(label=\"private\")");
        let mut other = ids();
        for (row, (_, hidden)) in other.iter_mut().zip(TEXTS) {
            hidden.iter().for_each(|at| row[*at] = 5 + (row[*at] + 40) % 95);
        }
        let classes = |model: &Model, ids: &[Vec<u32>]| {
            let logits = rows(model, ids, Side::Right).unwrap().1.concat();
            logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(classes(&hiding, &ids()), classes(&hiding, &other), "{name}");
        if !classes(&plain, &ids()).is_empty() {
            assert_ne!(classes(&plain, &ids()), classes(&plain, &other), "{name}: nothing was swapped");
        }
    }
}

#[test]
fn broken_masks_of_classifiers_are_caught() {
    for name in ["roberta_classifier", "distilbert_tokens", "modernbert_mean", "llama_classifier"] {
        let plain = Model::load(folder(name)).unwrap();
        for broken in [
            "own - keys(4..6) - keys(2)",
            "layers(1: own, else: own - keys(label=\"private\"))",
            "heads(1: own, else: own - keys(label=\"private\"))",
            "own - keys(label=\"private\") | queries(6) & keys(5)",
        ] {
            let proofs = proofs(&masked(&plain, broken), Side::Right);
            assert!(proofs.iter().any(|proof| !proof.leaks.is_empty()), "{name}: {broken}: {proofs:?}");
        }
    }
}

#[test]
fn a_text_that_reads_another_text_is_found() {
    let model = masked(&Model::load(folder("roberta_classifier")).unwrap(), "own - keys(label=\"private\")");
    let (ids, secrets) = (ids(), secrets());
    let texts: Vec<(&[u32], &PrivateTokens)> = ids.iter().map(Vec::as_slice).zip(&secrets).collect();
    let choices: Vec<u32> = CHOICES.collect();
    let mixed = |ids: &[Vec<u32>]| {
        let mut rows = rows(&model, ids, Side::Right)?.0;
        let read = rows[0][3][0];
        rows[2][1].push(read);
        Ok(rows)
    };
    let proofs = prove_texts(&texts, &Policy::Hide, &choices, 3, mixed).unwrap();
    assert_eq!(proofs[2].leaks, [1], "a secret of text 0 reaches an output of text 2");
    let message = |result: Result<Vec<Proof>>| result.unwrap_err().to_string();
    let short = |_: &[Vec<u32>]| Ok(vec![vec![vec![0f32]]]);
    assert!(message(prove_texts(&texts, &Policy::Hide, &choices, 1, short)).contains("one row for each of 26 tokens"));
    let none = |_: &[Vec<u32>]| Err(Error::Input { name: "a".into(), given: "b".into(), expected: "c".into() });
    assert!(message(prove_texts(&texts, &Policy::Hide, &[5], 1, none)).contains("at least two tokens"));
    let other: Vec<(&[u32], &PrivateTokens)> = vec![(&ids[0], &secrets[1])];
    assert!(message(prove_texts(&other, &Policy::Hide, &choices, 1, none)).contains("the text has 12 tokens"));
}
