//! `noren run TEXT TEXT ...` and `noren run --lines FILE`: the classes of several texts, computed as padded batches.

use super::job::{TRIALS, check_finite, choices, evidence, facts, masking};
use super::labels::{Label, Prediction, ranked, shown};
use super::outline;
use super::report::verdict;
use super::source::Source;
use super::units::printable;
use crate::failure::{Failure, Result};
use crate::output::{BAD, DIM, STRONG, Screen, cut, paint, with_note};
use crate::verdict::Verdict;
use noren::Side;
use noren_models::model::Batch;
use noren_models::{Proof, prove_texts};
use noren_text::{Detectors, Encoding, Policy, PrivateTokens};
use serde::Serialize;

/// Maximum number of tokens of a batch, padding included. No output depends on this number.
const MOST_TOKENS: usize = 16_384;
/// Maximum number of classes that are shown for a text.
const CLASSES: usize = 3;

/// The settings for the classification of several texts.
pub(super) struct Several<'a> {
    pub(super) source: &'a Source,
    pub(super) texts: &'a [String],
    pub(super) mask: Option<&'a str>,
    /// Detectors of the private text that is hidden.
    pub(super) hide: &'a Detectors,
    /// All detectors of private text, including the detectors in `hide`.
    pub(super) known: &'a Detectors,
}

/// A text to classify, with its tokens.
struct Text<'a> {
    text: &'a str,
    encoding: Encoding,
    /// The tokens of all private text that was found.
    private: PrivateTokens,
    /// The hidden tokens: no other token may read them.
    hidden: PrivateTokens,
}

/// The predicted classes of one text, and the proof if tokens are hidden.
struct Classified<'a> {
    of: &'a Text<'a>,
    names: Vec<String>,
    prediction: Prediction,
    /// The proof that the hidden tokens do not change the outputs of visible tokens; `None` if no text of the batch has
    /// hidden tokens.
    proof: Option<Proof>,
}

impl Classified<'_> {
    /// Returns false if the proof for this text fails. A proof fails if the output of a visible token changed. If the
    /// text has hidden tokens, the proof also fails if no output of a hidden token changed, because it then shows
    /// nothing.
    fn holds(&self) -> bool {
        match &self.proof {
            Some(proof) if self.of.hidden.count() > 0 => proof.holds(),
            Some(proof) => proof.leaks.is_empty(),
            None => true,
        }
    }
}

/// The JSON result for all texts.
#[derive(Serialize)]
struct ShownTexts<'a> {
    model: &'a str,
    texts: Vec<Shown<'a>>,
}

/// The JSON result for one text.
#[derive(Serialize)]
struct Shown<'a> {
    text: &'a str,
    tokens: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a [Label]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_labels: Option<&'a [Option<Label>]>,
    /// The reason why there are no classes, if they would depend on hidden tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<&'static str>,
    hidden: Vec<usize>,
    #[serde(rename = "test", skip_serializing_if = "Option::is_none")]
    proof: Option<outline::Proof<'a>>,
}

impl Several<'_> {
    /// Computes the classes of all texts, and prints them.
    ///
    /// # Errors
    ///
    /// Returns an error if the model is not a classifier, and for texts that the model cannot read.
    pub(super) fn run(&self, json: bool, screen: &mut Screen) -> Result<Verdict> {
        let config = self.source.model.config();
        if config.head().classes().is_none() {
            let message = format!("{}: the model is not a classifier: give one text", self.source.name);
            let hint = "several texts are for models whose architecture ends in ForSequenceClassification or \
                        ForTokenClassification; noren generate continues several prompts, noren embed computes vectors";
            return Err(Failure::new(message).hint(hint));
        }
        let texts = self.texts.iter().enumerate().map(|(i, text)| self.encode(i, text)).collect::<Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for batch in batches(&texts) {
            all.extend(with_note("computing ...", || self.classify(batch))?);
        }
        match json {
            true => {
                let texts = all.iter().map(outlined).collect();
                screen.json(&ShownTexts { model: &self.source.name, texts })?;
            }
            false => print(&all, screen)?,
        }
        Ok(if all.iter().all(Classified::holds) { Verdict::Yes } else { Verdict::No })
    }

    /// Returns the tokens of the text with the index `i`.
    fn encode<'t>(&self, i: usize, text: &'t str) -> Result<Text<'t>> {
        let refuse = |problem: String| Failure::new(format!("text {}: {problem}", i + 1));
        if text.trim().is_empty() {
            return Err(refuse("the text is empty".into())
                .hint("remove the empty text or the empty line; texts are counted from 1"));
        }
        let encoding = self.source.tokenizer.encode(text)?;
        let most = self.source.model.positions().unwrap_or(MOST_TOKENS).min(MOST_TOKENS);
        if encoding.is_empty() || encoding.len() > most {
            let problem = format!("the text has {} tokens, and the model reads 1 to {most}", encoding.len());
            return Err(refuse(problem).hint("shorten or split the text; texts are counted from 1"));
        }
        let find =
            |detectors: &Detectors| Ok::<_, Failure>(PrivateTokens::locate(&detectors.find(text)?, text, &encoding));
        let (private, hidden) = (find(self.known)?, find(self.hide)?);
        Ok(Text { text, encoding, private, hidden })
    }

    /// Computes the classes of the texts of one batch. If tokens are hidden, also computes the proof that the hidden
    /// tokens do not change the outputs of visible tokens.
    fn classify<'t>(&self, texts: &'t [Text<'t>]) -> Result<Vec<Classified<'t>>> {
        let hides = texts.iter().any(|text| text.hidden.count() > 0);
        let model = masking(&self.source.model, self.mask, hides, false)?;
        let ids: Vec<Vec<u32>> = texts.iter().map(|text| text.encoding.ids.clone()).collect();
        let batch = self.batch(&ids, texts)?;
        let output = model.forward(&batch)?;
        let secrets: Vec<_> = texts.iter().map(|text| (text.encoding.len(), &text.hidden)).collect();
        let mut proofs = match hides {
            false => Vec::new(),
            true => {
                let pairs: Vec<_> = texts.iter().map(|text| (&text.encoding.ids[..], &text.hidden)).collect();
                let run = |ids: &[Vec<u32>]| {
                    let batch = self.batch(ids, texts)?;
                    evidence(&model, &batch, &model.forward(&batch)?, &secrets)
                };
                with_note("testing the hidden tokens ...", || {
                    prove_texts(&pairs, &Policy::Hide, &choices(self.source), TRIALS, run)
                })?
            }
        }
        .into_iter();
        check_finite("the outputs", &evidence(&model, &batch, &output, &secrets)?.concat().concat())?;
        let name =
            |id: &u32| self.source.tokenizer.token(*id).map_or_else(|| format!("#{id}"), |name| printable(&name));
        let one = |(i, of): (usize, &'t Text<'t>)| {
            let secret = (&of.encoding, &of.hidden);
            let prediction = Prediction::of(&model, &batch, i, output.logits.as_ref(), secret)?;
            let names = of.encoding.ids.iter().map(name).collect();
            Ok::<_, Failure>(Classified { of, names, prediction, proof: proofs.next() })
        };
        texts.iter().enumerate().map(one).collect()
    }

    /// Returns the padded batch of `texts` with the token ids `ids` instead of the ids of the texts. Padding is on the
    /// right.
    fn batch(&self, ids: &[Vec<u32>], texts: &[Text<'_>]) -> noren_models::Result<Batch> {
        let [private, hidden]: [Vec<&PrivateTokens>; 2] =
            [texts.iter().map(|text| &text.private).collect(), texts.iter().map(|text| &text.hidden).collect()];
        let unpooled = hidden
            .iter()
            .enumerate()
            .flat_map(|(row, hidden)| hidden.positions().into_iter().map(move |at| (row, at)).collect::<Vec<_>>());
        let batch = Batch::padded(ids, 0, Side::Right)?.unpooled(unpooled);
        Ok(batch.facts(facts(&self.known.kinds(), &private, &hidden)))
    }
}

/// Splits texts into batches of neighbouring texts. A batch has at most `MOST_TOKENS` tokens, including padding; a
/// longer text is a batch of one text.
fn batches<'t>(texts: &'t [Text<'t>]) -> Vec<&'t [Text<'t>]> {
    let mut batches = Vec::new();
    let (mut start, mut longest) = (0, 0);
    for (i, text) in texts.iter().enumerate() {
        let most = longest.max(text.encoding.len());
        if i > start && most * (i + 1 - start) > MOST_TOKENS {
            batches.push(&texts[start..i]);
            (start, longest) = (i, text.encoding.len());
        } else {
            longest = most;
        }
    }
    batches.push(&texts[start..]);
    batches
}

fn outlined<'a>(one: &'a Classified<'_>) -> Shown<'a> {
    Shown {
        text: one.of.text,
        tokens: &one.names,
        labels: one.prediction.labels(),
        token_labels: one.prediction.token_labels(),
        withheld: if let Prediction::Withheld(reason) = one.prediction { Some(reason) } else { None },
        hidden: one.of.hidden.positions(),
        proof: one.proof.as_ref().map(outline::Proof::of),
    }
}

/// Prints one line for each text, with its classes by descending score, or with its tokens whose class is not `O`.
fn print(all: &[Classified<'_>], screen: &mut Screen) -> Result<()> {
    let number = all.len().to_string().len();
    for (i, one) in all.iter().enumerate() {
        let of_token = |(at, label): (usize, &Option<Label>)| {
            let label = label.as_ref().filter(|label| label.label != "O")?;
            Some(format!("{}:{} {:.1} %", one.names[at], printable(&label.label), 100.0 * label.score))
        };
        let classes = match &one.prediction {
            Prediction::None => String::new(),
            Prediction::Withheld(reason) => format!("withheld: {reason}"),
            Prediction::Text(labels, problem) => {
                let shown = ranked(labels).into_iter().take(CLASSES).map(|label| shown(label, *problem));
                shown.collect::<Vec<_>>().join("   ")
            }
            Prediction::Tokens(labels) => {
                let found: Vec<String> = labels.iter().enumerate().filter_map(of_token).collect();
                if found.is_empty() { "every token has the class O (no entity)".into() } else { found.join("   ") }
            }
        };
        let text = cut(&printable(one.of.text), screen.width.saturating_sub(number + 2).max(20));
        screen.line(format_args!("{}  {text}", paint(DIM, format!("{:>number$}", i + 1))))?;
        screen.line(format_args!("{:number$}  {}", "", paint(STRONG, classes)))?;
    }
    let proofs: Vec<&Proof> = all.iter().filter_map(|one| one.proof.as_ref()).collect();
    if proofs.is_empty() {
        return Ok(());
    }
    let joined = Proof {
        trials: TRIALS,
        compared: proofs.iter().map(|proof| proof.compared).sum(),
        leaks: proofs.iter().flat_map(|proof| proof.leaks.clone()).collect(),
        secret_changed: proofs.iter().map(|proof| proof.secret_changed).sum(),
    };
    screen.line("")?;
    screen.line(verdict(&joined))?;
    for (i, _) in all.iter().enumerate().filter(|(_, one)| !one.holds()) {
        screen.line(paint(BAD, format_args!("text {}: the test failed", i + 1)))?;
    }
    Ok(())
}
