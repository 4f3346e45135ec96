//! `crates/noren-mask/docs/masks.md`, every atom with its picture, is made here and held up to date.
//!
//! `NOREN_UPDATE=1 cargo test -p noren-picture --test atlas` writes it anew.

use noren_mask::{Facts, Mask, Shape};
use noren_picture::{Draw, TerminalOptions};
use std::fmt::Write;

/// A mask to draw: text, lengths `(queries, keys, offset)`, facts as JSON.
struct Drawn {
    text: &'static str,
    size: (usize, usize, i64),
    facts: &'static str,
}

/// What one heading says and shows.
struct Entry {
    title: &'static str,
    says: &'static str,
    drawn: &'static [Drawn],
}

const fn square(text: &'static str, len: usize) -> Drawn {
    Drawn { text, size: (len, len, 0), facts: "{}" }
}

const fn with(text: &'static str, len: usize, facts: &'static str) -> Drawn {
    Drawn { text, size: (len, len, 0), facts }
}

const ATOMS: &[Entry] = &[
    Entry {
        title: "`full`, `none`",
        says: "Every cell; no cell. A query row that may read nothing is legal: its output is 0.",
        drawn: &[square("full", 4), square("none", 4)],
    },
    Entry {
        title: "`causal`, `causal(offset=n)`",
        says: "Keys up to the query: `k <= q + n`. `causal(offset=-1)` leaves the query itself out.",
        drawn: &[square("causal", 8), square("causal(offset=-1)", 8)],
    },
    Entry {
        title: "`window(left=L, right=R)`",
        says: "`q - L <= k <= q + R`, both ends included. A side left out is open; a negative value shifts it. \
               flash-attention's `window_size=(L, R)` and Splash's `LocalMask` say the same.",
        drawn: &[square("window(left=2, right=1)", 8), square("window(left=2)", 8)],
    },
    Entry {
        title: "`sliding(W)`, `sliding_window(W)`",
        says: "The last `W` keys, the query's own included: `q - W < k <= q`. Mistral's and Hugging Face's \
               `sliding_window=W`; `window(left=W-1, right=0)` in other words.",
        drawn: &[square("sliding(3)", 8)],
    },
    Entry {
        title: "`chunk(C)`",
        says: "Query and key lie in the same chunk of `C` positions: `q / C == k / C`, rounded down.",
        drawn: &[square("chunk(3)", 8)],
    },
    Entry {
        title: "`stride(S)`",
        says: "The distance is a multiple of `S`: `(q - k) mod S == 0`.",
        drawn: &[square("stride(3)", 8)],
    },
    Entry {
        title: "`prefix(n)`, `prefix([n0, n1, ...])`",
        says: "The first `n` keys, one number for all batch rows or one for each. `causal | prefix(n)` is a prefix-LM.",
        drawn: &[square("causal | prefix(3)", 8)],
    },
    Entry {
        title: "`keys(set)`, `queries(set)`, `global(set)`",
        says: "The key is in the set; the query is; either is. A set is a position, a range `a..b` (half open; `a..`, `..b`), a \
               list of these, or `label=\"name\"`, whose positions the facts give. What of a set lies beyond the sequence is \
               not there yet: masks know no lengths. Positions count from the first slot, padding on the left included.",
        drawn: &[
            square("keys([1, 4..6])", 8),
            square("queries(2..4)", 8),
            square("global(0..2)", 8),
            with("full - keys(label=\"pii\")", 8, r#"{"labels": {"pii": [3, 4]}}"#),
        ],
    },
    Entry {
        title: "`padding`, `padding(side=left)`, `padding(lengths=[...])`, `padding(on=both)`",
        says: "The key is a real token of its batch row. Lengths and side come from the facts unless said here. \
               `on=both` empties the rows of padding queries too.",
        drawn: &[
            with("padding", 6, r#"{"lengths": [4]}"#),
            with("causal & padding(side=left)", 6, r#"{"lengths": [4]}"#),
            with("padding(on=both)", 6, r#"{"lengths": [4]}"#),
        ],
    },
    Entry {
        title: "`documents`, `documents([n, ...])`",
        says: "Query and key lie in the same document; documents are packed one after the other. Lengths come from the facts \
               (by batch row) unless said here.",
        drawn: &[square("documents([3, 1, 4])", 8), square("causal & documents([3, 1, 4])", 8)],
    },
    Entry {
        title: "`spans([a..b, ...])`",
        says: "Query and key lie in the same span: an image among text.",
        drawn: &[square("causal | spans([2..5])", 8)],
    },
    Entry {
        title: "`tree(parents=[...], start=n)`",
        says: "The key is the query or one of its ancestors; node `i` stands at position `n + i` (0 unless given), parent -1 is a \
               root. Beside a cache of `n` keys: `keys(..n) | tree(parents=[...], start=n)` (speculative decoding).",
        drawn: &[
            square("tree(parents=[-1, 0, 0, 1, 1, 2])", 6),
            Drawn { text: "keys(..3) | tree(parents=[-1, 0, 0, 1], start=3)", size: (4, 7, 3), facts: "{}" },
        ],
    },
    Entry {
        title: "`clearance`",
        says: "The query's level is at least the key's; levels are facts.",
        drawn: &[with("clearance", 6, r#"{"levels": [0, 1, 2, 0, 1, 0]}"#)],
    },
    Entry {
        title: "`neighborhood(grid=[..], size=[..], dilation=[..])`",
        says: "The key is in the window of grid cells around the query, which begins `size / 2` cells before it in each \
               dimension and moves inward at edges (NATTEN). One to three dimensions, row-major.",
        drawn: &[
            square("neighborhood(grid=[3, 4], size=[3, 3])", 12),
            square("neighborhood(grid=[8], size=[3], dilation=[2])", 8),
        ],
    },
    Entry {
        title: "`random(p, seed)`, `random_blocks(block, count, seed)`",
        says: "Each cell with probability `p`; for each block of queries, `count` of the blocks that all `kv_len` keys make. \
               Fixed by the seed and the positions (Philox 4x32-10), the same on every machine; `random_blocks` by \
               `kv_len` too, so decoding step by step draws other blocks than one pass.",
        drawn: &[square("random(0.3, 1)", 8), square("random_blocks(2, 2, 1)", 8)],
    },
    Entry {
        title: "`dense(name)`, `closure(name)`",
        says: "The named array of the facts says so (dense, sparse rows, a list of cells or of blocks; polarity always named), \
               or a Rust closure over (batch, head, query, key).",
        drawn: &[with("dense(mine)", 3, r#"{"arrays": {"mine": {"keep": [[1, 0, 0], [1, 1, 0], [0, 1, 1]]}}}"#)],
    },
    Entry {
        title: "`heads(0..4: m, ...)`, `batch(...)`, `layers(...)`",
        says: "By query head, batch row or layer: the arm that names it says so, and no arm means that nothing is allowed. \
               Arms are `3`, `0..4`, `[0, 2]`, `every 2`, `every 6 from 5` or `else`.",
        drawn: &[square("heads(0: causal, else: sliding(2))", 6)],
    },
];

const MODELS: &[Entry] = &[
    Entry { title: "GPT, Llama", says: "Causal.", drawn: &[square("causal", 6)] },
    Entry { title: "BERT", says: "Padding.", drawn: &[with("padding", 6, r#"{"lengths": [4]}"#)] },
    Entry { title: "Mistral", says: "A sliding window.", drawn: &[square("sliding(3)", 8)] },
    Entry {
        title: "StreamingLLM, attention sinks",
        says: "A sliding window and the first keys.",
        drawn: &[square("sliding(3) | causal & keys(0..2)", 9)],
    },
    Entry { title: "Llama 4", says: "Chunks, causal inside.", drawn: &[square("causal & chunk(3)", 9)] },
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
        says: "The last keys, and every S-th before them.",
        drawn: &[square("causal & (window(left=2) | stride(4))", 10)],
    },
    Entry {
        title: "PaliGemma, T5-style prefix",
        says: "A prefix that reads itself both ways, then causal text.",
        drawn: &[square("causal | prefix(4)", 8)],
    },
    Entry {
        title: "Packed training batch",
        says: "Documents one after the other, causal inside each.",
        drawn: &[square("causal & documents([3, 5, 2])", 10)],
    },
    Entry {
        title: "Block diffusion",
        says: "Blocks read themselves both ways and all earlier blocks.",
        drawn: &[square("causal | chunk(3)", 9)],
    },
    Entry {
        title: "Speculative decoding",
        says: "New tokens read the cache and their own branch.",
        drawn: &[Drawn { text: "keys(..4) | tree(parents=[-1, 0, 0, 1, 2], start=4)", size: (5, 9, 4), facts: "{}" }],
    },
];

fn draw(out: &mut String, drawn: &Drawn) {
    let mask: Mask = drawn.text.parse().unwrap();
    let (q, k, offset) = drawn.size;
    let heads = if drawn.text.contains("heads(") { 2 } else { 1 };
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
         `q` and `k` are the positions of the query and the key: query row `i` stands at position `i + query_offset`, key `j` at \
         position `j`, or where the facts place it. In the pictures queries run down and keys across; the command draws them, for example\n\n\
         ```sh\nnoren show 'causal & documents([3, 1, 4])'\n```\n\n\
         Atoms combine with `!a` (or `~a`), `a - b` (a and not b), `a & b` and `a | b`, binding in this order from the tightest, \
         as in Rust and Python.\n\n## Atoms\n\n",
    );
    section(&mut out, ATOMS);
    out.push_str("## What models use\n\n");
    section(&mut out, MODELS);
    out.push_str(
        "## Scores\n\n\
         A whole spec is a mask and what is done to the scores: `causal & padding + alibi + softcap(30)`. The order of operations \
         is fixed: scale, softcap, bias, soft weights, mask, softmax with sinks.\n\n\
         | score | what it does |\n|---|---|\n\
         | `bias`, `bias(name)` | adds the named array, broadcast over `[batch, heads, q_len, kv_len]` |\n\
         | `relative`, `relative(name)` | adds entry `clamp(k - q, -reach, reach) + reach` of the named table `[heads, 2 * reach + 1]` |\n\
         | `alibi`, `alibi(slopes=[...])` | adds `-slope * distance`; slopes are `2^(-8 (h + 1) / heads)` unless given |\n\
         | `softcap(c)` | `c * tanh(score / c)` |\n\
         | `soft`, `soft(name)` | multiplies `exp(score)` by weights in [0, 1]; 0 means not allowed |\n\
         | `sinks`, `sinks(name)` | a logit by head that joins the softmax's denominator only |\n",
    );
    out
}

fn section(out: &mut String, entries: &[Entry]) {
    for entry in entries {
        writeln!(out, "### {}\n\n{}\n", entry.title, entry.says).unwrap();
        entry.drawn.iter().for_each(|d| draw(out, d));
    }
}

#[test]
fn the_page_of_masks_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../noren-mask/docs/masks.md");
    let page = page();
    if std::env::var_os("NOREN_UPDATE").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../noren-mask/docs")).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "crates/noren-mask/docs/masks.md is out of date: NOREN_UPDATE=1 cargo test -p noren-picture --test atlas"
    );
}
