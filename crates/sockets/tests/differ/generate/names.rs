//! Making, naming, copying and closing descriptors; options.

use super::model::{Connection, Kind, number};
use super::values::{COMMANDS, OPTIONS, REQUESTS};
use super::{Generator, SLOTS};
use libc::{AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

/// Flags of `socket` and `accept4`.
const SOCKET_FLAGS: &[i64] =
    &[0, 0, SOCK_NONBLOCK as i64, SOCK_CLOEXEC as i64, (SOCK_NONBLOCK | SOCK_CLOEXEC) as i64];
/// `TCP_NODELAY`: on all connections, since Nagle's algorithm holds bytes back for a time that nobody knows.
const NODELAY: [i64; 2] = [libc::IPPROTO_TCP as i64, libc::TCP_NODELAY as i64];

impl Generator {
    /// A TCP socket in a free slot; family 2 or 10.
    fn fresh(&mut self, family: i64, flags: i64) -> usize {
        let slot = self.free_slot();
        self.push("socket", &[number(slot), family, i64::from(SOCK_STREAM) | flags, 0]);
        self.set_slot(slot, Kind::Fresh);
        slot
    }

    /// A listener, a connection to it, and the accepted end.
    pub(super) fn connection(&mut self) {
        let family = if self.random.chance(85) { AF_INET } else { AF_INET6 };
        let listener = match self.slot_of(|kind| kind == Kind::Listener) {
            Some(listener) if self.random.chance(60) => listener,
            _ => self.listener(i64::from(family)),
        };
        let flags = if self.random.chance(50) { 0 } else { self.random.pick(SOCKET_FLAGS) };
        let client = self.fresh(i64::from(AF_INET), flags & !i64::from(SOCK_NONBLOCK));
        self.push("setopt", &[number(client), NODELAY[0], NODELAY[1], 4, 1]);
        self.push("connect", &[number(client), 2, number(listener)]);
        let connection = self.model.connections.len();
        self.model.connections.push(Connection::default());
        self.set_slot(client, Kind::End { connection, end: 0 });
        let accepted = self.free_slot();
        let flags = if self.random.chance(60) { -1 } else { self.random.pick(SOCKET_FLAGS) };
        let address = self.random.pick(&[-1, 0, 5, 16, 128]);
        self.push("accept", &[number(listener), number(accepted), flags, address]);
        self.set_slot(accepted, Kind::End { connection, end: 1 });
        if flags & i64::from(SOCK_NONBLOCK) == 0 && self.random.chance(30) {
            let end = self.random.pick(&[client, accepted]);
            self.push("fcntl", &[number(end), libc::F_SETFL.into(), libc::O_NONBLOCK.into()]);
        }
        if self.random.chance(30) {
            self.push("close", &[number(listener)]);
            self.set_slot(listener, Kind::Closed);
        }
    }

    fn listener(&mut self, family: i64) -> usize {
        let listener = self.fresh(family, 0);
        let place = match family == i64::from(AF_INET6) {
            true => 6,
            false => self.random.pick(&[0, 0, 1]),
        };
        self.push("setopt", &[number(listener), NODELAY[0], NODELAY[1], 4, 1]);
        self.push("bind", &[number(listener), place]);
        let backlog = self.random.pick(&[1, 5, 16]);
        self.push("listen", &[number(listener), backlog]);
        self.set_slot(listener, Kind::Listener);
        listener
    }

    /// Pieces of a connection's beginning, in any order.
    pub(super) fn connections(&mut self) {
        match self.random.below(10) {
            0..3 => self.connection(),
            3 => {
                let family = self.random.pick(&[AF_INET, AF_INET, AF_INET6, 77]);
                let kind =
                    self.random.pick(&[SOCK_STREAM, SOCK_STREAM | SOCK_NONBLOCK, libc::SOCK_DGRAM, 99]);
                let protocol = self.random.pick(&[0, 0, 6, 132]);
                let slot = self.free_slot();
                self.push("socket", &[number(slot), family.into(), kind.into(), protocol]);
                let right = family != 77 && kind & 0xf == SOCK_STREAM && protocol != 132;
                self.set_slot(slot, if right { Kind::Fresh } else { Kind::Other });
            }
            4 => {
                let slot = self.some_slot();
                let (kind, of) = (number(self.random.below(11)), self.some_slot());
                self.push("bind", &[slot, kind, of]);
            }
            5 => {
                let (slot, backlog) = (self.some_slot(), self.random.pick(&[-1, 0, 1, 5]));
                self.push("listen", &[slot, backlog]);
            }
            6..8 => {
                let slot = match self.slot_of(|kind| kind == Kind::Fresh) {
                    Some(slot) if self.random.chance(70) => number(slot),
                    _ => self.some_slot(),
                };
                self.connect_anywhere(slot);
            }
            _ => {
                // A listener without a visitor would keep its caller: only those that do not block.
                let slot = self.target();
                let new = self.free_slot();
                let flags = self.random.pick(&[-1, 0, 0x1234]);
                let address = self.random.pick(&[-1, 0, 16, -5]);
                self.push("accept", &[slot, number(new), flags, address]);
            }
        }
    }

    fn connect_anywhere(&mut self, slot: i64) {
        let kind = self.random.pick(&[2, 2, 2, 3, 4, 5, 7, 8, 9, 10, 10]);
        let listener = self.slot_of(|kind| kind == Kind::Listener).map_or(0, number);
        self.push("connect", &[slot, kind, listener]);
    }

    fn some_slot(&mut self) -> i64 {
        match self.random.below(20) {
            0 => 100,
            1 => number(self.random.below(SLOTS)),
            _ => self.slot_of(|kind| kind != Kind::Empty).map_or(0, number),
        }
    }

    pub(super) fn shutdown(&mut self) {
        let (slot, how) = (self.target(), self.random.pick(&[0, 1, 1, 1, 2, 3, -1]));
        if let Ok(at) = usize::try_from(slot)
            && at < SLOTS
            && let Kind::End { connection, end } = self.slot(at)
        {
            let ended = &mut self.model.connections[connection].ended;
            ended[end] |= how == 1 || how == 2;
            ended[1 - end] |= how == 0 || how == 2;
        }
        self.push("shutdown", &[slot, how]);
    }

    pub(super) fn close(&mut self) {
        let slot = if self.random.chance(60) { self.target() } else { self.some_slot() };
        self.push("close", &[slot]);
        if let Ok(at) = usize::try_from(slot)
            && at < SLOTS
        {
            if let Kind::End { connection, end } = self.slot(at) {
                self.model.connections[connection].ended[end] = true;
            }
            self.set_slot(at, Kind::Closed);
        }
    }

    pub(super) fn copies(&mut self) {
        let from = self.target();
        let kind =
            usize::try_from(from).ok().filter(|at| *at < SLOTS).map_or(Kind::Closed, |at| self.slot(at));
        let to = if self.random.chance(60) { self.free_slot() } else { self.random.below(SLOTS) };
        match self.random.below(4) {
            0 => self.push("dup", &[from, number(to)]),
            1 => self.push("dup2", &[from, number(to), -1]),
            2 => {
                let flags = self.random.pick(&[0, i64::from(libc::O_CLOEXEC), 1]);
                self.push("dup2", &[from, number(to), flags]);
            }
            _ => {
                let command = self.random.pick(&[libc::F_DUPFD, libc::F_DUPFD_CLOEXEC]);
                let least = self.random.pick(&[0, 10, 30, -1, 1 << 30]);
                self.push("fcntl", &[from, command.into(), least, number(to)]);
            }
        }
        if kind != Kind::Closed && kind != Kind::Empty {
            self.set_slot(to, kind);
        }
    }

    pub(super) fn controls(&mut self) {
        let slot = self.target();
        if self.random.chance(50) {
            let (command, value) = self.random.pick(COMMANDS);
            self.push("fcntl", &[slot, command.into(), value.into()]);
        } else {
            let request = self.random.pick(REQUESTS);
            let value = number(self.random.below(2));
            self.push("ioctl", &[slot, i64::try_from(request).unwrap_or(0), value]);
        }
    }

    pub(super) fn naming(&mut self) {
        let slot = self.target();
        let len = self.random.pick(&[0, 1, 2, 8, 16, 28, 128, -1, -2, -5]);
        let which = number(self.random.below(2));
        self.push("name", &[slot, len, which]);
    }

    pub(super) fn options(&mut self) {
        let slot = self.target();
        let (level, name) = self.random.pick(OPTIONS);
        let (level_arg, name_arg) = (i64::from(level), i64::from(name));
        let times = level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO);
        if times && self.random.chance(50) {
            let us = self.random.pick(&[0, 1, 4000, 9000, 1_000_000, -1]);
            self.push("settime", &[slot, name_arg, 0, us]);
        } else if self.random.chance(55) || times {
            let len = self.random.pick(&[4, 4, 4, 8, 16, 128, 256, 0, 1, 3, -1]);
            self.push("getopt", &[slot, level_arg, name_arg, len]);
        } else {
            let value = match (level, name) {
                (libc::IPPROTO_TCP, libc::TCP_NODELAY) => 1,
                _ => self.random.pick(&[0, 1, 1, 2, 5, 60, 1000, -1]),
            };
            let len = self.random.pick(&[4, 4, 4, 4, 8, 0, 1, 3, -1, -2]);
            let second = self.random.pick(&[0, 1, 3]);
            self.push("setopt", &[slot, level_arg, name_arg, len, value, second]);
        }
    }

    /// Calls that sockets refuse, and `fstat`.
    pub(super) fn refused(&mut self) {
        let slot = self.target();
        if self.random.chance(30) {
            self.push("stat", &[slot]);
        } else {
            let which = number(self.random.below(6));
            self.push("refused", &[slot, which, 10]);
        }
    }
}
