//! A set's shadow: the interests in streams, the inner set, the wake event.

use super::interest::{Interest, tid};
use super::{candidate, order, order::Order, waiting::Events};
use crate::table::{self, Held, Kind};
use crate::waiters::Waiter;
use crate::{own, real};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crosslane_shm::lock::{Guard, Lock};
use crosslane_shm::wait::Budget;
use crosslane_wire::WaiterId;
use libc::epoll_event;
use rustix::event::epoll::CreateFlags;
use rustix::fd::RawFd;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most sets of a process that may hold streams.
const MAX_SETS: usize = 1 << 14;
/// Key of the wake event in the inner set.
const WAKE: u64 = u64::MAX;
/// Sets in sets, at most, as the kernel has it.
const MAX_DEPTH: u32 = 5;

/// How long `fork` waits for threads that are at work on a set.
const FORK_PATIENCE: Duration = Duration::from_millis(100);

/// Places of sets; 0 is not used.
static SETS: [AtomicPtr<Set>; MAX_SETS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SETS];
/// One past the highest place in use.
static HIGHEST: AtomicU32 = AtomicU32::new(1);
/// Threads that sleep in a set with streams.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);
static TAG: AtomicU64 = AtomicU64::new(0);
static FREE: Lock = Lock::new();
static IDLE: Idle = Idle(UnsafeCell::new(Vec::new()));

/// Places of sets that were closed.
struct Idle(UnsafeCell<Vec<u32>>);
// SAFETY: only touched with `FREE` held.
unsafe impl Sync for Idle {}

/// An epoll set of the program's.
pub struct Set {
    lock: Lock,
    state: UnsafeCell<State>,
    /// Interests in streams, plus sets inside this one.
    shadowed: AtomicU32,
    /// Threads that sleep in it.
    pub sleepers: AtomicU32,
    /// Raised when its place is given to another set.
    generation: AtomicU32,
}

// SAFETY: `state` is only touched with `lock` held.
unsafe impl Sync for Set {}

/// What [`Set::prepare`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// A stream in the set is ready.
    pub ready: bool,
    /// All others will ring; if not, sleep for a short time only.
    pub armed: bool,
}

impl Prepared {
    /// There are no streams.
    pub const NOTHING: Self = Self { ready: false, armed: true };
}

/// What the lock guards.
#[derive(Default)]
pub struct State {
    /// Descriptors of the set.
    names: Vec<c_int>,
    places: Vec<Option<Interest>>,
    idle: Vec<usize>,
    by_fd: BTreeMap<c_int, usize>,
    serial: u32,
    /// Sets inside this one, with their generations.
    nested: Vec<(c_int, &'static Set, u32)>,
    bed: Option<Bed>,
    /// A bell was heard since bells were last asked for.
    rung: bool,
    /// Where the next look begins, so that nobody starves.
    next: usize,
    /// The stream that was last found ready.
    last: usize,
    order: Order,
    /// When the kernel was last asked.
    pub asked: Option<Instant>,
    /// Whether the kernel comes first at the next look that has one place only.
    pub turn: bool,
    /// How long to spin.
    pub budget: Budget,
}

/// What wakes sleepers.
#[derive(Clone, Copy)]
struct Bed {
    inner: RawFd,
    waiter: Option<Waiter>,
}

/// The mark of our own events in the program's kernel sets.
pub fn tag() -> u64 {
    match TAG.load(Ordering::Relaxed) {
        0 => choose_tag(),
        tag => tag,
    }
}

#[cold]
fn choose_tag() -> u64 {
    let mut bytes = [0; 8];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    let number =
        u64::from_ne_bytes(bytes) ^ if drawn.is_ok() { 0 } else { (&raw const TAG).addr() as u64 } | 1 << 63;
    let _ = TAG.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    TAG.load(Ordering::Relaxed)
}

/// The set behind a descriptor, if it is one that we know.
#[inline]
pub fn of(epfd: c_int) -> Option<&'static Set> {
    let entry = table::look(epfd)?;
    if entry.kind == Kind::Epoll { at(entry.index) } else { None }
}

#[inline]
fn at(index: u32) -> Option<&'static Set> {
    // SAFETY: set once to a leaked box, never freed.
    unsafe { SETS.get(index as usize)?.load(Ordering::Acquire).as_ref() }
}

/// Enters a new set. Nothing is entered when there are too many: such a set takes no streams.
pub fn create(epfd: c_int) -> Option<&'static Set> {
    let index = with_idle(Vec::pop).flatten().or_else(fresh_place)?;
    let set = at(index)?;
    set.generation.fetch_add(1, Ordering::Relaxed);
    set.with(|state| *state = State { names: vec![epfd], budget: Budget::new(), ..State::default() });
    table::enter(epfd, Kind::Epoll, index);
    Some(set)
}

fn fresh_place() -> Option<u32> {
    let index = HIGHEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |highest| {
        ((highest as usize) < MAX_SETS).then_some(highest + 1)
    });
    let index = index.ok()?;
    let set = Set {
        lock: Lock::new(),
        state: UnsafeCell::default(),
        shadowed: AtomicU32::new(0),
        sleepers: AtomicU32::new(0),
        generation: AtomicU32::new(0),
    };
    SETS[index as usize].store(Box::into_raw(Box::new(set)), Ordering::Release);
    Some(index)
}

fn with_idle<T>(work: impl FnOnce(&mut Vec<u32>) -> T) -> Option<T> {
    let _guard = FREE.lock(tid()).ok()?;
    // SAFETY: the lock is held.
    Some(work(unsafe { &mut *IDLE.0.get() }))
}

/// Does `work` on each set that holds streams.
pub fn all(mut work: impl FnMut(&Set, &mut State)) {
    for index in 1..HIGHEST.load(Ordering::Acquire) {
        let Some(set) = at(index).filter(|set| set.is_shadowed()) else { continue };
        set.with(|state| work(set, state));
    }
}

/// The descriptor `epfd` of a set is about to be closed.
pub fn closed(index: u32, epfd: c_int) {
    let Some(set) = at(index) else { return };
    let gone = set.with(|state| {
        state.names.retain(|&name| name != epfd);
        candidate::set_closed(epfd, state.names.first().copied());
        if !state.names.is_empty() {
            return false;
        }
        state.end();
        set.count(state);
        true
    });
    if gone == Some(true) {
        set.generation.fetch_add(1, Ordering::Relaxed);
        with_idle(|idle| idle.push(index));
    }
}

/// Before `fork`: takes all locks. A thread that holds one may wait for the daemon: that is not waited for longer than
/// [`FORK_PATIENCE`].
pub fn before_fork() -> Vec<Guard<'static>> {
    let start = Instant::now();
    loop {
        let mut guards: Vec<_> = FREE.try_lock(tid()).into_iter().collect();
        let mut wanted = 1;
        for set in (1..HIGHEST.load(Ordering::Relaxed)).filter_map(at) {
            wanted += 1;
            guards.extend(set.lock.try_lock(tid()));
        }
        if guards.len() == wanted || start.elapsed() >= FORK_PATIENCE {
            return guards;
        }
        drop(guards);
        std::thread::yield_now();
    }
}

/// In the child of `fork`.
pub fn forked_child() {
    FREE.reset();
    SLEEPERS.store(0, Ordering::Relaxed);
    for set in (1..HIGHEST.load(Ordering::Relaxed)).filter_map(at) {
        set.lock.reset();
        set.sleepers.store(0, Ordering::Relaxed);
        set.with(State::leave_parent);
    }
}

/// Whether any thread sleeps in a set with streams.
#[inline]
pub fn any_sleeper() -> bool {
    SLEEPERS.load(Ordering::Relaxed) > 0
}

impl Set {
    /// Whether it holds streams, or sets that may.
    #[inline]
    pub fn is_shadowed(&self) -> bool {
        self.shadowed.load(Ordering::Acquire) > 0
    }

    /// Does `work` on the state. `None` if a signal handler came in between this thread's own work on it.
    pub fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> Option<T> {
        let _guard = self.lock.lock(tid()).ok()?;
        // SAFETY: the lock is held.
        Some(work(unsafe { &mut *self.state.get() }))
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
        for count in [&self.sleepers, &SLEEPERS] {
            if begins {
                count.fetch_add(1, Ordering::SeqCst);
            } else {
                count.fetch_sub(1, Ordering::SeqCst);
            }
        }
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
        let prepared = self.with(|state| {
            let _ = state.make_bed(epfd);
            state.hear();
            let nested = state.prepare_nested(depth);
            let armed = state.arm() && nested.armed;
            Prepared { ready: state.any_ready(), armed }
        });
        prepared.unwrap_or(Prepared { ready: false, armed: false })
    }
}

impl State {
    /// The interest of the program's descriptor `fd`.
    pub fn find(&mut self, fd: c_int) -> Option<&mut Interest> {
        let place = *self.by_fd.get(&fd)?;
        self.places.get_mut(place)?.as_mut().filter(|interest| !interest.is_out())
    }

    /// The inner set, if there is one.
    pub fn inner(&self) -> RawFd {
        self.bed.map_or(-1, |bed| bed.inner)
    }

    /// A new interest of `fd`. The bed is made.
    pub fn insert(&mut self, fd: c_int, held: &Held, wanted: &epoll_event) -> Result<(), c_int> {
        let inner = self.inner();
        if let Some(&place) = self.by_fd.get(&fd) {
            match &mut self.places[place] {
                Some(interest) if interest.stream() == held.index => {
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
        let interest = enlisted.is_ok().then_some(interest);
        if interest.is_some() {
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

    /// A stream came to this place: as soon as there are two, it counts which of them is ready first.
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

    /// Makes the inner set and the wake event, and adds them to the program's set. The errors are those of
    /// `epoll_ctl`.
    pub fn make_bed(&mut self, epfd: c_int) -> Result<(), c_int> {
        match self.bed {
            Some(Bed { waiter: Some(waiter), .. }) if waiter.is_current() => return Ok(()),
            Some(bed) => self.renew_waiter(bed),
            None => self.open_bed(epfd)?,
        }
        Ok(())
    }

    #[cold]
    fn open_bed(&mut self, epfd: c_int) -> Result<(), c_int> {
        let inner =
            rustix::event::epoll::create(CreateFlags::CLOEXEC).map_err(rustix::io::Errno::raw_os_error)?;
        let inner = own::hide(inner);
        let mut event = epoll_event { events: libc::EPOLLIN.unsigned_abs(), u64: tag() };
        // SAFETY: our own set and event.
        if unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, inner, &raw mut event) } != 0 {
            let errno = real::errno();
            own::close(inner);
            return Err(errno);
        }
        let bed = Bed { inner, waiter: None };
        self.bed = Some(bed);
        for interest in self.places.iter_mut().flatten() {
            let _ = interest.enlist(inner);
        }
        self.renew_waiter(bed);
        self.kick();
        Ok(())
    }

    /// The daemon that knew the waiter is gone, or there was none.
    #[cold]
    fn renew_waiter(&mut self, bed: Bed) {
        let waiter = Waiter::take();
        if waiter.is_none() && bed.waiter.is_some() {
            return;
        }
        if let Some(old) = bed.waiter {
            for interest in self.places.iter_mut().flatten() {
                interest.disarm(old.id);
            }
            old.close();
        }
        if let Some(waiter) = waiter {
            let mut event = epoll_event { events: libc::EPOLLIN.unsigned_abs(), u64: WAKE };
            // SAFETY: our own set, event and eventfd.
            unsafe { real::epoll_ctl(bed.inner, libc::EPOLL_CTL_ADD, waiter.fd, &raw mut event) };
        }
        self.bed = Some(Bed { waiter, ..bed });
    }

    /// Makes the inner set readable.
    pub fn kick(&self) {
        if let Some(waiter) = self.bed.and_then(|bed| bed.waiter) {
            waiter.ring();
        }
    }

    /// Takes the inner set's news. `false` if there were none: what was seen of it belongs to a process that has
    /// this set as well, by `fork`.
    pub fn hear(&mut self) -> bool {
        const MOST: usize = 32;
        let Some(bed) = self.bed else { return false };
        let mut heard = false;
        for _ in 0..=self.places.len() / MOST {
            let mut events = [epoll_event { events: 0, u64: 0 }; MOST];
            let room = c_int::try_from(MOST).unwrap_or(1);
            // SAFETY: our own set and array.
            let count = unsafe { real::epoll_wait(bed.inner, events.as_mut_ptr(), room, 0) };
            let count = usize::try_from(count).unwrap_or(0);
            heard |= count > 0;
            for event in &events[..count] {
                self.hear_one(event.u64, event.events, bed.waiter);
            }
            if count < MOST {
                break;
            }
        }
        heard
    }

    fn hear_one(&mut self, key: u64, bits: u32, waiter: Option<Waiter>) {
        if key == WAKE {
            if let Some(waiter) = waiter {
                waiter.clear();
            }
            self.rung = true;
            return;
        }
        let place = usize::try_from(key & 0xffff_ffff).unwrap_or(usize::MAX);
        if let Some(interest) =
            self.places.get_mut(place).and_then(Option::as_mut).filter(|it| it.has_key(key))
        {
            interest.news(bits);
        }
    }

    /// Looks at all interests and appends events for those that are ready, the oldest first, as far as there is room.
    #[inline]
    pub fn scan(&mut self, events: &mut Events, tid: u32) {
        let (room, several) = (events.room(), self.several());
        if room == 0 {
            return;
        }
        self.order.begin();
        for place in self.round() {
            let Some(interest) = &mut self.places[place] else { continue };
            let stamp = if several { order::stamp_of(interest) } else { 0 };
            if self.take(place, stamp, tid) && self.order.len() == room {
                self.next = place + 1;
                break;
            }
        }
        if self.order.len() > 0 {
            if several {
                self.look_back(room, tid);
            }
            self.order.tell(events);
        }
    }

    /// Takes what became ready before others that were found, but after it was looked at.
    fn look_back(&mut self, room: usize, tid: u32) {
        let Some(newest) = self.order.newest() else { return };
        let mut known = 0;
        for place in self.round() {
            if self.order.len() == room {
                return;
            }
            if self.order.is_at(known, place) {
                known += 1;
                continue;
            }
            if let Some(stamp) = self.places[place].as_ref().and_then(|interest| newest.is_after(interest)) {
                self.take(place, stamp, tid);
            }
        }
    }

    /// Takes what is to be told of the interest at this place. `stamp` is 0 if nothing was there a moment ago.
    #[inline]
    fn take(&mut self, place: usize, stamp: u32, tid: u32) -> bool {
        let (inner, waiter, several) = (self.inner(), self.waiter_id(), self.several());
        let Some(interest) = &mut self.places[place] else { return false };
        let bits = interest.take(inner, tid);
        if bits == 0 {
            return false;
        }
        let stamp = if stamp == 0 && several { order::stamp_of(interest) } else { stamp };
        if let Some(waiter) = waiter {
            interest.disarm(waiter);
        }
        self.last = place;
        self.order.add(place, stamp, interest.event(bits));
        true
    }

    /// All places, beginning where the last look ended.
    #[inline]
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let len = self.places.len();
        let start = if self.next < len { self.next } else { 0 };
        (start..len).chain(0..start)
    }

    /// Whether it holds more than one stream, so that their order counts.
    fn several(&self) -> bool {
        self.places.len() - self.idle.len() > 1
    }

    /// The stream that was last found ready.
    pub fn last(&self) -> Option<&Held> {
        self.places.get(self.last)?.as_ref().map(Interest::end)
    }

    /// How many interests there are, at most.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether any stream is ready; edges are kept.
    pub fn any_ready(&mut self) -> bool {
        let inner = self.inner();
        let tid = tid();
        self.places.iter_mut().flatten().any(|interest| interest.peek(inner, tid) != 0)
    }

    /// Asks for bells. `false` if not all will ring.
    pub fn arm(&mut self) -> bool {
        let Some(waiter) = self.waiter_id() else { return self.places.len() == self.idle.len() };
        let again = core::mem::take(&mut self.rung);
        self.places.iter_mut().flatten().fold(true, |armed, interest| interest.arm(waiter, again) & armed)
    }

    /// Makes the kernel see which of the sets inside are ready.
    pub fn prepare_nested(&mut self, depth: u32) -> Prepared {
        let mut all = Prepared::NOTHING;
        if self.nested.is_empty() || depth == 0 {
            return all;
        }
        self.nested.retain(|(_, set, generation)| set.generation.load(Ordering::Relaxed) == *generation);
        for (epfd, set, _) in self.nested.iter().filter(|(_, set, _)| set.is_shadowed()) {
            let prepared = set.prepare_at(*epfd, depth - 1);
            if prepared.ready {
                set.with(|state| state.kick());
            }
            all.ready |= prepared.ready;
            all.armed &= prepared.armed;
        }
        all
    }

    /// The sets inside, at the program's own look.
    pub fn look_inside(&mut self) -> Prepared {
        self.prepare_nested(MAX_DEPTH)
    }

    /// What the kernel is asked of a stream may have changed. Whether the stream is in this set.
    pub fn refresh(&mut self, stream: u32) -> bool {
        let inner = self.inner();
        let mut any = false;
        for interest in self.places.iter_mut().flatten().filter(|interest| interest.stream() == stream) {
            interest.refresh(inner);
            any = true;
        }
        any
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

    /// Another descriptor keeps the stream open: the interest stays, though it cannot be named any more.
    fn survive(&mut self, fd: c_int, stream: u32) {
        let Some(place) = self.by_fd.remove(&fd) else { return };
        let inner = self.inner();
        let is_other = |&(other, entry): &(c_int, table::Entry)| {
            other != fd && entry.kind == Kind::Stream && entry.index == stream
        };
        let other = table::entries().find(is_other);
        if let (Some(interest), Some((other, _))) = (self.places[place].as_mut(), other) {
            interest.rename(other, inner);
        }
    }

    fn waiter_id(&self) -> Option<WaiterId> {
        self.bed?.waiter.map(|waiter| waiter.id)
    }

    fn drop_place(&mut self, place: usize) {
        let (inner, waiter) = (self.inner(), self.waiter_id());
        if let Some(mut interest) = self.places[place].take() {
            interest.delist(inner, waiter);
            self.idle.push(place);
        }
        if self.idle.len() == self.places.len() {
            self.places.clear();
            self.idle.clear();
        }
    }

    /// The last descriptor of the set goes.
    fn end(&mut self) {
        for place in 0..self.places.len() {
            if !self.places.is_empty() {
                self.drop_place(place);
            }
        }
        if let Some(bed) = self.bed {
            own::close(bed.inner);
            if let Some(waiter) = bed.waiter {
                waiter.give();
            }
        }
        *self = Self::default();
    }

    fn leave_parent(&mut self) {
        if let Some(bed) = self.bed.take() {
            own::close(bed.inner);
            if let Some(waiter) = bed.waiter {
                waiter.close();
            }
        }
        self.places.iter_mut().flatten().for_each(Interest::forget_parent);
    }
}
