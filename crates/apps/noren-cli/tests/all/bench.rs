//! `noren bench`: the fields of its JSON, and one table line for each case. No speed is asserted.

use serde_json::Value;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let quick = ["bench", "--quick", "--budget", "0", "--dims", "16", "--heads", "2", "--threads", "2"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
    command.args(quick).args(args).env_remove("NOREN_ISA").env("NO_COLOR", "1").output().expect("the command starts")
}

#[test]
fn json_is_one_document_with_limits_and_rows() {
    let done =
        bench(&["--lens", "128,200", "--masks", "causal,sliding(16) + softcap(30)", "--dtypes", "f32,bf16", "--json"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let document: Value = serde_json::from_slice(&done.stdout).expect("one JSON document");
    for key in ["noren", "processor", "isa", "threads", "limits", "not_measured", "rows"] {
        assert!(!document[key].is_null(), "{key} is missing");
    }
    let limits = document["limits"].as_array().expect("a list");
    // These ISAs differ from AVX-512 only in their bf16 products, so they have no other limits of their own.
    let isa = document["isa"].as_str().expect("a text").trim_end_matches("bf16").replace("amx", "avx512");
    for probe in [&format!("fma {isa}"), &format!("exp2 {isa}"), &format!("softmax {isa}"), "read L1", "read DRAM"] {
        for threads in [1, 2] {
            let found = limits.iter().find(|limit| limit["probe"] == *probe && limit["threads"] == threads);
            let rate = found.unwrap_or_else(|| panic!("{probe} on {threads} threads"))["median"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 0.0), "{probe}: {rate:?}");
        }
    }
    let rows = document["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 3 * 2 * 2 * 2); // operations, lengths, masks, types
    for row in rows {
        for key in ["ms_median", "ms_min", "computed_per_allowed", "gflops", "gb_per_s", "limit_ms", "of_limit"] {
            assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {row}");
        }
        for key in ["op", "dtype", "mask", "bound"] {
            assert!(row[key].is_string(), "{key}: {row}");
        }
        let (q_len, kv_len) = (row["q_len"].as_u64().expect("a length"), row["kv_len"].as_u64().expect("a length"));
        assert_eq!(q_len, if row["op"] == "decode" { 1 } else { kv_len });
        let width = |q: u64| if row["mask"] == "causal" { q + 1 } else { (q + 1).min(16) };
        let allowed: u64 = (kv_len - q_len..kv_len).map(width).sum::<u64>() * 2;
        assert_eq!(row["allowed"], allowed, "{row}");
    }
}

#[test]
fn the_table_has_a_line_for_each_case() {
    let done =
        bench(&["--lens", "96", "--masks", "causal & documents, padding", "--ops", "forward", "--dtypes", "f16"]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("read L1") && text.contains("GFLOP/s"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("forward ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows[0].contains("causal & documents") && rows[1].contains("padding") && rows[0].contains("f16"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is() {
    for (args, expected) in [
        (&["--masks", "causl"][..], "causal"),
        (&["--masks", "clearance"], "levels"),
        (&["--masks", "causal + bias"], "needs the array \"bias\""),
        (&["--threads", "0"], "--threads is 0"),
        (&["--lens", "0"], "--lens contains 0"),
        (&["--heads", "3", "--kv-heads", "2"], "heads"),
        (&["--lens", "18446744073709551615"], "GiB"),
        (&["--budget", "nan"], "--budget is NaN"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_noren"));
        let done = command.arg("bench").args(args).output().expect("the command starts");
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(expected) && !error.contains("panicked"), "{args:?}: {error}");
        assert!(done.stdout.is_empty());
    }
}
