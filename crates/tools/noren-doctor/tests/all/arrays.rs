//! Arrays given beside a mask or alone: every wrong place is named, with a repair; correct arrays have the verdict "correct" if each was
//! compared with another one.

use crate::doctor::Dice;
use noren_doctor::{Context, Input, Report, Values, Verdict};

fn rows(rows: &[Vec<i64>]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn list(numbers: &[i64]) -> Values {
    Values::ints(&[numbers.len()], numbers.to_vec()).expect("a list")
}

fn report(context: &str, beside: &[(&str, Values)]) -> Report {
    let input = Input::without_mask().context(Context::from_json(context).expect("declarations"));
    let input = beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone()));
    input.diagnose().expect("usable arrays")
}

/// Asserts that the report is faulty with a finding of `class`, which has the texts `words` and the repair `repair`.
#[track_caller]
fn is(report: &Report, class: &str, words: &[&str], repair: Option<String>) {
    let finding = report.findings.iter().find(|f| f.class == class);
    let finding = finding.unwrap_or_else(|| panic!("{class}: {report}"));
    assert!(
        report.verdict == Verdict::Faulty && words.iter().all(|words| finding.says.contains(words)),
        "{words:?}: {report}"
    );
    assert_eq!(finding.repair, repair, "{report}");
}

#[track_caller]
fn is_correct(report: &Report, words: &[&str]) {
    let says = report.to_string();
    assert!(
        report.verdict == Verdict::Correct && words.iter().all(|words| says.contains(words)),
        "{words:?}: {report}"
    );
}

#[track_caller]
fn is_open(report: &Report, words: &str) {
    let named = report.unknown.iter().any(|text| text.contains(words));
    assert!(report.verdict == Verdict::CannotTell && named, "{words}: {report}");
}

/// A batch of texts with padding on one side. `len` is the number of tokens with padding, `tokens[b]` the indices of the text of a row.
struct Batch {
    len: usize,
    left: bool,
    tokens: Vec<std::ops::Range<usize>>,
}

impl Batch {
    fn new(dice: &mut Dice, shortest: usize) -> Self {
        let (batch, len, left) = (dice.of(2, 4), dice.of(shortest + 3, shortest + 5), dice.chance(50));
        let of = |b: usize, dice: &mut Dice| if b == 0 { len } else { dice.of(shortest, len - 1) };
        let lengths: Vec<usize> = (0..batch).map(|b| of(b, dice)).collect();
        let tokens = lengths.iter().map(|n| if left { len - n..len } else { 0..*n }).collect();
        Batch { len, left, tokens }
    }

    fn table(&self, of: impl Fn(usize, usize) -> i64) -> Vec<Vec<i64>> {
        (0..self.tokens.len()).map(|b| (0..self.len).map(|k| of(b, k)).collect()).collect()
    }

    fn real(&self, b: usize, k: usize) -> bool {
        self.tokens[b].contains(&k)
    }

    fn id(&self, b: usize, k: usize) -> i64 {
        if self.real(b, k) { (100 * (b + 1) + k - self.tokens[b].start) as i64 } else { 0 }
    }

    fn side(&self) -> &'static str {
        if self.left { "left" } else { "right" }
    }
}

/// The labels of prompts, shifted or not, are all counted and named, and the repair ignores them.
#[test]
fn labels_of_prompts_are_counted_to_the_last() {
    let mut dice = Dice::new(3, true);
    for _ in 0..80 {
        let (shifted, extra) = (dice.chance(50), dice.of(2, 3));
        let batch = Batch::new(&mut dice, extra + 3);
        let n = batch.tokens.len();
        let prompts: Vec<usize> = (0..n).map(|_| dice.of(2, extra + 1)).collect();
        let by = usize::from(shifted);
        let declared = format!(
            r#"{{"kind": "causal", "prompt_len": {prompts:?}, "model_shifts_labels": {}, "pad_token_id": 0, "padding_side": "{}"}}"#,
            !shifted,
            batch.side()
        );
        // The labels of the tokens from `first(batch row)` of each text on.
        let labels = |first: &dyn Fn(usize) -> usize| {
            batch.table(|b, k| match k + by {
                at if batch.real(b, at) && at >= batch.tokens[b].start + first(b) => batch.id(b, at),
                _ => -100,
            })
        };
        let check = |labels: &[Vec<i64>]| {
            report(&declared, &[("input_ids", rows(&batch.table(|b, k| batch.id(b, k)))), ("labels", rows(labels))])
        };
        let right = labels(&|b| prompts[b]);
        is_correct(&check(&right), &["labels compared"]);
        for lost in [1, 2] {
            let given = labels(&|b| prompts[b] - lost.min(prompts[b]));
            let wrong: usize = given.iter().flatten().zip(right.iter().flatten()).filter(|(a, b)| a != b).count();
            let words = [format!("labels of {wrong} token"), "batch row".to_string()];
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let repair = Some(format!("labels = {right:?}"));
            is(&check(&given), "loss_mask_missing", &words, repair);
        }
        let late = labels(&|b| prompts[b] + 2);
        if (0..n).all(|b| batch.tokens[b].len() > prompts[b] + 2) {
            is(
                &check(&late),
                "loss_mask_missing",
                &["first tokens of the answer"],
                Some(format!("labels = {right:?}")),
            );
        }
    }
}

/// All labels of padding are named with their batch rows.
#[test]
fn labels_of_padding_in_every_row() {
    let mut dice = Dice::new(5, true);
    for _ in 0..60 {
        let batch = Batch::new(&mut dice, 4);
        let ids = batch.table(|b, k| batch.id(b, k));
        let right = batch.table(|b, k| if batch.real(b, k) { batch.id(b, k) } else { -100 });
        let lengths: Vec<i64> = batch.tokens.iter().map(|tokens| tokens.len() as i64).collect();
        let side = batch.side();
        let declared = format!(r#"{{"kind": "causal", "model_shifts_labels": true, "padding_side": "{side}"}}"#);
        let check = |labels: &[Vec<i64>]| {
            let beside = [("input_ids", rows(&ids)), ("lengths", list(&lengths)), ("labels", rows(labels))];
            report(&declared, &beside)
        };
        let padding = batch.table(|b, k| i64::from(!batch.real(b, k))).concat().iter().sum::<i64>();
        let words = [format!("labels of {padding} padding token"), "of batch row".to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        is(&check(&ids), "loss_mask_missing", &words, Some(format!("labels = {right:?}")));
        is_correct(&check(&right), &["`labels` are `input_ids`"]);
    }
    // Labels that are shifted twice move back.
    let ids = vec![vec![5, 6, 7, 8], vec![9, 10, 0, 0]];
    let declared = r#"{"kind": "causal", "model_shifts_labels": true, "pad_token_id": 0}"#;
    let shifted = vec![vec![6, 7, 8, -100], vec![10, -100, -100, -100]];
    let found = report(declared, &[("input_ids", rows(&ids)), ("labels", rows(&shifted))]);
    is(&found, "label_shift", &[], Some("labels = [[-100, 6, 7, 8], [-100, 10, -100, -100]]".to_string()));
    // The repair of large labels lists the wrong ones.
    let ids: Vec<Vec<i64>> =
        (0..9).map(|b| (0..20).map(|k| if k < 18 { b * 20 + k + 1 } else { 0 }).collect()).collect();
    let mut labels: Vec<Vec<i64>> =
        ids.iter().map(|r| r.iter().map(|id| if *id == 0 { -100 } else { *id }).collect()).collect();
    (labels[3][19], labels[8][18]) = (0, 0);
    let found = report(declared, &[("input_ids", rows(&ids)), ("labels", rows(&labels))]);
    is(
        &found,
        "loss_mask_missing",
        &["label 19 of batch row 3, label 18 of batch row 8"],
        Some("labels[3, 19] = -100, labels[8, 18] = -100".to_string()),
    );
}

/// Positions: every wrong row is named and repaired, and one row of positions is compared with all batch rows.
#[test]
fn positions_of_all_rows() {
    let mut dice = Dice::new(7, true);
    for round in 0..90 {
        let batch = Batch::new(&mut dice, 3);
        let n = batch.tokens.len();
        let plane = rows(&batch.table(|b, k| i64::from(batch.real(b, k))));
        let number =
            |b: usize, k: usize| k.clamp(batch.tokens[b].start, batch.tokens[b].end - 1) - batch.tokens[b].start;
        let right = batch.table(|b, k| number(b, k) as i64);
        let arange: Vec<i64> = (0..batch.len as i64).collect();
        let given = match round % 3 {
            0 => rows(&vec![arange.clone(); n]),
            1 => rows(std::slice::from_ref(&arange)),
            _ => list(&arange),
        };
        let check = |positions: Values| report("{}", &[("attention_mask", plane.clone()), ("position_ids", positions)]);
        is_correct(&check(rows(&right)), &["number the tokens of attention_mask", &format!("{n} rows compared")]);
        let found = check(given);
        if !batch.left {
            // The positions of padding are not compared.
            is_correct(&found, &[if round % 3 == 0 { "rows compared" } else { "one row of positions is used" }]);
            continue;
        }
        let wrong: usize = batch.tokens[1..].iter().map(|tokens| tokens.len()).sum();
        let all: usize = batch.tokens.iter().map(|tokens| tokens.len()).sum();
        let mut words = vec![format!("{wrong} of {all} non-padding tokens"), "batch row".to_string()];
        if round % 3 > 0 {
            words.push("padded alike".to_string());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut repaired = right.clone();
        repaired[0].clone_from(&arange);
        is(&found, "position_ids", &words, Some(format!("position_ids = {repaired:?}")));
    }
}

/// An array that no check can use is named with its shape.
#[test]
fn arrays_that_fit_nothing_are_named() {
    let plane = ("attention_mask", rows(&[vec![1; 6], vec![1, 1, 1, 1, 0, 0]]));
    for (name, values) in [
        ("position_ids", rows(&vec![vec![0, 1, 2, 3, 4, 5]; 3])),
        ("position_ids", Values::ints(&[3, 2, 6], [0, 1, 2, 3, 4, 5].repeat(6)).expect("all cells")),
        ("labels", rows(&[vec![1; 6]])),
        ("completion_mask", rows(&[vec![1; 6], vec![1; 6]])),
        ("pooled", rows(&[vec![1; 6], vec![1; 6]])),
        ("cu_seqlens", list(&[0, 3, 7])),
    ] {
        let shape = format!("`{name}` of shape {:?} was not compared", values.shape());
        if name != "cu_seqlens" {
            is_open(&report("{}", &[plane.clone(), (name, values.clone())]), &shape);
        }
        let mask =
            Values::bools(&[2, 1, 6, 6], (0..72).map(|at| at % 6 <= at / 6 % 6 && (at < 36 || at % 6 < 4)).collect());
        let context = Context::from_json(r#"{"kind": "causal", "api": "sdpa"}"#).expect("declarations");
        let input = Input::new(mask.expect("cells")).context(context).companion(plane.0, plane.1.clone());
        let found = input.companion(name, values.clone()).diagnose().expect("usable arrays");
        let named = found.unknown.iter().any(|text| text.contains(&shape));
        assert!(named || name == "cu_seqlens" && found.faulty(), "{found}");
    }
}

/// Correct arrays without a mask: the comparisons are listed. A comparison of an array with itself is none.
#[test]
fn correct_arrays_without_a_mask() {
    let mut dice = Dice::new(11, true);
    for _ in 0..60 {
        let batch = Batch::new(&mut dice, 3);
        let plane = || ("attention_mask", rows(&batch.table(|b, k| i64::from(batch.real(b, k)))));
        let ids = || ("input_ids", rows(&batch.table(|b, k| batch.id(b, k))));
        let lengths = || ("lengths", list(&batch.tokens.iter().map(|tokens| tokens.len() as i64).collect::<Vec<_>>()));
        let side = format!(r#""padding_side": "{}""#, batch.side());
        let pad = format!(r#"{{"pad_token_id": 0, {side}}}"#);
        is_correct(&report(&pad, &[plane(), ids()]), &["`attention_mask` has the padding of input_ids"]);
        is_correct(&report(&pad, &[lengths(), ids()]), &["has the padding of input_ids"]);
        is_correct(&report(&format!("{{{side}}}"), &[plane(), lengths()]), &["has the padding of lengths"]);
        is_open(&report("{}", &[plane()]), "`attention_mask`");
        is_open(&report(&format!("{{{side}}}"), &[plane(), ids()]), "pad_token_id");
        let positions = batch.table(|b, k| k.saturating_sub(batch.tokens[b].start) as i64);
        is_correct(&report(&pad, &[ids(), ("position_ids", rows(&positions))]), &["number the tokens of input_ids"]);
        is_open(&report("{}", &[("position_ids", rows(&positions))]), "`position_ids`");
    }
    // Documents that only the positions show are compared with nothing.
    let restarting = || ("position_ids", rows(&[vec![0, 1, 2, 0, 1, 2]]));
    is_open(&report("{}", &[restarting()]), "`position_ids`");
    is_open(&report("{}", &[restarting(), ("attention_mask", rows(&[vec![1; 6]]))]), "`position_ids`");
    let ends = || ("cu_seqlens", list(&[0, 3, 6]));
    is_correct(&report("{}", &[restarting(), ends()]), &["number the tokens of cu_seqlens"]);
    let segments = || ("segment_ids", rows(&[vec![1, 1, 1, 2, 2, 2]]));
    is_correct(&report("{}", &[segments(), ends()]), &["`cu_seqlens` has the borders of segment_ids"]);
    is_open(&report("{}", &[ends()]), "`cu_seqlens`");
    let moved = ("cu_seqlens", list(&[0, 2, 4, 6]));
    let found = report("{}", &[segments(), moved]);
    is(&found, "document_boundary_off_by_one", &["[3]", "[2, 4]", "should be [0, 3, 6]"], None);
}

/// The completion mask: every wrong token is named, and the repair is the whole mask.
#[test]
fn completion_masks_of_all_rows() {
    let mut dice = Dice::new(13, true);
    for _ in 0..60 {
        let (batch, len) = (dice.of(2, 4), dice.of(5, 8));
        let ends: Vec<usize> = (0..batch).map(|_| dice.of(1, len - 2)).collect();
        let table = |of: &dyn Fn(usize, usize) -> i64| -> Vec<Vec<i64>> {
            (0..batch).map(|b| (0..len).map(|k| of(b, k)).collect()).collect()
        };
        let ids = table(&|b, k| if k >= ends[b] { 2 } else { 10 + k as i64 });
        let right = table(&|b, k| i64::from(k <= ends[b]));
        let check = |mask: &[Vec<i64>]| {
            let beside = [("completion_ids", rows(&ids)), ("completion_mask", rows(mask))];
            report(r#"{"eos_token_id": 2, "pad_token_id": 2}"#, &beside)
        };
        is_correct(&check(&right), &["rows compared"]);
        let fixed = Some(format!("completion_mask = {right:?}"));
        let wrong: usize = ends.iter().map(|end| len - 1 - end).sum();
        let all = check(&table(&|_, _| 1));
        is(&all, "RL_completion_mask", &[&format!("includes {wrong} token")], fixed.clone());
        let short = check(&table(&|b, k| i64::from(k < ends[b])));
        is(&short, "RL_completion_mask", &[&format!("leaves out {batch} tokens"), "batch row"], fixed);
    }
}

fn bools(shape: [usize; 4], cell: impl Fn(usize, usize, usize) -> bool) -> Values {
    let [batch, heads, q, k] = shape;
    let cells = (0..batch * heads * q * k).map(|at| cell(at / (heads * q * k), at / k % q, at % k));
    Values::bools(&shape, cells.collect()).expect("all cells")
}

/// Groups of tokens that do not read each other in a mask whose documents are not declared are a question; the declared documents answer it.
#[test]
fn hidden_cells_between_groups_are_a_question() {
    let mut dice = Dice::new(17, true);
    for _ in 0..60 {
        let (batch, causal, mixed) = (dice.of(1, 3), dice.chance(50), dice.chance(30));
        let sizes: Vec<usize> = (0..dice.of(2, 4)).map(|at| dice.of(2, 4) + usize::from(at == 0) * 5).collect();
        let n: usize = sizes.iter().sum();
        let mut group: Vec<i64> = sizes.iter().enumerate().flat_map(|(at, size)| vec![at as i64 + 1; *size]).collect();
        if mixed {
            group = (0..n).map(|k| (k * 7 % n) as i64 % 3 + 1).collect();
        }
        let mask = bools([batch, 1, n, n], |_, i, k| group[i] == group[k] && (!causal || k <= i));
        let kind = if causal { "causal" } else { "bidirectional" };
        let context = || Context::from_json(&format!(r#"{{"kind": "{kind}", "api": "sdpa"}}"#)).expect("declarations");
        let asked = Input::new(mask.clone()).context(context()).diagnose().expect("a usable mask");
        let named =
            asked.open.iter().any(|open| open.question.contains("segment_ids") && open.question.contains("tokens 0"));
        assert!(asked.verdict == Verdict::CannotTell && named && asked.fixed.is_none(), "{asked}");
        let documents = ("segment_ids", rows(&vec![group.clone(); batch]));
        let input = Input::new(mask).context(context()).companion(documents.0, documents.1.clone());
        assert_eq!(input.diagnose().expect("a usable mask").verdict, Verdict::Correct);
    }
}

/// The repair of a mask that was not extended while decoding keeps the old keys that the mask hides, if no padding is declared.
#[test]
fn the_repair_of_a_short_mask_keeps_hidden_keys() {
    for (past, hidden, queries) in [(5usize, 2usize, 1usize), (7, 1, 1), (6, 3, 2), (4, 0, 1)] {
        let mask = |keys: usize| Values::ints(&[1, keys], (0..keys).map(|k| i64::from(k >= hidden)).collect());
        let declared =
            format!(r#"{{"kind": "causal", "role": "key_padding", "past_len": {past}, "q_len": {queries}}}"#);
        let context = || Context::from_json(&declared).expect("declarations");
        let found = Input::new(mask(past).expect("a row")).context(context()).diagnose().expect("a usable mask");
        assert_eq!(found.classes(), ["stale_decode_mask"], "{found}");
        let fixed = found.fixed.as_ref().unwrap_or_else(|| panic!("{found}"));
        let last = queries - 1;
        assert!((0..past + queries).all(|k| fixed.get([0, 0, last, k]) == (k >= hidden)), "{found}");
        let named = found.findings[0].repair.as_deref();
        assert!(hidden == 0 || named.is_some_and(|repair| repair != "full" && repair != "causal"), "{found}");
    }
}

/// One id is padding and the end of texts: each row may count the end of its text as a token or not.
#[test]
fn lengths_beside_ids_whose_padding_also_ends_texts() {
    let mut dice = Dice::new(19, true);
    for _ in 0..60 {
        let batch = Batch::new(&mut dice, 4);
        let n = batch.tokens.len();
        // Whether a text ends with the id of padding, and whether its length counts this end.
        let kinds: Vec<(bool, bool)> = (0..n).map(|b| (dice.chance(60) && b > 0, dice.chance(50))).collect();
        let counted = |b: usize| kinds[b].1 || !kinds[b].0 || batch.left;
        let id = |b: usize, k: usize| match batch.tokens[b].end {
            end if kinds[b].0 && k + 1 == end => 2,
            _ if batch.real(b, k) => 10 + k as i64,
            _ => 2,
        };
        let real = |b: usize, k: usize| batch.real(b, k) && (counted(b) || k + 1 < batch.tokens[b].end);
        let plane = batch.table(|b, k| i64::from(real(b, k)));
        let lengths: Vec<i64> = plane.iter().map(|row| row.iter().sum()).collect();
        let declared = format!(r#"{{"pad_token_id": 2, "eos_token_id": 2, "padding_side": "{}"}}"#, batch.side());
        let ids = ("input_ids", rows(&batch.table(id)));
        is_correct(&report(&declared, &[ids.clone(), ("lengths", list(&lengths))]), &["padding of input_ids"]);
        is_correct(&report(&declared, &[ids.clone(), ("attention_mask", rows(&plane))]), &["padding of input_ids"]);
        let fewer: Vec<i64> = lengths.iter().map(|n| n - 2).collect();
        assert!(report(&declared, &[ids, ("lengths", list(&fewer))]).faulty());
    }
}

/// Rows without a visible key are named with their queries and batch rows. Without a declared kind, no repair of a grid of other queries is
/// guessed.
#[test]
fn every_empty_row_is_named() {
    let empty = |b: usize, i: usize| b > 0 && i % 4 < b;
    let mask = |q: usize, k: usize| {
        let cell = |at: usize| if empty(at / (q * k), at / k % q) { -100.0 } else { 0.0 };
        Values::floats(&[3, q, k], (0..3 * q * k).map(cell).collect()).expect("all cells")
    };
    let check = |q: usize, k: usize, declared: &str| {
        let context = Context::from_json(declared).expect("declarations");
        Input::new(mask(q, k)).context(context).diagnose().expect("a usable mask")
    };
    let found = check(12, 4, r#"{"convention": "additive"}"#);
    let named = ["queries 0, 4, 8 of batch row 1", "queries 0, 1, 4, 5, 8, 9 of batch row 2"];
    is(&found, "fully_masked_row", &named, None);
    assert!(found.fixed.is_none(), "{found}");
    let square = check(8, 8, r#"{"convention": "additive", "kind": "bidirectional"}"#);
    is(&square, "fully_masked_row", &["queries 0, 4 of batch row 1"], Some("full".to_string()));
}

/// The complement of a streaming mask under the kind `chunked` is inverted; the question whether tokens read earlier chunks stays.
#[test]
fn the_complement_of_a_streaming_mask() {
    for (size, lengths) in [(4, [12usize, 9]), (3, [12, 12]), (4, [12, 5])] {
        let seen = |b: usize, i: usize, k: usize| k / size <= i / size && k < lengths[b];
        let number = |at: usize| if seen(at / 144, at / 12 % 12, at % 12) { f32::NEG_INFINITY } else { 0.0 };
        let mask = Values::floats(&[2, 1, 12, 12], (0..288).map(number).collect()).expect("all cells");
        let declared =
            format!(r#"{{"convention": "additive", "kind": "chunked", "chunk": {size}, "lengths": {lengths:?}}}"#);
        let found = Input::new(mask).context(Context::from_json(&declared).expect("declarations")).diagnose();
        let found = found.expect("a usable mask");
        assert_eq!(found.classes().first(), Some(&"inverted_polarity"), "{found}");
        assert!(found.to_string().contains("causal | chunk"), "{found}");
    }
}

/// Masked-language training as a task: labels of special tokens are named; without their ids the report asks for them.
#[test]
fn labels_of_masked_language_training() {
    let ids = rows(&[vec![1, 10, 9, 12, 2, 0, 0], vec![1, 9, 21, 22, 23, 9, 2]]);
    let labels = |special: i64| {
        rows(&[vec![special, -100, 11, -100, -100, -100, -100], vec![-100, 20, -100, -100, -100, 24, special + 1]])
    };
    let check = |special: i64, more: &str| {
        let declared = format!(r#"{{"task": "mlm", "pad_token_id": 0{more}}}"#);
        let labels = if special > 0 {
            labels(special)
        } else {
            rows(&[vec![-100, -100, 11, -100, -100, -100, -100], vec![-100, 20, -100, -100, -100, 24, -100]])
        };
        report(&declared, &[("input_ids", ids.clone()), ("labels", labels)])
    };
    let all = r#", "special_token_ids": [1, 2, 9]"#;
    let repair = "labels = [[-100, -100, 11, -100, -100, -100, -100], [-100, 20, -100, -100, -100, 24, -100]]";
    let words = ["2 special tokens", "label 0 of batch row 0, label 6 of batch row 1"];
    is(&check(1, all), "MLM_masks_padding_or_special", &words, Some(repair.to_string()));
    is_correct(&check(0, all), &["no padding or special token has a label"]);
    is_open(&check(0, ""), "special_token_ids");
    is_open(&check(1, ""), "special_token_ids");
}

/// Arrays beside a mask whose expression is declared: they give its padding, are compared with each other, and those that fit nothing are
/// named.
#[test]
fn arrays_beside_a_declared_expression() {
    let mut dice = Dice::new(23, true);
    for _ in 0..40 {
        let batch = Batch::new(&mut dice, 3);
        let (n, len) = (batch.tokens.len(), batch.len);
        let context = Context::from_json(r#"{"api": "sdpa", "pad_token_id": 0}"#).expect("declarations");
        let check = |padded: bool, positions: Vec<Vec<i64>>| {
            let mask = bools([n, 1, len, len], |b, i, k| k <= i && (!padded || batch.real(b, k)));
            let input = Input::new(mask).context(context.clone());
            let input = input.companion("input_ids", rows(&batch.table(|b, k| batch.id(b, k))));
            let input = input.companion("position_ids", rows(&positions));
            let meant: noren_mask::Mask = "causal & padding".parse().expect("a mask");
            let shape = noren_mask::Shape::square(len).batch(n);
            let bound = meant.bind(&shape, &input.facts()).expect("facts of the arrays");
            input.meant(&bound).diagnose().expect("a usable mask")
        };
        let right = batch.table(|b, k| k.saturating_sub(batch.tokens[b].start) as i64);
        is_correct(&check(true, right.clone()), &["number the tokens of input_ids"]);
        let wrong: Vec<Vec<i64>> = right.iter().map(|row| row.iter().map(|at| at / 2).collect()).collect();
        assert_eq!(check(true, wrong).classes(), ["position_ids"]);
        if batch.left {
            assert_eq!(check(false, right.clone()).classes().first(), Some(&"padding_keys_visible"));
        }
        let short = check(true, right[..1].iter().map(|row| row[1..].to_vec()).collect());
        assert!(short.unknown.iter().any(|text| text.contains("`position_ids` of shape")), "{short}");
    }
}
