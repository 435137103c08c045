//! Rules in libsdp's form: `use <crosslane|tcp|both> <server|client> <program-glob> <addr/prefix>:<ports>`, and the same
//! with `transfer <auto|bcopy|read-zcopy|write-zcopy>`, `offload <on|off>` or `stripe <on|off>`.

use crate::address::{self, Addresses};
use crosslane_stream::Transfer;
use crosslane_wire::local::{Action, Role, Rule, Use};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest program glob, bytes.
const GLOB_MAX: usize = 64;

/// Reads one rule. An address of `*` means every address of both families, which makes two rules.
///
/// # Errors
/// A text that says what is wrong with which word.
pub fn parse(line: &str) -> Result<Vec<Rule>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [verb, action, role, program, target] = words[..] else {
        return Err(format!(
            "rule `{line}` has {} words; write `<use|transfer|offload|stripe> <WHAT> <server|client> <program-glob> <addr/prefix>:<ports>`",
            words.len()
        ));
    };
    let action = parse_action(verb, action).map_err(|why| format!("rule `{line}`: {why}"))?;
    let role = match role {
        "server" => Role::Server,
        "client" => Role::Client,
        other => return Err(format!("rule `{line}`: `{other}` is neither server nor client")),
    };
    if matches!(action, Action::Stripe(_)) && role == Role::Server {
        return Err(format!("rule `{line}`: who connects decides about stripes: write `client`"));
    }
    if program.len() > GLOB_MAX {
        return Err(format!("rule `{line}`: the program is longer than {GLOB_MAX} bytes"));
    }
    let (address, ports) = target
        .rsplit_once(':')
        .ok_or_else(|| format!("rule `{line}`: `{target}` has no `:<ports>` (`:*` for all)"))?;
    let (port_min, port_max) = parse_ports(ports).map_err(|why| format!("rule `{line}`: {why}"))?;
    let networks = parse_networks(address).map_err(|why| format!("rule `{line}`: {why}"))?;
    let rule = |network: IpNet| Rule {
        action,
        role,
        program: program.to_owned(),
        address: network.addr(),
        prefix: network.prefix_len(),
        port_min,
        port_max,
    };
    Ok(networks.into_iter().map(rule).collect())
}

/// A rule as one would write it.
pub fn text(rule: &Rule) -> String {
    let (verb, action) = match rule.action {
        Action::Use(Use::Crosslane) => ("use", "crosslane"),
        Action::Use(Use::Tcp) => ("use", "tcp"),
        Action::Use(Use::Both) => ("use", "both"),
        Action::Transfer(number) => {
            ("transfer", Transfer::from_number(number.into()).unwrap_or_default().name())
        }
        Action::Offload(true) => ("offload", "on"),
        Action::Offload(false) => ("offload", "off"),
        Action::Stripe(true) => ("stripe", "on"),
        Action::Stripe(false) => ("stripe", "off"),
    };
    let role = match rule.role {
        Role::Server => "server",
        Role::Client => "client",
    };
    let ports = match (rule.port_min, rule.port_max) {
        (0, u16::MAX) => "*".to_owned(),
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min}-{max}"),
    };
    format!("{verb} {action} {role} {} {}/{}:{ports}", rule.program, rule.address, rule.prefix)
}

/// The rules that stand behind the configured ones: the fabric's own subnets, and listeners on all addresses, are
/// `both`; all else is TCP. With `offload` the engine copies for everyone, and with `stripe` all connections use two circuits.
pub fn defaults(addresses: &Addresses, offload: bool, stripe: bool) -> Vec<Rule> {
    let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let full = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let rule = |action, role, address, prefix| Rule {
        action,
        role,
        program: "*".to_owned(),
        address,
        prefix,
        port_min: 0,
        port_max: u16::MAX,
    };
    let mut rules = Vec::new();
    for role in [Role::Client, Role::Server] {
        for network in [addresses.v4, addresses.v6] {
            rules.push(rule(Action::Use(Use::Both), role, network.addr(), network.prefix_len()));
        }
    }
    rules.extend(any.map(|address| rule(Action::Use(Use::Both), Role::Server, address, full(address))));
    for role in [Role::Client, Role::Server] {
        rules.extend(any.map(|address| rule(Action::Use(Use::Tcp), role, address, 0)));
        if offload {
            rules.extend(any.map(|address| rule(Action::Offload(true), role, address, 0)));
        }
    }
    if stripe {
        rules.extend(any.map(|address| rule(Action::Stripe(true), Role::Client, address, 0)));
    }
    rules
}

fn parse_action(verb: &str, action: &str) -> Result<Action, String> {
    match (verb, action) {
        ("use", "crosslane") => Ok(Action::Use(Use::Crosslane)),
        ("use", "tcp") => Ok(Action::Use(Use::Tcp)),
        ("use", "both") => Ok(Action::Use(Use::Both)),
        ("use", other) => Err(format!("`{other}` is none of crosslane, tcp, both")),
        ("transfer", name) => match name.parse::<Transfer>() {
            Ok(transfer) => Ok(Action::Transfer(transfer as u8)),
            Err(error) => Err(error.to_string()),
        },
        ("offload", "on") => Ok(Action::Offload(true)),
        ("offload", "off") => Ok(Action::Offload(false)),
        ("stripe", "on") => Ok(Action::Stripe(true)),
        ("stripe", "off") => Ok(Action::Stripe(false)),
        ("offload" | "stripe", other) => Err(format!("`{other}` is neither on nor off")),
        (other, _) => Err(format!("`{other}` is none of use, transfer, offload, stripe")),
    }
}

fn parse_networks(text: &str) -> Result<Vec<IpNet>, String> {
    if text == "*" {
        return Ok(vec![address::network("0.0.0.0/0")?, address::network("::/0")?]);
    }
    Ok(vec![address::network(&text.replace(['[', ']'], ""))?])
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    if text == "*" {
        return Ok((0, u16::MAX));
    }
    let port = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
    let (min, max) = match text.split_once('-') {
        Some((min, max)) => (port(min)?, port(max)?),
        None => (port(text)?, port(text)?),
    };
    if min > max {
        return Err(format!("ports `{text}` run backwards"));
    }
    Ok((min, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rules = parse("use both client redis* 127.0.0.1/32:6379-6380").unwrap();
        assert_eq!(rules.len(), 1);
        let both = Action::Use(Use::Both);
        assert_eq!((rules[0].action, rules[0].role, rules[0].prefix), (both, Role::Client, 32));
        assert_eq!((rules[0].port_min, rules[0].port_max), (6379, 6380));
        assert_eq!(parse("use tcp server * *:*").unwrap().len(), 2);
        assert_eq!(parse("use tcp server * [fd86::]/64:80").unwrap()[0].prefix, 64);
        assert_eq!(parse("use crosslane server * fd86::1:80").unwrap()[0].prefix, 128);
    }

    #[test]
    fn rule_is_read_as_it_was_written() {
        for line in [
            "use both client redis* 127.0.0.1/32:6379-6380",
            "use tcp server * fd86::/64:80",
            "transfer write-zcopy server * 10.86.0.0/24:*",
            "transfer auto client iperf3 10.86.0.0/24:5201",
            "offload on client * fd86::/64:*",
            "offload off server redis-server 10.86.0.2/32:6379",
            "stripe on client iperf3 10.86.0.2/32:5201",
        ] {
            assert_eq!(text(&parse(line).unwrap()[0]), line);
        }
        let all = parse("use crosslane client * *:*").unwrap();
        assert_eq!(text(&all[1]), "use crosslane client * ::/0:*");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("use both client *", "words"),
            ("take both client * *:*", "use"),
            ("use all client * *:*", "all"),
            ("transfer zcopy client * *:*", "read-zcopy"),
            ("offload maybe client * *:*", "maybe"),
            ("stripe on server * *:*", "client"),
            ("use both peer * *:*", "peer"),
            ("use both client * 10.0.0.0/33:*", "33"),
            ("use both client * 10.0.0.0/8:90-80", "backwards"),
            ("use both client * 10.0.0.0/8:x", "`x`"),
        ] {
            assert!(parse(line).unwrap_err().contains(word), "{line}");
        }
    }
}
