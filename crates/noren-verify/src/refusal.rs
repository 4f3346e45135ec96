//! [`Refusal`]: the reason why a certificate is not accepted.

/// The reason why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A field has a wrong value.
    #[error("certificate: {field}: got {given}, expected {expected}")]
    Wrong {
        /// The path of the field, such as `rules[0].pairs`.
        field: String,
        /// The value in the certificate, shortened.
        given: String,
        /// The expected value.
        expected: String,
    },
    /// The verifier cannot establish a part of the certificate, and therefore does not accept it.
    #[error("cannot verify: {part}: {reason}")]
    Unverifiable {
        /// The part that is not established, such as `random_blocks`.
        part: String,
        /// The reason, and how to fix it.
        reason: String,
    },
}

impl Refusal {
    /// Returns the refusal with `path` before the path of its field.
    pub(crate) fn within(self, path: &str) -> Self {
        match self {
            Refusal::Wrong { field, given, expected } => {
                let dot = if field.is_empty() || field.starts_with('[') || path.is_empty() { "" } else { "." };
                Refusal::Wrong { field: format!("{path}{dot}{field}"), given, expected }
            }
            other => other,
        }
    }
}

/// The result of a check.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// Returns a refusal of a field with a wrong value.
pub(crate) fn wrong(field: impl Into<String>, given: impl Into<String>, expected: impl Into<String>) -> Refusal {
    Refusal::Wrong { field: field.into(), given: short(given.into()), expected: expected.into() }
}

/// Returns a refusal of a part that is not established.
pub(crate) fn beyond(part: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal::Unverifiable { part: short(part.into()), reason: reason.into() }
}

/// Returns the first 120 characters of a text.
fn short(text: String) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
