//! Passwords, passphrases and PINs after words that say so: `password: hunter2`, `Passwort lautet "..."`, `PIN 4711`.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = [
        r"(?:pass[ _\-]?(?:word|phrase|code)|passwd|pwd|passwort|kennwort|mot\s+de\s+passe|contraseña|senha|wachtwoord|hasło",
        r"|lösenord|adgangskode|salasana|şifre|parola|пароль|密码|密碼|口令|パスワード|비밀번호)",
    ];
    let told = r#"(?P<told>\s?(?::=|=>|->|[:=])\s?|\s(?:is|was|reads|lautet|ist|war|est|es|è|é|jest|är|er|on)\s?:?\s?|(?:は|是|为|:)\s?)"#;
    let quoted = r#"(?:"(?P<a>[^"\n\u{2029}]{1,100})"|'(?P<b>[^'\n\u{2029}]{1,100})'|`(?P<c>[^`\n\u{2029}]{1,100})`|“(?P<d>[^”\u{2029}]{1,100})”|«\s?(?P<e>[^»\u{2029}]{1,100})\s?»|„(?P<f>[^“”\u{2029}]{1,100})[“”])"#;
    let plain = r#"(?P<plain>[^\s"'`]+)"#;
    pattern(&format!(r#"(?i){}s?(?:\s?\([^)\n]{{1,40}}\))?["'`]?{told}(?:{quoted}|{plain})"#, names.concat()))
});
static PIN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?-u:\b)(?:PIN|Pin|pin|CVV2?|CVC2?|cvv|cvc)(?:[ -]?(?i:code|number|nummer))?(?:\s?[:=]\s?|\s(?:is|lautet|ist|est|es)\s|\s)(?P<pin>[0-9]{3,8})(?-u:\b)",
    )
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let text = folded.text.as_str();
    let mut found: Vec<Range<usize>> = Vec::new();
    for caught in NAMED.captures_iter(text) {
        let quoted = ["a", "b", "c", "d", "e", "f"].into_iter().find_map(|name| caught.name(name));
        if let Some(value) = quoted {
            if !is_placeholder(value.as_str()) {
                found.push(value.range());
            }
        } else if let Some(value) = caught.name("plain") {
            let told = caught.name("told").map_or("", |told| told.as_str());
            found.extend(plain(value.as_str(), told).map(|len| value.start()..value.start() + len));
        }
    }
    found.extend(PIN.captures_iter(text).filter_map(|caught| Some(caught.name("pin")?.range())));
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found
}

/// The length of a password without quotes, if the word is one: the sentence's punctuation does not belong to it.
fn plain(word: &str, told: &str) -> Option<usize> {
    let value = word.trim_end_matches(['.', ',', ';', ':', '?', ')', ']', '}', '>']);
    let is_varied = value.chars().any(|c| !c.is_alphabetic());
    // `password is required`, `password = user.password`, `password: str`, `password=get()` are no secrets; what follows a colon
    // on the next line may be a program's next statement.
    let is_sentence = (!told.contains([':', '=', '>']) || told.contains('\n')) && !is_varied;
    let is_code = told.contains(['=', '\n']) && is_expression(word) || told == " = " && !is_varied;
    (value.chars().count() >= 3 && !is_sentence && !is_code && !is_placeholder(value)).then_some(value.len())
}

/// Returns whether a word is a call, or names with dots between.
fn is_expression(word: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphabetic() || c == '_');
    let names = word.trim_end_matches([',', ';', ')']);
    word.contains(['(', '[']) && word.starts_with(|c: char| c.is_alphabetic() || c == '_')
        || (names.contains(['.', '_']) && names.split('.').all(is_name))
}

/// Returns whether a value stands for one that is filled in elsewhere, or is a type or a field's name.
fn is_placeholder(value: &str) -> bool {
    const WORDS: [&str; 39] = [
        "str",
        "string",
        "bool",
        "boolean",
        "bytes",
        "text",
        "int",
        "any",
        "optional",
        "none",
        "null",
        "nil",
        "true",
        "false",
        "undefined",
        "password",
        "passwd",
        "pwd",
        "passphrase",
        "self",
        "required",
        "the",
        "this",
        "your",
        "yes",
        "no",
        "username",
        "user",
        "login",
        "email",
        "and",
        "or",
        "not",
        "empty",
        "missing",
        "incorrect",
        "wrong",
        "invalid",
        "input",
    ];
    let bare = value.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let filled_in = value.starts_with(['$', '{', '<', '%', '(', '[', '&', '|', '*'])
        && !value.contains(|c: char| c.is_ascii_digit());
    let typed =
        ["optional[", "str ", "string ", "option<", "list["].iter().any(|form| value.to_lowercase().starts_with(form));
    bare.is_empty() && value.chars().count() < 3 || WORDS.contains(&bare.as_str()) || filled_in || typed
}
