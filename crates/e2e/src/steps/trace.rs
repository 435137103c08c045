//! The calls of `ptrace(2)` that have no safe form.

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal};
use std::mem::MaybeUninit;
use std::ptr;

/// This process's parent traces it from now on.
pub(super) fn ask_to_be_traced() -> Result<()> {
    // SAFETY: takes no pointer.
    let outcome = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    ensure!(outcome == 0, "ptrace: {}", std::io::Error::last_os_error());
    Ok(())
}

/// A traced process that has stopped goes on, with a signal or without.
pub(super) fn go_on(pid: Pid, signal: Option<Signal>) -> Result<()> {
    resume(libc::PTRACE_CONT, pid, signal)
}

/// A traced process that has stopped executes one instruction.
pub(super) fn step(pid: Pid) -> Result<()> {
    resume(libc::PTRACE_SINGLESTEP, pid, None)
}

fn resume(how: libc::c_uint, pid: Pid, signal: Option<Signal>) -> Result<()> {
    let signal = libc::c_long::from(signal.map_or(0, Signal::as_raw));
    let nowhere = ptr::null_mut::<libc::c_void>();
    // SAFETY: the address is not used, and the data is a number.
    let outcome = unsafe { libc::ptrace(how, pid.as_raw_nonzero().get(), nowhere, signal) };
    ensure!(outcome == 0, "ptrace: {}", std::io::Error::last_os_error());
    Ok(())
}

/// The registers of a traced process that has stopped.
pub(super) fn registers(pid: Pid) -> Result<libc::user_regs_struct> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
    let nowhere = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel fills a struct of this type.
    let outcome = unsafe {
        libc::ptrace(libc::PTRACE_GETREGS, pid.as_raw_nonzero().get(), nowhere, registers.as_mut_ptr())
    };
    ensure!(outcome == 0, "ptrace: {}", std::io::Error::last_os_error());
    // SAFETY: it was filled.
    Ok(unsafe { registers.assume_init() })
}
