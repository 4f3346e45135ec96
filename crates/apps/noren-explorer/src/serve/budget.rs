//! [`Budget`]: a limited number of units, such as connections or MiB of memory, that threads reserve and release.
//! Threads that wait for units receive them in the order of their requests.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a thread that waits for units checks with `gone` whether the client of the request has
/// disconnected.
const LOOK: Duration = Duration::from_millis(250);

/// A limited number of units, such as connections or MiB of memory, that threads reserve. `state` has the number of
/// free units and the waiting threads; `changed` wakes the waiting threads when units become free.
#[derive(Debug)]
pub(crate) struct Budget {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The number of units, such as bytes, that no [`Share`] holds.
    free: usize,
    /// The number that the next thread gets when it calls `take`. `queue` holds the numbers of the threads that wait.
    next: u64,
    /// The numbers of the waiting threads, in the order of their requests.
    queue: VecDeque<u64>,
}

/// Units that were taken from a budget. Dropping the value gives the units back to the budget.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    units: usize,
}

impl Budget {
    /// Returns a budget in which all `units` units are free.
    pub(crate) fn new(units: usize) -> Arc<Self> {
        let state = State { free: units, next: 0, queue: VecDeque::new() };
        Arc::new(Budget { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Takes `units` units, and waits while too few units are free. Returns `None` after a wait of `patience`.
    pub(crate) fn take(self: &Arc<Self>, units: usize, patience: Duration) -> Option<Share> {
        self.take_unless(units, patience, &|| false)
    }

    /// Takes `units` units like [`take`](Self::take). Also returns `None` as soon as `gone()` returns true, which means
    /// that the caller no longer needs the units.
    pub(crate) fn take_unless(
        self: &Arc<Self>,
        units: usize,
        patience: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Option<Share> {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.queue.push_back(number);
        let taken = loop {
            if state.queue.front() == Some(&number) && state.free >= units {
                state.free -= units;
                break true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || gone() {
                break false;
            }
            state = self.changed.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.queue.retain(|waiting| *waiting != number);
        drop(state);
        // the next thread in the queue may now take its units
        self.changed.notify_all();
        taken.then(|| Share { budget: self.clone(), units })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.lock().free += self.units;
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_once_and_given_back() {
        let budget = Budget::new(3);
        let two = budget.take(2, Duration::ZERO).expect("free units");
        assert!(budget.take(2, Duration::from_millis(5)).is_none());
        let waiting = budget.clone();
        let thread = std::thread::spawn(move || waiting.take(3, Duration::from_secs(60)).is_some());
        drop(two);
        assert!(thread.join().expect("no panic"));
        assert!(budget.take(3, Duration::ZERO).is_some());
    }

    #[test]
    fn threads_are_served_in_their_order_and_leave_when_nothing_is_wanted() {
        let budget = Budget::new(2);
        let one = budget.take(1, Duration::ZERO).expect("a free unit");
        let large = budget.clone();
        let first = std::thread::spawn(move || large.take(2, Duration::from_secs(60)).is_some());
        while budget.lock().queue.is_empty() {
            std::thread::yield_now();
        }
        // one unit is free, but the thread before in the queue still waits
        assert!(budget.take(1, Duration::from_millis(5)).is_none());
        assert!(budget.take_unless(1, Duration::from_secs(60), &|| true).is_none());
        drop(one);
        assert!(first.join().expect("no panic"));
        assert!(budget.lock().queue.is_empty());
    }
}
