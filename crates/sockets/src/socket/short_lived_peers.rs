//! Which far addresses are not worth a stream: the last connections there were all over at once.
//!
//! Setting a circuit up costs more than a connection that carries one request and its answer can win back. After
//! [`SHORT_IN_A_ROW`] such connections in a row, the next ones to that address go by TCP. One is a stream again after
//! [`PROBE`] of them, and the next such one after twice as many, up to [`PROBE_MAX`]; the first that lives longer or
//! carries more turns this around.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A connection that carried less than this, both ways together, bytes...
const SHORT_BYTES: u64 = 16 * 1024;
/// ...and lived less than this is short, milliseconds.
const SHORT_MS: u64 = 100;
/// Short connections in a row after which an address is left to TCP.
const SHORT_IN_A_ROW: u64 = 32;
/// The first connection that is a stream all the same comes after so many...
const PROBE: u64 = 64;
/// ...and as long as those are short too, the others in turn after twice as many, and at last so many.
const PROBE_MAX: u64 = 1024;
/// Addresses that are remembered.
const PLACES: usize = 256;

/// One word for an address: tag (32 bits), short connections in a row (16), connections left to TCP since (16). Two
/// addresses that share a place forget each other, which costs nothing but speed.
static HISTORY: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// The advice for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Make it a stream.
    Stream,
    /// Leave it to TCP.
    Tcp,
    /// Leave it to TCP, and log it: the first of a row.
    TcpFirst,
}

/// Whether a connection to `remote` should be a stream.
pub fn advise(remote: SocketAddr) -> Advice {
    let (place, tag) = place(remote);
    let (seen, shorts, skipped) = unpack(place.load(Relaxed));
    if seen != tag || shorts < SHORT_IN_A_ROW {
        return Advice::Stream;
    }
    let interval = interval(shorts);
    let skipped = (skipped + 1) % interval;
    place.store(pack(tag, shorts, skipped), Relaxed);
    match skipped {
        0 => Advice::Stream,
        1 => Advice::TcpFirst,
        _ => Advice::Tcp,
    }
}

/// Connections up to and including the next stream, after `shorts` short ones in a row.
fn interval(shorts: u64) -> u64 {
    (PROBE << shorts.saturating_sub(SHORT_IN_A_ROW).min(16)).min(PROBE_MAX)
}

/// A stream to `remote` ended after `ms` milliseconds and `bytes` bytes.
pub fn ended(remote: SocketAddr, ms: u64, bytes: u64) {
    let short = ms < SHORT_MS && bytes < SHORT_BYTES;
    count(remote, |before| if short { (before + 1).min(2 * SHORT_IN_A_ROW) } else { 0 });
}

/// The far daemon refused a stream to `remote`: asking costs a connection as much as a short stream does. It is asked
/// again at every [`PROBE`]th connection.
pub fn refused(remote: SocketAddr) {
    count(remote, |before| (before + 1).min(SHORT_IN_A_ROW));
}

/// Sets the short connections in a row of `remote` to what `shorts` makes of those before.
fn count(remote: SocketAddr, shorts: impl FnOnce(u64) -> u64) {
    let (place, tag) = place(remote);
    let (seen, before, skipped) = unpack(place.load(Relaxed));
    let shorts = shorts(if seen == tag { before } else { 0 });
    place.store(pack(tag, shorts, skipped), Relaxed);
}

fn place(remote: SocketAddr) -> (&'static AtomicU64, u64) {
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(remote);
    let index = usize::try_from(hash % PLACES as u64).unwrap_or(0);
    (&HISTORY[index], hash >> 32 | 1)
}

fn pack(tag: u64, shorts: u64, skipped: u64) -> u64 {
    tag << 32 | shorts << 16 | skipped
}

fn unpack(word: u64) -> (u64, u64, u64) {
    (word >> 32, word >> 16 & 0xffff, word & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_connections_go_to_tcp_and_are_probed() {
        let remote = SocketAddr::from(([10, 86, 0, 9], 4711));
        for _ in 0..SHORT_IN_A_ROW {
            assert_eq!(advise(remote), Advice::Stream);
            ended(remote, 1, 2);
        }
        let next = || (1..=2 * PROBE_MAX).find(|_| advise(remote) == Advice::Stream);
        for interval in [64, 128, 256, 512, 1024, 1024, 1024] {
            assert_eq!(next(), Some(interval));
            ended(remote, 1, 2);
        }
        ended(remote, 1, 1 << 20);
        assert_eq!(advise(remote), Advice::Stream);
    }

    #[test]
    fn refusing_peer_is_probed_now_and_then() {
        let remote = SocketAddr::from(([10, 86, 0, 9], 4713));
        for _ in 0..SHORT_IN_A_ROW {
            assert_eq!(advise(remote), Advice::Stream);
            refused(remote);
        }
        for _ in 0..5 {
            assert_eq!((1..=PROBE_MAX).find(|_| advise(remote) == Advice::Stream), Some(PROBE));
            refused(remote);
        }
        ended(remote, 1, 1 << 20);
        assert_eq!(advise(remote), Advice::Stream);
    }

    #[test]
    fn quiet_long_connection_keeps_its_stream() {
        let remote = SocketAddr::from(([10, 86, 0, 9], 4712));
        for _ in 0..2 * SHORT_IN_A_ROW {
            ended(remote, 60_000, 2);
        }
        assert_eq!(advise(remote), Advice::Stream);
    }
}
