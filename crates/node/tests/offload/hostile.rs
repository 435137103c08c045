//! Programs that write anything they like where the engine looks.

use crate::support::joined::{Joined, join as join_raw};
use crate::support::{Client, Lab, until};
use crate::{check_flow, join, pair};
use crosslane_shm::mem::new_segment;
use crosslane_shm::remote::Span;
use crosslane_shm::state;
use crosslane_shm::submission::{Descriptor, SPANS, SubmissionQueue, Way};
use crosslane_shm::wake::Waker;
use crosslane_shm::{Outbound, Store};
use crosslane_wire::buffer::memory_len;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{BufferId, Reach};
use std::os::fd::{AsFd, OwnedFd};

/// A program that has consented, and whose rings the engine knows.
struct Mad {
    joined: Joined,
    queue: SubmissionQueue,
    queue_fd: OwnedFd,
    wakers: [Waker; 2],
    handle: u32,
}

/// Numbers that look like any.
struct Dice(fastrand::Rng);

impl Dice {
    fn next(&mut self) -> u64 {
        let word = self.0.u64(..);
        // Small numbers and those around powers of two are the ones that get past checks.
        match word % 5 {
            0 => word >> 32 & 0xff,
            1 => 1 << (word >> 32 & 63),
            2 => (1_u64 << (word >> 32 & 63)).wrapping_sub(64),
            3 => word >> (word & 63),
            _ => word,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn consent(client: &mut Client) -> (SubmissionQueue, OwnedFd, [Waker; 2]) {
    let (queue, fd) = SubmissionQueue::create().unwrap();
    let (reply, fds) = client.ask(&Request::Offload, &[fd.as_fd()]);
    let Reply::Offload { words, .. } = reply else { panic!("{reply:?}") };
    let [out, into, _bell, _lease] = <[OwnedFd; 4]>::try_from(fds).unwrap();
    (queue, fd, [Waker::of(out, words[0]).unwrap(), Waker::of(into, words[1]).unwrap()])
}

fn mad(lab: &Lab) -> Mad {
    let mut joined = join_raw(lab, 2);
    let (queue, queue_fd, wakers) = consent(&mut joined.client);
    let request = Request::RegisterRings { circuit: joined.near.id, token: joined.near.token, generation: 0 };
    let (reply, _) = joined.client.ask(&request, &[]);
    let Reply::RegisteredRings { handle } = reply else { panic!("{reply:?}") };
    assert_ne!(handle, 0);
    Mad { joined, queue, queue_fd, wakers, handle }
}

/// Bytes of a buffer that is registered.
const REGISTERED: u64 = 1 << 20;

/// What the daemon calls it, if it takes it.
fn register_buffer(client: &mut Client, buffer: BufferId, reach: Reach) -> u32 {
    let memory = new_segment("registered", memory_len(REGISTERED)).unwrap();
    let (reply, _) =
        client.ask(&Request::RegisterBuffer { buffer, len: REGISTERED, reach }, &[memory.as_fd()]);
    let Reply::RegisteredBuffer { handle } = reply else { panic!("{reply:?}") };
    handle
}

#[test]
fn registration_of_no_buffer_or_too_much_is_not_taken() {
    let lab = pair();
    let mut mad = mad(&lab);
    assert_eq!(
        register_buffer(&mut mad.joined.client, BufferId(1), Reach::Load),
        0,
        "others can store there"
    );
    let mut stranger = Client::hello(&lab.control(1), "stranger");
    assert_eq!(register_buffer(&mut stranger, BufferId(1), Reach::Store), 0, "it has not consented");
    let taken: Vec<u32> =
        (0..70).map(|at| register_buffer(&mut mad.joined.client, BufferId(at), Reach::Store)).collect();
    assert!(taken[..64].iter().all(|handle| *handle != 0) && taken[64..].iter().all(|handle| *handle == 0));
    assert_eq!(register_buffer(&mut mad.joined.client, BufferId(3), Reach::Store), taken[3], "known");
    mad.joined.client.tell(&Request::WithdrawBuffer { buffer: BufferId(3) }, &[]);
    let again = register_buffer(&mut mad.joined.client, BufferId(3), Reach::Store);
    assert!(again != 0 && again != taken[3]);
}

fn submit(mad: &Mad, way: Way, index: usize, descriptor: &Descriptor) {
    mad.queue.submit(way, index, descriptor);
    mad.wakers[way as usize].wake();
}

#[test]
fn program_without_a_guard_gets_nothing_moved() {
    let lab = pair();
    let mad = mad(&lab);
    let bytes = vec![7; 100_000];
    let spans = [Span { address: bytes.as_ptr() as u64, len: bytes.len() }; SPANS];
    let descriptor = Descriptor { handle: mad.handle, buffer: 0, spans, rung: 0 };
    for way in [Way::Out, Way::In] {
        let (request, _) = mad.queue.submit(way, 3, &descriptor);
        mad.wakers[way as usize].wake();
        until("it ends", || mad.queue.has_ended(request).then_some(()));
        assert_eq!(mad.queue.result(request).0, 0);
    }
}

#[test]
fn hostile_words_in_queue_and_state_leave_others_served() {
    let mut lab = pair();
    let (client, server) = join(&lab, 1, 2);
    let mut mad = mad(&lab);
    let registered = register_buffer(&mut mad.joined.client, BufferId(77), Reach::Store);
    assert_ne!(registered, 0);
    let desk_len = u64::try_from(rustix::fs::fstat(&mad.queue_fd).unwrap().st_size).unwrap();
    let queue = Outbound::sealed(&mad.queue_fd, desk_len).unwrap();
    let (_, memory) = mad.joined.near.state.as_ref().unwrap();
    let state = Outbound::sealed(memory, state::LEN).unwrap();
    let mut dice = Dice(fastrand::Rng::with_seed(1));
    for round in 0..3000 {
        for _ in 0..8 {
            state.store_u64(dice.below(state.len() / 8) * 8, dice.next());
        }
        for _ in 0..4 {
            let spans = [(); SPANS].map(|()| Span { address: dice.next(), len: dice.below(1 << 20) });
            let handle = if dice.below(4) == 0 { u32::try_from(dice.below(9)).unwrap() } else { mad.handle };
            let way = if dice.below(2) == 0 { Way::Out } else { Way::In };
            let (mut descriptor, index) =
                (Descriptor { handle, buffer: 0, spans, rung: dice.next() }, dice.below(8));
            if dice.below(2) == 0 {
                descriptor.buffer = registered + u32::try_from(dice.below(2)).unwrap();
                descriptor.spans.iter_mut().for_each(|span| span.address %= 2 * REGISTERED);
            }
            submit(&mad, way, index, &descriptor);
        }
        for _ in 0..16 {
            queue.store_u64(dice.below(usize::try_from(desk_len).unwrap() / 8) * 8, dice.next());
        }
        // The ring's marks and credits, too.
        mad.joined.far.outbound.store_u64(dice.below(512) * 8, dice.next());
        if round % 1000 == 0 {
            check_flow(&client, &server, round, &[300_000; 4], 1 << 20);
        }
    }
    check_flow(&client, &server, 1, &[1 << 20; 4], 1 << 20);
    drop(mad);
    check_flow(&server, &client, 2, &[1 << 20; 4], 1 << 20);
    assert!(lab.daemon(1).try_wait().unwrap().is_none() && !lab.log(1).contains("panicked"));
}

#[test]
fn engine_leaves_others_circuits_alone() {
    let lab = pair();
    let mine = mad(&lab);
    let mut stranger = Client::hello(&lab.control(1), "stranger");
    let _kept = consent(&mut stranger);
    let near = &mine.joined.near;
    let other = mine.joined.far.token;
    for (circuit, token, generation) in
        [(near.id, 0, 0), (near.id, near.token ^ 1, 0), (near.id, other, 0), (near.id, near.token, 1)]
    {
        let (reply, _) = stranger.ask(&Request::RegisterRings { circuit, token, generation }, &[]);
        assert_eq!(reply, Reply::RegisteredRings { handle: 0 });
    }
    let (reply, _) = stranger.ask(&Request::Offload, &[]);
    assert!(matches!(reply, Reply::Error { .. }), "{reply:?}");
}
