//! Programs in a ring whose cables are cut, whose hosts die or freeze: none of them notices more than a pause.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::openssh::Sshd;
use crosslane_e2e::postgres::Postgres;
use crosslane_e2e::program::{Printed, Program};
use crosslane_e2e::python::Script;
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, echo, iperf3, package, payload, wait_for};
use crosslane_lab::{Options, Topology};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long programs run undisturbed before, between and after what happens to them.
const CALM: Duration = Duration::from_millis(400);

/// Four hosts in a ring: each has two ways to each.
fn ring() -> Result<Option<Rig>> {
    Rig::up(Options { hosts: 4, topology: Topology::Ring, ..Options::scratch("e2e") })
}

fn count(rig: &Rig, host: &str, counter: &str) -> Result<u64> {
    rig.lab.status(host)?["counters"][counter].as_u64().with_context(|| format!("no counter {counter}"))
}

/// Hops of the streams that are open on a host.
fn hops(status: &Value) -> Vec<u64> {
    let circuits = status["circuits"].as_array().into_iter().flatten();
    circuits.filter(|it| it["state"] == "open").filter_map(|it| it["hops"].as_u64()).collect()
}

/// Cuts the cable between h1 and h2 under a program of h1 that speaks with h2, mends it, and cuts it again; in between
/// waits until the streams have moved. Returns how the program ended.
fn cut_under(rig: &mut Rig, program: Program) -> Result<Printed> {
    let before = count(rig, "h1", "moves")?;
    for round in 0..2 {
        std::thread::sleep(CALM);
        rig.lab.cut("h1", "h2")?;
        rig.lab.wait_until("h1", PATIENCE, |status| hops(status).iter().all(|hops| *hops == 3))?;
        std::thread::sleep(CALM);
        rig.lab.mend("h1", "h2")?;
        rig.lab.wait_until("h1", PATIENCE, |status| hops(status).iter().all(|hops| *hops == 1))?;
        ensure!(count(rig, "h1", "moves")? >= before + 2 * (round + 1), "nothing moved");
    }
    program.finish(WORK)
}

fn nothing_broke(rig: &Rig) -> Result<()> {
    for host in ["h1", "h2", "h3", "h4"] {
        ensure!(count(rig, host, "streams_aborted")? == 0, "{}", rig.story(host));
        ensure!(count(rig, host, "violations")? == 0, "{}", rig.story(host));
    }
    Ok(())
}

#[test]
fn iperf3_does_not_notice_a_cut_cable() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    for more in [&["-t", "4"][..], &["-t", "4", "-R"], &["-t", "4", "--bidir", "-P", "3"]] {
        let Some(mut rig) = ring()? else { return Ok(()) };
        let port = rig.port();
        let mut server = iperf3::server(&rig, "h2", &path, port)?;
        let mut command = rig.command("h1", &path)?;
        command.args(["-c", &rig.address("h2")?.to_string(), "-p", &port.to_string(), "-J"]).args(more);
        let client = Program::start(&mut command)?;
        let printed = cut_under(&mut rig, client)?;
        let report: Value = serde_json::from_str(&printed.text())?;
        ensure!(report["error"].is_null(), "{}", report["error"]);
        ensure!(report["end"]["sum_received"]["bytes"].as_u64() > Some(0), "nothing arrived");
        server.end();
        nothing_broke(&rig)?;
        wait_for("nothing is left", PATIENCE, || {
            let left = ["h1", "h2", "h3", "h4"].map(|host| rig.account(host).map_or(1, |it| it.circuits));
            if left == [0; 4] { Ok(()) } else { Err(format!("{left:?}")) }
        })?;
    }
    Ok(())
}

#[test]
fn redis_benchmark_does_not_notice_a_cut_cable() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let _server = redis.server(&rig, "h2", port)?;
    let mut command = rig.command("h1", package::need("redis-benchmark").context("it is there")?)?;
    command.args(["-h", &rig.address("h2")?.to_string(), "-p", &port.to_string(), "-t", "set", "-l", "-q"]);
    let mut client = Program::start(command.args(["-c", "50", "-d", "300"]))?;
    for _ in 0..2 {
        std::thread::sleep(CALM);
        rig.lab.cut("h1", "h2")?;
        rig.lab
            .wait_until("h1", PATIENCE, |status| hops(status).iter().filter(|it| **it == 3).count() >= 50)?;
        std::thread::sleep(CALM);
        rig.lab.mend("h1", "h2")?;
        rig.lab
            .wait_until("h1", PATIENCE, |status| hops(status).iter().filter(|it| **it == 1).count() >= 50)?;
    }
    ensure!(!client.is_over(), "{}", client.tail());
    let words = client.tail();
    ensure!(!words.contains("Error") && !words.contains("reset"), "{words}");
    client.end();
    nothing_broke(&rig)
}

#[test]
fn scp_of_a_gigabyte_through_a_cut_ring_copies_it() -> Result<()> {
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let Some(sshd) = Sshd::start(&rig, "h2", port)? else { return Ok(()) };
    let (file, copy) = (rig.file("sent"), rig.file("received"));
    payload::file(&file, 3, 1_000_000_000)?;
    let client = Program::start(&mut sshd.sending(&rig, "h1", &file, &copy)?)?;
    // Before its user is known, sshd's process may make no call that it would need to go on (a system call filter).
    wait_for("it copies", PATIENCE, || match std::fs::metadata(&copy) {
        Ok(found) if found.len() > 1_000_000 => Ok(()),
        found => Err(format!("{found:?}")),
    })?;
    let printed = cut_under(&mut rig, client)?;
    ensure!(payload::same(&file, &copy)? == 1_000_000_000, "{}", printed.text());
    nothing_broke(&rig)
}

#[test]
fn pgbench_does_not_notice_a_cut_cable() -> Result<()> {
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let Some(postgres) = Postgres::start(&rig, "h2", port)? else { return Ok(()) };
    postgres.bench(&rig, "h1", &["-i", "-s", "1", "-q"])?;
    let mut command = postgres.benching(&rig, "h1")?;
    let client = Program::start(command.args(["-c", "4", "-T", "5", "postgres"]))?;
    let text = cut_under(&mut rig, client)?.text();
    ensure!(text.contains("number of failed transactions: 0 "), "{text}");
    nothing_broke(&rig)
}

/// Streams from h1 to h3 lead through h2 or h4. The host between dies, and comes back.
#[test]
fn a_host_between_dies_and_no_stream_through_it_does() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h3", &path, port)?;
    let mut command = rig.command("h1", &path)?;
    command.args([
        "-c",
        &rig.address("h3")?.to_string(),
        "-p",
        &port.to_string(),
        "-J",
        "-P",
        "2",
        "-t",
        "4",
    ]);
    let client = Program::start(&mut command)?;
    rig.lab.wait_until("h1", PATIENCE, |status| hops(status) == [2, 2, 2])?;
    let between = if count(&rig, "h2", "transits")? > 0 { "h2" } else { "h4" };
    std::thread::sleep(CALM);
    rig.lab.kill_host(between)?;
    std::thread::sleep(CALM);
    rig.lab.start_daemon(between)?;
    rig.lab.wait_host(between, PATIENCE)?;
    let report: Value = serde_json::from_str(&client.finish(WORK)?.text())?;
    ensure!(report["error"].is_null(), "{}", report["error"]);
    ensure!(count(&rig, "h1", "moves")? >= 3, "nothing moved");
    Ok(())
}

/// The host between does not run for 10 s; the streams are long somewhere else when it goes on.
#[test]
fn a_frozen_host_between_is_gone_round() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h3", &path, port)?;
    let mut command = rig.command("h1", &path)?;
    command.args(["-c", &rig.address("h3")?.to_string(), "-p", &port.to_string(), "-J", "-t", "12"]);
    let client = Program::start(&mut command)?;
    rig.lab.wait_until("h1", PATIENCE, |status| hops(status) == [2, 2])?;
    let between = if count(&rig, "h2", "transits")? > 0 { "h2" } else { "h4" };
    let daemon = rig.lab.daemon(between)?.context("it runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    let moved = rig.lab.wait_until("h1", PATIENCE, |status| {
        status["counters"]["moves"].as_u64() >= Some(2) && hops(status) == [2, 2]
    });
    std::thread::sleep(Duration::from_secs(9));
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    moved?;
    let report: Value = serde_json::from_str(&client.finish(WORK)?.text())?;
    ensure!(report["error"].is_null(), "{}", report["error"]);
    let intervals = report["intervals"].as_array().context("intervals")?;
    let idle = intervals.iter().filter(|it| it["sum"]["bytes"] == 0).count();
    ensure!(idle <= 4, "{idle} of {} seconds without a byte", intervals.len());
    Ok(())
}

/// Sends before the reader reads, over a host between that stops at once, and leaves.
const SENDER: &str = "
import os, socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b'!')
s.recv(1)
print('ready', flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
s.sendall(bytes(i % 251 for i in range(1500000)))
";
const RECEIVER: &str = "
import hashlib, socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
c, _ = s.accept()
c.recv(1)
c.sendall(b'!')
got = b''
while True:
    part = c.recv(1 << 20)
    if not part:
        break
    got += part
print('all' if got == bytes(i % 251 for i in range(1500000)) else 'only %d' % len(got), flush=True)
";

/// A program sends and is gone; the host between that holds its bytes never passes them on.
#[test]
fn what_a_program_sent_before_it_left_arrives_all_the_same() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = ring()? else { return Ok(()) };
    let (to, port) = (rig.address("h3")?.to_string(), rig.port().to_string());
    let mut server = rig.command("h3", &python)?;
    let mut server = Program::start(server.args(["-c", RECEIVER, &to, &port]))?;
    server.listens(port.parse()?)?;
    let mut client = rig.command("h1", &python)?;
    let go = rig.file("go");
    let mut client = Program::start(client.args(["-c", SENDER, &to, &port]).arg(&go))?;
    client.says("ready")?;
    let between = if count(&rig, "h2", "transits")? > 0 { "h2" } else { "h4" };
    let daemon = rig.lab.daemon(between)?.context("it runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    std::fs::write(&go, "")?;
    let left = client.wait(WORK);
    let all = server.finish(WORK);
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    ensure!(left?.success(), "{}", client.tail());
    ensure!(all?.text().contains("all"), "not all arrived");
    Ok(())
}

/// Sends until a file appears, and checks that all of it comes back; half of the connections are new ones all the time.
const CHECKED: &str = "
import errno, os, random, socket, sys, threading, time
to, stop, seed = (sys.argv[1], int(sys.argv[2])), sys.argv[3], int(sys.argv[4])
block = random.Random(seed).randbytes(1 << 20)
def piece(at, count):
    at %= 1 << 20
    return (block[at:] + block)[:count]
def one(s, dice, limit):
    sent = [0]
    def send():
        while not os.path.exists(stop) and sent[0] < limit:
            part = piece(sent[0], dice.choice((1, 100, 5000, 200000, 900000)))
            s.sendall(part)
            sent[0] += len(part)
        s.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=send)
    thread.start()
    got = 0
    while True:
        part = s.recv(1 << 18)
        if not part:
            break
        if part != piece(got, len(part)):
            print('wrong at', got, flush=True)
            os._exit(1)
        got += len(part)
    thread.join()
    if got != sent[0]:
        print('only', got, 'of', sent[0], flush=True)
        os._exit(1)
    return got
def many(dice, limit):
    count = 0
    while not os.path.exists(stop):
        try:
            s = socket.create_connection(to)
        except OSError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            time.sleep(0.01)
            continue
        with s:
            count += one(s, dice, limit)
    totals.append(count)
totals = []
threads = [threading.Thread(target=many, args=(random.Random(seed + n), limit)) for n, limit in enumerate((1 << 40, 1 << 40, 3000, 5000000))]
for thread in threads:
    thread.start()
print('begun', flush=True)
for thread in threads:
    thread.join()
print('all', sum(totals) if len(totals) == 4 else 'but', flush=True)
";

/// Cables are cut and mended at random moments, sometimes two at once; every byte comes back. Connections may be refused
/// while a host is alone.
#[test]
fn every_byte_survives_cuts_at_random_moments() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let (to, port) = (rig.address("h3")?.to_string(), rig.port());
    let _server = echo::server(&rig, Script::Echo, "h3", &python, port)?;
    let stop = rig.file("stop");
    let seed = Instant::now().elapsed().subsec_nanos() ^ std::process::id();
    println!("seed {seed}");
    let mut client = rig.command("h1", &python)?;
    let client = client.args(["-c", CHECKED, &to, &port.to_string()]).arg(&stop).arg(seed.to_string());
    let mut client = Program::start(client)?;
    client.says("begun")?;
    let mut dice = u64::from(seed) | 1;
    let mut below = |most: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % most
    };
    let cables = [("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h4", "h1")];
    for _ in 0..12 {
        let first = usize::try_from(below(4))?;
        std::thread::sleep(Duration::from_millis(below(150)));
        rig.lab.cut(cables[first].0, cables[first].1)?;
        std::thread::sleep(Duration::from_millis(below(150)));
        // The cable before or behind it: for a moment two hosts of the ring have no way to each other, or one host is alone.
        let second = (first + 1 + 2 * usize::try_from(below(2))?) % 4;
        let both = below(3) == 0;
        if both {
            rig.lab.cut(cables[second].0, cables[second].1)?;
            std::thread::sleep(Duration::from_millis(below(300)));
            rig.lab.mend(cables[second].0, cables[second].1)?;
        }
        rig.lab.mend(cables[first].0, cables[first].1)?;
    }
    std::fs::write(&stop, "")?;
    let ended = client.wait(WORK)?;
    let text = String::from_utf8_lossy(&client.output()).into_owned();
    ensure!(
        ended.success() && text.contains("all ") && !text.contains("but"),
        "seed {seed}: {}",
        client.tail()
    );
    ensure!(count(&rig, "h1", "moves")? >= 6, "seed {seed}: hardly anything moved");
    // A connection that is just being made when its cable is cut may be given up, and made by TCP.
    ["h1", "h2", "h3", "h4"].into_iter().try_for_each(|host| {
        ensure!(count(&rig, host, "violations")? == 0, "{}", rig.story(host));
        Ok(())
    })
}

/// A cable that comes and goes is soon not used any more, and costs streams a few moves.
#[test]
fn a_flapping_cable_costs_a_few_moves() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h2", &path, port)?;
    let mut command = rig.command("h1", &path)?;
    command.args(["-c", &rig.address("h2")?.to_string(), "-p", &port.to_string(), "-J", "-t", "4"]);
    let client = Program::start(&mut command)?;
    rig.lab.wait_until("h1", PATIENCE, |status| hops(status) == [1, 1])?;
    let (end, mut flaps) = (Instant::now() + Duration::from_secs(2), 0);
    while Instant::now() < end {
        rig.lab.flap("h1", "h2")?;
        flaps += 1;
    }
    let moves = count(&rig, "h1", "moves")?;
    ensure!(flaps > 20, "only {flaps} flaps");
    ensure!((2..=20).contains(&moves), "{moves} moves by {flaps} flaps");
    let report: Value = serde_json::from_str(&client.finish(WORK)?.text())?;
    ensure!(report["error"].is_null(), "{}", report["error"]);
    nothing_broke(&rig)
}

/// Two cables are cut: what is cut off learns of it within the time that the configuration says, the rest goes on.
#[test]
fn what_is_cut_off_is_told_in_time() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let words = ["server", "::", &port.to_string()];
    let mut server = Script::Sleepers.server(&rig, "h2", &python, &words, port)?;
    let mut ask = Script::Sleepers.command(&rig, "h1", &python)?;
    let mut client =
        Program::start(ask.args(["client", &rig.address("h2")?.to_string(), &port.to_string()]))?;
    client.says("connected")?;
    server.says("asleep")?;
    rig.lab.cut("h2", "h3")?;
    rig.lab.cut("h1", "h2")?;
    let start = Instant::now();
    wait_for("all learn", PATIENCE, || {
        let text = String::from_utf8_lossy(&server.output()).into_owned();
        if text.matches("ended ECONNRESET\n").count() == 5 { Ok(()) } else { Err(text) }
    })?;
    ensure!(start.elapsed() > Duration::from_secs(2), "given up before its time");
    ensure!(server.wait(WORK)?.success(), "{}", server.tail());
    rig.lab
        .wait_until("h1", PATIENCE, |status| status["hosts"].as_array().is_some_and(|it| it.len() == 2))?;
    let mut ping = rig.plain("h1", "ping")?;
    let answer = Program::start(ping.args(["-c", "1", "-W", "5", &rig.address("h3")?.to_string()]))?;
    ensure!(answer.finish(PATIENCE)?.text().contains("1 received"), "the rest does not go on");
    Ok(())
}
