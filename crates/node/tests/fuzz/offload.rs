//! A program that writes anything where the offload engine looks: its desk, its end's state, what it lends, its rings and
//! doors. Other programs' transfers go on.
//!
//! It has no guard page, since it shares this process with the daemon: what an engine would store into a program that
//! lies to it about itself would land in the test. So plain memory is refused, and lent buffers are used.

use crate::support::{Circuit, Client, bound_socket, finish};
use crate::world::{TestPort, World};
use bolero::TypeGenerator;
use crosslane_shm::desk::{Desk, Order, SPANS, Ticket, Way};
use crosslane_shm::mem::new_segment;
use crosslane_shm::remote::Span;
use crosslane_shm::state;
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

/// Bytes before the places of transfers on a desk.
const HEAD: usize = 4096;
/// Places of both ways.
const PLACES: usize = 2 * crosslane_shm::desk::SLOTS;
/// Bytes of a buffer that is lent.
const LENT: u64 = 1 << 16;
/// Places that are used: few, so that steps meet.
const FEW: usize = 6;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Submit {
        out: bool,
        at: u8,
        handle: Handle,
        lent: Option<u8>,
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
    Lend {
        name: u8,
        pages: u8,
        store: bool,
    },
    Unshare(u8),
    Engage(u8),
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
    desk: Desk,
    words: Outbound,
    state: Outbound,
    doors: [Waker; 2],
    handle: u32,
    lent: Vec<u32>,
    tickets: Vec<Ticket>,
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
        let (desk, desk_fd) = Desk::create().unwrap();
        let (reply, fds) = client.ask(&Request::Offload, &[desk_fd.as_fd()]);
        let Reply::Offload { words: said, .. } = reply else { panic!("{reply:?}") };
        let [out, into, _bell, _lease] = <[OwnedFd; 4]>::try_from(fds).unwrap();
        let doors = [Waker::of(out, said[0]).unwrap(), Waker::of(into, said[1]).unwrap()];
        let len = u64::try_from(rustix::fs::fstat(&desk_fd).unwrap().st_size).unwrap();
        let words = Outbound::sealed(&desk_fd, len).unwrap();
        let (_, memory) = near.state.as_ref().unwrap();
        let state = Outbound::sealed(memory, state::LEN).unwrap();
        let (lent, tickets) = (Vec::new(), Vec::new());
        let mut mad =
            Self { client, _server: server, near, far, desk, words, state, doors, handle: 0, lent, tickets };
        mad.engage(0);
        mad.lend(0, 16, true);
        Some(mad)
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Submit { out, at, handle, lent, spans, rung } => {
                self.submit(*out, *at, *handle, *lent, spans, *rung);
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
            Step::Ring(out) => self.ring(*out),
            Step::Cancel(at) => drop(self.ticket(*at).map(|ticket| self.desk.cancel(ticket))),
            Step::Free(at) => drop(self.ticket(*at).map(|ticket| self.desk.free(ticket))),
            Step::Lend { name, pages, store } => self.lend(*name, *pages, *store),
            Step::Unshare(name) => {
                self.client.tell(&Request::Unshare { buffer: BufferId((*name % 4).into()) }, &[]);
            }
            Step::Engage(generation) => self.engage(*generation),
            Step::Close => self.client.close(&self.near, true),
        }
    }

    fn ticket(&self, at: u8) -> Option<Ticket> {
        self.tickets.get(usize::from(at) % self.tickets.len().max(1)).copied()
    }

    fn ring(&self, out: bool) {
        self.doors[usize::from(!out)].ring();
    }

    fn submit(&mut self, out: bool, at: u8, handle: Handle, lent: Option<u8>, pieces: &[Piece], rung: u64) {
        let mut spans = [Span { address: 0, len: 0 }; SPANS];
        for (span, piece) in spans.iter_mut().zip(pieces) {
            *span = Span { address: piece.address.value(), len: piece.len as usize % (2 << 16) };
        }
        let buffer = lent.and_then(|at| self.lent.get(usize::from(at) % self.lent.len().max(1)).copied());
        let handle = match handle {
            Handle::Own => self.handle,
            Handle::Any(handle) => handle,
        };
        let order = Order { handle, buffer: buffer.unwrap_or(0), spans, rung };
        let way = if out { Way::Out } else { Way::In };
        let (ticket, _) = self.desk.submit(way, usize::from(at) % FEW, &order);
        self.tickets.push(ticket);
        self.ring(out);
    }

    fn lend(&mut self, name: u8, pages: u8, store: bool) {
        let len = (u64::from(pages % 32) + 1) * 4096;
        let memory = new_segment("lent", memory_len(len.min(LENT))).unwrap();
        let reach = if store { Reach::Store } else { Reach::Load };
        let lend = Request::Lend { buffer: BufferId((name % 4).into()), len, reach };
        if let (Reply::Lent { handle }, _) = self.client.ask(&lend, &[memory.as_fd()]) {
            self.lent.push(handle);
        }
    }

    fn engage(&mut self, generation: u8) {
        let (circuit, token) = (self.near.id, self.near.token);
        let engage = Request::Engage { circuit, token, generation: (generation % 3).into() };
        if let (Reply::Engaged { handle }, _) = self.client.ask(&engage, &[]) {
            self.handle = handle;
        }
    }
}

#[test]
fn anything_on_a_desk() {
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
