//! Runs work on several threads of the current rayon pool.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of threads for work of `multiplications` multiplications: one thread, and one more for each 2^20
/// multiplications, but at most `threads`. For less work, the start of another thread takes more time than the thread
/// saves.
pub(crate) fn worth_threads(threads: usize, multiplications: u64) -> usize {
    const WORTH_A_THREAD: u64 = 1 << 20;
    threads.min((multiplications / WORTH_A_THREAD) as usize + 1)
}

/// Calls `work` on up to `threads` threads, including the current one. The current thread begins at once, even if it does not
/// belong to the pool. A call of `work` may wait for another call only while the other call runs no closure of the user and
/// no task of the pool.
pub(crate) fn on_threads(threads: usize, work: impl Fn() + Sync) {
    here_and_there(threads, &work, &work);
}

/// Calls `work` as [`on_threads`] does, but of the other threads only on those that are not inside a call of `work`.
///
/// A call of `work` may wait for another thread that has begun `work` earlier. Therefore a thread that is in a call of
/// `work` must not begin a second call of `work`. This could happen if a closure of the user waits for the thread pool,
/// because a waiting thread of a pool runs other tasks.
pub(crate) fn on_waiting_threads(threads: usize, work: impl Fn() + Sync) {
    thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let inside = || {
        let _leave = Leave(INSIDE.replace(true));
        work();
    };
    let unless_inside = || {
        if !INSIDE.get() {
            inside();
        }
    };
    here_and_there(threads, inside, unless_inside);
}

/// Calls `here` on the current thread, and meanwhile `there` on up to `threads - 1` threads of the current rayon pool.
fn here_and_there(threads: usize, here: impl FnOnce(), there: impl Fn() + Sync) {
    if threads <= 1 {
        return here();
    }
    rayon::in_place_scope(|scope| {
        (1..threads).for_each(|_| scope.spawn(|_| there()));
        here();
    });
}

/// Calls `work` once with each number of `0..count`, on up to `threads` threads.
pub(crate) fn for_each(threads: usize, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    on_waiting_threads(threads.min(count), || {
        let numbers = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count);
        std::iter::from_fn(numbers).for_each(&work);
    });
}
