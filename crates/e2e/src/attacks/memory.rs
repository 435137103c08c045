//! Zero-copy descriptors by which a client would make a server of root read a third user's memory for it: in the form
//! that once named a process, and in the present one with every number that may be wrong.

use super::{LIFE, begun};
use crate::raw::{self, Program};
use anyhow::{Context, Result, anyhow, ensure};
use crosslane_shm::Store;
use crosslane_wire::BufferId;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::SRC_OFF;
use crosslane_wire::zcopy::{Descriptor, LONGEST, word};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Content of the victim's memory. No client ever sends it.
const SECRET: &[u8; 32] = b"nobody but its owner knows this!";
/// Bytes of the victim's secrets, and of a range of its memory that is all zeros.
const MUCH: usize = 2 << 20;
/// Bytes of what the server sends that are looked at; nobody makes room for more.
const SEEN: usize = 128 << 10;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(30);
/// The first byte of a connection that the server is to echo, and of one that asks for a byte back.
const ECHO: &[u8] = b"e";
const ONCE: &[u8] = b"o";

/// The victim: prints its number and where its secrets and its zeros lie.
///
/// # Errors
/// None.
pub fn victim(_words: &[String]) -> Result<()> {
    let (secrets, zeros) = (SECRET.repeat(MUCH / SECRET.len()), vec![0_u8; MUCH]);
    begun();
    let places = [&secrets, &zeros].map(|memory| black_box(memory).as_ptr() as u64);
    println!("victim {} {} {} end", std::process::id(), places[0], places[1]);
    std::thread::sleep(LIFE);
    black_box((secrets, zeros));
    Ok(())
}

/// `ADDRESS PORT PID SECRETS ZEROS`: attacks the server there, which echoes what it reads, and prints what it got.
///
/// # Errors
/// There are no streams, or the server does not answer any more.
pub fn run(words: &[String]) -> Result<()> {
    let [address, port, pid, secrets, zeros] = words else { anyhow::bail!("ADDRESS PORT PID SECRETS ZEROS") };
    let server = SocketAddr::new(address.parse()?, port.parse()?);
    let (pid, secrets, zeros): (u64, u64, u64) = (pid.parse()?, secrets.parse()?, zeros.parse()?);
    let program = Program::greet("memory")?;
    echoes(&program, server)?;
    begun();
    let (mut tried, mut stolen) = (0, 0);
    let mut attack = |descriptor: &[u8], games: bool| -> Result<()> {
        tried += 1;
        stolen += usize::from(steals(&program, server, descriptor, games)?);
        Ok(())
    };
    // Once: the process, an address of it, and zeros as the proof, which fit each sparse page.
    for of_process in [pid, pid | 1 << 32] {
        for at in [secrets, secrets + 4096, 0, u64::MAX - 8192] {
            attack(&words_of(&[1 | (1 << 31 | 65536) << 32, of_process, at, 0, zeros, 1]), false)?;
        }
    }
    for descriptor in wild(pid, secrets) {
        attack(&descriptor.encode(), false)?;
        attack(&descriptor.encode(), true)?;
    }
    serves(server)?;
    println!("stolen {stolen} of {tried} end");
    Ok(())
}

/// Descriptors of this form that no honest program makes.
fn wild(pid: u64, address: u64) -> Vec<Descriptor> {
    let good = Descriptor { sequence: 1, len: 65536, buffer: BufferId(1), at: 0, line: 0, units: 1 };
    let mut all = Vec::new();
    for buffer in [0, 1, 2, 3, pid, address, u64::MAX, 1 << 63].map(BufferId) {
        for (at, len) in [
            (0, 65536),
            (0, LONGEST),
            (address, 65536),
            (u64::MAX - 65536, 65536),
            (u64::MAX, 65536),
            (0, 0),
            (0, u32::MAX),
        ] {
            all.push(Descriptor { buffer, at, len, ..good });
        }
        all.push(Descriptor { buffer, sequence: 0, ..good });
        all.push(Descriptor { buffer, sequence: u32::MAX, units: u64::MAX, line: u32::MAX, ..good });
    }
    all
}

/// A stream of the server echoes what an honest descriptor sends, so an attack that gets nothing was understood.
fn echoes(program: &Program, server: SocketAddr) -> Result<()> {
    let mut end = program.announce(server)?;
    end.connect()?;
    end.push(Kind::Data, &[ECHO, &[0xa7; 64]].concat())?;
    let until = Instant::now() + LIFE / 6;
    while !end.inbound(SEEN).windows(48).any(|bytes| bytes == [0xa7; 48]) {
        ensure!(Instant::now() < until, "the server does not echo by a stream");
        end.wake()?;
        std::thread::sleep(PATIENCE);
    }
    Ok(())
}

/// Whether the server sends some of the secrets back after this descriptor.
fn steals(program: &Program, server: SocketAddr, descriptor: &[u8], games: bool) -> Result<bool> {
    let mut end = announced(program, server)?;
    end.connect()?;
    let payload = [descriptor, ECHO].concat();
    end.push(Kind::SrcAvail, &payload)?;
    if games {
        // Taken back, announced again under the same number, with a record behind it, and an offer of memory that is none.
        end.grant.segments.outbound.store_u64(SRC_OFF, word(1, 0));
        end.push(Kind::SrcAvail, &payload)?;
        end.push(Kind::Data, &[b'x'; 128])?;
        end.push(Kind::SinkAvail, &payload)?;
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        end.wake()?;
        std::thread::sleep(PATIENCE / 10);
    }
    Ok(has_secret(&end.inbound(SEEN)))
}

/// One more end; where stores are under way for a while, earlier ones still count against the user's quota.
fn announced(program: &Program, server: SocketAddr) -> Result<raw::End<'_>> {
    let until = Instant::now() + LIFE / 6;
    loop {
        match program.try_announce(server)? {
            Err(Plain::Refused(Refusal::Quota)) if Instant::now() < until => std::thread::sleep(PATIENCE),
            outcome => return outcome.map_err(|why| anyhow!("no circuit: {why:?}")),
        }
    }
}

/// Whether these bytes of a ring have some of the secret, of which each message of 64 bytes has half or more in one line.
fn has_secret(bytes: &[u8]) -> bool {
    bytes.chunks_exact(64).any(|line| line.windows(16).any(|bytes| bytes == &SECRET[..16]))
}

/// The server still answers others.
fn serves(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(server).context("the server is gone")?;
    stream.write_all(ONCE)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).context("the server does not answer")?;
    ensure!(answer == ONCE, "the server answers {answer:?}");
    Ok(())
}

fn words_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
