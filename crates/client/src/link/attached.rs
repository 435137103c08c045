//! A session from its welcome on: the answers that are owed, circuits and their ends, and what ends ask of the daemon.

use super::clock::now_ms;
use crate::end::Daemon;
use crate::offload::Offload;
use crate::segments::Next;
use crate::session::Answer;
use crate::{BufferError, CircuitEnd, End, Failure, Grant, ResumeError, Session, SessionError};
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crosslane_shm::buffer::Located;
use crosslane_shm::status_page::StatusPage;
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{FarBuffer, MapError};
use crosslane_wire::local::{Plain, Request};
use crosslane_wire::{BufferId, CircuitId, WaiterId};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A granted end, with its word on the status page.
pub type Granted = (Grant, &'static AtomicU32);

/// A session that the daemon has welcomed. Its socket is its program's to close.
#[derive(Debug)]
pub struct Attached {
    session: ManuallyDrop<Session>,
    /// The daemon's words on circuits.
    pub status_page: StatusPage,
    /// Answers that were not waited for and have not come yet.
    owed: Cell<u32>,
    /// Such an answer did not come within [`crate::session::ANSWER_TIMEOUT`].
    hangs: Cell<bool>,
}

impl Attached {
    /// With the status page that the daemon gave, now or at an earlier connection.
    pub fn new(session: ManuallyDrop<Session>, status_page: StatusPage) -> Self {
        Self { session, status_page, owed: Cell::new(0), hangs: Cell::new(false) }
    }

    /// The session, for messages without answers.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether an answer that was owed was waited for in vain, since the daemon last ran.
    pub fn hangs(&self) -> bool {
        self.hangs.get()
    }

    /// Does `work`, which sends one request and reads its answer; first takes the answers that are owed, and waits for them if
    /// `waits`.
    ///
    /// # Errors
    /// Those of `work`; [`SessionError::Late`] also if the daemon still owes an answer.
    pub fn ask<T>(&self, waits: bool, work: impl FnOnce(&Session) -> Answer<T>) -> Answer<T> {
        self.session.tell_given_back();
        while self.owed.get() > 0 {
            let answer = self.session.late_answer(waits);
            self.hangs.set(matches!(answer, Err(SessionError::Late)) && (waits || self.hangs.get()));
            answer?;
            self.owed.set(self.owed.get() - 1);
        }
        let outcome = work(&self.session);
        if matches!(outcome, Err(SessionError::Late)) {
            self.owed.set(self.owed.get() + 1);
        }
        outcome
    }

    /// Requests a circuit, as [`Session::circuit_within`]. An end that cannot be used is given back, since the far side must
    /// not wait for one that no process holds. If this process has no room for the descriptors, `elsewhere` may make the
    /// request that it is given where there is.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn circuit(
        &self,
        request: &Request,
        socket: BorrowedFd<'_>,
        patience: Duration,
        waits: bool,
        elsewhere: impl FnOnce(&Session, &Request) -> Option<Answer<Result<Grant, Plain>>>,
    ) -> Answer<Result<Granted, Plain>> {
        self.ask(waits, |session| {
            // An end that was to be adopted has other holders.
            let close = |circuit, token| match request {
                Request::Adopt => Ok(()),
                _ => session.tell(&Request::Close { circuit, token, abort: true }),
            };
            let answer = match session.circuit_within(request, socket, patience) {
                Err(error @ SessionError::NoRoom { circuit, token }) => {
                    match elsewhere(session, &Request::Adopt) {
                        Some(Ok(Ok(grant))) => Ok(grant),
                        failed => {
                            close(circuit, token)?;
                            return Err(failed.and_then(Result::err).unwrap_or(error));
                        }
                    }
                }
                Err(error @ SessionError::Map(MapError::System(Errno::MFILE))) => {
                    elsewhere(session, request).unwrap_or(Err(error))?
                }
                answer => answer?,
            };
            let grant = match answer {
                Ok(grant) => grant,
                Err(why) => return Ok(Err(why)),
            };
            let Some(status) = self.status_page.word(grant.status) else {
                close(grant.circuit, grant.token)?;
                return Err(SessionError::Unexpected("status word"));
            };
            Ok(Ok((grant, status)))
        })
    }
}

impl Attached {
    /// Requests the end of the second circuit of a striped stream, as [`Session::twin`]; `elsewhere` makes the request that it is given
    /// where there is room for descriptors, if it can.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn twin(
        &self,
        (circuit, token): (CircuitId, u64),
        patience: Duration,
        waits: bool,
        elsewhere: impl FnOnce(&Session) -> Option<Answer<Result<Grant, Plain>>>,
    ) -> Answer<Result<Granted, Plain>> {
        self.ask(waits, |session| {
            let answer = session.twin(circuit, token, patience);
            let is_crowded = answer
                .as_ref()
                .is_err_and(|error| error.is_crowded() || matches!(error, SessionError::NoRoom { .. }));
            let again = if is_crowded { elsewhere(session) } else { None };
            let grant = match again.unwrap_or(answer)? {
                Ok(grant) => grant,
                Err(why) => return Ok(Err(why)),
            };
            let status = self.status_page.word(grant.status);
            let status = status.ok_or(SessionError::Unexpected("status word"))?;
            Ok(Ok((grant, status)))
        })
    }
}

/// A program's way to its daemon: what differs between programs is how the session is reached. All that their ends ask of
/// it ([`Daemon`]) follows.
pub trait Linked: Sync + core::fmt::Debug {
    /// Does `work`, which asks for one answer; `None` if it failed.
    fn ask<T>(&self, work: impl Fn(&Session) -> Answer<T>) -> Option<T>;

    /// As [`Self::ask`], for what a stream cannot do without.
    fn ask_surely<T>(&self, work: impl Fn(&Session) -> Answer<T>) -> Option<T> {
        self.ask(work)
    }

    /// Sends a message that has no answer; whether it was sent.
    fn tell(&self, request: &Request) -> bool;

    /// Whether this is a signal handler that interrupted a request of this very thread.
    fn is_reentered(&self) -> bool {
        false
    }

    /// As [`Daemon::ring`].
    fn ring(&self, end: &CircuitEnd, waiter: WaiterId);

    /// What this program shares with the daemon's engine.
    fn engine(&self) -> Option<&'static Offload>;
}

/// Begins the stream of a granted circuit, on a host that spins for `spin_ns` at most, and has `keep` put its end in its place; if
/// either fails, the daemon is told to close the end.
///
/// # Errors
/// The end cannot begin. `Ok(None)`: `keep` had no place.
pub fn begin<T>(
    (grant, status): Granted,
    link: &'static impl Linked,
    spin_ns: u32,
    keep: impl FnOnce(End) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let (circuit, token) = (grant.circuit, grant.token);
    End::prepare(&grant);
    let begun = End::begin(grant, status, link).map(|end| {
        let shared = end.shared();
        shared.sending.budget.reset(spin_ns);
        shared.receiving.budget.reset(spin_ns);
        shared.status.born.store(now_ms(), Relaxed);
        keep(end)
    });
    if !matches!(begun, Ok(Some(_))) {
        Linked::tell(link, &Request::Close { circuit, token, abort: true });
    }
    begun
}

/// Has `end` be striped from now on, with the second circuit that was granted for it; before any byte was sent or received. `adopted`:
/// other processes have, or had, the stream.
///
/// # Errors
/// The second circuit's end cannot begin: the stream cannot be used.
pub fn stripe(
    end: &End,
    (grant, status): Granted,
    link: &'static impl Linked,
    adopted: bool,
) -> Result<(), Failure> {
    let twin = if adopted {
        CircuitEnd::resume(grant, status, link)
    } else {
        CircuitEnd::prepare(&grant);
        CircuitEnd::begin(grant, status, link)?
    };
    end.stripe(twin);
    Ok(())
}

impl<L: Linked> Daemon for L {
    fn ring(&self, end: &CircuitEnd, waiter: WaiterId) {
        Linked::ring(self, end, waiter);
    }

    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, ResumeError> {
        if self.is_reentered() {
            return Err(ResumeError::Reentered);
        }
        let answer = self.ask_surely(|session| session.resume(circuit, token, generation));
        answer.flatten().ok_or(ResumeError::Never)
    }

    fn tell(&self, request: &Request) -> bool {
        Linked::tell(self, request)
    }

    fn waker(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> Option<FarWaker> {
        self.ask(|session| session.waker(circuit, token, waiter)).flatten()
    }

    fn export_buffer(&self, circuit: CircuitId, token: u64, located: &Located) -> Result<(), BufferError> {
        if self.is_reentered() {
            return Err(BufferError::Later);
        }
        self.ask(|session| session.export_buffer(circuit, token, located)).ok_or(BufferError::Never)
    }

    fn far_buffer(&self, circuit: CircuitId, token: u64, buffer: BufferId) -> Result<FarBuffer, BufferError> {
        if self.is_reentered() {
            return Err(BufferError::Later);
        }
        let answer = self.ask(|session| session.far_buffer(circuit, token, buffer));
        answer.flatten().ok_or(BufferError::Never)
    }

    fn offload(&self) -> Option<&'static Offload> {
        self.engine()
    }

    fn register_buffer(&self, located: &Located) -> u32 {
        self.ask(|session| session.register_buffer(located)).unwrap_or(0)
    }

    fn register_rings(&self, circuit: CircuitId, token: u64, generation: u32) -> u32 {
        self.ask(|session| session.register_rings(circuit, token, generation)).unwrap_or(0)
    }
}
