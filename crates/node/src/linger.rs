//! What a program had sent when it left, and its far end has not had: a circuit of several cables may lose it later, when
//! nobody is there any more who could send it again. Then the daemon does.

use crate::host::Host;
use crosslane_fabric::circuit::{Role, State};
use crosslane_shm::ring::{Producer, Violation};
use crosslane_shm::state::Sent;
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::control::ARRIVED_ALL;
use crosslane_wire::record::{Kind, MAX_PAYLOAD};
use crosslane_wire::segment::{RETENTION, RING_MIN, STATE, STATE_ATTACHED, STATE_GONE, WANT_DATA, WANT_ROOM};
use crosslane_wire::{CircuitId, MemoryKind, WaiterId};

impl Host {
    /// The end's program has left it; whether the far end has all that it sent, or will have. What it sent by a single cable
    /// is in the far host's memory.
    pub(crate) fn leave_segments(&mut self, circuit: CircuitId) -> bool {
        let moving = self.policy.circuits.get(circuit).is_some_and(|end| end.moving.is_some());
        let whole = moving || (self.go_on(circuit) && self.tell_gone(circuit).is_some());
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.leave(moving);
        }
        whole
    }

    /// A program may leave before it has seen that its stream goes on by other segments: then what the far end lacks is sent by
    /// those. Whether nothing is missing.
    fn go_on(&mut self, circuit: CircuitId) -> bool {
        let Some(resources) = self.ends.get(circuit).filter(|resources| resources.published > 0) else {
            return true;
        };
        let sent = resources.view_sent();
        let newest = resources.segments.back().filter(|newest| newest.generation == resources.published);
        let (Some(sent), Some(newest)) = (sent, newest) else { return true };
        if sent.generation == newest.generation {
            !sent.owes
        } else {
            self.send_rest(circuit, newest.arrived, sent)
        }
    }

    /// If the local program has exited: sends again, from stream offset `arrived` on, what the far side lacks, then closes.
    pub(crate) fn finish(&mut self, circuit: CircuitId, arrived: u64) {
        if self.policy.circuits.get(circuit).is_some_and(|end| matches!(end.state, State::Closing(_))) {
            let sent = self.ends.get(circuit).and_then(|resources| resources.sent);
            let whole = sent.is_none_or(|sent| self.send_rest(circuit, arrived, sent));
            let whole = whole && self.tell_gone(circuit).is_some();
            if !whole {
                let uid = self.ends.uid(circuit);
                tracing::warn!(uid, %circuit, "what a program sent before it left is lost; the stream is broken off");
            }
            self.policy.circuits.finish(circuit, !whole);
        }
    }

    /// Tells the far end of a stream that has moved that nobody is left here, behind all that was sent: the kernel's FIN, which may
    /// have overtaken that, does not count there. `None` if it cannot be told.
    fn tell_gone(&mut self, circuit: CircuitId) -> Option<()> {
        let newest = self.ends.newest(circuit)?;
        if newest.generation == 0 {
            return Some(());
        }
        let wanted = Inbound::map(&newest.inbound.open().ok()?).ok()?;
        let ring = self.ring_of_rest(circuit)?;
        ring.store_fence();
        ring.store_u32(STATE, STATE_GONE);
        ring.fence();
        let channel = self.policy.circuits.get(circuit)?.channel();
        for waiter in [WANT_DATA, WANT_ROOM].map(|word| WaiterId(wanted.load_u32(word))) {
            if let Some(channel) = channel.filter(|_| waiter.0 != 0) {
                self.wake_neighbour(channel, waiter);
            }
        }
        Some(())
    }

    /// Sends again what the far end lacks; whether it has all then.
    fn send_rest(&mut self, circuit: CircuitId, arrived: u64, sent: Sent) -> bool {
        if arrived == ARRIVED_ALL || arrived >= sent.units {
            return true;
        }
        let woken = self.push_rest(circuit, arrived, sent);
        let channel = self.policy.circuits.get(circuit).and_then(|end| end.channel());
        if let (Some(Some(waiter)), Some(channel)) = (woken, channel) {
            self.wake_neighbour(channel, waiter);
        }
        woken.is_some()
    }

    /// Where the rest is stored. A queue of stores is not the program's: who holds up its lock would hold up the daemon.
    fn ring_of_rest(&mut self, circuit: CircuitId) -> Option<Outbound> {
        let newest = self.ends.newest(circuit)?;
        let outbound = newest.outbound.as_ref()?;
        if outbound.info.memory != MemoryKind::Queue {
            return Outbound::map(&outbound.open().ok()?).ok();
        }
        let (port, range) = (newest.port?, newest.far_range?);
        Outbound::map(&self.cables.get_mut(port)?.queue_beside(range).ok()?).ok()
    }

    /// Pushes the units from `arrived` on into the end's newest segments; `None` if not all of them are at hand, or there is
    /// no room, else who sleeps for them.
    fn push_rest(&mut self, circuit: CircuitId, arrived: u64, sent: Sent) -> Option<Option<WaiterId>> {
        let ring = self.ring_of_rest(circuit)?;
        let role = self.policy.circuits.get(circuit)?.role;
        let resources = self.ends.get(circuit)?;
        let newest = resources.segments.back()?;
        let end = sent.units - u64::from(sent.turn.is_some());
        let begin = arrived.max(1);
        if begin < end
            && !(sent.kept.0 <= begin && end <= sent.kept.1 && end - begin <= sent.cap.min(RETENTION))
        {
            return None;
        }
        let credits = Inbound::map(&newest.inbound.open().ok()?).ok()?;
        let producer = Producer::default();
        let cap = RING_MIN.min(newest.ring_max);
        producer.resume(newest.generation, cap, newest.ring_max, newest.tx_key, arrived);
        ring.store_u32(STATE, STATE_ATTACHED);
        if arrived == 0 {
            let handshake = if role == Role::Client { Kind::Hello } else { Kind::HelloAck };
            producer.push_control(&ring, &credits, handshake, 0).ok().filter(|pushed| *pushed)?;
        }
        if begin < end {
            let kept = Inbound::sealed(resources.retention.as_ref()?.lend().ok()?, RETENTION).ok()?;
            push_kept(&producer, &ring, &credits, (&kept, sent.cap.clamp(1, RETENTION)), (begin, end))
                .ok()
                .filter(|pushed| *pushed)?;
        }
        if let Some(turn) = sent.turn {
            producer.push_control(&ring, &credits, turn, 0).ok().filter(|pushed| *pushed)?;
        }
        ring.fence();
        let waiter = credits.load_u32(WANT_DATA);
        Some((waiter != 0).then_some(WaiterId(waiter)))
    }
}

/// Pushes the payload of these units; `Ok(false)` if there is no room for all of it.
fn push_kept(
    producer: &Producer,
    ring: &Outbound,
    credits: &Inbound,
    (kept, cap): (&Inbound, u64),
    (mut unit, end): (u64, u64),
) -> Result<bool, Violation> {
    let mut bytes = vec![0; usize::try_from(MAX_PAYLOAD).unwrap_or(0)];
    while unit < end {
        let at = unit % cap;
        let count = (end - unit).min(cap - at).min(MAX_PAYLOAD);
        let piece = &mut bytes[..usize::try_from(count).unwrap_or(0)];
        kept.read(usize::try_from(at).unwrap_or(0), piece);
        let mut done = 0;
        while done < piece.len() {
            let pushed = producer.push(ring, credits, Kind::Data, &piece[done..], 0)?;
            if pushed == 0 {
                if !producer.can_grow() {
                    return Ok(false);
                }
                producer.request_grow();
            }
            done += pushed;
        }
        unit += count;
    }
    Ok(true)
}
