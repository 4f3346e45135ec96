//! [`Job`]: runs one attention computation over arrays, with a bound mask, its plan and the options of the kernels.

use super::args::AttendArgs;
use super::inputs::{Dims, Inputs};
use crate::failure::{Failure, Result};
use crate::target::Target;
use noren::{Attention, Isa, Options};
use noren_input::request::alignment;
use noren_input::tensors;
use noren_mask::{Facts, Plan, PlanOptions, Shape, Spec};
use std::time::{Duration, Instant};

/// Maximum number of threads. To start more threads takes longer than most attention computations.
const MOST_THREADS: usize = 256;

/// One attention computation: the arrays, the bound mask, the plan and the kernel options.
pub(crate) struct Job<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) spec: &'a Spec,
    pub(crate) plan: Plan,
    pub(crate) options: Options<'a>,
    pool: rayon::ThreadPool,
}

/// The result of one attention computation: the output, the time, the instruction set (ISA) that the kernels used, and
/// the number of threads.
pub(crate) struct Done {
    pub(crate) output: Attention,
    pub(crate) time: Duration,
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
}

impl Done {
    /// Writes `out` and `lse` to the output file. With `None`, nothing is written.
    pub(super) fn save(&self, target: Option<&Target>) -> Result<()> {
        let Some(target) = target else { return Ok(()) };
        let (output, shape) = (&self.output, self.output.shape);
        target.write(|out| tensors::write(out, &[("out", &shape, &output.out), ("lse", &shape[..3], &output.lse)]))
    }
}

impl<'a> Job<'a> {
    /// Creates an attention computation for the mask and score modifiers of `spec`: binds the mask to the shapes of the
    /// arrays, and finds the tensors to which the score modifiers refer.
    pub(crate) fn new(inputs: &'a Inputs, spec: &'a Spec, facts: &Facts, args: &AttendArgs) -> Result<Self> {
        Self::with_blocks(inputs, spec, facts, args, &PlanOptions::default())
    }

    /// Creates an attention computation as `new` does, with the tile sizes in `blocks`.
    pub(crate) fn with_blocks(
        inputs: &'a Inputs,
        spec: &'a Spec,
        facts: &Facts,
        args: &AttendArgs,
        blocks: &PlanOptions,
    ) -> Result<Self> {
        let plan = spec.mask.bind(&shape(&inputs.dims(), &args.query_offset)?, facts)?.plan_with(blocks);
        let mut options = options(inputs, spec)?;
        options.scale = args.scale;
        let threads = args.threads.unwrap_or(0);
        if args.threads == Some(0) || threads > MOST_THREADS {
            let message = format!(
                "--threads is {threads}: give 1 to {MOST_THREADS}, or leave --threads out for one thread per processor"
            );
            return Err(Failure::new(message));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| Failure::new(format!("{threads} threads cannot be started: {e}")))?;
        Ok(Job { inputs, spec, plan, options, pool })
    }

    /// Computes the attention.
    pub(crate) fn run(&self) -> Result<Done> {
        let inputs = self.inputs.arrays()?;
        let isa = Isa::choose(None)?;
        let start = Instant::now();
        let output = self.pool.install(|| noren::attention(&inputs, &self.plan, &self.options))?;
        Ok(Done { output, time: start.elapsed(), isa, threads: self.pool.current_num_threads() })
    }

    /// Runs `work` on the thread pool of this computation.
    pub(crate) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}

fn shape(dims: &Dims, query_offset: &[i64]) -> Result<Shape> {
    if dims.q_len != dims.kv_len && query_offset.is_empty() {
        return Err(alignment(dims.q_len, dims.kv_len).into());
    }
    let shape = Shape::new(dims.q_len, dims.kv_len, 0).batch(dims.batch).heads(dims.heads).kv_heads(dims.kv_heads);
    Ok(match query_offset {
        [] => shape,
        offsets => shape.query_offsets(offsets.iter().copied()),
    })
}

/// Returns the kernel options that apply the score modifiers of the mask `spec`.
fn options<'a>(inputs: &'a Inputs, spec: &Spec) -> Result<Options<'a>> {
    Options::for_scores(&spec.scores, inputs.dims().heads, |score, _| {
        inputs
            .table(score)?
            .ok_or_else(|| Failure::new(format!("the score `{score}` reads a tensor that is not in the file")))
    })
}
