//! A session (control connection) with this host's daemon, over its control socket.

use crate::segments::{Next, Numbers, Segments};
use crate::shared::SharedState;
use crosslane_passing as passing;
use crosslane_shm::buffer::{self, Located};
use crosslane_shm::status_page::StatusPage;
use crosslane_shm::wake::{FarWaker, Receiver, Waker};
use crosslane_shm::{FarBuffer, MapError};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Plain, Reply, Request, WakeBy};
use crosslane_wire::{BufferId, CircuitId, DecodeError, Tuple, WaiterId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, netlink, sockopt,
};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The daemon's control socket, unless [`SOCKET_VARIABLE`] names another.
pub const DEFAULT_SOCKET: &str = "/run/crosslane/crosslaned.sock";
/// Environment variable that names another control socket.
pub const SOCKET_VARIABLE: &str = "CROSSLANE_SOCKET";
/// Environment variable that says for what a program makes system calls and uses rings by itself, if only for [`FILES`]. Set
/// for this project's own tools, which wait by such calls, but for no socket.
pub const OWN_CALLS_VARIABLE: &str = "CROSSLANE_OWN_CALLS";
/// A value of [`OWN_CALLS_VARIABLE`].
pub const FILES: &str = "files";
/// How long the daemon may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a request to the daemon failed.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No daemon listens there.
    #[error(
        "no daemon answers at {path}: {errno}; start `crosslaned --config FILE` or set {SOCKET_VARIABLE}"
    )]
    NoDaemon {
        /// Path of the control socket.
        path: PathBuf,
        /// Errno of `connect`.
        errno: Errno,
    },
    /// A call on the control socket failed; the daemon has ended or is frozen.
    #[error("the daemon does not answer: {0}")]
    Lost(#[from] Errno),
    /// The daemon has not answered in time, but may yet: see [`Session::late_answer`].
    #[error("the daemon has not answered in time")]
    Late,
    /// The daemon gave a circuit, but this process had no room for the descriptors that came with it. The circuit is
    /// open; `Adopt` or `Close` may follow.
    #[error("no room for the descriptors of a circuit")]
    NoRoom {
        /// The end's id.
        circuit: CircuitId,
        /// Secret that proves to the daemon the right to close the end.
        token: u64,
    },
    /// This process is at its descriptor limit. The session goes on.
    #[error("no room for a descriptor: raise the limit of open files (`ulimit -n`)")]
    NoDescriptors,
    /// The daemon's answer is of another kind than the request needs.
    #[error("the daemon's answer makes no sense: {0}")]
    Unexpected(&'static str),
    /// The daemon's answer is not a valid message.
    #[error("the daemon's answer makes no sense: {0}")]
    Decode(#[from] DecodeError),
    /// The daemon refused, for this reason.
    #[error("{0}")]
    Refused(String),
    /// A segment could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl SessionError {
    /// Whether the session's connection is of no more use. It is if the request alone failed, or if the daemon does not run now.
    pub fn ends_connection(&self) -> bool {
        !matches!(
            self,
            Self::Late
                | Self::Refused(_)
                | Self::Map(_)
                | Self::NoRoom { .. }
                | Self::NoDescriptors
                // Its queue is full.
                | Self::Lost(Errno::AGAIN)
        )
    }

    /// Whether this process is at its limit of descriptors.
    pub fn is_crowded(&self) -> bool {
        matches!(self, Self::NoDescriptors | Self::Map(MapError::System(Errno::MFILE)))
    }
}

/// What comes of a request.
pub type Answer<T> = Result<T, SessionError>;

/// Path of the control socket: from the environment, or the default.
pub fn socket_path() -> PathBuf {
    std::env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from)
}

/// The status page that came with a welcome.
pub fn status_page(fds: &[OwnedFd]) -> Answer<StatusPage> {
    // The daemon sends it in any case; if it is missing, this process had no free descriptor for it.
    let page = fds.first().ok_or(SessionError::NoDescriptors)?;
    StatusPage::map(page).ok_or(SessionError::Unexpected("no status page"))
}

/// A circuit's end as the daemon granted it, mapped.
#[derive(Debug)]
pub struct Grant {
    /// The end's id.
    pub circuit: CircuitId,
    /// Secret that proves to the daemon the right to close the end.
    pub token: u64,
    /// Addresses and ports of the connection.
    pub tuple: Tuple,
    /// Whether this is the connecting end.
    pub client: bool,
    /// Index of the circuit's word in the status page.
    pub status: u32,
    /// Its mapped segments.
    pub segments: Segments,
    /// State that all holders of the end share.
    pub state: SharedState,
    /// Whether the stream is striped: [`Session::twin`] gives the end of its second circuit.
    pub twin: bool,
}

/// An open session. It takes one request at a time; the caller serialises them.
#[derive(Debug)]
pub struct Session {
    socket: OwnedFd,
}

impl Session {
    /// Connects to the daemon at `path`; the caller sends `Hello` next.
    pub fn connect(path: &Path) -> Answer<Self> {
        let no_daemon = |errno| SessionError::NoDaemon { path: path.to_owned(), errno };
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| match errno {
                    Errno::MFILE => SessionError::NoDescriptors,
                    errno => SessionError::Lost(errno),
                })?;
        let address = SocketAddrUnix::new(path).map_err(no_daemon)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        // This limits `connect` as well: a frozen daemon accepts no more connections at some point.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_TIMEOUT))?;
        retry(|| rustix::net::connect(&socket, &address)).map_err(no_daemon)?;
        Ok(Self { socket })
    }

    /// Makes a session of a socket that is connected to the daemon already.
    pub fn from_socket(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// The control socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the control socket.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Sends a request that has no answer. While the daemon is behind with reading, a `Note` is dropped; any other
    /// request waits, at most [`ANSWER_TIMEOUT`].
    pub fn tell(&self, request: &Request) -> Answer<()> {
        match self.send(request, &[], SendFlags::DONTWAIT) {
            Err(SessionError::Lost(Errno::AGAIN)) if matches!(request, Request::Note { .. }) => Ok(()),
            Err(SessionError::Lost(Errno::AGAIN)) => self.send(request, &[], SendFlags::empty()),
            outcome => outcome,
        }
    }

    /// Sends a request and waits for its answer and the descriptors that come with it, at most [`ANSWER_TIMEOUT`].
    pub fn request(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Answer<(Reply, Vec<OwnedFd>)> {
        self.send(request, fds, SendFlags::empty())?;
        self.receive(RecvFlags::empty())
    }

    /// As [`Self::request`]; a refusal is an error.
    pub(crate) fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Answer<(Reply, Vec<OwnedFd>)> {
        accepted(self.request(request, fds)?)
    }

    /// Receives one answer to a request that was given up ([`SessionError::Late`]), and returns to the daemon what the answer
    /// granted. If `wait`, waits for the answer, at most [`ANSWER_TIMEOUT`]. [`SessionError::Late`]: it has still not come.
    pub fn late_answer(&self, wait: bool) -> Answer<()> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match self.receive(flags)?.0 {
            Reply::Circuit { circuit, token, .. } => {
                self.tell(&Request::Close { circuit, token, abort: true })
            }
            _ => Ok(()),
        }
    }

    /// Requests a text: `Status`, `Metrics`, `Explain`, `Hosts`.
    pub fn text(&self, request: &Request) -> Answer<String> {
        let mut text = String::new();
        let (mut reply, _) = self.ask(request, &[])?;
        loop {
            match reply {
                Reply::Text { part, last } => {
                    text.push_str(&part);
                    if last {
                        return Ok(text);
                    }
                }
                _ => return Err(SessionError::Unexpected("a text was asked for")),
            }
            reply = accepted(self.receive(RecvFlags::empty())?)?.0;
        }
    }

    /// Sends `Hello` as a tool: a program without streams.
    pub fn hello(&self, program: &str) -> Answer<Reply> {
        Ok(self.hello_again(program, 0)?.0)
    }

    /// Sends `Hello` of a session that `ticket` resumes, or of a new one if that is 0. Returns the welcome, and descriptors for
    /// [`status_page`].
    pub fn hello_again(&self, program: &str, ticket: u64) -> Answer<(Reply, Vec<OwnedFd>)> {
        let version = crosslane_wire::PROTOCOL_VERSION;
        let hello = Request::Hello { version, program: program.to_owned(), ticket };
        let answer = match self.request(&hello, &[]) {
            Err(SessionError::Lost(errno)) => self.last_words(errno),
            answer => answer,
        };
        accepted(answer?)
    }

    /// Reads why the daemon has closed the session: the daemon sends the reason, then closes. If it left requests unread,
    /// the kernel reports a reset before the message that is queued.
    fn last_words(&self, errno: Errno) -> Answer<(Reply, Vec<OwnedFd>)> {
        let ask = || self.receive(RecvFlags::DONTWAIT);
        match (errno, ask()) {
            (_, Ok(answer)) => Ok(answer),
            (Errno::PIPE, Err(SessionError::Lost(Errno::CONNRESET))) => ask().map_err(|_| errno.into()),
            _ => Err(errno.into()),
        }
    }

    /// Reports a listening socket to the daemon. For a socket in another network namespace than the daemon's, this makes
    /// the table of that namespace's sockets that the daemon needs.
    pub fn listen(&self, socket: BorrowedFd<'_>) -> Answer<()> {
        let mut reply = self.ask(&Request::Listen, &[socket])?.0;
        if reply == Reply::WantTable {
            let (flags, protocol) = (SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG));
            let table = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol);
            let table = table.map_err(|errno| SessionError::Refused(format!("netlink: {errno}")))?;
            reply = self.ask(&Request::Listen, &[socket, table.as_fd()])?.0;
        }
        match reply {
            Reply::Done => Ok(()),
            _ => Err(SessionError::Unexpected("a listener was announced")),
        }
    }

    /// Requests a circuit: `Connect`, `Accept` or `Adopt`, with the socket that proves the connection.
    pub fn circuit(&self, request: &Request, socket: BorrowedFd<'_>) -> Answer<Result<Grant, Plain>> {
        self.circuit_within(request, socket, ANSWER_TIMEOUT)
    }

    /// As [`Self::circuit`], but waits for `patience` at most, not longer than [`ANSWER_TIMEOUT`].
    pub fn circuit_within(
        &self,
        request: &Request,
        socket: BorrowedFd<'_>,
        patience: Duration,
    ) -> Answer<Result<Grant, Plain>> {
        // An adopted end has its state already, which comes with the answer.
        let (state, memory) = match request {
            Request::Adopt => (None, None),
            _ => SharedState::create().map(|(state, memory)| (Some(state), Some(memory)))?,
        };
        let fds: Vec<BorrowedFd<'_>> = [socket].into_iter().chain(memory.as_ref().map(AsFd::as_fd)).collect();
        self.send(request, &fds, SendFlags::empty())?;
        drop(memory);
        if patience < ANSWER_TIMEOUT {
            self.answer_within(patience)?;
        }
        let answer = accepted(self.receive(RecvFlags::empty())?)?;
        self.granted(answer, state)
    }

    /// Requests the end of the second circuit of a striped stream, whose first one has this id and token. Waits for `patience` at most,
    /// not longer than [`ANSWER_TIMEOUT`].
    pub fn twin(&self, circuit: CircuitId, token: u64, patience: Duration) -> Answer<Result<Grant, Plain>> {
        let (state, memory) = SharedState::create()?;
        self.send(&Request::Twin { circuit, token }, &[memory.as_fd()], SendFlags::empty())?;
        drop(memory);
        if patience < ANSWER_TIMEOUT {
            self.answer_within(patience)?;
        }
        let answer = accepted(self.receive(RecvFlags::empty())?)?;
        self.granted(answer, Some(state))
    }

    /// Maps what the daemon grants. `state`: of an end that no process had before; if it has one, that comes with the answer.
    fn granted(
        &self,
        (reply, fds): (Reply, Vec<OwnedFd>),
        mut state: Option<SharedState>,
    ) -> Answer<Result<Grant, Plain>> {
        match reply {
            Reply::Plain { why } => Ok(Err(why)),
            Reply::Circuit {
                circuit,
                token,
                tuple,
                client,
                rx_key,
                tx_key,
                status,
                generation,
                channel,
                retained,
                twin,
            } => {
                let numbers = Numbers { generation, rx_key, tx_key, channel, retained };
                let mut fds = fds.into_iter();
                let segments = match Segments::map(&numbers, &mut fds) {
                    Ok(Some(segments)) => segments,
                    // This process is at its descriptor limit; the session goes on.
                    Ok(None) => return Err(SessionError::NoRoom { circuit, token }),
                    Err(error) => {
                        // The far side must not wait for this end. An adopted end has other holders.
                        if state.is_some() {
                            self.tell(&Request::Close { circuit, token, abort: true })?;
                        }
                        return Err(error);
                    }
                };
                if let Some(memory) = fds.next() {
                    state = Some(SharedState::open(memory)?);
                }
                let state = state.ok_or(SessionError::NoRoom { circuit, token })?;
                Ok(Ok(Grant { circuit, token, tuple, client, status, segments, state, twin }))
            }
            _ => Err(SessionError::Unexpected("a circuit was asked for")),
        }
    }

    /// Requests the segments of an end after those of `generation`; `None` if there are none (any more).
    pub fn resume(&self, circuit: CircuitId, token: u64, generation: u32) -> Answer<Option<Next>> {
        let (reply, fds) = self.ask(&Request::Resume { circuit, token, generation }, &[])?;
        match reply {
            Reply::Plain { .. } => Ok(None),
            Reply::Resumed { generation, newest, limit, arrived, rx_key, tx_key, channel, retained } => {
                let numbers = Numbers { generation, rx_key, tx_key, channel, retained };
                let segments = Segments::map(&numbers, &mut fds.into_iter())?;
                let segments = segments.ok_or(SessionError::NoRoom { circuit, token })?;
                Ok(Some(Next { segments, newest, limit, arrived }))
            }
            _ => Err(SessionError::Unexpected("segments were asked for")),
        }
    }

    /// Registers an end's rings with the engine; returns the engine's handle, 0 if it does not take them.
    pub fn register_rings(&self, circuit: CircuitId, token: u64, generation: u32) -> Answer<u32> {
        match self.ask(&Request::RegisterRings { circuit, token, generation }, &[])?.0 {
            Reply::RegisteredRings { handle } => Ok(handle),
            _ => Err(SessionError::Unexpected("rings were to be registered")),
        }
    }

    /// Requests a wake event and its number.
    ///
    /// # Errors
    /// [`SessionError::NoDescriptors`] if this process is at its descriptor limit.
    pub fn waiter(&self) -> Answer<(WaiterId, Receiver)> {
        let (reply, fds) = self.ask(&Request::Waiter, &[])?;
        match (reply, fds.into_iter().next()) {
            (Reply::Waiter { waiter, word }, Some(socket)) => Ok((waiter, Receiver::of(socket, word)?)),
            (Reply::Waiter { waiter, .. }, None) => {
                self.tell(&Request::Unwait { waiter })?;
                Err(SessionError::NoDescriptors)
            }
            _ => Err(SessionError::Unexpected("a waiter was asked for")),
        }
    }

    /// Requests the waker of the far side's waiter on `circuit`; `None` if only daemons can wake it.
    pub fn waker(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> Answer<Option<FarWaker>> {
        let (reply, fds) = self.ask(&Request::WantWaker { circuit, token, waiter }, &[])?;
        match (reply, fds.into_iter().next()) {
            (Reply::Waker { by: Some(WakeBy::Descriptor { word }) }, Some(socket)) => {
                Ok(Waker::of(socket, word).ok().map(FarWaker::Own))
            }
            (Reply::Waker { by: Some(WakeBy::Queue { number }) }, _) => Ok(Some(FarWaker::Queued(number))),
            (Reply::Waker { .. }, _) => Ok(None),
            _ => Err(SessionError::Unexpected("a waker was asked for")),
        }
    }

    fn ask_with(&self, located: &Located, request: &Request) -> Answer<Reply> {
        let answer = located.share(|memory| self.ask(request, &[memory]));
        Ok(answer.ok_or_else(|| SessionError::Refused("the buffer is gone".to_owned()))??.0)
    }

    /// Lets the far end of a circuit map a buffer.
    pub fn export_buffer(&self, circuit: CircuitId, token: u64, located: &Located) -> Answer<()> {
        let &Located { id: buffer, len, reach, .. } = located;
        let request = Request::ExportBuffer { circuit, token, buffer, len, reach };
        match self.ask_with(located, &request)? {
            Reply::Done => Ok(()),
            _ => Err(SessionError::Unexpected("a buffer was shared")),
        }
    }

    /// Registers a buffer with the daemon's engine; returns the engine's handle, 0 if it does not take it.
    pub fn register_buffer(&self, located: &Located) -> Answer<u32> {
        let &Located { id: buffer, len, reach, .. } = located;
        let request = Request::RegisterBuffer { buffer, len, reach };
        match self.ask_with(located, &request)? {
            Reply::RegisteredBuffer { handle } => Ok(handle),
            _ => Err(SessionError::Unexpected("a buffer was to be registered")),
        }
    }

    /// Notifies the daemon of all freed buffers; those for which the daemon's queue has no room are reported later.
    pub fn tell_given_back(&self) {
        while let Some(buffer) = buffer::next_given_back() {
            if self.send(&Request::WithdrawBuffer { buffer }, &[], SendFlags::DONTWAIT).is_err() {
                return buffer::tell_later(buffer);
            }
        }
    }

    /// Requests a buffer of the program at the far end of a circuit; `None` if it is not exported to this circuit.
    pub fn far_buffer(&self, circuit: CircuitId, token: u64, buffer: BufferId) -> Answer<Option<FarBuffer>> {
        let (reply, fds) = self.ask(&Request::ImportBuffer { circuit, token, buffer }, &[])?;
        match reply {
            Reply::Buffer { shape: Some((len, reach)) } => {
                let Some(memory) = fds.into_iter().next() else { return Ok(None) };
                Ok(Some(FarBuffer::map(memory, len, reach)?))
            }
            Reply::Buffer { shape: None } => Ok(None),
            _ => Err(SessionError::Unexpected("a buffer was asked for")),
        }
    }

    fn send(&self, request: &Request, fds: &[BorrowedFd<'_>], flags: SendFlags) -> Answer<()> {
        let bytes = codec::encode(request)?;
        retry(|| passing::send(&self.socket, &bytes, fds, flags))?;
        Ok(())
    }

    fn answer_within(&self, patience: Duration) -> Answer<()> {
        let until = Instant::now() + patience;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let ready = retry(|| {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            rustix::event::poll(&mut fds, Some(&timeout))
        });
        if ready? == 0 { Err(SessionError::Late) } else { Ok(()) }
    }

    fn receive(&self, flags: RecvFlags) -> Answer<(Reply, Vec<OwnedFd>)> {
        let mut bytes = [0; MAX_MESSAGE];
        let received =
            match retry(|| passing::receive(&self.socket, &mut bytes, flags, passing::Owner::NOBODY)) {
                Err(Errno::AGAIN) => return Err(SessionError::Late),
                received => received?,
            };
        if received.bytes == 0 {
            return Err(Errno::CONNRESET.into());
        }
        // The daemon has made sure that closing these descriptors blocks no process.
        let fds = received.fds.into_iter().map(passing::Foreign::into_owned).collect();
        Ok((codec::decode(&bytes[..received.bytes])?, fds))
    }
}

/// An answer that is not a refusal.
fn accepted((reply, fds): (Reply, Vec<OwnedFd>)) -> Answer<(Reply, Vec<OwnedFd>)> {
    match reply {
        Reply::Error { text } => Err(SessionError::Refused(text)),
        reply => Ok((reply, fds)),
    }
}

/// Repeats a call that a signal interrupted. Each attempt has the socket's full time-out, and a program's timer may
/// interrupt all of them: after [`ANSWER_TIMEOUT`] there is no further attempt, and the call fails with `AGAIN`.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut since = None;
    loop {
        match call() {
            Err(Errno::INTR) if since.get_or_insert_with(Instant::now).elapsed() < ANSWER_TIMEOUT => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_without_end_do_not_make_a_call_endless() {
        let start = Instant::now();
        let mut calls = 0;
        let outcome: Result<(), _> = retry(|| {
            calls += 1;
            std::thread::sleep(Duration::from_millis(20));
            Err(Errno::INTR)
        });
        assert_eq!(outcome, Err(Errno::AGAIN));
        assert!(calls > 1 && start.elapsed() >= ANSWER_TIMEOUT);
    }
}
