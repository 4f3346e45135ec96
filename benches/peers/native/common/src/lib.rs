//! Code that the peers' programs share: the arguments of `run.py`, the masks, the clock.

use std::time::Instant;

/// Lengths of the documents, in sixteenths of the sequence.
const DOCUMENTS: [usize; 8] = [1, 2, 1, 3, 4, 2, 2, 1];
const WINDOW: usize = 256;

/// The case to measure. `run.py` passes every argument.
pub struct Case {
    pub op: String,
    pub dtype: String,
    pub mask: String,
    pub heads: usize,
    pub kv_heads: usize,
    /// Number of queries; they are the last of the keys.
    pub n: usize,
    /// Number of keys.
    pub m: usize,
    pub dim: usize,
    budget: f64,
}

impl Case {
    pub fn from_arguments() -> Case {
        let given: Vec<String> = std::env::args().collect();
        let text = |name: &str| {
            let at = given.iter().position(|x| x == name).unwrap_or_else(|| refuse(format!("{name} is missing")));
            given.get(at + 1).cloned().unwrap_or_else(|| refuse(format!("{name} has no value")))
        };
        let number = |name: &str| text(name).parse().unwrap_or_else(|_| refuse(format!("{name} is no number")));
        Case {
            op: text("--op"),
            dtype: text("--dtype"),
            mask: text("--mask"),
            heads: number("--h"),
            kv_heads: number("--hkv"),
            n: number("--n"),
            m: number("--m"),
            dim: number("--d"),
            budget: text("--budget").parse().unwrap_or(3.0),
        }
    }

    /// Returns whether a mask is needed: one query that reads every key needs none.
    pub fn is_masked(&self) -> bool {
        !(self.mask == "full" || self.mask == "causal" && self.n == 1)
    }

    /// Returns the mask as `[n, m]`, true where the query may attend.
    pub fn keep(&self) -> Vec<bool> {
        let borders: Vec<usize> =
            DOCUMENTS.iter().scan(0, |sum, share| Some({ *sum += share; *sum * self.m / 16 })).collect();
        let document = |at: usize| borders.partition_point(|end| *end <= at);
        let mut keep = Vec::with_capacity(self.n * self.m);
        for q in self.m - self.n..self.m {
            keep.extend((0..self.m).map(|k| match self.mask.as_str() {
                "full" => true,
                "causal" => k <= q,
                "swa256" => k <= q && q - k < WINDOW,
                "padding" => k < self.m / 2,
                "docs8" => k <= q && document(k) == document(q),
                other => refuse(format!("{other}: no mask of one head")),
            }));
        }
        keep
    }

    /// Times `run` and prints the times in milliseconds: warm-up for 0.3 s, then 5 to 15 runs, as the budget allows.
    pub fn measure(&self, mut run: impl FnMut()) {
        let mut once = || {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        };
        once();
        let one = once();
        let mut warm = one;
        while warm < 300.0 {
            warm += once();
        }
        let runs = ((self.budget * 1e3 / one) as usize).clamp(5, 15);
        let ms: Vec<String> = (0..runs).map(|_| format!("{:.4}", once())).collect();
        println!("{{\"ms\": [{}]}}", ms.join(", "));
    }
}

/// Returns `len` approximately normal numbers, each a sum of twelve uniform numbers.
pub fn normal(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

/// Prints that the peer cannot run the case, and ends the process.
pub fn refuse(why: impl std::fmt::Display) -> ! {
    println!("{}", error_line(&why.to_string()));
    std::process::exit(0)
}

fn error_line(why: &str) -> String {
    let text: String = why.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
    format!("{{\"error\": \"{}\"}}", text.replace('\\', "/").replace('"', "'"))
}
