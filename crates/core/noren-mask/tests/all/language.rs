//! The text language: printed text parses back, and no text causes a crash.

use crate::common::{Universe, atoms, expressions, unusual_atoms, unusual_names};
use noren_mask::atoms::*;
use noren_mask::{Mask, Score, Span, Spec};
use proptest::prelude::*;

const UNIVERSE: Universe = Universe { batch: 2, heads: 4, len: 12 };

fn parsed(text: &str) -> Mask {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that each text prints as itself.
#[test]
fn canonical_texts() {
    for text in [
        "full",
        "none",
        "causal",
        "causal(offset=-1)",
        "window(left=5, right=3)",
        "window(left=-5)",
        "window(right=0)",
        "sliding(4096)",
        "chunk(512)",
        "stride(8)",
        "prefix(16)",
        "prefix([3, 0])",
        "prefix([])",
        "keys(3)",
        "keys(0..4)",
        "keys(4..)",
        "keys(7..7)",
        "keys([3, 9, 10..14])",
        "keys([])",
        "keys(label=\"pii\")",
        "queries(0..4)",
        "global(label=\"a \\\"b\\\"\")",
        "padding",
        "padding(side=left)",
        "padding(side=right, lengths=[5, 3], on=both)",
        "padding(on=both)",
        "documents",
        "documents([33, 31])",
        "spans([4..20, 30..46])",
        "spans([4])",
        "tree(parents=[-1, 0, 0])",
        "tree(parents=[1, -1], start=8)",
        "clearance",
        "neighborhood(grid=[8, 9], size=[3, 5])",
        "neighborhood(grid=[8], size=[3], dilation=[2])",
        "random(0.1, 42)",
        "random(1e-7, 18446744073709551615)",
        "random_blocks(64, 3, 42)",
        "dense(name)",
        "dense(\"a-b\\n\")",
        "dense(näme)",
        "heads(0..4: causal, 4..: sliding(8))",
        "batch(0: causal, [1, 4..9]: full, else: causal & padding | full)",
        "layers(every 2: sliding(4096), every 6 from 5: none, else: causal)",
        "!causal",
        "!!causal",
        "!(causal | full) & padding",
        "causal - full - none",
        "causal - (full - none)",
        "(causal & full) - (padding | none)",
        "!(causal - full)",
        "(causal | full) & !(padding & none) | stride(2) - chunk(2)",
    ] {
        let mask = parsed(text);
        assert_eq!(mask.to_string(), text);
        mask.check().unwrap();
    }
}

#[test]
fn other_ways_to_write() {
    for (text, same) in [
        ("causal()", "causal"),
        ("causal(-1)", "causal(offset=-1)"),
        ("causal(offset = 0)", "causal"),
        ("window(5, 3)", "window(left=5, right=3)"),
        ("window(right=3, left=5,)", "window(left=5, right=3)"),
        ("sliding_window(4_096)", "sliding(4096)"),
        ("sliding(window=4)", "sliding(4)"),
        ("keys(..4)", "keys(0..4)"),
        ("keys(..)", "keys(0..)"),
        ("keys([3])", "keys(3)"),
        ("keys([3..4])", "keys(3)"),
        ("keys(set=3)", "keys(3)"),
        ("keys(label='pii')", "keys(label=\"pii\")"),
        ("keys(label=pii)", "keys(label=\"pii\")"),
        ("padding(left, on=keys)", "padding(side=left)"),
        ("spans(4..20)", "spans([4..20])"),
        ("tree([-1, 0], 3)", "tree(parents=[-1, 0], start=3)"),
        ("neighborhood([8, 9], 3, 1)", "neighborhood(grid=[8, 9], size=[3, 3])"),
        ("neighborhood(8, 3)", "neighborhood(grid=[8], size=[3])"),
        ("random(seed=1, p=1)", "random(1, 1)"),
        ("random(5E-1, 1)", "random(0.5, 1)"),
        ("dense(\"name\")", "dense(name)"),
        ("heads([0]: full)", "heads(0: full)"),
        ("((causal))", "causal"),
        ("(causal & full) & none", "causal & full & none"),
        ("~causal|full", "!causal | full"),
        ("causal # the past\n  &\t# and\n padding", "causal & padding"),
    ] {
        assert_eq!(parsed(text), parsed(same), "{text}");
        assert_eq!(parsed(text).to_string(), same);
    }
}

#[test]
fn precedence() {
    let (a, b, c) = (causal, padding, documents);
    assert_eq!(parsed("causal | padding & documents"), a() | b() & c());
    assert_eq!(parsed("causal & padding - documents"), a() & (b() - c()));
    assert_eq!(parsed("causal - padding & documents"), (a() - b()) & c());
    assert_eq!(parsed("causal - padding & documents").to_string(), "(causal - padding) & documents");
    assert_eq!(parsed("!causal - padding"), !a() - b());
    assert_eq!(parsed("causal - padding - documents"), (a() - b()) - c());
    assert_eq!((a() - (b() & c())).to_string(), "causal - (padding & documents)");
}

#[test]
fn specs() {
    for text in [
        "causal",
        "causal | padding + bias",
        "causal + bias(\"a b\") + relative(r) + alibi + alibi(slopes=[0.5, 0.25]) + softcap(5) + soft + sinks(s)",
    ] {
        let spec: Spec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        spec.check().unwrap();
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
    }
    let spec: Spec = "padding + bias(bias) + softcap(2.5)".parse().unwrap();
    assert_eq!(spec, padding() + Score::bias("bias") + Score::softcap(2.5));
    assert_eq!("causal | padding + bias".parse::<Spec>().unwrap(), causal() | (padding() + Score::bias("bias")));
}

#[test]
fn serde_as_text() {
    let mask = causal() & keys(noren_mask::Positions::label("a\"b"));
    let json = serde_json::to_string(&mask).unwrap();
    assert_eq!(json, r#""causal & keys(label=\"a\\\"b\")""#);
    assert_eq!(serde_json::from_str::<Mask>(&json).unwrap(), mask);
    let error = serde_json::from_str::<Mask>("\"cuasal\"").unwrap_err().to_string();
    assert!(error.starts_with("unknown name `cuasal`: did you mean `causal`?"), "{error}");
    assert_eq!(format!("{:?}", causal() | full()), "Mask(causal | full)");
}

#[test]
fn deep_nesting_is_refused_not_fatal() {
    let deep = 1_000_000;
    for text in [
        "(".repeat(deep),
        "!".repeat(deep) + "causal",
        "~(".repeat(deep),
        "heads(0: ".repeat(deep / 4),
        "keys(".to_string() + &"[".repeat(deep),
        "full".to_string() + &" - full".repeat(deep / 4),
    ] {
        assert!(text.parse::<Mask>().is_err());
    }
    // The maximum depth, and one level more.
    for (open, close) in [("!", ""), ("heads(0: ", ")"), ("full - (", ")"), ("!heads(0: ", ")")] {
        let levels = 255 / open.matches(['!', ':', '-']).count().max(1);
        let levels = if open.starts_with("!h") { 127 } else { levels };
        let text = open.repeat(levels) + "causal" + &close.repeat(levels);
        let mask = parsed(&text);
        mask.check().unwrap();
        assert_eq!(mask.to_string().parse::<Mask>().unwrap(), mask);
        assert_eq!(mask.simplify().simplify(), mask.simplify());
        let deeper = open.repeat(levels + 1) + "causal" + &close.repeat(levels + 1);
        assert!(deeper.parse::<Mask>().unwrap_err().message.contains("more than 256 levels of nesting"), "{open}");
    }
    let text = "(".repeat(256) + "causal" + &")".repeat(256);
    assert_eq!(parsed(&text), causal());
}

#[test]
fn deep_builders_are_refused_and_freed() {
    let mut mask = causal();
    for _ in 0..300_000 {
        mask -= full();
    }
    let error = mask.check().unwrap_err().to_string();
    assert!(error.starts_with("`mask`: the mask has more than 256 levels of nesting"), "{error}");
    assert!(mask.to_string().starts_with("... - ... - full - full"));
    let _ = mask.simplify();
    drop(mask);
    // One node in memory at each level, but 2^100 nodes as text.
    let mut shared = causal();
    for _ in 0..100 {
        shared = heads([(0, shared.clone()), (1, shared)]);
    }
    assert!(shared.check().unwrap_err().to_string().contains("longer than 4194304 bytes"));
    let _ = shared.simplify();
}

#[test]
fn long_texts() {
    let long = "causal | ".repeat(400_000) + "causal";
    assert_eq!(parsed(&long).simplify(), causal());
    let longer = "causal | ".repeat(500_000) + "causal";
    let error = longer.parse::<Mask>().unwrap_err();
    assert!(error.message.contains("4500006 bytes"), "{}", error.message);
    assert!(error.to_string().len() < 500);
    let error = (long + " | cuasal").parse::<Mask>().unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
    assert!(error.lines().last().unwrap().ends_with("^^^^^^"));
    assert!(format!("{}(1)", "x".repeat(1 << 20)).parse::<Mask>().unwrap_err().to_string().len() < 1000);
}

#[test]
fn check_refuses_what_the_parser_refuses() {
    for (mask, message) in [
        (sliding(0), "`sliding(0)`: window is 0: give at least 1"),
        (stride(0), "`stride(0)`: step is 0: give at least 1"),
        (keys(Span { start: 14, end: Some(10) }), "`keys(14..10)`: range 14..10 is reversed: write 10..14"),
        (random(f64::NAN, 1), "`random(NaN, 1)`: `p` is NaN: give a probability from 0 to 1"),
        (random_blocks(8, 0, 1), "`random_blocks(8, 0, 1)`: count is 0: give at least 1"),
        (
            tree([1, 2, 0], 0),
            "`tree(parents=[1, 2, 0])`: node 0 is its own ancestor: give one node of the cycle the parent -1",
        ),
        (
            tree([-2], 0),
            "`tree(parents=[-2])`: node 0 has parent -2, but there are 1 nodes: give -1 for a root or a node from 0 to 0",
        ),
        (
            neighborhood([4], [2, 2]),
            "`neighborhood(grid=[4], size=[2, 2])`: `size` has 2 entries but `grid` has 1 dimensions: give one entry for each dimension",
        ),
        (dense(""), "`dense(\"\")`: the name of the array is empty: give the name that the facts use"),
        (
            window(None, None),
            "`window`: both sides are open: give left, right or both, as in `window(left=4, right=0)`, or write `full`",
        ),
        (
            sliding(usize::MAX),
            "`sliding(18446744073709551615)`: window is 18446744073709551615, which is larger than every position: at most 4611686018427387904 is possible",
        ),
        (
            causal_offset(i64::MIN),
            "`causal(offset=-9223372036854775808)`: offset is 9223372036854775808, which is larger than every position: at most 4611686018427387904 is possible",
        ),
        (
            window(usize::MAX, 0),
            "`window(left=9223372036854775807, right=0)`: left is 9223372036854775807, which is larger than every position: at most 4611686018427387904 is possible",
        ),
        (
            heads(Vec::<(usize, Mask)>::new()),
            "`heads()`: no mask is given, so no cell would be allowed: give at least one mask, or write `none`",
        ),
        (
            heads([(0..4, full()), (3..5, none())]),
            "`heads(0..4: full, 3..5: none)`: the selectors `0..4` and `3..5` both contain index 3: give selectors that do not overlap",
        ),
    ] {
        assert_eq!(mask.check().unwrap_err().to_string(), message);
        assert!((causal() | !mask.clone()).check().is_err());
        let _ = (!mask.clone() & causal()).simplify();
        assert!(mask.to_string().parse::<Mask>().is_err(), "{mask}");
    }
}

#[test]
fn arms_overlap_exactly_when_they_share_an_index() {
    for (arms, shared) in [
        ("every 2: full, every 2 from 1: none", None),
        ("every 2: full, every 3: none", Some(0)),
        ("every 2 from 4: full, every 3 from 1: none", Some(4)),
        ("every 6 from 5: full, every 4 from 2: none", None),
        ("every 7 from 3: full, every 5 from 4: none", Some(24)),
        ("every 10 from 3: full, 4..13: none", None),
        ("every 10 from 3: full, 4..14: none", Some(13)),
        ("every 10 from 3: full, 0..3: none", None),
        ("[0, 5..9]: full, [1..5, 9..]: none", None),
        ("[0, 0..9, 2..4]: full, 8: none", Some(8)),
        ("3..: full, 900: none", Some(900)),
        ("else: full, else: none", Some(u64::MAX)),
    ] {
        let text = format!("layers({arms})");
        match (text.parse::<Mask>(), shared) {
            (Ok(_), None) => {}
            (Err(error), Some(u64::MAX)) => assert!(error.message.contains("`else` is given twice")),
            (Err(error), Some(index)) => {
                assert!(error.message.contains(&format!("both contain index {index}:")), "{arms}: {}", error.message);
            }
            (result, _) => panic!("{arms}: {result:?}"),
        }
    }
}

fn round_trips(mask: &Mask) -> Result<(), TestCaseError> {
    mask.check().map_err(|error| TestCaseError::fail(error.to_string()))?;
    let text = mask.to_string();
    let again: Mask = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
    prop_assert_eq!(&again, mask);
    let simple = mask.simplify();
    prop_assert_eq!(&simple.simplify(), &simple, "from {}", mask);
    prop_assert_eq!(&simple.to_string().parse::<Mask>().unwrap(), &simple);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_masks_round_trip(mask in expressions(UNIVERSE, atoms(UNIVERSE), 5, true)) {
        round_trips(&mask)?;
    }

    #[test]
    fn unusual_masks_round_trip(mask in expressions(UNIVERSE, unusual_atoms(), 3, true)) {
        round_trips(&mask)?;
    }

    #[test]
    fn scores_round_trip(name in unusual_names(), cap in 1e-300..1e300f64, slopes in prop::collection::vec(-1e20..1e20f64, 0..4)) {
        let slopes = slopes.into_iter().map(Into::into).collect();
        let spec = causal() + Score::bias(name.clone()) + Score::softcap(cap) + Score::Alibi { slopes: Some(slopes) } + Score::sinks(name);
        prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
    }

    #[test]
    fn any_text_parses_or_says_why(text in any::<String>()) {
        if let Err(error) = text.parse::<Spec>() {
            prop_assert!(text.is_char_boundary(error.span.start) && text.is_char_boundary(error.span.end));
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn nearly_masks_parse_or_say_why(
        words in prop::collection::vec(prop::sample::select(&[
            "causal", "keys", "(", ")", "[", "]", "0..4", "..", "-", "3", "1.5", "&", "|", "!", "+", "bias", ",", ":", "=",
            "label", "\"x\"", "heads", "every", "else", "from", "layers", "\"", "\\", "é", "\0", "#", "\n", "sliding", "e9",
            "99999999999999999999", "&&", "and", "^", "...", "window", "tree", "padding", "side",
        ][..]), 0..14),
        glue in prop::sample::select(&["", " "][..]),
    ) {
        let text = words.join(glue);
        match text.parse::<Spec>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec),
            Err(error) => prop_assert!(error.to_string().contains('^') && text.get(error.span.clone()).is_some()),
        }
    }
}
