//! Rig for tests of an engine's thread: programs with real submission queues, states and rings, and a copier that only
//! records its calls. No thread runs: a test executes its rounds one by one.

use crate::offload::client::Client;
use crate::offload::copy::{CopyEngine, Places};
use crate::offload::poller::Poller;
use crate::offload::table::Table;
use crate::offload::tally::Tally;
use crate::offload::work::Work;
use crate::offload::worker::Worker;
use crate::session_id::SessionId;
use core::sync::atomic::AtomicU32;
use crosslane_shm::mem::new_segment;
use crosslane_shm::peer::Peer;
use crosslane_shm::remote::{Remote, RemoteError, Span};
use crosslane_shm::ring::{Consumer, Duplex, Producer};
use crosslane_shm::state::{State, StateView};
use crosslane_shm::submission::{Descriptor, RequestId, SubmissionQueue, Way};
use crosslane_shm::wake::Receiver;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::local::{STATUS_ALIVE, status_word};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::segment_len;
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;

pub(super) const RING: u64 = 1 << 20;
const KEY: u64 = 77;
/// A transfer that outlasts every test.
pub(super) const ENDLESS: usize = 1 << 30;

/// A piece that was moved: program, stream, bytes.
pub(super) type Moved = (usize, usize, usize);

/// Number of a stream whose copies never end.
pub(super) const HANGS: usize = 4000;

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Moved>>>);

impl Recorder {
    fn copy(&self, program: (&Remote, &[Span]), ring: Places<'_>) -> Poll<Result<(), RemoteError>> {
        let stream = usize::try_from(program.1[0].address / ENDLESS as u64).unwrap();
        let bytes = ring.iter().map(|place| place.1).sum();
        if stream == HANGS {
            return Poll::Pending;
        }
        self.0.lock().unwrap().push((usize::try_from(program.0.nonce).unwrap(), stream, bytes));
        Poll::Ready(Ok(()))
    }
}

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
        self.copy(from, to.1)
    }

    fn store(
        &mut self,
        _: u64,
        from: (&Inbound, Places<'_>),
        to: (&Remote, &[Span]),
    ) -> Poll<Result<(), RemoteError>> {
        self.copy(to, from.1)
    }

    fn poll(&mut self, _: u64) -> Poll<Result<(), RemoteError>> {
        Poll::Pending
    }
}

/// A program's stream, with its far end.
pub(super) struct Stream {
    pub(super) far: Consumer,
    ring: Inbound,
    credits: Outbound,
    pub(super) request: Option<RequestId>,
    source: Producer,
    pub(super) work: Arc<Work>,
}

impl Stream {
    /// The far end sends these bytes.
    pub(super) fn come(&self, bytes: &[u8]) {
        let credits = Duplex { words: &self.ring, consumer: &self.far, rides: false };
        assert_eq!(self.source.push(&self.credits, &credits, Kind::Data, bytes, 0), Ok(bytes.len()));
    }
}

pub(super) struct Program {
    pub(super) queue: SubmissionQueue,
    pub(super) streams: Vec<Stream>,
}

pub(super) struct Rig {
    pub(super) worker: Worker,
    pub(super) programs: Vec<Program>,
    log: Recorder,
    _words: Sender<crate::offload::worker::Word>,
}

impl Rig {
    /// Programs with these numbers of streams, which send or receive.
    pub(super) fn new(way: Way, streams: &[usize]) -> Self {
        let (words, inbox) = channel();
        let (log, receiver) = (Recorder::default(), Arc::new(Receiver::new().unwrap()));
        let mut worker = Worker {
            way,
            words: inbox,
            poller: Poller::new(receiver),
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

    /// Submits a transfer of `len` bytes for a stream, without a wake.
    pub(super) fn submit(&mut self, program: usize, stream: usize, len: usize) -> RequestId {
        let it = &mut self.programs[program];
        let mut descriptor = Descriptor { handle: handle(stream), ..Descriptor::default() };
        descriptor.spans[0] = Span { address: (stream * ENDLESS) as u64, len };
        let (request, _) = it.queue.submit(self.worker.way, stream, &descriptor);
        it.streams[stream].request = Some(request);
        request
    }

    pub(super) fn is_idle(&self, program: usize, stream: usize) -> bool {
        let it = &self.programs[program];
        it.streams[stream].request.is_none_or(|request| it.queue.has_ended(request))
    }

    /// Takes new transfers, gives every program its turn, and lets all far ends except those `asleep` read.
    pub(super) fn round(&mut self, asleep: impl Fn(usize, usize) -> bool) {
        self.worker.collect();
        self.worker.round();
        for (number, program) in self.programs.iter().enumerate() {
            let streams = program.streams.iter().enumerate().filter(|(at, _)| !asleep(number, *at));
            for (_, it) in streams {
                while it.far.head(&it.ring).unwrap().is_some() {
                    it.far.consume().unwrap();
                }
                it.far.give_credit(&it.credits, true);
            }
        }
    }

    pub(super) fn moved(&self) -> Vec<Moved> {
        self.log.0.lock().unwrap().clone()
    }

    /// Bytes that a program has moved.
    pub(super) fn bytes_of(&self, program: usize) -> usize {
        self.moved().iter().filter(|moved| moved.0 == program).map(|moved| moved.2).sum()
    }
}

pub(super) fn handle(stream: usize) -> u32 {
    u32::try_from(stream).unwrap() + 1
}

fn program(worker: &mut Worker, number: usize, streams: usize) -> Program {
    let (queue, fd) = SubmissionQueue::create().unwrap();
    let session = SessionId(number as u64 + 1);
    let peer = Arc::new(Peer::own().unwrap());
    let remote = Remote { peer, guard: 0, nonce: number as u64 };
    let table = Table {
        queue: Arc::new(SubmissionQueue::open(&fd).unwrap()),
        completions: Arc::new(Receiver::new().unwrap()),
    };
    let mut client = Client::new(session, remote, table, Arc::new(crate::eventfd::new().unwrap()));
    let streams = (0..streams).map(|stream| {
        let it = stream_of();
        client.works.insert(handle(stream), it.work.clone());
        it
    });
    let streams = streams.collect();
    worker.clients.insert(session, client);
    Program { queue, streams }
}

fn stream_of() -> Stream {
    let state = StateView::new(State::create().unwrap().1).unwrap().engine_state().unwrap();
    let len = segment_len(RING);
    let [there, back] = ["there", "back"].map(|name| new_segment(name, len).unwrap());
    let out = |fd| Outbound::sealed(fd, len).unwrap();
    let into = |fd| Inbound::sealed(fd, len).unwrap();
    let (producer, consumer) = state.rings();
    producer.resume(0, RING, RING, KEY, 0);
    consumer.resume(0, RING, RING, KEY, 0);
    let (far, source) = (Consumer::default(), Producer::default());
    far.resume(0, RING, RING, KEY, 0);
    source.resume(0, RING, RING, KEY, 0);
    let work = Work {
        generation: 0,
        inbound: into(&back),
        outbound: out(&there),
        ring_max: RING,
        rx_key: KEY,
        tx_key: KEY,
        state,
        status: AtomicU32::new(status_word(0, STATUS_ALIVE)),
        _mappings: crate::quota::Charge::of_nothing(),
    };
    Stream { far, ring: into(&there), credits: out(&back), request: None, source, work: Arc::new(work) }
}
