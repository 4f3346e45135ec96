//! [`Refusal`]: the reason why a certificate is not accepted.

/// The reason why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A field of the certificate with a wrong value.
    #[error("certificate: {field}: got {given}, expected {expected}")]
    Wrong {
        /// The path of the field, such as `rules[0].pairs`.
        field: String,
        /// The value in the certificate, cut after 120 characters.
        given: String,
        /// The expected value, or a description of the valid values.
        expected: String,
    },
    /// A part of the certificate that the verifier cannot confirm or refute, for example because the check takes too
    /// many steps.
    #[error("cannot verify: {part}: {reason}")]
    Unverifiable {
        /// The part that the verifier cannot establish, such as `random_blocks`.
        part: String,
        /// The reason why the verifier cannot establish the part, and how to issue a certificate that can be verified.
        reason: String,
    },
}

impl Refusal {
    /// Returns the refusal with `path` placed before the path of the wrong field. A [`Refusal::Unverifiable`] has no
    /// field and is returned unchanged.
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

/// A result with a `Refusal` as the error.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// Returns the refusal for a field with a wrong value. `given` is the value in the certificate.
pub(crate) fn wrong(field: impl Into<String>, given: impl Into<String>, expected: impl Into<String>) -> Refusal {
    Refusal::Wrong { field: field.into(), given: short(given.into()), expected: expected.into() }
}

/// Returns the refusal for a part of the certificate that the verifier cannot establish.
pub(crate) fn beyond(part: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal::Unverifiable { part: short(part.into()), reason: reason.into() }
}

/// Returns the text unchanged if it has at most 120 characters, otherwise its first 120 characters and `...`.
fn short(text: String) -> String {
    match text.char_indices().nth(120) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
