//! The handler of faults at tile instructions, and its installation.

use crate::tiles::{BREAKPOINT, Tiles};
use libc::{c_int, c_void, sigaction as Action, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::{arch::x86_64::__cpuid_count, cell::UnsafeCell, mem::zeroed, ptr::null, ptr::null_mut};

thread_local! {
    // A handler may use it: it has no destructor, and its initial bytes are zero.
    static TILES: UnsafeCell<Tiles> = const { UnsafeCell::new(Tiles::RELEASED) };
}

/// The actions of the program for `SIGILL` and `SIGTRAP`.
static PROGRAM: [AtomicPtr<Action>; 2] = [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())];

/// The place of the configuration of tiles in the saved state of the processor, in bytes.
static CONFIG_OFFSET: AtomicUsize = AtomicUsize::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;

unsafe extern "C" {
    /// `sigaction` of the C library by its other name.
    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
}

/// Returns 1. Programs look up this symbol to find whether tile instructions are emulated.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn noren_amx_emulated() -> c_int {
    1
}

/// Installs the handler before `main`.
extern "C" fn install() {
    // SAFETY: every x86-64 processor has the instruction. Rust 1.89 requires the block, later versions call the function safe.
    #[allow(unused_unsafe)]
    let tile_config = unsafe { __cpuid_count(13, 17) };
    CONFIG_OFFSET.store(tile_config.ebx as usize, Relaxed);
    if tile_config.ebx > 0 && !cfg!(test) {
        refuse_permission();
    }
    for signal in [libc::SIGILL, libc::SIGTRAP] {
        // SAFETY: the handler has the signature that SA_SIGINFO requires.
        unsafe {
            let mut action =
                Action { sa_sigaction: handler as *const () as usize, sa_flags: libc::SA_SIGINFO, ..zeroed() };
            __sigaction(signal, &action.clone(), &mut action);
            program(signal).store(Box::into_raw(Box::new(action)), Relaxed);
        }
    }
}

/// Makes the kernel refuse permission to use tiles: with it, which a library of the program may request at any time, the
/// processor would execute those instructions that it has not met before.
pub(crate) fn refuse_permission() {
    const REQUEST_PERMISSION: u32 = 0x1023;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_arch_prctl as u32, 3),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16, 0), // its first argument
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, REQUEST_PERMISSION, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the filter. No process that starts from here gains privileges, which the kernel requires.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(set, "the kernel filters no calls, so libraries may use the tiles of the processor");
}

/// Replaces the function of the C library: handlers that the program installs later, such as those of Python's
/// `faulthandler`, receive only other faults.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the arguments are those of the caller, and stored actions are never freed.
    unsafe {
        let mut current: Action = zeroed();
        if __sigaction(signal, null(), &mut current) != 0 || current.sa_sigaction != handler as *const () as usize {
            return __sigaction(signal, new, old);
        }
        let stored = program(signal).load(Relaxed);
        if !new.is_null() {
            program(signal).store(Box::into_raw(Box::new(*new)), Relaxed);
        }
        if !old.is_null() {
            *old = *stored;
        }
        0
    }
}

fn program(signal: c_int) -> &'static AtomicPtr<Action> {
    &PROGRAM[usize::from(signal == libc::SIGTRAP)]
}

/// Executes the tile instruction at the fault and those directly after it. Installs the action of the program if it
/// is another instruction.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes these structures.
    let (machine, fault) = unsafe { (&mut (*context.cast::<ucontext_t>()).uc_mcontext, (*info).si_code > 0) };
    let trap = signal == libc::SIGTRAP;
    let first = (machine.gregs[libc::REG_RIP as usize] - i64::from(trap)) as *const u8;
    let mut code = first;
    // SAFETY: the state is that of this thread and of the processor. The program itself would execute the code.
    unsafe {
        let tiles = &mut *TILES.with(UnsafeCell::get);
        let config = native_config(machine.fpregs.cast());
        if let Some(config) = config.filter(|config| *config != tiles.config) {
            tiles.configure(&config);
        }
        while let (true, Some(length)) = (fault, tiles.execute(code, &machine.gregs, config.is_some())) {
            code = code.add(length);
        }
    }
    if code != first {
        machine.gregs[libc::REG_RIP as usize] = code as i64;
        if !trap {
            break_at(first);
        }
        return;
    }
    // SAFETY: the action is that of the program. A fault happens again after this handler, other signals are sent again.
    unsafe {
        __sigaction(signal, program(signal).load(Relaxed), null_mut());
        if trap || !fault {
            libc::raise(signal);
        }
    }
}

/// Returns the configuration of tiles that the processor has loaded. Returns `None` if the processor lacks AMX.
unsafe fn native_config(saved: *const u8) -> Option<[u8; 64]> {
    // SAFETY: at 472, the kernel writes the parts that the saved state has; at 512, those that are not initial.
    let [has, changed] = [472, 512].map(|offset| unsafe { saved.add(offset).cast::<u64>().read() } & 1 << 17 != 0);
    // SAFETY: the saved state has this part.
    let loaded = || unsafe { saved.add(CONFIG_OFFSET.load(Relaxed)).cast::<[u8; 64]>().read() };
    has.then(|| if changed { loaded() } else { [0; 64] })
}

/// Replaces the first byte of an instruction by a breakpoint if the kernel allows it: hypervisors intercept faults, which
/// takes ten times as long as a breakpoint.
fn break_at(code: *const u8) {
    // SAFETY: handlers may use these functions. The write changes only the page of this process.
    unsafe {
        let memory = libc::open(c"/proc/self/mem".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::pwrite(memory, [BREAKPOINT].as_ptr().cast(), 1, code as i64);
        libc::close(memory);
    }
}
