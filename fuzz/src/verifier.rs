//! Any text as a certificate for the independent verifier: it ends with a report or a refusal in words.

use hmac_sha256::Hash;

/// Verifies the certificate that `data` may be, as it is and with the hash of what it says, so that what lies behind the hash is reached.
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

/// The same certificate with the hash of its other fields, where the hash is its last field.
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
