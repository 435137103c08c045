//! How long the rings of a circuit are: long ones while the window has room for them, short ones after that, which grow.
//!
//! A window is as small as the hardware makes it, and all streams of a cable share it. A *long* ring is one of which [`LONG_STREAMS`]
//! fit in it, a *short* one such that [`SHORT_STREAMS`] do. While three quarters of the window are free a new stream has a long ring, and a
//! short one then. A stream that its reader keeps waiting in a ring that is not long asks for more (`Request::Grow`), and moves to
//! a longer segment as it would to another path (decision 31): to a long one, or to the longest for which there is room. While
//! there is room for none it waits until some is given back.

use crate::cable::Cable;
use crate::end_resources::EndResources;
use crate::host::{Attempt, Host, Provider};
use crate::quota::{Payer, Purpose};
use crosslane_fabric::circuit::{Death, Path, State};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::segment::{RING_MIN, segment_len};
use crosslane_wire::{CircuitId, PortId};

/// So many streams with long rings have room in what a window has for circuits.
const LONG_STREAMS: u64 = 8;
/// So many streams over one cable have room in a window, each with a short ring.
const SHORT_STREAMS: u64 = 64 * 1024;
/// The same for circuits with hosts between, whose senders have more under way.
const SHORT_RELAYED: u64 = 16 * 1024;
/// Most of a window that new streams with long rings use: one part of so many.
const NEW_LONG: u64 = 4;
/// What streams that become longer leave to new ones: one part of so many.
const KEPT_FROM_GROWN: u64 = 4;

/// Bytes of a long ring where circuits have `circuits` bytes of a window, `ring_max` at most.
fn long_ring(circuits: u64, ring_max: u64) -> u64 {
    let mut ring = ring_max;
    while ring > RING_MIN && segment_len(ring) > circuits / LONG_STREAMS {
        ring /= 2;
    }
    ring
}

/// Bytes of a short ring in a window of `window` bytes, `long` at most.
fn short_ring(window: u64, cables: u8, long: u64) -> u64 {
    let streams = if cables > 1 { SHORT_RELAYED } else { SHORT_STREAMS };
    let share = (window / streams).max(1);
    let power = 1 << share.ilog2();
    power.clamp(RING_MIN.min(long), long)
}

/// Room for a ring of `ring` bytes in what a cable has for circuits, if all but `kept` of it may be used, bytes.
fn has_room(cable: &Cable, ring: u64, kept: u64) -> bool {
    let window = cable.window();
    let free = window.bytes().saturating_sub(window.used_bytes());
    segment_len(ring).saturating_add(kept) <= free
}

impl Provider<'_> {
    /// Bytes of the longest ring that a stream gets at this port.
    pub(crate) fn long_ring(&self, port: PortId) -> u64 {
        let ring_max = self.config.ring_max;
        let cable = self.cables.get(port);
        cable.map_or(ring_max, |cable| long_ring(cable.window().circuits_bytes(), ring_max))
    }

    /// Bytes of a short ring on this path. Where streams do not move it is as long as it may become.
    pub(crate) fn short_ring(&self, path: Path) -> u64 {
        let (long, resumes) = (self.long_ring(path.port), self.resumes());
        let window = self.cables.get(path.port).map_or(0, |cable| cable.window().bytes());
        if resumes { short_ring(window, path.hops, long) } else { long }
    }

    /// Bytes of the ring that a new stream gets on this path now: a long one if the window has plenty of room.
    pub(crate) fn new_ring(&self, path: Path) -> u64 {
        let (long, short) = (self.long_ring(path.port), self.short_ring(path));
        let ample = self.cables.get(path.port).is_some_and(|cable| {
            let circuits = cable.window().circuits_bytes();
            has_room(cable, long, circuits - circuits / NEW_LONG)
        });
        if ample { long } else { short }
    }

    /// Bytes of the longest ring above `least` bytes that a stream which moves may have at this port now.
    fn ring_above(&self, port: PortId, least: u64) -> Option<u64> {
        let long = self.long_ring(port);
        let cable = self.cables.get(port)?;
        let kept = cable.window().circuits_bytes() / KEPT_FROM_GROWN;
        let halves = core::iter::successors(Some(long), |ring| Some(ring / 2));
        halves.take_while(|ring| *ring > least).find(|ring| has_room(cable, *ring, kept))
    }

    /// Bytes of the ring that a stream which moves gets on this path; less than `refused`, if a ring of so many bytes was.
    pub(crate) fn moved_ring(&self, path: Path, refused: Option<u64>) -> u64 {
        let short = self.short_ring(path);
        let ring = self.ring_above(path.port, short).unwrap_or(short);
        refused.map_or(ring, |refused| ring.min((refused / 2).max(short)))
    }

    /// Memory for the first channel of a path with a ring of `ring` bytes, or the longest for which there is some.
    pub(crate) fn longest_attempt(
        &mut self,
        path: Path,
        (payer, purpose): (Payer, Purpose),
        mut ring: u64,
    ) -> Result<Attempt, Plain> {
        let short = self.short_ring(path);
        loop {
            match self.attempt_ring(path, payer, purpose, ring) {
                Err(Plain::Refused(Refusal::NoMemory | Refusal::Quota)) if ring > short => ring /= 2,
                outcome => return outcome,
            }
        }
    }
}

impl Host {
    /// `Grow`: the stream outgrew its segment. It moves to a longer one, or is noted until there is room for one.
    pub(crate) fn grow(&mut self, circuit: CircuitId, token: u64, generation: u32) {
        let Some(end) = self.policy.circuits.get(circuit).filter(|end| end.generation == generation) else {
            return;
        };
        if end.state == State::Open && self.ends.proves(circuit, token) {
            let tried = self.ends.get(circuit).map_or(0, |resources| resources.grew_from);
            self.try_grow(circuit, tried);
        }
    }

    /// Moves the stream to a longer ring, unless there is no room, or a ring of no more than `tried` bytes is what it has.
    fn try_grow(&mut self, circuit: CircuitId, tried: u64) {
        if self
            .policy
            .circuits
            .get(circuit)
            .is_none_or(|end| end.state != State::Open || end.moving.is_some())
        {
            return;
        }
        let Some(port) = self.policy.port_of(circuit) else { return };
        let Some(ring) = self.ends.get(circuit).and_then(EndResources::short_ring) else { return };
        let has_room = ring > tried && self.provider().ring_above(port, ring).is_some();
        let Some(resources) = self.ends.get_mut(circuit) else { return };
        if has_room {
            resources.grow_from(ring);
            self.policy.circuits.lose(circuit, Death::Cable);
        } else if !std::mem::replace(&mut resources.outgrown, true)
            && let Some(cable) = self.cables.get_mut(port)
        {
            cable.outgrown.push_back(circuit);
        }
    }

    /// Room was given back at a port: a stream that waits for some may have it.
    pub(crate) fn grow_next(&mut self, port: PortId) {
        while let Some(circuit) = self.cables.get_mut(port).and_then(|cable| cable.outgrown.pop_front()) {
            if let Some(resources) = self.ends.get_mut(circuit) {
                resources.outgrown = false;
                return self.try_grow(circuit, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_size_follows_the_window() {
        assert_eq!(short_ring(32 << 30, 1, 8 << 20), 512 << 10);
        assert_eq!(short_ring(32 << 30, 2, 8 << 20), 2 << 20);
        assert_eq!(short_ring(4 << 20, 1, 8 << 20), 64 << 10);
        assert_eq!(short_ring(64 << 30, 1, 512 << 10), 512 << 10);
        assert_eq!(short_ring(0, 1, 64 << 10), 64 << 10);
    }

    #[test]
    fn eight_streams_with_long_rings_fit_in_the_window() {
        let circuits = |window| window - crate::cable::circuits(window);
        assert_eq!(long_ring(circuits(4 << 20), 8 << 20), 256 << 10);
        assert_eq!(long_ring(circuits(64 << 20), 8 << 20), 4 << 20);
        assert_eq!(long_ring(circuits(32 << 30), 8 << 20), 8 << 20);
        assert_eq!(long_ring(circuits(4 << 20), 64 << 10), 64 << 10);
        assert_eq!(long_ring(0, 8 << 20), 64 << 10);
    }
}
