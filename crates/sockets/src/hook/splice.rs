//! `splice`: between a pipe and a stream.
//!
//! As with the kernel's TCP, the pipe's `O_NONBLOCK` and `SPLICE_F_NONBLOCK` decide whether the pipe is waited for, the
//! socket's `O_NONBLOCK` whether the stream is. A call moves what is there and fits. The kernel makes the call, and
//! refuses it, wherever one side is not a pipe.

use super::hook;
use crate::calls::io;
use crate::descriptors::table::{self, Held};
use crate::kernel::{real, scratch, thread};
use crate::waiting::wait::{self, WaitFor};
use core::ffi::{c_int, c_short, c_uint};
use libc::{POLLERR, POLLIN, POLLOUT, SPLICE_F_NONBLOCK, size_t, ssize_t};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::PipeFlags;
use std::io::IoSlice;

/// Bytes moved at a time, at most: what a pipe holds that nobody has made longer.
const CHUNK: usize = 64 * 1024;
/// All flags that there are.
const FLAGS: c_uint = SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

hook! {
    /// `splice(2)`, from a pipe into a stream or from a stream into a pipe.
    fn splice(input: c_int, input_offset: *mut i64, out: c_int, out_offset: *mut i64, len: size_t, flags: c_uint) -> ssize_t |kernel| {
        let (from, to) = (table::stream(input), table::stream(out));
        let plain = input_offset.is_null() && out_offset.is_null() && flags & !FLAGS == 0 && len > 0;
        match (from, to) {
            (Some(end), None) if plain && is_pipe(out) => pipe_in(input, &end, out, len, flags).finish(kernel),
            (None, Some(end)) if plain && is_pipe(input) => pipe_out(out, &end, input, len, flags).finish(kernel),
            _ => kernel(),
        }
    }
}

/// Whether it is a pipe, or a FIFO.
pub fn is_pipe(fd: c_int) -> bool {
    // SAFETY: F_GETPIPE_SZ takes no argument; only pipes have a size.
    unsafe { real::fcntl(fd, libc::F_GETPIPE_SZ, core::ptr::null_mut()) >= 0 }
}

/// Waits until the pipe is ready, unless the call or the pipe must not wait; what it is ready for.
fn await_pipe(pipe: c_int, events: c_short, flags: c_uint) -> Result<c_short, c_int> {
    let mut polled = libc::pollfd { fd: pipe, events, revents: 0 };
    // SAFETY: one pollfd.
    if unsafe { real::poll(&raw mut polled, 1, 0) } > 0 && polled.revents & events != 0 {
        return Ok(polled.revents);
    }
    // SAFETY: F_GETFL takes no argument.
    let status = unsafe { real::fcntl(pipe, libc::F_GETFL, core::ptr::null_mut()) };
    let wrong_end = if events == POLLIN { libc::O_WRONLY } else { libc::O_RDONLY };
    if status & libc::O_ACCMODE == wrong_end {
        return Err(libc::EBADF);
    }
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0 || status & libc::O_NONBLOCK != 0;
    loop {
        // SAFETY: one pollfd.
        match unsafe { real::poll(&raw mut polled, 1, if nonblocking { 0 } else { -1 }) } {
            0 => return Err(libc::EAGAIN),
            1.. => return Ok(polled.revents),
            _ if real::errno() == libc::EINTR => wait::interrupted(false)?,
            _ => return Err(real::errno()),
        }
    }
}

/// From a pipe: never reads more than the stream surely takes, unless it may wait.
fn pipe_out(out: c_int, end: &Held, pipe: c_int, len: usize, flags: c_uint) -> io::Outcome {
    match await_pipe(pipe, POLLIN, flags) {
        Err(errno) => return io::Outcome::Errno(errno),
        Ok(events) if events & POLLIN == 0 => return io::Outcome::Bytes(0),
        Ok(_) => {}
    }
    // What the stream refuses stays in the pipe.
    let refused = io::send(out, end, &[IoSlice::new(&[])], 0);
    if !matches!(refused, io::Outcome::Bytes(_)) {
        return refused;
    }
    let nonblocking = end.shared().status.nonblock.load(core::sync::atomic::Ordering::Relaxed) != 0;
    let limit = if nonblocking { end.room(thread::tid()) } else { CHUNK };
    scratch::with(len.min(limit).min(CHUNK), |chunk| {
        if chunk.is_empty() {
            return io::Outcome::Errno(libc::EAGAIN);
        }
        // SAFETY: our own buffer.
        let got = unsafe { real::read(pipe, chunk.as_mut_ptr().cast(), chunk.len()) };
        match usize::try_from(got) {
            Ok(0) => io::Outcome::Bytes(0),
            Ok(got) => send_surely(out, end, &chunk[..got]),
            Err(_) => io::Outcome::Errno(real::errno()),
        }
    })
}

/// Sends bytes that were taken from elsewhere and cannot go back. There was room for them, so this waits only if the
/// stream is just moving to another circuit.
fn send_surely(out: c_int, end: &Held, bytes: &[u8]) -> io::Outcome {
    let mut done = 0;
    loop {
        match io::send(out, end, &[IoSlice::new(&bytes[done..])], 0) {
            io::Outcome::Bytes(sent) => done += sent,
            io::Outcome::Errno(libc::EAGAIN | libc::EINTR) => {}
            outcome => return if done > 0 { io::Outcome::Bytes(done) } else { outcome },
        }
        if done >= bytes.len() {
            return io::Outcome::Bytes(done);
        }
        if let Err(errno) = wait::wait(out, end, WaitFor::Room, None)
            && errno != libc::EINTR
        {
            return if done > 0 { io::Outcome::Bytes(done) } else { io::Outcome::Errno(errno) };
        }
    }
}

/// Into a pipe: takes from the stream only what the pipe accepted.
pub fn pipe_in(input: c_int, end: &Held, pipe: c_int, len: usize, flags: c_uint) -> io::Outcome {
    match await_pipe(pipe, POLLOUT, flags) {
        Err(errno) => return io::Outcome::Errno(errno),
        // Nobody reads from it.
        Ok(events) if events & POLLERR != 0 => return io::broken_pipe(0),
        Ok(_) => {}
    }
    scratch::with(len.min(CHUNK), |chunk| io::pass(input, end, chunk, |bytes| fill(pipe, bytes)))
}

/// Puts into the pipe what fits, and never waits (a `write` would, until all fits). How much fits into a pipe that is
/// not empty only the kernel knows, since its pages may be half full: so the bytes go through a pipe of ours.
fn fill(pipe: c_int, bytes: &[u8]) -> Result<usize, c_int> {
    match write_now(pipe, bytes) {
        Err(libc::EOPNOTSUPP) => {}
        outcome => return outcome,
    }
    let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(rustix::io::Errno::raw_os_error)?;
    by_own_pipe(&from, &to, pipe, bytes)
}

/// Writes what there is room for (Linux 6.5 and later; before, `EOPNOTSUPP`).
fn write_now(pipe: c_int, bytes: &[u8]) -> Result<usize, c_int> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a buffer of its own length, which is only read.
    let put = unsafe { real::pwritev2(pipe, &raw const part, 1, -1, libc::RWF_NOWAIT) };
    usize::try_from(put).map_err(|_| real::errno())
}

fn by_own_pipe(from: &OwnedFd, to: &OwnedFd, pipe: c_int, bytes: &[u8]) -> Result<usize, c_int> {
    let held = rustix::io::write(to.as_fd(), bytes).map_err(rustix::io::Errno::raw_os_error)?;
    let (from, none) = (rustix::fd::AsRawFd::as_raw_fd(from), core::ptr::null_mut());
    // SAFETY: two pipes, and no offsets.
    let put = unsafe { real::splice(from, none, pipe, none, held, SPLICE_F_NONBLOCK) };
    usize::try_from(put).map_err(|_| real::errno())
}
