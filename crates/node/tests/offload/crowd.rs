//! Many streams on one engine.

use crate::support::PATIENCE;
use crate::{fabric, join, listen, pair};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Streams besides the greedy one.
const MODEST: usize = 1000;
/// What each of them moves.
const SHARE: usize = 64 * 1024;

#[test]
fn crowd_of_streams_gets_its_share_beside_a_greedy_one() {
    let lab = pair();
    let (greedy, glutton) = join(&lab, 1, 2);
    let (near, far) = (fabric(&lab, 1), fabric(&lab, 2));
    let listener = listen(&far, 2);
    let pairs: Vec<_> = (0..MODEST)
        .map(|_| {
            let client = near.connect(listener.address()).unwrap();
            let server = listener.accept().unwrap();
            [&client, &server].iter().for_each(|stream| {
                stream.set_offload(true);
                stream.set_receive_timeout(Some(PATIENCE));
                stream.set_send_timeout(Some(PATIENCE));
            });
            (client, server)
        })
        .collect();
    let (stop, moved) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let buffer = vec![1; 8 << 20];
            while !stop.load(SeqCst) {
                greedy.send(&buffer).unwrap();
            }
            greedy.finish().unwrap();
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 8 << 20];
            while glutton.receive(&mut buffer).unwrap() > 0 {}
        });
        let workers: Vec<_> = pairs
            .chunks(MODEST / 20)
            .map(|chunk| {
                let moved = &moved;
                scope.spawn(move || {
                    let (out, mut into) = (vec![7; SHARE], vec![0; SHARE]);
                    for (client, server) in chunk {
                        client.send(&out).unwrap();
                        server.receive_all(&mut into).unwrap();
                        assert!(into == out);
                        moved.fetch_add(SHARE, SeqCst);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, SeqCst);
    });
    assert_eq!(moved.load(SeqCst), MODEST * SHARE);
    assert!(pairs.iter().any(|(client, _)| client.statistics().sent.offloaded > 0));
}
