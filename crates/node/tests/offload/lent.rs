//! Buffers that the engine has mapped: its processor copies, and nothing is different otherwise.

use crate::support::Lab;
use crate::{bytes, join, pair};
use crosslane_client::buffers::{Buffer, OpenBuffer};

const LEN: usize = 1 << 20;
const ROUNDS: usize = 24;

/// Bytes that a thread of a host's engine has copied from or to buffers.
fn lent(lab: &Lab, host: usize, way: &str) -> usize {
    usize::try_from(lab.status(host)["offload"][way]["lent"].as_u64().unwrap_or(0)).unwrap()
}

#[test]
fn what_is_sent_from_a_buffer_is_copied_out_of_it() {
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
    assert!(lent(&lab, 1, "send") > ROUNDS * LEN / 2, "{}", lent(&lab, 1, "send"));
    assert_eq!(lent(&lab, 2, "receive"), 0);
}

#[test]
fn what_is_received_into_open_memory_is_copied_into_it_and_nowhere_else() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..ROUNDS).for_each(|round| client.send(&bytes(round, LEN)).unwrap()));
        let open = OpenBuffer::new(LEN + 8192).unwrap();
        open.write(0, &vec![7; LEN + 8192]).unwrap();
        for round in 0..ROUNDS {
            // SAFETY: inside of the buffer, which lives; the engine stores there during the call alone.
            let space = unsafe { std::slice::from_raw_parts_mut(open.pointer().as_ptr().add(4096), LEN) };
            server.receive_all(space).unwrap();
            assert!(*space == bytes(round, LEN), "{round}");
        }
        let mut around = [0; 4096];
        for at in [0, 4096 + LEN] {
            open.read(at, &mut around).unwrap();
            assert_eq!(around, [7; 4096]);
        }
    });
    assert!(lent(&lab, 2, "receive") > ROUNDS * LEN / 4, "{}", lent(&lab, 2, "receive"));
}

#[test]
fn a_buffer_that_is_given_back_is_forgotten_and_another_one_is_another() {
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
    assert!(lent(&lab, 1, "send") > 100 * LEN, "{}", lent(&lab, 1, "send"));
}
