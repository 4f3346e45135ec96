//! The sizes of caches and main memory.

use std::fs;
use std::sync::OnceLock;

/// Bytes at each level of the memory that a processor reads from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The first data cache of a core.
    pub l1: usize,
    /// The second cache of a core.
    pub l2: usize,
    /// The cache that cores share; the share of a virtual machine may be smaller, or larger, than the system says.
    pub l3: usize,
    /// Memory that is free, as far as the system says.
    pub available: usize,
}

/// The sizes that the system tells of this machine, and usual ones where it does not; it is asked once.
pub fn memory() -> Memory {
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    *MEMORY.get_or_init(|| Memory {
        l1: cache(1).unwrap_or(32 << 10),
        l2: cache(2).unwrap_or(1 << 20),
        l3: cache(3).unwrap_or(16 << 20),
        available: available().unwrap_or(4 << 30),
    })
}

impl Memory {
    /// The largest piece of memory that reading is measured on: beyond every cache, and no more than a quarter of what is free.
    const BEYOND: usize = 1 << 30;

    /// Names and sizes to read that lie well inside each level, for `threads` threads together, smallest first.
    pub fn sizes(&self, threads: usize) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        let threads = threads.max(1);
        // The first cache also holds a little of everything else, and sets of the shared one are not all ours.
        let inside = [("L1", self.l1 / 2 * threads), ("L2", self.l2 / 2 * threads), ("L3", self.l3 / 2)];
        let beyond = Self::BEYOND.max(self.l3.saturating_mul(4)).min(self.available / 4);
        let mut least = 0;
        inside.into_iter().chain([("DRAM", beyond)]).filter(move |(_, bytes)| {
            let larger = *bytes > least;
            least = least.max(*bytes);
            larger
        })
    }
}

/// The data or unified cache of this level, of the first processor.
fn cache(level: u32) -> Option<usize> {
    (0..8).find_map(|index| {
        let read = |name| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"))
                .map(|text| text.trim().to_owned())
        };
        let same = read("level").ok()?.parse::<u32>().ok()? == level;
        (same && read("type").ok()? != "Instruction").then(|| kib(&read("size").ok()?))?
    })
}

/// `48K` in bytes.
fn kib(text: &str) -> Option<usize> {
    let (digits, shift) = match text.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => (text.strip_suffix('M')?, 20),
    };
    digits.parse::<usize>().ok().filter(|n| *n > 0 && *n < 1 << 24).map(|n| n << shift)
}

fn available() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_below_the_limit() {
        let memory = Memory { l1: 48 << 10, l2: 1 << 20, l3: 32 << 20, available: 16 << 30 };
        let sizes: Vec<_> = memory.sizes(2).collect();
        assert_eq!(sizes, [("L1", 48 << 10), ("L2", 1 << 20), ("L3", 16 << 20), ("DRAM", 1 << 30)]);
        let many: Vec<_> = memory.sizes(64).collect();
        assert_eq!(many, [("L1", 1536 << 10), ("L2", 32 << 20), ("DRAM", 1 << 30)]);
    }

    #[test]
    fn cache_sizes_are_read() {
        assert_eq!((kib("48K"), kib("32M"), kib("x"), kib("0K")), (Some(48 << 10), Some(32 << 20), None, None));
    }
}
