//! Memory whose stores land later, and an explorer of all orders in which they may.
//!
//! ```text
//!   writer --stores--> lane 0, each under way for at most delays[0] --> what the reader loads
//!   reader --stores--> lane 1, each under way for at most delays[1] --> what the writer loads
//!   and two more lanes for the circuit that a stream moves to
//! ```
//! Time is counted in ticks, which pass when the explorer says so; before one does, every store has landed that would be older than
//! its lane lets it be. Else a store lands no sooner than a load asks for its place: the explorer chooses which of those that are
//! under way there it sees. That is every order that can be told apart.

pub(crate) mod duplex;
pub(crate) mod ends;
pub(crate) mod explorer;
pub(crate) mod resume;
pub(crate) mod split;

use crosslane_shm::{Load, Store};
use explorer::Chooser;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// In what order the stores of one lane land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// As they were made: PCIe posted writes.
    AsMade,
    /// In any, but for those at one place, between two fences: a window that is mapped write-combined.
    Combined,
}

/// One store of eight bytes on its way.
#[derive(Clone, Debug)]
struct Flying {
    at: usize,
    value: u64,
    made: u64,
    /// Fences before it.
    group: u32,
}

/// One direction: what is under way, and the memory where it lands.
#[derive(Debug, Default)]
struct Lane {
    memory: BTreeMap<usize, u64>,
    flying: VecDeque<Flying>,
    group: u32,
    is_cut: bool,
}

/// What both ends share: two lanes, the time, and who decides.
#[derive(Debug)]
pub(crate) struct World {
    lanes: Vec<Lane>,
    order: Order,
    delays: Vec<u64>,
    /// A mutation: the fence before a record's mark orders nothing.
    no_store_fence: bool,
    pub(crate) now: u64,
    pub(crate) chooser: Chooser,
}

pub(crate) type Shared = Rc<RefCell<World>>;

impl World {
    /// With a lane for each delay.
    pub(crate) fn new(order: Order, delays: &[u64], no_store_fence: bool, chooser: Chooser) -> Shared {
        let (lanes, delays) = (delays.iter().map(|_| Lane::default()).collect(), delays.to_vec());
        Rc::new(RefCell::new(Self { lanes, order, delays, no_store_fence, now: 0, chooser }))
    }

    /// All that is under way has landed.
    pub(crate) fn land_all(&mut self) {
        for lane in &mut self.lanes {
            while !lane.flying.is_empty() {
                lane.land(0);
            }
        }
    }

    /// The cable of these lanes is cut: what is under way is lost, and so is what is stored from here on.
    pub(crate) fn cut(&mut self, lanes: [usize; 2]) {
        for lane in lanes {
            self.lanes[lane].flying.clear();
            self.lanes[lane].is_cut = true;
        }
    }

    /// Whether a store is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.flying.is_empty())
    }

    /// Time passes, and what is due has landed.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
        for (lane, delay) in self.lanes.iter_mut().zip(&self.delays) {
            while lane.flying.front().is_some_and(|store| self.now - store.made >= *delay) {
                lane.land(0);
            }
        }
    }

    fn store(&mut self, lane: usize, at: usize, value: u64) {
        let (made, delay, lane) = (self.now, self.delays[lane], &mut self.lanes[lane]);
        if lane.is_cut {
            return;
        }
        lane.flying.push_back(Flying { at, value, made, group: lane.group });
        if delay == 0 {
            lane.land(0);
        }
    }

    fn fence(&mut self, lane: usize) {
        self.lanes[lane].group += 1;
    }

    /// What a load sees: what lies there, or what one of the stores brings that are under way there.
    fn load(&mut self, lane: usize, at: usize) -> u64 {
        let (order, lane) = (self.order, &mut self.lanes[lane]);
        let there: Vec<usize> = (0..lane.flying.len()).filter(|index| lane.flying[*index].at == at).collect();
        if let Some(last) = self.chooser.choose(there.len() + 1).checked_sub(1) {
            lane.land_up_to(there[last], order);
        }
        lane.memory.get(&at).copied().unwrap_or(0)
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for lane in &self.lanes {
            lane.memory.hash(state);
            let first = lane.flying.front().map_or(0, |store| store.group);
            for store in &lane.flying {
                (store.at, store.value, self.now - store.made, store.group - first).hash(state);
            }
            (lane.flying.len(), lane.is_cut).hash(state);
            (lane.flying.back().is_some_and(|store| store.group == lane.group)).hash(state);
        }
    }
}

impl Lane {
    fn land(&mut self, index: usize) {
        if let Some(store) = self.flying.remove(index) {
            self.memory.insert(store.at, store.value);
        }
    }

    /// Lands this one, and what must before it.
    fn land_up_to(&mut self, index: usize, order: Order) {
        let Flying { at, group, .. } = self.flying[index];
        let mut rest = index + 1;
        let mut from = 0;
        while rest > 0 {
            let store = &self.flying[from];
            let lands = order == Order::AsMade || store.group < group || store.at == at;
            if lands {
                self.land(from)
            } else {
                from += 1
            }
            rest -= 1;
        }
    }
}

/// The store-only side of a lane.
#[derive(Clone, Debug)]
pub(crate) struct Out(pub(crate) Shared, pub(crate) usize, pub(crate) u64);

/// The load-only side.
#[derive(Clone, Debug)]
pub(crate) struct In(pub(crate) Shared, pub(crate) usize, pub(crate) u64);

impl Store for Out {
    fn len(&self) -> usize {
        usize::try_from(self.2).expect("length")
    }

    fn store_u32(&self, _: usize, _: u32) {
        unreachable!("the ring has no short words")
    }

    fn store_u64(&self, offset: usize, value: u64) {
        self.0.borrow_mut().store(self.1, offset, value);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (at, part) in (offset..).step_by(8).zip(source.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            self.store_u64(at, u64::from_le_bytes(bytes));
        }
    }

    fn store_fence(&self) {
        let mut world = self.0.borrow_mut();
        if !world.no_store_fence {
            world.fence(self.1);
        }
    }

    fn fence(&self) {
        self.0.borrow_mut().fence(self.1);
    }
}

impl Load for In {
    fn len(&self) -> usize {
        usize::try_from(self.2).expect("length")
    }

    fn load_u32(&self, _: usize) -> u32 {
        unreachable!("the ring has no short words")
    }

    fn load_u64(&self, offset: usize) -> u64 {
        self.0.borrow_mut().load(self.1, offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (at, part) in (offset..).step_by(8).zip(target.chunks_mut(8)) {
            part.copy_from_slice(&self.load_u64(at).to_le_bytes()[..part.len()]);
        }
    }
}
