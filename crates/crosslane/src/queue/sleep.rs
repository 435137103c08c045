//! The sleep of a queue: one epoll descriptor for the far sides' wakes, the engine, the session and the kernel's connections.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::stream::Stream;
use crate::wait::{Waiter, time_left};
use crosslane_client::link::{Requests, WaitFor};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Time between two checks of a stream that makes no progress.
const LOOK: Duration = Duration::from_millis(20);
/// Most events that are read at a time.
const BATCH: usize = 64;
const WAITER: u64 = 0;
const ENGINE: u64 = 1;
const DAEMON: u64 = 2;
const TIMER: u64 = 3;
/// The first stream.
const FIRST: u64 = 4;

#[derive(Debug)]
pub(super) struct Sleep {
    epoll: OwnedFd,
    /// Woken by the far sides; `None` only once the queue has ended.
    waiter: Option<Waiter>,
    timer: OwnedFd,
    /// Time for which the timer is set.
    due: Option<Instant>,
    /// Per stream: what its far side was asked to wake for.
    armed: Vec<Option<WaitFor>>,
    /// The last requests of all streams.
    requests: Requests,
    /// The requests are still valid: since they were stored only the timer has expired, because they have landed.
    stands: bool,
    hears_engine: bool,
}

/// Events that ended a sleep.
#[derive(Debug, Default)]
pub(super) struct Heard {
    streams: Vec<u64>,
    all: bool,
    any: bool,
    /// Only the timer expired: requests and stores that were under way have landed.
    landed: bool,
}

impl Heard {
    /// Whether the kernel or the session reports an event of that stream.
    pub(super) fn is_news_of(&self, member: usize) -> bool {
        self.all || self.streams.contains(&(member as u64 + FIRST))
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Whether the requests for wakes are still valid, so that only another look is needed.
    pub(super) fn is_landed(&self) -> bool {
        self.landed
    }
}

impl Sleep {
    pub(super) fn new(attachment: &'static Attachment) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let waiter = attachment.waiter()?;
        let add = |fd: BorrowedFd<'_>, number, flags| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(number), flags)
        };
        add(waiter.as_fd(), WAITER, epoll::EventFlags::IN)?;
        add(timer.as_fd(), TIMER, epoll::EventFlags::IN)?;
        add(attachment.socket(), DAEMON, epoll::EventFlags::ET)?;
        Ok(Self {
            epoll,
            waiter: Some(waiter),
            timer,
            due: None,
            armed: Vec::new(),
            requests: Requests::default(),
            stands: false,
            hears_engine: false,
        })
    }

    /// Watches the kernel's connection of a stream, which shows that the far program has ended.
    pub(super) fn watch(&mut self, carrier: &OwnedFd, member: usize) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, carrier, epoll::EventData::new_u64(member as u64 + FIRST), flags)?;
        self.armed.resize(self.armed.len().max(member + 1), None);
        Ok(())
    }

    pub(super) fn forget(&self, carrier: &OwnedFd) {
        // Fails if the connection is not in the set, which is fine.
        let _ = epoll::delete(&self.epoll, carrier);
    }

    /// Watches the engine's completions from now on.
    pub(super) fn hear_engine(&mut self, stream: &Stream) {
        if self.hears_engine {
            return;
        }
        if let Some(completions) = stream.attachment().engine_completions() {
            let data = epoll::EventData::new_u64(ENGINE);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            // If this fails, only the timer is left.
            self.hears_engine = epoll::add(&self.epoll, completions, data, flags).is_ok();
        }
    }

    /// Asks the far side of a stream to wake the queue for data, room or both.
    pub(super) fn arm(&mut self, member: usize, stream: &Stream, data: bool, room: bool) {
        let Some(what) = WaitFor::of(data, room) else { return };
        let Some(id) = self.waiter.as_ref().map(Waiter::id) else { return };
        if self.stands && self.armed[member] == Some(what) {
            return;
        }
        self.armed[member] = Some(what);
        if !self.requests.ask(stream.end(), what, id) {
            self.tick();
        }
    }

    /// All streams are armed: sets the timer to the time at which the requests have landed. The caller must look after this.
    pub(super) fn is_armed(&mut self) {
        if let Some(bound) = self.requests.next_sleep().bound() {
            self.wake_in(bound);
        }
    }

    pub(super) fn disarm(&mut self, member: usize, stream: &Stream) {
        if let (Some(what), Some(waiter)) = (self.armed[member].take(), &self.waiter) {
            stream.end().unwant(what, waiter.id());
        }
    }

    /// Sets the timer for another look after a while.
    pub(super) fn tick(&mut self) {
        self.wake_in(LOOK);
    }

    /// Sets the timer to `time` from now, unless it is set to an earlier time.
    fn wake_in(&mut self, time: Duration) {
        let now = Instant::now();
        if self.due.is_some_and(|due| now < due && due <= now + time) {
            return;
        }
        let Ok(value) = Timespec::try_from(time.max(Duration::from_nanos(1))) else { return };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        self.due = Some(now + time);
    }

    /// Sleeps until there is an event, or until `deadline`.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> Result<Heard, Error> {
        self.hear(time_left(deadline).as_ref())
    }

    /// Reads the events that there are.
    pub(super) fn drain(&mut self) -> Result<Heard, Error> {
        self.hear(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn hear(&mut self, timeout: Option<&Timespec>) -> Result<Heard, Error> {
        let mut space = [MaybeUninit::uninit(); BATCH];
        let events = match epoll::wait(&self.epoll, &mut space, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(Heard { any: true, ..Heard::default() }),
            Err(errno) => return Err(errno.into()),
        };
        let mut heard = Heard { any: !events.is_empty(), ..Heard::default() };
        let only_timer = heard.any && events.iter().all(|event| { event.data }.u64() == TIMER);
        heard.landed = only_timer && self.requests.are_under_way();
        self.stands = heard.landed;
        for event in events {
            match { event.data }.u64() {
                WAITER => self.waiter.iter().for_each(Waiter::clear),
                TIMER => {
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    self.due = None;
                }
                DAEMON => heard.all = true,
                ENGINE => {}
                number => heard.streams.push(number),
            }
        }
        Ok(heard)
    }

    /// Ends the sleep of this queue and returns its waiter.
    pub(super) fn end(&mut self, attachment: &'static Attachment) {
        if let Some(waiter) = self.waiter.take() {
            // The descriptor stays open, but does not belong to this queue any more.
            let _ = epoll::delete(&self.epoll, &waiter);
            attachment.give(waiter);
        }
    }
}

impl AsFd for Sleep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
