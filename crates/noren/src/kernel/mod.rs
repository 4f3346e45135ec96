//! The kernels: generic algorithms (forward in [`tile`], backward in [`backward`]) over small vector operations
//! ([`simd`]), and the code that distributes the work over threads.

pub(crate) mod ahead;
pub(crate) mod backward;
pub(crate) mod blocks;
pub(crate) mod count;
pub(crate) mod dispatch;
pub(crate) mod dropout;
pub(crate) mod exp;
pub(crate) mod forward;
pub(crate) mod linear;
pub(crate) mod lines;
pub(crate) mod micro;
pub(crate) mod pack;
pub(crate) mod rows;
pub(crate) mod scores;
pub(crate) mod simd;
pub(crate) mod store;
pub(crate) mod tile;

/// Returns the number of threads for work of `multiplications` multiplications: one thread, and one more for each 2^20
/// multiplications, but at most `threads`. For less work, the start of another thread takes more time than the thread
/// saves.
pub(crate) fn worth_threads(threads: usize, multiplications: u64) -> usize {
    const WORTH_A_THREAD: u64 = 1 << 20;
    threads.min((multiplications / WORTH_A_THREAD) as usize + 1)
}
