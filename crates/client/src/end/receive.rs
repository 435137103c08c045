//! Receiving.

use super::{End, Failure, Moved, add};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_stream::{Direction, Effect, handle_record};
use crosslane_wire::record::Kind;
use std::io::IoSliceMut;

impl End {
    /// Copies what has arrived into `buffers`. [`Failure::Ended`] is end of file.
    pub fn try_receive(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<Moved, Failure> {
        let (bytes, gave) = {
            let _guard = self.shared.receiving.lock.lock(tid)?;
            let fin = self.has_fin();
            let bytes = self.guarded(self.take_all(buffers))?;
            if bytes == 0 {
                return Err(self.nothing_left(fin));
            }
            (bytes, self.shared.consumer.give_credit(&self.outbound, false))
        };
        add(&self.shared.counters.rx_bytes, bytes);
        Ok(Moved { bytes, wake: if gave { self.room_bell() } else { None } })
    }

    /// Copies what has arrived without consuming it (`MSG_PEEK`).
    pub fn try_peek(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let _guard = self.shared.receiving.lock.lock(tid)?;
        let fin = self.has_fin();
        self.guarded(self.settle())?;
        let bytes = self.guarded(self.peek_all(buffers))?;
        if bytes == 0 { Err(self.nothing_left(fin)) } else { Ok(bytes) }
    }

    /// Payload bytes that lie unread (`FIONREAD`).
    pub fn unread(&self, tid: u32) -> Result<usize, Failure> {
        let _guard = self.shared.receiving.lock.lock(tid)?;
        self.guarded(self.settle())?;
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        let (mut cursor, mut bytes) = (consumer.cursor(), 0);
        while cursor.position() - consumer.position() < cursor.cap() {
            let Some(header) = self.guarded(cursor.look(ring).map_err(Failure::from))? else { break };
            match header.kind {
                Kind::Data => bytes += header.len as usize,
                Kind::Filler => {}
                _ => break,
            }
            cursor.pass(header);
        }
        Ok(bytes.saturating_sub(consumer.taken()))
    }

    /// Handles records that are not the program's: greetings, turns. Takes no lock by force: if another thread holds
    /// it, that thread does it.
    /// What breaks the protocol stays where it is, for the receive that comes: that one can tell.
    pub fn refresh(&self, tid: u32) {
        if let Some(_guard) = self.shared.receiving.lock.try_lock(tid) {
            let _ = self.settle();
        }
    }

    fn take_all(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let (ring, consumer, mut done) = (&self.inbound, &self.shared.consumer, 0);
        for buffer in buffers {
            let mut at = 0;
            while at < buffer.len() {
                if !self.settle()? {
                    return Ok(done);
                }
                let taken = consumer.take(ring, &mut buffer[at..])?;
                (at, done) = (at + taken, done + taken);
            }
        }
        Ok(done)
    }

    fn peek_all(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        let (mut cursor, mut skip, mut done) = (consumer.cursor(), consumer.taken(), 0);
        for buffer in buffers {
            let mut at = 0;
            while at < buffer.len() {
                let Some(header) = cursor.look(ring)? else { return Ok(done) };
                match header.kind {
                    Kind::Data => {}
                    Kind::Filler => {
                        cursor.pass(header);
                        continue;
                    }
                    _ => return Ok(done),
                }
                let left = (header.len as usize).saturating_sub(skip);
                let count = left.min(buffer.len() - at);
                cursor.read(ring, header, skip, &mut buffer[at..at + count]);
                (at, done, skip) = (at + count, done + count, skip + count);
                if count == left {
                    cursor.pass(header);
                    skip = 0;
                }
            }
        }
        Ok(done)
    }

    /// Consumes records until one with payload for the program is at the front: `Ok(true)`, or none is there.
    #[inline]
    fn settle(&self) -> Result<bool, Failure> {
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        loop {
            let state = self.rx();
            if !matches!(state, Direction::Open | Direction::Greeting) {
                return Ok(false);
            }
            let Some(head) = consumer.head(ring)? else { return Ok(false) };
            let (next, effect) = handle_record(self.side, state, head.kind)?;
            if effect == Effect::Deliver && head.left > 0 {
                self.shared.receiving.peer_cpu.store(u32::from(head.cpu), Relaxed);
                return Ok(true);
            }
            consumer.consume()?;
            self.shared.status.rx.store(next as u32, Relaxed);
            if next == Direction::Aborted {
                self.break_off(libc::ECONNRESET);
            }
        }
    }

    /// Whether the far side's FIN was seen. To be asked before the ring is looked at: what the far side stored before
    /// its FIN is in the ring then, while another thread may see the FIN at any moment after.
    pub(super) fn has_fin(&self) -> bool {
        self.shared.status.fin.load(Acquire) != 0
    }

    /// Why there is nothing to receive; `fin`: the far side's FIN was seen before the ring was found empty.
    fn nothing_left(&self, fin: bool) -> Failure {
        let status = &self.shared.status;
        if self.dead().is_some() || status.reset.load(Relaxed) != 0 {
            return Failure::Reset;
        }
        match self.rx() {
            Direction::Tcp => Failure::Tcp,
            Direction::Ended => Failure::Ended,
            Direction::Aborted => Failure::Reset,
            _ if fin || status.read_shut.load(Relaxed) != 0 => Failure::Ended,
            _ => Failure::WouldBlock,
        }
    }
}
