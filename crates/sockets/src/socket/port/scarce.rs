//! How many ports there are, and whether they are scarce.

use crate::kernel::program;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::rand::GetRandomFlags;

/// How long an answer is valid, milliseconds.
const STANDS: u64 = 100;
/// Ports are scarce when more than one in so many of the range may be in use.
const SHARE: u64 = 4;
/// Longest file that is read, bytes.
const MAX_FILE: usize = 4096;

static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWER: AtomicBool = AtomicBool::new(false);

/// Whether live connections and those in TIME-WAIT may exhaust the ports of the range.
pub fn are_ports() -> bool {
    let now = crate::kernel::clock::now_ms();
    if now.saturating_sub(ASKED.load(Relaxed)) >= STANDS && !program::sandboxed() {
        ANSWER.store(look().unwrap_or(false), Relaxed);
        ASKED.store(now, Relaxed);
    }
    ANSWER.load(Relaxed)
}

fn look() -> Option<bool> {
    let used = in_use(&read("/proc/thread-self/net/sockstat")?)?;
    Some(used > Range::read()?.size() / SHARE)
}

/// TCP connections of a network namespace, by its `sockstat`: live ones and those in TIME-WAIT.
fn in_use(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let field = |name| line.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse::<u64>().ok();
    Some(field("inuse")? + field("tw")?)
}

/// The ports that connections come from.
#[derive(Debug)]
pub struct Range {
    low: u16,
    high: u16,
    /// First and last port of each reserved range.
    reserved: Vec<(u16, u16)>,
}

impl Range {
    /// As this network namespace has it.
    pub fn read() -> Option<Self> {
        let reserved = read("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
        Self::parse(&read("/proc/sys/net/ipv4/ip_local_port_range")?, &reserved)
    }

    fn parse(range: &str, reserved: &str) -> Option<Self> {
        let mut ends = range.split_whitespace().map(|end| end.parse().ok());
        let (low, high) = (ends.next()??, ends.next()??);
        let reserved = reserved.trim().split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        (low <= high).then(|| Self { low, high, reserved: reserved.collect() })
    }

    fn size(&self) -> u64 {
        u64::from(self.high - self.low) + 1
    }

    /// The ports that the kernel's `connect` tries last, those at an odd distance from the lowest: each once, from a
    /// random start.
    pub fn candidates(&self) -> impl Iterator<Item = u16> {
        let count = self.size() / 2;
        let first = random() % count.max(1);
        (0..count)
            .filter_map(move |at| u16::try_from(u64::from(self.low) + (first + at) % count * 2 + 1).ok())
            .filter(|port| !self.reserved.iter().any(|(first, last)| (first..=last).contains(&port)))
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bytes)
}

/// A short text of the kernel's, without the calls that programs may see.
fn read(path: &str) -> Option<String> {
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = vec![0; MAX_FILE];
    let len = rustix::io::read(&file, &mut text[..]).ok()?;
    text.truncate(len);
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_in_use_are_read_from_the_kernel() {
        let text = "sockets: used 4\nTCP: inuse 5 orphan 0 tw 128 alloc 5 mem 295\nUDP: inuse 7 mem 2\n";
        assert_eq!(in_use(text), Some(133));
        assert_eq!(in_use("UDP: inuse 0"), None);
        assert!(look().is_some(), "on this machine");
    }

    #[test]
    fn ports_candidates_are_those_that_connect_tries_last() {
        let range = Range::parse("40000\t40009\n", "40003,40006-40008\n").unwrap();
        let all: Vec<_> = range.candidates().collect();
        assert_eq!(all.len(), 3);
        assert_eq!(BTreeSet::from_iter(all), BTreeSet::from([40001, 40005, 40009]));
        assert_eq!(Range::parse("40000 40000", "").unwrap().candidates().count(), 0);
        let whole = Range::parse("1 65535", "").unwrap();
        assert!(whole.candidates().all(|port| port % 2 == 0) && whole.candidates().count() == 32767);
        assert!(Range::parse("9 3", "").is_none());
    }
}
