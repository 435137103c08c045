//! Bulk that the daemon's engine moves while no thread waits: the lock of the direction is kept until the transfer has ended.

use super::{CircuitEnd, Failure, Transferred, add};
use crate::offload::{Flight, Handed};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::lock::SharedLock;
use crosslane_shm::submission::Way;
use crosslane_stream::Direction;
use crosslane_wire::record::Kind;

/// Longest transfer handed over at once, bytes.
const LONGEST: usize = 32 << 20;

/// A transfer under way, with the lock of its direction. Land or recall it before the end or the buffers are dropped.
#[derive(Debug)]
pub struct Aloft {
    flight: Flight,
    way: Way,
    /// Stream offset at which the transfer begins.
    begin: u64,
}

impl Aloft {
    /// Asks the engine to signal the end of the transfer; `true` if it has ended already.
    pub fn want_waker(&self) -> bool {
        self.flight.want_waker()
    }
}

impl CircuitEnd {
    /// Hands over memory, by addresses and lengths in bytes, that no other code uses and that stays mapped until the
    /// transfer has ended. `None`: the engine does not take it now.
    ///
    /// # Errors
    /// The direction is over.
    pub fn launch(
        &self,
        tid: u32,
        way: Way,
        spans: impl Iterator<Item = (u64, usize)> + Clone,
    ) -> Result<Option<Aloft>, Failure> {
        let lock = self.lock_of(way);
        // Any thread may land the transfer: the lock belongs to this process as long as it lives.
        let Some(guard) = lock.try_lock(own_number()) else { return Ok(None) };
        if self.is_under_way(way) {
            return Ok(None);
        }
        if way == Way::Out {
            self.finish_for_others();
        }
        let (generation, rung) = match way {
            Way::Out if self.may_fly_out(tid)? => (self.generations.tx(), &self.shared.sending.rung),
            Way::In if self.may_fly_in(tid)? => (self.generations.rx(), &self.shared.receiving.rung),
            _ => return Ok(None),
        };
        let Some((engine, mut descriptor)) = self.descriptor(way, generation, spans, 0, LONGEST) else {
            return Ok(None);
        };
        descriptor.rung = rung.load(Relaxed);
        let begin = self.shared.producer.units();
        let flight = engine.launch(way, &descriptor);
        Ok(flight.map(|flight| {
            guard.keep();
            Aloft { flight, way, begin }
        }))
    }

    fn lock_of(&self, way: Way) -> &SharedLock {
        match way {
            Way::Out => &self.shared.sending.lock,
            Way::In => &self.shared.receiving.lock,
        }
    }

    /// Whether a thread is in the middle of a long call in that direction.
    fn is_under_way(&self, way: Way) -> bool {
        let order = match way {
            Way::Out => &self.orders.sending,
            Way::In => &self.orders.receiving,
        };
        order.holder().is_some()
    }

    fn may_fly_out(&self, tid: u32) -> Result<bool, Failure> {
        self.may_send(Kind::Data)?;
        if !self.is_steady() || self.gone() || !self.take_back_open(tid)? {
            return Ok(false);
        }
        self.stamp(self.generations.tx());
        Ok(true)
    }

    fn may_fly_in(&self, tid: u32) -> Result<bool, Failure> {
        let bulk = self.guarded(self.expects_bulk(tid))?;
        Ok(bulk && self.rx() == Direction::Open && self.is_steady())
    }

    /// The outcome, if the transfer has ended, or made no progress and was cancelled; else the transfer itself.
    ///
    /// # Errors
    /// The stream is over.
    pub fn land(&self, tid: u32, mut aloft: Aloft) -> Result<Result<Transferred, Failure>, Aloft> {
        match aloft.flight.land() {
            Some(handed) => Ok(self.finish_flight(tid, &aloft, handed)),
            None => Err(aloft),
        }
    }

    /// Cancels the transfer and returns how far it came; waits while a piece of it is being copied.
    ///
    /// # Errors
    /// The stream is over.
    pub fn recall(&self, tid: u32, mut aloft: Aloft) -> Result<Transferred, Failure> {
        let handed = aloft.flight.recall();
        self.finish_flight(tid, &aloft, handed)
    }

    fn finish_flight(&self, tid: u32, aloft: &Aloft, handed: Handed) -> Result<Transferred, Failure> {
        // `launch` has kept it.
        let _guard = self.lock_of(aloft.way).kept();
        match aloft.way {
            Way::Out => self.guarded(self.finish_out(tid, aloft.begin, handed)),
            Way::In => self.guarded(self.finish_in(handed)),
        }
    }

    fn finish_out(&self, tid: u32, begin: u64, handed: Handed) -> Result<Transferred, Failure> {
        let tx = self.generations.tx();
        let mut bytes = self.handed(handed, &self.shared.sent)?;
        if bytes == 0 {
            return Ok(Transferred { bytes, wake: None });
        }
        let wake = self.data_waiter(tx);
        if self.has_moved(tx) {
            bytes = usize::try_from(self.decide(tid, tx, begin)?).unwrap_or(bytes).min(bytes);
        }
        add(&self.shared.counters.tx_bytes, bytes);
        Ok(Transferred { bytes, wake })
    }

    fn finish_in(&self, handed: Handed) -> Result<Transferred, Failure> {
        let bytes = self.handed(handed, &self.shared.received)?;
        self.note_bulk(bytes);
        if bytes == 0 {
            return Ok(Transferred { bytes, wake: None });
        }
        let rx = self.generations.rx();
        let gave = self.shared.consumer.give_credit(&rx.segments.outbound, false) | self.was_credited();
        add(&self.shared.counters.rx_bytes, bytes);
        Ok(Transferred { bytes, wake: if gave { self.room_waiter(rx) } else { None } })
    }
}

/// Pid of this process, which is also the id of its first thread.
fn own_number() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}
