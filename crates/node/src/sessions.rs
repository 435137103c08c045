//! All sessions: which exist, which the engine must look at, and which wait.

use crate::session::{Session, SessionId, Waiting};
use crosslane_passing::Foreign;
use crosslane_shm::peer::Opener;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

/// Connections that a user may have above his quota at a time: each either resumes an earlier session, or ends.
const GUESTS: usize = 8;

/// The sessions of this daemon.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    /// Sessions above their user's quota, by user.
    guests: BTreeSet<(u32, SessionId)>,
    /// Sessions without a connection that have released an endpoint.
    emptied: Vec<SessionId>,
    /// Connections that the engine is to remove from its epoll set, with the ids under which it watches them.
    unwatched: Vec<(SessionId, Arc<Foreign>)>,
    /// Sessions with a deadline, which wait for something or have yet to send `Hello`; may contain others.
    pausing: BTreeSet<SessionId>,
    /// Sessions whose readiness may have changed since the engine last looked.
    touched: BTreeSet<SessionId>,
}

impl Sessions {
    /// A session.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    /// A session, mutable. If the change affects what the engine watches, call [`Self::touch`].
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// The sessions after `last`, in the order of their ids.
    pub fn after(&self, last: Option<SessionId>) -> impl Iterator<Item = &Session> {
        self.all.range((last.map_or(Unbounded, Excluded), Unbounded)).map(|(_, session)| session)
    }

    /// All sessions, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.all.values_mut()
    }

    /// Adds a session that has yet to send `Hello`.
    pub fn add(&mut self, session: Session) {
        let id = session.id;
        if session.guest.is_some() {
            self.guests.insert((session.uid, id));
        }
        self.pausing.insert(id);
        self.all.insert(id, session);
    }

    /// Whether a user who has used up his quota may have one more connection.
    pub fn may_be_guest(&self, uid: u32) -> bool {
        let of_user = (uid, SessionId(0))..=(uid, SessionId(u64::MAX));
        self.guests.range(of_user).take(GUESTS).count() < GUESTS
    }

    /// Removes a session.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.remove(&id)?;
        self.guests.remove(&(session.uid, id));
        self.pausing.remove(&id);
        self.touch(id);
        Some(session)
    }

    /// Has the engine look at the session again; the session may be gone by then.
    pub fn touch(&mut self, id: SessionId) {
        self.touched.insert(id);
    }

    /// The next session that the engine must look at.
    pub fn poll_touched(&mut self) -> Option<SessionId> {
        self.touched.pop_first()
    }

    /// Connections that the engine is to remove from its epoll set, with the ids under which it watches them.
    pub fn take_unwatched(&mut self) -> Vec<(SessionId, Arc<Foreign>)> {
        std::mem::take(&mut self.unwatched)
    }

    /// Takes the connection from the session, which `opener` opened; returns the session.
    pub fn lose(&mut self, id: SessionId, opener: Opener) -> Option<&Session> {
        let session = self.all.get_mut(&id)?;
        let socket = session.lose(opener);
        self.unwatched.extend(socket.map(|socket| (id, socket)));
        Some(session)
    }

    /// The session `old` resumes over the connection of `new`, which the same process opened; returns `old`. The engine watches the
    /// connection under the id of `old` from now on.
    pub fn go_on(&mut self, old: SessionId, new: SessionId) -> Option<&Session> {
        let fresh = self.remove(new)?;
        let session = self.all.get_mut(&old)?;
        self.guests.remove(&(session.uid, old));
        self.unwatched.extend(session.go_on(fresh).map(|socket| (new, socket)));
        self.touched.insert(old);
        Some(session)
    }

    /// The session of the same process that `new` resumes, by its ticket. `Err`: a thread works for that session, try again later.
    pub(crate) fn of_ticket(&self, new: SessionId, ticket: u64) -> Result<Option<SessionId>, ()> {
        let Some(pid) = self.get(new).map(|session| session.pid).filter(|_| ticket != 0) else {
            return Ok(None);
        };
        let is_it = |session: &&Session| session.id != new && session.ticket == ticket && session.pid == pid;
        match self.all.values().find(is_it) {
            Some(session) if session.aside => Err(()),
            session => Ok(session.map(|session| session.id)),
        }
    }

    /// Notes that the session has released an endpoint; a session without a connection ends with its last one.
    pub fn note_released(&mut self, id: SessionId) {
        if self.get(id).is_some_and(is_empty) {
            self.emptied.push(id);
        }
    }

    /// The sessions without a connection that hold no endpoint any more: they end.
    pub fn take_emptied(&mut self) -> Vec<SessionId> {
        let mut emptied = std::mem::take(&mut self.emptied);
        emptied.retain(|id| self.get(*id).is_some_and(is_empty));
        emptied
    }

    /// Makes the session wait for `what`; the daemon serves no request of it until it is answered.
    pub fn wait_for(&mut self, id: SessionId, what: Waiting) {
        if let Some(session) = self.all.get_mut(&id) {
            session.waiting = Some(what);
            self.pausing.insert(id);
        }
    }

    /// The session has been answered: the daemon serves its requests again.
    pub fn answered(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id) {
            session.waiting = None;
            self.touched.insert(id);
        }
    }

    /// The sessions that wait for something for which `is_it` holds, in the order of their ids.
    pub fn waiting_for(&self, is_it: impl Fn(&Waiting) -> bool) -> Vec<SessionId> {
        let waits = |session: &&Session| session.waiting.as_ref().is_some_and(&is_it);
        self.all.values().filter(waits).map(|session| session.id).collect()
    }

    /// The earliest deadline of the sessions that wait.
    pub fn deadline(&self) -> Option<Duration> {
        self.pausing.iter().filter_map(|id| self.get(*id)?.deadline()).min()
    }

    /// The sessions whose deadline has passed at `now`, each with what it waits for: `None` if its program never sent `Hello`.
    pub fn take_late(&mut self, now: Duration) -> Vec<(SessionId, Option<Waiting>)> {
        let mut late = Vec::new();
        self.pausing.retain(|id| {
            let Some((session, until)) =
                self.all.get(id).and_then(|session| Some((session, session.deadline()?)))
            else {
                return false;
            };
            if until <= now {
                late.push((*id, session.waiting));
            }
            true
        });
        late
    }
}

fn is_empty(session: &Session) -> bool {
    session.is_lost() && session.held.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Ledger, Settings};
    use crosslane_passing::Owner;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const NOW: Duration = Duration::from_secs(100);

    /// Sessions with these ids, and the programs' ends of their connections.
    fn sessions(ids: std::ops::RangeInclusive<u64>) -> (Sessions, Vec<UnixStream>) {
        let (mut sessions, mut far) = (Sessions::default(), Vec::new());
        for id in ids.map(SessionId) {
            let (near, there) = UnixStream::pair().unwrap();
            far.push(there);
            sessions.add(session(id, near));
        }
        (sessions, far)
    }

    fn session(id: SessionId, socket: UnixStream) -> Session {
        let ledger = Ledger::new(Settings::default(), 1000, []);
        Session::new(id, Foreign::new(socket.into(), Owner::NOBODY), ledger, NOW).unwrap()
    }

    #[test]
    fn waiting_sessions_are_late_at_their_deadline_and_until_they_are_answered() {
        let (mut sessions, _far) = sessions(1..=2);
        let wait = Waiting::Echo { token: 7, sent: NOW, hops: 1, until: NOW + Duration::from_secs(1) };
        let id = SessionId(1);
        sessions.get_mut(id).unwrap().greet("test").unwrap();
        sessions.wait_for(id, wait);
        assert_eq!(sessions.deadline(), Some(NOW + Duration::from_secs(1)));
        assert!(sessions.take_late(NOW).is_empty());
        assert_eq!(sessions.take_late(NOW + Duration::from_secs(1)), [(id, Some(wait))]);
        assert_eq!(sessions.waiting_for(|waiting| matches!(waiting, Waiting::Echo { token: 7, .. })), [id]);
        sessions.answered(id);
        assert!(sessions.take_late(NOW + Duration::from_secs(1)).is_empty());
        assert_eq!(sessions.take_late(NOW * 2), [(SessionId(2), None)], "it has never greeted");
    }

    #[test]
    fn guests_of_a_user_are_bounded_and_leave_room_behind() {
        let (mut all, mut far) = sessions(1..=1);
        let uid = all.get(SessionId(1)).unwrap().uid;
        for id in 2.. {
            if !all.may_be_guest(uid) {
                break;
            }
            let (near, there) = UnixStream::pair().unwrap();
            far.push(there);
            let mut guest = session(SessionId(id), near);
            guest.guest = Some("too many".to_owned());
            all.add(guest);
        }
        assert_eq!(far.len(), 1 + GUESTS);
        assert!(all.may_be_guest(uid + 1));
        all.remove(SessionId(2));
        assert!(all.may_be_guest(uid));
    }

    #[test]
    fn session_goes_on_by_the_connection_of_another_one() {
        let (mut sessions, far) = sessions(1..=2);
        let (old, new) = (SessionId(1), SessionId(2));
        sessions.get_mut(old).unwrap().greet("test").unwrap();
        let ticket = sessions.get(old).unwrap().ticket;
        assert_eq!(sessions.of_ticket(new, ticket + 1), Ok(None));
        assert_eq!(sessions.of_ticket(new, ticket), Ok(Some(old)));
        sessions.lose(old, Opener::of(far[0].as_fd()));
        assert!(sessions.get(old).unwrap().is_lost());
        sessions.go_on(old, new);
        assert!(!sessions.get(old).unwrap().is_lost() && sessions.get(new).is_none());
        let unwatched: Vec<SessionId> = sessions.take_unwatched().into_iter().map(|(id, _)| id).collect();
        assert_eq!(unwatched, [old, new]);
    }

    #[test]
    fn lost_session_is_over_when_it_holds_nothing() {
        let (mut sessions, far) = sessions(1..=1);
        let id = SessionId(1);
        sessions.note_released(id);
        assert!(sessions.take_emptied().is_empty(), "its program is there");
        sessions.lose(id, Opener::of(far[0].as_fd()));
        sessions.note_released(id);
        assert_eq!(sessions.take_emptied(), [id]);
    }
}
