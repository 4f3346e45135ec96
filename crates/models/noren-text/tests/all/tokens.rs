//! Tokens of findings, and masks that hide these tokens.

use noren_mask::{Facts, Shape, Side, atoms};
use noren_text::{ByteTokenizer, Detector, Detectors, Encoding, HfTokenizer, Policy, PrivateTokens, Role, Tokenizer};
use std::collections::BTreeMap;
use std::ops::Range;

/// Returns tokens with these ranges of bytes. Tokens with an empty range are special.
fn encoding(ranges: &[Option<Range<usize>>]) -> Encoding {
    Encoding {
        ids: (0..ranges.len() as u32).collect(),
        ranges: ranges.iter().map(|r| r.clone().unwrap_or(0..0)).collect(),
        special: ranges.iter().map(Option::is_none).collect(),
    }
}

fn private(text: &str, span: Range<usize>, tokens: &Encoding) -> Vec<usize> {
    let spans = Detectors::from(Detector::spans("s", [span]).unwrap());
    PrivateTokens::locate(&spans.find(text).unwrap(), text, tokens).positions()
}

#[test]
fn a_token_that_holds_any_part_is_private() {
    let text = "tell Ann now";
    let tokens = encoding(&[None, Some(0..4), Some(4..6), Some(6..9), Some(9..12), None]);
    assert_eq!(private(text, 5..8, &tokens), [2, 3]);
    assert_eq!(private(text, 8..9, &tokens), [3]);
    assert_eq!(private(text, 0..12, &tokens), [1, 2, 3, 4]);
}

#[test]
fn what_no_token_claims_makes_its_neighbours_private() {
    let text = "ab\u{7}cd ef";
    // The control character was dropped, and so was the space.
    let tokens = encoding(&[None, Some(0..2), Some(3..5), Some(6..8), None]);
    assert_eq!(private(text, 2..3, &tokens), [1, 2]);
    assert_eq!(private(text, 5..6, &tokens), Vec::<usize>::new());
    assert_eq!(private("\u{7}a", 0..1, &encoding(&[None, Some(1..2), None])), [1]);
}

#[test]
fn each_byte_of_a_character_is_private() {
    let text = "né!";
    let tokens = ByteTokenizer.encode(text).unwrap();
    assert_eq!(private(text, 1..2, &tokens), [2, 3]);
}

#[test]
fn the_byte_tokenizer_is_a_hugging_face_tokenizer() {
    let other = HfTokenizer::from_bytes(ByteTokenizer.to_json().as_bytes()).unwrap();
    assert_eq!(other.vocab_size(), ByteTokenizer.vocab_size());
    for role in [Role::Padding, Role::Begin, Role::End, Role::Mask] {
        assert_eq!(other.special(role), ByteTokenizer.special(role));
    }
    let every: String = (0..0x250).filter_map(char::from_u32).chain("𝔸漢字\u{10ffff}".chars()).collect();
    for text in ["", " a  b\n", "né ß 漢字 🦀!", &every] {
        let (a, b) = (ByteTokenizer.encode(text).unwrap(), other.encode(text).unwrap());
        assert_eq!((&a.ids, &a.special), (&b.ids, &b.special), "{text}");
        assert_eq!(a.ranges, b.ranges, "{text}");
        assert_eq!(ByteTokenizer.decode(&a.ids).unwrap(), text);
        assert_eq!(other.decode(&a.ids).unwrap(), text);
    }
    for id in 0..262 {
        assert_eq!(other.is_special(id) && id < 260, ByteTokenizer.is_special(id) && id < 260);
        assert_eq!(ByteTokenizer.token(id), other.token(id), "{id}");
        assert_eq!(ByteTokenizer.token(id).is_some(), id < 260);
    }
}

#[test]
fn a_special_token_written_in_the_text_is_text() {
    let tokens = ByteTokenizer.encode("<s>").unwrap();
    assert_eq!(tokens.len(), 4);
}

#[test]
fn missing_and_malformed_tokenizers_are_refused() {
    let error = HfTokenizer::from_file("/nowhere/tokenizer.json").unwrap_err().to_string();
    assert!(error.starts_with("tokenizer /nowhere/tokenizer.json: the file cannot be read"), "{error}");
    let error = HfTokenizer::from_bytes(b"{").unwrap_err().to_string();
    assert!(error.starts_with("tokenizer: the contents are not a tokenizer.json"), "{error}");
}

fn two_kinds() -> (Detectors, &'static str) {
    let detectors = "email".parse::<Detectors>().unwrap().with(Detector::words("name", ["jane"]).unwrap());
    (detectors, "jane: jane@x.io ok")
}

#[test]
fn no_token_reads_hidden_tokens() {
    let (detectors, text) = two_kinds();
    let tokens = ByteTokenizer.encode(text).unwrap();
    let private = PrivateTokens::locate(&detectors.find(text).unwrap(), text, &tokens);
    let policy = Policy::Hide;
    let facts = policy.facts(&[&private], Facts::new());
    let bound = policy.mask(atoms::full()).bind(&Shape::square(tokens.len()), &facts).unwrap();
    for key in 0..tokens.len() {
        for query in 0..tokens.len() {
            assert_eq!(bound.allowed(0, 0, query, key), !private.is_private(key));
        }
        assert_eq!(policy.released(&private, key), !private.is_private(key));
    }
    assert_eq!(private.count(), 4 + 9);
    let kinds: Vec<_> = private.kinds().map(|(kind, at)| (kind.as_str(), at.len())).collect();
    assert_eq!(kinds, [("email", 9), ("name", 8)]);
}

#[test]
fn clearance_lets_down_and_never_up() {
    let (detectors, text) = two_kinds();
    let tokens = ByteTokenizer.encode(text).unwrap();
    let private = PrivateTokens::locate(&detectors.find(text).unwrap(), text, &tokens);
    let levels: BTreeMap<_, _> = detectors.kinds().into_iter().zip([3, 2]).collect();
    let policy = Policy::Clearance { levels, reader: 2 };
    let facts = policy.facts(&[&private], Facts::new());
    let bound = policy.mask(atoms::full()).bind(&Shape::square(tokens.len()), &facts).unwrap();
    let level = |at: usize| policy.level(&private, at);
    assert_eq!([0, 1, 5, 7, 11, 16].map(level), [0, 2, 0, 3, 3, 0]); // <s>, jane, :, jane of the address, @, space
    for key in 0..tokens.len() {
        for query in 0..tokens.len() {
            assert_eq!(bound.allowed(0, 0, query, key), level(query) >= level(key));
        }
        assert_eq!(policy.released(&private, key), level(key) <= 2);
        assert_eq!(policy.secret(&private, key), level(key) > 2);
    }
}

#[test]
fn rows_of_a_batch_keep_their_own_labels() {
    let texts = ["a@b.io", "no secret here", "x a@b.io"];
    let tokens: Vec<_> = texts.iter().map(|t| ByteTokenizer.encode(t).unwrap()).collect();
    let find = |text: &&str| "email".parse::<Detectors>().unwrap().find(text).unwrap();
    let private: Vec<_> = texts.iter().zip(&tokens).map(|(t, e)| PrivateTokens::locate(&find(t), t, e)).collect();
    let policy = Policy::Hide;
    let lengths: Vec<usize> = tokens.iter().map(|e| e.len()).collect();
    let facts = policy.facts(&private.iter().collect::<Vec<_>>(), Facts::new().lengths(lengths).side(Side::Right));
    let mask = policy.mask(atoms::padding());
    let bound = mask.bind(&Shape::square(15).batch(3), &facts).unwrap();
    for row in 0..3 {
        for key in 0..15 {
            let expected = key < tokens[row].len() && !private[row].is_private(key);
            assert_eq!(bound.allowed(row, 0, 0, key), expected, "{row} {key}");
        }
    }
    assert!(
        policy
            .mask(atoms::full())
            .bind(&Shape::square(15).batch(3), &policy.facts(&[&private[1]; 3], Facts::new()))
            .is_ok()
    );
}

/// Returns a tokenizer of bytes with another template.
fn with_template(change: impl Fn(&mut serde_json::Value)) -> String {
    let mut form: serde_json::Value = serde_json::from_str(&ByteTokenizer.to_json()).unwrap();
    change(&mut form["post_processor"]);
    match HfTokenizer::from_bytes(form.to_string().as_bytes()) {
        Ok(tokenizer) => format!("{:?}", tokenizer.encode("ab").map(|tokens| tokens.ids)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn templates_that_name_what_is_missing_are_refused() {
    assert_eq!(with_template(|_| {}), "Ok([257, 97, 98])");
    let missing = "the template `single` names the special token \"<s>\", which special_tokens does not define";
    let empty = || serde_json::json!({});
    assert!(with_template(|form| form["special_tokens"] = empty()).contains(missing));
    let nested = |form: &mut serde_json::Value| {
        form["special_tokens"] = empty();
        *form = serde_json::json!({ "type": "Sequence", "processors": [form.clone()] });
    };
    assert!(with_template(nested).contains(missing));
    let twice = |form: &mut serde_json::Value| {
        *form = serde_json::json!({ "type": "Sequence", "processors": [form.clone(), form.clone()] });
    };
    assert!(with_template(twice).contains("several templates"));
    let uneven = |form: &mut serde_json::Value| form["special_tokens"]["<s>"]["ids"] = serde_json::json!([257, 258]);
    assert!(with_template(uneven).contains("has 2 ids and 1 tokens"));
    let second = |form: &mut serde_json::Value| form["single"][1]["Sequence"]["id"] = "B".into();
    assert!(with_template(second).contains("has the sequence \"B\": use A"));
    let pair = |form: &mut serde_json::Value| form["pair"][0]["SpecialToken"]["id"] = "<none>".into();
    assert!(with_template(pair).contains("the template `pair` names the special token \"<none>\""));
}

/// The definition of `PrivateTokens::locate`, with one loop for each of its rules.
fn located(private: &Range<usize>, text: &str, tokens: &Encoding) -> Vec<usize> {
    let of_text = |t: &usize| !tokens.special[*t];
    let range = |t: &usize| tokens.ranges[*t].clone();
    let all = || 0..tokens.len();
    let overlaps = |t: &usize| range(t).start < private.end && private.start < range(t).end;
    let within =
        |t: &usize| of_text(t) && range(t).is_empty() && private.start < range(t).start && range(t).start < private.end;
    let mut found: Vec<usize> = all().filter(|t| overlaps(t) || within(t)).collect();
    for (offset, c) in text[private.clone()].char_indices() {
        let at = private.start + offset;
        if c.is_whitespace() || all().any(|t| range(&t).contains(&at)) {
            continue;
        }
        let full = |t: &usize| of_text(t) && !range(t).is_empty();
        let before = all().filter(full).filter(|t| range(t).end <= at).max();
        let after = all().filter(full).filter(|t| range(t).start > at).min();
        found.extend(before.into_iter().chain(after));
        let between = |t: &usize| before.is_none_or(|b| b < *t) && after.is_none_or(|a| *t < a);
        found.extend(all().filter(|t| of_text(t) && range(t).is_empty() && between(t)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

proptest::proptest! {
    #[test]
    fn tokens_are_located_as_defined(
        length in 1usize..40,
        pieces in proptest::collection::vec((0usize..40, 0usize..6, proptest::bool::weighted(0.1)), 0..12),
        sorted in proptest::bool::ANY,
        (first, size) in (0usize..40, 1usize..10),
    ) {
        let text: String = (0..length).map(|at| if at % 5 == 4 { ' ' } else { 'x' }).collect();
        let mut ranges: Vec<_> =
            pieces.iter().map(|(start, size, special)| (*start.min(&length), *size, *special)).collect();
        if sorted {
            ranges.sort_unstable();
        }
        let tokens = Encoding {
            ids: vec![0; ranges.len()],
            ranges: ranges.iter().map(|(a, n, special)| if *special { 0..0 } else { *a..(a + n).min(length) }).collect(),
            special: ranges.iter().map(|piece| piece.2).collect(),
        };
        let span = first.min(length - 1)..(first.min(length - 1) + size).min(length);
        proptest::prop_assert_eq!(private(&text, span.clone(), &tokens), located(&span, &text, &tokens));
    }
}
