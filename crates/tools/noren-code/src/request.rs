//! [`Request`]: a mask with its shape, facts and program, and the target for which its code is written.

use crate::Error;
use crate::program::{Program, Uses};
use crate::target::Target;
use noren_mask::{BoundMask, Budget, Facts, PlanOptions, Shape, Spec};

/// Maximum number of mask tiles in the search for a query that reads no key.
const MOST_TILES: u64 = 1 << 20;
/// Maximum number of steps of the search for a query that reads no key; a step takes 10 to 50 nanoseconds.
const MOST_STEPS: u64 = 1 << 26;

/// A mask with its shape and facts, its program (the cells as conditions on indices and positions), and the target of its
/// code.
pub(crate) struct Request<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) shape: &'a Shape,
    pub(crate) facts: &'a Facts,
    pub(crate) bound: &'a BoundMask,
    pub(crate) program: &'a Program,
    pub(crate) target: Target,
}

impl Request<'_> {
    /// Returns the error that the target cannot express `part`. `advice` is the fix in the message.
    pub(crate) fn refuse(&self, part: impl Into<String>, advice: &str) -> Error {
        Error::inexpressible(self.target, part, advice)
    }

    /// Returns an error if a query reads no key. For such a query, the target would return `meaning` instead of 0.
    ///
    /// # Errors
    /// Returns the error with the first query that reads nothing, or the error that the search for it would take too long.
    pub(crate) fn refuse_empty_rows(&self, meaning: &str) -> Result<(), Error> {
        let budget = Budget::new().tiles(MOST_TILES).spans(4 * MOST_TILES).steps(MOST_STEPS);
        let counted = self.bound.plan_within(&PlanOptions::default(), &budget);
        let counted = counted.and_then(|plan| plan.stats_within(&budget).map(|stats| (plan, stats.empty_rows)));
        let plan = match counted {
            Ok((_, 0)) => return Ok(()),
            Ok((plan, _)) => plan,
            Err(_) => {
                let part = format!(
                    "a mask of {} queries and {} keys, because it is not known whether each query reads a key",
                    self.shape.q_len(),
                    self.shape.kv_len()
                );
                let advice = format!(
                    "a check of all queries would take too long, and a query that reads nothing would return {meaning} in the target format: give fewer tokens"
                );
                return Err(self.refuse(part, &advice));
            }
        };
        let shape = self.shape;
        let mut searched = vec![false; plan.patterns().len()];
        let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
        for (batch, head) in pairs {
            let pattern = plan.pattern_of(batch, head);
            if std::mem::replace(&mut searched[pattern], true) {
                continue;
            }
            if let Some(query) = plan.row_runs(pattern).lists().position(<[_]>::is_empty) {
                let part = format!("a mask in which query {query} (batch row {batch}, head {head}) reads nothing");
                let advice = format!(
                    "in the target format, a query that reads nothing would return {meaning}, but noren returns 0: let the query read its own key, and ignore the output of the query"
                );
                return Err(self.refuse(part, &advice));
            }
        }
        Ok(())
    }

    /// Returns the sizes of the array of cells, `[batch, heads, q_len, kv_len]`. The batch size or the number of heads
    /// is 1 if `uses` shows that the cells do not depend on it.
    pub(crate) fn sizes(&self, uses: Uses) -> [usize; 4] {
        let shape = self.shape;
        let batch = if uses.batch { shape.batch_len() } else { 1 };
        let heads = if uses.head { shape.head_count() } else { 1 };
        [batch, heads, shape.q_len(), shape.kv_len()]
    }
}
