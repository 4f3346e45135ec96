//! The answers for the cost view: the predicted cost of a mask on this machine, and the growth of the cost with the
//! number of tokens.

use super::number::number;
use crate::request::call::{Call, Numbers, Speeds};
use crate::request::problem::{Problem, Result};
use crate::request::scene::{MOST_LEN, Scene, facts, parse, resolve};
use crate::request::state::{Answer, State, json};
use noren::{Dtype, Element, Inputs, Options, View, attention, bf16, f16};
use noren_input::request::bind;
use noren_mask::{Facts, Plan, PlanOptions, Shape, SpanKind, atoms};
use serde_json::{Value, json as object};
use std::time::{Duration, Instant};

/// The number of query rows per tile in the plans of the measurement of this machine's speed.
const BLOCK_Q: u32 = 96;
/// The maximum number of cells in mixed spans (parts of the plan with allowed and denied cells) for which the answer
/// has the exact number of allowed cells. Above this maximum, the answer has a lower and an upper bound instead. For
/// each point of a cost curve, the maximum is 1/64 of this number.
const MOST_COUNTED: u128 = 1 << 31;
/// The powers of two of the lengths at which the cost of a mask is predicted.
const LENGTHS: std::ops::RangeInclusive<usize> = 5..=20;
/// The maximum time for a cost curve. After this time, the costs of the remaining lengths are left out.
const LONGEST: Duration = Duration::from_secs(4);
/// The number of tokens of the masks with which this machine's speed is measured.
const MEASURED: usize = 2048;

/// Measures the time of attention without a mask and with a causal mask, for this head dimension and data type. Returns
/// the speeds of this machine, from which costs are predicted.
pub(crate) fn calibrate(numbers: Numbers) -> Answer {
    match numbers.dtype.parse().map_err(failed)? {
        Dtype::F32 => measured(numbers, |x| x),
        Dtype::Bf16 => measured(numbers, bf16::from_f32),
        Dtype::F16 => measured(numbers, f16::from_f32),
    }
}

/// Measures the times for the data type `T`; `make` converts a number to this type.
fn measured<T: Element>(numbers: Numbers, make: impl Fn(f32) -> T) -> Answer {
    let dim = numbers.head_dim;
    let values: Vec<T> = (0..2 * MEASURED * dim).map(|i| make(((i * 37 % 101) as f32 - 50.0) / 50.0)).collect();
    let time = |len: usize, causal: bool| -> Result<(f64, Cells)> {
        let view = View::new(&values[..2 * len * dim], [1, 2, len, dim]).map_err(failed)?;
        let mask = if causal { atoms::causal() } else { atoms::full() };
        let bound = mask.bind(&Shape::square(len).heads(2), &Facts::new())?;
        let plan = bound.plan_with(&PlanOptions { block_q: BLOCK_Q, ..PlanOptions::default() });
        let mut times = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            attention(&Inputs { q: view, k: view, v: view }, &plan, &Options::default()).map_err(failed)?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok((times[1], Cells::of(&plan)))
    };
    let (start, _) = time(1, false)?;
    let (seconds, cells) = time(MEASURED, false)?;
    let full = (seconds - start).max(1e-9) / cells.full as f64;
    let (seconds, cells) = time(MEASURED, true)?;
    let mixed = ((seconds - start - full * cells.full as f64) / cells.mixed as f64).clamp(full, 8.0 * full);
    // One cell takes two dot products of `dim` multiplications and additions each.
    let speed = 4.0 * dim as f64 / full / 1e9;
    let machine =
        format!("{}, {} threads, {speed:.0} GFLOP/s", noren::machine::processor(), rayon::current_num_threads());
    json(&Speeds { full, mixed, start, machine, numbers })
}

fn failed(error: noren::Error) -> Problem {
    Problem::status(500, error.to_string())
}

/// The numbers of cells that a kernel computes, separately for full spans (ranges of keys in which all cells are
/// allowed) and for mixed spans (ranges of keys with allowed and denied cells).
#[derive(Clone, Copy, Default)]
struct Cells {
    full: u128,
    mixed: u128,
}

impl Cells {
    /// Returns the numbers of computed cells in full and in mixed spans of the plan, one element for each pattern. A
    /// pattern is a group of batch rows and heads with equal cells.
    fn by_pattern(plan: &Plan) -> Vec<Self> {
        plan.patterns()
            .iter()
            .map(|pattern| {
                let mut cells = Cells::default();
                for tile in pattern.tiles() {
                    for span in tile.spans {
                        let count = u128::from(tile.rows()) * u128::from(span.end - span.start);
                        match span.kind {
                            SpanKind::Full => cells.full += count,
                            SpanKind::Mixed => cells.mixed += count,
                        }
                    }
                }
                cells
            })
            .collect()
    }

    fn of(plan: &Plan) -> Self {
        let of_pattern = Self::by_pattern(plan);
        let shape = plan.shape();
        let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
        pairs.fold(Cells::default(), |all, (b, h)| {
            let one = of_pattern[plan.pattern_of(b, h)];
            Cells { full: all.full + one.full, mixed: all.mixed + one.mixed }
        })
    }

    fn seconds(&self, speeds: &Speeds) -> f64 {
        speeds.start + self.full as f64 * speeds.full + self.mixed as f64 * speeds.mixed
    }
}

/// Returns the number of cells in mixed spans (the parts of a plan with allowed and denied cells), each of which must
/// be tested to count the allowed cells. Cells that are equal in several batch rows and heads count once.
fn undecided(plan: &Plan) -> u128 {
    Cells::by_pattern(plan).iter().map(|cells| cells.mixed).sum()
}

/// Returns the size in bytes of a mask array with one byte per cell. The cells of several batch rows and heads count
/// once if they are equal.
fn dense_bytes(plan: &Plan) -> u128 {
    let shape = plan.shape();
    plan.patterns().len() as u128 * shape.q_len() as u128 * shape.kv_len() as u128
}

/// Returns the predicted cost of a plan as JSON. `cells` has the numbers of computed cells over all batch rows and
/// heads.
fn predicted(plan: &Plan, cells: Cells, speeds: &Speeds) -> Value {
    let all = plan.shape().cells();
    object!({
        "cells": all.to_string(),
        "computed": (cells.full + cells.mixed).to_string(),
        "plan_bytes": plan.bytes(),
        "dense_bytes": dense_bytes(plan).to_string(),
        "planning_seconds": plan.planning_time().as_secs_f64(),
        "seconds": cells.seconds(speeds) + plan.planning_time().as_secs_f64(),
        "dense_seconds": Cells { full: all, mixed: 0 }.seconds(speeds),
        "mixed_share": cells.mixed as f64 / (cells.full + cells.mixed).max(1) as f64,
        "mixed_cost": speeds.mixed / speeds.full,
        "head_dim": speeds.numbers.head_dim,
        "dtype": speeds.numbers.dtype,
        "machine": speeds.machine,
    })
}

fn speeds(call: &Call) -> Result<&Speeds> {
    call.speeds.as_ref().ok_or_else(|| Problem::status(500, "the speed of this machine is not in the call"))
}

/// Returns the predicted cost of the mask `id` on this machine.
pub(crate) fn cost(state: &mut State, call: &Call) -> Answer {
    let (known, speeds) = (state.mask(call.id())?, speeds(call)?);
    let plan = known.plan();
    let cells = Cells::of(plan);
    let mut value = predicted(plan, cells, speeds);
    let exact = undecided(plan) <= MOST_COUNTED;
    value["exact"] = exact.into();
    if exact {
        let stats = plan.stats();
        value["allowed"] = stats.allowed.to_string().into();
        value["density"] = stats.density.into();
        value["computed_per_allowed"] = stats.computed_per_allowed.into();
        value["empty_rows"] = number(stats.empty_rows);
        value["full_tiles"] = stats.full_tiles.to_string().into();
        value["mixed_tiles"] = stats.mixed_tiles.to_string().into();
        value["empty_tiles"] = stats.empty_tiles.to_string().into();
        value["reordered"] = stats.reordered.map(|r| r.how.join(", ")).into();
    } else {
        value["allowed_low"] = cells.full.to_string().into();
        value["allowed_high"] = (cells.full + cells.mixed).to_string().into();
    }
    json(&value)
}

/// Returns the predicted cost of a mask at several lengths. `body` is a JSON object with a mask, its shape and facts,
/// and optionally a list of lengths.
pub(crate) fn curve(call: &Call, body: &[u8]) -> Answer {
    let speeds = speeds(call)?;
    let scene: Scene = serde_json::from_slice(body)?;
    let spec = parse(&scene.mask, scene.layer)?;
    let (facts, known) = facts(scene.facts.as_deref(), std::slice::from_ref(&spec))?;
    let (own, _) = resolve(&scene.shape, &known)?;
    let (mut points, mut notes) = (Vec::new(), Vec::new());
    let (q_len, kv_len) = (own.q_len(), own.kv_len());
    let past = kv_len as i64 - q_len as i64;
    let decoding = past > 0 && (0..own.batch_len()).all(|b| own.query_offset(b) == past);
    if decoding {
        notes.push(format!("the cost at each length is the cost of {q_len} new queries; the other tokens of this length are in the cache"));
    } else if q_len != kv_len {
        notes.push(
            "at each length, the number of queries is in proportion to the number of keys, as in the given shape"
                .to_string(),
        );
    }
    let begun = Instant::now();
    for len in LENGTHS.map(|power| 1usize << power) {
        if begun.elapsed() > LONGEST {
            notes.push(format!("lengths of {len} and more tokens are left out, because planning would take too long"));
            break;
        }
        let mut shape = scene.shape.clone();
        (shape.len, shape.q, shape.kv, shape.past, shape.new) = (None, None, None, None, None);
        shape.batch = Some(own.batch_len());
        if decoding {
            shape.query_offset = Vec::new();
            (shape.past, shape.new) = (Some(len.saturating_sub(q_len)), Some(q_len.min(len)));
        } else {
            let queries = (q_len as u128 * len as u128 / kv_len.max(1) as u128) as usize;
            (shape.q, shape.kv) = (Some(queries.clamp(1, MOST_LEN)), Some(len));
            shape.query_offset = (0..own.batch_len()).map(|b| own.query_offset(b)).collect();
        }
        let (facts, note) = stretched(&facts, kv_len, len);
        if let Some(note) = note.filter(|note| !notes.contains(note)) {
            notes.push(note);
        }
        match bind(vec![spec.clone()], &shape, &facts, &known) {
            Ok(bound) => {
                let plan = bound.masks[0].plan();
                let cells = Cells::of(&plan);
                let mut point = predicted(&plan, cells, speeds);
                point["len"] = len.into();
                point["allowed"] = match undecided(&plan) < MOST_COUNTED / 64 {
                    true => plan.stats().allowed.to_string().into(),
                    false => Value::Null,
                };
                points.push(point);
            }
            Err(error) => {
                notes.push(format!("the curve has no point at length {len}: {error}"));
            }
        }
    }
    json(&object!({ "points": points, "notes": notes, "machine": speeds.machine, "head_dim": speeds.numbers.head_dim }))
}

/// Converts facts for `own` tokens to facts for `len` tokens: repeats or cuts documents, and scales the lengths of
/// batch rows. Returns the new facts and a note for the user about the change; the note is `None` if the facts are
/// unchanged.
fn stretched(facts: &Facts, own: usize, len: usize) -> (Facts, Option<String>) {
    let mut value = serde_json::to_value(facts).unwrap_or_default();
    let mut note = None;
    let repeat = |list: &[Value]| -> Vec<Value> {
        let lengths: Vec<u64> = list.iter().filter_map(Value::as_u64).filter(|n| *n > 0).collect();
        let mut left = len as u64;
        let mut out = Vec::new();
        for n in lengths.iter().cycle() {
            if left == 0 {
                break;
            }
            let taken = (*n).min(left);
            out.push(taken.into());
            left -= taken;
        }
        out
    };
    if let Some(documents) = value.get_mut("documents").and_then(Value::as_array_mut) {
        match documents.first() {
            Some(Value::Array(_)) => documents.iter_mut().for_each(|row| {
                if let Some(list) = row.as_array() {
                    *row = repeat(list).into();
                }
            }),
            _ => *documents = repeat(documents),
        }
        note = Some(format!(
            "the facts give documents for {own} tokens: at other lengths, the documents are repeated or cut"
        ));
    }
    if let Some(lengths) = value.get_mut("lengths").and_then(Value::as_array_mut) {
        for n in lengths {
            let scaled = n.as_u64().unwrap_or(0) as u128 * len as u128 / own.max(1) as u128;
            *n = (scaled as u64).min(len as u64).into();
        }
        note = note.or(Some(
            "at each length, the numbers of non-padding tokens are scaled in proportion to the length".to_string(),
        ));
    }
    match Facts::from_json(&value.to_string()) {
        Ok(facts) => (facts, note),
        Err(_) => (facts.clone(), None),
    }
}
