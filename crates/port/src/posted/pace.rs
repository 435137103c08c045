//! The time at which a store lands.

use super::LATE;
use crosslane_pcie::{Cable, Direction, Limits, NANOSECOND};
use fastrand::Rng;

/// The timing of a cable. Called for each piece of each store, in the order in which they were stored: so an
/// implementation may also keep track of how long the link is busy, and cut stores into packets of a link.
pub(crate) trait Pace: Send {
    /// Bytes of the first piece, 1 to `len`, of a store of `len` bytes to `offset` of a segment: each piece lands separately.
    fn cut(&mut self, offset: usize, len: usize) -> usize;

    /// When a piece of `len` bytes lands that was stored at `stored_at`, ns; not earlier than that. The order of stores
    /// may make it land later. `held_up`: its writer stores as fast as room is made ([`crosslane_shm::queue::Entry`]).
    fn lands_at(&mut self, stored_at: u64, len: usize, held_up: bool) -> u64;

    /// The other direction has carried `bytes` more by `now`, ns, as its side says, which may be lying: what acknowledges them goes in between.
    /// Returns how many of them count.
    fn acknowledge(&mut self, bytes: u64, now: u64) -> u64 {
        let _ = (bytes, now);
        0
    }

    /// Whether no piece lands before an earlier one, so that nobody need keep the order of stores to one line.
    fn in_order(&self) -> bool {
        false
    }
}

/// Bytes that a processor combines into one write.
pub(super) const LINE: usize = 64;

/// Delays between two bounds, and cuts between lines, drawn from a seed.
#[derive(Debug)]
pub(super) struct Drawn {
    dice: Rng,
    least: u64,
    more: u64,
}

impl Drawn {
    /// Delays of `least` to `most` ns.
    pub(super) fn new(seed: u64, (least, most): (u32, u32)) -> Self {
        Self { dice: Rng::with_seed(seed), least: least.into(), more: most.saturating_sub(least).into() }
    }
}

impl Pace for Drawn {
    fn cut(&mut self, offset: usize, len: usize) -> usize {
        let first = LINE - offset % LINE;
        if len <= first || self.dice.bool() {
            return len;
        }
        let lines = (len - first).div_ceil(LINE);
        first + LINE * self.dice.usize(..lines)
    }

    fn lands_at(&mut self, stored_at: u64, _len: usize, _held_up: bool) -> u64 {
        stored_at + self.least + self.dice.u64(..=self.more)
    }
}

/// The times of a cable of PCIe.
pub(super) struct Timed {
    direction: Direction,
    /// Bytes a second that a direction carries.
    rate: f64,
    /// When the other direction was last asked for what it has carried, ns.
    asked_at: Option<u64>,
    /// Bytes that the other direction can have carried beyond those that were acknowledged.
    allowed: f64,
}

/// For how long the other direction may have carried bytes without saying so, s: its lander may be so late.
const UNTOLD: f64 = LATE as f64 / 1e9;

impl Timed {
    /// Of this cable, with nothing on it; `seed`: of its bit errors.
    pub(super) fn new(cable: Cable, seed: u64) -> Self {
        let rate = Limits(&cable).payload(false);
        Self { direction: Direction::new(cable, seed), rate, asked_at: None, allowed: rate * UNTOLD }
    }
}

impl Pace for Timed {
    /// What a queue's entry holds, 2 KB, lands together.
    fn cut(&mut self, _offset: usize, len: usize) -> usize {
        len
    }

    /// A writer that is held up follows what it has stored at once, as if the lander had never been late: else the cable would stand idle for as
    /// long as this machine takes to wake the two.
    fn lands_at(&mut self, stored_at: u64, len: usize, held_up: bool) -> u64 {
        let stored_at = stored_at.saturating_mul(NANOSECOND);
        let ready = if held_up { stored_at.min(self.direction.free()) } else { stored_at };
        self.direction.send_all(ready, len as u64).landed.div_ceil(NANOSECOND)
    }

    /// No more than a direction carries in the time since the first call, and [`UNTOLD`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a bound"
    )]
    fn acknowledge(&mut self, bytes: u64, now: u64) -> u64 {
        let since = self.asked_at.replace(now).map_or(0, |before| now.saturating_sub(before));
        let allowed = self.allowed + self.rate * since as f64 / 1e9;
        let counts = bytes.min(allowed as u64);
        self.allowed = (allowed - counts as f64).min(self.rate * UNTOLD);
        if counts > 0 {
            self.direction.acknowledge_all(counts);
        }
        counts
    }

    fn in_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_stores_take_as_long_as_on_their_cable() {
        let cable: Cable = "gen3 x4, dma".parse().unwrap();
        let mut pace = Timed::new(cable, 1);
        let mut last = 0;
        // A write of 16 MB, as a program stores it: as fast as memory.
        for _ in 0..8192 {
            let landed = pace.lands_at(1000, 2048, false);
            assert!(landed >= last);
            last = landed;
        }
        let ours = (16 << 20) as f64 * 1e9 / (last - 1000) as f64;
        let limit = Limits(&cable).payload(false);
        assert!((ours / limit - 1.0).abs() < 0.01, "{ours} bytes/s of {limit}");
        // A writer that waited for room, which the lander made a second late.
        let late = pace.lands_at(last + 1_000_000_000, 2048, true);
        assert!(late - last < 2000, "{} ns", late - last);
        // A line at rest.
        let landed = pace.lands_at(2_000_000_000, 64, false);
        assert_eq!(landed - 2_000_000_000, Limits(&cable).latency(64).div_ceil(NANOSECOND));
    }

    #[test]
    fn timed_stores_leave_room_for_acknowledgements_of_the_other_direction() {
        let cable: Cable = "gen1 x4".parse().unwrap();
        let (mut pace, limits) = (Timed::new(cable, 1), Limits(&cable));
        let (mut last, mut both) = (0, 0_u64);
        // Both directions are full: each carries as much as the other.
        for _ in 0..8192 {
            last = pace.lands_at(0, 2048, true);
            both += pace.acknowledge(2048, last);
        }
        assert_eq!(both, 16 << 20);
        let ours = both as f64 * 1e9 / last as f64;
        assert!((ours / limits.payload(true) - 1.0).abs() < 0.01, "{ours} of {}", limits.payload(true));
        assert!(limits.payload(true) < 0.99 * limits.payload(false));
    }

    #[test]
    fn timed_peer_that_lies_is_acknowledged_no_more_than_its_cable_carries() {
        let cable: Cable = "gen1 x1".parse().unwrap();
        let (mut pace, rate) = (Timed::new(cable, 1), Limits(&cable).payload(false));
        let free = |pace: &Timed| pace.direction.free() / NANOSECOND;
        // It says so from the first look on, long after the machine has started, at each look of a busy lander.
        let begin = 1_000_000_000_000_000;
        pace.lands_at(begin, 64, false);
        let counts: u64 = (0..1000).map(|look| pace.acknowledge(u64::MAX, begin + look * 1000)).sum();
        assert!(counts as f64 <= rate * (UNTOLD + 0.001) + 1.0, "{counts}");
        assert!(free(&pace) < begin + 5_000_000, "{} ns", free(&pace) - begin);
        // Nor after a silence of days.
        let later = begin + 1_000_000_000_000_000;
        assert_eq!(pace.acknowledge(0, later - 1000), 0);
        pace.lands_at(later, 64, false);
        pace.acknowledge(u64::MAX, later);
        assert!(free(&pace) < later + 5_000_000, "{} ns", free(&pace) - later);
    }

    #[test]
    fn posted_delays_lie_within_their_bounds_and_cuts_between_lines() {
        let mut pace = Drawn::new(7, (100, 300));
        let mut seen = [false; 201];
        for offset in 0..5000 {
            let at = pace.lands_at(1000, 8, false);
            seen[usize::try_from(at - 1100).unwrap()] = true;
            let len = offset % 1500 + 1;
            let cut = pace.cut(offset, len);
            assert!(cut == len || cut < len && (offset + cut).is_multiple_of(LINE) && cut > 0);
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
