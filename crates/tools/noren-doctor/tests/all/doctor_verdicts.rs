//! The doctor's verdict on a whole mask: correct, faulty, looks like, cannot tell. "Correct" needs a declaration. A repair needs
//! a mistake that explains every cell.
//!
//! `NOREN_DOCTOR=n` runs n times the number of random masks.

use crate::doctor::Dice;
use noren_doctor::{Certainty, Context, Input, Report, Values, Verdict};
use noren_mask::{Facts, Mask, Shape};

const SDPA: &str = r#""api": "sdpa", "convention": "keep_bool""#;

fn context(more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    format!("{{{SDPA}{comma}{more}}}")
}

fn bools(shape: &[usize], cell: impl Fn(usize, usize, usize) -> bool) -> Values {
    let (k, q) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let all: usize = shape.iter().product();
    Values::bools(shape, (0..all).map(|at| cell(at / (q * k), at / k % q, at % k)).collect()).expect("all cells")
}

fn rows(rows: &[&[i64]]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn report(mask: Values, context: &str, beside: &[(&str, Values)]) -> Report {
    let context = Context::from_json(context).expect("a context");
    let input = Input::new(mask).context(context);
    let input = beside.iter().fold(input, |p, (name, values)| p.companion(*name, values.clone()));
    input.diagnose().expect("a usable mask")
}

#[track_caller]
fn verdict(mask: Values, context: &str, beside: &[(&str, Values)], expected: Verdict) -> Report {
    let report = report(mask, context, beside);
    assert_eq!(report.verdict, expected, "{report}");
    report
}

#[track_caller]
fn named(report: &Report, class: &str) {
    assert_eq!(report.classes().first(), Some(&class), "{report}");
}

#[test]
fn correct_says_against_what_and_how_many_cells() {
    let ids = [("input_ids", rows(&[&[5, 6, 7, 8], &[5, 6, 0, 0]]))];
    let mask = bools(&[2, 1, 4, 4], |b, i, j| j <= i && (b == 0 || j < 2));
    let report = verdict(mask, &context(r#""kind": "causal", "pad_token_id": 0"#), &ids, Verdict::Correct);
    assert_eq!((report.compared, report.rows_left_out), (24, 2), "{report}");
    for part in ["all 24 compared cells are equal to the declaration", "kind=causal", "padding hidden", "2 row(s)"] {
        assert!(report.sentence.contains(part), "{part}: {}", report.sentence);
    }
}

#[test]
fn what_looks_like_a_known_mask_is_not_called_correct() {
    let report = verdict(bools(&[6, 6], |_, i, j| j <= i), &context(""), &[], Verdict::LooksLike);
    assert!(report.sentence.starts_with("causal") && report.sentence.contains("0 of 36 cells differ"), "{report}");
    let packed = |i: usize, j: usize| j <= i && (i / 4 == j / 4);
    let leaking = bools(&[16, 16], |_, i, j| packed(i, j) || (i, j) == (9, 2));
    let report = verdict(leaking, &context(""), &[], Verdict::LooksLike);
    assert!(report.sentence.contains("1 of 256 cells differ"), "{report}");
}

#[test]
fn random_cells_and_a_shuffled_triangle_have_no_verdict() {
    let mut dice = Dice::new(11, false);
    let cells: Vec<bool> = (0..24 * 24).map(|_| dice.chance(50)).collect();
    let mask = Values::bools(&[24, 24], cells).expect("all cells");
    let report = verdict(mask, &context(""), &[], Verdict::CannotTell);
    assert!(report.sentence.contains("resembles no known mask"), "{report}");
    let order: Vec<usize> = (0..24).map(|i| (i * 7 + 3) % 24).collect();
    let shuffled = bools(&[24, 24], |_, i, j| order[j] <= order[i]);
    verdict(shuffled, &context(""), &[], Verdict::CannotTell);
}

#[test]
fn a_table_of_whole_numbers_is_asked_about() {
    let cells = (0..4 * 64).map(|at| i64::from(at % 64 < 64 - 9 * (at / 64))).collect();
    let mask = Values::ints(&[4, 64], cells).expect("a table");
    for declared in ["{}", r#"{"kind": "causal"}"#, r#"{"convention": "keep_01", "kind": "bidirectional"}"#] {
        let report = verdict(mask.clone(), declared, &[], Verdict::CannotTell);
        let open = &report.open[0];
        assert!(open.readings[0].contains("4 batch rows") && open.readings[1].contains("4 queries"), "{report}");
        assert!(open.readings[0].contains("declare role=key_padding"), "{report}");
    }
    let lengths = [("lengths", Values::ints(&[4], vec![64, 55, 46, 37]).expect("a list"))];
    let declared = r#"{"role": "key_padding", "kind": "bidirectional", "convention": "keep_01"}"#;
    verdict(mask.clone(), declared, &lengths, Verdict::Correct);
    let queries =
        Values::ints(&[4, 64], (0..256).map(|at| i64::from(at % 64 <= at / 64 + 60)).collect()).expect("cells");
    verdict(queries, r#"{"role": "attn", "kind": "causal", "past_len": 60}"#, &[], Verdict::Correct);
}

#[test]
fn a_square_table_is_asked_about_where_its_rows_may_be_rows_of_keys() {
    let lower = || rows(&[&[1, 0, 0, 0], &[1, 1, 0, 0], &[1, 1, 1, 0], &[1, 1, 1, 1]]);
    for declared in [r#"{"kind": "causal"}"#, r#"{"convention": "keep_01", "kind": "causal"}"#] {
        let report = verdict(lower(), declared, &[], Verdict::CannotTell);
        assert!(report.open[0].readings[0].contains("4 batch rows of 4 keys") && report.fixed.is_none(), "{report}");
    }
    let as_queries = r#"{"convention": "keep_01", "kind": "causal", "role": "attn"}"#;
    verdict(lower(), as_queries, &[], Verdict::Correct);
    verdict(lower(), r#"{"convention": "keep_01", "kind": "causal", "q_len": 4}"#, &[], Verdict::Correct);
    // A row with two changes is not a row of padding.
    let window = rows(&[&[1, 0, 0, 0], &[1, 1, 0, 0], &[0, 1, 1, 0], &[0, 0, 1, 1]]);
    let declared = r#"{"convention": "keep_01", "kind": "sliding", "window": 2}"#;
    verdict(window, declared, &[], Verdict::Correct);
}

#[test]
fn nothing_compared_is_no_verdict() {
    let mask = bools(&[3, 3], |_, i, j| (i + 2 * j) % 3 == 0);
    let padding = [("attention_mask", rows(&[&[0, 0, 0]]))];
    let report = verdict(mask, &context(r#""kind": "causal""#), &padding, Verdict::CannotTell);
    assert!(report.compared == 0 && report.fixed.is_none(), "{report}");
    assert!(report.sentence.starts_with("no cell could be compared with the declaration"), "{report}");
}

#[test]
fn without_a_verdict_nothing_is_repaired() {
    let looks_like = verdict(bools(&[6, 6], |_, i, j| j <= i), &context(""), &[], Verdict::LooksLike);
    let mut dice = Dice::new(11, false);
    let cells: Vec<bool> = (0..24 * 24).map(|_| dice.chance(50)).collect();
    let random = Values::bools(&[24, 24], cells).expect("all cells");
    let random = verdict(random, &context(""), &[], Verdict::CannotTell);
    let table = verdict(rows(&[&[1, 1, 1, 0], &[1, 1, 0, 0]]), "{}", &[], Verdict::CannotTell);
    for report in [looks_like, random, table] {
        assert!(report.fixed.is_none() && report.given.is_some(), "{report}");
        assert!(report.svg().expect("room").is_some(), "the given cells can be drawn");
    }
    let right = verdict(bools(&[6, 6], |_, i, j| j <= i), &context(r#""kind": "causal""#), &[], Verdict::Correct);
    assert_eq!(right.fixed, right.given);
}

#[test]
fn what_was_meant_is_the_repair() {
    let causal: Mask = "causal".parse().expect("a mask");
    let bound = causal.bind(&Shape::square(6), &Facts::new()).expect("a shape");
    let against = |cell: fn(usize, usize) -> bool| {
        let context = Context::from_json(&context("")).expect("a context");
        let mask = bools(&[6, 6], |_, i, j| cell(i, j));
        Input::new(mask).context(context).meant(&bound).diagnose().expect("a usable mask")
    };
    let scattered = against(|i, j| j <= i && (i * 7 + j * 5) % 11 != 3);
    named(&scattered, "unexplained_difference");
    assert!(scattered.fixed.is_some() && scattered.fixed == scattered.expected, "{scattered}");
    let leak = against(|i, j| j <= i + 1);
    named(&leak, "causal_leak");
    assert!(leak.fixed == leak.expected && leak.findings.len() == 1, "{leak}");
    assert_eq!(leak.findings[0].certainty, Certainty::Certain);
    let inverted = against(|i, j| j > i);
    named(&inverted, "inverted_polarity");
    assert!(inverted.fixed.is_some() && inverted.fixed == inverted.expected, "{inverted}");
    let right = against(|i, j| j <= i);
    assert!(right.verdict == Verdict::Correct && right.fixed == right.expected, "{right}");
}

#[test]
fn an_unexplained_difference_has_no_repair() {
    let mut dice = Dice::new(5, false);
    let flips: Vec<usize> = (0..20).map(|_| dice.of(0, 255)).collect();
    for kind in ["causal", "bidirectional", "sliding", "prefix_lm"] {
        let meant = |i: usize, j: usize| match kind {
            "causal" => j <= i,
            "sliding" => j <= i && i - j < 5,
            "prefix_lm" => j <= i || j < 6,
            _ => true,
        };
        let mask = bools(&[16, 16], |_, i, j| meant(i, j) != flips.contains(&(i * 16 + j)));
        let declared = context(&format!(r#""kind": "{kind}", "window": 5, "prefix_len": 6"#));
        let report = verdict(mask, &declared, &[], Verdict::Faulty);
        named(&report, "unexplained_difference");
        assert!(report.fixed.is_none() && report.findings.iter().all(|f| f.repair.is_none()), "{report}");
        assert!(report.expected.is_some() && report.intended.is_some());
    }
}

#[test]
fn cross_attention_takes_the_attention_mask_for_the_encoders() {
    let real = [("attention_mask", rows(&[&[1, 1, 1, 0, 0]]))];
    let mask = bools(&[1, 1, 3, 5], |_, _, j| j < 3);
    let report = verdict(mask.clone(), &context(r#""kind": "cross""#), &real, Verdict::Correct);
    assert!(report.sentence.contains("padding hidden"), "{report}");
    verdict(mask, &context(r#""kind": "cross""#), &[], Verdict::CannotTell);
    let open = verdict(bools(&[1, 1, 3, 5], |_, _, _| true), &context(r#""kind": "cross""#), &real, Verdict::Faulty);
    named(&open, "cross_attention_mask");
}

#[test]
fn not_causal_is_bidirectional() {
    verdict(bools(&[5, 5], |_, _, _| true), &context(r#""kind": "not_causal""#), &[], Verdict::Correct);
    let report = verdict(bools(&[5, 5], |_, i, j| j <= i), &context(r#""kind": "not_causal""#), &[], Verdict::Faulty);
    named(&report, "implicit_causal");
}

#[test]
fn a_window_of_four_keys_is_no_window_of_three() {
    let wide = bools(&[12, 12], |_, i, j| j <= i && i - j < 4);
    let report = verdict(wide.clone(), &context(r#""kind": "sliding", "window": 3"#), &[], Verdict::Faulty);
    named(&report, "sliding_window_off_by_one");
    verdict(
        wide,
        &context(r#""kind": "sliding", "window": 3, "window_means": "keys before the query""#),
        &[],
        Verdict::Correct,
    );
    let right = bools(&[12, 12], |_, i, j| j <= i && i - j < 3);
    verdict(right, &context(r#""kind": "sliding", "window": 3"#), &[], Verdict::Correct);
}

#[test]
fn what_is_not_declared_is_asked() {
    let padded = bools(&[6, 6], |_, i, j| j <= i && j >= 2 || i == j);
    let report = verdict(padded, &context(r#""kind": "causal""#), &[], Verdict::CannotTell);
    assert!(report.open[0].question.contains("padding"), "{report}");
    let packed = bools(&[6, 6], |_, i, j| j <= i && i / 3 == j / 3);
    let report = verdict(packed, &context(r#""kind": "causal_packed""#), &[], Verdict::CannotTell);
    assert!(report.open[0].question.contains("segment_ids"), "{report}");
    let around = bools(&[9, 9], |_, i, j| i.abs_diff(j) <= 2);
    let report =
        verdict(around.clone(), &context(r#""kind": "bidirectional_sliding", "window": 5"#), &[], Verdict::CannotTell);
    assert_eq!(report.open[0].readings.len(), 3, "{report}");
    let said = r#""kind": "bidirectional_sliding", "window": 5, "window_means": "keys in total""#;
    verdict(around, &context(said), &[], Verdict::Correct);
    for last in [true, false] {
        let mask = bools(&[3, 7], |_, i, j| j <= if last { i + 4 } else { i });
        let report = verdict(mask, &context(r#""kind": "causal""#), &[], Verdict::CannotTell);
        assert!(report.open[0].question.contains("past_len"), "{report}");
    }
    let tree = bools(&[3, 3], |_, i, j| j == 0 || i == j);
    verdict(tree.clone(), &context(r#""kind": "tree""#), &[], Verdict::CannotTell);
    let parents = [("parents", Values::ints(&[3], vec![-1, 0, 0]).expect("a list"))];
    verdict(tree, &context(r#""kind": "tree""#), &parents, Verdict::Correct);
}

/// Checks that an array with a shape or a name that no check reads is refused and never ignored.
#[test]
fn an_array_that_fits_no_key_is_refused() {
    let ones = |shape: &[usize]| Values::ints(shape, vec![1; shape.iter().product()]).expect("all cells");
    for (name, shape, expected) in [
        (
            "attention_mask",
            &[1, 3][..],
            "the array `attention_mask` has the shape [1, 3], expected [2, 6] (batch rows, keys)",
        ),
        ("lengths", &[2, 8], "the array `lengths` has the shape [2, 8], expected [2] (batch rows)"),
        ("lengths", &[3], "the array `lengths` has the shape [3], expected [2] (batch rows)"),
        ("segment_ids", &[6, 2], "expected [2, 6] (batch rows, keys)"),
        ("attention_msk", &[2, 6], "unknown name: did you mean `attention_mask`?"),
        ("segment_idz", &[2, 6], "did you mean `segment_ids`?"),
    ] {
        for kind in ["causal", "bidirectional"] {
            let declared = Context::from_json(&context(&format!(r#""kind": "{kind}""#))).expect("a context");
            let mask = bools(&[2, 1, 6, 6], |_, i, j| j <= i || kind != "causal");
            let error = Input::new(mask).context(declared).companion(name, ones(shape)).diagnose();
            let text = error.expect_err(name).to_string();
            assert!(text.contains(expected) && !text.starts_with("facts"), "{text}");
        }
    }
}

#[test]
fn huge_declared_sizes_are_refused_before_anything_is_allocated() {
    let mask = || bools(&[4, 4], |_, i, j| j <= i);
    for declared in [
        r#"{"past_len": 2000000000, "q_len": 4}"#,
        r#"{"batch": 2000000000}"#,
        r#"{"batch": 2000000000, "kind": "causal"}"#,
        r#"{"q_len": 2000000000, "role": "key_padding"}"#,
        r#"{"kv_len": 2000000000, "q_len": 2000000000}"#,
        r#"{"heads": 2000000000, "batch": 2000000000}"#,
    ] {
        let context = Context::from_json(declared).expect("numbers in range");
        let row = Values::bools(&[1, 4], vec![true; 4]).expect("a row");
        for mask in [mask(), row] {
            if let Err(error) = Input::new(mask).context(context.clone()).diagnose() {
                assert!(error.to_string().contains("declared sizes"), "{declared}: {error}");
            }
        }
    }
    assert!(Context::from_json(r#"{"past_len": 1000000000000, "q_len": 4}"#).is_err());
    let parents = Values::ints(&[200_000], vec![-1; 200_000]).expect("a list");
    let tree = Context::from_json(r#"{"kind": "tree"}"#).expect("a context");
    assert!(Input::new(mask()).context(tree).companion("parents", parents).diagnose().is_ok());
    let nothing = Values::ints(&[0, 4], Vec::new()).expect("an empty table");
    let causal = Context::from_json(r#"{"kind": "causal", "pad_token_id": 0}"#).expect("a context");
    assert!(Input::new(mask()).context(causal).companion("input_ids", nothing).diagnose().is_err());
}

#[test]
fn malformed_cu_seqlens_are_reported_in_plain_numbers() {
    let blocks = || bools(&[1, 1, 6, 6], |_, i, j| i / 3 == j / 3 && j <= i);
    for (ends, problem) in [
        (vec![1, 3, 6], "the first value of cu_seqlens is 1, but it must be 0"),
        (vec![0, 3, 5], "the last value of cu_seqlens is 5, but it must be 6, the number of tokens"),
        (vec![], "cu_seqlens is empty"),
    ] {
        let ends = Values::ints(&[ends.len()], ends).expect("a list");
        let declared = context(r#""kind": "packed""#);
        let report = verdict(blocks(), &declared, &[("cu_seqlens", ends)], Verdict::Faulty);
        let says = report.findings.iter().map(|f| f.says.as_str()).collect::<Vec<_>>().join("\n");
        assert!(says.contains(problem), "{says}");
    }
}

#[test]
fn redactions_by_batch_row() {
    let by_row = r#""kind": "causal", "redactions": [{"batch": 1, "keys": [2], "queries": [3, 4, 5]}], "layers": 1"#;
    let right = bools(&[2, 1, 6, 6], |b, i, j| j <= i && !(b == 1 && j == 2 && i > 2));
    verdict(right, &context(by_row), &[], Verdict::Correct);
    let open = verdict(bools(&[2, 1, 6, 6], |_, i, j| j <= i), &context(by_row), &[], Verdict::Faulty);
    named(&open, "multi_hop_leak");
    let other_row = bools(&[2, 1, 6, 6], |b, i, j| j <= i && !(b == 0 && j == 2 && i > 2));
    verdict(other_row, &context(by_row), &[], Verdict::Faulty);
    // The array has one mask for all rows, so the redaction of row 1 is missing.
    named(&verdict(bools(&[6, 6], |_, i, j| j <= i), &context(by_row), &[], Verdict::Faulty), "multi_hop_leak");
    let beyond =
        Context::from_json(r#"{"kind": "causal", "redactions": [{"batch": 2, "keys": [1]}]}"#).expect("a context");
    let error = Input::new(bools(&[2, 1, 4, 4], |_, i, j| j <= i)).context(beyond).diagnose().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the index 2 in `batch`, but the indices of `batch` in this mask are smaller than 2"),
        "{error}"
    );
}

#[test]
fn masks_whose_terms_have_thousands_of_spans() {
    let n = 8_400;
    // Every second key is padding, and query `7 * r` does not read key `4 * r`.
    let listed: Vec<String> = (0..40).map(|r| format!(r#"{{"keys": [{}], "queries": [{}]}}"#, 4 * r, 7 * r)).collect();
    let declared = format!(r#""kind": "causal", "layers": 1, "redactions": [{}]"#, listed.join(", "));
    let real = Values::ints(&[1, n], (0..n as i64).map(|k| 1 - k % 2).collect()).expect("a list");
    let beside = [("attention_mask", real)];
    let hidden = |i: usize, j: usize| i < 280 && i.is_multiple_of(7) && j == i / 7 * 4;
    let right = |_: usize, i: usize, j: usize| j <= i && j.is_multiple_of(2) && !hidden(i, j);
    verdict(bools(&[n, n], right), &context(&declared), &beside, Verdict::Correct);
    let wrong = |b: usize, i: usize, j: usize| right(b, i, j) || i == 14 && j == 8;
    verdict(bools(&[n, n], wrong), &context(&declared), &beside, Verdict::Faulty);
}

#[test]
fn redactions_by_row_are_no_holes() {
    let ids = [("input_ids", rows(&[&[5, 2, 7, 8, 2], &[5, 6, 2, 8, 2]]))];
    let ends =
        r#""kind": "bidirectional", "pad_token_id": 2, "eos_token_id": 2, "redactions": [{"batch": 1, "keys": [2]}]"#;
    let lengths = ("lengths", Values::ints(&[2], vec![5, 5]).expect("a list"));
    let beside = [ids[0].clone(), lengths];
    let declared = bools(&[2, 1, 5, 5], |b, _, j| !(b == 1 && j == 2));
    verdict(declared, &context(ends), &beside, Verdict::Correct);
    let holes = bools(&[2, 1, 5, 5], |b, _, j| [[5, 2, 7, 8, 2], [5, 6, 2, 8, 2]][b][j] != 2);
    named(&verdict(holes, &context(ends), &beside, Verdict::Faulty), "pad_equals_eos_holes");
}

#[test]
fn redactions_by_row_in_a_backends_probabilities() {
    let declared =
        context(r#""kind": "causal", "redactions": [{"batch": 1, "keys": [1], "queries": [2, 3]}], "layers": 1"#);
    let keep = |b: usize, i: usize, j: usize| j <= i && !(b == 1 && j == 1 && i >= 2);
    let softmax = |obeys: bool| {
        let mut p = Vec::new();
        for b in 0..2 {
            for i in 0..4 {
                let score = |j: usize| if keep(b, i, j) || !obeys && j <= i { (j as f32 * 0.3).exp() } else { 0.0 };
                let sum: f32 = (0..4).map(score).sum();
                p.extend((0..4).map(|j| score(j) / sum));
            }
        }
        [("probabilities", Values::floats(&[2, 1, 4, 4], p).expect("all cells"))]
    };
    verdict(bools(&[2, 1, 4, 4], keep), &declared, &softmax(true), Verdict::Correct);
    let report = verdict(bools(&[2, 1, 4, 4], keep), &declared, &softmax(false), Verdict::Faulty);
    named(&report, "mask_ignored_by_backend");
}

#[test]
fn a_prefix_or_block_opened_over_padding_is_named() {
    let left = [("input_ids", rows(&[&[5, 6, 7, 8, 9, 4, 3, 2], &[0, 0, 0, 8, 9, 4, 3, 2]]))];
    let declared = context(r#""kind": "prefix_lm", "prefix_len": 5, "prefix_from": "slot", "pad_token_id": 0"#);
    let real = |b: usize, j: usize| b == 0 || j > 2;
    let everywhere = bools(&[2, 1, 8, 8], |b, i, j| j <= i && real(b, j) || j < 5);
    let within = bools(&[2, 1, 8, 8], |b, i, j| j <= i && real(b, j) || j < 5 && i < 5);
    for mask in [everywhere, within] {
        let report = verdict(mask, &declared, &left, Verdict::Faulty);
        named(&report, "padding_unmasked_by_later_op");
        assert_eq!(report.fixed.as_ref().map(|f| f.get([1, 0, 4, 1])), Some(false), "{report}");
    }
    let right = [("input_ids", rows(&[&[5, 6, 7, 0, 0, 0]])), ("block_ids", rows(&[&[-1, 0, 0, 0, 0, -1]]))];
    let blocks = bools(&[1, 1, 6, 6], |_, i, j| j <= i && j < 3 || (1..5).contains(&i) && (1..5).contains(&j));
    let declared = context(r#""kind": "causal_with_image_blocks", "pad_token_id": 0"#);
    named(&verdict(blocks, &declared, &right, Verdict::Faulty), "padding_unmasked_by_later_op");
}

#[test]
fn row_0_right_and_the_others_not_is_named() {
    let ids = [("input_ids", rows(&[&[5, 6, 7, 8, 0], &[5, 6, 7, 0, 0], &[5, 6, 7, 8, 9]]))];
    let declared = context(r#""kind": "causal", "pad_token_id": 0"#);
    let real = |b: usize, j: usize| j < [4, 3, 5][b];
    let others_open = bools(&[3, 1, 5, 5], |b, i, j| b > 0 || j <= i && real(0, j));
    let others_unpadded = bools(&[3, 1, 5, 5], |b, i, j| if b == 0 { j <= i && real(0, j) } else { real(b, j) });
    let others_empty = bools(&[3, 1, 5, 5], |b, i, j| b == 0 && j <= i && real(0, j));
    let others_wide = bools(&[3, 1, 5, 5], |b, i, j| j <= i + usize::from(b > 0) && real(b, j));
    for mask in [others_open, others_unpadded, others_empty, others_wide] {
        let report = verdict(mask, &declared, &ids, Verdict::Faulty);
        named(&report, "batch_row_wrong");
        assert_eq!(report.fixed.as_ref().map(|f| f.get([1, 0, 0, 2])), Some(false), "{report}");
    }
}

#[test]
fn arrays_of_any_shape_beside_the_mask_never_panic() {
    let names = [
        "input_ids",
        "lengths",
        "attention_mask",
        "position_ids",
        "segment_ids",
        "cu_seqlens",
        "labels",
        "kv_positions",
        "query_positions",
        "kv_written",
        "parents",
        "block_ids",
        "hidden",
        "pooled",
        "probabilities",
        "scores",
        "v",
        "completion_ids",
        "completion_mask",
        "encoder_input_ids",
        "decoder_input_ids",
        "encoder_lengths",
        "kv_seq_ids",
        "query_seq_ids",
        "mm_token_type_ids",
        "memory_key_padding_mask",
    ];
    let kinds =
        ["causal", "bidirectional", "sliding", "chunked", "prefix_lm", "causal_packed", "tree", "cross", "packed"];
    let factor: usize = std::env::var("NOREN_DOCTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 0..2000 * factor as u64 {
        let mut dice = Dice::new(seed ^ 0xA77A_0000_0000, false);
        let array = |dice: &mut Dice| {
            let shape: Vec<usize> = (0..dice.of(0, 4)).map(|_| dice.pick(&[0, 1, 1, 2, 3, 4, 6, 65])).collect();
            let count: usize = shape.iter().product();
            let ints =
                (0..count.min(100_000)).map(|_| dice.pick(&[0, 1, 1, 2, -1, 3, -100, i64::MAX, i64::MIN, 1 << 40]));
            let (ints, reals): (Vec<i64>, bool) = (ints.collect(), false);
            (count <= 100_000).then(|| match (dice.of(0, 2), reals) {
                (0, _) => Values::bools(&shape, ints.iter().map(|x| *x == 1).collect()),
                (1, _) => Values::floats(&shape, ints.iter().map(|x| *x as f32).collect()),
                _ => Values::ints(&shape, ints),
            })
        };
        let Some(Ok(mask)) = array(&mut dice) else { continue };
        let kind = dice.pick(&kinds);
        let size = dice.of(1, 7);
        let declared = match dice.of(0, 3) {
            0 => "{}".to_string(),
            1 => format!(r#"{{"kind": "{kind}", "window": {size}, "pad_token_id": 0, "eos_token_id": 0}}"#),
            2 => format!(
                r#"{{"kind": "{kind}", "past_len": -{size}, "q_len": {size}, "chunk": {size}, "prefix_len": {size}}}"#
            ),
            _ => format!(r#"{{"role": "key_padding", "batch": {size}, "kv_len": 6, "lengths": [{size}, 900000000]}}"#),
        };
        let context = Context::from_json(&declared).expect("a context");
        let mut input = Input::new(mask).context(context);
        for _ in 0..dice.of(0, 5) {
            if let Some(Ok(values)) = array(&mut dice) {
                input = input.companion(dice.pick(&names), values);
            }
        }
        // An error is a valid result too.
        let _ = input.diagnose();
    }
}

/// Tests random cells, shuffled masks, and masks of a family with a few inverted cells: without a declaration, no
/// verdict is "correct".
#[test]
fn nothing_is_correct_without_a_declaration() {
    let factor: usize = std::env::var("NOREN_DOCTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut counts = [0usize; 4];
    for seed in 0..1000 * factor as u64 {
        let mut dice = Dice::new(seed ^ 0x5EED_0000_0000, false);
        let (batch, n) = (dice.of(1, 3), dice.of(1, 28));
        let m = if dice.chance(70) { n } else { dice.of(1, 28) };
        let (size, family, how) = (dice.of(1, 7), dice.of(0, 6), dice.of(0, 3));
        let allowed = |i: usize, j: usize| match family {
            0 => j <= i,
            1 => true,
            2 => j <= i && i - j < size,
            3 => i / size == j / size,
            4 => j <= i && i / size == j / size,
            5 => j <= i || j < size,
            _ => (i + n - j.min(n)).is_multiple_of(size),
        };
        let order: Vec<u64> = (0..n.max(m)).map(|_| dice.next()).collect();
        let cells: Vec<bool> = (0..batch * n * m)
            .map(|at| {
                let (i, j) = (at / m % n, at % m);
                match how {
                    0 => dice.chance(50),
                    1 => allowed((order[i] % n as u64) as usize, (order[j] % m as u64) as usize),
                    2 => allowed(i, j) != dice.chance(3),
                    _ => allowed(i, j),
                }
            })
            .collect();
        let shape = [batch, 1, n, m];
        let values = match dice.of(0, 2) {
            0 => Values::bools(&shape, cells),
            1 => Values::ints(&shape, cells.iter().map(|c| i64::from(*c)).collect()),
            _ => Values::floats(&shape, cells.iter().map(|c| if *c { 0.0 } else { f32::NEG_INFINITY }).collect()),
        };
        let values = values.expect("all cells");
        let declared = if dice.chance(50) { "{}" } else { r#"{"api": "sdpa", "heads": 1}"# };
        let context = Context::from_json(declared).expect("a context");
        let report = Input::new(values).context(context).diagnose().expect("a usable mask");
        assert_ne!(report.verdict, Verdict::Correct, "seed {seed}: {report}");
        assert!(!report.sentence.is_empty(), "seed {seed}: {report}");
        counts[report.verdict as usize] += 1;
    }
    println!("correct {}, faulty {}, looks like {}, cannot tell {}", counts[0], counts[1], counts[2], counts[3]);
}

/// Checks that a redacted key does not make the doctor take the keys around it for padding.
#[test]
fn redacted_keys_are_not_taken_for_padding() {
    let first = bools(&[1, 1, 4, 4], |_, i, j| j <= i && j != 2 && (i, j) != (1, 1));
    let second = bools(&[1, 1, 7, 7], |_, i, j| j <= i && j != 5 && (i, j) != (4, 3) && (i, j) != (6, 4));
    for (mask, redacted) in [(first, 2), (second, 5)] {
        let declared = context(&format!(r#""kind": "causal", "redactions": [{redacted}]"#));
        let report = verdict(mask, &declared, &[], Verdict::Faulty);
        named(&report, "unexplained_difference");
        assert!(report.fixed.is_none(), "{report}");
    }
}
