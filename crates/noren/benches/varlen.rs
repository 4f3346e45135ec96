//! The overhead and the allocations of `noren::varlen` for lengths whose plans are kept.
//!
//! The same sequences are computed in alternation by one call of `Varlen::forward_into`, and by one call of `attention_into` for each
//! sequence, with plans made before. Both use one thread, so that times of starting threads do not hide the difference. The second
//! number is the kernel: plans, views and checks of each sequence are ready. Allocations are counted by the allocator of this program.
//!
//! ```sh
//! cargo bench -p noren --bench varlen
//! ```

use noren::varlen::{Planner, Sequences, Varlen, packed, packed_mut};
use noren::{Facts, Inputs, Options, Outputs, Plan, Shape, View, ViewMut, atoms, attention_into};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The allocator of the system, with a count of allocations and of their bytes.
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

/// Returns the allocations and the allocated bytes of `run`.
fn counted(run: impl FnOnce()) -> (u64, u64) {
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    run();
    (ALLOCATIONS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
}

const HEADS: usize = 4;
const HEAD_DIM: usize = 32;

fn main() {
    println!(
        "sequences  tokens | one call us | by sequence us | difference us (median of rounds) | allocations, bytes: one call | by sequence | output bytes"
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
    let plans: Vec<Plan> = lens
        .iter()
        .map(|len| {
            let bound = atoms::causal().bind(&Shape::square(*len).heads(HEADS), &Facts::new());
            bound.expect("no facts are needed").plan()
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
    let mut times: Vec<[f64; 2]> = Vec::with_capacity(rounds);
    let timed = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..10 {
            run();
        }
        start.elapsed().as_secs_f64() * 1e5
    };
    for _ in 0..rounds {
        times.push([timed(&mut one_call), timed(&mut by_sequence)]);
    }
    let median = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let [one, each] = [0, 1].map(|i| median(times.iter().map(|time| time[i]).collect()));
    let difference = median(times.iter().map(|time| time[0] - time[1]).collect());
    assert_eq!(out, expected, "both give the same bits");
    let [(a, a_bytes), (b, b_bytes)] = allocations;
    println!(
        "{:9} {tokens:7} | {one:11.1} | {each:14.1} | {difference:13.2} | {a:4}, {a_bytes:8} | {b:4}, {b_bytes:8} | {:8}",
        lens.len(),
        4 * tokens * HEADS * HEAD_DIM
    );
}
