//! The division of a forward pass into jobs for several threads.
//!
//! The work is a list of entries. Most entries are jobs: a job is some query rows of one or more heads that share a
//! key-value head. Jobs that read the keys of the same key-value head in the same order form a group. Within a group,
//! the most expensive job is first. Each thread takes the next entry of the list. The thread that takes a *pack* entry
//! packs the keys of a group (copies them into the layout of the kernels). If a job needs the keys earlier, the thread
//! of the job packs them. The memory of packed keys is free for another group after the last job of their group.
//!
//! If the keys and values of every group fit in the cache of one thread, the entries are whole groups: a thread packs a
//! group and computes its jobs, while it prefetches what it needs next ([`Upcoming`]). At the end of the list, threads
//! help with the groups that are not finished.

use super::arrays::ahead::Upcoming;
use super::arrays::rows::Rows;
use super::dispatch::Task;
use super::keys::blocks::Segments;
use super::keys::pack::{Head, Packed, Refill, Source};
use super::keys::store::StoredHead;
use super::math::scores::Place;
use super::simd::{Product, Simd, group};
use super::threads::{on_threads, worth_threads};
use super::tile::split::{self, Part, SplitKernel};
use super::tile::{Context, Job, ROWS, Scratch, TileKernel, Together};
use crate::inputs::options::Cancel;
use crate::processor::tiles::SIDE;
use crate::{Dtype, Isa};
use noren_mask::{PatternPlan, Plan, SpanKind, Tile};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of a job's cost that does not depend on its size: the work for queries, sums and mask bits. A job is query
/// rows that one thread computes. The unit is the cost of one cell.
const JOB_OVERHEAD: u64 = 2048;

/// The minimum number of query rows that read each value, on average, for which values are copied to memory that is
/// aligned to vectors.
const WORTH_ALIGNING: u64 = 512;

/// The maximum number of keys in mixed spans (ranges with allowed and hidden cells) of a tile up to which heads share
/// the tile's mask bits. With more keys, the saved time is not worth the memory for the shared bits.
const MOST_SHARED_KEYS: u32 = 512;

/// The maximum number of bytes of the packed keys and values of a group for which one thread computes the whole group:
/// the size of the second-level cache of many processors, or half of it.
const MOST_OF_A_THREAD: usize = 1 << 19;

/// The number of keys that a row reads, on average, from which on several jobs are computed together.
const WORTH_TOGETHER: u64 = 1024;

/// The maximum number of jobs that are computed together, and the maximum number of bytes of their queries and sums, which share
/// the second-level cache with the keys.
const MOST_TOGETHER: (usize, usize) = (8, 1 << 19);

/// The minimum number of times that each thread takes jobs from the list of work, if several jobs are computed together.
const LEAST_STEPS: usize = 4;

/// The jobs (units of work, each for one thread) that read the keys of one key-value head in the same order.
struct Group {
    batch: usize,
    kv_head: usize,
    /// The index in the plan of a pattern (allowed cells that some heads share). The jobs of the group read keys in the
    /// order of this pattern.
    pattern: usize,
    /// A range that contains all keys that the jobs of the group may read.
    key_range: Range<usize>,
    jobs: Range<usize>,
    /// The cost of all jobs of the group. The unit is the cost of one cell.
    cost: u64,
}

/// All jobs (units of work, each for one thread) of a forward pass, in groups that read the keys of one key-value head.
pub(crate) struct Jobs {
    groups: Vec<Group>,
    jobs: Vec<Job>,
    cost: u64,
    /// The number of entries in [`Context::bits`], the mask bits that several jobs share.
    pub(crate) shared_bits: usize,
}

impl Jobs {
    /// Divides a plan into jobs (units of work, each for one thread). Every query row of every head is in exactly one
    /// job.
    pub(crate) fn new(plan: &Plan) -> Jobs {
        Self::of_rows(plan, |_| usize::MAX)
    }

    /// Divides a plan into jobs (units of work, each for one thread) that contain only the first `rows(b)` query rows
    /// of each batch row `b`.
    pub(crate) fn of_rows(plan: &Plan, rows: impl Fn(usize) -> usize) -> Jobs {
        let shape = plan.shape();
        plan.patterns().iter().for_each(|pattern| assert_covers(pattern, shape.q_len()));
        let group = shape.head_count() / shape.kv_head_count();
        let (mut groups, mut jobs, mut total) = (Vec::new(), Vec::new(), 0);
        let mut bits = SharedBits::default();
        for batch in 0..shape.batch_len() {
            for kv_head in 0..shape.kv_head_count() {
                let mut rest = runs(plan, batch, kv_head * group..(kv_head + 1) * group);
                while let Some((first, _)) = rest.first() {
                    let group = *first;
                    let order = plan.patterns()[group].key_order();
                    let same_order = |pattern: usize| pattern == group || plan.patterns()[pattern].key_order() == order;
                    let (now, later): (Vec<_>, Vec<_>) =
                        rest.into_iter().partition(|(pattern, _)| same_order(*pattern));
                    rest = later;
                    let mut found: Vec<(u64, Job)> = Vec::new();
                    let mut key_range: Option<Range<usize>> = None;
                    for (pattern, heads) in now {
                        let plan = &plan.patterns()[pattern];
                        let keys = plan.covering_keys();
                        if !keys.is_empty() {
                            let (start, end) = (keys.start as usize, keys.end as usize);
                            key_range =
                                Some(key_range.map_or(start..end, |key_range| {
                                    key_range.start.min(start)..key_range.end.max(end)
                                }));
                        }
                        cut(plan, pattern, batch, heads, rows(batch), &mut bits, &mut found);
                    }
                    found.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
                    let cost = found.iter().map(|(cost, _)| cost).sum::<u64>();
                    total += cost;
                    let first = jobs.len();
                    jobs.extend(found.into_iter().map(|(_, job)| job));
                    let (key_range, jobs) = (key_range.unwrap_or(0..0), first..jobs.len());
                    groups.push(Group { batch, kv_head, pattern: group, key_range, jobs, cost });
                }
            }
        }
        Jobs { groups, jobs, cost: total, shared_bits: bits.0.len() }
    }
}

impl Jobs {
    /// Returns the cost of all jobs. The unit is the cost of one cell.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns each job as `(range of keys, job)`. The range contains all keys that the jobs of the same group may
    /// read.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Range<usize>, &Job)> {
        self.groups
            .iter()
            .flat_map(|group| self.jobs[group.jobs.clone()].iter().map(|job| (group.key_range.clone(), job)))
    }
}

/// Panics if the tiles of `pattern` do not cover the places `0..q_len` in order, or if a query row does not have
/// exactly one of these places. Several threads write outputs at the same time, so no row may be in two tiles.
fn assert_covers(pattern: &PatternPlan, q_len: usize) {
    let mut next = 0;
    for tile in (0..pattern.tile_count()).map(|i| pattern.tile(i)) {
        assert!(
            tile.start == next && tile.end >= next,
            "each tile of a plan must begin at the row where the tile before it ends"
        );
        next = tile.end;
    }
    assert_eq!(next as usize, q_len, "tiles of a plan must cover all query rows");
    if let Some(order) = pattern.query_order() {
        let mut placed = vec![false; q_len];
        for (start, step, len) in order.runs() {
            for row in (0..len).map(|i| (start + i * step) as usize) {
                assert!(
                    !std::mem::replace(&mut placed[row], true),
                    "row {row} has two places in the plan's order of queries"
                );
            }
        }
        assert!(!placed.contains(&false), "a query row has no place in the plan's order of queries");
    }
}

/// Returns runs of neighbouring heads that have the same pattern (the same cells), as `(index of the pattern, heads)`.
fn runs(plan: &Plan, batch: usize, heads: Range<usize>) -> Vec<(usize, Range<usize>)> {
    let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
    for head in heads {
        let pattern = plan.pattern_of(batch, head);
        match runs.last_mut() {
            Some((last, run)) if *last == pattern => run.end = head + 1,
            _ => runs.push((pattern, head..head + 1)),
        }
    }
    runs
}

/// Adds the jobs (query rows that one thread computes) of one pattern to `into`, as `(cost in cells, job)`. `plan` is
/// the pattern with the index `pattern`. The jobs have the heads `heads` and the query rows before `limit`. A tile with
/// more than `ROWS` rows becomes several jobs; several heads of a small tile become one job.
fn cut(
    plan: &PatternPlan,
    pattern: usize,
    batch: usize,
    heads: Range<usize>,
    limit: usize,
    bits: &mut SharedBits,
    into: &mut Vec<(u64, Job)>,
) {
    for index in 0..plan.tile_count() {
        let tile = plan.tile(index);
        let area: u64 = (tile.spans.iter())
            .map(|span| u64::from(span.end - span.start) * if span.kind == SpanKind::Full { 4 } else { 3 } / 4)
            .sum();
        let rows = tile.start as usize..limit.min(tile.end as usize);
        if rows.is_empty() {
            break;
        }
        let parts = rows.len().div_ceil(ROWS);
        let together = (ROWS / rows.len().clamp(1, ROWS)).max(1);
        for part in 0..parts {
            let cut = |i: usize| rows.start + rows.len() * i / parts;
            let rows = cut(part)..cut(part + 1);
            for first in heads.clone().step_by(together) {
                let heads = first..heads.end.min(first + together);
                let bits = bits.entry(pattern, &tile, &rows, heads.len());
                let cost = area * (heads.len() * rows.len()) as u64 + JOB_OVERHEAD;
                into.push((cost, Job { batch, heads, pattern, tile: index, rows: rows.clone(), bits }));
            }
        }
    }
}

/// The indices of the entries of [`Context::bits`], the mask bits that jobs of different heads share. The keys of the
/// map are `(index of the pattern, rows, number of heads)`. The number of heads is included because a job with fewer
/// rows over all heads may divide the same keys into other blocks.
#[derive(Default)]
struct SharedBits(HashMap<(usize, Range<usize>, usize), usize>);

impl SharedBits {
    fn entry(&mut self, pattern: usize, tile: &Tile<'_>, rows: &Range<usize>, heads: usize) -> Option<usize> {
        let mixed = tile.spans.iter().filter(|span| span.kind == SpanKind::Mixed);
        let keys = mixed.map(|span| span.keys()).fold(0, u32::saturating_add);
        let next = self.0.len();
        (1..=MOST_SHARED_KEYS).contains(&keys).then(|| *self.0.entry((pattern, rows.clone(), heads)).or_insert(next))
    }
}

/// One entry of the list of work of a forward pass.
#[derive(Clone)]
enum Step {
    /// Pack the keys and values of a group.
    Pack(usize),
    /// Compute some jobs of a group.
    Jobs { group: usize, jobs: Range<usize> },
    /// Compute the jobs of a group, except those that other threads have taken.
    Group(usize),
}

/// A forward pass: inputs, outputs, and the jobs, which at most `threads` threads compute.
pub(crate) struct Forward<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) jobs: &'a Jobs,
    pub(crate) keys: Keys<'a>,
    pub(crate) threads: usize,
    /// The signal with which the caller can cancel the computation.
    pub(crate) cancel: &'a Cancel<'a>,
}

/// The keys and values of a forward pass.
pub(crate) enum Keys<'a> {
    Given {
        k: Rows<'a>,
        v: Rows<'a>,
    },
    /// Keys and values of a cache: one entry for each batch row and key-value head, in the order `[batch, kv_heads]`.
    Stored(Vec<StoredHead<'a>>),
}

/// The packed keys and values of a group of jobs, stored until the last job of the group has finished.
struct Shared<S: Simd, P> {
    packed: Mutex<Option<Arc<Packed<S, P>>>>,
    /// The number of jobs that threads have taken, if threads take whole groups.
    taken: AtomicUsize,
    /// The number of jobs that are not finished.
    jobs_left: AtomicUsize,
}

/// The state that the threads of a forward pass share.
struct Queue<S: Simd, P> {
    steps: Vec<Step>,
    next: AtomicUsize,
    /// The packed keys and values of each group of jobs.
    shared: Vec<Shared<S, P>>,
    /// The memory of packed keys and values of finished groups of jobs. Other groups use this memory again.
    spare: Mutex<Vec<Packed<S, P>>>,
}

impl Task for Forward<'_> {
    fn pairs(&self) -> bool {
        self.context.q.dtype() == Dtype::Bf16
    }

    const TILES: bool = true;

    fn run<S: Simd>(self, s: S) {
        self.compute::<S, S::Product>(s);
    }
}

impl<'a> Forward<'a> {
    /// Runs the forward pass on an ISA. This function is not generic, so the kernels are compiled once in this crate,
    /// not again in each crate that calls it.
    pub(crate) fn compute_on(self, isa: Isa) {
        isa.run(self);
    }

    fn compute<S: Simd, P: Product>(mut self, s: S) {
        self.context.segments = self.context.plan.patterns().iter().map(segments::<S, P>).collect();
        let head_dim = self.context.q.shape()[3];
        let work = self.jobs.cost.saturating_mul(head_dim as u64);
        let threads = worth_threads(self.threads, work);
        if self.share_tiles::<P>(threads) {
            return self.split::<S, P>(s, threads);
        }
        let threads = threads.min(self.jobs.jobs.len());
        let together = self.together::<P>(threads);
        let steps = match self.by_groups::<P>(threads) {
            true => (0..self.jobs.groups.len()).map(Step::Group).collect(),
            false => self.steps(threads, together),
        };
        let shared: Vec<Shared<S, P>> = (self.jobs.groups.iter())
            .map(|group| Shared {
                packed: Mutex::new(None),
                taken: AtomicUsize::new(0),
                jobs_left: AtomicUsize::new(group.jobs.len()),
            })
            .collect();
        let queue = Queue { steps, next: AtomicUsize::new(0), shared, spare: Mutex::new(Vec::new()) };
        let work = || self.work(s, &queue);
        on_threads(threads, work);
    }

    /// Returns the list of work: the jobs of one group after another, at most `together` in an entry. The entry that packs the
    /// keys of a group is `ahead` groups before the jobs of the group, or at the start of the list.
    fn steps(&self, ahead: usize, together: usize) -> Vec<Step> {
        let groups = &self.jobs.groups;
        let mut steps = Vec::with_capacity(self.jobs.jobs.len() + groups.len());
        let given = matches!(self.keys, Keys::Given { .. });
        let shared = |group: &usize| given && groups[*group].jobs.len() > 1;
        steps.extend((0..groups.len().min(ahead)).filter(shared).map(Step::Pack));
        for (i, group) in groups.iter().enumerate() {
            let first = group.jobs.clone().step_by(together);
            steps.extend(first.map(|job| Step::Jobs { group: i, jobs: job..group.jobs.end.min(job + together) }));
            steps.extend(Some(i + ahead).filter(|i| *i < groups.len()).filter(shared).map(Step::Pack));
        }
        steps
    }

    /// Returns the maximum number of jobs of a group that a thread computes together. With tiles, several jobs pass over keys
    /// that do not fit in the second-level cache, as long as there are several times as many jobs for each thread.
    fn together<P: Product>(&self, threads: usize) -> usize {
        let rows = self.jobs.jobs.iter().map(|job| job.heads.len() * job.rows.len()).max().unwrap_or(1).max(1);
        let numbers = self.context.q.shape()[3] / 2 + self.context.out.shape()[3] + 2 * SIDE;
        let fitting = MOST_TOGETHER.1 / (rows * numbers * size_of::<f32>());
        let shared = self.jobs.jobs.len() / (LEAST_STEPS * threads);
        let keys = self.jobs.cost / (self.jobs.jobs.len().max(1) * rows) as u64;
        if P::TILES && keys >= WORTH_TOGETHER { fitting.min(shared).clamp(1, MOST_TOGETHER.0) } else { 1 }
    }

    /// Returns whether each thread computes whole groups: the packed keys and values of a group fit in the cache of one
    /// thread, and there are several groups for each thread.
    fn by_groups<P: Product>(&self, threads: usize) -> bool {
        let Keys::Given { k, v } = self.keys else { return false };
        let most = self.jobs.groups.iter().map(|group| group.key_range.len()).max().unwrap_or(0);
        let bytes = (k.shape()[3] + v.shape()[3]) * size_of::<f32>() / P::TERMS;
        self.jobs.groups.len() >= 2 * threads && most.saturating_mul(bytes) <= MOST_OF_A_THREAD
    }

    /// Runs on each thread: takes entries of the list of work and computes them, until no entry is left or the call is
    /// cancelled.
    fn work<S: Simd, P: Product>(&self, s: S, queue: &Queue<S, P>) {
        let mut scratch: Vec<Scratch<S>> = Vec::new();
        let take = || queue.steps.get(queue.next.fetch_add(1, Ordering::Relaxed)).cloned();
        let mut next = take();
        while let Some(step) = next {
            if self.cancel.now() {
                return;
            }
            // The next group is taken before this one is computed, so that it can be prefetched meanwhile.
            next = if let Step::Group(_) = step { take() } else { None };
            match step {
                // A group needs no keys if its jobs are already finished.
                Step::Pack(group) if queue.shared[group].jobs_left.load(Ordering::Acquire) == 0 => {}
                Step::Pack(group) => {
                    if let Keys::Given { k, v } = self.keys {
                        drop(self.packed(s, group, self.head(group, k, v), queue));
                    }
                }
                Step::Jobs { group, jobs } => self.jobs(s, queue, group, jobs, None, &mut scratch),
                Step::Group(group) => self.group(s, queue, group, next.as_ref(), &mut scratch),
            }
            next = next.or_else(take);
        }
        // No entry is left for this thread: it computes jobs of the groups of other threads.
        for step in &queue.steps {
            if let Step::Group(group) = *step {
                self.group(s, queue, group, None, &mut scratch);
            }
        }
    }

    /// Computes the jobs of a group that no thread has taken, until none is left or the call is cancelled. `next` is the
    /// entry that the thread computes after this group, if it is known.
    fn group<S: Simd, P: Product>(
        &self,
        s: S,
        queue: &Queue<S, P>,
        group: usize,
        next: Option<&Step>,
        scratch: &mut Vec<Scratch<S>>,
    ) {
        let (jobs, taken) = (&self.jobs.groups[group].jobs, &queue.shared[group].taken);
        let following = match next {
            Some(Step::Group(group)) => Some(*group),
            _ => None,
        };
        while taken.load(Ordering::Relaxed) < jobs.len() && !self.cancel.now() {
            let job = jobs.start + taken.fetch_add(1, Ordering::Relaxed);
            if job < jobs.end {
                self.jobs(s, queue, group, job..job + 1, following, scratch);
            }
        }
    }

    /// Computes the jobs with the indices `jobs`, which belong to the group with the index `group`. `following` is the group
    /// that the thread will compute after this group, if it is known.
    fn jobs<S: Simd, P: Product>(
        &self,
        s: S,
        queue: &Queue<S, P>,
        group: usize,
        jobs: Range<usize>,
        following: Option<usize>,
        scratch: &mut Vec<Scratch<S>>,
    ) {
        // The keys are packed in the segments of one pattern of the group.
        let segments = &self.context.segments;
        let fits = |job: usize| segments[self.jobs.jobs[job].pattern] == segments[self.jobs.groups[group].pattern];
        let packed = match self.keys {
            Keys::Given { k, v } if self.jobs.groups[group].jobs.len() > 1 && jobs.clone().any(fits) => {
                Some(self.packed(s, group, self.head(group, k, v), queue))
            }
            _ => None,
        };
        while scratch.len() < jobs.len() {
            scratch.push(self.scratch::<S, P>());
        }
        let mut tiles: Vec<_> = (jobs.clone().zip(scratch))
            .map(|(job, scratch)| {
                let ahead = following.and_then(|following| self.upcoming(group, job, following));
                self.tile(group, job, packed.as_deref().filter(|_| fits(job)), ahead, scratch)
            })
            .collect();
        s.run(Together(&mut tiles));
        drop(tiles);
        drop(packed);
        if queue.shared[group].jobs_left.fetch_sub(jobs.len(), Ordering::AcqRel) == jobs.len() {
            let last = lock(&queue.shared[group].packed).take();
            lock(&queue.spare).extend(last.and_then(Arc::into_inner));
        }
    }

    /// Returns the kernel that computes the job with the index `job`, which belongs to the group with the index
    /// `group`.
    fn tile<'b, S: Simd, P: Product>(
        &'b self,
        group: usize,
        job: usize,
        packed: Option<&'b Packed<S, P>>,
        ahead: Option<Upcoming>,
        scratch: &'b mut Scratch<S>,
    ) -> TileKernel<'b, 'a, S, P> {
        let Group { batch, kv_head, ref key_range, .. } = self.jobs.groups[group];
        let source = match &self.keys {
            Keys::Given { k, v } => Source::Given(self.head(group, *k, *v), packed),
            Keys::Stored(heads) => Source::Stored(heads[batch * self.context.plan.shape().kv_head_count() + kv_head]),
        };
        TileKernel {
            context: &self.context,
            job: &self.jobs.jobs[job],
            source,
            key_range: key_range.clone(),
            ahead,
            scratch,
        }
    }

    /// Returns the rows that a thread prefetches while it computes the job `job` of the group `group`: the queries of the
    /// next job, the outputs of this job, and a share of the keys and values of the group `following`, which the thread
    /// will compute after this group. Returns `None` if the plan reorders rows, if a job has several heads, and if the
    /// group has only one job, which is too short to prefetch so many rows.
    fn upcoming(&self, group: usize, job: usize, following: usize) -> Option<Upcoming> {
        let (jobs, next) = (&self.jobs.groups[group].jobs, &self.jobs.groups[following]);
        let Keys::Given { k, v } = &self.keys else { return None };
        let after = if job + 1 < jobs.end { job + 1 } else { next.jobs.start };
        let (this, after) = (&self.jobs.jobs[job], self.jobs.jobs.get(after)?);
        let pattern = |index: usize| &self.context.plan.patterns()[index];
        let simple = |job: &Job| job.heads.len() == 1 && pattern(job.pattern).query_order().is_none();
        if jobs.len() == 1 || !simple(this) || !simple(after) || pattern(next.pattern).key_order().is_some() {
            return None;
        }
        let first = |job: &Job| {
            self.context.row(Place { batch: job.batch, head: job.heads.start, row: job.rows.start, key: 0 })
        };
        let part = |i: usize| next.key_range.start + next.key_range.len() * i / jobs.len();
        let keys = part(job - jobs.start)..part(job + 1 - jobs.start);
        let first_key = [next.batch, next.kv_head, keys.start];
        Some(Upcoming::new([
            self.context.q.ahead(first(after), after.rows.len()),
            self.context.out.ahead(first(this), this.rows.len()),
            k.ahead(first_key, keys.len()),
            v.ahead(first_key, keys.len()),
        ]))
    }

    /// Allocates the memory of one thread, large enough for every job.
    fn scratch<S: Simd, P: Product>(&self) -> Scratch<S> {
        let rows = self.jobs.jobs.iter().map(|job| job.heads.len() * job.rows.len()).max().unwrap_or(0);
        let (head_dim, v_dim) = (self.context.q.shape()[3], self.context.out.shape()[3]);
        Scratch::new(rows, head_dim, P::words(head_dim), v_dim.next_multiple_of(S::LANES))
    }

    /// Returns whether all threads together compute each job, instead of one job for each thread. Returns true if the
    /// keys are in a cache, each job has few rows, and the number of jobs is so small that some threads would have no
    /// work at times.
    fn share_tiles<P: Product>(&self, threads: usize) -> bool {
        let jobs = &self.jobs.jobs;
        // Stages round weights in a way of their own.
        !P::TILES
            && matches!(self.keys, Keys::Stored(_))
            && threads > 1
            && jobs.len() < 4 * threads
            && !jobs.len().is_multiple_of(threads)
            && jobs.iter().all(|job| job.heads.len() * job.rows.len() <= split::MOST_ROWS)
    }

    /// Computes all jobs, with the keys of each job divided among threads.
    fn split<S: Simd, P: Product>(&self, s: S, threads: usize) {
        let groups = self.jobs.groups.iter().enumerate();
        let jobs: Vec<(usize, usize)> =
            groups.flat_map(|(i, group)| group.jobs.clone().map(move |job| (i, job))).collect();
        let run = |(group, job): (usize, usize), task: split::Task<'_, S>, scratch: &mut Scratch<S>| {
            s.run(SplitKernel { tile: self.tile::<S, P>(group, job, None, None, scratch), task });
        };
        let scratch = || self.scratch::<S, P>();
        let mut parts: Vec<Vec<Part<S>>> = jobs.iter().map(|_| Vec::new()).collect();
        let most = (4 * threads).div_ceil(jobs.len());
        let mut first = scratch();
        jobs.iter().zip(&mut parts).for_each(|(job, parts)| run(*job, split::Task::Cut(most, parts), &mut first));

        let items = jobs.iter().zip(&mut parts).flat_map(|(job, parts)| parts.iter_mut().map(|part| (*job, part)));
        share(threads, items.collect(), scratch, |(job, part), scratch| run(job, split::Task::Score(part), scratch));

        let maxima: Vec<Vec<f32>> = parts.iter().map(|parts| Part::maxima(parts)).collect();
        let items = jobs.iter().zip(&mut parts).zip(&maxima);
        let items = items.flat_map(|((job, parts), maxima)| parts.iter_mut().map(move |part| (*job, part, maxima)));
        share(threads, items.collect(), scratch, |(job, part, maxima), scratch| {
            run(job, split::Task::Weigh(part, maxima), scratch);
        });

        let width = self.context.out.shape()[3].div_ceil(S::LANES);
        let pieces = threads.min(width);
        let columns = (0..pieces).map(|i| width * i / pieces..width * (i + 1) / pieces);
        let columns: Vec<(Range<usize>, Vec<S::V>)> = columns.map(|columns| (columns, Vec::new())).collect();
        let mut columns = vec![columns; jobs.len()];
        let items = jobs.iter().zip(&parts).zip(&mut columns);
        let items =
            items.flat_map(|((job, parts), columns)| columns.iter_mut().map(move |column| (*job, parts, column)));
        share(threads, items.collect(), scratch, |(job, parts, (columns, acc)), scratch| {
            run(job, split::Task::Accumulate(parts, columns.clone(), acc), scratch);
        });
        for (((job, parts), maxima), columns) in jobs.iter().zip(&parts).zip(&maxima).zip(&columns) {
            run(*job, split::Task::Finish(parts, maxima, columns), &mut first);
        }
    }

    fn head(&self, group: usize, k: Rows<'a>, v: Rows<'a>) -> Head<'a> {
        let Group { batch, kv_head, pattern, ref key_range, cost, .. } = self.jobs.groups[group];
        let order = self.context.plan.patterns()[pattern].key_order();
        let align_values = cost / WORTH_ALIGNING > key_range.len() as u64;
        Head { k, v, batch, head: kv_head, order, align_values }
    }

    /// Returns the packed keys and values of the group with the index `group`. Packs them first if no thread has packed
    /// them.
    fn packed<S: Simd, P: Product>(
        &self,
        s: S,
        group: usize,
        head: Head<'a>,
        queue: &Queue<S, P>,
    ) -> Arc<Packed<S, P>> {
        let mut packed = lock(&queue.shared[group].packed);
        let pack = || {
            let mut memory = lock(&queue.spare).pop().unwrap_or_else(Packed::empty);
            let Group { pattern, ref key_range, .. } = self.jobs.groups[group];
            let segments = &self.context.segments[pattern];
            s.run(Refill { packed: &mut memory, head, segments, key_range: key_range.clone() });
            Arc::new(memory)
        };
        packed.get_or_insert_with(pack).clone()
    }
}

/// Returns the division of the keys of a pattern into segments: if words are pairs, at the keys at which content begins.
pub(crate) fn segments<S: Simd, P: Product>(plan: &PatternPlan) -> Segments {
    let starts = if P::TERMS == 1 { Vec::new() } else { plan.content_starts() };
    Segments::new(starts, if P::TILES { group::<S, P>() } else { P::TERMS }, group::<S, P>())
}

/// Calls `run` for each of `items` on `threads` threads. Each thread takes one item after another, and calls `memory`
/// once to allocate its own memory.
fn share<T: Send, M>(threads: usize, items: Vec<T>, memory: impl Fn() -> M + Sync, run: impl Fn(T, &mut M) + Sync) {
    let items = Mutex::new(items.into_iter());
    let work = || {
        let mut own = None;
        let next = || lock(&items).next();
        while let Some(item) = next() {
            run(item, own.get_or_insert_with(&memory));
        }
    };
    on_threads(threads, work);
}

/// Locks a mutex, even if another thread panicked while it held the lock. The caller of the crate gets the panic of the
/// other thread in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
