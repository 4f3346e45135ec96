//! Arrays without a mask, numbers that hide no cell, mixed fills, and masks with more keys than the cache.

use noren_doctor::{Context, Dtype, Input, Numbers, Report, Severity, Values, Verdict};

fn singles(shape: &[usize], numbers: Vec<f32>) -> Values {
    Values::new(shape, Dtype::F32, Numbers::Single(numbers)).expect("all cells")
}

#[track_caller]
fn report(input: Input, context: &str) -> Report {
    input.context(Context::from_json(context).expect("declarations")).diagnose().expect("usable arrays")
}

/// Returns hidden states `[2, len, 3]`, the padding of batch row 1, and whether a token is real.
fn states(len: usize, padding: usize, left: bool) -> (Values, impl Fn(usize, usize) -> bool + Copy) {
    let states = (0..2 * len * 3).map(|at| ((at * 7 % 23) as f32).sin()).collect();
    let real = move |b: usize, k: usize| b == 0 || if left { k >= padding } else { k < len - padding };
    (singles(&[2, len, 3], states), real)
}

fn pooled(states: &Values, len: usize, of: impl Fn(usize) -> Vec<usize>) -> Values {
    let Numbers::Single(all) = states.numbers() else { unreachable!("floats") };
    let mean = |b: usize, d: usize| of(b).iter().map(|k| all[(b * len + k) * 3 + d]).sum::<f32>() / of(b).len() as f32;
    singles(&[2, 3], (0..6).map(|at| mean(at / 3, at % 3)).collect())
}

#[test]
fn pooling_reads_the_padding_where_no_mask_is_given() {
    for (len, padding, left) in [(4, 1, false), (6, 3, false), (6, 2, true), (9, 5, true)] {
        let (hidden, real) = states(len, padding, left);
        let tokens = move |b: usize| (0..len).filter(|&k| real(b, k)).collect::<Vec<_>>();
        let plane = Values::ints(&[2, len], (0..2 * len).map(|at| i64::from(real(at / len, at % len))).collect());
        let lengths = Values::ints(&[2], vec![len as i64, (len - padding) as i64]).expect("a list");
        let side = if left { "left" } else { "right" };
        let declared = [("attention_mask", plane.expect("all cells")), ("lengths", lengths)];
        for (how, right, wrong) in [
            ("mean", pooled(&hidden, len, tokens), pooled(&hidden, len, |_| (0..len).collect())),
            ("cls", pooled(&hidden, len, |b| vec![tokens(b)[0]]), pooled(&hidden, len, |_| vec![0])),
            (
                "last",
                pooled(&hidden, len, |b| vec![*tokens(b).last().expect("tokens")]),
                pooled(&hidden, len, |_| vec![len - 1]),
            ),
        ] {
            for (name, values) in declared.clone() {
                let context = format!(r#"{{"pooling": "{how}", "padding_side": "{side}"}}"#);
                let beside = Input::without_mask().companion("hidden", hidden.clone()).companion(name, values);
                let found = report(beside.clone().companion("pooled", wrong.clone()), &context);
                let harmless = how == "cls" && !left || how == "last" && left;
                let expected: &[&str] = if harmless { &[] } else { &["pooling_includes_padding"] };
                assert_eq!(found.classes(), expected, "{how} {name} {left}: {found}");
                let found = report(beside.companion("pooled", right.clone()), &context);
                assert!(!found.faulty() && found.unknown.is_empty(), "{how} {name} {left}: {found}");
            }
        }
        let beside = Input::without_mask().companion("hidden", hidden.clone());
        let found = report(beside.companion("pooled", pooled(&hidden, len, tokens)), "{}");
        assert!(found.unknown.iter().any(|text| text.contains("padding")), "{found}");
    }
}

#[test]
fn positions_without_a_mask_are_compared_with_the_padding() {
    for (padding, right) in [(2, false), (2, true), (4, false), (4, true)] {
        let plane = (0..14).map(|at| i64::from(at < 7 || at - 7 >= padding)).collect();
        let first = if right { padding } else { 0 };
        let positions = (0..14).map(|at| if at < 7 { at } else { (at - 7 - first as i64).max(0) }).collect();
        let beside = Input::without_mask()
            .companion("attention_mask", Values::ints(&[2, 7], plane).expect("all cells"))
            .companion("position_ids", Values::ints(&[2, 7], positions).expect("all cells"));
        let expected: &[&str] = if right { &[] } else { &["position_ids"] };
        assert_eq!(report(beside, "{}").classes(), expected, "{padding}");
    }
}

#[test]
fn numbers_that_hide_no_cell_leave_no_row_without_keys() {
    for (len, lengths) in [(5, [5, 3]), (7, [2, 7]), (4, [4, 4])] {
        let numbers = (0..2 * len).map(|at| if at % len < lengths[at / len] as usize { 0.0 } else { 1.0 }).collect();
        let beside = Input::new(singles(&[2, len], numbers))
            .companion("lengths", Values::ints(&[2], lengths.to_vec()).expect("a list"));
        let found = report(beside, r#"{"convention": "additive", "role": "key_padding"}"#);
        let expected: &[&str] = if lengths == [4, 4] { &[] } else { &["float01_added"] };
        assert_eq!(found.classes(), expected, "{found}");
    }
}

#[test]
fn a_row_with_a_finite_fill_is_not_called_nan() {
    let low = f32::MIN;
    for n in [5, 6, 9] {
        let real = |at: usize| at >= n - 2;
        let cell = |at: usize| match (at / n, at % n) {
            (i, k) if k <= i && real(k) => 0.0,
            (i, k) if k > i && !real(k) && !(i == 0 && k + 1 == n) => f32::NEG_INFINITY,
            _ => low,
        };
        let plane = Values::ints(&[1, n], (0..n).map(|k| i64::from(real(k))).collect()).expect("all cells");
        let beside = Input::new(singles(&[n, n], (0..n * n).map(cell).collect())).companion("attention_mask", plane);
        let found = report(beside, r#"{"convention": "additive", "kind": "causal"}"#);
        assert_eq!(found.classes(), ["double_mask_overflow"], "{found}");
        assert!(found.findings[0].cause.contains("causal_mask + padding_mask") && found.repair.is_some(), "{found}");
        let rows = found.findings.iter().find(|f| f.class == "fully_masked_row").expect("a note");
        assert!(rows.severity == Severity::Note && rows.says.contains("average"), "{found}");
    }
}

#[test]
fn more_keys_than_the_cache_are_not_called_another_batch() {
    for (keys, held) in [(10, 4), (23, 8)] {
        let mask = Values::ints(&[1, keys], vec![1; keys]).expect("all cells");
        let sizes =
            format!(r#"{{"role": "key_padding", "kind": "sliding", "window": {held}, "q_len": 1, "kv_len": {held}}}"#);
        let found = report(Input::new(mask), &sizes);
        assert_eq!(found.verdict, Verdict::Faulty, "{found}");
        let says = &found.findings[0].says;
        assert!(says.contains(&format!("last {held} columns")) && !says.contains("another batch"), "{found}");
    }
}
