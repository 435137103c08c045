//! Requesters that lie, and owners that do: rubbish ends that connection, and reaches nothing.

use super::support::{Lab, PATIENCE, until};
use super::{address, fabric, peer, serve};
use crosslane::fabric::Fabric;
use crosslane::memory::Access;
use crosslane::peer::{Error, Peer};
use crosslane::stream::Stream;
use crosslane_wire::access::{Answer, COMMAND, Command, HANDSHAKE, Place};
use std::net::SocketAddr;
use std::time::Instant;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }
}

fn raw(fabric: Fabric, memory: SocketAddr) -> Stream {
    let stream = fabric.connect(memory).unwrap();
    stream.send(&HANDSHAKE).unwrap();
    let mut handshake = [0; HANDSHAKE.len()];
    stream.receive_all(&mut handshake).unwrap();
    assert_eq!(handshake, HANDSHAKE);
    stream
}

/// Sends frames with a few wrong bytes, or none, or nothing but rubbish, and looks at no answer.
fn rave(stream: &Stream, place: Place, random: &mut Random) {
    for _ in 0..random.next() % 200 {
        let (offset, len) = (random.next() << (random.next() % 24), random.next());
        let place = Place { offset, key: place.key ^ (random.next() % 2), ..place };
        let command = match random.next() % 7 {
            0 => Command::Put { place, len: u32::try_from(len % 70_000).unwrap() },
            1 => Command::PutShort { place, len: u32::try_from(len % 18).unwrap(), bytes: [0xbb; 16] },
            2 => Command::Get { place, len },
            3 => Command::FetchAdd { place, value: len },
            4 => Command::CompareSwap { place, expected: 0, new: len },
            5 => Command::Fence,
            _ => Command::Notify { place, value: len },
        };
        let mut bytes = command.encode();
        for _ in 0..random.next() % 4 {
            bytes[usize::try_from(random.next()).unwrap() % COMMAND] ^= 1 << (random.next() % 8);
        }
        let cut = if random.next().is_multiple_of(20) { 17 } else { COMMAND };
        if stream.send(&bytes[..cut]).is_err() {
            return;
        }
    }
}

#[test]
fn rubbish_ends_its_own_connection_and_touches_nothing() {
    let lab = Lab::pair();
    let memory = serve(&lab, 2);
    let kept = memory.register(65536).unwrap();
    kept.write(0, &[0x5a; 65536]).unwrap();
    let open = memory.register(4096).unwrap();
    let key = open.share(Access { read: false, write: true, atomic: false }).unwrap();
    let (kept_key, mut honest) = (kept.share(Access::READ).unwrap(), peer(&lab, 1, &memory));
    let (fabric, mut random) = (fabric(&lab, 1), Random(1));
    for round in 0..60 {
        let stream = raw(fabric, memory.address());
        rave(&stream, Place { region: key.id, key: key.key, offset: 0 }, &mut random);
        drop(stream);
        while memory.notices().next().is_some() {}
        let mut got = vec![0; 65536];
        honest.get(&kept_key, 0, &mut got).unwrap();
        assert!(got.iter().all(|&byte| byte == 0x5a), "round {round}");
    }
    let wrong = fabric.connect(memory.address()).unwrap();
    wrong.send(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until("one that does not greet is closed", || {
        let mut bytes = [0; 100];
        matches!(wrong.receive(&mut bytes), Ok(0) | Err(_)).then_some(())
    });
    let violations = lab.status(2)["counters"]["violations"].as_u64().unwrap();
    assert!(violations > 10, "{violations}");
}

#[test]
fn requester_that_takes_no_answers_holds_up_nobody_else() {
    let lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(1 << 20).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let place = Place { region: remote.id, key: remote.key, offset: 0 };
    let (stream, mut honest) = (raw(fabric(&lab, 1), memory.address()), peer(&lab, 1, &memory));
    let commands = [Command::Get { place, len: 1 << 20 }, Command::FetchAdd { place, value: 1 }];
    // Sends until the agent reads no more of it.
    let begin = Instant::now();
    let mut sent = 0u64;
    while begin.elapsed() < PATIENCE {
        let bytes = commands[usize::try_from(sent % 2).unwrap()].encode();
        if stream.try_send(&[std::io::IoSlice::new(&bytes)], 0).unwrap() < COMMAND {
            break;
        }
        sent += 1;
    }
    assert!(begin.elapsed() < PATIENCE, "{sent} commands were taken without an answer being read");
    for _ in 0..1000 {
        honest.fetch_add(&remote, 8, 1).unwrap();
        let before = region.load(0).unwrap();
        assert!(before < sent);
    }
    assert_eq!(region.load(8).unwrap(), 1000);
}

#[test]
fn answers_that_make_no_sense_end_the_requesters_connection() {
    let lab = Lab::pair();
    let liar = fabric(&lab, 2).listen(address(2)).unwrap();
    let lies = [
        Answer::Done { upto: 99 }.encode().to_vec(),
        Answer::Data { number: 0, offset: 0, len: 9 }.encode().to_vec(),
        Answer::Value { number: 0, value: 0 }.encode().to_vec(),
        vec![0xff; 24],
    ];
    let remote = crosslane::memory::RemoteRegion { id: 1, key: 2, len: 3 };
    for lie in lies {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let stream = liar.accept().unwrap();
                stream.send(&HANDSHAKE).unwrap();
                stream.receive_all(&mut [0; HANDSHAKE.len() + COMMAND]).unwrap();
                stream.send(&lie).unwrap();
                stream
            });
            let mut peer = Peer::connect(fabric(&lab, 1), liar.address()).unwrap();
            let outcome = peer.get(&remote, 0, &mut [0; 8]);
            assert!(
                matches!(&outcome, Err(Error::Stream(error)) if error.to_string().contains("protocol")),
                "{outcome:?}"
            );
            drop(thread.join().unwrap());
        });
    }
}
