//! Checks a bias that is stored in the same array as the mask. The bias must depend on the positions of tokens. A bias
//! that depends on array indices is wrong if rows are padded, because the indices also count padding.

use crate::array::decode::Decoded;
use crate::intent::known::Known;
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::read::values::Values;
use crate::report::{Certainty, Finding};
use noren_mask::bits::bit;
use std::collections::HashMap;

/// Checks that a relative bias depends only on the distance between positions, and returns a finding for the first
/// wrong number. A constant added to all cells of a query is allowed, because the softmax cancels the constant. Returns
/// `None` if no number is wrong.
pub(crate) fn look(
    mask: &Values,
    decoded: &Decoded,
    known: &Known,
    context: &Context,
    intent: &Intent,
) -> Option<Finding> {
    let named = |word: &str| [&context.bias, &context.position_encoding].into_iter().flatten().any(|n| n == word);
    let alibi = named("alibi");
    if !decoded.bias || !(alibi || named("relative") || named("t5")) {
        return None;
    }
    let [batch, heads, q_len, kv_len] = decoded.keep.dims();
    if q_len != intent.q_len || kv_len != intent.kv_len {
        return None;
    }
    for h in 0..heads {
        let mut by_distance: HashMap<i64, f64> = HashMap::new();
        for b in 0..batch {
            let positions = positions(known, intent, b);
            for i in (0..q_len).filter(|&i| intent.cares(b, i)) {
                let Some(own) = usize::try_from(intent.slot(b, i)).ok().filter(|s| *s < kv_len) else { continue };
                let cells = decoded.keep.row(b, h, i);
                if !bit(cells, own) {
                    continue;
                }
                let at = |k: usize| mask.at(((b * heads + h) * q_len + i) * kv_len + k);
                for k in (0..kv_len).filter(|&k| bit(cells, k)) {
                    let distance = positions[k] - positions[own];
                    let bias = at(k) - at(own);
                    let known = *by_distance.entry(distance).or_insert(bias);
                    let mirrored = by_distance.get(&-distance).copied().filter(|_| alibi && intent.causal.is_none());
                    let wrong =
                        [Some(known), mirrored].into_iter().flatten().find(|other| !close(*other, bias, at(own)));
                    let grows = alibi && distance < 0 && bias > 0.0 && !close(bias, 0.0, at(own));
                    if grows {
                        let says = format!(
                            "the bias grows with the distance between query and key: {bias} at distance {distance}, query {i} of batch row {b}, head {h}; ALiBi subtracts slope * distance, so the sign is wrong"
                        );
                        return Some(Finding::of("relative_bias_with_padding", Certainty::Certain, says).because(1));
                    }
                    if let Some(other) = wrong {
                        return Some(Finding::of(
                            "relative_bias_with_padding",
                            Certainty::Certain,
                            format!(
                                "cells at the same distance have different biases: at distance {distance}, query {i} of batch row {b}, head {h}, has the bias {bias}, and another cell has {other}; the bias was computed from array indices, which also count padding, instead of positions"
                            ),
                        ));
                    }
                }
            }
        }
    }
    None
}

/// Returns true if `a` and `b` are equal up to the rounding of 16-bit types. The caller has subtracted `base` from both
/// numbers, so a rounding error in the size of `base` is also accepted.
fn close(a: f64, b: f64, base: f64) -> bool {
    (a - b).abs() <= 0.02 * (a.abs().max(b.abs()).max(base.abs())) + 1e-4
}

/// Returns the position of each key of batch row `b`. If positions are given, these are returned; otherwise the number
/// of non-padding tokens before each key.
fn positions(known: &Known, intent: &Intent, b: usize) -> Vec<i64> {
    if let Some(rows) = &known.positions {
        return row(rows, b).to_vec();
    }
    let mut next = 0;
    (0..intent.kv_len)
        .map(|k| {
            let here = next;
            next += i64::from(intent.valid.as_ref().is_none_or(|v| bit(row(v, b), k)));
            here
        })
        .collect()
}
