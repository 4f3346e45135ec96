//! `docs/doctor.md`, every class of mistakes with its picture, is made here and held up to date.
//!
//! `NOREN_UPDATE=1 cargo test -p noren-doctor --test all doctor_page::` writes it anew.

use noren_doctor::{Class, Example, classes};
use noren_mask::{Facts, Mask, Shape};
use noren_picture::{Draw, TerminalOptions};
use std::collections::BTreeSet;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");

const HEAD: &str = "\
# The doctor: every known way to get a mask wrong

`noren check mask.npy -d kind=causal` reads an array as it is stored, decodes its convention, holds it against what is declared
and, where they differ, searches for the mistake that turns one into the other exactly. The mistake that fits is the finding;
undoing it is the repair. A wrong cell that no real output can reach is a note and no error.

```sh
noren check mask.npy -d kind=causal                                  # exit code 0 correct, 1 faulty, 2 unusable, 3 no verdict
noren check mask.npy -d kind=causal --with input_ids=ids.npy -d pad_token_id=0 --fix repaired.npy -o wrong.svg
noren check mask.npy --meant 'causal & padding' --lengths 9,5        # the mask that was meant, in full: nothing is guessed
noren check --cases inputs.json -o preds.json                        # many at once
```

In Rust it is `noren_doctor::Patient`, in Python `nr.check`. Files are npy, npz or safetensors; nothing is ever
unpickled.

**Verdicts.**

| verdict | exit code | given when |
|---|---|---|
| correct | 0 | `kind` or the mask that was meant is declared, and every compared cell equals it. The sentence says against what the mask was held and how many cells were compared; rows of padding queries are left out, and so are rows of tokens that `redactions` hide from every query |
| faulty | 1 | a finding is an error or a warning |
| looks like | 3 | nothing is declared: the sentence names the nearest known mask (causal, both ways, a window, chunks, a prefix, with sizes as the array has them), the number of cells it is off, and what to declare |
| cannot tell | 3 | several readings are possible, or the mask resembles nothing: the report lists the readings and the question to answer |

A repair is offered only where a named mistake explains every wrong cell, also with `--meant`. Where none does, the class is
`unexplained_difference`, `--fix` writes nothing, and the picture shows the cells that differ from the declaration. Without a
verdict `--fix` writes nothing either; where no cell can be compared, because every row is padding, there is no verdict.
These are asked about and not guessed: a table of whole numbers `[rows, keys]` (a batch of 1-D attention masks, or queries by
keys; a square table only where every row is ones then zeros or zeros then ones; `role` or `q_len` answers it), keys that look like padding which nothing declares, documents without borders, the place of the queries among more keys
(`past_len`), a window around a query whose width may count several things, a prefix in left-padded rows, and the polarity of a truth
array whose complement is a known mask while the array itself is none, where neither `convention` nor `api` is declared.
A mistake may be in all batch rows and heads or in some of them (the sentence names these: \"in head 1 only\"). Padding that nothing
declares is no part of a repair: then the finding stands without one, beside the question whether the keys are padding. A mask of another
size than declared is not built where it would have more than 2^24 cells.

**What to declare.** `api`, `convention` (`keep_bool`, `ignore_bool`, `keep_01`, `additive`), `role` (`attn`, `key_padding`, `cross`),
`kind` (`causal`, `bidirectional`, `sliding`, `chunked`, `prefix_lm`, `causal_packed`, `tree`, `cross`, and combinations such as
`bidirectional_sliding`; `not_causal` is `bidirectional`), `past_len`, `q_len`, `kv_len`, `window`, `window_means`, `chunk`,
`chunk_from`, `prefix_len`, `prefix_from`, `pad_token_id`, `eos_token_id`, `padding_side`, `heads`, `compute_dtype`,
`position_encoding`, `bias`, `sinks`, `layers`, `layer_types`, `redactions`.
A `window` of W holds W keys with the query itself, unless `window_means` is `keys before the query` (W + 1 with itself), `keys on
each side` or `keys in total`. `chunk_from` and `prefix_from` are `text` (the first real token) or `slot`.
`redactions` are keys hidden on purpose: `[3, 4]`, or `[{\"batch\": 1, \"keys\": [7], \"queries\": [8, 9]}]`; without `batch` in all
rows, without `queries` from all queries. A word that is not known is an error that names the nearest known one, and so is a key
that looks like a misspelled one; other unknown keys are listed in the report. Two names of one key (`window`, `sliding_window`)
with different values are an error.
**What may stand beside the mask** (`--with NAME=FILE`): `input_ids`, `lengths`, `attention_mask`, `position_ids`, `segment_ids`,
`cu_seqlens`, `labels`, `kv_positions`, `query_positions`, `kv_written`, `parents`, `block_ids`, `hidden`, `pooled`,
`probabilities`, `scores`, `v`, `completion_ids`, `completion_mask`, and the encoder's and decoder's ids. For `kind=cross` an
`attention_mask` is the encoder's.
Without `kind` the report also says which known masks the array is one mistake away from.

**Tiers** say what a class takes to be decided: T0 the mask alone, T1 a declared intent, T2 ids, lengths, positions or labels, T3
intermediate tensors, T4 the model as a black box (`nr.audit`), T5 gradients. The classes of T0 to T3 are found by
`noren check`; those of T4 and T5 are listed because people look for them here.

In the pictures the first mask is the one that was meant: `-` is hidden and should be visible, `+` is visible and should not
be.

";

#[test]
fn the_page_of_classes_is_up_to_date() {
    let page = page();
    if std::env::var_os("NOREN_UPDATE").is_some() {
        std::fs::write(PATH, &page).expect("docs can be written");
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        written == page,
        "docs/doctor.md is out of date: NOREN_UPDATE=1 cargo test -p noren-doctor --test all doctor_page::"
    );
}

fn page() -> String {
    let mut out = String::from(HEAD);
    writeln!(out, "| class | | tier | what it is |\n|---|---|---|---|").expect("memory");
    for class in classes() {
        writeln!(
            out,
            "| [`{}`](#{}) | {} | {} | {} |",
            class.name,
            class.name.to_lowercase(),
            class.code,
            class.tier,
            class.title
        )
        .expect("memory");
    }
    for class in classes() {
        section(class, &mut out);
    }
    out
}

fn section(class: &Class, out: &mut String) {
    writeln!(out, "\n## {}\n\n{} ({}, {}).\n", class.name, class.title, class.code, class.tier).expect("memory");
    let lines =
        [("Shows", class.shows), ("Found when", class.found), ("Usual cause", class.cause), ("Repair", class.repair)];
    for (label, text) in lines.into_iter().filter(|(_, text)| !text.is_empty()) {
        writeln!(out, "- **{label}**: {text}.").expect("memory");
    }
    if let Some(example) = &class.example {
        writeln!(out, "\n```text\n{}\n```", picture(example).trim_end()).expect("memory");
    }
}

fn picture(example: &Example) -> String {
    let (q_len, kv_len, offset) = example.shape;
    let bind = |text: &str| {
        let mask: Mask = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        mask.bind(&Shape::new(q_len, kv_len, offset), &Facts::new()).unwrap_or_else(|e| panic!("{text}: {e}"))
    };
    let (right, wrong) = (bind(example.right), bind(example.wrong));
    assert!(!right.same_cells(&wrong).expect("the same shape"), "{} is not wrong", example.wrong);
    right.picture_of_difference(&wrong).to_terminal(&TerminalOptions::default()).expect("room")
}

/// The catalogue has 51 numbers; each has at least one name here, and no name comes twice.
#[test]
fn every_number_of_the_catalogue_has_a_class() {
    let codes: BTreeSet<&str> = classes().iter().map(|c| c.code).collect();
    let missing: Vec<String> =
        (1..=51).map(|n| format!("C{n:02}")).filter(|code| !codes.contains(code.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let names: BTreeSet<&str> = classes().iter().map(|c| c.name).collect();
    assert_eq!(names.len(), classes().len());
}
