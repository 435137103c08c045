//! Buffers between two ends: shared once, had again and again, forgotten in time.

use crosslane_client::buffers::{Buffer, FarBuffer, Located, OpenBuffer, far, locate_bytes};
use crosslane_client::segments::{Next, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{BufferError, Daemon, End, Grant, ResumeError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::segment::{PAGE, segment_len};
use crosslane_wire::{BufferId, CircuitId, Reach, Tuple, WaiterId, Way};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Tests share the process's buffers, each in a thread of its own.
fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What both daemons do together, and how often they were asked.
#[derive(Debug, Default)]
struct Both {
    shared: Mutex<HashMap<BufferId, (OwnedFd, u64, Reach)>>,
    shares: AtomicUsize,
    asks: AtomicUsize,
}

impl Daemon for Both {
    fn next(&self, _: CircuitId, _: u64, _: u32) -> Result<Next, ResumeError> {
        Err(ResumeError::Never)
    }

    fn wake(&self, _: CircuitId, _: u64, _: WaiterId) -> bool {
        true
    }

    fn export_buffer(&self, _: CircuitId, _: u64, located: &Located) -> Result<(), BufferError> {
        self.shares.fetch_add(1, Ordering::Relaxed);
        let memory = located.share(|fd| fd.try_clone_to_owned().unwrap()).unwrap();
        self.shared.lock().unwrap().insert(located.id, (memory, located.len, located.reach));
        Ok(())
    }

    fn far_buffer(&self, _: CircuitId, _: u64, buffer: BufferId) -> Result<FarBuffer, BufferError> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.lock().unwrap();
        let (memory, len, reach) = shared.get(&buffer).ok_or(BufferError::Never)?;
        FarBuffer::map(memory, *len, *reach).map_err(|_| BufferError::Never)
    }
}

fn pair(transit: bool) -> (End, End, &'static Both) {
    const RING: u64 = 1 << 16;
    let daemon: &'static Both = Box::leak(Box::default());
    let len = segment_len(RING);
    let (to_server, to_client) = (new_segment("a", len).unwrap(), new_segment("b", len).unwrap());
    let address = |port| std::net::SocketAddr::from(([10, 86, 0, 1], port));
    let end = |client: bool| {
        let (inbound, outbound) = if client { (&to_client, &to_server) } else { (&to_server, &to_client) };
        let segments = Segments {
            generation: 0,
            ring_max: RING,
            rx_key: 3,
            tx_key: 3,
            inbound: Inbound::sealed(inbound, len).unwrap(),
            outbound: Outbound::sealed(outbound, len).unwrap(),
            way: if transit { Way::RELAYED } else { Way::DIRECT },
            retention: None,
            posted_out_ns: 0,
            posted_in_ns: 0,
        };
        let tuple = Tuple { client: address(1), server: address(2) };
        let (state, _) = SharedState::create().unwrap();
        let grant =
            Grant { circuit: CircuitId(1), token: 2, tuple, client, status: 0, segments, state, twin: false };
        let status: &'static AtomicU32 = Box::leak(Box::default());
        End::prepare(&grant);
        End::begin(grant, status, daemon).unwrap()
    };
    (end(true), end(false), daemon)
}

#[test]
fn buffer_is_exported_once_and_forgotten_when_it_is_freed() {
    let (client, server, daemon) = pair(false);
    let mut buffer = Buffer::new(100_000).unwrap();
    for round in 0..3 {
        buffer[5000] = round;
        let located = locate_bytes(&buffer[5000..5001]).unwrap();
        assert_eq!(located.uses, u32::from(round));
        client.export_buffer(&located).unwrap();
        let far = server.far_buffer(tid(), located.id, Reach::Load).unwrap();
        let mut byte = [9];
        far.copy_out(located.offset, &mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
    let asked = || (daemon.shares.load(Ordering::Relaxed), daemon.asks.load(Ordering::Relaxed));
    assert_eq!(asked(), (1, 1));
    let id = locate_bytes(&buffer).unwrap().id;
    assert_eq!(
        server.far_buffer(tid(), id, Reach::Store).unwrap_err(),
        BufferError::Never,
        "it is for loads"
    );
    client.forget_export(id);
    client.export_buffer(&locate_bytes(&buffer).unwrap()).unwrap();
    assert_eq!(asked(), (2, 1));
    let held = server.far_buffer(tid(), id, Reach::Load).unwrap();
    drop(buffer);
    daemon.shared.lock().unwrap().clear();
    assert_eq!(server.far_buffer(tid(), id, Reach::Load).unwrap_err(), BufferError::Never);
    assert_eq!(Arc::strong_count(&held), 1, "only who uses it still has it");
}

#[test]
fn buffers_of_an_end_are_bounded_and_go_with_it() {
    let (client, server, _) = pair(false);
    let count = || far::usage(tid()).unwrap();
    let large: Vec<_> = (0..6).map(|_| OpenBuffer::new(300 << 20).unwrap()).collect();
    for buffer in &large {
        let located = buffer.locate(0, 1).unwrap();
        client.export_buffer(&located).unwrap();
        server.far_buffer(tid(), located.id, Reach::Store).unwrap();
        assert!(count().1 <= 1 << 30, "{:?}", count());
    }
    let small: Vec<_> = (0..80).map(|_| OpenBuffer::new(1).unwrap()).collect();
    for buffer in &small {
        let located = buffer.locate(0, 1).unwrap();
        client.export_buffer(&located).unwrap();
        let far = server.far_buffer(tid(), located.id, Reach::Store).unwrap();
        assert_eq!(far.len(), PAGE);
        assert!(count().0 <= 64 + 1, "{:?}", count());
    }
    let before = count().0;
    drop(server);
    assert!(count().0 < before.saturating_sub(50), "{before} before, {} after", count().0);
}

#[test]
fn names_of_nothing_are_asked_for_a_few_times_only() {
    let (_client, server, daemon) = pair(false);
    for number in 1..1000 {
        let found = server.far_buffer(tid(), BufferId(number), Reach::Load);
        assert_eq!(found.unwrap_err(), BufferError::Never);
    }
    assert_eq!(daemon.asks.load(Ordering::Relaxed), 16);
}

#[test]
fn over_several_cables_nobody_is_asked() {
    let (client, server, daemon) = pair(true);
    let buffer = Buffer::new(1).unwrap();
    assert_eq!(client.export_buffer(&locate_bytes(&buffer).unwrap()), Err(BufferError::Never));
    assert_eq!(server.far_buffer(tid(), BufferId(1), Reach::Load).unwrap_err(), BufferError::Never);
    let asked = daemon.shares.load(Ordering::Relaxed) + daemon.asks.load(Ordering::Relaxed);
    assert_eq!(asked, 0);
}
