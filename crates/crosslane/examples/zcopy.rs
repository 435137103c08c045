//! Zero copy by two programs: `serve ADDRESS` receives and answers, `send ADDRESS copied|posted LEN` sends as fast as it can for
//! a second, `ask ADDRESS copied|offered LEN` asks for answers of that length. docs/sdp.md shows it in a lab.

use crosslane::fabric::Fabric;
use crosslane::stream::Stream;
use crosslane::stream::{Buffer, OpenBuffer};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

/// How long a measurement takes.
const TIME: Duration = Duration::from_secs(1);
/// Buffers that are used by turns.
const BUFFERS: usize = 8;
/// First byte of a request: how many bytes the answer is to have follows in 8 bytes.
const ASK: u8 = 1;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address.parse()?),
        ["send", address, how, len] => send(address.parse()?, how, len.parse()?),
        ["ask", address, how, len] => ask(address.parse()?, how, len.parse()?),
        _ => Err(
            "usage: zcopy serve ADDRESS | send ADDRESS copied|posted LEN | ask ADDRESS copied|offered LEN"
                .into(),
        ),
    }
}

fn serve(address: SocketAddr) -> Outcome {
    let listener = Fabric::open()?.listen(address)?;
    loop {
        let stream = listener.accept()?;
        let began = cpu();
        let mut received = 0;
        match answer(&stream, &mut received) {
            Ok(()) => println!("{received} bytes, {:.3} s of processor", (cpu() - began).as_secs_f64()),
            Err(error) => println!("{error}"),
        }
    }
}

fn answer(stream: &Stream, received: &mut u64) -> Outcome {
    let (mut buffer, reply) = (vec![0; 1 << 20], vec![7; 1 << 20]);
    loop {
        let count = stream.receive(&mut buffer)?;
        *received += count as u64;
        match buffer[..count] {
            [] => return Ok(()),
            [ASK, a, b, c, d, e, f, g, h] => {
                let len = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                stream.send(&reply[..usize::try_from(len)?.min(reply.len())])?;
            }
            _ => {}
        }
    }
}

fn send(address: SocketAddr, how: &str, len: usize) -> Outcome {
    let stream = Fabric::open()?.connect(address)?;
    let (began, processor, mut sent) = (Instant::now(), cpu(), 0);
    let mut free: Vec<Buffer> = (0..BUFFERS).map(|_| Buffer::new(len)).collect::<Result<_, _>>()?;
    let copied = vec![0; len];
    while began.elapsed() < TIME {
        if how == "posted" {
            let buffer = match free.pop() {
                Some(buffer) => buffer,
                None => stream.reclaim()?.ok_or("no buffer came back")?,
            };
            stream.post(buffer, len)?;
            free.extend(stream.try_reclaim()?);
        } else {
            stream.send(&copied)?;
        }
        sent += len as u64;
    }
    stream.flush()?;
    let (time, processor) = (began.elapsed().as_secs_f64(), (cpu() - processor).as_secs_f64());
    stream.finish()?;
    println!("{how}: {:.2} GB/s, {sent} bytes, {processor:.3} s of processor", gigabytes(sent) / time);
    let how = stream.statistics().sent;
    println!(
        "  {} bytes were fetched by the far program, {} announcements taken back",
        how.read_zcopy, how.cancelled
    );
    Ok(())
}

fn ask(address: SocketAddr, how: &str, len: usize) -> Outcome {
    let stream = Fabric::open()?.connect(address)?;
    let (offered, mut copied) = (OpenBuffer::new(len)?, vec![0; len]);
    let mut request = [ASK; 9];
    request[1..].copy_from_slice(&(len as u64).to_le_bytes());
    let (began, mut answers) = (Instant::now(), 0u64);
    while began.elapsed() < TIME {
        if how == "offered" {
            let mut got = stream.transact(&request, &offered)?;
            while got < len {
                got += stream.receive_offered(&offered)?;
            }
        } else {
            stream.send(&request)?;
            stream.receive_all(&mut copied)?;
        }
        answers += 1;
    }
    println!("{how}: {:.0} ns an answer", began.elapsed().as_secs_f64() * 1e9 / count(answers));
    Ok(())
}

fn gigabytes(bytes: u64) -> f64 {
    count(bytes) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn count(number: u64) -> f64 {
    number as f64
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
