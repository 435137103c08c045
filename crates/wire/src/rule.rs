//! Rules in libsdp's form: which connections and listeners become streams, and how those move their data. Programs and
//! daemons share this code, so that the two never decide differently.

use crate::local::{Action, Role, Rule, Use};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// What the `use` rules decide for a program and an address; TCP if none matches.
pub fn decide(rules: &[Rule], role: Role, program: &str, address: SocketAddr) -> Use {
    let wanted = |action| if let Action::Use(decided) = action { Some(decided) } else { None };
    first(rules, role, program, address, wanted).map_or(Use::Tcp, |(decided, _)| decided)
}

/// The first rule that matches a program and an address, and whose action `wanted` accepts; returns the value that `wanted` returns.
pub fn first<'a, T>(
    rules: &'a [Rule],
    role: Role,
    program: &str,
    address: SocketAddr,
    wanted: impl Fn(Action) -> Option<T>,
) -> Option<(T, &'a Rule)> {
    let ip = address.ip().to_canonical();
    let mut fitting =
        rules.iter().filter(|rule| fits(rule, role, program, address.port()) && contains(rule, ip));
    fitting.find_map(|rule| Some((wanted(rule.action)?, rule)))
}

/// The way of moving data that an action chooses, by the number of a `crosslane_stream::Transfer`.
pub fn transfer(action: Action) -> Option<u8> {
    if let Action::Transfer(number) = action { Some(number) } else { None }
}

/// Whether an action chooses the daemon's engine.
pub fn offload(action: Action) -> Option<bool> {
    if let Action::Offload(on) = action { Some(on) } else { None }
}

/// Whether an action has a connection use two circuits at once.
pub fn stripe(action: Action) -> Option<bool> {
    if let Action::Stripe(on) = action { Some(on) } else { None }
}

/// Whether a listener on all addresses may get connections that must be streams.
pub fn may_serve(rules: &[Rule], program: &str, port: u16) -> bool {
    let streams = |rule: &&Rule| matches!(rule.action, Action::Use(Use::Crosslane | Use::Both));
    rules.iter().filter(streams).any(|rule| fits(rule, Role::Server, program, port))
}

/// Whether any connection or listener of a program may be a stream: whether a rule says so before one that leaves all
/// addresses and ports of its role to TCP.
pub fn may_have_streams(rules: &[Rule], program: &str) -> bool {
    let asks = |role| {
        let mut uses = rules.iter().filter_map(|rule| match rule.action {
            Action::Use(decided)
                if rule.role == role && glob(rule.program.as_bytes(), program.as_bytes()) =>
            {
                Some((rule, decided))
            }
            _ => None,
        });
        let is_all = |rule: &Rule| rule.prefix == 0 && rule.port_min <= 1 && rule.port_max == u16::MAX;
        uses.find_map(|(rule, decided)| match decided {
            Use::Tcp => is_all(rule).then_some(false),
            Use::Both | Use::Crosslane => Some(true),
        })
    };
    asks(Role::Client).unwrap_or(false) || asks(Role::Server).unwrap_or(false)
}

fn fits(rule: &Rule, role: Role, program: &str, port: u16) -> bool {
    rule.role == role
        && (rule.port_min..=rule.port_max).contains(&port)
        && glob(rule.program.as_bytes(), program.as_bytes())
}

fn contains(rule: &Rule, ip: IpAddr) -> bool {
    IpNet::new(rule.address, rule.prefix).is_ok_and(|network| network.contains(&ip))
}

/// Matches `pattern`, in which `*` is any text and `?` any character.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: Use, role: Role, program: &str, address: [u8; 4], prefix: u8) -> Rule {
        let (action, address) = (Action::Use(action), IpAddr::from(address));
        Rule { action, role, program: program.into(), address, prefix, port_min: 1, port_max: 65535 }
    }

    #[test]
    fn rule_globs_match_whole_names() {
        assert!(glob(b"*", b"redis-server"));
        assert!(glob(b"redis-*r", b"redis-server"));
        assert!(glob(b"n?inx", b"nginx"));
        assert!(!glob(b"nginx", b"nginx2"));
        assert!(!glob(b"redis", b"redis-server"));
    }

    #[test]
    fn rule_that_matches_first_wins_and_none_is_tcp() {
        let rules = [
            rule(Use::Tcp, Role::Client, "curl", [10, 86, 0, 0], 24),
            rule(Use::Both, Role::Client, "*", [10, 86, 0, 0], 24),
            rule(Use::Tcp, Role::Client, "*", [0, 0, 0, 0], 0),
        ];
        let ask = |role, program, ip: [u8; 4]| decide(&rules, role, program, (ip, 80).into());
        assert_eq!(ask(Role::Client, "wget", [10, 86, 0, 7]), Use::Both);
        assert_eq!(ask(Role::Client, "curl", [10, 86, 0, 7]), Use::Tcp);
        assert_eq!(ask(Role::Client, "wget", [10, 87, 0, 7]), Use::Tcp);
        assert_eq!(ask(Role::Server, "wget", [10, 86, 0, 7]), Use::Tcp);
    }

    #[test]
    fn rule_kinds_match_separately() {
        let with =
            |action, program| Rule { action, ..rule(Use::Tcp, Role::Client, program, [0, 0, 0, 0], 0) };
        let rules = [
            with(Action::Transfer(2), "curl"),
            with(Action::Use(Use::Both), "*"),
            with(Action::Transfer(1), "*"),
            with(Action::Offload(true), "wget"),
        ];
        let address = SocketAddr::from(([10, 86, 0, 7], 80));
        let ways = |program| first(&rules, Role::Client, program, address, transfer).map(|(way, _)| way);
        let engine = |program| first(&rules, Role::Client, program, address, offload).map(|(on, _)| on);
        assert_eq!((ways("curl"), ways("wget")), (Some(2), Some(1)));
        assert_eq!((engine("curl"), engine("wget")), (None, Some(true)));
        assert_eq!(decide(&rules, Role::Client, "curl", address), Use::Both);
        assert!(!may_serve(&rules, "curl", 80));
    }

    #[test]
    fn rule_for_any_address_holds_for_a_listener_on_all() {
        let rules = [
            rule(Use::Tcp, Role::Server, "*", [127, 0, 0, 0], 8),
            rule(Use::Both, Role::Server, "nginx", [10, 86, 0, 0], 24),
        ];
        assert!(may_serve(&rules, "nginx", 80));
        assert!(!may_serve(&rules, "redis", 80));
    }
}
