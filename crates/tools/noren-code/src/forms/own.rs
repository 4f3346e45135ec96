//! Code for noren in Python.

use crate::Error;
use crate::forms::native::{Binds, Fact, Language, expression, facts, places};
use crate::forms::python::scores::{Scores, array_of, kind, real, variable};
use crate::forms::python::statements::{call, inputs};
use crate::forms::python::text::{Text, list};
use crate::forms::pytorch::attention_inputs;
use crate::program::Program;
use crate::program::ground::Ground;
use crate::request::Request;
use noren_mask::atoms::*;
use noren_mask::{Arm, Mask, Score, Selector, Side, Span};
use std::fmt::Display;

/// The language Python, in which mask expressions are written.
struct Python;

/// Returns ranges of positions as a Python list for `nr.Facts`. A range without an end is written as a string such as
/// `"4.."`.
fn positions(spans: &[Span]) -> String {
    let one = |of: &Span| if of.end.is_none() { format!("\"{}..\"", of.start) } else { Python::span(of) };
    list(20, spans.iter().map(one))
}

/// Returns a call of the function `name` of noren. Arguments that are `None` are left out.
fn called(name: &str, arguments: impl IntoIterator<Item = Option<String>>) -> String {
    let arguments: Vec<String> = arguments.into_iter().flatten().collect();
    format!("nr.{name}({})", arguments.join(", "))
}

impl Language for Python {
    const NOT: &'static str = "~";
    const MODULE: &'static str = "nr.";
    const GLOBAL: &'static str = "global_";

    fn numbers(numbers: &[impl ToString]) -> String {
        list(20, numbers.iter().map(ToString::to_string))
    }

    fn span(span: &Span) -> String {
        match span {
            Span { start, end: Some(end) } if *end == start + 1 => start.to_string(),
            Span { start: 0, end: Some(end) } => format!("range({end})"),
            Span { start, end: Some(end) } => format!("range({start}, {end})"),
            Span { start, end: None } => format!("slice({start}, None)"),
        }
    }

    fn spans(spans: &[Span]) -> String {
        list(20, spans.iter().map(Self::span))
    }

    fn label(name: &str) -> String {
        format!("label={}", Self::text(name))
    }

    fn text(text: &str) -> String {
        let escaped = text.chars().map(|c| match c {
            '"' => "\\\"".into(),
            '\\' => "\\\\".into(),
            '\n' => "\\n".into(),
            c if c == '\'' || c.escape_debug().len() == 1 => c.to_string(),
            c => format!("\\U{:08x}", u32::from(c)),
        });
        format!("\"{}\"", escaped.collect::<String>())
    }

    fn own_atom(mask: &Mask) -> Option<String> {
        fn named(name: &str, value: Option<impl Display>) -> Option<String> {
            value.map(|value| format!("{name}={value}"))
        }
        let listed = |list: &Option<Vec<usize>>| list.as_ref().map(|list| Python::numbers(list));
        Some(if let Some(atom) = mask.atom_as::<Causal>() {
            called("causal", [named("offset", (atom.offset != 0).then_some(atom.offset))])
        } else if let Some(atom) = mask.atom_as::<Window>() {
            called("window", [named("left", atom.left), named("right", atom.right)])
        } else if let Some(atom) = mask.atom_as::<Padding>() {
            let side = atom.side.map(|side| if side == Side::Left { "\"left\"" } else { "\"right\"" });
            let both = atom.both.then_some("\"both\"");
            called("padding", [named("side", side), named("lengths", listed(&atom.lengths)), named("on", both)])
        } else if let Some(atom) = mask.atom_as::<Documents>() {
            called("documents", [listed(&atom.lengths)])
        } else if let Some(atom) = mask.atom_as::<Tree>() {
            let arguments = [
                Some(Python::numbers(&atom.parents)),
                named("start", (atom.start > 0).then_some(atom.start)),
                named("runs", (!atom.runs.is_empty()).then(|| Python::numbers(&atom.runs))),
                named("window", atom.window),
                named("chunk", atom.chunk),
            ];
            called("tree", arguments)
        } else if let Some(atom) = mask.atom_as::<Neighborhood>() {
            let dilation = (!atom.dilation.iter().all(|d| *d == 1)).then(|| Python::numbers(&atom.dilation));
            called("neighborhood", [Some(Python::numbers(&atom.grid)), Some(Python::numbers(&atom.size)), dilation])
        } else {
            return None;
        })
    }

    fn arms(word: &str, arms: &[Arm], masks: &[String]) -> String {
        let selector = |selector: &Selector| match selector {
            Selector::Spans(spans) => places::<Self>(spans),
            Selector::Every { step, from: 0 } => format!("\"every {step}\""),
            Selector::Every { step, from } => format!("\"every {step} from {from}\""),
            Selector::Else => "\"else\"".into(),
        };
        let pairs = arms.iter().zip(masks).map(|(arm, mask)| format!("({}, {mask})", selector(&arm.selector)));
        let other = arms.iter().all(|arm| arm.selector != Selector::Else).then(|| "(\"else\", nr.none())".to_owned());
        format!("nr.{word}({})", list(20, pairs.chain(other)))
    }
}

fn rows_of<T>(rows: &[T], one: impl Fn(&T) -> String) -> String {
    match rows {
        [row] => one(row),
        rows => list(20, rows.iter().map(one)),
    }
}

fn fact_code(fact: &Fact, program: &Program) -> String {
    match fact {
        Fact::Lengths(list) => format!("lengths={}", Python::numbers(list)),
        Fact::LeftPadding => "side=\"left\"".into(),
        Fact::RealKeys(rows) => {
            let ranges =
                |row: &Vec<(u32, u32)>| list(20, row.iter().map(|(start, end)| format!("range({start}, {end})")));
            format!("real_keys={}", list(20, rows.iter().map(ranges)))
        }
        Fact::QueryLengths(list) => format!("query_lengths={}", Python::numbers(list)),
        Fact::Documents(rows) => format!("documents={}", rows_of(rows, |row| Python::numbers(row))),
        Fact::Label(label, rows) => format!("{}: {}", Python::text(label), rows_of(rows, |row| positions(row))),
        Fact::Levels(rows) => format!("levels={}", rows_of(rows, |row| Python::numbers(row))),
        Fact::Positions(rows) => format!("positions={}", rows_of(rows, |row| Python::numbers(row))),
        Fact::Array(name, [batch, heads, q_len, kv_len], Some(cells)) => {
            let row = |row: &[bool]| list(0, row.iter().map(|cell| u8::from(*cell)));
            let plane = |cells: &[bool]| list(20, cells.chunks(*kv_len).map(row));
            let head = |cells: &[bool]| list(20, cells.chunks(q_len * kv_len).map(plane));
            let cells = match batch * heads {
                1 => plane(cells),
                _ => list(20, cells.chunks(heads * q_len * kv_len).map(head)),
            };
            format!("{}: nr.Array.keep(np.array({cells}) == 1)", Python::text(name))
        }
        Fact::Array(name, ..) => format!("{}: nr.Array.keep({})", Python::text(name), program.variable_of(name)),
    }
}

/// Returns the arguments of the call of `nr.Facts`. All labels form one argument, and all arrays form another.
fn arguments(facts: &[Fact], program: &Program) -> Vec<String> {
    let (mut out, mut labels, mut arrays) = (Vec::new(), Vec::new(), Vec::new());
    for fact in facts {
        let code = fact_code(fact, program);
        match fact {
            Fact::Label(..) => labels.push(code),
            Fact::Array(..) => arrays.push(code),
            _ => out.push(code),
        }
    }
    for (name, items) in [("labels", labels), ("arrays", arrays)] {
        if !items.is_empty() {
            out.push(format!("{name}={{{}}}", items.join(", ")));
        }
    }
    out
}

fn score_code(score: &Score) -> String {
    let named = |name: &str| {
        let kind = kind(score);
        if name == kind { format!("nr.{kind}()") } else { format!("nr.{kind}({})", Python::text(name)) }
    };
    match score {
        Score::Bias { name } | Score::Relative { name } | Score::Soft { name } | Score::Sinks { name } => named(name),
        Score::Alibi { slopes: Some(slopes) } => {
            format!("nr.alibi({})", Python::numbers(&slopes.iter().map(|slope| real(slope.get())).collect::<Vec<_>>()))
        }
        Score::Softcap { cap } => format!("nr.softcap({})", real(cap.get())),
        _ => "nr.alibi()".into(),
    }
}

/// Returns the sizes of the array of a score modifier, as text for a comment.
fn sizes_of(request: &Request<'_>, score: &Score) -> String {
    let shape = request.shape;
    let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
    match score {
        Score::Relative { .. } => format!("[{heads}, 2 * reach + 1]"),
        Score::Sinks { .. } => format!("[{heads}]"),
        Score::Soft { .. } => format!("[{batch}, {heads}, {q_len}, {kv_len}], weights from 0 to 1"),
        _ => format!("[{batch}, {heads}, {q_len}, {kv_len}]"),
    }
}

pub(crate) fn python(request: &Request<'_>, ground: &Ground<'_>) -> Result<(Text, Vec<String>), Error> {
    let (shape, facts) = (request.shape, facts(&request.spec.mask, ground)?);
    let mut scores = Scores::default();
    for score in &request.spec.scores {
        if let Some(name) = array_of(score) {
            let name = variable(request, name);
            if !scores.inputs.iter().any(|input| input.0 == name) {
                scores.inputs.push((name, sizes_of(request, score)));
            }
        }
    }
    let supplied = facts.iter().filter_map(|fact| match fact {
        Fact::Array(name, shape, None) => Some((request.program.variable_of(name), *shape)),
        _ => None,
    });
    let (inputs, names) = inputs(&attention_inputs(request), supplied, &scores);
    let mut out = Text::default();
    let listed = facts.iter().any(|fact| matches!(fact, Fact::Array(_, _, Some(_))));
    out.line(if listed { "import noren as nr\nimport numpy as np" } else { "import noren as nr" });
    out.block(inputs);
    out.gap();
    out.line(format!("mask = {}", expression::<Python>(&request.spec.mask, Binds::Or)?));
    let offsets = ground.offsets();
    let offset = match &offsets[..] {
        [offset] => offset.to_string(),
        offsets => Python::numbers(offsets),
    };
    let mut sizes = vec![shape.q_len().to_string(), shape.kv_len().to_string(), format!("query_offset={offset}")];
    for (name, size, usual) in [
        ("batch", shape.batch_len(), 1),
        ("heads", shape.head_count(), 1),
        ("kv_heads", shape.kv_head_count(), shape.head_count()),
    ] {
        if size != usual {
            sizes.push(format!("{name}={size}"));
        }
    }
    out.line(format!("shape = nr.Shape({})", sizes.join(", ")));
    let arguments = arguments(&facts, request.program);
    let known = if arguments.is_empty() { "" } else { ", facts" };
    if !arguments.is_empty() {
        out.line(call("facts = nr.Facts", &arguments).replace("\n]", "\n    ]").replace("\n    ),", "\n),"));
    }
    out.line(format!("bound = mask.bind(shape{known})"));
    out.gap();
    if request.spec.scores.is_empty() {
        out.line("output = nr.attention(query, key, value, bound)");
        return Ok((out, names));
    }
    let scored: Vec<String> = request.spec.scores.iter().map(score_code).collect();
    let mut arguments: Vec<String> = ["query", "key", "value"].map(String::from).into();
    arguments.push(format!("mask + {}", scored.join(" + ")));
    if !known.is_empty() {
        arguments.push("facts=facts".into());
    }
    arguments.push(format!("query_offset={offset}"));
    if !scores.inputs.is_empty() {
        let names: Vec<&str> = request.spec.scores.iter().filter_map(array_of).collect();
        let first = names.iter().enumerate().filter(|(i, name)| !names[..*i].contains(name));
        let named = first.map(|(_, name)| format!("{}: {}", Python::text(name), variable(request, name)));
        arguments.push(format!("arrays={{{}}}", named.collect::<Vec<_>>().join(", ")));
    }
    out.line(call("output = nr.attention", &arguments));
    Ok((out, names))
}
