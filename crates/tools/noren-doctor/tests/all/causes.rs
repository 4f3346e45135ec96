//! Causes that a finding names: each is true of the data, a declaration with several readings is a question, and groups,
//! positions and pooled states are named on both sides of the padding.

use crate::doctor::Dice;
use crate::doctor::faults::FAULTS;
use crate::doctor::more::MORE;
use noren_doctor::{Certainty, Class, Context, Dtype, Example, Input, Numbers, Report, Values, Verdict, classes};
use noren_mask::{BoundMask, Facts, Keep, Mask, Shape};

fn ints(rows: &[Vec<i64>]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn report(mask: Values, context: &str, beside: &[(&str, Values)]) -> Report {
    let input = Input::new(mask).context(Context::from_json(context).expect("a context"));
    let input = beside.iter().fold(input, |p, (name, values)| p.companion(*name, values.clone()));
    input.diagnose().expect("a usable mask")
}

fn bound(mask: &str, shape: &Shape, facts: &Facts) -> BoundMask {
    mask.parse::<Mask>().expect("a mask").bind(shape, facts).unwrap_or_else(|error| panic!("{mask}: {error}"))
}

/// Returns the cells as an array of each convention, with the declarations that belong to it.
fn stored(keep: &Keep) -> Vec<(Values, &'static str)> {
    let (dims, cells) = (keep.dims(), keep.cells());
    let cells: Vec<bool> = cells.collect();
    let added = |low: f32| cells.iter().map(|c| if *c { 0.0 } else { low }).collect();
    let inverted = cells.iter().map(|c| !c).collect();
    let small = Values::new(&dims, Dtype::U8, Numbers::Int(cells.iter().map(|c| i64::from(*c)).collect()));
    vec![
        (Values::bools(&dims, cells.clone()).expect("cells"), r#""convention": "keep_bool""#),
        (Values::bools(&dims, inverted).expect("cells"), r#""convention": "ignore_bool""#),
        (small.expect("cells"), r#""convention": "keep_01""#),
        (Values::floats(&dims, added(f32::NEG_INFINITY)).expect("cells"), r#""convention": "additive""#),
        (Values::floats(&dims, added(-1e9)).expect("cells"), r#""convention": "additive", "compute_dtype": "float32""#),
    ]
}

#[track_caller]
fn named(report: &Report, class: &str) {
    assert_eq!((report.verdict, report.classes().first()), (Verdict::Faulty, Some(&class)), "{report}");
}

/// Numbers above 1 are segment numbers only if they number documents; otherwise the report has a question.
#[test]
fn the_meaning_of_2_in_an_attention_mask() {
    let no_documents: &[&[i64]] = &[
        &[2, 1, 1, 1, 1, 2, 0, 0],
        &[2, 1, 1, 1, 1, 1, 0, 0],
        &[0, 0, 2, 1, 1, 1, 1, 2],
        &[2, 1, 1, 2, 1, 1, 1, 1],
        &[1, 1, 3, 3, 0, 0, 0, 0],
        &[3, 3, 2, 2, 1, 1, 0, 0],
    ];
    let documents: &[&[i64]] = &[&[1, 1, 1, 2, 2, 3, 0, 0], &[0, 0, 1, 1, 2, 2, 2, 2], &[1, 1, 2, 2, 2, 2, 2, 2]];
    for (rows, asked) in [(no_documents, true), (documents, false)] {
        for row in rows {
            for (batch, dtype) in [(1, Dtype::I64), (3, Dtype::I64), (2, Dtype::U8)] {
                for declared in
                    ["{}", r#"{"role": "key_padding"}"#, r#"{"role": "key_padding", "kind": "bidirectional"}"#]
                {
                    let ids: Vec<i64> = row.iter().map(|n| if *n == 0 { 0 } else { 7 }).collect();
                    let declared = declared.replace('}', r#", "pad_token_id": 0}"#).replace("{, ", "{");
                    let mask =
                        Values::new(&[batch, row.len()], dtype, Numbers::Int(row.repeat(batch))).expect("a table");
                    let found = report(mask, &declared, &[("input_ids", ints(&vec![ids; batch]))]);
                    let question = found.open.iter().any(|open| open.question.starts_with("what does"));
                    assert_eq!(question, asked, "{row:?} {declared}: {found}");
                    assert!(
                        found
                            .findings
                            .iter()
                            .all(|f| f.certainty != Certainty::Certain || f.class != "segment_ids_cast_to_bool")
                    );
                    match asked {
                        true => {
                            assert!(found.verdict == Verdict::CannotTell && found.fixed.is_none(), "{row:?}: {found}")
                        }
                        false => named(&found, "segment_ids_cast_to_bool"),
                    }
                }
            }
        }
    }
}

/// A window with unequal sides is one reading of a width that has several, and not a mistake.
#[test]
fn a_width_with_several_readings_is_a_question_for_unequal_sides_too() {
    for width in [3i64, 4, 7, 8] {
        let sides = [width, width - 1, width / 2, (width - 1) / 2];
        for (left, right) in sides.into_iter().flat_map(|left| sides.map(|right| (left, right))) {
            let shape = Shape::square(19).batch(2).heads(2);
            let keep = Keep::of(&bound(&format!("window(left={left}, right={right})"), &shape, &Facts::new()));
            for (mask, convention) in stored(&keep) {
                let declared = format!(r#"{{{convention}, "kind": "bidirectional_sliding", "window": {width}}}"#);
                let found = report(mask, &declared, &[]);
                let question = format!("what does window={width} count?");
                let asked = found.open.first().is_some_and(|open| open.question.starts_with(&question));
                assert!(found.verdict == Verdict::CannotTell && asked, "{left} {right}: {found}");
            }
        }
    }
    let keep = Keep::of(&bound("window(left=7, right=4)", &Shape::square(16), &Facts::new()));
    for (mask, convention) in stored(&keep) {
        let declared = format!(
            r#"{{{convention}, "kind": "bidirectional_sliding", "window": 8, "window_means": "keys in total"}}"#
        );
        let found = report(mask, &declared, &[]);
        named(&found, "window_missing_or_wrong_layer");
        assert!(
            found.findings[0].says.starts_with("30 cells let queries read keys before the declared window"),
            "{found}"
        );
        assert_eq!(found.findings[0].repair.as_deref(), Some("window(left=4, right=4)"), "{found}");
    }
}

/// Groups of tokens with other sizes than the declared groups are a named mistake, and the repair is the declared mask.
#[test]
fn groups_with_other_sizes_have_a_name() {
    let levels = Facts::new().levels((0..24).map(|k| k / 6).collect::<Vec<i64>>());
    let padded = Facts::new().lengths([24, 20]);
    let (one, two) = (Shape::square(24), Shape::square(24).batch(2).heads(2));
    let block = "prefix_lm_or_block_wrong";
    for (meant, given, facts, class) in [
        ("causal | chunk(6)", "causal | spans([0..18, 18..24])", &Facts::new(), block),
        ("causal | chunk(6)", "causal | chunk(8)", &Facts::new(), block),
        ("causal | chunk(6)", "causal | chunk(7)", &Facts::new(), block),
        ("causal | chunk(6)", "causal", &Facts::new(), block),
        ("causal | spans([0..6, 6..12, 12..24])", "causal | spans([0..9, 9..12, 12..24])", &Facts::new(), block),
        ("causal | spans([4..10, 16..20])", "causal | spans([4..8, 16..23])", &Facts::new(), block),
        ("(causal | chunk(6)) & padding", "(causal | spans([0..10, 10..24])) & padding", &padded, block),
        ("clearance", "causal | spans([0..18, 18..24])", &levels, block),
        ("clearance", "causal | chunk(4)", &levels, block),
        ("causal & chunk(6)", "causal & chunk(11)", &Facts::new(), "chunk_boundary"),
        ("causal & documents([6, 6, 12])", "causal & documents([12, 12])", &Facts::new(), "cross_document"),
        ("documents([6, 6, 12])", "documents([11, 13])", &Facts::new(), "cross_document"),
        ("documents([6, 18])", "documents([6, 9, 9])", &Facts::new(), "unexplained_difference"),
    ] {
        let shape = if std::ptr::eq(facts, &raw const padded) { &two } else { &one };
        let (right, wrong) = (bound(meant, shape, facts), Keep::of(&bound(given, shape, facts)));
        for (mask, convention) in stored(&wrong) {
            let context = Context::from_json(&format!("{{{convention}}}")).expect("a context");
            let found = Input::new(mask).context(context).meant(&right).diagnose().expect("a usable mask");
            named(&found, class);
            assert!(
                found.fixed.as_ref().is_some_and(|fixed| *fixed == Keep::of(&right).expand(fixed.dims())),
                "{found}"
            );
        }
    }
    let exact = Keep::of(&bound("causal | spans([0..18, 18..24])", &one, &Facts::new()));
    let found = report(stored(&exact).remove(0).0, r#"{"convention": "keep_bool"}"#, &[]);
    assert!(found.sentence.contains("`causal | spans([0..18, 18..24])` (0 of 576 cells differ"), "{found}");
}

#[test]
fn sizes_of_a_declared_kind_have_a_name() {
    let shape = Shape::square(24);
    let blocks = |runs: &[(usize, usize)]| {
        let block = |k: usize| runs.iter().position(|&(start, end)| (start..end).contains(&k)).map_or(-1, |n| n as i64);
        [("block_ids", ints(&[(0..24).map(block).collect()]))]
    };
    for (declared, beside, given, meant, class) in [
        (r#""kind": "chunked", "chunk": 4"#, None, "causal & chunk(7)", "causal & chunk(4)", "chunk_boundary"),
        (
            r#""kind": "prefix_lm", "prefix_len": 5"#,
            None,
            "causal | prefix(11)",
            "causal | prefix(5)",
            "prefix_lm_or_block_wrong",
        ),
        (
            r#""kind": "causal_with_image_blocks""#,
            Some(blocks(&[(4, 10), (16, 20)])),
            "causal | spans([4..8, 16..23])",
            "causal | spans([4..10, 16..20])",
            "prefix_lm_or_block_wrong",
        ),
    ] {
        for (mask, convention) in stored(&Keep::of(&bound(given, &shape, &Facts::new()))) {
            let found = report(mask, &format!("{{{convention}, {declared}}}"), beside.as_ref().map_or(&[], |b| &b[..]));
            named(&found, class);
            assert_eq!(found.fixed, Some(Keep::of(&bound(meant, &shape, &Facts::new()))), "{found}");
        }
    }
}

/// A padding mask of the decoder along the queries of cross-attention is named with and without the ids of the decoder.
#[test]
fn a_cross_mask_made_of_the_padding_of_the_queries() {
    for (decoder, encoder) in [(vec![4usize, 5], vec![3usize, 7]), (vec![4, 2], vec![3, 5]), (vec![5, 1], vec![7, 2])] {
        for left in [false, true] {
            let real = |n: usize, len: usize, at: usize| if left { at >= n - len } else { at < len };
            let row = |n: usize, len: usize| (0..n).map(|at| i64::from(real(n, len, at)) * 7).collect::<Vec<i64>>();
            let encoder_mask =
                encoder.iter().map(|&len| row(7, len).iter().map(|x| x / 7).collect()).collect::<Vec<Vec<i64>>>();
            let ids = ("decoder_input_ids", ints(&decoder.iter().map(|&len| row(5, len)).collect::<Vec<_>>()));
            let keep = Keep::from_fn([2, 1, 5, 7], |[b, _, q, _]| real(5, decoder[b], q));
            for (mask, convention) in
                stored(&keep).into_iter().filter(|(_, convention)| !convention.contains("additive"))
            {
                for beside in [vec![], vec![ids.clone()]] {
                    let declared = format!(r#"{{{convention}, "kind": "cross", "pad_token_id": 0}}"#);
                    let mask = [vec![("attention_mask", ints(&encoder_mask))], beside].concat().iter().fold(
                        Input::new(mask.clone()).context(Context::from_json(&declared).expect("a context")),
                        |input, (name, values)| input.companion(*name, values.clone()),
                    );
                    let found = mask.diagnose().expect("a usable mask");
                    assert!(["broadcast_wrong_axis", "cross_attention_mask"].contains(&found.classes()[0]), "{found}");
                    let notes: Vec<_> = found.findings.iter().map(|f| (f.class, &f.says)).collect();
                    assert!((1..notes.len()).all(|n| !notes[..n].contains(&notes[n])), "{found}");
                    assert!(found.findings.iter().all(|f| !f.cause.contains("left padding is combined")), "{found}");
                }
            }
        }
    }
}

/// Positions that are padded on the other side than the tokens are named, and the repair is the moved positions.
#[test]
fn positions_padded_on_the_other_side() {
    for (left, first) in [(false, 5i64), (false, 0), (true, 0), (true, 3)] {
        for missing in 2..4usize {
            let (n, real) = (6usize, 6 - missing);
            let counted: Vec<i64> = (0..real as i64).map(|k| first + k).collect();
            let (pad, zero) = (vec![0; missing], vec![0i64; missing]);
            let tokens = if left { [pad, vec![7; real]].concat() } else { [vec![7; real], pad].concat() };
            let given = if left { [counted.clone(), zero].concat() } else { [zero, counted.clone()].concat() };
            let fill = vec![if left { counted[0] } else { counted[real - 1] }; missing];
            let right = if left { [fill, counted].concat() } else { [counted, fill].concat() };
            let mask: Vec<i64> = tokens.iter().map(|t| i64::from(*t > 0)).collect();
            let whole: Vec<i64> = (0..n as i64).map(|k| k + first).collect();
            let beside = [("position_ids", ints(&[given, whole.clone()])), ("input_ids", ints(&[tokens, vec![7; n]]))];
            let declared = r#"{"role": "key_padding", "kind": "causal", "pad_token_id": 0}"#;
            let found = report(ints(&[mask, vec![1; n]]), declared, &beside);
            named(&found, "position_ids");
            let finding = &found.findings[0];
            assert_eq!(finding.repair, Some(format!("position_ids = {:?}", [right, whole])), "{found}");
            assert_eq!(
                finding.cause, "the position ids are padded at the other end of the rows than the tokens",
                "{found}"
            );
        }
    }
}

#[test]
fn the_cause_of_wrong_positions_is_true_of_them() {
    let declared = r#"{"convention": "keep_bool", "kind": "causal", "pad_token_id": 0}"#;
    let tokens = |row: &[i64]| row.iter().map(|t| t * 7).collect::<Vec<i64>>();
    for (real, positions, cause, right) in [
        (
            [0, 0, 1, 1, 1, 1],
            [0, 1, 2, 3, 4, 5],
            "`torch.arange(L)` is used as position ids of left-padded texts",
            "[0, 0, 0, 1, 2, 3]",
        ),
        ([1, 1, 1, 1, 0, 0], [0, 1, 1, 2, 0, 0], "", "[0, 1, 2, 3, 3, 3]"),
        ([0, 1, 1, 1, 1, 1], [0, 1, 0, 1, 2, 3], "", "[0, 0, 1, 2, 3, 4]"),
        ([1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 3, 4], "", "[0, 1, 2, 3, 4, 5]"),
    ] {
        let keep = Keep::from_fn([1, 1, 6, 6], |[_, _, q, k]| k <= q && real[k] == 1 || q == k);
        let beside = [("input_ids", ints(&[tokens(&real)])), ("position_ids", ints(&[positions.to_vec()]))];
        let found = report(stored(&keep).remove(0).0, declared, &beside);
        named(&found, "position_ids");
        assert_eq!(found.findings[0].cause, cause, "{found}");
        assert_eq!(found.findings[0].repair, Some(format!("position_ids = [{right}]")), "{found}");
    }
}

/// Pools hidden states by every usual formula on both sides of the padding: a formula that reads a wrong token is named, a
/// formula that reads the right tokens is accepted.
#[test]
fn every_formula_of_pooling_on_both_sides() {
    let lengths = [3usize, 5, 2];
    let (len, width) = (5usize, 4usize);
    let mut dice = Dice::new(9, false);
    let hidden: Vec<f32> = (0..3 * len * width).map(|_| dice.of(0, 2000) as f32 / 1000.0 - 1.0).collect();
    let at = |b: usize, k: usize, d: usize| hidden[(b * len + k) * width + d];
    for left in [false, true] {
        let real =
            |b: usize| if left { (len - lengths[b]..len).collect() } else { (0..lengths[b]).collect::<Vec<usize>>() };
        let mean = |b: usize, keys: &[usize]| -> Vec<f32> {
            (0..width).map(|d| keys.iter().map(|&k| at(b, k, d)).sum::<f32>() / keys.len() as f32).collect()
        };
        let max = |b: usize, keys: &[usize]| -> Vec<f32> {
            (0..width).map(|d| keys.iter().map(|&k| at(b, k, d)).fold(f32::MIN, f32::max)).collect()
        };
        let all: Vec<usize> = (0..len).collect();
        let first_zero = |b: usize| (0..len).find(|k| !real(b).contains(k)).unwrap_or(0);
        let pick = |b: usize, k: usize| mean(b, &[k]);
        // (formula, right with padding on the right, right with padding on the left)
        type Pool<'a> = &'a dyn Fn(usize) -> Vec<f32>;
        let formulas: [(&str, Pool<'_>, bool, bool); 14] = [
            ("sum(mask) - 1", &|b| pick(b, lengths[b] - 1), true, false),
            ("argmin(mask) - 1", &|b| pick(b, (first_zero(b) + len - 1) % len), true, true),
            ("-1", &|b| pick(b, len - 1), false, true),
            ("0", &|b| pick(b, 0), true, false),
            ("last real", &|b| pick(b, real(b)[lengths[b] - 1]), true, true),
            ("first real", &|b| pick(b, real(b)[0]), true, true),
            ("mean over all slots", &|b| mean(b, &all), false, false),
            ("mean", &|b| mean(b, &real(b)), true, true),
            ("mean with the padding of row 0", &|b| mean(b, &real(0)), false, false),
            ("mean with the padding of the next row", &|b| mean(b, &real((b + 1) % 3)), false, false),
            ("mean with the padding of the row before", &|b| mean(b, &real((b + 2) % 3)), false, false),
            ("max over all slots", &|b| max(b, &all), false, false),
            ("max", &|b| max(b, &real(b)), true, true),
            ("sum(mask)", &|b| pick(b, lengths[b].min(len - 1)), false, false),
        ];
        for (name, pool, on_right, on_left) in formulas {
            let pooled: Vec<f32> = (0..3).flat_map(pool).collect();
            let mask: Vec<Vec<i64>> =
                (0..3).map(|b| (0..len).map(|k| i64::from(real(b).contains(&k))).collect()).collect();
            let beside = [
                ("attention_mask", ints(&mask)),
                ("hidden", Values::floats(&[3, len, width], hidden.clone()).expect("states")),
                ("pooled", Values::floats(&[3, width], pooled).expect("states")),
            ];
            let found = report(ints(&mask), r#"{"role": "key_padding", "kind": "causal"}"#, &beside);
            let correct = if left { on_left } else { on_right };
            assert_eq!(found.verdict == Verdict::Correct, correct, "{name}, left {left}: {found}");
            if !correct {
                named(&found, "pooling_includes_padding");
                let cause = found.findings[0].cause;
                assert!(!cause.contains("with left padding") || left, "{name}: {found}");
                assert!(!cause.contains("with right padding") || !left, "{name}: {found}");
            }
        }
    }
}

/// The usual cause of every finding on random faulty masks is true of the mask.
#[test]
fn a_cause_is_true_of_the_data() {
    for (number, (name, plant)) in FAULTS.iter().chain(MORE).enumerate() {
        for seed in 0..60u64 {
            let mut dice = Dice::new(seed ^ (number as u64) << 32, seed % 2 == 1);
            let Some(faulty) = plant(&mut dice, 16) else { continue };
            let report = faulty.input.diagnose().expect("a usable mask");
            let scene = &faulty.scene;
            let left = scene.left && scene.lengths.iter().any(|n| *n < scene.k);
            for finding in &report.findings {
                let cause = finding.cause;
                for (words, holds) in [
                    ("left padding is combined with a causal mask", left && scene.causal.is_some()),
                    ("of left-padded texts", left),
                    ("with left padding", left),
                    ("with right padding", !left),
                    ("`torch.triu(torch.ones(L, L), 1)", scene.causal.is_some() || report.verdict != Verdict::Faulty),
                ] {
                    assert!(!cause.contains(words) || holds, "{name}, seed {seed}: {report}");
                }
            }
        }
    }
}

/// The example of each class in the catalogue is a mask with this mistake.
#[test]
fn the_examples_of_the_catalogue_are_what_they_say() {
    // The other examples need lengths or ids beside the mask.
    let beside =
        ["chunk_boundary", "cross_attention_mask", "stale_decode_mask", "stale_or_bucketed_mask", "multi_hop_leak"];
    let mut wrong = Vec::new();
    for Class { name, example, .. } in
        classes().iter().filter(|class| class.tier == "T1" && !beside.contains(&class.name))
    {
        let Some(Example { wrong: given, right, shape: (q_len, kv_len, offset) }) = example else { continue };
        let shape = Shape::new(*q_len, *kv_len, *offset);
        let (given, meant) = (Keep::of(&bound(given, &shape, &Facts::new())), bound(right, &shape, &Facts::new()));
        let mask = Values::bools(&given.dims(), given.cells().collect()).expect("cells");
        let context = Context::from_json(r#"{"convention": "keep_bool"}"#).expect("a context");
        let found = Input::new(mask).context(context).meant(&meant).diagnose().expect("a usable mask");
        if !found.findings.iter().any(|finding| finding.class == *name) {
            wrong.push(format!("{name}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A key that is hidden from one query reaches it through the next one.
    let example =
        classes().iter().find(|class| class.name == "multi_hop_leak").and_then(|class| class.example).expect("one");
    let given = Keep::of(&bound(example.wrong, &Shape::square(4), &Facts::new()));
    let declared = r#"{"convention": "keep_bool", "kind": "causal", "redactions": {"keys": [0], "queries": [2]}}"#;
    let found = report(stored(&given).remove(0).0, declared, &[]);
    named(&found, "multi_hop_leak");
    assert_eq!(found.fixed, Some(Keep::of(&bound(example.right, &Shape::square(4), &Facts::new()))), "{found}");
}
