//! A hostile host: it does what a host does, and forges, replays and floods link states besides.

use crate::schedule::Fault;
use crate::world::{Event, World};
use crosslane_fabric::links::{BATCH, Distrust, Keys, LIFE};
use crosslane_wire::control::{Control, LinkState, Seal};
use crosslane_wire::{HostId, PortId};
use std::time::Duration;

/// Most records that a hostile host remembers.
const TAPE: usize = 4000;
/// Ids that it knows of, some of hosts that are not there.
const IDS: usize = 80;

/// A host's keys: the signature of a host is a sum over its id, which nobody else computes.
#[derive(Debug)]
pub(crate) struct SimKeys(pub(crate) HostId);

fn seal(host: HostId, bytes: &[u8]) -> Seal {
    let mut sum = u64::from(host.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in bytes {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
    let mut half = [0; 32];
    half[..8].copy_from_slice(&sum.to_le_bytes());
    Seal(half, [1; 32])
}

impl Keys for SimKeys {
    fn sign(&self, bytes: &[u8]) -> Option<Seal> {
        Some(seal(self.0, bytes))
    }

    fn check(&self, record: &LinkState) -> Result<(), Distrust> {
        match record.seal {
            None => Err(Distrust::Unsigned),
            Some(it) if it == seal(record.origin, &record.sealed_bytes()) => Ok(()),
            Some(_) => Err(Distrust::Forged),
        }
    }
}

impl World {
    /// Remembers records for a hostile host.
    pub(crate) fn record(&mut self, records: &[LinkState]) {
        if let Some(tape) = &mut self.tape {
            let room = TAPE.saturating_sub(tape.len());
            tape.extend(records.iter().take(room).cloned());
        }
    }

    /// All hosts sign their records.
    pub(crate) fn give_keys(&mut self) {
        for host in 0..self.hosts.len() {
            let keys = SimKeys(self.hosts[host].id);
            self.policies[host].links.use_keys(Box::new(keys));
            self.counts.versions += 1;
            self.turn_soon(host);
        }
    }

    /// Forged records from `host`, for `time` from now.
    pub(crate) fn plan_forgery(&mut self, host: usize, time: Duration) {
        self.tape.get_or_insert_default();
        let mut at = Duration::ZERO;
        while at < time {
            self.after(at, Event::Fault(Fault::Forge(host)));
            at += self.random.micros(50, 100_000);
        }
    }

    /// Some records, by all of the host's ports.
    pub(crate) fn forge(&mut self, host: usize) {
        let count = 1 + self.random.below(BATCH);
        let records: Vec<LinkState> = (0..count).map(|_| self.forged(host)).collect();
        self.counts.versions += u64::try_from(count).unwrap();
        for port in 0..self.hosts[host].ports.len() {
            let port = PortId(u8::try_from(port).unwrap());
            self.send(host, port, Control::LinkStates(records.clone()));
        }
    }

    /// One that was made up, or was true once.
    fn forged(&mut self, host: usize) -> LinkState {
        let tape = self.tape.as_deref().unwrap_or_default();
        if !tape.is_empty() && self.random.once_in(4) {
            let said = &tape[self.random.below(tape.len())];
            if said.origin != self.hosts[host].id {
                return LinkState { age: 0, ..said.clone() };
            }
        }
        let victim = (host + 1 + self.random.below(IDS - 1)) % IDS;
        let origin = HostId(u16::try_from(victim + 1).unwrap());
        let (number, sequence) = self.policies.get(victim).map_or((0, 0), |there| there.links.own_number());
        let incarnation = match self.random.below(6) {
            0 => u64::MAX,
            1 => number.wrapping_add((1 << 63) - 1),
            2 => number.wrapping_add(1 << 63),
            3 => number.wrapping_add(1),
            4 => number,
            _ => self.random.next(),
        };
        let sequence = [u64::MAX, sequence, sequence + 1][self.random.below(3)];
        let mut neighbours: Vec<HostId> = (0..self.random.below(5))
            .map(|_| HostId(u16::try_from(1 + self.random.below(IDS)).unwrap()))
            .chain([self.hosts[host].id])
            .filter(|other| *other != origin)
            .collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        let age = [0, 0, 1000, u16::MAX][self.random.below(4)];
        let seal = self.random.once_in(2).then_some(Seal([7; 32], [7; 32]));
        LinkState { origin, incarnation, sequence, neighbours, age, seal }
    }

    /// When records of hosts that are not there must be forgotten, after the last one was heard.
    pub(crate) fn aging_bound() -> Duration {
        LIFE + Duration::from_secs(180)
    }

    /// Nobody remembers a host that is not there.
    pub(crate) fn check_forgotten(&mut self) {
        let most = self.hosts.len();
        let known: Vec<usize> = self.policies.iter().map(|host| host.links.known()).collect();
        if known.iter().any(|known| *known > most) {
            self.fail(format!("{most} hosts, and records known are {known:?}"));
        }
    }
}
