//! Large masks are diagnosed quickly. `cargo test -p noren-doctor --test all doctor_scale:: -- --nocapture` prints the times.

use noren_doctor::{Context, Dtype, Input, Numbers, Values};
use std::time::{Duration, Instant};

const N: usize = 8192;

fn diagnosed(name: &str, values: Values, context: &str) -> (Vec<&'static str>, Duration) {
    let input = Input::new(values).context(Context::from_json(context).expect("a context"));
    let start = Instant::now();
    let report = input.diagnose().expect("a sound array");
    let took = start.elapsed();
    println!("{name:44} {:5.2} s  {:?}  {}", took.as_secs_f64(), report.classes(), report.description);
    (report.classes(), took)
}

fn bools(cell: impl Fn(usize, usize) -> bool) -> Values {
    Values::bools(&[N, N], (0..N * N).map(|at| cell(at / N, at % N)).collect()).expect("all cells")
}

#[test]
fn a_mask_of_8192_by_8192() {
    let hash = |i: usize, j: usize| {
        (i.wrapping_mul(0x9E37_79B9) ^ j.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35) >> 9 & 15
    };
    let floats = |cell: &dyn Fn(usize, usize) -> bool| {
        let cells = (0..N * N).map(|at| if cell(at / N, at % N) { 0.0 } else { f32::NEG_INFINITY }).collect();
        Values::new(&[1, 1, N, N], Dtype::F32, Numbers::Single(cells)).expect("all cells")
    };
    let causal = r#"{"api": "sdpa", "convention": "keep_bool", "kind": "causal"}"#;
    let sliding = r#"{"api": "sdpa", "convention": "keep_bool", "kind": "sliding", "window": 1024, "window_means": "keys visible, self included"}"#;
    let additive = r#"{"api": "additive", "convention": "additive", "kind": "causal", "compute_dtype": "float32"}"#;
    let unsaid = r#"{"api": "sdpa", "convention": "keep_bool"}"#;
    let cases: Vec<(&str, Values, &str, Vec<&str>)> = vec![
        ("causal", bools(|i, j| j <= i), causal, vec![]),
        ("causal, left padding, nothing declared", bools(|i, j| j <= i && (j >= 900 || i == j)), unsaid, vec![]),
        ("one key too many", bools(|i, j| j <= i + 1), causal, vec!["causal_leak"]),
        ("inverted", bools(|i, j| j > i), causal, vec!["inverted_polarity", "fully_masked_row", "causal_leak"]),
        ("window off by one", bools(|i, j| j <= i && i - j <= 1024), sliding, vec!["sliding_window_off_by_one"]),
        ("additive, one key too many", floats(&|i, j| j <= i + 1), additive, vec!["causal_leak"]),
        (
            "holes without a pattern",
            bools(|i, j| i == j || j <= i && hash(i, j) != 0),
            causal,
            vec!["unexplained_difference"],
        ),
        (
            "holes without a pattern, nothing declared",
            bools(|i, j| i == j || j <= i && hash(i, j) != 0),
            unsaid,
            vec![],
        ),
    ];
    for (name, values, context, classes) in cases {
        let (found, took) = diagnosed(name, values, context);
        assert_eq!(found, classes, "{name}");
        assert!(cfg!(debug_assertions) || took < Duration::from_secs(20), "{name} took {took:?}");
    }
}
