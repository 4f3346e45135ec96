//! [`Stack`]: the attentions that a model can have.

/// The attention of a model that a mask, a cache or a record belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// An encoder's self-attention.
    Encoder,
    /// A decoder's self-attention.
    Decoder,
    /// A decoder's attention over the encoder's output.
    Cross,
}

impl Stack {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Stack::Encoder => "encoder",
            Stack::Decoder => "decoder",
            Stack::Cross => "cross",
        }
    }
}
