//! The tile unit of Intel processors (AMX): its instructions, and the permission to use them.
//!
//! The unit has eight registers, each a *tile* of 16 rows of 64 bytes. Its only instruction for numbers here, `tdpbf16ps`, adds
//! the product of two tiles of `bf16` to a tile of `f32`: 16 rows times 16 columns times 32 terms. For each sum, the products
//! of even terms are added to 0 one after another, and those of odd terms; then both sums are added, and the result is added
//! to the number in the tile. Numbers below the normal range count as 0.
//!
//! The instructions are written as assembly, because Rust has no stable functions for them.

use super::operands::{Begin, Left, Near, Panel, Right, SIDE, Sums, Target};
use std::arch::asm;
use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;

/// Returns whether this process may use the tile unit: the processor has it, the operating system saves its registers, and
/// the unit computes what this module documents. The permission is requested once.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| (emulated() || (reported() && permitted())) && computes_as_documented())
}

/// Returns whether the processor reports the unit with `bf16`, and the operating system enabled its registers.
fn reported() -> bool {
    // SAFETY: every x86-64 processor has the instruction. Rust 1.89 requires the block, later versions call the function safe.
    #[allow(unused_unsafe)]
    let leaf = |leaf, sub| unsafe { std::arch::x86_64::__cpuid_count(leaf, sub) };
    const OSXSAVE: u32 = 1 << 27;
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    const SAVED: u32 = 1 << 17 | 1 << 18;
    if leaf(0, 0).eax < 7 || leaf(1, 0).ecx & OSXSAVE == 0 || leaf(7, 0).edx & BF16_AND_TILES != BF16_AND_TILES {
        return false;
    }
    let saved: u32;
    // SAFETY: the processor reports OSXSAVE, so it has the instruction.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags)) };
    saved & SAVED == SAVED
}

/// Requests from Linux the permission to use the registers of the unit, for the whole process. Returns false if it refuses, for
/// example because the signal stack of a thread is too small for the registers.
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    if !cfg!(target_os = "linux") {
        return false;
    }
    let mut result = ARCH_PRCTL;
    // SAFETY: the call reads no memory; the kernel changes `rax`, `rcx` and `r11` only.
    unsafe {
        asm!("syscall", inout("rax") result, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// Returns whether this process was started with the emulator of the tests, which executes the instructions in software.
fn emulated() -> bool {
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            fn dlsym(handle: *mut std::ffi::c_void, name: *const std::ffi::c_char) -> *mut std::ffi::c_void;
        }
        // SAFETY: the handle 0 means all loaded libraries, and the name is a text that ends with 0.
        !unsafe { dlsym(std::ptr::null_mut(), c"noren_amx_emulated".as_ptr()) }.is_null()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Returns whether the unit adds in the documented order, for some random tiles.
fn computes_as_documented() -> bool {
    let mut state = 7u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 9) as f32 - 4e6) * (1 + state % 5) as f32 * 1e-5
    };
    (0..4).all(|_| {
        let mut half = || number().to_bits() >> 16;
        let mut pairs = || -> Vec<f32> { (0..SIDE * SIDE).map(|_| f32::from_bits(half() | half() << 16)).collect() };
        let (a, b) = (pairs(), pairs());
        let mut sums: Vec<f32> = (0..SIDE * SIDE).map(|_| number()).collect();
        let halves = |word: f32| [word.to_bits() << 16, word.to_bits() & 0xffff_0000].map(f32::from_bits);
        let expected: Vec<f32> = (0..SIDE * SIDE)
            .map(|i| {
                let (row, column) = (i / SIDE, i % SIDE);
                let mut chains = [0.0f32; 2];
                for term in 0..SIDE {
                    let (x, y) = (halves(a[row * SIDE + term]), halves(b[term * SIDE + column]));
                    (0..2).for_each(|i| chains[i] = x[i].mul_add(y[i], chains[i]));
                }
                sums[i] + (chains[0] + chains[1])
            })
            .collect();
        let _tiles = Configured::new();
        let b = Right { words: &b, stride: SIDE, step: SIDE };
        multiply(
            false,
            Left { words: &a, stride: SIDE, rows: SIDE },
            0..SIDE,
            b,
            0..1,
            Sums { words: &mut sums, stride: SIDE },
        );
        sums.iter().zip(&expected).all(|(sum, expected)| sum.to_bits() == expected.to_bits())
    })
}

/// The configuration of the unit: eight tiles of 16 rows of 64 bytes.
#[repr(align(64))]
#[allow(dead_code)] // read by the instruction alone
struct Configuration([u8; 64]);

static WHOLE_TILES: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    Configuration(bytes)
};

thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });

/// While this value lives, the thread may multiply tiles. Values may be nested. The last one frees the registers of the unit,
/// which the system would otherwise save and restore for the thread.
pub(crate) struct Configured(());

impl Configured {
    /// Configures the unit for this thread.
    pub(crate) fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        // SAFETY: callers have a token or have found the unit; the operand is a valid configuration of 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE_TILES, options(readonly, nostack, preserves_flags)) };
        Configured(())
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // SAFETY: as in `new`.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }
}

/// Loads the register `TILE` from 16 rows of 16 words; `stride` is the number of words from one row to the next.
///
/// # Safety
///
/// The rows must be in memory that may be read. As for all these functions, the thread must have configured the unit.
#[inline(always)]
pub(crate) unsafe fn load<const TILE: u8>(from: *const f32, stride: usize) {
    // SAFETY: see the contract of this function.
    unsafe {
        asm!("tileloadd tmm{}, [{} + {}*4]", const TILE, in(reg) from, in(reg) stride,
            options(readonly, nostack, preserves_flags));
    }
}

/// Loads a register as [`load`] does, without keeping the memory in the first-level cache.
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
pub(crate) unsafe fn load_far<const TILE: u8>(from: *const f32, stride: usize) {
    // SAFETY: see the contract of this function.
    unsafe {
        asm!("tileloaddt1 tmm{}, [{} + {}*4]", const TILE, in(reg) from, in(reg) stride,
            options(readonly, nostack, preserves_flags));
    }
}

/// Loads a register by [`load`] if `NEAR` is true, or else by [`load_far`].
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
unsafe fn load_from<const TILE: u8, const NEAR: bool>(from: *const f32, stride: usize) {
    // SAFETY: see the contract of this function.
    unsafe { if NEAR { load::<TILE>(from, stride) } else { load_far::<TILE>(from, stride) } }
}

/// Fills the register `TILE` with 0.
///
/// # Safety
///
/// The thread must have configured the unit.
#[inline(always)]
pub(crate) unsafe fn zero<const TILE: u8>() {
    // SAFETY: see the contract of this function.
    unsafe { asm!("tilezero tmm{}", const TILE, options(nomem, nostack, preserves_flags)) };
}

/// Stores the register `TILE` in 16 rows of 16 words.
///
/// # Safety
///
/// The rows must be in memory that may be written, and the thread must have configured the unit.
#[inline(always)]
pub(crate) unsafe fn store<const TILE: u8>(to: *mut f32, stride: usize) {
    // SAFETY: see the contract of this function.
    unsafe {
        asm!("tilestored [{} + {}*4], tmm{}", in(reg) to, in(reg) stride, const TILE,
            options(nostack, preserves_flags));
    }
}

/// Adds the product of the registers `LEFT` and `RIGHT` to the register `SUM`.
///
/// # Safety
///
/// The thread must have configured the unit.
#[inline(always)]
pub(crate) unsafe fn dot<const SUM: u8, const LEFT: u8, const RIGHT: u8>() {
    // SAFETY: see the contract of this function.
    unsafe {
        asm!("tdpbf16ps tmm{}, tmm{}, tmm{}", const SUM, const LEFT, const RIGHT,
            options(nomem, nostack, preserves_flags));
    }
}

/// Panics if the thread has not configured the unit.
pub(crate) fn assert_configured() {
    assert!(DEPTH.get() > 0, "the thread must configure the tile unit before it multiplies tiles");
}

/// Adds the products of the words `words` of `left`, whole tiles, and the rows of `right` of the same indices to `sums`, in the
/// columns `columns`, in units of 16. If `first` is true, the sums begin at 0. The thread must have [`Configured`] the unit.
#[inline(always)]
pub(crate) fn multiply(
    first: bool,
    left: Left<'_>,
    words: Range<usize>,
    right: Right<'_>,
    columns: Range<usize>,
    sums: Sums<'_>,
) {
    if words.is_empty() || columns.is_empty() || left.rows == 0 {
        return;
    }
    let rows = left.rows.next_multiple_of(SIDE);
    assert!(words.len().is_multiple_of(SIDE));
    assert!((rows - 1) * left.stride + words.end <= left.words.len());
    assert!((columns.end - 1) * right.step + (words.end - 1) * right.stride + SIDE <= right.words.len());
    assert!((rows - 1) * sums.stride + columns.end * SIDE <= sums.words.len());
    assert_configured();
    let base = sums.words.as_mut_ptr();
    let at = |row: usize, column: usize| At {
        first,
        tiles: words.len() / SIDE,
        left: left.words[row * left.stride + words.start..].as_ptr(),
        left_stride: left.stride,
        right: right.words[column * right.step + words.start * right.stride..].as_ptr(),
        right_stride: right.stride,
        step: right.step,
        sums: base.wrapping_add(row * sums.stride + column * SIDE),
        sums_stride: sums.stride,
    };
    for column in columns.clone().step_by(2) {
        for row in (0..rows).step_by(2 * SIDE) {
            let at = at(row, column);
            // SAFETY: the assertions above keep all tiles in the memory of the operands, of which the sums are borrowed
            // exclusively; the unit is configured.
            unsafe {
                match (row + SIDE < rows, column + 1 < columns.end) {
                    (true, true) => at.add::<true, true>(),
                    (true, false) => at.add::<true, false>(),
                    (false, true) => at.add::<false, true>(),
                    (false, false) => at.add::<false, false>(),
                }
            }
        }
    }
}

/// Adds weighted values of up to 64 keys to `sums`, only those of the keys whose bits in `allowed` are set: in the order of
/// [`multiply`], with 0 in place of the values of other keys.
#[cold]
pub(crate) fn multiply_allowed(weights: &[f32], allowed: u64, values: &[f32], sums: &mut [f32]) {
    const TERMS: usize = 2;
    let width = sums.len();
    let mut rows = vec![0.0; SIDE * width];
    rows[..width].copy_from_slice(sums);
    for first in (0..64 / TERMS).step_by(SIDE) {
        let seen = allowed >> (first * TERMS) & 0xffff_ffff;
        if seen == 0 {
            continue;
        }
        let mut visible = vec![0.0; SIDE * width];
        for (word, row) in visible.chunks_exact_mut(width).enumerate() {
            let mask = [0, 0xffff, 0xffff_0000, u32::MAX][(seen >> (word * TERMS) & 3) as usize];
            if mask != 0 {
                let values = &values[(first + word) * width..][..width];
                row.iter_mut().zip(values).for_each(|(x, value)| *x = f32::from_bits(value.to_bits() & mask));
            }
        }
        let mut tile = [0.0; SIDE * SIDE];
        tile[..SIDE].copy_from_slice(&weights[first..][..SIDE]);
        let left = Left { words: &tile, stride: SIDE, rows: 1 };
        let right = Right { words: &visible, stride: width, step: SIDE };
        multiply(false, left, 0..SIDE, right, 0..width / SIDE, Sums { words: &mut rows, stride: width });
    }
    sums.copy_from_slice(&rows[..width]);
}

/// Adds the product of a [`Panel`] to the numbers with which its sums begin, and writes the sums to their [`Target`]. The thread must
/// have [`Configured`] the unit.
#[inline(always)]
pub(crate) fn panel(panel: Panel<'_>, Target { sums, out, moved }: Target<'_>) {
    let two = panel.second.is_some();
    let (words, rows) = (panel.right.len() / (2 * SIDE), if two { 2 * SIDE } else { SIDE });
    assert!(words.is_multiple_of(SIDE) && panel.second.unwrap_or(0) + SIDE * words <= panel.left.len());
    assert!((rows - 1) * sums.1 + 2 * SIDE <= sums.0.len());
    assert_configured();
    // With a stride of 0, all rows begin with the same numbers.
    let begin = match panel.begin {
        Begin::Zero => (std::ptr::null(), 0),
        Begin::Outputs(begin) => (begin.as_ptr(), 0),
        Begin::Sums => (sums.0.as_ptr(), sums.1),
    };
    // The memory of a result is fetched before its sums are stored.
    let (fetched, to) = match out {
        Some((out, stride)) => {
            assert!((rows - 1) * stride + 2 * SIDE <= out.len());
            (rows, (out.as_mut_ptr().cast(), stride))
        }
        None => (0, (sums.0.as_mut_ptr(), sums.1)),
    };
    let moved = moved.map_or((0, to.0.cast_const(), to.0, 0), |(from, to, stride)| {
        let rows = from.len() / ROW;
        assert!(rows == 0 || (rows - 1) * stride + ROW <= to.len());
        (rows, from.as_ptr(), to.as_mut_ptr().cast(), stride)
    });
    // SAFETY: the assertions keep all tiles and rows in the memory of the operands, and what is written is borrowed exclusively.
    unsafe {
        match (two, panel.near) {
            (true, Near::Left) => panel_of::<true, true, false>(panel, begin, fetched, to, moved),
            (true, Near::Right) => panel_of::<true, false, true>(panel, begin, fetched, to, moved),
            (true, Near::Neither) => panel_of::<true, false, false>(panel, begin, fetched, to, moved),
            (false, Near::Left) => panel_of::<false, true, false>(panel, begin, fetched, to, moved),
            (false, Near::Right) => panel_of::<false, false, true>(panel, begin, fetched, to, moved),
            (false, Near::Neither) => panel_of::<false, false, false>(panel, begin, fetched, to, moved),
        }
    }
}

/// The number of numbers in a row that is copied.
const ROW: usize = 64;

/// Copies a row. Whole cache lines are written, where it has them, and its ends with the numbers beside them.
///
/// # Safety
///
/// The row must be in memory at both places, and the processor must have the unit.
#[inline(always)]
unsafe fn copy_row(from: *const f32, to: *mut f32) {
    let skipped = to.addr().next_multiple_of(64) - to.addr();
    // SAFETY: see the contract of this function. A processor with the unit has these registers.
    unsafe {
        asm!(
            "vmovups zmm16, [{from}]",
            "vmovups zmm17, [{from} + 192]",
            "vmovups zmm18, [{from} + {skipped}]",
            "vmovups zmm19, [{from} + {skipped} + 64]",
            "vmovups zmm20, [{from} + {skipped} + 128]",
            "vmovups [{to}], zmm16",
            "vmovups [{to} + {skipped}], zmm18",
            "vmovups [{to} + {skipped} + 64], zmm19",
            "vmovups [{to} + {skipped} + 128], zmm20",
            "vmovups [{to} + 192], zmm17",
            from = in(reg) from, to = in(reg) to, skipped = in(reg) skipped, out("zmm16") _, out("zmm17") _,
            out("zmm18") _, out("zmm19") _, out("zmm20") _, options(nostack, preserves_flags)
        );
    }
}

/// Computes a [`panel`] whose sums begin with the numbers at `begin`, or 0 if it is null, and go to `to`, of which `fetched` rows are
/// fetched before. `moved` is the number of rows to copy, and their places. All places have strides.
///
/// # Safety
///
/// All tiles and rows must be inside the memory of the operands, nothing else may use what is written, and the unit must be configured.
unsafe fn panel_of<const TWO: bool, const NEAR_LEFT: bool, const NEAR_RIGHT: bool>(
    Panel { left, second, right, next, .. }: Panel<'_>,
    (begin, begin_stride): (*const f32, usize),
    fetched: usize,
    (to, stride): (*mut f32, usize),
    (moved, mut moved_from, mut moved_to, moved_stride): (usize, *const f32, *mut f32, usize),
) {
    let (tiles, lines) = (right.len() / (2 * SIDE * SIDE), next.len().div_ceil(SIDE));
    let (mut left, mut right, mut next, second) = (left.as_ptr(), right.as_ptr(), next.as_ptr(), second.unwrap_or(0));
    // SAFETY: see the contract of this function. Other memory is fetched at most.
    unsafe {
        if begin.is_null() {
            zero::<0>();
            zero::<1>();
            zero::<2>();
            zero::<3>();
        } else {
            load::<0>(begin, begin_stride);
            load::<1>(begin.add(SIDE), begin_stride);
            if TWO {
                let below = begin.add(SIDE * begin_stride);
                load::<2>(below, begin_stride);
                load::<3>(below.add(SIDE), begin_stride);
            }
        }
        let (mut into, mut fetch, mut line, mut copied) = (to, 0, 0, 0);
        for _ in 0..tiles {
            fetch += fetched;
            while fetch >= tiles {
                for i in [0, SIDE, 2 * SIDE - 1] {
                    asm!("prefetchw [{}]", in(reg) into.wrapping_add(i), options(readonly, nostack, preserves_flags));
                }
                into = into.wrapping_add(stride);
                fetch -= tiles;
            }
            line += lines;
            while line >= tiles {
                asm!("prefetcht1 [{}]", in(reg) next, options(readonly, nostack, preserves_flags));
                next = next.wrapping_add(SIDE);
                line -= tiles;
            }
            copied += moved;
            while copied >= tiles {
                copy_row(moved_from, moved_to);
                (moved_from, moved_to) = (moved_from.wrapping_add(ROW), moved_to.wrapping_add(moved_stride));
                copied -= tiles;
            }
            load_from::<6, NEAR_RIGHT>(right, 2 * SIDE);
            load_from::<4, NEAR_LEFT>(left, SIDE);
            dot::<0, 4, 6>();
            load_from::<7, NEAR_RIGHT>(right.wrapping_add(SIDE), 2 * SIDE);
            dot::<1, 4, 7>();
            if TWO {
                load_from::<5, NEAR_LEFT>(left.wrapping_add(second), SIDE);
                dot::<2, 5, 6>();
                dot::<3, 5, 7>();
            }
            left = left.wrapping_add(SIDE * SIDE);
            right = right.wrapping_add(2 * SIDE * SIDE);
        }
        store::<0>(to, stride);
        store::<1>(to.add(SIDE), stride);
        if TWO {
            let below = to.add(SIDE * stride);
            store::<2>(below, stride);
            store::<3>(below.add(SIDE), stride);
        }
    }
}

/// Computes four products with all operands in registers, `rounds` times. The thread must have [`Configured`] the unit.
pub(crate) fn rounds(rounds: usize) {
    assert_configured();
    for _ in 0..rounds {
        // SAFETY: the unit is configured, and there is no memory.
        unsafe {
            dot::<0, 4, 6>();
            dot::<1, 4, 7>();
            dot::<2, 5, 6>();
            dot::<3, 5, 7>();
        }
    }
}

/// The place of a product of up to two by two tiles.
struct At {
    first: bool,
    /// The number of tiles along the terms.
    tiles: usize,
    left: *const f32,
    left_stride: usize,
    right: *const f32,
    right_stride: usize,
    step: usize,
    sums: *mut f32,
    sums_stride: usize,
}

impl At {
    /// Adds the products of one or two tiles of rows, and one or two tiles of columns.
    ///
    /// # Safety
    ///
    /// All tiles must be inside the memory of the operands, nothing else may use the sums, and the unit must be configured.
    #[inline(always)]
    unsafe fn add<const ROWS: bool, const COLUMNS: bool>(&self) {
        let At { first, tiles, mut left, left_stride, mut right, right_stride, step, sums, sums_stride } = *self;
        // SAFETY: see the contract of this function.
        unsafe {
            let below = sums.wrapping_add(SIDE * sums_stride);
            if first {
                zero::<0>();
                if COLUMNS {
                    zero::<1>()
                }
                if ROWS {
                    zero::<2>()
                }
                if ROWS && COLUMNS {
                    zero::<3>()
                }
            } else {
                load::<0>(sums, sums_stride);
                if COLUMNS {
                    load::<1>(sums.add(SIDE), sums_stride)
                }
                if ROWS {
                    load::<2>(below, sums_stride)
                }
                if ROWS && COLUMNS {
                    load::<3>(below.add(SIDE), sums_stride)
                }
            }
            for _ in 0..tiles {
                load::<6>(right, right_stride);
                load::<4>(left, left_stride);
                dot::<0, 4, 6>();
                if COLUMNS {
                    load::<7>(right.wrapping_add(step), right_stride);
                    dot::<1, 4, 7>();
                }
                if ROWS {
                    load::<5>(left.wrapping_add(SIDE * left_stride), left_stride);
                    dot::<2, 5, 6>();
                    if COLUMNS {
                        dot::<3, 5, 7>()
                    }
                }
                left = left.wrapping_add(SIDE);
                right = right.wrapping_add(SIDE * right_stride);
            }
            store::<0>(sums, sums_stride);
            if COLUMNS {
                store::<1>(sums.add(SIDE), sums_stride)
            }
            if ROWS {
                store::<2>(below, sums_stride)
            }
            if ROWS && COLUMNS {
                store::<3>(below.add(SIDE), sums_stride)
            }
        }
    }
}
