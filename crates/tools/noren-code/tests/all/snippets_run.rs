//! The Rust code of every case of the corpus, and of every score modifier, is compiled (`snippets.rs`) and run. The weights of its
//! attention are compared with the definition of the mask and with the reference of attention.

use crate::snippets::{Given, SNIPPETS};
use noren::{Inputs, Options, View, reference};
use noren_code::{Target, code};
use noren_mask::{Facts, Shape, Spec};
use noren_testing::drawn;
use std::fmt::Write as _;
use std::path::Path;

/// A mask whose code is run.
struct Case {
    spec: Spec,
    shape: Shape,
    facts: Facts,
}

/// Returns the cases of the corpus, and masks with each score modifier.
fn cases() -> Vec<Case> {
    let corpus = drawn::cases().into_iter().map(|(file, case)| {
        let named = |error: String| format!("{file}: {}: {error}", case.name);
        let mask = case.mask().map_err(named).expect("a mask of the corpus");
        let facts = case.facts().map_err(named).expect("facts of the corpus");
        Case { spec: mask.into(), shape: case.shape(), facts }
    });
    let padded = Shape::square(6).batch(2).heads(4).kv_heads(2);
    let scored = [
        ("causal + bias", Shape::square(5)),
        ("causal & padding + relative", padded.clone()),
        ("causal & padding + alibi", padded.clone()),
        ("sliding(3) + alibi([0.5, 0.25, 1, 2])", padded.clone()),
        ("causal + softcap(2.5)", Shape::cached(4, 3)),
        ("full + soft", padded.clone()),
        ("padding + sinks", padded.clone()),
        ("causal & padding + softcap(5) + bias + bias(relative) + alibi + soft + sinks", padded),
    ];
    let scored = scored.map(|(text, shape)| {
        let facts = Facts::new().lengths(if shape.batch_len() == 2 { vec![6, 4] } else { vec![shape.kv_len()] });
        Case { spec: text.parse().expect("a mask with scores"), shape, facts: facts.side(noren_mask::Side::Left) }
    });
    corpus.chain(scored).collect()
}

/// Returns the text of `snippets.rs`: one function for each case.
fn written() -> String {
    let mut text = String::from(
        "//! The Rust code of masks, one function for each. `NOREN_UPDATE=1 cargo test -p noren-code --test all snippets` writes this file.\n\
         #![allow(unused_variables)]\n\n\
         /// An array with its shape.\n\
         pub(crate) type Tensor<'a> = (&'a [f32], [usize; 4]);\n\n\
         /// The arrays that the code reads: query, key, value, and the arrays of scores.\n\
         pub(crate) type Given<'a> = [Tensor<'a>; 7];\n\n\
         /// Returns the output of attention.\n\
         pub(crate) type Snippet = fn(Given<'_>) -> Result<Vec<f32>, noren::Error>;\n",
    );
    let count = cases().len();
    for (at, case) in cases().iter().enumerate() {
        let found = code(&case.spec, &case.shape, &case.facts, Target::Rust);
        let code = found.unwrap_or_else(|error| panic!("{}: {error}", case.spec)).text;
        let body = code.trim_end().replace('\n', "\n    ").replace("\n    \n", "\n\n");
        let _ = write!(
            text,
            "\nfn snippet_{at}([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {{\n    {body}\n    Ok(output)\n}}\n"
        );
    }
    let _ = writeln!(text, "\n/// The functions of this file.\npub(crate) const SNIPPETS: [Snippet; {count}] = [");
    (0..count).for_each(|at| {
        let _ = writeln!(text, "    snippet_{at},");
    });
    text + "];\n"
}

#[test]
fn the_compiled_code_is_the_code_of_today() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/snippets.rs");
    let written = written();
    if std::env::var_os("NOREN_UPDATE").is_some() {
        std::fs::write(&path, &written).expect("the file of snippets is writable");
    }
    let stored = std::fs::read_to_string(&path).expect("the file of snippets");
    let differs = stored.lines().zip(written.lines()).find(|(stored, written)| stored != written);
    assert!(
        stored == written,
        "the code of masks has changed, first in {differs:?}: run NOREN_UPDATE=1 cargo test -p noren-code --test all snippets, twice"
    );
}

/// Returns numbers from -1 to 1 that depend on `seed`.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

/// Compares the weights of one snippet with the definition. Returns the number of compared cells.
fn compare(at: usize, case: &Case) -> usize {
    let shape = &case.shape;
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    let (q_len, kv_len) = (shape.q_len(), shape.kv_len());
    let (seed, dim) = (at as u64 * 8, 4);
    let query = numbers(seed, batch * heads * q_len * dim);
    let key = numbers(seed + 1, batch * kv_heads * kv_len * dim);
    // the values are the identity matrix, so that the output is the weights
    let value: Vec<f32> = (0..batch * kv_heads * kv_len * kv_len)
        .map(|i| if i / kv_len % kv_len == i % kv_len { 1.0 } else { 0.0 })
        .collect();
    let whole = [batch, heads, q_len, kv_len];
    let bias = numbers(seed + 2, whole.iter().product());
    let soft: Vec<f32> = numbers(seed + 3, whole.iter().product()).iter().map(|n| n.abs().max(0.1)).collect();
    let sinks = numbers(seed + 4, heads);
    // `bias(relative)` takes this array as a bias, `relative` as a table with a reach of 2
    let table = !case.spec.to_string().contains("bias(relative)");
    let shape_of_table = if table { [1, heads, 1, 5] } else { whole };
    let relative = numbers(seed + 5, shape_of_table.iter().product());
    let given: Given<'_> = [
        (&query, [batch, heads, q_len, dim]),
        (&key, [batch, kv_heads, kv_len, dim]),
        (&value, [batch, kv_heads, kv_len, kv_len]),
        (&bias, whole),
        (&relative, shape_of_table),
        (&soft, whole),
        (&sinks, [1, 1, 1, heads]),
    ];
    let output = SNIPPETS[at](given).unwrap_or_else(|error| panic!("{} over {shape:?}: {error}", case.spec));
    let view = |i: usize| View::new(given[i].0, given[i].1);
    let options = Options::for_scores(&case.spec.scores, heads, |_, name| {
        view(["bias", "relative", "soft", "sinks"].iter().position(|known| *known == name).expect("a known array") + 3)
    });
    let bound = case.spec.mask.bind(shape, &case.facts).expect("the mask binds");
    let part = |i: usize| view(i).expect("a view");
    let inputs = Inputs { q: part(0), k: part(1), v: part(2) };
    let weights = reference::forward(&inputs, &bound, &options.expect("options")).expect("the reference").out;
    for (i, (found, weight)) in output.iter().zip(&weights).enumerate() {
        let (k, row) = (i % kv_len, i / kv_len);
        let cell @ [b, h, q] = [row / q_len / heads, row / q_len % heads, row % q_len];
        let what =
            || format!("{} over {shape:?}, cell {cell:?}, key {k}: weight {found}, by definition {weight}", case.spec);
        assert_eq!(*found > 0.0, bound.allowed(b, h, q, k), "{}", what());
        assert!((f64::from(*found) - weight).abs() < 1e-5, "{}", what());
    }
    assert_eq!(output.len(), whole.iter().product::<usize>());
    output.len()
}

#[test]
fn every_snippet_has_the_cells_and_weights_of_its_mask() {
    let cases = cases();
    assert_eq!(cases.len(), SNIPPETS.len(), "snippets.rs is out of date");
    let cells: usize = cases.iter().enumerate().map(|(at, case)| compare(at, case)).sum();
    println!("{} snippets, {cells} cells", cases.len());
    assert!(cases.len() > 230 && cells > 10_000, "{} cases, {cells} cells", cases.len());
}
