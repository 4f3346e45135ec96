//! [`Job`]: a run of a model over a text; [`Ran`]: its result.

use super::labels::{Prediction, class_place, class_tokens};
use super::source::Source;
use super::units::{Unit, allowed, gather, printable, units};
use crate::commands::model::ends;
use crate::failure::{Failure, Result};
use crate::output::with_note;
#[cfg(feature = "serve")]
use noren_flow::{Certificate, Fill, Flow};
#[cfg(feature = "serve")]
use noren_mask::Mask;
use noren_mask::{BoundMask, Facts, Shape, atoms};
use noren_models::candle_core::{DType, Tensor};
use noren_models::generate::{GenerateOptions, Sampling, generate};
use noren_models::model::{Batch, Call, Head, Model, Output, Record, Stack, Trace, softmax};
use noren_models::{Proof, prove_texts};
#[cfg(feature = "serve")]
use noren_text::PRIVATE;
use noren_text::{Detectors, Encoding, Finding, Kind, Policy, PrivateTokens, Role};
use std::ops::Range;

/// Maximum number of tokens of a text. The number of cells of an attention map grows with the square of this number.
const MOST_TOKENS: usize = 2048;
/// Number of runs of the model in the proof that the hidden tokens do not change the outputs of visible tokens. In each
/// run, other tokens replace the hidden tokens.
pub(super) const TRIALS: usize = 3;
/// Maximum number of tokens, from the first token of the text, whose attention scores and value vectors are in the
/// result.
pub(super) const MOST_NUMBERS: usize = 64;
/// Number of candidate tokens that are shown for a prediction.
const CANDIDATES: usize = 5;

/// The settings of a run of a model over a text.
pub(crate) struct Job<'a> {
    pub(crate) source: &'a Source,
    pub(crate) text: &'a str,
    pub(crate) mask: Option<&'a str>,
    /// Detectors of the private text that is hidden: no other token may read the hidden tokens.
    pub(crate) hide: &'a Detectors,
    /// All detectors, including the detectors in `hide`. The private text that they find is labelled and reported.
    pub(crate) known: &'a Detectors,
    pub(crate) layer: Option<usize>,
    pub(crate) head: usize,
    pub(crate) new_tokens: usize,
}

/// The result of a run of a model over a text.
pub(crate) struct Ran<'a> {
    pub(crate) source: &'a Source,
    pub(crate) text: &'a str,
    /// The tokens as printable text, one entry for each token.
    pub(crate) names: Vec<String>,
    /// For each token, the byte range of the text that the token represents.
    pub(crate) ranges: Vec<Range<usize>>,
    pub(crate) found: Vec<Finding>,
    /// The kinds of private text that were searched for.
    pub(crate) looked_for: Vec<String>,
    /// A sentence about the kinds of private text that were not searched for.
    pub(crate) not_looked_for: String,
    /// The tokens of all private text that was found.
    pub(crate) private: PrivateTokens,
    /// The tokens that are hidden: no other token may read them.
    pub(crate) hidden: PrivateTokens,
    pub(crate) units: Vec<Unit>,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) layer: usize,
    pub(crate) head: usize,
    /// The bound mask of the shown layer.
    pub(crate) bound: BoundMask,
    /// Attention weights between tokens, `[queries][keys]`, of the shown layer and head.
    pub(crate) weights: Vec<Vec<f32>>,
    /// The scores and values of the first tokens, from which the attention weights of the shown layer and head are
    /// computed.
    pub(crate) numbers: Numbers,
    /// Attention weights between units (tokens, words or private texts), `[queries][keys]`, of the shown layer and
    /// head.
    pub(crate) attention: Vec<Vec<f32>>,
    /// For each pair of units (tokens, words or private texts), the fraction of cells that the mask allows,
    /// `[queries][keys]`.
    pub(crate) allowed: Vec<Vec<f32>>,
    /// The mean of the final states of the tokens that are not hidden; empty if all tokens are hidden.
    pub(crate) state: Vec<f32>,
    pub(crate) guesses: Vec<Guess>,
    /// The classes that a classifier predicts.
    pub(crate) prediction: Prediction,
    pub(crate) continued: Option<String>,
    /// True if the continuation of the text is not shown, because it would depend on private text.
    pub(crate) withheld: bool,
    pub(crate) proof: Option<Proof>,
}

/// Numbers for the first [`MOST_NUMBERS`] tokens of a text, from which attention is computed in the shown layer and
/// head.
#[derive(serde::Serialize)]
pub(crate) struct Numbers {
    /// The attention scores before the mask is applied, `[queries][keys]`.
    scores: Vec<Vec<f64>>,
    /// The value vectors of the keys, `[keys][v_dim]`.
    values: Vec<Vec<f32>>,
    /// The logit that is added only to the denominator of the softmax; `None` if the model has no attention sinks.
    sink: Option<f32>,
}

/// The prediction of a model for one token.
#[derive(serde::Serialize)]
pub(crate) struct Guess {
    /// The index of the mask token (`<mask>`) that is predicted; `None` for the token that follows the text.
    #[serde(rename = "token", skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<usize>,
    /// The most probable tokens in descending order of probability.
    pub(crate) best: Vec<Candidate>,
}

/// A token that a model predicts.
#[derive(serde::Serialize)]
pub(crate) struct Candidate {
    pub(crate) token: String,
    pub(crate) probability: f32,
}

/// The tokens of a text, the private tokens of the text, and a copy of the model whose masks hide the `hidden` tokens.
struct Prepared {
    encoding: Encoding,
    found: Vec<Finding>,
    private: PrivateTokens,
    hidden: PrivateTokens,
    facts: Facts,
    /// The indices of the mask tokens (`<mask>`) in the text.
    masked: Vec<usize>,
    model: Model,
}

impl<'a> Job<'a> {
    fn prepare(&self) -> Result<Prepared> {
        let Source { model, tokenizer, .. } = self.source;
        let encoding = tokenizer.encode(self.text)?;
        self.check_len(&encoding)?;
        let found = self.known.find(self.text)?;
        let private = PrivateTokens::locate(&found, self.text, &encoding);
        let hidden = PrivateTokens::locate(&self.hide.find(self.text)?, self.text, &encoding);
        let facts = facts(&self.known.kinds(), &[&private], &[&hidden]);
        let masked = self.masked(&encoding);
        let model = masking(model, self.mask, hidden.count() > 0, !masked.is_empty())?;
        Ok(Prepared { encoding, found, private, hidden, facts, masked, model })
    }

    /// Returns a certificate, as JSON, that no hidden token influences another token through the masks of all layers. The
    /// certificate has the positions of the private tokens and no part of the text.
    ///
    /// # Errors
    /// Returns an error if no token of the text is hidden.
    #[cfg(feature = "serve")]
    pub(super) fn certificate(&self) -> Result<String> {
        let Prepared { encoding, hidden, facts, model, .. } = self.prepare()?;
        if hidden.count() == 0 {
            return Err(Failure::new(
                "no token of the text is hidden, so there is nothing to certify: choose what to hide",
            ));
        }
        let declared = &model.masks()[0];
        let shape = Shape::square(encoding.len()).heads(declared.heads[0]);
        let masks: Vec<Mask> = (0..declared.layers).map(|layer| declared.spec.mask.at_layer(layer)).collect();
        let flow = Flow::of_stack(&masks, &shape, &facts, Fill::Nothing)?;
        let policy = format!("deny: label({PRIVATE}) -> output").parse()?;
        Ok(Certificate::issue(&flow, &policy)?.to_json()?)
    }

    pub(crate) fn run(&self) -> Result<Ran<'a>> {
        let tokenizer = &self.source.tokenizer;
        let Prepared { encoding, found, private, hidden, facts, masked, model } = self.prepare()?;
        let names: Vec<String> = encoding
            .ids
            .iter()
            .map(|id| tokenizer.token(*id).map_or_else(|| format!("#{id}"), |name| printable(&name)))
            .collect();
        let [layers, heads, layer] = self.place(&model)?;

        let declared = &model.masks()[0];
        let mask = declared.spec.mask.at_layer(layer);
        let bound = mask.bind(&Shape::square(encoding.len()).heads(heads), &facts);
        let bound = bound.map_err(|e| {
            Failure::from(e)
                .hint("a text is one batch row without padding; its only facts are the labels of private tokens, as in keys(label=\"email\")")
        })?;

        let mut trace = Trace::layers([layer]);
        let secret = (&encoding, &hidden, &facts);
        let batch = batch(&encoding.ids, secret)?;
        let output = with_note("computing ...", || outputs(&model, &batch, Some(&mut trace)))?;
        check_finite(
            "the outputs",
            &evidence(&model, &batch, &output, &[(encoding.len(), &hidden)])?.concat().concat(),
        )?;
        let states = matrix(&output.last_hidden_state.get(0).map_err(candle)?)?;
        let prediction = Prediction::of(&model, &batch, 0, output.logits.as_ref(), (&encoding, &hidden))?;
        let Some(record) = trace.records().iter().find(|record| record.stack != Stack::Cross) else {
            return Err(Failure::new(format!(
                "layer {layer} of the model computed no attention, so there is nothing to show"
            )));
        };
        let weights = matrix(&record.weights()?.squeeze(0).and_then(|all| all.get(self.head)).map_err(candle)?)?;
        let numbers = numbers(record, self.head)?;
        let units = units(self.text, &encoding, &names, &private);
        let policy = Policy::Hide;
        let proof = match hidden.count() {
            0 => None,
            _ => Some(with_note("testing the hidden tokens ...", || self.prove(&model, secret))?),
        };
        let last = encoding.len() - 1;
        let predicts = *model.config().head() == Head::LanguageModel;
        let goes_on = matches!(model, Model::Decoder(_)) && predicts && masked.is_empty();
        let released = policy.released(&hidden, last);
        let mut places: Vec<Option<usize>> = masked.into_iter().map(Some).collect();
        if goes_on && released {
            places.push(None);
        }
        let continued = match goes_on && released && self.new_tokens > 0 {
            true => Some(self.continued(&model, &encoding.ids, &facts)?),
            false => None,
        };
        Ok(Ran {
            attention: gather(&units, &weights),
            allowed: allowed(&units, &bound, self.head),
            state: noren_models::pool_released(&states, &hidden, &policy).unwrap_or_default(),
            guesses: self.guesses(output.logits.as_ref(), &places, last)?,
            prediction,
            source: self.source,
            text: self.text,
            head: self.head,
            withheld: goes_on && !released,
            names,
            ranges: encoding.ranges,
            found,
            looked_for: self.known.kinds().iter().map(|kind| kind.to_string()).collect(),
            not_looked_for: self.known.not_looked_for(),
            private,
            hidden,
            units,
            layers,
            heads,
            layer,
            bound,
            weights,
            numbers,
            continued,
            proof,
        })
    }

    fn check_len(&self, encoding: &Encoding) -> Result<()> {
        if encoding.is_empty() {
            return Err(Failure::new("the text has no token of the model's vocabulary"));
        }
        let most = self.source.model.positions().unwrap_or(MOST_TOKENS).min(MOST_TOKENS);
        if encoding.len() > most {
            let message =
                format!("the text has {} tokens: at most {most} can be shown with this model", encoding.len());
            return Err(
                Failure::new(message).hint("shorten the text, or use noren embed, which reads files line by line")
            );
        }
        Ok(())
    }

    /// Returns the indices of the mask tokens (`<mask>`) in the text.
    fn masked(&self, encoding: &Encoding) -> Vec<usize> {
        let mask = self.source.tokenizer.special(Role::Mask);
        (0..encoding.len()).filter(|at| Some(encoding.ids[*at]) == mask).collect()
    }

    /// Returns the number of layers, the number of heads, and the index of the shown layer, in this order.
    ///
    /// # Errors
    ///
    /// Returns an error if the model does not have the layer or the head.
    fn place(&self, model: &Model) -> Result<[usize; 3]> {
        let declared = &model.masks()[0];
        let [layers, heads] = [declared.layers, declared.heads[0]];
        let layer = self.layer.unwrap_or(layers / 2);
        for (name, given, count, what) in [("--layer", layer, layers, "layers"), ("--head", self.head, heads, "heads")]
        {
            if given >= count {
                return Err(Failure::new(format!(
                    "{name} is {given}, but the model has {count} {what}, counted from 0"
                )));
            }
        }
        Ok([layers, heads, layer])
    }

    fn prove(&self, model: &Model, secret: Secret<'_>) -> Result<Proof> {
        let (encoding, hidden, _) = secret;
        let run = |ids: &[Vec<u32>]| {
            let batch = batch(&ids[0], secret)?;
            evidence(model, &batch, &outputs(model, &batch, None)?, &[(encoding.len(), hidden)])
        };
        let texts = [(&encoding.ids[..], hidden)];
        Ok(prove_texts(&texts, &Policy::Hide, &choices(self.source), TRIALS, run)?.swap_remove(0))
    }

    /// Returns one prediction for each entry of `places`; the list is empty if the model does not predict tokens. An
    /// entry is the index of a mask token, or `None` for the token after the text. For `None`, the prediction is
    /// computed from the logits of token `last`.
    fn guesses(&self, logits: Option<&Tensor>, places: &[Option<usize>], last: usize) -> Result<Vec<Guess>> {
        // The logits of a token classifier are scores of classes, not of tokens.
        let guesses = *self.source.model.config().head() == Head::LanguageModel;
        let Some(logits) = logits.filter(|_| guesses) else { return Ok(Vec::new()) };
        let logits = matrix(&logits.get(0).map_err(candle)?)?;
        let tokenizer = &self.source.tokenizer;
        let guess = |at: &Option<usize>| {
            let probabilities = softmax(&logits[at.unwrap_or(last)]);
            let mut order: Vec<usize> = (0..probabilities.len()).collect();
            order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
            let name = |id: usize| tokenizer.token(id as u32).map_or_else(|| format!("#{id}"), |name| printable(&name));
            let candidate = |id| Candidate { token: name(id), probability: probabilities[id] };
            Guess { at: *at, best: order.into_iter().take(CANDIDATES).map(candidate).collect() }
        };
        Ok(places.iter().map(guess).collect())
    }

    /// Generates the continuation of the text. Each token is sampled, because a text of the most probable tokens often
    /// repeats words.
    fn continued(&self, model: &Model, ids: &[u32], facts: &Facts) -> Result<String> {
        let tokenizer = &self.source.tokenizer;
        let limit =
            model.positions().map_or(self.new_tokens, |most| self.new_tokens.min((most + 1).saturating_sub(ids.len())));
        let options = GenerateOptions {
            new_tokens: limit,
            sampling: Sampling { temperature: 0.5, top_p: Some(0.9), ..Sampling::default() },
            stop: ends(model, tokenizer.as_ref()),
            facts: facts.clone(),
            ..GenerateOptions::default()
        };
        let made = with_note("generating ...", || generate(model, &[ids.to_vec()], &options, &mut |_| true))?;
        // Many tokenizers drop the space before the first token, so the tokens of the text are decoded first.
        let whole = tokenizer.decode(&[ids, &made.tokens[0]].concat())?;
        match whole.strip_prefix(&tokenizer.decode(ids)?) {
            Some(text) => Ok(text.to_owned()),
            None => Ok(tokenizer.decode(&made.tokens[0])?),
        }
    }
}

/// The tokens of a text, the hidden tokens of the text, and the facts with the labels of private tokens, in this order.
type Secret<'a> = (&'a Encoding, &'a PrivateTokens, &'a Facts);

/// Returns the batch of one text with the token ids `ids`. A proof passes ids that differ from the ids of the text at
/// hidden tokens.
fn batch(ids: &[u32], (_, hidden, facts): Secret<'_>) -> noren_models::Result<Batch> {
    let unpooled = hidden.positions().into_iter().map(|at| (0, at));
    Ok(Batch::new(vec![ids.to_vec()])?.facts(facts.clone()).unpooled(unpooled))
}

/// Returns the outputs of the model for a batch; for a T5, the states of its encoder. If `trace` is given, the attention
/// weights are recorded in it.
fn outputs(model: &Model, batch: &Batch, trace: Option<&mut Trace>) -> noren_models::Result<Output> {
    let call = Call { trace, ..Call::default() };
    match model {
        Model::T5(_) => Ok(Output { last_hidden_state: model.encode(batch, call)?, logits: None, pooler_output: None }),
        _ => model.forward_with(batch, None, call),
    }
}

/// Returns the outputs that a proof compares: for each text, one row of numbers for each token. The row of the first
/// token also contains the pooled state. The row of the token that [`class_place`] returns also contains the class
/// logits of the text.
///
/// `texts` has the number of tokens and the hidden tokens of each text.
pub(super) fn evidence(
    model: &Model,
    batch: &Batch,
    output: &Output,
    texts: &[(usize, &PrivateTokens)],
) -> noren_models::Result<Vec<Vec<Vec<f32>>>> {
    let Output { last_hidden_state, logits, pooler_output } = output;
    let of = |(i, (len, hidden)): (usize, &(usize, &PrivateTokens))| {
        let mut rows: Vec<Vec<f32>> = last_hidden_state.get(i)?.to_vec2()?;
        rows.truncate(*len);
        match logits {
            Some(logits) if logits.rank() == 3 => {
                rows.iter_mut().zip(logits.get(i)?.to_vec2::<f32>()?).for_each(|(row, logits)| row.extend(logits));
            }
            Some(logits) => {
                let place = class_place(&class_tokens(model, batch, i), hidden);
                rows[place].extend(logits.get(i)?.to_vec1::<f32>()?);
            }
            None => {}
        }
        if let Some(pooled) = pooler_output {
            rows[0].extend(pooled.get(i)?.to_vec1::<f32>()?);
        }
        Ok::<_, noren_models::Error>(rows)
    };
    texts.iter().enumerate().map(of).collect()
}

/// Returns the tokens that replace hidden tokens in a proof: all tokens that are not special.
pub(super) fn choices(source: &Source) -> Vec<u32> {
    let tokenizer = &source.tokenizer;
    (0..tokenizer.vocab_size() as u32).filter(|id| !tokenizer.is_special(*id)).collect()
}

/// Returns the model with changed masks. If `hides` is true, no other token may read the hidden tokens. The mask `mask`
/// of the option `--mask` replaces the masks of the model, except those of cross-attention and of a decoder with an
/// encoder. `fills` is true if the text has mask tokens that the model predicts.
pub(super) fn masking(model: &Model, mask: Option<&str>, hides: bool, fills: bool) -> Result<Model> {
    let given = mask.map(|text| crate::args::parse(text, None)).transpose()?;
    if let Some(score) = given.as_ref().and_then(|spec| spec.scores.first()) {
        let message = format!(
            "--mask has the score modifier {score}: give a mask without score modifiers; the model keeps its own"
        );
        return Err(Failure::new(message));
    }
    let mut changed = model.clone();
    for declared in model.masks() {
        // The decoder reads the text only through the encoder and the cross-attention, whose masks are changed.
        if matches!((model, declared.stack), (Model::T5(_), Stack::Decoder)) {
            continue;
        }
        let mask = match &given {
            Some(spec) if declared.stack != Stack::Cross => spec.mask.clone(),
            // A masked token is predicted from the tokens on both sides.
            None if fills && matches!(model, Model::Decoder(_)) => atoms::full(),
            _ => declared.spec.mask,
        };
        let mask = if hides { Policy::Hide.mask(mask) } else { mask };
        changed.set_mask(declared.stack, mask)?;
    }
    Ok(changed)
}

/// Returns facts (data that a mask is bound with) that define labels (named sets of tokens): `private` for all hidden
/// tokens, and one label for each kind of private text. The argument `private` has, for each batch row, the tokens of
/// all private text, and `hidden` has the hidden tokens. If a kind was not found, its label is empty.
pub(super) fn facts(kinds: &[Kind], private: &[&PrivateTokens], hidden: &[&PrivateTokens]) -> Facts {
    let names = kinds.iter().map(Kind::as_str).chain(["word"]);
    let known = names.fold(Facts::new(), |facts, kind| facts.label_rows(kind, vec![Vec::new(); private.len()]));
    let found = Policy::Hide.facts(private, known);
    Policy::Hide.facts(hidden, found)
}

/// Returns an error if one of `values`, outputs of a model with the name `name`, is NaN or infinite.
pub(crate) fn check_finite(name: &str, values: &[f32]) -> noren_models::Result<()> {
    match values.iter().find(|x| !x.is_finite()) {
        None => Ok(()),
        Some(x) => Err(noren_models::Error::Input {
            name: format!("a value of {name} of the model"),
            given: x.to_string(),
            expected: "a finite number is needed: the weights of the model are damaged, or too large for 32-bit floats"
                .into(),
        }),
    }
}

/// Returns the attention scores and the value vectors of head `head` for the first tokens of a text, at most
/// [`MOST_NUMBERS`].
fn numbers(record: &Record, head: usize) -> Result<Numbers> {
    let [heads, kv_heads] = [&record.queries, &record.values].map(|tensor| tensor.dims()[1]);
    let values = record.values.get(0).and_then(|all| all.get(head * kv_heads / heads)).map_err(candle)?;
    let len = values.dims()[0].min(MOST_NUMBERS);
    let values = values.narrow(0, 0, len).and_then(|first| first.to_dtype(DType::F32)).map_err(candle)?;
    Ok(Numbers { scores: record.scores([0, head], len)?, values: matrix(&values)?, sink: record.sink(head)? })
}

fn matrix(tensor: &Tensor) -> Result<Vec<Vec<f32>>> {
    tensor.to_vec2().map_err(candle)
}

fn candle(error: noren_models::candle_core::Error) -> Failure {
    noren_models::Error::from(error).into()
}
