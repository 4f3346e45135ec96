//! The words and the values of declarations.

use super::context::Context;
use super::kinds::{Convention, MaskKind, Redaction, Role};
use super::values::Dtype;
use super::words::{Api, convention, kind};
use noren_mask::Side;

fn refused(json: &str) -> String {
    Context::from_json(json).expect_err(json).to_string()
}

#[test]
fn words_outside_of_a_vocabulary_are_refused_with_the_nearest_one() {
    for (json, expected) in [
        (r#"{"kind": "caussal"}"#, "`caussal` is an unknown word: did you mean `causal`?"),
        (r#"{"kind": "causal_pakced"}"#, "did you mean `packed`?"),
        (r#"{"convention": "yes"}"#, "convention=`yes` is an unknown word: known words are keep_bool"),
        (r#"{"role": "key_paddin"}"#, "did you mean `key_padding`?"),
        (r#"{"padding_side": "lef"}"#, "did you mean `left`?"),
        (r#"{"compute_dtype": "float61"}"#, "compute_dtype=`float61` is an unknown type"),
        (r#"{"window": 3, "window_means": "keys on each sight"}"#, "did you mean `keys on each side`?"),
        (r#"{"pooling": "meen"}"#, "did you mean `mean`?"),
        (r#"{"layer": 0, "layer_types": ["slidng_attention"]}"#, "did you mean `sliding`?"),
        (r#"{"bias": "albi"}"#, "did you mean `alibi`?"),
    ] {
        let text = refused(json);
        assert!(text.contains(expected), "{json}: {text}");
    }
}

#[test]
fn conventions_are_no_longer_matched_by_a_part_of_the_word() {
    let context = Context::from_json(r#"{"convention": "true_is_padding"}"#).expect("a context");
    assert_eq!(context.convention, Some(Convention::Drop));
    let kind = Context::from_json(r#"{"kind": "not_causal"}"#).expect("a context").kind.expect("a kind");
    assert!(!kind.causal);
}

#[test]
fn values_of_another_type_or_range_are_refused() {
    for json in [
        r#"{"kind": 5}"#,
        r#"{"past_len": "4"}"#,
        r#"{"past_len": 1000000000000}"#,
        r#"{"past_len": -9223372036854775808}"#,
        r#"{"window": 0}"#,
        r#"{"batch": 0}"#,
        r#"{"q_len": 99999999999}"#,
        r#"{"chunk": -1}"#,
        r#"{"is_causal": "yes"}"#,
        r#"{"lengths": [3, -1]}"#,
        r#"{"redactions": [{"batch": 1, "kees": [2]}]}"#,
        r#"{"redactions": [[7, 3]]}"#,
        r#"{"redactions": [{"batch": -1, "keys": [2]}]}"#,
    ] {
        assert!(refused(json).contains("expected"), "{json}: {}", refused(json));
    }
}

#[test]
fn every_declaration_has_one_name() {
    for (key, name) in [
        ("sliding_window", "window"),
        ("pastLen", "past_len"),
        ("Kind", "kind"),
        ("knd", "kind"),
        ("rol", "role"),
        ("polarity", "convention"),
        ("num_heads", "heads"),
        ("pad_id", "pad_token_id"),
        ("prefixlen", "prefix_len"),
        ("cache_capacity", "kv_len"),
    ] {
        let text = refused(&format!(r#"{{"{key}": 4}}"#));
        assert_eq!(text, format!("`{key}` is an unknown declaration: did you mean `{name}`?"));
    }
    assert!(refused(r#"{"author": "me"}"#).contains("give kind, layer_types, layer, role"));
    let error = refused(r#"{"api": "spda"}"#);
    assert!(error.starts_with("api=`spda` is an unknown word: did you mean `sdpa`?"), "{error}");
    assert!(refused(r#"{"api": "my_kernel"}"#).contains("leave `api` out"));
    let error = refused(r#"{"kind": "nonsense"}"#);
    assert_eq!(error.matches("causal,").count(), 1, "{error}");
}

#[test]
fn spellings() {
    let context = Context::from_json(
        r#"{"convention": "ignore_bool", "role": "key_padding", "pad_token_id": 0, "past_len": [3, 4],
            "redactions": [{"keys": [2], "queries": [5]}], "padding_side": "left", "compute_dtype": "torch.float16"}"#,
    )
    .expect("a context");
    assert_eq!(context.convention, Some(Convention::Drop));
    assert_eq!((context.role, context.past, context.pad_id), (Role::KeyPadding, vec![3, 4], Some(0)));
    assert_eq!(context.redactions, [Redaction { batch: vec![], keys: vec![2], queries: vec![5] }]);
    let by_row = r#"{"redactions": {"batch": 1, "keys": [7], "queries": [8, 9]}}"#;
    let redacted = Context::from_json(by_row).expect("a context").redactions;
    assert_eq!(redacted, [Redaction { batch: vec![1], keys: vec![7], queries: vec![8, 9] }]);
    assert_eq!((context.side, context.compute_dtype), (Some(Side::Left), Some(Dtype::F16)));
}

fn known(name: &str) -> MaskKind {
    kind("kind", name).expect("a known name")
}

#[test]
fn kinds_by_name() {
    assert!(known("causal").causal && !known("bidirectional").causal);
    assert!(known("causal_packed").causal && known("causal_packed").packed);
    assert!(known("sliding").causal && known("sliding").sliding);
    assert!(!known("bidirectional_sliding").causal && known("sliding_attention").sliding);
    assert!(known("prefix_lm").causal && known("prefix_lm").prefix);
    assert!(!known("cross_attention").causal && known("cross_attention").cross);
    assert!(!known("bidirectional_packed").causal && known("causal_with_image_blocks").blocks);
    assert!(known("packed").either_way && known("varlen").either_way && !known("causal_packed").either_way);
    assert!(known("block_diagonal").packed);
}

#[test]
fn a_negated_kind_is_the_other_one() {
    for name in ["not_causal", "non_causal", "noncausal", "Not Causal"] {
        assert!(!known(name).causal, "{name}");
    }
    assert!(known("not_bidirectional").causal);
    assert!(kind("kind", "not_sliding").is_err() && kind("kind", "causal_not").is_err());
    assert!(kind("kind", "causal_bidirectional").is_err());
}

#[test]
fn conventions_are_matched_as_a_whole() {
    assert_eq!(convention("true_is_padding").ok(), Some(Convention::Drop));
    assert_eq!(convention("keep_bool").ok(), Some(Convention::Keep));
    assert_eq!(convention("Additive").ok(), Some(Convention::Additive));
    for word in ["padding", "additively", "keepbool", "yes", ""] {
        assert!(convention(word).is_err(), "{word}");
    }
    let text = convention("keep_boll").unwrap_err().to_string();
    assert!(text.contains("did you mean `keep_bool`?"), "{text}");
}

#[test]
fn libraries_differ_in_what_true_means() {
    let api = |name| Api::named(name).expect(name);
    assert!(api("torch.nn.MultiheadAttention.key_padding_mask").drops());
    assert!(!api("keras.layers.MultiHeadAttention").drops());
    assert!(api("torch.nn.functional.scaled_dot_product_attention").adds());
}
