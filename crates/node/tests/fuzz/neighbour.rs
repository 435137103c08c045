//! A neighbour that says anything in its control channel, stores anything into its channels, scratchpads and doorbells,
//! and sends anything as packets: its own cable may be lost, and nothing else.
//!
//! A daemon keeps a cable down for a second whose peer broke the rules, so there are several such neighbours.

use crate::fds::Kind;
use crate::tap::{Grip, tap};
use crate::world::{Session, TestPort, World, hello, until};
use bolero::TypeGenerator;
use crosslane_node::cable::{Cable, CableEvent};
use crosslane_node::config::{PortConfig, PortKind};
use crosslane_port::Port;
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_shm::Store;
use crosslane_wire::control::{Closing, Control, Doorbell, Handed, LinkState, Refusal, Resumption, Seal};
use crosslane_wire::local::Request;
use crosslane_wire::segment::{CREDIT, RING, WANT_DATA, WANT_ROOM, segment_len};
use crosslane_wire::{BufferId, ChannelId, HostId, PortId, Reach, SegmentRange, Tuple, WaiterId};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// The cables of the neighbours.
const LIARS: [&str; 12] = ["l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8", "l9", "l10", "l11"];
/// The host id of the first of them.
const FIRST: u16 = 10;
/// Most descriptors and messages of one input.
const MOST: usize = 64;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Say(Message),
    /// Asks for a circuit as an honest neighbour would, and hears the answer.
    Open {
        port: u8,
        known: bool,
    },
    /// Hears what is said.
    Hear,
    /// A program of the daemon's host connects to ours: the daemon asks us for a circuit.
    Dial(u8),
    Packet(Head, Vec<u8>),
    Raw {
        channel: bool,
        at: At,
        word: u64,
    },
    Scratchpad(u8, u32),
    Ring(u32),
    Carve,
    Free(u8),
    Waker,
    /// The cable is pulled out and put in again.
    Again,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Message {
    LinkStates(Vec<State>),
    Open {
        channel: Channel,
        client: Peer,
        server: Peer,
        segment: Segment,
        stream: u8,
        passed: u8,
        route: Vec<u8>,
        resume: Option<u32>,
        pumps: u8,
        twin_of: u8,
    },
    Opened {
        channel: Channel,
        peer: Channel,
        segment: Segment,
        arrived: u64,
        pumps: u8,
    },
    Arrived {
        channel: Channel,
        units: u64,
    },
    Refused(Channel, u8),
    Closed(Channel, u8),
    WantWaker(Channel, u32),
    Waker(Channel, u32, Option<u8>),
    Ring(Channel, u32),
    ImportBuffer(Channel, u8),
    Buffer {
        channel: Channel,
        buffer: u8,
        handed: Option<(u8, u64, bool)>,
    },
    Echo {
        from: u8,
        to: u8,
        token: u64,
        ttl: u8,
        reply: bool,
    },
    Alive(bool),
    Goodbye,
}

#[derive(Clone, Debug, TypeGenerator)]
struct State {
    origin: u8,
    incarnation: u64,
    sequence: u64,
    neighbours: Vec<u8>,
    age: u16,
    seal: Option<u8>,
}

/// A channel that was heard of, or any.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Channel {
    Known(u8),
    Ours(u8),
    Any(u64),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Peer {
    Us(u8),
    /// The daemon's host, at the listener that is there.
    Listener,
    Daemon(u8),
    Host(u8, u8),
    Any([u8; 4], u16),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Segment {
    /// One that was carved.
    Good(u8),
    Pages {
        first: u16,
        count: u16,
    },
    Any {
        offset: u64,
        len: u64,
    },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Head {
    hops: u8,
    to: u8,
    from: u8,
    /// Whether it is an IPv4 packet with these as its addresses.
    sound: bool,
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum At {
    Credit,
    WantData,
    WantRoom,
    Record(u8, bool),
    Any(u16),
}

/// One neighbour.
struct Liar {
    cable: Cable,
    grip: Grip,
    start: Instant,
    host: HostId,
    up: bool,
}

impl Liar {
    fn new(world: &World, number: usize) -> Self {
        let name = LIARS[number];
        let mut soft = SoftConfig::new(world.path(name));
        soft.window_bytes = 1 << 30;
        let (port, grip) = tap(SoftPort::connect(soft).unwrap());
        let config = PortConfig {
            name: name.to_owned(),
            kind: PortKind::Soft,
            cable: world.path(name),
            listens: false,
            window: 64 << 20,
            mode: 0o600,
            cut: false,
        };
        let host = HostId(FIRST + u16::try_from(number).unwrap());
        let cable = Cable::with_port(PortId(0), host, config, Box::new(port)).unwrap();
        Self { cable, grip, start: Instant::now(), host, up: false }
    }

    fn poll(&mut self) {
        while let Some(event) = self.cable.poll_event(self.start.elapsed()) {
            match event {
                CableEvent::Up(_) => self.up = true,
                CableEvent::Down(..) => self.up = false,
                CableEvent::Refused(_) | CableEvent::Missing(_) => {}
            }
        }
    }

    fn say(&mut self, message: &Control) {
        self.cable.send(message);
        self.cable.flush();
        self.poll();
    }
}

/// What one neighbour does in one input, and knows.
struct Act<'a> {
    liar: &'a mut Liar,
    world: &'a World,
    listener: SocketAddr,
    known: Vec<ChannelId>,
    segments: Vec<(SegmentRange, crosslane_shm::Segment)>,
    sessions: Vec<(Session, OwnedFd)>,
}

impl Act<'_> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Say(message) => {
                let message = self.message(message);
                self.liar.say(&message);
            }
            Step::Open { port, known } => self.open(*port, *known),
            Step::Hear => self.hear(),
            Step::Dial(port) => self.dial(*port),
            Step::Packet(head, bytes) => {
                self.liar.cable.send_ip(HostId(1), &self.packet(*head, bytes));
                self.liar.cable.flush();
            }
            Step::Raw { channel, at, word } => {
                if let Some(segment) = self.liar.grip.mapped().get(usize::from(*channel)) {
                    let at = at.offset() % (Store::len(segment) - 8);
                    segment.store_u64(at & !7, *word);
                }
            }
            Step::Scratchpad(at, word) => {
                self.liar.grip.port().write_peer_scratchpad(usize::from(at % 8), *word);
            }
            Step::Ring(bits) => self.liar.grip.port().ring_peer_doorbell(*bits),
            Step::Carve => self.carve(),
            Step::Free(at) => {
                if !self.segments.is_empty() {
                    let (range, _) = self.segments.swap_remove(usize::from(*at) % self.segments.len());
                    self.liar.cable.free_inbound(range);
                }
            }
            Step::Waker => {
                let waker = crosslane_shm::wake::Receiver::new().unwrap().waker().unwrap();
                drop(self.liar.grip.port().export_waker(waker.as_fd(), waker.word()));
            }
            Step::Again => {
                self.liar.cable.cut();
                self.liar.poll();
                self.liar.cable.mend();
            }
        }
        self.liar.poll();
    }

    fn carve(&mut self) {
        if self.segments.len() < MOST
            && let Ok(segment) = self.liar.cable.carve_inbound(segment_len(1 << 16))
        {
            self.segments.push(segment);
        }
    }

    fn open(&mut self, port: u8, known: bool) {
        self.carve();
        let last = u8::try_from(self.segments.len().saturating_sub(1)).unwrap();
        let server = if known { Peer::Listener } else { Peer::Daemon(port) };
        let open = self.message(&Message::Open {
            channel: Channel::Ours(port),
            client: Peer::Us(port),
            server,
            segment: Segment::Good(last),
            stream: port,
            passed: 0,
            route: Vec::new(),
            resume: None,
            pumps: 0,
            twin_of: 0,
        });
        self.liar.say(&open);
        self.hear();
    }

    /// Takes what is there; what comes later is heard later.
    fn hear(&mut self) {
        let mut buffer = Vec::new();
        for _ in 0..MOST {
            self.liar.poll();
            match self.liar.cable.receive(&mut buffer) {
                Some(Control::Open { channel, .. } | Control::Opened { peer: channel, .. }) => {
                    self.known.push(channel);
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    fn dial(&mut self, port: u8) {
        let control = self.world.control(1);
        let Some(session) = Session::connect(&control, None).filter(|_| self.sessions.len() < 4) else {
            return;
        };
        session.tell(&hello(), &[]);
        let bound = Kind::Bound(crate::fds::Address::Own(0)).make(None).pop();
        let remote = self.address(Peer::Us(port));
        if let Some(socket) = bound {
            session.tell(&Request::Connect { remote }, &[socket.as_fd()]);
            self.sessions.push((session, socket));
        }
    }

    fn packet(&self, head: Head, bytes: &[u8]) -> Vec<u8> {
        let host = |small: u8| if small == 0 { self.liar.host.0 } else { u16::from(small) };
        let [to, from] = [host(head.to).to_le_bytes(), host(head.from).to_le_bytes()];
        let mut packet = vec![head.hops, 0, to[0], to[1], from[0], from[1]];
        if head.sound {
            let mut ip = [0; 30];
            ip[10..12].copy_from_slice(&[0x45, 0]);
            ip[22..26].copy_from_slice(&[127, 86, 0, from[0]]);
            ip[26..30].copy_from_slice(&[127, 86, 0, to[0]]);
            packet.extend(ip);
        }
        packet.extend(bytes);
        packet
    }

    fn channel(&self, channel: Channel) -> ChannelId {
        match channel {
            Channel::Known(at) => {
                let known = self.known.get(usize::from(at) % self.known.len().max(1));
                known.copied().unwrap_or(ChannelId(at.into()))
            }
            Channel::Ours(at) => ChannelId(1000 + u64::from(at)),
            Channel::Any(number) => ChannelId(number),
        }
    }

    fn address(&self, peer: Peer) -> SocketAddr {
        let few = |port: u8| 1000 + u16::from(port % 16);
        let (ip, port) = match peer {
            Peer::Us(port) => (Ipv4Addr::new(127, 86, 0, u8::try_from(self.liar.host.0).unwrap()), few(port)),
            Peer::Listener => return self.listener,
            Peer::Daemon(port) => (Ipv4Addr::new(127, 86, 0, 1), few(port)),
            Peer::Host(host, port) => (Ipv4Addr::new(127, 86, 0, host), few(port)),
            Peer::Any(ip, port) => (ip.into(), port),
        };
        (ip, port).into()
    }

    fn segment(&self, segment: Segment) -> SegmentRange {
        match segment {
            Segment::Good(at) => {
                let good = self.segments.get(usize::from(at) % self.segments.len().max(1));
                good.map_or(SegmentRange::default(), |(range, _)| *range)
            }
            Segment::Pages { first, count } => {
                SegmentRange { offset: u64::from(first) * 4096, len: u64::from(count) * 4096 }
            }
            Segment::Any { offset, len } => SegmentRange { offset, len },
        }
    }

    fn message(&self, message: &Message) -> Control {
        let hosts = |list: &[u8]| list.iter().map(|host| self.host(*host)).collect();
        match message {
            Message::LinkStates(states) => Control::LinkStates(
                states
                    .iter()
                    .map(|state| LinkState {
                        origin: self.host(state.origin),
                        incarnation: state.incarnation,
                        sequence: state.sequence,
                        neighbours: hosts(&state.neighbours),
                        age: state.age,
                        seal: state.seal.map(|byte| Seal([byte; 32], [byte; 32])),
                    })
                    .collect(),
            ),
            Message::Open {
                channel,
                client,
                server,
                segment,
                stream,
                passed,
                route,
                resume,
                pumps,
                twin_of,
            } => Control::Open {
                channel: self.channel(*channel),
                tuple: Tuple { client: self.address(*client), server: self.address(*server) },
                stream: (*stream).into(),
                segment: self.segment(*segment),
                key: 1,
                passed: *passed,
                pumps: *pumps,
                route: hosts(route),
                resume: resume.map(|generation| Resumption { generation }),
                twin_of: (*twin_of).into(),
            },
            Message::Opened { channel, peer, segment, arrived, pumps } => Control::Opened {
                channel: self.channel(*channel),
                peer: self.channel(*peer),
                segment: self.segment(*segment),
                key: 1,
                arrived: *arrived,
                pumps: *pumps,
            },
            Message::Arrived { channel, units } => {
                Control::Arrived { channel: self.channel(*channel), units: *units }
            }
            Message::Refused(channel, why) => {
                let all = [Refusal::NoListener, Refusal::NoMemory, Refusal::Rule, Refusal::Unknown];
                Control::Refused { channel: self.channel(*channel), why: all[usize::from(*why) % 4] }
            }
            Message::Closed(channel, how) => {
                let all = [Closing::Done, Closing::Abort, Closing::Lost];
                Control::Closed { channel: self.channel(*channel), how: all[usize::from(*how) % 3] }
            }
            Message::WantWaker(channel, waiter) => {
                Control::WantWaker { channel: self.channel(*channel), waiter: WaiterId(*waiter) }
            }
            Message::Waker(channel, waiter, doorbell) => Control::Waker {
                channel: self.channel(*channel),
                waiter: WaiterId(*waiter),
                doorbell: doorbell.map(|handle| Doorbell { handle: handle.into(), word: 7 }),
            },
            Message::Ring(channel, waiter) => {
                Control::Wake { channel: self.channel(*channel), waiter: WaiterId(*waiter) }
            }
            Message::ImportBuffer(channel, buffer) => {
                Control::ImportBuffer { channel: self.channel(*channel), buffer: BufferId((*buffer).into()) }
            }
            Message::Buffer { channel, buffer, handed } => Control::Buffer {
                channel: self.channel(*channel),
                buffer: BufferId((*buffer).into()),
                handed: handed.map(|(handle, len, store)| Handed {
                    handle: handle.into(),
                    len,
                    reach: if store { Reach::Store } else { Reach::Load },
                }),
            },
            Message::Echo { from, to, token, ttl, reply } => Control::Echo {
                from: self.host(*from),
                to: self.host(*to),
                token: *token,
                ttl: *ttl,
                stamp: 0,
                reply: *reply,
            },
            Message::Alive(reply) => Control::Alive { reply: *reply },
            Message::Goodbye => Control::Goodbye,
        }
    }

    /// 0 is the neighbour itself.
    fn host(&self, small: u8) -> HostId {
        if small == 0 { self.liar.host } else { HostId(small.into()) }
    }
}

impl Drop for Act<'_> {
    fn drop(&mut self) {
        for (range, _) in self.segments.drain(..) {
            self.liar.cable.free_inbound(range);
        }
    }
}

impl At {
    fn offset(self) -> usize {
        match self {
            Self::Credit => CREDIT,
            Self::WantData => WANT_DATA,
            Self::WantRoom => WANT_ROOM,
            Self::Record(line, header) => RING + usize::from(line) * 64 + usize::from(header) * 8,
            Self::Any(at) => usize::from(at) * 8,
        }
    }
}

/// The daemon, its honest neighbour, and the others.
struct Town {
    world: World,
    liars: Vec<Liar>,
    next: usize,
    _server: Session,
    listener: TcpListener,
}

impl Town {
    fn new() -> Self {
        let mut near = vec![TestPort { cable: "honest", listens: true }];
        near.extend(LIARS.map(|cable| TestPort { cable, listens: true }));
        let far = [TestPort { cable: "honest", listens: false }];
        let mut world = World::start(&[&near, &far], "");
        let mut liars: Vec<Liar> = (0..LIARS.len()).map(|number| Liar::new(&world, number)).collect();
        until("all cables", || {
            liars.iter_mut().for_each(Liar::poll);
            liars.iter().all(|liar| liar.up).then_some(())
        });
        let server = until("a daemon", || Session::connect(&world.control(1), None));
        server.tell(&hello(), &[]);
        let listener = TcpListener::bind("127.86.0.1:0").unwrap();
        server.tell(&Request::Listen, &[listener.as_fd()]);
        world.join_honest(2);
        Self { world, liars, next: 0, _server: server, listener }
    }

    /// The next neighbour whose cable is up.
    fn pick(&mut self) -> usize {
        let (liars, count) = (&mut self.liars, LIARS.len());
        let begin = self.next;
        let found = until("a cable comes back", || {
            liars.iter_mut().for_each(Liar::poll);
            (begin + 1..=begin + count).map(|at| at % count).find(|at| liars[*at].up)
        });
        self.next = found;
        found
    }

    fn try_all(&mut self, steps: &[Step]) {
        let _recent = self.world.recent.begin(&steps);
        let at = self.pick();
        let listener = self.listener.local_addr().unwrap();
        let (known, segments, sessions) = (Vec::new(), Vec::new(), Vec::new());
        let mut act =
            Act { liar: &mut self.liars[at], world: &self.world, listener, known, segments, sessions };
        steps.iter().for_each(|step| act.step(step));
        drop(act);
        if self.world.is_due() {
            self.unplug();
        }
        self.world.check();
    }

    /// The neighbours go, and come again: what they took is given back then.
    fn unplug(&mut self) {
        for liar in &mut self.liars {
            liar.cable.cut();
            liar.poll();
            liar.cable.mend();
        }
    }
}

#[test]
fn anything_that_a_neighbour_says_and_stores() {
    let town = AssertUnwindSafe(std::cell::RefCell::new(Town::new()));
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(|steps| {
        town.borrow_mut().try_all(steps);
    });
    let mut town = town.borrow_mut();
    town.unplug();
    until("all cables come back", || {
        town.liars.iter_mut().for_each(Liar::poll);
        town.liars.iter().all(|liar| liar.up).then_some(())
    });
    town.world.settle();
}
