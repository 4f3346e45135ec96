//! The runner of property tests. The seed is fixed, so that a run can be repeated. `PROPTEST_RNG_SEED=n` sets another
//! seed, and `PROPTEST_CASES_FACTOR=n` runs `n` times the number of cases.

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// Runs the test `law` on `cases` random values of `strategy`. Panics with the smallest counterexample if `law` panics.
pub fn check<S: Strategy>(cases: u32, strategy: S, law: impl Fn(S::Value)) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let config = ProptestConfig {
        cases: cases * number("PROPTEST_CASES_FACTOR").unwrap_or(1) as u32,
        rng_seed: RngSeed::Fixed(number("PROPTEST_RNG_SEED").unwrap_or(7)),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        law(value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
