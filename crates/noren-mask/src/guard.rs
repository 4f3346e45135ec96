//! [`BoundMask::plan`]: makes plans; a reordered plan that fails its invariants is replaced by the plan in place.

use crate::Error;
use crate::bind::{BoundMask, Resolved};
use crate::budget::{Budget, Meter, Stage};
use crate::mask::Mask;
use crate::plan::{PatternPlan, Plan, PlanOptions, Reorder};
use crate::verify::has_bounded_closure;
use std::time::Instant;

impl BoundMask {
    /// The plan with tiles of 96 query rows, which suits the kernels.
    pub fn plan(&self) -> Plan {
        self.plan_with(&PlanOptions::default())
    }

    /// Returns the plan of the pattern with this index alone, unverified: for pictures.
    ///
    /// # Panics
    /// If the mask has no such pattern; see [`pattern_of`](Self::pattern_of).
    pub fn plan_of_pattern(&self, pattern: usize, options: &PlanOptions) -> PatternPlan {
        PatternPlan::new(&self.resolved()[pattern], options)
    }

    /// The plan cut as `options` says; block sizes of 0 count as 1.
    pub fn plan_with(&self, options: &PlanOptions) -> Plan {
        self.plan_within(options, &Budget::unlimited()).expect("a budget without limits is never spent")
    }

    /// [`plan_with`](Self::plan_with) within a budget, with progress, and cancelled where the budget's function says so.
    ///
    /// # Errors
    /// [`Error::Budget`] when the budget is spent, [`Error::Cancelled`] when its function cancels.
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

/// One plan for each distinct pattern, guarded.
///
/// # Errors
/// The budget is spent, or its function cancels.
fn plans(bound: &BoundMask, options: &PlanOptions, meter: &mut Meter<'_>) -> Result<Vec<PatternPlan>, Error> {
    let callers_bounds = has_bounded_closure(bound, bound.mask());
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

/// The plan, or the plan in place where a reordered plan fails its invariants: such a plan is never executed.
///
/// # Panics
/// When it fails and `strict` is set.
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
    assert!(!strict, "the reordered plan of `{mask}` differs from its rows: {options:?}");
    PatternPlan::within(plan.resolved(), &PlanOptions { reorder: Reorder::Never, ..*options }, meter)
}

/// Panics in debug builds when a plan differs from the definition.
fn debug_check(plan: &Plan) {
    if cfg!(debug_assertions)
        && !has_bounded_closure(plan.bound(), plan.bound().mask())
        && let Err(error) = plan.verify(Plan::CHECKED_CELLS)
    {
        panic!("{error}, planned by {:?}", plan.options());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::tests::planted;

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
