//! The verifier's cells of masks are compared with the drawn corpus and with the library.

use crate::draw::{Draw, mask, setting};
use noren_mask::{Facts, Mask, Shape};
use noren_testing::drawn;
use noren_verify::{Masks, Refusal};

/// Returns the cells of a batch row and head as a drawing, tested by the verifier one by one.
fn cells(masks: &Masks, batch: usize, head: usize, q_len: usize, kv_len: usize) -> String {
    let cell = |q, k| if masks.allowed(batch, head, q, k) { '#' } else { '.' };
    let lines: Vec<String> = (0..q_len).map(|q| (0..kv_len).map(|k| cell(q, k)).collect()).collect();
    lines.join("\n")
}

/// Returns the cells of a batch row and head as a drawing, from the ranges of keys that the verifier computes.
fn rows(masks: &Masks, batch: usize, head: usize, q_len: usize, kv_len: usize) -> String {
    let line = |q| {
        let mut line = vec!['.'; kv_len];
        for (start, end) in masks.row(batch, head, q).expect("little work") {
            line[start..end].fill('#');
        }
        line.into_iter().collect::<String>()
    };
    (0..q_len).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_corpus_is_drawn_as_it_is_written() {
    let (mut checked, mut left_out) = (0, 0);
    for (file, case) in drawn::cases() {
        let name = format!("{file}: {}: {}", case.name, case.mask);
        let shape = case.shape();
        let facts = case.facts().expect("facts").to_json().expect("facts with a serial form");
        let text = case.mask().expect("a mask").to_string();
        let sizes = shape.to_json().expect("a shape");
        let masks = match Masks::read(&text, &sizes, &facts) {
            Err(Refusal::Unverifiable { part, .. }) if part == "random_blocks" => {
                left_out += 1;
                continue;
            }
            other => other.unwrap_or_else(|refusal| panic!("{name}: {refusal}")),
        };
        for batch in 0..shape.batch_len() {
            for head in 0..shape.head_count() {
                let expected = case.drawn(batch, head);
                assert_eq!(cells(&masks, batch, head, shape.q_len(), shape.kv_len()), expected, "{name}");
                assert_eq!(rows(&masks, batch, head, shape.q_len(), shape.kv_len()), expected, "{name}, by row");
            }
        }
        checked += 1;
    }
    assert!(checked > 200 && left_out < 10, "{checked} cases, {left_out} of random_blocks");
    println!("{checked} cases, {left_out} of random_blocks not verifiable");
}

#[test]
fn refused_masks_of_the_corpus_are_refused() {
    let mut accepted = Vec::new();
    for (file, case) in drawn::refused() {
        let (Ok(facts), shape) = (case.facts().map(|facts| facts.to_json()), case.shape()) else { continue };
        let (facts, Ok(shape)) = (facts.expect("facts with a serial form"), shape.to_json()) else { continue };
        if Masks::read(&case.mask, &shape, &facts).is_ok() {
            accepted.push(format!("{file}: {}: {}", case.name, case.mask));
        }
    }
    assert!(accepted.is_empty(), "{accepted:#?}");
}

/// Returns the number of cases: `usual`, or the value of `NOREN_VERIFY`.
fn amount(usual: u64) -> u64 {
    std::env::var("NOREN_VERIFY").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_masks_allow_the_same_cells() {
    let (mut bound, mut cells_seen, mut looser, mut tried) = (0, 0_u64, 0, 0);
    let cases = amount(2000);
    while bound < cases {
        tried += 1;
        let mut draw = Draw(tried);
        let setting = setting(&mut draw, false, 14);
        let text = mask(&mut draw, &setting, 3);
        let (shape, facts) = (setting.shape(), setting.facts());
        let name = format!("{text}\n{shape}\n{facts}");
        let library = text.parse::<Mask>().map_err(|error| error.to_string()).and_then(|mask| {
            let facts = Facts::from_json(&facts).map_err(|error| error.to_string())?;
            let shape = Shape::from_json(&shape).map_err(|error| error.to_string())?;
            mask.bind(&shape, &facts).map_err(|error| error.to_string())
        });
        let own = Masks::read(&text, &shape, &facts);
        let (library, own) = match (library, own) {
            (Err(_), own) => {
                looser += u64::from(own.is_ok());
                continue;
            }
            (Ok(library), own) => (library, own.unwrap_or_else(|refusal| panic!("{refusal}\n{name}"))),
        };
        // A certificate holds the printed mask and the written facts.
        let written = Masks::read(
            &library.mask().to_string(),
            &library.shape().to_json().expect("a shape"),
            &library.facts().to_json().expect("a serial form"),
        )
        .unwrap_or_else(|refusal| panic!("{refusal}\n{name}\nprinted {}", library.mask()));
        bound += 1;
        let (q_len, kv_len) = (setting.q_len as usize, setting.kv_len as usize);
        for batch in 0..setting.batch as usize {
            for head in 0..setting.heads as usize {
                let drawn = cells(&own, batch, head, q_len, kv_len);
                let expected: String = (0..q_len)
                    .map(|q| {
                        (0..kv_len)
                            .map(|k| if library.allowed(batch, head, q, k) { '#' } else { '.' })
                            .collect::<String>()
                    })
                    .collect::<Vec<_>>()
                    .join("\n");
                assert_eq!(drawn, expected, "batch {batch}, head {head}\n{name}");
                assert_eq!(
                    rows(&own, batch, head, q_len, kv_len),
                    expected,
                    "batch {batch}, head {head}, by row\n{name}"
                );
                assert_eq!(
                    cells(&written, batch, head, q_len, kv_len),
                    expected,
                    "batch {batch}, head {head}, written\n{name}"
                );
                cells_seen += (q_len * kv_len) as u64;
            }
        }
    }
    println!("{bound} masks of {tried} drawn, {cells_seen} cells equal; {looser} read by the verifier only");
}
