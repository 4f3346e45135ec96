//! The answer for the flow view: the tokens that influence a token over the layers, the tokens that it influences, and
//! the result of a policy.

use crate::problem::{Problem, Result};
use crate::scene::{SceneShape, check_sizes, facts, parse};
use crate::state::{Answer, json};
use noren_flow::{CHANNELS, Fill, Flow, Policy};
use noren_input::Sizes;
use noren_mask::interval::IntervalSet;
use noren_mask::{Mask, Spec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};

/// The maximum number of layers of a stack.
const MOST_LAYERS: usize = 512;
/// The maximum size of a policy, in bytes.
const MOST_POLICY: usize = 16 << 10;
/// The maximum size of a stack, as (tokens, layers), for which the answer also lists the allowed cells of every layer.
const MOST_DRAWN: (usize, usize) = (64, 16);
/// The maximum number of ranges that the answer lists for one set of tokens: the tokens that influence the requested
/// token, or that the requested token influences, at one layer.
const MOST_RANGES: usize = 4096;
/// The maximum number of violations of a policy that the answer lists.
const MOST_VIOLATIONS: usize = 50;

/// The body of a request for a flow: the masks of a stack, a shape, facts, a policy, and the token whose flow is
/// computed. `depth` is the number of layers; if there are fewer masks than layers, the masks are repeated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    layers: Vec<String>,
    #[serde(default)]
    depth: Option<usize>,
    #[serde(default)]
    shape: SceneShape,
    #[serde(default)]
    facts: Option<Box<RawValue>>,
    #[serde(default)]
    fill: Fill,
    #[serde(default)]
    policy: String,
    #[serde(default)]
    token: Option<u32>,
    #[serde(default)]
    batch: usize,
}

/// Computes the flow of a stack. Returns the tokens that influence the requested token, the tokens that the requested
/// token influences, and the result of the policy.
pub(crate) fn flow(body: &[u8]) -> Answer {
    let stack: Stack = serde_json::from_slice(body)?;
    let (flow, assumed) = build(&stack)?;
    let (tokens, depth) = (flow.tokens(), flow.depth());
    if stack.batch >= flow.shape().batch_len() {
        let rows = flow.shape().batch_len();
        return Err(Problem::new(format!(
            "batch row {} does not exist: there are {rows} batch rows, counted from 0",
            stack.batch
        ))
        .into());
    }
    let token = stack.token.unwrap_or(tokens.saturating_sub(1));
    if token >= tokens {
        return Err(
            Problem::new(format!("token {token} does not exist: there are {tokens} tokens, counted from 0")).into()
        );
    }
    let ranges = |sets: &[IntervalSet]| -> Vec<Vec<[u32; 2]>> {
        sets.iter().map(|set| set.iter().take(MOST_RANGES).map(|i| [i.start, i.end]).collect()).collect()
    };
    let counts = |sets: &[IntervalSet]| sets.iter().map(IntervalSet::count).collect::<Vec<_>>();
    let own = IntervalSet::from(token..token + 1);
    let (back, reach) = (flow.back(stack.batch, &own), flow.reach(stack.batch, &own));
    let mut value = object!({
        "tokens": tokens,
        "depth": depth,
        "batch": flow.shape().batch_len(),
        "token": token,
        "back": ranges(&back),
        "back_count": counts(&back),
        "reach": ranges(&reach),
        "reach_count": counts(&reach),
        // Counts are exact, but only the first ranges are listed.
        "truncated": back.iter().chain(&reach).any(|set| set.as_slice().len() > MOST_RANGES),
        "not_covered": CHANNELS,
        "assumed": assumed,
        "heads": flow.shape().head_count(),
        "verdict": Value::Null,
        "pairs": 0,
        "violations": [],
        "violation_count": 0,
        "empty": [],
    });
    if tokens as usize <= MOST_DRAWN.0 && depth <= MOST_DRAWN.1 {
        value["edges"] = edges(&flow, stack.batch, depth).into();
    }
    let ruling = match policy(&stack.policy) {
        Ok(policy) if policy.rules.is_empty() => Ok(None),
        Ok(policy) => policy.check(&flow).map(Some).map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match ruling {
        Ok(None) => {}
        Ok(Some(ruling)) => {
            let listed: Vec<Value> = ruling.violations().take(MOST_VIOLATIONS).map(|v| object!(v)).collect();
            value["verdict"] = object!(ruling.verdict());
            value["pairs"] = ruling.pairs.into();
            value["violation_count"] = ruling.violations().count().into();
            value["violations"] = listed.into();
            value["empty"] =
                ruling.empty.iter().take(MOST_VIOLATIONS).map(ToString::to_string).collect::<Vec<_>>().into();
        }
        Err(problem) => value["policy_error"] = policy_error(&problem.message),
    }
    json(&value)
}

fn policy(text: &str) -> Result<Policy> {
    if text.len() > MOST_POLICY {
        return Err(Problem::new(format!("the policy has {} bytes: give at most {MOST_POLICY} bytes", text.len())));
    }
    Ok(text.parse()?)
}

/// Splits an error message such as `policy: line 2: ...` into the line number and the rest of the message. Without a
/// line number, the message is returned unchanged.
fn policy_error(message: &str) -> Value {
    let placed = message.split_once("policy: line ").and_then(|(_, rest)| rest.split_once(": "));
    match placed.and_then(|(line, problem)| Some((line.parse::<usize>().ok()?, problem))) {
        Some((line, problem)) => object!({ "message": problem, "line": line }),
        None => object!({ "message": message }),
    }
}

fn build(stack: &Stack) -> Result<(Flow, Vec<String>)> {
    let depth = stack.depth.unwrap_or(stack.layers.len());
    if stack.layers.is_empty() || depth == 0 || depth > MOST_LAYERS || stack.layers.len() > depth {
        let given = stack.layers.len();
        return Err(Problem::new(format!(
            "the request has {given} masks for {depth} layers: give at least 1 mask, at most 1 mask per layer, and at most {MOST_LAYERS} layers"
        )));
    }
    let parsed = stack.layers.iter().enumerate().map(|(at, text)| parse(text, None).map_err(|e| e.layer(at)));
    let specs: Vec<Spec> = parsed.collect::<Result<_>>()?;
    let (facts, known): (_, Sizes) = facts(stack.facts.as_deref(), &specs)?;
    let mut assumed = Vec::new();
    let shape = stack.shape.request()?.resolve(&known, &mut assumed)?;
    check_sizes(&shape)?;
    for (at, spec) in specs.iter().enumerate() {
        spec.mask.at_layer(at as u64).bind(&shape, &facts).map_err(|e| Problem::from(e).layer(at))?;
    }
    let masks: Vec<Mask> = (0..depth).map(|l| specs[l % specs.len()].mask.clone()).collect();
    let flow = Flow::of_stack(&masks, &shape, &facts, stack.fill)?;
    Ok((flow, assumed.into_iter().map(|text| text.replace("--", "")).collect()))
}

/// Returns the allowed cells of all `depth` layers in batch row `batch`, each as `[layer, query, key]`.
fn edges(flow: &Flow, batch: usize, depth: usize) -> Vec<[u32; 3]> {
    let mut edges = Vec::new();
    for layer in 0..depth {
        for query in 0..flow.tokens() {
            let keys = flow.read_in(batch, layer, query);
            edges.extend(keys.iter().flat_map(|i| i.start..i.end).map(|key| [layer as u32, query, key]));
        }
    }
    edges
}
