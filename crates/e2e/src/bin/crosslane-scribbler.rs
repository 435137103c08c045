//! A program that gets a circuit in order and then writes rubbish into its segment: for tests.
//!
//! `crosslane-scribbler ADDRESS PORT KIND SEED`, KIND one of `header`, `kind`, `order`, `credit`, `noise`. Prints
//! `scribbled` and stays until it is killed.

use anyhow::{Result, bail};
use crosslane_e2e::payload;
use crosslane_e2e::raw::{End, HELLO, Program, ring};
use crosslane_shm::Store;
use crosslane_wire::record::{Header, Kind, MAX_PAYLOAD};
use crosslane_wire::segment::{CREDIT, LINE, STATE, WANT_DATA, WANT_ROOM};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest life if nobody kills it.
const LIFE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, port, kind, seed] = words.as_slice() else { bail!("ADDRESS PORT KIND SEED") };
    let remote = SocketAddr::new(address.parse::<IpAddr>()?, port.parse()?);
    let program = Program::greet("scribbler")?;
    let end = program.announce(remote)?;
    // The far side looks at credits only when its ring is full, so these must be there before it begins to send.
    let early = kind == "credit";
    if early {
        scribble(&end, kind, seed.parse()?)?;
    }
    end.connect()?;
    if !early {
        scribble(&end, kind, seed.parse()?)?;
        end.wake()?;
    }
    writeln!(std::io::stdout(), "scribbled")?;
    std::thread::sleep(LIFE);
    Ok(())
}

/// Words that no proper program writes.
fn scribble(end: &End<'_>, kind: &str, seed: u64) -> Result<()> {
    let segment = &end.grant.segments.outbound;
    let long = Header { len: u32::try_from(MAX_PAYLOAD)? + 1, kind: Kind::Data, flags: 0, cpu: 0 };
    match kind {
        "header" => end.put(LINE, long.to_word()),
        "kind" => end.put(LINE, 10 | 77 << 32),
        "order" => end.put(LINE, HELLO.to_word()),
        "credit" => {
            let data = Header { len: 5, kind: Kind::Data, flags: 0, cpu: 0 };
            segment.write(ring(LINE)? + 16, b"12345");
            segment.store_u64(CREDIT, u64::MAX);
            segment.store_u64(WANT_DATA, u64::MAX);
            segment.store_u64(WANT_ROOM, u64::MAX);
            end.put(LINE, data.to_word());
        }
        "noise" => {
            segment.write(0, &payload::bytes(seed, segment.len()));
            end.put(LINE, seed | 1 << 31);
            segment.store_u32(STATE, u32::MAX);
        }
        other => bail!("no kind of rubbish: {other}"),
    }
    segment.fence();
    Ok(())
}
