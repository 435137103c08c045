//! The program's array of events, which may be shorter than the program says.

use crate::kernel::clock::timespec_of;
use crate::kernel::{real, user};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::{epoll_event, sigset_t};
use std::time::Duration;

static TAG: AtomicU64 = AtomicU64::new(0);

/// Places of the program's array that are restored where the kernel stored an event of ours.
const REST: usize = 4;

/// The program's call.
#[derive(Clone, Copy)]
pub struct Call {
    /// The set.
    pub epfd: c_int,
    /// Signals that are held back while it waits; may be null.
    pub mask: *const sigset_t,
    /// Whether its timeout has nanoseconds.
    pub fine: bool,
}

/// The program's array of events.
pub struct Events {
    base: *mut epoll_event,
    /// How many there are.
    pub len: usize,
    /// How many there is room for in all.
    pub max: usize,
    /// Where our own one stood among the kernel's when it was last asked.
    tagged_at: Option<usize>,
}

impl Events {
    /// The program's array; `None` if the kernel is to say what is wrong with it.
    ///
    /// # Safety
    /// `base` must be valid for `max` events, or null.
    #[inline]
    pub unsafe fn new(base: *mut epoll_event, max: c_int) -> Option<Self> {
        let max = usize::try_from(max).ok().filter(|&max| max > 0)?;
        (!base.is_null()).then_some(Self { base, len: 0, max, tagged_at: None })
    }

    /// Room for one event, in the place of an array.
    pub fn one(event: &mut epoll_event) -> Self {
        Self { base: event, len: 0, max: 1, tagged_at: None }
    }

    /// Whether the first event cannot be stored.
    pub fn is_nowhere(&self) -> bool {
        // SAFETY: any bytes are an event; the place is this call's.
        unsafe { user::load(self.base).and_then(|event| user::store(self.base, &event)) }.is_err()
    }

    /// Appends an event; there is room. An array that ends earlier than the program says is full there.
    #[inline]
    pub fn push(&mut self, event: epoll_event) {
        debug_assert!(self.len < self.max);
        // SAFETY: below `max`, see `new`.
        match unsafe { user::store(self.base.wrapping_add(self.len), &event) } {
            Ok(()) => self.len += 1,
            Err(_) => self.max = self.len,
        }
    }

    /// How many more there is room for.
    #[inline]
    pub fn room(&self) -> usize {
        self.max - self.len
    }

    /// Whether there is no more room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.max
    }

    pub fn count(&self) -> c_int {
        c_int::try_from(self.len).unwrap_or(c_int::MAX)
    }

    /// What the kernel has ready now.
    pub fn ask(&mut self, call: Call) -> Result<bool, c_int> {
        self.ask_for(call, Some(Duration::ZERO))
    }

    /// Waits for the kernel's events for at most `timeout`. Whether our own one was among them.
    pub fn ask_for(&mut self, call: Call, timeout: Option<Duration>) -> Result<bool, c_int> {
        let Call { epfd, mask, fine } = call;
        let before = self.rest();
        let room = c_int::try_from(self.max - self.len).unwrap_or(c_int::MAX);
        // SAFETY: the rest of the program's array.
        let base = unsafe { self.base.add(self.len) };
        let count = if fine && timeout.is_none_or(|time| !time.is_zero()) {
            let time = timeout.map(timespec_of);
            let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: as above; the mask is the program's.
            unsafe { real::epoll_pwait2(epfd, base, room, time, mask) }
        } else {
            // SAFETY: as above.
            unsafe { real::epoll_pwait(epfd, base, room, timeout.map_or(-1, milliseconds), mask) }
        };
        let count = usize::try_from(count).map_err(|_| real::errno())?;
        let begin = self.len;
        let tagged = self.accept(count);
        if tagged && let Some(Some(was)) = before.get(self.len - begin) {
            // SAFETY: our event took a place more than the events that are left; there is room for it.
            unsafe { self.base.add(self.len).write_unaligned(*was) };
        }
        Ok(tagged)
    }

    /// The contents of the first free places: our own event is removed as if it had never been stored.
    fn rest(&self) -> [Option<epoll_event>; REST] {
        core::array::from_fn(|at| {
            let place = self.base.wrapping_add(self.len + at);
            // SAFETY: any bytes are an event.
            (at < self.room()).then(|| unsafe { user::load(place) }.ok()).flatten()
        })
    }

    /// The kernel has appended `count` events. Removes our own one, and says whether it was there.
    pub fn accept(&mut self, count: usize) -> bool {
        let mark = tag();
        self.tagged_at = None;
        for at in self.len..(self.len + count).min(self.max) {
            // SAFETY: filled by the kernel.
            let event = unsafe { self.base.add(at).read_unaligned() };
            if event.u64 == mark {
                self.tagged_at = Some(self.len);
            } else {
                self.push(event);
            }
        }
        self.tagged_at.is_some()
    }

    /// Streams were stored at `first..end`, before or behind the kernel's events. The kernel reports descriptors in the
    /// order in which they became ready, and our own event among them marks the wake that a stream rang: the streams
    /// are moved there. Without one their order is unknown.
    pub fn put_in_order(&mut self, first: usize, end: usize) {
        let Some(at) = self.tagged_at.filter(|_| self.base.is_aligned()) else { return };
        // SAFETY: as many were filled.
        let events = unsafe { core::slice::from_raw_parts_mut(self.base, self.len) };
        if at <= first {
            events[at..end].rotate_left(first - at);
        } else if at >= end {
            events[first..at].rotate_left(end - first);
        }
    }
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

/// Rounded up, so that no wait is too short.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_never_reports_our_own_event() {
        let mut array = [1, tag(), 2].map(|u64| epoll_event { events: 1, u64 });
        // SAFETY: three events.
        let mut events = unsafe { Events::new(array.as_mut_ptr(), 3) }.unwrap();
        assert!(events.accept(3));
        assert_eq!(events.count(), 2);
        assert_eq!([array[0].u64, array[1].u64], [1, 2]);
    }

    #[test]
    fn epoll_reports_streams_where_their_bell_was() {
        let mut array = [1, tag(), 2, 3, 0, 0].map(|u64| epoll_event { events: 1, u64 });
        // SAFETY: six events.
        let mut events = unsafe { Events::new(array.as_mut_ptr(), 6) }.unwrap();
        assert!(events.accept(4));
        for u64 in [7, 8] {
            events.push(epoll_event { events: 1, u64 });
        }
        events.put_in_order(3, 5);
        assert_eq!(array.map(|event| event.u64)[..5], [1, 7, 8, 2, 3]);
        // Streams first: 7 and 8.
        let mut array = [7, 8, 1, tag(), 2, 0].map(|u64| epoll_event { events: 1, u64 });
        // SAFETY: six events.
        let mut events = unsafe { Events::new(array.as_mut_ptr(), 6) }.unwrap();
        events.len = 2;
        assert!(events.accept(3));
        events.put_in_order(0, 2);
        assert_eq!(array.map(|event| event.u64)[..4], [1, 7, 8, 2]);
    }

    #[test]
    fn epoll_wait_is_never_shorter_than_asked() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(3)), 3);
        assert_eq!(milliseconds(Duration::MAX), c_int::MAX);
    }
}
