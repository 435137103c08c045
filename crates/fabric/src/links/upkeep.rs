//! Upkeep of link states over time: a host renews its own record, goes above records of others in its name, and drops
//! records that their origins do not renew.

use super::order::compare_lives;
use super::pace::{Budget, Intake};
use super::{Held, LIFE, Links, MAX_LINKS, RENEW};
use core::cmp::Ordering;
use crosslane_wire::HostId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Interval between two checks for records to renew or drop.
pub(super) const LOOK: Duration = Duration::from_secs(60);
/// How often a host goes above records in its name. If more arrive, another host has its id, or forges.
pub(super) const RETORTS: Budget = Budget::new(Duration::from_secs(1), 4);

impl Links {
    /// Sets the time, and does what is due.
    pub fn handle_time(&mut self, now: Duration) {
        self.now = now;
        if now < self.due {
            return;
        }
        for port in self.intakes.keys().copied().collect::<Vec<_>>() {
            while let Some(waited) = self.intakes.get_mut(&port).and_then(|intake| intake.poll(now)) {
                let origin = waited.record.origin;
                self.handle_record(port, waited.record);
                if waited.has_dropped {
                    self.owe(port, origin);
                }
            }
        }
        if self.above.is_some() && self.retorts.take(now) {
            self.go_above();
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            self.look();
        }
        let waiting = self.intakes.values().filter_map(Intake::deadline);
        let retort = self.above.map(|_| self.retorts.ready_at());
        self.due = waiting.chain(retort).fold(self.look_at, Duration::min);
    }

    /// When [`Self::handle_time`] must be called next.
    pub fn poll_deadline(&self) -> Duration {
        self.due
    }

    /// Renews this host's record, and drops records that were not renewed.
    fn look(&mut self) {
        let (me, now) = (self.me, self.now);
        if self.renew_at <= now {
            self.renew();
        }
        let old = |held: &Held| u64::from(held.age(now)) >= LIFE.as_secs();
        let before = self.states.len();
        self.states.retain(|origin, held| *origin == me || !old(held));
        if self.states.len() < before {
            self.forget_ways();
        }
        self.intakes.values_mut().for_each(|intake| intake.tidy(now));
        self.duplicate_seen_at = self.duplicate_seen_at.filter(|at| now.saturating_sub(*at) < LOOK);
    }

    /// A newer record of this host than its own arrived: from an earlier life, from another host with its id, or forged.
    pub(super) fn retort(&mut self, incarnation: u64) {
        let is_higher = |above: u64| compare_lives(incarnation, above) == Ordering::Greater;
        if self.above.is_none_or(is_higher) {
            self.above = Some(incarnation);
        }
        if self.retorts.take(self.now) {
            self.go_above();
        } else {
            self.duplicate_seen_at = Some(self.now);
            self.due = self.due.min(self.retorts.ready_at());
        }
    }

    fn go_above(&mut self) {
        if let (Some(own), Some(above)) = (self.states.get_mut(&self.me), self.above.take()) {
            own.record.incarnation = above.wrapping_add(1);
            self.renew();
        }
    }

    /// Makes a new record of this host, queued for all ports: its links have changed, or it is time.
    pub(super) fn renew(&mut self) {
        let neighbours: BTreeSet<HostId> = self.ports.values().copied().collect();
        self.renew_at = self.now + RENEW;
        if let Some(Held { record, since }) = self.states.get_mut(&self.me) {
            *since = self.now;
            record.sequence = record.sequence.saturating_add(1);
            record.neighbours = neighbours.into_iter().take(MAX_LINKS).collect();
            record.seal = self.keys.sign(&record.sealed_bytes());
        }
        for owed in self.owed.values_mut() {
            owed.insert(self.me);
        }
        self.forget_ways();
    }
}
