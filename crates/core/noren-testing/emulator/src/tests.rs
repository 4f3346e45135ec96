//! Random products have the same bits by the handler, by direct calls, and by the processor.

use crate::signals::{noren_amx_emulated, refuse_permission, sigaction};
use crate::tiles::Tiles;
use std::{arch::asm, arch::global_asm, env, mem::zeroed, process::Command, ptr::null_mut, thread};

/// Hashes of seeds 0 to 3 by the processor: an Intel Xeon with AMX (family 6, model 167 in /proc/cpuinfo), 2026-11-29.
const HARDWARE: [u64; 4] = [0x263C_7C2B_A86C_4751, 0x7329_600B_247A_1D51, 0xF2AD_CF9A_595B_39DB, 0xAD00_441B_8D81_7ADB];

#[repr(C, align(64))]
#[derive(Clone)]
struct Memory {
    configs: [[u8; 64]; 4],
    /// Operands and results: left, right, sum, sum after two products, product.
    tiles: [[[u32; 16]; 16]; 5],
}

// `r9` is 32, other registers are the address of `Memory`.
global_asm!(
    "noren_emulator_products:",
    "ldtilecfg [rdi]",
    "sttilecfg [rcx + r9 * 4 - 64]",
    "tileloadd tmm1, [rdi + r9 * 2 + 256]",
    "tileloaddt1 tmm7, [r8 + r9 * 2 + 1280]",
    "tileloadd tmm4, [rsi + r9 * 2 + 2304]",
    "tdpbf16ps tmm4, tmm1, tmm7",
    "tdpbf16ps tmm4, tmm1, tmm7",
    "tilestored [r8 + r9 * 2 + 3328], tmm4",
    "tilezero tmm4",
    "tdpbf16ps tmm4, tmm1, tmm7",
    "tilestored [rdx + r9 * 2 + 4352], tmm4",
    "tilerelease",
    "ret",
    "noren_emulator_addresses:",
    "ldtilecfg [rip + 2f]",
    "sttilecfg [r13]",
    "sttilecfg [rsp + r9 * 2]",
    "sttilecfg [rbp + 120 + 8]",
    "sttilecfg [r12 + 192]",
    "ret",
    "2:",
    ".byte 1",
    ".zero 15",
    ".byte 64",
    ".zero 31",
    ".byte 16",
    ".zero 15",
);

unsafe extern "C" {
    fn noren_emulator_products(rdi: usize, rsi: usize, rdx: usize, rcx: usize, r8: usize, r9: usize);
    fn noren_emulator_addresses();
}

fn by_processor(memory: &mut Memory) {
    let address = &raw mut *memory as usize;
    // SAFETY: the code accesses only this memory.
    unsafe { noren_emulator_products(address, address, address, address, address, 32) };
}

/// Executes code by direct calls, and returns the number of executed instructions.
fn by_calls(mut code: *const u8, memory: &mut Memory) -> usize {
    let mut registers = [&raw mut *memory as i64; 23];
    registers[libc::REG_R9 as usize] = 32;
    let (mut tiles, mut count) = (Tiles::RELEASED, 0);
    // SAFETY: the code accesses only this memory.
    while let Some(length) = unsafe { tiles.execute(code, &registers, false) } {
        (code, count) = (code.wrapping_add(length), count + 1);
    }
    count
}

/// Draws operands: of ordinary size, any bits, and products about the smallest normal number, also of powers of two.
fn draw(random: &mut impl FnMut() -> u32) -> Memory {
    const TINY: [u32; 3] = [0x1000_0000, 0x2000_0000, 0];
    const KINDS: [(u32, [u32; 3]); 4] =
        [(0x83FF_FFFF, [0x3C00_0000; 3]), (!0, [0; 3]), (0x8FFF_FFFF, TINY), (0x8F80_0000, TINY)];
    let (kept, set) = KINDS[random() as usize % 4];
    let mut number = |operand: usize| random() & kept | set[operand];
    let mut memory = Memory { configs: [[0; 64]; 4], tiles: [[[0; 16]; 16]; 5] };
    for bits in memory.tiles[2].as_flattened_mut() {
        *bits = number(2);
    }
    for (operand, tile) in memory.tiles[..2].iter_mut().enumerate() {
        for bits in tile.as_flattened_mut() {
            *bits = number(operand) & 0xFFFF_0000 | number(operand) >> 16;
        }
    }
    let [rows, columns, pairs] = [(); 3].map(|()| 1 + random() as u8 % 16);
    memory.configs[0][0] = 1;
    for (tile, rows, columns) in [(1, rows, pairs), (7, pairs, columns), (4, rows, columns)] {
        (memory.configs[0][48 + tile], memory.configs[0][16 + 2 * tile]) = (rows, 4 * columns);
    }
    memory
}

/// Returns a hash of the results of random products.
fn hash(seed: u64, run: impl Fn(&mut Memory)) -> u64 {
    let (mut state, mut hash) = (seed, 0u64);
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    for _ in 0..400 {
        let mut memory = draw(&mut random);
        run(&mut memory);
        assert_eq!(memory.configs[1], memory.configs[0]);
        for bits in memory.tiles[3..].as_flattened().as_flattened() {
            hash = (hash ^ u64::from(*bits)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
    hash
}

fn has_avx512() -> bool {
    let has = is_x86_feature_detected!("avx512f");
    if !has {
        println!("not run: this processor lacks AVX-512");
    }
    has
}

/// The processor computes if `NOREN_EMULATOR_HARDWARE` is set.
#[test]
fn products_by_handler() {
    if env::var_os("NOREN_EMULATOR_HARDWARE").is_some() {
        // SAFETY: without the handler, a fault ends the process. The call requests permission to use tiles.
        unsafe {
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            if libc::syscall(libc::SYS_arch_prctl, 0x1023, 18) != 0 {
                return println!("not run: this processor lacks AMX");
            }
        }
    }
    if has_avx512() {
        let threads = [0, 1, 2, 3].map(|seed| thread::spawn(move || hash(seed, by_processor)));
        assert_eq!(threads.map(|thread| thread.join().unwrap()), HARDWARE);
    }
}

#[test]
fn products_by_hardware() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "tests::products_by_handler", "--nocapture"]).env("NOREN_EMULATOR_HARDWARE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn products_by_calls() {
    if has_avx512() {
        let run = |memory: &mut Memory| assert_eq!(by_calls(noren_emulator_products as *const u8, memory), 12);
        assert_eq!([0, 1, 2, 3].map(|seed| hash(seed, run)), HARDWARE);
    }
}

#[test]
fn addresses() {
    let mut memory = draw(&mut || 0);
    assert_eq!(by_calls(noren_emulator_addresses as *const u8, &mut memory), 5);
    assert!(memory.configs.iter().all(|config| (config[0], config[16], config[48]) == (1, 64, 16)));
}

/// The processor raises faults at wrong configurations, and at products of shapes that do not fit.
#[test]
fn wrong_shapes() {
    let wrong = [(0, 2), (5, 1), (33, 1), (63, 1), (48, 17), (16, 68), (50, 3)].map(|change| (change, 0));
    let unfit = [(49, 2), (52, 2), (55, 2), (18, 8), (24, 8), (30, 8)].map(|change| (change, 5));
    for ((index, value), executed) in wrong.into_iter().chain(unfit) {
        let mut memory = draw(&mut || 0);
        memory.configs[0][index] = value;
        assert_eq!(by_calls(noren_emulator_products as *const u8, &mut memory), executed, "{index}");
    }
}

#[test]
fn other_faults() {
    fn fault() {
        // SAFETY: the instruction raises a fault.
        unsafe { asm!("ud2") };
    }
    fn breakpoint() {
        // SAFETY: the instruction raises a trap.
        unsafe { asm!("int3") };
    }
    fn handled() {
        extern "C" fn exit(_: libc::c_int) {
            // SAFETY: the call ends the process.
            unsafe { libc::_exit(7) };
        }
        // SAFETY: the structures are complete.
        unsafe {
            let mut action = libc::sigaction { sa_sigaction: exit as *const () as usize, ..zeroed() };
            sigaction(libc::SIGILL, &action, null_mut());
            sigaction(libc::SIGILL, &action.clone(), &mut action);
            assert_eq!(action.sa_sigaction, exit as *const () as usize);
        }
        if has_avx512() {
            by_processor(&mut draw(&mut || 0));
        }
        fault();
    }
    fn refused() {
        refuse_permission();
        // SAFETY: the call reads no memory. The kernel refuses it, and no other call.
        let [permission, process] =
            unsafe { [libc::syscall(libc::SYS_arch_prctl, 0x1023, 18), libc::syscall(libc::SYS_getpid)] };
        assert!(permission == -1 && process > 0);
        if has_avx512() {
            by_processor(&mut draw(&mut || 0));
        }
    }
    let end_of = |run: fn()| {
        let mut status = 0;
        // SAFETY: the new process has one thread, which calls only these functions.
        unsafe {
            let process = libc::fork();
            if process == 0 {
                run();
                libc::_exit(0);
            }
            libc::waitpid(process, &mut status, 0);
        }
        (libc::WTERMSIG(status), libc::WEXITSTATUS(status))
    };
    assert_eq!(end_of(fault), (libc::SIGILL, 0));
    assert_eq!(end_of(breakpoint), (libc::SIGTRAP, 0));
    assert_eq!(end_of(handled), (0, 7));
    assert_eq!(end_of(refused), (0, 0));
    assert_eq!(noren_amx_emulated(), 1);
}
