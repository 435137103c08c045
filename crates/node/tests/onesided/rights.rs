//! Who may do what: each refusal is an error of that operation only.

use super::support::Lab;
use super::{peer, serve};
use crosslane::memory::{Access, RemoteRegion};
use crosslane::peer::{Denial, Error, Peer};

fn outcomes(peer: &mut Peer, at: &RemoteRegion, offset: u64) -> [Option<Denial>; 6] {
    let mut bytes = [0; 100];
    let why = |outcome: Result<(), Error>| match outcome {
        Ok(()) => None,
        Err(Error::Denied(why)) => Some(why),
        Err(error) => panic!("{error}"),
    };
    let short = peer.put(at, offset, b"short").unwrap();
    let long = peer.put(at, offset, &[7; 100]).unwrap();
    [
        why(peer.wait(short).map(drop)),
        why(peer.wait(long).map(drop)),
        why(peer.get(at, offset, &mut bytes)),
        why(peer.fetch_add(at, offset, 1).map(drop)),
        why(peer.compare_swap(at, offset, 0, 1).map(drop)),
        {
            let notice = peer.notify(at, 1).unwrap();
            why(peer.wait(notice).map(drop))
        },
    ]
}

#[test]
fn refusals_are_told_and_the_connection_goes_on() {
    let lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(4096).unwrap();
    let mut peer = peer(&lab, 1, &memory);
    let all = region.share(Access::ALL).unwrap();
    let no = Some(Denial::NotPermitted);
    for (access, expected) in [
        (Access::READ, [no, no, None, no, no, None]),
        (Access::WRITE, [None, None, no, no, no, None]),
        (Access::ATOMIC, [no, no, no, None, None, None]),
        (Access::ALL, [None; 6]),
        (Access::default(), [no, no, no, no, no, None]),
    ] {
        let remote = region.share(access).unwrap();
        assert_eq!(outcomes(&mut peer, &remote, 0), expected, "{access:?}");
        region.withdraw(&remote);
        assert_eq!(outcomes(&mut peer, &remote, 0), [Some(Denial::WrongKey); 6]);
    }
    let before = {
        let mut bytes = vec![0; 4096];
        region.read(0, &mut bytes).unwrap();
        bytes
    };
    let wrong = RemoteRegion { key: all.key ^ (1 << 40), ..all };
    assert_eq!(outcomes(&mut peer, &wrong, 0), [Some(Denial::WrongKey); 6]);
    let unknown = RemoteRegion { id: all.id + 77, ..all };
    assert_eq!(outcomes(&mut peer, &unknown, 0), [Some(Denial::UnknownRegion); 6]);
    let outside = Some(Denial::Outside);
    for offset in [4092, 4096, 1 << 40, u64::MAX, u64::MAX - 7] {
        let seen = outcomes(&mut peer, &all, offset);
        assert_eq!(seen, [outside, outside, outside, outside, outside, None], "{offset}");
    }
    let unaligned = Some(Denial::Misaligned);
    let words = outcomes(&mut peer, &RemoteRegion { len: 9, ..all }, 4);
    assert_eq!(words, [None, None, None, unaligned, unaligned, None]);

    let mut after = vec![0; 4096];
    region.read(0, &mut after).unwrap();
    assert!(after[200..] == before[200..], "something was written that may not be");

    drop(region);
    assert_eq!(outcomes(&mut peer, &all, 0), [Some(Denial::UnknownRegion); 6]);
}

#[test]
fn flush_tells_of_a_refusal_that_nobody_waited_for() {
    let lab = Lab::pair();
    let memory = serve(&lab, 1);
    let region = memory.register(4096).unwrap();
    let remote = region.share(Access::READ).unwrap();
    let mut peer = peer(&lab, 2, &memory);
    for _ in 0..3 {
        peer.put(&remote, 0, b"no").unwrap();
    }
    assert!(matches!(peer.flush(), Err(Error::Denied(Denial::NotPermitted))));
    peer.flush().unwrap();
    peer.get(&remote, 0, &mut [0; 10]).unwrap();
}

#[test]
fn results_that_nobody_takes_are_bounded() {
    let lab = Lab::pair();
    let memory = serve(&lab, 1);
    let region = memory.register(4096).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let mut peer = peer(&lab, 2, &memory);
    let mut ops = Vec::new();
    let refused = loop {
        match peer.start_fetch_add(&remote, 0, 1) {
            Ok(op) => ops.push(op),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooMany), "{refused}");
    for (expected, op) in ops.into_iter().enumerate() {
        assert_eq!(peer.wait(op).unwrap(), expected as u64);
    }
    peer.start_fetch_add(&remote, 0, 1).map(drop).unwrap();
}
