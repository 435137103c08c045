//! More streams at once than a daemon has numbers for descriptors: what it keeps for them lies on shelves.
//!
//! The daemons of these tests may have [`FEW`] descriptors. With `CROSSLANE_E2E_STREAMS=20000` the first one has so many streams instead,
//! and daemons have what this machine gives them.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{package, wait_for};
use crosslane_lab::{Options, Topology};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Descriptors that daemons, and all programs here, may have.
const FEW: u64 = 1000;
/// Streams of the first test.
const STREAMS: usize = 400;
/// Longest time that all streams of a test take for one byte each way, on a busy machine.
const ALL: Duration = Duration::from_secs(300);
/// Mappings that a program has for a stream, at most: two segments and the state.
const MAPPINGS: usize = 3;
/// Mappings that a process may have more than before, whatever the number of its streams.
const MORE_MAPPINGS: usize = 64;
/// Memory that a daemon may keep when all streams are gone, beside an eighth of what they took, kB.
const KEPT_KB: usize = 8 << 10;
/// Time over which daemons of idle streams are watched.
const WATCH: Duration = Duration::from_secs(3);
/// Processes at each end.
const PROCESSES: usize = 4;

/// How many streams are asked for, if not [`STREAMS`].
fn asked() -> Result<Option<usize>> {
    std::env::var("CROSSLANE_E2E_STREAMS").ok().map(|text| Ok(text.parse()?)).transpose()
}

/// All that this process starts has few descriptors.
fn few_descriptors() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.maximum = Some(limit.maximum.map_or(FEW, |most| most.min(FEW)));
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// What a process takes of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    /// Descriptors in its own table.
    descriptors: usize,
    /// Descriptors in the tables of its shelves.
    shelved: usize,
    /// Mappings.
    mappings: usize,
    /// Resident memory, kB.
    resident_kb: usize,
}

impl Taken {
    fn by(pid: i32) -> Result<Self> {
        let root = PathBuf::from(format!("/proc/{pid}"));
        let count = |path: PathBuf| fs::read_dir(path).map_or(0, Iterator::count);
        let mut shelved = 0;
        for task in fs::read_dir(root.join("task"))? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "shelf") {
                shelved += count(task.join("fd"));
            }
        }
        let status = fs::read_to_string(root.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(Self {
            descriptors: count(root.join("fd")),
            shelved,
            mappings: fs::read_to_string(root.join("maps"))?.lines().count(),
            resident_kb: resident.trim().trim_end_matches(" kB").parse()?,
        })
    }

    fn by_daemon(rig: &Rig, host: &str) -> Result<Self> {
        Self::by(rig.lab.daemon(host)?.context("the daemon runs")?.pid)
    }
}

/// Programs with many streams from `h1` to `h2`.
struct Crowd {
    servers: Vec<Program>,
    clients: Vec<Program>,
    streams: usize,
}

impl Crowd {
    /// Starts them, and waits until each stream has carried a byte each way.
    fn start(rig: &Rig, streams: usize) -> Result<Option<Self>> {
        let Some(python) = package::python() else { return Ok(None) };
        let address = rig.address("h2")?.to_string();
        let mut crowd = Self { servers: Vec::new(), clients: Vec::new(), streams };
        for _ in 0..PROCESSES {
            let port = rig.port();
            let server =
                Script::Many.server(rig, "h2", &python, &["server", "::", &port.to_string()], port)?;
            crowd.servers.push(server);
            let mut client = Script::Many.command(rig, "h1", &python)?;
            client.args(["client", &address, &port.to_string(), &(streams / PROCESSES).to_string()]);
            crowd.clients.push(Program::start(&mut client)?);
        }
        crowd.say("ready")?;
        Ok(Some(crowd))
    }

    fn say(&mut self, words: &str) -> Result<()> {
        let until = Instant::now() + ALL;
        for client in &mut self.clients {
            while let Err(error) = client.says(words) {
                ensure!(Instant::now() < until && !client.is_over(), "{error:#}");
            }
        }
        Ok(())
    }

    /// Has them go on, up to what they say then.
    fn go_on(&mut self, words: &str) -> Result<()> {
        self.clients.iter_mut().try_for_each(|client| client.signal(Signal::USR1))?;
        self.say(words)
    }

    fn end(mut self) -> Result<()> {
        self.clients.iter_mut().try_for_each(|client| client.signal(Signal::USR1))?;
        self.clients.into_iter().try_for_each(|client| client.finish(ALL).map(drop))?;
        drop(self.servers);
        Ok(())
    }
}

/// Processor time that a daemon has taken.
fn processor_time(pid: i32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("stat")?.1.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Streams that say nothing cost their daemons nothing.
fn idle(rig: &Rig) -> Result<()> {
    for host in ["h1", "h2"] {
        let pid = rig.lab.daemon(host)?.context("the daemon runs")?.pid;
        let before = processor_time(pid)?;
        std::thread::sleep(WATCH);
        let spent = processor_time(pid)?.saturating_sub(before);
        println!("{host}: {spent:?} of processor time in {WATCH:?}");
        ensure!(spent <= WATCH / 20, "idle streams cost {spent:?} in {WATCH:?}");
    }
    Ok(())
}

/// Waits until a host's daemon takes no more than before.
fn returned(rig: &Rig, host: &str, before: &Taken, most: &Taken) -> Result<()> {
    wait_for("what was kept for streams is given back", Duration::from_secs(30), || {
        let now = Taken::by_daemon(rig, host).map_err(|error| error.to_string())?;
        // A shelf keeps its own few.
        let kept_kb = before.resident_kb + (most.resident_kb - before.resident_kb) / 8 + KEPT_KB;
        let is_back = now.descriptors <= before.descriptors + 10
            && now.shelved <= 4 * 8
            && now.mappings <= before.mappings + MORE_MAPPINGS
            && now.resident_kb <= kept_kb;
        if is_back { Ok(()) } else { Err(format!("{now:?}, was {before:?}")) }
    })
}

#[test]
fn streams_beyond_the_daemons_descriptors_are_streams_all_the_same() -> Result<()> {
    let asked = asked()?;
    if asked.is_none() {
        few_descriptors()?;
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let streams = asked.unwrap_or(STREAMS);
    let measure = rig.measure(&["h1", "h2"])?;
    let before = [Taken::by_daemon(&rig, "h1")?, Taken::by_daemon(&rig, "h2")?];
    let begin = Instant::now();
    let Some(mut crowd) = Crowd::start(&rig, streams)? else { return Ok(()) };
    println!("{streams} streams after {:?}", begin.elapsed());
    measure.carried(2 * streams as u64, streams as u64)?;
    let most = [Taken::by_daemon(&rig, "h1")?, Taken::by_daemon(&rig, "h2")?];
    println!("daemons: {before:?}, {most:?}");
    for (before, most) in before.iter().zip(&most) {
        ensure!(most.mappings <= before.mappings + MORE_MAPPINGS, "{most:?}");
        let kept = most.descriptors + most.shelved;
        ensure!((3 * streams..3 * streams + 100).contains(&kept), "{kept} descriptors");
        ensure!(asked.is_some() || most.descriptors < usize::try_from(FEW / 2)?, "{most:?}");
    }
    idle(&rig)?;
    for program in crowd.servers.iter().chain(&crowd.clients) {
        let taken = Taken::by(program.pid())?;
        println!("program: {taken:?}");
        ensure!(taken.mappings <= MAPPINGS * (crowd.streams / PROCESSES) + 300, "{taken:?}");
    }
    crowd.go_on("heirs")?;
    crowd.go_on("last")?;
    crowd.end()?;
    measure.gave_back()?;
    ["h1", "h2"]
        .iter()
        .zip(before.iter().zip(&most))
        .try_for_each(|(host, (before, most))| returned(&rig, host, before, most))
}

#[test]
fn streams_on_shelves_go_on_over_another_way() -> Result<()> {
    /// Each takes a pump of the host between.
    const STREAMS: usize = 160;
    few_descriptors()?;
    let options = Options { hosts: 3, topology: Topology::Ring, pump: true, ..Options::scratch("e2e") };
    let Some(mut rig) = Rig::up(options)? else { return Ok(()) };
    let before = Taken::by_daemon(&rig, "h1")?;
    let Some(mut crowd) = Crowd::start(&rig, STREAMS)? else { return Ok(()) };
    let most = Taken::by_daemon(&rig, "h1")?;
    ensure!(most.shelved > STREAMS, "{most:?}");
    rig.lab.cut("h1", "h2")?;
    all_over(&rig, 2, STREAMS)?;
    crowd.go_on("heirs")?;
    crowd.go_on("last")?;
    let aborted = rig.account("h1")?.aborted + rig.account("h2")?.aborted;
    ensure!(aborted == 0, "{}", rig.story("h1"));
    crowd.end()?;
    returned(&rig, "h1", &before, &most)
}

/// Waits until `h1` has so many open streams, all of them over so many cables.
fn all_over(rig: &Rig, cables: u8, streams: usize) -> Result<()> {
    rig.lab.wait_until("h1", Duration::from_secs(60), |status| {
        status.open_circuits().filter(|it| it.hops == cables).count() == streams
    })?;
    Ok(())
}
