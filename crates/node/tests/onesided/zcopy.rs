//! Posted buffers and transactions between real daemons: each byte arrives once, whatever happens to the far program, and
//! memory that is given back is nobody else's.

use super::death::Program;
use super::streams::pair;
use super::support::{Client, Lab};
use super::{address, chain, fabric};
use crosslane::fabric::Fabric;
use crosslane::stream::{Buffer, OpenBuffer};
use crosslane::stream::{Error, Stream};
use crosslane_wire::local::{Reply, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEN: usize = 300_000;
/// Byte of memory that was given back.
const GARBAGE: u8 = 0xee;
const SHORT: Duration = Duration::from_millis(300);
/// Longest that a call may take which ends by itself.
const SOON: Duration = Duration::from_secs(30);

fn byte(at: usize) -> u8 {
    u8::try_from((at ^ at >> 8 ^ at >> 16) & 0x7f).unwrap()
}

pub(crate) fn fill(bytes: &mut [u8], from: usize) {
    bytes.iter_mut().zip(from..).for_each(|(byte, at)| *byte = self::byte(at));
}

fn check(bytes: &[u8], from: usize) {
    let wrong = bytes.iter().zip(from..).find(|&(&seen, at)| seen != byte(at));
    assert!(wrong.is_none(), "{wrong:?} of {} bytes from {from} on", bytes.len());
}

/// Posts buffers of the stream's bytes from `from` on, and writes over each as soon as it is free again.
fn post_all(stream: &Stream, from: usize, rounds: usize) -> Result<(), Error> {
    let mut free: Vec<Buffer> = (0..4).map(|_| Buffer::new(LEN).unwrap()).collect();
    for round in 0..rounds {
        let mut buffer = match free.pop() {
            Some(buffer) => buffer,
            None => stream.reclaim()?.expect("four are under way"),
        };
        fill(&mut buffer[..LEN], from + round * LEN);
        stream.post(buffer, LEN)?;
        while let Some(mut buffer) = stream.try_reclaim()? {
            buffer.fill(GARBAGE);
            free.push(buffer);
        }
    }
    stream.flush()
}

/// Receives `total` bytes in pieces of `piece`.
fn receive_all(stream: &Stream, total: usize, piece: usize) {
    let (mut bytes, mut got) = (vec![0; piece], 0);
    while got < total {
        let count = stream.receive(&mut bytes).unwrap();
        assert!(count > 0, "it ends at {got}");
        check(&bytes[..count], got);
        got += count;
    }
}

/// Whether programs of host 1 and `host` of a chain map each other's buffers: over one cable at most, of coherent memory.
fn lends(lab: &Lab, host: usize) -> bool {
    host == 1 || host == 2 && !lab.is_posted()
}

#[test]
fn posted_buffers_arrive_at_any_distance_and_over_two_cables_by_the_ring() {
    let lab = chain();
    for host in 1..=3 {
        let (client, server) = pair(fabric(&lab, 1), fabric(&lab, host), host);
        for piece in [50_000, 299_999, 1 << 20] {
            std::thread::scope(|scope| {
                scope.spawn(|| post_all(&client, 0, 40).unwrap());
                receive_all(&server, 40 * LEN, piece);
            });
        }
        assert_eq!(client.statistics().sent.read_zcopy > 0, lends(&lab, host), "host {host}");
    }
}

/// Cuts and mends the cable between hosts 1 and 2 until `over`, at times that differ.
pub(crate) fn cut_and_mend(lab: &Lab, over: &AtomicBool) {
    let mut client = Client::hello(&lab.control(1), "lab");
    for round in 0.. {
        let port = || "c12".to_owned();
        assert_eq!(client.ask(&Request::Cut { port: port() }, &[]).0, Reply::Done);
        std::thread::sleep(Duration::from_millis(150 + 37 * (round % 5)));
        assert_eq!(client.ask(&Request::Mend { port: port() }, &[]).0, Reply::Done);
        if over.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(400 + 53 * (round % 5)));
    }
}

#[test]
fn posted_buffers_arrive_while_the_cable_is_cut_and_mended() {
    let lab = Lab::ring();
    let (client, server) = pair(fabric(&lab, 1), fabric(&lab, 2), 2);
    let (over, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| cut_and_mend(&lab, &over));
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while start.elapsed() < Duration::from_secs(4) {
                post_all(&client, sent, 40).unwrap();
                sent += 40 * LEN;
            }
            client.finish().unwrap();
            sent
        });
        let (mut bytes, mut got) = (vec![0; 200_000], 0);
        loop {
            let count = server.receive(&mut bytes).unwrap();
            if count == 0 {
                break;
            }
            check(&bytes[..count], got);
            got += count;
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(sender.join().unwrap(), got);
    });
    let moved = client.statistics();
    let fetched = moved.sent.read_zcopy;
    assert!((fetched > 0) != lab.is_posted() && moved.tx_bytes > fetched, "{moved:?}");
}

/// Answers requests, each of which says how long its answer is to be, until the stream ends.
pub(crate) fn answer_all(stream: &Stream) -> Result<(), Error> {
    let (mut request, mut bytes) = ([0; 8], vec![0; 1 << 20]);
    loop {
        stream.receive_all(&mut request)?;
        let len = usize::try_from(u64::from_ne_bytes(request)).unwrap();
        fill(&mut bytes[..len], len);
        stream.send(&bytes[..len])?;
        bytes.fill(GARBAGE);
    }
}

/// One transaction with an answer of `len` bytes.
pub(crate) fn ask(stream: &Stream, answer: &OpenBuffer, len: usize) -> Result<(), Error> {
    let (mut got, mut bytes) = (stream.transact(&(len as u64).to_ne_bytes(), answer)?, vec![0; len]);
    assert!(got <= len);
    answer.read(0, &mut bytes[..got]).unwrap();
    while got < len {
        got += match stream.receive(&mut bytes[got..])? {
            0 => return Err(Error::Closed),
            count => count,
        };
    }
    check(&bytes, len);
    Ok(())
}

#[test]
fn answers_of_any_length_arrive_at_any_distance() {
    let lab = chain();
    for host in 1..=3 {
        let (client, server) = pair(fabric(&lab, 1), fabric(&lab, host), host);
        let answer = OpenBuffer::new(65_536).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| answer_all(&server).unwrap_err());
            for len in [1, 8, 64, 4096, 65_535, 65_536, 65_537, 200_000].into_iter().cycle().take(80) {
                ask(&client, &answer, len).unwrap();
            }
            client.finish().unwrap();
        });
        assert_eq!(server.statistics().sent.write_zcopy > 0, lends(&lab, host), "host {host}");
    }
}

/// What another program does, as `death::program` says: connects to us and does so until it is killed.
pub(crate) fn program(role: &str, fabric: &Fabric, words: &[&str]) {
    let (stream, mut from) = (fabric.connect(words[0].parse().unwrap()).unwrap(), 0);
    match role {
        "poster" => loop {
            post_all(&stream, from, 40).unwrap();
            from += 40 * LEN;
        },
        "answerer" => answer_all(&stream).unwrap(),
        "asker" => super::asking::asker(&stream),
        "reader" => receive_all(&stream, usize::MAX, 77_777),
        _ => panic!("{role}"),
    }
}

/// A stream to another program on host `host`, which is `role` there.
pub(crate) fn with_program(lab: &Lab, role: &str, host: usize) -> (Program, Stream) {
    let listener = fabric(lab, 1).listen(address(1)).unwrap();
    let program = Program::start(role, lab.control(host), &listener.address().to_string());
    let stream = listener.accept_within(SOON).unwrap().expect("it connects");
    (program, stream)
}

#[test]
fn post_that_was_sent_before_its_program_was_killed_is_right() {
    let lab = Lab::pair();
    for round in 1..=6 {
        let (mut program, stream) = with_program(&lab, "poster", 1 + round % 2);
        let (mut bytes, mut got) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = stream.receive(&mut bytes) {
            check(&bytes[..count], got);
            if got < round * 1_000_000 && got + count >= round * 1_000_000 {
                program.kill();
            }
            got += count;
        }
        assert!(got >= round * 1_000_000);
    }
}

#[test]
fn writer_that_was_killed_writes_nothing_into_memory_that_is_given_back() {
    let lab = Lab::pair();
    for round in 1..=6 {
        let (mut program, stream) = with_program(&lab, "answerer", 1 + round % 2);
        let (answer, start) = (OpenBuffer::new(LEN).unwrap(), Instant::now());
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20 * round as u64));
            program.kill();
        });
        while ask(&stream, &answer, LEN).is_ok() {}
        assert!(start.elapsed() < SOON);
        // From here on the memory is ours alone.
        answer.write(0, &vec![GARBAGE; answer.len()]).unwrap();
        killer.join().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut bytes = vec![0; answer.len()];
        answer.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == GARBAGE), "round {round}");
    }
}

#[test]
fn writer_that_is_frozen_holds_up_no_call_and_writes_nothing_when_it_goes_on() {
    let lab = Lab::pair();
    for round in 1..=5 {
        let (program, stream) = with_program(&lab, "answerer", 1 + usize::from(round % 2 == 0));
        let (answer, start) = (OpenBuffer::new(LEN).unwrap(), Instant::now());
        stream.set_receive_timeout(Some(SHORT));
        let freezer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(20_000 + 777 * round));
            program.freeze();
            program
        });
        while ask(&stream, &answer, LEN).is_ok() {}
        assert!(start.elapsed() < SOON);
        answer.write(0, &vec![GARBAGE; answer.len()]).unwrap();
        freezer.join().unwrap().thaw();
        std::thread::sleep(Duration::from_millis(50));
        let mut bytes = vec![0; answer.len()];
        answer.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == GARBAGE), "round {round}");
    }
}

#[test]
fn reader_that_is_frozen_holds_up_no_call_and_gets_all_when_it_goes_on() {
    let lab = Lab::pair();
    let (mut program, stream) = with_program(&lab, "reader", 2);
    stream.set_send_timeout(Some(SHORT));
    let mut sent = 0;
    for _ in 0..3 {
        program.freeze();
        // What the ring takes in the place of the reader is not endless.
        let mut bytes = vec![0; 100_000_000];
        fill(&mut bytes, sent);
        let start = Instant::now();
        match stream.send(&bytes) {
            Err(Error::TimedOut { done, .. }) => sent += done,
            outcome => panic!("{outcome:?}"),
        }
        assert!(start.elapsed() < SOON);
        bytes.fill(GARBAGE);
        program.thaw();
        // The reader checks each byte, and is gone if one is wrong.
        stream.set_send_timeout(Some(SOON));
        post_all(&stream, sent, 40).unwrap();
        sent += 40 * LEN;
        stream.set_send_timeout(Some(SHORT));
    }
    program.kill();
}

#[test]
fn post_to_a_reader_that_was_killed_fails() {
    let lab = Lab::pair();
    for round in 0..4 {
        let (mut program, stream) = with_program(&lab, "reader", 1 + round % 2);
        post_all(&stream, 0, 10).unwrap();
        let start = Instant::now();
        program.kill();
        while post_all(&stream, 0, 10).is_ok() {}
        assert!(start.elapsed() < SOON);
    }
}
