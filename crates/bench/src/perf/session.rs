//! The answering side: a copy of this process that gets case after case.

use super::cases::{Case, Outcome};
use super::link::{Descriptors, Link};
use crate::affinity::{Cores, Pin};
use crate::speaker::{Reaped, Speaker, end_with_parent, own_program, write_line};
use anyhow::{Context, Result};
use crosslane_passing as passing;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// The parameters of the answering side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Invitation {
    core: usize,
    shared_core: bool,
}

/// The answering side is there, or ready for a case.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Here;

/// The measuring side's handle of the answering one.
#[derive(Debug)]
pub struct Session {
    link: Link,
    lines: Speaker,
    key: u64,
    _pin: Pin,
}

impl Session {
    /// Starts the other side: a copy of this process, which must understand `perf --answer` and call [`answer`]. Its standard
    /// input is a socket through which it gets the descriptors, so that none is ever inheritable.
    ///
    /// # Errors
    /// It does not start or falls silent.
    pub fn start(cores: Cores) -> Result<Self> {
        let mut command = Command::new(own_program()?);
        command.args(["perf", "--answer"]);
        let descriptors = Descriptors::create()?;
        let (near, far) = UnixStream::pair()?;
        let child = command.stdin(OwnedFd::from(far)).spawn();
        let child = Reaped(child.context("cannot start the answering process")?);
        let invitation = Invitation { core: cores.far, shared_core: cores.is_shared() };
        let invitation = serde_json::to_vec(&invitation)?;
        passing::send(&near, &invitation, &descriptors.all(), SendFlags::empty())?;
        let mut session = Self::new(&descriptors, cores, Speaker::over(near, Some(child))?)?;
        let Here = session.lines.receive().context("the answering process does not start")?;
        Ok(session)
    }

    /// Connects to an answering side that was started already, on `descriptors`.
    pub fn new(descriptors: &Descriptors, cores: Cores, lines: Speaker) -> Result<Self> {
        let link = descriptors.link(true, cores.is_shared())?;
        Ok(Self { link, lines, key: 1, _pin: Pin::to(cores.near)? })
    }

    /// Runs one case on both sides; returns the results of this and of the other side. `case` gets the mark key.
    pub fn run(&mut self, case: impl FnOnce(u64) -> Case) -> Result<(Outcome, Outcome)> {
        // The key guards no secret here: it only distinguishes the records of one case from another's.
        self.key += 1 << 32;
        let case = case(self.key);
        case.clear(&self.link);
        self.lines.say(&case)?;
        let Here = self.lines.receive().context("the answering side does not begin")?;
        let near = case.near(&self.link)?;
        let far = self.lines.receive().context("the answering side does not end")?;
        Ok((near, far))
    }
}

fn receive_descriptors(from: &UnixStream) -> Result<(Invitation, Descriptors)> {
    let mut bytes = [0; 256];
    let message = passing::receive(from, &mut bytes, RecvFlags::empty(), passing::Owner::NOBODY)?;
    let invitation = serde_json::from_slice(&bytes[..message.bytes]).context("not an invitation")?;
    let all = message.fds.into_iter().map(passing::Foreign::into_owned);
    Ok((invitation, Descriptors::from_all(all.collect())?))
}

/// Runs the answering side of [`Session::start`] until the measuring side hangs up. Standard input must be the
/// socket that it gave.
pub fn answer() -> Result<()> {
    end_with_parent()?;
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (invitation, descriptors) = receive_descriptors(&socket).context("only perf itself starts this")?;
    let _pin = Pin::to(invitation.core)?;
    let link = descriptors.link(false, invitation.shared_core)?;
    write_line(&mut socket, &Here)?;
    serve(&link, socket)
}

/// Answers the cases that come in on `socket`, one a line, until it ends.
pub fn serve(link: &Link, mut socket: UnixStream) -> Result<()> {
    for line in BufReader::new(socket.try_clone()?).lines() {
        let case: Case = serde_json::from_str(&line?)?;
        case.clear(link);
        write_line(&mut socket, &Here)?;
        write_line(&mut socket, &case.far(link)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Over;

    /// Runs `body` against an answering side in a thread of this process.
    fn with_session(body: impl FnOnce(&mut Session)) {
        let cores = Cores::pick().unwrap();
        let descriptors = Descriptors::create().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let link = descriptors.link(false, cores.is_shared()).unwrap();
        let thread = std::thread::spawn(move || {
            let _pin = Pin::to(cores.far).unwrap();
            serve(&link, far)
        });
        let lines = Speaker::over(near.try_clone().unwrap(), None).unwrap();
        let mut session = Session::new(&descriptors, cores, lines).unwrap();
        body(&mut session);
        drop(session);
        near.shutdown(std::net::Shutdown::Both).unwrap();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn case_runs_over_both_rings() {
        with_session(|session| {
            let millis = 2;
            assert!(session.run(|_| Case::Line { millis }).unwrap().0.messages > 0);
            for over in [Over::Crosslane, Over::Bare] {
                for size in [1, 8, 48, 49, 5000, 300_000] {
                    let trip = |key| Case::PingPong { over, size, millis, stamped: false, key };
                    assert!(session.run(trip).unwrap().0.messages > 0, "{over:?} {size}");
                    for both in [false, true] {
                        let (near, far) =
                            session.run(|key| Case::Stream { over, size, millis, both, key }).unwrap();
                        assert_eq!(near.messages, far.messages, "{over:?} {size} {both}");
                    }
                }
            }
        });
    }

    #[test]
    fn stamped_messages_give_percentiles_both_ways() {
        with_session(|session| {
            let case = |key| Case::PingPong { over: Over::Crosslane, size: 8, millis: 5, stamped: true, key };
            let (near, far) = session.run(case).unwrap();
            assert!(near.round_trip_ns.is_sorted() && far.one_way_ns.is_sorted());
            assert!(far.one_way_ns[0] <= near.round_trip_ns[0]);
        });
    }
}
