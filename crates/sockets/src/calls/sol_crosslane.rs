//! `SOL_CROSSLANE`: what programs that know of streams choose for them, and ask of them; `include/crosslane.h` is the
//! same for C. What is said of a socket before it is a stream is kept with its descriptor.

use crate::calls::io_timeouts;
use crate::daemon::{process, rules};
use crate::descriptors::choice::Choice;
use crate::descriptors::table::{self, Held, Kind};
use crate::kernel::{address, fault, sockopt, user};
use core::ffi::{c_int, c_void};
use crosslane_client::end::chosen::Statistics;
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_stream::{Direction, Transfer};
use libc::socklen_t;

/// The level of our options.
pub const SOL_CROSSLANE: c_int = 0x584c;
const XL_STATE: c_int = 1;
const XL_TRANSFER: c_int = 2;
const XL_OFFLOAD: c_int = 3;
const XL_STATS: c_int = 4;

const STATE_TCP: c_int = 0;
const STATE_STREAM: c_int = 1;
const STATE_LISTENER: c_int = 2;

/// Members of `struct xl_stats`.
const STATS: usize = 23;

/// What a TCP socket is to these options.
enum Socket {
    Stream(Held),
    /// Not connected, or listening: may become a stream, or bring some.
    Early,
    /// A connection of the kernel's.
    Plain,
}

/// An option of ours is set. `None`: `fd` is no TCP socket, and the kernel has the word.
///
/// # Safety
/// `value` must be null or valid for `len` bytes.
pub unsafe fn set(fd: c_int, name: c_int, value: *const c_void, len: socklen_t) -> Option<Result<(), c_int>> {
    let socket = socket(fd)?;
    // SAFETY: the caller's promise.
    Some(unsafe { int(value, len) }.and_then(|value| set_one(fd, &socket, name, value)))
}

/// An option of ours is asked for; as [`set`].
///
/// # Safety
/// `len` must be null or valid, `value` null or valid for `*len` bytes.
pub unsafe fn get(
    fd: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<Result<(), c_int>> {
    let socket = socket(fd)?;
    fault::catch();
    // SAFETY: any bytes are a length.
    let room = match unsafe { user::load(len) } {
        Ok(room) => room,
        Err(errno) => return Some(Err(errno)),
    };
    let answer = match told(fd, &socket, name) {
        Ok(Told::Number(number)) if (room as usize) < size_of_val(&number) => Err(libc::EINVAL),
        Ok(_) if c_int::try_from(room).is_err() => Err(libc::EINVAL),
        Ok(Told::Number(number)) => Ok(number.to_ne_bytes().to_vec()),
        Ok(Told::Statistics(words)) => Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect()),
        Err(errno) => Err(errno),
    };
    Some(answer.and_then(|bytes| {
        let copied = bytes.len().min(room as usize);
        // SAFETY: the caller's promise; no more than there is room for.
        unsafe {
            user::store_all(value.cast(), &bytes[..copied])?;
            user::store(len, &socklen_t::try_from(copied).unwrap_or(room))
        }
    }))
}

/// `fd` becomes a stream: what was said of the socket counts for it, else what rules say.
pub fn begin(fd: c_int, end: &Held) {
    let choice = Choice::of(fd);
    let ruled =
        process::welcome().map(|welcome| rules::chosen(&welcome.rules, end.side(), end.tuple().server));
    let (transfer, offload) = ruled.unwrap_or_default();
    if let Some((transfer, by)) = first(choice.transfer, transfer) {
        end.set_transfer(transfer, by);
    }
    if let Some((on, by)) = first(choice.offload, offload) {
        end.set_offload(on, by);
    }
    io_timeouts::begin(&choice, end);
}

fn first<T>(programs: Option<T>, rules: Option<T>) -> Option<(T, Chooser)> {
    programs.map(|it| (it, Chooser::Program)).or(rules.map(|it| (it, Chooser::Rule)))
}

fn socket(fd: c_int) -> Option<Socket> {
    if let Some(end) = table::stream(fd) {
        let is_tcp = end.rx() == Direction::Tcp && end.tx() == Direction::Tcp;
        return Some(if is_tcp { Socket::Plain } else { Socket::Stream(end) });
    }
    if !sockopt::is_tcp(fd) {
        return None;
    }
    Some(if address::remote(fd).is_some() { Socket::Plain } else { Socket::Early })
}

fn set_one(fd: c_int, socket: &Socket, name: c_int, value: c_int) -> Result<(), c_int> {
    let mut choice = Choice::of(fd);
    match name {
        XL_TRANSFER => choice.transfer = Some(transfer(value)?),
        XL_OFFLOAD => choice.offload = Some(switch(value)?),
        _ => return Err(libc::ENOPROTOOPT),
    }
    match socket {
        Socket::Early => {
            choice.keep(fd);
            Ok(())
        }
        Socket::Stream(end) => {
            match name {
                XL_TRANSFER => end.set_transfer(transfer(value)?, Chooser::Program),
                _ => end.set_offload(switch(value)?, Chooser::Program),
            }
            Ok(())
        }
        Socket::Plain => Err(libc::ENOPROTOOPT),
    }
}

/// The answer to one option.
enum Told {
    Number(c_int),
    Statistics([u64; STATS]),
}

fn told(fd: c_int, socket: &Socket, name: c_int) -> Result<Told, c_int> {
    let choice = Choice::of(fd);
    let number = match (name, socket) {
        (XL_STATE, Socket::Stream(_)) => STATE_STREAM,
        (XL_STATE, _) if table::look(fd).is_some_and(|entry| entry.kind == Kind::Listener) => STATE_LISTENER,
        (XL_STATE, _) => STATE_TCP,
        (XL_TRANSFER, Socket::Stream(end)) => end.transfer() as c_int,
        (XL_TRANSFER, Socket::Early) => choice.transfer.unwrap_or_default() as c_int,
        (XL_OFFLOAD, Socket::Stream(end)) => c_int::from(end.offload()),
        (XL_OFFLOAD, Socket::Early) => c_int::from(choice.offload.unwrap_or_default()),
        (XL_STATS, Socket::Stream(end)) => return Ok(Told::Statistics(words(&end.statistics()))),
        _ => return Err(libc::ENOPROTOOPT),
    };
    Ok(Told::Number(number))
}

/// `struct xl_stats`.
fn words(of: &Statistics) -> [u64; STATS] {
    let mut words = [0; STATS];
    words[0] = size_of_val(&words) as u64;
    words[1..11].copy_from_slice(&direction(of.tx_bytes, &of.sent));
    words[11..21].copy_from_slice(&direction(of.rx_bytes, &of.received));
    words[21] = of.wakes;
    words[22] = of.sleeps;
    words
}

fn direction(bytes: u64, modes: &ModesSnapshot) -> [u64; 10] {
    [
        bytes,
        modes.bcopy(bytes),
        modes.read_zcopy,
        modes.write_zcopy,
        modes.transaction,
        modes.copied(bytes),
        modes.records,
        modes.control,
        modes.cancelled,
        modes.offloaded,
    ]
}

/// # Safety
/// `value` must be null or valid for `len` bytes.
unsafe fn int(value: *const c_void, len: socklen_t) -> Result<c_int, c_int> {
    if (len as usize) < size_of::<c_int>() || c_int::try_from(len).is_err() {
        return Err(libc::EINVAL);
    }
    // SAFETY: any bytes are a number.
    unsafe { user::load(value.cast::<c_int>()) }
}

fn transfer(value: c_int) -> Result<Transfer, c_int> {
    u32::try_from(value).ok().and_then(Transfer::from_number).ok_or(libc::EINVAL)
}

fn switch(value: c_int) -> Result<bool, c_int> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_not_zero_copy_was_copied() {
        let sent = ModesSnapshot { read_zcopy: 300, spared: 300, records: 2, ..ModesSnapshot::default() };
        let words = words(&Statistics { tx_bytes: 1000, sent, wakes: 5, ..Statistics::default() });
        assert_eq!(words[..8], [184, 1000, 700, 300, 0, 0, 700, 2]);
        assert_eq!(words[11..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0]);
    }
}
