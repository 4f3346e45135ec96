//! Reads declarations, policies and certificates from any text: nothing panics, an accepted text is written and read again, and every
//! error has a message.

use noren_doctor::{Context, Input, Values};
use noren_flow::{Certificate, Fill, Flow, Policy};
use noren_mask::{Error, Facts, Mask, Shape};
use serde_json::Value;

/// Largest product of the declared sizes whose diagnosis is run: the time of a diagnosis grows with its cells.
const MOST_CELLS: u128 = 1 << 20;

/// Largest product of tokens, pairs of batch row and head, and layers of a stack that is computed.
const MOST_WORK: u128 = 1 << 22;

/// Any text as the doctor's declarations, for masks of several forms with arrays beside them.
pub fn contexts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let context = match Context::from_json(text) {
        Ok(context) => context,
        Err(error) => return has_words(&error),
    };
    if !are_quick(&context) {
        return;
    }
    for input in inputs() {
        match input.context(context.clone()).diagnose() {
            Ok(report) => {
                assert!(!report.description.is_empty(), "{text}");
                if let Some(fixed) = &report.fixed {
                    assert_eq!(fixed.cells().count(), fixed.dims().iter().product::<usize>(), "{text}");
                }
            }
            Err(error) => has_words(&error),
        }
    }
}

/// Returns whether the declared sizes make few cells, or more than a diagnosis accepts.
fn are_quick(context: &Context) -> bool {
    let lists = [&context.past, &context.written, &context.prefix, &context.lengths];
    let longest = lists.iter().flat_map(|list| list.iter()).map(|n| n.unsigned_abs() as u128).max().unwrap_or(0);
    let sizes = [context.batch, context.heads, context.q_len, context.kv_len].map(|n| n.map(|n| n as u128));
    let product = |sizes: [u128; 4]| sizes.into_iter().fold(1, u128::saturating_mul);
    // what is not declared is at most 8 in the arrays below
    let [batch, heads, q_len, kv_len] = sizes.map(|n| n.unwrap_or(8).max(1));
    let most = product([batch, heads, q_len + longest, kv_len + longest]);
    let least = product(sizes.map(|n| n.unwrap_or(1)));
    most <= MOST_CELLS || least >= 1 << 31
}

/// Masks of several shapes and types: causal, keys with padding on the left, additive with a cache, documents with ids beside.
fn inputs() -> Vec<Input> {
    let causal = (0..36).map(|at| at % 6 <= at / 6).collect();
    let padding = vec![0, 0, 1, 1, 1, 0, 1, 1, 1, 1];
    let cached = (0..2 * 3 * 7).map(|at| if at % 7 <= at / 7 % 3 + 4 { 0.0 } else { f32::MIN }).collect();
    let documents = (0..36).map(|at| i64::from(at % 6 <= at / 6 && (at % 6 < 4) == (at / 6 < 4))).collect();
    let ids = || Values::ints(&[1, 6], vec![5, 6, 7, 2, 8, 0]);
    let values = [
        Values::bools(&[6, 6], causal),
        Values::ints(&[2, 5], padding),
        Values::floats(&[2, 1, 3, 7], cached),
        Values::ints(&[1, 1, 6, 6], documents),
    ];
    let mut inputs: Vec<Input> = values.into_iter().map(|v| Input::new(v.expect("an array"))).collect();
    let last = inputs.pop().expect("a mask").companion("input_ids", ids().expect("ids"));
    inputs.push(last);
    inputs.push(Input::without_mask().companion("input_ids", ids().expect("ids")));
    inputs
}

/// Any text as a policy, checked over stacks with every kind of group.
pub fn policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let policy = match text.parse::<Policy>() {
        Ok(policy) => policy,
        Err(error) => return has_words(&error),
    };
    let printed = policy.to_string();
    assert_eq!(printed.parse::<Policy>().as_ref(), Ok(&policy), "{text:?} printed as {printed:?}");
    if policy.rules.len() > 32 {
        return;
    }
    let facts = Facts::new()
        .lengths([8, 5])
        .documents([5, 3])
        .levels([0, 2, 1, 1, 0, 0, 3, 2])
        .label("pii", [2])
        .label("summary", [6]);
    for masks in [vec!["causal & padding"; 3], vec!["sliding(2)", "documents", "full"]] {
        let masks: Vec<Mask> = masks.into_iter().map(|text| text.parse().expect("a mask")).collect();
        for fill in [Fill::Nothing, Fill::Finite] {
            let flow = Flow::of_stack(&masks, &Shape::square(8).batch(2), &facts, fill).expect("a stack");
            match policy.check(&flow) {
                Ok(ruling) => {
                    let again = printed.parse::<Policy>().expect("read above").check(&flow).expect("checked above");
                    assert_eq!(ruling, again, "{text:?}");
                }
                Err(error) => has_words(&error),
            }
        }
    }
}

/// Reads any text as a certificate. A second reading has the correct hashes, so that the checks after the hashes run too.
pub fn certificates(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let certificate = match Certificate::from_json(text) {
        Ok(certificate) => certificate,
        Err(error) => return has_words(&error),
    };
    let again = certificate.to_json().expect("a certificate is written");
    assert_eq!(Certificate::from_json(&again).as_ref(), Ok(&certificate), "{text}");
    if !is_small(text) {
        return;
    }
    let flow = match certificate.flow() {
        Ok(flow) => flow,
        Err(error) => return has_words(&error),
    };
    let policy = match certificate.policy.parse::<Policy>() {
        Ok(policy) if policy.rules.len() <= 32 => policy,
        Ok(_) => return,
        Err(error) => return has_words(&error),
    };
    match Certificate::issue(&flow, &policy) {
        Ok(issued) => {
            issued.matches(&flow).expect("what was issued matches its stack");
        }
        Err(error) => has_words(&error),
    }
}

/// Returns whether the stack of a certificate's text is small enough to be computed quickly.
fn is_small(text: &str) -> bool {
    let Ok(certificate) = serde_json::from_str::<Value>(text) else { return false };
    let layers = certificate["layers"].as_array().map_or(0, Vec::len);
    let shape = match &certificate["shape"] {
        Value::String(text) => Shape::from_json(text),
        other => Shape::from_json(&other.to_string()),
    };
    let Ok(shape) = shape else { return true };
    let sizes = [shape.q_len().max(shape.kv_len()), shape.batch_len(), shape.head_count(), layers];
    sizes.iter().map(|&size| size.max(1) as u128).product::<u128>() <= MOST_WORK
}

fn has_words(error: &Error) {
    assert!(!error.to_string().is_empty());
}
