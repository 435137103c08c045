//! A neighbour in the place of a host's daemon, which sends messages and packets in the names of others as fast as they
//! are accepted; and a program with the right to raw sockets.

use super::{LIFE, begun};
use anyhow::{Context, Result, bail};
use crosslane_node::cable::{Cable, CableEvent};
use crosslane_node::config::Config;
use crosslane_wire::control::{Control, LinkState, Seal};
use crosslane_wire::packet::{Head, Target};
use crosslane_wire::{HostId, PortId};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with,
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Instant;

/// Datagrams with an IP header of the sender's.
const RAW: Protocol = Protocol::from_raw(NonZeroU32::new(255).expect("not zero"));
/// Hosts in whose name messages are sent, some of which do not exist.
const NAMES: u16 = 6;

/// `CONFIGURATION`: poses as the host of this file at its first port.
///
/// # Errors
/// The cable cannot be opened, or does not come up.
pub fn run(words: &[String]) -> Result<()> {
    let file = words.first().context("CONFIGURATION")?;
    let config = Config::read(Path::new(file))?;
    let (me, port) = (config.addresses.me, config.ports.first().context("no port")?.clone());
    let (mut cable, start) = (Cable::open(PortId(0), me, port)?, Instant::now());
    let (mut buffer, mut seen, mut round) = (Vec::new(), Vec::new(), 0_u64);
    let mut is_up = false;
    while start.elapsed() < LIFE {
        while let Some(event) = cable.poll_event(start.elapsed()) {
            if matches!(event, CableEvent::Up(_)) && !std::mem::replace(&mut is_up, true) {
                begun();
            }
        }
        while let Some(message) = cable.receive(&mut buffer) {
            if let Control::LinkStates(records) = message {
                seen = records;
            }
        }
        if cable.agreement().is_none() || !cable.has_room() {
            std::thread::yield_now();
            cable.flush();
            continue;
        }
        round += 1;
        for message in messages(round, me, &seen) {
            cable.send(&message);
        }
        for packet in packets(&config, me) {
            cable.send_ip(HostId(0), &packet);
        }
        cable.flush();
    }
    Ok(())
}

/// The forgeries of one round: a record of every name, earlier received messages, a probe, requests for bells.
fn messages(round: u64, me: HostId, seen: &[LinkState]) -> Vec<Control> {
    let forged = (1..=NAMES).map(HostId).filter(|origin| *origin != me).map(|origin| LinkState {
        origin,
        incarnation: [u64::MAX, u64::MAX / 2, round.wrapping_mul(0x9e37_79b9_7f4a_7c15)]
            [(round % 3) as usize],
        sequence: u64::MAX - round % 5,
        neighbours: if round.is_multiple_of(2) { vec![] } else { vec![me] },
        age: 0,
        seal: Some(Seal([7; 32], [9; 32])),
    });
    let own = LinkState {
        origin: me,
        incarnation: 1 << 61,
        sequence: round,
        neighbours: (1..=NAMES).map(HostId).filter(|host| *host != me).collect(),
        age: 0,
        seal: None,
    };
    let probe = |from, to| Control::Echo { from, to, token: round, ttl: 255, stamp: 0, reply: false };
    vec![
        Control::LinkStates(forged.collect()),
        Control::LinkStates(vec![own]),
        Control::LinkStates(seen.to_vec()),
        probe(HostId(1), HostId(2)),
        probe(me, HostId(1)),
        Control::Alive { reply: false },
    ]
}

/// Datagrams for every name from every name and from elsewhere, in our name and in theirs.
fn packets(config: &Config, me: HostId) -> Vec<Vec<u8>> {
    let sources = (1..=NAMES).map(|host| v4(config, HostId(host))).chain([Ipv4Addr::new(8, 8, 8, 8)]);
    let mut packets = Vec::new();
    for source in sources.filter(|source| *source != v4(config, me)) {
        for (to, from) in [(1, me.0), (2, me.0), (2, 1), (2, 2)] {
            let to = HostId(to);
            let ip = datagram(source, v4(config, to), 9);
            let mut message = [vec![0; crosslane_wire::packet::HEAD], ip].concat();
            Head { hops: 255, to: Target::Host(to), from: HostId(from) }.write(&mut message);
            packets.push(message);
        }
    }
    packets
}

fn v4(config: &Config, host: HostId) -> Ipv4Addr {
    match config.addresses.of_family(host, true) {
        std::net::IpAddr::V4(ip) => ip,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// `SOURCE DESTINATION:PORT`: sends datagrams by a raw socket, which take any source.
///
/// # Errors
/// There is no right to raw sockets.
pub fn raw(words: &[String]) -> Result<()> {
    let [source, destination] = words else { bail!("SOURCE DESTINATION:PORT") };
    let (source, destination): (Ipv4Addr, SocketAddrV4) = (source.parse()?, destination.parse()?);
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(RAW))?;
    let packet = datagram(source, *destination.ip(), destination.port());
    begun();
    for _ in 0..100 {
        sendto(&socket, &packet, SendFlags::empty(), &destination)?;
    }
    println!("sent");
    Ok(())
}

/// A datagram without payload and without checksums: a kernel that sends it fills in those of IP.
fn datagram(source: Ipv4Addr, destination: Ipv4Addr, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    [&head[..], &source.octets(), &destination.octets(), &[9, 9, high, low, 0, 8, 0, 0]].concat()
}

/// `ADDRESS:PORT`: prints the sources of received datagrams.
///
/// # Errors
/// The address cannot be bound.
pub fn receive(words: &[String]) -> Result<()> {
    let address: SocketAddr = words.first().context("ADDRESS:PORT")?.parse()?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &address).context("bind")?;
    begun();
    let mut bytes = [0; 100];
    loop {
        let (_, _, from) = recvfrom(&socket, &mut bytes, RecvFlags::empty())?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok()).context("from nobody")?;
        println!("from {}", from.ip());
    }
}
