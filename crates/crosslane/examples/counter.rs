//! One-sided access by two programs: `own ADDRESS` serves memory and prints what the other needs, `ask OFFER [N]` adds to a
//! counter there N times, puts a handshake, and notifies. docs/one-sided.md shows it in a lab.

use crosslane::fabric::Fabric;
use crosslane::memory::{Access, Memory, RemoteRegion};
use crosslane::peer::Peer;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["own", address] => own(address.parse()?),
        ["ask", offer] => ask(offer, 1000),
        ["ask", offer, count] => ask(offer, count.parse()?),
        _ => Err("usage: counter own ADDRESS | counter ask OFFER [N]".into()),
    }
}

/// The counter is the first word, the handshake lies behind it.
fn own(address: IpAddr) -> Result<(), Box<dyn Error>> {
    let memory = Memory::serve(Fabric::open()?, SocketAddr::new(address, 0))?;
    let region = memory.register(4096)?;
    let RemoteRegion { id, key, len } = region.share(Access::ALL)?;
    println!("{},{id},{key},{len}", memory.address());
    while let Some(notice) = memory.notices().wait(None)? {
        let mut handshake = vec![0; usize::try_from(notice.value)?];
        region.read(8, &mut handshake)?;
        let handshake = String::from_utf8_lossy(&handshake);
        println!("counter {}, and {} says: {handshake}", region.load(0)?, notice.from.ip());
    }
    Ok(())
}

fn ask(offer: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let [address, id, key, len] = offer.split(',').collect::<Vec<_>>()[..] else {
        return Err("bad offer".into());
    };
    let remote = RemoteRegion { id: id.parse()?, key: key.parse()?, len: len.parse()? };
    let mut peer = Peer::connect(Fabric::open()?, address.parse()?)?;
    for _ in 0..count {
        peer.fetch_add(&remote, 0, 1)?;
    }
    let handshake = format!("hello from process {}", std::process::id());
    peer.put_notify(&remote, 8, handshake.as_bytes(), handshake.len() as u64)?;
    peer.flush()?;
    let mut word = [0; 8];
    peer.get(&remote, 0, &mut word)?;
    println!("the counter is {}", u64::from_ne_bytes(word));
    Ok(())
}
