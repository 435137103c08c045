//! A program that writes anything where the offload engine looks: its submission queue, its end's state, what it registers, its rings and
//! wakers. Other programs' transfers go on.
//!
//! It has no guard page, since it shares this process with the daemon: what an engine would store into a program that
//! lies to it about itself would land in the test. So plain memory is refused, and registered buffers are used.

use crate::support::{Circuit, Client, bound_socket, finish};
use crate::world::{TestPort, World};
use bolero::TypeGenerator;
use crosslane_shm::mem::new_segment;
use crosslane_shm::remote::Span;
use crosslane_shm::state;
use crosslane_shm::submission::{Descriptor, RequestId, SPANS, SubmissionQueue, Way};
use crosslane_shm::wake::Waker;
use crosslane_shm::{Load, Outbound, Store};
use crosslane_wire::buffer::memory_len;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::segment::RING;
use crosslane_wire::{BufferId, Reach};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Bytes before the places of transfers on a submission queue.
const HEAD: usize = 4096;
/// Places of both ways.
const PLACES: usize = 2 * crosslane_shm::submission::SLOTS;
/// Bytes of a buffer that is registered.
const REGISTERED: u64 = 1 << 16;
/// Places that are used: few, so that steps meet.
const FEW: usize = 6;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Submit {
        out: bool,
        at: u8,
        handle: Handle,
        registered: Option<u8>,
        spans: Vec<Piece>,
        rung: u64,
    },
    /// A word of the place of a transfer.
    Place {
        out: bool,
        at: u8,
        word: u8,
        value: Word,
    },
    /// A word of the head.
    Head(u16, Word),
    /// A word of the end's state.
    State(u16, Word),
    /// A word of the ring that our end reads, which is the far program's to write.
    Record(u8, Word),
    Ring(bool),
    Cancel(u8),
    Free(u8),
    RegisterBuffer {
        name: u8,
        pages: u8,
        store: bool,
    },
    WithdrawBuffer(u8),
    RegisterRings(u8),
    Close,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Handle {
    Own,
    Any(u32),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Piece {
    address: Word,
    len: u32,
}

/// A value; small ones and those around powers of two are the ones that get past checks.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Word {
    Small(u8),
    Lines(u16),
    Bit(u8),
    Below(u8),
    Any(u64),
}

impl Word {
    fn value(self) -> u64 {
        match self {
            Self::Small(value) => value.into(),
            Self::Lines(lines) => u64::from(lines) * 64,
            Self::Bit(bit) => 1 << (bit % 64),
            Self::Below(bit) => (1_u64 << (bit % 64)).wrapping_sub(64),
            Self::Any(value) => value,
        }
    }
}

/// A program that has consented, and whose rings the engine knows.
struct Mad {
    client: Client,
    _server: Client,
    near: Circuit,
    far: Circuit,
    queue: SubmissionQueue,
    words: Outbound,
    state: Outbound,
    wakers: [Waker; 2],
    handle: u32,
    registered: Vec<u32>,
    tickets: Vec<RequestId>,
}

impl Mad {
    fn new(world: &World) -> Option<Self> {
        let mut client = Client::hello(&world.control(1), "mad");
        let mut server = Client::hello(&world.control(2), "server");
        let listener = TcpListener::bind("127.86.0.2:0").unwrap();
        server.listen(&listener);
        let socket = bound_socket("127.86.0.1:0");
        let remote = listener.local_addr().unwrap();
        // A daemon that is asked by many may be late: then it is plain TCP.
        let near = client.circuit(&Request::Connect { remote }, socket.as_fd()).ok()?;
        let (_, accepted) = finish(socket, &listener);
        let far = server.circuit(&Request::Accept, accepted.as_fd()).ok()?;
        let (queue, queue_fd) = SubmissionQueue::create().unwrap();
        let (reply, fds) = client.ask(&Request::Offload, &[queue_fd.as_fd()]);
        let Reply::Offload { words: said, .. } = reply else { panic!("{reply:?}") };
        let [out, into, _bell, _lease] = <[OwnedFd; 4]>::try_from(fds).unwrap();
        let wakers = [Waker::of(out, said[0]).unwrap(), Waker::of(into, said[1]).unwrap()];
        let len = u64::try_from(rustix::fs::fstat(&queue_fd).unwrap().st_size).unwrap();
        let words = Outbound::sealed(&queue_fd, len).unwrap();
        let (_, memory) = near.state.as_ref().unwrap();
        let state = Outbound::sealed(memory, state::LEN).unwrap();
        let (registered, tickets) = (Vec::new(), Vec::new());
        let mut mad = Self {
            client,
            _server: server,
            near,
            far,
            queue,
            words,
            state,
            wakers,
            handle: 0,
            registered,
            tickets,
        };
        mad.register_rings(0);
        mad.register_buffer(0, 16, true);
        Some(mad)
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Submit { out, at, handle, registered, spans, rung } => {
                self.submit(*out, *at, *handle, *registered, spans, *rung);
            }
            Step::Place { out, at, word, value } => {
                let size = (Store::len(&self.words) - HEAD) / PLACES;
                let place = usize::from(!out) * (PLACES / 2) + usize::from(*at) % FEW;
                let at = HEAD + place * size + usize::from(*word) * 8 % size;
                self.words.store_u64(at, value.value());
            }
            Step::Head(at, value) => self.words.store_u64(usize::from(*at) * 8 % HEAD, value.value()),
            Step::State(at, value) => {
                self.state.store_u64(usize::from(*at) * 8 % Store::len(&self.state), value.value());
            }
            Step::Record(line, value) => {
                let at = RING + usize::from(*line) * 8 % (Load::len(&self.near.inbound) - RING);
                self.far.outbound.store_u64(at, value.value());
            }
            Step::Ring(out) => self.wake(*out),
            Step::Cancel(at) => drop(self.request(*at).map(|request| self.queue.cancel(request))),
            Step::Free(at) => drop(self.request(*at).map(|request| self.queue.free(request))),
            Step::RegisterBuffer { name, pages, store } => self.register_buffer(*name, *pages, *store),
            Step::WithdrawBuffer(name) => {
                self.client.tell(&Request::WithdrawBuffer { buffer: BufferId((*name % 4).into()) }, &[]);
            }
            Step::RegisterRings(generation) => self.register_rings(*generation),
            Step::Close => self.client.close(&self.near, true),
        }
    }

    fn request(&self, at: u8) -> Option<RequestId> {
        self.tickets.get(usize::from(at) % self.tickets.len().max(1)).copied()
    }

    fn wake(&self, out: bool) {
        self.wakers[usize::from(!out)].wake();
    }

    fn submit(
        &mut self,
        out: bool,
        at: u8,
        handle: Handle,
        registered: Option<u8>,
        pieces: &[Piece],
        rung: u64,
    ) {
        let mut spans = [Span { address: 0, len: 0 }; SPANS];
        for (span, piece) in spans.iter_mut().zip(pieces) {
            *span = Span { address: piece.address.value(), len: piece.len as usize % (2 << 16) };
        }
        let buffer = registered
            .and_then(|at| self.registered.get(usize::from(at) % self.registered.len().max(1)).copied());
        let handle = match handle {
            Handle::Own => self.handle,
            Handle::Any(handle) => handle,
        };
        let descriptor = Descriptor { handle, buffer: buffer.unwrap_or(0), spans, rung };
        let way = if out { Way::Out } else { Way::In };
        let (request, _) = self.queue.submit(way, usize::from(at) % FEW, &descriptor);
        self.tickets.push(request);
        self.wake(out);
    }

    fn register_buffer(&mut self, name: u8, pages: u8, store: bool) {
        let len = (u64::from(pages % 32) + 1) * 4096;
        let memory = new_segment("registered", memory_len(len.min(REGISTERED))).unwrap();
        let reach = if store { Reach::Store } else { Reach::Load };
        let register_buffer = Request::RegisterBuffer { buffer: BufferId((name % 4).into()), len, reach };
        if let (Reply::RegisteredBuffer { handle }, _) = self.client.ask(&register_buffer, &[memory.as_fd()])
        {
            self.registered.push(handle);
        }
    }

    fn register_rings(&mut self, generation: u8) {
        let (circuit, token) = (self.near.id, self.near.token);
        let register_rings = Request::RegisterRings { circuit, token, generation: (generation % 3).into() };
        if let (Reply::RegisteredRings { handle }, _) = self.client.ask(&register_rings, &[]) {
            self.handle = handle;
        }
    }
}

#[test]
fn anything_on_a_submission_queue() {
    let (near, far) = ([TestPort { cable: "c", listens: true }], [TestPort { cable: "c", listens: false }]);
    let mut world = World::start(&[&near, &far], "offload_least = \"16K\"");
    world.join_honest(2);
    world.offload_honest();
    let world = AssertUnwindSafe(std::cell::RefCell::new(world));
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(|steps| {
        let mut world = world.borrow_mut();
        let _recent = world.recent.begin(steps);
        if let Some(mut mad) = Mad::new(&world) {
            steps.iter().for_each(|step| mad.act(step));
            world.status(1);
            mad.client.close(&mad.near, true);
        }
        world.check();
    });
    world.borrow().settle();
}
