//! Text and JSON to expressions; what is refused.

pub(crate) mod expr;
pub(crate) mod json;
pub(crate) mod lex;
pub(crate) mod refusal;
pub(crate) mod text;
pub(crate) mod vocabulary;
