//! `execl`, `execlp` and `execle`: the forms of `exec` that take the program's arguments one by one.
//!
//! Rust cannot define such functions, so a few instructions lay the arguments out in memory: those that came in registers,
//! and where the others are. On other processors than x86-64 the C library's own are called, as if nobody had looked:
//! the new image still finds its streams, for as long as its parent lives.
#![cfg(target_arch = "x86_64")]

use super::exec;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

/// Arguments that come in registers, behind the path.
const IN_REGISTERS: usize = 5;
/// Arguments that need no allocation.
const FEW: usize = 64;

/// Defines a function whose arguments are laid out and handed to `$inner`.
macro_rules! listed {
    ($($(#[$meta:meta])* $name:ident => $inner:ident;)*) => {$(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {inner}",
                "add rsp, 40",
                "ret",
                inner = sym $inner,
            )
        }
    )*};
}

listed! {
    /// `execl(3)`.
    execl => execl_listed;
    /// `execlp(3)`.
    execlp => execlp_listed;
    /// `execle(3)`.
    execle => execle_listed;
}

type Text = *const c_char;

unsafe extern "C" fn execl_listed(path: Text, registers: *const Text, stack: *const Text) -> c_int {
    // SAFETY: as `listed` lays them out.
    unsafe { with_array(Listed { registers, stack }, |argv, _| exec::execv(path, argv)) }
}

unsafe extern "C" fn execlp_listed(file: Text, registers: *const Text, stack: *const Text) -> c_int {
    // SAFETY: as above.
    unsafe { with_array(Listed { registers, stack }, |argv, _| exec::execvp(file, argv)) }
}

unsafe extern "C" fn execle_listed(path: Text, registers: *const Text, stack: *const Text) -> c_int {
    // SAFETY: as above; the environment comes behind the null pointer.
    unsafe {
        let listed = Listed { registers, stack };
        with_array(listed, |argv, count| exec::execve(path, argv, listed.at(count + 1).cast()))
    }
}

/// Arguments one by one, the last one null.
#[derive(Clone, Copy)]
struct Listed {
    registers: *const Text,
    stack: *const Text,
}

impl Listed {
    /// # Safety
    /// There must be so many.
    unsafe fn at(self, index: usize) -> Text {
        // SAFETY: the caller's promise.
        unsafe {
            match index.checked_sub(IN_REGISTERS) {
                None => *self.registers.add(index),
                Some(index) => *self.stack.add(index),
            }
        }
    }
}

/// Calls `exec` with the arguments as an array, and with their number.
///
/// # Safety
/// `listed` ends with a null pointer.
unsafe fn with_array(listed: Listed, exec: impl FnOnce(*const Text, usize) -> c_int) -> c_int {
    let mut count = 0;
    // SAFETY: the caller's promise.
    while !unsafe { listed.at(count) }.is_null() {
        count += 1;
    }
    let (mut few, mut many) = ([core::ptr::null(); FEW], Vec::new());
    let array = if count < FEW {
        &mut few[..=count]
    } else {
        many.resize(count + 1, core::ptr::null());
        &mut many[..]
    };
    for (index, place) in array.iter_mut().enumerate() {
        // SAFETY: as above.
        *place = unsafe { listed.at(index) };
    }
    exec(array.as_ptr(), count)
}
