//! Whether the far end is gone, or has ended its sending direction.

use super::CircuitEnd;
use crate::shared::{FIN_SILENT, FIN_TOLD};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;
use crosslane_shm::{Load, wait};
use crosslane_stream::Direction;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{STATE, STATE_DEAF, STATE_GONE};
use std::time::Instant;

impl CircuitEnd {
    /// Whether no far program is left to read what this end sends: the far end was closed or shut down in both
    /// directions, or its connection ended without a control record (its last holder was killed or left by `_exit`).
    #[inline(always)]
    pub fn gone(&self) -> bool {
        match self.generations.tx().segments.inbound.load_u32(STATE) {
            STATE_GONE | STATE_DEAF => self.is_steady() || !self.is_moving(),
            _ => self.shared.status.fin.load(Acquire) != 0 && self.is_gone_silently(),
        }
    }

    #[inline(never)]
    fn is_gone_silently(&self) -> bool {
        self.has_fin() && matches!(self.rx(), Direction::Open | Direction::Handshake) && self.is_silent()
    }

    /// The kernel's connection has ended. On a port that posts stores, the far side's last stores may still be under way: the
    /// caller waits, once in the stream's life, for the record by which the far side ends its direction or leaves it to TCP.
    /// A far program that was killed sends none; the wait then ends when no store can be under way any more. `heard_before`
    /// says how long ago, at least, the end arrived, so that a caller with many streams waits only for the last one.
    pub fn note_fin(&self, heard_before: impl FnOnce() -> Duration) {
        let (fin, in_flight) = (&self.shared.status.fin, self.generations.newest().segments.landed_after());
        if !in_flight.is_zero() && fin.load(Relaxed) == 0 {
            let until = Instant::now() + in_flight.saturating_sub(heard_before());
            let receives = || matches!(self.rx(), Direction::Open | Direction::Handshake);
            wait::look_until(until, || !receives() || matches!(self.turn_ahead(), Some(Some(_))));
        }
        fin.store(1, Release);
    }

    /// After the FIN: whether the far side sent no control record (`DisConn`, `Downgrade`..) before it, so that the far program
    /// died instead of closing. Unread data does not count: it does not show that a program is left to read this end's bytes.
    fn is_silent(&self) -> bool {
        let silence = &self.shared.status.silence;
        if silence.load(Relaxed) == 0 {
            let Some(turn) = self.turn_ahead() else { return false };
            silence.store(if turn.is_some() { FIN_TOLD } else { FIN_SILENT }, Relaxed);
        }
        silence.load(Relaxed) == FIN_SILENT
    }

    /// Whether the far side has sent the end of its direction, read or not.
    pub fn has_end(&self) -> bool {
        self.rx() == Direction::Ended || self.turn_ahead() == Some(Some(Kind::DisConn))
    }

    /// Whether the far side sends by TCP from here on, or from a record on that lies unread. Its bytes there may come before that record:
    /// on a port that posts stores the caller waits, at most until no store can be under way any more.
    pub fn goes_over_to_tcp(&self, tid: u32) -> bool {
        let until = Instant::now() + self.generations.newest().segments.landed_after();
        wait::look_until(until, || {
            self.refresh(tid);
            self.rx() == Direction::Tcp || self.turn_ahead() == Some(Some(Kind::Downgrade))
        })
    }

    /// The kind of the first unread record that is not data, if there is one; `None` if other threads consume too fast to
    /// tell, or more may come on another circuit. After the FIN nothing more arrives, so the answer stays.
    fn turn_ahead(&self) -> Option<Option<Kind>> {
        let word = self.status.load(Acquire);
        if self.is_moving() {
            return None;
        }
        let mut walk = self.walk(self.shared.consumer.glance()?)?.through();
        while let Ok(Some(header)) = walk.look() {
            let passes = matches!(header.kind, Kind::Filler | Kind::Hello | Kind::HelloAck);
            if !(passes || header.kind.has_bytes()) {
                return Some(Some(header.kind));
            }
            walk.pass(header);
        }
        // From the moment at which the stream begins to move, these records do not count.
        (self.status.load(Acquire) == word).then_some(None)
    }
}
