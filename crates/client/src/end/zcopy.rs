//! Zero copy: runs the rules of `crosslane_stream::zcopy` on the segments of an end.
//!
//! [`announce`] is the source of Read Zcopy, `fetch` its sink; [`offer`] the sink of Write Zcopy and Transactions, `write` their
//! source. Only between two programs of one machine, on a circuit of one cable or none; elsewhere all bytes go through the ring.

pub mod announce;
mod fetch;
pub mod offer;
mod write;

use super::{CircuitEnd, Failure, Generation};
use crate::segments::Segments;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::buffer::Landing;
use crosslane_shm::far::CopyError;
use crosslane_shm::guarded::Fault;
use crosslane_shm::ring::Head;
use crosslane_shm::{FarBuffer, Load, Store};
use crosslane_stream::zcopy::{Action, InvalidReference, Word};
use crosslane_wire::buffer::seal;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{RD_DONE, SEND_SM, SINK_OFF, SRC_OFF, VERDICT, WR_CLAIM};
use crosslane_wire::zcopy::Descriptor;
use crosslane_wire::{BufferId, Reach};
use std::time::{Duration, Instant};

/// Looks at a word that the other side is about to store, before this thread sleeps between looks.
const LOOKS: u32 = 2000;
/// How long the other side may take to store a word that it was about to store.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(2);

/// The far memory cannot be reached: use the ring.
#[derive(Clone, Copy, Debug)]
struct Unreachable;

impl CircuitEnd {
    /// Calls `copy` with the announced place, `at` in `buffer`, if the far end has exported that buffer for this circuit.
    fn reach(
        &self,
        tid: u32,
        buffer: BufferId,
        at: u64,
        target: &mut [u8],
    ) -> Result<Result<(), Fault>, Unreachable> {
        let copied = self.with_far(tid, buffer, Reach::Load, |far| far.copy_out(at, target));
        match copied.map_err(|_| Unreachable)? {
            Ok(()) => Ok(Ok(())),
            Err(CopyError::Fault(fault)) => Ok(Err(fault)),
            Err(CopyError::Place(_)) => Err(Unreachable),
        }
    }

    /// With the lock of receiving: takes note, once, of what the record at the front announces.
    pub(super) fn note_announcement(&self, head: Head) -> Result<(), Failure> {
        let (zcopy, consumer) = (&self.shared.zcopy, &self.shared.consumer);
        let place = consumer.position().wrapping_add(1);
        if zcopy.noted.load(Relaxed) == place {
            return Ok(());
        }
        zcopy.noted.store(place, Relaxed);
        let ring = &self.generations.rx().segments.inbound;
        let descriptor = Descriptor::decode(&consumer.descriptor(ring, head)?)
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
        next: impl FnMut(u64) -> Result<Action<T>, InvalidReference>,
    ) -> Result<T, Failure> {
        self.run_with(at, Line::None, next)
    }

    /// As [`Self::run`], also with the completion line behind an offered buffer.
    fn run_with<T>(
        &self,
        at: &Generation,
        line: Line<'_>,
        mut next: impl FnMut(u64) -> Result<Action<T>, InvalidReference>,
    ) -> Result<T, Failure> {
        let (segments, mut loaded, mut awaited) = (&at.segments, 0, Awaited::default());
        let mut ended = false;
        loop {
            match next(loaded)? {
                Action::Store(word, value) => match offset(word) {
                    Some(offset) => segments.outbound.store_u64(offset, value),
                    None => line.store(segments, value),
                },
                Action::Fence => segments.outbound.fence(),
                Action::Load(word) => {
                    loaded =
                        offset(word).map_or_else(|| line.load(segments), |at| segments.inbound.load_u64(at));
                }
                Action::Await(word) => {
                    if ended {
                        self.give_up("the far side does not answer of its memory");
                        return Err(Failure::Reset);
                    }
                    // Checked before the next look at the word: the far side may have answered and closed right after that.
                    ended = !awaited.pause() || self.dead().is_some() || self.gone();
                    loaded = offset(word).map_or(0, |at| segments.inbound.load_u64(at));
                }
                Action::Done(outcome) => return Ok(outcome),
            }
        }
    }
}

/// How long a word has been waited for.
#[derive(Default)]
struct Awaited {
    looks: u32,
    since: Option<Instant>,
}

impl Awaited {
    /// Pauses between two looks; `false` if the wait has taken too long.
    fn pause(&mut self) -> bool {
        self.looks += 1;
        if self.looks < LOOKS {
            core::hint::spin_loop();
            return true;
        }
        let since = self.since.get_or_insert_with(Instant::now);
        std::thread::sleep(Duration::from_micros(50));
        since.elapsed() < VERDICT_TIMEOUT
    }
}

/// The completion line, which says how many bytes were written into an offered buffer.
#[derive(Clone, Copy, Debug)]
enum Line<'a> {
    /// None: the machine does not concern an offer, or needs no completion.
    None,
    /// The sink's: it reads the line.
    Near(&'a Landing<'a>),
    /// The source's: it writes the line with this number.
    Far(&'a FarBuffer, u32),
}

impl Line<'_> {
    /// The source's completion word, if its seal belongs to this offer; else 0.
    fn load(self, segments: &Segments) -> u64 {
        let Self::Near(landing) = self else { return 0 };
        let word = landing.word();
        if landing.seal() == seal(segments.rx_key, segments.tx_key, word) { word } else { 0 }
    }

    fn store(self, segments: &Segments, word: u64) {
        if let Self::Far(far, number) = self {
            // If the line does not exist, the far side gets no completion: its waiting thread takes the offer back.
            let _ = far.land(number, word, seal(segments.tx_key, segments.rx_key, word));
        }
    }
}

/// Offset of the word in a segment; `None` for the word that lies elsewhere.
fn offset(word: Word) -> Option<usize> {
    match word {
        Word::RdDone => Some(RD_DONE),
        Word::SendSm => Some(SEND_SM),
        Word::SinkOff => Some(SINK_OFF),
        Word::SrcOff => Some(SRC_OFF),
        Word::Verdict => Some(VERDICT),
        Word::WrClaim => Some(WR_CLAIM),
        Word::WrDone => None,
    }
}
