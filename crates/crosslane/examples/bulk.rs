//! What a program's own threads pay for bulk: kernel TCP on loopback, blocking sends, and queues whose bytes the daemon's
//! engine copies, by turns. `serve` at one host (its control socket in `CROSSLANE_SOCKET`), then
//! `send NATIVE_ADDRESS LENGTH UNDER_WAY [TURNS]` at another; docs/sdp.md shows it in a lab.

use crosslane::fabric::Fabric;
use crosslane::queue::{Member, Queue};
use crosslane::stream::Stream;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How long one measurement takes.
const TIME: Duration = Duration::from_millis(500);
/// The ways that are measured.
const WAYS: [&str; 4] = ["tcp", "direct", "offload", "queue"];

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address.parse()?),
        ["send", address, len, depth] => compare(address.parse()?, [len.parse()?, depth.parse()?], 5),
        ["send", address, len, depth, turns] => {
            compare(address.parse()?, [len.parse()?, depth.parse()?], turns.parse()?)
        }
        _ => Err("usage: bulk serve ADDRESS | send ADDRESS LENGTH UNDER_WAY [TURNS]".into()),
    }
}

/// Receives by the way, in the lengths and with the depth that a sender's 24 bytes name, and tells the processor time that took, in ns.
fn serve(address: SocketAddr) -> Outcome {
    let fabric = Fabric::open()?;
    let listener = fabric.listen(address)?;
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, address.port()))?;
    loop {
        let control = listener.accept()?;
        let mut head = [0; 24];
        while control.receive_all(&mut head).is_ok() {
            let [way, len, depth] =
                [0, 8, 16].map(|at| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes));
            let (way, len) =
                (WAYS[usize::try_from(way)? % WAYS.len()], usize::try_from(len)?.clamp(1, 1 << 26));
            let spent = match way {
                "tcp" => drain_tcp(tcp.accept()?.0, len)?,
                "queue" => drain_queue(&fabric, listener.accept()?, len, depth.clamp(1, 1000))?,
                way => drain(&listener.accept()?, len, way == "offload")?,
            };
            control.send(&u64::try_from(spent.as_nanos())?.to_le_bytes())?;
        }
    }
}

fn drain_tcp(mut stream: TcpStream, len: usize) -> Outcome<Duration> {
    let (mut buffer, began) = (vec![0; len], cpu());
    while stream.read(&mut buffer)? > 0 {}
    Ok(cpu() - began)
}

fn drain(stream: &Stream, len: usize, offload: bool) -> Outcome<Duration> {
    stream.set_offload(offload);
    let (mut buffer, began) = (vec![0; len], cpu());
    while stream.receive(&mut buffer)? > 0 {}
    Ok(cpu() - began)
}

fn drain_queue(fabric: &Fabric, stream: Stream, len: usize, depth: u64) -> Outcome<Duration> {
    let (mut queue, member) = queue(fabric, stream)?;
    (0..depth).for_each(|tag| queue.receive(member, tag, vec![0; len]));
    let began = cpu();
    while let Some(done) = queue.wait()? {
        done.outcome?;
        if done.bytes < len {
            break;
        }
        queue.receive(member, done.tag, done.buffer);
    }
    Ok(cpu() - began)
}

/// What was seen in one measurement: GB/s, and ns of a byte at the sender and at the receiver.
type Seen = [f64; 3];

fn compare(address: SocketAddr, [len, depth]: [usize; 2], turns: usize) -> Outcome {
    let fabric = Fabric::open()?;
    let control = fabric.connect(address)?;
    let mut seen: [Vec<Seen>; WAYS.len()] = Default::default();
    for _ in 0..turns {
        for (at, way) in WAYS.iter().enumerate() {
            let mut head = (at as u64).to_le_bytes().to_vec();
            head.extend((len as u64).to_le_bytes());
            head.extend((depth as u64).to_le_bytes());
            control.send(&head)?;
            seen[at].push(measure(&fabric, &control, address, [len, depth], way)?);
        }
    }
    println!("{len} bytes, {depth} under way, medians of {turns}; load {}", load());
    for (way, seen) in WAYS.iter().zip(&seen) {
        let [rate, sender, receiver] = [0, 1, 2].map(|what| median(seen.iter().map(|seen| seen[what])));
        println!("{way:8} {rate:6.2} GB/s  {sender:.4} ns a byte to send, {receiver:.4} to receive");
    }
    Ok(())
}

fn measure(
    fabric: &Fabric,
    control: &Stream,
    to: SocketAddr,
    [len, depth]: [usize; 2],
    way: &str,
) -> Outcome<Seen> {
    let (began, spent, sent);
    match way {
        "tcp" => {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, to.port()))?;
            let buffer = vec![7; len];
            (began, spent) = (Instant::now(), cpu());
            sent = until_over(began, len, || Ok(stream.write_all(&buffer)?))?;
        }
        "queue" => {
            let (mut queue, member) = queue(fabric, fabric.connect(to)?)?;
            let mut free: Vec<Vec<u8>> = (0..depth).map(|_| vec![7; len]).collect();
            (began, spent) = (Instant::now(), cpu());
            sent = until_over(began, len, || {
                let buffer = match free.pop() {
                    Some(buffer) => buffer,
                    None => queue.wait()?.ok_or("nothing is under way")?.buffer,
                };
                queue.send(member, 0, buffer);
                Ok(())
            })?;
            while let Some(done) = queue.wait()? {
                done.outcome?;
            }
        }
        way => {
            let stream = fabric.connect(to)?;
            stream.set_offload(way == "offload");
            let buffer = vec![7; len];
            (began, spent) = (Instant::now(), cpu());
            sent = until_over(began, len, || Ok(stream.send(&buffer)?))?;
        }
    }
    let spent = cpu() - spent;
    let mut receiver = [0; 8];
    control.receive_all(&mut receiver)?;
    let elapsed = began.elapsed().as_secs_f64();
    let receiver = count(u64::from_le_bytes(receiver));
    Ok([count(sent) / elapsed / 1e9, spent.as_secs_f64() * 1e9 / count(sent), receiver / count(sent)])
}

/// Does `send` again and again for the time of a measurement; bytes in all.
fn until_over(began: Instant, len: usize, mut send: impl FnMut() -> Outcome) -> Outcome<u64> {
    let mut sent = 0;
    while began.elapsed() < TIME {
        send()?;
        sent += len as u64;
    }
    Ok(sent)
}

fn queue(fabric: &Fabric, stream: Stream) -> Outcome<(Queue, Member)> {
    let mut queue = Queue::new(fabric)?;
    let member = queue.add(stream)?;
    Ok((queue, member))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn count(number: u64) -> f64 {
    number as f64
}

/// The machine's load, as the kernel tells it.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
