//! Correct masks in every form: families, padding on both sides, the rows that libraries leave to padding queries, conventions,
//! shapes, and with or without declarations. None is faulty, and none gets a repair.
//!
//! `NOREN_DOCTOR=n` draws n times the number of masks.

use crate::doctor::Dice;
use crate::doctor::scene::{Code, encode};
use noren_doctor::{Context, Dtype, Input, Report, Values, Verdict};
use noren_mask::{BoundMask, Facts, Keep, Mask, Shape, Side};

/// The keys that padding queries read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum PadRows {
    /// The keys that the rule allows: none for left padding under causality.
    Rule,
    Empty,
    Own,
    All,
}

/// The declarations of a drawn mask.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Declared {
    Convention,
    Kind,
    KindAndPadding(u8),
    Padding(u8),
    Meant,
}

/// The rule of a drawn mask, and the declarations that belong to its kind.
#[derive(Default)]
struct Rule {
    kind: &'static str,
    text: String,
    more: String,
    /// The length of each packed document, per batch row.
    documents: Option<Vec<Vec<usize>>>,
    parents: Option<Vec<i64>>,
    cross: bool,
    past: usize,
}

struct Drawn {
    rule: Rule,
    q: usize,
    n: usize,
    lengths: Vec<usize>,
    side: Option<Side>,
    rows: PadRows,
    code: Code,
    /// True if the convention is declared, which only truth values can do without.
    said: bool,
    declared: Declared,
    keep: Keep,
    input: Input,
}

impl Drawn {
    /// Returns whether key `k` is a non-padding token.
    fn real(&self, b: usize, k: usize) -> bool {
        let len = self.lengths[b];
        if self.side == Some(Side::Left) { k >= self.n - len } else { k < len }
    }

    /// Returns whether query `i` is a non-padding token.
    fn cares(&self, b: usize, i: usize) -> bool {
        self.rule.cross || self.real(b, i + self.rule.past)
    }

    fn bound(&self, text: &str) -> BoundMask {
        let mut facts = Facts::new().lengths(self.lengths.clone()).side(self.side.unwrap_or(Side::Right));
        if let Some(documents) = &self.rule.documents {
            facts = facts.documents(documents.clone());
        }
        let shape = match self.rule.cross {
            true => Shape::cross(self.q, self.n),
            false => Shape::cached(self.n - self.q, self.q),
        };
        let mask: Mask = format!("({text}) & padding").parse().expect("a mask");
        mask.bind(&shape.batch(self.lengths.len()), &facts).expect("a shape")
    }
}

/// Draws the lengths of documents with `n` tokens in all. Each has two tokens or more, or is the only one.
fn cut(dice: &mut Dice, n: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut left = n;
    while left > 3 {
        lengths.push(dice.of(2, left - 2));
        left -= lengths[lengths.len() - 1];
    }
    lengths.push(left);
    lengths
}

fn rule(dice: &mut Dice, n: usize, lengths: &[usize], padded: bool) -> Rule {
    let size = dice.of(1, n.max(2) - 1);
    let of = |kind, text: String, more: String| Rule { kind, text, more, ..Rule::default() };
    match dice.of(0, 10) {
        0 | 1 => of("causal", "causal".to_string(), String::new()),
        2 => of("bidirectional", "full".to_string(), String::new()),
        3 => of("sliding", format!("sliding({size})"), format!(r#", "window": {size}"#)),
        4 => {
            let size = size.min(n / 3).max(1);
            let more = format!(r#", "window": {size}, "window_means": "keys on each side""#);
            of("bidirectional_sliding", format!("window(left={size}, right={size})"), more)
        }
        5 => of("chunked", format!("causal & chunk({size})"), format!(r#", "chunk": {size}, "chunk_from": "slot""#)),
        6 => {
            let more = format!(r#", "prefix_len": {size}, "prefix_from": "slot""#);
            of("prefix_lm", format!("causal | prefix({size})"), more)
        }
        side @ (7 | 8) => {
            let (kind, text) = match side {
                7 => ("causal_packed", "causal & documents"),
                _ => ("bidirectional_packed", "documents"),
            };
            let documents = Some(lengths.iter().map(|&len| cut(dice, len)).collect());
            Rule { documents, ..of(kind, text.to_string(), String::new()) }
        }
        9 if !padded => {
            let past = dice.of(0, n - 1);
            let parents: Vec<i64> = (0..n - past).map(|node| dice.of(0, node) as i64 - 1).collect();
            let text = format!("keys(..{past}) | tree(parents={parents:?}, start={past})");
            Rule { parents: Some(parents), past, ..of("tree", text, format!(r#", "past_len": {past}"#)) }
        }
        9 => {
            let past = dice.of(0, n - 1);
            Rule { past, ..of("causal", "causal".to_string(), format!(r#", "past_len": {past}"#)) }
        }
        _ => Rule { cross: true, ..of("cross", "full".to_string(), String::new()) },
    }
}

fn drawn(dice: &mut Dice) -> Drawn {
    let n = if dice.chance(20) { dice.of(1, 4) } else { dice.of(5, 22) };
    let batch = dice.of(1, 4);
    let mut side = dice.pick(&[None, Some(Side::Left), Some(Side::Left), Some(Side::Right)]).filter(|_| n > 1);
    let mut lengths = vec![n; batch];
    if side.is_some() {
        let least = (n / 3).max(2).min(n - 1);
        lengths.iter_mut().for_each(|len| *len = dice.of(least, n));
        lengths[dice.of(0, batch - 1)] = dice.of(least, n - 1);
    }
    let rule = rule(dice, n, &lengths, side.is_some());
    // Packed rows and encoders are padded on the right, and rows that are continued on the left.
    if rule.documents.is_some() || rule.cross {
        side = side.map(|_| Side::Right);
    } else if rule.past > 0 {
        side = side.map(|_| Side::Left);
    }
    let q = if rule.cross { dice.of(1, n + 3) } else { n - rule.past };
    let mut out = Drawn {
        rule,
        q,
        n,
        lengths,
        side,
        rows: dice.pick(&[PadRows::Rule, PadRows::Empty, PadRows::Own, PadRows::All]),
        code: Code::KeepBool,
        said: true,
        declared: Declared::Convention,
        keep: Keep::empty([1, 1, 1, 1]),
        input: Input::without_mask(),
    };
    let text = out.rule.text.clone();
    let rule = Keep::of(&out.bound(&text));
    out.keep = Keep::from_fn(rule.dims(), |[b, h, i, k]| match out.rows {
        PadRows::Empty if !out.cares(b, i) => false,
        PadRows::Own if !out.cares(b, i) => i + out.rule.past == k,
        PadRows::All if !out.cares(b, i) => true,
        _ => rule.get([b, h, i, k]),
    });
    out.declared = dice.pick(&[
        Declared::Convention,
        Declared::Convention,
        Declared::Kind,
        Declared::Kind,
        Declared::KindAndPadding(0),
        Declared::KindAndPadding(1),
        Declared::KindAndPadding(2),
        Declared::Padding(0),
        Declared::Padding(1),
        Declared::Meant,
    ]);
    // A row of -inf is NaN: with declared padding this is a fault.
    let empty = (0..batch).any(|b| (0..q).any(|i| out.keep.row(b, 0, i).iter().all(|w| *w == 0)));
    let declared = !matches!(out.declared, Declared::Convention | Declared::Kind);
    let finite = [
        Code::KeepBool,
        Code::DropBool,
        Code::KeepInt,
        Code::Additive(-1e9, Dtype::F32),
        Code::Additive(f64::from(f32::MIN), Dtype::F32),
        Code::Additive(-65504.0, Dtype::F16),
    ];
    let infinite = !(empty && declared) && dice.chance(25);
    out.code = if infinite { Code::Additive(f64::NEG_INFINITY, Dtype::F32) } else { dice.pick(&finite) };
    out.said = matches!(out.code, Code::Additive(..)) || dice.chance(70);
    out.input = stored(&out, dice).context(context(&out));
    if let Declared::KindAndPadding(by) | Declared::Padding(by) = out.declared {
        out.input = beside(&out, by);
    }
    if out.declared == Declared::Meant {
        out.input = out.input.clone().meant(&out.bound(&text));
    }
    out
}

fn stored(drawn: &Drawn, dice: &mut Dice) -> Input {
    let (q, n, batch) = (drawn.q, drawn.n, drawn.lengths.len());
    let heads = if dice.chance(30) { dice.of(2, 3) } else { 1 };
    let equal = (1..batch).all(|b| (0..q).all(|i| drawn.keep.row(b, 0, i) == drawn.keep.row(0, 0, i)));
    let shape = match dice.of(0, 2) {
        0 if heads == 1 && batch == 1 => vec![q, n],
        0 if equal && drawn.side.is_none() => vec![1, 1, q, n],
        1 if heads == 1 => vec![batch, q, n],
        _ => vec![batch, heads, q, n],
    };
    let heads = if shape.len() == 4 { shape[1] } else { 1 };
    let rows = if shape.len() > 2 { shape[0] } else { 1 };
    let cells = (0..rows * heads * q * n).map(|at| drawn.keep.get([at / (heads * q * n), 0, at / n % q, at % n]));
    Input::new(encode(&shape, cells.collect(), drawn.code))
}

fn context(drawn: &Drawn) -> Context {
    let convention = match drawn.code {
        _ if !drawn.said => "",
        Code::KeepBool => r#""convention": "keep_bool", "#,
        Code::DropBool => r#""convention": "ignore_bool", "#,
        Code::KeepInt => r#""convention": "keep_01", "#,
        Code::Additive(..) => r#""convention": "additive", "#,
    };
    let kind = match drawn.declared {
        Declared::Kind | Declared::KindAndPadding(_) => {
            format!(r#", "kind": "{}"{}"#, drawn.rule.kind, drawn.rule.more)
        }
        _ => String::new(),
    };
    let side = if drawn.side == Some(Side::Left) { "left" } else { "right" };
    let padding = match drawn.declared {
        Declared::KindAndPadding(1) | Declared::Padding(1) => r#", "pad_token_id": 0"#.to_string(),
        Declared::KindAndPadding(0) | Declared::Padding(0) => format!(r#", "padding_side": "{side}""#),
        _ => String::new(),
    };
    let role = if drawn.rule.cross { "cross" } else { "attn" };
    let text = format!(r#"{{{convention}"role": "{role}"{kind}{padding}}}"#);
    Context::from_json(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the input with an array that declares the padding (lengths, ids or a padding mask), and with the documents or the tree of
/// a declared kind.
fn beside(drawn: &Drawn, by: u8) -> Input {
    let (n, batch) = (drawn.n, drawn.lengths.len());
    let plane = |real: i64| {
        let cells = (0..batch * n).map(|at| if drawn.real(at / n, at % n) { real } else { 0 }).collect();
        Values::ints(&[batch, n], cells).expect("all cells")
    };
    let lengths = drawn.lengths.iter().map(|&len| len as i64).collect();
    let mut input = drawn.input.clone();
    if let (Some(documents), Declared::KindAndPadding(_)) = (&drawn.rule.documents, drawn.declared) {
        let row = |row: &Vec<usize>| {
            let tokens = row.iter().enumerate().flat_map(|(number, &len)| std::iter::repeat_n(number as i64 + 1, len));
            tokens.chain(std::iter::repeat(0)).take(n).collect::<Vec<_>>()
        };
        let rows = documents.iter().flat_map(row).collect();
        input = input.companion("segment_ids", Values::ints(&[batch, n], rows).expect("all cells"));
    }
    if let (Some(parents), Declared::KindAndPadding(_)) = (&drawn.rule.parents, drawn.declared) {
        return input.companion("parents", Values::ints(&[parents.len()], parents.clone()).expect("a list"));
    }
    match by {
        0 => input.companion("lengths", Values::ints(&[batch], lengths).expect("a list")),
        1 => input.companion("input_ids", plane(7)),
        _ => input.companion("attention_mask", plane(1)),
    }
}

/// Returns what is wrong with the report on a correct mask.
fn alarm(drawn: &Drawn, report: &Report) -> Option<&'static str> {
    match () {
        () if report.faulty() => Some("faulty"),
        () if report.repair.is_some() || report.findings.iter().any(|f| f.repair.is_some()) => Some("a repair"),
        () if report.text_names_real_rows() => Some("non-padding rows"),
        () => match drawn.declared {
            // Without the convention, a mask in which true means "ignored" is a question.
            Declared::KindAndPadding(_) | Declared::Meant if report.verdict != Verdict::Correct => {
                (drawn.said || drawn.code != Code::DropBool || report.verdict != Verdict::CannotTell)
                    .then_some("not correct")
            }
            Declared::Convention | Declared::Padding(_) if report.verdict == Verdict::Correct => Some("correct"),
            _ => None,
        },
    }
}

trait Names {
    fn text_names_real_rows(&self) -> bool;
}

impl Names for Report {
    fn text_names_real_rows(&self) -> bool {
        self.findings.iter().any(|f| f.says.contains("row(s) of non-padding"))
    }
}

#[test]
fn correct_masks_in_every_form_raise_no_alarm() {
    let factor: u64 = std::env::var("NOREN_DOCTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut alarms = Vec::new();
    let cases = 1000 * factor;
    for seed in 0..cases {
        let drawn = drawn(&mut Dice::new(seed ^ 0x4EA1_0000_0000, false));
        let report = drawn.input.diagnose().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if let Some(what) = alarm(&drawn, &report) {
            alarms.push(format!(
                "seed {seed}, {what}: {} {:?} {:?} {:?} {} {:?} lengths {:?} of {}\n{report}",
                drawn.rule.text, drawn.side, drawn.rows, drawn.code, drawn.said, drawn.declared, drawn.lengths, drawn.n
            ));
        }
    }
    assert!(alarms.is_empty(), "{} of {cases}\n{}", alarms.len(), alarms[..alarms.len().min(6)].join("\n"));
}

#[test]
fn padding_is_asked_about_where_every_row_reads_only_its_own_key() {
    for (n, batch) in [(5, 1), (5, 2), (6, 1), (7, 3)] {
        let text = format!("causal & chunk({})", n - 1);
        let mask: Mask = text.parse().expect("a mask");
        let rule = Keep::of(&mask.bind(&Shape::square(n), &Facts::new()).expect("a shape"));
        // Batch row 0 has two tokens, in two chunks; the others are not padded.
        let cells = (0..batch * n * n).map(|at| match at / (n * n) {
            0 => at / n % n == at % n,
            _ => rule.get([0, 0, at / n % n, at % n]),
        });
        let mask = encode(&[batch, n, n], cells.collect(), Code::KeepBool);
        let context = format!(
            r#"{{"convention": "keep_bool", "role": "attn", "kind": "chunked", "chunk": {}, "chunk_from": "slot"}}"#,
            n - 1
        );
        let report = Input::new(mask).context(Context::from_json(&context).expect("declarations")).diagnose();
        let report = report.expect("a report");
        assert!(!report.faulty() && report.repair.is_none(), "{n} tokens, {batch} rows: {report}");
        assert!(report.to_string().contains("are the hidden keys padding?"), "{report}");
    }
}
