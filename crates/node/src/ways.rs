//! Which cables lead anywhere: those that stay up, whose far daemon answers. Streams go back to shorter ways.

use crate::cable::Standing;
use crate::host::Host;
use crosslane_wire::control::Control;
use crosslane_wire::{HostId, PortId};
use std::time::Duration;

/// How often a neighbour is asked whether it is there, while anything leans on it.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long its answer may take. A daemon waits for a processor on a busy machine; a needless move costs a pause only.
const SILENCE: Duration = Duration::from_millis(1000);
/// How long after a change of links ways are looked at. Streams are taken to shorter ones once two looks in turn have
/// seen the same.
const SETTLE: Duration = Duration::from_millis(100);
/// Streams that are taken to shorter ways at a time.
const BATCH: usize = 32;

impl Host {
    /// The cable at `port` is up: it is used as soon as it may be trusted.
    pub(crate) fn cable_up(&mut self, port: PortId, peer: HostId) {
        let now = self.now;
        let is_only_way = self.policy.links.next_hop(peer).is_none();
        let Some(cable) = self.cable(port) else { return };
        let hold = if is_only_way { Duration::ZERO } else { cable.damping.hold() };
        cable.standing = Standing { join_at: (!hold.is_zero()).then_some(now + hold), ..Standing::default() };
        if hold.is_zero() {
            self.policy.links.handle_cable_up(port, peer);
        } else {
            tracing::info!(
                port = port.0,
                hold_ms = hold.as_millis(),
                "cable flaps; it is used once it has stayed up"
            );
        }
    }

    /// The cable at `port` is down.
    pub(crate) fn cable_down(&mut self, port: PortId) {
        let now = self.now;
        if let Some(cable) = self.cable(port) {
            cable.damping.lost(now);
            cable.standing = Standing::default();
        }
        self.policy.links.handle_cable_down(port);
    }

    /// The neighbour at `port` has said something.
    pub(crate) fn heard_from(&mut self, port: PortId) {
        let Some(cable) = self.cable(port) else { return };
        cable.standing.asked = None;
        if std::mem::take(&mut cable.standing.silent)
            && let Some(peer) = cable.agreement().map(|agreement| agreement.peer)
        {
            tracing::info!(port = port.0, %peer, "the neighbour answers again");
            self.policy.links.handle_cable_up(port, peer);
        }
    }

    /// Links have changed: once for many of them it is seen what became of the ways.
    pub(crate) fn ways_may_have_changed(&mut self) {
        self.shorten_at.get_or_insert(self.now + SETTLE);
    }

    /// Ways have changed if they are not as they were at the last look.
    fn look_at_ways(&mut self) {
        if !self.policy.links.poll_changed() {
            return self.shorten_ways();
        }
        let hosts: Vec<u16> = self.policy.links.hosts().map(|(host, _)| host.0).collect();
        tracing::info!(?hosts, "hosts in reach");
        self.shorten_at = Some(self.now + SETTLE);
        if self.policy.links.has_twin() {
            tracing::error!(host = %self.me(), "another host in the network has our id: give each its own");
        }
    }

    /// What is due: cables that may be used by now, questions to neighbours, streams that can take a shorter way.
    pub fn tend_ways(&mut self) {
        let now = self.now;
        for index in 0..self.cables.len() {
            let cable = &mut self.cables[index];
            let (port, peer) = (cable.id, cable.agreement().map(|agreement| agreement.peer));
            let (Some(at), Some(peer)) = (cable.standing.join_at, peer) else { continue };
            // A cable that is not to be trusted is better than none.
            if at <= now || self.policy.links.next_hop(peer).is_none() {
                cable.standing.join_at = None;
                self.policy.links.handle_cable_up(port, peer);
            }
        }
        if self.ask_at <= now {
            self.ask_at = now + ASK_EVERY;
            self.ask_neighbours();
        }
        if self.shorten_at.is_some_and(|at| at <= now) {
            self.shorten_at = None;
            self.look_at_ways();
        }
    }

    /// When [`Self::tend_ways`] shall be called next.
    pub(crate) fn ways_deadline(&self) -> Option<Duration> {
        let joins = self.cables.iter().filter_map(|cable| cable.standing.join_at).min();
        [joins, self.shorten_at, self.leaning.then_some(self.ask_at)].into_iter().flatten().min()
    }

    fn is_leant_on(&self, cable: &crate::cable::Cable) -> bool {
        cable.agreement().is_some_and(|agreement| self.policy.circuits.leans_on(cable.id, agreement.peer))
    }

    fn ask_neighbours(&mut self) {
        let now = self.now;
        self.leaning = false;
        for index in 0..self.cables.len() {
            let Some(peer) = self.cables[index].agreement().map(|agreement| agreement.peer) else { continue };
            let leant_on = self.is_leant_on(&self.cables[index]);
            let cable = &mut self.cables[index];
            let port = cable.id;
            self.leaning |= leant_on || cable.standing.asked.is_some();
            match cable.standing.asked {
                None if leant_on => {
                    cable.standing.asked = Some(now);
                    cable.send(&Control::Alive { reply: false });
                }
                Some(asked) if now.saturating_sub(asked) >= SILENCE && !cable.standing.silent => {
                    cable.standing.silent = true;
                    tracing::warn!(port = port.0, %peer, "the neighbour does not answer; streams through it take other ways");
                    self.policy.links.handle_cable_down(port);
                    self.policy.circuits.handle_silence(port, peer);
                }
                _ => {}
            }
        }
    }

    fn shorten_ways(&mut self) {
        if self.policy.circuits.shorten(&self.policy.links, BATCH) {
            self.shorten_at = Some(self.now + Duration::from_millis(1));
        }
    }
}
