//! A writer and a reader over lanes: the shipped ring, the shipped machine that says when one may sleep, and the steps by which
//! every sleeper of the project goes.
//!
//! ```text
//!   Work --nothing to do--> Arm --> Ask --> Look --nothing--> Asleep --wake--> Work
//!    |  ^                            ^        | something        |
//!    v  |                            |        v                  | the bound is over
//!   Answer: fence, look at WANT      |       Work                |
//!                                    +---------------------------+
//! ```
//! A step loads first and stores then, so nothing that the other end does could come in its middle and be told from the same before
//! or behind it. A wake takes no time: it may overtake what it was sent for.

use super::explorer::{Chooser, Outcome, Run};
use super::{In, Order, Out, Shared, World};
use core::fmt::Write;
use crosslane_shm::arm::{Armed, NextSleep};
use crosslane_shm::ring::{Consumer, Credits, Producer, Violation};
use crosslane_shm::{Load, Store};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, LINE, WANT_DATA, WANT_ROOM, segment_len};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Bytes of each record, in two stores.
pub(super) const PAYLOAD: usize = 16;
pub(super) const KEY: u64 = 9;

/// What is taken out of the protocol: then a run that goes wrong must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Nobody looks again when what was under way has landed.
    NoSecondLook,
    /// The flight ends when the sleeper's own store has landed.
    OnlyOut,
    /// It ends when a store of the far side's would have.
    OnlyIn,
    /// Who was rung, and finds nothing, sleeps on without arming anew.
    NotArmedAnew,
    /// No fence before a record's mark.
    NoStoreFence,
    /// The reader gives the credit of two records before it copies them out. One would not matter: a writer leaves a line free.
    EarlyCredit,
    /// The writer of a ring that has grown believes that all of it is free.
    GrowthIsRoom,
    /// Credit that rode on a record is not stored as a word, whether the other end has read that record or not.
    RodeIsEnough,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) order: Order,
    /// How many ticks a store may be under way: the writer's, the reader's.
    pub(crate) delays: [u64; 2],
    /// Bytes of the ring at first, and at most.
    pub(crate) ring: (u64, u64),
    pub(crate) records: u8,
    /// So many of them lie there, and have landed, before anything else happens; the reader gives credit by the quarter of the ring
    /// then.
    pub(crate) first: u8,
    pub(crate) mutation: Option<Mutation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Work,
    Answer,
    Arm,
    Ask,
    Look(NextSleep),
    Asleep(Option<u64>),
    Done,
}

/// What both ends have in common: a side of each lane, and how to sleep.
#[derive(Debug)]
pub(super) struct Common {
    world: Shared,
    pub(super) out: Out,
    pub(super) inb: In,
    pub(super) stage: Stage,
    /// The word by which this end asks for a wake, and the one by which it is asked.
    pub(super) words: [usize; 2],
    armed: Armed<Duration>,
    in_flight_ns: u32,
    anew: bool,
    sequence: u64,
    /// The last request that was answered, by the two words.
    answered: [u64; 2],
    pub(super) wake: bool,
}

impl Common {
    pub(super) fn new(world: &Shared, setup: &Setup, lane: usize, words: [usize; 2]) -> Self {
        let len = segment_len(setup.ring.1);
        let (out, back) = (setup.delays[lane], setup.delays[1 - lane]);
        let in_flight_ns = match setup.mutation {
            Some(Mutation::NoSecondLook) => 0,
            Some(Mutation::OnlyOut) => out,
            Some(Mutation::OnlyIn) => back,
            _ => out + back,
        };
        Self {
            world: world.clone(),
            out: Out(world.clone(), lane, len),
            inb: In(world.clone(), 1 - lane, len),
            stage: Stage::Work,
            words,
            armed: Armed::NOTHING,
            in_flight_ns: u32::try_from(in_flight_ns).expect("delay"),
            anew: setup.mutation != Some(Mutation::NotArmedAnew),
            sequence: 0,
            answered: [0; 2],
            wake: false,
        }
    }

    fn now(&self) -> u64 {
        self.world.borrow().now
    }

    /// Whether this end can do something now.
    pub(super) fn may_step(&self) -> bool {
        match self.stage {
            Stage::Done => false,
            Stage::Asleep(until) => self.wake || until.is_some_and(|until| until <= self.now()),
            _ => true,
        }
    }

    /// Whether it matters to this end that time passes.
    pub(super) fn has_time(&self) -> bool {
        match self.stage {
            Stage::Done | Stage::Asleep(None) => false,
            Stage::Asleep(Some(until)) => until > self.now(),
            _ => self.armed.is_under_way(),
        }
    }

    /// Publish is done: fence, and look whether the far side sleeps. Whether it is to be rung.
    pub(super) fn answer(&mut self) -> bool {
        self.out.fence();
        let want = self.inb.load_u64(self.words[1]);
        let answered = &mut self.answered[usize::from(self.words[1] == WANT_ROOM)];
        let is_news = want != 0 && want != *answered;
        if is_news {
            *answered = want;
        }
        is_news
    }

    pub(super) fn arm(&mut self) {
        self.wake = false;
        self.sequence += 1;
        self.out.store_u64(self.words[0], self.sequence);
        self.out.fence();
        let now = Duration::from_nanos(self.now());
        self.armed.arm(self.in_flight_ns, || now);
        self.stage = Stage::Ask;
    }

    pub(super) fn ask(&mut self) {
        let now = Duration::from_nanos(self.now());
        self.stage = Stage::Look(self.armed.next_sleep(|| now));
    }

    /// The look behind it has found something, or nothing.
    pub(super) fn looked(&mut self, found: bool, next: NextSleep) {
        if found {
            return self.awake();
        }
        let ticks = |time: Duration| u64::try_from(time.as_nanos()).expect("ticks");
        self.stage = Stage::Asleep(next.bound().map(|bound| self.now() + ticks(bound)));
    }

    pub(super) fn wake(&mut self) {
        if self.wake && self.anew {
            return self.awake();
        }
        self.wake = false;
        self.stage = Stage::Ask;
    }

    fn awake(&mut self) {
        self.out.store_u64(self.words[0], 0);
        self.armed = Armed::NOTHING;
        self.stage = Stage::Work;
    }

    /// Numbers of requests are told apart, and which is greater is not asked: they count from the last one.
    pub(super) fn hash(&self, state: &mut impl Hasher) {
        let now = self.now();
        let mut armed = self.armed;
        let left = armed.next_sleep(|| Duration::from_nanos(now));
        let stage = match self.stage {
            Stage::Asleep(until) => Stage::Asleep(until.map(|until| until.saturating_sub(now))),
            stage => stage,
        };
        let _ = write!(Hashed(state), "{stage:?} {left:?} {} {}", self.armed.is_under_way(), self.wake);
        (self.sequence, self.answered).hash(state);
    }
}

/// What is written here is hashed.
pub(super) struct Hashed<'a, H>(pub(super) &'a mut H);

impl<H: Hasher> Write for Hashed<'_, H> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Both ends at work.
pub(crate) struct Pair {
    setup: Setup,
    world: Shared,
    writer: Common,
    reader: Common,
    producer: Producer,
    consumer: Consumer,
    pushed: u8,
    taken: u8,
    /// With [`Mutation::EarlyCredit`]: where the bytes lie whose credit was given.
    uncopied: VecDeque<usize>,
}

impl Pair {
    pub(crate) fn new(setup: Setup, chooser: Chooser) -> Self {
        let unfenced = setup.mutation == Some(Mutation::NoStoreFence);
        let world = World::new(setup.order, &setup.delays, unfenced, chooser);
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(setup.ring.0, setup.ring.1, KEY);
        consumer.reset(setup.ring.0, setup.ring.1, KEY);
        let mut pair = Self {
            writer: Common::new(&world, &setup, 0, [WANT_ROOM, WANT_DATA]),
            reader: Common::new(&world, &setup, 1, [WANT_DATA, WANT_ROOM]),
            setup,
            world,
            producer,
            consumer,
            pushed: 0,
            taken: 0,
            uncopied: VecDeque::new(),
        };
        while pair.pushed < setup.first {
            assert_eq!(pair.push(), Ok(true), "room for what is there first");
        }
        pair.world.borrow_mut().land_all();
        pair
    }

    /// Pushes the next record, if there is room.
    fn push(&mut self) -> Result<bool, Violation> {
        let (ring, bytes) = (&self.writer.out, [self.pushed + 1; PAYLOAD]);
        let grown =
            self.setup.mutation == Some(Mutation::GrowthIsRoom) && self.producer.cap() > self.setup.ring.0;
        let credits =
            Believed { words: &self.writer.inb, least: if grown { self.producer.position() } else { 0 } };
        let done = self.producer.push(ring, &credits, Kind::Data, &bytes, 0)?;
        assert!(done == 0 || done == PAYLOAD, "half a record");
        self.pushed += u8::from(done > 0);
        Ok(done > 0)
    }

    fn step_writer(&mut self) -> Result<(), String> {
        let told = |violation: Violation| violation.to_string();
        match self.writer.stage {
            Stage::Work => {
                let pushed = self.push().map_err(told)?;
                self.writer.stage = if pushed { Stage::Answer } else { Stage::Arm };
            }
            Stage::Answer => {
                self.reader.wake |= self.writer.answer();
                self.writer.stage = self.after(self.pushed);
            }
            Stage::Arm => self.writer.arm(),
            Stage::Ask => self.writer.ask(),
            Stage::Look(next) => {
                let room = self.producer.glance(&self.writer.inb, 2 * LINE);
                self.writer.looked(room >= 2 * LINE, next);
            }
            Stage::Asleep(_) => self.writer.wake(),
            Stage::Done => {}
        }
        Ok(())
    }

    fn step_reader(&mut self) -> Result<(), String> {
        match self.reader.stage {
            Stage::Work => {
                let took = self.take().map_err(|violation| violation.to_string())??;
                self.reader.stage = if took { Stage::Answer } else { Stage::Arm };
            }
            Stage::Answer => {
                self.writer.wake |= self.reader.answer();
                self.reader.stage = self.after(self.taken);
            }
            Stage::Arm => self.reader.arm(),
            Stage::Ask => self.reader.ask(),
            Stage::Look(next) => {
                let found = self.consumer.arrived(&self.reader.inb);
                self.reader.looked(found, next);
            }
            Stage::Asleep(_) => self.reader.wake(),
            Stage::Done => {}
        }
        Ok(())
    }

    /// Who can go on: the writer, the reader, the time.
    fn able(&self) -> Vec<usize> {
        let has_time = self.world.borrow().is_busy() || self.writer.has_time() || self.reader.has_time();
        let can = [self.writer.may_step(), self.reader.may_step(), has_time];
        (0..can.len()).filter(|actor| can[*actor]).collect()
    }

    fn after(&self, records: u8) -> Stage {
        if records == self.setup.records { Stage::Done } else { Stage::Work }
    }

    /// Takes a record and gives its credit back. Whether there was one, or why it cannot be.
    fn take(&mut self) -> Result<Result<bool, String>, Violation> {
        let mut bytes = [0; PAYLOAD];
        let ring = &self.reader.inb;
        let waiting = self.uncopied.len();
        if waiting > 0
            && (waiting == 2 || usize::from(self.taken) + waiting == usize::from(self.setup.records))
        {
            let at = self.uncopied.pop_front().expect("one that waits");
            ring.read(at, &mut bytes);
            return Ok(self.check(PAYLOAD, bytes));
        }
        let Some(head) = self.consumer.head(ring)? else { return Ok(Ok(false)) };
        let mut taken = None;
        match head.kind {
            Kind::Filler => self.consumer.consume()?,
            _ if self.setup.mutation == Some(Mutation::EarlyCredit) => {
                self.uncopied.push_back(self.consumer.front(ring, head)?);
                self.consumer.consume()?;
            }
            _ => taken = Some(self.consumer.take(ring, &mut bytes)?),
        }
        self.consumer.give_credit(&self.reader.out, self.setup.first == 0);
        Ok(taken.map_or(Ok(true), |count| self.check(count, bytes)))
    }

    fn check(&mut self, count: usize, bytes: [u8; PAYLOAD]) -> Result<bool, String> {
        self.taken += 1;
        let is_whole = count == PAYLOAD && bytes == [self.taken; PAYLOAD];
        if is_whole { Ok(true) } else { Err(format!("a torn record: {bytes:?}")) }
    }
}

/// The far side's words, which are believed to give credit up to `least` at least.
struct Believed<'a> {
    words: &'a In,
    least: u64,
}

impl Credits for Believed<'_> {
    fn stored(&self) -> u64 {
        self.words.load_u64(CREDIT).max(self.least)
    }

    fn gathers(&self) -> bool {
        self.words.load_u64(WANT_DATA) == 0
    }
}

impl Hash for Pair {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.borrow().hash(state);
        self.writer.hash(state);
        self.reader.hash(state);
        let _ = write!(Hashed(state), "{:?} {:?}", self.producer, self.consumer);
        (self.pushed, self.taken, &self.uncopied).hash(state);
    }
}

impl Run for Pair {
    fn has_choice(&self) -> bool {
        self.able().len() > 1
    }

    fn step(&mut self) -> Outcome {
        let able = self.able();
        if able.is_empty() {
            let done = [self.writer.stage, self.reader.stage] == [Stage::Done; 2];
            let (writer, reader) = (self.writer.stage, self.reader.stage);
            let why = format!("one sleeps for ever: the writer is {writer:?}, the reader {reader:?}");
            return if done { Outcome::Ended } else { Outcome::Wrong(why) };
        }
        let chosen = self.with_chooser(|chooser| chooser.choose(able.len()));
        let outcome = match able[chosen] {
            0 => self.step_writer(),
            1 => self.step_reader(),
            _ => {
                self.world.borrow_mut().tick();
                Ok(())
            }
        };
        outcome.map_or_else(Outcome::Wrong, |()| Outcome::Goes)
    }

    fn with_chooser<T>(&mut self, work: impl FnOnce(&mut Chooser) -> T) -> T {
        work(&mut self.world.borrow_mut().chooser)
    }
}
