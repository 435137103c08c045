//! What each value of a configuration may be.

use super::{ConfigError, PORTS_MAX, PortConfig};
use crate::address::{self, Addresses};
use crate::offload::Choice;
use crate::rule;
use crosslane_fabric::HOST_MAX;
use crosslane_shm::copy::Strategy;
use crosslane_wire::HostId;
use crosslane_wire::local::Rule;
use crosslane_wire::segment::{RING_MAX, RING_MIN, ring_max_ok};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a Unix socket, bytes.
const SOCKET_PATH_MAX: usize = 107;
const INTERFACE_MAX: usize = 15;
const MTU_MAX: u16 = 65520;
const QUEUES_MAX: i64 = 16;
/// Most networks behind hosts: each packet is compared with all of them.
const NETWORKS_MAX: usize = 64;
/// Most rules: a message has room for them.
const RULES_MAX: usize = 80;

/// An error for a value that is not allowed.
pub(super) fn value(key: &str, text: String) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), text }
}

/// Reads `64K`, `8M`, `16G` or plain bytes.
pub(super) fn parse_size(key: &str, text: &str) -> Result<u64, ConfigError> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 64,
    };
    let number: Option<u64> = digits.parse().ok().filter(|_| shift < 64);
    number
        .and_then(|number| number.checked_mul(1 << (shift % 64)))
        .ok_or_else(|| value(key, format!("`{text}` is no size; write for example 64K, 8M or 16G")))
}

pub(super) fn check_subnet(key: &str, text: &str, v4: bool) -> Result<IpNet, ConfigError> {
    let network = address::network(text).map_err(|text| value(key, text))?;
    let (most, family) = if v4 { (24, "IPv4") } else { (112, "IPv6") };
    if network.addr().is_ipv4() != v4 || network.prefix_len() > most {
        return Err(value(
            key,
            format!("`{text}` is no {family} network with a prefix of at most {most} bits"),
        ));
    }
    Ok(network)
}

/// Reads `NETWORK HOST` lines.
pub(super) fn check_networks(
    lines: &[String],
    addresses: &Addresses,
) -> Result<Vec<(IpNet, HostId)>, ConfigError> {
    let mut networks: Vec<(IpNet, HostId)> = Vec::new();
    if lines.len() > NETWORKS_MAX {
        return Err(value("networks", format!("{} are more than {NETWORKS_MAX}", lines.len())));
    }
    for line in lines {
        let (network, host) = parse_network(line).map_err(|text| value("networks", text))?;
        let taken = networks.iter().map(|(taken, _)| *taken).find(|taken| address::overlap(taken, &network));
        if let Some(taken) = addresses.clash(&network).or(taken) {
            let special = if taken.addr().is_multicast() { " (multicast)" } else { "" };
            return Err(value("networks", format!("`{line}` overlaps {taken}{special}")));
        }
        networks.push((network, host));
    }
    Ok(networks)
}

fn parse_network(line: &str) -> Result<(IpNet, HostId), String> {
    let parts = line.split_once(' ').and_then(|(network, host)| {
        let host = host.trim().parse().ok().map(HostId)?;
        crosslane_fabric::host_ok(host).then_some((network, host))
    });
    let (network, host) = parts.ok_or_else(|| {
        format!("`{line}` must be `NETWORK HOST`, for example `192.168.7.0/24 3` (host 1 to {HOST_MAX})")
    })?;
    Ok((address::network(network)?, host))
}

pub(super) fn check_file(key: &str, path: Option<PathBuf>) -> Result<Option<PathBuf>, ConfigError> {
    match path {
        Some(path) if !path.is_absolute() => {
            Err(value(key, format!("`{}` must be an absolute path", path.display())))
        }
        path => Ok(path),
    }
}

pub(super) fn check_socket(key: &str, path: PathBuf) -> Result<PathBuf, ConfigError> {
    let len = path.as_os_str().len();
    if !path.is_absolute() || len > SOCKET_PATH_MAX {
        let text =
            format!("`{}` must be an absolute path of at most {SOCKET_PATH_MAX} bytes", path.display());
        return Err(value(key, text));
    }
    Ok(path)
}

pub(super) fn check_interface(name: String) -> Result<Option<String>, ConfigError> {
    if name.is_empty() {
        return Ok(None);
    }
    let ok =
        name.len() <= INTERFACE_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !ok {
        let text = format!(
            "`{name}` is no interface name (at most {INTERFACE_MAX} letters and digits; \"\" for none)"
        );
        return Err(value("interface", text));
    }
    Ok(Some(name))
}

pub(super) fn check_mtu(mtu: i64) -> Result<u16, ConfigError> {
    u16::try_from(mtu)
        .ok()
        .filter(|mtu| (1280..=MTU_MAX).contains(mtu))
        .ok_or_else(|| value("mtu", format!("{mtu} is not between 1280 and {MTU_MAX}")))
}

pub(super) fn check_queues(queues: i64) -> Result<usize, ConfigError> {
    usize::try_from(queues)
        .ok()
        .filter(|_| (1..=QUEUES_MAX).contains(&queues))
        .ok_or_else(|| value("queues", format!("{queues} is not between 1 and {QUEUES_MAX}")))
}

pub(super) fn check_ring_max(text: &str) -> Result<u64, ConfigError> {
    let size = parse_size("ring_max", text)?;
    if !ring_max_ok(size) {
        let (min, max) = (RING_MIN >> 10, RING_MAX >> 20);
        return Err(value("ring_max", format!("`{text}` is no power of two between {min}K and {max}M")));
    }
    Ok(size)
}

pub(super) fn check_spin(spin: i64) -> Result<u32, ConfigError> {
    u32::try_from(spin)
        .ok()
        .filter(|spin| *spin <= 1000)
        .ok_or_else(|| value("spin_us", format!("{spin} is not between 0 and 1000")))
}

pub(super) fn check_offload_cpus(cpus: &[i64]) -> Result<[usize; 2], ConfigError> {
    let numbers: Vec<usize> = cpus.iter().filter_map(|cpu| usize::try_from(*cpu).ok()).collect();
    match <[usize; 2]>::try_from(numbers) {
        Ok(both) if cpus.len() == 2 => Ok(both),
        _ => Err(value(
            "offload_cpus",
            format!("{cpus:?} are not two processors, of the sender and of the receiver"),
        )),
    }
}

pub(super) fn check_offload_copy(name: &str) -> Result<Choice, ConfigError> {
    match name {
        "auto" => Ok(Choice::Auto),
        "cached" => Ok(Choice::Staged(Strategy::Cached)),
        "non-temporal" => Ok(Choice::Staged(Strategy::NonTemporal)),
        "rep-movs" => Ok(Choice::Staged(Strategy::RepMovs)),
        other => {
            let text = format!("`{other}` is none of `auto`, `cached`, `non-temporal`, `rep-movs`");
            Err(value("offload_copy", text))
        }
    }
}

pub(super) fn check_all_ways(all_ways: bool, one_way: bool) -> Result<bool, ConfigError> {
    if all_ways && one_way {
        return Err(value(
            "all_ways",
            "with `one_way` there is one way only: leave one of them out".to_owned(),
        ));
    }
    Ok(all_ways)
}

pub(super) fn check_resume(resilience: &str, ms: i64) -> Result<Duration, ConfigError> {
    let wait = u64::try_from(ms).ok().filter(|ms| (100..=600_000).contains(ms));
    let wait = wait.ok_or_else(|| value("resume_ms", format!("{ms} is not between 100 and 600000")))?;
    match resilience {
        "keep" => Ok(Duration::from_millis(wait)),
        "reset" => Ok(Duration::ZERO),
        other => Err(value("resilience", format!("`{other}` is neither `keep` nor `reset`"))),
    }
}

/// The number of a group: `name` is a number, or is looked up in `/etc/group`.
pub(super) fn check_group(name: &str) -> Result<u32, ConfigError> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    group_of(name, &groups).ok_or_else(|| {
        value("operators", format!("`{name}` is no group in /etc/group; name one, or give its number"))
    })
}

fn group_of(name: &str, groups: &str) -> Option<u32> {
    let number = |line: &str| {
        let mut words = line.split(':');
        (words.next() == Some(name)).then(|| words.nth(1)?.parse().ok()).flatten()
    };
    name.parse().ok().or_else(|| groups.lines().find_map(number))
}

pub(super) fn check_metrics(text: &str) -> Result<SocketAddr, ConfigError> {
    let address: SocketAddr =
        text.parse().map_err(|_| value("metrics", format!("`{text}` is no address with a port")))?;
    if !address.ip().is_loopback() {
        return Err(value("metrics", format!("`{text}` is not on loopback; use 127.0.0.1:PORT")));
    }
    Ok(address)
}

pub(super) fn check_rules(
    lines: &[String],
    addresses: &Addresses,
    (offload, stripe): (bool, bool),
) -> Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    for line in lines {
        rules.extend(rule::parse(line).map_err(|text| value("rules", text))?);
    }
    rules.extend(rule::defaults(addresses, offload, stripe));
    if rules.len() > RULES_MAX {
        return Err(value(
            "rules",
            format!(
                "{} rules are too many; {RULES_MAX} fit a message, the built-in ones among them",
                rules.len()
            ),
        ));
    }
    Ok(rules)
}

pub(super) fn check_distinct(ports: &[PortConfig]) -> Result<(), ConfigError> {
    if ports.len() > PORTS_MAX {
        return Err(value("port", format!("{} ports; a host has at most {PORTS_MAX}", ports.len())));
    }
    let names: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    if names.len() < ports.len() {
        return Err(value("port: name", "two ports have one name".to_owned()));
    }
    let ends: BTreeSet<(&Path, bool)> =
        ports.iter().map(|port| (port.cable.as_path(), port.listens)).collect();
    if ends.len() < ports.len() {
        return Err(value("port: cable", "two ports are the same end of one cable".to_owned()));
    }
    Ok(())
}
