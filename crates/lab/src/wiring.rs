//! Interfaces, addresses and routes of the hosts, set by `ip` (package iproute2).

use crate::LabError;
use crate::plan::{Cable, address, address6, next_cables};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that a host needs before its cables: loopback, and without a TUN the fabric addresses on it.
pub(crate) fn host(id: u8, tun: bool) -> String {
    let mut batch = String::from("link set lo up\n");
    if !tun {
        let _ = writeln!(batch, "addr add {}/32 dev lo", address(id));
        let _ = writeln!(batch, "addr add {}/128 dev lo nodad", address6(id));
    }
    batch
}

/// Commands that make the veth pair beside `cable`, for the namespace of its side a; `peer` is a path of the
/// namespace of side b.
pub(crate) fn veth(cable: &Cable, peer: &str) -> String {
    format!("link add c{n} type veth peer name c{n} netns {peer}\n", n = cable.number)
}

/// Commands that bring up a host's end of that pair.
pub(crate) fn veth_end(cable: &Cable, id: u8) -> String {
    let (Some(v4), Some(v6)) = (cable.baseline(id), cable.baseline6(id)) else { return String::new() };
    let n = cable.number;
    format!("addr add {v4}/24 dev c{n}\naddr add {v6}/64 dev c{n} nodad\nlink set c{n} up\n")
}

/// Commands that route the fabric addresses of all other hosts over the veth pairs, for a lab without a TUN.
pub(crate) fn routes(id: u8, hosts: u8, cables: &[Cable]) -> String {
    let mut batch = String::new();
    for to in (1..=hosts).filter(|&to| to != id) {
        let Some(cable) = next_cables(hosts, cables, to).swap_remove(usize::from(id)) else { continue };
        let Some(next) = cable.other(id) else { continue };
        let (Some(via), Some(via6)) = (cable.baseline(next), cable.baseline6(next)) else { continue };
        let _ = writeln!(batch, "route add {}/32 via {via} src {}", address(to), address(id));
        let _ = writeln!(batch, "route add {}/128 via {via6} src {}", address6(to), address6(id));
    }
    batch
}

/// Commands that route to the veth pairs beside all farther cables, by which a host reaches the baseline addresses of
/// hosts that are not its neighbours.
pub(crate) fn baseline_routes(id: u8, hosts: u8, cables: &[Cable]) -> String {
    let mut batch = String::new();
    for far in cables.iter().filter(|cable| cable.other(id).is_none()) {
        let Some((next, first)) = way_to(id, hosts, cables, far) else { continue };
        let Some(via) = first.baseline(next) else { continue };
        let _ = writeln!(batch, "route add 10.87.{}.0/24 via {via}", far.number);
    }
    batch
}

/// The neighbour, and the cable to it, on a shortest way to the nearer end of `far`.
fn way_to(id: u8, hosts: u8, cables: &[Cable], far: &Cable) -> Option<(u8, Cable)> {
    let ways = next_cables(hosts, cables, id);
    let len = |mut host: u8| {
        let mut len = 0;
        while host != id {
            host = ways[usize::from(host)].as_ref()?.other(host)?;
            len += 1;
        }
        Some(len)
    };
    let nearer = if len(far.a)? <= len(far.b)? { far.a } else { far.b };
    let first = next_cables(hosts, cables, nearer).swap_remove(usize::from(id))?;
    Some((first.other(id)?, first))
}

/// Runs a batch of `ip` commands in this process's network namespace.
///
/// # Errors
/// `ip` is missing, or refuses a command: the error has its words.
pub(crate) fn run(batch: &str) -> Result<(), LabError> {
    let shorter = if has_ipv6() { None } else { Some(without_ipv6(batch)) };
    let batch = shorter.as_deref().unwrap_or(batch);
    if batch.is_empty() {
        return Ok(());
    }
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LabError::io("run `ip` (install the package iproute2)"))?;
    let fed = ip.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(batch.as_bytes()));
    let output = ip.wait_with_output().map_err(LabError::io("wait for `ip`"))?;
    fed.map_err(LabError::io("talk to `ip`"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(LabError::io(format!("ip: {words} (commands: {})", batch.trim().replace('\n', "; ")))(
        std::io::Error::other("refused"),
    ))
}

/// Lets the host pass packets on between its veth pairs.
pub(crate) fn forward() -> Result<(), LabError> {
    set("net/ipv4/ip_forward", "1")?;
    if has_ipv6() { set("net/ipv6/conf/all/forwarding", "1") } else { Ok(()) }
}

/// Makes addresses usable at once, without duplicate detection: no other host is on these links.
pub(crate) fn trust_addresses() -> Result<(), LabError> {
    if !has_ipv6() {
        return Ok(());
    }
    set("net/ipv6/conf/all/accept_dad", "0")?;
    set("net/ipv6/conf/default/accept_dad", "0")
}

/// Has sockets of programs that wait for thousands of streams keep as many wakes as those of a machine with systemd do. Not every user may.
pub(crate) fn deepen_queues() {
    let _ = set("net/unix/max_dgram_qlen", "512");
}

fn set(setting: &str, value: &str) -> Result<(), LabError> {
    let file = format!("/proc/sys/{setting}");
    std::fs::write(&file, value).map_err(LabError::io(format!("write {file}")))
}

/// Whether this kernel has IPv6; a lab does without, if need be.
fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// The batch without its lines of IPv6 addresses.
fn without_ipv6(batch: &str) -> String {
    batch.lines().filter(|line| !line.contains("::")).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Options, Topology};

    fn cables(hosts: u8, topology: Topology) -> Vec<Cable> {
        Options { hosts, topology, ..Options::named("ok") }.cables()
    }

    #[test]
    fn wiring_has_no_ipv6_where_the_kernel_has_none() {
        assert_eq!(without_ipv6(&host(1, false)), "link set lo up\naddr add 10.86.0.1/32 dev lo\n");
    }

    #[test]
    fn wiring_reaches_farther_pairs_over_the_nearer_end() {
        let chain = baseline_routes(1, 4, &cables(4, Topology::Chain));
        assert_eq!(chain, "route add 10.87.2.0/24 via 10.87.1.2\nroute add 10.87.3.0/24 via 10.87.1.2\n");
        let ring = baseline_routes(1, 5, &cables(5, Topology::Ring));
        assert!(ring.contains("10.87.2.0/24 via 10.87.1.2") && ring.contains("10.87.4.0/24 via 10.87.5.1"));
        assert_eq!(baseline_routes(1, 2, &cables(2, Topology::Pair)), "");
    }

    #[test]
    fn wiring_of_a_chain_passes_its_middle() {
        let batch = routes(1, 3, &cables(3, Topology::Chain));
        assert!(batch.contains("route add 10.86.0.2/32 via 10.87.1.2 src 10.86.0.1"));
        assert!(batch.contains("route add 10.86.0.3/32 via 10.87.1.2 src 10.86.0.1"));
        assert!(batch.contains("route add fd86::3/128 via fd87:0:0:1::2 src fd86::1"));
    }
}
