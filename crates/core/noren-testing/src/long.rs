//! Long masks, for measurements and limits of planning time.

use noren_mask::{Facts, Mask};

/// A long test case, `(name, mask, facts, length in tokens)`.
pub type Long = (&'static str, Mask, Facts, usize);

const MIB: usize = 1 << 20;
const LEN: usize = 131_072;
/// The lengths of the 13 packed documents of the interval-plan benchmark.
const PACKED: [usize; 13] = [11858, 8270, 12765, 11038, 4578, 14018, 11721, 11988, 4942, 8393, 7541, 13495, 10465];

/// Returns `count` very different lengths with the sum `total`.
fn uneven(count: usize, total: usize) -> Vec<usize> {
    let weight = |i: usize| 1 + (i * 7919) % 97;
    let sum: usize = (0..count).map(weight).sum();
    let mut lengths: Vec<usize> = (0..count).map(|i| total * weight(i) / sum).collect();
    lengths[0] += total - lengths.iter().sum::<usize>();
    lengths
}

/// Returns a complete binary tree of `nodes` nodes in breadth-first order: the children of a node are consecutive.
fn breadth_first(nodes: i64) -> Mask {
    noren_mask::atoms::tree((0..nodes).map(|i| if i == 0 { -1 } else { (i - 1) / 2 }).collect::<Vec<_>>(), 0)
}

/// Returns a tree with a trunk and branches of `branch` nodes. The nodes of a branch are consecutive.
fn depth_first(nodes: i64, branch: i64) -> Mask {
    let parent = |i: i64| if i % branch == 0 { i / (8 * branch) * branch - 1 } else { i - 1 };
    noren_mask::atoms::tree((0..nodes).map(|i| parent(i).max(-1)).collect::<Vec<_>>(), 0)
}

fn parse(text: &str) -> Mask {
    text.parse().expect("the text of a case")
}

/// Returns the long masks: several masks of one and two million tokens, and the eight masks of the interval-plan
/// benchmark.
pub fn masks() -> Vec<Long> {
    let window = || parse("sliding(4096) | (causal & keys(0..4))");
    let documents = || parse("causal & documents");
    let packed = || Facts::new().documents(PACKED.to_vec());
    let mut cases = Vec::new();
    for len in [MIB, 2 * MIB] {
        cases.push(("window with sinks", window(), Facts::new(), len));
        let lengths = uneven(len / (MIB / 1000), len);
        cases.push(("documents", documents(), Facts::new().documents(lengths), len));
    }
    let starts = PACKED.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
    let prefixes: Vec<_> = starts.map(|at| format!("{at}..{}", at + 500)).collect();
    let prefixes = parse(&format!("documents & (causal | spans([{}]))", prefixes.join(", ")));
    cases.extend([
        ("causal", parse("causal"), Facts::new(), LEN),
        ("packed", documents(), packed(), LEN),
        ("sliding", parse("sliding(512)"), Facts::new(), LEN),
        ("sinks and sliding", parse("sliding(512) | causal & keys(0..4)"), Facts::new(), LEN),
        ("tree, depth first", depth_first(LEN as i64, 1024), Facts::new(), LEN),
        ("tree, breadth first", breadth_first(LEN as i64), Facts::new(), LEN),
        ("longformer", parse("window(left=256, right=256) | global(0..8)"), Facts::new(), LEN),
        ("strided", parse("causal & stride(8)"), Facts::new(), MIB),
        ("far strides", parse("causal & stride(4096)"), Facts::new(), MIB),
        (
            "scattered globals",
            parse("window(left=256, right=256) | global([5, 9000, 70000, 131000])"),
            Facts::new(),
            LEN,
        ),
        ("packed prefix-LM", prefixes, packed(), LEN),
    ]);
    cases
}
