//! Recovery from a sender that was killed while it published a record: the process that takes over the sending lock finishes the record.
//!
//! After the payload and before the header word the sender writes a *note* into its state: the header word and where the
//! record begins. It clears the note when its state points behind the record. All stores in between follow from the note
//! and may be done twice: the receiver may have consumed the record already, but no process has sent since. A sender that
//! was killed before it wrote the note has published nothing of the record. Of two records that are published together
//! ([`super::split`]) the note has both words.
//!
//! A killed process has done its stores in program order, up to some store. Only the compiler must be kept from reordering
//! them; so there are compiler fences here and no others.

use super::{Producer, Violation, place};
use crate::Store;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, compiler_fence};
use crosslane_wire::record::{FLAG_GROW, Header, mark, units};

/// The record that is being published; a part of the producer's state.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Note {
    /// The record's header word; 0: no record is being published.
    word: AtomicU64,
    position: AtomicU64,
    offset: AtomicU64,
    units: AtomicU64,
    /// Length of the ring before the record, bytes, with [`TWO`] if `second` is published with the record.
    cap: AtomicU64,
    /// The header word of the record behind it.
    second: AtomicU64,
}

/// In [`Note::cap`], whose lowest bits are free.
const TWO: u64 = 1;

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// Position, bytes.
    pub(super) position: u64,
    /// Offset in the ring, bytes.
    pub(super) offset: u64,
    /// Stream offset.
    pub(super) units: u64,
    /// Length of the ring before the record, bytes.
    pub(super) cap: u64,
}

impl Begin {
    /// Where the record behind the one with this `header` begins.
    #[inline(always)]
    pub(super) fn behind(self, header: Header) -> Self {
        let end = self.offset.wrapping_add(header.span());
        let grows = header.flags & FLAG_GROW != 0;
        Self {
            position: self.position.wrapping_add(header.span()),
            offset: if grows {
                self.cap
            } else if end == self.cap {
                0
            } else {
                end
            },
            units: self.units.wrapping_add(units(header.kind, header.len)),
            cap: if grows { self.cap.wrapping_mul(2) } else { self.cap },
        }
    }
}

impl Note {
    /// Notes two records that are published together, the first of which begins at `begin`.
    pub(super) fn take_two(&self, begin: Begin, [first, second]: [u64; 2]) {
        self.second.store(second, Relaxed);
        self.take(Begin { cap: begin.cap | TWO, ..begin }, first);
    }

    #[inline(always)]
    pub(super) fn take(&self, begin: Begin, word: u64) {
        self.position.store(begin.position, Relaxed);
        self.offset.store(begin.offset, Relaxed);
        self.units.store(begin.units, Relaxed);
        self.cap.store(begin.cap, Relaxed);
        compiler_fence(SeqCst);
        self.word.store(word, Relaxed);
        compiler_fence(SeqCst);
    }

    #[inline(always)]
    pub(super) fn take_back(&self) {
        compiler_fence(SeqCst);
        self.word.store(0, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Where the noted record begins, and the header word of the one behind it that is published with it.
    fn begin(&self) -> (Begin, Option<u64>) {
        let [position, offset, units, cap, second] =
            [&self.position, &self.offset, &self.units, &self.cap, &self.second]
                .map(|word| word.load(Relaxed));
        (Begin { position, offset, units, cap: cap & !TWO }, (cap & TWO != 0).then_some(second))
    }
}

impl Producer {
    /// Whether a sender was killed while it published a record. The caller has the lock of sending.
    #[inline(always)]
    pub fn is_unfinished(&self) -> bool {
        self.note.word.load(Relaxed) != 0
    }

    /// Publishes the record that a killed sender had begun to publish, if there is one. The caller has the lock of sending;
    /// `ring` is the segment that this producer fills.
    #[cold]
    pub fn finish(&self, ring: &impl Store) -> Result<(), Violation> {
        let (word, (begin, second)) = (self.note.word.load(Relaxed), self.note.begin());
        if word == 0 {
            return Ok(());
        }
        // Any process that holds the end may have overwritten the note.
        let header = Header::from_word(word, begin.cap.saturating_sub(begin.offset))?;
        let at = place(ring.len(), begin.offset, header.span())?;
        if let Some(second) = second {
            self.publish_two(ring, (header, begin, at), [word, second])?;
        } else {
            self.show(ring, at, word, begin.position);
            self.pass(header, begin);
        }
        self.open.store(if header.is_open() { word } else { 0 }, Relaxed);
        self.note.take_back();
        Ok(())
    }

    /// Publishes the record with this header, at byte `at` of the segment, and the one behind it, the second one first: both
    /// payloads are stored, and `words` are the header words.
    pub(super) fn publish_two(
        &self,
        ring: &impl Store,
        (header, begin, at): (Header, Begin, usize),
        words: [u64; 2],
    ) -> Result<(), Violation> {
        let behind = begin.behind(header);
        let second = Header::from_word(words[1], behind.cap.saturating_sub(behind.offset))?;
        let at_second = place(ring.len(), behind.offset, second.span())?;
        self.show(ring, at_second, words[1], behind.position);
        self.show(ring, at, words[0], begin.position);
        self.pass(header, begin);
        self.pass(second, behind);
        Ok(())
    }

    /// Stores header word and mark, in that order (law 4), of the record at byte `at` of the segment, whose payload is stored.
    #[inline(always)]
    pub(super) fn show(&self, ring: &impl Store, at: usize, word: u64, position: u64) {
        ring.store_u64(at + 8, word);
        ring.store_fence();
        ring.store_u64(at, mark(self.key.load(Relaxed), position));
        compiler_fence(SeqCst);
    }

    /// Advances the state past the record that begins at `begin`, which is published.
    #[inline(always)]
    pub(super) fn pass(&self, header: Header, begin: Begin) {
        let behind = begin.behind(header);
        if header.flags & FLAG_GROW != 0 {
            let end = begin.offset.wrapping_add(header.span());
            self.lengthen(begin.cap, end, behind.position);
        }
        self.units.store(behind.units, Relaxed);
        self.position.store(behind.position, Release);
        self.offset.store(behind.offset, Release);
    }
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Load;
    use crate::ring::{Consumer, Credits, EASY};
    use crate::steps::at_each_instruction;
    use crosslane_wire::record::{Kind, payload_of};
    use crosslane_wire::segment::{LINE, RING};
    use std::cell::RefCell;

    const CAP: u64 = 4096;
    const MAX: u64 = 2 * CAP;
    const KEY: u64 = 4711;

    /// A segment in which each aligned word is stored at once.
    struct Memory(Vec<AtomicU64>);

    impl Store for Memory {
        fn len(&self) -> usize {
            self.0.len() * 8
        }

        fn store_u32(&self, _: usize, _: u32) {
            unreachable!("not by the ring");
        }

        fn store_u64(&self, offset: usize, value: u64) {
            self.0[offset / 8].store(value, Relaxed);
        }

        fn write(&self, offset: usize, source: &[u8]) {
            for (at, byte) in (offset..).zip(source) {
                let (word, shift) = (&self.0[at / 8], at % 8 * 8);
                let others = word.load(Relaxed) & !(0xff << shift);
                word.store(others | u64::from(*byte) << shift, Relaxed);
            }
        }

        fn store_fence(&self) {}

        fn fence(&self) {}
    }

    impl Load for Memory {
        fn len(&self) -> usize {
            Store::len(self)
        }

        fn load_u32(&self, _: usize) -> u32 {
            unreachable!("not by the ring");
        }

        fn load_u64(&self, offset: usize) -> u64 {
            self.0[offset / 8].load(Relaxed)
        }

        fn read(&self, offset: usize, target: &mut [u8]) {
            for (at, byte) in (offset..).zip(target) {
                *byte = self.0[at / 8].load(Relaxed).to_le_bytes()[at % 8];
            }
        }
    }

    /// The credit that the receiver has given, and whether the receiver is awake.
    struct Given {
        credit: u64,
        awake: bool,
    }

    impl Credits for Given {
        fn stored(&self) -> u64 {
            self.credit
        }

        fn gathers(&self) -> bool {
            self.awake
        }
    }

    struct Pair {
        ring: Memory,
        back: Memory,
        producer: Producer,
        consumer: Consumer,
    }

    impl Pair {
        fn new() -> Self {
            let memory = |len: u64| Memory((0..len / 8).map(|_| AtomicU64::new(0)).collect());
            let (ring, back) = (memory(RING as u64 + MAX), memory(RING as u64));
            let (producer, consumer) = (Producer::default(), Consumer::default());
            producer.reset(CAP, MAX, KEY);
            consumer.reset(CAP, MAX, KEY);
            Self { ring, back, producer, consumer }
        }

        /// Copies the memory of `other` as it would be if the sender were killed now.
        fn copy(&self, other: &Self) {
            for (to, from) in self.ring.0.iter().zip(&other.ring.0) {
                to.store(from.load(Relaxed), Relaxed);
            }
            // SAFETY: plain memory that no other thread uses; this thread is in the middle of a change of `other`, which is the point.
            unsafe {
                (&raw const self.producer)
                    .cast_mut()
                    .cast::<u8>()
                    .copy_from((&raw const other.producer).cast(), size_of::<Producer>());
                (&raw const self.consumer)
                    .cast_mut()
                    .cast::<u8>()
                    .copy_from((&raw const other.consumer).cast(), size_of::<Consumer>());
            }
        }

        fn push(&self, given: &Given, bytes: &[u8]) -> usize {
            self.producer.push(&self.ring, given, Kind::Data, bytes, 0).unwrap()
        }

        /// Receives all records that have arrived and appends their bytes to `into`.
        fn drain(&self, into: &mut Vec<u8>) {
            let mut bytes = [0; 512];
            while let Some(head) = self.consumer.head(&self.ring).unwrap() {
                if head.kind == Kind::Filler {
                    self.consumer.consume().unwrap();
                    continue;
                }
                assert_eq!(head.kind, Kind::Data);
                if head.left == 0 {
                    break;
                }
                let count = self.consumer.take(&self.ring, &mut bytes).unwrap();
                into.extend_from_slice(&bytes[..count]);
            }
            self.consumer.give_credit(&self.back, true);
        }
    }

    /// Sends `sent` after `before`, and kills the sender after each instruction of that send. The next sender must find all of it
    /// or nothing, or where the ring was full a part that ends where a record ends, and its own bytes must follow. `taken` bytes of
    /// `before` were received.
    fn killed(before: &[(&[u8], bool)], taken: usize, sent: (&[u8], bool)) {
        killed_behind(before, taken, |_| {}, sent);
    }

    /// As [`killed`], with something done to the sender's state before the send.
    fn killed_behind(
        before: &[(&[u8], bool)],
        taken: usize,
        prepare: impl Fn(&Producer),
        (sent, awake): (&[u8], bool),
    ) {
        let pair = Pair::new();
        let mut expected: Vec<u8> = Vec::new();
        for (bytes, awake) in before {
            assert_eq!(pair.push(&Given { credit: 0, awake: *awake }, bytes), bytes.len());
            expected.extend_from_slice(bytes);
        }
        let mut received = vec![0; taken];
        let mut done = 0;
        while done < taken {
            pair.consumer.head(&pair.ring).unwrap().unwrap();
            done += pair.consumer.take(&pair.ring, &mut received[done..]).unwrap();
        }
        pair.consumer.give_credit(&pair.back, true);
        prepare(&pair.producer);
        let given = Given { credit: pair.consumer.position(), awake };
        let (copy, spoils) = (Pair::new(), RefCell::new(Vec::with_capacity(2 * expected.len() + 1024)));
        let seen = [0, 1].map(|_| core::cell::Cell::new(0));
        let look = |_| {
            for at_once in [false, true] {
                copy.copy(&pair);
                let mut got = spoils.borrow_mut();
                got.clear();
                got.extend_from_slice(&received);
                if at_once {
                    copy.drain(&mut got);
                }
                copy.producer.finish(&copy.ring).unwrap();
                assert!(!copy.producer.is_unfinished());
                let given =
                    Given { credit: copy.consumer.position().min(copy.producer.position()), awake: false };
                assert_eq!(copy.push(&given, b"the next one"), 12);
                copy.drain(&mut got);
                let rest = got.strip_prefix(&expected[..]).expect("what was sent before");
                let rest = rest.strip_suffix(b"the next one").expect("what was sent behind");
                let is_part = taken == 0 && sent.starts_with(rest);
                assert!(rest.is_empty() || rest == sent || is_part, "{rest:?}");
                assert_eq!(copy.consumer.units(), got.len() as u64);
                assert_eq!(
                    (copy.producer.units(), copy.producer.position()),
                    (copy.consumer.units(), copy.consumer.position())
                );
                seen[0].set(seen[0].get() + u32::from(rest.is_empty()));
                seen[1].set(seen[1].get() + u32::from(rest == sent));
            }
        };
        at_each_instruction(|| assert_eq!(pair.push(&given, sent), sent.len()), &look);
        assert!(seen.iter().all(|seen| seen.get() > 0), "killed before and behind it");
    }

    fn bytes(len: u64) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn killed_sender_at_any_instruction_leaves_a_usable_ring() {
        const { assert!(CAP < EASY) };
        killed(&[], 0, (b"one line", false));
        killed(&[(b"before", false)], 3, (&bytes(200), false));
        // Up to the ring's last line, and on from its start.
        let most = bytes(payload_of(CAP - 4 * LINE));
        killed(&[(&most, false)], most.len(), (&bytes(payload_of(4 * LINE)), false));
        killed(&[(&most, false)], most.len(), (&bytes(payload_of(8 * LINE)), false));
        // The ring doubles with the record at its end.
        let grows = |producer: &Producer| producer.request_grow();
        killed_behind(&[(&most, false)], most.len(), grows, (&bytes(payload_of(8 * LINE)), false));
        // The ring is full and is doubled.
        killed(&[(&most, false)], 0, (&bytes(payload_of(8 * LINE)), false));
        let less = bytes(payload_of(CAP - 8 * LINE));
        killed(&[(&less, false)], 0, (&bytes(payload_of(20 * LINE)), false));
    }

    #[test]
    fn killed_sender_of_an_open_record_leaves_a_usable_ring() {
        let behind = bytes(payload_of(CAP * 3 / 4));
        killed(&[(&behind, false)], 0, (b"open", true));
        killed(&[(&behind, false), (b"open", true)], 0, (b" for more", true));
        killed(&[(&behind, false), (b"open", true)], behind.len() + 4, (b" for more", true));
        killed(&[(&behind, false), (b"open", true)], behind.len() + 2, (&bytes(100), true));
        killed(&[(&behind, false), (b"open", true)], 0, (&bytes(200), false));
    }

    #[test]
    fn killed_sender_note_that_lies_is_refused() {
        let pair = Pair::new();
        for (begin, word) in [
            (Begin { position: 0, offset: 0, units: 0, cap: CAP }, u64::MAX),
            (Begin { position: 0, offset: 7, units: 0, cap: CAP }, 1),
            (Begin { position: 0, offset: u64::MAX - 63, units: 0, cap: u64::MAX }, 1),
            (Begin { position: 0, offset: MAX, units: 0, cap: 2 * MAX }, 1),
            (Begin { position: 0, offset: 0, units: 0, cap: 0 }, 1),
        ] {
            pair.producer.note.take(begin, word);
            assert!(pair.producer.finish(&pair.ring).is_err(), "{begin:?}");
        }
    }

    #[test]
    fn killed_sender_note_that_lies_of_a_second_record_is_refused() {
        let word = |len, flags| Header { len, kind: Kind::Data, flags, cpu: 0 }.to_word();
        let last = Begin { position: 0, offset: CAP - LINE, units: 0, cap: CAP };
        for (begin, words) in [
            (last, [word(1, 0), u64::MAX]),
            (last, [word(1, 0), 0]),
            // Longer than the ring, and beyond what it may become.
            (last, [word(1, 0), word(5000, 0)]),
            (last, [word(1, FLAG_GROW), word(5000, 0)]),
            (Begin { offset: MAX - LINE, cap: MAX, ..last }, [word(1, FLAG_GROW), word(1, 0)]),
            (Begin { offset: 2 * LINE, cap: !1, ..last }, [word(1, FLAG_GROW), word(1, 0)]),
        ] {
            let pair = Pair::new();
            pair.producer.note.take_two(begin, words);
            assert!(pair.producer.finish(&pair.ring).is_err(), "{begin:?} {words:?}");
        }
    }
}
