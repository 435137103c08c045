//! Streams of a small window: a few have long rings, others short ones, which move to longer ones when they ask for it.

mod support;

use crosslane_shm::Load;
use crosslane_wire::local::{Reply, Request, STATUS_ALIVE, status_generation, status_reason};
use crosslane_wire::segment::segment_len;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use support::*;

const SHORT: u64 = 64 << 10;
const LONG: u64 = 256 << 10;

/// Two daemons with windows of 4 MB, and sessions with them.
struct Small {
    lab: Lab,
    client: Client,
    server: Client,
    listener: TcpListener,
}

/// A stream's two ends, and their sockets.
type Stream = (Circuit, Circuit, [OwnedFd; 2]);

impl Small {
    fn new(lab: Lab) -> Self {
        Self::with_windows(lab, "4M")
    }

    fn with_windows(mut lab: Lab, window: &'static str) -> Self {
        for (number, listens) in [(1, true), (2, false)] {
            lab.configure(number.into(), number, &[TestPort { cable: "c", listens, window }], "");
            lab.start(number.into());
        }
        lab.wait_hosts(1, &[2]);
        lab.wait_hosts(2, &[1]);
        let [client, mut server] = [1, 2].map(|number| Client::hello(&lab.control(number), "program"));
        let listener = TcpListener::bind("127.86.0.2:0").unwrap();
        server.listen(&listener);
        Self { lab, client, server, listener }
    }

    fn open(&mut self) -> Result<Stream, Reply> {
        let (socket, near) = self.client.connect_to("127.86.0.1:0", self.listener.local_addr().unwrap());
        let near = near?;
        let (ours, theirs) = finish(socket, &self.listener);
        let far = self.server.circuit(&Request::Accept, theirs.as_fd()).unwrap();
        Ok((near, far, [ours.into(), theirs.into()]))
    }

    fn close(&self, stream: &Stream) {
        self.client.close(&stream.0, false);
        self.server.close(&stream.1, false);
    }

    fn request_grow(&self, near: &Circuit, generation: u32) {
        // A daemon that does not come after with a flood of them is asked less.
        let _ = self.client.try_tell(&Request::Grow { circuit: near.id, token: near.token, generation });
    }

    fn generation(&self, near: &Circuit) -> u32 {
        let word = self.client.status(near);
        if status_reason(word) == STATUS_ALIVE { status_generation(word) } else { 0 }
    }

    /// Bytes of the ring that a stream has got after its first one.
    fn moved_ring(&mut self, near: &Circuit) -> u64 {
        until("the stream goes on", || (self.generation(near) > 0).then_some(()));
        let request = Request::Resume { circuit: near.id, token: near.token, generation: 0 };
        let (reply, _) = self.client.ask(&request, &[]);
        let Reply::Resumed { channel, .. } = reply else { panic!("{reply:?}") };
        channel.ring_max
    }
}

fn ring(end: &Circuit) -> u64 {
    u64::try_from(end.inbound.len()).unwrap() - segment_len(0)
}

/// A stream with a short ring, and those with long ones that were opened before.
fn crowded(small: &mut Small) -> (Stream, Vec<Stream>) {
    let mut long = Vec::new();
    loop {
        let stream = small.open().unwrap();
        if ring(&stream.0) == SHORT {
            return (stream, long);
        }
        assert_eq!(ring(&stream.0), LONG);
        long.push(stream);
    }
}

fn short_ring_becomes_a_long_one(lab: Lab) {
    let mut small = Small::new(lab);
    let (short, long) = crowded(&mut small);
    assert!(long.len() >= 2, "{} streams with long rings", long.len());
    small.request_grow(&short.0, 0);
    assert_eq!(small.moved_ring(&short.0), LONG);
}

#[test]
fn growth_short_ring_becomes_a_long_one() {
    short_ring_becomes_a_long_one(Lab::soft());
}

#[test]
fn growth_short_ring_becomes_a_long_one_over_a_posted_cable() {
    short_ring_becomes_a_long_one(Lab::posted("0-1000"));
}

/// As bridges have whose windows are 1 MB, less what the kernel module and the port take of them.
#[test]
fn growth_smallest_windows_have_room_for_a_few_streams() {
    for lab in [Lab::soft(), Lab::posted("0-1000")] {
        let mut small = Small::with_windows(lab, "896K");
        let streams: Vec<_> = std::iter::from_fn(|| small.open().ok()).take(100).collect();
        assert!((3..6).contains(&streams.len()), "{} streams", streams.len());
        streams.iter().for_each(|stream| small.close(stream));
        until("there is room again", || small.open().ok().map(drop));
    }
}

#[test]
fn growth_is_had_when_there_is_room_again() {
    let mut small = Small::new(Lab::soft());
    let (short, long) = crowded(&mut small);
    let mut others = Vec::new();
    while let Ok(stream) = small.open() {
        others.push(stream);
    }
    assert!(others.len() > 8, "{} streams with short rings", others.len());
    small.request_grow(&short.0, 0);
    let status = small.lab.status(1);
    assert_eq!((status["counters"]["moves"].as_u64(), small.generation(&short.0)), (Some(0), 0));
    let begin = Instant::now();
    for stream in long.iter().chain(&others) {
        small.close(stream);
    }
    assert!(small.moved_ring(&short.0) > SHORT);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn growth_without_end_moves_a_stream_no_more_than_a_few_times() {
    let mut small = Small::new(Lab::soft());
    let (short, long) = crowded(&mut small);
    for _ in 0..1000 {
        let generation = small.generation(&short.0);
        small.request_grow(&short.0, generation);
        small.request_grow(&short.0, generation + 1);
        small.request_grow(&long[0].0, 0);
        let forged = Request::Grow { circuit: short.0.id, token: short.0.token ^ 1, generation };
        let _ = small.client.try_tell(&forged);
    }
    small.moved_ring(&short.0);
    let moves = small.lab.status(1)["counters"]["moves"].as_u64().unwrap();
    assert!((1..=2).contains(&moves), "{moves} moves");
}
