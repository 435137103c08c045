//! The programs of the soak: `crosslane-flow server PORT`, and `crosslane-flow client ADDRESS PORT SEED LEN`.
//!
//! The client sends LEN bytes that follow from SEED and waits until the server has had them all; it prints `whole`, or
//! why not, and exits with 0 or 2. The server compares each byte and prints a line of JSON for each connection:
//! `{"seed", "len", "at", "end"}`, `end` one of `whole`, `short` (in order, too early), `reset`, `wrong`.

use anyhow::{Result, bail, ensure};
use crosslane_e2e::payload;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::ExitCode;

/// Bytes that follow from one number; also the length of a write.
const PIECE: usize = 64 * 1024;

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["server", port] => serve(port.parse()?),
        ["client", address, port, seed, len] => {
            Ok(match send((*address, port.parse()?), seed.parse()?, len.parse()?) {
                Ok(()) => {
                    println!("whole");
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    println!("not whole: {error:#}");
                    ExitCode::from(2)
                }
            })
        }
        _ => bail!("server PORT, or client ADDRESS PORT SEED LEN"),
    }
}

fn send(to: (&str, u16), seed: u64, len: u64) -> Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(&seed.to_le_bytes())?;
    stream.write_all(&len.to_le_bytes())?;
    for (number, count) in pieces(len) {
        stream.write_all(&piece(seed, number)[..count])?;
    }
    let mut confirmed = [0; 8];
    stream.read_exact(&mut confirmed)?;
    ensure!(u64::from_le_bytes(confirmed) == len, "{} bytes were confirmed", u64::from_le_bytes(confirmed));
    Ok(())
}

fn serve(port: u16) -> Result<ExitCode> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::spawn(move || receive(stream));
    }
}

fn receive(mut stream: TcpStream) {
    let (mut head, mut at) = ([0; 16], 0);
    let end = match stream.read_exact(&mut head) {
        Ok(()) => compare(&mut stream, head, &mut at),
        Err(error) => ending_of(&error),
    };
    let (seed, len) = words(head);
    if end == "whole" {
        // The client may have been killed meanwhile.
        let _ = stream.write_all(&len.to_le_bytes());
    }
    let _ = writeln!(std::io::stdout(), "{}", json!({"seed": seed, "len": len, "at": at, "end": end}));
}

fn compare(stream: &mut TcpStream, head: [u8; 16], at: &mut u64) -> &'static str {
    let (seed, len) = words(head);
    let mut buffer = vec![0; PIECE];
    for (number, count) in pieces(len) {
        let (expected, mut have) = (piece(seed, number), 0);
        while have < count {
            match stream.read(&mut buffer[..count - have]) {
                Ok(0) => return "short",
                Ok(got) if buffer[..got] != expected[have..have + got] => return "wrong",
                Ok(got) => {
                    have += got;
                    *at += got as u64;
                }
                Err(error) => return ending_of(&error),
            }
        }
    }
    "whole"
}

fn ending_of(error: &std::io::Error) -> &'static str {
    if error.kind() == ErrorKind::UnexpectedEof { "short" } else { "reset" }
}

fn words(head: [u8; 16]) -> (u64, u64) {
    let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    (word(0), word(8))
}

fn piece(seed: u64, number: u64) -> Vec<u8> {
    payload::bytes(seed ^ number.wrapping_mul(0x9e37_79b9), PIECE)
}

/// The pieces of `len` bytes: number, and length of each.
fn pieces(len: u64) -> impl Iterator<Item = (u64, usize)> {
    let whole = PIECE as u64;
    (0..len.div_ceil(whole)).map(move |number| {
        let left = len - number * whole;
        (number, usize::try_from(left).map_or(PIECE, |left| left.min(PIECE)))
    })
}
