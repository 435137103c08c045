//! A program of another user that inherited one stream of a parent with two: it speaks on whatever control connection it finds,
//! adopts, guesses at the other stream's end, closes, and listens in the parent's name.

use super::{LIFE, USER, begun};
use crate::honest::{STREAM, byte_at};
use crate::rig::privileges;
use anyhow::{Context, Result, ensure};
use crosslane_client::session::{Session, SessionError, socket_path};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{BufferId, CircuitId, Reach, WaiterId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::memfd_create;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Ends around the inherited one that are tried.
const AROUND: u64 = 32;
/// How long an answer is waited for on a connection that may be the parent's, whose answers the parent takes, too.
const ANSWER: Duration = Duration::from_millis(50);
const PIECE: usize = 16 * 1024;

/// What the attack got and must not get.
#[derive(Debug, Default)]
struct Got {
    /// Control connections of the parent's.
    connections: usize,
    /// Answers about other ends that are no refusal.
    answers: usize,
    /// Memory that is neither the end's segments nor one page for its state.
    memory: usize,
}

/// The parent: two streams to the server at `ADDRESS PORT`, of which a program of user [`USER`] inherits the first, by `spawn` or
/// by `fork`, and attacks for `SECONDS`. Then both streams end, and every byte of both has arrived.
///
/// # Errors
/// A stream was harmed.
pub fn parent(words: &[String]) -> Result<()> {
    let [way, address, port, program, seconds] = words else {
        anyhow::bail!("WAY ADDRESS PORT PROGRAM SECONDS")
    };
    let mut streams = [connect(address, port)?, connect(address, port)?];
    let mut heir = bequeath(&streams[0], way, program, &["inherited", seconds])?;
    begun();
    let end = Instant::now() + Duration::from_secs(seconds.parse()?) + Duration::from_millis(500);
    let mut sent = 0_u64;
    while Instant::now() < end {
        let piece: Vec<u8> = (sent..).take(PIECE).map(byte_at).collect();
        for stream in &mut streams {
            stream.write_all(&piece)?;
        }
        sent += PIECE as u64;
        std::thread::sleep(Duration::from_millis(1));
    }
    ensure!(heir.wait()?.success(), "the heir did not come to its end");
    for stream in &mut streams {
        check_whole(stream, sent)?;
    }
    println!("whole end");
    Ok(())
}

/// A stream to the honest server, which counts the right bytes of it.
pub(super) fn connect(address: &str, port: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((address, port.parse()?))?;
    stream.write_all(&[STREAM])?;
    Ok(stream)
}

/// Starts the attack `words[0]` of `program` as user [`USER`] with this one stream, whose number comes behind that word.
pub(super) fn bequeath(stream: &TcpStream, way: &str, program: &str, words: &[&str]) -> Result<Child> {
    fcntl_setfd(stream, FdFlags::empty())?;
    let mut heir = Command::new("setpriv");
    heir.args(privileges(USER)?)
        .arg(program)
        .arg(words[0])
        .arg(stream.as_raw_fd().to_string())
        .args(&words[1..]);
    heir.env_remove("LD_PRELOAD");
    if way == "fork" {
        // Changes nothing, but has the child made by `fork` and `exec` rather than by `posix_spawn`.
        heir.uid(0);
    }
    let heir = heir.spawn()?;
    fcntl_setfd(stream, FdFlags::CLOEXEC)?;
    Ok(heir)
}

/// Ends a stream of which so many bytes were sent.
pub(super) fn check_whole(stream: &mut TcpStream, sent: u64) -> Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let mut had = [0; 8];
    stream.read_exact(&mut had).context("a stream ended early")?;
    let had = u64::from_le_bytes(had);
    ensure!(had == sent, "{had} bytes of {sent} were right");
    Ok(())
}

/// The inherited descriptor as it was passed on, which no library hides.
pub(super) fn inherited(fd: &str) -> Result<OwnedFd> {
    let me = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(&me, fd.parse()?, PidfdGetfdFlags::empty())?)
}

/// `FD SECONDS`: attacks by what came with this descriptor of a stream, and prints what it got.
///
/// # Errors
/// The stream cannot be adopted, as its holder may do.
pub fn run(words: &[String]) -> Result<()> {
    let [fd, seconds] = words else { anyhow::bail!("FD SECONDS") };
    let seconds: u64 = seconds.parse()?;
    let me = pidfd_open(getpid(), PidfdFlags::empty())?;
    let stream = inherited(fd)?;
    let end = Instant::now() + Duration::from_secs(seconds).min(LIFE);
    let (mut got, mut rounds) = (Got::default(), 0);
    while Instant::now() < end {
        got.connections += speak(&me)?;
        let session = Session::connect(&socket_path())?;
        session.hello("heir")?;
        let (circuit, token) = adopt(&session, stream.as_fd(), &mut got)?;
        reach_others(&session, circuit, token, &mut got)?;
        rounds += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let Got { connections, answers, memory } = got;
    println!("got {connections} connections {answers} answers {memory} memory in {rounds} rounds end");
    Ok(())
}

/// Says what harms the parent on each control connection that this process has and did not open; how many there are.
fn speak(me: &OwnedFd) -> Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").context("descriptors")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(fd) = pidfd_getfd(me, number, PidfdGetfdFlags::empty()) else { continue };
        let is_control = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::SEQPACKET);
        if !is_control {
            continue;
        }
        found += 1;
        let listener = TcpListener::bind("0.0.0.0:0")?;
        for request in [Request::Status, Request::Hosts, Request::Waiter, Request::Offload] {
            let _ = rustix::net::send(&fd, &codec::encode(&request)?, SendFlags::DONTWAIT);
            receive(fd.as_fd());
        }
        let session = Session::from_socket(fd);
        let _ = session.listen(listener.as_fd());
        // Too long for a packet: the daemon closes the session of its sender.
        let _ = rustix::net::send(session.socket(), &vec![7; MAX_MESSAGE + 1], SendFlags::DONTWAIT);
    }
    Ok(found)
}

fn receive(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let wait = Timespec { tv_sec: 0, tv_nsec: ANSWER.subsec_nanos().into() };
    if poll(&mut fds, Some(&wait)).is_ok_and(|count| count > 0) {
        let _ = rustix::net::recv(fd, &mut [0; MAX_MESSAGE], RecvFlags::DONTWAIT);
    }
}

/// The end whose descriptor was inherited, which may be had; its name and its proof.
fn adopt(session: &Session, stream: BorrowedFd<'_>, got: &mut Got) -> Result<(CircuitId, u64)> {
    let (reply, fds) = session.request(&Request::Adopt, &[stream])?;
    let Reply::Circuit { circuit, token, retained, .. } = reply else {
        anyhow::bail!("instead of the end: {reply:?}")
    };
    let due = 3 + usize::from(retained);
    got.memory += fds.len().saturating_sub(due);
    // The last one is the state: a page, of this end alone.
    let state = fds.last().context("no state")?;
    got.memory += usize::from(rustix::fs::fstat(state)?.st_size > 4096);
    Ok((circuit, token))
}

/// Everything that can be asked about ends around the inherited one, with what is known of that one as proof.
fn reach_others(session: &Session, own: CircuitId, token: u64, got: &mut Got) -> Result<()> {
    let memory = memfd_create("heir", rustix::fs::MemfdFlags::CLOEXEC)?;
    let (buffer, waiter, len) = (BufferId(1), WaiterId(1), 65536);
    for number in own.0.saturating_sub(AROUND)..own.0 + AROUND {
        let circuit = CircuitId(number);
        if circuit == own {
            continue;
        }
        for token in [token, 0, !token, number] {
            for request in [
                Request::Resume { circuit, token, generation: 0 },
                Request::WantWaker { circuit, token, waiter },
                Request::ExportBuffer { circuit, token, buffer, len, reach: Reach::Store },
                Request::ImportBuffer { circuit, token, buffer },
                Request::RegisterRings { circuit, token, generation: 0 },
            ] {
                let answer = session.request(&request, &[memory.as_fd()]);
                let (reply, fds) = match answer {
                    // Asked for too much at once: that is another attack.
                    Err(SessionError::Late) => return Ok(()),
                    answer => answer?,
                };
                let refused = matches!(
                    reply,
                    Reply::Plain { .. }
                        | Reply::Error { .. }
                        | Reply::Waker { by: None }
                        | Reply::Buffer { shape: None }
                        | Reply::RegisteredRings { handle: 0 }
                );
                got.answers += usize::from(!refused || !fds.is_empty());
            }
            session.tell(&Request::Hold { ends: vec![(circuit, token)] })?;
            session.tell(&Request::Violated { circuit, token, text: "a lie".to_owned() })?;
            session.tell(&Request::Wake { circuit, token, waiter })?;
            session.tell(&Request::Close { circuit, token, abort: false })?;
            session.tell(&Request::Close { circuit, token, abort: true })?;
        }
    }
    Ok(())
}
