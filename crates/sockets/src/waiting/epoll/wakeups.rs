//! The wakeup set of a program's set: when it is made, what it reports, which wakes it asks for.

use super::cold::{HOT, Round};
use super::events;
use super::interest::Interest;
use super::set::State;
use super::wakeup_set::{DAEMON, WAKE, WakeupSet};
use crate::daemon::waiters::Waiter;
use crate::daemon::{process, watch};
use crate::kernel::polling;
use core::ffi::c_int;
use crosslane_shm::wake::NOBODY;
use crosslane_wire::WaiterId;
use libc::epoll_event;
use rustix::fd::RawFd;

impl State {
    /// The inner set, if there is one.
    pub fn inner(&self) -> RawFd {
        self.wakeup_set.map_or(-1, |wakeup_set| wakeup_set.inner)
    }

    /// Makes the inner set and the wake event, and adds them to the program's set. The errors are those of
    /// `epoll_ctl`.
    pub fn make_wakeup_set(&mut self, epfd: c_int) -> Result<(), c_int> {
        if self.wakeup_set.is_none() {
            self.open_wakeup_set(epfd)?;
        }
        let is_known = |wakeup_set: &WakeupSet| wakeup_set.waiter.is_some_and(|waiter| waiter.is_current());
        if let Some(wakeup_set) = self.wakeup_set.filter(|wakeup_set| !is_known(wakeup_set)) {
            self.renew_waiter(wakeup_set);
        }
        if let Some(wakeup_set) = &mut self.wakeup_set {
            wakeup_set.watch_daemon();
        }
        Ok(())
    }

    #[cold]
    fn open_wakeup_set(&mut self, epfd: c_int) -> Result<(), c_int> {
        let wakeup_set = WakeupSet::take()?;
        let inner = wakeup_set.inner;
        let event = epoll_event { events: libc::EPOLLIN.unsigned_abs(), u64: events::tag() };
        polling::control(epfd, libc::EPOLL_CTL_ADD, inner, event)
            .inspect_err(|_| wakeup_set.end(Waiter::give))?;
        self.wakeup_set = Some(wakeup_set);
        for interest in self.places.iter_mut().flatten() {
            let _ = interest.enlist(inner);
        }
        Ok(())
    }

    /// The daemon that knew the waiter is gone, or there was none.
    #[cold]
    fn renew_waiter(&mut self, wakeup_set: WakeupSet) {
        let waiter = Waiter::take();
        if waiter.is_none() && wakeup_set.waiter.is_some() {
            return;
        }
        if let Some(old) = wakeup_set.waiter {
            for interest in self.places.iter_mut().flatten() {
                interest.disarm(old.id);
            }
            old.close();
            self.heat_all();
        }
        if let Some(waiter) = waiter {
            let event = epoll_event { events: libc::EPOLLIN.unsigned_abs(), u64: WAKE };
            let _ = polling::control(wakeup_set.inner, libc::EPOLL_CTL_ADD, waiter.fd, event);
        }
        self.wakeup_set = Some(WakeupSet { waiter, ..wakeup_set });
    }

    /// Makes the inner set readable, so that a thread looks at all streams but cold ones, which have no news.
    pub fn kick(&self) {
        if let Some(waiter) = self.wakeup_set.and_then(|wakeup_set| wakeup_set.waiter) {
            waiter.wake(HOT);
        }
    }

    /// Takes the kernel's events of the carrier sockets of a set without a wakeup set.
    pub fn look_at_quiet(&mut self, epfd: c_int) {
        const FEW: usize = 2;
        if self.wakeup_set.is_some() {
            return;
        }
        if self.places.len() > FEW || self.asked.is_some() {
            let _ = self.make_wakeup_set(epfd);
            self.take_events();
        } else {
            self.places.iter_mut().flatten().for_each(Interest::look_at_kernel);
        }
    }

    /// Takes the inner set's events. `false` if there were none: what woke us was for a process that shares this set by
    /// `fork`.
    pub fn take_events(&mut self) -> bool {
        const WAKEUPS_MAX: usize = 32;
        let Some(wakeup_set) = self.wakeup_set else { return false };
        let mut had_events = false;
        for _ in 0..=self.places.len() / WAKEUPS_MAX {
            let mut events = [epoll_event { events: 0, u64: 0 }; WAKEUPS_MAX];
            let count = polling::wait(wakeup_set.inner, &mut events, 0).unwrap_or(0);
            had_events |= count > 0;
            for event in &events[..count] {
                self.take_event(event.u64, event.events, wakeup_set.waiter);
            }
            if count < WAKEUPS_MAX {
                break;
            }
        }
        had_events
    }

    fn take_event(&mut self, key: u64, bits: u32, waiter: Option<Waiter>) {
        if key == WAKE {
            if let Some(waiter) = waiter {
                self.take_wakes(waiter);
            }
            return;
        }
        if key & DAEMON != 0 {
            self.heat_all();
            let number = u32::try_from(key & 0xffff_ffff).unwrap_or(0);
            if let Some(daemon) = watch::present().filter(|daemon| daemon.connection == number) {
                process::lost(daemon);
            }
            return;
        }
        let place = usize::try_from(key & 0xffff_ffff).unwrap_or(usize::MAX);
        if let Some(interest) =
            self.places.get_mut(place).and_then(Option::as_mut).filter(|it| it.has_key(key))
        {
            interest.news(bits);
            self.cold.heat(place);
        }
    }

    /// Streams that wakes name are looked at again, and asked again to ring. All are if a wake names nobody, or if names may be lost.
    fn take_wakes(&mut self, waiter: Waiter) {
        if self.cold.count() == 0 {
            waiter.clear();
            self.rung = true;
            return;
        }
        let Self { cold, places, looked, .. } = self;
        let mut any = false;
        let taken = waiter.take_names(|name| {
            any |= name == NOBODY;
            cold.heat_named(name, |place| {
                if let Some(interest) = &mut places[place] {
                    interest.named();
                    interest.since = *looked;
                }
            });
        });
        if any || self.capacity.is_none_or(|(of, capacity)| of != waiter.id || taken >= capacity) {
            self.heat_all();
        }
    }

    /// Whether it is known how many wakes the waiter's queue takes, so that a queue which was full is noticed, and there is a daemon: far
    /// sides may need it to find the waiter.
    pub(super) fn knows_capacity(&mut self) -> bool {
        if watch::present().is_none() {
            return false;
        }
        let Some(waiter) = self.wakeup_set.and_then(|wakeup_set| wakeup_set.waiter) else { return false };
        if self.capacity.is_none_or(|(of, _)| of != waiter.id) {
            self.capacity = Some((waiter.id, waiter.capacity()));
            // Wakes that came meanwhile are lost: this one has the set look at all once more, also if the thread is about to sleep.
            waiter.wake(NOBODY);
            self.heat_all();
        }
        self.capacity.is_some_and(|(_, capacity)| capacity > 0)
    }

    /// Asks for wakes. `false` if not all streams will ring.
    pub fn arm(&mut self) -> bool {
        let Some(waiter) = self.waiter_id() else { return self.places.len() == self.idle.len() };
        self.heat_after_upheavals();
        let again = core::mem::take(&mut self.rung);
        let (mut armed, mut round) = (true, Round::new(0, self.places.len()));
        while let Some(place) = self.cold.next_hot(&mut round) {
            if let Some(interest) = &mut self.places[place] {
                armed &= interest.arm(waiter, again, &mut self.requests);
            }
        }
        armed
    }

    /// The number of the wake event, if there is one.
    pub fn waiter_id(&self) -> Option<WaiterId> {
        self.wakeup_set?.waiter.map(|waiter| waiter.id)
    }
}
