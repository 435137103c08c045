//! Sends and receives.

use super::Generator;
use super::model::{Kind, number};
use super::values::{LENGTHS, RECEIVE_FLAGS, SEND_FLAGS};
use libc::{MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_WAITALL};

/// Most bytes that a direction holds unread, as far as the model knows: buffers have room for it.
const UNREAD: usize = 24_000;

impl Generator {
    /// Connection and end of a slot.
    fn end_of(&self, slot: i64) -> Option<(usize, usize)> {
        match self.slot(usize::try_from(slot).ok().filter(|at| *at < super::SLOTS)?) {
            Kind::End { connection, end } => Some((connection, end)),
            _ => None,
        }
    }

    fn length(&mut self) -> i64 {
        match self.random.below(100) {
            0 => -1,
            1..4 => number(self.random.below(20_000)),
            _ => self.random.pick(LENGTHS),
        }
    }

    /// A length that can be sent now; -1 is none that the memory has.
    fn sendable(&mut self, slot: i64) -> i64 {
        let len = self.length().max(0);
        let Some((connection, end)) = self.end_of(slot) else { return len };
        let unread = &mut self.model.connections[connection].unread[end];
        let some = usize::try_from(len).unwrap_or(0);
        if *unread + some > UNREAD {
            return 1;
        }
        *unread += some;
        len
    }

    pub(super) fn sends(&mut self) {
        let slot = self.target();
        let len = self.sendable(slot);
        let mut flags = i64::from(self.random.pick(SEND_FLAGS));
        if self.random.chance(1) {
            flags |= i64::from(MSG_OOB);
        }
        let split = number(self.random.weighted(&[8, 8, 8, 1, 1, 1, 1, 1, 8]));
        let to = number(self.random.weighted(&[90, 4, 3, 3]));
        match self.random.weighted(&[40, 20, 8, 10, 12, 6, 3, 1]) {
            0 => self.push("send", &[slot, len, flags]),
            1 => self.push("write", &[slot, len]),
            2 => self.push("sendto", &[slot, len, flags, to]),
            3 => self.push("writev", &[slot, len, split]),
            4 => {
                let control = number(self.random.weighted(&[94, 4, 0, 1, 1]));
                self.push("sendmsg", &[slot, len, split.min(6), flags, to, control]);
            }
            5 => {
                let count = number(self.random.below(6));
                self.push("sendmmsg", &[slot, count, len.min(1000), flags]);
            }
            6 => {
                let which = self.random.pick(&[1, 3]);
                let offset = self.random.pick(&[-1, -1, 0, 5, -2]);
                let flags = self.random.pick(&[0, 0, 8, 1, 2]);
                self.push("at", &[slot, which, len, offset, flags]);
            }
            _ => self.push("flood", &[slot]),
        }
    }

    /// Flags with which a receive of `len` bytes returns, in most cases.
    fn receive_flags(&mut self, slot: i64, len: i64) -> i64 {
        let mut flags = self.random.pick(RECEIVE_FLAGS);
        let Some((connection, end)) = self.end_of(slot) else {
            return i64::from(flags | MSG_DONTWAIT);
        };
        let other = 1 - end;
        let unread = self.model.connections[connection].unread[other];
        let wants = if flags & MSG_WAITALL != 0 { usize::try_from(len).unwrap_or(0) } else { 1 };
        let ended = self.model.connections[connection].ended[other];
        if unread < wants && !ended && self.random.chance(97) {
            flags |= MSG_DONTWAIT;
        }
        if self.random.chance(1) {
            flags |= MSG_OOB | MSG_DONTWAIT;
        }
        if flags & libc::MSG_PEEK == 0 {
            let left = unread.saturating_sub(usize::try_from(len).unwrap_or(0));
            self.model.connections[connection].unread[other] = left;
        }
        i64::from(flags)
    }

    pub(super) fn receives(&mut self) {
        let slot = self.target();
        let len = self.length().max(0);
        let flags = self.receive_flags(slot, len);
        let waits = flags & i64::from(MSG_DONTWAIT) == 0;
        let split = number(self.random.weighted(&[8, 8, 8, 1, 1, 1, 1, 1, 8]));
        let address = self.random.pick(&[-1, 0, 4, 16, 128]);
        let plain: &[usize] =
            if waits { &[30, 24, 10, 10, 14, 5, 3, 3] } else { &[40, 1, 12, 1, 20, 8, 1, 4] };
        match self.random.weighted(plain) {
            0 => self.push("recv", &[slot, len, flags]),
            1 => self.push("read", &[slot, len]),
            2 => self.push("recvfrom", &[slot, len, flags, address]),
            3 => self.push("readv", &[slot, len, split]),
            4 => {
                let (name, control) = (number(self.random.below(2)), number(self.random.below(2)));
                self.push("recvmsg", &[slot, len, split.min(6), flags, name, control]);
            }
            5 => {
                let count = number(self.random.below(6));
                let wait = i64::from(self.random.pick(&[0, libc::MSG_WAITFORONE]));
                let flags = if count > 1 && wait == 0 { flags | i64::from(MSG_DONTWAIT) } else { flags };
                let ms = self.random.pick(&[-1, -1, 0, 5]);
                self.push("recvmmsg", &[slot, count, len.min(1000), flags | wait, ms]);
            }
            6 => {
                let which = self.random.pick(&[0, 2]);
                let offset = self.random.pick(&[-1, -1, 0, 5, -2]);
                let flags = self.random.pick(&[0, 8, 8, 1]);
                self.push("at", &[slot, which, len, offset, flags]);
            }
            _ => self.push("drain", &[slot]),
        }
    }

    /// Pointers to what is not there, or is in part.
    pub(super) fn bad_pointers(&mut self) {
        let slot = self.target();
        let there = self.random.pick(&[0, 0, 1, 3, 4, 8, 15, 100]);
        match self.random.below(10) {
            0..4 => {
                let len = self.random.pick(&[0, 1, 8, 50, 200]);
                let flags = self.random.pick(&[MSG_DONTWAIT, MSG_DONTWAIT, MSG_DONTWAIT | MSG_PEEK]);
                let which = self.random.pick(&[0, 1, 1, 2, 3, 4, 5, 6, 7]);
                self.push("bad_data", &[slot, which, len, there, flags.into()]);
            }
            4..9 => {
                let which = number(self.random.below(20));
                self.push("bad_argument", &[slot, which, there]);
            }
            _ => {
                let set = self.slot_of(|kind| kind == Kind::Epoll).map_or(slot, number);
                self.push("bad_event", &[set, slot, there.min(11)]);
            }
        }
    }

    /// `sendfile`, `splice`, `tee`, with files and pipes.
    pub(super) fn moves(&mut self) {
        let len = self.random.pick(&[0, 1, 100, 1000, 5000]);
        let offset = number(self.random.weighted(&[50, 30, 10, 10]));
        match self.random.below(10) {
            0..3 => {
                let slot = self.free_slot();
                self.push("file", &[number(slot), 3000]);
                self.set_slot(slot, Kind::File);
                let to = self.target();
                self.push("sendfile", &[to, number(slot), len, offset]);
            }
            3..5 => {
                let from = self.target();
                let to = self.target();
                self.push("sendfile", &[to, from, len, offset]);
            }
            5..9 => self.splices(len),
            _ => {
                let (from, to) = (self.target(), self.target());
                self.push("tee", &[from, to, len, 2]);
            }
        }
    }

    fn splices(&mut self, len: i64) {
        if self.slot_of(|kind| kind == Kind::Reads).is_none() {
            let reads = self.free_slot();
            self.set_slot(reads, Kind::Reads);
            let writes = self.free_slot();
            self.set_slot(writes, Kind::Writes);
            self.push("pipe", &[number(reads), number(writes), libc::O_NONBLOCK.into()]);
        }
        let offsets = [number(self.random.weighted(&[94, 3, 3])), number(self.random.weighted(&[94, 3, 3]))];
        let flags = self.random.pick(&[2, 2, 2, 3, 6, 0, 0x100]);
        let stream = self.target();
        let outwards = self.random.chance(50);
        let pipe = self.slot_of(|kind| kind == if outwards { Kind::Reads } else { Kind::Writes });
        let pipe = pipe.map_or(100, number);
        if outwards {
            if self.random.chance(70) {
                let writes = self.slot_of(|kind| kind == Kind::Writes).map_or(100, number);
                self.push("write", &[writes, 200]);
            }
            self.push("splice", &[pipe, stream, len, flags, offsets[0], offsets[1]]);
        } else {
            self.push("splice", &[stream, pipe, len, flags, offsets[0], offsets[1]]);
        }
    }
}
