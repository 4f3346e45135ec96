//! [`Target`]: a library or operator for which code is written.

use std::fmt;
use std::str::FromStr;

/// A library or operator for which the code of a mask is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Target {
    /// noren in Rust.
    Rust,
    /// noren in Python.
    Python,
    /// PyTorch's `scaled_dot_product_attention`, with an array in which true allows a cell.
    Sdpa,
    /// PyTorch's `nn.MultiheadAttention`, with `attn_mask` and `key_padding_mask`.
    Mha,
    /// PyTorch's `nn.TransformerEncoder`, with `mask` and `src_key_padding_mask`.
    Encoder,
    /// PyTorch's FlexAttention, with `mask_mod`, `create_block_mask` and `score_mod`.
    Flex,
    /// Hugging Face transformers, with a mask function.
    Hf,
    /// `jax.nn.dot_product_attention`.
    Jax,
    /// `keras.layers.MultiHeadAttention`.
    Keras,
    /// NumPy, with the attention written out.
    Numpy,
    /// The operator Attention of ONNX (opset 23 and later).
    Onnx,
}

impl Target {
    /// Every target, in the order in which lists show them.
    pub const ALL: [Target; 11] = [
        Target::Python,
        Target::Rust,
        Target::Sdpa,
        Target::Mha,
        Target::Encoder,
        Target::Flex,
        Target::Hf,
        Target::Jax,
        Target::Keras,
        Target::Numpy,
        Target::Onnx,
    ];

    /// Returns the name of the target, as the option `--to` accepts it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Rust => "rust",
            Target::Python => "python",
            Target::Sdpa => "sdpa",
            Target::Mha => "mha",
            Target::Encoder => "encoder",
            Target::Flex => "flex",
            Target::Hf => "hf",
            Target::Jax => "jax",
            Target::Keras => "keras",
            Target::Numpy => "numpy",
            Target::Onnx => "onnx",
        }
    }

    /// Returns a short title: the library and the form of the code.
    pub fn title(self) -> &'static str {
        match self {
            Target::Rust => "noren in Rust",
            Target::Python => "noren in Python",
            Target::Sdpa => "PyTorch scaled_dot_product_attention, dense mask",
            Target::Mha => "PyTorch nn.MultiheadAttention",
            Target::Encoder => "PyTorch nn.TransformerEncoder",
            Target::Flex => "PyTorch FlexAttention, mask_mod and BlockMask",
            Target::Hf => "Hugging Face transformers, mask function",
            Target::Jax => "jax.nn.dot_product_attention",
            Target::Keras => "keras.layers.MultiHeadAttention",
            Target::Numpy => "NumPy, attention written out",
            Target::Onnx => "ONNX Attention, opset 23",
        }
    }

    /// Returns the name of the target for error messages about masks that the target cannot express.
    pub(crate) fn refuser(self) -> &'static str {
        match self {
            Target::Rust | Target::Python => "noren",
            Target::Sdpa => "PyTorch's scaled_dot_product_attention",
            Target::Mha => "nn.MultiheadAttention",
            Target::Encoder => "nn.TransformerEncoder",
            Target::Flex => "FlexAttention's score_mod",
            Target::Hf => "transformers' mask function",
            Target::Jax => "jax.nn.dot_product_attention",
            Target::Keras => "keras.layers.MultiHeadAttention",
            Target::Numpy => "NumPy code",
            Target::Onnx => "ONNX Attention",
        }
    }

    /// Returns the programming language of the code: `rust` or `python`.
    pub fn language(self) -> &'static str {
        if self == Target::Rust { "rust" } else { "python" }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Target::ALL.into_iter().find(|target| target.name() == text).ok_or_else(|| {
            let known: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
            format!("{text:?} is not a target of code: give one of {}", known.join(", "))
        })
    }
}
