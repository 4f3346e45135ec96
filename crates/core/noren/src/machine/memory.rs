//! The sizes of the caches and of main memory of this machine.

use std::fs;
use std::sync::OnceLock;

/// The sizes in bytes of the levels of memory from which a processor reads: three caches and main memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The size of the first-level data cache of one core, in bytes.
    pub l1: usize,
    /// The size of the second-level cache of one core, in bytes.
    pub l2: usize,
    /// The size of the third-level cache that cores share, in bytes. The part that a virtual machine can use may be
    /// smaller or larger than the size that the system reports.
    pub l3: usize,
    /// The free main memory that the system reports, in bytes.
    pub available: usize,
}

/// Returns the sizes that the system reports. If a size is not reported, a usual value is returned instead: 32 KiB for
/// the first-level cache, 1 MiB for the second-level cache, 16 MiB for the third-level cache, and 4 GiB for free main
/// memory. The sizes are read once per process.
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
    /// The usual number of bytes that a measurement of main memory reads. If four times the size of the third-level
    /// cache is more, the measurement reads so many bytes instead, but never more than a quarter of the free memory.
    const BEYOND: usize = 1 << 30;

    /// Returns one number of bytes for a measurement of reads in each level of memory, as `(name of the level, bytes)`,
    /// smallest first. The names are `L1`, `L2`, `L3` and `DRAM`. `threads` threads read so many bytes together, and
    /// these bytes fit well into the level. A level is omitted if its number is not larger than that of the previous
    /// level.
    pub fn sizes(&self, threads: usize) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        let threads = threads.max(1);
        // The first-level cache also holds some other data, and the shared cache is also used by other programs.
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

/// Returns the size in bytes of the data cache of level `level` (1, 2 or 3) of the first processor core. Returns `None`
/// if the system does not report it.
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

/// Returns the number of bytes for a text such as `48K` (KiB) or `32M` (MiB); `None` for other texts, 0, or numbers
/// that are too large.
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
