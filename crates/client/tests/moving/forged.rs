//! Words and descriptors of zero copy that a peer forges: the stream ends, or goes on by the ring, soon; nothing else
//! happens.

use crate::offers::offer;
use crate::rig::{Rig, receive, send, tid};
use crate::zcopy::{announce, buffer, check, drain, place, registered};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use crosslane_client::buffers::{Located, OpenBuffer, locate_bytes};
use crosslane_client::end::zcopy::announce::{Attempt, Behind, Stand};
use crosslane_shm::FarBuffer;
use crosslane_wire::buffer::seal;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{MODE, RD_DONE, SEND_SM, SRC_OFF, VERDICT, WR_CLAIM};
use crosslane_wire::zcopy::{DESCRIPTOR, Descriptor, LONGEST, word};
use crosslane_wire::{BufferId, Reach};
use std::time::{Duration, Instant};

const RING_MAX: u64 = 1 << 20;
/// What a source or a sink that stays away holds a call up for, at most, with time to spare.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn more_was_fetched_than_was_announced_or_less_than_before() {
    for (first, then) in [(None, 100_001), (None, u32::MAX), (Some(5000), 4999), (Some(5000), 0)] {
        let rig = Rig::new(RING_MAX, false);
        let (client, forge) = (&rig.ends[0], |value| rig.mover().forge(0, RD_DONE, word(1, value)));
        let source = registered(0, 100_064);
        let mut open = announce(client, &source);
        if let Some(first) = first {
            forge(first);
            assert_eq!(client.stand(tid(), &mut open), Ok(Stand::Open(first)));
        }
        forge(then);
        assert!(
            matches!(client.stand(tid(), &mut open), Err(Failure::InvalidReference(_))),
            "{first:?} {then}"
        );
        assert_eq!(send(client, b"x"), Err(Failure::Reset));
        assert!(client.ready(tid()).error);
    }
}

#[test]
fn words_about_other_announcements_say_nothing() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let source = registered(0, 100_000);
    let mut open = announce(client, &source);
    for sequence in [0, 2, 3, 1000, u32::MAX] {
        rig.mover().forge(0, RD_DONE, word(sequence, 7));
        rig.mover().forge(0, SEND_SM, word(sequence, 7));
        assert_eq!(client.stand(tid(), &mut open), Ok(Stand::Open(0)), "{sequence}");
    }
    assert_eq!(drain(server, 10_000), source[..]);
    assert_eq!(client.stand(tid(), &mut open), Ok(Stand::Over(100_000)));
}

/// The bytes of a descriptor.
fn described(buffer: BufferId, at: u64, len: u32) -> Descriptor {
    Descriptor { sequence: 1, len, buffer, at, line: 0, units: 1 }
}

#[test]
fn memory_that_is_none_comes_by_the_ring() {
    let (loads, stores, unshared) = (buffer(0, 8192), OpenBuffer::new(8192).unwrap(), buffer(0, 8192));
    let (loads, stores) = (locate_bytes(&loads).unwrap(), stores.locate(0, 8192).unwrap());
    let unshared = locate_bytes(&unshared).unwrap();
    for (of, at, len) in [
        (loads.id, 8192, 4096),
        (loads.id, 4097, 8192),
        (loads.id, u64::MAX - u64::from(LONGEST), LONGEST),
        (stores.id, 0, 4096),
        (unshared.id, 0, 4096),
        (BufferId(0), 0, 4096),
        (BufferId(u64::MAX), 0, 4096),
        (BufferId(std::process::id().into()), loads.offset, 4096),
    ] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        client.export_buffer(&loads).unwrap();
        client.export_buffer(&stores).unwrap();
        rig.announce(Kind::SrcAvail, &described(of, at, len).encode(), b"carried");
        assert_eq!(receive(server, 100_000).unwrap(), b"carried", "{of:?} {at}");
        assert_eq!(receive(server, 100_000), Err(Failure::WouldBlock));
        assert!(!server.ready(tid()).readable && !server.maybe_readable());
        rig.mover().forge(1, SRC_OFF, word(1, 0));
        send(client, b"behind").unwrap();
        assert_eq!(receive(server, 100_000).unwrap(), b"behind", "{of:?} {at}");
    }
}

#[test]
fn source_that_was_refused_often_has_nobody_asked_for_its_buffers() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    for round in 1..10 {
        let descriptor = Descriptor { sequence: round, ..described(BufferId(77), 0, 4096) };
        rig.announce(Kind::SrcAvail, &descriptor.encode(), b"carried");
        assert_eq!(receive(server, 100).unwrap(), b"carried");
        assert_eq!(receive(server, 100), Err(Failure::WouldBlock));
        assert_eq!(rig.hosts[1].asked.load(Relaxed), round.min(3), "questions to the daemon");
        rig.mover().forge(1, SRC_OFF, word(round, 0));
        send(client, b"behind").unwrap();
        assert_eq!(receive(server, 100).unwrap(), b"behind");
    }
}

#[test]
fn descriptors_that_cannot_be_end_the_stream() {
    let good = described(BufferId(1), 0, 4096).encode();
    let changed = |at: usize, value: u64| {
        let mut bytes = good;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for bytes in [
        changed(0, 4096 << 32),
        changed(0, 1),
        changed(0, u64::from(LONGEST + 1) << 32 | 1),
        changed(0, u64::from(1u32 << 31 | 4096) << 32 | 1),
        changed(16, u64::MAX - 4094),
        changed(32, 63),
        changed(32, 1 << 32),
        [0xff; DESCRIPTOR as usize],
        [0; DESCRIPTOR as usize],
    ] {
        for kind in [Kind::SrcAvail, Kind::SinkAvail] {
            let rig = Rig::new(RING_MAX, false);
            rig.announce(kind, &bytes, b"");
            let outcome = receive(&rig.ends[1], 100);
            assert!(matches!(outcome, Err(Failure::Violation(_))), "{kind:?} {bytes:?} {outcome:?}");
            assert_eq!(receive(&rig.ends[1], 100), Err(Failure::Reset));
        }
    }
}

#[test]
fn source_that_withdraws_and_says_nothing_or_nonsense_is_given_up() {
    for verdict in [None, Some(word(1, 4999)), Some(word(1, 5001)), Some(word(1, u32::MAX)), Some(word(2, 0))]
    {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let source = registered(0, 100_000);
        announce(client, &source);
        // 64 of them lie in the record.
        check(&receive(server, 5064).unwrap(), 0);
        if let Some(verdict) = verdict {
            rig.mover().forge(1, VERDICT, verdict);
        }
        rig.mover().forge(1, SRC_OFF, word(1, 0));
        let start = Instant::now();
        let outcome = receive(server, 100);
        assert!(
            matches!(outcome, Err(Failure::Reset | Failure::InvalidReference(_))),
            "{verdict:?} {outcome:?}"
        );
        assert!(start.elapsed() < SOON);
        assert_eq!(receive(server, 100), Err(Failure::Reset));
    }
}

/// What may be written behind a buffer by whoever has it mapped: forged completions of what `rig`'s client offered, with the
/// seal of its circuit or another one.
pub(crate) struct Forger(FarBuffer, pub(crate) [u64; 2]);

impl Forger {
    pub(crate) fn of(rig: &Rig, place: &Located) -> Self {
        let memory = place.share(|fd| fd.try_clone_to_owned().unwrap()).unwrap();
        Self(FarBuffer::map(memory, place.len, Reach::Store).unwrap(), rig.keys())
    }

    pub(crate) fn say(&self, line: u32, word: u64, sealed: bool) {
        let [writes, reads] = self.1;
        let good = seal(writes, reads, word);
        self.0.land(line, word, if sealed { good } else { good ^ 1 }).unwrap();
    }
}

#[test]
fn more_was_written_than_was_offered() {
    for takes_back in [false, true] {
        let rig = Rig::new(RING_MAX, false);
        let (client, answer) = (&rig.ends[0], OpenBuffer::new(4096).unwrap());
        let line = offer(client, b"request", &answer);
        let forger = Forger::of(&rig, &answer.locate(0, 4096).unwrap());
        let sequence = client.shared().zcopy.offered.load(Relaxed);
        for nothing in [word(sequence + 1, 9), word(sequence - 1, 9), word(u32::MAX, 9)] {
            forger.say(line.number(), nothing, true);
            assert_eq!(client.take_landed(tid(), &line), Ok(None), "{nothing:x}");
        }
        forger.say(line.number(), word(sequence, 4097), true);
        let outcome =
            if takes_back { client.take_back(tid(), &line) } else { client.take_landed(tid(), &line) };
        assert!(matches!(outcome, Err(Failure::InvalidReference(_))), "{outcome:?}");
        assert_eq!(receive(client, 1), Err(Failure::Reset));
    }
}

#[test]
fn offer_is_not_answered_by_another_circuit() {
    let rig = Rig::new(RING_MAX, false);
    let ([client, server], answer) = (&rig.ends, OpenBuffer::new(4096).unwrap());
    let line = offer(client, b"request", &answer);
    let sequence = client.shared().zcopy.offered.load(Relaxed);
    let mut forger = Forger::of(&rig, &answer.locate(0, 4096).unwrap());
    let [writes, reads] = forger.1;
    for (keys, sealed) in
        [(forger.1, false), ([reads, writes], true), ([writes, writes], true), ([0, 0], true)]
    {
        forger.1 = keys;
        for bytes in [0, 9, 4096, 4097, u32::MAX] {
            forger.say(line.number(), word(sequence, bytes), sealed);
            assert_eq!(client.take_landed(tid(), &line), Ok(None), "{bytes}");
        }
    }
    assert_eq!(receive(server, 100).unwrap(), b"request");
    send(server, b"answer").unwrap();
    assert_eq!(client.take_landed(tid(), &line), Ok(Some(6)));
}

#[test]
fn offer_ends_with_nothing_written_and_the_answer_comes_by_the_ring() {
    let rig = Rig::new(RING_MAX, false);
    let ([client, server], answer) = (&rig.ends, OpenBuffer::new(4096).unwrap());
    let line = offer(client, b"request", &answer);
    let sequence = client.shared().zcopy.offered.load(Relaxed);
    Forger::of(&rig, &answer.locate(0, 4096).unwrap()).say(line.number(), word(sequence, 0), true);
    assert_eq!(client.take_landed(tid(), &line), Ok(None));
    assert!(!client.has_landed(&line), "nobody spins for it");
    send(server, b"answer").unwrap();
    assert_eq!((client.take_back(tid(), &line), drain(client, 100)), (Ok(None), b"answer".to_vec()));
}

#[test]
fn claim_that_is_never_given_back_holds_up_for_a_while_only() {
    let rig = Rig::new(RING_MAX, false);
    let (client, answer) = (&rig.ends[0], OpenBuffer::new(4096).unwrap());
    let line = offer(client, b"request", &answer);
    rig.mover().forge(0, WR_CLAIM, word(1, 0));
    let start = Instant::now();
    assert_eq!(client.take_back(tid(), &line), Err(Failure::Reset));
    assert!(start.elapsed() < SOON);
    assert_eq!(receive(client, 1), Err(Failure::Reset));
}

#[test]
fn places_that_are_none_are_not_written_and_the_answer_comes_by_the_ring() {
    let (loads, stores) = (buffer(0, 8192), OpenBuffer::new(8192).unwrap());
    let (loads, stores) = (locate_bytes(&loads).unwrap(), stores.locate(0, 8192).unwrap());
    for (of, at, len) in
        [(loads.id, 0, 4096), (stores.id, 8192, 4096), (stores.id, 8190, LONGEST), (BufferId(77), 0, 4096)]
    {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        client.refresh(tid());
        client.export_buffer(&loads).unwrap();
        client.export_buffer(&stores).unwrap();
        let units = client.shared().consumer.units();
        let descriptor = Descriptor { units, ..described(of, at, len) };
        rig.announce(Kind::SinkAvail, &descriptor.encode(), b"request");
        assert_eq!(receive(server, 100).unwrap(), b"request");
        assert_eq!(send(server, b"answer"), Ok(6), "{of:?} {at}");
        assert_eq!(drain(client, 100), b"answer", "{of:?} {at}");
    }
}

#[test]
fn sink_that_wants_the_ring_gets_it() {
    for mode in [1, u64::MAX] {
        let rig = Rig::new(RING_MAX, false);
        rig.mover().forge(0, MODE, mode);
        let source = registered(0, 50_000);
        let attempt =
            rig.ends[0].announce(tid(), &source, place(&rig.ends[0], &source), Behind::Nothing).unwrap();
        assert!(matches!(attempt, Attempt::Ring), "{attempt:?}");
    }
}
