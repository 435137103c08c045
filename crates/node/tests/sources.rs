//! Packets whose source is not the host that they come from: nobody gets them.

mod support;

use support::liar::{Liar, datagram_message};
use support::*;

/// Host 1 between two neighbours, 2 and 3, which the test holds.
fn between(more: &str) -> (Lab, Liar, Liar) {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true), port("d", true)], more);
    lab.start(1);
    let (two, three) = (Liar::new(&lab, "c", 2), Liar::new(&lab, "d", 3));
    lab.wait_hosts(1, &[2, 3]);
    (lab, two, three)
}

fn send(from: &mut Liar, message: &[u8]) {
    until("room", || from.cable.send_ip(crosslane_wire::HostId(1), message).then_some(()));
    from.cable.flush();
}

fn receive(at: &mut Liar) -> Vec<u8> {
    let mut message = Vec::new();
    let len = until("a packet", || {
        at.poll();
        at.cable.receive_ip(&mut message)
    });
    message.truncate(len);
    message
}

#[test]
fn packets_in_the_name_of_others_go_nowhere() {
    let (lab, mut two, mut three) = between("networks = [\"192.168.7.0/24 2\", \"192.168.8.0/24 3\"]");
    let mut forged = vec![];
    for (from, source) in [
        (2, "8.8.8.8"),
        (2, "127.86.0.1"),
        (2, "127.86.0.3"),
        (2, "127.86.0.255"),
        (2, "0.0.0.0"),
        (2, "192.168.8.1"),
        (3, "127.86.0.3"),
        (3, "127.86.0.2"),
        (1, "127.86.0.1"),
        (9, "127.86.0.9"),
        (0, "127.86.0.2"),
    ] {
        forged.push(datagram_message(3, from, source, "127.86.0.3"));
        forged.push(datagram_message(0, from, source, "239.1.1.1"));
    }
    for source in ["::", "fd86::3", "fe80::3", "fe80::1:2", "2001:db8::1", "ff02::1"] {
        forged.push(datagram_message(3, 2, source, "fd86::3"));
        forged.push(datagram_message(0, 2, source, "ff02::1"));
    }
    for message in &forged {
        send(&mut two, message);
    }
    let genuine = [
        datagram_message(3, 2, "127.86.0.2", "127.86.0.3"),
        datagram_message(3, 2, "192.168.7.77", "127.86.0.3"),
        datagram_message(3, 2, "fd86::2", "fd86::3"),
        datagram_message(3, 2, "fe80::2", "fe80::3"),
    ];
    for message in &genuine {
        send(&mut two, message);
        let got = receive(&mut three);
        assert_eq!(got[1..], message[1..], "the first packet that comes through is a genuine one");
    }
    let counters = &lab.status(1)["counters"];
    assert_eq!(counters["ip_refused_packets"], forged.len());
    assert_eq!(counters["ip_forwarded_packets"], genuine.len());
    assert_eq!(lab.log(1).matches("packet refused").count(), 1, "one line for all of them");
}

#[test]
fn packet_of_a_far_host_comes_by_a_port_behind_which_that_host_is() {
    use crosslane_wire::HostId;
    use crosslane_wire::control::{Control, LinkState};
    let (lab, mut two, mut three) = between("");
    let state = |origin, neighbours: &[u16]| LinkState {
        origin: HostId(origin),
        incarnation: 1,
        sequence: 1,
        neighbours: neighbours.iter().map(|host| HostId(*host)).collect(),
        age: 0,
        seal: None,
    };
    two.say(&Control::LinkStates(vec![state(2, &[1, 4]), state(4, &[2])]));
    three.say(&Control::LinkStates(vec![state(3, &[1])]));
    lab.wait_hosts(1, &[2, 3, 4]);
    let of_four = |to: u16, destination: &str| datagram_message(to, 4, "127.86.0.4", destination);
    send(&mut three, &of_four(2, "127.86.0.2"));
    lab.wait(1, "refused", |status| status["counters"]["ip_refused_packets"] == 1);
    send(&mut two, &of_four(3, "127.86.0.3"));
    assert_eq!(receive(&mut three)[1..], of_four(3, "127.86.0.3")[1..]);
    assert_eq!(two.cable.receive_ip(&mut Vec::new()), None);
}
