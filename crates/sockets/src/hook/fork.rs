//! `fork` by all its names. A child that shares its parent's memory (a thread, `vfork`) is none of these.

use super::hook;
use crate::forking;
use crate::kernel::{real, user};
use core::ffi::{c_int, c_long, c_void};
use libc::{CLONE_VM, pid_t};

/// What a child of [`clone`] begins with.
type Begin = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The program's beginning of a child, with its argument.
struct Child {
    begin: Begin,
    argument: *mut c_void,
}

hook! {
    /// `fork(2)`: the work is done by the C library's handlers; here is known whether it failed.
    fn fork() -> pid_t |kernel| {
        forking::begins();
        let pid = kernel();
        if pid != 0 {
            let errno = real::errno();
            forking::ended(pid < 0);
            real::set_errno(errno);
        }
        pid
    }

    /// `_Fork(3)`: calls no handlers.
    #[allow(non_snake_case, reason = "its name")]
    fn _Fork() -> pid_t |kernel| {
        forking::around(kernel)
    }

    /// `clone(2)` as the C library has it.
    fn clone(begin: Begin, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int |kernel| {
        if flags & CLONE_VM != 0 {
            return kernel();
        }
        let mut first = Child { begin, argument };
        let first: *mut c_void = (&raw mut first).cast();
        // SAFETY: the program's promise to `clone`; the child has a copy of `first`.
        forking::around(|| unsafe { real::clone(begin_child, stack, flags, first, parent, tls, child) })
    }
}

/// # Safety
/// `first` is a [`Child`] in this process's copy of its parent's stack.
unsafe extern "C" fn begin_child(first: *mut c_void) -> c_int {
    forking::in_child();
    // SAFETY: the caller's promise.
    let Child { begin, argument } = unsafe { first.cast::<Child>().read() };
    // SAFETY: the program's promise to `clone`.
    unsafe { begin(argument) }
}

/// Whether this system call is a `fork`, by its number and its first two arguments: the child comes back where its
/// parent does, with memory of its own.
///
/// # Safety
/// The arguments must be those of a system call that the kernel would accept.
pub unsafe fn is_fork(number: c_long, a: c_long, b: c_long) -> bool {
    let shares = |flags: c_long| flags & c_long::from(CLONE_VM) != 0;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        libc::SYS_clone => !shares(a) && b == 0,
        libc::SYS_clone3 => {
            // SAFETY: `clone3` begins with a pointer to its arguments, which begin with the flags (u64), and their length.
            b >= 64 && unsafe { user::load(a as *const c_long) }.is_ok_and(|flags| !shares(flags))
        }
        _ => false,
    }
}
