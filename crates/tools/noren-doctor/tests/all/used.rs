//! Every given array has its effect: probabilities and completion masks are compared with the padding that is given in any form, and
//! a verdict of "correct" needs all of them.

use crate::doctor::Dice;
use noren_doctor::{Context, Input, Report, Values, Verdict};
use noren_mask::{Facts, Mask, Shape};

fn rows(rows: &[Vec<i64>]) -> Values {
    Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("rows of one length")
}

fn list(numbers: &[usize]) -> Values {
    Values::ints(&[numbers.len()], numbers.iter().map(|n| *n as i64).collect()).expect("a list")
}

fn report(mask: Option<Values>, context: &str, beside: &[(&str, Values)]) -> Report {
    let input = mask.map_or_else(Input::without_mask, Input::new);
    let input = input.context(Context::from_json(&format!("{{{context}}}")).expect("declarations"));
    let input = beside.iter().fold(input, |input, (name, values)| input.companion(*name, values.clone()));
    input.diagnose().expect("usable arrays")
}

#[track_caller]
fn is(report: &Report, classes: &[&str], words: &[&str]) {
    let says = report.to_string();
    let named = report.findings.first().is_some_and(|finding| classes.contains(&finding.class));
    let told = words.iter().all(|words| says.contains(words));
    assert!(report.verdict == Verdict::Faulty && named && told, "{classes:?} {words:?}: {report}");
}

#[track_caller]
fn is_correct(report: &Report, words: &str) {
    assert!(report.verdict == Verdict::Correct && report.to_string().contains(words), "{words}: {report}");
}

#[track_caller]
fn is_open(report: &Report, words: &str) {
    assert!(report.verdict == Verdict::CannotTell && report.to_string().contains(words), "{words}: {report}");
}

/// A batch of texts that are padded on one side, and the probabilities of its heads.
struct Batch {
    lengths: Vec<usize>,
    keys: usize,
    queries: usize,
    heads: usize,
    left: bool,
}

impl Batch {
    fn new(dice: &mut Dice, cross: bool) -> Self {
        let keys = dice.of(4, 9);
        let mut lengths: Vec<usize> = (0..dice.of(2, 4)).map(|_| dice.of(1, keys - 2)).collect();
        lengths[0] = keys;
        let queries = if cross { keys - dice.of(1, 3) } else { keys };
        Batch { lengths, keys, queries, heads: dice.of(1, 3), left: dice.chance(50) }
    }

    fn real(&self, b: usize, k: usize) -> bool {
        if self.left { k >= self.keys - self.lengths[b] } else { k < self.lengths[b] }
    }

    fn table(&self, of: impl Fn(usize, usize) -> i64) -> Vec<Vec<i64>> {
        (0..self.lengths.len()).map(|b| (0..self.keys).map(|k| of(b, k)).collect()).collect()
    }

    fn padding(&self) -> Values {
        rows(&self.table(|b, k| i64::from(self.real(b, k))))
    }

    fn side(&self) -> String {
        format!(r#""padding_side": "{}""#, if self.left { "left" } else { "right" })
    }

    /// Returns the probabilities `[batch, heads, queries, keys]`, those of one head without the dimension of heads.
    fn probabilities(&self, dice: &mut Dice, sees: impl Fn(usize, usize, usize) -> bool) -> Values {
        let [b, h, q, k] = [self.lengths.len(), self.heads, self.queries, self.keys];
        let mut all = Vec::new();
        for at in 0..b * h * q {
            let (row, i) = (at / (h * q), at % q);
            // Padding tokens read themselves.
            let shows = |k: usize| sees(row, i, k) || q == self.keys && !self.real(row, i) && k == i;
            let of = |k: usize| if shows(k) { dice.of(1, 900) as f32 } else { 0.0 };
            let scores: Vec<f32> = (0..k).map(of).collect();
            let sum: f32 = scores.iter().sum::<f32>().max(1e-9);
            all.extend(scores.iter().map(|x| x / sum));
        }
        let shape = if h == 1 { vec![b, q, k] } else { vec![b, h, q, k] };
        Values::floats(&shape, all).expect("all cells")
    }

    /// Returns the padding keys of the last batch row as text.
    fn hidden(&self) -> String {
        let b = self.lengths.len() - 1;
        let hidden: Vec<usize> = (0..self.keys).filter(|&k| !self.real(b, k)).collect();
        format!("keys {} to {}", hidden[0], hidden[hidden.len() - 1])
    }
}

/// An expression as the intended mask, and a mask that is the same for all heads.
#[test]
fn probabilities_are_compared_beside_an_intended_expression() {
    let mut dice = Dice::new(51, true);
    for _ in 0..60 {
        let batch = Batch { left: false, ..Batch::new(&mut dice, false) };
        let n = batch.keys;
        let lengths = batch.lengths.clone();
        let meant: Mask = "causal & padding".parse().expect("a mask");
        let shape = Shape::square(n).batch(lengths.len());
        let meant = meant.bind(&shape, &Facts::new().lengths(lengths)).expect("a shape");
        let sees = |b: usize, i: usize, k: usize| k <= i && batch.real(b, k);
        let all = batch.lengths.len() * n * n;
        let cell = |at: usize| sees(at / (n * n), at / n % n, at % n);
        let mask = Values::bools(&[batch.lengths.len(), 1, n, n], (0..all).map(cell).collect()).expect("all cells");
        let check = |p: Values| {
            let context = Context::from_json(r#"{"convention": "keep_bool"}"#).expect("declarations");
            let input = Input::new(mask.clone()).context(context).companion("probabilities", p);
            input.meant(&meant).diagnose().expect("usable arrays")
        };
        is_correct(&check(batch.probabilities(&mut dice, sees)), "give no probability to hidden cells");
        is(&check(batch.probabilities(&mut dice, |_, _, _| true)), &["mask_ignored_by_backend"], &["hidden cells"]);
    }
}

/// Probabilities that obey a faulty mask are explained by it; a backend that ignores the mask is a second finding.
#[test]
fn a_backend_that_obeys_a_faulty_mask_is_not_accused() {
    let mut dice = Dice::new(52, true);
    for _ in 0..40 {
        let batch = Batch { left: false, ..Batch::new(&mut dice, false) };
        let n = batch.keys;
        let lengths = batch.lengths.clone();
        let meant: Mask = "causal & padding".parse().expect("a mask");
        let shape = Shape::square(n).batch(lengths.len());
        let meant = meant.bind(&shape, &Facts::new().lengths(lengths)).expect("a shape");
        let all = batch.lengths.len() * n * n;
        let cell = |at: usize| batch.real(at / (n * n), at % n);
        let mask = Values::bools(&[batch.lengths.len(), 1, n, n], (0..all).map(cell).collect()).expect("all cells");
        for (ignored, p) in [
            (false, batch.probabilities(&mut dice, |b, _, k| batch.real(b, k))),
            (true, batch.probabilities(&mut dice, |_, _, _| true)),
        ] {
            let declared = r#"{"convention": "keep_bool", "kind": "causal", "padding_side": "right"}"#;
            let context = Context::from_json(declared).expect("declarations");
            let input = Input::new(mask.clone()).context(context).companion("probabilities", p);
            let input = input.companion("lengths", list(&batch.lengths));
            for input in [input.clone(), input.meant(&meant)] {
                let found = input.diagnose().expect("usable arrays");
                is(&found, &["causal_dropped"], &[]);
                assert_eq!(found.classes().contains(&"mask_ignored_by_backend"), ignored, "{found}");
            }
        }
    }
}

/// A mistake in one head is obeyed in this head only.
#[test]
fn a_head_that_obeys_its_faulty_mask_is_not_accused() {
    let leaks = |h: usize, i: usize, k: usize| k <= i || h == 1 && k == i + 1;
    let cell = |at: usize| leaks(at / 36, at / 6 % 6, at % 6);
    let mask = Values::bools(&[1, 2, 6, 6], (0..72).map(cell).collect()).expect("all cells");
    let check = |obeys: [bool; 2]| {
        let seen = |h: usize, i: usize, k: usize| leaks(h, i, k) || !obeys[h];
        let of = |h: usize, i: usize, k: usize| {
            let all = (0..6).filter(|&k| seen(h, i, k)).map(|k| k + 1).sum::<usize>();
            if seen(h, i, k) { (k + 1) as f32 / all as f32 } else { 0.0 }
        };
        let p = (0..72).map(|at| of(at / 36, at / 6 % 6, at % 6)).collect();
        let p = Values::floats(&[1, 2, 6, 6], p).expect("all cells");
        report(
            Some(mask.clone()),
            r#""kind": "causal", "convention": "keep_bool", "heads": 2"#,
            &[("probabilities", p)],
        )
    };
    for obeys in [[true, true], [false, true], [true, false]] {
        let found = check(obeys);
        is(&found, &["causal_leak"], &["head 1"]);
        assert_eq!(found.classes().contains(&"mask_ignored_by_backend"), obeys != [true, true], "{found}");
    }
}

/// The padding of the keys beside probabilities, without a mask: an array of any form, of self-attention and of cross-attention.
#[test]
fn probabilities_are_compared_with_padding_without_a_mask() {
    let mut dice = Dice::new(53, true);
    for round in 0..120 {
        let batch = Batch::new(&mut dice, round % 2 == 0);
        let cross = round % 2 == 0;
        let kind = format!("{}{}", if cross { r#""kind": "cross", "# } else { "" }, batch.side());
        let prefix = if cross { "encoder_" } else { "" };
        let given = match dice.of(0, 2) {
            0 => (format!("{prefix}attention_mask"), batch.padding()),
            1 => (format!("{prefix}key_padding_mask"), rows(&batch.table(|b, k| i64::from(!batch.real(b, k))))),
            _ => (format!("{prefix}lengths"), list(&batch.lengths)),
        };
        let check = |p: Values| report(None, &kind, &[(&given.0, given.1.clone()), ("probabilities", p)]);
        is_correct(&check(batch.probabilities(&mut dice, |b, _, k| batch.real(b, k))), "padding keys");
        let words = [batch.hidden(), "batch row".to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let classes = ["cross_attention_mask", "padding_keys_visible"];
        is(&check(batch.probabilities(&mut dice, |_, _, _| true)), &classes[round % 2..], &words);
    }
}

/// Rows of keys as the mask beside probabilities of other queries.
#[test]
fn probabilities_are_compared_with_rows_of_keys() {
    let mut dice = Dice::new(54, true);
    for round in 0..120 {
        let batch = Batch::new(&mut dice, round % 2 == 0);
        let shape = match dice.of(0, 1) {
            0 => vec![batch.lengths.len(), batch.keys],
            _ => vec![batch.lengths.len(), 1, 1, batch.keys],
        };
        let cells = batch.table(|b, k| i64::from(batch.real(b, k))).concat().iter().map(|x| *x == 0).collect();
        let mask = Values::bools(&shape, cells).expect("all cells");
        let declared = format!(r#""role": "key_padding", "api": "mha", {}"#, batch.side());
        let check = |p: Values| {
            let beside = [("lengths", list(&batch.lengths)), ("probabilities", p)];
            report(Some(mask.clone()), &declared, &beside)
        };
        is_correct(&check(batch.probabilities(&mut dice, |b, _, k| batch.real(b, k))), "give no probability to");
        let wrong = check(batch.probabilities(&mut dice, |_, _, _| true));
        is(&wrong, &["mask_ignored_by_backend"], &[&batch.hidden()]);
    }
}

/// A correct mask beside an array that no check could use has no verdict, and the sentence names the array.
#[test]
fn arrays_that_were_not_compared_leave_the_verdict_open() {
    let cells = || (0..72).map(|at| at % 6 <= at / 6 % 6).collect();
    let mask = || Values::bools(&[2, 1, 6, 6], cells()).expect("all cells");
    let floats = |shape: &[usize]| Values::floats(shape, vec![0.5; shape.iter().product()]).expect("all cells");
    let declared = r#""kind": "causal", "convention": "keep_bool""#;
    is_correct(&report(Some(mask()), declared, &[]), "all 72 compared cells");
    for (name, values) in [
        ("probabilities", floats(&[2, 1, 5, 7])),
        ("probabilities", floats(&[3, 1, 6, 6])),
        ("pooled", floats(&[2, 4])),
        ("labels", rows(&vec![vec![5; 6]; 2])),
        ("completion_mask", rows(&vec![vec![1; 6]; 2])),
    ] {
        let found = report(Some(mask()), declared, &[(name, values)]);
        is_open(&found, &format!("but the array `{name}`"));
        assert!(found.sentence.contains("all 72 compared cells") && found.sentence.contains("not compared"), "{found}");
    }
    // The labels of a classifier are no tokens.
    is_correct(&report(Some(mask()), declared, &[("labels", list(&[1, 0]))]), "all 72 compared cells");
}

/// Completions of which some end with eos, some are cut off before their padding, and some have no padding.
#[test]
fn padding_is_no_completion() {
    let mut dice = Dice::new(55, true);
    for round in 0..120 {
        let (len, batch) = (dice.of(5, 9), dice.of(2, 5));
        // (number of tokens, whether the last is eos)
        let mut texts: Vec<(usize, bool)> = (0..batch).map(|_| (dice.of(1, len - 1), dice.chance(50))).collect();
        texts[0] = (dice.of(1, len - 2), false);
        texts.push((len, false));
        let id = |b: usize, k: usize| match texts[b] {
            (n, _) if k >= n => 1,
            (n, true) if k + 1 == n => 2,
            _ => 10 + k as i64,
        };
        let table = |of: &dyn Fn(usize, usize) -> i64| -> Vec<Vec<i64>> {
            (0..texts.len()).map(|b| (0..len).map(|k| of(b, k)).collect()).collect()
        };
        let right = table(&|b, k| i64::from(k < texts[b].0));
        let name = ["completion_mask", "response_mask"][round % 2];
        let lengths: Vec<usize> = texts.iter().map(|text| text.0).collect();
        let check = |mask: &[Vec<i64>], pad: usize| {
            let mut beside = vec![("completion_ids", rows(&table(&id))), (name, rows(mask))];
            let declared = match pad {
                0 => r#""eos_token_id": 2, "pad_token_id": 1"#,
                1 => r#""eos_token_id": 2, "padding_side": "right""#,
                _ => r#""eos_token_id": 2"#,
            };
            match pad {
                1 => beside.push(("lengths", list(&lengths))),
                2 => beside.push(("attention_mask", rows(&right))),
                _ => {}
            }
            report(None, declared, &beside)
        };
        // The mask as it is made of eos alone.
        let by_eos = table(&|b, k| i64::from(!texts[b].1 || k < texts[b].0));
        for pad in 0..3 {
            is_correct(&check(&right, pad), "rows compared");
            let found = check(&by_eos, pad);
            let wrong = (0..texts.len()).filter(|b| !texts[*b].1).map(|b| len - texts[b].0).sum::<usize>();
            is(&found, &["RL_completion_mask"], &[&format!("includes {wrong} token")]);
            let finding = found.findings.iter().find(|f| f.class == "RL_completion_mask").expect("a finding");
            let repair = finding.repair.as_deref().expect("a repair");
            assert!(repair.starts_with(name), "{found}");
            if texts.len() * len <= 64 {
                assert_eq!(repair, format!("{name} = {right:?}"));
            }
        }
        // Without the padding, the ends of the rows without eos are a question, whatever the mask marks there.
        for mask in [&right, &by_eos] {
            is_open(&check(mask, 3), "declare pad_token_id");
        }
        let hole = table(&|b, k| i64::from(k < texts[b].0 && !(b + 1 == texts.len() && k == 1)));
        is(&check(&hole, 3), &["RL_completion_mask"], &["leaves out 1 token"]);
    }
    // Ids after an eos show the padding: a row that does not end with it is whole.
    let ids = rows(&[vec![5, 2, 1, 1], vec![5, 6, 7, 8]]);
    let mask = rows(&[vec![1, 1, 0, 0], vec![1; 4]]);
    let found = report(None, r#""eos_token_id": 2"#, &[("completion_ids", ids), ("completion_mask", mask)]);
    is_correct(&found, "2 rows compared");
}
