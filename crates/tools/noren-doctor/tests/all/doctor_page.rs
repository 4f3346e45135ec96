//! Generates `docs/doctor.md`, every class of mistakes with its picture, and checks that the file is up to date.
//!
//! `NOREN_UPDATE=1 cargo test -p noren-doctor --test all doctor_page::` writes the file.

use noren_doctor::{Class, Example, classes};
use noren_mask::{Facts, Mask, Shape};
use noren_picture::{Draw, TerminalOptions};
use std::collections::BTreeSet;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/doctor.md");

const HEAD: &str = "\
# The doctor: known mistakes in attention masks

`noren check mask.npy -d kind=causal` reads an array as it is stored, decodes its convention, and compares its cells with the declared mask.
If they differ, the doctor searches for the mistake that turns the declared mask into exactly the given one. This mistake is the finding,
and undoing the mistake is the repair. A wrong cell that does not influence the output of a non-padding token is a note, not an error.

```sh
noren check mask.npy -d kind=causal                                  # exit code 0 correct, 1 faulty, 2 unusable, 3 no verdict
noren check mask.npy -d kind=causal --with input_ids=ids.npy -d pad_token_id=0 --fix repaired.npy -o wrong.svg
noren check mask.npy --meant 'causal & padding' --lengths 9,5        # the full expression of the intended mask: nothing is guessed
noren check --cases inputs.json -o preds.json                        # many cases in one file
```

In Rust it is `noren_doctor::Input`, in Python `nr.check`. Files are npy, npz or safetensors; pickled data is never
loaded.

**Verdicts.**

| verdict | exit code | given when |
|---|---|---|
| correct | 0 | `kind` or the intended mask is declared, or for rows of keys (`role=key_padding`) the padding of the batch, and every compared cell equals it. The sentence names the declared mask and the number of compared cells. Rows of padding queries, and of tokens that `redactions` hide from every query, are not compared. `probabilities`, `pooled`, token `labels` or a completion mask beside the mask were compared too; otherwise the verdict is \"cannot tell\", and the sentence names them. Without a mask: each given array was compared with another array, without a finding, and nothing is open |
| faulty | 1 | a finding is an error or a warning |
| looks like | 3 | no mask is declared: the sentence gives the nearest known mask (causal, bidirectional, a window, chunks, a prefix, with the sizes of the array), the number of cells that differ, and the declarations that are needed |
| cannot tell | 3 | several readings are possible, or the mask resembles no known mask: the report lists the readings and the question to answer |

With `--meant` the repair is the declared mask, whose padding and documents may be those of the arrays beside the mask. Otherwise a repair is given only if a named mistake explains every wrong cell. The repaired
array, checked with the same declarations, is correct, and has the shape, number type and convention of the given array. If no mistake
explains the wrong cells, the class is `unexplained_difference`, without `--meant` `--fix` writes nothing, and the picture shows the cells that differ
from the declaration. Without a verdict `--fix` writes nothing either. If every row is padding, no cell can be compared, and there is no verdict.

In these cases the doctor guesses nothing, and the report contains a question:

- a table of integers `[rows, keys]` may be a batch of 1-D attention masks, or queries by keys: declare `role` or `q_len` (for a square table, only if every row is ones then zeros, or zeros then ones)
- hidden keys look like padding, but no padding is declared
- a table of Booleans `[rows, keys]` whose rows are hidden at one end, and which is no known mask, may be key padding: declare `role` and
  `convention`; the question lists the readings with the declarations that select each
- rows of keys of a causal mask are longer than the texts: declare `kv_len` for a cache with more slots
- one row of keys `[keys]` is given for a causal or sliding kind, which it does not show: declare `role=key_padding`, or `role=attn` for the
  mask of one query
- the mask is the declared one without the cells between groups of tokens: declare the documents (`segment_ids`, `cu_seqlens`)
- the borders of documents are unknown: if `input_ids` are given, the question names the token at the borders. A declared `eos_token_id` that
  ends documents, or `bos_token_id` that begins them, answers it
- there are more keys than queries, and the positions of the queries are unknown: declare `past_len`
- the width of a window around a query has several meanings, also if the two sides of the window differ: declare `window_means`
- an array of integers holds a number above 1, and the numbers do not number documents (each in one run, the next document with the next
  number): a 2 may mark global tokens
- a prefix is declared for left-padded rows: declare `prefix_from`
- the array holds 0 and large negative numbers, but a convention of truth values is declared: declare `convention=additive`, or give 0 and 1
- the kind is `chunked`, and the mask lets tokens also read all earlier chunks, as in streaming models: give the intended mask `causal | chunk(SIZE)`
- the complement of a boolean array is the declared mask, or without a declared kind a known mask: declare `convention` or `api`
- `lengths` are given without the side of the padding, and the mask is padded on the left, or all new tokens of a row are padding if it
  is on the right: declare `padding_side`
- `eos_token_id` is not declared, and the padding id is between tokens of `input_ids`, or other arrays call it a token in several rows

A finding names a usual cause only if it can be true of the data: \"left padding is combined with a causal mask\" needs left padding and a
causal mask. The catalogue below lists all causes of a class.

A mistake may be in all batch rows and heads or in some of them (the sentence names these: \"in head 1 only\"). Undeclared padding
is not part of a repair: the report then gives the finding without a repair, and the question whether the keys are padding. If the array has another
size than declared, the declared mask is built only up to 2^24 cells.

**What to declare.** `api`, `convention` (`keep_bool`, `ignore_bool`, `keep_01`, `additive`), `role` (`attn`, `key_padding`, `cross`),
`kind` (`causal`, `bidirectional`, `sliding`, `chunked`, `prefix_lm`, `causal_packed`, `tree`, `cross`, and combinations such as
`bidirectional_sliding`; `not_causal` is `bidirectional`), `past_len`, `q_len`, `kv_len`, `window`, `window_means`, `chunk`,
`chunk_from`, `prefix_len`, `prefix_from`, `pad_token_id`, `eos_token_id`, `bos_token_id`, `special_token_ids`, `padding_side`, `lengths`,
`kv_written`, `batch`, `heads`, `compute_dtype`, `score_bound`, `position_encoding`, `bias`, `sinks`, `is_causal`, `layers`, `layer_types`,
`layer`, `max_seqlen`, `redactions`; for labels and pooled states `task` (`generation`, `training`, `mlm`), `model_shifts_labels`, `mlm_probability`, `ignore_index`,
`prompt_len`, `pooling`.
A `convention` may be a sentence such as `1 = attend, 0 = hidden` or `true_is_padding`. `api` is `sdpa`, `mha`, `flash_attn`, `xformers`,
`flex_attention`, `transformers`, `diffusers`, `keras`, `jax`, `mlx`, `megatron`, `fairseq`, `vllm` or another word that an error message lists;
for another function leave it out and give `convention`. `kind=block_causal` has two meanings and is an error that names both.
A `window` of W holds W keys including the query itself, unless `window_means` is `keys before the query` (W + 1 including itself), `keys on
each side` or `keys in total`. `chunk_from` and `prefix_from` are `text` (the first non-padding token) or `slot`.
`redactions` are keys that must be hidden: `[3, 4]`, or `[{\"batch\": 1, \"keys\": [7], \"queries\": [8, 9]}]`; without `batch` in all
rows, without `queries` from all queries. A declaration is never ignored: an unknown key, an unknown word, a value of another
type and an array whose shape fits neither the keys nor the queries are errors, and the message names the nearest known word.
Each declaration has one name: `sliding_window=4` is an error that names `window`.

**Arrays that may be given with the mask** (`--with NAME=FILE`): `input_ids`, `lengths`, `attention_mask`, `position_ids`, `segment_ids`,
`cu_seqlens`, `labels`, `kv_positions`, `query_positions`, `kv_written`, `parents`, `block_ids`, `hidden`, `pooled`,
`probabilities`, `scores`, `v`, `completion_ids`, `completion_mask`, and the encoder's and decoder's ids and padding
(`encoder_attention_mask`, `decoder_attention_mask`). For `kind=cross` an `attention_mask` is the encoder's. In a `key_padding_mask` true
marks padding, in an `attention_mask` 1 marks a token; for a `padding_mask`, and for a 0 in `segment_ids`, both readings are tried, and a
verdict that depends on them is a question. `documents` has the lengths of packed documents. With `pooling=mean` and
`prompt_len` the mean may leave out the prompt. Given arrays are also compared with each other: `attention_mask` with `lengths` and
`input_ids`, `position_ids` with padding, documents and the tree of `parents`.
In a file with several arrays the mask is the one named
`mask`, `attn_mask` or `key_padding_mask` (which declares the role), or an `attention_mask` of three or four dimensions. Without a mask (`noren check batch.npz -d pooling=mean`) the
other arrays are checked with the padding that they give, and `attention_mask`, `lengths` and `input_ids` must give the same; if none gives it, the report states this.
The report lists the comparisons that found no mistake (`compared:`), and each array that was not compared, with the array or declaration that the comparison needs
(`not known:`). `probabilities` are compared with the mask, whose rows of keys hold for any number of queries, and without a mask of
the same keys with the padding of the keys, for `kind=cross` that of the encoder. A completion ends with the first eos; in a row without eos it
ends before the padding, and without `pad_token_id` or another padding the last tokens of such a row are a question. One row of `position_ids` is used for all batch rows. Positions that begin the documents themselves are compared with no document.

An array of 0 and a number from -80 to 0 does not hide cells reliably; the -100 of Swin transformers is a note, unless `score_bound`, `scores` or
`probabilities` show that it does not hide them.

**Tiers** are the inputs that the check of a class needs: T0 the mask alone, T1 a declared kind or expression, T2 ids, lengths, positions or labels, T3
intermediate tensors, T4 the running model as a black box (`nr.audit`), T5 gradients. `noren check` finds the classes of T0 to T3;
the classes of T4 and T5 are listed for completeness.

In the pictures the first mask is the intended one. `-` marks a cell that is hidden and should be visible, `+` a cell that is visible and should be
hidden.

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
    writeln!(out, "| class | | tier | mistake |\n|---|---|---|---|").expect("memory");
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
    let causes = class.cause();
    let lines =
        [("Shows", class.shows), ("Found when", class.found), ("Usual cause", &causes), ("Repair", class.repair)];
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

/// Checks that the numbers of the catalogue have no gap, and that no number and no name occurs twice.
#[test]
fn every_number_of_the_catalogue_has_a_class() {
    let codes: BTreeSet<String> = classes().iter().map(|c| c.code.to_string()).collect();
    assert_eq!(codes, (1..=classes().len()).map(|n| format!("C{n:02}")).collect());
    let names: BTreeSet<&str> = classes().iter().map(|c| c.name).collect();
    assert_eq!(names.len(), classes().len());
}
