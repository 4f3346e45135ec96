//! Splits the text of a mask or a policy into lexical tokens: names, numbers, strings and signs.

/// A lexical token in the text of a mask or a policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Int(i128),
    Float(f64),
    Text(String),
    Range,
    Sign(char),
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Name(name) => write!(f, "`{name}`"),
            Token::Int(value) => write!(f, "{value}"),
            Token::Float(value) => write!(f, "{value}"),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Range => f.write_str("`..`"),
            Token::Sign(sign) => write!(f, "`{sign}`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// Splits a text into lexical tokens. The last token is always [`Token::End`]. The error describes the part of the text
/// that cannot be read.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_whitespace() {
            at += 1;
        } else if c == '#' {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if c.is_ascii_digit() {
            out.push(number(&chars, &mut at)?);
        } else if c.is_alphabetic() || c == '_' {
            let start = at;
            while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
                at += 1;
            }
            out.push(Token::Name(chars[start..at].iter().collect()));
        } else if c == '"' {
            out.push(string(&chars, &mut at)?);
        } else if c == '.' && chars.get(at + 1) == Some(&'.') {
            at += 2;
            out.push(Token::Range);
        } else if "()[],:=&|!~-+".contains(c) {
            at += 1;
            out.push(Token::Sign(c));
        } else {
            return Err(format!("the invalid character {c:?}"));
        }
    }
    out.push(Token::End);
    Ok(out)
}

fn number(chars: &[char], at: &mut usize) -> Result<Token, String> {
    let start = *at;
    let digits = |at: &mut usize| {
        while chars.get(*at).is_some_and(char::is_ascii_digit) {
            *at += 1;
        }
    };
    digits(at);
    let mut whole = true;
    if chars.get(*at) == Some(&'.') && chars.get(*at + 1).is_some_and(char::is_ascii_digit) {
        whole = false;
        *at += 1;
        digits(at);
    }
    if matches!(chars.get(*at), Some('e' | 'E')) {
        let sign = usize::from(matches!(chars.get(*at + 1), Some('+' | '-')));
        if chars.get(*at + 1 + sign).is_some_and(char::is_ascii_digit) {
            whole = false;
            *at += 1 + sign;
            digits(at);
        }
    }
    let text: String = chars[start..*at].iter().collect();
    let parsed = if whole {
        text.parse().ok().map(|value: u64| Token::Int(i128::from(value)))
    } else {
        text.parse().ok().map(Token::Float)
    };
    parsed.ok_or_else(|| format!("the number {text}, which does not fit in 64 bits"))
}

fn string(chars: &[char], at: &mut usize) -> Result<Token, String> {
    let mut text = String::new();
    *at += 1;
    loop {
        let c = *chars.get(*at).ok_or("a string without a closing quote")?;
        *at += 1;
        match c {
            '"' => return Ok(Token::Text(text)),
            '\\' => text.push(escape(chars, at)?),
            c => text.push(c),
        }
    }
}

/// Reads an escape sequence such as `\n` whose backslash is already read. Returns the character that the sequence
/// encodes. `at` is the index in `chars` after the backslash; the function sets `at` to the index after the sequence.
fn escape(chars: &[char], at: &mut usize) -> Result<char, String> {
    let c = *chars.get(*at).ok_or("a string without a closing quote")?;
    *at += 1;
    Ok(match c {
        '"' | '\\' => c,
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            let close = chars[*at..].iter().position(|&c| c == '}').ok_or("an escape `\\u` without a closing brace")?;
            let digits: String = chars[*at..*at + close].iter().skip(1).collect();
            let code = u32::from_str_radix(&digits, 16).ok().filter(|_| chars[*at] == '{');
            *at += close + 1;
            code.and_then(char::from_u32).ok_or_else(|| format!("the invalid escape \\u{{{digits}}}"))?
        }
        c => return Err(format!("the unknown escape \\{c}")),
    })
}
