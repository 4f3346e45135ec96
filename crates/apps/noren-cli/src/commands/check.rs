//! `noren check`: diagnoses and repairs a mask in a file.

use crate::args::{FactArgs, ShapeArgs, bind, parse, read_text};
use crate::failure::{Failure, Result};
use crate::output::{BAD, DIM, GOOD, STRONG, Screen, highlight};
use crate::target::Target;
use crate::verdict::Verdict;
use anstyle::Style;
use clap::Args;
use noren_doctor::{Context, Input, Report};
use noren_input::Sizes;
use noren_input::arrays::{read_all, read_one};
use noren_input::npy::{write_npy, write_npy_values};
use noren_input::sizes::mask_sizes;
use noren_mask::Spec;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// File of the mask: npy, npz or safetensors; in a file with several arrays, the array `mask` is the mask, and the
    /// other arrays describe the batch, as with --with
    #[arg(required_unless_present = "cases")]
    file: Option<PathBuf>,
    /// An array that describes the batch of the mask, as name=file: input_ids=ids.npy (also position_ids, segment_ids,
    /// lengths, labels, hidden, pooled, ...)
    #[arg(long = "with", value_name = "NAME=FILE")]
    with: Vec<String>,
    /// A declaration about the mask, as key=value: kind=causal (sliding, bidirectional, prefix_lm, causal_packed, cross, ...),
    /// role=attn (queries by keys), key_padding (one row of keys for each batch row) or cross, api=sdpa (mha, transformers,
    /// keras, jax, ...), convention=keep_bool (true may attend), ignore_bool (true is ignored), keep_01 or additive;
    /// past_len=16, window=4, pad_token_id=0, padding_side=left, ...
    #[arg(long, short, value_name = "KEY=VALUE")]
    declare: Vec<String>,
    /// JSON file with declarations about the mask: {"kind": "causal", "past_len": 16}
    #[arg(long, value_name = "FILE")]
    context: Option<PathBuf>,
    /// The intended mask, as an expression; every cell of the file in rows of non-padding queries is compared with it. Sizes
    /// that are not given are those of the file
    #[arg(long, value_name = "MASK")]
    meant: Option<String>,
    /// Write the repaired mask to this npy file, in the shape, number type and convention of the given mask; nothing is
    /// written if no known mistake explains all wrong cells, or if the repair needs another shape
    #[arg(long, value_name = "FILE")]
    fix: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Diagnose every case of this JSON file, in the format of testdata/conformance/doctor
    #[arg(long, value_name = "FILE", requires = "output", conflicts_with_all = ["file", "meant", "fix", "json"])]
    cases: Option<PathBuf>,
    /// Write an SVG picture with the wrong cells marked; with --cases, write the diagnoses to this JSON file, and the
    /// repaired masks to the folder of this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
}

const EXAMPLES: &str = "\
The exit code is 0 when the mask is correct (every compared cell equals the declared cell), 1 when it is faulty (without declarations, only if a known mistake explains every cell), 2 when the input cannot be used, 3 when there is no verdict: the mask looks like a known mask but nothing is declared, or the declarations allow several readings. docs/doctor.md describes every class of mistake, with a picture. Pickled data is never loaded.

Examples:
  noren check mask.npy -d kind=causal
  noren check mask.npy -d kind=causal -d past_len=16 -d convention=additive --with input_ids=ids.npy -d pad_token_id=0
  noren check batch.npz --context context.json --fix repaired.npy -o wrong.svg
  noren check mask.npy --meant 'causal & padding' --lengths 9,5
  noren check --cases inputs.json -o preds.json";

/// The colours of the words with which lines of a report begin.
const STYLES: [(&str, Style); 12] = [
    ("correct:", GOOD),
    ("faulty:", BAD),
    ("looks like:", STRONG),
    ("cannot tell:", STRONG),
    ("error:", BAD),
    ("warning:", STRONG),
    ("note:", DIM),
    ("question:", STRONG),
    ("  repair:", DIM),
    ("  usually caused by:", DIM),
    ("compared:", DIM),
    ("not known:", DIM),
];

/// Maximum number of cells of a mask for which a picture is drawn.
const MOST_DRAWN: usize = 1 << 24;

pub(crate) fn run(args: &CheckArgs, screen: &mut Screen) -> Result<Verdict> {
    if let (Some(cases), Some(output)) = (&args.cases, &args.output) {
        return run_cases(cases, output, screen);
    }
    let Some(file) = &args.file else { return Err(Failure::new("there is no mask to check: give the file of a mask")) };
    let target = args.fix.as_deref().map(Target::new).transpose()?;
    let picture = args.output.as_deref().map(|path| Target::svg(path, "end the file name with .svg")).transpose()?;
    let mut input = Input::of_arrays(read_all(file)?);
    for pair in &args.with {
        let (name, path) =
            pair.split_once('=').ok_or_else(|| Failure::new(format!("--with {pair}: give NAME=FILE")))?;
        input = input.companion(name, read_one(Path::new(path))?);
    }
    input = input.context(declared(args)?);
    if let Some(text) = &args.meant {
        let spec = parse(text, args.facts.layer)?;
        let shape = sized(args, &spec, &input)?;
        let facts = FactArgs { of_arrays: input.facts().used_by(&spec.mask), ..args.facts.clone() };
        let bound = bind(std::slice::from_ref(text), &shape, &facts, &Sizes::default())?;
        let placed = !args.shape.query_offset.is_empty() || args.shape.past.is_some();
        input = input.intended(&spec, &bound.masks[0], placed)?;
    }
    let report = input.diagnose()?;
    if let (Some(target), Some(repair)) = (&target, &report.repair) {
        target.write(|out| write_npy_values(out, repair))?;
    }
    if let (Some(path), None, false) = (&args.fix, &report.repair, args.json) {
        let reason = match (&report.fixed, report.faulty()) {
            (Some(fixed), true) if report.given.as_ref() != Some(fixed) => {
                format!("the repaired mask has another shape: {:?}", fixed.dims())
            }
            _ => "the report has no repaired mask".to_string(),
        };
        screen.line(format!("{}: not written, because {reason}", path.display()))?;
    }
    if let Some(picture) = &picture {
        let svg = report.svg()?.ok_or_else(|| Failure::new("no picture can be drawn, because the file has no mask"))?;
        picture.write(|out| out.write_all(svg.as_bytes()))?;
    }
    match args.json {
        true => screen.json(&report.to_json())?,
        false => tell(&report, screen)?,
    }
    Ok(exit(report.verdict))
}

fn exit(verdict: noren_doctor::Verdict) -> Verdict {
    match verdict {
        noren_doctor::Verdict::Correct => Verdict::Yes,
        noren_doctor::Verdict::Faulty => Verdict::No,
        noren_doctor::Verdict::LooksLike | noren_doctor::Verdict::CannotTell => Verdict::Open,
    }
}

/// Returns the arguments of the shape to which the intended mask `meant` is bound. Those that are not given are of the array and of its
/// declarations.
fn sized(args: &CheckArgs, meant: &Spec, input: &Input) -> Result<ShapeArgs> {
    let given = args.shape.clone();
    if given.len.is_some() || given.q.is_some() || given.past.is_some() {
        return Ok(given);
    }
    let known = args.facts.read(&[])?.1.or(mask_sizes(meant));
    let Some(shape) = input.shape(given.batch.or(known.batch))? else { return Ok(given) };
    let offset = match &given.query_offset[..] {
        [] => (0..shape.batch_len()).map(|b| shape.query_offset(b)).collect(),
        given => given.to_vec(),
    };
    let several = |n: usize| (n > 1).then_some(n);
    let (batch, heads) = (given.batch.or(several(shape.batch_len())), given.heads.or(several(shape.head_count())));
    Ok(ShapeArgs { q: Some(shape.q_len()), kv: Some(shape.kv_len()), batch, heads, query_offset: offset, ..given })
}

/// Returns the declarations of the context file and of `--declare`. If both have the same key, the value of `--declare`
/// is used.
fn declared(args: &CheckArgs) -> Result<Context> {
    let mut map = match &args.context {
        Some(path) => match read_json(path)? {
            Value::Object(map) => map,
            _ => return Err(Failure::new(format!("{}: expected a JSON object", path.display()))),
        },
        None => Map::new(),
    };
    for pair in &args.declare {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| Failure::new(format!("--declare {pair}: give KEY=VALUE")))?;
        // A list is written as in JSON or without brackets: lengths=6,4.
        let listed = |_| serde_json::from_str(&format!("[{value}]"));
        let value = serde_json::from_str(value).or_else(listed).unwrap_or_else(|_| Value::String(value.to_string()));
        map.insert(key.to_string(), value);
    }
    if args.meant.is_none() {
        if args.facts.facts.is_some() || args.facts.layer.is_some() {
            return Err(Failure::new(
                "--facts and --layer belong to --meant: give --meant, or the arrays of the batch with --with, such as segment_ids",
            ));
        }
        let ShapeArgs { len, q, kv, past, new, query_offset, batch, heads, .. } = &args.shape;
        let offsets = (!query_offset.is_empty()).then(|| json!(query_offset));
        let lengths = (!args.facts.lengths.is_empty()).then(|| json!(args.facts.lengths));
        let side = args.facts.side.map(|side| json!(format!("{side:?}").to_lowercase()));
        let size = |n: &Option<usize>| n.map(Value::from);
        let declared = [
            ("q_len", size(q).or(size(len)).or(size(new))),
            ("kv_len", size(kv).or(size(len))),
            ("past_len", size(past).or(offsets)),
            ("batch", size(batch)),
            ("heads", size(heads)),
            ("lengths", lengths),
            ("padding_side", side),
        ];
        map.extend(declared.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
    }
    Ok(Context::from_map(&map)?)
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read_text(path)?)
        .map_err(|e| Failure::new(format!("{}: not valid JSON: {e}", path.display())))
}

fn tell(report: &Report, screen: &mut Screen) -> Result<()> {
    for line in report.to_string().lines() {
        screen.line(highlight(line, &STYLES))?;
    }
    let small = report.given.as_ref().is_some_and(|g| g.dims().iter().product::<usize>() <= MOST_DRAWN);
    if small
        && report.faulty()
        && let Some(picture) = report.picture(&screen.terminal())?
    {
        screen.text(format!("\n{picture}"))?;
    }
    Ok(())
}

/// Diagnoses every case of a file in the format of testdata/conformance/doctor.
fn run_cases(cases: &Path, output: &Path, screen: &mut Screen) -> Result<Verdict> {
    let target = Target::new(output)?;
    let Value::Object(all) = read_json(cases)? else {
        return Err(Failure::new(format!("{}: expected a JSON object with one entry for each case", cases.display())));
    };
    let folder = cases.parent().unwrap_or(Path::new("."));
    let beside = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = beside.canonicalize().map_err(|e| Failure::new(format!("{}: {e}", beside.display())))?;
    let mut answers = Map::new();
    let (mut faulty, mut unusable, mut correct) = (0, 0, 0);
    for (id, case) in &all {
        let answer = match one_case(case, folder) {
            Ok(report) => {
                faulty += usize::from(report.faulty());
                correct += usize::from(report.verdict == noren_doctor::Verdict::Correct);
                let fixed = match &report.fixed {
                    Some(fixed) => {
                        let path = beside.join(format!("{}_fixed.npy", file_stem(id)));
                        Target::new(&path)?.write(|out| write_npy(out, fixed))?;
                        json!(path)
                    }
                    None => Value::Null,
                };
                let classes = if report.faulty() { report.classes() } else { vec!["healthy"] };
                json!({ "verdict": report.verdict, "faulty": report.faulty(), "classes": classes, "fixed": fixed })
            }
            Err(Failure::Input(error)) => {
                unusable += 1;
                json!({ "faulty": null, "classes": [], "fixed": null, "error": error.message })
            }
            Err(other) => return Err(other),
        };
        answers.insert(id.clone(), answer);
    }
    let text = serde_json::to_string_pretty(&answers).map_err(|e| Failure::new(e.to_string()))?;
    target.write(|out| writeln!(out, "{text}"))?;
    screen.line(format!(
        "{} cases: {correct} correct, {faulty} faulty, {} without a verdict, {unusable} unusable",
        all.len(),
        all.len() - correct - faulty - unusable
    ))?;
    match (unusable, faulty) {
        (0, 0) if correct < all.len() => Ok(Verdict::Open),
        (0, 0) => Ok(Verdict::Yes),
        (0, _) => Ok(Verdict::No),
        _ => Err(Failure::new(format!(
            "{unusable} of {} cases cannot be used; the output file has the reasons",
            all.len()
        ))),
    }
}

/// Converts the name of a case to a part of a file name. Characters other than letters, digits, `-`, `_` and `.` are
/// replaced by `_`.
fn file_stem(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

fn one_case(case: &Value, folder: &Path) -> Result<Report> {
    let context = match case.get("context") {
        Some(Value::Object(map)) => Context::from_map(map)?,
        _ => Context::default(),
    };
    let Some(Value::Object(inputs)) = case.get("inputs") else {
        return Err(Failure::new(
            "the case has no inputs: expected {\"inputs\": {\"mask\": {\"file\": ...}}, \"context\": {...}}",
        ));
    };
    let mut mask = None;
    let mut beside = Vec::new();
    for (name, input) in inputs {
        let file = input.get("file").and_then(Value::as_str).or(input.as_str());
        let Some(file) = file else {
            return Err(Failure::new(format!(
                "the input {name:?} of the case has no file: expected {{\"file\": \"mask.npy\"}}"
            )));
        };
        let values = read_one(&folder.join(file))?;
        match name.as_str() {
            "mask" => mask = Some(values),
            _ => beside.push((name.clone(), values)),
        }
    }
    let input = mask.map_or_else(Input::without_mask, Input::new).context(context);
    Ok(beside.into_iter().fold(input, |p, (name, values)| p.companion(name, values)).diagnose()?)
}
