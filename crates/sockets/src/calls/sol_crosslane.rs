//! `SOL_CROSSLANE`: options by which programs control streams and query them; `include/crosslane.h` declares them for
//! C. Options set before a socket is a stream are kept with its descriptor.

use crate::calls::io_timeouts;
use crate::daemon::{process, rules};
use crate::descriptors::choice::Choice;
use crate::descriptors::table::{self, Held, Kind};
use crate::kernel::user::{Place, Value};
use crate::kernel::{address, fault, sockopt};
use core::ffi::c_int;
use crosslane_client::end::chosen::Statistics;
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_stream::{Direction, Transfer};

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

/// Sets an option of ours. `None`: `fd` is no TCP socket, and the kernel answers.
pub fn set(fd: c_int, name: c_int, value: &Value) -> Option<Result<(), c_int>> {
    let socket = socket(fd)?;
    Some(value.number().and_then(|value| set_one(fd, &socket, name, value)))
}

/// Reads an option of ours; otherwise as [`set`].
pub fn get(fd: c_int, name: c_int, place: &Place) -> Option<Result<(), c_int>> {
    let socket = socket(fd)?;
    fault::catch();
    Some(answer(fd, &socket, name, place))
}

fn answer(fd: c_int, socket: &Socket, name: c_int, place: &Place) -> Result<(), c_int> {
    let room = place.room()?;
    let bytes: Vec<u8> = match value_of(fd, socket, name)? {
        Answer::Number(number) if (room as usize) < size_of_val(&number) => return Err(libc::EINVAL),
        _ if c_int::try_from(room).is_err() => return Err(libc::EINVAL),
        Answer::Number(number) => number.to_ne_bytes().to_vec(),
        Answer::Statistics(words) => words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
    };
    place.store(&bytes, room)
}

/// Called when `fd` becomes a stream: applies the options set before, else what the rules say.
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
enum Answer {
    Number(c_int),
    Statistics([u64; STATS]),
}

fn value_of(fd: c_int, socket: &Socket, name: c_int) -> Result<Answer, c_int> {
    let choice = Choice::of(fd);
    let number = match (name, socket) {
        (XL_STATE, Socket::Stream(_)) => STATE_STREAM,
        (XL_STATE, _) if table::look(fd).is_some_and(|entry| entry.kind == Kind::Listener) => STATE_LISTENER,
        (XL_STATE, _) => STATE_TCP,
        (XL_TRANSFER, Socket::Stream(end)) => end.transfer() as c_int,
        (XL_TRANSFER, Socket::Early) => choice.transfer.unwrap_or_default() as c_int,
        (XL_OFFLOAD, Socket::Stream(end)) => c_int::from(end.offload()),
        (XL_OFFLOAD, Socket::Early) => c_int::from(choice.offload.unwrap_or_default()),
        (XL_STATS, Socket::Stream(end)) => return Ok(Answer::Statistics(words(&end.statistics()))),
        _ => return Err(libc::ENOPROTOOPT),
    };
    Ok(Answer::Number(number))
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
    fn copied_bytes_are_all_but_zero_copy() {
        let sent = ModesSnapshot { read_zcopy: 300, spared: 300, records: 2, ..ModesSnapshot::default() };
        let words = words(&Statistics { tx_bytes: 1000, sent, wakes: 5, ..Statistics::default() });
        assert_eq!(words[..8], [184, 1000, 700, 300, 0, 0, 700, 2]);
        assert_eq!(words[11..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0]);
    }
}
