//! [`BoundMask::plan`]: computes plans. Reordered plans are checked. If a check fails, the plan is computed again
//! without reordering.

use crate::Error;
use crate::atoms::foreign;
use crate::bind::budget::{Budget, Meter, Stage};
use crate::bind::{BoundMask, Resolved};
use crate::mask::Mask;
use crate::plan::{PatternPlan, Plan, PlanOptions, Reorder};
use std::time::Instant;

impl BoundMask {
    /// Returns the plan with the default options: tiles of at most 96 query rows.
    pub fn plan(&self) -> Plan {
        self.plan_with(&PlanOptions::default())
    }

    /// Returns the plan of the pattern with index `pattern`, without verification. A pattern is the set of cells of a
    /// batch row and head ([`pattern_of`](Self::pattern_of)). Pictures use this function.
    ///
    /// # Panics
    /// Panics if the mask has no pattern with this index.
    pub fn plan_of_pattern(&self, pattern: usize, options: &PlanOptions) -> PatternPlan {
        PatternPlan::new(&self.resolved()[pattern], options)
    }

    /// Returns the plan with the options `options`. Block sizes of 0 count as 1.
    pub fn plan_with(&self, options: &PlanOptions) -> Plan {
        self.plan_within(options, &Budget::unlimited()).expect("a budget without limits cannot run out")
    }

    /// Returns the plan of [`plan_with`](Self::plan_with), computed within a budget. The watch function of the budget
    /// receives the progress and can cancel.
    ///
    /// # Errors
    /// Returns [`Error::Budget`] if the budget is spent, and [`Error::Cancelled`] if its watch function cancels.
    pub fn plan_within(&self, options: &PlanOptions, budget: &Budget<'_>) -> Result<Plan, Error> {
        let start = Instant::now();
        let options = PlanOptions { block_q: options.block_q.max(1), block_kv: options.block_kv.max(1), ..*options };
        let rows = self.resolved().iter().map(|resolved| u64::from(resolved.frame.q_len)).sum();
        let patterns = plans(self, &options, &mut Meter::new(budget, Stage::Planning, rows))?;
        let plan = Plan { bound: self.clone(), options, patterns, planning_time: start.elapsed() };
        debug_check(&plan);
        Ok(plan)
    }
}

/// Makes one plan for each distinct pattern (set of cells of a batch row and head). A reordered plan is compared with
/// the mask in sampled rows; if it differs, a plan without reordering is made instead. There is no comparison if the
/// mask contains a function or an atom of the user, whose bounds may be wrong.
///
/// # Errors
/// Returns an error if the budget is spent or its watch function cancels.
fn plans(bound: &BoundMask, options: &PlanOptions, meter: &mut Meter<'_>) -> Result<Vec<PatternPlan>, Error> {
    let callers_bounds = foreign(bound.mask()).is_some();
    let plan = |resolved: &Resolved| {
        let plan = PatternPlan::within(resolved, options, meter)?;
        meter.spans(plan.span_count() as u64)?;
        meter.done(u64::from(plan.q_len()));
        match callers_bounds {
            true => Ok(plan),
            false => guarded(plan, bound.mask(), options, cfg!(debug_assertions), meter),
        }
    };
    bound.resolved().iter().map(plan).collect()
}

/// Checks `plan` if it is reordered. Returns `plan` if it passes, otherwise a plan without reordering. If `strict` is
/// true, a failed check panics.
///
/// # Panics
/// Panics if the plan fails and `strict` is true.
fn guarded(
    plan: PatternPlan,
    mask: &Mask,
    options: &PlanOptions,
    strict: bool,
    meter: &mut Meter<'_>,
) -> Result<PatternPlan, Error> {
    if plan.reordered().is_none() || plan.agrees_with_rows() {
        return Ok(plan);
    }
    assert!(
        !strict,
        "the reordered plan of `{mask}` does not compute exactly the cells of the mask; the options of the plan are {options:?}"
    );
    PatternPlan::within(plan.resolved(), &PlanOptions { reorder: Reorder::Never, ..*options }, meter)
}

/// In debug builds, panics if the cells of a plan differ from those of [`BoundMask::allowed`].
fn debug_check(plan: &Plan) {
    if cfg!(debug_assertions)
        && foreign(plan.bound().mask()).is_none()
        && let Err(error) = plan.verify(Plan::CHECKED_CELLS)
    {
        panic!("{error}; the options of the plan are {:?}", plan.options());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::verify::tests::planted;

    fn meter() -> Meter<'static> {
        Meter::new(&Budget::unlimited(), Stage::Planning, 0)
    }

    #[test]
    fn a_planted_error_is_discarded_in_release_builds() {
        let (bound, options, plan) = planted();
        assert!(plan.reordered().is_some() && !plan.agrees_with_rows());
        let kept = guarded(plan, bound.mask(), &options, false, &mut meter()).unwrap();
        assert_eq!(kept.reordered(), None);
        assert!(kept.agrees_with_rows());
    }

    #[test]
    #[should_panic(expected = "the reordered plan of `neighborhood(grid=[96], size=[7], dilation=[4]) | global([5, 8")]
    fn a_planted_error_panics_in_debug_builds() {
        let (bound, options, plan) = planted();
        guarded(plan, bound.mask(), &options, true, &mut meter()).unwrap();
    }
}
