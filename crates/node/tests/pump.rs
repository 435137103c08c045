//! Pumps between real ends: bytes, ends of streams, sleepers, neighbours that lie.

mod pumping;

use crosslane_client::Failure;
use crosslane_node::pump::{Command, Pumps, Report, TransitId};
use crosslane_shm::{Load, Store};
use crosslane_wire::WaiterId;
use crosslane_wire::record::{self, Kind};
use crosslane_wire::segment::{
    ACKED, CREDIT, LINE, ORDER, RING, RING_MIN, STATE, STATE_ATTACHED, WANT_DATA, WANT_ROOM,
};
use fastrand::Rng;
use pumping::{Between, Chain, Channel, Program, byte, hosts, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const MB: usize = 1 << 20;

/// Sends `total` bytes of a stream in pieces of all sizes, and closes that direction.
fn send_stream(program: &Program, stream: u8, total: u64) {
    let (mut dice, mut at) = (Rng::with_seed(stream.into()), 0_u64);
    while at < total {
        let size = if dice.usize(..3) == 0 { dice.usize(..300_000) } else { dice.usize(..2000) } + 1;
        let piece: Vec<u8> = (at..total).take(size).map(|at| byte(stream, at)).collect();
        program.send(&piece);
        at += piece.len() as u64;
    }
    program.send_control(Kind::DisConn);
}

fn receive_stream(program: &Program, stream: u8, total: u64) {
    let (mut dice, mut at, mut piece) = (Rng::with_seed(total), 0_u64, vec![0; 200_000]);
    loop {
        let size = dice.usize(..piece.len()) + 1;
        let count = program.receive(&mut piece[..size]);
        if count == 0 {
            break;
        }
        for got in &piece[..count] {
            assert_eq!(*got, byte(stream, at), "byte {at} of stream {stream}");
            at += 1;
        }
    }
    assert_eq!(at, total);
}

fn both_ways(chain: &Chain, total: u64) {
    let [client, server] = &chain.programs;
    std::thread::scope(|scope| {
        scope.spawn(|| send_stream(client, 1, total));
        scope.spawn(|| receive_stream(server, 1, total));
        scope.spawn(|| send_stream(server, 2, total / 2));
        receive_stream(client, 2, total / 2);
    });
    for (host, transit) in &chain.between {
        until("all is counted", || host.pumps.lock().unwrap().traffic(*transit) == [total, total / 2]);
    }
}

#[test]
fn bytes_arrive_in_order_both_ways_through_one_two_and_three_pumps() {
    for count in 1..=3 {
        for (spin, ring_max) in [(50, 4 << 20), (0, RING_MIN)] {
            let (hosts, board) = hosts(count, spin);
            both_ways(&Chain::through(&hosts, &board, ring_max), 30_000_000);
        }
    }
}

#[test]
fn small_sends_that_are_gathered_go_through_pumps() {
    const TOTAL: u64 = 2_000_000;
    for count in [1, 2] {
        let (hosts, board) = hosts(count, 20);
        let chain = Chain::through(&hosts, &board, RING_MIN);
        let [client, server] = &chain.programs;
        let (lines, sends) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let (mut dice, mut at, mut sends) = (Rng::with_seed(1), 0, 0);
                while at < TOTAL {
                    let piece: Vec<u8> =
                        (at..TOTAL).take(dice.usize(..40) + 1).map(|at| byte(1, at)).collect();
                    client.send(&piece);
                    at += piece.len() as u64;
                    sends += 1;
                }
                client.send_control(Kind::DisConn);
                (client.end.shared().producer.position() / LINE, sends)
            });
            // All rings are full before the first byte is read.
            until("the sender waits", || client.sleeps.load(Relaxed) > 0);
            receive_stream(server, 1, TOTAL);
            sender.join().unwrap()
        });
        assert!(lines + 1000 < sends, "{lines} lines for {sends} sends");
    }
}

#[test]
fn kept_bytes_are_released_whatever_the_length_of_the_rings() {
    for count in [1, 3] {
        for ring_max in [RING_MIN, 2 * RING_MIN, 4 * RING_MIN, 8 * RING_MIN, 1 << 20, 8 << 20] {
            let (hosts, board) = hosts(count, 0);
            both_ways(&Chain::through(&hosts, &board, ring_max), 5_000_000);
        }
    }
}

#[test]
fn landing_is_told_all_the_way_back() {
    for (count, posted) in [(1, false), (3, false), (2, true)] {
        let (hosts, board) = hosts(count, 20);
        let chain = Chain::over(&hosts, &board, 1 << 20, posted);
        both_ways(&chain, 20_000_000);
        let units = 20_000_000 + 2;
        let seen = chain.channels[0].seen(true);
        // A receiver withholds a quarter of its ring, and each host between tells in steps.
        let late = (256 + 32 + count as u64 * 32) * 1024;
        until("nearly all has landed", || seen.load_u64(ACKED) + late >= units);
        assert!(seen.load_u64(ACKED) <= units);
    }
}

#[test]
fn sleepers_are_woken_whoever_sleeps_and_whoever_rings() {
    for (count, spin, kind) in [(1, 0, true), (2, 0, true), (2, 30, true), (1, 0, false)] {
        let (_, board) = hosts(0, 0);
        let between = |_| Arc::new(Between::new(&board, Duration::from_micros(spin), kind));
        let hosts: Vec<_> = (0..count).map(between).collect();
        let mut chain = Chain::through(&hosts, &board, RING_MIN);
        chain.programs.iter_mut().for_each(|program| program.looks = 1);
        let [client, server] = &chain.programs;
        let rounds = 3000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut dice, mut piece) = (Rng::with_seed(1), vec![0; 100_000]);
                for _ in 0..rounds {
                    let size = size(&mut dice);
                    server.receive_all(&mut piece[..size]);
                    server.send(&piece[..1]);
                }
            });
            let (mut dice, mut pause, piece) = (Rng::with_seed(1), Rng::with_seed(2), vec![7; 100_000]);
            for _ in 0..rounds {
                client.send(&piece[..size(&mut dice)]);
                client.receive_all(&mut [0]);
                if pause.usize(..3) == 0 {
                    std::thread::sleep(Duration::from_micros(pause.usize(..150) as u64));
                }
            }
        });
        let slept = |program: &Program| program.sleeps.load(Relaxed);
        assert!(slept(client) + slept(server) > rounds / 2, "nobody slept: nothing was tried");
    }
}

/// Ends what others do in a loop, however a test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn circuit_that_rings_without_end_and_takes_what_it_can_delays_no_other() {
    let (_, board) = hosts(0, 0);
    let host = [Arc::new(Between::new(&board, Duration::ZERO, true))];
    let thief = Chain::through(&host, &board, RING_MIN);
    let mut chain = Chain::through(&host, &board, RING_MIN);
    chain.programs.iter_mut().for_each(|program| program.looks = 1);
    let waker = host[0].pumps.lock().unwrap().receiver_of(thief.between[0].1).unwrap().1.waker().unwrap();
    let (over, rounds) = (AtomicBool::new(false), 3000);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Relaxed) {
                waker.wake();
                let _ = rustix::io::read(&waker, &mut [0; 8]);
            }
        });
        scope.spawn(|| {
            for _ in 0..rounds {
                chain.programs[1].receive_all(&mut [0; 10]);
                chain.programs[1].send(&[1; 10]);
            }
        });
        for _ in 0..rounds {
            chain.programs[0].send(&[2; 10]);
            chain.programs[0].receive_all(&mut [0; 10]);
        }
    });
}

/// Mostly small, sometimes more than a small ring holds.
fn size(dice: &mut Rng) -> usize {
    if dice.usize(..50) == 0 { 100_000 } else { dice.usize(..100) + 1 }
}

#[test]
fn program_that_was_killed_is_gone_behind_all_that_it_sent() {
    let (hosts, board) = hosts(2, 20);
    let chain = Chain::through(&hosts, &board, 1 << 20);
    let [client, server] = &chain.programs;
    let bytes = vec![5; MB / 4];
    client.send(&bytes);
    let (host, transit) = &chain.between[0];
    host.command(Command::Drain { transit: *transit, leg: 0 });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!server.end.gone() || server.end.has_data(1), "gone before its bytes");
    server.receive_all(&mut vec![0; MB / 4]);
    until("gone is told", || server.end.gone());
    host.expect("dry", |report| *report == Report::Dry { transit: *transit, leg: 0 });
}

#[test]
fn bytes_for_nobody_are_thrown_away_and_whoever_waits_for_room_is_woken() {
    let (hosts, board) = hosts(1, 20);
    let chain = Chain::through(&hosts, &board, RING_MIN);
    let [client, server] = &chain.programs;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Some of it finds a far end that is there, some one that is gone.
            for _ in 0..100 {
                match client.try_send(&[1; 10_000]) {
                    Ok(_) | Err(Failure::Unheard(_)) => {}
                    Err(Failure::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
                    Err(failure) => return assert_eq!(failure, Failure::Ended),
                }
            }
        });
        std::thread::sleep(Duration::from_millis(2));
        server.end.leave();
        let (host, transit) = &chain.between[0];
        host.command(Command::Drain { transit: *transit, leg: 1 });
    });
    let (host, transit) = &chain.between[0];
    until("the client is told", || client.end.gone());
    client.end.leave();
    host.command(Command::Drain { transit: *transit, leg: 0 });
    for leg in [0, 1] {
        host.expect("dry", |report| *report == Report::Dry { transit: *transit, leg });
    }
}

#[test]
fn abort_and_a_downgrade_go_on_as_they_are() {
    for (kind, failure) in [(Kind::AbortConn, Failure::Reset), (Kind::Downgrade, Failure::Tcp)] {
        let (hosts, board) = hosts(2, 20);
        let chain = Chain::through(&hosts, &board, 1 << 20);
        let [client, server] = &chain.programs;
        client.send(b"last words");
        client.send_control(kind);
        let mut words = [0; 10];
        server.receive_all(&mut words);
        assert_eq!(&words, b"last words");
        until("the turn arrives", || server.try_receive(&mut [0]) == Err(failure));
    }
}

#[test]
fn stamps_are_asked_for_and_passed_on_through_all() {
    let (hosts, board) = hosts(2, 20);
    let chain = Chain::through(&hosts, &board, RING_MIN);
    let [client, server] = &chain.programs;
    client.send(b"a");
    server.receive_all(&mut [0]);
    assert_eq!(chain.channels[0].seen(true).load_u32(ORDER), 0);
    server.end.want_stamps();
    let mut stamp = 0;
    until("a stamp", || {
        client.send(b"b");
        until("a record", || server.end.has_data(1));
        stamp = server.end.stamp_of_front();
        server.receive_all(&mut [0]);
        chain.channels[0].seen(true).load_u32(ORDER) == 1
    });
    assert_ne!(stamp, 0, "what was sent before the wish came through has the pump's time");
}

#[test]
fn greedy_circuit_and_one_that_nobody_reads_leave_the_others_their_share() {
    let (hosts, board) = hosts(1, 50);
    let chains: Vec<_> = (0..8).map(|_| Chain::through(&hosts, &board, 1 << 20)).collect();
    let (greedy, unread, modest) = (&chains[0], &chains[1], &chains[2..]);
    let (big, mut target) = (vec![1; MB], vec![0; MB]);
    let (mut much, mut sent, mut got) = (0, [0; 6], [0; 6]);
    while much < 300 * MB {
        for chain in [greedy, unread] {
            let _ = chain.programs[0].try_send(&big);
        }
        much += greedy.programs[1].try_receive(&mut target).unwrap_or(0);
        for (at, chain) in modest.iter().enumerate() {
            sent[at] += chain.programs[0].try_send(&big[..1000]).unwrap_or(0);
            got[at] += chain.programs[1].try_receive(&mut target).unwrap_or(0);
        }
    }
    for at in 0..6 {
        assert!(sent[at] > 100_000 && got[at] * 2 > sent[at], "{got:?} of {sent:?}");
    }
}

/// A circuit with a liar on both sides; whether it was found out.
fn lie(host: &Between, lies: impl Fn(&Channel, bool)) -> bool {
    let channels = [Channel::new("liar", RING_MIN), Channel::new("liar", RING_MIN)];
    let transit = host.add([channels[0].leg(false, false, false), channels[1].leg(true, false, false)]);
    until("attached", || channels[0].seen(true).load_u32(STATE) == STATE_ATTACHED);
    lies(&channels[0], true);
    lies(&channels[1], false);
    if let Some((_, receiver)) = host.pumps.lock().unwrap().receiver_of(transit) {
        receiver.wake();
    }
    std::thread::sleep(Duration::from_millis(3));
    host.command(Command::Remove { transit });
    host.expect("removed", |report| *report == Report::Removed { transit });
    let reports = host.reports.lock().unwrap();
    reports
        .iter()
        .any(|report| matches!(report, Report::Violated { transit: which, .. } if *which == transit))
}

/// Stores a record at the ring's start.
fn record(channel: &Channel, near: bool, word: u64) {
    let out = channel.forged(near);
    out.store_u64(RING + 8, word);
    out.store_u64(RING, record::mark(channel.key(near), 0));
}

#[test]
fn rubbish_in_any_word_ends_its_own_circuit_only() {
    let (hosts, board) = hosts(1, 20);
    let (host, mut dice) = (&hosts[0], Rng::with_seed(3));
    let good = Chain::through(&hosts, &board, RING_MIN);
    let data = |len: u64| len | 1 << 18;
    let tell = |word: usize, value: u64| {
        move |channel: &Channel, near: bool| {
            channel.forged(near).store_u64(word, value);
            record(channel, near, 10 | 1 << 18);
        }
    };
    until("no record", || lie(host, |channel, near| record(channel, near, u64::MAX)));
    until("beyond the ring's end", || lie(host, |channel, near| record(channel, near, data(65536))));
    until("a message", || lie(host, |channel, near| record(channel, near, 10 | 7 << 18)));
    until("grows beyond its limit", || lie(host, |channel, near| record(channel, near, data(10) | 1 << 22)));
    until("more landed than was sent", || lie(host, tell(ACKED, 1 << 40)));
    assert!(!lie(host, tell(ORDER & !7, u64::MAX)), "states and wishes are what they like");
    for word in (0..0x80).step_by(8).chain([RING, RING + 8]) {
        for value in [1, u64::MAX, 1 << 63, (dice.usize(..1 << 30) as u64) << 20] {
            lie(host, tell(word, value));
        }
    }
    both_ways(&good, 2_000_000);
}

#[test]
fn lies_about_credit_are_found_out_when_it_matters() {
    let (hosts, board) = hosts(1, 20);
    let chain = Chain::through(&hosts, &board, RING_MIN);
    chain.channels[1].forged(false).store_u64(CREDIT, 1 << 40);
    let bytes = vec![1; MB];
    until("found out", || {
        let _ = chain.programs[0].try_send(&bytes);
        let reports = hosts[0].reports.lock().unwrap();
        reports.iter().any(|report| matches!(report, Report::Violated { leg: 1, .. }))
    });
}

#[test]
fn waiters_that_do_not_exist_are_asked_for_a_bounded_number_of_times() {
    let (hosts, board) = hosts(1, 20);
    let chain = Chain::through(&hosts, &board, RING_MIN);
    let (liar, [client, server]) = (chain.channels[1].forged(false), &chain.programs);
    for number in 0..2000_u64 {
        liar.store_u64(WANT_DATA, number << 32 | (1 << 31) | number);
        liar.store_u64(WANT_ROOM, number << 32 | (1 << 30) | number);
        client.send(b"x");
        until("it arrives", || server.try_receive(&mut [0]) == Ok(1));
    }
    let rings = hosts[0].reports.lock().unwrap().iter().filter(|r| matches!(r, Report::Wake { .. })).count();
    assert!((1..=200).contains(&rings), "{rings}");
}

/// Mappings of segments of this name.
fn mappings(name: &str) -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches(&format!("memfd:{name}")).count()
}

#[test]
fn circuit_that_is_removed_in_the_middle_leaves_nothing_mapped_and_the_others_alone() {
    let (hosts, board) = hosts(1, 50);
    let good = Chain::through(&hosts, &board, 1 << 20);
    let channels = [Channel::new("removed", 1 << 20), Channel::new("removed", 1 << 20)];
    let transit = hosts[0].add([channels[0].leg(false, true, false), channels[1].leg(true, true, false)]);
    let client = Program::new(&channels[0], true, &board);
    let before = mappings("removed");
    std::thread::scope(|scope| {
        scope.spawn(|| both_ways(&good, 20_000_000));
        let _ = client.try_send(&vec![1; 700_000]);
        hosts[0].command(Command::Remove { transit });
        hosts[0].expect("removed", |report| *report == Report::Removed { transit });
        assert_eq!(mappings("removed"), before - 4);
        // Its name may be used again.
        hosts[0].command(Command::Remove { transit });
    });
    assert_eq!(hosts[0].pumps.lock().unwrap().traffic(transit), [0; 2]);
}

/// What the kernel knows of the thread of this name: times that it slept by itself, and its time, in ticks.
fn thread_life(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let ours =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let status = |task: std::path::PathBuf| {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let switches = status.lines().find(|line| line.starts_with("voluntary")).unwrap().to_owned();
        switches + &std::fs::read_to_string(task.join("schedstat")).unwrap()
    };
    ours.map(status).collect()
}

#[test]
fn idle_circuits_by_the_thousand_let_the_thread_sleep_and_one_of_them_wakes_it() {
    // Each other test has one thread; the last of these has a name of its own.
    let mut pumps = Pumps::new(3, Duration::from_micros(50)).unwrap();
    let mut circuits = Vec::new();
    for number in 0..1000 {
        let pair = [Channel::new("idle", RING_MIN), Channel::new("idle", RING_MIN)];
        let legs = [pair[0].leg(false, true, false), pair[1].leg(true, true, false)];
        let waiter = WaiterId(900_000 + u32::try_from(number).unwrap());
        pumps.command(Command::Add { transit: TransitId(number), legs, waiter }).unwrap();
        circuits.push(pair.map(|channel| {
            (channel.forged(true), channel.seen(true), channel.seen(false), channel.key(true))
        }));
    }
    assert!(circuits.iter().all(|[(_, near, ..), _]| near.load_u32(STATE) == STATE_ATTACHED));
    until("all are armed", || circuits.iter().all(|[(_, near, ..), _]| near.load_u64(WANT_DATA) != 0));
    std::thread::sleep(Duration::from_millis(20));
    let before = thread_life("pump-2");
    assert_eq!(before.len(), 1);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(thread_life("pump-2"), before, "it woke up");

    for (number, [(out, _, _, key), (_, _, far, far_key)]) in (0..).zip(&circuits).step_by(77) {
        out.store_u64(RING + 8, 10 | 1 << 18);
        out.store_u64(RING, record::mark(*key, 0));
        let (_, receiver) = pumps.receiver_of(TransitId(number)).unwrap();
        receiver.wake();
        until("it is pumped", || far.load_u64(RING) == record::mark(*far_key, 0));
    }
    drop(pumps);
    assert!(thread_life("pump-2").is_empty(), "it ended");
    assert_eq!(mappings("idle"), 1000 * 2 * 3, "only ours are left");
}
