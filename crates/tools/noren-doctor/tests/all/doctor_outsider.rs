//! Hand-drawn masks on which the doctor was wrong; a second generator of cases (`benches/doctor/outsider.py`) found them.

use noren_doctor::{Context, Input, Report, Values, Verdict};

/// Returns the shape and cells of a drawing: `/` separates batch rows, `|` heads, a space queries; `#` allows a cell.
fn cells(drawing: &str) -> (Vec<usize>, Vec<bool>) {
    let batch: Vec<&str> = drawing.split('/').collect();
    let heads: Vec<&str> = batch[0].split('|').collect();
    let rows: Vec<&str> = heads[0].split_whitespace().collect();
    let shape = vec![batch.len(), heads.len(), rows.len(), rows[0].len()];
    (shape, drawing.chars().filter(|c| "#.".contains(*c)).map(|c| c == '#').collect())
}

fn keep(drawing: &str) -> Values {
    let (shape, cells) = cells(drawing);
    Values::bools(&shape, cells).expect("rows of one length")
}

/// Returns a mask that is added to scores, with `visible` in allowed and `fill` in hidden cells.
fn added(drawing: &str, visible: f32, fill: f32) -> Values {
    let (shape, cells) = cells(drawing);
    Values::floats(&shape, cells.iter().map(|c| if *c { visible } else { fill }).collect()).expect("rows of one length")
}

fn rows(rows: &[&[i64]]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn list(numbers: &[i64]) -> Values {
    Values::ints(&[numbers.len()], numbers.to_vec()).expect("a list")
}

fn report(mask: Values, context: &str, beside: &[(&str, Values)]) -> Report {
    let context = Context::from_json(&format!("{{{context}}}")).expect("a context");
    let input = Input::new(mask).context(context);
    let input = beside.iter().fold(input, |p, (name, values)| p.companion(*name, values.clone()));
    input.diagnose().expect("a usable mask")
}

/// Checks that the first class is `class`, and that the repair equals `meant` in every row that has a visible key
/// there.
#[track_caller]
fn repaired(report: &Report, class: &str, meant: &str) {
    assert_eq!(report.classes().first(), Some(&class), "{report}");
    let fixed = report.fixed.as_ref().unwrap_or_else(|| panic!("no repair: {report}"));
    let (shape, cells) = cells(meant);
    let width = shape[3];
    let [batch, heads, q_len, kv_len] = fixed.dims();
    assert_eq!([q_len, kv_len], [shape[2], shape[3]], "{report}");
    for (row, drawn) in cells.chunks(width).enumerate().filter(|(_, row)| row.contains(&true)) {
        let (i, h, b) = (row % q_len, row / q_len % shape[1], row / q_len / shape[1]);
        for b in if shape[0] == 1 { 0..batch } else { b..b + 1 } {
            for h in if shape[1] == 1 { 0..heads } else { h..h + 1 } {
                let own: Vec<bool> = (0..kv_len).map(|k| fixed.get([b, h, i, k])).collect();
                assert_eq!(own, drawn, "batch row {b}, head {h}, query {i}: {report}");
            }
        }
    }
}

#[track_caller]
fn looks_like_a_known_mask(mask: Values, context: &str, beside: &[(&str, Values)]) {
    let report = report(mask, context, beside);
    assert_eq!(report.verdict, Verdict::LooksLike, "{report}");
    assert!(report.sentence.contains("0 of"), "{report}");
}

const KEEP: &str = r#""convention": "keep_bool""#;
const TRIANGLE: &str = "#..... ##.... ###... ####.. #####. ######";

#[test]
fn one_real_row_is_empty() {
    let mask = "#..... ##.... ###... ...... #####. ######";
    let report = report(keep(mask), r#""kind": "causal", "convention": "keep_bool""#, &[]);
    repaired(&report, "fully_masked_row", TRIANGLE);
}

#[test]
fn a_mistake_in_one_head_or_batch_row_has_its_own_class() {
    let excluded = "...... #..... ##.... ###... ####.. #####.";
    let heads = format!("{TRIANGLE}|{excluded}|{TRIANGLE}");
    let found = report(keep(&heads), r#""kind": "causal", "convention": "keep_bool", "heads": 3"#, &[]);
    repaired(&found, "causal_self_excluded", TRIANGLE);
    assert!(found.sentence.contains("in head 1 only"), "{found}");

    let full = "###### ###### ###### ###### ###### ######";
    let two_heads = format!("{full}|{TRIANGLE}");
    let found = report(keep(&two_heads), r#""kind": "causal", "convention": "keep_bool", "heads": 2"#, &[]);
    repaired(&found, "causal_dropped", TRIANGLE);

    let batch = format!("{full}/{TRIANGLE}/{full}");
    let found = report(keep(&batch), r#""kind": "bidirectional", "convention": "keep_bool""#, &[]);
    repaired(&found, "implicit_causal", full);
    assert!(found.sentence.contains("in batch row 1 only"), "{found}");

    let (wide, right) = ("#..... ##.... ###... ####.. .####. ..####", "#..... ##.... ###... .###.. ..###. ...###");
    let sliding = r#""kind": "sliding", "window": 3, "convention": "keep_bool", "heads": 2"#;
    let found = report(keep(&format!("{wide}|{right}")), sliding, &[]);
    repaired(&found, "sliding_window_off_by_one", right);
}

#[test]
fn a_static_cache_that_is_not_causal_among_written_slots() {
    let cached = r#""kind": "causal", "past_len": 4, "q_len": 3, "kv_len": 10, "convention": "keep_bool""#;
    let right = "#####..... ######.... #######...";
    repaired(&report(keep("#######... #######... #######..."), cached, &[]), "causal_dropped", right);
    repaired(&report(keep("######.... #######... #######..."), cached, &[]), "causal_leak", right);
}

#[test]
fn drafts_that_read_their_siblings() {
    let beside = [("parents", list(&[-1, 0, 0, 1, 0]))];
    let mask = "#.... ##... ###.. ##.#. ###.#";
    let found = report(keep(mask), r#""kind": "tree", "past_len": 0, "convention": "keep_bool""#, &beside);
    repaired(&found, "tree_mask", "#.... ##... #.#.. ##.#. #...#");
}

#[test]
fn several_new_tokens_hidden_from_all() {
    let cached = r#""kind": "causal", "past_len": 5, "q_len": 3, "kv_len": 8, "convention": "keep_bool""#;
    let found = report(keep("#####... #####... #####..."), cached, &[]);
    repaired(&found, "stale_decode_mask", "######.. #######. ########");
}

#[test]
fn hidden_text_is_no_hole_of_padding_ids() {
    let chunked = r#""kind": "chunked", "chunk": 2, "pad_token_id": 0, "convention": "keep_bool""#;
    let beside = [("input_ids", rows(&[&[5, 6, 8, 9, 10, 0, 0]]))];
    let mask = "#...... ##..... ....... ....... ....... ....... .......";
    let found = report(keep(mask), chunked, &beside);
    repaired(&found, "stale_or_bucketed_mask", "#...... ##..... ..#.... ..##... ....#.. ....... .......");
}

#[test]
fn values_that_are_not_a_number_where_padding_reads_itself() {
    let v = Values::floats(&[1, 1, 5, 1], vec![1.0, 1.0, 1.0, f32::NAN, f32::NAN]).expect("values");
    let beside = [("input_ids", rows(&[&[7, 8, 9, 0, 0]])), ("v", v)];
    let mask = "#.... ##... ###.. ####. ###.#";
    let found = report(keep(mask), r#""kind": "causal", "pad_token_id": 0, "convention": "keep_bool""#, &beside);
    assert_eq!((found.verdict, found.classes()[0]), (Verdict::Faulty, "NaN_through_masked_KV"), "{found}");
}

#[test]
fn a_column_beside_lengths_stands_for_all_keys() {
    let beside = [("lengths", list(&[4, 6]))];
    let declared = r#""kind": "bidirectional", "padding_side": "right", "convention": "keep_bool""#;
    let found = report(keep("# # # # . . / # # # # # #"), declared, &beside);
    let row = ["####..", "######"].map(|row| [row; 6].join(" "));
    repaired(&found, "broadcast_wrong_axis", &row.join("/"));
}

#[test]
fn a_repair_holds_no_padding_that_nothing_declares() {
    let cached = r#""kind": "causal", "past_len": 8, "q_len": 1, "kv_len": 11, "convention": "keep_bool""#;
    let three = r#""kind": "causal", "past_len": 3, "convention": "keep_bool""#;
    let chunked = r#""kind": "chunked", "chunk": 2, "convention": "keep_bool""#;
    let holes = "#...... ##..... ..#.... ..#.... ....#.. ....##. .......";
    for (mask, context) in [("..###.###..", cached), (".##.", three), (holes, chunked)] {
        let found = report(keep(mask), context, &[]);
        assert!(found.verdict != Verdict::Correct && found.fixed.is_none() && !found.open.is_empty(), "{found}");
    }
}

#[test]
fn a_plane_with_padding_at_the_other_end_is_not_inverted() {
    let plane = Values::bools(&[1, 9], (0..9).map(|k| k >= 6).collect()).expect("a plane");
    let beside = [("input_ids", rows(&[&[5, 6, 7, 0, 0, 0, 0, 0, 0]]))];
    let declared = r#""kind": "causal", "role": "key_padding", "pad_token_id": 0, "convention": "keep_bool""#;
    let found = report(plane, declared, &beside);
    assert_eq!(found.classes().first(), Some(&"padding_side"), "{found}");
}

#[test]
fn windows_and_prefixes_are_known_without_a_declaration() {
    let ids = [("input_ids", rows(&[&[67, 48, 0, 0, 0, 0, 0], &[15, 75, 77, 75, 72, 10, 53]]))];
    let window = "#...... ##..... ###.... ####... .####.. ..####. ...####";
    let padded = r#""pad_token_id": 0, "convention": "keep_bool""#;
    looks_like_a_known_mask(keep(window), padded, &ids);
    looks_like_a_known_mask(
        keep("....####"),
        r#""past_len": 7, "q_len": 1, "kv_len": 8, "convention": "keep_bool""#,
        &[],
    );
    looks_like_a_known_mask(keep("...............##"), r#""past_len": 16, "convention": "keep_bool""#, &[]);
    let prefix = "#####.. #####.. #####.. #####.. #####.. ######. .......";
    let short = "###.... ###.... ###.... ###.... ###.... ###.... ###....";
    let ids = [("input_ids", rows(&[&[5, 6, 7, 8, 9, 10, 0], &[5, 6, 7, 0, 0, 0, 0]]))];
    looks_like_a_known_mask(keep(&format!("{prefix}/{short}")), padded, &ids);
}

#[test]
fn zeros_that_are_real_numbers_hide_nothing() {
    let zeros = Values::floats(&[1, 1, 1, 11], vec![0.0; 11]).expect("zeros");
    looks_like_a_known_mask(zeros, r#""past_len": 10, "q_len": 1, "kv_len": 11, "compute_dtype": "float32""#, &[]);
}

#[test]
fn an_undeclared_polarity_is_asked_about() {
    let upper = ".##### ..#### ...### ....## .....# ......";
    let found = report(keep(upper), "", &[]);
    assert_eq!(found.verdict, Verdict::CannotTell, "{found}");
    assert!(found.open[0].question.contains("declare convention=keep_bool"), "{found}");
    repaired(&report(keep(upper), KEEP, &[]), "inverted_polarity", TRIANGLE);
}

#[test]
fn the_complement_of_a_mask_that_is_read_both_ways() {
    let beside = [("input_ids", rows(&[&[0, 0, 0, 7, 8, 9]]))];
    let inverted = ".##### #.#### ##.### ###... ###... ###...";
    let found = report(keep(inverted), r#""pad_token_id": 0, "convention": "keep_bool""#, &beside);
    repaired(&found, "inverted_polarity", "...... ...... ...... ...### ...### ...###");
}

#[test]
fn the_complement_of_a_window() {
    let beside = [("input_ids", rows(&[&[0, 0, 0, 9, 9, 9, 9, 9], &[9; 8]]))];
    let padded = ".####### #.###### ##.##### ###.#### ###..### ###...## ####...# #####...";
    let whole = ".####### ..###### ...##### #...#### ##...### ###...## ####...# #####...";
    let found = report(keep(&format!("{padded}/{whole}")), r#""pad_token_id": 0, "convention": "keep_bool""#, &beside);
    let right = "........ ........ ........ ...#.... ...##... ...###.. ....###. .....###";
    let right = format!("{right}/#....... ##...... ###..... .###.... ..###... ...###.. ....###. .....###");
    repaired(&found, "inverted_polarity", &right);
}

#[test]
fn padding_at_the_other_end_under_a_window() {
    let beside = [("input_ids", rows(&[&[0, 0, 0, 9, 9, 9, 9, 9], &[9; 8]]))];
    let whole = "#....... ##...... ###..... ####.... #####... .#####.. ..#####. ...#####";
    let wrong = "#....... ##...... ###..... ####.... #####... .####... ..###... ...##...";
    let right = "........ ........ ........ ...#.... ...##... ...###.. ...####. ...#####";
    let found = report(keep(&format!("{wrong}/{whole}")), r#""pad_token_id": 0, "convention": "keep_bool""#, &beside);
    repaired(&found, "padding_side", &format!("{right}/{whole}"));
}

#[test]
fn a_repair_of_values_keeps_windows_and_prefixes() {
    let window = "#..... ##.... ###... .###.. ..###. ...###";
    let found = report(added(window, 0.0, 1e-9), r#""convention": "additive""#, &[]);
    repaired(&found, "fill_value_wrong", window);
    let prefix = "###... ###... ###... ####.. #####. ######";
    let found = report(added(prefix, f32::NAN, f32::NEG_INFINITY), r#""convention": "additive""#, &[]);
    repaired(&found, "mask_built_with_NaN_or_int_ops", prefix);
}

#[test]
fn leaks_under_a_window_and_in_one_head_are_found_without_a_declaration() {
    let window = "##...... ###..... ####.... .####... ..####.. ...####. ....#### .....###";
    let right = "#....... ##...... ###..... .###.... ..###... ...###.. ....###. .....###";
    repaired(&report(keep(window), KEEP, &[]), "causal_leak", right);
    let leaking = "###... ####.. #####. ###### ###### ######";
    let heads = format!("{TRIANGLE}|{leaking}|{TRIANGLE}");
    let found = report(keep(&heads), r#""convention": "keep_bool", "heads": 3"#, &[]);
    repaired(&found, "causal_leak", TRIANGLE);
}

#[test]
fn probabilities_of_padding_rows_are_not_looked_at() {
    let third = 1.0 / 3.0;
    let p = [
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.5, 0.0, 0.0, 0.0, 0.0],
        [third, third, third, 0.0, 0.0, 0.0],
        [0.0, third, third, third, 0.0, 0.0],
        [0.0, 0.0, 0.5, 0.5, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
    ];
    let p = Values::floats(&[1, 1, 6, 6], p.concat()).expect("probabilities");
    let beside = [("input_ids", rows(&[&[5, 6, 7, 8, 0, 0]])), ("probabilities", p)];
    let mask = "#..... ##.... ###... .###.. ....#. .....#";
    looks_like_a_known_mask(keep(mask), r#""pad_token_id": 0, "convention": "keep_bool""#, &beside);
}

#[test]
fn batch_rows_that_changed_places_beside_padding_that_reads_itself() {
    let beside = [("lengths", list(&[4, 2, 3]))];
    let row = |n: usize| {
        let cell = |i: usize, k: usize| if k <= i && (k < n && i < n || k == i) { '#' } else { '.' };
        (0..4).map(|i| (0..4).map(|k| cell(i, k)).collect::<String>()).collect::<Vec<_>>().join(" ")
    };
    let declared = r#""kind": "causal", "padding_side": "right", "convention": "keep_bool""#;
    let found = report(keep(&[row(2), row(4), row(3)].join("/")), declared, &beside);
    assert_eq!(found.classes().first(), Some(&"batch_row_wrong"), "{found}");
}

#[test]
fn a_text_without_its_end_is_no_masked_language_model() {
    let ids: [&[i64]; 1] = [&[7, 2, 8, 9, 2, 6, 2]];
    let labels: [&[i64]; 1] = [&[7, -100, 8, 9, -100, 6, -100]];
    let beside = [("input_ids", rows(&ids)), ("labels", rows(&labels)), ("lengths", list(&[7]))];
    let full = [("#######"); 7].join(" ");
    let declared = r#""kind": "bidirectional", "pad_token_id": 2, "eos_token_id": 2, "convention": "keep_bool""#;
    let found = report(keep(&full), declared, &beside);
    assert_eq!(found.classes().first(), Some(&"EOS_never_learned"), "{found}");
}

#[test]
fn whole_numbers_are_named_by_their_width() {
    let mask = rows(&[&[1, 0], &[1, 1]]);
    let found = report(mask, r#""kind": "causal", "role": "attn""#, &[]);
    assert!(found.description.starts_with("int64 ["), "{found}");
}
