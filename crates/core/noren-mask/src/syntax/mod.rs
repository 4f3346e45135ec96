//! The text form of masks, except operators and parentheses: tokens, arguments, parameters, errors.

mod entry;
mod error;
mod lex;
mod suggest;
mod values;
mod write;

pub(crate) use entry::{Entry, may, need};
pub use entry::{Param, Picture};
pub use error::ParseError;
pub(crate) use error::Parsed;
pub(crate) use lex::{Kind, Lexer, Token, clip, unquote};
pub use suggest::nearest;
pub(crate) use suggest::synonym;
pub(crate) use values::{Argument, Arguments, Value, Written};
pub(crate) use write::{Call, List, Name, write_spans};

/// The maximum depth of nested expressions in a mask. The parser is recursive; the limit ensures that no text exhausts
/// its stack.
pub(crate) const MAX_DEPTH: usize = 256;

/// The maximum length of the text of a mask, in bytes. Longer lists, such as document lengths, are given as facts
/// instead.
pub(crate) const MAX_TEXT: usize = 4 << 20;
