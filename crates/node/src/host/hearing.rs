//! Who hears of a connection that is about to be made here, and what the kernels of all namespaces say of sockets: decision 19.

use super::{Host, Provider};
use crate::config::Config;
use crate::listener::Listeners;
use crate::proof::Cookie;
use crate::session::SessionId;
use crate::sessions::Sessions;
use crate::socket_table::{LOOPBACK, SocketTable, Taker};
use crosslane_fabric::circuit::Scope;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{self, Use};
use crosslane_wire::{Tuple, rule};
use std::net::SocketAddr;

/// Tables of other namespaces that are asked in turn until one answers.
const TABLES: usize = 4;

/// Listeners, and the kernel's tables of sockets.
pub(crate) struct Hearing<'a> {
    config: &'a Config,
    listeners: &'a Listeners,
    pub(super) sockets: &'a SocketTable,
    pub(super) sessions: &'a Sessions,
    interface: u32,
}

impl Host {
    /// Who hears of connections.
    pub(crate) fn hearing(&self) -> Hearing<'_> {
        Hearing {
            config: &self.config,
            listeners: &self.listeners,
            sockets: &self.sockets,
            sessions: &self.sessions,
            interface: self.ip.interface(),
        }
    }

    /// The interface by which a connection comes in, as the kernel numbers it; 0: any.
    pub(crate) fn interface_of(&self, tuple: &Tuple) -> u32 {
        self.hearing().interface_of(tuple)
    }
}

impl Provider<'_> {
    /// Who hears of connections.
    pub(crate) fn hearing(&self) -> Hearing<'_> {
        Hearing {
            config: self.config,
            listeners: self.listeners,
            sockets: self.sockets,
            sessions: self.sessions,
            interface: self.interface,
        }
    }
}

impl Hearing<'_> {
    /// The user of the program that the kernel would give the connection which is about to be made, if its rules want
    /// streams.
    pub(crate) fn check_listener(&self, tuple: &Tuple, scope: Scope) -> Result<u32, Refusal> {
        if !self.listeners.hears(tuple.server, scope) {
            return Err(Refusal::NoListener);
        }
        let interface = self.interface_of(tuple);
        let asked = |table: &SocketTable| table.taker(tuple.client, tuple.server, interface);
        let taker = self.ask_kernel(scope, None, asked).ok_or(Refusal::NoListener)?;
        match taker {
            Taker::Listener(socket) => self.hearer(tuple.server, scope, socket),
            // Whoever it is, it must take a stream.
            Taker::OneOf(sockets) => {
                let users = sockets.iter().map(|socket| self.hearer(tuple.server, scope, *socket));
                let users = users.collect::<Result<Vec<u32>, Refusal>>()?;
                users
                    .first()
                    .copied()
                    .filter(|first| users.iter().all(|user| user == first))
                    .ok_or(Refusal::NoListener)
            }
            Taker::Nobody => Err(Refusal::NoListener),
            Taker::Taken => Err(Refusal::Protocol),
        }
    }

    /// The user of a program that hears of connections to a listener's socket, and whose rules want streams.
    fn hearer(&self, server: SocketAddr, scope: Scope, socket: Cookie) -> Result<u32, Refusal> {
        let hearers = self.listeners.hearers(server, scope);
        let of_socket = hearers.filter(|(_, cookie)| *cookie == socket).map(|(session, _)| session);
        let mut heard = false;
        for session in of_socket.filter_map(|id| self.sessions.get(id)) {
            heard = true;
            let rules = &self.config.rules;
            let decided = rule::decide(rules, local::Role::Server, &session.program, server);
            if decided != Use::Tcp {
                return Ok(session.uid);
            }
        }
        Err(if heard { Refusal::Rule } else { Refusal::NoListener })
    }

    /// The interface by which a connection comes in, as the kernel numbers it; 0: any.
    pub(crate) fn interface_of(&self, tuple: &Tuple) -> u32 {
        let hosts = [tuple.client, tuple.server].map(|end| self.config.addresses.host_of(end.ip()));
        if hosts.into_iter().flatten().all(|host| host == self.config.addresses.me) {
            LOOPBACK
        } else {
            self.interface
        }
    }

    /// Asks the table of a network namespace: the daemon's own, or those that programs there handed over, `first` before
    /// the others.
    pub(crate) fn ask_kernel<T>(
        &self,
        scope: Scope,
        first: Option<SessionId>,
        ask: impl Fn(&SocketTable) -> Option<T>,
    ) -> Option<T> {
        if scope == Scope(0) {
            return ask(self.sockets);
        }
        let sessions = first.into_iter().chain(self.listeners.sessions_in(scope));
        let shown = sessions.filter_map(|session| self.sessions.get(session)?.table.as_ref());
        shown.filter(|(of, _)| *of == scope).take(TABLES).find_map(|(_, table)| ask(table))
    }
}
