//! A policy that is printed and parsed again is equal to the original.

use noren_flow::{Group, Policy};

fn targets(text: &str) -> Vec<Group> {
    let policy: Policy = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let printed = policy.to_string();
    assert_eq!(printed.parse::<Policy>().as_ref(), Ok(&policy), "{text} printed as {printed}");
    policy.rules.into_iter().map(|rule| rule.to).collect()
}

#[test]
fn names_of_labels() {
    for text in ["label(pii)", "label(\"pii\")", "label( pii )", "label( \"pii\" )"] {
        assert_eq!(targets(&format!("deny: all -> {text}")), [Group::Label("pii".into())], "{text}");
    }
    for name in ["a b", "a)b", "a(b", "a:b", "日本", "a-b"] {
        assert_eq!(targets(&format!("deny: all -> label({name})")), [Group::Label(name.into())]);
    }
    for text in
        ["label()", "label(\"\")", "label(\" pii \")", "label(\"\"pii\"\")", "label(\")", "label(a\"b)", "label"]
    {
        let refused = format!("deny: all -> {text}").parse::<Policy>();
        assert!(refused.is_err(), "{text}: {refused:?}");
    }
}

#[test]
fn the_largest_numbers_of_tokens() {
    assert_eq!(targets("deny: all -> token(4294967294)"), [Group::Tokens(u32::MAX - 1, u32::MAX)]);
    assert_eq!(targets("deny: all -> tokens(0..4294967295)"), [Group::Tokens(0, u32::MAX)]);
    for text in ["token(4294967295)", "token(99999999999)", "tokens(3..3)", "tokens(5..3)"] {
        assert!(format!("deny: all -> {text}").parse::<Policy>().is_err(), "{text}");
    }
    assert_eq!(Group::Tokens(u32::MAX, u32::MAX).to_string(), "tokens(4294967295..4294967295)");
}
