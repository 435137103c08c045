//! Echo: a probe through the fabric, which the daemons pass on from host to host.

use crate::host::Host;
use crate::session::{SessionId, Waiting};
use crosslane_wire::control::Control;
use crosslane_wire::local::Reply;
use crosslane_wire::{HostId, PortId};
use std::time::Duration;

/// How long an answer may take.
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);
/// Most hops of a probe.
const TTL: u8 = 64;

/// The fields of an `Echo`.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The host that sends this probe or answer.
    pub from: HostId,
    /// Its destination.
    pub to: HostId,
    /// Number by which the asking daemon knows its probe again.
    pub token: u64,
    /// Hops left.
    pub ttl: u8,
    /// Clock of the answering daemon, ns.
    pub stamp: u64,
    /// Whether this is the answer.
    pub reply: bool,
}

impl Host {
    /// Serves a session's `Echo`: answers at once where no cable is needed, else when the probe comes back.
    pub fn echo(&mut self, session: SessionId, to: HostId) {
        if to == self.me() {
            return self.answer_echo(session, Some(Duration::ZERO), 0);
        }
        let Some(way) = self.policy.links.next_hop(to) else { return self.answer_echo(session, None, 0) };
        let token = crate::random::u64();
        let sent = self.elapsed();
        let from = self.me();
        let until = sent + ECHO_TIMEOUT;
        self.sessions.wait_for(session, Waiting::Echo { token, sent, hops: way.hops, until });
        if let Some(cable) = self.cables.get_mut(way.port) {
            cable.send(&Control::Echo { from, to, token, ttl: TTL, stamp: 0, reply: false });
            cable.flush();
        }
    }

    /// Handles a probe that came by a port: answers it, passes it on, or, if it is the answer to one of this host's, finishes that one.
    /// A probe from a host that is not behind that port is dropped, and none takes more hops than the longest path has.
    pub fn handle_echo(&mut self, port: PortId, probe: Probe) {
        if !self.may_come_by(probe.from, port) {
            return;
        }
        let ttl = probe.ttl.min(self.policy.links.reach().saturating_add(1));
        if probe.to != self.me() {
            self.send_echo(Probe { ttl, ..probe });
        } else if probe.reply {
            self.finish_echo(probe.token);
        } else {
            let stamp = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.send_echo(Probe { from: probe.to, to: probe.from, ttl: TTL, stamp, reply: true, ..probe });
        }
    }

    /// Answers a session's `Echo`.
    pub fn answer_echo(&mut self, session: SessionId, round_trip: Option<Duration>, hops: u8) {
        let round_trip_ns = round_trip.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        if let Some(session) = self.sessions.get_mut(session) {
            session.reply(&Reply::Echo { round_trip_ns, hops }, &[]);
        }
    }

    fn send_echo(&mut self, probe: Probe) {
        let Probe { from, to, token, ttl, stamp, reply } = probe;
        let Some(ttl) = ttl.checked_sub(1).filter(|ttl| *ttl > 0) else { return };
        let Some(way) = self.policy.links.next_hop(to) else { return };
        if let Some(cable) = self.cables.get_mut(way.port)
            && cable.has_room()
        {
            cable.send(&Control::Echo { from, to, token, ttl, stamp, reply });
            cable.flush();
        }
    }

    fn finish_echo(&mut self, token: u64) {
        let now = self.elapsed();
        let is_it =
            |waiting: &Waiting| matches!(waiting, Waiting::Echo { token: mine, .. } if *mine == token);
        for id in self.sessions.waiting_for(is_it) {
            let waiting = self.sessions.get(id).and_then(|session| session.waiting);
            if let Some(Waiting::Echo { sent, hops, .. }) = waiting {
                self.sessions.answered(id);
                self.answer_echo(id, Some(now.saturating_sub(sent)), hops);
            }
        }
    }
}
