//! Large sends over a cable whose memory the far program fetches (Read Zcopy, chosen by hand), and what happens to them when
//! a program dies or the cable is cut in the middle. On a posted cable, where neither program can map the other's memory, the same sends
//! go by the ring (Bcopy), whatever was chosen.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, package, wait_for};
use crosslane_lab::{Options, Topology};
use crosslane_status::{Circuit, Direction};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the programs here do between two things that happen to them.
const CALM: Duration = Duration::from_millis(400);
/// Bytes that show that something is fetched, and what shows it on a posted cable, each store of which costs microseconds.
const MUCH: u64 = 50_000_000;
const MUCH_POSTED: u64 = 5_000_000;

/// What one end says when it is over.
#[derive(Debug)]
struct Said {
    bytes: u64,
    checksum: String,
    /// Bytes by Read Zcopy; `None` if it could not be told any more.
    fetched: Option<u64>,
    name: String,
}

/// One connection from h1 to h2, that sends until it is told to stop.
struct Flow {
    server: Program,
    client: Program,
    stop: PathBuf,
}

/// So many hosts, with a rule if there is one.
fn rig(hosts: u8, topology: Topology, rule: Option<&str>) -> Result<Option<Rig>> {
    let rules = rule.map(str::to_owned).into_iter().collect();
    Rig::up(Options { hosts, topology, rules, ..Options::scratch("e2e") })
}

impl Flow {
    fn start(rig: &Rig, python: &Path, how: &str) -> Result<Self> {
        let port = rig.port();
        let mut server =
            Script::Announced.server(rig, "h2", python, &["server", "::", &port.to_string()], port)?;
        let stop = rig.file(&format!("stop-{port}"));
        let mut command = Script::Announced.command(rig, "h1", python)?;
        let to = rig.address("h2")?.to_string();
        let mut client = Program::start(command.args(["client", &to, &port.to_string(), how]).arg(&stop))?;
        client.says("flowing").with_context(|| ["h1", "h2"].map(|host| rig.story(host)).concat())?;
        server.says("flowing")?;
        Ok(Self { server, client, stop })
    }

    /// Both ends come to their end by themselves; every byte came.
    fn ends_well(&mut self) -> Result<[Said; 2]> {
        std::fs::write(&self.stop, "")?;
        let ends = [said(&mut self.client, "sent ")?, said(&mut self.server, "came ")?];
        let [sent, came] = &ends;
        ensure!(sent.name == "eof" && came.name == "eof", "{ends:?}");
        ensure!((sent.bytes, &sent.checksum) == (came.bytes, &came.checksum), "{ends:?}");
        ensure!(sent.fetched == came.fetched, "{ends:?}");
        Ok(ends)
    }
}

/// What a program says of its connection once that is over; no byte of it was wrong.
fn said(program: &mut Program, mark: &str) -> Result<Said> {
    program.says(mark)?;
    let text = || String::from_utf8_lossy(&program.output()).into_owned();
    let line = || text().lines().find_map(|line| line.strip_prefix(mark).map(str::to_owned));
    // The rest of the line may come a little later.
    let words: Vec<String> = wait_for("it says all", PATIENCE, || {
        let words: Vec<String> = line().unwrap_or_default().split(' ').map(str::to_owned).collect();
        if words.len() == 4 && text().ends_with('\n') { Ok(words) } else { Err(text()) }
    })?;
    ensure!(!text().contains("wrong"), "{}", text());
    Ok(Said {
        bytes: words[0].parse()?,
        checksum: words[1].clone(),
        fetched: words[2].parse().ok(),
        name: words[3].clone(),
    })
}

/// A far end that is gone is told of as by TCP.
fn is_loss(said: &Said) -> Result<()> {
    ensure!(["eof", "ECONNRESET", "EPIPE", "EHOSTUNREACH"].contains(&said.name.as_str()), "{said:?}");
    Ok(())
}

/// Bytes that the streams of a host have sent (or received, by `way`) by Read Zcopy, or by Bcopy if that is all that the cable can, as its
/// daemon has it. On a posted cable none go by Read Zcopy.
fn fetched(rig: &Rig, host: &str, way: impl Fn(&Circuit) -> Direction) -> Result<u64> {
    let (status, is_posted) = (rig.lab.status(host)?, rig.is_posted()?);
    let by = |mode: fn(Direction) -> u64| status.circuits.iter().map(|circuit| mode(way(circuit))).sum();
    let fetched: u64 = by(|moved| moved.read_zcopy);
    ensure!(!is_posted || fetched == 0, "a posted cable lends memory: {status}");
    Ok(if is_posted { by(|moved| moved.bcopy) } else { fetched })
}

/// Waits until much more is fetched.
fn flows(rig: &Rig) -> Result<()> {
    let (before, much) =
        (fetched(rig, "h1", |it| it.sent)?, if rig.is_posted()? { MUCH_POSTED } else { MUCH });
    wait_for("memory is fetched", PATIENCE, || match fetched(rig, "h1", |it| it.sent) {
        Ok(now) if now > before + much => Ok(()),
        seen => Err(format!("{seen:?}, was {before}; {}", rig.story("h1"))),
    })
}

/// Waits until the stream of h1 goes over so many cables.
fn goes_over(rig: &Rig, cables: u8) -> Result<()> {
    rig.lab.wait_until("h1", PATIENCE, |status| {
        let hops: Vec<u8> = status.open_circuits().map(|it| it.hops).collect();
        !hops.is_empty() && hops.iter().all(|hops| *hops == cables)
    })?;
    Ok(())
}

#[test]
fn mode_forced_by_hand_carries_over_a_cable() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let rules =
        [None, Some("transfer read-zcopy client python* *:*"), Some("transfer bcopy client python* *:*")];
    for rule in rules {
        let Some(rig) = rig(2, Topology::Pair, rule)? else { return Ok(()) };
        let measure = rig.measure(&["h1", "h2"])?;
        let mut flow = Flow::start(&rig, &python, if rule.is_none() { "asked" } else { "told" })?;
        let by_ring = rule.is_some_and(|rule| rule.contains("bcopy"));
        if !by_ring {
            flows(&rig)?;
            ensure!(fetched(&rig, "h2", |it| it.received)? > MUCH_POSTED, "{}", rig.story("h2"));
        }
        let by_ring = by_ring || rig.is_posted()?;
        let [sent, _] = flow.ends_well()?;
        let share = sent.fetched.context("its counters")?;
        ensure!(if by_ring { share == 0 } else { share > sent.bytes / 2 }, "{rule:?}: {sent:?}");
        drop(flow);
        measure.carried(sent.bytes, 1)?;
        measure.gave_back()?;
    }
    Ok(())
}

/// Three times an end is killed, which `kill` does, and the other one, which it returns the word of, learns of it; a stream
/// beside them goes on.
fn one_is_killed(kill: impl Fn(&mut Flow) -> Result<Said>) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = rig(2, Topology::Pair, None)? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let mut other = Flow::start(&rig, &python, "asked")?;
    for _ in 0..3 {
        is_loss(&kill(&mut Flow::start(&rig, &python, "asked")?)?)?;
        flows(&rig).context("the other stream")?;
    }
    other.ends_well()?;
    drop(other);
    measure.gave_back()
}

#[test]
fn receiver_is_killed_while_it_fetches() -> Result<()> {
    one_is_killed(|flow| {
        flow.server.kill()?;
        let sent = said(&mut flow.client, "sent ")?;
        ensure!(sent.name != "eof", "{sent:?}");
        Ok(sent)
    })
}

#[test]
fn sender_is_killed_while_its_memory_is_fetched() -> Result<()> {
    one_is_killed(|flow| {
        flow.client.kill()?;
        // What came before is right, byte by byte, and nothing came after.
        said(&mut flow.server, "came ")
    })
}

#[test]
fn cable_cut_during_a_fetch_moves_the_stream() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = rig(3, Topology::Ring, None)? else { return Ok(()) };
    let mut flow = Flow::start(&rig, &python, "asked")?;
    for _ in 0..4 {
        flows(&rig)?;
        rig.lab.cut("h1", "h2")?;
        goes_over(&rig, 2)?;
        std::thread::sleep(CALM);
        rig.lab.mend("h1", "h2")?;
        goes_over(&rig, 1)?;
    }
    flows(&rig)?;
    let [sent, _] = flow.ends_well().with_context(|| ["h1", "h2"].map(|host| rig.story(host)).concat())?;
    // Over two cables all went by the ring.
    ensure!(sent.fetched.is_some_and(|fetched| fetched < sent.bytes), "{sent:?}");
    for host in ["h1", "h2", "h3"] {
        let now = rig.account(host)?;
        ensure!((now.aborted, now.violations) == (0, 0), "{}", rig.story(host));
    }
    Ok(())
}

#[test]
fn cable_cut_during_a_fetch_without_another_way() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = rig(2, Topology::Pair, None)? else { return Ok(()) };
    let mut flow = Flow::start(&rig, &python, "asked")?;
    flows(&rig)?;
    rig.lab.cut("h1", "h2")?;
    let ends = [said(&mut flow.client, "sent ")?, said(&mut flow.server, "came ")?];
    for end in &ends {
        ensure!(end.name != "eof", "nobody sent an end: {ends:?}");
        is_loss(end)?;
    }
    // The same programs' hosts go on when the cable is there again.
    rig.lab.mend("h1", "h2")?;
    rig.lab.wait_links(WORK)?;
    Flow::start(&rig, &python, "asked")?.ends_well()?;
    Ok(())
}
