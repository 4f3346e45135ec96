//! The number of cells that a forward pass computes.

use super::dispatch::Task;
use super::forward::{Jobs, segments};
use super::keys::blocks::{Cells, KeyBlocks, fill_words};
use super::math::micro::WIDE;
use super::simd::{Product, Simd, group};
use super::tile::{Job, needed_keys};
use crate::{Dtype, Isa};
use noren_mask::Plan;
use std::ops::Range;

/// Returns the number of cells that a forward pass with `plan` computes on `isa`, over all batch rows and heads.
/// Queries, keys and values have the type `dtype`. The number is the mean over both matrix products: the cells whose
/// scores are computed, and the cells whose weights are multiplied by values.
///
/// The number is equal to or larger than the number of allowed cells: a kernel computes several rows and lanes
/// together, some of them for hidden cells. It may be smaller than the number of cells in the tiles of the plan
/// ([`Stats::computed`](noren_mask::Stats::computed)), because a kernel omits keys that no row of a register tile
/// reads.
///
/// ```
/// use noren::{Dtype, Facts, Isa, Shape, atoms, machine::computed_cells};
///
/// let plan = atoms::causal().bind(&Shape::square(512), &Facts::new())?.plan();
/// let cells = computed_cells(&plan, Isa::Portable, Dtype::F32);
/// assert!(cells >= 512 * 513 / 2 && u128::from(cells) <= u128::from(plan.stats().computed));
/// # Ok::<(), noren::Error>(())
/// ```
pub fn computed_cells(plan: &Plan, isa: Isa, dtype: Dtype) -> u64 {
    let mut cells = 0;
    isa.run(Count { plan, pairs: dtype == Dtype::Bf16, cells: &mut cells });
    cells
}

struct Count<'a> {
    plan: &'a Plan,
    /// Whether queries, keys and values are `bf16`. A processor path may then multiply pairs of numbers.
    pairs: bool,
    cells: &'a mut u64,
}

impl Task for Count<'_> {
    fn pairs(&self) -> bool {
        self.pairs
    }

    const TILES: bool = true;

    fn run<S: Simd>(self, _: S) {
        let jobs = Jobs::new(self.plan);
        let of_job = |(key_range, job)| cells_of_job::<S, S::Product>(self.plan, key_range, job);
        let both: u64 = jobs.each().map(of_job).sum();
        *self.cells = both.div_ceil(2);
    }
}

/// Returns the number of cells that the forward pass computes for `job` (query rows that one thread computes). A cell
/// that both matrix products compute counts twice. `key_range` contains all keys that the job reads.
fn cells_of_job<S: Simd, P: Product>(plan: &Plan, key_range: Range<usize>, job: &Job) -> u64 {
    let pattern = &plan.patterns()[job.pattern];
    let lanes = group::<S, P>();
    let spans = pattern.tile(job.tile).spans;
    let rows = job.heads.len() * job.rows.len();
    let mut words = vec![0; rows];
    let mut cells = 0;
    let segments = &segments::<S, P>(pattern);
    for block in (KeyBlocks { spans, key_range, segments, lanes, widest: WIDE, page: usize::MAX, next: 0 }) {
        match block.cells {
            Cells::Full => {
                cells += 2 * rows * block.groups.len() * lanes;
                continue;
            }
            Cells::Uniform(word) => words.fill(word),
            Cells::Mixed => {
                fill_words(pattern, &job.rows, &block.keys, &mut words[..job.rows.len()]);
                (1..job.heads.len()).for_each(|head| words.copy_within(..job.rows.len(), head * job.rows.len()));
            }
        }
        for tile in words.chunks(S::BAND) {
            let keys = needed_keys(tile);
            let scores = keys.end.next_multiple_of(lanes) - keys.start / lanes * lanes;
            let unit = if P::TILES { lanes } else { P::TERMS };
            let values = keys.end.next_multiple_of(unit) - keys.start / unit * unit;
            cells += tile.len() * (scores + values);
        }
    }
    cells as u64
}
