//! Sizes that are declared to the doctor are bounded before anything is allocated.

use noren_doctor::{Context, Patient, Values};

fn refusal(context: &str) -> String {
    let cells = (0..36).map(|at| at % 6 <= at / 6).collect();
    let patient = Patient::new(Values::bools(&[6, 6], cells).expect("a mask"));
    let context = Context::from_json(context).expect("a context");
    match patient.context(context).diagnose() {
        Err(error) => error.to_string(),
        Ok(report) => panic!("accepted: {}", report.description),
    }
}

#[test]
fn more_batch_rows_than_anybody_has() {
    let said = refusal(r#"{"batch": 4294967}"#);
    assert!(
        said.contains("the declared sizes make 4294967 pairs of batch row and head; at most 65536 are held"),
        "{said}"
    );
    assert!(refusal(r#"{"batch": 2147483647, "heads": 2147483647}"#).contains("check batch"));
}
