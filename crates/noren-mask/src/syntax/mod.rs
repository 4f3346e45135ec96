//! The text form of masks, below the level of expressions: tokens, arguments, parameters, errors.

mod entry;
mod error;
mod lex;
mod suggest;
mod values;
mod write;

pub use entry::Picture;
pub(crate) use entry::{Entry, Param, may, need};
pub use error::ParseError;
pub(crate) use error::Parsed;
pub(crate) use lex::{Kind, Lexer, Token, clip, unquote};
pub use suggest::nearest;
pub(crate) use suggest::synonym;
pub(crate) use values::{Argument, Arguments, Value, Written};
pub(crate) use write::{Call, List, Name, write_spans};

/// The maximum depth of nested expressions in a mask. The limit exists so that no text exhausts the stack of the
/// recursive parser.
pub(crate) const MAX_DEPTH: usize = 256;

/// The maximum length of the text of a mask, in bytes. Long lists are given as facts instead.
pub(crate) const MAX_TEXT: usize = 4 << 20;
