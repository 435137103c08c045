//! Checks of scratchpads, doorbells and wakers.

use super::Cable;
use super::rig::{Rig, pages};
use crate::{Port, PortError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_shm::{FarBuffer, Inbound, Load, Outbound, Store};
use crosslane_wire::Reach;
use crosslane_wire::buffer::memory_len;
use crosslane_wire::segment::PAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

/// Until a waker's wake must have come, and until one that does not come would have.
const SOON: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
const SHORTLY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(super) fn has_enough<C: Cable>(rig: &mut Rig<C>) {
    for info in [rig.cable.a().info(), rig.cable.b().info()] {
        assert!(info.windows >= 2 && info.scratchpads >= 16 && info.doorbells >= 16, "{info:?}");
        assert!(info.window_bytes >= super::rig::WINDOW && info.doorbells <= 32, "{info:?}");
    }
}

pub(super) fn scratchpads<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let count = rig.cable.a().info().scratchpads;
    let word = |index: usize, side: u32| side << 16 | u32::try_from(index).unwrap_or(0);
    for index in 0..count {
        rig.cable.a().write_peer_scratchpad(index, word(index, 0xaaaa));
        rig.cable.b().write_peer_scratchpad(index, word(index, 0xbbbb));
    }
    rig.until("all words arrived", |rig| {
        (0..count).all(|index| {
            rig.cable.b().read_scratchpad(index) == word(index, 0xaaaa)
                && rig.cable.a().read_scratchpad(index) == word(index, 0xbbbb)
        })
    });
    rig.cable.a().write_peer_scratchpad(3, 7);
    rig.until("one word changed", |rig| rig.cable.b().read_scratchpad(3) == 7);
    assert_eq!(rig.cable.b().read_scratchpad(4), word(4, 0xaaaa));
}

pub(super) fn doorbells<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    for bell in 0..rig.cable.a().info().doorbells {
        rig.cable.a().ring_peer_doorbell(1 << bell);
        rig.until("the bell is reported", |rig| !rig.b.bells.is_empty());
        assert_eq!(std::mem::take(&mut rig.b.bells), [1 << bell]);
    }
    rig.cable.b().ring_peer_doorbell(0b11);
    rig.cable.b().ring_peer_doorbell(0b110);
    rig.until("three bells are reported", |rig| rig.a.bits() == 0b111);
    settle(rig);
    assert!(rig.a.bells.len() <= 2, "more reports than rings: {:?}", rig.a.bells);
    assert_eq!(rig.b.bells, [], "a side heard its own bells");
}

pub(super) fn masks<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    rig.cable.b().mask_doorbells(0b101);
    rig.cable.a().ring_peer_doorbell(0b011);
    rig.until("the unmasked bell is reported", |rig| !rig.b.bells.is_empty());
    settle(rig);
    assert_eq!(std::mem::take(&mut rig.b.bells), [0b010]);
    rig.cable.a().ring_peer_doorbell(0b100);
    settle(rig);
    assert_eq!(rig.b.bells, [], "a masked bell was reported");
    rig.cable.b().unmask_doorbells(0b001);
    rig.until("a pending bell is reported", |rig| !rig.b.bells.is_empty());
    assert_eq!(std::mem::take(&mut rig.b.bells), [0b001]);
    rig.cable.b().unmask_doorbells(u32::MAX);
    rig.until("the other one too", |rig| !rig.b.bells.is_empty());
    assert_eq!(std::mem::take(&mut rig.b.bells), [0b100]);
}

pub(super) fn event_descriptor<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    settle(rig);
    assert!(!readable(rig.cable.b().event_fd()), "readable when nothing happens");
    rig.cable.a().ring_peer_doorbell(1);
    until_readable(rig, "a doorbell");
    assert_eq!(rig.cable.b().poll_event(), Some(crate::Event::Doorbell(1)));
    settle(rig);
    assert!(!readable(rig.cable.b().event_fd()), "readable when all was reported");
    // Repeated, since a wake-up that stays marked as under way would come only once; then by unmasking.
    for _ in 0..3 {
        rig.cable.a().ring_peer_doorbell(1);
        until_readable(rig, "a later doorbell");
        assert_eq!(rig.cable.b().poll_event(), Some(crate::Event::Doorbell(1)));
        assert_eq!(rig.cable.b().poll_event(), None);
    }
    rig.cable.b().mask_doorbells(2);
    rig.cable.a().ring_peer_doorbell(2);
    settle(rig);
    assert!(!readable(rig.cable.b().event_fd()), "readable for a masked doorbell");
    rig.cable.b().unmask_doorbells(2);
    until_readable(rig, "unmasking");
    assert_eq!(rig.cable.b().poll_event(), Some(crate::Event::Doorbell(2)));
}

pub(super) fn doorbell_order<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let memory = rig.cable.b().map_inbound(0, pages(0, 1)).expect("maps its own");
    let window = rig.cable.a().map_outbound(0, pages(0, 1)).expect("maps the peer's");
    for round in 1..200u32 {
        window.store_u64(64, u64::from(round));
        window.store_fence();
        rig.cable.a().write_peer_scratchpad(0, round);
        rig.cable.a().ring_peer_doorbell(1);
        rig.until("the bell is reported", |rig| !rig.b.bells.is_empty());
        rig.b.bells.clear();
        assert_eq!(memory.load_u64(64), u64::from(round), "the bell overtook a store");
        assert_eq!(rig.cable.b().read_scratchpad(0), round, "the bell overtook a scratchpad");
    }
}

pub(super) fn bells<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let sleeper = Receiver::new().expect("wake event");
    let waker = sleeper.waker().expect("waker");
    let word = waker.word();
    let handle = match rig.cable.a().export_waker(waker.as_fd(), word) {
        Ok(handle) => handle,
        Err(PortError::Unsupported(_)) => {
            assert!(matches!(rig.cable.b().import_waker(1, word), Ok(None)));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    drop(waker);
    let range = pages(2, 1);
    let inbound = rig.cable.a().carve_inbound(0, range).expect("carves its own");
    let outbound = rig.cable.b().carve_outbound(0, range).expect("carves the peer's");
    let memory = Inbound::map(&inbound).expect("a program maps it");
    let window = Outbound::map(&outbound).expect("a program maps it");
    let ring = |waker: &FarWaker| match waker {
        FarWaker::Own(waker) => assert!(waker.wake()),
        FarWaker::Queued(number) => window.wake(*number),
    };
    let imported = rig.cable.b().import_waker(handle, word).expect("was announced").expect("there is room");
    for round in 1..20 {
        window.store_u64(64, round);
        window.store_fence();
        ring(&imported);
        sleeper.sleep(Some(&SOON));
        assert!(sleeper.clear(), "was rung");
        // A wake by a descriptor may overtake the store, which the sleeper expects where stores are posted.
        if matches!(imported, FarWaker::Queued(_)) {
            assert_eq!(memory.load_u64(64), round, "the wake overtook a store");
        }
    }
    // Another one under the same handle, where a port gives one, is the same sleeper's.
    match rig.cable.b().import_waker(handle, word) {
        Err(PortError::NotThere) => {}
        Ok(Some(again)) => {
            ring(&again);
            sleeper.sleep(Some(&SOON));
            assert!(sleeper.clear(), "was rung again");
        }
        other => panic!("{other:?}"),
    }
    // One that was never exported wakes nobody, whether the port finds that out now or when it is written to.
    match rig.cable.b().import_waker(handle + 1, word) {
        Err(PortError::NotThere) => {}
        Ok(Some(stranger)) => {
            if let FarWaker::Own(stranger) = stranger {
                stranger.wake();
            }
            sleeper.sleep(Some(&SHORTLY));
            assert!(!sleeper.clear(), "a handle that was never given wakes a sleeper");
        }
        other => panic!("{other:?}"),
    }
    if let FarWaker::Queued(number) = imported {
        window.wake(number ^ 1);
        sleeper.sleep(Some(&SHORTLY));
        assert!(!sleeper.clear(), "a number that was never given wakes a sleeper");
    }
    rig.cable.a().forget_wakers(sleeper.word());
    assert!(rig.cable.a().is_up());
}

pub(super) fn buffers<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let len = 4 * PAGE;
    let memory = new_segment("buffer", memory_len(len)).expect("memory");
    let handle = match rig.cable.a().hand_over(memory.as_fd(), len, Reach::Store) {
        Ok(handle) => handle,
        Err(PortError::Unsupported(_)) => {
            assert!(rig.cable.b().take_over(1, len, Reach::Store).is_err());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let other = rig.cable.a().hand_over(memory.as_fd(), len, Reach::Store).expect("another time");
    let taken = rig.cable.b().take_over(handle, len, Reach::Store).expect("was handed over");
    let far = FarBuffer::map(taken, len, Reach::Store).expect("is a buffer");
    far.copy_in(100, b"hello").expect("inside");
    let mut bytes = [0; 5];
    Inbound::sealed(&memory, memory_len(len)).expect("maps").read(100, &mut bytes);
    assert_eq!(&bytes, b"hello");
    let again = rig.cable.b().take_over(handle, len, Reach::Store);
    assert!(matches!(again, Err(PortError::NotThere)), "one can be taken once");
    let wrong = rig.cable.b().take_over(other, len, Reach::Load);
    assert!(matches!(wrong, Err(PortError::NotThere)), "one is what it is");
    assert!(rig.cable.a().is_up());
}

/// Enough turns for all writes under way to arrive.
pub(super) fn settle<C: Cable>(rig: &mut Rig<C>) {
    (0..8).for_each(|_| rig.turn());
}

fn until_readable<C: Cable>(rig: &mut Rig<C>, what: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !readable(rig.cable.b().event_fd()) {
        assert!(std::time::Instant::now() < deadline, "the event descriptor does not tell of {what}");
        rig.poll_a();
        rig.cable.pass();
    }
}

fn readable(fd: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
