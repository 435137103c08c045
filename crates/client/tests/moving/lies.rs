//! Peers and daemons that say what cannot be: the stream is reset, and nothing else happens.

use crate::rig::{Rig, bytes, receive, send, tid};
use core::sync::atomic::Ordering;
use crosslane_client::Failure;
use crosslane_wire::local::{STATUS_CABLE, status_word};
use crosslane_wire::segment::{ACKED, RETENTION};

const RING_MAX: u64 = 1 << 20;

/// 1000 bytes from the client to the server, of which the server has read `read`.
fn rig(retained: bool, read: usize) -> Rig {
    let rig = Rig::new(RING_MAX, retained);
    assert_eq!(send(&rig.ends[0], &bytes(0, 1000)), Ok(1000));
    rig.ends[0].refresh(tid());
    rig.ends[1].refresh(tid());
    if read > 0 {
        assert_eq!(receive(&rig.ends[1], read).unwrap().len(), read);
    }
    rig
}

fn moved(rig: &Rig, limits: [u64; 2], arrived: [u64; 2]) {
    let mut mover = rig.mover();
    mover.lose();
    mover.find_with(RING_MAX, true, limits, arrived);
}

#[test]
fn more_has_arrived_than_was_sent() {
    for told in [1002, 1 << 40, u64::MAX - 1] {
        let rig = rig(true, 0);
        moved(&rig, [1, 1001], [1, told]);
        assert!(matches!(send(&rig.ends[0], b"x"), Err(Failure::Discontinued { .. })));
        assert_eq!(send(&rig.ends[0], b"x"), Err(Failure::Reset));
        assert!(rig.ends[0].ready(tid()).error);
    }
}

#[test]
fn less_has_arrived_than_is_kept() {
    let rig = rig(false, 0);
    moved(&rig, [1, 500], [1, 500]);
    assert!(matches!(send(&rig.ends[0], b"x"), Err(Failure::Discontinued { told: 500, .. })));
    assert!(rig.ends[0].ready(tid()).error);
}

#[test]
fn limits_that_cannot_be() {
    for (read, limit) in [(1000, 900), (0, 500), (300, 1), (300, 0), (0, 1002), (1000, u64::MAX)] {
        let rig = rig(true, read);
        moved(&rig, [1, limit], [1, 1001]);
        let outcome = receive(&rig.ends[1], 2000);
        assert!(matches!(outcome, Err(Failure::Discontinued { .. })), "{read} {limit} {outcome:?}");
        assert_eq!(receive(&rig.ends[1], 2000), Err(Failure::Reset));
    }
}

#[test]
fn landed_count_that_is_rubbish() {
    for told in [u64::MAX, RETENTION * 2, 1 << 40] {
        let rig = Rig::new(4 * RETENTION, true);
        rig.mover().forge(0, ACKED, told);
        let outcome = loop {
            match send(&rig.ends[0], &bytes(0, 100_000)) {
                Ok(_) => {
                    rig.ends[0].request_grow();
                    rig.ends[0].request_retention();
                }
                Err(failure) => break failure,
            }
        };
        assert!(matches!(outcome, Failure::Violation(_)), "{outcome:?}");
        assert!(!rig.ends[0].has_room(tid()) || rig.ends[0].ready(tid()).error);
    }
    // Less than before is no news.
    let rig = rig(true, 0);
    rig.mover().forge(0, ACKED, 900);
    assert!(send(&rig.ends[0], b"x").is_ok());
    rig.mover().forge(0, ACKED, 3);
    assert!(send(&rig.ends[0], b"x").is_ok());
}

#[test]
fn daemon_that_has_no_segments_ends_the_stream() {
    let rig = rig(false, 0);
    rig.hosts[0].status.store(status_word(1, 0), Ordering::Relaxed);
    assert_eq!(send(&rig.ends[0], b"x"), Err(Failure::Reset));
    assert!(rig.ends[0].ready(tid()).error);
    rig.hosts[1].status.store(status_word(1, STATUS_CABLE), Ordering::Relaxed);
    assert_eq!(receive(&rig.ends[1], 2000).unwrap(), bytes(0, 1000));
    assert_eq!(receive(&rig.ends[1], 1), Err(Failure::Reset));
}
