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
        self.words()[0]
    }

    /// Returns a short title: the library and the form of the code.
    pub fn title(self) -> &'static str {
        self.words()[1]
    }

    /// Returns the name of the target for error messages about masks that the target cannot express.
    pub(crate) fn refuser(self) -> &'static str {
        self.words()[2]
    }

    /// Returns the name, the title and the name for error messages.
    fn words(self) -> [&'static str; 3] {
        match self {
            Target::Rust => ["rust", "noren in Rust", "noren"],
            Target::Python => ["python", "noren in Python", "noren"],
            Target::Sdpa => {
                ["sdpa", "PyTorch scaled_dot_product_attention, dense mask", "PyTorch's scaled_dot_product_attention"]
            }
            Target::Mha => ["mha", "PyTorch nn.MultiheadAttention", "nn.MultiheadAttention"],
            Target::Encoder => ["encoder", "PyTorch nn.TransformerEncoder", "nn.TransformerEncoder"],
            Target::Flex => ["flex", "PyTorch FlexAttention, mask_mod and BlockMask", "FlexAttention's score_mod"],
            Target::Hf => ["hf", "Hugging Face transformers, mask function", "transformers' mask function"],
            Target::Jax => ["jax", "jax.nn.dot_product_attention", "jax.nn.dot_product_attention"],
            Target::Keras => ["keras", "keras.layers.MultiHeadAttention", "keras.layers.MultiHeadAttention"],
            Target::Numpy => ["numpy", "NumPy, attention written out", "NumPy code"],
            Target::Onnx => ["onnx", "ONNX Attention, opset 23", "ONNX Attention"],
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
