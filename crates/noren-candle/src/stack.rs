//! [`Stack`]: the kinds of attention that a model can have.

/// One kind of attention in a model, in all its layers. Masks, caches and records refer to a stack.
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
