//! The accelerated listeners of this host.

use crate::proof::{Cookie, Listening};
use crate::quota::Charge;
use crate::session_id::SessionId;
use core::ops::Bound;
use crosslane_fabric::circuit::Scope;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Debug)]
struct Entry {
    session: SessionId,
    scope: Scope,
    dual: bool,
    cookie: Cookie,
    /// What its user is charged.
    charge: Charge,
}

/// Which session listens at which address. Several sockets may listen at one address, and several sessions may hold one socket. An
/// entry is what a session showed once: whether the socket still listens, only the kernel knows (decision 19).
#[derive(Debug, Default)]
pub struct Listeners {
    by_address: BTreeMap<SocketAddr, Vec<Entry>>,
    held: HashMap<SessionId, usize>,
}

impl Listeners {
    /// Adds a listener of a session in a network namespace; `charge` is what its user pays for it.
    pub fn add(&mut self, session: SessionId, listening: Listening, scope: Scope, charge: Charge) {
        let entries = self.by_address.entry(key(listening.address)).or_default();
        let cookie = listening.cookie;
        if entries.iter().any(|entry| entry.session == session && entry.cookie == cookie) {
            return;
        }
        *self.held.entry(session).or_default() += 1;
        entries.push(Entry { session, scope, dual: listening.dual, cookie, charge });
    }

    /// Removes the listeners of a session at an address; whether there was one.
    pub fn remove(&mut self, session: SessionId, address: SocketAddr) -> bool {
        self.forget(address, |entry| entry.session == session)
    }

    fn forget(&mut self, address: SocketAddr, is_over: impl Fn(&Entry) -> bool) -> bool {
        let Some(entries) = self.by_address.get_mut(&key(address)) else { return false };
        let before = entries.len();
        for over in entries.extract_if(.., |entry| is_over(entry)) {
            if let Some(held) = self.held.get_mut(&over.session) {
                *held -= 1;
            }
        }
        let changed = entries.len() < before;
        if entries.is_empty() {
            self.by_address.remove(&key(address));
        }
        changed
    }

    /// Removes all listeners of a session; whether there was one.
    pub fn remove_session(&mut self, session: SessionId) -> bool {
        self.by_address.retain(|_, entries| {
            entries.retain(|entry| entry.session != session);
            !entries.is_empty()
        });
        self.held.remove(&session).is_some_and(|held| held > 0)
    }

    /// The addresses after `last`, or all, in order, each with the users that listen there.
    pub fn after(&self, last: Option<SocketAddr>) -> impl Iterator<Item = (SocketAddr, BTreeSet<u32>)> + '_ {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        let users =
            |entries: &[Entry]| entries.iter().filter_map(|entry| entry.charge.payer().user()).collect();
        self.by_address
            .range((begin, Bound::Unbounded))
            .map(move |(address, entries)| (*address, users(entries)))
    }

    /// The sessions that have listeners.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.held.keys().copied()
    }

    /// The sessions that listen for connections to `server` (in plain form) in this namespace, each with its listener's socket.
    pub fn hearers(
        &self,
        server: SocketAddr,
        scope: Scope,
    ) -> impl Iterator<Item = (SessionId, Cookie)> + '_ {
        let port = server.port();
        let v4_any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let v6_any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let wildcard = if server.is_ipv4() { v4_any } else { v6_any };
        let named = self.at(server).chain(self.at(wildcard));
        let dual = self.at(v6_any).filter(move |entry| server.is_ipv4() && entry.dual);
        let all = named.chain(dual).filter(move |entry| entry.scope == scope);
        all.map(|entry| (entry.session, entry.cookie))
    }

    /// Whether any session listens for connections to `server` (in plain form) in this namespace.
    pub fn hears(&self, server: SocketAddr, scope: Scope) -> bool {
        self.hearers(server, scope).next().is_some()
    }

    /// Whether any session listens at exactly this address.
    pub fn hears_exactly(&self, server: SocketAddr, scope: Scope) -> bool {
        self.at(server).any(|entry| entry.scope == scope)
    }

    /// The sessions that have listeners in a network namespace.
    pub fn sessions_in(&self, scope: Scope) -> impl Iterator<Item = SessionId> + '_ {
        self.by_address
            .values()
            .flatten()
            .filter(move |entry| entry.scope == scope)
            .map(|entry| entry.session)
    }

    fn at(&self, address: SocketAddr) -> impl Iterator<Item = &Entry> + '_ {
        self.by_address.get(&address).into_iter().flatten()
    }
}

/// Scope and flow label do not count. `::ffff:a.b.c.d` is the IPv4 address; `::ffff:0.0.0.0` its wildcard.
fn key(address: SocketAddr) -> SocketAddr {
    crate::address::plain(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, dual: bool) -> Listening {
        Listening { cookie: Cookie(1), address: address.parse().unwrap(), dual }
    }

    const HERE: Scope = Scope(0);

    fn hears(listeners: &Listeners, server: &str) -> bool {
        listeners.hears(server.parse().unwrap(), HERE)
    }

    #[test]
    fn exact_wildcard_and_dual_listeners() {
        let mut listeners = Listeners::default();
        listeners.add(SessionId(1), at("10.86.0.1:80", false), HERE, Charge::of_nothing());
        listeners.add(SessionId(2), at("0.0.0.0:81", false), HERE, Charge::of_nothing());
        listeners.add(SessionId(3), at("[::]:82", true), HERE, Charge::of_nothing());
        listeners.add(SessionId(4), at("[::]:83", false), HERE, Charge::of_nothing());
        listeners.add(SessionId(5), at("[::ffff:10.86.0.1]:84", false), HERE, Charge::of_nothing());
        listeners.add(SessionId(6), at("10.86.0.1:85", false), Scope(4), Charge::of_nothing());
        for heard in
            ["10.86.0.1:80", "10.86.0.1:81", "10.86.0.1:82", "[fd86::1]:82", "[fd86::1]:83", "10.86.0.1:84"]
        {
            assert!(hears(&listeners, heard), "{heard}");
        }
        for unheard in ["10.86.0.2:80", "[fd86::1]:81", "10.86.0.1:83", "10.86.0.1:85", "10.86.0.1:86"] {
            assert!(!hears(&listeners, unheard), "{unheard}");
        }
        assert!(listeners.hears("10.86.0.1:85".parse().unwrap(), Scope(4)));
        assert!(!listeners.hears_exactly("10.86.0.1:81".parse().unwrap(), HERE));
    }

    #[test]
    fn listeners_are_counted_and_leave_with_their_session() {
        let mut listeners = Listeners::default();
        let address: SocketAddr = "10.86.0.1:80".parse().unwrap();
        for (session, cookie) in [(1, 1), (1, 1), (1, 2), (2, 2)] {
            let listening = Listening { cookie: Cookie(cookie), ..at("10.86.0.1:80", false) };
            listeners.add(SessionId(session), listening, HERE, Charge::of_nothing());
        }
        assert_eq!(listeners.held[&SessionId(1)], 2, "one socket is one listener, however often it is shown");
        assert!(listeners.remove(SessionId(1), address) && !listeners.remove(SessionId(1), address));
        assert_eq!(listeners.hearers(address, HERE).next(), Some((SessionId(2), Cookie(2))));
        assert!(hears(&listeners, "10.86.0.1:80"));
        assert!(listeners.remove_session(SessionId(2)));
        assert!(listeners.by_address.is_empty());
    }
}
