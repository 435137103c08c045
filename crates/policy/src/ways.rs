//! Which cables lead anywhere: those that stay up, whose far daemon answers. Streams go back to shorter ways.

use crate::{Notice, Output, Policy};
use crosslane_wire::PortId;
use crosslane_wire::control::Control;
use std::time::Duration;

/// How often a neighbour is asked whether it is there, while streams go through it to hosts behind it.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long its answer may take. A daemon waits for a processor on a busy machine; a needless move costs a pause only.
const SILENCE: Duration = Duration::from_millis(1000);
/// How long after a change of links ways are looked at. Streams are taken to shorter ones once two looks in turn have
/// seen the same.
const SETTLE: Duration = Duration::from_millis(100);
/// Streams that are taken to shorter ways at a time.
const BATCH: usize = 32;
/// Pause between two batches.
const BATCH_PAUSE: Duration = Duration::from_millis(1);

/// What is due.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// When ways are looked at, and streams taken to shorter ones, if links have changed.
    shorten_at: Option<Duration>,
    /// When neighbours are asked whether they are there, if streams go through them.
    ask_at: Duration,
    /// Whether there are circuits of more than one cable here.
    pub(crate) relies: bool,
    /// Whether changes of ways are found out though no stream is here to take them.
    reports: bool,
}

impl Policy {
    /// Somebody wants to hear [`Notice::InReach`] also while there are no streams: finding all ways is the dearest thing that
    /// a host does.
    pub fn report_reach(&mut self) {
        self.ways.reports = true;
    }

    /// The neighbour at `port` has said something.
    pub(crate) fn heard_from(&mut self, port: PortId) {
        let Some(up) = self.ports.get_mut(&port).and_then(|there| there.up.as_mut()) else { return };
        up.asked = None;
        if std::mem::take(&mut up.silent) {
            let peer = up.agreement.peer;
            self.push(Output::Notice(Notice::Answers { port, peer }));
            self.join(port);
        }
    }

    /// The cable at `port` is used from now on.
    pub(crate) fn join(&mut self, port: PortId) {
        let Some(up) = self.ports.get_mut(&port).and_then(|there| there.up.as_mut()) else { return };
        up.join_at = None;
        let peer = up.agreement.peer;
        self.links.handle_cable_up(port, peer);
        self.push(Output::Notice(Notice::Used { port }));
    }

    /// Links have changed: once for many of them it is seen what became of the ways.
    pub(crate) fn ways_may_have_changed(&mut self, now: Duration) {
        self.ways.shorten_at.get_or_insert(now + SETTLE);
    }

    /// What is due: cables that may be used by now, questions to neighbours, streams that can take a shorter way.
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

    /// When [`Self::tend_ways`] shall be called next.
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
            // A cable that is not to be trusted is better than none.
            if at <= now || self.links.next_hop(peer).is_none() {
                self.join(port);
            }
        }
    }

    /// Ways have changed if they are not as they were at the last look.
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
        if self.circuits.shorten(&self.links, BATCH) {
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
