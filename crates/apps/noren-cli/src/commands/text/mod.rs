//! `noren run TEXT`: runs a model over a text and shows tokens, mask, attention, predictions, hidden text and the
//! proof.

mod job;
mod labels;
mod outline;
mod picture;
mod report;
mod several;
mod source;
mod units;
#[cfg(feature = "serve")]
mod view;

use crate::args::utf8;
use crate::commands::model::{failure_with_hint, hub};
use crate::failure::{Failure, Result};
use crate::output::{Screen, with_note};
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
pub(crate) use job::{Job, Ran, check_finite};
pub(crate) use outline::Outline;
use several::Several;
pub(crate) use source::{Source, load};
pub(crate) use units::Unit;
#[cfg(feature = "serve")]
pub(crate) use view::View;

use noren_models::EntityRecognizer;
use noren_text::{BUILT_IN, Detector, Detectors};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The example text, which is used if the user gives no text. All secrets in the text are invented, and the numbers are
/// not in use.
pub(crate) const EXAMPLE: &str = "Dear Jane, write to jane.bennet@longbourn.example or call +44 20 7946 0958 before the ball; \
    pay with 4111 1111 1111 1111, and tell nobody that Mr. Bingley is";
/// Maximum number of bytes that are read from standard input. No model accepts a longer text.
const MOST_BYTES: u64 = 1 << 20;
/// Maximum number of bytes that are read from a file with one text on each line.
const MOST_FILE_BYTES: u64 = 1 << 24;
/// Default number of tokens that are generated after a text.
const GOES_ON: usize = 60;

/// The arguments of `noren run` for a text.
#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    /// The text; - reads standard input [default: an example, a letter with secrets]. Only classifiers accept several
    /// texts
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// Text file with one text on each line, for classifiers; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    lines: Option<PathBuf>,
    /// Mask that replaces the mask of the model: 'causal & sliding(32)', 'full', 'causal - keys(label="email")'
    #[arg(long, short, value_name = "MASK")]
    mask: Option<String>,
    /// Private text that no token may read: email, phone, card, iban, ip, ssn, mac, url, key, private_key, password,
    /// birth_date, address, or all of these [default: all in the example, nothing in other texts]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    hide: Option<Vec<String>>,
    /// A word or a phrase to hide from all other tokens; may be given several times
    #[arg(long, value_name = "WORDS")]
    word: Vec<String>,
    /// A model that finds names, places and other private text to hide: a token classifier with tokenizer.json, in a
    /// folder or on the Hugging Face hub
    #[arg(long, value_name = "DIR|NAME")]
    detector_model: Option<PathBuf>,
    /// Index of the layer whose attention is shown [default: the middle layer]
    #[arg(long, value_name = "L")]
    layer: Option<usize>,
    /// Index of the head whose attention is shown [default: 0]
    #[arg(long, value_name = "H")]
    head: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The help text of `noren run` about texts.
pub(crate) const EXAMPLES: &str = "\
The report of a text shows tokens, mask, attention, predictions, hidden text and a test, in which the model runs again with other hidden text of the same length; the exit code is 1 if this changes a bit of an output that may be shown. `noren flow` proves masks. Only some kinds of private text are searched, and not every occurrence is found; the report names kinds that are not searched.
  noren run
  noren run 'It is a truth universally acknowledged, that a single man in'
  noren run 'She was the happiest creat<mask>re in the w<mask>rld.'
  noren run 'Mail ann@x.example, or call Ann Lee' --hide email --word 'Ann Lee' -o picture.svg
  noren run 'Ann Lee lives in Rome' --hide all --detector-model path/to/ner
  noren run 'Call 030 1234567 now' --hide all --mask 'causal & sliding(16)' --layer 2 --head 1
  noren run --model path/to/model --json < /dev/null

A classifier prints the names of classes (id2label) with probabilities, for each text or token. Several texts are computed together; the bits of the result of a text do not depend on the other texts.
  noren run --model path/to/classifier 'Not bad at all' 'It was too long'
  noren run --model path/to/classifier --lines reviews.txt --json
  noren run --model path/to/classifier --lines letters.txt --hide all";

/// Runs a model over a text, and prints the result or writes a picture.
pub(crate) fn run(
    args: &TextArgs,
    model: Option<&Path>,
    generates: Option<usize>,
    output: Option<&Path>,
    screen: &mut Screen,
) -> Result<Verdict> {
    if args.texts.len() > 1 || args.lines.is_some() {
        return args.classify(model, generates, output, screen);
    }
    let target = output
        .map(|path| Target::svg(path, "end the file name with .svg; tensors are written only with --input"))
        .transpose()?;
    let text = args.read()?;
    let (hide, known) = args.detectors()?;
    let source = load(model)?;
    let job = Job {
        source: &source,
        text: &text,
        mask: args.mask.as_deref(),
        hide: &hide,
        known: &known,
        layer: args.layer,
        head: args.head.unwrap_or(0),
        new_tokens: generates.unwrap_or(GOES_ON),
    };
    let ran = job.run()?;
    if let Some(target) = &target {
        let svg = picture::svg(&ran);
        target.write(|out| out.write_all(svg.as_bytes()))?;
    }
    match args.json {
        true => screen.json(&Outline::new(&ran))?,
        false => report::print(&ran, output, screen)?,
    }
    Ok(if ran.proof.as_ref().is_none_or(|proof| proof.holds()) { Verdict::Yes } else { Verdict::No })
}

impl TextArgs {
    /// Reads the text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is empty or contains only white space.
    fn read(&self) -> Result<String> {
        let text = match self.texts.first().map(String::as_str) {
            None => EXAMPLE.to_string(),
            Some("-") => read_all(std::io::stdin().lock(), "standard input", MOST_BYTES)?,
            Some(text) => text.to_string(),
        };
        match text.trim().is_empty() {
            true => Err(Failure::new("the text is empty")
                .hint("give a text, as in noren run 'some words', or leave the text out to see the example")),
            false => Ok(text),
        }
    }

    /// Computes and prints the classes of several texts.
    fn classify(
        &self,
        model: Option<&Path>,
        generates: Option<usize>,
        output: Option<&Path>,
        screen: &mut Screen,
    ) -> Result<Verdict> {
        let one_text = [
            (self.layer.is_some(), "--layer"),
            (self.head.is_some(), "--head"),
            (generates.is_some(), "--generate"),
            (output.is_some(), "-o"),
        ];
        if let Some((_, name)) = one_text.iter().find(|(given, _)| *given) {
            let message = format!("{name} is for one text, and several texts are given");
            return Err(Failure::new(message).hint("leave the option out, or give one text"));
        }
        if self.texts.iter().any(|text| text == "-") {
            let message = "one of several texts is `-`, which stands for standard input";
            return Err(Failure::new(message).hint("--lines - reads one text from each line of standard input"));
        }
        let texts = match &self.lines {
            Some(path) => lines(path)?,
            None => self.texts.clone(),
        };
        let (hide, known) = self.detectors()?;
        let source = load(model)?;
        let several =
            Several { source: &source, texts: &texts, mask: self.mask.as_deref(), hide: &hide, known: &known };
        several.run(self.json, screen)
    }

    /// Returns two sets of detectors: the detectors of the private text to hide, and all detectors. If only the second
    /// set finds a private text, the text is reported but not hidden.
    fn detectors(&self) -> Result<(Detectors, Detectors)> {
        let example = self.texts.is_empty() && self.lines.is_none();
        let kinds = match (&self.hide, example) {
            (Some(names), _) if names.iter().all(|name| name.trim().is_empty()) => {
                return Err(Failure::new("--hide is empty: give kinds of private text, or leave --hide out")
                    .hint("--hide email,phone"));
            }
            (Some(names), _) => names.join(","),
            (None, true) => "all".into(),
            (None, false) => String::new(),
        };
        let (hide, known) = detectors(&kinds, &self.word)?;
        let Some(given) = &self.detector_model else { return Ok((hide, known)) };
        let folder = hub::folder(given, &["tokenizer.json"])?;
        let model = with_note("loading the detector ...", || EntityRecognizer::load(&folder));
        let hint = "--detector-model takes a folder with config.json, model.safetensors and tokenizer.json of a model \
                    whose architecture ends in ForTokenClassification";
        let model = Arc::new(model.map_err(|error| failure_with_hint(error, hint))?);
        Ok((hide.with_recognizer(model.clone())?, known.with_recognizer(model)?))
    }
}

/// Returns two sets of detectors: the detectors of text to hide, and all detectors. `kinds` are the kinds to hide,
/// separated by commas; `words` are the words to hide. The private text that the second set finds is labelled and
/// reported.
pub(crate) fn detectors(kinds: &str, words: &[String]) -> Result<(Detectors, Detectors)> {
    let mut hide = if kinds.is_empty() { Detectors::new() } else { kinds.parse()? };
    let mut known: Detectors = BUILT_IN.join(",").parse()?;
    if !words.is_empty() {
        let words = Detector::words("word", words)?;
        (hide, known) = (hide.with(words.clone()), known.with(words));
    }
    Ok((hide, known))
}

/// Reads a text file with one text on each line.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not UTF-8, is too long, or has no line.
fn lines(path: &Path) -> Result<Vec<String>> {
    let name = path.display().to_string();
    let text = match name == "-" {
        true => read_all(std::io::stdin().lock(), "standard input", MOST_FILE_BYTES)?,
        false => {
            let file = std::fs::File::open(path).map_err(|e| Failure::new(format!("{name}: cannot be read: {e}")))?;
            read_all(file, &name, MOST_FILE_BYTES)?
        }
    };
    let texts: Vec<String> = text.lines().map(str::to_owned).collect();
    match texts.is_empty() {
        true => Err(Failure::new(format!("{name} is empty: there are no lines with texts"))
            .hint("give --lines a file with one text on each line")),
        false => Ok(texts),
    }
}

/// Reads a whole text of at most `most` bytes.
fn read_all(from: impl Read, name: &str, most: u64) -> Result<String> {
    let mut bytes = Vec::new();
    let read = from.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::new(format!("{name} cannot be read: {e}")))?;
    if bytes.len() as u64 > most {
        let message = format!("{name} has more than {most} bytes");
        return Err(Failure::new(message).hint("split the text; noren embed takes files of any length"));
    }
    utf8(bytes, &name)
}
