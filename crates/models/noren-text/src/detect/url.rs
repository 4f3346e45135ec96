//! Internet addresses that contain credentials: `scheme://user:password@host`, or query parameters with tokens or
//! passwords. The whole address is private.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static SCHEME: LazyLock<Regex> = LazyLock::new(|| pattern(r"[A-Za-z][A-Za-z0-9+.\-]{1,30}://"));
/// The `@` after a user name and password is searched within this number of characters after `://`. The limit is needed
/// because a user name or password may contain characters that usually end an address.
const LONGEST_USER: usize = 256;
static PARAMETER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)[?&;#](?:[a-z0-9]+[_-])?(?:token|api_?key|apikey|key|secret|password|passwd|pwd|pass|auth|signature|sig|session|sid|credential|code)=[^&;#]{6,}",
    )
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut past = 0;
    for scheme in SCHEME.find_iter(&folded.text) {
        if scheme.start() < past {
            continue;
        }
        let rest = &folded.text[scheme.end()..];
        let user = user(rest);
        let ends = |c: char| c.is_whitespace() || "\"'<>`|\\^{}".contains(c);
        past = scheme.end() + user + rest[user..].find(ends).unwrap_or(rest.len() - user);
        // Punctuation at the end belongs to the sentence.
        let address = folded.text[scheme.start()..past].trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']']);
        if is_private(address) {
            found.push(scheme.start()..scheme.start() + address.len());
        }
    }
    found
}

/// `rest` is the text after `://`. Returns the number of bytes of `rest` up to and including its last `@`; 0 if there
/// is no `@`. The text before the `@` may be a user name and a password. The search for `@` stops at the first white
/// space, `"`, `<` or `>`. It also stops behind the first single quote or backtick that no letter or digit follows.
fn user(rest: &str) -> usize {
    let (mut end, mut quoted) = (0, false);
    for (at, c) in rest.char_indices().take(LONGEST_USER) {
        if c.is_whitespace() || "\"<>".contains(c) || quoted && !c.is_alphanumeric() {
            break;
        }
        if c == '@' {
            end = at + 1;
        }
        quoted = "'`".contains(c);
    }
    end
}

fn is_private(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A password may hold characters that end an authority; then its `@` is the last one.
    let user = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@').filter(|(user, _)| is_user(user)));
    user.is_some_and(|(user, _)| is_user(user)) || PARAMETER.is_match(rest)
}

/// Returns whether the text before an `@` is a user name with a password, or an access token alone.
fn is_user(user: &str) -> bool {
    match user.split_once(':') {
        Some((name, password)) => {
            // `{password}` and `${PASSWORD}` are placeholders, `[^@]*` is a pattern.
            let filled_in = password.trim_start_matches('$').starts_with(['{', '['])
                && password.ends_with(['}', ']', '*', '+', ')']);
            !password.is_empty() && !name.contains('/') && !password.starts_with('/') && !filled_in
        }
        None => {
            user.len() >= 16
                && user.bytes().any(|b| b.is_ascii_digit())
                && !user.contains(['{', '\\', '|', '^', '\'', '`'])
        }
    }
}
