//! Zero copy: what `crosslane_stream::zcopy` rules, on the segments of an end.
//!
//! [`announce`] is the source of Read Zcopy, `fetch` its sink; [`offer`] the sink of Write Zcopy and Transactions, `write`
//! their source. Only between two programs of one machine, by a circuit of
//! a single cable or none; all else goes by the ring.

pub mod announce;
mod fetch;
pub mod offer;
mod write;

use super::{End, Failure, Generation};
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

/// Looks at a word that the other side is just about to store, before we sleep between them.
const LOOKS: u32 = 2000;
/// How long the other side may take to store a word that it was about to store.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(2);

/// The far memory could not be reached: the ring must do.
#[derive(Clone, Copy, Debug)]
struct Unreachable;

impl End {
    /// Copies the bytes of an announced place, `at` in `buffer`, if the far end has shared that for this circuit.
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

    /// With the lock of receiving: notes, once, what the record at the front announces.
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

    /// As [`Self::run`], and over the line behind an offered buffer.
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
                    // Asked before the look: a far side that answers and goes at once has answered.
                    ended = !awaited.pause() || self.dead().is_some() || self.gone();
                    loaded = offset(word).map_or(0, |at| segments.inbound.load_u64(at));
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
        since.elapsed() < VERDICT_TIMEOUT
    }
}

/// The line that says how much was written into an offered buffer.
#[derive(Clone, Copy, Debug)]
enum Line<'a> {
    /// There is none: what is done is not of an offer, or says nothing of that.
    None,
    /// Its sink's, which reads.
    Near(&'a Landing<'a>),
    /// Its source's, which writes the one of this number.
    Far(&'a FarBuffer, u32),
}

impl Line<'_> {
    /// What the source says, if it is the one that this was offered to; else 0.
    fn load(self, segments: &Segments) -> u64 {
        let Self::Near(landing) = self else { return 0 };
        let word = landing.word();
        if landing.seal() == seal(segments.rx_key, segments.tx_key, word) { word } else { 0 }
    }

    fn store(self, segments: &Segments, word: u64) {
        if let Self::Far(far, number) = self {
            // Of a line that there is not nothing is said: whoever waits for it takes the offer back.
            let _ = far.land(number, word, seal(segments.tx_key, segments.rx_key, word));
        }
    }
}

/// Where in a segment the word lies; `None` of the one that does not lie there.
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
