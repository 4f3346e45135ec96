//! Adds one known mistake to a correct scene.

use super::Dice;
use super::scene::{Code, Family, Given, PadRows, Scene, encode};
use noren_doctor::{Dtype, Input, Numbers, Values};
use noren_mask::Keep;
use serde_json::json;

/// A mask with one mistake, and the expected findings.
pub(crate) struct Faulty {
    pub(crate) input: Input,
    /// Classes that are accepted as the first finding.
    pub(crate) classes: &'static [&'static str],
    pub(crate) scene: Scene,
    /// The intended cells.
    pub(crate) meant: Keep,
}

pub(crate) type Plant = fn(&mut Dice, usize) -> Option<Faulty>;

/// Every mistake by name.
pub(crate) const FAULTS: &[(&str, Plant)] = &[
    ("inverted_polarity", inverted),
    ("inverted_polarity (padding)", inverted_padding),
    ("causal_leak", |d, n| causal(d, n, 1, &["causal_leak"])),
    ("causal_self_excluded", |d, n| causal(d, n, -1, &["causal_self_excluded"])),
    ("causal_alignment", alignment),
    ("double_mask_overflow", two_planes),
    ("double_mask_overflow (cast)", too_low),
    ("fill_value_wrong", fill),
    ("fully_masked_row", empty_rows),
    ("broadcast_wrong_axis", wrong_axis),
    ("rank_ambiguity", rank),
    ("float01_added", float01),
    ("mask_built_with_NaN", nan),
    ("mask_built_with_int_ops", int_not),
    ("implicit_causal", implicit_causal),
    ("causal_dropped", causal_dropped),
    ("padding_keys_visible", padding_visible),
    ("padding_keys_visible (keys)", padding_visible_keys),
    ("padding_side", other_side),
    ("position_ids", positions),
    ("stale_decode_mask", stale_decode),
    ("unwritten_cache_visible", unwritten),
    ("ring_buffer_misaligned", ring),
    ("sliding_window_off_by_one", |d, n| window(d, n, true)),
    ("window_missing", |d, n| window(d, n, false)),
    ("chunk_boundary", chunk),
    ("tree_mask", tree),
    ("cross_document", cross_document),
    ("cross_document (positions)", cross_document_positions),
    ("segment_ids_cast_to_bool", cast),
    ("document_boundary_off_by_one", borders),
    ("prefix_lm_or_block_wrong", prefix),
    ("padding_unmasked_by_later_op", later_op),
    ("cross_attention_mask", cross),
    ("head_batch_layout", heads_first),
    ("batch_row_wrong", row_zero),
    ("pad_equals_eos_holes", holes),
    ("stale_or_bucketed_mask", stale),
    ("boundary_label", boundary_label),
    ("EOS_never_learned", |d, n| labels(d, n, 0)),
    ("loss_mask_missing", |d, n| labels(d, n, 1)),
    ("label_shift", |d, n| labels(d, n, 2)),
    ("RL_completion_mask", completion),
    ("pooling_includes_padding", pooling),
    ("mask_after_softmax", |d, n| probabilities(d, n, 0)),
    ("multiplied_before_softmax", |d, n| probabilities(d, n, 1)),
    ("mask_ignored_by_backend", |d, n| probabilities(d, n, 2)),
    ("multi_hop_leak", multi_hop),
];

pub(crate) fn scene(dice: &mut Dice, n: usize, families: &[Family]) -> Scene {
    Scene::new(dice.pick(families), dice, n)
}

/// Returns the cells of `wrong` instead of those of `right`, if they differ in a row of a non-padding query.
pub(crate) fn faulty(
    right: &Scene,
    wrong: &Scene,
    dice: &mut Dice,
    classes: &'static [&'static str],
) -> Option<Faulty> {
    let (meant, cells) = (right.keep(), wrong.stored());
    differ(right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes,
        scene: right.clone(),
        meant,
    })
}

pub(crate) fn differ(right: &Scene, meant: &Keep, cells: &Keep) -> bool {
    let mut all = (0..right.batch).flat_map(|b| (0..right.q).map(move |i| (b, i)));
    all.any(|(b, i)| right.cares(b, i) && (0..right.k).any(|j| meant.get([b, 0, i, j]) != cells.get([b, 0, i, j])))
}

pub(crate) fn keep_of(cells: &Keep, test: impl Fn(bool) -> bool) -> Keep {
    Keep::from_fn(cells.dims(), |c| test(cells.get(c)))
}

use Family::{
    Bidirectional, Blocks, Cached, CachedSliding, Causal, Chunked, Cross, KeysBoth, KeysCausal, Packed,
    PackedBidirectional, Prefix, Ring, Sinks, Sliding, SlidingBoth, StaticCache, Tree,
};

fn inverted(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional, Packed, Sliding, Prefix, Cached, Cross]);
    right.pad_rows = PadRows::AsTheRule;
    if !right.padding && matches!(right.family, Bidirectional | Cross) {
        return None;
    }
    right.declare_kind |= !right.padding && !matches!(right.family, Causal);
    let meant = right.keep();
    let cells = keep_of(&meant, |c| !c);
    Some(Faulty { input: right.input(&cells, dice), classes: &["inverted_polarity"], scene: right, meant })
}

fn inverted_padding(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[KeysBoth, KeysCausal]);
    if !right.padding {
        return None;
    }
    let cells = keep_of(&right.plane(), |c| !c);
    let meant = right.keep();
    Some(Faulty { input: right.input(&cells, dice), classes: &["inverted_polarity"], scene: right, meant })
}

fn causal(dice: &mut Dice, n: usize, by: i64, classes: &'static [&'static str]) -> Option<Faulty> {
    let right = scene(dice, n, &[Causal, Packed, Sliding, Cached, Chunked]);
    let mut wrong = right.clone();
    wrong.causal = Some(by);
    faulty(&right, &wrong, dice, classes)
}

fn alignment(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Cached, CachedSliding]);
    let mut wrong = right.clone();
    wrong.stands = 0;
    faulty(&right, &wrong, dice, &["causal_alignment"])
}

fn two_planes(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal]);
    if !right.padding {
        return None;
    }
    right.left = true;
    right.tokens_again(dice);
    let half = dice.chance(50);
    let (fill, dtype) = if half { (-65504.0, Dtype::F16) } else { (f64::from(f32::MIN), Dtype::F32) };
    right.code = Code::Additive(fill, dtype);
    let meant = right.keep();
    let mut both = false;
    let cells: Vec<f32> = (0..right.batch * right.q * right.k)
        .map(|at| {
            let (b, i, j) = (at / right.k / right.q, at / right.k % right.q, at % right.k);
            match (j > i, !right.real(b, j)) {
                (false, false) => 0.0,
                (true, true) => {
                    both = true;
                    f32::NEG_INFINITY
                }
                _ => fill as f32,
            }
        })
        .collect();
    let values = Values::new(&[right.batch, 1, right.q, right.k], dtype, Numbers::Single(cells)).ok()?;
    both.then(|| Faulty { input: right.with_mask(values), classes: &["double_mask_overflow"], scene: right, meant })
}

fn too_low(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Sliding, Packed]);
    let fill = dice.pick(&[-1e9, f64::from(f32::MIN)]);
    right.code = Code::Additive(fill, Dtype::F32);
    right.context.insert("compute_dtype".into(), json!("float16"));
    let meant = right.keep();
    let cells = right.stored();
    Some(Faulty {
        input: right.input(&cells, dice),
        classes: &["double_mask_overflow", "fill_value_wrong"],
        scene: right,
        meant,
    })
}

fn fill(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional, Sliding, Packed, Cached, Prefix]);
    if right.family == Bidirectional && !right.padding {
        return None;
    }
    let fill = dice.pick(&[1e-9, -1e-9, 1e9, -1.0, -10.0, -50.0, f64::INFINITY]);
    right.pad_rows = PadRows::AsTheRule;
    right.code = Code::Additive(fill, Dtype::F32);
    let meant = right.keep();
    (meant.count() < meant.cells().count() as u64).then(|| {
        let input = right.input(&meant, dice);
        Faulty { input, classes: &["fill_value_wrong"], scene: right, meant }
    })
}

fn empty_rows(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Sliding]);
    if !right.padding {
        return None;
    }
    right.left = true;
    right.tokens_again(dice);
    right.pad_rows = PadRows::AsTheRule;
    right.code = Code::Additive(f64::NEG_INFINITY, dice.pick(&[Dtype::F32, Dtype::F16]));
    let meant = right.keep();
    Some(Faulty { input: right.input(&meant, dice), classes: &["fully_masked_row"], scene: right, meant })
}

fn wrong_axis(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Bidirectional, SlidingBoth]);
    if !right.padding {
        return None;
    }
    right.code = Code::KeepBool;
    let mut open = right.clone();
    open.padding = false;
    let meant = right.keep();
    let cells = Keep::from_fn(meant.dims(), |[b, _, i, j]| open.cell(b, i, j) && right.real(b, i));
    Some(Faulty { input: right.input(&cells, dice), classes: &["broadcast_wrong_axis"], scene: right, meant })
}

fn rank(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n.min(16), &[Bidirectional]);
    if !right.padding {
        return None;
    }
    right.batch = right.k;
    right.lengths = (0..right.k).map(|_| dice.of(right.k / 2, right.k)).collect();
    right.lengths[0] = right.k;
    right.tokens_again(dice);
    right.code = Code::KeepBool;
    let plane = right.plane();
    let values = encode(&[right.k, right.k], plane.cells().collect(), Code::KeepBool);
    let meant = right.keep();
    Some(Faulty { input: right.with_mask(values), classes: &["rank_ambiguity"], scene: right, meant })
}

fn float01(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional, Packed, Sliding]);
    if right.family == Bidirectional && !right.padding {
        return None;
    }
    right.code = Code::Additive(0.0, Dtype::F32);
    right.pad_rows = PadRows::AsTheRule;
    let meant = right.keep();
    let cells: Vec<f32> = meant.cells().map(|c| f32::from(u8::from(c))).collect();
    let values = Values::floats(&meant.dims(), cells).ok()?;
    if dice.chance(50) {
        right.context.insert("api".into(), json!("sdpa"));
    }
    Some(Faulty { input: right.with_mask(values), classes: &["float01_added"], scene: right, meant })
}

fn nan(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional, Sliding]);
    if right.family == Bidirectional && !right.padding {
        return None;
    }
    right.code = Code::Additive(f64::NEG_INFINITY, Dtype::F32);
    let meant = right.keep();
    let cells: Vec<f32> = meant.cells().map(|c| if c { f32::NAN } else { f32::NEG_INFINITY }).collect();
    let values = Values::floats(&meant.dims(), cells).ok()?;
    Some(Faulty { input: right.with_mask(values), classes: &["mask_built_with_NaN_or_int_ops"], scene: right, meant })
}

fn int_not(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[KeysBoth, KeysCausal]);
    if !right.padding {
        return None;
    }
    right.code = Code::KeepInt;
    let plane = right.plane();
    let byte = dice.chance(40);
    let cells: Vec<i64> = plane.cells().map(|c| if byte { 254 + i64::from(c) } else { -2 + i64::from(c) }).collect();
    let dtype = if byte { Dtype::U8 } else { Dtype::I64 };
    let values = Values::new(&[right.batch, right.k], dtype, Numbers::Int(cells)).ok()?;
    let meant = right.keep();
    Some(Faulty { input: right.with_mask(values), classes: &["mask_built_with_NaN_or_int_ops"], scene: right, meant })
}

fn implicit_causal(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Bidirectional, PackedBidirectional, SlidingBoth]);
    right.declare_kind = true;
    let mut wrong = right.clone();
    wrong.causal = Some(0);
    faulty(&right, &wrong, dice, &["implicit_causal"])
}

fn causal_dropped(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Cached, Packed]);
    right.declare_kind = true;
    let mut wrong = right.clone();
    wrong.causal = None;
    faulty(&right, &wrong, dice, &["causal_dropped"])
}

fn padding_visible(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Causal, Bidirectional, Sliding, SlidingBoth, Prefix]);
    let mut wrong = right.clone();
    wrong.padding = false;
    faulty(&right, &wrong, dice, &["padding_keys_visible"])
}

fn padding_visible_keys(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[KeysBoth, KeysCausal]);
    let mut wrong = right.clone();
    wrong.padding = false;
    let meant = right.keep();
    if !right.padding || !differ(&right, &meant, &wrong.keep()) {
        return None;
    }
    let cells = keep_of(&right.plane(), |_| true);
    Some(Faulty { input: right.input(&cells, dice), classes: &["padding_keys_visible"], scene: right, meant })
}

fn other_side(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[KeysBoth]);
    let mut wrong = right.clone();
    wrong.left = !right.left;
    let meant = right.keep();
    if !right.padding || !differ(&right, &meant, &wrong.keep()) {
        return None;
    }
    Some(Faulty { input: right.input(&wrong.plane(), dice), classes: &["padding_side"], scene: right, meant })
}

fn positions(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal]);
    if !right.padding {
        return None;
    }
    right.left = true;
    right.tokens_again(dice);
    let rows: Vec<i64> = (0..right.batch).flat_map(|_| 0..right.k as i64).collect();
    right.companions.push(("position_ids".into(), Values::ints(&[right.batch, right.k], rows).ok()?));
    if dice.chance(50) {
        right.context.insert("position_encoding".into(), json!("learned"));
    }
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["position_ids"], scene: right, meant })
}

fn stale_decode(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Cached]);
    right.declare_kind = true;
    right.given = Given::Ids;
    right.code = Code::KeepInt;
    right.context.insert("api".into(), json!("transformers.attention_mask"));
    right.context.insert("role".into(), json!("key_padding"));
    let short = dice.chance(50);
    let (b, k, past) = (right.batch, right.k, right.past);
    let values = match short {
        true => Values::ints(&[b, past], vec![1; b * past]),
        false => Values::ints(&[b, k], (0..b * k).map(|i| i64::from(i % k < past)).collect()),
    };
    let meant = right.keep();
    Some(Faulty { input: right.with_mask(values.ok()?), classes: &["stale_decode_mask"], scene: right, meant })
}

fn unwritten(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[StaticCache]);
    right.given = Given::Nothing;
    let (meant, written) = (right.keep(), right.past + right.q);
    let cells = Keep::from_fn(meant.dims(), |[b, h, i, j]| meant.get([b, h, i, j]) || j >= written);
    differ(&right, &meant, &cells).then(|| Faulty {
        input: right.input(&cells, dice),
        classes: &["unwritten_cache_visible"],
        scene: right,
        meant,
    })
}

fn ring(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Ring]);
    right.window = Some(dice.of(2, right.k - 2) as i64);
    let mut wrong = right.clone();
    wrong.slots = None;
    wrong.stands = right.k as i64 - 1;
    faulty(&right, &wrong, dice, &["ring_buffer_misaligned"])
}

fn window(dice: &mut Dice, n: usize, by_one: bool) -> Option<Faulty> {
    let right = scene(
        dice,
        n,
        if by_one { &[Sliding, CachedSliding, SlidingBoth, Sinks] } else { &[Sliding, CachedSliding, SlidingBoth] },
    );
    let mut wrong = right.clone();
    let width = right.window?;
    wrong.window = if by_one { Some(width + if dice.chance(60) { 1 } else { -1 }) } else { None };
    if wrong.window.is_some_and(|w| w < 1) {
        return None;
    }
    // A window of at least all keys hides nothing.
    let gone = wrong.window.is_some_and(|w| w as usize >= right.k);
    if gone {
        return None;
    }
    faulty(
        &right,
        &wrong,
        dice,
        if by_one { &["sliding_window_off_by_one"] } else { &["window_missing_or_wrong_layer"] },
    )
}

fn chunk(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Chunked]);
    if !right.padding {
        return None;
    }
    right.left = true;
    right.tokens_again(dice);
    let mut wrong = right.clone();
    wrong.chunk = right.chunk.map(|(c, _)| (c, false));
    faulty(&right, &wrong, dice, &["chunk_boundary"])
}

fn tree(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Tree]);
    let mut wrong = right.clone();
    wrong.parents = None;
    wrong.stands = (right.k - right.q) as i64;
    faulty(&right, &wrong, dice, &["tree_mask"])
}

fn cross_document(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Packed, PackedBidirectional]);
    let mut wrong = right.clone();
    let flat = right.segments.as_ref()?.iter().map(|r| r.iter().map(|s| i64::from(*s > 0)).collect()).collect();
    wrong.segments = Some(flat);
    faulty(&right, &wrong, dice, &["cross_document"])
}

pub(crate) fn position_rows(segments: &[Vec<i64>]) -> Vec<i64> {
    let mut out = Vec::new();
    for row in segments {
        let mut at = 0;
        for (j, s) in row.iter().enumerate() {
            at = if j > 0 && row[j - 1] == *s && *s != 0 { at + 1 } else { 0 };
            out.push(at);
        }
    }
    out
}

fn cross_document_positions(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Packed]);
    let segments = right.segments.clone()?;
    let mut wrong = right.clone();
    wrong.segments = Some(segments.iter().map(|r| r.iter().map(|s| i64::from(*s > 0)).collect()).collect());
    let (meant, cells) = (right.keep(), wrong.stored());
    if !differ(&right, &meant, &cells) {
        return None;
    }
    let mut given = right.clone();
    given
        .companions
        .push(("position_ids".into(), Values::ints(&[right.batch, right.k], position_rows(&segments)).ok()?));
    given.segments = None;
    let input = given.input(&cells, dice);
    Some(Faulty { input, classes: &["cross_document"], scene: right, meant })
}

fn cast(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Packed]);
    let segments = right.segments.clone()?;
    if segments.iter().flatten().all(|s| *s < 2) {
        return None;
    }
    right.code = Code::KeepInt;
    right.context.insert("role".into(), json!("key_padding"));
    let values = Values::ints(&[right.batch, right.k], segments.concat()).ok()?;
    let meant = right.keep();
    let mut given = right.clone();
    if dice.chance(50) {
        given.segments = None;
    }
    Some(Faulty { input: given.with_mask(values), classes: &["segment_ids_cast_to_bool"], scene: right, meant })
}

fn borders(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Packed, PackedBidirectional]);
    let early = dice.chance(60);
    let mut wrong = right.clone();
    let moved = |r: &Vec<i64>| -> Vec<i64> {
        let k = r.len();
        (0..k)
            .map(|j| match (r[j], early) {
                (0, _) => 0,
                (own, true) => match r.get(j + 1) {
                    Some(0) | None => own + 100,
                    Some(next) => *next,
                },
                (own, false) => {
                    if j == 0 {
                        own
                    } else {
                        r[j - 1]
                    }
                }
            })
            .collect()
    };
    wrong.segments = Some(right.segments.as_ref()?.iter().map(moved).collect());
    faulty(&right, &wrong, dice, &["document_boundary_off_by_one"])
}

fn prefix(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Prefix, Blocks]);
    right.declare_kind = true;
    let mut wrong = right.clone();
    wrong.blocks = None;
    if dice.chance(50) {
        wrong.prefix = None;
    } else if right.prefix.is_some() {
        wrong.prefix = Some(vec![right.k]);
    }
    faulty(&right, &wrong, dice, &["prefix_lm_or_block_wrong", "causal_dropped"])
}

fn later_op(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Prefix, Blocks]);
    if !right.padding {
        return None;
    }
    right.left = right.prefix.is_some();
    right.tokens_again(dice);
    if let Some(blocks) = &mut right.blocks {
        for (b, row) in blocks.iter_mut().enumerate() {
            let end = (right.lengths[b] + 2).min(right.k);
            row.fill(-1);
            row[right.lengths[b].saturating_sub(3)..end].fill(0);
        }
    }
    if right.left {
        let first = right.k - right.lengths.iter().min()?;
        right.prefix = Some(vec![first + 2]);
        right.context.insert("prefix_from".into(), json!("slot"));
    }
    let mut wrong = right.clone();
    wrong.padding_first = true;
    faulty(&right, &wrong, dice, &["padding_unmasked_by_later_op", "padding_keys_visible"])
}

fn cross(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Cross]);
    right.declare_kind = true;
    let mut wrong = right.clone();
    match dice.of(0, 2) {
        0 => wrong.padding = false,
        1 => wrong.causal = Some(0),
        _ => wrong.lengths = right.q_lengths.iter().map(|&l| l.min(right.k)).collect(),
    }
    faulty(&right, &wrong, dice, &["cross_attention_mask"])
}

fn heads_first(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional]);
    if !right.padding || right.batch < 2 {
        return None;
    }
    right.heads = dice.of(2, 4);
    right.code = dice.pick(&[Code::KeepBool, Code::Additive(f64::from(f32::MIN), Dtype::F32)]);
    right.context.insert("heads".into(), json!(right.heads));
    let stored = right.stored();
    let (b, h, q, k) = (right.batch, right.heads, right.q, right.k);
    let cells = (0..b * h * q * k).map(|at| stored.get([at / (q * k) % b, 0, at / k % q, at % k])).collect();
    let values = encode(&[b * h, q, k], cells, right.code);
    let meant = right.keep();
    // Head `h` of batch row `b` has the mask of batch row `(b * heads + h) % batch`.
    let moved = Keep::from_fn(meant.dims(), |[n, _, i, j]| stored.get([(n * h + h - 1) % b, 0, i, j]));
    let moved_first = Keep::from_fn(meant.dims(), |[n, _, i, j]| stored.get([n * h % b, 0, i, j]));
    (differ(&right, &meant, &moved) || differ(&right, &meant, &moved_first)).then(|| Faulty {
        input: right.with_mask(values),
        classes: &["head_batch_layout"],
        scene: right,
        meant,
    })
}

fn row_zero(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional, Packed, Sliding]);
    if right.batch < 2 || right.segments.is_none() && (!right.padding || right.lengths[0] == right.k) {
        return None;
    }
    right.given = Given::Ids;
    let mut wrong = right.clone();
    wrong.lengths = vec![right.lengths[0]; right.batch];
    wrong.segments = right.segments.as_ref().map(|s| vec![s[0].clone(); right.batch]);
    faulty(&right, &wrong, dice, &["batch_row_wrong"])
}

fn holes(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[KeysCausal, KeysBoth]);
    right.given = Given::Ids;
    right.pad_id = right.eos_id;
    right.tokens_again(dice);
    let eos = right.eos_id;
    for b in 0..right.batch {
        let real: Vec<usize> = (0..right.k).filter(|&j| right.real(b, j)).collect();
        right.ids[b][real[real.len() / 2]] = eos;
    }
    let mut context = right.context.clone();
    context.insert("eos_token_id".into(), json!(eos));
    right.context = context;
    let lengths: Vec<i64> = right.lengths.iter().map(|&l| l as i64).collect();
    right.companions.push(("lengths".into(), Values::ints(&[right.batch], lengths).ok()?));
    let cells = Keep::from_fn([right.batch, 1, 1, right.k], |[b, _, _, j]| right.ids[b][j] != eos);
    let meant = right.keep();
    Some(Faulty { input: right.input(&cells, dice), classes: &["pad_equals_eos_holes"], scene: right, meant })
}

fn stale(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[KeysBoth, Bidirectional]);
    if !right.padding {
        return None;
    }
    let mut wrong = right.clone();
    wrong.lengths = right.lengths.iter().map(|_| dice.of(right.k / 2, right.k)).collect();
    let meant = right.keep();
    let off = (0..right.batch).any(|b| wrong.lengths[b] < right.lengths[b]);
    let swapped = wrong.lengths.iter().all(|l| right.lengths.contains(l));
    if !off || swapped || !differ(&right, &meant, &wrong.keep()) {
        return None;
    }
    let keys = right.family == KeysBoth;
    let input = right.input(&if keys { wrong.plane() } else { wrong.stored() }, dice);
    Some(Faulty { input, classes: &["stale_or_bucketed_mask"], scene: right, meant })
}

/// Returns a correct mask with labels.
pub(crate) fn with_labels(
    mut right: Scene,
    labels: Vec<i64>,
    dice: &mut Dice,
    classes: &'static [&'static str],
) -> Option<Faulty> {
    right.given = Given::Ids;
    right.companions.push(("labels".into(), Values::ints(&[right.batch, right.k], labels).ok()?));
    right.context.insert("eos_token_id".into(), json!(right.eos_id));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes, scene: right, meant })
}

fn boundary_label(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let right = scene(dice, n, &[Packed]);
    let segments = right.segments.clone()?;
    let several = segments.iter().any(|s| s.iter().any(|x| *x > 1));
    let label = |b: usize, j: usize| -> i64 {
        match segments[b].get(j + 1) {
            Some(&next) if next != 0 && segments[b][j] != 0 => right.ids[b][j + 1],
            _ => -100,
        }
    };
    let labels = (0..right.batch * right.k).map(|at| label(at / right.k, at % right.k)).collect();
    if !several {
        return None;
    }
    with_labels(right, labels, dice, &["boundary_label"])
}

fn labels(dice: &mut Dice, n: usize, kind: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal]);
    right.declare_kind = true;
    if kind == 1 && !right.padding {
        return None;
    }
    let eos = right.eos_id;
    let label = |b: usize, j: usize| -> i64 {
        let (real, id) = (right.real(b, j), right.ids[b][j]);
        match kind {
            0 => {
                if real && id != eos {
                    id
                } else {
                    -100
                }
            }
            1 => id,
            _ => {
                if real && right.real(b, (j + 1).min(right.k - 1)) && j + 1 < right.k {
                    right.ids[b][j + 1]
                } else {
                    -100
                }
            }
        }
    };
    let labels = (0..right.batch * right.k).map(|at| label(at / right.k, at % right.k)).collect();
    let classes: &'static [&'static str] = [&["EOS_never_learned"], &["loss_mask_missing"], &["label_shift"]][kind];
    with_labels(right, labels, dice, classes)
}

fn completion(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal]);
    right.padding = false;
    right.lengths = vec![right.k; right.batch];
    right.given = Given::Ids;
    right.tokens_again(dice);
    let end = dice.of(2, 6);
    let ids: Vec<i64> = (0..right.batch * 9)
        .map(|at| {
            if at % 9 == end {
                right.eos_id
            } else if at % 9 < end {
                50
            } else {
                0
            }
        })
        .collect();
    right.companions.push(("completion_ids".into(), Values::ints(&[right.batch, 9], ids).ok()?));
    right.companions.push(("completion_mask".into(), Values::ints(&[right.batch, 9], vec![1; right.batch * 9]).ok()?));
    right.context.insert("eos_token_id".into(), json!(right.eos_id));
    let (meant, cells) = (right.keep(), right.stored());
    Some(Faulty { input: right.input(&cells, dice), classes: &["RL_completion_mask"], scene: right, meant })
}

pub(crate) fn noise(dice: &mut Dice) -> f32 {
    (dice.next() % 2001) as f32 / 1000.0 - 1.0
}

fn pooling(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[KeysBoth, Bidirectional]);
    if !right.padding {
        return None;
    }
    right.given = Given::Ids;
    let width = 4;
    let hidden: Vec<f32> = (0..right.batch * right.k * width).map(|_| noise(dice)).collect();
    let at = |b: usize, j: usize, d: usize| hidden[(b * right.k + j) * width + d];
    let pooled: Vec<f32> = (0..right.batch * width)
        .map(|i| (0..right.k).map(|j| at(i / width, j, i % width)).sum::<f32>() / right.k as f32)
        .collect();
    right.companions.push(("hidden".into(), Values::floats(&[right.batch, right.k, width], hidden.clone()).ok()?));
    right.companions.push(("pooled".into(), Values::floats(&[right.batch, width], pooled).ok()?));
    let keys = right.family == KeysBoth;
    let meant = right.keep();
    let cells = if keys { right.plane() } else { right.stored() };
    Some(Faulty { input: right.input(&cells, dice), classes: &["pooling_includes_padding"], scene: right, meant })
}

fn probabilities(dice: &mut Dice, n: usize, kind: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal, Bidirectional]);
    if right.family == Bidirectional && !right.padding {
        return None;
    }
    let (meant, cells) = (right.keep(), right.stored());
    let (b, q, k) = (right.batch, right.q, right.k);
    let mut probabilities = Vec::with_capacity(b * q * k);
    for at in 0..b * q {
        let scores: Vec<f32> = (0..k).map(|_| 2.0 * noise(dice)).collect();
        let seen = |j: usize| cells.get([at / q, 0, at % q, j]);
        let shown: Vec<f32> = (0..k).map(|j| if kind == 1 && !seen(j) { 0.0 } else { scores[j] }).collect();
        let sum: f32 = shown.iter().map(|s| s.exp()).sum();
        probabilities.extend((0..k).map(|j| if kind == 0 && !seen(j) { 0.0 } else { shown[j].exp() / sum }));
    }
    right.companions.push(("probabilities".into(), Values::floats(&[b, 1, q, k], probabilities).ok()?));
    let class: &'static [&'static str] =
        [&["mask_after_softmax"], &["multiplied_before_softmax"], &["mask_ignored_by_backend"]][kind];
    Some(Faulty { input: right.input(&cells, dice), classes: class, scene: right, meant })
}

fn multi_hop(dice: &mut Dice, n: usize) -> Option<Faulty> {
    let mut right = scene(dice, n, &[Causal]);
    (right.padding, right.left) = (false, false);
    right.lengths = vec![right.k; right.batch];
    right.given = Given::Nothing;
    let (secret, output) = (dice.of(0, 2), dice.of(4, right.k - 1));
    right.context.insert("redactions".into(), json!([{ "keys": [secret], "queries": [output] }]));
    right.context.insert("layers".into(), json!(dice.of(2, 6)));
    let open = right.keep();
    let cells = Keep::from_fn(open.dims(), |[b, h, i, j]| open.get([b, h, i, j]) && (i, j) != (output, secret));
    let meant = Keep::from_fn(open.dims(), |[b, h, i, j]| open.get([b, h, i, j]) && (j != secret || i == secret));
    Some(Faulty { input: right.input(&cells, dice), classes: &["multi_hop_leak"], scene: right, meant })
}

impl Scene {
    /// Replaces the token ids to fit changed lengths.
    pub(crate) fn tokens_again(&mut self, dice: &mut Dice) {
        self.ids = (0..self.batch)
            .map(|b| (0..self.k).map(|j| if self.real(b, j) { dice.of(5, 99) as i64 } else { self.pad_id }).collect())
            .collect();
        for b in 0..self.batch {
            if let Some(last) = (0..self.k).rev().find(|&j| self.real(b, j)) {
                self.ids[b][last] = self.eos_id;
            }
        }
    }
}
