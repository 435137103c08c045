//! Requests of programs and tools to their daemon over its control socket (`SOCK_SEQPACKET`, one message a packet).
//!
//! A request is answered by exactly one [`Reply`] unless its documentation says "no answer". Descriptors are sent with
//! the packet (`SCM_RIGHTS`), in the order given.

use crate::control::Refusal;
use crate::{BufferId, ChannelInfo, CircuitId, HostId, Reach, Tuple, WaiterId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Reason in a status word: the circuit lives (or was closed in order: the records in its ring still count).
pub const STATUS_ALIVE: u32 = 0;
/// Word 0 of the status page belongs to no circuit: it counts the connections that other daemons have announced to this
/// host and that no program has accepted yet. The daemon keeps it current only for sessions with listeners. While it is
/// 0, `accept` need not ask the daemon.
pub const STATUS_ANNOUNCED: u32 = 0;
/// Reason in a status word: the cable is down, or in a new epoch.
pub const STATUS_CABLE: u32 = 1;
/// Reason in a status word: the far end was aborted, or its program died.
pub const STATUS_PEER_ABORT: u32 = 2;
/// Reason in a status word: a daemon on the path shut down.
pub const STATUS_SHUTDOWN: u32 = 3;
/// Reason in a status word: an end broke the protocol.
pub const STATUS_VIOLATION: u32 = 4;
/// Reason in a status word: the circuit is lost and the daemon looks for another. The program sends and receives nothing meanwhile.
pub const STATUS_MOVING: u32 = 5;
/// Bits of a status word that contain one of the reasons above; the bits above them contain the generation.
const STATUS_REASON: u32 = 0xff;
/// Words in a status page: most circuit ends of one session.
pub const STATUS_WORDS: u32 = 65536;
/// Most ends in one [`Request::Hold`].
pub const HOLD_MAX: usize = 256;

/// A status word: the end's newest generation, and the reason that describes its state.
pub const fn status_word(generation: u32, reason: u32) -> u32 {
    generation << 8 | reason & STATUS_REASON
}

/// The generation in a status word.
pub const fn status_generation(word: u32) -> u32 {
    word >> 8
}

/// The reason in a status word.
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
        /// The program's name, for display.
        program: String,
        /// The ticket of an earlier session of this process whose connection has ended: this connection continues that session. 0: none.
        ticket: u64,
    },
    /// Registers a listening socket. Descriptor: the socket, as proof. Answer: [`Reply::Done`], or [`Reply::WantTable`]
    /// if the socket is in another network namespace than the daemon's: the program then repeats the request with a
    /// second descriptor, a `NETLINK_SOCK_DIAG` socket of that namespace, by which the daemon sees the sockets there.
    Listen,
    /// The listener at `address` was closed by this session. No answer.
    Unlisten {
        /// Address that `getsockname` returned.
        address: SocketAddr,
    },
    /// Announces a connection before `connect`. Descriptors: the socket, bound but not yet connected, and the memory for
    /// the end's state, of which the daemon reads the counters. Answer: [`Reply::Circuit`] or [`Reply::Plain`]. After
    /// [`Reply::Plain`] nothing needs to be undone.
    Connect {
        /// Address to connect to.
        remote: SocketAddr,
    },
    /// Requests the end of an accepted connection. Descriptors: the connected socket, and the memory for the end's state.
    /// Answer: [`Reply::Circuit`] or [`Reply::Plain`].
    Accept,
    /// Requests the segments of a stream whose socket the program has (after exec, or passed by another process). Descriptor:
    /// the socket. Answer: [`Reply::Circuit`] with one descriptor more, the memory of this end's state, or [`Reply::Plain`].
    Adopt,
    /// Requests the end of the second circuit of a striped stream ([`crate::stripe`]). The connecting program asks for it before it
    /// connects: its daemon requests the circuit over another cable than that of the first. The accepting program, and one that
    /// adopts, asks for it if [`Reply::Circuit`] says that there is one. Descriptor: memory for the end's state. Answer:
    /// [`Reply::Circuit`], with one descriptor more if the end has a state already, or [`Reply::Plain`]: there is no such circuit.
    Twin {
        /// The end of the first circuit.
        circuit: CircuitId,
        /// Its token, as proof.
        token: u64,
    },
    /// Registers ends that the process has by a `fork`, or from before this session: they live at least as long as the session,
    /// and other ends may wake its waiters for them. Each end comes with its token, as proof; wrong ones are ignored. No answer.
    Hold {
        /// The ends, [`HOLD_MAX`] at most.
        ends: Vec<(CircuitId, u64)>,
    },
    /// Requests the next generation of segments of an end. Answer: [`Reply::Resumed`] with two or three descriptors, or
    /// [`Reply::Plain`] if there is none (any more).
    Resume {
        /// The end.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The generation that the program has.
        generation: u32,
    },
    /// The last descriptor of this end was closed. No answer.
    Close {
        /// The end.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// Whether the end was aborted rather than closed in order.
        abort: bool,
    },
    /// The program has aborted this end, since the far end broke the protocol or the end's own state is corrupt: the
    /// daemon logs it and resets the far end. No answer.
    Violated {
        /// The end.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The reason.
        text: String,
    },
    /// The ring of this generation is too short: the daemon moves the stream to a longer segment if there is room. No answer.
    Grow {
        /// The end.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The generation.
        generation: u32,
    },
    /// Requests a wake event. Answer: [`Reply::Waiter`].
    Waiter,
    /// Returns a wake event on which no thread sleeps; for one whose descriptor did not arrive, since the process had no
    /// room for it. No answer.
    Unwait {
        /// The wake event.
        waiter: WaiterId,
    },
    /// Requests a waker of the far side's waiter. Answer: [`Reply::Waker`], with a descriptor if there is one.
    WantWaker {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The far side's waiter.
        waiter: WaiterId,
    },
    /// Asks the daemon to wake the far side's waiter. No answer.
    Wake {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The far side's waiter.
        waiter: WaiterId,
    },
    /// Asks the daemon to wake another process of this host that holds the same end (by `fork`). No answer.
    WakeHere {
        /// The circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The other process's waiter.
        waiter: WaiterId,
    },
    /// Lets the far end of this circuit map a buffer. Descriptor: its memory. Answer: [`Reply::Done`], or
    /// [`Reply::Error`] if that is not possible: the circuit is longer than one cable, or there are too many buffers.
    ExportBuffer {
        /// The circuit.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The buffer's id.
        buffer: BufferId,
        /// Length, bytes, without the page behind the buffer: see [`crate::buffer`].
        len: u64,
        /// What the far end may do with it.
        reach: Reach,
    },
    /// The program has freed a buffer: the daemon does not pass it to any circuit any more. No answer.
    WithdrawBuffer {
        /// The buffer's id.
        buffer: BufferId,
    },
    /// Requests a buffer of the far program. Answer: [`Reply::Buffer`].
    ImportBuffer {
        /// The circuit to which the far program exported it.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The buffer's id.
        buffer: BufferId,
    },
    /// Reports that a connection uses the kernel's TCP, from the start or from now on: for `explain` and the counters. No answer.
    Note {
        /// The program's descriptor.
        fd: i32,
        /// The far address.
        remote: SocketAddr,
        /// The reason.
        why: Plain,
    },
    /// Requests the offload engine: the program permits the daemon to access its memory. Descriptor: its submission
    /// queue. Answer: [`Reply::Offload`], or [`Reply::Error`] if the daemon has no engine for it.
    Offload,
    /// Registers an end's rings for transfers by the engine. Answer: [`Reply::RegisteredRings`].
    RegisterRings {
        /// The end.
        circuit: CircuitId,
        /// The end's token, as proof.
        token: u64,
        /// The generation that the program uses to send and receive.
        generation: u32,
    },
    /// Registers a buffer for transfers by the engine. Descriptor: its memory. Answer: [`Reply::RegisteredBuffer`].
    /// [`Self::WithdrawBuffer`] ends the registration.
    RegisterBuffer {
        /// The buffer's id.
        buffer: BufferId,
        /// Length, bytes, without the page behind the buffer.
        len: u64,
        /// What processes other than its owner may do with it.
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
    /// Probes a host once. Answer: [`Reply::Echo`].
    Echo {
        /// The host that is probed.
        to: HostId,
    },
    /// Names and addresses of all hosts, `/etc/hosts` form. Answer: [`Reply::Text`] packets.
    Hosts,
    /// Takes the link of a port down, as if its cable were pulled out, until [`Request::Mend`]. Only from root and the
    /// daemon's own user. Answer: [`Reply::Done`], also if it is down already.
    Cut {
        /// Name of the port.
        port: String,
    },
    /// Ends a [`Request::Cut`]. As that request; the answer does not wait for the link to come up.
    Mend {
        /// Name of the port.
        port: String,
    },
}

/// Why a connection is plain TCP. The daemon counts connections by these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Plain {
    /// A rule says TCP, or no rule says otherwise.
    Rule,
    /// The address does not belong to the fabric.
    NotFabric,
    /// The far daemon or this host's refused the circuit, for this reason.
    Refused(Refusal),
    /// The other end did not announce the connection: a plain program.
    NotAnnounced,
    /// The socket has no port of its own yet, and the kernel gave none.
    NoPort,
    /// Recent connections to this address were too short to gain from a stream.
    ShortLived,
    /// This program has no more room for stream ends.
    NoSlot,
    /// A descriptor, mapping or system call failed.
    System,
    /// Downgraded: the program gave the descriptor to stdio.
    Stdio,
    /// Downgraded: out-of-band data.
    OutOfBand,
    /// Downgraded: the descriptor was passed to another program.
    Passed,
    /// Downgraded: exec of a program into which the library cannot be loaded.
    Exec,
    /// Downgraded: a call or option that streams do not have.
    Unsupported,
    /// The program makes system calls without the C library, or may put its sockets into `io_uring`.
    OwnCalls,
}

/// What the `use` rules decide for a connection or a listener.
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

/// What a rule decides. For each of the three kinds the first rule that matches counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// `use`: whether there is a stream.
    Use(Use),
    /// `transfer`: how the program's end sends, by the number of a `crosslane_stream::Transfer`.
    Transfer(u8),
    /// `offload`: whether the daemon's engine copies for the program's end.
    Offload(bool),
    /// `stripe`: whether a connection that the program makes uses two circuits at once, where there are two paths.
    Stripe(bool),
}

/// The side of a connection to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `listen` and `accept`.
    Server,
    /// `connect`.
    Client,
}

/// One rule in libsdp's form: `use <crosslane|tcp|both> <server|client> <program-glob> <addr/prefix>:<ports>`, or with
/// `transfer <auto|bcopy|read-zcopy|write-zcopy>`, `offload <on|off>` or `stripe <on|off>` in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What the rule decides.
    pub action: Action,
    /// The side to which it applies.
    pub role: Role,
    /// Glob over the program's name (`*`, `?`).
    pub program: String,
    /// Network address.
    pub address: IpAddr,
    /// Number of leading bits of `address` that must match.
    pub prefix: u8,
    /// Lowest port.
    pub port_min: u16,
    /// Highest port.
    pub port_max: u16,
}

/// How a program wakes a far waiter by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakeBy {
    /// By a descriptor.
    Descriptor {
        /// The word that a wake must contain.
        word: u64,
    },
    /// By an entry in the queue of stores of the circuit's present generation.
    Queue {
        /// The number that the entry names.
        number: u64,
    },
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Answer to [`Request::Hello`]. Descriptor, unless the session is `resumed`: the *status page*, an array of `u32`
    /// with one [status word](status_word) for each end.
    Welcome {
        /// Random number of this daemon process: a daemon with another number knows no stream that was made before.
        daemon: u64,
        /// Secret that resumes this session: for [`Request::Hello`] when the connection ends before its process does.
        ticket: u64,
        /// Whether this is the earlier session: its streams, status page, wake events, buffers and listeners are still there.
        resumed: bool,
        /// This host.
        host: HostId,
        /// The kernel's inode number of the network namespace of these addresses; 0 if unknown.
        namespace: u64,
        /// This host's fabric addresses.
        addresses: Vec<IpAddr>,
        /// The fabric's subnets: address and prefix length.
        subnets: Vec<(IpAddr, u8)>,
        /// Rules; of each kind the first match counts. The last ones are the defaults.
        rules: Vec<Rule>,
        /// How long a thread may spin before it sleeps, ns.
        spin_ns: u32,
    },
    /// The request was carried out.
    Done,
    /// Answer to [`Request::Listen`]: the program must send a `sock_diag` socket of its network namespace.
    WantTable,
    /// The request failed.
    Error {
        /// What went wrong and what to do, for display.
        text: String,
    },
    /// A circuit's end. Descriptors: inbound segment (for loads), outbound segment (for stores only), and the retention
    /// ring if `retained`.
    Circuit {
        /// The end.
        circuit: CircuitId,
        /// The end's token: later requests about the end must contain it.
        token: u64,
        /// The connection.
        tuple: Tuple,
        /// Whether this is the connecting end.
        client: bool,
        /// Mark key of the ring from which this end receives.
        rx_key: u64,
        /// Mark key of the ring into which this end sends.
        tx_key: u64,
        /// Index of the end's word in the status page.
        status: u32,
        /// Generation of the segments; 0 unless the end was adopted.
        generation: u32,
        /// The inbound and the outbound segment, in the order of their descriptors, and what the circuit can do.
        channel: Box<ChannelInfo>,
        /// Whether the stream has a retention ring: it fills the ring while its way `keeps`, and may have to send from it later.
        retained: bool,
        /// Whether the stream is striped: [`Request::Twin`] must follow before any byte is sent or received.
        twin: bool,
    },
    /// Answer to [`Request::Resume`]: the next generation. Descriptors as with [`Reply::Circuit`]; the retention ring is
    /// the same one in all generations.
    Resumed {
        /// Its number, larger than that in the request.
        generation: u32,
        /// Whether it is the newest: then this end's sending goes on in it.
        newest: bool,
        /// Stream offset up to which the bytes of the *previous* generation's receiving direction count.
        limit: u64,
        /// Stream offset of this end's sending direction that the far end has received; of the newest generation only.
        /// May be [`crate::control::ARRIVED_ALL`].
        arrived: u64,
        /// Mark key of the ring from which this end receives.
        rx_key: u64,
        /// Mark key of the ring into which this end sends.
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
    /// Answer to [`Request::Waiter`]. Descriptor: the sleeper's socket, to poll.
    Waiter {
        /// The waiter's number, unique on this host.
        waiter: WaiterId,
        /// The word that a wake must contain.
        word: u64,
    },
    /// Answer to [`Request::WantWaker`]. Descriptor, if it wakes by one: a waker's socket, made for this program.
    Waker {
        /// How to wake; `None` if there is no such waiter, or only daemons can wake it.
        by: Option<WakeBy>,
    },
    /// A part of a text.
    Text {
        /// The part, UTF-8.
        part: String,
        /// Whether it is the last part.
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
        /// Length of the buffer, bytes, and what may be done with it; `None` if it is not exported to this circuit.
        shape: Option<(u64, Reach)>,
    },
    /// Answer to [`Request::Offload`]. The program may submit transfers once it has mapped the guard page. Descriptors: the sockets
    /// of two wakers, which the program wakes when it has put a send, or a receive, on the submission queue while the daemon's
    /// thread slept; the socket of a wake event, which the engine wakes at the end of transfers whose program asked for it, to be
    /// polled edge-triggered; and the end of a pipe that hangs up once no thread of the daemon works for the program any more.
    Offload {
        /// The words of the two wakers.
        words: [u64; 2],
        /// Address of the guard page, which the daemon chose at random.
        guard: u64,
        /// The word at the start of the guard page.
        nonce: u64,
        /// Thread ids of the daemon's copying threads: for sends and for receives.
        threads: [u32; 2],
        /// Smallest call that is worth a transfer, bytes.
        least: u64,
    },
    /// Answer to [`Request::RegisterRings`].
    RegisteredRings {
        /// The engine's handle for the end's rings, for descriptors of transfers; 0 if the engine does not take them.
        handle: u32,
    },
    /// Answer to [`Request::RegisterBuffer`].
    RegisteredBuffer {
        /// The engine's handle for the buffer, for descriptors of transfers; 0 if the engine does not take it.
        handle: u32,
    },
}
