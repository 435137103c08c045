//! What of a circuit the program at its far end has taken, as told to the sender on the near side: units from the circuit's
//! start. What only lies in that program's memory does not count: the stream may be moving already, and what arrives there
//! after its daemon has counted is sent again.

use super::leg::Side;
use crosslane_shm::ring::{Producer, Violation};
use crosslane_shm::{Load, Store};
use crosslane_wire::DecodeError;
use crosslane_wire::segment::{ACKED, CREDIT};
use std::collections::VecDeque;

/// Units that are worth telling, or asking for, while others move.
const STEP: u64 = 32 * 1024;
/// Bytes of ring between two places that credit is compared with.
const STRIDE: u64 = 32 * 1024;

/// One direction's count.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// Units that the far end has acknowledged, as far as we know.
    known: u64,
    /// Units that the near side was told of.
    told: u64,
    /// Places in the ring of the far end and the units up to them. Those that credit came back for were taken, which is
    /// late by [`STRIDE`] and the quarter of a ring that a receiver withholds.
    places: VecDeque<(u64, u64)>,
}

impl Acked {
    /// Finds out what is acknowledged. The last host between knows it by the far end's credit, the others by the `ACKED` word that the next host stores.
    pub(super) fn learn(&mut self, to: &Side, producer: &Producer) -> Result<(), Violation> {
        if !to.leg.is_end {
            let got = to.leg.inbound.load_u64(ACKED);
            if got < self.known || got > producer.units() {
                return Err(DecodeError::Range("count of what has acked").into());
            }
            self.known = got;
            return Ok(());
        }
        self.learn_by_credit(to, producer)
    }

    fn learn_by_credit(&mut self, to: &Side, producer: &Producer) -> Result<(), Violation> {
        let position = producer.position();
        if position >= self.places.back().map_or(0, |(place, _)| place + STRIDE) {
            self.places.push_back((position, producer.units()));
        }
        let credit = position - producer.unconfirmed(&to.leg.inbound)?;
        while let Some(&(place, units)) = self.places.front() {
            if place > credit {
                break;
            }
            self.known = units;
            self.places.pop_front();
        }
        Ok(())
    }

    /// Tells the near side, if there is enough to tell or `all` is wanted; whether it did.
    pub(super) fn tell(&mut self, from: &Side, all: bool) -> bool {
        let due = self.known - self.told;
        if due == 0 || (due < STEP && !all) {
            return false;
        }
        from.leg.outbound.store_u64(ACKED, self.known);
        self.told = self.known;
        true
    }

    /// Whether more is acknowledged than is known.
    pub(super) fn has_news(&self, to: &Side) -> bool {
        if to.leg.is_end {
            self.places.front().is_some_and(|(place, _)| *place <= to.leg.inbound.load_u64(CREDIT))
        } else {
            to.leg.inbound.load_u64(ACKED) != self.known
        }
    }

    /// Whether enough is under way that a sender may wait for it to land: worth a wake.
    pub(super) fn wants_news(&self, producer: &Producer) -> bool {
        producer.units() - self.known >= STEP
    }
}
