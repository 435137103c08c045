//! The command `crosslane` with daemons that run.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::{Program, run, story};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, iperf3, package, wait_for};
use crosslane_lab::{Options, Topology};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn metrics_are_printed() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let text = Program::start(&mut rig.tool("h1", &["metrics"])?)?.finish(PATIENCE)?.text();
    ensure!(text.contains("# TYPE crosslane_hosts gauge\ncrosslane_hosts 1\n"), "{text}");
    ensure!(text.contains("crosslane_port_up{port=\"right\"} 1\n"), "{text}");
    Ok(())
}

/// A host that nobody knows is told at once, and not by probes without an answer.
#[test]
fn ping_knows_who_is_in_reach() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    Program::start(&mut rig.tool("h1", &["ping", "h2", "-c", "3", "-i", "1"])?)?.finish(PATIENCE)?;
    let start = Instant::now();
    let mut program = Program::start(&mut rig.tool("h1", &["ping", "h9", "-c", "60", "-i", "1000"])?)?;
    let code = program.wait(PATIENCE)?;
    ensure!(code.code() == Some(1), "{}", story(code));
    ensure!(program.errors().contains("no way to host 9: in reach are h1, h2"), "{}", program.errors());
    ensure!(start.elapsed() < Duration::from_secs(50), "it tried all probes");
    Ok(())
}

/// `explain` shows by which rule a stream's mode was chosen, and what the program moved by it.
#[test]
fn explain_tells_how_a_stream_moves_its_data() -> Result<()> {
    let Some(program) = package::need("iperf3") else { return Ok(()) };
    let rules = ["transfer bcopy client iperf3 *:*", "offload on server iperf3 *:*"].map(str::to_owned);
    let options =
        Options { hosts: 2, topology: Topology::Pair, rules: rules.to_vec(), ..Options::scratch("e2e") };
    let Some(rig) = Rig::up(options)? else { return Ok(()) };
    let port = rig.port();
    let server = iperf3::server(&rig, "h2", &program, port)?;
    let client = iperf3::start(&rig, "h1", &program, ("h2", port), &["-t", "60"])?;
    wait_for("it is explained", PATIENCE, || {
        let sides = [("h1", client.pid(), "sent"), ("h2", server.pid(), "received")];
        let [sends, receives] = sides.map(|(host, pid, way)| busiest(&rig, host, pid, way));
        let (sends, receives) = (sends.map_err(|e| e.to_string())?, receives.map_err(|e| e.to_string())?);
        let chosen = sends["transfer_rule"] == "transfer bcopy client iperf3 0.0.0.0/0:*"
            && sends["transfer"] == "bcopy"
            && sends["offload"] == false
            && receives["transfer_by"] == "default"
            && receives["offload_rule"] == "offload on server iperf3 0.0.0.0/0:*";
        let moved = |modes: &Value, way: &str| modes[way]["bcopy"].as_u64().unwrap_or(0) > 1 << 20;
        if chosen && moved(&sends, "sent") && moved(&receives, "received") {
            Ok(())
        } else {
            Err(format!("{sends} {receives}"))
        }
    })
}

/// What `explain` says of the modes of the stream of a process that moved most.
fn busiest(rig: &Rig, host: &str, pid: i32, way: &str) -> Result<Value> {
    let mut command = rig.tool(host, &["explain", "--json", &pid.to_string()])?;
    let said: Value = serde_json::from_str(&run(&mut command, PATIENCE)?.text())?;
    let streams = said["connections"].as_array().cloned().unwrap_or_default();
    let modes = streams.into_iter().map(|stream| stream["modes"].clone());
    Ok(modes.max_by_key(|modes| modes[way]["bcopy"].as_u64()).unwrap_or_default())
}

/// `crosslane WORDS..`, which makes labs called `PREFIX-PID-0`, ended by a signal in the middle.
fn interrupted(words: &[&str], prefix: &str, signal: Signal, whole_group: bool) -> Result<()> {
    if package::need("iperf3").is_none() {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    // A test run in the background ignores some signals, and its children with it.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP"]);
    command.arg(rig.tool("h1", &[])?.get_program()).args(words);
    let mut program = Program::start(&mut command)?;
    let name = format!("{prefix}-{}-0", program.pid());
    let client =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == "iperf3");
    wait_for("it is in the middle", PATIENCE, || {
        let clients = members(&name).iter().filter(|pid| client(pid)).count();
        if clients > 3 { Ok(()) } else { Err(format!("{clients} of iperf3; {}", program.tail())) }
    })?;
    let pid = Pid::from_raw(program.pid()).context("its id")?;
    if whole_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) }?;
    program.wait(PATIENCE)?;
    wait_for("nothing is left of its lab", PATIENCE, || {
        let labs = crosslane_lab::list(&crosslane_lab::default_base()).map_err(|error| error.to_string())?;
        let left = members(&name);
        if left.is_empty() && !labs.contains(&name) { Ok(()) } else { Err(format!("{left:?}, {labs:?}")) }
    })
}

/// Processes of the lab called `name`.
fn members(name: &str) -> Vec<i32> {
    let mark = format!("CROSSLANE_LAB={name}:");
    let is_member = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one.starts_with(mark.as_bytes())))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_member).collect()
}

/// Each way of `bench sdp` is measured, what carried the bytes is told, and nothing is lost or sent twice on the way.
#[test]
fn bench_sdp_measures_every_way() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut command = Command::new(rig.tool("h1", &[])?.get_program());
    command.args(["bench", "sdp", "--runs", "1", "--millis", "20", "--json"]);
    let printed = run(command.args(["--sizes", "64,1M", "--replies", "64"]), WORK)?;
    let report: Value = serde_json::from_str(&printed.text())?;
    let figures = report["figures"].as_array().context("figures")?;
    let figure = |group: &str, case: &str| {
        let found = figures.iter().find(|figure| figure["group"] == group && figure["case"] == case);
        found.with_context(|| format!("no figure of {group}, {case}"))
    };
    for case in ["64 B", "1 MB"] {
        for group in ["throughput", "per second of processor time", "copies of a byte"] {
            ensure!(figure(group, case)?["sample"]["median"].as_f64() > Some(0.0), "{group}, {case}");
        }
        for mode in ["bcopy", "read-zcopy", "write-zcopy"] {
            let forced = figure(&format!("forced: {mode}"), case)?;
            let told = forced["missing"].as_str().is_some_and(|why| why.contains("carried by"));
            ensure!(told || forced["sample"]["median"].as_f64() > Some(0.0), "{forced}");
        }
    }
    let failed =
        figures.iter().find(|figure| figure["group"].as_str().is_some_and(|it| it.starts_with("failed")));
    ensure!(failed.is_none(), "{failed:?}");
    ensure!(figure("forced: bcopy", "1 MB")?["sample"].is_object(), "Bcopy is possible everywhere");
    ensure!(figure("questions with an answer", "64 B")?["references"].as_array().map(Vec::len) > Some(2));
    let may_ask = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    ensure!(report["machine"]["awake"] == may_ask, "{}", report["machine"]);
    Ok(())
}

const BENCH: [&str; 6] = ["bench", "quick", "--no-pinned", "--only=iperf3", "--runs", "500"];

#[test]
fn bench_ends_with_ctrl_c_and_leaves_nothing() -> Result<()> {
    interrupted(&BENCH, "bench", Signal::INT, true)
}

#[test]
fn bench_terminated_leaves_nothing() -> Result<()> {
    interrupted(&BENCH, "bench", Signal::TERM, false)
}

#[test]
fn demo_whose_terminal_is_gone_leaves_nothing() -> Result<()> {
    interrupted(&["demo", "--runs", "500"], "demo", Signal::HUP, true)
}

#[test]
fn demo_killed_leaves_nothing() -> Result<()> {
    interrupted(&["demo", "--runs", "500"], "demo", Signal::KILL, false)
}
