//! Readers of the metrics that send anything, at any pace, many at a time: those who ask get their answer when the others
//! have gone, and streams go on.

use crate::world::{LONG, TestPort, World, until};
use bolero::TypeGenerator;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Connections of one input.
const READERS: usize = 12;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Connect,
    Send(u8, Text),
    Read(u8, u16),
    Finish(u8),
    Close(u8),
    Reset(u8),
}

#[derive(Clone, Debug, TypeGenerator)]
enum Text {
    Any(Vec<u8>),
    Request { path: u8, version: bool, whole: bool },
    Header(Vec<u8>),
    Line,
    End,
    Long(u8),
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Any(bytes) => bytes.clone(),
            Self::Request { path, version, whole } => {
                let path = ["/metrics", "/", "", "/metrics/", "//", "/%6d"][usize::from(path % 6)];
                let version = if *version { "HTTP/1.1" } else { "HTTP/0.9" };
                let end = if *whole { "\r\n\r\n" } else { "\r\n" };
                format!("GET {path} {version}{end}").into_bytes()
            }
            Self::Header(bytes) => [b"X: ", bytes.as_slice(), b"\r\n"].concat(),
            Self::Line => b"\r\n".to_vec(),
            Self::End => b"\r\n\r\n".to_vec(),
            Self::Long(times) => vec![b'x'; usize::from(*times) * 64],
        }
    }
}

fn act(readers: &mut Vec<TcpStream>, server: SocketAddr, step: &Step) {
    match step {
        Step::Connect => {
            if readers.len() < READERS
                && let Ok(stream) = TcpStream::connect(server)
            {
                stream.set_nonblocking(true).unwrap();
                readers.push(stream);
            }
        }
        Step::Send(at, text) => with(readers, *at, |stream| drop(stream.write(&text.bytes()))),
        Step::Read(at, len) => {
            with(readers, *at, |stream| drop(stream.read(&mut vec![0; usize::from(*len)])));
        }
        Step::Finish(at) => with(readers, *at, |stream| drop(stream.shutdown(Shutdown::Write))),
        Step::Close(at) => close(readers, *at),
        Step::Reset(at) => {
            let reset = |stream: &mut TcpStream| {
                rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
            };
            with(readers, *at, reset);
            close(readers, *at);
        }
    }
}

fn with(readers: &mut [TcpStream], at: u8, what: impl FnOnce(&mut TcpStream)) {
    let count = readers.len().max(1);
    readers.get_mut(usize::from(at) % count).map(what);
}

fn close(readers: &mut Vec<TcpStream>, at: u8) {
    if !readers.is_empty() {
        readers.swap_remove(usize::from(at) % readers.len());
    }
}

/// Asks as Prometheus does.
fn scrape(server: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(server).ok()?;
    stream.set_read_timeout(Some(LONG)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

#[test]
fn anything_at_the_metrics_port() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = free.local_addr().unwrap();
    drop(free);
    let (near, far) = ([TestPort { cable: "c", listens: true }], [TestPort { cable: "c", listens: false }]);
    let mut world = World::start(&[&near], &format!("metrics = \"{server}\""));
    world.add(&far, "");
    world.join_honest(2);
    let world = AssertUnwindSafe(std::cell::RefCell::new(world));
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(|steps| {
        let _recent = world.borrow().recent.begin(steps);
        let mut readers = Vec::new();
        steps.iter().for_each(|step| act(&mut readers, server, step));
        drop(readers);
        let answer = until("an answer", || scrape(server));
        assert!(answer.contains("crosslane_sessions "), "{answer}");
        world.borrow_mut().check();
    });
    world.borrow().settle();
}
