//! Something is missing, refused or wrong: programs use TCP, people are told once and clearly.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::{Program, run, story, text_of};
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, echo, package, wait_for};
use crosslane_lab::{Options, Resilience, Topology, status};
use crosslane_status::Link;
use crosslane_wire::HostId;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of ours, beside the keeper.
fn ours(rig: &Rig, name: &str) -> Result<PathBuf> {
    let path = rig.lab.state().program.with_file_name(name);
    ensure!(path.is_file(), "{} was not built", path.display());
    Ok(path)
}

/// Lines of ours among what a program printed.
fn warnings(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.starts_with("crosslane: ")).collect()
}

#[test]
fn daemon_absent_programs_use_tcp() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    rig.lab.kill_daemon("h1", rustix::process::Signal::TERM)?;
    let crosslane = ours(&rig, "crosslane")?;
    let accelerated = |rig: &Rig, script: Script, words: &[&str]| -> Result<Command> {
        let plain = script.plain(rig, "h1", &python)?;
        let mut command = rig.plain("h1", &crosslane)?;
        command.args(["run", "--"]).arg(&python);
        // Behind the five words of the lab's own and the interpreter's name.
        command.args(plain.get_args().skip(6));
        command.args(words);
        Ok(command)
    };
    let port = rig.port();
    let words = ["server", "::", &port.to_string()];
    let mut server = Program::start(&mut accelerated(&rig, Script::Echo, &words)?)?;
    server.listens(port)?;
    let words = ["client", "127.0.0.1", &port.to_string(), "1000000", "3"];
    let client = run(&mut accelerated(&rig, Script::Echo, &words)?, WORK)?;
    let lines = warnings(&client.errors);
    ensure!(lines.len() == 1, "not one warning: {lines:?}");
    ensure!(lines[0].contains("no daemon answers") && lines[0].contains("using TCP"), "{}", lines[0]);
    ensure!(warnings(&server.errors()).len() == 1, "not one warning of the server: {}", server.errors());
    let mut command = rig.plain("h1", &crosslane)?;
    command.args(["run", "--", "sh", "-c", "exit 42"]);
    let code = Program::start(&mut command)?.wait(WORK)?;
    ensure!(code.code() == Some(42), "{}", story(code));
    Ok(())
}

#[test]
fn window_memory_absent_connections_use_tcp() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    // Streams that do not move have long rings only.
    let options = Options {
        hosts: 2,
        topology: Topology::Pair,
        window: "32M".to_owned(),
        resilience: Some(Resilience::Reset),
        ..Options::scratch("e2e")
    };
    let Some(rig) = Rig::up(options)? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = echo::server(&rig, Script::Idle, "h2", &python, port)?;
    let mut command = Script::Idle.command(&rig, "h1", &python)?;
    let mut client = Program::start(command.args(["client", &address, &port.to_string(), "12"]))?;
    client.says("ready")?;
    let status = rig.lab.status("h1")?;
    let counters = &status.counters;
    let streams = counters.streams_open;
    // The window is full, or the neighbour's share of it is.
    let plain: u64 = ["NoMemory", "Quota"].iter().filter_map(|why| counters.plain.get(*why)).sum();
    ensure!(
        (1..12).contains(&streams) && streams + plain == 12,
        "{streams} streams, not all others by TCP: {counters:?}"
    );
    let log = rig.log("h1")? + &rig.log("h2")?;
    let said = log.matches("no window memory left").count() + log.matches("quota is used up").count();
    ensure!(said == 1, "said {said} times: {log}");
    client.signal(rustix::process::Signal::USR1)?;
    client.finish(WORK)?;
    // With room again there are streams again.
    rig.lab.wait_until("h1", PATIENCE, |status| status.counters.streams_open == 0)?;
    let opened = rig.lab.status("h1")?.counters.streams_opened;
    let mut command = Script::Idle.command(&rig, "h1", &python)?;
    let mut client = Program::start(command.args(["client", &address, &port.to_string(), "1"]))?;
    client.says("ready")?;
    ensure!(rig.lab.status("h1")?.counters.streams_opened == opened + 1, "{}", rig.story("h1"));
    client.signal(rustix::process::Signal::USR1)?;
    client.finish(WORK)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn control_socket_without_permission() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        package::skip("only root can be somebody else");
        return Ok(());
    }
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    fs::set_permissions(rig.lab.control("h1")?, fs::Permissions::from_mode(0o600))?;
    let port = rig.port();
    let address = rig.address("h2")?.to_string();
    let server = echo::server(&rig, Script::Echo, "h2", &python, port)?;
    let script = Script::Echo.plain(&rig, "h1", &python)?;
    let mut command = rig.command_as("nobody", "h1", &python)?;
    command.current_dir("/").args(script.get_args().skip(6));
    command.args(["client", &address, &port.to_string(), "100000", "2"]);
    let client = run(&mut command, WORK)?;
    let lines = warnings(&client.errors);
    ensure!(lines.len() == 1 && lines[0].to_lowercase().contains("permission"), "{lines:?}");
    drop(server);
    Ok(())
}

/// The daemon with a configuration, in no namespace of its own: without an interface it needs no rights.
fn daemon(rig: &Rig, name: &str, text: &str) -> Result<(Program, PathBuf)> {
    let (config, control) = (rig.file(&format!("{name}.toml")), rig.file(&format!("{name}.sock")));
    fs::write(&config, format!("control = \"{}\"\ninterface = \"\"\n{text}", control.display()))?;
    let mut command = Command::new(ours(rig, "crosslaned")?);
    Ok((Program::start(command.arg("--config").arg(&config))?, control))
}

fn port(cable: &Path, side: &str) -> String {
    format!(
        "[[port]]\nname = \"p{side}\"\nkind = \"soft\"\ncable = \"{}\"\nside = \"{side}\"\n",
        cable.display()
    )
}

#[test]
fn configuration_error_is_named() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let cases = [
        ("host = 0\n", "host"),
        ("host = 1\ncolour = \"red\"\n", "colour"),
        ("host = 1\nring_max = \"3M\"\n", "ring_max"),
        ("host = 1\nrules = [\"use it\"]\n", "rule"),
        ("host = [", "TOML"),
    ];
    for (number, (text, word)) in cases.iter().enumerate() {
        let (mut program, _) = daemon(&rig, &format!("bad{number}"), text)?;
        let code = program.wait(PATIENCE)?;
        ensure!(code.code() == Some(2), "{text}: {}", story(code));
        let said = program.errors();
        ensure!(said.to_lowercase().contains(&word.to_lowercase()), "{text}: {said}");
        ensure!(!said.contains("panicked"), "{said}");
    }
    let mut program =
        Program::start(Command::new(ours(&rig, "crosslaned")?).args(["--config", "/no/such/file"]))?;
    ensure!(
        program.wait(PATIENCE)?.code() == Some(2) && program.errors().contains("/no/such/file"),
        "{}",
        program.errors()
    );
    Ok(())
}

#[test]
fn daemon_second_of_one_socket_is_refused() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let (mut first, control) = daemon(&rig, "one", "host = 1\n")?;
    first.says("ready")?;
    let (mut second, _) = daemon(&rig, "one", "host = 2\n")?;
    ensure!(second.wait(PATIENCE)?.code() == Some(3), "{}", second.errors());
    ensure!(second.errors().contains(&control.display().to_string()), "{}", second.errors());
    ensure!(status(&control)?.host == HostId(1), "the first one still answers");
    Ok(())
}

#[test]
fn duplicate_id_is_refused() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let cable = rig.file("cable.sock");
    let (mut one, control) = daemon(&rig, "one", &format!("host = 7\n{}", port(&cable, "a")))?;
    let (two, other) = daemon(&rig, "two", &format!("host = 7\n{}", port(&cable, "b")))?;
    one.says("ready")?;
    for control in [&control, &other] {
        wait_for("the port says why", PATIENCE, || {
            let status = status(control).map_err(|error| error.to_string())?;
            let port = &status.ports[0];
            let is_said = port.why.as_ref().is_some_and(|why| why.contains("host"));
            if port.link == Link::Refused && is_said { Ok(()) } else { Err(status.to_string()) }
        })?;
    }
    ensure!((one.errors() + &two.errors()).contains('7'), "no log names the id: {}", one.errors());
    Ok(())
}

#[test]
fn tools_without_a_daemon_say_so() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    for words in [&["status"][..], &["ping", "2", "-c", "1"], &["hosts"], &["metrics"]] {
        let mut command = Command::new(ours(&rig, "crosslane")?);
        let mut program = Program::start(command.arg("--socket").arg(rig.file("nobody.sock")).args(words))?;
        let code = program.wait(PATIENCE)?;
        ensure!(code.code() == Some(3), "{words:?}: {} {}", story(code), program.errors());
        ensure!(program.errors().contains("no daemon answers"), "{}", program.errors());
    }
    Ok(())
}

/// A far host that stops for good: connections to it fail as they would without us.
#[test]
fn unknown_host_is_no_stream() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut command = Script::Loop.command(&rig, "h1", &python)?;
    command.args(["client", "10.86.0.9", "20000", "1"]);
    let mut program = Program::start(&mut command)?;
    let code = program.wait(WORK).context("it fails in bounded time")?;
    ensure!(!code.success(), "it connected to nobody");
    ensure!(text_of(&rig.lab.host("h1")?.log).contains("ready"), "the daemon's log");
    Ok(())
}
