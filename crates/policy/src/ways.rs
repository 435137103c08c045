//! The cables in use: those that stay up, and whose far daemon answers. Moves streams back to shorter paths.

use crate::{Notice, Output, Policy};
use crosslane_fabric::route::Spread;
use crosslane_wire::PortId;
use crosslane_wire::control::Control;
use std::time::Duration;

/// Interval between keepalive requests to a neighbour, while streams pass through it to other hosts.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long its answer may take. On a busy machine a daemon waits for a processor; a needless move costs only a pause.
const SILENCE: Duration = Duration::from_millis(1000);
/// How long after a change of links paths are compared. Streams move to shorter paths once two comparisons in a row had the same result.
const SETTLE: Duration = Duration::from_millis(100);
/// Most streams that move to shorter paths at a time.
const BATCH: usize = 32;
/// Pause between two batches.
const BATCH_PAUSE: Duration = Duration::from_millis(1);

/// Times at which something is due.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// When to compare paths and move streams to shorter ones, if links have changed.
    shorten_at: Option<Duration>,
    /// When to send keepalive requests to neighbours, if streams pass through them.
    ask_at: Duration,
    /// Whether there are circuits of more than one cable here.
    pub(crate) relies: bool,
    /// Whether to compute changes of paths although no stream here could use them.
    reports: bool,
    /// Over which paths the circuits that this host requests are spread.
    pub(crate) spread: Spread,
}

impl Policy {
    /// The caller wants [`Notice::InReach`] also while there are no streams. It is off by default, since computing all
    /// paths is the most expensive work of a host.
    pub fn report_reach(&mut self) {
        self.ways.reports = true;
    }

    /// Spreads the circuits that this host requests from now on over these paths.
    pub fn spread_over(&mut self, spread: Spread) {
        self.ways.spread = spread;
    }

    /// A message of the neighbour at `port` has arrived.
    pub(crate) fn heard_from(&mut self, port: PortId) {
        let Some(up) = self.ports.get_mut(&port).and_then(|there| there.up.as_mut()) else { return };
        up.asked = None;
        if std::mem::take(&mut up.silent) {
            let peer = up.agreement.peer;
            self.push(Output::Notice(Notice::Answers { port, peer }));
            self.join(port);
        }
    }

    /// Uses the cable at `port` from now on.
    pub(crate) fn join(&mut self, port: PortId) {
        let Some(up) = self.ports.get_mut(&port).and_then(|there| there.up.as_mut()) else { return };
        up.join_at = None;
        let peer = up.agreement.peer;
        self.links.handle_cable_up(port, peer);
        self.push(Output::Notice(Notice::Used { port }));
    }

    /// Links have changed: schedules one comparison of paths for all changes of a short time.
    pub(crate) fn ways_may_have_changed(&mut self, now: Duration) {
        self.ways.shorten_at.get_or_insert(now + SETTLE);
    }

    /// Does what is due: uses cables that damping allows by now, sends keepalive requests, moves streams to shorter paths.
    pub(crate) fn tend_ways(&mut self, now: Duration) {
        self.join_due(now);
        if self.ways.ask_at <= now {
            self.ways.ask_at = now + ASK_EVERY;
            self.ask_neighbours(now);
        }
        if self.ways.shorten_at.is_some_and(|at| at <= now) {
            self.ways.shorten_at = None;
            self.look_at_ways(now);
        }
    }

    /// When [`Self::tend_ways`] must be called next.
    pub(crate) fn ways_deadline(&self) -> Option<Duration> {
        let joins = self.ports.values().filter_map(|there| there.up?.join_at).min();
        let asks = self.ways.relies.then_some(self.ways.ask_at);
        [joins, self.ways.shorten_at, asks].into_iter().flatten().min()
    }

    fn join_due(&mut self, now: Duration) {
        let waiting = |(port, there): (&PortId, &crate::neighbour::Port)| {
            let up = there.up?;
            Some((*port, up.agreement.peer, up.join_at?))
        };
        let waiting: Vec<_> = self.ports.iter().filter_map(waiting).collect();
        for (port, peer, at) in waiting {
            // A cable that damping holds back is better than none.
            if at <= now || self.links.next_hop(peer).is_none() {
                self.join(port);
            }
        }
    }

    /// Compares the paths with those of the last comparison.
    fn look_at_ways(&mut self, now: Duration) {
        let matters = self.ways.reports || self.circuits.iter().next().is_some();
        if !matters || !self.links.poll_changed() {
            return self.shorten_ways(now);
        }
        if self.ways.reports {
            let hosts = self.links.hosts().map(|(host, _)| host).collect();
            let duplicate_id = self.links.has_duplicate();
            self.push(Output::Notice(Notice::InReach { hosts, duplicate_id }));
        }
        self.ways.shorten_at = Some(now + SETTLE);
    }

    fn shorten_ways(&mut self, now: Duration) {
        if self.circuits.shorten(&self.links, self.ways.spread, BATCH) {
            self.ways.shorten_at = Some(now + BATCH_PAUSE);
        }
    }

    fn ask_neighbours(&mut self, now: Duration) {
        self.ways.relies = false;
        let ports: Vec<PortId> = self.ports.keys().copied().collect();
        for port in ports {
            let Some(up) = self.up(port).copied() else { continue };
            let peer = up.agreement.peer;
            let relied_on = self.circuits.is_passed_through(port, peer);
            self.ways.relies |= relied_on || up.asked.is_some();
            match up.asked {
                None if relied_on => {
                    self.change(port, |up| up.asked = Some(now));
                    self.send(port, Control::Alive { reply: false });
                }
                Some(asked) if now.saturating_sub(asked) >= SILENCE && !up.silent => {
                    self.change(port, |up| up.silent = true);
                    self.push(Output::Notice(Notice::Silent { port, peer }));
                    self.links.handle_cable_down(port);
                    self.circuits.handle_silence(port, peer);
                }
                _ => {}
            }
        }
    }

    fn change(&mut self, port: PortId, change: impl FnOnce(&mut crate::neighbour::Up)) {
        if let Some(up) = self.ports.get_mut(&port).and_then(|there| there.up.as_mut()) {
            change(up);
        }
    }
}
