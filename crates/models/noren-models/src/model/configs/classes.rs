//! [`Head`] and [`Classes`]: what a model predicts after its last layer, and the names and scores of classes.

use super::raw::Raw;
use crate::error::{Error, Result};
use candle_nn::VarBuilder;

/// The output head of a model: the layers after its last transformer layer, which predict tokens or classes.
#[derive(Clone, PartialEq, Debug)]
pub enum Head {
    /// No head. The outputs are the hidden states, and the pooled state if the checkpoint has a pooler.
    None,
    /// A head that predicts tokens at each position: the masked token (encoders) or the next token (decoders).
    LanguageModel,
    /// A head that predicts the classes of a text (Hugging Face's `ForSequenceClassification`).
    TextClassifier(Classes),
    /// A head that predicts a class for each token (Hugging Face's `ForTokenClassification`).
    TokenClassifier(Classes),
}

/// The classes of a classifier.
///
/// ```
/// use noren_models::model::{Classes, Problem};
/// let classes = Classes { names: vec!["good".into(), "bad".into()], problem: Problem::SingleLabel };
/// assert_eq!(classes.scores(&[0.0, 0.0]), [0.5, 0.5]);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Classes {
    /// The name of each class, in the order of the logits. The names are those of `id2label`, or `LABEL_0`, `LABEL_1`,
    /// ... if `id2label` is missing.
    pub names: Vec<String>,
    /// The meaning of the logits, from which the scores of the classes are computed.
    pub problem: Problem,
}

/// The meaning of the logits of a text classifier, from which the scores are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// Exactly one class applies. The scores are a softmax over the logits: probabilities with the sum 1.
    SingleLabel,
    /// Any number of classes apply. The score of a class is the sigmoid of the logit of this class: a probability that
    /// does not depend on other classes.
    MultiLabel,
    /// The logits are values and not probabilities. The scores are the logits.
    Regression,
}

impl Head {
    /// Reads the head from the name of an architecture. `family` is the prefix of the names of a family of models, such
    /// as `Roberta` in `RobertaForMaskedLM`. If `architecture` is `None`, the model has no head.
    pub(crate) fn read(raw: &Raw<'_>, family: &str, architecture: Option<&str>) -> Result<Head> {
        let Some(name) = architecture else { return Ok(Head::None) };
        match name.strip_prefix(family) {
            Some("Model") => Ok(Head::None),
            Some("ForMaskedLM") => Ok(Head::LanguageModel),
            Some("ForPreTraining") if family == "Bert" => Ok(Head::LanguageModel),
            Some("ForSequenceClassification") => Ok(Head::TextClassifier(Classes::read(raw)?)),
            Some("ForTokenClassification") => Ok(Head::TokenClassifier(Classes::read(raw)?)),
            _ => {
                let more = if family == "Bert" { "BertForPreTraining, " } else { "" };
                let expected = format!(
                    "give {family}Model, {family}ForMaskedLM, {more}{family}ForSequenceClassification or \
                     {family}ForTokenClassification"
                );
                Err(Error::config("architectures", format!("{name:?}"), expected))
            }
        }
    }

    /// Returns the classes of a classifier; `None` for other heads.
    pub fn classes(&self) -> Option<&Classes> {
        match self {
            Head::TextClassifier(classes) | Head::TokenClassifier(classes) => Some(classes),
            Head::None | Head::LanguageModel => None,
        }
    }
}

impl Classes {
    /// Reads the names from `id2label` and the meaning of the logits from `problem_type`. Without `id2label`, the
    /// number of classes is `num_labels` [default: 2]. Without `problem_type`, a classifier with one class is
    /// `MultiLabel`, and any other is `SingleLabel`, as in the pipelines of transformers.
    pub(crate) fn read(raw: &Raw<'_>) -> Result<Classes> {
        let names = match raw.object("id2label")? {
            Some(named) => names(&named)?,
            None => (0..raw.count_or("num_labels", 2)?).map(|class| format!("LABEL_{class}")).collect(),
        };
        let problem = match raw.get("problem_type").map(|_| raw.text("problem_type")).transpose()? {
            None if names.len() == 1 => Problem::MultiLabel,
            Some("single_label_classification") if names.len() == 1 => {
                let given = "\"single_label_classification\" with one class";
                let expected = "give regression or multi_label_classification, or the names of all classes in id2label";
                return Err(Error::config("problem_type", given, expected));
            }
            None | Some("single_label_classification") => Problem::SingleLabel,
            Some("multi_label_classification") => Problem::MultiLabel,
            Some("regression") => Problem::Regression,
            Some(other) => {
                let expected = "give single_label_classification, multi_label_classification or regression";
                return Err(Error::config("problem_type", format!("{other:?}"), expected));
            }
        };
        Ok(Classes { names, problem })
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the score of each class of a text, from its logits `[classes]`, as [`Problem`] defines it.
    pub fn scores(&self, logits: &[f32]) -> Vec<f32> {
        match self.problem {
            Problem::SingleLabel => softmax(logits),
            Problem::MultiLabel => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Problem::Regression => logits.to_vec(),
        }
    }

    /// Returns an error if the weights of the head, under `vb`, have another number of classes than the configuration.
    /// Checks nothing if `vb` belongs to a `VarMap` and has no weights yet.
    pub(crate) fn check(&self, vb: &VarBuilder<'_>, inputs: usize) -> Result<()> {
        if !vb.contains_tensor("weight") {
            return Ok(());
        }
        // Other problems of the shape are reported when the head is loaded.
        match vb.get_unchecked("weight")?.dims() {
            [rows, width] if *width == inputs && *rows != self.count() => {
                let expected =
                    format!("the weights of the head have {rows} classes: name each class of the head in id2label");
                Err(Error::config("id2label (or num_labels)", format!("{} classes", self.count()), expected))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the softmax of logits: probabilities with the sum 1.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = logits.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Returns the names of the classes from `id2label`, whose keys must be the numbers from 0.
fn names(named: &Raw<'_>) -> Result<Vec<String>> {
    let count = named.0.len();
    let name = |class: usize| named.get(&class.to_string())?.as_str().map(str::to_owned);
    match (0..count).map(name).collect::<Option<Vec<String>>>() {
        Some(names) if count > 0 => Ok(names),
        _ => {
            let expected = match count {
                0 => "a name for each class is needed".to_owned(),
                _ => format!("a name for each of the classes 0 to {} is needed", count - 1),
            };
            Err(Error::config("id2label", format!("{count} names"), expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Result<Classes> {
        Classes::read(&Raw(value.as_object().unwrap()))
    }

    #[test]
    fn names_and_scores_are_those_of_the_pipelines() {
        let none = read(json!({})).unwrap();
        assert_eq!((&none.names[..], none.problem), (&["LABEL_0".into(), "LABEL_1".into()][..], Problem::SingleLabel));
        assert_eq!(read(json!({"num_labels": 3})).unwrap().names, ["LABEL_0", "LABEL_1", "LABEL_2"]);
        let named = read(json!({"id2label": {"1": "b", "0": "a"}, "num_labels": 5})).unwrap();
        assert_eq!(named.names, ["a", "b"]);
        let one = read(json!({"num_labels": 1})).unwrap();
        assert_eq!((one.problem, one.scores(&[0.0])), (Problem::MultiLabel, vec![0.5]));
        let value = read(json!({"num_labels": 1, "problem_type": "regression"})).unwrap();
        assert_eq!(value.scores(&[3.5]), [3.5]);
        let both = read(json!({"problem_type": "multi_label_classification"})).unwrap();
        assert_eq!(both.scores(&[0.0, 0.0]), [0.5, 0.5]);
        let sum: f32 = none.scores(&[1e3, -1e3]).iter().sum();
        assert_eq!(sum, 1.0);
    }

    #[test]
    fn labels_that_contradict_are_refused() {
        let message = |value| read(value).unwrap_err().to_string();
        assert!(message(json!({"id2label": {"0": "a", "2": "c"}})).contains("each of the classes 0 to 1"));
        assert!(message(json!({"id2label": {}})).contains("a name for each class is needed"));
        assert!(message(json!({"id2label": {"0": 5}})).contains("id2label is 1 names"));
        assert!(message(json!({"num_labels": 0})).contains("num_labels is 0"));
        let problem = json!({"problem_type": "ranking"});
        assert!(message(problem).contains("problem_type is \"ranking\": give single_label_classification"));
        let one = json!({"problem_type": "single_label_classification", "num_labels": 1});
        assert!(message(one).contains("with one class: give regression"));
    }
}
