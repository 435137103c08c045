//! For tests: something is done behind every single instruction of a piece of work, as if a signal, or the end of the process,
//! came at that moment. By the processor's trap flag.

use core::arch::asm;
use core::cell::Cell;
use core::ptr::null_mut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

type Look<'a> = &'a dyn Fn(u32);

thread_local! {
    static LOOK: Cell<Option<Look<'static>>> = const { Cell::new(None) };
    static STEP: Cell<u32> = const { Cell::new(0) };
    static FAILED: Cell<Option<u32>> = const { Cell::new(None) };
}

extern "C" fn stepped(_: libc::c_int) {
    let step = STEP.get();
    STEP.set(step + 1);
    let Some(look) = LOOK.get().filter(|_| FAILED.get().is_none()) else { return };
    if catch_unwind(AssertUnwindSafe(|| look(step))).is_err() {
        FAILED.set(Some(step));
    }
}

/// Does `work`, and `look` behind each instruction of it; returns how many there were. `look` is told the number of the
/// instruction, must not allocate where `work` does, and may panic.
pub(crate) fn at_each_instruction(work: impl FnOnce(), look: &dyn Fn(u32)) -> u32 {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: all-zero bytes are a valid action; no other test uses the signal.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = stepped as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()), 0);
        }
    });
    STEP.set(0);
    FAILED.set(None);
    // SAFETY: taken away below, before `look` ends; `work` is not to panic.
    LOOK.set(Some(unsafe { core::mem::transmute::<Look<'_>, Look<'static>>(look) }));
    // SAFETY: sets the trap flag; the handler is installed, and runs without.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    work();
    // SAFETY: clears it again.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    LOOK.set(None);
    assert_eq!(FAILED.get(), None, "the instruction behind which it failed");
    assert!(STEP.get() > 20, "too few instructions");
    STEP.get()
}
