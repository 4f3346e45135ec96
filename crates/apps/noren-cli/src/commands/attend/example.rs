//! `noren attend` without a file: computes one attention layer of a real encoder over sentences that are embedded in
//! the program.

use super::args::AttendArgs;
use super::heat::Heat;
use super::inputs::Inputs;
use super::job::Job;
use super::minimap::{beside, minimap};
use super::report::{Report, line, print_check};
use super::verify::{Check, against, against_reference};
use crate::failure::{Failure, Result};
use crate::output::{DIM, STRONG, Screen, paint};
use crate::target::Target;
use crate::verdict::Verdict;
use anstyle::Style;
use noren::View;
use noren_input::tensors::TensorFile;
use noren_mask::{Facts, PlanOptions, Reorder, Spec, atoms};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// The arrays `q`, `k`, `v` and `out` of attention layer 3 of all-MiniLM-L6-v2, each `[8, 12, 27, 32]`;
/// assets/README.md describes their origin.
const TENSORS: &[u8] = include_bytes!("../../../assets/minilm-layer3.safetensors");
/// The sentences of the example as JSON: for each batch row of [`TENSORS`], the text and the tokens of its sentence.
const SENTENCES: &str = include_str!("../../../assets/minilm-tokens.json");
/// The tile sizes of the example's plan. The tiles are narrow, because the default tiles are wider than the sequences
/// of the example and would skip no cells.
const BLOCKS: PlanOptions = PlanOptions { block_q: 64, block_kv: 8, reorder: Reorder::Auto };

#[derive(Deserialize)]
struct Sentence {
    tokens: Vec<String>,
}

/// The report of the example, printed as JSON.
#[derive(Serialize)]
struct ExampleReport {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<Check>,
}

/// The embedded example of `noren attend`, with the data for its report on a terminal.
struct Example<'a> {
    job: &'a Job<'a>,
    sentences: &'a [Sentence],
    args: &'a AttendArgs,
}

pub(crate) fn run(args: &AttendArgs, target: Option<&Target>, screen: &mut Screen) -> Result<Verdict> {
    let sentences: Vec<Sentence> = serde_json::from_str(SENTENCES).map_err(|e| damaged(&e.to_string()))?;
    let spec = match &args.mask {
        Some(text) => crate::args::parse(text, args.facts.layer)?,
        None => Spec::from(atoms::padding()),
    };
    let own_facts = args.facts.facts.is_some() || !args.facts.lengths.is_empty();
    let facts = match own_facts {
        true => args.facts.read(&[])?.0,
        false => Facts::new().lengths(sentences.iter().map(|s| s.tokens.len()).collect::<Vec<_>>()),
    };
    let mut file = TensorFile::new(Cursor::new(TENSORS), TENSORS.len() as u64, "example")?;
    let inputs = Inputs::read(&mut file, &spec)?;
    let job = Job::with_blocks(&inputs, &spec, &facts, args, &BLOCKS)?;
    let dims = inputs.dims();
    for (name, given, count, what) in
        [("--head", args.head, dims.heads, "heads"), ("--batch-row", args.batch_row, dims.batch, "sentences")]
    {
        if given >= count {
            return Err(Failure::new(format!("{name} is {given}, but the example has {count} {what}, counted from 0")));
        }
    }
    let done = job.run()?;
    let reference = against_reference(&job, &done)?;
    // The stored output was computed with the model's own mask, so it is compared only with output under this mask.
    let own_mask = spec == Spec::from(atoms::padding()) && !own_facts && args.scale.is_none();
    let own_mask = own_mask && args.query_offset.iter().all(|o| *o == 0);
    let stored = if own_mask { Some(against(&done.output.out, &file.read("out")?.data)) } else { None };
    done.save(target)?;
    let holds = reference.holds && stored.as_ref().is_none_or(|c| c.holds);
    let report = Report::new(&job, &done, Some(reference.clone()), args);
    if args.json {
        screen.json(&ExampleReport { report, stored })?;
    } else {
        let example = Example { job: &job, sentences: &sentences, args };
        example.print(&report, [stored.as_ref(), Some(&reference)], screen)?;
    }
    Ok(if holds { Verdict::Yes } else { Verdict::No })
}

fn damaged(problem: &str) -> Failure {
    Failure::new(format!("the embedded example is damaged: {problem}"))
}

impl Example<'_> {
    fn print(&self, report: &Report, checks: [Option<&Check>; 2], screen: &mut Screen) -> Result<()> {
        let title = "Eight sentences in attention layer 3 of the encoder all-MiniLM-L6-v2";
        screen.line(paint(STRONG, title))?;
        screen.line("")?;
        self.print_sentences(screen)?;
        self.print_masks(report, screen)?;
        self.print_heat(screen)?;
        let [batch, heads, q_len, kv_len] = report.plan.shape;
        let dims = self.job.inputs.dims();
        let lengths = format!("{q_len} queries × {kv_len} keys, head_dim {}", dims.head_dim);
        line(screen, "shape", format!("batch {batch}, heads {heads}, {lengths}"))?;
        report.print_cost(screen)?;
        for (check, what) in checks.into_iter().zip(["the stored output of the model", "the 64-bit reference"]) {
            if let Some(check) = check {
                print_check(screen, "verified", what, check)?;
            }
        }
        match &self.args.output {
            Some(path) => line(screen, "written", path.display()),
            None => Ok(()),
        }
    }

    /// Prints the tokens of each sentence, and one dot for each padding key.
    fn print_sentences(&self, screen: &mut Screen) -> Result<()> {
        let kv_len = self.job.inputs.dims().kv_len;
        for (row, sentence) in self.sentences.iter().enumerate() {
            let mut line = paint(DIM, format!("{row:>2} "));
            let mut columns = 3;
            for at in 0..kv_len {
                let (token, style) = match sentence.tokens.get(at) {
                    Some(token) => (token.as_str(), Style::new()),
                    None => ("·", DIM),
                };
                let width = 1 + token.chars().count();
                if columns + width > screen.width {
                    screen.line(line)?;
                    (line, columns) = ("   ".to_string(), 3);
                }
                line.push_str(&paint(style, format!(" {token}")));
                columns += width;
            }
            screen.line(line)?;
        }
        screen.line("")
    }

    /// Prints a small picture of the mask of each sentence, for the selected head.
    fn print_masks(&self, report: &Report, screen: &mut Screen) -> Result<()> {
        let mask = self.job.plan.bound();
        let panels = self.sentences.iter().enumerate().map(|(row, sentence)| {
            let caption = match sentence.tokens.len() {
                1 => format!("{row}: 1 token"),
                n => format!("{row}: {n} tokens"),
            };
            Ok((caption, minimap(mask, row, self.args.head)?))
        });
        let panels = panels.collect::<Result<Vec<_>>>()?;
        screen.line(format!(
            "{} {}  {}",
            paint(STRONG, "mask"),
            report.spec,
            paint(DIM, "one picture for each sentence, with a dot for each query (row) that may read a key (column)")
        ))?;
        for line in beside(&panels, screen.width) {
            screen.line(line)?;
        }
        screen.line("")
    }

    /// Prints a heat map of the attention weights of the selected sentence.
    fn print_heat(&self, screen: &mut Screen) -> Result<()> {
        let (row, head) = (self.args.batch_row, self.args.head);
        let sentence = &self.sentences[row];
        let probabilities = self.probabilities(row, head)?;
        let padding = probabilities.iter().flat_map(|p| &p[sentence.tokens.len()..]).fold(0.0f32, |a, b| a.max(*b));
        screen.line(format!(
            "{} sentence {row}, head {head}  {}",
            paint(STRONG, "attention"),
            paint(DIM, "attention of each query (row) to each key (column), in percent")
        ))?;
        let (color, width) = (screen.color, screen.width);
        let heat = Heat { tokens: &sentence.tokens, probabilities, allowed: None, color, width };
        for line in heat.lines() {
            screen.line(line)?;
        }
        let keys = self.job.inputs.dims().kv_len - sentence.tokens.len();
        if keys > 0 && padding == 0.0 {
            screen.line(paint(DIM, format!("the attention to the {keys} padding keys is exactly 0")))?;
        }
        screen.line("")
    }

    /// Returns the attention probabilities `[tokens, keys]` of one batch row and head. They are computed as the output
    /// of attention with the identity matrix as `v`: the output is then equal to the probabilities.
    fn probabilities(&self, row: usize, head: usize) -> Result<Vec<Vec<f32>>> {
        let dims = self.job.inputs.dims();
        let n = dims.kv_len;
        let identity: Vec<f32> = (0..n * n).map(|i| if i % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
        let v = View::strided(&identity, [dims.batch, dims.kv_heads, n, n], [0, 0, n as isize, 1], 0)?;
        let inputs = noren::Inputs { v, ..self.job.inputs.arrays()? };
        let (plan, options) = (&self.job.plan, &self.job.options);
        let output = self.job.install(|| noren::attention(&inputs, plan, options))?;
        let first = (row * dims.heads + head) * dims.q_len;
        let tokens = self.sentences[row].tokens.len();
        Ok((first..first + tokens).map(|i| output.out[i * n..(i + 1) * n].to_vec()).collect())
    }
}
