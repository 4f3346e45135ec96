//! Converts the result of a run of a model over a text to JSON.

use super::job::{Guess, Ran};
use super::labels::Label;
use serde::Serialize;
use std::collections::BTreeMap;

/// The JSON result of a run over a text.
#[derive(Serialize)]
pub(crate) struct Outline<'a> {
    model: &'a str,
    text: &'a str,
    tokens: &'a [String],
    /// The mask of the shown layer.
    mask: String,
    layers: usize,
    heads: usize,
    layer: usize,
    head: usize,
    /// Attention weights between tokens, `[queries][keys]`.
    attention: &'a [Vec<f32>],
    /// The mean of the final states of the tokens that are not hidden.
    state: &'a [f32],
    /// The score of each class of the text, if the model classifies texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a [Label]>,
    /// The most probable class of each token, if the model classifies tokens; `null` for special and hidden tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_labels: Option<&'a [Option<Label>]>,
    guesses: &'a [Guess],
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<&'a str>,
    /// True if the prediction after the text is not shown, because the last token of the text is private.
    withheld: bool,
    /// The indices of the private tokens, for each kind of private text.
    private: BTreeMap<&'a str, Vec<usize>>,
    /// The kinds of private text that were searched for.
    looked_for: &'a [String],
    /// A sentence about the kinds of private text that were not searched for. The text can contain these kinds, and the
    /// test does not cover them.
    not_looked_for: &'a str,
    /// The indices of the hidden tokens, which no other token may read.
    hidden: Vec<usize>,
    #[serde(rename = "test", skip_serializing_if = "Option::is_none")]
    proof: Option<Proof<'a>>,
}

#[derive(Serialize)]
pub(super) struct Proof<'a> {
    holds: bool,
    /// Number of runs of the model in which other tokens replaced the hidden tokens of the text.
    trials: usize,
    /// Number of values that were compared in each run: all output values of the tokens that are not hidden.
    compared: usize,
    /// The tokens to which hidden text leaks, as indices from 0: visible tokens whose output changed in at least one run.
    leaks: &'a [usize],
    /// Number of hidden tokens whose output changed when other tokens replaced the hidden tokens. A number above 0
    /// shows that the tokens were replaced.
    secret_changed: usize,
}

impl<'a> Proof<'a> {
    pub(super) fn of(proof: &'a noren_models::Proof) -> Self {
        let &noren_models::Proof { trials, compared, ref leaks, secret_changed } = proof;
        Proof { holds: proof.holds(), trials, compared, leaks, secret_changed }
    }
}

impl<'a> Outline<'a> {
    pub(crate) fn new(ran: &'a Ran<'_>) -> Self {
        let proof = ran.proof.as_ref().map(Proof::of);
        Outline {
            model: &ran.source.name,
            text: ran.text,
            tokens: &ran.names,
            mask: ran.bound.mask().to_string(),
            layers: ran.layers,
            heads: ran.heads,
            layer: ran.layer,
            head: ran.head,
            attention: &ran.weights,
            state: &ran.state,
            labels: ran.prediction.labels(),
            token_labels: ran.prediction.token_labels(),
            guesses: &ran.guesses,
            continued: ran.continued.as_deref(),
            withheld: ran.withheld,
            private: ran.private.kinds().map(|(kind, at)| (kind.as_str(), at)).collect(),
            looked_for: &ran.looked_for,
            not_looked_for: &ran.not_looked_for,
            hidden: ran.hidden.positions(),
            proof,
        }
    }
}
