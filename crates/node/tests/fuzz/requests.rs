//! Programs of several users that ask anything, in any order, with any descriptors, in several sessions of one daemon
//! that has a neighbour.

use crate::fds::{Address, Kind};
use crate::world::{Session, TestPort, World, hello};
use bolero::TypeGenerator;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{BufferId, CircuitId, HostId, Reach, WaiterId};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Sessions of one input.
const SESSIONS: usize = 5;
/// Most descriptors that an input holds at a time.
const POOL: usize = 24;
/// Users of the sessions: the daemon's own, and two others where this process may be them.
const USERS: [Option<u32>; 4] = [None, Some(65_534), Some(65_534), Some(65_533)];
/// How long an answer is waited for; some requests have none.
const SHORT: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    /// A session of a user begins, in order or not.
    Open {
        who: u8,
        user: u8,
        greets: bool,
    },
    /// It ends.
    Close(u8),
    Ask(u8, Ask, Vec<Pick>),
    Raw(u8, Vec<u8>, Vec<Pick>),
    Make(Kind, u8),
    Drop(u8),
    /// Answers are read.
    Read(u8),
    /// A stream as honest programs make one: listens in one session, connects and accepts in others.
    Join {
        client: u8,
        server: u8,
        far: bool,
        connects: bool,
    },
}

/// A descriptor of the pool.
type Pick = u8;

#[derive(Clone, Debug, TypeGenerator)]
enum Ask {
    Hello { version: Option<u32>, name: Vec<u8>, ticket: Option<Ticket> },
    Listen,
    Unlisten(Address),
    Connect(Address),
    Accept,
    Adopt,
    Twin(End),
    Hold(Vec<End>),
    Resume(End, u32),
    Close(End, bool),
    Violated(End, Vec<u8>),
    Waiter,
    Unwait(Name),
    WantWaker(End, Name),
    Ring(End, Name),
    RingHere(End, Name),
    ExportBuffer(End, u8, Len, bool),
    WithdrawBuffer(u8),
    ImportBuffer(End, u8),
    Note(i32, Address, u8),
    Offload,
    RegisterRings(End, u8),
    RegisterBuffer(u8, Len, bool),
    Status,
    Metrics,
    Explain(Option<u32>),
    Echo(u8),
    Hosts,
    Cut(bool, bool),
}

/// An end of a circuit: one that was heard of, with its key or another, or any.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum End {
    Known { at: u8, right: bool },
    Any(u64, u64),
}

/// A waiter.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Name {
    Known(u8),
    Any(u32),
}

/// A ticket: that of a session there was, or any.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Ticket {
    Known(u8),
    Any(u64),
}

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Len {
    Pages(u8),
    Any(u64),
}

impl Len {
    fn bytes(self) -> u64 {
        match self {
            Self::Pages(pages) => u64::from(pages % 8) * 4096,
            Self::Any(len) => len,
        }
    }
}

/// What the hostile programs of one input hold and know.
struct Gang<'a> {
    world: &'a World,
    sessions: [Option<Session>; SESSIONS],
    pool: Vec<OwnedFd>,
    ends: Vec<(CircuitId, u64)>,
    waiters: Vec<WaiterId>,
    tickets: Vec<u64>,
}

impl<'a> Gang<'a> {
    fn new(world: &'a World) -> Self {
        let sessions = [const { None }; SESSIONS];
        let (ends, waiters, tickets) = (Vec::new(), Vec::new(), Vec::new());
        Self { world, sessions, pool: Vec::new(), ends, waiters, tickets }
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Open { who, user, greets } => self.open(*who, *user, *greets),
            Step::Close(who) => self.sessions[usize::from(*who) % SESSIONS] = None,
            Step::Ask(who, ask, picks) => {
                let request = self.request(ask);
                self.ask(*who, &request, picks);
            }
            Step::Raw(who, bytes, picks) => {
                self.begin(*who);
                let Some(session) = &self.sessions[usize::from(*who) % SESSIONS] else { return };
                if session.send(bytes, &self.fds(picks)) {
                    self.read(*who, SHORT);
                }
            }
            Step::Make(kind, user) => self.keep(kind.make(USERS[usize::from(*user) % USERS.len()])),
            Step::Drop(at) => {
                if !self.pool.is_empty() {
                    self.pool.swap_remove(usize::from(*at) % self.pool.len());
                }
            }
            Step::Read(who) => self.read(*who, Duration::ZERO),
            Step::Join { client, server, far, connects } => self.join(*client, *server, *far, *connects),
        }
    }

    /// The session of that number begins if there is none.
    fn begin(&mut self, who: u8) {
        if self.sessions[usize::from(who) % SESSIONS].is_none() {
            self.open(who, who, true);
        }
    }

    fn open(&mut self, who: u8, user: u8, greets: bool) {
        let at = usize::from(who) % SESSIONS;
        let user = USERS[usize::from(user) % USERS.len()];
        // One of them is the neighbour's.
        let daemon = if at == SESSIONS - 1 { 2 } else { 1 };
        self.sessions[at] = Session::connect(&self.world.control(daemon), user);
        if greets && let Some(session) = &self.sessions[at] {
            session.tell(&hello(), &[]);
            let welcome = session.answer(crate::world::LONG).expect("no welcome").0;
            if let Reply::Welcome { ticket, .. } = welcome {
                self.tickets.push(ticket);
            }
        }
    }

    fn keep(&mut self, fds: Vec<OwnedFd>) {
        self.pool.extend(fds);
        let more = self.pool.len().saturating_sub(POOL);
        self.pool.drain(..more);
    }

    fn fds(&self, picks: &[Pick]) -> Vec<BorrowedFd<'_>> {
        let count = self.pool.len().max(1);
        picks
            .iter()
            .take(4)
            .filter_map(|pick| self.pool.get(usize::from(*pick) % count))
            .map(AsFd::as_fd)
            .collect()
    }

    fn ask(&mut self, who: u8, request: &Request, picks: &[Pick]) {
        self.begin(who);
        let Some(session) = &self.sessions[usize::from(who) % SESSIONS] else { return };
        if session.tell(request, &self.fds(picks)) {
            self.read(who, SHORT);
        }
    }

    /// Takes answers, and what they tell.
    fn read(&mut self, who: u8, within: Duration) {
        for _ in 0..4 {
            let Some(session) = &self.sessions[usize::from(who) % SESSIONS] else { return };
            let Some((reply, fds)) = session.answer(within) else { return };
            self.keep(fds);
            match reply {
                Reply::Circuit { circuit, token, .. } => self.ends.push((circuit, token)),
                Reply::Waiter { waiter, .. } => self.waiters.push(waiter),
                Reply::Welcome { ticket, .. } => self.tickets.push(ticket),
                Reply::Text { last: false, .. } => {}
                _ => return,
            }
        }
    }

    fn join(&mut self, client: u8, server: u8, far: bool, connects: bool) {
        let server = if far { u8::try_from(SESSIONS - 1).unwrap() } else { server };
        let host = if far { Address::Far(0) } else { Address::Own(0) };
        let listener = Kind::Listening(host).make(None);
        let Some(listener) = listener.into_iter().next() else { return };
        let listener = std::net::TcpListener::from(listener);
        let (address, fd) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
        self.keep(vec![fd.into()]);
        self.ask(server, &Request::Listen, &[self.last()]);
        self.keep(Kind::Bound(Address::Own(0)).make(None));
        let socket = self.pool.last().map(|fd| fd.try_clone().unwrap());
        let picks = self.with_state(self.last());
        self.ask(client, &Request::Connect { remote: address }, &picks);
        let Some(socket) = socket.filter(|_| connects) else { return };
        if rustix::net::connect(&socket, &address).is_ok()
            && let Ok((accepted, _)) = listener.accept()
        {
            self.keep(vec![socket, accepted.into()]);
            let picks = self.with_state(self.last());
            self.ask(server, &Request::Accept, &picks);
        }
    }

    /// A socket of the pool, and memory for the state of an end behind it.
    fn with_state(&mut self, socket: Pick) -> [Pick; 2] {
        let before = self.pool.len();
        self.keep(Kind::State.make(None));
        // The pool forgets its first ones.
        let moved = u8::try_from((before + 1).saturating_sub(self.pool.len())).unwrap();
        [socket.saturating_sub(moved), self.last()]
    }

    fn last(&self) -> Pick {
        u8::try_from(self.pool.len().saturating_sub(1)).unwrap()
    }

    fn end(&self, end: End) -> (CircuitId, u64) {
        match end {
            End::Known { at, right } => {
                let known = self.ends.get(usize::from(at) % self.ends.len().max(1));
                let (circuit, token) = known.copied().unwrap_or((CircuitId(at.into()), 0));
                (circuit, if right { token } else { !token })
            }
            End::Any(circuit, token) => (CircuitId(circuit), token),
        }
    }

    fn waiter(&self, name: Name) -> WaiterId {
        match name {
            Name::Known(at) => self.waiters.get(usize::from(at)).copied().unwrap_or_default(),
            Name::Any(number) => WaiterId(number),
        }
    }

    fn request(&self, ask: &Ask) -> Request {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let reach = |store| if store { Reach::Store } else { Reach::Load };
        match ask {
            Ask::Hello { version, name, ticket } => {
                let Request::Hello { version: ours, .. } = hello() else { unreachable!() };
                let ticket = match ticket {
                    Some(Ticket::Known(at)) => {
                        self.tickets.get(usize::from(*at) % self.tickets.len().max(1)).copied().unwrap_or(0)
                    }
                    Some(Ticket::Any(number)) => *number,
                    None => 0,
                };
                Request::Hello { version: version.unwrap_or(ours), program: text(name), ticket }
            }
            Ask::Listen => Request::Listen,
            Ask::Unlisten(address) => Request::Unlisten { address: address.resolve() },
            Ask::Connect(remote) => Request::Connect { remote: remote.resolve() },
            Ask::Accept => Request::Accept,
            Ask::Adopt => Request::Adopt,
            Ask::Twin(end) => {
                let (circuit, token) = self.end(*end);
                Request::Twin { circuit, token }
            }
            Ask::Hold(ends) => {
                Request::Hold { ends: ends.iter().take(300).map(|end| self.end(*end)).collect() }
            }
            Ask::Resume(end, generation) => {
                let (circuit, token) = self.end(*end);
                Request::Resume { circuit, token, generation: *generation }
            }
            Ask::Close(end, abort) => {
                let (circuit, token) = self.end(*end);
                Request::Close { circuit, token, abort: *abort }
            }
            Ask::Violated(end, bytes) => {
                let (circuit, token) = self.end(*end);
                Request::Violated { circuit, token, text: text(bytes) }
            }
            Ask::Waiter => Request::Waiter,
            Ask::Unwait(waiter) => Request::Unwait { waiter: self.waiter(*waiter) },
            Ask::WantWaker(end, waiter) => {
                let (circuit, token) = self.end(*end);
                Request::WantWaker { circuit, token, waiter: self.waiter(*waiter) }
            }
            Ask::Ring(end, waiter) => {
                let (circuit, token) = self.end(*end);
                Request::Wake { circuit, token, waiter: self.waiter(*waiter) }
            }
            Ask::RingHere(end, waiter) => {
                let (circuit, token) = self.end(*end);
                Request::WakeHere { circuit, token, waiter: self.waiter(*waiter) }
            }
            Ask::ExportBuffer(end, buffer, len, store) => {
                let ((circuit, token), buffer) = (self.end(*end), BufferId((*buffer).into()));
                Request::ExportBuffer { circuit, token, buffer, len: len.bytes(), reach: reach(*store) }
            }
            Ask::WithdrawBuffer(buffer) => Request::WithdrawBuffer { buffer: BufferId((*buffer).into()) },
            Ask::ImportBuffer(end, buffer) => {
                let (circuit, token) = self.end(*end);
                Request::ImportBuffer { circuit, token, buffer: BufferId((*buffer).into()) }
            }
            Ask::Note(fd, remote, why) => {
                let all = [Plain::Rule, Plain::System, Plain::Exec, Plain::Refused(Refusal::NoMemory)];
                let why = all[usize::from(*why) % all.len()];
                Request::Note { fd: *fd, remote: remote.resolve(), why }
            }
            Ask::Offload => Request::Offload,
            Ask::RegisterRings(end, generation) => {
                let (circuit, token) = self.end(*end);
                Request::RegisterRings { circuit, token, generation: (*generation).into() }
            }
            Ask::RegisterBuffer(buffer, len, store) => Request::RegisterBuffer {
                buffer: BufferId((*buffer).into()),
                len: len.bytes(),
                reach: reach(*store),
            },
            Ask::Status => Request::Status,
            Ask::Metrics => Request::Metrics,
            Ask::Explain(pid) => Request::Explain { pid: pid.unwrap_or_else(std::process::id) },
            Ask::Echo(host) => Request::Echo { to: HostId((*host).into()) },
            Ask::Hosts => Request::Hosts,
            // The honest stream's own cable is not to be cut by its owner.
            Ask::Cut(known, cut) => {
                let port = if *known && !rustix::process::geteuid().is_root() { "c" } else { "d" }.to_owned();
                if *cut { Request::Cut { port } } else { Request::Mend { port } }
            }
        }
    }
}

#[test]
fn any_requests_of_programs() {
    let near = [TestPort { cable: "c", listens: true }];
    let far = [TestPort { cable: "c", listens: false }];
    let mut world = World::start(&[&near, &far], "offload = true\noffload_least = \"16K\"");
    world.join_honest(2);
    let world = AssertUnwindSafe(std::cell::RefCell::new(world));
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(|steps| {
        let mut world = world.borrow_mut();
        let _recent = world.recent.begin(steps);
        let mut gang = Gang::new(&world);
        steps.iter().for_each(|step| gang.act(step));
        drop(gang);
        world.check();
    });
    world.borrow().settle();
}
