//! What the kernel calls.

use super::{action_of, kernels, put};
use crate::kernel::{real, thread};
use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};
use crosslane_shm::guarded;
use libc::{SIG_DFL, SIG_IGN, SIGBUS, siginfo_t, ucontext_t};

/// `si_code` of a `SIGBUS` that reports broken memory which nobody has touched.
const BUS_MCEERR_AO: c_int = 5;
/// `si_code` of a `SIGSEGV` that the kernel sends for no address; it comes again only if an instruction did it.
const SI_KERNEL: c_int = 0x80;

/// Its address.
pub(super) fn address() -> usize {
    (entry as *const ()).addr()
}

/// The handler. The program's handler then finds its arguments and the stack as they came.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {decide}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        decide = sym decide,
    )
}

/// Where to continue: the program's handler, or 0 for where the signal came.
///
/// # Safety
/// The arguments of a handler with `SA_SIGINFO`.
unsafe extern "C" fn decide(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    let (code, context) = unsafe { ((*info).si_code, &mut *context.cast::<ucontext_t>()) };
    let sent = code <= 0 || signal == SIGBUS && code == BUS_MCEERR_AO;
    let ip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    if !sent && let Some(landing) = guarded::landing(usize::try_from(*ip).unwrap_or(0)) {
        *ip = landing.cast_signed() as i64;
        return 0;
    }
    let handler = action_of(signal).map_or(SIG_DFL, super::Action::take);
    match handler {
        SIG_IGN if sent => 0,
        SIG_DFL | SIG_IGN => {
            // SAFETY: the caller's promise.
            unsafe { end(signal, info, context, sent) };
            0
        }
        handler => handler,
    }
}

/// Ends the process by the signal when this handler returns, as without the handler.
///
/// # Safety
/// `info` is the signal's.
unsafe fn end(signal: c_int, info: *mut siginfo_t, context: &mut ucontext_t, sent: bool) {
    // SAFETY: the kernel's mask, of which this changes one bit.
    let block = |context: &mut ucontext_t| unsafe { libc::sigaddset(&raw mut context.uc_sigmask, signal) };
    // SAFETY: the caller's promise.
    let comes_again = !sent && unsafe { (*info).si_code } != SI_KERNEL;
    if comes_again {
        // The instruction faults once more, and a blocked fault kills.
        block(context);
        return;
    }
    if let Some(mut action) = kernels(signal) {
        action.sa_sigaction = SIG_DFL;
        put(signal, &action);
    }
    let number = |number: c_int| c_long::from(number);
    let (pid, tid) = (c_long::from(std::process::id()), c_long::from(thread::tid()));
    // SAFETY: the signal's own record, to this thread.
    let queued = unsafe {
        let info = info.expose_provenance().cast_signed() as c_long;
        real::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, number(signal), info, 0, 0)
    };
    if queued != 0 {
        block(context);
    }
}
