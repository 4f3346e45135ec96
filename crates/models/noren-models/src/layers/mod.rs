//! Layers with the parameter names of PyTorch: [`MultiHeadAttention`], [`TransformerEncoder`], [`TransformerDecoder`].
//!
//! Weights of `nn.MultiheadAttention`, `nn.TransformerEncoder` and `nn.TransformerDecoder` load without conversion.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{VarBuilder, VarMap};
//! use noren::{Facts, Shape, Spec};
//! use noren_models::layers::{LayerConfig, LayerPlans, TransformerEncoder};
//! use noren_models::nn::Mode;
//!
//! let vars = VarMap::new();
//! let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
//! let encoder = TransformerEncoder::new(&LayerConfig::new(32, 4), 2, &vb)?;
//!
//! // The first layer reads a window, the second layer reads all tokens; padding is never read.
//! let mask = "layers(0: window(left=2, right=2), else: full) & padding".parse()?;
//! let shape = Shape::square(7).batch(2).heads(4);
//! let plans = LayerPlans::new(&mask, 2, &shape, &Facts::new().lengths([7, 4]))?;
//! let x = Tensor::randn(0f32, 1.0, (2, 7, 32), &Device::Cpu)?;
//! assert_eq!(encoder.forward(&x, &plans, Mode::Inference)?.dims(), [2, 7, 32]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod mha;
mod plans;
mod transformer;

pub use mha::{MhaConfig, MultiHeadAttention};
pub(crate) use mha::{join_heads, split_heads};
pub use plans::LayerPlans;
pub use transformer::{
    LayerConfig, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer,
};
