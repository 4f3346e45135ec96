//! Passwords, passphrases and PINs after words that announce them: `password: hunter2`, `Passwort lautet "..."`, `PIN
//! 4711`.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = [
        r"(?:pass[ _\-]?(?:word|(?P<phrase>phrase)|code)|passwd|pwd|passwort|kennwort|mot\s+de\s+passe|contraseña|senha|wachtwoord|hasło",
        r"|lösenord|adgangskode|salasana|şifre|parola|пароль|密码|密碼|口令|パスワード|비밀번호)",
    ];
    let separator = r#"(?P<separator>\s?(?::=|=>|->|[:=])\s?|\s(?:is|was|reads|lautet(?:\s(?:wie\sfolgt|folgendermaßen))?|ist|war|est|es|è|é|jest|är|er|on)(?:\s?:\s?|\s)|(?:は|是|为|:)\s?)"#;
    let quoted = r#"(?:"(?P<a>[^"\n\u{2029}]{1,100})"|'(?P<b>[^'\n\u{2029}]{1,100})'|`(?P<c>[^`\n\u{2029}]{1,100})`|“(?P<d>[^”\u{2029}]{1,100})”|«\s?(?P<e>[^»\u{2029}]{1,100})\s?»|„(?P<f>[^“”\u{2029}]{1,100})[“”])"#;
    let plain = r#"(?P<plain>[^\s"'`]+)"#;
    pattern(&format!(
        r#"(?i)(?P<name>{})s?(?:\s?\([^)\n]{{1,40}}\))?["'`]?{separator}(?:{quoted}|{plain})"#,
        names.concat()
    ))
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
            if !is_word_of_code(value.as_str()) && !is_filled_in(value.as_str()) {
                found.push(value.range());
            }
        } else if let Some(value) = caught.name("plain") {
            let [name, separator] =
                ["name", "separator"].map(|part| caught.name(part).map_or("", |part| part.as_str()));
            let line = line(&text[value.start()..]);
            let len = match caught.name("phrase").filter(|_| separator.contains([':', '=', '>'])) {
                Some(_) => phrase(value.as_str(), line, separator),
                None => plain(value.as_str(), line, name, separator),
            };
            found.extend(len.map(|len| value.start()..value.start() + len));
        }
    }
    found.extend(PIN.captures_iter(text).filter_map(|caught| Some(caught.name("pin")?.range())));
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found
}

/// Characters at the end of a word that are not a part of a password, such as the full stop of a sentence.
const ENDS: [char; 9] = ['.', ',', ';', ':', '?', ')', ']', '}', '>'];
/// The maximum number of words of a passphrase.
const LONGEST: usize = 24;
/// The maximum number of characters, after the name of a secret such as `password:`, in which the secret is searched.
const READ: usize = 400;

/// Returns the first line of a text, up to [`READ`] characters.
fn line(text: &str) -> &str {
    let ends = text.char_indices().enumerate().find(|(count, (_, c))| *count == READ || "\n\u{2029}".contains(*c));
    &text[..ends.map_or(text.len(), |(_, (at, _))| at)]
}

/// Returns the length in bytes of a passphrase at the start of `line`; `None` if there is no passphrase. The passphrase
/// ends before a word that ends with `:` or contains `=`, at the latest at the end of the sentence or line. `first` is
/// the first word of the passphrase, and `separator` the text before the passphrase, such as `: `.
fn phrase(first: &str, line: &str, separator: &str) -> Option<usize> {
    let mut end = 0;
    for word in line.split_inclusive(char::is_whitespace).take(LONGEST) {
        let bare = word.trim_end();
        if end > 0 && (bare.ends_with(':') || bare.contains('=')) {
            break;
        }
        end += word.len();
        if bare.ends_with(['.', ';']) {
            break;
        }
    }
    let whole = line[..end].trim_end().trim_end_matches(ENDS);
    let is_code = separator.contains(['=', '\n']) && is_expression(first) || separator == " = ";
    let single = !whole.contains(char::is_whitespace);
    if single || is_code {
        return plain(first, line, "", separator);
    }
    (!is_word_of_code(first) && !is_filled_in(line)).then_some(whole.len())
}

/// Returns the length in bytes of the password `word`, which is not in quotes, without punctuation at its end; `None`
/// if `word` is no password. `line` is the text from `word` on, `name` is the word that announces the password, such as
/// `Passwort`, and `separator` the text between `name` and `word`.
fn plain(word: &str, line: &str, name: &str, separator: &str) -> Option<usize> {
    let value = word.trim_end_matches(ENDS);
    let is_varied = value.chars().any(|c| !c.is_alphabetic());
    // `password is required`, `password = user.password`, `password: str` and `password=get()` hold no secret. After a
    // colon, the next line may be another statement of a program.
    let is_sentence = (!separator.contains([':', '=', '>']) || separator.contains('\n')) && !is_varied;
    let is_sentence = is_sentence && !separator.to_lowercase().contains("lautet");
    // `DB_PASSWORD=open_sesame` sets an environment variable: names are values there, calls are not.
    let is_set = separator == "=" && !name.contains(char::is_lowercase) && !word.contains(['(', '[']);
    let is_code = separator.contains(['=', '\n']) && is_expression(word) && !is_set || separator == " = " && !is_varied;
    let is_filled_in = is_filled_in(line) || is_reference(value, separator);
    let is_none = is_sentence || is_code || is_filled_in || is_word_of_code(value);
    (value.chars().count() >= 3 && !is_none).then_some(value.len())
}

/// Returns whether a word is an expression of a program: a call, or names with dots or underscores between them.
fn is_expression(word: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphabetic() || c == '_');
    let names = word.trim_end_matches([',', ';', ')']);
    word.contains(['(', '[']) && word.starts_with(|c: char| c.is_alphabetic() || c == '_')
        || (names.contains(['.', '_']) && names.split('.').all(is_name))
}

/// Returns whether a value without quotes refers to another value: `&name`, `*name`, `:name`, or `$name` after `=`.
fn is_reference(value: &str, separator: &str) -> bool {
    let name = value.trim_start_matches(['&', '*', '$', ':']);
    let signs = &value[..value.len() - name.len()];
    let is_name = name.chars().all(|c| c.is_alphabetic() || "_:->".contains(c));
    is_name && !signs.is_empty() && (!signs.contains('$') || separator.contains('='))
}

/// Returns whether the text begins with a placeholder instead of a password: `<name>`, `${name}`, `{{ name }}`,
/// `%NAME%`, `$NAME`, `****`.
fn is_filled_in(text: &str) -> bool {
    let name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let word = text.split_whitespace().next().unwrap_or_default().trim_end_matches(ENDS);
    let variable =
        word.strip_prefix('$').is_some_and(|rest| rest.starts_with(char::is_alphabetic) && rest.chars().all(name));
    let masked = !word.is_empty() && word.chars().all(|c| c == '*');
    let format = word.len() > 2 && word.starts_with('%') && word.ends_with('%');
    let inner = text.trim_start_matches(['$', '%', '#']);
    let close = match inner.chars().next() {
        Some('<') => '>',
        Some('{') => '}',
        Some('[') => ']',
        Some('(') => ')',
        _ => return variable || masked || format,
    };
    let held: Option<String> =
        inner.chars().take(80).position(|c| c == close).map(|at| inner.chars().take(at).collect());
    held.is_some_and(|held| inner.len() < text.len() || !held.contains(|c: char| c.is_ascii_digit()))
}

/// Returns whether a value is no password but a type, the name of a field, or a common word of sentences about
/// passwords.
fn is_word_of_code(value: &str) -> bool {
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
    let typed =
        ["optional[", "str ", "string ", "option<", "list["].iter().any(|form| value.to_lowercase().starts_with(form));
    bare.is_empty() && value.chars().count() < 3 || WORDS.contains(&bare.as_str()) || typed
}
