//! Code for JAX, Keras, NumPy and ONNX.

use crate::Error;
use crate::forms::python::Library;
use crate::forms::python::scores::real;
use crate::forms::python::statements::{Opening, call};
use crate::forms::python::text::Text;
use crate::forms::pytorch::{ADDED, attention_inputs};
use crate::program::Test;
use crate::request::Request;

type Made = Result<(Text, Vec<String>), Error>;

/// Maximum constant for which a position plus or minus a constant always fits in 32 bits.
const SMALL: u64 = 1 << 29;

/// Returns the sizes of the array of cells, `(batch or 1, heads or 1, q_len, kv_len)`, as Python code. A size is 1 if
/// the cells do not depend on the batch row or head.
fn own_sizes(request: &Request<'_>) -> String {
    let [batch, heads, q_len, kv_len] = request.sizes(request.program.uses(&request.program.root));
    format!("({batch}, {heads}, {q_len}, {kv_len})")
}

pub(crate) fn jax(request: &Request<'_>) -> Made {
    // by default, JAX computes with 32 bits
    let wide = request.program.has(&|test| matches!(test, Test::Drawn { .. })) || request.program.largest() > SMALL;
    let library = if wide { Library::NumPy } else { Library::Jax };
    let shape = request.shape;
    let sizes = |len: usize, heads: usize| format!("[{}, {len}, {heads}, head_dim]", shape.batch_len());
    let given = [
        ("query", sizes(shape.q_len(), shape.head_count())),
        ("key, value", sizes(shape.kv_len(), shape.kv_head_count())),
    ];
    let imports = "import jax\nimport jax.numpy as jnp\nimport numpy as np";
    let Opening { mut out, names, scores, .. } = request.opening(library, imports, &given, &ADDED)?;
    request.refuse_empty_rows("the mean of all values")?;
    let mut cells = request.keep(library, &own_sizes(request));
    let mut arguments: Vec<String> = ["query", "key", "value"].map(String::from).into();
    if let Some(sum) = scores.sum() {
        cells.append(scores.setup);
        cells.line(format!("added = {sum}"));
        arguments.push("bias=added".into());
    }
    if wide {
        cells.line("keep = jnp.asarray(keep)");
    }
    arguments.push("mask=keep".into());
    out.block(cells);
    out.gap();
    out.line(call("output = jax.nn.dot_product_attention", &arguments));
    Ok((out, names))
}

pub(crate) fn keras(request: &Request<'_>) -> Made {
    let shape = request.shape;
    let sizes = |len: usize| format!("[{}, {len}, features]", shape.batch_len());
    let given = [("query", sizes(shape.q_len())), ("key, value", sizes(shape.kv_len()))];
    let Opening { mut out, names, uses, .. } =
        request.opening(Library::NumPy, "import keras\nimport numpy as np", &given, &[])?;
    request.refuse_empty_rows("the mean of all values")?;
    let mut cells = request.keep(Library::NumPy, &own_sizes(request));
    if !uses.head {
        cells.line("keep = keep[:, 0]  # [batch or 1, q_len, kv_len]");
    }
    out.block(cells);
    out.gap();
    let heads = shape.head_count();
    out.line(format!("attention = keras.layers.MultiHeadAttention({heads}, key_dim=query.shape[-1] // {heads})"));
    out.line("output = attention(query, value, key=key, attention_mask=keep)");
    Ok((out, names))
}

pub(crate) fn numpy(request: &Request<'_>) -> Made {
    let (shape, kinds) = (request.shape, ["bias", "relative", "alibi", "softcap", "soft", "sinks"]);
    let Opening { mut out, names, scores, .. } =
        request.opening(Library::NumPy, "import numpy as np", &attention_inputs(request), &kinds)?;
    out.block(request.keep(Library::NumPy, &own_sizes(request)));
    let mut text = Text::default();
    let groups = shape.head_count() / shape.kv_head_count().max(1);
    if groups > 1 {
        text.line(format!(
            "key, value = np.repeat(key, {groups}, axis=1), np.repeat(value, {groups}, axis=1)  # shared by query heads"
        ));
    }
    text.line("scores = np.einsum(\"bhqd,bhkd->bhqk\", query, key) / np.sqrt(query.shape[-1])");
    if let Some(cap) = scores.softcap {
        let cap = real(cap);
        text.line(format!("scores = {cap} * np.tanh(scores / {cap})"));
    }
    let sum = scores.sum();
    text.append(scores.setup);
    if let Some(sum) = sum {
        text.line(format!("scores = scores + {sum}").replace("+ -", "- "));
    }
    if let Some(soft) = scores.soft {
        text.line(format!("with np.errstate(divide=\"ignore\"):\n    scores = scores + np.log({soft})"));
    }
    text.line("scores = np.where(keep, scores, -np.inf)");
    text.line("highest = scores.max(axis=-1, keepdims=True)");
    if let Some(sinks) = &scores.sinks {
        text.line(format!("highest = np.maximum(highest, {sinks}[:, None, None])"));
    }
    text.line("highest = np.where(np.isfinite(highest), highest, 0)\nweights = np.exp(scores - highest)");
    text.line("total = weights.sum(axis=-1, keepdims=True)");
    if let Some(sinks) = &scores.sinks {
        text.line(format!("total = total + np.exp({sinks}[:, None, None] - highest)"));
    }
    text.line("weights = weights / np.where(total == 0, 1, total)  # a query that reads nothing has weights 0");
    text.line("output = np.einsum(\"bhqk,bhkd->bhqd\", weights, value)");
    out.block(text);
    Ok((out, names))
}

pub(crate) fn onnx(request: &Request<'_>) -> Made {
    let (shape, kinds) = (request.shape, ["bias", "relative", "alibi", "softcap"]);
    let imports =
        "import numpy as np\nfrom onnx import TensorProto, helper\nfrom onnx.reference import ReferenceEvaluator";
    let Opening { mut out, names, scores, .. } =
        request.opening(Library::NumPy, imports, &attention_inputs(request), &kinds)?;
    let sum = scores.sum();
    let mut cells = request.keep(Library::NumPy, &own_sizes(request));
    cells.append(scores.setup);
    let kind = if sum.is_some() { "FLOAT" } else { "BOOL" };
    cells.line(match sum {
        Some(sum) => format!("attn_mask = np.where(keep, {sum}, -np.inf).astype(np.float32)"),
        None => "attn_mask = np.ascontiguousarray(keep)".into(),
    });
    out.block(cells);
    let softcap = scores.softcap.map(|cap| format!(", softcap={}", real(cap))).unwrap_or_default();
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    let mut text = Text::default();
    text.line(format!(
        "node = helper.make_node(\"Attention\", [\"query\", \"key\", \"value\", \"attn_mask\"], [\"output\"]{softcap})"
    ));
    text.line("inputs = [");
    for (name, heads, len) in
        [("query", heads, shape.q_len()), ("key", kv_heads, shape.kv_len()), ("value", kv_heads, shape.kv_len())]
    {
        text.line(format!(
            "    helper.make_tensor_value_info(\"{name}\", TensorProto.FLOAT, [{batch}, {heads}, {len}, \"head_dim\"]),"
        ));
    }
    text.line(format!("    helper.make_tensor_value_info(\"attn_mask\", TensorProto.{kind}, attn_mask.shape),\n]"));
    let sizes = format!("[{batch}, {heads}, {}, \"head_dim\"]", shape.q_len());
    text.line(format!("outputs = [helper.make_tensor_value_info(\"output\", TensorProto.FLOAT, {sizes})]"));
    text.line("graph = helper.make_graph([node], \"attention\", inputs, outputs)");
    text.line("model = helper.make_model(graph, opset_imports=[helper.make_opsetid(\"\", 23)], ir_version=10)");
    text.line("feeds = {\"query\": query, \"key\": key, \"value\": value, \"attn_mask\": attn_mask}");
    text.line("(output,) = ReferenceEvaluator(model).run(None, feeds)");
    out.block(text);
    Ok((out, names))
}
