//! Whether the far end has gone, or said that it sends no more.

use super::End;
use crate::shared::{FIN_SILENT, FIN_TOLD};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;
use crosslane_shm::{Load, wait};
use crosslane_stream::Direction;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{STATE, STATE_DEAF, STATE_GONE};
use std::time::Instant;

impl End {
    /// Whether nobody is there any more who could read what we send: the far end was closed or shut for both directions, or
    /// its connection ended without a word (its last holder was killed or left by `_exit`).
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

    /// The kernel's connection has ended. Believed once what the far side stored before that has landed: on a port that posts
    /// stores the caller waits, once in the stream's life, for the record by which the far side ends, or turns, its direction; of one
    /// that was killed none comes, and the caller waits until no store can be under way any more. `heard_before` says how
    /// long ago the end came at least, so that those who see the ends of many streams wait for the last one only.
    pub fn note_fin(&self, heard_before: impl FnOnce() -> Duration) {
        let (fin, in_flight) = (&self.shared.status.fin, self.generations.newest().segments.landed_after());
        if !in_flight.is_zero() && fin.load(Relaxed) == 0 {
            let until = Instant::now() + in_flight.saturating_sub(heard_before());
            let receives = || matches!(self.rx(), Direction::Open | Direction::Handshake);
            wait::look_until(until, || !receives() || matches!(self.turn_ahead(), Some(Some(_))));
        }
        fin.store(1, Release);
    }

    /// After the FIN: true if the far side's FIN came without a control record (`DisConn`, `Downgrade`..) in the ring, so the far program
    /// died instead of closing. Unread data does not count: it does not show that anybody is left to read ours.
    fn is_silent(&self) -> bool {
        let silence = &self.shared.status.silence;
        if silence.load(Relaxed) == 0 {
            let Some(turn) = self.turn_ahead() else { return false };
            silence.store(if turn.is_some() { FIN_TOLD } else { FIN_SILENT }, Relaxed);
        }
        silence.load(Relaxed) == FIN_SILENT
    }

    /// Whether the far side has said that it sends no more, read or not.
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

    /// The first record that lies unread and is not data, if there is one; `None` if other threads move too fast to tell, or
    /// more may come from another circuit. After the FIN nothing more arrives, so the answer stays.
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
        // Nothing counts from the moment on in which the stream begins to move.
        (self.status.load(Acquire) == word).then_some(None)
    }
}
