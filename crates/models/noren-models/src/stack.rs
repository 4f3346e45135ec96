//! [`Stack`]: the three kinds of attention in a model: an encoder's self-attention, a decoder's self-attention, and a
//! decoder's attention over an encoder.

/// One kind of attention in a model, in all its layers. Each stack of a model has its own mask.
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
    /// Returns the name of the stack in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stack::Encoder => "encoder",
            Stack::Decoder => "decoder",
            Stack::Cross => "cross",
        }
    }
}
