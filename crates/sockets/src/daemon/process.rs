//! What this process shares among its threads: the session with the daemon, the rules.

mod circuit;

pub use circuit::{ConnectError, circuit, twin};

use crate::daemon::namespace;
use crate::daemon::watch::{self, Watched};
use crate::descriptors::{internal_fds, table};
use crate::kernel::published::Published;
use crate::kernel::said::say;
use crate::kernel::{fd, program, thread};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crosslane_client::SessionError;
use crosslane_client::link::Attached;
use crosslane_client::session::{self, Session};
use crosslane_shm::account;
use crosslane_shm::lock::{Guard, Locked};
use crosslane_shm::status_page::StatusPage;
use crosslane_wire::local::{HOLD_MAX, Reply, Request, Rule};
use rustix::event::Timespec;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// After a failed attempt to reach the daemon the next one waits this long.
const RETRY: Duration = Duration::from_secs(1);
/// The same while streams depend on it.
const RETRY_SOON: Duration = Duration::from_millis(50);
/// So long streams go on without a connection to a daemon that is there and takes none.
const NO_DAEMON_MAX: Duration = Duration::from_secs(30);

/// A session with the daemon, and what came with it.
struct Link {
    attached: Attached,
    /// What this session shows to go on by another connection.
    ticket: u64,
    /// The life of the daemon.
    daemon: u64,
}

/// What is known of a session without a connection: the one that this process had, or its parent's before a `fork`.
#[derive(Clone, Copy)]
struct Former {
    /// Of our own one; none of the parent's.
    own: Option<(u64, StatusPage)>,
    /// The life of the daemon.
    daemon: u64,
    since: Instant,
}

/// What the daemon said of this host and the configuration; replaced when the session is.
pub struct Welcome {
    /// Rules, first match wins.
    pub rules: Vec<Rule>,
    /// Longest spin, ns.
    pub spin_ns: u32,
    /// Threads that may spin at a time.
    pub spinners: u32,
    /// The daemon has its addresses in another network namespace than this program.
    pub is_elsewhere: bool,
}

struct State {
    link: Option<Link>,
    /// The streams belong to this one, if there is no link.
    former: Option<Former>,
    /// The session goes on by another connection since a moment: what was said by the old one may not have been heard.
    unheard: bool,
    tried: Option<Instant>,
    warned: bool,
    /// The socket of the last session that ended. It stays open until the next one ends: a closed one leaves the epoll
    /// sets of sleepers before they have seen its end.
    retired: Option<RawFd>,
}

static STATE: Locked<State> = Locked::new(State {
    link: None,
    former: None,
    unheard: false,
    tried: None,
    warned: false,
    retired: None,
});
static WELCOME: Published<Welcome> = Published::new();
static NOTICES: OnceLock<Notices> = OnceLock::new();
/// Whether the session of this process is without a connection.
static LOST: AtomicBool = AtomicBool::new(false);
/// How often a session went on by another connection.
static RESUMPTIONS: AtomicU32 = AtomicU32::new(0);
/// Raised at each new session, so that listeners and waiters are registered again.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Number of the present session; another number means that the daemon has forgotten what it was told.
pub fn sessions() -> u32 {
    SESSIONS.load(Ordering::Relaxed)
}

/// What the daemon said, if a session was ever made.
pub fn welcome() -> Option<&'static Welcome> {
    WELCOME.get()
}

/// Longest spin, ns; 0 with one processor.
#[inline]
pub fn spin_ns() -> u32 {
    welcome().map_or(0, |welcome| welcome.spin_ns)
}

/// Threads of this process that may spin at a time.
#[inline]
pub fn spinners() -> u32 {
    welcome().map_or(0, |welcome| welcome.spinners)
}

/// What the layers above do when something becomes of the session.
pub struct Notices {
    /// The session goes on by another connection: what was said by the old one may not have been heard. Without
    /// the session's lock.
    pub resumed: fn(),
    /// The daemon is gone, or has forgotten this process; the streams are broken off already. With the session's lock.
    pub lost: fn(),
}

/// At load.
pub fn start(notices: Notices) {
    if !program::is_privileged() {
        account::begin_if_asked();
    }
    let _ = NOTICES.set(notices);
    namespace::start();
    program::own();
}

/// Before `fork`: nobody is in the middle of a change. Waits for an answer that is under way.
pub fn before_fork() -> Option<Guard<'static>> {
    STATE.hold(thread::tid()).ok()
}

/// In the child of `fork`: the session is the parent's, and nobody speaks in its name but the parent. The kernel knows who holds
/// which connection, so the daemon need not be told before this process needs something of it.
pub fn after_fork() {
    thread::after_fork();
    program::own();
    STATE.reset();
    let _ = STATE.with(thread::tid(), forget_parents_link);
    watch::forget();
    LOST.store(false, Ordering::Relaxed);
    SESSIONS.fetch_add(1, Ordering::Relaxed);
}

/// The parent's link is none of ours.
fn forget_parents_link(state: &mut State) {
    let link = state.link.take();
    let daemon = link.as_ref().map(|link| link.daemon).or(state.former.map(|former| former.daemon));
    state.former = daemon.map(|daemon| Former { own: None, daemon, since: Instant::now() });
    state.tried = None;
    state.unheard = false;
    link.map(|link| link.socket()).into_iter().chain(state.retired.take()).for_each(internal_fds::close);
}

/// Before a sleep: a session whose connection has ended is to go on by another one, since it may be what wakes us.
#[inline]
pub fn tend() {
    if LOST.load(Ordering::Relaxed) {
        connected();
    }
}

/// Whether this is a signal handler that came in between a request of this very thread.
pub fn is_reentered() -> bool {
    !program::sandboxed() && STATE.hold(thread::tid()).is_err()
}

/// Makes sure that there is a session. `false`: there is no daemon, everything is plain TCP.
pub fn connected() -> bool {
    on_session(|_| Ok(())).is_some()
}

/// Does `work`, which asks for one answer, with the session, connecting first if need be. `None` if there is no daemon,
/// it does not answer in time, or it refused.
pub fn with_session<T>(work: impl FnOnce(&Session) -> Result<T, SessionError>) -> Option<T> {
    on_session(|link| link.ask(!link.hangs(), work))
}

/// As [`with_session`], for what a stream cannot do without: if the connection ends meanwhile it is asked for again by the next
/// one, and waited for as long as streams go on without one.
pub fn with_any_session<T>(work: impl Fn(&Session) -> Result<T, SessionError>) -> Option<T> {
    loop {
        let before = RESUMPTIONS.load(Ordering::Relaxed);
        let value = with_session(&work);
        let lost = LOST.load(Ordering::Relaxed);
        if value.is_some() || !lost && RESUMPTIONS.load(Ordering::Relaxed) == before || program::sandboxed() {
            return value;
        }
        if lost {
            std::thread::sleep(RETRY_SOON);
        }
    }
}

/// As [`with_session`], but what is late is not waited for; for messages without answers.
pub fn on_session<T>(work: impl FnOnce(&Attached) -> Result<T, SessionError>) -> Option<T> {
    if program::sandboxed() {
        return None;
    }
    with_state(|state| by_link(state, work)).flatten()
}

/// Does `work` with the state; then, without the lock, what is due if the session went on by another connection meanwhile. `None`:
/// this is a signal handler that came in between.
fn with_state<T>(work: impl FnOnce(&mut State) -> T) -> Option<T> {
    let outcome = STATE.with(thread::tid(), |state| (work(state), core::mem::take(&mut state.unheard)));
    let (value, unheard) = outcome.ok()?;
    if unheard {
        say_again();
    }
    Some(value)
}

fn by_link<T>(state: &mut State, work: impl FnOnce(&Attached) -> Result<T, SessionError>) -> Option<T> {
    if state.link.is_none() {
        connect(state);
    }
    let outcome = work(&state.link.as_ref()?.attached);
    if outcome.as_ref().is_err_and(SessionError::ends_connection) {
        drop_link(state);
    }
    outcome.ok()
}

impl Link {
    /// The session's socket, one of our own descriptors.
    fn socket(&self) -> RawFd {
        self.attached.session().socket().as_raw_fd()
    }
}

/// The connection has ended: the session goes on by another one at once, if the daemon is there.
fn drop_link(state: &mut State) {
    if let Some(link) = state.link.take() {
        let _ = rustix::net::shutdown(link.attached.session().socket(), rustix::net::Shutdown::Both);
        state.retired.replace(link.socket()).into_iter().for_each(internal_fds::close);
        let own = Some((link.ticket, link.attached.status_page));
        state.former = Some(Former { own, daemon: link.daemon, since: Instant::now() });
        state.tried = None;
        watch::forget();
        LOST.store(true, Ordering::Relaxed);
        connect(state);
    }
}

/// A sleeper saw that the connection `watched` has ended.
pub fn lost(watched: Watched) {
    if program::sandboxed() {
        if watch::present() == Some(watched) {
            over();
        }
        return;
    }
    with_state(|state| {
        if watch::present() == Some(watched) {
            drop_link(state);
        }
    });
}

fn say_again() {
    if let Some(notices) = NOTICES.get() {
        (notices.resumed)();
    }
}

/// The daemon is gone, and with it the circuits of all streams. Without a connection nobody sleeps for long meanwhile.
fn over() {
    watch::count_loss();
    for end in table::streams() {
        end.break_off(libc::ECONNRESET);
    }
    if let Some(notices) = NOTICES.get() {
        (notices.lost)();
    }
    watch::forget();
}

/// Looks whether the connection has ended, without waiting.
fn look_at_connection() {
    let Some(watched) = watch::present() else { return };
    let mut fds = [watched.poll()];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&zero)).is_ok() && watch::has_ended(&fds[0]) {
        lost(watched);
    }
}

/// Tells the daemon something that has no answer. In a sandbox only `write` is used for it. Whether it was told.
pub fn tell(request: &Request) -> bool {
    if program::sandboxed() {
        // The filter came on after the session was made, whose descriptor is closed no more.
        let (Some(watched), Ok(bytes)) = (watch::present(), crosslane_wire::codec::encode(request)) else {
            return false;
        };
        return rustix::io::write(fd::borrow(watched.fd), &bytes).is_ok();
    }
    let before = RESUMPTIONS.load(Ordering::Relaxed);
    let told = || on_session(|link| link.session().tell(request)).is_some();
    told() || RESUMPTIONS.load(Ordering::Relaxed) != before && told()
}

/// Tells the daemon of buffers that were given back, unless another thread talks to it: that one does it then, or the next.
pub fn tell_given_back() {
    if program::sandboxed() || !program::is_owner() {
        return;
    }
    STATE.try_with(thread::tid(), |state| {
        if let Some(link) = &state.link {
            link.attached.session().tell_given_back();
        }
    });
}

/// Opens a session, or has the former one go on.
fn connect(state: &mut State) {
    let pause = if state.former.is_some() { RETRY_SOON } else { RETRY };
    if state.tried.is_some_and(|tried| tried.elapsed() < pause) {
        return;
    }
    state.tried = Some(Instant::now());
    match open(state.former.and_then(|former| former.own)) {
        Ok((link, resumed)) => {
            let former = state.former.take();
            if resumed {
                state.unheard = true;
                RESUMPTIONS.fetch_add(1, Ordering::Relaxed);
            } else {
                // It knows nothing of the streams of a session that it did not go on with, nor of those of an earlier daemon.
                if former.is_some_and(|former| former.own.is_some() || former.daemon != link.daemon) {
                    over();
                }
                SESSIONS.fetch_add(1, Ordering::Relaxed);
                hold_streams(&link);
            }
            watch::begin(link.socket());
            LOST.store(false, Ordering::Relaxed);
            state.link = Some(link);
        }
        Err(error) => {
            let absent =
                matches!(error, SessionError::NoDaemon { errno: Errno::CONNREFUSED | Errno::NOENT, .. });
            if state.former.is_some_and(|former| absent || former.since.elapsed() > NO_DAEMON_MAX) {
                state.former = None;
                LOST.store(false, Ordering::Relaxed);
                over();
            }
            if error.is_crowded() {
                // There is a daemon, and may be room at the next call: what it must know of cannot wait.
                state.tried = None;
            }
            if !state.warned && WELCOME.get().is_none() {
                say(&format!("{error}; using TCP"));
            }
            state.warned = true;
        }
    }
}

/// The streams that this process has by a `fork`: from now on they are ends of its own session as well, and its sleepers
/// are woken when their circuits move.
fn hold_streams(link: &Link) {
    let streams = table::streams();
    let ends: Vec<_> = streams.iter().flat_map(|end| end.circuits()).collect();
    for ends in ends.chunks(HOLD_MAX) {
        let _ = link.attached.session().tell(&Request::Hold { ends: ends.to_vec() });
    }
}

/// Opens a connection for the session with this ticket and status page, if there is one, else for a new one; whether it is the
/// former one that goes on.
fn open(former: Option<(u64, StatusPage)>) -> Result<(Link, bool), SessionError> {
    let session = Session::connect(namespace::daemon_path())?;
    let ticket = former.map_or(0, |(ticket, _)| ticket);
    let (welcome, fds) = session.hello_again(program::name(), ticket)?;
    let Reply::Welcome { daemon, ticket, resumed, rules, spin_ns, namespace, .. } = welcome else {
        return Err(SessionError::Unexpected("a welcome was due"));
    };
    let is_elsewhere = namespace::is_elsewhere(&session, namespace);
    if is_elsewhere && former.is_none() && namespace::find_ours(namespace::daemon_path(), &session) {
        return open(None);
    }
    let status_page = match former {
        Some((_, status_page)) if resumed => status_page,
        _ => session::status_page(&fds)?,
    };
    let processors = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    let spinners = u32::try_from(processors / 2).unwrap_or(u32::MAX);
    let spin_ns = if processors == 1 { 0 } else { spin_ns };
    WELCOME.set(Some(Box::leak(Box::new(Welcome { rules, spin_ns, spinners, is_elsewhere }))));
    let socket = internal_fds::lend(internal_fds::hide(session.into_socket()));
    let session = ManuallyDrop::new(Session::from_socket(ManuallyDrop::into_inner(socket)));
    Ok((Link { attached: Attached::new(session, status_page), ticket, daemon }, resumed))
}
