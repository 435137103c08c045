//! What this process shares among its threads: the session with the daemon, the rules.

use crate::hook::descriptor::streams;
use crate::watch::{self, Watched};
use crate::{crowded, own, thread};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use crosslane_client::session::{self, ANSWER_TIMEOUT, Session};
use crosslane_client::{Grant, SessionError};
use crosslane_shm::life::LifePage;
use crosslane_shm::lock::{self, Guard, Lock};
use crosslane_shm::{MapError, account};
use crosslane_wire::PROTOCOL_VERSION;
use crosslane_wire::local::{HOLD_MAX, Plain, Reply, Request, Rule};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// After a failed attempt to reach the daemon the next one waits this long.
const RETRY: Duration = Duration::from_secs(1);

/// A session with the daemon, and what came with it.
pub struct Link {
    socket: RawFd,
    /// The daemon's words on circuits.
    pub life: LifePage,
    /// Answers that were not waited for and have not come yet.
    owed: Cell<u32>,
    /// Such an answer did not come within [`ANSWER_TIMEOUT`]: none is waited for until the daemon runs again.
    hangs: Cell<bool>,
}

/// Why there is no circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCircuit {
    /// The connection is plain TCP, and the far end knows it.
    Plain(Plain),
    /// The daemon is there but gave no usable answer: what the far end believes is not known.
    Silent,
}

/// What the daemon said of this host and the configuration; replaced when the session is.
pub struct Welcome {
    /// Rules, first match wins.
    pub rules: Vec<Rule>,
    /// Longest spin, ns.
    pub spin_ns: u32,
    /// Threads that may spin at a time.
    pub spinners: u32,
}

struct State {
    link: Option<Link>,
    tried: Option<Instant>,
    warned: bool,
    /// The socket of the last session that ended. It stays open until the next one ends: a closed one leaves the epoll
    /// sets of sleepers before they have seen its end.
    retired: Option<RawFd>,
}

struct Global {
    lock: Lock,
    state: UnsafeCell<State>,
}

// SAFETY: `state` is only touched with `lock` held.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    lock: Lock::new(),
    state: UnsafeCell::new(State { link: None, tried: None, warned: false, retired: None }),
};
static WELCOME: AtomicPtr<Welcome> = AtomicPtr::new(core::ptr::null_mut());
static SOCKET_PATH: OnceLock<PathBuf> = OnceLock::new();
static PID: AtomicU32 = AtomicU32::new(0);
/// Raised at each new session, so that listeners and waiters are registered again.
static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Set once a system call filter is on: no call that a strict one forbids may be made any more.
static SANDBOXED: AtomicBool = AtomicBool::new(false);

/// Number of the present session; another number means that the daemon has forgotten what it was told.
pub fn sessions() -> u32 {
    SESSIONS.load(Ordering::Relaxed)
}

/// What the daemon said, if a session was ever made.
pub fn welcome() -> Option<&'static Welcome> {
    // SAFETY: set once to a leaked box, replaced by another, never freed.
    unsafe { WELCOME.load(Ordering::Acquire).as_ref() }
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

/// Whether we run in the process that made the tables, rather than in a child of `vfork` that borrows its memory.
pub fn is_owner() -> bool {
    PID.load(Ordering::Relaxed) == std::process::id()
}

/// Whether a system call filter is on.
pub fn sandboxed() -> bool {
    SANDBOXED.load(Ordering::Relaxed)
}

/// A system call filter comes on.
pub fn set_sandboxed() {
    lock::confine();
    SANDBOXED.store(true, Ordering::Relaxed);
}

/// Whether this program has more rights than the one that started it, which chose its environment: nothing that is
/// said there counts then.
pub fn is_privileged() -> bool {
    // SAFETY: plain number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn socket_path() -> PathBuf {
    if is_privileged() { PathBuf::from(session::DEFAULT_SOCKET) } else { session::socket_path() }
}

/// At load: the tables know this process. The environment is read now, since some programs (nginx) clear it.
pub fn start() {
    if !is_privileged() {
        account::begin_if_asked();
    }
    let _ = SOCKET_PATH.set(socket_path());
    PID.store(std::process::id(), Ordering::Relaxed);
}

/// Before `fork`: nobody is in the middle of a change. Waits for an answer that is under way.
pub fn before_fork() -> Option<Guard<'static>> {
    GLOBAL.lock.lock(thread::tid()).ok()
}

/// In the child of `fork`: the session is the parent's; keep its socket as a sign of life, and use another.
pub fn after_fork() {
    thread::after_fork();
    PID.store(std::process::id(), Ordering::Relaxed);
    GLOBAL.lock.reset();
    // SAFETY: the child has one thread.
    let state = unsafe { &mut *GLOBAL.state.get() };
    state.link = None;
    state.tried = None;
    watch::renumber(SESSIONS.fetch_add(1, Ordering::Relaxed) + 1);
}

/// The socket of the session, to be kept over exec.
pub fn session_socket() -> Option<RawFd> {
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    unsafe { &*GLOBAL.state.get() }.link.as_ref().map(|link| link.socket)
}

/// Whether this is a signal handler that came in between a request of this very thread.
pub fn is_reentered() -> bool {
    !sandboxed() && GLOBAL.lock.lock(thread::tid()).is_err()
}

/// Makes sure that there is a session. `false`: there is no daemon, everything is plain TCP.
pub fn connected() -> bool {
    on_session(|_, _| Ok(())).is_some()
}

/// Does `work`, which asks for one answer, with the session, connecting first if need be. `None` if there is no daemon,
/// it does not answer in time, or it refused.
pub fn with_session<T>(work: impl FnOnce(&Session, &Link) -> Result<T, SessionError>) -> Option<T> {
    on_session(|session, link| {
        session.tell_given_back();
        link.settle(session, !link.hangs.get())?;
        work(session, link)
    })
}

/// As [`with_session`], but what is late is not waited for; for messages without answers.
pub fn on_session<T>(work: impl FnOnce(&Session, &Link) -> Result<T, SessionError>) -> Option<T> {
    if sandboxed() {
        return None;
    }
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    let state = unsafe { &mut *GLOBAL.state.get() };
    if state.link.is_none() {
        connect(state)?;
    }
    let link = state.link.as_ref()?;
    // SAFETY: the descriptor is ours; the session is not dropped, so it is not closed here.
    let session =
        core::mem::ManuallyDrop::new(Session::from_socket(unsafe { OwnedFd::from_raw_fd(link.socket) }));
    match work(&session, link) {
        Ok(value) => Some(value),
        Err(SessionError::Late) => {
            link.owed.set(link.owed.get() + 1);
            None
        }
        Err(SessionError::Refused(_) | SessionError::Map(_) | SessionError::NoRoom { .. }) => None,
        // Its queue is full: it does not run.
        Err(SessionError::Lost(Errno::AGAIN)) => None,
        Err(_) => {
            drop_link(state);
            None
        }
    }
}

impl Link {
    /// Takes the answers that were not waited for, if they have come by now.
    fn settle(&self, session: &Session, wait: bool) -> Result<(), SessionError> {
        while self.owed.get() > 0 {
            match session.late_answer(wait) {
                Ok(()) => self.owed.set(self.owed.get() - 1),
                Err(SessionError::Late) => {
                    self.hangs.set(self.hangs.get() || wait);
                    return Err(SessionError::Lost(Errno::AGAIN));
                }
                Err(error) => return Err(error),
            }
        }
        self.hangs.set(false);
        Ok(())
    }
}

/// The session is over, and with it the daemon's hold on all circuits of this process.
fn drop_link(state: &mut State) {
    if let Some(link) = state.link.take() {
        // SAFETY: our own descriptor, which is open.
        let socket = unsafe { BorrowedFd::borrow_raw(link.socket) };
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        state.retired.replace(link.socket).into_iter().for_each(own::close);
        state.tried = Some(Instant::now());
        watch::over();
    }
}

/// A sleeper saw that the daemon at the other end of `watched` is gone.
pub fn lost(watched: Watched) {
    if sandboxed() {
        watch::is_over(watched);
        return;
    }
    let Ok(_guard) = GLOBAL.lock.lock(thread::tid()) else { return };
    // SAFETY: the lock is held.
    let state = unsafe { &mut *GLOBAL.state.get() };
    if watch::present() == Some(watched) && state.link.as_ref().is_some_and(|link| link.socket == watched.fd)
    {
        drop_link(state);
    } else {
        watch::is_over(watched);
    }
}

/// Tells the daemon something that has no answer. In a sandbox only `write` is used for it. Whether it was told.
pub fn tell(request: &Request) -> bool {
    if sandboxed() {
        // SAFETY: a filter came on after the session was made, and in this thread's view it stays.
        let state = unsafe { &*GLOBAL.state.get() };
        let (Some(link), Ok(bytes)) = (&state.link, crosslane_wire::codec::encode(request)) else {
            return false;
        };
        // SAFETY: the descriptor stays open: in a sandbox it is closed no more.
        return rustix::io::write(unsafe { BorrowedFd::borrow_raw(link.socket) }, &bytes).is_ok();
    }
    on_session(|session, _| session.tell(request)).is_some()
}

/// Tells the daemon of buffers that were given back, unless another thread talks to it: that one does it then, or the next.
pub fn tell_given_back() {
    if sandboxed() || !is_owner() {
        return;
    }
    let Some(_guard) = GLOBAL.lock.try_lock(thread::tid()) else { return };
    // SAFETY: the lock is held.
    if let Some(link) = unsafe { &*GLOBAL.state.get() }.link.as_ref() {
        // SAFETY: the descriptor is ours; the session is not dropped, so it is not closed here.
        let session = unsafe { OwnedFd::from_raw_fd(link.socket) };
        core::mem::ManuallyDrop::new(Session::from_socket(session)).tell_given_back();
    }
}

/// Asks for a circuit for `socket`; for `patience` at most, and always less than [`ANSWER_TIMEOUT`] for each answer.
pub fn circuit(
    request: &Request,
    socket: RawFd,
    patience: Duration,
) -> Result<(Grant, &'static AtomicU32), NoCircuit> {
    // SAFETY: the program's descriptor, which is open during this call of the program's.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let answer = on_session(|session, link| {
        link.settle(session, !link.hangs.get() && patience >= ANSWER_TIMEOUT)?;
        let answer = match session.circuit_within(request, socket, patience) {
            Err(SessionError::NoRoom { circuit, token }) => {
                match crowded::ask(session, &Request::Adopt, socket) {
                    Ok(Ok(grant)) => Ok(grant),
                    failed => {
                        // An end that was to be adopted has other holders.
                        if *request != Request::Adopt {
                            session.tell(&Request::Close { circuit, token, abort: true })?;
                        }
                        return Err(failed.err().unwrap_or(SessionError::NoRoom { circuit, token }));
                    }
                }
            }
            Err(SessionError::Map(MapError::System(Errno::MFILE))) => crowded::ask(session, request, socket)?,
            answer => answer?,
        };
        Ok(answer.map(|grant| (link.life.word(grant.life), grant)))
    });
    match answer {
        Some(Ok((Some(life), grant))) => Ok((grant, life)),
        Some(Err(why)) => Err(NoCircuit::Plain(why)),
        Some(Ok((None, _))) => Err(NoCircuit::Silent),
        None if is_absent() => Err(NoCircuit::Plain(Plain::System)),
        None => Err(NoCircuit::Silent),
    }
}

/// Whether the daemon that knew of this process's listeners is gone, so that whatever it announced is over at the other
/// end too.
fn is_absent() -> bool {
    watch::look();
    watch::present().is_none()
}

fn connect(state: &mut State) -> Option<()> {
    if state.tried.is_some_and(|tried| tried.elapsed() < RETRY) {
        return None;
    }
    state.tried = Some(Instant::now());
    watch::look();
    match open() {
        Ok(link) => {
            watch::begin(link.socket, SESSIONS.fetch_add(1, Ordering::Relaxed) + 1);
            hold_streams(&link);
            state.link = Some(link);
            Some(())
        }
        Err(error) => {
            if !state.warned && WELCOME.load(Ordering::Relaxed).is_null() {
                warn(&error);
            }
            state.warned = true;
            None
        }
    }
}

/// The streams that this process has by a `fork`: from now on they are ends of its own session as well, and its sleepers
/// are woken when their circuits move.
fn hold_streams(link: &Link) {
    let ends: Vec<_> = streams().iter().map(|end| (end.circuit(), end.token())).collect();
    // SAFETY: the descriptor is ours; the session is not dropped, so it is not closed here.
    let session = unsafe { OwnedFd::from_raw_fd(link.socket) };
    let session = core::mem::ManuallyDrop::new(Session::from_socket(session));
    for ends in ends.chunks(HOLD_MAX) {
        let _ = session.tell(&Request::Hold { ends: ends.to_vec() });
    }
}

fn open() -> Result<Link, SessionError> {
    let session = Session::connect(SOCKET_PATH.get_or_init(socket_path))?;
    let hello = Request::Hello { version: PROTOCOL_VERSION, program: crate::rules::program().to_owned() };
    let (reply, fds) = session.request(&hello, &[])?;
    match reply {
        Reply::Welcome { rules, spin_ns, .. } => {
            let life = fds.first().and_then(LifePage::map).ok_or(SessionError::Unexpected("no life page"))?;
            let processors = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
            let spinners = u32::try_from(processors / 2).unwrap_or(u32::MAX);
            let welcome = Welcome { rules, spin_ns: if processors == 1 { 0 } else { spin_ns }, spinners };
            WELCOME.store(Box::into_raw(Box::new(welcome)), Ordering::Release);
            Ok(Link {
                socket: own::hide(session.into_socket()),
                life,
                owed: Cell::new(0),
                hangs: Cell::new(false),
            })
        }
        Reply::Error { text } => Err(SessionError::Refused(text)),
        _ => Err(SessionError::Unexpected("a welcome was due")),
    }
}

/// One line on standard error, once a process.
fn warn(error: &SessionError) {
    let line = format!("crosslane: {}: {error}; using TCP\n", crate::rules::program());
    let _ = rustix::io::write(std::io::stderr().as_fd(), line.as_bytes());
}
