//! What an undeclared mask resembles: the nearest of the known families, and how many cells it is off.

use super::expect::{Hypothesis, assumed_padding};
use super::intent::{Groups, Intent};
use super::search::Target;
use noren_mask::Keep;
use noren_mask::bits::ends;
use std::collections::HashMap;
use std::rc::Rc;

/// A known mask near the given one.
pub(super) struct Resemblance {
    pub(super) intent: Intent,
    /// The mask in words.
    pub(super) name: String,
    /// Number of cells that differ in rows of real queries.
    pub(super) off: u64,
}

/// The nearest family. Sizes are those that most rows agree on, so that a few wrong cells do not move them.
pub(super) fn nearest(given: &Keep, hypotheses: &[Hypothesis]) -> Resemblance {
    let target = Target::new(given);
    let mut best: Option<Resemblance> = None;
    for hypothesis in hypotheses {
        for intent in families(given, &hypothesis.intent) {
            let padded = intent.valid.is_none().then(|| assumed_padding(given, &intent, false)).flatten();
            for intent in [Some(intent), padded].into_iter().flatten() {
                let (off, _) = target.wrong_cells(&intent, 0);
                if best.as_ref().is_none_or(|b| off < b.off) {
                    best = Some(Resemblance { name: in_words(&intent), intent, off });
                }
            }
        }
    }
    best.unwrap_or_else(|| {
        let [batch, _, q_len, kv_len] = given.dims();
        let intent = Intent::new(batch, q_len, kv_len, vec![kv_len as i64 - q_len as i64]);
        let (off, _) = target.wrong_cells(&intent, 0);
        Resemblance { name: in_words(&intent), intent, off }
    })
}

/// The families with the sizes that the rows show.
fn families(given: &Keep, base: &Intent) -> Vec<Intent> {
    let open = Intent { causal: None, left: None, right: None, chunk: None, prefix: None, ..base.clone() };
    let causal = Intent { causal: Some(0), ..open.clone() };
    let mut out = vec![base.clone(), open.clone(), causal.clone()];
    if base.tree.is_some() || base.k_positions.is_some() {
        return out;
    }
    let rows = Rows::of(given, base);
    if let Some(by) = rows.usual(|r| r.last - r.position) {
        out.push(Intent { causal: Some(by), ..open.clone() });
    }
    let width = rows.usual(|r| r.position - r.first);
    if let Some(left) = width.filter(|left| *left >= 0) {
        out.push(Intent { left: Some(left), ..causal.clone() });
        out.push(Intent { left: Some(left), right: Some(left), ..open.clone() });
    }
    if let Some(prefix) = rows.0.first().map(|r| r.last + 1).filter(|n| *n > 1) {
        out.push(Intent { prefix: Some(Rc::new(vec![prefix])), ..causal.clone() });
    }
    let documents = rows.documents(given);
    for intent in [&causal, &open] {
        out.push(Intent { segments: Some(documents.clone()), ..(*intent).clone() });
    }
    out
}

/// First and last key of a row of a real query, head 0.
struct Row {
    b: usize,
    slot: i64,
    position: i64,
    first: i64,
    last: i64,
}

struct Rows(Vec<Row>);

impl Rows {
    fn of(given: &Keep, base: &Intent) -> Self {
        let [batch, _, q_len, _] = given.dims();
        let row = |b: usize, i: usize| {
            let (first, last) = ends(given.row(b, 0, i))?;
            let (slot, position) = (base.slot(b, i), base.position(b, i));
            Some(Row { b, slot, position, first: first as i64, last: last as i64 })
        };
        let real = |b: usize| (0..q_len).filter(move |&i| base.cares(b, i)).filter_map(move |i| row(b, i));
        Rows((0..batch).flat_map(real).collect())
    }

    /// The number that most rows have.
    fn usual(&self, number: impl Fn(&Row) -> i64) -> Option<i64> {
        let mut counts: HashMap<i64, usize> = HashMap::new();
        self.0.iter().for_each(|row| *counts.entry(number(row)).or_default() += 1);
        counts.into_iter().max_by_key(|&(number, count)| (count, -number.abs(), number)).map(|(number, _)| number)
    }

    /// Documents that begin where several rows begin, or where a row begins with itself.
    fn documents(&self, given: &Keep) -> Rc<Groups> {
        let [batch, _, _, kv_len] = given.dims();
        let mut votes = vec![HashMap::<i64, usize>::new(); batch];
        for row in &self.0 {
            *votes[row.b].entry(row.first).or_default() += 1 + usize::from(row.first == row.slot);
        }
        let ids = (0..batch).map(|b| {
            let mut number = 0;
            let begins = |k: i64| k == 0 || votes[b].get(&k).is_some_and(|n| *n > 1);
            (0..kv_len as i64)
                .map(|k| {
                    number += i64::from(begins(k));
                    number
                })
                .collect()
        });
        Rc::new(Groups::new(ids.collect()))
    }
}

/// An intent in words: its kind, its sizes, and what is hidden besides.
pub(super) fn in_words(intent: &Intent) -> String {
    let mut parts = Vec::new();
    parts.push(match (intent.causal, intent.left, intent.right) {
        _ if intent.tree.is_some() => "a tree of drafts".to_string(),
        (Some(0), None, _) => "causal".to_string(),
        (Some(by), None, _) => format!("causal, shifted by {by:+} keys"),
        (Some(_), Some(left), _) => format!("causal, a window of {} keys with the query itself", left + 1),
        (None, Some(left), Some(right)) => format!("a window of {left} keys before and {right} after each query"),
        (None, Some(left), None) => format!("a window of {left} keys before each query"),
        (None, None, _) => "every query reads every key".to_string(),
    });
    if let Some((size, _)) = &intent.chunk {
        parts.push(format!("chunks of {size} keys"));
    }
    if let Some(lengths) = &intent.prefix {
        parts.push(format!("a prefix of {} keys read both ways", listed(lengths)));
    }
    if intent.blocks.is_some() {
        parts.push("blocks read both ways".to_string());
    }
    if intent.sinks > 0 {
        parts.push(format!("the first {} keys always visible", intent.sinks));
    }
    if intent.segments.is_some() {
        parts.push("documents apart".to_string());
    }
    if intent.k_positions.is_some() {
        parts.push("keys by their stored positions".to_string());
    }
    if intent.past.iter().any(|past| *past != 0) {
        parts.push(format!("query 0 at position {}", listed(&intent.past)));
    }
    if !intent.redactions.is_empty() {
        parts.push(format!("{} redaction(s)", intent.redactions.len()));
    }
    parts.push(if intent.valid.is_some() { "padding hidden" } else { "no padding" }.to_string());
    parts.join(", ")
}

/// The first few numbers of a list.
fn listed(numbers: &[i64]) -> String {
    let shown: Vec<String> = numbers.iter().take(4).map(i64::to_string).collect();
    let more = if numbers.len() > 4 { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}
