//! What a queue sleeps on: one descriptor for the far sides, the engine, the daemon's end and the kernel's connections.

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

/// A look at what does not move is due so often.
const LOOK: Duration = Duration::from_millis(20);
/// Events that are heard at a time, at most.
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
    /// Rung by the far sides; `None` only once all is over.
    waiter: Option<Waiter>,
    timer: OwnedFd,
    /// When the timer rings.
    due: Option<Instant>,
    /// Streams whose far sides were asked to ring, and for what.
    armed: Vec<Option<WaitFor>>,
    /// What was asked for last, of all streams.
    requests: Requests,
    /// The requests stand: only the timer was heard since they were made, because they are not under way any more.
    stands: bool,
    hears_engine: bool,
}

/// What woke us.
#[derive(Debug, Default)]
pub(super) struct Heard {
    streams: Vec<u64>,
    all: bool,
    any: bool,
    /// What was asked for, and not answered, has landed; nothing else was heard.
    landed: bool,
}

impl Heard {
    /// Whether the kernel or the daemon's end has to say something of that stream.
    pub(super) fn is_news_of(&self, member: usize) -> bool {
        self.all || self.streams.contains(&(member as u64 + FIRST))
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Whether the requests for wakes stand, and all that is to be done is to look again.
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

    /// The kernel's connection of a stream: that the far program is gone.
    pub(super) fn watch(&mut self, carrier: &OwnedFd, member: usize) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, carrier, epoll::EventData::new_u64(member as u64 + FIRST), flags)?;
        self.armed.resize(self.armed.len().max(member + 1), None);
        Ok(())
    }

    pub(super) fn forget(&self, carrier: &OwnedFd) {
        // One that is not there is forgotten already.
        let _ = epoll::delete(&self.epoll, carrier);
    }

    /// The engine's completions are listened to from now on.
    pub(super) fn hear_engine(&mut self, stream: &Stream) {
        if self.hears_engine {
            return;
        }
        if let Some(completions) = stream.attachment().engine_completions() {
            let data = epoll::EventData::new_u64(ENGINE);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            // Without it the timer is all there is.
            self.hears_engine = epoll::add(&self.epoll, completions, data, flags).is_ok();
        }
    }

    /// Asks the far side of a stream to ring for what is waited for.
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

    /// All that wants to be is armed. Wakes us for another look when that is not under way any more; to be followed by a look.
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

    /// Wakes us for a look after a while.
    pub(super) fn tick(&mut self) {
        self.wake_in(LOOK);
    }

    /// The same, after `time` at most: the timer rings already, or from now on.
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

    /// Sleeps until something is heard, or until `deadline`.
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> Result<Heard, Error> {
        self.hear(time_left(deadline).as_ref())
    }

    /// Hears what there is.
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

    /// Nobody sleeps here any more.
    pub(super) fn end(&mut self, attachment: &'static Attachment) {
        if let Some(waiter) = self.waiter.take() {
            // The descriptor lives on: it is not this queue's any more.
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
