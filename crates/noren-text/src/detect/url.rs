//! Addresses with credentials in them: `scheme://user:password@host`, and query parameters that hold tokens or passwords. The
//! whole address is private.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[A-Za-z][A-Za-z0-9+.\-]{1,30}://[^\s"'<>`|\\^{}]+"#));
static PARAMETER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)[?&;#](?:[a-z0-9]+[_-])?(?:token|api_?key|apikey|key|secret|password|passwd|pwd|pass|auth|signature|sig|session|sid|credential|code)=[^&;#]{6,}",
    )
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let addresses = ADDRESS.find_iter(&folded.text);
    let ranges = addresses.filter_map(|address| {
        // Punctuation at the end belongs to the sentence.
        let text = address.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']']);
        is_private(text).then(|| address.start()..address.start() + text.len())
    });
    ranges.collect()
}

fn is_private(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A password may hold characters that end an authority; its `@` is the last one then.
    let user = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@').filter(|(user, _)| is_user(user)));
    user.is_some_and(|(user, _)| is_user(user)) || PARAMETER.is_match(rest)
}

/// A name and a password, or a token in place of both.
fn is_user(user: &str) -> bool {
    match user.split_once(':') {
        Some((name, password)) => !password.is_empty() && !name.contains('/') && !password.starts_with('/'),
        None => user.len() >= 16 && user.bytes().any(|b| b.is_ascii_digit()),
    }
}
