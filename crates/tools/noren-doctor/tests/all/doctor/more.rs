//! Further mistakes: masks of keys used as full masks, companion arrays, layers, two mistakes together.

use super::Dice;
use super::faults::{Faulty, Plant, differ, faulty, keep_of, noise, scene, with_labels};
use super::scene::{Code, Family, Given, Scene, encode};
use noren_doctor::{Dtype, Values};
use noren_mask::Keep;
use serde_json::json;

/// Every mistake by name.
pub(crate) const MORE: &[(&str, Plant)] = &[
    ("plane: inverted", |d, n| plane(d, n, 0, &["inverted_polarity"])),
    ("plane: all visible", |d, n| plane(d, n, 1, &["padding_keys_visible"])),
    ("plane: row 0 for all", |d, n| plane(d, n, 2, &["batch_row_wrong"])),
    ("plane: wrong end", |d, n| plane(d, n, 3, &["padding_side"])),
    ("plane: other lengths", |d, n| {
        plane(d, n, 4, &["stale_or_bucketed_mask", "padding_keys_visible", "batch_row_wrong"])
    }),
    ("plane: 0/1 added", |d, n| plane(d, n, 5, &["float01_added"])),
    ("plane: weak fill", |d, n| plane(d, n, 6, &["fill_value_wrong"])),
    ("padding along queries, [b, 1, q, 1]", query_column),
    ("padding along queries and causal", query_causal),
    ("cu_seqlens malformed", malformed),
    ("MLM labels", mlm),
    ("loss on nothing", |d, n| few_labels(d, n, false)),
    ("loss on the prompt", |d, n| few_labels(d, n, true)),
    ("kv_written ignored", written),
    ("ALiBi both ways by column", alibi),
    ("layers swapped", layers),
    ("is_causal beside a bidirectional mask", flag),
    ("fill too weak for the scores", weak_for_scores),
    ("NaN values in hidden keys", nan_values),
    ("another sequence's slots", owners),
    ("additive mask times tril", times_tril),
    ("top-left in a padded cache", top_left_padded),
    ("window off by one, padded", |d, n| {
        two(d, n, &[Family::Sliding], &["sliding_window_off_by_one"], &|w, _| w.window = w.window.map(|x| x + 1))
    }),
    ("leak and padding visible", |d, n| {
        two(d, n, &[Family::Causal, Family::Sliding], &["causal_leak", "padding_keys_visible"], &|w, _| {
            (w.causal, w.padding) = (Some(1), false)
        })
    }),
    ("no documents, no causality", |d, n| {
        two(d, n, &[Family::Packed], &["cross_document", "causal_dropped"], &|w, _| {
            w.causal = None;
            w.segments =
                w.segments.as_ref().map(|s| s.iter().map(|r| r.iter().map(|x| i64::from(*x > 0)).collect()).collect());
        })
    }),
    ("inverted and leaking", |d, n| inverted_and(d, n)),
    ("pooled at the wrong token", pooled_last),
    ("cross: triangular and unpadded", |d, n| {
        two(d, n, &[Family::Cross], &["cross_attention_mask"], &|w, _| (w.causal, w.padding) = (Some(0), false))
    }),
];

fn padded(dice: &mut Dice, n: usize, families: &[Family]) -> Option<Scene> {
    let right = scene(dice, n, families);
    right.padding.then_some(right)
}

fn plane(dice: &mut Dice, n: usize, fault: u8, classes: &'static [&'static str]) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::KeysBoth])?;
    right.plane4 = true;
    right.declare_kind = dice.chance(70);
    right.given = if dice.chance(70) { Given::Ids } else { Given::Plane };
    right.code = dice.pick(&[
        Code::KeepBool,
        Code::Additive(f64::NEG_INFINITY, Dtype::F32),
        Code::Additive(f64::from(f32::MIN), Dtype::F32),
        Code::Additive(-65504.0, Dtype::F16),
        Code::Additive(-1e9, Dtype::F32),
    ]);
    let real = right.plane();
    let mut wrong = right.clone();
    let meant = right.keep();
    match fault {
        0 | 1 | 5 | 6 => {}
        2 => wrong.lengths = vec![right.lengths[0]; right.batch],
        3 => wrong.left = !right.left,
        _ => wrong.lengths = right.lengths.iter().map(|_| dice.of(right.k / 2, right.k)).collect(),
    }
    let cells = match fault {
        0 => keep_of(&real, |c| !c),
        1 => keep_of(&real, |_| true),
        _ => wrong.plane(),
    };
    if fault == 2 && (right.batch < 2 || right.lengths[0] == right.k)
        || fault == 4 && wrong.lengths.iter().all(|l| right.lengths.contains(l))
    {
        return None;
    }
    let values = match fault {
        5 => Values::floats(&[right.batch, 1, 1, right.k], real.cells().map(|c| f32::from(u8::from(c))).collect())
            .ok()?,
        6 => encode(
            &[right.batch, 1, 1, right.k],
            real.cells().collect(),
            Code::Additive(dice.pick(&[1e-9, -1.0, -50.0, 1e9]), Dtype::F32),
        ),
        _ => encode(&[right.batch, 1, 1, right.k], cells.cells().collect(), right.code),
    };
    if fault >= 5 {
        right.code = Code::Additive(-1e9, Dtype::F32);
    }
    let seen = Keep::from_fn(meant.dims(), |[b, _, _, j]| cells.get([b, 0, 0, j]));
    (fault >= 5 || differ(&right, &meant, &seen)).then(|| Faulty {
        input: right.with_mask(values),
        classes,
        scene: right,
        meant,
    })
}

fn query_column(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Bidirectional])?;
    right.code = dice.pick(&[Code::KeepBool, Code::Additive(-1e4, Dtype::F32), Code::Additive(-1e9, Dtype::F32)]);
    right.given = Given::Ids;
    let meant = right.keep();
    let cells = (0..right.batch * right.q).map(|at| right.real(at / right.q, at % right.q)).collect();
    let values = encode(&[right.batch, 1, right.q, 1], cells, right.code);
    Some(Faulty { input: right.with_mask(values), classes: &["broadcast_wrong_axis"], scene: right, meant })
}

fn query_causal(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Causal])?;
    right.left = true;
    right.given = Given::Ids;
    right.tokens_again(dice);
    right.code = Code::KeepBool;
    let meant = right.keep();
    let cells = Keep::from_fn(meant.dims(), |[b, _, i, j]| j <= i && right.real(b, i));
    differ(&right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes: &["broadcast_wrong_axis"],
        scene: right,
        meant,
    })
}

fn malformed(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Packed]);
    if right.batch > 1 || right.padding {
        return None;
    }
    right.documents_by = 0;
    let row = &right.segments.as_ref()?[0];
    let mut ends: Vec<i64> = (0..row.len()).filter(|&j| j == 0 || row[j] != row[j - 1]).map(|j| j as i64).collect();
    ends.push(row.len() as i64);
    match dice.of(0, 3) {
        0 => drop(ends.remove(0)),
        1 => drop(ends.pop()),
        2 => ends.push(row.len() as i64),
        _ => ends[0] = 1,
    }
    right.companions.push(("cu_seqlens".into(), Values::ints(&[ends.len()], ends).ok()?));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["document_boundary_off_by_one"], scene: right, meant })
}

fn mlm(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Bidirectional])?;
    right.context.insert("mlm_probability".into(), json!(0.15));
    let on_padding = dice.chance(50);
    let label = |b: usize, j: usize, dice: &mut Dice| -> i64 {
        match (right.real(b, j), dice.chance(20)) {
            (true, chosen) if right.ids[b][j] != right.eos_id && chosen => right.ids[b][j],
            (true, _) if right.ids[b][j] == right.eos_id && !on_padding => right.eos_id,
            (false, _) if on_padding => right.pad_id,
            _ => -100,
        }
    };
    let labels = (0..right.batch * right.k).map(|at| label(at / right.k, at % right.k, dice)).collect();
    with_labels(right, labels, dice, &["MLM_masks_padding_or_special"])
}

fn few_labels(dice: &mut Dice, n: usize, prompt: bool) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Causal]);
    (right.padding, right.left) = (false, false);
    right.lengths = vec![right.k; right.batch];
    right.tokens_again(dice);
    let labels: Vec<i64> = match prompt {
        true => {
            right.context.insert("prompt_len".into(), json!(right.k / 2));
            right.ids.concat()
        }
        false => (0..right.batch * right.k)
            .map(|at| if at / right.k == 0 { -100 } else { right.ids[at / right.k][at % right.k] })
            .collect(),
    };
    with_labels(right, labels, dice, &["loss_mask_missing"])
}

fn written(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::StaticCache]);
    right.given = Given::Nothing;
    let written = right.past + right.q;
    let flags = (0..right.k).map(|j| i64::from(j < written)).collect();
    right.companions.push(("kv_written".into(), Values::ints(&[right.k], flags).ok()?));
    let meant = right.keep();
    let cells = keep_of(&meant, |_| true);
    differ(&right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes: &["unwritten_cache_visible", "causal_dropped"],
        scene: right,
        meant,
    })
}

fn alibi(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Bidirectional]);
    right.declare_kind = true;
    right.given = Given::Ids;
    right.context.insert("bias".into(), json!("alibi"));
    right.code = Code::Additive(f64::NEG_INFINITY, Dtype::F32);
    let (meant, heads) = (right.keep(), 2);
    let (b, q, k) = (right.batch, right.q, right.k);
    let cells = (0..b * heads * q * k).map(|at| {
        let (j, head) = (at % k, at / (q * k) % heads);
        let seen = meant.get([at / (heads * q * k), 0, at / k % q, j]);
        if seen { j as f32 * 0.5f32.powi(head as i32 + 1) } else { f32::NEG_INFINITY }
    });
    let values = Values::floats(&[b, heads, q, k], cells.collect()).ok()?;
    Some(Faulty { input: right.with_mask(values), classes: &["relative_bias_with_padding"], scene: right, meant })
}

fn layers(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Sliding]);
    (right.padding, right.left) = (false, false);
    right.lengths = vec![right.k; right.batch];
    right.batch = 1;
    right.given = Given::Nothing;
    right.declare_kind = false;
    right.context.insert(
        "layer_types".into(),
        json!(["sliding_attention", "full_attention", "sliding_attention", "full_attention"]),
    );
    let mut open = right.clone();
    open.window = None;
    let planes = [right.keep(), open.keep()];
    let (q, k) = (right.q, right.k);
    let cells = (0..4 * q * k).map(|at| planes[(at / (q * k) + 1) % 2].get([0, 0, at / k % q, at % k])).collect();
    let meant = Keep::from_fn([4, 1, q, k], |[l, _, i, j]| planes[l % 2].get([0, 0, i, j]));
    let values = encode(&[4, 1, q, k], cells, Code::KeepBool);
    right.code = Code::KeepBool;
    let input = right.with_mask(values);
    let mut given = right.clone();
    (given.batch, given.lengths) = (4, vec![k; 4]);
    Some(Faulty { input, classes: &["window_missing_or_wrong_layer"], scene: given, meant })
}

fn flag(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Bidirectional, Family::Cross]);
    right.declare_kind = true;
    right.context.insert("is_causal".into(), json!(true));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["implicit_causal"], scene: right, meant })
}

fn weak_for_scores(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Causal, Family::Sliding]);
    right.code = Code::Additive(-1e4, Dtype::F32);
    right.context.insert("score_bound".into(), json!(dice.of(6000, 90000)));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["fill_value_wrong"], scene: right, meant })
}

fn nan_values(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Bidirectional])?;
    let width = 3;
    let real = |at: usize| right.real(at / (right.k * width), at / width % right.k);
    let values = (0..right.batch * right.k * width).map(|at| if real(at) { noise(dice) } else { f32::NAN }).collect();
    right.companions.push(("v".into(), Values::floats(&[right.batch, right.k, width], values).ok()?));
    let meant = right.keep();
    Some(Faulty {
        input: right.input(&meant, dice),
        classes: &["NaN_through_masked_KV", "fully_masked_row"],
        scene: right,
        meant,
    })
}

fn owners(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Cached]);
    (right.padding, right.left, right.given) = (false, false, Given::Nothing);
    right.lengths = vec![right.k; right.batch];
    let keys = (0..right.k).map(|j| i64::from(j < right.past)).collect();
    right.companions.push(("kv_seq_ids".into(), Values::ints(&[right.k], keys).ok()?));
    right.companions.push(("query_seq_ids".into(), Values::ints(&[right.q], vec![0; right.q]).ok()?));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["cross_request_contamination"], scene: right, meant })
}

fn times_tril(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Causal])?;
    // Left-padded; non-padding queries read all non-padding keys, as in a mask that is not causal.
    right.declare_kind = true;
    right.code = Code::Additive(f64::from(f32::MIN), Dtype::F32);
    let meant = right.keep();
    let cells = Keep::from_fn(meant.dims(), |[b, _, i, j]| j > i || right.real(b, j));
    differ(&right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes: &["causal_dropped", "causal_leak", "padding_unmasked_by_later_op", "mask_built_with_NaN_or_int_ops"],
        scene: right,
        meant,
    })
}

fn top_left_padded(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Cached])?;
    right.given = if dice.chance(50) { Given::Plane } else { Given::Ids };
    right.tokens_again(dice);
    let mut wrong = right.clone();
    wrong.stands = 0;
    faulty(&right, &wrong, dice, &["causal_alignment"])
}

fn two(
    dice: &mut Dice,
    n: usize,
    families: &[Family],
    classes: &'static [&'static str],
    change: &dyn Fn(&mut Scene, &mut Dice),
) -> Option<Faulty> {
    let mut right = scene(dice, n, families);
    right.declare_kind = true;
    if !right.padding && right.segments.is_none() {
        return None;
    }
    let mut wrong = right.clone();
    change(&mut wrong, dice);
    faulty(&right, &wrong, dice, classes)
}

fn inverted_and(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Family::Causal]);
    right.declare_kind = true;
    let mut wrong = right.clone();
    wrong.causal = Some(1);
    let meant = right.keep();
    let cells = keep_of(&wrong.keep(), |c| !c);
    differ(&right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes: &["inverted_polarity", "causal_leak", "causal_self_excluded"],
        scene: right,
        meant,
    })
}

fn pooled_last(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = padded(dice, n, &[Family::Causal, Family::Bidirectional])?;
    right.left = dice.chance(50);
    right.given = Given::Ids;
    right.tokens_again(dice);
    let width = 4;
    let hidden: Vec<f32> = (0..right.batch * right.k * width).map(|_| noise(dice)).collect();
    let (at, pooling) = if right.left { (0, "cls") } else { (right.k - 1, "last") };
    let pooled: Vec<f32> =
        (0..right.batch * width).map(|i| hidden[(i / width * right.k + at) * width + i % width]).collect();
    if dice.chance(50) {
        right.context.insert("pooling".into(), json!(pooling));
    }
    right.companions.push(("hidden".into(), Values::floats(&[right.batch, right.k, width], hidden).ok()?));
    right.companions.push(("pooled".into(), Values::floats(&[right.batch, width], pooled).ok()?));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty {
        input: right.input(&cells, dice),
        classes: &["pooling_includes_padding", "fully_masked_row"],
        scene: right,
        meant,
    })
}
