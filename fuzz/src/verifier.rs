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
    if !is_quick(text) {
        return;
    }
    if let Err(refusal) = noren_verify::verify(text) {
        assert!(!refusal.to_string().is_empty(), "{text}");
    }
}

/// Whether a certificate is about at most 65,536 tokens and 64 batch rows: the verifier's budget, some ten seconds, is for longer ones.
fn is_quick(text: &str) -> bool {
    let Ok(certificate) = serde_json::from_str::<serde_json::Value>(text) else { return true };
    let most = |key: &str, most: u64| certificate["shape"][key].as_u64().is_none_or(|n| n <= most);
    most("q_len", 1 << 16) && most("kv_len", 1 << 16) && most("batch", 64)
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
