//! Everything that can be wrong with what a caller gives to this crate.

/// What is wrong, with the values given, what was expected, and how to mend it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mask, its facts or its plan are wrong.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),

    /// A view does not fit the memory it is made of.
    #[error("view of shape {shape:?} with strides {strides:?} from offset {offset} over {len} values: {problem}")]
    View {
        /// The shape asked for.
        shape: [usize; 4],
        /// The strides asked for, in values.
        strides: [isize; 4],
        /// Where element `[0, 0, 0, 0]` was to lie.
        offset: usize,
        /// How many values the memory holds.
        len: usize,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// An array's shape does not fit the plan or the other arrays.
    #[error("{name} has shape {given:?} but {expected}")]
    Shape {
        /// Which array.
        name: &'static str,
        /// Its shape.
        given: Vec<usize>,
        /// What was expected, and why.
        expected: String,
    },

    /// An option makes no sense.
    #[error("{name} is {given}: {problem}")]
    Option {
        /// Which option.
        name: &'static str,
        /// What was given.
        given: String,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// Somebody set [`Options::stop`](crate::Options::stop).
    #[error("stopped: what was to be written is unfinished")]
    Stopped,

    /// A cache cannot do what was asked.
    #[error("cache: {problem}")]
    Cache {
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// The processor path is unknown or not available.
    #[error("ISA `{given}`: {problem}")]
    Isa {
        /// The ISA asked for.
        given: String,
        /// What is wrong and which ISAs there are.
        problem: String,
    },
}
