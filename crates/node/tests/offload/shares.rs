//! What a thousand streams of one program get of the engine beside a greedy one: shares of bytes, no times. The turns
//! themselves are tested where nothing else plays a part, in `src/offload/fair.rs`.

use crate::support::PATIENCE;
use crate::{fabric, join_plain, moved, pair};
use crosslane_client::native::queue::{Member, Queue};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Streams besides the greedy one.
const MODEST: usize = 999;
/// What each of them moves, and bytes of a receiver's buffer.
const QUOTA: usize = 512 * 1024;
const PART: usize = 128 * 1024;
/// The greedy one always has so much under way, in so many buffers.
const MUCH: usize = 8 << 20;
const DEEP: usize = 4;

/// What the first of a stream's bytes say: whose they are.
fn mark(stream: usize) -> [u8; 8] {
    (stream as u64 + 1).to_ne_bytes()
}

/// Sends what each stream is to send, and for the greedy one more and more until `over`.
fn send_all(queue: &mut Queue, members: &[Member], over: &AtomicBool) {
    for _ in 0..DEEP {
        queue.send(members[0], 0, vec![0; MUCH]);
    }
    for (stream, member) in members.iter().enumerate().skip(1) {
        let mut buffer = vec![0; QUOTA];
        buffer[..8].copy_from_slice(&mark(stream));
        queue.send(*member, stream as u64, buffer);
    }
    while !over.load(SeqCst) {
        let Some(done) = queue.wait_within(Duration::from_millis(20)).unwrap() else { continue };
        if done.tag == 0 && !over.load(SeqCst) {
            done.outcome.unwrap();
            queue.send(members[0], 0, done.buffer);
        }
    }
}

/// Bytes that each stream has received.
fn received(queue: &Queue, members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| queue.statistics(*member).unwrap().rx_bytes).collect()
}

/// Receives all, and returns what each stream had when the modest ones had half of theirs, and at the end.
fn receive_all(queue: &mut Queue, members: &[Member]) -> [Vec<u64>; 2] {
    for _ in 0..DEEP {
        queue.receive(members[0], 0, vec![0; PART]);
    }
    (1..members.len()).for_each(|stream| queue.receive(members[stream], stream as u64, vec![0; PART]));
    let (mut got, mut left, mut half) = (vec![0; members.len()], members.len() - 1, None);
    while left > 0 {
        let done = queue.wait_within(PATIENCE).unwrap().expect("in time");
        done.outcome.unwrap();
        let stream = usize::try_from(done.tag).unwrap();
        assert!(stream == 0 || got[stream] > 0 || done.buffer[..8] == mark(stream), "another stream's bytes");
        got[stream] += done.bytes;
        if stream == 0 || got[stream] < QUOTA {
            queue.receive(done.member, done.tag, done.buffer);
        } else {
            left -= 1;
        }
        if got[1..].iter().sum::<usize>() >= MODEST * QUOTA / 2 {
            half.get_or_insert_with(|| received(queue, members));
        }
    }
    assert!(got[1..].iter().all(|got| *got == QUOTA));
    [half.unwrap(), received(queue, members)]
}

#[test]
fn a_greedy_stream_of_the_same_program_leaves_the_others_their_shares() {
    let lab = pair();
    let (near, far) = (fabric(&lab, 1), fabric(&lab, 2));
    let [mut sending, mut receiving] = [&near, &far].map(|fabric| Queue::new(fabric).unwrap());
    let members = (0..=MODEST).map(|_| {
        let (client, server) = join_plain(&near, &far, 2);
        (sending.add(client).unwrap(), receiving.add(server).unwrap())
    });
    let (clients, servers): (Vec<_>, Vec<_>) = members.unzip();
    let over = AtomicBool::new(false);
    let [half, last] = std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut sending, &clients, &over));
        let taken = scope.spawn(|| receive_all(&mut receiving, &servers)).join();
        over.store(true, SeqCst);
        taken.unwrap()
    });
    let mut modest = half[1..].to_vec();
    modest.sort_unstable();
    let (least, median) = (modest[0], modest[MODEST / 2]);
    let told = format!("least {least}, median {median}, greedy {} and at the end {}", half[0], last[0]);
    println!("{told}");
    assert!(least * 4 >= median, "{told}");
    assert!(half[0] <= 4 * median, "{told}");
    assert!(last[0] <= 32 * QUOTA as u64, "{told}");
    // Some of it is copied by hand, where a program was sooner.
    let (sent, all) = (moved(&lab, 1).0, last.iter().sum::<u64>());
    assert!(sent > all / 10, "{sent} bytes of {all} by the engine");
}
