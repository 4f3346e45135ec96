//! Rows that no output uses, declared sizes that contradict the array, and what a verdict may claim of undeclared padding.

use crate::doctor::Dice;
use noren_doctor::{Certainty, Context, Dtype, Input, Numbers, Report, Severity, Values, Verdict, recognise};
use noren_mask::{Facts, Keep, Mask, Shape, Side};

fn bools(shape: &[usize], cell: impl Fn(usize, usize, usize) -> bool) -> Values {
    let (k, q) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let all: usize = shape.iter().product();
    Values::bools(shape, (0..all).map(|at| cell(at / (q * k), at / k % q, at % k)).collect()).expect("all cells")
}

fn added(shape: &[usize], cell: impl Fn(usize, usize, usize) -> bool) -> Values {
    let Numbers::Bool(cells) = bools(shape, cell).numbers().clone() else { unreachable!("Booleans") };
    let numbers = cells.iter().map(|cell| if *cell { 0.0 } else { f32::NEG_INFINITY }).collect();
    Values::floats(shape, numbers).expect("all cells")
}

fn input(mask: Values, context: &str) -> Input {
    Input::new(mask).context(Context::from_json(context).expect("a context"))
}

#[track_caller]
fn report(mask: Values, context: &str) -> Report {
    input(mask, context).diagnose().expect("a usable mask")
}

fn against(mask: Values, text: &str, shape: &Shape, facts: &Facts) -> Report {
    let meant: Mask = text.parse().expect("a mask");
    let meant = meant.bind(shape, facts).expect("a shape");
    input(mask, r#"{"convention": "keep_bool"}"#).meant(&meant).diagnose().expect("a usable mask")
}

/// Checks that a report on a correct mask has no fault, no repair, and no statement about rows of real tokens.
#[track_caller]
fn calm(report: &Report, verdict: Verdict) {
    assert_eq!(report.verdict, verdict, "{report}");
    let notes = report.findings.iter().all(|f| f.severity == Severity::Note && f.repair.is_none());
    assert!(notes && report.repair.is_none() && !report.to_string().contains("of non-padding queries"), "{report}");
}

#[test]
fn rows_of_padding_queries_are_not_compared_with_an_expression() {
    let (shape, facts) = (Shape::square(9).batch(2), Facts::new().lengths([9, 5]));
    let plain = bools(&[2, 1, 9, 9], |_, i, k| k <= i);
    let found = against(plain, "causal & padding", &shape, &facts);
    calm(&found, Verdict::Correct);
    assert_eq!((found.compared, found.rows_left_out), (14 * 9, 4), "{found}");
    let left = Facts::new().lengths([9, 5]).side(Side::Left);
    for own in [0, 1, 2] {
        let rows = bools(&[2, 1, 9, 9], |b, i, k| {
            let first = [0, 4][b];
            if i < first { [false, i == k, true][own] } else { k <= i && k >= first }
        });
        calm(&against(rows, "causal & padding", &shape, &left), Verdict::Correct);
    }
    let leak = bools(&[2, 1, 9, 9], |b, i, k| k <= i + 1 && (b == 0 || k < 5));
    let found = against(leak, "causal & padding", &shape, &facts);
    assert!(found.faulty() && found.findings[0].first_cells.iter().all(|[b, _, i, _]| *b == 0 || *i < 5), "{found}");
}

#[test]
fn a_left_padded_causal_mask_is_correct_in_every_form() {
    let first = [0, 6];
    let real = |b: usize, i: usize, k: usize| k <= i && k >= first[b % 2];
    let shapes: [&[usize]; 3] = [&[2, 1, 16, 16], &[2, 16, 16], &[2, 2, 16, 16]];
    for shape in shapes {
        let row = |at: usize| if shape.len() == 4 { at / shape[1] } else { at };
        let cell = |at: usize, i: usize, k: usize| real(row(at), i, k);
        for (mask, convention) in [
            (bools(shape, cell), "keep_bool"),
            (bools(shape, |at, i, k| !cell(at, i, k)), "ignore_bool"),
            (added(shape, cell), "additive"),
        ] {
            let nothing = format!(r#"{{"convention": "{convention}"}}"#);
            calm(&report(mask.clone(), &nothing), Verdict::LooksLike);
            let kind = format!(r#"{{"convention": "{convention}", "kind": "causal"}}"#);
            let asked = report(mask.clone(), &kind);
            calm(&asked, Verdict::CannotTell);
            assert!(asked.open[0].question.contains("padding"), "{asked}");
            let lengths = format!(
                r#"{{"convention": "{convention}", "kind": "causal", "lengths": [16, 10], "padding_side": "left"}}"#
            );
            if convention != "additive" {
                calm(&report(mask, &lengths), Verdict::Correct);
            }
        }
    }
    let asked = report(bools(&[2, 1, 16, 16], real), r#"{"kind": "causal"}"#);
    let picture = asked.picture(&noren_picture::TerminalOptions::default()).expect("room").expect("a mask");
    assert!(!picture.contains("- dense") && !picture.contains("only in the first"), "{picture}");
}

#[test]
fn padding_rows_of_minus_infinity_get_a_key() {
    let lengths = [4, 2];
    let context = r#"{"convention": "additive", "kind": "bidirectional", "lengths": [4, 2]}"#;
    let both = added(&[2, 2, 4, 4], |at, i, k| i < lengths[at / 2] && k < lengths[at / 2]);
    let found = report(both.clone(), context);
    assert_eq!(found.classes(), ["fully_masked_row"], "{found}");
    assert_eq!(found.findings[0].repair.as_deref(), Some("padding(lengths=[4, 2])"), "{found}");
    assert!(found.description.contains("padding(lengths=[4, 2], on=both)"), "{found}");
    assert!(!found.to_string().contains("left padding"), "{found}");
    let repair = found.repair.clone().expect("a repaired array");
    assert_eq!((repair.shape(), repair.dtype()), (both.shape(), Dtype::F32));
    assert_eq!(report(repair, context).verdict, Verdict::Correct);

    // A bias in the visible cells stays, and the unused rows get none.
    let Numbers::Single(numbers) = both.numbers().clone() else { unreachable!("floats") };
    let biased = numbers.iter().enumerate().map(|(at, x)| x + (at % 7) as f32 / 8.0).collect();
    let found = report(Values::floats(both.shape(), biased).expect("all cells"), context);
    assert_eq!(found.findings[0].repair.as_deref(), Some("padding(lengths=[4, 2])"), "{found}");
    assert_eq!(report(found.repair.expect("a repaired array"), context).verdict, Verdict::Correct);

    let context = r#"{"convention": "additive", "kind": "causal", "lengths": [4, 2], "padding_side": "left"}"#;
    let causal = added(&[2, 1, 4, 4], |b, i, k| k <= i && k >= 4 - lengths[b]);
    let found = report(causal, context);
    let text = "causal & padding(side=left, lengths=[4, 2]) | distances([0])";
    assert_eq!(found.findings[0].repair.as_deref(), Some(text), "{found}");
    assert_eq!(report(found.repair.expect("a repaired array"), context).verdict, Verdict::Correct);
}

#[test]
fn sizes_that_contradict_the_array_are_named() {
    let context = r#"{"kind": "sliding", "window": 4, "past_len": 5, "role": "attn"}"#;
    let clamped = bools(&[6, 4], |_, i, k| k as i64 <= i as i64 - 2);
    let found = report(clamped.clone(), context);
    assert_eq!(found.classes(), ["stale_decode_mask"], "{found}");
    assert!(found.findings[0].says.contains("4 keys") && found.findings[0].says.contains("11"), "{found}");
    assert_eq!((found.findings[0].repair.as_deref(), &found.repair), (Some("sliding(4)"), &None), "{found}");
    let right = bools(&[6, 11], |_, i, k| k <= i + 5 && k + 4 > i + 5);
    assert_eq!(report(right, context).verdict, Verdict::Correct);
    // A step of a cache that holds only the window: the question is which positions the keys have.
    let step = r#"{"kind": "sliding", "window": 4, "past_len": 20, "role": "attn"}"#;
    let asked = report(bools(&[1, 1, 1, 4], |_, _, _| true), step);
    calm(&asked, Verdict::CannotTell);
    assert!(asked.open[0].question.contains("kv_positions"), "{asked}");
    let fewer = report(bools(&[1, 1, 6, 6], |_, i, k| k <= i), r#"{"kind": "causal", "q_len": 3, "kv_len": 6}"#);
    assert!(fewer.faulty() && fewer.findings[0].says.contains("6 queries but 3"), "{fewer}");
    let error = input(bools(&[2, 1, 6, 6], |_, i, k| k <= i), r#"{"kind": "causal", "batch": 3}"#).diagnose();
    assert!(error.expect_err("another batch size").to_string().contains("batch=3 is declared"));
}

#[test]
fn one_query_of_a_ring_buffer_is_no_row_of_key_padding() {
    let positions = |cells: &[i64]| Values::ints(&[1, cells.len()], cells.to_vec()).expect("a row");
    let slots = bools(&[1, 8], |_, _, k| k >= 5);
    let context =
        r#"{"convention": "keep_bool", "role": "attn", "window": 3, "window_means": "keys visible, self included"}"#;
    let ring = input(slots, context).companion("kv_positions", positions(&[8, 9, 10, 11, 4, 5, 6, 7]));
    let found = ring.companion("position_ids", positions(&[11])).diagnose().expect("a usable mask");
    assert_eq!(found.classes(), ["ring_buffer_misaligned"], "{found}");
}

#[test]
fn undeclared_padding_is_part_of_no_repair() {
    let real = |k: usize| k % 4 > 1;
    let ints = Values::ints(&[1, 12], (0..12).map(|k| i64::from(real(k))).collect()).expect("a row");
    let key_padding = report(ints, r#"{"role": "key_padding"}"#);
    calm(&key_padding, Verdict::CannotTell);
    assert!(
        key_padding.open[0].readings[0].contains("6 hidden key(s) (4 of them between visible keys)"),
        "{key_padding}"
    );
    let whole = report(bools(&[1, 1, 12, 12], |_, i, k| k <= i && real(k)), r#"{"kind": "causal"}"#);
    calm(&whole, Verdict::CannotTell);
    assert!(whole.open[0].readings[0].contains("6 hidden key(s) (4 of them between visible keys)"), "{whole}");
    // A leak beside undeclared padding: the finding is not certain, and the question names what remains.
    let leak = report(bools(&[1, 1, 12, 12], |_, i, k| k <= i + 1 && k > 2), r#"{"kind": "causal"}"#);
    assert!(leak.faulty() && leak.repair.is_none() && leak.fixed.is_none(), "{leak}");
    assert!(leak.findings.iter().all(|f| f.certainty < Certainty::Certain || f.severity == Severity::Note), "{leak}");
    assert!(!leak.to_string().contains("every cell is as declared"), "{leak}");
}

#[test]
fn true_values_alone_do_not_look_causal() {
    for shape in [vec![16], vec![1, 1, 1, 16]] {
        let ones = Values::bools(&shape, vec![true; 16]).expect("all cells");
        let found = report(ones, r#"{"role": "key_padding"}"#);
        assert!(!found.sentence.starts_with("causal"), "{found}");
    }
    let found = report(Values::bools(&[16], vec![true; 16]).expect("a row"), "{}");
    assert!(found.sentence.starts_with("one row of keys") && found.verdict == Verdict::LooksLike, "{found}");
    let square = report(bools(&[16, 16], |_, _, _| true), "{}");
    assert!(!square.sentence.starts_with("causal"), "{square}");
}

#[test]
fn rows_of_booleans_at_one_end_may_be_key_padding() {
    let lengths = [6, 4];
    let drop = || bools(&[2, 8], |_, b, k| k >= lengths[b]);
    for context in ["{}", r#"{"api": "mha"}"#, r#"{"api": "mha", "kind": "bidirectional"}"#] {
        let asked = report(drop(), context);
        calm(&asked, Verdict::CannotTell);
        assert!(asked.open[0].readings[0].contains("declare role=key_padding"), "{context}: {asked}");
    }
    let found = report(drop(), r#"{"api": "mha", "role": "key_padding"}"#);
    calm(&found, Verdict::LooksLike);
    assert!(found.description.contains("padding(lengths=[6, 4])"), "{found}");
    let declared = r#"{"api": "mha", "role": "key_padding", "kind": "bidirectional", "lengths": [6, 4]}"#;
    calm(&report(drop(), declared), Verdict::Correct);
    let other = bools(&[2, 8], |_, b, k| k >= [6, 5][b]);
    let found = report(other.clone(), declared);
    let repair = found.repair.clone().unwrap_or_else(|| panic!("no repair: {found}"));
    assert_eq!(repair, drop(), "{found}");
    // The declared mask needs no role: the numbers of batch rows and keys are those of the array.
    let asked = input(drop(), r#"{"api": "mha"}"#);
    let shape = asked.shape(Some(2)).expect("sizes").expect("a mask");
    assert_eq!([shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()], [2, 1, 8, 8]);
    let meant: Mask = "padding".parse().expect("a mask");
    let facts = Facts::new().lengths([6, 4]);
    let meant = meant.bind(&shape, &facts).expect("a shape");
    calm(&asked.meant(&meant).diagnose().expect("a usable mask"), Verdict::Correct);
    // A triangle of Booleans is a mask of queries by keys.
    let leak = report(bools(&[6, 6], |_, i, k| k <= i + 1), r#"{"kind": "causal"}"#);
    assert_eq!(leak.classes(), ["causal_leak"], "{leak}");
}

#[test]
fn a_mask_whose_inverse_is_declared_is_faulty_only_with_its_convention() {
    let upper = || bools(&[6, 6], |_, i, k| k > i);
    let asked = report(upper(), r#"{"kind": "causal"}"#);
    calm(&asked, Verdict::CannotTell);
    assert!(asked.open[0].question.contains("convention=ignore_bool"), "{asked}");
    let causal: Mask = "causal".parse().expect("a mask");
    let causal = causal.bind(&Shape::square(6), &Facts::new()).expect("a shape");
    calm(&input(upper(), "{}").meant(&causal).diagnose().expect("a usable mask"), Verdict::CannotTell);
    let found = report(upper(), r#"{"kind": "causal", "api": "sdpa"}"#);
    assert_eq!((found.classes()[0], found.findings[0].certainty), ("inverted_polarity", Certainty::Certain), "{found}");
}

/// A batch of rows of keys as Booleans, in one of the shapes `[batch, keys]`, `[batch, 1, keys]` and `[batch, 1, 1, keys]`.
struct KeyRows {
    shape: Vec<usize>,
    lengths: Vec<usize>,
    side: &'static str,
    real: Vec<bool>,
}

fn key_rows(dice: &mut Dice) -> KeyRows {
    let (batch, keys) = (dice.of(2, 4), dice.of(3, 20));
    let mut lengths: Vec<usize> = (0..batch).map(|_| dice.of(1, keys)).collect();
    lengths[0] = dice.of(1, keys - 1);
    let side = dice.pick(&["left", "right"]);
    let real = lengths.iter().flat_map(|&n| (0..keys).map(move |k| if side == "left" { k >= keys - n } else { k < n }));
    let shape = [vec![batch, keys], vec![batch, 1, keys], vec![batch, 1, 1, keys]][dice.of(0, 2)].clone();
    KeyRows { shape, side, real: real.collect(), lengths }
}

#[test]
fn rows_of_keys_get_one_question_and_then_a_verdict() {
    let mut dice = Dice::new(29, true);
    for _ in 0..500 {
        let drawn = key_rows(&mut dice);
        let drop = dice.chance(50);
        let stored = |inverse: bool| {
            let cells = drawn.real.iter().map(|real| real ^ drop ^ inverse).collect();
            Values::bools(&drawn.shape, cells).expect("all cells")
        };
        let (word, other) = if drop { ("ignore_bool", "keep_bool") } else { ("keep_bool", "ignore_bool") };
        let said = match drop && dice.chance(50) {
            true => r#""role": "key_padding", "api": "mha""#.to_string(),
            false => format!(r#""role": "key_padding", "convention": "{word}""#),
        };
        let full = drawn.lengths.contains(&(drawn.shape[drawn.shape.len() - 1]));
        let padding = format!(r#", "lengths": {:?}, "padding_side": "{}""#, drawn.lengths, drawn.side);
        let kind = dice.pick(&["", r#", "kind": "bidirectional""#]);
        // The first answer names every declaration that is needed. Where true cannot mean "ignored", there is no question.
        let role = drawn.shape.len() > 2 || dice.chance(50);
        let first = report(stored(false), if role { r#"{"role": "key_padding"}"# } else { "{}" });
        match first.open.first() {
            // A square table may be a mask of queries by keys too.
            Some(_) if !role && drawn.shape[0] == drawn.shape[1] => {}
            Some(open) if first.verdict == Verdict::CannotTell => {
                let names = |w: &str| open.readings.iter().any(|r| r.contains("role=key_padding") && r.contains(w));
                assert!(names(word) && names(other) && open.question.contains("lengths"), "{first}");
            }
            _ => assert!(role && full && !drop || !role && first.verdict == Verdict::LooksLike, "{first}"),
        }
        assert!(first.repair.is_none() && !first.faulty(), "{first}");
        // The convention alone: the report describes the padding, and names the lengths.
        let described = report(stored(false), &format!("{{{said}}}"));
        calm(&described, Verdict::LooksLike);
        assert!(described.sentence.contains(&format!("padding on the {}", drawn.side)), "{described}");
        assert!(described.sentence.contains("declare lengths"), "{described}");
        // With the lengths there is a verdict, with or without a kind.
        calm(&report(stored(false), &format!("{{{said}{padding}{kind}}}")), Verdict::Correct);
        let inverse = report(stored(true), &format!("{{{said}{padding}{kind}}}"));
        assert_eq!(inverse.classes()[0], "inverted_polarity", "{said}{padding}{kind}: {inverse}");
        assert_eq!(inverse.repair.as_ref(), Some(&stored(false)), "{inverse}");
        // A padding key that is visible is found at both ends, whether or not a kind is declared.
        let mut wrong = drawn.real.clone();
        let keys = drawn.shape[drawn.shape.len() - 1];
        let row = dice.of(0, drawn.lengths.len() - 1);
        let at = if drawn.side == "left" { keys.checked_sub(drawn.lengths[row] + 1) } else { Some(drawn.lengths[row]) };
        if let Some(at) = at.filter(|at| *at < keys) {
            wrong[row * keys + at] = true;
            let cells = wrong.iter().map(|real| real ^ drop).collect();
            let wrong = Values::bools(&drawn.shape, cells).expect("all cells");
            let found = report(wrong, &format!("{{{said}{padding}{kind}}}"));
            assert!(found.faulty() && !found.to_string().contains("causal"), "{found}");
        }
        // An inverted mask without lengths is a mask of other lengths, unless it hides every key of a text.
        let unknown = report(stored(true), &format!("{{{said}}}"));
        match full {
            true => {
                assert_eq!((unknown.classes()[0], unknown.repair.as_ref()), ("inverted_polarity", None), "{unknown}")
            }
            false => calm(&unknown, Verdict::LooksLike),
        }
    }
}

#[test]
fn lengths_alone_do_not_say_the_side_of_the_padding() {
    let mut dice = Dice::new(31, true);
    for _ in 0..200 {
        let (batch, n) = (dice.of(2, 4), dice.of(4, 12));
        let mut lengths: Vec<usize> = (0..batch).map(|_| dice.of(2, n)).collect();
        lengths[0] = dice.of(2, n - 1);
        let cell = |at: usize| {
            let (b, i, k) = (at / (n * n), at / n % n, at % n);
            k >= n - lengths[b] && k <= i
        };
        let mask = || Values::bools(&[batch, 1, n, n], (0..batch * n * n).map(cell).collect()).expect("all cells");
        let declared = format!(r#"{{"kind": "causal", "convention": "keep_bool", "lengths": {lengths:?}"#);
        let asked = report(mask(), &format!("{declared}}}"));
        calm(&asked, Verdict::CannotTell);
        assert!(asked.open[0].question.contains("declare padding_side"), "{asked}");
        calm(&report(mask(), &format!(r#"{declared}, "padding_side": "left"}}"#)), Verdict::Correct);
        let wrong = report(mask(), &format!(r#"{declared}, "padding_side": "right"}}"#));
        assert_eq!(wrong.classes()[0], "padding_side", "{wrong}");
    }
}

#[test]
fn padding_on_both_sides_is_recognised() {
    let lengths = [6, 3, 4];
    let both = |b: usize, i: usize, k: usize| i < lengths[b] && k < lengths[b];
    let keep = Keep::from_fn([3, 1, 6, 6], |[b, _, i, k]| both(b, i, k));
    assert_eq!(recognise(&keep).expression(), "padding(lengths=[6, 3, 4], on=both)");
    let causal = Keep::from_fn([3, 1, 6, 6], |[b, _, i, k]| both(b, i, k) && k <= i);
    assert_eq!(recognise(&causal).expression(), "causal & padding(lengths=[6, 3, 4], on=both)");
    let left = Keep::from_fn([2, 1, 6, 6], |[b, _, i, k]| i >= [0, 2][b] && k >= [0, 2][b]);
    assert_eq!(recognise(&left).expression(), "padding(side=left, lengths=[6, 4], on=both)");
    let found = report(added(&[3, 1, 6, 6], both), "{}");
    calm(&found, Verdict::LooksLike);
    assert!(found.description.contains("padding(lengths=[6, 3, 4], on=both)"), "{found}");
    assert!(!found.to_string().contains("left padding"), "{found}");
}
