//! Many who ask for long texts, again and again: everybody else is served meanwhile.

mod support;

use crosslane_wire::local::{Reply, Request};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::*;

/// Sessions that ask.
const ASKERS: usize = 60;

#[test]
fn everybody_gets_a_text_that_is_no_older_than_the_question() {
    let lab = Lab::pair();
    let mut clients: Vec<Client> = (0..ASKERS).map(|_| Client::hello(&lab.control(1), "asker")).collect();
    for round in 1..4 {
        for client in &clients {
            client.tell(&Request::Status, &[]);
        }
        for client in &mut clients {
            let status: serde_json::Value = serde_json::from_str(&client.text_answer()).unwrap();
            assert!(status["sessions"].as_u64().unwrap() >= ASKERS as u64, "round {round}");
        }
    }
    drop(clients);
    lab.wait(1, "sessions are gone", |status| status["sessions"] == 1);
}

#[test]
fn text_is_the_same_for_all_who_ask_at_the_same_time() {
    let mut lab = Lab::pair();
    let mut clients: Vec<Client> = (0..ASKERS).map(|_| Client::hello(&lab.control(1), "asker")).collect();
    let pid = Pid::from_child(lab.daemon(1));
    kill_process(pid, Signal::STOP).unwrap();
    clients.iter().for_each(|client| client.tell(&Request::Status, &[]));
    kill_process(pid, Signal::CONT).unwrap();
    // Each tells the time.
    let texts: BTreeSet<String> = clients.iter_mut().map(Client::text_answer).collect();
    assert!(texts.len() < 5, "{} texts for {ASKERS} sessions", texts.len());
}

#[test]
fn text_that_is_not_read_costs_its_session_and_holds_nobody_up() {
    let lab = Lab::pair();
    let lazy: Vec<Client> = (0..4).map(|_| Client::hello(&lab.control(1), "lazy")).collect();
    for client in &lazy {
        // One text at a time: the others lie in the queue.
        while client.try_tell(&Request::Status) != Err(Errno::AGAIN) {}
    }
    lab.wait(1, "lazy ones are gone", |status| status["sessions"] == 1);
}

#[test]
fn flood_of_questions_takes_a_part_of_the_time() {
    let lab = Lab::pair();
    let (end, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut clients: Vec<Client> =
                    (0..8).map(|_| Client::hello(&lab.control(1), "asker")).collect();
                while !end.load(Relaxed) {
                    clients.iter().for_each(|client| client.tell(&Request::Status, &[]));
                    clients.iter_mut().for_each(|client| drop(client.text_answer()));
                    answers.fetch_add(clients.len(), Relaxed);
                }
            });
        }
        until("the flood runs", || (answers.load(Relaxed) > 64).then_some(()));
        let mut client = Client::hello(&lab.control(1), "honest");
        let (mut worst, until_then) = (Duration::ZERO, Instant::now() + Duration::from_secs(1));
        while Instant::now() < until_then {
            let begin = Instant::now();
            let (reply, _) = client.ask(&Request::Echo { to: crosslane_wire::HostId(2) }, &[]);
            assert!(matches!(reply, Reply::Echo { round_trip_ns: Some(_), .. }), "{reply:?}");
            worst = worst.max(begin.elapsed());
        }
        println!("worst echo {worst:?}, {} texts", answers.load(Relaxed));
        end.store(true, Relaxed);
    });
}
