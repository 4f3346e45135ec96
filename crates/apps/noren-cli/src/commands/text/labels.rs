//! [`Prediction`]: the classes that a classifier predicts for a text or for its tokens, by name.

use super::units::printable;
use noren_models::Result;
use noren_models::candle_core::Tensor;
use noren_models::model::{Batch, Classes, Head, Model, Problem, softmax};
use noren_text::{Encoding, PrivateTokens};
use serde::Serialize;

/// A class that a classifier predicts, with the score of the class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Label {
    pub(crate) label: String,
    /// The probability of the class, or the value that the model computes if it solves a regression.
    pub(crate) score: f32,
}

/// The classes that a classifier predicts.
pub(crate) enum Prediction {
    /// The model is not a classifier.
    None,
    /// The score of each class of the text, in the order of the classes, and the meaning of the scores: one class
    /// applies (the scores sum to 1), any number of classes apply, or each score is the value of a regression.
    Text(Vec<Label>, Problem),
    /// The most probable class of each token; `None` for special tokens and for hidden tokens.
    Tokens(Vec<Option<Label>>),
    /// The classes are not shown, because they would depend on hidden tokens. The text gives the reason.
    Withheld(&'static str),
}

impl Prediction {
    /// Returns the prediction for the text with the index `text` in `batch`. `logits` are the logits of the model for
    /// this batch. `hidden` are the hidden tokens of this text.
    pub(crate) fn of(
        model: &Model,
        batch: &Batch,
        text: usize,
        logits: Option<&Tensor>,
        (encoding, hidden): (&Encoding, &PrivateTokens),
    ) -> Result<Prediction> {
        let Some(logits) = logits else { return Ok(Prediction::None) };
        let logits = logits.get(text)?;
        Ok(match model.config().head() {
            Head::None | Head::LanguageModel => Prediction::None,
            Head::TextClassifier(classes) => {
                let read = class_tokens(model, batch, text);
                match reason(&read, hidden) {
                    Some(reason) => Prediction::Withheld(reason),
                    None => Prediction::Text(of_text(classes, &numbers(&logits)?[0]), classes.problem),
                }
            }
            Head::TokenClassifier(classes) => {
                let rows = numbers(&logits)?;
                let shown = |at: usize| !hidden.is_private(at) && !encoding.special[at];
                let label = |at: usize| shown(at).then(|| of_token(classes, &rows[at]));
                Prediction::Tokens((0..encoding.len()).map(label).collect())
            }
        })
    }

    /// Returns the score of each class of the text, in the order of the classes; `None` if the prediction is of another
    /// kind.
    pub(crate) fn labels(&self) -> Option<&[Label]> {
        if let Prediction::Text(labels, _) = self { Some(labels) } else { None }
    }

    /// Returns the most probable class of each token; `None` if the prediction is of another kind.
    pub(crate) fn token_labels(&self) -> Option<&[Option<Label>]> {
        if let Prediction::Tokens(labels) = self { Some(labels) } else { None }
    }
}

/// Returns the indices of the tokens from whose states the model computes the classes of a text. `text` is the index of
/// the text in `batch`.
pub(crate) fn class_tokens(model: &Model, batch: &Batch, text: usize) -> Vec<usize> {
    let texts = model.class_tokens(batch).unwrap_or_default();
    texts.get(text).into_iter().flatten().map(|(_, i)| *i).collect()
}

/// Returns the index of the token to whose output a proof appends the class scores of a text. `read` are the tokens
/// from which the scores are computed. If a token of `read` is hidden, this token is returned, because the scores may
/// then depend on hidden text; otherwise the first token of `read`.
pub(crate) fn class_place(read: &[usize], hidden: &PrivateTokens) -> usize {
    read.iter().find(|at| hidden.is_private(**at)).or(read.first()).copied().unwrap_or(0)
}

/// Returns the reason why the classes of a text must not be shown; `None` if they can be shown. `read` are the tokens
/// from whose states the classes are computed.
fn reason(read: &[usize], hidden: &PrivateTokens) -> Option<&'static str> {
    match read {
        [] => Some("the class scores are a mean over the tokens that are not hidden, and all tokens are hidden"),
        read if !read.iter().any(|at| hidden.is_private(*at)) => None,
        [0, ..] => Some("the class scores are computed from the first token, which is private"),
        _ => Some("the class scores are computed from the last token, which is private"),
    }
}

/// Returns the rows of a tensor with two dimensions; a tensor with one dimension is one row.
fn numbers(tensor: &Tensor) -> Result<Vec<Vec<f32>>> {
    let tensor = if tensor.rank() == 1 { tensor.unsqueeze(0) } else { Ok(tensor.clone()) };
    Ok(tensor?.to_vec2()?)
}

fn of_text(classes: &Classes, logits: &[f32]) -> Vec<Label> {
    let scores = classes.scores(logits);
    classes.names.iter().zip(scores).map(|(name, score)| Label { label: name.clone(), score }).collect()
}

/// Returns the most probable class of a token; if several classes are equally probable, the first of these classes.
fn of_token(classes: &Classes, logits: &[f32]) -> Label {
    let scores = softmax(logits);
    let best = (1..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best });
    Label { label: classes.names[best].clone(), score: scores[best] }
}

/// Returns the labels by descending score.
pub(crate) fn ranked(labels: &[Label]) -> Vec<&Label> {
    let mut ranked: Vec<&Label> = labels.iter().collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked
}

/// Formats a class with its score: a probability in percent, or the value of a regression.
pub(crate) fn shown(label: &Label, problem: Problem) -> String {
    let name = printable(&label.label);
    match problem {
        Problem::Regression => format!("{name} {:+.3}", label.score),
        Problem::SingleLabel | Problem::MultiLabel => format!("{name} {:.1} %", 100.0 * label.score),
    }
}
