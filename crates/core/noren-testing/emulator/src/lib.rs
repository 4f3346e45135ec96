//! Emulates the tile instructions of AMX for `bf16`, so that kernels that use them are tested on machines without AMX.
//! The machine needs x86-64 Linux with glibc, and AVX-512F; for other systems, the library is empty.
//!
//! ```sh
//! cargo build --release -p noren-emulator
//! LD_PRELOAD=$PWD/target/release/libnoren_emulator.so program
//! ```
//!
//! A processor without AMX raises a fault (`SIGILL`) at a tile instruction. The handler in `signals.rs` computes the
//! instruction on a tile state of the thread (`tiles.rs`), and continues after it. CPUID does not report AMX: the program
//! looks up the symbol `noren_amx_emulated` instead.
//!
//! On a processor with AMX, the kernel refuses permission to use tiles (a filter of calls, so no library of the program
//! gets it either, for example PyTorch's). The processor then executes only `ldtilecfg`, `sttilecfg` and `tilerelease`,
//! and the handler reads the configuration from the signal frame. One difference remains there: a second load of an
//! equal configuration does not set the tiles to zero.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod signals;
#[cfg(test)]
mod tests;
mod tiles;
