//! How long the rings of a circuit are: long ones while the window has room for them, short ones after that, which grow.
//!
//! A window is as small as the hardware makes it, and all streams of a cable share it. While half of it is free a stream has
//! a segment for a ring of `ring_max`; then one that [`SHORT_STREAMS`] streams can have at once. A stream that its reader keeps waiting in
//! a short ring asks for more (`Request::Grow`), and moves to a long segment as it would to another path (decision 31).

use crate::host::Host;
use crosslane_fabric::circuit::{Death, Path, State};
use crosslane_wire::segment::{RING_MIN, segment_len};
use crosslane_wire::{CircuitId, PortId};

/// So many streams over one cable have room in a window, each with a short ring.
const SHORT_STREAMS: u64 = 64 * 1024;
/// The same for circuits with hosts between, whose senders have more under way.
const SHORT_RELAYED: u64 = 16 * 1024;
/// A stream gets a long ring as long as this part of the window stays free: one over so much.
const KEPT_FREE: u64 = 2;

/// Bytes of a short ring in a window of `window` bytes, `ring_max` at most.
fn short_ring(window: u64, cables: u8, ring_max: u64) -> u64 {
    let streams = if cables > 1 { SHORT_RELAYED } else { SHORT_STREAMS };
    let share = (window / streams).max(1);
    let power = 1 << share.ilog2();
    power.clamp(RING_MIN.min(ring_max), ring_max)
}

impl Host {
    /// Bytes of a short ring on this path. Where streams do not move it is as long as it may become.
    pub(crate) fn short_ring(&mut self, path: Path) -> u64 {
        let (ring_max, resumes) = (self.config.ring_max, self.resumes());
        let window = self.cable(path.port).map_or(0, |cable| cable.window().bytes());
        if resumes { short_ring(window, path.hops, ring_max) } else { ring_max }
    }

    /// Bytes of the ring that a stream gets on this path now: a long one if the window has plenty of room.
    pub(crate) fn ring_for(&mut self, path: Path) -> u64 {
        if self.has_ample_window(path.port) { self.config.ring_max } else { self.short_ring(path) }
    }

    fn has_ample_window(&mut self, port: PortId) -> bool {
        let len = segment_len(self.config.ring_max);
        self.cable(port).is_some_and(|cable| {
            let window = cable.window();
            window.used_bytes().saturating_add(len) <= window.bytes() / KEPT_FREE
        })
    }

    /// `Grow`: the stream outgrew its first segment, and moves to a longer one, once in its life.
    pub(crate) fn grow(&mut self, circuit: CircuitId, token: u64, generation: u32) {
        let is_open = self.policy.circuits.get(circuit).is_some_and(|end| {
            end.state == State::Open && end.moving.is_none() && end.generation == generation
        });
        let Some(port) = self.port_of(circuit).filter(|_| is_open && self.proves(circuit, token)) else {
            return;
        };
        if !self.has_ample_window(port) {
            return;
        }
        let Some(resources) = self.resources.get_mut(&circuit).filter(|resources| !resources.grown) else {
            return;
        };
        if resources.segments.back().is_some_and(|newest| newest.way.grows) {
            resources.grown = true;
            self.policy.circuits.lose(circuit, Death::Cable);
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
}
