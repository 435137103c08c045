//! poll, select and epoll.

use super::Generator;
use super::model::{Kind, number};
use super::values::{EPOLL_EVENTS, POLL_EVENTS};

/// Milliseconds to wait: mostly none.
const WAITS: &[i64] = &[0, 0, 0, 0, 0, 0, 3];

impl Generator {
    pub(super) fn polls(&mut self) {
        let count = 1 + self.random.below(3);
        let ms = self.random.pick(WAITS);
        if self.random.chance(60) {
            let mut args = vec![ms, number(self.random.below(2))];
            for _ in 0..count {
                args.extend([self.target(), self.random.pick(POLL_EVENTS).into()]);
            }
            self.push("poll", &args);
        } else {
            let top = self.random.pick(&[0, 0, 0, 0, 0, 3, 1, -1]);
            let mut args = vec![ms, number(self.random.below(2)), top];
            for _ in 0..count {
                args.extend([self.target(), number(1 + self.random.below(7))]);
            }
            self.push("select", &args);
        }
    }

    pub(super) fn epoll_create(&mut self) {
        let slot = self.free_slot();
        let flags = self.random.pick(&[0, 0, i64::from(libc::EPOLL_CLOEXEC), 1]);
        self.push("epoll_create", &[number(slot), flags]);
        self.set_slot(slot, Kind::Epoll);
    }

    fn epoll_set(&mut self) -> i64 {
        match self.slot_of(|kind| kind == Kind::Epoll) {
            Some(set) if !self.random.chance(3) => number(set),
            _ => self.target(),
        }
    }

    pub(super) fn epoll_add(&mut self) {
        let (set, slot) = (self.epoll_set(), self.target());
        let events = i64::from(self.random.pick(EPOLL_EVENTS));
        let data = self.random.pick(&[slot, slot, -1]);
        self.push("epoll_ctl", &[set, libc::EPOLL_CTL_ADD.into(), slot, events & 0xffff_ffff, data]);
    }

    pub(super) fn epolls(&mut self) {
        if self.slot_of(|kind| kind == Kind::Epoll).is_none() {
            self.epoll_create();
            self.epoll_add();
        }
        match self.random.below(10) {
            0..2 => self.epoll_add(),
            2..4 => {
                let operation =
                    self.random.pick(&[libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_DEL, 9]);
                let (set, slot) = (self.epoll_set(), self.target());
                let events = match self.random.chance(95) {
                    true => i64::from(self.random.pick(EPOLL_EVENTS)) & 0xffff_ffff,
                    false => -1,
                };
                self.push("epoll_ctl", &[set, operation.into(), slot, events, slot + 100]);
            }
            _ => {
                let set = self.epoll_set();
                let most = self.random.pick(&[8, 8, 8, 8, 1, 2, 0, -1]);
                let (ms, form) = (self.random.pick(WAITS), number(self.random.below(3)));
                self.push("epoll_wait", &[set, most, ms, form]);
            }
        }
    }
}
