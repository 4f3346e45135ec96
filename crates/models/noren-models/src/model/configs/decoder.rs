//! [`DecoderConfig`]: the configuration of a decoder, which is read from the `config.json` of eight families of models.

use super::classes::{Classes, Head};
use super::layered::{layered_mask, listed_windows};
use super::raw::Raw;
use super::rope::Rope;
use crate::error::{Error, Result};
use crate::nn::{Activation, NormKind};
use noren::noren_mask::{Score, Spec, atoms};

/// The configuration of a decoder. Families of models differ only in the values of these fields.
#[derive(Clone, PartialEq, Debug)]
pub struct DecoderConfig {
    /// The naming scheme of the parameters.
    pub names: Names,
    /// Number of tokens of the vocabulary.
    pub vocab: usize,
    /// Number of values in the hidden state of a token.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key-value heads.
    pub kv_heads: usize,
    /// Number of values in a query or key of one head.
    pub head_dim: usize,
    /// Number of values in the hidden layer of the feed-forward part.
    pub intermediate: usize,
    /// Maximum number of positions.
    pub positions: usize,
    /// The formula of the norms.
    pub norm: NormKind,
    /// The number that norms add to the variance or the mean square to prevent a division by 0.
    pub eps: f64,
    /// True if a norm is applied to the result of attention and to the result of the feed-forward part, before each is
    /// added to the residual stream (Gemma).
    pub post_norms: bool,
    /// Whether a norm is applied to the query and to the key of each head (Qwen 3, Gemma 3).
    pub qk_norm: bool,
    /// The rotary position embeddings; `None` if the model has learned position embeddings (GPT-2).
    pub rope: Option<Rope>,
    /// The rotary position embeddings of layers with a window (Gemma 3); `None` if these layers use `rope`.
    pub window_rope: Option<Rope>,
    /// The window of each layer, in tokens; `None` for a layer that reads all earlier tokens.
    pub windows: Vec<Option<usize>>,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Whether the hidden layer of the feed-forward part is multiplied by a gate, which a second weight matrix
    /// computes.
    pub gated: bool,
    /// The experts that replace the feed-forward part; `None` for one feed-forward part per layer.
    pub experts: Option<Experts>,
    /// Whether the projections to queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the projection after attention has a bias.
    pub out_bias: bool,
    /// Whether a gated feed-forward part has biases.
    pub mlp_bias: bool,
    /// The factor by which `q . k` is multiplied; `None` for `1 / sqrt(head_dim)`.
    pub scale: Option<f32>,
    /// Whether scores are also divided by the number of the layer, counted from 1 (an option of GPT-2).
    pub scale_by_layer: bool,
    /// The softcap of scores; `None` for no softcap.
    pub softcap: Option<f32>,
    /// Whether each head has a sink (gpt-oss): a learned logit whose exponential is added to the denominator of the
    /// softmax.
    pub sinks: bool,
    /// The factor by which embeddings are multiplied; `None` for 1.
    pub embedding_scale: Option<f64>,
    /// The softcap of logits; `None` for no softcap.
    pub logit_softcap: Option<f64>,
    /// The output head: the layers after the last transformer layer, which predict tokens or classes.
    pub head: Head,
    /// Whether the output layer of a language model uses the embedding table as its weight.
    pub tied: bool,
    /// Whether the output layer of a token classifier has a bias.
    pub classifier_bias: bool,
    /// The id of the padding token, which a text classifier skips at the end of a text; `None` for no such token.
    pub padding: Option<u32>,
    /// Probabilities of dropout in training, as (probability for embeddings and for the results of attention and
    /// feed-forward parts, probability for attention weights).
    pub dropout: (f32, f32),
    /// The ids of the tokens that end a text.
    pub stop: Vec<u32>,
}

/// The naming scheme of parameters in a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Names as in `model.layers.0.self_attn.q_proj`.
    Llama,
    /// Names as in `transformer.h.0.attn.c_attn`. Weights are stored as `[in, out]`. The projections to queries, keys
    /// and values are stored as one weight.
    Gpt2,
}

/// The settings of a mixture of experts. Each layer has several feed-forward parts (experts), and only some of them are
/// applied to each token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Experts {
    /// Number of experts in each layer.
    pub count: usize,
    /// Number of experts that are chosen for each token.
    pub chosen: usize,
    /// The factor `alpha` in the activation of an expert, `gate * sigmoid(alpha * gate)`.
    pub alpha: f64,
    /// The limit of an expert's hidden values `gate` and `up`. `gate` is limited to at most `limit`, and `up` to the
    /// range from `-limit` to `limit`.
    pub limit: f64,
}

impl DecoderConfig {
    /// Returns the configuration of a GPT-2 of the given sizes: learned positions, layer norms, GELU. All fields can be
    /// changed before the model is made.
    pub fn gpt2(vocab: usize, hidden: usize, layers: usize, heads: usize, positions: usize) -> Self {
        DecoderConfig {
            names: Names::Gpt2,
            vocab,
            hidden,
            layers,
            heads,
            kv_heads: heads,
            head_dim: hidden / heads.max(1),
            intermediate: 4 * hidden,
            positions,
            norm: NormKind::Layer,
            eps: 1e-5,
            post_norms: false,
            qk_norm: false,
            rope: None,
            window_rope: None,
            windows: vec![None; layers],
            activation: Activation::GeluTanh,
            gated: false,
            experts: None,
            attention_bias: true,
            out_bias: true,
            mlp_bias: false,
            scale: None,
            scale_by_layer: false,
            softcap: None,
            sinks: false,
            embedding_scale: None,
            logit_softcap: None,
            head: Head::LanguageModel,
            tied: true,
            classifier_bias: true,
            padding: None,
            dropout: (0.0, 0.0),
            stop: Vec::new(),
        }
    }

    /// Returns the configuration of a Llama of the given sizes: rotary positions, RMS norms, a gated feed-forward part,
    /// a separate output layer.
    pub fn llama(vocab: usize, hidden: usize, layers: usize, heads: usize, positions: usize) -> Self {
        DecoderConfig {
            names: Names::Llama,
            norm: NormKind::Rms,
            eps: 1e-6,
            rope: Some(Rope::new(10_000.0)),
            activation: Activation::Silu,
            gated: true,
            attention_bias: false,
            out_bias: false,
            tied: false,
            ..Self::gpt2(vocab, hidden, layers, heads, positions)
        }
    }

    /// Reads the configuration of a decoder whose `model_type` is `family`.
    pub(crate) fn read(raw: &Raw<'_>, family: &str, architecture: Option<&str>) -> Result<Self> {
        let head = head(raw, family, architecture)?;
        let plain = if family == "gpt2" { Self::read_gpt2(raw)? } else { Self::read_llama(raw, family)? };
        let config = DecoderConfig { head, ..plain };
        config.check()?;
        Ok(config)
    }

    fn read_gpt2(raw: &Raw<'_>) -> Result<Self> {
        if raw.flag_or("add_cross_attention", false)? {
            return Err(Error::config("add_cross_attention", true, "cross-attention is not supported in a GPT-2"));
        }
        let (hidden, layers) = (raw.count("n_embd")?, layers(raw, "n_layer")?);
        let plain =
            Self::gpt2(raw.count("vocab_size")?, hidden, layers, raw.count("n_head")?, raw.count("n_positions")?);
        let scaled = raw.flag_or("scale_attn_weights", true)?;
        let drop = |key| Ok::<_, Error>(raw.real_or(key, 0.0)? as f32);
        Ok(DecoderConfig {
            intermediate: raw.count_or("n_inner", 4 * hidden)?,
            eps: raw.real_or("layer_norm_epsilon", 1e-5)?,
            activation: raw.text_or("activation_function", "gelu_new")?.parse()?,
            scale: if scaled { None } else { Some(1.0) },
            scale_by_layer: raw.flag_or("scale_attn_by_inverse_layer_idx", false)?,
            tied: raw.flag_or("tie_word_embeddings", true)?,
            dropout: (drop("resid_pdrop")?, drop("attn_pdrop")?),
            stop: raw.ids("eos_token_id"),
            ..plain
        })
    }

    fn read_llama(raw: &Raw<'_>, family: &str) -> Result<Self> {
        if raw.flag_or("use_bidirectional_attention", false)? {
            return Err(Error::config("use_bidirectional_attention", true, "only causal decoders are supported"));
        }
        let habits = Habits::of(family);
        let (hidden, heads) = (raw.count("hidden_size")?, raw.count("num_attention_heads")?);
        let layers = layers(raw, "num_hidden_layers")?;
        let positions = raw.count_or("max_position_embeddings", habits.positions)?;
        let gemma = family.starts_with("gemma");
        let plain = Self::llama(raw.count("vocab_size")?, hidden, layers, heads, positions);
        let activation = match gemma {
            true => raw.text_or("hidden_activation", "gelu_pytorch_tanh")?,
            false => raw.text_or("hidden_act", "silu")?,
        };
        let (rope, window_rope) = ropes(raw, family, &habits, positions)?;
        let (scalar, softcaps) = (habits.scale_of, habits.softcaps);
        Ok(DecoderConfig {
            kv_heads: raw.count_or("num_key_value_heads", heads)?,
            head_dim: raw.count_or("head_dim", habits.head_dim.unwrap_or(hidden / heads))?,
            intermediate: raw.count("intermediate_size")?,
            norm: if gemma { NormKind::RmsPlusOne } else { NormKind::Rms },
            eps: raw.real_or("rms_norm_eps", 1e-6)?,
            post_norms: gemma,
            qk_norm: matches!(family, "qwen3" | "gemma3_text"),
            rope: Some(rope),
            window_rope,
            windows: windows(raw, family, &habits, layers)?,
            activation: activation.parse()?,
            experts: if family == "gpt_oss" { Some(experts(raw)?) } else { None },
            attention_bias: family == "qwen2" || raw.flag_or("attention_bias", family == "gpt_oss")?,
            out_bias: family != "qwen2" && raw.flag_or("attention_bias", family == "gpt_oss")?,
            mlp_bias: raw.flag_or("mlp_bias", false)?,
            scale: raw.real_unless_left_out("query_pre_attn_scalar", scalar)?.map(|by| (1.0 / by.sqrt()) as f32),
            softcap: raw
                .real_unless_left_out("attn_logit_softcapping", softcaps.map(|of| of[0]))?
                .map(|cap| cap as f32),
            sinks: family == "gpt_oss",
            embedding_scale: gemma.then(|| (hidden as f64).sqrt()),
            logit_softcap: raw.real_unless_left_out("final_logit_softcapping", softcaps.map(|of| of[1]))?,
            tied: raw.flag_or("tie_word_embeddings", gemma)?,
            classifier_bias: raw.flag_or("token_classification_bias", true)?,
            padding: raw.ids("pad_token_id").first().copied(),
            dropout: (0.0, raw.real_or("attention_dropout", 0.0)? as f32),
            stop: raw.ids("eos_token_id"),
            ..plain
        })
    }

    /// Returns an error if sizes in this configuration contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let DecoderConfig { heads, kv_heads, head_dim, .. } = *self;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let given = format!("{heads} heads, {kv_heads} key-value heads");
            return Err(Error::config(
                "num_key_value_heads",
                given,
                "the number of heads must be a multiple of the number of key-value heads",
            ));
        }
        if head_dim == 0 || self.rope.is_some() && !head_dim.is_multiple_of(2) {
            return Err(Error::config(
                "head_dim",
                head_dim,
                "an even number above 0 is needed, because rotary position encoding rotates pairs of dimensions",
            ));
        }
        if self.windows.len() != self.layers {
            let given = format!("for {} layers", self.windows.len());
            return Err(Error::config(
                "layer_types",
                given,
                format!("the model has {} layers: give a type for each layer", self.layers),
            ));
        }
        match self.experts {
            Some(Experts { count, chosen, .. }) if chosen > count => {
                Err(Error::config("num_experts_per_tok", chosen, format!("the model has only {count} experts")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the mask and the score modifiers of all layers as one expression.
    pub fn mask(&self) -> Spec {
        let of = |window: Option<usize>| window.map_or_else(atoms::causal, atoms::sliding);
        let mask = layered_mask(&self.windows, of);
        let mut spec = Spec::from(mask);
        spec.scores.extend(self.softcap.map(|cap| Score::softcap(f64::from(cap))));
        spec.scores.extend(self.sinks.then(|| Score::sinks("sinks")));
        spec
    }
}

/// The values that a family of models uses for keys that are missing in the configuration. A key with the value `null`
/// is not missing.
#[derive(Clone, Copy, Default)]
struct Habits {
    positions: usize,
    /// The default of `head_dim`; `None` for the width of the model divided by the number of heads.
    head_dim: Option<usize>,
    window: Option<usize>,
    theta: f64,
    /// The number by whose square root scores are divided; `None` for `head_dim`.
    scale_of: Option<f64>,
    /// The softcaps of scores and of logits, in this order; `None` for no softcaps.
    softcaps: Option<[f64; 2]>,
}

impl Habits {
    fn of(family: &str) -> Self {
        let llama = Habits { positions: 2048, theta: 1e4, ..Habits::default() };
        match family {
            "mistral" => Habits { positions: 131_072, window: Some(4096), ..llama },
            "qwen2" => Habits { positions: 32_768, window: Some(4096), ..llama },
            "qwen3" => Habits { positions: 32_768, head_dim: Some(128), window: Some(4096), ..llama },
            "gemma2" => Habits {
                positions: 8192,
                head_dim: Some(256),
                window: Some(4096),
                scale_of: Some(256.0),
                softcaps: Some([50.0, 30.0]),
                ..llama
            },
            "gemma3_text" => Habits {
                positions: 131_072,
                head_dim: Some(256),
                window: Some(4096),
                scale_of: Some(256.0),
                theta: 1e6,
                ..llama
            },
            "gpt_oss" => {
                Habits { positions: 131_072, head_dim: Some(64), window: Some(128), theta: 150_000.0, ..llama }
            }
            _ => llama,
        }
    }
}

/// The values of `model_type` for which classifiers are supported.
const CLASSIFIERS: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// Reads the head from the name of an architecture [default: a language model].
fn head(raw: &Raw<'_>, family: &str, architecture: Option<&str>) -> Result<Head> {
    let classifies = CLASSIFIERS.contains(&family);
    match architecture {
        None => Ok(Head::LanguageModel),
        Some(name) if name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel") => Ok(Head::LanguageModel),
        Some(name) if name.ends_with("ForSequenceClassification") && classifies => {
            Ok(Head::TextClassifier(Classes::read(raw)?))
        }
        Some(name) if name.ends_with("ForTokenClassification") && classifies => {
            Ok(Head::TokenClassifier(Classes::read(raw)?))
        }
        Some(name) if name.ends_with("Model") => Ok(Head::None),
        Some(name) => {
            let classifiers = if classifies { ", ForSequenceClassification, ForTokenClassification" } else { "" };
            let expected = format!(
                "for the model_type {family}, the name of the architecture must end in ForCausalLM, LMHeadModel{classifiers} or Model"
            );
            Err(Error::config("architectures", format!("{name:?}"), expected))
        }
    }
}

/// Reads a number of layers from `key`. Returns an error for more than 4096 layers, so that a wrong number does not
/// exhaust the memory.
fn layers(raw: &Raw<'_>, key: &str) -> Result<usize> {
    match raw.count(key)? {
        layers @ 1..=4096 => Ok(layers),
        layers => Err(Error::config(key, layers, "at most 4096 are possible")),
    }
}

/// Returns two rotary position embeddings: those of layers that read all earlier tokens, and those of layers with a
/// window. The second is `None` if layers with a window use the first.
fn ropes(raw: &Raw<'_>, family: &str, habits: &Habits, positions: usize) -> Result<(Rope, Option<Rope>)> {
    let by_kind = raw.object("rope_parameters")?;
    let kind = |name: &str| by_kind.as_ref().and_then(|kinds| kinds.object(name).transpose()).transpose();
    if let (Some(full), Some(window)) = (kind("full_attention")?, kind("sliding_attention")?) {
        return Ok((Rope::of(&full, habits.theta, positions)?, Some(Rope::of(&window, 1e4, positions)?)));
    }
    let rope = Rope::read(raw, habits.theta, positions)?;
    let window = match family {
        "gemma3_text" => Some(Rope::new(raw.real_or("rope_local_base_freq", 10_000.0)?)),
        _ => None,
    };
    Ok((rope, window))
}

/// Returns the window of each layer. The list `layer_types` in the configuration defines the windows. Without this
/// list, a rule of the family of models defines them.
fn windows(raw: &Raw<'_>, family: &str, habits: &Habits, layers: usize) -> Result<Vec<Option<usize>>> {
    let used = !family.starts_with("qwen") || raw.flag_or("use_sliding_window", false)?;
    let given = if raw.left_out("sliding_window") { habits.window } else { raw.count_if("sliding_window")? };
    let window = given.filter(|_| used);
    if let Some(listed) = listed_windows(raw, layers, window)? {
        return Ok(listed);
    }
    let pattern = raw.count_or("sliding_window_pattern", raw.count_or("_sliding_window_pattern", 6)?)?;
    // 0 is possible here: then all layers have a window.
    let first = raw.real_or("max_window_layers", 28.0)? as usize;
    let windowed = |layer: usize| match family {
        "mistral" => true,
        "gemma2" | "gpt_oss" => layer.is_multiple_of(2),
        "gemma3_text" => !(layer + 1).is_multiple_of(pattern),
        "qwen2" | "qwen3" => layer >= first,
        _ => false,
    };
    Ok((0..layers).map(|layer| window.filter(|_| windowed(layer))).collect())
}

fn experts(raw: &Raw<'_>) -> Result<Experts> {
    Ok(Experts {
        count: raw.count("num_local_experts")?,
        chosen: raw.count_or("num_experts_per_tok", raw.count_or("experts_per_token", 4)?)?,
        alpha: raw.real_or("swiglu_alpha", 1.702)?,
        limit: raw.real_or("swiglu_limit", 7.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_a_configuration_has_its_shortest_text() {
        let mut config = DecoderConfig::llama(16, 8, 12, 2, 64);
        assert_eq!(config.mask().to_string(), "causal");
        config.windows = vec![Some(4096); 12];
        assert_eq!(config.mask().to_string(), "sliding(4096)");
        config.windows = (0..12).map(|i| (i % 2 == 0).then_some(4096)).collect();
        config.softcap = Some(50.0);
        assert_eq!(config.mask().to_string(), "layers(every 2: sliding(4096), else: causal) + softcap(50)");
        config.windows = (0..12).map(|i| ((i + 1) % 6 != 0).then_some(512)).collect();
        config.softcap = None;
        assert_eq!(config.mask().to_string(), "layers(every 6 from 5: causal, else: sliding(512))");
        config.windows = vec![Some(8), None, Some(8)];
        config.layers = 3;
        assert_eq!(config.mask().to_string(), "layers(1: causal, else: sliding(8))");
    }
}
