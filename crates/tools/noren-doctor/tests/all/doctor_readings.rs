//! The doctor on small masks whose declarations are easily misread: ring buffers, layers, labels, positions, other sequences.

use noren_doctor::{Context, Input, Report, Values};

/// Returns a mask `[batch, 1, rows, keys]` drawn with `1` and `.`; `/` separates batch rows, a space rows.
fn drawn(text: &str) -> Values {
    let batches: Vec<Vec<&str>> = text.split('/').map(|b| b.split_whitespace().collect()).collect();
    let shape = [batches.len(), 1, batches[0].len(), batches[0][0].len()];
    let cells = text.chars().filter(|c| "1.".contains(*c)).map(|c| c == '1').collect();
    Values::bools(&shape, cells).expect("rows of one length")
}

fn rows(rows: &[&[i64]]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn report(mask: Values, context: &str, beside: &[(&str, Values)]) -> Report {
    let context = Context::from_json(context).expect("a context");
    let input = Input::new(mask).context(context);
    let input = beside.iter().fold(input, |p, (name, values)| p.companion(*name, values.clone()));
    input.diagnose().expect("a usable mask")
}

fn healthy(mask: &str, context: &str, beside: &[(&str, Values)]) {
    let report = report(drawn(mask), context, beside);
    assert!(!report.faulty(), "{mask}: {:?}", report.findings);
}

#[track_caller]
fn faulty(mask: &str, context: &str, beside: &[(&str, Values)], class: &str, meant: &str) {
    let report = report(drawn(mask), context, beside);
    assert_eq!(report.classes().first().copied(), Some(class), "{:?}", report.findings);
    let fixed: Vec<bool> = report.fixed.expect("a repair").cells().collect();
    let meant: Vec<bool> = meant.chars().filter(|c| "1.".contains(*c)).map(|c| c == '1').collect();
    assert_eq!(fixed, meant);
}

const SDPA: &str = r#""api": "sdpa", "convention": "keep_bool""#;

fn context(more: &str) -> String {
    format!("{{{SDPA}, {more}}}")
}

#[test]
fn one_step_in_a_ring() {
    let ring = [("kv_positions", rows(&[&[4, 5, 2, 3]])), ("position_ids", rows(&[&[5]]))];
    let declared = context(r#""kind": "sliding", "window": 3, "window_means": "keys visible, self included""#);
    healthy("11.1", &declared, &ring);
    faulty(".111", &declared, &ring, "ring_buffer_misaligned", "11.1");
}

#[test]
fn undeclared_padding_of_a_cache() {
    let declared = context(r#""kind": "causal", "past_len": 4, "q_len": 1, "kv_len": 8"#);
    healthy("..111...", &declared, &[]);
    let report = report(drawn("..111111"), &declared, &[]);
    assert_eq!(report.classes(), ["unwritten_cache_visible"], "{report}");
    // Keys 0 and 1 may be padding or a mistake; a repair would be a guess.
    assert!(report.fixed.is_none() && report.open[0].question.contains("padding"), "{report}");
}

#[test]
fn the_width_of_another_layer() {
    let layer = |n: usize| {
        context(&format!(
            r#""window": 2, "window_means": "keys visible, self included", "layer": {n},
               "layer_types": ["sliding_attention", "full_attention"]"#
        ))
    };
    let (window, causal) = ("1... 11.. .11. ..11", "1... 11.. 111. 1111");
    healthy(window, &layer(0), &[]);
    healthy(causal, &layer(1), &[]);
    faulty(causal, &layer(0), &[], "window_missing_or_wrong_layer", window);
    faulty(window, &layer(1), &[], "window_missing_or_wrong_layer", causal);
}

#[test]
fn a_window_laid_over_blocks() {
    let declared =
        context(r#""kind": "causal_with_image_blocks", "window": 2, "window_means": "keys visible, self included""#);
    let blocks = [("block_ids", rows(&[&[0, 1, 1, 1, 0]]))];
    let right = "1.... 1111. .111. .111. ...11";
    healthy(right, &declared, &blocks);
    faulty("1.... 1111. .111. ..11. ...11", &declared, &blocks, "prefix_lm_or_block_wrong", right);
}

#[test]
fn the_mask_of_row_0_with_its_padding_left_as_it_was() {
    let ids = [("input_ids", rows(&[&[5, 6, 7, 0, 0], &[5, 6, 7, 8, 9]]))];
    let row = "111.. 111.. 111.. ...1. ....1";
    faulty(
        &format!("{row} / {row}"),
        &context(r#""kind": "bidirectional", "pad_token_id": 0"#),
        &ids,
        "batch_row_wrong",
        "111.. 111.. 111.. 111.. 111.. / 11111 11111 11111 11111 11111",
    );
}

#[test]
fn the_decoders_own_mask_in_cross_attention() {
    let declared = context(r#""kind": "cross_attention", "role": "cross_attn", "q_len": 3, "kv_len": 4"#);
    faulty("1.. 11. 111", &declared, &[], "cross_attention_mask", "1111 1111 1111");
}

#[test]
fn packed_without_a_word_on_causality() {
    let documents = [("segment_ids", rows(&[&[1, 1, 2, 2]]))];
    healthy("1... 11.. ..1. ..11", &context(r#""kind": "packed""#), &documents);
    healthy("11.. 11.. ..11 ..11", &context(r#""kind": "packed""#), &documents);
    faulty("1... 11.. 111. 1111", &context(r#""kind": "packed""#), &documents, "cross_document", "1... 11.. ..1. ..11");
}

#[test]
fn a_hidden_key_may_read_itself() {
    healthy("1... 11.. 1.1. 11.1", &context(r#""kind": "causal", "redactions": [2]"#), &[]);
    healthy("1... 11.. 11.. 11.1", &context(r#""kind": "causal", "redactions": [2]"#), &[]);
}

#[test]
fn document_numbers_in_a_whole_mask() {
    let mask = Values::ints(&[1, 1, 4, 4], vec![1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 2, 0, 1, 1, 2, 2]).expect("a mask");
    let declared = r#"{"api": "transformers.attention_mask", "convention": "keep_01"}"#;
    assert_eq!(report(mask, declared, &[]).classes()[0], "segment_ids_cast_to_bool");
    let apart = Values::ints(&[1, 1, 4, 4], vec![1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 2, 0, 0, 0, 2, 2]).expect("a mask");
    assert!(!report(apart, declared, &[]).faulty());
}

#[test]
fn positions_of_left_padded_texts() {
    let left = "1..... .1.... ..1... ..11.. ..111. ..1111";
    let declared = context(r#""kind": "causal", "pad_token_id": 0"#);
    let ids = ("input_ids", rows(&[&[0, 0, 5, 6, 7, 8]]));
    let with = |p: &[i64]| [ids.clone(), ("position_ids", rows(&[p]))];
    healthy(left, &declared, &with(&[0, 0, 0, 1, 2, 3]));
    healthy(left, &declared, &with(&[1, 1, 5, 6, 7, 8]));
    for wrong in [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 0, 0], [0, 0, 0, 0, 0, 0]] {
        assert_eq!(report(drawn(left), &declared, &with(&wrong)).classes()[0], "position_ids", "{wrong:?}");
    }
}

#[test]
fn labels_that_were_moved_are_not_labels_of_padding() {
    let declared = context(r#""kind": "causal", "pad_token_id": 0, "model_shifts_labels": true"#);
    let beside = [("input_ids", rows(&[&[0, 5, 6, 7]])), ("labels", rows(&[&[5, 6, 7, -100]]))];
    let classes = report(drawn("1... .1.. .11. .111"), &declared, &beside).classes();
    assert_eq!(classes, ["label_shift"]);
}

#[test]
fn inverted_padding_is_described_as_it_is() {
    let ids = [("input_ids", rows(&[&[5, 6, 7, 0], &[5, 6, 0, 0]]))];
    let report = report(drawn("...1 / ..11"), &context(r#""kind": "bidirectional", "pad_token_id": 0"#), &ids);
    assert_eq!(report.classes().first(), Some(&"inverted_polarity"));
    assert!(report.description.ends_with("padding(side=left, lengths=[1, 2])"), "{}", report.description);
}
