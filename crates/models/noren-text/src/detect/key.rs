//! Keys and access tokens of programs: in the published formats of their issuers, or after words that announce a key,
//! such as `token`.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// Patterns of keys in the formats of known issuers. Ordinary text does not match these patterns.
const FORMS: [&str; 14] = [
    // Amazon
    r"(?-u:\b)(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|APKA)[A-Z0-9]{16}(?-u:\b)",
    // GitHub, GitLab
    r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_\-]{20,}",
    // Slack
    r"xox[abceoprs](?:\.xox[bp])?-[A-Za-z0-9\-]{10,}|xapp-[0-9]-[A-Za-z0-9\-]{10,}",
    r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/]{20,}",
    // Stripe, Square, PayPal's Braintree
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{24,}",
    r"sq0[a-z]{3}-[A-Za-z0-9_\-]{22,}|access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}",
    // Google
    r"AIza[A-Za-z0-9_\-]{35}|GOCSPX-[A-Za-z0-9_\-]{20,}|ya29\.[A-Za-z0-9_\-]{20,}",
    // JSON web tokens, signed or encrypted
    r"eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]{4,})(?:\.[A-Za-z0-9_\-]{0,}){0,3}",
    // Registries: npm, PyPI, Docker, RubyGems, crates.io
    r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_\-]{50,}|dckr_pat_[A-Za-z0-9_\-]{20,}|rubygems_[a-f0-9]{48}|cio[A-Za-z0-9]{32}",
    // Models: Hugging Face, Groq, Replicate, xAI
    r"(?-u:\b)(?:hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{37}|xai-[A-Za-z0-9]{60,})",
    // SendGrid, Twilio, Mailgun, Mailchimp, Telegram, Shopify
    r"SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{32,}|(?-u:\b)(?:SK|AC)[a-f0-9]{32}(?-u:\b)|(?-u:\b)key-[a-f0-9]{32}(?-u:\b)",
    r"(?-u:\b)[a-f0-9]{32}-us[0-9]{1,2}(?-u:\b)|(?-u:\b)[0-9]{8,10}:AA[A-Za-z0-9_\-]{33}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",
    // DigitalOcean, HashiCorp, Databricks, Grafana, Linear, Atlassian, age
    r"do[opr]_v1_[a-f0-9]{64}|hv[sb]\.[A-Za-z0-9_\-]{24,}|dapi[a-f0-9]{32}|glsa_[A-Za-z0-9_]{32,}|lin_api_[A-Za-z0-9]{40}|ATATT3x[A-Za-z0-9_\-=]{20,}|AGE-SECRET-KEY-1[0-9A-Z]{58}",
];

static KEYS: LazyLock<Regex> = LazyLock::new(|| pattern(&FORMS.join("|")));
/// The pattern of keys of OpenAI, Anthropic, OpenRouter and others. Names in style sheets may also begin with `sk-`;
/// [`is_mixed`] excludes such names.
static SK: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?-u:\b)sk-[A-Za-z0-9_\-]{20,}"));
/// The pattern of a value after a name such as `key` or `token`, which announces a secret.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = [
        r"api[ _\-]?(?:key|token|secret)|(?:secret|access|auth|client|account|encryption|signing|master|service|private|license)",
        r"[ _\-]?(?:access[ _\-]?)?(?:key|token|secret)(?:[ _\-]?(?:key|id))?|bearer|authorization|(?:api|app)[ _\-]?secret|token",
    ];
    let value = r"(?P<value>[A-Za-z0-9][A-Za-z0-9+/_.~\-]{14,}={0,2})";
    pattern(&format!(
        r#"(?i)(?:{})["'`]?(?:\s{{0,2}}(?::=|=>|[:=])\s{{0,2}}|\s(?:is|was|ist|est|es)\s|\s)(?:(?:bearer|basic|token|key)\s)?["'`]?{value}"#,
        names.concat()
    ))
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let text = folded.text.as_str();
    let mut found: Vec<Range<usize>> = KEYS.find_iter(text).map(|key| key.range()).collect();
    found.extend(SK.find_iter(text).filter(|key| is_mixed(&key.as_str()[3..])).map(|key| key.range()));
    let named = NAMED.captures_iter(text).filter_map(|caught| caught.name("value"));
    found.extend(named.filter(|value| is_mixed(value.as_str()) || is_of_40(value.as_str())).map(|value| value.range()));
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found
}

/// Returns whether a value has the format of Amazon's secret keys: 40 characters without `.`, `-` and `_`, of which at
/// least 5 are small letters and 5 are capital letters. Digits are not required.
fn is_of_40(value: &str) -> bool {
    let count = |of: fn(&u8) -> bool| value.bytes().filter(of).count();
    let [small, large] = [count(u8::is_ascii_lowercase), count(u8::is_ascii_uppercase)];
    value.len() == 40 && small >= 5 && large >= 5 && !value.contains(['.', '-', '_'])
}

/// Returns true if a value looks random, like a key. The value must have at least 2 digits and 2 letters. The value is
/// split at `-`, `_`, `/` and `.`; the parts that have 6 or more characters and a digit must together have at least
/// half of the value's characters.
fn is_mixed(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let parts: Vec<&str> = value.split(['-', '_', '/', '.']).filter(|part| !part.is_empty()).collect();
    let is_drawn = |part: &&&str| part.len() >= 6 && part.bytes().any(|b| b.is_ascii_digit());
    let drawn: usize = parts.iter().filter(is_drawn).map(|part| part.len()).sum();
    digits >= 2 && letters >= 2 && 2 * drawn >= value.len()
}
