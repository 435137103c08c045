//! Orphan check: ends that perhaps no process holds any more. A process that was killed sends no `Close`, and its session may live on in
//! other processes, or its connection may end while it lives. The kernel knows: a TCP connection without a socket file has no holder.

use crate::{Output, Policy, Resources};
use crosslane_fabric::circuit::{End, State};
use crosslane_wire::CircuitId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Interval between two checks of such an end. For this long no process must hold an end, since its program may be about to send `Close`.
const LOOK: Duration = Duration::from_secs(1);
/// The first check of an end whose session was lost; later intervals double.
const SOON: Duration = Duration::from_millis(1);
/// Interval between two checks of all ends.
const SWEEP: Duration = Duration::from_secs(30);
/// Most ends that are checked in one turn: about half a millisecond.
const BATCH: usize = 256;

/// An end that perhaps no process holds.
#[derive(Clone, Copy, Debug)]
struct Check {
    at: Duration,
    /// Interval between the last check and this one.
    pause: Duration,
    /// Since when no process holds the end, as far as was checked.
    gone: Option<Duration>,
}

/// Ends to check, in the order of time: each end gets its turn, however many there are.
#[derive(Debug)]
pub(crate) struct Checks {
    of: HashMap<CircuitId, Check>,
    due: BTreeSet<(Duration, CircuitId)>,
    /// When all ends are checked next, due or not.
    sweep_at: Duration,
}

impl Default for Checks {
    fn default() -> Self {
        Self { of: HashMap::new(), due: BTreeSet::new(), sweep_at: SWEEP }
    }
}

impl Checks {
    /// Frees memory for more than `ends` ends.
    pub(crate) fn shrink_to(&mut self, ends: usize) {
        self.of.shrink_to(ends);
    }

    /// The end is removed.
    pub(crate) fn remove(&mut self, circuit: CircuitId) {
        if let Some(check) = self.of.remove(&circuit) {
            self.due.remove(&(check.at, circuit));
        }
    }

    fn add(&mut self, circuit: CircuitId, check: Check) {
        self.remove(circuit);
        self.due.insert((check.at, circuit));
        self.of.insert(circuit, check);
    }

    /// The next end that is due.
    fn take(&mut self, now: Duration) -> Option<(CircuitId, Check)> {
        let (_, circuit) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        let check = self.of.get(&circuit).copied();
        self.remove(circuit);
        check.map(|check| (circuit, check))
    }
}

/// The result of a check of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It is held, or its holder will close it.
    Fine,
    /// A process holds it, or perhaps does, but may die without sending `Close`.
    Held,
    /// No process holds it.
    Gone,
    /// No process holds it, and no process lives that might still send a message about it.
    Over,
}

impl Policy {
    /// Schedules a check: perhaps no process holds this end.
    pub fn check_holders(&mut self, circuit: CircuitId, now: Duration) {
        if !self.checks.of.contains_key(&circuit) {
            self.checks.add(circuit, Check { at: now + LOOK, pause: LOOK, gone: None });
        }
    }

    /// As [`Self::check_holders`], if a process has probably just ended.
    pub fn check_holders_soon(&mut self, circuit: CircuitId, now: Duration) {
        self.checks.add(circuit, Check { at: now + SOON, pause: SOON, gone: None });
    }

    /// As [`Self::check_holders`], discarding the results of earlier checks.
    pub fn check_holders_anew(&mut self, circuit: CircuitId, now: Duration) {
        self.checks.remove(circuit);
        self.check_holders(circuit, now);
    }

    /// Checks the ends that are due; [`Output::NobodyHolds`] follows for ends that no process holds.
    pub(crate) fn check_due_holders(&mut self, now: Duration, resources: &mut impl Resources) {
        if now >= self.checks.sweep_at {
            self.checks.sweep_at = now + SWEEP;
            let all: Vec<CircuitId> = self.circuits.iter().map(|(circuit, _)| circuit).collect();
            all.into_iter().for_each(|circuit| self.check_holders(circuit, now));
        }
        for _ in 0..BATCH {
            let Some((circuit, check)) = self.checks.take(now) else { break };
            let gone = match self.look(circuit, resources) {
                Seen::Fine => continue,
                Seen::Held => None,
                Seen::Gone => Some(check.gone.unwrap_or(now)),
                Seen::Over => Some(Duration::ZERO),
            };
            if gone.is_some_and(|since| since.is_zero() || now >= since + LOOK) {
                self.push(Output::NobodyHolds { circuit, late: check.gone.is_some() });
                continue;
            }
            let pause = (check.pause * 2).min(LOOK);
            self.checks.add(circuit, Check { at: now + pause, pause, gone });
        }
    }

    /// When [`Self::check_due_holders`] must be called next.
    pub(crate) fn checks_deadline(&self) -> Option<Duration> {
        let sweep = self.circuits.iter().next().map(|_| self.checks.sweep_at);
        let next = self.checks.due.first().map(|(at, _)| *at);
        [sweep, next].into_iter().flatten().min()
    }

    fn look(&self, circuit: CircuitId, resources: &mut impl Resources) -> Seen {
        let is_used = |end: &&End| matches!(end.state, State::Pending | State::Open);
        let Some(end) = self.circuits.get(circuit).filter(is_used) else { return Seen::Fine };
        let is_lost = resources.is_lost(circuit);
        match resources.is_held(circuit, end) {
            // The kernel did not say, this time.
            None if is_lost => Seen::Held,
            None => Seen::Fine,
            Some(true) if is_lost || end.far_closed => Seen::Held,
            Some(true) => Seen::Fine,
            Some(false) if is_lost && resources.is_orphaned(circuit) => Seen::Over,
            Some(false) => Seen::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_checks_run_once_in_order_of_time() {
        let mut checks = Checks::default();
        let at = |ms| Check { at: Duration::from_millis(ms), pause: LOOK, gone: None };
        for (number, ms) in [(1, 30), (2, 10), (3, 20), (2, 40), (4, 20)] {
            checks.add(CircuitId(number), at(ms));
        }
        checks.remove(CircuitId(4));
        assert_eq!(checks.due.first().map(|(at, _)| *at), Some(Duration::from_millis(20)));
        let mut taken = Vec::new();
        while let Some((circuit, _)) = checks.take(Duration::from_millis(35)) {
            taken.push(circuit.0);
        }
        assert_eq!(taken, [3, 1]);
        assert!(checks.of.contains_key(&CircuitId(2)) && checks.of.len() == checks.due.len());
    }
}
