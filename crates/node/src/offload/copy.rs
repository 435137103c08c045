//! Engines that copy the bytes between a program's memory and a ring.

use crosslane_shm::copy::Strategy;
use crosslane_shm::mem::new_segment;
use crosslane_shm::peer::Peer;
use crosslane_shm::remote::{Remote, RemoteError, Span};
use crosslane_shm::{Inbound, Load, MapError, Outbound};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Most bytes of one piece.
pub(super) const PIECE: usize = 128 * 1024;
/// Pieces in the measurement that chooses an engine.
const TURNS: u32 = 8;

/// How bytes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The fastest way here, by a measurement of a few milliseconds at the start.
    #[default]
    Auto,
    /// Through a buffer of the engine's that stays in its processor's cache, with this kind of copy to or from the ring:
    /// suits a window whose stores the processor combines.
    Staged(Strategy),
}

/// Places in a segment: offset and length, bytes.
pub(super) type Places<'a> = &'a [(usize, usize)];

/// A way to copy pieces. A copy that is not finished when the call returns goes on by itself, and is polled later.
pub trait CopyEngine: Send {
    /// The engine's name, for display.
    fn name(&self) -> &'static str;

    /// Copies from a program into a ring; all bytes or an error. `Pending`: the copy has begun, with number `tag`. The
    /// program may revoke the piece at any time before [`Self::land`], even while this thread is stopped: so bytes that
    /// the processor itself would store into the ring must wait until then.
    fn fetch(
        &mut self,
        tag: u64,
        from: (&Remote, &[Span]),
        to: (&Outbound, Places<'_>),
    ) -> Poll<Result<(), RemoteError>>;

    /// Stores the bytes of the last [`Self::fetch`] that are not in the ring yet: the piece can no longer be revoked.
    fn land(&mut self, _to: (&Outbound, Places<'_>)) {}

    /// Copies from a ring into a program, as [`Self::fetch`]; nothing is left to land.
    fn store(
        &mut self,
        tag: u64,
        from: (&Inbound, Places<'_>),
        to: (&Remote, &[Span]),
    ) -> Poll<Result<(), RemoteError>>;

    /// The state of the copy with this number. Only for engines that return `Pending`.
    fn poll(&mut self, tag: u64) -> Poll<Result<(), RemoteError>>;
}

/// The kernel copies directly between the program and the ring.
#[derive(Debug)]
struct Straight;

impl CopyEngine for Straight {
    fn name(&self) -> &'static str {
        "process-vm"
    }

    fn fetch(
        &mut self,
        _tag: u64,
        from: (&Remote, &[Span]),
        to: (&Outbound, Places<'_>),
    ) -> Poll<Result<(), RemoteError>> {
        Poll::Ready(from.0.fetch(from.1, to.0, to.1))
    }

    fn store(
        &mut self,
        _tag: u64,
        from: (&Inbound, Places<'_>),
        to: (&Remote, &[Span]),
    ) -> Poll<Result<(), RemoteError>> {
        Poll::Ready(to.0.store(from.1, from.0, to.1))
    }

    fn poll(&mut self, _tag: u64) -> Poll<Result<(), RemoteError>> {
        Poll::Ready(Ok(()))
    }
}

/// The kernel copies between the program and a buffer, the processor between the buffer and the ring.
#[derive(Debug)]
struct Staged {
    strategy: Strategy,
    buffer: Vec<u8>,
}

impl CopyEngine for Staged {
    fn name(&self) -> &'static str {
        self.strategy.name()
    }

    fn fetch(
        &mut self,
        _tag: u64,
        from: (&Remote, &[Span]),
        to: (&Outbound, Places<'_>),
    ) -> Poll<Result<(), RemoteError>> {
        let total: usize = to.1.iter().map(|place| place.1).sum();
        Poll::Ready(from.0.read_into(from.1, &mut self.buffer[..total]))
    }

    fn land(&mut self, to: (&Outbound, Places<'_>)) {
        let mut done = 0;
        for &(at, len) in to.1 {
            to.0.write_by(self.strategy, at, &self.buffer[done..done + len]);
            done += len;
        }
        crosslane_shm::copy::store_fence();
    }

    fn store(
        &mut self,
        _tag: u64,
        from: (&Inbound, Places<'_>),
        to: (&Remote, &[Span]),
    ) -> Poll<Result<(), RemoteError>> {
        let mut done = 0;
        for &(at, len) in from.1 {
            from.0.read(at, &mut self.buffer[done..done + len]);
            done += len;
        }
        Poll::Ready(to.0.write_from(&self.buffer[..done], to.1))
    }

    fn poll(&mut self, _tag: u64) -> Poll<Result<(), RemoteError>> {
        Poll::Ready(Ok(()))
    }
}

fn staged(strategy: Strategy) -> Box<dyn CopyEngine> {
    Box::new(Staged { strategy, buffer: vec![0; PIECE] })
}

/// The engine for a choice.
pub(super) fn choose(choice: Choice) -> Box<dyn CopyEngine> {
    match choice {
        Choice::Staged(strategy) => staged(strategy),
        Choice::Auto => fastest().unwrap_or_else(|_| Box::new(Straight)),
    }
}

/// Each engine copies pieces from this process's memory into a segment and back; the fastest one wins.
fn fastest() -> Result<Box<dyn CopyEngine>, MapError> {
    let len = PIECE as u64 * 2;
    let fd = new_segment("crosslane-measure", len)?;
    let (to, from) = (Outbound::sealed(&fd, len)?, Inbound::sealed(&fd, len)?);
    let all = std::iter::once(Box::new(Straight) as Box<dyn CopyEngine>)
        .chain(Strategy::ALL.into_iter().filter(|strategy| strategy.is_native()).map(staged));
    let timed = all.map(|mut engine| (time(engine.as_mut(), &to, &from), engine));
    let best = timed.min_by_key(|(time, _)| *time);
    Ok(best.map_or_else(|| Box::new(Straight) as Box<dyn CopyEngine>, |(_, engine)| engine))
}

/// How long an engine takes for [`TURNS`] pieces in both directions.
fn time(engine: &mut dyn CopyEngine, to: &Outbound, from: &Inbound) -> Duration {
    let (guard, mut bytes) = (Box::new(0_u64), vec![1_u8; PIECE]);
    let Ok(peer) = Peer::own() else { return Duration::MAX };
    let remote = Remote { peer: Arc::new(peer), guard: core::ptr::from_ref(&*guard) as u64, nonce: 0 };
    let spans = [Span { address: bytes.as_mut_ptr() as u64, len: PIECE }];
    let places = [(0, PIECE / 2), (PIECE, PIECE / 2)];
    let mut round = || {
        let there = engine.fetch(0, (&remote, &spans), (to, &places));
        engine.land((to, &places));
        let back = engine.store(0, (from, &places), (&remote, &spans));
        matches!((there, back), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))))
    };
    let works = round();
    let start = Instant::now();
    let works = works && (0..TURNS).all(|_| round());
    std::hint::black_box(&mut bytes);
    if works { start.elapsed() } else { Duration::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_stores_nothing_into_a_ring_before_the_piece_is_sure() {
        let len = PIECE as u64;
        let fd = new_segment("copy", len).unwrap();
        let (to, from) = (Outbound::sealed(&fd, len).unwrap(), Inbound::sealed(&fd, len).unwrap());
        let (guard, source) = (Box::new(7_u64), [9_u8; 100]);
        let peer = Arc::new(Peer::own().unwrap());
        let remote = Remote { peer, guard: core::ptr::from_ref(&*guard) as u64, nonce: 7 };
        let spans = [Span { address: source.as_ptr() as u64, len: 100 }];
        for mut engine in Strategy::ALL.map(staged) {
            to.write_by(Strategy::Cached, 0, &[1; 100]);
            let there = |expected| {
                let mut bytes = [0; 100];
                from.read(0, &mut bytes);
                bytes == [expected; 100]
            };
            assert_eq!(engine.fetch(1, (&remote, &spans), (&to, &[(0, 100)])), Poll::Ready(Ok(())));
            assert!(there(1), "{}: a stopped thread would store it later", engine.name());
            engine.land((&to, &[(0, 100)]));
            assert!(there(9), "{}", engine.name());
        }
    }

    #[test]
    fn copy_engines_copy_what_they_are_told_and_nothing_else() {
        let len = 4 * PIECE as u64;
        let fd = new_segment("copy", len).unwrap();
        let (to, from) = (Outbound::sealed(&fd, len).unwrap(), Inbound::sealed(&fd, len).unwrap());
        let guard = Box::new(7_u64);
        let peer = Arc::new(Peer::own().unwrap());
        let remote = Remote { peer, guard: core::ptr::from_ref(&*guard) as u64, nonce: 7 };
        let source: Vec<u8> = (0..PIECE).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let all = std::iter::once(Choice::Auto).chain(Strategy::ALL.map(Choice::Staged));
        for mut engine in all.map(choose).chain([Box::new(Straight) as Box<dyn CopyEngine>]) {
            to.write_by(Strategy::Cached, 0, &vec![0; 4 * PIECE]);
            let places = [(64, PIECE - 1000), (2 * PIECE, 1000)];
            let split = [(0, 5), (5, PIECE - 5)];
            let spans = split.map(|(at, len)| Span { address: source[at..].as_ptr() as u64, len });
            assert_eq!(engine.fetch(1, (&remote, &spans), (&to, &places)), Poll::Ready(Ok(())));
            engine.land((&to, &places));
            let mut target = vec![0; PIECE + 1];
            let into = [Span { address: target.as_mut_ptr() as u64, len: PIECE }];
            assert_eq!(engine.store(2, (&from, &places), (&remote, &into)), Poll::Ready(Ok(())));
            let target = std::hint::black_box(&mut target);
            assert!(target[..PIECE] == source && target[PIECE] == 0, "{}", engine.name());
            let mut around = [9; 64];
            from.read(0, &mut around);
            assert_eq!(around, [0; 64], "{}", engine.name());
        }
    }
}
