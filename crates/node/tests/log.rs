//! What strangers can make of the log: not much, and nothing that ends or delays the daemon.

mod support;

use crosslane_wire::local::Request;
use rustix::io::Errno;
use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use support::*;

/// Streams that each cause a line.
const FLOOD: usize = 500;

fn lab(log: Option<Stdio>) -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], "");
    match log {
        Some(log) => lab.start_logging(1, log),
        None => lab.start(1),
    }
    lab
}

/// A program complains about one stream of its own after the other, with a text that would be lines of their own.
fn flood(lab: &Lab) {
    let mut client = Client::hello(&lab.control(1), "forger\n");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    server.listen(&listener);
    for _ in 0..FLOOD {
        let (_socket, end) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
        let end = end.unwrap();
        let text = "x\nERROR forged\x1b[2J\u{202e}".repeat(20);
        let word = Request::Violated { circuit: end.id, token: end.token, text };
        until("it is told", || match client.try_tell(&word) {
            Ok(()) => Some(()),
            Err(Errno::AGAIN) => None,
            Err(errno) => panic!("{errno}"),
        });
    }
    lab.wait(1, "all is heard", |status| status["counters"]["violations"] == FLOOD);
}

/// Many sessions that come and go: each is a line, if somebody wants to know so much.
fn come_and_go(lab: &Lab) {
    for _ in 0..2000 {
        until("a session", || Client::connect(&lab.control(1)));
    }
}

#[test]
fn flood_of_lines_is_cut_counted_and_escaped() {
    let mut lab = lab(None);
    flood(&lab);
    assert_eq!(lab.stop(1), Some(0));
    let log = lab.log(1);
    assert!(log.len() < 300_000, "{} bytes", log.len());
    assert!(log.contains("lines were left out, too many of one kind: crosslane_node::circuit:"), "{log}");
    assert!(log.lines().all(|line| !line.starts_with("ERROR")), "{log}");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn full_disk_ends_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut lab = lab(Some(full.into()));
    flood(&lab);
    assert_eq!(lab.stop(1), Some(0));
}

#[test]
fn reader_that_is_gone_ends_nothing() {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let mut lab = lab(Some(write.into()));
    flood(&lab);
    assert_eq!(lab.stop(1), Some(0));
}

#[test]
fn pipe_that_nobody_reads_delays_nothing() {
    let (read, write) = std::io::pipe().unwrap();
    let mut lab = lab(Some(write.into()));
    come_and_go(&lab);
    flood(&lab);
    assert_eq!(lab.stop(1), Some(0));
    drop(read);
}
