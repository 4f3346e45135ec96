//! Code for noren in Rust.

use crate::Error;
use crate::forms::native::{Binds, Fact, Language, expression, facts, places};
use crate::forms::python::scores::{array_of, variable};
use crate::forms::python::text::{Text, list};
use crate::forms::pytorch::attention_inputs;
use crate::program::Program;
use crate::program::ground::Ground;
use crate::request::Request;
use noren_mask::atoms::*;
use noren_mask::{Arm, Mask, Score, Selector, Shape, Span};
use std::fmt::Write as _;

/// The language Rust, in which mask expressions are written.
struct Rust;

fn optional(number: Option<i64>) -> String {
    number.map_or("None".into(), |number| number.to_string())
}

impl Language for Rust {
    const NOT: &'static str = "!";
    const MODULE: &'static str = "";
    const GLOBAL: &'static str = "global";

    fn numbers(list: &[impl ToString]) -> String {
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        format!("[{}]", texts.join(", "))
    }

    fn span(span: &Span) -> String {
        match span {
            Span { start, end: Some(end) } => format!("{start}..{end}"),
            Span { start, end: None } => format!("{start}.."),
        }
    }

    /// Returns spans as a Rust array. The ranges of an array must have one type, so `4..` is a `Span` unless it is alone.
    fn spans(spans: &[Span]) -> String {
        let uniform = spans.len() == 1 || spans.iter().all(|span| span.end.is_some());
        let each = |span| if uniform { Self::span(span) } else { format!("Span::from({})", Self::span(span)) };
        match spans {
            [] => "Vec::<Span>::new()".into(),
            spans => Self::numbers(&spans.iter().map(each).collect::<Vec<_>>()),
        }
    }

    fn label(name: &str) -> String {
        format!("Positions::label({name:?})")
    }

    fn text(text: &str) -> String {
        format!("{text:?}")
    }

    fn own_atom(mask: &Mask) -> Option<String> {
        Some(if let Some(atom) = mask.atom_as::<Causal>() {
            if atom.offset == 0 { "causal()".into() } else { format!("causal_offset({})", atom.offset) }
        } else if let Some(atom) = mask.atom_as::<Window>() {
            format!("window({}, {})", optional(atom.left), optional(atom.right))
        } else if let Some(atom) = mask.atom_as::<Padding>() {
            padding(atom)
        } else if let Some(atom) = mask.atom_as::<Documents>() {
            atom.lengths.as_ref().map_or("documents()".into(), |list| format!("documents_of({})", Self::numbers(list)))
        } else if let Some(atom) = mask.atom_as::<Tree>() {
            let mut text = format!("Tree::new({})", Self::numbers(&atom.parents));
            if !atom.runs.is_empty() {
                let _ = write!(text, ".runs({})", Self::numbers(&atom.runs));
            }
            let limits =
                [("window", atom.window), ("chunk", atom.chunk), ("start", (atom.start > 0).then_some(atom.start))];
            for (name, value) in limits {
                if let Some(value) = value {
                    let _ = write!(text, ".{name}({value})");
                }
            }
            text + ".mask()"
        } else if let Some(atom) = mask.atom_as::<Neighborhood>() {
            let [grid, size, dilation] = [&atom.grid, &atom.size, &atom.dilation].map(|list| Self::numbers(list));
            match atom.dilation.iter().all(|d| *d == 1) {
                true => format!("neighborhood({grid}, {size})"),
                false => format!("neighborhood_dilated({grid}, {size}, {dilation})"),
            }
        } else {
            return None;
        })
    }

    fn arms(word: &str, arms: &[Arm], masks: &[String]) -> String {
        let arm = |(arm, mask): (&Arm, &String)| match &arm.selector {
            Selector::Spans(spans) => format!("arm({}, {mask})", places::<Self>(spans)),
            Selector::Every { step, from: 0 } => format!("arm(Selector::every({step}), {mask})"),
            Selector::Every { step, from } => format!("arm(Selector::Every {{ step: {step}, from: {from} }}, {mask})"),
            Selector::Else => format!("otherwise({mask})"),
        };
        format!("{word}({})", Self::numbers(&arms.iter().zip(masks).map(arm).collect::<Vec<_>>()))
    }
}

fn padding(Padding { side, lengths, both }: &Padding) -> String {
    if side.is_none() && lengths.is_none() && !both {
        return "padding()".into();
    }
    let side = side.map_or("None".into(), |side| format!("Some(Side::{side:?})"));
    let lengths = lengths.as_ref().map_or("None".into(), |list| format!("Some(vec!{})", Rust::numbers(list)));
    format!("padding_with(Padding {{ side: {side}, lengths: {lengths}, both: {both} }})")
}

/// Returns the position of the first query of each batch row as a call of `Attend`; empty if all positions are 0 by
/// default.
fn offset_code(shape: &Shape) -> String {
    let offsets: Vec<i64> = (0..shape.batch_len()).map(|row| shape.query_offset(row)).collect();
    match &offsets[..] {
        [0, rest @ ..] if rest.iter().all(|n| *n == 0) && shape.q_len() == shape.kv_len() => String::new(),
        [first, rest @ ..] if rest.iter().all(|n| n == first) => format!(".query_offset({first})"),
        offsets => format!(".query_offsets({})", Rust::numbers(offsets)),
    }
}

/// Returns `items` as a Rust array, broken into lines if it is long.
fn array(items: &[impl ToString]) -> String {
    list(24, items.iter().map(ToString::to_string)).replace('\n', "\n    ")
}

/// Returns `items` as a call of `vec!`, broken into lines if it is long.
fn vector(items: &[impl ToString]) -> String {
    format!("vec!{}", array(items))
}

/// Returns the code of a fact: one list if `rows` has one entry, which applies to all batch rows; otherwise one list
/// for each batch row.
fn rows_of(rows: &[Vec<i64>]) -> String {
    match rows {
        [row] => vector(row),
        rows => vector(&rows.iter().map(|row| vector(row)).collect::<Vec<_>>()),
    }
}

fn fact_code(fact: &Fact, program: &Program) -> String {
    match fact {
        Fact::Lengths(list) => format!(".lengths({})", array(list)),
        Fact::LeftPadding => ".side(Side::Left)".into(),
        Fact::RealKeys(rows) => {
            let ranges = |row: &Vec<(u32, u32)>| {
                let runs: Vec<String> = row.iter().map(|(start, end)| format!("{start}..{end}")).collect();
                match &runs[..] {
                    [] => "IntervalSet::from(0..0)".to_string(),
                    [run] => format!("IntervalSet::from({run})"),
                    runs => format!("IntervalSet::from_iter([{}])", runs.join(", ")),
                }
            };
            format!(".real_keys({})", vector(&rows.iter().map(ranges).collect::<Vec<_>>()))
        }
        Fact::QueryLengths(list) => format!(".query_lengths({})", array(list)),
        Fact::Documents(rows) => format!(".documents({})", rows_of(rows)),
        Fact::Label(label, rows) => match &rows[..] {
            [row] => format!(".label({label:?}, {})", Rust::spans(row)),
            rows => {
                let span = |span: &Span| format!("({}).into()", Rust::span(span));
                let each = |row: &Vec<Span>| vector(&row.iter().map(span).collect::<Vec<_>>());
                format!(".label_rows({label:?}, {})", vector(&rows.iter().map(each).collect::<Vec<_>>()))
            }
        },
        Fact::Levels(rows) => format!(".levels({})", rows_of(rows)),
        Fact::Positions(rows) => format!(".positions({})", rows_of(rows)),
        Fact::Array(name, shape, Some(cells)) => {
            let cells: Vec<String> = cells.iter().map(|cell| u8::from(*cell).to_string()).collect();
            let cells = list(24, cells).replace('\n', "\n    ");
            format!(".array({name:?}, Array::keep(&{shape:?}, &{cells}.map(|cell| cell == 1))?)")
        }
        Fact::Array(name, ..) => format!(".array({name:?}, {})", program.variable_of(name)),
    }
}

fn score_code(score: &Score) -> String {
    match score {
        Score::Bias { name } => format!("Score::bias({name:?})"),
        Score::Relative { name } => format!("Score::relative({name:?})"),
        Score::Alibi { slopes: None } => "Score::alibi()".into(),
        Score::Alibi { slopes: Some(slopes) } => {
            let slopes: Vec<String> = slopes.iter().map(|slope| format!("{:?}", slope.get())).collect();
            format!("Score::alibi_with({})", Rust::numbers(&slopes))
        }
        Score::Softcap { cap } => format!("Score::softcap({:?})", cap.get()),
        Score::Soft { name } => format!("Score::soft({name:?})"),
        Score::Sinks { name } => format!("Score::sinks({name:?})"),
        other => format!("{other:?}"),
    }
}

/// Types that the code imports if it uses them, as (name, text in the code that shows the use, true if the type is
/// exported by `noren` itself).
const TYPES: [(&str, &str, bool); 8] = [
    ("Array", "Array::", true),
    ("Facts", "Facts::", true),
    ("IntervalSet", "IntervalSet::", false),
    ("Score", "Score::", true),
    ("Selector", "Selector::", false),
    ("Positions", "Positions::label", true),
    ("Side", "Side::", true),
    ("Span", "Span", false),
];

/// Returns the `use` lines that `code` needs.
fn imports(code: &str) -> Text {
    let used =
        |own: bool| TYPES.iter().filter(move |(_, word, of)| *of == own && code.contains(word)).map(|(name, ..)| *name);
    let mut out = Text::default();
    let mut names = vec!["Attend"];
    names.extend(used(true));
    out.line(format!("use noren::{{{}, atoms::*}};", names.join(", ")));
    for name in used(false) {
        let module = if name == "IntervalSet" { "noren_mask::interval" } else { "noren_mask" };
        out.line(format!("use noren::{module}::{name};"));
    }
    out
}

pub(crate) fn rust(request: &Request<'_>, ground: &Ground<'_>) -> Result<(Text, Vec<String>), Error> {
    let (mask, facts) = (&request.spec.mask, facts(&request.spec.mask, ground)?);
    let (mut given, mut names) = (Text::default(), vec!["query".to_string(), "key".into(), "value".into()]);
    for (name, sizes) in attention_inputs(request) {
        given.line(format!("// {name}: (&[f32], {sizes})"));
    }
    for fact in &facts {
        if let Fact::Array(name, shape, None) = fact {
            let variable = request.program.variable_of(name);
            given.line(format!("// {variable}: an Array of {shape:?}, true where the query may read the key"));
            names.push(variable);
        }
    }
    let (mut body, mut options) = (Text::default(), Vec::new());
    for score in &request.spec.scores {
        let Some(array) = array_of(score) else { continue };
        let variable = variable(request, array);
        if !names.contains(&variable) {
            given.line(format!("// {variable}: (&[f32], {})", sizes_of(request.shape, score)));
            options.push(format!(".array({array:?}, {variable})?"));
            names.push(variable);
        }
    }
    body.line(format!("let mask = {};", expression::<Rust>(mask, Binds::Or)?));
    let made: Vec<String> = facts.iter().map(|fact| fact_code(fact, request.program)).collect();
    if !made.is_empty() {
        let one_line = made.concat();
        body.line(match one_line.len() + 32 <= 100 && !one_line.contains('\n') {
            true => format!("let facts = Facts::new(){one_line};"),
            false => format!("let facts = Facts::new()\n    {};", made.join("\n    ")),
        });
        options.insert(0, ".facts(facts)".into());
    }
    options.push(offset_code(request.shape));
    let scores: String = request.spec.scores.iter().map(|score| format!(" + {}", score_code(score))).collect();
    let one_line = format!("let attend = Attend::new(mask{scores})?{};", options.concat());
    options.retain(|option| !option.is_empty());
    body.line(match one_line.len() <= 100 {
        true => one_line,
        false => format!("let attend = Attend::new(mask{scores})?\n    {};", options.join("\n    ")),
    });
    body.line("let output = attend.forward(query, key, value)?.out;");
    let code = body.finish();
    let mut out = imports(&code);
    out.block(given);
    out.gap();
    out.line(code.trim_end());
    Ok((out, names))
}

/// Returns the sizes of the array of a score modifier, as code for `Attend::array`.
fn sizes_of(shape: &Shape, score: &Score) -> String {
    let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
    match score {
        Score::Relative { .. } => format!("[1, {heads}, 1, 2 * reach + 1]"),
        Score::Sinks { .. } => format!("[1, 1, 1, {heads}]"),
        _ => format!("[{batch}, {heads}, {q_len}, {kv_len}]"),
    }
}
