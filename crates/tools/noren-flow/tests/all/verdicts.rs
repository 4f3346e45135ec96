//! Cases in which a wrong verdict is easy to miss: policies without pairs, wrongly counted documents, one head of
//! several.

use noren_flow::{Counted, Fill, Flow, Policy, Ruling, Verdict};
use noren_mask::{Error, Facts, Mask, Shape, Side};

fn flow(mask: &str, layers: usize, shape: &Shape, facts: &Facts) -> Result<Flow, Error> {
    let mask: Mask = mask.parse().expect("a mask");
    Flow::of_stack(&vec![mask; layers], shape, facts, Fill::Nothing)
}

fn check(mask: &str, layers: usize, facts: &Facts, policy: &str) -> Result<Ruling, Error> {
    policy.parse::<Policy>()?.check(&flow(mask, layers, &Shape::square(8), facts)?)
}

#[test]
fn targets_are_not_lost_with_the_sources() {
    let ruling = check("causal", 3, &Facts::new(), "deny: all -> token(7)").expect("it checks");
    let rule = &ruling.rules[0];
    assert_eq!(
        (ruling.verdict(), rule.pairs, rule.reached_pairs, rule.counted),
        (Verdict::Broken, 7, 7, Counted::Exact)
    );
    assert_eq!((rule.sources, rule.targets), (8, 1));
}

#[test]
fn a_group_may_not_reach_itself() {
    let facts = Facts::new().label("pii", [2, 5]);
    let policy = "deny: label(pii) -> label(pii)";
    let ruling = check("causal", 1, &facts, policy).expect("it checks");
    assert_eq!((ruling.pairs, ruling.rules[0].reached_pairs), (2, 1));
    assert_eq!(ruling.rules[0].witness.as_ref().expect("a path").to_string(), "token 2 -> token 5 in layer 0");
    let ruling = check("sliding(2)", 2, &facts, policy).expect("it checks");
    assert_eq!((ruling.verdict(), ruling.pairs), (Verdict::Holds, 2));
}

#[test]
fn what_denies_no_pair_establishes_nothing() {
    let facts = Facts::new().label("pii", [3]).label("none", [0; 0]).documents([8]).levels(vec![0; 8]);
    for policy in [
        "",
        "# no rule",
        "allow: all -> all",
        "deny: label(pii) -> label(pii)",
        "deny maybe: label(none) -> output",
        "deny maybe: all -> level(3)",
        "deny maybe: document(4) -> all",
        "deny: document(i) -> document(j)",
        "deny: all -> output\nallow: all -> tokens(0..8)",
    ] {
        let ruling = check("none", 2, &facts, policy).expect("it checks");
        assert_eq!(
            (ruling.verdict(), ruling.holds(), ruling.pairs),
            (Verdict::NothingEstablished, false, 0),
            "{policy}"
        );
        assert!(ruling.summary().starts_with("nothing established"), "{}", ruling.summary());
    }
    let ruling = check("none", 2, &facts, "deny maybe: label(none) -> output").expect("it checks");
    assert_eq!(
        ruling.empty[0].to_string(),
        "deny maybe: label(none) -> output: label(none) has no tokens in batch row 0"
    );
    // Another line may still establish a result.
    let both = "deny maybe: label(none) -> output\ndeny: label(pii) -> output";
    let ruling = check("none", 2, &facts, both).expect("it checks");
    assert_eq!((ruling.verdict(), ruling.pairs), (Verdict::Holds, 7));
    assert_eq!(ruling.rules[0].verdict(), Verdict::NothingEstablished);
}

#[test]
fn groups_without_tokens_are_errors() {
    let facts = Facts::new().lengths([6]).label("none", [0; 0]).documents([6, 2]).levels(vec![0; 8]);
    for (policy, wanted) in [
        ("deny: label(none) -> output", "label(none) has no tokens in batch row 0"),
        ("deny: all -> level(3)", "level(3) has no tokens in batch row 0"),
        ("deny: document(1) -> all", "document(1) has no tokens in batch row 0: padding belongs to no document"),
        ("deny: document(2) -> all", "document(2) has no tokens in batch row 0, which has 2 document(s)"),
        ("deny: all -> all\nallow: label(none) -> all", "write `allow maybe:`"),
        ("deny: label(pii) -> output", "the facts do not declare the label \"pii\": they declare [\"none\"]"),
        ("deny maybe: label(pii) -> output", "the facts do not declare the label \"pii\""),
        ("deny: token(8) -> all", "token(8) is not a range of tokens of the sequence, which has 8 tokens"),
        ("deny: output -> token(1)", "`output` is a target only"),
    ] {
        let error = check("causal", 2, &facts, policy).expect_err(policy).to_string();
        assert!(error.contains(wanted), "{policy}: {error}");
    }
    let bare = Facts::new();
    for (policy, wanted) in [
        ("deny: document(i) -> document(j)", "the facts give no documents"),
        ("deny maybe: level(0) -> all", "the facts give no levels"),
    ] {
        let error = check("causal", 2, &bare, policy).expect_err(policy).to_string();
        assert!(error.contains(wanted), "{policy}: {error}");
    }
    let short = Facts::new().documents([3, 2]);
    let error = check("causal", 2, &short, "deny: document(i) -> document(j)").unwrap_err().to_string();
    assert!(error.contains("the documents cover 5 of the 8 positions"), "{error}");
}

#[test]
fn documents_begin_with_the_first_real_token() {
    let facts = Facts::new().lengths([4]).side(Side::Left).documents([2, 2]);
    let policy = "deny: document(i) -> document(j)";
    let ruling = check("causal & padding", 1, &facts, policy).expect("it checks");
    assert_eq!((ruling.pairs, ruling.rules[0].reached_pairs), (8, 4));
    assert_eq!(ruling.rules[0].witness.as_ref().expect("a path").to_string(), "token 4 -> token 6 in layer 0");
    // The reverse: padding that reads padding is not a document that reads another.
    let ruling = check("causal & documents | chunk(4) & queries(..4)", 1, &facts, policy).expect("it checks");
    assert_eq!((ruling.verdict(), ruling.pairs), (Verdict::Holds, 8));
}

#[test]
fn documents_and_queries_follow_positions() {
    // A ring of 4 slots: the tokens of positions 4 and 5 are in slots 0 and 1, and the new token has position 5.
    let facts = Facts::new().positions([4, 5, 2, 3]).documents([3, 3]).label("new", [5]);
    let shape = Shape::new(1, 4, 5);
    let flow = flow("causal & documents", 2, &shape, &facts).expect("it binds");
    let check = |policy: &str| policy.parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
    // Position 2 is in document 0; positions 3, 4 and 5 are in document 1.
    let ruling = check("deny: document(i) -> document(j)");
    assert_eq!((ruling.verdict(), ruling.pairs), (Verdict::Holds, 6));
    let ruling = check("deny: document(1) -> output");
    assert_eq!((ruling.pairs, ruling.rules[0].reached_pairs), (2, 2));
    assert_eq!(check("deny: token(3) -> label(new)").rules[0].witness.as_ref().expect("a path").target(), 1);
    let error = Flow::of_stack(&[noren_mask::atoms::causal()], &Shape::new(1, 4, 9), &facts, Fill::Nothing);
    assert!(error.unwrap_err().to_string().contains("no key is at position 9"));
}

#[test]
fn allowed_pairs_are_taken_out_of_part_of_a_denial() {
    let facts = Facts::new().label("pii", [1, 4]);
    let deny = "deny: label(pii) -> output";
    // All later tokens read both tokens: 6 and 3 pairs of 14.
    let of = |policy: &str| {
        let ruling = check("causal", 1, &facts, policy).expect("it checks");
        (ruling.pairs, ruling.rules[0].reached_pairs)
    };
    assert_eq!(of(deny), (14, 9));
    assert_eq!(of(&format!("{deny}\nallow: token(1) -> all")), (7, 3));
    assert_eq!(of(&format!("allow: tokens(0..3) -> tokens(2..8)\n{deny}")), (8, 3));
    assert_eq!(of(&format!("{deny}\nallow: token(1) -> all\nallow: token(4) -> tokens(5..8)")), (4, 0));
}

#[test]
fn one_head_is_not_proved_for_several() {
    let facts = Facts::new();
    for (mask, what) in [
        ("heads(0: causal, else: full)", "one head"),
        ("heads(1..: full, 0: causal)", "head"),
        ("batch(0: causal, else: full)", "one batch row"),
        ("causal & layers(0: causal, else: full)", "one layer"),
    ] {
        let error = flow(mask, 1, &Shape::square(8), &facts).expect_err(mask).to_string();
        assert!(error.contains(what), "{mask}: {error}");
    }
    for (mask, what) in [
        (
            "heads(0..2: causal, else: full)",
            "the shape has 2 heads, and `else: full` applies to none of them: give at least 3 heads",
        ),
        ("full | heads(0: causal, every 3 from 2: full)", "give at least 3 heads"),
        ("heads(0..2: causal, 2..: full)", "give at least 3 heads"),
        (
            "batch(every 2: causal, every 4 from 3: full)",
            "the shape has 2 batch rows, and `every 4 from 3: full` applies to none of them: give at least 4",
        ),
    ] {
        let error = flow(mask, 1, &Shape::square(8).heads(2).batch(2), &facts).expect_err(mask).to_string();
        assert!(error.contains(what), "{mask}: {error}");
    }
    assert!(flow("heads(0..2: full, else: full)", 1, &Shape::square(8).heads(2), &facts).is_ok());
    let shape = Shape::square(8).heads(4);
    let flow = flow("heads(0: causal, else: full)", 1, &shape, &facts).expect("it binds");
    let ruling = "deny: token(7) -> token(0)".parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
    assert_eq!((ruling.verdict(), ruling.heads), (Verdict::Broken, 4));
}

#[test]
fn allow_lines_that_cut_pairs_into_too_many_classes_are_refused() {
    let len = 1 << 16;
    let mut facts = Facts::new();
    for bit in 0..16 {
        let period = 2 << bit;
        let spans: Vec<_> = (0..len / period).map(|at| at * period + period / 2..(at + 1) * period).collect();
        facts = facts.label(format!("b{bit}"), spans);
    }
    let flow = flow("causal", 1, &Shape::square(len), &facts).expect("it binds");
    let lines: Vec<String> = (0..16).map(|bit| format!("allow: label(b{bit}) -> label(b{bit})")).collect();
    let policy: Policy = format!("deny: all -> all\n{}", lines.join("\n")).parse().expect("a policy");
    let error = policy.check(&flow).expect_err("too many classes").to_string();
    assert!(error.contains("check fewer lines"), "{error}");
}

#[test]
fn every_batch_row_is_established() {
    let facts = Facts::new().lengths([8, 5]).documents(vec![vec![4, 4], vec![3, 2]]);
    let shape = Shape::square(8).batch(2);
    let flow = flow("causal & batch(0: documents, 1: full)", 2, &shape, &facts).expect("it binds");
    let policy: Policy =
        "deny: document(i) -> document(j)\ndeny: document(1) -> document(0)".parse().expect("a policy");
    let ruling = policy.check(&flow).expect("it checks");
    let found: Vec<_> = ruling.rules.iter().map(|rule| (rule.batch, rule.pairs, rule.reached_pairs)).collect();
    assert_eq!(found, [(0, 32, 0), (1, 12, 6), (0, 16, 0), (1, 6, 0)]);
    assert_eq!((ruling.pairs, ruling.batch_rows), (66, 2));
    assert_eq!(
        ruling.summary(),
        "broken: 6 of the 66 denied pairs are reached over 2 layer(s), 1 head(s) and 2 batch row(s)"
    );
}

#[test]
fn large_counts_say_that_they_are_bounds() {
    let facts = Facts::new();
    let mask: Mask = "sliding(64)".parse().expect("a mask");
    let flow = Flow::of_stack(&vec![mask; 2], &Shape::square(4096), &facts, Fill::Nothing).expect("it binds");
    let ruling = "deny: all -> all".parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
    let rule = &ruling.rules[0];
    let exact: u64 = (0..4096).map(|s| (s + 126).min(4095) - s).sum();
    assert_eq!((rule.counted, rule.pairs), (Counted::AtLeast, 4096 * 4095));
    assert!((1..=exact).contains(&rule.reached_pairs), "{rule}");
    assert!(rule.to_string().contains("at least") && ruling.summary().contains("at least"));
    let ruling = "deny: all -> token(9)".parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
    assert_eq!((ruling.rules[0].counted, ruling.rules[0].pairs), (Counted::AtLeast, 4095));
}
