//! Others keep a lock for long, as a process that shares the end does which is stopped. What this process has announced, or
//! offered, is the far side's until it is taken back: no call may come back before.

use crate::offers::{content, offer};
use crate::rig::{Rig, bytes, receive, send, tid};
use crate::zcopy::{announce, check, drain, place, registered};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use crosslane_client::buffers::OpenBuffer;
use crosslane_client::end::zcopy::announce::{Attempt, Behind, Stand};
use crosslane_shm::lock::{LOCK_TIMEOUT, SharedLock, take_busy};
use std::sync::Barrier;
use std::time::Instant;

const RING_MAX: u64 = 1 << 20;
const LEN: usize = 100_000;

/// Does `work` while another thread has `lock`, which gives it back after several times what a call waits for it. Returns
/// whether that one had done so when `work` was over.
fn while_kept<T>(lock: &SharedLock, work: impl FnOnce() -> T) -> (T, bool) {
    let (taken, given) = (&Barrier::new(2), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let guard = lock.lock(tid()).unwrap();
            taken.wait();
            std::thread::sleep(LOCK_TIMEOUT * 8);
            given.store(true, Relaxed);
            drop(guard);
        });
        taken.wait();
        let outcome = work();
        (outcome, given.load(Relaxed))
    })
}

#[test]
fn announcement_fails_and_the_caller_learns_why() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let source = registered(0, LEN);
    let place = place(client, &source);
    let ((attempt, busy), given) = while_kept(&client.shared().sending.lock, || {
        (client.announce(tid(), &source, place, Behind::Nothing), take_busy())
    });
    assert!(matches!(attempt, Ok(Attempt::Ring)) && busy.is_some() && !given, "{attempt:?} {busy:?}");
    assert_eq!(send(client, &source), Ok(LEN));
    check(&drain(server, LEN), 0);
}

#[test]
fn announcement_stands_as_before_and_is_withdrawn_in_the_end() {
    for fetched in [0, 40_000, LEN] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let mut source = registered(0, LEN);
        let mut open = announce(client, &source);
        let mut got = Vec::new();
        while got.len() < fetched {
            got.extend(receive(server, fetched - got.len()).unwrap());
        }
        let lock = &client.shared().sending.lock;
        let (stand, given) = while_kept(lock, || client.stand(tid(), &mut open));
        assert!(matches!(stand, Ok(Stand::Open(_))) && !given, "{fetched}: {stand:?}");
        let (count, given) = while_kept(lock, || client.withdraw(tid(), &open));
        assert!(given && count == Ok(fetched.max(64)), "{fetched}: {count:?}, {given}");
        // The program's again: what it writes there now, nobody sees.
        let rest = bytes(0, LEN).split_off(count.unwrap());
        source.fill(0);
        if !rest.is_empty() {
            assert_eq!(send(client, &rest), Ok(rest.len()));
            got.extend(drain(server, LEN));
        }
        assert_eq!(got.len(), LEN);
        check(&got, 0);
    }
}

#[test]
fn lock_that_is_kept_for_ever_ends_the_stream_not_the_call() {
    let rig = Rig::new(RING_MAX, false);
    let client = &rig.ends[0];
    let (source, answer) = (registered(0, LEN), OpenBuffer::new(4096).unwrap());
    let open = announce(client, &source);
    let line = answer.landing().unwrap();
    for lock in [&client.shared().sending.lock, &client.shared().receiving.lock] {
        std::thread::scope(|scope| scope.spawn(|| lock.lock(tid()).unwrap().keep()).join().unwrap());
    }
    assert_eq!(client.withdraw(tid(), &open), Err(Failure::Reset));
    let start = Instant::now();
    assert_eq!(client.take_back(tid(), &line), Err(Failure::Reset));
    assert!(start.elapsed() < LOCK_TIMEOUT * 20, "it is over already");
}

#[test]
fn offer_is_withdrawn_in_the_end() {
    for len in [0, 1000] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        if len > 0 {
            assert_eq!(send(server, &bytes(0, len)), Ok(len));
        }
        let lock = &client.shared().receiving.lock;
        let (landed, given) = while_kept(lock, || match client.take_landed(tid(), &line) {
            Ok(None) => client.take_back(tid(), &line),
            landed => landed,
        });
        assert!(given && landed == Ok((len > 0).then_some(len)), "{len}: {landed:?}, {given}");
        assert_eq!(send(server, &bytes(len as u64, 500)), Ok(500));
        check(&drain(client, LEN), len as u64);
        check(&content(&answer, len), 0);
    }
}

#[test]
fn offer_fails_and_the_caller_learns_why() {
    let rig = Rig::new(RING_MAX, false);
    let client = &rig.ends[0];
    let answer = OpenBuffer::new(4096).unwrap();
    let (located, line) = (answer.locate(0, 4096).unwrap(), answer.landing().unwrap());
    client.export_buffer(&located).unwrap();
    let ((offered, busy), given) = while_kept(&client.shared().sending.lock, || {
        (client.offer(tid(), b"request", (&located, &line), 4096), take_busy())
    });
    assert!(offered == Ok(None) && busy.is_some() && !given, "{offered:?} {busy:?}");
}
