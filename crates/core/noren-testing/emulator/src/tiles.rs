//! The tile state and the instructions on it. Encodings and operations: Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 2.

use std::{arch::asm, ptr::copy_nonoverlapping};

/// The general registers in the order of the signal frame.
pub(crate) type Registers = [libc::greg_t; 23];

/// The first byte of a breakpoint, which may replace the first byte of a tile instruction.
pub(crate) const BREAKPOINT: u8 = 0xCC;

/// The tiles of a thread, and their configuration in the format of `ldtilecfg`. Bytes outside of a tile's configured
/// shape are zero.
#[repr(C, align(64))]
pub(crate) struct Tiles {
    pub(crate) config: [u8; 64],
    tiles: [[[u8; 64]; 16]; 8],
}

impl Tiles {
    pub(crate) const RELEASED: Self = Self { config: [0; 64], tiles: [[[0; 64]; 16]; 8] };

    /// Executes the instruction at `code` and returns its length in bytes. Returns `None` if it is no tile instruction,
    /// if a processor with AMX raises a fault, or if the processor has the configuration (`native`) and the
    /// instruction accesses only that.
    ///
    /// # Safety
    /// `code` is the address of a complete instruction, which may access the memory that it names.
    pub(crate) unsafe fn execute(&mut self, code: *const u8, registers: &Registers, native: bool) -> Option<usize> {
        // SAFETY: a byte is read only if all instructions that begin with the bytes before it have it.
        let byte = |index: usize| unsafe { code.wrapping_add(index).read() };
        // A VEX prefix of three bytes for 128 bits and the opcode map 0F38. Its highest bits of register numbers are inverted.
        if !matches!(byte(0), 0xC4 | BREAKPOINT) || byte(1) & 0x9F != 0x82 || byte(2) & 0x84 != 0 {
            return None;
        }
        let (prefix, third) = (byte(2) & 3, usize::from(!byte(2) >> 3 & 15));
        let (opcode, mode, tile, rm) = (byte(3), byte(4) >> 6, usize::from(byte(4) >> 3 & 7), usize::from(byte(4) & 7));
        if !matches!(opcode, 0x49 | 0x4B | 0x5C) {
            return None;
        }
        let (index_high, base_high) = (usize::from(!byte(1) >> 6 & 1) << 3, usize::from(!byte(1) >> 5 & 1) << 3);
        // The numbers of registers in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 and so on.
        let register = |number: usize| registers[[13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7][number]];
        let (mut length, mut base, mut stride) = (5, rm, 0);
        if mode != 3 && rm == 4 {
            let index = usize::from(byte(5) >> 3 & 7) | index_high;
            stride = if index == 4 { 0 } else { register(index) << (byte(5) >> 6) };
            (length, base) = (6, usize::from(byte(5) & 7));
        }
        let word = |at: usize| i64::from(i32::from_le_bytes([0, 1, 2, 3].map(|part| byte(at + part))));
        let (displacement, bytes) = match mode {
            1 => (i64::from(byte(length) as i8), 1),
            2 => (word(length), 4),
            0 if base == 5 => (word(length), 4),
            _ => (0, 0),
        };
        length += bytes;
        let start = match (mode, base) {
            (0, 5) if rm == 5 => code as i64 + length as i64,
            (0, 5) => 0,
            _ => register(base | base_high),
        };
        let address = start.wrapping_add(displacement);
        let config = address.wrapping_add(stride) as *mut [u8; 64];
        // SAFETY: the caller guarantees that the memory may be accessed.
        let done = unsafe {
            match (opcode, mode != 3, prefix) {
                (0x49, true, 0) if tile == 0 && !native => self.configure(&*config),
                (0x49, true, 1) if tile == 0 && !native => {
                    *config = self.config;
                    true
                }
                (0x49, false, 0) if tile == 0 && rm == 0 && !native => self.configure(&[0; 64]),
                (0x49, false, 3) if rm == 0 => self.zero(tile),
                (0x4B, true, 1..=3) if rm == 4 => self.copy(tile, address as *mut u8, stride as usize, prefix == 2),
                (0x5C, false, 2) if base_high == 0 && third < 8 => self.multiply(tile, rm, third).is_some(),
                _ => false,
            }
        };
        done.then_some(length)
    }

    /// Loads a configuration and sets all tiles to zero. Returns false and changes nothing if the processor raises a
    /// fault, or if the configuration continues an interrupted load, which is not emulated.
    pub(crate) fn configure(&mut self, config: &[u8; 64]) -> bool {
        let unused = [1..16, 32..48, 56..64].into_iter().flatten().all(|index| config[index] == 0);
        let shape = |tile: usize| (config[48 + tile], config[16 + 2 * tile], config[17 + 2 * tile]);
        let valid = (0..8).all(|tile| matches!(shape(tile), (0, 0, 0) | (1..=16, 1..=64, 0)));
        let accepted = config[0] == 0 || config[0] == 1 && unused && valid;
        if accepted {
            *self = Self { config: if config[0] == 1 { *config } else { [0; 64] }, ..Self::RELEASED };
        }
        accepted
    }

    /// Returns the number of rows of a tile, and the number of bytes of a row.
    fn shape(&self, tile: usize) -> Option<(usize, usize)> {
        let (rows, bytes) = (self.config[48 + tile].into(), self.config[16 + 2 * tile].into());
        (rows > 0 && bytes % 4 == 0).then_some((rows, bytes))
    }

    fn zero(&mut self, tile: usize) -> bool {
        self.tiles[tile] = [[0; 64]; 16];
        self.shape(tile).is_some()
    }

    /// Copies a tile to memory (`store`) or from memory.
    unsafe fn copy(&mut self, tile: usize, memory: *mut u8, stride: usize, store: bool) -> bool {
        let Some((rows, bytes)) = self.shape(tile) else { return false };
        if !store {
            self.zero(tile);
        }
        for (index, row) in self.tiles[tile].iter_mut().take(rows).enumerate() {
            let (row, memory) = (row.as_mut_ptr(), memory.wrapping_add(index.wrapping_mul(stride)));
            let (from, to) = if store { (row, memory) } else { (memory, row) };
            // SAFETY: the program itself accesses these bytes.
            unsafe { copy_nonoverlapping(from, to, bytes) };
        }
        true
    }

    /// `tdpbf16ps`: adds products of pairs of `bf16` numbers to a tile of `f32` numbers. For each row and column, two
    /// chains of fused multiply-adds begin at 0: over the even elements and over the odd elements. Even plus odd is
    /// added to the number of the tile. Denormal inputs are zero, and results that are denormal after rounding to 24
    /// bits. Both, and the payloads of NaN, are those of vector instructions in this order.
    fn multiply(&mut self, sum: usize, left: usize, right: usize) -> Option<()> {
        let [(rows, columns), (left_rows, inner), (right_rows, right_columns)] =
            [self.shape(sum)?, self.shape(left)?, self.shape(right)?];
        let distinct = sum != left && sum != right && left != right;
        if !distinct || left_rows != rows || 4 * right_rows != inner || right_columns != columns {
            return None;
        }
        let tiles = self.tiles.as_mut_ptr();
        // MXCSR: rounding to nearest, no exceptions, and denormal numbers are zero. Compiled code must not run with it.
        let (zeroing, mut before) = (0x9FC0u32, 0u32);
        // SAFETY: the code accesses only these tiles, which are aligned to 64 bytes. This crate requires AVX-512F.
        unsafe {
            asm!(
                "stmxcsr [{before}]",
                "ldmxcsr [{zeroing}]",
                "kmovw k1, {columns:e}",
                "vpbroadcastd zmm6, {odd:e}",
                "2:",
                "vpxord zmm0, zmm0, zmm0",
                "vpxord zmm1, zmm1, zmm1",
                "xor {pair:e}, {pair:e}",
                "mov {row}, {right}",
                "3:",
                "vpbroadcastd zmm2, dword ptr [{left} + 4 * {pair}]",
                "vmovdqa32 zmm3, [{row}]",
                "vpslld zmm4, zmm2, 16",
                "vpslld zmm5, zmm3, 16",
                "vfmadd231ps zmm0, zmm4, zmm5",
                "vpandd zmm4, zmm2, zmm6",
                "vpandd zmm5, zmm3, zmm6",
                "vfmadd231ps zmm1, zmm4, zmm5",
                "add {row}, 64",
                "inc {pair}",
                "cmp {pair}, {pairs}",
                "jb 3b",
                "vaddps zmm0, zmm0, zmm1",
                "vmovaps zmm1, [{sum}]",
                "vaddps zmm0 {{k1}} {{z}}, zmm1, zmm0",
                "vmovaps [{sum}], zmm0",
                "add {sum}, 64",
                "add {left}, 64",
                "dec {rows}",
                "jnz 2b",
                "ldmxcsr [{before}]",
                before = in(reg) &raw mut before,
                zeroing = in(reg) &raw const zeroing,
                columns = in(reg) (1u32 << (columns / 4)) - 1,
                odd = in(reg) 0xFFFF_0000u32,
                pairs = in(reg) inner / 4,
                right = in(reg) tiles.add(right),
                left = inout(reg) tiles.add(left) => _,
                sum = inout(reg) tiles.add(sum) => _,
                rows = inout(reg) rows => _,
                row = out(reg) _,
                pair = out(reg) _,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
                out("k1") _,
                options(nostack),
            );
        }
        Some(())
    }
}
