//! A neighbour that says what it must not: its cable or its circuit suffers, nothing else.

mod support;

use crosslane_client::shared::SharedState;
use crosslane_wire::control::{Closing, Control, Doorbell, Handed, LinkState, Refusal};
use crosslane_wire::local::{Reply, Request, STATUS_ALIVE};
use crosslane_wire::segment::{RING_MIN, segment_len};
use crosslane_wire::{BufferId, ChannelId, HostId, Reach, SegmentRange, Tuple, WaiterId};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use support::liar::{Liar, packet};
use support::*;

const RING: u64 = 1 << 20;

fn lab_with_liar() -> (Lab, Liar) {
    lab_with_liar_at(port("c", true))
}

fn lab_with_liar_at(port: TestPort) -> (Lab, Liar) {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port], "");
    lab.start(1);
    let liar = Liar::new(&lab, "c", 2);
    (lab, liar)
}

/// A circuit inside host 1, which nothing that a neighbour says may touch.
fn bystander(lab: &Lab) -> (Client, Client, TcpListener, Circuit) {
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    server.listen(&listener);
    let (_socket, circuit) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
    (client, server, listener, circuit.unwrap())
}

#[test]
fn contradictions_are_counted_and_change_nothing() {
    let (lab, mut liar) = lab_with_liar();
    let (client, _server, _listener, circuit) = bystander(&lab);
    let (channel, segment) = (ChannelId(circuit.id.0), SegmentRange { offset: u64::MAX - 4095, len: 8192 });
    let lies = [
        Control::Opened { channel, peer: ChannelId(1), segment, key: 1, arrived: 0, pumps: 0 },
        Control::Refused { channel, why: Refusal::Rule },
        Control::Closed { channel, how: Closing::Abort },
        Control::Closed { channel: ChannelId(u64::MAX), how: Closing::Lost },
    ];
    for lie in &lies {
        liar.say(lie);
    }
    let handed = Handed { handle: 1, len: u64::MAX, reach: Reach::Load };
    for harmless in [
        Control::WantWaker { channel, waiter: WaiterId(1) },
        Control::Wake { channel, waiter: WaiterId(1) },
        Control::Waker { channel, waiter: WaiterId(7), doorbell: Some(Doorbell { handle: 9, word: 9 }) },
        Control::ImportBuffer { channel, buffer: BufferId(7) },
        Control::Buffer { channel, buffer: BufferId(7), handed: None },
        Control::Buffer { channel, buffer: BufferId(7), handed: Some(handed) },
        Control::Echo { from: HostId(9), to: HostId(7), token: 1, ttl: 255, stamp: 0, reply: true },
    ] {
        liar.say(&harmless);
    }
    let status = lab.wait(1, "lies counted", |status| status["counters"]["violations"] == lies.len());
    assert_eq!(status["ports"][0]["link"], "up");
    assert_eq!(client.status(&circuit), STATUS_ALIVE);
}

#[test]
fn circuits_for_others_addresses_or_outside_the_window_are_refused() {
    let (lab, mut liar) = lab_with_liar();
    let (_client, _server, listener, _circuit) = bystander(&lab);
    let server = listener.local_addr().unwrap();
    let good = Tuple { client: "127.86.0.2:1000".parse().unwrap(), server };
    let (range, _fd) = liar.cable.carve_inbound(segment_len(RING)).unwrap();
    let refused = |why| Control::Refused { channel: ChannelId(5), why };
    let of_another = Tuple { client: "127.86.0.3:1000".parse().unwrap(), ..good };
    assert_eq!(liar.open(of_another, range), refused(Refusal::Protocol));
    let to_another = Tuple { server: "127.86.0.3:80".parse().unwrap(), ..good };
    assert_eq!(liar.open(to_another, range), refused(Refusal::NoListener));
    for segment in [
        SegmentRange { offset: 1 << 30, ..range },
        SegmentRange { offset: u64::MAX - 4095, ..range },
        SegmentRange { offset: range.offset + 1, ..range },
        SegmentRange { len: 4096, ..range },
        SegmentRange { len: 0, ..range },
        SegmentRange { offset: range.offset + (8 << 20), ..range },
    ] {
        assert_eq!(liar.open(good, segment), refused(Refusal::Protocol), "{segment:?}");
    }
    assert!(matches!(liar.open(good, range), Control::Opened { .. }));
}

#[test]
fn routes_that_lead_in_circles_or_too_far_are_refused() {
    let (_lab, mut liar) = lab_with_liar();
    let tuple =
        Tuple { client: "127.86.0.2:1000".parse().unwrap(), server: "127.86.0.3:80".parse().unwrap() };
    let (range, _fd) = liar.cable.carve_inbound(segment_len(RING)).unwrap();
    let refused = |why| Control::Refused { channel: ChannelId(5), why };
    let long = [3; 254];
    for (route, passed) in
        [(&[1][..], 0), (&[3, 1], 0), (&[3, 4, 1, 3], 7), (&[3], 254), (&[3], 255), (&long, 0)]
    {
        assert_eq!(liar.open_along(route, passed, tuple, range), refused(Refusal::Protocol), "{route:?}");
    }
    assert_eq!(liar.open_along(&[3], 0, tuple, range), refused(Refusal::NoRoute));
    assert_eq!(liar.open_along(&long[1..], 0, tuple, range), refused(Refusal::NoRoute));
}

#[test]
fn pending_ends_of_a_neighbour_are_bounded() {
    let (lab, mut liar) = lab_with_liar_at(TestPort { window: "64M", ..port("c", true) });
    let (_client, _server, listener, circuit) = bystander(&lab);
    let server = listener.local_addr().unwrap();
    let (most, mut opened) = ((64 << 20) / segment_len(RING_MIN), 0);
    for port in 1..=15_000_u16 {
        let (range, _fd) = liar.cable.carve_inbound(segment_len(1 << 16)).unwrap();
        let tuple = Tuple { client: (std::net::Ipv4Addr::new(127, 86, 0, 2), port).into(), server };
        match liar.open(tuple, range) {
            Control::Opened { .. } => opened += 1,
            Control::Refused { why: Refusal::NoMemory | Refusal::Quota, .. } => break,
            // On a busy machine the first ones are given up before the last ones are asked for.
            Control::Closed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=most).contains(&opened), "{opened} of {most}");
    assert_eq!(lab.status(1)["circuits"][0]["id"], circuit.id.0);
}

#[test]
fn lying_link_states_take_the_cable_down_for_a_while_and_nothing_else() {
    let (lab, mut liar) = lab_with_liar();
    let (client, mut server, listener, circuit) = bystander(&lab);
    let lie = LinkState {
        origin: HostId(3),
        incarnation: 1,
        sequence: 1,
        neighbours: vec![HostId(3)],
        age: 0,
        seal: None,
    };
    liar.say(&Control::LinkStates(vec![lie]));
    liar.wait_down();
    let status = lab.wait(1, "counted", |status| status["counters"]["violations"] == 1);
    assert_eq!(status["ports"][0]["link"], "down");
    assert!(status["ports"][0]["why"].as_str().unwrap().contains("host 3"));
    assert_eq!(client.status(&circuit), STATUS_ALIVE);
    let (reply, _) = server.ask(&Request::Listen, &[listener.as_fd()]);
    assert_eq!(reply, Reply::Done);
    liar.wait_up();
    let status = lab.wait(1, "up again", |status| status["ports"][0]["link"] == "up");
    assert_eq!(status["ports"][0]["epoch"], 2);
}

#[test]
fn packets_that_lie_are_dropped_and_none_comes_back() {
    let (lab, mut liar) = lab_with_liar();
    let (client, _server, _listener, circuit) = bystander(&lab);
    let state = |origin, to: &[u16]| LinkState {
        origin: HostId(origin),
        incarnation: 1,
        sequence: 1,
        neighbours: to.iter().map(|host| HostId(*host)).collect(),
        age: 0,
        seal: None,
    };
    liar.say(&Control::LinkStates(vec![state(2, &[1, 3]), state(3, &[2])]));
    lab.wait_hosts(1, &[2, 3]);
    let mut lies = vec![vec![], vec![0xff; 15], vec![0xff; 16], packet(9, 1, 2, &[0xff; 65_000])];
    for to in [0, 1, 2, 3, 254, 999, u16::MAX] {
        for hops in [0, 1, 255] {
            lies.push(packet(hops, to, 2, &[0; 38]));
            lies.push(packet(hops, to, 2, &[0x45; 1400]));
        }
    }
    for lie in &lies {
        until("room", || liar.cable.send_ip(HostId(1), lie).then_some(()));
        liar.cable.flush();
    }
    let status = lab.wait(1, "all dropped", |status| {
        status["counters"]["ip_dropped_packets"].as_u64() == Some(lies.len() as u64)
    });
    assert_eq!(
        (&status["ports"][0]["link"], &status["counters"]["ip_forwarded_packets"]),
        (&"up".into(), &0.into())
    );
    assert_eq!(liar.cable.receive_ip(&mut Vec::new()), None);
    assert_eq!(client.status(&circuit), STATUS_ALIVE);
}

#[test]
fn neighbour_that_does_not_answer_costs_a_connect_but_milliseconds() {
    let (lab, mut liar) = lab_with_liar();
    let own = LinkState {
        origin: HostId(2),
        incarnation: 1,
        sequence: 1,
        neighbours: vec![HostId(1)],
        age: 0,
        seal: None,
    };
    liar.say(&Control::LinkStates(vec![own]));
    lab.wait_hosts(1, &[2]);
    let mut client = Client::hello(&lab.control(1), "client");
    let began = Instant::now();
    let (_socket, circuit) = client.connect_to("127.86.0.1:0", "127.86.0.2:80".parse().unwrap());
    let why = crosslane_wire::local::Plain::Refused(Refusal::Timeout);
    assert_eq!(circuit.unwrap_err(), Reply::Plain { why });
    assert!(began.elapsed() >= Duration::from_millis(20));
    let Control::Open { channel, .. } = liar.hear() else { panic!("no Open") };
    assert_ne!(lab.status(1)["ports"][0]["window_used"], window_bare(), "the neighbour may still write");
    liar.say(&Control::Refused { channel, why: Refusal::Rule });
    lab.wait_idle(1);
}

/// A circuit from the liar to a program on host 1: that program, its end, and that host's end of the channel.
fn circuit_from(
    liar: &mut Liar,
    lab: &Lab,
) -> (Client, Circuit, ChannelId, (TcpListener, std::net::TcpStream)) {
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    server.listen(&listener);
    let socket = bound_socket("127.86.0.2:0");
    let client = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    let tuple = Tuple { client, server: listener.local_addr().unwrap() };
    let (range, _fd) = liar.cable.carve_inbound(segment_len(RING)).unwrap();
    let Control::Opened { peer, .. } = liar.open(tuple, range) else { panic!("refused") };
    let (near, far) = finish(socket, &listener);
    let (_, memory) = SharedState::create().unwrap();
    server.tell(&Request::Accept, &[far.as_fd(), memory.as_fd()]);
    assert_eq!(liar.hear(), Control::Prove { channel: ChannelId(5) });
    liar.say(&Control::Proven { channel: peer, is_so: true });
    let circuit = server.granted().unwrap();
    (server, circuit, peer, (listener, near))
}

#[test]
fn neighbour_that_says_it_hands_a_buffer_over_and_does_not_is_not_believed() {
    let (lab, mut liar) = lab_with_liar();
    let (mut server, circuit, own, _sockets) = circuit_from(&mut liar, &lab);
    let want = Request::ImportBuffer { circuit: circuit.id, token: circuit.token, buffer: BufferId(7) };
    let nothing = Reply::Buffer { shape: None };
    let handed = |handle, len| Some(Handed { handle, len, reach: Reach::Load });
    for handed in [None, handed(1, 4096), handed(u64::MAX, u64::MAX)] {
        server.tell(&want, &[]);
        let Control::ImportBuffer { channel, buffer } = liar.hear() else { panic!("not asked") };
        assert_eq!((channel, buffer), (ChannelId(5), BufferId(7)));
        liar.say(&Control::Buffer { channel: own, buffer, handed });
        assert_eq!(server.answer().0, nothing);
    }
    assert_eq!(server.ask(&want, &[]).0, nothing, "silence is an answer after a while");
    assert_eq!(server.status(&circuit), STATUS_ALIVE);
}

#[test]
fn open_that_cannot_come_this_way_is_refused() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true), port("d", true)], "");
    lab.configure(3, 3, &[port("d", false)], "");
    lab.start(1);
    lab.start(3);
    let mut liar = Liar::new(&lab, "c", 2);
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    server.listen(&listener);
    lab.wait_hosts(1, &[2, 3]);
    let (range, _fd) = liar.cable.carve_inbound(segment_len(RING)).unwrap();
    let refused = Control::Refused { channel: ChannelId(5), why: Refusal::NoRoute };
    for (client, passed) in [("127.86.0.3:80", 1), ("127.86.0.9:80", 3), ("127.86.0.2:80", 2)] {
        let tuple = Tuple { client: client.parse().unwrap(), server: listener.local_addr().unwrap() };
        assert_eq!(liar.open_along(&[], passed, tuple, range), refused, "{client} over {passed}");
    }
    let tuple = Tuple { client: "127.86.0.2:80".parse().unwrap(), server: listener.local_addr().unwrap() };
    assert!(matches!(liar.open(tuple, range), Control::Opened { .. }));
}
