//! Writes web pages of masks (`Picture::to_html`), and the reasons that `BoundMask::explain` gives for every cell of
//! these masks. The test `crates/apps/noren-cli/tests/page/pages.test.mjs` compares the reasons on each page, in a browser,
//! with these reasons.
//!
//! `cargo run -p noren-picture --example pages -- DIR` writes two files for mask number `N`: the page `N.html` and the
//! reasons `N.json`.

use noren_mask::{BoundMask, Facts, Mask, Part, Shape, Side};
use noren_picture::Draw;
use noren_testing::cases::{masks, worlds};
use noren_testing::drawn;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;

/// The number of random masks.
const RANDOM: u32 = 200;

fn main() {
    let folder = std::env::args().nth(1).expect("the folder to write to");
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("a folder");
    let count = Cell::new(0);
    let write = |bound: &BoundMask| {
        let name = count.replace(count.get() + 1);
        let html = bound.picture().to_html().expect("a small mask");
        std::fs::write(folder.join(format!("{name}.html")), html).expect("a file");
        std::fs::write(folder.join(format!("{name}.json")), expected(bound).to_string()).expect("a file");
    };
    for word in noren_mask::language::atoms() {
        for picture in word.pictures {
            let (q, k, offset) = picture.size;
            let heads = if picture.mask.contains("heads(") { 2 } else { 1 };
            let facts = Facts::from_json(picture.facts).expect("facts");
            let mask: Mask = picture.mask.parse().expect("a mask");
            write(&mask.bind(&Shape::new(q, k, offset).heads(heads), &facts).expect("facts that fit"));
        }
    }
    for (_, case) in drawn::cases() {
        write(&case.bind().expect("a stored case"));
    }
    // cells that the page computes by rules, with padding on the left, offsets, batch rows and heads
    let shape = Shape::new(24, 36, 0).batch(2).heads(2).query_offsets([12, -3]);
    let facts = Facts::new().lengths([36, 29]).side(Side::Left);
    for text in [
        "random(0.3, 18446744073709551615)",
        "causal & (sliding(3) | random(0.2, 1)) & padding",
        "!(random(0.5, 7) - random(0.5, 8))",
        "heads(0: random(0.4, 3) | !random(0.6, 4), else: batch(0: random(0.5, 5), else: causal & random(0.9, 6)))",
    ] {
        let mask: Mask = text.parse().expect("a mask");
        write(&mask.bind(&shape, &facts).expect("facts that fit"));
    }
    let random = worlds(20, 600).prop_flat_map(|world| {
        let masks = masks(&world);
        (Just(world), masks)
    });
    noren_testing::check(RANDOM, random, |(world, mask)| write(&world.bind(&mask)));
    println!("{} pages", count.get());
}

/// Returns the reasons of every cell, in the order batch row, head, query, key: for each cell, `[query position,
/// key position, lines]`, where a line is `[allowed, mask, why]` for the mask or a subexpression. Equal entries are
/// stored once: `reasons` has the distinct entries, and `cells` has for each cell the index of its entry in `reasons`.
fn expected(bound: &BoundMask) -> Value {
    let shape = bound.shape();
    let mut reasons: Vec<Value> = Vec::new();
    let mut known = std::collections::HashMap::new();
    let mut cells = Vec::new();
    for batch in 0..shape.batch_len() {
        for head in 0..shape.head_count() {
            for q in 0..shape.q_len() {
                for k in 0..shape.kv_len() {
                    let explanation = bound.explain(batch, head, q, k).expect("a cell of the mask");
                    assert_eq!(explanation.allowed, explanation.root.allowed);
                    let mut lines = Vec::new();
                    flatten(&explanation.root, &mut lines);
                    let lines = json!([explanation.query_position, explanation.key_position, lines]);
                    cells.push(*known.entry(lines.to_string()).or_insert_with(|| {
                        reasons.push(lines);
                        reasons.len() - 1
                    }));
                }
            }
        }
    }
    json!({
        "mask": bound.mask().to_string(),
        "shape": [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()],
        "reasons": reasons,
        "cells": cells,
    })
}

fn flatten(part: &Part, lines: &mut Vec<Value>) {
    lines.push(json!([part.allowed, part.mask, part.why]));
    part.parts.iter().for_each(|part| flatten(part, lines));
}
