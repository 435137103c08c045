//! Which connections and listeners of this program are to be streams.

use crate::process::Welcome;
use core::net::{IpAddr, SocketAddr};
use crosslane_wire::local::{Role, Rule, Use};
use std::sync::OnceLock;

/// This program's name, as rules and people know it.
pub fn program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_default();
        path.file_name().map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
    })
}

/// What is decided for an address. The last rules, from the daemon, are the defaults; without any match: TCP.
pub fn decide(welcome: &Welcome, role: Role, address: SocketAddr) -> Use {
    let ip = address.ip().to_canonical();
    let matching = |rule: &&Rule| {
        rule.role == role
            && (rule.port_min..=rule.port_max).contains(&address.port())
            && (contains(rule, ip) || (role == Role::Server && ip.is_unspecified()))
            && glob(rule.program.as_bytes(), program().as_bytes())
            && !(ip.is_unspecified() && rule.action == Use::Tcp)
    };
    welcome.rules.iter().find(matching).map_or(Use::Tcp, |rule| rule.action)
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
        let rules = vec![
            rule(Use::Tcp, Role::Client, "no-such-program", [10, 86, 0, 0], 24),
            rule(Use::Both, Role::Client, "*", [10, 86, 0, 0], 24),
            rule(Use::Tcp, Role::Client, "*", [0, 0, 0, 0], 0),
        ];
        let welcome = Welcome { rules, spin_ns: 0 };
        let decide = |ip: [u8; 4]| super::decide(&welcome, Role::Client, (ip, 80).into());
        assert_eq!(decide([10, 86, 0, 7]), Use::Both);
        assert_eq!(decide([10, 87, 0, 7]), Use::Tcp);
        assert_eq!(super::decide(&welcome, Role::Server, ([10, 86, 0, 7], 80).into()), Use::Tcp);
    }
}
