//! Every order in which two sides can make the steps of zero copy: each store waits in its side's store buffer until it
//! lands, as on the processors that we run on, and either side may be killed between any two steps.

use crosslane_stream::zcopy::{
    Action, Announced, Cancel, Claim, Confirm, Fetched, InvalidReference, Open, Progress, TakeBack, Word,
    Written, is_off, landed,
};
use crosslane_wire::zcopy::word;
use std::collections::HashSet;
use std::fmt::Debug;

const SEQUENCE: u32 = 5;
const WORDS: [Word; 7] =
    [Word::RdDone, Word::SendSm, Word::SinkOff, Word::SrcOff, Word::Verdict, Word::WrClaim, Word::WrDone];

fn index(word: Word) -> usize {
    WORDS.iter().position(|&other| other == word).unwrap()
}

/// What a side does between two looks at the world.
enum Step {
    Store(Word, u64),
    Fence,
    Load(Word),
    /// A load; asked for again, nothing happens until the word is another one.
    Await(Word),
    /// Something that only its own side sees.
    Own,
    End,
}

/// A side: a machine in its world. `world` is what tests compare at the end.
trait Side: Clone + Debug {
    /// The next step; `loaded` is what the last load gave.
    fn step(&mut self, loaded: u64, world: &mut World) -> Step;
}

/// What both sides did to the announced memory and to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    /// Bytes that the source believes to have been taken; none while its call lasts.
    sent: Option<u32>,
    /// Bytes that the sink has given to its program.
    received: u32,
    /// The announcer's call has returned: its memory is something else now.
    given_back: bool,
    /// The writer has stored into memory that was given back.
    harmed: bool,
    /// The sink believes bytes that it fetched from memory that was given back.
    deceived: bool,
}

#[derive(Clone, Debug)]
struct Thread<S> {
    side: S,
    buffer: Vec<(usize, u64)>,
    loaded: u64,
    waiting: Option<(usize, u64)>,
    awaited: Option<(usize, u64)>,
    fencing: bool,
    over: bool,
}

impl<S: Side> Thread<S> {
    fn new(side: S) -> Self {
        Self {
            side,
            buffer: Vec::new(),
            loaded: 0,
            waiting: None,
            awaited: None,
            fencing: false,
            over: false,
        }
    }

    fn see(&self, memory: &[u64; 7], at: usize) -> u64 {
        self.buffer.iter().rev().find(|store| store.0 == at).map_or(memory[at], |store| store.1)
    }

    fn may_step(&self, memory: &[u64; 7]) -> bool {
        !self.over
            && (!self.fencing || self.buffer.is_empty())
            && self.waiting.is_none_or(|(at, value)| self.see(memory, at) != value)
    }

    fn step(&mut self, memory: &[u64; 7], world: &mut World) {
        if let Some((at, _)) = self.waiting.take() {
            self.loaded = self.see(memory, at);
            self.awaited = Some((at, self.loaded));
        }
        self.fencing = false;
        match self.side.step(self.loaded, world) {
            Step::Store(word, value) => self.buffer.push((index(word), value)),
            Step::Fence => self.fencing = true,
            Step::Load(word) => self.loaded = self.see(memory, index(word)),
            Step::Await(word) => {
                let at = index(word);
                let asked = self.awaited.filter(|awaited| awaited.0 == at);
                if asked.is_none() {
                    self.loaded = self.see(memory, at);
                }
                self.waiting = asked;
                self.awaited = Some((at, self.loaded));
            }
            Step::Own => {}
            Step::End => self.over = true,
        }
    }

    fn flush(&mut self, memory: &mut [u64; 7]) {
        let (at, value) = self.buffer.remove(0);
        memory[at] = value;
    }
}

#[derive(Clone, Debug)]
struct State<A, B> {
    memory: [u64; 7],
    a: Thread<A>,
    b: Thread<B>,
    world: World,
}

/// Runs all orders; `check` sees each state in which nothing can happen any more. Returns how many states there were.
fn explore<A: Side, B: Side>(a: A, b: B, kills: bool, check: impl Fn(&State<A, B>)) -> usize {
    let first = State { memory: [0; 7], a: Thread::new(a), b: Thread::new(b), world: World::default() };
    let (mut seen, mut open) = (HashSet::new(), vec![first]);
    while let Some(state) = open.pop() {
        if !seen.insert(format!("{state:?}")) {
            continue;
        }
        let before = open.len();
        if state.a.may_step(&state.memory) {
            let mut next = state.clone();
            next.a.step(&state.memory, &mut next.world);
            open.push(next);
        }
        if state.b.may_step(&state.memory) {
            let mut next = state.clone();
            next.b.step(&state.memory, &mut next.world);
            open.push(next);
        }
        if !state.a.buffer.is_empty() {
            let mut next = state.clone();
            next.a.flush(&mut next.memory);
            open.push(next);
        }
        if !state.b.buffer.is_empty() {
            let mut next = state.clone();
            next.b.flush(&mut next.memory);
            open.push(next);
        }
        if open.len() == before {
            check(&state);
        }
        if kills && !state.b.over {
            let mut next = state.clone();
            next.b.over = true;
            open.push(next);
        }
    }
    seen.len()
}

fn of<T>(action: Result<Action<T>, InvalidReference>) -> Result<Step, T> {
    match action.expect("both sides are honest") {
        Action::Store(word, value) => Ok(Step::Store(word, value)),
        Action::Fence => Ok(Step::Fence),
        Action::Load(word) => Ok(Step::Load(word)),
        Action::Await(word) => Ok(Step::Await(word)),
        Action::Done(outcome) => Err(outcome),
    }
}

/// Has announced, looks once, and takes back what is not fetched by then.
#[derive(Clone, Debug)]
struct Source {
    what: Open,
    cancel: Option<Cancel>,
    looks: u8,
}

impl Source {
    fn of(lens: &[u32]) -> Self {
        Self { what: Open::new(SEQUENCE, lens), cancel: None, looks: 0 }
    }

    fn bytes(&self, progress: Progress) -> u32 {
        (0..progress.ended).map(|index| self.what.at(index).len).sum::<u32>() + progress.fetched
    }

    fn end(&self, progress: Progress, world: &mut World) -> Step {
        (world.sent, world.given_back) = (Some(self.bytes(progress)), true);
        Step::Own
    }
}

impl Side for Source {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        if world.sent.is_some() {
            return Step::End;
        }
        if self.looks == 0 {
            self.looks = 1;
            return Step::Load(Word::RdDone);
        }
        if self.cancel.is_none() {
            let progress = self.what.progress(loaded, 0).unwrap();
            if progress.ended == self.what.count() {
                return self.end(progress, world);
            }
            let before = if progress.ended == 0 { progress.fetched } else { 0 };
            self.cancel = Some(Cancel::new(self.what, before));
        }
        let cancel = self.cancel.as_mut().unwrap();
        of(cancel.step(loaded)).unwrap_or_else(|progress| self.end(progress, world))
    }
}

/// Fetches a byte at a time, one announcement after the other.
#[derive(Clone, Debug)]
struct Fetcher {
    what: Open,
    index: usize,
    done: u32,
    at: u8,
    late: bool,
    ended: bool,
    confirm: Option<Confirm>,
}

impl Fetcher {
    fn of(lens: &[u32]) -> Self {
        let what = Open::new(SEQUENCE, lens);
        Self { what, index: 0, done: 0, at: 0, late: false, ended: false, confirm: None }
    }

    fn confirmed(&mut self, outcome: Fetched, world: &mut World) -> Step {
        self.confirm = None;
        if self.ended {
            assert_ne!(outcome, Fetched::Void);
            return Step::End;
        }
        if outcome != Fetched::Void {
            self.done += 1;
            world.received += 1;
            world.deceived |= self.late;
        }
        self.at = if outcome == Fetched::Counts { 0 } else { 9 };
        Step::Own
    }
}

impl Side for Fetcher {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        if let Some(confirm) = &mut self.confirm {
            let outcome = of(confirm.step(loaded));
            return outcome.unwrap_or_else(|outcome| self.confirmed(outcome, world));
        }
        if self.index < self.what.count() && self.done == self.what.at(self.index).len {
            (self.index, self.done) = (self.index + 1, 0);
        }
        let sequence = self.what.at(self.index).sequence;
        self.at += 1;
        match self.at {
            1 if self.index == self.what.count() => Step::End,
            1 => Step::Load(Word::SrcOff),
            2 if is_off(loaded, sequence) && self.done == 0 => Step::End,
            2 if is_off(loaded, sequence) => {
                self.confirm = Some(Confirm::awaiting(sequence, self.done));
                (self.at, self.ended) = (9, true);
                Step::Own
            }
            2 => {
                self.late = world.given_back;
                self.confirm = Some(Confirm::new(sequence, self.done, self.done + 1));
                Step::Own
            }
            _ => Step::End,
        }
    }
}

#[test]
fn zcopy_read_agrees_on_every_byte_in_every_order() {
    for lens in [&[1][..], &[2], &[3], &[1, 1], &[1, 2], &[2, 1, 1]] {
        let states = explore(Source::of(lens), Fetcher::of(lens), false, |state| {
            assert!(state.a.over && state.b.over, "somebody waits for ever: {state:?}");
            assert_eq!(state.world.sent, Some(state.world.received), "{state:?}");
            assert!(!state.world.deceived, "{state:?}");
        });
        assert!(states > 100, "only {states} states");
    }
}

#[test]
fn zcopy_source_returns_in_bounded_steps_when_the_sink_is_killed() {
    for lens in [&[3][..], &[1, 2]] {
        explore(Source::of(lens), Fetcher::of(lens), true, |state| {
            assert!(state.a.over, "the source waits for the dead: {state:?}");
            assert!(state.world.sent >= Some(state.world.received), "{state:?}");
        });
    }
}

/// Has announced, and takes back.
#[derive(Clone, Debug)]
struct Sink {
    take_back: TakeBack,
}

impl Side for Sink {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        if world.given_back {
            return Step::End;
        }
        of(self.take_back.step(loaded)).unwrap_or_else(|bytes| {
            (world.received, world.given_back) = (bytes.unwrap_or(0), true);
            Step::Own
        })
    }
}

/// Claims, writes a byte at a time, and says so.
#[derive(Clone, Debug)]
struct Writer {
    claim: Claim,
    may: Option<bool>,
    stored: u32,
    written: Written,
}

const WRITES: u32 = 3;

impl Side for Writer {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        match self.may {
            None => of(Ok(self.claim.step(loaded))).unwrap_or_else(|may| {
                self.may = Some(may);
                Step::Own
            }),
            Some(false) => Step::End,
            Some(true) if self.stored < WRITES => {
                self.stored += 1;
                world.harmed |= world.given_back;
                Step::Own
            }
            Some(true) => of(Ok(self.written.step())).unwrap_or_else(|()| {
                world.sent = Some(WRITES);
                Step::End
            }),
        }
    }
}

fn write_sides() -> (Sink, Writer) {
    let what = Announced { sequence: SEQUENCE, len: 8 };
    let (claim, written) = (Claim::new(SEQUENCE), Written::new(SEQUENCE, WRITES));
    (Sink { take_back: TakeBack::new(what) }, Writer { claim, may: None, stored: 0, written })
}

#[test]
fn zcopy_write_is_received_or_never_happens_in_every_order() {
    let (sink, writer) = write_sides();
    let states = explore(sink, writer, false, |state| {
        assert!(state.a.over && state.b.over, "somebody waits for ever: {state:?}");
        assert!(!state.world.harmed, "{state:?}");
        assert_eq!(state.world.sent.unwrap_or(0), state.world.received, "{state:?}");
    });
    assert!(states > 50, "only {states} states");
}

#[test]
fn zcopy_writer_that_is_killed_holds_up_only_its_claim() {
    let (sink, writer) = write_sides();
    explore(sink, writer, true, |state| {
        assert!(!state.world.harmed, "{state:?}");
        let claimed = state.memory[index(Word::WrClaim)] == word(SEQUENCE, 0);
        assert!(state.a.over || claimed, "{state:?}");
        if state.world.given_back {
            let what = Announced { sequence: SEQUENCE, len: 8 };
            let done = landed(what, state.memory[index(Word::WrDone)]).unwrap();
            assert_eq!(done.unwrap_or(0), state.world.received, "{state:?}");
        }
    });
}

/// Offers again when it has taken back, and takes that back too: the words speak of the last one only.
#[derive(Clone, Debug)]
struct SinkAgain {
    take_back: [TakeBack; 2],
    done: usize,
}

impl Side for SinkAgain {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        let Some(take_back) = self.take_back.get_mut(self.done) else { return Step::End };
        of(take_back.step(loaded)).unwrap_or_else(|bytes| {
            if self.done == 0 {
                (world.received, world.given_back) = (bytes.unwrap_or(0), true);
            }
            self.done += 1;
            Step::Own
        })
    }
}

#[test]
fn zcopy_writer_two_offers_late_does_not_write() {
    let (_, writer) = write_sides();
    let back = |sequence| TakeBack::new(Announced { sequence, len: 8 });
    let sink = SinkAgain { take_back: [back(SEQUENCE), back(SEQUENCE + 1)], done: 0 };
    let states = explore(sink, writer, false, |state| {
        assert!(state.a.over && state.b.over, "somebody waits for ever: {state:?}");
        assert!(!state.world.harmed, "{state:?}");
        assert_eq!(state.world.sent.unwrap_or(0), state.world.received, "{state:?}");
    });
    assert!(states > 50, "only {states} states");
}

/// Takes back without the fence, as a wrong program would.
#[derive(Clone, Debug)]
struct Unfenced(Sink);

impl Side for Unfenced {
    fn step(&mut self, loaded: u64, world: &mut World) -> Step {
        match self.0.step(loaded, world) {
            Step::Fence => Step::Own,
            step => step,
        }
    }
}

#[test]
fn zcopy_search_finds_a_missing_fence() {
    let (sink, writer) = write_sides();
    let harmed = std::cell::Cell::new(false);
    explore(Unfenced(sink), writer, false, |state| harmed.set(harmed.get() | state.world.harmed));
    assert!(harmed.get(), "a store that overtakes nothing is not modelled");
}
