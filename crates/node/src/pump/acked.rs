//! How many bytes of a circuit the program at its far end has taken, for the sender on the near side: stream offset from
//! the circuit's start. Bytes that only lie in that program's memory do not count: the stream may be moving already, and
//! bytes that arrive after the far daemon has counted are sent again.

use super::leg::Side;
use crosslane_shm::ring::{Producer, Violation};
use crosslane_shm::{Load, Store};
use crosslane_wire::DecodeError;
use crosslane_wire::segment::{ACKED, CREDIT};
use std::collections::VecDeque;

/// Smallest advance that is worth a store, or a wake request, while other bytes move.
const STEP: u64 = 32 * 1024;
/// Distance of two places at which credit is compared, bytes of ring.
const STRIDE: u64 = 32 * 1024;

/// The acknowledged offset of one direction.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// Offset that the far end has acknowledged, as far as this host knows.
    known: u64,
    /// Offset that this host has stored at the near side.
    told: u64,
    /// Places in the far end's ring, with the offset at each. Places for which credit has come back were taken; this lags
    /// by [`STRIDE`] and the quarter of a ring for which a receiver withholds credit.
    places: VecDeque<(u64, u64)>,
}

impl Acked {
    /// Finds out which offset is acknowledged: the last host between from the far end's credit, the others from the
    /// `ACKED` word that the next host stores.
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

    /// Stores the offset at the near side, if it has advanced enough or `all` is set; returns whether it did.
    pub(super) fn tell(&mut self, from: &Side, all: bool) -> bool {
        let due = self.known - self.told;
        if due == 0 || (due < STEP && !all) {
            return false;
        }
        from.leg.outbound.store_u64(ACKED, self.known);
        self.told = self.known;
        true
    }

    /// Whether more is acknowledged than `learn` has seen.
    pub(super) fn has_news(&self, to: &Side) -> bool {
        if to.leg.is_end {
            self.places.front().is_some_and(|(place, _)| *place <= to.leg.inbound.load_u64(CREDIT))
        } else {
            to.leg.inbound.load_u64(ACKED) != self.known
        }
    }

    /// Whether so much is under way that a sender may wait for it to be acknowledged: then a wake is worth requesting.
    pub(super) fn wants_news(&self, producer: &Producer) -> bool {
        producer.units() - self.known >= STEP
    }
}
