//! The state of a simulated cable: both ends, both lanes, and the time.

use super::memory::Memory;
use super::posted::{Lane, Pace, Write, apply};
use super::{Side, SimConfig};
use crate::port::SCRATCHPADS;
use crate::translation::Translation;
use crate::{DownReason, Event};
use fastrand::Rng;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One end.
#[derive(Debug)]
pub(super) struct End {
    /// Number of the port that is plugged in, unique; 0 = none.
    pub(super) plugged: u64,
    pub(super) windows: Vec<Translation<Arc<Memory>>>,
    pub(super) scratchpads: [u32; SCRATCHPADS],
    pub(super) pending: u32,
    pub(super) mask: u32,
    pub(super) events: VecDeque<Event>,
    pub(super) reported_up: bool,
    off: bool,
    pub(super) reason: Option<DownReason>,
    notify: Option<Arc<OwnedFd>>,
}

/// The whole state.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: SimConfig,
    pub(super) now: u64,
    pub(super) ends: [End; 2],
    pub(super) up: bool,
    lanes: [Lane; 2],
    dice: Rng,
    whole: bool,
    trained_at: Option<u64>,
    mended_at: Option<u64>,
    ports: u64,
}

impl World {
    pub(super) fn new(seed: u64, config: SimConfig) -> Self {
        let end = || End {
            plugged: 0,
            windows: (0..config.windows).map(|_| Translation::new(0)).collect(),
            scratchpads: [0; SCRATCHPADS],
            pending: 0,
            mask: 0,
            events: VecDeque::new(),
            reported_up: false,
            off: false,
            reason: None,
            notify: None,
        };
        Self {
            ends: [end(), end()],
            config,
            now: 0,
            up: false,
            lanes: [Lane::default(), Lane::default()],
            dice: Rng::with_seed(seed),
            whole: true,
            trained_at: None,
            mended_at: None,
            ports: 0,
        }
    }

    /// Plugs a new port in and returns its number. An earlier port on this side is dead.
    pub(super) fn plug(&mut self, side: Side, notify: Arc<OwnedFd>) -> u64 {
        if self.ends[side.index()].plugged != 0 {
            self.unplug(side);
        }
        self.ports += 1;
        let end = &mut self.ends[side.index()];
        end.plugged = self.ports;
        end.notify = Some(notify);
        self.train();
        self.ports
    }

    /// A port's process dies: its memory is freed, and the other end sees it.
    pub(super) fn unplug(&mut self, side: Side) {
        self.take_down(DownReason::PeerGone);
        let windows = self.config.windows;
        let end = &mut self.ends[side.index()];
        end.plugged = 0;
        end.windows = (0..windows).map(|_| Translation::new(0)).collect();
        (end.mask, end.pending, end.reported_up, end.reason) = (0, 0, false, None);
        end.off = false;
        end.events.clear();
        end.notify = None;
        self.trained_at = None;
    }

    /// Cuts the cable until [`Self::mend`], or for `ns` if given.
    pub(super) fn cut(&mut self, ns: Option<u64>) {
        self.whole = false;
        self.trained_at = None;
        self.mended_at = ns.map(|ns| self.now + ns);
        self.take_down(DownReason::Cable);
    }

    pub(super) fn mend(&mut self) {
        (self.whole, self.mended_at) = (true, None);
        self.train();
    }

    /// `side` switches its link off or on.
    pub(super) fn set_link(&mut self, side: Side, on: bool) {
        let end = &mut self.ends[side.index()];
        if end.off != on {
            return;
        }
        end.off = !on;
        if on {
            return self.train();
        }
        self.trained_at = None;
        self.take_down(DownReason::Cable);
        self.ends[side.index()].reason = Some(DownReason::Off);
    }

    /// A store of `side` to a window.
    pub(super) fn store(&mut self, side: Side, memory: &Arc<Memory>, offset: usize, bytes: &[u8]) {
        if self.up {
            let (now, pace) = (self.now, self.pace());
            self.lanes[side.index()].store(memory, offset, bytes, now, pace, &mut self.dice);
            self.deliver();
        }
    }

    /// A store fence of `side`.
    pub(super) fn fence(&mut self, side: Side) {
        let (now, pace) = (self.now, self.pace());
        self.lanes[side.index()].fence(now, pace, &mut self.dice);
        self.deliver();
    }

    /// A write of `side` to a register of its peer.
    pub(super) fn post(&mut self, side: Side, write: Write) {
        if self.up {
            let (now, pace) = (self.now, self.pace());
            self.lanes[side.index()].post(write, now, pace, &mut self.dice);
            self.deliver();
        }
    }

    /// Rings doorbells of `side` without a cause.
    pub(super) fn ring(&mut self, side: Side, bits: u32) {
        let end = &mut self.ends[side.index()];
        end.pending |= bits;
        if end.pending & !end.mask != 0 {
            self.notify(side);
        }
    }

    /// What a lying peer can do to `side`: write rubbish into its scratchpads, doorbells and segments.
    pub(super) fn rubbish(&mut self, side: Side) {
        let end = &mut self.ends[side.index()];
        for index in 0..SCRATCHPADS {
            end.scratchpads[index] = self.dice.u32(..);
        }
        for memory in end.windows.iter().flat_map(Translation::values) {
            // The first page, which contains all words, and some places behind it.
            for offset in (0..memory.len().min(4096)).step_by(8) {
                memory.store(offset, &self.dice.u64(..).to_le_bytes());
            }
            for _ in 0..64 {
                memory.store(self.dice.usize(..memory.len() / 8) * 8, &self.dice.u64(..).to_le_bytes());
            }
        }
        let bits = self.dice.u32(..);
        self.ring(side, bits);
    }

    /// When the next event happens, ns.
    pub(super) fn next_due(&self) -> Option<u64> {
        let lanes = self.lanes.iter().filter_map(|lane| if self.up { lane.next_due() } else { None });
        lanes.chain(self.trained_at).chain(self.mended_at).min()
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, ns: u64) {
        let target = self.now.saturating_add(ns);
        self.roll_faults(ns);
        while let Some(due) = self.next_due().filter(|due| *due <= target) {
            self.now = self.now.max(due);
            if self.mended_at.is_some_and(|at| at <= self.now) {
                self.mend();
            }
            if self.trained_at.is_some_and(|at| at <= self.now) {
                self.bring_up();
            }
            self.deliver();
        }
        self.now = target;
        let (now, pace) = (self.now, self.pace());
        for lane in &mut self.lanes {
            lane.spill(now, pace, &mut self.dice);
        }
        self.deliver();
    }

    /// Makes the event descriptor of `side` readable.
    pub(super) fn notify(&self, side: Side) {
        if let Some(notify) = &self.ends[side.index()].notify {
            // Can fail only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(notify, &1u64.to_ne_bytes());
        }
    }

    fn pace(&self) -> Pace {
        Pace { delay: self.config.delay_ns, jitter: self.config.jitter_ns, combine: self.config.combine }
    }

    fn train(&mut self) {
        if self.whole && self.ends.iter().all(|end| end.plugged != 0 && !end.off) {
            self.trained_at = Some(self.now + self.config.train_ns);
            if self.config.train_ns == 0 {
                self.bring_up();
            }
        }
    }

    fn bring_up(&mut self) {
        (self.up, self.trained_at) = (true, None);
        for side in [Side::A, Side::B] {
            let end = &mut self.ends[side.index()];
            if !self.config.stale_scratchpads {
                end.scratchpads = [0; SCRATCHPADS];
            }
            end.pending = 0;
            end.reason = None;
            end.events.push_back(Event::LinkUp);
            self.notify(side);
        }
        self.deliver();
    }

    fn take_down(&mut self, reason: DownReason) {
        if !self.up {
            return;
        }
        self.up = false;
        self.lanes.iter_mut().for_each(|lane| lane.lose(self.config.stale_doorbells));
        for side in [Side::A, Side::B] {
            let end = &mut self.ends[side.index()];
            for window in &mut end.windows {
                window.values().for_each(|memory| memory.free());
                window.clear();
            }
            end.pending = 0;
            end.reason = Some(reason.clone());
            end.events.push_back(Event::LinkDown(reason.clone()));
            self.notify(side);
        }
    }

    /// Makes the writes visible that have arrived.
    fn deliver(&mut self) {
        if !self.up {
            return;
        }
        for from in [Side::A, Side::B] {
            while let Some(write) = self.lanes[from.index()].arrived(self.now) {
                match write {
                    Write::Memory { memory, offset, bytes } => apply(&memory, offset, &bytes),
                    Write::Scratchpad { index, value } => {
                        self.ends[from.other().index()].scratchpads[index] = value;
                    }
                    Write::Doorbell(bits) => self.ring(from.other(), bits),
                }
            }
        }
    }

    fn roll_faults(&mut self, ns: u64) {
        if self.up && self.happens(ns, self.config.mean_ns_between_cuts) {
            let lost = self.dice.u64(..=self.config.longest_cut_ns);
            self.cut(Some(lost));
        }
        if self.up && self.happens(ns, self.config.mean_ns_between_false_doorbells) {
            let (side, bell) = (self.dice.usize(..2), self.dice.u32(..32));
            self.ring([Side::A, Side::B][side], 1 << bell);
        }
    }

    /// Whether an event that happens once in `mean` ns on average happens in the next `ns`.
    fn happens(&mut self, ns: u64, mean: Option<u64>) -> bool {
        mean.is_some_and(|mean| self.dice.u64(..mean.max(1)) < ns)
    }
}
