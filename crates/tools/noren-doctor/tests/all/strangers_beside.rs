//! Kinds of mistakes in the arrays that strangers give with a mask or alone, and declarations as strangers write them. Each correct twin
//! raises no alarm.

use crate::doctor::Dice;
use noren_doctor::{Context, Input, Report, Values, Verdict};
use noren_mask::{Facts, Mask, Shape};

fn rows(rows: &[Vec<i64>]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn list(numbers: &[i64]) -> Values {
    Values::ints(&[numbers.len()], numbers.to_vec()).expect("a list")
}

fn bools(shape: &[usize], cell: &dyn Fn(usize, usize, usize) -> bool) -> Values {
    let (k, q) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let all: usize = shape.iter().product();
    Values::bools(shape, (0..all).map(|at| cell(at / (q * k), at / k % q, at % k)).collect()).expect("all cells")
}

fn floats(shape: &[usize], number: &dyn Fn(usize) -> f32) -> Values {
    Values::floats(shape, (0..shape.iter().product()).map(number).collect()).expect("all cells")
}

fn report(mask: Option<Values>, context: &str, beside: &[(&str, Values)]) -> Report {
    let input = mask.map_or_else(Input::without_mask, Input::new);
    let input = input.context(Context::from_json(context).expect("declarations"));
    let input = beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone()));
    input.diagnose().expect("usable arrays")
}

#[track_caller]
fn is(report: &Report, class: &str, words: &str) {
    let named = report.classes().contains(&class) && report.to_string().contains(words);
    assert!(report.verdict == Verdict::Faulty && named, "{class}, {words}: {report}");
}

#[track_caller]
fn is_calm(report: &Report) {
    assert!(!report.faulty(), "{report}");
}

/// Draft tokens of one parent have equal positions; a chain of positions is the mistake.
#[test]
fn positions_of_drafts_in_a_tree() {
    let mut dice = Dice::new(3, true);
    for _ in 0..60 {
        let (nodes, past) = (dice.of(3, 8), dice.of(0, 9));
        let parents: Vec<i64> = (0..nodes).map(|n| if n == 0 { -1 } else { dice.of(0, n - 1) as i64 }).collect();
        let above = |node: usize| {
            std::iter::successors(Some(node), |at| usize::try_from(parents[*at]).ok()).collect::<Vec<_>>()
        };
        let depth: Vec<i64> = (0..nodes).map(|node| (past + above(node).len() - 1) as i64).collect();
        let chain: Vec<i64> = (past..past + nodes).map(|at| at as i64).collect();
        let mask = bools(&[nodes, past + nodes], &|_, i, k| k < past || above(i).contains(&(k - past)));
        let declared = format!(r#"{{"kind": "tree", "api": "sdpa", "past_len": {past}}}"#);
        let check = |ids: &[i64]| {
            let beside = [("parents", list(&parents)), ("position_ids", rows(&[ids.to_vec()]))];
            report(Some(mask.clone()), &declared, &beside)
        };
        assert_eq!(check(&depth).verdict, Verdict::Correct, "{}", check(&depth));
        if depth != chain {
            let found = check(&chain);
            is(&found, "position_ids", &format!("{depth:?}"));
            assert_eq!(found.classes().len(), 1, "{found}");
        }
    }
}

/// One id is padding and the end of texts: prompts are padded on the left, answers on the right.
#[test]
fn an_id_of_padding_and_of_ends_at_both_ends_of_rows() {
    let mut dice = Dice::new(5, true);
    for _ in 0..60 {
        let (batch, prompts, answers) = (dice.of(2, 4), dice.of(5, 7), dice.of(3, 6));
        let pad = dice.of(0, 3) as i64;
        let n = prompts + answers;
        let lengths: Vec<(usize, usize)> =
            (0..batch).map(|b| (if b == 0 { prompts - 2 } else { dice.of(3, prompts) }, dice.of(2, answers))).collect();
        let real = |b: usize, k: usize| k >= prompts - lengths[b].0 && k < prompts + lengths[b].1;
        let ends = |b: usize, k: usize| k == prompts - 2 || k + 1 == prompts + lengths[b].1;
        let id = |b: usize, k: usize| if !real(b, k) || ends(b, k) { pad } else { 10 + (b * n + k) as i64 };
        let table = |of: &dyn Fn(usize, usize) -> i64| {
            rows(&(0..batch).map(|b| (0..n).map(|k| of(b, k)).collect()).collect::<Vec<_>>())
        };
        let declared = format!(r#"{{"kind": "causal", "pad_token_id": {pad}, "eos_token_id": {pad}}}"#);
        let check = |seen: &dyn Fn(usize, usize) -> bool| {
            let labels = table(&|b, k| if seen(b, k) { id(b, k) } else { -100 });
            let beside = [
                ("input_ids", table(&id)),
                ("attention_mask", table(&|b, k| i64::from(seen(b, k)))),
                ("labels", labels),
            ];
            report(None, &declared, &beside)
        };
        is_calm(&check(&real));
        let found = check(&|b, k| id(b, k) != pad);
        is(&found, "pad_equals_eos_holes", &format!("keys {}, {}", prompts - 2, prompts + lengths[0].1 - 1));
        is(&found, "EOS_never_learned", "never learns to stop");
    }
}

/// Labels that are shifted before they are stored: the label of the last token is a token after the text, and the prompt has one label less.
#[test]
fn labels_of_the_first_and_of_the_last_token_of_answers() {
    let mut dice = Dice::new(7, true);
    for _ in 0..80 {
        let (batch, prompt) = (dice.of(1, 4), dice.of(2, 5));
        let texts: Vec<Vec<i64>> =
            (0..batch).map(|b| (0..prompt + dice.of(3, 7)).map(|k| 10 + (b * 40 + k) as i64).collect()).collect();
        let (shifted, left) = (dice.chance(50), dice.chance(30));
        let by = usize::from(shifted);
        let width = texts.iter().map(Vec::len).max().expect("rows") - by;
        let padded = |text: &[i64], fill: i64| {
            let padding = vec![fill; width - text.len()];
            if left { [&padding, text].concat() } else { [text, &padding].concat() }
        };
        let ids = rows(&texts.iter().map(|text| padded(&text[..text.len() - by], 0)).collect::<Vec<_>>());
        let lengths = list(&texts.iter().map(|text| (text.len() - by) as i64).collect::<Vec<_>>());
        let labels = |ignored: usize| {
            let of = |text: &Vec<i64>| {
                padded(
                    &text[by..]
                        .iter()
                        .enumerate()
                        .map(|(k, id)| if k < ignored { -100 } else { *id })
                        .collect::<Vec<_>>(),
                    -100,
                )
            };
            rows(&texts.iter().map(of).collect::<Vec<_>>())
        };
        let side = if left { "left" } else { "right" };
        let declared = format!(
            r#"{{"kind": "causal", "prompt_len": {prompt}, "model_shifts_labels": {}, "pad_token_id": 0, "padding_side": "{side}"}}"#,
            !shifted
        );
        let check = |ignored: usize| {
            report(
                None,
                &declared,
                &[("input_ids", ids.clone()), ("lengths", lengths.clone()), ("labels", labels(ignored))],
            )
        };
        is_calm(&check(prompt - by));
        is(&check(prompt - by + 1), "loss_mask_missing", "first token of the answer has no label");
        if prompt > by + 1 {
            is(&check(0), "loss_mask_missing", "of the prompt");
        }
    }
}

/// Position ids begin documents where `cu_seqlens` has no border.
#[test]
fn documents_of_position_ids_that_cu_seqlens_lacks() {
    let mut dice = Dice::new(11, true);
    for _ in 0..80 {
        let lengths: Vec<usize> = (0..dice.of(4, 7)).map(|_| dice.of(1, 5)).collect();
        if lengths[lengths.len() - 1] == 1 || lengths.iter().all(|len| *len == 1) {
            continue;
        }
        let positions: Vec<i64> = lengths.iter().flat_map(|len| 0..*len as i64).collect();
        let ends: Vec<i64> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |sum, len| {
                *sum += *len as i64;
                Some(*sum)
            }))
            .collect();
        let lost = dice.of(1, lengths.len() - 1);
        let fewer: Vec<i64> = ends.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, end)| *end).collect();
        let flat = dice.chance(50);
        let ids = if flat { list(&positions) } else { rows(std::slice::from_ref(&positions)) };
        let check = |ends: &[i64]| {
            report(None, r#"{"kind": "causal_packed"}"#, &[("cu_seqlens", list(ends)), ("position_ids", ids.clone())])
        };
        is_calm(&check(&ends));
        let found = check(&fewer);
        is(&found, "cross_document", &format!("the tokens [{}]", ends[lost]));
        assert!(found.to_string().contains(&format!("{ends:?}")), "{found}");
    }
}

/// The mean of the tokens after the prompt, whose first token is the first column only without padding on the left.
#[test]
fn pooling_without_the_prompt_of_padded_rows() {
    let mut dice = Dice::new(13, true);
    for _ in 0..60 {
        let (batch, len, prompt, width) = (dice.of(2, 4), dice.of(6, 9), dice.of(1, 3), 5);
        let padding: Vec<usize> = (0..batch).map(|b| if b == 0 { 0 } else { dice.of(1, len - prompt - 2) }).collect();
        let hidden = floats(&[batch, len, width], &|at| ((at * 37 % 101) as f32).sin());
        let plane = rows(
            &padding.iter().map(|padding| (0..len).map(|k| i64::from(k >= *padding)).collect()).collect::<Vec<_>>(),
        );
        let mean = |from: &dyn Fn(usize) -> usize| {
            floats(&[batch, width], &|at| {
                let (b, d) = (at / width, at % width);
                let tokens = from(b)..len;
                tokens.clone().map(|k| (((b * len + k) * width + d) * 37 % 101) as f32).map(f32::sin).sum::<f32>()
                    / tokens.len() as f32
            })
        };
        let declared = format!(r#"{{"pooling": "mean", "prompt_len": {prompt}}}"#);
        let check = |pooled: Values| {
            report(
                None,
                &declared,
                &[("attention_mask", plane.clone()), ("hidden", hidden.clone()), ("pooled", pooled)],
            )
        };
        is_calm(&check(mean(&|b| padding[b] + prompt)));
        is_calm(&check(mean(&|b| padding[b])));
        let wrong = check(mean(&|b| padding[b].max(prompt)));
        is(&wrong, "pooling_includes_padding", "after the prompt");
        assert!(wrong.to_string().contains("wrong in batch row") && !wrong.to_string().contains("rows 0"), "{wrong}");
    }
}

/// A cache that holds other keys than the last ones, and a mask that compares slots.
#[test]
fn slots_of_a_cache_that_are_used_as_positions() {
    let mut dice = Dice::new(17, true);
    for _ in 0..60 {
        let (n, slots) = (dice.of(10, 16), dice.of(4, 8));
        let mut kept: Vec<i64> = (0..slots as i64).map(|slot| n as i64 - slots as i64 + slot).collect();
        (0..dice.of(1, slots - 2)).for_each(|slot| kept[slot] = slot as i64);
        if kept.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            continue;
        }
        let beside = [("kv_positions", list(&kept)), ("query_positions", list(&(0..n as i64).collect::<Vec<_>>()))];
        let check = |cell: &dyn Fn(usize, usize) -> bool| {
            report(Some(bools(&[n, slots], &|_, i, k| cell(i, k))), r#"{"kind": "causal"}"#, &beside)
        };
        let twin = check(&|i, k| kept[k] <= i as i64);
        assert_eq!(twin.verdict, Verdict::Correct, "{twin}");
        let found = check(&|i, k| n - slots + k <= i);
        is(&found, "ring_buffer_misaligned", "slots");
        assert!(found.repair.is_some(), "{found}");
        // A ring of the width of the window: the window hides nothing, so it is not missing.
        let ring: Vec<i64> = (0..slots as i64)
            .map(|slot| if slot < 2 { n as i64 - 2 + slot } else { n as i64 - 2 - slots as i64 + slot })
            .collect();
        let beside = [("kv_positions", list(&ring)), ("query_positions", list(&(0..n as i64).collect::<Vec<_>>()))];
        let declared = format!(r#"{{"kind": "sliding", "window": {slots}, "api": "sdpa"}}"#);
        let found = report(Some(bools(&[1, 1, n, slots], &|_, i, k| k <= i)), &declared, &beside);
        assert_eq!(found.classes().first(), Some(&"ring_buffer_misaligned"), "{found}");
        assert!(!found.classes().contains(&"window_missing_or_wrong_layer") && found.fixed.is_none(), "{found}");
    }
}

/// Padding on the queries instead of the keys in a mask that should be causal: two mistakes, not a wrong operator.
#[test]
fn padding_on_the_queries_of_a_causal_model() {
    let mut dice = Dice::new(19, true);
    for _ in 0..60 {
        let (batch, n, heads) = (dice.of(2, 4), dice.of(6, 10), dice.of(1, 2));
        let left = dice.chance(50);
        let lengths: Vec<usize> = (0..batch).map(|b| if b == 0 { n } else { dice.of(3, n - 1) }).collect();
        let real = |b: usize, k: usize| if left { k >= n - lengths[b] } else { k < lengths[b] };
        let ids = rows(
            &(0..batch)
                .map(|b| (0..n).map(|k| if real(b, k) { 7 + k as i64 } else { 0 }).collect())
                .collect::<Vec<_>>(),
        );
        let mask = bools(&[batch, heads, n, n], &|at, i, _| real(at / heads, i));
        let declared = r#"{"kind": "causal", "convention": "keep_bool", "pad_token_id": 0}"#;
        let found = report(Some(mask), declared, &[("input_ids", ids.clone())]);
        is(&found, "causal_dropped", "");
        if left {
            is(&found, "broadcast_wrong_axis", "");
        }
        assert!(!found.classes().contains(&"wrong_operator"), "{found}");
        let right = bools(&[batch, heads, n, n], &|at, i, k| k <= i && real(at / heads, k));
        is_calm(&report(Some(right), declared, &[("input_ids", ids)]));
    }
}

/// Numbers that are added to scores, although a convention of truth values is declared, are a question.
#[test]
fn a_convention_that_the_numbers_contradict() {
    for fill in [f32::NEG_INFINITY, -1e9, f32::MIN] {
        for convention in ["keep_01", "keep_bool", "ignore_bool", "1 = attend, 0 = hidden"] {
            let mask = floats(&[6, 6], &|at| if at % 6 <= at / 6 { 0.0 } else { fill });
            let declared = format!(r#"{{"kind": "causal", "convention": "{convention}"}}"#);
            let found = report(Some(mask.clone()), &declared, &[]);
            assert!(
                found.verdict == Verdict::CannotTell && found.to_string().contains("convention=additive"),
                "{found}"
            );
            let meant: Mask = "causal".parse().expect("a mask");
            let meant = meant.bind(&Shape::square(6), &Facts::new()).expect("a shape");
            let context = Context::from_json(&format!(r#"{{"convention": "{convention}"}}"#)).expect("declarations");
            let stated = Input::new(mask).context(context).meant(&meant).diagnose().expect("a usable mask");
            assert_eq!(stated.verdict, Verdict::CannotTell, "{stated}");
        }
    }
}

/// Padding of every text that is one key too long is named with its keys.
#[test]
fn lengths_that_are_rounded_up() {
    let mut dice = Dice::new(23, true);
    for _ in 0..60 {
        let (batch, n, by) = (dice.of(3, 5), dice.of(9, 14), dice.of(1, 2));
        let lengths: Vec<usize> = (0..batch).map(|b| if b == 0 { n } else { dice.of(2, n - 3) }).collect();
        let drop = dice.chance(50);
        let mask = |by: usize| bools(&[batch, n], &|_, b, k| (k < lengths[b] + by) != drop);
        let convention = if drop { "ignore_bool" } else { "keep_bool" };
        let declared = format!(r#"{{"role": "key_padding", "convention": "{convention}", "lengths": {lengths:?}}}"#);
        let found = report(Some(mask(by)), &declared, &[]);
        let key = if by == 1 {
            format!("key {} of batch row", lengths[1])
        } else {
            format!("keys {} to {} of batch row", lengths[1], lengths[1] + 1)
        };
        is(&found, "stale_or_bucketed_mask", &key);
        is(
            &found,
            "stale_or_bucketed_mask",
            &format!("each padded text is {by} key{} too long", if by == 1 { "" } else { "s" }),
        );
        assert_eq!(report(Some(mask(0)), &declared, &[]).verdict, Verdict::Correct);
    }
    let moved = bools(&[3, 9], &|_, b, k| b == 0 || k < 6);
    let plane = rows(&[vec![1; 9], vec![1, 1, 1, 0, 0, 0, 1, 1, 1], vec![1, 1, 1, 0, 0, 0, 1, 1, 1]]);
    let declared = r#"{"role": "key_padding", "convention": "keep_bool"}"#;
    let found = report(Some(moved), declared, &[("attention_mask", plane)]);
    assert!(found.faulty() && !found.to_string().contains("0 keys too"), "{found}");
}

/// Segment numbers from 0 that the mask hides at the left: the 0 may be padding.
#[test]
fn a_segment_number_0_at_the_left_is_a_question() {
    let numbers = [0, 0, 1, 1, 2, 2];
    let check = |zero_is_padding: bool| {
        let cell =
            |_: usize, i: usize, k: usize| k <= i && numbers[i] == numbers[k] && !(zero_is_padding && numbers[k] == 0);
        let declared = r#"{"kind": "causal_packed", "api": "sdpa"}"#;
        report(Some(bools(&[1, 1, 6, 6], &cell)), declared, &[("segment_ids", rows(&[numbers.to_vec()]))])
    };
    assert_eq!(check(false).verdict, Verdict::Correct);
    let asked = check(true);
    assert!(asked.verdict == Verdict::CannotTell && asked.to_string().contains("padding"), "{asked}");
}

/// Lengths beside ids in which padding and the ends of texts have one id.
#[test]
fn lengths_beside_an_id_that_also_ends_texts() {
    let ids = rows(&[vec![8, 9, 2, 5, 5, 2], vec![2, 9, 2, 7, 2, 2]]);
    for (left, lengths) in [(true, [6, 5]), (false, [6, 5])] {
        let ids = if left { ids.clone() } else { rows(&[vec![8, 9, 2, 5, 5, 2], vec![9, 2, 7, 2, 2, 2]]) };
        let real = |b: usize, k: usize| if left { k >= 6 - lengths[b] } else { k < lengths[b] };
        let side = if left { "left" } else { "right" };
        let declared = format!(
            r#"{{"kind": "bidirectional", "api": "sdpa", "pad_token_id": 2, "eos_token_id": 2, "padding_side": "{side}"}}"#
        );
        let mask = bools(&[2, 1, 6, 6], &|b, _, k| real(b, k));
        let beside = [("input_ids", ids), ("lengths", list(&[6, 5]))];
        let twin = report(Some(mask), &declared, &beside);
        assert_eq!(twin.verdict, Verdict::Correct, "{side}: {twin}");
    }
}

/// A `padding_mask` in which both readings of 1 leave every row tokens: fairseq writes 1 for padding, Keras 1 for tokens.
#[test]
fn a_padding_mask_of_either_polarity_is_a_question() {
    let lengths = [5, 4, 3];
    for (name, certain) in [("padding_mask", false), ("key_padding_mask", true), ("attention_mask", true)] {
        for drop in [false, true] {
            let plane = bools(&[3, 6], &|_, b, k| (k < lengths[b]) != drop);
            let right = bools(&[3, 1, 6, 6], &|b, i, k| k <= i && k < lengths[b]);
            let found = report(Some(right), r#"{"kind": "causal", "api": "sdpa"}"#, &[(name, plane.clone())]);
            match (certain, drop == (name == "key_padding_mask")) {
                (true, true) => assert_eq!(found.verdict, Verdict::Correct, "{name}: {found}"),
                (true, false) => assert_ne!(found.verdict, Verdict::Correct, "{name}: {found}"),
                (false, _) => {
                    assert_eq!(found.verdict, Verdict::CannotTell, "{name}: {found}");
                    assert!(
                        found.to_string().contains("attention_mask (1 for a token)") && found.classes().is_empty(),
                        "{found}"
                    );
                }
            }
            let wrong = bools(&[3, 1, 6, 6], &|_, _, _| true);
            let found = report(Some(wrong), r#"{"kind": "bidirectional", "api": "sdpa"}"#, &[(name, plane)]);
            assert_eq!(found.verdict, Verdict::Faulty, "{name}: padding is visible in both readings: {found}");
        }
    }
}

/// Chunks of streaming models read all earlier chunks; the kind `chunked` hides them.
#[test]
fn chunks_that_read_earlier_chunks_are_a_question() {
    for size in [2, 3, 4] {
        let declared = format!(r#"{{"kind": "chunked", "chunk": {size}, "api": "sdpa"}}"#);
        let asked = report(Some(bools(&[12, 12], &|_, i, k| k / size <= i / size)), &declared, &[]);
        assert!(asked.verdict == Verdict::CannotTell && asked.to_string().contains("causal | chunk"), "{asked}");
        let twin = report(Some(bools(&[12, 12], &|_, i, k| k / size == i / size && k <= i)), &declared, &[]);
        assert_eq!(twin.verdict, Verdict::Correct, "{twin}");
    }
    let refused = Context::from_json(r#"{"kind": "block_causal"}"#).expect_err("two meanings").to_string();
    assert!(refused.contains("causal_packed") && refused.contains("causal | chunk(4)"), "{refused}");
}

/// The padding masks of PyTorch, in which true marks padding, and those of other libraries, in which true marks tokens.
#[test]
fn padding_masks_beside_a_mask() {
    let lengths = [6, 4, 3];
    for name in ["key_padding_mask", "padding_mask"] {
        for drop in [false, true] {
            let plane = bools(&[3, 6], &|_, b, k| (k < lengths[b]) != drop);
            let mask = |padded: bool| bools(&[3, 1, 6, 6], &|b, i, k| k <= i && (!padded || k < lengths[b]));
            let check = |padded: bool| {
                let beside = [(name, plane.clone())];
                report(Some(mask(padded)), r#"{"kind": "bidirectional", "api": "sdpa"}"#, &beside)
            };
            is(&check(true), "implicit_causal", "");
            let right = bools(&[3, 1, 6, 6], &|b, _, k| k < lengths[b]);
            let twin = report(Some(right), r#"{"kind": "bidirectional", "api": "sdpa"}"#, &[(name, plane.clone())]);
            assert_eq!(twin.verdict, Verdict::Correct, "{name}, {drop}: {twin}");
        }
    }
    let decoder = [
        ("decoder_attention_mask", rows(&[vec![1, 1, 1, 0], vec![1, 1, 0, 0]])),
        ("encoder_attention_mask", rows(&[vec![1; 6], vec![1, 1, 1, 1, 0, 0]])),
    ];
    let cross = |b: usize, i: usize, k: usize| if i + b < 3 { b == 0 || k < 4 } else { k == 5 };
    let twin = report(Some(bools(&[2, 1, 4, 6], &cross)), r#"{"kind": "cross", "api": "sdpa"}"#, &decoder);
    assert_eq!(twin.verdict, Verdict::Correct, "{twin}");
}

/// An array of padding beside a mask is compared with the lengths.
#[test]
fn padding_beside_a_mask_that_other_arrays_contradict() {
    let plane = rows(&[vec![1; 6], vec![1, 1, 1, 1, 1, 0]]);
    let mask = bools(&[2, 1, 6, 6], &|b, i, k| k <= i && (b == 0 || k < 5));
    let check = |length: i64| {
        let beside = [("attention_mask", plane.clone()), ("lengths", list(&[6, length]))];
        report(Some(mask.clone()), r#"{"kind": "causal", "api": "sdpa"}"#, &beside)
    };
    assert_eq!(check(5).verdict, Verdict::Correct);
    is(&check(4), "stale_or_bucketed_mask", "`attention_mask`");
}

/// Position ids of the new tokens only, with the padding of all tokens.
#[test]
fn positions_of_new_tokens_without_a_mask() {
    let plane = rows(&[vec![1; 8], vec![0, 0, 0, 1, 1, 1, 1, 1]]);
    let check = |positions: Vec<Vec<i64>>| {
        report(None, "{}", &[("attention_mask", plane.clone()), ("position_ids", rows(&positions))])
    };
    is_calm(&check(vec![vec![6, 7], vec![3, 4]]));
    is_calm(&check(vec![vec![7], vec![4]]));
    is(&check(vec![vec![6, 7], vec![6, 7]]), "position_ids", "batch row 1");
}

/// One extra cell against a declared expression is named as it is against a declared kind.
#[test]
fn visible_cells_that_one_declared_term_hides() {
    for (meant, extra, class) in [
        ("causal", (2, 5), "causal_leak"),
        ("sliding(3)", (7, 1), "window_missing_or_wrong_layer"),
        ("causal & documents([4, 4])", (6, 1), "cross_document"),
    ] {
        let mask: Mask = meant.parse().expect("a mask");
        let bound = mask.bind(&Shape::square(8), &Facts::new()).expect("a shape");
        let right = noren_mask::Keep::of(&bound);
        let cells = bools(&[8, 8], &|_, i, k| right.get([0, 0, i, k]) || (i, k) == extra);
        let context = Context::from_json(r#"{"convention": "keep_bool"}"#).expect("declarations");
        let found = Input::new(cells).context(context).meant(&bound).diagnose().expect("a usable mask");
        assert_eq!(found.classes(), [class], "{found}");
    }
}

/// Conventions as sentences.
#[test]
fn conventions_in_words() {
    use noren_doctor::Convention::{Drop, Keep};
    for (words, meaning) in [
        ("1 = attend, 0 = hidden", Some(Keep)),
        ("true_is_padding", Some(Drop)),
        ("1_is_real", Some(Keep)),
        ("0 is padding", Some(Keep)),
        ("true means not visible", Some(Drop)),
        ("zeros are masked", Some(Keep)),
        ("true may attend", Some(Keep)),
        ("0 = keep, -inf = masked", None),
        ("1 = attend, 0 = attend", None),
        ("padding", None),
    ] {
        let json = format!(r#"{{"convention": "{words}"}}"#);
        assert_eq!(Context::from_json(&json).ok().and_then(|context| context.convention), meaning, "{words}");
    }
}

/// The mask of each reading of an array is correct, or the doctor asks which reading is meant; it never finds a fault.
#[test]
fn arrays_are_read_as_by_all_other_readers() {
    for batch in noren_testing::batches::batches() {
        let beside: Vec<(&str, Values)> = batch
            .arrays
            .iter()
            .map(|(name, shape, numbers)| (name.as_str(), Values::ints(shape, numbers.clone()).expect("rows")))
            .collect();
        let tokens = batch
            .arrays
            .iter()
            .map(|(name, _, numbers)| if name == "documents" || name == "cu_seqlens" { 4 } else { numbers.len() });
        let (rows, tokens) =
            (batch.arrays[0].1[..batch.arrays[0].1.len() - 1].iter().product::<usize>(), tokens.max().unwrap_or(4));
        let len = if batch.arrays[0].0 == "documents" { 4 } else { tokens / rows };
        for facts in &batch.readings {
            let (text, kind) = match (facts.has_documents(), facts.to_json().expect("JSON").contains("lengths")) {
                (true, true) => ("causal & documents & padding", "causal_packed"),
                (true, false) => ("causal & documents", "causal_packed"),
                _ => ("padding", "bidirectional"),
            };
            let mask: Mask = text.parse().expect("a mask");
            let bound = mask.bind(&Shape::square(len).batch(rows), facts).expect("facts");
            let cells = bools(&[rows, 1, len, len], &|b, i, k| bound.allowed(b, 0, i, k));
            let found = report(Some(cells), &format!(r#"{{"kind": "{kind}", "api": "sdpa"}}"#), &beside);
            let expected = if batch.readings.len() > 1 { Verdict::CannotTell } else { Verdict::Correct };
            assert!([expected, Verdict::Correct].contains(&found.verdict), "{:?}, {facts:?}: {found}", batch.arrays);
        }
    }
}

/// Arrays that are malformed or do not fit each other are errors or findings, and never a panic.
#[test]
fn malformed_arrays_beside_a_mask_or_alone() {
    let diagnosed = |mask: Option<Values>, beside: &[(&str, Values)]| {
        let input = mask.map_or_else(Input::without_mask, Input::new);
        let declared = r#"{"kind": "causal_packed", "convention": "keep_bool"}"#;
        let input = input.context(Context::from_json(declared).expect("declarations"));
        beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone())).diagnose()
    };
    let numbers = |last: &[i64]| {
        [("segment_ids", rows(&[(0..last.len() as i64).collect()])), ("position_ids", rows(&[last.to_vec()]))]
    };
    for positions in [&[0, 1, 0][..], &[0, 1, 2, 0]] {
        assert_ne!(diagnosed(None, &numbers(positions)).expect("a report").verdict, Verdict::Correct);
    }
    let three = rows(&[vec![4], vec![1], vec![1]]);
    let planes = [("attention_mask", rows(&[vec![1, 1], vec![1, 0]])), ("documents", three.clone())];
    assert_ne!(diagnosed(None, &planes).expect("a report").verdict, Verdict::Correct);
    let ids = rows(&[vec![85, 59, 67], vec![80, 61, 53], vec![46, 2, 2]]);
    drop(diagnosed(None, &[("documents", rows(&[vec![3], vec![3]])), ("input_ids", ids)]));
    let empty = Values::ints(&[2, 0], Vec::new()).expect("no cells");
    drop(diagnosed(None, &[("attention_mask", empty), ("lengths", list(&[2, 3]))]));
    let square = |n: usize| Some(bools(&[1, 1, n, n], &|_, i, k| k <= i));
    for (documents, named) in [(list(&[-1, 5]), "-1"), (three, "[3, 1]"), (rows(&[vec![2, 2], vec![2, 2]]), "[2, 2]")] {
        let error =
            diagnosed(square(4), &[("documents", documents)]).expect_err("an array that does not fit").to_string();
        assert!(error.contains("documents") && error.contains(named), "{error}");
    }
}

/// Arrays that give different tokens or documents are never correct together, whatever the mask; those that agree are.
#[test]
fn given_arrays_that_contradict_each_other() {
    let plane = |rows_of: &[[i64; 4]]| rows(&rows_of.iter().map(|r| r.to_vec()).collect::<Vec<_>>());
    let both = [[1, 1, 1, 1], [1, 1, 0, 0]];
    let cases: [(&[(&str, Values)], bool); 8] = [
        (&[("attention_mask", plane(&both)), ("segment_ids", plane(&[[1, 2, -1, -1], [1, 1, 2, 2]]))], false),
        (&[("attention_mask", plane(&both)), ("segment_ids", plane(&[[1, 1, 2, 2], [1, 2, -1, -1]]))], true),
        (&[("attention_mask", plane(&[[1; 4]])), ("key_padding_mask", plane(&[[0, 1, 0, 0]]))], false),
        (&[("attention_mask", plane(&[[1, 0, 1, 1]])), ("key_padding_mask", plane(&[[0, 1, 0, 0]]))], true),
        (&[("segment_ids", plane(&[[1, 1, 1, 2]])), ("documents", list(&[2, 2]))], false),
        (&[("segment_ids", plane(&[[1, 1, 1, 2]])), ("documents", list(&[3, 1]))], true),
        (&[("segment_ids", plane(&[[1, 1, 2, -1]])), ("lengths", list(&[4]))], false),
        (&[("segment_ids", plane(&[[-1, 1, 1, 2]])), ("lengths", list(&[3]))], true),
    ];
    for (beside, agree) in cases {
        let found = report(None, "{}", beside);
        assert_eq!(found.faulty(), !agree, "{beside:?}: {found}");
        assert!(agree || found.to_string().contains("contradict"), "{found}");
    }
}

#[test]
fn an_id_that_may_also_end_texts_is_a_question() {
    let mut dice = Dice::new(61, true);
    for _ in 0..100 {
        let (batch, len, left) = (dice.of(2, 4), dice.of(5, 9), dice.chance(50));
        let texts: Vec<usize> = (0..batch).map(|b| dice.of(4, if b < 2 { len - 1 } else { len })).collect();
        let packed = dice.chance(50);
        // Each text ends with the id of padding, and a packed text has one after its first token too.
        let token = |b: usize, k: usize| {
            let at = if left { k.checked_sub(len - texts[b])? } else { k };
            (at < texts[b]).then(|| if at + 1 == texts[b] || packed && at == 1 { 2 } else { 10 + at as i64 })
        };
        let of = |id: &dyn Fn(usize, usize) -> i64| {
            rows(&(0..batch).map(|b| (0..len).map(|k| id(b, k)).collect()).collect::<Vec<_>>())
        };
        let ids = of(&|b, k| token(b, k).unwrap_or(2));
        let real = of(&|b, k| i64::from(token(b, k).is_some()));
        let mask = bools(&[batch, 1, len, len], &|b, q, k| k <= q && token(b, k).is_some());
        let beside = [("input_ids", ids), ("attention_mask", real)];
        let side = if left { "left" } else { "right" };
        let declared =
            |more: &str| format!(r#"{{"kind": "causal", "padding_side": "{side}", "pad_token_id": 2{more}}}"#);
        let open = report(Some(mask.clone()), &declared(""), &beside);
        assert!(open.verdict == Verdict::CannotTell && open.to_string().contains("eos_token_id"), "{open}");
        is_calm(&report(Some(mask), &declared(r#", "eos_token_id": 2"#), &beside));
    }
}

#[test]
fn texts_of_training_are_padded_on_the_right() {
    let beside = [
        ("input_ids", rows(&[vec![5, 6, 7, 2], vec![5, 6, 2, 0]])),
        ("labels", rows(&[vec![5, 6, 7, 2], vec![5, 6, 2, -100]])),
    ];
    let context = r#"{"task": "generation", "pad_token_id": 0, "eos_token_id": 2, "model_shifts_labels": true}"#;
    is_calm(&report(None, context, &beside));
    is(&report(None, context, &beside[..1]), "padding_side", "pad on the left");
}

/// Rows of keys that are compared with given padding have a verdict for every wrong cell.
#[test]
fn rows_of_keys_with_one_wrong_key() {
    let lengths = [6usize, 4];
    for (b, k) in (0..2).flat_map(|b| (0..8).map(move |k| (b, k))) {
        let ignored = |row: usize, key: usize| (key >= lengths[row]) != ((row, key) == (b, k));
        let mask = Values::bools(&[2, 8], (0..16).map(|at| ignored(at / 8, at % 8)).collect()).expect("all cells");
        let found = report(Some(mask), r#"{"api": "mha", "role": "key_padding", "lengths": [6, 4]}"#, &[]);
        assert!(found.faulty() && !found.sentence.contains("not complete"), "{b}, {k}: {found}");
    }
}

#[test]
fn declarations_of_another_number_of_rows_are_errors() {
    let mask = || Values::bools(&[2, 8], vec![true; 16]).expect("all cells");
    for name in ["lengths", "kv_written", "past_len", "prefix_len", "prompt_len"] {
        let context = format!(r#"{{"role": "key_padding", "batch": 2, "{name}": [6, 4, 2]}}"#);
        let context = Context::from_json(&context).expect("declarations");
        let error = Input::new(mask()).context(context).diagnose().unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("3 numbers, expected 1 or 2"), "{error}");
    }
}

#[test]
fn integers_above_1_that_number_no_documents_are_a_question() {
    let cells = |of: &dyn Fn(usize, usize) -> i64| {
        Values::ints(&[1, 1, 4, 4], (0..16).map(|at| of(at / 4, at % 4)).collect()).expect("all cells")
    };
    let causal = r#"{"kind": "causal"}"#;
    let mixed = report(Some(cells(&|q, k| if (q, k) == (0, 0) { 2 } else { i64::from(k <= q) })), causal, &[]);
    assert!(mixed.verdict == Verdict::CannotTell && mixed.to_string().contains("what does 2 mean"), "{mixed}");
    let all = report(Some(cells(&|q, k| 255 * i64::from(k <= q))), causal, &[]);
    assert_eq!(all.verdict, Verdict::Correct, "{all}");
}

/// A mask that is right if it is inverted and padded on the left.
#[test]
fn an_inverted_mask_with_padding_on_the_left_is_a_question() {
    let lengths = [5, 1];
    let mask = bools(&[2, 1, 5, 5], &|b, q, k| !(k <= q && k >= 5 - lengths[b]));
    let open = report(Some(mask), r#"{"kind": "causal", "lengths": [5, 1]}"#, &[]);
    assert!(open.verdict == Verdict::CannotTell && open.to_string().contains("padding_side"), "{open}");
}

/// One id of padding before a text that ends with the same id.
#[test]
fn one_leading_id_of_padding_and_of_ends() {
    let texts = [
        (vec![2, 5, 2], [0, 1, 1]),
        (vec![2, 5, 6], [0, 1, 1]),
        (vec![2, 5, 2], [1, 1, 1]),
        (vec![2, 5, 2], [0, 1, 0]),
    ];
    for (ids, real) in texts {
        let mask = bools(&[1, 1, 3, 3], &|_, q, k| k <= q && (real[k] > 0 || k == q));
        let beside = [("input_ids", rows(&[ids])), ("attention_mask", rows(&[real.to_vec()]))];
        let context = r#"{"kind": "causal", "convention": "keep_bool", "pad_token_id": 2, "eos_token_id": 2}"#;
        is_calm(&report(Some(mask), context, &beside));
    }
    let beside =
        [("input_ids", rows(&[vec![5, 2], vec![6, 2]])), ("key_padding_mask", rows(&[vec![0, 0], vec![0, 0]]))];
    let mask = bools(&[1, 1, 2, 2], &|_, q, k| k <= q);
    let open =
        report(Some(mask.clone()), r#"{"kind": "causal", "convention": "keep_bool", "pad_token_id": 2}"#, &beside);
    assert!(open.verdict == Verdict::CannotTell && open.to_string().contains("eos_token_id"), "{open}");
    // Lengths count the cached tokens, ids are those of the new tokens.
    let beside = [("input_ids", rows(&[vec![7, 0]])), ("lengths", list(&[3]))];
    let mask = bools(&[1, 1, 2, 4], &|_, q, k| k <= q + 2 && (k < 3 || q == 1));
    let context =
        r#"{"kind": "causal", "convention": "keep_bool", "pad_token_id": 0, "past_len": 2, "padding_side": "right"}"#;
    is_calm(&report(Some(mask), context, &beside));
}

/// The padding mask `ids != pad` hides the ends of texts that are padded on the left, also beside rows without padding.
#[test]
fn ends_that_the_padding_hides_with_padding_on_the_left() {
    for ids in [vec![vec![2, 2, 5, 6, 2], vec![7, 8, 9, 6, 2]], vec![vec![2, 5, 6, 8, 2], vec![2, 2, 9, 6, 2]]] {
        for side in ["", r#", "padding_side": "left""#] {
            let real: Vec<Vec<i64>> = ids.iter().map(|r| r.iter().map(|id| i64::from(*id != 2)).collect()).collect();
            let mask = bools(&[2, 1, 5, 5], &|b, q, k| k <= q && real[b][k] > 0);
            let beside = [("input_ids", rows(&ids)), ("attention_mask", rows(&real))];
            let context = format!(
                r#"{{"kind": "causal", "convention": "keep_bool", "pad_token_id": 2, "eos_token_id": 2{side}}}"#
            );
            is(&report(Some(mask), &context, &beside), "pad_equals_eos_holes", "are hidden like padding");
        }
    }
}

/// A repair depends on which readings of an array are meant.
#[test]
fn readings_with_two_repairs_have_none() {
    let mask = bools(&[1, 1, 3, 3], &|_, q, k| k < q);
    let found = report(
        Some(mask),
        r#"{"kind": "causal", "convention": "keep_bool", "pad_token_id": 2}"#,
        &[("input_ids", rows(&[vec![5, 2, 6]]))],
    );
    assert!(found.faulty() && found.fixed.is_none() && found.repair.is_none(), "{found}");
    assert!(found.findings.iter().all(|finding| finding.repair.is_none()), "{found}");
}

/// Rows of keys show the padding of the intended mask only: the attention function adds its other terms.
#[test]
fn rows_of_keys_beside_an_intended_expression() {
    for text in ["padding", "causal & padding", "(window(2, 2) | global([0, 5])) & padding"] {
        let meant: Mask = text.parse().expect("a mask");
        let bound = meant.bind(&Shape::square(8).batch(2), &Facts::new().lengths([6, 4])).expect("a shape that fits");
        // No token of a causal mask reads the padding on the right.
        let seen = Some((0, 6)).filter(|_| !text.contains("causal"));
        for wrong in [None, Some((1, 2)), seen] {
            let real = |b: usize, k: usize| (k < [6, 4][b]) != (wrong == Some((b, k)));
            let rows = Values::bools(&[2, 8], (0..16).map(|at| real(at / 8, at % 8)).collect()).expect("all cells");
            let context =
                Context::from_json(r#"{"role": "key_padding", "convention": "keep_bool"}"#).expect("declarations");
            let found = Input::new(rows).context(context).meant(&bound).diagnose().expect("usable arrays");
            let expected = if wrong.is_some() { Verdict::Faulty } else { Verdict::Correct };
            assert_eq!(found.verdict, expected, "{text}, {wrong:?}: {found}");
        }
    }
}
