//! Code for PyTorch: `scaled_dot_product_attention`, `nn.MultiheadAttention`, `nn.TransformerEncoder`, FlexAttention, and the
//! mask functions of transformers.

use crate::Error;
use crate::forms::python::Library;
use crate::forms::python::expression::Style;
use crate::forms::python::helpers::helpers;
use crate::forms::python::scores::{Scores, real, scores};
use crate::forms::python::statements::{Opening, call, positions};
use crate::forms::python::tables::tables;
use crate::forms::python::text::Text;
use crate::program::{Test, Uses};
use crate::request::Request;

const LIBRARY: Library = Library::PyTorch;
/// The kinds of score modifiers that can be written as one array that is added to scores.
pub(crate) const ADDED: [&str; 3] = ["bias", "relative", "alibi"];

const NN: &str = "import torch\nfrom torch import nn";

type Made = Result<(Text, Vec<String>), Error>;

/// Returns the inputs of attention with their sizes, `[batch, heads, length, head_dim]`, for the comments of the code.
pub(crate) fn attention_inputs(request: &Request<'_>) -> Vec<(&'static str, String)> {
    let shape = request.shape;
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    vec![
        ("query", format!("[{batch}, {heads}, {}, head_dim]", shape.q_len())),
        ("key, value", format!("[{batch}, {kv_heads}, {}, head_dim]", shape.kv_len())),
    ]
}

pub(crate) fn sdpa(request: &Request<'_>) -> Made {
    let imports = "import torch\nimport torch.nn.functional as F";
    let Opening { mut out, names, scores, uses } =
        request.opening(LIBRARY, imports, &attention_inputs(request), &ADDED)?;
    let sum = scores.sum();
    let sizes = if sum.is_some() { String::new() } else { broadcast(request, uses) };
    let mut cells = request.keep(LIBRARY, &sizes);
    let mut mask = "keep";
    if let Some(sum) = sum {
        cells.append(scores.setup);
        cells.line(format!("attn_mask = torch.where(keep, {sum}, -torch.inf)"));
        mask = "attn_mask";
    }
    out.block(cells);
    let mut arguments =
        vec!["query".into(), "key".into(), "value".into(), format!("attn_mask={mask}.to(query.device)")];
    if request.shape.head_count() != request.shape.kv_head_count() {
        arguments.push("enable_gqa=True".into());
    }
    out.gap();
    out.line(call("output = F.scaled_dot_product_attention", &arguments));
    Ok((out, names))
}

/// Returns the sizes, as code, to which the array of cells must be broadcast; empty if it already has these sizes.
fn broadcast(request: &Request<'_>, uses: Uses) -> String {
    if uses.query && uses.key {
        return String::new();
    }
    let [batch, heads, q_len, kv_len] = request.sizes(uses);
    match (batch, heads) {
        (1, 1) if !uses.batch && !uses.head => format!("({q_len}, {kv_len})"),
        _ => format!("({batch}, {heads}, {q_len}, {kv_len})"),
    }
}

/// Returns the statements of two masks in which true hides a cell: `attn_mask` `[q_len, kv_len]` or `[batch * heads,
/// q_len, kv_len]`, and `key_padding_mask` `[batch, kv_len]`; and the arguments that pass the masks which the code needs.
/// `names` are the names of these two masks, and the masks are moved to the device of the tensor `input`.
fn dropped(request: &Request<'_>, scores: Scores, names: [&str; 2], input: &str) -> (Text, Vec<String>) {
    let [attn_mask, key_padding_mask] = names;
    let style = request.style(LIBRARY);
    let [batch, heads] = [request.shape.batch_len(), request.shape.head_count()];
    let (q_len, kv_len) = (request.shape.q_len(), request.shape.kv_len());
    let argument = |name: &str| format!("{name}={name}.to({input}.device)");
    let (mut text, mut arguments) = (request.parts(&style), Vec::new());
    let sum = scores.sum();
    let is_padding = |test: &Test| {
        let uses = request.program.uses(test);
        sum.is_none() && uses.batch && uses.key && !uses.query && !uses.head
    };
    let all = match &request.program.root {
        Test::All(tests) => tests.clone(),
        test => vec![test.clone()],
    };
    let (padding, rest): (Vec<Test>, Vec<Test>) = all.into_iter().partition(is_padding);
    if !rest.is_empty() {
        let rest = Test::all(rest);
        let own = request.program.uses(&rest);
        let by_pair = own.batch || own.head || sum.is_some();
        let sizes =
            if by_pair { format!("({batch}, {heads}, {q_len}, {kv_len})") } else { format!("({q_len}, {kv_len})") };
        let whole = own.query && own.key && !by_pair;
        text.append(request.cells(LIBRARY, "keep", &rest, if whole { "" } else { &sizes }));
        text.append(scores.setup);
        let pairs = if by_pair { format!(".reshape({}, {q_len}, {kv_len})", batch * heads) } else { String::new() };
        match sum {
            Some(sum) => text.line(format!("{attn_mask} = torch.where(keep, {sum}, -torch.inf){pairs}")),
            None => text.line(format!("{attn_mask} = ~keep{pairs}  # true hides a cell")),
        }
        arguments.push(argument(attn_mask));
    }
    if !padding.is_empty() {
        let test = style.test(&Test::all(padding).negated(), key_padding_mask.len() + 3);
        text.line(format!("{key_padding_mask} = {test}  # true hides a key"));
        text.line(format!(
            "{key_padding_mask} = torch.broadcast_to({key_padding_mask}, ({batch}, 1, 1, {kv_len}))[:, 0, 0]"
        ));
        arguments.push(argument(key_padding_mask));
    }
    (text, arguments)
}

pub(crate) fn mha(request: &Request<'_>) -> Made {
    let shape = request.shape;
    let sizes = |len: usize| format!("[{}, {len}, embed_dim]", shape.batch_len());
    let given = [("query", sizes(shape.q_len())), ("key, value", sizes(shape.kv_len()))];
    let Opening { mut out, names, scores, .. } = request.opening(LIBRARY, NN, &given, &ADDED)?;
    let (masks, given) = dropped(request, scores, ["attn_mask", "key_padding_mask"], "query");
    out.block(masks);
    let mut arguments: Vec<String> = ["query", "key", "value"].map(String::from).into();
    arguments.extend(given);
    arguments.push("need_weights=False".into());
    out.gap();
    out.line(format!("attention = nn.MultiheadAttention(query.shape[-1], {}, batch_first=True)", shape.head_count()));
    out.line(call("output, _ = attention", &arguments));
    Ok((out, names))
}

pub(crate) fn encoder(request: &Request<'_>) -> Made {
    let shape = request.shape;
    let given = [("src", format!("[{}, {}, embed_dim]", shape.batch_len(), shape.q_len()))];
    let Opening { mut out, names, scores, .. } = request.opening(LIBRARY, NN, &given, &ADDED)?;
    if shape.q_len() != shape.kv_len() {
        let part = format!("a mask of {} queries and {} keys", shape.q_len(), shape.kv_len());
        return Err(request.refuse(part, "its queries and keys are the same tokens; use nn.MultiheadAttention (mha)"));
    }
    let (masks, given) = dropped(request, scores, ["mask", "src_key_padding_mask"], "src");
    out.block(masks);
    out.gap();
    out.line(format!("layer = nn.TransformerEncoderLayer(src.shape[-1], {}, batch_first=True)", shape.head_count()));
    out.line("encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)");
    out.line(call("output = encoder", &[vec!["src".to_string()], given].concat()));
    Ok((out, names))
}

pub(crate) fn flex(request: &Request<'_>) -> Made {
    let style = Style { program: request.program, library: LIBRARY, row: "q_idx", key: "kv_idx" };
    let kinds = ["softcap", "bias", "relative", "alibi", "soft"];
    let cell = "[b, h, q_idx, kv_idx]";
    let scores = scores(request, &style, &kinds, cell)?;
    let (inputs, names) = request.inputs(&attention_inputs(request), &scores);
    let mut out = Text::default();
    out.line("import torch\nfrom torch.nn.attention.flex_attention import create_block_mask, flex_attention");
    out.block(inputs);
    out.block(helpers(request.program, LIBRARY));
    out.block(tables(request.program, LIBRARY, true));
    out.block(request.function("mask_mod", "b, h, q_idx, kv_idx"));
    let has_scores = !request.spec.scores.is_empty();
    if has_scores {
        out.block(score_mod(&style, scores, cell));
    }
    let (uses, shape) = (request.program.uses(&request.program.root), request.shape);
    let one_or = |uses: bool, n: usize| if uses { n.to_string() } else { "None".into() };
    let arguments = [
        "mask_mod".to_string(),
        format!("B={}", one_or(uses.batch, shape.batch_len())),
        format!("H={}", one_or(uses.head, shape.head_count())),
        format!("Q_LEN={}", shape.q_len()),
        format!("KV_LEN={}", shape.kv_len()),
        "device=query.device".into(),
    ];
    out.gap();
    out.line(call("block_mask = create_block_mask", &arguments));
    let mut arguments: Vec<String> = ["query", "key", "value"].map(String::from).into();
    if has_scores {
        arguments.push("score_mod=score_mod".into());
    }
    arguments.push("block_mask=block_mask".into());
    if shape.head_count() != shape.kv_head_count() {
        arguments.push("enable_gqa=True".into());
    }
    out.line("flex_attention = torch.compile(flex_attention)  # uncompiled, it computes every pair");
    out.line(call("output = flex_attention", &arguments));
    Ok((out, names))
}

fn score_mod(style: &Style<'_>, scores: Scores, cell: &str) -> Text {
    let mut body = Text::default();
    if scores.reads.1 {
        positions(style, &mut body);
    }
    if let Some(cap) = scores.softcap {
        let cap = real(cap);
        body.line(format!("score = {cap} * torch.tanh(score / {cap})"));
    }
    if let Some(sum) = scores.sum() {
        body.line(format!("score = score + {sum}").replace("+ -", "- "));
    }
    if let Some(soft) = scores.soft {
        body.line(format!("score = score + torch.log({soft}{cell})"));
    }
    body.line("return score");
    let mut out = scores.setup;
    if !out.is_empty() {
        out.line("slopes = slopes.to(query.device)");
        out.gap();
    }
    out.line("def score_mod(score, b, h, q_idx, kv_idx):");
    out.indented(body);
    out
}

pub(crate) fn hf(request: &Request<'_>) -> Made {
    let style = Style { program: request.program, library: LIBRARY, row: "q_idx", key: "kv_idx" };
    let scores = scores(request, &style, &[], "")?;
    let (uses, shape) = (request.program.uses(&request.program.root), request.shape);
    if uses.head {
        return Err(request.refuse(
            "a mask that differs between heads",
            "write the code of each group of equal heads separately, or use a dense mask or a FlexAttention mask",
        ));
    }
    let (inputs, names) = request.inputs(&[], &scores);
    let mut out = Text::default();
    out.line("import torch\nfrom transformers.masking_utils import sdpa_mask");
    out.block(inputs);
    out.block(helpers(request.program, LIBRARY));
    out.block(tables(request.program, LIBRARY, false));
    out.block(request.function("mask_function", "b, h, q_idx, kv_idx"));
    let arguments = [
        format!("batch_size={}", shape.batch_len()),
        format!("q_length={}", shape.q_len()),
        format!("kv_length={}", shape.kv_len()),
        "mask_function=mask_function".to_string(),
        "allow_is_causal_skip=False".into(),
    ];
    out.gap();
    out.line("# booleans [batch, 1, q_len, kv_len], for attn_implementation=\"sdpa\"");
    out.line(call("attention_mask = sdpa_mask", &arguments));
    out.gap();
    out.line("# output = model(input_ids, attention_mask=attention_mask)");
    Ok((out, names))
}
