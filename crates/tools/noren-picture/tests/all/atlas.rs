//! Writes and checks `crates/core/noren-mask/docs/masks.md`, the page with a picture of every atom. Atoms provide their text
//! and their pictures.
//!
//! `NOREN_UPDATE=1 cargo test -p noren-picture --test all atlas::` writes the page again.

use noren_mask::atom::Picture;
use noren_mask::{Facts, Mask, Shape};
use noren_picture::{Draw, TerminalOptions};
use std::fmt::Write;

/// The text and the pictures of one heading.
struct Entry {
    title: &'static str,
    says: &'static str,
    drawn: &'static [Picture],
}

const fn square(mask: &'static str, len: usize) -> Picture {
    Picture { mask, size: (len, len, 0), facts: "{}" }
}

const fn with(mask: &'static str, len: usize, facts: &'static str) -> Picture {
    Picture { mask, size: (len, len, 0), facts }
}

const MODELS: &[Entry] = &[
    Entry { title: "GPT, Llama", says: "Causal.", drawn: &[square("causal", 6)] },
    Entry { title: "BERT", says: "Padding.", drawn: &[with("padding", 6, r#"{"lengths": [4]}"#)] },
    Entry { title: "Mistral", says: "A sliding window.", drawn: &[square("sliding(3)", 8)] },
    Entry {
        title: "StreamingLLM, attention sinks",
        says: "A sliding window and the first keys.",
        drawn: &[square("sliding(3) | causal & keys(0..2)", 9)],
    },
    Entry {
        title: "Llama 4",
        says: "Chunks, with a causal mask inside each.",
        drawn: &[square("causal & chunk(3)", 9)],
    },
    Entry {
        title: "Longformer",
        says: "A window and global tokens.",
        drawn: &[square("window(left=1, right=1) | global(0..1)", 9)],
    },
    Entry {
        title: "BigBird",
        says: "Window, global tokens and random blocks.",
        drawn: &[square("window(left=1, right=1) | global(0..2) | random_blocks(2, 1, 3)", 10)],
    },
    Entry {
        title: "Sparse Transformer",
        says: "The last keys, and every S-th key before them.",
        drawn: &[square("causal & (window(left=2) | stride(4))", 10)],
    },
    Entry {
        title: "PaliGemma, T5-style prefix",
        says: "A prefix that reads itself in both directions, then causal text.",
        drawn: &[square("causal | prefix(4)", 8)],
    },
    Entry {
        title: "Gemma 3 with an image",
        says: "In its local layers, a sliding window, and the tokens of an image read each other.",
        drawn: &[square("sliding(3) | spans([2..5])", 9)],
    },
    Entry {
        title: "Packed training batch",
        says: "Packed documents, with a causal mask inside each.",
        drawn: &[square("causal & documents([3, 5, 2])", 10)],
    },
    Entry {
        title: "Block diffusion",
        says: "Each block reads itself in both directions and all earlier blocks.",
        drawn: &[square("causal | chunk(3)", 9)],
    },
    Entry {
        title: "Speculative decoding",
        says: "New tokens read the cache and their own branch.",
        drawn: &[Picture { mask: "keys(..4) | tree(parents=[-1, 0, 0, 1, 2], start=4)", size: (5, 9, 4), facts: "{}" }],
    },
];

fn draw(out: &mut String, drawn: &Picture) {
    let mask: Mask = drawn.mask.parse().unwrap();
    let (q, k, offset) = drawn.size;
    let heads = if drawn.mask.contains("heads(") { 2 } else { 1 };
    let bound = mask.bind(&Shape::new(q, k, offset).heads(heads), &Facts::from_json(drawn.facts).unwrap()).unwrap();
    let picture = bound.picture().to_terminal(&TerminalOptions::default()).unwrap();
    if drawn.facts != "{}" {
        writeln!(out, "With the facts `{}`:\n", drawn.facts).unwrap();
    }
    writeln!(out, "```text\n{}\n```\n", picture.trim_end()).unwrap();
}

fn page() -> String {
    let mut out = String::from(
        "# Every mask\n\n\
         `q` and `k` are the positions of the query and the key. Query row `i` has position `i + query_offset`. Key `j` has \
         position `j`, unless the facts give another one. In the pictures, each row is a query and each column is a key. This \
         command draws a picture:\n\n\
         ```sh\nnoren show 'causal & documents([3, 1, 4])'\n```\n\n\
         Atoms combine with `!a` (or `~a`), `a - b` (a and not b), `a & b` and `a | b`. The precedence falls in this order, \
         as in Rust and Python.\n\n## Atoms\n\n",
    );
    for word in noren_mask::language::atoms() {
        section(&mut out, &Entry { title: word.title, says: word.doc, drawn: word.pictures });
    }
    out.push_str("## What models use\n\n");
    MODELS.iter().for_each(|entry| section(&mut out, entry));
    out.push_str(
        "## Scores\n\n\
         A spec is a mask with score modifiers: `causal & padding + alibi + softcap(30)`. The order of operations \
         is fixed: scale, softcap, bias, soft weights, mask, softmax with sinks.\n\n\
         | score | effect |\n|---|---|\n\
         | `bias`, `bias(name)` | adds the named array, broadcast over `[batch, heads, q_len, kv_len]` |\n\
         | `relative`, `relative(name)` | adds entry `clamp(k - q, -reach, reach) + reach` of the named table `[heads, 2 * reach + 1]` |\n\
         | `alibi`, `alibi(slopes=[...])` | adds `-slope * distance`; the default slope of head `h` is `2^(-8 (h + 1) / heads)` |\n\
         | `softcap(c)` | replaces the score by `c * tanh(score / c)` |\n\
         | `soft`, `soft(name)` | multiplies `exp(score)` by weights in [0, 1]; 0 means not allowed |\n\
         | `sinks`, `sinks(name)` | adds one logit per head to the softmax's denominator only |\n",
    );
    out
}

fn section(out: &mut String, entry: &Entry) {
    writeln!(out, "### {}\n\n{}\n", entry.title, entry.says).unwrap();
    entry.drawn.iter().for_each(|d| draw(out, d));
}

#[test]
fn the_page_of_masks_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/noren-mask/docs/masks.md");
    let page = page();
    if std::env::var_os("NOREN_UPDATE").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/noren-mask/docs")).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "crates/core/noren-mask/docs/masks.md is out of date: NOREN_UPDATE=1 cargo test -p noren-picture --test all atlas::"
    );
}
