//! [`ModernBertConfig`]: the configuration of a ModernBERT.

use super::classes::Head;
use super::layered::{layered_mask, listed_windows};
use super::raw::Raw;
use super::rope::Rope;
use crate::error::{Error, Result};
use crate::nn::Activation;
use noren::{Spec, atoms};

/// The configuration of a ModernBERT: an encoder with rotary positions, whose layers read all tokens or a window.
#[derive(Clone, PartialEq, Debug)]
pub struct ModernBertConfig {
    /// Number of tokens of the vocabulary.
    pub vocab: usize,
    /// Number of values in the hidden state of a token.
    pub hidden: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of values in the hidden layer of the feed-forward part.
    pub intermediate: usize,
    /// Maximum number of positions.
    pub positions: usize,
    /// The window of each layer: the number of tokens that a token reads on either side; `None` for a layer in which
    /// every token reads every token.
    pub windows: Vec<Option<usize>>,
    /// The rotary position embeddings of layers without a window, and of layers with a window, in this order.
    pub ropes: [Rope; 2],
    /// The number that norms add to the variance to prevent a division by 0.
    pub eps: f64,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// The parts that have a bias.
    pub biases: ModernBertBiases,
    /// Probabilities of dropout in training: for embeddings, for attention weights and the results of attention, and
    /// for the hidden layer of the feed-forward part, in this order.
    pub dropout: [f32; 3],
    /// The output head: the layers after the last transformer layer, which predict tokens or classes.
    pub head: Head,
    /// The activation of the head.
    pub head_activation: Activation,
    /// The state that a text classifier reads.
    pub pooling: ClassifierPooling,
}

/// The parts of a ModernBERT that have a bias. Usually only `decoder` is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModernBertBiases {
    /// Whether the projections of attention have a bias.
    pub attention: bool,
    /// Whether the feed-forward part has biases.
    pub mlp: bool,
    /// Whether norms have a bias.
    pub norm: bool,
    /// Whether the hidden layer of the head has a bias.
    pub head: bool,
    /// Whether the output layer of the masked-LM head has a bias.
    pub decoder: bool,
}

/// The state from which a text classifier computes the classes of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassifierPooling {
    /// The state of the first token (`cls`).
    First,
    /// The mean of the states of all tokens (`mean`).
    Mean,
}

impl ModernBertConfig {
    /// Returns the mask of all layers. A layer with a window `w` has the mask `window(left=w, right=w)`.
    pub fn mask(&self) -> Spec {
        let of = |window: Option<usize>| window.map_or_else(atoms::full, |w| atoms::window(w, w));
        layered_mask(&self.windows, of).into()
    }

    pub(crate) fn read(raw: &Raw<'_>, architecture: Option<&str>) -> Result<Self> {
        let (hidden, heads) = (raw.count("hidden_size")?, raw.count("num_attention_heads")?);
        let layers = raw.count("num_hidden_layers")?;
        if layers > 4096 || !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(2) {
            let given = format!("{layers} layers of {heads} heads with a width of {hidden}");
            let expected =
                "the width of a head, which is the width divided by the number of heads, must be an even number";
            return Err(Error::config("the size", given, expected));
        }
        let positions = raw.count_or("max_position_embeddings", 8192)?;
        let drop = |key| Ok::<_, Error>(raw.real_or(key, 0.0)? as f32);
        let pooling = match raw.text_or("classifier_pooling", "cls")? {
            "cls" => ClassifierPooling::First,
            "mean" => ClassifierPooling::Mean,
            other => {
                return Err(Error::config(
                    "classifier_pooling",
                    format!("{other:?}"),
                    "give cls (the first token) or mean (all tokens)",
                ));
            }
        };
        Ok(ModernBertConfig {
            vocab: raw.count("vocab_size")?,
            hidden,
            heads,
            intermediate: raw.count("intermediate_size")?,
            positions,
            windows: windows(raw, layers)?,
            ropes: ropes(raw, positions)?,
            eps: raw.real_or("norm_eps", 1e-5)?,
            activation: raw.text_or("hidden_activation", "gelu")?.parse()?,
            biases: ModernBertBiases {
                attention: raw.flag_or("attention_bias", false)?,
                mlp: raw.flag_or("mlp_bias", false)?,
                norm: raw.flag_or("norm_bias", false)?,
                head: raw.flag_or("classifier_bias", false)?,
                decoder: raw.flag_or("decoder_bias", true)?,
            },
            dropout: [drop("embedding_dropout")?, drop("attention_dropout")?, drop("mlp_dropout")?],
            head: Head::read(raw, "ModernBert", architecture)?,
            head_activation: raw.text_or("classifier_activation", "gelu")?.parse()?,
            pooling,
        })
    }
}

/// Returns the window of each layer, from the list `layer_types`, or else by `global_attn_every_n_layers`.
fn windows(raw: &Raw<'_>, layers: usize) -> Result<Vec<Option<usize>>> {
    // `local_attention` counts the keys on both sides together, without the query itself.
    let window = Some(raw.count_or("local_attention", 128)? / 2);
    if let Some(listed) = listed_windows(raw, layers, window)? {
        return Ok(listed);
    }
    let every = raw.count_or("global_attn_every_n_layers", 3)?;
    Ok((0..layers).map(|layer| window.filter(|_| !layer.is_multiple_of(every))).collect())
}

/// Returns the rotary position embeddings of layers without and with a window, from `rope_parameters`, or from the
/// older keys `global_rope_theta`, `local_rope_theta` and `rope_scaling`.
fn ropes(raw: &Raw<'_>, positions: usize) -> Result<[Rope; 2]> {
    let global = raw.real_or("global_rope_theta", 160_000.0)?;
    let local = raw.real_unless_left_out("local_rope_theta", Some(10_000.0))?.unwrap_or(global);
    let none = serde_json::Map::new();
    let by_kind = raw.object("rope_parameters")?.unwrap_or(Raw(&none));
    if let Some(key) = ["rope_type", "rope_theta"].into_iter().find(|key| by_kind.get(key).is_some()) {
        let expected = "give one object for full_attention and one for sliding_attention";
        return Err(Error::config("rope_parameters", format!("an object with the key {key}"), expected));
    }
    let scaling = raw.object("rope_scaling")?.unwrap_or(Raw(&none));
    let rope = |kind: &str, theta: f64| match by_kind.object(kind)? {
        Some(parameters) => Rope::of(&parameters, theta, positions),
        None => Rope::of(&scaling, theta, positions),
    };
    Ok([rope("full_attention", global)?, rope("sliding_attention", local)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(more: serde_json::Value) -> Result<ModernBertConfig> {
        let mut config = json!({
            "vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 7,
            "intermediate_size": 24
        });
        let object = config.as_object_mut().unwrap();
        object.extend(more.as_object().unwrap().clone());
        ModernBertConfig::read(&Raw(object), Some("ModernBertModel"))
    }

    #[test]
    fn layers_and_thetas_are_read_from_old_and_new_keys() {
        let old = read(json!({"local_attention": 8})).unwrap();
        assert_eq!(old.mask().to_string(), "layers(every 3: full, else: window(left=4, right=4))");
        assert_eq!(old.ropes, [Rope::new(160_000.0), Rope::new(10_000.0)]);
        let thetas = read(json!({"global_rope_theta": 7e4, "local_rope_theta": null})).unwrap().ropes;
        assert_eq!(thetas, [Rope::new(7e4), Rope::new(7e4)]);
        let types = vec!["sliding_attention"; 7];
        let new = json!({
            "layer_types": types,
            "rope_parameters": {"full_attention": {"rope_theta": 5e4}, "sliding_attention": {"rope_theta": 300.0}}
        });
        let new = read(new).unwrap();
        assert_eq!(new.mask().to_string(), "window(left=64, right=64)");
        assert_eq!(new.ropes, [Rope::new(5e4), Rope::new(300.0)]);
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let message = |more| read(more).unwrap_err().to_string();
        assert!(
            message(json!({"classifier_pooling": "max"}))
                .contains("classifier_pooling is \"max\": give cls (the first token) or mean (all tokens)")
        );
        assert!(message(json!({"layer_types": ["full_attention"]})).contains("layer_types is for 1 layers"));
        assert!(message(json!({"layer_types": "full_attention"})).contains("layer_types is no list"));
        assert!(message(json!({"hidden_activation": "mish"})).contains("\"mish\""));
        let flat = json!({"rope_parameters": {"rope_theta": 1e4}});
        assert!(message(flat).contains("rope_parameters is an object with the key rope_theta"));
        assert!(message(json!({"hidden_size": 15})).contains("the width of a head"));
    }
}
