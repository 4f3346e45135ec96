//! Random expressions over all atoms at 1,048,576 x 1,048,576: each plans and counts within its budget or returns an
//! error.
//!
//!     NOREN_MILLION=500 cargo test --release -p noren-mask --test all million:: -- --nocapture
//!
//! `NOREN_MILLION` is the number of expressions. [default: 24] With the default, each expression must take less than 10
//! seconds of processor time, and all together less than 1 GiB of memory.

use noren_mask::{Array, Budget, Error, Facts, Mask, PlanOptions, Shape, Side};
use std::time::Instant;

const LEN: usize = 1 << 20;

/// A small generator of pseudo-random numbers, which depend only on the seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Returns a number of at most `most`. All orders of magnitude are equally frequent.
    fn size(&mut self, most: usize) -> usize {
        let bits = self.below(65 - most.leading_zeros() as usize);
        1 + self.below(most.min(1 << bits))
    }

    /// Returns at most `most` parts of the sequence.
    fn parts(&mut self, most: usize) -> Vec<usize> {
        let count = self.size(most);
        let mut cuts: Vec<usize> = (1..count).map(|_| self.below(LEN)).collect();
        cuts.sort_unstable();
        let ends: Vec<usize> = cuts.into_iter().chain([LEN]).collect();
        std::iter::once(0).chain(ends.iter().copied()).zip(&ends).map(|(start, end)| end - start).collect()
    }

    fn set(&mut self) -> String {
        match self.below(4) {
            0 => format!(r#"label="{}""#, ["few", "many"][self.below(2)]),
            1 => self.size(LEN).to_string(),
            2 => {
                let start = self.below(LEN);
                format!("{start}..{}", start + self.size(LEN))
            }
            _ => {
                let list: Vec<String> = (0..self.size(40)).map(|_| self.below(LEN).to_string()).collect();
                format!("[{}]", list.join(", "))
            }
        }
    }

    fn grid(&mut self) -> String {
        let dims: &[usize] = [&[LEN][..], &[1024, 1024], &[64, 128, 128]][self.below(3)];
        let lists = dims.iter().map(|len| {
            let dilation = if self.below(3) == 0 { self.size(8) } else { 1 };
            (self.size(31).min(len / dilation), dilation)
        });
        let (sizes, dilations): (Vec<usize>, Vec<usize>) = lists.unzip();
        format!("neighborhood(grid={dims:?}, size={sizes:?}, dilation={dilations:?})")
    }

    fn atom(&mut self) -> String {
        match self.below(24) {
            0 => "full".into(),
            1 => "none".into(),
            2 | 3 => "causal".into(),
            4 => format!("causal(offset={})", self.size(LEN) as i64 - self.size(LEN) as i64),
            5 | 6 => format!("window(left={}, right={})", self.size(LEN), self.size(LEN)),
            7 => format!("sliding({})", self.size(LEN)),
            8 => format!("chunk({})", self.size(LEN)),
            9 | 10 => format!("stride({})", self.size(LEN)),
            11 => format!("prefix({})", self.size(LEN)),
            12 => format!("keys({})", self.set()),
            13 => format!("queries({})", self.set()),
            14 => format!("global({})", self.set()),
            15 => ["padding", "padding(side=left)", "padding(on=both)"][self.below(3)].into(),
            16 => "documents".into(),
            17 => {
                let parts = self.parts(1000);
                format!("documents({parts:?})")
            }
            18 => {
                let span = |dice: &mut Self| {
                    let start = dice.below(LEN);
                    format!("{start}..{}", start + dice.size(LEN))
                };
                let list: Vec<String> = (0..self.size(20)).map(|_| span(self)).collect();
                format!("spans([{}])", list.join(", "))
            }
            19 => {
                let parents: Vec<i64> =
                    (0..self.size(300) as i64).map(|i| self.below(i as usize + 1) as i64 - 1).collect();
                format!("tree(parents={parents:?}, start={})", self.below(LEN))
            }
            20 => "clearance".into(),
            21 => self.grid(),
            22 => match self.below(3) {
                0 => format!("random({}, seed={})", self.below(100) as f64 / 100.0, self.below(100)),
                _ => format!("random_blocks(block={}, count={}, seed=3)", self.size(4096), self.size(64)),
            },
            _ => r#"dense("cells")"#.into(),
        }
    }

    fn mask(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 1 } else { 7 }) {
            0 => self.atom(),
            1 | 2 => format!("({} & {})", self.mask(depth - 1), self.mask(depth - 1)),
            3 | 4 => format!("({} | {})", self.mask(depth - 1), self.mask(depth - 1)),
            5 => format!("({} - {})", self.mask(depth - 1), self.mask(depth - 1)),
            _ => format!("!{}", self.mask(depth - 1)),
        }
    }

    fn runs(&mut self, count: usize) -> Vec<std::ops::Range<usize>> {
        (0..count).map(|i| i * (LEN / count)).map(|at| at..at + 1 + self.below(LEN / count)).collect()
    }

    fn facts(&mut self) -> Facts {
        let few = self.runs(12);
        let many = self.runs(1000);
        let levels: Vec<i64> = self.parts(2000).into_iter().flat_map(|len| vec![self.below(5) as i64; len]).collect();
        let mut cells: Vec<_> = (0..20_000).map(|_| (self.below(LEN), self.below(LEN))).collect();
        cells.sort_unstable();
        let cells = Array::cells(LEN, LEN, &cells).unwrap();
        let side = if self.below(2) == 0 { Side::Left } else { Side::Right };
        let real = LEN - self.below(1000);
        let facts = Facts::new().lengths([real]).side(side).documents(self.parts(3000)).levels(levels);
        facts.label("few", few).label("many", many).array("cells", cells)
    }
}

/// Returns the maximum memory of the process so far, in KiB, or `None` if the system does not provide it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

/// Returns the processor time of this thread in seconds, or the elapsed time if the system does not provide it.
fn worked(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.as_deref().and_then(|stat| stat.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

#[test]
fn random_expressions_end_at_a_million() {
    let asked: Option<u64> = std::env::var("NOREN_MILLION").ok().map(|n| n.parse().expect("a whole number"));
    let shape = Shape::square(LEN);
    let begun = Instant::now();
    let (mut refused, mut slowest) = (0, (0.0, String::new()));
    let facts = Dice(1).facts();
    let count = asked.unwrap_or(24);
    for seed in 0..count {
        let text = Dice(seed * 7919 + 11).mask(4);
        let mask: Mask = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let bound = mask.bind(&shape, &facts).unwrap_or_else(|error| panic!("{text}: {error}"));
        let steps = std::cell::Cell::new(0);
        let watch = |progress: noren_mask::Progress| {
            steps.set(progress.steps);
            std::ops::ControlFlow::Continue(())
        };
        let budget = Budget::new().watch(&watch);
        let start = worked(begun);
        let plan = bound.plan_within(&PlanOptions::default(), &budget);
        let planned = worked(begun) - start;
        let answer = plan.and_then(|plan| plan.stats_within(&budget));
        let seconds = worked(begun) - start;
        let short: String = text.chars().take(160).collect();
        if seconds > 1.0 {
            let steps = steps.get() >> 20;
            println!(
                "{seconds:.2} s ({planned:.2} planning), {steps} M steps, {:?}: {short}",
                answer.as_ref().map(|stats| stats.allowed)
            );
        }
        match answer {
            Ok(stats) => assert!(stats.computed >= stats.allowed && stats.allowed <= stats.cells, "{text}"),
            Err(Error::Budget(message)) => {
                assert!(message.contains("are allowed"), "{text}: {message}");
                refused += 1;
            }
            Err(error) => panic!("{text}: {error}"),
        }
        if seconds > slowest.0 {
            slowest = (seconds, short);
        }
        if asked.is_some() {
            assert!(seconds < 10.0, "{seconds:.1} s: {text}");
        }
    }
    println!("{count} expressions, {refused} beyond the budget, the slowest {:.2} s: {}", slowest.0, slowest.1);
    println!("peak memory: {:?} KiB", peak());
    if asked.is_some() {
        assert!(peak().is_none_or(|kib| kib < 1 << 20), "more than 1 GiB");
    }
}
