//! What sessions ask, and what they get.

use crate::end_resources::HeldState;
use crate::given::{self, Arrived, Given};
use crate::host::Host;
use crate::inbox::Letter;
use crate::proof::Proof;
use crate::quota::Kind;
use crate::session::{Note, Session, SessionId, Waiting};
use crate::socket_table::SocketTable;
use crate::texts::Text;
use crosslane_fabric::circuit::Scope;
use crosslane_passing::{Foreign, has_descriptors};
use crosslane_shm::state::StateView;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{DecodeError, PROTOCOL_VERSION};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Most requests of one session in one turn.
const BATCH: usize = 8;

impl Host {
    /// Reads and handles what a session asks. `hung_up`: nobody is at the other end, so nothing is waited for.
    pub fn serve(&mut self, id: SessionId, hung_up: bool) {
        self.sessions.touch(id);
        if self.sessions.get(id).is_some_and(Session::is_lost) {
            return;
        }
        if hung_up {
            self.forsake(id);
        }
        for _ in 0..BATCH {
            let Some(session) = self.sessions.get_mut(id) else { return };
            session.flush();
            if session.is_dead() {
                break;
            }
            if !session.is_ready() || !self.may_serve(id) {
                return self.end_if_left(id, hung_up);
            }
            let Some(session) = self.sessions.get_mut(id) else { return };
            let Some(socket) = session.socket().cloned() else { return };
            match has_descriptors(&*socket) {
                Ok(false) => {
                    let arrived = given::take_plain(&socket);
                    self.handle_arrived(id, arrived);
                }
                Ok(true) => {
                    session.aside = true;
                    self.inbox.take_aside(id, &socket);
                    return self.spend(id, 1);
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => session.kill(),
            }
        }
        self.end_if_dead(id);
    }

    /// Handles the requests that were taken aside; whether there were any.
    pub fn hear_inbox(&mut self) -> bool {
        self.inbox.hush();
        let mut heard = false;
        while let Some(letter) = self.inbox.poll() {
            heard = true;
            match letter {
                Letter::Arrived(id, arrived) => self.hear_aside(id, arrived),
                Letter::Told { session, uid, bytes, heard } => {
                    self.told((session, uid), bytes, heard);
                    self.sessions.touch(session);
                    self.end_if_dead(session);
                }
                Letter::Scrape => self.texts.scrape(),
            }
        }
        heard
    }

    fn hear_aside(&mut self, id: SessionId, arrived: Arrived) {
        self.sessions.touch(id);
        if let Some(session) = self.sessions.get_mut(id) {
            session.aside = false;
            if !session.is_lost() {
                self.handle_arrived(id, arrived);
                self.end_if_dead(id);
            }
        }
    }

    fn handle_arrived(&mut self, id: SessionId, arrived: Arrived) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        match arrived {
            Arrived::Nothing => return,
            Arrived::Request(request, fds) => {
                self.spend(id, 1);
                self.handle_packet(id, request, fds);
            }
            Arrived::Truncated | Arrived::Closed => session.kill(),
        }
        self.run_circuits();
    }

    /// Ends a session that is not read from and that nobody is at the other end of.
    fn end_if_left(&mut self, id: SessionId, hung_up: bool) {
        if hung_up && self.sessions.get(id).is_some_and(|session| session.resting) {
            self.lose_session(id);
        }
    }

    fn end_if_dead(&mut self, id: SessionId) {
        if self.sessions.get(id).is_some_and(Session::is_dead) {
            self.lose_session(id);
        }
    }

    /// A session is over: all that it held is given back.
    pub fn end_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id) else { return };
        tracing::debug!(uid = session.uid, session = id.0, program = %session.program, pid = session.pid, "session ends");
        if self.listeners.remove_session(id) {
            self.abort_unheard();
        }
        self.remove_waiters(session.waiters);
        if !session.buffers.is_empty() {
            self.ends.forget_buffers(id, None);
        }
        if let Some(engines) = &mut self.offload {
            engines.remove(id);
        }
        self.release_held(id, session.held);
        self.run_circuits();
    }

    /// Answers with the reason why a connection stays plain.
    pub fn refuse(&mut self, id: SessionId, why: Plain) {
        self.counters.count_plain(why);
        self.reply(id, &Reply::Plain { why });
    }

    /// Answers the sessions that have waited long enough, and ends those that never greeted.
    pub fn expire_waiting(&mut self) {
        for (session, waiting) in self.sessions.take_late(self.now) {
            let Some(waiting) = waiting else {
                self.end_session(session);
                continue;
            };
            self.sessions.answered(session);
            match waiting {
                Waiting::Waker { .. } => self.answer_waker(session, None),
                Waiting::Buffer { .. } => self.answer_buffer(session, None),
                Waiting::Echo { .. } => self.answer_echo(session, None, 0),
                Waiting::Accept(accepting) => {
                    if let Some(why) = self.try_accept(session, accepting) {
                        self.refuse(session, why);
                    }
                    self.publish_announced();
                }
                Waiting::Circuit(_) => {}
            }
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forsake(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.hung_up = true;
        if let Some(Waiting::Circuit(circuit)) = session.waiting.take() {
            self.close_end(circuit, true);
            self.run_circuits();
        }
    }

    fn reply(&mut self, id: SessionId, reply: &Reply) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.reply(reply, &[]);
        }
    }

    fn fail(&mut self, id: SessionId, text: &str) {
        self.reply(id, &Reply::Error { text: text.to_owned() });
    }

    fn handle_packet(&mut self, id: SessionId, request: Result<Request, DecodeError>, fds: Vec<Given>) {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.fail(
                    id,
                    &format!("request not understood: {error}; is this program of another release?"),
                );
                return;
            }
        };
        let greeted = self.sessions.get(id).is_some_and(|session| session.greeted);
        let mut fds = fds.into_iter();
        let given = fds.next();
        match request {
            Request::Hello { version, program, ticket } => self.hello(id, version, &program, ticket),
            _ if !greeted => self.fail(id, "say Hello first"),
            Request::Listen => {
                let table = fds.next().and_then(Given::table);
                self.listen(id, given.and_then(Given::socket), table);
            }
            Request::Unlisten { address } => {
                if self.listeners.remove(id, address) {
                    self.abort_unheard();
                }
            }
            Request::Connect { remote } => {
                let asked = self.offered(id, given, fds.next());
                let asked = asked.map(|socket| self.connect(id, remote, socket));
                self.answer_plain(id, asked);
            }
            Request::Accept => {
                let asked = self.offered(id, given, fds.next());
                let asked = asked.map(|socket| self.accept(id, socket));
                self.answer_plain(id, asked);
                self.publish_announced();
            }
            Request::Adopt => match given {
                Some(given) => {
                    if let Some(why) = self.adopt(id, given.socket()) {
                        self.reply(id, &Reply::Plain { why });
                    }
                }
                None => self.fail(id, "Adopt needs the socket"),
            },
            Request::Twin { circuit, token } => match self.keep_offered(id, given) {
                Ok(()) => {
                    if let Some(why) = self.twin(id, circuit, token) {
                        self.reply(id, &Reply::Plain { why });
                    }
                }
                Err(text) => self.fail(id, &text),
            },
            Request::Hold { ends } => self.hold_all(id, &ends),
            Request::Resume { circuit, token, generation } => {
                self.next_segments(id, circuit, token, generation);
            }
            Request::Close { circuit, token, abort } => self.close(circuit, token, abort),
            Request::Violated { circuit, token, text } => self.violated(circuit, token, &text),
            Request::Grow { circuit, token, generation } => self.grow(circuit, token, generation),
            Request::Waiter => self.add_waiter(id),
            Request::Unwait { waiter } => self.unwait(id, waiter),
            Request::WantWaker { circuit, token, waiter } => self.want_waker(id, (circuit, token), waiter),
            Request::Wake { circuit, token, waiter } => self.wake_far(circuit, token, waiter),
            Request::WakeHere { circuit, token, waiter } => self.wake_here(circuit, token, waiter),
            Request::ExportBuffer { circuit, token, buffer, len, reach } => {
                match given.and_then(Given::memory) {
                    Some(memory) => {
                        let reply = self.export_buffer(id, (circuit, token), buffer, (len, reach), memory);
                        self.reply(id, &reply);
                    }
                    None => self.fail(id, "ExportBuffer needs the memory"),
                }
            }
            Request::WithdrawBuffer { buffer } => self.withdraw_buffer(id, buffer),
            Request::ImportBuffer { circuit, token, buffer } => {
                self.want_buffer(id, (circuit, token), buffer)
            }
            Request::Note { fd, remote, why } => self.note(id, Note { fd, remote, why }),
            Request::Offload => self.offload(id, given.and_then(Given::memory)),
            Request::RegisterRings { circuit, token, generation } => {
                let handle = self.register_rings(id, circuit, token, generation);
                self.reply(id, &Reply::RegisteredRings { handle });
            }
            Request::RegisterBuffer { buffer, len, reach } => {
                let memory = given.and_then(Given::memory);
                let handle =
                    memory.map_or(0, |memory| self.register_buffer(id, buffer, (len, reach), &memory));
                self.reply(id, &Reply::RegisteredBuffer { handle });
            }
            Request::Status => self.ask_text(id, Text::Status),
            Request::Metrics => self.ask_text(id, Text::Metrics),
            Request::Explain { pid } => self.ask_text(id, Text::Explain(pid)),
            Request::Echo { to } => self.echo(id, to),
            Request::Hosts => self.ask_text(id, Text::Hosts),
            Request::Cut { port } => self.set_cut(id, &port, true),
            Request::Mend { port } => self.set_cut(id, &port, false),
        }
    }

    fn hello(&mut self, id: SessionId, version: u32, program: &str, ticket: u64) {
        if version != PROTOCOL_VERSION {
            let text = format!(
                "this program speaks version {version} of the protocol, the daemon {PROTOCOL_VERSION}: install the same release of both"
            );
            return self.fail(id, &text);
        }
        let Some(session) = self.sessions.get(id) else { return };
        let denied = session.guest.clone();
        if session.greeted {
            return self.fail(id, "Hello was said already");
        }
        match self.sessions.of_ticket(id, ticket) {
            Ok(Some(old)) => {
                self.go_on_by(old, id);
                let welcome = self.welcome(ticket, true);
                return self.reply(old, &welcome);
            }
            Err(()) => return self.fail(id, "the session is busy: come again"),
            Ok(None) => {}
        }
        if let Some(denied) = denied {
            return self.fail(id, &denied);
        }
        let Some(session) = self.sessions.get_mut(id) else { return };
        match session.greet(program) {
            Ok(status_page) => {
                let ticket = session.ticket;
                let welcome = self.welcome(ticket, false);
                if let Some(session) = self.sessions.get_mut(id) {
                    session.reply(&welcome, &[status_page.as_fd()]);
                }
            }
            Err(error) => {
                let text = format!("there is no memory for the session: {error}");
                self.fail(id, &text);
            }
        }
    }

    /// What comes with `Connect` and `Accept`: the socket, and the memory for the end's state, which is kept with the session
    /// until there is an end. An error says what is wrong with it.
    fn offered(
        &mut self,
        id: SessionId,
        socket: Option<Given>,
        memory: Option<Given>,
    ) -> Result<Option<Proof>, String> {
        let Some(socket) = socket else {
            return Err("the socket and memory for the state are due".to_owned());
        };
        self.keep_offered(id, memory)?;
        Ok(socket.socket())
    }

    /// Keeps the memory that a program offers for an end's state with the session, until there is an end.
    fn keep_offered(&mut self, id: SessionId, memory: Option<Given>) -> Result<(), String> {
        let memory = memory.ok_or("memory for the state is due")?;
        let memory = memory.memory().ok_or("the state cannot be used: it is no memory")?;
        let view = StateView::new(memory).map_err(|error| format!("the state cannot be used: {error}"))?;
        // Counted, not refused: an `accept` must not fail for it, since the far program has its stream by now.
        let payer = self.payer_of(id).ok_or("no session")?;
        let charge = self.accounts.ledger().charge_always(payer, Kind::Stored, 1);
        let memory = self.shelves.keep(view.into_memory().into_owned());
        if let Some(session) = self.sessions.get_mut(id) {
            session.offered = Some(HeldState { memory, charge });
        }
        Ok(())
    }

    /// Answers `Connect` or `Accept`, unless that is a stream, or has to wait.
    fn answer_plain(&mut self, id: SessionId, asked: Result<Option<Plain>, String>) {
        match asked {
            Ok(None) => {}
            Ok(Some(why)) => self.refuse(id, why),
            Err(text) => self.fail(id, &text),
        }
    }

    fn listen(&mut self, id: SessionId, socket: Option<Proof>, table: Option<Foreign>) {
        let Some((listening, scope)) =
            socket.and_then(|socket| Some((socket.listening()?, self.scope_of(&socket))))
        else {
            return self.fail(id, "Listen needs a listening TCP socket");
        };
        if !self.has_table(id, scope, table) {
            return self.reply(id, &Reply::WantTable);
        }
        match self.charge_session(id, Kind::Listeners, 1) {
            Ok(charge) => {
                self.listeners.add(id, listening, scope, charge);
                self.publish_announced();
                self.reply(id, &Reply::Done);
            }
            Err(text) => self.fail(id, &text),
        }
    }

    /// Whether the session shows the sockets of this network namespace, by now.
    fn has_table(&mut self, id: SessionId, scope: Scope, shown: Option<Foreign>) -> bool {
        let shown = shown.and_then(|shown| SocketTable::handed_over(shown, scope.0));
        let has_none = |host: &Self| host.sessions.get(id).is_some_and(|session| session.table.is_none());
        let charge = (shown.is_some() && has_none(self))
            .then(|| self.charge_session(id, Kind::Descriptors, 1))
            .transpose();
        let (Some(session), Ok(charge)) = (self.sessions.get_mut(id), charge) else { return false };
        session.charges.extend(charge);
        if let Some(table) = shown {
            session.table = Some((scope, table));
        }
        scope == Scope(0) || session.table.as_ref().is_some_and(|(of, _)| *of == scope)
    }

    /// Cuts or mends the cable at a port; the engine sees what comes of it as it would any loss.
    fn set_cut(&mut self, id: SessionId, port: &str, cut: bool) {
        let own = rustix::process::geteuid().as_raw();
        if !self.sessions.get(id).is_some_and(|session| session.uid == 0 || session.uid == own) {
            return self.fail(id, "only root and the daemon's own user may cut and mend cables");
        }
        let Some(cable) = self.cables.iter_mut().find(|cable| cable.config.name == port) else {
            return self.fail(id, "there is no port of this name");
        };
        tracing::warn!(port, cut, "cable is cut or mended by request");
        if cut {
            cable.cut()
        } else {
            cable.mend()
        }
        self.reply(id, &Reply::Done);
    }

    /// Refusals were counted when they were answered.
    fn note(&mut self, id: SessionId, note: Note) {
        if !matches!(note.why, Plain::Refused(_) | Plain::NotAnnounced) {
            self.counters.count_plain(note.why);
        }
        if let Some(session) = self.sessions.get_mut(id) {
            session.note(note);
        }
    }
}
