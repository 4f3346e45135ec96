//! Large certificates are verified. Certificates that would take too much time or memory are refused quickly.

use crate::brute::hashed;
use noren_flow::{Certificate, Fill, Flow, Policy};
use noren_mask::{Facts, Mask, Shape};
use noren_verify::{Given, Masks, verify, verify_for};
use serde_json::{Value, json};
use std::time::Instant;

fn issued(masks: &[&str], layers: usize, shape: &Shape, facts: &Facts, policy: &str) -> String {
    let masks: Vec<Mask> = masks.iter().map(|mask| mask.parse().expect("a mask")).collect();
    let masks: Vec<Mask> = (0..layers).map(|layer| masks[layer % masks.len()].clone()).collect();
    let flow = Flow::of_stack(&masks, shape, facts, Fill::Nothing).expect("the masks fit the shape and the facts");
    let policy: Policy = policy.parse().expect("a policy");
    Certificate::issue(&flow, &policy).expect("the certificate is issued").to_json().expect("JSON")
}

#[test]
fn long_stacks_are_verified() {
    let facts = Facts::new().label("pii", [noren_mask::Span::from(100_000..100_010)]);
    let shape = Shape::square(131_072);
    let text = issued(&["sliding(1024)", "causal"], 32, &shape, &facts, "deny: label(pii) -> tokens(0..99999)");
    let start = Instant::now();
    let report = verify(&text).expect("the certificate is correct");
    println!("131,072 tokens by 32 layers: verified in {:.2?}", start.elapsed());
    assert!(report.holds && report.pairs == 999_990);
}

#[test]
fn positions_far_apart_take_little_memory() {
    let shape = r#"{"q_len": 1, "kv_len": 2, "query_offset": 2147483647}"#;
    let facts = r#"{"positions": [1, 2147483647]}"#;
    let start = Instant::now();
    for (mask, keys) in [("stride(2)", 0..2), ("neighborhood(grid=[2147483648], size=[3], dilation=[2])", 1..2)] {
        let mask = Masks::read(mask, shape, facts).expect("a mask");
        assert_eq!(mask.row(0, 0, 0).expect("a row"), [(keys.start, keys.end)]);
    }
    let random = Masks::read("random(p=0.5, seed=1)", shape, facts).expect("a mask");
    let row = random.row(0, 0, 0).expect("a row");
    let held = |key: usize| row.iter().any(|run| (run.0..run.1).contains(&key));
    assert!((0..2).all(|key| held(key) == random.allowed(0, 0, 0, key)));
    let long = r#"{"q_len": 1, "kv_len": 2147483647, "query_offset": 5}"#;
    for mask in ["stride(3)", "random(p=0.5, seed=1)"] {
        assert!(Masks::read(mask, long, "{}").expect("a mask").row(0, 0, 0).is_err(), "{mask}");
    }
    println!("positions far apart: {:.2?}", start.elapsed());
}

#[test]
fn many_documents_with_many_gaps_take_little_memory() {
    let facts = Facts::new().documents(vec![2; 15_000]);
    let line = "deny: document(0) -> document(1)";
    let text = issued(&["causal & documents"], 1, &Shape::square(30_000), &facts, line);
    verify(&text).expect("the certificate is correct");
    let mut forged: Value = serde_json::from_str(&text).expect("JSON");
    let each = "deny: document(i) -> document(j)";
    forged["facts"]["real_keys"] = json!([(0..30_000).step_by(2).collect::<Vec<_>>()]);
    (forged["policy"], forged["rules"][0]["rule"]) = (json!([each]), json!(each));
    let refusal = verify(&hashed(forged).to_string()).expect_err("too many ranges").to_string();
    assert!(refusal.contains("stored ranges"), "{refusal}");
}

#[test]
fn unused_arms_are_refused() {
    let text = issued(
        &["heads(0..2: causal, else: full)"],
        2,
        &Shape::square(4).heads(3),
        &Facts::new(),
        "deny: token(3) -> token(0)",
    );
    verify(&text).expect("the certificate is correct");
    let mut forged: Value = serde_json::from_str(&text).expect("JSON");
    (forged["shape"]["heads"], forged["shape"]["kv_heads"]) = (json!(2), json!(2));
    let refusal = verify(&hashed(forged).to_string()).expect_err("no head takes the arm").to_string();
    assert!(refusal.contains("a shape with at least 3 heads"), "{refusal}");
}

#[test]
fn offsets_and_large_levels_are_read() {
    let levels = Facts::new().levels([i64::MIN, 1 << 50, i64::MAX]);
    let text = issued(
        &["clearance"],
        2,
        &Shape::square(3),
        &levels,
        &format!("deny: level({}) -> level({})", 1i64 << 50, i64::MIN),
    );
    assert!(verify(&text).expect("the certificate is correct").holds);
    let given = |offsets: Vec<i64>| Given { query_offsets: Some(offsets), ..Given::default() };
    assert!(verify_for(&text, &given(vec![0])).is_ok());
    assert!(verify_for(&text, &given(vec![0, 0])).is_err());
}
