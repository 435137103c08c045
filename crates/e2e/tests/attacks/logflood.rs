//! Lines of the log that a stranger can cause, at full rate; on a disk that is full, and into a pipe that nobody reads.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::honest::{Honest, WINDOW, public_copy};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, attacks, own_program, package, wait_for};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Most that the attack may add to the log in the seconds that it is given, bytes: unbounded it would be a hundred times that.
const MOST: u64 = 1 << 20;

/// The attack from h1, with a stream of its own to an accelerated server on h2, which comes along.
fn attack(rig: &Rig) -> Result<(Program, Program)> {
    let (server, to) = server(rig, "h2")?;
    let own = rig.address("h1")?.to_string();
    Ok((attacks::start(rig, "h1", "logflood", &[&own, &to])?, server))
}

/// An accelerated server, and where it listens.
fn server(rig: &Rig, host: &str) -> Result<(Program, String)> {
    let (port, address) = (rig.port(), rig.address(host)?);
    let program = public_copy(rig, "crosslane-honest")?;
    let mut server = Program::start(rig.command(host, program)?.args(["server", &port.to_string()]))?;
    server.listens(port)?;
    Ok((server, format!("{address}:{port}")))
}

#[test]
fn log_flood_fills_no_disk_and_hides_no_line_of_another_user() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let size = || -> Result<u64> { Ok(rig.lab.host("h1")?.log.metadata()?.len()) };
    let before = size()?;
    let (attack, _server) = attack(&rig)?;
    honest.holds_out(&calm)?;
    wait_for("the flood is heard, and cut", PATIENCE, || match rig.log("h1") {
        Ok(log) if log.contains("lines were left out") => Ok(()),
        Ok(log) => Err(format!("{} bytes", log.len())),
        Err(error) => Err(error.to_string()),
    })?;
    // Another user has something to say at the very same place of the source.
    let (_other, to) = server(&rig, "h1")?;
    let own = rig.address("h1")?.to_string();
    let words = ["complain", &own, &to, "another user's complaint"];
    let program = own_program("crosslane-attacker")?;
    Program::start(rig.plain("h1", program)?.args(words))?.finish(PATIENCE)?;
    wait_for("the other user's line is there", PATIENCE, || match rig.log("h1") {
        Ok(log) if log.contains("another user's complaint") => Ok(()),
        _ => Err("it is not".to_owned()),
    })?;
    let (grown, log) = (size()? - before, rig.log("h1")?);
    ensure!(grown < MOST, "{grown} bytes of log");
    ensure!(log.lines().all(|line| !line.starts_with("ERROR")), "a forged line");
    println!("{grown} bytes of log");
    drop(attack);
    honest.finish()
}

/// A daemon in the place of the lab's; it ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the daemon of h1 again, with another standard error.
fn log_to(rig: &mut Rig, sink: Stdio) -> Result<Daemon> {
    rig.lab.kill_daemon("h1", Signal::KILL)?;
    let config = rig.lab.host("h1")?.config.clone();
    let program = rig.lab.state().program.with_file_name("crosslaned");
    let mut command = rig.plain("h1", program)?;
    let daemon = Daemon(command.arg("--config").arg(config).stderr(sink).spawn()?);
    wait_for("both hosts know each other", PATIENCE, || {
        let knows = |host: &str| {
            let status = rig.lab.status(host).ok()?;
            (status.hosts.len() == 1).then_some(())
        };
        knows("h1").and(knows("h2")).ok_or_else(|| "they do not".to_owned())
    })?;
    Ok(daemon)
}

/// The attack on a daemon whose log goes nowhere; `taken`: whether that is so by now.
fn withstand(rig: &mut Rig, sink: Stdio, taken: impl Fn() -> Result<bool>) -> Result<()> {
    let mut daemon = log_to(rig, sink)?;
    let mut honest = Honest::start(rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let (attack, _server) = attack(rig)?;
    honest.holds_out(&calm)?;
    wait_for("the log takes no more", PATIENCE, || match taken() {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    honest.holds_out(&calm)?;
    ensure!(daemon.0.try_wait()?.is_none(), "the daemon has ended");
    drop(attack);
    honest.finish()
}

/// A small disk; it is gone when this is dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("disk");
        std::fs::create_dir(&path)?;
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8k", "none"]).arg(&path).status()?;
        Ok(mount.success().then_some(Self(path)))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn log_on_a_full_disk_ends_and_delays_nothing() -> Result<()> {
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    let Some(disk) = Disk::new(rig.folder())? else {
        package::skip("this user may not mount a small disk");
        return Ok(());
    };
    let log = disk.0.join("log");
    let sink = File::create(&log)?;
    let is_full = || Ok(File::options().append(true).open(&log)?.metadata()?.len() >= 8 << 10);
    withstand(&mut rig, sink.into(), is_full)
}

#[test]
fn log_to_an_unread_pipe_ends_and_delays_nothing() -> Result<()> {
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    let (read, write) = std::io::pipe()?;
    let full = write.try_clone().context("pipe")?;
    rustix::pipe::fcntl_setpipe_size(&read, 4096)?;
    // Nobody can write without waiting.
    let is_full = || {
        let mut ready = [rustix::event::PollFd::new(&full, rustix::event::PollFlags::OUT)];
        Ok(rustix::event::poll(&mut ready, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0)
    };
    withstand(&mut rig, write.into(), is_full)
}
