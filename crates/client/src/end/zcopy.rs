//! Zero copy: what `crosslane_stream::zcopy` rules, on the slices of an end.
//!
//! [`announce`] is the source of Read Zcopy, `fetch` its sink; [`offer`] the sink of Write Zcopy and Transactions, `write`
//! their source. Only between two programs of one machine, by a circuit of
//! a single cable or none; all else goes by the ring.

pub mod announce;
mod fetch;
pub mod offer;
mod write;

use super::{End, Failure, Generation};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::process::{self, Identity};
use crosslane_shm::ring::Head;
use crosslane_shm::{Load, Store};
use crosslane_stream::zcopy::{Action, Lie, Word};
use crosslane_wire::record::Kind;
use crosslane_wire::slice::{RD_DONE, SEND_SM, SINK_OFF, SRC_OFF, VERDICT, WR_CLAIM, WR_DONE};
use crosslane_wire::zcopy::{Descriptor, Whose};
use crosslane_wire::{BufferId, Reach};
use std::time::{Duration, Instant};

/// Looks at a word that the other side is just about to store, before we sleep between them.
const LOOKS: u32 = 2000;
/// How long the other side may take to store a word that it was about to store.
const PATIENCE: Duration = Duration::from_secs(2);

/// The far memory could not be reached: the ring must do.
#[derive(Clone, Copy, Debug)]
struct Unreachable;

impl End {
    /// The bytes of an announced place, `at` there.
    fn reach(&self, tid: u32, whose: Whose, at: u64, target: &mut [u8]) -> Result<(), Unreachable> {
        match whose {
            Whose::Process { pid, proof, proof_at } => {
                process::read(Identity { pid, proof, proof_at }, at, target).map_err(|_| Unreachable)
            }
            Whose::Buffer(number) => {
                let far = self.far_buffer(tid, BufferId(number), Reach::Load).map_err(|_| Unreachable)?;
                far.copy_out(at, target).map_err(|_| Unreachable)
            }
        }
    }

    /// With the lock of receiving: notes, once, what the record at the front announces.
    pub(super) fn note_announcement(&self, head: Head) -> Result<(), Failure> {
        let (zcopy, consumer) = (&self.shared.zcopy, &self.shared.consumer);
        let place = consumer.position() + 1;
        if zcopy.noted.swap(place, Relaxed) == place {
            return Ok(());
        }
        let ring = &self.generations.rx().slices.inbound;
        let descriptor = Descriptor::decode(&consumer.descriptor(ring, head))
            .map_err(|lie| Failure::Violation(lie.into()))?;
        if head.kind == Kind::SrcAvail {
            zcopy.source.set(&descriptor, consumer.generation());
            consumer.announce(descriptor.len.into());
        } else {
            zcopy.sink.set(&descriptor, consumer.generation());
        }
        Ok(())
    }

    /// Runs one of the machines of zero copy over the words of a generation.
    fn run<T>(
        &self,
        at: &Generation,
        mut next: impl FnMut(u64) -> Result<Action<T>, Lie>,
    ) -> Result<T, Failure> {
        let (slices, mut loaded, mut awaited) = (&at.slices, 0, Awaited::default());
        loop {
            match next(loaded)? {
                Action::Store(word, value) => slices.outbound.store_u64(offset(word), value),
                Action::Fence => slices.outbound.fence(),
                Action::Load(word) => loaded = slices.inbound.load_u64(offset(word)),
                Action::Await(word) => {
                    loaded = slices.inbound.load_u64(offset(word));
                    if !awaited.pause() || self.dead().is_some() || self.gone() {
                        self.break_off(libc::ECONNRESET);
                        return Err(Failure::Reset);
                    }
                }
                Action::Done(outcome) => return Ok(outcome),
            }
        }
    }
}

/// How long a word was waited for.
#[derive(Default)]
struct Awaited {
    looks: u32,
    since: Option<Instant>,
}

impl Awaited {
    /// Between two looks; `false` if it takes too long.
    fn pause(&mut self) -> bool {
        self.looks += 1;
        if self.looks < LOOKS {
            core::hint::spin_loop();
            return true;
        }
        let since = self.since.get_or_insert_with(Instant::now);
        std::thread::sleep(Duration::from_micros(50));
        since.elapsed() < PATIENCE
    }
}

/// Where in a slice the word lies.
fn offset(word: Word) -> usize {
    match word {
        Word::RdDone => RD_DONE,
        Word::SendSm => SEND_SM,
        Word::SinkOff => SINK_OFF,
        Word::SrcOff => SRC_OFF,
        Word::Verdict => VERDICT,
        Word::WrClaim => WR_CLAIM,
        Word::WrDone => WR_DONE,
    }
}
