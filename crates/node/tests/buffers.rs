//! Buffers that the far end of a circuit may map, and nobody else.

mod support;

use crosslane_shm::buffer::{Located, OpenBuffer};
use crosslane_shm::far::FarBuffer;
use crosslane_shm::mem::new_segment;
use crosslane_wire::buffer::memory_len;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{BufferId, CircuitId, Reach};
use std::os::fd::{AsFd, OwnedFd};
use support::joined::{Joined, join, ring};
use support::*;

const LEN: u64 = 64 * 1024;

fn share(client: &mut Client, (circuit, token): (CircuitId, u64), located: &Located) -> Reply {
    let &Located { id: buffer, len, reach, .. } = located;
    let memory = located.share(|fd| fd.try_clone_to_owned().unwrap()).unwrap();
    client.ask(&Request::ExportBuffer { circuit, token, buffer, len, reach }, &[memory.as_fd()]).0
}

/// As [`share`], of fresh memory under any name.
fn share_as(client: &mut Client, key: (CircuitId, u64), number: u64) -> Reply {
    let memory = new_segment("buffer", memory_len(LEN)).unwrap();
    share_this(client, key, number, LEN, Reach::Store, &memory)
}

fn share_this(
    client: &mut Client,
    (circuit, token): (CircuitId, u64),
    number: u64,
    len: u64,
    reach: Reach,
    memory: &OwnedFd,
) -> Reply {
    let request = Request::ExportBuffer { circuit, token, buffer: BufferId(number), len, reach };
    client.ask(&request, &[memory.as_fd()]).0
}

fn want(client: &mut Client, (circuit, token): (CircuitId, u64), buffer: BufferId) -> Option<FarBuffer> {
    match client.ask(&Request::ImportBuffer { circuit, token, buffer }, &[]) {
        (Reply::Buffer { shape: Some((len, reach)) }, fds) => {
            Some(FarBuffer::map(&fds[0], len, reach).unwrap())
        }
        (Reply::Buffer { shape: None }, fds) => {
            assert!(fds.is_empty());
            None
        }
        (other, _) => panic!("{other:?}"),
    }
}

fn is_had(joined: &mut Joined) {
    let Joined { client, server, near, far, .. } = joined;
    let buffer = OpenBuffer::new(100_000).unwrap();
    let located = buffer.locate(0, 100_000).unwrap();
    assert!(want(server, far.key(), located.id).is_none(), "it is not shared yet");
    assert_eq!(share(client, near.key(), &located), Reply::Done);
    assert_eq!(share(client, near.key(), &located), Reply::Done, "once more does no harm");
    for _ in 0..2 {
        let far = want(server, far.key(), located.id).expect("it is shared");
        far.copy_in(99_990, b"hello").unwrap();
        let mut bytes = [0; 5];
        buffer.read(99_990, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
    client.tell(&Request::WithdrawBuffer { buffer: located.id }, &[]);
    until("it is gone", || want(server, far.key(), located.id).is_none().then_some(()));
}

#[test]
fn buffer_is_had_by_the_far_end_on_a_neighbour_until_it_is_taken_back() {
    let lab = Lab::pair();
    is_had(&mut join(&lab, 2));
    let mut joined = join(&lab, 2);
    std::mem::swap(&mut joined.client, &mut joined.server);
    std::mem::swap(&mut joined.near, &mut joined.far);
    is_had(&mut joined);
}

#[test]
fn buffer_is_had_by_the_far_end_on_this_host_too() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], "");
    lab.start(1);
    is_had(&mut join(&lab, 1));
}

#[test]
fn buffer_is_had_by_no_other_circuit_and_no_other_program() {
    let lab = Lab::pair();
    let (mut one, mut other) = (join(&lab, 2), join(&lab, 2));
    assert_eq!(share_as(&mut one.client, one.near.key(), 7), Reply::Done);
    let buffer = BufferId(7);
    assert!(want(&mut other.server, other.far.key(), buffer).is_none(), "by its own circuit");
    assert!(
        want(&mut other.server, (one.far.id, other.far.token), buffer).is_none(),
        "by a circuit of another's"
    );
    assert!(want(&mut one.client, one.near.key(), buffer).is_none(), "it is the far end that has it");
    assert!(want(&mut one.server, (CircuitId(u64::MAX), one.far.token), buffer).is_none());
    assert!(matches!(share_as(&mut other.client, (one.near.id, other.near.token), 8), Reply::Error { .. }));
    other.client.tell(&Request::WithdrawBuffer { buffer }, &[]);
    assert!(want(&mut one.server, one.far.key(), buffer).is_some(), "only its owner takes it back");
}

#[test]
fn buffer_goes_with_its_owner_and_with_the_circuit() {
    let lab = Lab::pair();
    let mut joined = join(&lab, 2);
    assert_eq!(share_as(&mut joined.client, joined.near.key(), 7), Reply::Done);
    assert!(want(&mut joined.server, joined.far.key(), BufferId(7)).is_some());
    joined.client.close(&joined.near, false);
    until("it is gone", || want(&mut joined.server, joined.far.key(), BufferId(7)).is_none().then_some(()));
    let mut joined = join(&lab, 2);
    assert_eq!(share_as(&mut joined.client, joined.near.key(), 7), Reply::Done);
    let Joined { client, mut server, far, sockets, .. } = joined;
    // As when its process ends.
    drop((client, sockets.0));
    until("it is gone", || want(&mut server, far.key(), BufferId(7)).is_none().then_some(()));
}

#[test]
fn buffer_that_is_none_is_refused() {
    let lab = Lab::pair();
    let mut joined = join(&lab, 2);
    let (client, circuit) = (&mut joined.client, joined.near.key());
    let good = new_segment("buffer", memory_len(LEN)).unwrap();
    let file: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
    let lies = [
        (LEN + 4096, Reach::Store, &good),
        (LEN - 1, Reach::Store, &good),
        (0, Reach::Store, &good),
        (u64::MAX, Reach::Store, &good),
        (u64::MAX - 4095, Reach::Store, &good),
        (LEN, Reach::Load, &good),
        (LEN, Reach::Store, &file),
    ];
    for (len, reach, memory) in lies {
        let reply = share_this(client, circuit, 9, len, reach, memory);
        assert!(matches!(reply, Reply::Error { .. }), "{len} {reach:?}: {reply:?}");
    }
    let (circuit, token) = circuit;
    let none = Request::ExportBuffer { circuit, token, buffer: BufferId(9), len: LEN, reach: Reach::Store };
    assert!(matches!(client.ask(&none, &[]).0, Reply::Error { .. }));
    assert_eq!(share_this(client, (circuit, token), 9, LEN, Reach::Store, &good), Reply::Done);
    let other = new_segment("buffer", memory_len(2 * LEN)).unwrap();
    let reply = share_this(client, (circuit, token), 9, 2 * LEN, Reach::Store, &other);
    assert!(matches!(reply, Reply::Error { .. }), "a name stays one buffer's");
}

#[test]
fn buffers_are_bounded_for_a_circuit_and_for_a_program() {
    let lab = Lab::pair();
    let mut joined = join(&lab, 2);
    for number in 1..=256 {
        assert_eq!(share_as(&mut joined.client, joined.near.key(), number), Reply::Done);
    }
    assert!(matches!(share_as(&mut joined.client, joined.near.key(), 257), Reply::Error { .. }));
    let known = (1..=256)
        .filter(|number| want(&mut joined.server, joined.far.key(), BufferId(*number)).is_some())
        .collect::<Vec<_>>();
    assert_eq!(known, (193..=256).collect::<Vec<_>>(), "the newest are kept");
    joined.client.tell(&Request::WithdrawBuffer { buffer: BufferId(1) }, &[]);
    assert_eq!(share_as(&mut joined.client, joined.near.key(), 257), Reply::Done);
}

#[test]
fn over_several_cables_there_are_none() {
    let lab = ring(4, "");
    let mut joined = join(&lab, 3);
    assert!(matches!(share_as(&mut joined.client, joined.near.key(), 7), Reply::Error { .. }));
    assert!(want(&mut joined.server, joined.far.key(), BufferId(7)).is_none());
}

#[test]
fn cut_cable_answers_for_no_buffer() {
    let mut lab = Lab::pair();
    let mut joined = join(&lab, 2);
    assert_eq!(share_as(&mut joined.client, joined.near.key(), 7), Reply::Done);
    lab.kill(1);
    until("it is gone", || want(&mut joined.server, joined.far.key(), BufferId(7)).is_none().then_some(()));
}
