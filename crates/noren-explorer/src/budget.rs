//! [`Budget`]: a number of units that threads share and give back.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Units that are free, and a signal for threads that wait for some.
#[derive(Debug)]
pub(crate) struct Budget {
    free: Mutex<usize>,
    returned: Condvar,
}

/// Units that are taken; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    units: usize,
}

impl Budget {
    /// A budget of so many units.
    pub(crate) fn new(units: usize) -> Arc<Self> {
        Arc::new(Budget { free: Mutex::new(units), returned: Condvar::new() })
    }

    /// Takes units, for which others may have to be given back first. Returns `None` when that takes longer than `patience`.
    pub(crate) fn take(self: &Arc<Self>, units: usize, patience: Duration) -> Option<Share> {
        let end = Instant::now() + patience;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < units {
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            free = self.returned.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= units;
        Some(Share { budget: self.clone(), units })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.free.lock().unwrap_or_else(PoisonError::into_inner) += self.units;
        self.budget.returned.notify_all();
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
}
