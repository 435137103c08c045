//! Native streams.

use super::support::{Lab, until};
use super::{address, chain, fabric};
use crosslane::fabric::Fabric;
use crosslane::stream::{Error, Stream};
use std::net::{TcpListener, TcpStream};

const BYTES: usize = 20_000_000;

fn byte(at: usize) -> u8 {
    u8::try_from(at % 251).unwrap()
}

pub(crate) fn pair(client: Fabric, server: Fabric, host: usize) -> (Stream, Stream) {
    let listener = server.listen(address(host)).unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        (client.connect(listener.address()).unwrap(), accepted.join().unwrap())
    })
}

fn check_bytes(from: &Stream, to: &Stream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
            bytes.chunks(777_777).for_each(|part| from.send(part).unwrap());
            from.finish().unwrap();
        });
        let (mut buffer, mut got) = (vec![0; 100_000], 0);
        loop {
            let count = to.receive(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            assert!(buffer[..count].iter().enumerate().all(|(at, &seen)| seen == byte(got + at)));
            got += count;
        }
        assert_eq!(got, BYTES);
    });
}

#[test]
fn streams_carry_bytes_both_ways_at_any_distance() {
    let lab = chain();
    for host in 1..=3 {
        let (client, server) = pair(fabric(&lab, 1), fabric(&lab, host), host);
        assert_eq!(client.peer().ip(), address(host).ip());
        check_bytes(&client, &server);
        check_bytes(&server, &client);
        drop((client, server));
        (1..=3).for_each(|number| lab.wait_idle(number));
    }
}

#[test]
fn requester_that_waits_long_is_woken() {
    let lab = Lab::pair();
    let (client, server) = pair(fabric(&lab, 1), fabric(&lab, 2), 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut word = [0; 8];
            for _ in 0..20 {
                server.receive_all(&mut word).unwrap();
                server.send(&word).unwrap();
            }
        });
        for round in 0..20u64 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let mut word = [0; 8];
            client.send(&round.to_ne_bytes()).unwrap();
            client.receive_all(&mut word).unwrap();
            assert_eq!(u64::from_ne_bytes(word), round);
        }
    });
}

#[test]
fn connection_that_would_be_plain_tcp_fails_with_the_reason() {
    let lab = Lab::pair();
    let plain = TcpListener::bind("127.86.0.2:0").unwrap();
    let refused = fabric(&lab, 1).connect(plain.local_addr().unwrap());
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("NoListener"), "{text}");

    let listener = fabric(&lab, 2).listen(address(2)).unwrap();
    let client = TcpStream::connect(listener.address());
    let refused = listener.accept();
    assert!(matches!(refused, Err(Error::Plain { .. })), "{refused:?}");
    drop(client);
}

#[test]
fn stream_ends_when_its_far_end_is_dropped_and_when_the_daemon_is_killed() {
    let mut lab = Lab::pair();
    let (client, server) = pair(fabric(&lab, 1), fabric(&lab, 2), 2);
    server.send(b"last").unwrap();
    drop(server);
    let mut buffer = [0; 10];
    assert_eq!(client.receive(&mut buffer).unwrap(), 4);
    assert_eq!(client.receive(&mut buffer).unwrap(), 0);
    until("sends fail", || client.send(b"x").err());

    let (client, _server) = pair(fabric(&lab, 1), fabric(&lab, 2), 2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.receive(&mut [0; 10]));
        std::thread::sleep(std::time::Duration::from_millis(50));
        lab.kill(1);
        assert!(matches!(waiting.join().unwrap(), Err(Error::DaemonGone)));
    });
}
