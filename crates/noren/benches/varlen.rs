//! Measures the overhead and the allocations of `noren::varlen` when the planner already stores the plans for the
//! sequence lengths.
//!
//! Two computations of the same sequences alternate: one call of `Varlen::forward_into`, and one call of
//! `attention_into` for each sequence with a plan that is made before. Both computations use one thread, so that the
//! time to start threads does not hide the difference of the two times. The difference is the overhead of `Varlen`. In
//! each call, `attention_into` divides its plan into jobs, while `Varlen` stores this division together with the plan.
//! The difference is negative if this saves more time than `Varlen` adds. A third column is the time of a `Varlen` call
//! that is cancelled before its first tile: all checks, lookups and preparations, but no attention. The allocator of
//! this program counts the allocations.
//!
//! ```sh
//! cargo bench -p noren --bench varlen
//! ```

use noren::varlen::{Planner, Sequences, Varlen, packed, packed_mut};
use noren::{Error, Facts, Inputs, Options, Outputs, Plan, Shape, View, ViewMut, atoms, attention_into};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The allocator of the system, which also counts allocations and allocated bytes.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the allocator of the system with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls `run`, and returns `(number of allocations, number of allocated bytes)` of this call.
fn counted(run: impl FnOnce()) -> (u64, u64) {
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    run();
    (ALLOCATIONS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

const HEADS: usize = 4;
const HEAD_DIM: usize = 32;

fn main() {
    println!(
        "sequences  tokens | us: one call | us: one call per sequence | us: difference (median of rounds) | us: cancelled call | allocations, allocated bytes: one call | one call per sequence | bytes of the output"
    );
    for lens in
        [vec![16], vec![128], vec![16; 8], vec![5, 40, 17, 64, 9, 33, 21, 12], vec![16; 32], vec![400, 20, 100, 7]]
    {
        measure(&lens);
    }
}

fn measure(lens: &[usize]) {
    let tokens: usize = lens.iter().sum();
    let shape = [tokens, HEADS, HEAD_DIM];
    let values = |seed: usize| -> Vec<f32> {
        (0..tokens * HEADS * HEAD_DIM).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    };
    let (q, k, v) = (values(1), values(2), values(3));
    let (mut out, mut expected) = (values(4), values(4));
    let mut cu_seqlens = vec![0i32];
    lens.iter().for_each(|len| cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + *len as i32));
    let view = |x| packed(x, shape).expect("the sizes fit");
    let inputs = Inputs { q: view(&q), k: view(&k), v: view(&v) };

    let planner = Planner::default();
    let mut one_call = || {
        let sequences = Sequences::packed(&cu_seqlens, &cu_seqlens).expect("the lengths rise");
        let outputs = Outputs { out: packed_mut(&mut out, shape).expect("the sizes fit"), lse: None };
        Varlen::new(sequences).causal(true).threads(1).forward_into(&planner, &inputs, outputs).expect("computes");
    };
    let flag = AtomicBool::new(true);
    let mut cancelled_out = values(5);
    let mut cancelled = || {
        let sequences = Sequences::packed(&cu_seqlens, &cu_seqlens).expect("the lengths rise");
        let outputs = Outputs { out: packed_mut(&mut cancelled_out, shape).expect("the sizes fit"), lse: None };
        let call = Varlen::new(sequences).causal(true).threads(1).cancel(&flag);
        assert_eq!(call.forward_into(&planner, &inputs, outputs), Err(Error::Cancelled));
    };
    let plans: Vec<Plan> = lens
        .iter()
        .map(|len| {
            let bound = atoms::causal().bind(&Shape::square(*len).heads(HEADS), &Facts::new());
            bound.expect("a causal mask needs no data besides its shape").plan()
        })
        .collect();
    let options = Options::new().threads(1);
    let mut by_sequence = || {
        let strides = [0, HEAD_DIM as isize, (HEADS * HEAD_DIM) as isize, 1];
        for (i, plan) in plans.iter().enumerate() {
            let offset = cu_seqlens[i] as usize * HEADS * HEAD_DIM;
            let shape = [1, HEADS, lens[i], HEAD_DIM];
            let part = |x| View::strided(x, shape, strides, offset).expect("the sizes fit");
            let inputs = Inputs { q: part(&q), k: part(&k), v: part(&v) };
            let out = ViewMut::strided(&mut expected, shape, strides, offset).expect("the sizes fit");
            attention_into(&inputs, plan, &options, Outputs { out, lse: None }).expect("computes");
        }
    };
    one_call();
    by_sequence();
    let allocations = [counted(&mut one_call), counted(&mut by_sequence)];

    let rounds = 400;
    let mut times: Vec<[f64; 3]> = Vec::with_capacity(rounds);
    let timed = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..10 {
            run();
        }
        start.elapsed().as_secs_f64() * 1e5
    };
    for _ in 0..rounds {
        times.push([timed(&mut one_call), timed(&mut by_sequence), timed(&mut cancelled)]);
    }
    let median = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let [one, each, idle] = [0, 1, 2].map(|i| median(times.iter().map(|time| time[i]).collect()));
    let difference = median(times.iter().map(|time| time[0] - time[1]).collect());
    assert_eq!(out, expected, "one call over all sequences and one call per sequence give the same bits");
    let [(a, a_bytes), (b, b_bytes)] = allocations;
    println!(
        "{:9} {tokens:7} | {one:11.1} | {each:14.1} | {difference:13.2} | {idle:17.2} | {a:4}, {a_bytes:8} | {b:4}, {b_bytes:8} | {:8}",
        lens.len(),
        4 * tokens * HEADS * HEAD_DIM
    );
}
