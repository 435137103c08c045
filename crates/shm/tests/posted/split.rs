//! A send that meets the ring's end, in every order in which its stores may land: the reader sees all of it or nothing.

use super::ends::KEY;
use super::explorer::{Chooser, Outcome, Run};
use super::{In, Order, Out, Shared, World};
use crosslane_shm::ring::{Consumer, Producer};
use crosslane_wire::record::{Kind, payload_of};
use crosslane_wire::segment::{LINE, segment_len};
use std::hash::{Hash, Hasher};

/// Bytes of ring.
const RING: u64 = 8 * LINE;
/// Lines that are left to the ring's end.
const LEFT: u64 = 2;
/// Bytes of the send: one line more than is left.
const SENT: usize = 130;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) order: Order,
    /// Bytes that the ring may have at most.
    pub(crate) ring_max: u64,
    /// No fence before a record's mark.
    pub(crate) no_store_fence: bool,
    /// By two sends, one up to the ring's end: what it would be if each record were published by itself.
    pub(crate) in_two: bool,
}

/// One send, and a reader that looks all the time.
pub(crate) struct Split {
    setup: Setup,
    world: Shared,
    producer: Producer,
    consumer: Consumer,
    is_sent: bool,
}

impl Split {
    pub(crate) fn new(setup: Setup, chooser: Chooser) -> Self {
        let world = World::new(setup.order, &[2, 0], setup.no_store_fence, chooser);
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(RING, setup.ring_max, KEY);
        consumer.reset(RING, setup.ring_max, KEY);
        let split = Self { setup, world, producer, consumer, is_sent: false };
        let before = vec![1; usize::try_from(payload_of(RING - LEFT * LINE)).expect("length")];
        split.push(&before);
        split.world.borrow_mut().land_all();
        // It doubles then, with the record that ends at its end.
        split.producer.request_grow();
        assert_eq!(split.receive().expect("what was sent before"), before);
        split
    }

    fn out(&self) -> Out {
        Out(self.world.clone(), 0, segment_len(self.setup.ring_max))
    }

    fn back(&self) -> In {
        In(self.world.clone(), 1, segment_len(self.setup.ring_max))
    }

    fn push(&self, bytes: &[u8]) {
        let pushed = self.producer.push(&self.out(), &self.back(), Kind::Data, bytes, 0);
        assert_eq!(pushed.expect("push"), bytes.len());
    }

    fn send(&self) {
        if self.setup.in_two {
            let first = usize::try_from(payload_of(LEFT * LINE)).expect("length");
            self.push(&[2; SENT][..first]);
            self.push(&[2; SENT][first..]);
        } else {
            self.push(&[2; SENT]);
        }
        assert_eq!(self.producer.cap(), self.setup.ring_max, "the ring has doubled, if it may");
    }

    /// All that has arrived, as `recv` takes it.
    fn receive(&self) -> Result<Vec<u8>, String> {
        let (ring, mut got) = (In(self.world.clone(), 0, segment_len(self.setup.ring_max)), Vec::new());
        let mut bytes = [0; 512];
        loop {
            match self.consumer.take(&ring, &mut bytes) {
                Ok(0) => break,
                Ok(count) => got.extend_from_slice(&bytes[..count]),
                Err(violation) => return Err(violation.to_string()),
            }
        }
        self.consumer.give_credit(&Out(self.world.clone(), 1, segment_len(self.setup.ring_max)), true);
        Ok(got)
    }
}

impl Hash for Split {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.borrow().hash(state);
        (self.is_sent, format!("{:?} {:?}", self.producer, self.consumer)).hash(state);
    }
}

impl Run for Split {
    fn has_choice(&self) -> bool {
        self.is_sent
    }

    fn step(&mut self) -> Outcome {
        if !self.is_sent {
            self.send();
            self.is_sent = true;
            return Outcome::Goes;
        }
        if self.with_chooser(|chooser| chooser.choose(2)) == 0 {
            self.world.borrow_mut().tick();
            return Outcome::Goes;
        }
        match self.receive() {
            Ok(got) if got.is_empty() => Outcome::Goes,
            Ok(got) if got == [2; SENT] => Outcome::Ended,
            Ok(got) => Outcome::Wrong(format!("a part: {} bytes", got.len())),
            Err(why) => Outcome::Wrong(why),
        }
    }

    fn with_chooser<T>(&mut self, work: impl FnOnce(&mut Chooser) -> T) -> T {
        work(&mut self.world.borrow_mut().chooser)
    }
}
