//! Queues: what nobody waits for one by one.

use crate::support::{Lab, PATIENCE, port, until};
use crate::{byte, bytes, fabric, join_plain, listen, moved, pair};
use crosslane::queue::{Completion, Member, Queue, Way};
use crosslane::stream::{Error, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Bytes of a message, and how many are under way.
const LEN: usize = 140_000;
const DEPTH: usize = 12;

/// A queue at each end of one stream from host 1 to host `to`.
fn queues(lab: &Lab, to: usize) -> [(Queue, Member); 2] {
    let (near, far) = (fabric(lab, 1), fabric(lab, to));
    let (client, server) = join_plain(&near, &far, to);
    [(near, client), (far, server)].map(|(fabric, stream)| {
        let mut queue = Queue::new(&fabric).unwrap();
        let member = queue.add(stream).unwrap();
        (queue, member)
    })
}

fn next(queue: &mut Queue) -> Completion {
    queue.wait_within(PATIENCE).unwrap().expect("in time")
}

/// Keeps messages under way until all are sent; `told` hears of each.
fn send_all(queue: &mut Queue, member: Member, lengths: &[usize], told: impl Fn(usize)) -> Result<(), Error> {
    let (mut at, mut submitted, mut fetched) = (0, 0, 0);
    while fetched < lengths.len() {
        while submitted < lengths.len() && queue.len() < DEPTH {
            queue.send(member, submitted as u64, bytes(at, lengths[submitted]));
            at += lengths[submitted];
            submitted += 1;
        }
        let done = next(queue);
        assert_eq!((done.member, done.tag, done.way), (member, fetched as u64, Way::Out));
        done.outcome?;
        assert_eq!((done.bytes, done.buffer.len()), (lengths[fetched], lengths[fetched]));
        told(fetched);
        fetched += 1;
    }
    Ok(())
}

/// Receives as many bytes in messages of these lengths, and checks all; `told` hears how many are there.
fn receive_all(
    queue: &mut Queue,
    member: Member,
    lengths: &[usize],
    told: impl Fn(usize),
) -> Result<(), Error> {
    let (mut at, mut submitted) = (0, 0);
    for (number, &len) in lengths.iter().enumerate() {
        while submitted < lengths.len() && queue.len() < DEPTH {
            queue.receive(member, submitted as u64, vec![0xaa; lengths[submitted]]);
            submitted += 1;
        }
        let done = next(queue);
        assert_eq!((done.tag, done.way, done.buffer.len()), (number as u64, Way::In, len));
        assert!((0..done.bytes).all(|index| done.buffer[index] == byte(at + index)), "message {number}");
        assert!(done.buffer[done.bytes..].iter().all(|byte| *byte == 0xaa), "nothing behind what came");
        at += done.bytes;
        told(at);
        done.outcome?;
        if done.bytes < len {
            return Err(Error::Closed);
        }
    }
    Ok(())
}

#[test]
fn queue_delivers_all_in_order_by_the_engine() {
    let lab = pair();
    let [mut near, mut far] = queues(&lab, 2);
    let sent: Vec<usize> = (0..60).map(|at| [LEN, 1, 1 << 20, 0, 16_384, 3_000_001][at % 6]).collect();
    let total: usize = sent.iter().sum();
    let mut received = vec![77_777; total / 77_777];
    received.push(total % 77_777);
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut near.0, near.1, &sent, |_| ()).unwrap());
        scope.spawn(|| receive_all(&mut far.0, far.1, &received, |_| ()).unwrap());
    });
    assert!(near.0.is_empty() && far.0.is_empty());
    assert!(near.0.wait().unwrap().is_none() && near.0.try_next().unwrap().is_none());
    let statistics = [&near, &far].map(|(queue, member)| queue.statistics(*member).unwrap());
    assert_eq!((statistics[0].tx_bytes, statistics[1].rx_bytes), (total as u64, total as u64));
    let (out, into) = (moved(&lab, 1).0, moved(&lab, 2).1);
    // A program whose engine has no processor for a while copies by itself.
    assert!(
        out > total as u64 / 10 && into > total as u64 / 10,
        "the engine did it: {out} {into} of {total}"
    );
}

#[test]
fn queue_has_the_program_copy_what_is_too_little_for_the_engine() {
    let lab = pair();
    let [mut near, mut far] = queues(&lab, 2);
    let lengths = vec![1000; 5000];
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut near.0, near.1, &lengths, |_| ()).unwrap());
        scope.spawn(|| receive_all(&mut far.0, far.1, &lengths, |_| ()).unwrap());
    });
    assert_eq!((moved(&lab, 1).0, moved(&lab, 2).1), (0, 0));
}

#[test]
fn queue_of_many_streams_goes_both_ways_within_one_host() {
    let lab = pair();
    let (near, far) = (fabric(&lab, 1), fabric(&lab, 1));
    let mut queues = [&near, &far].map(|fabric| Queue::new(fabric).unwrap());
    let members: Vec<[Member; 2]> = (0..5)
        .map(|_| {
            let (client, server) = join_plain(&near, &far, 1);
            [queues[0].add(client).unwrap(), queues[1].add(server).unwrap()]
        })
        .collect();
    let run = |queue: &mut Queue, own: usize| {
        for (stream, both) in members.iter().enumerate() {
            for number in 0..6 {
                let member = both[own];
                queue.send(member, number as u64, bytes(number * LEN + stream + own, LEN));
                queue.receive(member, number as u64, vec![0; LEN]);
            }
        }
        for _ in 0..members.len() * 12 {
            let done = next(queue);
            done.outcome.unwrap();
            if done.way == Way::In {
                let stream = members.iter().position(|both| both[own] == done.member).unwrap();
                let at = usize::try_from(done.tag).unwrap() * LEN + stream + (1 - own);
                assert!(done.buffer == bytes(at, LEN), "{} of {stream}", done.tag);
            }
        }
        assert!(queue.wait().unwrap().is_none());
    };
    let [one, two] = &mut queues;
    std::thread::scope(|scope| {
        scope.spawn(|| run(one, 0));
        scope.spawn(|| run(two, 1));
    });
}

#[test]
fn program_with_a_poll_of_its_own_is_woken() {
    let lab = pair();
    let [(mut near, sender), (mut far, receiver)] = queues(&lab, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..20 {
                std::thread::sleep(Duration::from_millis(5));
                (0..4).for_each(|at| near.send(sender, 0, bytes((turn * 4 + at) * LEN, LEN)));
                (0..4).for_each(|_| next(&mut near).outcome.unwrap());
            }
        });
        (0..80).for_each(|tag| far.receive(receiver, tag, vec![0; LEN]));
        let (mut fetched, mut wakes) = (0, 0);
        while fetched < 80 {
            match far.try_next().unwrap() {
                Some(done) => {
                    done.outcome.unwrap();
                    assert!(done.tag == fetched as u64 && done.buffer == bytes(fetched * LEN, LEN));
                    fetched += 1;
                }
                None => {
                    let limit = Timespec::try_from(PATIENCE).unwrap();
                    assert_eq!(poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&limit)), Ok(1));
                    wakes += 1;
                }
            }
        }
        assert!(wakes > 0);
        assert!(far.try_next().unwrap().is_none());
    });
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    until("it lies quiet", || {
        assert!(far.try_next().unwrap().is_none());
        (poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&zero)) == Ok(0)).then_some(())
    });
}

#[test]
fn queue_tells_the_end_behind_all_and_buffers_come_back() {
    let lab = pair();
    let [(mut near, sender), (mut far, receiver)] = queues(&lab, 2);
    (0..4).for_each(|tag| far.receive(receiver, tag, vec![0xaa; LEN]));
    near.send(sender, 0, bytes(0, LEN + 5));
    next(&mut near).outcome.unwrap();
    drop(near);
    let expected = [LEN, 5, 0, 0];
    for (tag, count) in expected.into_iter().enumerate() {
        let done = next(&mut far);
        done.outcome.unwrap();
        assert_eq!((done.tag, done.bytes, done.buffer.len()), (tag as u64, count, LEN));
        assert!(done.buffer[..count] == bytes(tag * LEN, count)[..]);
    }
}

#[test]
fn cancelled_transfer_is_not_written_again() {
    let lab = pair();
    for turn in 0..20 {
        let [(mut near, sender), (mut far, receiver)] = queues(&lab, 2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut tag = 0;
                while !stop.load(SeqCst) {
                    while near.len() < DEPTH {
                        near.send(sender, tag, vec![1; LEN]);
                        tag += 1;
                    }
                    let _ = near.wait_within(Duration::from_millis(5)).unwrap();
                }
                drop(near);
            });
            (0..30).for_each(|tag| far.receive(receiver, tag, vec![0; 1 << 20]));
            // It begins, and is taken back at some moment.
            let _ = far.wait_within(Duration::from_micros(turn * 150)).unwrap();
            far.cancel(receiver);
            let mut back = Vec::new();
            while let Some(done) = far.try_next().unwrap() {
                assert!(done.outcome.is_ok() || matches!(done.outcome, Err(Error::Cancelled)));
                assert!(done.buffer[..done.bytes].iter().all(|byte| *byte == 1));
                assert!(done.bytes == done.buffer.len() || done.outcome.is_err());
                back.push(vec![2; done.buffer.len()]);
                // The same memory, most likely: nothing may be written there any more.
                let mut mine = done.buffer;
                mine.fill(3);
                back.push(mine);
            }
            assert!(back.len() >= 58, "{}", back.len());
            // The stream goes on behind what came.
            far.receive(receiver, 99, vec![0; LEN]);
            let done = next(&mut far);
            assert!(done.outcome.is_ok() && done.buffer.iter().all(|byte| *byte == 1));
            std::thread::sleep(Duration::from_millis(2));
            assert!(
                back.chunks(2).all(|two| two[0].iter().all(|b| *b == 2) && two[1].iter().all(|b| *b == 3))
            );
            stop.store(true, SeqCst);
        });
        // Dropped with something under way.
        (0..5).for_each(|tag| far.receive(receiver, tag, vec![0; 1 << 20]));
        let _ = far.try_next().unwrap();
        drop(far);
    }
}

#[test]
fn daemon_that_is_killed_ends_all_and_gives_the_buffers_back() {
    let mut lab = pair();
    let [(mut near, sender), (mut far, receiver)] = queues(&lab, 2);
    let (lengths, there) = (vec![LEN; 1_000_000], AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let outcome = send_all(&mut near, sender, &lengths, |_| ());
            assert!(matches!(outcome, Err(Error::DaemonGone)), "{outcome:?}");
            let mut rest = 0;
            while let Some(done) = near.wait_within(PATIENCE).unwrap() {
                assert!(done.outcome.is_err() && done.buffer.len() == LEN);
                rest += 1;
            }
            assert!(rest >= DEPTH - 1 && near.is_empty());
        });
        let receiving =
            scope.spawn(|| receive_all(&mut far, receiver, &lengths, |bytes| there.store(bytes, SeqCst)));
        until("it flows", || (there.load(SeqCst) > 20 << 20).then_some(()));
        lab.kill(1);
        until("the sender ends", || sending.is_finished().then_some(()));
        until("the receiver ends", || receiving.is_finished().then_some(()));
        sending.join().unwrap();
        assert!(receiving.join().unwrap().is_err());
    });
}

/// Both queues sleep for the other once, so that each has found the other's wake event: a daemon that stands still cannot
/// be asked for it.
fn acquaint(near: &mut (Queue, Member), far: &mut (Queue, Member)) {
    let pause = Duration::from_millis(50);
    // Too little for the engine, and all together more than a ring holds.
    let (first, rest) = ([1000], [1000; 5000]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            send_all(&mut near.0, near.1, &first, |_| ()).unwrap();
            send_all(&mut near.0, near.1, &rest, |_| ()).unwrap();
        });
        receive_all(&mut far.0, far.1, &first, |_| ()).unwrap();
        std::thread::sleep(pause * 2);
        receive_all(&mut far.0, far.1, &rest, |_| ()).unwrap();
    });
}

#[test]
fn stopped_daemon_holds_nobody_up() {
    let mut lab = pair();
    let [mut near, mut far] = queues(&lab, 2);
    acquaint(&mut near, &mut far);
    let [(mut near, sender), (mut far, receiver)] = [near, far];
    let (lengths, there) = (vec![LEN; 4000], AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    let pids = [1, 2].map(|number| Pid::from_child(lab.daemon(number)));
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut near, sender, &lengths, |_| ()).unwrap());
        let receiving = scope
            .spawn(|| receive_all(&mut far, receiver, &lengths, |bytes| there.store(bytes, SeqCst)).unwrap());
        until("it flows", || (there.load(SeqCst) > 0).then_some(()));
        pids.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        let _resume = crate::faults::Resume(&pids, &over);
        let before = there.load(SeqCst);
        until("it goes on", || {
            (there.load(SeqCst) > before + (20 << 20) || receiving.is_finished()).then_some(())
        });
    });
}

#[test]
fn cable_that_is_cut_loses_nothing_where_there_is_another_way() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c12", true), port("c31", false)], crate::CONFIG);
    lab.configure(2, 2, &[port("c23", true), port("c12", false)], crate::CONFIG);
    lab.configure(3, 3, &[port("c31", true), port("c23", false)], crate::CONFIG);
    (1..=3).for_each(|number| lab.start(number));
    lab.wait_hosts(1, &[2, 3]);
    lab.wait_hosts(2, &[1, 3]);
    lab.wait_hosts(3, &[1, 2]);
    let [(mut near, sender), (mut far, receiver)] = queues(&lab, 2);
    let (lengths, there) = (vec![LEN; 1500], AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&mut near, sender, &lengths, |_| ()).unwrap());
        scope
            .spawn(|| receive_all(&mut far, receiver, &lengths, |bytes| there.store(bytes, SeqCst)).unwrap());
        until("it flows", || (there.load(SeqCst) > 20 << 20).then_some(()));
        let request = crosslane_wire::local::Request::Cut { port: "c12".to_owned() };
        let mut tool = crate::support::Client::hello(&lab.control(1), "tool");
        tool.ask(&request, &[]);
    });
    assert_eq!(there.load(SeqCst), LEN * lengths.len());
}

#[test]
fn peer_that_is_killed_ends_what_is_under_way() {
    let lab = pair();
    let far = fabric(&lab, 2);
    let listener = listen(&far, 2);
    for what in ["send", "receive"] {
        let child = crate::faults::start(&lab.control(1), listener.address(), what);
        let stream: Stream = listener.accept().unwrap();
        let mut queue = Queue::new(&far).unwrap();
        let member = queue.add(stream).unwrap();
        let submit = |queue: &mut Queue| match what {
            "send" => queue.receive(member, 0, vec![0; LEN]),
            _ => queue.send(member, 0, vec![0; LEN]),
        };
        (0..DEPTH).for_each(|_| submit(&mut queue));
        for _ in 0..100 {
            next(&mut queue).outcome.unwrap();
            submit(&mut queue);
        }
        crate::faults::kill(child);
        let mut back = 0;
        while let Some(done) = queue.wait_within(PATIENCE).unwrap() {
            assert_eq!(done.buffer.len(), LEN);
            back += 1;
        }
        assert!(back == DEPTH && queue.is_empty(), "{back}");
    }
}
