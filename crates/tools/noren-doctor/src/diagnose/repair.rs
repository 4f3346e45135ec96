//! [`Repair`]: a repaired array. A repair is offered only after it was checked in the same way as the given array.

use crate::array::decode::{Decoded, Fill};
use crate::read::context::Context;
use crate::read::values::{Numbers, Values};
use crate::recognise::recognise;
use crate::report::{Finding, Report, Severity};
use noren_mask::Keep;
use noren_mask::bits::ones;

/// The given array and its interpretation, from which a repaired array takes its shape, number type and convention.
pub(crate) struct Form<'a> {
    pub(crate) mask: &'a Values,
    pub(crate) decoded: &'a Decoded,
    pub(crate) context: &'a Context,
    /// The sizes `[batch, heads, q_len, kv_len]` of the array as stored.
    pub(crate) dims: [usize; 4],
}

/// The repaired cells of a mask, which the findings about the mask may name. Only [`Repair::new`] makes one: the cells passed every
/// check, and they differ from the given cells, or the repaired array has other numbers in the same cells.
pub(crate) struct Repair {
    cells: Keep,
    /// The repaired array in the form of the given array; `None` if that form cannot hold the cells.
    values: Option<Values>,
    /// The expression that allows exactly the repaired cells; `None` if no such expression was found.
    expression: Option<String>,
}

/// The result of the check of a repaired array with the declarations of the given array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// The array has a fault.
    Faulty,
    /// The array has no fault, but the declarations leave a question open.
    Open,
    Correct,
}

impl Repair {
    /// Returns the repair of the given array with the allowed cells `cells`, `[batch, heads, q_len, kv_len]`. Returns `None` in these
    /// cases: the row of a non-padding query has no key, a check of the repaired array with the same declarations finds a fault, or
    /// nothing changes. If the check leaves a question open, the repair has no array.
    ///
    /// `given` holds the cells with which the attention function computes. `cares(batch row, query)` is true for non-padding queries,
    /// and `check` checks an array.
    pub(crate) fn new(
        form: &Form<'_>,
        given: &Keep,
        cells: &Keep,
        cares: &dyn Fn(usize, usize) -> bool,
        check: &dyn Fn(&Values) -> Check,
    ) -> Option<Repair> {
        let [batch, heads, q_len, _] = cells.dims();
        let empty = |b: usize, i: usize| (0..heads).any(|h| cells.row(b, h, i).iter().all(|w| *w == 0));
        if (0..batch).any(|b| (0..q_len).any(|i| cares(b, i) && empty(b, i))) {
            return None;
        }
        let passes = |values: &Values| Some(check(values)).filter(|result| *result > Check::Faulty);
        let stored = form.stored(cells, form.dims, cares).and_then(|values| Some((passes(&values)?, Some(values))));
        let whole = || Some((passes(&form.stored(cells, cells.dims(), cares)?)?, None));
        let (result, values) = stored.or_else(whole)?;
        let changes = given != cells;
        if !changes && values.as_ref().is_none_or(|values| values == form.mask) {
            return None;
        }
        let expression = changes.then(|| exact(cells, cares)).flatten();
        Some(Repair { cells: cells.clone(), values: values.filter(|_| result == Check::Correct), expression })
    }

    /// Adds the repair to a report, whose findings are all about the mask. Arrays beside the mask are checked afterwards, so their
    /// findings have no repair of the mask.
    pub(crate) fn offer(self, report: &mut Report) {
        let faults = report.findings.iter_mut().filter(|f| f.severity > Severity::Note && f.repair.is_none());
        faults.for_each(|finding: &mut Finding| finding.repair.clone_from(&self.expression));
        report.intended = report.intended.take().or(self.expression);
        report.repair = self.values;
        report.fixed = Some(self.cells);
    }
}

/// Returns the text of the shortest expression found that allows exactly `cells`; `None` if none is found. Rows of padding queries
/// that read only their own key are also written as `| distances([0])`.
fn exact(cells: &Keep, cares: &dyn Fn(usize, usize) -> bool) -> Option<String> {
    let whole = recognise(cells);
    let mut real = cells.clone();
    let [batch, heads, q_len, _] = cells.dims();
    for (b, i) in (0..batch).flat_map(|b| (0..q_len).map(move |i| (b, i))).filter(|&(b, i)| !cares(b, i)) {
        (0..heads).for_each(|h| real.row_mut(b, h, i).fill(0));
    }
    let found = recognise(&real);
    if whole.is_exact() && whole.parts() < found.parts() + 2 {
        return Some(whole.expression());
    }
    let mask = found.nearest().clone() | noren_mask::atoms::distances([0]);
    let bound = mask.bind(&found.shape, &noren_mask::Facts::new()).ok()?;
    let exact = found.is_exact() && Keep::of(&bound).expand(cells.dims()) == *cells;
    exact.then(|| mask.to_string()).or_else(|| whole.is_exact().then(|| whole.expression()))
}

impl Form<'_> {
    /// Returns an array of the sizes `dims` with the allowed cells `cells`, in the number type and the convention of the given array.
    /// If `dims` are the sizes of the given array, the result has its shape, otherwise the shape `dims`. Returns `None` if the array
    /// cannot hold the cells.
    fn stored(&self, cells: &Keep, dims: [usize; 4], cares: &dyn Fn(usize, usize) -> bool) -> Option<Values> {
        let of = cells.dims();
        if !(0..4).all(|axis| dims[axis] == of[axis] || dims[axis] == 1 || of[axis] == 1) {
            return None;
        }
        let visible = if dims == of { cells.clone() } else { any_of(cells, dims) };
        let shape = if dims == self.dims { self.mask.shape() } else { &dims };
        let added = self.decoded.fill != Fill::Logical;
        let bits = || visible.cells().map(|cell| cell != self.decoded.drop);
        let fill = self.fill(&visible);
        // A bias in the visible cells stays. The bias of a cell that becomes visible is unknown, except in the unused rows of padding
        // queries.
        let bias = self.decoded.bias;
        let used = |at: usize| cares(at / (dims[1] * dims[2] * dims[3]), at / dims[3] % dims[2]);
        let before = |at: usize| {
            self.decoded.keep.get([0, 1, 2, 3].map(|axis| at / dims[axis + 1..].iter().product::<usize>() % dims[axis]))
        };
        if bias && (dims != self.dims || visible.cells().enumerate().any(|(at, cell)| cell && used(at) && !before(at)))
        {
            return None;
        }
        let number = |at: usize, cell: bool| match (cell, bias) {
            (true, true) if before(at) => self.mask.at(at),
            (true, _) => 0.0,
            (false, _) => fill,
        };
        let numbers = match (self.mask.numbers(), added) {
            (Numbers::Bool(_), false) => Numbers::Bool(bits().collect()),
            (Numbers::Int(_), false) => Numbers::Int(bits().map(i64::from).collect()),
            (Numbers::Single(_), false) => Numbers::Single(bits().map(|bit| f32::from(u8::from(bit))).collect()),
            (Numbers::Double(_), false) => Numbers::Double(bits().map(|bit| f64::from(u8::from(bit))).collect()),
            (Numbers::Single(_), true) => {
                Numbers::Single(visible.cells().enumerate().map(|(at, cell)| number(at, cell) as f32).collect())
            }
            (Numbers::Double(_), true) => {
                Numbers::Double(visible.cells().enumerate().map(|(at, cell)| number(at, cell)).collect())
            }
            (Numbers::Bool(_) | Numbers::Int(_), true) => return None,
        };
        Values::new(shape, self.mask.dtype(), numbers).ok()
    }

    /// Returns the number for hidden cells of an array that is added to scores: the given number if no finding is about it, otherwise
    /// -inf, or the lowest number of the type if a row has no visible cell.
    fn fill(&self, visible: &Keep) -> f64 {
        let [batch, heads, q_len, _] = visible.dims();
        let rows = (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..q_len).map(move |i| (b, h, i))));
        let sound = self.decoded.findings.iter().all(|f| f.severity == Severity::Note);
        let given = self.decoded.weakest.filter(|_| sound);
        let lowest = || {
            let largest = |dtype: crate::Dtype| dtype.largest();
            let compute = self.context.compute_dtype.and_then(largest);
            let stored = largest(self.mask.dtype());
            -compute.unwrap_or(f64::MAX).min(stored.unwrap_or(f64::MAX))
        };
        let mut empty = rows.filter(|&(b, h, i)| visible.row(b, h, i).iter().all(|w| *w == 0));
        given.unwrap_or_else(|| if empty.next().is_some() { lowest() } else { f64::NEG_INFINITY })
    }
}

/// Returns the cells in an array of the sizes `dims`, where a size of 1 stands for all indices of the dimension: a cell is visible if
/// it is visible at one of these indices.
fn any_of(cells: &Keep, dims: [usize; 4]) -> Keep {
    let of = cells.dims();
    let wide = std::array::from_fn(|axis| of[axis].max(dims[axis]));
    let (cells, mut out) = (cells.expand(wide), Keep::empty(dims));
    let at = |axis: usize, i: usize| if dims[axis] == 1 { 0 } else { i };
    for b in 0..wide[0] {
        for h in 0..wide[1] {
            for i in 0..wide[2] {
                let row = cells.row(b, h, i);
                let to = out.row_mut(at(0, b), at(1, h), at(2, i));
                match dims[3] == wide[3] {
                    true => to.iter_mut().zip(row).for_each(|(o, w)| *o |= w),
                    false => to[0] |= u64::from(ones(row).next().is_some()),
                }
            }
        }
    }
    out
}
