//! What becomes of bytes whose program ends while its stream goes on by another circuit.

mod support;

use crosslane_client::segments::{Next, Retention, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{Daemon, End, Grant, ResumeError};
use crosslane_shm::ring::Cursor;
use crosslane_shm::{Inbound, Load, Outbound};
use crosslane_wire::local::{Reply, Request, STATUS_ALIVE, status_word};
use crosslane_wire::segment::{RING_MIN, STATE, STATE_GONE, segment_len};
use crosslane_wire::{CircuitId, WaiterId, Way};
use rustix::process::{Pid, Signal, kill_process};
use std::io::IoSlice;
use support::joined::{Joined, join, ring};
use support::*;

const RING_MAX: u64 = 1 << 20;

/// A program that never learns of what its daemon does.
#[derive(Debug)]
struct Deaf;

impl Daemon for Deaf {
    fn next(&self, _: CircuitId, _: u64, _: u32) -> Result<Next, ResumeError> {
        Err(ResumeError::Never)
    }

    fn wake(&self, _: CircuitId, _: u64, _: WaiterId) -> bool {
        true
    }
}

/// The client's end, used by a program that does not look at its status page.
fn deaf_end(joined: &Joined, state: SharedState) -> End {
    let near = &joined.near;
    let len = segment_len(RING_MAX);
    let segments = Segments {
        generation: 0,
        ring_max: RING_MAX,
        rx_key: near.keys.0,
        tx_key: near.keys.1,
        inbound: Inbound::sealed(&near.fds[0], len).unwrap(),
        outbound: Outbound::sealed(&near.fds[1], len).unwrap(),
        way: Way::RELAYED,
        retention: Some(Retention::map(&near.fds[2]).unwrap()),
        posted_out_ns: 0,
        posted_in_ns: 0,
    };
    let (circuit, token, tuple) = (near.id, near.token, near.tuple);
    let grant = Grant { circuit, token, tuple, client: true, status: 0, segments, state, twin: false };
    End::prepare(&grant);
    End::begin(grant, Box::leak(Box::default()), &Deaf).unwrap()
}

#[test]
fn program_that_dies_before_it_sees_that_its_stream_goes_on_has_sent_all() {
    let mut lab = ring(4, "pump = true");
    let mut joined = join(&lab, 3);
    let (state, _) = joined.near.state.take().unwrap();
    let end = deaf_end(&joined, state);
    let between = if lab.status(2)["counters"]["transits"] == 1 { 2 } else { 4 };
    let pid = Pid::from_child(lab.daemon(between));
    kill_process(pid, Signal::STOP).unwrap();
    let (bytes, mut sent) = (vec![7; 300_000], 0);
    while sent < bytes.len() {
        sent += end.try_send(1, &[IoSlice::new(&bytes)], sent).unwrap().bytes;
    }
    let good = status_word(1, STATUS_ALIVE);
    until("it goes on", || (joined.client.status(&joined.near) == good).then_some(()));
    until("there too", || (joined.server.status(&joined.far) == good).then_some(()));
    // As when its process ends.
    drop((joined.client, joined.sockets.0));
    let request = Request::Resume { circuit: joined.far.id, token: joined.far.token, generation: 0 };
    let (reply, fds) = joined.server.ask(&request, &[]);
    let Reply::Resumed { limit, channel, rx_key, .. } = reply else { panic!("no segments but {reply:?}") };
    let ring_max = channel.ring_max;
    let far = Inbound::sealed(&fds[0], segment_len(ring_max)).unwrap();
    until("the far side is gone, behind all", || (far.load_u32(STATE) == STATE_GONE).then_some(()));
    assert!(limit < RING_MIN, "nothing of it was lost: {limit}");
    assert_eq!(Cursor::fresh(ring_max, rx_key, limit).arrived(&far), 1 + 300_000);
    kill_process(pid, Signal::CONT).unwrap();
}
