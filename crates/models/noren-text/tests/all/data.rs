//! Rows and batches: no token is lost or drawn twice, and results are the same each time.

use noren_text::data::{Objective, Rows, Sampler};
use noren_text::{ByteTokenizer, Role, Tokenizer};

const PADDING: u32 = 256;
const MASK: u32 = 259;

fn documents() -> Vec<String> {
    (0..40).map(|n| format!("Document {n}: {}", "words and words ".repeat(n % 13))).collect()
}

fn sampler(objective: Objective) -> Sampler {
    let rows = Rows::pack(&documents(), &ByteTokenizer, 64).unwrap();
    Sampler::new(rows, &ByteTokenizer, objective, 7).unwrap()
}

#[test]
fn packing_loses_nothing() {
    let rows = Rows::pack(&documents(), &ByteTokenizer, 64).unwrap();
    let mut text = Vec::new();
    for row in rows.iter() {
        assert_eq!(row.ids.len(), 64);
        assert!(row.ids[row.real()..].iter().all(|id| *id == PADDING) && !row.ids[..row.real()].contains(&PADDING));
        assert!(64 - row.real() < 8 || std::ptr::eq(row, rows.get(rows.len() - 1)));
        let mut at = 0;
        for length in &row.documents {
            assert_eq!(row.ids[at], 257);
            text.extend(&row.ids[at..at + *length]);
            at += *length;
        }
    }
    assert_eq!(ByteTokenizer.decode(&text).unwrap(), documents().concat());
    assert_eq!(text.iter().filter(|id| **id == 258).count(), 40);
}

#[test]
fn every_document_has_its_end_whatever_its_length() {
    for len in 20..80 {
        let document = "x".repeat(len);
        let rows = Rows::pack(&[document.as_str()], &ByteTokenizer, 32).unwrap();
        let ids: Vec<u32> = rows.iter().flat_map(|row| row.ids[..row.real()].to_vec()).collect();
        let count = |role| ids.iter().filter(|id| Some(**id) == ByteTokenizer.special(role)).count();
        assert_eq!(ids.iter().filter(|id| **id == u32::from(b'x')).count(), len);
        assert_eq!((count(Role::End), ids.last().copied()), (1, ByteTokenizer.special(Role::End)), "{len} bytes");
    }
}

#[test]
fn causal_targets_are_the_next_token_of_the_same_document() {
    let sampler = sampler(Objective::Clm);
    for batch in sampler.in_order(Objective::Clm, 4) {
        for ((ids, targets), documents) in batch.ids.iter().zip(&batch.targets).zip(&batch.documents) {
            let mut ends: Vec<usize> = documents
                .iter()
                .scan(0, |at, n| {
                    *at += *n;
                    Some(*at)
                })
                .collect();
            ends.dedup();
            let real = *ends.last().unwrap();
            for at in 0..64 {
                let expected = (at + 1 < real && !ends.contains(&(at + 1))).then(|| ids[at + 1]);
                assert_eq!(targets[at], expected);
            }
        }
    }
}

#[test]
fn corruption_takes_its_shares_and_never_specials() {
    let sampler = sampler(Objective::Mlm);
    let clean = |number: u64| {
        let mut clm = sampler.batch(number, 8);
        for (ids, targets) in clm.ids.iter_mut().zip(&clm.targets) {
            for (id, target) in ids.iter_mut().zip(targets) {
                *id = target.unwrap_or(*id);
            }
        }
        clm.ids
    };
    let (mut text, mut asked, mut masked, mut kept) = (0, 0, 0, 0);
    for number in 0..200 {
        let batch = sampler.batch(number, 8);
        for ((ids, targets), clean) in batch.ids.iter().zip(&batch.targets).zip(clean(number)) {
            for ((id, target), clean) in ids.iter().zip(targets).zip(clean) {
                text += usize::from(clean < 256);
                match target {
                    Some(target) => {
                        assert!(*target < 256);
                        asked += 1;
                        masked += usize::from(*id == MASK);
                        kept += usize::from(id == target);
                    }
                    None => assert!(*id == clean && clean != MASK),
                }
            }
        }
    }
    let share = |part: usize, all: usize| part as f64 / all as f64;
    assert!((share(asked, text) - 0.15).abs() < 0.005, "{asked} of {text}");
    assert!((share(masked, asked) - 0.8).abs() < 0.01, "{masked} of {asked}");
    assert!((share(kept, asked) - 0.1).abs() < 0.01, "{kept} of {asked}");
}

#[test]
fn every_row_comes_once_in_an_epoch_and_batches_come_again_the_same() {
    let sampler = sampler(Objective::Clm);
    let count = sampler.rows().len();
    let epoch = |epoch: u64| {
        (0..count as u64).map(|n| sampler.batch(epoch * count as u64 + n, 1).ids[0].clone()).collect::<Vec<_>>()
    };
    let sorted = |mut rows: Vec<Vec<u32>>| {
        rows.sort();
        rows
    };
    let in_order: Vec<_> = sampler.rows().iter().map(|row| row.ids.clone()).collect();
    assert_eq!(sorted(epoch(0)), sorted(in_order.clone()));
    assert_eq!(sorted(epoch(3)), sorted(in_order.clone()));
    assert!(epoch(0) != epoch(1) && epoch(0) != in_order);
    let mixed = self::sampler(Objective::Both);
    for number in [0, 2, 5, 1000] {
        assert_eq!(mixed.batch(number, 6), self::sampler(Objective::Both).batch(number, 6));
        assert_eq!(mixed.batch(number, 6).objective, if number % 3 == 2 { Objective::Mlm } else { Objective::Clm });
    }
    assert_eq!(sampler.batch(5, 4).ids[1], sampler.batch(21, 1).ids[0]); // the size of a batch changes no row
}

#[test]
fn rows_are_held_out_and_unfit_text_is_refused() {
    let rows = Rows::pack(&documents(), &ByteTokenizer, 64).unwrap();
    let count = rows.len();
    let (train, held) = rows.clone().split(10).unwrap();
    assert_eq!((train.len() + held.len(), held.len()), (count, count / 10));
    assert!(held.iter().all(|row| !train.iter().any(|other| other == row)));
    let (_, held) = rows.split(1000).unwrap();
    assert_eq!(held.len(), 1);
    for (texts, len, shown) in
        [(vec![], 64, "the text is empty"), (vec![""], 64, "the text is empty"), (vec!["a"], 4, "too short")]
    {
        let error = Rows::pack(&texts, &ByteTokenizer, len).unwrap_err().to_string();
        assert!(error.contains(shown), "{error}");
    }
    let one = Rows::pack(&["short"], &ByteTokenizer, 64).unwrap();
    assert!(one.split(10).unwrap_err().to_string().contains("1 rows of 64 tokens"));
    assert!("clmm".parse::<Objective>().unwrap_err().to_string().contains("give clm, mlm or both"));
}

#[test]
fn entropy_is_that_of_the_text() {
    let rows = Rows::pack(&["abababab"], &ByteTokenizer, 16).unwrap();
    assert!((rows.unigram_entropy(&ByteTokenizer) - 2f64.ln()).abs() < 1e-12);
}
