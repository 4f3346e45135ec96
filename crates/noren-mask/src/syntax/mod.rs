//! Tokens, arguments and parameters: the parts of a text from which masks are parsed.

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

/// The maximum depth of nesting in a mask, so that no text can exhaust the stack.
pub(crate) const MAX_DEPTH: usize = 256;

/// The maximum length of a text in bytes; larger data belongs in facts.
pub(crate) const MAX_TEXT: usize = 4 << 20;
