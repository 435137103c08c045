use super::super::pace::Drawn;
use super::*;
use crosslane_shm::mem::new_segment;
use crosslane_shm::queue::{self, now};
use crosslane_shm::{Inbound, Load, Outbound, Segment, Store};
use crosslane_wire::{MemoryKind, SegmentInfo};
use proptest::prelude::*;

const LEN: u64 = 4096;

/// A segment that stores reach through a queue of `schedule`.
fn segment(schedule: &mut Schedule, place: Place) -> (Outbound, Inbound) {
    let memory = new_segment("memory", LEN).unwrap();
    let fd = queue::create().unwrap();
    let inbound = Inbound::sealed(&memory, LEN).unwrap();
    schedule.add(place, Reader::new(&fd, &Segment::sealed(memory, LEN)).unwrap());
    let info = SegmentInfo { memory: MemoryKind::Queue, ..SegmentInfo::sealed(LEN) };
    (Outbound::map(&Segment { fd, info }).unwrap(), inbound)
}

fn place(number: u64) -> Place {
    (0, SegmentRange { offset: number * LEN, len: LEN })
}

fn schedule(seed: u64, combine: bool) -> Schedule {
    Schedule::new(Box::new(Drawn::new(seed, (0, 1_000_000))), combine)
}

/// Steps from landing to landing, and calls `look` after each with the tickets so far.
fn step_all(schedule: &mut Schedule, mut look: impl FnMut(&[Ticket])) {
    let mut tickets = Vec::new();
    while let Some(due) = schedule.next_due() {
        schedule.land(due, &mut tickets);
        look(&tickets);
    }
}

#[test]
fn posted_wake_lands_behind_stores_and_keeps_its_room_until_then() {
    let mut schedule = schedule(7, true);
    let (out, seen) = segment(&mut schedule, place(1));
    out.store_u64(64, 9);
    out.wake(5);
    out.wake(6);
    assert!(schedule.scan(now(), Vec::new()));
    let open = |schedule: &Schedule| schedule.lanes.values().map(|lane| lane.open.len()).sum::<usize>();
    assert_eq!((open(&schedule), seen.load_u64(64)), (3, 0), "nothing has landed, so nothing is free");
    let mut wakes = Vec::new();
    while let Some(due) = schedule.next_due() {
        let landed = schedule.land(due, &mut Vec::new()).unwrap();
        assert!(landed.wakes.is_empty() || seen.load_u64(64) == 9, "a wake overtook a store");
        wakes.extend(landed.wakes);
    }
    assert_eq!((wakes, open(&schedule)), (vec![5, 6], 0));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A word of its own.
    Store(usize),
    Fence(usize),
    Ticket,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2_usize).prop_map(Step::Store),
        1 => (0..2_usize).prop_map(Step::Fence),
        1 => Just(Step::Ticket),
    ];
    prop::collection::vec(step, 1..60)
}

/// Whether the step `first` must be visible if the step `later` is.
fn is_before(steps: &[Step], first: usize, later: usize, combine: bool) -> bool {
    let Step::Store(queue) = steps[first] else { return false };
    let fenced = |step: &Step| matches!(step, Step::Fence(of) if *of == queue);
    first < later
        && (!combine || matches!(steps[later], Step::Ticket) || steps[first..later].iter().any(fenced))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Fences order all queues of the cable, tickets overtake no store, and without combining no store overtakes another.
    #[test]
    fn posted_stores_keep_the_order_that_fences_ask_for(steps in steps(), seed: u64, combine: bool) {
        let mut schedule = schedule(seed, combine);
        let ends = [segment(&mut schedule, place(0)), segment(&mut schedule, place(1))];
        let mut tickets = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Store(queue) => ends[*queue].0.store_u64(8 * index, 1),
                Step::Fence(queue) => ends[*queue].0.store_fence(),
                Step::Ticket => tickets.push((now(), Ticket::Doorbell(u32::try_from(index).unwrap()))),
            }
        }
        schedule.scan(now(), tickets);
        step_all(&mut schedule, |rung| {
            let seen = |index: usize| match steps[index] {
                Step::Store(queue) => ends[queue].1.load_u64(8 * index) == 1,
                Step::Fence(_) => false,
                Step::Ticket => rung.contains(&Ticket::Doorbell(u32::try_from(index).unwrap())),
            };
            for later in (0..steps.len()).filter(|later| seen(*later)) {
                for first in (0..later).filter(|first| is_before(&steps, *first, later, combine)) {
                    assert!(seen(first), "{later} was seen without {first}");
                }
            }
        });
        for (index, step) in steps.iter().enumerate() {
            if let Step::Store(queue) = step {
                prop_assert_eq!(ends[*queue].1.load_u64(8 * index), 1);
            }
        }
    }

    /// Of two stores to one place the later one lands last; in between, each byte is from one of them.
    #[test]
    fn posted_stores_to_one_place_land_in_their_order(
        stores in prop::collection::vec((0..3000_usize, 1..900_usize, 0..9_u8), 1..40),
        seed: u64,
        combine: bool,
    ) {
        let mut schedule = schedule(seed, combine);
        let (out, inb) = segment(&mut schedule, place(0));
        let (mut wanted, mut said) = (vec![0; 4096], vec![[true; 1].to_vec(); 4096]);
        for (index, (offset, len, fence)) in stores.iter().enumerate() {
            let byte = u8::try_from(index + 1).unwrap();
            out.write(*offset, &vec![byte; *len]);
            wanted[*offset..offset + len].fill(byte);
            for said in &mut said[*offset..offset + len] {
                said.resize(index + 2, false);
                said[index + 1] = true;
            }
            if *fence == 0 {
                out.store_fence();
            }
        }
        schedule.scan(now(), Vec::new());
        let mut bytes = vec![0; 4096];
        step_all(&mut schedule, |_| {
            inb.read(0, &mut bytes);
            assert!(bytes.iter().zip(&said).all(|(byte, said)| said.get(usize::from(*byte)) == Some(&true)));
        });
        inb.read(0, &mut bytes);
        prop_assert_eq!(bytes, wanted);
    }
}

#[test]
fn posted_stores_overtake_each_other_where_no_fence_is() {
    let overtook = (0..20).filter(|seed| {
        let mut schedule = schedule(*seed, true);
        let (out, inb) = segment(&mut schedule, place(0));
        (0..10).for_each(|line| out.store_u64(64 * line, 1));
        schedule.scan(now(), Vec::new());
        let mut overtook = false;
        step_all(&mut schedule, |_| {
            overtook |= (1..10).any(|line| inb.load_u64(64 * line) > inb.load_u64(64 * (line - 1)));
        });
        overtook
    });
    assert!(overtook.count() > 15);
}

#[test]
fn posted_stores_are_lost_with_their_segment_or_all_of_it() {
    let mut schedule = schedule(1, true);
    let ends: Vec<_> = (0..3).map(|number| segment(&mut schedule, place(number))).collect();
    ends.iter().for_each(|(out, _)| out.store_u64(0, 1));
    schedule.scan(now(), Vec::new());
    schedule.remove(place(1));
    step_all(&mut schedule, |_| {});
    let seen = || ends.iter().map(|(_, inb)| inb.load_u64(0)).collect::<Vec<_>>();
    assert_eq!(seen(), [1, 0, 1]);
    ends.iter().for_each(|(out, _)| out.store_u64(0, 2));
    schedule.scan(now(), vec![(now(), Ticket::Doorbell(1))]);
    schedule.clear();
    assert_eq!((schedule.next_due(), seen()), (None, vec![1, 0, 1]));
}

#[test]
fn posted_garbage_in_one_queue_leaves_the_others() {
    let mut schedule = schedule(1, true);
    let good = segment(&mut schedule, place(0));
    let (memory, fd) = (new_segment("memory", LEN).unwrap(), queue::create().unwrap());
    schedule.add(place(1), Reader::new(&fd, &Segment::sealed(memory, LEN)).unwrap());
    let raw = Outbound::sealed(&fd, queue::LEN).unwrap();
    (0..queue::LEN / 8).for_each(|word| raw.store_u64(usize::try_from(8 * word).unwrap(), u64::MAX / 3));
    good.0.store_u64(0, 1);
    schedule.scan(now(), Vec::new());
    step_all(&mut schedule, |_| {});
    assert_eq!((good.1.load_u64(0), schedule.lanes.len()), (1, 1));
}

/// One sleep waits for so many queues only: idle ones must not keep busy and new ones waiting for its next look.
#[test]
fn posted_queues_that_are_in_use_wake_the_lander() {
    let mut schedule = schedule(1, true);
    let idle = QUEUES_MAX as u64 + 10;
    let ends: Vec<_> = (0..idle).map(|number| segment(&mut schedule, place(number))).collect();
    assert!(schedule.has_others());
    ends[0].0.store_u64(0, 1);
    schedule.scan(now(), Vec::new());
    schedule.arm();
    assert!(schedule.has_others());
    let _new = segment(&mut schedule, place(idle));
    let (first, new) = (*schedule.lanes.keys().min().unwrap(), *schedule.lanes.keys().max().unwrap());
    let awaited = &schedule.awaited[..QUEUES_MAX];
    assert!(awaited.contains(&first) && awaited.contains(&new));
    (1..idle).for_each(|number| schedule.remove(place(number)));
    schedule.arm();
    assert!(!schedule.has_others());
    assert_eq!(schedule.awaited().count(), 2);
}
