//! The schedule of stores over all queues of one end of a cable.
//!
//! Stores are taken in the order of their times over all queues. Without write combining each lands no earlier than the one
//! before it. With it, a store lands after all stores that an earlier fence covers, in whatever queue; and of two stores to one
//! line of one segment the later one lands last, as on processors. A write to the peer's registers waits for all earlier stores.

use super::pace::{LINE, Pace};
use crate::Pacing;
use crate::soft::Carried;
use crosslane_shm::queue::{Entry, Garbage, QUEUES_MAX, Reader, What, now};
use crosslane_wire::SegmentRange;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;

/// Most pieces that land between two checks for other work.
const AT_ONCE: usize = 1024;
/// Lines whose last landing is kept; if there are more, those that have passed are dropped.
const LINES: usize = 16 * 1024;
/// Stores of a cable with a rate that land within so long, ns, land together: a sleep for each would take more than one processor has.
const TOGETHER: u64 = 60_000;
/// Room that writers are told of at once while more lands, bytes: each telling may wake them.
const FREED: u64 = 64 << 10;
/// Where there are more queues than one sleep can wait for, those that were not used for so long, ns, are not waited for at all: each
/// costs the kernel some 100 ns of every sleep.
const IDLE: u64 = 1_000_000_000;

/// The segment of the peer that a queue leads to: window and range.
pub(super) type Place = (usize, SegmentRange);

/// A write to the peer's registers, behind all earlier stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    /// Doorbells to ring.
    Doorbell(u32),
    /// A word for a scratchpad.
    Scratchpad { index: usize, value: u32 },
}

/// All stores that are under way.
pub(super) struct Schedule {
    pace: Box<dyn Pace>,
    combine: bool,
    lanes: BTreeMap<u64, Lane>,
    /// The lanes whose writers wake the lander: those that had a store last, if there are more than one sleep can wait for.
    awaited: Vec<u64>,
    /// By landing time and number.
    under_way: BTreeMap<(u64, u64), Landing>,
    /// No store that is taken from now on lands before this time, ns: the latest landing that fences cover.
    floor: u64,
    /// Latest landing time of all stores that were taken, ns.
    latest: u64,
    /// Last number given to a lane or a landing.
    number: u64,
    /// What the link has carried, where acknowledgements take time.
    link: Option<Link>,
    /// Lanes of which entries have landed at once; empty but in [`Self::land`].
    touched: Vec<u64>,
}

/// What a link has carried since it came up.
struct Link {
    carried: Carried,
    /// Bytes of the peer's stores, as it said last.
    by_peer: u64,
    /// Bytes of this side's stores that have landed.
    landed: u64,
}

/// A queue.
struct Lane {
    place: Place,
    reader: Reader,
    /// When it was added, or its last store was taken, ns.
    used_at: u64,
    /// Landing time of its last store, ns.
    latest: u64,
    /// Landing time of the last store to each line since the last fence.
    lines: HashMap<usize, u64>,
    /// Entries from the oldest one that has not landed completely: where each ends, and its pieces that are under way.
    open: VecDeque<(u64, usize)>,
    /// Number of entries before those.
    landed: u64,
    /// Where the last entry ends that has landed, and how much of the room before it the writers were told of.
    free: u64,
    told: u64,
}

/// What happens at a landing time.
enum Landing {
    /// A part of entry number `index` of a lane becomes visible.
    Piece { lane: u64, index: u64, entry: Entry, from: usize, len: usize },
    /// Entry number `index` of a lane wakes the sleeper whose waker has this number.
    Wake { lane: u64, index: u64, number: u64 },
    /// A register write.
    Ticket(Ticket),
}

/// An entry or ticket that was taken and has no landing time yet.
enum Taken {
    Entry(u64, Entry),
    Ticket(Ticket),
}

/// What [`Schedule::land`] has made visible.
#[derive(Debug, Default)]
pub(super) struct Landed {
    /// Bytes.
    pub(super) bytes: u64,
    /// Those of them that were more than [`Pacing::LATE`] behind their time.
    pub(super) late: u64,
    /// The most that any was behind its time, ns.
    pub(super) worst: u64,
    /// Sleepers to wake, by the numbers of their wakers.
    pub(super) wakes: Vec<u64>,
}

impl Landed {
    fn add(&mut self, bytes: u64, behind: u64) {
        self.bytes += bytes;
        self.late += if behind > Pacing::LATE { bytes } else { 0 };
        self.worst = self.worst.max(behind);
    }
}

impl Schedule {
    pub(super) fn new(pace: Box<dyn Pace>, combine: bool) -> Self {
        let (lanes, under_way) = (BTreeMap::new(), BTreeMap::new());
        let (awaited, touched) = (Vec::new(), Vec::new());
        Self { pace, combine, lanes, awaited, under_way, floor: 0, latest: 0, number: 0, link: None, touched }
    }

    /// Adds a queue, armed, in case the others are.
    pub(super) fn add(&mut self, place: Place, mut reader: Reader) {
        reader.arm();
        let (lines, open) = (HashMap::new(), VecDeque::new());
        let used_at = now();
        let lane = Lane { place, reader, used_at, latest: 0, lines, open, landed: 0, free: 0, told: 0 };
        let number = self.next_number();
        self.lanes.insert(number, lane);
        self.awaited.insert(0, number);
    }

    /// Adds a queue to the memory of an existing one; does nothing if that one is removed.
    pub(super) fn add_beside(&mut self, place: Place, queue: &OwnedFd) {
        let other = self.lanes.values().find(|lane| lane.place == place);
        match other.map(|lane| lane.reader.beside(queue)) {
            Some(Ok(reader)) => self.add(place, reader),
            Some(Err(error)) => tracing::warn!(%error, "a queue of stores cannot be mapped"),
            None => {}
        }
    }

    /// The peer freed a segment: removes its queues, and all stores under way in them.
    pub(super) fn remove(&mut self, place: Place) {
        self.lanes.retain(|_, lane| lane.place != place);
    }

    /// Removes all queues and stores.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.under_way.clear();
        self.link = None;
    }

    /// The link is up, and the two sides tell each other what it carries.
    pub(super) fn link(&mut self, carried: Carried) {
        self.link = Some(Link { carried, by_peer: 0, landed: 0 });
    }

    /// Gives acknowledgements and credits for what the peer's stores have carried since the last call their time on the wire; returns how many
    /// bytes those were.
    pub(super) fn acknowledge(&mut self, now: u64) -> u64 {
        let Some(link) = &mut self.link else { return 0 };
        let by_peer = link.carried.by_peer();
        let news = by_peer.wrapping_sub(std::mem::replace(&mut link.by_peer, by_peer));
        self.pace.acknowledge(news, now)
    }

    /// The queues whose writers wake the lander.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Reader> {
        self.awaited.iter().filter_map(|number| Some(&self.lanes.get(number)?.reader))
    }

    /// Whether there are queues whose writers do not wake the lander.
    pub(super) fn has_others(&self) -> bool {
        self.awaited().take(QUEUES_MAX).count() < self.lanes.len()
    }

    /// Asks the writers of as many queues as a sleep can wait for to wake the lander: of those that were used last.
    pub(super) fn arm(&mut self) {
        let since = if self.lanes.len() > QUEUES_MAX { now().saturating_sub(IDLE) } else { 0 };
        let in_use = self.lanes.iter().filter(|(_, lane)| lane.used_at >= since);
        let mut lanes: Vec<_> = in_use.map(|(number, lane)| (u64::MAX - lane.used_at, *number)).collect();
        if lanes.len() > QUEUES_MAX {
            lanes.select_nth_unstable(QUEUES_MAX - 1);
            lanes.truncate(QUEUES_MAX);
        }
        self.awaited = lanes.into_iter().map(|(_, number)| number).collect();
        for number in &self.awaited {
            if let Some(lane) = self.lanes.get_mut(number) {
                lane.reader.arm();
            }
        }
    }

    /// The writers need not wake the lander.
    pub(super) fn disarm(&self) {
        self.awaited().for_each(Reader::disarm);
    }

    /// Whether the lander must hear of each store: not where those to come land behind those that are under way, which wake it in time.
    pub(super) fn wants_wakes(&self) -> bool {
        !self.pace.in_order() || self.under_way.is_empty()
    }

    /// Time of the next landing, ns; of stores that land close behind each other that of the last, where they are in order.
    pub(super) fn next_due(&self) -> Option<u64> {
        let first = self.under_way.keys().next()?.0;
        if !self.pace.in_order() {
            return Some(first);
        }
        let close = (first, 0)..=(first + TOGETHER, u64::MAX);
        self.under_way.range(close).next_back().map(|((due, _), _)| *due)
    }

    /// Takes all stores up to time `until`, ns, and the `tickets`, each with its time, which is not later. Returns
    /// whether there were any. All entries that are earlier than an entry of another queue are visible by now: a writer
    /// stores its entry before another can take a later time.
    pub(super) fn scan(&mut self, until: u64, tickets: Vec<(u64, Ticket)>) -> bool {
        let tickets = tickets.into_iter().map(|(at, ticket)| (at, true, Taken::Ticket(ticket)));
        let mut taken: Vec<_> = tickets.collect();
        self.lanes.retain(|number, lane| {
            let kept = lane.take_all(until, |entry| taken.push((entry.stored_at, false, Taken::Entry(*number, entry))));
            if kept.is_err() {
                tracing::debug!(place = ?lane.place, "a queue of stores is dropped: it holds garbage, or was given up");
            }
            kept.is_ok()
        });
        // A stable sort: the entries of one queue keep their order. A ticket goes behind stores of its time.
        taken.sort_by_key(|(at, is_ticket, _)| (*at, *is_ticket));
        let any = !taken.is_empty();
        for (at, _, taken) in taken {
            match taken {
                Taken::Entry(lane, entry) => self.plan(lane, entry),
                Taken::Ticket(ticket) => {
                    let due = self.register_due(at);
                    self.put(due, Landing::Ticket(ticket));
                }
            }
        }
        any
    }

    fn plan(&mut self, number: u64, entry: Entry) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let (offset, len) = match entry.what {
            What::Store { offset, len } => (offset, len),
            What::Fence => {
                self.floor = self.floor.max(lane.latest);
                return lane.fence(entry.end);
            }
            What::Wake(waker) => {
                // Its room is free when it has landed, so that a queue has no more of them under way than it holds.
                let index = lane.next_index();
                lane.open.push_back((entry.end, 1));
                let due = self.register_due(entry.stored_at);
                return self.put(due, Landing::Wake { lane: number, index, number: waker });
            }
        };
        let index = lane.next_index();
        let (mut from, mut pieces) = (0, Vec::new());
        while from < len {
            let part = self.pace.cut(offset + from, len - from).clamp(1, len - from);
            let due = self.pace.lands_at(entry.stored_at, part, entry.held_up);
            let due = if self.pace.in_order() || !self.combine {
                due.max(self.latest)
            } else {
                lane.order(offset + from, part, due.max(self.floor))
            };
            lane.latest = lane.latest.max(due);
            self.latest = self.latest.max(due);
            pieces.push((due, Landing::Piece { lane: number, index, entry, from, len: part }));
            from += part;
        }
        lane.open.push_back((entry.end, pieces.len()));
        pieces.into_iter().for_each(|(due, piece)| self.put(due, piece));
    }

    /// When a write to a register lands: behind all stores that were taken before.
    fn register_due(&mut self, at: u64) -> u64 {
        self.pace.lands_at(at, size_of::<u32>(), false).max(self.latest)
    }

    fn put(&mut self, due: u64, landing: Landing) {
        self.latest = self.latest.max(due);
        let number = self.next_number();
        self.under_way.insert((due, number), landing);
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Lands what is due at `now`, ns, and adds the tickets that are due; `None` if nothing is. Perhaps not all.
    pub(super) fn land(&mut self, now: u64, tickets: &mut Vec<Ticket>) -> Option<Landed> {
        let mut landed = None;
        for _ in 0..AT_ONCE {
            let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= now) else {
                break;
            };
            let behind = now - first.key().0;
            let landed = landed.get_or_insert_with(Landed::default);
            let (number, index) = match first.remove() {
                Landing::Ticket(ticket) => {
                    tickets.push(ticket);
                    continue;
                }
                Landing::Wake { lane, index, number } => {
                    if self.lanes.contains_key(&lane) {
                        landed.wakes.push(number);
                    }
                    (lane, index)
                }
                Landing::Piece { lane, index, entry, from, len } => {
                    if let Some(lane) = self.lanes.get_mut(&lane) {
                        lane.reader.land(&entry, from, len);
                        landed.add(len as u64, behind);
                    }
                    (lane, index)
                }
            };
            let Some(lane) = self.lanes.get_mut(&number) else { continue };
            lane.has_landed(index, now);
            if self.touched.last() != Some(&number) {
                self.touched.push(number);
            }
        }
        for number in self.touched.drain(..) {
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.tell();
            }
        }
        if let (Some(link), Some(landed)) = (&mut self.link, &landed) {
            link.landed += landed.bytes;
            link.carried.tell(link.landed);
        }
        landed
    }
}

impl Lane {
    fn take_all(&mut self, until: u64, mut put: impl FnMut(Entry)) -> Result<(), Garbage> {
        while let Some(entry) = self.reader.take(until)? {
            self.used_at = entry.stored_at;
            put(entry);
        }
        Ok(())
    }

    /// Entries behind this one do not land before the cable's floor.
    fn fence(&mut self, end: u64) {
        self.lines.clear();
        self.open.push_back((end, 0));
        self.free();
        self.tell();
    }

    /// Number of the next entry.
    fn next_index(&self) -> u64 {
        self.landed + self.open.len() as u64
    }

    /// When a piece lands whose own delay ends at `due`: not before earlier stores to its lines.
    fn order(&mut self, offset: usize, len: usize, due: u64) -> u64 {
        let lines = offset / LINE..=(offset + len - 1) / LINE;
        let earlier = lines.clone().filter_map(|line| self.lines.get(&line).copied()).max();
        let due = earlier.map_or(due, |earlier| due.max(earlier));
        self.lines.extend(lines.map(|line| (line, due)));
        due
    }

    fn has_landed(&mut self, index: u64, now: u64) {
        let open = usize::try_from(index - self.landed).ok().and_then(|index| self.open.get_mut(index));
        if let Some((_, pieces)) = open {
            *pieces -= 1;
        }
        self.free();
        if self.lines.len() > LINES {
            self.lines.retain(|_, due| *due > now);
        }
    }

    /// Tells the writers how much room is free.
    fn tell(&mut self) {
        if self.told != self.free {
            self.told = self.free;
            self.reader.free(self.free);
        }
    }

    /// Frees the room of entries that have landed; the writers are [told](Self::tell) now or later.
    fn free(&mut self) {
        while let Some((at, 0)) = self.open.front() {
            self.free = *at;
            self.open.pop_front();
            self.landed += 1;
        }
        if self.free - self.told >= FREED {
            self.tell();
        }
        if self.open.is_empty() {
            self.lines.clear();
        }
    }
}

#[cfg(test)]
mod tests;
