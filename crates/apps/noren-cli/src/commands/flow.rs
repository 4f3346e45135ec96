//! `noren flow`: shows which tokens can influence which outputs over several layers, and checks policies.

use crate::args::{FactArgs, ShapeArgs, bind_stack, choice, parse, read_text};
use crate::failure::{Failure, Result};
use crate::output::{BAD, DIM, GOOD, STRONG, Screen, paint, with_note};
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
use clap::builder::TypedValueParser;
use noren_doctor::Input;
use noren_flow::{CHANNELS, Certificate, Fill, Flow, Policy, RuleVerdict, Ruling, Verdict as Found};
use noren_input::Sizes;
use noren_input::arrays::read_one;
use noren_mask::interval::IntervalSet;
use noren_mask::{Array, Facts, Mask, Shape, atoms};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FlowArgs {
    #[command(flatten)]
    stack: StackArgs,
    /// File of rules, one per line: 'deny: label(pii) -> output', 'deny maybe: ...' if a side of the rule may have no
    /// tokens, 'allow: ...'
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A rule that denies pairs of tokens: 'label(pii) -> output', 'tokens(3..9) -> token(20)', 'maybe: level(1) ->
    /// level(0)'
    #[arg(long, value_name = "FROM -> TO")]
    deny: Vec<String>,
    /// An exception from the rules, written like a rule: pairs of tokens that stay allowed
    #[arg(long, value_name = "FROM -> TO")]
    allow: Vec<String>,
    /// Index of a token: list the tokens that can influence its output, layer by layer [default: the last token]
    #[arg(long, value_name = "N")]
    token: Option<u32>,
    /// Write a certificate that `noren verify` checks again
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The masks of all layers, with their shape and facts.
#[derive(Args, Debug)]
pub(crate) struct StackArgs {
    /// The masks of the layers in order, as expressions or as files of cells (npy, npz, safetensors); fewer masks than
    /// layers are repeated in order
    #[arg(value_name = "MASK")]
    masks: Vec<String>,
    /// Number of layers [default: one for each mask]
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Result of a query that may read no key: `nothing` (0), or `finite` (the mean over all keys) for a model that
    /// hides keys with a finite number instead of -inf
    #[arg(long, value_parser = fill(), default_value = "nothing", value_name = "nothing|finite", hide_possible_values = true)]
    fill: Fill,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
}

/// Returns the parser of the output of a query that may read no key.
fn fill() -> impl TypedValueParser<Value = Fill> {
    choice([("nothing", Fill::Nothing), ("finite", Fill::Finite)])
}

const EXAMPLES: &str = "\
The result is exact for attention and residual connections. Not covered: positions, lengths, pooling, normalisation over the batch or time, convolution and state-space layers, routing, quantisation by maxima, caches filled before a redaction, loss targets. A rule denies every pair of a source token and another token, its target. A policy holds if at least one pair is denied and no denied source can influence its target. Without a denied pair, nothing is established. The exit code is 0 when the policy holds, 1 when the policy is broken or nothing is established, 2 when the input cannot be used.

Examples:
  noren flow 'sliding(1024)' causal --layers 32 --len 131072
  noren flow 'causal & documents([5, 3])' --layers 4 --facts facts.json --deny 'document(i) -> document(j)'
  noren flow 'causal - (queries(7) & keys(2))' --layers 6 --len 8 --deny 'token(2) -> token(7)'
  noren flow layer0.npy layer1.npy --policy policy.txt --facts facts.json -o certificate.json";

/// Maximum number of layers. No model has more layers.
const MOST_LAYERS: usize = 4096;
/// Maximum number of lines about the tokens on which an output depends.
const LISTED: usize = 40;

impl StackArgs {
    /// Returns true if the command line has at least one mask.
    pub(crate) fn given(&self) -> bool {
        !self.masks.is_empty()
    }

    /// Returns the flow (which tokens can influence which outputs over all layers), and a list of the sizes for which a
    /// default was assumed, as text.
    pub(crate) fn flow(&self) -> Result<(Flow, Vec<String>)> {
        let stack = self.stack()?;
        Ok((build(&stack.masks, &stack.shape, &stack.facts, self.fill)?, stack.assumed))
    }

    /// Returns the contents that a certificate must have. If masks are given, all contents of the certificate are
    /// compared; otherwise only the contents that are given by options.
    pub(crate) fn expected(&self) -> Result<noren_verify::Given> {
        let mut given = noren_verify::Given { depth: self.layers, ..Default::default() };
        if self.given() {
            let stack = self.stack()?;
            let texts = stack.masks.iter().zip(0..).map(|(mask, layer)| mask.at_layer(layer).to_string());
            given.layers = Some(texts.collect());
            given.shape = Some(stack.shape.to_json()?);
            given.facts = Some(stack.facts.to_json()?);
            given.finite = Some(self.fill == Fill::Finite);
            return Ok(given);
        }
        let sizes = &self.shape;
        given.q_len = sizes.len.or(sizes.q).or(sizes.past.map(|_| sizes.new.unwrap_or(1)));
        given.kv_len = sizes.len.or(sizes.kv).or(sizes.past.map(|past| past.saturating_add(sizes.new.unwrap_or(1))));
        (given.batch, given.heads, given.kv_heads) = (sizes.batch, sizes.heads, sizes.kv_heads);
        let cached = sizes.past.and_then(|past| i64::try_from(past).ok()).map(|past| vec![past]);
        given.query_offsets = cached.or((!sizes.query_offset.is_empty()).then(|| sizes.query_offset.clone()));
        if self.facts.facts.is_some() || !self.facts.lengths.is_empty() {
            given.facts = Some(self.facts.read(&[])?.0.to_json()?);
        }
        given.finite = (self.fill == Fill::Finite).then_some(true);
        Ok(given)
    }

    fn stack(&self) -> Result<Stack> {
        let layers = self.layers.unwrap_or(self.masks.len());
        if self.masks.is_empty() || layers == 0 || layers > MOST_LAYERS || layers < self.masks.len() {
            let given = self.masks.len();
            return Err(Failure::new(format!(
                "{given} mask(s) for {layers} layer(s): give at least 1 mask, at most 1 mask per layer, and at most {MOST_LAYERS} layers"
            )));
        }
        let mut arrays = Vec::new();
        let mut sizes = Sizes::default();
        let mut masks = Vec::new();
        for (index, text) in self.masks.iter().enumerate() {
            let path = Path::new(text);
            let file =
                path.extension().and_then(|e| e.to_str()).is_some_and(|e| ["npy", "npz", "safetensors"].contains(&e));
            if !file {
                masks.push(parse(text, None)?.mask);
                continue;
            }
            let name = format!("layer{index}");
            let array = cells_of(path, &mut sizes)?;
            masks.push(atoms::dense(&name));
            arrays.push((name, array));
        }
        let (shape, facts, assumed) = bind_stack(&masks, &self.shape, &self.facts, sizes)?;
        let facts = arrays.into_iter().fold(facts, |facts, (name, array)| facts.array(name, array));
        let masks = (0..layers).map(|l| masks[l % masks.len()].clone()).collect();
        Ok(Stack { masks, shape, facts, assumed })
    }
}

/// The mask of each layer; the shape and the facts (data that masks need, such as document lengths) of all layers; and
/// a list of the sizes for which a default was assumed.
struct Stack {
    masks: Vec<Mask>,
    shape: Shape,
    facts: Facts,
    assumed: Vec<String>,
}

fn build(stack: &[Mask], shape: &Shape, facts: &Facts, fill: Fill) -> Result<Flow> {
    Ok(with_note("planning the layers ...", || Flow::of_stack(stack, shape, facts, fill))?)
}

/// Reads the cells of a mask file. The crate noren-doctor determines the convention of the array (keep, drop or
/// additive). Each size in `sizes` (tokens, batch rows, heads) that is missing or smaller than the size of the array is
/// set to the size of the array.
fn cells_of(path: &Path, sizes: &mut Sizes) -> Result<Array> {
    let report = Input::new(read_one(path)?).diagnose()?;
    let keep = report.given.ok_or_else(|| Failure::new(format!("{}: no mask", path.display())))?;
    let dims = keep.dims();
    if dims[2] != dims[3] {
        return Err(Failure::new(format!(
            "{}: the mask has {} queries and {} keys: give a mask with as many queries as keys, or an expression with --past",
            path.display(),
            dims[2],
            dims[3]
        )));
    }
    let own = Sizes {
        len: Some(dims[3]),
        batch: (dims[0] > 1).then_some(dims[0]),
        heads: (dims[1] > 1).then_some(dims[1]),
        cross: None,
    };
    *sizes = sizes.or(own);
    let cells: Vec<bool> = keep.cells().collect();
    Ok(Array::keep(&dims, &cells)?)
}

pub(crate) fn run(args: &FlowArgs, screen: &mut Screen) -> Result<Verdict> {
    let target = args.output.as_deref().map(Target::new).transpose()?;
    let policy = policy(args)?;
    let (flow, assumed) = args.stack.flow()?;
    let note = "computing the influence of tokens through the layers ...";
    let ruling = policy.as_ref().map(|policy| with_note(note, || policy.check(&flow))).transpose()?;
    if let Some(target) = &target {
        let Some(policy) = &policy else {
            return Err(Failure::new("--output: a certificate requires a policy: give --policy or --deny"));
        };
        let text = Certificate::issue(&flow, policy)?.to_json()?;
        target.write(|out| writeln!(out, "{text}"))?;
    }
    let token = args.token.unwrap_or(flow.tokens().saturating_sub(1));
    if token >= flow.tokens() {
        return Err(Failure::new(format!(
            "--token is {token}, but tokens are counted from 0 and the mask has {} tokens",
            flow.tokens()
        )));
    }
    let field = match policy.is_none() || args.token.is_some() {
        true => with_note("computing the tokens on which the output depends ...", || flow.receptive_field(0, token)),
        false => Vec::new(),
    };
    match args.json {
        true => screen.json(&as_json(&flow, ruling.as_ref(), &field))?,
        false => {
            screen.line(format!("{} tokens, {} layers", flow.tokens(), flow.depth()))?;
            tell_field(&field, token, flow.shape().batch_len(), screen)?;
            if let Some(ruling) = &ruling {
                tell_ruling(ruling, screen)?;
            }
            tell_channels(screen)?;
            if !assumed.is_empty() {
                screen.line(paint(DIM, format!("assumed: {}", assumed.join(", "))))?;
            }
        }
    }
    Ok(if ruling.is_none_or(|ruling| ruling.holds()) { Verdict::Yes } else { Verdict::No })
}

fn as_json(flow: &Flow, ruling: Option<&Ruling>, field: &[IntervalSet]) -> serde_json::Value {
    let mut value = json!({
        "tokens": flow.tokens(),
        "layers": flow.depth(),
        "heads": flow.shape().head_count(),
        "batch_rows": flow.shape().batch_len(),
        "receptive_field": field.iter().map(ranges).collect::<Vec<_>>(),
        "not_covered": CHANNELS,
    });
    if let Some(ruling) = ruling {
        value["verdict"] = json!(ruling.verdict());
        value["holds"] = ruling.holds().into();
        value["pairs"] = ruling.pairs.into();
        value["rules"] = json!(ruling.rules);
        value["empty"] = json!(ruling.empty);
    }
    value
}

/// Returns a policy with the rules of the file, then the rules of the command line; `None` if neither is given.
fn policy(args: &FlowArgs) -> Result<Option<Policy>> {
    if args.policy.is_none() && args.deny.is_empty() && args.allow.is_empty() {
        return Ok(None);
    }
    let mut text = match &args.policy {
        Some(path) => read_text(path)?,
        None => String::new(),
    };
    for (word, rules) in [("deny", &args.deny), ("allow", &args.allow)] {
        for rule in rules {
            let (maybe, rule) = rule.trim().strip_prefix("maybe:").map_or(("", rule.as_str()), |rule| (" maybe", rule));
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{end}{word}{maybe}: {rule}"));
        }
    }
    Ok(Some(text.parse()?))
}

fn ranges(set: &IntervalSet) -> Vec<[u32; 2]> {
    set.iter().map(|i| [i.start, i.end]).collect()
}

/// Prints the tokens that can influence the output of `token` in batch row 0, in one line for each number of layers.
/// `rows` is the number of batch rows.
fn tell_field(field: &[IntervalSet], token: u32, rows: usize, screen: &mut Screen) -> Result<()> {
    if field.is_empty() {
        return Ok(());
    }
    let heading = match rows {
        0 | 1 => format!("output {token} depends on"),
        _ => format!("output {token} of batch row 0 depends on"),
    };
    screen.line(format!("\n{}", paint(STRONG, heading)))?;
    let mut before = None;
    let last = field.len() - 1;
    for (layers, set) in field.iter().enumerate().skip(1) {
        if before == Some(set) && field[layers..].iter().all(|later| later == set) {
            screen.line(format!(
                "  {layers:4} layers  no change: with this number of layers or more, the output depends on the same tokens"
            ))?;
            break;
        }
        if layers > LISTED && layers < last {
            if layers == LISTED + 1 {
                screen.line(format!("  ... and {} more layers", last - LISTED - 1))?;
            }
            continue;
        }
        before = Some(set);
        let mut runs: Vec<String> = set.iter().take(4).map(|i| format!("{}..{}", i.start, i.end)).collect();
        if set.as_slice().len() > 4 {
            runs.push(format!("... ({} runs)", set.as_slice().len()));
        }
        let word = if layers == 1 { "layer " } else { "layers" };
        screen.line(format!("  {layers:4} {word}  {} tokens: {}", set.count(), runs.join(" ")))?;
    }
    Ok(())
}

/// Prints the verdict of a policy and the result of each rule. A broken rule has one line for each batch row that
/// breaks the rule.
pub(crate) fn tell_ruling(ruling: &Ruling, screen: &mut Screen) -> Result<()> {
    screen.line("")?;
    let (verdict, summary) = (ruling.verdict(), ruling.summary());
    let word = verdict.to_string();
    let colour = if verdict == Found::Holds { GOOD } else { BAD };
    screen.line(format!("{}{}", paint(colour, &word), summary.strip_prefix(&word).unwrap_or(&summary)))?;
    let mut lines: Vec<String> = Vec::new();
    for rows in ruling.rules.chunk_by(|a, b| a.rule == b.rule && a.batch < b.batch) {
        match rows.iter().any(RuleVerdict::violated) {
            true => lines.extend(rows.iter().filter(|row| row.violated()).map(ToString::to_string)),
            false => lines.push(in_all_rows(rows)),
        }
    }
    lines.extend(ruling.empty.iter().map(ToString::to_string));
    screen.list(&lines)
}

/// Formats the result of a rule that holds in all batch rows. `rows` has the result of the rule in each batch row.
fn in_all_rows(rows: &[RuleVerdict]) -> String {
    let rule = &rows[0].rule;
    let pairs = rows.iter().map(|row| row.pairs).fold(0, u64::saturating_add);
    let without = rows.iter().filter(|row| row.pairs == 0).count();
    match (pairs, without) {
        (0, _) => format!("{rule}: nothing is established, because the rule denies no pair of tokens"),
        (_, 0) => format!("{rule}: the rule holds for {pairs} denied pair(s)"),
        _ => format!(
            "{rule}: the rule holds for {pairs} denied pair(s); nothing is established for {without} of {} batch row(s), \
             in which the rule denies no pair of tokens",
            rows.len()
        ),
    }
}

/// Prints that the result does not cover paths of information between tokens that do not pass through attention.
pub(crate) fn tell_channels(screen: &mut Screen) -> Result<()> {
    let text = "not covered: influence that does not pass through attention, such as positions and pooling (list: docs/flow.md)";
    screen.line(format!("\n{}", paint(DIM, text)))
}
