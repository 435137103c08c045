//! `sigaction` and its relatives for the two signals whose action in the kernel is ours ([`crate::kernel::fault`]):
//! programs set and read their own actions.

use super::hook;
use crate::kernel::fault::{self, Handling};
use crate::kernel::{real, user};
use core::ffi::{c_int, c_long};
use libc::sighandler_t;

hook! {
    /// `sigaction(2)`.
    fn sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int |kernel| {
        if !fault::is_caught() {
            return kernel();
        }
        // SAFETY: the C library reads it without asking the kernel, too.
        let new = unsafe { action.as_ref() };
        // SAFETY: all-zero bytes are a valid action.
        let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
        let outcome = set(signal, new.map(of), |instead| {
            let new = new.zip(instead).map(|(new, instead)| {
                libc::sigaction { sa_sigaction: instead.handler, sa_flags: instead.flags, ..*new }
            });
            let new = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: our own actions.
            match unsafe { real::sigaction(signal, new, &raw mut before) } {
                0 => Ok(of(&before)),
                _ => Err(real::errno()),
            }
        });
        match outcome {
            Ok(told) if !old.is_null() => {
                // SAFETY: the C library writes there without asking the kernel, too.
                unsafe { old.write(libc::sigaction { sa_sigaction: told.handler, sa_flags: told.flags, ..before }) };
                0
            }
            Ok(_) => 0,
            Err(errno) => real::fail(errno),
        }
    }

    /// `sigaction` by the C library's own name.
    fn __sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        // SAFETY: the program's promise.
        unsafe { sigaction(signal, action, old) }
    }

    /// `signal(2)`.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t |kernel| {
        fault::lifted(signal, kernel)
    }

    /// `signal` by another name.
    fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the program's promise.
        unsafe { signal(number, handler) }
    }

    /// `signal` by a third name.
    fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the program's promise.
        unsafe { signal(number, handler) }
    }

    /// `sysv_signal(3)`: for one signal.
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t |kernel| {
        fault::lifted(signal, kernel)
    }

    /// `signal` as programs have it that ask for System V's.
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: the program's promise.
        unsafe { sysv_signal(signal, handler) }
    }

    /// `sigset(3)`.
    fn sigset(signal: c_int, disposition: sighandler_t) -> sighandler_t |kernel| {
        fault::lifted(signal, kernel)
    }

    /// `sigignore(3)`.
    fn sigignore(signal: c_int) -> c_int |kernel| {
        fault::lifted(signal, kernel)
    }

    /// `siginterrupt(3)`.
    fn siginterrupt(signal: c_int, flag: c_int) -> c_int |kernel| {
        fault::lifted(signal, kernel)
    }
}

/// The kernel's form of an action.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// `rt_sigaction` by `syscall`; `None`: the kernel alone has to do with it.
pub fn by_number(
    signal: c_int,
    action: *const KernelAction,
    old: *mut KernelAction,
    size: c_long,
) -> Option<c_long> {
    if !fault::keeps(signal) || size != size_of::<u64>() as c_long {
        return None;
    }
    // SAFETY: any bytes are an action.
    let new = if action.is_null() { None } else { Some(unsafe { user::load(action) }) };
    let new = match new.transpose() {
        Ok(new) => new,
        Err(errno) => return Some(real::fail(errno)),
    };
    let mut before = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let flags = |flags: c_int| flags.cast_unsigned() as usize;
    let handling = |action: &KernelAction| {
        let [f0, f1, f2, f3, ..] = action.flags.to_le_bytes();
        Handling { handler: action.handler, flags: c_int::from_le_bytes([f0, f1, f2, f3]) }
    };
    let outcome = fault::exchange(signal, new.as_ref().map(handling), |instead| {
        let new = new.zip(instead).map(|(new, instead)| KernelAction {
            handler: instead.handler,
            flags: flags(instead.flags),
            ..new
        });
        let new = new.as_ref().map_or(0, |new| core::ptr::from_ref(new).expose_provenance());
        let old = (&raw mut before).expose_provenance();
        let address = |at: usize| at.cast_signed() as c_long;
        // SAFETY: our own actions.
        match unsafe {
            real::syscall(libc::SYS_rt_sigaction, signal.into(), address(new), address(old), size, 0, 0)
        } {
            0 => Ok(handling(&before)),
            _ => Err(real::errno()),
        }
    });
    Some(match outcome {
        Ok(_) if old.is_null() => 0,
        Ok(told) => {
            let told = KernelAction { handler: told.handler, flags: flags(told.flags), ..before };
            // SAFETY: the program's place.
            unsafe { user::store(old, &told) }.map_or_else(real::fail, |()| 0)
        }
        Err(errno) => real::fail(errno),
    })
}

/// The program's change of a signal's action; in a child of `vfork`, and of other signals, the kernel has it as it is.
fn set(
    signal: c_int,
    new: Option<Handling>,
    kernel: impl FnOnce(Option<Handling>) -> Result<Handling, c_int>,
) -> Result<Handling, c_int> {
    if fault::keeps(signal) {
        return fault::exchange(signal, new, kernel);
    }
    kernel(new).map(|before| fault::programs_action(signal, before))
}

fn of(action: &libc::sigaction) -> Handling {
    Handling { handler: action.sa_sigaction, flags: action.sa_flags }
}
