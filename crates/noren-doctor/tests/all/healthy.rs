//! Correct masks in every form: families, padding on both sides, the rows that libraries leave to padding queries, conventions,
//! shapes, and with or without declarations. None is faulty, and none gets a repair.
//!
//! `NOREN_DOCTOR=n` draws n times the number of masks.

use crate::doctor::Dice;
use crate::doctor::scene::{Code, encode};
use noren_doctor::{Context, Dtype, Input, Report, Values, Verdict};
use noren_mask::{Facts, Keep, Mask, Shape, Side};

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

struct Drawn {
    kind: &'static str,
    text: String,
    more: String,
    n: usize,
    lengths: Vec<usize>,
    side: Option<Side>,
    rows: PadRows,
    code: Code,
    declared: Declared,
    keep: Keep,
    input: Input,
}

impl Drawn {
    fn real(&self, b: usize, i: usize) -> bool {
        let len = self.lengths[b];
        if self.side == Some(Side::Left) { i >= self.n - len } else { i < len }
    }
}

fn drawn(dice: &mut Dice) -> Drawn {
    let n = dice.of(5, 22);
    let batch = dice.of(1, 4);
    let side = dice.pick(&[None, Some(Side::Left), Some(Side::Left), Some(Side::Right)]);
    let mut lengths = vec![n; batch];
    if side.is_some() {
        lengths.iter_mut().for_each(|len| *len = dice.of(2.max(n / 3), n));
        lengths[dice.of(0, batch - 1)] = dice.of(2.max(n / 3), n - 1);
    }
    let size = dice.of(2, n - 1);
    let (kind, text, more) = match dice.of(0, 5) {
        0 | 1 => ("causal", "causal".to_string(), String::new()),
        2 => ("bidirectional", "full".to_string(), String::new()),
        3 => ("sliding", format!("sliding({size})"), format!(r#", "window": {size}"#)),
        4 => {
            let size = size.min(n / 3).max(1);
            let more = format!(r#", "window": {size}, "window_means": "keys on each side""#);
            ("bidirectional_sliding", format!("window(left={size}, right={size})"), more)
        }
        _ => {
            // In smaller chunks, the tokens beside the padding may read only themselves, like padding.
            let size = size.max(4);
            ("chunked", format!("causal & chunk({size})"), format!(r#", "chunk": {size}, "chunk_from": "slot""#))
        }
    };
    let bound = |text: &str| {
        let facts = Facts::new().lengths(lengths.clone()).side(side.unwrap_or(Side::Right));
        let mask: Mask = format!("{text} & padding").parse().expect("a mask");
        mask.bind(&Shape::square(n).batch(batch), &facts).expect("a shape")
    };
    let rule = Keep::of(&bound(&text));
    let rows = dice.pick(&[PadRows::Rule, PadRows::Empty, PadRows::Own, PadRows::All]);
    let mut out = Drawn {
        kind,
        text,
        more,
        n,
        lengths: lengths.clone(),
        side,
        rows,
        code: Code::KeepBool,
        declared: Declared::Convention,
        keep: rule.clone(),
        input: Input::without_mask(),
    };
    out.keep = Keep::from_fn(rule.dims(), |[b, h, i, k]| match rows {
        PadRows::Empty if !out.real(b, i) => false,
        PadRows::Own if !out.real(b, i) => i == k,
        PadRows::All if !out.real(b, i) => true,
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
    let empty = (0..batch).any(|b| (0..n).any(|i| out.keep.row(b, 0, i).iter().all(|w| *w == 0)));
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
    out.input = stored(&out, dice).context(context(&out));
    if let Declared::KindAndPadding(by) | Declared::Padding(by) = out.declared {
        out.input = beside(&out, by);
    }
    if out.declared == Declared::Meant {
        out.input = out.input.clone().meant(&bound(&out.text));
    }
    out
}

fn stored(drawn: &Drawn, dice: &mut Dice) -> Input {
    let (n, batch) = (drawn.n, drawn.lengths.len());
    let heads = if dice.chance(30) { dice.of(2, 3) } else { 1 };
    let equal = (1..batch).all(|b| (0..n).all(|i| drawn.keep.row(b, 0, i) == drawn.keep.row(0, 0, i)));
    let shape = match dice.of(0, 2) {
        0 if heads == 1 && batch == 1 => vec![n, n],
        0 if equal && drawn.side.is_none() => vec![1, 1, n, n],
        1 if heads == 1 => vec![batch, n, n],
        _ => vec![batch, heads, n, n],
    };
    let heads = if shape.len() == 4 { shape[1] } else { 1 };
    let rows = if shape.len() > 2 { shape[0] } else { 1 };
    let cells = (0..rows * heads * n * n).map(|at| drawn.keep.get([at / (heads * n * n), 0, at / n % n, at % n]));
    Input::new(encode(&shape, cells.collect(), drawn.code))
}

fn context(drawn: &Drawn) -> Context {
    let convention = match drawn.code {
        Code::KeepBool => "keep_bool",
        Code::DropBool => "ignore_bool",
        Code::KeepInt => "keep_01",
        Code::Additive(..) => "additive",
    };
    let kind = match drawn.declared {
        Declared::Kind | Declared::KindAndPadding(_) => format!(r#", "kind": "{}"{}"#, drawn.kind, drawn.more),
        _ => String::new(),
    };
    let side = if drawn.side == Some(Side::Left) { "left" } else { "right" };
    let padding = match drawn.declared {
        Declared::KindAndPadding(1) | Declared::Padding(1) => r#", "pad_token_id": 0"#.to_string(),
        Declared::KindAndPadding(0) | Declared::Padding(0) => format!(r#", "padding_side": "{side}""#),
        _ => String::new(),
    };
    let text = format!(r#"{{"convention": "{convention}", "role": "attn"{kind}{padding}}}"#);
    Context::from_json(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the input with an array that declares the padding: lengths, ids or a padding mask.
fn beside(drawn: &Drawn, by: u8) -> Input {
    let (n, batch) = (drawn.n, drawn.lengths.len());
    let plane = |real: i64| {
        let cells = (0..batch * n).map(|at| if drawn.real(at / n, at % n) { real } else { 0 }).collect();
        Values::ints(&[batch, n], cells).expect("all cells")
    };
    let lengths = drawn.lengths.iter().map(|&len| len as i64).collect();
    match by {
        0 => drawn.input.clone().companion("lengths", Values::ints(&[batch], lengths).expect("a list")),
        1 => drawn.input.clone().companion("input_ids", plane(7)),
        _ => drawn.input.clone().companion("attention_mask", plane(1)),
    }
}

/// Returns what is wrong with the report on a correct mask.
fn alarm(drawn: &Drawn, report: &Report) -> Option<&'static str> {
    match () {
        () if report.faulty() => Some("faulty"),
        () if report.repair.is_some() || report.findings.iter().any(|f| f.repair.is_some()) => Some("a repair"),
        () if report.text_names_real_rows() => Some("non-padding rows"),
        () => match drawn.declared {
            Declared::KindAndPadding(_) | Declared::Meant if report.verdict != Verdict::Correct => Some("not correct"),
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
                "seed {seed}, {what}: {} {:?} {:?} {:?} {:?} lengths {:?} of {}\n{report}",
                drawn.text, drawn.side, drawn.rows, drawn.code, drawn.declared, drawn.lengths, drawn.n
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
