//! [`Planner`]: plans of sequences, kept for later sequences of the same lengths.

use crate::Error;
use crate::kernel::forward::Jobs;
use noren_mask::{Facts, Mask, Plan, Shape};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A store of plans for sequences. The planner looks up a plan by the mask, the facts (data) to which the mask is
/// bound, the numbers of heads, and the numbers of queries and keys. Threads can share a planner.
///
/// A planner keeps a limited number of plans. When the planner is full, the least recently used plan is removed. A plan
/// of a window or causal mask takes a few hundred bytes for each 96 queries.
///
/// ```
/// use noren::varlen::Planner;
/// let planner = Planner::new(1000);
/// assert_eq!((planner.capacity(), planner.len(), planner.plans_made()), (1000, 0, 0));
/// ```
#[derive(Debug)]
pub struct Planner {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    families: Vec<Family>,
    /// The number of plans in all `families`.
    count: usize,
    /// A counter that rises with each lookup and each new plan. Its value at the last use of a plan shows which plan
    /// was used least recently.
    clock: u64,
    made: u64,
}

/// The plans for one mask, the facts to which the mask is bound (data such as document lengths), and the numbers of
/// heads. The plans of a family differ in the numbers of queries and keys.
struct Family {
    mask: Mask,
    facts: Option<Facts>,
    heads: usize,
    kv_heads: usize,
    /// The plans by `(number of queries, number of keys)`, each with the value of `Kept::clock` at its last use.
    plans: HashMap<(usize, usize), (Arc<Ready>, u64)>,
}

/// A plan, with the jobs (units of work, each for one thread) into which it is divided.
pub(super) struct Ready {
    pub(super) plan: Plan,
    pub(super) jobs: Jobs,
    /// A plan for the backward pass, which keeps queries and keys in the order of the arrays; `None` if `plan` itself
    /// keeps this order.
    in_place: OnceLock<Option<Plan>>,
}

/// The mask and the numbers of heads of a call.
pub(super) struct Request<'a> {
    pub(super) mask: &'a Mask,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
}

impl Ready {
    fn new(request: &Request<'_>, facts: Option<&Facts>, (q_len, kv_len): (usize, usize)) -> Result<Self, Error> {
        let shape = Shape::new(q_len, kv_len, kv_len as i64 - q_len as i64);
        let shape = shape.heads(request.heads).kv_heads(request.kv_heads);
        let none = Facts::new();
        let plan = request.mask.bind(&shape, facts.unwrap_or(&none))?.plan();
        Ok(Ready { jobs: Jobs::new(&plan), plan, in_place: OnceLock::new() })
    }

    /// Returns a plan that keeps queries and keys in the order of the arrays (not reordered). The plan is made in the
    /// first call.
    pub(super) fn in_place(&self) -> &Plan {
        let reordered = self.in_place.get_or_init(|| match self.plan.in_place() {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(plan) => Some(plan),
        });
        reordered.as_ref().unwrap_or(&self.plan)
    }
}

impl Default for Planner {
    /// Returns a planner for at most 512 plans.
    fn default() -> Self {
        Planner::new(512)
    }
}

impl Planner {
    /// Returns a planner that stores at most `capacity` plans. If `capacity` is 0, no plan is stored.
    pub fn new(capacity: usize) -> Self {
        Planner { capacity, kept: Mutex::default() }
    }

    /// Returns the maximum number of plans that are kept.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of plans that are kept now.
    pub fn len(&self) -> usize {
        self.lock().count
    }

    /// Returns whether no plan is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of plans that this planner has made so far. A call for which all plans are already stored
    /// does not change this number.
    pub fn plans_made(&self) -> u64 {
        self.lock().made
    }

    /// Removes all plans.
    pub fn clear(&self) {
        let mut kept = self.lock();
        let families = std::mem::take(&mut kept.families);
        kept.count = 0;
        drop(kept);
        drop(families);
    }

    /// Returns the plan of each sequence, `None` for a sequence without queries or without keys. `lens` has `(number of
    /// queries, number of keys)` for each sequence. `facts` are the data to which the mask is bound: one entry for each
    /// sequence, one entry for all sequences, or no entry.
    pub(super) fn plans(
        &self,
        request: &Request<'_>,
        facts: &[Facts],
        lens: impl Iterator<Item = (usize, usize)>,
    ) -> Result<Vec<Option<Arc<Ready>>>, Error> {
        let facts_of = |i: usize| if facts.len() > 1 { facts.get(i) } else { facts.first() };
        let mut found = Vec::with_capacity(lens.size_hint().0);
        let mut missing = Vec::new();
        let mut kept = self.lock();
        let mut family = kept.family(request, facts_of(0));
        for (i, lens) in lens.enumerate() {
            if lens.0 == 0 || lens.1 == 0 {
                found.push(None);
                continue;
            }
            if facts.len() > 1 {
                family = kept.family(request, facts_of(i));
            }
            found.push(family.and_then(|family| kept.used(family, lens)));
            if found[i].is_none() {
                missing.push((i, lens));
            }
        }
        drop(kept);
        // Planning may take long and may run code of the caller, so the lock is not held.
        for (i, lens) in missing {
            let again = {
                let mut kept = self.lock();
                kept.family(request, facts_of(i)).and_then(|family| kept.used(family, lens))
            };
            found[i] = Some(match again {
                Some(ready) => ready,
                None => self.keep(request, facts_of(i), lens, Arc::new(Ready::new(request, facts_of(i), lens)?)),
            });
        }
        Ok(found)
    }

    /// Stores the new plan `ready` and returns it. If the store is full, first removes the least recently used plans.
    fn keep(
        &self,
        request: &Request<'_>,
        facts: Option<&Facts>,
        lens: (usize, usize),
        ready: Arc<Ready>,
    ) -> Arc<Ready> {
        let mut kept = self.lock();
        kept.made += 1;
        if self.capacity == 0 {
            return ready;
        }
        let mut removed = Vec::new();
        while kept.count >= self.capacity {
            removed.push(kept.remove_oldest());
        }
        let family = kept.family(request, facts).unwrap_or_else(|| {
            let Request { mask, heads, kv_heads } = *request;
            let (mask, facts, plans) = (mask.clone(), facts.cloned(), HashMap::new());
            kept.families.push(Family { mask, facts, heads, kv_heads, plans });
            kept.families.len() - 1
        });
        kept.clock += 1;
        let now = kept.clock;
        if kept.families[family].plans.insert(lens, (ready.clone(), now)).is_none() {
            kept.count += 1;
        }
        drop(kept);
        ready
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Returns the index in `families` of the family for the mask and the numbers of heads in `request`, and for the
    /// facts `facts`. Returns `None` if there is no such family.
    fn family(&self, request: &Request<'_>, facts: Option<&Facts>) -> Option<usize> {
        self.families.iter().position(|family| {
            (family.heads, family.kv_heads) == (request.heads, request.kv_heads)
                && family.mask == *request.mask
                && family.facts.as_ref() == facts
        })
    }

    /// Returns the plan for the lengths `lens`, `(queries, keys)`, of the family with the index `family`, and records
    /// its use. Returns `None` if there is no such plan.
    fn used(&mut self, family: usize, lens: (usize, usize)) -> Option<Arc<Ready>> {
        self.clock += 1;
        let (ready, used) = self.families[family].plans.get_mut(&lens)?;
        *used = self.clock;
        Some(ready.clone())
    }

    /// Removes the least recently used plan and returns it. Also removes the family of this plan if no other plan of
    /// the family is left. Returns `None` if there is no plan.
    fn remove_oldest(&mut self) -> Option<Arc<Ready>> {
        let all = self.families.iter().enumerate();
        let all = all.flat_map(|(i, family)| family.plans.iter().map(move |(lens, (_, used))| (*used, i, *lens)));
        let (_, family, lens) = all.min()?;
        let (ready, _) = self.families[family].plans.remove(&lens)?;
        self.count -= 1;
        if self.families[family].plans.is_empty() {
            self.families.swap_remove(family);
        }
        Some(ready)
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} plans for {} masks", self.count, self.families.len())
    }
}
