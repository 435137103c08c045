//! A stream that moves to another circuit while stores are under way: the shipped ring, and the shipped count of what has arrived
//! ([`crosslane_shm::ring::Cursor::arrived`]).
//!
//! ```text
//!   writer   old ring, keeps what it sent  -->  told of `arrived`: sends again what comes behind that, by the new ring
//!   reader   old ring  -->  stops while the stream moves  -->  old ring up to `arrived`, then the new one
//!   daemon   stops both  -->  counts what has arrived  -->  tells both
//! ```
//! The old cable is cut, and what is under way is lost, or it lives (a stream that outgrew its segment), and that lands later.

use super::ends::{Hashed, KEY, PAYLOAD};
use super::explorer::{Chooser, Outcome, Run};
use super::{In, Order, Out, Shared, World};
use core::fmt::Write;
use crosslane_shm::Load;
use crosslane_shm::ring::{Consumer, Producer, Violation};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, LINE, segment_len};
use std::hash::{Hash, Hasher};

/// Bytes of the rings.
const RING: u64 = 4 * LINE;

/// What is taken out of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The writer keeps nothing: what it stored has arrived, to its mind.
    KeepsNothing,
    /// It keeps nothing for which it has credit or that lies in its ring: the last record only.
    KeepsTheLast,
    /// The reader takes all that it finds in the old ring.
    NoLimit,
    /// It goes on taking while the stream moves.
    TakesMeanwhile,
    /// It goes to the new ring at once, whatever lies in the old one.
    LeavesAtOnce,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) order: Order,
    /// Ticks that a store may be under way: there, back.
    pub(crate) delays: [u64; 2],
    pub(crate) records: u8,
    /// Whether the old cable is cut.
    pub(crate) cut: bool,
    pub(crate) mutation: Option<Mutation>,
}

/// What the daemons say of the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Old,
    Moving,
    /// So many units have arrived, which nobody was told yet.
    Counted(u64),
    /// So many had arrived.
    New(u64),
}

/// All of it.
pub(crate) struct Move {
    setup: Setup,
    world: Shared,
    life: Life,
    /// What is stored and loaded by the writer and by the reader, of the old ring and of the new one.
    out: [Out; 2],
    inb: [In; 2],
    back: [Out; 2],
    words: [In; 2],
    producer: Producer,
    consumer: Consumer,
    sent: u8,
    taken: u8,
    /// The first record that the writer still has.
    kept_from: u8,
    /// The writer, the reader: the last look found nothing to do, and nothing has happened since.
    idle: [bool; 2],
}

impl Move {
    pub(crate) fn new(setup: Setup, chooser: Chooser) -> Self {
        let [there, back] = setup.delays;
        let world = World::new(setup.order, &[there, back, there, back], false, chooser);
        let len = segment_len(RING);
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(RING, RING, KEY);
        consumer.reset(RING, RING, KEY);
        Self {
            out: [0, 2].map(|lane| Out(world.clone(), lane, len)),
            inb: [0, 2].map(|lane| In(world.clone(), lane, len)),
            back: [1, 3].map(|lane| Out(world.clone(), lane, len)),
            words: [1, 3].map(|lane| In(world.clone(), lane, len)),
            setup,
            world,
            life: Life::Old,
            producer,
            consumer,
            sent: 0,
            taken: 0,
            kept_from: 0,
            idle: [false; 2],
        }
    }

    fn able(&self) -> Vec<usize> {
        let is_busy = self.world.borrow().is_busy();
        let can = [!self.idle[0], !self.idle[1], !matches!(self.life, Life::New(_)), is_busy];
        (0..can.len()).filter(|actor| can[*actor]).collect()
    }

    /// Stops both ends, then counts and tells them.
    fn step_daemon(&mut self) {
        match self.life {
            Life::Old => {
                self.life = Life::Moving;
                if self.setup.cut {
                    self.world.borrow_mut().cut([0, 1]);
                }
            }
            Life::Moving => {
                let from = self.consumer.glance().and_then(|cursor| cursor.checked(RING, KEY));
                self.life = Life::Counted(from.expect("a place in the ring").arrived(&self.inb[0]));
            }
            Life::Counted(arrived) => self.life = Life::New(arrived),
            Life::New(_) => {}
        }
    }

    /// Sends a record, or moves on. Whether it did.
    fn step_writer(&mut self) -> Result<bool, String> {
        let told = |violation: Violation| violation.to_string();
        let ring = self.producer.generation() as usize;
        match self.life {
            Life::Moving | Life::Counted(_) => return Ok(false),
            Life::New(arrived) if ring == 0 => {
                let known = records_of(arrived);
                if known < self.kept_from || known > self.sent {
                    return Err(format!(
                        "{known} records have arrived, {} to {} are at hand",
                        self.kept_from, self.sent
                    ));
                }
                self.producer.resume(1, RING, RING, KEY, arrived);
                self.sent = known;
                return Ok(true);
            }
            _ => {}
        }
        if self.sent == self.setup.records {
            return Ok(false);
        }
        let bytes = [self.sent + 1; PAYLOAD];
        let done =
            self.producer.push(&self.out[ring], &self.words[ring], Kind::Data, &bytes, 0).map_err(told)?;
        self.sent += u8::from(done > 0);
        self.let_go(ring);
        Ok(done > 0)
    }

    /// What the far side has taken by the credit that it gave is kept no longer.
    fn let_go(&mut self, ring: usize) {
        self.kept_from = match self.setup.mutation {
            Some(Mutation::KeepsNothing) => self.sent,
            Some(Mutation::KeepsTheLast) => self.sent.saturating_sub(1),
            // A record is a line here.
            _ if ring == 0 => u8::try_from(self.words[0].load_u64(CREDIT) / LINE).expect("a record"),
            _ => self.kept_from,
        };
    }

    /// Takes a record that counts, or moves on. Whether it did.
    fn step_reader(&mut self) -> Result<bool, String> {
        let mutation = self.setup.mutation;
        let ring = self.consumer.generation() as usize;
        match self.life {
            Life::Moving | Life::Counted(_) if mutation != Some(Mutation::TakesMeanwhile) => {
                return Ok(false);
            }
            Life::New(limit) if ring == 0 => {
                let (known, lies) = (self.consumer.units(), self.consumer.arrived(&self.inb[0]));
                let stays = match mutation {
                    Some(Mutation::NoLimit) => lies,
                    Some(Mutation::LeavesAtOnce) => false,
                    _ => known < limit,
                };
                if known > limit && mutation != Some(Mutation::NoLimit) {
                    return Err(format!("{known} units were taken, {limit} are said to have arrived"));
                }
                if !stays {
                    self.consumer.resume(1, RING, RING, KEY, limit);
                    return Ok(true);
                }
            }
            _ => {}
        }
        self.take(ring)
    }

    fn take(&mut self, ring: usize) -> Result<bool, String> {
        let mut bytes = [0; PAYLOAD];
        let taken = self.consumer.take(&self.inb[ring], &mut bytes);
        if taken.map_err(|violation| violation.to_string())? == 0 {
            return Ok(false);
        }
        self.taken += 1;
        if bytes != [self.taken; PAYLOAD] {
            return Err(format!("record {} is {bytes:?}", self.taken));
        }
        self.consumer.give_credit(&self.back[ring], true);
        Ok(true)
    }
}

/// Records in so many units.
fn records_of(units: u64) -> u8 {
    u8::try_from(units / PAYLOAD as u64).expect("records")
}

impl Hash for Move {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.borrow().hash(state);
        let _ = write!(Hashed(state), "{:?} {:?}", self.producer, self.consumer);
        (self.life, self.sent, self.taken, self.kept_from, self.idle).hash(state);
    }
}

impl Run for Move {
    fn has_choice(&self) -> bool {
        self.able().len() > 1
    }

    fn step(&mut self) -> Outcome {
        let able = self.able();
        if able.is_empty() {
            let (taken, all) = (self.taken, self.setup.records);
            return match taken == all {
                true => Outcome::Ended,
                false => Outcome::Wrong(format!("{taken} of {all} records have come")),
            };
        }
        let chosen = self.with_chooser(|chooser| chooser.choose(able.len()));
        let actor = able[chosen];
        let outcome = match actor {
            0 => self.step_writer(),
            1 => self.step_reader(),
            2 => {
                self.step_daemon();
                Ok(true)
            }
            _ => {
                self.world.borrow_mut().tick();
                Ok(true)
            }
        };
        match outcome {
            Err(why) => return Outcome::Wrong(why),
            Ok(true) => self.idle = [false; 2],
            Ok(false) => self.idle[actor] = true,
        }
        Outcome::Goes
    }

    fn with_chooser<T>(&mut self, work: impl FnOnce(&mut Chooser) -> T) -> T {
        work(&mut self.world.borrow_mut().chooser)
    }
}
