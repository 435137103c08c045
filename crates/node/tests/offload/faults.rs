//! Programs and daemons that end or stand still while the engine copies.

use crate::support::{PATIENCE, until};
use crate::{byte, bytes, check_flow, fabric, join, listen, moved, pair};
use crosslane::stream::{Error, Stream};
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Names what [`child`] does: the control socket, the address, and `send` or `receive`.
const CHILD: &str = "OFFLOAD_CHILD";

/// Not a test of its own, and nothing to do unless told: the program that others start and kill.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = told.split(' ').collect();
    let fabric = crosslane::fabric::Fabric::open_at(words[0].as_ref()).unwrap();
    let stream = fabric.connect(words[1].parse().unwrap()).unwrap();
    stream.set_offload(true);
    let mut buffer = bytes(0, 1 << 20);
    loop {
        let outcome = match words[2] {
            "send" => stream.send(&buffer),
            _ => stream.receive(&mut buffer).map(drop),
        };
        if outcome.is_err() {
            return;
        }
    }
}

pub(crate) fn start(control: &std::path::Path, address: SocketAddr, what: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::child"]);
    command.env(CHILD, format!("{} {address} {what}", control.display()));
    command.stdout(Stdio::null()).spawn().unwrap()
}

pub(crate) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn either_program_is_killed_in_the_middle_and_the_engine_goes_on() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    let far = fabric(&lab, 2);
    let listener = listen(&far, 2);
    for what in ["send", "receive", "send", "receive"] {
        let child = start(&lab.control(1), listener.address(), what);
        let stream = listener.accept().unwrap();
        stream.set_offload(true);
        stream.set_receive_timeout(Some(PATIENCE));
        stream.set_send_timeout(Some(PATIENCE));
        let (mut buffer, mut much) = (vec![7; 1 << 20], 0);
        let mut step = |stream: &Stream| match what {
            "send" => stream.receive(&mut buffer),
            _ => stream.send(&buffer).map(|()| buffer.len()),
        };
        while much < 50 << 20 {
            much += step(&stream).unwrap();
        }
        kill(child);
        loop {
            match step(&stream) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
    check_flow(&client, &server, 1, &[1 << 20; 8], 1 << 20);
    assert!(moved(&lab, 1).0 > 100 << 20);
}

#[test]
fn daemon_that_is_killed_ends_its_streams_and_leaves_nobody_waiting() {
    let mut lab = pair();
    let (client, server) = join(&lab, 1, 2);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let buffer = vec![1; 1 << 20];
            while client.send(&buffer).is_ok() {}
        });
        let receiver = scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            while let Ok(count) = server.receive(&mut buffer)
                && count > 0
            {
                done.fetch_add(count, SeqCst);
            }
        });
        until("it flows", || (done.load(SeqCst) > 20 << 20).then_some(()));
        lab.kill(1);
        until("the sender ends", || sender.is_finished().then_some(()));
        until("the receiver ends", || receiver.is_finished().then_some(()));
    });
    assert!(matches!(client.send(&[1; 100_000]), Err(Error::DaemonGone)));
}

/// Both ends sleep for the other once, so that each has found the other's wake event: a daemon that stands still cannot
/// be asked for it.
fn acquaint(client: &Stream, server: &Stream) {
    let pause = Duration::from_millis(50);
    let both = |on| [client, server].iter().for_each(|stream| stream.set_offload(on));
    both(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            client.send(&[1]).unwrap();
            client.send(&vec![1; 4 << 20]).unwrap();
        });
        let mut buffer = vec![0; 4 << 20];
        server.receive_all(&mut buffer[..1]).unwrap();
        std::thread::sleep(pause * 2);
        server.receive_all(&mut buffer).unwrap();
    });
    both(true);
}

/// However a test ends, what it stopped runs again, and its threads end.
pub(crate) struct Resume<'a>(pub(crate) &'a [Pid], pub(crate) &'a AtomicBool);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        for pid in self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
        self.1.store(true, SeqCst);
    }
}

#[test]
fn programs_go_on_by_themselves_while_a_daemon_is_stopped() {
    let mut lab = pair();
    let (client, server) = join(&lab, 1, 2);
    let (stop, sent, received) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    acquaint(&client, &server);
    let pids = [1, 2].map(|number| Pid::from_child(lab.daemon(number)));
    std::thread::scope(|scope| {
        let resume = Resume(&pids, &stop);
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                client.send(&bytes(sent.load(SeqCst), 600_000)).unwrap();
                sent.fetch_add(600_000, SeqCst);
            }
            client.finish().unwrap();
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            loop {
                let count = server.receive(&mut buffer).unwrap();
                let at = received.load(SeqCst);
                assert!((0..count).all(|index| buffer[index] == byte(at + index)), "{count} bytes at {at}");
                if count == 0 {
                    break;
                }
                received.fetch_add(count, SeqCst);
            }
        });
        let flows = |what: &str| {
            let before = received.load(SeqCst);
            until(what, || (received.load(SeqCst) > before + (30 << 20)).then_some(()));
        };
        flows("it flows");
        for _ in 0..3 {
            pids.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
            flows("it goes on without the engines");
            pids.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
            flows("it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(resume);
    });
    assert_eq!(sent.load(SeqCst), received.load(SeqCst));
}
