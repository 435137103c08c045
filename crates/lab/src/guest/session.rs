//! One request of a client, inside the machine.

use super::daemon::Daemon;
use super::program::{Started, start};
use crate::machine::frame::{Frames, Kind, LONGEST, MARK, frame};
use crate::machine::{Ask, Program, Size, text};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::Timespec;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// How long a wait for a port or a pipe lasts before it is looked whether it makes sense still.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The client's side of a session, to write to.
#[derive(Clone, Debug)]
struct Client {
    port: Arc<Mutex<File>>,
    gone: Arc<AtomicBool>,
}

impl Client {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn send(&self, kind: Kind, content: &[u8]) -> io::Result<()> {
        self.send_bytes(&frame(kind, content))
    }

    /// Writes all, or gives up when the client is gone: a port without one takes nothing.
    fn send_bytes(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            if self.is_gone() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            match port.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for(&*port, PollFlags::OUT)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn refuse(&self, code: u8, why: &str) -> io::Result<()> {
        let why = &why.as_bytes()[..why.len().min(LONGEST - 1)];
        self.send(Kind::Refused, &[&[code], why].concat())
    }
}

/// Waits for `what`, for 50 ms at most; whether it came. A pipe whose other end is gone is ready.
fn wait(fd: impl AsFd, what: PollFlags) -> io::Result<bool> {
    match poll(&mut [PollFd::new(&fd, what)], Some(&LOOK)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`wait`]. A port without a client is ready at once, and takes nothing: that must not spin.
fn wait_for(fd: impl AsFd, what: PollFlags) -> io::Result<()> {
    let mut fds = [PollFd::new(&fd, what)];
    match poll(&mut fds, Some(&LOOK)) {
        Ok(1) if !fds[0].revents().contains(what) => thread::sleep(std::time::Duration::from_millis(50)),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(())
}

/// Answers the requests that come by a port until its client is gone.
pub(super) fn serve(port: &File, daemon: &Daemon) -> io::Result<()> {
    let mut frames = Frames::new(port.try_clone()?);
    // A new client may come before the end of the last one was seen: its mark is there then.
    while frames.pass_to(&MARK)? {
        let Some(number) = frames.take::<16>()? else { break };
        let request = match frames.next() {
            Ok(Some((Kind::Request, request))) => request,
            Ok(Some(_)) => continue,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::InvalidData => continue,
            Err(error) => return Err(error),
        };
        let client = Client { port: Arc::new(Mutex::new(port.try_clone()?)), gone: Arc::default() };
        client.send_bytes(&number)?;
        match serde_json::from_slice(&request) {
            Ok(Ask::Run(program)) => frames = run(&client, frames, &program)?,
            Ok(ask) => match daemon.answer(&ask) {
                Ok(said) => {
                    said.chunks(LONGEST).try_for_each(|part| client.send(Kind::Output, part))?;
                    client.send(Kind::Ended, &[0])?;
                }
                Err(error) => client.refuse(1, &error.to_string())?,
            },
            Err(error) => client.refuse(125, &error.to_string())?,
        }
    }
    Ok(())
}

/// Runs a program to its end, or until its client is gone, which kills it.
fn run(client: &Client, frames: Frames<File>, program: &Program) -> io::Result<Frames<File>> {
    let Started { mut child, input, output, error, terminal } = match start(program) {
        Ok(started) => started,
        Err(error) => {
            let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            let name = program.command.first().map(|name| text(name)).unwrap_or_default();
            client.refuse(code, &format!("run {}: {error}", name.display()))?;
            return Ok(frames);
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (to_input, inputs) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let of_input = client.clone();
    thread::spawn(move || feed(input, &inputs, &of_input));
    let pumps = [pump(Some(output), Kind::Output, client, &ended), pump(error, Kind::Error, client, &ended)];
    let (of_frames, over) = (client.clone(), ended.clone());
    let listener = thread::spawn(move || {
        let target = Target { group, ended: &over, terminal };
        listen(frames, &to_input, &target, &of_frames)
    });
    let status = child.wait();
    ended.store(true, Ordering::Release);
    for pump in pumps {
        // What a pump could not send has no reader any more.
        let _ = pump.join();
    }
    let code = status.map_or(125, |status| status.code().unwrap_or(128 + status.signal().unwrap_or(0)));
    // A client that is gone needs no code.
    let _ = client.send(Kind::Ended, &[u8::try_from(code).unwrap_or(125)]);
    listener.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// Whom a client's frames are for, beside input.
struct Target<'a> {
    group: Option<Pid>,
    /// Behind its end its number may be another group's.
    ended: &'a AtomicBool,
    terminal: Option<File>,
}

impl Target<'_> {
    /// It may have ended just now.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group.filter(|_| !self.ended.load(Ordering::Acquire)) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn resize(&self, size: Size) {
        if let Some(terminal) = &self.terminal {
            let _ = size.give(terminal);
        }
    }
}

/// Takes the client's frames until it is gone: kills the program then. What a program that has ended left behind lives on, as outside.
fn listen(
    mut frames: Frames<File>,
    input: &Sender<Vec<u8>>,
    target: &Target<'_>,
    client: &Client,
) -> io::Result<Frames<File>> {
    loop {
        match frames.next() {
            // Nobody feeds a program that has closed its input.
            Ok(Some((Kind::Input, bytes))) => drop(input.send(bytes)),
            Ok(Some((Kind::Signal, number))) => {
                let number = number.first().and_then(|&number| Signal::from_named_raw(number.into()));
                number.into_iter().for_each(|signal| target.signal(signal));
            }
            Ok(Some((Kind::Resized, size))) => {
                Size::from_bytes(&size).into_iter().for_each(|size| target.resize(size))
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                client.gone.store(true, Ordering::Release);
                target.signal(Signal::KILL);
                return Ok(frames);
            }
        }
    }
}

/// Writes what comes to the program's input, asking for each part.
fn feed(mut to: File, input: &Receiver<Vec<u8>>, client: &Client) {
    while client.send(Kind::Wanted, &[]).is_ok() {
        let Ok(bytes) = input.recv() else { break };
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
}

/// Sends what the program writes, also what it wrote before it ended; what programs that it left behind write later is not waited for.
fn pump(
    pipe: Option<File>,
    kind: Kind,
    client: &Client,
    ended: &Arc<AtomicBool>,
) -> thread::JoinHandle<io::Result<()>> {
    let (client, ended) = (client.clone(), ended.clone());
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return Ok(()) };
        let mut part = vec![0; LONGEST / 2];
        loop {
            let last = ended.load(Ordering::Acquire);
            if wait(&pipe, PollFlags::IN)? {
                match pipe.read(&mut part)? {
                    0 => return Ok(()),
                    read => client.send(kind, &part[..read])?,
                }
            } else if last {
                return Ok(());
            }
        }
    })
}
