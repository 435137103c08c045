//! Programs that measure networks: here it only counts that they work.

use anyhow::{Result, ensure};
use crosslane_e2e::WORK;
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{iperf3, netperf, package, qperf, sockperf};
use crosslane_lab::{Options, Topology};

/// Bytes that a second of iperf3 surely moves, also on a slow and busy machine.
const LITTLE: u64 = 10 << 20;

fn iperf3_with(more: &[&str], streams: u64, v6: bool) -> Result<()> {
    let Some(program) = package::need("iperf3") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let to = if v6 { rig.lab.address6("h2")? } else { rig.address("h2")? }.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = iperf3::server(&rig, "h2", &program, port)?;
    let moved = iperf3::client(&rig, "h1", &program, &to, port, more)?;
    ensure!(moved.streams == streams, "{} streams", moved.streams);
    ensure!(moved.bytes > LITTLE, "{} bytes in a second", moved.bytes);
    // One more stream for its control connection.
    measure.carried(moved.bytes, streams + 1)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn iperf3_one_stream() -> Result<()> {
    iperf3_with(&[], 1, false)
}

#[test]
fn iperf3_one_stream_v6() -> Result<()> {
    iperf3_with(&[], 1, true)
}

#[test]
fn iperf3_four_streams() -> Result<()> {
    iperf3_with(&["-P", "4"], 4, false)
}

#[test]
fn iperf3_reverse() -> Result<()> {
    iperf3_with(&["-R"], 1, false)
}

#[test]
fn iperf3_both_ways() -> Result<()> {
    iperf3_with(&["--bidir"], 2, false)
}

fn sockperf_with(size: usize, more: &[&str]) -> Result<()> {
    let Some(program) = package::need("sockperf") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = sockperf::server(&rig, "h2", &program, &address, port)?;
    let replies = sockperf::ping_pong(&rig, "h1", &program, &address, port, size, more)?;
    ensure!(replies > 100, "{replies} replies");
    measure.carried(2 * replies * size as u64, 1)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn sockperf_small() -> Result<()> {
    sockperf_with(14, &[])
}

#[test]
fn sockperf_large() -> Result<()> {
    sockperf_with(60_000, &[])
}

#[test]
fn sockperf_nonblocking() -> Result<()> {
    sockperf_with(200, &["--nonblocked"])
}

/// A program that opens `AF_INET_SDP` sockets by itself. A rule leaves all that it connects by TCP to the kernel, so
/// streams carry nothing but what goes by the family.
#[test]
fn qperf_by_sdp() -> Result<()> {
    let Some(program) = package::need("qperf") else { return Ok(()) };
    let rules = vec!["use tcp client qperf *:*".to_owned()];
    let options = Options { hosts: 2, topology: Topology::Pair, rules, ..Options::scratch("e2e") };
    let Some(rig) = Rig::up(options)? else { return Ok(()) };
    let to = rig.address("h2")?.to_string();
    let port = rig.port();
    let server = qperf::server(&rig, "h2", &program, port)?;
    let measure = rig.measure(&["h1", "h2"])?;
    qperf::client(&rig, "h1", &program, &to, port, &["tcp_bw"])?;
    measure.carried_by_ip(LITTLE)?;
    let results = qperf::client(&rig, "h1", &program, &to, port, &["sdp_bw", "sdp_lat"])?;
    ensure!(results.bandwidth > 0.0 && results.latency > 0.0, "{results:?}");
    measure.carried(LITTLE, 2)?;
    let opened = rig.account("h1")?.opened;
    ensure!(opened == 2, "{opened} streams for two tests");
    drop(server);
    measure.gave_back()
}

/// Without the library its sockets of SDP cannot be made.
#[test]
fn qperf_by_sdp_needs_the_library() -> Result<()> {
    let Some(program) = package::need("qperf") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let (to, port) = (rig.address("h2")?.to_string(), rig.port());
    let server = qperf::server(&rig, "h2", &program, port)?;
    let mut command = rig.plain("h1", &program)?;
    command.args(["-lp", &port.to_string(), "-t", "1", &to, "sdp_lat"]);
    let mut client = Program::start(&mut command)?;
    let code = client.wait(WORK)?;
    ensure!(!code.success(), "{}", client.tail());
    drop(server);
    Ok(())
}

#[test]
fn netperf_all() -> Result<()> {
    let why = "it is in Debian's non-free section";
    let (Some(client), Some(server)) = (package::want("netperf", why), package::find("netserver")) else {
        return Ok(());
    };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let to = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = netperf::server(&rig, "h2", &server, port)?;
    for test in ["TCP_RR", "TCP_STREAM", "TCP_CRR"] {
        netperf::client(&rig, "h1", &client, &to, port, test)?;
    }
    // A control and a data connection each.
    measure.carried(LITTLE, 6)?;
    drop(server);
    measure.gave_back()
}

/// The command that compares programs of others: two of them, once, for a moment, on the machine as it is.
#[test]
fn bench_apps() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let names = ["memcached", "zeromq-ask"];
    let words = ["bench", "apps", "--runs", "1", "--seconds", "0.2", "--json", "--as-is", "--only"];
    let said = run(rig.tool("h1", &words)?.arg(names.join(",")), WORK)?.text();
    let report: serde_json::Value = serde_json::from_str(&said)?;
    let figures = report["figures"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(figures.len() == 2 * names.len(), "a rate and a time for each: {said}");
    for figure in figures {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        let (ours, tcp) = (&figure["sample"], &figure["references"][0]["sample"]);
        ensure!(number(&ours["median"]) > 0.0 && number(&tcp["median"]) > 0.0, "{figure}");
        ensure!(figure["steal"].is_number(), "{figure}");
    }
    let machine = &report["machine"];
    ensure!(machine["steal_percent"].is_number(), "{machine}");
    let looked_at = !machine["distance_ns"].is_null() || !machine["slowed_percent"].is_null();
    ensure!(machine["awake"] == false && !looked_at, "{machine}");
    Ok(())
}
