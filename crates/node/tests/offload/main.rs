//! The offload engine of real daemons: programs whose bytes it copies, and what may become of both.

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod faults;
mod hostile;
mod ping_pong;
mod queue;
mod registered;
mod transfers;

use crosslane::fabric::{Fabric, Listener};
use crosslane::stream::Stream;
use std::net::SocketAddr;
use support::{Lab, PATIENCE, port};

/// What daemons of these tests are told.
const CONFIG: &str = "offload_least = \"16K\"";

/// Two hosts on one cable.
fn pair() -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true)], CONFIG);
    lab.configure(2, 2, &[port("c", false)], CONFIG);
    (1..=2).for_each(|number| lab.start(number));
    lab.wait_hosts(1, &[2]);
    lab.wait_hosts(2, &[1]);
    lab
}

fn fabric(lab: &Lab, host: usize) -> Fabric {
    Fabric::open_at(&lab.control(host)).unwrap()
}

fn listen(fabric: &Fabric, host: usize) -> Listener {
    let address: SocketAddr = format!("127.86.0.{host}:0").parse().unwrap();
    fabric.listen(address).unwrap()
}

/// A stream from host `from` to host `to`, both of whose ends are offloaded.
fn join(lab: &Lab, from: usize, to: usize) -> (Stream, Stream) {
    let (client, server) = join_plain(&fabric(lab, from), &fabric(lab, to), to);
    for stream in [&client, &server] {
        stream.set_offload(true);
        stream.set_receive_timeout(Some(PATIENCE));
        stream.set_send_timeout(Some(PATIENCE));
    }
    (client, server)
}

/// A stream between programs, of which nothing is said; `far` is on host `to`.
fn join_plain(near: &Fabric, far: &Fabric, to: usize) -> (Stream, Stream) {
    let listener = listen(far, to);
    let client = near.connect(listener.address()).unwrap();
    (client, listener.accept().unwrap())
}

/// Byte `at` of what these tests send.
fn byte(at: usize) -> u8 {
    u8::try_from((at.wrapping_mul(2_654_435_761) >> 7) & 0xff).unwrap()
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

/// Sends `count` bytes one way, in calls of these lengths, and checks all that arrives.
fn check_flow(sender: &Stream, receiver: &Stream, from: usize, lengths: &[usize], buffer: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut at = from;
            for &len in lengths {
                sender.send(&bytes(at, len)).unwrap();
                at += len;
            }
        });
        let (mut at, end) = (from, from + lengths.iter().sum::<usize>());
        let mut space = vec![0; buffer];
        while at < end {
            let count = receiver.receive(&mut space).unwrap();
            assert!(count > 0 && space[..count] == bytes(at, count), "{count} bytes at {at}");
            at += count;
        }
        assert_eq!(at, end);
    });
}

/// What both threads of a host's engine have moved, bytes.
fn moved(lab: &Lab, host: usize) -> (u64, u64) {
    let status = lab.status(host);
    let bytes = |way: &str| status["offload"][way]["bytes"].as_u64().unwrap_or(0);
    (bytes("send"), bytes("receive"))
}
