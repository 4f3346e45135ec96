//! `Mask::equivalent`, compared with a comparison of all cells.

use noren_mask::{Equivalence, Facts, Mask, Shape};

fn mask(text: &str) -> Mask {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn equivalent(a: &str, b: &str) -> Equivalence {
    mask(a).equivalent(&mask(b)).unwrap_or_else(|error| panic!("{a} and {b}: {error}"))
}

fn assert_equal(a: &str, b: &str) {
    match equivalent(a, b) {
        Equivalence::Equal { .. } => {}
        other => panic!("{a} and {b}: {other:?}"),
    }
}

/// Returns the length, query and key of the first difference.
fn difference(a: &str, b: &str) -> (usize, usize, usize) {
    match equivalent(a, b) {
        Equivalence::Differ { shape, facts, cell, layer, only_first, .. } => {
            let bound =
                [a, b].map(|text| mask(text).at_layer(layer).bind(&shape, &facts).expect("it was bound before"));
            let allowed = [0, 1].map(|i| bound[i].allowed(cell.batch, cell.head, cell.q, cell.k));
            assert_eq!(allowed, [only_first, !only_first], "{a} and {b} in {cell}");
            (shape.q_len(), cell.q, cell.k)
        }
        other => panic!("{a} and {b}: {other:?}"),
    }
}

#[test]
fn the_same_cells_written_differently() {
    for (a, b) in [
        ("causal & window(left=3)", "sliding(4)"),
        ("sliding(4)", "window(left=3, right=0)"),
        ("causal & chunk(4) | causal & !chunk(4)", "causal"),
        ("chunk(1)", "window(left=0, right=0)"),
        ("stride(2) & stride(3)", "stride(6)"),
        ("stride(1)", "full"),
        ("!(causal | keys(5..))", "!causal & keys(..5)"),
        ("sliding(70000) & chunk(8192)", "causal & chunk(8192)"),
        ("global([3, 9])", "keys([3, 9]) | queries([3, 9])"),
        ("documents([5, 3])", "spans([0..5, 5..8])"),
        ("tree(parents=[-1, 0, 1, 2])", "causal & spans([0..4])"),
        ("padding & causal", "causal & padding"),
        ("padding(on=both) & causal", "causal & padding(on=both) & padding"),
        ("documents - padding", "documents & !padding"),
        ("random(0.5, 7) & causal", "causal - !random(0.5, 7)"),
        ("heads(0..2: causal, else: full)", "heads(0: causal, 1: causal, else: full)"),
        (
            "layers(every 2: sliding(8), else: causal)",
            "layers(every 4: sliding(8), every 4 from 2: sliding(8), else: causal)",
        ),
        ("prefix([3, 7])", "batch(0: keys(..3), 1: keys(..7))"),
        ("neighborhood(grid=[9], size=[1])", "window(left=0, right=0)"),
        ("padding(side=right, lengths=[4])", "keys(..4)"),
        ("chunk(4611686018427387904) & stride(4611686018427387904)", "window(left=0, right=0)"),
    ] {
        assert_equal(a, b);
    }
}

#[test]
fn the_first_difference_has_the_shortest_length() {
    assert_eq!(difference("causal", "sliding(50000)"), (50_001, 50_000, 0));
    assert_eq!(difference("full", "keys(..50000)"), (50_001, 0, 50_000));
    assert_eq!(difference("causal", "full"), (2, 0, 1));
    assert_eq!(difference("stride(6)", "stride(2) & stride(9)").0, 7);
    assert_eq!(difference("chunk(64)", "chunk(65)"), (65, 0, 64));
    assert_eq!(difference("chunk(4)", "spans([0..4, 4..8, 8..12])"), (13, 12, 12));
    assert_eq!(difference("causal", "sliding(1000000000)").0, 1_000_000_001);
    assert_eq!(difference("padding & causal", "padding").0, 2);
    assert_eq!(difference("keys(label=\"a\")", "queries(label=\"a\")").0, 2);
    assert_eq!(difference("documents", "clearance").0, 2);
    // with padding on the left, the listed documents begin at the first non-padding token
    assert_eq!(difference("documents([5, 3]) & padding", "spans([0..5, 5..8]) & padding").0, 9);
    assert_eq!(difference("padding(lengths=[4]) & padding", "keys(..4) & padding").0, 5);
    let left = equivalent("padding(side=left, lengths=[2])", "keys(1..)");
    assert!(matches!(left, Equivalence::Differ { shortest: false, .. }), "equal at length 3: {left}");
    let far = "queries(..4611686018427387904) & window(right=4611686018427387904)";
    assert_eq!(difference(far, "none").0, 1);
    assert_eq!(difference("heads(every 3: causal, else: full)", "heads(every 2: causal, else: full)").0, 2);
    assert_eq!(difference("layers(0..5: causal, else: full)", "layers(0..6: causal, else: full)").0, 2);
}

#[test]
fn what_no_comparison_decides_is_named() {
    for (a, b, named) in [("dense(\"a\")", "dense(\"b\")", "dense(a)"), ("causal & dense(\"a\")", "causal", "dense(a)")]
    {
        match equivalent(a, b) {
            Equivalence::Undecided { atoms, .. } => assert!(atoms.iter().any(|atom| atom == named), "{atoms:?}"),
            other => panic!("{a} and {b}: {other:?}"),
        }
    }
    for (a, b, reason) in [
        ("documents([5, 3])", "documents([4, 3])", "no sequence length"),
        ("prefix([1, 2])", "prefix([1, 2, 3])", "no batch"),
        (
            "heads(every 2: chunk(65521) & stride(65519), else: causal)",
            "heads(every 2: chunk(65521) & stride(65519), else: causal & !stride(3) | causal & stride(3))",
            "no difference was found at length 256 and 2048",
        ),
        ("documents([2000000000]) & chunk(65521) & stride(65519)", "documents([2000000000]) & chunk(65521)", "steps"),
        ("stride(99991) & stride(99989)", "stride(99991) & stride(99989) | none & stride(3)", "2^32"),
    ] {
        match equivalent(a, b) {
            Equivalence::Undecided { reason: given, .. } => assert!(given.contains(reason), "{given}"),
            other => panic!("{a} and {b}: {other:?}"),
        }
    }
}

#[test]
fn hostile_masks_are_answered_soon() {
    let heads = |arm: &str| format!("heads(every 2: chunk(65521) & stride(65519), else: {arm})");
    assert_eq!(difference(&heads("causal"), &heads("full")).0, 256);
    let labels = r#"clearance & keys(label="a") & keys(label="b") & keys(label="c") & keys(label="d") & padding & causal(offset=-1000000)"#;
    equivalent(labels, "none");
    let every_other =
        |n: u64| format!("global([{}])", (0..n).map(|i| (2 * i).to_string()).collect::<Vec<_>>().join(", "));
    equivalent(&every_other(6000), &every_other(5999));
    let chain = |n: i64| format!("tree(parents=[{}])", (-1..n).map(|i| i.to_string()).collect::<Vec<_>>().join(", "));
    equivalent(&chain(9000), &chain(8999));
}

/// A generator of pseudo-random numbers with the same pairs on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn number(&mut self, n: u64) -> u64 {
        // mostly small numbers, sometimes numbers near 64 to 150
        match self.below(4) {
            0 => 60 + self.below(90),
            _ => self.below(n),
        }
    }

    fn set(&mut self) -> String {
        let a = self.number(12);
        match self.below(4) {
            0 => format!("{a}"),
            1 => format!("{a}.."),
            2 => format!("[{a}, {}..{}]", a + 2, a + 3 + self.below(5)),
            _ => format!("{a}..{}", a + 1 + self.number(10)),
        }
    }

    fn atom(&mut self) -> String {
        let n = self.number(9) + 1;
        match self.below(16) {
            0 => "full".into(),
            1 => "causal".into(),
            2 => format!("causal(offset={})", self.below(9) as i64 - 4),
            3 => format!("window(left={}, right={})", self.number(7), self.below(7)),
            4 => format!("window(left={})", n as i64 - 3),
            5 | 6 => format!("sliding({n})"),
            7 | 8 => format!("chunk({})", 1 + self.below(9)),
            9 | 10 => format!("stride({})", 1 + self.below(5)),
            11 => format!("keys({})", self.set()),
            12 => format!("queries({})", self.set()),
            13 => format!("global({})", self.set()),
            14 => format!("spans([{n}..{}])", n + 1 + self.below(70)),
            _ => format!("tree(parents=[-1, 0, 0, 1], start={})", self.number(6)),
        }
    }

    fn expression(&mut self, depth: u32) -> String {
        if depth == 0 || self.below(4) == 0 {
            return self.atom();
        }
        let a = self.expression(depth - 1);
        match self.below(5) {
            0 => format!("!({a})"),
            1 => format!("(({a}) - ({}))", self.expression(depth - 1)),
            2 => format!("(({a}) | ({}))", self.expression(depth - 1)),
            _ => format!("(({a}) & ({}))", self.expression(depth - 1)),
        }
    }

    /// Returns another text with the same cells.
    fn rewritten(&mut self, a: &str) -> String {
        match self.below(5) {
            0 => mask(a).simplify().to_string(),
            1 => format!("!!({a})"),
            2 => format!("({a}) & sliding(4) | ({a}) - (causal & window(left=3))"),
            3 => format!("!(!({a}) | chunk(3)) | ({a}) & chunk(3)"),
            _ => format!("({a}) & stride(2) | ({a}) & !stride(2)"),
        }
    }

    /// Returns a text with few different cells, or with differences only at large distances.
    fn nudged(&mut self, a: &str) -> String {
        let at = 65 + self.below(120);
        match self.below(5) {
            0 => format!("({a}) - keys({at}..{})", at + 1),
            1 => format!("({a}) | spans([{at}..{}])", at + 1 + self.below(4)),
            2 => format!("({a}) & window(left={at}, right={at})"),
            3 => format!("({a}) | window(right=-{at})"),
            _ => format!("({a}) - (keys({at}) & queries({}..))", at + self.below(20)),
        }
    }
}

/// Returns the number of random pairs, times `NOREN_LENGTHS`.
fn pairs() -> u64 {
    let times = std::env::var("NOREN_LENGTHS").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(1);
    250 * times
}

/// Without facts a cell does not depend on the length, so a mask of length 200 has the cells of all smaller lengths.
#[test]
fn random_pairs_agree_with_the_cells() {
    let (mut equal, mut near, mut far) = (0, 0, 0);
    let mut draw = Draw(20_261_122);
    for _ in 0..pairs() {
        let a = draw.expression(3);
        let b = match draw.below(3) {
            0 => draw.rewritten(&a),
            1 => draw.nudged(&a),
            _ => draw.expression(3),
        };
        let bound =
            |text: &str, n: usize| mask(text).bind(&Shape::square(n), &Facts::new()).expect("no facts are needed");
        let (first, second) = (bound(&a, 200), bound(&b, 200));
        let cells = (0..200usize).flat_map(|q| (0..200usize).map(move |k| (q, k)));
        let differing = cells.filter(|(q, k)| first.allowed(0, 0, *q, *k) != second.allowed(0, 0, *q, *k));
        let shortest = differing.map(|(q, k)| q.max(k) + 1).min();
        match (equivalent(&a, &b), shortest) {
            (Equivalence::Equal { .. }, None) => equal += 1,
            (Equivalence::Differ { shape, .. }, Some(n)) => {
                assert_eq!(shape.q_len(), n, "{a}\n{b}");
                difference(&a, &b);
                match n {
                    0..=64 => near += 1,
                    _ => far += 1,
                }
            }
            (Equivalence::Differ { shape, .. }, None) => {
                // a difference after 200 tokens, and none before
                let n = shape.q_len();
                assert!(n > 200, "{a}\n{b}");
                assert!(bound(&a, n - 1).same_cells(&bound(&b, n - 1)).expect("one shape"), "{a}\n{b}");
                difference(&a, &b);
                far += 1;
            }
            (Equivalence::Undecided { reason, .. }, _) => panic!("{a}\n{b}: {reason}"),
            (Equivalence::Equal { .. }, Some(n)) => panic!("{a}\n{b} differ at length {n}"),
            (other, _) => panic!("{a}\n{b}: {other:?}"),
        }
    }
    println!("{equal} pairs equal at every length, {near} differ within 64 tokens, {far} beyond");
    assert!(equal * 10 > pairs() && near * 10 > pairs() && far * 20 > pairs(), "{equal} {near} {far}");
}
