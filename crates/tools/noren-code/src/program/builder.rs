//! [`Builder`]: collects the tables and named conditions of a mask, and makes conditions on sets of positions.

use crate::program::ground::Ground;
use crate::program::names::Names;
use crate::program::table::{Content, Table};
use crate::program::{Num, Op, Part, Range, Test};
use noren_mask::interval::IntervalSet;
use noren_mask::{Positions, Side};
use std::rc::Rc;

/// The tables, named conditions and variable names of a mask that is being converted to a program.
pub(crate) struct Builder<'a> {
    pub(crate) ground: &'a Ground<'a>,
    pub(crate) names: Names,
    pub(crate) tables: Vec<Rc<Table>>,
    pub(crate) parts: Vec<Rc<Part>>,
    /// The arrays that the user of the generated code supplies, as (name of the array in the facts, variable).
    pub(crate) given: Vec<(String, String)>,
}

impl Builder<'_> {
    /// Adds a table and returns it. If an earlier table has equal entries, returns the earlier table.
    pub(crate) fn table(&mut self, name: &str, content: Content) -> Rc<Table> {
        let given = matches!(content, Content::Given { .. });
        if let Some(table) = self.tables.iter().find(|table| table.content == content && !given) {
            return table.clone();
        }
        let table = Rc::new(Table { name: self.names.fresh(name), content });
        self.tables.push(table.clone());
        table
    }

    /// Returns the indices with which code reads the entry at `at` from a table: `[batch row, at]` if the table has one
    /// row for each batch row, otherwise `[at]`.
    pub(crate) fn indices(&self, table: &Table, at: Num) -> Vec<Num> {
        let at = match at {
            Num::Q if self.ground.first_query < 0 => Num::Q.op(Op::Max, 0),
            Num::K if self.ground.has_free_slots() => Num::K.op(Op::Max, 0),
            at => at,
        };
        match table.by_batch() {
            true => vec![Num::Batch, at],
            false => vec![at],
        }
    }

    /// Returns the number at index `at` in a table of numbers.
    pub(crate) fn entry_number(&self, table: &Rc<Table>, at: Num) -> Num {
        Num::Entry(table.clone(), self.indices(table, at))
    }

    /// Returns the condition that the boolean at index `at` of a table is true. Queries at negative positions do not
    /// satisfy the condition.
    pub(crate) fn entry_test(&self, table: &Rc<Table>, at: Num) -> Test {
        self.not_before(&at).and(Test::Entry(table.clone(), self.indices(table, at)))
    }

    /// Returns the condition that the position `at` is not negative. For keys, this is always true.
    pub(crate) fn not_before(&self, at: &Num) -> Test {
        match at {
            Num::Q if self.ground.first_query < 0 => Num::Q.at_least(0),
            _ => Test::Always(true),
        }
    }

    /// Returns the condition that the position `at` is in `set`.
    pub(crate) fn in_set(&mut self, set: &Positions, at: Num) -> Test {
        let spans = match set {
            Positions::Label(label) => {
                let len = self.ground.len;
                let clip = |n: usize| i64::try_from(n).unwrap_or(i64::MAX).min(len);
                let rows = self.ground.rows(|row| {
                    let spans = row.label(label).unwrap_or(&[]).iter();
                    let ranges = spans.map(|span| (clip(span.start), span.end.map_or(len, clip)));
                    ranges.filter(|(start, end)| start < end).collect::<Vec<_>>()
                });
                let note = format!("positions [start, end) of the label {label:?}");
                let table = self.table(&format!("is_{}", Names::word(label)), Content::Ranges { rows, len, note });
                return self.entry_test(&table, at);
            }
            Positions::Spans(spans) => spans,
        };
        let ranges = self.ranges(spans);
        let inside = one_of_ranges(&at, &ranges);
        match ranges.iter().any(|range| range.0 == 0) {
            true => self.not_before(&at).and(inside),
            false => inside,
        }
    }

    /// Returns `spans` as ranges of positions, without empty ranges.
    pub(crate) fn ranges(&self, spans: &[noren_mask::Span]) -> Vec<Range> {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let ranges = spans.iter().map(|span| (number(span.start), span.end.map(number)));
        ranges.filter(|(start, end)| end.is_none_or(|end| *start < end)).collect()
    }

    /// Returns the condition that the index `at` is in the set of its batch row. `sets` has one set of indices below
    /// `len` for each batch row. If every set is at the same end of `0..len`, the condition needs only a length for
    /// each row.
    pub(crate) fn in_rows(&mut self, name: &str, sets: &[IntervalSet], len: usize, at: Num, side: Side) -> Test {
        let len = len as i64;
        let is = |set: &IntervalSet, left: bool| match set.as_slice() {
            [] => true,
            [run] if left => i64::from(run.end) == len,
            [run] => run.start == 0,
            _ => false,
        };
        let all = |left: bool| sets.iter().all(|set| is(set, left));
        let lengths = || Content::PerRow(sets.iter().map(|set| set.count() as i64).collect());
        if side == Side::Left && all(true) || !all(false) && all(true) {
            let table = self.table(name, lengths());
            let first = Num::Const(len).minus(Num::Entry(table, vec![Num::Batch]));
            return at.at_least(first);
        }
        if all(false) {
            let table = self.table(name, lengths());
            return self.not_before(&at).and(at.below(Num::Entry(table, vec![Num::Batch])));
        }
        let rows = sets.iter().map(|set| set.iter().map(|run| (run.start.into(), run.end.into())).collect());
        let rows = crate::program::ground::together(rows.collect());
        let note = "indices [start, end) of the non-padding tokens".into();
        let table = self.table(&format!("{name}_known"), Content::Ranges { rows, len, note });
        self.entry_test(&table, at)
    }
}

/// Returns the condition that `at` is in one of `ranges`. The caller ensures that `at` is not negative.
pub(crate) fn one_of_ranges(at: &Num, ranges: &[Range]) -> Test {
    if ranges.len() > 3 {
        return Test::InRanges(at.clone(), ranges.to_vec());
    }
    Test::any(ranges.iter().map(|&(start, end)| match end {
        Some(end) if end == start + 1 => at.clone().equals(start),
        end => {
            let first = if start == 0 { Test::Always(true) } else { at.clone().at_least(start) };
            first.and(end.map_or(Test::Always(true), |end| at.clone().below(end)))
        }
    }))
}
