//! Ends the control connections of other programs of its user, again and again, by all that can end one; and takes what is left
//! of the user's quota of sessions, so that none can be opened in their place. `lostsession PID...`.

use super::{LIFE, begun};
use anyhow::{Context, Result, ensure};
use crosslane_client::session::{Session, socket_path};
use crosslane_wire::codec::MAX_MESSAGE;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketType, shutdown, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(25);
/// So many rounds go by before all sessions of the user are taken.
const BEFORE: usize = 100;

/// Attacks until it is ended.
///
/// # Errors
/// There is no connection to attack, or it may not be reached.
pub fn run(words: &[String]) -> Result<()> {
    let pids = words.iter().map(|word| word.parse()).collect::<Result<Vec<i32>, _>>()?;
    for pid in &pids {
        ensure!(!connections(*pid)?.is_empty(), "process {pid} has no control connection");
    }
    begun();
    let (begin, mut taken, mut ended) = (Instant::now(), Vec::new(), 0_usize);
    for round in 0_usize.. {
        if begin.elapsed() > LIFE {
            break;
        }
        if round == BEFORE {
            taken.extend(std::iter::from_fn(greeted));
            println!("took {} sessions", taken.len());
        }
        for (number, pid) in pids.iter().enumerate() {
            for connection in connections(*pid)? {
                end(&connection, round + number);
                ended += 1;
            }
        }
        if round % 10 == 0 {
            println!("ended {ended} connections");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn greeted() -> Option<Session> {
    let session = Session::connect(&socket_path()).ok()?;
    session.hello("lostsession").ok().map(|_| session)
}

/// The control connections of a process.
fn connections(pid: i32) -> Result<Vec<OwnedFd>> {
    let process = Pid::from_raw(pid).context("no process")?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).context("its descriptors")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(fd) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) else { continue };
        let is_control = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET);
        found.extend(is_control.then_some(fd));
    }
    Ok(found)
}

fn end(connection: &OwnedFd, how: usize) {
    let _ = match how % 4 {
        0 => shutdown(connection, Shutdown::Both),
        1 => shutdown(connection, Shutdown::Write),
        2 => shutdown(connection, Shutdown::Read),
        // Too long for a packet: the daemon ends the session.
        _ => rustix::net::send(connection, &vec![7; MAX_MESSAGE + 1], SendFlags::DONTWAIT).map(drop),
    };
}
