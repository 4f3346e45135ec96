//! [`Evidence`]: facts about the given data, which decide the cause that a finding names.

use crate::array::decode::{Decoded, Fill};
use crate::catalogue::{Fact, class};
use crate::intent::Intent;
use crate::read::values::Values;
use crate::read::words::WindowMeans;
use crate::report::{Finding, Report};
use noren_mask::Keep;
use noren_mask::bits::{bit, count, row_of};

/// The given data and the results of a diagnosis, from which facts are read.
pub(crate) struct Evidence<'a> {
    pub(crate) mask: &'a Values,
    pub(crate) decoded: &'a Decoded,
    /// The given cells for all queries and keys.
    pub(crate) given: &'a Keep,
    /// The intended mask, or only its sizes, padding, causality and window; `None` if it is unknown.
    pub(crate) intent: Option<&'a Intent>,
    /// The keys that the declared window width counts.
    pub(crate) means: Option<WindowMeans>,
}

/// Names in each finding of the report the first cause of its class that is true of the data. A finding keeps the cause
/// that its check has named; without a true cause, it names none.
pub(crate) fn name_causes(report: &mut Report, evidence: Option<&Evidence<'_>>) {
    for finding in report.findings.iter_mut().filter(|finding| finding.cause.is_empty()) {
        let causes = class(finding.class).map_or(&[][..], |class| class.causes);
        let holds = |fact: &Fact| match evidence {
            Some(evidence) => evidence.holds(*fact, finding),
            None => *fact == Fact::NoCells,
        };
        let cause = causes.iter().find(|cause| cause.0.iter().all(holds));
        finding.cause = cause.map_or("", |cause| cause.1);
    }
}

impl Evidence<'_> {
    fn holds(&self, fact: Fact, finding: &Finding) -> bool {
        let numbers = || (0..self.mask.len()).map(|i| self.mask.at(i));
        let intent = |test: &dyn Fn(&Intent) -> bool| self.intent.is_some_and(test);
        let padding = |test: &dyn Fn(&[u64], usize) -> bool| {
            intent(&|i| i.valid.as_ref().is_some_and(|rows| rows.iter().any(|r| test(r, i.kv_len))))
        };
        let logical = self.decoded.fill == Fill::Logical;
        match fact {
            Fact::Checked => false,
            Fact::Keeps => logical && !self.decoded.drop,
            Fact::Drops => logical && self.decoded.drop,
            Fact::Adds => !logical,
            Fact::Infinite => self.decoded.fill.is_infinite(),
            Fact::Positive => numbers().any(|x| x > 0.0),
            Fact::NaN => numbers().any(f64::is_nan),
            Fact::Flipped => numbers().all(|x| x == -1.0 || x == -2.0) || numbers().all(|x| x == 254.0 || x == 255.0),
            Fact::Rank(n) => self.mask.shape().len() == n,
            Fact::Causal => intent(&|i| i.causal.is_some()),
            Fact::NotCausal => intent(&|i| i.causal.is_none()),
            Fact::NoWindow => intent(&|i| i.left.is_none()),
            Fact::WithSelf => intent(&|i| i.causal.is_some()) && self.means.is_none_or(|m| m == WindowMeans::WithSelf),
            Fact::WithoutSelf => intent(&|i| i.causal.is_some()) && self.means == Some(WindowMeans::Before),
            Fact::Padded => padding(&|r, n| (count(r) as usize) < n),
            Fact::LeftPadded => padding(&|r, _| !bit(r, 0)),
            // The search states each mistake in one sentence, which may follow the names of batch rows and heads.
            Fact::Made(edit) => intent(&|i| finding.says.ends_with(&edit.says(i))),
            Fact::NoCells => finding.wrong_cells == 0,
            Fact::PaddingQueries => {
                let cells = &finding.first_cells;
                !cells.is_empty() && intent(&|i| cells.iter().all(|&[b, _, q, _]| !i.cares(b, q)))
            }
            Fact::AllVisible => self.rows(|_, _, row, all| row == all),
            Fact::Triangle => intent(&|i| {
                let past = |b: usize| i.slot(b, 0);
                let [.., q_len, kv_len] = self.given.dims();
                let last = |b: usize, q: usize| (past(b) + q as i64 + 1).clamp(0, kv_len as i64) as usize;
                q_len > 1 && self.rows(|b, q, row, _| row == row_of(kv_len, 0, last(b, q)))
            }),
            Fact::EqualRows => self.rows(|_, _, row, all| row == all || row.iter().all(|w| *w == 0)),
            Fact::EqualBatch => {
                let [batch, heads, q_len, _] = self.given.dims();
                let same = |b: usize, h: usize, q: usize| self.given.row(b, h, q) == self.given.row(0, h, q);
                batch > 1 && (1..batch).all(|b| (0..heads).all(|h| (0..q_len).all(|q| same(b, h, q))))
            }
        }
    }

    /// Returns whether `test(batch row, query, row, row of ones)` is true for every row of a non-padding query.
    fn rows(&self, test: impl Fn(usize, usize, &[u64], &[u64]) -> bool) -> bool {
        let [batch, heads, q_len, kv_len] = self.given.dims();
        let all = row_of(kv_len, 0, kv_len);
        let cares = |b: usize, q: usize| self.intent.is_none_or(|i| i.cares(b, q));
        let is = |b: usize, q: usize| (0..heads).all(|h| test(b, q, self.given.row(b, h, q), &all));
        (0..batch).all(|b| (0..q_len).filter(|&q| cares(b, q)).all(|q| is(b, q)))
    }
}
