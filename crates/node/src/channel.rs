//! A message channel between two daemons: two segments, a ring of messages each way, a bounded queue before the ring.
//!
//! ```text
//!   awake --- nothing arrives ---> arm: WANT_DATA = sequence, fence, look once more --- still nothing ---> sleep,
//!     ^                                     at first only for as long as stores may be under way (crosslane_shm::arm)
//!     ^                                                                                                     |
//!     +---- doorbell DOORBELL_CHANNEL: the writer publishes, fences, looks at WANT_DATA, rings once for each sequence
//! ```

use crate::waiting::{Limits, Waiting};
use crosslane_shm::ring::{Consumer, Producer, Violation};
use crosslane_shm::{Load, Store};
use crosslane_wire::DecodeError;
use crosslane_wire::record::{Kind, max_message};
use crosslane_wire::segment::{WANT_DATA, WANT_ROOM};

/// Low half of a WANT word, the waiter's id: a daemon has one waiter.
const DAEMON: u64 = 1;

/// What [`Channel::send`] did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message is in the ring, or waits in the queue for room in the ring.
    Taken,
    /// The queue is full; the message is dropped.
    Dropped,
}

/// Bytes of a channel's rings.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    /// Length of each ring that is used at first, bytes, if it is as long.
    pub first: u64,
    /// Longest ring that this daemon reads.
    pub rx_max: u64,
    /// Longest ring that this daemon writes.
    pub tx_max: u64,
}

/// One endpoint of a channel.
#[derive(Debug)]
pub struct Channel<I, O> {
    inbound: I,
    outbound: O,
    tx: Producer,
    rx: Consumer,
    waiting: Waiting,
    cpu: u16,
    sequence: u32,
    armed: bool,
    wants_room: bool,
    published: bool,
    credited: bool,
    rung_data: u64,
    rung_room: u64,
}

impl<I: Load, O: Store> Channel<I, O> {
    /// A channel over new segments. `keys` are those of the ring that is read and of the ring that is written; `limits` bound the queue.
    pub fn new(inbound: I, outbound: O, rings: Rings, keys: (u64, u64), limits: Limits) -> Self {
        let (tx, rx) = (Producer::default(), Consumer::default());
        rx.reset(rings.first.min(rings.rx_max), rings.rx_max, keys.0);
        tx.reset(rings.first.min(rings.tx_max), rings.tx_max, keys.1);
        Self {
            inbound,
            outbound,
            tx,
            rx,
            waiting: Waiting::new(limits),
            cpu: 0,
            sequence: 0,
            armed: false,
            wants_room: false,
            published: false,
            credited: false,
            rung_data: 0,
            rung_room: 0,
        }
    }

    /// Sends a message, or queues it in `lane`. A message longer than the channel can carry is dropped: a neighbour may have sent it to
    /// be passed on.
    pub fn send(&mut self, lane: u16, message: &[u8]) -> Result<Sent, Violation> {
        if message.len() as u64 > max_message(self.tx.cap()) {
            return Ok(Sent::Dropped);
        }
        self.flush()?;
        if self.waiting.is_empty() && self.push(message)? {
            return Ok(Sent::Taken);
        }
        Ok(if self.waiting.push(lane, message) { Sent::Taken } else { Sent::Dropped })
    }

    /// Moves queued messages into the ring as far as there is room.
    pub fn flush(&mut self) -> Result<(), Violation> {
        while let Some(message) = self.waiting.front() {
            if !self.tx.push_message(&self.outbound, &self.inbound, message, self.cpu)? {
                break;
            }
            self.published = true;
            self.waiting.pop();
        }
        Ok(())
    }

    /// Whether the queue is empty.
    pub fn is_flushed(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a record has arrived: one load.
    pub fn arrived(&self) -> bool {
        self.rx.arrived(&self.inbound)
    }

    /// Copies the next message to the start of `message`, which is enlarged if it is too short; returns the length, or `None` if no
    /// message has arrived.
    pub fn receive(&mut self, message: &mut Vec<u8>) -> Result<Option<usize>, Violation> {
        loop {
            let Some(head) = self.rx.head(&self.inbound)? else {
                self.credited |= self.rx.give_credit(&self.outbound, true);
                return Ok(None);
            };
            match head.kind {
                Kind::Message => {
                    if message.len() < head.left {
                        message.resize(head.left, 0);
                    }
                    self.rx.take(&self.inbound, &mut message[..head.left])?;
                    self.credited |= self.rx.give_credit(&self.outbound, false);
                    return Ok(Some(head.left));
                }
                Kind::Filler => self.rx.consume()?,
                _ => return Err(DecodeError::Range("record kind on a message channel").into()),
            }
        }
    }

    /// Whether the peer sleeps for data or room that this side has published since the last call: the caller must ring its doorbell.
    pub fn poll_doorbell(&mut self) -> bool {
        if !self.published && !self.credited {
            return false;
        }
        self.outbound.fence();
        let data = self.published && news(self.inbound.load_u64(WANT_DATA), &mut self.rung_data);
        let room = self.credited && news(self.inbound.load_u64(WANT_ROOM), &mut self.rung_room);
        self.published = false;
        self.credited = false;
        data || room
    }

    /// Stores requests for a wake before a sleep, unless they are stored already; returns whether any was stored. The caller then checks
    /// [`Self::arrived`] once more, and [`Self::poll_doorbell`], since there may have been room for queued messages.
    pub fn arm(&mut self) -> Result<bool, Violation> {
        let mut asked = false;
        if !self.armed {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            self.outbound.store_u64(WANT_DATA, want(self.sequence));
            self.armed = true;
            asked = true;
        }
        if !self.waiting.is_empty() && !self.wants_room {
            self.outbound.store_u64(WANT_ROOM, want(self.sequence));
            self.wants_room = true;
            asked = true;
        }
        self.outbound.fence();
        self.flush().map(|()| asked)
    }

    /// Withdraws the requests for a wake.
    pub fn disarm(&mut self) {
        if self.armed {
            self.outbound.store_u64(WANT_DATA, 0);
            self.armed = false;
        }
        if self.wants_room {
            self.outbound.store_u64(WANT_ROOM, 0);
            self.wants_room = false;
        }
    }

    fn push(&mut self, message: &[u8]) -> Result<bool, Violation> {
        let done = self.tx.push_message(&self.outbound, &self.inbound, message, self.cpu)?;
        self.published |= done;
        Ok(done)
    }
}

fn want(sequence: u32) -> u64 {
    u64::from(sequence) << 32 | DAEMON
}

/// Whether the WANT word requests a wake that this side has not sent yet.
fn news(word: u64, rung: &mut u64) -> bool {
    let fresh = word != 0 && word != *rung;
    if fresh {
        *rung = word;
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::{Inbound, Outbound, mem::new_segment};
    use crosslane_wire::segment::{RING_MIN, segment_len};

    type Mapped = Channel<Inbound, Outbound>;

    fn pair(queue: usize) -> (Mapped, Mapped, Outbound) {
        let len = segment_len(RING_MIN);
        let (a, b) = (new_segment("a", len).unwrap(), new_segment("b", len).unwrap());
        let out = |fd| Outbound::sealed(fd, len).unwrap();
        let rubbish = out(&a);
        let limits = Limits { messages: queue, lane_bytes: 1 << 30, bytes: 1 << 30 };
        let end = |inb, outb, keys| {
            let rings = Rings { first: RING_MIN, rx_max: RING_MIN, tx_max: RING_MIN };
            Channel::new(Inbound::sealed(inb, len).unwrap(), out(outb), rings, keys, limits)
        };
        (end(&a, &b, (1, 2)), end(&b, &a, (2, 1)), rubbish)
    }

    #[test]
    fn messages_arrive_whole_and_in_order_through_queue_and_ring() {
        let (mut a, mut b, _) = pair(1000);
        let mut message = Vec::new();
        for lap in 0..20_u8 {
            for number in 0..100_u8 {
                let bytes = vec![number ^ lap; usize::from(number) * 40];
                assert_eq!(a.send(0, &bytes).unwrap(), Sent::Taken);
            }
            for number in 0..100_u8 {
                a.flush().unwrap();
                let len = b.receive(&mut message).unwrap().expect("message");
                assert_eq!(message[..len], vec![number ^ lap; usize::from(number) * 40]);
            }
            assert_eq!(b.receive(&mut message).unwrap(), None);
            assert!(a.is_flushed());
        }
    }

    #[test]
    fn queue_is_bounded() {
        let (mut a, _b, _) = pair(3);
        let taken = (0..100).filter(|_| a.send(0, &[0; 8000]).unwrap() == Sent::Taken).count();
        assert!((6..=12).contains(&taken), "{taken}");
    }

    #[test]
    fn messages_that_no_channel_can_carry_are_dropped() {
        let (mut a, _b, _) = pair(3);
        assert_eq!(a.send(0, &vec![0; 20_000]).unwrap(), Sent::Dropped);
    }

    #[test]
    fn sleeper_is_rung_once() {
        let (mut a, mut b, _) = pair(3);
        a.send(0, b"x").unwrap();
        assert!(!a.poll_doorbell(), "nobody sleeps");
        let mut message = Vec::new();
        assert_eq!(b.receive(&mut message).unwrap(), Some(1));
        b.arm().unwrap();
        assert!(!b.arrived());
        a.send(0, b"y").unwrap();
        assert!(a.poll_doorbell());
        a.send(0, b"z").unwrap();
        assert!(!a.poll_doorbell(), "rung already");
        b.disarm();
        b.arm().unwrap();
        assert!(b.arrived());
    }

    #[test]
    fn sender_that_sleeps_for_room_is_rung() {
        let (mut a, mut b, _) = pair(100);
        for _ in 0..20 {
            a.send(0, &[1; 8000]).unwrap();
        }
        assert!(!a.is_flushed());
        a.arm().unwrap();
        let mut message = Vec::new();
        while b.receive(&mut message).unwrap().is_some() {}
        assert!(b.poll_doorbell());
    }

    #[test]
    fn rubbish_is_a_violation() {
        let (mut a, _b, rubbish) = pair(3);
        rubbish.store_u64(crosslane_wire::segment::CREDIT, u64::MAX);
        let outcomes: Vec<_> = (0..20).map(|_| a.send(0, &[0; 8000])).collect();
        assert!(outcomes.iter().any(Result::is_err));
        let (mut a, _b, rubbish) = pair(3);
        let at = crosslane_wire::segment::RING;
        rubbish.store_u64(at + 8, u64::MAX);
        rubbish.store_u64(at, crosslane_wire::record::mark(1, 0));
        assert!(a.receive(&mut Vec::new()).is_err());
    }
}
