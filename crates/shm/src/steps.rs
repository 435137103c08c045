//! For tests: runs code after every single instruction of a piece of work, as if a signal, or the end of the process,
//! came at that moment. Uses the processor's trap flag.

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

/// Calls `work`, and `look` after each of its instructions; returns their number. `look` gets the number of the
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
    // SAFETY: removed below, before `look` ends; `work` must not panic.
    LOOK.set(Some(unsafe { core::mem::transmute::<Look<'_>, Look<'static>>(look) }));
    // SAFETY: sets the trap flag; the handler is installed, and runs without the flag.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    work();
    // SAFETY: clears the trap flag.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    LOOK.set(None);
    assert_eq!(FAILED.get(), None, "the instruction behind which it failed");
    assert!(STEP.get() > 20, "too few instructions");
    STEP.get()
}
