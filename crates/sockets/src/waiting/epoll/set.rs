//! A set's shadow: the interests in streams, and the sets inside it.

use super::cold::{Cold, Looked, Upheavals};
use super::interest::Interest;
use super::order::Order;
use super::sleepers;
use super::wakeup_set::WakeupSet;
use crate::daemon::waiters::Waiter;
use crate::descriptors::table::{self, Held, Kind};
use crate::kernel::thread::tid;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crosslane_shm::arm::{Armed, NextSleep};
use crosslane_shm::clock::Moment;
use crosslane_shm::lock::Locked;
use crosslane_shm::wait::Budget;
use crosslane_wire::WaiterId;
use libc::epoll_event;
use std::collections::BTreeMap;
use std::time::Instant;

/// Sets in sets, at most, as the kernel has it.
const MAX_DEPTH: u32 = 5;

/// An epoll set of the program's.
pub struct Set {
    pub(super) state: Locked<State>,
    /// Interests in streams, plus sets inside this one.
    shadowed: AtomicU32,
    /// Threads that sleep in it.
    pub sleepers: AtomicU32,
    /// Calls that have slept in it and are not over.
    pub(super) calls: AtomicU32,
    /// Raised when its place is given to another set.
    pub(super) generation: AtomicU32,
    /// A thread may sleep on the set in the kernel without knowing of streams in it, or polls its descriptor.
    looked: AtomicBool,
}

/// What [`Set::prepare`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// A stream in the set is ready.
    pub ready: bool,
    /// All others will ring; if not, sleep for a short time only.
    pub armed: bool,
    /// How long to sleep next: a request for a wake may still be under way.
    pub next: NextSleep,
}

impl Prepared {
    /// There are no streams.
    pub const NOTHING: Self = Self { ready: false, armed: true, next: NextSleep::Unbounded };
}

/// What the lock guards.
#[derive(Default)]
pub struct State {
    /// Descriptors of the set.
    pub(super) names: Vec<c_int>,
    /// The set's place, if its last descriptor was closed during calls; one of ours stands in for it.
    pub(super) left: Option<u32>,
    pub(super) places: Vec<Option<Interest>>,
    pub(super) idle: Vec<usize>,
    by_fd: BTreeMap<c_int, usize>,
    /// Places of interests whose number was closed while a copy of it is open, with that number.
    unnamed: Vec<(c_int, usize)>,
    serial: u32,
    /// Sets inside this one, with their generations.
    nested: Vec<(c_int, &'static Set, u32)>,
    pub(super) wakeup_set: Option<WakeupSet>,
    /// A wake came since wakes were last asked for.
    pub(super) rung: bool,
    /// Until when requests for wakes, and the reasons for which they get no answer, may be under way.
    pub requests: Armed<Instant>,
    /// Where the next look begins, so that no stream starves.
    pub(super) next: usize,
    /// The stream that was last found ready.
    pub(super) last: usize,
    pub(super) order: Order,
    /// How long looks have taken, of a large set.
    pub(super) looked: Looked,
    /// Streams that a look passes over.
    pub(super) cold: Cold,
    pub(super) upheavals: Upheavals,
    /// How many wakes the queue of this waiter takes.
    pub(super) capacity: Option<(WaiterId, usize)>,
    /// When the kernel was last asked.
    pub asked: Option<Moment>,
    /// Whether the kernel comes first at the next look that has one place only.
    pub kernel_first: bool,
    /// How long to spin.
    pub budget: Budget,
}

impl Set {
    /// A set without streams, of no descriptor yet.
    pub fn new() -> Self {
        Self {
            state: Locked::new(State::default()),
            shadowed: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            looked: AtomicBool::new(false),
        }
    }

    /// Whether it holds streams, or sets that may.
    #[inline]
    pub fn is_shadowed(&self) -> bool {
        self.shadowed.load(Ordering::Acquire) > 0
    }

    /// A thread is about to look at the set in the kernel only, if it [is not shadowed](Self::is_shadowed) afterwards.
    #[inline]
    pub fn looks(&self) {
        if !self.looked.load(Ordering::Relaxed) {
            self.looked.store(true, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether a thread may have looked since the last call. What it should see was counted before.
    pub fn take_look(&self) -> bool {
        fence(Ordering::SeqCst);
        self.take_locked_look()
    }

    /// The same with the lock held, for a set that was shadowed before: a thread that looks at such a set takes the
    /// lock behind [`Self::looks`], so no fence is needed.
    pub fn take_locked_look(&self) -> bool {
        self.looked.load(Ordering::Relaxed) && self.looked.swap(false, Ordering::Relaxed)
    }

    /// Whether a thread may look, so that a new interest must be known to the kernel at once.
    pub fn is_looked_at(&self) -> bool {
        self.looked.load(Ordering::Relaxed)
    }

    /// Runs `work` on the state. `None` in a signal handler that interrupted this thread's own work on it.
    pub fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.state.with(tid(), work).ok()
    }

    /// A further descriptor refers to it.
    pub fn named(&'static self, epfd: c_int) {
        let Some(name) = self.with(|state| {
            state.names.push(epfd);
            state.names[0]
        }) else {
            return;
        };
        if let Some(entry) = table::look(name) {
            table::enter(epfd, Kind::Epoll, entry.index);
        }
    }

    /// Its number of interests and inner sets has changed.
    pub fn count(&self, state: &State) {
        let count = state.places.len() - state.idle.len() + state.nested.len();
        self.shadowed.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Release);
    }

    /// A thread is about to sleep (`true`), or has slept.
    pub fn sleeps(&self, begins: bool) {
        if begins {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
        } else {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        sleepers::sleeps(begins);
    }

    /// Wakes a thread that sleeps in the set, so that it looks again.
    pub fn kick(&self, state: &State) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            state.kick();
        }
    }

    /// See [`super::prepare`].
    pub fn prepare(&'static self, epfd: c_int) -> Prepared {
        self.prepare_at(epfd, MAX_DEPTH)
    }

    fn prepare_at(&'static self, epfd: c_int, depth: u32) -> Prepared {
        self.looks();
        let prepared = self.with(|state| {
            let _ = state.make_wakeup_set(epfd);
            state.take_events();
            let nested = state.prepare_nested(depth);
            let was_under_way = state.requests.is_under_way();
            let armed = state.arm() && nested.armed;
            if !was_under_way && state.requests.is_under_way() {
                // The caller may be gone before that has landed.
                self.kick(state);
            }
            let next = state.requests.next_sleep(Instant::now).sooner(nested.next);
            Prepared { ready: state.any_ready(), armed, next }
        });
        prepared.unwrap_or(Prepared { armed: false, ..Prepared::NOTHING })
    }
}

impl State {
    /// A new set's, whose descriptor is `epfd`.
    pub fn new(epfd: c_int) -> Self {
        Self { names: vec![epfd], budget: Budget::new(), ..Self::default() }
    }

    /// The interest of the program's descriptor `fd`.
    pub fn find(&mut self, fd: c_int) -> Option<&mut Interest> {
        let place = self.place_of(fd)?;
        self.cold.heat(place);
        self.places.get_mut(place)?.as_mut().filter(|interest| !interest.is_out())
    }

    /// Where the interest of `fd` is kept, or was until the program took it out.
    pub fn place_of(&self, fd: c_int) -> Option<usize> {
        self.by_fd.get(&fd).copied()
    }

    /// Whether there is an interest at this place that the program has not taken out.
    pub fn is_in(&self, place: Option<usize>) -> bool {
        place.and_then(|place| self.places.get(place)?.as_ref()).is_some_and(|interest| !interest.is_out())
    }

    /// `fd` may be a number that was closed and refers to the same stream again: it names its interest again.
    pub fn revive(&mut self, fd: c_int, held: &Held) {
        if self.unnamed.is_empty() || self.by_fd.contains_key(&fd) {
            return;
        }
        let is_its = |&(number, place): &(c_int, usize)| {
            number == fd && self.places[place].as_ref().is_some_and(|it| it.stream() == held.index)
        };
        if let Some(at) = self.unnamed.iter().position(is_its) {
            let (_, place) = self.unnamed.swap_remove(at);
            self.by_fd.insert(fd, place);
        }
    }

    /// Adds an interest of `fd`, which was at `place` if it was here before. Without a wakeup set the kernel learns of it when one is made.
    pub fn insert(
        &mut self,
        place: Option<usize>,
        fd: c_int,
        held: &Held,
        wanted: &epoll_event,
    ) -> Result<(), c_int> {
        let inner = self.inner();
        if let Some(place) = place {
            match &mut self.places[place] {
                Some(interest) if interest.stream() == held.index => {
                    self.cold.heat(place);
                    interest.put_back(wanted, inner);
                    return Ok(());
                }
                _ => self.forget(fd),
            }
        }
        self.insert_new(fd, held.clone(), wanted)
    }

    fn insert_new(&mut self, fd: c_int, held: Held, wanted: &epoll_event) -> Result<(), c_int> {
        let place = self.idle.pop().unwrap_or(self.places.len());
        self.serial = self.serial.wrapping_add(1) & 0x7fff_ffff;
        let key = u64::from(self.serial) << 32 | place as u64;
        let mut interest = Interest::new(fd, held, key, wanted);
        let enlisted = interest.enlist(self.inner());
        interest.since = self.looked;
        let interest = enlisted.is_ok().then_some(interest);
        if let Some(interest) = &interest {
            self.cold.add(interest.end().name(), place);
            self.by_fd.insert(fd, place);
        } else {
            self.idle.push(place);
        }
        match self.places.get_mut(place) {
            Some(free) => *free = interest,
            None => self.places.push(interest),
        }
        self.want_order(place);
        enlisted
    }

    /// A stream was added at this place: as soon as there are two, their order counts.
    fn want_order(&self, place: usize) {
        if self.several() {
            let first = self
                .places
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != place)
                .find_map(|(_, it)| it.as_ref());
            for interest in self.places[place].iter().chain(first) {
                interest.end().want_stamps();
            }
        }
    }

    /// The program takes `fd` out.
    pub fn remove(&mut self, fd: c_int) {
        let (inner, waiter) = (self.inner(), self.waiter_id());
        if let Some(interest) = self.find(fd) {
            interest.take_out(inner, waiter);
        }
    }

    fn forget(&mut self, fd: c_int) {
        if let Some(place) = self.by_fd.remove(&fd) {
            self.drop_place(place);
        }
    }

    /// A set inside this one.
    pub fn nest(&mut self, epfd: c_int, set: &'static Set) {
        self.nested.push((epfd, set, set.generation.load(Ordering::Relaxed)));
    }

    /// The set inside is no longer inside.
    pub fn unnest(&mut self, epfd: c_int) {
        self.nested.retain(|nested| nested.0 != epfd);
    }

    /// Makes the kernel see which of the sets inside are ready.
    pub fn prepare_nested(&mut self, depth: u32) -> Prepared {
        let mut all = Prepared::NOTHING;
        if self.nested.is_empty() || depth == 0 {
            return all;
        }
        self.nested.retain(|(_, set, generation)| set.generation.load(Ordering::Relaxed) == *generation);
        self.nested.iter().for_each(|(_, set, _)| set.looks());
        for (epfd, set, _) in self.nested.iter().filter(|(_, set, _)| set.is_shadowed()) {
            let prepared = set.prepare_at(*epfd, depth - 1);
            if prepared.ready {
                set.with(|state| state.kick());
            }
            all.ready |= prepared.ready;
            all.armed &= prepared.armed;
            all.next = all.next.sooner(prepared.next);
        }
        all
    }

    /// The sets inside, at the program's own look.
    pub fn look_inside(&mut self) -> Prepared {
        self.prepare_nested(MAX_DEPTH)
    }

    /// The events to ask the kernel for may have changed. Returns whether the stream is in this set.
    pub fn refresh(&mut self, stream: u32) -> bool {
        let inner = self.inner();
        self.each_of(stream, |interest| interest.ask_kernel(inner))
    }

    /// The program shut a side of the stream, which the kernel counts as an edge. Returns whether the stream is in this set.
    pub fn shut(&mut self, stream: u32) -> bool {
        self.each_of(stream, |interest| interest.fresh = true)
    }

    /// Changes the interests in a stream, which are looked at from now on. Returns whether there are any.
    fn each_of(&mut self, stream: u32, change: impl Fn(&mut Interest)) -> bool {
        let mut any = false;
        for (place, interest) in self.places.iter_mut().enumerate() {
            if let Some(interest) = interest.as_mut().filter(|interest| interest.stream() == stream) {
                change(interest);
                self.cold.heat(place);
                any = true;
            }
        }
        any
    }

    /// Whether the program took all streams out: there is nothing to spin for.
    pub fn is_all_out(&self) -> bool {
        self.places.iter().flatten().all(Interest::is_out)
    }

    /// The program closes `fd`, a descriptor of the stream: with the last one its interests go.
    pub fn stream_closed(&mut self, fd: c_int, held: &Held) {
        if table::descriptors(held) > 1 {
            self.survive(fd, held.index);
            return;
        }
        let matches = |place: &Option<Interest>| place.as_ref().is_some_and(|it| it.stream() == held.index);
        for place in (0..self.places.len()).filter(|&place| matches(&self.places[place])).collect::<Vec<_>>()
        {
            self.by_fd.retain(|_, known| *known != place);
            self.drop_place(place);
        }
    }

    /// Another descriptor keeps the stream open: the interest of `fd` stays, though it cannot be named until that
    /// number is a copy of the stream again. One that the program has taken out goes.
    fn survive(&mut self, fd: c_int, stream: u32) {
        let inner = self.inner();
        if let Some(place) = self.by_fd.remove(&fd) {
            if self.places[place].as_ref().is_some_and(Interest::is_out) {
                self.drop_place(place);
            } else {
                self.unnamed.push((fd, place));
            }
        }
        let goes_by = |interest: &&mut Interest| interest.stream() == stream && interest.goes_by(fd);
        let mut named = self.places.iter_mut().flatten().filter(goes_by).peekable();
        if named.peek().is_none() {
            return;
        }
        let is_other = |&(other, entry): &(c_int, table::Entry)| {
            other != fd && entry.kind == Kind::Stream && entry.index == stream
        };
        if let Some((other, _)) = table::entries().find(is_other) {
            named.for_each(|interest| interest.rename(other, inner));
        }
    }

    /// Returns whether the inner set has no trace of it any more.
    fn drop_place(&mut self, place: usize) -> bool {
        let (inner, waiter, mut clean) = (self.inner(), self.waiter_id(), true);
        self.unnamed.retain(|unnamed| unnamed.1 != place);
        if let Some(mut interest) = self.places[place].take() {
            self.cold.remove(interest.end().name(), place);
            clean = interest.delist(inner, waiter);
            self.idle.push(place);
        }
        if self.idle.len() == self.places.len() {
            self.places.clear();
            self.idle.clear();
            if self.nested.is_empty() {
                // No thread looks here any more: old events of streams must not keep the set readable.
                self.take_events();
            }
        }
        clean
    }

    /// The last descriptor of the set, `epfd`, goes.
    pub fn end(&mut self, epfd: c_int) {
        let mut clean = true;
        for place in 0..self.places.len() {
            if !self.places.is_empty() {
                clean &= self.drop_place(place);
            }
        }
        if let Some(wakeup_set) = self.wakeup_set {
            wakeup_set.leave(epfd, clean);
        }
        *self = Self::default();
    }

    /// In the child of `fork`: wakes and the inner set are the parent's.
    pub fn leave_parent(&mut self) {
        if let Some(wakeup_set) = self.wakeup_set.take() {
            wakeup_set.end(Waiter::close);
        }
        self.places.iter_mut().flatten().for_each(Interest::forget_parent);
        self.heat_all();
    }
}
