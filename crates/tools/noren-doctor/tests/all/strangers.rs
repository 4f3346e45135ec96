//! Kinds of mistakes in masks of strangers, drawn in many forms: each is named, and its correct twin raises no alarm.

use crate::doctor::Dice;
use noren_doctor::{Context, Input, Report, Values, Verdict};
use noren_mask::{Facts, Keep, Mask, Shape};

type Cell<'a> = &'a dyn Fn(usize, usize, usize) -> bool;

fn bools(shape: &[usize], cell: Cell<'_>) -> Values {
    let (k, q) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let all: usize = shape.iter().product();
    Values::bools(shape, (0..all).map(|at| cell(at / (q * k), at / k % q, at % k)).collect()).expect("all cells")
}

fn floats(shape: &[usize], number: &dyn Fn(usize, usize, usize) -> f32) -> Values {
    let (k, q) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let all: usize = shape.iter().product();
    Values::floats(shape, (0..all).map(|at| number(at / (q * k), at / k % q, at % k)).collect()).expect("all cells")
}

fn rows(rows: &[Vec<i64>]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn report(mask: Values, context: &str, beside: &[(&str, Values)]) -> Report {
    let input = Input::new(mask).context(Context::from_json(context).expect("declarations"));
    let input = beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone()));
    input.diagnose().expect("a usable mask")
}

fn against(mask: Values, meant: &str, shape: &Shape) -> Report {
    let meant: Mask = meant.parse().expect("a mask");
    let meant = meant.bind(shape, &Facts::new()).expect("a shape");
    Input::new(mask).meant(&meant).diagnose().expect("a usable mask")
}

#[track_caller]
fn is(report: &Report, class: &str) {
    assert!(report.verdict == Verdict::Faulty && report.classes().first() == Some(&class), "{class}: {report}");
}

#[track_caller]
fn is_calm(report: &Report) {
    assert!(!report.faulty() && report.repair.is_none(), "{report}");
}

/// A mask of 0 and 1 beside a mask of 0 and -inf, or added to it, in one array.
#[test]
fn two_conventions_in_one_array() {
    let mut dice = Dice::new(7, true);
    for round in 0..200 {
        let (n, extra) = (dice.of(3, 9), dice.of(2, 6));
        let fill = dice.pick(&[f32::NEG_INFINITY, -1e9, f32::MIN]);
        let (by_keys, first, inverted) = (round % 2 == 0, dice.chance(50), dice.chance(20));
        let (q, k) = if by_keys { (n, n + extra) } else { (n + extra, n) };
        // The cells of the part that is a mask of 0 and 1.
        let own = |i: usize, k: usize| {
            let at = if by_keys { k } else { i };
            if first { at < extra } else { at >= n }
        };
        let seen = |i: usize, k: usize| match (own(i, k), by_keys, first) {
            (false, true, true) => k - extra <= i,
            (false, false, true) => k <= i - extra,
            (false, ..) => k <= i,
            (true, ..) => (i * 5 + k * 3) % 7 < 3 || i % n == k % n,
        };
        let number = |i: usize, k: usize| match (own(i, k), seen(i, k)) {
            (true, cell) => f32::from(u8::from(cell != inverted)),
            (false, true) => 0.0,
            (false, false) => fill,
        };
        let shape = [1, 1, q, k];
        let mixed = floats(&shape, &|_, i, k| number(i, k));
        let found = report(mixed.clone(), r#"{"convention": "additive"}"#, &[]);
        is(&found, "float01_added");
        assert!(found.findings[0].says.contains("two conventions"), "{found}");
        let keep = Keep::from_fn(shape, |[_, _, i, k]| seen(i, k));
        if !inverted && keep.cells().any(|cell| !cell) {
            let cells: Vec<bool> = keep.cells().collect();
            let facts = Facts::new().array("m", noren_mask::Array::keep(&shape, &cells).expect("cells"));
            let dense: Mask = "dense(\"m\")".parse().expect("a mask");
            let meant = dense.bind(&Shape::cross(q, k), &facts).expect("a shape");
            let stated = Input::new(mixed).meant(&meant).diagnose().expect("a usable mask");
            assert_eq!(stated.classes(), ["float01_added"], "{stated}");
            assert_eq!(stated.fixed, Some(keep), "{stated}");
        }
        is_calm(&report(
            floats(&shape, &|_, i, k| if seen(i, k) { 0.0 } else { fill }),
            r#"{"convention": "additive"}"#,
            &[],
        ));
    }
    let sum = floats(&[1, 1, 5, 5], &|_, i, k| if k > i { f32::NEG_INFINITY } else { f32::from(u8::from(k < 3)) });
    let found = report(sum, r#"{"kind": "causal", "lengths": [3]}"#, &[]);
    is(&found, "float01_added");
}

/// A key that is hidden in one batch row is named, with its row; no other batch row is named.
#[test]
fn a_hole_in_one_batch_row() {
    let mut dice = Dice::new(11, true);
    for _ in 0..200 {
        let (batch, n) = (dice.of(2, 4), dice.of(6, 12));
        let lengths: Vec<usize> = (0..batch).map(|_| dice.of(5, n)).collect();
        let (left, causal) = (dice.chance(50), dice.chance(50));
        let at = dice.of(0, batch - 1);
        let first = |b: usize| if left { n - lengths[b] } else { 0 };
        let hole = first(at) + dice.of(1, lengths[at] - 3);
        let real = |b: usize, k: usize| k >= first(b) && k < first(b) + lengths[b];
        let cell =
            |b: usize, i: usize, k: usize| real(b, k) && (!causal || k <= i) && !(b == at && k == hole && i != hole);
        let (kind, side) = (if causal { "causal" } else { "bidirectional" }, if left { "left" } else { "right" });
        let declared =
            format!(r#"{{"kind": "{kind}", "api": "sdpa", "lengths": {lengths:?}, "padding_side": "{side}"}}"#);
        let found = report(bools(&[batch, 1, n, n], &cell), &declared, &[]);
        is(&found, "hidden_keys");
        assert!(found.repair.is_some(), "{found}");
        let says = &found.findings[0].says;
        assert!(says.contains(&format!("batch row {at}")) && says.contains(&format!("key {hole}")), "{found}");
    }
}

/// Queries and keys are exchanged in a prefix mask, whether the prefix is declared, read from the array, or not declared.
#[test]
fn a_transposed_prefix() {
    let mut dice = Dice::new(13, true);
    for _ in 0..100 {
        let n = dice.of(6, 12);
        let prefix = dice.of(2, n - 3);
        let (len, left) = (dice.of(prefix + 2, n), dice.chance(50));
        let first = if left { n - len } else { 0 };
        let seen = |i: usize, k: usize| k <= i || k < first + prefix;
        let real = |k: usize| k >= first && k < first + len;
        let padded = |_: usize, i: usize, k: usize| seen(i, k) && real(k);
        let turned = |b: usize, i: usize, k: usize| padded(b, k, i);
        let shape = [1, 1, n, n];
        let side = if left { "left" } else { "right" };
        let lengths = format!(
            r#""lengths": [{len}], "padding_side": "{side}", "prefix_from": "text", "api": "sdpa", "kind": "prefix_lm""#
        );
        let sized = format!(r#"{{{lengths}, "prefix_len": {prefix}}}"#);
        assert_eq!(report(bools(&shape, &padded), &sized, &[]).verdict, Verdict::Correct);
        is(&report(bools(&shape, &turned), &sized, &[]), "broadcast_wrong_axis");
        if len == n {
            for declared in [format!("{{{lengths}}}"), r#"{"api": "sdpa"}"#.to_string()] {
                is_calm(&report(bools(&shape, &padded), &declared, &[]));
                is(&report(bools(&shape, &turned), &declared, &[]), "broadcast_wrong_axis");
            }
        }
    }
    let cross = report(
        bools(&[1, 1, 7, 4], &|_, i, k| i <= k + 3),
        r#"{"api": "sdpa", "kind": "causal", "q_len": 4, "kv_len": 7}"#,
        &[],
    );
    is(&cross, "broadcast_wrong_axis");
}

/// The question where documents end names the tokens at the borders, and the token that ends texts answers it.
#[test]
fn borders_of_documents_in_token_ids() {
    let ids: Vec<i64> = vec![5, 6, 2, 7, 8, 9, 2, 4, 3, 2];
    let document = |ends_first: bool| -> Vec<usize> {
        let mut number = 0;
        let one = |&id: &i64| {
            number += usize::from(ends_first && id == 2);
            let own = number;
            number += usize::from(!ends_first && id == 2);
            own
        };
        ids.iter().map(one).collect()
    };
    let beside = [("input_ids", rows(std::slice::from_ref(&ids)))];
    let mask = |of: &[usize]| bools(&[1, 1, 10, 10], &|_, i, k| k <= i && of[i] == of[k]);
    let kind = r#"{"api": "sdpa", "kind": "causal_packed"}"#;
    let with_eos = r#"{"api": "sdpa", "kind": "causal_packed", "eos_token_id": 2}"#;
    for (of, reading, words) in [
        (document(false), 0, "declare eos_token_id=2"),
        (document(true), 1, "declare eos_token_id=2"),
        (vec![0; 10], 1, "is not in input_ids"),
    ] {
        let asked = report(mask(&of), kind, &beside);
        assert_eq!(asked.verdict, Verdict::CannotTell, "{asked}");
        assert!(asked.open[0].readings[reading].contains(words), "{asked}");
    }
    assert_eq!(report(mask(&document(false)), with_eos, &beside).verdict, Verdict::Correct);
    is(&report(mask(&document(true)), with_eos, &beside), "document_boundary_off_by_one");
    is(&report(mask(&[0; 10]), with_eos, &beside), "cross_document");
    let absent = [("input_ids", rows(&[vec![5, 6, 7, 7, 8, 9, 9, 4, 3, 1]]))];
    let asked = report(mask(&[0; 10]), with_eos, &absent);
    assert!(asked.open[0].readings[1].contains("eos_token_id=2 is not in input_ids"), "{asked}");
}

/// Negative numbers that do not hide cells reliably, alone, twice, or beside -inf. The -100 of Swin hides cells at usual scores.
#[test]
fn weak_fills() {
    for fill in [-1.0f32, -10.0, -50.0, -100.0, -1000.0] {
        for other in [0.0, f32::NEG_INFINITY, 2.0 * fill, -1e9] {
            let of = |i: usize, k: usize| match (k <= i, k < 4) {
                (true, true) => 0.0,
                (false, false) if other != 0.0 => other,
                _ => fill,
            };
            let declared = |more: &str| format!(r#"{{"kind": "causal", "lengths": [4]{more}}}"#);
            let check = |more: &str, beside: &[(&str, Values)]| {
                report(floats(&[1, 1, 6, 6], &|_, i, k| of(i, k)), &declared(more), beside)
            };
            if fill <= -80.0 {
                let found = check("", &[]);
                assert!(found.verdict == Verdict::Correct && found.findings[0].class == "fill_value_wrong", "{found}");
                is(&check(r#", "score_bound": 1000"#, &[]), "fill_value_wrong");
                let even = ("probabilities", floats(&[1, 1, 6, 6], &|_, _, k| (k + 1) as f32 / 21.0));
                is(&check("", &[even]), "fill_value_wrong");
            } else if fill <= -10.0 || other == 0.0 {
                is(&check("", &[]), "fill_value_wrong");
            }
        }
    }
    let hides = report(floats(&[1, 1, 6, 6], &|_, i, k| if k <= i { 0.0 } else { -1e4 }), r#"{"kind": "causal"}"#, &[]);
    assert_eq!(hides.verdict, Verdict::Correct, "{hides}");
    let ints = Values::ints(&[1, 1, 4, 4], (0..16).map(|at| if at % 4 <= at / 4 { 0 } else { -10000 }).collect());
    assert_eq!(report(ints.expect("cells"), r#"{"kind": "causal"}"#, &[]).verdict, Verdict::Correct);
}

/// Two masks that are combined with `&` instead of `|`, or the reverse.
#[test]
fn terms_that_are_combined_with_the_wrong_operator() {
    let shape = Shape::square(12);
    let of = |text: &str| {
        let mask: Mask = text.parse().expect("a mask");
        Keep::of(&mask.bind(&shape, &Facts::new()).expect("a shape"))
    };
    for (meant, given) in [
        ("causal & documents([5, 7])", "causal | documents([5, 7])"),
        ("sliding(4) & keys(..9)", "sliding(4) | keys(..9)"),
        ("causal & stride(2) & keys(..9)", "causal & stride(2) | keys(..9)"),
        ("causal & (stride(3) | keys(..2))", "causal & stride(3) & keys(..2)"),
        ("window(left=2, right=2) & documents([5, 7])", "window(left=2, right=2) | documents([5, 7])"),
    ] {
        for drop in [false, true] {
            let keep = of(given);
            let cells = bools(&[1, 1, 12, 12], &|_, i, k| keep.get([0, 0, i, k]) != drop);
            let context = if drop { r#"{"convention": "ignore_bool"}"# } else { r#"{"convention": "keep_bool"}"# };
            let bound: Mask = meant.parse().expect("a mask");
            let bound = bound.bind(&shape, &Facts::new()).expect("a shape");
            let context = Context::from_json(context).expect("declarations");
            let found = Input::new(cells).context(context).meant(&bound).diagnose().expect("a usable mask");
            is(&found, "wrong_operator");
            assert_eq!(found.fixed, Some(of(meant)), "{found}");
        }
    }
    let mut dice = Dice::new(17, true);
    for _ in 0..100 {
        let n = dice.of(6, 12);
        let lengths = [dice.of(3, n - 1), dice.of(3, n - 1)];
        let documents = dice.chance(50);
        let left = dice.chance(50);
        let real = |b: usize, k: usize| if left { k >= n - lengths[b] } else { k < lengths[b] };
        let cut = dice.of(2, n - 2);
        let of = |i: usize, k: usize| k <= i && (!documents || (i < cut) == (k < cut));
        let side = if left { "left" } else { "right" };
        let kind = if documents { "causal_packed" } else { "causal" };
        let declared =
            format!(r#"{{"kind": "{kind}", "api": "sdpa", "lengths": {lengths:?}, "padding_side": "{side}"}}"#);
        let segments = rows(&vec![(0..n).map(|k| 1 + i64::from(k >= cut)).collect(); 2]);
        let beside = if documents { vec![("segment_ids", segments)] } else { vec![] };
        let found = report(bools(&[2, 1, n, n], &|b, i, k| of(i, k) || real(b, k)), &declared, &beside);
        // With right padding, these are also the cells of a mask that is not causal.
        if left {
            is(&found, "wrong_operator");
        }
        assert!(found.verdict == Verdict::Faulty && found.to_string().contains("wrong_operator"), "{found}");
        assert!(found.repair.is_some(), "{found}");
    }
}

/// Batch rows of beams that are tiled instead of repeated one by one.
#[test]
fn batch_rows_that_are_tiled() {
    let mut dice = Dice::new(19, true);
    for round in 0..120 {
        let (texts, beams, n) = (dice.of(2, 3), dice.of(2, 3), dice.of(6, 10));
        let own: Vec<usize> = (0..texts).map(|t| n - t - dice.of(0, 1) * usize::from(t + 1 == texts)).collect();
        let batch = texts * beams;
        let right: Vec<usize> = (0..batch).map(|b| own[b / beams]).collect();
        let given: Vec<usize> = (0..batch).map(|b| own[b % texts]).collect();
        let left = dice.chance(50);
        let real = |len: usize, k: usize| if left { k >= n - len } else { k < len };
        let side = if left { "left" } else { "right" };
        let table = |lengths: &[usize]| {
            rows(&lengths.iter().map(|&len| (0..n).map(|k| i64::from(real(len, k))).collect()).collect::<Vec<_>>())
        };
        let (mask, twin, declared) = match round % 3 {
            0 => (table(&given), table(&right), r#""role": "key_padding""#),
            1 => {
                let cells = |lengths: &[usize]| bools(&[batch, 1, n, n], &|b, i, k| real(lengths[b], k) && k <= i);
                (cells(&given), cells(&right), r#""kind": "causal", "api": "sdpa""#)
            }
            _ => {
                let cells = |lengths: &[usize]| bools(&[batch, 1, 3, n], &|b, _, k| real(lengths[b], k));
                (cells(&given), cells(&right), r#""kind": "cross", "api": "sdpa""#)
            }
        };
        let declared = format!(r#"{{{declared}, "lengths": {right:?}, "padding_side": "{side}"}}"#);
        let found = report(mask, &declared, &[]);
        is(&found, "batch_row_wrong");
        assert!(found.findings[0].says.contains("repeat_interleave"), "{found}");
        assert_eq!(report(twin, &declared, &[]).verdict, Verdict::Correct);
    }
}

/// One row of keys does not show a causal mask: the question names both readings.
#[test]
fn one_row_of_keys_is_not_a_causal_mask() {
    let row = || Values::bools(&[8], vec![true; 8]).expect("a row");
    for kind in ["causal", "sliding"] {
        let asked = report(
            row(),
            &format!(r#"{{"kind": "{kind}", "window": 3}}"#)
                .replace(r#", "window": 3"#, if kind == "causal" { "" } else { r#", "window": 3"# }),
            &[],
        );
        assert_eq!(asked.verdict, Verdict::CannotTell, "{asked}");
        assert!(
            asked.open[0].readings.iter().any(|reading| reading.contains("1 query by 8 keys: declare role=attn")),
            "{asked}"
        );
    }
    let declared = r#"{"kind": "causal", "role": "key_padding", "convention": "keep_bool"}"#;
    assert_eq!(report(row(), declared, &[]).verdict, Verdict::Correct);
    let query = r#"{"kind": "causal", "role": "attn", "past_len": 7, "convention": "keep_bool"}"#;
    assert_eq!(report(row(), query, &[]).verdict, Verdict::Correct);
    let short = Values::bools(&[8], (0..8).map(|k| k == 0).collect()).expect("a row");
    is(&report(short, query, &[]), "causal_alignment");
}

/// The mask of a new token that is aligned to the top left is named, and not a question about the convention.
#[test]
fn one_query_at_the_top_left_is_an_alignment() {
    for keys in [2usize, 5, 17, 64] {
        for shape in [vec![1, keys], vec![1, 1, 1, keys]] {
            let mask = Values::bools(&shape, (0..keys).map(|k| k == 0).collect()).expect("a row");
            let declared = format!(r#"{{"kind": "causal", "past_len": {}}}"#, keys - 1);
            is(&report(mask, &declared, &[]), "causal_alignment");
        }
    }
}

/// Arrays that give the padding of the same tokens must agree, with and without a mask.
#[test]
fn paddings_that_contradict_each_other() {
    let table = |lengths: &[usize], left: bool| {
        let real = |len: usize, k: usize| if left { k >= 6 - len } else { k < len };
        lengths.iter().map(|&len| (0..6).map(|k| i64::from(real(len, k))).collect()).collect::<Vec<Vec<i64>>>()
    };
    for left in [false, true] {
        let side = if left { "left" } else { "right" };
        let lengths = format!(r#"{{"lengths": [6, 3], "padding_side": "{side}"}}"#);
        let beside = |lengths: &[usize]| vec![("attention_mask", rows(&table(lengths, left)))];
        let none = |context: &str, beside: &[(&str, Values)]| {
            let input = Input::without_mask().context(Context::from_json(context).expect("declarations"));
            let input = beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone()));
            input.diagnose().expect("usable arrays")
        };
        is_calm(&none(&lengths, &beside(&[6, 3])));
        is(&none(&lengths, &beside(&[6, 4])), "stale_or_bucketed_mask");
        let ids = |lengths: &[usize]| {
            (
                "input_ids",
                rows(&table(lengths, left).iter().map(|r| r.iter().map(|x| x * 7).collect()).collect::<Vec<_>>()),
            )
        };
        let padded = r#"{"pad_token_id": 0}"#;
        is_calm(&none(padded, &[beside(&[6, 3]), vec![ids(&[6, 3])]].concat()));
        is(&none(padded, &[beside(&[6, 3]), vec![ids(&[6, 2])]].concat()), "stale_or_bucketed_mask");
        let both = format!(r#"{{"pad_token_id": 0, "lengths": [6, 3], "padding_side": "{side}"}}"#);
        is_calm(&none(&both, &[ids(&[6, 3])]));
        is(&none(&both, &[ids(&[6, 2])]), "stale_or_bucketed_mask");
    }
}

/// An array that its file calls key_padding_mask is a mask of rows of keys.
#[test]
fn the_name_of_an_array_declares_its_role() {
    let mask = Values::bools(&[2, 4], vec![true, true, true, true, false, false, true, true]).expect("rows");
    let ids = rows(&[vec![5, 5, 5, 5], vec![5, 5, 0, 0]]);
    let arrays = vec![("input_ids".to_string(), ids), ("key_padding_mask".to_string(), mask)];
    let context = r#"{"pad_token_id": 0, "convention": "ignore_bool"}"#;
    let input = Input::of_arrays(arrays).context(Context::from_json(context).expect("declarations"));
    let found = input.diagnose().expect("usable arrays");
    is(&found, "stale_or_bucketed_mask");
    assert!(!found.to_string().contains("no check reads"), "{found}");
}

/// The cause of a wrong window is true of the keys that its width counts.
#[test]
fn the_cause_of_a_window_counts_as_declared() {
    for (means, by, words) in [
        ("keys visible, self included", 1, "`q - k <= W` (correct: `q - k < W`)"),
        ("keys visible, self included", -1, "`q - k < W - 1`"),
        ("keys before the query", -1, "`q - k < W` (correct for a width that does not count the query: `q - k <= W`)"),
        ("keys before the query", 1, ""),
    ] {
        let before = if means.starts_with("keys before") { 4 } else { 3 } + by;
        let mask = bools(&[1, 1, 12, 12], &|_, i, k| k <= i && (i - k) as i64 <= before);
        let declared = format!(r#"{{"kind": "sliding", "window": 4, "window_means": "{means}", "api": "sdpa"}}"#);
        let found = report(mask, &declared, &[]);
        is(&found, "sliding_window_off_by_one");
        assert!(
            found.findings[0].cause.contains(words) && words.is_empty() == found.findings[0].cause.is_empty(),
            "{found}"
        );
    }
}

/// An intended mask with score modifiers is refused, and one without known positions of its queries is a question.
#[test]
fn an_intended_mask_is_checked_in_one_place() {
    let input = || {
        Input::new(bools(&[1, 1, 4, 12], &|_, i, k| k <= i))
            .context(Context::from_json(r#"{"api": "sdpa"}"#).expect("declarations"))
    };
    let shape = input().shape(None).expect("a shape").expect("a mask");
    let of = |text: &str, placed: bool| {
        let spec: noren_mask::Spec = text.parse().expect("a mask");
        let bound = spec.mask.bind(&shape, &Facts::new()).expect("a shape");
        input().intended(&spec, &bound, placed)
    };
    let error = of("causal + alibi", false).expect_err("score modifiers").to_string();
    assert!(error.contains("give `causal`"), "{error}");
    let asked = of("causal", false).expect("a mask").diagnose().expect("a usable mask");
    assert!(asked.verdict == Verdict::CannotTell && asked.open[0].question.contains("past_len"), "{asked}");
    is(&of("causal", true).expect("a mask").diagnose().expect("a usable mask"), "causal_alignment");
    let hidden = Input::new(bools(&[2, 1, 3, 8], &|b, _, k| k < 8 - 2 * b));
    let hidden = hidden.context(Context::from_json(r#"{"api": "sdpa"}"#).expect("declarations"));
    let shape = hidden.shape(None).expect("a shape").expect("a mask");
    for (lengths, verdict) in [([8, 6], Verdict::Correct), ([8, 5], Verdict::Faulty)] {
        let spec: noren_mask::Spec = "padding".parse().expect("a mask");
        let bound = spec.mask.bind(&shape, &Facts::new().lengths(lengths)).expect("a shape");
        let found = hidden.clone().intended(&spec, &bound, false).expect("a mask").diagnose().expect("a usable mask");
        assert_eq!(found.verdict, verdict, "{found}");
    }
    let square = against(bools(&[1, 1, 6, 6], &|_, i, k| k <= i), "causal", &Shape::square(6));
    assert_eq!(square.verdict, Verdict::Correct, "{square}");
}

/// One row of queries beside cached tokens is the mask of one new token, also if the cache has more slots.
#[test]
fn one_step_of_a_static_cache() {
    for (past, slots) in [(5usize, 12usize), (1, 4), (7, 8), (0, 6)] {
        let row = |end: usize| bools(&[1, 1, 1, slots], &|_, _, k| k < end);
        for more in [format!(r#", "kv_len": {slots}"#), String::new()] {
            let declared = format!(r#"{{"kind": "causal", "past_len": {past}, "convention": "keep_bool"{more}}}"#);
            assert_eq!(report(row(past + 1), &declared, &[]).verdict, Verdict::Correct);
            if past > 1 {
                let found = report(row(past), &declared, &[]);
                assert!(["causal_self_excluded", "stale_decode_mask"].contains(&found.classes()[0]), "{found}");
                assert_eq!(found.repair, Some(row(past + 1)), "{found}");
            }
        }
        let asked = report(row(past + 1), r#"{"kind": "causal"}"#, &[]);
        let positions = asked.open.iter().any(|open| open.question.contains("declare past_len"));
        assert!(asked.verdict == Verdict::CannotTell && positions, "{asked}");
    }
    let nothing = bools(&[1, 1, 4, 12], &|_, _, _| false);
    let declared = r#"{"kind": "causal", "past_len": 0, "kv_len": 12, "convention": "keep_bool"}"#;
    assert_eq!(report(nothing, declared, &[]).classes(), ["fully_masked_row"]);
}

/// A window that hides the keys after the query instead of the keys before it.
#[test]
fn a_window_on_the_wrong_side() {
    for window in [2usize, 4, 6] {
        let mask = bools(&[1, 1, 16, 16], &|_, i, k| k <= i || k > i + window);
        let declared = format!(r#"{{"kind": "sliding", "window": {window}, "api": "sdpa"}}"#);
        let stated = Input::new(mask.clone()).context(Context::from_json(r#"{"api": "sdpa"}"#).expect("declarations"));
        let meant: Mask = format!("sliding({window})").parse().expect("a mask");
        let stated = stated.meant(&meant.bind(&Shape::square(16), &Facts::new()).expect("a shape"));
        for found in [report(mask, &declared, &[]), stated.diagnose().expect("a usable mask")] {
            is(&found, "window_missing_or_wrong_layer");
            assert!(found.findings[0].cause.contains("tril(diagonal=-W)") && found.repair.is_some(), "{found}");
        }
    }
}

/// The first token of each document is hidden from its document.
#[test]
fn the_first_tokens_of_documents_are_hidden() {
    let mut dice = Dice::new(23, true);
    for _ in 0..60 {
        let lengths: Vec<usize> = (0..3).map(|_| dice.of(3, 5)).collect();
        let of: Vec<usize> = lengths.iter().enumerate().flat_map(|(at, &len)| std::iter::repeat_n(at, len)).collect();
        let n = of.len();
        let first = |k: usize| k == 0 || of[k] != of[k - 1];
        let ids = ("input_ids", rows(&[(0..n).map(|k| if first(k) { 1 } else { 7 }).collect()]));
        let segments = ("segment_ids", rows(&[of.iter().map(|at| *at as i64 + 1).collect()]));
        for (beside, more) in [(segments, ""), (ids, r#", "bos_token_id": 1"#)] {
            let declared = format!(r#"{{"kind": "causal_packed", "convention": "keep_bool"{more}}}"#);
            let cell = |i: usize, k: usize| k <= i && of[i] == of[k];
            let twin = report(bools(&[1, n, n], &|_, i, k| cell(i, k)), &declared, std::slice::from_ref(&beside));
            assert_eq!(twin.verdict, Verdict::Correct, "{twin}");
            let found = report(bools(&[1, n, n], &|_, i, k| cell(i, k) && !first(k)), &declared, &[beside]);
            assert_eq!(found.classes(), ["hidden_keys", "fully_masked_row"], "{found}");
            assert!(found.repair.is_some() && found.to_string().contains("3 row(s) of non-padding queries"), "{found}");
        }
    }
}

/// Segments whose tokens are in several places, such as the regions of a shifted window, are named as they are.
#[test]
fn segments_in_several_places() {
    let region = |b: usize, k: usize| 1 + usize::from(b % 2 == 1 && k % 4 > 1) + 2 * usize::from(b > 1 && k > 7);
    let segments =
        ("segment_ids", rows(&(0..4).map(|b| (0..16).map(|k| region(b, k) as i64).collect()).collect::<Vec<_>>()));
    let mask = |same: &dyn Fn(usize, usize, usize) -> bool| {
        floats(&[4, 16, 16], &|b, i, k| if same(b, i, k) { 0.0 } else { -100.0 })
    };
    let declared = r#"{"kind": "bidirectional", "convention": "additive"}"#;
    let twin = mask(&|b, i, k| region(b, i) == region(b, k));
    let wrong = mask(&|b, i, k| region(b, i) / 3 == region(b, k) / 3);
    assert_eq!(report(twin.clone(), declared, std::slice::from_ref(&segments)).verdict, Verdict::Correct);
    let found = report(wrong.clone(), declared, &[segments]);
    is(&found, "cross_document");
    assert!(found.findings[0].says.ends_with("read each other in batch rows 1, 3"), "{found}");
    assert_eq!(found.repair, Some(twin.clone()), "{found}");
    is_calm(&report(twin, r#"{"convention": "additive"}"#, &[]));
    is_calm(&report(wrong, r#"{"convention": "additive"}"#, &[]));
}

/// All contradictions of `cu_seqlens` are named at once.
#[test]
fn borders_of_another_rank() {
    let list = |numbers: &[i64]| Values::ints(&[numbers.len()], numbers.to_vec()).expect("a list");
    let input = Input::without_mask().companion("cu_seqlens", list(&[8, 24]));
    let found = input.companion("input_ids", rows(&[vec![5; 8]])).diagnose().expect("usable arrays");
    is(&found, "document_boundary_off_by_one");
    assert!(
        found.findings[0].says.contains("is 8, but it must be 0; the last value of cu_seqlens is 24, but it must be 8"),
        "{found}"
    );
}

/// Probabilities of the inverted array are those of a function in which true hides a cell.
#[test]
fn probabilities_of_an_inverted_array_accuse_no_backend() {
    let mut dice = Dice::new(29, true);
    for _ in 0..100 {
        let (n, window) = (dice.of(3, 9), dice.of(1, 5));
        let hides = |i: usize, k: usize| k > i || i.saturating_sub(k) >= window;
        let p =
            |i: usize, k: usize| if hides(i, k) { 0.0 } else { 1.0 / (0..n).filter(|k| !hides(i, *k)).count() as f32 };
        let heads = dice.of(1, 3);
        let given = ("probabilities", floats(&[1, heads, n, n], &|_, i, k| p(i, k)));
        let drop = bools(&[1, 1, n, n], &|_, i, k| hides(i, k));
        is_calm(&report(drop.clone(), "{}", std::slice::from_ref(&given)));
        let declared = report(drop, r#"{"convention": "keep_bool"}"#, std::slice::from_ref(&given));
        assert!(declared.faulty(), "{declared}");
    }
}

/// The ends of packed documents count all tokens of a padded batch, or only the non-padding tokens, where each batch row begins a document.
#[test]
fn ends_of_packed_documents_in_padded_batches() {
    let mut dice = Dice::new(31, true);
    for round in 0..100 {
        let (rows_, len) = (dice.of(1, 4), dice.of(4, 12));
        let lengths: Vec<usize> = (0..rows_).map(|row| if row == 0 { len - 1 } else { dice.of(1, len) }).collect();
        let real: usize = lengths.iter().sum();
        let attention: Vec<Vec<i64>> = lengths.iter().map(|n| (0..len).map(|k| i64::from(k < *n)).collect()).collect();
        let ids: Vec<Vec<i64>> = attention.iter().map(|row| row.iter().map(|real| 5 * real).collect()).collect();
        let ends = |total: usize| {
            let rows = (1..rows_).map(|b| lengths[..b].iter().sum::<usize>() as i64).filter(|_| total == real);
            let mut inner: Vec<i64> = [0, 2].into_iter().chain(rows).filter(|end| *end < total as i64).collect();
            inner.push(total as i64);
            inner.sort_unstable();
            inner.dedup();
            Values::ints(&[inner.len()], inner).expect("one dimension")
        };
        let check = |total: usize, padding: bool| {
            let input = Input::without_mask().companion("cu_seqlens", ends(total)).companion("input_ids", rows(&ids));
            let input = if padding { input.companion("attention_mask", rows(&attention)) } else { input };
            input.diagnose().expect("arrays")
        };
        for total in [real, rows_ * len] {
            is_calm(&check(total, true));
        }
        if rows_ > 1 && lengths[0] != 2 && real < rows_ * len {
            let ends = Values::ints(&[3], vec![0, 2, real as i64]).expect("one dimension");
            let input =
                Input::without_mask().companion("cu_seqlens", ends).companion("attention_mask", rows(&attention));
            let wrong = input.diagnose().expect("arrays");
            is(&wrong, "document_boundary_off_by_one");
            assert!(wrong.to_string().contains(&format!("[{}", lengths[0])), "{wrong}");
        }
        let wrong = check(real + 1 + round % 3 + usize::from(real + 1 + round % 3 == rows_ * len) * 7, true);
        is(&wrong, "document_boundary_off_by_one");
        assert!(wrong.to_string().contains(&format!("it must be {real}, the number of non-padding tokens")), "{wrong}");
    }
}

/// Hidden tokens with the id that ends texts are no holes of this id if another token with it is visible.
#[test]
fn an_id_that_is_visible_elsewhere_is_no_reason_for_holes() {
    let mut dice = Dice::new(37, true);
    for _ in 0..100 {
        let n = dice.of(6, 12);
        let ids: Vec<i64> = (0..n).map(|k| if k == 1 || k == 3 || k + 1 == n { 2 } else { 5 + k as i64 }).collect();
        let mask = |hidden: &dyn Fn(usize) -> bool| rows(&[(0..n).map(|k| i64::from(!hidden(k))).collect()]);
        let declared = format!(r#"{{"role": "key_padding", "kind": "causal", "eos_token_id": 2, "lengths": [{n}]}}"#);
        let beside = [("input_ids", rows(std::slice::from_ref(&ids)))];
        is(&report(mask(&|k| ids[k] == 2), &declared, &beside), "pad_equals_eos_holes");
        let some = report(mask(&|k| k == 3), &declared, &beside);
        is(&some, "hidden_keys");
        assert!(some.fixed.is_some(), "{some}");
    }
}

/// A mask that differs from the whole declared mask by cells without a pattern is repaired by the declared mask.
#[test]
fn the_declared_mask_repairs_what_no_mistake_explains() {
    let mut dice = Dice::new(41, true);
    for _ in 0..60 {
        let n = dice.of(6, 11);
        let (i, k, from) = (dice.of(4, 5), dice.of(0, 1), dice.of(1, 2));
        let mask = bools(&[n, n], &|_, q, key| (key <= q) != ((q, key) == (i, k) || (q, key) == (from, from + 2)));
        let found = against(mask, "causal", &Shape::square(n));
        is(&found, "unexplained_difference");
        assert!(
            found.to_string().contains("1 visible cells should be hidden, 1 hidden cells should be visible"),
            "{found}"
        );
        assert!(found.fixed.is_some() && found.fixed == found.expected, "{found}");
    }
}

/// An array that cannot hold the declared mask is faulty, and a mask that hides nothing has no wrong operator.
#[test]
fn arrays_that_are_smaller_than_the_declared_mask() {
    let padded: Mask = "causal & padding".parse().expect("a mask");
    let mut dice = Dice::new(43, true);
    for round in 0..60 {
        let n = dice.of(3, 8);
        let bound = |lengths: Vec<usize>| {
            let shape = Shape::square(n).batch(lengths.len());
            padded.bind(&shape, &Facts::new().lengths(lengths)).expect("a shape")
        };
        let meant = bound(vec![n, n - 1 - round % 2]);
        let one = bools(&[1, 1, n, n], &|_, i, k| k <= i + 1);
        assert!(Input::new(one).meant(&meant).diagnose().expect("a usable mask").faulty());
        let row = Values::ints(&[n], (0..n as i64).map(|k| k - 1).collect()).expect("one row");
        let _ = Input::new(row).meant(&bound(vec![n])).diagnose();
        let full = bools(&[2, 1, n, n], &|_, _, _| true);
        let said = Input::new(full).meant(&meant).diagnose().expect("a usable mask");
        assert!(said.faulty() && !said.classes().contains(&"wrong_operator"), "{said}");
    }
}

/// The sentence about a window counts the keys of the sides that it has.
#[test]
fn windows_with_two_sides_are_counted_on_each_side() {
    let mut dice = Dice::new(47, true);
    for _ in 0..40 {
        let (side, by) = (dice.of(1, 4), dice.of(2, 4));
        let n = 2 * (side + by) + dice.of(2, 6);
        let mask = bools(&[n, n], &|_, i, k| i.abs_diff(k) <= side + by);
        let declared = format!(
            r#"{{"convention": "keep_bool", "kind": "bidirectional_sliding", "window": {side}, "window_means": "keys on each side"}}"#
        );
        let found = report(mask, &declared, &[]);
        is(&found, "window_missing_or_wrong_layer");
        let says = format!("the window holds {} keys on each side of the query, but {side} are declared", side + by);
        assert!(found.to_string().contains(&says), "{found}");
    }
}

/// A batch row without tokens beside rows that are padded on the right: its numbers of only 0 are padding, as theirs are.
#[test]
fn segment_numbers_of_a_row_without_tokens() {
    let mut dice = Dice::new(53, true);
    for _ in 0..60 {
        let n = dice.of(4, 9);
        let filled: Vec<i64> = (0..n).map(|k| if k + 1 < n { 1 + k as i64 / 2 } else { 0 }).collect();
        let numbers = vec![filled, vec![0; n]];
        let cells = numbers.clone();
        let mask = bools(&[2, 1, n, n], &|b, i, k| k <= i && cells[b][i] == cells[b][k] && cells[b][k] > 0);
        let declared = r#"{"convention": "keep_bool", "kind": "causal_packed"}"#;
        is_calm(&report(mask, declared, &[("segment_ids", rows(&numbers))]));
    }
}

/// A causal mask aligned to the top left hides only the keys that its window shows.
#[test]
fn the_keys_of_a_window_aligned_to_the_top_left() {
    for (past, window, keys) in [(8, 4, 4), (8, 12, 9), (3, 4, 4), (2, 4, 3)] {
        let cells = bools(&[1, 1, 4, 4 + past], &|_, i, k| k <= i && i < k + window);
        let declared = format!(
            r#"{{"kind": "sliding", "window": {window}, "past_len": {past}, "api": "sdpa", "window_means": "self included"}}"#
        );
        let found = report(cells, &declared, &[]);
        is(&found, "causal_alignment");
        assert!(found.to_string().contains(&format!("query 0 reads 1 key instead of {keys},")), "{found}");
    }
}
