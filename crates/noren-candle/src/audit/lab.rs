//! [`Lab`]: the tested model, with functions that make input tokens, run the model, and return the inputs on which each
//! output may depend.

use super::subject::Subject;
use crate::error::{Error, Result};
use crate::model::{Batch, Declared, Record, Stack, Trace};
use candle_core::{DType, Device, Tensor};
use noren::noren_mask::{Keep, philox};
use noren::{BoundMask, Dtype, Facts, Shape, Side};
use noren_flow::audit::{Change, Check, LENGTHS, PADS, Reads, rounding};
use noren_flow::{Fill, Flow};
use std::collections::BTreeSet;

/// The input tokens of one call of the model.
#[derive(Clone)]
pub(super) struct Input {
    /// The tokens that the encoder reads, or, in a model that is only an encoder or only a decoder, the tokens of the
    /// model.
    pub(super) text: Batch,
    /// The tokens of the decoder, if the model has an encoder and a decoder.
    pub(super) decoder: Option<Batch>,
}

impl Input {
    pub(super) fn of(text: Batch) -> Self {
        Input { text, decoder: None }
    }

    /// Returns the batch whose outputs are compared: the decoder's batch if there is one, otherwise the text.
    pub(super) fn main(&self) -> &Batch {
        self.decoder.as_ref().unwrap_or(&self.text)
    }
}

/// The outputs of a call, as `[batch row][token][feature]`.
pub(super) type Rows = Vec<Vec<Vec<f32>>>;

/// The batch row and the token index of an output, in this order.
pub(super) type Place = (usize, usize);

/// One comparison of two calls of the model, with the inputs `base` and `other`. Each of the `pairs` has one output of
/// each call. The two outputs must be equal in all pairs, or must differ in all pairs.
pub(super) struct Trial {
    pub(super) what: String,
    pub(super) base: Input,
    pub(super) other: Input,
    pub(super) pairs: Vec<(Place, Place)>,
    pub(super) broken: String,
    /// True if the two outputs of every pair must differ, false if they must be equal.
    pub(super) moved: bool,
    /// Known outputs with which the outputs for `base` are compared. If `None`, the model is called with `other` to
    /// compute them.
    pub(super) given: Option<Rows>,
}

impl Trial {
    /// Returns the trial (a comparison) that calls the model with `base` and with `other`. `change`, from the list of
    /// checks, defines which outputs are compared and whether they must differ.
    pub(super) fn of(change: Change, base: Input, other: Input) -> Trial {
        let Change { what, broken, compared, moves, .. } = change;
        let pairs = compared.into_iter().map(|place| (place, place)).collect();
        Trial { what, base, other, pairs, broken, moved: moves, given: None }
    }

    /// Returns whether both calls have the same numbers of rows and tokens. If so, the model should add in the same
    /// order in both calls, and outputs are compared bit by bit.
    pub(super) fn one_shape(&self) -> bool {
        let sizes = |input: &Input| [&input.text, input.main()].map(|batch| (batch.rows(), batch.len()));
        self.given.is_none() && sizes(&self.base) == sizes(&self.other)
    }
}

/// Returns a sentence that explains a failure of the check with the name `check`. `which` is the index of the sentence
/// among the sentences of this check, from 0. The texts in `about` replace the placeholders `{}` of the sentence.
pub(super) fn broken(check: &str, which: usize, about: &[&str]) -> String {
    Check::named(check).map_or_else(String::new, |check| check.sentence(which, about))
}

/// The trials of a check (comparisons of two calls of the model), or the reason why the check does not apply.
pub(super) type Trials = Result<std::result::Result<Vec<Trial>, String>>;

/// The tested model with its declared masks, and the inputs on which each output may depend.
pub(super) struct Lab<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) length: usize,
    pub(super) dtype: DType,
    /// Number of features (values) of an output.
    features: usize,
    /// The pairs (output token, input token) for which the output may depend on the input through all layers, as a
    /// mask.
    pub(super) reach: Keep,
    /// The pairs (query, key) that every layer allows in at least one of its heads, as a mask.
    pub(super) direct: Keep,
    main: Declared,
    crosses: bool,
}

impl<'a> Lab<'a> {
    pub(super) fn new(subject: &'a Subject<'a>, length: Option<usize>) -> Result<Self> {
        let crosses = subject.masks.iter().any(|declared| declared.stack == Stack::Cross);
        let wanted = if crosses { Stack::Decoder } else { subject.masks.first().map_or(Stack::Decoder, |d| d.stack) };
        let Some(main) = subject.masks.iter().find(|declared| declared.stack == wanted).cloned() else {
            return Err(Error::input("the declared masks", "none", "give one mask for each attention of the model"));
        };
        if subject.vocab < 8 {
            return Err(Error::input(
                "the vocabulary",
                subject.vocab,
                "the audit needs a vocabulary of at least 8 tokens",
            ));
        }
        let limit = subject.positions.map_or(usize::MAX, |most| most.saturating_sub(PADS));
        if length.unwrap_or(12) > limit || limit < 12 || length.is_some_and(|length| length < 12) {
            let given = format!("{} tokens", length.unwrap_or(12));
            let expected = match limit {
                usize::MAX => format!("give at least 12 tokens, because {PADS} tokens of padding are added"),
                _ => format!("give at least 12 and at most {limit} tokens, because {PADS} tokens of padding are added"),
            };
            return Err(Error::input("`length`", given, expected));
        }
        let mut lab = Lab {
            subject,
            length: 0,
            dtype: DType::F32,
            features: 1,
            reach: Keep::empty([1; 4]),
            direct: Keep::empty([1; 4]),
            main,
            crosses,
        };
        for length in length.map_or(LENGTHS.to_vec(), |length| vec![length]) {
            lab.length = length.min(limit);
            lab.reach = lab.flow()?.closure(0);
            if !lab.reach.get([0, 0, lab.length - 1, 2]) {
                break;
            }
        }
        if length.is_none() && lab.reach.get([0, 0, lab.length - 1, 2]) {
            lab.length = LENGTHS[0].min(limit);
            lab.reach = lab.flow()?.closure(0);
        }
        lab.direct = lab.every_layer()?;
        let out = lab.call(&lab.input(0)?, None)?;
        (lab.dtype, lab.features) = (out.dtype(), out.dim(2)?);
        Ok(lab)
    }

    fn flow(&self) -> Result<Flow> {
        let masks: Vec<_> = (0..self.main.layers).map(|l| self.main.spec.mask.at_layer(l as u64)).collect();
        let shape = Shape::square(self.length).heads(self.main.heads[0]);
        Ok(Flow::of_stack(&masks, &shape, &Facts::new(), Fill::Nothing)?)
    }

    fn layers(&self) -> Result<Vec<BoundMask>> {
        let shape = Shape::square(self.length).heads(self.main.heads[0]);
        let bind = |layer: usize| Ok(self.main.spec.mask.at_layer(layer as u64).bind(&shape, &Facts::new())?);
        (0..self.main.layers).map(bind).collect()
    }

    /// Returns the number of different masks among the heads of a layer: the maximum over all layers.
    pub(super) fn heads(&self) -> Result<usize> {
        let distinct = |layer: &BoundMask| {
            let plan = layer.plan();
            let patterns = (0..self.main.heads[0]).map(|head| plan.pattern_of(0, head));
            patterns.collect::<BTreeSet<_>>().len()
        };
        Ok(self.layers()?.iter().map(distinct).max().unwrap_or(1))
    }

    fn every_layer(&self) -> Result<Keep> {
        let (heads, layers) = (self.main.heads[0], self.layers()?);
        Ok(Keep::from_fn([1, 1, self.length, self.length], |[_, _, q, k]| {
            layers.iter().all(|layer| (0..heads).any(|head| layer.allowed(0, head, q, k)))
        }))
    }

    /// Returns the changes of tokens by which the check with the name `check` tests a model, or the reason why the
    /// check does not apply.
    pub(super) fn changes(&self, check: &str) -> std::result::Result<Vec<Change>, &'static str> {
        let reach = |q: usize, k: usize| self.reach.get([0, 0, q, k]);
        let direct = |q: usize, k: usize| self.direct.get([0, 0, q, k]);
        Reads { length: self.length, reach: &reach, direct: &direct }.changes(check)
    }

    /// Returns the largest difference of outputs that counts as rounding, as a fraction of the largest output. This
    /// limit applies only to two calls with different numbers of rows or tokens.
    pub(super) fn rounding(&self) -> f32 {
        let width = self.features.max(self.length + PADS);
        let layers = self.subject.masks.iter().map(|declared| declared.layers).sum();
        rounding(f64::from(epsilon(self.dtype)) / 2.0, layers, width) as f32
    }

    /// Returns the type to which the model rounds states of tokens, or `None` if it computes all states in `f32`. Rounding to
    /// a narrower type can remove the influence of a token on an output.
    pub(super) fn narrow(&self) -> Option<&'static str> {
        match (self.dtype, self.subject.weights) {
            (DType::BF16, _) | (DType::F32, Some((Dtype::Bf16, true))) => Some("bf16"),
            (DType::F16, _) => Some("f16"),
            _ => None,
        }
    }

    /// Returns whether the model has an encoder and a decoder.
    pub(super) fn crosses(&self) -> bool {
        self.crosses
    }

    /// Returns `length` random token ids. The same `salt` gives the same ids.
    pub(super) fn tokens(&self, length: usize, salt: u32) -> Vec<u32> {
        (0..length as u32).map(|at| 3 + philox([at, salt, 0xA0D1, 0], 0)[0] % (self.subject.vocab as u32 - 4)).collect()
    }

    /// Returns a token id for padding: the first id of the vocabulary if `kind` is 0, otherwise the last id.
    pub(super) fn pad(&self, kind: usize) -> u32 {
        if kind == 0 { 0 } else { self.subject.vocab as u32 - 1 }
    }

    /// Returns `ids` with other tokens at the indices `at`.
    pub(super) fn changed(&self, ids: &[u32], at: &[usize]) -> Vec<u32> {
        let last = self.subject.vocab as u32 - 4;
        let mut ids = ids.to_vec();
        at.iter().for_each(|i| {
            ids[*i] = 3 + (ids[*i] - 3 + 1 + philox([*i as u32, 0, 0xC4A6, 0], 0)[0] % (last - 1)) % last
        });
        ids
    }

    /// Returns a random text of one row, and another random text for the decoder if the model has an encoder and a
    /// decoder. The same `salt` gives the same texts.
    pub(super) fn input(&self, salt: u32) -> Result<Input> {
        let text = Batch::new(vec![self.tokens(self.length, salt)])?;
        let decoder = if self.crosses { Some(Batch::new(vec![self.tokens(self.length, salt + 50)])?) } else { None };
        Ok(Input { text, decoder })
    }

    /// Returns a copy of `input` in which `main` replaces the batch whose outputs are compared.
    pub(super) fn with_main(&self, input: &Input, main: Batch) -> Input {
        match input.decoder {
            Some(_) => Input { text: input.text.clone(), decoder: Some(main) },
            None => Input::of(main),
        }
    }

    /// Returns a batch with the single row `ids`. A token is marked as padding if `keep` is false for its index.
    pub(super) fn masked(&self, ids: &[u32], keep: impl Fn(usize) -> bool) -> Result<Batch> {
        let keep: Vec<u8> = (0..ids.len()).map(|at| u8::from(keep(at))).collect();
        let row = |values: Vec<u32>| Tensor::new(values, &Device::Cpu)?.unsqueeze(0);
        let keep = Tensor::new(keep, &Device::Cpu)?.unsqueeze(0)?;
        Batch::from_tensors(&row(ids.to_vec())?, Some(&keep))
    }

    /// Returns a batch with the single row `ids` and `PADS` padding tokens on `side`. The padding tokens have the id
    /// that [`pad`](Self::pad) returns for `kind`.
    pub(super) fn padded(&self, ids: &[u32], side: Side, kind: usize) -> Result<Batch> {
        self.padded_by(ids, side, kind, PADS)
    }

    /// Returns a batch with the single row `ids`, which has no padding, and `count` padding tokens on `side`. The
    /// padding tokens have the id that [`pad`](Self::pad) returns for `kind`.
    pub(super) fn padded_by(&self, ids: &[u32], side: Side, kind: usize, count: usize) -> Result<Batch> {
        let pads = vec![self.pad(kind); count];
        let (ids, first) = match side {
            Side::Left => ([pads, ids.to_vec()].concat(), count),
            Side::Right => ([ids.to_vec(), pads].concat(), 0),
        };
        let real = first..first + ids.len() - count;
        self.masked(&ids, |at| real.contains(&at))
    }

    pub(super) fn call(&self, input: &Input, trace: Option<&mut Trace>) -> Result<Tensor> {
        let out = (self.subject.run)(&input.text, input.decoder.as_ref(), trace)?;
        let sizes = (input.main().rows(), input.main().len());
        match out.dims3() {
            Ok((rows, len, _)) if (rows, len) == sizes => Ok(out),
            _ => Err(Error::tensor("the output", &out, format!("[{}, {}, features] is needed", sizes.0, sizes.1))),
        }
    }

    /// Returns the outputs of a call, as `[batch row][token][feature]`.
    pub(super) fn rows(&self, input: &Input) -> Result<Rows> {
        Ok(self.call(input, None)?.to_dtype(DType::F32)?.to_vec3()?)
    }

    /// Returns the place where the two calls that `trial` compares first differ: the name of the last attention before
    /// the difference, or "the embeddings". Returns `None` if the calls record no attention or different numbers of
    /// attentions, or if the trial does not run its second call.
    pub(super) fn place(&self, trial: &Trial) -> Result<Option<String>> {
        if trial.given.is_some() {
            return Ok(None);
        }
        let mut traces = [Trace::all(), Trace::all()];
        let [first, second] = &mut traces;
        self.call(&trial.base, Some(first))?;
        self.call(&trial.other, Some(second))?;
        let of = |trace: &Trace| trace.records().len();
        if of(&traces[0]) == 0 || of(&traces[0]) != of(&traces[1]) {
            return Ok(None);
        }
        let mut before: Option<&Record> = None;
        for (a, b) in traces[0].records().iter().zip(traces[1].records()) {
            if a.stack == Stack::Encoder && self.crosses {
                continue;
            }
            if self.differ(a, b, trial)? {
                break;
            }
            before = Some(a);
        }
        Ok(Some(before.map_or("the embeddings".into(), |record| {
            format!("the {} attention of layer {}", record.stack.name(), record.layer)
        })))
    }

    fn differ(&self, a: &Record, b: &Record, trial: &Trial) -> Result<bool> {
        let at = |queries: &Tensor, (row, token): Place| -> Result<Vec<f32>> {
            Ok(queries.get(row)?.narrow(1, token, 1)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
        };
        for (place, other) in &trial.pairs {
            let (a, b) = (at(&a.queries, *place)?, at(&b.queries, *other)?);
            let scale = a.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
            let slack = if trial.one_shape() { 0.0 } else { self.rounding() * scale };
            if a.iter().zip(&b).any(|(a, b)| (a - b).abs() > slack) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the distance from 1 to the next larger number of a float type.
fn epsilon(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2f32.powi(-7),
        DType::F16 => 2f32.powi(-10),
        _ => f32::EPSILON,
    }
}
