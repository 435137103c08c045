//! Cables of the ring are cut and mended under programs.

use super::{
    BOTH, Between, CALM, HOSTS, all_over, count, nothing_broke, nothing_violated, options, ring, ring_of,
};
use anyhow::{Context, Result, ensure};
use crosslane_e2e::openssh::Sshd;
use crosslane_e2e::postgres::Postgres;
use crosslane_e2e::program::{Printed, Program, run};
use crosslane_e2e::python::Script;
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, echo, iperf3, package, payload, seed, wait_for};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Cuts the cable between h1 and h2 under so many streams at least, mends it, and cuts and mends it again; in between
/// waits until all streams have moved.
fn cut_twice(rig: &mut Rig, streams: usize) -> Result<()> {
    for _ in 0..2 {
        std::thread::sleep(CALM);
        rig.lab.cut("h1", "h2")?;
        all_over(rig, "h1", 3, streams)?;
        std::thread::sleep(CALM);
        rig.lab.mend("h1", "h2")?;
        all_over(rig, "h1", 1, streams)?;
    }
    Ok(())
}

/// As [`cut_twice`], under a program of h1 that speaks with h2 and then comes to its end: how that was.
fn cut_under(rig: &mut Rig, program: Program) -> Result<Printed> {
    let before = count(rig, "h1", |it| it.moves)?;
    cut_twice(rig, 0)?;
    ensure!(count(rig, "h1", |it| it.moves)? >= before + 4, "nothing moved");
    program.finish(WORK)
}

/// After a stream from h1 to h2 went both ways round: each byte is counted by the ports that it went over, and no other.
fn bytes_are_counted_where_they_went(rig: &Rig) -> Result<()> {
    // What daemons send themselves is less than this, bytes; streams over posted cables send less as well.
    let own: u64 = if rig.is_posted()? { 5_000_000 } else { 50_000_000 };
    for host in ["h1", "h3", "h4"] {
        let status = rig.lab.status(host)?;
        let sent: Vec<u64> = status.ports.iter().map(|port| port.tx_bytes).collect();
        let counters = rig.lab.status(host)?.counters;
        let total = if host == "h1" { counters.stream_tx_bytes } else { counters.transit_bytes };
        let all = sent.iter().sum::<u64>();
        ensure!(total > own && (total..total + own).contains(&all), "{host}: {total} bytes, {sent:?}");
        let both = sent.iter().all(|bytes| *bytes > own);
        ensure!(host != "h1" || both, "{host}: {total} bytes, {sent:?}");
    }
    Ok(())
}

#[test]
fn cut_cable_unnoticed_by_iperf3() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let (one, back, many) =
        (&["-t", "4"][..], &["-t", "4", "-R"][..], &["-t", "4", "--bidir", "-P", "3"][..]);
    for (more, between) in [
        (one, Between::Shares),
        (one, Between::Pumps),
        (back, Between::Shares),
        (many, Between::Shares),
        (many, Between::Pumps),
    ] {
        let Some(mut rig) = ring_of(between)? else { return Ok(()) };
        let port = rig.port();
        let mut server = iperf3::server(&rig, "h2", &path, port)?;
        let client = iperf3::start(&rig, "h1", &path, ("h2", port), more)?;
        let printed = cut_under(&mut rig, client)?;
        let story = || format!("{more:?} {between:?}\n{}", HOSTS.map(|host| rig.story(host)).concat());
        let report = iperf3::report(&printed).with_context(story)?;
        ensure!(report["end"]["sum_received"]["bytes"].as_u64() > Some(0), "nothing arrived");
        server.end();
        nothing_broke(&rig)?;
        if more.len() == 2 {
            bytes_are_counted_where_they_went(&rig)?;
        }
        wait_for("nothing is left", PATIENCE, || {
            let left = HOSTS.map(|host| rig.account(host).map_or(1, |it| it.circuits));
            if left == [0; 4] { Ok(()) } else { Err(format!("{left:?}")) }
        })?;
    }
    Ok(())
}

#[test]
fn cut_cable_unnoticed_by_redis_benchmark() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(mut rig) = Rig::up_with_room(options(Between::Shares))? else { return Ok(()) };
    let port = rig.port();
    let _server = redis.server(&rig, "h2", port)?;
    let mut command = rig.command("h1", package::need("redis-benchmark").context("it is there")?)?;
    command.args(["-h", &rig.address("h2")?.to_string(), "-p", &port.to_string(), "-t", "set", "-l", "-q"]);
    let mut client = Program::start(command.args(["-c", "50", "-d", "300"]))?;
    cut_twice(&mut rig, 50)?;
    ensure!(!client.is_over(), "{}", client.tail());
    let words = client.tail();
    ensure!(!words.contains("Error") && !words.contains("reset"), "{words}");
    client.end();
    nothing_broke(&rig)
}

#[test]
fn cut_cable_unnoticed_by_scp_of_a_gigabyte() -> Result<()> {
    /// So that it takes longer than the cuts: 7 s.
    const KILOBITS: u32 = 1_200_000;
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let Some(sshd) = Sshd::start(&rig, "h2", port)? else { return Ok(()) };
    let (file, copy) = (rig.file("sent"), rig.file("received"));
    payload::file(&file, 3, 1_000_000_000)?;
    let client = Program::start(&mut sshd.sending(&rig, "h1", [&file, &copy], KILOBITS)?)?;
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
fn cut_cable_unnoticed_by_pgbench() -> Result<()> {
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

/// Cables are cut and mended at random moments, sometimes two at once; every byte comes back. Connections may be refused
/// while a host is alone.
#[test]
fn bytes_survive_cuts_at_random_moments() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let (to, port) = (rig.address("h3")?.to_string(), rig.port());
    let server = echo::server(&rig, Script::Echo, "h3", &python, port)?;
    let stop = rig.file("stop");
    let seed = seed();
    let mut client = Script::Checked.command(&rig, "h1", &python)?;
    let client = client.args([&to, &port.to_string()]).arg(&stop).arg(seed.to_string());
    let mut client = Program::start(client)?;
    client.says("begun")?;
    let mut dice = seed | 1;
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
        "seed {seed}: {}{}{}{}",
        client.tail(),
        server.tail(),
        rig.story("h1"),
        rig.story("h3")
    );
    ensure!(count(&rig, "h1", |it| it.moves)? >= 6, "seed {seed}: hardly anything moved");
    // A connection that is just being made when its cable is cut may be given up, and made by TCP.
    nothing_violated(&rig)
}

/// A cable that comes and goes is soon not used any more, and costs streams a few moves.
#[test]
fn flapping_cable_costs_a_few_moves() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(mut rig) = ring()? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h2", &path, port)?;
    let client = iperf3::start(&rig, "h1", &path, ("h2", port), &["-t", "4"])?;
    all_over(&rig, "h1", 1, 2)?;
    let (end, mut flaps) = (Instant::now() + Duration::from_secs(2), 0);
    while Instant::now() < end {
        rig.lab.flap("h1", "h2")?;
        flaps += 1;
    }
    let moves = count(&rig, "h1", |it| it.moves)?;
    ensure!(flaps > 20, "only {flaps} flaps");
    ensure!((2..=20).contains(&moves), "{moves} moves by {flaps} flaps");
    iperf3::report(&client.finish(WORK)?)?;
    nothing_broke(&rig)
}

/// Two cables are cut: what is cut off learns of it within the time that the configuration says, the rest goes on.
#[test]
fn resume_timeout_is_reported_in_time() -> Result<()> {
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
    for program in [&server, &client] {
        wait_for("all learn", PATIENCE, || {
            let text = String::from_utf8_lossy(&program.output()).into_owned();
            if text.matches("ended ECONNRESET\n").count() == 5 { Ok(()) } else { Err(text) }
        })?;
    }
    ensure!(start.elapsed() > Duration::from_secs(2), "given up before its time");
    for program in [&mut server, &mut client] {
        ensure!(program.wait(WORK)?.success(), "{}", program.tail());
    }
    rig.sees("h1", 2)?;
    let mut command = Script::Net.command(&rig, "h1", &python)?;
    let text = run(command.args(["absent", &rig.address("h2")?.to_string()]), WORK)?.text();
    ensure!(text.trim() == "No route to host", "{text}");
    rig.ping("h1", "h3")
}

/// What has arrived by a circuit that the program has not looked at is read before the stream is an error.
#[test]
fn bytes_that_arrived_are_read_behind_the_last_circuit() -> Result<()> {
    BOTH.into_iter().try_for_each(with_late_reader)
}

fn with_late_reader(kind: Between) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = ring_of(kind)? else { return Ok(()) };
    let (to, port) = (rig.address("h2")?.to_string(), rig.port().to_string());
    let mut server = Script::Reader.server(&rig, "h2", &python, &["server", &to, &port], port.parse()?)?;
    let mut client = Script::Reader.command(&rig, "h1", &python)?;
    let mut client = Program::start(client.args(["client", &to, &port]))?;
    client.says("sent one")?;
    server.says("accepted")?;
    rig.lab.cut("h1", "h2")?;
    all_over(&rig, "h1", 3, 1)?;
    client.signal(Signal::USR1)?;
    client.says("sent two")?;
    // Hosts between may have to carry it.
    std::thread::sleep(CALM);
    rig.lab.cut("h2", "h3")?;
    client.says("ended ECONNRESET")?;
    rig.lab.wait_until("h2", PATIENCE, |status| status.circuits.iter().all(|it| it.dead.is_some()))?;
    server.signal(Signal::USR1)?;
    server.says("got onetwo ended ECONNRESET")?;
    nothing_violated(&rig)
}

/// Behind a move the kernel's FIN says nothing by itself: the daemon tells the far end, and wakes whoever sleeps there.
#[test]
fn killed_program_with_moved_streams_wakes_all_sleepers() -> Result<()> {
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
    rig.lab.cut("h1", "h2")?;
    all_over(&rig, "h1", 3, 5)?;
    client.signal(Signal::KILL)?;
    wait_for("all hear of it", PATIENCE, || {
        let text = String::from_utf8_lossy(&server.output()).into_owned();
        if text.matches("ended eof\n").count() == 5 { Ok(()) } else { Err(text) }
    })?;
    ensure!(server.wait(WORK)?.success(), "{}", server.tail());
    nothing_broke(&rig)
}
