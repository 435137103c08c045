//! Windows, translations, segments.

use super::Cable;
use super::registers::settle;
use super::rig::{Rig, WINDOW, pages};
use crate::{Port, PortError};
use crosslane_shm::{Inbound, Load, Segment, Store};
use crosslane_wire::{MemoryKind, SegmentInfo, SegmentRange};
use rustix::fs::SealFlags;

pub(super) fn stores_arrive<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(3, 2);
    let own = rig.cable.a().map_inbound(0, range).expect("maps its own");
    let theirs = rig.cable.b().map_inbound(0, range).expect("the same range of another port is another");
    let (to_b, to_a) = (
        rig.cable.a().map_outbound(0, range).expect("maps the peer's"),
        rig.cable.b().map_outbound(0, range).expect("maps the peer's"),
    );
    assert_eq!((Load::len(&own), Store::len(&to_a)), (8192, 8192));
    let mut bytes = vec![1; 8192];
    own.read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0), "fresh memory is not zero");
    let pattern: Vec<u8> = (0..5000u32).map(|index| (index % 251).to_le_bytes()[0]).collect();
    to_a.write(1001, &pattern);
    to_a.store_u32(4, 0xdead_beef);
    to_a.store_fence();
    to_a.store_u64(8184, 7);
    to_b.store_u64(8, 8);
    to_b.store_fence();
    rig.until("the last word arrived", |_| own.load_u64(8184) == 7 && theirs.load_u64(8) == 8);
    let mut copy = vec![0; pattern.len()];
    own.read(1001, &mut copy);
    assert_eq!(copy, pattern);
    assert_eq!((own.load_u32(0), own.load_u32(4), own.load_u64(0)), (0, 0xdead_beef, 0xdead_beef << 32));
    assert_eq!(theirs.load_u64(8184), 0, "a store landed in both");
}

pub(super) fn fences_order<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(0, 4);
    let memory = rig.cable.b().map_inbound(1, range).expect("maps its own");
    let window = rig.cable.a().map_outbound(1, range).expect("maps the peer's");
    for round in 1..300u64 {
        let payload = round.to_le_bytes().repeat(100);
        window.write(4096, &payload);
        window.store_u64(1024, round);
        window.store_fence();
        window.store_u64(0, round);
        rig.until("the index arrived", |_| {
            let index = memory.load_u64(0);
            assert!(index <= round, "an index from nowhere");
            let mut copy = vec![0; payload.len()];
            memory.read(4096, &mut copy);
            assert!(
                index < round || (copy == payload && memory.load_u64(1024) == round),
                "the index overtook the payload"
            );
            index == round
        });
    }
}

pub(super) fn windows_are_apart<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(0, 1);
    let windows = rig.cable.a().info().windows.min(rig.cable.b().info().windows);
    let memories: Vec<_> =
        (0..windows).map(|window| rig.cable.b().map_inbound(window, range).expect("maps its own")).collect();
    for window in 0..windows {
        let view = rig.cable.a().map_outbound(window, range).expect("maps the peer's");
        view.store_u64(0, 100 + window as u64);
        view.store_fence();
    }
    rig.until("all words arrived", |_| {
        memories.iter().enumerate().all(|(window, memory)| memory.load_u64(0) == 100 + window as u64)
    });
}

pub(super) fn ranges_are_checked<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let port = rig.cable.a();
    let windows = port.info().windows;
    let end = WINDOW / 4096;
    let odd = SegmentRange { offset: 4096, len: 100 };
    let shifted = SegmentRange { offset: 8, len: 4096 };
    let wrapping = SegmentRange { offset: u64::MAX - 4095, len: 8192 };
    for bad in
        [odd, shifted, wrapping, pages(1, 0), pages(end, 1), pages(end - 1, 2), pages(0, u64::MAX >> 12)]
    {
        assert!(matches!(port.map_inbound(0, bad), Err(PortError::Range { .. })), "{bad:?}");
    }
    assert!(matches!(port.map_inbound(windows, pages(0, 1)), Err(PortError::NoWindow(_))));
    let kept = port.map_inbound(0, pages(4, 4)).expect("maps its own");
    for bad in [pages(4, 4), pages(3, 2), pages(7, 1), pages(0, end), pages(5, 1)] {
        assert!(matches!(port.map_inbound(0, bad), Err(PortError::Overlap { .. })), "{bad:?}");
    }
    let beside = (port.map_inbound(0, pages(8, 1)), port.map_inbound(0, pages(3, 1)));
    assert!(beside.0.is_ok() && beside.1.is_ok());
    // The peer finds only ranges that were carved exactly so, and other ranges cannot be freed.
    for other in [pages(4, 3), pages(5, 3), pages(4, 5), pages(20, 1), wrapping] {
        assert!(matches!(rig.cable.b().map_outbound(0, other), Err(PortError::NotThere)), "{other:?}");
        rig.cable.a().free_inbound(0, other);
        rig.cable.a().free_inbound(windows, other);
    }
    assert!(matches!(rig.cable.b().map_outbound(windows, pages(4, 4)), Err(PortError::NoWindow(_))));
    let view = rig.cable.b().map_outbound(0, pages(4, 4)).expect("still there");
    view.store_u64(0, 1);
    view.store_fence();
    rig.until("the word arrived", |_| kept.load_u64(0) == 1);
}

pub(super) fn translations<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let port = rig.cable.a();
    let info = port.info();
    assert!(matches!(port.set_inbound(info.windows, 4096), Err(PortError::NoWindow(_))));
    assert!(matches!(port.set_inbound(0, 4097), Err(PortError::Range { .. })));
    assert!(matches!(port.set_inbound(0, info.window_bytes + 4096), Err(PortError::Range { .. })));
    port.map_inbound(0, pages(1, 1)).expect("maps its own");
    assert!(matches!(port.set_inbound(0, 2 * WINDOW), Err(PortError::Busy(0))));
    port.free_inbound(0, pages(1, 1));
    port.set_inbound(0, 2 * WINDOW).expect("no segments are left");
    let far = pages(2 * WINDOW / 4096 - 1, 1);
    let memory = port.map_inbound(0, far).expect("is inside now");
    let view = rig.cable.b().map_outbound(0, far).expect("the peer knows the new length");
    view.store_u64(0, 9);
    view.store_fence();
    rig.until("the word arrived", |_| memory.load_u64(0) == 9);
    rig.cable.a().set_inbound(1, 0).expect("takes the memory away");
    assert!(matches!(rig.cable.a().map_inbound(1, pages(0, 1)), Err(PortError::Range { .. })));
}

fn is_that_segment_and_no_more(segment: &Segment, len: u64) {
    assert_eq!(segment.info.len, len);
    assert!(
        rustix::fs::ftruncate(segment, 4096).is_err() && rustix::fs::ftruncate(segment, 1 << 20).is_err()
    );
    if segment.info.memory == MemoryKind::Sealed {
        assert_eq!(rustix::fs::fstat(segment).expect("stat").st_size.unsigned_abs(), len);
    }
    if segment.info.memory == MemoryKind::Device {
        let longer = SegmentInfo { len: len + 4096, ..segment.info };
        let fd = segment.fd.try_clone().expect("a descriptor");
        assert!(Inbound::map(&Segment { fd, info: longer }).is_err(), "it reaches beyond its range");
    } else {
        let seals = rustix::fs::fcntl_get_seals(segment).expect("is a memfd");
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL), "{seals:?}");
    }
}

pub(super) fn carved_descriptors<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(2, 3);
    if !rig.cable.a().info().descriptors {
        assert!(matches!(rig.cable.a().carve_inbound(0, range), Err(PortError::Unsupported(_))));
        assert!(matches!(rig.cable.b().carve_outbound(0, range), Err(PortError::Unsupported(_))));
        return;
    }
    let own = rig.cable.a().carve_inbound(0, range).expect("carves its own");
    let neighbour = rig.cable.a().map_inbound(0, pages(5, 1)).expect("maps its own");
    let theirs = rig.cable.b().carve_outbound(0, range).expect("carves the peer's");
    for fd in [&own, &theirs] {
        is_that_segment_and_no_more(fd, range.len);
    }
    let memory = Inbound::map(&own).expect("a program maps it");
    // Who waits there may spin on whatever processor, unless the writer may be on the same one.
    assert_eq!(memory.is_near(), own.info.memory != MemoryKind::Device);
    let window = crosslane_shm::Outbound::map(&theirs).expect("a program maps it");
    window.write(0, &[0xff; 3 * 4096]);
    window.store_fence();
    rig.until("the last word arrived", |_| memory.load_u64(3 * 4096 - 8) == u64::MAX);
    assert_eq!(neighbour.load_u64(0), 0, "stores reached the next segment");
    let inode = |fd: &Segment| rustix::fs::fstat(fd).expect("stat").st_ino;
    assert!(theirs.info.memory != MemoryKind::Sealed || inode(&theirs) == inode(&own));
    // The port keeps nothing of what it gave out.
    assert!(rig.cable.b().carve_outbound(0, range).is_err());
    rig.cable.a().free_inbound(0, range);
    settle(rig);
    rig.until("the peer has let go of it", |rig| rig.cable.a().is_free(0, range));
    rig.cable.a().carve_inbound(0, range).expect("carves it again");
    rig.cable.b().carve_outbound(0, range).expect("it is another segment");
}

pub(super) fn freed_ranges<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(10, 1);
    let first = rig.cable.a().map_inbound(0, range).expect("maps its own");
    let old = rig.cable.b().map_outbound(0, range).expect("maps the peer's");
    old.store_u64(0, 1);
    old.store_fence();
    rig.until("the word arrived", |_| first.load_u64(0) == 1);
    rig.cable.a().free_inbound(0, range);
    settle(rig);
    assert!(matches!(rig.cable.b().map_outbound(0, range), Err(PortError::NotThere)));
    let second = rig.cable.a().map_inbound(0, range).expect("the range is free again");
    old.write(0, &[0xff; 4096]);
    old.store_fence();
    let new = rig.cable.b().map_outbound(0, range).expect("maps the peer's");
    new.store_u64(8, 2);
    new.store_fence();
    rig.until("the new word arrived", |_| second.load_u64(8) == 2);
    settle(rig);
    let mut bytes = [9; 4096];
    second.read(0, &mut bytes);
    assert!(
        bytes[16..].iter().chain(&bytes[..8]).all(|byte| *byte == 0),
        "the old holder reaches new memory"
    );
    assert!(rig.cable.a().is_up() && rig.cable.b().is_up());
}
