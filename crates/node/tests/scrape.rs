//! Readers of the metrics over HTTP, beside others that only take their place.

mod support;

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use support::*;

/// Connections that say nothing: many more than there may be readers.
const IDLE: usize = 300;

fn lab() -> (Lab, SocketAddr) {
    static LABS: AtomicU8 = AtomicU8::new(1);
    // An address of its own: nobody's connection gets the port meanwhile.
    let address = [127, 86, 1, LABS.fetch_add(1, Relaxed)];
    let free = TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap();
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true)], &format!("metrics = \"{free}\""));
    lab.start(1);
    // The control socket is there earlier.
    until("the metrics' address is there", || TcpStream::connect(free).ok());
    (lab, free)
}

fn scrape(server: SocketAddr) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    answer(stream)
}

fn answer(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole answer");
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("crosslane_sessions "), "{text}");
    text
}

/// Connections of another user, which are there and stay silent.
fn idle(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let user = rustix::process::Uid::from_raw(NOBODY);
    let connect = move || {
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        (0..count).map(|_| TcpStream::connect(server).unwrap()).collect()
    };
    std::thread::spawn(connect).join().unwrap()
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    !matches!((&mut &*stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn idle_connections_of_another_user_take_nobodys_place() {
    if !may_be_others() {
        return;
    }
    let (_lab, server) = lab();
    // It is slow: half of its request comes after all the others.
    let mut slow = TcpStream::connect(server).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let crowd = idle(server, IDLE);
    until("the crowd is cut down", || {
        let closed = crowd.iter().filter(|stream| is_closed(stream)).count();
        (closed >= IDLE - 8).then_some(())
    });
    scrape(server);
    slow.write_all(b"\r\n").unwrap();
    answer(slow);
    // Those of the crowd that are newest are still there: the oldest went.
    assert!(crowd[..IDLE - 8].iter().all(is_closed));
}

#[test]
fn scrape_that_comes_often_sees_what_is_new_all_the_same() {
    let (lab, server) = lab();
    let begin = std::time::Instant::now();
    (0..200).for_each(|_| drop(scrape(server)));
    println!("200 scrapes in {:?}", begin.elapsed());
    // What is new is seen when the last text has become old.
    let _more = [(); 3].map(|()| Client::hello(&lab.control(1), "more"));
    until("a new text", || scrape(server).contains("crosslane_sessions 3\n").then_some(()));
}

#[test]
fn reader_that_takes_its_time_holds_nobody_up() {
    let (_lab, server) = lab();
    let mut lazy: Vec<TcpStream> = (0..7).map(|_| TcpStream::connect(server).unwrap()).collect();
    lazy.iter_mut().for_each(|stream| stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap());
    for _ in 0..20 {
        scrape(server);
    }
    lazy.into_iter().for_each(|stream| drop(answer(stream)));
}
