//! A far side that says anything at any time: words, descriptors and records where an end reads, between any calls of
//! the program. No call panics, waits for long, or moves bytes where they do not belong.

use crate::forged::Forger;
use crate::rig::{Rig, bytes, send, tid};
use crate::zcopy::{Registered, registered};
use bolero::TypeGenerator;
use crosslane_client::buffers::{Landing, OpenBuffer, locate_bytes};
use crosslane_client::end::zcopy::announce::{Announcement, Attempt, Behind, Stand};
use crosslane_client::{End, Failure};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{
    ACKED, CREDIT, MODE, ORDER, RD_DONE, RING, SEND_SM, SINK_OFF, SRC_OFF, STATE, VERDICT, WANT_DATA,
    WANT_ROOM, WR_CLAIM, WR_DONE,
};
use crosslane_wire::zcopy::{DESCRIPTOR, Descriptor, word};
use crosslane_wire::{BufferId, WaiterId};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// What an end that stays away holds one call up for, at most, with time to spare.
pub(crate) const SOON: Duration = Duration::from_secs(15);
/// Bytes of the buffer that ends announce, and of the one that they offer.
pub(crate) const SOURCE: usize = 20_000;
pub(crate) const PLACE: usize = 8192;
/// Largest call, bytes.
const MOST: usize = 70_000;
/// Bytes of the ring of each circuit.
pub(crate) const RING_BYTES: usize = 1 << 17;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Call(bool, Call),
    Word(bool, Which, Value),
    /// A line of the ring, where a record may begin.
    Record(bool, u16, Value),
    /// What was written of an offer, behind the buffer.
    Completion(bool, Value, bool),
    /// An announcement of the client's.
    Announcement {
        offers: bool,
        of: Of,
        at: Value,
        len: u32,
        sequence: u8,
        units: Value,
    },
    Bytes {
        offers: bool,
        bytes: [u8; DESCRIPTOR as usize],
    },
    Move {
        retained: bool,
        lies: Option<(u32, u32)>,
    },
    Unshare,
}

#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Call {
    Send(u32),
    Receive(u32),
    Peek(u16),
    Unread,
    Ready,
    Announce,
    Offer,
    Landed,
    TakeBack,
    Stand,
    Withdraw,
    WantRoom(u32),
    Refresh,
    EndSending,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Which {
    State,
    Order,
    Credit,
    WantData,
    WantRoom,
    Landed,
    RdDone,
    SendSm,
    SinkOff,
    Mode,
    SrcOff,
    Verdict,
    WrClaim,
    WrDone,
    Any(u8),
}

impl Which {
    fn offset(self) -> usize {
        match self {
            Self::State => STATE,
            // Shares its word with the state.
            Self::Order => ORDER & !7,
            Self::Credit => CREDIT,
            Self::WantData => WANT_DATA,
            Self::WantRoom => WANT_ROOM,
            Self::Landed => ACKED,
            Self::RdDone => RD_DONE,
            Self::SendSm => SEND_SM,
            Self::SinkOff => SINK_OFF,
            Self::Mode => MODE,
            Self::SrcOff => SRC_OFF,
            Self::Verdict => VERDICT,
            Self::WrClaim => WR_CLAIM,
            Self::WrDone => WR_DONE,
            Self::Any(at) => usize::from(at) * 8,
        }
    }
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum Value {
    /// About an announcement of this number, so many bytes.
    Sequence(u8, u32),
    Small(u8),
    Lines(u16),
    Any(u64),
}

impl Value {
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Sequence(sequence, bytes) => word((sequence % 8).into(), bytes),
            Self::Small(value) => value.into(),
            Self::Lines(lines) => u64::from(lines) * 64,
            Self::Any(value) => value,
        }
    }
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Of {
    Source,
    Place,
    Any(u64),
}

/// A stream of which both sides are lied to.
pub(crate) struct Stream<'a> {
    pub(crate) rig: Rig,
    source: &'a Registered,
    place: &'static OpenBuffer,
    /// A line behind it for the offers of each end.
    lines: [Landing<'static>; 2],
    opens: Vec<(usize, Announcement)>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(rig: Rig, source: &'a Registered, place: &'static OpenBuffer) -> Self {
        let lines = [place.landing().unwrap(), place.landing().unwrap()];
        Self { rig, source, place, lines, opens: Vec::new() }
    }

    fn act(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Call(end, call) => return self.call(usize::from(*end), call),
            Step::Word(end, which, value) => {
                self.rig.mover().forge(usize::from(*end), which.offset(), value.word());
            }
            Step::Record(end, at, value) => {
                let at = RING + usize::from(*at) * 8 % RING_BYTES;
                self.rig.mover().forge(usize::from(*end), at, value.word());
            }
            Step::Completion(end, value, sealed) => self.complete(usize::from(*end), value.word(), *sealed),
            Step::Announcement { offers, of, at, len, sequence, units } => {
                let buffer = match of {
                    Of::Source => placed(&self.rig.ends[0], self.source).0,
                    Of::Place => self.place.locate(0, PLACE).unwrap().id,
                    Of::Any(number) => BufferId(*number),
                };
                let (sequence, at) = ((sequence % 8).into(), at.word());
                let descriptor = Descriptor { sequence, len: *len, buffer, at, line: 0, units: units.word() };
                self.announce(*offers, &descriptor.encode());
            }
            Step::Bytes { offers, bytes } => self.announce(*offers, bytes),
            Step::Move { retained, lies } => self.change(*retained, *lies),
            Step::Unshare => self.rig.unshare_all(),
        }
        Ok(())
    }

    /// What lies in the ring may be rubbish already: then there is no room for more.
    fn announce(&self, offers: bool, descriptor: &[u8; DESCRIPTOR as usize]) {
        let kind = if offers { Kind::SinkAvail } else { Kind::SrcAvail };
        self.rig.try_announce(kind, descriptor, b"carried");
    }

    fn complete(&self, index: usize, word: u64, sealed: bool) {
        let mut forger = Forger::of(&self.rig, &self.place.locate(0, PLACE).unwrap());
        if index == 1 {
            forger.1.reverse();
        }
        forger.say(self.lines[index].number(), word, sealed);
    }

    /// The stream goes over to another circuit; what the daemons say has arrived may be a lie.
    pub(crate) fn change(&self, retained: bool, lies: Option<(u32, u32)>) {
        let mut mover = self.rig.mover();
        mover.lose();
        let told = lies.map_or([0, 0], |(client, server)| [client.into(), server.into()]);
        mover.find_with(RING_BYTES as u64, retained, told, told);
    }

    pub(crate) fn call(&mut self, index: usize, call: &Call) -> Result<(), Failure> {
        let (end, line) = (&self.rig.ends[index], &self.lines[index]);
        match call {
            Call::Send(len) => {
                let len = *len as usize % MOST;
                assert!(send(end, &bytes(0, len))? <= len);
            }
            Call::Receive(len) => {
                let mut target = vec![0; *len as usize % MOST];
                let moved = end.try_receive(tid(), &mut [IoSliceMut::new(&mut target)])?;
                assert!(moved.bytes <= target.len());
            }
            Call::Peek(len) => {
                let mut target = vec![0; usize::from(*len)];
                assert!(end.try_peek(tid(), &mut [IoSliceMut::new(&mut target)])? <= target.len());
            }
            Call::Unread => return end.unread(tid()).map(drop),
            Call::Ready => {
                end.ready(tid());
                end.arrivals(&mut None);
            }
            Call::Announce => {
                let attempt = end.announce(tid(), self.source, placed(end, self.source), Behind::Nothing)?;
                if let Attempt::Open(open, _) = attempt {
                    self.opens.push((index, open));
                }
            }
            Call::Offer => {
                let located = self.place.locate(0, self.place.len()).unwrap();
                let _ = end.export_buffer(&located);
                end.offer(tid(), b"request", (&located, line), self.place.len())?;
            }
            Call::Landed => assert!(end.take_landed(tid(), line)?.unwrap_or(0) <= self.place.len()),
            Call::TakeBack => assert!(end.take_back(tid(), line)?.unwrap_or(0) <= self.place.len()),
            Call::Stand => return self.settle(false),
            Call::Withdraw => return self.settle(true),
            Call::WantRoom(waiter) => drop(end.want_room(WaiterId(*waiter))),
            Call::Refresh => end.refresh(tid()),
            Call::EndSending => drop(end.send_control(tid(), Kind::DisConn)?),
        }
        Ok(())
    }

    /// Looks at the last announcement, and takes it back if it is not over.
    fn settle(&mut self, withdraw: bool) -> Result<(), Failure> {
        let Some((index, mut open)) = self.opens.pop() else { return Ok(()) };
        let end = &self.rig.ends[index];
        let count = match end.stand(tid(), &mut open)? {
            Stand::Over(count) => count,
            _ if withdraw => end.withdraw(tid(), &open)?,
            _ => {
                self.opens.push((index, open));
                0
            }
        };
        assert!(count <= SOURCE);
        Ok(())
    }
}

/// Where these bytes of a registered buffer lie, for `end`, which shares it if it may.
fn placed(end: &End, bytes: &[u8]) -> (BufferId, u64) {
    let located = locate_bytes(bytes).expect("a registered buffer");
    let _ = end.export_buffer(&located);
    (located.id, located.offset)
}

/// Each stream leaves some descriptors behind.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn anything_from_the_far_side_of_an_end() {
    raise_descriptor_limit();
    let source = registered(0, SOURCE);
    let place: &OpenBuffer = Box::leak(Box::new(OpenBuffer::new(PLACE).unwrap()));
    let held = std::panic::AssertUnwindSafe((source, place));
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(|steps| {
        let (source, place) = &*held;
        let mut stream = Stream::new(Rig::new(RING_BYTES as u64, false), source, place);
        for step in steps {
            let start = Instant::now();
            let outcome = stream.act(step);
            assert!(start.elapsed() < SOON, "{step:?} took {:?}", start.elapsed());
            if outcome == Err(Failure::Reset) {
                break;
            }
        }
        assert!(source[..] == bytes(0, SOURCE)[..], "what was announced was written to");
    });
}
