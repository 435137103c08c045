use super::*;
use crate::{Inbound, Load, Outbound, Segment, Store};
use crosslane_wire::{Caching, MemoryKind, SegmentInfo};
use proptest::prelude::*;
use std::os::fd::AsFd;

const SEGMENT: u64 = 64 * 4096;

/// The writers' end, the lander's end, and the segment.
fn queue() -> (Outbound, Reader, Inbound, Segment) {
    let memory = new_segment("memory", SEGMENT).unwrap();
    let inbound = Inbound::sealed(&memory, SEGMENT).unwrap();
    let fd = create().unwrap();
    let reader = Reader::new(&fd, &Segment::sealed(memory, SEGMENT)).unwrap();
    let info = SegmentInfo {
        memory: MemoryKind::Queue,
        caching: Caching::WriteCombining,
        posted_ns: 1,
        lossy: true,
        ..SegmentInfo::sealed(SEGMENT)
    };
    let segment = Segment { fd, info };
    (Outbound::map(&segment).unwrap(), reader, inbound, segment)
}

/// Lands all entries, in order; returns their kinds.
fn land_all(reader: &mut Reader) -> Vec<What> {
    let mut all = Vec::new();
    while let Some(entry) = reader.take(now()).unwrap() {
        if let What::Store { len, .. } = entry.what {
            reader.land(&entry, 0, len);
        }
        reader.free(entry.end);
        all.push(entry.what);
    }
    all
}

#[test]
fn posted_wake_is_an_entry_behind_what_was_stored() {
    let (out, mut reader, inb, _) = queue();
    out.store_u64(64, 7);
    out.wake(u64::MAX);
    out.store_fence();
    out.wake(5);
    let store = What::Store { offset: 64, len: 8 };
    assert_eq!(land_all(&mut reader), [store, What::Wake(u64::MAX), What::Fence, What::Wake(5)]);
    assert_eq!(inb.load_u64(64), 7);
}

#[test]
fn posted_lander_is_woken_once_for_each_sleep() {
    let (out, mut reader, _, _) = queue();
    let woken = |reader: &Reader| reader.wake_word().load(Relaxed);
    out.store_u64(64, 1);
    assert_eq!(woken(&reader), 0, "it does not sleep");
    for sleep in 1..4 {
        reader.arm();
        (0..5).for_each(|value| out.store_u64(64, value));
        assert_eq!(woken(&reader), sleep);
    }
    reader.arm();
    reader.disarm();
    out.store_u64(64, 1);
    assert_eq!(woken(&reader), 3);
}

#[test]
fn posted_stores_are_seen_once_they_landed_and_not_before() {
    let (out, mut reader, inb, _) = queue();
    assert_eq!(Store::len(&out) as u64, SEGMENT);
    out.write(5, b"hello");
    out.store_u32(64, 7);
    out.store_fence();
    out.store_fence();
    out.store_u64(72, 8);
    assert_eq!((inb.load_u64(64), inb.load_u64(72)), (0, 0));
    let landed = land_all(&mut reader);
    assert_eq!(
        landed,
        [
            What::Store { offset: 5, len: 5 },
            What::Store { offset: 64, len: 4 },
            What::Fence,
            What::Store { offset: 72, len: 8 }
        ]
    );
    let mut bytes = [0; 5];
    inb.read(5, &mut bytes);
    assert_eq!((&bytes, inb.load_u64(64), inb.load_u64(72)), (b"hello", 7, 8));
}

#[test]
fn posted_copies_of_all_kinds_go_through_the_queue() {
    let (out, mut reader, inb, _) = queue();
    let pattern: Vec<u8> = (0..9000_u32).map(|byte| byte.to_le_bytes()[0] ^ 0x5a).collect();
    let shared = new_segment("from", 12288).unwrap();
    Outbound::sealed(&shared, 12288).unwrap().write(100, &pattern);
    out.copy_from(1, &Inbound::sealed(&shared, 12288).unwrap(), 100, 9000);
    out.write_guarded(20_001, &pattern).unwrap();
    out.write_by(crate::copy::Strategy::NonTemporal, 40_001, &pattern);
    land_all(&mut reader);
    for offset in [1, 20_001, 40_001] {
        let mut bytes = vec![0; 9000];
        inb.read(offset, &mut bytes);
        assert_eq!(bytes, pattern, "at {offset}");
    }
}

#[test]
#[should_panic(expected = "outside the segment")]
fn posted_store_outside_of_the_segment_panics() {
    let (out, ..) = queue();
    out.write(usize::try_from(SEGMENT).unwrap() - 4, b"hello");
}

#[test]
fn posted_store_waits_for_room_and_is_dropped_when_none_comes() {
    let (out, mut reader, inb, segment) = queue();
    let other = Outbound::map(&segment).unwrap();
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| {
            for round in 1..2000_u64 {
                other.write(0, &round.to_le_bytes().repeat(256));
            }
            other.store_u64(8192, 1);
        });
        while inb.load_u64(8192) == 0 {
            land_all(&mut reader);
        }
        storing.join().unwrap();
    });
    let begin = std::time::Instant::now();
    for _ in 0..200 {
        out.write(0, &[1; 2048]);
    }
    assert!(begin.elapsed() < std::time::Duration::from_secs(8), "it waits once");
    assert_eq!(reader.take(now()), Err(Garbage), "it was given up");
}

/// A queue that holds little fills up: what is stored behind that says so, until its writer pauses.
#[test]
fn posted_writer_that_waited_for_room_says_so_until_it_pauses() {
    let memory = new_segment("memory", SEGMENT).unwrap();
    let fd = create_with(DEPTH_MIN).unwrap();
    let mut reader = Reader::new(&fd, &Segment::sealed(memory, SEGMENT)).unwrap();
    let info =
        SegmentInfo { memory: MemoryKind::Queue, posted_ns: 1, lossy: true, ..SegmentInfo::sealed(SEGMENT) };
    let out = Outbound::map(&Segment { fd, info }).unwrap();
    let take = |reader: &mut Reader| {
        let entry = reader.take(now()).unwrap()?;
        reader.free(entry.end);
        Some(entry)
    };
    out.write(0, &[1; 2 * PIECE]);
    let first = take(&mut reader).unwrap();
    assert!(!first.held_up);
    let bytes = vec![2; 20 * PIECE];
    let (mut taken, mut held_up, mut deepest) = (0, 0, 0);
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| out.write(0, &bytes));
        while taken < 21 * PIECE {
            let Some(entry) = reader.take(now()).unwrap() else { continue };
            let What::Store { len, .. } = entry.what else { panic!("no fence was stored") };
            // The writer stands still meanwhile, with as much under way as may be.
            std::thread::sleep(std::time::Duration::from_millis(1));
            deepest = deepest
                .max(reader.mapping.word64(TAIL).load(core::sync::atomic::Ordering::Acquire) - entry.begin);
            (taken, held_up) = (taken + len, held_up + usize::from(entry.held_up));
            reader.free(entry.end);
        }
        storing.join().unwrap();
    });
    assert!(deepest <= DEPTH_MIN.into(), "{deepest} bytes");
    assert!(held_up > 10, "{held_up} of 20");
    std::thread::sleep(std::time::Duration::from_millis(2));
    out.write(0, &[3; 8]);
    assert!(!take(&mut reader).unwrap().held_up);
}

#[test]
fn posted_store_of_a_dropped_queue_costs_no_time() {
    let (out, reader, inb, _) = queue();
    drop(reader);
    let begin = std::time::Instant::now();
    (0..1000).for_each(|_| out.write(0, &[1; 2048]));
    assert!(begin.elapsed() < std::time::Duration::from_secs(1));
    assert_eq!(inb.load_u64(0), 0);
}

#[test]
fn posted_wake_and_store_end_a_sleep() {
    let (out, mut reader, _, _) = queue();
    let waker = Waker::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            out.store_u64(0, 1);
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.wake();
        });
        let mut found = None;
        while found.is_none() {
            let value = waker.value();
            reader.arm();
            found = reader.take(now()).unwrap();
            if found.is_none() {
                sleep([&reader].into_iter(), false, (&waker, value), None, 0);
            }
        }
        while waker.value() == 0 {
            reader.arm();
            sleep([&reader].into_iter(), false, (&waker, 0), None, 0);
        }
    });
    let begin = now();
    sleep([&reader].into_iter(), false, (&waker, 1), Some(begin + 3_000_000), 10_000_000);
    assert!(now() >= begin + 3_000_000);
    // Nobody wakes it, as if the writer had been killed after its store.
    sleep([&reader].into_iter(), false, (&waker, 1), None, 5_000_000);
    assert!(now() >= begin + 8_000_000);
}

#[test]
#[cfg(not(miri))]
fn posted_writer_that_is_killed_keeps_no_other_from_storing() {
    let (out, mut reader, inb, _) = queue();
    for round in 1..30_u64 {
        // SAFETY: the child only stores into shared memory.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            crate::lock::after_fork();
            loop {
                out.write(4096, &[7; 3000]);
                out.store_fence();
            }
        }
        let until = std::time::Instant::now() + std::time::Duration::from_micros(500 + 137 * round);
        while std::time::Instant::now() < until {
            land_all(&mut reader);
        }
        // SAFETY: a child of this process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: the same.
        unsafe { libc::waitpid(pid, core::ptr::null_mut(), 0) };
        land_all(&mut reader);
        out.store_u64(0, round);
        land_all(&mut reader);
        assert_eq!(inb.load_u64(0), round);
    }
}

#[test]
fn posted_queue_of_another_length_or_without_seals_is_refused() {
    let (.., segment) = queue();
    assert!(Inbound::map(&segment).is_err());
    let info = segment.info;
    for len in [4096, LEN - 4096, LEN + 4096] {
        let fd = new_segment("queue", len).unwrap();
        assert!(Outbound::map(&Segment { fd, info }).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 200 }, ..ProptestConfig::default() })]

    /// With any bytes in the memfd: entries that are taken lie inside the segment, and both ends go on working.
    #[test]
    fn posted_queue_full_of_rubbish_hurts_nobody(
        words in prop::collection::vec((0..24_usize, prop_oneof![any::<u64>(), 0..300_000_u64]), 0..12),
        entries in prop::collection::vec(prop_oneof![any::<u64>(), 0..5000_u64, Just(1 << 32 | 64), Just(2 << 32)], 0..64),
    ) {
        let (out, mut reader, _, segment) = queue();
        let raw = Outbound::sealed(segment.fd.as_fd(), LEN).unwrap();
        for (index, word) in entries.iter().enumerate() {
            raw.store_u64(WORDS + 8 * index, *word);
        }
        raw.store_u64(TAIL, 8 * entries.len() as u64);
        for (word, value) in words {
            // Not the lock: with a lock that is held for ever each store waits.
            if 8 * word != LOCK {
                raw.store_u64(8 * word, value);
            }
        }
        for _ in 0..100 {
            let Ok(Some(entry)) = reader.take(now()) else { break };
            if let What::Store { offset, len } = entry.what {
                prop_assert!(offset + len <= usize::try_from(SEGMENT).unwrap());
                reader.land(&entry, 0, len);
                reader.land(&entry, len / 2, len - len / 2);
            }
            reader.free(entry.end);
        }
        drop(reader);
        out.write(0, &[1; 100]);
        out.fence();
    }
}
