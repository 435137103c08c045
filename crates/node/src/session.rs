//! One program's (or tool's) session on the control socket.

use crate::accept::Accepting;
use crate::buffer::Opened;
use crate::end_resources::HeldState;
use crate::quota::{Charge, Kind, Ledger, Payer, Purpose};
use crate::random;
pub use crate::session_id::SessionId;
use crate::socket_table::SocketTable;
use crate::status_page::StatusPage;
use crosslane_fabric::circuit::Scope;
use crosslane_passing::{Foreign, Owner, send};
use crosslane_shm::MapError;
use crosslane_shm::peer::Opener;
use crosslane_wire::codec;
use crosslane_wire::local::{Plain, Reply};
use crosslane_wire::{BufferId, ChannelId, CircuitId, PortId, WaiterId};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Most notes that are kept for `explain`; the oldest goes first.
const NOTES_MAX: usize = 256;
/// How long a session may take to say `Hello`: longer than a program waits for an answer.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longest program name that is kept, bytes.
const PROGRAM_MAX: usize = 64;

/// What a session waits for; it is served again when that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A neighbour's answer about this circuit.
    Circuit(CircuitId),
    /// The handshake of a stream that it accepts, or the end of it.
    Accept(Accepting),
    /// A neighbour's answer about a waiter.
    Waker {
        /// The neighbour's port.
        port: PortId,
        /// The neighbour's name for the channel at whose far end it sleeps.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
        /// Until then.
        until: Duration,
    },
    /// A neighbour's buffer.
    Buffer {
        /// The neighbour's port.
        port: PortId,
        /// The channel that leads there.
        channel: ChannelId,
        /// Which.
        buffer: BufferId,
        /// Until then.
        until: Duration,
    },
    /// An echo.
    Echo {
        /// Its number.
        token: u64,
        /// When it was sent.
        sent: Duration,
        /// Cables on the way.
        hops: u8,
        /// Until then.
        until: Duration,
    },
}

impl Waiting {
    /// Until when; circuits have their own deadlines.
    fn until(self) -> Option<Duration> {
        match self {
            Self::Waker { until, .. } | Self::Buffer { until, .. } | Self::Echo { until, .. } => Some(until),
            Self::Accept(accepting) => Some(accepting.until),
            Self::Circuit(_) => None,
        }
    }
}

/// A connection that went by TCP.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The program's descriptor.
    pub fd: i32,
    /// The far address.
    pub remote: SocketAddr,
    /// Why.
    pub why: Plain,
}

/// A reply that the program has not taken yet.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    fds: Vec<Foreign>,
    /// What its user pays for the descriptors.
    _charge: Charge,
}

/// How a session's program is reached.
#[derive(Debug)]
enum Line {
    /// By this connection.
    Open(Arc<Foreign>),
    /// Not at all: its connection has ended. The process that opened it may live.
    Lost(Opener),
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// The process that opened it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// The program's name.
    pub program: String,
    /// Whether `Hello` was said.
    pub greeted: bool,
    /// What its program shows to go on by another connection; 0 before its handshake.
    pub ticket: u64,
    /// Why it could not be another session of its user: it was let in to go on with an earlier one, and for nothing else.
    pub guest: Option<String>,
    /// The memory for the state of the end that its program is asking for.
    pub offered: Option<HeldState>,
    /// Words that tell of dead circuits.
    pub status_page: Option<StatusPage>,
    /// Its wake events.
    pub waiters: BTreeSet<WaiterId>,
    /// Memory that it opened to far ends of its circuits.
    pub buffers: BTreeMap<BufferId, Rc<Opened>>,
    /// Circuit ends that it holds.
    pub held: BTreeSet<CircuitId>,
    /// Connections that went by TCP.
    pub notes: Arc<VecDeque<Note>>,
    /// The sockets of its network namespace, if that is not the daemon's and it has listeners there.
    pub table: Option<(Scope, SocketTable)>,
    /// What it waits for.
    pub waiting: Option<Waiting>,
    /// Whether nobody is at the other end any more.
    pub hung_up: bool,
    /// Whether its next request is being taken aside, or a text is made or sent for it.
    pub aside: bool,
    /// What its user pays for it.
    pub charges: Vec<Charge>,
    /// What its user pays for the engine's working for it.
    pub engine_charge: Option<Charge>,
    /// Whether it is not read from, since its user asks for more than it may.
    pub resting: bool,
    greet_until: Duration,
    owner: Owner,
    line: Line,
    out: VecDeque<Queued>,
    ledger: Ledger,
    dead: bool,
}

impl Session {
    /// A session on an accepted socket.
    pub fn new(id: SessionId, socket: Foreign, ledger: Ledger, now: Duration) -> Result<Self, Errno> {
        let peer = sockopt::socket_peercred(&socket)?;
        let pid = peer.pid.as_raw_nonzero().get();
        Ok(Self {
            id,
            pid,
            uid: peer.uid.as_raw(),
            program: String::new(),
            greeted: false,
            ticket: 0,
            guest: None,
            offered: None,
            status_page: None,
            waiters: BTreeSet::new(),
            buffers: BTreeMap::new(),
            held: BTreeSet::new(),
            notes: Arc::default(),
            table: None,
            waiting: None,
            hung_up: false,
            aside: false,
            charges: Vec::new(),
            engine_charge: None,
            resting: false,
            greet_until: now + HANDSHAKE,
            owner: socket.owner(),
            line: Line::Open(Arc::new(socket)),
            out: VecDeque::new(),
            ledger,
            dead: false,
        })
    }

    /// The connection, unless it has ended.
    pub fn socket(&self) -> Option<&Arc<Foreign>> {
        if let Line::Open(socket) = &self.line { Some(socket) } else { None }
    }

    /// The user, as the one who has to wait for what his descriptors do.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Whether its connection has ended, and it waits for another one.
    pub fn is_lost(&self) -> bool {
        matches!(self.line, Line::Lost(_))
    }

    /// Whether its connection has ended and its process, too.
    pub fn is_orphaned(&self) -> bool {
        if let Line::Lost(opener) = &self.line { opener.has_ended() } else { false }
    }

    /// Its connection has ended, which was opened by this process: what was asked and answered by it is forgotten. Returns
    /// the connection.
    pub fn lose(&mut self, opener: Opener) -> Option<Arc<Foreign>> {
        self.out.clear();
        (self.waiting, self.offered, self.engine_charge) = (None, None, None);
        (self.hung_up, self.resting, self.dead) = (false, false, false);
        match std::mem::replace(&mut self.line, Line::Lost(opener)) {
            Line::Open(socket) => Some(socket),
            Line::Lost(_) => None,
        }
    }

    /// It goes on by the connection of a new session of its process, with the rights that this one has by now. Returns the
    /// connection.
    pub fn go_on(&mut self, new: Self) -> Option<Arc<Foreign>> {
        (self.uid, self.owner) = (new.uid, new.owner);
        self.line = new.line;
        self.socket().cloned()
    }

    /// `Hello` was said: returns the status page's descriptor.
    pub fn greet(&mut self, program: &str) -> Result<OwnedFd, MapError> {
        let (status_page, fd) = StatusPage::create()?;
        self.status_page = Some(status_page);
        self.ticket = random::u64().max(1);
        self.program = program.chars().filter(|c| !c.is_control()).collect();
        let end =
            (0..=PROGRAM_MAX.min(self.program.len())).rev().find(|at| self.program.is_char_boundary(*at));
        self.program.truncate(end.unwrap_or(0));
        self.greeted = true;
        Ok(fd)
    }

    /// Answers. What the program does not take at once is kept; it is not served until it did.
    pub fn reply(&mut self, reply: &Reply, fds: &[BorrowedFd<'_>]) {
        let Line::Open(socket) = &self.line else { return };
        let bytes = match codec::encode(reply) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(%error, session = self.id.0, "reply cannot be encoded");
                self.dead = true;
                return;
            }
        };
        let outcome = if self.out.is_empty() {
            send(&**socket, &bytes, fds, SendFlags::DONTWAIT)
        } else {
            Err(Errno::AGAIN)
        };
        match outcome {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::INTR) => match self.keep(bytes, fds) {
                Some(queued) => self.out.push_back(queued),
                None => self.dead = true,
            },
            Err(_) => self.dead = true,
        }
    }

    /// Keeps a reply with copies of its descriptors; `None` if the user may have no more of them.
    fn keep(&self, bytes: Vec<u8>, fds: &[BorrowedFd<'_>]) -> Option<Queued> {
        let (payer, count) = (Payer::User(self.uid), fds.len() as u64);
        let _charge = self.ledger.charge(payer, Kind::Descriptors, count, Purpose::New).ok()?;
        // Some are of other programs, who may have closed theirs.
        let copy = |fd: &BorrowedFd<'_>| Some(Foreign::new(fd.try_clone_to_owned().ok()?, self.owner()));
        let fds = fds.iter().map(copy).collect::<Option<_>>()?;
        Some(Queued { bytes, fds, _charge })
    }

    /// Sends what is kept, as far as the program takes it.
    pub fn flush(&mut self) {
        let Line::Open(socket) = &self.line else { return };
        while let Some(Queued { bytes, fds, .. }) = self.out.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match send(&**socket, bytes, &fds, SendFlags::DONTWAIT) {
                Ok(()) => {
                    self.out.pop_front();
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => {
                    self.dead = true;
                    return;
                }
            }
        }
    }

    /// When it is served, or ended, even if nothing happens.
    pub fn deadline(&self) -> Option<Duration> {
        if self.greeted { self.waiting?.until() } else { Some(self.greet_until) }
    }

    /// Whether replies wait for the program to take them.
    pub fn is_clogged(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether requests may be read now.
    pub fn is_ready(&self) -> bool {
        let may = self.waiting.is_none() && !self.aside && self.out.is_empty() && !self.resting;
        may && !self.dead && !self.is_lost()
    }

    /// Whether the session is of no more use.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Ends the session at the next opportunity.
    pub fn kill(&mut self) {
        self.dead = true;
    }

    /// Keeps a note.
    pub fn note(&mut self, note: Note) {
        // A snapshot may have them, too.
        let notes = Arc::make_mut(&mut self.notes);
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(note);
    }
}
