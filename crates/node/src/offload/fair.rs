//! Tests of the turns that programs and their transfers get, with real desks, arenas and rings, and a copier that only
//! writes down what it is asked for. No clock is looked at: shares are bytes, and waiting is what others moved meanwhile.

use super::client::{Client, Table};
use super::copy::{CopyEngine, PIECE, Places};
use super::ears::Ears;
use super::work::Work;
use super::worker::{Tally, Worker};
use crate::eventfd;
use crate::session::SessionId;
use core::sync::atomic::AtomicU32;
use crosslane_shm::arena::{Arena, ArenaDesk};
use crosslane_shm::desk::{Desk, Order, Ticket, Way};
use crosslane_shm::mem::new_slice;
use crosslane_shm::remote::{Remote, RemoteError, Span};
use crosslane_shm::ring::Consumer;
use crosslane_shm::{Caching, Inbound, Outbound};
use crosslane_wire::local::{LIFE_ALIVE, life_word};
use crosslane_wire::slice::slice_len;
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;

const RING: u64 = 1 << 20;
const KEY: u64 = 77;
/// A transfer that outlasts every test.
const ENDLESS: usize = 1 << 30;
const STREAMS: usize = 1000;

/// A piece that was moved: program, stream, bytes.
type Moved = (usize, usize, usize);

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Moved>>>);

impl CopyEngine for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn fetch(
        &mut self,
        _: u64,
        from: (&Remote, &[Span]),
        to: (&Outbound, Places<'_>),
    ) -> Poll<Result<(), RemoteError>> {
        let stream = usize::try_from(from.1[0].address / ENDLESS as u64).unwrap();
        let bytes = to.1.iter().map(|place| place.1).sum();
        self.0.lock().unwrap().push((usize::try_from(from.0.pid).unwrap(), stream, bytes));
        Poll::Ready(Ok(()))
    }

    fn store(
        &mut self,
        _: u64,
        _: (&Inbound, Places<'_>),
        _: (&Remote, &[Span]),
    ) -> Poll<Result<(), RemoteError>> {
        unreachable!("nothing is received")
    }

    fn poll(&mut self, _: u64) -> Poll<Result<(), RemoteError>> {
        Poll::Ready(Ok(()))
    }
}

/// A program's stream, with its far end.
struct Stream {
    far: Consumer,
    ring: Inbound,
    credits: Outbound,
    ticket: Option<Ticket>,
}

struct Program {
    desk: Desk,
    streams: Vec<Stream>,
}

struct Rig {
    worker: Worker,
    programs: Vec<Program>,
    log: Recorder,
    _words: Sender<super::worker::Word>,
}

impl Rig {
    /// Programs with so many streams each.
    fn new(streams: &[usize]) -> Self {
        let (words, inbox) = channel();
        let (log, door) = (Recorder::default(), Arc::new(eventfd::new().unwrap()));
        let mut worker = Worker {
            way: Way::Out,
            words: inbox,
            ears: Ears::new(door).unwrap(),
            engine: Box::new(log.clone()),
            limit_ns: u32::MAX,
            tally: Arc::new(Tally::default()),
            clients: BTreeMap::new(),
            tag: 0,
        };
        let programs = streams.iter().enumerate().map(|(number, &count)| program(&mut worker, number, count));
        let programs = programs.collect();
        Self { worker, programs, log, _words: words }
    }

    /// A stream of a program is to send `len` bytes.
    fn send(&mut self, program: usize, stream: usize, len: usize) {
        let it = &mut self.programs[program];
        let mut order = Order { handle: handle(stream), ..Order::default() };
        order.spans[0] = Span { address: (stream * ENDLESS) as u64, len };
        it.streams[stream].ticket = Some(it.desk.submit(Way::Out, stream, &order).0);
    }

    fn is_idle(&self, program: usize, stream: usize) -> bool {
        let it = &self.programs[program];
        it.streams[stream].ticket.is_none_or(|ticket| it.desk.has_ended(ticket))
    }

    /// What is new is taken, every program gets its turn, and all far ends but those `asleep` read what came.
    fn round(&mut self, asleep: impl Fn(usize, usize) -> bool) {
        self.worker.collect();
        self.worker.round();
        for (number, program) in self.programs.iter().enumerate() {
            for (_, it) in program.streams.iter().enumerate().filter(|(at, _)| !asleep(number, *at)) {
                while it.far.head(&it.ring).unwrap().is_some() {
                    it.far.consume().unwrap();
                }
                it.far.give_credit(&it.credits, true);
            }
        }
    }

    fn moved(&self) -> Vec<Moved> {
        self.log.0.lock().unwrap().clone()
    }

    /// Bytes that a program has moved.
    fn bytes_of(&self, program: usize) -> usize {
        self.moved().iter().filter(|moved| moved.0 == program).map(|moved| moved.2).sum()
    }
}

fn handle(stream: usize) -> u32 {
    u32::try_from(stream).unwrap() + 1
}

fn program(worker: &mut Worker, number: usize, streams: usize) -> Program {
    let (desk, fd) = Desk::create().unwrap();
    let (arena, arena_fd) = Arena::create().unwrap();
    let session = SessionId(number as u64 + 1);
    let remote = Remote { pid: i32::try_from(number).unwrap(), guard: 0, nonce: 0 };
    let table = Table { desk: Arc::new(Desk::open(&fd).unwrap()), bell: eventfd::new().unwrap() };
    let mut client = Client::new(session, remote, table, eventfd::new().unwrap(), eventfd::new().unwrap());
    let shared = Arc::new(ArenaDesk::map(&arena_fd).unwrap());
    let streams = (0..streams).map(|stream| {
        let (work, far) = stream_of(shared.clone(), arena.allot().unwrap());
        client.works.insert(handle(stream), Arc::new(work));
        far
    });
    let streams = streams.collect();
    worker.clients.insert(session, client);
    Program { desk, streams }
}

fn stream_of(arena: Arc<ArenaDesk>, slot: u32) -> (Work, Stream) {
    let len = slice_len(RING);
    let [there, back] = ["there", "back"].map(|name| new_slice(name, len).unwrap());
    let out = |fd| Outbound::map(fd, len, Caching::WriteBack).unwrap();
    let into = |fd| Inbound::map(fd, len).unwrap();
    let (producer, consumer) = arena.rings(slot).unwrap();
    producer.resume(0, RING, RING, KEY, 0);
    consumer.resume(0, RING, RING, KEY, 0);
    let far = Consumer::default();
    far.resume(0, RING, RING, KEY, 0);
    let work = Work {
        generation: 0,
        inbound: into(&back),
        outbound: out(&there),
        ring_max: RING,
        rx_key: KEY,
        tx_key: KEY,
        arena,
        slot,
        life: AtomicU32::new(life_word(0, LIFE_ALIVE)),
    };
    (work, Stream { far, ring: into(&there), credits: out(&back), ticket: None })
}

/// One of a thousand streams never ends, the others send a few pieces each. Between two pieces of any of them none of the
/// others moves more than one.
#[test]
fn a_stream_waits_for_one_piece_of_each_other_at_most() {
    let mut rig = Rig::new(&[STREAMS]);
    rig.send(0, 0, ENDLESS);
    (1..STREAMS).for_each(|stream| rig.send(0, stream, PIECE * (1 + stream % 5)));
    while !(1..STREAMS).all(|stream| rig.is_idle(0, stream)) {
        rig.round(|_, _| false);
    }
    let (moved, mut last) = (rig.moved(), vec![None; STREAMS]);
    assert_eq!(moved.len(), moved.iter().filter(|moved| moved.2 == PIECE).count(), "pieces were cut short");
    for (at, &(_, stream, _)) in moved.iter().enumerate() {
        if let Some(before) = last[stream].replace(at) {
            let mut between: Vec<_> = moved[before + 1..at].iter().map(|moved| moved.1).collect();
            let count = between.len();
            between.sort_unstable();
            between.dedup();
            assert_eq!(between.len(), count, "another stream came twice before stream {stream}");
        }
    }
    let greedy = moved.iter().filter(|moved| moved.1 == 0).count();
    assert!(greedy <= 6, "{greedy} pieces of the greedy stream, 5 of the longest other one");
}

/// A program with very many streams, one with one, and one whose pieces are a little less than a turn: no tricks pay.
#[test]
fn programs_have_equal_shares_whatever_they_ask_for() {
    const ROUNDS: usize = 300;
    let mut rig = Rig::new(&[1, STREAMS - 10, 8]);
    let mut last = [0; 3];
    rig.send(0, 0, ENDLESS);
    (0..STREAMS - 10).for_each(|stream| rig.send(1, stream, ENDLESS));
    for round in 1..=ROUNDS {
        for stream in 0..8 {
            if rig.is_idle(2, stream) {
                rig.send(2, stream, PIECE - 1000);
            }
        }
        rig.round(|_, _| false);
        let now = [0, 1, 2].map(|program| rig.bytes_of(program));
        for (program, (now, last)) in now.iter().zip(last).enumerate() {
            assert!(now - last < 2 * PIECE, "program {program} moved {} bytes in a turn", now - last);
            assert!(now.abs_diff(round * PIECE) < 2 * PIECE, "program {program} has {now} after {round}");
        }
        last = now;
    }
}

/// Streams whose far ends do not read hold up neither their own program's other streams nor another program.
#[test]
fn streams_that_nobody_reads_take_no_turns() {
    const ROUNDS: usize = 100;
    const STUCK: usize = 100;
    let mut rig = Rig::new(&[STUCK + 1, 1]);
    (0..=STUCK).for_each(|stream| rig.send(0, stream, ENDLESS));
    rig.send(1, 0, ENDLESS);
    let stuck = |program: usize, stream: usize| program == 0 && stream != STUCK;
    // Until their rings are full.
    let full = STUCK * usize::try_from(RING).unwrap() / PIECE;
    (0..2 * full).for_each(|_| rig.round(stuck));
    let before = rig.moved().len();
    (0..ROUNDS).for_each(|_| rig.round(stuck));
    let moved = rig.moved()[before..].to_vec();
    assert!(moved.iter().all(|moved| !stuck(moved.0, moved.1)), "a full ring took more");
    for program in [0, 1] {
        assert_eq!(moved.iter().filter(|moved| moved.0 == program).count(), ROUNDS, "of program {program}");
    }
}
