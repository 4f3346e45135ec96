//! [`T5`]: an encoder and a decoder with relative position biases.

use super::parts::{FeedForward, Packing, embed, project};
use crate::error::{Error, Result};
use crate::layers::{join_heads, split_heads};
use crate::model::batch::Batch;
use crate::model::configs::raw::Raw;
use crate::model::pass::Pass;
use crate::nn::{Activation, Linear, Mode, Norm, NormKind};
use crate::stack::Stack;
use candle_core::{Device, Tensor};
use candle_nn::{Init, VarBuilder};
use noren::linear::Weight;
use noren::noren_mask::{Score, Spec};
use noren::{Dtype, atoms};
use noren_candle::{Bias, Options};

/// The configuration of a T5.
#[derive(Clone, PartialEq, Debug)]
pub struct T5Config {
    /// Number of tokens of the vocabulary.
    pub vocab: usize,
    /// Number of values in the hidden state of a token.
    pub hidden: usize,
    /// Number of values in a query, key or value of one head.
    pub head_dim: usize,
    /// Number of values in the hidden layer of the feed-forward part.
    pub intermediate: usize,
    /// Numbers of layers of the encoder and of the decoder, in this order.
    pub layers: [usize; 2],
    /// Number of attention heads.
    pub heads: usize,
    /// Number of buckets into which the distances between queries and keys are sorted. Distances in the same bucket
    /// have the same bias.
    pub buckets: usize,
    /// All distances of at least this number of tokens, in the same direction, are in one bucket.
    pub most_distance: usize,
    /// The number that norms add to the mean square to prevent a division by 0.
    pub eps: f64,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Whether the hidden layer of the feed-forward part is multiplied by a gate, which a second weight matrix
    /// computes.
    pub gated: bool,
    /// Whether the output layer uses the embedding table as its weight.
    pub tied: bool,
    /// True if hidden states are divided by the square root of `hidden` before the output layer.
    pub scaled_output: bool,
    /// The probability with which a hidden value or an attention weight is set to 0 in training.
    pub dropout: f32,
    /// The id of the token with which the decoder begins.
    pub start: u32,
    /// The ids of the tokens that end a text.
    pub stop: Vec<u32>,
}

impl T5Config {
    pub(crate) fn read(raw: &Raw<'_>) -> Result<Self> {
        let (gated, activation) = match raw.text_or("feed_forward_proj", "relu")? {
            "gated-gelu" => (true, Activation::GeluTanh),
            other => match other.strip_prefix("gated-") {
                Some(name) => (true, name.parse()?),
                None => (false, other.parse()?),
            },
        };
        let encoder = raw.count("num_layers")?;
        let tied = raw.flag_or("tie_word_embeddings", true)?;
        let config = T5Config {
            vocab: raw.count("vocab_size")?,
            hidden: raw.count("d_model")?,
            head_dim: raw.count("d_kv")?,
            intermediate: raw.count("d_ff")?,
            layers: [encoder, raw.count_or("num_decoder_layers", encoder)?],
            heads: raw.count("num_heads")?,
            buckets: raw.count_or("relative_attention_num_buckets", 32)?,
            most_distance: raw.count_or("relative_attention_max_distance", 128)?,
            eps: raw.real_or("layer_norm_epsilon", 1e-6)?,
            activation,
            gated,
            tied,
            scaled_output: raw.flag_or("scale_decoder_outputs", tied)?,
            dropout: raw.real_or("dropout_rate", 0.1)? as f32,
            start: raw.ids("decoder_start_token_id").first().copied().unwrap_or(0),
            stop: raw.ids("eos_token_id"),
        };
        if config.most_distance > 1 << 16 {
            let given = config.most_distance;
            return Err(Error::config("relative_attention_max_distance", given, "at most 65536 is possible"));
        }
        if config.layers.iter().any(|layers| *layers > 4096) {
            return Err(Error::config("num_layers", format!("{:?}", config.layers), "at most 4096 are possible"));
        }
        match config.buckets {
            buckets if buckets >= 4 && buckets.is_multiple_of(2) && config.most_distance > buckets / 2 => Ok(config),
            buckets => {
                let expected =
                    "an even number of at least 4 is needed, and less than twice relative_attention_max_distance";
                Err(Error::config("relative_attention_num_buckets", buckets, expected))
            }
        }
    }
}

impl T5Config {
    /// Returns the masks of the encoder's self-attention, the decoder's self-attention, and the decoder's attention
    /// over the encoder, in this order.
    pub(crate) fn masks() -> [Spec; 3] {
        let relative = |mask: noren::Mask| Spec::from(mask) + Score::relative("relative_attention_bias");
        [relative(atoms::full()), relative(atoms::causal()), atoms::full().into()]
    }
}

/// A T5 model.
#[derive(Clone, Debug)]
pub struct T5 {
    config: T5Config,
    /// The masks of the encoder's self-attention, the decoder's self-attention, and the decoder's attention over the
    /// encoder, in this order.
    pub(crate) declared: [Spec; 3],
    embeddings: Tensor,
    encoder: T5Stack,
    decoder: T5Stack,
    head: Linear,
}

#[derive(Clone, Debug)]
struct T5Stack {
    blocks: Vec<Block>,
    norm: Norm,
    /// The learned bias of each bucket of distances for each head, `[buckets, heads]`.
    biases: Tensor,
}

#[derive(Clone, Debug)]
struct Block {
    attention: Part,
    cross: Option<Part>,
    feedforward: FeedForward,
    feedforward_norm: Norm,
}

/// The parameters of one attention in a layer, with the norm before it.
#[derive(Clone, Debug)]
struct Part {
    norm: Norm,
    projections: [Linear; 3],
    out: Linear,
}

/// For every decoder layer, the `[keys, values]` of the attention over the encoder. They are computed from the
/// encoder's output.
pub(crate) type CrossKeys = Vec<[Tensor; 2]>;

impl T5 {
    /// Makes the model with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &T5Config, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::build(config, vb, None)
    }

    /// Makes the model as [`new`](Self::new) does, and packs weights as `packing` defines; `None`: packs nothing.
    pub(crate) fn build(config: &T5Config, vb: &VarBuilder<'_>, packing: Option<Packing>) -> Result<Self> {
        let shared = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"];
        let name = shared.into_iter().find(|name| vb.contains_tensor(&format!("{name}.weight"))).unwrap_or(shared[0]);
        let normal = Init::Randn { mean: 0.0, stdev: 1.0 };
        let embeddings = vb.pp(name).get_with_hints((config.vocab, config.hidden), "weight", normal)?;
        let all = packing.filter(|packing| packing.all);
        let mut head = match config.tied {
            true => Linear::new(embeddings.clone(), None),
            false => Linear::load(config.hidden, config.vocab, false, &vb.pp("lm_head"))?,
        };
        if let Some(Packing { dtype, .. }) = all {
            head.pack(dtype)?;
        }
        Ok(T5 {
            declared: T5Config::masks(),
            encoder: T5Stack::new(config, config.layers[0], false, &vb.pp("encoder"), packing)?,
            decoder: T5Stack::new(config, config.layers[1], true, &vb.pp("decoder"), all)?,
            embeddings,
            head,
            config: config.clone(),
        })
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]).
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.encoder.pack(dtype)?;
        self.decoder.pack(dtype)?;
        self.head.pack(dtype)
    }

    /// Returns a packed weight of the first layer, or `None` if the weights are not packed.
    pub(crate) fn packed_weight(&self) -> Option<&Weight> {
        self.encoder.blocks.first()?.attention.out.packed_weight()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &T5Config {
        &self.config
    }

    /// Returns the encoder's output, `[batch, length, hidden]`.
    pub(crate) fn encode(&self, batch: &Batch, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = embed(&self.embeddings, &batch.ids_tensor(self.embeddings.device())?)?;
        self.encoder.forward(&x, &self.config, Stack::Encoder, None, pass)
    }

    /// Returns the keys and values that each decoder layer computes from the encoder's output `encoded`.
    pub(crate) fn cross_keys(&self, encoded: &Tensor) -> Result<CrossKeys> {
        let keys = |block: &Block| -> Result<Option<[Tensor; 2]>> {
            let Some(cross) = &block.cross else { return Ok(None) };
            let part = |linear: &Linear| split_heads(&linear.forward(encoded)?, self.config.heads);
            Ok(Some([part(&cross.projections[1])?, part(&cross.projections[2])?]))
        };
        let all = self.decoder.blocks.iter().filter_map(|block| keys(block).transpose());
        all.collect()
    }

    /// Returns the decoder's hidden states after the last norm, `[batch, length, hidden]`. `ids` are the decoder's
    /// tokens `[batch, length]`, and `cross` is a result of [`cross_keys`](Self::cross_keys).
    pub(crate) fn decode(&self, ids: &Tensor, cross: &CrossKeys, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = embed(&self.embeddings, ids)?;
        self.decoder.forward(&x, &self.config, Stack::Decoder, Some(cross), pass)
    }

    /// Returns the logits of the next token, `[..., vocab]`, for the hidden states `hidden` `[..., hidden]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        match self.config.scaled_output {
            true => self.head.forward(&(hidden * (self.config.hidden as f64).sqrt().recip())?),
            false => self.head.forward(hidden),
        }
    }
}

impl Block {
    /// Packs the weights of the linear layers ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        for Part { projections: [q, k, v], out, .. } in [&mut self.attention].into_iter().chain(&mut self.cross) {
            [q, k, v, out].into_iter().try_for_each(|linear| linear.pack(dtype))?;
        }
        self.feedforward.pack(dtype)
    }
}

impl T5Stack {
    fn new(
        config: &T5Config,
        layers: usize,
        decodes: bool,
        vb: &VarBuilder<'_>,
        packing: Option<Packing>,
    ) -> Result<Self> {
        let T5Config { hidden, intermediate, heads, head_dim, eps, activation, .. } = *config;
        let norm = |vb: VarBuilder<'_>| Norm::load(NormKind::Rms, hidden, eps, &vb);
        let part = |vb: VarBuilder<'_>, name: &str| -> Result<Part> {
            let load = |part| Linear::load(hidden, heads * head_dim, false, &vb.pp(name).pp(part));
            Ok(Part {
                norm: norm(vb.pp("layer_norm"))?,
                projections: [load("q")?, load("k")?, load("v")?],
                out: Linear::load(heads * head_dim, hidden, false, &vb.pp(name).pp("o"))?,
            })
        };
        let block = |i: usize| -> Result<Block> {
            let layer = vb.pp("block").pp(i).pp("layer");
            let last = layer.pp(if decodes { 2 } else { 1 });
            let dense = last.pp("DenseReluDense");
            let up = |name| Linear::load(hidden, intermediate, false, &dense.pp(name));
            let down = Linear::load(intermediate, hidden, false, &dense.pp("wo"))?;
            let feedforward = match config.gated {
                true => FeedForward::Gated { gate: up("wi_0")?, up: up("wi_1")?, down, activation },
                false => FeedForward::Plain { up: up("wi")?, down, activation },
            };
            let cross = decodes.then(|| part(layer.pp(1), "EncDecAttention")).transpose()?;
            let attention = part(layer.pp(0), "SelfAttention")?;
            let mut block = Block { attention, cross, feedforward, feedforward_norm: norm(last.pp("layer_norm"))? };
            if let Some(Packing { dtype, .. }) = packing {
                block.pack(dtype)?;
            }
            Ok(block)
        };
        let first = vb.pp("block.0.layer.0.SelfAttention.relative_attention_bias");
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        Ok(T5Stack {
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            norm: norm(vb.pp("final_layer_norm"))?,
            biases: first.get_with_hints((config.buckets, heads), "weight", normal)?,
        })
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.blocks.iter_mut().try_for_each(|block| block.pack(dtype))
    }

    fn forward(
        &self,
        x: &Tensor,
        config: &T5Config,
        stack: Stack,
        cross: Option<&CrossKeys>,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let T5Config { heads, dropout, .. } = *config;
        let table = self.relative(config, stack == Stack::Encoder, x.device())?;
        // T5 does not scale scores.
        let plain = Options { scale: Some(1.0), ..Options::default() };
        let relative = Options { bias: vec![Bias::Relative(table)], ..plain.clone() };
        let mode = pass.mode.at(1000 * stack as u64);
        let add = |x: &Tensor, inner: Tensor, mode: Mode| Ok::<_, Error>((x + mode.dropout(&inner, dropout)?)?);
        let mut x = mode.at(0).dropout(x, dropout)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let mode = mode.at(1 + layer as u64);
            let Part { norm, projections, out } = &block.attention;
            let [q, k, v] = project(&norm.forward(&x)?, projections, [heads; 2])?;
            let read = pass.attend((stack, layer), [&q, &k, &v], relative.clone(), dropout)?;
            x = add(&x, out.forward(&join_heads(&read)?)?, mode.at(0))?;
            if let (Some(Part { norm, projections: [q, ..], out }), Some(cross)) = (&block.cross, cross) {
                let [k, v] = &cross[layer];
                let q = split_heads(&q.forward(&norm.forward(&x)?)?, heads)?;
                let read = pass.attend((Stack::Cross, layer), [&q, k, v], plain.clone(), dropout)?;
                x = add(&x, out.forward(&join_heads(&read)?)?, mode.at(1))?;
            }
            let inner = block.feedforward.forward(&block.feedforward_norm.forward(&x)?)?;
            x = add(&x, inner, mode.at(2))?;
        }
        mode.at(u64::MAX).dropout(&self.norm.forward(&x)?, dropout)
    }

    /// Returns the bias of each distance from `-most_distance` to `most_distance` as the table that [`Bias::Relative`]
    /// needs, `[heads, 2 * most_distance + 1]`. `both_sides` is true for the encoder, whose queries also read later
    /// keys.
    fn relative(&self, config: &T5Config, both_sides: bool, device: &Device) -> Result<Tensor> {
        let reach = config.most_distance as i64;
        let buckets: Vec<u32> = (-reach..=reach)
            .map(|distance| bucket(distance, both_sides, config.buckets, config.most_distance))
            .collect();
        Ok(self.biases.index_select(&Tensor::new(buckets, device)?, 0)?.t()?)
    }
}

/// Returns the index of the bucket for `distance`, the position of the key minus the position of the query (Raffel et
/// al. 2020). Each small distance has a separate bucket. Larger distances, up to `most`, share buckets on a logarithmic
/// scale. If `both_sides` is true, half of the buckets are for keys after the query. Otherwise, all keys after the
/// query share the bucket of distance 0. For example, with 32 buckets for both sides and `most` 128, the distance -7
/// has bucket 7, and the distance 7 has bucket 23.
fn bucket(distance: i64, both_sides: bool, buckets: usize, most: usize) -> u32 {
    let (buckets, first, distance) = match both_sides {
        true => (buckets / 2, if distance > 0 { buckets / 2 } else { 0 }, distance.unsigned_abs() as usize),
        false => (buckets, 0, (-distance).max(0) as usize),
    };
    let own = buckets / 2;
    let within = match distance {
        near if near < own => near,
        far => {
            // In `f32`, as in the training of the models, so that borders are the same.
            let share = (far as f32 / own as f32).ln() / (most as f32 / own as f32).ln();
            (own + (share * (buckets - own) as f32) as usize).min(buckets - 1)
        }
    };
    (first + within) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_paper() {
        let of = |distance| bucket(distance, true, 32, 128);
        assert_eq!([0, -1, -7, -8, -127, -500].map(of), [0, 1, 7, 8, 15, 15]);
        assert_eq!([1, 7, 8, 127, 128].map(of), [17, 23, 24, 31, 31]);
        let causal = |distance| bucket(distance, false, 32, 128);
        assert_eq!([3, 0, -15, -16, -128].map(causal), [0, 0, 15, 16, 31]);
    }
}
