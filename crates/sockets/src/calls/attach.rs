//! How a kernel socket becomes a stream: announced by its daemon before the SYN, found by the other at `accept`.
//!
//! ```text
//!   client                    daemons                       server
//!   bind to a free port                                     listen: Request::Listen
//!   Request::Connect  ------> listener there? two segments
//!                     <------ Reply::Circuit
//!   Hello into the ring
//!   connect (SYN)  .......... kernel TCP ................>  accept
//!                             the tuple was announced <---- Request::Accept
//!                             Reply::Circuit ------------>  HelloAck into the ring
//! ```
//! The announcement precedes the SYN, so `accept` gets a final answer, and no byte changes its path.

use crate::calls::{options, sol_crosslane};
use crate::daemon::daemon_link::DAEMON;
use crate::daemon::process::{self, ConnectError};
use crate::daemon::{namespace, pending_accepts, rules, watch};
use crate::descriptors::table::{self, Entry, Held, Kind};
use crate::kernel::{address, real, sockopt, thread};
use crate::socket::handshake::{self, Lifted};
use crate::socket::short_lived_peers::{self, Advice};
use crate::socket::{end_of_life, listener, own_calls, port};
use crate::waiting::{epoll, wait};
use core::ffi::c_int;
use core::net::SocketAddr;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::End;
use crosslane_client::link::attached::{self, Granted};
use crosslane_client::session::ANSWER_TIMEOUT;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Request, Use};
use std::time::Duration;

/// How long a nonblocking `connect` waits for its own daemon: longer than the daemon waits for the neighbour's, plus
/// tens of milliseconds for busy processors.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(150);

/// A circuit that was granted for a connection that is about to be made.
pub struct Announced {
    index: u32,
    losses: u32,
    lifted: Lifted,
}

/// What was decided before `connect`.
pub enum Decision {
    /// Go on as plain TCP.
    Plain,
    /// The far side knows of this connection; make it, then call [`Announced::connected`].
    Announced(Announced),
    /// A rule allows streams only, and there can be none.
    Refused,
}

/// Before the kernel's `connect` of `fd` to `remote`.
pub fn announce(fd: c_int, remote: SocketAddr) -> Decision {
    let sdp = table::look(fd).is_some_and(|entry| entry.kind == Kind::Sdp);
    if !sockopt::is_fresh_tcp(fd) || !process::connected() {
        return Decision::Plain;
    }
    let Some(welcome) = process::welcome() else { return Decision::Plain };
    let decided = match rules::for_client(&welcome.rules, remote) {
        Use::Tcp if !sdp => return Decision::Plain,
        Use::Tcp => Use::Both,
        decided => decided,
    };
    if own_calls::keep_plain() {
        note(fd, remote, Plain::OwnCalls);
        return if decided == Use::Crosslane { Decision::Refused } else { Decision::Plain };
    }
    if decided == Use::Both && !sdp {
        match short_lived_peers::advise(remote) {
            Advice::Stream => {}
            Advice::Tcp => return Decision::Plain,
            Advice::TcpFirst => {
                note(fd, remote, Plain::ShortLived);
                return Decision::Plain;
            }
        }
    }
    let losses = watch::losses();
    let granted = if options::are_tcp_only(fd) { Err(Plain::Unsupported) } else { granted(fd, remote) };
    match granted {
        Ok(index) => Decision::Announced(Announced { index, losses, lifted: handshake::lift(fd) }),
        Err(why) => {
            if why == Plain::NotFabric && welcome.is_elsewhere {
                namespace::say();
            }
            note(fd, remote, why);
            if matches!(why, Plain::Refused(Refusal::NoListener | Refusal::NoRoute | Refusal::Rule)) {
                short_lived_peers::refused(remote);
            }
            if decided == Use::Crosslane { Decision::Refused } else { Decision::Plain }
        }
    }
}

impl Announced {
    /// Called after the kernel's `connect` of `fd` returned `outcome` with `errno`: makes the socket a stream, or gives
    /// the circuit back.
    pub fn connected(self, fd: c_int, outcome: c_int, errno: c_int) {
        let Some(held) = table::at(self.index) else { return };
        if address::local(fd).is_none_or(|local| local.port() != held.tuple().client.port()) {
            // Another thread has closed the descriptor: the kernel has ended the connection, and the number may name something else.
            end_of_life::closing(&held);
            return;
        }
        let pending = outcome != 0 && matches!(errno, libc::EINPROGRESS | libc::EINTR);
        if pending {
            handshake::under_way(&held, self.lifted);
        } else {
            self.lifted.restore(fd);
        }
        if outcome != 0 && !pending {
            port::left(fd, &held);
            end_of_life::give_up(&held);
            return;
        }
        if !pending {
            port::share(fd, &held);
        }
        become_stream(fd, &held, self.losses);
    }
}

/// Handles the socket `fd` that the kernel's `accept` returned. Resets its connection if the other end may take it for
/// a stream and it cannot be one here: else the other end would send where nobody reads. `unannounced` is the reason to
/// record if it was not announced.
pub fn accepted(fd: c_int, unannounced: Plain) {
    if !pending_accepts::is_announced() {
        return;
    }
    let losses = watch::losses();
    match process::circuit(&Request::Accept, fd, ANSWER_TIMEOUT) {
        Ok(granted) => {
            let is_striped = granted.0.twin;
            let Some(held) = begin(granted) else { return sockopt::reset(fd) };
            if held.was_attached() {
                if is_striped && stripe(&held, ANSWER_TIMEOUT, false) != Ok(true) {
                    // The other end's bytes alternate between two circuits.
                    end_of_life::give_up(&held);
                    return sockopt::reset(fd);
                }
                become_stream(fd, &held, losses);
            } else {
                // The other end's daemon had given up waiting for ours: its program connected by plain TCP.
                end_of_life::give_up(&held);
                stays_plain(fd, Plain::NotAnnounced);
            }
        }
        Err(ConnectError::Plain(Plain::NotAnnounced)) => stays_plain(fd, unannounced),
        Err(ConnectError::Plain(why)) => stays_plain(fd, why),
        Err(ConnectError::Silent) if has_bytes(fd) => stays_plain(fd, Plain::System),
        Err(ConnectError::Silent) => sockopt::reset(fd),
    }
}

/// Whether the other end wrote into the TCP connection itself, as an end does that takes it for plain TCP.
fn has_bytes(fd: c_int) -> bool {
    sockopt::unread(fd).is_some_and(|count| count > 0)
}

/// Tells the daemon why the connection `fd` is plain TCP, if it is one.
pub fn stays_plain(fd: c_int, why: Plain) {
    if let Some(remote) = address::remote(fd) {
        note(fd, remote, why);
    }
}

/// After the kernel's `listen` on `fd`: the daemon learns of it if a rule wants streams here.
pub fn listening(fd: c_int) {
    let Some(local) = address::local(fd) else { return };
    if !process::connected() {
        return;
    }
    let Some(welcome) = process::welcome() else { return };
    let sdp = table::look(fd).is_some_and(|entry| entry.kind == Kind::Sdp);
    if !rules::for_listener(&welcome.rules, local) && !sdp {
        return;
    }
    if welcome.is_elsewhere && !local.ip().to_canonical().is_loopback() {
        namespace::say();
    }
    if !own_calls::keep_listener_plain(fd) {
        listener::register(fd);
    }
}

/// Called before an `accept` on `fd`: registers the listener again with a restarted daemon, and withdraws it if the
/// program has since loaded code that makes its own system calls.
pub fn renew(fd: c_int) {
    let errno = real::errno();
    if let Some(Entry { kind: Kind::Listener, .. }) = table::look(fd) {
        own_calls::before_accept();
    }
    if let Some(Entry { kind: Kind::Listener, index }) = table::look(fd)
        && index != process::sessions()
    {
        listener::register(fd);
    }
    real::set_errno(errno);
}

/// Ends a stream on which `connect` is called for another address, or after the circuit was given up. `remote` is
/// `None` if the connection is only dissolved. Returns whether the stream is over.
pub fn leave_for(fd: c_int, held: &Held, remote: Option<SocketAddr>) -> bool {
    let same = remote.is_some_and(|remote| is_same(remote, held.tuple().server)) && held.dead().is_none();
    if same || (remote.is_some() && (wait::is_connected(fd, held) || is_on_its_way(fd))) {
        return false;
    }
    epoll::closed(fd);
    if remote.is_none() {
        end_of_life::abort(held);
    }
    port::left(fd, held);
    if table::leave(fd).is_some() {
        end_of_life::closing(held);
    }
    true
}

fn is_same(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
}

/// Whether the kernel still tries to connect.
fn is_on_its_way(fd: c_int) -> bool {
    const SYN_SENT: c_int = 2;
    sockopt::number(fd, libc::IPPROTO_TCP, libc::TCP_INFO).is_some_and(|info| info & 0xff == SYN_SENT)
}

/// Tells the daemon that a stream continues over TCP.
pub fn note_downgrade(end: &Held, why: Plain) {
    epoll::downgraded(end);
    let tuple = end.tuple();
    let client = end.shared().status.client.load(Relaxed) != 0;
    note(-1, if client { tuple.server } else { tuple.client }, why);
}

/// Finds out whether a socket that came by exec or from another process is a stream.
pub fn adopt(fd: c_int) {
    table::leave(fd);
    if !sockopt::is_tcp(fd) {
        return;
    }
    if sockopt::is_listening(fd) {
        listening(fd);
        return;
    }
    let losses = watch::losses();
    let Ok((grant, status)) = process::circuit(&Request::Adopt, fd, ANSWER_TIMEOUT) else { return };
    let is_striped = grant.twin;
    let end = End::resume(grant, status, &DAEMON);
    if is_striped && stripe(&end, ANSWER_TIMEOUT, true) != Ok(true) {
        return;
    }
    end.shared().counters.refs.fetch_max(1, Relaxed);
    end.forget_waiters();
    if let Some(index) = table::place(end) {
        table::enter(fd, Kind::Stream, index);
        if let Some(held) = table::at(index) {
            check_losses(&held, losses);
        }
    }
}

/// Tells the daemon why a connection is plain TCP.
pub fn note(fd: c_int, remote: SocketAddr, why: Plain) {
    process::tell(&Request::Note { fd, remote, why });
}

fn granted(fd: c_int, remote: SocketAddr) -> Result<u32, Plain> {
    let claim = port::claim(fd, remote)?;
    let nonblocking = sockopt::status_flags(fd) & libc::O_NONBLOCK != 0;
    let patience = if nonblocking { CONNECT_TIMEOUT } else { ANSWER_TIMEOUT };
    let begun = match process::circuit(&Request::Connect { remote }, fd, patience) {
        Ok(granted) => {
            begin(granted).ok_or(Plain::NoSlot).and_then(|held| with_stripes(held, remote, patience))
        }
        Err(ConnectError::Plain(why)) => Err(why),
        Err(ConnectError::Silent) => Err(Plain::System),
    };
    match begun {
        Ok(held) => {
            claim.keep(&held);
            Ok(held.index)
        }
        Err(why) => {
            claim.give_back();
            Err(why)
        }
    }
}

/// Has a connection use two circuits if a rule says so and there are two paths.
fn with_stripes(held: Held, remote: SocketAddr, patience: Duration) -> Result<Held, Plain> {
    let is_wanted = process::welcome().is_some_and(|welcome| rules::stripes(&welcome.rules, remote));
    match if is_wanted { stripe(&held, patience, false) } else { Ok(false) } {
        Ok(_) => Ok(held),
        Err(why) => {
            end_of_life::give_up(&held);
            Err(why)
        }
    }
}

/// Gets the second circuit of a stream that no byte has used yet. `Ok(false)`: there is none, and both ends know. An error: the far
/// daemon may have made one.
fn stripe(end: &End, patience: Duration, adopted: bool) -> Result<bool, Plain> {
    match process::twin(end, patience) {
        Ok(granted) => {
            let striped = attached::stripe(end, granted, &DAEMON, adopted);
            striped.map(|()| true).map_err(|_| Plain::System)
        }
        Err(ConnectError::Plain(Plain::Refused(Refusal::Timeout)) | ConnectError::Silent) => {
            Err(Plain::System)
        }
        Err(ConnectError::Plain(_)) => Ok(false),
    }
}

/// The circuit is given back if this fails.
fn begin(granted: Granted) -> Option<Held> {
    let keep = |end| table::at(table::place(end)?);
    attached::begin(granted, &DAEMON, process::spin_ns(), keep).ok()?
}

fn become_stream(fd: c_int, held: &Held, losses: u32) {
    let status = &held.shared().status;
    status.nonblock.store(u32::from(sockopt::status_flags(fd) & libc::O_NONBLOCK != 0), Relaxed);
    options::inherit(fd, held);
    sol_crosslane::begin(fd, held);
    table::enter(fd, Kind::Stream, held.index);
    check_losses(held, losses);
    held.refresh(thread::tid());
    epoll::upgraded(fd);
}

/// The circuit of `held` was granted after `losses` lost sessions. If one more was lost since then, so was the circuit.
fn check_losses(held: &Held, losses: u32) {
    if watch::losses() != losses {
        held.break_off(libc::ECONNRESET);
    }
}
