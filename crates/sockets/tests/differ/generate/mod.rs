//! Draws a script from a seed. A rough model of the descriptors makes most calls sensible ones that return at once; some
//! are drawn without looking at it.

mod data;
mod model;
mod names;
mod values;
mod wait;

use crate::random::Random;
use crate::script::{Op, Script};
use model::{Kind, Model, SLOTS};

/// Draws one script.
struct Generator {
    random: Random,
    script: Script,
    model: Model,
    /// The process whose calls are drawn.
    process: usize,
}

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut random = Random::new(seed);
    let most = if random.chance(20) { 50 } else { 18 };
    let steps = 3 + random.below(most);
    let mut generator = Generator { random, script: Script::default(), model: Model::new(), process: 0 };
    generator.beginning();
    for _ in 0..steps {
        generator.step();
    }
    if generator.random.chance(30) {
        generator.push("probe", &[]);
    }
    generator.script
}

impl Generator {
    fn push(&mut self, call: &str, args: &[i64]) {
        self.script.ops.push(Op { process: self.process, call: call.to_owned(), args: args.to_vec() });
    }

    /// Most scripts have a connection to begin with.
    fn beginning(&mut self) {
        if self.random.chance(96) {
            self.connection();
        }
        if self.random.chance(15) {
            self.connection();
        }
        if self.random.chance(25) {
            self.epoll_create();
            for _ in 0..1 + self.random.below(3) {
                self.epoll_add();
            }
        }
        if self.random.chance(12) {
            self.fork();
        }
    }

    fn step(&mut self) {
        let alive: Vec<usize> = (0..model::PROCESSES).filter(|at| self.model.alive[*at]).collect();
        if self.random.chance(25) {
            self.process = self.random.pick(&alive);
        }
        match self.random.weighted(&[26, 26, 12, 12, 10, 6, 5, 6, 5, 6, 5, 4, 2, 3, 6, 4]) {
            0 => self.sends(),
            1 => self.receives(),
            2 => self.polls(),
            3 => self.epolls(),
            4 => self.options(),
            5 => self.naming(),
            6 => self.shutdown(),
            7 => self.close(),
            8 => self.copies(),
            9 => self.controls(),
            10 => self.connections(),
            11 => self.moves(),
            12 => self.processes(),
            13 => self.refused(),
            14 => self.bad_pointers(),
            _ => self.push("probe", &[]),
        }
    }

    /// A slot for a new descriptor: mostly one that holds none.
    fn free_slot(&mut self) -> usize {
        let free: Vec<usize> =
            (0..SLOTS).filter(|at| matches!(self.slot(*at), Kind::Empty | Kind::Closed)).collect();
        if free.is_empty() || self.random.chance(2) { self.random.below(SLOTS) } else { free[0] }
    }

    fn slot(&self, at: usize) -> Kind {
        self.model.slots[self.process][at]
    }

    fn set_slot(&mut self, at: usize, kind: Kind) {
        self.model.slots[self.process][at] = kind;
    }

    /// A slot of which the kind fits.
    fn slot_of(&mut self, fits: impl Fn(Kind) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..SLOTS).filter(|at| fits(self.slot(*at))).collect();
        (!fitting.is_empty()).then(|| self.random.pick(&fitting))
    }

    /// A connected socket in most cases; else any slot, or a number that is no descriptor.
    fn target(&mut self) -> i64 {
        let roll = self.random.below(100);
        let slot = match roll {
            0..88 => self.slot_of(|kind| matches!(kind, Kind::End { .. })),
            88..97 => self.slot_of(|kind| !matches!(kind, Kind::Empty)),
            _ => None,
        };
        match slot {
            Some(slot) => model::number(slot),
            None if roll < 97 => model::number(self.random.below(SLOTS)),
            None => self.random.pick(&[100, 101]),
        }
    }

    fn fork(&mut self) {
        let Some(child) = (1..model::PROCESSES).find(|at| !self.model.alive[*at]) else { return };
        self.push("fork", &[model::number(child)]);
        self.model.alive[child] = true;
        self.model.slots[child] = self.model.slots[self.process];
    }

    fn processes(&mut self) {
        if self.process == 0 || self.random.chance(60) {
            self.fork();
        } else {
            self.push("exit", &[]);
            self.model.alive[self.process] = false;
            self.process = 0;
        }
    }
}
