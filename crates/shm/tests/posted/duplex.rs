//! Two ends that both send and receive over lanes, whose records carry the credit of the other direction: the shipped ring.
//!
//! ```text
//!   asker      send, receive, .. (turns)   send, send, .. (burst)
//!   answerer   receive, send, .. (turns)   receive, send, .. (some answers)   receive, ..
//! ```
//! An end that sleeps for room reads no records, so that credit which rides on them does not reach it: the burst tries that. All
//! before the burst finds the ring full is done in one order only, and has landed.

use super::ends::{Common, Hashed, KEY, Mutation, PAYLOAD, Setup, Stage};
use super::explorer::{Chooser, Outcome, Run};
use super::{Shared, World};
use core::cell::Cell;
use core::fmt::Write;
use crosslane_shm::Store;
use crosslane_shm::ring::{Consumer, Credits, Duplex, Producer, Violation};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, WANT_DATA, WANT_ROOM};
use std::hash::{Hash, Hasher};

/// Questions that are answered one by one.
const TURNS: usize = 2;
/// Answers in the burst: all that can be asked before the first of them is read.
const ANSWERS: usize = 7;
/// The ring of the answers is so many times as long: nobody reads those of the burst.
const LONGER: u64 = 2;

/// One step of an end's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Send,
    Receive,
}

/// An end: its program, and how far that is.
struct Side {
    common: Common,
    producer: Producer,
    consumer: Consumer,
    acts: Vec<Act>,
    at: usize,
    sent: u8,
    received: u8,
    /// The highest credit that rode on a record of ours.
    rode: Cell<u64>,
}

/// Both at work.
pub(crate) struct Talk {
    setup: Setup,
    world: Shared,
    sides: [Side; 2],
}

impl Talk {
    /// [`TURNS`] questions that are answered one by one, then `setup.records`, of which `setup.first` have landed before anything
    /// else is tried; [`ANSWERS`] of them are answered.
    pub(crate) fn new(setup: Setup, chooser: Chooser) -> Self {
        let world = World::new(setup.order, &setup.delays, false, chooser);
        let burst = usize::from(setup.records);
        let asker = [[Act::Send, Act::Receive].repeat(TURNS), vec![Act::Send; burst]].concat();
        let answers = [Act::Receive, Act::Send].repeat(TURNS + ANSWERS);
        let answerer = [answers, vec![Act::Receive; burst - ANSWERS]].concat();
        let sides = [(0, asker), (1, answerer)].map(|(lane, acts)| Side::new(&world, &setup, lane, acts));
        let mut talk = Self { setup, world, sides };
        for _ in 0..TURNS {
            talk.act(0);
            talk.act(1);
            talk.act(1);
            talk.act(0);
        }
        for _ in 0..setup.first {
            talk.act(0);
        }
        talk
    }

    /// Does the next act of a side, which it can do at once, and lands all that it stored.
    fn act(&mut self, side: usize) {
        let before = self.sides[side].at;
        while self.sides[side].at == before {
            assert!(self.step_of(side).is_ok() && self.sides[side].common.stage != Stage::Arm);
            self.world.borrow_mut().land_all();
        }
    }

    fn able(&self) -> Vec<usize> {
        let [asker, answerer] = &self.sides;
        let has_time = self.world.borrow().is_busy() || asker.common.has_time() || answerer.common.has_time();
        let can = [asker.common.may_step(), answerer.common.may_step(), has_time];
        (0..can.len()).filter(|actor| can[*actor]).collect()
    }

    fn step_of(&mut self, side: usize) -> Result<(), String> {
        let believes = self.setup.mutation == Some(Mutation::RodeIsEnough);
        let rings = self.sides[side].step(believes)?;
        self.sides[1 - side].common.wake |= rings;
        Ok(())
    }
}

impl Side {
    fn new(world: &Shared, setup: &Setup, lane: usize, acts: Vec<Act>) -> Self {
        let (producer, consumer) = (Producer::default(), Consumer::default());
        let rings = [setup.ring.0, LONGER * setup.ring.0];
        producer.reset(rings[lane], rings[lane], KEY);
        consumer.reset(rings[1 - lane], rings[1 - lane], KEY);
        let setup = &Setup { ring: (rings[1], rings[1]), ..*setup };
        let common = Common::new(world, setup, lane, [0; 2]);
        Self { common, producer, consumer, acts, at: 0, sent: 0, received: 0, rode: Cell::new(0) }
    }

    /// One step; whether the other end is to be rung.
    fn step(&mut self, believes: bool) -> Result<bool, String> {
        let Some(act) = self.acts.get(self.at).copied() else {
            self.common.stage = Stage::Done;
            return Ok(false);
        };
        self.common.words = match act {
            Act::Send => [WANT_ROOM, WANT_DATA],
            Act::Receive => [WANT_DATA, WANT_ROOM],
        };
        match self.common.stage {
            Stage::Work => {
                let done = match act {
                    Act::Send => self.send().map_err(|violation| violation.to_string())?,
                    Act::Receive => self.receive(believes)?,
                };
                self.common.stage = if done { Stage::Answer } else { Stage::Arm };
            }
            Stage::Answer => {
                self.at += 1;
                self.common.stage = Stage::Work;
                return Ok(self.common.answer());
            }
            Stage::Arm => self.common.arm(),
            Stage::Ask => self.common.ask(),
            Stage::Look(next) => {
                let found = match act {
                    // As much as a sender of the client library sleeps for.
                    Act::Send => {
                        let wanted = self.producer.cap() / 4;
                        self.producer.glance(&self.credits(), wanted) >= wanted
                    }
                    Act::Receive => self.consumer.arrived(&self.common.inb),
                };
                self.common.looked(found, next);
            }
            Stage::Asleep(_) => self.common.wake(),
            Stage::Done => {}
        }
        Ok(false)
    }

    fn credits(&self) -> Noting<'_> {
        let duplex = Duplex { words: &self.common.inb, consumer: &self.consumer, rides: true };
        Noting { duplex, rode: &self.rode }
    }

    fn send(&mut self) -> Result<bool, Violation> {
        let bytes = [self.sent + 1; PAYLOAD];
        let done = self.producer.push(&self.common.out, &self.credits(), Kind::Data, &bytes, 0)?;
        self.sent += u8::from(done > 0);
        Ok(done > 0)
    }

    fn receive(&mut self, believes: bool) -> Result<bool, String> {
        let told = |violation: Violation| violation.to_string();
        let (ring, mut bytes) = (&self.common.inb, [0; PAYLOAD]);
        let count = self.consumer.take(ring, &mut bytes).map_err(told)?;
        if count == 0 {
            return Ok(false);
        }
        self.received += 1;
        if count != PAYLOAD || bytes != [self.received; PAYLOAD] {
            return Err(format!("a torn record: {bytes:?}"));
        }
        // As the shipped rule has it, but from what rode, and not from what the other end surely knows.
        let least = if believes { self.rode.get() + self.consumer.cursor().cap() / 4 } else { 0 };
        self.consumer.give_or_offer(&Sparing { out: &self.common.out, least }, ring);
        Ok(true)
    }
}

/// The shipped credits; notes what rides.
struct Noting<'a> {
    duplex: Duplex<'a, super::In>,
    rode: &'a Cell<u64>,
}

impl Credits for Noting<'_> {
    fn stored(&self) -> u64 {
        self.duplex.stored()
    }

    fn ridden(&self, generation: u32) -> u64 {
        self.duplex.ridden(generation)
    }

    fn gathers(&self) -> bool {
        self.duplex.gathers()
    }

    fn is_offered(&self) -> bool {
        self.duplex.is_offered()
    }

    fn ride(&self, generation: u32, end: u64) -> Option<u64> {
        self.duplex.ride(generation, end).inspect(|credit| self.rode.set(self.rode.get().max(*credit)))
    }
}

/// A lane to which credit below `least` is not stored.
struct Sparing<'a> {
    out: &'a super::Out,
    least: u64,
}

impl Store for Sparing<'_> {
    fn len(&self) -> usize {
        self.out.len()
    }

    fn store_u32(&self, offset: usize, value: u32) {
        self.out.store_u32(offset, value);
    }

    fn store_u64(&self, offset: usize, value: u64) {
        if offset != CREDIT || value >= self.least {
            self.out.store_u64(offset, value);
        }
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.out.write(offset, source);
    }

    fn store_fence(&self) {
        self.out.store_fence();
    }

    fn fence(&self) {
        self.out.fence();
    }
}

impl Hash for Talk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.borrow().hash(state);
        for side in &self.sides {
            side.common.hash(state);
            let _ = write!(Hashed(state), "{:?} {:?}", side.producer, side.consumer);
            (side.at, side.rode.get()).hash(state);
        }
    }
}

impl Run for Talk {
    fn has_choice(&self) -> bool {
        self.able().len() > 1
    }

    fn step(&mut self) -> Outcome {
        let able = self.able();
        if able.is_empty() {
            let stages = self.sides.each_ref().map(|side| side.common.stage);
            let done = stages == [Stage::Done; 2];
            let rode = self.sides.iter().map(|side| side.producer.rides()).sum::<u64>();
            return match done {
                true if rode == 0 => Outcome::Wrong("no credit rode".to_owned()),
                true => Outcome::Ended,
                false => Outcome::Wrong(format!("one sleeps for ever: {stages:?}")),
            };
        }
        let chosen = self.with_chooser(|chooser| chooser.choose(able.len()));
        let outcome = match able[chosen] {
            2 => {
                self.world.borrow_mut().tick();
                Ok(())
            }
            side => self.step_of(side),
        };
        outcome.map_or_else(Outcome::Wrong, |()| Outcome::Goes)
    }

    fn with_chooser<T>(&mut self, work: impl FnOnce(&mut Chooser) -> T) -> T {
        work(&mut self.world.borrow_mut().chooser)
    }
}
