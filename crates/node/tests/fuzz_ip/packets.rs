//! The target.

use crate::network;
use crate::tap::{Grip, tap};
use crate::world::{LONG, TestPort, World, until};
use bolero::TypeGenerator;
use crosslane_node::cable::{Cable, CableEvent};
use crosslane_node::config::{PortConfig, PortKind};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_wire::control::{Control, LinkState};
use crosslane_wire::packet::{HEAD, Head, Target};
use crosslane_wire::{HostId, PortId};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// The neighbours, and the host id of the first.
const CABLES: [&str; 6] = ["l0", "l1", "l2", "l3", "l4", "l5"];
const FIRST: u8 = 10;
/// Our port.
const PORT: u16 = 7000;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Packet {
        head: Sender,
        ip: Ip,
        work: [u8; 10],
        rest: Vec<u8>,
    },
    Raw(Vec<u8>),
    /// A program of ours sends.
    Send {
        to: u8,
        group: bool,
        len: u16,
    },
    Long {
        ip: Ip,
        len: u16,
        kind: u8,
        piece: u16,
    },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Sender {
    hops: u8,
    to: Host,
    from: Host,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Host {
    Us,
    Itself,
    Everybody,
    Any(u8),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Ip {
    source: Address,
    target: Address,
    protocol: u8,
    options: u8,
    fragment: u16,
    /// Whether it claims to be as long as it is.
    long: Option<u16>,
    v6: bool,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Address {
    Us,
    Itself,
    Host(u8),
    Group(u8),
    Broadcast,
    Loopback,
    Any([u8; 4]),
}

/// A hostile neighbour.
struct Liar {
    cable: Cable,
    _grip: Grip,
    start: Instant,
    host: u8,
    up: bool,
}

impl Liar {
    fn new(world: &World, number: usize) -> Self {
        let (path, host) = (world.path(CABLES[number]), FIRST + u8::try_from(number).unwrap());
        let (port, grip) = tap(SoftPort::connect(SoftConfig::new(&path)).unwrap());
        let name = CABLES[number].to_owned();
        let config = PortConfig {
            name,
            kind: PortKind::Soft,
            cable: path,
            listens: false,
            window: 64 << 20,
            mode: 0o600,
            cut: false,
        };
        let cable = Cable::with_port(PortId(0), HostId(host.into()), config, Box::new(port)).unwrap();
        Self { cable, _grip: grip, start: Instant::now(), host, up: false }
    }

    fn poll(&mut self) {
        while let Some(event) = self.cable.poll_event(self.start.elapsed()) {
            match event {
                CableEvent::Up(_) => {
                    self.up = true;
                    self.say_where();
                }
                CableEvent::Down(..) => self.up = false,
                _ => {}
            }
        }
        let mut buffer = Vec::new();
        while self.cable.receive(&mut buffer).is_some() {}
        while self.cable.receive_ip(&mut buffer).is_some() {}
        self.cable.flush();
    }

    /// Its links: to us.
    fn say_where(&mut self) {
        let (origin, neighbours) = (HostId(self.host.into()), vec![HostId(1)]);
        let incarnation = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        let state = LinkState { origin, incarnation, sequence: 1, neighbours, age: 0, seal: None };
        self.cable.send(&Control::LinkStates(vec![state]));
        self.cable.flush();
    }

    fn send(&mut self, message: &[u8]) {
        self.cable.send_ip(HostId(1), message);
        self.cable.flush();
    }

    fn host(&self, host: Host) -> u8 {
        match host {
            Host::Us => 1,
            Host::Itself => self.host,
            Host::Everybody => 0,
            Host::Any(host) => host,
        }
    }

    fn address(&self, address: Address) -> [u8; 4] {
        match address {
            Address::Us => [10, 86, 0, 1],
            Address::Itself => [10, 86, 0, self.host],
            Address::Host(host) => [10, 86, 0, host],
            Address::Group(group) => [224, 0, 0, group],
            Address::Broadcast => [10, 86, 0, 255],
            Address::Loopback => [127, 0, 0, 1],
            Address::Any(address) => address,
        }
    }

    fn header(&self, ip: Ip, payload: usize) -> Vec<u8> {
        let (source, target) = (self.address(ip.source), self.address(ip.target));
        if ip.v6 {
            let six = |four: [u8; 4]| {
                let mut bytes = [0; 16];
                bytes[..2].copy_from_slice(&[0xfd, 0x86]);
                bytes[15] = four[3];
                bytes
            };
            let len = u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, len[0], len[1], ip.protocol, 64];
            header.extend(six(source));
            header.extend(six(target));
            return header;
        }
        let words = 5 + ip.options % 4;
        let len = ip.long.unwrap_or(u16::try_from(usize::from(words) * 4 + payload).unwrap_or(u16::MAX));
        let (len, fragment) = (len.to_be_bytes(), ip.fragment.to_be_bytes());
        let mut header =
            vec![0x40 | words, 0, len[0], len[1], 0, 7, fragment[0], fragment[1], 64, ip.protocol, 0, 0];
        header.extend(source);
        header.extend(target);
        header.resize(usize::from(words) * 4, 1);
        let sum = checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        header
    }

    /// A datagram as an honest neighbour would bring it.
    fn datagram(&self, payload: &[u8]) -> Vec<u8> {
        let ip = Ip {
            source: Address::Itself,
            target: Address::Us,
            protocol: 17,
            options: 0,
            fragment: 0,
            long: None,
            v6: false,
        };
        let len = u16::try_from(8 + payload.len()).unwrap();
        let mut message = vec![0; HEAD];
        let head = Head { hops: 1, to: Target::Host(HostId(1)), from: HostId(self.host.into()) };
        head.write(&mut message);
        message.extend(self.header(ip, usize::from(len)));
        for word in [PORT, PORT, len, 0] {
            message.extend(word.to_be_bytes());
        }
        message.extend(payload);
        message
    }
}

fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

struct Town {
    world: World,
    liars: Vec<Liar>,
    socket: UdpSocket,
    next: usize,
    round: u64,
}

impl Town {
    fn new() -> Self {
        let ports = CABLES.map(|cable| TestPort { cable, listens: true });
        let mut world = World::with_interface(&[&ports]);
        let mut liars: Vec<Liar> = (0..CABLES.len()).map(|number| Liar::new(&world, number)).collect();
        until("all cables", || {
            liars.iter_mut().for_each(Liar::poll);
            liars.iter().all(|liar| liar.up).then_some(())
        });
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        world.join_honest(1);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self { world, liars, socket, next: 0, round: 0 }
    }

    fn pick(&mut self) -> usize {
        let (liars, begin, count) = (&mut self.liars, self.next, CABLES.len());
        self.next = until("a cable comes back", || {
            liars.iter_mut().for_each(Liar::poll);
            (begin + 1..=begin + count).map(|at| at % count).find(|at| liars[*at].up)
        });
        self.next
    }

    fn try_all(&mut self, steps: &[Step]) {
        let _recent = self.world.recent.begin(&steps);
        let at = self.pick();
        steps.iter().for_each(|step| self.act(at, step));
        self.check(at);
        self.world.check();
    }

    fn act(&mut self, at: usize, step: &Step) {
        let liar = &mut self.liars[at];
        match step {
            Step::Packet { head, ip, work, rest } => {
                let (to, from) = (liar.host(head.to), liar.host(head.from));
                let mut message = vec![head.hops, 0, to, 0, from, 0];
                message.extend(work);
                message.extend(liar.header(*ip, rest.len()));
                message.extend(rest);
                liar.send(&message);
            }
            Step::Long { ip, len, kind, piece } => {
                let (len, [low, high]) = (usize::from(*len), piece.to_le_bytes());
                let mut message = vec![1, 0, 1, 0, liar.host, 0, 1, *kind, 40, 0, low, high, 20, 0];
                message.extend(if ip.protocol == 17 { [6, 0] } else { [16, 0] });
                message.extend(liar.header(*ip, len));
                message.resize(message.len() + len, 0x50);
                liar.send(&message);
            }
            Step::Raw(bytes) => liar.send(bytes),
            Step::Send { to, group, len } => {
                let ip = if *group { [224, 0, 0, *to] } else { [10, 86, 0, *to] };
                let _ = self.socket.send_to(&vec![0; usize::from(*len) % 9000], SocketAddr::from((ip, PORT)));
            }
        }
        self.liars[at].poll();
    }

    /// What an honest neighbour sends arrives; whatever else did has a source that its neighbour may have.
    fn check(&mut self, at: usize) {
        self.round += 1;
        let mark = [b"honest".as_slice(), &self.round.to_le_bytes()].concat();
        let (mut buffer, end) = (vec![0; 70_000], Instant::now() + LONG);
        // Another one: a daemon may have thrown this one out.
        let mut asked = (at + 1) % CABLES.len();
        loop {
            self.liars.iter_mut().for_each(Liar::poll);
            if self.liars[asked].up {
                let message = self.liars[asked].datagram(&mark);
                self.liars[asked].send(&message);
            } else {
                asked = (asked + 1) % CABLES.len();
            }
            while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
                assert!(self.may_come(from), "a packet from {from}");
                if buffer[..len] == mark {
                    return;
                }
            }
            assert!(Instant::now() < end, "an honest neighbour's packets are lost");
        }
    }

    /// Neighbours, and programs of ours, which send by loopback.
    fn may_come(&self, from: SocketAddr) -> bool {
        let neighbour = |liar: &Liar| from.ip() == Ipv4Addr::new(10, 86, 0, liar.host);
        self.liars.iter().any(neighbour)
            || from.ip() == Ipv4Addr::new(10, 86, 0, 1)
            || from.ip().is_loopback()
    }
}

#[test]
fn any_packets_of_neighbours() {
    if !network::enter() {
        println!("SKIPPED: no network namespace with /dev/net/tun of its own: unshare is not allowed");
        return;
    }
    // Begun with the first input: who only merges inputs leaves the interface to the process that tries them.
    let town = AssertUnwindSafe(std::cell::RefCell::new(None));
    bolero::check!()
        .with_shrink_time(Duration::ZERO)
        .with_type::<Vec<Step>>()
        .for_each(|steps| town.borrow_mut().get_or_insert_with(Town::new).try_all(steps));
}
