//! Mistakes and correct masks that people reported in public, rebuilt small: each with a correct twin, which raises no alarm.

use crate::doctor::Dice;
use noren_doctor::{Context, Input, Report, Values, Verdict};
use noren_mask::{Facts, Mask, Shape};

fn bools(shape: [usize; 4], cell: impl Fn(usize, usize, usize) -> bool) -> Values {
    let [batch, heads, q, k] = shape;
    let cells = (0..batch * heads * q * k).map(|at| cell(at / (heads * q * k), at / k % q, at % k));
    Values::bools(&shape, cells.collect()).expect("all cells")
}

fn input(mask: Values, context: &str) -> Input {
    Input::new(mask).context(Context::from_json(context).expect("declarations"))
}

#[track_caller]
fn is(report: &Report, class: &str) {
    assert!(report.classes().first() == Some(&class), "{report}");
}

#[track_caller]
fn is_correct(report: &Report) {
    assert_eq!(report.verdict, Verdict::Correct, "{report}");
}

#[test]
fn images_that_are_compared_as_flags_are_one_block() {
    let mut dice = Dice::new(41, true);
    for _ in 0..100 {
        let parts: Vec<usize> = (0..5).map(|_| dice.of(2, 4)).collect();
        let ids: Vec<i64> =
            parts.iter().zip([-1, 0, -1, 1, -1]).flat_map(|(&n, id)| std::iter::repeat_n(id, n)).collect();
        let n = ids.len();
        let declared = r#"{"kind": "causal", "convention": "keep_bool"}"#;
        let check = |cell: &dyn Fn(usize, usize) -> bool| {
            let blocks = Values::ints(&[1, n], ids.clone()).expect("a row");
            let mask = bools([1, 1, n, n], |_, i, k| k <= i || cell(i, k));
            input(mask, declared).companion("block_ids", blocks).diagnose().expect("a usable mask")
        };
        is_correct(&check(&|i, k| ids[i] >= 0 && ids[i] == ids[k]));
        let merged = check(&|i, k| ids[i] >= 0 && ids[k] >= 0);
        is(&merged, "prefix_lm_or_block_wrong");
        assert!(merged.to_string().contains("tokens of different blocks read each other"), "{merged}");
        assert!(merged.repair.is_some(), "{merged}");
    }
}

#[test]
fn a_window_that_ends_one_key_early_after_the_query_is_off_by_one() {
    for (left, right, by) in [(4, 3, -1), (4, 3, 1), (2, 2, -1), (3, 1, 1)] {
        let end = (right + by) as usize;
        let mask = bools([1, 1, 12, 12], |_, i, k| k <= i + end && i <= k + left as usize);
        let text = format!("window(left={left}, right={right})");
        let meant: Mask = text.parse().expect("a mask");
        let meant = meant.bind(&Shape::square(12), &Facts::new()).expect("a shape");
        let report = input(mask, r#"{"api": "sdpa"}"#).meant(&meant).diagnose().expect("a usable mask");
        is(&report, "sliding_window_off_by_one");
    }
}

#[test]
fn a_window_in_total_is_no_question_once_it_is_declared() {
    for (left, right) in [(4, 3), (3, 4)] {
        let mask = bools([1, 1, 12, 12], |_, i, k| k <= i + right && i <= k + left);
        let declared =
            r#"{"kind": "bidirectional_sliding", "window": 8, "window_means": "keys in total", "api": "sdpa"}"#;
        is_correct(&input(mask, declared).diagnose().expect("a usable mask"));
    }
}

#[test]
fn a_padding_mask_of_a_static_cache_is_a_question() {
    let mask = || Values::ints(&[2, 8], [[1, 1, 1, 0, 0, 0, 0, 0]; 2].concat()).expect("rows");
    let ids = || Values::ints(&[2, 3], vec![5; 6]).expect("rows");
    let declared = |more: &str| format!(r#"{{"role": "key_padding", "kind": "causal"{more}}}"#);
    let asked = input(mask(), &declared("")).companion("input_ids", ids()).diagnose().expect("a usable mask");
    assert_eq!(asked.verdict, Verdict::CannotTell, "{asked}");
    assert!(asked.open[0].question.contains("declare kv_len"), "{asked}");
}

#[test]
fn a_row_that_is_pooled_otherwise_than_declared_is_named() {
    let lengths = [6, 4, 2];
    let hidden: Vec<f32> = (0..3 * 6 * 4).map(|at| (at * 37 % 101) as f32 / 7.0).collect();
    let check = |first: usize| {
        let row = |b: usize| if b == 0 { first } else { lengths[b] - 1 };
        let pooled = (0..3).flat_map(|b| hidden[(b * 6 + row(b)) * 4..][..4].to_vec()).collect();
        let mask =
            Values::ints(&[3, 6], (0..18).map(|at| i64::from(at % 6 < lengths[at / 6])).collect()).expect("rows");
        input(mask, r#"{"role": "key_padding", "lengths": [6, 4, 2], "pooling": "last"}"#)
            .companion("hidden", Values::floats(&[3, 6, 4], hidden.clone()).expect("states"))
            .companion("pooled", Values::floats(&[3, 4], pooled).expect("states"))
            .diagnose()
            .expect("usable arrays")
    };
    is_correct(&check(5));
    let wrong = check(0);
    is(&wrong, "pooling_includes_padding");
    assert!(wrong.to_string().contains("batch row 0 is the token at index 0"), "{wrong}");
}

#[test]
fn the_bias_of_alibi_falls_with_the_distance() {
    let check = |sign: f32| {
        let cell = |at: usize| match (at / 8, at % 8) {
            (i, k) if k <= i => sign * 0.25 * (i - k) as f32,
            _ => f32::NEG_INFINITY,
        };
        let mask = Values::floats(&[1, 1, 8, 8], (0..64).map(cell).collect()).expect("all cells");
        input(mask, r#"{"kind": "causal", "bias": "alibi"}"#).diagnose().expect("a usable mask")
    };
    is_correct(&check(-1.0));
    let wrong = check(1.0);
    is(&wrong, "relative_bias_with_padding");
    assert!(wrong.to_string().contains("grows with the distance"), "{wrong}");
}
