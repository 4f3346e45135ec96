//! Several threads doing the same at the same time, timed round by round.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rounds that a measurement is cut into; fewer where one repetition takes longer than its share, never below the least.
const ROUNDS: usize = 12;
const LEAST_ROUNDS: usize = 3;

/// How often something was done each second, by all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// The median of the rounds.
    pub median: f64,
    /// The best round.
    pub best: f64,
}

/// Where the threads of one measurement meet.
pub(super) struct Stage {
    barrier: Barrier,
    time: Duration,
    /// What one thread found out for all: repetitions in a round, and rounds.
    repetitions: AtomicUsize,
    rounds: AtomicUsize,
    /// By round, what all threads did each second.
    rates: Mutex<Vec<f64>>,
}

/// Calls `part` on so many threads; each must come to [`Stage::turns`] exactly once.
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
    /// Times `work(n)`, which does something `n` times, each worth so many `units`: all threads begin each round together.
    pub(super) fn turns(&self, units: f64, mut work: impl FnMut(usize)) {
        work(1);
        // All find out how often fits into a round, at the same time, because they slow each other down; one answer counts.
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

/// How often `work` fits into `time`, at least once, and what once takes in seconds.
fn fit(time: Duration, work: &mut impl FnMut(usize)) -> (usize, f64) {
    let mut repetitions = 1;
    loop {
        let start = Instant::now();
        work(repetitions);
        let took = start.elapsed();
        // A quarter of the time is long enough to divide it.
        if took * 4 >= time || repetitions >= 1 << 40 {
            let once = (took.as_secs_f64() / repetitions as f64).max(1e-12);
            return (((time.as_secs_f64() / once) as usize).max(1), once);
        }
        repetitions *= 2;
    }
}
