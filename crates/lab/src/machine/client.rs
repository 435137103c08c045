//! The outside of a machine: a program in it that looks as if it ran here, and requests to its agent.

use super::frame::{Frames, Kind, LONGEST, MARK, frame};
use super::terminal::{self, Raw};
use super::{Ask, PORTS, Program, Size, qemu};
use crate::LabError;
use crate::state::HostState;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a machine may take to hear a request: it looks for new ones 20 times a second, on a processor that may be shared by many.
const PATIENCE: Duration = Duration::from_secs(30);
/// Signals that a program in a machine gets as if it ran here.
const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Exit code where a standard stream of ours is gone.
const BROKEN_PIPE: u8 = 141;

/// A port of a host's machine, for one request.
struct Connection {
    frames: Frames<UnixStream>,
    /// Held locked: the port is ours.
    _lock: OwnedFd,
}

impl Connection {
    /// Sends a request by a port that nobody uses, and waits until the machine has heard it.
    fn ask(folder: &Path, host: &HostState, ask: &Ask) -> Result<Self, LabError> {
        let (lock, mut port) = free_port(folder, host)?;
        let failed = |error: io::Error| no_answer(folder, host, &error);
        let number = draw();
        let request = serde_json::to_vec(ask).map_err(|error| failed(error.into()))?;
        port.write_all(&[&MARK[..], &number, &frame(Kind::Request, &request)].concat()).map_err(failed)?;
        let mut frames = Frames::new(port);
        frames.deadline = Some(Instant::now() + PATIENCE);
        match frames.pass_to(&number) {
            Ok(true) => frames.deadline = None,
            Ok(false) => return Err(failed(ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(failed(error)),
        }
        Ok(Self { frames, _lock: lock })
    }
}

/// A port that no other client uses, and its lock.
fn free_port(folder: &Path, host: &HostState) -> Result<(OwnedFd, UnixStream), LabError> {
    for number in 1..=PORTS {
        let socket = folder.join(qemu::port_name(host, number));
        let lock = open(
            socket.with_extension("lock"),
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(LabError::io("lock a port of the machine"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let port = UnixStream::connect(&socket).map_err(|error| no_answer(folder, host, &error))?;
            return Ok((lock, port));
        }
    }
    Err(LabError::Refused(format!(
        "{} runs {PORTS} programs of ours already: wait until one ends",
        host.name
    )))
}

fn no_answer(folder: &Path, host: &HostState, error: &io::Error) -> LabError {
    let why = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => "it is not running".to_owned(),
        ErrorKind::TimedOut => "it does not answer; its log says whether it has booted".to_owned(),
        ErrorKind::UnexpectedEof => "it has ended".to_owned(),
        _ => error.to_string(),
    };
    LabError::NoDaemon { socket: folder.join(&host.name), why: format!("the machine {}: {why}", host.name) }
}

/// A number that no other client of this port has drawn.
fn draw() -> [u8; 16] {
    let mut number = [0; 16];
    // Without the kernel's random numbers the time tells clients apart.
    if rustix::rand::getrandom(&mut number[..], rustix::rand::GetRandomFlags::empty()) != Ok(16) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        number = now.to_le_bytes();
    }
    number
}

/// Asks something that is answered at once; what it says.
///
/// # Errors
/// [`LabError::NoDaemon`] if no machine answers; [`LabError::Refused`] with its reason.
pub(crate) fn ask(folder: &Path, host: &HostState, ask: &Ask) -> Result<Vec<u8>, LabError> {
    let mut connection = Connection::ask(folder, host, ask)?;
    connection.frames.deadline = Some(Instant::now() + PATIENCE);
    let mut said = Vec::new();
    loop {
        match connection.frames.next().map_err(|error| no_answer(folder, host, &error))? {
            Some((Kind::Output, bytes)) => said.extend(bytes),
            Some((Kind::Ended, _)) => return Ok(said),
            Some((Kind::Refused, reason)) => return Err(LabError::Refused(refusal(&reason).1)),
            Some(_) => {}
            None => return Err(no_answer(folder, host, &ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn refusal(content: &[u8]) -> (u8, String) {
    content
        .split_first()
        .map_or((125, String::new()), |(code, why)| (*code, String::from_utf8_lossy(why).into_owned()))
}

/// Runs a program in a machine, with the standard streams, the terminal and the signals of this process; its exit code, 128 more than the
/// signal if one ended it.
///
/// # Errors
/// As [`ask`], with the exit code for it.
pub(crate) fn run(folder: &Path, host: &HostState, mut program: Program) -> Result<u8, (LabError, u8)> {
    program.terminal = terminal::own();
    let has_terminal = program.terminal.is_some();
    let connection = Connection::ask(folder, host, &Ask::Run(program)).map_err(|error| (error, 125))?;
    let Connection { mut frames, _lock } = connection;
    let port = |error| (no_answer(folder, host, &error), 125);
    let _raw = has_terminal.then(Raw::enter).transpose().map_err(port)?;
    let (writer, wanted) = writer(frames.port().map_err(port)?.into()).map_err(port)?;
    loop {
        let written = match frames.next().map_err(port)? {
            Some((Kind::Output, bytes)) => write(&mut io::stdout().lock(), &bytes),
            Some((Kind::Error, bytes)) => write(&mut io::stderr().lock(), &bytes),
            // A reader of input that is gone wants none.
            Some((Kind::Wanted, _)) => wanted.send(()).or(Ok(())),
            Some((Kind::Ended, code)) => return Ok(code.first().copied().unwrap_or(125)),
            Some((Kind::Refused, reason)) => {
                let (code, why) = refusal(&reason);
                return Err((LabError::Refused(why), code));
            }
            Some(_) => Ok(()),
            None => return Err(port(ErrorKind::UnexpectedEof.into())),
        };
        if written.is_err() {
            drop(writer);
            return Ok(BROKEN_PIPE);
        }
    }
}

fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Starts who sends our input, a frame each time that it is told that one is wanted, and who passes signals on.
fn writer(port: UnixStream) -> io::Result<(Sender<Vec<u8>>, Sender<()>)> {
    let (to_send, frames) = channel::<Vec<u8>>();
    let (wanted, wants) = channel();
    let mut signals = signal_hook::iterator::Signals::new(SIGNALS.iter().chain(&[SIGWINCH]))?;
    let (of_signals, of_input) = (to_send.clone(), to_send.clone());
    // They end with this process.
    thread::spawn(move || send_all(port, &frames));
    thread::spawn(move || read_input(&wants, &of_input));
    thread::spawn(move || {
        for signal in &mut signals {
            let frame = if signal == SIGWINCH {
                let Ok(size) = Size::of(io::stdin()) else { continue };
                frame(Kind::Resized, &size.bytes())
            } else {
                frame(Kind::Signal, &[u8::try_from(signal).unwrap_or(0)])
            };
            if of_signals.send(frame).is_err() {
                break;
            }
        }
    });
    Ok((to_send, wanted))
}

fn send_all(mut port: UnixStream, frames: &Receiver<Vec<u8>>) {
    // A machine that is gone is noticed by who reads from it.
    while let Ok(frame) = frames.recv() {
        if port.write_all(&frame).is_err() {
            break;
        }
    }
}

fn read_input(wants: &Receiver<()>, to: &Sender<Vec<u8>>) {
    let mut part = vec![0; LONGEST / 2];
    while wants.recv().is_ok() {
        // What cannot be read is at its end.
        let read = io::stdin().lock().read(&mut part).unwrap_or(0);
        if to.send(frame(Kind::Input, &part[..read])).is_err() || read == 0 {
            break;
        }
    }
}
