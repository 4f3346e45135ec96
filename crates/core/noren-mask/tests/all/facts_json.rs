//! Facts, shapes and arrays as JSON: valid values, exact messages, hostile text, round trips.

use noren_mask::interval::IntervalSet;
use noren_mask::{Array, Facts, Rows, Shape, Side, Span};
use proptest::prelude::*;

fn read(json: &str) -> Facts {
    Facts::from_json(json).unwrap_or_else(|e| panic!("{json}: {e}"))
}

/// Returns the message without its prefix `facts: `.
fn refusal(json: &str) -> String {
    let message = Facts::from_json(json).unwrap_err().to_string();
    message.strip_prefix("facts: ").unwrap_or_else(|| panic!("{message}")).to_string()
}

#[test]
fn every_key_is_read() {
    assert_eq!(read("{}"), Facts::new());
    assert_eq!(
        read(r#"{"lengths": [5, 3], "documents": [[5, 27], [16, 16]], "levels": [0, 2], "labels": {"pii": [3, 4]}}"#),
        Facts::new()
            .lengths([5, 3])
            .documents(vec![vec![5, 27], vec![16, 16]])
            .levels([0, 2])
            .label("pii", [Span::from(3), Span::from(4)])
    );
    assert_eq!(read(r#"{"side": "left", "lengths": [5]}"#), Facts::new().lengths([5]).side(Side::Left));
    assert_eq!(read(r#"{"documents": [5, 27]}"#), Facts::new().documents([5, 27]));
    assert_eq!(read(r#"{"query_lengths": [2]}"#), Facts::new().query_lengths([2]));
    assert_eq!(read(r#"{"positions": [[4, -1], [0, 1]]}"#), Facts::new().positions(vec![vec![4, -1], vec![0, 1]]));
    assert_eq!(
        read(r#"{"labels": {"pii": [["10..14"], [3, "5..", "..2"]]}}"#),
        Facts::new().label_rows("pii", vec![vec![(10..14).into()], vec![3.into(), (5..).into(), (..2).into()]])
    );
    assert_eq!(
        read(r#"{"real_keys": [["4..6", 0], []]}"#),
        Facts::new().real_keys(vec![[0..1, 4..6].into_iter().collect(), IntervalSet::new()])
    );
}

#[test]
fn every_array_form_is_read() {
    let array = |json: &str, array: Array| {
        assert_eq!(read(&format!(r#"{{"arrays": {{"a": {json}}}}}"#)), Facts::new().array("a", array), "{json}");
    };
    let keep = Array::keep(&[2, 2], &[true, false, true, true]).unwrap();
    array(r#"{"keep": [[1, 0], [true, 1.0]]}"#, keep.clone());
    array(r#"{"drop": [[0, 1], [false, 0]]}"#, keep.clone());
    array(r#"{"additive": [[0, "-inf"], [0.0, -0.0]]}"#, keep.clone());
    array(r#"{"additive": [[0, -3.4028235e38], [0, 0]]}"#, keep.clone());
    array(r#"{"additive": [[0, -65504], [0, 0]]}"#, keep.clone());
    array(r#"{"keep": [[[[1, 0], [1, 1]]]]}"#, keep);
    let cells = Array::cells(2, 2, &[(0, 0), (1, 0), (1, 1)]).unwrap();
    array(r#"{"csr": {"shape": [2, 2], "indptr": [0, 1, 3], "indices": [0, 1, 0]}}"#, cells.clone());
    array(r#"{"cells": {"shape": [2, 2], "list": [[1, 1], [0, 0], [1, 0]]}}"#, cells);
    let blocks = Array::blocks(5, 4, (2, 3), &[(0, 0), (2, 1)]).unwrap();
    array(r#"{"blocks": {"shape": [5, 4], "block": [2, 3], "list": [[0, 0], [2, 1]]}}"#, blocks);
    let heads = Array::keep(&[1, 2, 1, 2], &[true, false, false, true]).unwrap();
    array(r#"{"keep": [[[[1, 0]], [[0, 1]]]]}"#, heads);
}

#[test]
fn a_vast_array_with_few_cells_is_small() {
    let json = r#"{"arrays": {"a": {"cells": {"shape": [2147483647, 2147483647], "list": [[2147483646, 7]]}}}}"#;
    let facts = read(json);
    assert_eq!(read(&facts.to_json().unwrap()), facts);
    let blocks = r#"{"arrays": {"a": {"blocks": {"shape": [2147483647, 9], "block": [1, 1], "list": [[9, 7]]}}}}"#;
    assert_eq!(read(&read(blocks).to_json().unwrap()), read(blocks));
}

#[test]
fn what_people_have_is_read() {
    let facts = Facts::new().lengths([3, 2]);
    assert_eq!(read(r#"{"token_ids": [[5, 6, 7, 0], [5, 6, 0, 0]], "pad_id": 0}"#), facts);
    assert_eq!(read(r#"{"attention_mask": [[1, 1, 1, 0], [1, 1, 0, 0]]}"#), facts);
    assert_eq!(
        read(
            r#"{"attention_mask": [[1, 1, 1, 0], [1, 1, 0, 0]], "lengths": [3, 2], "side": "right",
                 "token_ids": [[5, 6, 7, 0], [5, 6, 0, 0]], "pad_id": 0}"#
        ),
        facts
    );
    let packed = Facts::new().lengths([4]).documents(vec![vec![2, 2]]);
    assert_eq!(read(r#"{"segment_ids": [[1, 1, 2, 2, 0]], "position_ids": [[0, 1, 0, 1, 0]]}"#), packed);
    assert_eq!(
        read(r#"{"segment_ids": [[0, 1, 1]], "segment_padding": null}"#),
        Facts::new().documents(vec![vec![1, 2]])
    );
    assert_eq!(
        read(r#"{"cu_seqlens": [0, 2, 5], "position_ids": [[0, 1, 0, 1, 2]]}"#),
        Facts::from_cu_seqlens(&[0, 2, 5]).unwrap()
    );
    // Position ids with left padding, in the form of Hugging Face.
    assert_eq!(
        read(r#"{"attention_mask": [[0, 0, 1, 1]], "position_ids": [[1, 1, 0, 1]]}"#),
        Facts::new().lengths([2]).side(Side::Left).documents(vec![vec![2]])
    );
    // The pad id is the eos id: other facts decide, and the padding must have this id.
    assert_eq!(
        read(r#"{"token_ids": [[5, 2, 2, 2]], "pad_id": 2, "eos_id": [2, 9], "lengths": [2]}"#),
        Facts::new().lengths([2])
    );
}

#[test]
fn wrong_values_are_named_with_their_place() {
    let whole = "expected a length: a whole number from 0 to 2147483647";
    let cell = "expected 0, 1, true or false";
    let span = r#"expected a position or a range such as "10..14", "10.." or "..14""#;
    for (json, message) in [
        (r#"[]"#, "JSON: got a list of 0 values, expected an object".into()),
        (r#"{"lengths": 5}"#, "lengths: got 5, expected a list of lengths, one per batch row".into()),
        (r#"{"lengths": [-1]}"#, format!("lengths[0]: -1 is too small, {whole}")),
        (r#"{"lengths": [2.5]}"#, format!("lengths[0]: 2.5 is not whole, {whole}")),
        (r#"{"lengths": [5.0]}"#, format!("lengths[0]: 5 is written with a decimal point or exponent, {whole}")),
        (r#"{"lengths": ["NaN"]}"#, format!("lengths[0]: got \"NaN\", {whole}")),
        (r#"{"lengths": [null]}"#, format!("lengths[0]: got null, {whole}")),
        (r#"{"lengths": [2147483648]}"#, format!("lengths[0]: 2147483648 is too large, {whole}")),
        (r#"{"lengths": [18446744073709551615]}"#, format!("lengths[0]: 18446744073709551615 is too large, {whole}")),
        (r#"{"lengths": [1180591620717411303424]}"#, format!("lengths[0]: 1.1805916207174113e21 is too large, {whole}")),
        (r#"{"lengths": [-1e300]}"#, format!("lengths[0]: -1e300 is too small, {whole}")),
        (r#"{"documents": [[5, 27], ["x", 16]]}"#, format!("documents[1][0]: got \"x\", {whole}")),
        (r#"{"documents": [5, [6]]}"#, format!("documents[1]: got a list of 1 value, {whole}")),
        (r#"{"documents": [[5], 6]}"#, "documents[1]: got 6, expected document lengths".into()),
        (r#"{"levels": [0, "high"]}"#, "levels[1]: got \"high\", expected a level: a whole number".into()),
        (r#"{"positions": [9223372036854775807]}"#,
         "positions[0]: 9223372036854775807 is too large, expected a position: a whole number up to 2147483647".into()),
        (r#"{"labels": [1]}"#, "labels: got a list of 1 value, expected an object of labels, {\"name\": [positions]}".into()),
        (r#"{"labels": {"pii": [3, "x"]}}"#, format!("labels.pii[1]: got \"x\", {span}")),
        (r#"{"labels": {"pii": ["14..10"]}}"#, "labels.pii[0]: range 14..10 is reversed: write 10..14".into()),
        (r#"{"labels": {"pii": [".."]}}"#, format!("labels.pii[0]: got \"..\", {span}")),
        (r#"{"labels": {"pii": ["1..99999999999999999999"]}}"#,
         "labels.pii[0]: \"1..99999999999999999999\" contains a position that is too large: give positions of at most 2147483647".into()),
        (r#"{"real_keys": [["3.."]]}"#, "real_keys[0][0]: range 3.. has no end: give the end of the range".into()),
        (r#"{"side": "top", "lengths": [1]}"#, "side: got \"top\", expected \"left\" or \"right\"".into()),
        (r#"{"side": "left"}"#, "side: the side of the padding has no effect without `lengths`: give `lengths` too".into()),
        (r#"{"side": "left", "real_keys": [[1]]}"#, "side: `real_keys` already defines where the padding is: remove `side`".into()),
        (r#"{"lengths": [1], "real_keys": [[0]]}"#, "real_keys: `lengths` and `real_keys` are both given: give only one of the two facts".into()),
        (r#"{"lenghts": [5]}"#, "JSON: the key \"lenghts\" is not known: did you mean \"lengths\"?".into()),
        (r#"{"arrays": {"m": {"kep": [[1]]}}}"#, "arrays.m: the key \"kep\" is not known: did you mean \"keep\"?".into()),
        (r#"{"arrays": {"m": {}}}"#, "arrays.m: give exactly one of the fields keep, drop, additive, csr, cells, blocks".into()),
        (r#"{"arrays": {"m": {"keep": 1}}}"#,
         "arrays.m.keep: got 1, expected cells as nested lists: [q_len, kv_len] or [batch, heads, q_len, kv_len]".into()),
        (r#"{"arrays": {"m": {"keep": [[1, 2]]}}}"#, format!("arrays.m.keep[0][1]: got 2, {cell}")),
        (r#"{"arrays": {"m": {"keep": [[1, 1], [1]]}}}"#,
         "arrays.m.keep[1]: the list has 1 entries, but the first list at the same depth has 2: give lists of equal length".into()),
        (r#"{"arrays": {"m": {"keep": [1, 0]}}}"#,
         "arrays.m.keep: shape [2] has 1 dimensions: give [q_len, kv_len] or [batch, heads, q_len, kv_len]".into()),
        (r#"{"arrays": {"m": {"keep": [[[1], [0]]]}}}"#,
         "arrays.m.keep: shape [1, 2, 1] has 3 dimensions, and 1 could be the number of batch rows or of heads: give [1, 1, 2, 1] or [1, 1, 2, 1]".into()),
        (r#"{"arrays": {"m": {"keep": [[]]}}}"#, "arrays.m.keep: shape [1, 0]: every size must be 1 to 2147483647".into()),
        (r#"{"arrays": {"m": {"additive": [[0, -1e3]]}}}"#,
         "arrays.m.additive[0][1]: got -1000, expected 0 or \"-inf\": an additive mask contains only 0 (allowed), and -inf or numbers from \
          -9984 down, such as -1e9 (not allowed); add other values to the scores with `mask + bias(name)`".into()),
        (r#"{"arrays": {"m": {"csr": {"shape": [2, 2], "indptr": [0, 9, 1], "indices": [0]}}}}"#,
         "arrays.m.csr: `indptr` has the end 9 for row 0, but there are only 1 indices".into()),
        (r#"{"arrays": {"m": {"csr": {"shape": [1, 2], "indptr": [0, 2], "indices": [0, 0]}}}}"#,
         "arrays.m.csr: row 0 contains key 0 twice: give each allowed key once".into()),
        (r#"{"arrays": {"m": {"cells": {"shape": [2, 2], "list": [[0, 2]]}}}}"#,
         "arrays.m.cells: cell (0, 2) is at key 2, but there are only 2 keys, counted from 0".into()),
        (r#"{"arrays": {"m": {"cells": {"shape": [2, 2], "list": [[0, 1, 2]]}}}}"#,
         "arrays.m.cells.list[0]: got a list of 3 values, expected a pair of whole numbers".into()),
        (r#"{"arrays": {"m": {"cells": {"list": []}}}}"#, "arrays.m.cells: the key \"shape\" is missing".into()),
        (r#"{"arrays": {"m": {"cells": {"shape": [0, 2], "list": []}}}}"#,
         "arrays.m.cells.shape[0]: 0 is too small, expected a number of queries or keys: a whole number from 1 to 2147483647".into()),
        (r#"{"attention_mask": [1, 0]}"#, "attention_mask[0]: got 1, expected a list of 0 and 1".into()),
        (r#"{"attention_mask": []}"#, "attention_mask: the list has no rows: give one row per batch row".into()),
        (r#"{"attention_mask": [[]]}"#, "attention_mask: batch row 0 has 0 entries: give 1 to 2147483647".into()),
        (r#"{"token_ids": [[1]]}"#, "token_ids: the id of padding tokens is not given: give it as `pad_id`".into()),
        (r#"{"pad_id": 0}"#, "pad_id: this field has no effect without `token_ids`: give both fields".into()),
        (r#"{"segment_padding": 0}"#, "segment_padding: this field has no effect without `segment_ids`: give both fields".into()),
    ] {
        assert_eq!(refusal(json), message, "{json}");
    }
}

#[test]
fn contradictions_are_named() {
    for (json, message) in [
        (
            r#"{"lengths": [3], "token_ids": [[5, 6, 0]], "pad_id": 0}"#,
            "lengths: the length of batch row 0 is 3, but token_ids has 2 real tokens in this batch row: give only one of the two facts",
        ),
        (
            r#"{"lengths": [3, 3], "attention_mask": [[1, 1, 1]]}"#,
            "lengths: 2 lengths are given but attention_mask has 1 batch rows: give one length per batch row",
        ),
        (
            r#"{"lengths": [2], "attention_mask": [[1, 0, 1]]}"#,
            "lengths: attention_mask has padding that is not at one end, which lengths cannot describe: remove `lengths`",
        ),
        (
            r#"{"attention_mask": [[1, 1, 1]], "token_ids": [[5, 6, 0]], "pad_id": 0}"#,
            "token_ids: this fact contradicts attention_mask: key 2 of batch row 0 is a real token in attention_mask and padding in token_ids",
        ),
        (
            r#"{"attention_mask": [[1, 1, 1]], "token_ids": [[5, 6]], "pad_id": 0}"#,
            "token_ids: the rows have 2 keys but those of attention_mask have 3: give rows of equal length",
        ),
        (
            r#"{"attention_mask": [[1, 1]], "real_keys": [[0]]}"#,
            "real_keys: this fact contradicts attention_mask: key 1 of batch row 0 is a real token in attention_mask and padding in real_keys",
        ),
        (
            r#"{"side": "left", "attention_mask": [[1, 0]]}"#,
            "side: the given side is \"left\" but attention_mask has the padding of batch row 0 at the other end",
        ),
        (
            r#"{"side": "left", "attention_mask": [[1, 0, 1]]}"#,
            "side: the given side is \"left\" but the padding in attention_mask is not at one end: remove `side`",
        ),
        (
            r#"{"documents": [5], "cu_seqlens": [0, 2, 5]}"#,
            "cu_seqlens: this fact contradicts documents: the documents of batch row 0 are [2, 3] in this fact and [5] in the other fact; give only one of the two facts",
        ),
        (
            r#"{"documents": [[2, 3], [5]], "cu_seqlens": [0, 2, 5]}"#,
            "cu_seqlens: this fact contradicts documents: the documents of batch row 1 are missing in this fact and [5] in the other fact; give only one of the two facts",
        ),
        (
            r#"{"token_ids": [[5, 7, 2]], "pad_id": 2, "eos_id": 2, "lengths": [1]}"#,
            "token_ids[0][1]: the id is 7 and not pad id 2, but other facts give padding at this key: correct one of the facts",
        ),
    ] {
        assert_eq!(refusal(json), message, "{json}");
    }
}

#[test]
fn text_that_is_no_json_is_refused() {
    for (json, message) in [
        ("", "JSON: not valid JSON: EOF while parsing a value at line 1 column 0"),
        (
            r#"{"lengths": [1e400]}"#,
            "JSON: not valid JSON: number out of range at line 1 column 18: numbers go up to 1.8e308",
        ),
        (
            r#"{"lengths": [1], "lengths": [2]}"#,
            "JSON: not valid JSON: the key \"lengths\" appears twice at line 1 column 26",
        ),
    ] {
        assert_eq!(refusal(json), message, "{json}");
    }
    for number in ["NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"] {
        let message = refusal(&format!("{{\"levels\":\n [0, {number}]}}"));
        let word = number.trim_start_matches('-');
        assert!(message.contains(&format!("JSON has no {word}")), "{message}");
        assert!(message.contains("line 2"), "{message}");
    }
    assert!(refusal("{\"levels\": [ä NaN").contains("expected value"));
    for open in ["[", "{\"arrays\":", "{\"arrays\":{\"a\":{\"keep\":["] {
        let message = refusal(&open.repeat(200_000));
        assert!(message.contains("recursion limit exceeded"), "{message}");
    }
    assert!(refusal(&format!("{{\"{}\": 1}}", "x".repeat(1 << 20))).len() < 400);
    assert!(refusal(&format!("{{\"lengths\": \"{}\"}}", "é".repeat(1 << 20))).len() < 400);
}

#[test]
fn wrong_kinds_at_every_key_are_refused_without_panic() {
    let values = [
        "null",
        "true",
        "-1",
        "1.5",
        "1e308",
        "18446744073709551615",
        "\"x\"",
        "\"\"",
        "[]",
        "[[]]",
        "[[[]]]",
        "[[[[[1]]]]]",
        "{}",
        "{\"a\": 1}",
        "{\"a\": [[-1]]}",
        "{\"a\": {}}",
        "{\"a\": {\"keep\": [[[[[]]]]]}}",
        "[null]",
        "[\"..\"]",
        "[[1], []]",
        "[[], [1]]",
        "[9223372036854775807, -9223372036854775808]",
        "[[9223372036854775807]]",
    ];
    let keys = [
        "lengths",
        "side",
        "real_keys",
        "query_lengths",
        "documents",
        "labels",
        "levels",
        "positions",
        "arrays",
        "token_ids",
        "pad_id",
        "eos_id",
        "bos_id",
        "attention_mask",
        "segment_ids",
        "segment_padding",
        "position_ids",
        "cu_seqlens",
    ];
    for (key, value) in keys.iter().flat_map(|key| values.iter().map(move |value| (key, value))) {
        for rest in ["", ", \"pad_id\": 0", ", \"token_ids\": [[1]]", ", \"segment_ids\": [[1]]", ", \"lengths\": [1]"]
        {
            let json = format!("{{\"{key}\": {value}{rest}}}");
            if let Ok(facts) = Facts::from_json(&json) {
                assert_eq!(read(&facts.to_json().unwrap()), facts, "{json}");
            }
        }
    }
}

#[test]
fn shapes_are_read_and_checked() {
    let shape = |json: &str| Shape::from_json(json);
    assert_eq!(shape(r#"{"q_len": 4, "kv_len": 4}"#).unwrap(), Shape::square(4));
    assert_eq!(shape(r#"{"q_len": 4, "kv_len": 9, "query_offset": 0}"#).unwrap(), Shape::cross(4, 9));
    let ragged = Shape::cached(5, 4).batch(2).heads(4).kv_heads(2).query_offsets([5, -1]);
    assert_eq!(shape(&ragged.to_json().unwrap()).unwrap(), ragged);
    for (json, message) in [
        (r#"{"q_len": 4}"#, "shape: JSON: the key \"kv_len\" is missing"),
        (
            r#"{"q_len": 4, "kv_len": "4"}"#,
            "shape: kv_len: got \"4\", expected a count: a whole number from 1 to 2147483647",
        ),
        (
            r#"{"q_len": 0, "kv_len": 4}"#,
            "shape: q_len: 0 is too small, expected a count: a whole number from 1 to 2147483647",
        ),
        (
            r#"{"q_len": 1, "kv_len": 1, "head": 2}"#,
            "shape: JSON: the key \"head\" is not known: did you mean \"heads\"?",
        ),
        (
            r#"{"q_len": 1, "kv_len": 1, "heads": 4, "kv_heads": 3}"#,
            "shape: there are 4 query heads and 3 key-value heads: the number of query heads must be a multiple of the number of key-value heads",
        ),
        (
            r#"{"q_len": 1, "kv_len": 5}"#,
            "shape: q_len is 1 and kv_len is 5: give the position of the first query, query_offset 4 if the queries are the last tokens of the sequence of keys, or 0 if the queries are another sequence",
        ),
        (
            r#"{"q_len": 1, "kv_len": 1, "query_offset": [0, 1, 2], "batch": 2}"#,
            "shape: query_offset has 3 entries but the batch has 2 rows: give one entry, or one per batch row",
        ),
    ] {
        assert_eq!(shape(json).unwrap_err().to_string(), message, "{json}");
    }
    assert_eq!(serde_json::from_str::<Shape>(r#"{"q_len": 4, "kv_len": 4}"#).unwrap(), Shape::square(4));
}

#[test]
fn the_side_may_come_first_but_not_alone() {
    let facts = Facts::new().side(Side::Left).lengths([1]);
    assert_eq!(facts, Facts::new().lengths([1]).side(Side::Left));
    let alone = noren_mask::atoms::causal().bind(&Shape::square(2), &Facts::new().side(Side::Left));
    assert_eq!(
        alone.unwrap_err().to_string(),
        "facts: lengths: 0 lengths are given but the batch has 1 rows: give one length per batch row"
    );
}

#[test]
fn what_has_no_serial_form_is_refused() {
    let facts = Facts::new().position_runs(vec![vec![(0..2, 8)]]);
    let message = "facts: position_runs: runs of positions cannot be written as JSON: give positions, one for each key";
    assert_eq!(facts.to_json().unwrap_err().to_string(), message);
    assert_eq!(serde_json::to_string(&facts).unwrap_err().to_string(), message);
    let empty = Facts::new().levels(Rows::Each(Vec::new()));
    assert_eq!(
        empty.to_json().unwrap_err().to_string(),
        "facts: levels: the list is empty: give one entry per batch row, or one for all batch rows"
    );
}

fn rows<T: std::fmt::Debug + Clone>(item: impl Strategy<Value = T> + Clone) -> impl Strategy<Value = Rows<Vec<T>>> {
    let list = prop::collection::vec(item, 0..5);
    prop_oneof![list.clone().prop_map(Rows::All), prop::collection::vec(list, 1..4).prop_map(Rows::Each)]
}

fn array() -> impl Strategy<Value = Array> {
    let size = 1usize..6;
    prop_oneof![
        (1usize..3, 1usize..3, size.clone(), 1usize..70, any::<u64>()).prop_map(|(b, h, q, k, seed)| {
            let bit = |i: usize| (seed >> (i % 61)) & 1 == 1;
            Array::keep(&[b, h, q, k], &(0..b * h * q * k).map(bit).collect::<Vec<_>>()).unwrap()
        }),
        prop::collection::vec((0usize..9, 0usize..9), 0..9).prop_map(|cells| Array::cells(9, 9, &cells).unwrap()),
        (1usize..4, 1usize..4, prop::collection::vec((0usize..3, 0usize..3), 0..5))
            .prop_map(|(bq, bk, list)| Array::blocks(12, 12, (bq, bk), &list).unwrap()),
    ]
}

fn facts() -> impl Strategy<Value = Facts> {
    let count = 0..=Shape::MAX_LEN;
    let span = prop_oneof![
        (0usize..100).prop_map(Span::from),
        (0usize..100, 0usize..50).prop_map(|(a, n)| Span::from(a..a + n)),
        (0usize..100).prop_map(|a| Span::from(a..)),
    ];
    let real = prop_oneof![
        Just(Facts::new()),
        (prop::collection::vec(count.clone(), 0..4), any::<bool>())
            .prop_map(|(n, left)| Facts::new().lengths(n).side(if left { Side::Left } else { Side::Right })),
        prop::collection::vec(prop::collection::vec((0u32..50, 0u32..9), 0..4), 0..3).prop_map(|rows| {
            let set = |row: Vec<(u32, u32)>| row.into_iter().map(|(a, n)| a..a + n).collect();
            Facts::new().real_keys(rows.into_iter().map(set).collect())
        }),
    ];
    let optional = (
        prop::option::of(prop::collection::vec(count.clone(), 0..4)),
        prop::option::of(rows(count)),
        prop::option::of(rows(any::<i64>())),
        prop::option::of(rows(-5i64..=Shape::MAX_LEN as i64)),
    );
    let name = prop_oneof!["[a-z]{1,6}", any::<String>()];
    let named = (prop::collection::vec((name.clone(), rows(span)), 0..3), prop::collection::vec((name, array()), 0..3));
    (real, optional, named).prop_map(|(mut facts, (query_lengths, documents, levels, positions), (labels, arrays))| {
        if let Some(n) = query_lengths {
            facts = facts.query_lengths(n);
        }
        if let Some(rows) = documents {
            facts = facts.documents(rows);
        }
        if let Some(rows) = levels {
            facts = facts.levels(rows);
        }
        if let Some(rows) = positions {
            facts = facts.positions(rows);
        }
        for (name, rows) in labels {
            facts = match rows {
                Rows::All(spans) => facts.label(name, spans),
                Rows::Each(rows) => facts.label_rows(name, rows),
            };
        }
        arrays.into_iter().fold(facts, |facts, (name, array)| facts.array(name, array))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn facts_survive_json(facts in facts()) {
        let json = facts.to_json().unwrap();
        prop_assert_eq!(&Facts::from_json(&json)?, &facts);
        let pretty = serde_json::to_string_pretty(&facts).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Facts>(&pretty).unwrap(), &facts);
    }

    #[test]
    fn cut_and_garbled_json_never_panics(facts in facts(), at in any::<prop::sample::Index>(), byte in 32u8..127) {
        let mut json = facts.to_json().unwrap().into_bytes();
        let at = at.index(json.len());
        let _ = Facts::from_json(&String::from_utf8_lossy(&json[..at]));
        json[at] = byte;
        let _ = Facts::from_json(&String::from_utf8_lossy(&json));
    }
}

/// Padding is counted from the ends of a table, so a table of another length would shift the padding.
#[test]
fn tables_of_another_length_than_the_keys_are_refused() {
    use noren_mask::atoms::{causal, padding};
    let tables = [
        (r#"{"attention_mask": [[0, 1, 1]]}"#, "attention_mask"),
        (r#"{"attention_mask": [[1, 1, 0]]}"#, "attention_mask"),
        (r#"{"attention_mask": [[1, 1, 0]], "lengths": [2]}"#, "attention_mask"),
        (r#"{"token_ids": [[0, 5, 6]], "pad_id": 0}"#, "token_ids"),
        (r#"{"token_ids": [[0, 5, 0]], "pad_id": 0, "eos_id": 0, "lengths": [2], "side": "left"}"#, "token_ids"),
        (r#"{"segment_ids": [[1, 2, 0]]}"#, "segment_ids"),
    ];
    for (json, name) in tables {
        let facts = read(json);
        for mask in [padding(), causal()] {
            assert!(mask.bind(&Shape::square(3), &facts).is_ok(), "{json}");
            assert!(mask.bind(&Shape::cross(6, 3), &facts).is_ok(), "{json}");
            for keys in [2, 4, 6] {
                let error = mask.bind(&Shape::cross(3, keys), &facts).unwrap_err().to_string();
                let expected = format!(
                    "facts: {name}: each batch row has 3 entries but the shape has {keys} keys: give one entry"
                );
                assert!(error.starts_with(&expected), "{error}");
            }
        }
    }
    let kept = Facts::padding_from_keep(&[[false, true, true]]).unwrap();
    assert!(padding().bind(&Shape::square(5), &kept).is_err());
    assert!(
        padding().bind(&Shape::square(5), &kept.lengths([2]).side(Side::Left)).is_ok(),
        "lengths replace the table"
    );
}
