//! A program of another user that inherited one stream of a parent with two, and takes both locks of that end: it is stopped
//! and killed while it has them, and names others as their holders.

use super::inherited::{bequeath, check_whole, connect, inherited};
use super::{begun, greeted};
use crate::honest::byte_at;
use anyhow::{Context, Result, ensure};
use core::mem::offset_of;
use crosslane_client::shared::{Receiving, Sending, Shared, SharedState};
use crosslane_wire::local::{Reply, Request};
use rustix::io::pwrite;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use rustix::thread::gettid;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the locks are kept in each way.
const KEEP: Duration = Duration::from_secs(3);
/// The parent's time-outs.
const PATIENCE: Duration = Duration::from_millis(100);
/// No call of the parent may take so long: less than [`KEEP`], and more than a busy machine makes of [`PATIENCE`].
const TOO_LONG: Duration = Duration::from_secs(2);
/// Kept by a process, as the second word of a lock has it.
const KEPT: u32 = 1;
const PIECE: usize = 16 * 1024;

/// The parent: two streams to the server at `ADDRESS PORT`, of which `PROGRAM locks` inherits the first. Calls on that one
/// have time-outs, which hold. Once the heir has gone, both streams go on, and every byte of both arrives.
///
/// # Errors
/// A call took too long, or a stream was harmed.
pub fn parent(words: &[String]) -> Result<()> {
    let [address, port, program] = words else { anyhow::bail!("ADDRESS PORT PROGRAM") };
    let [mut shared, mut own] = [connect(address, port)?, connect(address, port)?];
    shared.set_write_timeout(Some(PATIENCE))?;
    shared.set_read_timeout(Some(PATIENCE))?;
    let mut heir = bequeath(&shared, "spawn", program, &["locks"])?;
    begun();
    let (mut sent, mut sent_own, mut refused, mut longest) = (0, 0, 0, Duration::ZERO);
    while heir.try_wait()?.is_none() {
        let start = Instant::now();
        match shared.write(&piece(sent)) {
            Ok(bytes) => sent += bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => refused += 1,
            Err(error) => return Err(error).context("write"),
        }
        longest = longest.max(start.elapsed());
        let start = Instant::now();
        let answer = shared.read(&mut [0; 8]).map_err(|error| error.kind());
        ensure!(answer == Err(ErrorKind::WouldBlock), "read: {answer:?}");
        longest = longest.max(start.elapsed());
        own.write_all(&piece(sent_own))?;
        sent_own += PIECE as u64;
    }
    ensure!(heir.wait()?.success(), "the heir did not come to its end");
    println!("refused {refused} longest {} ms end", longest.as_millis());
    ensure!(longest < TOO_LONG, "a call took {longest:?}");
    shared.set_write_timeout(None)?;
    shared.set_read_timeout(None)?;
    shared.write_all(&piece(sent))?;
    check_whole(&mut shared, sent + PIECE as u64)?;
    check_whole(&mut own, sent_own)?;
    println!("whole end");
    Ok(())
}

fn piece(at: u64) -> Vec<u8> {
    (at..).take(PIECE).map(byte_at).collect()
}

/// `FD`: keeps the locks of this inherited stream in one way after the other.
///
/// # Errors
/// The stream cannot be adopted, as its holder may do, or a lock not be taken.
pub fn run(words: &[String]) -> Result<()> {
    let [fd] = words else { anyhow::bail!("FD") };
    let mut holder = hold(fd)?;
    kill_process(Pid::from_child(&holder), Signal::STOP)?;
    std::thread::sleep(KEEP);
    holder.kill()?;
    holder.wait()?;
    // The kernel has freed them: a holder that is killed at once delays nobody.
    let mut holder = hold(fd)?;
    holder.kill()?;
    holder.wait()?;
    drop(hold(fd)?.kill());
    name_others(&adopt(fd)?)?;
    println!("all ways tried end");
    Ok(())
}

/// A child that has both locks.
fn hold(fd: &str) -> Result<Child> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).args(["locks-holder", fd]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
    ensure!(line.starts_with("held"), "the locks were not taken: {line}");
    Ok(child)
}

/// `FD`: takes both locks and keeps them.
///
/// # Errors
/// As [`run`].
pub fn holder(words: &[String]) -> Result<()> {
    let [fd] = words else { anyhow::bail!("FD") };
    // It may be stopped when the attack is ended.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let state = SharedState::open(adopt(fd)?)?;
    let tid = gettid().as_raw_nonzero().get().unsigned_abs();
    let end = Instant::now() + KEEP;
    let (sending, receiving) = loop {
        let sending = state.sending.lock.lock(tid);
        let receiving = state.receiving.lock.lock(tid);
        match (sending, receiving) {
            (Ok(sending), Ok(receiving)) => break (sending, receiving),
            tried => ensure!(Instant::now() < end, "{tried:?}"),
        }
    };
    println!("held");
    std::thread::sleep(KEEP * 2);
    drop(receiving);
    drop(sending);
    Ok(())
}

/// The memory of the end's state, which an heir of its descriptor may map.
fn adopt(fd: &str) -> Result<OwnedFd> {
    let session = greeted("heir")?;
    let (reply, mut fds) = session.request(&Request::Adopt, &[inherited(fd)?.as_fd()])?;
    ensure!(matches!(reply, Reply::Circuit { .. }), "instead of the end: {reply:?}");
    fds.pop().context("no state")
}

/// Names false holders of the locks: the parent, the first process, a process that does not exist, this thread, a whole process.
fn name_others(state: &OwnedFd) -> Result<()> {
    let parent = getppid().context("no parent")?.as_raw_nonzero().get().unsigned_abs();
    let own = gettid().as_raw_nonzero().get().unsigned_abs();
    for holder in
        [[parent, 0], [parent, KEPT], [1, 0], [1, KEPT], [0x3fff_fffe, 0], [0x3fff_fffe, 77], [own, 0]]
    {
        say_held(state, holder)?;
        std::thread::sleep(KEEP / 4);
    }
    say_held(state, [0, 0])
}

fn say_held(state: &OwnedFd, words: [u32; 2]) -> Result<()> {
    let bytes = words.map(u32::to_ne_bytes).concat();
    for place in [
        offset_of!(Shared, sending) + offset_of!(Sending, lock),
        offset_of!(Shared, receiving) + offset_of!(Receiving, lock),
    ] {
        ensure!(pwrite(state, &bytes, place as u64)? == bytes.len(), "the state was not written");
    }
    Ok(())
}
