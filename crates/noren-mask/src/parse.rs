//! stub
/// stub
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("stub")]
pub struct ParseError;
