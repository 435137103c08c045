//! A stream's counters, from the daemons of both its ends: by which mode its bytes went, and the copies that took.

use anyhow::{Context, Result};
use crosslane_lab::Lab;
use crosslane_status::{Circuit, Direction, Role, Status};
use std::net::SocketAddr;
use std::ops::Sub;

/// The modes that carry bytes, as people name them.
pub const MODES: [&str; 4] = ["bcopy", "read-zcopy", "write-zcopy", "transaction"];

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes that the connecting end sent by each of [`MODES`].
    pub by_mode: [u64; 4],
    /// Bytes that the connecting end copied to send them.
    pub copied_in: u64,
    /// Bytes that the other end received; it was asked a moment earlier or later.
    pub received: u64,
    /// Bytes that it copied to receive them.
    pub copied_out: u64,
    /// Records with payload and messages without, of both ends.
    pub messages: u64,
}

impl Tally {
    /// Of the stream whose connecting end, in `h1`, has this address; the other end is in `h2`.
    ///
    /// # Errors
    /// A daemon does not answer, or knows no such stream: the connection was not accelerated.
    pub fn of(lab: &Lab, client: SocketAddr) -> Result<Self> {
        let end = |host, role| -> Result<Circuit> {
            let status = lab.status(host)?;
            let found = find(&status, client, role).cloned();
            found.with_context(|| format!("{host} has no stream of {client}: it was not accelerated"))
        };
        Ok(Self::read(&end("h1", Role::Client)?, &end("h2", Role::Server)?))
    }

    fn read(sender: &Circuit, receiver: &Circuit) -> Self {
        let messages = |end: &Circuit| end.sent.records + end.sent.control + end.received.control;
        let Direction { bcopy, read_zcopy, write_zcopy, transaction, copied, .. } = sender.sent;
        Self {
            by_mode: [bcopy, read_zcopy, write_zcopy, transaction],
            copied_in: copied,
            received: receiver.rx_bytes,
            copied_out: receiver.received.copied,
            messages: messages(sender) + messages(receiver),
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.by_mode.iter().sum()
    }

    /// Part of the bytes that went by the mode of this name.
    pub fn share(&self, mode: &str) -> f64 {
        let at = MODES.iter().position(|name| *name == mode);
        at.map_or(0.0, |at| ratio(self.by_mode[at], self.bytes()))
    }

    /// How often each byte was copied, by both ends together.
    pub fn copies(&self) -> f64 {
        ratio(self.copied_in, self.bytes()) + ratio(self.copied_out, self.received)
    }
}

impl Sub for Tally {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let mut by_mode = self.by_mode;
        by_mode.iter_mut().zip(before.by_mode).for_each(|(now, before)| *now = now.saturating_sub(before));
        Self {
            by_mode,
            copied_in: self.copied_in.saturating_sub(before.copied_in),
            received: self.received.saturating_sub(before.received),
            copied_out: self.copied_out.saturating_sub(before.copied_out),
            messages: self.messages.saturating_sub(before.messages),
        }
    }
}

fn find(status: &Status, client: SocketAddr, role: Role) -> Option<&Circuit> {
    status.circuits.iter().rfind(|circuit| circuit.client == client && circuit.role == role)
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::CircuitId;

    fn circuit() -> Circuit {
        Circuit::between("10.86.0.1:5".parse().unwrap(), "10.86.0.2:80".parse().unwrap())
    }

    #[test]
    fn tally_shares_and_copies_are_of_the_difference() {
        let end = |read_zcopy: u64, copied: u64| {
            let zero = Direction::default();
            let counted = Direction { bcopy: 100, read_zcopy, copied, records: 3, control: 1, ..zero };
            Circuit { sent: counted, received: counted, rx_bytes: 100 + read_zcopy, ..circuit() }
        };
        let before = Tally::read(&end(0, 100), &end(0, 100));
        let between = Tally::read(&end(900, 100), &end(900, 1000)) - before;
        assert_eq!((between.bytes(), between.share("read-zcopy"), between.share("bcopy")), (900, 1.0, 0.0));
        assert_eq!((between.copies(), before.copies(), before.messages), (1.0, 2.0, 10));
    }

    #[test]
    fn tally_finds_the_stream_by_its_connecting_end() {
        let row = |id, role| Circuit { id: CircuitId(id), role, ..circuit() };
        let status =
            Status { circuits: vec![row(1, Role::Server), row(2, Role::Client)], ..Status::default() };
        let client = circuit().client;
        assert_eq!(find(&status, client, Role::Client).map(|found| found.id), Some(CircuitId(2)));
        assert!(find(&status, circuit().server, Role::Client).is_none());
    }
}
