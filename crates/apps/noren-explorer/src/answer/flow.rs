//! The answer for the flow view: the tokens that influence the requested token over the layers, the tokens that the
//! requested token influences, and the result of a policy.

use crate::request::cause::Cause;
use crate::request::message::JSON;
use crate::request::problem::{Fields, Problem, Result};
use crate::request::scene::{facts, parse, resolve};
use crate::request::state::{Answer, json};
use crate::request::wire::Frame;
use noren_flow::{CHANNELS, Certificate, Fill, Flow, Policy};
use noren_input::{ShapeRequest, Sizes};
use noren_mask::interval::IntervalSet;
use noren_mask::{Mask, Spec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};

/// The maximum number of layers for which a flow is computed.
const MOST_LAYERS: usize = 512;
/// The maximum size of a policy, in bytes.
const MOST_POLICY: usize = 16 << 10;
/// The maximum (number of tokens, number of layers) of a flow for which the answer also lists, for every layer, which
/// token reads which tokens.
const MOST_DRAWN: (usize, usize) = (64, 16);
/// The maximum number of ranges that the answer lists for one set of tokens. At each layer there are two sets: the
/// tokens that influence the requested token, and the tokens that it influences.
const MOST_RANGES: usize = 4096;
/// The maximum size of a downloaded certificate, in bytes.
const MOST_CERTIFICATE: usize = (8 << 20) - 1;
/// The maximum number of violated rules of a policy that the answer lists.
const MOST_VIOLATIONS: usize = 50;

/// The body of a request for a flow: the masks of the layers, a shape, facts (data that the masks need, such as
/// document lengths), a policy, and the token whose flow is requested. `depth` is the number of layers. If there are
/// fewer masks than layers, the masks are repeated from the first mask on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    layers: Vec<String>,
    #[serde(default)]
    depth: Option<usize>,
    #[serde(default)]
    shape: ShapeRequest,
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

/// Computes the flow through the layers. Returns the tokens that influence the requested token, the tokens that the
/// requested token influences, and the result of the policy.
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
    let ruling = match policy(&stack.policy) {
        Ok(policy) if policy.rules.is_empty() => Ok(None),
        Ok(policy) => policy.check(&flow).map(Some).map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    let policy_error = ruling.as_ref().err().map(policy_error);
    let ruling = ruling.ok().flatten();
    let violations: Vec<_> = ruling.iter().flat_map(|ruling| ruling.violations()).collect();
    let empty = ruling.iter().flat_map(|ruling| &ruling.empty).take(MOST_VIOLATIONS);
    let is_drawn = tokens as usize <= MOST_DRAWN.0 && depth <= MOST_DRAWN.1;
    json(&object!({
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
        "edges": is_drawn.then(|| edges(&flow, stack.batch, depth)),
        "verdict": ruling.as_ref().map(|ruling| ruling.verdict()),
        "pairs": ruling.as_ref().map_or(0, |ruling| ruling.pairs),
        "violations": violations.iter().take(MOST_VIOLATIONS).collect::<Vec<_>>(),
        "violation_count": violations.len(),
        "empty": empty.map(ToString::to_string).collect::<Vec<_>>(),
        "policy_error": policy_error,
    }))
}

/// Returns a certificate for the layers and the policy of a request: a file that `noren verify` checks.
pub(super) fn certificate(body: &[u8]) -> Answer {
    let stack: Stack = serde_json::from_slice(body)?;
    let policy = policy(&stack.policy)?;
    if policy.rules.is_empty() {
        let problem = Problem::new("a certificate requires a policy, and the policy has no rule");
        return Err(problem.hint("write at least one rule, such as `deny: label(pii) -> output`").into());
    }
    let (flow, _) = build(&stack)?;
    file(Certificate::issue(&flow, &policy).and_then(|issued| issued.to_json()).map_err(Problem::from)?, "certificate")
}

/// Returns a certificate as a file with the name `name` and the extension `json`. Returns an error if the certificate is
/// larger than a response may be.
pub(super) fn file(certificate: String, name: &str) -> Answer {
    if certificate.len() > MOST_CERTIFICATE {
        let len = certificate.len();
        let problem = Problem::new(format!(
            "the certificate has {len} bytes: at most {MOST_CERTIFICATE} bytes can be downloaded"
        ));
        return Err(problem.hint("the command `noren flow -o certificate.json` writes larger certificates").into());
    }
    Ok(Frame::file(format!("{name}.json"), JSON, format!("{certificate}\n").into_bytes()))
}

fn policy(text: &str) -> Result<Policy> {
    if text.len() > MOST_POLICY {
        let message = format!("the policy has {} bytes: give at most {MOST_POLICY} bytes", text.len());
        return Err(Problem::new(message).cause(Cause::PolicyTooLong));
    }
    Ok(text.parse()?)
}

/// Returns an error of a policy as JSON. A message such as `policy: line 2: ...` is split into the line number and the
/// rest. A message without a line number is returned unchanged, with its cause.
fn policy_error(problem: &Problem) -> Value {
    let Fields { message, cause, .. } = &**problem;
    let placed = message.split_once("policy: line ").and_then(|(_, rest)| rest.split_once(": "));
    match placed.and_then(|(line, problem)| Some((line.parse::<usize>().ok()?, problem))) {
        Some((line, problem)) => object!({ "message": problem, "line": line }),
        None => object!({ "message": message, "cause": cause }),
    }
}

fn build(stack: &Stack) -> Result<(Flow, Vec<String>)> {
    let depth = stack.depth.unwrap_or(stack.layers.len());
    if stack.layers.is_empty() || depth == 0 || depth > MOST_LAYERS || stack.layers.len() > depth {
        let given = stack.layers.len();
        let message = format!(
            "the request has {given} masks for {depth} layers: give at least 1 mask, at most 1 mask per layer, and at most {MOST_LAYERS} layers"
        );
        return Err(Problem::new(message).cause(Cause::DepthLimit));
    }
    let parsed = stack.layers.iter().enumerate().map(|(at, text)| parse(text, None).map_err(|e| e.layer(at)));
    let specs: Vec<Spec> = parsed.collect::<Result<_>>()?;
    let (facts, known): (_, Sizes) = facts(stack.facts.as_deref(), &specs)?;
    let (shape, assumed) = resolve(&stack.shape, &known)?;
    for (at, spec) in specs.iter().enumerate() {
        let problem = |error| Problem::from(error).of_shape(&shape).layer(at);
        spec.mask.at_layer(at).bind(&shape, &facts).map_err(problem)?;
    }
    let masks: Vec<Mask> = (0..depth).map(|l| specs[l % specs.len()].mask.clone()).collect();
    let flow = Flow::of_stack(&masks, &shape, &facts, stack.fill)?;
    Ok((flow, assumed))
}

/// Returns what each token reads in each of the `depth` layers of batch row `batch`, as `[layer, token, read token]`.
/// Every token also reads itself, over the residual connection.
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
