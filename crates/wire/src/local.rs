//! What programs and tools ask of their daemon over its control socket (`SOCK_SEQPACKET`, one message a packet).
//!
//! A request is answered by exactly one [`Reply`] unless its documentation says "no answer". Descriptors ride with
//! the packet (`SCM_RIGHTS`) in the order given.

use crate::control::Refusal;
use crate::{BufferId, ChannelInfo, CircuitId, HostId, Reach, Tuple, WaiterId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Word of the status page: the circuit lives (or was closed in order: what lies in its ring is still good).
pub const STATUS_ALIVE: u32 = 0;
/// Word 0 of the status page belongs to no circuit: it counts the connections that were announced to this host and not
/// accepted yet. Only sessions with listeners are kept up to date. While it is 0, `accept` need not ask.
pub const STATUS_ANNOUNCED: u32 = 0;
/// Word of the status page: the cable is down, or in a new epoch.
pub const STATUS_CABLE: u32 = 1;
/// Word of the status page: the far end was broken off, or its program died.
pub const STATUS_PEER_ABORT: u32 = 2;
/// Word of the status page: a daemon on the way shut down.
pub const STATUS_SHUTDOWN: u32 = 3;
/// Word of the status page: an end broke the protocol.
pub const STATUS_VIOLATION: u32 = 4;
/// Word of the status page: the circuit is lost and another is sought. Nothing is sent and nothing more is received now.
pub const STATUS_MOVING: u32 = 5;
/// Bits of a word of the status page that hold one of the reasons above; those above them hold the generation.
const STATUS_REASON: u32 = 0xff;
/// Words in a status page: most circuit ends of one session.
pub const STATUS_WORDS: u32 = 65536;
/// Most ends in one [`Request::Hold`].
pub const HOLD_MAX: usize = 256;

/// A word of the status page: the end's newest generation, and how that one is.
pub const fn status_word(generation: u32, reason: u32) -> u32 {
    generation << 8 | reason & STATUS_REASON
}

/// The generation in a word of the status page.
pub const fn status_generation(word: u32) -> u32 {
    word >> 8
}

/// The reason in a word of the status page.
pub const fn status_reason(word: u32) -> u32 {
    word & STATUS_REASON
}

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First packet of a session. Answer: [`Reply::Welcome`].
    Hello {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// The program's name, for people.
        program: String,
        /// The ticket of an earlier session of this process, whose connection has ended: it goes on by this one. 0: none.
        ticket: u64,
    },
    /// "I listen here." Descriptor: the listening socket, as proof. Answer: [`Reply::Done`], or [`Reply::WantTable`] if the
    /// socket is of another network namespace than the daemon's: then it is said again, with a second descriptor, a
    /// `NETLINK_SOCK_DIAG` socket of that namespace, which shows the daemon what sockets there are.
    Listen,
    /// The listener at `address` was closed by this session. No answer.
    Unlisten {
        /// Address as `getsockname` had it.
        address: SocketAddr,
    },
    /// "I am about to connect there." Descriptors: the socket, bound but not yet connected, and the memory that will
    /// hold the end's state, of which the daemon reads the counters. Answer: [`Reply::Circuit`] or [`Reply::Plain`]. For
    /// a non-stream answer nothing needs to be undone.
    Connect {
        /// Where to.
        remote: SocketAddr,
    },
    /// "I accepted this." Descriptors: the connected socket, and the memory that will hold the end's state. Answer:
    /// [`Reply::Circuit`] or [`Reply::Plain`].
    Accept,
    /// "I hold this socket of a stream but not its segments" (after exec, or passed to me). Descriptor: the socket.
    /// Answer: [`Reply::Circuit`] with one descriptor more, the memory that holds this end's state, or [`Reply::Plain`].
    Adopt,
    /// "I hold these ends, by a `fork`, or from before this session": they live as long as it, and its wake events are
    /// rung for them. Each end with the key that came with it, as proof; what is wrong is passed over. No answer.
    Hold {
        /// The ends, [`HOLD_MAX`] at most.
        ends: Vec<(CircuitId, u64)>,
    },
    /// "My end goes on in another generation of segments: give me the one after this." Answer: [`Reply::Resumed`] with two
    /// or three descriptors, or [`Reply::Plain`] if there is none (any more).
    Resume {
        /// The end.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The generation that the program has.
        generation: u32,
    },
    /// The last descriptor of this end was closed. No answer.
    Close {
        /// The end.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// Whether it was broken off rather than closed in order.
        abort: bool,
    },
    /// This end was broken off, since the far end broke the protocol or its own state is of no use any more: to be logged, and
    /// the far end is to be reset. No answer.
    Violated {
        /// The end.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The reason.
        text: String,
    },
    /// "The ring of this generation is too short": the stream moves to a longer segment if there is room. No answer.
    Grow {
        /// The end.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// Which generation.
        generation: u32,
    },
    /// Asks for a wake event. Answer: [`Reply::Waiter`].
    Waiter,
    /// "Nobody sleeps on that wake event of mine": for one that did not arrive, since the process had no room for its
    /// descriptor. No answer.
    Unwait {
        /// The wake event.
        waiter: WaiterId,
    },
    /// "Let me wake the far side's waiter." Answer: [`Reply::Waker`], with a descriptor if there is one.
    WantWaker {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The far side's waiter.
        waiter: WaiterId,
    },
    /// "Wake it for me." No answer.
    Wake {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The far side's waiter.
        waiter: WaiterId,
    },
    /// "Wake somebody who holds this end too, for me": a process that shares it by `fork`. No answer.
    WakeHere {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The other process's waiter.
        waiter: WaiterId,
    },
    /// "The far end of this circuit may have this buffer of mine." Descriptor: its memory. Answer: [`Reply::Done`], or
    /// [`Reply::Error`] if it cannot be: the circuit is longer than one cable, or there are too many.
    ExportBuffer {
        /// The circuit.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The buffer's name.
        buffer: BufferId,
        /// Its bytes, without the page behind them: see [`crate::buffer`].
        len: u64,
        /// What the far end may do with it.
        reach: Reach,
    },
    /// "That buffer is gone": no circuit gives it out any more. No answer.
    WithdrawBuffer {
        /// The buffer's name.
        buffer: BufferId,
    },
    /// "Give me this buffer of the far program's." Answer: [`Reply::Buffer`].
    ImportBuffer {
        /// A circuit whose far end opened it.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The buffer's name.
        buffer: BufferId,
    },
    /// A connection went, or goes on, by the kernel's TCP: for `explain` and the counters. No answer.
    Note {
        /// The program's descriptor.
        fd: i32,
        /// The far address.
        remote: SocketAddr,
        /// The reason.
        why: Plain,
    },
    /// "Copy for me": the program consents to have its memory reached by the daemon. Descriptor: its submission queue.
    /// Answer: [`Reply::Offload`], or [`Reply::Error`] if the daemon does not do that.
    Offload,
    /// "I may hand over transfers of this end." Answer: [`Reply::RegisteredRings`].
    RegisterRings {
        /// The end.
        circuit: CircuitId,
        /// The key that came with it, as proof.
        token: u64,
        /// The generation that the program sends and receives by.
        generation: u32,
    },
    /// "Transfers of mine may lie in this buffer." Descriptor: its memory. Answer: [`Reply::RegisteredBuffer`]. It ends with
    /// [`Self::WithdrawBuffer`].
    RegisterBuffer {
        /// The buffer's name.
        buffer: BufferId,
        /// Its bytes, without the page behind them.
        len: u64,
        /// What others than its owner may do with it.
        reach: Reach,
    },
    /// The daemon's status, as JSON. Answer: [`Reply::Text`] packets.
    Status,
    /// Counters in Prometheus' text format. Answer: [`Reply::Text`] packets.
    Metrics,
    /// Streams and notes of the sessions of process `pid`, as JSON. Answer: [`Reply::Text`] packets.
    Explain {
        /// The process.
        pid: u32,
    },
    /// One probe to a host. Answer: [`Reply::Echo`].
    Echo {
        /// The host that is probed.
        to: HostId,
    },
    /// Names and addresses of all hosts, `/etc/hosts` form. Answer: [`Reply::Text`] packets.
    Hosts,
    /// "Pull the cable out of this port": its link goes down and stays so until [`Request::Mend`]. Only from root and
    /// the daemon's own user. Answer: [`Reply::Done`], also if it is cut already.
    Cut {
        /// Name of the port.
        port: String,
    },
    /// "Plug it in again." As [`Request::Cut`]; the answer does not wait for the link.
    Mend {
        /// Name of the port.
        port: String,
    },
}

/// Why a connection is plain TCP. The numbers are counted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Plain {
    /// A rule says so, or none says otherwise.
    Rule,
    /// The address is not the fabric's.
    NotFabric,
    /// The far daemon or ours refused the circuit, for this reason.
    Refused(Refusal),
    /// The connection was not announced by the other end: a plain program there.
    NotAnnounced,
    /// The socket has no port of its own yet and none could be had.
    NoPort,
    /// Recent connections to this address were all too short to gain.
    ShortLived,
    /// This program has no more room for stream ends.
    NoSlot,
    /// A descriptor, mapping or system call failed.
    System,
    /// Downgraded: the program gave the descriptor to stdio.
    Stdio,
    /// Downgraded: out-of-band data.
    OutOfBand,
    /// Downgraded: the descriptor went to another program.
    Passed,
    /// Downgraded: exec of a program that the library cannot follow.
    Exec,
    /// Downgraded: a call or option that streams do not have.
    Unsupported,
    /// The program makes system calls of its own, or may put its sockets into `io_uring`.
    OwnCalls,
}

/// What rules decide for a connection or a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Streams only; a connection that cannot be one fails.
    Crosslane,
    /// The kernel's TCP only.
    Tcp,
    /// A stream if it can be one, else TCP.
    Both,
}

/// What a rule decides. For each of the three the first rule that fits counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// `use`: whether there is a stream.
    Use(Use),
    /// `transfer`: how the program's end sends, the number of a `crosslane_stream::Transfer`.
    Transfer(u8),
    /// `offload`: whether the daemon's engine copies for the program's end.
    Offload(bool),
}

/// Which side of a connection a rule speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `listen` and `accept`.
    Server,
    /// `connect`.
    Client,
}

/// One rule in libsdp's form: `use <crosslane|tcp|both> <server|client> <program-glob> <addr/prefix>:<ports>`, or with
/// `transfer <auto|bcopy|read-zcopy|write-zcopy>` or `offload <on|off>` in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What to do.
    pub action: Action,
    /// For which side.
    pub role: Role,
    /// Glob over the program's name (`*`, `?`).
    pub program: String,
    /// Network address.
    pub address: IpAddr,
    /// Bits of `address` that count.
    pub prefix: u8,
    /// Lowest port.
    pub port_min: u16,
    /// Highest port.
    pub port_max: u16,
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Answer to [`Request::Hello`]. Descriptor, unless the session is `resumed`: the *status page*, an array of `u32` of which
    /// the daemon sets the one of a dead circuit to non-zero.
    Welcome {
        /// Random number of this daemon process: a daemon with another one knows none of the streams made before.
        daemon: u64,
        /// Secret that resumes this session: for [`Request::Hello`] when the connection ends before its process does.
        ticket: u64,
        /// Whether this is the earlier session: its streams, status page, wake events, buffers and listeners are still there.
        resumed: bool,
        /// This host.
        host: HostId,
        /// The kernel's number of the network namespace that these addresses are in; 0 if it tells none.
        namespace: u64,
        /// This host's fabric addresses.
        addresses: Vec<IpAddr>,
        /// The fabric's subnets: address and prefix length.
        subnets: Vec<(IpAddr, u8)>,
        /// Rules, first match of each kind wins; the last ones are the defaults.
        rules: Vec<Rule>,
        /// How long a waiter may spin before it sleeps, ns.
        spin_ns: u32,
    },
    /// The request was carried out.
    Done,
    /// Answer to [`Request::Listen`]: another network namespace's sockets must be shown.
    WantTable,
    /// It failed; the text says what to do.
    Error {
        /// What went wrong and what to do, for people.
        text: String,
    },
    /// A circuit's end. Descriptors: inbound segment (read it), outbound segment (store only), the retention ring if
    /// `retained`.
    Circuit {
        /// The end.
        circuit: CircuitId,
        /// Proof for [`Request::Close`].
        token: u64,
        /// The connection.
        tuple: Tuple,
        /// Whether this is the connecting end.
        client: bool,
        /// Mark key of the ring that this end reads.
        rx_key: u64,
        /// Mark key of the ring that this end writes.
        tx_key: u64,
        /// Index into the status page.
        status: u32,
        /// Generation of the segments; 0 unless the end was adopted.
        generation: u32,
        /// The inbound and the outbound segment, in the order of their descriptors, and what the circuit can do.
        channel: Box<ChannelInfo>,
        /// Whether the stream has a retention ring, which it fills while its way `keeps`, and may have to send from later.
        retained: bool,
    },
    /// Answer to [`Request::Resume`]: the next generation. Descriptors as with [`Reply::Circuit`]; the retention ring is
    /// the same one in all generations.
    Resumed {
        /// Its number, larger than the one asked about.
        generation: u32,
        /// Whether it is the newest: then our sending goes on there.
        newest: bool,
        /// Units of the *previous* generation's receiving direction that count, from the stream's start.
        limit: u64,
        /// Units of our sending direction that the far end has; of the newest generation only. May be
        /// [`crate::control::ARRIVED_ALL`].
        arrived: u64,
        /// Mark key of the ring that this end reads.
        rx_key: u64,
        /// Mark key of the ring that this end writes.
        tx_key: u64,
        /// As in [`Reply::Circuit`].
        channel: Box<ChannelInfo>,
        /// Whether the stream has a retention ring.
        retained: bool,
    },
    /// The connection stays plain TCP.
    Plain {
        /// The reason.
        why: Plain,
    },
    /// Answer to [`Request::Waiter`]. Descriptor: the sleeper's socket, to be polled.
    Waiter {
        /// The event's number, unique on this host.
        waiter: WaiterId,
        /// What a wake says.
        word: u64,
    },
    /// Answer to [`Request::WantWaker`]. Descriptor: a waker's socket, made for this program, if there is a `word`.
    Waker {
        /// What a wake says; `None` if there is no such waiter, or it can be rung through daemons only.
        word: Option<u64>,
    },
    /// A part of a text; the last one says so.
    Text {
        /// The part, UTF-8.
        part: String,
        /// Whether it is the last.
        last: bool,
    },
    /// Answer to [`Request::Echo`].
    Echo {
        /// Round-trip time, ns; `None` if no answer came in time or there is no route.
        round_trip_ns: Option<u64>,
        /// Cables of the route.
        hops: u8,
    },
    /// Answer to [`Request::ImportBuffer`]. Descriptor: the memory, if there is any.
    Buffer {
        /// Bytes of the buffer, and what may be done with it; `None` if it is not open to this circuit.
        shape: Option<(u64, Reach)>,
    },
    /// Answer to [`Request::Offload`]. Transfers may be handed over once the guard is there. Descriptors: two wakers'
    /// sockets, for when something to send, or to receive, was put on the submission queue while the daemon's thread slept; and the
    /// socket of a wake event that is rung at the end of transfers whose program wants that, to be polled by edges; and the end
    /// of a pipe that hangs up once no thread of the daemon's works for the program any more.
    Offload {
        /// What wakes by the two wakers say.
        words: [u64; 2],
        /// Where the program puts its guard page, an address that the daemon chose at random.
        guard: u64,
        /// What the page begins with.
        nonce: u64,
        /// The daemon's threads that copy: the sending one and the receiving one.
        threads: [u32; 2],
        /// Least bytes of a call that are worth it.
        least: u64,
    },
    /// Answer to [`Request::RegisterRings`].
    RegisteredRings {
        /// The name of the end's rings on the submission queue; 0 if they cannot be offloaded.
        handle: u32,
    },
    /// Answer to [`Request::RegisterBuffer`].
    RegisteredBuffer {
        /// The buffer's name on the submission queue; 0 if it is not for the engine.
        handle: u32,
    },
}
