//! The questions that a report contains when the declarations leave several readings of an array.

use crate::array::polarity::{inverted, open_polarity, which_polarity};
use crate::candidates::expect::{Hypothesis, assumed_padding};
use crate::candidates::resemble::{self, padding_in_words, rows_of};
use crate::candidates::target::Target;
use crate::diagnose::Case;
use crate::intent::edits::other_side;
use crate::intent::{Intent, PerRow, number};
use crate::read::kinds::Role;
use crate::read::values::Numbers;
use crate::read::words::counted;
use crate::report::wrong::listed;
use crate::report::{Open, SHOWN};
use noren_mask::Keep;
use noren_mask::bits::{bit, count, ends};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl Case<'_> {
    /// If the inverted cells are the declared mask, or without a declared kind a known mask, returns the question whether true means
    /// "may attend" or "ignored"; otherwise `None`. Without a declared kind it is also a question if half of the rows or more read no
    /// key, and no inverted row is empty. `None` if the declarations define the convention, or if the numbers are added to scores.
    pub(crate) fn other_polarity(&self, hypotheses: &[Hypothesis], structure: Option<&Intent>) -> Option<Open> {
        if !self.open_polarity() {
            return None;
        }
        let other = self.whole(&inverted(&self.decoded.keep), structure);
        if let Some((intent, _)) = self.accept(&other, hypotheses) {
            // One mistake in the declared mask is more probable than another convention together with padding that nothing declares.
            let assumed = intent.valid.is_some() && self.known.valid.is_none();
            if assumed && self.context.kind.is_some() {
                let given = self.whole(&self.decoded.keep, structure);
                let found = Target::new(&given).explain(hypotheses, true);
                if found.iter().any(|e| e.mistakes.len() == 1) {
                    return None;
                }
            }
            let exact = self.context.kind.is_some() && hypotheses.iter().any(|h| Target::new(&other).is(&h.intent));
            return Some(which_polarity(exact, &resemble::in_words(&intent)));
        }
        let target = Target::new(&other);
        let padded = |h: &Hypothesis| assumed_padding(&other, &h.intent, (false, false)).collect::<Vec<_>>();
        let packed = || {
            let mut all = hypotheses.iter().flat_map(|h| std::iter::once(h.intent.clone()).chain(padded(h)));
            all.any(|intent| target.is_packed(&intent)).then(|| "packed documents".to_string())
        };
        let emptied = || {
            let [own, other] = [&self.decoded.keep, &inverted(&self.decoded.keep)].map(rows_of);
            let empty = |rows: &[Vec<u64>]| rows.iter().filter(|row| ends(row).is_none()).count();
            (empty(&own) * 2 >= own.len() && empty(&other) == 0)
                .then(|| "one in which every query reads a key".to_string())
        };
        let known = resemble::exact(&other, hypotheses).filter(|_| self.open_kind()).map(|i| resemble::in_words(&i));
        let name = known.or_else(|| packed().or_else(emptied).filter(|_| self.open_kind()))?;
        Some(which_polarity(false, &name))
    }

    fn open_polarity(&self) -> bool {
        open_polarity(&self.decoded, self.context)
    }

    /// Returns true if the array has rows of keys, which are compared with the padding of the batch.
    pub(crate) fn is_compared_padding(&self) -> bool {
        self.alignment.keys_only && self.known.valid.is_some() && self.decoded.segments.is_none()
    }

    /// Returns true if a declaration, or an array that is given with the mask, answers whether the rows of the array are batch rows
    /// or queries.
    fn rows_are_known(&self) -> bool {
        let context = self.context;
        // One list of key positions belongs to all rows.
        let placed = self.known.k_positions.as_ref().is_some_and(|rows| rows.len() == 1);
        let said = context.role_declared || context.role != Role::Attention || context.q_len.is_some() || placed;
        said || self.alignment.batch_known
    }

    /// Returns the question what the rows of the array are, `[batch, keys]` or `[queries, keys]`, and the question whether true means "may
    /// attend" in Boolean rows of keys; `None` if a declaration or the cells answer it.
    pub(crate) fn meaning(&self) -> Option<Open> {
        let context = self.context;
        let open = match *self.mask.shape() {
            // One row of keys does not show what a kind needs: a cache, or causality that the attention function adds.
            [_] => {
                let kind = context.kind.is_some_and(|kind| kind.causal || kind.sliding || kind.chunked);
                kind && self.alignment.keys_only && !self.rows_are_known() && self.known.valid.is_none()
            }
            _ if self.alignment.keys_only => return self.is_true_visible(),
            [1, _] => false,
            [a, b] if !self.rows_are_known() => match self.mask.numbers() {
                Numbers::Int(_) => a != b || self.rows_of_keys(),
                _ => context.past.is_empty() && self.rows_of_keys(),
            },
            _ => false,
        };
        open.then(|| self.meaning_of_rows())
    }

    /// Returns true if [`meaning`](Self::meaning) is a question before the cells are compared: the cells of integers, and of rows of
    /// keys, do not answer it.
    pub(crate) fn meaning_first(&self) -> bool {
        self.alignment.keys_only || matches!(self.mask.numbers(), Numbers::Int(_))
    }

    /// Returns the question whether true means "may attend" in Boolean rows of keys. `None` if a declaration answers it, if the mask is
    /// nearer to the known padding than its inverse, or if the inverse hides every key of a row.
    fn is_true_visible(&self) -> Option<Open> {
        let [own, other] = [&self.decoded.keep, &inverted(&self.decoded.keep)].map(rows_of);
        let kv_len = self.alignment.sizes.kv_len;
        let fits = match &self.known.valid {
            // Padding on the other side of the rows is one mistake.
            Some(valid)
                if self.alignment.wanted.is_none()
                    && own.len() == valid.len()
                    && own.iter().zip(&**valid).all(|(own, valid)| *own == other_side(valid, kv_len)) =>
            {
                true
            }
            Some(valid) => {
                let pairs = other.iter().zip(valid.iter().cycle());
                let off: u64 = pairs
                    .map(|(o, v)| o.iter().zip(v).map(|(o, v)| u64::from((o ^ v).count_ones())).sum::<u64>())
                    .sum();
                off * 2 >= (other.len() * kv_len) as u64
            }
            None => other.iter().any(|row| ends(row).is_none()),
        };
        let boolean = matches!(self.mask.numbers(), Numbers::Bool(_));
        (boolean && self.open_polarity() && !fits).then(|| self.meaning_of_rows())
    }

    /// Returns the inverted rows of keys, if they are the probable padding of the batch: a row of the array hides every key, no
    /// inverted row does, and no padding is known.
    pub(crate) fn rows_meant(&self) -> Option<Vec<Vec<u64>>> {
        let empty = |rows: &[Vec<u64>]| rows.iter().any(|row| ends(row).is_none());
        let unknown = self.known.valid.is_none() && self.alignment.wanted.is_none();
        let candidate = self.alignment.keys_only && unknown && self.rows_of_keys();
        let other = rows_of(&inverted(&self.decoded.keep));
        (candidate && empty(&rows_of(&self.decoded.keep)) && !empty(&other)).then_some(other)
    }

    /// Returns the question about the meaning of an array `[batch, keys]` or `[queries, keys]`. Each reading names the declarations
    /// that select it.
    fn meaning_of_rows(&self) -> Open {
        let cells = &self.decoded.keep;
        let rows = rows_of(cells).len();
        let keys = cells.dims()[3];
        let read = |means: &str, words: &str, keep: &Keep| {
            let given = rows_of(keep);
            let declared = self.known.valid.as_ref().is_some_and(|valid| **valid == given);
            let padding = match declared {
                true => "with the given padding".to_string(),
                false => padding_in_words(&given, keys),
            };
            format!(
                "{} of {keys} keys, {means}, {padding}: declare role=key_padding{words}",
                counted(rows as i64, "batch row")
            )
        };
        let mut readings = match self.mask.numbers() {
            Numbers::Bool(_) if self.open_polarity() => vec![
                read("true = ignored, as in a key_padding_mask", " and convention=ignore_bool", &inverted(cells)),
                read("true = may attend", " and convention=keep_bool", cells),
            ],
            Numbers::Int(_) if !self.decoded.drop => {
                vec![read("1 = a non-padding token, as in the attention_mask of a tokenizer", "", cells)]
            }
            _ => vec![read(&self.decoded.reading, "", cells)],
        };
        if !self.alignment.keys_only || self.mask.shape().len() == 1 {
            let queries = if rows == 1 { "1 query".to_string() } else { format!("{rows} queries") };
            readings.push(format!("{queries} by {keys} keys: declare role=attn, and past_len if some keys are cached"));
        }
        let question = format!(
            "the array {} {:?} has {} readings: declare the right one; rows of keys are compared with lengths, attention_mask, or input_ids with \
             pad_token_id",
            self.mask.dtype().name(),
            self.mask.shape(),
            readings.len()
        );
        Open::new(&readings.iter().map(String::as_str).collect::<Vec<_>>(), question)
    }

    /// Returns true if every row may be a row of key padding: at most one change between visible and hidden keys. A row of
    /// integers, as in the `attention_mask` of a tokenizer, holds only 0 and 1 and has a visible key.
    fn rows_of_keys(&self) -> bool {
        let keep = &self.decoded.keep;
        let [.., q_len, kv_len] = keep.dims();
        let rows = keep.dims()[0] * q_len;
        let run = |n: usize| {
            let row = keep.row(n / q_len, 0, n % q_len);
            (1..kv_len).filter(|&k| bit(row, k) != bit(row, k - 1)).count() <= 1
        };
        let flags = |v: &[i64]| v.chunks(kv_len).all(|row| row.contains(&1) && row.iter().all(|x| matches!(x, 0 | 1)));
        let Numbers::Int(cells) = self.mask.numbers() else { return (0..rows).all(run) };
        flags(cells) && (0..rows).all(run)
    }

    /// If the mask has the declared lengths with padding on the left, and only the default puts it on the right, returns
    /// the question on which side it is.
    pub(crate) fn which_side(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<Open> {
        let valid = self.known.valid.as_ref().filter(|_| self.known.side_assumed)?;
        let kv_len = self.alignment.sizes.kv_len;
        let rows: PerRow<u64> = Rc::new(valid.iter().map(|row| other_side(row, kv_len)).collect());
        let mirrored = |h: &Hypothesis| Hypothesis { intent: h.intent.clone().padded(&rows), ..h.clone() };
        let left: Vec<Hypothesis> = hypotheses.iter().map(mirrored).collect();
        let inverse = || self.accept(&inverted(given), &left).filter(|_| self.open_polarity());
        let (says, found) = match self.accept(given, &left) {
            Some(found) => ("", found),
            None => (", if true = ignored", inverse()?),
        };
        let left = format!("the padding is on the left: the mask is {}{says}", resemble::in_words(&found.0));
        Some(on_which_side(
            &left,
            "the padding is on the right: the mask hides the wrong end of the rows (padding_side)",
        ))
    }

    /// Returns the question on which side the padding of the declared lengths is, if only the default puts it on the right, and all queries
    /// of a batch row of the intended mask `right` are padding then.
    pub(crate) fn only_padding(&self, right: &Intent) -> Option<Open> {
        let none = |b: usize| (0..right.q_len).all(|i| !right.cares(b, i));
        let asked = self.known.side_assumed && (0..right.batch).any(none);
        let left = "the padding is on the left: all rows are compared";
        asked.then(|| on_which_side(left, "the padding is on the right: all new tokens of some batch rows are padding"))
    }

    /// Returns the question whether tokens also read earlier chunks, if the mask is right only then.
    pub(crate) fn which_chunks(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<Open> {
        let streaming = streaming(hypotheses);
        self.accept(given, &streaming)?;
        streaming.first()?.open.last().map(|open| (**open).clone())
    }

    /// If `given` is an intended mask without the cells between groups of tokens, of which two have two tokens or more, returns this mask
    /// with the question whether the groups are documents. The user declared a kind and no documents.
    pub(crate) fn groups(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<(Intent, Rc<Open>)> {
        let target = Target::new(given);
        let declared = self.known.segments.is_some() || self.context.kind.is_none() || self.alignment.keys_only;
        let of_row = |ids: &Vec<i64>| {
            let mut groups = BTreeMap::<i64, BTreeSet<usize>>::new();
            (0..ids.len()).filter(|&k| ids[k] > 0).for_each(|k| _ = groups.entry(ids[k]).or_default().insert(k));
            groups.into_values().collect::<Vec<_>>()
        };
        let several = |groups: &Vec<BTreeSet<usize>>| groups.iter().filter(|group| group.len() > 1).count() > 1;
        let found = hypotheses.iter().filter(|_| !declared).find_map(|h| {
            let intent = target.is_with_some_documents(&h.intent)?;
            let rows: Vec<_> = intent.segments.iter().flat_map(|rows| rows.iter().map(of_row)).collect();
            Some((rows.iter().position(several)?, rows, intent))
        });
        let (b, rows, intent) = found?;
        let shown: Vec<String> = rows[b].iter().take(SHOWN).map(|group| listed("token", group)).collect();
        let more = if rows[b].len() > SHOWN { "; ..." } else { "" };
        let question = format!(
            "the cells are those of the declared mask, but tokens of different groups do not read each other (in batch row {b}: {}{more}): are the \
             groups packed documents, or other groups such as windows of an image? declare segment_ids or cu_seqlens",
            shown.join("; ")
        );
        let readings = [
            "the groups are documents or windows: the mask is right, if segment_ids or cu_seqlens give the same groups",
            "all tokens may read each other: the mask wrongly hides the cells between the groups (give the intended mask to get this verdict: --meant)",
        ];
        Some((intent, Rc::new(Open::new(&readings, question))))
    }

    /// Returns the question whether the hidden keys of rows of keys are padding, if one is between visible keys and nothing is declared.
    pub(crate) fn holes(&self) -> Option<Open> {
        let [batch, _, _, kv_len] = self.dims();
        let keep = self.alignment.keys_only.then(|| self.decoded.keep.expand([batch, 1, 1, kv_len]))?;
        let rows: Vec<Vec<u64>> = (0..batch).map(|b| keep.row(b, 0, 0).to_vec()).collect();
        let whole = |r: &Vec<u64>| ends(r).is_none_or(|(first, last)| count(r) == (last + 1 - first) as u64);
        let declared = self.known.valid.is_some() || self.context.kind.is_some() || rows.iter().all(whole);
        let intent = Intent { valid: Some(Rc::new(rows)), ..Intent::new(batch, 1, kv_len, vec![0]) };
        (!declared).then(|| self.is_it_padding(&intent, None))
    }

    /// Returns the question whether the keys that `intent` hides as padding are padding. The user declared no padding. `mistake`
    /// describes the mistake that explains the other wrong cells; `None` if no other cell is wrong.
    pub(crate) fn is_it_padding(&self, intent: &Intent, mistake: Option<&str>) -> Open {
        let rows = intent.valid.iter().flat_map(|rows| rows.iter());
        let hidden: u64 = rows.clone().map(|r| intent.kv_len as u64 - count(r)).sum();
        let inside: u64 =
            rows.filter_map(|r| Some((ends(r)?, count(r)))).map(|(e, n)| (e.1 - e.0 + 1) as u64 - n).sum();
        let place = match inside {
            0 => "at the start or end of batch rows".to_string(),
            n => format!("({n} of them between visible keys)"),
        };
        let rest = match mistake {
            Some(says) => format!("one mistake remains: {says}"),
            None if self.context.kind.is_some() => "every cell is as declared".into(),
            None => "the array is a padding mask".into(),
        };
        let padding = format!("if the {hidden} hidden key(s) {place} are padding, {rest}");
        let also = if mistake.is_some() { "also " } else { "" };
        let real = format!("if these keys are not padding, {also}{hidden} key(s) that should be visible are hidden");
        let question = "are the hidden keys padding? declare lengths, attention_mask, or input_ids with pad_token_id";
        Open::new(&[&padding, &real], question)
    }
}

/// Returns the question on which side the padding of lengths is, with its two readings.
fn on_which_side(left: &str, right: &str) -> Open {
    let question =
        "on which side is the padding? lengths do not state it: declare padding_side=left or padding_side=right";
    Open::new(&[left, right], question)
}

/// Returns the intended masks `hypotheses` with tokens that also read earlier chunks, with the question whether they do.
pub(crate) fn streaming(hypotheses: &[Hypothesis]) -> Vec<Hypothesis> {
    let of = |h: &Hypothesis| {
        let (size, origins) = h.intent.chunk.as_ref()?;
        let chunk = |b: usize| (0..h.intent.kv_len as i64).map(|k| (k - number(origins, b)).max(0) / size).collect();
        let blocks = Some(Rc::new((0..h.intent.batch).map(chunk).collect()));
        let earlier = format!(
            "a token reads its whole chunk and all earlier chunks: the intended mask is `causal | chunk({size})`"
        );
        let question = "does a token also read earlier chunks? the kind `chunked` hides them; for streaming, give the intended mask";
        let open = Open::new(&[&earlier, "a token reads no other chunk: the mask is wrong"], question);
        let intent = Intent { causal: Some(0), chunk: None, blocks, ..h.intent.clone() };
        Some(Hypothesis { intent, doubt: h.doubt + 0.3, open: [h.open.clone(), vec![Rc::new(open)]].concat() })
    };
    hypotheses.iter().filter_map(of).collect()
}
