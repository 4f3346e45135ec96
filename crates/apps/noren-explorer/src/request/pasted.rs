//! Reads arrays that a user pastes: lists of Python, JSON and NumPy, and printed tensors, with or without names.

use crate::request::problem::{Problem, Result};

/// The maximum number of dimensions of an array.
const MOST_DIMENSIONS: usize = 4;

/// An array of numbers in a pasted text. Truth values are 1 and 0.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pasted {
    /// The name before the array, such as `cu_seqlens` in `cu_seqlens = [0, 5]`; `None` if the text has no name.
    pub(crate) name: Option<String>,
    pub(crate) shape: Vec<usize>,
    /// The numbers in row-major order.
    pub(crate) values: Vec<f64>,
    /// Whether a number is written with a point or is infinite.
    pub(crate) float: bool,
}

/// Returns the arrays of a text. A text without brackets is one array: each line with numbers is a row.
///
/// # Errors
/// Returns an error if the text has no array, if rows have different lengths, or if an array is abbreviated with `...`.
pub(crate) fn arrays(text: &str) -> Result<Vec<Pasted>> {
    if text.contains("...") || text.contains('…') {
        return Err(Problem::new(
            "the array is abbreviated with `...`: print all of its numbers, for example with .tolist()",
        ));
    }
    let found = if text.contains('[') { in_brackets(text)? } else { vec![of_lines(text)?] };
    match found.iter().any(|array| !array.values.is_empty()) {
        true => Ok(found.into_iter().filter(|array| !array.values.is_empty()).collect()),
        false => Err(Problem::new("the text has no numbers: paste an array, such as [0, 5, 32]")),
    }
}

/// Returns the number of a word: true is 1, false is 0, and infinities are numbers. Returns `None` for NaN and for a word
/// that is no number.
fn number(word: &str) -> Option<f64> {
    match word {
        "True" | "true" => Some(1.0),
        "False" | "false" => Some(0.0),
        "inf" | "Infinity" => Some(f64::INFINITY),
        "-inf" | "-Infinity" => Some(f64::NEG_INFINITY),
        _ if word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => word.parse().ok(),
        _ => None,
    }
}

/// Returns whether a number in the text of an array is written with a point or is infinite.
fn is_float(numbers: &str) -> bool {
    numbers.contains('.') || numbers.contains("inf") || numbers.contains("Inf")
}

fn of_lines(text: &str) -> Result<Pasted> {
    let (name, numbers) = match text.split_once(['=', ':']) {
        Some((name, rest)) => (Some(name.trim().trim_matches(['"', '\'']).to_string()), rest),
        None => (None, text),
    };
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for line in numbers.lines() {
        let words = line.split([' ', ',', '\t', ';']).filter(|word| !word.is_empty());
        let row = words.map(|word| number(word).ok_or_else(|| unknown(word))).collect::<Result<Vec<f64>>>()?;
        if !row.is_empty() {
            rows.push(row);
        }
    }
    let len = rows.first().map_or(0, Vec::len);
    if let Some((at, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != len) {
        return Err(ragged(at, row.len(), len));
    }
    let shape = if rows.len() == 1 { vec![len] } else { vec![rows.len(), len] };
    Ok(Pasted { name, shape, values: rows.concat(), float: is_float(numbers) })
}

fn unknown(word: &str) -> Problem {
    let shown: String = word.chars().take(40).collect();
    Problem::new(format!("`{shown}` is not a number: paste an array of numbers, such as [0, 5, 32]"))
}

fn ragged(row: usize, given: usize, first: usize) -> Problem {
    Problem::new(format!("row {row} has {given} entries but row 0 has {first}: pad all rows to one length"))
}

/// Returns the arrays in square brackets. Text outside of brackets is used only for names: `tensor([[1, 0]],
/// device='cuda:0')` is one array.
fn in_brackets(text: &str) -> Result<Vec<Pasted>> {
    let mut found = Vec::new();
    let mut name: Option<String> = None;
    let mut word = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '[' => {
                let (array, end) = nested(&text[at..])?;
                found.push(Pasted { name: name.take(), ..array });
                while characters.peek().is_some_and(|(next, _)| *next < at + end) {
                    characters.next();
                }
                word.clear();
            }
            '=' | ':' if !word.is_empty() => name = Some(std::mem::take(&mut word)),
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            ' ' | '"' | '\'' => {}
            ',' | ')' | '}' => {
                word.clear();
                name = None;
            }
            _ => word.clear(),
        }
    }
    Ok(found)
}

/// Returns the array at the beginning of `text`, which begins with a bracket, and the number of bytes of the array.
fn nested(text: &str) -> Result<(Pasted, usize)> {
    let mut values = Vec::new();
    let mut sizes: Vec<Option<usize>> = Vec::new();
    let mut counts: Vec<usize> = Vec::new(); // the entries so far of each open bracket
    let mut leaf = None; // the depth of the numbers
    let mut word = String::new();
    for (at, c) in text.char_indices() {
        let ends = c == '[' || c == ']' || c == ',' || c.is_whitespace();
        if ends && !word.is_empty() {
            let value = number(&word).ok_or_else(|| unknown(&word))?;
            if *leaf.get_or_insert(counts.len()) != counts.len() {
                return Err(Problem::new("numbers and lists are mixed in the array: give lists of equal depth"));
            }
            values.push(value);
            word.clear();
            counts.last_mut().into_iter().for_each(|count| *count += 1);
        }
        match c {
            '[' => {
                if counts.len() == MOST_DIMENSIONS {
                    let message = format!("the array has more than {MOST_DIMENSIONS} dimensions");
                    return Err(Problem::new(message));
                }
                counts.push(0);
                if sizes.len() < counts.len() {
                    sizes.push(None);
                }
            }
            ']' => {
                let depth = counts.len() - 1;
                let count = counts.pop().unwrap_or(0);
                let first = *sizes[depth].get_or_insert(count);
                if first != count {
                    return Err(ragged(counts.last().copied().unwrap_or(0), count, first));
                }
                match counts.last_mut() {
                    Some(outer) => *outer += 1,
                    None => {
                        let shape: Vec<usize> = sizes.into_iter().flatten().collect();
                        return Ok((Pasted { name: None, shape, values, float: is_float(&text[..at]) }, at + 1));
                    }
                }
            }
            c if c == ',' || c.is_whitespace() => {}
            c => word.push(c),
        }
    }
    Err(Problem::new("the array has no closing bracket: paste all of it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (Option<String>, Vec<usize>, Vec<f64>) {
        let found = arrays(text).unwrap_or_else(|problem| panic!("{text}: {}", problem.message));
        assert_eq!(found.len(), 1, "{text}");
        let Pasted { name, shape, values, .. } = found[0].clone();
        (name, shape, values)
    }

    #[test]
    fn printed_arrays_are_read() {
        let name = |name: &str| Some(name.to_string());
        assert_eq!(one("[0, 5, 32]"), (None, vec![3], vec![0.0, 5.0, 32.0]));
        assert_eq!(
            one("cu_seqlens = torch.tensor([0, 5], dtype=torch.int32)"),
            (name("cu_seqlens"), vec![2], vec![0.0, 5.0])
        );
        assert_eq!(
            one("tensor([[1, 1, 0],\n        [1, 0, 0]], device='cuda:0')"),
            (None, vec![2, 3], vec![1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
        );
        assert_eq!(one("[[ True False]\n [ True  True]]"), (None, vec![2, 2], vec![1.0, 0.0, 1.0, 1.0]));
        assert_eq!(one("{'attention_mask': [[1, 0]]}"), (name("attention_mask"), vec![1, 2], vec![1.0, 0.0]));
        assert_eq!(one("1 1 0\n1 0 0\n").1, [2, 3]);
        assert_eq!(one("position_ids: 0, 1, 2, 0").0, name("position_ids"));
        assert_eq!(one("[0., -inf]").2, [0.0, f64::NEG_INFINITY]);
        assert_eq!(one("[[[[1, 0]]]]").1, [1, 1, 1, 2]);
        let two = arrays("{\"attention_mask\": [[1]], \"position_ids\": [[0]]}").expect("two arrays");
        let names: Vec<_> = two.iter().map(|array| array.name.as_deref()).collect();
        assert_eq!(names, [Some("attention_mask"), Some("position_ids")]);
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, says) in [
            ("", "no numbers"),
            ("[]", "no numbers"),
            ("[[1, 2], [3]]", "row 1 has 1 entries but row 0 has 2"),
            ("1 2\n3", "row 1 has 1 entries"),
            ("[1, [2]]", "mixed"),
            ("[[1], 2]", "mixed"),
            ("[1, 2", "closing"),
            ("[1, x]", "`x` is not a number"),
            ("[1, ..., 3]", "abbreviated"),
            ("[[[[[1]]]]]", "dimensions"),
        ] {
            let message = arrays(text).expect_err(text).message.clone();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
