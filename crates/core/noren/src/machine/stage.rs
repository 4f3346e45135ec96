//! Measurements of a rate: several threads do the same work at the same time, in timed rounds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of rounds of a measurement. In each round, each thread times some repetitions of the work. If one
/// repetition takes longer than the total time divided by `ROUNDS`, there are fewer rounds, but at least
/// `LEAST_ROUNDS`.
const ROUNDS: usize = 12;
const LEAST_ROUNDS: usize = 3;

/// A measured rate: the number of units (operations, values or bytes) per second, of all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// The median rate over the timed rounds, in units (operations, values or bytes) per second.
    pub median: f64,
    /// The rate of the fastest timed round, in units (operations, values or bytes) per second.
    pub best: f64,
}

/// The state that the threads share while they measure the same work together.
pub(super) struct Stage {
    barrier: Barrier,
    time: Duration,
    /// The number of times that each thread repeats the measured work in one round.
    repetitions: AtomicUsize,
    rounds: AtomicUsize,
    /// For each round, the sum of the rates of all threads, in units per second.
    rates: Mutex<Vec<f64>>,
}

/// Calls `part` on `threads` threads at the same time, and returns the rate of all threads together. `part` must call
/// [`Stage::turns`] exactly once; the measurement takes about `time`.
pub(super) fn measure(threads: usize, time: Duration, part: impl Fn(&Stage) + Sync) -> Rate {
    let stage = Stage {
        barrier: Barrier::new(threads),
        time,
        repetitions: AtomicUsize::new(1),
        rounds: AtomicUsize::new(LEAST_ROUNDS),
        rates: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(|| part(&stage))));
        part(&stage);
    });
    let mut rates = stage.rates.into_inner().unwrap_or_else(PoisonError::into_inner);
    rates.sort_by(f64::total_cmp);
    Rate { median: rates[rates.len() / 2], best: rates[rates.len() - 1] }
}

impl Stage {
    /// Measures, on the calling thread, how fast `work` repeats the measured work, and adds the rate of each round to
    /// the rates of the other threads. `work(n)` does the measured work `n` times; doing it once counts as `units`
    /// units (operations, values or bytes). All threads begin each round together.
    pub(super) fn turns(&self, units: f64, mut work: impl FnMut(usize)) {
        work(1);
        // All threads find the number of repetitions at the same time, because they slow each other down. The result of
        // one thread is used.
        let share = self.time.div_f64(ROUNDS as f64);
        let (repetitions, once) = fit(share, &mut work);
        if self.barrier.wait().is_leader() {
            let rounds = self.time.as_secs_f64() / (once * repetitions as f64).max(1e-9);
            self.repetitions.store(repetitions, Ordering::Relaxed);
            self.rounds.store((rounds as usize).clamp(LEAST_ROUNDS, ROUNDS), Ordering::Relaxed);
        }
        self.barrier.wait();
        let repetitions = self.repetitions.load(Ordering::Relaxed);
        for round in 0..self.rounds.load(Ordering::Relaxed) {
            self.barrier.wait();
            let start = Instant::now();
            work(repetitions);
            let rate = units * repetitions as f64 / start.elapsed().as_secs_f64().max(1e-9);
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            match rates.get_mut(round) {
                Some(sum) => *sum += rate,
                None => rates.push(rate),
            }
        }
    }
}

/// Returns `(number of repetitions that fit into time, seconds of one repetition)`. The number is at least 1. `work(n)`
/// does the measured work `n` times.
fn fit(time: Duration, work: &mut impl FnMut(usize)) -> (usize, f64) {
    let mut repetitions = 1;
    loop {
        let start = Instant::now();
        work(repetitions);
        let took = start.elapsed();
        // A quarter of the time is enough for an exact estimate.
        if took * 4 >= time || repetitions >= 1 << 40 {
            let once = (took.as_secs_f64() / repetitions as f64).max(1e-12);
            return (((time.as_secs_f64() / once) as usize).max(1), once);
        }
        repetitions *= 2;
    }
}
