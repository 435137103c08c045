//! What a thousand streams of one program get of the engine beside a greedy one: shares of bytes, no times. The turns
//! themselves are tested where nothing else plays a part, in `src/offload/tests/fairness.rs`.

mod support;

use crosslane::fabric::Fabric;
use crosslane::queue::{Member, Queue};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use support::{Lab, PATIENCE, port};

/// Streams besides the greedy one, which is the last and has this number.
const MODEST: usize = 999;
const GREEDY: u64 = MODEST as u64;
/// What each of them moves, and bytes of a receiver's buffer.
const QUOTA: usize = 512 * 1024;
const PART: usize = 128 * 1024;
/// The greedy one always has so much under way, in so many buffers.
const MUCH: usize = 8 << 20;
const DEEP: usize = 4;

/// Two hosts on one cable.
fn pair() -> Lab {
    let mut lab = Lab::new();
    let config = "offload_least = \"16K\"";
    lab.configure(1, 1, &[port("c", true)], config);
    lab.configure(2, 2, &[port("c", false)], config);
    (1..=2).for_each(|number| lab.start(number));
    lab.wait_hosts(1, &[2]);
    lab.wait_hosts(2, &[1]);
    lab
}

/// What the first of a stream's bytes say: whose they are.
fn mark(stream: usize) -> [u8; 8] {
    (stream as u64 + 1).to_ne_bytes()
}

/// Sends what each stream is to send, and for the greedy one, the last, more and more until `over`.
fn send_all(queue: &mut Queue, members: &[Member], over: &AtomicBool) {
    for (stream, member) in members[..MODEST].iter().enumerate() {
        let mut buffer = vec![0; QUOTA];
        buffer[..8].copy_from_slice(&mark(stream));
        queue.send(*member, stream as u64, buffer);
    }
    for _ in 0..DEEP {
        queue.send(members[MODEST], GREEDY, vec![0; MUCH]);
    }
    while !over.load(SeqCst) {
        let Some(done) = queue.wait_within(Duration::from_millis(20)).unwrap() else { continue };
        if done.tag == GREEDY && !over.load(SeqCst) {
            done.outcome.unwrap();
            queue.send(done.member, GREEDY, done.buffer);
        }
    }
}

/// Bytes that each stream has received.
fn received(queue: &Queue, members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| queue.statistics(*member).unwrap().rx_bytes).collect()
}

/// Receives all; returns what each stream had when the modest ones had half of theirs.
fn receive_all(queue: &mut Queue, members: &[Member]) -> Vec<u64> {
    (0..MODEST).for_each(|stream| queue.receive(members[stream], stream as u64, vec![0; PART]));
    for _ in 0..DEEP {
        queue.receive(members[MODEST], GREEDY, vec![0; PART]);
    }
    let (mut got, mut left, mut half) = (vec![0; members.len()], MODEST, None);
    while left > 0 {
        let done = queue.wait_within(PATIENCE).unwrap().expect("in time");
        done.outcome.unwrap();
        let stream = usize::try_from(done.tag).unwrap();
        let begins = done.tag != GREEDY && got[stream] == 0;
        assert!(!begins || done.buffer[..8] == mark(stream), "another stream's bytes");
        got[stream] += done.bytes;
        if done.tag == GREEDY || got[stream] < QUOTA {
            queue.receive(done.member, done.tag, done.buffer);
        } else {
            left -= 1;
        }
        if got[..MODEST].iter().sum::<usize>() >= MODEST * QUOTA / 2 {
            half.get_or_insert_with(|| received(queue, members));
        }
    }
    assert!(got[..MODEST].iter().all(|got| *got == QUOTA));
    half.unwrap()
}

#[test]
fn greedy_stream_of_the_same_program_leaves_the_others_their_shares() {
    let lab = pair();
    let [near, far] = [1, 2].map(|number| Fabric::open_at(&lab.control(number)).unwrap());
    let listener = far.listen("127.86.0.2:0".parse().unwrap()).unwrap();
    let [mut sending, mut receiving] = [&near, &far].map(|fabric| Queue::new(fabric).unwrap());
    let members = (0..=MODEST).map(|_| {
        let client = near.connect(listener.address()).unwrap();
        (sending.add(client).unwrap(), receiving.add(listener.accept().unwrap()).unwrap())
    });
    let (clients, servers): (Vec<_>, Vec<_>) = members.unzip();
    let over = AtomicBool::new(false);
    let half = std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut sending, &clients, &over));
        let taken = scope.spawn(|| receive_all(&mut receiving, &servers)).join();
        over.store(true, SeqCst);
        taken.unwrap()
    });
    let (greedy, mut modest) = (half[MODEST], half[..MODEST].to_vec());
    modest.sort_unstable();
    // A few begin late: a thousand orders are not given at once.
    let (low, median) = (modest[MODEST / 20], modest[MODEST / 2]);
    let told = format!("least {}, twentieth part below {low}, median {median}, greedy {greedy}", modest[0]);
    println!("{told}");
    assert!(low * 4 >= median, "{told}");
    assert!(greedy <= 8 * median, "{told}");
    // Some of it is copied by hand, where a program was sooner.
    let (sent, all) = (lab.status(1)["offload"]["send"]["bytes"].as_u64().unwrap(), (MODEST * QUOTA) as u64);
    assert!(sent > all / 10, "{sent} bytes of {all} by the engine");
}
