//! Functions for text that several crates write: bytes as hexadecimal digits, text escaped for XML, the first line of a
//! message.

/// Returns the bytes as hexadecimal digits, two for each byte.
///
/// ```
/// assert_eq!(noren_mask::text::hex(&[0, 10, 255]), "000aff");
/// ```
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns `text` escaped for XML. An XML reader returns the original text, except that characters which XML forbids
/// become U+FFFD.
///
/// ```
/// assert_eq!(noren_mask::text::escape("a < \"b\""), "a &lt; &quot;b&quot;");
/// ```
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns the first line of `message`. A backtrace on the following lines is left out.
///
/// ```
/// assert_eq!(noren_mask::text::first_line("no such file\n   at main.rs:3"), "no such file");
/// ```
pub fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}
