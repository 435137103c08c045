//! A process that shares an end and writes anything into the end's state, between any calls of the others and during them. No
//! call panics, waits for long, says that it moved more than it was asked to, or reaches memory that is not the end's: the
//! stream ends, or stands still.

use crate::rig::{Host, Rig, bytes};
use crate::words::{Call, PLACE, RING_BYTES, SOON, SOURCE, Stream, Value, raise_descriptor_limit};
use crate::zcopy::registered;
use bolero::TypeGenerator;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crosslane_client::Failure;
use crosslane_client::buffers::OpenBuffer;
use crosslane_client::shared::Shared;
use crosslane_shm::state::LEN;
use crosslane_shm::{Inbound, Load, Outbound, Store};
use std::time::Instant;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Call(bool, Call),
    Write(bool, u16, What),
    /// Writes there as long as the call takes.
    During(bool, u16, What, Call),
    Move {
        retained: bool,
        lies: Option<(u32, u32)>,
    },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum What {
    Word(Value),
    Half(u32),
    /// So many lines more than is there.
    Beside(i8),
    Bit(u8),
    Nothing,
    Everything,
}

/// The state of an end as another process that holds it has it.
struct Page {
    load: Inbound,
    store: Outbound,
}

impl Page {
    fn of(host: &Host) -> Self {
        let memory = host.state();
        Self { load: Inbound::sealed(&memory, LEN).unwrap(), store: Outbound::sealed(&memory, LEN).unwrap() }
    }

    fn write(&self, at: u16, what: What) {
        let at = usize::from(at) * 4 % size_of::<Shared>();
        let word = at & !7;
        let there = self.load.load_u64(word);
        match what {
            What::Word(value) => self.store.store_u64(word, value.word()),
            What::Half(value) => self.store.store_u32(at, value),
            What::Beside(lines) => {
                self.store.store_u64(word, there.wrapping_add_signed(i64::from(lines) * 64));
            }
            What::Bit(bit) => self.store.store_u64(word, there ^ 1 << (bit % 64)),
            What::Nothing => self.store.store_u64(word, 0),
            What::Everything => self.store.store_u64(word, u64::MAX),
        }
    }
}

/// A call is over, also when it panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn act(stream: &mut Stream<'_>, pages: &[Page; 2], step: &Step) -> Result<(), Failure> {
    match step {
        Step::Call(end, call) => return stream.call(usize::from(*end), call),
        Step::Write(end, at, what) => pages[usize::from(*end)].write(*at, *what),
        Step::During(end, at, what, call) => {
            let (page, over) = (&pages[usize::from(*end)], AtomicBool::new(false));
            return std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        page.write(*at, *what);
                    }
                });
                let _over = Over(&over);
                stream.call(usize::from(*end), call)
            });
        }
        Step::Move { retained, lies } => stream.change(*retained, *lies),
    }
    Ok(())
}

/// What is written into each word, one at a time.
const WHATS: [What; 8] = [
    What::Nothing,
    What::Everything,
    What::Bit(0),
    What::Bit(63),
    What::Beside(1),
    What::Beside(-1),
    What::Word(Value::Lines(0xfff0)),
    What::Word(Value::Any(1 << 48)),
];

/// What a program does with an end of whose state something was written.
const CALLS: [Call; 10] = [
    Call::Ready,
    Call::Unread,
    Call::Peek(500),
    Call::Receive(100),
    Call::Send(100),
    Call::Send(69_000),
    Call::Receive(69_000),
    Call::Announce,
    Call::EndSending,
    Call::Receive(69_000),
];

#[test]
fn any_word_of_the_state_may_be_wrong() {
    raise_descriptor_limit();
    let source = registered(0, SOURCE);
    let place: &OpenBuffer = Box::leak(Box::new(OpenBuffer::new(PLACE).unwrap()));
    for word in 0..size_of::<Shared>() / 8 {
        for what in WHATS {
            let mut stream = Stream::new(Rig::new(RING_BYTES as u64, false), &source, place);
            let page = Page::of(stream.rig.hosts[1]);
            let calls = [(0, Call::Send(5000)), (1, Call::Send(5000)), (1, Call::Receive(100))];
            calls.iter().for_each(|(end, call)| stream.call(*end, call).unwrap());
            page.write(u16::try_from(word * 2).unwrap(), what);
            for call in &CALLS {
                let start = Instant::now();
                let _ = stream.call(1, call);
                let _ = stream.call(0, call);
                assert!(start.elapsed() < SOON, "{word} {what:?} {call:?} took {:?}", start.elapsed());
            }
        }
    }
}

#[test]
fn anything_in_the_state_that_an_end_shares() {
    raise_descriptor_limit();
    let source = registered(0, SOURCE);
    let place: &OpenBuffer = Box::leak(Box::new(OpenBuffer::new(PLACE).unwrap()));
    let held = std::panic::AssertUnwindSafe((source, place));
    bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
        let (source, place) = &*held;
        let mut stream = Stream::new(Rig::new(RING_BYTES as u64, false), source, place);
        let pages = stream.rig.hosts.map(Page::of);
        for step in steps {
            let start = Instant::now();
            // Who goes on after an error must be safe as well.
            let _ = act(&mut stream, &pages, step);
            assert!(start.elapsed() < SOON, "{step:?} took {:?}", start.elapsed());
        }
        assert!(source[..] == bytes(0, SOURCE)[..], "what was announced was written to");
    });
}
