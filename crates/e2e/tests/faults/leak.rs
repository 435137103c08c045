//! Nothing leaks, and idle costs nothing.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::program::run;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, echo, package, wait_for};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use std::time::Duration;

/// Time over which idle processes are watched.
const WATCH: Duration = Duration::from_secs(3);
/// Most processor time that all of them together may take meanwhile: 5 % of a core, where 1 % is the aim, since this
/// machine may be busy.
const MOST: Duration = Duration::from_millis(150);
/// Longest time that 50,000 processes take on a busy machine.
const CROWD_PATIENCE: Duration = Duration::from_secs(600);

/// Open descriptors of a host's daemon.
fn descriptors(rig: &Rig, host: &str) -> Result<usize> {
    let daemon = rig.lab.daemon(host)?.context("the daemon runs")?;
    Ok(std::fs::read_dir(format!("/proc/{}/fd", daemon.pid))?.count())
}

/// So many, or a tenth of it where each takes as long as stores and the end of a connection are under way.
fn share_of(rig: &Rig, times: u32) -> Result<u32> {
    Ok(if rig.is_posted()? { times / 10 } else { times })
}

fn loop_with(script_host: &str, times: u32) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let times = share_of(&rig, times)?;
    let address = rig.address(script_host)?.to_string();
    let measure = rig.measure(&if script_host == "h1" { vec!["h1"] } else { vec!["h1", script_host] })?;
    let before = [descriptors(&rig, "h1")?, descriptors(&rig, "h2")?];
    let port = rig.port();
    let server = echo::server(&rig, Script::Loop, script_host, &python, port)?;
    let mut client = Script::Loop.command(&rig, "h1", &python)?;
    client.args(["client", &address, &port.to_string(), &times.to_string()]);
    println!("{}", run(&mut client, WORK)?.text());
    drop(server);
    measure.carried(u64::from(times) * 20_000, u64::from(times))?;
    measure.gave_back()?;
    returned(&rig, before)
}

/// The daemons of `h1` and `h2` have no more descriptors than `before`.
fn returned(rig: &Rig, before: [usize; 2]) -> Result<()> {
    wait_for("the daemons' descriptors are closed", Duration::from_secs(10), || {
        let count = |host| descriptors(rig, host).map_err(|error| error.to_string());
        let now = [count("h1")?, count("h2")?];
        if now.iter().zip(before).all(|(now, before)| *now <= before + 1) {
            Ok(())
        } else {
            Err(format!("{now:?}, were {before:?}"))
        }
    })
}

#[test]
fn connections_a_thousand_leak_nothing() -> Result<()> {
    loop_with("h2", 1000)
}

#[test]
fn connections_a_thousand_inside_one_host_leak_nothing() -> Result<()> {
    loop_with("h1", 1000)
}

/// Client processes that come and go at a cable, unless `CROSSLANE_E2E_CROWD` says how many: more than a neighbour's share of a
/// cable's doorbells (a quarter of 65,536), so that none is left if each keeps one.
const CROWD: u32 = 20_000;
/// Descriptors that the daemons may have here. What a process costs a cable and is not given back, one of each for instance, uses
/// up its share of them (a quarter) long before the last has come.
const LIMIT: u64 = 20_000;

fn crowd() -> Result<u32> {
    match std::env::var("CROSSLANE_E2E_CROWD") {
        Ok(count) => count.parse().context("CROSSLANE_E2E_CROWD is no number of processes"),
        Err(_) => Ok(CROWD),
    }
}

#[test]
fn processes_by_the_thousand_leave_nothing() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let mut limit = getrlimit(Resource::Nofile);
    limit.maximum = Some(limit.maximum.map_or(LIMIT, |most| most.min(LIMIT)));
    limit.current = Some(limit.current.map_or(LIMIT, |now| now.min(LIMIT)));
    setrlimit(Resource::Nofile, limit)?;
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let crowd = u64::from(share_of(&rig, crowd()?)?);
    let measure = rig.measure(&["h1", "h2"])?;
    let before = [descriptors(&rig, "h1")?, descriptors(&rig, "h2")?];
    let port = rig.port();
    // Several: the kernel has not as many ports as there are clients, for one destination and a minute.
    let (first, count) = (port.to_string(), "8");
    let server = Script::Short.server(&rig, "h2", &python, &["server", "::", &first, count], port)?;
    let mut clients = Script::Crowd.command(&rig, "h1", &python)?;
    clients.args([&address, &first, count, &crowd.to_string(), "4"]);
    println!("{}", run(&mut clients, CROWD_PATIENCE)?.text());
    drop(server);
    // Each is a stream: nothing ran out on the way.
    measure.carried(2 * crowd, crowd)?;
    measure.gave_back()?;
    returned(&rig, before)
}

/// Processor time of a process so far, user and system.
fn processor_time(pid: i32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut fields = stat.rsplit_once(')').context("stat")?.1.split_whitespace().skip(11);
    let mut ticks = || -> Result<u64> { Ok(fields.next().context("stat")?.parse()?) };
    let all = ticks()? + ticks()?;
    Ok(Duration::from_millis(all * 1000 / rustix::param::clock_ticks_per_second()))
}

fn idle(server: &[&str], connections: u32) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair_with_room()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut words = server.to_vec();
    let port_word = port.to_string();
    words.push(&port_word);
    let server = Script::Idle.server(&rig, "h2", &python, &words, port)?;
    let mut command = Script::Idle.command(&rig, "h1", &python)?;
    command.args(["client", &address, &port.to_string(), &connections.to_string()]);
    let mut client = Program::start(&mut command)?;
    client.says("ready")?;
    measure.carried(u64::from(connections), u64::from(connections))?;
    let mut processes = vec![client.pid(), server.pid()];
    for host in ["h1", "h2"] {
        processes.push(rig.lab.daemon(host)?.context("the daemon runs")?.pid);
    }
    let time =
        |processes: &[i32]| processes.iter().map(|pid| processor_time(*pid)).collect::<Result<Vec<_>>>();
    let before = time(&processes)?;
    std::thread::sleep(WATCH);
    let spent: Vec<Duration> =
        time(&processes)?.iter().zip(&before).map(|(a, b)| a.saturating_sub(*b)).collect();
    println!("processor time in {WATCH:?} of client, server, daemons: {spent:?}");
    ensure!(spent.iter().sum::<Duration>() <= MOST, "idle costs {spent:?} in {WATCH:?}");
    client.signal(Signal::USR1)?;
    client.finish(WORK).context("the idle connections still work")?;
    drop(server);
    measure.gave_back()
}

#[test]
fn idle_connections_cost_nothing() -> Result<()> {
    idle(&["server", "::"], 100)
}
