//! The honest users of the attack suite: a server, and a client that keeps three things going and times them.
//!
//! `crosslane-honest server PORT` serves until it is killed. `crosslane-honest client ADDRESS PORT` does, all at once:
//! a stream of which the server checks every byte, an echo of 64 bytes each millisecond, and a connection of one byte
//! there and back each ten milliseconds; and, as the machine's own figure, the same over a Unix socket between two of its
//! threads. Every 50 ms it prints a line of JSON: the latencies since the line before, ns, and the bytes that the stream
//! has sent. At SIGTERM it ends the stream, waits until the server has confirmed all of
//! it, prints `whole` and exits with 0. On any error it prints what failed and exits with 1.

use anyhow::{Context, Result, bail, ensure};
use crosslane_e2e::honest::{STREAM, byte_at};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The purpose of a connection other than a stream: its first byte.
const ECHO: u8 = b'e';
const ONCE: u8 = b'o';
const MESSAGE: usize = 64;
const PIECE: usize = 32 * 1024;
/// Pauses of the echo, of the stream, between connections, and between two lines.
const ECHO_EVERY: Duration = Duration::from_millis(1);
const STREAM_EVERY: Duration = Duration::from_millis(1);
const CONNECT_EVERY: Duration = Duration::from_millis(10);
const PRINT_EVERY: Duration = Duration::from_millis(50);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["server", port] => serve(port.parse()?),
        ["client", address, port] => visit(SocketAddr::new(address.parse()?, port.parse()?)),
        _ => bail!("server PORT, or client ADDRESS PORT"),
    }
}

fn serve(port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) -> Result<()> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    match kind[0] {
        ECHO => loop {
            let mut message = [0; MESSAGE];
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        },
        ONCE => Ok(stream.write_all(&kind)?),
        _ => confirm(stream),
    }
}

/// Checks a stream to its end and answers with how many bytes were right.
fn confirm(mut stream: TcpStream) -> Result<()> {
    let (mut buffer, mut at) = (vec![0; PIECE], 0_u64);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(stream.write_all(&at.to_le_bytes())?);
        }
        ensure!((at..).zip(&buffer[..count]).all(|(at, byte)| *byte == byte_at(at)), "wrong byte after {at}");
        at += count as u64;
    }
}

/// What the client's threads share.
#[derive(Default)]
struct Shared {
    echo: Mutex<Vec<u64>>,
    setup: Mutex<Vec<u64>>,
    machine: Mutex<Vec<u64>>,
    sent: AtomicU64,
    over: Arc<AtomicBool>,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.over.load(SeqCst)
    }
}

fn visit(server: SocketAddr) -> Result<()> {
    let shared = Shared::default();
    signal_hook::flag::register(signal_hook::consts::SIGTERM, shared.over.clone())?;
    std::thread::scope(|scope| {
        for work in [echo, set_up, machine_set_up, stream] {
            let shared = &shared;
            scope.spawn(move || {
                if let Err(error) = work(server, shared) {
                    println!("failed: {error:#}");
                    std::process::exit(1);
                }
            });
        }
        while shared.goes_on() {
            std::thread::sleep(PRINT_EVERY);
            print(&shared);
        }
    });
    println!("whole");
    Ok(())
}

fn print(shared: &Shared) {
    let take = |list: &Mutex<Vec<u64>>| std::mem::take(&mut *list.lock().expect("no thread has panicked"));
    let (echo, setup, machine) = (take(&shared.echo), take(&shared.setup), take(&shared.machine));
    let line = json!({"echo": echo, "setup": setup, "machine": machine, "sent": shared.sent.load(SeqCst)});
    // A reader that is gone is no reason to panic.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn echo(server: SocketAddr, shared: &Shared) -> Result<()> {
    let mut stream = open(server, ECHO).context("echo")?;
    let mut message = [7; MESSAGE];
    while shared.goes_on() {
        let begin = Instant::now();
        stream.write_all(&message).context("echo, send")?;
        stream.read_exact(&mut message).context("echo, receive")?;
        note(&shared.echo, begin);
        std::thread::sleep(ECHO_EVERY);
    }
    Ok(())
}

fn set_up(server: SocketAddr, shared: &Shared) -> Result<()> {
    while shared.goes_on() {
        let begin = Instant::now();
        let mut stream = open(server, ONCE).context("set-up")?;
        stream.read_exact(&mut [0]).context("set-up, answer")?;
        note(&shared.setup, begin);
        std::thread::sleep(CONNECT_EVERY);
    }
    Ok(())
}

/// A connection of one byte by the kernel alone: what is slower here than at other times is caused by the machine.
fn machine_set_up(_: SocketAddr, shared: &Shared) -> Result<()> {
    let own = UnixAddr::from_abstract_name(format!("crosslane-honest-{}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&own)?;
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || stream.read_exact(&mut [0]).and_then(|()| stream.write_all(&[ONCE])));
        }
    });
    while shared.goes_on() {
        let begin = Instant::now();
        let mut stream = UnixStream::connect_addr(&own).context("machine, connect")?;
        stream.write_all(&[ONCE])?;
        stream.read_exact(&mut [0]).context("machine, answer")?;
        note(&shared.machine, begin);
        std::thread::sleep(CONNECT_EVERY);
    }
    Ok(())
}

fn stream(server: SocketAddr, shared: &Shared) -> Result<()> {
    let mut stream = open(server, STREAM).context("stream")?;
    let mut at = 0_u64;
    while shared.goes_on() {
        let piece: Vec<u8> = (at..).take(PIECE).map(byte_at).collect();
        stream.write_all(&piece).with_context(|| format!("stream, after {at} bytes"))?;
        at += piece.len() as u64;
        shared.sent.store(at, SeqCst);
        std::thread::sleep(STREAM_EVERY);
    }
    stream.shutdown(Shutdown::Write).context("stream, end")?;
    let mut count = [0; 8];
    stream
        .read_exact(&mut count)
        .context("stream: the server found a wrong byte, or the stream ended early")?;
    let count = u64::from_le_bytes(count);
    ensure!(count == at, "stream: {count} bytes of {at} arrived");
    Ok(())
}

fn open(server: SocketAddr, kind: u8) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server).context("connect")?;
    stream.set_nodelay(true)?;
    stream.write_all(&[kind])?;
    Ok(stream)
}

fn note(list: &Mutex<Vec<u64>>, begin: Instant) {
    let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    list.lock().expect("no thread has panicked").push(ns);
}
