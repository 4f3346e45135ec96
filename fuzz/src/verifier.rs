//! Gives any text as a certificate to the independent verifier, which returns a report or an error with a message.

use hmac_sha256::Hash;

/// Verifies `data` as a certificate, once unchanged and once with the correct hash, so that the checks after the hash run too.
pub fn verifier(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    ends(text);
    if let Some(text) = sealed(text) {
        ends(&text);
    }
}

fn ends(text: &str) {
    if let Err(refusal) = noren_verify::verify(text) {
        assert!(!refusal.to_string().is_empty(), "{text}");
    }
}

/// Returns the certificate with the hash of its other fields, if the hash is its last field.
fn sealed(text: &str) -> Option<String> {
    let mut quoted = false;
    let mut escaped = false;
    let compact: String = text
        .chars()
        .filter(|c| {
            let keep = quoted || !c.is_ascii_whitespace();
            if quoted && !escaped && *c == '\\' {
                escaped = true;
                return keep;
            }
            quoted ^= *c == '"' && !escaped;
            escaped = false;
            keep
        })
        .collect();
    let body = compact.rsplit_once(",\"sha256\":\"")?.0;
    let hash: String = Hash::hash(format!("{body}}}").as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{body},\"sha256\":\"{hash}\"}}"))
}
