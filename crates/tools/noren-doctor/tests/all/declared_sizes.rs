//! Declared sizes are checked against limits before memory is allocated.

use noren_doctor::{Context, Input, Values};

fn refusal(context: &str) -> String {
    let cells = (0..36).map(|at| at % 6 <= at / 6).collect();
    let input = Input::new(Values::bools(&[6, 6], cells).expect("a mask"));
    let context = Context::from_json(context).expect("a context");
    match input.context(context).diagnose() {
        Err(error) => error.to_string(),
        Ok(report) => panic!("accepted: {}", report.description),
    }
}

#[test]
fn more_batch_rows_than_anybody_has() {
    let said = refusal(r#"{"batch": 4294967}"#);
    assert!(
        said.contains("the declared sizes give 4294967 pairs of batch row and head; the maximum is 65536"),
        "{said}"
    );
    assert!(refusal(r#"{"batch": 2147483647, "heads": 2147483647}"#).contains("check batch"));
}

#[test]
fn declared_heads_count_beside_a_small_array_and_without_one() {
    let sizes = r#"{"batch": 2147483647, "heads": 2648, "q_len": 247, "kv_len": 21454}"#;
    assert!(refusal(sizes).contains("pairs of batch row and head"));
    let context = Context::from_json(sizes).expect("a context");
    let ids = Values::ints(&[1, 6], vec![5, 6, 7, 2, 8, 0]).expect("ids");
    let added = Values::floats(&[2, 1, 3, 7], vec![0.0; 42]).expect("a mask");
    for input in [Input::without_mask().companion("input_ids", ids), Input::new(added)] {
        let error = input.context(context.clone()).diagnose().expect_err("too many pairs").to_string();
        assert!(error.contains("check batch and heads"), "{error}");
    }
}

#[test]
fn a_mask_of_another_size_is_named_and_not_built() {
    let mask = Values::bools(&[6, 6], (0..36).map(|at| at % 6 <= at / 6).collect()).expect("a mask");
    let context = Context::from_json(r#"{"kind": "causal", "q_len": 8000, "kv_len": 8000}"#).expect("a context");
    let report = Input::new(mask).context(context).diagnose().expect("a report");
    assert_eq!(report.classes(), ["stale_or_bucketed_mask"], "{report}");
    assert!(report.fixed.is_none() && report.unknown.iter().any(|text| text.contains("64000000 cells")), "{report}");
}
