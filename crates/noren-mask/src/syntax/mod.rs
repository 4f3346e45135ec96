//! Tokens, arguments and parameters: what is between a text and its atoms.

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

/// Masks nested deeper than this are refused, so that no text can exhaust the stack.
pub(crate) const MAX_DEPTH: usize = 256;

/// Texts of more bytes than this are refused: what is that large belongs into facts.
pub(crate) const MAX_TEXT: usize = 4 << 20;
