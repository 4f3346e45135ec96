//! `noren embed`: computes one vector for each line of a text.

use super::part::{Part, mark};
use super::vectors::{Form, write_json};
use super::{hub, weight_type};
use crate::failure::{Failure, Result};
use crate::output::{DIM, Screen, paint, with_note};
use crate::progress::Progress;
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
use noren::{Dtype, Isa};
use noren_models::embed::Embedder;
use rayon::prelude::*;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

/// Number of text lines that are read, computed and stored in one step.
const LINES: usize = 512;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    /// Folder of a model, or its name on the Hugging Face hub: config.json, model.safetensors and tokenizer.json
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Text file, one line for each vector; - reads standard input [default: -]
    #[arg(value_name = "FILE")]
    input: Option<PathBuf>,
    /// File to write: .npy, .safetensors or .jsonl [default: JSON lines on standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Maximum number of tokens in one call of the model; a longer line is computed alone
    #[arg(long, value_name = "N", default_value_t = 1024)]
    budget: usize,
    /// Type of the weights of linear layers: bf16 is faster on AMD processors with AVX512-BF16, and rounds weights (there, also inputs) to 8 significant bits
    #[arg(long, value_parser = weight_type(), default_value = "f32")]
    dtype: Dtype,
}

const EXAMPLES: &str = "\
modules.json and 1_Pooling/config.json define the pooling of tokens to a vector; without these files, a vector is the mean of all tokens, scaled to length 1. A line without a vector (empty, or not UTF-8) is reported with its number, its vector is NaN (null in JSON), and the exit code is 1. With -o, a run that was ended continues where it stopped: vectors are stored in FILE.part until all are finished.

Examples:
  noren embed --model path/to/all-MiniLM-L6-v2 lines.txt -o vectors.npy
  cat lines.txt | noren embed --model path/to/all-MiniLM-L6-v2 > vectors.jsonl";

pub(crate) fn run(args: &EmbedArgs, screen: &mut Screen) -> Result<Verdict> {
    if args.budget == 0 {
        return Err(Failure::new("--budget is 0: give at least 1 token"));
    }
    let output = args.output.as_deref().map(|path| Ok::<_, Failure>((path, Form::of(path)?, Target::new(path)?)));
    let output = output.transpose()?;
    let mut lines = Lines::open(args.input.as_deref())?;
    let hint = "--model takes a folder with config.json, model.safetensors and tokenizer.json";
    let folder = hub::folder(&args.model, &["tokenizer.json", "modules.json", "1_Pooling/config.json"])?;
    let embedder = with_note("loading the model ...", || Embedder::load_as(&folder, args.dtype));
    let embedder = embedder.map_err(|error| super::failure_with_hint(error, hint))?;
    if !folder.join("modules.json").exists() {
        let assumed =
            "there is no modules.json, which defines the pooling: the mean of all tokens is used, scaled to length 1";
        anstream::eprintln!("{} {assumed}", paint(DIM, "note:"));
    }
    let mut progress = lines.progress();
    let Some((path, form, target)) = output else {
        while let Some(batch) = lines.next(LINES)? {
            let mut text = Vec::new();
            for vector in lines.embed(&embedder, &batch, args.budget)? {
                write_json(&vector, &mut text)?;
            }
            screen.text(String::from_utf8_lossy(&text))?;
            progress.add(batch.len() as u64);
        }
        return lines.verdict(&mut progress);
    };
    let width = embedder.width();
    let mut part = Part::open(path, &about(&folder, &embedder), width)?;
    lines.skip(&embedder, &part, path, &mut progress)?;
    while let Some(batch) = lines.next(LINES)? {
        let vectors = lines.embed(&embedder, &batch, args.budget)?;
        part.append(&batch.iter().map(|line| mark(&line.bytes)).collect::<Vec<_>>(), &vectors)?;
        progress.add(batch.len() as u64);
    }
    let rows = part.marks().len();
    if rows == 0 {
        part.remove()?;
        return Err(Failure::new(format!("{}: the text has no lines, so there is nothing to compute", lines.name)));
    }
    target.write(|out| form.write(&mut part, width, out))?;
    part.remove()?;
    progress.clear();
    screen.line(format_args!("{rows} vectors of {width} numbers"))?;
    lines.verdict(&mut progress)
}

/// Returns the header line of a `.part` file. The line identifies the model and the pooling: it contains a hash of the
/// pooling steps and of the names, lengths and modification times of the model's files.
fn about(folder: &Path, embedder: &Embedder) -> String {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<String> = files
        .filter_map(|file| {
            let about = std::fs::metadata(file.path()).ok().filter(|about| about.is_file())?;
            let name = file.file_name().into_string().ok()?;
            let model = name.ends_with(".json") || name.ends_with(".safetensors");
            model.then(|| format!("{name} {} {:?}", about.len(), about.modified().ok()))
        })
        .collect();
    files.sort();
    files.push(format!("{:?} {}", embedder.ways(), embedder.dtype()));
    if embedder.dtype() == Dtype::Bf16 {
        // Whether inputs are rounded depends on the processor path.
        files.push(format!("{:?}", Isa::choose(None)));
    }
    format!("noren embed 1 {:016x}", mark(files.join("\n").as_bytes()))
}

/// One line of the input text without its line break, and the number of the line, counted from 1.
struct Line {
    number: u64,
    bytes: Vec<u8>,
}

/// A reader of the remaining lines of a text, with counts of the lines without a vector and of the truncated lines.
struct Lines {
    name: String,
    len: Option<u64>,
    reader: Box<dyn BufRead>,
    number: u64,
    bad: Cell<u64>,
    cut: Cell<u64>,
}

impl Lines {
    fn open(path: Option<&Path>) -> Result<Lines> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let reader = Box::new(BufReader::new(std::io::stdin()));
            return Ok(Lines {
                name: "standard input".to_owned(),
                len: None,
                reader,
                number: 0,
                bad: 0.into(),
                cut: 0.into(),
            });
        };
        let name = path.display().to_string();
        let failed = |e: std::io::Error| Failure::new(format!("{name}: the file cannot be read: {e}"));
        let mut file = std::fs::File::open(path).map_err(failed)?;
        // A pipe can be read once only.
        let mut len = None;
        if file.metadata().map_err(failed)?.is_file() {
            let lines = BufReader::new(&file).split(b'\n').try_fold(0, |n, line| line.map(|_| n + 1));
            len = Some(lines.map_err(failed)?);
            file.rewind().map_err(failed)?;
        }
        let reader = Box::new(BufReader::new(file));
        Ok(Lines { len, name, reader, number: 0, bad: 0.into(), cut: 0.into() })
    }

    /// Creates the progress bar for all lines of the text.
    fn progress(&self) -> Progress {
        let mut progress = Progress::new(self.len);
        progress.message("lines");
        progress
    }

    /// Reads the next lines, at most `most` of them. Returns `None` at the end of the text.
    fn next(&mut self, most: usize) -> Result<Option<Vec<Line>>> {
        let mut lines = Vec::new();
        while lines.len() < most {
            let mut bytes = Vec::new();
            let read = self.reader.read_until(b'\n', &mut bytes);
            let read = read.map_err(|e| Failure::new(format!("{}: the text cannot be read: {e}", self.name)))?;
            if read == 0 {
                break;
            }
            while bytes.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
                bytes.pop();
            }
            self.number += 1;
            lines.push(Line { number: self.number, bytes });
        }
        Ok(if lines.is_empty() { None } else { Some(lines) })
    }

    /// Skips the lines whose vectors are already in `part`. For each skipped line that cannot be encoded, prints the problem
    /// again.
    ///
    /// # Errors
    ///
    /// Returns an error if a line is not the line from which the vector in `part` was computed, or if there are fewer lines
    /// than vectors.
    fn skip(&mut self, embedder: &Embedder, part: &Part, output: &Path, progress: &mut Progress) -> Result<()> {
        let refuse = |problem: String| {
            let message = format!("{}.part belongs to another text: {problem}", output.display());
            Err(Failure::new(message).hint("delete the .part file to start again, or give -o another name"))
        };
        for marks in part.marks().chunks(LINES) {
            let lines = self.next(marks.len())?.unwrap_or_default();
            if lines.len() < marks.len() {
                return refuse(format!(
                    "the .part file has {} vectors of an earlier run, but {} has only {} line(s)",
                    part.marks().len(),
                    self.name,
                    self.number
                ));
            }
            for (line, known) in lines.iter().zip(marks) {
                if mark(&line.bytes) != *known {
                    return refuse(format!("{}, line {} is different", self.name, line.number));
                }
                match tokens(embedder, line) {
                    Ok((_, too_many)) => self.count_cut(too_many),
                    Err(problem) => self.report(line, &problem),
                }
            }
            progress.add(lines.len() as u64);
        }
        Ok(())
    }

    /// Returns the vector of each line, in order. One call of the model computes at most `budget` tokens, or one longer
    /// line. Lines that cannot be encoded are reported, and their vectors are NaN.
    fn embed(&self, embedder: &Embedder, lines: &[Line], budget: usize) -> Result<Vec<Vec<f32>>> {
        let tokens: Vec<_> = lines.par_iter().map(|line| tokens(embedder, line)).collect();
        let good: Vec<Vec<u32>> = tokens.iter().flatten().map(|(ids, _)| ids.clone()).collect();
        let mut vectors = embedder.embed(&good, budget)?.into_iter();
        let vector = |(line, tokens): (&Line, Tokens)| match tokens {
            Ok((_, too_many)) => {
                self.count_cut(too_many);
                vectors.next().unwrap_or_default()
            }
            Err(problem) => {
                self.report(line, &problem);
                vec![f32::NAN; embedder.width()]
            }
        };
        Ok(lines.iter().zip(tokens).map(vector).collect())
    }

    fn count_cut(&self, too_many: usize) {
        self.cut.set(self.cut.get() + u64::from(too_many > 0));
    }

    /// Counts a line that has no vector, and prints the problem.
    fn report(&self, line: &Line, problem: &str) {
        self.bad.set(self.bad.get() + 1);
        anstream::eprintln!("{} {}, line {}: {problem}", paint(DIM, "no vector:"), self.name, line.number);
    }

    /// Prints the number of truncated lines. Returns exit code 1 if at least one line has no vector, otherwise exit
    /// code 0.
    fn verdict(&self, progress: &mut Progress) -> Result<Verdict> {
        progress.clear();
        let cut = self.cut.get();
        if cut > 0 {
            anstream::eprintln!(
                "{} {cut} lines have more tokens than the model accepts, and were cut off",
                paint(DIM, "note:")
            );
        }
        Ok(if self.bad.get() == 0 { Verdict::Yes } else { Verdict::No })
    }
}

/// The tokens of a line and the number of tokens that were cut off, or the problem of the line.
type Tokens = std::result::Result<(Vec<u32>, usize), String>;

fn tokens(embedder: &Embedder, line: &Line) -> Tokens {
    match std::str::from_utf8(&line.bytes) {
        Ok(text) if text.trim().is_empty() => Err("the line is empty".to_owned()),
        Ok(text) => embedder.encode(text).map_err(|error| error.to_string()),
        Err(error) => Err(format!("the line is not UTF-8 from byte {} on", error.valid_up_to())),
    }
}
