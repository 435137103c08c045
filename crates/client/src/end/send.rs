//! Sending.

use super::{End, Failure, Moved, add};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::Load;
use crosslane_stream::{Direction, handle_send};
use crosslane_wire::record::Kind;
use crosslane_wire::slice::{ORDER, RING_MIN};
use std::io::IoSlice;

impl End {
    /// The program wants no more than about `bytes` under way (`SO_SNDBUF`): the ring does not grow beyond that, nor
    /// below its first size.
    pub fn limit_sending(&self, bytes: u64) {
        let wanted = bytes.clamp(RING_MIN.min(self.ring_max), self.ring_max).next_power_of_two();
        self.shared.producer.limit(wanted);
    }

    /// Copies as much of `buffers`, from their byte `skip` on, as there is room for. If that is not all, the ring may
    /// still be made longer: see [`Self::can_be_pressed`].
    pub fn try_send(&self, tid: u32, buffers: &[IoSlice<'_>], skip: usize) -> Result<Moved, Failure> {
        let sending = &self.shared.sending;
        let bytes = {
            let _guard = sending.lock.lock(tid)?;
            self.may_send(Kind::Data)?;
            if self.gone() {
                return self.send_to_nobody(total(buffers) - skip);
            }
            self.stamp();
            self.guarded(self.push_all(buffers, skip))?
        };
        if bytes < total(buffers) - skip {
            if !self.can_be_pressed() {
                sending.blocked.fetch_add(1, Relaxed);
            }
            if bytes == 0 {
                return Err(Failure::WouldBlock);
            }
        }
        add(&self.shared.counters.tx_bytes, bytes);
        Ok(Moved { bytes, wake: self.data_bell() })
    }

    /// Sends a record without payload that changes the direction: `DisConn`, `Downgrade`, `AbortConn`.
    pub fn turn(&self, tid: u32, kind: Kind) -> Result<Moved, Failure> {
        let _guard = self.shared.sending.lock.lock(tid)?;
        let next = self.may_send(kind)?;
        self.stamp();
        let (ring, credits) = (&self.outbound, &self.inbound);
        let pushed = self.shared.producer.push_control(ring, credits, kind, 0).map_err(Failure::from);
        if !self.guarded(pushed)? {
            return Err(Failure::WouldBlock);
        }
        self.shared.status.tx.store(next as u32, Relaxed);
        Ok(Moved { bytes: 0, wake: self.data_bell() })
    }

    /// Whether the last send found a full ring that could be longer than it is. A sender does best to wait for
    /// [`Self::has_credit`] for a moment, so that both ends stay in their caches, and then to [`Self::press`].
    pub fn can_be_pressed(&self) -> bool {
        self.shared.producer.can_be_pressed()
    }

    /// Lets the ring become twice as long at the next send that finds it full.
    pub fn press(&self) {
        self.shared.producer.press();
    }

    /// Whether a quarter of the ring in use is free.
    pub fn has_credit(&self) -> bool {
        let wanted = self.shared.producer.cap() / 4;
        self.shared.producer.glance(&self.inbound, wanted) >= wanted
    }

    /// Bytes of ring that the far side has not confirmed to have consumed (`SIOCOUTQ`, about).
    pub fn unconfirmed(&self) -> u64 {
        self.shared.producer.unconfirmed(&self.inbound).unwrap_or(0)
    }

    /// As TCP has it: the first bytes to a closed far end seem to be sent and are answered by a reset, the next ones
    /// fail. More than the longest ring holds is never sent in one go.
    fn send_to_nobody(&self, bytes: usize) -> Result<Moved, Failure> {
        let bytes = bytes.min(usize::try_from(self.ring_max).unwrap_or(usize::MAX));
        let unheard = &self.shared.status.unheard;
        let before = if bytes == 0 { unheard.load(Relaxed) } else { unheard.swap(1, Relaxed) };
        if before == 0 {
            return Ok(Moved { bytes, wake: None });
        }
        Err(Failure::Ended)
    }

    /// Whether records carry the time is for the far side to say.
    #[inline]
    fn stamp(&self) {
        self.shared.producer.stamp(self.inbound.load_u32(ORDER) != 0);
    }

    fn may_send(&self, kind: Kind) -> Result<Direction, Failure> {
        if self.shared.status.reset.load(Relaxed) != 0 || self.dead().is_some() {
            return Err(Failure::Reset);
        }
        let state = self.tx();
        handle_send(state, kind).ok_or(match state {
            Direction::Tcp => Failure::Tcp,
            _ => Failure::Ended,
        })
    }

    fn push_all(&self, buffers: &[IoSlice<'_>], mut skip: usize) -> Result<usize, Failure> {
        let (producer, mut done) = (&self.shared.producer, 0);
        let cpu = self.processor();
        for buffer in buffers {
            let Some(rest) = buffer.get(skip..) else {
                skip -= buffer.len();
                continue;
            };
            skip = 0;
            let pushed = producer.push(&self.outbound, &self.inbound, Kind::Data, rest, cpu)?;
            done += pushed;
            if pushed < rest.len() {
                break;
            }
        }
        Ok(done)
    }

    /// The processor we run on, looked up at every 64th send.
    fn processor(&self) -> u16 {
        let sending = &self.shared.sending;
        let sends = sending.sends.load(Relaxed);
        sending.sends.store(sends.wrapping_add(1), Relaxed);
        if sends.is_multiple_of(64) {
            let cpu = rustix::thread::sched_getcpu();
            sending.cpu.store(u32::try_from(cpu).unwrap_or(0), Relaxed);
        }
        u16::try_from(sending.cpu.load(Relaxed)).unwrap_or(0)
    }
}

fn total(buffers: &[IoSlice<'_>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}
