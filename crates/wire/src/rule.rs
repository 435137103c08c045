//! Rules in libsdp's form: which connections and listeners are to be streams. One reading of them for programs and
//! daemons, so that the two ends of a question never differ.

use crate::local::{Role, Rule, Use};
use std::net::{IpAddr, SocketAddr};

/// What the first matching rule says for a program and an address; without any match, TCP.
pub fn decide(rules: &[Rule], role: Role, program: &str, address: SocketAddr) -> Use {
    let ip = address.ip().to_canonical();
    let found = rules.iter().find(|rule| fits(rule, role, program, address.port()) && contains(rule, ip));
    found.map_or(Use::Tcp, |rule| rule.action)
}

/// Whether a listener on all addresses may get connections that are to be streams.
pub fn may_serve(rules: &[Rule], program: &str, port: u16) -> bool {
    rules.iter().any(|rule| rule.action != Use::Tcp && fits(rule, Role::Server, program, port))
}

fn fits(rule: &Rule, role: Role, program: &str, port: u16) -> bool {
    rule.role == role
        && (rule.port_min..=rule.port_max).contains(&port)
        && glob(rule.program.as_bytes(), program.as_bytes())
}

fn contains(rule: &Rule, ip: IpAddr) -> bool {
    let prefix = u32::from(rule.prefix);
    match (rule.address, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            let shift = 32 - prefix.min(32);
            shift == 32 || network.to_bits() >> shift == ip.to_bits() >> shift
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            let shift = 128 - prefix.min(128);
            shift == 128 || network.to_bits() >> shift == ip.to_bits() >> shift
        }
        _ => false,
    }
}

/// `*` is any text, `?` any character.
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
        let address = IpAddr::from(address);
        Rule { action, role, program: program.into(), address, prefix, port_min: 1, port_max: 65535 }
    }

    #[test]
    fn globs_match_whole_names() {
        assert!(glob(b"*", b"redis-server"));
        assert!(glob(b"redis-*r", b"redis-server"));
        assert!(glob(b"n?inx", b"nginx"));
        assert!(!glob(b"nginx", b"nginx2"));
        assert!(!glob(b"redis", b"redis-server"));
    }

    #[test]
    fn the_first_match_wins_and_none_is_tcp() {
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
    fn a_listener_on_all_addresses_counts_if_any_address_does() {
        let rules = [
            rule(Use::Tcp, Role::Server, "*", [127, 0, 0, 0], 8),
            rule(Use::Both, Role::Server, "nginx", [10, 86, 0, 0], 24),
        ];
        assert!(may_serve(&rules, "nginx", 80));
        assert!(!may_serve(&rules, "redis", 80));
    }
}
