//! `crosslane ping`: probes from daemon to daemon through the fabric.

use crate::args::PingArgs;
use crate::screen::Stop;
use crate::{exit, status};
use anyhow::{Result, bail};
use crosslane_client::session::Session;
use crosslane_status::Status;
use crosslane_wire::HostId;
use crosslane_wire::local::{Reply, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Probes a host and prints round trips and their percentiles.
///
/// # Errors
/// No such host, or none in reach; no daemon; no answer at all (exit code 1).
pub(crate) fn ping(socket: &Path, args: &PingArgs) -> Result<()> {
    let session = status::session(socket)?;
    let status = status::ask(&session)?;
    let to = find(&status, &args.host)?;
    in_reach(&status, to)?;
    let stop = Stop::watch()?;
    let mut out = stdout().lock();
    let (mut sent, mut times, mut hops) = (0_u32, Vec::new(), None);
    while sent < args.count {
        if sent > 0 && stop.within(Duration::from_millis(args.interval)) {
            break;
        }
        sent += 1;
        let (time, far) = probe(&session, to)?;
        if let Some(ns) = time {
            times.push(ns);
            hops = Some(far);
        }
        if !args.quiet && !args.json {
            match time {
                Some(ns) => {
                    writeln!(out, "host {to}: seq={sent} hops={far} round trip {} us", us_of(ns, 1.0))?
                }
                None => writeln!(out, "host {to}: seq={sent} no answer")?,
            }
        }
    }
    times.sort_unstable();
    let summary = Summary { host: to, sent, hops, times };
    if args.json {
        writeln!(out, "{:#}", summary.json())?
    } else {
        summary.print(&mut out)?
    }
    if summary.times.is_empty() {
        bail!("host {to} did not answer: see `crosslane status`");
    }
    Ok(())
}

/// Probes a host once: the round trip, ns, if an answer came, and the cables on the way.
///
/// # Errors
/// The daemon is gone, or refuses.
pub(crate) fn probe(session: &Session, to: HostId) -> Result<(Option<u64>, u8)> {
    match session.request(&Request::Echo { to }, &[])?.0 {
        Reply::Echo { round_trip_ns, hops } => Ok((round_trip_ns, hops)),
        Reply::Error { text } => bail!(text),
        other => bail!("the daemon answered a probe with {other:?}"),
    }
}

/// The host that `name` means: an id, `hN`, or an address out of the daemon's status.
fn find(status: &Status, name: &str) -> Result<HostId> {
    if let Some(id) = name.strip_prefix('h').unwrap_or(name).parse().ok().filter(|id| *id > 0) {
        return Ok(HostId(id));
    }
    let address: Option<IpAddr> = name.parse().ok();
    let all = [(status.host, &status.addresses)].into_iter();
    let mut all = all.chain(status.hosts.iter().map(|host| (host.id, &host.addresses)));
    let found = address.and_then(|address| all.find(|(_, addresses)| addresses.contains(&address)));
    found.map(|(id, _)| id).ok_or_else(|| {
        exit::usage(format!("no host `{name}`: give an id (2), a name (h2) or one of `crosslane hosts`"))
    })
}

/// Whether the daemon knows a way to the host: without one, probes would only time out.
fn in_reach(status: &Status, to: HostId) -> Result<()> {
    let all: BTreeSet<HostId> = status.hosts.iter().map(|host| host.id).chain([status.host]).collect();
    if all.contains(&to) {
        return Ok(());
    }
    let names: Vec<String> = all.iter().map(|id| format!("h{id}")).collect();
    bail!("no way to host {to}: in reach are {}; see `crosslane status`", names.join(", "))
}

struct Summary {
    host: HostId,
    sent: u32,
    hops: Option<u8>,
    /// Round trips, ns, sorted.
    times: Vec<u64>,
}

impl Summary {
    /// Nearest-rank percentile, ns.
    fn percentile(&self, percent: usize) -> u64 {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied().unwrap_or_default()
    }

    fn figures(&self) -> [(&'static str, u64); 4] {
        let all = [("min", 0), ("median", 50), ("p99", 99), ("max", 100)];
        all.map(|(name, percent)| (name, self.percentile(percent)))
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "host {}: {} sent, {} answered", self.host, self.sent, self.times.len())?;
        if self.times.is_empty() {
            return Ok(());
        }
        for (what, half) in [("round trip, us:    ", 1.0), ("one way (half), us:", 0.5)] {
            let all = self.figures().map(|(name, ns)| format!("{name} {}", us_of(ns, half)));
            writeln!(out, "{what}     {}", all.join("  "))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let figures = |half: f64| {
            let value = |ns: u64| if self.times.is_empty() { Value::Null } else { json!(as_us(ns, half)) };
            self.figures().into_iter().map(|(name, ns)| (name, value(ns))).collect::<Value>()
        };
        json!({
            "host": self.host.0, "hops": self.hops, "sent": self.sent, "answered": self.times.len(),
            "round_trip_us": figures(1.0), "one_way_us": figures(0.5),
        })
    }
}

fn as_us(ns: u64, share: f64) -> f64 {
    // Exact up to 2^53 ns, which is 104 days.
    #[allow(clippy::cast_precision_loss)]
    let ns = ns as f64;
    ns * share / 1000.0
}

fn us_of(ns: u64, share: f64) -> String {
    format!("{:.2}", as_us(ns, share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::Host;

    #[test]
    fn ping_finds_hosts_by_any_name() {
        let addresses = |all: &[&str]| all.iter().map(|it| it.parse().expect("address")).collect();
        let far = Host { id: HostId(2), addresses: addresses(&["10.86.0.2", "fd86::2"]), ..Host::default() };
        let (host, addresses) = (HostId(1), addresses(&["10.86.0.1"]));
        let status = Status { host, addresses, hosts: vec![far], ..Status::default() };
        assert_eq!(find(&status, "2").expect("id"), HostId(2));
        assert_eq!(find(&status, "h7").expect("name"), HostId(7));
        assert_eq!(find(&status, "fd86::2").expect("address"), HostId(2));
        assert_eq!(find(&status, "10.86.0.1").expect("own address"), HostId(1));
        assert!(find(&status, "10.86.0.9").is_err());
        assert!(find(&status, "h0").is_err());
    }

    #[test]
    fn ping_names_an_unreachable_host_at_once() {
        let hosts = [2, 3].map(|id| Host { id: HostId(id), ..Host::default() }).into();
        let status = Status { host: HostId(1), hosts, ..Status::default() };
        for host in 1..=3 {
            in_reach(&status, HostId(host)).expect("in reach");
        }
        let error = in_reach(&status, HostId(7)).expect_err("no way").to_string();
        assert!(error.contains("host 7") && error.contains("h1, h2, h3"), "{error}");
    }

    #[test]
    fn ping_percentiles_are_of_the_nearest_rank() {
        let summary = Summary { host: HostId(2), sent: 100, hops: Some(1), times: (1..=100).collect() };
        assert_eq!(summary.figures().map(|f| f.1), [1, 50, 99, 100]);
        let one = Summary { host: HostId(2), sent: 1, hops: Some(1), times: vec![7] };
        assert_eq!(one.figures().map(|f| f.1), [7, 7, 7, 7]);
        assert_eq!(one.json()["one_way_us"]["max"], 0.0035);
        let none = Summary { host: HostId(2), sent: 1, hops: None, times: vec![] };
        assert_eq!(none.json()["round_trip_us"]["max"], Value::Null);
    }
}
