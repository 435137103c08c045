//! Buffers that the engine has mapped: its processor copies, and nothing is different otherwise.

use crate::support::Lab;
use crate::{bytes, join, pair};
use crosslane::stream::Buffer;

const LEN: usize = 1 << 20;
const ROUNDS: usize = 24;

/// Bytes that a thread of a host's engine has copied from or to buffers.
fn registered(lab: &Lab, host: usize, way: &str) -> usize {
    usize::try_from(lab.status(host)["offload"][way]["registered"].as_u64().unwrap_or(0)).unwrap()
}

#[test]
fn registered_buffer_is_copied_from_when_it_is_sent_from() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = Buffer::new(LEN + 100).unwrap();
            for round in 0..ROUNDS {
                buffer[70..70 + LEN].copy_from_slice(&bytes(round, LEN));
                client.send(&buffer[70..70 + LEN]).unwrap();
                // It is the program's again.
                buffer.fill(0);
            }
        });
        let mut space = vec![0; LEN];
        for round in 0..ROUNDS {
            server.receive_all(&mut space).unwrap();
            assert!(space == bytes(round, LEN), "{round}");
        }
    });
    // The first use of a buffer does not count, nor what is too little.
    assert!(registered(&lab, 1, "send") > ROUNDS * LEN / 10, "{}", registered(&lab, 1, "send"));
    assert_eq!(registered(&lab, 2, "receive"), 0);
}

#[test]
fn buffer_that_is_given_back_is_forgotten_and_another_one_is_another() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..100 {
                let mut buffer = Buffer::new(LEN).unwrap();
                buffer.copy_from_slice(&bytes(round, LEN));
                (0..3).for_each(|_| client.send(&buffer).unwrap());
            }
        });
        let mut space = vec![0; LEN];
        for round in 0..300 {
            server.receive_all(&mut space).unwrap();
            assert!(space == bytes(round / 3, LEN), "{round}");
        }
    });
    assert!(registered(&lab, 1, "send") > 20 * LEN, "{}", registered(&lab, 1, "send"));
}
